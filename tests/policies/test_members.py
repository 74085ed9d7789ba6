"""Committees and carried states: the compiled loop against one written out by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from pulse_pyro.policies.carried import MemoryCarry, correct, past_rewards, propagate
from pulse_pyro.policies.guard import Learner, Series, play_guarded
from pulse_pyro.policies.members import _gamma_ratio

ARMS = 2


def student_log_density(reward, mean, square, shape, scale):
    variance = scale / shape * (1 + square)
    df = 2 * shape
    z = (reward - mean) ** 2 / (df * variance)
    return (
        special.gammaln((df + 1) / 2)
        - special.gammaln(df / 2)
        - 0.5 * math.log(df * math.pi * variance)
        - (df + 1) / 2 * math.log1p(z)
    )


@pytest.mark.parametrize("n", [1, 2, 31, 32, 40, 1000, 10_000])
def test_the_ratio_of_gamma_functions(n):
    """Gamma(n + 1/2) / Gamma(n) = sqrt(pi) n C(2n, n) / 4^n, in whole numbers."""
    wanted = math.log(Fraction(n * math.comb(2 * n, n), 4**n) ** 2 * Fraction(math.pi) / n) / 2
    assert abs(_gamma_ratio(float(n)) - wanted) < 1e-13


class ByHand:
    """One member, with every matrix inverted anew each round."""

    def __init__(self, learner):
        d = learner.x.shape[-1]
        self.learner, self.sigma, self.b = learner, learner.ridge * np.eye(d), np.zeros(d)
        self.shape, self.scale, self.evidence = 1.0, learner.guess**2, 0.0
        self.units = {}

    def start(self):
        carry = self.learner.carry
        if isinstance(carry, MemoryCarry):
            return np.zeros(carry.size), np.array(carry.start), None
        return np.zeros(carry.size), None, None

    def state(self, unit, clock):
        """What is carried at a unit's own time."""
        carry = self.learner.carry
        mean, cov, when = self.units.get(unit) or self.start()
        if isinstance(carry, MemoryCarry) and when is not None:
            for _ in range(clock - when):
                mean = carry.keep * mean
                cov = np.diag(carry.keep) @ cov @ np.diag(carry.keep) + carry.shock
        return mean, cov

    def at(self, r, t, unit, clock):
        x = self.learner.x[r, t].copy()
        carry = self.learner.carry
        if carry is not None:
            z = self.state(unit, clock)[0]
            coef = carry.coef[0, min(t, carry.coef.shape[1] - 1)]
            for e, (column, row) in enumerate(zip(carry.columns, carry.rows, strict=True)):
                x[:, column] += coef[:, e] * z[row]
        return x

    def scores(self, x):
        inverse = np.linalg.inv(self.sigma)
        return x @ inverse @ self.b, np.einsum("ai,ij,aj->a", x, inverse, x)

    def learn(self, x, t, action, reward, unit, clock, scored):
        mean, square = (v[0] for v in self.scores(x[None]))
        self.evidence += student_log_density(reward, mean, square, self.shape, self.scale)
        carry = self.learner.carry
        if isinstance(carry, MemoryCarry):
            z, cov = self.state(unit, clock)
            inverse = np.linalg.inv(self.sigma)
            ways = np.zeros((carry.size, len(x)))
            coef = carry.coef[0, min(t, carry.coef.shape[1] - 1), action]
            for e, (column, row) in enumerate(zip(carry.columns, carry.rows, strict=True)):
                ways[row, column] += coef[e]
            slope = ways @ inverse @ self.b
            s2 = self.scale / self.shape
            doubt = square + np.trace(ways @ inverse @ ways.T @ cov)
            total = slope @ cov @ slope + carry.reward_sd**2 + s2 * doubt
            gain = cov @ slope / total
            self.units[unit] = (
                z + gain * (reward - mean - slope @ (z - scored)),
                cov - np.outer(gain, gain) * total,
                clock,
            )
        elif carry is not None:
            z, _ = self.state(unit, clock)
            new = np.zeros(2 * ARMS)
            new[action], new[ARMS + action] = reward, 1.0
            self.units[unit] = np.concatenate([new, z])[: carry.size], None, clock
        self.sigma = self.sigma + np.outer(x, x)
        self.b = self.b + reward * x
        self.shape += 0.5
        self.scale += 0.5 * (reward - mean) ** 2 / (1 + square)


def members(seed, horizon):
    """A plain one, one with a latent state, one with past rewards, as of one run."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1, horizon, ARMS, 3))
    wide = np.concatenate([x[..., :2], np.zeros((1, horizon, ARMS, 16))], axis=-1)
    memory = MemoryCarry(
        keep=np.array([0.9, 1.0]),
        shock=np.array([[0.1, 0.0], [0.0, 0.0]]),
        start=np.array([[0.5, 0.0], [0.0, 0.3]]),
        reward_sd=0.2,
        columns=np.array([1, 2, 1, 2]),
        rows=np.array([0, 0, 1, 1]),
        coef=rng.normal(size=(1, horizon, ARMS, 4)),
    )
    reward = x @ np.array([0.3, -0.5, 0.2]) + 0.4 * rng.normal(size=(1, horizon, 1))
    learners = [
        Learner(x, 1.0, 0.3, 0.5),
        Learner(x, 0.7, 0.4, 0.5, memory),
        Learner(wide, 2.0, 0.2, 0.5, past_rewards(2).carry(ARMS, 2)),
    ]
    return learners, reward


def votes_by_hand(team, rounds):
    evidence = np.array([one.evidence for one in team])
    heat = min(1.0, 50 / rounds) if rounds else 1.0
    weight = np.exp(heat * (evidence - evidence.max()))
    return weight / weight.sum()


@pytest.mark.parametrize(("seed", "late"), [(0, 0), (1, 0), (2, 5)])
def test_committee_memory_and_past_rewards_are_those_of_a_loop_by_hand(seed, late):
    horizon = 90
    learners, reward = members(seed, horizon)
    rng = np.random.default_rng(seed + 10)
    unit = rng.integers(3, size=horizon)
    clock = np.empty(horizon, int)
    for u in range(3):  # times of each unit, with gaps
        own = np.flatnonzero(unit == u)
        clock[own] = np.cumsum(rng.integers(1, 4, size=len(own)))
    series = Series(unit[None], clock[None], late)
    got = play_guarded(learners, reward, ball=None, series=series)
    team = [ByHand(one) for one in learners]
    waiting = []
    for t in range(horizon):
        if late and t > late:
            waiting.pop(0)()
        x = [one.at(0, t, unit[t], clock[t]) for one in team]
        told = [one.state(unit[t], clock[t])[0] if one.learner.carry else None for one in team]
        weight = votes_by_hand(team, max(t - late, 0))
        np.testing.assert_allclose(got.weights[0, t], weight, rtol=1e-6, atol=1e-12)
        index = np.zeros(ARMS)
        for w, one, features in zip(weight, team, x, strict=True):
            mean, square = one.scores(features)
            index += w * (mean + one.learner.alpha * np.sqrt(square))
        a = int(index.argmax())
        assert got.action[0, t] == a

        def learn(t=t, a=a, x=x, told=told):
            for one, features, z in zip(team, x, told, strict=True):
                one.learn(features[a], t, a, reward[0, t, a], unit[t], clock[t], z)

        waiting.append(learn)
        if not late:
            waiting.pop()()


def test_late_rewards_are_not_known_early():
    learners, reward = members(4, 40)
    other = reward.copy()
    other[:, 10:] += 5.0
    late = Series(late=7)
    one = play_guarded(learners, reward, ball=None, series=late)
    two = play_guarded(learners, other, ball=None, series=late)
    np.testing.assert_array_equal(one.action[:, :18], two.action[:, :18])
    assert (one.weights[0, 18] != two.weights[0, 18]).any()
    assert (one.state.sums[0, :, 0] == 40).all()  # all of them were learned in the end


def test_a_member_without_features_sits_out_and_its_evidence_moves_with_the_others():
    learners, reward = members(5, 50)
    gone = learners[0].x.copy()
    gone[:, 20:30] = np.nan
    team = [learners[1], Learner(gone, 1.0, 0.3, 0.5)]
    play = play_guarded(team, reward, ball=None)
    assert (play.action >= 0).all()
    assert (play.weights[0, 20:30, 1] == 0).all()
    assert (play.weights[0, 30:, 1] > 0).all()
    assert play.state.sums[0, :, 0].tolist() == [50, 40]
    # without a guard any member will do; a guard's own cannot be spared
    first = play_guarded(team[::-1], reward, ball=None)
    assert (first.action >= 0).all()


@pytest.mark.parametrize("votes", ["tempered", "best", "stacking"])
def test_the_right_member_wins(votes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 400, ARMS, 2))
    reward = x[..., 0] + 0.3 * rng.normal(size=(20, 400, 1))
    noise = rng.normal(size=x.shape)
    team = [Learner(noise, 1.0, 0.3, 1.0), Learner(x, 1.0, 0.3, 1.0)]
    play = play_guarded(team, reward, ball=None, votes=votes)
    assert play.weights[:, -1, 1].mean() > 0.9
    best = reward.argmax(-1) == play.action
    assert best[:, -200:].mean() > 0.95


def test_states_move_on_in_closed_form():
    rng = np.random.default_rng(0)
    keep, root = np.array([0.8, 1.0]), rng.normal(size=(2, 2))
    shock, start = root @ root.T, np.eye(2)
    mean, cov = np.array([1.0, -2.0]), start.copy()
    slow_mean, slow = mean.copy(), start.copy()
    for _ in range(7):
        slow_mean = keep * slow_mean
        slow = np.diag(keep) @ slow @ np.diag(keep) + shock
    propagate(mean, cov, keep, shock, 7)
    np.testing.assert_allclose(mean, slow_mean, rtol=1e-12)
    np.testing.assert_allclose(cov, slow, rtol=1e-12)


def test_a_reward_corrects_a_state_as_the_joint_normal_does():
    cov, slope = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -1.0])
    mean, after = np.zeros(2), cov.copy()
    correct(mean, after, slope, 3.0, 0.5)
    total = slope @ cov @ slope + 0.5
    np.testing.assert_allclose(mean, cov @ slope * 3.0 / total)
    np.testing.assert_allclose(after, cov - np.outer(cov @ slope, cov @ slope) / total)
