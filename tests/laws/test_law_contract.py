"""What every family of laws promises at the rows that are asked for."""

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.neighbors import KNeighborsRegressor

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError
from pulse_pyro.base import FittedLaw, UnfittedLaw, is_exact
from pulse_pyro.laws.fitted import COVARIANCE_DRAWS
from tests.helpers import linear_history, z_bound

SIZE = 20_000
LAGS = 2
AFFINE = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(w)), w[:, 0] * (1 + a), w[:, 1]]),
    2,
    ("1", "v", "w"),
)


def custom(x, w=None):
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2, 2), 2.0).to_event(2))
    level = pyro.sample("level", dist.Normal(torch.zeros(2), 2.0).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(torch.zeros(2) - 1.0, 1.0).to_event(1))
    mean = (x[..., :, None] * slope).sum(-2) + level  # runs at all draws at once
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(mean, sd).to_event(1), obs=w)


FAMILIES = {
    "linear": lambda h: pp.linear_lags(LAGS).fit(h, pp.Exact(200), seed=0),
    "student_t": lambda h: pp.linear_lags(LAGS, noise="student_t").fit(h, pp.Laplace(200), seed=0),
    "gp": lambda h: pp.gaussian_process(LAGS, basis=6).fit(h, pp.Laplace(200), seed=0),
    "neural": lambda h: pp.neural_density(LAGS, width=8).fit(
        h, pp.Ensemble(2, steps=60, batch=64), seed=0
    ),
    "custom": lambda h: pp.Law(custom, pp.Lags(LAGS), "mine").fit(h, pp.Laplace(200), seed=0),
    "regressor": lambda h: pp.laws.from_sklearn(KNeighborsRegressor(9), LAGS).fit(h, seed=0),
    # last: test_varma, which starts at the same time beside this file, has compiled the filter then
    "state space": lambda h: pp.state_space(LAGS, ar=1, ma=0).fit(h, seed=0, draws=200),
}
UNFITTED = {
    "linear": pp.linear_lags(LAGS),
    "gp": pp.gaussian_process(LAGS),
    "neural": pp.neural_density(LAGS),
    "state space": pp.state_space(LAGS, ar=1, ma=0),
    "custom": pp.Law(custom, pp.Lags(LAGS), "mine"),
    "regressor": pp.laws.from_sklearn(KNeighborsRegressor(9), LAGS),
}
CLOSED = (
    "linear",
    "student_t",
    "state space",
    "regressor",
)  # covariance and distribution function, no draws
ARCHIVE = linear_history(units=30, time=8, lags=LAGS, w_dim=2)[0]


def ragged():
    """Units of 1 to 30 steps with gaps, and S that is not always seen."""
    rng = np.random.default_rng(1)
    parts = []
    for unit, length in enumerate([1, 3, 30, 7, 12]):
        keep = rng.random(length) > 0.2
        keep[[0, -1]] = True
        step = np.flatnonzero(keep)
        s = 0.3 * rng.standard_normal(len(step))
        s[rng.random(len(step)) < 0.15] = np.nan
        w = 0.3 + rng.standard_normal((len(step), 2))
        values = {"unit": f"v{unit}", "time": step, "s": s, "w0": w[:, 0], "w1": w[:, 1]}
        parts.append(pd.DataFrame(values))
    frame = pd.concat(parts)
    return pp.History.from_frame(
        frame, unit="unit", time="time", observed="s", missing=["w0", "w1"]
    )


HISTORY = ragged()
X = HISTORY.inputs(pp.Lags(LAGS))
WHOLE = np.isfinite(X).all(1)
GRID = HISTORY.grid


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param, FAMILIES[request.param](ARCHIVE)


@pytest.fixture(scope="module")
def law(family):
    return family[1]


def refused(name):
    """Rows a law does not answer: a custom law wants all, this network has met no gap of S_t."""
    if name in ("custom", "regressor"):
        return ~WHOLE
    return np.isnan(X[:, 0]) if name == "neural" else np.zeros(len(X), bool)


def some_rows():
    """A few rows, complete ones and ones with an unseen input."""
    return np.r_[np.flatnonzero(WHOLE)[:3], np.flatnonzero(~WHOLE)[:3]]


def rng(seed=0):
    return np.random.default_rng(seed)


def test_the_archive_asked_for_is_worth_asking():
    assert len(list(HISTORY.blocks())) > 2
    assert 5 < WHOLE.sum() < len(WHOLE) - 5
    assert np.isnan(X[:, 0]).any()


@pytest.mark.parametrize("name", UNFITTED)
def test_every_law_keeps_the_contract_of_one_that_is_not_fitted(name):
    law = UNFITTED[name]
    assert isinstance(law, UnfittedLaw)
    assert not isinstance(law, FittedLaw)
    assert law.name
    assert all(isinstance(engine, type) for engine in law.engines)
    assert law.summary.names == pp.Lags(LAGS).names
    assert law.check(ARCHIVE).w_dim == 2


def test_a_fitted_law_is_no_law_to_fit(law):
    assert not isinstance(law, UnfittedLaw)


def test_the_density_of_a_column_is_the_joint_one_with_the_others_summed_out(family):
    name, law = family
    row = np.flatnonzero(WHOLE)[-1:]
    grid = np.linspace(-12, 12, 4001)
    for j in range(2):
        at = HISTORY.w[row].repeat(len(grid), 0)
        at[:, 1 - j] = grid
        every = law(HISTORY, row.repeat(len(grid)))
        joint = np.exp(every.joint_log_density(at))
        own = every.log_density(at)
        if name == "custom":
            assert own is None
            continue
        assert own.shape == at.shape
        assert_allclose(joint.sum() * (grid[1] - grid[0]), np.exp(own[0, j]), rtol=1e-4)


def test_a_column_that_is_not_recorded_leaves_the_others_their_density(family):
    name, law = family
    row = np.flatnonzero(WHOLE)[-1:]
    w = HISTORY.w[row].copy()
    before = law(HISTORY, row).log_density(w)
    w[:, 0] = np.nan
    if name != "custom":
        after = law(HISTORY, row).log_density(w)
        assert_array_equal(np.isnan(after), [[True, False]])
        assert_array_equal(after[:, 1], before[:, 1])
    assert np.isnan(law(HISTORY, row).joint_log_density(w)).all()


def test_each_action_s_context_is_a_series_of_its_own(law):
    s = rng(3).standard_normal((2, 5, 3, 1)) * 0.3
    each = np.stack([law(s[:, :, a]).mean().reshape(2, 5, 2) for a in range(3)], axis=2)
    assert_allclose(law(s).mean(), each.reshape(-1, 2), rtol=1e-12)
    at = np.array([0, 7, 29])
    assert_allclose(law(s, at).mean(), each.reshape(-1, 2)[at], rtol=1e-12)
    assert_array_equal(law(s, at).s, s.reshape(-1, 1)[at])
    with pytest.raises(DataError, match="rows"):
        law(s, [30])


def test_it_says_what_it_is(law):
    assert isinstance(law, FittedLaw)
    assert law.units == ARCHIVE.units
    assert (law.schema.s_names, law.schema.w_names) == (("s",), ("w0", "w1"))
    assert_allclose(law.schema.contexts, ARCHIVE.schema.contexts, rtol=1e-12)
    assert is_exact(law) == law(HISTORY).exact


def test_an_archive_is_answered_like_its_rectangle_row_by_row(family):
    name, law = family
    ours, rectangle = law(HISTORY), law(GRID.s)
    seen = GRID.seen.ravel()
    w = np.nan_to_num(GRID.w).reshape(-1, 2)
    assert ours.mean().shape == (len(HISTORY.s), 2)
    assert rectangle.mean().shape == (GRID.seen.size, 2)
    assert_allclose(ours.mean(), rectangle.mean()[seen], rtol=1e-9)
    assert_allclose(
        ours.joint_log_density(w[seen]), rectangle.joint_log_density(w)[seen], rtol=1e-8
    )
    complete = WHOLE if name != "state space" else np.ones_like(WHOLE)
    if name in CLOSED:
        covariance = rectangle.covariance()[seen]
        assert_allclose(ours.covariance(), covariance, rtol=1e-8, atol=1e-12)
        cdf = rectangle.cdf(w)[seen]
        assert_allclose(ours.cdf(w[seen])[complete], cdf[complete], rtol=1e-8)


def test_a_unit_alone_is_answered_as_among_others(law):
    mean = law(HISTORY).mean()
    for i in range(len(HISTORY.units)):
        alone = law(HISTORY.unit(i)).mean()
        assert_allclose(alone, mean[HISTORY.unit_of == i], rtol=1e-9)


def test_rows_are_chosen_by_a_mask_or_by_their_numbers(law):
    mean = law(HISTORY).mean()
    mask = np.arange(len(mean)) % 3 == 1
    numbers = np.array([7, 2, 7, len(mean) - 1])
    assert_array_equal(np.flatnonzero(mask).shape, law(HISTORY, at=mask).mean()[:, 0].shape)
    assert_allclose(law(HISTORY, at=mask).mean(), mean[mask], rtol=1e-9)
    assert_allclose(law(HISTORY, at=numbers).mean(), mean[numbers], rtol=1e-9)
    assert_allclose(law(HISTORY, at=[-1]).mean(), mean[-1:], rtol=1e-9)
    assert_allclose(law(GRID.s, at=GRID.seen).mean(), mean, rtol=1e-9)
    assert law(HISTORY, at=numbers).draws(5, rng=rng()).shape == (5, 4, 2)
    assert law(HISTORY, at=numbers).mean_draws(5, rng=rng()).shape == (5, 4, 2)


@pytest.mark.parametrize("at", [[True, False], [0, 10_000], [-10_000], [0.5], ["a"]], ids=str)
def test_rows_that_are_not_there_are_refused(law, at):
    with pytest.raises(DataError, match="at must hold"):
        law(HISTORY, at=at)


def test_other_columns_are_refused(law):
    other = pp.History.from_arrays(GRID.s, GRID.w, seen=GRID.seen, s_names=["t"])
    with pytest.raises(DataError, match=r"'t'|'s'"):
        law(other)
    with pytest.raises(DataError, match=r"\(batch, time, 1\)"):
        law(np.zeros((2, 3, 2)))


def test_means_are_nan_where_the_law_refuses_and_nowhere_else(family):
    name, law = family
    ours, gone = law(HISTORY), refused(name)
    w = np.nan_to_num(HISTORY.w)
    assert_array_equal(np.isnan(ours.mean()).all(1), gone)
    assert_array_equal(np.isnan(ours.mean()).any(1), gone)
    answers = {
        "draws": ours.draws(3, rng=rng())[0],
        "mean draws": ours.mean_draws(3, rng=rng())[0],
        "covariance": ours.covariance().reshape(-1, 4),
        "cdf": ours.cdf(w),
    }
    for what, values in answers.items():
        assert_array_equal(np.isnan(values).any(1), gone, err_msg=what)
        assert_array_equal(np.isnan(values).all(1), gone, err_msg=what)
    unscored = {"neural": gone, "state space": gone}.get(name, ~WHOLE)
    assert_array_equal(np.isnan(ours.joint_log_density(w)), unscored)


def test_covariance_is_that_of_draws(family):
    name, law = family
    ours = law(HISTORY, at=some_rows())
    drawn = ours.draws(SIZE, rng=rng(1))
    away = drawn - drawn.mean(0)
    products = away[..., :, None] * away[..., None, :]
    share = 1 / SIZE + (0.0 if name in CLOSED else 1 / COVARIANCE_DRAWS)
    answered = ~refused(name)[some_rows()]
    z = (ours.covariance() - products.mean(0)) / (products.std(0) * np.sqrt(share))
    assert answered.any()
    assert np.abs(z[answered]).max() <= z_bound(z[answered].size)


def test_the_distribution_function_is_the_share_of_draws(family):
    name, law = family
    ours, answered = law(HISTORY, at=some_rows()), ~refused(name)[some_rows()]
    drawn = ours.draws(SIZE, rng=rng(2))
    complete = WHOLE[some_rows()] | (name == "state space")
    for quantile in (0.1, 0.5, 0.8):
        w = np.quantile(ours.draws(500, rng=rng(3)), quantile, axis=0)
        share, found = (drawn <= w).mean(0), ours.cdf(w)
        exact = complete & (name in CLOSED)
        error = np.where(exact, 1 / SIZE, 1 / SIZE + 1 / COVARIANCE_DRAWS)[:, None]
        z = (found - share) / np.sqrt(share * (1 - share) * error)
        assert np.abs(z[answered]).max() <= z_bound(3 * z[answered].size)
        assert np.isnan(found[~answered]).all()
    hole = np.nan_to_num(w)
    hole[0, 1] = np.nan
    assert np.isnan(ours.cdf(hole)[0]).tolist() == [False, True]
    with pytest.raises(DataError, match="one row for each"):
        ours.cdf(w[:2])


def test_the_mean_is_that_of_draws(family):
    name, law = family
    ours, answered = law(HISTORY, at=some_rows()), ~refused(name)[some_rows()]
    drawn = ours.draws(SIZE, rng=rng(4))[:, answered]
    z = (drawn.mean(0) - ours.mean()[answered]) / (drawn.std(0) / np.sqrt(SIZE))
    assert np.abs(z).max() <= z_bound(z.size)
    means = ours.mean_draws(200, rng=rng(5))[:, answered]  # all draws of the posterior, once each
    assert_allclose(means.mean(0), ours.mean()[answered], rtol=1e-6, atol=1e-9)


def test_expected_features_are_those_at_the_mean_when_they_are_affine(law):
    rows = np.flatnonzero(WHOLE)[:4]
    ours = law(HISTORY, at=rows)
    found = ours.expect(AFFINE, size=4000, rng=rng())
    wanted = np.stack([AFFINE(HISTORY.s[rows], ours.mean(), a) for a in (0, 1)], axis=1)
    assert found.mean.shape == found.mcse.shape == (4, 2, 3)
    assert found.exact == ours.exact
    if found.exact:
        assert_allclose(found.mean, wanted, rtol=1e-9)
        assert (found.mcse == 0).all()
    else:
        z = (found.mean - wanted)[..., 1:] / found.mcse[..., 1:]
        assert np.abs(z).max() <= z_bound(z.size)


def test_a_follower_gives_the_row_of_the_batch(family):
    name, law = family
    for unit in range(len(HISTORY.units)):
        length = HISTORY.step[HISTORY.offsets[unit + 1] - 1] + 1
        s = GRID.s[unit, :length]
        batch, follower = law(s[None]), law.follow()
        mean = batch.mean()
        covariance = batch.covariance() if name in CLOSED else None
        for t, row in enumerate(s):
            pushed = follower.push(row)
            assert_allclose(pushed.mean(), mean[t : t + 1], rtol=1e-8)
            assert_array_equal(follower.now, row)
            assert_allclose(follower.conditional.mean(), mean[t : t + 1], rtol=1e-8)
            assert_allclose(follower.inputs(), batch.x[t], rtol=1e-8, atol=1e-12)
            if covariance is not None:
                assert_allclose(pushed.covariance()[0], covariance[t], rtol=1e-7, atol=1e-12)
        assert pushed.draws(5, rng=rng()).shape == (5, 1, 2)


def test_a_follower_goes_on_from_its_state(law):
    s = GRID.s[2]
    one, two = law.follow(), law.follow()
    for row in s[:20]:
        one.push(row)
    two.restore(one.state())
    for row in s[20:]:
        assert_allclose(two.push(row).mean(), one.push(row).mean(), rtol=1e-12)
