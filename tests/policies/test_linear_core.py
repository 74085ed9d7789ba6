import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.policies.linear import State, decide, init, update
from pulse_pyro.radius import SUM, constant, corrected, gamma_paper
from tests.policies.helpers import Rule, dense

RADII = (
    constant(0.5),
    gamma_paper(noise_sd=0.1, feature_bound=1.0),
    corrected(sigma=0.3, theta_bound=2.0),
    corrected(sigma=0.3, theta_bound=2.0, form="sum"),
)


def problem(runs=2, rounds=300, arms=3, dim=4, seed=0):
    """Features, the reward of every arm, error bounds, and a mask that leaves arm 0 open."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((runs, rounds, arms, dim))
    reward = x @ rng.standard_normal(dim) + 0.1 * rng.standard_normal((runs, rounds, 1))
    allowed = rng.random((runs, rounds, arms)) < 0.7
    allowed[..., 0] = True
    return x, reward, rng.exponential(0.1, (runs, rounds, arms)), allowed


def assert_same(one, two):
    for ours, theirs in zip(one[:5], two[:5], strict=True):
        assert_array_equal(ours, theirs)


def gamma_by_hand(radius, dim, ridge, t, sigma, sum_e2, sum_tri):
    p = radius.params
    logdet = np.linalg.slogdet(sigma)[1] - dim * math.log(ridge)
    if radius.name == "constant":
        return p[0] ** 2
    if radius.name == "paper":
        noise, delta, bound = p
        grown = math.log(4 * max(t, 1) ** 2 / delta)
        grown += dim * math.log(1 + t * bound**2 / (dim * ridge))
        return 3 * ridge + 6 * (noise + 2) ** 2 * grown + 3 * dim**2 * sum_e2 / 4
    size, scale, delta = p
    if t == 0:
        return ridge * size**2
    spread = scale * math.sqrt(logdet + 2 * math.log(1 / delta))
    start = math.sqrt(ridge) * size
    clean = start + spread if radius.kind == SUM else math.hypot(start, spread)
    return (clean + min(math.sqrt(sum_e2), sum_tri)) ** 2


def oracle(x, reward, radius, ridge, error, allowed):
    """One run, everything recomputed from the formulas each round."""
    dim = x.shape[-1]
    sigma, b, t, sum_e2, sum_tri = ridge * np.eye(dim), np.zeros(dim), 0, 0.0, 0.0
    actions, gammas = [], []
    for now, pay, e, mask in zip(x, reward, error, allowed, strict=True):
        inverse = np.linalg.inv(sigma)
        gamma = gamma_by_hand(radius, dim, ridge, t, sigma, sum_e2, sum_tri)
        width = np.sqrt(np.einsum("ai,ij,aj->a", now, inverse, now))
        score = np.where(mask, now @ (inverse @ b) + math.sqrt(gamma) * width, -np.inf)
        a = int(score.argmax())
        actions.append(a)
        gammas.append(gamma)
        if np.isfinite(pay[a]):
            sum_e2 += e[a] ** 2
            sum_tri += e[a] * width[a] / math.sqrt(1 + width[a] ** 2)
            sigma, b, t = sigma + np.outer(now[a], now[a]), b + pay[a] * now[a], t + 1
    theta, logdet = np.linalg.solve(sigma, b), np.linalg.slogdet(sigma)[1] - dim * math.log(ridge)
    return actions, gammas, theta, (t, logdet, sum_e2, sum_tri), sigma


@pytest.mark.parametrize("radius", RADII, ids=lambda r: r.name)
@pytest.mark.parametrize(("dim", "arms", "ridge"), [(1, 2, 1.0), (4, 2, 0.3), (9, 6, 20.0)])
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "errors and masks"])
def test_the_compiled_loop_follows_the_formulas(radius, dim, arms, ridge, extras):
    x, reward, error, allowed = problem(2, 1200 if dim == 4 else 150, arms, dim, seed=dim)
    reward[:, 5::7] = np.nan
    more = {"error": error, "allowed": allowed} if extras else {}
    action, gamma, state = play_horizon(x, reward, radius, ridge=ridge, **more)
    if not extras:
        error, allowed = np.zeros_like(reward), np.ones(reward.shape, bool)
    for r in range(2):
        truth = oracle(x[r], reward[r], radius, ridge, error[r], allowed[r])
        assert_array_equal(action[r], truth[0])
        assert_allclose(gamma[r], truth[1], rtol=1e-9)
        assert_allclose(state.theta[r], truth[2], rtol=1e-9, atol=1e-9)
        assert_allclose(state.sums[r, :4], truth[3], rtol=1e-9, atol=1e-9)
        assert_allclose(state.precision[r], truth[4], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("radius", RADII, ids=lambda r: r.name)
@pytest.mark.parametrize(("dim", "arms"), [(4, 2), (7, 5)])
def test_one_round_at_a_time_agrees_with_whole_horizons_to_the_last_bit(radius, dim, arms):
    x, reward, error, allowed = problem(2, 1100, arms, dim)  # the inverse is made anew once
    action, gamma, whole = play_horizon(x, reward, radius, error=error, allowed=allowed)
    state = init(dim, 1.0, (2,))
    for t in range(x.shape[1]):
        choice = decide(state, x[:, t], radius, error=error[:, t], allowed=allowed[:, t])
        assert_array_equal(choice.action, action[:, t])
        assert_array_equal(choice.gamma, gamma[:, t])
        assert_array_equal(choice.error, error[[0, 1], t, choice.action])
        state = update(state, choice, reward[[0, 1], t, choice.action])
    assert_same(state, whole)
    assert (whole.drift > 0).all()


def test_the_inverse_does_not_drift_over_many_rounds():
    x, reward, _, _ = problem(1, 100_000, 2, 5)
    x[..., 1] = x[..., 0] + 1e-3 * x[..., 1]
    action, _, state = play_horizon(x, reward, constant(0.5), ridge=0.1)
    assert state.drift[0] < 1e-8
    played = x[0, np.arange(100_000), action[0]]
    fresh = np.linalg.inv(0.1 * np.eye(5) + played.T @ played)
    assert np.abs(state.inverse[0] - fresh).max() < 1e-8 * np.abs(fresh).max()


def test_an_inverse_that_drifted_is_mended_and_the_drift_is_told():
    x, reward, _, _ = problem(1, 1023)
    state = play_horizon(x, reward, RADII[0])[2].one(0)
    off = state._replace(inverse=state.inverse * (1 + 1e-6), sums=state.sums + np.eye(5)[1])
    mended = update(off, decide(off, x[0, 0], RADII[0]), 0.5)
    fresh = np.linalg.inv(mended.precision)
    assert_allclose(mended.inverse, fresh, rtol=1e-9, atol=1e-15)
    assert_allclose(mended.theta, fresh @ mended.b, rtol=1e-9)
    assert_allclose(mended.logdet, np.linalg.slogdet(mended.precision)[1], rtol=1e-12)
    assert 1e-7 < mended.drift < 1e-5


@pytest.mark.parametrize("dim", [1, 3, 8, 33])
def test_ties_go_to_the_lowest_arm(dim):
    x, reward, _, allowed = problem(1, 400, 5, dim)
    x[:] = x[:, :, :1]
    reward[:] = reward[:, :, :1]
    assert not play_horizon(x, reward, constant(1.0))[0].any()
    allowed[..., 0] = ~allowed[..., 1:].any(-1)
    action = play_horizon(x, reward, constant(1.0), allowed=allowed)[0]
    assert_array_equal(action, allowed.argmax(-1))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_decide_and_update_leave_their_arguments_alone(batch):
    x, reward, error, _ = problem(2, 1030, 3, 4)
    x, reward, error = (a if batch else a[0] for a in (x, reward, error))
    state, radius = init(4, 1.0, batch), RADII[2]
    for t in range(1030):
        now, e = (a[:, t] if batch else a[t] for a in (x, error))
        kept = state.copy()
        choice = decide(state, now, radius, error=e)
        held = [np.array(v) for v in choice]
        after = update(state, choice, 0.5)
        for before, now_ in zip([*kept[:5], *held], [*state[:5], *choice], strict=True):
            assert_array_equal(before, now_)
        assert not any(np.shares_memory(a, b) for a in after[:5] for b in state[:5])
        state = after
    assert (state.rounds == 1030).all()


def test_arms_that_are_not_allowed_are_neither_played_nor_scored():
    x, _, _, _ = problem()
    x[0, 0, 1] = np.nan
    choice = decide(init(4, 1.0), x[0, 0], RADII[0], allowed=[False, False, True])
    assert choice.action == 2
    assert_array_equal(np.isnan(choice.mean), [True, True, False])
    assert_array_equal(np.isnan(choice.width), [True, True, False])
    with pytest.raises(FeatureError, match="no arm is allowed"):
        decide(init(4, 1.0), x[0, 0], RADII[0], allowed=[False] * 3)


def test_rounds_that_cannot_be_scored_are_skipped_and_nothing_else_changes():
    x, reward, error, allowed = problem(rounds=60)
    x[:, 20, 2, 1], x[:, 30, 0, 0] = np.nan, np.inf
    allowed[:, 20, 2], allowed[:, 40] = True, False
    action, _, state = play_horizon(x, reward, RADII[2], error=error, allowed=allowed)
    assert_array_equal(action[:, [20, 30, 40]], [[-1, -1, -2]] * 2)
    keep = np.delete(np.arange(60), [20, 30, 40])
    x, reward, error, allowed = (a[:, keep] for a in (x, reward, error, allowed))
    other, _, expected = play_horizon(x, reward, RADII[2], error=error, allowed=allowed)
    assert_array_equal(action[:, keep], other)
    assert_same(state, expected)


@pytest.mark.parametrize("form", ["sharp", "sum"])
def test_what_is_taught_are_the_true_features_and_they_carry_no_error(form):
    x, reward, error, _ = problem(runs=1, rounds=60)
    true = x + 0.3 * np.random.default_rng(1).standard_normal(x.shape)
    reward[:, 5::9] = np.nan
    radius = corrected(sigma=0.4, theta_bound=0.8, form=form)
    action, gamma, state = play_horizon(x, reward, radius, error=error, taught=true)
    truth = dense(x[0], reward[0], Rule(sigma=0.4, size=0.8, form=form), taught=true[0])
    assert_array_equal(action[0], truth.action)
    assert_allclose(np.sqrt(gamma[0]), truth.root, rtol=1e-9)
    assert_allclose(state.theta[0], truth.theta, rtol=1e-7, atol=1e-9)
    assert_array_equal(state.sums[0, 2:4], 0.0)
    true[0, ::2, :, 0] = np.nan  # there the scored features are learned from, with their error
    action, _, mixed = play_horizon(x, reward, radius, error=error, taught=true)
    learned = np.flatnonzero(np.isfinite(reward[0, :, 0]) & (np.arange(60) % 2 == 0))
    due = (error[0, learned, action[0, learned]] ** 2).sum()
    assert mixed.sums[0, 2] == pytest.approx(due, rel=1e-12)


S1, X = init(2, 1.0), np.ones((3, 2))
# cut from a larger state: a kernel that runs past the end then stays inside known memory
S2 = State(*(a[:2] for a in init(2, 1.0, (9,))[:5]), 1.0)
HOLE = X * [[1.0], [np.nan], [1.0]]
W, PAY = np.ones((1, 5, 3, 2)), np.ones((1, 5, 3))


def one():
    return decide(S1, X, RADII[0])


BAD = {
    "ridge 0": (SettingError, "ridge", lambda: init(2, 0.0)),
    "wrong width": (FeatureError, "features", lambda: decide(S1, np.ones((3, 5)), RADII[0])),
    "no batch axis": (FeatureError, "features", lambda: decide(S2, X, RADII[0])),
    "too many runs": (FeatureError, "runs", lambda: decide(S2, np.ones((9, 3, 2)), RADII[0])),
    "too few runs": (FeatureError, "runs", lambda: decide(S2, np.ones((1, 3, 2)), RADII[0])),
    "NaN": (FeatureError, "arm 1, feature 0", lambda: decide(S1, HOLE, RADII[0])),
    "overflow": (FeatureError, "overflow", lambda: decide(S1, X * 1e200, RADII[0])),
    "short mask": (SettingError, "allowed", lambda: decide(S1, X, RADII[0], allowed=[True])),
    "error < 0": (SettingError, "error", lambda: decide(S1, X, RADII[0], error=-1.0)),
    "short error": (SettingError, "error", lambda: decide(S1, X, RADII[0], error=[0.1, 0.1])),
    "NaN reward": (RewardError, "reward", lambda: update(S1, one(), np.nan)),
    "inf reward": (RewardError, "reward", lambda: update(S1, one(), -np.inf)),
    "many rewards": (RewardError, "reward", lambda: update(S1, one(), [1.0, 2.0])),
    "update error < 0": (SettingError, "error", lambda: update(S1, one(), 1.0, error=-1.0)),
    "another width": (FeatureError, "features", lambda: update(init(3, 1.0), one(), 1.0)),
    "another batch": (FeatureError, "features", lambda: update(S2, one(), 1.0)),
    "flat x": (FeatureError, "x must be", lambda: play_horizon(W[0], PAY[0], RADII[0])),
    "inf in horizon": (RewardError, "reward", lambda: play_horizon(W, PAY * np.inf, RADII[0])),
    "bad error": (SettingError, "error", lambda: play_horizon(W, PAY, RADII[0], error=-PAY)),
    "bad mask": (SettingError, "allow", lambda: play_horizon(W, PAY, RADII[0], allowed=PAY[:, :4])),
    "ridge < 0": (SettingError, "ridge", lambda: play_horizon(W, PAY, RADII[0], ridge=-1)),
    "short taught": (
        FeatureError,
        "taught must have the shape of x",
        lambda: play_horizon(W, PAY, RADII[0], taught=W[:, :4]),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case):
    error, says, call = BAD[case]
    with pytest.raises(error, match=says):
        call()
