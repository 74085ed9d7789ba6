"""One-dimensional smoothing on bins: O(n) once, O(bins^2) after; bootstrap-t for skewed noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands.band import Sample, consecutive

# Mean-binning of a one-dimensional summary: O(n) once, then everything costs O(bins^2).
#
# A bin stands for its rows at their mean x, so any function that is linear within a bin is kept
# exactly; what is lost is at most width^2 / 8 * |f''| inside a bin.


COUNT = 400  # bins
MARGIN = 0.25  # rows this share of the domain's length beyond it still help at its edge
LEAST = 10  # distinct x a curve needs


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows grouped by x.

    Attributes
    ----------
    at, count : (B,) mean x and number of rows of each occupied bin, in order of x.
    kept : (n,) rows that take part: those within a margin of the domain.
    index, unit : (kept,) bin and unit of each kept row.
    x, y : (kept,) and (kept, q).
    domain : where the band is uniform.
    """

    at: Float1
    count: Float1
    kept: Bool
    index: Int
    unit: Int
    x: Float1
    y: Float2
    domain: tuple[float, float]

    def sums(self, values: Float2) -> Float2:
        """Add rows up within bins: (kept, q) -> (B, q)."""
        columns = [np.bincount(self.index, v, len(self.at)) for v in values.T]
        return np.stack(columns, axis=1)

    def scores(self, residual: Float1) -> sparse.csr_array:
        """Sum residuals within unit and bin: (units, B)."""
        code, units = consecutive(self.unit)
        shape = (units, len(self.at))
        return sparse.coo_array((residual, (code, self.index)), shape=shape).tocsr()


def own_levels(bins: Bins) -> Float2:
    """Return M (B, B) with sum(hat * M) = sum_c 1'H_cc 1 / n_c over units c of n_c rows.

    That is what a smoother spends on the units' own levels: about 1 where x varies within units,
    all of its degrees of freedom where x is constant there.
    """
    counts = bins.scores(np.ones(len(bins.x)))
    each = sparse.diags_array(1.0 / np.asarray(counts.sum(1)).ravel())
    out: Float2 = (counts.T @ (each @ counts)).toarray()
    return out


def most_on_levels(bins: Bins) -> float:
    """Return a third of the units, which own levels may take; inf where a unit is a row."""
    units = consecutive(bins.unit)[1]
    return units / UNITS_EACH if units < len(bins.unit) else np.inf


def bin_rows(sample: Sample, share: float) -> Bins:
    """Bin a one-dimensional sample; ``share`` is the central share of x that is the domain."""
    x = sample.x[:, 0]
    if not len(x):
        raise DataError("bands: there is no held-out row.")
    tail = (1.0 - share) / 2.0
    low, high = (float(v) for v in np.quantile(x, [tail, 1.0 - tail]))
    name = sample.x_names[0]
    if not high > low:
        raise DataError(
            f"bands: the summary {name!r} is {low:g} in nearly every one of {len(x)} held-out "
            "rows; a band needs a summary that varies. Choose another summary or a wider domain."
        )
    length = high - low
    kept = (x >= low - MARGIN * length) & (x <= high + MARGIN * length)
    if not kept.any() or np.ptp(x[kept]) == 0:
        raise DataError(
            f"bands: the central {share:.3g} of {name!r}, [{low:.6g}, {high:.6g}], holds fewer "
            "than two distinct values; use a wider domain."
        )
    rows = sample if kept.all() else sample.take(kept)
    inside = rows.x[:, 0]
    first, last = float(inside.min()), float(inside.max())
    raw = np.minimum(((inside - first) * (COUNT / (last - first))).astype(np.int64), COUNT - 1)
    index, occupied = consecutive(raw)
    count = np.bincount(index).astype(np.float64)
    at = np.bincount(index, inside) / count
    if occupied < LEAST:
        raise DataError(
            f"bands: the summary {name!r} has values at only {occupied} places of its central "
            f"range ({len(inside)} rows), a curve needs at least {LEAST}; for few levels use the "
            'linear band on indicator columns (band="linear"), for a few far values a narrower '
            "domain."
        )
    return Bins(
        at=at,
        count=count,
        kept=kept,
        index=index,
        unit=rows.unit,
        x=inside,
        y=rows.y,
        domain=(low, high),
    )


# A linear smoother on bins: the one shape of every one-dimensional band.


MANY_UNITS = 2000  # beyond, Student's t is the normal
UNITS_EACH = 3.0  # units a degree of freedom spent on own levels of units
EASY = 0.2  # sum of a unit's leverages up to which its residuals are found by iteration
HIGHEST = 0.95  # leverage of a unit, beyond which its residual says nothing
CLOSE, MOST_STEPS = 1e-10, 50  # of the largest residual, and steps, of that iteration
UNIT_BLOCK = 5000  # units iterated at a time


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights l_i(x) of every row, which depend on the row through its bin alone.

    Attributes
    ----------
    grid : (G, B) weights of the estimate on the grid.
    hat : (B, B) weights of the estimate at the bins themselves.
    made : how, in words.
    loss : degrees of freedom the local fit takes (order + 1).
    """

    grid: Float2
    hat: Float2
    made: str
    loss: float

    def leverage(self) -> Float1:
        """Return h of a row in each bin, (B,), clipped so that HC3 stays finite."""
        return self.hat.diagonal().clip(0.0, HIGHEST)

    def without_units(self, bins: Bins, residual: Float1) -> Float1:
        """Return u_c = (I - H_cc)^-1 e_c, residuals (kept,) of fits without the row's own unit.

        u = e + H_cc u is iterated; the few units of much leverage are solved, in their occupied
        bins. A leverage beyond .95 counts as .95.
        """
        code, units = consecutive(bins.unit)
        order = np.argsort(code, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(code))])
        hard = np.bincount(code, self.leverage()[bins.index]) > EASY
        out = residual.copy()
        for c in np.flatnonzero(hard):
            rows = order[ends[c] : ends[c + 1]]
            out[rows] += self._own(bins.index[rows], residual[rows])
        for first in range(0, units, UNIT_BLOCK):
            last = min(first + UNIT_BLOCK, units)
            rows = order[ends[first] : ends[last]]
            rows = rows[~hard[code[rows]]]
            e, at, own = residual[rows], bins.index[rows], code[rows] - first
            u, enough = e, CLOSE * max(float(np.abs(e).max(initial=0.0)), 1e-300)
            for _ in range(MOST_STEPS if len(rows) else 0):
                shape = (last - first, len(self.hat))
                score = sparse.csr_array((u, (own, at)), shape=shape)
                new: Float1 = e + np.asarray(score @ self.hat.T)[own, at]
                moved = float(np.abs(new - u).max())
                u = new
                if moved <= enough:
                    break
            out[rows] = u
        return out

    def _own(self, index: Int, e: Float1) -> Float1:
        """Return what one unit's rows add to its own fit, at its rows: f = H_cc (e + f)."""
        at, local = np.unique(index, return_inverse=True)
        own: Float2 = self.hat[np.ix_(at, at)] * np.bincount(local)
        most = float(np.abs(np.linalg.eigvals(own)).max()) if len(at) > 1 else abs(own[0, 0])
        own *= min(1.0, HIGHEST / most)
        mean = np.bincount(local, e) / np.bincount(local)
        f = np.linalg.solve(np.eye(len(at)) - own, own @ mean)
        return np.asarray(f, np.float64)[local]

    def freedom(self, bins: Bins, clustered: bool) -> Float1:
        """Satterthwaite degrees of freedom of the variance on the grid, (G,).

        Rows: (sum l^2)^2 / sum l^4 - (order + 1); units: (sum w)^2 / sum w^2 - 1 with
        w_c = sum of l^2 over the rows of unit c.
        """
        square = self.grid**2
        if not clustered:
            total = square @ bins.count
            nu: Float1 = total**2 / (square**2 @ bins.count) - self.loss
            return nu
        rows_in = bins.scores(np.ones(len(bins.x)))  # (units, B) counts
        if rows_in.shape[0] > MANY_UNITS:
            return np.full(len(square), np.inf)
        by_unit: Float2 = np.asarray(rows_in @ square.T)
        out: Float1 = by_unit.sum(0) ** 2 / (by_unit**2).sum(0) - 1.0
        return out


# How the size of the noise changes with x.


def local_spread(bins: Bins, residual: Float1) -> Float1:
    """Return the root mean square of the residuals (kept,) around each bin, (B,)."""
    # a window of a tenth of the rows: wide enough to be steady, narrow enough to follow x
    total = np.concatenate([[0.0], np.cumsum(bins.sums(residual[:, None] ** 2)[:, 0])])
    rows = np.concatenate([[0.0], np.cumsum(bins.count)])
    middle = (rows[1:] + rows[:-1]) / 2.0
    reach = max(0.05 * rows[-1], 25.0)
    low = np.clip(middle - reach, 0.0, rows[-1] - 2 * reach)
    ends = np.stack([low, np.minimum(low + 2 * reach, rows[-1])])
    inside = np.diff(np.interp(ends, rows, total), axis=0)[0] / np.diff(ends, axis=0)[0]
    out: Float1 = np.sqrt(np.maximum(inside, 1e-300))
    return out


def neighbour_differences(bins: Bins, y: Float1) -> Float1:
    """Return the difference of each row (kept,) from the next in x, over sqrt(2).

    As large as the noise on average, and free of any curve: no fit is needed first.
    """
    order = np.argsort(bins.x, kind="stable")
    out = np.empty_like(y)
    out[order[:-1]] = np.diff(y[order]) / np.sqrt(2.0)
    out[order[-1]] = out[order[-2]]
    return out


def studentised_units(
    bins: Bins, weights: list[Weights], scaled: Float2, draws: int, rng: np.random.Generator
) -> Float1:
    """Draw sup of t and of -t, t the studentised estimate of redrawn units: (2, draws).

    Units keep all that is theirs; the smoother is held. scaled (kept, q): residuals of fits without
    the row's unit.
    """
    psi = []
    for e, w in zip(scaled.T, weights, strict=True):
        each: Float2 = np.asarray(bins.scores(e) @ w.grid.T)  # (units, G)
        psi.append(each - each.mean(0))
    units = len(psi[0])
    out = np.full((2, draws), -np.inf)
    step = max(min(draws, 2_000_000 // units), 1)
    for start in range(0, draws, step):
        stop = min(start + step, draws)
        times = rng.multinomial(units, np.full(units, 1.0 / units), size=stop - start)
        for each in psi:
            total = times @ each
            var = (times @ each**2 - total**2 / units) * (units / (units - 1.0))
            t = total / np.sqrt(np.maximum(var, 1e-300))
            part = out[:, start:stop]
            part[:] = np.maximum(part, np.stack([t.max(1), -t.min(1)]))
    return out


# Studentised (bootstrap-t) suprema for skewed noise in small samples.


MOST_ROWS = 50_000  # beyond, skewness no longer matters and the draws would be slow
SKEWED = 0.05  # skewness over the root of the local sample size, from which it matters


def skew_ratio(bins: Bins, scaled: Float2, nu: Float2) -> float:
    """Return the largest |skewness| / sqrt(local degrees of freedom) over coordinates.

    It is the order of the error a normal critical value makes; nu (q, G).
    """
    standard = np.stack([e / local_spread(bins, e)[bins.index] for e in scaled.T], axis=1)
    standard = np.clip(standard - standard.mean(0), -1e6, 1e6)
    moment = (standard**3).mean(0) / (standard**2).mean(0) ** 1.5
    return float((np.abs(moment) / np.sqrt(np.maximum(np.median(nu, axis=1), 1.0))).max())


def studentised_sup(
    bins: Bins, weights: list[Weights], scaled: Float2, draws: int, rng: np.random.Generator
) -> Float1:
    """Draw sup of t and of -t, t = (m*(x) - m(x)) / se*(x), se* re-estimated: (2, draws).

    Residuals ``scaled`` (kept, q) are divided by their local spread, drawn with replacement (whole
    rows, so coordinates stay together) and multiplied by the spread where they land: the noise may
    change its scale with x, but is taken to keep its shape.
    """
    n = len(bins.x)
    if n > MOST_ROWS:
        raise SettingError(
            f'BandMethod: critical="bootstrap_t" is meant for small samples, at most {MOST_ROWS} '
            f'rows; got {n}, use critical="simulate".'
        )
    member = sparse.csr_array((np.ones(n), (bins.index, np.arange(n))))
    spread = np.stack([local_spread(bins, e)[bins.index] for e in scaled.T], axis=1)
    standard = scaled / spread
    standard -= standard.mean(0)
    out = np.full((2, draws), -np.inf)
    batch = max(min(draws, 2_000_000 // n), 1)
    for start in range(0, draws, batch):
        stop = min(start + batch, draws)
        pick = rng.integers(n, size=(n, stop - start))
        for j, w in enumerate(weights):
            noise = standard[:, j][pick] * spread[:, j, None]
            sums: Float2 = np.asarray(member @ noise)
            residual = noise - (w.hat @ sums)[bins.index]
            residual /= 1.0 - w.leverage()[bins.index, None]
            se = np.sqrt(w.grid**2 @ np.asarray(member @ residual**2))
            t = w.grid @ sums / se
            part = out[:, start:stop]
            part[:] = np.maximum(part, np.stack([t.max(0), -t.min(0)]))
    return out
