from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats
from scipy.signal import lfilter
from sklearn.linear_model import LinearRegression

import pulse_pyro as pp
from pulse_pyro._core.errors import BundleError, DataError, ModelError, SettingError
from pulse_pyro.diagnostics.by_unit import Place
from pulse_pyro.diagnostics.serial import serial_rows
from pulse_pyro.laws.adapter import LawAdapter
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.memory import (
    KINDS,
    Memory,
    Shape,
    fit_memory,
    innovations_and_covariances,
    likelihood,
    steps_of,
    sums_of,
)
from tests.helpers import FALSE_ALARM, arma, z_bound

KEEP = np.array([0.7, -0.4])
SHOCK = np.array([[1.0, 0.3], [0.3, 0.5]])
ROOT = np.array([[0.6, 0.0], [0.2, 0.4]])


def covariance(step, keep, shock, level):
    """Of one unit's rows (n q, n q): level + what fades, by the lag between them."""
    stationary = shock / (1 - np.outer(keep, keep))
    lag = step[:, None] - step
    out = np.empty((len(step), len(keep), len(step), len(keep)))
    for a in range(len(step)):
        for b in range(len(step)):
            ahead, behind = keep ** max(lag[a, b], 0), keep ** max(-lag[a, b], 0)
            out[a, :, b] = level + ahead[:, None] * stationary * behind
    return out.reshape(len(step) * len(keep), -1)


def by_hand(residual, unit, step, keep, shock, level):
    """Log likelihood as one multivariate normal a unit."""
    total = 0.0
    for one in np.unique(unit):
        rows = (unit == one) & np.isfinite(residual).all(1)
        if rows.any():
            cov = covariance(step[rows], keep, shock, level)
            total += stats.multivariate_normal(np.zeros(len(cov)), cov).logpdf(
                residual[rows].ravel()
            )
    return total


def ragged(seed=0, w_dim=2):
    """Units of 1 to 12 rows with gaps in steps, and rows that lack a value."""
    rng = np.random.default_rng(seed)
    lengths = [9, 12, 1, 4, 7, 2]
    unit = np.repeat(np.arange(6), lengths)
    step = np.concatenate([np.cumsum(rng.integers(1, 4, n)) for n in lengths])
    residual = rng.standard_normal((len(unit), w_dim))
    residual[rng.random(len(unit)) < 0.2, 0] = np.nan
    return residual, unit, step


def simulated(units, time, keep=0.0, level=0.0, w_dim=1, seed=0):
    """Residuals with unit shocks, and where they stand."""
    rng = np.random.default_rng(seed)
    shock = rng.standard_normal((units, time + 300, w_dim))
    u = lfilter([1.0], [1.0, -keep], shock, axis=1)[:, 300:]
    u = u + level * rng.standard_normal((units, 1, w_dim))
    return u.reshape(-1, w_dim), np.repeat(np.arange(units), time), np.tile(np.arange(time), units)


def parts_of(memory):
    """keep, shock and level of a memory."""
    return memory.keep[-memory.w_dim :], memory.left, memory.level


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("keep", "root"), [(KEEP, 0 * ROOT), (0 * KEEP, ROOT), (KEEP, ROOT)], ids=KINDS
)
def test_the_likelihood_is_that_of_one_multivariate_normal_a_unit(seed, keep, root):
    rows = ragged(seed)
    found = likelihood(sums_of(steps_of(*rows)), keep, SHOCK, root)
    assert_allclose(found.value, by_hand(*rows, keep, SHOCK, root @ root.T), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_likelihood(kind):
    sums, shape = sums_of(steps_of(*ragged())), Shape(kind, 2)
    numbers = 0.5 * np.random.default_rng(0).standard_normal(len(shape.bounds))

    def value(x):
        keep, shock, level = shape.parameters(x)
        return likelihood(sums, keep, shock @ shock.T, level).value

    keep, shock, level = shape.parameters(numbers)
    slopes = shape.slopes(numbers, likelihood(sums, keep, shock @ shock.T, level))
    wanted = optimize.approx_fprime(numbers, value, 1e-6)
    assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("w_dim", [1, 2])
def test_a_fit_reports_its_likelihood_in_the_units_of_w(kind, w_dim):
    residual, unit, step = ragged(1, w_dim)
    residual = 50.0 * residual
    memory = fit_memory(residual, unit, step, kind)
    assert_allclose(memory.log_likelihood, by_hand(residual, unit, step, *parts_of(memory)))
    known = residual[np.isfinite(residual).all(1)]
    none = stats.multivariate_normal(np.zeros(w_dim), known.T @ known / len(known))
    assert_allclose(memory.memoryless, none.logpdf(known).sum())
    assert memory.log_likelihood >= memory.memoryless - 1e-6
    assert (memory.rows, memory.units) == (
        len(known),
        len(np.unique(unit[np.isfinite(residual).all(1)])),
    )


@pytest.mark.parametrize("kind", ["ar", "level"])
def test_no_other_search_finds_more(kind):
    rows = simulated(12, 10, 0.5 if kind == "ar" else 0.0, 0.0 if kind == "ar" else 0.8)
    memory = fit_memory(*rows, kind)

    def worse(x):
        keep, level = (np.tanh(x[:1]), 0.0) if kind == "ar" else (np.zeros(1), np.exp(x[0]))
        return -by_hand(*rows, keep, np.exp(x[1:, None]), level)

    best = optimize.minimize(worse, [0.1, 0.1], method="Nelder-Mead", options={"xatol": 1e-7})
    assert_allclose(memory.log_likelihood, -best.fun, atol=1e-6)
    found = np.tanh(best.x[0]) if kind == "ar" else np.exp(best.x[0])
    assert_allclose(memory.keep[-1] if kind == "ar" else memory.level[0, 0], found, atol=1e-3)


def test_both_together_explain_at_least_as_much_as_either():
    for seed in range(5):
        rows = ragged(seed)
        each = {kind: fit_memory(*rows, kind).log_likelihood for kind in KINDS}
        assert each["level+ar"] >= max(each["ar"], each["level"]) - 1e-5


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.0, -0.6])
def test_what_stays_is_recovered(keep):
    residual, unit, step = simulated(50, 100, keep, w_dim=3)
    memory = fit_memory(residual, unit, step, "ar")
    error = np.sqrt((1 - keep**2) / len(residual))
    assert np.abs(memory.keep - keep).max() < 1.1 * z_bound(3) * error
    assert_allclose(memory.left, np.eye(3), atol=1.1 * z_bound(9) * np.sqrt(2 / len(residual)))
    assert_allclose(memory.variance, memory.shock / (1 - np.outer(memory.keep, memory.keep)))


def test_what_stays_is_recovered_from_every_third_row_of_half_the_units():
    residual, unit, step = simulated(100, 90, 0.9)
    residual[(unit % 2 == 0) & (step % 3 > 0)] = np.nan
    memory = fit_memory(residual, unit, step, "ar")
    assert abs(memory.keep[0] - 0.9) < z_bound() * np.sqrt((1 - 0.81) / memory.rows) * 1.5
    there = np.isfinite(residual[:, 0])  # a row that is not there is a gap like one without W
    same = fit_memory(residual[there], unit[there], step[there], "ar")
    assert_array_equal(same.keep, memory.keep)


def test_levels_are_recovered_and_told_from_noise_that_fades():
    residual, unit, step = simulated(400, 30, 0.6, 1.5)
    memory = fit_memory(residual, unit, step, "level+ar")
    # a unit's mean varies by its level, and by what fades: 1 / (1 - .6)^2 / 30
    error = np.sqrt(2 / 400) * (1.5**2 + 1 / 0.16 / 30)
    assert abs(memory.level[0, 0] - 1.5**2) < 1.2 * z_bound() * error
    assert abs(memory.keep[1] - 0.6) < 1.2 * z_bound() * np.sqrt(0.64 / len(residual))
    assert_allclose(memory.keep[0], 1.0)
    assert_array_equal(memory.shock[0], 0.0)
    alone = fit_memory(*simulated(400, 30, 0.0, 1.5), "level")
    assert abs(alone.level[0, 0] - 1.5**2) < z_bound() * np.sqrt(2 / 400) * (1.5**2 + 1 / 30)
    assert_array_equal(alone.keep, [1.0, 0.0])
    assert_allclose(alone.start, np.diag([alone.level[0, 0], alone.left[0, 0]]))


@pytest.mark.parametrize("kind", KINDS)
def test_innovations_are_what_the_joint_normal_does_not_predict(kind):
    residual, unit, step = ragged(2)
    memory = fit_memory(residual, unit, step, kind)
    found, spread = innovations_and_covariances(memory, residual, unit, step)
    known = np.isfinite(residual).all(1)
    assert_array_equal(np.isfinite(found).all(1), known)
    assert_array_equal(found, memory.innovations(residual, unit, step))
    for one in np.unique(unit[known]):
        rows = np.flatnonzero((unit == one) & known)
        cov, y = covariance(step[rows], *parts_of(memory)), residual[rows].ravel()
        for k in range(len(rows)):
            past, now = slice(0, 2 * k), slice(2 * k, 2 * k + 2)
            gain = cov[now, past] @ np.linalg.pinv(cov[past, past])
            assert_allclose(found[rows[k]], y[now] - gain @ y[past], atol=1e-8)
            left = cov[now, now] - gain @ cov[past, now]
            assert_allclose(spread[rows[k]], left, atol=1e-8)


# Laws that carry a memory.


def archive(units, time, keep=0.0, level=0.0, seed=0, alternate=None, w_dim=1):
    """W = S + what persists; alternate : W is AR(2) with these coefficients instead."""
    rng = np.random.default_rng(seed)
    s = arma((units, time), rng)
    if alternate is None:
        u = simulated(units, time, keep, level, w_dim, seed + 1)[0].reshape(units, time, w_dim)
    else:
        shock = rng.standard_normal((units, time + 300, w_dim))
        u = lfilter([1.0], [1.0, *(-np.array(alternate))], shock, axis=1)[:, 300:]
    names = tuple(f"w{j}" for j in range(w_dim))
    units = tuple(f"u{seed}.{i}" for i in range(units))
    return pp.History.from_arrays(s, s + u, units=units, s_names=("s",), w_names=names)


def serial(law, held_out):
    found = pp.diagnose(law, held_out, seed=0).checks
    return next(check for check in found if check.name.startswith("serial"))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({"keep": 0.9}, "ar"), ({"level": 1.0}, "level"), ({"keep": 0.7, "level": 1.0}, "level+ar")],
)
def test_serial_fails_without_the_memory_and_passes_with_it(settings, kind):
    fit, held_out = archive(60, 60, **settings), archive(60, 60, **settings, seed=5)
    law = pp.linear_lags(3)
    assert serial(law.fit(fit, seed=0), held_out).verdict == "fail"
    found = serial(law.with_memory(kind).fit(fit, seed=0), held_out)
    assert found.verdict == "pass"
    assert "memory" in found.text


@pytest.mark.parametrize("kind", ["level", "ar"])
def test_serial_fails_a_memory_of_another_shape(kind):
    ups_and_downs = {"alternate": (-0.3, 0.6)}
    fit, held_out = archive(60, 60, **ups_and_downs), archive(60, 60, **ups_and_downs, seed=5)
    assert serial(pp.linear_lags(3).with_memory(kind).fit(fit, seed=0), held_out).verdict == "fail"


def test_serial_allows_for_a_memory_that_was_estimated():
    """A slight memory is learned with the most error, the more so from few units."""
    below = {1.0: 0, 7.0: 0}
    for r in range(150):
        memory = fit_memory(*simulated(10, 20, 0.1, seed=2 * r), "ar")
        residual, unit, step = simulated(60, 20, 0.1, seed=2 * r + 1)
        left = memory.innovations(residual, unit, step)[:, 0]
        x = np.random.default_rng(r).standard_normal((len(left), 1))
        for extra in below:
            below[extra] += serial_rows(left, x, Place(unit, step), extra=extra).p < 0.05
    most = stats.binom.isf(FALSE_ALARM, 150, 0.05)
    assert below[7.0] <= most < below[1.0]


def test_a_check_divides_by_what_taught_the_memory():
    fit, held_out = archive(10, 20, 0.1), archive(60, 20, 0.1, seed=5)
    law = pp.linear_lags(1).with_memory("ar").fit(fit, seed=0)
    left = law.memory.innovations(
        held_out.w - law(held_out).mean(), held_out.unit_of, held_out.step
    )
    place = Place(held_out.unit_of, held_out.step)
    wanted = serial_rows(left[:, 0], held_out.s, place, extra=7.0)
    assert f"p = {wanted.p:.2g}" in serial(law, held_out).text


def test_other_checks_are_those_of_the_law_alone():
    fit, held_out = archive(30, 30, 0.9), archive(30, 30, 0.9, seed=5)
    law = pp.linear_lags(3).fit(fit, seed=0)
    asked_again = ["serial w0", "dependence w0"]  # of what the filter leaves
    one = pp.diagnose(law, held_out, seed=0).table.drop(asked_again)
    two = pp.diagnose(pp.laws.with_memory(law, fit), held_out, seed=0).table.drop(asked_again)
    assert one.equals(two)


def test_a_law_with_memory_answers_as_before():
    history = archive(20, 20, 0.8, w_dim=2)
    law = pp.linear_lags(3).fit(history, seed=0)
    same = pp.linear_lags(3).with_memory("ar").fit(history, seed=0)
    assert type(same) is PosteriorLaw
    assert (same.id, same.units, same.schema) == (law.id, law.units, law.schema)
    assert law.memory is None
    assert same.memory.keep.shape == (2,)
    assert_array_equal(same(history).mean(), law(history).mean())
    assert_array_equal(same.follow().push(np.zeros(1)).mean(), law.follow().push([0.0]).mean())
    assert "memory" in repr(same)
    assert "memory" not in repr(law)


def test_the_memory_is_that_of_the_residuals_where_all_inputs_are_seen():
    history = archive(20, 30, 0.8)
    w = history.w.copy()
    w[::7] = np.nan
    history = replace(history, w=w)
    law = pp.linear_lags(3).fit(history, seed=0)
    residual = history.w - law(history).mean()
    residual[history.step < 2] = np.nan
    wanted = fit_memory(residual, history.unit_of, history.step, "ar")
    found = pp.laws.with_memory(law, history).memory
    assert_array_equal(found.keep, wanted.keep)
    assert found.rows == wanted.rows


class Half:
    """A law made elsewhere."""

    def __init__(self, law):
        self.law, self.schema = law, law.schema

    def __call__(self, source, at=None):
        return self.law(source, at)


def test_laws_of_every_make_take_a_memory():
    history = archive(20, 30, 0.8)
    regressor = (
        pp.laws.from_sklearn(LinearRegression(), 3).with_memory("level").fit(history, seed=0)
    )
    assert type(regressor).__name__ == "FittedSklearn"
    assert regressor.memory.kind == "level"
    space = pp.state_space(2, ar=1, ma=0).with_memory("ar").fit(history, seed=0)
    assert type(space) is pp.laws.FilteredLaw
    assert space.memory.rows == len(history.s) - len(history.units)  # the filter's first windows
    wrapped = pp.laws.with_memory(Half(regressor), history)
    assert isinstance(wrapped, LawAdapter)
    assert_array_equal(wrapped(history).mean(), regressor(history).mean())
    assert_allclose(wrapped.memory.keep, pp.laws.with_memory(regressor, history).memory.keep)


def test_a_memory_is_saved_with_its_law(tmp_path):
    history = archive(20, 20, 0.8, 0.5, w_dim=2)
    law = pp.linear_lags(3).with_memory("level+ar").fit(history, seed=0)
    again = pp.load(pp.save(law, tmp_path / "law"))
    assert again.id == law.id
    assert repr(again.memory) == repr(law.memory)
    for one, two in zip(again.memory.arrays, law.memory.arrays, strict=True):
        assert_array_equal(one, two)
    plain = replace(law, memory=None)
    assert pp.load(pp.save(plain, tmp_path / "plain")).memory is None
    assert pp.load(tmp_path / "law", law=law) is law
    for handed in (plain, pp.laws.with_memory(plain, history, "ar")):
        with pytest.raises(BundleError, match="memory"):
            pp.load(tmp_path / "law", law=handed)


def test_policies_keep_the_memory_of_their_law(tmp_path):
    history = archive(20, 20, 0.8)
    law = pp.linear_lags(3).with_memory("ar").fit(history, seed=0)
    phi = pp.terms(["1", "w0*a"], 2, observed=["s"], missing=["w0"])
    policy = pp.PulseUCB(law, phi, pp.constant(1.0), reward_sd=0.1)
    for _ in range(3):
        policy.act([0.1])
    again = pp.load(pp.save(policy, tmp_path / "policy"), features=phi)
    assert_array_equal(again.law.memory.keep, law.memory.keep)


@pytest.mark.parametrize("engine", [None, pp.Laplace(draws=20)])
def test_a_growing_archive_keeps_the_memory(engine):
    history = archive(20, 20, 0.8)
    law = pp.linear_lags(3).with_memory("ar").fit(history, engine, seed=0)
    grown = pp.GrowingArchive(history, law, every=5, inference=engine, seed=0)
    for t in range(8):
        grown.reveal("new", grown.see("new", np.array([0.1 * t])), np.array([0.1]))
    assert_array_equal(grown.refit().memory.keep, law.memory.keep)


# Bad input.


def test_what_cannot_teach_a_memory_is_refused():
    history = archive(10, 6)
    law = pp.linear_lags(1).fit(history, seed=0)

    def of(history, kind="ar"):
        return pp.laws.with_memory(law, history, kind)

    with pytest.raises(SettingError, match="did you mean 'level'"):
        of(history, "levels")
    with pytest.raises(SettingError, match="known: 'ar'"):
        pp.linear_lags(1).with_memory("garch")
    with pytest.raises(DataError, match="one usable row each"):
        of(history.where(history.step == 2))
    with pytest.raises(DataError, match="one unit"):
        of(history.take([0]), "level")
    assert of(history.take([0])).memory.units == 1
    with pytest.raises(DataError, match="at none of them"):
        of(replace(history, w=np.full_like(history.w, np.nan)))
    with pytest.raises(DataError, match="all 0"):
        of(replace(history, w=law(history).mean()))
    with pytest.raises(DataError, match="do not vary"):
        of(replace(history, w=law(history).mean() + 2.0))
    with pytest.raises(DataError, match="'w1' does not match"):
        of(archive(10, 6, w_dim=2))
    with pytest.raises(DataError, match="a History was expected"):
        of(history.w)
    with pytest.raises(ModelError, match="fit it first"):
        pp.laws.with_memory(pp.linear_lags(1), history)
    two = archive(10, 6, w_dim=2)
    of_two = pp.linear_lags(1).fit(two, seed=0)
    both = replace(two, w=of_two(two).mean() + two.w[:, :1])
    with pytest.raises(DataError, match="repeat each other"):
        pp.laws.with_memory(of_two, both)


def test_a_memory_of_other_shapes_is_refused():
    good = {"rows": 2, "units": 1, "log_likelihood": 0.0, "memoryless": 0.0}
    one = np.eye(1)
    with pytest.raises(SettingError, match="kind"):
        Memory("season", np.ones(1), one, one, **good)
    with pytest.raises(SettingError, match="must be"):
        Memory("level", np.ones(1), one, one, **good)
    with pytest.raises(SettingError, match="must be"):
        Memory("ar", np.ones(1), np.eye(2), one, **good)
    with pytest.raises(SettingError, match="-1 and 1"):
        Memory("ar", np.array([1.5]), one, one, **good)
    with pytest.raises(DataError, match="residual must be"):
        Memory("ar", np.array([0.5]), one, one, **good).innovations(
            np.ones((3, 2)), np.zeros(3, int), np.arange(3)
        )
