"""Stage diagnose: what units the law has not seen say about it."""

from __future__ import annotations

from pathlib import Path

from pulse_pyro.diagnostics import Diagnostics, diagnose
from pulse_pyro.report import diagnostics_sections
from pulse_pyro.stages.inputs import inputs_of, require, unchanged
from pulse_pyro.stages.plain import records, sections_to_plain, to_json
from pulse_pyro.stages.store import write_stage
from pulse_pyro.stages.workspace import Workspace, open_workspace


def diagnose_study(path: str | Path, out: str | Path | None = None) -> Diagnostics:
    """Check the fitted law of a study on its held-out units; see :func:`diagnose`.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.

    Needs the stage fit, up to date. Writes ``diagnose/diagnostics.json`` and the page's sections.
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
        "stage": "diagnose", "verdict": found.verdict, "law_id": fitted.law_id, "seed": seed,
        "checks": records(found.table),
    }  # fmt: skip
    texts = {
        "diagnostics.json": to_json(about),
        "sections.json": to_json(sections_to_plain(diagnostics_sections(found), "diagnose")),
    }
    unchanged(work, "diagnose")
    write_stage(work.folder("diagnose"), "diagnose", fitted.law_id, inputs, texts)
    return found
