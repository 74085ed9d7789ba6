"""Who chooses and learns, one decision at a time: a radius as a bonus here, a guard elsewhere.

A streaming policy keeps pasts, scores features and waits for rewards; what it does with a round
is its core's affair: draw, say what the law's error is, choose, learn.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float4
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Follower
from pulse_pyro.calibration.online import OnlineErrors, check_refit
from pulse_pyro.policies import kernels
from pulse_pyro.policies.kernels import NOTHING
from pulse_pyro.policies.linear import GREEDY, NO_ERROR, NO_MASK, State, init
from pulse_pyro.radius import SAMPLED, WEIGHT, Radius, check_dim

NO_PSI: Float2 = np.zeros((0, 0))
DRAWN = "its mean is the largest under the theta that was drawn"
OPTIMISTIC = "its mean + sqrt(gamma) width is the largest"


class RoundErrors(NamedTuple):
    """What the law's error is at one round: coef (action, k), psi (w, p) or size 0."""

    coef: Float2
    psi: Float2

    def of(self, action: int) -> RoundErrors:
        """Return what an arm's reward will be learned with, coef (1, k)."""
        return RoundErrors(self.coef[action : action + 1].copy(), self.psi)

    @property
    def none(self) -> RoundErrors:
        """The same without any error: of a round whose W was revealed."""
        return RoundErrors(np.zeros_like(self.coef), self.psi)


class CoreChoice(NamedTuple):
    """What a core chose, and who it was; see ``linear.Decision``.

    mean, width : (K,). root : sqrt(gamma). about : the error its reward will be learned with.
    """

    action: int
    mean: Float1
    width: Float1
    root: float
    error: float
    by: str
    why: str
    cost: float
    about: RoundErrors


class Belief(NamedTuple):
    """What a learner believes: theta (d,), inverse (d, d), s^2 of a reward it cannot tell."""

    theta: Float1
    inverse: Float2
    scale: float


class Core(Protocol):
    """Chooses among scored arms and learns their rewards; nothing of it grows with time."""

    @property
    def ridge(self) -> float:
        """Lambda."""

    @property
    def state(self) -> State:
        """A copy of what has been learned so far."""

    @property
    def width(self) -> int:
        """Number of features a round cannot be played without: all, or the first learner's."""

    @property
    def takes_errors(self) -> bool:
        """Whether a caller may say what the error of a round is."""

    def draw(self) -> None:
        """Draw what a round needs; a round that is refused afterwards has used it up."""

    def about(self, past: list[Follower], given: Float1 | None) -> RoundErrors | None:
        """Return the law's error, for one follower or one per arm; None where nothing is known.

        given : (K,) what the caller says of it. NaN where it cannot be told.
        """

    def choose(self, x: Float4, mask: Bool, about: RoundErrors | None) -> CoreChoice | None:
        """Choose an arm for features x (1, 1, K, d); None where they cannot be scored."""

    def learn(self, x: Float1, reward: float, about: RoundErrors, scored: Float1) -> None:
        """Learn the reward of an arm of features x (d,).

        scored : (d,) those it was decided on, others than x where W was revealed: what was
        predicted is judged by them.
        """

    def check_swap(self) -> None:
        """Refuse to go on with another law where what is said of errors is about the old one."""


class BonusCore:
    """Plays the arm of largest mean + sqrt(gamma) width, sqrt(gamma) by a rule for the radius.

    errors : source of e_{t,a}; its coef is (K, 1).
    """

    takes_errors = True

    def __init__(
        self, radius: Radius, ridge: float, actions: int, dim: int, errors: OnlineErrors | None
    ) -> None:
        check_dim(radius, dim)
        self.radius, self.errors = radius, errors
        self.kept = init(dim, ridge, (1,))
        self.noise = stream(radius.seed, "thompson")
        self._params, self._learn_params = radius.array, GREEDY.array
        self._learn_params[WEIGHT] = radius.weight
        self._unknown = np.full((1, 1, actions), np.nan)
        self._reward, self._error = np.empty((1, 1, 1)), np.empty((1, 1, 1))
        self._action, self._root = np.empty((1, 1), np.int64), np.empty((1, 1))
        self._extra = NOTHING._replace(spent=np.zeros((1, 1)))
        self._round = self._extra

    @property
    def ridge(self) -> float:
        """Lambda."""
        return self.kept.ridge

    @property
    def width(self) -> int:
        """All of them."""
        return int(self.kept.b.shape[1])

    @property
    def state(self) -> State:
        """A copy of what has been learned so far."""
        return self.kept.one(0)

    def draw(self) -> None:
        """Draw the noise of a rule that samples."""
        if self.radius.kind == SAMPLED:
            noise = self.noise.standard_normal((1, 1, self.kept.b.shape[1]))
            self._round = self._extra._replace(noise=noise)

    def about(self, past: list[Follower], given: Float1 | None) -> RoundErrors | None:
        """Return e_{t,a} as coef (K, 1)."""
        if given is None and self.errors is not None:
            given = self.errors.at(past)
        return None if given is None else RoundErrors(given[:, None], NO_PSI)

    def choose(self, x: Float4, mask: Bool, about: RoundErrors | None) -> CoreChoice | None:
        """Choose by the rule."""
        bound = NO_ERROR if about is None else np.ascontiguousarray(about.coef[None, None, :, 0])
        plain = self.radius.plain
        self._play(x, self._unknown, bound, mask, plain=plain, params=self._params)
        action = int(self._action[0, 0])
        if action < 0:
            return None
        mean, width = np.empty((1, x.shape[2])), np.empty((1, x.shape[2]))
        kernels.scores(x, self.kept.inverse, self.kept.theta, mean, width)
        if mask.size:
            mean[~mask[0]] = width[~mask[0]] = np.nan
        if plain:
            e = float(bound[0, 0, action]) if bound.size else 0.0
        else:
            e = float(self._extra.spent[0, 0])
        return CoreChoice(
            action=action,
            mean=mean[0],
            width=width[0],
            root=float(self._root[0, 0]),
            error=e,
            by="radius",
            why=DRAWN if self.radius.kind == SAMPLED else OPTIMISTIC,
            cost=math.nan,
            about=told(e),
        )

    def learn(self, x: Float1, reward: float, about: RoundErrors, scored: Float1) -> None:
        """Learn a reward."""
        self._reward[:], self._error[:] = reward, about.coef[0, 0]
        self._round = self._extra
        params = self._learn_params
        self._play(
            x.reshape(1, 1, 1, -1),
            self._reward,
            self._error,
            NO_MASK,
            plain=self.radius.plain,
            params=params,
            kind=GREEDY.kind,
        )

    def check_swap(self) -> None:
        """Ask the source of errors."""
        if self.errors is not None:
            check_refit(self.errors.calibration)

    def _play(
        self,
        x: Float4,
        reward: Float,
        bound: Float,
        mask: Bool,
        *,
        plain: bool,
        params: Float1,
        kind: int | None = None,
    ) -> None:
        kernels.play(
            x,
            reward,
            bound,
            mask,
            None if plain else self._round,
            self.radius.kind if kind is None else kind,
            params,
            self.kept.ridge,
            *self.kept[:5],
            self._action,
            self._root,
        )

    def __repr__(self) -> str:
        return repr(self.radius)


def told(error: float) -> RoundErrors:
    """Return an error e of one arm."""
    return RoundErrors(np.full((1, 1), error), NO_PSI)
