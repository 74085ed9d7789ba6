"""A law with a state: fitted, asked, followed, saved, and put to work."""

from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from pulse_pyro import (
    History,
    Laplace,
    Nuts,
    PulseUCB,
    StepLaw,
    Svi,
    calibrate,
    constant,
    diagnose,
    load,
    save,
    terms,
)
from pulse_pyro._core.errors import BundleError, ConvergenceError, DataError, ModelError
from pulse_pyro.base import FittedLaw, UnfittedLaw
from tests.helpers import assert_mean
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

LEVEL_LAW, REGIME_LAW = StepLaw(*LEVEL, name="level"), StepLaw(*REGIME, name="regime")
CASES = {
    "kalman": (LEVEL_LAW, level_archive, LEVEL_TRUTH),
    "forward": (REGIME_LAW, regime_archive, REGIME_TRUTH),
}


@pytest.fixture(scope="module", params=CASES)
def exact(request):
    """A law of three draws near the truth, and an archive."""
    law, archive, truth = CASES[request.param]
    fitted = at_truth(law, archive()[0], truth, 3)
    key = "sd" if request.param == "kalman" else "rate"
    moved = {n: v * (1.0 + 0.1 * np.arange(3).reshape(3, *[1] * (v.ndim - 1)) * (n == key))
             for n, v in fitted.draws.items()}  # fmt: skip
    return replace(fitted, draws=moved), masked(archive(seed=1)[0], 0.3)


# Fitting.


def test_the_fit_finds_what_made_the_archive():
    history = masked(level_archive(units=20, time=8)[0], 0.3)
    assert isinstance(LEVEL_LAW, UnfittedLaw)
    fitted = LEVEL_LAW.fit(history, Laplace(draws=200), seed=0)
    assert isinstance(fitted, FittedLaw)
    for name, value in LEVEL_TRUTH.items():
        drawn = fitted.draws[name]
        assert abs(drawn.mean() - value) < 4.5 * drawn.std()
    again = LEVEL_LAW.fit(history, Laplace(draws=10), seed=0, warm=fitted)
    assert_allclose(again.draws["slope"].mean(), fitted.draws["slope"].mean(), atol=0.1)
    assert "level" in repr(fitted)
    assert list(fitted.table.index) == ["keep", "slope", "sd"]


@pytest.mark.parametrize("how", [Nuts(draws=8, warmup=4, chains=1), Svi(draws=8, steps=5)])
def test_every_engine_takes_the_marginal_likelihood(how):
    history = regime_archive(units=4, time=4)[0]
    fitted = REGIME_LAW.fit(history, how, seed=0)
    assert set(fitted.draws) == set(REGIME_TRUTH)
    assert np.isfinite(fitted(history).mean()).all()


def test_gaps_short_units_and_unseen_values_do_not_change_what_the_rest_says():
    history = level_archive(units=6, time=12)[0]
    keep = np.ones(len(history.s), bool)
    keep[[3, 4, 20, 30, 31, 32, 33, 34, 35]] = False  # gaps, and a unit of half the length
    patchy = history.where(keep)
    w = history.w.copy()
    s = history.s.copy()
    w[~keep], s[~keep] = np.nan, np.nan
    full = replace(history, s=s, w=w)
    one, two = (LEVEL_LAW.fit(each, Laplace(draws=10), seed=0) for each in (patchy, full))
    for name in LEVEL_TRUTH:
        assert_allclose(one.draws[name], two.draws[name], rtol=1e-5)
    assert two.record.dropped == (~keep).sum()
    assert_allclose(one(patchy).mean(), one(full, at=keep).mean(), rtol=1e-9)


def test_what_cannot_be_fitted_is_said():
    history = level_archive(units=3, time=8)[0]
    with pytest.raises(DataError, match="never recorded"):
        LEVEL_LAW.fit(replace(history, w=np.full_like(history.w, np.nan)), seed=0)
    with pytest.raises(DataError, match="a History was expected"):
        LEVEL_LAW.fit(history.s, seed=0)
    outside = replace(regime_archive(units=3, time=8)[0], w=2.0 * history.w)
    with pytest.raises(DataError, match=r"'w' is -0.42\d* in row 0 .*'u0', step 0.*Bernoulli"):
        REGIME_LAW.fit(outside, seed=0)

    def driven(p, z, s_past):
        z = pyro.sample("z", dist.Normal(0.5 * z + s_past[..., -1, 1], 1.0))
        pyro.sample("w", dist.Normal(z, p["sd"]))

    lost = masked(history, 0.2, column=1)
    with pytest.raises(DataError, match="state is lost at step"):
        StepLaw(LEVEL[0], LEVEL[1], driven).fit(lost, seed=0)


# Asking.


def test_online_is_the_batch_at_every_step(exact):
    law, history = exact
    batch = law(history)
    for unit in (0, 5):
        follower = law.follow()
        for i in range(history.offsets[unit], history.offsets[unit + 1]):
            now = follower.push(history.s[i])
            assert_array_equal(follower.now, history.s[i])
            assert_allclose(now.mean()[0], batch.mean()[i], rtol=1e-10)
            assert_allclose(now.covariance()[0], batch.covariance()[i], rtol=1e-10)
    some = law(history, at=[7, 3, 7])
    assert_allclose(some.mean(), batch.mean()[[7, 3, 7]], rtol=1e-12)
    series = law(history.grid.s)
    assert_allclose(series.mean(), batch.mean(), rtol=1e-12)
    actions = law(np.stack([history.grid.s] * 2, axis=2)).mean().reshape(12, 20, 2, 1)
    assert_allclose(actions[:, :, 1].reshape(-1, 1), batch.mean(), rtol=1e-12)
    assert law(history, at=[]).mean().shape == (0, 1)


def test_a_conditional_agrees_with_its_own_draws(exact):
    law, history = exact
    asked = law(history, at=[0, 11, 50])
    drawn = asked.draws(20_001, rng=np.random.default_rng(0))
    assert drawn.shape == (20_001, 3, 1)
    assert_mean(drawn, asked.mean())
    assert_mean((drawn - asked.mean()) ** 2, asked.covariance()[:, 0])
    w = np.full((3, 1), 0.4)
    assert_mean(drawn <= w, asked.cdf(w))
    means = asked.mean_draws(3, rng=np.random.default_rng(0))
    assert_allclose(means.mean(0), asked.mean(), rtol=1e-12)
    joint = asked.joint_log_density(np.ones((3, 1)))
    assert_allclose(joint, asked.log_density(np.ones((3, 1)))[:, 0], rtol=1e-10)
    if law.card.state == "discrete":
        chance = np.exp(asked.log_density(np.ones((3, 1))))
        assert_allclose(chance, asked.mean(), rtol=1e-10)
    else:
        one = law(history, at=[11])
        total = integrate.quad(lambda v: np.exp(one.log_density([[v]])[0, 0]), -8, 8)[0]
        assert_allclose(total, 1.0, rtol=1e-6)
    unknown = np.full((3, 1), np.nan)
    for answer in (asked.cdf(unknown), asked.log_density(unknown)):
        assert np.isnan(answer).all()


def test_several_columns_of_w_share_the_state():
    def two(p, z, s_past):
        z = pyro.sample("z", dist.Normal(0.5 * z, 1.0))
        pyro.sample("s", dist.Normal(z, 1.0))
        pyro.sample("one", dist.Normal(z, p["sd"]))
        pyro.sample("two", dist.Normal(-2.0 * z, 1.0))

    rng = np.random.default_rng(0)
    history = History.from_arrays(
        rng.standard_normal((2, 3, 1)),
        rng.standard_normal((2, 3, 2)),
        s_names=["s"],
        w_names=["one", "two"],
    )
    law = at_truth(StepLaw(LEVEL[0], LEVEL[1], two), history, LEVEL_TRUTH, 2)
    rough = at_truth(replace(law.law, state="particles", particles=20_000), history, LEVEL_TRUTH, 2)
    asked = law(history, at=[0])
    # z_1 given s_1: prior variance .25 * 2.25 + 1, noise 1
    left = 1.0 / (1.0 / 1.5625 + 1.0)
    cov = left * np.outer([1, -2], [1, -2]) + np.diag([LEVEL_TRUTH["sd"] ** 2, 1.0])
    assert_allclose(asked.covariance()[0], cov, rtol=1e-9)
    oracle = stats.multivariate_normal(asked.mean()[0], cov).logpdf(history.w[0])
    assert_allclose(asked.joint_log_density(history.w[:1]), oracle, rtol=1e-9)
    near = rough(history, at=[0])
    assert_allclose(near.mean(), asked.mean(), atol=0.05)
    assert_allclose(near.covariance(), asked.covariance(), rtol=0.1)
    assert_allclose(near.joint_log_density(history.w[:1]), oracle, atol=0.1)
    drawn = asked.draws(5000, rng=rng)[:, 0]
    assert_allclose(np.cov(drawn.T), cov, rtol=0.2)


def test_revealed_w_counts_from_the_next_row_on():
    history = level_archive(units=1, time=4)[0]
    law = at_truth(LEVEL_LAW, history, LEVEL_TRUTH)
    plain, told = law.follow(), law.follow()
    for t in range(4):
        one = plain.push(history.s[t])
        two = told.push(history.s[t], history.w[t])
        if t == 0:
            assert_array_equal(one.mean(), two.mean())
        else:
            assert two.covariance()[0, 0, 0] < one.covariance()[0, 0, 0]
    # the last answer given pulse_1:4 and w_1:3, from one dense Gaussian
    keep, time = LEVEL_TRUTH["keep"], 4
    mean, var = np.empty(time), np.empty((time, time))
    m, v = 0.5, 2.25
    for t in range(time):
        m, v = keep * m + 0.1, keep**2 * v + 0.25
        mean[t] = m
        var[t, t:] = var[t:, t] = v * keep ** np.arange(time - t)
    both = np.concatenate([2 * np.eye(time), np.eye(time)])
    full = both @ var @ both.T + np.diag(np.repeat([0.64, 0.16], time))
    loc = both @ mean + np.concatenate([-np.ones(4), LEVEL_TRUTH["slope"] * history.s[:, 1]])
    y = np.concatenate([history.s[:, 0], history.w[:, 0]])
    gain = np.linalg.solve(full[:7, :7], full[:7, 7])
    assert_allclose(two.mean()[0, 0], loc[7] + (y - loc)[:7] @ gain, rtol=1e-9)
    assert_allclose(two.covariance()[0, 0, 0], full[7, 7] - full[7, :7] @ gain, rtol=1e-9)


@pytest.mark.parametrize("state", ["auto", "particles"])
def test_a_follower_goes_on_from_where_it_was(state):
    history = regime_archive(units=1, time=6)[0]
    law = at_truth(replace(REGIME_LAW, state=state, particles=50), history, REGIME_TRUTH, 2)
    one = law.follow()
    assert one.conditional.mean().shape == (1, 1)
    for t in range(3):
        one.push(history.s[t], history.w[t])
    two = law.follow()
    two.restore(one.state())
    assert_array_equal(two.conditional.mean(), one.conditional.mean())
    for t in range(3, 6):
        assert_array_equal(one.push(history.s[t]).mean(), two.push(history.s[t]).mean())
    assert_array_equal(one.inputs(), history.s[-1])
    assert one.conditional.effective_size == (
        np.inf if state == "auto" else pytest.approx(25, abs=25)
    )


def test_an_s_that_w_needs_and_the_step_does_not_sample_costs_one_row():
    history = level_archive(units=1, time=5)[0]
    s = history.s.copy()
    s[2, 1] = np.nan
    law = at_truth(LEVEL_LAW, history, LEVEL_TRUTH)
    mean = law(s[None]).mean()[:, 0]
    assert_array_equal(np.isnan(mean), [False, False, True, False, False])
    assert_allclose(mean[3:], law(history).mean()[3:, 0], rtol=1e-12)


# Particles.


def bounded(p, z, s_past):
    z = pyro.sample("z", dist.Normal(torch.tanh(z), 0.5))
    pyro.sample("pulse", dist.Uniform(z - 1.0, z + 1.0))
    pyro.sample("w", dist.Normal(z, p["sd"]))


def test_particles_that_all_have_weight_zero_are_explained():
    history = level_archive(units=2, time=5)[0]
    law = at_truth(StepLaw(LEVEL[0], LEVEL[1], bounded, particles=50), history, LEVEL_TRUTH)
    assert law.card.state == "particles"
    with pytest.raises(ConvergenceError, match=r"weight zero.*pulse.*widen"):
        law.follow().push([100.0, 0.0])


def kinds_prior():
    return {"sd": pyro.sample("sd", dist.LogNormal(0.0, 1.0))}


def kinds_first(p):
    pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))


def kinds_step(p, z, s_past):
    z = pyro.sample("z", dist.Categorical(torch.tensor([[0.9, 0.1], [0.2, 0.8]])[z]))
    pyro.sample("pulse", dist.Uniform(z - 1.0, z + 1.0))
    pyro.sample("w", dist.Uniform(z - p["sd"], z + p["sd"]))


def test_values_of_a_state_that_all_have_weight_zero_are_explained():
    s = np.random.default_rng(0).random((2, 5, 1))
    history = History.from_arrays(s, s, s_names=["pulse"], w_names=["w"])
    law = at_truth(StepLaw(kinds_prior, kinds_first, kinds_step), history, {"sd": 2.0})
    assert law.card.state == "discrete"
    follower = law.follow()
    before = follower.push([0.5]).mean()
    for ask in (lambda: follower.push([100.0]), lambda: law(np.array([[[0.5], [100.0]]]))):
        with pytest.raises(ConvergenceError, match=r"weight zero.*pulse.*widen.*step 1"):
            ask()
    assert_array_equal(follower.conditional.mean(), before)  # nothing was taken in
    told = law.follow()
    told.push([1.9])  # of the second value alone
    with pytest.raises(ConvergenceError, match=r"weight zero.*'w'.*widen.*step 0"):
        told.condition_on([-1.5])  # of the first alone
    follower.push([np.nan])
    assert np.isfinite(follower.push([0.2]).mean()).all()


def codes_step(p, z, s_past):
    z = pyro.sample("z", dist.Categorical(torch.tensor([[0.9, 0.1], [0.2, 0.8]])[z]))
    pyro.sample("kind", dist.Categorical(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])[z]))
    pyro.sample("pulse", dist.Uniform(z - 1.0, z + 1.0))
    pyro.sample("w", dist.Normal(1.0 * z, p["sd"]))


def test_what_is_not_seen_is_not_weighted_on_whatever_its_distribution():
    rng = np.random.default_rng(0)
    s = np.stack([rng.integers(0, 3, (2, 5)).astype(float), rng.random((2, 5))], -1)
    history = History.from_arrays(s, s[..., 1:], s_names=["kind", "pulse"], w_names=["w"])
    for state in ("discrete", "particles"):
        program = StepLaw(kinds_prior, kinds_first, codes_step, state=state, particles=4000)
        law = at_truth(program, history, {"sd": 2.0})
        follower = law.follow()
        follower.push([np.nan, np.nan])
        chance = np.array([0.5, 0.5]) @ [[0.9, 0.1], [0.2, 0.8]] @ [[0.9, 0.1], [0.2, 0.8]]
        chance *= [0.7, 0.1]
        found = follower.push([0.0, np.nan]).mean()[0, 0]
        assert_allclose(found, chance[1] / chance.sum(), atol=1e-9 if state == "discrete" else 0.05)


@pytest.mark.parametrize("state", ["gaussian", "particles"])
def test_a_state_that_explodes_after_the_fit_is_explained(state):
    history = level_archive(units=2, time=5)[0]
    truth = LEVEL_TRUTH | {"keep": 1e150 if state == "gaussian" else 1e300}
    law = at_truth(StepLaw(*LEVEL, state=state, particles=50), history, truth)
    unseen = np.array([[[np.nan, 0.0]] * 4])
    follower = law.follow()
    follower.push(unseen[0, 0])
    with pytest.raises(ModelError, match=r"explodes.*within -1 and 1.*widen.*step 1"):
        follower.push(unseen[0, 1])
    with pytest.raises(ModelError, match=r"explodes.*within -1 and 1.*widen.*step [012]"):
        law(unseen)


def curved(p, z, s_past):
    z = pyro.sample("z", dist.Normal(p["keep"] * torch.tanh(z), 0.5))
    pyro.sample("pulse", dist.StudentT(5.0, z, 0.3))
    pyro.sample("w", dist.Normal(z, p["sd"]))


def test_a_state_without_exact_filter_is_fitted_with_a_site_for_every_state():
    history = level_archive(units=4, time=5)[0]
    law = StepLaw(LEVEL[0], LEVEL[1], curved, particles=100, draws=5)
    with pytest.raises(ModelError, match="every state is a site"):
        law.fit(history, Laplace(), seed=0)
    fitted = law.fit(history, Svi(draws=20, steps=20), seed=0)
    assert set(fitted.draws) == {"keep", "slope", "sd"}
    asked = fitted(history)
    assert not asked.exact
    assert np.isfinite(asked.mean()).all()
    assert_allclose(asked.mean(), fitted(history).mean(), rtol=1e-12)  # answers repeat


# Put to work.


def test_it_is_diagnosed_calibrated_and_played():
    history = level_archive(units=30, time=20)[0]
    units = tuple(f"v{i}" for i in range(30))
    law = at_truth(LEVEL_LAW, history, LEVEL_TRUTH, 4)
    held_out = replace(level_archive(units=30, time=20, seed=2)[0], units=units, cluster=None)
    assert diagnose(law, held_out, seed=0).verdict in ("pass", "warn")
    phi = terms(["1", "w", "w*a"], 2, observed=["pulse", "given"], missing=["w"])
    found = calibrate(law, held_out, phi, seed=0)
    assert found.rungs
    policy = PulseUCB(law, phi, constant(1.0))
    for row in masked(held_out, 0.5).s[:10]:
        choice = policy.act(row, unit="ann")
        policy.learn(choice, 1.0)
    follower = law.follow()
    for row in masked(held_out, 0.5).s[:10]:
        follower.push(row)
    assert_allclose(choice.x[1], follower.conditional.mean()[0, 0], rtol=1e-9)


def test_it_survives_being_saved(exact, tmp_path):
    law, history = exact
    path = save(law, tmp_path / "law")
    again = load(path, law=law.law)
    assert again.id == law.id
    assert_array_equal(again(history).mean(), law(history).mean())
    assert load(path, law=law).id == law.id
    with pytest.raises(BundleError, match="functions are not stored"):
        load(path)
    with pytest.raises(BundleError, match="was made with"):
        load(path, law=replace(law.law, draws=7))

    def other(p, z, s_past):
        law.law.step(p, z, 2.0 * s_past)

    with pytest.raises(BundleError, match="other answers"):
        load(path, law=replace(law.law, step=other))


def test_a_right_state_leaves_nothing_once_earlier_w_are_told():
    """S tells nothing of a state that lasts from row to row; earlier W do, to the law as well."""
    keep, units, time = 0.9, 40, 25

    def prior():
        return {"keep": pyro.sample("keep", dist.Beta(2.0, 2.0))}

    def first(p):
        pyro.sample("z", dist.Normal(0.0, 1.0))

    def step(p, z, s_past):
        z = pyro.sample("z", dist.Normal(p["keep"] * z, (1.0 - keep**2) ** 0.5))
        pyro.sample("w", dist.Normal(z + s_past[..., -1, 0], 0.3))

    rng = np.random.default_rng(0)
    s, z = rng.standard_normal((units, time, 1)), np.empty((units, time))
    shock = rng.standard_normal((units, time + 1))
    now = shock[:, -1]
    for t in range(time):
        now = keep * now + np.sqrt(1.0 - keep**2) * shock[:, t]
        z[:, t] = now
    w = z + s[..., 0] + 0.3 * rng.standard_normal((units, time))
    history = History.from_arrays(s, w[..., None], w_names=("w",))
    words = {}
    for believed in (keep, 0.0):
        law = at_truth(StepLaw(prior, first, step), history, {"keep": believed}, 2)
        found = diagnose(law, history, seed=0)
        words[believed] = {
            c.verdict for c in found.checks if c.name in ("dependence w", "serial w")
        }
    assert words == {keep: {"pass"}, 0.0: {"fail"}}
