"""What diagnose returns: checks, the worst verdict first, and the evidence behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from pulse_pyro.arrays import Float3
from pulse_pyro.errors import DataError, SettingError, nearest
from pulse_pyro.verdicts import RANK, Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Comparison(NamedTuple):
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
    """Predictions of held-out W, all (unit, time, w_dim), NaN where not judged.

    w, mean : recorded and expected. pit : share of predictive draws below w, ties at random.
    comparisons : scores against baselines.
    """

    w_names: tuple[str, ...]
    w: Float3
    mean: Float3
    pit: Float3
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Diagnostics:
    """All checks of a law on held-out units, or of online contexts, with their evidence."""

    checks: tuple[Check, ...]
    evidence: Evidence | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the checks."""
        return RANK[max(RANK.index(check.verdict) for check in self.checks)]

    @property
    def table(self) -> DataFrame:
        """One line per check."""
        import pandas as pd

        return pd.DataFrame([asdict(check) for check in self.checks]).set_index("name")

    @property
    def scores(self) -> DataFrame:
        """One line per score and baseline: what the law gains, with its 95 % interval."""
        import pandas as pd

        frame = pd.DataFrame(list(self._evidence.comparisons), columns=list(Comparison._fields))
        return frame.set_index(["score", "against"])

    def plot(self, name: str | None = None) -> Figure:
        """Draw four panels for one W, the first by default: PIT, coverage, residuals, scores."""
        from pulse_pyro.diagnostic_plots import four_panels

        evidence = self._evidence
        chosen = evidence.w_names[0] if name is None else name
        if chosen not in evidence.w_names:
            raise SettingError(
                f"Diagnostics.plot: there is no W {chosen!r}{nearest(chosen, evidence.w_names)}"
            )
        return four_panels(self, evidence, evidence.w_names.index(chosen))

    @property
    def _evidence(self) -> Evidence:
        if self.evidence is None:
            raise DataError(
                "Diagnostics: these checks carry no predictions to draw or score; diagnose a law."
            )
        return self.evidence

    def __repr__(self) -> str:
        worst = sorted(self.checks, key=lambda c: -RANK.index(c.verdict))
        lines = [f"  {c.verdict:4} {c.name}: {c.value:.4g}. {c.text}" for c in worst[:10]]
        if len(worst) > 10:
            lines.append(f"  ... and {len(worst) - 10} more, none worse; see .table")
        return "\n".join([f"Diagnostics: {self.verdict}", *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>"
