"""Uniform coverage of the tensor band of two inputs: `make studies` prints the table.

One cell a test, so that a long run can be taken up again with -k.
"""

import os
import sys

import numpy as np
import pytest

from pulse_pyro import stream
from pulse_pyro.bands.band import BandMethod, Sample
from pulse_pyro.bands.tensor import tensor
from tests.studies.replications import in_parallel

REPS = int(os.environ.get("PULSE_REPS", "400"))
BAR = 0.925  # at level 95 %
SD = 0.3
TRUTHS = {
    "smooth": lambda x: np.sin(2 * x[:, 0]) * x[:, 1] + 0.5 * x[:, 0],
    "wiggly": lambda x: 0.6 * np.cos(3 * x[:, 0]) * np.cos(3 * x[:, 1]),
    "ridge |x1 - x2|": lambda x: np.abs(x[:, 0] - x[:, 1]),
    "ridge |x1 + x2|": lambda x: np.abs(x[:, 0] + x[:, 1]),
    "two ridges": lambda x: np.abs(x[:, 0]) + np.abs(x[:, 1] - 0.3),
    "cone": lambda x: np.sqrt((x**2).sum(1)),
}
NOISES = {"iid": (30, 100), "AR(.7)": (100, 30), "intercept": (100, 30)}


def archive(truth, noise, rng, draw="uniform"):
    """3,000 rows of two inputs; noise of sd .3, alone or dependent within units."""
    units, rows = NOISES[noise]
    shape = (units * rows, 2)
    x = rng.uniform(-1, 1, shape) if draw == "uniform" else rng.standard_normal(shape)
    shock = rng.standard_normal((units, rows))
    if noise == "AR(.7)":
        for t in range(1, rows):
            shock[:, t] = 0.7 * shock[:, t - 1] + np.sqrt(1 - 0.49) * shock[:, t]
    if noise == "intercept":
        shock = np.sqrt(0.6) * shock + np.sqrt(0.4) * rng.standard_normal((units, 1))
    y = TRUTHS[truth](x) + SD * shock.ravel()
    return Sample(x, y[:, None], np.repeat(np.arange(units), rows), ("x1", "x2"), ("w",))


def rep(job):
    """Covered at each level, then of the last: mean half, J, a ridge shown, share inside."""
    truth, noise, draw, levels, number = job
    sample = archive(truth, noise, stream(0, "tensor", truth, noise, draw, number), draw)
    side = np.linspace(-1, 1, 61) * (1.0 if draw == "uniform" else 2.4)
    points = np.stack([a.ravel() for a in np.meshgrid(side, side)], axis=1)
    out = []
    for level in levels:
        fit = tensor(sample, BandMethod("tensor"), level, stream(0, "band", number))
        centre, half, inside = fit.band.at(points)
        wrong = np.abs(centre[:, 0] - TRUTHS[truth](points))
        out.append((wrong <= half[:, 0])[inside].all())
    size = len(fit.band.shape.smooth.coef)
    return [*out, half[inside].mean(), size, fit.roughness < 0.2, inside.mean()]


def coverage(truth, noise, draw, reps, levels=(0.95,)):
    """Print one line of the table and return the coverage at the last level."""
    jobs = [(truth, noise, draw, levels, r) for r in range(reps)]
    found = np.array(in_parallel(rep, jobs)).mean(0)
    half, size, ridge, inside = found[len(levels) :]
    covered = "  ".join(f"{a:.0%}: {c:6.1%}" for a, c in zip(levels, found, strict=False))
    print(
        f"tensor {truth:16} {noise:10} {draw:8} {covered}  r {half:.3f}  J {size:5.1f}  "
        f"ridge shown {ridge:4.0%}  inside {inside:4.0%}  of {reps}",
        flush=True,
    )
    return found[len(levels) - 1]


@pytest.mark.parametrize("draw", ["uniform", "normal"])
@pytest.mark.parametrize("noise", list(NOISES))
@pytest.mark.parametrize("truth", list(TRUTHS))
def test_the_tensor_band_covers_uniformly(truth, noise, draw):
    assert coverage(truth, noise, draw, REPS) >= BAR


if __name__ == "__main__":
    for cell in sys.argv[2:]:
        coverage(*cell.split(","), int(sys.argv[1]), (0.95,))
