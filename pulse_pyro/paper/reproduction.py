"""The paper's numerical section as files: results.json, a figure an experiment, one page."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulse_pyro._core.as_json import to_json
from pulse_pyro._core.files import write_whole
from pulse_pyro.paper.figures import experiment_figure
from pulse_pyro.paper.findings import findings
from pulse_pyro.paper.result import CLOSE, UNEXPLAINED, Result
from pulse_pyro.report.page import Section, write_report, write_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

INTRODUCTION = (
    "Each paragraph is made from the figures below, and left out where they do not show it."
)
READING = "Mean over runs, bars or bands of one standard error; crosses are the printed figures."


def counts_of(results: Sequence[Result]) -> dict[str, int]:
    """How many published figures were reproduced, differ for a stated reason, or do not."""
    return {
        kind: sum(result.counts[kind] for result in results)
        for kind in ("reproduced", "differs", UNEXPLAINED)
    }


def verdict_of(results: Sequence[Result]) -> str:
    """One sentence over all experiments, and what stands behind its figures."""
    counts = counts_of(results)
    rows = [(result.name, row) for result in results for row in result.rows if row.verdict]
    distinct = len({(row.agent, row.regret, row.se) for _, row in rows})
    near = sum(row.ratio is not None and abs(row.ratio - 1) <= CLOSE for _, row in rows)
    return (
        f"Of {sum(counts.values())} comparisons with published figures {counts['reproduced']} are "
        f"reproduced, {counts['differs']} differ for a reason that was checked, "
        f"{counts[UNEXPLAINED]} are unexplained. Reproduced: within 15 % ({near} are) or two "
        "combined standard errors, give or take half the last printed digit. Tables repeat "
        "figures, and where a script departs from the paper its figures are compared twice, as run "
        f"and as stated: the comparisons rest on {distinct} distinct measurements."
    )


def overview(results: Sequence[Result]) -> DataFrame:
    """One line per experiment: its counts, runs and seconds of work."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"experiment": r.name, **r.counts, "runs": r.rows[0].runs, "seconds": r.seconds}
            for r in results
        ]
    )


def wide(result: Result) -> DataFrame:
    """Every agent of an experiment beside each other: regret (standard error) by setting."""
    table = result.table[result.table["setting"].isin(list(result.curves))].copy()
    table["shown"] = [
        f"{r:.3g} ({e:.2g})" for r, e in zip(table["regret"], table["se"], strict=True)
    ]
    out = table.pivot(index="agent", columns="setting", values="shown")
    out = out.loc[list(dict.fromkeys(table["agent"])), list(result.curves)]
    out.columns.name = None
    return out.fillna("")


def reproduction_json(results: Sequence[Result]) -> dict[str, Any]:
    """Plain values of everything, with seed and versions."""
    packages = ("numpy", "scipy", "numba", "pyro-ppl", "torch")
    return {
        "verdict": verdict_of(results),
        "counts": counts_of(results),
        "seed": results[0].seed,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        "experiments": [result.to_json() for result in results],
    }


def write_reproduction(results: Sequence[Result], folder: str | Path) -> Path:
    """Write results.json, NAME.svg and reproduction.html to ``folder``; return the page's path."""
    home = Path(folder)
    write_whole(home / "results.json", to_json(reproduction_json(results)))
    sections = [
        Section(
            "What holds and what does not",
            "\n\n".join([INTRODUCTION, *findings(results)]),
            overview(results),
        )
    ]
    for result in results:
        ax = experiment_figure(result)
        sections.append(_section(result, ax))
        write_svg(home / f"{result.name}.svg", ax, sections[-1].title)
    return write_report(
        home / "reproduction.html",
        "The numerical section of the paper, run again",
        verdict_of(results),
        sections,
    )


def _section(result: Result, ax: Axes) -> Section:
    gap = result.table["info_gap"].mean()
    more = [
        (
            "All agents: regret against the full-context oracle (standard error). On average over "
            f"settings the best policy that sees only S has {gap:.3g}, the information gap.",
            wide(result),
        ),
    ]
    if result.extra is not None:
        more.append(("Further figures.", result.extra))
    return Section(
        f"{result.name}: {result.experiment.title}",
        f"{result.experiment.about}\n\n{result!r}. Seed {result.seed}.",
        beside_published(result),
        ax,
        READING,
        more=tuple(more),
    )


def beside_published(result: Result) -> DataFrame | None:
    """Measured beside published, a line each; None if nothing was published."""
    import pandas as pd

    rows = [row for row in result.rows if row.published is not None]
    lines = [
        {
            "setting": row.setting,
            "agent": row.agent,
            "measured (se)": f"{row.regret:.3g} ({row.se:.2g})",
            "published": f"{row.published:g}",
            "ratio": "" if row.ratio is None else f"{row.ratio:.2f}",
            "verdict": row.verdict + (f": {row.why}" if row.why else ""),
        }
        for row in rows
    ]
    return pd.DataFrame(lines) if lines else None
