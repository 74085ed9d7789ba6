"""Linear learners side by side: one regression each, evidence for each, one compiled loop.

The first member is the one the ball and the guard speak of; with more than one, they form a
committee. Every member learns from every round on its own features. Its evidence is the sum of
one-step-ahead log densities of the rewards under a normal-inverse-gamma linear model,

    R | past ~ t_{2a}( x' theta_hat, (b/a)(1 + x' Sigma^{-1} x) ),
    a <- a + 1/2,   b <- b + (R - x' theta_hat)^2 / (2 (1 + x' Sigma^{-1} x)),

in closed form from the same rank-one update. Members vote with tempered weights,

    w_k ~ exp( min(1, TEMPER / n) (evidence_k - best evidence) ),   index_a = sum_k w_k index_{k,a},

never sharper than Bayes: probabilities of models would settle on one member although none is true.
Or the best alone (BEST), or stacking (STACKED): the weights of the mixture of their predictive
densities p_k that predicts best, by online EM, w_k <- w_k (1 - g + g p_k / sum_j w_j p_j) with
g = (n + 2)^-0.6. Members may score features that follow earlier rewards of the unit, see
``carried``.

The guard. With theta* in the ball of radius r around the first member's theta_hat, arm a costs at
most gap(a) = max_b [m_b - m_a + r ||x_b - x_a||_{Sigma^{-1}}]. The proposal a of ANY advisor is
played if gap(a) <= 2 c r w_a, else the arm of largest m + r w: a round then costs at most 2 c r w
of the arm played.

There is ONE loop, :func:`play_members`: an act is a horizon of one round whose reward is not known,
an update a horizon of one round with one arm, so streaming and batch agree to the last bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pulse_pyro._core.arrays import Array, Float, Float1, Float2, Float3, Int
from pulse_pyro.policies.ball import BallRounds, BallRule, BallSums, add_round, ball_root
from pulse_pyro.policies.carried import (
    MEMORY,
    CarrySetup,
    CarryState,
    correct,
    memory_slope,
    predict,
    push_past,
    slope_doubt,
)

TEMPER = 50.0
REFRESH = 1024  # rewards between re-factorisations of an inverse
SMALL = 12  # features up to which rows one by one are faster
SHAPE = 1.0  # a of the prior: its guess of the noise is worth two rewards
UCB, INDEX, DRAWN, VOTE, GIVEN = range(5)  # advisors
TEMPERED, BEST, STACKED = range(3)  # rules of the weights
ROUNDS, LOGDET, DRIFT, SCALE, EVIDENCE, STACK, LED = range(7)  # columns of a member's sums
ADVISED, OVERRULED, UNUSABLE = range(3)  # who chose a round, and why


class MemberSetup(NamedTuple):
    """What is fixed beforehand.

    starts : (k + 1,) where each member's features begin. squares : (k + 1,) and its matrices.
    ridge, alpha : (k,) lambda, and the bonus of its index. guess : (k,) sd of the noise a priori.
    advisor : one of the above. slack : c of the guard; 0: every proposal is played.
    rule : of the weights, one of the above. temper, keep : evidence is multiplied by ``keep`` each
    round.
    """

    starts: Int
    squares: Int
    ridge: Float1
    alpha: Float1
    guess: Float1
    advisor: int
    slack: float
    rule: int
    temper: float
    keep: float


class MemberState(NamedTuple):
    """What was learned: precision, inverse (run, squares), b, theta (run, features) flat.

    sums : (run, k, 7) rounds, logdet, drift, b of the noise, evidence, weight of stacking, rounds
    in which the member had the largest weight.
    """

    precision: Float2
    inverse: Float2
    b: Float2
    theta: Float2
    sums: Float3


class MemberOutput(NamedTuple):
    """Filled in: action, proposal (run, time), root (run, time), cost (run, time) = 2 c r w.

    chosen : (run, time) ADVISED, OVERRULED or UNUSABLE. weights : (run, time, k).
    apart : (run, time) ||theta* - theta_hat||_Sigma where theta* is known, else 0.
    """

    action: Array
    proposal: Array
    root: Float2
    cost: Float2
    chosen: Array
    weights: Float3
    apart: Float2


class MemberRounds(NamedTuple):
    """What goes with rounds beside features and rewards.

    unit, clock : (run or 1, time or 1) whose round it is, and when in that unit's own time.
    late : rewards are learned so many rounds after their own has passed; 0: at once.
    truth : (run or 1, d) theta* of the first member where it is known; size 0 where it is not.
    """

    unit: Int
    clock: Int
    late: int
    truth: Float2


@njit(cache=True, error_model="numpy", fastmath=False)
def _reach(inverse: Float1, x: Float2, begin: int, d: int, out: Float2) -> None:
    """Fill out[:, begin : begin + d] with Sigma^{-1} x of every arm; inverse is flat (d d,)."""
    for a in range(x.shape[0]):
        for i in range(d):
            out[a, begin + i] = 0.0
        if d <= SMALL:
            for i in range(d):
                row = 0.0
                for j in range(d):
                    row += inverse[i * d + j] * x[a, begin + j]
                out[a, begin + i] = row
            continue
        block = d - d % 4
        for j in range(0, block, 4):
            x0, x1 = x[a, begin + j], x[a, begin + j + 1]
            x2, x3 = x[a, begin + j + 2], x[a, begin + j + 3]
            at = j * d
            for i in range(d):
                out[a, begin + i] += (
                    inverse[at + i] * x0
                    + inverse[at + d + i] * x1
                    + inverse[at + 2 * d + i] * x2
                    + inverse[at + 3 * d + i] * x3
                )
        for j in range(block, d):
            for i in range(d):
                out[a, begin + i] += inverse[j * d + i] * x[a, begin + j]


@njit(cache=True, error_model="numpy", fastmath=False)
def vote_weights(sums: Float2, rule: int, temper: float, active: Array, out: Float1) -> None:
    """Fill the weights (k,) of members that have features this round; 0 for the others."""
    best, most, first = -np.inf, 0.0, -1
    for k in range(sums.shape[0]):
        if active[k] and sums[k, EVIDENCE] > best:
            best, first = sums[k, EVIDENCE], k
        most = max(most, sums[k, ROUNDS])
    heat = min(1.0, temper / most) if most > 0.0 else 1.0
    total = 0.0
    for k in range(sums.shape[0]):
        out[k] = 0.0
        if active[k]:
            if rule == TEMPERED:
                out[k] = math.exp(heat * (sums[k, EVIDENCE] - best))
            elif rule == STACKED:
                out[k] = sums[k, STACK]
            else:
                out[k] = 1.0 if k == first else 0.0
        total += out[k]
    for k in range(sums.shape[0]):
        out[k] = out[k] / total if total > 0.0 else 0.0


@njit(cache=True, error_model="numpy", fastmath=False)
def _log_density(reward: float, mean: float, square: float, shape: float, scale: float) -> float:
    """Return the log density of Student's t with 2 shape degrees of freedom."""
    variance = scale / shape * (1.0 + square)
    z = (reward - mean) ** 2 / (2.0 * shape * variance)
    return (
        math.lgamma(shape + 0.5)
        - math.lgamma(shape)
        - 0.5 * math.log(2.0 * math.pi * shape * variance)
        - (shape + 0.5) * math.log1p(z)
    )


@njit(cache=True, error_model="numpy", fastmath=False)
def _absorb(
    state: MemberState,
    r: int,
    k: int,
    begin: int,
    square_at: int,
    d: int,
    ridge: float,
    x: Float1,
    v: Float1,
    reward: float,
    mean: float,
    square: float,
) -> None:
    """Learn one reward: x, v = Sigma^{-1} x are flat over members, square = x'v, mean = x'theta."""
    shrink = 1.0 / (1.0 + square)
    surprise = (reward - mean) * shrink
    inverse, precision = state.inverse[r], state.precision[r]
    for i in range(d):
        scaled, xi, at = v[begin + i] * shrink, x[begin + i], square_at + i * d
        for j in range(d):
            inverse[at + j] -= scaled * v[begin + j]
            precision[at + j] += xi * x[begin + j]
        state.theta[r, begin + i] += v[begin + i] * surprise
        state.b[r, begin + i] += reward * xi
    sums = state.sums[r, k]
    sums[ROUNDS] += 1.0
    sums[LOGDET] += math.log1p(square)
    sums[SCALE] += 0.5 * (reward - mean) * surprise
    if int(sums[ROUNDS]) % REFRESH == 0:
        _refresh(state, r, k, begin, square_at, d, ridge)


@njit(cache=True, error_model="numpy", fastmath=False)
def _refresh(
    state: MemberState, r: int, k: int, begin: int, square_at: int, d: int, ridge: float
) -> None:
    """Compute inverse, theta and logdet anew from Sigma; a singular Sigma is left alone."""
    matrix = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            matrix[i, j] = state.precision[r, square_at + i * d + j]
    try:
        factor = np.linalg.cholesky(matrix)
        fresh = np.linalg.inv(matrix)
    except Exception:  # the only form of except that is compiled
        state.sums[r, k, DRIFT] = math.inf
        return
    logdet, gap, size = -d * math.log(ridge), 0.0, 0.0
    for i in range(d):
        logdet += 2.0 * math.log(factor[i, i])
        for j in range(d):
            gap = max(gap, abs(fresh[i, j] - state.inverse[r, square_at + i * d + j]))
            size = max(size, abs(fresh[i, j]))
    for i in range(d):
        total = 0.0
        for j in range(d):
            both = 0.5 * (fresh[i, j] + fresh[j, i])
            state.inverse[r, square_at + i * d + j] = both
            total += both * state.b[r, begin + j]
        state.theta[r, begin + i] = total
    state.sums[r, k, LOGDET] = logdet
    state.sums[r, k, DRIFT] = max(state.sums[r, k, DRIFT], gap / size)


@njit(cache=True, error_model="numpy", fastmath=False)
def _pair_gap(
    x: Float2,
    v: Float2,
    mean: Float1,
    square: Float1,
    a: int,
    root: float,
    d: int,
    open_arms: Array,
) -> float:
    """Return gap(a) = max_b [m_b - m_a + r ||x_b - x_a||_{Sigma^{-1}}] of the first member."""
    gap = 0.0
    for b in range(x.shape[0]):
        if b == a or not open_arms[b]:
            continue
        cross = 0.0
        for j in range(d):
            cross += v[a, j] * x[b, j]
        apart = math.sqrt(max(square[a] + square[b] - 2.0 * cross, 0.0))
        gap = max(gap, mean[b] - mean[a] + root * apart)
    return gap


@njit(cache=True, error_model="numpy", fastmath=False)
def _score(
    setup: MemberSetup,
    state: MemberState,
    r: int,
    now: Float2,
    open_arms: Array,
    reach: Float2,
    mean: Float2,
    square: Float2,
    active: Array,
) -> None:
    """Fill Sigma^{-1} x (arm, features), x'theta and x'Sigma^{-1} x (member, arm) of a round."""
    for k in range(setup.ridge.shape[0]):
        begin, end = setup.starts[k], setup.starts[k + 1]
        active[k] = True
        flat = state.inverse[r, setup.squares[k] : setup.squares[k + 1]]
        _reach(flat, now, begin, end - begin, reach)
        for a in range(now.shape[0]):
            m, s = 0.0, 0.0
            for j in range(begin, end):
                m += state.theta[r, j] * now[a, j]
                s += reach[a, j] * now[a, j]
            mean[k, a], square[k, a] = m, max(s, 0.0)
            if open_arms[a] and not (math.isfinite(m) and math.isfinite(s)):
                active[k] = False


@njit(cache=True, error_model="numpy", fastmath=False)
def _distance(setup: MemberSetup, state: MemberState, r: int, truth: Float2) -> float:
    """Return ||theta* - theta_hat||_Sigma of the first member; 0 where theta* is not known."""
    d = setup.starts[1]
    if truth.shape[1] != d:
        return 0.0
    one, total = truth[min(r, truth.shape[0] - 1)], 0.0
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += state.precision[r, i * d + j] * (one[j] - state.theta[r, j])
        total += row * (one[i] - state.theta[r, i])
    return math.sqrt(max(total, 0.0))


@njit(cache=True, error_model="numpy", fastmath=False)
def _propose(
    setup: MemberSetup,
    state: MemberState,
    r: int,
    t: int,
    now: Float2,
    open_arms: Array,
    mean: Float2,
    square: Float2,
    weights: Float1,
    given: Array,
    noise: Float3,
    best: int,
    index: Float1,
) -> int:
    """Return the arm the advisor proposes; it may be no arm at all."""
    if setup.advisor == GIVEN:
        return given[r, t]
    if setup.advisor == UCB:
        return best
    arms, d0 = now.shape[0], setup.starts[1]
    for a in range(arms):
        index[a] = mean[0, a]
    if setup.advisor == INDEX:
        for a in range(arms):
            index[a] += setup.alpha[0] * math.sqrt(square[0, a])
    elif setup.advisor == DRAWN:
        values, vectors = np.linalg.eigh(state.inverse[r, : d0 * d0].copy().reshape((d0, d0)))
        for i in range(d0):
            drawn = state.theta[r, i]
            for j in range(d0):
                size = setup.alpha[0] * math.sqrt(max(values[j], 0.0))
                drawn += vectors[i, j] * size * noise[r, t, j]
            for a in range(arms):
                index[a] += (drawn - state.theta[r, i]) * now[a, i]
    else:
        for a in range(arms):
            index[a] = 0.0
            for k in range(setup.ridge.shape[0]):
                if weights[k] > 0.0:
                    bonus = setup.alpha[k] * math.sqrt(square[k, a])
                    index[a] += weights[k] * (mean[k, a] + bonus)
    proposal, top = -1, -np.inf
    for a in range(arms):
        if open_arms[a] and index[a] > top:
            proposal, top = a, index[a]
    return proposal


@njit(cache=True, error_model="numpy", fastmath=False)
def play_members(
    x: Float,
    reward: Float3,
    allowed: Array,
    given: Array,
    noise: Float3,
    setup: MemberSetup,
    state: MemberState,
    rule: BallRule,
    rounds: BallRounds,
    ball: BallSums,
    fixed_root: float,
    carry: CarrySetup,
    carried: CarryState,
    about: MemberRounds,
    output: MemberOutput,
) -> None:
    """Play horizons in place.

    x : (run, time, action, features) of all members side by side. reward : (run, time, action), NaN
    where it is lost. allowed : (run, time, action), 1 along run or time if shared, size 0: all.
    given : (run, time) proposals, for the advisor GIVEN. noise : (run, time, d) standard normal,
    for DRAWN. fixed_root : sqrt(gamma) instead of the ball's if it is >= 0. carry, carried : what
    members add to their features from earlier rewards of the unit, and its state.

    action is -1 where the round cannot be scored and -2 where no arm is allowed: such rounds teach
    nothing. A round needs the first member's features, unless a committee plays without a guard:
    then any member's. A member with features that are not finite sits the round out: it does not
    vote and does not learn, and its evidence moves with the committee's own.
    """
    runs, horizon, arms, width = x.shape
    members, states = setup.ridge.shape[0], carry.keep.shape[0]
    now, reach = np.empty((arms, width)), np.empty((arms, width))
    mean, square = np.empty((members, arms)), np.empty((members, arms))
    active, open_arms = np.empty(members, np.bool_), np.empty(arms, np.bool_)
    index, weights, logs = np.empty(arms), np.empty(members), np.empty(members)
    told, spread = np.empty(states), np.empty(carry.start.shape[0])
    d0 = setup.starts[1]
    matrix = np.empty((d0, d0))
    free = setup.slack <= 0.0 and setup.advisor == VOTE
    # rounds whose reward is still to come, when rewards are late
    slots = about.late + 1
    kept_x, kept_told = np.empty((slots, width)), np.empty((slots, states))
    kept_active, one_arm = np.empty((slots, members), np.bool_), np.ones(1, np.bool_)
    late_mean, late_square = np.empty((members, 1)), np.empty((members, 1))
    late_reach, still = np.empty((1, width)), np.empty(members, np.bool_)
    for r in range(runs):
        for t in range(horizon + (slots if about.late > 0 else 0)):
            due = t - slots
            if about.late > 0 and due >= 0:
                a = output.action[r, due]
                slot = due % slots
                if a >= 0 and math.isfinite(reward[r, due, a]):
                    _score(
                        setup,
                        state,
                        r,
                        kept_x[slot : slot + 1],
                        one_arm,
                        late_reach,
                        late_mean,
                        late_square,
                        still,
                    )
                    vote_weights(state.sums[r], setup.rule, setup.temper, still, weights)
                    _learn(
                        setup,
                        state,
                        rule,
                        rounds,
                        ball,
                        carry,
                        carried,
                        about,
                        kept_x[slot],
                        late_reach[0],
                        late_mean[:, 0],
                        late_square[:, 0],
                        kept_active[slot],
                        weights,
                        logs,
                        kept_told[slot],
                        told,
                        spread,
                        reward[r, due, a],
                        r,
                        due,
                        a,
                    )
            if t >= horizon:
                continue
            output.action[r, t] = -2
            output.proposal[r, t] = -1
            output.chosen[r, t] = ADVISED
            output.cost[r, t] = 0.0
            some = False
            for a in range(arms):
                open_arms[a] = True
                if allowed.shape[2] > 0:
                    open_arms[a] = allowed[
                        min(r, allowed.shape[0] - 1), min(t, allowed.shape[1] - 1), a
                    ]
                some = some or open_arms[a]
                for j in range(width):
                    now[a, j] = x[r, t, a, j]
            if not some:
                continue
            if states > 0:
                unit = about.unit[min(r, about.unit.shape[0] - 1), min(t, about.unit.shape[1] - 1)]
                clock = about.clock[
                    min(r, about.clock.shape[0] - 1), min(t, about.clock.shape[1] - 1)
                ]
                predict(carry, carried, r, unit, clock, told, spread)
                coef = carry.coef[min(r, carry.coef.shape[0] - 1), min(t, carry.coef.shape[1] - 1)]
                for a in range(arms):
                    for e in range(carry.columns.shape[0]):
                        now[a, carry.columns[e]] += coef[a, e] * told[carry.rows[e]]
            _score(setup, state, r, now, open_arms, reach, mean, square, active)
            root = fixed_root
            if fixed_root < 0.0:
                at = 0
                for i in range(d0):
                    for j in range(d0):
                        matrix[i, j] = state.inverse[r, at]
                        at += 1
                root = ball_root(
                    rule,
                    ball.plain[r],
                    ball.outer[r],
                    setup.ridge[0],
                    int(state.sums[r, 0, ROUNDS]),
                    state.sums[r, 0, LOGDET],
                    matrix,
                    state.theta[r, :d0],
                )
            output.root[r, t] = root
            output.apart[r, t] = _distance(setup, state, r, about.truth)
            vote_weights(state.sums[r], setup.rule, setup.temper, active, weights)
            leader = 0
            for k in range(members):
                output.weights[r, t, k] = weights[k]
                if weights[k] > weights[leader]:
                    leader = k
            if not (active[0] or (free and weights[leader] > 0.0)):
                output.action[r, t] = -1
                continue
            # the arm of the ball, and the advisor's
            best, top = -1, -np.inf
            if active[0]:
                for a in range(arms):
                    score = mean[0, a] + root * math.sqrt(square[0, a])
                    if open_arms[a] and score > top:
                        best, top = a, score
            if best < 0 and not free:
                output.action[r, t] = -1
                continue
            proposal = _propose(
                setup, state, r, t, now, open_arms, mean, square, weights, given, noise, best, index
            )
            output.proposal[r, t] = proposal
            action = best
            if proposal < 0 or proposal >= arms or not open_arms[proposal]:
                output.chosen[r, t] = UNUSABLE
            elif setup.slack <= 0.0:
                action = proposal
            else:
                gap = _pair_gap(now, reach, mean[0], square[0], proposal, root, d0, open_arms)
                if gap <= 2.0 * setup.slack * root * math.sqrt(square[0, proposal]):
                    action = proposal
                elif proposal != best:
                    output.chosen[r, t] = OVERRULED
            output.action[r, t] = action
            if action < 0:
                continue
            state.sums[r, leader, LED] += 1.0
            c = setup.slack if output.chosen[r, t] == ADVISED else 1.0
            output.cost[r, t] = 2.0 * max(c, 1.0) * root * math.sqrt(square[0, action])
            if about.late > 0:
                slot = t % slots
                kept_x[slot] = now[action]
                kept_told[slot] = told
                kept_active[slot] = active
            elif math.isfinite(reward[r, t, action]):
                _learn(
                    setup,
                    state,
                    rule,
                    rounds,
                    ball,
                    carry,
                    carried,
                    about,
                    now[action],
                    reach[action],
                    mean[:, action],
                    square[:, action],
                    active,
                    weights,
                    logs,
                    told,
                    told,
                    spread,
                    reward[r, t, action],
                    r,
                    t,
                    action,
                )


@njit(cache=True, error_model="numpy", fastmath=False)
def _learn(
    setup: MemberSetup,
    state: MemberState,
    rule: BallRule,
    rounds: BallRounds,
    ball: BallSums,
    carry: CarrySetup,
    carried: CarryState,
    about: MemberRounds,
    x: Float1,
    v: Float1,
    mean: Float1,
    square: Float1,
    active: Array,
    weights: Float1,
    logs: Float1,
    scored: Float1,
    told: Float1,
    spread: Float1,
    reward: float,
    r: int,
    t: int,
    action: int,
) -> None:
    """Let every member learn a reward; the first one's round is counted for the ball.

    scored : (Q,) what was carried into x. told, spread : room for the states of the unit.
    """
    members = setup.ridge.shape[0]
    if members > 1:
        _count_evidence(setup, state.sums[r], mean, square, active, weights, logs, reward)
    if rule.directions.shape[0] > 0:
        add_round(
            rule,
            rounds,
            ball.plain[r],
            ball.outer[r],
            x[: setup.starts[1]],
            square[0],
            r,
            t,
            action,
        )
    if carry.keep.shape[0] > 0:
        _carry_on(
            setup,
            state,
            carry,
            carried,
            about,
            mean,
            square,
            active,
            scored,
            told,
            spread,
            reward,
            r,
            t,
            action,
        )
    for k in range(members):
        if active[k]:
            begin, end = setup.starts[k], setup.starts[k + 1]
            _absorb(
                state,
                r,
                k,
                begin,
                setup.squares[k],
                end - begin,
                setup.ridge[k],
                x,
                v,
                reward,
                mean[k],
                square[k],
            )


@njit(cache=True, error_model="numpy", fastmath=False)
def _count_evidence(
    setup: MemberSetup,
    sums: Float2,
    mean: Float1,
    square: Float1,
    active: Array,
    weights: Float1,
    logs: Float1,
    reward: float,
) -> None:
    """Add a reward's log density to each member's evidence, and move the weights of stacking."""
    members, mixture, share, most = setup.ridge.shape[0], 0.0, 0.0, -np.inf
    for k in range(members):
        if active[k]:
            shape = SHAPE + 0.5 * sums[k, ROUNDS]
            logs[k] = _log_density(reward, mean[k], square[k], shape, sums[k, SCALE])
            mixture += weights[k] * logs[k]
            share += weights[k]
            most = max(most, logs[k])
    together, rounds = 0.0, 0.0
    for k in range(members):
        gain = logs[k] if active[k] else (mixture / share if share > 0.0 else 0.0)
        sums[k, EVIDENCE] = setup.keep * sums[k, EVIDENCE] + gain
        rounds = max(rounds, sums[k, ROUNDS])
        if active[k]:
            together += sums[k, STACK] * math.exp(logs[k] - most)
    pace = (rounds + 2.0) ** -0.6
    held = 0.0
    for k in range(members):
        if active[k]:
            held += sums[k, STACK]
    for k in range(members):
        if active[k] and together > 0.0:
            better = held * math.exp(logs[k] - most) / together
            sums[k, STACK] *= 1.0 - pace + pace * better


@njit(cache=True, error_model="numpy", fastmath=False)
def _carry_on(
    setup: MemberSetup,
    state: MemberState,
    carry: CarrySetup,
    carried: CarryState,
    about: MemberRounds,
    mean: Float1,
    square: Float1,
    active: Array,
    scored: Float1,
    told: Float1,
    spread: Float1,
    reward: float,
    r: int,
    t: int,
    action: int,
) -> None:
    """Let a reward tell of its unit's states, at the time it is a reward of."""
    unit = about.unit[min(r, about.unit.shape[0] - 1), min(t, about.unit.shape[1] - 1)]
    clock = about.clock[min(r, about.clock.shape[0] - 1), min(t, about.clock.shape[1] - 1)]
    before = scored.copy()
    predict(carry, carried, r, unit, clock, told, spread)
    coef = carry.coef[min(r, carry.coef.shape[0] - 1), min(t, carry.coef.shape[1] - 1), action]
    arms = carry.coef.shape[2]
    for p in range(carry.kind.shape[0]):
        begin, end = carry.begin[p], carry.begin[p + 1]
        if carry.kind[p] != MEMORY:
            push_past(told[begin:end], arms, action, reward)
            continue
        k, m = carry.member[p], end - begin
        if not active[k]:
            continue
        cov = spread[carry.squares[p] : carry.squares[p + 1]].reshape((m, m))
        slope = np.empty(m)
        memory_slope(carry, p, coef, state.theta[r], slope)
        surprise = reward - mean[k]
        for i in range(m):  # what was told since the decision, by rewards that came in between
            surprise -= slope[i] * (told[begin + i] - before[begin + i])
        first = setup.starts[k]
        d = setup.starts[k + 1] - first
        flat = state.inverse[r, setup.squares[k] : setup.squares[k + 1]]
        scale = state.sums[r, k, SCALE] / (SHAPE + 0.5 * state.sums[r, k, ROUNDS])
        doubt = square[k] + slope_doubt(carry, p, coef, flat, first, d, cov)
        correct(told[begin:end], cov, slope, surprise, carry.noise[p] + scale * doubt)
    carried.mean[r, unit] = told
    carried.cov[r, unit] = spread
    carried.clock[r, unit] = max(clock, carried.clock[r, unit])


def member_setup(
    dims: list[int],
    ridge: list[float],
    alpha: list[float],
    guess: list[float],
    *,
    advisor: int,
    slack: float,
    rule: int = TEMPERED,
    temper: float = TEMPER,
    keep: float = 1.0,
) -> MemberSetup:
    """Lay members of so many features each side by side."""
    starts = np.concatenate([[0], np.cumsum(dims)]).astype(np.int64)
    squares = np.concatenate([[0], np.cumsum(np.square(dims))]).astype(np.int64)
    return MemberSetup(
        starts=starts,
        squares=squares,
        ridge=np.array(ridge, np.float64),
        alpha=np.array(alpha, np.float64),
        guess=np.array(guess, np.float64),
        advisor=advisor,
        slack=float(slack),
        rule=rule,
        temper=float(temper),
        keep=float(keep),
    )


def first_state(setup: MemberSetup, runs: int) -> MemberState:
    """Return what members know before any reward."""
    flat = [np.eye(d).ravel() for d in np.diff(setup.starts)]
    inverse = np.concatenate([one / lam for one, lam in zip(flat, setup.ridge, strict=True)])
    precision = np.concatenate([one * lam for one, lam in zip(flat, setup.ridge, strict=True)])
    width = int(setup.starts[-1])
    sums = np.zeros((runs, len(setup.ridge), 7))
    sums[:, :, SCALE] = SHAPE * setup.guess**2
    sums[:, :, STACK] = 1.0 / len(setup.ridge)
    return MemberState(
        np.tile(precision, (runs, 1)),
        np.tile(inverse, (runs, 1)),
        np.zeros((runs, width)),
        np.zeros((runs, width)),
        sums,
    )
