"""Real data sets on one page: what each shows, gains and null results alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulse_pyro.arrays import whole
from pulse_pyro.cases.beijing import beijing_case
from pulse_pyro.cases.case import Case, Finding
from pulse_pyro.cases.heartsteps import heartsteps_case
from pulse_pyro.cases.open_bandit import open_bandit_case
from pulse_pyro.cases.oulad import oulad_case
from pulse_pyro.datasets.beijing import load_beijing
from pulse_pyro.datasets.heartsteps import load_heartsteps
from pulse_pyro.datasets.oulad import load_oulad
from pulse_pyro.errors import DataError, SettingError, nearest
from pulse_pyro.files import write_whole
from pulse_pyro.history import History
from pulse_pyro.parallel import Engine
from pulse_pyro.report import Section, figure_svg, write_report
from pulse_pyro.report.provenance import versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PROVENANCE = (
    "The same files, seed and versions give the same figures, on any number of processes; seconds "
    "differ."
)


class Known(NamedTuple):
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


CASES: dict[str, Known] = {
    "beijing": Known("beijing_multisite", beijing_case, lambda home: load_beijing(home).pieces),
    "heartsteps": Known(
        "heartsteps_v1", heartsteps_case, lambda home: load_heartsteps(home).history()
    ),
    "oulad": Known("oulad", oulad_case, lambda home: load_oulad(home).pieces),
    "open-bandit": Known("open_bandit_sample", open_bandit_case),
}


def run_cases(
    names: Sequence[str], data: str | Path, *, runs: int, seed: int, engine: Engine
) -> list[Case]:
    """Run the named data sets, each from its folder below ``data``.

    All folders are looked for before anything is run. runs : orders of rounds, at least 2.
    """
    whole(runs, "real: runs", 2)
    homes = [_known(name, "real").inside(data) for name in names]
    return [
        CASES[name].run(home, runs=runs, seed=seed, engine=engine)
        for name, home in zip(names, homes, strict=True)
    ]


def export_archive(name: str, data: str | Path, out: str | Path) -> History:
    """Write the archive of a data set as CSV, in units that may count as independent.

    Columns: unit, time, then S and W in their own units of measurement. Written whole or not at
    all. Studies of such files stand in notebooks/studies.
    """
    known = _known(name, "export")
    if known.archive is None:
        raise SettingError(f"export: {name} has logged decisions, but no archive with S and W.")
    found = known.archive(known.inside(data))
    write_whole(out, found.to_frame().to_csv(index=False))
    return found


def _known(name: str, verb: str) -> Known:
    if name not in CASES:
        raise SettingError(f"{verb}: there is no data set {name!r}{nearest(name, CASES)}")
    return CASES[name]


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
                stem = f"{case.name}-{number + 1}"
                write_whole(home / f"{stem}.svg", figure_svg(ax, stem, finding.title))
    made = [("seed", str(seed)), *versions()]
    sections.append(
        Section("Provenance", PROVENANCE, pd.DataFrame(made, columns=["what", "value"]))
    )
    plain = {"made_with": dict(made), "cases": [case.to_json() for case in cases]}
    write_whole(home / "real.json", json.dumps(plain, indent=1, allow_nan=False) + "\n")
    verdict = "; ".join(case.headline for case in cases) + "."
    return write_report(home / "real.html", "Real data that nobody here made", verdict, sections)


def _section(case: Case, finding: Finding, ax: Axes | None) -> Section:
    return Section(
        f"{case.name}: {finding.title}", finding.verdict, finding.table, ax, finding.reading,
        more=finding.more,
    )  # fmt: skip
