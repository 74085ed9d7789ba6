"""All tests of what a band leaves, each with its own p-value: scores, products, jumps, time, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy import sparse

from pulse_pyro._core.arrays import Float1, Float2, Int
from pulse_pyro.bands.band import BandFit, Sample, consecutive
from pulse_pyro.bands.form import Form, axes_of, form_of, freed
from pulse_pyro.bands.hunting import hunt, some_rows
from pulse_pyro.bands.lack_of_fit import (
    BLOCK,
    FREQUENCIES,
    candidates,
    judge_scores,
    lack_of_fit,
)

MOST_ROWS = 100_000  # of whole clusters, which the tests look at
MOST_INPUTS = 20  # scanned for jumps and waves, and MOST_PAIRS pairs, drawn if there are more
MOST_PAIRS = 190
MOST_TRIPLES = 120
WAVE_PAIRS = CORNER_PAIRS = 30
PAIR_FREQUENCIES = FREQUENCIES[:2]
DECILES = np.arange(1, 10) / 10.0
CORNERS = np.array([0.2, 0.5, 0.8])  # quantiles at which two inputs are cut at once
FEW_PAIRS = 3  # up to which they are cut finely: a tensor band follows all but a corner's very edge
FINE = np.arange(1, 20) / 20.0
WEEK = 7.0
COMPARED = 5_000  # rows at which columns are compared
TAILS = (1, 3)  # last rows of a unit
TESTS = ("score", "products", "waves", "jump", "time", "unit length", "hunting")


class Misfit(NamedTuple):
    """One test: p is NaN where it was not run, and ``worst`` then says why, else what stood out."""

    name: str
    p: float
    worst: str


class RowTimes(NamedTuple):
    """When rows were: unit and its step (n,); date (n,), a step of the calendar all units share.

    date : None where it is not known. per_day : steps a day; 0 where steps are no dates.
    """

    unit: Int
    time: Int
    date: Int | None = None
    per_day: float = 0.0


class _Known(NamedTuple):
    """Columns about time, with names; rows of each row's unit, and its steps after the row."""

    columns: list[tuple[str, Float1]]
    length: Int
    left: Int


def misfit_tests(
    fit: BandFit,
    sample: Sample,
    omitted: Callable[[Int], Float2],
    names: tuple[str, ...],
    rng: np.random.Generator,
    *,
    times: RowTimes | None = None,
    draws: int = 1000,
) -> tuple[Misfit, ...]:
    """Test in seven ways whether the band leaves anything, each with a plain p-value.

    fit, sample : a band and the rows (n) it was made from, unit being the cluster. omitted : rows
    (k,) -> (k, m) further columns known there, such as lags, NaN where not there; names : of them.
    times : when rows were; without them time and unit length are not looked at. Of more than
    100,000 rows, so many of whole clusters drawn at random are looked at: less is then seen.

    score : the candidates of :func:`lack_of_fit`. products : of two and of three inputs of the
    band. waves : sines and cosines of its inputs, and products of two. jump : above or below each
    decile of an input, and above quantiles of two at once. time : trend of the calendar and of a
    unit's steps, weekday, time of day. unit length : how many rows the unit has, and its last rows
    (who leaves, and when). These six: the supremum over their candidates z of |sum_i e_i z_i| over
    its spread by cluster, z freed of what the band can follow, multiplier bootstrap. hunting :
    :func:`pulse_pyro.bands.hunting.hunt` in all of it.

    Each p-value is valid by itself; nothing is corrected for there being seven, since passing a
    false claim is what must not happen: if all is well one of seven is below .05 in up to 30 % of
    archives. None of them sees what its candidates cannot.
    """
    kept = np.flatnonzero(fit.kept)
    form, rows = form_of(fit.band, sample.x[kept]), kept
    if len(kept) > MOST_ROWS:
        code, clusters = consecutive(sample.unit[kept])
        rows = kept[some_rows(code, rng.permutation(clusters), MOST_ROWS, rng)]
    some = sample.take(rows)
    columns = np.concatenate([some.x, omitted(rows)], axis=1)
    labels = (*sample.x_names, *names)
    scores = _Scores(form, some, rng, draws)
    if len(rows) == len(kept):  # the band's own residuals, freed by its own smoother
        score = lack_of_fit(fit, columns, labels, some.unit, rng, draws)
        out = [Misfit("score", score.p, score.worst)]
    else:
        bent = set(sample.x_names) if len(sample.x_names) > 1 else set()
        blocks = candidates(columns, labels, rng, bent)
        single = ((z[:, k], name) for z, named in blocks for k, name in enumerate(named))
        out = [scores.judge("score", single)]
    u, live = _standard(some.x)
    inputs = tuple(sample.x_names[k] for k in live)
    out += [
        scores.judge("products", _products(u, inputs, rng)),
        scores.judge("waves", _waves(u, inputs, rng)),
        scores.judge("jump", _jumps(u, inputs, rng)),
    ]
    run = None
    if times is None:
        out += [Misfit(name, float("nan"), "not run: no times") for name in ("time", "unit length")]
    else:
        known = _known(times, rows)
        out += [
            scores.judge("time", _times(known)),
            scores.judge("unit length", _lengths(known)),
        ]
        columns = np.column_stack([columns, *(c for _, c in known.columns), known.length])
        labels = (*labels, *(name for name, _ in known.columns), "unit length")
        run = _stretches(times.unit[rows], some.unit)
    fresh = _distinct(columns)
    found = hunt(some, form, columns[:, fresh], tuple(labels[k] for k in fresh), rng, run=run)
    worst = found.note or " and ".join(found.culprits) or "nothing"
    return (*out, Misfit("hunting", found.p, worst))


class _Scores:
    """Scores of candidates on what the band's form leaves, by cluster."""

    def __init__(self, form: Form, sample: Sample, rng: np.random.Generator, draws: int) -> None:
        self.axes = axes_of(form(sample.x))
        residual = freed(self.axes, sample.y)
        size = np.sqrt((residual**2).mean(0))
        self.residual: Float2 = residual / np.where(size > 0, size, 1.0)
        code, clusters = consecutive(sample.unit)
        rows = np.arange(len(code))
        self.member = sparse.csr_array((np.ones(len(code)), (code, rows)), (clusters, len(code)))
        self.rng, self.draws = rng, draws

    def judge(self, name: str, candidates: Iterator[tuple[Float1, str]]) -> Misfit:
        """Return the verdict on candidates (n,) with their names."""
        psi: list[Float2] = []
        labels: list[str] = []
        block: list[Float1] = []
        for z, label in candidates:
            block.append(z)
            labels.append(label)
            if len(block) == BLOCK:
                psi.append(self._sums(np.stack(block, axis=1)))
                block = []
        if block:
            psi.append(self._sums(np.stack(block, axis=1)))
        if not psi:
            return Misfit(name, float("nan"), "not run: there is no such candidate")
        q = self.residual.shape[1]
        found = judge_scores(
            np.concatenate(psi, axis=1), [k for k in labels for _ in range(q)], self.rng, self.draws
        )
        return Misfit(name, found.p, found.worst)

    def _sums(self, z: Float2) -> Float2:
        centred = z - z.mean(0)
        free = freed(self.axes, centred)
        # a candidate that the band can follow is rounding, not evidence
        lost = (free**2).sum(0) <= 1e-12 * (centred**2).sum(0)
        free[:, lost] = 0.0
        both = free[:, :, None] * self.residual[:, None, :]
        out: Float2 = np.asarray(self.member @ both.reshape(len(z), -1))
        return out


def _standard(x: Float2) -> tuple[Float2, Int]:
    """Return standardised inputs that vary, clipped to 4 sds, and their positions."""
    mean, sd = x.mean(0), x.std(0)
    live = np.flatnonzero(sd > 1e-12 * (np.abs(mean) + 1e-300))
    return np.clip((x[:, live] - mean[live]) / sd[live], -4.0, 4.0), live


def _some(count: int, most: int, rng: np.random.Generator) -> Int:
    if count <= most:
        return np.arange(count)
    return np.sort(rng.choice(count, most, replace=False))


def _together(count: int, size: int, most: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return pairs (size 2) or triples of inputs, some of them where there are many."""
    every = list(combinations(range(count), size))
    return [every[k] for k in _some(len(every), most, rng)]


def _products(
    u: Float2, names: tuple[str, ...], rng: np.random.Generator
) -> Iterator[tuple[Float1, str]]:
    for size, most in ((2, MOST_PAIRS), (3, MOST_TRIPLES)):
        for some in _together(len(names), size, most, rng):
            yield u[:, some].prod(1), " x ".join(names[i] for i in some)


def _waves(
    u: Float2, names: tuple[str, ...], rng: np.random.Generator
) -> Iterator[tuple[Float1, str]]:
    for i in _some(len(names), MOST_INPUTS, rng):
        for f in FREQUENCIES:
            for wave in (np.sin, np.cos):
                yield wave(f * u[:, i]), f"{names[i]}, curved"
    for i, k in _together(len(names), 2, WAVE_PAIRS, rng):
        for f in PAIR_FREQUENCIES:
            for one in (np.sin, np.cos):
                for two in (np.sin, np.cos):
                    yield one(f * u[:, i]) * two(f * u[:, k]), f"waves of {names[i]} and {names[k]}"


def _jumps(
    u: Float2, names: tuple[str, ...], rng: np.random.Generator
) -> Iterator[tuple[Float1, str]]:
    for i in _some(len(names), MOST_INPUTS, rng):
        for at in np.unique(np.quantile(u[:, i], DECILES)):
            yield (u[:, i] > at).astype(np.float64), f"a jump in {names[i]}"
    pairs = _together(len(names), 2, CORNER_PAIRS, rng)
    at_cuts = FINE if len(pairs) <= FEW_PAIRS else CORNERS
    cuts = [np.unique(np.quantile(column, at_cuts)) for column in u.T]
    for i, k in pairs:
        for one, two in product(cuts[i], cuts[k]):
            both = (u[:, i] > one) & (u[:, k] > two)
            yield both.astype(np.float64), f"a corner of {names[i]} and {names[k]}"


def _known(times: RowTimes, at: Int) -> _Known:
    """Return row number, date, weekday and time of day of some rows as columns."""
    code, units = consecutive(times.unit)
    last = np.zeros(units, np.int64)
    np.maximum.at(last, code, times.time)
    columns = [("row number", times.time[at].astype(np.float64))]
    if times.date is not None:
        date = times.date[at].astype(np.float64)
        columns.append(("date", date))
        if times.per_day > 0:
            days = date / times.per_day
            if np.ptp(days) >= 2 * WEEK and times.per_day * WEEK >= 2:
                columns.append(("day of the week", np.floor(days) % WEEK))
            if times.per_day > 1:
                columns.append(("time of day", days % 1.0))
    return _Known(columns, np.bincount(code)[code[at]], last[code[at]] - times.time[at])


def _times(known: _Known) -> Iterator[tuple[Float1, str]]:
    """Yield trends of the calendar and of the unit's own steps, weekdays and hours."""
    for name, column in known.columns:
        span = float(np.ptp(column))
        if not span > 0:
            continue
        if name == "day of the week":
            for day in range(int(WEEK)):
                yield (column == day).astype(np.float64), name
            continue
        phase = (column - column.min()) / span
        if name == "time of day":
            for k in (1, 2):
                yield np.sin(2 * np.pi * k * column), name
                yield np.cos(2 * np.pi * k * column), name
            continue
        for degree in (1, 2, 3):
            yield np.polynomial.legendre.Legendre.basis(degree)(2.0 * phase - 1.0), name
        for k in (1, 2):
            yield np.sin(2 * np.pi * k * phase), name
            yield np.cos(2 * np.pi * k * phase), name


def _lengths(known: _Known) -> Iterator[tuple[Float1, str]]:
    """Yield the length of a row's unit, and whether it is among the unit's last rows."""
    length = known.length.astype(np.float64)
    if not np.ptp(length) > 0:
        return
    yield length, "unit length"
    yield np.log(length), "unit length"
    for tail in TAILS:
        yield (known.left < tail).astype(np.float64), "a unit's last rows"


def _stretches(unit: Int, cluster: Int) -> Int:
    """Number the stretches of one unit in one cluster, (n,)."""
    one, _ = consecutive(unit)
    two, clusters = consecutive(cluster)
    return consecutive(one * clusters + two)[0]


def _distinct(columns: Float2) -> list[int]:
    """Return the positions of columns that are, at some rows, no copy of an earlier one."""
    seen: dict[bytes, int] = {}
    for k, column in enumerate(columns[:: max(len(columns) // COMPARED, 1)].T):
        seen.setdefault(np.ascontiguousarray(column).tobytes(), k)
    return sorted(seen.values())
