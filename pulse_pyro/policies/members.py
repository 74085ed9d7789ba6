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
from pulse_pyro.policies.ball import (
    BallRounds,
    BallRule,
    BallSums,
    add_round,
    ball_root,
    ellipsoid_sums,
    w_span,
)
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

# Helpers are inlined: passing dozens of arrays to a function a round would cost more than a round.
SHAPE = 1.0  # a of the prior: its guess of the noise is worth two rewards
UCB, INDEX, DRAWN, VOTE, GIVEN = range(5)  # advisors
TEMPERED, BEST, STACKED = range(3)  # rules of the weights
ROUNDS, LOGDET, DRIFT, SCALE, EVIDENCE, STACK, LED = range(7)  # columns of a member's sums
ADVISED, OVERRULED, UNUSABLE = range(3)  # who chose a round, and why


class MemberSetup(NamedTuple):
    """What is fixed beforehand.

    starts : (k + 1,) where each member's features begin. dims : (k,) how many it has.
    ridge, alpha : (k,) lambda, and the bonus of its index. guess : (k,) sd of the noise a priori.
    advisor : one of the above. slack : c of the guard; 0: every proposal is played.
    rule : of the weights, one of the above. temper, keep : evidence is multiplied by ``keep`` each
    round.
    """

    starts: Int
    dims: Int
    ridge: Float1
    alpha: Float1
    guess: Float1
    advisor: int
    slack: float
    rule: int
    temper: float
    keep: float


class MemberState(NamedTuple):
    """What was learned: precision, inverse (run, k, D, D), b, theta (run, k, D); D: most features.

    sums : (run, k, 7) rounds, logdet, drift, b of the noise, evidence, weight of stacking, rounds
    in which the member had the largest weight.
    """

    precision: Float
    inverse: Float
    b: Float3
    theta: Float3
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


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def _score(
    k: int,
    d: int,
    inverse: Float3,
    theta: Float2,
    now: Float3,
    open_arms: Array,
    reach: Float3,
    mean: Float2,
    square: Float2,
) -> bool:
    """Fill Sigma^{-1} x (member, arm, D), x'theta and x'Sigma^{-1} x (member, arm) of member k.

    Returns whether it can be scored.
    """
    usable = True
    for a in range(now.shape[1]):
        if d <= SMALL:
            for i in range(d):
                row = 0.0
                for j in range(d):
                    row += inverse[k, i, j] * now[k, a, j]
                reach[k, a, i] = row
        else:
            block = d - d % 4
            for i in range(d):
                reach[k, a, i] = 0.0
            for j in range(0, block, 4):
                x0, x1 = now[k, a, j], now[k, a, j + 1]
                x2, x3 = now[k, a, j + 2], now[k, a, j + 3]
                for i in range(d):
                    reach[k, a, i] += (
                        inverse[k, j, i] * x0
                        + inverse[k, j + 1, i] * x1
                        + inverse[k, j + 2, i] * x2
                        + inverse[k, j + 3, i] * x3
                    )
            for j in range(block, d):
                for i in range(d):
                    reach[k, a, i] += inverse[k, j, i] * now[k, a, j]
        m, s = 0.0, 0.0
        for j in range(d):
            m += theta[k, j] * now[k, a, j]
            s += reach[k, a, j] * now[k, a, j]
        mean[k, a], square[k, a] = m, max(s, 0.0)
        if open_arms[a] and not (math.isfinite(m) and math.isfinite(s)):
            usable = False
    return usable


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def vote_weights(sums: Float2, rule: int, temper: float, active: Array, out: Float1) -> int:
    """Fill the weights (k,) of members that have features this round; 0 for the others.

    Returns the member with the largest.
    """
    best, most, first = -np.inf, 0.0, 0
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
    leader = 0
    for k in range(sums.shape[0]):
        out[k] = out[k] / total if total > 0.0 else 0.0
        if out[k] > out[leader]:
            leader = k
    return leader


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def _absorb(
    k: int,
    d: int,
    precision: Float3,
    inverse: Float3,
    b: Float2,
    theta: Float2,
    sums: Float2,
    x: Float3,
    v: Float3,
    at: int,
    reward: float,
    mean: float,
    square: float,
) -> None:
    """Learn one reward of member k: x, v = Sigma^{-1} x (member, arm, D), square = x'v."""
    shrink = 1.0 / (1.0 + square)
    surprise = (reward - mean) * shrink
    for i in range(d):
        scaled, xi = v[k, at, i] * shrink, x[k, at, i]
        for j in range(d):
            inverse[k, i, j] -= scaled * v[k, at, j]
        for j in range(d):
            precision[k, i, j] += xi * x[k, at, j]
        theta[k, i] += v[k, at, i] * surprise
        b[k, i] += reward * xi
    sums[k, ROUNDS] += 1.0
    sums[k, LOGDET] += math.log1p(square)
    sums[k, SCALE] += 0.5 * (reward - mean) * surprise


@njit(cache=True, error_model="numpy", fastmath=False)
def _refresh(
    k: int,
    d: int,
    ridge: float,
    precision: Float3,
    inverse: Float3,
    b: Float2,
    theta: Float2,
    sums: Float2,
) -> None:
    """Compute inverse, theta and logdet of member k anew; a singular Sigma is left alone."""
    matrix = precision[k, :d, :d].copy()
    try:
        factor = np.linalg.cholesky(matrix)
        fresh = np.linalg.inv(matrix)
    except Exception:  # the only form of except that is compiled
        sums[k, DRIFT] = math.inf
        return
    logdet, gap, size = -d * math.log(ridge), 0.0, 0.0
    for i in range(d):
        logdet += 2.0 * math.log(factor[i, i])
        for j in range(d):
            gap = max(gap, abs(fresh[i, j] - inverse[k, i, j]))
            size = max(size, abs(fresh[i, j]))
    for i in range(d):
        total = 0.0
        for j in range(d):
            both = 0.5 * (fresh[i, j] + fresh[j, i])
            inverse[k, i, j] = both
            total += both * b[k, j]
        theta[k, i] = total
    sums[k, LOGDET] = logdet
    sums[k, DRIFT] = max(sums[k, DRIFT], gap / size)


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def _pair_gap(
    x: Float3,
    v: Float3,
    mean: Float2,
    square: Float2,
    a: int,
    root: float,
    d: int,
    open_arms: Array,
) -> float:
    """Return gap(a) = max_b [m_b - m_a + r ||x_b - x_a||_{Sigma^{-1}}] of the first member."""
    gap = 0.0
    for b in range(x.shape[1]):
        if b == a or not open_arms[b]:
            continue
        cross = 0.0
        for j in range(d):
            cross += v[0, a, j] * x[0, b, j]
        apart = math.sqrt(max(square[0, a] + square[0, b] - 2.0 * cross, 0.0))
        gap = max(gap, mean[0, b] - mean[0, a] + root * apart)
    return gap


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def _distance(precision: Float2, theta: Float1, truth: Float1) -> float:
    """Return ||theta* - theta_hat||_Sigma."""
    total = 0.0
    for i in range(truth.shape[0]):
        row = 0.0
        for j in range(truth.shape[0]):
            row += precision[i, j] * (truth[j] - theta[j])
        total += row * (truth[i] - theta[i])
    return math.sqrt(max(total, 0.0))


@njit(cache=True, error_model="numpy", fastmath=False)
def _drawn_scores(
    inverse: Float2, theta: Float1, scale: float, noise: Float1, now: Float2, index: Float1
) -> None:
    """Add x'(theta~ - theta_hat) to each arm's index, theta~ ~ N(theta_hat, scale^2 Sigma^-1)."""
    d = noise.shape[0]
    values, vectors = np.linalg.eigh(inverse[:d, :d].copy())
    for i in range(d):
        drawn = theta[i]
        for j in range(d):
            drawn += vectors[i, j] * scale * math.sqrt(max(values[j], 0.0)) * noise[j]
        for a in range(now.shape[0]):
            index[a] += (drawn - theta[i]) * now[a, i]


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def _gamma_ratio(a: float) -> float:
    """Return log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2; from a = 32 on by its series.

    The series is off by less than 17 / (14336 a^7) = 4e-14 there, the difference of two large
    logarithms by more; and it takes a tenth of the time.
    """
    if a < 32.0:
        return math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(a)
    small = 1.0 / (a * a)
    return (-0.125 + small * (1.0 / 192.0 - small / 640.0)) / a


@njit(cache=True, error_model="numpy", fastmath=False)
def _count_evidence(
    sums: Float2,
    rule: int,
    keep: float,
    mean: Float2,
    square: Float2,
    at: int,
    active: Array,
    weights: Float1,
    logs: Float1,
    reward: float,
) -> None:
    """Add a reward's log density to each member's evidence, and move the weights of stacking."""
    members, mixture, share = sums.shape[0], 0.0, 0.0
    last, gamma, rounds = -1.0, 0.0, 0.0
    for k in range(members):
        if active[k]:
            shape = SHAPE + 0.5 * sums[k, ROUNDS]
            if shape != last:  # members that never sat out share it
                last, gamma = shape, _gamma_ratio(shape)
            # Student's t with 2 shape degrees of freedom
            spread = 2.0 * sums[k, SCALE] * (1.0 + square[k, at])
            z = (reward - mean[k, at]) ** 2 / spread
            density = gamma - 0.5 * math.log(math.pi * spread / shape)
            logs[k] = density - (shape + 0.5) * math.log(1.0 + z)
            mixture += weights[k] * logs[k]
            share += weights[k]
        rounds = max(rounds, sums[k, ROUNDS])
    for k in range(members):
        gain = logs[k] if active[k] else (mixture / share if share > 0.0 else 0.0)
        sums[k, EVIDENCE] = keep * sums[k, EVIDENCE] + gain
    if rule != STACKED:
        return
    most, together, held = -np.inf, 0.0, 0.0
    for k in range(members):
        if active[k]:
            most = max(most, logs[k])
    for k in range(members):
        if active[k]:
            together += sums[k, STACK] * math.exp(logs[k] - most)
            held += sums[k, STACK]
    pace = (rounds + 2.0) ** -0.6
    for k in range(members):
        if active[k] and together > 0.0:
            better = held * math.exp(logs[k] - most) / together
            sums[k, STACK] *= 1.0 - pace + pace * better


@njit(cache=True, error_model="numpy", fastmath=False)
def _carry_on(
    state: MemberState,
    carry: CarrySetup,
    carried: CarryState,
    about: MemberRounds,
    mean: Float2,
    square: Float2,
    at: int,
    active: Array,
    scored: Float1,
    told: Float1,
    spread: Float1,
    slope: Float1,
    reward: float,
    r: int,
    t: int,
    action: int,
) -> None:
    """Let a reward tell of its unit's states, at the time it is a reward of."""
    unit = about.unit[min(r, about.unit.shape[0] - 1), min(t, about.unit.shape[1] - 1)]
    clock = about.clock[min(r, about.clock.shape[0] - 1), min(t, about.clock.shape[1] - 1)]
    predict(carry, carried, r, unit, clock, told, spread)
    coef = carry.coef[min(r, carry.coef.shape[0] - 1), min(t, carry.coef.shape[1] - 1), action]
    for p in range(carry.kind.shape[0]):
        begin, end = carry.begin[p], carry.begin[p + 1]
        if carry.kind[p] != MEMORY:
            push_past(told[begin:end], carry.coef.shape[2], action, reward)
            continue
        k, m = carry.member[p], end - begin
        if not active[k]:
            continue
        cov = spread[carry.squares[p] : carry.squares[p + 1]].reshape((m, m))
        memory_slope(carry, p, coef, state.theta[r, k], slope[begin:end])
        surprise = reward - mean[k, at]
        for i in range(begin, end):  # what was told since the decision, by rewards in between
            surprise -= slope[i] * (told[i] - scored[i])
        scale = state.sums[r, k, SCALE] / (SHAPE + 0.5 * state.sums[r, k, ROUNDS])
        doubt = square[k, at] + slope_doubt(carry, p, coef, state.inverse[r, k], cov)
        correct(told[begin:end], cov, slope[begin:end], surprise, carry.noise[p] + scale * doubt)
    carried.mean[r, unit] = told
    carried.cov[r, unit] = spread
    carried.clock[r, unit] = max(clock, carried.clock[r, unit])


@njit(cache=True, error_model="numpy", fastmath=False)
def play_members(
    first: int,
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

    x : (some runs, time, action, features) of all members side by side, of runs ``first`` and on;
    everything else is of all runs. reward : (run, time, action), NaN where it is lost. allowed :
    (run, time, action), 1 along run or time if shared, size 0: all. given : (run, time) proposals,
    for the advisor GIVEN. noise : (run, time, d) standard normal, for DRAWN. fixed_root :
    sqrt(gamma) instead of the ball's if it is >= 0. carry, carried : what members add to their
    features from earlier rewards of the unit, and its state.

    action is -1 where the round cannot be scored and -2 where no arm is allowed: such rounds teach
    nothing. A round needs the first member's features, unless a committee plays without a guard:
    then any member's. A member with features that are not finite sits the round out: it does not
    vote and does not learn, and its evidence moves with the committee's own.
    """
    # arrays out of their tuples, once: each look-up in the loop would count references
    dims, starts, alpha, ridge = setup.dims, setup.starts, setup.alpha, setup.ridge
    action_out, proposal_out, chosen_out = output.action, output.proposal, output.chosen
    root_out, cost_out, apart_out, weights_out = (
        output.root,
        output.cost,
        output.apart,
        output.weights,
    )
    numbers, lengths, open_w, top_w = rule.numbers, rule.weights, rule.spread, rule.top
    directions, norms, of, chi = rule.directions, rule.norms, rule.of, rule.chi
    coef_in, psi_in = rounds.coef, rounds.psi
    truth, late, errors = about.truth, about.late, directions.shape[0] > 0
    runs, horizon, arms, _ = x.shape
    members, states, most = ridge.shape[0], carry.keep.shape[0], state.theta.shape[2]
    now, reach = np.zeros((members, arms, most)), np.zeros((members, arms, most))
    mean, square = np.empty((members, arms)), np.empty((members, arms))
    active, open_arms = np.empty(members, np.bool_), np.ones(arms, np.bool_)
    index, weights, logs = np.empty(arms), np.empty(members), np.empty(members)
    told, spread, before = np.empty(states), np.empty(carry.start.shape[0]), np.empty(states)
    at_theta, per_root = np.empty(open_w.shape[0]), np.empty(open_w.shape[0])
    values, reaches = np.empty(directions.shape[0]), np.empty(directions.shape[0])
    bias_sums = np.empty(directions.shape[0])
    one_arm, slope = np.ones(1, np.bool_), np.empty(states)
    d0 = dims[0]
    low, high = w_span(open_w, directions)
    free = setup.slack <= 0.0 and setup.advisor == VOTE
    # rounds whose reward is still to come, when rewards are late
    slots = late + 1
    kept_x, kept_told = np.zeros((slots, members, 1, most)), np.empty((slots, states))
    kept_active = np.empty((slots, members), np.bool_)
    late_reach = np.zeros((members, 1, most))
    late_mean, late_square = np.empty((members, 1)), np.empty((members, 1))
    for r in range(first, first + runs):
        precision, inverse = state.precision[r], state.inverse[r]
        b, theta, sums = state.b[r], state.theta[r], state.sums[r]
        plain, outer = ball.plain[r], ball.outer[r]
        guarded, own = inverse[0], theta[0, :d0]
        for t in range(horizon + (slots if late > 0 else 0)):
            if late > 0 and t >= slots:
                due = t - slots
                a, slot = action_out[r, due], due % slots
                if a >= 0 and math.isfinite(reward[r, due, a]):
                    for k in range(members):
                        _score(
                            k,
                            dims[k],
                            inverse,
                            theta,
                            kept_x[slot],
                            one_arm,
                            late_reach,
                            late_mean,
                            late_square,
                        )
                        active[k] = kept_active[slot, k]
                    vote_weights(sums, setup.rule, setup.temper, active, weights)
                    if errors:
                        add_round(
                            of,
                            chi,
                            coef_in,
                            psi_in,
                            plain,
                            outer,
                            kept_x[slot],
                            0,
                            late_square[0, 0],
                            r,
                            due,
                            a,
                        )
                    if states > 0:
                        _carry_on(
                            state,
                            carry,
                            carried,
                            about,
                            late_mean,
                            late_square,
                            0,
                            active,
                            kept_told[slot],
                            told,
                            spread,
                            slope,
                            reward[r, due, a],
                            r,
                            due,
                            a,
                        )
                    if members > 1:
                        _count_evidence(
                            sums,
                            setup.rule,
                            setup.keep,
                            late_mean,
                            late_square,
                            0,
                            active,
                            weights,
                            logs,
                            reward[r, due, a],
                        )
                    for k in range(members):
                        if active[k]:
                            _absorb(
                                k,
                                dims[k],
                                precision,
                                inverse,
                                b,
                                theta,
                                sums,
                                kept_x[slot],
                                late_reach,
                                0,
                                reward[r, due, a],
                                late_mean[k, 0],
                                late_square[k, 0],
                            )
                            if int(sums[k, ROUNDS]) % REFRESH == 0:
                                _refresh(k, dims[k], ridge[k], precision, inverse, b, theta, sums)
            if t >= horizon:
                continue
            action_out[r, t] = -2
            proposal_out[r, t] = -1
            chosen_out[r, t] = ADVISED
            cost_out[r, t] = 0.0
            if allowed.shape[2] > 0:
                some = False
                for a in range(arms):
                    open_arms[a] = allowed[
                        min(r, allowed.shape[0] - 1), min(t, allowed.shape[1] - 1), a
                    ]
                    some = some or open_arms[a]
                if not some:
                    continue
            # before the features: the processor scores them while it waits for the radius
            root = fixed_root
            if fixed_root < 0.0:
                joint = -1.0
                if chi.shape[0] > 0:
                    joint = ellipsoid_sums(directions, of, chi, outer, guarded, own, bias_sums)
                root = ball_root(
                    numbers,
                    lengths,
                    open_w,
                    top_w,
                    directions,
                    norms,
                    low,
                    high,
                    plain,
                    ridge[0],
                    int(sums[0, ROUNDS]),
                    sums[0, LOGDET],
                    guarded,
                    own,
                    at_theta,
                    per_root,
                    values,
                    reaches,
                    bias_sums,
                    joint,
                )
            root_out[r, t] = root
            for k in range(members):
                begin = np.uint64(starts[k])  # never counted from the end: a plain copy
                for a in range(arms):
                    for j in range(dims[k]):
                        now[k, a, j] = x[r - first, t, a, begin + np.uint64(j)]
            if states > 0:
                unit = about.unit[min(r, about.unit.shape[0] - 1), min(t, about.unit.shape[1] - 1)]
                clock = about.clock[
                    min(r, about.clock.shape[0] - 1), min(t, about.clock.shape[1] - 1)
                ]
                predict(carry, carried, r, unit, clock, told, spread)
                coef = carry.coef[min(r, carry.coef.shape[0] - 1), min(t, carry.coef.shape[1] - 1)]
                for e in range(carry.columns.shape[0]):
                    for a in range(arms):
                        now[carry.owner[e], a, carry.columns[e]] += coef[a, e] * told[carry.rows[e]]
            for k in range(members):
                active[k] = _score(k, dims[k], inverse, theta, now, open_arms, reach, mean, square)
            if truth.shape[1] == d0:
                apart_out[r, t] = _distance(
                    precision[0],
                    theta[0],
                    truth[min(r, truth.shape[0] - 1)],
                )
            leader = 0
            if members > 1:
                leader = vote_weights(sums, setup.rule, setup.temper, active, weights)
            else:
                weights[0] = 1.0 if active[0] else 0.0
            for k in range(members):
                weights_out[r, t, k] = weights[k]
            if not (active[0] or (free and weights[leader] > 0.0)):
                action_out[r, t] = -1
                continue
            # the arm of the ball, and the advisor's
            best, top = -1, -np.inf
            if active[0]:
                for a in range(arms):
                    score = mean[0, a] + root * math.sqrt(square[0, a])
                    if open_arms[a] and score > top:
                        best, top = a, score
            if best < 0 and not free:
                action_out[r, t] = -1
                continue
            proposal = best
            if setup.advisor == GIVEN:
                proposal = given[r, t]
            elif setup.advisor != UCB:
                for a in range(arms):
                    index[a] = 0.0
                    if setup.advisor == VOTE:
                        for k in range(members):
                            if weights[k] > 0.0:
                                bonus = alpha[k] * math.sqrt(square[k, a])
                                index[a] += weights[k] * (mean[k, a] + bonus)
                    elif setup.advisor == INDEX:
                        index[a] = mean[0, a] + alpha[0] * math.sqrt(square[0, a])
                    else:
                        index[a] = mean[0, a]
                if setup.advisor == DRAWN:
                    _drawn_scores(
                        guarded,
                        theta[0],
                        alpha[0],
                        noise[r, t],
                        now[0],
                        index,
                    )
                proposal, top = -1, -np.inf
                for a in range(arms):
                    if open_arms[a] and index[a] > top:
                        proposal, top = a, index[a]
            proposal_out[r, t] = proposal
            action = best
            if proposal < 0 or proposal >= arms or not open_arms[proposal]:
                chosen_out[r, t] = UNUSABLE
            elif setup.slack <= 0.0:
                action = proposal
            else:
                gap = _pair_gap(now, reach, mean, square, proposal, root, d0, open_arms)
                if gap <= 2.0 * setup.slack * root * math.sqrt(square[0, proposal]):
                    action = proposal
                elif proposal != best:
                    chosen_out[r, t] = OVERRULED
            action_out[r, t] = action
            if action < 0:
                continue
            sums[leader, LED] += 1.0
            c = setup.slack if chosen_out[r, t] == ADVISED else 1.0
            cost_out[r, t] = 2.0 * max(c, 1.0) * root * math.sqrt(square[0, action])
            if late > 0:
                slot = t % slots
                for k in range(members):
                    kept_active[slot, k] = active[k]
                    for j in range(dims[k]):
                        kept_x[slot, k, 0, j] = now[k, action, j]
                for i in range(states):
                    kept_told[slot, i] = told[i]
            elif math.isfinite(reward[r, t, action]):
                for i in range(states):
                    before[i] = told[i]
                if errors:
                    add_round(
                        of,
                        chi,
                        coef_in,
                        psi_in,
                        plain,
                        outer,
                        now,
                        action,
                        square[0, action],
                        r,
                        t,
                        action,
                    )
                if states > 0:
                    _carry_on(
                        state,
                        carry,
                        carried,
                        about,
                        mean,
                        square,
                        action,
                        active,
                        before,
                        told,
                        spread,
                        slope,
                        reward[r, t, action],
                        r,
                        t,
                        action,
                    )
                if members > 1:
                    _count_evidence(
                        sums,
                        setup.rule,
                        setup.keep,
                        mean,
                        square,
                        action,
                        active,
                        weights,
                        logs,
                        reward[r, t, action],
                    )
                for k in range(members):
                    if active[k]:
                        _absorb(
                            k,
                            dims[k],
                            precision,
                            inverse,
                            b,
                            theta,
                            sums,
                            now,
                            reach,
                            action,
                            reward[r, t, action],
                            mean[k, action],
                            square[k, action],
                        )
                        if int(sums[k, ROUNDS]) % REFRESH == 0:
                            _refresh(k, dims[k], ridge[k], precision, inverse, b, theta, sums)


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
    return MemberSetup(
        starts=np.concatenate([[0], np.cumsum(dims)]).astype(np.int64),
        dims=np.array(dims, np.int64),
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
    members, most = len(setup.dims), int(setup.dims.max())
    eye = np.zeros((members, most, most))
    for k, d in enumerate(setup.dims):
        eye[k, :d, :d] = np.eye(d)
    ridge = setup.ridge[:, None, None]
    sums = np.zeros((runs, members, 7))
    sums[:, :, SCALE] = SHAPE * setup.guess**2
    sums[:, :, STACK] = 1.0 / members
    return MemberState(
        np.tile(eye * ridge, (runs, 1, 1, 1)),
        np.tile(eye / ridge, (runs, 1, 1, 1)),
        np.zeros((runs, members, most)),
        np.zeros((runs, members, most)),
        sums,
    )
