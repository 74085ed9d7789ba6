"""Stage calibrate: how wrong the law's expected features can be, D_t."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.saved import save
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.uniform import calibrate, calibrate_all
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


def calibrate_study(path: str | Path, out: str | Path | None = None) -> Calibration:
    """Bound the error of the fitted law of a study; see :func:`calibrate`.

    Parameters
    ----------
    path : the study file, with a section [features]. out : the results folder, by default
        ``results`` beside the study.

    Needs the stage fit, up to date. Writes ``calibrate/calibration`` (see :func:`save`),
    ``calibrate/calibration.json`` and the page's sections.
    With [calibration] mode "all" the band uses every unit, see :func:`calibrate_all` for what that
    relies on; the law itself is that of the stage fit, in either mode.
    """
    return make_calibrate(open_workspace(path, out))


def make_calibrate(work: Workspace) -> Calibration:
    """Calibrate, and write the stage's folder."""
    work.features  # noqa: B018  (a fault in it is refused before anything is read)
    above = {"fit": require(work, "fit", "calibrate")}
    inputs = inputs_of(work, "calibrate", above)
    recipe = work.study.recipe
    make, units = (
        (calibrate_all, work.history) if recipe.mode == "all" else (calibrate, work.parts[1])
    )
    found = make(
        work.fitted,
        units,
        work.features,
        level=recipe.level,
        seed=work.study.seed,
        band=recipe.method,
    )
    texts = {
        "calibration.json": to_json(about(found)),
        "sections.json": to_json(
            sections_to_plain(stage_sections("calibrate", found), "calibrate")
        ),
    }
    unchanged(work, "calibrate")
    write_stage(
        work.folder("calibrate"),
        "calibrate",
        found.law_id,
        inputs,
        texts,
        also=lambda folder: save(found, folder / "calibration"),
    )
    return found


def about(found: Calibration) -> dict[str, Any]:
    """Return plain values: verdict, law, level, D_t in short, the table and the checks."""
    d = found.bound
    low, middle, high = (float(v) for v in np.quantile(d, [0.05, 0.5, 0.95]))
    return {
        "stage": "calibrate",
        "verdict": found.verdict,
        "law_id": found.law_id,
        "level": found.level,
        "mode": found.mode,
        "seed": found.seed,
        "band": found.why,
        "D": {
            "mean": float(d.mean()),
            "largest": float(d.max()),
            "median": middle,
            "q05": low,
            "q95": high,
            "root_mean": float(np.sqrt(d).mean()),
            "contexts": len(d),
            "outside_share": found.outside_share,
        },
        "table": records(found.table),
        "checks": records(found.checks_table),
    }
