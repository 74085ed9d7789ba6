"""Inputs that are not seen: averaged over given the seen ones, for laws that are not affine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Float2, Float3
from pulse_pyro.laws.scaling import GaussianInputs

NODES = 64  # completions of a row
CHUNK = 2**22  # values in flight: 32 MiB


def average(
    x: Float2, inputs: GaussianInputs, predict: Callable[[Float2], Float3], size: int,
    columns: int,
) -> Float3:  # fmt: skip
    """Return E[predict(x) | seen inputs], (size, n, w_dim), for rows x (n, p) with NaN.

    Quadrature over 64 fixed quasi-random completions of each row, so that the same row always
    gives the same answer; its error is not Monte Carlo error and is not reported. Exact for
    affine predictions: the nodes have mean 0. columns : values a prediction needs for each row,
    to bound memory.
    """
    p = x.shape[1]
    points = stats.qmc.Sobol(p, seed=np.random.default_rng(0)).random(NODES)
    noise = stats.norm.ppf(points)
    noise = ((noise - noise.mean(0)) / noise.std(0))[:, None]
    out = []
    block = max(CHUNK // (NODES * max(p, size, columns)), 1)
    for start in range(0, len(x), block):
        full = inputs.complete(x[start : start + block], noise)
        values = predict(full.reshape(-1, p))
        out.append(values.reshape(size, NODES, -1, values.shape[-1]).mean(1))
    return np.concatenate(out, axis=1)
