"""Feature maps Phi((s, w), a) and their expectation under a law of the missing part w."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from pulse_pyro.arrays import Bool, Float, Float2, Float3, Float4, whole
from pulse_pyro.errors import FeatureError, SettingError
from pulse_pyro.seeds import stream

REACH = (0.5, -1.0, 3.0, -10.0, 100.0)  # how far from w a feature map is probed
CHUNK = 2**21  # feature values in flight during Monte Carlo: 16 MiB


class ConditionalLaw(Protocol):
    """What calibration and policies ask of a law; any imputer can satisfy it."""

    def sample(self, s: Float3, size: int, *, rng: np.random.Generator) -> Float4:
        """Draw W given S_1:t at every t: (batch, time, s_dim) -> (size, batch, time, w_dim)."""

    def mean_draws(self, s: Float3, draws: int, *, rng: np.random.Generator) -> Float4:
        """Posterior draws of E[W | S_1:t]: (draws, batch, time, w_dim)."""


@runtime_checkable
class HasMean(Protocol):
    """A law that knows E[W | S_1:t]; ``exact_mean`` tells whether in closed form."""

    @property
    def exact_mean(self) -> bool:
        """Whether :meth:`mean` carries no Monte Carlo error."""

    def mean(self, s: Float3) -> Float3:
        """Return E[W | S_1:t]: (batch, time, s_dim) -> (batch, time, w_dim)."""


@dataclass(frozen=True)
class Features:
    """Phi: one row of features per context and action.

    Attributes
    ----------
    fn : (s (n, s_dim), w (n, w_dim), action) -> (n, d); it must treat rows one by one.
    actions : number of actions K, numbered 0 .. K-1.
    names : the d feature names.

    Examples
    --------
    >>> phi = Features(lambda s, w, a: np.column_stack([s, w * a]), actions=2, names=("s", "w*a"))
    >>> phi(np.array([[2.0]]), np.array([[3.0]]), 1)
    array([[2., 3.]])
    """

    fn: Callable[[Float2, Float2, int], Float2]
    actions: int
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        whole(self.actions, "Features: actions", 2)
        names = (self.names,) if isinstance(self.names, str) else tuple(self.names)
        object.__setattr__(self, "names", names)
        if not self.names:
            raise SettingError("Features: names is empty; name each feature column.")

    def __call__(self, s: Float2, w: Float2, action: int) -> Float2:
        """Return Phi((s, w), action), (n, d), its shape and finiteness checked.

        A row that is NaN because its s or w is NaN stays NaN: that round cannot be scored, and
        the policy says so. NaN out of finite s and w is a fault of ``fn`` and is refused.
        """
        out = self.unchecked(s, w, action)
        fault = ~np.isfinite(out)
        if fault.any():
            fault &= np.isfinite(s).all(-1, keepdims=True) & np.isfinite(w).all(-1, keepdims=True)
        if fault.any():
            row, column = np.argwhere(fault)[0]
            raise FeatureError(
                f"Features: {self.names[column]!r} is {out[row, column]} for action {action} "
                f"at s={s[row]}, w={w[row]}; fn must be finite wherever s and w are."
            )
        return out

    def unchecked(self, s: Float2, w: Float2, action: int) -> Float2:
        """Return Phi((s, w), action), (n, d), with only its shape checked."""
        try:
            out = np.asarray(self.fn(s, w, action), dtype=np.float64)
        except Exception as cause:
            raise FeatureError(
                f"Features: fn failed for action {action} with s {s.shape} and w {w.shape}: "
                f"{type(cause).__name__}: {cause}; s and w are tables, use s[:, 0]."
            ) from cause
        if out.shape != (len(s), len(self.names)):
            raise FeatureError(
                f"Features: fn returned shape {out.shape} for action {action} and {len(s)} rows; "
                f"it must be ({len(s)}, {len(self.names)}), one column per name {self.names}."
            )
        return out

    def check_rows(self, s: Float2, w: Float2) -> None:
        """Refuse a fn whose value at a row depends on the other rows: streaming has only one."""
        usable = np.flatnonzero(np.isfinite(s).all(-1) & np.isfinite(w).all(-1))
        if len(usable) < 2:
            return
        one = usable[len(usable) // 2]
        for action in range(self.actions):
            among = self.unchecked(s, w, action)[one]
            alone = self.unchecked(s[one : one + 1], w[one : one + 1], action)[0]
            if not np.allclose(among, alone, rtol=1e-9, atol=0.0, equal_nan=True):
                raise FeatureError(
                    f"Features: fn gives {alone} for one row alone but {among} among others "
                    f"(action {action}); it must treat rows one by one."
                )

    def involves_w(self, s: Float2, w: Float2, action: int | None = None) -> Bool:
        """Tell which of the d coordinates change with w at the rows of s (n, s_dim), w (n, w_dim).

        For one action, or for any of them. A coordinate that does not is observed: its imputation
        error is exactly 0. Evidence from moves of w in both directions, near and far, at every
        row; without a usable row, or where fn cannot be evaluated, a coordinate counts as
        involving w.
        """
        moved = np.ones(len(self.names), dtype=np.bool_)
        usable = np.isfinite(s).all(-1) & np.isfinite(w).all(-1)
        if not usable.any():
            return moved
        s, w = s[usable], w[usable]
        moved[:] = False
        for a in range(self.actions) if action is None else (action,):
            before = self._probe(s, w, a)
            for reach in REACH:
                after = self._probe(s, w + reach * (np.abs(w) + 1.0), a)
                if before is None or after is None:
                    return np.ones(len(self.names), dtype=np.bool_)
                moved |= (before != after).any(0)
        return moved

    def affine_in_w(self, s: Float2, w: Float2) -> bool:
        """Tell whether w -> Phi((s, w), a) is affine at every row of s (n, s_dim), w (n, w_dim).

        Compared, coordinate by coordinate, at affine combinations of two points around w, up to
        100 times their distance away. Evidence, not proof: a kink beyond that reach, or at an s
        that is not among the rows, goes unnoticed.
        """
        usable = np.isfinite(s).all(-1) & np.isfinite(w).all(-1)
        if not usable.any():
            return False
        for action in range(self.actions):  # rows fn cannot score anyway are no evidence
            base = self._probe(s, w, action)
            if base is None:
                return False
            usable &= np.isfinite(base).all(-1)
        if not usable.any():
            return False
        s, w = s[usable], w[usable]
        rng = stream(0, "affine")
        one = w + (np.abs(w) + 1.0) * rng.standard_normal(w.shape)
        two = w - (np.abs(w) + 1.0) * rng.standard_normal(w.shape)
        for action in range(self.actions):
            at_one, at_two = self._probe(s, one, action), self._probe(s, two, action)
            if at_one is None or at_two is None:
                return False
            for step in REACH:
                value = self._probe(s, one + step * (two - one), action)
                if value is None:
                    return False
                with np.errstate(all="ignore"):  # a probe may overflow: then it is not affine
                    line = at_one + step * (at_two - at_one)
                    size = np.abs(at_one).max(0) + np.abs(at_two).max(0) + np.abs(line).max(0)
                    close = np.abs(value - line).max(0) <= 1e-9 * size
                if not close.all():
                    return False
        return True

    def _probe(self, s: Float2, w: Float2, action: int) -> Float2 | None:
        """Evaluate at a w that may be impossible: None where fn cannot cope."""
        try:
            with np.errstate(all="ignore"):
                out = np.asarray(self.fn(s, w, action), dtype=np.float64)
        except Exception:
            return None
        return out if out.shape == (len(s), len(self.names)) else self.unchecked(s, w, action)


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected features phihat = E[Phi((S_t, W), a) | S_1:t] under a law.

    Attributes
    ----------
    mean : (..., action, d).
    mcse : Monte Carlo standard error, same shape; exactly 0 where ``exact``.
    exact : Phi is affine in w and the law's mean is closed form.
    size : Monte Carlo draws used (0 when exact).
    """

    mean: Float
    mcse: Float
    exact: bool
    size: int


def expected_features(
    law: ConditionalLaw, features: Features, s: Float, *, size: int, rng: np.random.Generator
) -> Expectation:
    """Replace the unknown features by their expectation under the law, at all times at once.

    Parameters
    ----------
    law : fitted law of W given S_1:t.
    features : the map Phi.
    s : (batch, time, s_dim) shared by all actions, or (batch, time, action, s_dim) with one
        context per action (K candidate ads a round).
    size : Monte Carlo draws, used only if Phi is not affine in w.
    rng : source of the draws; ONE set of draws serves every action.

    Returns
    -------
    Expectation with mean and mcse of shape (batch, time, action, d).

    The standard error covers Monte Carlo error only, never the error of the law itself: that is
    what calibration is for.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> phi = pp.features_from_terms(["s", "w*a"], 2, observed=["s"], missing=["w"])
    >>> found = expected_features(law, phi, history.s[:3], size=100, rng=pp.stream(0, "draws"))
    >>> found.mean.shape, found.exact  # w*a is affine in w: no draw was needed
    ((3, 60, 2, 2), True)
    """
    whole(size, "expected_features: size", 2)
    s = np.asarray(s, dtype=np.float64)
    per_action = s.ndim == 4
    if s.ndim not in (3, 4) or (per_action and s.shape[2] != features.actions):
        raise FeatureError(
            f"expected_features: s must be (batch, time, s_dim) or (batch, time, "
            f"{features.actions} actions, s_dim), but its shape is {s.shape}."
        )
    # an action's context series is a series of its own: fold actions into the batch
    series = np.moveaxis(s, 2, 1).reshape(-1, s.shape[1], s.shape[-1]) if per_action else s
    lead, k = s.shape[:2], features.actions

    def by_action(values: Float, action: int) -> Float2:
        """Pick the rows (batch * time, dim) that belong to an action."""
        if per_action:
            values = values.reshape(lead[0], k, *values.shape[1:])[:, action]
        return values.reshape(-1, values.shape[-1])

    def stacked(columns: list[Float2]) -> Float4:
        return np.stack(columns, axis=1).reshape(*lead, k, -1)

    if isinstance(law, HasMean) and law.exact_mean:
        w = law.mean(series)
        features.check_rows(series.reshape(-1, s.shape[-1]), w.reshape(-1, w.shape[-1]))
        if features.affine_in_w(series.reshape(-1, s.shape[-1]), w.reshape(-1, w.shape[-1])):
            mean = stacked([features(by_action(series, a), by_action(w, a), a) for a in range(k)])
            return Expectation(mean, np.zeros_like(mean), exact=True, size=0)

    means, errors = [], []
    start = rng.bit_generator.state
    draws: Float4 | None = None
    for a in range(k):
        if draws is None or per_action:
            rng.bit_generator.state = start  # arms with contexts of their own share one noise
            own = s[:, :, a] if per_action else s
            draws = law.sample(own, size, rng=rng)
        w = draws.reshape(size, -1, draws.shape[-1])
        mean, error = _monte_carlo(features, by_action(series, a), w, a)
        means.append(mean)
        errors.append(error)
    return Expectation(stacked(means), stacked(errors), exact=False, size=size)


def _monte_carlo(
    features: Features, s: Float2, draws: Float3, action: int
) -> tuple[Float2, Float2]:
    """Average Phi over draws (size, n, w_dim): mean and standard error, (n, d) each."""
    size, n, _ = draws.shape
    mean = np.empty((n, len(features.names)))
    error = np.empty_like(mean)
    block = max(CHUNK // (size * len(features.names)), 1)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        part = draws[:, rows]
        tiled = np.broadcast_to(s[rows], (size, *s[rows].shape)).reshape(-1, s.shape[-1])
        values = features(tiled, part.reshape(-1, part.shape[-1]), action)
        values = values.reshape(size, -1, values.shape[-1])
        mean[rows] = values.mean(0)
        error[rows] = values.std(0, ddof=1) / np.sqrt(size)
    return mean, error
