"""A policy reads S by the names of the archive's table, categories and clocks included."""

import numpy as np
import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro.base import Column


def archive(**kinds):
    rng = pp.stream(0, "diary")
    rows = 20 * 15
    frame = pd.DataFrame(
        {
            "id": np.repeat([f"{i:02d}" for i in range(20)], 15),
            "day": np.tile(np.arange(15), 20),
            "x": rng.standard_normal(rows),
            "city": rng.choice(["Oslo", "Paris", "Rome"], rows),
            "hour": rng.integers(0, 24, rows),
        }
    )
    frame["w"] = frame["x"] + (frame["city"] == "Rome") + 0.1 * rng.standard_normal(rows)
    return pp.History.from_frame(
        frame,
        unit="id",
        time="day",
        observed=["x", "city", "hour"],
        missing=["w"],
        kinds={"city": "categorical", "hour": "clock 24"} | kinds,
    )


def policy_on(history):
    law = pp.linear_lags(1).fit(history, seed=0)
    phi = pp.terms(["1", "x", "w*a"], 2, observed=history.s_names, missing=["w"])
    return pp.PulseUCB(law, phi, pp.constant(1.0))


SEEN = {"hour": 6, "x": 0.5, "city": "Rome"}


def test_a_dict_a_series_and_the_numbers_are_the_same_context():
    policy = policy_on(archive())
    numbers = [0.5, 0.0, 1.0, 1.0, np.cos(np.pi / 2)]
    each = [policy.act(seen).x for seen in (SEEN, pd.Series(SEEN), numbers)]
    np.testing.assert_allclose(each, np.stack([each[0]] * 3), rtol=1e-12, atol=1e-12)


def test_a_level_the_archive_does_not_have_is_refused_with_those_it_has():
    policy = policy_on(archive())
    with pytest.raises(pp.errors.DataError, match="Rome"):
        policy.act(SEEN | {"city": "Roma"})
    assert not policy.pending


def test_a_new_level_counts_as_other_where_that_was_declared():
    levels = ("Oslo", "Paris", "Rome")
    history = archive(city=Column("city", kind="categorical", levels=levels, unknown="other"))
    policy = policy_on(history)
    assert policy.act(SEEN | {"city": "Roma"}).action in (0, 1)


def test_a_name_that_is_not_in_the_table_is_refused():
    policy = policy_on(archive())
    with pytest.raises(pp.errors.DataError, match="city"):
        policy.act({"x": 0.5, "town": "Rome", "hour": 6})


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("name", ["hour", "x"])
def test_an_infinite_value_is_refused_and_not_taken_for_unseen(name, value):
    policy = policy_on(archive())
    with pytest.raises(pp.errors.DataError, match="infinite"):
        policy.act(SEEN | {name: value})
    assert not policy.pending


def test_what_pandas_calls_missing_is_not_seen():
    history, each = archive(), []
    for one in (None, np.nan, pd.NA, pd.NaT):
        policy = policy_on(history)  # anew: what is not seen is drawn
        each.append(policy.act(SEEN | {"city": one, "hour": one}).x)
    np.testing.assert_array_equal(each, np.stack([each[0]] * 4))
    assert policy.act([0.5, pd.NA, pd.NA, 1.0, 0.0]).action in (0, 1)


def flags():
    """S: a count and a flag; W: a mood of two levels."""
    rng = pp.stream(0, "flags")
    n, b = rng.integers(0, 5, 200), rng.integers(0, 2, 200)
    moods = np.array(["lo", "hi"])[(b + n + rng.integers(0, 2, 200) > 3).astype(int)]
    frame = pd.DataFrame({"id": np.repeat(np.arange(20), 10), "t": np.tile(np.arange(10), 20)})
    frame = frame.assign(n=n, b=b, m=moods)
    kinds = {"n": "count", "b": "binary", "m": Column("m", kind="ordinal", levels=("lo", "hi"))}
    history = pp.History.from_frame(
        frame, unit="id", time="t", observed=["n", "b"], missing=["m"], kinds=kinds
    )
    law = pp.linear_lags(1).fit(history, seed=0)
    phi = pp.terms(["1", "n", "m*a"], 2, observed=["n", "b"], missing=["m"])
    return pp.PulseUCB(law, phi, pp.constant(1.0))


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"n": 1, "b": 7}, "'b'"),
        ({"n": -2.5, "b": 0}, "'n'"),
        ([1, 7], "'b'"),
        ([[1, 0], [0.5, 0]], "'n'"),
        (pd.Series({"n": -1, "b": 0}), "'n'"),
    ],
)
def test_a_value_that_is_no_count_or_flag_is_refused(seen, name):
    policy = flags()
    with pytest.raises(pp.errors.DataError, match=name):
        policy.act(seen)
    assert policy.act({"n": 1, "b": pd.NA}).action in (0, 1)


def test_a_revealed_w_is_read_by_its_level():
    policies = flags(), flags()
    for policy, w in zip(policies, ({"m": "hi"}, [1.0]), strict=True):
        policy.learn(policy.act({"n": 1, "b": 0}), 1.0, w=w)
    np.testing.assert_array_equal(policies[0].state.theta, policies[1].state.theta)
    decision = policies[0].act({"n": 1, "b": 0})
    with pytest.raises(pp.errors.DataError, match="no level 'high'"):
        policies[0].learn(decision, 1.0, w={"m": "high"})
    with pytest.raises(pp.errors.DataError, match="finite"):
        policies[0].learn(decision, 1.0, w={"m": None})
    assert policies[0].pending == (decision.id,)


def test_labels_of_a_series_are_obeyed():
    rng = pp.stream(0, "labels")
    s, w = rng.standard_normal((10, 20, 2)), rng.standard_normal((10, 20, 1))
    units = tuple(f"u{i}" for i in range(10))
    history = pp.History.from_arrays(s, w, units=units, s_names=("a", "b"), w_names=("w0",))
    phi = pp.Features(lambda s, w, a: s + 0 * w * a, 2, ("a", "b"))
    bot = pp.PulseUCB(pp.linear_lags(1).fit(history, seed=0), phi, pp.constant(1.0))
    assert list(bot.act(pd.Series({"b": 100.0, "a": 1.0})).x) == [1.0, 100.0]
    with pytest.raises(pp.errors.DataError, match="labelled"):
        bot.act(pd.Series({"b": 100.0, "c": 1.0}))
