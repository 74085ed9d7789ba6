"""The guard: a valid ball as a fence around any advisor; and how such a ball is made.

A ball says how far theta* can be from what was learned; used as a bonus it explores far too much.
Used as a fence it lets an advisor play as long as the arm it proposes cannot be shown to be worse
than the ball's own width: see ``members`` for the rule and ``ball`` for the radius.

**Theorem.** On the ball, if |theta*'(phihat_b - phihat_a)| <= D for all arms and rounds, a round
costs at most min(D, 2 c r w_A) whoever the advisor is, so that

    sum_t theta*'(phihat_best - phihat_A) <= max(D, 2 c max r) sqrt(2 T logdet_T)

for rewards learned in order, plus the errors e of the best and the played arm against the best
policy on S. The advisor may use S_1:t, past rewards and coins of its own, nothing else: a ball on a
forecast breaks if arms are chosen from more than the forecast. If the ball is NOT valid (a check
failed, contexts have shifted, S or sigma are wrong), this is a heuristic that plays like its
advisor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pulse_pyro._core.arrays import (
    Array,
    Bool,
    Float,
    Float1,
    Float2,
    Float3,
    Float4,
    Int,
    positive,
    whole,
)
from pulse_pyro._core.errors import FeatureError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw
from pulse_pyro.data.history import Source, context_rows
from pulse_pyro.features import Features, need_affine, slopes
from pulse_pyro.policies.ball import BallRounds, BallRule, BallSums
from pulse_pyro.policies.carried import Carry, carry_setup, carry_state
from pulse_pyro.policies.members import (
    BEST,
    DRAWN,
    GIVEN,
    INDEX,
    OVERRULED,
    STACKED,
    TEMPERED,
    UCB,
    UNUSABLE,
    VOTE,
    MemberOutput,
    MemberRounds,
    MemberState,
    first_state,
    member_setup,
    play_members,
)
from pulse_pyro.radius import CONSTANT, SAMPLED, Radius

SAME = 1e-9  # slopes that agree to this are one
BESIDE = 2**17  # features of all learners side by side at a time, 1 MiB
NO_NOISE: Float3 = np.zeros((0, 0, 0))
NO_PSI: Float4 = np.zeros((0, 0, 0, 0))
NOBODY: Int = np.zeros((1, 1), np.int64)
ALONE = MemberRounds(NOBODY, NOBODY, 0, np.zeros((1, 0)))  # one unit, in order, theta* not known
VOTES = {"tempered": TEMPERED, "best": BEST, "stacking": STACKED}


# How an error of E[W] reaches the mean reward.


@dataclass(frozen=True, eq=False)
class BiasMap:
    """theta'(phibar - phihat) = sum_k (theta' m_k) c_k(a, s) delta_of(k)(s), Phi affine in w.

    Attributes
    ----------
    directions : (k, d) m_k. of : (k,) which W each is about.
    fixed : (action, k) c_k where M_a is the same in all contexts; else None: then m_k is feature
        ``column[k]`` and c_k = M_a(s) there.
    column : (k,). features, base, step : where slopes are taken, see ``features.slopes``.
    """

    directions: Float2
    of: Int
    fixed: Float2 | None
    column: Int
    features: Features
    base: Float1
    step: Float1

    def coef(self, s: Float2) -> Float3:
        """Return c_k, (n, action, k), at contexts s (n, s_dim); (1, action, k) where fixed."""
        if self.fixed is not None:
            return self.fixed[None]
        base = np.broadcast_to(self.base, (len(s), len(self.base)))
        at = slopes(self.features, s, base, self.step)  # (action, n, w, d)
        out: Float3 = np.moveaxis(at[:, :, self.of, self.column], 0, 1)
        return out


def bias_map(features: Features, s: Float2, w: Float2) -> BiasMap:
    """Find how errors of E[W] reach Phi, at contexts like those to come.

    s, w : (n, s_dim), (n, w_dim), complete rows.
    """
    need_affine(features, s, w, "guard")
    sd = w.std(0)
    base, step = w.mean(0), np.where(sd > 0, sd, 1.0)
    at = slopes(features, s, np.broadcast_to(base, w.shape), step)  # (action, n, w, d)
    d = at.shape[-1]
    scale = np.abs(at).max(initial=0.0)
    if np.abs(at - at[:, :1]).max(initial=0.0) <= SAME * scale:
        return _fixed_map(features, at[:, 0], base, step)
    used = np.argwhere((at != 0).any(axis=(0, 1)))  # (k, 2): W, feature
    return BiasMap(
        directions=np.eye(d)[used[:, 1]],
        of=used[:, 0],
        fixed=None,
        column=used[:, 1],
        features=features,
        base=base,
        step=step,
    )


def _fixed_map(features: Features, at: Float3, base: Float1, step: Float1) -> BiasMap:
    """Return the distinct columns of M_a, (action, w, d), and which arm has which."""
    rows: list[Float1] = []
    of: list[int] = []
    where: list[tuple[int, int]] = []
    for a, i in np.ndindex(*at.shape[:2]):
        if not at[a, i].any():
            continue
        same = [
            k
            for k, row in enumerate(rows)
            if of[k] == i and np.allclose(row, at[a, i], rtol=SAME, atol=0.0)
        ]
        if not same:
            rows.append(at[a, i])
            of.append(i)
        where.append((a, same[0] if same else len(rows) - 1))
    fixed = np.zeros((len(at), len(rows)))
    for a, k in where:
        fixed[a, k] = 1.0
    directions = np.array(rows).reshape(len(rows), at.shape[-1])
    nothing = np.zeros(len(rows), np.int64)
    return BiasMap(
        directions=directions,
        of=np.array(of, np.int64),
        fixed=fixed,
        column=nothing,
        features=features,
        base=base,
        step=step,
    )


def reward_spread(features: Features, law: FittedLaw, source: Source) -> Float3:
    """Return M_a C_W^(1/2), (action, d, q), of what the law says W varies by at complete contexts.

    A sub-Gaussian scale only if the law's residuals are normal; see :func:`spread_at`.
    """
    conditional = law(source)
    x, s = context_rows(source, law.summary, law.schema, "guard")
    mean, cov = conditional.mean(), conditional.covariance()
    seen = np.isfinite(s).all(-1) & np.isfinite(x).all(-1)
    seen &= np.isfinite(mean).all(-1) & np.isfinite(cov).all((-1, -2))
    if not seen.any():
        raise SettingError("guard: no context is complete, so what W varies by is not known.")
    return spread_at(features, s[seen], mean[seen], cov[seen])


def spread_at(features: Features, s: Float2, mean: Float2, cov: Float3) -> Float3:
    """Return M_a C_W^(1/2), (action, d, q): what W varies by given S, carried to the features.

    s, mean, cov : (n, s_dim), (n, w), (n, w, w) contexts, E[W] and its covariance there. Where M_a
    or the covariance varies with the context, the smallest multiple of its mean that is at least as
    large at every one of these contexts: fixed beforehand, never a running maximum.
    """
    sd = mean.std(0)
    step = np.where(sd > 0, sd, 1.0)
    at = slopes(features, s, mean, step)  # (action, n, w, d)
    d, n = at.shape[-1], len(s)
    size, axis = np.linalg.eigh(cov)
    half = axis * np.sqrt(np.maximum(size, 0.0))[:, None]  # (n, w, w), half half' = cov
    out = np.zeros((len(at), d, d))
    for a, slope in enumerate(at):
        each = np.swapaxes(slope, 1, 2) @ half  # (n, d, w)
        flat = np.moveaxis(each, 1, 0).reshape(d, -1)
        value, vector = np.linalg.eigh(flat @ flat.T / n)
        keep = value > 1e-12 * max(float(value[-1]), 1e-300)
        root, back = vector[:, keep] * np.sqrt(value[keep]), vector[:, keep] / np.sqrt(value[keep])
        if not keep.any():
            continue
        beside = back.T @ each  # (n, q, w): what each context is of the mean
        most = float(np.linalg.eigvalsh(np.swapaxes(beside, 1, 2) @ beside)[:, -1].max())
        out[a, :, : int(keep.sum())] = math.sqrt(max(most, 0.0)) * root
    used = int((out != 0).any(axis=(0, 1)).sum())
    return out[:, :, : max(used, 1)]


# The ball itself: what it takes on trust, what bounds the law's error.


@dataclass(frozen=True, eq=False)
class Ball:
    """A ball around theta_hat that holds theta* at all times, if what it rests on is true.

    Attributes
    ----------
    theta_bound : S >= ||theta*||. delta : probability of missing theta*, errors of the law apart.
    noise : sd of the reward given the full context; where ``spread`` is None, sigma itself, the
        sub-Gaussian scale of the reward given S.
    spread : (action, d, q) of :func:`reward_spread`.
    directions, of : (k, d), (k,) of the :class:`BiasMap`; none where the law's error is learned.
    chi : (w,) radii of ellipsoids; None: errors are a band's.
    weights : (d,) of the size of theta, 1 by default; see ``ball``.
    rests_on : what it is conditional on, in words. level : probability that the law's error is
    within what it says. heuristic : why it need not hold, where a check has failed. benchmark :
    whom regret is measured against.
    """

    theta_bound: float
    delta: float
    noise: float
    spread: Float3 | None
    directions: Float2
    of: Int
    chi: Float1 | None = None
    weights: Float1 | None = None
    rests_on: tuple[str, ...] = ()
    level: float = 1.0
    heuristic: str = ""
    benchmark: str = "the best policy on S"

    def __post_init__(self) -> None:
        positive(self.theta_bound, "ball: theta_bound")
        positive(self.noise, "ball: reward_sd or sigma", zero=True)
        if not 0 < self.delta < 1:
            raise SettingError(f"ball: delta must lie between 0 and 1, but got {self.delta!r}.")

    @property
    def sigma(self) -> float:
        """Sub-Gaussian scale of the reward given S, at most."""
        if self.spread is None:
            return self.noise
        return math.hypot(self.noise, self.theta_bound * float(_lengths(self.spread).max()))

    @property
    def probability(self) -> float:
        """What it holds theta* at all times with, at least: 1 - delta - (1 - level)."""
        return self.level - self.delta

    def ridge(self, dim: int) -> float:
        """Return lambda = d (sigma / S)^2, fixed beforehand; d of the features without psi."""
        return dim * (self.sigma / self.theta_bound) ** 2

    @property
    def rule(self) -> BallRule:
        """As the compiled loop wants it."""
        d = self.directions.shape[1]
        weights = np.ones(d) if self.weights is None else self.weights
        spread = np.zeros((1, d, 0)) if self.spread is None else self.spread
        most = self.theta_bound * math.sqrt(float(weights.max()))
        numbers = [self.theta_bound, self.noise, self.delta, self.sigma, most]
        return BallRule(
            numbers=np.array(numbers),
            weights=weights,
            spread=np.ascontiguousarray(spread),
            top=_lengths(spread),
            directions=np.ascontiguousarray(self.directions),
            norms=np.linalg.norm(self.directions, axis=1),
            of=np.ascontiguousarray(self.of, np.int64),
            chi=np.zeros(0) if self.chi is None else self.chi,
        )


def _lengths(spread: Float3) -> Float1:
    """Return the operator norm of each action's spread, (action,)."""
    if not spread.shape[2]:
        return np.zeros(len(spread))
    out: Float1 = np.linalg.norm(spread, ord=2, axis=(1, 2))
    return out


def no_fence(dim: int) -> Ball:
    """Return a ball for where there is none: it is never asked."""
    return Ball(1.0, 0.5, 0.0, None, np.zeros((0, dim)), np.zeros(0, np.int64))


def no_errors(actions: int) -> BallRounds:
    """Return rounds of which the law's error is learned, or none is known."""
    return BallRounds(np.zeros((1, 1, actions, 0)), NO_PSI)


# Whole horizons.


@dataclass(frozen=True, eq=False)
class Learner:
    """A linear learner on features of its own.

    x : (run, time, action, d). ridge : lambda. alpha : of its index m + alpha w. guess : sd of the
    noise a priori, for its evidence. carry : what earlier rewards of a unit add to x.
    """

    x: Float4
    ridge: float
    alpha: float
    guess: float
    carry: Carry | None = None


@dataclass(frozen=True, eq=False)
class Series:
    """Whose rounds they are, and when their rewards come.

    unit, clock : (run or 1, time) number of the unit from 0 on, and the round's place in the unit's
    own time; None: every run is one unit in order of time. late : a reward is learned so many
    rounds after its own has passed.
    """

    unit: Int | None = None
    clock: Int | None = None
    late: int = 0


ONE_UNIT = Series()


@dataclass(frozen=True, eq=False)
class GuardedPlay:
    """What came of a horizon; arrays (run, time).

    action : as in ``play_horizon``. proposal : the advisor's arm, -1 where there was none. root :
    r of the ball. cost : 2 c r w of the arm played, what the round can cost at most on the ball.
    overruled, unusable : where the guard played because the gap was too large, or because the
    advisor proposed no arm that was allowed. weights : (run, time, k) of the members' votes.
    apart : ||theta* - theta_hat||_Sigma where theta* was told, else 0.
    """

    action: Int
    proposal: Int
    root: Float2
    cost: Float2
    overruled: Bool
    unusable: Bool
    weights: Float3
    apart: Float2
    state: MemberState

    @property
    def held(self) -> Bool:
        """Whether the ball held theta* in all rounds, (run,); needs ``truth``."""
        return np.asarray((self.apart <= self.root * (1.0 + 1e-9)).all(1))

    @property
    def overruled_by_run(self) -> Float1:
        """Share of the rounds played in which the guard did not follow the advisor, (run,)."""
        played = np.maximum((self.action >= 0).sum(1), 1)
        return np.asarray((self.overruled | self.unusable).sum(1) / played)

    @property
    def share_overruled(self) -> float:
        """The same over all runs."""
        return float(self.overruled_by_run.mean())


def play_guarded(
    learners: Sequence[Learner],
    reward: Float,
    *,
    ball: Ball | None,
    rounds: BallRounds | None = None,
    advisor: Radius | str | Int = "committee",
    slack: float = 3.0,
    allowed: Bool | None = None,
    series: Series = ONE_UNIT,
    votes: str = "tempered",
    truth: Float2 | None = None,
) -> GuardedPlay:
    """Play all runs over the whole horizon.

    Parameters
    ----------
    learners : the first is the one the ball speaks of; all of them vote if the advisor is
        "committee".
    reward : (run, time, action) what each arm would pay; NaN = lost.
    ball, rounds : the ball and what the law's error is at each round; None: no guard.
    advisor : a rule ``constant(alpha)`` or ``thompson(scale)`` on the first learner's state,
        "committee", "greedy", "ball" (the arm of largest m + r w), or arms (run, time) found
        elsewhere.
    slack : c >= 1. allowed : (run, time, action), or length 1 along run or time.
    series : units, their times, late rewards. votes : how a committee weighs its members,
        "tempered", "best" or "stacking". truth : (run or 1, d) theta* of the first learner, to see
        whether its ball holds.
    """
    own = [np.ascontiguousarray(each.x, np.float64) for each in learners]
    rewards = np.ascontiguousarray(reward, np.float64)
    for x in own:
        if x.ndim != 4 or rewards.shape != x.shape[:3]:
            raise FeatureError(
                "play_guarded: features must be (run, time, action, d) and reward (run, time, "
                f"action), but got {x.shape} and {rewards.shape}."
            )
    if ball is not None and not slack >= 1.0:
        raise SettingError(f"guard: slack must be at least 1, but got {slack!r}; 3 is usual.")
    runs, horizon, arms = rewards.shape
    kind, alpha, given, noise = _advice(advisor, learners[0], (runs, horizon))
    dims = [each.x.shape[-1] for each in learners]
    setup = member_setup(
        dims,
        [each.ridge for each in learners],
        [alpha, *(each.alpha for each in learners[1:])],
        [each.guess for each in learners],
        advisor=kind,
        slack=slack if ball is not None else 0.0,
        rule=VOTES[votes],
    )
    carry = carry_setup([each.carry for each in learners], arms)
    about = _about(series, truth, (runs, horizon))
    fence = ball or no_fence(dims[0])
    rule, errors = fence.rule, rounds or no_errors(arms)
    if rule.directions.shape[1] != dims[0]:
        raise SettingError(
            f"guard: the ball was made for {rule.directions.shape[1]} features, but {dims[0]} are "
            "scored."
        )
    count, inputs = len(rule.directions), errors.psi.shape[-1] if rule.chi.size else 0
    sums = BallSums(np.zeros((runs, count, 2)), np.zeros((runs, count, dims[0], inputs)))
    output = member_output((runs, horizon), len(learners))
    state = first_state(setup, runs)
    mask = np.zeros((0, 0, 0), np.bool_) if allowed is None else np.ascontiguousarray(allowed)
    fixed = -1.0 if ball is not None else 0.0
    carried = carry_state(carry, runs, int(about.unit.max()) + 1)
    for first, x in _side_by_side(own):
        play_members(
            first,
            x,
            rewards,
            mask,
            given,
            noise,
            setup,
            state,
            rule,
            errors,
            sums,
            fixed,
            carry,
            carried,
            about,
            output,
        )
    return GuardedPlay(
        action=output.action,
        proposal=output.proposal,
        root=output.root,
        cost=output.cost,
        overruled=output.chosen == OVERRULED,
        unusable=output.chosen == UNUSABLE,
        weights=output.weights,
        apart=output.apart,
        state=state,
    )


def _side_by_side(own: list[Float]) -> Iterator[tuple[int, Float]]:
    """Yield a first run and features of runs from there on, all learners' along the last axis.

    The same memory each time, few runs long: fresh memory for all of them costs more than the copy.
    """
    if len(own) == 1:
        yield 0, own[0]
        return
    runs, horizon, arms, _ = own[0].shape
    ends = np.cumsum([x.shape[-1] for x in own])
    step = max(1, BESIDE // max(1, horizon * arms * int(ends[-1])))
    buffer = np.empty((min(step, runs), horizon, arms, ends[-1]))
    for first in range(0, runs, step):
        part = buffer[: min(step, runs - first)]
        for x, end in zip(own, ends, strict=True):
            part[..., end - x.shape[-1] : end] = x[first : first + len(part)]
        yield first, part


def _about(series: Series, truth: Float2 | None, shape: tuple[int, int]) -> MemberRounds:
    runs, horizon = shape
    unit = NOBODY if series.unit is None else np.asarray(series.unit, np.int64)
    clock = np.arange(horizon)[None] if series.clock is None else np.asarray(series.clock, np.int64)
    for name, array in (("unit", unit), ("clock", clock)):
        fits = array.ndim == 2 and array.shape[0] in (1, runs) and array.shape[1] in (1, horizon)
        if not fits or array.min(initial=0) < 0:
            raise SettingError(
                f"play_guarded: {name} must hold whole numbers >= 0, (run or 1, time) for "
                f"{shape}, but its shape is {array.shape}."
            )
    known = np.zeros((1, 0)) if truth is None else np.ascontiguousarray(truth, np.float64)
    late = whole(series.late, "play_guarded: late", 0)
    return MemberRounds(np.ascontiguousarray(unit), np.ascontiguousarray(clock), late, known)


def _advice(
    advisor: Radius | str | Array, first: Learner, shape: tuple[int, int]
) -> tuple[int, float, Int, Float3]:
    """Return the kind of advisor, its alpha, given arms and noise."""
    none, quiet = np.zeros((0, 0), np.int64), NO_NOISE
    if isinstance(advisor, Radius):
        if advisor.kind == CONSTANT:
            return INDEX, advisor.params[0], none, quiet
        if advisor.kind == SAMPLED:
            dim = first.x.shape[-1]
            noise = stream(advisor.seed, "thompson").standard_normal((*shape, dim))
            return DRAWN, advisor.params[0], none, noise
        raise SettingError(f"guard: an advisor is constant(...) or thompson(...), not {advisor!r}.")
    if isinstance(advisor, str):
        if advisor not in ("committee", "ball", "greedy"):
            raise SettingError(
                f"guard: there is no advisor {advisor!r}; 'committee', 'greedy' or 'ball'."
            )
        if advisor == "greedy":
            return INDEX, 0.0, none, quiet
        return (VOTE if advisor == "committee" else UCB), first.alpha, none, quiet
    arms = np.ascontiguousarray(advisor, np.int64)
    if arms.shape != shape:
        raise SettingError(
            f"guard: proposals must be (run, time) = {shape}, but their shape is {arms.shape}."
        )
    return GIVEN, first.alpha, arms, quiet


def member_output(shape: tuple[int, int], members: int) -> MemberOutput:
    """Return room for what is played; shape (run, time)."""
    return MemberOutput(
        action=np.empty(shape, np.int64),
        proposal=np.empty(shape, np.int64),
        root=np.empty(shape),
        cost=np.empty(shape),
        chosen=np.empty(shape, np.int64),
        weights=np.empty((*shape, members)),
        apart=np.zeros(shape),
    )
