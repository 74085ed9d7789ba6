"""Whole horizons of many runs at once; contexts must not depend on actions."""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.policies import kernels
from pulse_pyro.policies.kernels import NOTHING, Extra
from pulse_pyro.policies.linear import NO_ERROR, NO_MASK, State, check_size, init, run_kernel
from pulse_pyro.radius import GIVEN, SAMPLED, Radius, check_dim


def play_horizon(
    x: Float,
    reward: Float,
    radius: Radius,
    *,
    ridge: float = 1.0,
    error: Float | None = None,
    allowed: Bool | None = None,
    taught: Float | None = None,
) -> tuple[Int, Float2, State]:
    """Play all runs over the whole horizon.

    Parameters
    ----------
    x : (run, time, action, d) scored features.
    reward : (run, time, action) the reward each arm would pay; NaN = the reward is lost.
    radius, ridge : as in :func:`decide` and :func:`init`.
    error : e_{t,a}, (run, time, action) or length 1 along run or time. By default 0; a rule with a
        budget (``robust``) takes it for not known, and infinity for a round of which it is not.
    allowed : (run, time, action), or length 1 along run or time.
    taught : (run, time, action, d) features learned from if not those scored, e.g. of the full
        context where W is revealed after the action; NaN rows fall back to x. Their error is 0.

    Returns
    -------
    action (run, time), -1 where a round's features were not finite and -2 where no arm was
    allowed (such rounds teach nothing); gamma (run, time); the final State.
    """
    x, reward = _rounds(x, reward)
    if np.isinf(reward).any():
        raise RewardError("play_horizon: a reward is infinite; use NaN for a reward that is lost.")
    runs, horizon, arms, dim = x.shape
    check_dim(radius, dim)
    bound = NO_ERROR if error is None else np.array(error, dtype=np.float64, order="C")
    mask = NO_MASK if allowed is None else np.ascontiguousarray(allowed, dtype=np.bool_)
    for name, array in (("error", bound), ("allowed", mask)):
        fits = array.ndim == 3 and array.shape[2] == arms
        shared = fits and array.shape[0] in (1, runs) and array.shape[1] in (1, horizon)
        if array.size and not shared:
            raise SettingError(
                f"play_horizon: {name} must be (run, time, action) = ({runs}, {horizon}, {arms}), "
                f"or 1 along run or time, but its shape is {array.shape}."
            )
    if not (bound >= 0).all() or (np.isinf(bound).any() and radius.default_error == 0.0):
        raise SettingError("play_horizon: error must be finite and >= 0.")
    extra = NOTHING
    if taught is not None:
        extra, bound = _taught(extra, x, taught, bound, radius)
    if radius.kind == SAMPLED:
        noise = stream(radius.seed, "thompson").standard_normal((runs, horizon, dim))
        extra = extra._replace(noise=noise)
    state = init(dim, ridge, (runs,))
    action, root = run_kernel(
        state=state, x=x, reward=reward, error=bound, allowed=mask, radius=radius, extra=extra
    )
    typical = np.sqrt(
        np.diagonal(state.precision, axis1=1, axis2=2) / np.maximum(state.rounds, 1)[:, None]
    )
    check_size(typical, ridge, "play_horizon")
    return action, root**2, state


def play_on(state: State, x: Float4, reward: Float3, roots: Float2) -> Int:
    """Play on from a batched state, in place, with sqrt(gamma) given beforehand.

    x : (run, time, action, d). reward : (run, time, action). roots : (run, time).
    Returns the actions, (run, time), as :func:`play_horizon` does.
    """
    x, reward = _rounds(x, reward)
    action, root = np.empty(x.shape[:2], np.int64), np.array(roots, np.float64, order="C")
    if root.shape != action.shape or not (root >= 0).all():
        raise SettingError(
            f"play_on: roots must be numbers >= 0, (run, time) = {action.shape}, but their shape "
            f"is {root.shape}."
        )
    kernels.play(
        x,
        reward,
        NO_ERROR,
        NO_MASK,
        None,
        GIVEN,
        Radius("given", GIVEN, ()).array,
        state.ridge,
        *state[:5],
        action,
        root,
    )
    return action


def _rounds(x: Float, reward: Float) -> tuple[Float4, Float3]:
    x = np.ascontiguousarray(x, dtype=np.float64)
    reward = np.ascontiguousarray(reward, dtype=np.float64)
    if x.ndim != 4 or reward.shape != x.shape[:3]:
        raise FeatureError(
            "play_horizon: x must be (run, time, action, d) and reward (run, time, action), but "
            "got "
            f"{x.shape} and {reward.shape}."
        )
    return x, reward


def _taught(
    extra: Extra, x: Float4, taught: Float, bound: Float, radius: Radius
) -> tuple[Extra, Float]:
    known = np.array(taught, np.float64, order="C")
    if known.shape != x.shape:
        raise FeatureError(
            f"play_horizon: taught must have the shape of x, {x.shape}, but it is {known.shape}."
        )
    revealed = np.isfinite(known).all(-1)
    known[~revealed] = x[~revealed]
    if bound.size or radius.default_error > 0.0:
        rest = bound if bound.size else radius.default_error
        bound = np.ascontiguousarray(np.where(revealed, 0.0, rest))
    return extra._replace(taught=known), bound
