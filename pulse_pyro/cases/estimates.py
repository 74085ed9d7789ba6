"""The table a log answers with: values of policies, by several estimators, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro.errors import SettingError
from pulse_pyro.offpolicy.value import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

SHOWN = 9  # lines of a table in a repr


@dataclass(frozen=True, eq=False)
class Estimate:
    """One line: an estimator's value of a policy on a log, and the known value if there is one."""

    log: str
    policy: str
    estimator: str
    value: Value
    known: float = np.nan


@dataclass(frozen=True, eq=False)
class Estimates:
    """What policies are worth by a log.

    Attributes
    ----------
    name, about, source : of the data. verdict : what the lines show, in a sentence.
    lines : one per log, policy and estimator. seconds : it took.
    """

    name: str
    verdict: str
    about: str
    source: str
    lines: tuple[Estimate, ...]
    seconds: float

    def of(self, policy: str, estimator: str, log: str | None = None) -> Value:
        """Return one value by name."""
        for each in self.lines:
            if (each.policy, each.estimator) == (policy, estimator) and log in (None, each.log):
                return each.value
        known = ", ".join(f"{each.policy!r} by {each.estimator!r}" for each in self.lines)
        raise SettingError(
            f"{self.name}: no value of {policy!r} by {estimator!r}; there is {known}."
        )

    @property
    def table(self) -> DataFrame:
        """One line per estimate: value, standard error over units, interval, effective rows.

        known : what the policy is known to earn, or NaN. bias : of clipping.
        """
        import pandas as pd

        rows = [
            {"log": each.log, "policy": each.policy, "estimator": each.estimator}
            | each.value.to_json() | {"known": each.known}
            for each in self.lines
        ]  # fmt: skip
        columns = ["estimate", "se", "low", "high", "known", "effective", "mean_weight", "bias",
                   "units", "rows"]  # fmt: skip
        return pd.DataFrame(rows)[["log", "policy", "estimator", *columns]]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw every estimate with its interval, and the known value where there is one."""
        from pulse_pyro.replay_plots import value_dots

        return value_dots(self, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values; None where nothing is known."""
        rows = [
            {"log": each.log, "policy": each.policy, "estimator": each.estimator,
             "known": None if np.isnan(each.known) else each.known} | each.value.to_json()
            for each in self.lines
        ]  # fmt: skip
        return {
            "name": self.name, "verdict": self.verdict, "about": self.about,
            "source": self.source, "rows": rows, "seconds": self.seconds,
        }  # fmt: skip

    def __repr__(self) -> str:
        shown = self.table[["log", "policy", "estimator", "estimate", "se", "low", "high", "known"]]
        text = shown.head(SHOWN).to_string(index=False, float_format="{:.4g}".format)
        more = len(shown) - SHOWN
        return f"{self.verdict}\n{text}" + (f"\n... and {more} more in .table" if more > 0 else "")

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, float_format="{:.4g}".format)
        return f"<p>{self.verdict}</p>{table}"
