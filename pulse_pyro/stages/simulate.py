"""Stage simulate: policies on real contexts, against a truth that is another fit."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from pulse_pyro.arrays import Bool, Float3
from pulse_pyro.calibration.calibration import reward_bound
from pulse_pyro.errors import PulseError
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.progress import bar
from pulse_pyro.report import Section, policy_sections, radius_parts, radius_sections
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.simulation.run import Agent, Run, cond_oracle, simulate
from pulse_pyro.stages.inputs import inputs_of, require, unchanged
from pulse_pyro.stages.online import Played, Reward, make_played, usable_rows
from pulse_pyro.stages.plain import records, sections_to_plain, to_json
from pulse_pyro.stages.store import write_stage
from pulse_pyro.stages.workspace import Workspace, open_workspace
from pulse_pyro.study.recipe import fit_law
from pulse_pyro.summary import Lags, Summary

RUNS = 8  # each with a theta* and an order of units of its own
AGENTS = (  # what each is, for the reader of the page
    "pulse plays the constant radius 2, which nothing guarantees; pulse_calibrated the corrected "
    "radius with the errors of the calibration, which is cautious; pulse_adaptive lets rewards "
    "repair the law where its posterior is unsure. oful leaves W out, oful_lags uses the raw lags "
    "of S; oful_full knows W but must learn theta, cond_oracle knows theta but not W."
)
MOST = 2000  # rounds: the refined radius takes time that grows with their square


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

    Needs the stages fit and calibrate, up to date. Writes ``simulate/run.json`` and the page's
    sections. It compares policies where the law is of the right kind. NOT a forecast of regret: an
    archive holds no rewards, and a law of the wrong kind is not among what is tried. NOT a test of
    the calibrated bound: the truth is fitted on the units of the calibration's reference band.
    """
    return make_simulate(open_workspace(path, out))


def make_simulate(work: Workspace) -> Run:
    """Simulate, and write the stage's folder."""
    study = work.study
    stakes = study.stakes()
    above = {"calibrate": require(work, "calibrate", "simulate")}
    inputs = inputs_of(work, "simulate", above)
    fitted, held_out, features = work.fitted, work.parts[1], work.features
    truth = fit_law(work.law, held_out, study.inference, study.seed)
    usable = usable_rows(fitted, held_out) & usable_rows(truth, held_out)
    rounds = min(stakes.horizon, MOST, int(usable.sum()))
    own = study.policy.number("reward_sd", -1.0) if study.policy is not None else -1.0
    reward = Reward(stakes, own if own >= 0 else None)
    notes: list[str] = []
    runs, inside = [], []
    parts: Float3 | None = None
    for r in bar(range(RUNS), label="simulate"):
        rng = stream(study.seed, "simulate", r)
        played = make_played(truth, held_out, usable, features, reward, rounds, rng)
        agents = _agents(work, played, fitted, notes)
        runs.append(simulate(played.world, [*agents, cond_oracle(played.world)]))
        inside.append(_inside(work, played))
        if r == 0:
            parts = radius_parts(next(a for a in agents if a.name == "pulse_calibrated"), runs[0])
    found = _merged(runs)
    outside = float(1.0 - np.mean(inside))
    assert parts is not None
    sections = [
        Section("What was played", _said(work, rounds, int(usable.sum()), truth, notes)),
        *radius_sections(parts, outside=outside),
        *policy_sections(found, AGENTS),
    ]
    about = {
        "stage": "simulate", "law_id": fitted.law_id, "truth_id": truth.law_id,
        "seed": study.seed, "runs": RUNS, "rounds": rounds, "outside_share": outside,
        "notes": notes, "table": records(found.table),
    }  # fmt: skip
    texts = {
        "run.json": to_json(about),
        "sections.json": to_json(sections_to_plain(sections, "simulate")),
    }
    unchanged(work, "simulate")
    write_stage(work.folder("simulate"), "simulate", fitted.law_id, inputs, texts)
    return found


def _agents(work: Workspace, played: Played, fitted: FittedLaw, notes: list[str]) -> list[Agent]:
    stakes, grid = work.study.stakes(), played.grid
    size, seed = stakes.theta_bound, work.study.seed
    error = reward_bound(work.calibration.error_at(grid.s), size)
    radius = work.calibration.radius(sigma=stakes.sigma, delta=stakes.delta, theta_bound=size)
    made = [
        pulse(grid, fitted, seed=seed),
        pulse(grid, fitted, name="pulse_calibrated", radius=radius.refined(), error=error,
              seed=seed),
    ]  # fmt: skip
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made.append(pulse_adaptive(grid, fitted, work.parts[0].s, theta_bound=size, seed=seed))
        fresh = [str(each.message) for each in said]
    except PulseError as refusal:  # not every law can be repaired: the others still play
        fresh = [f"pulse_adaptive is left out: {refusal}"]
    notes += [text for text in fresh if text not in notes]
    made.append(oful(grid))
    lags = _lags(fitted)
    if lags is not None:
        made.append(oful_lags(grid, lags))
    made.append(oful_full(grid))
    return [played.agent(agent, stakes.ridge) for agent in made]


def _lags(fitted: FittedLaw) -> Summary | None:
    """Return the raw lags a law looks at, where there is more than the current row."""
    raw = fitted.summary.window if isinstance(fitted.summary, Filtered) else fitted.summary
    return raw if isinstance(raw, Lags) and raw.memory > 1 else None


def _inside(work: Workspace, played: Played) -> float:
    found: Bool = work.calibration.inside_at(played.grid.s)[played.rounds]
    return float(found.mean())


def _merged(runs: list[Run]) -> Run:
    first = runs[0]
    action, regret, cond = (
        np.concatenate([getattr(run, name) for run in runs], axis=1)
        for name in ("action", "regret", "regret_cond")
    )
    return Run(first.names, action, regret, cond, np.concatenate([run.info_gap for run in runs]))


def _said(work: Workspace, rounds: int, rows: int, truth: FittedLaw, notes: list[str]) -> str:
    stakes, held_out = work.study.stakes(), work.parts[1]
    short = "" if rounds == stakes.horizon else (
        f" [policy] asks for {stakes.horizon:,} rounds; {rows:,} held-out rows can be played, and "
        f"never more than {MOST:,}."
    )  # fmt: skip
    return (
        f"Real: the contexts S of {len(held_out.units)} held-out units, one unit after the other, "
        f"each in its order of time; {rounds:,} rounds a run.{short}\n\n"
        "Made up, since an archive holds no rewards: W is drawn anew from a truth, the same kind "
        f"of law fitted on the held-out units ({truth.law_id}), so the policies' law, fitted on "
        "the other units, is wrong by what estimation costs and by nothing else. theta* is drawn "
        f"on the sphere of radius {stakes.theta_bound:g}, anew in each of {RUNS} runs; the reward "
        "noise is that of [policy].\n\n"
        "It shows how policies compare if the law is of the right kind. It is no forecast of "
        "regret: the real theta* is not known, and a law of the wrong kind is not among what was "
        "tried. The truth is fitted on the same held-out units as the calibration's reference "
        "band, so here the calibrated bound is close to true by construction: that it holds in "
        "this simulation is no evidence that it holds elsewhere."
        + "".join(f"\n\nNote: {note}" for note in notes)
    )
