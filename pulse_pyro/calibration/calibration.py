"""The calibrated error of a law: a ladder of claims, per context and feature, as D_t."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from pulse_pyro._core.arrays import (
    Bool,
    Float,
    Float1,
    Float2,
    Float3,
    Float4,
    positive,
    share,
    whole,
)
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro.base import Checks, Follower, Verdict, picture
from pulse_pyro.calibration.part import Part
from pulse_pyro.calibration.rung import Rung
from pulse_pyro.calibration.targets import MissingTargets, Targets
from pulse_pyro.data.history import History, Source, as_history
from pulse_pyro.features import Features
from pulse_pyro.radius import Radius, corrected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

UNIFORM, FORECAST_RUNG, GROUPS, FREE = "uniform", "forecast", "groups", "free"
NO_ERRORS = (
    "this calibration has no error at single contexts, which a policy needs; its strongest claim "
    "is another: {claim}"
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How wrong a law can be: a ladder of claims, from every context to the average forecast.

    ``rungs`` holds them, strongest first, each at its own ``level``; ``standing`` is the highest
    that stands and ``claim`` its sentence. Where there is a band (``parts``), for every context in
    its domain, every action a and every feature j,

        |phibar - phihat|_{t,a,j} <= E_{t,a,j} = |M_a| ( r(z_t) + |m(z_t) - mu_p^(S_1:t)| + mc )

    with m and r its centre and half-width, z_t its inputs, mc the Monte Carlo error of mu_p^ (0
    where that is closed form), pointwise in the context; that is what policies use. The linear band
    speaks of as many contexts at once as its domain says (1,000, unless critical="scheffe").

    Attributes
    ----------
    targets : what the law's error is an error of, and how it reaches Phi.
    parts : the law and its band; two of each after cross-fitting, whose errors are averaged; none
        where no band is to be had.
    rungs : uniform, forecast, groups, average, free.
    level, mode, seed, law_id : nominal probability of each claim (not of all of them together);
        split, all or crossfit; provenance.
    contexts : held-out units whose rows the summaries below are taken over.
    error : (rows, action, d) E there; NaN where an input is not seen, or without a band. Where
        :attr:`usable` is False it bounds nothing, and nothing here states it.
    inside : (rows,) which of them lie in the domain.
    noise_sd : per part, (q,) sd of what the band's centre leaves of each target.
    spread : (q,) sd of each target over the held-out rows, in which sizes of rungs are told.
    why : why this band, or why none.

    Not covered: contexts outside the domain (their bound is widened, on the assumption that the
    truth is no steeper there), what a conditional rung rests on, online contexts that follow
    another law than the archive's.
    """

    targets: Targets
    parts: tuple[Part, ...]
    rungs: tuple[Rung, ...]
    level: float
    mode: str
    seed: int
    law_id: str
    contexts: History
    error: Float3
    inside: Bool
    noise_sd: tuple[Float1, ...]
    spread: Float1
    why: str

    def rung(self, name: str) -> Rung:
        """Return a rung by name."""
        for rung in self.rungs:
            if rung.name == name:
                return rung
        names = [rung.name for rung in self.rungs]
        raise SettingError(f"Calibration: there is no rung {name!r}{nearest(str(name), names)}")

    @property
    def standing(self) -> Rung:
        """The highest rung that stands; the free line, whatever it says, if no other does."""
        stands = [rung for rung in self.rungs if rung.verdict == "stands"]
        return stands[0] if stands else self.rungs[-1]

    @property
    def claim(self) -> str:
        """The standing rung's claim, one sentence that a reviewer can quote."""
        return self.standing.claim

    @property
    def feeds(self) -> Rung | None:
        """The rung whose errors policies play with; None where there is no band.

        The uniform one if it holds, else the forecast's where its band is given z. A rung that
        fails still feeds a policy, which then calls itself a heuristic.
        """
        if not self.parts:
            return None
        uniform = self.rung(UNIFORM)
        given_z = self.rung(FORECAST_RUNG)
        return given_z if self._fed_by(given_z) and not uniform.holds else uniform

    @property
    def usable(self) -> bool:
        """Whether there are errors at single contexts, and the rung they come from holds."""
        return self.feeds is not None and self.feeds.holds

    @property
    def checks(self) -> Checks:
        """What was checked on the way, of every rung."""
        return Checks(check for rung in self.rungs for check in rung.checks)

    @property
    def features(self) -> Features:
        """Phi."""
        return self.targets.features

    def error_at(self, s: Source, rung: str | None = None) -> Float4:
        """Return E_{t,a,j}, (batch, time, action, d), at contexts s.

        Of an archive, (rows, action, d).

        s : (batch, time, s_dim), each series from its beginning or with the lags the summary needs;
        or (batch, time, action, s_dim) with a context per action; or a History. Exactly 0 where Phi
        does not involve w; NaN where an input of the band is not seen: no band can speak there.
        rung : "uniform" or "forecast", which must hold; by default the one that :attr:`feeds`
        policies. Where :attr:`usable` is False the numbers bound nothing: policies that play with
        them call themselves heuristics.
        """
        if rung is not None:
            self._need(rung)
        return self._mean(s)[0]

    def errors(self, rung: str | None = None, *, theta_bound: float = 1.0) -> CalibratedErrors:
        """Return e_{t,a} for a policy that decides one round at a time.

        rung : as in :meth:`error_at`. theta_bound : S >= ||theta*||.
        """
        if rung is not None:
            self._need(rung)
        return CalibratedErrors(self, theta_bound)

    def _need(self, name: str) -> None:
        """Refuse a rung that has no errors at single contexts, or whose claim does not hold."""
        wanted = self.rung(name)
        if name not in (UNIFORM, FORECAST_RUNG) or (wanted.holds and not self._fed_by(wanted)):
            hint = (
                " Such errors need a band given all that Phi sees, at most three numbers: "
                "calibrate(..., inputs='forecast'); with more, or where that band fails a check, "
                "reliability is all there is."
                if name == FORECAST_RUNG
                else ""
            )
            raise SettingError(
                f"Calibration: rung {name!r} has no errors at single contexts here; its claim is: "
                f"{wanted.claim}{hint}"
            )
        if not wanted.holds:
            raise SettingError(f"Calibration: rung {name!r} does not hold. {wanted.claim}")

    def _fed_by(self, rung: Rung) -> bool:
        """Tell whether a rung says whom its errors compare a policy with, and there are any."""
        return bool(self.parts) and rung.holds and bool(rung.benchmark)

    def inside_at(self, s: Source) -> Bool:
        """Tell which contexts lie in the domain of the band, (batch, time); of an archive (rows,).

        With a context per action, a round is inside if every action's context is. Without a band
        there is no domain, and nothing is inside.
        """
        if not self.parts:
            return np.zeros(len(s.s) if isinstance(s, History) else np.shape(s)[:2], np.bool_)
        inside = self._mean(s)[1]
        near = np.all([part.near(s) for part in self.parts], axis=0)
        return np.asarray(inside & near.reshape(inside.shape))

    def reward_error(
        self, s: Source, *, theta_bound: float = 1.0, theta_bounds: ArrayLike | None = None
    ) -> Float3:
        """Return e_{t,a} >= |theta*'(phibar - phihat)|, (batch, time, action).

        e = S sqrt(sum_j E_j^2), S = ``theta_bound`` >= ||theta*||; with coordinate bounds
        ``theta_bounds`` (d,) >= |theta*_j| the smaller of that and sum_j c_j E_j.
        """
        return reward_bound(self.error_at(s), theta_bound, theta_bounds)

    def budget(
        self,
        s: Source | None = None,
        *,
        rounds: int,
        theta_bound: float = 1.0,
        theta_bounds: ArrayLike | None = None,
        level: float = 0.95,
        rung: str | None = None,
    ) -> float:
        """Return C for :func:`robust`: what all errors of a run of so many rounds add up to.

        C = rounds (m + t sd sqrt(1 + 1/n)), m and sd over the n series of max_a e_{t,a} averaged
        over each, t the ``level`` quantile of Student's t with n - 1 degrees of freedom. Of a rung
        that bounds the root mean square b_j of the error delta_j of target j over contexts

            C = rounds sum_j b_j sqrt(K_j),  K_j like m + t sd sqrt(1 + 1/n), of max_a |M_aj(s_t)|^2

        (q targets, 1 - (1 - level) / q in place of level), |M_aj| what an error of 1 in target j
        moves the reward of action a by at most: S ||M_aj||, or by ``theta_bounds`` if that is less.
        By Cauchy-Schwarz E[|M| |delta|] <= rms(M) rms(delta), however the two go together.

        Parameters
        ----------
        s : (batch, time, s_dim) contexts like those to come, several series; by default the
            held-out ones, whose errors are known already.
        rounds : T, rewards that will be learned from. theta_bound, theta_bounds : as in
            :meth:`reward_error`. level : of the bound on one further series' mean.
        rung : None: errors context by context, of the band. "free" or "average": from that rung's
            root mean square, which needs no band. "average" charges only the part of the error
            that its k functions see, and is refused where k = 1. "groups" is refused: errors of
            either sign may cancel in a mean, of all rows or of a group, and a C must count both.

        Not covered: series of another law, or much shorter than these (their mean varies more),
        rounds with an input that is not seen, and means far from normal. Of a rung the errors are
        bounded on average over rows of the archive: C is then a bound on what a run adds up to on
        average, with room for how |M| varies between runs, but not for a run in which the law does
        worse than it did on average, nor for series whose length goes with their contexts. The
        bound on the errors themselves holds with the calibration's own level, on top.
        """
        history = self.contexts if s is None else as_history(s, self.contexts.schema)
        many, most = whole(rounds, "budget: rounds", 1), share(level, "budget: level")
        if rung is not None:
            wanted = self.rung(rung)
            return many * self._on_average(wanted, history, theta_bound, theta_bounds, most)
        self.require_usable("budget", " Ask for a rung that stands: budget(..., rung='free').")
        error = self.error if s is None else self.error_at(history)
        return many * _one_more(history, reward_bound(error, theta_bound, theta_bounds), most)

    def _on_average(
        self,
        rung: Rung,
        history: History,
        theta_bound: float,
        theta_bounds: ArrayLike | None,
        level: float,
    ) -> float:
        """Return sum_j b_j sqrt(K_j), see :meth:`budget`: the mean of max_a e_{t,a} over a run."""
        k = getattr(rung.details, "k", None)
        if rung.name == GROUPS or (k is not None and k[-1] == 1):
            raise SettingError(
                f"budget: rung {rung.name!r} bounds mean errors here, in which errors of either "
                "sign cancel; a budget needs the mean of their sizes: rung='free' bounds that, and "
                "so does 'average' where it looks at more than the mean."
            )
        bound = getattr(rung.details, "largest_bound", None)
        if not rung.holds or bound is None or not np.isfinite(bound).all():
            raise SettingError(
                f"budget: rung {rung.name!r} has no bound to add up here. {rung.claim}"
            )
        each = 1.0 - (1.0 - level) / len(bound)
        actions = range(self.features.actions)
        total = 0.0
        for j, b in enumerate(bound):
            only = np.zeros((len(history.s), len(bound)))
            only[:, j] = 1.0
            moved = np.stack([self.targets.errors(history.s, only, a) for a in actions], axis=1)
            reach = reward_bound(moved, theta_bound, theta_bounds)
            total += float(b) * float(np.sqrt(_one_more(history, reach**2, each)))
        return total

    def radius(
        self,
        *,
        sigma: float,
        delta: float = 0.05,
        theta_bound: float = 1.0,
        rung: str | None = None,
    ) -> Radius:
        """Return the corrected radius, to be played with the errors of :meth:`reward_error`.

        theta* is in the ball at all times with probability >= 1 - delta - (1 - level). rung : as in
        :meth:`error_at`; the radius says whom its rung compares a policy with.
        """
        if rung is not None:
            self._need(rung)
        plain = corrected(sigma=sigma, delta=delta, theta_bound=theta_bound)
        fed = self.feeds if rung is None else self.rung(rung)
        return replace(plain, benchmark="" if fed is None else fed.benchmark)

    @property
    def bound(self) -> Float1:
        """D_t = max over actions and features of E^2 at the complete held-out contexts, (n,).

        Only where the claim it rests on holds, :attr:`usable`.
        """
        self.require_usable("bound")
        worst = np.max(self.error**2, axis=(1, 2))
        out: Float1 = worst[np.isfinite(worst)]
        return out

    @property
    def verdict(self) -> Verdict:
        """Pass if a rung above the free line stands, warn if one holds conditionally, else fail."""
        above = [rung.verdict for rung in self.rungs if rung.name != FREE]
        return "pass" if "stands" in above else "warn" if "conditional" in above else "fail"

    @property
    def ladder(self) -> DataFrame:
        """One line per rung: verdict, size in sds of the target, whom it compares with, claim."""
        import pandas as pd

        rows = [
            {
                "rung": rung.name,
                "verdict": rung.verdict,
                "size": rung.size,
                "benchmark": rung.benchmark,
                "claim": rung.claim,
                "rests on": rung.rests_on,
                "would lift it": rung.remedy,
            }
            for rung in self.rungs
        ]
        return pd.DataFrame(rows).set_index("rung")

    @property
    def table(self) -> DataFrame:
        """One line per target: band, critical value, mean pieces of the bound, its supremum.

        Only where the claim it rests on holds, :attr:`usable`; :attr:`ladder` is for all.
        """
        import pandas as pd

        self.require_usable("table")
        rows = []
        for part in self.parts:
            budget = part.budget(self.contexts)
            seen = budget.inside if budget.inside.any() else np.isfinite(budget.half).all(-1)
            for j, name in enumerate(part.targets.names):
                half = budget.half[seen][:, j]
                gap = np.abs(budget.centre - budget.predicted)[seen][:, j]
                total = budget.total[seen][:, j]
                rows.append(
                    {
                        "target": name,
                        "band": part.band.kind,
                        "noise": part.band.noise,
                        "critical": part.band.critical[j],
                        "half-width mean": half.mean(),
                        "difference mean": gap.mean(),
                        "Monte Carlo mean": budget.monte_carlo[seen][:, j].mean(),
                        "bound mean": total.mean(),
                        "bound sup": total.max(),
                        "bound^2 mean": (total**2).mean(),
                    }
                )
        return pd.DataFrame(rows).set_index("target")

    @property
    def checks_table(self) -> DataFrame:
        """One line per check."""
        return self.checks.table

    @property
    def outside_share(self) -> float:
        """Share of the complete held-out contexts outside the domain."""
        complete = np.isfinite(self.error).all((1, 2))
        return float(1.0 - self.inside[complete].mean()) if complete.any() else 1.0

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean outcome of the first target against its forecast, with its band."""
        return picture("reliability_plot")(self, ax=ax)

    def plot_groups(self, ax: Axes | None = None) -> Axes:
        """Draw the mean error in each declared group, with its band."""
        return picture("groups_plot")(self, ax=ax)

    def plot_band(self, ax: Axes | None = None) -> Axes:
        """Draw the band of the first target with the law's own mean."""
        return picture("band_plot")(self, ax=ax)

    def plot_budget(self, ax: Axes | None = None) -> Axes:
        """Draw the bound of the first target over contexts, split into its pieces."""
        return picture("budget_plot")(self, ax=ax)

    def _mean(self, s: Source) -> tuple[Float4, Bool]:
        self._need_band("error_at")
        if isinstance(s, History):
            return self._rows(s)
        try:
            contexts: Float = np.array(s, dtype=np.float64)
        except (TypeError, ValueError) as cause:
            raise DataError("Calibration: s must be an array of numbers.") from cause
        contexts[~np.isfinite(contexts)] = np.nan  # infinite is not seen
        error, inside = self._rows(contexts)
        lead = contexts.shape[:2]
        return error.reshape(*lead, *error.shape[1:]), inside.reshape(lead)

    def _rows(self, source: Source) -> tuple[Float3, Bool]:
        found = [part.errors(source) for part in self.parts]
        return (
            np.mean([error for error, _ in found], axis=0),
            np.all([inside for _, inside in found], axis=0),
        )

    def _need_band(self, where: str) -> None:
        if not self.parts:
            raise SettingError(f"{where}: {NO_ERRORS.format(claim=self.claim)} {self.why}")

    def require_usable(self, where: str, hint: str = "") -> None:
        """Refuse numbers of a band whose claim failed."""
        self._need_band(where)
        if not self.usable:
            raise SettingError(
                f"{where}: the errors of this band bound nothing: {self.rung(UNIFORM).claim} What "
                f"can be said instead: {self.claim}{hint}"
            )

    def __repr__(self) -> str:
        lines = [f"Calibration: {self.claim}"]
        for rung in self.rungs:
            size = f"{rung.size:.3g} sd" if rung.holds else ""
            if self.usable and rung is self.feeds:
                size += f"; feeds policies, against {rung.benchmark}"
            lines.append(f"  {rung.name:9} {rung.verdict:11} {size}".rstrip())
            if rung.verdict == "conditional":
                lines.append(f"    if {rung.rests_on}")
            elif rung.verdict == "fails":
                lines.append(f"    {rung.claim}")
        if self.parts:
            band = self.parts[0].band
            lines.append(f"  band: {band.kind} ({self.why}), over {band.shape.domain}")
            lines.append(f"  from {band.rows} rows of {band.units} clusters; law {self.law_id}")
        else:
            lines.append(f"  no band: {self.why}")
        worst = [check for check in self.checks.worst(4) if check.verdict in ("warn", "fail")]
        lines += [f"  {c.verdict:4} {c.name}: {c.value:.3g}. {c.text}" for c in worst]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.ladder.to_html(float_format='{:.4g}'.format)}"


def reward_bound(
    error: Float4, theta_bound: float = 1.0, theta_bounds: ArrayLike | None = None
) -> Float3:
    """Return e_{t,a} from E_{t,a,j}, (batch, time, action, d); see ``Calibration.reward_error``."""
    size = positive(theta_bound, "reward_error: theta_bound")
    e: Float3 = size * np.sqrt((error**2).sum(-1))
    if theta_bounds is None:
        return e
    try:
        bounds = np.asarray(theta_bounds, dtype=np.float64)
    except (TypeError, ValueError):
        bounds = np.empty(0)
    if bounds.shape != (error.shape[-1],) or not (bounds >= 0).all():
        raise SettingError(
            f"reward_error: theta_bounds must be {error.shape[-1]} numbers >= 0, one per feature, "
            f"but got {theta_bounds!r}."
        )
    # a coordinate without error costs nothing, even where its bound is infinite
    apart = np.multiply(error, bounds, where=error != 0, out=np.zeros_like(error))
    smaller: Float3 = np.minimum(e, apart.sum(-1))
    return smaller


def _one_more(history: History, values: Float2, level: float) -> float:
    """Return what the mean over one more series of max_a values (rows, action) is at most."""
    worst = values.max(-1)
    known = np.isfinite(worst)
    counts = history.unit_sums(known.astype(np.float64))
    if (counts > 0).sum() < 2:
        raise DataError(
            f"budget: two series at least must have a complete context, {(counts > 0).sum()} "
            f"of {len(counts)} have; pass s (batch, time, s_dim) with several."
        )
    total = history.unit_sums(np.where(known, worst, 0.0))
    mean = total[counts > 0] / counts[counts > 0]
    n = len(mean)
    margin = float(stats.t.ppf(level, n - 1) * mean.std(ddof=1) * np.sqrt(1.0 + 1.0 / n))
    return float(mean.mean() + max(margin, 0.0))


# Calibrated errors for one decision at a time.


@dataclass(frozen=True, eq=False)
class CalibratedErrors:
    """e_{t,a} = S sqrt(sum_j E_{t,a,j}^2), from a calibration of the policy's law.

    theta_bound : S >= ||theta*||. theta_bounds : (d,) >= |theta*_j|, if known. unseen : e of rounds
    in which an input of the law is not seen, a bound of your own: no band can speak there. Without
    one such rounds are refused.
    """

    calibration: Calibration
    theta_bound: float = 1.0
    theta_bounds: ArrayLike | None = None
    unseen: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.calibration, Calibration):
            raise SettingError(f"CalibratedErrors: {self.calibration!r} is no Calibration.")
        self.calibration._need_band("CalibratedErrors")
        error = self.calibration.error
        reward_bound(np.zeros((1, *error.shape[1:])), self.theta_bound, self.theta_bounds)
        if self.unseen is not None:
            positive(self.unseen, "CalibratedErrors: unseen", zero=True)

    def at(self, past: list[Follower]) -> Float1:
        """Return e_{t,a}, (K,); NaN where an input is not seen: no band can speak there."""
        if len(self.calibration.parts) != 1:
            raise SettingError("CalibratedErrors: a cross-fitted calibration speaks of two laws.")
        each = [self._errors(follower) for follower in past]
        # with a context per arm, each arm's own row
        error = each[0] if len(each) == 1 else np.stack([e[a] for a, e in enumerate(each)])
        bound: Float1 = reward_bound(error[None, None], self.theta_bound, self.theta_bounds)[0, 0]
        return bound if self.unseen is None else np.where(np.isnan(bound), self.unseen, bound)

    def _errors(self, follower: Follower) -> Float2:
        """Return E_{t,a,j}, (K, d), for the newest context of a series."""
        part = self.calibration.parts[0]
        if isinstance(part.targets, MissingTargets) and follower.conditional.exact:
            eps, s = part.missing_error(follower)[None], follower.now[None]
            actions = range(part.targets.features.actions)
            return np.concatenate([part.targets.errors(s, eps, a) for a in actions])
        rows = follower.state().get("rows")
        if rows is None:
            raise SettingError(
                "CalibratedErrors: a law with memory needs Phi affine in w to be bounded online."
            )
        found: Float2 = part.errors(rows[None])[0][-1]
        return found
