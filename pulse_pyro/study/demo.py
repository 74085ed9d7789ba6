"""The demo: a study whose archive comes from a world that is known, and is played in there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.files import write_whole
from pulse_pyro._core.progress import bar
from pulse_pyro._core.saved import save
from pulse_pyro._core.seeds import stream
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.diagnostics import Diagnostics
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.envs.simulation import Run, cond_oracle, simulate
from pulse_pyro.envs.world import Environment
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.report import beyond_domain, in_domain, radius_parts
from pulse_pyro.study.calibrate import make_calibrate
from pulse_pyro.study.diagnose import make_diagnose
from pulse_pyro.study.fit import make_fit
from pulse_pyro.study.report import make_report
from pulse_pyro.study.simulate import make_simulate
from pulse_pyro.study.workspace import open_workspace
from pulse_pyro.study.world import Played, calibrated_agent

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
"""
AGENTS = (  # what each is, for the reader of the page
    "pulse uses the constant radius 2 of the published runs, pulse_calibrated the corrected one "
    "with the errors calibrated above; oful leaves W out, oful_lags uses the raw lags of S; "
    "oful_full knows W but must learn theta, cond_oracle knows theta but not W."
)


@dataclass(frozen=True, eq=False)
class KnownWorld:
    """An environment whose W, theta* and noise are known: what the policies miss can be told."""

    name: str
    environment: Environment
    runs: int

    def play(
        self, law: PosteriorLaw, calibration: Calibration, stakes: Stakes, *, seed: int
    ) -> Played:
        """Play all runs at once, each on contexts of its own."""
        world = self.environment.world(self.runs, stakes.horizon, rng=stream(seed, "online"))
        cautious = calibrated_agent(world, law, calibration, stakes, seed=seed)
        run = simulate(
            world,
            [
                pulse(world, law, seed=seed),
                cautious,
                oful(world),
                oful_lags(world, law.summary),
                oful_full(world),
                cond_oracle(world),
            ],
        )
        inside = float(calibration.inside_at(world.s)[:, world.lead :].mean())
        text = (
            f"The world {self.name}, which also made the archive: new contexts S, with W, theta* "
            f"and the noise of rewards as they truly are, {self.runs} runs of {stakes.horizon:,} "
            "rounds. Policies are told none of it but what [policy] states. Regret is measured "
            "against the truth itself; a study of real data has no such world, and plays in one "
            "made up from its archive."
        )
        return Played(run, radius_parts(cautious, run), 1.0 - inside, text, AGENTS)


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
    """Write study.toml and archive.csv, run the stages, write law/, report.html, results.json.

    What W leaves open given S is read off the calibration and then stated in [policy], as a user
    would; ||theta*|| <= 1.1 and the noise of rewards are taken as known.
    """
    out = Path(folder)
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise SettingError(
            f"demo: {out} holds files of something else; name a new folder with --out."
        )
    environment = w_times_action()
    steps = bar(total=6, label="demo")
    archive = environment.archive(UNITS, LENGTH, rng=stream(seed, "archive"))
    write_whole(out / MARKER, "written by pulse-pyro demo\n")
    write_whole(out / "archive.csv", archive.to_frame().to_csv(index=False))
    path, text = out / "study.toml", STUDY.format(seed=seed)
    write_whole(path, text)
    steps.update()
    work = open_workspace(path, out)
    save(make_fit(work), out / "law")
    steps.update()
    diagnostics = make_diagnose(work)
    steps.update()
    calibration = make_calibrate(work)
    steps.update()
    policy = POLICY.format(
        reward_sd=environment.reward_sd,
        context_sd=THETA_BOUND * math.sqrt(2.0) * float(calibration.noise_sd[0][0]),  # W and W*a
        theta_bound=THETA_BOUND,
        horizon=HORIZON,
    )
    write_whole(path, text + policy)
    work = open_workspace(path, out, world=KnownWorld("w_times_action", environment, RUNS))
    run = make_simulate(work)
    steps.update()
    demo = Demo(diagnostics, calibration, run, make_report(work).path)
    write_whole(out / "results.json", to_json(results(demo)))
    steps.update()
    steps.close()
    return demo


def results(demo: Demo) -> dict[str, object]:
    """Return plain values, as printed by ``demo --json``."""
    return {
        "verdict": demo.verdict,
        "checks": records(demo.diagnostics.table),
        "calibration": records(demo.calibration.table),
        "calibration_checks": records(demo.calibration.checks_table),
        "agents": records(demo.run.table),
    }


def _verdict(diagnostics: Diagnostics, calibration: Calibration, run: Run) -> str:
    regret, outside = run.table["regret"], calibration.outside_share
    largest = math.sqrt(calibration.bound.max())
    bound = (
        "no bound on the law's error holds"
        if calibration.verdict == "fail"
        else f"{in_domain(outside)} "
        f"expected W is off by at most {calibration.table['bound mean'].iloc[0]:.3g} on average, "
        f"{calibration.table['bound sup'].iloc[0]:.3g} at worst{beyond_domain(outside, largest)} "
        f"(level {100 * calibration.level:.4g}%)"
    )
    return (
        f"Law: {diagnostics.verdict}. Calibration: {calibration.verdict}, {bound}. "
        f"Regret after {run.regret.shape[-1]} rounds: PULSE-UCB "
        f"{regret['pulse']:.1f}, with the calibrated radius {regret['pulse_calibrated']:.1f}, "
        f"OFUL without W {regret['oful']:.0f}, OFUL on raw lags {regret['oful_lags']:.1f}, with W "
        f"known {regret['oful_full']:.1f}; of "
        f"PULSE-UCB's regret {run.info_gap.mean():.1f} could not be avoided by any policy that "
        "does not see W."
    )
