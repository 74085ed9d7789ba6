"""W columns as a model sees them, codes 0, 1, ..., and as everybody else does: numbers.

An ordinal's code k stands for the k-th of its declared numbers; code k of a categorical of m + 1
levels for the k-th row of (0; I_m), so that Phi sees m columns of 0 and 1. Other columns are
numbers already.
"""

from typing import NamedTuple

import numpy as np
import torch

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro.base import ModelCard


class Coding(NamedTuple):
    """One W column: its site, where its numbers stand in w, and what its codes stand for.

    numbers : of the codes of an ordinal, () where codes are numbers, or 0/1 columns.
    """

    name: str
    at: slice
    numbers: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Numeric columns it takes."""
        return int(self.at.stop - self.at.start)

    def codes(self, w: Float2) -> Float1:
        """Return codes, (n,), of w (n, w_dim): -1 for what is no level, NaN where a number is."""
        own = w[:, self.at]
        if self.width == 1 and not self.numbers:
            plain: Float1 = own[:, 0]
            return plain
        same = (own[:, None] == self._table.numpy()).all(-1)
        code = np.where(same.any(-1), same.argmax(-1), -1.0)
        return np.where(np.isnan(own).any(-1), np.nan, code)

    def of(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the numbers of codes, (..., width)."""
        if self.width == 1 and not self.numbers:
            return codes.to(torch.float64)[..., None]
        return self._table[codes.long()]

    @property
    def _table(self) -> torch.Tensor:
        """(levels, width)."""
        if self.numbers:
            return torch.tensor(self.numbers, dtype=torch.float64)[:, None]
        return torch.eye(self.width + 1, dtype=torch.float64)[:, 1:]


def codings(
    names: tuple[str, ...], levels: tuple[tuple[float, ...], ...], widths: tuple[int, ...]
) -> tuple[Coding, ...]:
    """Return how each W column is coded; levels, widths : see :class:`base.ModelCard`."""
    wide = widths or (1,) * len(names)
    ends = [slice(sum(wide[:j]), sum(wide[: j + 1])) for j in range(len(names))]
    each = zip(names, ends, levels or ((),) * len(names), strict=True)
    return tuple(Coding(*one) for one in each)


def codings_of(card: ModelCard) -> tuple[Coding, ...]:
    """Return how each W column of a model with a site for each is coded."""
    return codings(card.columns, card.levels, card.widths)


def codes_of(w: Float2, coded: tuple[Coding, ...]) -> Float2:
    """Return w (n, w_dim) as a model sees it, (n, columns).

    -1, which no site can have, for what is none of its declared levels; NaN stays.
    """
    return np.stack([each.codes(w) for each in coded], axis=-1)
