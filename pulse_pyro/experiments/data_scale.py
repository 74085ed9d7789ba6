"""How much history imputation needs: the N sweep (T0 = 25) and the T0 sweep (N = 3)."""

from collections.abc import Sequence

from pulse_pyro.environments.arma import w_times_action
from pulse_pyro.environments.world import World
from pulse_pyro.experiments.runner import Experiment, Published, Setting
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.linear_exact import Flat
from pulse_pyro.simulation.agents import oful, oful_full, oful_lags, oful_paper
from pulse_pyro.simulation.run import Agent, Fixed, cond_oracle
from pulse_pyro.summary import Lags

LAGS = Lags(19)
PUBLISHED_N = {
    1: (252.1, 87.5), 2: (150.3, 77.0), 3: (61.3, 91.9), 5: (11.7, 9.6), 10: (4.6, 1.4),
    50: (4.2, 1.6), 500: (4.3, 1.6), 1000: (4.0, 1.4),
}  # fmt: skip
PUBLISHED_T0 = {
    21: (248.7, 163.8), 25: (46.9, 55.7), 30: (8.6, 2.7), 40: (5.1, 2.2), 50: (4.3, 1.4),
    100: (4.4, 2.2), 200: (4.6, 1.5),
}  # fmt: skip
NOTES = {
    "pulse": "not published: our default prior; the paper's law is least squares (pulse_flat)",
    "pulse_adaptive": "not published: rewards repair the law where its posterior is unsure",
    "oful": "not published: (1, S, a, S*a), properly specified",
    "oful_lags": "not published: OFUL on the raw lags, no archive at all",
    "cond_oracle": "not published: knows theta and E[Phi | S]",
}


def _others(world: World) -> Sequence[Agent | Fixed]:
    return (
        oful(world), oful_lags(world, LAGS), oful_paper(world), oful_full(world),
        cond_oracle(world),
    )  # fmt: skip


def _setting(label: str, units: int, length: int, printed: tuple[float, float]) -> Setting:
    return Setting(
        label, w_times_action(), units, length, 980,
        {"pulse_flat": linear_lags(LAGS, prior=Flat()), "pulse": linear_lags(LAGS)},
        _others,
        {
            "pulse_flat": Published(*printed, 20),
            "oful_paper": Published(333.7, 30.2, 20),
            "oful_full": Published(2.7, 2.0, 20),
        },
        {"pulse_adaptive": "pulse"},
    )  # fmt: skip


SWEEP_N = Experiment(
    "sweep-n",
    "Regret against the number N of archived units (T0 = 25)",
    tuple(_setting(f"N={n}", n, 25, printed) for n, printed in PUBLISHED_N.items()),
    20,
    NOTES,
)
SWEEP_T0 = Experiment(
    "sweep-t0",
    "Regret against the length T0 of archived units (N = 3)",
    tuple(_setting(f"T0={t}", 3, t, printed) for t, printed in PUBLISHED_T0.items()),
    20,
    NOTES,
)
