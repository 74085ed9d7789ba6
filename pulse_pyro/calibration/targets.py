"""What a band is made for: the missing W where Phi is affine in it, else features themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float4, Int
from pulse_pyro._core.errors import FeatureError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Conditional
from pulse_pyro.features import Features, slopes

PROBES = 5000  # rows Phi is judged at


@dataclass(frozen=True, eq=False)
class MissingTargets:
    """Phi is affine in w: a bound eps (n, w_dim) on E[W]'s error gives E = |M_a(s)| eps.

    base, step : (w_dim,) where, and how far apart, the slopes M_a are taken. used : (q,) the
    columns of w that Phi looks at; the others need no bound.
    """

    features: Features
    names: tuple[str, ...]
    base: Float1
    step: Float1
    used: Int

    def observed(self, s: Float2, w: Float2) -> Float2:
        """Return the targets of rows s (n, s_dim), w (n, w_dim): the used columns of w."""
        out: Float2 = w[:, self.used]
        return out

    def predicted(
        self, conditional: Conditional, size: int, rng: np.random.Generator
    ) -> tuple[Float2, Float2]:
        """Return the law's mean of the targets and its Monte Carlo error, (n, q)."""
        if conditional.exact:
            mean = conditional.mean()[:, self.used]
            return mean, np.zeros_like(mean)
        draws = conditional.draws(size, rng=rng)[..., self.used]
        return draws.mean(0), draws.std(0, ddof=1) / np.sqrt(size)

    def errors(self, s: Float2, eps: Float2, action: int) -> Float2:
        """Carry eps (n, q) through M_a(s): (n, d), exactly 0 where Phi has no w."""
        slope = np.abs(self.slopes(s, [action])[0])
        # an unseen S makes the slope NaN, and the error with it; 0 is 0 whatever eps is
        out: Float2 = np.where(slope == 0, 0.0, slope * eps[..., None]).sum(1)
        return out

    def slopes(self, s: Float2, actions: Sequence[int]) -> Float4:
        """Return M_a(s) of the used columns, (action, n, q, d)."""
        base = np.broadcast_to(self.base, (len(s), len(self.base)))
        return slopes(self.features, s, base, self.step, actions)[:, :, self.used]


@dataclass(frozen=True, eq=False)
class FeatureTargets:
    """Phi is not affine in w: each distinct feature that involves w is a target of its own.

    action, column : (q,) where each target is found. source, scale : (K, d) the target a feature
    is a multiple of (-1: none, it does not involve w) and by how much.
    """

    features: Features
    names: tuple[str, ...]
    action: Int
    column: Int
    source: Int
    scale: Float2

    def observed(self, s: Float2, w: Float2) -> Float2:
        """Return the targets of rows s (n, s_dim), w (n, w_dim): (n, q)."""
        every = [self.features(s, w, a) for a in range(self.features.actions)]
        return np.stack(
            [every[a][:, j] for a, j in zip(self.action, self.column, strict=True)], axis=1
        )

    def predicted(
        self, conditional: Conditional, size: int, rng: np.random.Generator
    ) -> tuple[Float2, Float2]:
        """Return the law's mean of the targets and its Monte Carlo error, (n, q)."""
        expected = conditional.expect(self.features, size=size, rng=rng)
        at = (slice(None), self.action, self.column)
        return expected.mean[at], expected.mcse[at]

    def errors(self, s: Float2, eps: Float2, action: int) -> Float2:
        """Spread eps (n, q) over the features of an action: (n, d)."""
        source, scale = self.source[action], self.scale[action]
        out: Float2 = np.where(source >= 0, np.abs(scale) * eps[:, source], 0.0)
        return out


Targets = MissingTargets | FeatureTargets


def find_targets(features: Features, s: Float2, w: Float2, w_names: tuple[str, ...]) -> Targets:
    """Judge Phi at held-out rows s (n, s_dim), w (n, w_dim)."""
    for action in range(features.actions):
        features(s, w, action)  # refuses NaN and infinity with a sentence
    # at random: every k-th row could be the same hour of each day
    some = stream(0, "probes").permutation(len(s))[:PROBES]
    some_s, some_w = s[some], w[some]
    features.check_rows(some_s, some_w)
    moves = features.involves_w(some_s, some_w)
    if not moves.any():
        raise FeatureError(
            f"calibrate: no feature of {features.names} involves W, so there is nothing to impute "
            "and nothing to calibrate."
        )
    if features.affine_in_w(some_s, some_w):
        spread = w.std(0)
        step = np.where(spread > 0, spread, 1.0)
        used = _used(features, some_s, some_w, step)
        names = tuple(w_names[i] for i in used)
        return MissingTargets(features, names, w.mean(0), step, used)
    return _feature_targets(features, s, w, some)


def phi_sees(features: Features, s: Float2, w: Float2) -> Int:
    """Return which columns of S_t move any feature at rows s (n, s_dim), w (n, w_dim)."""
    some = stream(0, "probes").permutation(len(s))[:PROBES]
    s, w = s[some], w[some]
    spread = s.std(0)
    step = np.where(spread > 0, spread, 1.0)
    columns = []
    for i in range(s.shape[1]):
        moved = s.copy()
        moved[:, i] += step[i]
        with np.errstate(all="ignore"):
            changes = [
                features.unchecked(moved, w, a) != features.unchecked(s, w, a)
                for a in range(features.actions)
            ]
        if np.any(changes):
            columns.append(i)
    return np.array(columns, dtype=np.int64)


def _used(features: Features, s: Float2, w: Float2, step: Float1) -> Int:
    """Return which columns of w move any feature."""
    columns = []
    for i in range(w.shape[1]):
        moved = w.copy()
        moved[:, i] += step[i]
        changes = (
            (features.unchecked(s, moved, a) != features.unchecked(s, w, a)).any()
            for a in range(features.actions)
        )
        if any(changes):
            columns.append(i)
    return np.array(columns, dtype=np.int64)


def _feature_targets(features: Features, s: Float2, w: Float2, some: Int) -> FeatureTargets:
    actions, d = features.actions, len(features.names)
    source = np.full((actions, d), -1)
    scale = np.zeros((actions, d))
    kept: list[Float1] = []
    where: list[tuple[int, int]] = []
    for a in range(actions):
        values = features(s, w, a)
        for j in np.flatnonzero(features.involves_w(s[some], w[some], a)):
            column = values[:, j]
            for k, other in enumerate(kept):
                ratio = float(column @ other) / max(float(other @ other), 1e-300)
                if ratio != 0 and np.allclose(column, ratio * other, rtol=1e-10, atol=0.0):
                    source[a, j], scale[a, j] = k, ratio
                    break
            else:
                source[a, j], scale[a, j] = len(kept), 1.0
                kept.append(column)
                where.append((a, int(j)))
    names = tuple(f"{features.names[j]} (action {a})" for a, j in where)
    at = np.array(where, dtype=np.int64)
    return FeatureTargets(features, names, at[:, 0], at[:, 1], source, scale)
