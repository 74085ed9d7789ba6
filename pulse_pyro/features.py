"""Feature maps Phi((s, w), a): by a function or by terms; their expectation and slopes in w."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float3, Float4, whole
from pulse_pyro._core.errors import (
    BundleError,
    FeatureError,
    PulseError,
    SettingError,
    nearest,
)
from pulse_pyro._core.files import run_file
from pulse_pyro._core.packed import Packed
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Conditional, Expectation, FeatureMap, FittedLaw
from pulse_pyro.data.history import History

# Feature maps Phi((s, w), a) and their expectation under a law of the missing part w.


REACH = (0.5, -1.0, 3.0, -10.0, 100.0)  # how far from w a feature map is probed
CHUNK = 2**21  # feature values in flight during Monte Carlo: 16 MiB


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


def expected_features(
    law: FittedLaw, features: Features, s: Float | History, *, size: int, rng: np.random.Generator
) -> Expectation:
    """Replace the unknown features by their expectation under the law, at all times at once.

    Parameters
    ----------
    law : fitted law of W given S_1:t.
    features : the map Phi.
    s : (batch, time, s_dim) shared by all actions, or (batch, time, action, s_dim) with one
        context per action (K candidate ads a round); or an archive, whose rows are taken in order.
    size : Monte Carlo draws, used only if Phi is not affine in w and W has more than a few values.
    rng : source of the draws; ONE set of draws serves every action.

    Returns
    -------
    Expectation with mean and mcse of shape (batch, time, action, d); of an archive (rows, action,
    d).

    The standard error covers Monte Carlo error only, never the error of the law itself: that is
    what calibration is for.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> phi = pp.terms(["s", "w*a"], 2, observed=["s"], missing=["w"])
    >>> found = expected_features(law, phi, history.grid.s[:3], size=100, rng=pp.stream(0, "draws"))
    >>> found.mean.shape, found.exact  # w*a is affine in w: no draw was needed
    ((3, 60, 2, 2), True)
    """
    whole(size, "expected_features: size", 2)
    if isinstance(s, History):
        return law(s).expect(features, size=size, rng=rng)
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

    asked = law(series)
    rows = series.reshape(-1, s.shape[-1])
    support: Float2 | None = getattr(asked, "support", None)
    if support is not None:
        chances = asked.probabilities()  # type: ignore[attr-defined]
        features.check_rows(*_first_value(rows, support))
        by_chance = chances.reshape(*series.shape[:2], -1)
        mean = stacked(
            [
                _summed(features, by_action(series, a), support, by_action(by_chance, a), a)
                for a in range(k)
            ]
        )
        return Expectation(mean, np.zeros_like(mean), exact=True, size=0)
    if asked.exact:
        w = asked.mean()
        features.check_rows(rows, w)
        if features.affine_in_w(rows, w):
            w = w.reshape(*series.shape[:2], -1)
            mean = stacked([features(by_action(series, a), by_action(w, a), a) for a in range(k)])
            return Expectation(mean, np.zeros_like(mean), exact=True, size=0)

    means, errors = [], []
    start = rng.bit_generator.state
    draws: Float3 | None = None
    for a in range(k):
        if draws is None or per_action:
            rng.bit_generator.state = start  # arms with contexts of their own share one noise
            draws = (law(s[:, :, a]) if per_action else asked).draws(size, rng=rng)
        mean, error = _monte_carlo(features, by_action(series, a), draws, a)
        means.append(mean)
        errors.append(error)
    return Expectation(stacked(means), stacked(errors), exact=False, size=size)


def expectation(
    asked: Conditional, features: FeatureMap, s: Float2, *, size: int, rng: np.random.Generator
) -> Expectation:
    """Return E[Phi] at the rows a conditional law speaks of, mean and mcse (n, action, d).

    s : (n, s_dim), S_t of the rows. size, rng : draws, used only if Phi is not affine in w.
    """
    phi = features if isinstance(features, Features) else _as_features(features)
    arms = range(phi.actions)
    if asked.exact:
        w = asked.mean()
        phi.check_rows(s, w)
        if phi.affine_in_w(s, w):
            mean = np.stack([phi(s, w, a) for a in arms], axis=1)
            return Expectation(mean, np.zeros_like(mean), exact=True, size=0)
    draws = asked.draws(whole(size, "expect: size", 2), rng=rng)
    each = [_monte_carlo(phi, s, draws, a) for a in arms]
    means, errors = (np.stack(values, axis=1) for values in zip(*each, strict=True))
    return Expectation(means, errors, exact=False, size=size)


def enumerated(
    features: FeatureMap, s: Float2, support: Float2, probability: Float2
) -> Expectation:
    """Return E[Phi] as the sum over the values W can take: exact, mean and mcse (n, action, d).

    s : (n, s_dim). support : (cells, w_dim) values. probability : (n, cells) of each. Phi is never
    asked about a W that cannot be, and need not be affine in w.
    """
    phi = features if isinstance(features, Features) else _as_features(features)
    phi.check_rows(*_first_value(s, support))
    mean = np.stack([_summed(phi, s, support, probability, a) for a in range(phi.actions)], axis=1)
    return Expectation(mean, np.zeros_like(mean), exact=True, size=0)


def partly_enumerated(
    features: FeatureMap, s: Float2, fixed: Bool, points: Float3, probability: Float2
) -> Expectation | None:
    """Return E[Phi] as the sum over values of some columns of W, where Phi is affine in the others.

    s : (n, s_dim). fixed : (w_dim,) columns that take finitely many values. points : (n, cells,
    w_dim), those values and, given them, the means of the others. probability : (n, cells). None
    where Phi is not affine in the others; evidence as in :meth:`Features.affine_in_w`.
    """
    phi = features if isinstance(features, Features) else _as_features(features)
    n, cells, s_dim = len(s), points.shape[1], s.shape[1]

    def free_only(both: Float2, free: Float2, action: int) -> Float2:
        w = np.empty((len(both), len(fixed)))
        w[:, fixed], w[:, ~fixed] = both[:, s_dim:], free
        return phi.fn(both[:, :s_dim], w, action)

    held = Features(free_only, phi.actions, phi.names)
    phi.check_rows(s, points[:, 0])
    mean = np.empty((n, phi.actions, len(phi.names)))
    block = max(CHUNK // (cells * len(phi.names)), 1)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        tiled = np.repeat(s[rows], cells, axis=0)
        w = points[rows].reshape(-1, len(fixed))
        if not held.affine_in_w(np.concatenate([tiled, w[:, fixed]], axis=1), w[:, ~fixed]):
            return None
        for a in range(phi.actions):
            each = phi(tiled, w, a).reshape(-1, cells, len(phi.names))
            mean[rows, a] = np.einsum("nc,ncd->nd", probability[rows], each)
    return Expectation(mean, np.zeros_like(mean), exact=True, size=0)


def _first_value(s: Float2, support: Float2) -> tuple[Float2, Float2]:
    """Return rows s with one value of W for all of them, to look at Phi with."""
    return s, np.broadcast_to(support[0], (len(s), support.shape[1]))


def _summed(
    features: Features, s: Float2, support: Float2, probability: Float2, action: int
) -> Float2:
    """Return the sum over values of probability times Phi, (n, d); NaN where the law is silent."""
    cells, n = len(support), len(s)
    out = np.empty((n, len(features.names)))
    block = max(CHUNK // (cells * len(features.names)), 1)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        tiled = np.repeat(s[rows], cells, axis=0)
        values = features(tiled, np.tile(support, (len(s[rows]), 1)), action)
        out[rows] = np.einsum(
            "nc,ncd->nd", probability[rows], values.reshape(-1, cells, out.shape[1])
        )
    return out


def _as_features(features: FeatureMap) -> Features:
    return Features(features, features.actions, features.names)


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


# How the missing part enters the features: Phi((s, w), a) = c_a(s) + M_a(s) w.


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


# Features without code, from terms such as "w*a", or from a Python file.


ACTION, ONE = "a", "1"


def terms(
    products: Sequence[str], actions: int, *, observed: Sequence[str], missing: Sequence[str]
) -> Features:
    """Return Phi with one feature a term: "1", or a product of columns and the action.

    Parameters
    ----------
    products : e.g. ["1", "s", "w", "w*a"]; factors are joined by ``*``, a power is a repeated
        factor.
    actions : K; ``a`` is the action's number 0 .. K - 1, so with more than two actions "w*a" says
        that they are equally far apart. For anything else write a features file.
    observed, missing : names of the columns of S and W, in order.

    Terms are taken apart, never run as code. Not checked: that rewards are linear in these terms.

    Examples
    --------
    >>> phi = terms(["1", "s", "w*a"], 2, observed=["s"], missing=["w"])
    >>> phi(np.array([[2.0]]), np.array([[3.0]]), 1)
    array([[1., 2., 3.]])
    """
    whole(actions, "features: actions", 2)
    columns = [*observed, *missing]
    odd = [name for name in columns if name in (ACTION, ONE) or "*" in name]
    if odd:
        raise FeatureError(
            f"features: column {odd[0]!r} cannot stand in a term, where a is the action, 1 the "
            "constant and * a product; rename it, or use a features file."
        )
    if isinstance(products, str) or not products:
        raise FeatureError(
            f'features: terms must be a list such as ["1", "s", "w*a"], but got {products!r}.'
        )
    split = [_factors(term, columns) for term in products]
    for i, factors in enumerate(split):
        if sorted(factors) in [sorted(other) for other in split[:i]]:
            raise FeatureError(f"features: term {products[i]!r} stands twice; leave one out.")
    place = {name: j for j, name in enumerate(columns)}

    def phi(s: Float2, w: Float2, action: int) -> Float2:
        values = np.concatenate([s, w], axis=1)
        out = np.ones((len(s), len(split)))
        for j, factors in enumerate(split):
            for name in factors:
                out[:, j] *= action if name == ACTION else values[:, place[name]]
        return out

    return Features(phi, actions, tuple(_spelled(term) for term in products))


def features_from_file(path: str | Path) -> Features:
    """Return the features a Python file describes; the file is run: name only files you trust.

    It defines ``features``, a :class:`Features`, or ``phi(s, w, action)`` with ``ACTIONS`` (their
    number) and ``NAMES`` (of the features).
    """
    file = Path(path)
    if not file.is_file():
        there = sorted(other.name for other in file.parent.glob("*.py"))
        raise FeatureError(f"features: there is no file {file}{nearest(file.name, there)}")
    module = run_file(file)
    whole_map = getattr(module, "features", None)
    if isinstance(whole_map, Features):
        return whole_map
    if whole_map is not None:
        raise FeatureError(
            f"{file}: 'features' must be Features(phi, actions, names), it is "
            f"{type(whole_map).__name__}."
        )
    names = [name for name in vars(module) if not name.startswith("_")]
    for wanted in ("phi", "ACTIONS", "NAMES"):
        if not hasattr(module, wanted):
            raise FeatureError(
                f"{file}: it defines no {wanted!r}{nearest(wanted, names)} A features file has "
                "phi(s, w, action), ACTIONS and NAMES, or features = Features(...)."
            )
    if not callable(module.phi):
        raise FeatureError(f"{file}: 'phi' must be a function phi(s, w, action).")
    try:
        return Features(module.phi, module.ACTIONS, module.NAMES)
    except PulseError as cause:
        raise FeatureError(f"{file}: {cause}") from cause


def _spelled(term: str) -> str:
    """Return a term without the spaces around its factors; those inside a name stay."""
    return "*".join(factor.strip() for factor in term.split("*"))


def _factors(term: object, columns: list[str]) -> list[str]:
    """Take a term apart; the constant has no factors."""
    if not isinstance(term, str):
        raise FeatureError(
            f'features: a term must be text such as "w*a", but got {term!r}; the constant is "1".'
        )
    found = [factor.strip() for factor in term.split("*")]
    known = [*columns, ACTION, ONE]
    for factor in found:
        if not factor:
            raise FeatureError(
                f"features: term {term!r} has an empty factor; write it as name*name."
            )
        if factor not in known:
            raise FeatureError(
                f"features: {factor!r} in term {term!r} is not a column{nearest(factor, known)}"
            )
    return [factor for factor in found if factor != ONE]


# Phi cannot be stored: a saved thing keeps its answers at a few contexts and knows it again.


PROBES = 16


def pack_features(features: Features, contexts: Float2, w_dim: int) -> Packed:
    """Write what tells Phi from others: its names, and its values at made-up rows.

    contexts : (2, s_dim) mean and sd of S, around which they are made up.
    """
    rng = stream(0, "probe")
    s = contexts[0] + contexts[1] * rng.standard_normal((PROBES, contexts.shape[1]))
    w = rng.standard_normal((PROBES, w_dim))
    w[PROBES // 2 :] = np.abs(w[PROBES // 2 :])  # a Phi of counts, or of log w, is not NaN at all
    about = {"names": list(features.names), "actions": features.actions}
    return Packed(about, {"s": s, "w": w, "values": _values_at(features, s, w)})


def unpack_features(packed: Packed, features: object) -> Features:
    """Return the Phi that is handed in, if it is the one that was written, or say what differs."""
    saved = packed.manifest
    names = tuple(saved["names"])
    if features is None:
        raise BundleError(
            f"Phi is not stored; pass it, load(path, features=phi), with names {names}."
        )
    if not isinstance(features, Features):
        raise BundleError(
            "features must be the Phi it was made with, Features(fn, actions, names), but got "
            f"{type(features).__name__}."
        )
    for what, before, now in (
        ("features", names, features.names),
        ("actions", saved["actions"], features.actions),
    ):
        if before != now:
            raise BundleError(f"it was made with {what} {before}, but Phi passed has {now}.")
    s, w = packed.shaped("s", -1, -1), packed.shaped("w", -1, -1)
    try:
        now_values = _values_at(features, s, w)
    except FeatureError as cause:
        raise BundleError(f"Phi passed cannot be compared with the one saved: {cause}") from cause
    before_values = packed.shaped("values", *now_values.shape)
    if not np.allclose(now_values, before_values, rtol=1e-9, atol=0.0, equal_nan=True):
        raise BundleError("Phi passed gives other values than when it was saved.")
    return features


def _values_at(features: Features, s: Float2, w: Float2) -> Float3:
    """Phi at rows s (n, s_dim), w (n, w_dim), for every action: (action, n, d)."""
    with np.errstate(all="ignore"):
        return np.stack([features.unchecked(s, w, a) for a in range(features.actions)])
