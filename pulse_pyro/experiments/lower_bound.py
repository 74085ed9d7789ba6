"""The lower bound at work: how regret grows with T and falls with N where signs stay undecided.

Each point along N is an instance of its own, with lower and narrower bumps; each along T has a
smaller theta_Q. That is what a minimax rate is about: not one problem with more data, but the
hardest one for each size. Bumps are M^-beta ~ N^(-beta / (2 beta + d_non)) high by construction, so
that power holds if, and only if, the share of signs that are taken wrong does not fall with N. That
share is a line of its own in the table of slopes, and so is a control in which f stays as it is
while N grows: its signs get found, and the power is another.

Sizes are finite, and two effects bend the lines a little. The law fits an intercept that is 0 in
truth, which costs a few wrong arms near the edges of bins, fewer as N grows. And optimism about
coordinates of theta that only a = +1 shows favours that arm at small T: where both theta_Q,i are
negative (another seed of the instance) 300 runs give .47 rather than .5 along T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pulse_pyro.arrays import Float2
from pulse_pyro.environments.hard import HardWorld
from pulse_pyro.environments.world import World
from pulse_pyro.experiments.power_law import power_of
from pulse_pyro.experiments.setting import Experiment, Ready, Setting
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.agents import oful, oful_full, pulse
from pulse_pyro.simulation.run import Agent, Fixed, Run, cond_oracle

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.experiments.result import Result

NOTES = {
    "pulse": "not published: its law knows the bins but not the signs; T << N rounds do not teach "
    "theta_W, so optimism plays a=+1 wherever Q = 0",
    "pulse_theta": "not published: the same law, theta known; what it loses are the law's signs",
    "oful": "not published: (Q, O) and no archive",
    "oful_full": "not published: sees W, whose noise hides f: judge it by full-context regret",
    "cond_oracle": "not published: knows theta and f",
}
ABOUT = (
    "Two arms; half of the rounds ask for the sign of a bump that N archived rows leave open, the "
    "others for the sign of a coordinate of theta that T rounds leave open. The table of slopes "
    "compares powers of N and T with the paper's; in the control, one f for all N, they must "
    "differ. Intervals cover archives, contexts and noise, not the signs, which all runs share, "
    "nor a power law that bends. Any policy that must learn the signs has these powers; only the "
    "constants differ. One in 20 intervals misses by chance."
)
UNKNOWN = ("pulse", "oful")  # agents that learn theta


@dataclass(frozen=True)
class Point:
    """A size: units x length archived rows of an instance, and T rounds."""

    sweep: str
    instance: HardWorld
    units: int
    length: int
    horizon: int

    @property
    def rows(self) -> int:
        """N."""
        return self.units * self.length

    @property
    def label(self) -> str:
        """Where it is in which sweep."""
        return f"{self.sweep}: N={self.rows}, T={self.horizon}"

    @property
    def setting(self) -> Setting:
        """What is run: the linear law on the instance's own bumps."""
        law = {"pulse": linear_lags(self.instance.bumps)}
        return Setting(
            self.label, self.instance, self.units, self.length, self.horizon, law, _agents
        )


@dataclass(frozen=True)
class Sweep:
    """Points along N or along T; a control keeps f while N grows."""

    along: Literal["N", "T"]
    points: tuple[Point, ...]
    control: bool = False


class Split(NamedTuple):
    """What each agent lost, (agent, run), on rounds with Q = e_i and on rounds with Q = 0.

    wrong : the latter over what it would be with every sign wrong, so in [0, 1].
    """

    linear: Float2
    nonparametric: Float2
    wrong: Float2


def along_n(
    bins: Sequence[int], *, units: int, horizon: int, beta: float = 1.0, d_non: int = 1
) -> Sweep:
    """Points with M = bins; ``units`` is N / M^(2 beta + d_non), at which M is whole unrounded."""
    name, points = f"beta={beta:g}, d_non={d_non}", []
    for m in bins:
        length = round(m ** (2.0 * beta + d_non))
        instance = HardWorld(units * length, beta=beta, d_non=d_non)
        points.append(Point(name, instance, units, length, horizon))
    return Sweep("N", tuple(points))


def along_t(horizons: Sequence[int], *, units: int, length: int) -> Sweep:
    """Points with T = horizons and one f, beta = d_non = 1."""
    instance = HardWorld(units * length)
    points = [Point("along T", instance, units, length, t) for t in horizons]
    return Sweep("T", tuple(points))


def one_f(lengths: Sequence[int], instance: HardWorld, *, units: int, horizon: int) -> Sweep:
    """The control: archives of units x length rows, all of one instance."""
    points = [Point("control, one f", instance, units, n, horizon) for n in lengths]
    return Sweep("N", tuple(points), control=True)


# N is 2^(1 + d_non) / E[phi^2] = 12, 8, 48 times M^(2 beta + d_non): a signal-to-noise of exactly 1
SWEEPS = (
    along_n((5, 7, 10, 14, 20), units=12, horizon=100),
    along_n((12, 20, 32, 50, 80), units=8, horizon=100, beta=0.5),
    along_n((2, 3, 4, 5, 6), units=48, horizon=50, d_non=2),
    along_t((100, 250, 630, 1600, 4000), units=12, length=17**3),
    one_f((125, 250, 500, 1000, 2000, 4000), HardWorld(12 * 10**3), units=12, horizon=100),
)


def split(point: Point, run: Run, seed: int) -> Split:
    """Split the conditional regret of a run by the kind of round; its world is drawn again."""
    runs = run.action.shape[1]
    world = point.instance.world(runs, point.horizon, rng=stream(seed, "online"))
    linear = point.instance.linear(world.s)
    lost = np.stack([world.regret(action, full=False) for action in run.action])
    most = np.where(linear, 0.0, np.ptp(world.mean_cond, axis=-1)).sum(-1)
    bumpy = np.where(linear, 0.0, lost).sum(-1)
    wrong = bumpy / np.where(most > 0.0, most, 1.0)  # no such round: nothing could be wrong
    return Split(np.where(linear, lost, 0.0).sum(-1), bumpy, wrong)


def slopes_of(result: Result, sweeps: Sequence[Sweep]) -> DataFrame:
    """One line per power: measured slope with its 95 % interval over runs, theory, and verdict.

    Not covered: see :func:`power_of`; runs share the signs of f and theta_Q.
    """
    import pandas as pd

    lines = []
    for sweep in sweeps:
        first = result.curves[sweep.points[0].label]
        parts = [split(p, result.curves[p.label], result.seed) for p in sweep.points]
        size = [p.rows if sweep.along == "N" else p.horizon for p in sweep.points]
        for what, agents, theory in _claims(sweep):
            for agent in agents:
                at = first.names.index(agent)
                y = np.stack([getattr(part, what)[at] for part in parts])
                found = power_of(np.array(size), y)
                holds = found.low <= theory <= found.high
                lines.append(
                    {
                        "sweep": sweep.points[0].sweep, "along": sweep.along,
                        "measured": TITLES[what], "agent": agent, "slope": found.value,
                        "low": found.low, "high": found.high, "theory": theory,
                        "verdict": "too few runs" if math.isnan(found.value) else
                        f"interval {'contains' if holds else 'excludes'} theory",
                    }
                )  # fmt: skip
    return pd.DataFrame(lines)


TITLES = {
    "linear": "regret, Q = e_i",
    "nonparametric": "regret, Q = 0",
    "wrong": "regret, Q = 0, over that of all signs wrong",
}


def _claims(sweep: Sweep) -> list[tuple[str, tuple[str, ...], float]]:
    """What is measured, of which agents, and the power it should have."""
    everyone = (*UNKNOWN, "pulse_theta")
    if sweep.along == "T":  # with theta known nothing is lost where Q = e_i
        return [("linear", UNKNOWN, 0.5), ("nonparametric", everyone, 1.0)]
    power = sweep.points[0].instance.exponent
    if sweep.control:
        return [("nonparametric", ("pulse_theta",), power), ("wrong", ("pulse_theta",), 0.0)]
    return [("nonparametric", everyone, power), ("wrong", ("pulse_theta",), 0.0)]


def _agents(ready: Ready) -> Sequence[Agent | Fixed]:
    world = ready.world
    own = pulse(world, ready.laws["pulse"], seed=ready.seed)
    return own, _theta_known(world, own), oful(world), oful_full(world), cond_oracle(world)


def _theta_known(world: World, agent: Agent) -> Fixed:
    return Fixed("pulse_theta", (agent.x @ world.theta).argmax(-1))


LOWER_BOUND = Experiment(
    "lower-bound",
    "The lower bound's instance: powers of N and T",
    ABOUT,
    tuple(point.setting for sweep in SWEEPS for point in sweep.points),
    50,
    NOTES,
    ("pulse", "pulse_theta", "oful", "oful_full", "cond_oracle"),
    partial(slopes_of, sweeps=SWEEPS),
)
