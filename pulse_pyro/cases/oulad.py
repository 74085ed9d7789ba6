"""OULAD: whom to support before the work just handed in is marked.

Earlier marks are in S already, so the summary is the current row. More of the past was tried: the
row before (``Lags(2)``, on the 57 % of rounds that have one) and the mean of all earlier rows raise
the share of variance explained online by less than 0.002. OFUL on raw lags is then OFUL itself, and
their lines in the table agree to the last digit.

No state space law: a unit has one to four rows, S has marks, days, counts and facts that never
change, which is no stationary Gaussian process, and with one row of memory its W is the linear
law's.
"""

from __future__ import annotations

import time
from pathlib import Path

from pulse_pyro.cases.case import Case, judged_finding, setting_finding
from pulse_pyro.cases.compare import HERE, Imputer, Way, compare
from pulse_pyro.cases.judge import judge
from pulse_pyro.cases.result import Comparison
from pulse_pyro.datasets.oulad import load_oulad
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.parallel import Engine
from pulse_pyro.radius import constant
from pulse_pyro.summary import Identity

WAYS = {"alpha 0.25": Way(constant(0.25))}
NOW = Identity()
IMPUTERS = (
    Imputer("linear", linear_lags(NOW)),
    Imputer("gp", gaussian_process(NOW)),
    Imputer("neural", neural_density(NOW, components=3, width=32), anew=True, adaptive=True),
)


def oulad_case(folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE) -> Case:
    """Compare agents, and judge their laws on students they have not seen."""
    start = time.perf_counter()
    dataset = load_oulad(folder)
    played = oulad_rounds(folder, runs=runs, seed=seed, engine=engine)
    findings = (
        *(setting_finding(played, name, "Three tiers of support") for name in played.settings),
        judged_finding(judge(dataset, IMPUTERS, seed=seed, engine=engine), "D_t of the mark"),
    )
    return Case(
        dataset.name,
        played.headline(next(iter(played.settings))),
        dataset.about,
        dataset.source,
        findings,
        time.perf_counter() - start,
    )


def oulad_rounds(
    folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE
) -> Comparison:
    """Compare agents on OULAD; see ``datasets.oulad`` for what they decide and what is assumed.

    All decisions are played, 27,499 rounds on the published files. Expect little: E[W | S] is near
    to linear in S (a linear law explains 44 % of W online, networks 45 %), and Phi has a line in S
    for every arm, so that an imputed W is nearly a combination of features OFUL has already.
    Over 40 runs networks earned 0.0004 (se 0.0003) a round more than OFUL, the linear law 0.0002
    (0.0003) less, and seeing W 0.0038 (0.0004) more. Ten runs can name any law the best.
    """
    return compare(
        load_oulad(folder), IMPUTERS, NOW, ways=WAYS, runs=runs, seed=seed, engine=engine
    )
