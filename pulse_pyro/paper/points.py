"""How little history a curve needs: a Gaussian process law fitted on n single archived rows.

W = -.1 - .14 x + sin(4 x) + noise, x the mean of three rows of S, Phi = (1, S, W, W*a). Not
published; the N sweep for a law that is not linear.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.summary import Window
from pulse_pyro.envs.agents import oful, oful_full, pulse, pulse_adaptive
from pulse_pyro.envs.arma import nonlinear_w_times_action
from pulse_pyro.envs.simulation import Agent, Fixed, cond_oracle
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.paper.agents import NOTES
from pulse_pyro.paper.setting import Experiment, Ready, Setting

MEAN3 = Window(3, np.mean)
ROWS = (1, 2, 5, 10, 30)
OWN = {
    "pulse": "not published: a Gaussian process fitted on n rows",
    "oful_full": "not published: sees W",
}


def _curve(x: Float2) -> Float1:
    out: Float1 = -0.1 - 0.14 * x[:, 0] + np.sin(4.0 * x[:, 0])
    return out


ENVIRONMENT = replace(nonlinear_w_times_action(), mean_of=_curve)


def _agents(ready: Ready) -> Sequence[Agent | Fixed]:
    world, laws = ready.world, ready.laws["pulse"]
    # S without W is cheap: contexts of 20 units, none of them played
    contexts = ENVIRONMENT.archive(20, 100, rng=stream(ready.seed, "reference"))
    return [
        pulse(world, laws, seed=ready.seed),
        pulse_adaptive(world, laws, contexts, seed=ready.seed),
        oful(world),
        oful_full(world),
        cond_oracle(world),
    ]


SWEEP_POINTS = Experiment(
    "sweep-points",
    "Regret against the number n of single archived rows, Gaussian process law",
    "W a curve in the mean of three rows of S, 980 scored rounds, 20 runs. Not in the paper: the N "
    "sweep for a law that is not linear. The directions are found at contexts S of 20 further "
    "units, whose W is not seen.",
    tuple(
        Setting(
            label=f"n={n}",
            environment=ENVIRONMENT,
            units=n,
            length=3,
            horizon=980,
            laws={"pulse": gaussian_process(MEAN3)},
            agents=_agents,
        )
        for n in ROWS
    ),
    20,
    NOTES | OWN,
)
