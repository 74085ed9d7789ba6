"""Balls from what is known of a law's error: a calibration's band, or an archive's ellipsoid.

A ball takes sigma and S on trust, and the law's error from one of

    band         |delta_i(s)| <= eps_i(s), all contexts at once: its bias is summed up as rounds
                 are learned (see ``ball``);
    ellipsoid    delta_i = psi_i' v, ||v|| <= chi_i: the same, jointly over rounds (R3);
    augmented    the same ellipsoid, v learned from rewards: see ``augmented``.

What is taken on trust of rewards is said here too, in sentences where it is missing or absurd
beside the archive's scale. The ball is conditional: on the calibration or the ellipsoid, and on
what the law says W varies by given S (C_W), unless sigma is given.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.arrays import Float2, Float3, positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.online import single_part
from pulse_pyro.calibration.rung import ON_FORECAST, ON_S
from pulse_pyro.data.history import History, Source
from pulse_pyro.features import Features
from pulse_pyro.laws.ellipsoid import AboutW, Ellipsoid
from pulse_pyro.policies.ball import BallRounds
from pulse_pyro.policies.guard import NO_PSI, Ball, BiasMap, bias_map

ABSURD = 1e3  # times the archive's scale, or its inverse
NORMAL = "what W varies by given S is as the law says, and normal"
TRUST = "sigma is at least the sub-Gaussian scale of a reward given S"


@dataclass(frozen=True)
class RewardNoise:
    """What is taken on trust of rewards: reward_sd given the full context, or sigma given S.

    value : of the one that is given. whole : it is sigma itself, W included.
    """

    value: float
    whole: bool

    @property
    def rests_on(self) -> str:
        """What it makes a ball conditional on, in words."""
        return TRUST if self.whole else NORMAL


def reward_noise(
    reward_sd: float | None = None,
    reward_range: tuple[float, float] | None = None,
    sigma: float | None = None,
) -> RewardNoise | None:
    """Read the one of three that is given; None if none is.

    reward_range : (low, high) of all rewards, whose scale given anything is (high - low) / 2.
    """
    given = {"reward_sd": reward_sd, "reward_range": reward_range, "sigma": sigma}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise SettingError(
            f"guard: {named[0]} and {named[1]} are both given; one of them is enough."
        )
    if reward_sd is not None:
        return RewardNoise(positive(reward_sd, "guard: reward_sd", zero=True), False)
    if sigma is not None:
        return RewardNoise(positive(sigma, "guard: sigma"), True)
    if reward_range is None:
        return None
    try:
        low, high = (float(value) for value in reward_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise SettingError(
            f"guard: reward_range must be (low, high), two numbers, but got {reward_range!r}."
        )
    return RewardNoise((high - low) / 2.0, True)


@dataclass(frozen=True, eq=False)
class ArchiveScale:
    """What an archive tells of the scale of rewards.

    spread : (action, d, q) M_a C_W^(1/2), for each unit of theta. length : root mean square of
    ||Phi||.
    """

    spread: Float3
    length: float

    @classmethod
    def of(cls, features: Features, s: Float2, w: Float2, spread: Float3) -> ArchiveScale:
        """Measure Phi at contexts s (n, s_dim), w (n, w)."""
        rows = [features.unchecked(s, w, a) for a in range(features.actions)]
        return cls(spread, float(np.sqrt(np.mean([(row**2).sum(-1).mean() for row in rows]))))

    @property
    def open(self) -> float:
        """Sd of a reward that W leaves open given S, for each unit of ||theta||, at most."""
        return float(np.linalg.norm(self.spread, ord=2, axis=(1, 2)).max())

    def trusted(
        self, noise: RewardNoise | None, theta_bound: float | None, where: str
    ) -> tuple[RewardNoise, float]:
        """Return what is taken on trust, or say what is missing, with what the archive suggests.

        Warns where either is a thousand times larger or smaller than the archive's scale.
        """
        if theta_bound is None:
            hint = f"rewards whose means differ by R, about R / {self.length:.3g}"
            if noise is not None and noise.whole:
                hint = f"rewards of this scale, about {2 * noise.value / self.length:.3g}"
            raise SettingError(
                f"{where}: theta_bound is missing, S >= ||theta*||, the size of what is to be "
                f"learned. Features of this archive are about {self.length:.3g} long: for {hint}."
            )
        size = positive(theta_bound, f"{where}: theta_bound")
        suggested = size * self.open
        if noise is None:
            raise SettingError(
                f"{where}: reward_sd is missing, the sd of a reward given the full context (or "
                "reward_range=(low, high), or sigma=, the scale of a reward given S). W alone "
                f"leaves up to {suggested:.3g} open at theta_bound {size:g}: sigma is about that, "
                "or more."
            )
        named = "sigma (or half of reward_range)" if noise.whole else "reward_sd"
        ratio, reach = noise.value / max(suggested, 1e-300), size * self.length
        if ratio > ABSURD or (noise.whole and ratio < 1 / ABSURD):
            warnings.warn(
                f"{where}: {named} is {noise.value:.3g}, but at theta_bound {size:g} W leaves up "
                f"to {suggested:.3g} of a reward open by this archive, and sigma should be about "
                "that or more; is one of them in other units?",
                stacklevel=4,
            )
        elif 0 < noise.value * ABSURD < reach:
            warnings.warn(
                f"{where}: theta_bound is {size:g}, so that mean rewards may reach {reach:.3g} at "
                f"contexts of this archive, while {named} is {noise.value:.3g}; for means of that "
                f"size theta_bound is about {noise.value / self.length:.3g}. Is one of them in "
                "other units?",
                stacklevel=4,
            )
        return noise, size


# The ball of a calibration's band.


def calibration_bias(calibration: Calibration, where: str = "guard") -> BiasMap:
    """Return how errors of E[W] reach Phi, at the calibration's own contexts."""
    part, _ = single_part(calibration, where)
    s, w = complete_rows(calibration.contexts, where)
    return bias_map(part.targets.features, s, w)


def complete_rows(history: History, where: str) -> tuple[Float2, Float2]:
    """Return S and W of the rows of an archive of which both are seen."""
    seen = np.isfinite(history.s).all(-1) & np.isfinite(history.w).all(-1)
    if not seen.any():
        raise SettingError(f"{where}: no row of the calibration's contexts has all of S and W.")
    return history.s[seen], history.w[seen]


def band_ball(
    calibration: Calibration,
    bias: BiasMap,
    noise: RewardNoise,
    *,
    theta_bound: float,
    delta: float = 0.05,
    spread: Float3 | None = None,
) -> Ball:
    """Return the ball whose law's error is within a calibration's band, to play with its rounds.

    theta* is in it at all times with probability >= 1 - delta - (1 - level).

    Parameters
    ----------
    calibration : of the law that plays. bias : how its errors reach Phi, ``calibration_bias``.
    noise : what is taken on trust of rewards. theta_bound : S >= ||theta*||. delta : of the ball.
    spread : (action, d, q) of ``guard.reward_spread``; not used where sigma is given.
    """
    feeds = calibration.feeds
    assert feeds is not None  # ``calibration_bias`` has asked for a band
    rests_on, heuristic = band_trust(calibration)
    return Ball(
        theta_bound=theta_bound,
        delta=delta,
        noise=noise.value,
        spread=open_part(noise, spread),
        directions=bias.directions,
        of=bias.of,
        rests_on=(*rests_on, noise.rests_on, "||theta*|| <= theta_bound"),
        level=calibration.level,
        heuristic=heuristic,
        benchmark=feeds.benchmark or ON_S,
    )


def band_trust(calibration: Calibration) -> tuple[tuple[str, ...], str]:
    """Return what a calibration's band rests on, and why it need not hold, "" where it may.

    The calibration must have a band.
    """
    feeds = calibration.feeds
    assert feeds is not None
    failed = ", ".join(check.name for check in feeds.checks if check.verdict == "fail")
    given = (f"that {feeds.rests_on}",) if feeds.holds and feeds.rests_on else ()
    return (
        (f"the calibration's band, {calibration.level:.4g} at once over its domain", *given),
        "" if feeds.holds else f"a check of the calibration failed ({failed})",
    )


def band_rounds(
    calibration: Calibration, bias: BiasMap, source: Source, lead: int = 0
) -> BallRounds:
    """Return the band's errors of whole series, coef (batch, time - lead, action, k).

    source : s (batch, time, s_dim), or (batch, time, action, s_dim) with a context per action,
    each series from its beginning; the first ``lead`` rows only fill lags. NaN where an input is
    not seen.
    """
    part, targets = single_part(calibration, "guard")
    s = np.asarray(source, np.float64)
    place = {int(column): at for at, column in enumerate(targets.used)}
    use = [place[int(column)] for column in bias.of]

    def coef(series: Float3) -> Float3:
        eps = part.budget(series).total[:, use]  # (n, k)
        rows = bias.coef(series.reshape(-1, series.shape[-1]))
        return np.asarray(rows * eps[:, None])

    if s.ndim == 4:
        each = [coef(s[:, :, a])[:, a] for a in range(s.shape[2])]
        found = np.stack(each, axis=1)
    else:
        found = coef(s)
    whole = found.reshape(*s.shape[:2], *found.shape[1:])
    return BallRounds(np.ascontiguousarray(whole[:, lead:]), NO_PSI)


# The ball of an ellipsoid whose errors are summed up, not learned (R3).


def ellipsoid_ball(
    ellipsoid: Ellipsoid,
    bias: BiasMap,
    noise: RewardNoise,
    *,
    theta_bound: float,
    delta: float = 0.05,
    spread: Float3 | None = None,
) -> Ball:
    """Return the ball whose law's error lies in an ellipsoid; features must use its centre.

    theta* is in it at all times with probability >= 1 - delta - (1 - level), conditional on the
    form of E[W | S]. Arguments as in :func:`band_ball`.
    """
    return Ball(
        theta_bound=theta_bound,
        delta=delta,
        noise=noise.value,
        spread=open_part(noise, spread),
        directions=bias.directions,
        of=bias.of,
        chi=ellipsoid.chi,
        rests_on=(*ellipsoid.rests_on, noise.rests_on, "||theta*|| <= theta_bound"),
        level=ellipsoid.level,
    )


def ellipsoid_rounds(
    ellipsoid: Ellipsoid, bias: BiasMap, law: AboutW, source: Source, lead: int = 0
) -> tuple[Float3, BallRounds]:
    """Return E[W] at the centre (batch, time - lead, w), and the errors of whole series.

    source : s (batch, time, s_dim). coef (batch, time - lead, action, k), psi (batch, time - lead,
    w, P).
    """
    s = np.asarray(source, np.float64)
    z, mean = ellipsoid.at(law, s)
    lead_of = s.shape[:2]
    psi = ellipsoid.psi(z)
    psi = psi.reshape(*lead_of, *psi.shape[1:])[:, lead:]
    rows = bias.coef(s.reshape(-1, s.shape[-1]))
    coef = rows[None] if len(rows) == 1 else rows.reshape(*lead_of, *rows.shape[1:])[:, lead:]
    rounds = BallRounds(np.ascontiguousarray(coef), np.ascontiguousarray(psi))
    return np.ascontiguousarray(mean.reshape(*lead_of, -1)[:, lead:]), rounds


def with_memory_note(ball: Ball, law: object) -> Ball:
    """Call a ball heuristic where its law was fitted with memory: no ball is valid then.

    What a law leaves of W is then said to persist, so that a round's noise is not fresh.
    """
    if getattr(law, "memory", None) is None:
        return ball
    also = f"{ball.heuristic}; " if ball.heuristic else ""
    return replace(ball, heuristic=f"{also}what the law leaves of W was fitted with memory")


def with_advisor_note(ball: Ball, looks_at_more: bool) -> Ball:
    """Call a ball given the forecast heuristic where its advisor looks at more than that.

    W given the forecast is then no longer what the band says it is: measured, such a ball held
    theta* in no run, and was never asked.
    """
    if ball.benchmark != ON_FORECAST or not looks_at_more:
        return ball
    why = "its band is given the forecast, and an advisor looks at more of S than that"
    also = f"{ball.heuristic}; " if ball.heuristic else ""
    return replace(ball, heuristic=also + why)


def open_part(noise: RewardNoise, spread: Float3 | None) -> Float3 | None:
    """Return what W varies by given S, (action, d, q); None where sigma says it already."""
    if noise.whole:
        return None
    if spread is None:
        raise SettingError("guard: with reward_sd, spread= must say what W varies by given S.")
    return spread
