"""The posterior of a fitted law as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pandas as pd

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3
from pulse_pyro.base import Schema, Summary
from pulse_pyro.laws.conjugate import LinearKernel
from pulse_pyro.laws.scaling import Scaler

MOST = 1000  # scalars a table lists


class Posterior(Protocol):
    """What a table needs of a fitted law, ``PosteriorLaw``."""

    @property
    def draws(self) -> Mapping[str, Float]:
        """Global site -> (draw, *site shape)."""

    @property
    def kernel(self) -> object:
        """Prediction in model units."""

    @property
    def scaler(self) -> Scaler:
        """Units of the data."""

    @property
    def summary(self) -> Summary:
        """What the law looks at."""

    @property
    def schema(self) -> Schema:
        """Columns of S and W."""


def parameters(fitted: Posterior) -> pd.DataFrame:
    """Return posterior mean and sd of the parameters.

    For a linear law the regression of W on the summary, in the data's units; otherwise every
    scalar of every site, in the law's own units (the first 1,000 where there are more).
    """
    kernel = fitted.kernel
    rows = _regression(fitted, kernel) if isinstance(kernel, LinearKernel) else _scalars(fitted)
    frame = pd.DataFrame([(name, v.mean(), v.std()) for name, v in rows.items()])
    return frame.set_axis(["parameter", "mean", "sd"], axis=1).set_index("parameter")


def regression(fitted: Posterior, kernel: LinearKernel) -> tuple[Float2, Float3, Float2]:
    """Return draws of intercepts (m, w_dim), slopes (m, p, w_dim) and noise scales (m, w_dim).

    In the data's units. The scale of Student-t noise is not its standard deviation.
    """
    scaler = fitted.scaler
    slope = kernel.coef[:, 1:] * scaler.w_scale / scaler.x_scale[:, None]
    level = scaler.w_out(kernel.coef[:, 0]) - np.einsum("p,mpq->mq", scaler.x_mean, slope)
    spread = np.sqrt((kernel.factor**2).sum(-1)) * scaler.w_scale
    return level, slope, spread


def input_names(fitted: Posterior) -> tuple[str, ...]:
    """Name the p inputs: every filter of the summary, of every S column."""
    return tuple(f"{s}.{part}" for part in fitted.summary.names for s in fitted.schema.s_names)


def _regression(fitted: Posterior, kernel: LinearKernel) -> dict[str, Float1]:
    """Draws of slopes, intercepts and noise scales, by name."""
    level, slope, spread = regression(fitted, kernel)
    rows: dict[str, Float1] = {}
    for j, w in enumerate(fitted.schema.w_names):
        rows[f"{w} ~ 1"] = level[:, j]
        rows |= {f"{w} ~ {x}": slope[:, i, j] for i, x in enumerate(input_names(fitted))}
        rows[f"{w} noise scale"] = spread[:, j]
    return rows


def _scalars(fitted: Posterior) -> dict[str, Float1]:
    rows: dict[str, Float1] = {}
    for name, value in sorted(fitted.draws.items(), key=lambda item: item[1].size):
        for at in np.ndindex(value.shape[1:]):
            if len(rows) == MOST:
                return rows
            label = f"{name}[{','.join(map(str, at))}]" if at else name
            rows[label] = value[(slice(None), *at)]
    return rows
