"""Directions of a law: what they hold, what they leave out, and the ball around them."""

from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.policies.unsure_directions import DrawDirections
from tests.helpers import FALSE_ALARM, assert_mean, binomial_floor, z_bound
from tests.policies.helpers import archive, contexts, w_features, world

CURVED = pp.envs.nonlinear_w_times_action()
MEAN = pp.Window(3, np.mean)


@pytest.fixture(scope="module")
def curve():
    """A GP of many draws on few points, and its archive."""
    history = CURVED.archive(2, 12, rng=pp.stream(3, "archive"))
    return pp.gaussian_process(MEAN).fit(history, pp.Laplace(3000), seed=0), history


@pytest.fixture(scope="module")
def reference():
    return CURVED.world(9, 60, rng=pp.stream(4, "reference")).s


def rows_of(law, s):
    rows = law.summary(s)
    rows = rows.reshape(-1, rows.shape[-1])
    return rows[np.isfinite(rows).all(1)]


def left_out(law, found, x, index):
    """What least squares on psi leaves of E[W | x] of draws, less the mean the policy scores."""
    psi, mean = found.at(x)[:, 0], law.mean_at(x)[:, 0]
    apart = law.mean_draws_at(x, index)[..., 0] - mean
    return apart - (psi @ np.linalg.lstsq(psi, apart.T, rcond=1e-10)[0]).T


def covered(law, found, x, index):
    rest = found.remainder(x)[:, 0]
    return (np.abs(left_out(law, found, x, index)) <= rest).all(1)


@pytest.mark.parametrize("most", [1, 2, 8])
def test_the_remainder_covers_fresh_draws_at_all_contexts(curve, reference, most):
    """Given 64 judges the level is that of an order statistic: 60 of 64 lie below at least."""
    law, _ = curve
    x, held = rows_of(law, reference), []
    for seed in range(20):
        found = pp.policies.directions(law, reference, most=most, seed=seed)
        fresh = np.setdiff1d(np.arange(law.kernel.count), [*found.index, *found.others])
        held.append(covered(law, found, x, fresh[:400]).mean())
    held = np.array(held)
    # one set of judges may be unlucky: Beta(60, 5), then 400 fresh draws
    unlucky = stats.beta.ppf(FALSE_ALARM / 20, 60, 5)
    assert held.min() >= binomial_floor(400, unlucky) / 400
    # over sets of judges the expected level is 60 / 65 at least; 0.90 leaves room for the scale
    assert held.mean() + z_bound() * held.std(ddof=1) / np.sqrt(20) >= 0.90


def test_judges_that_found_the_directions_do_not_flatter_them(curve, reference):
    """Of a law of few draws some must be kept to judge by, or what is left out looks too small."""
    (many, _), held = curve, []
    x = rows_of(many, reference)
    for seed in range(60):
        own = pp.stream(seed, "own").permutation(many.kernel.count)
        few = replace(many, draws={k: v[own[:40]] for k, v in many.draws.items()})
        found = pp.policies.directions(few, reference, most=4)
        psi = found.at(x)[:, 0]
        apart = many.mean_draws_at(x, own[40:440])[..., 0] - few.mean_at(x)[:, 0]
        left = apart - (psi @ np.linalg.lstsq(psi, apart.T, rcond=1e-10)[0]).T
        held.append((np.abs(left) <= found.remainder(x)[:, 0]).all(1).mean())
    held = np.array(held)
    assert held.mean() + z_bound() * held.std(ddof=1) / np.sqrt(60) >= 0.90


def test_directions_hold_the_energy_they_promise_and_no_direction_is_idle(curve, reference):
    law, _ = curve
    found = pp.policies.directions(law, reference, most=64)
    assert isinstance(found, DrawDirections)
    x = rows_of(law, reference)
    psi, draws = found.at(x)[:, 0], law.mean_draws_at(x, found.index)[..., 0]
    share = (psi**2).sum(0) / draws.var(0).sum()
    count = int(found.counts[0])
    assert 0.99 <= share.sum() <= 1.0 + 1e-9
    assert share[: count - 1].sum() < 0.99  # one fewer would not do
    assert (np.diff(share[:count]) <= 1e-12).all()
    gram = psi[:, :count].T @ psi[:, :count]
    assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-9 * gram[0, 0])


@pytest.mark.parametrize("most", [1, 3])
def test_most_caps_the_directions_and_the_rest_goes_to_the_remainder(curve, reference, most):
    law, _ = curve
    x = rows_of(law, reference)
    capped, free = (pp.policies.directions(law, reference, most=k) for k in (most, 64))
    assert capped.counts[0] == most < free.counts[0]
    assert_allclose(capped.at(x)[..., :most], free.at(x)[..., :most], rtol=1e-9)
    assert capped.remainder(x).mean() > 2 * free.remainder(x).mean()


def test_one_seed_one_answer(curve, reference):
    law, _ = curve
    x = rows_of(law, reference)
    one, two, other = (pp.policies.directions(law, reference, seed=k) for k in (5, 5, 6))
    assert_array_equal(one.at(x), two.at(x))
    assert_array_equal(one.remainder(x), two.remainder(x))
    assert not np.array_equal(one.index, other.index)
    assert not set(one.index) & set(one.others)


def simulated(theta, counts, uses, size, seed=0):
    """||(theta, theta_j c_ik)||: uses holds (i, j), column i of W moving coordinate j."""
    rng = np.random.default_rng(seed)
    c = [(rng.standard_normal((size, q)) ** 2).sum(1) for q in counts]
    return np.sqrt((theta**2).sum() + sum(theta[j] ** 2 * c[i] for i, j in uses))


class Counts:
    """Directions whose c are standard normal: ||c||^2 at the quantiles of its chi-square."""

    def __init__(self, *counts):
        levels = np.arange(1, 10_000) / 10_000
        self.sizes = stats.chi2.ppf(levels, sum(counts)) if sum(counts) else np.zeros(10)


@pytest.mark.parametrize("q", [1, 4, 20])
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_the_augmented_bound_is_exact_where_w_is_all_that_counts(q, delta):
    size = simulated(np.array([0.7]), (q,), [(0, 0)], 40_000)
    bound = pp.policies.augmented_bound(0.7, Counts(q), delta=delta)
    assert_mean(size <= bound, 1 - delta)


@pytest.mark.parametrize("counts", [(3, 3), (8, 2), (5, 0), (20, 20, 20)])
def test_the_augmented_bound_holds_for_several_w(counts):
    theta = np.ones(len(counts)) / np.sqrt(len(counts))
    size = simulated(theta, counts, [(i, i) for i in range(len(counts))], 40_000)
    bound = pp.policies.augmented_bound(1.0, Counts(*counts))
    assert (size <= bound).sum() >= binomial_floor(40_000, 0.95)


def test_the_augmented_bound_holds_where_two_w_move_one_feature():
    """Phi_j = w_0 + w_1: theta_j meets the directions of both."""
    size = simulated(np.array([1.0]), (20, 20), [(0, 0), (1, 0)], 40_000)
    bound = pp.policies.augmented_bound(1.0, Counts(20, 20))
    assert (size <= bound).sum() >= binomial_floor(40_000, 0.95)


def test_without_directions_the_bound_is_that_of_theta():
    assert pp.policies.augmented_bound(1.5, Counts(0, 0)) == 1.5
    with pytest.raises(pp.errors.SettingError, match="delta"):
        pp.policies.augmented_bound(1.0, Counts(3), delta=1.5)


@pytest.mark.parametrize("kind", ["linear", "gp"])
@pytest.mark.parametrize("by", [1e6, 1e-6])
def test_the_unit_of_w_does_not_matter(kind, by):
    plain, history = w_features(1), archive()
    scaled = pp.Features(lambda s, w, a: plain.fn(s, w / by, a), 2, plain.names)
    law = pp.linear_lags(2) if kind == "linear" else pp.gaussian_process(2)
    how = pp.Exact(200) if kind == "linear" else pp.Laplace(150)
    one = law.fit(history, how, seed=0)
    two = law.fit(replace(history, w=history.w * by), how, seed=0)
    s = contexts(1, 102, 9)
    online, radius = world(plain, s, 1), pp.corrected(sigma=0.4, theta_bound=2.0)
    first = pp.envs.pulse_adaptive(online, one, history.grid.s, radius=radius)
    second = pp.envs.pulse_adaptive(
        replace(online, features=scaled), two, history.grid.s, radius=radius
    )
    moves = [(np.abs(a.x) > 0).any((0, 1, 2)) for a in (first, second)]
    assert_array_equal(*moves)
    run = pp.simulate(online, [first, replace(second, name="scaled")])
    assert_array_equal(run.action[0], run.action[1])
    bots = [
        pp.AdaptivePulseUCB(fitted, phi, radius, history.grid.s)
        for fitted, phi in ((one, plain), (two, scaled))
    ]
    for t, row in enumerate(s[0]):
        a, b = (bot.act(row) for bot in bots)
        assert a.action == b.action
        for bot, choice in zip(bots, (a, b), strict=True):
            bot.learn(choice, np.sin(t) + choice.action)


def test_what_cannot_be_used_is_refused(curve):
    law, history = curve
    with pytest.raises(pp.errors.DataError, match="no reference context has all inputs"):
        pp.policies.directions(law, np.full((2, 5, 1), np.nan))
    with pytest.raises(pp.errors.DataError, match="no reference context has all inputs"):
        pp.policies.directions(law, history.grid.s[:, :2])  # shorter than the window
    with pytest.raises(pp.errors.ModelError, match="fitted law"):
        pp.policies.directions("law", history.grid.s)
    for name, value in (("most", 0), ("draws", 1)):
        with pytest.raises(pp.errors.SettingError, match=name):
            pp.policies.directions(law, history.grid.s, **{name: value})


# --- few contexts, few draws, no closed form ----------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_few_contexts_are_joined_by_made_up_ones(reference, rows):
    """At archived contexts the law is sure: directions must hold its spread elsewhere."""
    history = CURVED.archive(1, rows + 2, rng=pp.stream(2, "archive"))
    law = pp.gaussian_process(MEAN).fit(history, pp.Laplace(1000), seed=0)
    assert len(rows_of(law, history.grid.s)) == law.record.rows == rows
    x, found = rows_of(law, reference), pp.policies.directions(law, history.grid.s)
    psi, spread = found.at(x)[:, 0], law.mean_draws_at(x, found.index)[..., 0]
    assert (psi**2).sum() > 0.95 * spread.var(0).sum()
    assert_array_equal(psi, pp.policies.directions(law, history.grid.s).at(x)[:, 0])
    assert not np.array_equal(psi, pp.policies.directions(law, history.grid.s, seed=1).at(x)[:, 0])


def test_contexts_that_are_many_are_taken_as_they_are(curve, reference):
    """Far from the archive, where made-up ones would not be."""
    law, _ = curve
    far = 3.0 + 0.01 * reference
    found, x = pp.policies.directions(law, far, most=1), rows_of(law, far)
    spread = law.mean_draws_at(x, found.index)[..., 0].var(0).sum()
    assert (found.at(x)[:, 0] ** 2).sum() > 0.95 * spread


def custom(model, inputs=1):
    return pp.Law(model, pp.Lags(inputs), "mine")


def positive_only(x, w=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    loc = slope[..., None] * x[..., 0].log()
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], 0.5).to_event(1), obs=w)


def test_a_model_that_is_not_defined_everywhere_does_with_the_contexts_given():
    rng = np.random.default_rng(0)
    s = np.exp(rng.standard_normal((4, 5, 1)))
    history = pp.History.from_arrays(
        s, np.log(s), units=tuple("abcd"), s_names=("s",), w_names=("w",)
    )
    law = custom(positive_only).fit(history, pp.Laplace(100), seed=0)
    found = pp.policies.directions(law, s)
    assert_array_equal(found.counts, [1])
    assert_allclose(np.abs(found.at(np.array([[1.0]]))), 0.0, atol=1e-12)
    assert np.abs(found.at(np.array([[3.0]]))) > 0.05


def clipped(x, w=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        kick = pyro.sample("kick", dist.Normal(0.0, 1.0))
        loc = slope[..., None] * x[..., 0] + kick
        pyro.sample("w", dist.Normal(loc[..., None], 0.5).to_event(1), obs=w)


def test_a_law_whose_mean_is_monte_carlo_is_refused():
    """Its psi would be another at the same context in another row."""
    rng = np.random.default_rng(0)
    s = rng.standard_normal((4, 5, 1))
    history = pp.History.from_arrays(
        s, s + 1.0, units=tuple("abcd"), s_names=("s",), w_names=("w",)
    )
    law = custom(clipped).fit(history, pp.Svi(50, steps=20), seed=0)
    assert not law.kernel.exact_mean
    for made in (
        lambda: pp.policies.directions(law, s),
        lambda: pp.AdaptivePulseUCB(law, w_features(1), pp.constant(1.0), s),
    ):
        with pytest.raises(pp.errors.ModelError, match=r"mine has no closed form .* use PulseUCB"):
            made()


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_one_draw_has_no_directions(kind):
    history = archive()
    law = pp.linear_lags(2) if kind == "linear" else pp.gaussian_process(2)
    fitted = law.fit(history, seed=0)
    fitted = replace(fitted, draws={k: v[:1] for k, v in fitted.draws.items()})
    found, x = pp.policies.directions(fitted, history.grid.s), rows_of(fitted, history.grid.s)
    assert_array_equal(found.counts, [0])
    assert found.at(x).shape == (len(x), 1, 0)
    assert_array_equal(found.remainder(x), 0.0)
    assert pp.policies.augmented_bound(2.0, found) == 2.0
    online = world(w_features(1), contexts(1, 20, 9), 1)
    with pytest.warns(UserWarning, match="no posterior spread"):
        agent = pp.envs.pulse_adaptive(online, fitted, history.grid.s)
    assert_array_equal(agent.x, pp.envs.pulse(online, fitted).x)
    with pytest.warns(UserWarning, match="no posterior spread"):
        pp.AdaptivePulseUCB(fitted, w_features(1), pp.constant(1.0), history.grid.s)
