"""What diagnose returns: checks, the worst verdict first, and the evidence behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from pulse_pyro._core.arrays import Float2, Int
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro.base import RANK, Check, Checks, Verdict, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class ScoreComparison(NamedTuple):
    """What the law gains over a baseline: > 0 is better.

    score : "log score" (nats a row) or "crps <W>" (share of the baseline's).
    low, high : 95 % interval over units. p : of "it is not worse", estimation allowed for.
    """

    score: str
    against: str
    gain: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """Predictions of held-out W at the n rows that were judged.

    row, unit : (n,) numbers of the rows in the archive, and of their units. w, mean : (n, w_dim)
    recorded and expected. pit : (n, w_dim) share of predictive draws below w, ties at random.
    comparisons : scores against baselines.
    """

    w_names: tuple[str, ...]
    row: Int
    unit: Int
    w: Float2
    mean: Float2
    pit: Float2
    comparisons: tuple[ScoreComparison, ...]


@dataclass(frozen=True)
class Diagnostics:
    """All checks of a law on held-out units, or of online contexts, with their evidence."""

    checks: Checks
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", Checks(self.checks))  # any sequence of them will do

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the checks."""
        return self.checks.verdict

    @property
    def table(self) -> DataFrame:
        """One line per check."""
        return self.checks.table

    @property
    def scores(self) -> DataFrame:
        """One line per score and baseline: what the law gains, with its 95 % interval."""
        import pandas as pd

        frame = pd.DataFrame(
            list(self._evidence.comparisons), columns=list(ScoreComparison._fields)
        )
        return frame.set_index(["score", "against"])

    def plot(self, name: str | None = None) -> Figure:
        """Draw four panels for one W, the first by default: PIT, coverage, residuals, scores."""
        evidence = self._evidence
        chosen = evidence.w_names[0] if name is None else name
        if chosen not in evidence.w_names:
            raise SettingError(
                f"Diagnostics.plot: there is no W {chosen!r}{nearest(chosen, evidence.w_names)}"
            )
        panels = picture("four_panels")(self, evidence, evidence.w_names.index(chosen))
        return cast("Figure", panels)

    @property
    def _evidence(self) -> Evidence:
        if self.evidence is None:
            raise DataError(
                "Diagnostics: these checks carry no predictions to draw or score; diagnose a law."
            )
        return self.evidence

    def __repr__(self) -> str:
        worst = self.checks.worst(10)
        lines = [f"  {c.verdict:4} {c.name}: {c.value:.4g}. {c.text}" for c in worst]
        if len(self.checks) > 10:
            lines.append(f"  ... and {len(self.checks) - 10} more, none worse; see .table")
        return "\n".join([f"Diagnostics: {self.verdict}", *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>"


# Diagnostics as plain values and arrays, and back; see ``save``.


SAVED = (Diagnostics, Evidence, ScoreComparison, Check)


def pack_diagnostics(diagnostics: Diagnostics) -> Packed:
    """Write the checks and their evidence."""
    return pack_value(diagnostics, SAVED)


def unpack_diagnostics(packed: Packed, law: object = None, features: object = None) -> Diagnostics:
    """Make them anew."""
    diagnostics = unpack_value(packed, Diagnostics, SAVED)
    if any(check.verdict not in RANK for check in diagnostics.checks):
        raise ValueError("a verdict is not known")
    if diagnostics.evidence is not None:
        about = diagnostics.evidence
        wanted = (len(about.row), len(about.w_names))
        if {about.w.shape, about.mean.shape, about.pit.shape} != {wanted}:
            raise ValueError(f"w, mean and pit are not all {wanted}")
    return diagnostics
