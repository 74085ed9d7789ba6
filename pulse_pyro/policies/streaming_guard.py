"""The guard of a policy that plays one decision at a time; see ``guard`` for the rule."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float3, Float4
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Follower
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.online import check_refit, missing_error, single_part
from pulse_pyro.policies.ball import BallRounds, BallSums
from pulse_pyro.policies.carried import carry_setup, carry_state
from pulse_pyro.policies.core import NO_PSI, CoreChoice, RoundErrors
from pulse_pyro.policies.guard import (
    ALONE,
    NO_NOISE,
    Ball,
    BiasMap,
    member_output,
)
from pulse_pyro.policies.guard import NO_PSI as NO_ROUNDS
from pulse_pyro.policies.kernels import scores
from pulse_pyro.policies.linear import NO_MASK, State
from pulse_pyro.policies.members import (
    DRAWN,
    DRIFT,
    GIVEN,
    INDEX,
    LOGDET,
    ROUNDS,
    UCB,
    UNUSABLE,
    first_state,
    member_setup,
    play_members,
)
from pulse_pyro.radius import CONSTANT, SAMPLED, Radius

AdvisorFunction = Callable[[Float1, Float1, Bool], int]
Advisor = Radius | str | AdvisorFunction
ADVISORS = "constant(...), thompson(...), 'greedy', 'ball' or a function of mean, width, allowed"
WHO = (
    ("advisor", "its arm cannot be shown to be worse than the ball is wide"),
    ("guard", "the advisor's arm may cost more than the guard allows"),
    ("guard", "the advisor proposed no arm that is allowed"),
)


class ErrorSource(Protocol):
    """Where a guard gets the law's error from, one round at a time."""

    def at(self, past: list[Follower]) -> RoundErrors:
        """Return it for one follower of a series, or one per arm; NaN where it is not known."""

    def check_swap(self) -> None:
        """Refuse another law where what is said is about the old one."""


@dataclass(frozen=True, eq=False)
class BandRounds:
    """Errors of E[W] from a calibration's band: coef = c_k eps."""

    calibration: Calibration
    bias: BiasMap

    def at(self, past: list[Follower]) -> RoundErrors:
        """Return c_k eps, with a context per arm each arm's own."""
        _, targets = single_part(self.calibration, "guard")
        place = {int(column): at for at, column in enumerate(targets.used)}
        use = [place[int(column)] for column in self.bias.of]
        rows = []
        for follower in past:
            eps = missing_error(self.calibration, follower)
            rows.append(self.bias.coef(follower.now[None])[0] * eps[use])
        coef = rows[0] if len(rows) == 1 else np.stack([row[a] for a, row in enumerate(rows)])
        return RoundErrors(coef, NO_PSI)

    def check_swap(self) -> None:
        """The band speaks of the truth: another law will do where its E[W] has a closed form."""
        check_refit(self.calibration)


class StreamingGuard:
    """Lets an advisor play as long as its arm cannot be shown to be worse than the ball is wide.

    Parameters
    ----------
    ball : whose first ``dim`` entries of theta are those of the scored features.
    source : the law's error at each round; None where it is learned.
    actions, dim, ridge : K, number of scored features, lambda fixed beforehand.
    advisor : ``constant(alpha)``, ``thompson(scale)``, "greedy", "ball" (the arm of largest
        m + r w), or a function of theta_hat' x (K,), the widths (K,) and which arms are allowed
        (K,), that returns an arm. It may use S_1:t, past rewards and coins of its own, no more.
    slack : c >= 1.

    Every round costs at most 2 c r w of the arm played, on the ball. NOT covered: see ``guard``.
    """

    takes_errors = False

    def __init__(
        self,
        ball: Ball,
        source: ErrorSource | None,
        actions: int,
        dim: int,
        ridge: float,
        advisor: Advisor,
        slack: float,
    ) -> None:
        if not (isinstance(slack, int | float) and slack >= 1.0):
            raise SettingError(f"guard: slack must be at least 1, but got {slack!r}; 3 is usual.")
        self.ball, self.source, self.advisor, self.slack = ball, source, advisor, float(slack)
        self.rule = ball.rule
        if self.rule.directions.shape[1] != dim:
            raise SettingError(
                f"guard: the ball was made for {self.rule.directions.shape[1]} features, but {dim} "
                "are scored."
            )
        kind, alpha = _kind(advisor, ball.sigma)
        self.setup = member_setup(
            [dim], [ridge], [alpha], [ball.sigma], advisor=kind, slack=self.slack
        )
        self.kept = first_state(self.setup, 1)
        count = len(self.rule.directions)
        self.sums = BallSums(np.zeros((1, count, 2)), np.zeros((1, count, dim, 0)))
        self.counts = np.zeros(3, np.int64)  # decisions advised, overruled, unusable
        self.noise = stream(advisor.seed if isinstance(advisor, Radius) else 0, "thompson")
        self._drawn = NO_NOISE
        self._unknown = np.full((1, 1, actions), np.nan)
        self._given = np.full((1, 1), -1, np.int64)
        self._output = member_output((1, 1), 1)
        self._carry = carry_setup([None], actions)
        self._carried = carry_state(self._carry, 1, 1)

    @property
    def ridge(self) -> float:
        """Lambda."""
        return float(self.setup.ridge[0])

    @property
    def state(self) -> State:
        """A copy of what has been learned so far; it has no sums of e, but those of the ball."""
        kept, sums = self.kept, self.kept.sums[0, 0]
        return State(
            precision=kept.precision[0, 0].copy(),
            inverse=kept.inverse[0, 0].copy(),
            b=kept.b[0, 0].copy(),
            theta=kept.theta[0, 0].copy(),
            sums=np.array([sums[ROUNDS], sums[LOGDET], np.nan, np.nan, sums[DRIFT]]),
            ridge=self.ridge,
        )

    def draw(self) -> None:
        """Draw the noise of an advisor that samples."""
        if self.setup.advisor == DRAWN:
            self._drawn = self.noise.standard_normal((1, 1, self.kept.b.shape[2]))

    def about(self, past: list[Follower], given: Float1 | None) -> RoundErrors:
        """Return the law's error now; nothing where it is learned."""
        if self.source is None:
            return RoundErrors(np.zeros((self._unknown.shape[2], 0)), NO_PSI)
        return self.source.at(past)

    def choose(self, x: Float4, mask: Bool, about: RoundErrors | None) -> CoreChoice | None:
        """Ask the advisor and play its arm, or the ball's."""
        assert about is not None
        out = self._output
        mean, width = np.empty((1, x.shape[2])), np.empty((1, x.shape[2]))
        scores(x, self.kept.inverse[0], self.kept.theta[0], mean, width)
        allowed = np.ones(x.shape[2], np.bool_) if not mask.size else mask[0, 0]
        mean[0, ~allowed] = width[0, ~allowed] = np.nan
        if self.setup.advisor == GIVEN:
            self._given[0, 0] = self._asked(mean[0], width[0], allowed)
        self._play(x, self._unknown, mask, self._drawn, about)
        action = int(out.action[0, 0])
        if action < 0:
            return None
        chosen = int(out.chosen[0, 0])
        self.counts[chosen] += 1
        by, why = WHO[chosen]
        return CoreChoice(
            action=action,
            mean=mean[0],
            width=width[0],
            root=float(out.root[0, 0]),
            error=self._bound(about, action),
            by=by,
            why=why,
            cost=float(out.cost[0, 0]),
            about=about.of(action),
        )

    def learn(self, x: Float1, reward: float, about: RoundErrors) -> None:
        """Learn the reward of an arm whose features were x (d,)."""
        rewards = np.full((1, 1, 1), reward)
        self._play(x.reshape(1, 1, 1, -1), rewards, NO_MASK, NO_NOISE, about, alone=True)

    def check_swap(self) -> None:
        """Ask the source of errors."""
        if self.source is not None:
            self.source.check_swap()

    @property
    def share_overruled(self) -> float:
        """Share of the decisions in which the guard did not follow the advisor."""
        total = int(self.counts.sum())
        return float(self.counts[1:].sum() / total) if total else 0.0

    def _bound(self, about: RoundErrors, action: int) -> float:
        """Return e of an arm: what the law's error can move its mean by, whatever theta is."""
        most = self.ball.theta_bound * self.rule.norms
        return float(np.abs(about.coef[action]) @ most)

    def _play(
        self,
        x: Float4,
        reward: Float3,
        mask: Bool,
        noise: Float3,
        about: RoundErrors,
        *,
        alone: bool = False,
    ) -> None:
        psi = about.psi[None, None] if about.psi.size else NO_ROUNDS
        play_members(
            x,
            reward,
            mask,
            self._given,
            noise,
            self.setup._replace(advisor=UCB) if alone else self.setup,
            self.kept,
            self.rule,
            BallRounds(about.coef[None, None], psi),
            self.sums,
            0.0 if alone else -1.0,
            self._carry,
            self._carried,
            ALONE,
            self._output,
        )

    def _asked(self, mean: Float1, width: Float1, allowed: Bool) -> int:
        """Ask the user's function; what is no arm is -1, and the guard plays."""
        assert callable(self.advisor)
        try:
            arm = self.advisor(mean.copy(), width.copy(), allowed.copy())
        except Exception as cause:
            cause.add_note(
                "act: the advisor failed. No decision was issued and nothing was learned; S_t was "
                "taken in, do not pass it again."
            )
            raise
        try:
            found = operator.index(arm)
        except TypeError:
            return -1
        return found if 0 <= found < len(mean) else -1

    def __repr__(self) -> str:
        ball, total = self.ball, int(self.counts.sum())
        who = self.advisor if isinstance(self.advisor, Radius | str) else "a function"
        unusable = int(self.counts[UNUSABLE])
        head = (
            f"guard around {who}, slack {self.slack:g}: {self.share_overruled:.1%} of {total} "
            f"decisions overruled, {unusable} proposals unusable"
        )
        rests = "; ".join(ball.rests_on)
        if ball.heuristic:
            fence = f"heuristic: {ball.heuristic}; it plays like its advisor and promises nothing"
        else:
            fence = (
                f"guarantee: a round costs at most 2 c r w, against the best policy on S, with "
                f"probability >= {max(ball.probability, 0.0):.4g}"
            )
        return f"{head}\n  {fence}\n  conditional on: {rests}"


def _kind(advisor: Advisor, sigma: float) -> tuple[int, float]:
    """Return the kind of advisor, and its alpha."""
    if isinstance(advisor, Radius) and advisor.kind == CONSTANT:
        return INDEX, advisor.params[0]
    if isinstance(advisor, Radius) and advisor.kind == SAMPLED:
        return DRAWN, advisor.params[0]
    if advisor == "greedy":
        return INDEX, 0.0
    if advisor == "ball":
        return UCB, sigma
    if callable(advisor):
        return GIVEN, sigma
    raise SettingError(f"guard: an advisor is {ADVISORS}, but got {advisor!r}.")
