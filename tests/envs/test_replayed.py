"""What agents earned on recorded rounds, and how sure that is."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro._core.errors import FeatureError, SettingError
from pulse_pyro.envs.replay import (
    Contrast,
    Replay,
    Replayed,
    beside,
    clustered_se,
    joined,
    playable,
    replay_run,
    shuffled,
)
from pulse_pyro.envs.simulation import Agent
from tests.envs import helpers as replay_worlds
from tests.helpers import FALSE_ALARM


@pytest.fixture(scope="module")
def recorded():
    return replay_worlds.replay()


@pytest.fixture(scope="module")
def agents(recorded):
    law = pp.linear_lags(2).fit(replay_worlds.history(40, 30, 0), seed=0)
    small = pp.constant(0.25)
    return [
        pp.envs.pulse(recorded, law, radius=small),
        pp.envs.oful(recorded, radius=small),
        pp.envs.oful_full(recorded, radius=small),
        pp.envs.oful_lags(recorded, pp.Lags(2), radius=small),
    ]


@pytest.fixture(scope="module")
def played(recorded, agents):
    rows = playable(recorded, agents)
    return joined([replay_run(recorded, agents, shuffled(rows, seed=r)) for r in range(6)])


def by_hand():
    """Two agents, two runs, two rounds."""
    earned = np.array([[[1.0, 3.0], [2.0, 6.0]], [[0.0, 2.0], [0.0, 2.0]]])
    block = np.array([[0, 1], [0, 1]])
    return Replayed(("one", "two"), earned, np.zeros((2, 2, 2), int), block, 0.5, 5.0)


def test_difference_of_two_agents_by_hand():
    found = by_hand().contrast("one", "two")
    assert found.difference == 2.0  # of 1, 1, 2, 4
    assert_allclose(found.se, np.std([1, 3], ddof=1) / np.sqrt(2))
    # blocks: (1 + 2 - 4) = -1 and (1 + 4 - 4) = 1: sqrt(2 * 2) / 4
    assert_allclose(found.block_se, 0.5)


def test_both_errors_together_by_hand():
    found = Contrast(2.0, 0.3, 0.4)
    assert_allclose(found.total_se, 0.5)
    assert_allclose(found.ratio, 4.0)
    assert Contrast(0.0, 0.0, 0.0).ratio == 0.0  # agents that are alike
    assert Contrast(-1.0, 0.0, 0.0).ratio == -np.inf


def test_share_of_a_gap_by_hand():
    earned = np.array([[[0.0], [0.0]], [[1.0], [3.0]], [[4.0], [4.0]]])
    run = Replayed(("low", "mid", "high"), earned, np.zeros((3, 2, 1), int), np.zeros((2, 1)), 0, 4)
    share, se = run.closed("mid", "low", "high")
    assert share == 0.5
    # without one run: 3/4 and 1/4
    assert_allclose(se, np.sqrt(0.0625))
    assert run.closed("high", "low", "high")[0] == 1.0


def test_clusters_of_one_are_the_textbook_standard_error():
    values = np.random.default_rng(0).standard_normal(50)
    assert_allclose(clustered_se(values, np.arange(50)), values.std(ddof=1) / np.sqrt(50))
    assert np.isnan(clustered_se(values, np.zeros(50, int)))


def test_copies_of_a_row_in_its_cluster_tell_nothing_new():
    values, cluster = np.random.default_rng(1).standard_normal(20), np.arange(20)
    twice = np.repeat(values, 2), np.repeat(cluster, 2)
    assert_allclose(clustered_se(*twice), clustered_se(values, cluster))


def test_clustered_errors_cover_where_plain_ones_do_not():
    rng, count, size, times = np.random.default_rng(2), 40, 25, 2000
    shared = rng.standard_normal((times, count, 1)) + rng.standard_normal((times, count, size))
    rows = shared.reshape(times, -1)
    cluster = np.repeat(np.arange(count), size)
    limit = stats.t.ppf(0.975, count - 1)
    inside = [abs(r.mean()) <= limit * clustered_se(r, cluster) for r in rows]
    plain = np.abs(rows.mean(1)) <= 1.96 * rows.std(1) / np.sqrt(rows.shape[1])
    assert stats.binomtest(int(np.sum(inside)), times, 0.95).pvalue > FALSE_ALARM
    assert plain.mean() < 0.6


def test_agents_earn_the_utility_of_the_arm_they_play(recorded, agents):
    order = shuffled(playable(recorded, agents), seed=3)
    run = replay_run(recorded, agents, order)
    flat = recorded.utility.reshape(-1, 2)[order]
    for k in range(len(agents)):
        assert_array_equal(run.earned[k, 0], flat[np.arange(len(order)), run.action[k, 0]])
    assert_allclose(run.fixed, flat.mean(0).max())
    assert_allclose(run.best, flat.max(1).mean())
    assert (run.earned.mean((1, 2)) <= run.best + 1e-12).all()


def test_imputing_pays_where_w_decides(played):
    gain = played.contrast("pulse", "oful")
    assert gain.difference > 5 * gain.se > 0
    share, _ = played.closed("pulse", "oful", "oful_full")
    assert 0.3 < share < 1.0


def test_a_row_counts_only_if_every_agent_can_score_it(recorded, agents):
    rows = playable(recorded, agents)
    assert_array_equal(rows[:, 0], False)  # the second lag is not there yet
    assert rows[:, 1:].all()


def test_an_agent_of_other_rounds_is_refused(recorded):
    other = Agent("other", np.zeros((1, 5, 2, 3)))
    with pytest.raises(FeatureError, match="'other' has features"):
        playable(recorded, [other])


def test_a_round_that_cannot_be_scored_is_refused(recorded, agents):
    with pytest.raises(SettingError, match=r"see playable\(\)"):
        replay_run(recorded, agents, np.array([0]))


def test_a_round_of_unknown_utility_is_refused(recorded, agents):
    utility = np.array(recorded.utility)
    utility[0, 1] = np.nan
    other = Replay(recorded.history, utility, recorded.features)
    with pytest.raises(SettingError, match="not known"):
        replay_run(other, agents, np.array([1]))


@pytest.mark.parametrize("few", [[], [0, 0]])
def test_agents_must_be_there_and_have_names_of_their_own(recorded, agents, few):
    with pytest.raises(SettingError, match="distinct names"):
        replay_run(recorded, [agents[i] for i in few], np.array([1]))


def test_an_agent_that_is_not_there_is_named(played):
    with pytest.raises(SettingError, match="did you mean 'oful'"):
        played.of("ofull")


def test_results_put_side_by_side_are_those_played_together(recorded, agents, played):
    rows = playable(recorded, agents)
    parts = [
        joined([replay_run(recorded, [a], shuffled(rows, seed=r)) for r in range(6)])
        for a in agents
    ]
    both = beside(parts)
    assert both.names == played.names
    assert_array_equal(both.earned, played.earned)
    with pytest.raises(SettingError, match="distinct names"):
        beside([parts[0], parts[0]])


def test_runs_of_other_agents_or_rounds_do_not_join(recorded, agents):
    one = replay_run(recorded, agents, np.array([1, 2]))
    two = replay_run(recorded, agents, np.array([1, 2, 3]))
    with pytest.raises(SettingError, match="same number of rounds"):
        joined([one, two])
    with pytest.raises(SettingError, match="same rounds"):
        beside([one, two])


def test_table_and_pictures(played):
    table = played.table
    assert_allclose(table["utility"]["oful"], played.of("oful").mean())
    assert_allclose(table[["arm 0", "arm 1"]].sum(axis=1), 1.0)
    assert "pulse" in repr(played)
    ax = played.plot()
    assert [t.get_text() for t in ax.get_yticklabels()][-1] == table["utility"].idxmax()
    from pulse_pyro.report.plots import gain_curves

    lines = gain_curves(played).get_lines()
    total = (played.of("pulse") - played.of("oful")).sum(1).mean()
    assert_allclose(lines[0].get_ydata()[-1], total)
