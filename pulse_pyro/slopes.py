"""How the missing part enters the features: Phi((s, w), a) = c_a(s) + M_a(s) w."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float4
from pulse_pyro.errors import FeatureError
from pulse_pyro.features import Features


def need_affine(features: Features, s: Float2, w: Float2, where: str) -> None:
    """Refuse Phi that is not affine in w at the rows of s (n, s_dim), w (n, w_dim)."""
    if not features.affine_in_w(s, w):
        raise FeatureError(
            f"{where}: Phi must be affine in w, or what is known of W does not carry over to it."
        )


def slopes(
    features: Features, s: Float2, base: Float2, step: Float1, actions: Sequence[int] | None = None
) -> Float4:
    """Return M_a(s), (action, n, w_dim, d), for Phi affine in w.

    base : (n, w_dim) where, and step (w_dim,) how far apart, the two values of Phi are taken;
    steps of the size of W keep rounding small. Exactly 0 where a coordinate does not move; NaN
    where s is not seen.
    """
    out = []
    for a in range(features.actions) if actions is None else actions:
        at = features.unchecked(s, base, a)
        moved = []
        for i, by in enumerate(step):
            there = base.copy()
            there[:, i] += by
            after = features.unchecked(s, there, a)
            change = after - at
            rounding = np.abs(change) <= 1e-12 * (np.abs(at) + np.abs(after))
            moved.append(np.where(rounding, 0.0, change / by))
        out.append(np.stack(moved, axis=1))
    return np.stack(out)
