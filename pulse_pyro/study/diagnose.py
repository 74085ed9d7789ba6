"""Stage diagnose: what units the law has not seen say about it."""

from __future__ import annotations

from pathlib import Path

from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.saved import save
from pulse_pyro.diagnostics import Diagnostics, diagnose
from pulse_pyro.report import stage_sections
from pulse_pyro.study.plain import sections_to_plain
from pulse_pyro.study.workspace import (
    Workspace,
    inputs_of,
    open_workspace,
    require,
    unchanged,
    write_stage,
)


def diagnose_study(path: str | Path, out: str | Path | None = None) -> Diagnostics:
    """Check the fitted law of a study on its held-out units; see :func:`diagnose`.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.

    Needs the stage fit, up to date. Writes ``diagnose/diagnostics`` (see :func:`save`),
    ``diagnose/diagnostics.json`` and the page's sections.
    NOT covered: contexts the held-out units do not visit.
    """
    return make_diagnose(open_workspace(path, out))


def make_diagnose(work: Workspace) -> Diagnostics:
    """Diagnose, and write the stage's folder."""
    above = {"fit": require(work, "fit", "diagnose")}
    inputs = inputs_of(work, "diagnose", above)
    fitted, seed = work.fitted, work.study.seed
    own, held_out = work.parts
    found = diagnose(fitted, held_out, archive=own, seed=seed)
    about = {
        "stage": "diagnose",
        "verdict": found.verdict,
        "law_id": fitted.id,
        "seed": seed,
        "checks": records(found.table),
    }
    texts = {
        "diagnostics.json": to_json(about),
        "sections.json": to_json(sections_to_plain(stage_sections("diagnose", found), "diagnose")),
    }
    unchanged(work, "diagnose")
    write_stage(
        work.folder("diagnose"),
        "diagnose",
        fitted.id,
        inputs,
        texts,
        also=lambda folder: save(found, folder / "diagnostics"),
    )
    return found
