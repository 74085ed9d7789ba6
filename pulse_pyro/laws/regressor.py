"""A scikit-learn regressor as a law: its prediction is E[W | x], its residuals are the noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from pulse_pyro._core.arrays import Float1, Float2, Float3, whole
from pulse_pyro._core.errors import DataError, ModelError, SettingError
from pulse_pyro._core.seeds import torch_seed
from pulse_pyro.base import Expectation, FeatureMap, ModelCard, Schema, Summary
from pulse_pyro.data.history import History, Source, context_rows
from pulse_pyro.data.summary import as_summary
from pulse_pyro.features import expectation
from pulse_pyro.laws.adapter import SeriesFollower
from pulse_pyro.laws.fitted import by_action, chosen, w_beside
from pulse_pyro.laws.memory import Memory, MemoryKind
from pulse_pyro.laws.remembering import RememberingLaw

Residual = Literal["normal", "empirical"]
LOG_2PI = float(np.log(2.0 * np.pi))


def from_sklearn(
    model: Any, summary: int | Summary = 1, *, residual: Residual = "normal", folds: int = 5
) -> SklearnLaw:
    """Return a law whose mean is a scikit-learn regressor of W on a summary of S.

    Parameters
    ----------
    model : anything with fit(x, y) and predict(x), not fitted; a copy is fitted for each W.
    summary : number of lags, the current S_t included, or a summary.
    residual : how W varies around the prediction: "normal" with the residuals' covariance, or
        "empirical", residuals drawn with replacement, rows of several W together.
    folds : residuals are those of units the copy was not fitted on, in so many folds by cluster: a
        model that fits its own rows too well is not taken at its word.

    Not covered: how unsure the regressor is of its own prediction (``mean_draws`` repeat the mean,
    so diagnostics of calibration judge the residuals alone), noise that changes with x, rows with
    an input that is not seen (they are refused).

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> fit, held_out = history.split(seed=0)
    >>> law = from_sklearn(KNeighborsRegressor(20), 3).fit(fit, seed=0)
    >>> law(held_out).mean().shape
    (1800, 1)
    """
    if not hasattr(model, "fit") or not hasattr(model, "predict"):
        raise ModelError(
            f"from_sklearn: a regressor with fit and predict was expected, but got "
            f"{type(model).__name__}."
        )
    if residual not in ("normal", "empirical"):
        raise SettingError(
            f"from_sklearn: residual must be 'normal' or 'empirical', but got {residual!r}."
        )
    name = type(model).__name__
    return SklearnLaw(
        model,
        as_summary(summary, "from_sklearn"),
        residual,
        whole(folds, "from_sklearn: folds", 2),
        name,
    )


@dataclass(frozen=True, eq=False)
class SklearnLaw:
    """A regressor, not yet fitted; see :func:`from_sklearn`."""

    model: Any
    summary: Summary
    residual: Residual
    folds: int
    name: str
    engines: ClassVar[tuple[type, ...]] = ()

    def check(self, history: History) -> ModelCard:
        """Say how many inputs and outputs there are; a regressor has no sites."""
        rows = history.rows(self.summary)
        return ModelCard((), rows.x.shape[1], rows.w.shape[1], True, 0, True)

    def fit(
        self, history: History, how: None = None, *, seed: int, warm: object = None
    ) -> FittedSklearn:
        """Fit a copy of the regressor for each W, and take residuals of units it has not seen."""
        if how is not None:
            raise SettingError(f"{self.name}: a regressor fits itself; {how!r} is of no use.")
        if not isinstance(history, History):
            raise DataError(
                f"{self.name}: a History was expected, but got {type(history).__name__}; make one "
                "with History.from_frame, and pass one part of a split."
            )
        rows = history.rows(self.summary)
        cluster = np.unique(history.cluster[rows.at], return_inverse=True)[1]
        count = min(self.folds, int(cluster.max()) + 1)
        if count < 2:
            raise DataError(
                f"{self.name}: its residuals are taken on units it was not fitted on; two units "
                "at least are needed."
            )
        fold = np.random.default_rng(torch_seed(seed, "folds")).permutation(cluster.max() + 1)
        fold = fold[cluster] % count
        residuals = np.empty_like(rows.w)
        for k in range(count):
            out = fold == k
            part = self._fitted(rows.x[~out], rows.w[~out], seed)
            residuals[out] = rows.w[out] - _predicted(part, rows.x[out])
        models = self._fitted(rows.x, rows.w, seed)
        return FittedSklearn(self, models, residuals, history.clusters, history.schema, int(seed))

    def with_memory(self, kind: MemoryKind = "ar") -> RememberingLaw:
        """Return the law whose fit also learns how what it leaves of W persists.

        See ``laws.with_memory``.
        """
        return RememberingLaw(self, kind)

    def _fitted(self, x: Float2, w: Float2, seed: int) -> tuple[Any, ...]:
        from sklearn.base import clone

        out = []
        for j in range(w.shape[1]):
            model = clone(self.model)
            settings = model.get_params() if hasattr(model, "get_params") else {}
            if settings.get("random_state", seed) is None:
                model.set_params(random_state=torch_seed(seed, "sklearn", j) % 2**32)
            out.append(model.fit(x, w[:, j]))
        return tuple(out)


@dataclass(frozen=True, eq=False)
class FittedSklearn:
    """A fitted regressor with its residuals (n, w_dim), as a law.

    memory : see ``with_memory``; no answer depends on it.
    """

    law: SklearnLaw
    models: tuple[Any, ...]
    residuals: Float2
    units: tuple[str, ...]
    schema: Schema
    seed: int
    memory: Memory | None = None

    @property
    def summary(self) -> Summary:
        """What it looks at."""
        return self.law.summary

    @property
    def id(self) -> str:
        """Fingerprint of the columns and the residuals."""
        about = (self.law.name, self.summary.names, self.schema.s_names, self.schema.w_names)
        digest = hashlib.sha256(repr(about).encode())
        digest.update(np.ascontiguousarray(self.residuals).tobytes())
        return digest.hexdigest()[:16]

    def __call__(self, source: Source, at: ArrayLike | None = None) -> SklearnConditional:
        """Return the law of W at the rows of a History, or of s (batch, time[, action], s_dim)."""
        source, at = by_action(source, at)
        x, s = context_rows(source, self.summary, self.schema, self.law.name)
        rows = chosen(at, len(x))
        return SklearnConditional(self, x[rows], s[rows])

    def follow(self, unit: str | None = None) -> SeriesFollower:
        """Start to follow a series online."""
        return SeriesFollower(self)

    def __repr__(self) -> str:
        sd, units = ", ".join(f"{v:.3g}" for v in self.residuals.std(0)), len(self.units)
        return (
            f"FittedSklearn {self.law.name}: {', '.join(self.schema.w_names)} given "
            f"{', '.join(self.schema.s_names)}\n  {len(self.residuals)} rows of {units} "
            "independent units or clusters; "
            f"sd of residuals on units it was not fitted on: {sd} ({self.law.residual})"
        )


class SklearnConditional:
    """p^(W | x) at n rows: the prediction, and residuals around it."""

    exact = True

    def __init__(self, law: FittedSklearn, x: Float2, s: Float2) -> None:
        self._law, self.x, self.s = law, x, s

    def mean(self) -> Float2:
        """Return the prediction plus the mean residual, (n, w_dim); NaN where x is not complete."""
        out: Float2 = self._predicted + self._law.residuals.mean(0)
        return out

    @property
    def _predicted(self) -> Float2:
        out = np.full((len(self.x), len(self._law.models)), np.nan)
        whole_rows = np.isfinite(self.x).all(1)
        if whole_rows.any():
            out[whole_rows] = _predicted(self._law.models, self.x[whole_rows])
        return out

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Repeat the mean, (size, n, w_dim): a regressor does not say how unsure it is."""
        mean = self.mean()
        return np.broadcast_to(mean, (size, *mean.shape)).copy()

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, (size, n, w_dim)."""
        residuals, shape = self._law.residuals, (size, *self._predicted.shape)
        if self._law.law.residual == "empirical":
            picked: Float3 = residuals[rng.integers(len(residuals), size=shape[:2])]
            return self._predicted + picked
        root = np.linalg.cholesky(self._covariance)
        return self.mean() + rng.standard_normal(shape) @ root.T

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi], mean and mcse (n, action, d)."""
        return expectation(self, features, self.s, size=size, rng=rng)

    @property
    def _covariance(self) -> Float2:
        cov = np.atleast_2d(np.cov(self._law.residuals.T))
        out: Float2 = cov + 1e-12 * np.trace(cov) / len(cov) * np.eye(len(cov))
        return out

    def covariance(self) -> Float3:
        """Return the covariance of residuals, (n, w_dim, w_dim), the same at every row."""
        hole = np.asarray(np.isnan(self._predicted).any(1))
        return np.where(hole[:, None, None], np.nan, self._covariance)

    def _beside(self, w: ArrayLike) -> Float2:
        return w_beside(w, (len(self.x), len(self._law.models)), self._law.law.name)

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j), (n, w_dim)."""
        away = self._beside(w) - self._predicted
        if self._law.law.residual == "empirical":
            ordered = np.sort(self._law.residuals, axis=0)
            columns = [
                np.searchsorted(ordered[:, j], away[:, j], side="right") / len(ordered)
                for j in range(away.shape[1])
            ]
            return np.where(np.isnan(away), np.nan, np.stack(columns, axis=1))
        sd = np.sqrt(np.diag(self._covariance))
        out: Float2 = special.ndtr((away - self._law.residuals.mean(0)) / sd)
        return out

    def log_density(self, w: Float2) -> Float2 | None:
        """Return log p(W_j = w_j), (n, w_dim), of normal residuals; None of empirical ones."""
        if self._law.law.residual == "empirical":
            return None
        sd = np.sqrt(np.diag(self._covariance))
        z = (self._beside(w) - self.mean()) / sd
        out: Float2 = -0.5 * (z**2 + LOG_2PI) - np.log(sd)
        return out

    def joint_log_density(self, w: Float2) -> Float1 | None:
        """Return log p(W = w), (n,), of normal residuals; None of empirical ones: no density."""
        if self._law.law.residual == "empirical":
            return None
        cov, off = self._covariance, self._beside(w) - self.mean()
        square = (off * np.linalg.solve(cov, off.T).T).sum(-1)
        out: Float1 = -0.5 * (square + np.linalg.slogdet(cov)[1] + len(cov) * LOG_2PI)
        return out


def _predicted(models: tuple[Any, ...], x: Float2) -> Float2:
    """Return the predictions of a regressor for each W, (n, w_dim)."""
    return np.stack([np.asarray(model.predict(x), np.float64) for model in models], axis=1)
