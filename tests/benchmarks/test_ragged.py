"""An archive of very unequal units, against flat NumPy on the same rows."""

import tracemalloc

import numpy as np
import pandas as pd

from pulse_pyro.data.history import History
from pulse_pyro.laws.linear import linear_lags
from tests.benchmarks.timing import best_of

LAGS, BAR = 3, 3.0


def uneven_frame():
    """20,000 units of 5 rows and one of 20,000, in any order."""
    rng = np.random.default_rng(0)
    count = np.array([5] * 20_000 + [20_000])
    unit = np.repeat([f"u{i:05d}" for i in range(len(count))], count)
    time = np.concatenate([np.arange(n) for n in count])
    s = rng.standard_normal((len(unit), 3))
    w = s.sum(1) + rng.standard_normal(len(unit))
    frame = pd.DataFrame(
        {"unit": unit, "time": time, "w": w} | {f"s{j}": s[:, j] for j in range(3)}
    )
    return frame.sample(frac=1.0, random_state=0).reset_index(drop=True)


def flat_table(frame):
    """Sorted columns and offsets: the least any reader must do."""
    code, names = pd.factorize(frame["unit"], sort=True)
    order = np.lexsort((frame["time"].to_numpy(), code))
    s = frame[["s0", "s1", "s2"]].to_numpy(np.float64)[order]
    w = frame[["w"]].to_numpy(np.float64)[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(code))])
    return s, w, offsets, names


def flat_fit(s, w, offsets):
    """Lagged rows that do not reach across units, and their normal equations."""
    age = np.arange(len(s)) - np.repeat(offsets[:-1], np.diff(offsets))
    at = np.flatnonzero(age >= LAGS - 1)
    x = np.concatenate([np.ones((len(at), 1)), *(s[at - k] for k in range(LAGS))], axis=1)
    return np.linalg.solve(x.T @ x, x.T @ w[at])


def peak(call):
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_unequal_units_cost_at_most_three_times_flat_numpy():
    frame = uneven_frame()
    roles = {"unit": "unit", "time": "time", "observed": ["s0", "s1", "s2"], "missing": ["w"]}
    history, flat = History.from_frame(frame, **roles), flat_table(frame)
    law = linear_lags(LAGS)
    sides = {
        "from_frame": lambda: History.from_frame(frame, **roles),
        "flat_table": lambda: flat_table(frame),
        "fit": lambda: law.fit(history, seed=0),
        "flat_fit": lambda: flat_fit(*flat[:3]),
    }
    seconds = best_of(5, **sides)
    memory = {name: peak(call) for name, call in sides.items()}
    for ours, theirs in (("from_frame", "flat_table"), ("fit", "flat_fit")):
        slow = seconds[ours] / seconds[theirs]
        large = memory[ours] / memory[theirs]
        print(
            f"\n{ours}, 20,000 units x 5 rows + one of 20,000: {1e3 * seconds[ours]:.0f} ms, "
            f"{slow:.2f} times flat NumPy (bar {BAR:g}); {memory[ours] / 2**20:.0f} MiB, "
            f"{large:.2f} times (bar {BAR:g})"
        )
        assert slow <= BAR
        assert large <= BAR
