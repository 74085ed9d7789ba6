"""A calibration that was saved answers as before, to the last bit, whatever its band and law."""

import json
from functools import cache

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro.bands.band import BandMethod, Sample
from pulse_pyro.calibration.halving import halvings
from tests.calibration.helpers import BENT, NOT_AFFINE, W_FEATURES, Guess, one_input
from tests.helpers import draws_at, linear_history, mean_at

TWO_W = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(s)), w[:, 0] + a * w[:, 1], s[:, 0] * w[:, 1]]),
    2,
    ("1", "sum", "S w1"),
)


def model(x, w=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = (slope[..., None] * x[..., 0]).unsqueeze(-1)
        pyro.sample("w", dist.Normal(mean, 0.2).to_event(1), obs=w)


CUSTOM = pp.Law(model, pp.data.Identity(), "mine")


@cache
def parts(lags, w_dim=1, units=40, clock=False):
    history, _ = linear_history(units=units, time=20, lags=lags, w_dim=w_dim)
    if clock:  # inputs that repeat each other
        hour = np.arange(20)[None, :, None] * np.ones((units, 1, 1)) / 4
        s = np.concatenate([history.grid.s, np.sin(hour), np.cos(hour)], axis=-1)
        names = ("s", "sin", "cos")
        history = pp.History.from_arrays(
            s,
            history.grid.w,
            seen=history.grid.seen,
            units=history.units,
            s_names=names,
            w_names=history.w_names,
        )
    return history.split(seed=0)


def made(band, lags=1, w_dim=1, features=W_FEATURES, law=None, clock=False, **more):
    def calibration():
        own, held_out = parts(lags, w_dim, clock=clock)
        fitted = (law or pp.linear_lags(lags)).fit(own, seed=0)
        method = BandMethod(band, grid=60, draws=300, **more)
        return pp.calibrate(fitted, held_out, features, seed=1, band=method)

    return calibration


def ridge():
    own, held_out = parts(2)
    fitted = pp.linear_lags(2).fit(own, seed=0)
    rows = held_out.rows(fitted.summary)
    sample = Sample(rows.x, rows.w, rows.unit, rows.x_names, held_out.w_names)
    band = pp.bands.ridge_band(sample, level=0.95, noise_sd=0.1)
    return pp.calibrate(fitted, held_out, W_FEATURES, seed=1, band=band)


def everything():
    own, _ = parts(2)
    fitted = pp.linear_lags(2).fit(own, seed=0)
    return pp.calibration.all_units(fitted, own, W_FEATURES, seed=1, band="linear")


def cross():
    history = linear_history(units=40, time=20, lags=2)[0]
    found = pp.calibration.crossfit(
        pp.linear_lags(2), history, W_FEATURES, seed=4, band=BandMethod("linear", draws=300)
    )
    return found.calibration


CASES = {
    "local_polynomial": made("local_polynomial"),
    "spline": made("spline"),
    "lipschitz": made("lipschitz"),
    "auto": made("auto"),
    "tube": made("spline", critical="tube", noise="rows"),
    "bootstrap_t": made("spline", critical="bootstrap_t", noise="rows"),
    "linear": made("linear", lags=4),
    "scheffe": made("linear", lags=4, critical="scheffe"),
    "linear, inputs that repeat": made("linear", lags=3, clock=True),
    "linear, two W": made("linear", lags=3, w_dim=2, features=TWO_W),
    "additive": made("additive", lags=2),
    "single_index": made("single_index", lags=3, w_dim=2, features=TWO_W),
    "ridge": ridge,
    "all": everything,
    "crossfit": cross,
    "Phi not affine": made("spline", features=NOT_AFFINE),
    "state space": made("linear", lags=2, law=pp.state_space(2, ar=1, ma=0)),
    "gaussian process": made("spline", law=pp.gaussian_process(1, basis=5)),
}


def same(one, two):
    """Everything a calibration says, and says of contexts inside, outside and not seen."""
    series = one.contexts.grid.s
    s = np.concatenate([series[:3], series[:1] * 3, series[3:4]])
    s[-1, 5:9] = np.nan
    for ask in ("error_at", "inside_at", "reward_error"):
        assert_array_equal(getattr(one, ask)(s), getattr(two, ask)(s), err_msg=ask)
    assert one.contexts.id == two.contexts.id
    assert (one.contexts.units, one.contexts.schema) == (two.contexts.units, two.contexts.schema)
    assert_array_equal(one.contexts.schema.moments, two.contexts.schema.moments)
    for name in ("error", "inside"):
        assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(two, name).dtype
    assert_array_equal(np.stack(one.noise_sd), np.stack(two.noise_sd))
    assert one.usable == two.usable
    assert not one.usable or one.table.equals(two.table)
    assert one.checks_table.equals(two.checks_table)
    for name in ("level", "mode", "seed", "law_id", "why", "verdict", "outside_share"):
        assert getattr(one, name) == getattr(two, name), name
    assert repr(one) == repr(two)
    rung = None if one.usable else "average"
    assert one.budget(rounds=50, rung=rung) == two.budget(rounds=50, rung=rung)
    assert one.radius(sigma=0.3) == two.radius(sigma=0.3)
    assert not one.usable or halvings(one) == halvings(two)


@pytest.mark.parametrize("case", CASES)
def test_a_calibration_answers_as_before(case, tmp_path):
    calibration = CASES[case]()
    features = calibration.parts[0].targets.features
    path = pp.save(calibration, tmp_path / "new" / "calibration")
    back = pp.load(path, features=features)
    same(calibration, back)
    again = pp.load(pp.save(back, path), features=features)  # and so does a copy of the copy
    same(calibration, again)
    law = calibration.parts[0].law
    fitted = pp.load(path, law if len(calibration.parts) == 1 else law.law, features)
    same(calibration, fitted)


def test_an_average_of_two_laws_is_saved_beside_its_calibration(tmp_path):
    history = linear_history(units=40, time=20, lags=2)[0]
    found = pp.calibration.crossfit(
        pp.linear_lags(2), history, W_FEATURES, seed=4, band=BandMethod("linear", draws=300)
    )
    law = pp.load(pp.save(found.law, tmp_path / "law"))
    assert law.id == found.law.id == found.calibration.law_id
    assert_array_equal(mean_at(law, history.grid.s), mean_at(found.law, history.grid.s))
    draws = [draws_at(one, history.grid.s, 7, rng=pp.stream(0, "x")) for one in (law, found.law)]
    assert_array_equal(*draws)


def test_a_custom_law_is_handed_back_in(tmp_path):
    own, held_out = parts(1)
    fitted = CUSTOM.fit(own, pp.Laplace(60), seed=0)
    calibration = pp.calibrate(fitted, held_out, W_FEATURES, seed=1, band="spline")
    path = pp.save(calibration, tmp_path / "c")
    with pytest.raises(pp.errors.BundleError, match=r"custom model; pass .*law=law"):
        pp.load(path, features=W_FEATURES)
    for law in (CUSTOM, fitted):
        same(calibration, pp.load(path, law, W_FEATURES))


@pytest.mark.parametrize("exact", [True, False])
def test_a_law_of_another_make_is_handed_back_in_and_compared(exact, tmp_path):
    held_out = one_input(seed=3)

    def guess(slope=2.0):
        return Guess(pp.Lags(1), intercept=0.1, slope=slope, sd=0.3, exact=exact)

    calibration = pp.calibrate(guess(), held_out, BENT, seed=5, band="spline")
    path = pp.save(calibration, tmp_path / "c")
    same(calibration, pp.load(path, guess(), BENT))
    with pytest.raises(pp.errors.BundleError, match="Guess"):
        pp.load(path, features=BENT)
    with pytest.raises(pp.errors.BundleError, match="Nobody"):
        pp.load(path, type("Nobody", (Guess,), {})(pp.Lags(1)), BENT)
    if exact:
        with pytest.raises(pp.errors.BundleError, match="other answers"):
            pp.load(path, guess(slope=2.1), BENT)


def test_phi_is_handed_back_in_and_compared(tmp_path):
    path = pp.save(made("spline")(), tmp_path / "c")
    with pytest.raises(pp.errors.BundleError, match="features=phi"):
        pp.load(path)
    other = pp.Features(lambda s, w, a: W_FEATURES.fn(s, w, a) * 2, 2, W_FEATURES.names)
    with pytest.raises(pp.errors.BundleError, match="Phi"):
        pp.load(path, features=other)


def test_a_band_of_ones_own_shape_is_refused_in_a_sentence(tmp_path):
    from dataclasses import replace

    class Flat:
        domain = "everywhere"

        def __init__(self, shape):
            self.at = shape.at

    calibration = made("spline")()
    part = calibration.parts[0]
    band = replace(part.band, shape=Flat(part.band.shape))
    mine = replace(calibration, parts=(replace(part, band=band),))
    with pytest.raises(pp.errors.BundleError, match=r"cannot be saved: .*Flat"):
        pp.save(mine, tmp_path / "c")
    assert not list(tmp_path.iterdir())


def resealed(path, change):
    """Change a saved calibration and seal it again, as nobody does by accident."""
    from pulse_pyro._core.sealed import read_sealed, write_sealed

    manifest, arrays = read_sealed(path)
    change(manifest["thing"]["value"]["fields"], arrays)
    keep = ("kind", "format", "thing")
    write_sealed(path, {name: manifest[name] for name in keep}, arrays)


def test_parts_that_do_not_fit_together_are_refused(tmp_path):
    path = pp.save(made("spline")(), tmp_path / "c")

    def swap(fields, arrays):
        name = fields["error"]["array"]
        arrays[name] = arrays[name] * 0.5

    def shorten(fields, arrays):
        band = fields["parts"]["tuple"][0]["fields"]["band"]["fields"]
        name = band["shape"]["fields"]["centre"]["array"]
        arrays[name] = arrays[name][:, :-1]

    def rename(fields, arrays):
        fields["parts"]["tuple"][0]["fields"]["band"]["class"] = "Popen"

    for change, says in ((swap, "bounds"), (shorten, "should"), (rename, "Popen")):
        kept = {file.name: file.read_bytes() for file in path.iterdir()}
        resealed(path, change)
        with pytest.raises(pp.errors.BundleError, match=says):
            pp.load(path, features=W_FEATURES)
        for name, content in kept.items():
            (path / name).write_bytes(content)
    assert json.loads((path / "manifest.json").read_text())["kind"] == "calibration"
