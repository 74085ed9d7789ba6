"""The rows a law is fitted on, in its own units, and how they reach an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro.arrays import Float, Float1, Float2, Int
from pulse_pyro.history import Rows
from pulse_pyro.laws.linear_exact import gram
from pulse_pyro.laws.scaling import GaussianInputs, Scaler

if TYPE_CHECKING:
    from pulse_pyro._pyro.card import ModelCard
    from pulse_pyro._pyro.fit import Fit
    from pulse_pyro._pyro.inference import Laplace, Nuts, Svi


@dataclass(frozen=True, eq=False)
class FitData:
    """Rows of an archive, their moments, and the units the law works in.

    mean : (p + w_dim,) raw column means of [x, w]; moments : their centred Gram matrix. count :
    rows behind the moments, where the rows themselves are not kept.
    """

    rows: Rows
    mean: Float1
    moments: Float2
    scaler: Scaler
    count: int | None = None

    @classmethod
    def raw(cls, rows: Rows) -> FitData:
        """Take rows in their own units; where rows have holes, moments are of what is seen."""
        x, w = rows.x, rows.w
        mean, moments = gram(x, w)
        if np.isnan(mean).any():
            mean, moments = _gram_with_holes(x, w)
        return cls(rows, mean, moments, Scaler.raw(x.shape[1], w.shape[1]))

    def standardised(self, kinds: list[str]) -> FitData:
        """Change to standard units; columns of x of one kind share one scale."""
        return replace(self, scaler=Scaler.standard(self.mean, self.moments, self.n, kinds))

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.rows.x) if self.count is None else self.count

    @property
    def w_dim(self) -> int:
        """Columns of w."""
        return int(self.rows.w.shape[1])

    @cached_property
    def x(self) -> Float2:
        """(n, p) in the law's units."""
        return self.scaler.x_in(self.rows.x)

    @cached_property
    def w(self) -> Float2:
        """(n, w_dim) in the law's units."""
        return self.scaler.w_in(self.rows.w)

    @property
    def unit(self) -> Int:
        """(n,) units of the rows, numbered 0, 1, ... without gaps."""
        return np.unique(self.rows.unit, return_inverse=True)[1]

    @property
    def full(self) -> Float2:
        """Gram matrix of (1, x, w) in the law's units, (1 + p + w_dim, 1 + p + w_dim)."""
        scaler = self.scaler
        scale = np.concatenate([scaler.x_scale, scaler.w_scale])
        mean = (self.mean - np.concatenate([scaler.x_mean, scaler.w_mean])) / scale
        ones = np.concatenate([[1.0], mean])
        out = self.n * np.outer(ones, ones)
        out[1:, 1:] += self.moments / np.outer(scale, scale)
        return out

    @property
    def inputs(self) -> GaussianInputs:
        """Mean and covariance of the raw inputs."""
        p = self.rows.x.shape[1]
        return GaussianInputs(self.mean[:p], self.moments[:p, :p] / self.n)


def _gram_with_holes(x: Float2, w: Float2) -> tuple[Float1, Float2]:
    """Means and Gram matrix over what is seen: spreads are right, products are shrunk towards 0."""
    both = np.concatenate([x, w], axis=1)
    seen = ~np.isnan(both)
    count = np.maximum(seen.sum(0), 1)
    mean = np.where(seen, both, 0.0).sum(0) / count
    filled = np.where(seen, both - mean, 0.0) * np.sqrt(len(both) / count)
    return mean, filled.T @ filled


def wants(model: Callable[..., Any] | None, name: str) -> bool:
    """Tell whether a model asks for ``unit`` or ``seen`` by naming it as a parameter."""
    try:
        return model is not None and name in inspect.signature(model).parameters
    except (TypeError, ValueError):
        return False


def run_model(
    model: Callable[..., Any], data: FitData, how: Nuts | Svi | Laplace, seed: int, *,
    label: str, guide: Callable[..., Any] | None = None, short: Callable[[], Any] | None = None,
    energy: Callable[..., Any] | None = None, start: Mapping[str, Float] | None = None,
) -> tuple[ModelCard, Fit]:  # fmt: skip
    """Check a Pyro model on the rows and fit it.

    short : the same posterior without rows. energy : its -log density at unconstrained sites, for
    a family that can do without tracing the model at every step. start : sites to begin at.
    """
    import torch

    from pulse_pyro._pyro.contract import check_model
    from pulse_pyro._pyro.engines import Problem, run_engine

    card = check_model(model, data.x, data.w, label)
    if short is not None:
        return card, run_engine(Problem(short, (), card, label, guide, energy, start), how, seed)
    extras: dict[str, Any] = {}
    if wants(model, "unit"):
        extras["unit"] = torch.as_tensor(data.unit)
    w = data.w
    if wants(model, "seen"):
        extras["seen"] = torch.as_tensor(~np.isnan(w))
        w = np.nan_to_num(w)
    args = (torch.as_tensor(data.x), torch.as_tensor(w))
    bound = partial(model, **extras)
    return card, run_engine(Problem(bound, args, card, label, guide, None, start), how, seed)
