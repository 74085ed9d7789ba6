"""Replications of a study, two at a time, and kept: a run that was cut short goes on.

Finished ones are lines of a file in the folder PULSE_STUDIES (by default one of the system's folder
for temporary files), a file for each study and state of the code: what changed is run again.
"""

import hashlib
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import pulse_pyro

FOLDER = Path(os.environ.get("PULSE_STUDIES", Path(tempfile.gettempdir()) / "pulse-studies"))
TOLD = 60.0  # seconds between two lines on how far it is


def in_parallel(work, jobs):
    """Return work(job) for each job, a tuple of plain values, in order; results as JSON has them.

    work : a function of a module, which the two processes find by its name.
    """
    file = _file(work)
    done = _read(file)
    left = [job for job in jobs if json.dumps(job) not in done]
    start = told = time.monotonic()
    with ProcessPoolExecutor(2) as pool, file.open("a") as lines:
        found = pool.map(work, left, chunksize=max(min(len(left) // 40, 8), 1))
        for number, (job, result) in enumerate(zip(left, found, strict=True), 1):
            key, text = json.dumps(job), json.dumps(result, default=float)
            lines.write(f"{key}\t{text}\n")
            lines.flush()
            done[key] = json.loads(text)
            now = time.monotonic()
            if now - told > TOLD:
                told = now
                print(f"  {number}/{len(left)}, {now - start:.0f} s", file=sys.stderr, flush=True)
    return [done[json.dumps(job)] for job in jobs]


def _file(work):
    module = sys.modules[work.__module__]
    text = _package() + Path(module.__file__).read_bytes()
    name = f"{Path(module.__file__).stem}-{work.__name__}-{hashlib.sha256(text).hexdigest()[:12]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER / f"{name}.jsonl"


@cache
def _package():
    """Return all code of the package, whose change makes a replication stale."""
    files = sorted(Path(pulse_pyro.__file__).parent.rglob("*.py"))
    return b"".join(file.read_bytes() for file in files)


def _read(file):
    if not file.exists():
        return {}
    whole = file.read_text().split("\n")[:-1]  # the last line may have been cut short
    pairs = (line.split("\t") for line in whole)
    return {key: json.loads(text) for key, text in pairs}
