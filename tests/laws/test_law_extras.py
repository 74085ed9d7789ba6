"""What a custom model may ask for beside x and w, and inputs that are averaged over."""

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro import Features, History, Lags, Laplace, Law, PulseUCB, constant, linear_lags
from pulse_pyro._core.errors import BundleError, DataError, ModelError, SettingError
from pulse_pyro._core.saved import load, save
from pulse_pyro._pyro.predict import simulate_prior
from pulse_pyro.data.summary import Identity
from tests.helpers import assert_mean, draws_at, linear_history, mean_at, z_bound

BETWEEN, SD = 1.5, 0.5


def observe(x, w, loc, sd=SD):
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd).to_event(1), obs=w)


def levels(x, w=None, unit=None):
    """Levels kept as sites while fitting; a new unit's is part of the noise."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    if unit is None:
        observe(x, w, a + 0 * x[..., 0], np.sqrt(BETWEEN**2 + SD**2))
        return
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, BETWEEN))
    observe(x, w, a + level[unit] + 0 * x[..., 0])


def always_levels(x, w=None, unit=None):
    """The same sites for fitting and prediction, as the contract's own message asks."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    of = torch.zeros(x.shape[-2], dtype=torch.long) if unit is None else unit
    with pyro.plate("units", int(of.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, BETWEEN))
    observe(x, w, a + level[..., of])


def people(lengths=(3, 9, 1, 6)):
    """Units of unequal length; the second has no row at all with W."""
    rng = np.random.default_rng(0)
    time = max(lengths)
    seen = np.arange(time) < np.array(lengths)[:, None]
    s = rng.standard_normal((len(lengths), time, 1))
    w = BETWEEN * rng.standard_normal((len(lengths), 1, 1)) + SD * rng.standard_normal(s.shape)
    w[1] = np.nan
    return History.from_arrays(
        s, w, seen=seen, units=tuple("abcdefgh"[: len(lengths)]), s_names=("s",), w_names=("w",)
    )


def gls(history):
    """Posterior of a under a N(0, 100) prior, from the dense covariance of all rows."""
    rows = history.rows(Identity())
    same = rows.unit[:, None] == rows.unit
    cov = SD**2 * np.eye(len(same)) + BETWEEN**2 * same
    solved = np.linalg.solve(cov, np.column_stack([np.ones(len(same)), rows.w[:, 0]]))
    precision = solved[:, 0].sum() + 0.01
    return solved[:, 1].sum() / precision, precision**-0.5


def test_sites_of_units_are_fitted_and_left_behind():
    law = Law(levels, Identity())
    card = law.check(people())
    assert {site.name: site.kind for site in card.sites} == {
        "a": "global",
        "level": "unit",
        "w": "observed",
    }
    assert card.vectorised
    fit = law.fit(people(), Laplace(draws=4000), seed=0)
    assert set(fit.draws) == {"a"}
    mean, sd = gls(people())  # Laplace is exact for a Gaussian posterior
    assert_mean(fit.draws["a"], mean)
    assert abs(fit.draws["a"].std() / sd - 1) < z_bound() * np.sqrt(0.5 / 4000)


def test_units_are_numbered_without_gaps():
    given = []

    def spy(x, w=None, unit=None):
        if w is not None:
            given.append(unit.numpy().copy())
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        observe(x, w, a + 0 * x[..., 0])

    Law(spy, Identity()).fit(people(), Laplace(draws=2), seed=0)
    assert_array_equal(given[-1], [0, 0, 0, 1, 2, 2, 2, 2, 2, 2])


def test_a_new_units_level_does_not_blur_the_mean():
    fit = Law(always_levels, Identity()).fit(people(), Laplace(draws=50), seed=0)
    s = np.zeros((1, 3, 1))
    centre = fit.draws["a"].mean()
    if fit.kernel.exact_mean:
        assert_allclose(mean_at(fit, s), centre, rtol=1e-9)
    drawn = draws_at(fit, s, 2000, rng=np.random.default_rng(0))[:, 0, 0, 0]
    spread = BETWEEN**2 + SD**2 + fit.draws["a"].var()
    assert abs(drawn.var() / spread - 1) < z_bound() * np.sqrt(2 / 2000)


def test_rows_without_w_reach_a_model_that_asks_for_them():
    given = []

    def spy(x, w=None, seen=None):
        if w is not None:
            given.append((w.numpy().copy(), seen.numpy().copy()))
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        observe(x, w, a + 0 * x[..., 0])

    fit = Law(spy, Identity()).fit(people(), Laplace(draws=2), seed=0)
    w, seen = given[-1]
    truth = people().w
    assert_array_equal(seen, np.isfinite(truth))
    assert_array_equal(w, np.nan_to_num(truth))
    assert (fit.record.rows, fit.record.dropped) == (19, 0)


def only_high(x, w=None, seen=None):
    a = pyro.sample("a", dist.Normal(0.0, 0.1))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        law = dist.Normal((a + 0 * x[..., 0])[..., None], SD).to_event(1)
        drawn = pyro.sample("w", law, obs=w)
        if seen is None:
            pyro.sample("seen", dist.Bernoulli((drawn[..., 0] > 0).to(x.dtype)))


def test_simulated_archives_have_units_and_gaps():
    x, unit = np.zeros((4000, 1)), np.repeat(np.arange(2000), 2)
    card = Law(levels, Identity()).check(people())
    found = simulate_prior(levels, x, unit, card, 0)
    twins = found.w.reshape(2000, 2)
    assert set(found.truth) == {"a"}
    assert_mean((twins[:, 0] - twins[:, 1]) ** 2, 2 * SD**2)
    assert_mean((twins.mean(1) - found.truth["a"]) ** 2, BETWEEN**2 + SD**2 / 2)
    gaps = simulate_prior(only_high, x, unit, Law(only_high, Identity()).check(people()), 0)
    there = np.isfinite(gaps.w)
    assert 1000 < there.sum() < 3000
    assert (gaps.w[there] > 0).all()
    again = simulate_prior(levels, x, unit, card, 0)
    assert_array_equal(again.w, found.w)
    assert (simulate_prior(levels, x, unit, card, 1).w != found.w).all()


def line(x, w=None):
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    observe(x, w, (x * b).sum(-1), 0.1)


HISTORY, _ = linear_history(units=12, time=25, lags=2)


def custom(unseen="conditioned on"):
    return Law(line, Lags(2), unseen=unseen)


def holes():
    s = HISTORY.grid.s[:3].copy()
    s[0, 5], s[1, 8:10], s[2, 24] = np.nan, np.nan, np.nan
    return s


def test_unseen_inputs_are_averaged_over_given_the_seen_ones():
    fit = custom().fit(HISTORY, Laplace(draws=300), seed=0)
    x = Lags(2)(holes()).reshape(-1, 2)
    rows = HISTORY.rows(Lags(2)).x
    mean, cov = rows.mean(0), np.cov(rows.T, bias=True)
    full = x.copy()
    for row in full:  # one at a time, by the textbook formula
        gone = np.isnan(row)
        if gone.all():
            row[:] = mean
        elif gone.any():
            seen = ~gone
            gain = cov[gone][:, seen] / cov[seen][:, seen]
            row[gone] = mean[gone] + (gain @ (row[seen] - mean[seen])).ravel()
    b = fit.draws["b"].mean(0)
    assert_allclose(mean_at(fit, holes()).ravel(), full @ b, atol=1e-8)
    # at the very first row the second input is unknown: its spread joins the noise
    left = cov[1, 1] - cov[0, 1] ** 2 / cov[0, 0]
    drawn = draws_at(fit, holes()[:1, :1], 1500, rng=np.random.default_rng(1))[:, 0, 0, 0]
    spread = 0.01 + (fit.draws["b"][:, 1] ** 2).mean() * left
    assert abs(drawn.var() / spread - 1) < z_bound() * np.sqrt(2 / 1500)
    assert_mean(drawn, mean_at(fit, holes()[:1, :1])[0, 0, 0])


def test_the_card_and_the_fit_agree_on_unseen_inputs():
    for unseen, answered in (("conditioned on", True), ("refused", False)):
        law = custom(unseen)
        fit = law.fit(HISTORY, Laplace(draws=5), seed=0)
        assert law.check(HISTORY).unseen == unseen
        assert fit.conditions is answered
        assert np.isfinite(mean_at(fit, holes())).all() == answered
        assert fit.card.unseen == unseen


def test_it_plays_from_the_first_row_and_comes_back_from_disk(tmp_path):
    fit = custom().fit(HISTORY, Laplace(draws=20), seed=0)
    phi = Features(lambda s, w, a: w * a, 2, ("w a",))
    policy = PulseUCB(fit, phi, constant(1.0))
    for s in ([0.1], [np.nan], [np.nan], [0.3]):
        decision = policy.act(s)
        assert np.isfinite(decision.mean).all()
        policy.learn(decision, 0.5)
    save(fit, tmp_path / "law")
    back = load(tmp_path / "law", law=custom())
    assert_array_equal(mean_at(back, holes()), mean_at(fit, holes()))


def test_a_law_is_not_loaded_with_another_treatment_of_gaps(tmp_path):
    save(custom().fit(HISTORY, Laplace(draws=5), seed=0), tmp_path / "law")
    with pytest.raises(BundleError, match="conditioned on"):
        load(tmp_path / "law", law=custom("refused"))


@pytest.mark.parametrize("unseen", ["learned", "", None, "Refused"])
def test_other_words_for_unseen_are_refused(unseen):
    with pytest.raises(SettingError, match="'refused' or 'conditioned on'"):
        Law(line, Lags(2), unseen=unseen)


def test_a_built_in_law_keeps_its_own_way():
    assert linear_lags(2).unseen == "conditioned on"


@pytest.mark.parametrize("name", ["units", "group"])
def test_an_unknown_third_parameter_is_a_plain_error(name):
    space = {"observe": observe, "pyro": pyro, "dist": dist}
    exec(f"def model(x, w, {name}):\n    pass\n", space)
    with pytest.raises(ModelError, match=f"missing .* required positional arguments?: .*'{name}'"):
        Law(space["model"], Identity()).check(HISTORY)


def test_a_model_with_parameters_outside_the_posterior_is_refused():
    def model(x, w=None):
        slope = pyro.param("slope", lambda: 0.0 * x[0, 0])
        sd = pyro.sample("sd", dist.HalfNormal(1.0))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(slope * x[..., :1], sd[..., None]).to_event(1), obs=w)

    with pytest.raises(ModelError, match=r"'slope' is a pyro.param"):
        Law(model, Lags(2)).fit(linear_history(units=8, time=10)[0], Laplace(), seed=0)


@pytest.mark.parametrize(
    ("history", "says"), [(pd.DataFrame(), "from_frame"), ((HISTORY, HISTORY), "got tuple")]
)
def test_what_is_no_archive_is_refused(history, says):
    with pytest.raises(DataError, match=says):
        linear_lags(2).fit(history, seed=0)


def test_a_model_and_its_summary_in_the_wrong_order_are_refused():
    with pytest.raises(SettingError, match="first argument"):
        Law(Lags(2), len)
