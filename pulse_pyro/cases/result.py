"""The table a data set answers with: utility, share of the gap closed, facts about the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float1
from pulse_pyro.simulation.replayed import Contrast, Replayed

if TYPE_CHECKING:
    from pandas import DataFrame

FLOOR, LAGS, CEILING = "oful", "oful_lags", "oful_full"


@dataclass(frozen=True, eq=False)
class LawFacts:
    """seconds : of the fit. explained : (w_dim,) share of the variance of each W online."""

    seconds: float
    explained: Float1
    w_names: tuple[str, ...]

    @staticmethod
    def over(runs: Sequence[LawFacts]) -> LawFacts:
        """Return the mean over runs."""
        seconds = float(np.mean([each.seconds for each in runs]))
        explained = np.mean([each.explained for each in runs], axis=0)
        return LawFacts(seconds, explained, runs[0].w_names)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Agents on the recorded rounds of a data set.

    Attributes
    ----------
    name, about, source : of the data set.
    settings : setting -> what every agent earned. laws : law -> facts about its fit.
    seed, seconds : of everything.
    """

    name: str
    about: str
    source: str
    settings: Mapping[str, Replayed]
    laws: Mapping[str, LawFacts]
    seed: int
    seconds: float

    def table(self, setting: str) -> DataFrame:
        """One line per agent of a setting.

        utility, se : mean a round over runs. closed, closed_se : share of the gap between oful and
        oful_full. over_lags, over_lags_se, over_lags_block_se : gain over OFUL on raw lags, with
        standard errors over runs and over blocks of the data, see :class:`Contrast`.
        fit_seconds : of its law.
        """
        played = self.settings[setting]
        table = played.table
        table = table[[name for name in table if not str(name).startswith("arm ")]]
        closed = [played.closed(name, FLOOR, CEILING) for name in played.names]
        table["closed"], table["closed_se"] = zip(*closed, strict=True)
        gains = [played.contrast(name, LAGS) for name in played.names]
        for k, column in enumerate(("over_lags", "over_lags_se", "over_lags_block_se")):
            table[column] = [gain[k] for gain in gains]
        table["fit_seconds"] = [self._seconds(name) for name in played.names]
        return table

    @property
    def explained(self) -> DataFrame:
        """Share of the variance of each W that each law explains online."""
        import pandas as pd

        names = next(iter(self.laws.values())).w_names
        rows = {
            name: dict(zip(names, fact.explained, strict=True)) for name, fact in self.laws.items()
        }
        return pd.DataFrame(rows).T.rename_axis("law")

    def best(self, setting: str) -> str:
        """Return the PULSE agent that earned most."""
        table = self.settings[setting].table["utility"]
        return str(table[table.index.str.startswith("pulse")].idxmax())

    def gap(self, setting: str) -> Contrast | None:
        """Return what seeing W gains over leaving it out; None if that may be nothing.

        Below two standard errors, of both kinds together, a share of it would say nothing.
        """
        found = self.settings[setting].contrast(CEILING, FLOOR)
        return found if found.difference >= 2.0 * found.total_se else None

    def headline(self, setting: str) -> str:
        """Say in a clause what the setting shows of the PULSE agent that earned most."""
        played, best = self.settings[setting], self.best(setting)
        gain, share = played.contrast(best, LAGS), played.closed(best, FLOOR, CEILING)
        apart = f"{gain.ratio:+.1f} standard errors from raw lags"
        if self.gap(setting) is None:
            return f"{self.name}: seeing W gains nothing that shows; {best} is {apart}"
        return (
            f"{self.name}: {best} closes {share[0]:.0%} (se {share[1]:.0%}) of the gap between "
            f"leaving W out and seeing it, and is {apart}"
        )

    def verdict(self, setting: str, agent: str | None = None) -> str:
        """Say in a sentence what the setting shows.

        agent : of which; by default of the PULSE agent that earned most in this very setting, a
        choice that flatters it a little.
        """
        played, best = self.settings[setting], agent or self.best(setting)
        count = sum(name.startswith("pulse") for name in played.names)
        chosen = "chosen before" if agent else f"best of {count} here"
        gain, share = played.contrast(best, LAGS), played.closed(best, FLOOR, CEILING)
        table, worth = played.table["utility"], played.contrast(CEILING, FLOOR)
        closes = f"it closes {share[0]:.0%} (se {share[1]:.0%}) of the gap, and"
        if self.gap(setting) is None:
            closes = (
                f"seeing W gains {worth.difference:+.2g} (se {worth.total_se:.2g}): no gap to "
                "close; it"
            )
        return (
            f"{self.name}, {setting}: {best} ({chosen}) earns {table[best]:.4g} a "
            f"round, {FLOOR} "
            f"{table[FLOOR]:.4g}, raw lags {table[LAGS]:.4g}, sees W {table[CEILING]:.4g}; "
            f"{closes} is {gain.difference:+.4f} from raw lags (se {gain.se:.4f} over runs, "
            f"{gain.block_se:.4f} over blocks of the data: {gain.ratio:+.1f} "
            "of both together)."
        )

    def __repr__(self) -> str:
        return "\n".join(self.verdict(name) for name in self.settings)

    def _seconds(self, agent: str) -> float:
        fact = self.laws.get(agent.removeprefix("pulse_"))
        return np.nan if fact is None else fact.seconds
