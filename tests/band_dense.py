"""Smoothers of curves recomputed with full matrices, row by row."""

import numpy as np
from scipy.interpolate import BSpline

from pulse_pyro.bands import local_polynomial as lp
from pulse_pyro.bands.spline import coefficients, difference_penalty, knots_for, reml


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
    knots = knots_for(bins, size or coefficients(bins))
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
    size = size or coefficients(bins)
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
