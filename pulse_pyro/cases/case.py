"""What a data set showed, ready for a page: findings with a verdict, a table, maybe a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro.cases.estimates import Estimates
from pulse_pyro.cases.judge import Judged, judged_table
from pulse_pyro.cases.result import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

READING = (
    "Each dot is an agent's mean utility a round. Blue agents impute W, orange ones leave it out, "
    "black sees it."
)


@dataclass(frozen=True, eq=False)
class Finding:
    """One question put to a data set.

    verdict : the answer in a sentence. table : the figures behind it, as they are printed.
    plain : the same as plain values, for JSON. figure, reading : a picture and what it shows.
    more : further tables, each with a sentence before it.
    """

    title: str
    verdict: str
    table: DataFrame
    plain: Mapping[str, Any]
    figure: Callable[[], Axes] | None = None
    reading: str = ""
    more: tuple[tuple[str, DataFrame], ...] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """All findings of a data set.

    headline : the main one in a clause. about, source : what it is, whom to cite.
    """

    name: str
    headline: str
    about: str
    source: str
    findings: tuple[Finding, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, as printed by ``real --json``."""
        return {
            "name": self.name, "headline": self.headline, "about": self.about,
            "source": self.source, "seconds": self.seconds,
            "findings": [
                {"title": each.title, "verdict": each.verdict, **each.plain}
                for each in self.findings
            ],
        }  # fmt: skip

    def __repr__(self) -> str:
        lines = [f"  {each.title}: {each.verdict}" for each in self.findings[:11]]
        return "\n".join([f"{self.headline} ({self.seconds:.0f} s)", *lines])


def setting_finding(
    comparison: Comparison, setting: str, title: str, agent: str | None = None
) -> Finding:
    """Return what one setting showed, agent by agent; ``agent`` as in ``Comparison.verdict``."""
    played = comparison.settings[setting]
    text = (
        f"{comparison.verdict(setting, agent)} "
        f"{played.earned.shape[2]:,} rounds, {played.runs} runs; best single arm "
        f"{played.fixed:.4g}, best arm in every round {played.best:.4g}."
    )
    plain = {
        "setting": setting, "rounds": int(played.earned.shape[2]), "runs": played.runs,
        "best_single_arm": played.fixed, "best_arm": played.best,
        "rows": plain_rows(comparison.table(setting).reset_index()),
    }  # fmt: skip
    more = (
        ("Share of the variance of each W that each law explains online.", _shares(comparison)),
    )
    return Finding(title, text, shown(comparison, setting), plain, played.plot, READING, more)


def shown(comparison: Comparison, setting: str) -> DataFrame:
    """Return the table of a setting as it is printed: an agent a line, best first."""
    import pandas as pd

    table = comparison.table(setting).sort_values("utility", ascending=False)
    no_gap = comparison.gap(setting) is None
    rows = []
    for name, row in table.iterrows():
        share = "no gap" if no_gap else f"{row['closed']:.0%} ({row['closed_se']:.0%})"
        gain = f"{row['over_lags']:+.4f}"
        errors = f"({row['over_lags_se']:.4f}; {row['over_lags_block_se']:.4f})"
        took = row["fit_seconds"]
        rows.append(
            {
                "agent": name,
                "utility (se)": f"{row['utility']:.4f} ({row['se']:.4f})",
                "gap closed (se)": share,
                "over raw lags (se; over blocks)": f"{gain} {errors}",
                "fit, s": "" if np.isnan(took) else f"{took:.1f}",
            }
        )
    return pd.DataFrame(rows)


def ways_finding(comparison: Comparison, settings: Sequence[str], title: str) -> Finding:
    """Return how much each agent earns if the rounds are played in other ways."""
    import pandas as pd

    tables = {name: comparison.settings[name].table for name in settings}
    names = comparison.settings[settings[0]].names
    wide = pd.DataFrame(
        {
            way: {n: f"{t['utility'][n]:.4f} ({t['se'][n]:.4f})" for n in names}
            for way, t in tables.items()
        }
    ).rename_axis("agent")
    best = {name: comparison.best(name) for name in settings}
    ahead = {name: comparison.settings[name].contrast(best[name], "oful_lags") for name in settings}
    text = "; ".join(
        f"{name}: {best[name]} is {gain.difference:+.4f} from raw lags (se {gain.se:.4f}, over "
        f"blocks {gain.block_se:.4f})"
        for name, gain in ahead.items()
    )
    plain = {"utility": {name: t["utility"].to_dict() for name, t in tables.items()}}
    return Finding(title, text + ".", wide.reset_index(), plain)


def judged_finding(judged: Sequence[Judged], title: str) -> Finding:
    """Return what held-out pieces of the archive said of the laws."""
    table = judged_table(judged)
    failed = [each for each in judged if "fail" in (each.diagnose, each.calibrate)]
    known = [each for each in judged if np.isfinite(each.root_mean)]
    text = f"{len(failed)} of {len(judged)} laws fail a check on held-out pieces of the archive."
    if known:
        low = min(known, key=lambda each: each.root_mean)
        text += (
            f" The smallest mean sqrt(D_t), of {low.law}, is {low.root_mean:.2f} sds of W "
            f"(largest {low.root_sup:.2f}); {low.outside:.1%} of online contexts lie outside."
        )
    if any(each.calibrate == "fail" for each in judged):
        text += " A bound whose check fails does not hold, and no policy here relies on it."
    printed = table.reset_index().drop(columns="seconds")
    printed["outside"] = [f"{share:.1%}" for share in printed["outside"]]
    printed = printed.rename(
        columns={"root_mean": "mean sqrt(D_t)", "root_sup": "largest", "outside": "outside online"}
    )
    return Finding(title, text, printed, {"rows": plain_rows(table.reset_index())})


def estimates_finding(estimates: Estimates, title: str, reading: str) -> Finding:
    """Return what policies are worth by a log."""
    table = estimates.table
    shown = table[["log", "policy", "estimator"]].copy()
    shown["value"] = [f"{v:.4g}" for v in table["estimate"]]
    shown["95 % interval"] = [
        f"{low:.4g} to {high:.4g}" for low, high in zip(table["low"], table["high"], strict=True)
    ]
    shown["known"] = ["" if np.isnan(v) else f"{v:.4g}" for v in table["known"]]
    shown["effective rows"] = [f"{v:,.0f}" for v in table["effective"]]
    plain = {"rows": estimates.to_json()["rows"]}
    return Finding(title, estimates.verdict, shown, plain, estimates.plot, reading)


def plain_rows(table: DataFrame) -> list[dict[str, Any]]:
    """Return the lines of a table as plain values; None where there is none, as JSON has no NaN."""
    known = table.astype(object).where(table.notna(), None)
    return [{str(name): row[name] for name in table} for row in known.to_dict("records")]


def _shares(comparison: Comparison) -> DataFrame:
    table: DataFrame = comparison.explained.map("{:.2f}".format).reset_index()
    return table
