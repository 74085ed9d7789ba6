"""What the tests of this folder share."""

import numpy as np
from hypothesis import strategies as st
from scipy.interpolate import BSpline

from pulse_pyro._core.registry import named
from pulse_pyro.bands import BANDS
from pulse_pyro.bands import local_polynomial as lp
from pulse_pyro.bands.auto import auto_curve
from pulse_pyro.bands.band import BandMethod, Sample
from pulse_pyro.bands.bins import bin_rows
from pulse_pyro.bands.linear import linear
from pulse_pyro.bands.spline import difference_penalty, knots_for, reml, spline_coefficients

# Smoothers of curves recomputed with full matrices, row by row.


def local_fit(x, point, width, order):
    """Weights of the local coefficients (order + 1, n) by dense least squares at one point."""
    u = x - point
    root = np.sqrt(np.maximum(1.0 - (u / width) ** 2, 0.0))
    design = np.vander(u, order + 1, increasing=True) * root[:, None]
    return np.linalg.pinv(design) * root


def widened(x, points, h):
    """The bandwidth, or what 25 rows need where that is more (5 distinct x are among them)."""
    distance = np.sort(np.abs(x - points[:, None]), axis=1)[:, 24]
    return np.maximum(h, 1.05 * distance)


def dense_local(x, points, h, order):
    width = widened(x, points, h)
    pairs = zip(points, width, strict=True)
    return np.stack([local_fit(x, p, w, order)[0] for p, w in pairs])


def by_row(weights, bins):
    return weights[:, bins.index]


def dense_basis(bins, points, size=None):
    knots = knots_for(bins, size or spline_coefficients(bins))
    return BSpline.design_matrix(points, knots, 3).toarray()


def dense_reml(basis, y, order):
    penalty = difference_penalty(basis.shape[1], order)
    return reml(basis.T @ basis, penalty, basis.T @ y, y @ y, len(y), order)


def spread_around(bins, residual):
    """Root mean square over a tenth of the rows, at least 50, around each bin; (B,)."""
    order = np.argsort(bins.index, kind="stable")
    square = (bins.sums(residual[:, None] ** 2)[:, 0] / bins.count)[bins.index[order]]
    n, start = len(order), np.arange(len(order))
    reach = max(0.05 * n, 25.0)
    out = []
    for b in range(len(bins.at)):
        middle = np.flatnonzero(bins.index[order] == b).mean() + 0.5
        low = min(max(middle - reach, 0.0), n - 2 * reach)
        overlap = np.clip(np.minimum(start + 1, low + 2 * reach) - np.maximum(start, low), 0, 1)
        out.append(np.sqrt(overlap @ square / overlap.sum()))
    return np.array(out)


def row_weights(bins):
    """Inverse variances around each row, from differences of rows that are neighbours in x."""
    order = np.argsort(bins.x)
    step = np.diff(bins.y[order, 0]) / np.sqrt(2.0)
    difference = np.empty(len(order))
    difference[order] = np.append(step, step[-1])
    spread = spread_around(bins, difference)
    return np.clip((np.median(spread) / spread) ** 2, 0.05, 20.0)[bins.index]


def plain_dense(bins, order, divide=1.0, least=0.0, size=None):
    """S = B (B'WB + lam P)^-1 B'W on rows at their bins' places, and what makes S of points."""
    size = size or spline_coefficients(bins)
    basis, weight = dense_basis(bins, bins.at[bins.index], size), row_weights(bins)
    root = np.sqrt(weight)
    penalty = difference_penalty(size, order)
    y = bins.y[:, 0] - bins.y[:, 0].mean()
    lam = dense_reml(basis * root[:, None], y * root, order)

    def right():
        gram = (basis.T * weight) @ basis
        return np.linalg.solve(gram + lam * penalty, basis.T * weight)

    # most coefficients in use: twice as many
    if np.trace(basis @ right()) > {1: 0.85, 2: 0.75}[order] * size and 2 * size <= min(
        300, len(bins.at)
    ):
        return plain_dense(bins, order, divide, least, 2 * size)
    lam /= divide
    while np.trace(basis @ right()) < least:
        lam /= 2.0
    return basis @ right(), right()


def undersmoothed(bins, order):
    return plain_dense(bins, 2, 4.0, 6.0) if order == 2 else plain_dense(bins, 1)


def dense_smoother(kind, bins, grid):
    if kind == "local_polynomial":
        (h,) = lp.gcv_bandwidth(bins)
        return dense_local(bins.x, grid, h, 2), dense_local(bins.x, bins.x, h, 2), 3.0
    order = 2 if kind == "spline" else 1
    once, right = undersmoothed(bins, order)
    twice = 2.0 * np.eye(len(once)) - once
    on_grid = dense_basis(bins, grid, len(right)) @ right
    return on_grid @ twice, once @ twice, order + 1.0


def curve(sample, method, level, rng):
    """The band of a curve of the method's kind, or the one that auto chooses."""
    make = auto_curve if method.kind == "auto" else named(BANDS, method.kind)
    return make(sample, method, level, rng)


# Rows to make bands of, shared by the tests of bands.


CURVES = ("local_polynomial", "spline", "lipschitz")
SEED = st.integers(0, 2**32 - 1)
SMALL = {"grid": 40, "draws": 400}


def generator(seed=0):
    return np.random.default_rng(seed)


def sample_of(x, y=None, units=20):
    """One input and any number of outcomes, zero if none are given; the units are equally large."""
    x = np.asarray(x, dtype=float)
    y = np.zeros(len(x)) if y is None else np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    unit = np.arange(len(x)) * units // max(len(x), 1)
    return Sample(x[:, None], y, unit, ("past",), tuple(f"w{j}" for j in range(y.shape[1])))


def own_bins(n=120, seed=0, units=20):
    """Rows so evenly spread that each is alone in its bin, in a random order."""
    rng = generator(seed)
    x = rng.permutation((np.arange(n) + 0.3 + 0.4 * rng.random(n)) / n * 4.0 - 2.0)
    y = np.sin(2.0 * x) + (0.1 + 0.1 * np.abs(x)) * rng.standard_normal(n)
    bins = bin_rows(sample_of(x, y, units), 0.98)
    assert len(bins.at) == n
    return bins


def many_rows(n=4000, seed=0):
    rng = generator(seed)
    x = rng.uniform(-1.0, 1.0, n)
    return bin_rows(sample_of(x, np.sin(4.0 * x) + 0.1 * rng.standard_normal(n)), 0.98)


def bent(x, slope):
    return x + slope * np.abs(x)


def kinked(rng, n, slope):
    x = rng.uniform(-1.0, 1.0, n)
    return sample_of(x, bent(x, slope) + 0.1 * rng.standard_normal(n))


def sample(x, y, unit):
    """Several inputs and outcomes, rows of the units given."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    x_names = tuple(f"lag {k}" for k in range(x.shape[1]))
    return Sample(x, y, np.asarray(unit), x_names, tuple(f"w{j}" for j in range(y.shape[1])))


def world(curve, seed, units=20, rows=20, p=2, sd=0.3, draw="uniform"):
    """Rows with mean ``curve(x)``, x uniform on [-1, 1] or normal, independent noise."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), rows)
    shape = (len(unit), p)
    x = rng.uniform(-1, 1, shape) if draw == "uniform" else rng.standard_normal(shape)
    return sample(x, curve(x) + sd * rng.standard_normal(len(unit)), unit)


def a_sum(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


def lines(x):
    return 1.0 + x @ np.arange(2.0, 2 + x.shape[1])


# Linear worlds and their bands, by the package and by dense least squares.


SCHEFFE = BandMethod("linear", noise="rows", critical="scheffe")


def draw(rng, units=20, rows=10, p=3, q=1, intercept=0.0):
    """A linear world: rows of units, slopes 1 .. p, noise of sd 1 and random intercepts."""
    unit = np.repeat(np.arange(units), rows)
    x = rng.standard_normal((len(unit), p)) + np.arange(p)
    noise = rng.standard_normal((len(unit), q)) + intercept * rng.standard_normal((units, q))[unit]
    return sample(x, truth(x)[:, None] + noise, unit)


def truth(x):
    return 5.0 + x @ np.arange(1.0, x.shape[1] + 1)


def made(s, seed=1, level=0.95, **options):
    return linear(s, BandMethod("linear", **options), level, np.random.default_rng(seed))


def with_ones(x):
    return np.column_stack([np.ones(len(x)), x])


def left_out(hat, residual, unit):
    """What each unit would leave if its own rows had no part in the fit, (n,)."""
    out = residual.copy()
    for c in np.unique(unit):
        at = unit == c
        out[at] = np.linalg.solve(np.eye(at.sum()) - hat[np.ix_(at, at)], residual[at])
    return out


def dense(s, noise):
    """Least squares in the raw regressors (1, x), HC3 or the jackknife over units, with loops."""
    b, y = with_ones(s.x), s.y[:, 0]
    coef = np.linalg.lstsq(b, y, rcond=None)[0]
    bread = np.linalg.inv(b.T @ b)
    psi = np.array(
        [
            bread @ row * (target - row @ coef) / (1 - row @ bread @ row)
            for row, target in zip(b, y, strict=True)
        ]
    )
    if noise == "units":
        units = np.unique(s.unit)
        less = [np.linalg.lstsq(b[s.unit != c], y[s.unit != c], rcond=None)[0] for c in units]
        psi = (coef - np.array(less)) * np.sqrt(1 - 1 / len(units))
    return coef, sum(np.outer(row, row) for row in psi)
