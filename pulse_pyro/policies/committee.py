"""A committee: several laws, raw lags and no law at all, weighed by the evidence of rewards.

Every member learns from every round on features of its own, and votes with its index
theta_hat' x + alpha ||x||, weighed by how well it has predicted rewards so far; see ``members`` for
the evidence and the weights. Alone it is measured, not guaranteed. As the advisor of a guarded
PulseUCB the guard's theorem stands on the guard's own ball, whoever votes.

NOT covered: evidence is a score of predictions on the arms that were played, which the committee
itself chose. A member that sees less than another is confounded by arms chosen from more: its
coefficients are not effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float4, positive
from pulse_pyro._core.errors import SettingError, nearest
from pulse_pyro.base import Conditional, FittedLaw, Follower, Summary, picture
from pulse_pyro.features import Features
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.laws.units import Acquaintance
from pulse_pyro.policies.adaptive import ellipsoid_prior
from pulse_pyro.policies.balls import RewardNoise
from pulse_pyro.policies.carried import PastRewards
from pulse_pyro.policies.core import Belief
from pulse_pyro.policies.guard import VOTES
from pulse_pyro.policies.imputed import Carried, Imputed, Scorer, Tracking, condition_on, place_of
from pulse_pyro.policies.members import EVIDENCE, LED, ROUNDS
from pulse_pyro.policies.raw_lags import RawLags
from pulse_pyro.policies.remembered import Remembered
from pulse_pyro.policies.streaming import Streaming
from pulse_pyro.policies.streaming_guard import LearnerShape, StreamingGuard, acquaintance_of
from pulse_pyro.radius import matched_ridge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

DRAWS = 256  # a round, for laws whose E[W] has no closed form
NO_ROWS: Float2 = np.zeros((0, 0))
Member = FittedLaw | Ellipsoid | Summary | tuple[Summary, PastRewards]


# Members side by side, as one scorer.


class JointFollower:
    """A series as every member follows it; what is asked of it is the first one's answer."""

    def __init__(self, each: list[Follower]) -> None:
        self.each = each

    @property
    def now(self) -> Float1:
        """The newest S_t, (s_dim,)."""
        return self.each[0].now

    @property
    def conditional(self) -> Conditional:
        """The first member's law of W_t."""
        return self.each[0].conditional

    @property
    def acquaintance(self) -> Acquaintance | None:
        """How well the first member knows the unit."""
        return acquaintance_of(self.each[0])

    def push(self, s: Float1, w: Float1 | None = None) -> Any:
        """Take in S_t."""
        for one in self.each:
            one.push(s, w)

    arms_alike = True  # a unit of a committee has one context a round

    def place(self) -> Float1:
        """Return what is kept of the newest row for all members, side by side."""
        return np.concatenate([place_of(one) for one in self.each])

    def condition_on(self, w: Float1, place: Float1 | None = None) -> bool:
        """Let a W tell of the unit's own latents, for members whose law has some.

        False where it comes too late for one of them: one that joined later, say.
        """
        if place is None:
            taken = [condition_on(one, w) for one in self.each]
            return all(taken)
        ends = np.cumsum([0, *(place_of(one).size for one in self.each)])
        parts = [place[start:end] for start, end in pairwise(ends)]
        taken = [condition_on(one, w, own) for one, own in zip(self.each, parts, strict=True)]
        return all(taken)

    def inputs(self) -> Float1:
        """Return what the first member looks at."""
        return self.each[0].inputs()

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""
        return {
            f"{k}.{name}": value
            for k, one in enumerate(self.each)
            for name, value in one.state().items()
        }

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""
        for k, one in enumerate(self.each):
            start = f"{k}."
            one.restore({n[len(start) :]: v for n, v in state.items() if n.startswith(start)})


class Joint:
    """Scores the features of several members side by side, by name."""

    def __init__(self, members: Mapping[str, Scorer]) -> None:
        self.members = dict(members)
        first = next(iter(self.members.values()))
        self.law, self.features, self.w_names = first.law, first.features, first.w_names
        for name, each in self.members.items():
            if each.features.actions != self.features.actions:
                raise SettingError(
                    f"Committee: members must have the same arms, but {name!r} has "
                    f"{each.features.actions} and others {self.features.actions}."
                )
            if each.law.schema.s_names != self.law.schema.s_names:
                raise SettingError(
                    f"Committee: members must see the same columns of S, but {name!r} has "
                    f"{each.law.schema.s_names} and others {self.law.schema.s_names}."
                )
            if each.w_names != self.w_names:
                raise SettingError(
                    f"Committee: members must impute the same columns of W, but {name!r} has "
                    f"{each.w_names} and others {self.w_names}."
                )

    @property
    def dims(self) -> list[int]:
        """Features of each member."""
        return [len(each.names) for each in self.members.values()]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all features."""
        return tuple(f"{key}: {n}" for key, each in self.members.items() for n in each.names)

    def follow(self, unit: str | None = None) -> JointFollower:
        """Return a follower of a unit of which nothing has been seen yet."""
        return JointFollower([each.follow(unit) for each in self.members.values()])

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> None:
        """Fill x, (1, 1, K, features of all), of these arms; NaN elsewhere."""
        for k, (each, at) in enumerate(self._places()):
            room = np.empty((1, 1, out.shape[2], at.stop - at.start))
            each.fill(_of(past, k), arms, room)
            out[..., at] = room

    def kept(self, past: list[Follower], action: int) -> tuple[Carried, ...]:
        """Return what a decision keeps, of the members that track."""
        return tuple(step for k, one in self._tracking() for step in one.kept(_of(past, k), action))

    def seen(self, past: list[Follower]) -> tuple[Carried, ...]:
        """Return the newest step, of which no reward will come."""
        return tuple(step for k, one in self._tracking() for step in one.seen(_of(past, k)))

    def tell(
        self,
        past: list[Follower],
        kept: tuple[Carried, ...],
        x: Float1,
        action: int,
        reward: float,
        belief: Callable[[int], Belief],
    ) -> None:
        """Let a reward tell of its unit; a memory that sat the round out learns nothing."""
        places = [at for _, at in self._places()]
        for k, one, own in self._shares(kept):
            mine = partial(_another, belief, k)
            if not own or np.isfinite(x[places[k]]).all():
                one.tell(_of(past, k), own, x[places[k]], action, reward, mine)
            else:
                one.drop(_of(past, k), own)

    def reveal(self, past: list[Follower], kept: tuple[Carried, ...], w: Float1) -> bool:
        """Let a W tell of its unit."""
        taken = [one.reveal(_of(past, k), own, w) for k, one, own in self._shares(kept)]
        return all(taken)

    def drop(self, past: list[Follower], kept: tuple[Carried, ...]) -> None:
        """No reward of this decision will come."""
        for k, one, own in self._shares(kept):
            one.drop(_of(past, k), own)

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
        """Return the features of a full context, as each member would have them.

        A member that sat the round out does not learn from it either.
        """
        parts = [
            each.taught(s, w, action, x[at]) if np.isfinite(x[at]).all() else x[at]
            for each, at in self._places()
        ]
        return np.concatenate(parts)

    def swap(self, law: FittedLaw) -> None:
        """Refuse: which member's law it would be is not said."""
        raise SettingError("Committee: laws are not swapped; add the new one, retire the old one.")

    @property
    def dealt(self) -> list[int]:
        """How many steps each member keeps of a decision."""
        return [1 if isinstance(one, Remembered) else 0 for one in self.members.values()]

    def _places(self) -> list[tuple[Scorer, slice]]:
        ends = np.cumsum(self.dims)
        return [
            (each, slice(int(end) - len(each.names), int(end)))
            for each, end in zip(self.members.values(), ends, strict=True)
        ]

    def _tracking(self) -> list[tuple[int, Tracking]]:
        every = enumerate(self.members.values())
        return [(k, each) for k, each in every if isinstance(each, Tracking)]

    def _shares(self, kept: tuple[Carried, ...]) -> list[tuple[int, Tracking, tuple[Carried, ...]]]:
        """Return what was kept, dealt out to the members it is about."""
        out, at = [], 0
        for k, one in self._tracking():
            count = self.dealt[k]
            out.append((k, one, kept[at : at + count]))
            at += count
        return out


def _another(belief: Callable[[int], Belief], k: int, first: int) -> Belief:
    """Return what member k believes, as a scorer of one member asks for its first."""
    return belief(k + first)


def _of(past: list[Follower], k: int) -> list[Follower]:
    own = [one.each[k] for one in past if isinstance(one, JointFollower)]
    if len(own) != 1:
        raise SettingError("Committee: a unit has one context a round, not one per arm.")
    return own


# The policy.


@dataclass(frozen=True, eq=False)
class CommitteeRules:
    """What every member plays with; see :class:`Committee`."""

    features: Features
    sigma: float
    theta_bound: float
    reward_sd: float
    votes: str

    def __post_init__(self) -> None:
        positive(self.sigma, "Committee: sigma")
        positive(self.theta_bound, "Committee: theta_bound")
        positive(self.reward_sd, "Committee: reward_sd", zero=True)
        if not isinstance(self.features, Features):
            raise SettingError(
                f"Committee: features must be Features, but got {type(self.features).__name__}."
            )
        if self.votes not in VOTES:
            hint = nearest(str(self.votes), VOTES)
            raise SettingError(f"Committee: there is no votes={self.votes!r}{hint}")

    def shape(self, dim: int) -> LearnerShape:
        """Return the ridge and alpha of a member of so many features."""
        ridge = matched_ridge(sigma=self.sigma, theta_bound=self.theta_bound, dim=dim)
        return LearnerShape(dim, ridge, self.sigma)

    def scorer(self, name: str, member: object, law: FittedLaw) -> Scorer:
        """Return what scores a member's features; law : the first one, whose columns are read."""
        past = None
        if isinstance(member, tuple) and len(member) == 2 and isinstance(member[1], PastRewards):
            member, past = member
        if isinstance(member, Ellipsoid) and past is None:
            if member.law_id != getattr(law, "id", None):
                raise SettingError(
                    f"Committee: the ellipsoid of {name!r} is not that of the committee's first "
                    "law; put its own law first."
                )
            noise = RewardNoise(self.sigma, True)
            scored, _, _ = ellipsoid_prior(
                law, self.features, member, noise=noise, theta_bound=self.theta_bound
            )
            return scored
        if isinstance(member, Summary) and not hasattr(member, "schema"):
            return RawLags(law, self.features, member, past)
        if past is not None:
            raise SettingError(
                f"Committee: past rewards of {name!r} go with raw lags, (Lags(19), "
                f"past_rewards(1)), but got {type(member).__name__}."
            )
        own = as_law(member, f"Committee: {name}")
        plain = Imputed(own, self.features, DRAWS, seed=0)
        if getattr(own, "memory", None) is not None:
            return Remembered(plain, self.reward_sd)
        return plain


class Ballot:
    """The votes of a policy's committee: who weighs how much, who joins, who leaves.

    policy : one that is a committee, or is advised by one.
    """

    def __init__(self, policy: Streaming, rules: CommitteeRules) -> None:
        scorer, core = policy.scorer, policy.core
        assert isinstance(scorer, Joint)
        assert isinstance(core, StreamingGuard)
        self.policy, self.rules, self.joint, self.core = policy, rules, scorer, core

    @property
    def table(self) -> DataFrame:
        """One line a member: features, rewards learned, evidence, decisions led, weight now.

        evidence : sum of log predictive densities of rewards, in nats; behind : that of the best
        member minus its own. Measured on the arms that were played.
        """
        import pandas as pd

        sums = self.core.kept.sums[0]
        evidence = sums[:, EVIDENCE]
        return pd.DataFrame(
            {
                "features": self.joint.dims,
                "rounds": sums[:, ROUNDS].astype(int),
                "evidence": evidence,
                "behind": evidence.max() - evidence,
                "led": sums[:, LED].astype(int),
                "weight": self.core.weights,
            },
            index=pd.Index(list(self.joint.members), name="member"),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the members' weights over decisions."""
        rounds, weights = self.core.past_weights
        return picture("committee_weights")(tuple(self.joint.members), rounds, weights, ax)

    def add(self, name: str, member: Member) -> None:
        """Let a member join: it learns from now on, with the evidence of the committee so far.

        Of units that have a past it sees as many rows as another member has kept.
        """
        if name in self.joint.members:
            raise SettingError(f"Committee: there is a member {name!r} already; retire it first.")
        scorer = self.rules.scorer(name, member, self.joint.law)
        Joint({**self.joint.members, name: scorer})  # refused before anything changes
        self.joint.members[name] = scorer
        self.core.seat(self.rules.shape(len(scorer.names)))
        for unit, past in self.policy._pasts.units.items():
            for one in past:
                assert isinstance(one, JointFollower)
                one.each.append(_caught_up(scorer.follow(unit or None), one.each))
        missing = np.full(len(scorer.names), np.nan)
        self._rescore(lambda x: np.concatenate([x, missing]))

    def retire(self, name: str) -> None:
        """Let a member go; the first one, whose law reads S and whom a guard speaks of, stays."""
        names = list(self.joint.members)
        if name not in names or name == names[0]:
            why = "the first member cannot leave" if name in names else "there is no such member"
            raise SettingError(
                f"Committee: {name!r} is not retired: {why}{nearest(name, names[1:])}"
            )
        k = names.index(name)
        shares = self.joint.dealt
        gone = np.cumsum([0, *self.joint.dims])[k : k + 2]
        sizes = [place_of(each.follow()).size for each in self.joint.members.values()]
        left = slice(sum(sizes[:k]), sum(sizes[: k + 1]))
        del self.joint.members[name]
        self.core.unseat(k)
        for past in self.policy._pasts.units.values():
            for one in past:
                assert isinstance(one, JointFollower)
                del one.each[k]
        self._rescore(lambda x: np.delete(x, np.arange(*gone)))
        at = sum(shares[:k])
        for decisions in (self.policy._open, self.policy._learned):
            for key, found in decisions.items():
                kept = found.carried[:at] + found.carried[at + shares[k] :]
                place = np.delete(found.place, left)
                decisions[key] = found._replace(carried=kept, place=place)

    def _rescore(self, change: Callable[[Float1], Float1]) -> None:
        """Bring what decisions were scored with into the new order of members."""
        for decisions in (self.policy._open, self.policy._learned):
            for key, found in decisions.items():
                x = change(found.decision.x)
                x.flags.writeable = False
                decisions[key] = found._replace(decision=found.decision._replace(x=x))
        self.policy.resize()


def _caught_up(fresh: Follower, others: Sequence[Follower]) -> Follower:
    """Let a follower see the rows that another one has kept; steps that were missed count too."""
    rows = max((one.state().get("rows", NO_ROWS) for one in others), key=len)
    seen = np.flatnonzero(np.isfinite(rows).any(1))
    for row in rows[seen[0] :] if seen.size else ():
        fresh.push(row)
    return fresh


class Committee(Streaming):
    """Several learners, weighed by the evidence of rewards, one decision at a time.

    Parameters
    ----------
    members : name -> a fitted law (PULSE under it; with a memory, tracked by rewards), the
        ellipsoid of a linear law, ``law.ellipsoid()`` (PULSE that learns what the archive leaves
        open), a summary such as Lags(19) (raw lags, Lags(1) is S alone), or a pair (Lags(19),
        past_rewards(1)) (raw lags and the unit's last rewards). The first is a law.
    features : Phi of the members that impute, affine in w for all but plain laws.
    sigma : sub-Gaussian scale of a reward given S; every member plays the radius sigma with the
        ridge d (sigma / S)^2. theta_bound : S >= ||theta*||.
    reward_sd : sd of a reward given the full context, for members with memory; sigma if None.
    votes : "tempered", "stacking" or "best".

    Measured, not guaranteed. As the advisor of a guard, ``PulseUCB(law, phi, calibration=...,
    advisor=Committee(...))``, the guard's own learner votes too and the guard's bound stands. A
    member whose inputs are not seen sits the round out: it neither votes nor learns.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> phi = pp.terms(["1", "s", "w*a"], 2, observed=["s"], missing=["w"])
    >>> members = {"pulse": law, "lags": pp.Lags(19), "s": pp.Lags(1)}
    >>> team = Committee(members, phi, sigma=0.5, theta_bound=1.0)
    >>> for s in history.s[:25]:
    ...     team.learn(team.act(s), 0.2)
    >>> team.table["rounds"].tolist()  # raw lags sit out until all of them are seen
    [25, 7, 25]
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        features: Features,
        *,
        sigma: float,
        theta_bound: float,
        reward_sd: float | None = None,
        votes: str = "tempered",
    ) -> None:
        rules = CommitteeRules(
            features, sigma, theta_bound, sigma if reward_sd is None else reward_sd, votes
        )
        if not isinstance(members, Mapping) or not members:
            raise SettingError(
                "Committee: members must be a mapping of names to at least one law, such as "
                "{'pulse': law, 'lags': Lags(19)}."
            )
        first = next(iter(members.values()))
        if not hasattr(first, "schema"):
            raise SettingError(
                "Committee: the first member must be a fitted law, whose columns of S are read, "
                f"but it is {type(first).__name__}."
            )
        law = as_law(first, "Committee")
        scorers = {str(n): rules.scorer(str(n), member, law) for n, member in members.items()}
        joint = Joint(scorers)
        super().__init__(joint, committee_core(joint, rules))
        self.ballot = Ballot(self, rules)

    def hand_over(self, where: str) -> tuple[CommitteeRules, dict[str, Scorer]]:
        """Return rules and members for another policy's guard; refused once it has played."""
        if self._issued or self._pasts.units:
            raise SettingError(
                f"{where}: the committee that is to advise has played already; make it anew."
            )
        assert isinstance(self.scorer, Joint)
        return self.ballot.rules, self.scorer.members

    @property
    def table(self) -> DataFrame:
        """One line a member; see :attr:`Ballot.table`."""
        return self.ballot.table

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the members' weights over decisions."""
        return self.ballot.plot(ax)

    def add(self, name: str, member: Member) -> None:
        """Let a member join; see :meth:`Ballot.add`."""
        self.ballot.add(name, member)

    def retire(self, name: str) -> None:
        """Let a member go; see :meth:`Ballot.retire`."""
        self.ballot.retire(name)

    def __repr__(self) -> str:
        table = self.table.to_string(float_format="{:.3g}".format)
        state = f"{len(self._open)} pending, {len(self._pasts.units)} units"
        return f"Committee: {state}; measured, not guaranteed\n{table}"


def committee_core(joint: Joint, rules: CommitteeRules) -> StreamingGuard:
    """Return the core of a committee without a guard."""
    first, *others = [rules.shape(dim) for dim in joint.dims]
    return StreamingGuard(
        None,
        None,
        rules.features.actions,
        first.dim,
        first.ridge,
        "committee",
        1.0,
        others=others,
        guess=rules.sigma,
        votes=rules.votes,
    )
