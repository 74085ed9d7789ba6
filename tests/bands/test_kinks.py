"""Kinks: when one is seen, and which band follows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.bins import bin_rows
from pulse_pyro.bands.kinks import GATE, kink_p
from tests.bands.helpers import (
    CURVES,
    SMALL,
    bent,
    curve,
    generator,
    kinked,
    own_bins,
    plain_dense,
    sample_of,
)
from tests.helpers import FALSE_ALARM, binomial_floor


def fires(rng, trials, n, slope):
    p = [kink_p(bin_rows(kinked(rng, n, slope), 0.98), "rows") for _ in range(trials)]
    return (np.array(p) < GATE).sum()


def test_a_strong_kink_is_seen_and_a_straight_line_is_not_taken_for_one():
    assert fires(generator(14), 10, 2400, 30.0) >= binomial_floor(10, 0.95)
    assert fires(generator(15), 50, 300, 0.0) <= stats.binom.isf(FALSE_ALARM, 50, GATE)


@pytest.mark.parametrize("noise", ["rows", "units"])
@pytest.mark.parametrize("slope", [0.0, 0.5, 2.0])
def test_the_kinks_p_value_is_its_dense_recomputation(noise, slope):
    bins = own_bins(seed=27)
    x, n = bins.x, len(bins.x)
    y = bent(x, slope) + (0.1 + 0.1 * np.abs(x)) * generator(28).standard_normal(n)
    bins = replace(bins, y=y[:, None])
    left_over = np.eye(n) - plain_dense(bins, 2)[0]
    knots = np.linspace(*bins.domain, 34)[1:-1]
    hinges = left_over @ np.abs(x[:, None] - knots)
    residual = left_over @ y
    score = hinges.T @ residual
    psi = (left_over.T @ hinges) * residual[:, None]
    if noise == "units":
        psi = np.stack([psi[bins.unit == u].sum(0) for u in np.unique(bins.unit)])
    sd = np.sqrt((psi**2).sum(0))
    r = psi.T @ psi / sd / sd[:, None]
    kappa = np.arccos(np.clip(np.diagonal(r, 1), -1.0, 1.0)).sum()
    c = np.abs(score / sd).max()
    p = min(kappa / np.pi * np.exp(-(c**2) / 2.0) + 2.0 * stats.norm.sf(c), 1.0)
    assert kink_p(bins, noise) == pytest.approx(p, rel=1e-5)


def test_the_kinkiest_coordinate_decides():
    rng = generator(15)
    x = np.linspace(-1.0, 1.0, 400)
    y = np.stack([x, 3.0 * np.abs(x)], axis=1) + 0.1 * rng.standard_normal((400, 2))
    both = bin_rows(sample_of(x, y), 0.98)
    each = [kink_p(bin_rows(sample_of(x, column), 0.98), "rows") for column in y.T]
    assert each[0] != pytest.approx(each[1])
    assert kink_p(both, "rows") == pytest.approx(2 * min(each))  # Bonferroni


@pytest.mark.parametrize(("n", "smooth"), [(1996, "spline"), (2400, "local_polynomial")])
def test_auto_puts_both_bands_together_for_a_kink_and_takes_the_smooth_one_for_a_line(n, smooth):
    method = BandMethod(critical="tube", grid=40)
    s = kinked(generator(16), n, 30.0)
    kink = curve(s, method, 0.9, generator())
    assert kink.band.kind == "lipschitz"
    assert kink.roughness == kink_p(bin_rows(s, 0.98), kink.band.noise) < GATE
    at = np.linspace(-1.0, 1.0, 20)
    centre, half, _ = kink.band.at(at)
    for kind in ("lipschitz", smooth):  # it holds the smooth one too, whose kink may be chance
        one, own, _ = curve(s, replace(method, kind=kind), 0.9, generator()).band.at(at)
        assert (centre - half <= one - own + 1e-12).all()
        assert (centre + half >= one + own - 1e-12).all()
    x = np.linspace(-1.0, 1.0, n)
    line = sample_of(x, x + np.tile([0.1, -0.1, -0.1, 0.1], n // 4))
    fit = curve(line, method, 0.9, generator())
    assert fit.band.kind == smooth
    assert fit.roughness >= GATE


@pytest.mark.parametrize("kind", CURVES)
def test_a_named_band_is_made_whatever_the_kink(kind):
    fit = curve(kinked(generator(17), 300, 30.0), BandMethod(kind, **SMALL), 0.9, generator())
    assert fit.band.kind == kind
    assert np.isnan(fit.roughness)
