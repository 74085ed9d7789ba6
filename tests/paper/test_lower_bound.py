import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.hard import HardWorld
from pulse_pyro.paper.lower_bound import (
    LOWER_BOUND,
    SWEEPS,
    along_n,
    along_t,
    one_f,
    power_of,
    slopes_of,
    split,
)
from pulse_pyro.paper.runner import run_experiment
from tests.helpers import FALSE_ALARM, binomial_floor, z_bound

SIZES = np.array([100.0, 300.0, 1000.0, 3000.0, 10000.0])
SMALL = (
    along_n((3, 4, 6), units=12, horizon=40),
    along_t((40, 80, 160), units=12, length=64),
    one_f((24, 96, 384), HardWorld(12 * 4**3), units=12, horizon=40),
)


@pytest.fixture(scope="module")
def small():
    experiment = replace(
        LOWER_BOUND,
        settings=tuple(point.setting for sweep in SMALL for point in sweep.points),
        extra=lambda result: slopes_of(result, SMALL),
    )
    return run_experiment(experiment, runs=40, seed=0)


def power_law(power, runs=40, noise=0.3, seed=0):
    luck = stream(seed, "luck").standard_normal((len(SIZES), runs))
    return SIZES[:, None] ** power * np.exp(noise * luck)


@pytest.mark.parametrize("power", [-1 / 3, 0.0, 0.5, 1.0])
def test_an_exact_power_law_has_its_power_and_no_width(power):
    found = power_of(SIZES, 7.0 * SIZES[:, None] ** power * np.ones((1, 5)))
    assert found == pytest.approx((power, power, power))


def test_two_points_and_two_runs_by_hand():
    # means 2 and 8 at x = 1 and e: slope log 4; weights -1 and 1, so the linearised runs are
    # -1/2 + 6/8 and -3/2 + 10/8, their sd is |.25 + .25| / sqrt(2), over sqrt(2) runs .25
    found = power_of(np.array([1.0, math.e]), np.array([[1.0, 3.0], [6.0, 10.0]]))
    reach = stats.t.ppf(0.975, 1) * 0.25
    assert found == pytest.approx((math.log(4), math.log(4) - reach, math.log(4) + reach))


def test_intervals_contain_the_truth_and_exclude_others():
    found = power_of(SIZES, power_law(-1 / 3))
    assert found.low <= -1 / 3 <= found.high
    assert not found.low <= -1 / 4 <= found.high
    assert not found.low <= 0.0 <= found.high


def test_runs_that_zeros_occur_in_are_fine_but_means_are_not():
    y = power_law(0.5)
    y[:, ::2] = 0.0
    assert power_of(SIZES, y).low < 0.5 < power_of(SIZES, y).high
    y[1] = 0.0
    assert np.isnan(power_of(SIZES, y)).all()


def test_the_interval_covers_at_its_level_though_points_share_their_runs():
    hits = 0
    for seed in range(600):
        own = stream(seed, "gamma").gamma(2.0, 0.5, (len(SIZES), 30))
        mixed = SIZES[:, None] ** -0.25 * (own + own.mean(0)) / 2  # mean 1, points dependent
        found = power_of(SIZES, mixed)
        hits += found.low <= -0.25 <= found.high
    assert hits >= binomial_floor(600, 0.935)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (SIZES, power_law(1.0)[:4]),
        (SIZES, power_law(1.0)[:, :1]),
        (SIZES, power_law(1.0)[:, 0]),
        (-SIZES, power_law(1.0)),
        (np.full(5, 10.0), power_law(1.0)),
    ],
)
def test_bad_tables_are_refused(x, y):
    with pytest.raises(SettingError, match="power_of"):
        power_of(x, y)


def test_levels_that_are_none_are_refused():
    with pytest.raises(SettingError, match="level"):
        power_of(SIZES, power_law(1.0), level=95)


def test_sizes_of_the_experiment():
    for sweep in SWEEPS:
        sizes = [p.rows if sweep.along == "N" else p.horizon for p in sweep.points]
        assert len(sizes) >= 5
        assert math.log10(max(sizes) / min(sizes)) >= 1.5
        assert all(p.rows >= 10 * p.horizon for p in sweep.points)  # the theorem has N >> T
        if not sweep.control:
            assert all(p.rows == p.instance.rows for p in sweep.points)
            for p in sweep.points:  # the signal-to-noise of a bump is 1 at every size
                bumps = p.instance.bumps
                signal = p.rows / 2 / bumps.bins * bumps.energy * p.instance.peak**2
                assert signal == pytest.approx(1.0)
    labels = [setting.label for setting in LOWER_BOUND.settings]
    assert len(set(labels)) == len(labels) == 26


def test_every_line_says_it_was_not_published(small):
    assert small.table["why"].str.startswith("not published: ").all()
    assert set(small.table["agent"]) == set(LOWER_BOUND.notes)
    assert set(LOWER_BOUND.shown) <= set(LOWER_BOUND.notes)
    assert small.counts == {"reproduced": 0, "differs": 0, "unexplained": 0}


def test_parts_add_up_to_the_conditional_regret(small):
    for point in SMALL[0].points:
        run = small.curves[point.label]
        parts = split(point, run, small.seed)
        assert np.allclose(parts.linear + parts.nonparametric, run.regret_cond[..., -1])
        assert (parts.wrong >= 0.0).all()
        assert (parts.wrong <= 1.0).all()
        oracle, known = run.names.index("cond_oracle"), run.names.index("pulse_theta")
        assert (parts.nonparametric[oracle] == 0.0).all()
        assert (parts.linear[known] == 0.0).all()


def test_a_known_theta_leaves_the_law_s_wrong_signs(small):
    # the law errs in each bin with probability P(N(0,1) > 1), a little more for its intercept
    found = []
    for point in SMALL[0].points:
        run = small.curves[point.label]
        found.append(split(point, run, small.seed).wrong[run.names.index("pulse_theta")])
    share = np.mean(found, axis=0)  # one value a run: its archives share rows
    z = (share.mean() - stats.norm.sf(1.0)) / share.std(ddof=1) * math.sqrt(len(share))
    assert -z_bound() <= z <= z_bound() + 1.0
    pulse = split(SMALL[0].points[0], small.curves[SMALL[0].points[0].label], small.seed)
    assert pulse.wrong[0].mean() > 2 * share.mean()


def test_table_of_slopes(small):
    table = small.extra
    assert list(table.columns) == [
        "sweep",
        "along",
        "measured",
        "agent",
        "slope",
        "low",
        "high",
        "theory",
        "verdict",
    ]
    assert ((table["low"] < table["slope"]) & (table["slope"] < table["high"])).all()
    inside = (table["low"] <= table["theory"]) & (table["theory"] <= table["high"])
    assert (table["verdict"].str.contains("contains") == inside).all()
    assert set(table["theory"]) == {-1 / 3, 0.0, 0.5, 1.0}
    # at a rate of false alarms of its own, not at 5 %: theory holds but for the control
    wide = stats.t.ppf(1 - FALSE_ALARM / 2, 39) / stats.t.ppf(0.975, 39)
    off = (table["slope"] - table["theory"]).abs() > (table["high"] - table["slope"]) * wide
    control = table["sweep"].str.startswith("control")
    assert not off[~control].any()
    # f fixed: signal-to-noise grows from .4 to 6, the share of wrong signs falls from .26 to .007
    assert (table["verdict"][control] == "interval excludes theory").all()


def test_results_go_to_json(small):
    rows = small.to_json()["extra"]
    assert len(rows) == len(small.extra)
    assert {"slope", "low", "high", "theory", "verdict"} <= set(rows[0])
