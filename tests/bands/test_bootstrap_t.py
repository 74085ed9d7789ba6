"""Studentised suprema of skewed noise."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.polynomial.legendre import legvander
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro._core.errors import SettingError
from pulse_pyro.bands import critical
from pulse_pyro.bands.bins import (
    MOST_ROWS,
    Weights,
    bin_rows,
    local_spread,
    skew_ratio,
    studentised_sup,
)
from tests.bands.helpers import generator, sample_of
from tests.helpers import FALSE_ALARM, z_bound


def skewed_rows(n=90):
    """A curve of 9 coefficients around noise that is skewed and grows with x."""
    rng = generator(31)
    x = np.sort(rng.uniform(-1.0, 1.0, n))
    bins = bin_rows(sample_of(x), 1.0)
    grid = np.linspace(-0.9, 0.9, 12)
    design = legvander(bins.at, 8)
    right = np.linalg.solve((design.T * bins.count) @ design, design.T)
    w = Weights(legvander(grid, 8) @ right, design @ right, "least squares", 9.0)
    noise = (rng.exponential(size=n) - 1.0) * np.exp(x)
    residual = noise - (w.hat @ bins.sums(noise[:, None])[:, 0])[bins.index]
    return bins, w, residual / (1.0 - w.leverage()[bins.index])


def refitted_sup(bins, scaled, picks):
    """The same by refitting every draw to all rows, one by one."""
    design = legvander(bins.at[bins.index], 8)
    inverse = np.linalg.inv(design.T @ design)
    leverage = ((design @ inverse) * design).sum(1)
    reach = legvander(np.linspace(-0.9, 0.9, 12), 8) @ inverse @ design.T
    spread = local_spread(bins, scaled)[bins.index]
    standard = scaled / spread - (scaled / spread).mean()
    out = []
    for pick in picks.T:
        y = standard[pick] * spread
        left = (y - design @ (inverse @ (design.T @ y))) / (1.0 - leverage)
        out.append(np.max(np.abs(reach @ y) / np.sqrt(reach**2 @ left**2)))
    return np.array(out)


def test_studentised_suprema_are_those_of_refitted_draws():
    bins, w, scaled = skewed_rows()
    picks = generator(32).integers(90, size=(90, 300))
    given = SimpleNamespace(integers=lambda n, size: picks)
    drawn = studentised_sup(bins, [w], scaled[:, None], 300, given)
    assert_allclose(drawn, refitted_sup(bins, scaled, picks), rtol=1e-8)


def test_studentised_suprema_of_skewed_noise_reach_beyond_the_normal_ones():
    bins, w, scaled = skewed_rows()
    drawn = studentised_sup(bins, [w], scaled[:, None], 1000, generator(33))
    gaussian = critical.multiplier_sup((w.grid[:, bins.index] * scaled).T, 4000, generator(34))
    assert stats.ks_2samp(drawn, gaussian).pvalue < FALSE_ALARM
    assert critical.quantile(drawn, 0.95) > critical.quantile(gaussian, 0.95)


def test_a_repeated_coordinate_does_not_raise_the_studentised_supremum():
    bins, w, scaled = skewed_rows()
    one = studentised_sup(bins, [w], scaled[:, None], 200, generator(35))
    two = studentised_sup(bins, [w, w], np.stack([scaled, -scaled], 1), 200, generator(35))
    assert_allclose(two, one)


def test_too_many_rows_for_the_studentised_bootstrap_are_refused():
    many = SimpleNamespace(x=np.zeros(MOST_ROWS + 1))
    with pytest.raises(SettingError, match=f'got {MOST_ROWS + 1}, use critical="simulate"'):
        studentised_sup(many, [], np.zeros((MOST_ROWS + 1, 1)), 100, generator())


def test_skewness_over_the_root_of_the_local_size_has_its_worked_value():
    # (4, -1, -1, -1, -1) has variance 4 and skewness 1.5, in every window of 50 rows
    lopsided, even = np.tile([4.0, -1.0, -1.0, -1.0, -1.0], 40), np.tile([1.0, -1.0], 100)
    bins = bin_rows(sample_of(np.arange(200.0)), 1.0)
    nu = np.full((2, 5), 225.0)
    assert skew_ratio(bins, lopsided[:, None], nu[:1]) == pytest.approx(0.1, rel=1e-9)
    assert skew_ratio(bins, even[:, None], nu[:1]) == pytest.approx(0.0, abs=1e-9)
    assert skew_ratio(bins, np.stack([even, -lopsided], 1), nu) == pytest.approx(0.1, rel=1e-9)


def test_a_scale_that_changes_with_x_is_not_taken_for_skewness():
    rng = generator(37)
    x = np.linspace(-1.0, 1.0, 2000)
    noise = np.exp(2.0 * x) * rng.standard_normal(2000)
    bins = bin_rows(sample_of(x), 1.0)
    spread = np.sqrt(6.0 / 2000) * z_bound()
    assert skew_ratio(bins, noise[:, None], np.ones((1, 1))) <= spread
