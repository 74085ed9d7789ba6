"""The demo: a study whose archive comes from a world that is known, and is played in there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.files import write_whole
from pulse_pyro._core.progress import bar
from pulse_pyro._core.saved import load
from pulse_pyro._core.seeds import stream
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.diagnostics import Diagnostics
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.envs.simulation import Run
from pulse_pyro.study.run import run_stages
from pulse_pyro.study.workspace import SAVED, open_workspace
from pulse_pyro.study.worlds import KnownWorld

MARKER = ".pulse-pyro-demo"  # tells an earlier demo's folder from anybody else's
THETA_BOUND = 1.1  # >= ||(.1, .1, .1, 1)||, as a user must state it
UNITS, LENGTH, RUNS, HORIZON = 200, 60, 40, 980
STUDY = """\
# The demo as a study. W is a line in 19 lags of S, and decides which action is best.
# pulse-pyro run study.toml treats it like any other: the world is then made up from the archive.

seed = {seed}

[data]
file = "archive.csv"
unit = "unit"
time = "time"
observed = ["s"]
missing = ["w"]

[law]
name = "linear_lags"
lags = 19

[features]
terms = ["1", "s", "w", "w*a"]
actions = 2

[calibration]
level = 0.95
"""
POLICY = """
[policy]
reward_sd = {reward_sd!r}
context_sd = {context_sd!r}   # what W leaves open given S, by the calibration
theta_bound = {theta_bound!r}
horizon = {horizon}
agents = [
    "committee", "guarded", "adaptive_guarded", "pulse", "pulse_calibrated",
    "oful", "oful_lags", "oful_lags_rewards", "oful_full",
]
"""


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where its report is."""

    diagnostics: Diagnostics
    calibration: Calibration
    run: Run
    report: Path

    @property
    def verdict(self) -> str:
        """All of it in a few lines."""
        return _verdict(self.diagnostics, self.calibration, self.run)


def run_demo(folder: str | Path, *, seed: int = 0) -> Demo:
    """Write study.toml and archive.csv, run the study in its world, write results.json.

    The folder is also the study's results folder, report.html included. What W leaves open given S
    is read off the calibration and then stated in [policy], as a user would; ||theta*|| <= 1.1 and
    the noise of rewards are taken as known. Every stage is made again, up to date or not.
    """
    out = Path(folder)
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise SettingError(
            f"demo: {out} holds files of something else; name a new folder with --out."
        )
    environment = w_times_action()
    world = KnownWorld("w_times_action", environment, RUNS)
    steps = bar(total=7, label="demo")
    archive = environment.archive(UNITS, LENGTH, rng=stream(seed, "archive"))
    write_whole(out / MARKER, "written by pulse-pyro demo\n")
    write_whole(out / "archive.csv", archive.to_frame().to_csv(index=False))
    path, text = out / "study.toml", STUDY.format(seed=seed)
    write_whole(path, text)
    steps.update()
    work = open_workspace(path, out, world=world)
    run_stages(work, ("fit", "diagnose", "calibrate"), force=True, tell=lambda _: steps.update())
    calibration = work.calibration
    policy = POLICY.format(
        reward_sd=environment.reward_sd,
        context_sd=THETA_BOUND * math.sqrt(2.0) * float(calibration.noise_sd[0][0]),  # W and W*a
        theta_bound=THETA_BOUND,
        horizon=HORIZON,
    )
    write_whole(path, text + policy)
    work = open_workspace(path, out, world=world)
    again = ("calibrate", "simulate", "report")  # its page tells sizes by what [policy] says
    run_stages(work, again, force=True, tell=lambda _: steps.update())
    steps.close()
    diagnostics, run = (
        load(work.folder(stage) / SAVED[stage]) for stage in ("diagnose", "simulate")
    )
    demo = Demo(diagnostics, calibration, run, out / "report.html")
    write_whole(out / "results.json", to_json(results(demo)))
    return demo


def results(demo: Demo) -> dict[str, object]:
    """Return plain values, as printed by ``demo --json``."""
    return {
        "verdict": demo.verdict,
        "checks": records(demo.diagnostics.table),
        "claim": demo.calibration.claim,
        "rungs": records(demo.calibration.ladder),
        "calibration": records(demo.calibration.table) if demo.calibration.usable else [],
        "calibration_checks": records(demo.calibration.checks_table),
        "agents": records(demo.run.table),
    }


def _verdict(diagnostics: Diagnostics, calibration: Calibration, run: Run) -> str:
    table = run.table
    regret, uniform = table["regret"], calibration.rung("uniform")
    also = f" {uniform.claim}" if uniform.holds and uniform is not calibration.standing else ""
    unsure = not calibration.usable or any(
        check.verdict == "fail" for check in diagnostics.checks if check.name.startswith("serial")
    )
    guard = "its guard, a heuristic here," if unsure else "its guard"
    return (
        f"Law: {diagnostics.verdict}. Calibration: {calibration.claim}{also} "
        f"Regret after {run.regret.shape[-1]} rounds: PULSE-UCB inside {guard} "
        f"{regret['guarded']:.1f}, a committee inside it {regret['committee']:.1f} (overruled in "
        f"{table['overruled']['committee']:.1%} of rounds), PULSE-UCB with the constant radius 2 "
        f"{regret['pulse']:.1f}, with the ball as a bonus {regret['pulse_calibrated']:.1f}; OFUL "
        f"without W {regret['oful']:.0f}, on raw lags {regret['oful_lags']:.1f}, with the last "
        f"reward too {regret['oful_lags_rewards']:.1f}, with W known {regret['oful_full']:.1f}. No "
        f"policy that does not see W could avoid {run.info_gap.mean():.1f}."
    )
