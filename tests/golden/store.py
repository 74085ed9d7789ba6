"""Where goldens lie and how they are compared; knows nothing of the library."""

import hashlib
import json
import platform
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy.linalg  # noqa: F401  (its linear algebra is among what is asked for below)
from threadpoolctl import threadpool_info

HOME = Path(__file__).parent
MOST = 400  # values kept of an array; of a larger one every n-th, and a checksum of all
EXACT, ROUNDING = 0.0, 1e-9  # relative differences: on the same machine, on another one
SEARCHED = 1e-3  # there, and of an array's largest value: a search ends within its tolerance
SIMULATED = 0.05  # there: a quantile of draws along directions that a processor may turn round
HASH = ".sha256"
IDS = re.compile(r"\b[0-9a-f]{16}\b")  # fingerprints of laws, inside texts


def machine() -> dict[str, str]:
    """What the last bits of a figure depend on."""
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        facts = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        cpu = ", ".join(facts.get(k, "") for k in ("model name", "cpu family", "model"))
    blas = sorted({part.get("architecture", "") for part in threadpool_info()} - {""})
    packages = ("numpy", "scipy", "torch", "pyro-ppl", "numba")
    return {
        "cpu": cpu,
        "blas": ", ".join(blas),
        "platform": " ".join([platform.system(), platform.machine(), *platform.libc_ver()]),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def same_machine() -> bool:
    file = HOME / "machine.json"
    return file.exists() and json.loads(file.read_text()) == machine()


def packed(found: dict) -> dict[str, np.ndarray]:
    """What a golden found, as it is kept: floats or texts, and a checksum of what is large."""
    out = {}
    for key, value in found.items():
        items = value if isinstance(value, list | tuple | np.ndarray) else [value]
        try:
            array = np.array(items, dtype=np.float64)  # None is NaN
        except (TypeError, ValueError):
            out[key] = np.array([IDS.sub("ID", str(item)) for item in items])
            continue
        if array.size > MOST:
            array[np.isnan(array)] = np.nan  # one NaN is as good as another
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            out[key + HASH] = np.array([f"{array.shape} {digest}"])
            array = array.ravel()[:: -(-array.size // MOST)]
        out[key] = array
    return out


def write(name: str, arrays: dict[str, np.ndarray]) -> None:
    np.savez_compressed(HOME / f"{name}.npz", **arrays)


def read(name: str) -> dict[str, np.ndarray]:
    with np.load(HOME / f"{name}.npz") as file:
        return dict(file)


def differences(old: dict, new: dict, allowed: float) -> list[str]:
    """A line for each key that differs: values before and now, and by how much at most.

    allowed : EXACT, ROUNDING, SEARCHED or SIMULATED.
    """
    lines = [f"{key}: is gone" for key in old if key not in new]
    lines += [f"{key}: is new" for key in new if key not in old]
    for key in (key for key in old if key in new):
        if allowed == EXACT or not key.endswith(HASH):
            lines += _difference(key, old[key], new[key], allowed)
    return lines


def _difference(key: str, old: np.ndarray, new: np.ndarray, allowed: float) -> list[str]:
    if old.shape != new.shape or old.dtype.kind != new.dtype.kind:
        return [f"{key}: was {old.dtype} {old.shape}, is {new.dtype} {new.shape}"]
    if old.dtype.kind == "U":
        pairs = zip(old.flat, new.flat, strict=True)
        return [f"{key}: was {str(a)!r}, is {str(b)!r}" for a, b in pairs if a != b]
    if allowed == EXACT:
        differs = (old != new) & ~(np.isnan(old) & np.isnan(new))
    else:
        # draws around 0 move by a share of the spread of all of them, not of their own size
        largest = np.abs(old[np.isfinite(old)]).max(initial=0.0) if allowed > ROUNDING else 0.0
        differs = ~np.isclose(new, old, allowed, max(1e-12, allowed * largest), equal_nan=True)
    if not differs.any():
        return []
    a, b = old[differs], new[differs]
    with np.errstate(all="ignore"):
        relative = np.abs(b - a) / np.maximum(np.abs(a), np.abs(b))
    at = int(np.argmax(np.nan_to_num(relative, nan=np.inf)))
    return [
        f"{key}: {differs.sum()} of {old.size} values, was {float(a[at])!r}, is {float(b[at])!r}, "
        f"largest relative difference {relative[at]:.3g}"
    ]
