"""The stages of a study: fit, diagnose, calibrate, simulate; and its plan.

Each stage is computed by a function of its own and written by one and the same, :func:`_make`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.saved import save
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.planner import Plan, plan
from pulse_pyro.calibration.planted import SmallestMisfit, smallest_misfit
from pulse_pyro.calibration.recipe import StoredLaw, fit_law
from pulse_pyro.calibration.split_stability import Stability, stability
from pulse_pyro.diagnostics import Diagnostics, diagnose
from pulse_pyro.envs.simulation import Run
from pulse_pyro.report.calibration import calibration_sections
from pulse_pyro.report.ladder import IN_REWARD, ladder_table, split_table
from pulse_pyro.report.law import data_sections, law_sections
from pulse_pyro.report.page import Section, sections_to_plain, stage_sections
from pulse_pyro.report.policy import policy_sections, radius_sections
from pulse_pyro.study.file import read_study
from pulse_pyro.study.workspace import (
    ABOVE,
    ARTEFACT,
    SAVED,
    SECTIONS,
    Workspace,
    inputs_of,
    open_workspace,
    require,
    unchanged,
    write_stage,
)
from pulse_pyro.study.worlds import RivalWorld, StudyPolicies, StudySimulation, memory_left

Result = TypeVar("Result")
SHOWN = 100  # parameters listed in fit.json; the saved law has all


@dataclass(frozen=True, eq=False)
class StageOutput(Generic[Result]):
    """What a stage has computed.

    result : saved as it is. law_id : of the law it is about. summary : plain values for its JSON
    file. sections : for the page.
    """

    result: Result
    law_id: str
    summary: dict[str, Any]
    sections: list[Section]


def _make(
    work: Workspace, stage: str, compute: Callable[[Workspace], StageOutput[Result]]
) -> Result:
    """Compute a stage and write its folder: the result, its JSON file and its sections."""
    # a fault in a section is refused before anything is read or computed
    if "policy" in SECTIONS.get(stage, ()):
        work.study.stakes()
    if "features" in SECTIONS.get(stage, ()):
        work.features  # noqa: B018
    above = {ABOVE[stage]: require(work, ABOVE[stage], stage)} if stage in ABOVE else {}
    inputs = inputs_of(work, stage, above)
    output = compute(work)
    texts = {
        ARTEFACT[stage]: to_json({"stage": stage, **output.summary}),
        "sections.json": to_json(sections_to_plain(output.sections, stage)),
    }
    unchanged(work, stage)
    write_stage(
        work.folder(stage),
        stage,
        output.law_id,
        inputs,
        texts,
        also=lambda folder: save(output.result, folder / SAVED[stage]),
    )
    return output.result


# Fit: the law of W given the past of S, fitted on a share of the units.


def fit_study(path: str | Path, out: str | Path | None = None) -> StoredLaw:
    """Fit the law of a study file and save it in the results folder.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.

    Writes ``fit/law`` (see :func:`save`), ``fit/fit.json`` and the page's sections, whole or
    not at all. NOT said by this stage: whether the law is any good; that is for diagnose.
    """
    return make_fit(open_workspace(path, out))


def make_fit(work: Workspace) -> StoredLaw:
    """Fit, and write the stage's folder."""
    return _make(work, "fit", _fit)


def _fit(work: Workspace) -> StageOutput[StoredLaw]:
    study, (archive, held_out) = work.study, work.parts
    fitted = fit_law(work.law, archive, study.inference, study.seed)
    record = fitted.record
    summary = {
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
    sections = [
        *data_sections(work.history, len(archive.clusters)),
        *law_sections(fitted, held_out, seed=study.seed, card=fitted.card),
        *stage_sections("fit", fitted),
    ]
    return StageOutput(fitted, fitted.id, summary, sections)


# Diagnose: what units the law has not seen say about it.


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
    return _make(work, "diagnose", _diagnose)


def _diagnose(work: Workspace) -> StageOutput[Diagnostics]:
    fitted, seed, (archive, held_out) = work.fitted, work.study.seed, work.parts
    diagnostics = diagnose(fitted, held_out, archive=archive, seed=seed)
    summary = {
        "verdict": diagnostics.verdict,
        "law_id": fitted.id,
        "seed": seed,
        "checks": records(diagnostics.table),
    }
    return StageOutput(diagnostics, fitted.id, summary, stage_sections("diagnose", diagnostics))


# Calibrate: how wrong the law's expected features can be, D_t.


def calibrate_study(path: str | Path, out: str | Path | None = None) -> Calibration:
    """Bound the error of the fitted law of a study; see :func:`calibrate`.

    Parameters
    ----------
    path : the study file, with a section [features]. out : the results folder, by default
        ``results`` beside the study.

    Needs the stage fit, up to date. Writes ``calibrate/calibration`` (see :func:`save`),
    ``calibrate/calibration.json`` and the page's sections.
    With [calibration] mode "all" the band uses every unit, see :func:`all_units` for what that
    relies on; the law itself is that of the stage fit, in either mode. With splits and misfit there
    (they cost time) :func:`stability` and :func:`smallest_misfit` are told beside the claim.
    """
    return make_calibrate(open_workspace(path, out))


def make_calibrate(work: Workspace) -> Calibration:
    """Calibrate, and write the stage's folder."""
    return _make(work, "calibrate", _calibrate)


def _calibrate(work: Workspace) -> StageOutput[Calibration]:
    study, recipe = work.study, work.study.recipe
    calibration = recipe.bound(
        work.fitted, work.history, work.parts[1], work.features, seed=study.seed
    )
    steady, seen = _scrutiny(work, calibration)
    bound = study.theta_bound
    moved = ladder_table(calibration, bound).get(IN_REWARD)  # None where theta_bound is not known
    summary = {
        "verdict": calibration.verdict,
        "claim": calibration.claim,
        "standing": calibration.standing.name,
        "rungs": records(calibration.ladder.assign(**{IN_REWARD: moved})),
        "theta_bound": bound,
        "stability": None if steady is None else _steadiness(calibration, steady),
        "smallest_misfit": None if seen is None else _misfits(seen),
        "law_id": calibration.law_id,
        "level": calibration.level,
        "mode": calibration.mode,
        "seed": calibration.seed,
        "band": calibration.why,
        **(_bounds(calibration) if calibration.usable else {}),
        "checks": records(calibration.checks_table),
    }
    sections = [
        *calibration_sections(calibration, theta_bound=bound, stability=steady, misfit=seen),
        *stage_sections("calibrate", calibration),
    ]
    return StageOutput(calibration, calibration.law_id, summary, sections)


def _scrutiny(
    work: Workspace, calibration: Calibration
) -> tuple[Stability | None, SmallestMisfit | None]:
    """Return what other splits say, and which misfits would have been seen, where asked for.

    A claim that fails needs no tests that might have seen more.
    """
    study = work.study
    recipe, splits, seed = study.recipe, study.splits, study.seed
    given = (work.law, work.history, work.features)
    steady = stability(*given, recipe=recipe, splits=splits, seed=seed) if splits else None
    asked = study.misfit and calibration.rung("uniform").holds
    return steady, smallest_misfit(*given, recipe=recipe, seed=seed) if asked else None


def _steadiness(calibration: Calibration, found: Stability) -> dict[str, Any]:
    """Return verdicts over splits of every rung, sizes of those that hold, and tests."""
    return {
        "splits": len(found.verdicts),
        "uniform": found.verdict,
        "no_band": float(found.refused.mean()),
        "rungs": records(split_table(calibration, found)),
        "tests": records(found.gates),
    }


def _misfits(found: SmallestMisfit) -> dict[str, Any]:
    """Return the smallest misfits that would have been seen, and how often none was there."""
    return {
        "power": found.power,
        "level": found.level,
        "false_alarms": found.false_alarms,
        "tested": found.tested,
        "misfits": records(found.table),
    }


def _bounds(calibration: Calibration) -> dict[str, Any]:
    """Return D_t and the table of targets: only where the claim behind them holds."""
    d, feeds = calibration.bound, calibration.feeds
    assert feeds is not None  # else it is not usable
    low, middle, high = (float(v) for v in np.quantile(d, [0.05, 0.5, 0.95]))
    return {
        "D": {
            "rung": feeds.name,
            "benchmark": feeds.benchmark,
            "rests_on": feeds.rests_on,
            "mean": float(d.mean()),
            "largest": float(d.max()),
            "median": middle,
            "q05": low,
            "q95": high,
            "root_mean": float(np.sqrt(d).mean()),
            "contexts": len(d),
            "outside_share": calibration.outside_share,
        },
        "table": records(calibration.table),
    }


# Simulate: policies in a known world, or on real contexts with a truth that is made up.


def simulate_study(path: str | Path, out: str | Path | None = None) -> Run:
    """Play policies on the held-out contexts of a study; rewards are made up.

    Parameters
    ----------
    path : the study file, with sections [features] and [policy]. out : the results folder, by
        default ``results`` beside the study.

    Real: S of the held-out units, in their order of time. Made up: W, drawn from a truth that is
    the same kind of law fitted on the held-out units (so that the policies' law, fitted on the
    others, is wrong by what estimation costs, and by nothing else); theta*, drawn on the sphere of
    radius theta_bound, eight times; the reward noise, as [policy] says. Up to 2,000 rounds.

    Needs the stages fit and calibrate, up to date. Writes ``simulate/run`` (see :func:`save`),
    ``simulate/run.json`` and the page's sections. It compares policies where the law is of the
    right kind. NOT a forecast of regret: an archive holds no rewards, and a law of the wrong kind
    is not among what is tried. NOT a test of the calibrated bound: the truth is fitted on the units
    of the calibration's reference band.
    """
    return make_simulate(open_workspace(path, out))


def make_simulate(work: Workspace) -> Run:
    """Simulate, in the world that is known or in one made up; write the stage's folder."""
    return _make(work, "simulate", _simulate)


def _simulate(work: Workspace) -> StageOutput[Run]:
    study = work.study
    policies = StudyPolicies(
        names=study.agents(),
        law=work.fitted,
        archive=work.parts[0],
        calibration=work.calibration,
        stakes=study.stakes(),
        seed=study.seed,
        memory=memory_left(work.fitted, work.parts[1]),
    )
    failed = not work.calibration.usable
    world = work.world or _rival_world(work)
    played = world.play(policies)
    _, runs, rounds = played.run.regret.shape
    summary = {
        "law_id": work.fitted.id,
        "truth_id": played.truth_id,
        "seed": study.seed,
        "runs": runs,
        "rounds": rounds,
        "outside_share": None if failed else played.outside,
        "notes": played.notes,
        "heuristic": dict(played.heuristic),
        "rests_on": {
            name: bound.rests_on
            for name, bound in zip(played.run.names, played.run.bounds, strict=True)
            if bound.rests_on and not bound.heuristic
        },
        "table": records(played.run.table),
    }
    sections = [
        Section("What was played", played.text),
        *_radius(
            played,
            work.calibration,
            "a check of the calibration failed" if failed else policies.memory,
        ),
        *policy_sections(played.run, played.agents, votes=played.votes),
        *stage_sections("simulate", played.run),
    ]
    return StageOutput(played.run, work.fitted.id, summary, sections)


def _radius(played: StudySimulation, calibration: Calibration, invalid: str) -> list[Section]:
    """Return what the calibrated radius is made of; invalid : why it bounds nothing, "" if it may.

    A claim that failed is not shown as a number.
    """
    if played.parts is None:
        return []
    if invalid:
        text = f"Not shown: {invalid}, so no radius of the confidence ball holds."
        return [Section("Radius", text)]
    feeds = calibration.feeds
    assert feeds is not None  # the policy has errors to play with
    return radius_sections(
        played.parts, outside=played.outside, rests_on=feeds.rests_on, benchmark=feeds.benchmark
    )


def _rival_world(work: Workspace) -> RivalWorld:
    policy = work.study.policy
    return RivalWorld(
        model=work.law,
        inference=work.study.inference,
        held_out=work.parts[1],
        features=work.features,
        reward_sd=policy.number("reward_sd") if policy and "reward_sd" in policy else None,
    )


# Plan: how much history is enough.


def plan_study(path: str | Path) -> Plan:
    """Plan what a study file describes; see :func:`read_study` and :func:`plan`."""
    study = read_study(path)
    stakes = study.stakes()  # refused before the data are read, not after
    return plan(
        study.history(),
        study.law(),
        study.features(),
        stakes=stakes,
        recipe=study.recipe,
        seed=study.seed,
    )
