"""W of few values: what is judged under a density, and how laws on these values are scored."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

import pulse_pyro as pp
from pulse_pyro.base import Column
from pulse_pyro.diagnostics.levels import levels_of
from pulse_pyro.diagnostics.scores import level_crps, share_crps
from tests.helpers import binomial_floor

DISTRIBUTION = ("coverage", "pit", "spread", "unit spread", "replicates")


class Chances:
    """A law of 0 and 1: P(1) = expit(2 s) + tilt, within 0.02 and 0.98, known for certain."""

    schema = pp.Schema.of(("s0",), ("w0",))
    units = tuple(f"seen {i}" for i in range(10_000))

    def __init__(self, tilt=0.0):
        self.tilt = tilt

    def __call__(self, source, at=None):
        s = source.s if isinstance(source, pp.History) else np.asarray(source).reshape(-1, 1)
        chance = np.clip(special.expit(2 * s[:, 0]) + self.tilt, 0.02, 0.98)
        return ChancesAt(chance if at is None else chance[at])


class ChancesAt:
    exact = True

    def __init__(self, chance):
        self.chance = chance

    def mean(self):
        return self.chance[:, None]

    def draws(self, size, *, rng):
        return (rng.random((size, len(self.chance))) < self.chance).astype(float)[..., None]


def answers(seed, units=80, time=25, levels=2):
    """S, and W of 0 and 1, or of grades, the higher the larger S."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 1))
    chance = np.clip(special.expit(2 * s), 0.02, 0.98)
    w = (rng.random((levels - 1, *s.shape)) < chance).sum(0).astype(float)
    return pp.History.from_arrays(s, w)


def test_few_values_are_discrete_and_many_are_not():
    rng = np.random.default_rng(0)
    real, binary = Column("w", "W"), Column("w", "W", kind="binary")
    assert_allclose(levels_of(np.array([0.0, 1, 1, 0, np.nan] * 10), real), [0, 1])
    assert levels_of(rng.standard_normal(100), real) is None
    assert levels_of(np.arange(8.0), real) is None  # eight rows, each value once
    assert_allclose(levels_of(np.array([1.0, 0.0]), binary), [0, 1])
    assert levels_of(np.ones(50), binary) is None
    assert levels_of(rng.poisson(40.0, 2000).astype(float), Column("w", "W", kind="count")) is None


def test_the_scores_of_values_worked_by_hand():
    two, w = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    assert_allclose(level_crps(two, w, np.array([0.7, 0.7])), [0.09, 0.49])
    assert_allclose(level_crps(2 * two, 2 * w, np.array([1.4, 1.4])), [0.18, 0.98])
    assert_allclose(level_crps(two, w, np.array([1.4, -3.0])), [0.0, 0.0])  # chances, at most 1
    # shares 1/2, 1/4, 1/4 of 0, 1, 3: F = .5, .75 up to 1 and 3; w = 1 gives .25 + 2 * .0625
    shares = share_crps(np.array([0.0, 1, 3]), np.array([1.0]), np.array([0.0, 0, 1, 3, np.nan]))
    assert_allclose(shares, [0.5**2 + 2 * 0.25**2])


def test_the_score_of_draws_is_the_rps_and_a_density_is_moved_to_the_values():
    rng = np.random.default_rng(1)
    levels, chance = np.array([0.0, 1, 2]), np.array([0.2, 0.5, 0.3])
    below = np.cumsum(chance)[:-1]
    rps = [((below - (w <= levels[:-1])) ** 2).sum() for w in levels]
    draws = rng.choice(levels, (20_000, 3), p=chance)
    assert_allclose(level_crps(levels, levels, levels, draws), rps, atol=0.02)
    near = draws + rng.uniform(-0.4, 0.4, draws.shape)
    assert_allclose(level_crps(levels, levels, levels, near), rps, atol=0.02)


@pytest.mark.parametrize("levels", [2, 4])
def test_a_density_on_few_values_is_warned_of_and_only_its_mean_is_judged(levels):
    fit, held_out = answers(0, levels=levels).split(seed=0)
    found = pp.diagnose(pp.linear_lags(1).fit(fit, seed=0), held_out, seed=0).table
    assert found.loc["form w0", "verdict"] == "warn"
    assert "MEAN only" in found.loc["form w0", "text"]
    assert (found.loc[[f"{name} w0" for name in DISTRIBUTION], "verdict"] == "info").all()
    assert found.loc["log score", "verdict"] == "info"
    assert found.loc["skill w0", "verdict"] == found.loc["crps w0", "verdict"] == "pass"
    assert found.loc["trend w0", "verdict"] != "info"


def test_a_wrong_mean_of_a_density_on_few_values_still_fails():
    fit, held_out = answers(1, units=200).split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    others = [f"other {i}" for i in range(100)]
    bent = pp.History.from_arrays(held_out.grid.s, 1.0 - held_out.grid.w, units=others)
    found = pp.diagnose(law, bent, seed=0).table
    assert found.loc["skill w0", "verdict"] == found.loc["trend w0", "verdict"] == "fail"
    assert found.loc["crps w0", "verdict"] == "fail"


def test_a_right_law_of_few_values_is_judged_and_passes():
    warned = 0
    for seed in range(10):
        history = answers(seed, units=40)
        found = pp.diagnose(Chances(), history, seed=seed, size=200)
        assert "form w0" not in found.table.index
        assert found.table.loc["pit w0", "verdict"] != "info"
        assert found.table.loc["crps w0", "verdict"] == "pass"
        assert found.verdict != "fail"
        warned += found.verdict == "warn"
    assert warned <= 4


def test_a_wrong_law_of_few_values_fails_its_randomised_pit():
    words = []
    for seed in range(10):
        history = answers(seed)
        found = pp.diagnose(Chances(tilt=0.2), history, seed=seed, size=200).table
        words.append(found.loc["pit w0", "verdict"])
    assert words.count("fail") >= binomial_floor(10, 0.9)


def test_a_law_of_values_and_a_density_with_the_same_mean_get_the_same_brier_score():
    """Or a density's spread would count against it twice; the log score is compared for neither."""
    history = answers(2)
    of_values = pp.diagnose(Chances(), history, seed=0, size=100)

    class Density(Chances):
        def __call__(self, source, at=None):
            found = super().__call__(source, at)
            found.draws = lambda size, rng: (
                found.mean() + 0.4 * rng.standard_normal((size, len(found.chance), 1))
            )
            found.joint_log_density = lambda w: 0.0 * w[:, 0]
            return found

    density = pp.diagnose(Density(), history, seed=0, size=100)
    assert_allclose(of_values.scores["gain"], density.scores["gain"])
    assert set(of_values.scores.index.get_level_values(0)) == {"crps w0"}


def test_numbers_are_judged_as_before():
    rng = np.random.default_rng(3)
    s = rng.standard_normal((40, 20, 1))
    history = pp.History.from_arrays(s, s + rng.standard_normal(s.shape))
    fit, held_out = history.split(seed=0)
    found = pp.diagnose(pp.linear_lags(1).fit(fit, seed=0), held_out, seed=0).table
    assert "form w0" not in found.index
    assert found.loc["log score", "verdict"] == "pass"
