"""Linear UCB for one decision at a time: see S, act, learn when the reward arrives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2
from pulse_pyro._core.errors import DataError, FeatureError, PulseError, RewardError, SettingError
from pulse_pyro.base import FittedLaw, Follower, Schema, as_numbers
from pulse_pyro.calibration.online import OnlineErrors
from pulse_pyro.features import Features
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.policies.core import BonusCore, Core, RoundErrors
from pulse_pyro.policies.imputed import (
    NOWHERE,
    Carried,
    Learning,
    Scorer,
    Tracking,
    condition_on,
    place_of,
)
from pulse_pyro.policies.linear import NO_MASK, TOO_LARGE, Decision, State, check_size
from pulse_pyro.policies.streaming_guard import StreamingGuard, acquaintance_of
from pulse_pyro.radius import Radius

KEPT = 512  # learned decisions whose W may still be revealed

# What callers hand to a streaming policy, checked, each refusal in a sentence.


class PendingDecision(NamedTuple):
    """A decision that waits for its reward, and the S_t it was made at, (s_dim,).

    about : the law's error its reward will be learned with. unit, row : where a growing archive
    keeps that S_t; row -1 without one. carried : what its reward will tell of the unit's memory.
    place : what its follower needs to be told of W_t later. told : whether W_t is known by now.
    """

    decision: Decision
    s: Float1
    about: RoundErrors
    unit: str = ""
    row: int = -1
    carried: tuple[Carried, ...] = ()
    place: Float1 = NOWHERE
    told: bool = False


def allowed_mask(allowed: ArrayLike, arms: int) -> Bool:
    """Return (1, 1, K) from the arms that may be played."""
    mask = np.asarray(allowed)
    if mask.shape != (arms,) or mask.dtype != np.bool_:
        raise SettingError(
            f"act: allowed must have {arms} entries True or False, one per arm, but got "
            f"{allowed!r}."
        )
    if not mask.any():
        raise FeatureError("act: no arm is allowed this round; allow at least one.")
    return np.array(mask[None, None])


def error_bound(error: ArrayLike, arms: int) -> Float1:
    """Return e_{t,a}, (K,), from a number or one per arm."""
    values = np.asarray(error, dtype=np.float64)
    if values.shape not in ((), (arms,)):
        raise SettingError(f"act: error must be a number or one per arm, it is {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise SettingError(f"act: error must be finite and >= 0, but got {error!r}.")
    return np.array(np.broadcast_to(values, (arms,)))


def finite_reward(reward: float, key: int) -> float:
    """Return the reward as a number."""
    try:
        value = np.nan if isinstance(reward, str) else float(reward)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise RewardError(
            f"learn: the reward of decision {key} must be finite, but got {reward!r}; nothing "
            "was changed, and the decision stays open."
        )
    return value


def find_open(
    opened: Mapping[int, PendingDecision], issued: int, decision: Decision | int
) -> tuple[int, PendingDecision]:
    """Return the open decision meant by a Decision or its id."""
    if not isinstance(decision, Decision | int | np.integer):
        raise RewardError(
            f"learn: the first argument must be a Decision or its id, but got {decision!r}; "
            "learn(decision, reward)."
        )
    key = decision.id if isinstance(decision, Decision) else int(decision)
    found = opened.get(key)
    if found is None:
        known = 0 <= key < issued
        why = "its reward was learned or forgotten before" if known else "it was never issued"
        raise RewardError(
            f"learn: decision {key} is not open: {why}; nothing was changed. Pass the Decision "
            "itself or its id, not its action."
        )
    kept = found.decision.x
    mine = decision.x if isinstance(decision, Decision) else kept
    if mine is not kept and not np.array_equal(mine, kept):
        raise RewardError(
            f"learn: decision {key} holds other features than the one issued here; does it "
            "belong to another policy? Nothing was changed."
        )
    return key, found


def labelled(values: Any, schema: Schema, what: str) -> Float:
    """Return the numbers of a schema's S columns, in their order.

    A Series or a dict is read by the names of the table: levels and clocks are turned into numbers
    as they were there. An array, (..., s_dim), holds these numbers already; the caller looks at its
    shape.
    """
    names = schema.s_names
    if hasattr(values, "columns"):
        raise DataError(f"{what} must be one row of {names}; of a frame pass frame.iloc[i].")
    if isinstance(values, Mapping) or hasattr(values, "iloc"):
        return schema.encode(dict(values), what)
    try:
        row = as_numbers(values)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{what} must hold numbers for {names}: {cause}.") from cause
    if row.shape[-1:] == (len(names),):
        schema.check(row, what)
    return row


def revealed_row(
    w: ArrayLike, schema: Schema, of: str, after: str = "", partly: bool = False
) -> Float2:
    """Return the revealed W, (1, w_dim).

    of, after : what it is of, and what a refusal leaves. partly : NaN is W that stays unknown.
    """
    names = schema.w_names
    try:
        row = labelled(w, schema.revealed, f"the W revealed for {of}")
    except DataError as cause:
        raise DataError(f"{cause} Nothing was changed{after}.") from cause
    row = row.reshape(-1) if row.ndim < 2 else row
    known = ~np.isinf(row) if partly else np.isfinite(row)
    if row.shape != (len(names),) or not known.all():
        kind = "numbers, NaN where not revealed," if partly else "finite numbers"
        raise DataError(
            f"the W revealed for {of} must be {len(names)} {kind} for "
            f"{names}, but got {w!r}; nothing was changed{after}."
        )
    return row[None]


def unknown_error(unit: str) -> FeatureError:
    """Say that no calibration can speak of a round."""
    return FeatureError(
        f"act: this round{f' of unit {unit!r}' if unit else ''} is refused: an input of the law is "
        "not seen, so its calibrated error is not known. Nothing was learned; S_t was taken in, do "
        "not pass it again. To play such rounds, use a policy without a guard and give the errors "
        "a value for them, CalibratedErrors(..., unseen=...), or pass error= in the first call."
    )


def refusal(names: tuple[str, ...], x: Float, arms: list[int], unit: str) -> FeatureError:
    """Say why a round could not be scored."""
    bad = [(a, j) for a in arms for j in np.flatnonzero(~np.isfinite(x[0, 0, a]))]
    where = "the scores overflow"
    if bad:
        arm, j = bad[0]
        where = f"feature {names[j]!r} of arm {arm} is {x[0, 0, arm, j]}"
    return FeatureError(
        f"act: this round{f' of unit {unit!r}' if unit else ''} is refused: {where}; was all "
        "of S that the law needs seen, and is fn finite there? Nothing was learned; S_t was "
        "taken in, do not pass it again. Rounds can be played again once all that the law "
        "looks back on is seen; observe() takes in S without deciding."
    )


# The past of S of every unit, as much of it as a law needs.


class Pasts:
    """What has been seen of every unit: one follower of its series, or one per arm."""

    def __init__(
        self,
        law: FittedLaw,
        arms: int,
        follow: Callable[[str | None], Follower] | None = None,
        archive: GrowingArchive | None = None,
    ) -> None:
        self.law, self.arms, self.names = law, arms, law.schema.s_names
        self.follow = law.follow if follow is None else follow
        self.archive = archive
        self.units: dict[str, list[Follower]] = {}

    def push(self, seen: ArrayLike, unit: str) -> list[Follower]:
        """Take in S_t, (s_dim,) or (arms, s_dim), and return the unit's follower, or one per arm.

        A labelled pandas Series is read by its labels. What does not fit is refused, and nothing
        is taken in.
        """
        s = self._row(seen)
        rows = s[None] if s.ndim == 1 else s
        past = self.units.get(unit)
        if past is None:
            past = [self.follow(self.called(self.law, unit)) for _ in rows]
        if len(past) != len(rows):
            raise DataError(f"act: unit {unit!r} mixes shared contexts and contexts per arm.")
        for one, row in zip(past, rows, strict=True):
            one.push(row)
        self.units[unit] = past
        return past

    def called(self, law: FittedLaw, unit: str) -> str | None:
        """Return what a law calls a unit: one whose rows it has learned from is no new one."""
        if self.archive is not None and unit not in getattr(law, "members", (unit,)):
            online = self.archive.called(unit)
            unit = online if online in getattr(law, "members", ()) else unit
        return unit or None

    def followed_by(self, law: FittedLaw) -> dict[str, list[Follower]]:
        """Return every unit's past as another law follows it: a law with memory sees it all again.

        A law of other columns, or that looks at something else, is refused.
        """
        mine, new = _looks_at(self.law), _looks_at(law)
        if mine != new:
            raise SettingError(f"swap_law: the law that plays looks at {mine}, this one at {new}.")
        units, archive = {}, self.archive
        for unit, past in self.units.items():
            name = self.called(law, unit)
            units[unit] = [law.follow(name) for _ in past]
            for follower, old in zip(units[unit], past, strict=True):
                state = old.state()
                if "rows" in state:
                    if name != (unit or None):  # W that were revealed are in the law by now
                        state.pop("told", None)
                    follower.restore(state)
                    continue
                if archive is None:
                    raise SettingError(
                        "swap_law: a law with memory needs all of S again; use a GrowingArchive."
                    )
                for row in archive.rows(unit):
                    follower.push(row)
        return units

    def _row(self, seen: Any) -> Float:
        wanted, schema = len(self.names), self.law.schema
        s = labelled(seen, schema, "act: s")
        if s.shape not in ((wanted,), (self.arms, wanted)):
            raise DataError(
                f"act: s must be ({wanted},) for columns {self.names}, or ({self.arms}, {wanted}) "
                f"with one context per arm, but its shape is {s.shape}."
                + ("" if schema.plain else " Pass a dict or Series by the names of the table.")
            )
        if np.isinf(s).any():
            raise DataError(f"act: s holds an infinite value ({s}); use NaN for not seen.")
        return s


def _looks_at(law: FittedLaw) -> tuple[object, ...]:
    names = law.schema.s_names, law.schema.w_names
    return (type(law).__name__, *names, law.summary.names, law.summary.memory)


class Streaming:
    """What every policy of the linear core shares online; see PulseUCB and AdaptivePulseUCB.

    Each unit's past of S is kept here (as many rows as the law looks at), so ``act`` takes only
    what is seen now. Rewards may come late, out of order or never: a decision keeps the features
    it was scored with, and the law's error then, until its reward is learned or it is forgotten.
    """

    def __init__(self, scorer: Scorer, core: Core, archive: GrowingArchive | None = None) -> None:
        self.scorer, self.core, self.archive = scorer, core, archive
        self._tracks = scorer if isinstance(scorer, Tracking) else None
        arms = scorer.features.actions
        if archive is not None:
            archive.claim()
        self._pasts = Pasts(scorer.law, arms, scorer.follow, archive)
        self._learned: dict[int, PendingDecision] = {}  # the newest, whose W may still be revealed
        self._open: dict[int, PendingDecision] = {}
        self._issued = 0
        self._arms = list(range(arms))
        self.resize()

    def resize(self) -> None:
        """Make room for as many features as are scored now."""
        self._x = np.empty((1, 1, len(self._arms), len(self.scorer.names)))

    @property
    def law(self) -> FittedLaw:
        """The law of W in use."""
        return self.scorer.law

    @property
    def features(self) -> Features:
        """Phi."""
        return self.scorer.features

    @property
    def state(self) -> State:
        """A copy of what has been learned so far."""
        return self.core.state

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of decisions whose reward has not come yet."""
        return tuple(self._open)

    @property
    def ess(self) -> dict[str, float]:
        """Effective number of draws behind the latents of each unit of which W were revealed.

        Of a law with latents of units; under 100 what is believed of the unit is rough.
        """
        out = {}
        for unit, past in self._pasts.units.items():
            met = [one for one in map(acquaintance_of, past) if one is not None and one.revealed]
            if met:
                out[unit] = min(one.ess for one in met)
        return out

    def __repr__(self) -> str:
        state, ess = self.state, self.ess
        told = f"\n  W revealed of {len(ess)} units, effective draws at least " if ess else ""
        if ess:
            unit = min(ess, key=ess.__getitem__)
            told += f"{ess[unit]:.0f} (unit {unit!r})"
        theta = ", ".join(
            f"{n} {v:.3g}" for n, v in zip(self.scorer.names, state.theta, strict=False)
        )
        return (
            f"{type(self).__name__}: {int(state.rounds)} rewards learned, {len(self._open)} "
            f"pending, {len(self._pasts.units)} units, {self.core!r}{told}\n  theta: {theta[:200]}"
        )

    def act(
        self,
        s: ArrayLike,
        *,
        unit: str = "",
        allowed: ArrayLike | None = None,
        error: ArrayLike | None = None,
    ) -> Decision:
        """Observe S_t and choose.

        Parameters
        ----------
        s : (s_dim,) what is seen now, NaN = not seen; or (K, s_dim), one context per arm. A Series
            or a dict is read by its labels, those of the archive's table: categories and clocks
            are turned into numbers as they were there.
        unit : whose time goes on by one step; pasts of different units are kept apart. A time step
            that was missed counts too: ``observe`` it with NaN.
        allowed : (K,) arms that may be played; all by default.
        error : e_{t,a}, scalar or (K,): bound on |theta*'(phibar - phihat)|; by default what the
            policy's own source of errors says; without one 0, or what a budget allows. A guard has
            its own and takes none.

        Raises FeatureError, and learns nothing, if the round cannot be scored; S_t stays in the
        unit's past and the next round can be played as usual.
        """
        count = len(self._arms)
        mask = NO_MASK if allowed is None else allowed_mask(allowed, count)
        given = None if error is None else error_bound(error, count)
        if given is not None and not self.core.takes_errors:
            raise SettingError(
                "act: error= is not for a guarded policy, whose ball knows the law's error; leave "
                "it out. Nothing was changed."
            )
        past, row = self._take_in(s, str(unit))
        arms = self._arms if allowed is None else [int(a) for a in np.flatnonzero(mask)]
        x = self._x
        self.core.draw()  # even if the round is refused
        own = self.scorer.fill(past, arms, x)
        if not np.isfinite(x[0, 0, arms, : self.core.width]).all():
            raise refusal(self.scorer.names, x[..., : self.core.width], arms, unit)
        about = self.core.about(past, own if given is None else given)
        if about is not None:
            coef = np.zeros(about.coef.shape)  # of arms that are not allowed nothing is asked
            coef[arms] = about.coef[arms]
            about = about._replace(coef=coef)
            if not (np.isfinite(coef).all() and np.isfinite(about.psi).all()):
                raise unknown_error(unit)
        choice = self.core.choose(x, mask, about)
        if choice is None:
            raise refusal(self.scorer.names, x, arms, unit)
        scored = x[0, 0, choice.action].copy()
        first = scored[: self.core.width]
        if not first.dot(first) <= TOO_LARGE**2 * self.core.ridge:
            check_size(first, self.core.ridge, "act")
        scored.flags.writeable = False  # what is learned from is what was scored
        decision = Decision(
            action=choice.action,
            x=scored,
            mean=choice.mean,
            width=choice.width,
            gamma=choice.root * choice.root,  # as arrays are squared; pow may round otherwise
            error=choice.error,
            id=self._issued,
            by=choice.by,
            why=choice.why,
            cost=choice.cost,
        )
        now = past[0] if len(past) == 1 else past[choice.action]
        carried = () if self._tracks is None else self._tracks.kept(past, choice.action)
        self._open[self._issued] = PendingDecision(
            decision, now.now.copy(), choice.about, str(unit), row, carried, place_of(now)
        )
        self._issued += 1
        return decision

    def observe(self, s: ArrayLike, *, unit: str = "", w: ArrayLike | None = None) -> None:
        """Take in S_t without deciding: to warm up a unit's past, or when no decision is due.

        w : (w_dim,) the missing part, where it is seen at this step: it tells of the unit's memory,
        of its level where the law has levels of units, or of the state of a StepLaw, and a growing
        archive takes it in. NaN is what is not revealed; such a row does not join a growing
        archive.
        """
        schema = self.law.schema
        row = None if w is None else revealed_row(w, schema, "this step", partly=True)
        past, place = self._take_in(s, str(unit))
        if row is None:
            return
        for one in past:
            condition_on(one, row[0])
        if self._tracks is not None:
            self._tracks.reveal(past, self._tracks.seen(past), row[0])
        if self.archive is not None and np.isfinite(row).all():
            self.archive.reveal(str(unit), place, row[0])

    def reveal(self, decision: Decision | int, w: ArrayLike) -> None:
        """Take in the W of an earlier round, which came to be known later.

        w : (w_dim,). It tells of the unit at its own time: of its memory, of its level where the
        law has levels of units, of the state of a StepLaw (up to 64 rows back at least); and joins
        a growing archive. A warning says where it comes too late for one of them. What was or will
        be learned from the reward stays as it is: W handed to ``learn`` together with the reward
        teaches the true features as well. Of decisions that were learned the newest 512 are
        remembered; earlier ones, those forgotten, and W that are known already, are refused.
        """
        if not isinstance(decision, Decision | int | np.integer):
            raise RewardError(
                f"reveal: the first argument must be a Decision or its id, but got {decision!r}; "
                "reveal(decision, w)."
            )
        key = decision.id if isinstance(decision, Decision) else int(decision)
        found = self._open.get(key) or self._learned.get(key)
        if found is None:
            kept = f"neither open nor among the {KEPT} learned last"
            if not self._remembers:
                kept = (
                    "not open, and without a memory, levels of units, a state or a growing archive "
                    "W tells nothing later"
                )
            raise RewardError(f"reveal: decision {key} is {kept}; nothing was changed.")
        if found.told:
            raise RewardError(
                f"reveal: the W of decision {key} is known already, and counts once; nothing was "
                "changed."
            )
        row = revealed_row(w, self.law.schema, f"decision {key}")
        kept_in = self._open if key in self._open else self._learned
        kept_in[key] = self._told(key, found, row[0], "reveal")

    def learn(self, decision: Decision | int, reward: float, *, w: ArrayLike | None = None) -> None:
        """Learn the reward of an open decision (or its id), using the features it was scored with.

        w : (w_dim,) the missing part, where it is revealed after the action; the true features are
        then learned from, and the round's imputation error is 0. It tells of the unit as in
        :meth:`reveal`. A growing archive takes it in, and the law is refitted when that is due;
        what was learned from earlier rounds stays.

        A reward that is not finite, or that belongs to no open decision (a duplicate, say), is
        refused and changes nothing.
        """
        key, found = find_open(self._open, self._issued, decision)
        value = finite_reward(reward, key)
        x, about = found.decision.x, found.about
        if w is not None:
            row = revealed_row(
                w, self.law.schema, f"decision {key}", ", and the decision stays open"
            )
            x = self.scorer.taught(found.s[None], row, int(found.decision.action), x)
            about = about.none
            if not np.isfinite(x[: self.core.width]).all():
                raise FeatureError(
                    f"learn: the features of decision {key} are not finite at s={found.s}, "
                    f"w={row[0]}: {x}; nothing was changed, and the decision stays open."
                )
            check_size(x[: self.core.width], self.core.ridge, "learn")
            x.flags.writeable = False
        if w is not None and not found.told:
            found = self._told(key, found, row[0], "learn")
        if self._tracks is not None:
            past, action = self._pasts.units[found.unit], int(found.decision.action)
            assert isinstance(self.core, StreamingGuard)  # those that track play on it
            self._tracks.tell(
                past, found.carried, found.decision.x, action, value, self.core.belief
            )
        self.core.learn(x, value, about, found.decision.x)
        del self._open[key]
        if found.place.size or self._tracks is not None or self.archive is not None:
            self._learned[key] = found
            if len(self._learned) > KEPT:
                del self._learned[next(iter(self._learned))]
        if self.archive is not None and self.archive.due:
            try:
                law = self.archive.refit()
            except PulseError as cause:  # the reward is learned; the old law is still good
                warnings.warn(f"learn: the law could not be refitted: {cause}", stacklevel=2)
            else:
                self.swap_law(law)

    def swap_law(self, law: FittedLaw) -> None:
        """Go on with another law of the same columns and summary; nothing learned is lost."""
        self.core.check_swap()
        if self._tracks is not None:
            self.scorer.swap(law)  # which says why it cannot be
        fresh = self._pasts.followed_by(law)
        self.scorer.swap(law)
        self._pasts.law, self._pasts.units = law, fresh

    def forget(self, decisions: Iterable[Decision | int]) -> None:
        """Drop open decisions whose reward will never come."""
        for decision in decisions:
            key = decision.id if isinstance(decision, Decision) else int(decision)
            if not 0 <= key < self._issued:
                raise RewardError(f"forget: decision {key} was never issued by this policy.")
            dropped = self._open.pop(key, None)
            if dropped is not None and self._tracks is not None:
                self._tracks.drop(self._pasts.units[dropped.unit], dropped.carried)

    @property
    def _remembers(self) -> bool:
        """Whether a W that comes after the reward tells anything."""
        if self._tracks is not None or self.archive is not None:
            return True
        past = next(iter(self._pasts.units.values()), [])
        return any(place_of(one).size for one in past)

    def _told(self, key: int, found: PendingDecision, w: Float1, where: str) -> PendingDecision:
        """Tell all that can use it of the W of an earlier round; a warning says what cannot."""
        past, late = self._pasts.units[found.unit], []
        for arm, one in enumerate(past):
            own = len(past) == 1 or arm == found.decision.action
            if own or (isinstance(one, Learning) and one.arms_alike):
                late.append(not condition_on(one, w, found.place))
        if self._tracks is not None:
            late.append(not self._tracks.reveal(past, found.carried, w))
        if self.archive is not None:
            self.archive.reveal(found.unit, found.row, w)
        if any(late):
            whose = f" of unit {found.unit!r}" if found.unit else ""
            warnings.warn(
                f"{where}: the W of decision {key}{whose} comes too late to tell of the unit's "
                "state or memory, which has moved on since; reveal W before the reward is learned, "
                "where the law has a memory, and within 64 steps, where it has a state.",
                stacklevel=3,
            )
        return found._replace(told=True)

    def _take_in(self, s: ArrayLike, unit: str) -> tuple[list[Follower], int]:
        if np.ndim(s) > 1 and not (self.archive is None and self._tracks is None):
            who = "a growing archive" if self._tracks is None else "a committee, or a memory,"
            raise SettingError(f"act: {who} takes one context a round, not one per arm.")
        if self.archive is None:
            return self._pasts.push(s, unit), -1
        past = self._pasts.push(s, unit)
        return past, self.archive.see(unit, past[0].now)


def bonus_core(
    radius: object, ridge: float | None, scorer: Scorer, errors: OnlineErrors | None, where: str
) -> BonusCore:
    """Return the core that plays a radius as a bonus; lambda is 1 unless it is given."""
    if not isinstance(radius, Radius):
        raise SettingError(
            f"{where}: radius must be a Radius, but got {type(radius).__name__}; constant(2.0), "
            "corrected(...), robust(...) or thompson(...)."
        )
    lam = 1.0 if ridge is None else ridge
    return BonusCore(radius, lam, scorer.features.actions, len(scorer.names), errors)


def one_of(
    radius: object, known: object, guard: Mapping[str, object], where: str, example: str
) -> None:
    """Refuse a radius and a guard at once, neither, or what only a guard takes without one.

    known : what the guard's ball would be made from. guard : arguments by name.
    """
    name = example.split("=")[0]
    if known is not None and radius is not None:
        raise SettingError(
            f"{where}: radius= is a bonus without a guard, {name}= a guard with its own ball; give "
            "one of them. To be advised by a radius inside the guard: advisor=constant(...)."
        )
    if known is None and radius is None:
        raise SettingError(
            f"{where}: give {example} with reward_sd= and theta_bound= for a guarded policy, or "
            "a radius such as constant(2.0) for one without a guard."
        )
    extra = [key for key, value in guard.items() if value is not None]
    if known is None and extra:
        raise SettingError(f"{where}: {extra[0]}= is for a guarded policy; give {example} too.")
