"""The instance of the paper's lower bound: signs that N archived rows and T rounds leave open.

Two arms, a = -1 and a = +1, S = (Q, O) and one missing W. Rounds are independent. With probability
1/2 (the nonparametric rounds) Q = 0 and O ~ Unif[-1, 1]^d_non, else (the linear rounds) Q is one of
the unit vectors e_i of R^d_lin, each as likely, and O = o_0 = (2, .., 2), where f = 0.

    W = f(O) + N(0, w_sd^2),   Phi(Y, +1) = (Q, O, W),   Phi(Y, -1) = (-Q, 0, 0),
    theta = (theta_Q, 0, 1/2), |theta_Q,i| = sqrt(d_lin / T),   f = sum_j omega_j C M^-beta phi_j.

phi_j are the bumps of :class:`~pulse_pyro.envs.hard.Bumps`. The best arm is sign(f(O)) or
sign(theta_Q,i), and no policy that sees only S knows these signs: every one of them pays
sqrt(d_lin T) + T N^(-beta / (2 beta + d_non)), up to constants, in regret against the best arm
given S. (The paper states it against the best arm given the full context; its proof is for this.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float3, Int, positive, whole
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import History
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features

# Bumps on a grid: the functions the lower bound is made of, and what a law may know of them.


@dataclass(frozen=True)
class Bumps:
    """phi_beta(2 M (o - b_j)) for every bin j of a grid over [-1, 1]^d_non, as a summary of S_t.

    phi_beta(u) = (1 - max_l |u_l|)^beta where that is not negative, else 0: 1 at the centre b_j
    of a bin, 0 on its edge. Bins have width 1 / M, so there are (2 M)^d_non of them; supports are
    disjoint. The paper's grid fills [0, 1]^d_non only and leaves the rest of the cube, on which f
    would be 0 and nothing could go wrong, without bins; here they fill the cube.

    Attributes
    ----------
    d_lin, d_non : columns of Q and of O in S = (Q, O).
    m : M, bins for each unit of length along an axis.
    beta : smoothness, in (0, 1].

    As a summary it maps (.., time, d_lin + d_non) to (.., time, p), a column a bin, in the order
    of ``locate``. Summaries hold a multiple of s_dim columns: p is (2 M)^d_non rounded up to one,
    and the columns that are left over are 0. NaN in O gives NaN.

    Not covered: beta > 1, for which these bumps are not smooth enough at centre and edge.
    """

    d_lin: int
    d_non: int
    m: int
    beta: float

    def __post_init__(self) -> None:
        for name in ("d_lin", "d_non", "m"):
            object.__setattr__(self, name, whole(getattr(self, name), f"Bumps: {name}", 1))
        beta = positive(self.beta, "Bumps: beta")
        if beta > 1.0:
            raise SettingError(f"Bumps: beta must be at most 1, but got {self.beta!r}.")
        object.__setattr__(self, "beta", beta)

    @property
    def bins(self) -> int:
        """(2 M)^d_non."""
        return int((2 * self.m) ** self.d_non)

    @property
    def energy(self) -> float:
        """E[phi_beta(u)^2] for u uniform on [-1, 1]^d_non: d_non B(d_non, 2 beta + 1)."""
        d, power = self.d_non, 2.0 * self.beta + 1.0
        return d * math.exp(math.lgamma(d) + math.lgamma(power) - math.lgamma(d + power))

    @property
    def centres(self) -> Float:
        """(bins, d_non) the points b_j."""
        axis = (np.arange(2 * self.m) + 0.5) / self.m - 1.0
        grid = np.meshgrid(*[axis] * self.d_non, indexing="ij")
        return np.stack([part.ravel() for part in reversed(grid)], axis=-1)

    def locate(self, o: Float) -> tuple[Int, Float]:
        """Return the bin (..,) of points o (.., d_non), and phi there; 0 outside the cube.

        Bins are numbered sum_l k_l (2 M)^l with k_l counted from 0 along axis l = 0, 1, ...
        """
        inside: Bool = np.all(np.abs(o) <= 1.0, axis=-1)
        steps = (np.where(inside[..., None], o, 0.0) + 1.0) * self.m
        cell = np.minimum(np.floor(steps), 2 * self.m - 1)  # o = 1 belongs to the last bin
        far = np.abs(2.0 * (steps - cell) - 1.0).max(-1)
        index: Int = (cell.astype(np.int64) * (2 * self.m) ** np.arange(self.d_non)).sum(-1)
        height = np.where(inside, np.maximum(1.0 - far, 0.0) ** self.beta, 0.0)
        return index, np.where(np.isnan(o).any(-1), np.nan, height)

    @property
    def names(self) -> tuple[str, ...]:
        """One name for s_dim columns; see the class."""
        return tuple(f"bump{j}" for j in range(-(-self.bins // (self.d_lin + self.d_non))))

    @property
    def memory(self) -> int:
        """The current row."""
        return 1

    def __call__(self, s: Float) -> Float:
        """Map (.., time, d_lin + d_non) to (.., time, p)."""
        index, height = self.locate(s[..., self.d_lin :])
        out = np.zeros((*index.shape, len(self.names) * s.shape[-1]))
        np.put_along_axis(out, index[..., None], height[..., None], axis=-1)
        return out

    def last(self, past: Float) -> Float:
        """Return the newest row: (memory, s_dim) -> (p,)."""
        out: Float = self(past[-1:])[0]
        return out


FAR = 2.0  # every coordinate of o_0
THETA_W = 0.5


@dataclass(frozen=True)
class HardWorld:
    """The lower-bound instance for N archived rows; theta is set by the horizon of a world.

    Attributes
    ----------
    rows : N, the size of the archive the bumps are made for. M is the whole number nearest to
        (N C^2 E[phi^2] / (2^(1 + d_non) w_sd^2 snr))^(1 / (2 beta + d_non)).
    d_lin, d_non, beta : dimensions of Q and O, smoothness of f in (0, 1].
    height : C; a bump is C M^-beta high, and |f(o) - f(o')| <= 2 C |o - o'|^beta.
    snr : signal-to-noise of one bump, sum_i (C M^-beta phi_j(O_i))^2 / w_sd^2 as expected over N
        rows. Two signs are then 2 snr apart in Kullback-Leibler divergence, and the best test
        takes the wrong one with probability P(N(0, 1) > sqrt(snr)): 16 % at 1.
    w_sd : of W given O.
    reward_sd : of the reward noise. At sqrt(1/2) the same holds for each theta_Q,i: T / (2 d_lin)
        rounds of a = -1 have signal-to-noise 1. (W blurs rewards of a = +1 further.)
    seed : of the signs omega and sign(theta_Q), drawn once: every archive and world of an instance
        shares them. Half of the omega, at random, are +1: a policy that ignores the archive
        then does not depend on how many there are.

    Defaults follow from the two signal-to-noise ratios and |f| <= 1, not from any regret.
    2 C is the Hoelder constant for every beta in (0, 1]. The paper's smaller beta 2^beta C rests on
    |x^beta - y^beta| <= beta |x - y|, which fails for beta < 1, and on neighbours of one sign.

    Not covered: an archive that is not of N rows is allowed, but its signs are then easier, or
    harder, than the bound has it; so is a horizon that is not small beside N, where rewards
    tell of the signs too.
    """

    rows: int
    d_lin: int = 2
    d_non: int = 1
    beta: float = 1.0
    height: float = 1.0
    snr: float = 1.0
    w_sd: float = 1.0
    reward_sd: float = math.sqrt(0.5)
    seed: int = 0

    def __post_init__(self) -> None:
        whole(self.rows, "HardWorld: rows", 1)
        for name in ("height", "snr", "w_sd", "reward_sd"):
            positive(getattr(self, name), f"HardWorld: {name}")
        Bumps(self.d_lin, self.d_non, 1, self.beta)
        stream(self.seed)

    @cached_property
    def bumps(self) -> Bumps:
        """The grid: what a law that knows everything but the signs may look at."""
        one = Bumps(self.d_lin, self.d_non, 1, self.beta)
        return Bumps(self.d_lin, self.d_non, max(round(self._wanted(one)), 1), self.beta)

    def _wanted(self, one: Bumps) -> float:
        per_row = one.energy / 2.0 ** (1 + self.d_non)  # half of the rows, 1 of (2 M)^d_non bins
        ratio = self.rows * per_row * (self.height / self.w_sd) ** 2 / self.snr
        return float(ratio ** (1.0 / (2.0 * self.beta + self.d_non)))

    @property
    def exponent(self) -> float:
        """The power of N in the bound: -beta / (2 beta + d_non)."""
        return -self.beta / (2.0 * self.beta + self.d_non)

    @property
    def peak(self) -> float:
        """Height of a bump, C M^-beta."""
        return float(self.height * self.bumps.m**-self.beta)

    @cached_property
    def omega(self) -> Float1:
        """(bins,) the signs of the bumps."""
        signs: Float1 = np.resize([1.0, -1.0], self.bumps.bins)
        return stream(self.seed, "hard", "omega").permutation(signs)

    @property
    def features(self) -> Features:
        """Phi, affine in W; no intercept, as in the paper."""
        names = [f"q{i}" for i in range(self.d_lin)] + [f"o{i}" for i in range(self.d_non)]
        return Features(partial(_phi, self.d_lin), 2, (*names, "w"))

    def f(self, o: Float) -> Float:
        """E[W | O = o]: (.., d_non) -> (..,)."""
        index, bump = self.bumps.locate(o)
        return self.peak * self.omega[index] * bump

    def theta(self, horizon: int) -> Float1:
        """(d_lin + d_non + 1,) the true parameter for T rounds; needs d_lin < sqrt(3 T) / 2."""
        whole(horizon, "HardWorld: horizon", 1)
        if self.d_lin >= math.sqrt(3.0 * horizon) / 2.0:
            raise SettingError(
                f"HardWorld: d_lin = {self.d_lin} needs more than {4 * self.d_lin**2 // 3} rounds "
                f"to keep |theta| < 1, but got horizon={horizon}."
            )
        sign = stream(self.seed, "hard", "theta").choice([-1.0, 1.0], self.d_lin)
        size = math.sqrt(self.d_lin / horizon)
        return np.concatenate([size * sign, np.zeros(self.d_non), [THETA_W]])

    def linear(self, s: Float3) -> Bool:
        """Tell the linear rounds (run, time), Q = e_i, of s (run, time, s_dim) from the others."""
        found: Bool = np.any(s[..., : self.d_lin] != 0.0, axis=-1)
        return found

    def archive(self, units: int, length: int, *, rng: np.random.Generator) -> History:
        """Draw units x length rows, all independent: units and times mean nothing here."""
        whole(units, "archive: units", 1)
        whole(length, "archive: length", 1)
        context, noise = rng.spawn(2)
        s = self._contexts((units, length), context)
        w = self.f(s[..., self.d_lin :]) + self.w_sd * noise.standard_normal((units, length))
        names, columns = tuple(f"unit{i:05d}" for i in range(units)), self.features.names[:-1]
        return History.from_arrays(s, w[..., None], units=names, s_names=columns, w_names=("w",))

    def world(self, runs: int, horizon: int, *, rng: np.random.Generator) -> World:
        """Draw T = ``horizon`` rounds a run; a longer horizon goes on where a shorter one ends."""
        whole(runs, "world: runs", 1)
        theta = self.theta(horizon)
        context, noise = rng.spawn(2)  # time is the slow axis, so that horizons are nested
        s = np.ascontiguousarray(self._contexts((horizon, runs), context).swapaxes(0, 1))
        blur, extra = np.ascontiguousarray(noise.standard_normal((horizon, runs, 2)).T)
        mean = self.f(s[..., self.d_lin :])
        w = mean + self.w_sd * blur
        return World(
            s=s,
            w=w[..., None],
            phi=self._both(s, w),
            phibar=self._both(s, mean),
            theta=theta,
            noise=self.reward_sd * extra,
            features=self.features,
            lead=0,
        )

    def _contexts(self, shape: tuple[int, int], rng: np.random.Generator) -> Float3:
        draw = rng.random((*shape, 2 + self.d_non))
        linear = draw[..., :1] < 0.5
        unit = np.minimum((draw[..., 1] * self.d_lin).astype(np.int64), self.d_lin - 1)
        q = np.where(linear, np.eye(self.d_lin)[unit], 0.0)
        return np.concatenate([q, np.where(linear, FAR, 2.0 * draw[..., 2:] - 1.0)], axis=-1)

    def _both(self, s: Float3, w: Float2) -> Float:
        flat, missing, features = s.reshape(-1, s.shape[-1]), w.reshape(-1, 1), self.features
        rows = np.stack([features(flat, missing, a) for a in range(2)], axis=1)
        return rows.reshape(*w.shape, 2, -1)


def _phi(d_lin: int, s: Float2, w: Float2, action: int) -> Float2:
    if action == 1:
        return np.concatenate([s, w], axis=1)
    out = np.zeros((len(s), s.shape[1] + w.shape[1]))
    out[:, :d_lin] = -s[:, :d_lin]
    return out
