"""What CLBBF sees of a context: vectors and masks in which W, and all it enters, is hidden."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse_pyro.arrays import Bool, Float3, Float4, Int
from pulse_pyro.errors import FeatureError, SettingError
from pulse_pyro.features import Features
from pulse_pyro.history import History
from pulse_pyro.policies.moments import Moments, tally
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Identity, Stack, Summary


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
