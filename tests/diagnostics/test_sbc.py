"""Simulation-based calibration: uniform for what is right, caught and named for what is not."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal
from scipy import stats

from pulse_pyro import Exact, History, Laplace, Law, Svi, linear_lags, sbc, state_space
from pulse_pyro._core.errors import PulseError, SettingError
from pulse_pyro.data.summary import Identity
from pulse_pyro.diagnostics.calibration_ranks import BINS, RANKS, Sbc, _ranks, _uniform
from pulse_pyro.laws.conjugate import Flat
from tests.helpers import FALSE_ALARM, z_bound


def inputs(units=6, time=12, w=0.0):
    s = np.random.default_rng(0).standard_normal((units, time, 1))
    names = tuple(f"u{i}" for i in range(units))
    return History.from_arrays(s, np.full(s.shape, w), units=names, s_names=("s",), w_names=("w",))


def level(x, w=None):
    """The posterior of a given n rows is N(sum w / (n + 1), 1 / (n + 1))."""
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + 0 * x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], 1.0).to_event(1), obs=w)


def guided(shift=0.0, scale=1.0):
    """The exact posterior, moved by ``shift`` of its sds and stretched by ``scale``."""

    def guide(x, w=None):
        sd = (len(x) + 1) ** -0.5
        pyro.sample("a", dist.Normal(w.sum() * sd**2 + shift * sd, scale * sd))

    return Law(level, Identity(), "level", guide=guide)


def judged(shift, scale, seed=1, replications=40):
    how = Svi(draws=RANKS, steps=1)
    return sbc(guided(shift, scale), inputs(), how, replications=replications, seed=seed)


@pytest.fixture(scope="module")
def exact():
    return sbc(linear_lags(2), inputs(), Exact(draws=200), replications=300, seed=0)


def test_exact_draws_of_the_linear_law_have_uniform_ranks(exact):
    assert exact.ranks.shape == (300, 4)
    assert exact.ranks.min() >= 0
    assert exact.ranks.max() <= RANKS
    for column in exact.ranks.T:
        counts = np.histogram(column, BINS, (0, RANKS + 1))[0]
        assert stats.chisquare(counts).pvalue > FALSE_ALARM / 4
    # mean and spread of a uniform rank: finer than ten bins
    u = (exact.ranks + 0.5) / (RANKS + 1)
    assert (np.abs(u.mean(0) - 0.5) < z_bound(4) * np.sqrt(1 / 12 / 300)).all()
    assert exact.check.verdict != "fail"


def test_the_closed_form_posterior_passes_and_a_third_of_its_spread_fails():
    assert judged(0.0, 1.0).check.verdict == "pass"
    narrow = judged(0.0, 1 / 3)
    assert narrow.check.verdict == "fail"
    assert "too narrow" in repr(narrow)


def skewed(shift, scale, count=200):
    """Ranks of z ~ N(0, 1) among draws of N(shift, scale^2), at the quantiles of z."""
    z = stats.norm.ppf((np.arange(count) + 0.5) / count)
    ranks = np.floor((RANKS + 1) * stats.norm.cdf((z - shift) / scale)).astype(int)
    column = np.minimum(ranks, RANKS)[:, None]
    return Sbc(column, ("a",), _uniform(column, 0), "by hand", 0)


WORDS = [
    (0, 0.5, "too narrow"),
    (0, 0.1, "too narrow"),
    (0, 2.0, "too wide"),
    (0, 9.0, "too wide"),
    (0.7, 1.0, "too high"),
    (-0.7, 1.0, "too low"),
    (4.0, 1.0, "too high"),
    (-4.0, 1.0, "too low"),
    (1.5, 1.0, "too high"),
]


@pytest.mark.parametrize(("shift", "scale", "words"), WORDS)
def test_the_fault_is_named(shift, scale, words):
    check = skewed(shift, scale).check
    assert check.verdict == "fail"
    assert words in check.text


def test_a_uniform_histogram_has_nothing_to_explain():
    check = skewed(0.0, 1.0).check
    assert check.verdict == "pass"
    assert "posterior is" not in check.text


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_false_alarms_come_at_the_stated_rate(count):
    columns = 4000
    ranks = np.random.default_rng(count).integers(0, RANKS + 1, (count, columns))
    p = _uniform(ranks, 0)
    for alpha in (0.001, 0.05, 0.3):
        # both the archives and the 20,000 simulated histograms are finite
        error = np.sqrt(alpha * (1 - alpha) * (1 / columns + 1 / 20_000))
        assert (p <= alpha).mean() <= alpha + z_bound(9) * error
    if count == 1000:  # at smaller counts the statistic takes few values
        reference = stats.chi2.sf(stats.chisquare(_counts(ranks)).statistic, BINS - 1)
        assert np.abs(p - reference).max() < z_bound(columns) * np.sqrt(0.25 / 20_000) + 0.01


def _counts(ranks):
    return np.stack([np.bincount(c // 10, minlength=BINS) for c in ranks.T], -1)


@pytest.mark.parametrize("parameters", [1, 21, 400])
def test_many_parameters_do_not_hide_a_failure(parameters):
    """All truths below all draws, in every parameter: nothing could be worse."""
    ranks = np.zeros((200, parameters), int)
    names = tuple(f"b[{i}]" for i in range(parameters))
    assert Sbc(ranks, names, _uniform(ranks, 0), "by hand", 0).check.verdict == "fail"


def test_the_worst_p_value_pays_for_the_choice_among_parameters():
    found = Sbc(np.zeros((20, 3), int), ("a", "b", "c"), np.array([0.4, 0.01, 0.9]), "", 0)
    assert found.p_value == pytest.approx(0.03)
    assert found.check.verdict == "warn"
    assert "worst b" in found.check.text


def test_ranks_are_counted_and_ties_are_broken_at_random():
    draws = {"a": np.arange(99.0), "b": np.zeros((99, 2))}
    truth = {"a": np.array(30.5), "b": np.array([0.0, 1.0])}
    found = [_ranks(truth, draws, np.random.default_rng(i)) for i in range(50)]
    assert found[0][1] == ("a", "b[0]", "b[1]")
    ranks = np.stack([one[0] for one in found])
    assert_array_equal(ranks[:, 0], 31)
    assert_array_equal(ranks[:, 2], 99)
    assert len(set(ranks[:, 1])) > 20
    assert ranks.max() <= RANKS


def test_one_seed_gives_one_answer(exact):
    small = [sbc(linear_lags(1), inputs(), replications=20, seed=s) for s in (3, 3, 4)]
    assert_array_equal(small[0].ranks, small[1].ranks)
    assert_array_equal(small[0].p_values, small[1].p_values)
    assert (small[0].ranks != small[2].ranks).any()
    assert (exact.table.filter(like="0s").sum(axis=1) == 300).all()


def test_the_histogram_is_drawn_on_the_axis_given(exact):
    ax = Figure().subplots()
    assert exact.plot(ax, "variance") is ax
    heights = [bar.get_height() for bar in ax.patches if bar.get_width() < 1]
    assert_array_equal(heights, exact.counts[:, exact.names.index("variance")])
    with pytest.raises(SettingError, match="no 'varianse'; did you mean 'variance'"):
        exact.plot(ax, "varianse")


REFUSED = [
    ({"law": state_space(2)}, "state_space"),
    ({"law": level}, "a Law was expected"),
    ({"history": None}, "a History was expected"),
    ({"replications": 19}, "replications"),
    ({"replications": 30.5}, "replications"),
    ({"seed": -1}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"inference": Laplace(draws=98)}, "98 draws, 99 are needed"),
    ({"inference": "nuts"}, "nuts"),
    ({"inference": Exact()}, "Exact.* built-in laws"),
    ({"law": linear_lags(1, prior=Flat())}, "[Ff]lat|prior"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_bad_input_is_one_sentence(change, says):
    wanted = {
        "law": guided(),
        "history": inputs(),
        "inference": None,
        "replications": 20,
        "seed": 0,
    } | change
    law, history, how = (wanted.pop(name) for name in ("law", "history", "inference"))
    with pytest.raises(PulseError, match=says):
        sbc(law, history, how, **wanted)


def test_w_of_the_archive_is_not_used():
    how = Svi(draws=RANKS, steps=1)
    answers = [sbc(guided(), inputs(w=w), how, replications=20, seed=0) for w in (0.0, np.nan)]
    assert_array_equal(answers[0].ranks, answers[1].ranks)
