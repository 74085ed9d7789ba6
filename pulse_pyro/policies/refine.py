"""Compiled refinements of the corrected radius: what an arm's own direction leaves of each part.

For an arm with features x, writing v = Sigma^{-1} x,

    ridge    lambda S ||v||_2                     <= sqrt(lambda) S ||x||_{Sigma^{-1}}
    noise    sigma sqrt(logdet + 2 log(1/delta)) ||x||_{Sigma^{-1}}
    bias     sum_tau e_tau |v' x_tau|             <= B_t ||x||_{Sigma^{-1}}
    itself   e_{t,a}                                 ("optimistic imputation")

and, where Phi = c_a(s) + M_a(s) w and |mu - mu^|_i <= eps_{t,i}, e_{t,a} = sum_i kappa_i eps_i with
    kappa_i = min{ S ||M_{a,i}||, |theta^' M_{a,i}| + sqrt(gamma) ||M_{a,i}||_{Sigma^{-1}} },
and never more than before if M_a is the same in all contexts: if W hardly matters for the reward,
its errors hardly widen the ball. Valid by induction while theta* is in every ball so far.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pulse_pyro.arrays import Array, Float, Float1, Float2
from pulse_pyro.radius import BIAS, OPTIMISTIC, RIDGE

FAST = {"reassoc", "contract"}  # reorder sums, fuse multiply-add; NaN and infinity keep meaning


class Extra(NamedTuple):
    """What only some policies bring along; size 0 where it is not used.

    taught : (run, time, action, d) features learned from, where they differ from those scored.
    noise : (run, time, d) standard normal, for posterior sampling.
    eps : (run, time, q) bounds on the error of E[W]. slopes : (run or 1, time or 1, action, q, d)
    M_a. kappa : (run, action, q) least sensitivity so far, kept up to date.
    past, past_error : (run, capacity, d), (run, capacity) what was learned from, in order.
    spent : (run, time) e_t of the arm played, filled in.
    """

    taught: Float
    noise: Float
    eps: Float
    slopes: Float
    kappa: Float
    past: Float
    past_error: Float2
    spent: Float2


NOTHING = Extra(
    np.zeros((0, 0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0, 0, 0, 0)),
    np.zeros((0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0)), np.zeros((0, 0)),
)  # fmt: skip


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _length(inverse: Float2, v: Float1) -> float:
    square = 0.0
    for i in range(v.shape[0]):
        row = 0.0
        for j in range(v.shape[0]):
            row += inverse[i, j] * v[j]
        square += row * v[i]
    return math.sqrt(max(square, 0.0))


@njit(cache=True, error_model="numpy")
def arm_errors(
    inverse: Float2, theta: Float1, root: float, size: float, error: Float, extra: Extra, r: int,
    t: int, found: Float1,
) -> None:  # fmt: skip
    """Fill e_{t,a}, (action,): the error given, or the sensitive one if that is smaller."""
    for a in range(found.shape[0]):
        found[a] = 0.0
        if error.shape[2] > 0:
            found[a] = error[min(r, error.shape[0] - 1), min(t, error.shape[1] - 1), a]
        if extra.slopes.shape[3] == 0:
            continue
        total = 0.0
        fixed = extra.slopes.shape[0] == 1 and extra.slopes.shape[1] == 1
        at = extra.slopes[min(r, extra.slopes.shape[0] - 1), min(t, extra.slopes.shape[1] - 1), a]
        for i in range(extra.slopes.shape[3]):
            dot = 0.0
            for j in range(theta.shape[0]):
                dot += theta[j] * at[i, j]
            kappa = min(
                size * math.sqrt(np.sum(at[i] * at[i])), abs(dot) + root * _length(inverse, at[i])
            )
            if fixed:
                kappa = min(kappa, extra.kappa[r, a, i])
                extra.kappa[r, a, i] = kappa
            total += kappa * extra.eps[r, t, i]
        found[a] = min(found[a], total) if error.shape[2] > 0 else total


@njit(cache=True, error_model="numpy", fastmath=FAST)
def choose_refined(
    inverse: Float2, theta: Float1, x: Float, r: int, t: int, allowed: Array, p: Float1,
    root: float, bias: float, ridge: float, e: Float1, extra: Extra, learned: int,
) -> int:  # fmt: skip
    """Best allowed arm by the refined index, lowest index on ties; -1, -2 as in the plain rule.

    root : sqrt(gamma). bias : its imputation part. e : (action,).
    """
    d = theta.shape[0]
    v = np.empty(d)
    best, top, total = -2, -np.inf, 0.0
    for a in range(x.shape[2]):
        if (
            allowed.shape[2] > 0
            and not allowed[min(r, allowed.shape[0] - 1), min(t, allowed.shape[1] - 1), a]
        ):
            continue
        mean, square, long = 0.0, 0.0, 0.0
        for i in range(d):
            row = 0.0
            for j in range(d):
                row += inverse[i, j] * x[r, t, a, j]
            v[i] = row
            square += row * x[r, t, a, i]
            long += row * row
            mean += theta[i] * x[r, t, a, i]
        width = math.sqrt(max(square, 0.0))
        bonus = root * width
        if p[RIDGE] > 0:
            bonus -= math.sqrt(ridge) * p[0] * width
            bonus += ridge * p[0] * math.sqrt(long)
        if p[BIAS] > 0:
            own = 0.0
            for k in range(learned):
                dot = 0.0
                for i in range(d):
                    dot += v[i] * extra.past[r, k, i]
                if dot != 0.0:  # the error may be infinite
                    own += extra.past_error[r, k] * abs(dot)
            bonus += min(own, bias * width) - bias * width
        if p[OPTIMISTIC] > 0 and e[a] < math.inf:  # infinite: not known, a budget stands for it
            bonus += e[a]
        score = mean + bonus
        total += score
        if score > top:
            best, top = a, score
    return best if math.isfinite(total) else -1
