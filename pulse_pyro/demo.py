"""The main job end to end on data it makes: archive, law, checks, agents, report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro.bundle import save_law
from pulse_pyro.diagnostics import Diagnostics, diagnose
from pulse_pyro.environments.arma import w_times_action
from pulse_pyro.errors import SettingError
from pulse_pyro.files import write_whole
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.plots import law_track
from pulse_pyro.progress import bar
from pulse_pyro.report import Section, write_report
from pulse_pyro.seeds import stream
from pulse_pyro.simulation import Run, cond_oracle, oful, oful_full, oful_lags, pulse, simulate

if TYPE_CHECKING:
    from pandas import DataFrame

MARKER = ".pulse-pyro-demo"  # tells an earlier demo's folder from anybody else's
UNITS, LENGTH, RUNS, HORIZON = 200, 60, 40, 980


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where its report is."""

    held_out: History
    card: ModelCard
    law: FittedLaw
    diagnostics: Diagnostics
    run: Run
    report: Path
    verdict: str


def run_demo(folder: str | Path, *, seed: int = 0) -> Demo:
    """Make an archive, fit, check, simulate five agents; write archive.csv, law/, report.html."""
    import pandas as pd

    out = Path(folder)
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise SettingError(
            f"demo: {out} holds files of something else; name a new folder with --out."
        )
    environment = w_times_action()
    steps = bar(total=5, label="demo")
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
    world = environment.world(RUNS, HORIZON, rng=stream(seed, "online"))
    run = simulate(
        world,
        [
            pulse(world, fitted), oful(world), oful_lags(world, law.summary), oful_full(world),
            cond_oracle(world),
        ],
    )  # fmt: skip
    steps.update()
    verdict = _verdict(diagnostics, run)
    report = _report(out, history, held_out, card, fitted, diagnostics, run, verdict, seed)
    write_whole(out / "results.json", json.dumps(results(run, diagnostics, verdict), indent=1))
    steps.update()
    steps.close()
    return Demo(held_out, card, fitted, diagnostics, run, report, verdict)


def results(run: Run, diagnostics: Diagnostics, verdict: str) -> dict[str, object]:
    """Return plain values, as printed by ``demo --json``."""
    return {
        "verdict": verdict,
        "checks": _records(diagnostics.table),
        "agents": _records(run.table),
    }


def _records(table: DataFrame) -> list[dict[str, object]]:
    """Rows as plain values; JSON knows no NaN."""
    plain = table.reset_index().astype(object)
    rows = plain.where(plain.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _verdict(diagnostics: Diagnostics, run: Run) -> str:
    regret = run.table["regret"]
    return (
        f"Law: {diagnostics.verdict}. Regret after {HORIZON} rounds: PULSE-UCB "
        f"{regret['pulse']:.1f}, OFUL without W {regret['oful']:.0f}, OFUL on raw lags "
        f"{regret['oful_lags']:.1f}, with W known {regret['oful_full']:.1f}; of PULSE-UCB's regret "
        f"{run.info_gap.mean():.1f} could not be avoided by any policy that does not see W."
    )


def _report(
    out: Path, history: History, held_out: History, card: ModelCard, fitted: FittedLaw,
    diagnostics: Diagnostics, run: Run, verdict: str, seed: int,
) -> Path:  # fmt: skip
    one = held_out.take([0])
    draws = fitted.sample(one.s, 400, rng=stream(seed, "track"))[:, 0, :, 0]
    packages = ("pulse-pyro", "numpy", "torch", "pyro-ppl")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    sections = [
        Section("Data", "What the archive holds; half of its units were fitted on, half held out.",
                history.table),
        Section("Law", "The law of W given the past of S, and one unit it has never seen.",
                fitted.table, law_track(fitted, one, draws), plain=f"{fitted!r}\n\n{card!r}",
                reading="Recorded values should lie inside the band nine times out of ten; the "
                "first points have incomplete lags and a wider band."),
        Section("Checks", "Questions put to the law on held-out units.", diagnostics.table),
        Section("Policies", "All agents face the same contexts and noise. regret: against the "
                "best arm given the full context; regret_cond: against the best arm given S alone; "
                "info_gap: what no policy that sees only S can earn. The imputation error D_t is "
                "not calibrated here: the radius is the constant 2 of the published runs.",
                run.table, run.plot(),
                "The lower the better; oful_full knows W but must learn theta, cond_oracle knows "
                "theta but not W; regret_cond of oful_full means little, as it follows W."),
        Section("Provenance", f"Seed {seed}; law {fitted.law_id}; {versions}."),
    ]  # fmt: skip
    return write_report(
        out / "report.html", "PULSE-UCB on an incomplete context", verdict, sections
    )
