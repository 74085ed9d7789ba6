"""Files: written whole or not at all; Python files the user named, run for what they define."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from pulse_pyro._core.errors import ModelError


def write_whole(path: str | Path, text: str) -> Path:
    """Write ``text`` aside and rename it into place; a crash leaves the old file as it was."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(aside, 0o644)
        os.replace(aside, target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return target


def run_file(file: Path) -> ModuleType:
    """Run a file the user named and return what it defines, or say what is wrong with it."""
    spec = spec_from_file_location(f"pulse_pyro_law_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ModelError(f"{file} cannot be loaded as Python; name a .py file.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while they are made
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as cause:
        what = (str(cause).strip().splitlines() or [""])[0]
        raise ModelError(
            f"{file}{_line(cause, file)} raised when it was loaded: {type(cause).__name__}: {what};"
            " such a file only defines things, it should not need data or do work."
        ) from cause
    finally:
        del sys.modules[spec.name]
    return module


def _line(cause: BaseException, file: Path) -> str:
    found = ""
    trace = cause.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            found = f", line {trace.tb_lineno},"
        trace = trace.tb_next
    return found
