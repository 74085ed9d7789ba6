"""Stage report: one page put together from what the other stages wrote; nothing is refitted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pulse_pyro._core.errors import BundleError
from pulse_pyro.base import Verdict, worst_verdict
from pulse_pyro.report.ladder import headline
from pulse_pyro.report.page import Section, sections_from_plain, write_report
from pulse_pyro.report.provenance import provenance_sections
from pulse_pyro.study.workspace import (
    ARTEFACT,
    Record,
    Workspace,
    digest,
    files,
    inputs_of,
    open_workspace,
    read_json,
    read_record,
    require,
    title_of,
    wanted,
    write_record,
)


@dataclass(frozen=True)
class StudyReport:
    """The page of a study.

    Attributes
    ----------
    path : the page. law_id : of the law all of it is about.
    verdicts : stage -> verdict, of diagnose and, where the study has [features], calibrate.
    text : the sentence at its head.
    """

    path: Path
    law_id: str
    verdicts: dict[str, Verdict]
    text: str

    @property
    def verdict(self) -> Verdict:
        """The worst of the verdicts."""
        return worst_verdict(self.verdicts.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "stage": "report",
            "verdict": self.verdict,
            "verdicts": self.verdicts,
            "law_id": self.law_id,
            "text": self.text,
            "report": str(self.path),
        }

    def __repr__(self) -> str:
        return f"{self.text}\nReport: {self.path}"


def report_study(path: str | Path, out: str | Path | None = None) -> StudyReport:
    """Put the page of a study together from its artefacts.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.

    Needs every stage the study has sections for, up to date. Artefacts of different laws are
    refused. Writes ``report.html`` and, beside it, ``report.json`` with what it was made from.
    """
    return make_report(open_workspace(path, out))


def make_report(work: Workspace) -> StudyReport:
    """Write the page."""
    stages = wanted(work)
    _one_law(work, stages)
    above = {stage: require(work, stage, "report") for stage in stages}
    report = read_report(work)
    sections: list[Section] = []
    for stage in stages:
        sections += sections_from_plain(read_json(work.folder(stage) / "sections.json"))
    study = work.study
    law_ids = {stage: record.law_id for stage, record in above.items()}
    sections += provenance_sections(law_ids, seed=study.seed, hashes=_hashes(work, above))
    title = f"PULSE-UCB study: {title_of(study.path)}"
    write_report(report.path, title, report.text, sections)
    files = {report.path.name: digest(report.path.read_bytes())}
    inputs = inputs_of(work, "report", above)
    write_record(work.record("report"), Record("report", report.law_id, inputs, files))
    return report


def read_report(work: Workspace) -> StudyReport:
    """Return the verdict the artefacts give, without writing a page."""
    about = {stage: read_json(work.folder(stage) / ARTEFACT[stage]) for stage in wanted(work)}
    verdicts: dict[str, Verdict] = {
        stage: about[stage]["verdict"] for stage in ("diagnose", "calibrate") if stage in about
    }
    law_id = about["fit"]["law_id"]
    worst = worst_verdict(verdicts.values())
    return StudyReport(work.out / "report.html", law_id, verdicts, _sentence(worst, about))


def _one_law(work: Workspace, stages: list[str]) -> None:
    """Refuse artefacts of different laws, by what each says of itself."""
    ids = {
        stage: read_record(work.record(stage)).law_id
        for stage in stages
        if work.record(stage).exists()
    }
    for stage, law_id in ids.items():
        if law_id != ids.get("fit", law_id):
            raise BundleError(
                f"report: law_id mismatch: {work.folder(stage)} is about law {law_id}, but "
                f"{work.folder('fit')} holds law {ids['fit']}; pulse-pyro run {work.study.path} "
                "makes them agree."
            )


def _hashes(work: Workspace, above: dict[str, Record]) -> dict[str, str]:
    """Return name -> SHA-256 of the study's own files and of what its stages wrote.

    Own files are named relative to the study: two of one name in two folders are two files.
    """
    folder = work.study.path.parent
    out = {
        PurePath(os.path.relpath(path, folder)).as_posix(): work.opened[name]
        for name, path in files(work.study).items()
        if path is not None
    }
    for stage, record in above.items():
        wrote = record.files.items()  # sections are on the page itself
        out |= {f"{stage}/{name}": sha for name, sha in wrote if name != "sections.json"}
    return out


SHOWN = {
    "committee": "a committee inside the guard",
    "guarded": "PULSE-UCB inside the guard",
    "pulse": "with the constant radius 2",
    "pulse_calibrated": "with the ball as a bonus",
    "oful": "without W",
    "oful_lags": "without W, on raw lags",
    "oful_lags_rewards": "on raw lags and the last reward",
}


def _sentence(worst: Verdict, about: dict[str, dict[str, Any]]) -> str:
    names = {"diagnose": "the law on held-out units", "calibrate": "the bound on its error"}
    verdicts = [f"{names[s]}: {about[s]['verdict']}" for s in names if s in about]
    out = f"{worst.capitalize()} ({'; '.join(verdicts)})."
    bad = [
        check["name"]
        for stage in names
        if stage in about
        for check in about[stage]["checks"]
        if check["verdict"] == worst and worst in ("warn", "fail")
    ]
    if bad:
        out += f" Look first at: {', '.join(bad[:4])}."
    if "calibrate" in about:
        bound = about["calibrate"]
        told = headline([(rung["verdict"], rung["claim"]) for rung in bound["rungs"]])
        out += f" How far off can the law's expectation be? {told}"
        if bound["rungs"][0]["verdict"] == "fails":
            out += " No bound holds at every context at once: see the ladder."
    if "simulate" in about:
        run = about["simulate"]
        rows = {row["agent"]: row for row in run["table"]}
        shown = [f"{words} {_regret(rows[name])}" for name, words in SHOWN.items() if name in rows]
        known_world = run["truth_id"] is None
        where = "in a known world" if known_world else "on real contexts with made-up rewards"
        out += (
            f" Played {where}, {run['rounds']:,} rounds: regret against the best policy that sees "
            f"only S, {', '.join(shown)}{'' if known_world else '; no forecast'}."
        )
        for why in dict.fromkeys(run["heuristic"].values()):
            out += f" The guard is a heuristic here, no guarantee: {why}."
    return out


def _regret(row: dict[str, Any]) -> str:
    se = row["se_cond"]  # None: one run has none
    return f"{row['regret_cond']:.1f}" + ("" if se is None else f" (se {se:.1f})")
