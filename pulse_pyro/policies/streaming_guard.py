"""The guard of a policy that plays one decision at a time; see ``guard`` for the rule.

The same core plays without a ball, where an advisor's arm is always played, and with several
learners, who then form a committee: see ``committee``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Follower
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.online import check_refit, single_part
from pulse_pyro.laws.units import Acquaintance
from pulse_pyro.policies.ball import BallRounds, BallSums
from pulse_pyro.policies.carried import carry_setup, carry_state
from pulse_pyro.policies.core import NO_PSI, Belief, CoreChoice, RoundErrors
from pulse_pyro.policies.guard import (
    ALONE,
    NO_NOISE,
    VOTES,
    Ball,
    BiasMap,
    member_output,
    no_fence,
)
from pulse_pyro.policies.guard import NO_PSI as NO_ROUNDS
from pulse_pyro.policies.kernels import scores
from pulse_pyro.policies.linear import NO_MASK, State
from pulse_pyro.policies.members import (
    DRAWN,
    DRIFT,
    EVIDENCE,
    GIVEN,
    INDEX,
    LED,
    LOGDET,
    ROUNDS,
    SCALE,
    SHAPE,
    STACK,
    UCB,
    UNUSABLE,
    VOTE,
    MemberState,
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
JUDGED = [SCALE, EVIDENCE, STACK]  # what of a member's sums is about its predictions
UNFENCED = "it was proposed, and nothing fences it in"
UNSPOKEN = "the calibration speaks of units nothing was known of"


def acquaintance_of(follower: Follower) -> Acquaintance | None:
    """Return how well a follower knows its unit, where the law has latents of units."""
    found: Acquaintance | None = getattr(follower, "acquaintance", None)
    return found


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
        part, targets = single_part(self.calibration, "guard")
        place = {int(column): at for at, column in enumerate(targets.used)}
        use = [place[int(column)] for column in self.bias.of]
        rows = []
        for follower in past:
            eps = part.missing_error(follower)
            rows.append(self.bias.coef(follower.now[None])[0] * eps[use])
        coef = rows[0] if len(rows) == 1 else np.stack([row[a] for a, row in enumerate(rows)])
        return RoundErrors(coef, NO_PSI)

    def check_swap(self) -> None:
        """The band speaks of the truth: another law will do where its E[W] has a closed form."""
        check_refit(self.calibration)


class LearnerShape(NamedTuple):
    """A further learner of a committee: number of features, lambda, alpha of its index."""

    dim: int
    ridge: float
    alpha: float


class WeightHistory:
    """Weights of learners over decisions, thinned out: at most 512 points, whatever the time."""

    MOST = 512

    def __init__(self) -> None:
        self.stride, self.rounds, self.weights = 1, list[int](), list[Float1]()

    def note(self, decision: int, weights: Float1) -> None:
        """Keep the weights (k,) of a decision if its turn has come."""
        if decision % self.stride:
            return
        self.rounds.append(decision)
        self.weights.append(weights)
        if len(self.rounds) > self.MOST:
            self.stride *= 2
            keep = [i for i, r in enumerate(self.rounds) if r % self.stride == 0]
            self.rounds = [self.rounds[i] for i in keep]
            self.weights = [self.weights[i] for i in keep]

    def drop(self, k: int) -> None:
        """Forget a learner."""
        self.weights = [np.delete(w, k) if len(w) > k else w for w in self.weights]

    def arrays(self, members: int) -> tuple[Int, Float2]:
        """Return decisions (n,) and weights (n, members), 0 for those who had not joined."""
        out = np.zeros((len(self.rounds), members))
        for row, w in zip(out, self.weights, strict=True):
            row[: len(w)] = w
        return np.array(self.rounds, np.int64), out


class StreamingGuard:
    """Lets an advisor play as long as its arm cannot be shown to be worse than the ball is wide.

    Parameters
    ----------
    ball : whose first ``dim`` entries of theta are those of the scored features. None: no fence,
        and nothing is promised.
    source : the law's error at each round; None where it is learned.
    actions, dim, ridge : K, number of scored features, lambda fixed beforehand.
    advisor : ``constant(alpha)``, ``thompson(scale)``, "greedy", "ball" (the arm of largest
        m + r w), or a function of theta_hat' x (K,), the widths (K,) and which arms are allowed
        (K,), that returns an arm. It may use S_1:t, past rewards and coins of its own, no more.
    slack : c >= 1.
    others : further learners, whose features stand behind the first one's; the advisor is then
        "committee". guess : sd of a reward a priori, for their evidence; the ball's sigma if None.
    votes : how a committee weighs its members.

    Every round costs at most 2 c r w of the arm played, on the ball. NOT covered: see ``guard``.
    And units that are known, from the archive or by W that were revealed: what was said of the
    law's error was found on new ones. ``known`` counts decisions about them; from the first on the
    ball is heuristic, because it learns from their rounds too, and no cost is told.
    """

    takes_errors = False

    def __init__(
        self,
        ball: Ball | None,
        source: ErrorSource | None,
        actions: int,
        dim: int,
        ridge: float,
        advisor: Advisor,
        slack: float,
        *,
        others: Sequence[LearnerShape] = (),
        guess: float | None = None,
        votes: str = "tempered",
    ) -> None:
        if not (isinstance(slack, int | float) and slack >= 1.0):
            raise SettingError(f"guard: slack must be at least 1, but got {slack!r}; 3 is usual.")
        self.ball, self.source, self.advisor, self.slack = ball, source, advisor, float(slack)
        self.rule = (ball or no_fence(dim)).rule
        if self.rule.directions.shape[1] != dim:
            raise SettingError(
                f"guard: the ball was made for {self.rule.directions.shape[1]} features, but {dim} "
                "are scored."
            )
        prior = guess if guess is not None else 1.0 if ball is None else ball.sigma
        kind, alpha = _kind(advisor, prior)
        self.setup = member_setup(
            [dim, *(each.dim for each in others)],
            [ridge, *(each.ridge for each in others)],
            [alpha, *(each.alpha for each in others)],
            [prior] * (1 + len(others)),
            advisor=kind,
            slack=0.0 if ball is None else self.slack,
            rule=VOTES[votes],
        )
        # an update has one arm, and who would have proposed it does not matter
        self._setup_of_one = self.setup._replace(advisor=VOTE, slack=0.0)
        self.kept = first_state(self.setup, 1)
        count = len(self.rule.directions)
        self.sums = BallSums(np.zeros((1, count, 2)), np.zeros((1, count, dim, 0)))
        self.counts = np.zeros(3, np.int64)  # decisions advised, overruled, unusable
        self.known, self._of_known = 0, False  # decisions about known units; whether this is one
        self.noise = stream(advisor.seed if isinstance(advisor, Radius) else 0, "thompson")
        self._drawn = NO_NOISE
        self._weights = np.full(1 + len(others), 1.0 / (1 + len(others)))
        self.history = WeightHistory()
        self._unknown = np.full((1, 1, actions), np.nan)
        self._given = np.full((1, 1), -1, np.int64)
        self._output = member_output((1, 1), 1 + len(others))
        self._carry = carry_setup([None] * (1 + len(others)), actions)
        self._carried = carry_state(self._carry, 1, 1)

    @property
    def ridge(self) -> float:
        """Lambda."""
        return float(self.setup.ridge[0])

    @property
    def state(self) -> State:
        """A copy of what has been learned so far; it has no sums of e, but those of the ball."""
        kept, sums, d = self.kept, self.kept.sums[0, 0], int(self.setup.dims[0])
        return State(
            precision=kept.precision[0, 0, :d, :d].copy(),
            inverse=kept.inverse[0, 0, :d, :d].copy(),
            b=kept.b[0, 0, :d].copy(),
            theta=kept.theta[0, 0, :d].copy(),
            sums=np.array([sums[ROUNDS], sums[LOGDET], np.nan, np.nan, sums[DRIFT]]),
            ridge=self.ridge,
        )

    def belief(self, k: int) -> Belief:
        """Return what learner k believes now; its arrays are the core's own."""
        d, sums = int(self.setup.dims[k]), self.kept.sums[0, k]
        scale = float(sums[SCALE] / (SHAPE + 0.5 * sums[ROUNDS]))
        return Belief(self.kept.theta[0, k, :d], self.kept.inverse[0, k, :d, :d], scale)

    @property
    def past_weights(self) -> tuple[Int, Float2]:
        """Decisions (n,) and the learners' weights there, (n, k); 0 before one had joined."""
        return self.history.arrays(len(self._weights))

    def seat(self, shape: LearnerShape) -> None:
        """Let a learner join, with the evidence of the committee so far."""
        sums, setup = self.kept.sums[0], self.setup
        self._resize(np.arange(len(setup.dims)), [shape], float(self._weights @ sums[:, EVIDENCE]))

    def unseat(self, k: int) -> None:
        """Let learner k go; not the first."""
        self._resize(np.delete(np.arange(len(self.setup.dims)), k), [], 0.0)
        self.history.drop(k)

    def _resize(self, stay: Int, join: list[LearnerShape], evidence: float) -> None:
        """Go on with some of the learners, and new ones behind them."""
        old, kept = self.setup, self.kept
        self.setup = member_setup(
            [*old.dims[stay].tolist(), *(each.dim for each in join)],
            [*old.ridge[stay].tolist(), *(each.ridge for each in join)],
            [*old.alpha[stay].tolist(), *(each.alpha for each in join)],
            [*old.guess[stay].tolist(), *(float(old.guess[0]) for _ in join)],
            advisor=old.advisor,
            slack=old.slack,
            rule=old.rule,
        )
        self._setup_of_one = self.setup._replace(advisor=VOTE, slack=0.0)
        self.kept = first_state(self.setup, 1)
        for new, k in enumerate(stay):
            d = int(old.dims[k])
            for name in ("precision", "inverse"):
                getattr(self.kept, name)[0, new, :d, :d] = getattr(kept, name)[0, k, :d, :d]
            for name in ("b", "theta"):
                getattr(self.kept, name)[0, new, :d] = getattr(kept, name)[0, k, :d]
            self.kept.sums[0, new] = kept.sums[0, k]
        self.kept.sums[0, len(stay) :, EVIDENCE] = evidence
        members, arms = len(self.setup.dims), self._unknown.shape[2]
        self._weights = np.concatenate([self._weights[stay], np.zeros(len(join))])
        self._output = member_output((1, 1), members)
        self._carry = carry_setup([None] * members, arms)
        self._carried = carry_state(self._carry, 1, 1)

    @property
    def weights(self) -> Float1:
        """Weights of the learners' votes in the newest decision, (k,)."""
        return self._weights.copy()

    def restore_weights(self, weights: Float1) -> None:
        """Go on from the weights (k,) of a decision made before a pause."""
        self._weights = np.array(weights)

    @property
    def width(self) -> int:
        """Features of the first learner; of a committee without a ball any learner's will do."""
        alone = self.ball is None and self.setup.advisor == VOTE
        return 0 if alone else int(self.setup.dims[0])

    def draw(self) -> None:
        """Draw the noise of an advisor that samples."""
        if self.setup.advisor == DRAWN:
            self._drawn = self.noise.standard_normal((1, 1, int(self.setup.dims[0])))

    def about(self, past: list[Follower], given: Float1 | None) -> RoundErrors:
        """Return the law's error now; nothing where it is learned."""
        met = [acquaintance_of(follower) for follower in past]
        self._of_known = any(one is not None and (one.member or one.revealed) for one in met)
        if self.source is None:
            return RoundErrors(np.zeros((self._unknown.shape[2], 0)), NO_PSI)
        return self.source.at(past)

    def choose(self, x: Float4, mask: Bool, about: RoundErrors | None) -> CoreChoice | None:
        """Ask the advisor and play its arm, or the ball's."""
        assert about is not None
        out = self._output
        mean, width = np.empty((1, x.shape[2])), np.empty((1, x.shape[2]))
        d = int(self.setup.dims[0])
        own = x if d == x.shape[3] else np.ascontiguousarray(x[..., :d])
        inverse, theta = self.kept.inverse[0, :1, :d, :d], self.kept.theta[0, :1, :d]
        if d < self.kept.theta.shape[2]:
            inverse, theta = inverse.copy(), theta.copy()
        scores(own, inverse, theta, mean, width)
        allowed = np.ones(x.shape[2], np.bool_) if not mask.size else mask[0, 0]
        mean[0, ~allowed] = width[0, ~allowed] = np.nan
        if self.setup.advisor == GIVEN:
            self._given[0, 0] = self._asked(mean[0], width[0], allowed)
        self._play(x, self._unknown, mask, self._drawn, about)
        action = int(out.action[0, 0])
        if action < 0:
            return None
        self._weights = out.weights[0, 0].copy()
        chosen = int(out.chosen[0, 0])
        self.counts[chosen] += 1
        self.known += self._of_known
        promised = self.ball is not None and not self.known
        if len(self._weights) > 1:
            self.history.note(int(self.counts.sum()), self._weights)
        by, why = WHO[chosen] if self.ball is not None else (self._by, UNFENCED)
        if self._of_known and self.ball is not None:
            why = f"{why}; heuristic: this unit is known, and {UNSPOKEN}"
        return CoreChoice(
            action=action,
            mean=mean[0],
            width=width[0],
            root=float(out.root[0, 0]),
            error=self._bound(about, action),
            by=by,
            why=why,
            cost=float(out.cost[0, 0]) if promised else math.nan,
            about=about.of(action),
        )

    def learn(self, x: Float1, reward: float, about: RoundErrors, scored: Float1) -> None:
        """Learn the reward of an arm of features x (d,); scored : those it was decided on.

        Evidence is about what was predicted: where W was revealed, members learn from x and are
        judged by what they had scored without it.
        """
        if x is not scored:
            before, sums = self.kept, self.sums
            self.kept = MemberState(*(array.copy() for array in before))
            self.sums = BallSums(*(array.copy() for array in sums))
            self._learn_one(scored, reward, about)
            judged, self.kept, self.sums = self.kept.sums[0, :, JUDGED], before, sums
        self._learn_one(x, reward, about)
        if x is not scored:
            self.kept.sums[0, :, JUDGED] = judged

    def _learn_one(self, x: Float1, reward: float, about: RoundErrors) -> None:
        rewards, led = np.full((1, 1, 1), reward), self.kept.sums[0, :, LED].copy()
        self._play(x.reshape(1, 1, 1, -1), rewards, NO_MASK, NO_NOISE, about, alone=True)
        self.kept.sums[0, :, LED] = led  # a round is led when it is decided, not when it is learned

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
        if self.ball is None:
            return 0.0
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
            0,
            x,
            reward,
            mask,
            self._given,
            noise,
            self._setup_of_one if alone else self.setup,
            self.kept,
            self.rule,
            BallRounds(about.coef[None, None], psi),
            self.sums,
            0.0 if alone or self.ball is None else -1.0,
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

    @property
    def _by(self) -> str:
        return "committee" if self.setup.advisor == VOTE else "advisor"

    def __repr__(self) -> str:
        ball, total = self.ball, int(self.counts.sum())
        who = self.advisor
        if not isinstance(who, Radius | str):
            who = getattr(who, "__name__", type(who).__name__)
        if ball is None:
            return f"{who} without a guard: measured, not guaranteed"
        unusable = int(self.counts[UNUSABLE])
        head = (
            f"guard around {who}, slack {self.slack:g}: {self.share_overruled:.1%} of {total} "
            f"decisions overruled, {unusable} proposals unusable"
        )
        rests = "; ".join(ball.rests_on)
        doubts = [ball.heuristic] if ball.heuristic else []
        if self.known:
            doubts.append(
                f"{self.known} of {total} decisions were about units of the archive or with W "
                f"revealed, and {UNSPOKEN}"
            )
        if doubts:
            fence = f"heuristic: {'; '.join(doubts)}; it plays like its advisor, promises nothing"
        else:
            also = " and the law's error at two arms" if len(ball.directions) else ""
            fence = (
                f"guarantee: a round costs at most 2 c r w{also}, against {ball.benchmark}, "
                f"with probability >= {max(ball.probability, 0.0):.4g}"
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
    if advisor == "committee":
        return VOTE, sigma
    if callable(advisor):
        return GIVEN, sigma
    raise SettingError(f"guard: an advisor is {ADVISORS}, but got {advisor!r}.")
