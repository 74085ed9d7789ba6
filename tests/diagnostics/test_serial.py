import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.signal import lfilter

import pulse_pyro as pp
from pulse_pyro.diagnostics.serial import FEWEST, SerialTest, serial_check, serial_dependence
from pulse_pyro.envs.latent_world import latent_ar
from tests.helpers import FALSE_ALARM, arma, mean_at

NAN = float("nan")


def noise(kind, x, rng):
    shape = x.shape[:2]
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "heavy":
        return rng.standard_t(3, shape)
    if kind == "skewed":
        return rng.exponential(size=shape) - 1
    return (0.3 + 8 * np.abs(x[..., 0])) * rng.standard_normal(shape)


def ar_noise(units, time, rng, g=0.5, lag=1):
    shock = rng.standard_normal((units, time + 100))
    return lfilter([1.0], [1.0, *[0.0] * (lag - 1), -g], shock, axis=1)[:, 100:]


def by_hand(residual, x, lag):
    """Statistic and correlation at one lag; every pair's regression without row l is refitted."""
    units, times = np.nonzero(np.isfinite(residual) & np.isfinite(x[..., 0]))
    y, v = residual[units, times], x[units, times, 0]
    z = np.stack([np.ones_like(v), v, v**2, v**3], axis=1)
    e = y - z @ np.linalg.lstsq(z, y, rcond=None)[0]
    score = stats.norm.ppf(stats.rankdata(e) / (len(e) + 1))
    sums, left, right = {}, [], []
    for k in range(len(y)):
        for l in range(len(y)):  # noqa: E741
            if units[k] == units[l] and times[k] - times[l] == lag:
                rest = np.arange(len(y)) != l
                fit = np.linalg.lstsq(z[rest], y[rest], rcond=None)[0]
                left.append(y[k] - z[k] @ fit)
                right.append(score[l])
                sums[units[k]] = sums.get(units[k], 0.0) + left[-1] * right[-1]
    t = stats.ttest_1samp(list(sums.values()), 0.0)
    scale = np.linalg.norm(left) * np.linalg.norm(right)
    return t.statistic, t.pvalue, sum(sums.values()) / scale, len(sums)


def small(seed=0, units=12, time=9):
    rng = np.random.default_rng(seed)
    x = arma((units, time), rng)
    residual = ar_noise(units, time, rng, 0.4) + 0.3 + x[..., 0]
    residual[rng.random(residual.shape) < 0.15] = np.nan
    x[rng.random(residual.shape) < 0.05] = np.nan
    return residual, x


@pytest.mark.parametrize("seed", range(4))
def test_the_statistic_is_the_stated_one(seed):
    residual, x = small(seed)
    found = serial_dependence(residual, x, lags=3)
    t, p, correlation, units = zip(*(by_hand(residual, x, lag) for lag in (1, 2, 3)), strict=True)
    best = int(np.argmin(p))
    assert found.lag == best + 1
    assert_allclose(found.statistic, t[best], rtol=1e-8)
    assert_allclose(found.p, min(1.0, 3 * p[best]), rtol=1e-7)
    assert_allclose(found.correlation, correlation[best], rtol=1e-8)
    assert (found.units, found.lags) == (units[best], 3)


def test_errors_of_the_laws_mean_do_not_count():
    residual, x = small()
    bent = residual + 3 - 2 * x[..., 0] + 5 * x[..., 0] ** 2 + x[..., 0] ** 3
    assert_allclose(serial_dependence(bent, x), serial_dependence(residual, x), rtol=1e-7)


def test_units_of_measurement_and_order_of_units_do_not_count():
    residual, x = small()
    found = serial_dependence(residual, x)
    assert_allclose(serial_dependence(-1e-6 * residual, 1e5 * x + 3e5)[1], found[1], rtol=1e-5)
    assert_allclose(serial_dependence(residual[::-1], x[::-1]), found, rtol=1e-8)


@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed", "uneven"])
@pytest.mark.parametrize(("units", "time"), [(10, 10), (40, 25)])
def test_it_keeps_its_level_although_the_law_was_estimated(kind, units, time):
    rng = np.random.default_rng(1)
    reps, small_p = 300, []
    for _ in range(reps):
        x = arma((30 + units, time), rng)
        w = noise(kind, x, rng)
        law = np.polyfit(x[:30].ravel(), w[:30].ravel(), 1)
        small_p.append(serial_dependence(w[30:] - np.polyval(law, x[30:, :, 0]), x[30:]).p)
    for level in (0.05, 0.01):
        assert (np.array(small_p) < level).sum() <= stats.binom.isf(FALSE_ALARM / 16, reps, level)


def test_many_slow_inputs_do_not_make_independent_rows_look_dependent():
    rng = np.random.default_rng(2)
    t = []
    for _ in range(400):
        x = ar_noise(50, 20, rng, 0.95).reshape(5, 10, 20).transpose(1, 2, 0)
        t.append(serial_dependence(rng.standard_normal((10, 20)), x, lags=1).statistic)
    z = np.mean(t) / (np.std(t, ddof=1) / np.sqrt(len(t)))
    assert abs(z) <= stats.norm.isf(FALSE_ALARM / 2)


def judged(env, law, seed, units=40, length=60):
    fit, held = env.archive(2 * units, length, rng=pp.stream(seed, "a")).split(0.5, seed=seed)
    fitted = law.fit(fit, seed=seed)
    residual = held.grid.w[..., 0] - mean_at(fitted, held.grid.s)[..., 0]
    return serial_check("w", serial_dependence(residual, fitted.summary(held.grid.s)))


def test_it_fires_on_a_latent_autoregression():
    check = judged(latent_ar(ar=(0.5,)), pp.linear_lags(1), 0)
    assert check.verdict == "fail"
    assert "radius" in check.text
    assert "earlier rewards" in check.text


def test_it_is_quiet_where_the_law_leaves_independent_noise():
    assert judged(latent_ar(ar=(0.0,)), pp.linear_lags(1), 0).verdict == "pass"
    assert judged(pp.envs.w_times_action(), pp.linear_lags(19), 0).verdict == "pass"


def test_it_fires_where_lags_of_s_are_missing():
    assert judged(pp.envs.w_times_action(), pp.linear_lags(2), 0).verdict == "fail"


@pytest.mark.parametrize("sign", [-1, 1])
def test_dependence_of_either_sign_is_found_at_its_lag(sign):
    rng = np.random.default_rng(3)
    residual, x = ar_noise(40, 50, rng, sign * 0.4, lag=2), arma((40, 50), rng)
    found = serial_dependence(residual, x)
    assert found.lag == 2
    assert np.sign(found.correlation) == sign
    assert serial_check("w", found).verdict == "fail"


def test_units_with_their_own_level_depend_on_their_past():
    rng = np.random.default_rng(4)
    residual = rng.standard_normal((40, 1)) + rng.standard_normal((40, 20))
    assert serial_check("w", serial_dependence(residual, arma((40, 20), rng))).verdict == "fail"


def test_gaps_break_lags():
    rng = np.random.default_rng(5)
    residual, x = ar_noise(30, 40, rng), arma((30, 40), rng)
    residual[:, ::2] = np.nan
    found = serial_dependence(residual, x, lags=3)
    assert (found.lags, found.lag) == (1, 2)
    assert np.isnan(serial_dependence(residual, x, lags=1).p)


def test_too_little_to_judge_is_said_and_not_guessed():
    rng = np.random.default_rng(6)
    residual, x = rng.standard_normal((30, 10)), arma((30, 10), rng)
    few = serial_dependence(residual[: FEWEST - 1], x[: FEWEST - 1])
    assert np.isnan(few.p)
    check = serial_check("w", few)
    assert check.verdict == "info"
    assert "7 units" in check.text
    assert np.isfinite(serial_dependence(residual[:FEWEST], x[:FEWEST]).p)
    for nothing in (np.zeros((30, 10)), np.full((30, 10), NAN), 2 + x[..., 0]):
        assert np.isnan(serial_dependence(nothing, x).p)
    assert np.isnan(serial_dependence(residual[:, :1], x[:, :1]).p)
    assert np.isnan(serial_dependence(np.empty((0, 5)), np.empty((0, 5, 1))).p)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.concatenate([x, x, 0 * x + 1], axis=-1),
        lambda x: np.concatenate([x] * 200, axis=-1),
        lambda x: x[..., :0],
        lambda x: np.zeros_like(x),
        lambda x: np.random.default_rng(0).standard_normal((*x.shape[:2], 500)),
    ],
    ids=["collinear", "many collinear", "no inputs", "constant", "more inputs than rows"],
)
def test_awkward_inputs_are_survived(change):
    rng = np.random.default_rng(7)
    x = arma((20, 15), rng)
    quiet = serial_dependence(rng.standard_normal((20, 15)), change(x))
    loud = serial_dependence(ar_noise(20, 15, rng, 0.8), change(x))
    assert quiet.p > FALSE_ALARM
    assert serial_check("w", loud).verdict == "fail"


@pytest.mark.parametrize(
    ("p", "correlation", "verdict"),
    [
        (0.0009, 0.05, "fail"),
        (0.0009, -0.05, "fail"),
        (0.0009, 0.049, "warn"),
        (0.0011, 0.3, "warn"),
        (0.0099, -0.02, "warn"),
        (0.0099, 0.019, "pass"),
        (0.0101, 0.9, "pass"),
        (1e-30, 0.01, "pass"),
        (NAN, NAN, "info"),
    ],
)
def test_verdicts(p, correlation, verdict):
    check = serial_check("mood", SerialTest(3.0, p, correlation, 20, 3, 2))
    assert check.verdict == verdict
    assert check.name == "serial mood"


@pytest.mark.parametrize(
    ("residual", "x", "lags", "error"),
    [
        (np.zeros(5), np.zeros((5, 1)), 1, pp.errors.DataError),
        (np.zeros((9, 5)), np.zeros((9, 4, 1)), 1, pp.errors.DataError),
        (np.full((9, 5), np.inf), np.zeros((9, 5, 1)), 1, pp.errors.DataError),
        (np.zeros((9, 5)), np.zeros((9, 5, 1)), 0, pp.errors.SettingError),
    ],
)
def test_bad_input_gets_a_sentence(residual, x, lags, error):
    with pytest.raises(error, match="serial_dependence: "):
        serial_dependence(residual, x, lags)
