"""Directions of linear laws: the posterior in closed form, whatever the number of draws."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.envs.world import World
from tests.helpers import assert_mean, binomial_floor, z_bound
from tests.policies.helpers import archive, contexts, with_gaps


def posterior(law, history):
    """Covariance of the coefficients (1 + p, 1 + p) over the residual variance, from the rows."""
    rows = history.rows(law.summary).x
    x = np.concatenate([np.ones((len(rows), 1)), law.scaler.x_in(rows)], axis=1)
    p = x.shape[1] - 1
    prior = np.diag([100.0**-2, *[p / 10.0**2] * p])  # Conjugate()'s defaults
    return np.linalg.inv(x.T @ x + prior)


def rows_of(law, s):
    x = law.summary(s)
    x = x.reshape(-1, x.shape[-1])
    return x[np.isfinite(x).all(1)]


@pytest.mark.parametrize("draws", [2, 5, 400])
@pytest.mark.parametrize("w_dim", [1, 3])
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_the_covariance_is_the_posterior_s_and_nothing_is_left_out(w_dim, draws, gaps):
    history = archive(time=30, w_dim=w_dim)
    history = replace(history, s=history.flat(with_gaps(history.grid.s, gaps, 3)))
    law = pp.linear_lags(2).fit(history, pp.Exact(draws), seed=0)
    found, x = pp.policies.directions(law), rows_of(law, contexts(2, 9, 4))
    assert_array_equal(found.counts, [5] * w_dim)
    assert_array_equal(found.remainder(x), np.zeros((len(x), w_dim)))
    ones = np.concatenate([np.ones((len(x), 1)), law.scaler.x_in(x)], axis=1)
    wide = np.einsum("ni,ij,nj->n", ones, posterior(law, history), ones)
    noise = (law.kernel.factor**2).sum(-1).mean(0) * law.scaler.w_scale**2
    assert_allclose((found.at(x) ** 2).sum(-1), wide[:, None] * noise, rtol=1e-9)


def test_it_is_the_covariance_of_many_draws():
    law = pp.linear_lags(2).fit(archive(time=30, w_dim=2), pp.Exact(20_000), seed=0)
    few = pp.linear_lags(2).fit(archive(time=30, w_dim=2), pp.Exact(50), seed=1)
    x = rows_of(law, contexts(2, 9, 4))
    draws = law.mean_draws_at(x, np.arange(20_000))
    wide = (pp.policies.directions(law).at(x) ** 2).sum(-1)
    ratio = draws.var(0, ddof=1) / wide
    assert np.abs(ratio - 1).max() < z_bound(ratio.size) * np.sqrt(2 / 20_000) * 1.2  # tails
    # 120 rows: 50 draws know the residual variance to 13 % / sqrt(50)
    assert_allclose((pp.policies.directions(few).at(x) ** 2).sum(-1), wide, rtol=0.1)


@pytest.mark.parametrize("draws", [3, 4000])
def test_the_size_of_c_is_that_of_the_posterior(draws):
    """Many rows: c is standard normal, 5 of them a W, and the W of this world do not correlate."""
    law = pp.linear_lags(2).fit(archive(units=40, time=30, w_dim=2), pp.Exact(draws), seed=0)
    sizes = pp.policies.directions(law).sizes
    assert_mean(sizes, 10.0)
    assert pp.policies.augmented_bound(2.0, pp.policies.directions(law)) == pytest.approx(
        2.0 * np.sqrt(1 + stats.chi2.ppf(0.95, 10)), rel=0.05
    )


def test_refits_and_bundles_keep_it(tmp_path):
    history = archive(units=3, time=9)
    fitted = pp.linear_lags(2).fit(history, pp.Exact(40), seed=0)
    kept = pp.GrowingArchive(history, fitted, every=5)
    for t, row in enumerate(contexts(1, 20, 5)[0]):
        kept.reveal("x", kept.see("x", row), np.array([np.sin(t)]))
    fast = kept.refit()
    slow = pp.linear_lags(2).fit(kept.grown, pp.Exact(40), seed=fast.record.seed)
    x = rows_of(fast, contexts(2, 9, 4))
    one, two = ((pp.policies.directions(law).at(x) ** 2).sum(-1) for law in (fast, slow))
    assert_allclose(one, two, rtol=1e-6)
    again = pp.load(pp.save(fast, tmp_path / "law"))
    assert_array_equal(pp.policies.directions(again).at(x), pp.policies.directions(fast).at(x))


@pytest.mark.parametrize("kind", ["student", "memory"])
def test_too_few_draws_without_a_closed_form_are_refused(kind):
    """Five coefficients, five draws: they span four directions and would call a fifth settled."""
    history = archive(time=30)

    def fit(draws):
        if kind == "memory":
            return pp.state_space(2, ar=1, ma=0).fit(history, seed=0, draws=draws)
        return pp.linear_lags(2, noise="student_t").fit(history, pp.Laplace(draws), seed=0)

    with pytest.raises(pp.errors.ModelError, match=r"5 draws of .* cannot span its 5 coefficients"):
        pp.policies.directions(fit(5))
    law = fit(200)
    found, x = pp.policies.directions(law), rows_of(law, contexts(2, 9, 4))
    draws = law.mean_draws_at(x, np.arange(200))
    assert_array_equal(found.counts, [5])
    assert_allclose((found.at(x) ** 2).sum(-1), draws.var(0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize("horizon", [5, 40, 300])
def test_the_ball_holds_the_augmented_parameter(horizon):
    """The truth is a draw of the posterior of three units; 400 runs. Twin: S of theta alone."""
    env, runs = pp.envs.w_times_action(), 400
    law = pp.linear_lags(19).fit(env.archive(3, 30, rng=pp.stream(7, "a")), pp.Exact(2000), seed=0)
    base = env.world(runs, horizon, rng=pp.stream(7, "b", horizon))
    x = law.summary(base.s)[:, base.lead :]
    rng = pp.stream(7, "c", horizon)
    index = rng.permutation(2000)[:runs]
    mean = np.stack([law.mean_draws_at(x[r], index[r : r + 1])[0] for r in range(runs)])
    w = mean + 0.1 * rng.standard_normal(mean.shape)
    s = base.s[:, base.lead :]
    rows = s.reshape(-1, 1), w.reshape(-1, 1)
    phi = np.stack([env.features(*rows, a) for a in range(2)], axis=1)
    phi = phi.reshape(runs, horizon, 2, 4)
    theta = base.theta
    online = World(base.s, w, phi, phi, theta, base.noise, env.features, base.lead)
    found = pp.policies.directions(law)
    size = float(np.linalg.norm(theta))
    sigma = pp.radius.noise_scale(reward_sd=env.reward_sd, context_sd=0.1 * (theta[2] + theta[3]))
    apart = (law.kernel.coef[index] - law.kernel.mean_coef)[:, :, 0] * law.scaler.w_scale
    c = np.linalg.solve(found.root[0], apart.T).T
    truth = np.concatenate([np.tile(theta, (runs, 1)), theta[2] * c, theta[3] * c], axis=1)
    inside = {}
    for bound in (pp.policies.augmented_bound(size, found, delta=0.025), size):
        radius = pp.corrected(sigma=sigma, delta=0.025, theta_bound=bound)
        agent = pp.envs.pulse_adaptive(online, law, radius=radius, theta_bound=size)
        last = np.zeros((runs, 1, 2))  # gamma after the horizon, at a round that is not learned
        x_all = np.concatenate([agent.x, agent.x[:, -1:]], axis=1)
        reward = np.concatenate([online.reward, last * np.nan], axis=1)
        _, gamma, state = pp.policies.play_horizon(x_all, reward, radius)
        off = state.theta - truth
        inside[bound] = np.einsum("ri,rij,rj->r", off, state.precision, off) <= gamma[:, -1]
    augmented, plain = inside.values()
    assert augmented.sum() >= binomial_floor(runs, 0.95)
    # theta alone is smaller than theta with what the law is off by: its ball is too small
    assert plain.sum() < binomial_floor(runs, 0.95)
