"""Stage simulate: policies in a known world, or on real contexts with a truth that is made up."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pulse_pyro._core.arrays import Array, Bool, Float
from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.registry import named
from pulse_pyro._core.saved import save
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Inference
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.recipe import fit_law
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.envs import POLICIES
from pulse_pyro.envs.seats import Seat
from pulse_pyro.envs.simulation import Agent, Run, cond_oracle, simulate
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features, expected_features
from pulse_pyro.laws.filtering import StateSpace
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.law import Law
from pulse_pyro.report import (
    Section,
    policy_sections,
    radius_parts,
    radius_sections,
    stage_sections,
)
from pulse_pyro.study.plain import sections_to_plain
from pulse_pyro.study.workspace import (
    Workspace,
    inputs_of,
    open_workspace,
    require,
    unchanged,
    write_stage,
)
from pulse_pyro.study.world import Played

# Real contexts with made-up W and rewards: what a study can simulate without any rewards.


SIZE = 512  # Monte Carlo draws of expected features, where they are not closed form
POOL = 128  # draws of W a round's own is picked from


@dataclass(frozen=True)
class Reward:
    """How rewards are made up: theta* on the sphere of radius S, Gaussian noise.

    noise_sd : of the reward given the full context; None: whatever is left of ``stakes.sigma``
        after what W adds, so that the reward given S varies with sd sigma on average.
    """

    stakes: Stakes
    noise_sd: float | None = None

    def theta(self, dim: int, rng: np.random.Generator) -> Float:
        """Draw theta*, (d,), uniformly on the sphere."""
        direction = rng.standard_normal(dim)
        return np.asarray(self.stakes.theta_bound * direction / np.linalg.norm(direction))

    def noise(self, context: Float, rng: np.random.Generator) -> Float:
        """Draw noise (unit, time); context : theta*'(Phi - E[Phi | S]), (unit, time, action)."""
        sd = self.noise_sd
        if sd is None:
            sd = math.sqrt(max(self.stakes.sigma**2 - float(np.nanmean(context**2)), 0.0))
        return sd * rng.standard_normal(context.shape[:2])


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """One run: whole units one after the other, each in its own order of time.

    grid : the world by unit, (unit, time), so that lags and filters see each unit from its start;
    rounds : (unit, time) which rows are rounds.
    """

    grid: World
    rounds: Bool

    def line(self, values: Array) -> Array:
        """Put values (unit, time, ...) in the order they are played: (1, rounds, ...)."""
        return values[self.rounds][None]

    @property
    def world(self) -> World:
        """The rounds in a row, as one run."""
        g = self.grid
        s, w, phi, phibar, noise = (self.line(v) for v in (g.s, g.w, g.phi, g.phibar, g.noise))
        return replace(g, s=s, w=w, phi=phi, phibar=phibar, noise=noise)

    def agent(self, agent: Agent, ridge: float) -> Agent:
        """Return an agent of the grid as one that plays the rounds in a row."""
        error = self.line(agent.error) if isinstance(agent.error, np.ndarray) else agent.error
        return replace(agent, x=self.line(agent.x), error=error, ridge=ridge)


def usable_rows(law: PosteriorLaw, history: History) -> Bool:
    """Tell which rows can be rounds, (rows,): S_t and all inputs are seen."""
    x = history.inputs(law.summary)
    seen: Bool = np.asarray(np.isfinite(x).all(-1) & np.isfinite(history.s).all(-1))
    if not seen.any():
        raise DataError("simulate: no held-out row has all its inputs; use fewer lags.")
    return seen


def make_played(
    truth: PosteriorLaw,
    held_out: History,
    usable: Bool,
    features: Features,
    reward: Reward,
    rounds: int,
    rng: np.random.Generator,
) -> SimulatedRun:
    """Draw one run of so many rounds on the contexts of held-out units, in random order.

    Parameters
    ----------
    truth : the law W is drawn from; each round is a draw of its own from the posterior predictive,
        so that W_t given S_1:t is free of earlier W, as the theorem wants.
    usable : (rows,) of :func:`usable_rows`; at least ``rounds`` of them.
    reward : how theta* and the noise are made up.
    """
    order = rng.permutation(len(held_out.units))
    count = np.cumsum(np.bincount(held_out.unit_of[usable], minlength=len(order))[order])
    order = order[: int(np.searchsorted(count, rounds)) + 1]
    part, played = held_out.take(order), usable[held_out.rows_of(order)]
    chosen = part.on_grid(played & (np.cumsum(played) <= rounds), empty=False)
    end = int(np.flatnonzero(chosen.any(0))[-1]) + 1  # of a long unit only the rows that are played
    s, chosen = part.grid.s[:, :end], chosen[:, :end]
    draws = truth(s).draws(POOL, rng=rng).reshape(POOL, *chosen.shape, -1)
    pick = rng.integers(POOL, size=chosen.shape)
    w = np.take_along_axis(draws, pick[None, ..., None], axis=0)[0]
    flat_s, flat_w = (v.reshape(-1, v.shape[-1]) for v in (s, w))
    phi = np.stack([features(flat_s, flat_w, a) for a in range(features.actions)], axis=1)
    phi = phi.reshape(*chosen.shape, features.actions, -1)
    phibar = expected_features(truth, features, s, size=SIZE, rng=rng).mean
    theta = reward.theta(phi.shape[-1], rng)
    noise = reward.noise(np.where(chosen[..., None], (phi - phibar) @ theta, np.nan), rng)
    return SimulatedRun(World(s, w, phi, phibar, theta, noise, features, 0), chosen)


RUNS = 8  # each with a theta* and an order of units of its own
AGENTS = (  # what each is, for the reader of the page
    "pulse plays the constant radius 2, which nothing guarantees; pulse_calibrated the corrected "
    "radius with the errors of the calibration, which is cautious; pulse_adaptive lets rewards "
    "repair the law where its posterior is unsure. oful leaves W out, oful_lags uses the raw lags "
    "of S; oful_full knows W but must learn theta, cond_oracle knows theta but not W."
)
MOST = 2000  # rounds: the refined radius takes time that grows with their square


@dataclass(frozen=True, eq=False)
class RivalWorld:
    """Contexts of held-out units; W from a rival fit, the same kind of law fitted on those units.

    Attributes
    ----------
    model, inference : the law, not fitted, and its engine.
    archive, held_out : the units the policies' law was fitted on, and the others.
    features : Phi. reward_sd : of a reward given the full context, see :class:`Reward`.
    policies : names of ``envs.POLICIES``, in the order they are played.
    """

    model: Law | StateSpace
    inference: Inference | None
    archive: History
    held_out: History
    features: Features
    reward_sd: float | None
    policies: tuple[str, ...]
    name: str = "a rival fit"

    def play(
        self, law: PosteriorLaw, calibration: Calibration, stakes: Stakes, *, seed: int
    ) -> Played:
        """Play several runs of one sequence each, every one with a theta* of its own."""
        truth = fit_law(self.model, self.held_out, self.inference, seed)
        usable = usable_rows(law, self.held_out) & usable_rows(truth, self.held_out)
        rounds = min(stakes.horizon, MOST, int(usable.sum()))
        reward = Reward(stakes, self.reward_sd)
        notes: list[str] = []
        runs, inside, parts = [], [], []
        for r in bar(range(RUNS), label="simulate"):
            one = make_played(
                truth,
                self.held_out,
                usable,
                self.features,
                reward,
                rounds,
                stream(seed, "simulate", r),
            )
            seat = Seat(one.grid, law, self.archive, calibration, stakes, seed)
            agents = [one.agent(agent, stakes.ridge) for agent in self._seated(seat, notes)]
            runs.append(simulate(one.world, [*agents, cond_oracle(one.world)]))
            inside.append(float(calibration.inside_at(one.grid.s)[one.rounds].mean()))
            cautious = [agent for agent in agents if agent.name == "pulse_calibrated"]
            if r == 0 and cautious:
                parts.append(radius_parts(cautious[0], runs[0]))
        return Played(
            _merged(runs),
            parts[0] if parts else None,
            float(1.0 - np.mean(inside)),
            _said(len(self.held_out.units), stakes, rounds, int(usable.sum()), truth, notes),
            AGENTS,
            truth.id,
            tuple(notes),
        )

    def _seated(self, seat: Seat, notes: list[str]) -> list[Agent]:
        """Make the policies that are played; what they warn of is noted, once."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made: list[Agent | None] = [named(POLICIES, name)(seat) for name in self.policies]
        fresh = [str(each.message) for each in said]
        notes += [text for text in fresh if text not in notes]
        return [agent for agent in made if agent is not None]


def _merged(runs: list[Run]) -> Run:
    first = runs[0]
    action, regret, cond = (
        np.concatenate([getattr(run, name) for run in runs], axis=1)
        for name in ("action", "regret", "regret_cond")
    )
    return Run(first.names, action, regret, cond, np.concatenate([run.info_gap for run in runs]))


def _said(
    units: int, stakes: Stakes, rounds: int, rows: int, truth: PosteriorLaw, notes: list[str]
) -> str:
    short = (
        ""
        if rounds == stakes.horizon
        else (
            f" [policy] asks for {stakes.horizon:,} rounds; {rows:,} held-out rows can be played, "
            f"and never more than {MOST:,}."
        )
    )
    return (
        f"Real: the contexts S of {units} held-out units, one unit after the other, "
        f"each in its order of time; {rounds:,} rounds a run.{short}\n\n"
        "Made up, since an archive holds no rewards: W is drawn anew from a truth, the same kind "
        f"of law fitted on the held-out units ({truth.id}), so the policies' law, fitted on "
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
    study = work.study
    stakes = study.stakes()
    above = {"calibrate": require(work, "calibrate", "simulate")}
    inputs = inputs_of(work, "simulate", above)
    world = work.world or _rival(work)
    played = world.play(work.fitted, work.calibration, stakes, seed=study.seed)
    sections = [
        Section("What was played", played.text),
        *([] if played.parts is None else radius_sections(played.parts, outside=played.outside)),
        *policy_sections(played.run, played.agents),
        *stage_sections("simulate", played.run),
    ]
    _, runs, rounds = played.run.regret.shape
    about = {
        "stage": "simulate",
        "law_id": work.fitted.id,
        "truth_id": played.truth_id,
        "seed": study.seed,
        "runs": runs,
        "rounds": rounds,
        "outside_share": played.outside,
        "notes": played.notes,
        "table": records(played.run.table),
    }
    texts = {
        "run.json": to_json(about),
        "sections.json": to_json(sections_to_plain(sections, "simulate")),
    }
    unchanged(work, "simulate")
    write_stage(
        work.folder("simulate"),
        "simulate",
        work.fitted.id,
        inputs,
        texts,
        also=lambda folder: save(played.run, folder / "run"),
    )
    return played.run


def _rival(work: Workspace) -> RivalWorld:
    study, (archive, held_out) = work.study, work.parts
    own = study.policy.number("reward_sd", -1.0) if study.policy is not None else -1.0
    return RivalWorld(
        work.law,
        study.inference,
        archive,
        held_out,
        work.features,
        own if own >= 0 else None,
        tuple(study.agents()),
    )
