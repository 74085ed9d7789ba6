"""Stage fit: the law of W given the past of S, fitted on a share of the units and saved."""

from __future__ import annotations

from pathlib import Path

from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.saved import save
from pulse_pyro.calibration.recipe import fit_law
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.report import data_sections, law_sections, stage_sections
from pulse_pyro.study.plain import sections_to_plain
from pulse_pyro.study.workspace import Workspace, inputs_of, open_workspace, unchanged, write_stage

SHOWN = 100  # parameters listed in fit.json; the saved law has all


def fit_study(path: str | Path, out: str | Path | None = None) -> PosteriorLaw:
    """Fit the law of a study file and save it in the results folder.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.

    Writes ``fit/law`` (see :func:`save`), ``fit/fit.json`` and the page's sections, whole or
    not at all. NOT said by this stage: whether the law is any good; that is for diagnose.
    """
    return make_fit(open_workspace(path, out))


def make_fit(work: Workspace) -> PosteriorLaw:
    """Fit, and write the stage's folder."""
    inputs = inputs_of(work, "fit", {})
    study, (own, held_out) = work.study, work.parts
    fitted = fit_law(work.law, own, study.inference, study.seed)
    sections = [
        *data_sections(work.history, len(own.clusters)),
        *law_sections(fitted, held_out, seed=study.seed, card=fitted.card),
        *stage_sections("fit", fitted),
    ]
    record = fitted.record
    about = {
        "stage": "fit",
        "law": fitted.law.label,
        "law_id": fitted.id,
        "seed": study.seed,
        "inference": record.inference,
        "rows": record.rows,
        "dropped": record.dropped,
        "fit_units": len(fitted.units),
        "held_out_units": len(held_out.clusters),
        "quality": dict(record.quality),
        "parameters": records(fitted.table.head(SHOWN)),
    }
    texts = {
        "fit.json": to_json(about),
        "sections.json": to_json(sections_to_plain(sections, "fit")),
    }
    unchanged(work, "fit")
    write_stage(
        work.folder("fit"),
        "fit",
        fitted.id,
        inputs,
        texts,
        also=lambda folder: save(fitted, folder / "law"),
    )
    return fitted
