"""PULSE-UCB for one decision at a time: see S, act, learn when the reward arrives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro.arrays import Bool, Float, Float1, Float2, whole
from pulse_pyro.errors import FeatureError, RewardError, SettingError
from pulse_pyro.features import Features
from pulse_pyro.laws.follow import Follower, OnlineLaw
from pulse_pyro.policies import kernels
from pulse_pyro.policies.linear import (
    NO_ERROR,
    NO_MASK,
    TOO_LARGE,
    Decision,
    State,
    check_size,
    init,
)
from pulse_pyro.policies.pasts import Pasts
from pulse_pyro.radius import Radius
from pulse_pyro.seeds import stream

PROBES = 64  # contexts at which Phi is judged affine, once


class PulseUCB:
    """UCB on features whose missing part is replaced by its expectation under a fitted law.

    Parameters
    ----------
    law : p^(W_t | S_1:t).
    features : Phi; the arms are 0 .. features.actions - 1.
    radius : rule for sqrt(gamma_t); its ``corrected`` form carries the guarantee, see there.
    ridge : lambda > 0.
    size : Monte Carlo draws a round, used only if Phi is not affine in w.
    seed : of those draws.

    Each unit's past of S is kept here (as many rows as the law looks at), so ``act`` takes only
    what is seen now. Rewards may come late, out of order or never: a decision keeps the features
    it was scored with until its reward is learned or it is forgotten.

    A law that conditions on unseen inputs (``law.conditions``) plays from a unit's first row on;
    others refuse rounds until their lags are filled: use ``observe`` to warm up. Errors of arms
    that are not played do not enter the choice.

    The regret guarantee is against the best policy that sees only S; no policy can recover what
    the missing W would have told.
    """

    def __init__(
        self, law: OnlineLaw, features: Features, radius: Radius, *, ridge: float = 1.0,
        size: int = 256, seed: int = 0,
    ) -> None:  # fmt: skip
        for name, value, kind, hint in (
            ("law", law, OnlineLaw, "fit it first: law.fit(history, seed=0)"),
            ("features", features, Features, "Features(fn, actions, names)"),
            ("radius", radius, Radius, "constant(2.0), paper(...) or corrected(...)"),
        ):
            if not isinstance(value, kind):
                raise SettingError(
                    f"PulseUCB: {name} must be a {kind.__name__}, but {type(value).__name__} came; "
                    f"{hint}."
                )
        self.law, self.features, self.radius = law, features, radius
        self._size = whole(size, "PulseUCB: size", 2)
        self._rng = stream(seed, "pulse")
        self._state = init(len(features.names), ridge, (1,))
        self._params = radius.array
        self._pasts = Pasts(law, features.actions)
        self._open: dict[int, Decision] = {}
        self._issued = 0
        self._affine: bool | None = None
        arms, dim = features.actions, len(features.names)
        self._arms = list(range(arms))
        self._x = np.empty((1, 1, arms, dim))
        self._unknown = np.full((1, 1, arms), np.nan)
        self._reward, self._error = np.empty((1, 1, 1)), np.empty((1, 1, 1))
        self._action, self._root = np.empty((1, 1), np.int64), np.empty((1, 1))

    @property
    def state(self) -> State:
        """A copy of what has been learned so far."""
        return self._state.one(0)

    def __repr__(self) -> str:
        state = self.state
        theta = ", ".join(
            f"{n} {v:.3g}" for n, v in zip(self.features.names, state.theta, strict=True)
        )
        return (
            f"PulseUCB: {int(state.rounds)} rewards learned, {len(self._open)} pending, "
            f"{len(self._pasts.units)} units, {self.radius!r}\n  theta: {theta[:200]}"
        )

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of decisions whose reward has not come yet."""
        return tuple(self._open)

    def act(
        self, s: ArrayLike, *, unit: str = "", allowed: ArrayLike | None = None,
        error: ArrayLike = 0.0,
    ) -> Decision:  # fmt: skip
        """Observe S_t and choose.

        Parameters
        ----------
        s : (s_dim,) what is seen now, NaN = not seen; or (K, s_dim), one context per arm.
        unit : whose time goes on by one step; pasts of different units are kept apart.
        allowed : (K,) arms that may be played; all by default.
        error : e_{t,a}, scalar or (K,): bound on |theta*'(phibar - phihat)|.

        Raises FeatureError, and learns nothing, if the round cannot be scored; S_t stays in the
        unit's past and the next round can be played as usual.
        """
        mask = NO_MASK if allowed is None else self._mask(allowed)
        bound = self._bound(error)
        past = self._pasts.push(s, str(unit))
        arms = self._arms if allowed is None else [int(a) for a in np.flatnonzero(mask)]
        x = self._expected(past, arms)
        kernels.play(
            x, self._unknown, NO_ERROR, mask, self.radius.kind, self._params, self._state.ridge,
            *self._state[:5], self._action, self._root,
        )  # fmt: skip
        action = int(self._action[0, 0])
        if action < 0:
            raise self._refusal(x, arms, unit)
        mean, width = np.empty((1, x.shape[2])), np.empty((1, x.shape[2]))
        kernels.scores(x, self._state.inverse, self._state.theta, mean, width)
        if allowed is not None:
            mean[~mask[0]] = width[~mask[0]] = np.nan
        gamma = float(self._root[0, 0]) ** 2
        e = bound if isinstance(bound, float) else float(bound[action])
        scored = x[0, 0, action].copy()
        if not scored.dot(scored) <= TOO_LARGE**2 * self._state.ridge:
            check_size(scored, self._state.ridge, "act")
        scored.flags.writeable = False  # what is learned from is what was scored
        decision = Decision(action, scored, mean[0], width[0], gamma, e, self._issued)
        self._open[self._issued] = decision
        self._issued += 1
        return decision

    def observe(self, s: ArrayLike, *, unit: str = "") -> None:
        """Take in S_t without deciding: to warm up a unit's past, or when no decision is due."""
        self._pasts.push(s, str(unit))

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Learn the reward of an open decision (or its id), using the features it was scored with.

        A reward that is not finite, or that belongs to no open decision (a duplicate, say), is
        refused and changes nothing.
        """
        if not isinstance(decision, Decision | int | np.integer):
            raise RewardError(
                f"learn: the first argument must be a Decision or its id, but {decision!r} came; "
                "learn(decision, reward)."
            )
        key = decision.id if isinstance(decision, Decision) else int(decision)
        found = self._open.get(key)
        if found is None:
            known = 0 <= key < self._issued
            why = "its reward was learned or forgotten before" if known else "it was never issued"
            raise RewardError(
                f"learn: decision {key} is not open: {why}; nothing was changed. Pass the Decision "
                "itself or its id, not its action."
            )
        mine = found.x if not isinstance(decision, Decision) else decision.x
        if mine is not found.x and not np.array_equal(mine, found.x):
            raise RewardError(
                f"learn: decision {key} holds other features than the one issued here; does it "
                "belong to another policy? Nothing was changed."
            )
        try:
            value = float(reward)
        except (TypeError, ValueError):
            value = np.nan
        if not np.isfinite(value):
            raise RewardError(
                f"learn: the reward of decision {key} must be finite, but {reward!r} came; nothing "
                "was changed, and the decision stays open."
            )
        self._reward[:], self._error[:] = value, found.error
        kernels.play(
            found.x.reshape(1, 1, 1, -1), self._reward, self._error, NO_MASK, self.radius.kind,
            self._params, self._state.ridge, *self._state[:5], self._action, self._root,
        )  # fmt: skip
        del self._open[key]

    def forget(self, decisions: Iterable[Decision | int]) -> None:
        """Drop open decisions whose reward will never come."""
        for decision in decisions:
            self._open.pop(decision.id if isinstance(decision, Decision) else int(decision), None)

    def _expected(self, past: list[Follower], arms: list[int]) -> Float:
        """Fill phihat, (1, 1, K, d), of these arms for the last row of the past; NaN elsewhere."""
        if len(arms) < self.features.actions:
            self._x[:] = np.nan
        if self._affine is None and arms:
            first = past[0] if len(past) == 1 else past[arms[0]]
            w = first.sample(PROBES, stream(0, "affine"))
            if not (np.isfinite(first.now).all() and np.isfinite(w).all()):
                return self._fill(past, arms, affine=False)  # judge on a round that is seen
            affine = self.features.affine_in_w(self._contexts(first.now), w)
            self._affine = affine and self.law.exact_mean
        return self._fill(past, arms, bool(self._affine))

    def _contexts(self, now: Float1) -> Float2:
        """Return S_t and contexts like the archive's, to probe Phi at: (PROBES, s_dim)."""
        mean, sd = self.law.contexts
        rows: Float2 = mean + 2.0 * sd * stream(0, "contexts").standard_normal((PROBES, len(now)))
        rows[0] = now
        return rows

    def _fill(self, past: list[Follower], arms: list[int], affine: bool) -> Float:
        w: Float2 | None = None
        start = None if affine else self._rng.bit_generator.state
        for a in arms:
            own = past[0] if len(past) == 1 else past[a]
            if w is None or len(past) > 1:
                if start is not None:  # arms with contexts of their own share one set of noise
                    self._rng.bit_generator.state = start
                w = own.mean()[None] if affine else own.sample(self._size, self._rng)
            s = own.now[None]
            if len(w) == 1:  # exact; the kernel notices what is not finite
                self._x[0, 0, a] = self.features.unchecked(s, w, a)[0]
            else:
                self._x[0, 0, a] = self.features(np.repeat(s, len(w), axis=0), w, a).mean(0)
        return self._x

    def _mask(self, allowed: ArrayLike) -> Bool:
        mask = np.asarray(allowed)
        if mask.shape != (self.features.actions,) or mask.dtype != np.bool_:
            raise SettingError(
                f"act: allowed must have {self.features.actions} entries True or False, one per "
                f"arm, but {allowed!r} came."
            )
        if not mask.any():
            raise FeatureError("act: no arm is allowed this round; allow at least one.")
        return np.array(mask[None, None])

    def _bound(self, error: ArrayLike) -> float | Float1:
        if isinstance(error, float) and 0.0 <= error < np.inf:
            return error
        values = np.asarray(error, dtype=np.float64)
        if values.shape not in ((), (self.features.actions,)):
            raise SettingError(f"act: error must be a number or one per arm, it is {values.shape}.")
        if not np.isfinite(values).all() or (values < 0).any():
            raise SettingError(f"act: error must be finite and >= 0, but {error!r} came.")
        return float(values) if values.ndim == 0 else values

    def _refusal(self, x: Float, arms: list[int], unit: str) -> FeatureError:
        bad = [(a, j) for a in arms for j in np.flatnonzero(~np.isfinite(x[0, 0, a]))]
        where = "the scores overflow"
        if bad:
            arm, j = bad[0]
            where = f"feature {self.features.names[j]!r} of arm {arm} is {x[0, 0, arm, j]}"
        return FeatureError(
            f"act: this round{f' of unit {unit!r}' if unit else ''} is refused: {where}; was all "
            "of S that the law needs seen, and is fn finite there? Nothing was learned; S_t was "
            "taken in, do not pass it again. Rounds can be played again once all that the law "
            "looks back on is seen; observe() takes in S without deciding."
        )
