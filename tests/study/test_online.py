"""Runs on real contexts: what is real stays real, what is made up follows its law."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro.study.worlds import Reward, draw_run, usable_rows
from tests.helpers import assert_mean, linear_history, z_bound

STAKES = pp.calibration.Stakes(200, 0.5, 1.3)


@pytest.fixture(scope="module")
def setting():
    history, _ = linear_history(units=30, time=25, lags=3)
    gaps = np.array(history.grid.s)
    gaps[3, 10], gaps[7, :8] = np.nan, np.nan
    seen = np.array(history.grid.seen)
    seen[5, 15:] = False
    held_out = pp.History.from_arrays(
        gaps, history.grid.w, seen=seen, units=history.units, s_names=("s",), w_names=("w",)
    )
    features = pp.terms(["1", "s", "w", "w*a"], 2, observed=["s"], missing=["w"])
    truth = pp.linear_lags(3).fit(held_out, seed=0)
    return truth, held_out, usable_rows(truth, held_out), features


def draw(setting, rounds=200, seed=0, reward=None):
    reward = reward or Reward(STAKES)
    truth, held_out, usable, features = setting
    rng = pp.stream(seed, "t")
    return draw_run(truth, held_out, usable, features, reward, rounds=rounds, rng=rng)


def test_rounds_are_whole_rows_of_units_in_their_order(setting):
    _, held_out, usable, _ = setting
    assert usable.sum() == sum(
        np.isfinite(held_out.grid.s[i, t - 2 : t + 1]).all() and held_out.grid.seen[i, t]
        for i in range(30)
        for t in range(2, 25)
    )
    played = draw(setting)
    assert played.world.s.shape == (1, 200, 1)
    assert sum(rounds.sum() for rounds in played.rounds) == 200
    on_grid = held_out.on_grid(usable, empty=False)
    known = {u: held_out.grid.s[i, on_grid[i], 0] for i, u in enumerate(held_out.units)}
    line, at = played.world.s[0, :, 0], 0
    left = set(known)
    while at < 200:  # each stretch is the usable rows of one unit, none of them twice
        unit = next(u for u in left if line[at] == known[u][0])
        rows = known[unit]
        stretch = line[at : at + len(rows)]
        assert np.array_equal(stretch, rows[: len(stretch)])
        left.remove(unit)
        at += len(rows)


def test_all_rows_can_be_played_and_orders_differ(setting):
    total = int(setting[2].sum())
    one, two = (draw(setting, rounds=total, seed=seed).world.s[0, :, 0] for seed in (0, 1))
    assert len(one) == len(two) == total
    assert np.array_equal(np.sort(one), np.sort(two))
    assert not np.array_equal(one, two)
    assert np.array_equal(one, draw(setting, rounds=total).world.s[0, :, 0])  # by seed


def test_theta_lies_on_the_sphere_in_every_direction():
    thetas = np.stack([Reward(STAKES).theta(4, pp.stream(i, "theta")) for i in range(2000)])
    assert np.allclose(np.linalg.norm(thetas, axis=1), 1.3, rtol=1e-12)
    assert_mean(thetas, 0.0)
    assert_mean(thetas**2, 1.3**2 / 4)


def test_w_follows_the_truth_given_s(setting):
    truth, *_ = setting
    left = []
    for seed in range(20):
        world = draw(setting, seed=seed).world
        left.append((world.phi - world.phibar)[0, :, 1, 2])
    sd = float(np.sqrt(np.mean(np.square(left))))
    assert_mean(np.concatenate(left), 0.0)
    assert abs(sd - truth.table.loc["w noise scale", "mean"]) < 0.05 * sd


def test_rounds_are_drawn_one_by_one_also_from_an_unsure_truth(setting):
    _, held_out, usable, features = setting
    few = held_out.take([0])
    short = pp.History.from_arrays(
        few.grid.s[:, :7],
        few.grid.w[:, :7],
        seen=few.grid.seen[:, :7],
        units=few.units,
        s_names=("s",),
        w_names=("w",),
    )
    unsure = pp.linear_lags(3).fit(short, seed=0)  # five rows: draws of the line lie far apart
    means = []
    for seed in range(200):
        world = draw((unsure, held_out, usable, features), rounds=50, seed=seed).world
        means.append((world.phi - world.phibar)[0, :, 1, 2])
    # had a run one posterior draw for all its rounds, they would be off together
    gap = np.array(means)
    assert abs(gap.mean(1).var() / (gap.var() / 50) - 1) < z_bound() * np.sqrt(2 / 200)


def test_rewards_given_s_vary_as_the_policy_says(setting):
    quiet = Reward(pp.calibration.Stakes(200, 0.15, 1.3))  # what W adds is a good part of it
    worlds = [draw(setting, seed=seed, reward=quiet).world for seed in range(60)]
    assert_mean([((w.reward - w.mean_cond) ** 2).mean() for w in worlds], 0.15**2)
    silent = draw(setting, reward=Reward(STAKES, 0.0)).world
    assert np.array_equal(silent.noise, np.zeros((1, 200)))
    own = np.concatenate(
        [draw(setting, seed=seed, reward=Reward(STAKES, 0.2)).world.noise[0] for seed in range(20)]
    )
    assert_mean(own**2, 0.04)


def test_agents_play_the_rounds_in_a_row(setting):
    truth = setting[0]
    played = draw(setting)
    agent = played.agent([pp.envs.pulse(block, truth) for block in played.blocks])
    # a law that is the truth expects what the truth expects
    assert np.allclose(agent.x, played.world.phibar, rtol=0, atol=1e-12)
    run = pp.simulate(played.world, [agent, pp.envs.cond_oracle(played.world)])
    assert (run.action >= 0).all()
    assert run.regret_cond[1].max() == 0


def ragged(lengths):
    """Units of these lengths: S a random walk, W a line in three lags."""
    rng, frames = pp.stream(0, "ragged"), []
    for i, length in enumerate(lengths):
        s = rng.standard_normal(length)
        w = s + 0.5 * np.concatenate([[0.0, 0.0], s[:-2]]) + 0.1 * rng.standard_normal(length)
        frames.append(pd.DataFrame({"unit": f"u{i}", "time": range(length), "s": s, "w": w}))
    return pp.History.from_frame(
        pd.concat(frames), unit="unit", time="time", observed=["s"], missing=["w"]
    )


def test_a_long_unit_pads_no_short_one_and_keeps_its_place(setting):
    held_out, features = ragged([6] * 20 + [400] + [5] * 20), setting[3]
    truth = pp.linear_lags(3).fit(held_out, seed=0)
    usable = usable_rows(truth, held_out)
    rounds = int(usable.sum())
    for seed in range(3):
        played = draw((truth, held_out, usable, features), rounds=rounds, seed=seed)
        assert len(played.blocks) == 2
        assert sum(block.s[..., 0].size for block in played.blocks) <= 2 * len(held_out.s)
        line = played.world.s[0, :, 0]
        starts = np.flatnonzero(np.isin(line, held_out.s[held_out.offsets[:-1] + 2, 0]))
        assert len(starts) == 41  # every unit is played from its first complete row
        for start, stop in zip(starts, [*starts[1:], rounds], strict=True):
            row = int(np.flatnonzero(held_out.s[:, 0] == line[start])[0])
            assert np.array_equal(line[start:stop], held_out.s[row : row + stop - start, 0])
        agent = played.agent([pp.envs.pulse(block, truth) for block in played.blocks])
        assert np.allclose(agent.x, played.world.phibar, rtol=0, atol=1e-12)


def test_memory_goes_with_the_rows_that_are_played(setting):
    held_out, features = ragged([6] * 1500 + [20_000]), setting[3]
    truth = pp.linear_lags(3).fit(held_out, seed=0)
    usable = usable_rows(truth, held_out)
    usable[held_out.unit_of < 1500] &= held_out.step[held_out.unit_of < 1500] == 5  # one round each
    tracemalloc.start()
    draw((truth, held_out, usable, features), rounds=3000)  # the long unit among them
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6  # 1,500 units padded to 1,500 steps and more, 128 draws each: 2.3 GB


def test_without_a_complete_row_there_is_nothing_to_play(setting):
    truth, held_out, *_ = setting
    blank = pp.History.from_arrays(
        np.full(held_out.grid.s.shape, np.nan),
        held_out.grid.w,
        seen=held_out.grid.seen,
        units=held_out.units,
        s_names=("s",),
        w_names=("w",),
    )
    with pytest.raises(pp.errors.DataError, match="no held-out row has all its inputs"):
        usable_rows(truth, blank)
