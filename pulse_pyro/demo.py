"""The main job end to end on data it makes: archive, law, checks, D_t, agents, report."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
from pulse_pyro.progress import bar
from pulse_pyro.radius import noise_scale
from pulse_pyro.report import (
    beyond_domain,
    calibration_sections,
    data_sections,
    diagnostics_sections,
    file_hashes,
    in_domain,
    law_sections,
    policy_sections,
    provenance_sections,
    radius_parts,
    radius_sections,
    write_report,
)
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.agents import oful, oful_full, oful_lags, pulse
from pulse_pyro.simulation.run import Agent, Run, cond_oracle, simulate

if TYPE_CHECKING:
    from pandas import DataFrame

MARKER = ".pulse-pyro-demo"  # tells an earlier demo's folder from anybody else's
THETA_BOUND = 1.1  # >= ||(.1, .1, .1, 1)||, as a user must state it
AGENTS = (  # what each is, for the reader of the page
    "pulse uses the constant radius 2 of the published runs, pulse_calibrated the corrected one "
    "with the errors calibrated above; oful leaves W out, oful_lags uses the raw lags of S; "
    "oful_full knows W but must learn theta, cond_oracle knows theta but not W."
)
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
    diagnostics = diagnose(fitted, held_out, archive=fit, seed=seed)
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
        *data_sections(history, len(fit.units)),
        *law_sections(fitted, held_out, seed=seed, card=card),
        *diagnostics_sections(diagnostics),
        *calibration_sections(calibration),
        *radius_sections(radius_parts(cautious, run), outside=1.0 - inside),
        *policy_sections(run, AGENTS),
        *provenance_sections(
            {"law": fitted.law_id, "calibration": calibration.law_id}, seed=seed,
            hashes=file_hashes([out / "archive.csv", out / "law"]),
        ),
    ]  # fmt: skip
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
    regret, outside = run.table["regret"], calibration.outside_share
    largest = math.sqrt(calibration.bound.max())
    return (
        f"Law: {diagnostics.verdict}. Calibration: {calibration.verdict}, {in_domain(outside)} "
        f"expected W is off by at most {calibration.table['bound mean'].iloc[0]:.3g} on average, "
        f"{calibration.table['bound sup'].iloc[0]:.3g} at worst{beyond_domain(outside, largest)} "
        f"(level {100 * calibration.level:.4g}%). Regret after {HORIZON} rounds: PULSE-UCB "
        f"{regret['pulse']:.1f}, with the calibrated radius {regret['pulse_calibrated']:.1f}, "
        f"OFUL without W {regret['oful']:.0f}, OFUL on raw lags {regret['oful_lags']:.1f}, with W "
        f"known {regret['oful_full']:.1f}; of "
        f"PULSE-UCB's regret {run.info_gap.mean():.1f} could not be avoided by any policy that "
        "does not see W."
    )
