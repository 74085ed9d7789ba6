"""HeartSteps: what the loader makes of the file, and what the cases say of it."""

import json

import numpy as np
import pandas as pd
import pytest

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.offpolicy.estimators import always, ips, snips
from pulse_pyro.paper import heartsteps as case
from pulse_pyro.paper.heartsteps import S, W, fit_effects, load_heartsteps
from pulse_pyro.paper.replay_comparison import Imputer
from tests.paper.helpers import folder, heartsteps_frame, written


@pytest.fixture
def small(tmp_path):
    return written(tmp_path, {"decisions": heartsteps_frame()})


@pytest.fixture(scope="module")
def real():
    return load_heartsteps(folder("heartsteps_v1"))


@pytest.fixture(scope="module")
def null():
    return case.heartsteps_null(folder("heartsteps_v1"))


def saved(tmp_path, **changes):
    return written(tmp_path, {"decisions": heartsteps_frame().assign(**changes)})


def test_rows_and_columns_are_those_of_the_file(tmp_path):
    frame = heartsteps_frame()
    frame.loc[0, ["avail", "action", "steps30", "pre30", "location"]] = [1, 2.0, 20, 7, "missing"]
    frame.loc[0, ["weather", "activity", "windspeed"]] = ["snow", "unknown", -1.0]
    frame.loc[1, ["avail", "action"]] = [1, np.nan]
    frame.loc[2, ["avail", "t"]] = [1, 210]
    data = load_heartsteps(written(tmp_path, {"decisions": frame}))
    log = data.logged
    assert log.rows == (frame["avail"].eq(1) & frame["action"].notna() & frame["t"].lt(210)).sum()
    first = dict(zip(log.names, log.context[0], strict=True))
    kept = frame[frame["avail"].eq(1) & frame["action"].notna() & frame["t"].lt(210)]
    wind = kept["windspeed"][kept["windspeed"] >= 0].mean()
    angle = 2 * np.pi * 8.0 / 24.0
    assert first["log_pre30"] == pytest.approx(np.log(7.5))
    assert first["windspeed"] == pytest.approx(wind)  # -1 marks what is missing
    assert (first["hour_sin"], first["hour_cos"]) == pytest.approx((np.sin(angle), np.cos(angle)))
    flags = ("wet", "clear", "home", "work", "place_unknown", "activity_unknown")
    assert [first[name] for name in flags] == [1, 0, 0, 0, 1, 1]
    assert (log.action[0], log.propensity[0], log.reward[0]) == (1, 0.6, np.log(20.5))
    assert np.array_equal(log.propensity, np.where(log.action == 1, 0.6, 0.4))
    assert data.is_s.sum() == len(S)
    assert data.is_w.sum() == len(W)
    assert not (data.is_s & data.is_w).any()


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        load_heartsteps(tmp_path / "nowhere")
    frame = heartsteps_frame().rename(columns={"pre30": "Pre30"})
    with pytest.raises(DataError, match="no column 'pre30'; did you mean 'Pre30'"):
        load_heartsteps(written(tmp_path, {"decisions": frame}))
    for changes, told in (
        ({"pre30": "many"}, "'pre30' must be numeric"),
        ({"steps30": -1}, "steps must be >= 0"),
        ({"action": 3.0}, "actions 0, 1 or 2"),
        ({"t": 5}, "stands twice"),
        ({"avail": 0}, "of two users at least"),
        ({"hour_local": np.nan}, "'hour_sin' is made of is missing"),
    ):
        with pytest.raises(DataError, match=told):
            load_heartsteps(saved(tmp_path, **changes))


def test_the_action_taken_is_worth_its_recorded_reward(small):
    log = load_heartsteps(small).logged
    effects = fit_effects(log)
    taken = np.arange(log.rows), log.action
    assert effects.utility(1.0)[taken] == pytest.approx(log.reward)
    flat, once, three = (np.diff(effects.utility(k))[:, 0] for k in (0.0, 1.0, 3.0))
    assert np.ptp(flat) < 1e-9
    assert three - flat == pytest.approx(3.0 * (once - flat))
    assert once.mean() == pytest.approx(three.mean())
    everything = np.ones(log.context.shape[1], bool)
    assert effects.gap(1.0, everything) == pytest.approx(0.0, abs=1e-12)
    assert effects.gap(3.0, ~everything) > effects.gap(1.0, ~everything) > 0.0


def test_semi_synthetic_rounds_stand_where_their_people_do(small):
    data = load_heartsteps(small)
    made = data.dataset((1.0, 3.0), seed=1)
    assert list(made.replays) == ["effects x1", "effects x3"]
    replay = made.replays["effects x1"]
    assert not set(made.archive.units) & set(replay.history.units)
    assert len(made.archive.units) == len(replay.history.units) == 5
    assert made.pieces.units == made.archive.units
    value = fit_effects(data.logged).utility(1.0)
    for i in range(0, data.logged.rows, 7):
        user = str(data.logged.unit[i])
        if user in replay.history.units:
            row = replay.utility[replay.history.units.index(user)]
            first = data.time[data.logged.unit == data.logged.unit[i]].min()
            assert row[data.time[i] - first] == pytest.approx(value[i])
    assert np.nanmean(made.archive.grid.s, axis=(0, 1)) == pytest.approx(np.zeros(len(S)), abs=1e-9)
    assert data.dataset(seed=2).archive.units != made.archive.units
    with pytest.raises(DataError, match="at least one factor"):
        data.dataset(())
    with pytest.raises(SettingError, match="factor"):
        data.dataset((-1.0,))


def test_the_null_case_says_its_verdict_first(small):
    found = case.heartsteps_null(small, folds=3, draws=2)
    lines = repr(found).splitlines()
    assert len(lines) <= 12
    assert lines[0] == found.verdict
    assert found.verdict.startswith("heartsteps: ")
    assert len(found.table) == 3 * 6
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["rows"][0]["policy"] == "S"
    assert len(found.plot().get_yticklabels()) == 6  # the differences
    assert found.verdict in found._repr_html_()
    with pytest.raises(SettingError, match="no value of 'W' by 'ips'"):
        found.of("W", "ips")


def test_the_verdict_follows_the_interval(tmp_path):
    """Steps that depend on W x action alone: seeing W must pay, and the verdict say so."""
    frame = heartsteps_frame(users=30)
    good = (frame["action"] > 0) == (frame["pre30"] > 0)
    frame["steps30"] = np.where(good, 400, 20)
    found = case.heartsteps_null(written(tmp_path, {"decisions": frame}), draws=3)
    assert "seeing W pays" in found.verdict
    assert found.of("S+W minus S", "doubly robust").low > 0.5


def test_agents_play_the_semi_synthetic_rounds(small, monkeypatch):
    monkeypatch.setattr(case, "IMPUTERS", (Imputer("linear", linear_lags(case.NOW)),))
    found = case.heartsteps_rounds(small, runs=2)
    assert list(found.settings) == [
        f"effects x{factor}, {rule}"
        for factor in (1, 3)
        for rule in ("alpha 0.25", "in order of time")
    ]
    assert found.settings["effects x1, alpha 0.25"].names == (
        "pulse_linear",
        "oful",
        "oful_lags",
        "oful_full",
        "oful_lags_rewards",
        "pulse_linear_memory",
        "committee",
    )
    assert len(repr(found).splitlines()) <= 12


def test_the_real_file_has_the_usual_analysis_set(real):
    log = real.logged
    assert (log.rows, log.units) == (6118, 37)
    assert log.action.mean() == pytest.approx(0.593, abs=5e-4)
    assert dict(zip(log.names, log.context.sum(0), strict=True))["place_unknown"] == 68


def test_the_real_log_gives_what_pandas_gives(real):
    frame = pd.read_csv(folder("heartsteps_v1") / "decisions.csv")
    frame = frame[(frame["t"] < 210) & (frame["avail"] == 1) & frame["action"].notna()]
    sent, reward = frame["action"] > 0, np.log(frame["steps30"] + 0.5)
    send = always(real.logged, 1)
    assert ips(real.logged, send).estimate == pytest.approx((reward * sent).sum() / 0.6 / 6118)
    assert snips(real.logged, send).estimate == pytest.approx(reward[sent].mean())


def test_no_gain_from_w_shows_in_the_real_trial(null):
    for how in ("doubly robust", "snips", "ips"):
        assert null.of("S+W minus S", how).holds(0.0)
    for policy, plain in (("S", 2.93), ("S+W", 2.94)):
        value = null.of(policy, "doubly robust")
        assert abs(value.estimate - plain) < 2 * value.se
        assert value.units == 37
    assert "no gain from seeing W shows" in null.verdict


def test_w_is_worth_little_in_the_real_trial_even_if_its_effects_were_known(real):
    effects = fit_effects(real.logged)
    assert 0.0 < effects.gap(1.0, real.is_s) < 0.02
    assert effects.gap(3.0, real.is_s) < 0.05
