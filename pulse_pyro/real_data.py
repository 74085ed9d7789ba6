"""Real data sets on one page: what each shows, gains and null results alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulse_pyro.cases.beijing import beijing_case
from pulse_pyro.cases.case import Case, Finding
from pulse_pyro.errors import DataError, SettingError, nearest
from pulse_pyro.files import write_whole
from pulse_pyro.parallel import Engine
from pulse_pyro.report import Section, figure_svg, write_report

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Known(NamedTuple):
    """A data set: the folder it is unpacked to, and what is asked of it."""

    folder: str
    run: Callable[..., Case]


CASES: dict[str, Known] = {
    "beijing": Known("beijing_multisite", beijing_case),
}


def run_cases(
    names: Sequence[str], data: str | Path, *, runs: int, seed: int, engine: Engine
) -> list[Case]:
    """Run the named data sets, each from its folder below ``data``.

    All folders are looked for before anything is run. runs : orders of rounds, at least 2.
    """
    for name in names:
        if name not in CASES:
            raise SettingError(f"real: there is no data set {name!r}{nearest(name, CASES)}")
        home = Path(data) / CASES[name].folder
        if not home.is_dir():
            raise DataError(
                f"real: {home} is not a folder; data sets are not part of the package: --data must "
                f"name the folder that holds {CASES[name].folder}."
            )
    return [
        CASES[name].run(Path(data) / CASES[name].folder, runs=runs, seed=seed, engine=engine)
        for name in names
    ]


def write_cases(cases: Sequence[Case], out: str | Path) -> Path:
    """Write real.html, real.json and an SVG a picture to a folder; return the page's path."""
    home = Path(out)
    sections = []
    for case in cases:
        sections.append(Section(case.name, f"{case.about}\n\nSource: {case.source}."))
        for number, finding in enumerate(case.findings):
            ax = finding.figure() if finding.figure is not None else None
            sections.append(_section(case, finding, ax))
            if ax is not None:
                stem = f"{case.name}-{number + 1}"
                write_whole(home / f"{stem}.svg", figure_svg(ax, stem, finding.title))
    write_whole(home / "real.json", json.dumps([case.to_json() for case in cases], indent=1) + "\n")
    verdict = " ".join(case.findings[0].verdict for case in cases)
    return write_report(home / "real.html", "Real data that nobody here made", verdict, sections)


def _section(case: Case, finding: Finding, ax: Axes | None) -> Section:
    return Section(
        f"{case.name}: {finding.title}", finding.verdict, finding.table, ax, finding.reading,
        more=finding.more,
    )  # fmt: skip
