"""Open Bandit sample: the loader, and estimators beside values that are known."""

import json

import numpy as np
import pandas as pd
import pytest

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.offpolicy.estimators import as_logged, ips, snips, uniform
from pulse_pyro.paper.open_bandit import SHARES, item_shares, load_open_bandit, open_bandit_values
from tests.helpers import z_bound
from tests.paper.helpers import bandit_frames, folder, written


@pytest.fixture
def small(tmp_path):
    return written(tmp_path, bandit_frames())


@pytest.fixture(scope="module")
def real():
    return folder("open_bandit_sample")


def test_the_loader_reads_items_positions_and_users(small):
    frame = bandit_frames()["bts_men"]
    log = load_open_bandit(small, "bts")
    assert (log.rows, log.actions) == (600, 4)
    assert np.array_equal(log.action, frame["item_id"])
    at = log.columns(("position_1", "position_2", "position_3")).argmax(1) + 1
    assert np.array_equal(at, frame["position"])
    users = frame[[f"user_feature_{k}" for k in range(4)]].apply("".join, axis=1)
    assert log.units == users.nunique()
    together = pd.DataFrame({"unit": log.unit, "user": users}).drop_duplicates()
    assert len(together) == log.units
    assert np.array_equal(log.context.sum(1), np.full(600, 5.0))


def test_bad_files_are_refused(tmp_path, small):
    with pytest.raises(SettingError, match="no log 'BTS'; did you mean 'bts'"):
        load_open_bandit(small, "BTS")
    for name, column, value, told in (
        ("random_men", "propensity_score", 0.0, r"propensity must lie in \(0, 1\]"),
        ("random_men", "item_id", 9, r"action must lie in 0 .. 3"),
        ("random_men", "click", 2, "'click' must be 0 or 1"),
        ("random_men", "position", "top", "'position' must hold a number"),
        ("item_context_men", "item_id", 0, "must list items 0, 1, 2"),
    ):
        frames = bandit_frames()
        frames[name][column] = value
        with pytest.raises(DataError, match=told):
            load_open_bandit(written(tmp_path, frames))
    frames = bandit_frames()
    del frames["bts_men"]["user_feature_2"]
    with pytest.raises(DataError, match="no column 'user_feature_2'"):
        load_open_bandit(written(tmp_path, frames), "bts")


def test_shares_of_items_are_counted_by_position(small):
    bts, random = (load_open_bandit(small, name) for name in ("bts", "random"))
    policy = item_shares(bts, random)
    frame = bandit_frames()
    own = frame["bts_men"][frame["bts_men"]["position"] == 2]["item_id"]
    row = int(np.flatnonzero(frame["random_men"]["position"] == 2)[0])
    assert policy[row] == pytest.approx(own.value_counts(normalize=True).sort_index().to_numpy())


def test_the_case_says_its_verdict_first_and_with_many_clicks_another(small, tmp_path):
    found = open_bandit_values(small)
    lines = repr(found).splitlines()
    assert len(lines) <= 12
    assert lines[0] == found.verdict
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["name"] == "open bandit"
    assert len(found.plot().get_yticklabels()) == len(found.table) == 12
    assert found.of("uniform", "ips", "random").estimate == found.lines[0].known
    many = open_bandit_values(written(tmp_path, bandit_frames(rows=6000)))
    assert "enough clicks for some claims" in many.verdict


def test_a_replay_without_clicks_is_told_as_such(tmp_path):
    frames = bandit_frames(rows=120)
    for name in ("random_men", "bts_men"):
        frames[name]["click"] = (np.arange(120) % 60 == 0).astype(int)
    home = written(tmp_path, frames)
    draws = (open_bandit_values(home, seed=k) for k in range(20))
    found = next(one for one in draws if one.of("uniform", "replay").estimate == 0.0)
    assert "too few clicks for claims (2 and 2)" in found.verdict
    assert "the worst to inf%" in found.verdict


def test_known_values_are_met_where_clicks_abound(tmp_path):
    """The uniform policy by the other log, beside the click rate of the log that played it."""
    found = open_bandit_values(written(tmp_path, bandit_frames(rows=20000)))
    own = found.of("uniform", "ips", "random")
    for how in ("ips", "snips", "doubly robust"):
        value = found.of("uniform", how, "bts")
        assert abs(value.estimate - own.estimate) < z_bound(3) * np.hypot(value.se, own.se)
        assert value.se < 2.0 * own.se


def test_the_real_sample_has_46_and_69_clicks(real):
    for name, clicks, log_units in (("random", 46, 230), ("bts", 69, 238)):
        log = load_open_bandit(real, name)
        assert (log.rows, log.actions, log.reward.sum()) == (10_000, 34, clicks)
        assert log.units == log_units
        for how in (ips, snips):
            assert how(log, as_logged(log)).estimate == pytest.approx(clicks / 10_000)
    assert load_open_bandit(real).propensity == pytest.approx(np.full(10_000, 1 / 34))


def test_the_real_sample_gives_what_pandas_gives(real):
    frame = pd.read_csv(real / "bts_men.csv.gz")
    weight = 1 / 34 / frame["propensity_score"]
    log = load_open_bandit(real, "bts")
    found = ips(log, uniform(log)), snips(log, uniform(log))
    total = (weight * frame["click"]).sum()
    assert found[0].estimate == pytest.approx(total / 10_000)
    assert found[1].estimate == pytest.approx(total / weight.sum())
    # standard errors over combinations of user features, by leaving each out
    user = [f"user_feature_{k}" for k in range(4)]
    keyed = frame.assign(top=weight * frame["click"], weight=weight, one=1)
    sums = keyed.groupby(user)[["top", "weight", "one"]].sum()
    for value, below in zip(found, ("one", "weight"), strict=True):
        without = (sums["top"].sum() - sums["top"]) / (sums[below].sum() - sums[below])
        count = len(sums)
        assert value.se == pytest.approx((count - 1) / np.sqrt(count) * without.std(ddof=1))


def test_the_real_sample_is_too_small_for_claims(real):
    found = open_bandit_values(real)
    assert "too few clicks for claims (46 and 69)" in found.verdict
    for how in ("ips", "snips", "doubly robust"):
        value, rate = found.of("uniform", how, "bts"), found.of("uniform", "ips", "random")
        assert abs(value.estimate - rate.estimate) < 3 * np.hypot(value.se, rate.se)
        assert value.effective < 1000
    assert found.of(SHARES, "ips").holds(0.0069)
    # 0.0046 - 0.00276 over the hypotenuse of 0.00089 and 0.00060
    robust, rate = found.of("uniform", "doubly robust", "bts"), found.lines[0].value
    apart = (rate.estimate - robust.estimate) / np.hypot(robust.se, rate.se)
    assert apart == pytest.approx(1.7, abs=0.05)
    assert "within 1.7 standard errors" in found.verdict
