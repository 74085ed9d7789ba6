"""Figure 1 and the comparison tables: linear and nonlinear W, T = 1000, N = 1000, T0 = 100."""

from collections.abc import Sequence

import numpy as np

from pulse_pyro.arrays import Float
from pulse_pyro.environments.arma import main_linear, main_nonlinear
from pulse_pyro.environments.world import World
from pulse_pyro.experiments.runner import Experiment, Published, Setting
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.simulation.agents import oful, oful_full, oful_paper
from pulse_pyro.simulation.run import Agent, Fixed, cond_oracle
from pulse_pyro.summary import Stack, Window

MEAN3 = Window(3, np.mean)
NOTES = {
    "oful": "not published: the observed features (1, S, S*a), properly specified",
    "cond_oracle": "not published: knows theta and E[Phi | S]",
    "pulse": "the published script pretrains on linear data even when W is nonlinear",
}


def _power(degree: int) -> Window:
    def power(windows: Float, axis: int) -> Float:
        return np.asarray(np.mean(windows, axis=axis) ** degree)

    power.__name__ = f"mean_to_{degree}_of_"
    return Window(3, power)


def _others(world: World) -> Sequence[Agent | Fixed]:
    return oful(world), oful_paper(world), oful_full(world), cond_oracle(world)


LINEAR = Experiment(
    "comparison-linear",
    "Comparison, W linear in S",
    (
        Setting(
            "linear", main_linear(), 1000, 100, 1000, {"pulse": linear_lags(MEAN3)}, _others,
            {
                "pulse": Published(11.9, 1.4, 30),
                "oful_paper": Published(39.6, 2.1, 30),
                "oful_full": Published(11.1, 1.7, 30),
            },
        ),
    ),
    30,
    NOTES,
)  # fmt: skip

NONLINEAR = Experiment(
    "comparison-nonlinear",
    "Comparison, W = linear + sin(4 x)",
    (
        Setting(
            "nonlinear", main_nonlinear(), 1000, 100, 1000,
            {
                "pulse": linear_lags(Stack(MEAN3, *(_power(k) for k in range(2, 8)))),
                "pulse_linear": linear_lags(MEAN3),
            },
            _others,
            {
                "pulse": Published(13.7, 1.7, 30),
                "oful_paper": Published(38.5, 2.1, 30),
                "oful_full": Published(11.0, 1.8, 30),
            },
        ),
    ),
    30,
    NOTES | {"pulse_linear": "not published: a straight-line law, misspecified here"},
)  # fmt: skip
