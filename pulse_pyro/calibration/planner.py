"""How much history until imputation no longer dominates regret? From nested parts of an archive."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int, whole
from pulse_pyro._core.as_json import records
from pulse_pyro._core.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Check, UnfittedLaw, picture
from pulse_pyro.calibration.calibration import FREE, UNIFORM, Calibration, reward_bound
from pulse_pyro.calibration.decay import FEWEST, Crossing, Decay, fit_decay, reach
from pulse_pyro.calibration.recipe import Recipe
from pulse_pyro.calibration.rung import Rung
from pulse_pyro.calibration.rung_decay import RungDecay, count, rung_decays
from pulse_pyro.calibration.stakes import Parts, Stakes
from pulse_pyro.data.history import History
from pulse_pyro.features import Features, expected_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# The answer of the planner: a verdict in words, the decay behind it, a table and a picture.


FLAT = 0.05  # p-value below which the decay is said to flatten out

Answer = Literal["already there", "reachable", "not reachable", "not known", "refused"]


@dataclass(frozen=True, eq=False)
class UniformCurve:
    """How the errors of the rung uniform fall with the archive.

    Attributes
    ----------
    mean_e : (ordering, sizes) plain mean of e, beside the root mean square the bound needs.
    decay, error_decay : of the root mean D, and of e, see :class:`Decay`.
    dim, norm : d and B, the largest norm of the expected features at the contexts.
    contexts, bounded : how many contexts every size was judged at, and how many have a bound from
        the whole archive, which sets the level of both curves.
    monte_carlo : share of the bound, at the largest size, that is Monte Carlo error of the law's
        expectations (0 where they are closed form): no history makes it smaller.
    worst : the worst check of the first calibration at the largest size.
    """

    mean_e: Float2
    decay: Decay
    error_decay: Decay
    dim: int
    norm: float
    contexts: int
    bounded: int
    monte_carlo: float
    worst: Check


@dataclass(frozen=True, eq=False)
class Plan:
    """How much history until imputation no longer dominates regret at horizon T.

    Attributes
    ----------
    stakes, recipe, seed : what was asked; the recipe has the band that was settled on.
    sizes, rows : (sizes,) units of the archive, and its rows, mean over orderings.
    curve : of the rung uniform; None where its check fails at full size. refused : why, then.
        There is no regret to plan by; what is asked of it is refused with that sentence.
    left_out : sizes that could not be judged, and why, a sentence each.
    rungs : how the bound of each rung falls, and the clusters at which it is half.

    See :func:`plan` for the formulas, and for what a plan does not cover.
    """

    stakes: Stakes
    recipe: Recipe
    seed: int
    sizes: Float1
    rows: Float1
    curve: UniformCurve | None
    refused: str
    left_out: tuple[str, ...]
    rungs: tuple[RungDecay, ...]

    @property
    def measured(self) -> UniformCurve:
        """The curve of the rung uniform; refused where that does not hold."""
        if self.curve is None:
            raise SettingError(f"plan: {self.refused}")
        return self.curve

    @property
    def decay(self) -> Decay:
        """Of the root mean D."""
        return self.measured.decay

    @property
    def error_decay(self) -> Decay:
        """Of e, the bound on the error of a reward."""
        return self.measured.error_decay

    @property
    def clusters(self) -> DataFrame:
        """One line per rung: its size now, how it falls, and the clusters at which it halves."""
        import pandas as pd

        return pd.DataFrame([rung.line for rung in self.rungs]).set_index("rung")

    @property
    def units(self) -> int:
        """The largest size, in units."""
        return int(self.sizes[-1])

    @property
    def e(self) -> float:
        """The error e at the largest size, on the fitted line."""
        return float(self.error_decay.at(self.units)[1])

    @property
    def target(self) -> float:
        """e*: the error at which the imputation part equals the statistical part."""
        return self.stakes.balance(dim=self.measured.dim, norm=self.measured.norm)

    @property
    def parts(self) -> Parts:
        """The bound at the largest size: statistical and imputation part."""
        return self.stakes.parts(self.e, dim=self.measured.dim, norm=self.measured.norm)

    @property
    def needed(self) -> Crossing:
        """Units at which e(n) = e*, with the interval of the band; infinite if never."""
        return self.error_decay.crossing(self.target)

    @property
    def answer(self) -> Answer:
        """Already there, reachable, not reachable or not known, see :func:`reach`; or refused."""
        if self.curve is None:
            return "refused"
        return "already there" if self.e <= self.target else reach(self.needed, self.units)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        if self.curve is None:
            return f"refused; {self.refused}"
        n, low, high = self.needed
        where = f"at horizon {self.stakes.horizon:,}"
        share = self.parts.imputation / self.parts.statistical
        if self.answer == "already there":
            sure = high <= self.units
            doubt = "" if sure else f", though the band reaches to {count(high)} units"
            return (
                f"already there; with {self.units:,} units imputation is {share:.2g} of the "
                f"statistical part {where}{doubt}."
            )
        if self.answer == "reachable":
            return (
                f"about {count(n)} units until imputation no longer dominates {where} (95 % band "
                f"{count(low)} to {count(high)}); with {self.units:,} it is {share:.2g} times "
                "the statistical part."
            )
        if self.answer == "not known":
            return (
                f"not known {where}: by these orderings anything from {count(low)} to "
                f"{count(high)} units; with {self.units:,} imputation is {share:.2g} times the "
                "statistical part. More units, or more orderings, would tell."
            )
        more = self.units < low < math.inf
        least = f", {count(low)} units at the very least" if more else ""
        return (
            f"not reachable by this rate {where}{least}; with {self.units:,} units imputation is "
            f"{share:.2g} times the statistical part: improve the law, or its summary."
        )

    @property
    def table(self) -> DataFrame:
        """One line per size; se is over orderings, of the root mean D."""
        import pandas as pd

        sizes = {"units": self.sizes.astype(int), "rows": self.rows.round().astype(int)}
        if self.curve is None:
            return pd.DataFrame(sizes)
        d = self.decay.values
        return pd.DataFrame(
            {
                **sizes,
                "root_mean_D": d.mean(0),
                "se": d.std(0, ddof=1) / np.sqrt(len(d)),
                "rms_e": self.error_decay.values.mean(0),
                "mean_e": self.curve.mean_e.mean(0),
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw e and the root mean D over n, the fitted lines, and where e meets e*."""
        return picture("decay_plot")(self, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an end that is infinite is None. Refused: without what the curve tells."""
        method = self.recipe.method
        return {
            "verdict": self.verdict,
            "answer": self.answer,
            **({} if self.curve is None else self._told(self.curve)),
            "band": {
                "kind": method.kind,
                "noise": method.noise,
                "level": self.recipe.level,
                "mode": self.recipe.mode,
            },
            "stakes": asdict(self.stakes),
            "seed": self.seed,
            "sizes": records(self.table),
            "left_out": list(self.left_out),
            "rungs": records(self.clusters),
        }

    def _told(self, curve: UniformCurve) -> dict[str, Any]:
        return {
            "needed_units": dict(zip(("n", "low", "high"), map(_finite, self.needed), strict=True)),
            "target_e": self.target,
            "e": self.e,
            "bound": self.parts._asdict(),
            "rate_sqrt_D": curve.decay.rate,
            "rate_sqrt_D_interval": list(curve.decay.rate_interval),
            "rate_e": curve.error_decay.rate,
            "rate_e_interval": list(curve.error_decay.rate_interval),
            "flattening_p": curve.error_decay.flattening,
            "dim": curve.dim,
            "norm": curve.norm,
            "contexts": curve.contexts,
            "bounded_contexts": curve.bounded,
            "monte_carlo_share": curve.monte_carlo,
            "orderings": len(curve.decay.values),
            "check": {
                "name": curve.worst.name,
                "verdict": curve.worst.verdict,
                "text": curve.worst.text,
            },
        }

    def __repr__(self) -> str:
        lines = [f"Plan: {self.verdict}"]
        if self.curve is not None:
            lines += self._lines(self.curve)
        lines += [f"  left out: {why}" for why in self.left_out]
        lines.append(f"  clusters for half of each bound, {self.units:,} now:")
        lines += [f"    {rung}" for rung in self.rungs]
        return "\n".join(lines)

    def _lines(self, curve: UniformCurve) -> list[str]:
        low, high = curve.decay.rate_interval
        method, parts = self.recipe.method, self.parts
        sizes = ", ".join(f"{n:,.0f}" for n in self.sizes)
        flat = curve.error_decay.flattening
        lines = [
            f"  sqrt(D) goes like n^{-curve.decay.rate:.3f} (95 % {-high:.3f} to {-low:.3f}, "
            f"{len(curve.decay.values)} orderings), at {sizes} units",
            f"  e is {self.e:.3g} with {self.units:,} units; {self.target:.3g} is wanted (d = "
            f"{curve.dim}, B = {curve.norm:.3g}, {curve.contexts:,} of {curve.bounded:,} contexts)",
            f"  bound on regret: {parts.statistical:.4g} statistical + {parts.imputation:.4g} "
            f"imputation; band {method.kind}, noise by {method.noise}, mode {self.recipe.mode}",
        ]
        if parts.statistical >= 2.0 * self.stakes.horizon:
            lines.append(
                "  the statistical part alone exceeds 2 T: at this horizon the bound says "
                "nothing yet"
            )
        if curve.monte_carlo > 0:
            lines.append(
                f"  {curve.monte_carlo:.0%} of D's root is Monte Carlo error at "
                f"{self.units:,} units: history does not make it smaller"
            )
        if flat < FLAT:
            lines.append(
                f"  warn flattening: p = {flat:.2g}. The decay bends upwards: more units "
                "than the line says will be needed."
            )
        if curve.worst.verdict in ("warn", "fail"):
            lines.append(f"  {curve.worst.verdict} {curve.worst.name}: {curve.worst.text}")
        return lines

    def _repr_html_(self) -> str:
        from html import escape

        shown = self.table.to_html(float_format="{:.4g}".format, index=False)
        return f"<pre>{escape(repr(self))}</pre>{shown}"


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
    itself goes by unit from 20 units on in any case, which is somewhat wider).

    The bound of each rung is followed too, beside e: see :func:`rung_decays`. Where a test of the
    uniform rung fails at full size its figures are refused, and the other rungs are all there is.

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
    settled, uniform, refused = _settle(recipe, law, history, features, seed)
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
            judged.append(_judge(units, parts, made, contexts, stakes, refused))
        except PulseError as error:
            left_out.append(f"{units} units are too few: {error}")
    steps.close()
    if not refused:
        judged = _comparable(judged, left_out)
    if len(judged) < FEWEST:
        what = " ".join(left_out) or f"an archive of {whole_size} units has no more."
        raise DataError(
            f"plan: a decay needs {FEWEST} sizes, {len(judged)} of {len(sizes)} could be judged; "
            "bring more units, a summary with fewer inputs, mode 'all', or, if rows of a unit are "
            f"independent given the summary, noise 'rows'. {what}"
        )
    curve = None
    if not refused:
        curve = _curve(judged, contexts, features, uniform.checks.worst(1)[0], seed)
    return Plan(
        stakes=stakes,
        recipe=settled,
        seed=seed,
        sizes=np.array([size.units for size in judged], dtype=np.float64),
        rows=np.array([size.rows for size in judged]),
        curve=curve,
        refused=refused,
        left_out=tuple(left_out),
        rungs=rung_decays([(size.units, size.made) for size in judged], uniform),
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
) -> tuple[Recipe, Rung, str]:
    """Choose the band at full size, once: a choice that changes with n would look like a decay.

    What it leaves is tested here, once too: the rung uniform of full size is returned beside it,
    and why it is refused, "" where it holds.
    """
    try:
        full = recipe.calibrate(law, history, features, seed=seed)
    except PulseError as error:
        raise type(error)(
            f"plan: the whole archive of {len(history.units)} units cannot be fitted and "
            f"calibrated: {error}"
        ) from error
    uniform, method = full.rung("uniform"), recipe.method
    if not uniform.holds or not full.parts:
        archive = f"the whole archive of {len(history.units)} units"
        below = any(rung.holds for rung in full.rungs if rung.name not in (UNIFORM, FREE))
        if not full.parts and not below:
            raise DataError(f"plan: {archive} cannot be fitted and calibrated: {full.why}")
        why = f"{archive} gives no uniform bound, so there is no regret to plan by. {uniform.claim}"
        why += f" {uniform.remedy}" if full.parts else ""  # else it is the claim's own reason
        if not below:
            raise DataError(f"plan: {why}")
        free = replace(method, kind="auto", tested=False)  # no size is lost to a band
        return replace(recipe, band=free), uniform, f"{why} What stands: {full.claim}"
    band = full.parts[0].band
    if full.parts[0].inputs.given_z:  # no band in all inputs was to be had
        recipe = replace(recipe, inputs=("forecast",))
    shown = [check.value for check in full.checks if check.name == "dependence within units"]
    by_row = bool(shown) and min(shown) >= DEPENDENT
    kind = band.kind if method.kind == "auto" else method.kind
    noise: Any = method.noise if method.noise != "auto" else "rows" if by_row else "units"
    settled = replace(recipe, band=replace(method, kind=kind, noise=noise, tested=False))
    return settled, uniform, ""


def _judge(
    units: int,
    parts: list[History],
    made: list[Calibration],
    contexts: History,
    stakes: Stakes,
    refused: str,
) -> Size:
    rows = float(np.mean([len(part.s) for part in parts]))
    if refused:
        nothing = np.full((len(made), len(contexts.s)), np.nan)
        return Size(units, rows, nothing, nothing, np.zeros(len(contexts.s), np.bool_), tuple(made))
    d, e, inside = [], [], []
    for calibration in made:
        error = calibration.error_at(contexts)
        d.append(np.max(error**2, axis=(1, 2)))
        e.append(reward_bound(error, stakes.theta_bound).max(-1))
        inside.append(calibration.inside_at(contexts) & np.isfinite(error).all((1, 2)))
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


def _curve(
    judged: list[Size], contexts: History, features: Features, worst: Check, seed: int
) -> UniformCurve:
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
    return UniformCurve(
        mean_e=mean_e,
        decay=fit_decay(units, root_d),
        error_decay=fit_decay(units, e),
        dim=len(features.names),
        norm=norm,
        contexts=int(common.sum()),
        bounded=int(bounded.sum()),
        monte_carlo=monte_carlo,
        worst=worst,
    )


def _root(squares: Float2) -> float:
    """Root of the mean over orderings and contexts."""
    return float(np.sqrt(squares.mean()))
