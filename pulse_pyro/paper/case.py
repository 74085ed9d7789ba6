"""What a data set showed, ready for a page: findings with a verdict, a table, maybe a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulse_pyro._core.as_json import records
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.data.history import History
from pulse_pyro.offpolicy.value import Value
from pulse_pyro.paper.judge import Judged, judged_table
from pulse_pyro.paper.replay_comparison import Comparison
from pulse_pyro.report.plots import COLOURS, axis, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# The table a log answers with: values of policies, by several estimators, with intervals.


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
        there = ", ".join(f"{each.policy!r} by {each.estimator!r}" for each in self.lines)
        raise SettingError(f"{self.name}: no value of {policy!r} by {estimator!r}; known: {there}.")

    @property
    def table(self) -> DataFrame:
        """One line per estimate: value, standard error over units, interval, effective rows.

        known : what the policy is known to earn, or NaN. bias : of clipping.
        """
        import pandas as pd

        rows = [
            {"log": each.log, "policy": each.policy, "estimator": each.estimator}
            | each.value.to_json()
            | {"known": each.known}
            for each in self.lines
        ]
        columns = [
            "estimate",
            "se",
            "low",
            "high",
            "known",
            "effective",
            "mean_weight",
            "bias",
            "units",
            "rows",
        ]
        return pd.DataFrame(rows)[["log", "policy", "estimator", *columns]]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw every estimate with its interval, and the known value where there is one."""
        return value_dots(self, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values; None where nothing is known."""
        rows = [
            {
                "log": each.log,
                "policy": each.policy,
                "estimator": each.estimator,
                "known": None if np.isnan(each.known) else each.known,
            }
            | each.value.to_json()
            for each in self.lines
        ]
        return {
            "name": self.name,
            "verdict": self.verdict,
            "about": self.about,
            "source": self.source,
            "rows": rows,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        shown = self.table[["log", "policy", "estimator", "estimate", "se", "low", "high", "known"]]
        text = shown.head(SHOWN).to_string(index=False, float_format="{:.4g}".format)
        more = len(shown) - SHOWN
        return f"{self.verdict}\n{text}" + (f"\n... and {more} more in .table" if more > 0 else "")

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, float_format="{:.4g}".format)
        return f"<p>{self.verdict}</p>{table}"


READING = (
    "Each dot is an agent's mean utility a round. Blue agents impute W, orange ones leave it out, "
    "or vote with those that impute it (committee), black sees it."
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
            "name": self.name,
            "headline": self.headline,
            "about": self.about,
            "source": self.source,
            "seconds": self.seconds,
            "findings": [
                {"title": each.title, "verdict": each.verdict, **each.plain}
                for each in self.findings
            ],
        }

    def __repr__(self) -> str:
        lines = [f"  {each.title}: {each.verdict}" for each in self.findings[:11]]
        return "\n".join([f"{self.headline} ({self.seconds:.0f} s)", *lines])


class RealCase(NamedTuple):
    """A data set: the folder it is unpacked to, what is asked of it, and its archive, if any."""

    folder: str
    run: Callable[..., Case]
    archive: Callable[[Path], History] | None = None

    def inside(self, data: str | Path) -> Path:
        """Return its folder, or say that it is not there."""
        home = Path(data) / self.folder
        if not home.is_dir():
            raise DataError(
                f"{home} is not a folder; data sets are not part of the package: --data must name "
                f"the folder that holds {self.folder}."
            )
        return home


def setting_finding(
    comparison: Comparison, setting: str, title: str, agent: str | None = None
) -> Finding:
    """Return what one setting showed, agent by agent; ``agent`` as in ``Comparison.verdict``."""
    played = comparison.settings[setting]
    text = (
        f"{comparison.verdict(setting, agent)} "
        f"{played.earned.shape[2]:,} rounds, {played.runs} runs; best single arm "
        f"{played.fixed:.4g}, best arm in every round {played.best:.4g}. "
        f"{comparison.vote_verdict(setting)}"
    ).rstrip()
    plain = {
        "setting": setting,
        "rounds": int(played.earned.shape[2]),
        "runs": played.runs,
        "best_single_arm": played.fixed,
        "best_arm": played.best,
        "rows": records(comparison.table(setting)),
    }
    more = (
        ("Share of the variance of each W that each law explains online.", _shares(comparison)),
    )
    return Finding(
        title=title,
        verdict=text,
        table=shown(comparison, setting),
        plain=plain,
        figure=played.plot,
        reading=READING,
        more=more,
    )


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


def play_rules_finding(comparison: Comparison, settings: Sequence[str], title: str) -> Finding:
    """Return how much each agent earns if the rounds are played by other rules."""
    import pandas as pd

    tables = {name: comparison.settings[name].table for name in settings}
    names = comparison.settings[settings[0]].names
    wide = pd.DataFrame(
        {
            setting: {
                n: f"{t['utility'][n]:.4f} ({t['se'][n]:.4f})" if n in t.index else ""
                for n in names
            }
            for setting, t in tables.items()
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
    failed = [each for each in judged if each.diagnose == "fail" or each.uniform == "fails"]
    bounded = [each for each in judged if np.isfinite(each.forecast)]
    text = f"{len(failed)} of {len(judged)} laws fail a check on held-out pieces of the archive."
    if bounded:
        low = min(bounded, key=lambda each: each.forecast)
        text += (
            f" Whatever {low.law} forecasts, W is within {low.forecast:.2f} sds of it on average, "
            f"by rung forecast; the free line is {low.free:.2f} sds."
        )
    uniform = [each.law for each in judged if each.uniform in ("stands", "conditional")]
    text += (
        f" A bound at every context, conditional on its form: {', '.join(uniform)}."
        if uniform
        else " No bound holds at every context at once, and no policy here relies on one."
    )
    printed = table.reset_index().drop(columns="seconds")
    printed["outside"] = [f"{share:.1%}" for share in printed["outside"]]
    printed = printed.rename(
        columns={"root_mean": "mean sqrt(D_t)", "root_sup": "largest", "outside": "outside online"}
    )
    return Finding(title, text, printed, {"rows": records(table)})


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


def _shares(comparison: Comparison) -> DataFrame:
    table: DataFrame = comparison.explained.map("{:.2f}".format).reset_index()
    return table


DIFFERENCE = " minus "  # in the name of a line that is the difference of two policies


def value_dots(estimates: Estimates, ax: Axes | None = None) -> Axes:
    """Draw every estimated value with its interval; a tick where the value is known.

    Where there are differences of two policies these alone are drawn, beside 0: they are what is
    asked, and on the scale of the values they could not be read.
    """
    apart = [each for each in estimates.lines if DIFFERENCE in each.policy]
    lines = (apart or list(estimates.lines))[::-1]
    ax = axis(ax, height=0.8 + 0.3 * len(lines))
    where = np.arange(len(lines))
    low, high, at = (
        np.array([getattr(each.value, name) for each in lines])
        for name in ("low", "high", "estimate")
    )
    ax.hlines(where, low, high, color=COLOURS[0], linewidth=2)
    ax.scatter(at, where, color=COLOURS[0], zorder=3)
    known = np.array([each.known for each in lines])
    finite = np.isfinite(known)
    if finite.any():
        ax.scatter(
            known[finite],
            where[finite],
            marker="|",
            s=120,
            color="#000000",
            zorder=4,
            label="known",
        )
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    if apart:
        ax.axvline(0.0, color="#888888", linewidth=0.8)
    labels = [f"{each.policy}, {each.estimator} ({each.log} log)" for each in lines]
    ax.set_yticks(where, labels)
    ax.margins(y=0.04)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    level = estimates.lines[0].value.level
    what = "difference of values a decision" if apart else "value a decision"
    return tidy(ax, what, "", f"bar = {level:.0%} interval over units")
