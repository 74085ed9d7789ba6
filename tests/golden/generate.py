"""Figures of the library on fixed seeds, to be compared before and after a change.

``python -m tests.golden.generate [NAME ...]`` writes them again, all without a name. What is
random has a seed; timings, paths, fingerprints and versions are left out. Goldens that take
more than 10 seconds are marked.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from scipy.signal import lfilter
from scipy.special import expit, ndtr
from threadpoolctl import threadpool_limits

import pulse_pyro as pp
from pulse_pyro._core.parallel import Local
from pulse_pyro.envs.replay import by_time
from pulse_pyro.offpolicy.estimators import always, direct, greedy, uniform
from pulse_pyro.offpolicy.value import difference
from pulse_pyro.paper import beijing
from pulse_pyro.paper.real import run_cases
from pulse_pyro.paper.replay_comparison import Imputer, PlayRule
from pulse_pyro.paper.runner import run_experiments
from pulse_pyro.study.demo import results, run_demo
from tests.golden.store import HOME, machine, packed, same_machine, write
from tests.paper.helpers import beijing_folder

MODELS = Path(__file__).parents[2] / "models"
LEFT_OUT = {"seconds", "fit_seconds", "law_id", "truth_id"}
Found = dict[str, object]


def flat(value: object, name: str) -> Found:
    """Nested plain values or a table as name.key.key -> a value or a column of them."""
    if isinstance(value, pd.DataFrame):
        value = value.reset_index().to_dict("list")
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        inner = [each for row in value for each in row.values()]
        nested = any(isinstance(each, dict | list) for each in inner)
        value = dict(enumerate(value)) if nested else pd.DataFrame(value).to_dict("list")
    if not isinstance(value, dict):
        return {name: value}
    out: Found = {}
    for key, each in value.items():
        if key not in LEFT_OUT:
            out |= flat(each, f"{name}.{key}")
    return out


# ---- the main jobs, as the command line runs them


def demo() -> Found:  # slower than 10 s while loops are compiled
    with tempfile.TemporaryDirectory() as folder:
        found = results(run_demo(Path(folder) / "demo", seed=0))
    del found["verdict"]  # a sentence that prints the figures below; tests/study looks at it
    return flat(found, "demo")


def reproduce(name: str) -> Found:  # masking: slower than 10 s
    return flat(run_experiments([name], runs=4, seed=0)[0].to_json(), name)


def study() -> Found:  # slower than 10 s
    stages = {
        "fit": "fit.json",
        "diagnose": "diagnostics.json",
        "calibrate": "calibration.json",
        "simulate": "run.json",
    }
    out: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pp.study.new_study(Path(folder) / "mystudy")
        pp.run_study(path)
        for stage, file in stages.items():
            home = path.parent / "results" / stage
            out |= flat(json.loads((home / file).read_text()), stage)
            for section in json.loads((home / "sections.json").read_text()):
                name = f"{stage}.{section['title']}"
                out[f"{name}.text"] = section["text"]
                tables = [section["table"], *(table for _, table in section["more"])]
                for i, table in enumerate(table for table in tables if table):
                    columns = zip(*table["rows"], strict=True)
                    out |= flat(dict(zip(table["columns"], columns, strict=True)), f"{name}.{i}")
    return out


def real() -> Found:
    short = pp.Lags(2)
    quick = {
        "IMPUTERS": (Imputer("linear", pp.linear_lags(short), adaptive=True),),
        "PAST": short,
        "PLAY_RULES": {
            beijing.MAIN: PlayRule(pp.constant(0.25)),
            "late": PlayRule(pp.constant(0.25), by_time),
        },
    }
    with tempfile.TemporaryDirectory() as folder, patch.multiple(beijing, **quick):
        home = Path(folder) / "beijing_multisite"
        home.mkdir()
        beijing_folder(home)
        case = run_cases(["beijing"], folder, runs=2, seed=0, engine=Local())[0]
    return flat(case.to_json(), "beijing")


# ---- laws


def series(units: int, length: int, columns: int, seed: int) -> np.ndarray:
    """S (units, length, columns), an autoregression."""
    noise = pp.stream(seed, "golden", "s").standard_normal((units, length, columns))
    return lfilter([1.0], [1.0, -0.6], noise, axis=1)


def on_grid(rows: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Rows (..., batch * time, dim) as (..., batch, time, dim) of s (batch, time, s_dim)."""
    return rows.reshape(*rows.shape[:-2], *s.shape[:2], rows.shape[-1])


def gappy(s: np.ndarray) -> np.ndarray:
    return np.where(pp.stream(0, "golden", "gaps").random(s.shape) < 0.3, np.nan, s)


def history(s: np.ndarray, w: np.ndarray, name: str = "u") -> pp.History:
    units = tuple(f"{name}{i}" for i in range(len(s)))
    s_names, w_names = (
        tuple(f"{n}{j}" for j in range(v.shape[2])) for n, v in (("s", s), ("w", w))
    )
    return pp.History.from_arrays(s, w, units=units, s_names=s_names, w_names=w_names)


def lines(s: np.ndarray, seed: int) -> np.ndarray:
    """Two W, linear in two lags of two S, with noise they share."""
    x = np.nan_to_num(pp.Lags(2)(s))
    slopes = np.array([[0.7, -0.2], [-0.4, 0.5], [0.3, 0.1], [0.1, -0.6]])
    noise = pp.stream(seed, "golden", "w").standard_normal((*s.shape[:2], 2))
    return 0.3 + x @ slopes + 0.5 * noise @ np.array([[1.0, 0.6], [0.0, 0.8]])


def curves(s: np.ndarray, seed: int) -> np.ndarray:
    """One W, a sum of curves of two lags of one S."""
    x = np.nan_to_num(pp.Lags(2)(s))
    noise = pp.stream(seed, "golden", "w").standard_normal(s.shape)
    return np.sin(x[..., :1]) + 0.3 * x[..., 1:] ** 2 + 0.3 * noise


def own_model(x, w=None):
    slope = pyro.sample("slope", dist.Normal(torch.zeros(x.shape[-1], 2), 2.0).to_event(2))
    sd = pyro.sample("sd", dist.HalfNormal(torch.ones(2)).to_event(1))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = (x[..., None] * slope[..., None, :, :]).sum(-2)
        pyro.sample("w", dist.Normal(mean, sd[..., None, :]).to_event(1), obs=w)


OWN = pp.Law(own_model, pp.Lags(2), "own", unseen="conditioned on")
LAWS = {  # law, engine, how W follows from S, columns of S
    "linear_exact": (pp.linear_lags(2), pp.Exact(200), lines, 2),
    "linear_flat": (pp.linear_lags(2, prior=pp.laws.Flat()), pp.Exact(200), lines, 2),
    "linear_laplace": (pp.linear_lags(2), pp.Laplace(200), lines, 2),
    "linear_svi": (pp.linear_lags(2), pp.Svi(200, steps=200), lines, 2),
    "linear_nuts": (pp.linear_lags(2), pp.Nuts(50, warmup=50), lines, 2),
    "student_t": (pp.linear_lags(2, noise="student_t"), pp.Laplace(200), lines, 2),
    "gaussian_process": (pp.gaussian_process(2), pp.Laplace(200), curves, 1),
    "gaussian_process_sum": (pp.gaussian_process(2, basis=8), pp.Laplace(200), lines, 2),
    "neural_density": (
        pp.neural_density(2, components=2, width=16),
        pp.Ensemble(2, steps=150),
        lines,
        2,
    ),
    "neural_masked": (
        pp.neural_density(2, components=2, width=16, masking=0.5),
        pp.Ensemble(2, steps=150),
        curves,
        1,
    ),
    "state_space": (pp.state_space(2, ar=1), None, lines, 2),
    "state_space_arma": (pp.state_space(2, ar=1, ma=1), None, curves, 1),
    "own_laplace": (OWN, pp.Laplace(200), lines, 2),
    "own_svi": (OWN, pp.Svi(200, steps=200), lines, 2),
}


@cache
def fitted(name: str) -> pp.laws.PosteriorLaw:
    law, engine, follows, columns = LAWS[name]
    s = series(20, 25, columns, 0)
    return law.fit(history(s, follows(s, 0)), engine, seed=0)


def answers(law: pp.laws.PosteriorLaw, s: np.ndarray, w: np.ndarray) -> Found:
    """Draws, and what the law says of units it has not seen, whole and with gaps."""
    out: Found = {f"draws.{site}": value for site, value in law.draws.items()}
    out |= flat(dict(law.record.quality), "quality")
    for name, seen in (("whole", s), ("gaps", gappy(s))):
        out[f"{name}.mean"] = on_grid(law(seen).mean(), seen)
        out[f"{name}.mean_draws"] = on_grid(
            law(seen).mean_draws(20, rng=pp.stream(0, "mean_draws")), seen
        )
        out[f"{name}.sample"] = on_grid(law(seen).draws(20, rng=pp.stream(0, "sample")), seen)
        out[f"{name}.log_density"] = on_grid(
            law(seen).joint_log_density(w.reshape(-1, w.shape[-1]), draws=50)[:, None], seen
        )[..., 0]
        follower, online = law.follow(), []
        for row in seen[0]:
            follower.push(row)
            online.append(follower.conditional.mean()[0])
        out[f"{name}.online"] = np.stack(online)
        if isinstance(law, pp.laws.FilteredLaw):
            out[f"{name}.variance"] = on_grid(
                np.diagonal(law(seen).covariance(), axis1=1, axis2=2), seen
            )
    return out


def law_answers(name: str) -> Found:
    _, _, follows, columns = LAWS[name]
    s = series(3, 12, columns, 1)
    return answers(fitted(name), s, follows(s, 1))


def gallery_w(name: str, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """W that suits a file of models/."""
    x = np.nan_to_num(pp.Lags(2)(s))
    line = 0.2 + x @ np.array([[0.7], [-0.4]])
    noise, chance = rng.standard_normal(s.shape), rng.random(s.shape)
    if name == "hierarchical_units":
        return line + rng.standard_normal((len(s), 1, 1)) + 0.5 * noise
    if name == "regime_mixture":
        return line + 3.0 * (chance < expit(s)) + 0.3 * noise
    if name == "zero_inflated_counts":
        return rng.poisson(np.exp(1.0 + 0.5 * s)) * (chance > 0.3)
    if name == "heteroscedastic_lags":
        return line + np.exp(-1.0 + 0.6 * s) * noise
    if name == "mnar_selection":
        w = line + 0.8 * noise
        return np.where(chance > ndtr(0.3 - 1.5 * w), np.nan, w)
    if name == "seasonal_lags":
        return line + 0.5 * np.roll(s, 7, axis=1) + 0.5 * noise
    return line + 0.5 * rng.standard_t(4.0, s.shape)  # student_t_lags


def gallery(name: str) -> Found:
    s, later = series(12, 30, 1, 2), series(3, 20, 1, 3)
    archive = history(s, gallery_w(name, s, pp.stream(0, "golden", name)))
    law = pp.law_from_file(MODELS / f"{name}.py").fit(archive, pp.Laplace(100), seed=0)
    return answers(law, later, gallery_w(name, later, pp.stream(1, "golden", name)))


# ---- what is saved


def bundles() -> Found:
    """Answers of laws that were saved and read back."""
    out: Found = {}
    for name in ("linear_exact", "gaussian_process", "neural_masked", "state_space", "own_laplace"):
        s = series(2, 10, LAWS[name][3], 4)
        with tempfile.TemporaryDirectory() as folder:
            path = pp.save(fitted(name), Path(folder) / "law")
            law = pp.load(path, law=OWN if name.startswith("own") else None)
        out[f"{name}.mean"] = on_grid(law(gappy(s)).mean(), s)
        out[f"{name}.sample"] = on_grid(law(gappy(s)).draws(20, rng=pp.stream(0, "sample")), s)
    return out


WORLD = pp.envs.w_times_action()  # W is linear in 19 lags of S, and decides which arm is best
PHI = WORLD.features
RADIUS = pp.corrected(sigma=0.2, theta_bound=1.1)


@cache
def lagged() -> tuple[pp.History, pp.History, pp.laws.PosteriorLaw, pp.Calibration]:
    """An archive in two halves, a law fitted on the first, its calibration on the other."""
    own, held_out = WORLD.archive(60, 45, rng=pp.stream(0, "archive")).split(seed=0)
    law = pp.linear_lags(19).fit(own, seed=0)
    return own, held_out, law, pp.calibrate(law, held_out, PHI, seed=0)


def policies() -> Found:  # slower than 10 s while loops are compiled
    """Policies that were saved after 50 rounds and go on for 200: actions, bounds, theta."""
    own, _, law, calibration = lagged()
    errors = pp.calibration.CalibratedErrors(calibration, theta_bound=1.1)
    few = own.take(range(2))
    unsure = pp.linear_lags(19).fit(few, seed=0)
    rung = None if calibration.usable else "average"
    budget = calibration.budget(rounds=250, theta_bound=1.1, rung=rung)
    robust = pp.policies.robust(sigma=0.2, budget=budget, dim=4, theta_bound=1.1)
    exponential = pp.Features(
        lambda s, w, a: np.column_stack([np.ones(len(w)), a * np.exp(w[:, 0])]), 2, ("1", "e")
    )
    makes: dict[str, Callable[[], pp.PulseUCB | pp.AdaptivePulseUCB]] = {
        "constant": lambda: pp.PulseUCB(law, PHI, pp.constant(1.0)),
        "calibrated": lambda: pp.PulseUCB(law, PHI, RADIUS, errors=errors),
        "robust": lambda: pp.PulseUCB(law, PHI, robust),
        "thompson": lambda: pp.PulseUCB(law, PHI, pp.thompson(0.2)),
        "monte_carlo": lambda: pp.PulseUCB(law, exponential, pp.constant(1.0), size=16),
        "adaptive": lambda: pp.AdaptivePulseUCB(unsure, PHI, pp.constant(2.0), few),
        "growing": lambda: pp.PulseUCB(
            unsure, PHI, pp.constant(2.0), archive=pp.GrowingArchive(few, unsure, every=50)
        ),
    }
    online = WORLD.world(1, 250, rng=pp.stream(0, "online"))
    out: Found = {}
    for name, make_policy in makes.items():
        policy = make_policy()
        for s in online.s[0, : online.lead]:
            policy.observe(s)
        decisions = []
        for t in range(250):
            if t == 50:
                with tempfile.TemporaryDirectory() as folder:
                    path = pp.save(policy, Path(folder) / "policy")
                    policy = pp.load(path, features=exponential if name == "monte_carlo" else PHI)
            decisions.append(policy.act(online.s[0, online.lead + t]))
            late = {"w": online.w[0, t]} if name == "growing" else {}
            action = decisions[-1].action
            policy.learn(decisions[-1], online.reward[0, t, action], **late)
        out[f"{name}.action"] = [each.action for each in decisions]
        out[f"{name}.gamma"] = [each.gamma for each in decisions]
        out[f"{name}.width"] = [each.width[each.action] for each in decisions]
        out[f"{name}.theta"] = policy.state.theta
        out[f"{name}.precision"] = policy.state.precision
    return out


# ---- how good, how wrong, how much


def calibrated(found: pp.Calibration, s: np.ndarray) -> Found:
    """All of a calibration, and its bounds at other contexts s."""
    far = np.concatenate([s, s[:1] + 1.0, gappy(s[:1])])
    out = flat(found.table, "table") if found.usable else {}
    out |= flat(found.checks_table, "checks")
    out |= {
        "why": found.why,
        "noise_sd": np.stack(found.noise_sd),
        "error_at": found.error_at(far),
        "inside_at": found.inside_at(far),
        "reward_error": found.reward_error(far, theta_bound=1.1),
        "budget": found.budget(rounds=100, rung=None if found.usable else "average"),
    }
    return out


def calibrate_curve(units: int, band: str) -> Found:
    """One input: 625 rows or 2,250."""
    nonlinear = pp.envs.main_nonlinear()
    archive = nonlinear.archive(units, 27, rng=pp.stream(0, "archive"))
    own, held_out = archive.split(seed=0)
    law = pp.linear_lags(pp.Window(3, np.mean)).fit(own, seed=0)
    found = pp.calibrate(law, held_out, nonlinear.features, seed=0, band=band)
    return calibrated(found, nonlinear.archive(3, 27, rng=pp.stream(1, "archive")).grid.s)


def calibrate_linear() -> Found:
    return calibrated(lagged()[3], WORLD.archive(3, 45, rng=pp.stream(1, "archive")).grid.s)


def calibrate_additive() -> Found:
    s, later = series(40, 25, 1, 5), series(3, 15, 1, 6)
    own, held_out = history(s, curves(s, 5)).split(seed=0)
    law = pp.gaussian_process(2, basis=6).fit(own, pp.Laplace(100), seed=0)
    phi = pp.terms(["1", "s0", "w0", "w0*a"], 2, observed=["s0"], missing=["w0"])
    return calibrated(pp.calibrate(law, held_out, phi, seed=0, band="additive"), later)


def calibrate_modes() -> Found:
    """Two W, every unit for both law and band; and cross-fitted."""
    s, later = series(40, 20, 2, 7), series(3, 12, 2, 8)
    archive = history(s, lines(s, 7))
    law = pp.linear_lags(2).fit(archive, seed=0)
    terms = ["1", "w0", "w1*a"]
    phi = pp.terms(terms, 2, observed=["s0", "s1"], missing=["w0", "w1"])
    whole = calibrated(pp.calibration.all_units(law, archive, phi, seed=0), later)
    cross = pp.calibration.crossfit(pp.linear_lags(2), archive, phi, seed=0).calibration
    return flat(whole, "all") | flat(calibrated(cross, later), "crossfit")


def diagnose() -> Found:
    own, held_out, law, _ = lagged()
    found = pp.diagnose(law, held_out, archive=own, seed=0)
    tables = flat(found.table, "table") | flat(found.scores, "scores")
    about = found.evidence
    rows = {"pit": np.full(held_out.w.shape, np.nan), "mean": np.full(held_out.w.shape, np.nan)}
    for name, values in rows.items():
        values[about.row] = getattr(about, name)
    return tables | {name: held_out.on_grid(values) for name, values in rows.items()}


def sbc() -> Found:
    s = series(6, 12, 1, 9)
    found = pp.sbc(
        pp.linear_lags(1), history(s, np.zeros(s.shape)), pp.Laplace(99), replications=20, seed=0
    )
    return {"names": found.names, "ranks": found.ranks, "p_values": found.p_values}


def domain() -> Found:
    _, held_out, law, _ = lagged()
    found = pp.Domain.of(held_out, law.summary)
    s = WORLD.world(4, 100, rng=pp.stream(0, "online")).s
    out = flat(found.table, "range") | {"inside": found.inside_at(s)}
    for name, online in (("like", s), ("wider", 2.0 * s)):
        out |= flat(found.check(online, looks=3).table, name)
    return out


def offpolicy() -> Found:
    rng = pp.stream(0, "log")
    x, person = rng.standard_normal((2000, 1)), np.repeat(np.arange(40), 50)
    sent = rng.integers(0, 2, 2000)
    reward = sent * x[:, 0] + rng.standard_normal(2000) + rng.standard_normal(40)[person]
    log = pp.offpolicy.Logged(x, sent, reward, np.full(2000, 0.5), person, actions=2)
    q = pp.offpolicy.outcome_model(log, folds=5, seed=0)
    out: Found = {"q": q}
    for name, plan in (("greedy", greedy(q)), ("always", always(log, 1)), ("even", uniform(log))):
        values = {
            "replay": pp.offpolicy.replay_value(log, plan, seed=0),
            "ips": pp.offpolicy.ips(log, plan),
            "clipped": pp.offpolicy.ips(log, plan, clip=1.5),
            "snips": pp.offpolicy.snips(log, plan),
            "direct": direct(log, plan, q),
            "robust": pp.offpolicy.doubly_robust(log, plan, q),
        }
        values["gain"] = difference(values["robust"], values["ips"])
        for kind, value in values.items():
            out |= flat(value.to_json(), f"{name}.{kind}")
    return out


def plan() -> Found:
    archive = WORLD.archive(60, 45, rng=pp.stream(0, "archive"))
    stakes = pp.calibration.Stakes(horizon=10_000, sigma=0.2, theta_bound=1.1)
    found = pp.plan(archive, pp.linear_lags(19), PHI, stakes=stakes, orderings=2, seed=0)
    return flat(found.to_json(), "plan") | flat(found.table, "table")


def simulate() -> Found:
    own, _, law, calibration = lagged()
    world = WORLD.world(3, 300, rng=pp.stream(0, "online"))
    archives = [own.take(range(2 * r, 2 * r + 2)) for r in range(3)]
    unsure = [pp.linear_lags(19).fit(few, seed=0) for few in archives]
    error = calibration.reward_error(world.s, theta_bound=1.1)[:, world.lead :]
    robust = pp.policies.robust(sigma=0.2, budget=20.0, dim=4, theta_bound=1.1)
    agents = [
        pp.envs.pulse(world, law),
        pp.envs.pulse(world, unsure, name="pulse_few"),
        pp.envs.pulse(world, law, name="calibrated", radius=RADIUS, error=error),
        pp.envs.pulse(world, law, name="thompson", radius=pp.thompson(0.2)),
        pp.envs.pulse(world, law, name="robust", radius=robust),
        pp.envs.pulse(world, law, name="robust_told", radius=robust, error=error),
        pp.envs.pulse_adaptive(world, unsure),
        pp.envs.post_serving(world, pp.envs.pulse(world, law)),
        pp.envs.pulse_refit(world, pp.linear_lags(19), archives, every=100),
        pp.envs.oful(world),
        pp.envs.oful_lags(world, law.summary),
        pp.envs.oful_paper(world),
        pp.envs.oful_full(world),
        pp.envs.clbbf_agent(world),
        pp.envs.clbbf_paper_agent(world),
        pp.envs.clbbf_warm_agent(world, archives),
        pp.envs.larl_agent(world),
        pp.envs.larl_agent(world, context=True),
        pp.envs.cond_oracle(world),
    ]
    out: Found = {}
    latent = pp.envs.latent_ar()
    other = latent.world(3, 300, rng=pp.stream(0, "latent"))
    filtering = [
        pp.envs.kalman_agent(other, latent),
        pp.envs.larl_agent(other),
        pp.envs.oful(other),
    ]
    for name, where, who in (("arma", world, agents), ("latent", other, filtering)):
        run = pp.simulate(where, who)
        out |= flat(run.table, name)
        out |= {f"{name}.action": run.action, f"{name}.regret_over_time": run.regret}
    return out


FILES = (
    "heteroscedastic_lags",
    "hierarchical_units",
    "mnar_selection",
    "regime_mixture",
    "seasonal_lags",
    "student_t_lags",
    "zero_inflated_counts",
)
GOLDENS: dict[str, Callable[[], Found]] = {
    "demo": demo,
    "comparison-linear": partial(reproduce, "comparison-linear"),
    "sweep-n": partial(reproduce, "sweep-n"),
    "masking": partial(reproduce, "masking"),
    "study": study,
    "real-beijing": real,
    **{f"law-{name}": partial(law_answers, name) for name in LAWS},
    **{f"model-{name}": partial(gallery, name) for name in FILES},
    "bundles": bundles,
    "policies": policies,
    "calibrate-spline": partial(calibrate_curve, 50, "auto"),
    "calibrate-local-polynomial": partial(calibrate_curve, 180, "auto"),
    "calibrate-lipschitz": partial(calibrate_curve, 50, "lipschitz"),
    "calibrate-linear": calibrate_linear,
    "calibrate-additive": calibrate_additive,
    "calibrate-modes": calibrate_modes,
    "diagnose": diagnose,
    "sbc": sbc,
    "domain": domain,
    "offpolicy": offpolicy,
    "plan": plan,
    "simulate": simulate,
}


def make(name: str) -> dict[str, np.ndarray]:
    """One golden, with one thread of linear algebra, as the library's own jobs have."""
    with threadpool_limits(1):
        return packed(GOLDENS[name]())


def main(names: list[str]) -> None:
    if names and not same_machine():
        sys.exit("The goldens were made on another machine: make all of them again, without names.")
    for name in names or GOLDENS:
        start = time.perf_counter()
        write(name, make(name))
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    (HOME / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
