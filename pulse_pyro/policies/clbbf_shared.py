"""CLBBF where all arms share one context, cold or with moments that start from an archive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pulse_pyro.arrays import Bool, Float, Float2, Float3, Float4, Int
from pulse_pyro.errors import FeatureError, SettingError
from pulse_pyro.features import Features
from pulse_pyro.history import History
from pulse_pyro.policies import moments
from pulse_pyro.policies.clbbf import (
    PUBLISHED,
    Again,
    Exploration,
    imputation_error,
    play_imputed,
    take_arm,
)
from pulse_pyro.policies.contexts import Context, archive_moments, observed_part, shared_context
from pulse_pyro.policies.moments import Moments
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Summary


def clbbf_shared(
    features: Features, context: Context, reward: Float3, *, start: Moments | None = None,
    frozen: bool = False, explore: Exploration = PUBLISHED,
) -> Int:  # fmt: skip
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
    y, mask = moments.checked(context.y, context.mask, "clbbf_shared")
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
    features: Features, s: Float3, reward: Float3, history: History | Sequence[History], *,
    summary: Summary | None = None, frozen: bool = False, explore: Exploration = PUBLISHED,
) -> Int:  # fmt: skip
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
        raise SettingError(f"clbbf_warm: {len(archives)} archives came for {len(s)} runs.")
    if np.ndim(reward) != 3 or {one.s.shape[-1] for one in archives} != {np.shape(s)[-1]}:
        raise SettingError(
            f"clbbf_warm: reward must be (run, time, action) and s have the archive's S columns "
            f"{archives[0].s_names}, but {np.shape(reward)} and {np.shape(s)} came."
        )
    parts = [archive_moments(one, summary) for one in archives]
    start = Moments._make(np.concatenate(each) for each in zip(*parts, strict=True))
    context = shared_context(s, archives[0].w.shape[-1], np.shape(reward)[1], summary)
    return clbbf_shared(features, context, reward, start=start, frozen=frozen, explore=explore)
