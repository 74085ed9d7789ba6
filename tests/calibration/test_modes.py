"""The bound covers the law it is for: biased, split, fitted on all rows, crossfitted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.base import is_exact
from pulse_pyro.calibration.cross_fitting import AverageLaw, _of_both
from pulse_pyro.calibration.rung import Rung
from tests.calibration.helpers import BY_ACTION, LINEAR, W_FEATURES, Guess, Shifted, band_values
from tests.helpers import binomial_floor, draws_at, linear_history, mean_at, mean_draws_at, z_bound

# --- a biased law -------------------------------------------------------------------------------


def biased_run(seed, bias):
    """Error of the law, its bound, half-width, miss of the centre: (n,) each, in the domain."""
    history, coef = linear_history(units=24, time=15, lags=2, seed=seed)
    fit, held_out = history.split(seed=seed)
    law = Shifted(pp.linear_lags(2).fit(fit, seed=seed), bias)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=seed, band=LINEAR)
    s = held_out.grid.s
    truth = 0.3 + law.summary(s) @ coef
    centre, half = band_values(calibration, s)
    columns = np.abs(truth - mean_at(law, s)), half, np.abs(truth - centre)
    use = calibration.inside_at(s)
    wrong, half, miss = (c[use][:, 0] for c in columns)
    return wrong, calibration.error_at(s)[use][:, 0, 0], half, miss


def test_the_bound_covers_a_biased_law_and_is_at_most_two_half_widths_too_large():
    runs, held = 40, 0
    for seed in range(runs):
        wrong, bound, half, miss = biased_run(seed, 0.3)
        assert wrong.mean() > 0.2
        held += bool((wrong <= bound).all())
        hit = miss <= half
        assert hit.any()
        assert (wrong <= bound)[hit].all()
        assert (bound <= wrong + 2 * half)[hit].all()
    assert held >= binomial_floor(runs, 0.95)


def test_the_half_width_alone_does_not_cover_a_biased_law():
    wrong, _, half, _ = biased_run(0, 0.3)
    assert (wrong > half).all()


# --- modes --------------------------------------------------------------------------------------


def test_split_refuses_units_the_law_has_seen_and_names_one(lagged):
    law, _, held_out = lagged
    seen = law.units[3]
    names = (seen, *held_out.units[1:])
    mixed = replace(held_out, units=names, clusters=names)
    with pytest.raises(pp.errors.LeakageError, match=rf"'{seen}' \(and 0 more\) was fitted on"):
        pp.calibrate(law, mixed, BY_ACTION.features, seed=0)


def test_all_takes_the_laws_own_units_and_bounds_it_tighter_than_split():
    history, _ = linear_history(units=60, time=15, lags=3, seed=8)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(3)
    half, whole = law.fit(fit, seed=0), law.fit(history, seed=0)
    split = pp.calibrate(half, held_out, W_FEATURES, seed=0, band=LINEAR)
    everything = pp.calibration.all_units(whole, history, W_FEATURES, seed=0, band=LINEAR)
    assert (split.mode, everything.mode) == ("split", "all")
    assert everything.parts[0].band.units == 60
    s = history.grid.s
    inside = split.inside_at(s) & everything.inside_at(s)
    mean = [c.error_at(s)[inside][:, 0, 0].mean() for c in (split, everything)]
    assert mean[1] < mean[0]
    assert everything.bound.mean() < split.bound.mean()


def test_all_covers_laws_fitted_on_the_same_rows():
    runs, held = 40, 0
    for seed in range(runs):
        history, coef = linear_history(units=20, time=12, lags=2, seed=100 + seed)
        law = pp.linear_lags(2).fit(history, seed=0)
        calibration = pp.calibration.all_units(law, history, W_FEATURES, seed=seed, band=LINEAR)
        wrong = np.abs(0.3 + history.inputs(law.summary) @ coef - law(history).mean())[:, 0]
        use = calibration.inside
        held += bool((wrong <= calibration.error[:, 0, 0])[use].all())
    assert held >= binomial_floor(runs, 0.95)


def test_crossfit_bounds_each_law_with_the_other_half_and_averages(cross):
    history, (_, calibration) = cross
    one, two = history.split(seed=4)
    first, second = calibration.parts
    assert first.law.units == one.units
    assert second.law.units == two.units
    apart = [
        pp.calibrate(part.law, other, W_FEATURES, level=0.975, seed=4, band=LINEAR)
        for part, other in ((first, two), (second, one))
    ]
    s = history.grid.s[:9]
    halves = [c.error_at(s) for c in apart]
    assert_allclose(calibration.error_at(s), (halves[0] + halves[1]) / 2, rtol=1e-12)
    assert_array_equal(calibration.inside_at(s), apart[0].inside_at(s) & apart[1].inside_at(s))
    assert first.band.level == second.band.level == pytest.approx(0.975)
    assert (calibration.level, calibration.mode) == (0.95, "crossfit")
    assert len(calibration.checks) == len(apart[0].checks) + len(apart[1].checks)


def labelled(cluster):
    """60 units of different lengths; W is off by 2 where an unseen label is "odd"."""
    rng = np.random.default_rng(11)
    unit = np.repeat(np.arange(60), rng.integers(6, 12, 60))
    kind = rng.choice(["even", "odd"], len(unit))
    s = rng.standard_normal(len(unit))
    names = np.array([f"u{i:02d}" for i in range(60)])[unit]  # which stay in this order
    frame = pd.DataFrame({"unit": names, "t": np.arange(len(unit)), "s": s, "town": unit // 2})
    frame["w"] = s + 2.0 * (kind == "odd") + 0.3 * rng.standard_normal(len(unit))
    more = {"cluster": "town"} if cluster else {}
    roles = {"unit": "unit", "time": "t", "observed": ["s"], "missing": ["w"]}
    return pp.History.from_frame(frame, **roles, **more), kind


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("how", ["labels", "numbers", "masks"])
def test_crossfit_gives_each_half_the_labels_of_its_own_rows(cluster, how):
    history, kind = labelled(cluster)
    odd = kind == "odd"
    choice = {"labels": kind, "numbers": odd.astype(int), "masks": {"even": ~odd, "odd": odd}}[how]
    found = pp.calibration.crossfit(
        pp.linear_lags(1), history, W_FEATURES, groups={"kind": choice}, seed=0, band=LINEAR
    ).calibration.rung("groups")
    for half in (found.details.one, found.details.two):
        # the law expects the middle of both: half a gap of 2 either way, and 0 of mixed labels
        assert_allclose(half.error, [-1, 1], atol=0.3)
    assert found.details.one.rows.sum() + found.details.two.rows.sum() == len(kind)


def test_crossfit_refuses_labels_of_another_archive_before_it_fits(monkeypatch):
    history, kind = labelled(False)
    law = pp.linear_lags(1)
    monkeypatch.setattr(type(law), "fit", lambda *_, **__: pytest.fail("fitted"))
    for bad in (kind[:-1], {"odd": kind[1:] == "odd"}):
        with pytest.raises(pp.errors.DataError, match=rf"each row .*, {len(kind)}, but"):
            pp.calibration.crossfit(law, history, W_FEATURES, groups={"kind": bad}, seed=0)


def test_a_rung_of_both_halves_rests_on_what_either_rests_on():
    free = Rung("uniform", "stands", "One.", np.array([0.1]))
    bound = Rung(
        "uniform", "conditional", "Two.", np.array([0.3]), rests_on="it is linear", remedy="More."
    )
    for pair in ((free, bound), (bound, free), (bound, bound)):
        both = _of_both(*pair, 0.95)
        assert (both.verdict, both.rests_on, both.remedy) == (
            "conditional",
            "it is linear",
            "More.",
        )
    curved = replace(bound, rests_on="it is additive", remedy="")
    assert _of_both(bound, curved, 0.95).rests_on == "it is linear, and it is additive"
    assert _of_both(free, free, 0.95).rests_on == ""


def test_the_crossfitted_law_is_the_half_and_half_mixture(cross):
    history, (law, calibration) = cross
    first, second = (part.law for part in calibration.parts)
    s = history.grid.s[:3, :5]
    assert_allclose(mean_at(law, s), (mean_at(first, s) + mean_at(second, s)) / 2, rtol=1e-12)
    assert is_exact(law)
    assert set(law.units) == set(history.units)
    assert law.id == calibration.law_id
    assert law.id not in (first.id, second.id)
    for size in (1, 2, 7):
        assert draws_at(law, s, size, rng=np.random.default_rng(0)).shape == (size, 3, 5, 1)
    size = 4000
    draws = draws_at(law, s, size, rng=np.random.default_rng(1))
    z = (draws.mean(0) - mean_at(law, s)) / (draws.std(0) / np.sqrt(size))
    assert np.nanmax(np.abs(z)) <= z_bound(z.size)
    middle = mean_draws_at(law, s, size, rng=np.random.default_rng(2)).mean(0)
    assert_allclose(middle, mean_at(law, s), atol=0.01)


@pytest.mark.parametrize("size", [2, 7, 100])
def test_half_of_the_draws_of_a_mixture_come_from_each_law(size):
    far = AverageLaw(Guess(pp.Lags(1)), Guess(pp.Lags(1), intercept=100.0))
    draws = draws_at(far, np.zeros((2, 3, 1)), size, rng=np.random.default_rng(0))
    assert_array_equal((draws > 50).sum(0), size // 2)
    middle = mean_draws_at(far, np.zeros((2, 3, 1)), size, rng=np.random.default_rng(0))
    assert_array_equal(middle, 50.0)


def test_the_crossfitted_bound_covers_the_averaged_law():
    runs, held = 20, 0
    for seed in range(runs):
        history, coef = linear_history(units=24, time=12, lags=2, seed=200 + seed)
        law, calibration = pp.calibration.crossfit(
            pp.linear_lags(2), history, W_FEATURES, seed=seed, band=LINEAR
        )
        s = history.grid.s
        wrong = np.abs(0.3 + law.summary(s) @ coef - mean_at(law, s))[..., 0]
        use = calibration.inside_at(s)
        held += bool((wrong <= calibration.error_at(s)[:, :, 0, 0])[use].all())
    assert held >= binomial_floor(runs, 0.95)


def test_a_cross_fit_says_at_which_level_both_claims_hold_and_what_was_not_asked(cross):
    found = cross[1].calibration
    assert "(95% together). First:" in found.rung("free").claim
    assert found.rung("free").claim.count("97.5%") == 2
    assert found.rung("groups").verdict == "not asked"
    assert found.rung("groups").claim.startswith("No groups were declared")
