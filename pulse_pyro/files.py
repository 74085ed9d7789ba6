"""Write a file whole or not at all."""

import os
import tempfile
from pathlib import Path


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
