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
from scipy import stats

from pulse_pyro._core.arrays import Float1, Float2, share
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.agents import oful, oful_full, pulse
from pulse_pyro.envs.hard import HardWorld
from pulse_pyro.envs.simulation import Agent, Fixed, Run, cond_oracle
from pulse_pyro.envs.world import World
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.paper.setting import Experiment, Ready, Setting

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.paper.result import Result

# Log-log slopes of means over runs, with an interval.


class Slope(NamedTuple):
    """The power b of y = c x^b, and an interval for it."""

    value: float
    low: float
    high: float


def power_of(x: Float1, y: Float2, *, level: float = 0.95) -> Slope:
    """Fit log E[y] = c + b log x by least squares through the means over runs.

    Parameters
    ----------
    x : (point,) positive sizes. y : (point, run) what each run measured, its means positive;
        run r of one point may depend on run r of another (one archive, one set of rounds), but
        runs must not depend on each other.
    level : of the interval.

    The estimate is sum_k c_k log(mean_r y_kr) with c the least-squares weights. Its interval is a
    Student t over runs of the linearised sum_k c_k y_kr / mean_r y_kr (delta method). It covers
    what runs draw anew and nothing else: not what all runs share, such as one instance, nor a
    power law that bends; with many runs it therefore excludes any power that is not exact. NaN
    where a mean is not positive: no power law goes through it, or there are too few runs.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    share(level, "power_of: level")
    if x.ndim != 1 or y.ndim != 2 or len(x) != len(y) or y.shape[1] < 2:
        raise SettingError(
            "power_of: x must be (point,) and y (point, run) with 2 runs or more, but got "
            f"{x.shape} "
            f"and {y.shape}."
        )
    mean = y.mean(1)
    if not (x > 0).all() or len(np.unique(x)) < 2:
        raise SettingError("power_of: x must be positive with two different sizes.")
    if not (mean > 0).all():
        return Slope(math.nan, math.nan, math.nan)
    at = np.log(x) - np.log(x).mean()
    weight = at / (at @ at)
    runs = y.shape[1]
    value = float(weight @ np.log(mean))
    spread = float((weight @ (y / mean[:, None])).std(ddof=1))
    reach = float(stats.t.ppf((1.0 + level) / 2.0, runs - 1)) * spread / math.sqrt(runs)
    return Slope(value, value - reach, value + reach)


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
            label=self.label,
            environment=self.instance,
            units=self.units,
            length=self.length,
            horizon=self.horizon,
            laws=law,
            agents=_agents,
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
                        "sweep": sweep.points[0].sweep,
                        "along": sweep.along,
                        "measured": TITLES[what],
                        "agent": agent,
                        "slope": found.value,
                        "low": found.low,
                        "high": found.high,
                        "theory": theory,
                        "verdict": "too few runs"
                        if math.isnan(found.value)
                        else f"interval {'contains' if holds else 'excludes'} theory",
                    }
                )
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
    agent = pulse(world, ready.laws["pulse"], seed=ready.seed)
    return agent, _theta_known(world, agent), oful(world), oful_full(world), cond_oracle(world)


def _theta_known(world: World, agent: Agent) -> Fixed:
    return Fixed("pulse_theta", (agent.x @ world.theta).argmax(-1))


LOWER_BOUND = Experiment(
    name="lower-bound",
    title="The lower bound's instance: powers of N and T",
    about=ABOUT,
    settings=tuple(point.setting for sweep in SWEEPS for point in sweep.points),
    runs=50,
    notes=NOTES,
    shown=("pulse", "pulse_theta", "oful", "oful_full", "cond_oracle"),
    extra=partial(slopes_of, sweeps=SWEEPS),
)
