"""How little history a curve needs: a Gaussian process law fitted on n single archived rows.

W = -.1 - .14 x + sin(4 x) + noise, x the mean of three rows of S, Phi = (1, S, W, W*a). Not
published; the N sweep for a law that is not linear.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.environments.arma import nonlinear_w_times_action
from pulse_pyro.environments.world import World
from pulse_pyro.experiments.runner import Experiment, Setting
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.simulation.agents import oful, oful_full
from pulse_pyro.simulation.run import Agent, Fixed, cond_oracle
from pulse_pyro.summary import Window

MEAN3 = Window(3, np.mean)
ROWS = (1, 2, 5, 10, 30)
NOTES = {
    "pulse": "not published: a Gaussian process fitted on n rows",
    "pulse_adaptive": "not published: rewards repair the curve where its posterior is unsure",
    "oful": "not published: (1, S, a, S*a), properly specified",
    "oful_full": "not published: sees W",
    "cond_oracle": "not published: knows theta and E[Phi | S]",
}


def _curve(x: Float2) -> Float1:
    out: Float1 = -0.1 - 0.14 * x[:, 0] + np.sin(4.0 * x[:, 0])
    return out


def _others(world: World) -> Sequence[Agent | Fixed]:
    return oful(world), oful_full(world), cond_oracle(world)


def _setting(rows: int) -> Setting:
    return Setting(
        f"n={rows}", replace(nonlinear_w_times_action(), mean_of=_curve), rows, 3, 980,
        {"pulse": gaussian_process(MEAN3)}, _others, {}, {"pulse_adaptive": "pulse"},
    )  # fmt: skip


SWEEP_POINTS = Experiment(
    "sweep-points",
    "Regret against the number n of single archived rows, Gaussian process law",
    tuple(_setting(n) for n in ROWS),
    20,
    NOTES,
)
