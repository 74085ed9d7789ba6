"""Training of the neural law: what is minimised, what is kept, and what is refused."""

from contextlib import suppress

import numpy as np
import pyro
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._pyro import networks
from pulse_pyro._pyro.sandbox import sandbox
from tests.calibration.helpers import CURVE, triangle
from tests.helpers import draws_at, mean_at, mean_draws_at

SMALL = {"components": 2, "width": 8, "depth": 1}
LAW = pp.neural_density(pp.data.Identity(), **SMALL)
QUICK = pp.Ensemble(members=2, steps=100, rate=0.02)


def history(s, w, unit="u"):
    sizes = {unit: len(s), "s": s.shape[-1], "w": w.shape[-1]}
    names = [tuple(f"{name}{i}" for i in range(size)) for name, size in sizes.items()]
    units, s_names, w_names = names
    return pp.History.from_arrays(s, w, units=units, s_names=s_names, w_names=w_names)


def wave(units=20, seed=0, unit="u"):
    """W = sin(3 S) + N(0, .1^2), S uniform on [-1, 1]."""
    rng = np.random.default_rng(seed)
    s = rng.uniform(-1, 1, (units, 20, 1))
    return history(s, np.sin(3 * s) + 0.1 * rng.standard_normal(s.shape), unit)


def noise_only():
    """Nothing to learn: soon every step makes the held-out score worse."""
    rng = np.random.default_rng(0)
    return history(rng.standard_normal((6, 6, 2)), rng.standard_normal((6, 6, 1)))


@pytest.fixture
def spy(monkeypatch):
    """Every (x, w) whose density training asked for, at which weights, and what it made of it."""
    asked, factors = [], []
    mixture, log_density, factor = networks.mixture, networks.log_density, pyro.factor

    def see_mixture(shape, weights, x):
        asked.append({"weights": {n: v.detach().clone() for n, v in weights.items()}, "x": x})
        return mixture(shape, weights, x)

    def see_density(found, w):
        out = log_density(found, w)
        asked[-1].update(w=w, out=out.detach().numpy(), fitting=torch.is_grad_enabled())
        return out

    def see_factor(name, value, *more, **named):
        factors.append(float(value.detach()))
        return factor(name, value, *more, **named)

    monkeypatch.setattr(networks, "mixture", see_mixture)
    monkeypatch.setattr(networks, "log_density", see_density)
    monkeypatch.setattr(pyro, "factor", see_factor)
    return lambda fitting: [a for a in asked if a["fitting"] == fitting], factors


def test_the_objective_is_the_log_joint_of_the_pyro_model(spy):
    """Up to a constant and over the rows, with the batch standing for all rows it is drawn from."""
    asked, factors = spy
    n, batch, held = 40, 16, np.arange(40) < 10
    rng, shape = np.random.default_rng(0), networks.NetworkShape(2, 2, 3, 4, 2)
    x, w = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    how = pp.Ensemble(members=2, steps=6, batch=batch, rate=0.1)
    networks.train(x, w, held, shape, how, 0.0, 0)
    model, apart = networks.network_model(shape, lambda x: x), []
    for seen, value in zip(asked(fitting=True), factors, strict=True):
        joint = 0.0
        for e in range(2):
            weights = {name: v[e].double() for name, v in seen["weights"].items()}
            with sandbox(0, "test"):
                given = pyro.poutine.condition(model, weights)
                rows = seen["x"][e].double(), seen["w"][e].double()
                trace = pyro.poutine.trace(given).get_trace(*rows)
            trace.compute_log_prob()
            joint += sum(float(trace.nodes[name]["log_prob_sum"]) for name in weights)
            joint += float(trace.nodes["w"]["log_prob_sum"]) * 30 / batch
        apart.append(value - joint / 30)
    assert len(apart) == 6
    assert np.ptp(factors) > 0.1  # the weights have moved, so a constant is no accident
    assert_allclose(apart, apart[0], atol=1e-4)


def test_each_member_keeps_its_best_weights(spy):
    asked, _ = spy
    fitted = LAW.fit(noise_only(), pp.Ensemble(members=4, steps=60, rate=0.03), seed=0)
    looks = asked(fitting=False)
    loss = -np.array([look["out"].mean(-1) for look in looks])
    best = loss.argmin(0)
    assert len(set(best)) > 1  # not one look for all, nor the last
    assert max(best) < len(looks) - 1
    for e, at in enumerate(best):
        for name, value in fitted.draws.items():
            assert_array_equal(value[e], looks[at]["weights"][name][e])
    assert_allclose(fitted.record.losses, loss.mean(1), rtol=1e-6)
    score = -loss.min(0).mean() - np.log(fitted.scaler.w_scale).sum()  # in the units of w
    assert_allclose(fitted.record.quality["held_out_score"], score, rtol=1e-6)


@pytest.mark.parametrize("steps", [49, 75, 200])
def test_training_stops_after_a_third_of_the_steps_without_progress(spy, steps):
    asked, _ = spy
    LAW.fit(noise_only(), pp.Ensemble(members=2, steps=steps, rate=0.3), seed=0)
    every, looks = steps // 25, asked(fitting=False)
    done = len(asked(fitting=True))
    loss = -np.array([look["out"].mean(-1) for look in looks])
    idle = (len(looks) - 1 - loss.argmin(0).max()) * every
    assert done < steps
    assert steps / 3 <= idle <= steps / 3 + 2 * every


def test_whole_units_are_held_out_and_never_trained_on(spy):
    asked, _ = spy
    rng = np.random.default_rng(0)
    s = np.broadcast_to(np.arange(20.0)[:, None, None], (20, 7, 1))
    how = pp.Ensemble(members=2, steps=60, holdout=0.3)
    fitted = LAW.fit(history(s, rng.standard_normal(s.shape)), how, seed=0)

    def units(fitting):
        x = np.concatenate([a["x"].reshape(-1) for a in asked(fitting=fitting)])
        return set(np.rint(x * fitted.scaler.x_scale + fitted.scaler.x_mean).astype(int))

    assert len(units(False)) == 6
    assert len(asked(fitting=False)[0]["x"]) == 6 * 7
    assert units(True) == set(range(20)) - units(False)


def test_of_one_unit_the_last_rows_are_held_out(spy):
    asked, _ = spy
    s = np.arange(40.0)[None, :, None]
    fitted = LAW.fit(history(s, np.sin(s)), pp.Ensemble(members=1, steps=50, holdout=0.25), seed=0)
    early, late = (torch.cat([a["x"].ravel() for a in asked(fitting=f)]) for f in (True, False))
    assert len(late.unique()) == 10
    assert early.max() < late.min()
    assert np.isfinite(mean_at(fitted, s)).all()


@pytest.fixture(scope="module")
def fitted():
    return LAW.fit(wave(), pp.Ensemble(members=4, steps=200, rate=0.05), seed=0)


def test_it_learns_what_a_line_cannot(fitted):
    s = np.linspace(-0.9, 0.9, 50)[None, :, None]
    line = pp.linear_lags(1).fit(wave(), seed=0)
    error, lines = (
        np.sqrt(np.mean((mean_at(law, s) - np.sin(3 * s)) ** 2)) for law in (fitted, line)
    )
    assert error < lines / 2
    assert 0.05 < draws_at(fitted, s, 400, rng=np.random.default_rng(0)).std(0).mean() < 0.2  # .1


def test_members_differ_and_most_where_there_are_no_rows(fitted):
    s = np.concatenate([np.linspace(-0.9, 0.9, 30), np.linspace(5, 8, 30)])[None, :, None]
    draws = mean_draws_at(fitted, s, 4, rng=np.random.default_rng(0))[:, 0, :, 0]
    assert_allclose(draws.mean(0), mean_at(fitted, s)[0, :, 0], rtol=1e-9)
    spread = draws.std(0)
    assert (spread > 0).all()
    assert spread[30:].min() > spread[:30].mean()


def test_one_seed_one_law(fitted):
    how = pp.Ensemble(members=4, steps=200, rate=0.05)
    again, other = LAW.fit(wave(), how, seed=0), LAW.fit(wave(), how, seed=1)
    assert again.id == fitted.id != other.id
    for name, value in fitted.draws.items():
        assert_array_equal(value, again.draws[name])
        assert not np.array_equal(value, other.draws[name])


def test_saved_and_loaded_it_is_the_same_law(fitted, tmp_path):
    path, s = pp.save(fitted, tmp_path / "law"), wave(seed=3).grid.s
    s = np.where(np.arange(20)[None, :, None] == 4, np.nan, s)
    for back in (pp.load(path), pp.load(path, law=LAW)):
        assert (back.id, back.law.unseen) == (fitted.id, "refused")
        assert_array_equal(mean_at(back, s), mean_at(fitted, s))
        one, two = (draws_at(law, s, 9, rng=np.random.default_rng(0)) for law in (back, fitted))
        assert_array_equal(one, two)
    with pytest.raises(pp.errors.BundleError, match="components"):
        pp.load(path, law=pp.neural_density(pp.data.Identity(), components=3))


def test_pulse_plays_the_expected_features(fitted):
    phi = pp.Features(lambda s, w, a: np.column_stack([s[:, 0], w[:, 0] * a]), 2, ("S", "Wa"))
    bot, s = pp.PulseUCB(fitted, phi, pp.constant(1.0)), wave(seed=4).grid.s[0]
    for t in range(10):
        choice = bot.act(s[t])
        wanted = [s[t, 0], choice.action * mean_at(fitted, s[None])[0, t, 0]]
        assert_allclose(choice.x, wanted, rtol=1e-9)
        bot.learn(choice, float(t % 3))


def test_calibration_bounds_it_by_the_triangle(fitted):
    fresh = wave(units=25, seed=5, unit="fresh")
    phi = pp.Features(lambda s, w, a: np.column_stack([w[:, 0]]), 2, ("W",))
    found = pp.calibrate(fitted, fresh, phi, seed=0, band=CURVE)
    bound = found.parts[0].errors(fresh)[0][:, 0, 0]
    inside = np.isfinite(bound)
    assert inside.mean() > 0.5
    wanted = fresh.flat(triangle(found, fitted, fresh.grid.s))[:, 0]
    assert_allclose(bound[inside], wanted[inside], rtol=1e-6)
    with pytest.raises(pp.errors.LeakageError):
        pp.calibrate(fitted, wave(), phi, seed=0, band=CURVE)


@pytest.mark.parametrize("how", [(1, 1e12), (50, 1e4), (50, 1e6), (50, 1e30)], ids=str)
def test_divergence_is_said_with_advice(how):
    """A law that scores worse than no inputs at all must not be handed over as fitted."""
    steps, rate = how
    with pytest.raises(pp.errors.ConvergenceError, match="rate"):
        LAW.fit(wave(), pp.Ensemble(members=2, steps=steps, rate=rate), seed=0)


def test_a_constant_w_is_foretold():
    """In standard units a constant keeps scale 1, so it is the scale errors are measured in."""
    h = wave()
    law = LAW.fit(history(h.grid.s, np.full_like(h.grid.w, 5.0)), QUICK, seed=0)
    assert np.abs(mean_at(law, h.grid.s) - 5.0).max() < 1.0
    assert np.isfinite(draws_at(law, h.grid.s, 5, rng=np.random.default_rng(0))).all()


NINE = history(np.ones((3, 3, 1)), np.ones((3, 3, 1)))
REFUSED = {
    "nine rows": (lambda: LAW.fit(NINE, QUICK, seed=0), pp.errors.DataError, "9 rows"),
    "nuts": (lambda: LAW.fit(wave(), pp.Nuts(), seed=0), pp.errors.ModelError, "Ensemble"),
    "not a history": (
        lambda: LAW.fit(np.ones((2, 3)), QUICK, seed=0),
        pp.errors.DataError,
        "History",
    ),
    "2.5 lags": (lambda: pp.neural_density(2.5), pp.errors.SettingError, "2.5"),
    "masking 1": (lambda: pp.neural_density(1, masking=1), pp.errors.SettingError, "masking"),
    "masking word": (
        lambda: pp.neural_density(1, masking="half"),
        pp.errors.SettingError,
        "masking",
    ),
    "holdout 1": (lambda: pp.Ensemble(holdout=1), pp.errors.SettingError, "holdout"),
    "holdout word": (lambda: pp.Ensemble(holdout="some"), pp.errors.SettingError, "holdout"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_said(name):
    call, error, says = REFUSED[name]
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("units", [1, 2])
def test_a_large_holdout_leaves_rows_to_train_on_or_is_refused(units):
    h = wave().take(range(units))
    with suppress(pp.PulseError):
        law = LAW.fit(h, pp.Ensemble(members=1, steps=20, holdout=0.98), seed=0)
        assert np.isfinite(mean_at(law, h.grid.s)).all()
