"""What an environment hands to the simulator: the contexts and noise of many runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from pulse_pyro._core.arrays import Float, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import SettingError, nearest
from pulse_pyro._core.registry import named
from pulse_pyro.data.history import History
from pulse_pyro.envs import ENVS
from pulse_pyro.features import Features


class Contexts(Protocol):
    """What an agent is made from: the rounds of several series, and Phi.

    s (series, lead + time, s_dim), w (series, time, w_dim), phi (series, time, action, d), lead: as
    in :class:`World`, whose series are runs; those of a :class:`Replay` are units. Agents that see
    only S read w for its width alone.
    """

    @property
    def s(self) -> Float3:
        """What is seen online."""

    @property
    def w(self) -> Float3:
        """What is not."""

    @property
    def phi(self) -> Float4:
        """Features of the full context."""

    @property
    def features(self) -> Features:
        """The map Phi."""

    @property
    def lead(self) -> int:
        """Rows before the first scored round."""


@dataclass(frozen=True, eq=False)
class World:
    """Contexts and noise of many runs; every agent is measured on the same ones.

    Attributes
    ----------
    s : (run, lead + time, s_dim) what is seen online; the first ``lead`` rows only fill lags.
    w : (run, time, w_dim) what is not.
    phi : (run, time, action, d) features of the full context.
    phibar : (run, time, action, d) their expectation given S_1:t under the truth.
    theta : (d,) the true parameter, or (run, d) one for each run.
    noise : (run, time) reward noise, one for all arms.
    features : the map Phi.
    lead : rows before the first scored round.
    """

    s: Float3
    w: Float3
    phi: Float4
    phibar: Float4
    theta: Float
    noise: Float2
    features: Features
    lead: int

    @cached_property
    def mean_full(self) -> Float3:
        """theta*' Phi(Y_t, a), (run, time, action)."""
        return _weighed(self.phi, self.theta)

    @cached_property
    def mean_cond(self) -> Float3:
        """theta*' E[Phi(Y_t, a) | S_1:t], (run, time, action)."""
        return _weighed(self.phibar, self.theta)

    @property
    def reward(self) -> Float3:
        """What each arm would pay, noise included."""
        return self.mean_full + self.noise[..., None]

    def one(self, run: int) -> World:
        """Return a single run as a world of its own."""
        at = slice(run, run + 1)
        return replace(
            self,
            s=self.s[at],
            w=self.w[at],
            phi=self.phi[at],
            phibar=self.phibar[at],
            noise=self.noise[at],
            theta=self.theta if self.theta.ndim == 1 else self.theta[run],
        )

    def regret(self, action: Int, *, full: bool) -> Float2:
        """Per-round noise-free regret of actions (run, time); 0 where no arm was played.

        ``full`` compares with the best arm given the full context; otherwise with the best arm
        given S alone, the only one a policy can be held to.
        """
        mean = self.mean_full if full else self.mean_cond
        played = np.take_along_axis(mean, np.maximum(action, 0)[..., None], -1)[..., 0]
        return np.where(action >= 0, mean.max(-1) - played, 0.0)


def _weighed(phi: Float4, theta: Float) -> Float3:
    """Return theta' phi, (run, time, action)."""
    return phi @ theta if theta.ndim == 1 else np.einsum("rtad,rd->rta", phi, theta)


class Environment(Protocol):
    """A source of archives and of online worlds."""

    def archive(self, units: int, length: int, *, rng: np.random.Generator) -> History:
        """Draw an archive with full contexts."""

    def world(self, runs: int, horizon: int, *, rng: np.random.Generator) -> World:
        """Draw the online contexts of many runs."""


def environment(name: str) -> Environment:
    """Return an environment of ``envs.ENVS`` by its name, with its own defaults.

    >>> environment("w_times_action").archive(2, 30, rng=np.random.default_rng(0)).w_names
    ('w',)
    """
    if name not in ENVS:
        raise SettingError(f"environment: there is no {name!r}{nearest(name, ENVS)}")
    made: Environment = named(ENVS, name)()
    return made
