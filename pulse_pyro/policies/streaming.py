"""Linear UCB for one decision at a time: see S, act, learn when the reward arrives."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro.arrays import Float, Float1
from pulse_pyro.calibration.online import OnlineErrors, SensitiveErrors, check_refit
from pulse_pyro.calibration.sensitivity import Sensitivity
from pulse_pyro.errors import FeatureError, PulseError, RewardError, SettingError
from pulse_pyro.features import Features
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.follow import Follower, OnlineLaw
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.policies import kernels
from pulse_pyro.policies.asked import (
    Open,
    allowed_mask,
    error_bound,
    find_open,
    finite_reward,
    full_row,
    refusal,
    unknown_error,
)
from pulse_pyro.policies.imputed import Scorer
from pulse_pyro.policies.linear import (
    GREEDY,
    NO_ERROR,
    NO_MASK,
    TOO_LARGE,
    Decision,
    State,
    check_size,
    init,
)
from pulse_pyro.policies.pasts import Pasts
from pulse_pyro.policies.refine import NOTHING, Extra
from pulse_pyro.radius import CORRECTED, SAMPLED, WEIGHT, Radius, check_dim
from pulse_pyro.seeds import stream


class Streaming:
    """What every policy of the linear core shares online; see PulseUCB and AdaptivePulseUCB.

    Each unit's past of S is kept here (as many rows as the law looks at), so ``act`` takes only
    what is seen now. Rewards may come late, out of order or never: a decision keeps the features
    it was scored with until its reward is learned or it is forgotten.
    """

    def __init__(
        self, scorer: Scorer, radius: Radius, ridge: float, errors: OnlineErrors | None = None,
        archive: GrowingArchive | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(radius, Radius):
            raise SettingError(
                f"{type(self).__name__}: radius must be a Radius, but {type(radius).__name__} "
                "came; constant(2.0), corrected(...), robust(...) or thompson(...)."
            )
        if isinstance(errors, SensitiveErrors) and radius.kind != CORRECTED:
            raise SettingError(f"SensitiveErrors need the corrected radius, not {radius!r}.")
        self.scorer, self.radius, self.errors, self.archive = scorer, radius, errors, archive
        arms, dim = scorer.features.actions, len(scorer.names)
        check_dim(radius, dim)
        if archive is not None:
            archive.claim()
        self._state = init(dim, ridge, (1,))
        self._params = radius.array
        self._learn_params = GREEDY.array
        self._learn_params[WEIGHT] = radius.weight
        self._pasts = Pasts(scorer.law, arms)
        self._open: dict[int, Open] = {}
        self._issued = 0
        self._arms = list(range(arms))
        self._x = np.empty((1, 1, arms, dim))
        self._unknown = np.full((1, 1, arms), np.nan)
        self._reward, self._error = np.empty((1, 1, 1)), np.empty((1, 1, 1))
        self._action, self._root = np.empty((1, 1), np.int64), np.empty((1, 1))
        self._extra = NOTHING._replace(spent=np.zeros((1, 1)))
        self._slopes, self._kappa = NOTHING.slopes, NOTHING.kappa
        if radius.kind == SAMPLED:
            self._noise = stream(radius.seed, "thompson")
        if radius.bias_per_arm:
            self._extra = self._extra._replace(
                past=np.empty((1, 64, dim)), past_error=np.empty((1, 64))
            )

    @property
    def law(self) -> OnlineLaw:
        """The law of W in use."""
        return self.scorer.law

    @property
    def features(self) -> Features:
        """Phi."""
        return self.scorer.features

    @property
    def state(self) -> State:
        """A copy of what has been learned so far."""
        return self._state.one(0)

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of decisions whose reward has not come yet."""
        return tuple(self._open)

    def __repr__(self) -> str:
        state = self.state
        theta = ", ".join(
            f"{n} {v:.3g}" for n, v in zip(self.scorer.names, state.theta, strict=True)
        )
        return (
            f"{type(self).__name__}: {int(state.rounds)} rewards learned, {len(self._open)} "
            f"pending, {len(self._pasts.units)} units, {self.radius!r}\n  theta: {theta[:200]}"
        )

    def act(
        self, s: ArrayLike, *, unit: str = "", allowed: ArrayLike | None = None,
        error: ArrayLike | None = None,
    ) -> Decision:  # fmt: skip
        """Observe S_t and choose.

        Parameters
        ----------
        s : (s_dim,) what is seen now, NaN = not seen; or (K, s_dim), one context per arm. A Series
            or a dict is read by its labels.
        unit : whose time goes on by one step; pasts of different units are kept apart. A time step
            that was missed counts too: ``observe`` it with NaN.
        allowed : (K,) arms that may be played; all by default.
        error : e_{t,a}, scalar or (K,): bound on |theta*'(phibar - phihat)|; by default what the
            policy's own source of errors says; without one 0, or what a budget allows.

        Raises FeatureError, and learns nothing, if the round cannot be scored; S_t stays in the
        unit's past and the next round can be played as usual.
        """
        count = len(self._arms)
        mask = NO_MASK if allowed is None else allowed_mask(allowed, count)
        given = None if error is None else error_bound(error, count)
        past, row = self._take_in(s, str(unit))
        arms = self._arms if allowed is None else [int(a) for a in np.flatnonzero(mask)]
        x, noise = self._x, self._draw_noise()  # drawn even if the round is refused
        own = self.scorer.fill(past, arms, x)
        if not np.isfinite(x[0, 0, arms]).all():
            raise refusal(self.scorer.names, x, arms, unit)
        bound, extra = self._errors_now(past, arms, own if given is None else given, unit)
        if noise is not None:
            extra = extra._replace(noise=noise)
        plain = self.radius.plain and extra is self._extra
        kernels.play(
            x, self._unknown, bound, mask, None if plain else extra, self.radius.kind, self._params,
            self._state.ridge, *self._state[:5], self._action, self._root,
        )  # fmt: skip
        action = int(self._action[0, 0])
        if action < 0:
            raise refusal(self.scorer.names, x, arms, unit)
        mean, width = np.empty((1, x.shape[2])), np.empty((1, x.shape[2]))
        kernels.scores(x, self._state.inverse, self._state.theta, mean, width)
        if allowed is not None:
            mean[~mask[0]] = width[~mask[0]] = np.nan
        gamma = float(self._root[0, 0]) ** 2
        if plain:
            e = float(bound[0, 0, action]) if bound.size else 0.0
        else:
            e = float(extra.spent[0, 0])
        scored = x[0, 0, action].copy()
        if not scored.dot(scored) <= TOO_LARGE**2 * self._state.ridge:
            check_size(scored, self._state.ridge, "act")
        scored.flags.writeable = False  # what is learned from is what was scored
        decision = Decision(action, scored, mean[0], width[0], gamma, e, self._issued)
        now = past[0] if len(past) == 1 else past[action]
        self._open[self._issued] = Open(decision, now.now.copy(), str(unit), row)
        self._issued += 1
        return decision

    def observe(self, s: ArrayLike, *, unit: str = "") -> None:
        """Take in S_t without deciding: to warm up a unit's past, or when no decision is due."""
        self._take_in(s, str(unit))

    def learn(self, decision: Decision | int, reward: float, *, w: ArrayLike | None = None) -> None:
        """Learn the reward of an open decision (or its id), using the features it was scored with.

        w : (w_dim,) the missing part, where it is revealed after the action; the true features are
        then learned from, and the round's imputation error is 0. A growing archive takes it in,
        and the law is refitted when that is due; what was learned from earlier rounds stays.

        A reward that is not finite, or that belongs to no open decision (a duplicate, say), is
        refused and changes nothing.
        """
        key, found = find_open(self._open, self._issued, decision)
        value = finite_reward(reward, key)
        x, e = found.decision.x, float(found.decision.error)
        if w is not None:
            row = full_row(w, self.scorer.w_names, key)
            x, e = self.scorer.taught(found.s[None], row, int(found.decision.action)), 0.0
            if not np.isfinite(x).all():
                raise FeatureError(
                    f"learn: the features of decision {key} are not finite at s={found.s}, "
                    f"w={row[0]}: {x}; nothing was changed, and the decision stays open."
                )
            check_size(x, self._state.ridge, "learn")
            x.flags.writeable = False
        self._reward[:], self._error[:] = value, e
        memory = self._memory()
        kernels.play(
            x.reshape(1, 1, 1, -1), self._reward, self._error, NO_MASK,
            None if self.radius.plain else memory, GREEDY.kind,
            self._learn_params, self._state.ridge, *self._state[:5], self._action, self._root,
        )  # fmt: skip
        del self._open[key]
        if self.archive is not None and w is not None:
            self.archive.reveal(found.unit, found.row, row[0])
        if self.archive is not None and self.archive.due:
            try:
                law = self.archive.refit()
            except PulseError as cause:  # the reward is learned; the old law is still good
                warnings.warn(f"learn: the law could not be refitted: {cause}", stacklevel=2)
            else:
                self.swap_law(law)

    def swap_law(self, law: FittedLaw) -> None:
        """Go on with another law of the same columns and summary; nothing learned is lost."""
        if self.errors is not None:
            check_refit(self.errors)
        fresh = self._pasts.followed_by(law, self.archive)
        self.scorer.swap(law)
        self._pasts.law, self._pasts.units = law, fresh

    def forget(self, decisions: Iterable[Decision | int]) -> None:
        """Drop open decisions whose reward will never come."""
        for decision in decisions:
            key = decision.id if isinstance(decision, Decision) else int(decision)
            if not 0 <= key < self._issued:
                raise RewardError(f"forget: decision {key} was never issued by this policy.")
            self._open.pop(key, None)

    def _draw_noise(self) -> Float | None:
        if self.radius.kind != SAMPLED:
            return None
        return self._noise.standard_normal((1, 1, self._x.shape[3]))

    def _take_in(self, s: ArrayLike, unit: str) -> tuple[list[Follower], int]:
        if self.archive is None:
            return self._pasts.push(s, unit), -1
        if np.ndim(s) > 1:
            raise SettingError("act: a growing archive takes one context a round, not one per arm.")
        past = self._pasts.push(s, unit)
        return past, self.archive.see(unit, past[0].now)

    def _errors_now(
        self, past: list[Follower], arms: list[int], given: Float1 | None, unit: str
    ) -> tuple[Float, Extra]:
        """Return e_{t,a} as the kernel wants it, and what goes with it."""
        if given is None and self.errors is not None:
            found = self.errors.at(past)
            if isinstance(found, Sensitivity):
                return NO_ERROR, self._sensitive(found, unit)
            given = found
        if given is None:
            return NO_ERROR, self._extra
        bound = np.zeros((1, 1, len(self._arms)))
        bound[0, 0, arms] = given[arms]
        if not np.isfinite(bound).all():
            raise unknown_error(unit)
        return bound, self._extra

    def _sensitive(self, found: Sensitivity, unit: str) -> Extra:
        if not (np.isfinite(found.eps).all() and np.isfinite(found.slopes).all()):
            raise unknown_error(unit)
        same = found.slopes.shape == self._slopes.shape and np.allclose(
            found.slopes, self._slopes, rtol=1e-9, atol=0.0
        )
        if not same:  # what was learned was of other slopes
            self._slopes = np.array(found.slopes, order="C")
            self._kappa = np.full((1, *found.slopes.shape[2:4]), np.inf)
        return self._extra._replace(
            eps=np.array(found.eps, order="C"), slopes=self._slopes, kappa=self._kappa
        )

    def _memory(self) -> Extra:
        """Return what keeps the rounds learned from, with room for one more."""
        capacity, learned = self._extra.past.shape[1], int(self._state.sums[0, 0])
        if capacity and learned >= capacity:
            more = np.empty((1, 2 * capacity, self._extra.past.shape[2]))
            more[:, :capacity] = self._extra.past
            error = np.empty((1, 2 * capacity))
            error[:, :capacity] = self._extra.past_error
            self._extra = self._extra._replace(past=more, past_error=error)
        return self._extra
