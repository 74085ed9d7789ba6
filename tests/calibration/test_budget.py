"""Budgets of rungs that bound errors on average, where |M_a(s)| varies and goes with the error."""

import numpy as np
import pytest
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.bands.band import BandMethod
from tests.calibration.helpers import Guess
from tests.helpers import binomial_floor

UNTESTED, UNTESTED_AUTO = (BandMethod(kind, tested=False) for kind in ("linear", "auto"))
TIMES_S = pp.terms(["s*w"], 2, observed=["s"], missing=["w"])
RUNS, ROUNDS = 200, 1000


def contexts(units, rows, rng, between):
    """S with t(4) tails; ``between``: how much the scale of a unit varies."""
    scale = np.exp(between * rng.standard_normal((units, 1, 1)))
    return scale * rng.standard_t(4, (units, rows, 1)) / np.sqrt(2.0)


def archive(seed, between, curve):
    rng = np.random.default_rng(seed)
    s = contexts(200, 30, rng, between)
    w = curve(s) + 0.05 * rng.standard_normal(s.shape)
    names = tuple(f"h{i}" for i in range(len(s)))
    return pp.History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))


@pytest.mark.parametrize("between", [0.0, 0.1])
@pytest.mark.parametrize(
    "wrong",
    [lambda s: 0.5 * s, lambda s: 0.25 * np.sign(s) * s**2, lambda s: 0.5 * np.ones_like(s)],
    ids=["proportional", "steeper", "constant"],
)
def test_a_budget_covers_runs_whose_error_is_large_where_phi_multiplies_it(between, wrong):
    law = Guess(pp.Lags(1), curve=lambda x: x - wrong(x))
    covered, runs = 0, 0
    for seed in range(3):
        held_out = archive(seed, between, lambda s: s)
        found = pp.calibrate(law, held_out, TIMES_S, seed=seed, band=UNTESTED)
        budget = found.budget(rounds=ROUNDS, rung="free")
        rng = np.random.default_rng(100 + seed)
        s = contexts(RUNS, ROUNDS, rng, between)
        spent = np.abs(s * wrong(s)).sum((1, 2))
        assert spent.mean() <= budget
        covered, runs = covered + int((spent <= budget).sum()), runs + RUNS
        if wrong(np.ones(1)) != wrong(2 * np.ones(1)):  # a constant is not all the rung sees
            assert found.budget(rounds=ROUNDS, rung="average") <= 1.2 * budget
    assert covered >= binomial_floor(runs, 0.95)


def test_the_formula_by_hand_with_two_targets_and_bounds_on_theta():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((40, 20, 1))
    w = np.concatenate([s, 2 * s], axis=2) + rng.standard_normal((40, 20, 2))
    names = tuple(f"h{i}" for i in range(40))
    held_out = pp.History.from_arrays(s, w, units=names, s_names=("s",), w_names=("v", "w"))
    fit, held_out = held_out.split(seed=0)
    phi = pp.terms(["s*v", "w", "w*a"], 2, observed=["s"], missing=["v", "w"])
    found = pp.calibrate(pp.linear_lags(1).fit(fit, seed=0), held_out, phi, seed=0, band=UNTESTED)
    b = found.rung("free").details.largest_bound
    square = held_out.grid.s[:, :, 0] ** 2
    t = stats.t.ppf(0.975, len(square) - 1) * np.sqrt(1 + 1 / len(square))
    mean = square.mean(1)
    first = np.sqrt(mean.mean() + t * mean.std(ddof=1))
    plain = 10 * 1.5 * (b[0] * first + b[1] * np.sqrt(2.0))
    assert found.budget(rounds=10, theta_bound=1.5, rung="free") == pytest.approx(plain)
    tight = 10 * (0.3 * b[0] * first + 0.2 * b[1])
    bounds = [0.3, 0.1, 0.1]
    assert found.budget(rounds=10, theta_bounds=bounds, rung="free") == pytest.approx(tight)


def test_a_mean_error_is_no_budget():
    # off by s: on average by nothing, and in every context by much; lines need more clusters
    rng = np.random.default_rng(1)
    s = rng.standard_normal((6, 20, 6))
    names = tuple(f"s{j}" for j in range(6))
    w = s[:, :, :1] + rng.standard_normal((6, 20, 1))
    history = pp.History.from_arrays(s, w, units=tuple("abcdef"), s_names=names, w_names=("w",))
    phi = pp.terms(["w"], 2, observed=names, missing=["w"])
    law = Guess(pp.Lags(1), curve=lambda x: np.zeros_like(x), names=(names, ("w",)))
    found = pp.calibrate(law, history, phi, seed=0, band=UNTESTED_AUTO)
    assert found.rung("average").details.k.tolist() == [1]
    with pytest.raises(pp.errors.SettingError, match=r"'average' bounds mean errors.*cancel"):
        found.budget(rounds=10, rung="average")
