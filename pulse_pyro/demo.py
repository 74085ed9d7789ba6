"""The main job end to end on data it makes: archive, law, checks, D_t, agents, report."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro.bundle import save_law
from pulse_pyro.calibration.calibrate import calibrate
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.diagnostics import Diagnostics, diagnose
from pulse_pyro.environments.arma import w_times_action
from pulse_pyro.environments.world import World
from pulse_pyro.errors import SettingError
from pulse_pyro.files import write_whole
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.plots import gamma_split, law_track
from pulse_pyro.progress import bar
from pulse_pyro.radius import noise_scale
from pulse_pyro.report import Section, calibration_sections, write_report
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.agents import oful, oful_full, oful_lags, pulse
from pulse_pyro.simulation.run import Agent, Run, cond_oracle, simulate

if TYPE_CHECKING:
    from pandas import DataFrame

MARKER = ".pulse-pyro-demo"  # tells an earlier demo's folder from anybody else's
THETA_BOUND = 1.1  # >= ||(.1, .1, .1, 1)||, as a user must state it
UNITS, LENGTH, RUNS, HORIZON = 200, 60, 40, 980


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where its report is."""

    held_out: History
    card: ModelCard
    law: FittedLaw
    diagnostics: Diagnostics
    calibration: Calibration
    run: Run
    report: Path
    verdict: str


def run_demo(folder: str | Path, *, seed: int = 0) -> Demo:
    """Make an archive, fit, check, calibrate, simulate; write archive.csv, law/, report.html."""
    import pandas as pd

    out = Path(folder)
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise SettingError(
            f"demo: {out} holds files of something else; name a new folder with --out."
        )
    environment = w_times_action()
    steps = bar(total=6, label="demo")
    made = environment.archive(UNITS, LENGTH, rng=stream(seed, "archive"))
    write_whole(out / MARKER, "written by pulse-pyro demo\n")
    write_whole(out / "archive.csv", made.to_frame().to_csv(index=False))
    history = History.from_frame(
        pd.read_csv(out / "archive.csv"), unit="unit", time="time", observed=["s"], missing=["w"]
    )
    fit, held_out = history.split(seed=seed)
    law = linear_lags(19)
    steps.update()
    card = law.check(fit)
    steps.update()
    fitted = law.fit(fit, seed=seed)
    save_law(fitted, out / "law")
    diagnostics = diagnose(fitted, held_out, seed=seed)
    steps.update()
    calibration = calibrate(fitted, held_out, environment.features, seed=seed)
    steps.update()
    world = environment.world(RUNS, HORIZON, rng=stream(seed, "online"))
    cautious = calibrated_agent(calibration, fitted, world, environment.reward_sd)
    run = simulate(
        world,
        [
            pulse(world, fitted), cautious, oful(world), oful_lags(world, law.summary),
            oful_full(world), cond_oracle(world),
        ],
    )  # fmt: skip
    steps.update()
    verdict = _verdict(diagnostics, calibration, run)
    inside = float(calibration.inside_at(world.s)[:, world.lead :].mean())
    sections = [
        *_about_the_law(history, held_out, card, fitted, diagnostics, seed),
        *calibration_sections(calibration),
        *_about_the_run(run, cautious, inside),
        _provenance(fitted, seed),
    ]
    report = write_report(
        out / "report.html", "PULSE-UCB on an incomplete context", verdict, sections
    )
    demo = Demo(held_out, card, fitted, diagnostics, calibration, run, report, verdict)
    write_whole(out / "results.json", json.dumps(results(demo), indent=1))
    steps.update()
    steps.close()
    return demo


def calibrated_agent(
    calibration: Calibration, law: FittedLaw, world: World, reward_sd: float
) -> Agent:
    """PULSE-UCB with the corrected radius, its errors from the calibration.

    ||theta*|| <= 1.1 and the reward's noise are taken as known, as a user must state them.
    """
    spread = THETA_BOUND * math.sqrt(2.0) * float(calibration.noise_sd[0][0])  # W and W*a
    radius = calibration.radius(
        sigma=noise_scale(reward_sd=reward_sd, context_sd=spread), theta_bound=THETA_BOUND
    )
    error = calibration.reward_error(world.s, theta_bound=THETA_BOUND)[:, world.lead :]
    return pulse(world, law, name="pulse_calibrated", radius=radius, error=error)


def results(demo: Demo) -> dict[str, object]:
    """Return plain values, as printed by ``demo --json``."""
    return {
        "verdict": demo.verdict,
        "checks": _records(demo.diagnostics.table),
        "calibration": _records(demo.calibration.table),
        "calibration_checks": _records(demo.calibration.checks_table),
        "agents": _records(demo.run.table),
    }


def _records(table: DataFrame) -> list[dict[str, object]]:
    """Rows as plain values; JSON knows no NaN."""
    plain = table.reset_index().astype(object)
    rows = plain.where(plain.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _verdict(diagnostics: Diagnostics, calibration: Calibration, run: Run) -> str:
    regret = run.table["regret"]
    return (
        f"Law: {diagnostics.verdict}. Calibration: {calibration.verdict}, expected W is off by at "
        f"most {calibration.table['bound mean'].iloc[0]:.3g} on average, "
        f"{calibration.table['bound sup'].iloc[0]:.3g} at worst (level "
        f"{100 * calibration.level:.4g}%). Regret after {HORIZON} rounds: PULSE-UCB "
        f"{regret['pulse']:.1f}, with the calibrated radius {regret['pulse_calibrated']:.1f}, "
        f"OFUL without W {regret['oful']:.0f}, OFUL on raw lags {regret['oful_lags']:.1f}, with W "
        f"known {regret['oful_full']:.1f}; of "
        f"PULSE-UCB's regret {run.info_gap.mean():.1f} could not be avoided by any policy that "
        "does not see W."
    )


def _about_the_law(
    history: History, held_out: History, card: ModelCard, fitted: FittedLaw,
    diagnostics: Diagnostics, seed: int,
) -> list[Section]:  # fmt: skip
    one = held_out.take([0])
    draws = fitted.sample(one.s, 400, rng=stream(seed, "track"))[:, 0, :, 0]
    return [
        Section("Data", "What the archive holds; half of its units were fitted on, half held out.",
                history.table),
        Section("Law", "The law of W given the past of S, and one unit it has never seen.",
                fitted.table, law_track(fitted, one, draws), plain=f"{fitted!r}\n\n{card!r}",
                reading="Recorded values should lie inside the band nine times out of ten; the "
                "first points have incomplete lags and a wider band."),
        Section("Checks", "Questions put to the law on held-out units.", diagnostics.table),
    ]  # fmt: skip


def _about_the_run(run: Run, cautious: Agent, inside: float) -> list[Section]:
    action = run.action[run.names.index(cautious.name)][0]
    steps = np.arange(len(action))
    assert isinstance(cautious.error, np.ndarray)
    parts = cautious.radius.split(cautious.x[0, steps, action], cautious.error[0, steps, action])
    return [
        Section("Radius", "What the calibrated confidence radius is made of in the first run: the "
                "ridge, the noise of the rewards, and the imputation error summed over rounds. "
                f"{1 - inside:.1%} of the online contexts lie outside the calibrated domain.",
                None, gamma_split(parts),
                "Where the imputation part dominates, more history would help more than more "
                "rounds."),
        Section("Policies", "All agents face the same contexts and noise. regret: against the "
                "best arm given the full context; regret_cond: against the best arm given S alone; "
                "info_gap: what no policy that sees only S can earn. pulse uses the constant "
                "radius 2 of the published runs, pulse_calibrated the corrected one with the "
                "errors calibrated above.",
                run.table, run.plot(),
                "The lower the better; oful_full knows W but must learn theta, cond_oracle knows "
                "theta but not W; regret_cond of oful_full means little, as it follows W."),
    ]  # fmt: skip


def _provenance(fitted: FittedLaw, seed: int) -> Section:
    packages = ("pulse-pyro", "numpy", "torch", "pyro-ppl")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return Section("Provenance", f"Seed {seed}; law {fitted.law_id}; {versions}.")
