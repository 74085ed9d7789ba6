"""The planner: exponents of laws that are right, and what laws that are wrong are told."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.calibration.decay import Crossing
from pulse_pyro.calibration.planner import _subsets
from tests.helpers import linear_history


@pytest.fixture(scope="module")
def planned():
    # the smallest part holds out n/16 units of 25 complete rows: 500 rows for 20 coefficients, so
    # that 1 / (rows - 21) differs from 1 / rows by 4 %, and the exponent by 0.01 at most
    world = pp.envs.w_times_action()
    stakes = pp.calibration.Stakes(10_000, math.hypot(0.05, 0.156), 1.1)
    return [
        pp.plan(
            world.archive(320, 45, rng=pp.stream(seed, "archive")),
            pp.linear_lags(19),
            world.features,
            stakes=stakes,
            seed=seed,
        )
        for seed in range(2)
    ]


def test_subsets_are_nested_and_the_small_ones_share_no_unit():
    few, more, every = (_subsets(320, units, 8, 0) for units in (40, 80, 320))
    assert all(set(a) < set(b) for a, b in zip(few, more, strict=True))
    assert sorted(np.concatenate(few)) == list(range(320)) == sorted(every[3])


def test_the_bound_of_a_linear_law_falls_like_one_over_root_n(planned):
    assert [p.decay.units.tolist() for p in planned] == [[40, 80, 160, 320]] * 2
    assert [p for p in planned if abs(p.decay.rate - 0.5) > 0.1] == []


def test_the_answer_follows_from_its_parts(planned):
    found = planned[0]
    assert found.answer == "reachable"
    n, low, high = found.needed
    assert 320 < low < n < high
    there = found.stakes.parts(float(found.error_decay.at(n)[1]), dim=4, norm=found.measured.norm)
    assert there.imputation == pytest.approx(there.statistical)
    short = replace(found, stakes=replace(found.stakes, horizon=100))
    assert short.answer == "already there"
    assert "already there" in short.verdict
    assert short.needed.n < 320


@pytest.mark.parametrize(
    ("needed", "answer"),
    [
        ((627_504.0, 1_648.0, np.inf), "not known"),  # 320 units: a limit of 320,000
        ((627_504.0, 200_000.0, 1_500_000.0), "not known"),
        ((627_504.0, 320_001.0, np.inf), "not reachable"),
        ((np.inf, np.inf, np.inf), "not reachable"),
        ((np.inf, 1_648.0, np.inf), "not known"),
        ((1_000.0, 0.0, np.inf), "not known"),
        ((1_000.0, 400.0, 4_000.0), "reachable"),
        ((1_000.0, 400.0, 4_001.0), "not known"),
    ],
)
def test_not_reachable_is_said_only_where_the_lower_end_is_out_of_reach(
    planned, monkeypatch, needed, answer
):
    monkeypatch.setattr(type(planned[0]), "needed", Crossing(*needed))
    found = planned[0]
    assert found.answer == answer
    assert found.verdict.startswith(answer) or answer == "reachable"


def test_the_numbers_are_those_of_calibrations_at_the_same_contexts(planned):
    found, world = planned[1], pp.envs.w_times_action()
    history = world.archive(320, 45, rng=pp.stream(1, "archive"))
    order = pp.stream(1, "plan", "order").permutation(320)
    few = found.recipe.calibrate(
        pp.linear_lags(19), history.take(np.sort(order[:40])), world.features, seed=1
    )
    chosen = pp.stream(1, "plan", "contexts").permutation(320)[:44]
    s = history.grid.s[chosen]
    d = np.max(few.error_at(s) ** 2, axis=(2, 3))[few.inside_at(s)]
    assert found.decay.values[0, 0] == pytest.approx(np.sqrt(d.mean()), rel=0.05)  # fewer inside
    assert found.measured.contexts <= few.inside_at(s).sum()


def test_what_a_plan_shows(planned):
    found = planned[0]
    assert len(repr(found).splitlines()) <= 18  # six of them a table of the rungs
    assert repr(found).startswith("Plan: about ")
    assert list(found.table) == ["units", "rows", "root_mean_D", "se", "rms_e", "mean_e"]
    assert (found.table["rms_e"] >= found.table["mean_e"]).all()
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["needed_units"]["n"] == pytest.approx(found.needed.n)
    assert "<table" in found._repr_html_()
    for horizon in (100, 10_000, 10**9):
        ax = replace(found, stakes=replace(found.stakes, horizon=horizon)).plot()
        assert len(ax.lines) >= 4


def test_a_law_that_is_wrong_is_told_that_history_will_not_mend_it():
    world, law = pp.envs.main_nonlinear(), pp.linear_lags(pp.Window(3, np.mean))
    phi = pp.terms(["1", "s", "w", "w*a"], 2, observed=["s"], missing=["w"])
    history = world.archive(160, 40, rng=pp.stream(0, "archive"))
    stakes = pp.calibration.Stakes(10_000, 0.2, 1.1)
    found = pp.plan(history, law, phi, stakes=stakes, seed=0, orderings=4)
    assert found.answer == "not reachable"
    assert found.decay.rate < 0.2
    assert "not reachable by this rate" in found.verdict
    again = pp.plan(history, law, phi, stakes=stakes, seed=0, orderings=4)
    assert again.to_json() == found.to_json()
    bent = pp.Features(lambda s, w, a: np.column_stack([s, np.tanh(w) * a]), 2, ("s", "t"))
    found = pp.plan(history, law, bent, stakes=stakes, seed=0, orderings=2)
    assert 0.0 < found.measured.monte_carlo < 1.0
    assert "of D's root is Monte Carlo error" in repr(found)


def test_small_archives_lose_sizes_or_are_refused():
    phi = pp.terms(["1", "w0*a"], 2, observed=["s"], missing=["w0"])
    stakes, law = pp.calibration.Stakes(1000, 0.2), pp.linear_lags(4)
    history, _ = linear_history(units=48, time=20, lags=4)
    found = pp.plan(history, law, phi, stakes=stakes, seed=0, orderings=2)
    assert found.decay.units.tolist() == [12, 24, 48]
    assert found.left_out[0].startswith("6 units are too few: bands: at least 5 held-out units")
    with pytest.raises(
        pp.errors.DataError, match=r"needs 3 sizes, 2 of 4 could be judged; bring more"
    ):
        pp.plan(history.take(range(24)), law, phi, stakes=stakes, seed=0, orderings=2)
    with pytest.raises(
        pp.errors.DataError, match="whole archive of 6 units cannot be fitted and cali"
    ):
        pp.plan(history.take(range(6)), law, phi, stakes=stakes, seed=0, orderings=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"history": 3}, "History"),
        ({"law": 3}, "pass the law itself"),
        ({"features": 3}, "Feat"),
        ({"stakes": 3}, r"Stakes\(horizon"),
        ({"orderings": 1}, "orderings"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments(change, words):
    history, _ = linear_history(units=12, time=10, lags=2)
    phi = pp.terms(["1", "w0"], 2, observed=["s"], missing=["w0"])
    right = {
        "history": history,
        "law": pp.linear_lags(2),
        "features": phi,
        "stakes": pp.calibration.Stakes(10, 0.1),
        "seed": 0,
    }
    with pytest.raises(pp.PulseError, match=words):
        pp.plan(**{**right, **change})


def test_a_recipe_refuses_what_cannot_be_repeated():
    with pytest.raises(pp.errors.SettingError, match="made elsewhere"):
        pp.calibration.Recipe(band=3)
    with pytest.raises(pp.errors.SettingError, match="did you mean 'split'"):
        pp.calibration.Recipe(mode="splt")
    history, _ = linear_history(units=12, time=10, lags=2)
    phi = pp.terms(["1", "w0"], 2, observed=["s"], missing=["w0"])
    with pytest.raises(pp.errors.ModelError, match="state_space: it fits itself"):
        pp.calibration.Recipe(pp.Exact()).calibrate(pp.state_space(2), history, phi, seed=0)


def test_a_plan_cuts_no_cluster(monkeypatch):
    history, _ = linear_history(units=160, time=10, lags=1, seed=0)
    towns = [f"t{i}" for i in range(40)]
    whole = replace(history, cluster=history.unit_of // 4, clusters=towns)
    parts, calibrate = [], pp.calibration.Recipe.calibrate

    def spy(recipe, law, part, *rest, **settings):
        parts.append(part)
        return calibrate(recipe, law, part, *rest, **settings)

    monkeypatch.setattr(pp.calibration.Recipe, "calibrate", spy)
    phi = pp.terms(["1", "w0*a"], 2, observed=["s"], missing=["w0"])
    stakes = pp.calibration.Stakes(1000, 0.5)
    found = pp.plan(whole, pp.linear_lags(1), phi, stakes=stakes, orderings=2, seed=0)
    assert found.units == 40
    assert {len(part.clusters) for part in parts} >= {10, 20, 40}
    assert all(len(part.units) == 4 * len(part.clusters) for part in parts)


CROSSED = pp.terms(["w", "w*a"], 2, observed=["a0", "a1"], missing=["w"])
ONE_LAG = pp.linear_lags(1)


def crossed_history(units=80):
    """W the sum of two inputs, and noise."""
    rng = np.random.default_rng(0)
    s = rng.standard_normal((units, 20, 2))
    w = s.sum(2) + rng.standard_normal((units, 20))
    return pp.History.from_arrays(
        s,
        w[..., None],
        units=tuple(f"h{i}" for i in range(units)),
        s_names=("a0", "a1"),
        w_names=("w",),
    )


def test_a_plan_is_made_of_the_other_rungs_where_the_uniform_one_fails():
    stakes = pp.calibration.Stakes(1000, 0.5)
    history = crossed_history(160)
    trend = np.tile(np.linspace(0.0, 2.0, 20), 160)[:, None]  # which no input knows
    history = replace(history, w=history.w + trend)
    found = pp.plan(history, ONE_LAG, CROSSED, stakes=stakes, orderings=3, seed=0)
    assert found.answer == "refused"
    assert "gives no uniform bound" in found.verdict
    by_name = {rung.name: rung for rung in found.rungs}
    assert by_name["uniform"].answer.startswith("refused: No uniform bound holds")
    assert np.isnan(by_name["uniform"].size)
    assert by_name["forecast"].decay is not None
    assert by_name["free"].answer.startswith("cannot be had")
    for name in ("uniform", "forecast", "groups", "average", "free"):
        assert f"    {name}" in repr(found)
    with pytest.raises(pp.errors.SettingError, match="gives no uniform bound"):
        found.plot()
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["answer"] == "refused"
    assert "e" not in plain
    assert plain["rungs"][0]["clusters for half"] is None
    assert "<table" in found._repr_html_()


def test_clusters_for_half_have_an_interval_or_are_not_known(planned):
    for found in planned:
        table = found.clusters
        assert table.loc["free", "answer"].startswith("cannot be had")
        assert np.isnan(table.loc["free", "clusters for half"])
        known = table["clusters for half"].notna()
        assert known["uniform"]
        assert (table["at most"] <= 10 * table["at least"])[known].all()
        assert (table["at least"] < table["clusters for half"])[known].all()
        for name, line in table[~known].iterrows():
            assert line["answer"].split(":")[0].split(" by")[0] in (
                "cannot be had",
                "not known",
                "not reachable",
                "No groups were declared",
            ), name
        assert "clusters for half of each bound, 320 now" in repr(found)
