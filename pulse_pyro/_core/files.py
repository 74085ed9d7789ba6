"""Files and folders, written whole or not at all; Python files the user named, run."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from pulse_pyro._core.errors import ModelError

ASIDE = "saving"  # in the names of temporary files and folders
ABANDONED = 3600.0  # seconds after which a temporary one was left behind by a write that died


def write_whole(path: str | Path, text: str) -> Path:
    """Write ``text`` aside and rename it into place; a crash leaves the old file as it was.

    What is written is on the disk before the name points to it.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    handle, aside = tempfile.mkstemp(prefix=f".{target.name}.{ASIDE}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    _sync(target.parent)
    return target


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Hand out an empty folder; when the block ends it takes the place of ``path``.

    If the block raises, nothing has changed. Everything in the folder is on the disk before it is
    renamed. An earlier folder of that name goes; the caller has made sure that it may. While it is
    replaced it is kept under the name of :func:`earlier_folder`, where it is found should the
    program be killed just then. Temporary folders of writes that died are removed.
    """
    target = Path(path)
    old = earlier_folder(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.{ASIDE}.", dir=target.parent))
    gone = aside.with_name(aside.name + ".gone")
    try:
        yield aside
        aside.chmod(0o755)
        for written in (*aside.rglob("*"), aside):
            _sync(written)
        try:
            if target.exists():
                if old.exists():  # of a write that was killed at its very end
                    old.rename(gone)
                target.rename(old)
            aside.rename(target)
        except BaseException:  # an interrupt, too
            if not target.exists() and old.exists():
                old.rename(target)
            raise
        _sync(target.parent)
        if old.exists():
            old.rename(aside)  # deleted under another name: half of it must not pass for it
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(gone, ignore_errors=True)


def earlier_folder(path: Path) -> Path:
    """Return where a folder is kept while :func:`whole_folder` replaces it."""
    return path.with_name(f".{path.name}.old")


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
    line = ""
    trace = cause.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = f", line {trace.tb_lineno},"
        trace = trace.tb_next
    return line


def _sync(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk now."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):  # where folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(target: Path) -> None:
    """Remove what killed writes to the same place have left aside, but nothing fresh."""
    for aside in target.parent.glob(f".{glob.escape(target.name)}.{ASIDE}.*"):
        try:
            abandoned = time.time() - aside.stat().st_mtime > ABANDONED
        except OSError:  # its own write has just ended
            continue
        if not abandoned:
            continue
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)
