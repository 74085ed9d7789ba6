"""Networks in NumPy, and what training them on an archive with holes needs to know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float2
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Ensemble
from pulse_pyro.laws.law import FitData

NOTHING = np.zeros(0, dtype=np.bool_)
ENOUGH, ENOUGH_SHARE = 30, 0.005  # rows that lack an input, at least, to learn to do without it


def with_mask(x: Float) -> Float:
    """Return (..., 2 p): x (..., p) with 0 where it is NaN, then 1 where it is NaN."""
    hole = np.isnan(x)
    return np.concatenate([np.where(hole, 0.0, x), hole.astype(np.float64)], axis=-1)


class Layers:
    """An ensemble of networks: "weight0" (member, in, out), "bias0" (member, out), ...

    missable, most : for each input, whether training saw it missing, and how many at once. Where
    any is, masks are inputs too, and what lacks another input, or more of them, is NaN.
    """

    def __init__(
        self, draws: Mapping[str, Float], missable: tuple[bool, ...] = (), most: int = 0
    ) -> None:
        depth = sum(name.startswith("weight") for name in draws)
        self.layers = [(draws[f"weight{i}"], draws[f"bias{i}"]) for i in range(depth)]
        self.columns = max(weight.shape[0] * weight.shape[-1] for weight, _ in self.layers)
        self.count = len(self.layers[0][0])
        self._needed = np.flatnonzero(~np.array(missable, dtype=np.bool_))
        self._most, self._masked = most, any(missable)

    def __call__(self, x: Float2, member: int | slice) -> Float:
        """Return the outputs of one member (n, out), or of several (member, n, out)."""
        hidden = with_mask(x) if self._masked else x
        lost = self._lost(x) if self._masked else NOTHING
        for i, (weight, bias) in enumerate(self.layers):
            hidden = hidden @ weight[member] + bias[member][..., None, :]
            if i < len(self.layers) - 1:
                np.maximum(hidden, 0.0, out=hidden)
        if lost.any():  # it was never trained without these
            hidden[..., lost, :] = np.nan
        return hidden

    def _lost(self, x: Float2) -> Bool:
        """Tell rows that lack an input, or more inputs at once, than training has seen."""
        hole = np.isnan(x)
        out: Bool = hole[:, self._needed].any(axis=1) | (hole.sum(axis=1) > self._most)
        return out


def gaps(data: FitData, masking: float) -> tuple[tuple[bool, ...], int]:
    """Return which inputs training will see missing, in enough rows to learn from, and how many."""
    hole = np.isnan(data.rows.x)
    p = hole.shape[1]
    if masking > 0:
        return (True,) * p, p
    enough = max(ENOUGH, ENOUGH_SHARE * data.n)
    missable = hole.sum(0) >= enough
    at_once = (hole & missable).sum(1)
    often = [k for k in range(p + 1) if (at_once >= k).sum() >= enough]
    return tuple(map(bool, missable)), max(often, default=0)


def rows_for(
    data: FitData, missable: tuple[bool, ...], how: Ensemble, seed: int
) -> tuple[Float2, Float2, Bool]:
    """Return inputs and w that networks are trained on, and which rows are held out to stop by.

    A gap too rare to learn from costs its rows.
    """
    held = held_out(data, how, seed)
    kept = ~np.isnan(data.x[:, ~np.array(missable)]).any(axis=1)
    x = with_mask(data.x[kept]) if any(missable) else data.x[kept]
    return x, data.w[kept], held[kept]


def held_out(data: FitData, how: Ensemble, seed: int) -> Bool:
    """Choose whole units to stop by; of a single unit, its last rows."""
    unit = data.unit
    units = int(unit.max()) + 1
    if data.n < 10:
        raise DataError(
            f"neural_density: {data.n} rows cannot train a network and tell when to stop; use "
            "linear_lags or gaussian_process."
        )
    if units == 1:
        order = np.argsort(data.rows.time, kind="stable")
        held: Bool = np.zeros(data.n, dtype=np.bool_)
        held[order[-_some(how.holdout, data.n) :]] = True
        return held
    chosen = stream(seed, "stop").permutation(units)[: _some(how.holdout, units)]
    return np.isin(unit, chosen)


def _some(part: float, count: int) -> int:
    """Return a share of ``count``, but at least one, and leaving at least one."""
    return min(max(round(part * count), 1), count - 1)
