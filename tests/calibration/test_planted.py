"""The smallest misfit that is seen: against power that is known in closed form."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.calibration.planted import PLANTS, SIZES, planted_misfits
from pulse_pyro.calibration.rung import ErrorRows
from tests.calibration.helpers import W_FEATURES
from tests.helpers import linear_history


def held_out(seed=0, clusters=50, time=20, inputs=3, level=0.0, q=1):
    rng = np.random.default_rng(seed)
    n = clusters * time
    cluster, step = np.divmod(np.arange(n), time)
    x = rng.standard_normal((n, inputs))
    error = rng.standard_normal((n, q)) + level * rng.standard_normal((clusters, q))[cluster]
    names = tuple(f"x{k}" for k in range(inputs))
    return ErrorRows(
        names=tuple(f"w{j}" for j in range(q)),
        target=error,
        forecast=np.zeros((n, q)),
        x=x,
        x_names=names,
        s=x,
        s_names=names,
        cluster=cluster,
        unit=cluster,
        time=step,
        history_row=np.arange(n),
    )


def bend_test(rows, _):
    """Largest t, by cluster, of squares of the inputs, Bonferroni."""
    z = rows.x**2 - (rows.x**2).mean(0)
    sums = np.stack([np.bincount(rows.cluster, rows.error[:, 0] * c) for c in z.T], axis=1)
    t = np.abs(sums.sum(0)) / np.sqrt((sums**2).sum(0))
    return min(2 * stats.norm.sf(t.max()) * len(z.T), 1.0)


def test_the_size_is_where_the_power_of_a_known_test_says():
    # a planted bend of rms d in noise of sd 1 has t of mean d sqrt(n) in its own column
    rows = held_out()
    found = planted_misfits(rows, bend_test, kinds=["bend"], seed=0, reps=40)
    critical = stats.norm.isf(0.05 / 6)
    needed = (critical + stats.norm.ppf(0.8)) / np.sqrt(len(rows.x))
    place = np.searchsorted(SIZES, needed)
    assert SIZES[place - 1] <= found.size[0] <= SIZES[place + 1]
    assert found.false_alarms <= stats.binom.isf(1e-5, 40, 0.05) / 40
    assert found.in_time.all()
    assert "bend" in repr(found)
    assert found.table.loc["bend", "seen"] >= 0.8 * found.table.loc["bend", "tried"]


def test_a_law_that_is_off_is_not_taken_for_a_plant():
    # the real misfit would be seen every time: signs by cluster take it away
    rows = held_out(1)
    off = replace(rows, target=rows.target + 0.5 * rows.x[:, :1] ** 2)
    assert bend_test(off, 0) < 1e-5
    found = planted_misfits(off, bend_test, kinds=["bend"], seed=0, reps=20)
    assert found.false_alarms <= stats.binom.isf(1e-5, 20, 0.05) / 20


def test_what_a_test_cannot_see_is_said_to_be_unseen():
    found = planted_misfits(held_out(2), bend_test, kinds=["interaction", "sign"], seed=0, reps=10)
    # an interaction of two independent inputs leaves no trace in squares of one
    assert np.isnan(found.size).all()
    assert "interaction none" in repr(found)


def test_every_kind_is_seen_by_its_own_shape_in_the_order_of_sizes():
    asked = []

    def oracle(rows, seed):
        asked.append(seed)
        return 0.0 if np.sqrt((rows.error**2).mean()) > 0.15 else 1.0

    rows = held_out(3)
    still = replace(rows, target=rows.x[:, :1] + 1e-9 * rows.error, forecast=rows.x[:, :1])
    found = planted_misfits(still, oracle, seed=0, reps=5)
    sd = rows.x[:, 0].std()
    assert found.kinds == tuple(PLANTS)
    expected = SIZES[int(np.searchsorted(np.array(SIZES) * sd, 0.15))]
    assert found.size.tolist() == [expected] * len(PLANTS)
    assert found.false_alarms == 0.0


def test_the_same_seed_gives_the_same_and_targets_are_planted_alike():
    rows = held_out(4, q=2)
    one, two = (planted_misfits(rows, bend_test, kinds=["bend"], seed=5, reps=5) for _ in range(2))
    assert one.table.equals(two.table)


def test_a_search_that_runs_out_of_time_says_so():
    found = planted_misfits(held_out(5), bend_test, seed=0, reps=3, seconds=0.0)
    assert not found.in_time.any()
    assert np.isnan(found.size).all()


def test_one_input_has_no_interaction():
    found = planted_misfits(held_out(6, inputs=1), bend_test, seed=0, reps=3)
    assert np.isnan(found.size[:2]).all()
    assert (found.tried[:2] == 0).all()


@pytest.mark.parametrize(
    ("error", "message", "settings"),
    [
        (SettingError, "kind 'bnd' is not known", {"kinds": ["bnd"]}),
        (SettingError, "level must lie", {"level": 5}),
        (SettingError, "level must lie", {"power": 0.0}),
        (SettingError, "reps", {"reps": 0}),
    ],
)
def test_bad_settings_are_refused(error, message, settings):
    with pytest.raises(error, match=message):
        planted_misfits(held_out(7), bend_test, seed=0, **settings)


def test_few_clusters_are_refused():
    with pytest.raises(DataError, match="at least 10 clusters"):
        planted_misfits(held_out(8, clusters=9), bend_test, seed=0)


def test_a_fitted_law_or_a_table_is_refused():
    history = linear_history(units=20, time=10, lags=2)[0]
    law = pp.linear_lags(2)
    for bad in ((law.fit(history, seed=0), history), (law, history.to_frame())):
        with pytest.raises(pp.errors.ModelError, match=r"a law that is not fitted, .*History"):
            pp.calibration.smallest_misfit(*bad, W_FEATURES, seed=0)
    with pytest.raises(pp.errors.FeatureError, match=r"Features.* expected, but got str"):
        pp.calibration.smallest_misfit(law, history, "w", seed=0)


def test_without_a_band_nothing_was_looked_for_and_the_reason_is_told():
    history, _ = linear_history(units=40, time=13, lags=12)
    law = pp.linear_lags(12)
    with pytest.raises(DataError, match=r"smallest_misfit: without a band .* at least 46 held-out"):
        pp.calibration.smallest_misfit(law, history, W_FEATURES, seed=0, reps=2)
