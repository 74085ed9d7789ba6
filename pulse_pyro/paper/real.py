"""Real data sets on one page: what each shows, gains and null results alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pulse_pyro._core.arrays import whole
from pulse_pyro._core.as_json import to_json
from pulse_pyro._core.errors import SettingError, nearest
from pulse_pyro._core.files import write_whole
from pulse_pyro._core.parallel import Engine
from pulse_pyro._core.registry import named
from pulse_pyro.data.history import History
from pulse_pyro.paper import DATASETS
from pulse_pyro.paper.case import Case, Finding, RealCase
from pulse_pyro.report.page import Section, write_report, write_svg
from pulse_pyro.report.provenance import versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROVENANCE = (
    "The same files, seed and versions give the same figures, on any number of processes; seconds "
    "differ."
)


def run_cases(
    names: Sequence[str], data: str | Path, *, runs: int, seed: int, engine: Engine
) -> list[Case]:
    """Run the named data sets, each from its folder below ``data``.

    All folders are looked for before anything is run. runs : orders of rounds, at least 2.
    """
    whole(runs, "real: runs", 2)
    cases = [_case_named(name, "real") for name in names]
    homes = [case.inside(data) for case in cases]
    return [
        case.run(home, runs=runs, seed=seed, engine=engine)
        for case, home in zip(cases, homes, strict=True)
    ]


def export_archive(name: str, data: str | Path, out: str | Path) -> History:
    """Write the archive of a data set as CSV, in units that may count as independent.

    Columns: unit, time, then S and W in their own units of measurement. Written whole or not at
    all. Studies of such files stand in notebooks/studies.
    """
    case = _case_named(name, "export")
    if case.archive is None:
        raise SettingError(f"export: {name} has logged decisions, but no archive with S and W.")
    archive = case.archive(case.inside(data))
    write_whole(out, archive.to_frame().to_csv(index=False))
    return archive


def _case_named(name: str, verb: str) -> RealCase:
    if name not in DATASETS:
        raise SettingError(f"{verb}: there is no data set {name!r}{nearest(name, DATASETS)}")
    case: RealCase = named(DATASETS, name)
    return case


def write_cases(cases: Sequence[Case], out: str | Path, *, seed: int) -> Path:
    """Write real.html, real.json and an SVG a picture to a folder; return the page's path."""
    import pandas as pd

    home = Path(out)
    sections = []
    for case in cases:
        sections.append(Section(case.name, f"{case.about}\n\nSource: {case.source}."))
        for number, finding in enumerate(case.findings):
            ax = finding.figure() if finding.figure is not None else None
            sections.append(_section(case, finding, ax))
            if ax is not None:
                write_svg(home / f"{case.name}-{number + 1}.svg", ax, finding.title)
    made = [("seed", str(seed)), *versions()]
    sections.append(
        Section("Provenance", PROVENANCE, pd.DataFrame(made, columns=["what", "value"]))
    )
    plain = {"made_with": dict(made), "cases": [case.to_json() for case in cases]}
    write_whole(home / "real.json", to_json(plain) + "\n")
    verdict = "; ".join(case.headline for case in cases) + "."
    return write_report(home / "real.html", "Real data that nobody here made", verdict, sections)


def _section(case: Case, finding: Finding, ax: Axes | None) -> Section:
    return Section(
        f"{case.name}: {finding.title}",
        finding.verdict,
        finding.table,
        ax,
        finding.reading,
        more=finding.more,
    )
