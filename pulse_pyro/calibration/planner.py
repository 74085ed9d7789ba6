"""How much history until imputation no longer dominates regret? From nested parts of an archive."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Int, whole
from pulse_pyro._core.as_json import records
from pulse_pyro._core.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import Check, UnfittedLaw, picture
from pulse_pyro.calibration.calibration import Calibration, reward_bound
from pulse_pyro.calibration.recipe import Recipe
from pulse_pyro.calibration.stakes import Parts, Stakes
from pulse_pyro.data.history import History
from pulse_pyro.features import Features, expected_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# A power law of the size of the archive, log y = c - rate log n, and when it meets a target.


FEWEST = 3  # sizes: two points lie on every line


class Crossing(NamedTuple):
    """Where a decay meets a target: at n, with the interval its band gives; infinite if never."""

    n: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Decay:
    """Straight lines through log y over log n, one an ordering, and what they agree on.

    Attributes
    ----------
    units : (sizes,) n. values : (ordering, sizes) y > 0.
    lines : (ordering, 2) height at ``centre`` and slope of each ordering's least-squares line.
    centre : mean of log n.
    level : of every interval here, pointwise.

    The line is the mean over orderings, which is least squares on all points. Its band is a t
    interval over orderings (orderings - 1 degrees of freedom): the points of one ordering may
    depend on each other in any way, because its subsets are nested.

    Not covered: orderings share units, all of them at the full size, so the band shows how far the
    order and the split of this archive matter, and only in part how another archive would differ.
    In 60 archives from a linear law, eight orderings, 95 % intervals of the rate held in 58, and
    bands at 4 n in 58 where splits differ (mode "split"), in 48 where they do not (mode "all":
    there, take the band for two thirds of what it should be). Nor that log y is straight in log n,
    within the sizes (see ``flattening``) and beyond them.
    """

    units: Float1
    values: Float2
    lines: Float2
    centre: float
    level: float

    @property
    def rate(self) -> float:
        """How fast y falls: y ~ n^-rate."""
        return -float(self.lines[:, 1].mean())

    @property
    def rate_interval(self) -> tuple[float, float]:
        """The t interval of the rate."""
        half = self._t * float(np.sqrt(self._cov[1, 1]))
        return self.rate - half, self.rate + half

    def at(self, n: Float | float) -> Float2:
        """Return lower end, line and upper end at n, (3, ...)."""
        z = np.log(np.asarray(n, dtype=np.float64)) - self.centre
        height, slope = self.lines.mean(0)
        cov = self._cov
        se = np.sqrt(np.maximum(cov[0, 0] + 2.0 * cov[0, 1] * z + cov[1, 1] * z**2, 0.0))
        middle = height + slope * z
        out: Float2 = np.exp(np.stack([middle - self._t * se, middle, middle + self._t * se]))
        return out

    def crossing(self, target: float) -> Crossing:
        """Return the smallest n at which y is at most ``target``, with an interval.

        The interval holds every n whose band contains the target (Fieller): the roots of
        (h - log target + b z)^2 = t^2 Var(h + b z), z = log n - centre. Where the slope's own
        interval contains 0 there is no upper end; where the target is inside the band at the centre
        as well, no lower one either.
        """
        (height, slope), cov, t2 = self.lines.mean(0), self._cov, self._t**2
        above = height - np.log(target)
        point = -above / slope if slope < 0 else np.inf if above > 0 else -np.inf
        a = slope**2 - t2 * cov[1, 1]
        b = above * slope - t2 * cov[0, 1]
        c = above**2 - t2 * cov[0, 0]
        root = np.sqrt(max(b * b - a * c, 0.0))
        if a > 0 and slope < 0:
            low, high = (-b - root) / a, (-b + root) / a
        elif a > 0:  # it grows beyond doubt
            low = high = point
        elif c <= 0:
            low, high = -np.inf, np.inf
        else:
            # two branches, before and after the data; 2c / 2(-b -+ root) is finite where a is 0
            ends = [c / (-b + s * root) if -b + s * root != 0 else s * np.inf for s in (1.0, -1.0)]
            low, high = (max(ends), np.inf) if above > 0 else (-np.inf, min(ends))
        return Crossing(*(_size(z + self.centre) for z in (point, low, high)))

    @property
    def flattening(self) -> float:
        """One-sided p-value of "the decay does not flatten out", from each ordering's bend."""
        from scipy import stats

        bend = np.polyfit(np.log(self.units), np.log(self.values).T, 2)[0]
        se = bend.std(ddof=1) / np.sqrt(len(bend))
        return float(stats.t.sf(bend.mean() / max(se, 1e-300), len(bend) - 1))

    @property
    def _t(self) -> float:
        from scipy import stats

        return float(stats.t.ppf((1.0 + self.level) / 2.0, len(self.lines) - 1))

    @property
    def _cov(self) -> Float2:
        out: Float2 = np.cov(self.lines.T) / len(self.lines)
        return out


def fit_decay(units: Float1, values: Float2, *, level: float = 0.95) -> Decay:
    """Fit log y = c - rate log n to y (ordering, sizes) at n (sizes,), ordering by ordering."""
    n, y = np.asarray(units, dtype=np.float64), np.asarray(values, dtype=np.float64)
    check_level(level, "fit_decay")
    if n.ndim != 1 or len(np.unique(n)) < FEWEST or y.ndim != 2 or y.shape[1] != len(n):
        raise DataError(
            f"fit_decay: values must be (orderings, sizes) at {FEWEST} distinct sizes or more, but "
            "got "
            f"{y.shape} for {len(np.unique(n))} sizes."
        )
    if len(y) < 2 or not (np.isfinite(y) & (y > 0)).all() or not (n > 0).all():
        raise DataError("fit_decay: two orderings or more of finite values > 0 are needed.")
    x = np.log(n)
    centre = float(x.mean())
    slope, height = np.polyfit(x - centre, np.log(y).T, 1)
    return Decay(n, y, np.stack([height, slope], axis=1), centre, level)


def _size(log_n: float) -> float:
    """Return e^log_n, infinite rather than an overflow."""
    return float(np.exp(log_n)) if log_n < 700 else float("inf")


# The answer of the planner: a verdict in words, the decay behind it, a table and a picture.


FARTHEST = 1000.0  # times the archive: beyond this a straight line is no forecast
FLAT = 0.05  # p-value below which the decay is said to flatten out

TENFOLD = 10.0  # an interval of needed units that is wider tells nothing

Answer = Literal["already there", "reachable", "not reachable", "not known"]


@dataclass(frozen=True, eq=False)
class Plan:
    """How much history until imputation no longer dominates regret at horizon T.

    Attributes
    ----------
    stakes, recipe, seed : what was asked; the recipe has the band that was settled on.
    rows : (sizes,) rows of the archive at each size, mean over orderings.
    mean_e : (ordering, sizes) plain mean of e, beside the root mean square the bound needs.
    decay, error_decay : of the root mean D, and of e, see :class:`Decay`.
    dim, norm : d and B, the largest norm of the expected features at the contexts.
    contexts, bounded : how many contexts every size was judged at, and how many have a bound from
        the whole archive, which sets the level of both curves.
    monte_carlo : share of the bound, at the largest size, that is Monte Carlo error of the law's
        expectations (0 where they are closed form): no history makes it smaller.
    worst : the worst check of the first calibration at the largest size.
    left_out : sizes that could not be judged, and why, a sentence each.
    rungs : the ladder at every size: (rung, size in sds at each size of the archive), NaN where it
        does not hold.

    See :func:`plan` for the formulas, and for what a plan does not cover.
    """

    stakes: Stakes
    recipe: Recipe
    seed: int
    rows: Float1
    mean_e: Float2
    decay: Decay
    error_decay: Decay
    dim: int
    norm: float
    contexts: int
    bounded: int
    monte_carlo: float
    worst: Check
    left_out: tuple[str, ...]
    rungs: tuple[tuple[str, tuple[float, ...]], ...]

    @property
    def clusters(self) -> DataFrame:
        """One line per rung: its size now, how it falls, and the clusters at which it halves.

        The rate is a straight line through the sizes in logarithms; a rung that does not hold at
        two sizes or more has none.
        """
        import pandas as pd

        lines = []
        n = self.decay.units
        for name, sizes in self.rungs:
            values = np.array(sizes)
            known = np.isfinite(values) & (values > 0)
            rate = float("nan")
            if known.sum() >= 2:
                rate = -float(np.polyfit(np.log(n[known]), np.log(values[known]), 1)[0])
            halves = n[-1] * 2.0 ** (1.0 / rate) if rate > 0 and known[-1] else float("nan")
            lines.append(
                {
                    "rung": name,
                    "clusters now": int(n[-1]),
                    "size now, sds": float(values[-1]),
                    "falls like n to the minus": rate,
                    "clusters for half": halves,
                }
            )
        return pd.DataFrame(lines).set_index("rung")

    @property
    def units(self) -> int:
        """The largest size, in units."""
        return int(self.decay.units[-1])

    @property
    def e(self) -> float:
        """The error e at the largest size, on the fitted line."""
        return float(self.error_decay.at(self.units)[1])

    @property
    def target(self) -> float:
        """e*: the error at which the imputation part equals the statistical part."""
        return self.stakes.balance(dim=self.dim, norm=self.norm)

    @property
    def parts(self) -> Parts:
        """The bound at the largest size: statistical and imputation part."""
        return self.stakes.parts(self.e, dim=self.dim, norm=self.norm)

    @property
    def needed(self) -> Crossing:
        """Units at which e(n) = e*, with the interval of the band; infinite if never."""
        return self.error_decay.crossing(self.target)

    @property
    def answer(self) -> Answer:
        """Already there, reachable, not reachable or not known.

        Not reachable where even the lower end of the needed units is beyond 1,000 times the
        archive, or there is none. Not known where their interval spans more than tenfold, or n
        alone is beyond that.
        """
        if self.e <= self.target:
            return "already there"
        n, low, high = self.needed
        if low > FARTHEST * self.units:
            return "not reachable"
        return "reachable" if n <= FARTHEST * self.units and high <= TENFOLD * low else "not known"

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        n, low, high = self.needed
        where = f"at horizon {self.stakes.horizon:,}"
        share = self.parts.imputation / self.parts.statistical
        if self.answer == "already there":
            sure = high <= self.units
            doubt = "" if sure else f", though the band reaches to {_count(high)} units"
            return (
                f"already there; with {self.units:,} units imputation is {share:.2g} of the "
                f"statistical part {where}{doubt}."
            )
        if self.answer == "reachable":
            return (
                f"about {_count(n)} units until imputation no longer dominates {where} (95 % band "
                f"{_count(low)} to {_count(high)}); with {self.units:,} it is {share:.2g} times "
                "the statistical part."
            )
        if self.answer == "not known":
            return (
                f"not known {where}: by these orderings anything from {_count(low)} to "
                f"{_count(high)} units; with {self.units:,} imputation is {share:.2g} times the "
                "statistical part. More units, or more orderings, would tell."
            )
        more = self.units < low < math.inf
        least = f", {_count(low)} units at the very least" if more else ""
        return (
            f"not reachable by this rate {where}{least}; with {self.units:,} units imputation is "
            f"{share:.2g} times the statistical part: improve the law, or its summary."
        )

    @property
    def table(self) -> DataFrame:
        """One line per size; se is over orderings, of the root mean D."""
        import pandas as pd

        d = self.decay.values
        return pd.DataFrame(
            {
                "units": self.decay.units.astype(int),
                "rows": self.rows.round().astype(int),
                "root_mean_D": d.mean(0),
                "se": d.std(0, ddof=1) / np.sqrt(len(d)),
                "rms_e": self.error_decay.values.mean(0),
                "mean_e": self.mean_e.mean(0),
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw e and the root mean D over n, the fitted lines, and where e meets e*."""
        return picture("decay_plot")(self, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an end that is infinite is None."""
        method = self.recipe.method
        return {
            "verdict": self.verdict,
            "answer": self.answer,
            "needed_units": dict(zip(("n", "low", "high"), map(_finite, self.needed), strict=True)),
            "target_e": self.target,
            "e": self.e,
            "bound": self.parts._asdict(),
            "rate_sqrt_D": self.decay.rate,
            "rate_sqrt_D_interval": list(self.decay.rate_interval),
            "rate_e": self.error_decay.rate,
            "rate_e_interval": list(self.error_decay.rate_interval),
            "flattening_p": self.error_decay.flattening,
            "dim": self.dim,
            "norm": self.norm,
            "contexts": self.contexts,
            "bounded_contexts": self.bounded,
            "monte_carlo_share": self.monte_carlo,
            "orderings": len(self.decay.values),
            "band": {
                "kind": method.kind,
                "noise": method.noise,
                "level": self.recipe.level,
                "mode": self.recipe.mode,
            },
            "check": {
                "name": self.worst.name,
                "verdict": self.worst.verdict,
                "text": self.worst.text,
            },
            "stakes": asdict(self.stakes),
            "seed": self.seed,
            "sizes": records(self.table),
            "left_out": list(self.left_out),
            "rungs": records(self.clusters),
        }

    def __repr__(self) -> str:
        low, high = self.decay.rate_interval
        method, parts = self.recipe.method, self.parts
        sizes = ", ".join(f"{n:,.0f}" for n in self.decay.units)
        flat = self.error_decay.flattening
        lines = [
            f"Plan: {self.verdict}",
            f"  sqrt(D) goes like n^{-self.decay.rate:.3f} (95 % {-high:.3f} to {-low:.3f}, "
            f"{len(self.decay.values)} orderings), at {sizes} units",
            f"  e is {self.e:.3g} with {self.units:,} units; {self.target:.3g} is wanted (d = "
            f"{self.dim}, B = {self.norm:.3g}, {self.contexts:,} of {self.bounded:,} contexts)",
            f"  bound on regret: {parts.statistical:.4g} statistical + {parts.imputation:.4g} "
            f"imputation; band {method.kind}, noise by {method.noise}, mode {self.recipe.mode}",
        ]
        if parts.statistical >= 2.0 * self.stakes.horizon:
            lines.append(
                "  the statistical part alone exceeds 2 T: at this horizon the bound says "
                "nothing yet"
            )
        if self.monte_carlo > 0:
            lines.append(
                f"  {self.monte_carlo:.0%} of D's root is Monte Carlo error at "
                f"{self.units:,} units: history does not make it smaller"
            )
        if flat < FLAT:
            lines.append(
                f"  warn flattening: p = {flat:.2g}. The decay bends upwards: more units "
                "than the line says will be needed."
            )
        if self.worst.verdict in ("warn", "fail"):
            lines.append(f"  {self.worst.verdict} {self.worst.name}: {self.worst.text}")
        lines += [f"  left out: {why}" for why in self.left_out]  # one at most: three are needed
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        shown = self.table.to_html(float_format="{:.4g}".format, index=False)
        return f"<pre>{escape(repr(self))}</pre>{shown}"


def _count(n: float) -> str:
    """Write a number of units as a person would."""
    if math.isinf(n):
        return "infinitely many"
    return f"{math.ceil(n):,}" if n < 1e7 else f"{n:.0e}"


def _finite(n: float) -> float | None:
    return n if math.isfinite(n) else None


# How much history until imputation no longer dominates regret? From nested parts of an archive.


SHARES = (8, 4, 2, 1)  # the archive is divided by these
CONTEXTS = 2000  # of the archive's S the bound is averaged over
DEPENDENT = 0.01  # p-value: clustering by mistake would cost the small sizes
COMMON = 0.5  # of the contexts inside at the largest size a smaller size must have inside
SIZE = 512  # Monte Carlo draws of expected features, where they are not closed form


class Size(NamedTuple):
    """What one size gave, over orderings: D and e (ordering, context), inside (context,)."""

    units: int
    rows: float
    d: Float2
    e: Float2
    inside: Bool
    made: tuple[Calibration, ...]


def plan(
    history: History,
    law: UnfittedLaw,
    features: Features,
    *,
    stakes: Stakes,
    recipe: Recipe | None = None,
    orderings: int = 8,
    seed: int,
) -> Plan:
    """Measure how the calibrated bound falls with the size of the archive, and extrapolate.

    Parameters
    ----------
    history : the archive, n units with (S, W); where it has clusters, n counts them, and what is
        said of units below goes for clusters.
    law : not yet fitted; it is fitted anew on every subset.
    features : Phi.
    stakes : horizon, noise and size of theta*, see :class:`Stakes`.
    recipe : how to fit and calibrate; ``Recipe()`` by default.
    orderings : how often the archive is ordered anew, 2 or more; each costs four fits.
    seed : of the orderings, splits, fits and critical values.

    In each ordering the law is refitted and recalibrated on the first n/8, n/4, n/2 and n units.
    The orderings are one random order begun at evenly spaced places, so that with eight of them
    the subsets of n/8 units share none; at n only the split into fit and held-out units differs.
    All sizes are judged at the same contexts, S of up to 2,000 rows of the archive, inside the
    domain of every calibration; both curves are then lifted to what the largest size has at all of
    its contexts, the rare ones included:

        root mean D = sqrt(mean_t D_t),  e(n) = sqrt(mean_t max_a e_{t,a}^2),  e_{t,a} as in (E1).

    log of either is fitted by c - rate log n (:class:`Decay` says what its band leaves out), and n
    is enough when e(n) <= e*, where the imputation part of bound (11) equals its statistical part:
    ``Stakes.balance`` has the formula, with B the largest norm of the expected features at these
    contexts under the laws of the largest size. The kind of band is the one chosen at full size;
    its variances are by row at every size unless rows of a unit clearly depend (p < 0.01; calibrate
    itself goes by unit from 50 units on in any case, which is somewhat wider).

    Not covered: that the decay goes on beyond n as it was within it. A bias of the law that noise
    still hides stops it later (``Plan.decay.flattening`` looks for a start of that); Monte Carlo
    error, where Phi or the law's mean is not closed form, never falls (``Plan.monte_carlo``).
    Nor online contexts unlike the archive's, units longer or shorter than those of the archive, or
    whether the bound holds at all, which is for the checks of the calibration to say.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> phi = pp.terms(["1", "w*a"], 2, observed=["s"], missing=["w"])
    >>> stakes = pp.calibration.Stakes(horizon=1000, sigma=0.5)
    >>> needed = plan(history, pp.linear_lags(19), phi, stakes=stakes, orderings=2, seed=0)
    >>> print(str(needed)[:20])
    Plan: already there;
    """
    _expect(history, law, features, stakes)
    whole(orderings, "plan: orderings", 2)
    recipe = recipe or Recipe()
    contexts = _contexts(history, seed)
    whole_size = len(history.clusters)  # the units, unless they are clustered
    sizes = sorted({round(whole_size / share) for share in SHARES} - {0})
    settled, worst = _settle(recipe, law, history, features, seed)
    steps = bar(total=len(sizes) * orderings, label="plan")
    judged: list[Size] = []
    left_out: list[str] = []
    for units in sizes:
        try:
            parts = [
                history.take_clusters(part) for part in _subsets(whole_size, units, orderings, seed)
            ]
            made = []
            for o, part in enumerate(parts):
                part_seed = int(stream(seed, "plan", "ordering", o).integers(2**31))
                made.append(settled.calibrate(law, part, features, seed=part_seed))
                steps.update()
            judged.append(_judge(units, parts, made, contexts, stakes))
        except PulseError as error:
            left_out.append(f"{units} units are too few: {error}")
    steps.close()
    judged = _comparable(judged, left_out)
    if len(judged) < FEWEST:
        what = " ".join(left_out) or f"an archive of {whole_size} units has no more."
        raise DataError(
            f"plan: a decay needs {FEWEST} sizes, {len(judged)} of {len(sizes)} could be judged; "
            "bring more units, a summary with fewer inputs, mode 'all', or, if rows of a unit are "
            f"independent given the summary, noise 'rows'. {what}"
        )
    return _result(
        judged, left_out, contexts, features, stakes=stakes, recipe=settled, worst=worst, seed=seed
    )


def _expect(history: object, law: object, features: object, stakes: object) -> None:
    if not isinstance(history, History):
        raise DataError(f"plan: a History was expected, but got {type(history).__name__}.")
    if not isinstance(law, UnfittedLaw):
        raise ModelError(
            f"plan: a law that can be fitted again was expected, but got {type(law).__name__}; "
            "pass the law itself, e.g. linear_lags(19)."
        )
    if not isinstance(features, Features):
        raise SettingError(
            f"plan: Features(fn, actions, names) expected, but got {type(features).__name__}."
        )
    if not isinstance(stakes, Stakes):
        raise SettingError(
            f"plan: stakes must be Stakes(horizon=..., sigma=...), but got {type(stakes).__name__}."
        )


def _contexts(history: History, seed: int) -> History:
    """Return whole units, at random, that make up to about 2,000 rows."""
    order = stream(seed, "plan", "contexts").permutation(len(history.units))
    rows = np.cumsum(history.lengths[order])
    return history.take(order[: max(int((rows <= CONTEXTS).sum()), 1)])


def _subsets(n: int, units: int, orderings: int, seed: int) -> list[Int]:
    """Return the first units of each ordering: one random order begun at different places."""
    order = stream(seed, "plan", "order").permutation(n)
    return [np.sort(np.roll(order, -(o * n // orderings))[:units]) for o in range(orderings)]


def _settle(
    recipe: Recipe, law: UnfittedLaw, history: History, features: Features, seed: int
) -> tuple[Recipe, Check]:
    """Choose the band at full size, once: a choice that changes with n would look like a decay.

    What it leaves is tested here, once too; the worst of these checks is returned beside it.
    """
    try:
        full = recipe.calibrate(law, history, features, seed=seed)
    except PulseError as error:
        raise type(error)(
            f"plan: the whole archive of {len(history.units)} units cannot be fitted and "
            f"calibrated: {error}"
        ) from error
    uniform = full.rung("uniform")
    if not full.parts:
        raise DataError(
            f"plan: the whole archive of {len(history.units)} units cannot be fitted and "
            f"calibrated: {full.why}"
        )
    if not uniform.holds:
        raise DataError(
            f"plan: the whole archive of {len(history.units)} units gives no uniform bound, so "
            f"there is no decay to plan by. {uniform.claim} {uniform.remedy} What stands: "
            f"{full.claim}"
        )
    method, band = recipe.method, full.parts[0].band
    if full.parts[0].inputs.given_z:  # no band in all inputs was to be had
        recipe = replace(recipe, inputs=("forecast",))
    shown = [check.value for check in full.checks if check.name == "dependence within units"]
    by_row = bool(shown) and min(shown) >= DEPENDENT
    kind = band.kind if method.kind == "auto" else method.kind
    noise: Any = method.noise if method.noise != "auto" else "rows" if by_row else "units"
    settled = replace(recipe, band=replace(method, kind=kind, noise=noise, tested=False))
    return settled, uniform.checks.worst(1)[0]


def _judge(
    units: int, parts: list[History], made: list[Calibration], contexts: History, stakes: Stakes
) -> Size:
    d, e, inside = [], [], []
    for calibration in made:
        error = calibration.error_at(contexts)
        d.append(np.max(error**2, axis=(1, 2)))
        e.append(reward_bound(error, stakes.theta_bound).max(-1))
        inside.append(calibration.inside_at(contexts) & np.isfinite(error).all((1, 2)))
    rows = float(np.mean([len(part.s) for part in parts]))
    return Size(units, rows, np.stack(d), np.stack(e), np.all(inside, axis=0), tuple(made))


def _comparable(judged: list[Size], left_out: list[str]) -> list[Size]:
    """Drop sizes whose domain misses most contexts: all sizes are judged at the same ones."""
    if not judged or not judged[-1].inside.any():
        return []
    largest = judged[-1].inside
    kept = []
    for size in judged:
        common = float((size.inside & largest).sum() / largest.sum())
        if common >= COMMON:
            kept.append(size)
        else:
            left_out.append(
                f"{size.units} units are too few: their domain holds {common:.0%} of the contexts."
            )
    return kept


def _result(
    judged: list[Size],
    left_out: list[str],
    contexts: History,
    features: Features,
    *,
    stakes: Stakes,
    recipe: Recipe,
    worst: Check,
    seed: int,
) -> Plan:
    common = np.all([size.inside for size in judged], axis=0)
    units: Float1 = np.array([size.units for size in judged], dtype=np.float64)
    root_d = np.stack([np.sqrt(size.d[:, common].mean(1)) for size in judged], axis=1)
    e = np.stack([np.sqrt((size.e[:, common] ** 2).mean(1)) for size in judged], axis=1)
    # small archives have no bound at rare contexts: the decay is that at the common ones, its level
    # that at all contexts the whole archive bounds
    largest = judged[-1]
    bounded = np.isfinite(largest.e).all(0) & np.isfinite(largest.d).all(0)
    root_d *= _root(largest.d[:, bounded]) / _root(largest.d[:, common])
    scale = _root(largest.e[:, bounded] ** 2) / _root(largest.e[:, common] ** 2)
    e *= scale
    mean_e = scale * np.stack([size.e[:, common].mean(1) for size in judged], axis=1)
    at = common
    rng = stream(seed, "plan", "features")
    norm = 0.0
    for calibration in judged[-1].made:
        law = calibration.parts[0].law
        phi = expected_features(law, features, contexts, size=SIZE, rng=rng).mean[at]
        norm = max(norm, float(np.sqrt((phi**2).sum(-1)).max()))
    budget = judged[-1].made[0].parts[0].budget(contexts)
    monte_carlo = float(budget.monte_carlo[at].mean() / budget.total[at].mean())
    return Plan(
        stakes=stakes,
        recipe=recipe,
        seed=seed,
        rows=np.array([size.rows for size in judged]),
        mean_e=mean_e,
        decay=fit_decay(units, root_d),
        error_decay=fit_decay(units, e),
        dim=len(features.names),
        norm=norm,
        contexts=int(common.sum()),
        bounded=int(bounded.sum()),
        monte_carlo=monte_carlo,
        worst=worst,
        left_out=tuple(left_out),
        rungs=_rungs(judged),
    )


def _rungs(judged: list[Size]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the mean size of each rung over orderings, at every size of the archive."""
    names = [rung.name for rung in judged[0].made[0].rungs]
    return tuple(
        (
            name,
            tuple(
                float(np.mean([calibration.rung(name).size for calibration in size.made]))
                for size in judged
            ),
        )
        for name in names
    )


def _root(squares: Float2) -> float:
    """Root of the mean over orderings and contexts."""
    return float(np.sqrt(squares.mean()))
