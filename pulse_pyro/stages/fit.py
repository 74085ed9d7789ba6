"""Stage fit: the law of W given the past of S, fitted on a share of the units and saved."""

from __future__ import annotations

from pathlib import Path

from pulse_pyro.bundle import save_law
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.report import data_sections, law_sections
from pulse_pyro.stages.inputs import inputs_of, unchanged
from pulse_pyro.stages.plain import records, sections_to_plain, to_json
from pulse_pyro.stages.store import write_stage
from pulse_pyro.stages.workspace import Workspace, open_workspace
from pulse_pyro.study.recipe import fit_law

SHOWN = 100  # parameters listed in fit.json; the saved law has all


def fit_study(path: str | Path, out: str | Path | None = None) -> FittedLaw:
    """Fit the law of a study file and save it in the results folder.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.

    Writes ``fit/law`` (see :func:`save_law`), ``fit/fit.json`` and the page's sections, whole or
    not at all. NOT said by this stage: whether the law is any good; that is for diagnose.
    """
    return make_fit(open_workspace(path, out))


def make_fit(work: Workspace) -> FittedLaw:
    """Fit, and write the stage's folder."""
    inputs = inputs_of(work, "fit", {})
    study, (own, held_out) = work.study, work.parts
    fitted = fit_law(work.law, own, study.inference, study.seed)
    sections = [
        *data_sections(work.history, len(own.units)),
        *law_sections(fitted, held_out, seed=study.seed, card=fitted.card),
    ]
    record = fitted.record
    about = {
        "stage": "fit", "law": fitted.law.label, "law_id": fitted.law_id, "seed": study.seed,
        "inference": record.inference, "rows": record.rows, "dropped": record.dropped,
        "fit_units": len(fitted.fit_units), "held_out_units": len(held_out.units),
        "quality": dict(record.quality), "parameters": records(fitted.table.head(SHOWN)),
    }  # fmt: skip
    texts = {
        "fit.json": to_json(about),
        "sections.json": to_json(sections_to_plain(sections, "fit")),
    }
    unchanged(work, "fit")
    write_stage(work.folder("fit"), "fit", fitted.law_id, inputs, texts,
                also=lambda folder: save_law(fitted, folder / "law"))  # fmt: skip
    return fitted
