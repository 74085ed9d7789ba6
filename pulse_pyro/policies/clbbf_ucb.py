"""CLBBF: linear UCB on features whose missing entries are imputed from their running moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from pulse_pyro._core.arrays import (
    Array,
    Bool,
    Float,
    Float1,
    Float2,
    Float3,
    Float4,
    Int,
    positive,
)
from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Summary
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Stack
from pulse_pyro.features import Features
from pulse_pyro.policies import moments
from pulse_pyro.policies.horizon import play_on
from pulse_pyro.policies.linear import NO_ERROR, NO_MASK, State, check_size, init, run_kernel
from pulse_pyro.policies.moments import (
    MomentEstimate,
    Moments,
    Rates,
    estimate,
    impute,
    running,
    tally,
)
from pulse_pyro.radius import CONSTANT, CORRECTED, PAPER, SUM, Radius

# What CLBBF sees of a context: vectors and masks in which W, and all it enters, is hidden.


class Context(NamedTuple):
    """Contexts all arms share: y, mask (run, time, c), columns (S_t, more of the past, W_t)."""

    y: Float3
    mask: Bool
    s_dim: int
    w_dim: int


def arm_vectors(features: Features, s: Float3, w_dim: int) -> tuple[Float4, Bool]:
    """Return x, mask (run, time, action, d) for CLBBF where W is never seen online.

    s : (run, time, s_dim); NaN = not seen. A coordinate of Phi that involves w is missing for
    every arm, also where an arm happens to multiply it by 0; a column of ones is dropped.
    """
    phi, hidden, ones = observed_part(features, s, w_dim)
    x, mask = phi[..., ~ones], ~hidden[~ones] & np.isfinite(phi[..., ~ones])
    return np.where(mask, x, np.nan), mask


def observed_part(features: Features, s: Float3, w_dim: int) -> tuple[Float4, Bool, Bool]:
    """Phi at w = 0 (run, time, action, d), which coordinates involve w, and which are always 1."""
    rows = s.reshape(-1, s.shape[-1])
    blank = np.zeros((len(rows), w_dim))
    hidden = features.involves_w(rows, blank)
    with np.errstate(all="ignore"):  # columns that involve w may not exist at 0: they are hidden
        phi = np.stack([features.unchecked(rows, blank, a) for a in range(features.actions)], 1)
    known = np.isfinite(rows).all(-1)
    if not np.isfinite(phi[known][..., ~hidden]).all():
        raise FeatureError("arm_vectors: a feature without w is not finite at a finite s.")
    ones = ~hidden & (phi[known] == 1.0).all((0, 1))
    if ones.all():
        raise FeatureError("arm_vectors: features has no column besides the constant.")
    return phi.reshape(*s.shape[:2], features.actions, -1), hidden, ones


def shared_context(s: Float3, w_dim: int, rounds: int, summary: Summary | None = None) -> Context:
    """Return the contexts of the last ``rounds`` rows of s (run, lead + time, s_dim), W hidden.

    summary : more of the past of S; its columns that repeat S_t are left out. NaN = not seen.
    """
    s = np.asarray(s, dtype=np.float64)
    if s.ndim != 3 or not 1 <= rounds <= s.shape[1]:
        raise SettingError(
            f"shared_context: s must be (run, lead + time, s_dim) with at least the {rounds} "
            f"rounds that are played, but its shape is {s.shape}."
        )
    past = s if summary is None else Stack(Identity(), summary)(s)
    seen = past[:, s.shape[1] - rounds :, _fresh(s.shape[-1], summary)]
    y = np.concatenate([seen, np.full((*seen.shape[:2], w_dim), np.nan)], axis=-1)
    return Context(y, ~np.isnan(y), s.shape[-1], w_dim)


def archive_moments(history: History, summary: Summary | None = None) -> Moments:
    """Return the sums over the complete rows of an archive, leading axis (1,), for ``running``."""
    rows = history.rows(Identity() if summary is None else Stack(Identity(), summary))
    columns = _fresh(history.s.shape[-1], summary)
    y = np.concatenate([rows.x[:, columns], rows.w], axis=-1)[None]
    return tally(y, np.ones(y.shape, dtype=np.bool_))


def _fresh(s_dim: int, summary: Summary | None) -> Int:
    """Columns of (S_t, summary) without those that repeat S_t; told from a made-up series."""
    if summary is None:
        return np.arange(s_dim)
    made_up = stream(0, "context").standard_normal((summary.memory + 3, s_dim))
    values = Stack(Identity(), summary)(made_up)[-3:]
    repeats = (values[:, :, None] == made_up[-3:, None, :]).all(0).any(-1)
    return np.flatnonzero(~repeats | (np.arange(len(repeats)) < s_dim))


# CLBBF: linear UCB on features whose missing entries are imputed from their running moments.
#
# Kim, Yun, Jeong, Nam, Shin and Combes (AISTATS 2023), constants as in their code. In every round
# 0 .. T-1 the mean and covariance of the vectors seen so far (see ``moments``) fill the gaps; the
# linear core plays on (1, xhat) in R^{d+1} with ridge (d+1) log(KT) and
#
#     sqrt(gamma_t) = sqrt((d+1) log((t+2) T)) + xsum e_t + sqrt(d log(KT)),
#     e_t = d p^{-3/2} sqrt(log(T) log(kT) / (N_t + k)),   k vectors a round, N_t of them so far.
#
# When t is a power of two all chosen past vectors are filled in anew with today's moments, V and b
# rebuilt from them, and xsum = sum ||xhat||_{V^{-1}} frozen until the next one. Nothing but V, b
# depends on the actions, so whole horizons are imputed at once.
#
# Not covered: the guarantee asks for Gaussian vectors, drawn afresh for every arm and round, with
# entries missing at random at one positive rate. A coordinate never observed online counts as 0:
# there CLBBF is OFUL on what is observed, whatever the hidden values are.


Again: TypeAlias = Callable[[int, Int], Float3]  # t, past actions -> past features filled in anew

BLOCK = 2**23  # covariance entries in flight: runs are independent, so memory need not grow


@dataclass(frozen=True)
class Exploration:
    """How widely to explore.

    radius : a number multiplies the published sqrt(gamma_t); a Radius (constant, paper or
        corrected) replaces it, and then nothing allows for errors of the imputation.
    ridge : lambda; None for (d+1) log(KT). seed : of the arm of round 0, and of Monte Carlo.
    """

    radius: float | Radius = 1.0
    ridge: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive(self.ridge, "Exploration: ridge")
        if not isinstance(self.radius, Radius):
            positive(self.radius, "Exploration: radius", zero=True)
            return
        plain = Radius(self.radius.name, self.radius.kind, self.radius.params)
        if self.radius != plain or plain.kind not in (CONSTANT, PAPER, CORRECTED, SUM):
            raise SettingError(
                f"Exploration: {self.radius!r} does not fit CLBBF, which rebuilds what it learned; "
                "use a number, constant(), gamma_paper() or corrected()."
            )


PUBLISHED = Exploration()


def clbbf(
    x: Float4,
    mask: Bool,
    reward: Float3,
    *,
    rates: Rates = "each",
    explore: Exploration = PUBLISHED,
) -> Int:
    """Play CLBBF with one vector per arm; return the actions, (run, time).

    Parameters
    ----------
    x : (run, time, action, d) vectors without a constant; values behind the mask are never read.
    mask : same shape, True = observed. Mark whatever is a function of something missing.
    reward : (run, time, action) what each arm would pay; NaN = the reward is lost.
    rates : "each" coordinate's own observation rate, or one "common" to all as published.
    """
    x, mask = moments.checked_vectors(x, mask, "clbbf")
    if x.ndim != 4 or x.shape[2] < 2:
        raise FeatureError(
            f"clbbf: x must be (run, time, action, d) with at least 2 actions, but its shape is "
            f"{x.shape}."
        )
    runs, horizon, arms, dim = x.shape
    check_size(np.where(mask, x, 0.0), _ridge(explore, horizon, arms, dim), "clbbf")

    def imputed(part: slice) -> tuple[Float4, Again, Float2]:
        own, seen = x[part], mask[part]
        found = moments.estimate(moments.running(own, seen), rates)

        def again(t: int, action: Int) -> Float3:
            chosen, known = take_arm(own[:, :t], action), take_arm(seen[:, :t], action)
            return moments.impute(chosen, known, found.mean[:, t], found.cov[:, t])

        today = moments.impute(own, seen, found.mean, found.cov)
        return today, again, imputation_error(found, arms, dim, horizon)

    return play_imputed(imputed, reward, (runs, horizon, arms, dim), dim, explore)


def imputation_error(found: MomentEstimate, vectors: int, dim: int, horizon: int) -> Float:
    """e_t = d p^{-3/2} sqrt(log(T) log(kT) / (N_t + k)) with k ``vectors`` a round.

    Counting the vectors of an archive in N_t is our extension; without one it is as published.
    """
    scale = math.log(horizon) * math.log(vectors * horizon)
    error: Float = dim * found.rate**-1.5 * np.sqrt(scale / (found.total + vectors))
    return error


def clbbf_radius(t: Int, horizon: int, arms: int, dim: int, bias: Float) -> Float:
    """sqrt(gamma_t) of rounds t = 0, 1, ..; bias : xsum times :func:`imputation_error`."""
    noise: Float1 = np.sqrt((dim + 1) * np.log((t + 2.0) * horizon))
    return noise + bias + math.sqrt(dim * math.log(arms * horizon))


def _ridge(explore: Exploration, horizon: int, arms: int, dim: int) -> float:
    return explore.ridge or (dim + 1) * math.log(arms * horizon)


def play_imputed(
    imputed: Callable[[slice], tuple[Float4, Again, Float2]],
    reward: Float3,
    shape: tuple[int, int, int, int],
    width: int,
    explore: Exploration,
) -> Int:
    """Play (run, time, action, d) = shape, a block of runs at a time.

    imputed : a block of runs -> today's features without the constant, how to fill in chosen past
    ones anew, e_t. width : of the covariances a round needs, which sets the size of blocks.
    """
    runs, horizon, arms, dim = shape
    reward = np.asarray(reward, dtype=np.float64)
    if reward.shape != shape[:3] or np.isinf(reward).any():
        raise RewardError(
            f"clbbf: reward must be (run, time, action) = {shape[:3]}, finite or NaN for a reward "
            f"that is lost, but its shape is {reward.shape}."
        )
    action = np.empty((runs, horizon), dtype=np.int64)
    action[:, 0] = stream(explore.seed, "clbbf").integers(arms, size=runs)
    size = max(BLOCK // (horizon * width**2), 1)
    ridge = _ridge(explore, horizon, arms, dim)
    for start in range(0, runs, size):
        part = slice(start, start + size)
        state = init(dim + 1, ridge, (len(action[part]),))
        _play_block(state, imputed(part), reward[part], action[part], explore.radius)
    return action


def _play_block(
    state: State,
    imputed: tuple[Float4, Again, Float2],
    reward: Float3,
    action: Int,
    radius: float | Radius,
) -> None:
    """Fill in action (run, time) from round 1 on: one segment from each power of two."""
    today, again, error = imputed
    _, horizon, arms, dim = today.shape
    today = _with_one(today)
    for t in 2 ** np.arange(max(horizon - 1, 0).bit_length()):
        now = slice(t, min(2 * t, horizon))
        past, earned = again(t, action[:, :t]), take_arm(reward[:, :t], action[:, :t])
        xsum = _rebuild(state, _with_one(past), earned)
        if isinstance(radius, Radius):
            chosen, _ = run_kernel(
                state,
                np.ascontiguousarray(today[:, now]),
                np.ascontiguousarray(reward[:, now]),
                NO_ERROR,
                NO_MASK,
                radius,
            )
        else:
            bias = xsum[:, None] * error[:, now]
            root = clbbf_radius(np.arange(horizon)[now], horizon, arms, dim, bias)
            chosen = play_on(state, today[:, now], reward[:, now], radius * root)
        action[:, now] = chosen


def _rebuild(state: State, x: Float3, reward: Float2) -> Float1:
    """Learn afresh from past x (run, t, d+1) and rewards (run, t); return xsum (run,)."""
    earned = np.isfinite(reward)
    x, reward = x * earned[..., None], np.where(earned, reward, 0.0)
    state.precision[:] = state.ridge * np.eye(x.shape[-1]) + np.swapaxes(x, 1, 2) @ x
    state.inverse[:] = np.linalg.inv(state.precision)
    state.b[:] = (reward[:, None] @ x)[:, 0]
    state.theta[:] = (state.inverse @ state.b[..., None])[..., 0]
    state.sums[:] = 0.0
    state.sums[:, 0] = earned.sum(1)
    state.sums[:, 1] = np.linalg.slogdet(state.precision / state.ridge)[1]
    squares = ((x @ state.inverse) * x).sum(-1)
    lengths: Float1 = np.sqrt(np.maximum(squares, 0.0)).sum(1)
    return lengths


def take_arm(values: Array, action: Int) -> Array:
    """Pick the chosen arm: (run, time, action, ...) -> (run, time, ...)."""
    at = action.reshape(*action.shape, *(1,) * (values.ndim - 2))
    return np.take_along_axis(values, at, axis=2)[:, :, 0]


def _with_one(x: Float) -> Float:
    return np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1)


# CLBBF where all arms share one context, cold or with moments that start from an archive.


def clbbf_shared(
    features: Features,
    context: Context,
    reward: Float3,
    *,
    start: Moments | None = None,
    frozen: bool = False,
    explore: Exploration = PUBLISHED,
) -> Int:
    """Play CLBBF where all arms share one context Y_t = (S_t, .., W_t); return (run, time).

    The moments are those of Y, one vector a round (k = 1). Phi is taken at the filled-in context
    if it is affine in what is missing, else averaged over 128 Gaussian draws of what is missing.

    Parameters
    ----------
    features : Phi; a column of ones is dropped, the algorithm has its own.
    context : from ``contexts.shared_context``. reward : (run, time, action), NaN = lost.
    start, frozen : sums the moments start from, e.g. of an archive, and whether they stay as they
        are; see ``moments.running``.
    """
    y, mask = moments.checked_vectors(context.y, context.mask, "clbbf_shared")
    if y.ndim != 3 or not 1 <= context.s_dim <= y.shape[-1] - context.w_dim < y.shape[-1]:
        raise FeatureError(
            f"clbbf_shared: y must be (run, time, c) with columns for {context.s_dim} S and "
            f"{context.w_dim} W, at least one each, but its shape is {y.shape}."
        )
    s, w_dim = np.where(mask, y, np.nan)[..., : context.s_dim], context.w_dim
    _, _, ones = observed_part(features, s, w_dim)
    runs, horizon, width = y.shape
    arms, dim = features.actions, int((~ones).sum())
    blank = np.zeros((runs * horizon, w_dim))
    exact = not np.isnan(s).any() and features.affine_in_w(s.reshape(len(blank), -1), blank)
    half = stream(explore.seed, "clbbf", "draws").standard_normal((64, width, 1))

    def phi(vectors: Float) -> Float:
        rows = vectors.reshape(-1, width)
        seen, hidden = rows[:, : context.s_dim], rows[:, width - w_dim :]
        maps = [features(seen, hidden, a)[:, ~ones] for a in range(arms)]
        return np.stack(maps, axis=1).reshape(*vectors.shape[:2], arms, dim)

    def expected(own: Float, seen: Bool, mean: Float, cov: Float) -> Float4:
        filled = moments.impute(own, seen, mean, cov)
        if exact:
            return phi(filled)
        root, total = moments.leftover_root(seen, cov), np.zeros((*own.shape[:2], arms, dim))
        for z in half:  # with -z as well: exact for whatever is affine after all
            step = (root @ z)[..., 0]
            total += phi(filled + step) + phi(filled - step)
        return total / (2 * len(half))

    def imputed(part: slice) -> tuple[Float4, Again, Float2]:
        own, seen = y[part], mask[part]
        before = start and Moments._make(e if len(e) == 1 else e[part] for e in start)
        sums = moments.running(own[:, :, None], seen[:, :, None], before, frozen=frozen)
        found = moments.estimate(sums)

        def again(t: int, action: Int) -> Float3:
            past = expected(own[:, :t], seen[:, :t], found.mean[:, t], found.cov[:, t])
            return take_arm(past, action)

        today = expected(own[:, :, None], seen[:, :, None], found.mean, found.cov)
        return today, again, imputation_error(found, 1, dim, horizon)

    return play_imputed(imputed, reward, (runs, horizon, arms, dim), width, explore)


def clbbf_warm(
    features: Features,
    s: Float3,
    reward: Float3,
    history: History | Sequence[History],
    *,
    summary: Summary | None = None,
    frozen: bool = False,
    explore: Exploration = PUBLISHED,
) -> Int:
    """Play :func:`clbbf_shared` with moments that start from an archive; return (run, time).

    Parameters
    ----------
    s : (run, lead + time, s_dim) with W never seen; NaN = not seen. Only the last rows are played.
    reward : (run, time, action), NaN = lost.
    history : complete contexts, one archive for all runs or one per run.
    summary : more of the past of S to take into the context, e.g. Lags(19); None for S_t alone.

    frozen : whether the moments stay those of the archive: least squares of W on the rest, which
        is all the archive tells about W. Else moments among S go on to grow online while those
        with W cannot: the two then belong to different rows, which costs much for small archives.
    """
    archives = [history] if isinstance(history, History) else list(history)
    if len(archives) not in (1, len(s)):
        raise SettingError(f"clbbf_warm: {len(archives)} archives were given for {len(s)} runs.")
    if np.ndim(reward) != 3 or {one.s.shape[-1] for one in archives} != {np.shape(s)[-1]}:
        raise SettingError(
            f"clbbf_warm: reward must be (run, time, action) and s have the archive's S columns "
            f"{archives[0].s_names}, but got {np.shape(reward)} and {np.shape(s)}."
        )
    parts = [archive_moments(one, summary) for one in archives]
    start = Moments._make(np.concatenate(each) for each in zip(*parts, strict=True))
    context = shared_context(s, archives[0].w.shape[-1], np.shape(reward)[1], summary)
    return clbbf_shared(features, context, reward, start=start, frozen=frozen, explore=explore)


# CLBBF as the published comparison ran it: with W handed over.
#
# Its moments are taken over the true W of every round, the current one included; the mask only says
# which entries are then replaced, and calls W*a observed. No online learner has such data: it is
# here
# to show where the printed figures come from, see :func:`policies.clbbf.clbbf` for the honest one.


def clbbf_paper(
    x: Float4, replaced: Bool, reward: Float3, *, explore: Exploration = PUBLISHED
) -> Int:
    """Play CLBBF on true vectors; return the actions, (run, time).

    Parameters
    ----------
    x : (run, time, action, d) features of the FULL context, without a constant.
    replaced : (d,) entries that are replaced by their expectation given the others; they count as
        missing in the observation rate, although the moments are those of the true values.
    reward : (run, time, action).
    """
    mask = np.broadcast_to(~replaced, x.shape)
    _, horizon, arms, dim = x.shape

    def imputed(part: slice) -> tuple[Float4, Again, Float2]:
        own, seen = x[part], mask[part]
        told, counted = (running(own, each) for each in (np.ones(own.shape, np.bool_), seen))
        found = estimate(counted._replace(first=told.first, second=told.second), "common")

        def again(t: int, action: Int) -> Float3:
            chosen, known = take_arm(own[:, :t], action), take_arm(seen[:, :t], action)
            return impute(chosen, known, found.mean[:, t], found.cov[:, t])

        today = impute(own, seen, found.mean, found.cov)
        return today, again, imputation_error(found, arms, dim, horizon)

    return play_imputed(imputed, reward, (len(x), horizon, arms, dim), dim, explore)
