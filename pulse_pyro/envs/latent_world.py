"""A latent autoregression beside S: where earlier rewards tell more about W than S does.

S_t is the ARMA(2,2) process of the other synthetic environments,
    z_t = g_0 + sum_j g_j z_{t-j} + xi_t,   xi_t ~ N(0, sigma_z^2),   independent of S, stationary,
    W_t = slope S_t + z_t,                  R_t = mu_A + beta_A W_t + noise.
E[W_t | S_1:t] = slope S_t + E z is all that S tells, but earlier W, hence earlier rewards, tell
more: E[Phi(Y_t, a) | Y_1:t-1, S_1:t] differs from E[Phi(Y_t, a) | S_1:t], the paper's Assumption 3
fails, and no radius here covers it.

A policy that learns z from past rewards may earn more than the best policy that sees only S: its
full regret minus ``Run.info_gap`` is then NEGATIVE. Conditional regret does not show this: it
prices every arm by S alone, is never negative, and charges such a policy for being right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from pulse_pyro._core.arrays import (
    Float,
    Float1,
    Float2,
    Float3,
    positive,
    whole,
)
from pulse_pyro._core.arrays import (
    share as as_share,
)
from pulse_pyro._core.errors import SettingError
from pulse_pyro.data.history import History
from pulse_pyro.envs.series import PUBLISHED_SERIES, Arma
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features
from pulse_pyro.policies.kalman_oracle import Autoregression, autoregression


def _phi(s: Float2, w: Float2, action: int) -> Float2:
    out = np.empty((len(s), 4))
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = 1.0, action, w[:, 0], w[:, 0] * action
    return out


FEATURES = Features(_phi, 2, ("1", "a", "W", "W*a"))


@dataclass(frozen=True)
class LatentArWorld:
    """W_t = slope S_t + z_t with z a stationary autoregression; make one with :func:`latent_ar`.

    Attributes
    ----------
    latent : the law of z.
    slope : of W in S; at 0, S tells nothing about W.
    mu, beta : intercept and slope in W of the mean reward of each of the two arms.
    reward_sd : of the reward noise. series : the process of S.
    """

    latent: Autoregression
    slope: float
    mu: tuple[float, float] = (0.0, 0.0)
    beta: tuple[float, float] = (-0.5, 0.5)
    reward_sd: float = 0.05
    series: Arma = PUBLISHED_SERIES

    def __post_init__(self) -> None:
        autoregression(self.latent.ar, intercept=self.latent.intercept, sd=self.latent.sd)
        for name in ("mu", "beta"):
            value = np.asarray(getattr(self, name), np.float64)
            if value.shape != (2,) or not np.isfinite(value).all():
                raise SettingError(f"latent_ar: {name} must be two finite numbers, not {value}.")
        if not np.isfinite(self.slope):
            raise SettingError(f"latent_ar: slope must be finite, but got {self.slope!r}.")
        positive(self.reward_sd, "latent_ar: reward_sd", zero=True)

    @property
    def theta(self) -> Float1:
        """The true parameter of Phi = (1, a, W, W a), (4,)."""
        (m0, m1), (b0, b1) = self.mu, self.beta
        return np.array([m0, m1 - m0, b0, b1 - b0])

    def archive(self, units: int, length: int, *, rng: np.random.Generator) -> History:
        """Draw an archive in which W is seen."""
        whole(units, "archive: units", 1)
        whole(length, "archive: length", 1)
        s, noise = self.series.draw(units, length, rng=rng), self._latent(units, length, rng)
        w = self.slope * s + noise[..., None]
        names = tuple(f"unit{i:05d}" for i in range(units))
        return History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))

    def world(self, runs: int, horizon: int, *, rng: np.random.Generator) -> World:
        """Draw ``horizon`` rounds per run; the first has no past to fill lags with."""
        whole(runs, "world: runs", 1)
        whole(horizon, "world: horizon", 1)
        s = self.series.draw(runs, horizon, rng=rng)
        known = self.slope * s[..., 0]
        w = known + self._latent(runs, horizon, rng)
        noise = self.reward_sd * rng.standard_normal(w.shape)
        return World(
            s=s,
            w=w[..., None],
            phi=_both(s, w),
            phibar=_both(s, known + self.latent.mean),
            theta=self.theta,
            noise=noise,
            features=FEATURES,
            lead=0,
        )

    def _latent(self, runs: int, length: int, rng: np.random.Generator) -> Float2:
        """Draw z (run, time), from the first row on in its stationary law."""
        g = np.array(self.latent.ar)
        order = len(g)
        root = np.linalg.cholesky(self.latent.covariance)
        past = rng.standard_normal((runs, order)) @ root.T  # newest first
        shock = self.latent.sd * rng.standard_normal((runs, length))
        # what the filter must remember of the past: entry m holds sum_j g_{j+m} z_{-j}
        memory = np.stack([past[:, : order - m] @ g[m:] for m in range(order)], axis=1)
        path, _ = lfilter([1.0], [1.0, *(-g)], shock, axis=1, zi=memory)
        out: Float2 = self.latent.mean + path
        return out


def latent_ar(
    *,
    share: float = 0.5,
    ar: Sequence[float] = (0.9,),
    sigma_z: float = 0.1,
    intercept: float = 0.0,
    mu: tuple[float, float] = (0.0, 0.0),
    beta: tuple[float, float] = (-0.5, 0.5),
    reward_sd: float = 0.05,
) -> LatentArWorld:
    """Return a latent autoregressive environment.

    Parameters
    ----------
    share : share of the variance of W that S explains; 0 is the published environment, in
        which the context tells nothing.
    ar, sigma_z, intercept : g_1, ..., g_k (stationary), sd of xi, and g_0.
    mu, beta : each arm's mean reward is mu + beta W. By default both arms tell equally much of W.
    reward_sd : of the reward noise.
    """
    latent = autoregression(ar, intercept=intercept, sd=sigma_z)
    part = as_share(share, "latent_ar: share", zero=True)
    slope = np.sqrt(
        part / (1.0 - part) * latent.covariance[0, 0] / PUBLISHED_SERIES.covariance(1)[0, 0]
    )
    return LatentArWorld(latent, float(slope), mu, beta, reward_sd)


def _both(s: Float3, w: Float2) -> Float:
    rows = [FEATURES(s.reshape(-1, 1), w.reshape(-1, 1), a) for a in range(2)]
    return np.stack(rows, axis=1).reshape(*w.shape, 2, 4)
