"""A law from a Python file: one file, one model."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pulse_pyro.errors import ModelError, PulseError, nearest
from pulse_pyro.laws.law import Law
from pulse_pyro.summary import Identity

NAMES = ("model", "SUMMARY", "DIMS", "UNSEEN", "guide")


def law_from_file(path: str | Path) -> Law:
    """Return the law a Python file describes; the file is run, so name only files you trust.

    The file defines ``model(x, w=None)`` and, if it likes, ``SUMMARY`` (Identity() otherwise),
    ``DIMS`` (names of site axes), ``guide`` (for Svi) and ``UNSEEN`` ("refused" or "conditioned
    on"), as in :class:`Law`. The law is named after the file.
    """
    file = Path(path)
    if not file.is_file():
        there = sorted(other.name for other in file.parent.glob("*.py"))
        raise ModelError(f"law_from_file: there is no file {file}{nearest(file.name, there)}")
    if file.suffix != ".py":
        raise ModelError(f"law_from_file: {file} is not a Python file (.py).")
    module = run_file(file)
    _misnamed(module, file)
    model: Any = getattr(module, "model", None)
    if not callable(model):
        raise ModelError(f"{file}: 'model' must be a function model(x, w=None), it is {model!r}.")
    try:
        return Law(
            model,
            getattr(module, "SUMMARY", Identity()),
            file.stem,
            getattr(module, "DIMS", {}),
            getattr(module, "guide", None),
            getattr(module, "UNSEEN", "refused"),
        )
    except PulseError as cause:
        raise ModelError(f"{file}: {cause}") from cause


def story(path: str | Path) -> str:
    """Return the first sentence of a file's docstring, without running the file."""
    import ast

    try:
        text = ast.get_docstring(ast.parse(Path(path).read_text())) or ""
    except (OSError, SyntaxError, ValueError) as cause:
        return f"cannot be read: {type(cause).__name__}: {cause}"
    return text.strip().split("\n", 1)[0]


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


def _misnamed(module: ModuleType, file: Path) -> None:
    """Catch a name that would silently be ignored: Model, summary, dims, Guide, ..."""
    mine = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, type | ModuleType)
    ]
    for name in mine:
        meant = [wanted for wanted in NAMES if wanted.lower() == name.lower() and wanted != name]
        if meant and meant[0] not in mine:
            raise ModelError(f"{file}: {name!r} is not used; did you mean {meant[0]!r}?")
    if "model" not in mine:
        raise ModelError(
            f"{file}: it defines no 'model'{nearest('model', mine)} A law's file has a function "
            "model(x, w=None)."
        )
