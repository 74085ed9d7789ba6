"""The Gaussian process law as a user meets it: fitting, predicting, saving, playing, refusing."""

import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro import Ensemble, Exact, Laplace
from pulse_pyro._core.errors import PulseError
from pulse_pyro._core.saved import load, save
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics.held_out import diagnose
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.scaling import CHUNK, NODES
from pulse_pyro.radius import corrected
from tests.helpers import z_bound

COV = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
NOISE = np.array([[0.3, 0.0], [0.2, 0.1]])  # lower factor of the residual covariance of two W


def history(s, w, mark="u"):
    """Units of 20 rows (or one unit of fewer) from rows s (n, s_dim), w (n, w_dim)."""
    s, w = (a.reshape(-1, min(len(a), 20), a.shape[-1]) for a in (s, w))
    counts = {mark: len(s), "s": s.shape[2], "w": w.shape[2]}
    names = [tuple(f"{c}{i}" for i in range(k)) for c, k in counts.items()]
    return History.from_arrays(s, w, units=names[0], s_names=names[1], w_names=names[2])


def make(fn, n=800, p=1, seed=0, mark="u"):
    """S independent normal rows, W = fn(S) + noise."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((n, p))
    return history(s, fn(s)[:, None] + 0.2 * rng.standard_normal((n, 1)), mark)


def bend(s):
    return np.sin(2 * s[:, 0])


@pytest.fixture(scope="module")
def smooth():
    return gaussian_process(1).fit(make(bend), Laplace(200), seed=0)


@pytest.fixture(scope="module")
def joint():
    """Three correlated inputs of which two interact, two W whose residuals go together."""
    rng = np.random.default_rng(1)
    s = rng.standard_normal((2000, 3)) @ np.linalg.cholesky(COV).T
    w = np.column_stack([s[:, 0] * s[:, 1], np.tanh(s[:, 2])])
    w = w + rng.standard_normal((2000, 2)) @ NOISE.T
    return gaussian_process(1, basis=6).fit(history(s, w), Laplace(100), seed=0)


def at(fitted, rows, answer="mean", *more, **named):
    """Answers at rows (n, p), for laws of one lag."""
    return getattr(fitted(np.asarray(rows, float)[:, None]), answer)(*more, **named)


def test_the_fit_finds_the_curve_and_says_how_well(smooth):
    grid = np.linspace(-2, 2, 41)[:, None]
    curves = at(smooth, grid, "mean_draws", 200, rng=np.random.default_rng(0))[..., 0]
    z = (at(smooth, grid)[:, 0] - bend(grid)) / curves.std(0)
    assert np.abs(z).max() < z_bound(41)
    # 800 rows on about ten functions: an sd near 0.2 sqrt(10 / 800), well below the noise
    assert 0.005 < np.median(curves.std(0)) < 0.05


def test_units_of_measurement_do_not_matter(smooth):
    first = make(bend)
    moved = history(first.s.reshape(-1, 1) * 1e3 + 5e3, first.w.reshape(-1, 1) * -1e-3 + 7)
    other = gaussian_process(1).fit(moved, Laplace(200), seed=0)
    grid = np.linspace(-4, 4, 30)[:, None]
    assert_allclose((at(other, grid * 1e3 + 5e3) - 7) / -1e-3, at(smooth, grid), atol=1e-5)


def test_residuals_of_several_w_are_correlated_as_the_data_are(joint):
    row, rng = [[0.3, -0.2, 0.5]], np.random.default_rng(2)
    draws = at(joint, row, "draws", 20000, rng=rng)[:, 0]
    doubt = at(joint, row, "mean_draws", 100, rng=rng)[:, 0]
    found, truth = np.cov(draws.T) - np.cov(doubt.T, ddof=0), NOISE @ NOISE.T
    # 2,000 rows less at most 220 functions, and the draws' own noise
    share = 1 / 1780 + 1 / 20000
    spread = np.sqrt((np.outer(np.diag(truth), np.diag(truth)) + truth**2) * share)
    assert (np.abs(found - truth) < z_bound(4) * spread).all()
    one, two = (np.arctanh(c[0, 1] / np.sqrt(c[0, 0] * c[1, 1])) for c in (found, truth))
    assert abs(one - two) < z_bound() * np.sqrt(share)


def contrast(fitted):
    """Interaction of the first two inputs between -1 and 1: 4 for their product, 0 if additive."""
    corners = np.zeros((4, len(fitted.scaler.x_mean)))
    corners[:, :2] = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    return np.array([1, -1, -1, 1]) @ at(fitted, corners)


def test_three_inputs_interact_and_more_add_up(joint):
    assert abs(contrast(joint)[0] - 4) < 0.4
    wide = make(lambda s: s[:, 0] * s[:, 1] + np.sin(2 * s[:, 2]), p=5, n=600)
    additive = gaussian_process(1).fit(wide, Laplace(50), seed=0)
    assert additive.draws["length"].shape == (50, 1, 5)
    assert additive.draws["amplitude"].shape == (50, 1, 5)
    assert_allclose(contrast(additive), 0, atol=1e-10)


def test_far_beyond_the_archive_only_the_straight_line_goes_on(smooth):
    edge = np.abs(make(bend).s).max()
    for side in (-1, 1):
        far = side * (3 * edge + np.arange(1, 6.0)[:, None])
        assert_allclose(np.diff(at(smooth, far), 2, axis=0), 0, atol=1e-10)
        slope = smooth.draws["coef"][:, 1, 0].mean() * smooth.scaler.w_scale / smooth.scaler.x_scale
        assert_allclose(np.diff(at(smooth, far), axis=0), side * slope[0], rtol=1e-8)


@pytest.mark.parametrize("hidden", [[0], [1, 2], [0, 1, 2]], ids=str)
def test_unseen_inputs_are_averaged_over_given_the_seen_ones(joint, hidden):
    """Brute force: complete the row 40,000 times from the Gaussian conditional, and average."""
    rng = np.random.default_rng(3)
    row = np.array([0.8, -0.5, 1.2])
    seen = [d for d in range(3) if d not in hidden]
    mean, cov = joint.inputs.mean, joint.inputs.cov
    gain = cov[np.ix_(hidden, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
    left = cov[np.ix_(hidden, hidden)] - gain @ cov[np.ix_(seen, hidden)]
    full = np.tile(row, (40000, 1))
    full[:, hidden] = mean[hidden] + gain @ (row - mean)[seen]
    full[:, hidden] += rng.standard_normal((40000, len(hidden))) @ np.linalg.cholesky(left).T
    brute = at(joint, full)
    row[hidden] = np.nan
    # fixed nodes must do at least as well as that many independent ones
    error = brute.std(0) * np.sqrt(1 / NODES + 1 / 40000)
    assert (np.abs(at(joint, [row])[0] - brute.mean(0)) < z_bound(2) * error).all()
    draws = at(joint, [row], "draws", 20000, rng=rng)[:, 0]
    once = at(joint, full[:4000], "draws", 100, rng=rng)
    once = once[np.arange(4000) % 100, np.arange(4000)]
    for a, b in ((draws, once), (draws**2, once**2), (np.abs(draws), np.abs(once))):
        apart = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
        assert (np.abs(a.mean(0) - b.mean(0)) < z_bound(6) * apart).all()
    curves = at(joint, [row], "mean_draws", 100, rng=rng)[:, 0]
    assert_allclose(curves.mean(0), at(joint, [row])[0], rtol=1e-9)


def test_a_row_is_answered_alike_in_a_crowd_and_online(joint):
    rows = np.random.default_rng(4).standard_normal((40, 3))
    rows[::3, 1] = rows[5] = np.nan
    alone = [joint(row[None][None]).mean()[-1] for row in rows]
    assert_allclose(at(joint, rows), alone, rtol=1e-10)


def test_completions_are_bounded_in_memory(joint):
    """Values in flight are counted in inputs, but each completion becomes a row of the basis."""
    rows = np.tile([np.nan, 0.5, 1.0], (2000, 1))
    tracemalloc.start()
    at(joint, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 8 * CHUNK, f"{peak / 1e6:.0f} MB for 2,000 rows of three inputs"


def test_one_seed_one_answer_another_seed_another(smooth):
    again = gaussian_process(1).fit(make(bend), Laplace(200), seed=0)
    other = gaussian_process(1).fit(make(bend), Laplace(200), seed=1)
    for name, value in smooth.draws.items():
        assert_array_equal(value, again.draws[name])
        assert not np.array_equal(value, other.draws[name])
    assert smooth.id == again.id != other.id


def test_a_saved_law_answers_alike(joint, tmp_path):
    save(joint, tmp_path / "law")
    rows = np.array([[0.1, 0.2, 0.3], [np.nan, 1.0, 9.0]])
    for model in (None, gaussian_process(1, basis=6)):
        again = load(tmp_path / "law", model)
        assert (again.id, again.record) == (joint.id, joint.record)
        assert_array_equal(at(again, rows), at(joint, rows))
        answers = (at(f, rows, "draws", 9, rng=np.random.default_rng(1)) for f in (again, joint))
        assert_array_equal(*answers)
    with pytest.raises(PulseError, match="'size': 7"):
        load(tmp_path / "law", gaussian_process(1, basis=7))


WA = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))


def test_it_plays_and_calibrates(smooth):
    bot = pp.PulseUCB(smooth, WA, corrected(sigma=0.3))
    for s in ([0.3], [np.nan], [-1.0]):
        choice = bot.act(np.array(s))
        expected = smooth(np.array([s])[None]).mean()[-1][0]
        assert_allclose(choice.x, [expected, expected * choice.action], atol=1e-12)
        bot.learn(choice, 0.5)
    held_out = make(bend, seed=5, mark="h")
    band = pp.bands.BandMethod("spline", grid=50, draws=300)
    assert pp.calibrate(smooth, held_out, WA, seed=0, band=band) is not None
    checks = {c.name: c.verdict for c in diagnose(smooth, held_out, seed=0).checks}
    assert (checks["basis"], checks["skill w0"], checks["coverage w0"]) == ("pass",) * 3


BAD = {
    "constant W": (lambda s, e: 0 * e + 3, lambda s: 0 * s + 3),
    "W a curve without noise": (lambda s, e: np.sin(s), np.sin),
    "W twice": (lambda s, e: np.hstack([e, 2 * e]), lambda s: 0 * s),
}


@pytest.mark.parametrize(("w_of", "truth"), BAD.values(), ids=BAD)
def test_data_without_noise_are_answered_or_refused_with_a_sentence(w_of, truth):
    rng = np.random.default_rng(0)
    s = rng.standard_normal((400, 1))
    with suppress(PulseError):
        fitted = gaussian_process(1).fit(history(s, w_of(s, rng.standard_normal((400, 1)))), seed=0)
        assert np.abs(at(fitted, s)[:, :1] - truth(s)).mean() < 0.3


FINE = {"constant": (lambda u: 0 * u + 1, None), "two values": (np.sign, None)}
FINE |= {f"basis={size}": (lambda u: u, size) for size in (60, 120, 200)}


@pytest.mark.parametrize(("values", "size"), FINE.values(), ids=FINE)
def test_a_narrow_range_of_s_or_a_generous_basis_is_no_error(values, size):
    """A prior sd that underflows to 0 for the fastest functions is no fault of the data."""
    rng = np.random.default_rng(0)
    s = values(rng.uniform(-1, 1, (400, 1)))
    archive = history(s, s + 0.1 * rng.standard_normal(s.shape))
    fitted = gaussian_process(1, basis=size).fit(archive, Laplace(50), seed=0)
    assert_allclose(at(fitted, [[1.0]]), 1.0, atol=0.1)


REFUSED = [
    *((lambda b=b: gaussian_process(1, basis=b), r"number >= 2") for b in (1, -3, 2.5, "8", True)),
    (lambda: small(1, basis=3001), "basis=3000"),
    (lambda: small(2, basis=60), "basis=54"),
    (lambda: small(3, basis=15), "basis=14"),
    *((lambda how=how: small(1, how), r"use Laplace\(\)") for how in (Exact(), Ensemble())),
    (lambda: gaussian_process(1).fit(np.zeros((3, 1)), seed=0), "History was expected"),
    (lambda: gaussian_process(1).fit(history(*np.full((2, 3, 1), np.nan)), seed=0), "never seen"),
]


def small(p, how=None, **settings):
    return gaussian_process(1, **settings).fit(make(bend, p=p, n=40), how, seed=0)


@pytest.mark.parametrize(("attempt", "sentence"), REFUSED)
def test_refusals_say_why(attempt, sentence):
    with pytest.raises(PulseError, match=sentence):
        attempt()
