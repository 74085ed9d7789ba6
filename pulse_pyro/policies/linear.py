"""The linear UCB core: immutable state, decide, update. Whole horizons: see ``horizon``.

Ridge regression of rewards on the scored features:
    Sigma_t = lambda I + sum phihat phihat',   theta_hat_t = Sigma_t^{-1} sum phihat R,
    A_t = argmax_a phihat_{t,a}' theta_hat_{t-1} + sqrt(gamma_{t-1}) ||phihat_{t,a}||_{Sigma^{-1}}.
Every array may carry one leading batch axis (runs); there is one code path.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Bool, Float, Float2, Int, positive, whole
from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro.policies import kernels
from pulse_pyro.policies.kernels import NOTHING, Extra
from pulse_pyro.radius import SAMPLED, Radius, constant

NO_ERROR: Float = np.zeros((0, 0, 0))
NO_MASK: Bool = np.zeros((0, 0, 0), dtype=np.bool_)
TOO_LARGE = 1e6
GREEDY = constant(0.0)  # an update has one arm: any radius will do


class State(NamedTuple):
    """What the policy has learned. Shapes without the optional leading batch axis.

    precision, inverse : (d, d) Sigma_t and its inverse, kept by rank-one updates.
    b, theta : (d,) sum of reward times features, and theta_hat_t.
    sums : (5,) rounds, log det Sigma_t - d log lambda, sum e^2, sum e u / sqrt(1 + u^2), and the
        largest relative drift of the inverse found at a re-factorisation (every 1,024 rounds). The
        sums of e are infinite once a rule with a budget has learned from a round without e.
    ridge : lambda.
    """

    precision: Float
    inverse: Float
    b: Float
    theta: Float
    sums: Float
    ridge: float

    def copy(self) -> State:
        """Return a state that shares no memory with this one."""
        arrays = (self.precision, self.inverse, self.b, self.theta, self.sums)
        return State._make((*(np.array(a) for a in arrays), self.ridge))

    def one(self, run: int) -> State:
        """Return a copy of a single run of a batched state."""
        arrays = (self.precision, self.inverse, self.b, self.theta, self.sums)
        return State._make((*(np.array(a[run]) for a in arrays), self.ridge))

    @property
    def rounds(self) -> Float:
        """Rewards learned from."""
        return self.sums[..., 0]

    @property
    def logdet(self) -> Float:
        """Log det Sigma_t - d log lambda."""
        return self.sums[..., 1]

    @property
    def drift(self) -> Float:
        """Largest relative drift of the inverse found so far."""
        return self.sums[..., 4]


ARRAYS = ("action", "x", "mean", "width", "gamma", "error")  # of a decision, one a run


class Decision(NamedTuple):
    """A scored choice; learning uses exactly these features.

    action : chosen arm. x : (d,) its scored features. mean, width : (K,) theta_hat' x and
    ||x||_{Sigma^{-1}} of each arm, NaN where not allowed. gamma : gamma_{t-1}. error : bound e_t
    on |theta*'(phibar - phihat)| for the chosen arm; infinite if a rule with a budget was told
    none. id : issued by a policy, -1 outside one.
    weight : of a robust rule: the round will count min(1, weight / u).
    by, why : who chose, "radius", or behind a guard "advisor" or "guard", and why, in a clause.
    cost : 2 c r w, what the round can cost at most on the guard's ball; NaN without one, and
    where units have been decided about of which its calibration does not speak.

    By "radius" the arm with the largest mean + sqrt(gamma) width was chosen, unless the rule draws
    theta.
    """

    action: Int | int
    x: Float
    mean: Float
    width: Float
    gamma: Float | float
    error: Float | float
    id: int = -1
    weight: float = math.inf
    by: str = "radius"
    why: str = ""
    cost: float = math.nan


def init(dim: int, ridge: float, batch: tuple[int, ...] = ()) -> State:
    """Return the state before any reward: Sigma_0 = ridge * I; batch is () or (runs,)."""
    whole(dim, "init: dim", 1)
    ridge = positive(ridge, "ridge")
    if len(batch) > 1:
        raise SettingError(f"init: batch must be () or (runs,), but got {batch}.")
    eye = np.tile(np.eye(dim), (*batch, 1, 1))
    zero = np.zeros((*batch, dim))
    return State(eye * ridge, eye / ridge, zero, zero.copy(), np.zeros((*batch, 5)), float(ridge))


def decide(
    state: State,
    x: Float,
    radius: Radius,
    *,
    error: ArrayLike | None = None,
    allowed: Bool | None = None,
) -> Decision:
    """Choose an arm.

    Parameters
    ----------
    state : from :func:`init` or :func:`update`.
    x : (K, d) scored features of each arm, or (runs, K, d) for a batched state.
    radius : rule for sqrt(gamma).
    error : e_{t,a}, scalar or (K,) or (runs, K); only the chosen arm's is carried on. By default
        0, or not known where the rule has a budget for it (``robust``).
    allowed : (K,) or (runs, K) arms that may be played; all by default.

    Raises FeatureError if an allowed arm's features are not finite: nothing is changed. Rules that
    need more than this state (posterior sampling) are for play_horizon and the streaming policies.
    """
    if radius.kind == SAMPLED:
        raise SettingError(f"decide: {radius!r} needs more than a State; use play_horizon.")
    x = np.ascontiguousarray(x, dtype=np.float64)
    single = state.b.ndim == 1
    if x.ndim != (2 if single else 3) or x.shape[-1] != state.b.shape[-1]:
        raise FeatureError(
            f"decide: features must be ({'' if single else 'runs, '}arms, {state.b.shape[-1]}), "
            f"but their shape is {x.shape}."
        )
    if not single and len(x) != len(state.b):
        raise FeatureError(
            f"decide: features were given for {len(x)} runs, the state has {len(state.b)}."
        )
    xs = x[None, None] if single else x[:, None]
    lead, _, arms, _ = xs.shape
    mask = NO_MASK if allowed is None else _mask(allowed, lead, arms)
    told = NO_ERROR if error is None else np.array(_errors(error, lead, arms))[:, None]
    unknown = np.full((lead, 1, arms), np.nan)
    batched = _batched(state)
    action, root = run_kernel(batched, xs, unknown, told, mask, radius)
    action, root = action[:, 0], root[:, 0]
    if (action < 0).any():
        raise _refusal(xs[:, 0], mask, action)
    chosen = xs[np.arange(lead), 0, action]
    mean, width = np.empty((lead, arms)), np.empty((lead, arms))
    kernels.scores(xs, batched.inverse, batched.theta, mean, width)
    if mask.size:
        mean[~mask[:, 0]] = width[~mask[:, 0]] = np.nan
    e = told[np.arange(lead), 0, action] if told.size else np.full(lead, radius.default_error)
    out = (action, chosen, mean, width, root**2, e)
    found = Decision(*out, weight=radius.weight)
    if single:
        return found._replace(**{name: getattr(found, name)[0] for name in ARRAYS})
    return found


def update(
    state: State, decision: Decision, reward: ArrayLike, error: ArrayLike | None = None
) -> State:
    """Return the state after a reward; scalar, or (runs,) for a batched state.

    ``error`` replaces the bound carried by the decision (e.g. 0 when W was revealed later).
    """
    lead, dim = _lead(state), state.b.shape[-1]
    rewards = _column(reward, lead)
    if rewards is None or not np.isfinite(rewards).all():
        raise RewardError(
            f"update: the reward must be finite, one number or one per run ({lead}), but got "
            f"{reward!r}."
        )
    errors = _column(decision.error if error is None else error, lead)
    unknown = error is None and decision.weight < math.inf  # a budget stands for it
    if errors is None or not (errors >= 0).all() or (np.isinf(errors).any() and not unknown):
        raise SettingError(f"update: the error bound must be finite and >= 0, not {error!r}.")
    x = np.ascontiguousarray(decision.x, dtype=np.float64)
    if x.shape != state.b.shape:
        raise FeatureError(
            f"update: the decision's features are {x.shape}, but the state is {state.b.shape}; "
            "was it made with another state?"
        )
    check_size(x, state.ridge, "update")
    x = x.reshape(lead, 1, 1, dim)
    new = state.copy()
    run_kernel(_batched(new), x, rewards, errors, NO_MASK, replace(GREEDY, weight=decision.weight))
    return new


def check_size(x: Float, ridge: float, where: str) -> None:
    """Refuse features so large against the ridge that double precision cannot hold Sigma."""
    largest, scale = float(np.abs(x).max(initial=0.0)), float(np.sqrt(ridge))
    if not largest <= TOO_LARGE * scale:
        raise FeatureError(
            f"{where}: a feature is {largest:.3g} while sqrt(ridge) is {scale:.3g}; "
            "beyond a ratio of 1e6 rounding drowns what is learned: rescale the features."
        )


def run_kernel(
    state: State,
    x: Float,
    reward: Float,
    error: Float,
    allowed: Bool,
    radius: Radius,
    extra: Extra = NOTHING,
) -> tuple[Int, Float2]:
    """Run the compiled loop on a batched state, changing its arrays in place."""
    more = None if radius.plain and extra is NOTHING else extra
    action, root = np.empty(x.shape[:2], np.int64), np.empty(x.shape[:2])
    kernels.play(
        x,
        reward,
        error,
        allowed,
        more,
        radius.kind,
        radius.array,
        state.ridge,
        *state[:5],
        action,
        root,
    )
    return action, root


def _lead(state: State) -> int:
    return 1 if state.b.ndim == 1 else len(state.b)


def _batched(state: State) -> State:
    """Give a single state a batch axis of length 1, sharing its memory."""
    if state.b.ndim == 2:
        return state
    arrays = (state.precision, state.inverse, state.b, state.theta, state.sums)
    return State._make((*(a[None] for a in arrays), state.ridge))


def _mask(allowed: Bool, lead: int, arms: int) -> Bool:
    mask = np.asarray(allowed)
    if mask.shape not in ((arms,), (lead, arms)) or mask.dtype != np.bool_:
        raise SettingError(
            f"decide: allowed must have {arms} entries True or False, one per arm, but got "
            f"{allowed!r}."
        )
    return np.array(np.broadcast_to(mask, (lead, arms)))[:, None]


def _column(value: ArrayLike, lead: int) -> Float | None:
    """Return (lead, 1, 1) from a number or one number per run; None if it is neither."""
    values = np.asarray(value, dtype=np.float64)
    if values.shape not in ((), (lead,)):
        return None
    return np.array(np.broadcast_to(values, (lead,)))[:, None, None]


def _errors(error: ArrayLike, lead: int, arms: int) -> Float:
    values = np.asarray(error, dtype=np.float64)
    if values.shape not in ((), (arms,), (lead, arms)):
        raise SettingError(f"decide: error must be a number or one per arm, it is {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise SettingError(f"decide: the error bound must be finite and >= 0, but got {error!r}.")
    return np.broadcast_to(values, (lead, arms))


def _refusal(x: Float, mask: Bool, action: Int) -> FeatureError:
    run = int(np.flatnonzero(action < 0)[0])
    if action[run] == -2:
        return FeatureError("decide: no arm is allowed this round; allow at least one.")
    open_arms = mask[run, 0][:, None] if mask.size else True
    bad = np.argwhere(~np.isfinite(x[run]) & open_arms)
    where = f"arm {bad[0][0]}, feature {bad[0][1]}" if len(bad) else "the scores overflow"
    return FeatureError(
        f"decide: this round is refused because a feature is not finite ({where}); nothing was "
        "learned, and the next round can be played as usual."
    )
