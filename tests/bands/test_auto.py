"""Which band is chosen, and why."""

from contextlib import suppress

import numpy as np
import pytest

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod, Sample
from tests.bands.helpers import a_sum, lines, sample, world
from tests.helpers import binomial_floor


def chosen(s, kind="auto", level=0.95, seed=0, **options):
    method = BandMethod(kind, **({"draws": 300} | options))
    return make_band(s, method, level, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("rows", "bend", "smooth", "side"),
    [(20, 12.0, "spline", "fewer than"), (110, 2.0, "local_polynomial", "at least")],
)
def test_one_input_gets_a_curve_by_its_rows_unless_a_kink_shows(rows, bend, smooth, side):
    kinds = set()
    for r in range(6):
        s = world(lambda x: bend * np.abs(x[:, 0]) + x[:, 0], [38, r], p=1, rows=rows)
        choice = chosen(s, draws=100)
        kind, kink = choice.fit.band.kind, choice.fit.roughness < 0.2
        kinds.add(kind)
        assert kind == ("lipschitz" if kink else smooth)
        assert choice.why.startswith(f"one input, {side} 2000 rows")
        assert ("a kink shows (p = " in choice.why) == kink
    assert kinds == {smooth, "lipschitz"}


def test_two_inputs_that_act_as_a_sum_are_accepted():
    whys = []
    for r in range(25):
        with suppress(DataError):
            whys.append(chosen(world(a_sum, [41, r], units=40, rows=10), draws=100).why)
    assert len(whys) >= binomial_floor(25, 0.99)
    assert all(why.startswith("2 inputs that act as a sum (additivity p = ") for why in whys)


@pytest.mark.parametrize(
    ("curve", "p"),
    [
        (lambda x: x[:, 0] * x[:, 1], 2),
        (lambda x: x[:, 0] + x[:, 1] * x[:, 2], 3),
    ],
)
def test_a_product_of_inputs_is_refused_with_advice(curve, p):
    with pytest.raises(DataError) as caught:
        chosen(world(curve, 42, p=p))
    text = str(caught.value)
    assert f"{p} inputs do not act as a sum" in text
    for advice in ("product as an input", "single_index", "linear"):
        assert advice in text


def test_the_product_that_breaks_a_sum_is_named(monkeypatch):
    monkeypatch.setattr("pulse_pyro.bands.lack_of_fit.WAVES", 0)
    with pytest.raises(DataError, match=r"strongest: lag 1 x lag 2\)"):
        chosen(world(lambda x: x[:, 0] + x[:, 1] * x[:, 2], 48, p=3, rows=30))


@pytest.mark.parametrize("curve", [a_sum, lambda x: x[:, 0] * x[:, 1]])
def test_two_inputs_with_rows_enough_get_a_tensor_product_whatever_their_form(curve):
    choice = chosen(world(curve, 49, units=40, rows=15))
    assert choice.fit.band.kind == "tensor"
    assert choice.why.startswith("2 inputs, at least 480 rows")
    assert ("a ridge shows (p = " in choice.why) == (choice.fit.roughness < 0.2)


def test_three_inputs_get_a_sum_below_1920_rows_and_a_tensor_product_above():
    below = chosen(world(lines, 50, p=3, units=40, rows=20))
    above = chosen(world(lines, 51, p=3, units=80, rows=30))
    assert (below.fit.band.kind, above.fit.band.kind) == ("additive", "tensor")
    assert above.why.startswith("3 inputs, at least 1920 rows")


def test_a_wave_that_passes_for_a_sum_is_covered():
    def wave(x):
        return 0.6 * np.cos(3 * x[:, 0]) * np.cos(3 * x[:, 1])

    for r in range(3):
        s = world(wave, [52, r], units=50, rows=30)
        found = chosen(s).fit.band.at(s.x)
        wrong = np.abs(found.centre[:, 0] - wave(s.x))
        assert (wrong <= found.half[:, 0])[found.inside].all()


def test_four_inputs_get_the_linear_band_and_hear_why():
    choice = chosen(world(lines, 43, p=4))
    assert choice.fit.band.kind == "linear"
    assert "4 inputs" in choice.why
    assert "linear is assumed" in choice.why


@pytest.mark.parametrize(
    ("kind", "p"),
    [("linear", 1), ("linear", 3), ("additive", 2), ("single_index", 3), ("single_index", 1)],
)
def test_what_is_asked_for_is_made(kind, p):
    choice = chosen(world(lines, 44, p=p, units=40), kind)
    assert choice.fit.band.kind == kind
    assert choice.why == "asked for"
    assert choice.fit.band.level == 0.95


@pytest.mark.parametrize("kind", ["local_polynomial", "spline", "lipschitz"])
def test_curves_are_for_one_input(kind):
    s = world(lines, 45, p=2)
    with pytest.raises(
        DataError, match=f"'{kind}' is for one input, the summary has 2 .lag 0, lag 1"
    ):
        chosen(s, kind)
    one = Sample(s.x[:, :1], s.y, s.unit, s.x_names[:1], s.y_names)
    assert chosen(one, kind).fit.band.kind == kind


def test_auto_refuses_a_constant_input():
    s = world(lines, 46, p=1)
    with pytest.raises(DataError, match="'lag 1' hardly varies"):
        chosen(sample(np.column_stack([s.x, np.full(len(s.x), 2.0)]), s.y, s.unit))
