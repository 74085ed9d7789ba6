"""Particles against the Kalman filter, latency of filters, and ranks of fits: `make studies`."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pulse_pyro import History, Laplace, StepLaw, law_from_file
from tests.helpers import FALSE_ALARM
from tests.laws.step_programs import (
    LEVEL,
    LEVEL_TRUTH,
    REGIME,
    REGIME_TRUTH,
    at_truth,
    level_archive,
    masked,
    regime_archive,
)

SHARES = (0.0, 0.2, 0.5, 0.8)
LEVEL_OF = 0.9
MODELS = Path(__file__).parents[2] / "models"
REPS = int(os.environ.get("PULSE_REPS", "100"))


def compare(share, units=200, length=30, particles=500, seed=0):
    """RMSE of the particles' E[W] against Kalman's, in sds of the state, and coverages of W."""
    history = masked(level_archive(units, length, seed)[0], share)
    exact = at_truth(StepLaw(*LEVEL), history, LEVEL_TRUTH)(history)
    rough = StepLaw(*LEVEL, state="particles", particles=particles)
    near = at_truth(rough, history, LEVEL_TRUTH)(history)
    sd = np.sqrt(exact.covariance()[:, 0] - LEVEL_TRUTH["sd"] ** 2)
    away = (near.mean() - exact.mean()) / sd
    inside = [np.abs(law.cdf(history.w) - 0.5) <= LEVEL_OF / 2 for law in (exact, near)]
    return {
        "rmse": float(np.sqrt((away**2).mean())),
        "bias": float(away.mean()),
        "coverage": [float(each.mean()) for each in inside],
        "open": float(np.sqrt(exact.covariance()[:, 0, 0].mean())),
        "rows": len(history.s),
    }


@pytest.mark.parametrize("share", SHARES)
def test_particles_against_kalman(share):
    found = compare(share)
    kalman, rough = found["coverage"]
    print(
        f"\nS unseen {share:.0%}: RMSE {found['rmse']:.3f} sd of the state at N = 500, bias "
        f"{found['bias']:+.4f}; coverage at {LEVEL_OF:.0%}: Kalman {kalman:.3f}, particles "
        f"{rough:.3f}; sd of W {found['open']:.3f}"
    )
    assert found["rmse"] < 3.0 / np.sqrt(500)
    error = stats.norm.isf(FALSE_ALARM / 2) * np.sqrt(0.09 / found["rows"])
    assert abs(kalman - LEVEL_OF) < error
    assert abs(rough - kalman) < 0.02


def latency(law, archive, truth, draws, steps=200):
    """Median microseconds of push and of mean."""
    history = archive(1, steps)[0]
    follower, times = at_truth(law, history, truth, draws).follow(), []
    for row in history.s:
        begin = time.perf_counter()
        now = follower.push(row)
        between = time.perf_counter()
        now.mean()
        times.append((between - begin, time.perf_counter() - between))
    half = len(times) // 2
    late = np.median(times[half:], 0).sum() / np.median(times[5:half], 0).sum()
    return np.median(times, 0) * 1e6, late


def test_latency_of_a_step():
    cases = {
        "kalman, 50 draws": (StepLaw(*LEVEL), level_archive, LEVEL_TRUTH, 50),
        "forward, 3 states, 50 draws": (StepLaw(*REGIME), regime_archive, REGIME_TRUTH, 50),
        "500 particles, 1 draw": (
            StepLaw(*LEVEL, state="particles"),
            level_archive,
            LEVEL_TRUTH,
            1,
        ),
        "500 particles, 20 draws": (
            StepLaw(*LEVEL, state="particles"),
            level_archive,
            LEVEL_TRUTH,
            20,
        ),
    }
    print()
    for name, case in cases.items():
        (push, mean), late = latency(*case)
        print(f"{name}: push {push:.0f} us, mean {mean:.0f} us; later steps {late:.2f} x earlier")
        assert late < 2.0  # O(1) in t


def ranks(file, reps, units=10, length=12, seed=0):
    """Rank of each scalar parameter's truth among posterior draws: name -> (reps,) in 0..1."""
    law = law_from_file(file)
    s = np.random.default_rng(seed).standard_normal((units, length, 1))
    blank = History.from_arrays(s, np.zeros_like(s), s_names=["s"], w_names=["w"])
    made = law.simulate(blank, reps, seed=seed)
    out = {}
    for r in range(reps):
        history = History.from_arrays(made.s[r], made.w[r], s_names=["s"], w_names=["w"])
        fitted = law.fit(history, Laplace(draws=199), seed=r)
        for name, value in made.truth.items():
            below = (fitted.draws[name] < value[r]).mean(0)
            for at in np.ndindex(below.shape):
                out.setdefault(f"{name}{list(at)}" if at else name, []).append(float(below[at]))
    return {name: np.array(values) for name, values in out.items()}


@pytest.mark.parametrize("name", ["drifting_level", "ar_errors", "hidden_regimes"])
def test_ranks_of_laplace_fits(name):
    """Laplace is an approximation at 120 rows: figures are printed, gross failures refused."""
    found = ranks(MODELS / f"{name}.py", REPS)
    smooth = {key: (values * 199 + 0.5) / 200 for key, values in found.items()}
    p = {key: float(stats.kstest(values, "uniform").pvalue) for key, values in smooth.items()}
    worst = min(p, key=p.get)
    inside = np.mean([np.abs(v - 0.5) <= 0.45 for v in smooth.values()])
    print(
        f"\n{name}: {REPS} fits, smallest p of {len(p)} parameters {p[worst]:.2g} ({worst}); truth "
        f"inside the central 90 %: {inside:.3f}"
    )
    assert inside > 0.8
