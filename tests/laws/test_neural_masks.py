"""Inputs that are not seen: kept in the rows, hidden in training, answered or refused."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._pyro.networks import _hide
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.laws.law import FitData
from pulse_pyro.laws.neural import with_mask
from tests.helpers import assert_mean, draws_at, mean_at

NAN = np.nan
SIZE = {"components": 1, "width": 16, "depth": 1}
HOW = pp.Ensemble(members=2, steps=200, rate=0.03, batch=256)


def history(s, w):
    names = tuple(f"u{i}" for i in range(len(s)))
    columns = tuple(f"s{i}" for i in range(s.shape[-1]))
    return pp.History.from_arrays(s, w, units=names, s_names=columns, w_names=("w",))


def gaussian(units=100, time=20, holes=0.0, seed=0):
    """S1, S2 standard normal with correlation .8, W = S1 + S2 / 2 + N(0, .3^2); S hidden at random.

    So E[W | S1] = 1.4 S1, E[W | S2] = 1.3 S2, E[W] = 0, and Var[W | S1] = .36 / 4 + .09 = .18.
    """
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 2)) @ np.linalg.cholesky([[1, 0.8], [0.8, 1]]).T
    w = s @ [[1.0], [0.5]] + 0.3 * rng.standard_normal((units, time, 1))
    return history(np.where(rng.random(s.shape) < holes, NAN, s), w)


COMPLETE, HOLED = gaussian(), gaussian(holes=0.4)
GRID = np.linspace(-1.5, 1.5, 30)
PATTERNS = {  # seen inputs -> the truth, and what taking 0 (the mean) for the hidden one gives
    "S1": (np.column_stack([GRID, np.full(30, NAN)]), 1.4 * GRID, GRID),
    "S2": (np.column_stack([np.full(30, NAN), GRID]), 1.3 * GRID, 0.5 * GRID),
    "both": (np.column_stack([GRID, 0.8 * GRID]), 1.4 * GRID, 0 * GRID),
}


@pytest.fixture(scope="module", params=["hidden in training", "holes in the archive"])
def law(request):
    if request.param == "hidden in training":
        return pp.neural_density(pp.data.Identity(), **SIZE, masking=0.5).fit(COMPLETE, HOW, seed=0)
    return pp.neural_density(pp.data.Identity(), **SIZE).fit(HOLED, HOW, seed=0)


@pytest.mark.parametrize("seen", PATTERNS)
def test_means_at_holes_are_those_of_the_truth(law, seen):
    s, truth, filled = PATTERNS[seen]
    ours, zero = (
        np.sqrt(np.mean((m - truth) ** 2)) for m in (mean_at(law, s[None])[0, :, 0], filled)
    )
    assert ours < zero / 3
    assert law.conditions
    assert_allclose(law(s[:5][None]).mean()[-1], mean_at(law, s[None])[0, 4], rtol=1e-9)


def test_with_nothing_seen_it_knows_the_average(law):
    # the sd of W is 1.48
    assert np.abs(mean_at(law, np.full((1, 1, 2), NAN))).max() < 0.3


def test_draws_are_wider_where_an_input_is_hidden(law):
    s, rng = np.array([[[0.5, 0.4], [0.5, NAN], [NAN, NAN]]]), np.random.default_rng(0)
    variance = draws_at(law, s, 20_000, rng=rng)[:, 0, :, 0].var(0)
    assert_allclose(variance, [0.09, 0.18, 2.14], rtol=0.4)


def test_pulse_plays_rounds_with_holes(law):
    phi = pp.Features(lambda s, w, a: np.column_stack([w[:, 0] * (1 + a)]), 2, ("W",))
    bot = pp.PulseUCB(law, phi, pp.constant(1.0))
    for s in ([0.1, 0.2], [0.3, NAN], [NAN, NAN]):  # Phi is judged affine on the first
        choice = bot.act(s)
        mean = mean_at(law, np.array([[s]]))[0, 0, 0]
        assert_allclose(choice.x, [mean * (1 + choice.action)], rtol=1e-9)
        bot.learn(choice, 0.0)


def test_saved_and_loaded_it_still_answers_holes(law, tmp_path):
    back, s = pp.load(pp.save(law, tmp_path / "law")), HOLED.grid.s[:3]
    assert (back.id, back.law.unseen) == (law.id, "learned")
    assert_array_equal(mean_at(back, s), mean_at(law, s))
    assert np.isfinite(mean_at(back, s)).all()


def test_training_with_masks_is_repeatable(law):
    family = law.law.family
    fresh = pp.neural_density(pp.data.Identity(), **SIZE, masking=family.masking)
    on = COMPLETE if family.masking else HOLED
    assert fresh.fit(on, HOW, seed=0).id == law.id != fresh.fit(on, HOW, seed=1).id


def test_without_anything_to_learn_from_holes_are_refused():
    plain, few = pp.neural_density(pp.data.Identity(), **SIZE), pp.Ensemble(members=2, steps=5)
    law = plain.fit(COMPLETE, few, seed=0)
    assert not law.conditions
    s = np.array([[[0.1, 0.2], [0.1, NAN], [NAN, NAN]]])
    for answer in (mean_at(law, s)[None], draws_at(law, s, 4, rng=np.random.default_rng(0))):
        assert_array_equal(np.isnan(answer[:, 0, :, 0]), [[False, True, True]] * len(answer))
    assert "refused" in repr(plain.check(COMPLETE))
    assert "learned" in repr(plain.check(HOLED))
    assert "learned" in repr(pp.neural_density(pp.data.Identity(), masking=0.2).check(COMPLETE))
    phi = pp.Features(lambda s, w, a: np.column_stack([w[:, 0] * a]), 2, ("W",))
    with pytest.raises(pp.errors.FeatureError):
        pp.PulseUCB(law, phi, pp.constant(1.0)).act([NAN, 0.1])


def test_lags_before_the_first_row_are_learned_as_holes():
    few = pp.Ensemble(members=1, steps=5)
    law = pp.neural_density(3, **SIZE).fit(COMPLETE, few, seed=0)
    assert (law.record.rows, law.record.dropped) == (2000, 0)
    assert np.isfinite(mean_at(law, COMPLETE.grid.s)).all()


def test_a_law_that_was_fitted_can_be_fitted_again_like_a_fresh_one():
    fresh, few = pp.neural_density(pp.data.Identity(), **SIZE), pp.Ensemble(members=1, steps=5)
    again = fresh.fit(COMPLETE, few, seed=0).law.fit(HOLED, few, seed=0)
    assert again.record.dropped == 0
    assert again.id == fresh.fit(HOLED, few, seed=0).id


def test_masks_say_what_is_not_seen():
    x = np.array([[1.0, NAN], [NAN, NAN], [0.0, 2.0]])
    assert_array_equal(with_mask(x), [[1, 0, 0, 1], [0, 0, 1, 1], [0, 2, 0, 0]])


def test_half_of_the_rows_have_the_stated_share_hidden():
    n, p, share = 20_000, 3, 0.4
    x = np.random.default_rng(0).standard_normal((n, p))
    x[:, 2] = NAN
    with sandbox(0, "test"):
        out = _hide(torch.as_tensor(with_mask(x)), share).numpy()
    value, mask = out[:, :p], out[:, p:]
    assert_array_equal(value, np.where(mask == 1, 0.0, x))
    assert (mask[:, 2] == 1).all()
    hidden = mask[:, :2]
    assert_mean(hidden, share / 2)
    assert_mean(hidden[:, 0] * hidden[:, 1], share**2 / 2)  # chosen rows, then inputs at random
    assert_mean(hidden.any(1), (1 - (1 - share) ** 2) / 2)


S = np.array([[[1, 2], [NAN, 3], [4, 5], [6, NAN]], [[NAN, NAN], [1, 1], [2, 2], [3, 3.0]]])
W = np.array([[[1], [2], [NAN], [4]], [[5], [6], [7], [NAN]]])


def test_rows_with_holes_are_kept_by_request_only():
    seen = np.ones((2, 4), bool)
    seen[1, 2] = False
    h = pp.History.from_arrays(
        S, W, seen=seen, units=("a", "b"), s_names=("s", "t"), w_names=("w",)
    )
    kept = {holes: h.rows(pp.data.Identity(), holes=holes) for holes in ("", "x", "w")}
    assert_array_equal(kept[""].x, [[1, 2], [1, 1]])
    assert_array_equal(kept["x"].w[:, 0], [1, 2, 4, 5, 6])
    assert_array_equal(kept["x"].x, [[1, 2], [NAN, 3], [6, NAN], [NAN, NAN], [1, 1]])
    assert_array_equal(kept["w"].x, [[1, 2], [4, 5], [1, 1], [3, 3]])
    assert_array_equal(kept["w"].w[:, 0], [1, NAN, 6, NAN])
    assert [kept[holes].dropped for holes in ("", "x", "w")] == [5, 2, 3]
    assert_array_equal(kept["x"].unit, [0, 0, 0, 1, 1])


def test_units_of_rows_with_holes_are_in_order():
    rows = history(S, np.nan_to_num(W)).rows(pp.data.Identity(), holes="x")
    data = FitData.raw(rows).standardised(["a", "b"])
    assert data.n == 8
    assert_array_equal(np.isnan(data.x), np.isnan(rows.x))
    assert np.isfinite(data.w).all()
    assert np.isfinite(data.full).all()


@pytest.mark.parametrize("complete", [0, 2, 40])
def test_rows_with_holes_set_the_units_when_complete_ones_are_few(complete):
    """The scale of W, which is recorded in every row, must not hang on two of them."""
    rng = np.random.default_rng(1)
    full = rng.standard_normal((20, 20, 2))
    w = 100 + 10 * full[..., :1] + rng.standard_normal((20, 20, 1))
    s, first = full.copy(), rng.random((20, 20)) < 0.5
    s[..., 0][first], s[..., 1][~first] = NAN, NAN
    same = np.argsort(w.ravel())[200 : 200 + complete]  # alike in W
    s.reshape(-1, 2)[same] = full.reshape(-1, 2)[same]
    law = pp.neural_density(pp.data.Identity(), **SIZE).fit(history(s, w), HOW, seed=0)
    told = ~first
    assert np.sqrt(np.mean((mean_at(law, s) - w)[told] ** 2)) < w.std() / 2


def test_a_column_that_is_never_seen_is_no_obstacle_or_is_refused():
    s = np.concatenate([COMPLETE.grid.s, np.full((100, 20, 1), NAN)], -1)
    few = pp.Ensemble(members=1, steps=5)
    with suppress(pp.PulseError):
        law = pp.neural_density(pp.data.Identity(), **SIZE).fit(
            history(s, COMPLETE.grid.w), few, seed=0
        )
        assert np.isfinite(mean_at(law, s)).all()


def log(windows, axis):
    with np.errstate(divide="ignore"):
        return np.log(np.abs(windows)).mean(axis)


@pytest.mark.parametrize("at", [0, 5])
def test_an_infinite_input_is_refused_also_beside_a_hole(at):
    s = COMPLETE.grid.s[..., :1].copy()
    s[:, at] = 0.0
    law = pp.neural_density(pp.data.Stack(pp.Window(1, log), pp.Lags(2)), **SIZE)
    with pytest.raises(pp.errors.DataError, match="infinite"):
        law.fit(history(s, COMPLETE.grid.w), HOW, seed=0)
