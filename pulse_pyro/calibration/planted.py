"""The smallest misfit that would have been seen: known ones planted in held-out rows."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int, whole
from pulse_pyro._core.errors import DataError, FeatureError, ModelError, SettingError, nearest
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import UnfittedLaw
from pulse_pyro.calibration.checks import FIT_LIMITS, GATES
from pulse_pyro.calibration.ladder import band_inputs, held_out_subject
from pulse_pyro.calibration.recipe import Recipe
from pulse_pyro.calibration.rung import ErrorRows
from pulse_pyro.calibration.uniform import uniform_rung
from pulse_pyro.data.history import History
from pulse_pyro.features import Features

if TYPE_CHECKING:
    from pandas import DataFrame

Tests = Callable[[ErrorRows, int], float]  # (rows, seed) -> p-value of "nothing is left"

SIZES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.1)  # sds of W
FEWEST_CLUSTERS = 10


def _interaction(u: Float2) -> Float1:
    out: Float1 = u[:, 0] * u[:, 1]
    return out


def _sign(u: Float2) -> Float1:
    return np.sign(u[:, 0] * u[:, 1])


def _bend(u: Float2) -> Float1:
    out: Float1 = u[:, 0] ** 2
    return out


def _jump(u: Float2) -> Float1:
    return (u[:, 0] > 0.5).astype(np.float64)


# kind -> how many inputs it takes, standardised, and its shape, (n, inputs) -> (n,)
PLANTS: dict[str, tuple[int, Callable[[Float2], Float1]]] = {
    "interaction": (2, _interaction),
    "sign": (2, _sign),
    "bend": (1, _bend),
    "jump": (1, _jump),
}


@dataclass(frozen=True, eq=False)
class SmallestMisfit:
    """What planted misfits were seen, k kinds.

    Attributes
    ----------
    kinds : of the k misfits. size : (k,) smallest size tried, root mean square in standard
        deviations of W, that was seen often enough; NaN where even the largest was not, or where
        time ran out before any was.
    seen, tried : (k,) how many plants of that size were seen, and made; none more are made once it
        is decided.
    power, level : how often, and at which level, seen means. false_alarms : share of ``tested``
        archives without a plant in which something was seen.
    in_time : (k,) whether the search ended by itself.
    """

    kinds: tuple[str, ...]
    size: Float1
    seen: Int
    tried: Int
    in_time: Bool
    power: float
    level: float
    false_alarms: float
    tested: int

    @property
    def table(self) -> DataFrame:
        """One line a kind: smallest size seen, how many of how many plants were seen."""
        import pandas as pd

        columns = {"size": self.size, "seen": self.seen, "tried": self.tried}
        return pd.DataFrame(
            {**columns, "searched to the end": self.in_time},
            index=pd.Index(self.kinds, name="misfit"),
        )

    def __repr__(self) -> str:
        parts = [
            f"{kind} {size:.2g}" if np.isfinite(size) else f"{kind} none"
            for kind, size in zip(self.kinds, self.size, strict=True)
        ]
        return (
            f"Smallest misfit seen {self.power:.0%} of the time at level {self.level:g}, in sds of "
            f"W: {', '.join(parts)}"
        )


def smallest_misfit(
    law: UnfittedLaw,
    history: History,
    features: Features,
    *,
    recipe: Recipe | None = None,
    level: float = FIT_LIMITS[1],
    reps: int = 40,
    seed: int,
    seconds: float = 300.0,
) -> SmallestMisfit:
    """Return the smallest misfit the uniform rung's tests would have seen, of each kind.

    Parameters
    ----------
    law : not fitted; it is fitted on a share of the clusters. history : archive. features : Phi.
    recipe : how it is fitted, and which inputs and band the rung uniform has.
    level : p-value of any one test that counts; by default that at which the rung fails. With
        seven tests the share of false alarms is larger than it: see ``false_alarms``.
    reps, seed, seconds : see :func:`planted_misfits`; seen means in 80 % of plants.

    Each plant goes through the whole procedure: band, then all of its tests; the smallest p-value
    counts. Refused where no band can be made: its tests are what would see. NOT covered: misfits of
    other shapes than those planted.
    """
    if not isinstance(law, UnfittedLaw) or not isinstance(history, History):
        raise ModelError(
            "smallest_misfit: a law that is not fitted, such as linear_lags(19), and a History "
            f"were expected, but got {type(law).__name__} and {type(history).__name__}; it fits "
            "the law itself."
        )
    if not isinstance(features, Features):
        raise FeatureError(
            "smallest_misfit: Features(fn, actions, names) expected, but got "
            f"{type(features).__name__}."
        )
    recipe = recipe or Recipe()
    fit, held_out = history.split(recipe.fit, seed=seed)
    fitted = law.fit(fit, recipe.inference, seed=seed)
    subject = held_out_subject(fitted, held_out, features, seed=seed)
    chosen = band_inputs(subject, features, list(recipe.inputs) or None)
    made = uniform_rung(subject, chosen, recipe.band, level=recipe.level, seed=seed)
    if made.part is None:
        raise DataError(f"smallest_misfit: without a band nothing is tested. {made.why}")

    def tests(rows: ErrorRows, seed: int) -> float:
        made = uniform_rung(
            subject._replace(rows=rows), chosen, recipe.band, level=recipe.level, seed=seed
        )
        p = [check.value for check in made.rung.checks if check.name in GATES]
        return min((value for value in p if np.isfinite(value)), default=1.0)

    return planted_misfits(subject.rows, tests, level=level, reps=reps, seed=seed, seconds=seconds)


def planted_misfits(
    rows: ErrorRows,
    tests: Tests,
    *,
    kinds: Sequence[str] = tuple(PLANTS),
    level: float = 0.05,
    power: float = 0.8,
    reps: int = 40,
    seed: int,
    seconds: float = 300.0,
) -> SmallestMisfit:
    """Return the smallest misfit, of each kind, that ``tests`` sees with probability ``power``.

    rows : held-out rows, errors y of the law. tests : the whole procedure, from rows to one p-value
    (fit the band on these rows, run the tests, take the smallest p); seen means p < level. kinds :
    interaction u1 u2, sign(u1 u2), bend u1^2, jump 1(u1 > .5), u standardised inputs of the law,
    drawn anew for each plant. reps : plants of each size. seconds : after which no further size is
    tried.

    A plant: y_i -> r_c(i) y_i + size sd(W) f(x_i), the same f for every target, f of mean 0 and
    mean square 1 over the rows, r_c a random sign for each cluster. Signs leave what rows of a
    cluster share, unequal spreads and heavy tails, and take away what the law's real errors have in
    common; a cluster is never copied, so nothing learned in one fold is known by heart in another.
    (Copies drawn with replacement, each counted as a cluster, would make t-values swing by sqrt(2)
    and everything look seen.) Sizes are searched by halving, with the same signs and inputs for
    each. Not covered: misfits of other shapes; power where the error's skewness matters.
    """
    check_level(level, "planted_misfits")
    check_level(power, "planted_misfits: power")
    whole(reps, "planted_misfits: reps", 1)
    for kind in kinds:
        if kind not in PLANTS:
            raise SettingError(
                f"planted_misfits: kind {kind!r} is not known{nearest(str(kind), PLANTS)}"
            )
    if rows.clusters < FEWEST_CLUSTERS:
        raise DataError(
            f"planted_misfits: at least {FEWEST_CLUSTERS} clusters are needed, but got "
            f"{rows.clusters}; hold out more."
        )
    sd = rows.x.std(0)
    live = np.flatnonzero(sd > 1e-12 * (np.abs(rows.x.mean(0)) + 1e-300))
    u = (rows.x[:, live] - rows.x[:, live].mean(0)) / sd[live]
    end = clock.monotonic() + seconds
    plants = _Plants(rows, u, tests, level, seed)
    needed = int(np.ceil(power * reps - 1e-9))
    shown = bar(kinds, label="smallest misfit", total=len(kinds))
    found = [_search(plants, kind, reps, needed, end) for kind in shown]
    alarms, tested = plants.tally("", 0.0, reps, reps + 1)
    return SmallestMisfit(
        kinds=tuple(kinds),
        size=np.array([each.size for each in found]),
        seen=np.array([each.seen for each in found], np.int64),
        tried=np.array([each.tried for each in found], np.int64),
        in_time=np.array([each.in_time for each in found], np.bool_),
        power=power,
        level=level,
        false_alarms=alarms / tested,
        tested=tested,
    )


class _Plants(NamedTuple):
    """Held-out rows, their inputs standardised (n, live), and the procedure that is to see."""

    rows: ErrorRows
    u: Float2
    tests: Tests
    level: float
    seed: int

    def seen(self, kind: str, size: float, rep: int) -> bool:
        """Tell whether one plant is seen; signs and inputs are the same for every size."""
        rng = stream(self.seed, "smallest misfit", kind, rep)
        signs = rng.choice(np.array([-1.0, 1.0]), self.rows.clusters)
        error = self.rows.error * signs[self.rows.cluster, None]
        if kind:
            inputs, shape = PLANTS[kind]
            f = shape(self.u[:, rng.choice(self.u.shape[1], inputs, replace=False)])
            f = f - f.mean()
            scale = np.sqrt((f**2).mean())
            f = f / scale if scale > 0 else f
            error = error + size * self.rows.spread * f[:, None]
        # what the law expects stays: W moves with its error
        again = int(rng.integers(2**31))
        planted = replace(self.rows, target=self.rows.forecast + error)
        return bool(self.tests(planted, again) < self.level)

    def tally(self, kind: str, size: float, reps: int, needed: int) -> tuple[int, int]:
        """Return how many of how many plants were seen; it ends once ``needed`` is decided."""
        hits = 0
        for rep in range(reps):
            hits += self.seen(kind, size, rep)
            missed = rep + 1 - hits
            if hits >= needed or (needed <= reps and missed > reps - needed):
                return hits, rep + 1
        return hits, reps


class _Smallest(NamedTuple):
    """The smallest size seen, how many of how many plants, and whether all was searched."""

    size: float = float("nan")
    seen: int = 0
    tried: int = 0
    in_time: bool = True


def _search(plants: _Plants, kind: str, reps: int, needed: int, end: float) -> _Smallest:
    """Halve the list of sizes until the smallest that is seen is found, or time is up."""
    if plants.u.shape[1] < PLANTS[kind][0]:
        return _Smallest()
    best = _Smallest()
    low, high = 0, len(SIZES)  # the first size seen is among low .. high, high: none
    while low < high:
        if clock.monotonic() > end:
            return best._replace(in_time=False)
        middle = (low + high) // 2
        hits, tried = plants.tally(kind, SIZES[middle], reps, needed)
        if hits >= needed:
            high, best = middle, _Smallest(SIZES[middle], hits, tried)
        else:
            low = middle + 1
    return best
