"""Studentised suprema of skewed noise."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.polynomial.legendre import legvander
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro._core.errors import SettingError
from pulse_pyro.bands import critical
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.basis import _redrawn_rows, _redrawn_units, fit_basis
from pulse_pyro.bands.bins import (
    MOST_ROWS,
    Weights,
    bin_rows,
    local_spread,
    skew_ratio,
    studentised_sup,
    studentised_units,
)
from tests.bands.helpers import draw, generator, made, sample, sample_of
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
        t = reach @ y / np.sqrt(reach**2 @ left**2)
        out.append((t.max(), -t.min()))
    return np.array(out).T


def test_studentised_suprema_are_those_of_refitted_draws():
    bins, w, scaled = skewed_rows()
    picks = generator(32).integers(90, size=(90, 300))
    given = SimpleNamespace(integers=lambda n, size: picks)
    drawn = studentised_sup(bins, [w], scaled[:, None], 300, given)
    assert_allclose(drawn, refitted_sup(bins, scaled, picks), rtol=1e-8)


def test_studentised_suprema_of_skewed_noise_reach_beyond_the_normal_ones():
    bins, w, scaled = skewed_rows()
    drawn = studentised_sup(bins, [w], scaled[:, None], 1000, generator(33)).max(0)
    gaussian = critical.multiplier_sup((w.grid[:, bins.index] * scaled).T, 4000, generator(34))
    assert stats.ks_2samp(drawn, gaussian).pvalue < FALSE_ALARM
    assert critical.quantile(drawn, 0.95) > critical.quantile(gaussian, 0.95)


def test_a_repeated_coordinate_does_not_raise_the_studentised_supremum():
    bins, w, scaled = skewed_rows()
    one = studentised_sup(bins, [w], scaled[:, None], 200, generator(35))
    two = studentised_sup(bins, [w, w], np.stack([scaled, -scaled], 1), 200, generator(35))
    assert_allclose(two[0], one.max(0))
    assert_allclose(two[1], one.max(0))


def test_redrawn_units_of_a_curve_are_t_statistics_of_their_sums():
    bins, w, scaled = skewed_rows()
    units = np.unique(bins.unit)
    psi = np.stack([w.grid[:, bins.index[at]] @ scaled[at] for at in bins.unit == units[:, None]])
    psi -= psi.mean(0)
    times = generator(36).multinomial(len(units), np.full(len(units), 1 / len(units)), size=30)
    given = SimpleNamespace(multinomial=lambda n, p, size: times)
    found = studentised_units(bins, [w], scaled[:, None], 30, given)
    for k, count in enumerate(times):
        drawn = np.repeat(psi, count, axis=0)
        t = drawn.mean(0) / (drawn.std(0, ddof=1) / np.sqrt(len(units)))
        assert_allclose(found[:, k], [t.max(), -t.min()], rtol=1e-8)


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


# the same for bands in a basis of several inputs


def in_basis(noise, y=None):
    """Least squares on (1, x, x^2): 120 rows of 24 units, noise skewed and larger at large x."""
    rng = generator(41)
    x = rng.uniform(-1.0, 1.0, 120)
    b = np.vander(x, 3, increasing=True)
    y = (rng.exponential(size=120) - 1.0) * np.exp(x) if y is None else y
    unit = np.repeat(np.arange(24), 5)
    inner = (np.linalg.inv(b.T @ b),)
    fit = fit_basis(b, y[:, None], unit, inner, BandMethod(noise=noise), 3)
    return fit, np.vander(np.linspace(-0.9, 0.9, 7), 3, increasing=True), unit


def test_redrawn_rows_of_a_basis_are_those_of_refitted_draws():
    fit, points, _ = in_basis("rows")
    picks = generator(42).integers(120, size=(120, 50))
    above, below = _redrawn_rows(fit, points, 50, SimpleNamespace(integers=lambda n, size: picks))
    spread = fit.spread(0)
    standard = fit.scaled[:, 0] / spread
    standard = standard - standard.mean()
    for k, pick in enumerate(picks.T):
        y = standard[pick] * spread
        coef = np.linalg.lstsq(fit.b, y, rcond=None)[0]
        inner = np.linalg.inv(fit.b.T @ fit.b)
        left = (y - fit.b @ coef) / (1.0 - np.einsum("ij,jk,ik->i", fit.b, inner, fit.b))
        weights = points @ inner @ fit.b.T
        t = points @ coef / np.sqrt(weights**2 @ left**2)
        assert above[k, 0] == pytest.approx(t.max(), rel=1e-8)
        assert below[k, 0] == pytest.approx(-t.min(), rel=1e-8)


def test_redrawn_units_of_a_basis_are_t_statistics_of_their_scores():
    fit, points, unit = in_basis("units")
    psi = points @ np.linalg.inv(fit.b.T @ fit.b) @ (fit.b * fit.scaled).T
    psi = np.stack([psi[:, unit == c].sum(1) for c in range(24)], axis=1)  # (7, 24)
    psi -= psi.mean(1, keepdims=True)
    picks = generator(43).integers(24, size=(40, 24))
    times = np.stack([np.bincount(p, minlength=24) for p in picks])
    given = SimpleNamespace(multinomial=lambda n, p, size: times)
    above, below = _redrawn_units(fit, points, 40, given)
    for k, pick in enumerate(picks):
        t = psi[:, pick].mean(1) / (psi[:, pick].std(1, ddof=1) / np.sqrt(24))
        # the sandwich divides by N, not by N - 1, before its factor N / (N - 1)
        assert above[k, 0] == pytest.approx(t.max(), rel=1e-8)
        assert below[k, 0] == pytest.approx(-t.min(), rel=1e-8)


def test_skewness_of_a_mean_has_its_worked_value():
    # skewness 1.5 as above, less two standard errors, over the root of 200 rows
    y = np.tile([4.0, -1.0, -1.0, -1.0, -1.0], 40)
    b, unit = np.ones((200, 1)), np.arange(200) // 10
    one = (np.array([[1 / 200]]),)
    fit = fit_basis(b, y[:, None], unit, one, BandMethod(noise="rows"), 1)
    expected = (1.5 - 2 * np.sqrt(6 / 200)) / np.sqrt(200)
    assert fit.skewness == pytest.approx(expected, rel=1e-9)
    by_unit = fit_basis(b, y[:, None], unit, one, BandMethod(noise="units"), 1)
    assert by_unit.skewness == pytest.approx(expected * np.sqrt(200 / 19), rel=1e-9)
    even = fit_basis(b, np.tile([1.0, -1.0], 100)[:, None], unit, one, BandMethod(), 1)
    assert even.skewness == 0.0


@pytest.mark.parametrize("noise", ["rows", "units"])
def test_skewed_noise_widens_a_linear_band_and_normal_noise_does_not(noise):
    s = draw(generator(44), units=30, rows=10, p=3)
    skewed = sample(s.x, np.exp(1.2 * generator(45).standard_normal(300)), s.unit)
    plain, wider = (made(skewed, noise=noise, critical=c) for c in ("simulate", "auto"))
    assert wider.skewness > 0.05
    assert "bootstrap t" in wider.band.made[0]
    assert "bootstrap t" not in plain.band.made[0]
    assert wider.band.at(s.x).half.mean() > 1.1 * plain.band.at(s.x).half.mean()
    normal = made(s, noise=noise)
    assert normal.skewness < 0.05
    assert "bootstrap t" not in normal.band.made[0]


def test_a_linear_band_covers_skewed_noise_by_bootstrap_t():
    hits = {"simulate": 0, "auto": 0}
    for r in range(40):
        rng = generator([46, r])
        x = rng.uniform(-1.0, 1.0, (300, 3))
        y = x.sum(1) + np.exp(1.2 * rng.standard_normal(300)) - np.exp(0.72)
        for how in hits:
            options = {"noise": "rows", "critical": how, "draws": 500}
            band = made(sample(x, y, np.arange(300) // 10), **options).band
            centre, half, _ = band.at(x)
            hits[how] += (np.abs(centre[:, 0] - x.sum(1)) <= half[:, 0]).all()
    assert hits["auto"] >= stats.binom.ppf(FALSE_ALARM, 40, 0.95)
    assert hits["auto"] >= hits["simulate"]
