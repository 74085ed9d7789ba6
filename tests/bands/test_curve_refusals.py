"""What bands of curves refuse, and what they must live with."""

import numpy as np
import pytest

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands.band import BandMethod
from tests.bands.helpers import CURVES, SMALL, curve, generator, sample_of


def noisy(n=200, seed=22):
    rng = generator(seed)
    x = rng.standard_normal(n)
    return x, np.sin(x) + 0.2 * rng.standard_normal(n)


def made(s, **options):
    return curve(s, BandMethod(**{"kind": "spline", **SMALL, **options}), 0.9, generator())


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_a_constant_summary_is_refused(kind):
    with pytest.raises(DataError, match=r"'past' .* varies"):
        made(sample_of(np.full(200, 3.0), noisy()[1]), kind=kind)


@pytest.mark.parametrize("kind", CURVES)
def test_ten_levels_are_enough_and_nine_are_not(kind):
    rng = generator(23)
    y = 0.1 * rng.standard_normal(360)
    with pytest.raises(DataError, match="only 9 places"):
        made(sample_of(np.arange(360) % 9, y), kind=kind)
    band = made(sample_of(np.arange(360) % 10, y), kind=kind).band
    assert np.isfinite(band.at(np.linspace(0.0, 9.0, 50)).half).all()


@pytest.mark.parametrize("kind", CURVES)
def test_duplicated_contexts_do_no_harm(kind):
    rng = generator(24)
    x = np.repeat(rng.standard_normal(40), 10)
    truth = np.sin(x)
    band = made(sample_of(x, truth + 0.1 * rng.standard_normal(400)), kind=kind).band
    found = band.at(x[(x > band.shape.grid[0]) & (x < band.shape.grid[-1])])
    assert np.isfinite(found.centre).all()
    assert (found.half > 0).all()


@pytest.mark.parametrize("kind", CURVES)
def test_a_gap_in_the_summary_gives_a_wide_band_not_an_error(kind):
    rng = generator(25)
    x = np.r_[rng.normal(-10.0, 0.3, 200), rng.normal(10.0, 0.3, 200)]
    band = made(sample_of(x, np.cos(x) + 0.1 * rng.standard_normal(400)), kind=kind).band
    ends, middle = band.at(np.array([-10.0, 10.0])).half, band.at(np.array([-5.0, 5.0])).half
    assert middle.min() > 3.0 * ends.max()


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_fewer_than_sixty_rows_are_refused(kind):
    x, y = noisy(59)
    with pytest.raises(DataError, match=r"59 held-out rows .* at least 60"):
        made(sample_of(x, y, 10), kind=kind, domain=1.0)
    x, y = noisy(60)
    assert made(sample_of(x, y, 10), kind=kind, domain=1.0).band.rows == 60


def test_too_few_rows_in_a_narrow_domain_are_refused():
    x, y = noisy(200)
    with pytest.raises(DataError, match=r"held-out rows lie in the central range.* at least 60"):
        made(sample_of(x, y), domain=0.15)


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_a_one_point_domain_is_refused(kind):
    x, y = noisy(200)
    with pytest.raises(DataError):
        made(sample_of(x, y), kind=kind, domain=1e-9)


@pytest.mark.parametrize("kind", ["auto", *CURVES])
@pytest.mark.parametrize(
    "function",
    [np.zeros_like, lambda v: 0.0 * v + 3.3, lambda v: v, lambda v: 7.0 - 1e5 * v],
    ids=["zero", "constant", "copy", "line"],
)
def test_an_outcome_without_noise_is_refused(kind, function):
    x, _ = noisy(300)
    with pytest.raises(DataError, match="no noise around its curve"):
        made(sample_of(x, function(x)), kind=kind)


def test_four_units_are_refused():
    with pytest.raises(DataError, match="at least 5 held-out units"):
        made(sample_of(*noisy(), units=4))


def test_clustering_nine_units_is_refused():
    with pytest.raises(DataError, match=r'noise="units" needs at least 10 .* got 9'):
        made(sample_of(*noisy(), units=9), noise="units")


def test_the_studentised_bootstrap_keeps_units_where_they_are_asked_for():
    band = made(sample_of(*noisy()), noise="units", critical="bootstrap_t").band
    assert band.noise == "units"
    assert "bootstrap t" in band.made[0]


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_scheffe_is_refused_for_curves(kind):
    with pytest.raises(SettingError, match=r'"scheffe" is for kind="linear"'):
        made(sample_of(*noisy()), kind=kind, critical="scheffe")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "splines"}, "kind 'splines' is not known; did you mean 'spline'"),
        ({"kind": "local_polynominal"}, "did you mean 'local_polynomial'"),
        ({"kind": "Lipschitz"}, "did you mean 'lipschitz'"),
        ({"kind": "quantum"}, "kind 'quantum' is not known; known: 'auto'"),
        ({"noise": "unit"}, "noise 'unit' is not known; did you mean 'units'"),
        ({"critical": "tubes"}, "did you mean 'tube'"),
        ({"coordinates": "joints"}, "did you mean 'joint'"),
        ({"domain": 0.0}, r"domain must lie in \(0, 1\], but got 0.0"),
        ({"domain": -0.5}, r"domain must lie in \(0, 1\]"),
        ({"domain": 1.01}, r"domain must lie in \(0, 1\]"),
        ({"domain": float("nan")}, r"domain must lie in \(0, 1\]"),
        ({"domain": "wide"}, r"domain must lie in \(0, 1\]"),
        ({"grid": 9}, "grid must be a whole number >= 10, but got 9"),
        ({"grid": 40.0}, "grid must be a whole number"),
        ({"draws": 99}, "draws must be a whole number >= 100, but got 99"),
        ({"draws": True}, "draws must be a whole number"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_a_sentence(options, words):
    with pytest.raises(SettingError, match=f"BandMethod: .*{words}"):
        BandMethod(**options)
