"""Scores against baselines, and replicated archives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

import pulse_pyro as pp
from pulse_pyro.diagnostics.scores import (
    RowScores,
    baselines,
    comparisons,
    draws_crps,
    has_density,
    normal_scores,
    score_checks,
)
from tests.diagnostics.helpers import replicate_check
from tests.helpers import FALSE_ALARM, assert_mean, binomial_floor, draws_at, linear_history

FIT, HELD_OUT = linear_history(units=60, time=20, seed=4)[0].split(seed=0)
LAW = pp.linear_lags(3).fit(FIT, seed=0)


def altered(law=LAW, **changes):
    return replace(law, draws={**law.draws, **{k: f(law.draws[k]) for k, f in changes.items()}})


def check(law, name, held_out=HELD_OUT, **more):
    found = pp.diagnose(law, held_out, seed=0, **more).checks
    return next(c for c in found if c.name == name)


def test_crps_of_a_normal_law_is_its_integral():
    law = stats.norm(1.0, 2.0)
    for w in (-3.0, 1.0, 4.0):
        below = integrate.quad(lambda v: law.cdf(v) ** 2, -40, w)[0]
        above = integrate.quad(lambda v: law.sf(v) ** 2, w, 40)[0]
        found = normal_scores(np.array([[w]]), np.array([1.0]), np.array([2.0]))
        assert_allclose(found.crps, [[below + above]], rtol=1e-7)
        assert_allclose(found.log, [law.logpdf(w)], rtol=1e-12)


def test_crps_of_draws_is_unbiased_already_for_few():
    rng = np.random.default_rng(0)
    w = np.array([[0.3]])
    found = [draws_crps(rng.standard_normal((5, 1, 1)), w)[0, 0] for _ in range(4000)]
    assert_mean(found, normal_scores(w, np.zeros(1), np.ones(1)).crps[0, 0])


def test_draws_crps_is_the_mean_over_pairs():
    rng = np.random.default_rng(1)
    draws, w = rng.standard_normal((7, 3, 2)), rng.standard_normal((3, 2))
    pairs = np.abs(draws[:, None] - draws[None]).sum((0, 1)) / (7 * 6)
    assert_allclose(draws_crps(draws, w), np.abs(draws - w).mean(0) - pairs / 2, rtol=1e-12)


def test_every_row_is_scored_by_units_other_than_its_own():
    used = np.flatnonzero(HELD_OUT.step >= 2)
    plain = baselines(LAW, HELD_OUT, used, None, 0, 100)["linear"].log.reshape(-1, 18)
    w = np.array(HELD_OUT.w)
    w[HELD_OUT.unit_of == 0] += 100.0
    moved = baselines(LAW, replace(HELD_OUT, w=w), used, None, 0, 100)["linear"].log.reshape(-1, 18)
    assert moved[0].max() < plain[0].min() - 100  # far from what the others say
    assert (moved[1:] != plain[1:]).any()


def test_climatology_is_that_of_the_fitted_archive():
    used = np.arange(len(HELD_OUT.w))
    found = baselines(LAW, HELD_OUT, used, None, 0, 100)["climatology"].log
    w = FIT.rows(LAW.summary).w
    assert_allclose(found, stats.norm.logpdf(HELD_OUT.w[used][:, 0], w.mean(), w.std()), rtol=1e-9)


def test_a_right_law_beats_climatology_and_equals_a_line():
    scores = pp.diagnose(LAW, HELD_OUT, seed=0, archive=FIT).scores
    assert (scores.xs("climatology", level="against")["low"] > 0.1).all()
    assert_allclose(scores.xs("linear", level="against")["gain"], 0.0, atol=0.02)


@pytest.mark.parametrize("name", ["log score", "crps w0"])
def test_a_law_worse_than_climatology_fails(name):
    wrong = altered(coef=lambda c: c * np.array([1, -1, -1, -1])[:, None])
    assert check(wrong, name).verdict == "fail"
    assert "WORSE than no law" in check(wrong, name).text


@pytest.mark.parametrize("name", ["log score", "crps w0"])
def test_a_law_that_learned_nothing_and_one_worse_than_a_line_are_warned_of(name):
    flat = altered(coef=lambda c: c * np.array([1, 0, 0, 0])[:, None], variance=np.ones_like)
    assert (check(flat, name).verdict, "No gain" in check(flat, name).text) == ("warn", True)
    worse = check(altered(coef=lambda c: c * np.array([1, 0.6, 0.6, 0.6])[:, None]), name)
    assert (worse.verdict, "straight line" in worse.text) == ("warn", True)


def test_right_laws_are_not_told_to_be_worse():
    words = []
    for seed in range(60):
        fit, held_out = linear_history(units=20, time=10, seed=seed)[0].split(seed=seed)
        law = pp.linear_lags(3).fit(fit, seed=seed)
        found = pp.diagnose(law, held_out, seed=seed, size=100).checks
        words += [c.verdict for c in found if c.name in ("log score", "crps w0")]
    assert sum(word != "pass" for word in words) <= stats.binom.isf(FALSE_ALARM, 120, 0.01)


def test_w_that_a_law_calls_impossible_is_no_missing_value():
    unit = np.repeat(np.arange(10), 4)
    own = RowScores(np.zeros(40), np.ones((40, 1)))
    own.log[7] = -np.inf
    other = {k: RowScores(np.full(40, -1.0), np.ones((40, 1))) for k in ("climatology", "linear")}
    assert score_checks(comparisons(own, other, unit, ("w",), 1.0))[0].verdict == "fail"


def test_counts_are_judged_but_have_no_density_to_compare():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((40, 15, 1))
    w = rng.poisson(np.exp(0.5 + 0.5 * s)) * (rng.random(s.shape) < 0.7)
    names = tuple(f"u{i}" for i in range(40))
    archive = pp.History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))
    fit, held_out = archive.split(seed=0)
    model = pp.law_from_file(Path(__file__).parents[2] / "models" / "zero_inflated_counts.py")
    law = replace(model, summary=pp.Lags(1)).fit(fit, seed=0)
    assert has_density(draws_at(LAW, held_out.grid.s, 2, rng=rng)[:, 0, 2:])
    assert not has_density(draws_at(law, held_out.grid.s, 2, rng=rng)[:, 0])
    found = {c.name: c for c in pp.diagnose(law, held_out, seed=0).checks}
    assert found["log score"].verdict == "info"
    assert {found[f"{k} w"].verdict for k in ("coverage", "pit", "crps", "replicates")} == {"pass"}
    assert "zeros" in found["replicates w"].text


def test_one_unit_has_no_baseline_and_units_of_the_archive_are_refused():
    names = [c.name for c in pp.diagnose(LAW, HELD_OUT.take([0]), seed=0).checks]
    assert "log score" not in names
    with pytest.raises(pp.errors.LeakageError, match="neither the law nor the baselines"):
        pp.diagnose(LAW, HELD_OUT, seed=0, archive=HELD_OUT)


def rows(seed, units=30, time=20, noise=None):
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((200, units * time))
    w = rng.standard_normal((units, time)) if noise is None else noise(rng, (units, time))
    return w, draws


def ar(rng, shape):
    e = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        e[:, t] = 0.6 * e[:, t - 1] + 0.8 * e[:, t]
    return e


def shared(rng, shape):
    return np.sqrt(0.9) * rng.standard_normal((shape[0], 1)) + np.sqrt(0.1) * rng.standard_normal(
        shape
    )


def with_zeros(rng, shape):
    return np.where(rng.random(shape) < 0.03, 0.0, rng.standard_normal(shape))


ODD = {
    "mean square": lambda rng, shape: 1.3 * rng.standard_normal(shape),
    "mean cube": lambda rng, shape: rng.exponential(size=shape) - 1,
    "share of extremes": lambda rng, shape: np.where(
        rng.random(shape) < 0.04, rng.choice([-3.5, 3.5], shape), 0.7 * rng.standard_normal(shape)
    ),
    "zeros": with_zeros,
}


@pytest.mark.parametrize("name", ODD)
def test_archives_the_law_does_not_make_fail(name):
    found = [replicate_check("w", *rows(seed, 200, noise=ODD[name]), 1.0) for seed in range(20)]
    assert [c.verdict for c in found].count("fail") >= binomial_floor(20, 0.9)
    assert sum(f"statistic, {name}" in c.text for c in found) >= binomial_floor(20, 0.7)


def rounded(of, digits=1, zeros=0.0):
    """W and replicates of one law, W rounded, and set to 0 now and then."""

    def made(seed):
        rng = np.random.default_rng(seed)
        w, draws = of(rng, (30, 20)), of(rng, (200, 600))
        return np.where(rng.random(w.shape) < zeros, 0.0, w).round(digits), draws

    return made


ROUNDED = {
    "few zeros": rounded(lambda rng, shape: rng.normal(60, 30, shape)),
    "many": rounded(lambda rng, shape: rng.standard_normal(shape)),
    "most": rounded(lambda rng, shape: rng.gamma(0.3, 1.0, shape)),
    "counts of a step": rounded(lambda rng, shape: rng.exponential(3.0, shape), digits=0),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_w_of_a_right_law_is_passed(name):
    found = [replicate_check("w", *ROUNDED[name](seed), 1.0) for seed in range(100)]
    assert np.isfinite([c.value for c in found]).all()
    words = [c.verdict for c in found]
    assert sum(word != "pass" for word in words) <= stats.binom.isf(FALSE_ALARM, 100, 0.01)
    assert words.count("fail") <= stats.binom.isf(FALSE_ALARM, 100, 0.001)


@pytest.mark.parametrize("digits", [1, 12], ids=["rounded", "not rounded"])
def test_zeros_a_continuous_law_does_not_make_fail(digits):
    made = rounded(lambda rng, shape: rng.normal(2.0, 1.0, shape), digits, zeros=0.05)
    found = [replicate_check("w", *made(seed), 1.0) for seed in range(30)]
    assert [c.verdict for c in found].count("fail") >= binomial_floor(30, 0.9)
    assert all("statistic, zeros" in c.text and np.isfinite(c.value) for c in found)


def test_memory_is_warned_of_and_left_to_the_serial_check():
    found = [replicate_check("w", *rows(seed, noise=ar), 1.0) for seed in range(30)]
    assert [c.verdict for c in found].count("warn") >= binomial_floor(30, 0.9)
    assert all("lag-1 product" in c.text for c in found)


@pytest.mark.parametrize("noise", [None, shared], ids=["independent", "dependent"])
def test_archives_like_replicates_are_passed(noise):
    """Rows of a unit may depend: then the product of neighbours shows it, and nothing else."""
    words = []
    for seed in range(300):
        w, draws = rows(seed, 20, 10, noise)
        if noise is not None:  # every other row alone: no neighbours
            w[:, 1::2] = np.nan
            draws = draws[:, np.isfinite(w).ravel()]
        words.append(replicate_check("w", w, draws, 1.0).verdict)
    assert sum(word != "pass" for word in words) <= stats.binom.isf(FALSE_ALARM, 300, 0.01)
    assert words.count("fail") <= stats.binom.isf(FALSE_ALARM, 300, 0.001)
