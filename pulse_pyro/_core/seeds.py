"""Explicit randomness: one integer seed, one independent stream per named stage."""

import hashlib

import numpy as np

from pulse_pyro._core.errors import SettingError


def _sequence(seed: int, names: tuple[str | int, ...]) -> np.random.SeedSequence:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingError(f"seed must be an integer >= 0, but got {seed!r}; pass e.g. seed=0.")
    # repr keeps 1 and "1" apart; a digest, unlike hash(), is the same in every process
    plain = [name if isinstance(name, str) else int(name) for name in names]
    key = hashlib.sha256("\x1f".join(repr(name) for name in plain).encode()).digest()
    return np.random.SeedSequence(int(seed), spawn_key=tuple(np.frombuffer(key, dtype=np.uint32)))


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator of one stage.

    Streams of different names are independent; the same seed and names give the same numbers
    in every process, whatever was drawn elsewhere.

    Examples
    --------
    >>> one, again, other = stream(0, "fit"), stream(0, "fit"), stream(0, "held out")
    >>> float(one.random()) == float(again.random()), float(one.random()) == float(other.random())
    (True, False)
    """
    return np.random.default_rng(_sequence(seed, names))


def torch_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for ``torch.manual_seed``, derived like :func:`stream`."""
    return int(_sequence(seed, names).generate_state(1, np.uint64)[0] >> np.uint64(1))
