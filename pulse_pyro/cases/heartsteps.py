"""HeartSteps: what seeing W is worth to a policy, and what it were if effects were larger."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from pulse_pyro.arrays import Float2, whole
from pulse_pyro.cases.case import Case, estimates_finding, judged_finding, setting_finding
from pulse_pyro.cases.compare import HERE, Imputer, Way, compare
from pulse_pyro.cases.estimates import Estimate, Estimates
from pulse_pyro.cases.judge import judge
from pulse_pyro.cases.result import Comparison
from pulse_pyro.datasets.heartsteps import SOURCE, HeartSteps, load_heartsteps
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.offpolicy.crossfit import outcome_model
from pulse_pyro.offpolicy.estimators import doubly_robust, ips, snips
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.policies import always, greedy
from pulse_pyro.offpolicy.value import Value, averaged, difference
from pulse_pyro.parallel import Engine
from pulse_pyro.radius import constant
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Identity

WAYS = {"alpha 0.25": Way(constant(0.25))}
NOW = Identity()  # rows at which people were not available are gaps: lags would lose most rounds
# No state_space: with the present row alone as its window, and S always seen, it is the linear law.
IMPUTERS = (
    Imputer("linear", linear_lags(NOW)),
    Imputer("gp", gaussian_process(NOW, basis=8)),
    Imputer("neural", neural_density(NOW, components=3), anew=True, adaptive=True),
)
BOTH, SEEN = "S+W", "S"
DRAWS = 20  # of the folds
READING = (
    "Each line is the difference of two policies' values by one estimator, with its 95 % interval "
    "over people; it holds 0 where nothing shows."
)


def heartsteps_null(
    folder: str | Path, *, folds: int = 5, draws: int = DRAWS, seed: int = 0
) -> Estimates:
    """Value policies that see S, or S and W, on the log of the trial itself.

    folds : of whole people; policies and outcome models of each are learned on the others.
    draws : of the folds; estimates are averaged over them (``averaged``). seed : of the folds.

    Policies: send or not by the larger of two lines in S, or in (S, W); always; never. Intervals
    are over people. What is asked is whether S+W minus S is above 0. One draw of the folds is not
    enough to say: the intervals of some leave 0 out, below it, and the verdict counts how many hold
    it. The averaged interval is wider than most of one draw because it counts that spread too.
    """
    start = time.perf_counter()
    whole(draws, "heartsteps_null: draws", 1)
    data = load_heartsteps(folder)
    found: dict[tuple[str, str], list[Value]] = {}
    for k in range(draws):
        own = int(stream(seed, "folds", k).integers(2**31))
        for key, value in _once(data, folds, own).items():
            found.setdefault(key, []).append(value)
    lines = tuple(
        Estimate("trial", policy, how, averaged(values)) for (policy, how), values in found.items()
    )
    main = f"{BOTH} minus {SEEN}", "doubly robust"
    gain = next(each.value for each in lines if (each.policy, each.estimator) == main)
    about = (
        f"{data.logged.rows:,} decisions of {data.logged.units} people, send or not with "
        f"probability 0.6; reward log(steps of 30 minutes + 0.5); {folds} folds of people, drawn "
        f"{draws} times. Policies learned with more columns are also learned with more noise."
    )
    return Estimates(
        "heartsteps", _verdict(gain, found[main]), about, SOURCE, lines,
        time.perf_counter() - start,
    )  # fmt: skip


def heartsteps_case(
    folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE
) -> Case:
    """Ask the trial's log what seeing W is worth, then what it were with larger effects."""
    start = time.perf_counter()
    null = heartsteps_null(folder, seed=seed)
    dataset = load_heartsteps(folder).dataset(seed=seed)
    played = heartsteps_rounds(folder, runs=runs, seed=seed, engine=engine)
    judged = judge(dataset, IMPUTERS, seed=seed, engine=engine)
    findings = (
        estimates_finding(null, "What the trial itself says", READING),
        *(setting_finding(played, name, f"Semi-synthetic, {name.split(',')[0]}")
          for name in played.settings),
        judged_finding(judged, "D_t of steps, place and activity"),
    )  # fmt: skip
    about = f"{null.about}\n\n{dataset.about}"
    headline = null.verdict.split(" (se")[0]
    return Case("heartsteps", headline, about, SOURCE, findings, time.perf_counter() - start)


def heartsteps_rounds(
    folder: str | Path, *, factors: Sequence[float] = (1.0, 3.0), runs: int = 10, seed: int = 0,
    engine: Engine = HERE,
) -> Comparison:  # fmt: skip
    """Compare agents on the semi-synthetic rounds; ``seed`` also draws who is in the archive."""
    dataset = load_heartsteps(folder).dataset(factors, seed=seed)
    return compare(dataset, IMPUTERS, NOW, ways=WAYS, runs=runs, seed=seed, engine=engine)


def _once(data: HeartSteps, folds: int, seed: int) -> dict[tuple[str, str], Value]:
    """Return (policy, estimator) -> value, for one draw of the folds."""
    logged = data.logged
    q = outcome_model(logged, folds=folds, seed=seed)
    seen = outcome_model(logged, data.s_names, folds=folds, seed=seed)
    policies = {
        SEEN: greedy(seen), BOTH: greedy(q),
        "send always": always(logged, 1), "send never": always(logged, 0),
    }  # fmt: skip
    values = {name: _values(logged, policy, q) for name, policy in policies.items()}
    for one, two in ((BOTH, SEEN), ("send always", "send never")):
        values[f"{one} minus {two}"] = {
            how: difference(values[one][how], values[two][how]) for how in values[one]
        }
    hows = values[BOTH]
    return {(name, how): each[how] for how in hows for name, each in values.items()}


def _values(logged: Logged, policy: Float2, q: Float2) -> dict[str, Value]:
    return {
        "doubly robust": doubly_robust(logged, policy, q),
        "snips": snips(logged, policy),
        "ips": ips(logged, policy),
    }


def _verdict(gain: Value, draws: Sequence[Value]) -> str:
    if gain.low > 0:
        what = "seeing W pays"
    elif gain.high < 0:
        what = "seeing W costs: more columns, more noise, no signal"
    else:
        what = "no gain from seeing W shows"
    each = [value.estimate for value in draws]
    return (
        f"heartsteps: {what}; S+W minus S is {gain.estimate:+.3f}, {gain.level:.0%} interval "
        f"{gain.low:+.3f} to {gain.high:+.3f} (se {gain.se:.3f} over {gain.units} people); over "
        f"{len(draws)} draws of folds it runs from {min(each):+.3f} to {max(each):+.3f}, and "
        f"{sum(value.holds(0.0) for value in draws)} of their own intervals hold 0."
    )
