import time
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import SettingError
from pulse_pyro.laws.memory import Memory
from pulse_pyro.policies.unit_memory import LONGEST, UnitMemory

SHOCK = np.array([[1.0, 0.3], [0.3, 0.5]])
LEVEL = np.array([[0.8, -0.2], [-0.2, 0.4]])


def memory(kind, w_dim=2, keep=(0.9, -0.5)):
    """A memory of two W, or of the first alone."""
    k = np.array(keep)[:w_dim]
    shock, level = SHOCK[:w_dim, :w_dim], LEVEL[:w_dim, :w_dim]
    k = 0 * k if kind == "level" else k
    start, none = shock / (1 - np.outer(k, k)), np.zeros_like(shock)
    if kind != "ar":
        k = np.concatenate([np.ones(w_dim), k])
        start = np.block([[level, none], [none, start]])
        shock = np.block([[none, none], [none, shock]])
    return Memory(kind, k, shock, start, rows=2, units=2, log_likelihood=0.0, memoryless=0.0)


def by_hand(known, steps, readings):
    """Law of z at the last of so many steps, from the joint normal of all of them."""
    m, tile = len(known.keep), known.parts
    cov = np.zeros((steps, m, steps, m))
    for t in range(steps):
        cov[t, :, t] = (
            known.start
            if t == 0
            else (known.keep[:, None] * cov[t - 1, :, t - 1] * known.keep + known.shock)
        )
        for later in range(t + 1, steps):
            cov[later, :, t] = known.keep[:, None] ** (later - t) * cov[t, :, t]
            cov[t, :, later] = cov[later, :, t].T
    cov = cov.reshape(steps * m, steps * m)
    design = np.zeros((len(readings), steps, m))
    for k, (at, slope, _, _) in enumerate(readings):
        design[k, at] = np.tile(slope, tile)
    design = design.reshape(len(readings), -1)
    total = design @ cov @ design.T + np.diag([r[3] for r in readings])
    gain = np.linalg.solve(total, design @ cov).T
    mean = gain @ np.array([r[2] for r in readings])
    left = cov - gain @ design @ cov
    return mean[-m:], left[-m:, -m:]


def some_readings(steps, count, w_dim, seed=0):
    rng = np.random.default_rng(seed)
    at = rng.integers(0, steps, count)
    return [
        (
            int(t),
            rng.standard_normal(w_dim),
            float(rng.standard_normal()),
            float(rng.random() + 0.1),
        )
        for t in at
    ]


def assert_is(unit, known, readings):
    mean, cov = by_hand(known, unit.now + 1, readings)
    found = unit.predicted()
    assert_allclose(found[0], mean, atol=1e-10)
    assert_allclose(found[1], cov, atol=1e-10)


KINDS = pytest.mark.parametrize("kind", ["ar", "level", "level+ar"])


@KINDS
@pytest.mark.parametrize("w_dim", [1, 2])
def test_rewards_in_order_are_filtered_exactly(kind, w_dim):
    known = memory(kind, w_dim)
    unit, readings = UnitMemory(known), sorted(some_readings(9, 12, w_dim), key=lambda r: r[0])
    for t in range(9):
        assert unit.step() == t
        unit.open(t)
        for reading in [r for r in readings if r[0] == t]:
            assert unit.measure(*reading)
        unit.close(t)
        assert not unit.pending
        assert_is(unit, known, [r for r in readings if r[0] <= t])
        assert len(unit.state()["at"]) == 0


@KINDS
@pytest.mark.parametrize("seed", range(4))
def test_late_and_disordered_rewards_are_put_in_their_place(kind, seed):
    known, rng = memory(kind), np.random.default_rng(seed)
    unit, waiting, told = UnitMemory(known), [], []
    for t in range(14):
        unit.step()
        if rng.random() < 0.3:
            continue  # nothing is decided: a gap
        unit.open(t)
        waiting.append((t, rng.standard_normal(2), rng.standard_normal(), rng.random() + 0.1))
        while waiting and rng.random() < 0.6:
            reading = waiting.pop(int(rng.integers(len(waiting))))
            if rng.random() < 0.8:  # others are lost
                assert unit.measure(*reading)
                told.append(reading)
            unit.close(reading[0])
        assert unit.pending == tuple(sorted(r[0] for r in waiting))
        if told:
            assert_is(unit, known, told)
    for reading in waiting:
        assert unit.measure(*reading)
        unit.close(reading[0])
        told.append(reading)
        assert_is(unit, known, told)


@KINDS
def test_nothing_told_is_the_memory_itself(kind):
    known, unit = memory(kind), UnitMemory(memory(kind))
    for _ in range(30):
        unit.step()
        assert_allclose(unit.predicted()[1], known.start, atol=1e-12)
        assert_allclose(unit.left()[1], known.variance, atol=1e-12)


@KINDS
def test_a_revealed_w_is_known_and_may_be_told_twice(kind):
    known, unit = memory(kind), UnitMemory(memory(kind))
    u = np.array([0.7, -1.2])
    for _ in range(3):
        unit.step()
    for _ in range(2):
        for j in range(2):
            unit.measure(2, np.eye(2)[j], u[j], 0.0)
    mean, cov = unit.left()
    assert_allclose(mean, u, atol=1e-9)
    assert_allclose(cov, 0.0, atol=1e-11)
    unit.step()
    if kind == "ar":
        assert_allclose(unit.left()[0], known.keep * u, atol=1e-9)
        assert_allclose(unit.left()[1], known.left, atol=1e-9)
    exact = [(2, np.eye(2)[j], u[j], 0.0) for j in range(2)]
    assert_allclose(unit.predicted()[0], by_hand(known, 4, exact)[0], atol=1e-9)


def test_the_prediction_in_the_long_run_leaves_what_the_memory_says():
    known = memory("level+ar")
    unit, rng = UnitMemory(known), np.random.default_rng(0)
    for t in range(20_000):
        unit.step()
        if t < 19_999:
            for j in range(2):
                unit.measure(t, np.eye(2)[j], rng.standard_normal(), 0.0)
    assert_allclose(unit.left()[1], known.left, atol=2e-4)  # levels are known by then, 1 / t


def test_a_reward_of_a_step_that_was_closed_changes_nothing():
    unit = UnitMemory(memory("ar"))
    for t in range(3):
        unit.step()
        unit.open(t)
    unit.close(0)
    unit.close(0)
    before = unit.predicted()
    assert not unit.measure(0, [1.0, 0.0], 5.0, 0.1)
    assert unit.measure(1, [0.0, 0.0], 5.0, 0.1)  # which tells nothing
    assert_array_equal(unit.predicted()[0], before[0])
    with pytest.raises(SettingError, match="step 0 is closed"):
        unit.open(0)


def test_a_restored_filter_goes_on_to_the_last_bit():
    known, readings = memory("level+ar"), some_readings(20, 30, 2)
    one = UnitMemory(known)
    for t in range(20):
        one.step()
        one.open(t)
    for reading in readings[:15]:
        one.measure(*reading)
    for t in (0, 3, 7):
        one.close(t)
    two = UnitMemory(known)
    two.restore(one.state())
    for unit in (one, two):
        for reading in readings[15:]:
            unit.measure(*reading)
        for t in range(12):
            unit.close(t)
        unit.step()
    assert one.pending == two.pending
    for name, value in one.state().items():
        assert_array_equal(value, two.state()[name])
    with pytest.raises(SettingError, match="another memory"):
        UnitMemory(memory("ar")).restore(one.state())


def test_what_is_kept_does_not_grow_with_time():
    unit, rng = UnitMemory(memory("ar", 1)), np.random.default_rng(0)
    sizes = []
    for t in range(2000):
        unit.step()
        unit.open(t)
        if t >= 5:  # five rounds late
            unit.measure(t - 5, [1.0], rng.standard_normal(), 1.0)
            unit.close(t - 5)
        sizes.append(sum(value.size for value in unit.state().values()))
    assert len(set(sizes[10:])) == 1


def test_a_filter_that_waits_too_long_gives_up_the_oldest_step_with_a_warning():
    unit = UnitMemory(memory("ar", 1))
    for t in range(LONGEST):
        unit.step()
        unit.open(t)
    unit.step()
    with pytest.warns(UserWarning, match="step 0 has waited"):
        unit.open(LONGEST)
    assert unit.pending[0] == 1
    assert len(unit.pending) == LONGEST


def test_one_reward_that_never_comes_holds_up_only_so_many_others():
    known, unit = memory("ar", 1), UnitMemory(memory("ar", 1))
    unit.step()
    unit.open(0)
    told = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for t in range(1, LONGEST + 20):
            unit.step()
            told.append((t, np.ones(1), float(np.sin(t)), 1.0))
            unit.measure(*told[-1])
    assert len(said) == 1
    assert not unit.pending
    assert len(unit.state()["at"]) <= 1
    assert_is(unit, known, told)


def test_a_step_costs_little():
    unit = UnitMemory(memory("level+ar"))
    unit.step()
    unit.measure(0, [1.0, 0.0], 1.0, 1.0)
    began = time.perf_counter()
    for _ in range(1000):
        t = unit.step()
        unit.open(t)
        unit.measure(t, [1.0, 0.0], 1.0, 1.0)
        unit.close(t)
    assert time.perf_counter() - began < 2.0  # 2 ms a round, ten times what it takes


def test_what_makes_no_sense_is_refused():
    unit = UnitMemory(memory("ar"))
    with pytest.raises(SettingError, match="no step 0 yet"):
        unit.open(0)
    unit.step()
    for wrong in (-1, 1):
        with pytest.raises(SettingError, match=f"no step {wrong} yet"):
            unit.measure(wrong, [1.0, 0.0], 0.0, 1.0)
    for slope, value, variance in (
        ([1.0], 0.0, 1.0),
        ([1.0, np.nan], 0.0, 1.0),
        ([1.0, 0.0], np.nan, 1.0),
        ([1.0, 0.0], 0.0, -1.0),
        ([1.0, 0.0], 0.0, np.inf),
    ):
        with pytest.raises(SettingError, match="must be"):
            unit.measure(0, slope, value, variance)
    assert_array_equal(unit.predicted()[0], 0.0)
