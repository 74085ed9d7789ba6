"""Rows of a history under a fitted law: predictions, densities and labels, as groups for ArviZ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulse_pyro.arrays import Bool, Float, Int
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.table import input_names

if TYPE_CHECKING:
    from xarray import Dataset

MOST = 50_000_000  # predicted values and densities: 400 MB


class Asked(NamedTuple):
    """Rows of a history: where (unit, time), their x (n, p), and their number in its frame."""

    where: Bool
    x: Float
    row: Int


def asked_rows(fitted: FittedLaw, history: History) -> Asked:
    """Return the rows that have W and all the law needs, or say why there are none."""
    if not isinstance(history, History):
        raise DataError(
            f"to_arviz: a History was expected, {type(history).__name__} came; pass the one the "
            "law was fitted on, or held-out units."
        )
    for kind in ("s_names", "w_names"):
        ours, came = getattr(fitted, kind), getattr(history, kind)
        if ours != came:
            odd = sorted(set(ours) ^ set(came)) or [came[0]]
            raise DataError(
                f"to_arviz: the law was fitted on columns {ours}, but the history has {came}; "
                f"{odd[0]!r} does not match."
            )
    learned = fitted.law.unseen == "learned"
    rows = history.rows(fitted.summary, holes="x" if learned else "")
    where = np.zeros(history.seen.shape, dtype=np.bool_)
    where[rows.unit, rows.time] = True
    if learned:  # such a law still refuses some rows, by the mean they are given
        where[where] = np.isfinite(fitted.mean(history.s)[where]).all(-1)
        if not where.any():
            raise DataError(
                f"to_arviz: {fitted.law.label} refuses every row of this history: each lacks an "
                "input that training never saw missing."
            )
    return Asked(where, fitted.summary(history.s)[where], np.flatnonzero(where[history.seen]))


class Draws(NamedTuple):
    """Posterior draws that predict: their positions (chain, draw), and their labels (draw,)."""

    at: Int
    label: Int


def row_groups(
    fitted: FittedLaw, history: History, asked: Asked, draws: Draws, rng: np.random.Generator
) -> dict[str, Dataset]:
    """Return posterior_predictive, observed_data, constant_data and log_likelihood."""
    import xarray as xr

    index = draws.at
    w_dim, n = len(history.w_names), len(asked.row)
    values = index.size * n * (1 + w_dim)
    if values > MOST:
        fits = max(MOST // (n * (1 + w_dim)), 1)
        raise SettingError(
            f"to_arviz: {index.size} draws of {n} rows make {values:,} values (limit {MOST:,}); "
            f"ask for size={fits} or fewer, or pass fewer units: history.take(range(100))."
        )
    unit, time = np.nonzero(asked.where)
    by_row = {
        "row": asked.row,
        "unit": ("row", np.array(history.units)[unit]),
        "time": ("row", time),
    }
    output = {"output": list(history.w_names)}
    by_draw = {"chain": np.arange(len(index)), "draw": draws.label} | by_row
    shape = (*index.shape, n)
    drawn = fitted.sample_where(history.s, asked.where, index.ravel(), rng=rng)
    out = {
        "posterior_predictive": xr.Dataset(
            {"w": (("chain", "draw", "row", "output"), drawn.reshape(*shape, w_dim))},
            by_draw | output,
        ),
        "observed_data": xr.Dataset(
            {"w": (("row", "output"), history.w[asked.where])}, by_row | output
        ),
        "constant_data": xr.Dataset(
            {"x": (("row", "input"), asked.x)}, by_row | {"input": list(input_names(fitted))}
        ),
    }
    if not _latent(fitted):
        score = fitted.log_density_where(history.s, history.w, asked.where, index.ravel())
        each = {"w": (("chain", "draw", "row"), score.reshape(shape))}
        out["log_likelihood"] = xr.Dataset(each, by_draw)
    return out


def _latent(fitted: FittedLaw) -> list[str]:
    """Sites that rows have of their own, over which a density would have to be averaged."""
    return [] if fitted.card is None else [site.name for site in fitted.card.locals]


def row_attrs(fitted: FittedLaw, history: History, asked: Asked) -> dict[str, Any]:
    """Return how many rows there are, how many were fitted on, and whether they are scored."""
    known = np.isin(np.array(history.units), np.array(fitted.fit_units))
    fitted_on = int((asked.where & known[:, None]).sum())
    told = "log p(w | S_1:t, draw), computed row by row from the law's own density"
    if _latent(fitted):
        told = (
            f"left out: rows have latents of their own ({', '.join(_latent(fitted))}), and the "
            "density of w given the draws is an average over them"
        )
    return {
        "rows": len(asked.row),
        "rows_left_out": history.rows_seen - len(asked.row),
        "rows_fitted_on": fitted_on,
        "log_likelihood": told,
    }
