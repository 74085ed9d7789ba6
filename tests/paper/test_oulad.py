"""OULAD: rows worked by hand, refusals, no leaks, and the published files where they are."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_pyro._core.errors import DataError
from pulse_pyro.data.summary import Identity, Lags
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse
from pulse_pyro.envs.replay import replay_run, shuffled
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.paper.oulad import (
    IMPUTERS,
    S,
    decision_points,
    load_oulad,
    oulad_rounds,
    read_oulad,
    support_utility,
)
from tests.helpers import mean_at
from tests.paper.helpers import folder, hand_made, many, write

LOG = np.log
# (student, TMA): last, mean, missed, late, last late, number, attempts, log credits, education; W
BY_HAND = {
    (101, 2): (0.8, 0.8, 0, 0, -2, 1, 0, LOG(60), 2, 0.60),
    (101, 3): (0.6, 0.7, 0, 3, 0, 2, 0, LOG(60), 2, 0.70),
    (101, 22): (0.65, 0.65, 0, 0, 0, 1, 0, LOG(60), 2, 0.75),
    (102, 3): (0.5, 0.5, 1, -5, 0, 2, 1, LOG(120), 3, 0.40),
    (104, 2): (0.6, 0.6, 0, 0, 0, 1, 0, LOG(60), 1, 0.60),
    (104, 3): (0.6, 0.6, 0, 0, 0, 2, 0, LOG(60), 1, 0.60),
    (104, 13): (0.7, 0.8, 0, 20, 30, 2, 0, LOG(60), 1, 0.80),  # 41 days late count as 30
    (201, 12): (1.0, 1.0, 0, -2, 0, 1, 0, LOG(30), 2, 0.50),
    (202, 12): (0.6, 0.6, 0, 1, -5, 1, 2, LOG(90), 3, 0.80),
    (203, 12): (0.4, 0.4, 0, 0, 0, 1, 0, LOG(60), 1, 0.30),
    (203, 13): (0.3, 0.35, 0, 0, 0, 2, 0, LOG(60), 1, 0.70),
}
NEXT = {(101, 2): 0.7, (101, 3): 0.9, (101, 22): 0.85, (102, 3): 0.0, (202, 12): 0.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return load_oulad(write(tmp_path_factory.mktemp("hand"), hand_made()))


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    return load_oulad(write(tmp_path_factory.mktemp("many"), many()))


def test_decision_points_are_those_worked_by_hand(tmp_path):
    rows = decision_points(read_oulad(write(tmp_path, hand_made())))
    keys = list(zip(rows["id_student"], rows["id_assessment"], strict=True))
    assert sorted(keys) == sorted(BY_HAND)
    found = rows[[*S, "score"]].to_numpy(np.float64)
    np.testing.assert_allclose(found, [BY_HAND[key] for key in keys], rtol=1e-12)
    after = dict(zip(keys, rows["next_score"], strict=True))
    assert {key: after[key] for key in NEXT} == NEXT
    assert np.isnan(after[201, 12])  # handed in, its mark not recorded


def test_utility_by_hand():
    # L = 0.3: a message breaks even; L = 0.6: a call and a message do; never handed in: L = 1
    found = support_utility(np.array([1.0, 0.7, 0.4, 0.0, np.nan]))
    wanted = [[1.0, 0.94, 0.7], [0.7, 0.7, 0.58], [0.4, 0.46, 0.46], [0.0, 0.14, 0.3]]
    np.testing.assert_allclose(found[:4], wanted, atol=1e-12)
    assert np.isnan(found[4]).all()


def test_archive_pieces_and_replay_by_hand(made):
    assert made.pieces.units == ("101", "102")  # 104 comes back in 2014
    assert "2 students of 2013 as the archive (1 who come back" in made.about
    assert made.archive.units == ("AAA 2013J 101", "AAA 2013J 102", "DDD 2013B 101")
    # the course of 2013B first, TMAs 1 of 0..2; then 2013J after a gap that no lag of two bridges
    assert np.flatnonzero(made.pieces.grid.seen[0]).tolist() == [0, 4, 5]
    np.testing.assert_allclose(made.pieces.grid.w[0, [0, 4, 5], 0], [0.75, 0.6, 0.7])
    assert np.isnan(Lags(2)(made.pieces.grid.s)[0, 4]).any()
    archive = made.archive.s
    np.testing.assert_allclose(archive.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(archive.std(0), 1.0)
    replay = made.replays["support"]
    assert replay.history.units == tuple(f"BBB 2014J {k}" for k in (104, 201, 202, 203))
    assert replay.complete.sum(1).tolist() == [1, 0, 1, 2]  # the outcome of 201 is not known
    np.testing.assert_allclose(replay.utility[2, 0], [0.0, 0.14, 0.3], atol=1e-12)
    np.testing.assert_allclose(replay.utility[3, 1], [1.0, 0.94, 0.7], atol=1e-12)
    assert np.unique(replay.block).tolist() == [0]  # one course


def test_blanks_may_be_question_marks(tmp_path, made):
    again = load_oulad(write(tmp_path, hand_made(), blank="?"))
    np.testing.assert_array_equal(again.archive.s, made.archive.s)


def test_order_of_rows_does_not_matter(tmp_path, made):
    tables = {stem: table.sample(frac=1, random_state=1) for stem, table in hand_made().items()}
    again = load_oulad(write(tmp_path, tables))
    np.testing.assert_array_equal(again.replays["support"].s, made.replays["support"].s)
    np.testing.assert_array_equal(again.pieces.w, made.pieces.w)


def changed(stem, column, value, row=0):
    def change(tables):
        table = tables[stem]
        table[column] = table[column].astype(object)
        table.loc[row, column] = value

    return change


def filled(stem, column, value):
    def change(tables):
        tables[stem][column] = value

    return change


def only(stem, column, wanted):
    def change(tables):
        tables[stem] = tables[stem][tables[stem][column] == wanted]

    return change


def without(stem, rows=None, column=None):
    def change(tables):
        tables[stem] = tables[stem].drop(index=rows, columns=column)

    return change


def doubled(stem):
    def change(tables):
        tables[stem] = tables[stem].iloc[[0, *range(len(tables[stem]))]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("studentInfo"), "has neither studentInfo.csv nor studentInfo.csv.gz"),
        (without("studentAssessment", column="score"), "no column 'score'; known: 'id_student'"),
        (
            lambda t: t.update(assessments=t["assessments"].rename(columns={"weight": "wieght"})),
            "no column 'weight'; did you mean 'wieght'",
        ),
        (lambda t: t.update(assessments=t["assessments"][:0]), "has a header but no rows"),
        (changed("studentAssessment", "score", 101.0), "a score of 101; 0 to 100 was expected"),
        (changed("studentAssessment", "score", -1.0), "a score of -1; 0 to 100"),
        (changed("studentAssessment", "score", "good"), "'score' of studentAssessment must hold n"),
        (changed("studentAssessment", "date_submitted", np.nan), "has no date_submitted"),
        (changed("studentAssessment", "id_assessment", 99), "assessments has no row for .*99"),
        (changed("studentAssessment", "id_student", 999), "studentInfo has no row for .*999"),
        (changed("studentAssessment", "id_student", np.nan), "rows without id_assessment or id_st"),
        (doubled("studentAssessment"), "studentAssessment has two rows for .*101"),
        (doubled("studentInfo"), "studentInfo has two rows for"),
        (doubled("assessments"), "assessments has two rows for"),
        (changed("assessments", "date", np.nan), "TMA 1 has no deadline or no weight"),
        (only("assessments", "assessment_type", "Exam"), "assessments has no row for"),
        (changed("studentInfo", "highest_education", "HE Quallification"), "did you mean 'HE Q"),
        (changed("studentInfo", "studied_credits", 0), "studied_credits that are not above 0"),
        (changed("studentInfo", "num_of_prev_attempts", np.nan), "has no num_of_prev_attempts"),
        (without("studentAssessment", rows=range(21, 43)), "no decision of 2014 is left"),
        (without("studentAssessment", rows=range(21)), "no decision of 2013 is left"),
        (filled("studentAssessment", "is_banked", 1), "without banked work"),
        (filled("assessments", "assessment_type", "CMA"), "has no TMA"),
        (without("studentInfo", rows=[2]), "studentInfo has no row for .*102"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path, change, message):
    tables = hand_made()
    change(tables)
    with pytest.raises(DataError, match=message):
        load_oulad(write(tmp_path, tables))


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(DataError, match=r"is not a folder with assessments\.csv"):
        load_oulad(tmp_path / "nowhere")


TABLES = many(students=15, seed=3)


@settings(max_examples=40)
@given(at=st.integers(0, len(TABLES["studentAssessment"]) - 1), score=st.integers(0, 100))
def test_s_does_not_depend_on_this_score_or_later_ones(at, score):
    before = decision_points({stem: table.copy() for stem, table in TABLES.items()})
    work = TABLES["studentAssessment"].copy()
    work.loc[at, "score"] = float(score)
    after = decision_points({**TABLES, "studentAssessment": work})
    who, number = work.loc[at, "id_student"], (work.loc[at, "id_assessment"] - 1) % 10
    assert before["id_assessment"].equals(after["id_assessment"])  # scores decide no row
    earlier = (before["id_student"] != who) | (before["number"] <= number)
    same = (before[list(S)] == after[list(S)]).all(axis=1)
    assert same[earlier].all()
    moved = TABLES["studentAssessment"].loc[at, "score"] != score
    assert same[~earlier].all() != (moved and (~earlier).any())  # but later rows do see it


def test_agents_without_w_see_none_of_it(larger):
    replay = larger.replays["support"]
    law = linear_lags(Identity()).fit(larger.archive, seed=0)
    history = replay.history
    other = replace(replay, history=replace(history, w=history.flat(replay.w[::-1] + 1.0)))
    for agent in (oful, lambda r: oful_lags(r, Identity()), lambda r: pulse(r, law)):
        np.testing.assert_array_equal(agent(replay).x, agent(other).x)
    rows = replay.complete & other.complete
    assert (oful_full(replay).x[rows] != oful_full(other).x[rows]).any()


def test_students_of_the_archive_are_not_met_online(made, larger):
    for dataset in (made, larger):
        online = {unit.split()[-1] for unit in dataset.replays["support"].history.units}
        assert not online & set(dataset.pieces.units)
        assert {unit.split()[-1] for unit in dataset.archive.units} == set(dataset.pieces.units)


def test_the_case_plays_every_agent(tmp_path, monkeypatch):
    assert [each.name for each in IMPUTERS] == ["linear", "gp", "neural"]
    monkeypatch.setattr("pulse_pyro.paper.oulad.IMPUTERS", IMPUTERS[:1])  # others take longer
    home = write(tmp_path, many(students=60))
    found = oulad_rounds(home, runs=3, seed=1)
    table = found.table("support, alpha 0.25")
    plain = {"oful", "oful_full", "oful_lags", "pulse_linear"}
    more = {"committee", "guarded_linear", "oful_lags_rewards", "pulse_linear_memory"}
    assert set(table.index) == plain | more
    assert "support, in order of time" in found.settings
    assert table["utility"].between(0.0, 1.0).all()
    # earlier marks are in S: raw lags are OFUL
    assert table.loc["oful", "utility"] == table.loc["oful_lags", "utility"]
    assert "assumed" in found.about
    again = oulad_rounds(home, runs=3, seed=1).table("support, alpha 0.25")
    assert again["utility"].equals(table["utility"])
    other = oulad_rounds(home, runs=3, seed=9).table("support, alpha 0.25")
    assert not other["utility"].equals(table["utility"])


@pytest.fixture(scope="module")
def published():
    return load_oulad(folder("oulad"))


def test_published_files_have_their_published_sizes():
    home = folder("oulad")
    sizes = {"studentInfo": 32593, "studentAssessment": 173912, "assessments": 206, "courses": 22}
    for stem, rows in sizes.items():
        (file,) = home.glob(f"{stem}.csv*")
        assert len(pd.read_csv(file)) == rows
    # why TMAs without weight among others that have some are no marks
    work = read_oulad(home)["studentAssessment"]
    ticked = work.loc[work["id_assessment"] == 15020, "score"]
    assert ticked.isin([1.0, 100.0]).mean() > 0.97


def test_published_decisions(published):
    replay = published.replays["support"]
    assert len(published.archive.s) == len(published.pieces.s) == 23651
    assert len(published.pieces.units) == 8176
    assert "(1,317 who come back in 2014 left out), 11,021 of 2014 online" in published.about
    assert replay.complete.sum() == 27499
    assert len(np.unique(replay.block)) == 13
    known = replay.utility[replay.complete]
    assert known.min() >= 0.0
    assert known.max() <= 1.0
    assert np.bincount(known.argmax(1)).min() > 0.1 * len(known)  # every arm is best for some
    online = {unit.split()[-1] for unit in replay.history.units}
    assert not online & set(published.pieces.units)


def test_published_marks_can_be_foreseen_in_part_and_are_worth_knowing(published):
    replay = published.replays["support"]
    rows = replay.complete
    guess = mean_at(linear_lags(Identity()).fit(published.archive, seed=0), replay.s)[rows]
    truth = replay.w[rows]
    assert 0.4 < 1.0 - ((truth - guess) ** 2).mean() / truth.var() < 0.5
    played = replay_run(replay, [oful(replay), oful_full(replay)], shuffled(rows, seed=0))
    gain = played.contrast("oful_full", "oful")
    assert gain.difference > 3.0 * gain.block_se > 0.0
