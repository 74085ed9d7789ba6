"""The synthetic environments of the paper: S is ARMA(2,2), W depends on its recent past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, whole
from pulse_pyro.base import Summary
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags, Window
from pulse_pyro.envs.series import PUBLISHED_SERIES, Arma
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features


@dataclass(frozen=True)
class ArmaWorld:
    """S_t an ARMA process; W_t = mean_of(x_t) + N(0, w_sd^2).

    Attributes
    ----------
    summary : x_t, the part of the past of S that W depends on.
    mean_of : E[W_t | x_t], (n, p) -> (n,).
    features, theta : Phi, affine in w, and the true parameter.
    lead : rows before the first scored round.
    series, online : the process of S in the archive, and online if it is another one there.
    """

    summary: Summary
    mean_of: Callable[[Float2], Float1]
    features: Features
    theta: tuple[float, ...]
    lead: int
    w_sd: float = 0.1
    reward_sd: float = 0.05
    series: Arma = PUBLISHED_SERIES
    online: Arma | None = None

    def archive(self, units: int, length: int, *, rng: np.random.Generator) -> History:
        """Draw an archive; as online, the first ``lead`` rows of a unit have no W (NaN)."""
        whole(units, "archive: units", 1)
        whole(length, "archive: length", self.lead + 1)
        s = self.series.draw(units, length, rng=rng)
        w = self._mean(s) + self.w_sd * rng.standard_normal((units, length))
        w[:, : self.lead] = np.nan
        names = tuple(f"unit{i:05d}" for i in range(units))
        return History.from_arrays(s, w[..., None], units=names, s_names=("s",), w_names=("w",))

    def world(self, runs: int, horizon: int, *, rng: np.random.Generator) -> World:
        """Draw ``horizon`` scored rounds per run, after ``lead`` rows that only fill lags."""
        whole(runs, "world: runs", 1)
        whole(horizon, "world: horizon", 1)
        s = (self.online or self.series).draw(runs, self.lead + horizon, rng=rng)
        mean = self._mean(s)[:, self.lead :]
        w = mean + self.w_sd * rng.standard_normal(mean.shape)
        scored = s[:, self.lead :]
        noise = self.reward_sd * rng.standard_normal(mean.shape)
        return World(
            s=s,
            w=w[..., None],
            phi=self._phi(scored, w),
            phibar=self._phi(scored, mean),
            theta=np.array(self.theta),
            noise=noise,
            features=self.features,
            lead=self.lead,
        )

    def _mean(self, s: Float3) -> Float2:
        x = self.summary(s)
        return self.mean_of(x.reshape(-1, x.shape[-1])).reshape(s.shape[:2])

    def _phi(self, s: Float3, w: Float2) -> Float:
        rows = [
            self.features(s.reshape(-1, 1), w.reshape(-1, 1), a)
            for a in range(self.features.actions)
        ]
        return np.stack(rows, axis=1).reshape(*w.shape, len(rows), -1)


def _main_phi(s: Float2, w: Float2, action: int) -> Float2:
    out = np.empty((len(s), 4))
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = 1.0, s[:, 0], w[:, 0], s[:, 0] * action
    return out


def _wa_phi(s: Float2, w: Float2, action: int) -> Float2:
    out = np.empty((len(s), 4))
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = 1.0, s[:, 0], w[:, 0], w[:, 0] * action
    return out


def _legacy_normal(count: int) -> Float1:
    """The first numbers of the generator and seed the published experiments used."""
    return np.random.RandomState(42).randn(count)


def main_linear() -> ArmaWorld:
    """W = b0 + b1 mean(S_t, S_{t-1}, S_{t-2}) + noise, Phi = (1, S, W, S*a).

    W does not interact with the action: the best arm can be told from S alone.
    """
    return _main(lambda x: 0.0 * x)


def main_nonlinear(rho: float = 4.0) -> ArmaWorld:
    """Like :func:`main_linear` with sin(rho x) added to W, as the paper states it."""
    return _main(lambda x: np.sin(rho * x))


def main_as_run(rho: float = 4.0) -> ArmaWorld:
    """Like :func:`main_linear` with rho sin(x) added to W, as the published script has it."""
    return _main(lambda x: rho * np.sin(x))


def nonlinear_w_times_action(rho: float = 4.0) -> ArmaWorld:
    """W as in :func:`main_nonlinear`, Phi = (1, S, W, W*a), theta = (.1, .1, .1, 1).

    Not in the paper: there a nonlinear W never decides which arm is best, here it does.
    """
    features = Features(_wa_phi, 2, ("1", "S", "W", "W*a"))
    return replace(main_nonlinear(rho), features=features, theta=(0.1, 0.1, 0.1, 1.0))


def _main(bend: Callable[[Float1], Float1]) -> ArmaWorld:
    b0, b1, *theta = _legacy_normal(6)
    return ArmaWorld(
        Window(3, np.mean),
        lambda x: b0 + b1 * x[:, 0] + bend(x[:, 0]),
        Features(_main_phi, 2, ("1", "S", "W", "S*a")),
        tuple(theta[:4]),
        lead=2,
    )


def w_times_action(*, scale: float = 1.0, current: bool = True) -> ArmaWorld:
    """W linear in 19 lags of S, Phi = (1, S, W, W*a), theta = (.1, .1, .1, scale).

    The environment in which imputation matters: the best arm depends on W. ``current``: the lags
    are S_t, ..., S_{t-18} (as in the published scripts) rather than S_{t-1}, ..., S_{t-19} (as in
    the paper). Neither states the order of the coefficients or how many rows an archived unit
    yields. Oldest lag first was chosen because the published OFUL regret then comes out; that the
    first 20 rows only fill the window, in archives too, was chosen among 18, 19 and 20 by looking
    at the published PULSE-UCB regrets, so their agreement is not independent evidence for it.
    """
    beta = _legacy_normal(20)
    return ArmaWorld(
        Lags(19, start=0 if current else 1),
        lambda x: beta[0] + x @ beta[:0:-1],
        Features(_wa_phi, 2, ("1", "S", "W", "W*a")),
        (0.1, 0.1, 0.1, scale),
        lead=20,
    )
