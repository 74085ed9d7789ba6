"""The calibrated error of a law: per context and feature, as D_t, as a table and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import Band
from pulse_pyro.base import Checks, FittedLaw, Verdict, picture
from pulse_pyro.calibration.targets import Targets
from pulse_pyro.data.history import History, Source, as_history, context_rows, series_of
from pulse_pyro.radius import Radius, corrected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# One law bounded by one band: what both give at any context.


CONTEXTS = 1_000_000  # a calibration may be asked for, in all, before Monte Carlo failures add up
POLICY_DRAWS = 256  # Monte Carlo draws a policy uses at least
MC_SHARE = 0.05  # of the allowed failures, given to Monte Carlo error where there is any


class Budget(NamedTuple):
    """The pieces of a bound, (n, q), and what is inside the domain, (n,)."""

    centre: Float2
    half: Float2
    predicted: Float2
    monte_carlo: Float2
    inside: Bool

    @property
    def total(self) -> Float2:
        """R + |m - mu_p^| + Monte Carlo error."""
        return self.half + np.abs(self.centre - self.predicted) + self.monte_carlo


@dataclass(frozen=True, eq=False)
class Part:
    """A law, the band of a reference fit p0 on other rows, and how errors reach the features.

    band : of E[target | x]. failures : allowed probability for Monte Carlo error, 0 if exact.
    size, seed : Monte Carlo draws where the law's mean is not closed form.
    """

    law: FittedLaw
    band: Band
    targets: Targets
    failures: float
    size: int
    seed: int

    def budget(self, source: Source) -> Budget:
        """Evaluate band and law at the rows of an archive, or of s (batch, time, s_dim).

        NaN where x is.
        """
        x, _ = context_rows(source, self.law.summary, self.law.schema, "Calibration")
        values = self.band.at(x)
        rng = stream(self.seed, "calibration")
        predicted, mcse = self.targets.predicted(self.law(source), self.size, rng)
        # two Monte Carlo errors, either sign: of this prediction, and of a policy's own with fewer
        # draws; as many contexts as a long run may ask for, however they are split into calls
        count = 4.0 * CONTEXTS * mcse.shape[-1] * self.targets.features.actions
        both = 1.0 + np.sqrt(self.size / POLICY_DRAWS)
        z = both * float(stats.norm.isf(self.failures / count)) if self.failures > 0 else 0.0
        return Budget(values.centre, values.half, predicted, z * mcse, values.inside)

    def errors(self, source: Source) -> tuple[Float3, Bool]:
        """Return E (n, action, d) and inside (n,) at the rows of an archive or of series.

        Series are (batch, time, s_dim), or (batch, time, action, s_dim) with a context per action;
        then a round is inside if every action's context is.
        """
        actions = range(self.targets.features.actions)
        if isinstance(source, History) or np.ndim(source) != 4:
            return self._errors_of(source, list(actions))
        s = np.asarray(source)
        if s.shape[2] != len(actions):
            raise DataError(
                f"Calibration: s must hold a context for each of {len(actions)} actions, but its "
                f"shape is {s.shape}."
            )
        each = [self._errors_of(s[:, :, a], [a]) for a in actions]
        return (
            np.concatenate([e for e, _ in each], axis=1),
            np.all([inside for _, inside in each], axis=0),
        )

    def _errors_of(self, source: Source, actions: list[int]) -> tuple[Float3, Bool]:
        budget = self.budget(source)
        names = self.law.schema.s_names
        s = source.s if isinstance(source, History) else series_of(source, names, "Calibration")
        rows: Float2 = s.reshape(-1, len(names))
        columns = [self.targets.errors(rows, budget.total, a) for a in actions]
        return np.stack(columns, axis=1), budget.inside


@dataclass(frozen=True, eq=False)
class Calibration:
    """Bounds E_{t,a,j} >= |E[Phi_j | S_1:t] - E_p^[Phi_j | S_1:t]| for all contexts at once.

    With probability ``level`` over the held-out units, for every context in the domain, every
    action a and every feature j,

        |phibar - phihat|_{t,a,j} <= E_{t,a,j} = |M_a| ( r(x_t) + |m(x_t) - mu_p^(S_1:t)| + mc )

    with m and r the centre and half-width of a uniform band of a reference fit and mc the Monte
    Carlo error of mu_p^ (0 where that is closed form), pointwise in the context; the supremum is
    only a summary, see ``table``. The linear band speaks of as many contexts at once as its domain
    says (1,000, unless critical="scheffe"), not of every one.

    Attributes
    ----------
    parts : the law and its band; two of each after cross-fitting, whose errors are averaged.
    level, mode, seed, law_id : nominal probability; split, all or crossfit; provenance.
    contexts : held-out units whose rows the summaries below are taken over.
    error : (rows, action, d) E there; NaN where the summary is not complete.
    inside : (rows,) which of them lie in the domain.
    noise_sd : per part, (q,) sd of what the reference fit leaves of each target.
    checks : what was checked on the way; a failed lack-of-fit test voids the guarantee.
    why : why this band.

    Not covered: contexts outside the domain (their bound is widened, on the assumption that the
    truth is no steeper there), E[W | S_1:t] that depends on more of S than the summary (tested, not
    proved), online contexts that follow another law than the archive's.
    """

    parts: tuple[Part, ...]
    level: float
    mode: str
    seed: int
    law_id: str
    contexts: History
    error: Float3
    inside: Bool
    noise_sd: tuple[Float1, ...]
    checks: Checks
    why: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", Checks(self.checks))  # any sequence of them will do

    def error_at(self, s: Source) -> Float4:
        """Return E_{t,a,j}, (batch, time, action, d), at contexts s.

        Of an archive, (rows, action, d).

        s : (batch, time, s_dim), each series from its beginning or with the lags the summary needs;
        or (batch, time, action, s_dim) with a context per action; or a History. Exactly 0 where Phi
        does not involve w; NaN where an input of the summary is not seen: no band can speak there.
        """
        return self._mean(s)[0]

    def inside_at(self, s: Source) -> Bool:
        """Tell which contexts lie in the domain of the band, (batch, time); of an archive (rows,).

        With a context per action, a round is inside if every action's context is.
        """
        return self._mean(s)[1]

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
    ) -> float:
        """Return C for :func:`robust`: what all errors of a run of so many rounds add up to.

        C = rounds (m + t sd sqrt(1 + 1/n)), m and sd over the n series of max_a e_{t,a} averaged
        over each, t the ``level`` quantile of Student's t with n - 1 degrees of freedom.

        Parameters
        ----------
        s : (batch, time, s_dim) contexts like those to come, several series; by default the
            held-out ones, whose errors are known already.
        rounds : T, rewards that will be learned from. theta_bound, theta_bounds : as in
            :meth:`reward_error`. level : of the bound on one further series' mean.

        Not covered: series of another law, or much shorter than these (their mean varies more),
        rounds with an input that is not seen, and means far from normal. The bound on the errors
        themselves holds with the calibration's own level, on top.
        """
        history = self.contexts if s is None else as_history(s, self.parts[0].law.schema)
        error = self.error if s is None else self.error_at(history)
        worst = reward_bound(error, theta_bound, theta_bounds).max(-1)
        known = np.isfinite(worst)
        counts = history.unit_sums(known.astype(np.float64))
        if (counts > 0).sum() < 2:
            raise DataError(
                f"budget: two series at least must have a complete context, {(counts > 0).sum()} "
                f"of {len(counts)} have; pass s (batch, time, s_dim) with several."
            )
        total = history.unit_sums(np.where(known, worst, 0.0))
        mean = total[counts > 0] / counts[counts > 0]
        n, most = len(mean), share(level, "budget: level")
        margin = float(stats.t.ppf(most, n - 1) * mean.std(ddof=1) * np.sqrt(1.0 + 1.0 / n))
        return whole(rounds, "budget: rounds", 1) * float(mean.mean() + max(margin, 0.0))

    def radius(self, *, sigma: float, delta: float = 0.05, theta_bound: float = 1.0) -> Radius:
        """Return the corrected radius, to be played with the errors of :meth:`reward_error`.

        theta* is in the ball at all times with probability >= 1 - delta - (1 - level).
        """
        return corrected(sigma=sigma, delta=delta, theta_bound=theta_bound)

    @property
    def bound(self) -> Float1:
        """D_t = max over actions and features of E^2 at the complete held-out contexts, (n,)."""
        worst = np.max(self.error**2, axis=(1, 2))
        out: Float1 = worst[np.isfinite(worst)]
        return out

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the checks."""
        return self.checks.verdict

    @property
    def table(self) -> DataFrame:
        """One line per target: band, critical value, mean pieces of the bound, its supremum."""
        import pandas as pd

        rows = []
        for part in self.parts:
            budget = part.budget(self.contexts)
            seen = budget.inside if budget.inside.any() else np.isfinite(budget.half).all(-1)
            for j, name in enumerate(part.band.y_names):
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
        return float(1.0 - self.inside[complete].mean())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the band of the first target with the law's own mean."""
        return picture("band_plot")(self, ax=ax)

    def plot_budget(self, ax: Axes | None = None) -> Axes:
        """Draw the bound of the first target over contexts, split into its pieces."""
        return picture("budget_plot")(self, ax=ax)

    def _mean(self, s: Source) -> tuple[Float4, Bool]:
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

    def __repr__(self) -> str:
        band, worst = self.parts[0].band, self.checks.worst(4)
        worst_feature = np.max(self.error**2, axis=(1, 2))
        inside = worst_feature[self.inside & np.isfinite(worst_feature)]
        d = inside if len(inside) else self.bound
        return "\n".join(
            [
                f"Calibration: {self.verdict}; {100 * self.level:.4g}% at once over the domain "
                f"({self.mode})",
                f"  D_t in the domain: mean {d.mean():.3g}, largest {d.max():.3g}, sqrt(D_t) mean "
                f"{np.sqrt(d).mean():.3g} over {len(d)} contexts; {self.outside_share:.1%} outside",
                f"  band: {band.kind} ({self.why}), over {band.shape.domain}",
                f"  from {band.rows} rows of {band.units} units; law {self.law_id}",
                *(f"  {c.verdict:4} {c.name}: {c.value:.3g}. {c.text}" for c in worst),
            ]
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(float_format='{:.4g}'.format)}"


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
