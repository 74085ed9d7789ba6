"""From three tables of OULAD to one row per piece of work handed in and not yet marked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float3
from pulse_pyro._core.errors import DataError, nearest
from pulse_pyro._core.parallel import Engine
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity
from pulse_pyro.envs.replay import Replay, by_time
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.paper.case import Case, RealCase, judged_finding, setting_finding
from pulse_pyro.paper.datasets import Dataset, line_per_arm, read_table, scale_of, utility_noise
from pulse_pyro.paper.judge import judge
from pulse_pyro.paper.replay_comparison import (
    HERE,
    Carrying,
    Comparison,
    Imputer,
    PlayRule,
    compare,
)
from pulse_pyro.radius import constant

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COURSE = ["code_module", "code_presentation"]
STUDENT = [*COURSE, "id_student"]
EDUCATION = (
    "No Formal quals",
    "Lower Than A Level",
    "A Level or Equivalent",
    "HE Qualification",
    "Post Graduate Qualification",
)
MARKING = 14  # days until a mark is known; 95 % of work is handed in 22 days or more after the last
LATEST = 30.0  # days early or late, beyond which it makes no difference here
TABLES: dict[str, tuple[list[str], list[str]]] = {  # what identifies a row; which are numbers
    "assessments": (["id_assessment"], ["date", "weight"]),
    "studentInfo": (STUDENT, ["num_of_prev_attempts", "studied_credits"]),
    "studentAssessment": (
        ["id_assessment", "id_student"],
        ["date_submitted", "is_banked", "score"],
    ),
}
BLANK = ("score", "date", "weight")  # marks not recorded; exams without a date
TEXT = {"assessments": [*COURSE, "assessment_type"], "studentInfo": ["highest_education"]}


def read_oulad(folder: str | Path) -> dict[str, DataFrame]:
    """Read the three tables needed, each as CSV or gzipped CSV; what cannot be right is refused.

    Blanks may be empty or "?", as in the first release. The click log is not needed.
    """
    tables = {}
    for stem, (keys, numbers) in TABLES.items():
        frame = read_table(folder, stem, [*keys, *numbers, *TEXT.get(stem, [])])
        frame = frame.assign(**{name: _numeric(frame, name, stem) for name in numbers})
        empty = [name for name in numbers if name not in BLANK and frame[name].isna().any()]
        if empty:
            raise DataError(
                f"oulad: a row of {stem} has no {empty[0]}; fill it in or drop the row."
            )
        if frame[keys].isna().any(axis=None):
            raise DataError(f"oulad: {stem} has rows without {' or '.join(keys)}.")
        twice = frame.duplicated(keys)
        if twice.any():
            row = frame.loc[twice, keys].iloc[0].to_dict()
            raise DataError(f"oulad: {stem} has two rows for {row}; one was expected.")
        tables[stem] = frame
    score = tables["studentAssessment"]["score"]
    wrong = score[(score < 0) | (score > 100)]
    if len(wrong):
        raise DataError(
            f"oulad: studentAssessment has a score of {wrong.iloc[0]:g}; 0 to 100 was expected."
        )
    _matched(tables["studentAssessment"], tables["assessments"], ["id_assessment"], "assessments")
    return tables


def decision_points(tables: dict[str, DataFrame]) -> DataFrame:
    """Return one row per decision: course, student, number of the TMA, S, W and the outcome.

    ``score`` is that of the work just handed in, out of 1; ``next_score`` that of the course's next
    TMA, 0 if it was never handed in, NaN if it was but the mark is not recorded. Scores of this
    work, or of later work, are in no other column. Rows: TMAs with a mark, handed in by students
    without banked work, MARKING days or more after all their earlier ones, of which one or more
    have a mark; before the deadline of the next TMA, and before the next TMA was handed in.
    """
    tma = _tutor_marked(tables)
    work = tables["studentAssessment"].merge(tma, on="id_assessment")
    banked = work["is_banked"].gt(0).groupby([work[name] for name in STUDENT]).transform("any")
    work = work[~banked].sort_values([*STUDENT, "number"], ignore_index=True)
    if not len(work):
        raise DataError("oulad: no TMA was handed in by a student without banked work.")
    work["score"] /= 100.0
    work["late"] = (work["date_submitted"] - work["date"]).clip(-LATEST, LATEST)
    work = _with_past(work)
    after = work[[*STUDENT, "number", "score", "date_submitted"]].assign(number=work["number"] - 1)
    names = {"score": "next_score", "date_submitted": "next_submitted"}
    work = work.merge(after.rename(columns=names), on=[*STUDENT, "number"], how="left")
    never = work["next_submitted"].isna()
    work["next_score"] = work["next_score"].mask(never, 0.0)
    _matched(work, tables["studentInfo"], STUDENT, "studentInfo")
    work = work.merge(_about(tables["studentInfo"]), on=STUDENT)
    today = work["date_submitted"]
    kept = (
        work["score"].notna()
        & work["last_score"].notna()
        & (today - work["newest"] >= MARKING)
        & (today < work["next_date"])  # also drops the last TMA of a course
        & (never | (today < work["next_submitted"]))
    )
    return work[kept].reset_index(drop=True)


def _with_past(work: DataFrame) -> DataFrame:
    """Add what a student's earlier TMAs tell; rows are sorted by student and number."""
    group = [work[name] for name in STUDENT]

    def before(values: Series[float]) -> Series[float]:
        return values.groupby(group).shift(1)

    marked = work["score"].notna()
    total = work["score"].fillna(0.0).groupby(group).cumsum()
    count = marked.astype(float).groupby(group).cumsum()
    return work.assign(
        last_score=before(work["score"].groupby(group).ffill()),
        mean_score=before(total / count.where(count > 0)),
        last_late=before(work["late"]),
        newest=before(work["date_submitted"].groupby(group).cummax()),
        missed=work["number"] - work.groupby(STUDENT).cumcount(),
    )


def _tutor_marked(tables: dict[str, DataFrame]) -> DataFrame:
    """Return the TMAs of every course, numbered from 0 by deadline, with the next deadline.

    A TMA without weight where others of its course have some is not marked but ticked, and left
    out: the one there is (15020, BBB 2014J) has 1 or 100 for 98 % of its students.
    """
    found = tables["assessments"]
    tma = found[found["assessment_type"] == "TMA"]
    if not len(tma):
        raise DataError("oulad: assessments has no TMA (tutor-marked assessment).")
    if tma[["date", "weight"]].isna().any(axis=None):
        bad = tma.loc[tma[["date", "weight"]].isna().any(axis=1), "id_assessment"].iloc[0]
        raise DataError(f"oulad: TMA {bad} has no deadline or no weight; fill in or drop it.")
    total = tma.groupby(COURSE)["weight"].transform("sum")
    tma = tma[(tma["weight"] > 0) | (total == 0)]
    tma = tma.sort_values([*COURSE, "date", "id_assessment"], ignore_index=True)
    course = tma.groupby(COURSE)
    return tma.assign(number=course.cumcount(), next_date=course["date"].shift(-1))


def _about(info: DataFrame) -> DataFrame:
    rank = {name: float(k) for k, name in enumerate(EDUCATION)}
    education = info["highest_education"].map(rank)
    if education.isna().any():
        strange = str(info.loc[education.isna(), "highest_education"].iloc[0])
        raise DataError(
            f"oulad: studentInfo has highest_education {strange!r}{nearest(strange, EDUCATION)}"
        )
    if not (info["studied_credits"] > 0).all():
        raise DataError("oulad: studentInfo has studied_credits that are not above 0.")
    return info[STUDENT].assign(
        education=education,
        attempts=info["num_of_prev_attempts"],
        log_credits=np.log(info["studied_credits"]),
    )


def _numeric(frame: DataFrame, name: str, stem: str) -> Series[float]:
    import pandas as pd

    try:
        found = pd.to_numeric(frame[name].replace("?", np.nan))
    except (ValueError, TypeError) as cause:
        raise DataError(f"oulad: column {name!r} of {stem} must hold numbers: {cause}.") from cause
    return found.astype(np.float64)


def _matched(rows: DataFrame, others: DataFrame, keys: Sequence[str], stem: str) -> None:
    """Refuse rows whose keys are not in another table."""
    found = rows[list(keys)].merge(others[list(keys)], on=list(keys), how="left", indicator=True)
    lost = found[found["_merge"] == "left_only"]
    if len(lost):
        row = lost[list(keys)].iloc[0].to_dict()
        raise DataError(f"oulad: {stem} has no row for {row}, which another table speaks of.")


# OULAD, the Open University's courses: whom to support before the work just in is marked.
#
# Students of 22 runs of seven courses hand in tutor-marked assessments (TMAs), three to six a
# course.
# A decision is taken on the day one is handed in. Its mark, about two weeks away, is not known.
#
#     S  the last mark and the mean of all earlier ones, TMAs missed so far, days this work and the
#        one before were late, which TMA of the course it is, earlier attempts at the course,
#        credits studied, highest education
#     W  the mark of the work just handed in, out of 1
#     a  support: 0 none, 1 a message, 2 a call by the tutor
#
# Utility, with L the loss on the course's NEXT TMA (recorded): 1 minus its mark, 1 if it is never
# handed in,
#
#     u(a) = 1 - (1 - r_a) L - c_a    r = (0, 0.2, 0.6)    c = (0, 0.06, 0.30)
#
# so support wins back a share r_a of what would be lost, and costs c_a. A message pays from L = 0.3
# (a mark of 70), a call instead of a message from L = 0.6 (a mark of 40, the pass mark). The
# outcome
# is real. The EFFECT of support is assumed: nobody in OULAD was supported at random, or on record.
#
# Gender, age, region, deprivation and disability are in the files and left out of S on purpose:
# help
# should not depend on them. Education stands in for some of it; drop it where that matters. Exams
# are
# not handed in; computer-marked work (CMA) is marked at once, so nothing of it is missing. Weight
# and date of a TMA are left out too: in the archive they take so few values (9 and 22 of them) that
# they name courses, and 2014 has values that were never met. The click log is not used.


S = (
    "last_score",
    "mean_score",
    "missed",
    "late",
    "last_late",
    "number",
    "attempts",
    "log_credits",
    "education",
)
W = "score"
RECOVERED = (0.0, 0.2, 0.6)
COST = (0.0, 0.06, 0.30)
BEFORE, ONLINE = "2013", "2014"
SOURCE = (
    "Kuzilek, Hlosta & Zdrahal (2017), Open University Learning Analytics dataset, Sci. Data "
    "4:170171, doi:10.1038/sdata.2017.171, CC BY 4.0"
)


def load_oulad(folder: str | Path) -> Dataset:
    """Read assessments, studentInfo and studentAssessment (.csv or .csv.gz) of a folder.

    Archive: courses that began in 2013, without students who are also in one of 2014. Online: 2014.
    A unit is a student in a course, (unit, time) the number of the TMA in it. A block is one run of
    a course, 13 of them online: its students share assignments and markers, so they are not
    independent of each other; by student, standard errors of gains are mostly 2 to 3 times smaller,
    and too small. Pieces have a student as their unit, all courses of 2013 in it: what one student
    does in two courses is not independent either, and ``split`` is by unit. NOT covered: that
    students of one piece of the archive share courses with those of another; bands over pieces are
    too narrow for courses that are new (CCC is only online).
    """
    tables = read_oulad(folder)
    rows = decision_points(tables)
    year = rows["code_presentation"].astype(str).str[:4]
    info = tables["studentInfo"]
    later = info.loc[info["code_presentation"].astype(str).str[:4] == ONLINE, "id_student"]
    again = rows["id_student"].isin(later)
    old, new = rows[(year == BEFORE) & ~again], rows[year == ONLINE]
    for part, when in ((old, BEFORE), (new, ONLINE)):
        if not len(part):
            raise DataError(
                f"oulad: no decision of {when} is left; code_presentation must begin with {BEFORE} "
                f"or {ONLINE}, and work needs an earlier mark and a next TMA in its course."
            )
    archive, online, outcome = _by_course(old), _by_course(new), _by_course(new, "next_score")
    scale = scale_of(archive)
    near, far = scale(archive), scale(online)
    names = [unit.rsplit(" ", 1)[0] for unit in far.units]
    block = np.broadcast_to(np.unique(names, return_inverse=True)[1][:, None], far.grid.seen.shape)
    utility, features = support_utility(outcome.grid.w[..., 0]), line_per_arm(far, len(COST))
    replay = Replay(far, utility, features, block)
    before = support_utility(_by_course(old, "next_score").grid.w[..., 0])
    dropped = rows.loc[(year == BEFORE) & again, "id_student"].nunique()
    about = (
        f"{old['id_student'].nunique():,} students of {BEFORE} as the archive ({dropped:,} who "
        f"come back in {ONLINE} left out), {new['id_student'].nunique():,} of {ONLINE} online. A "
        "decision when work is handed in; S: earlier marks, lateness and study record; W: the mark "
        "of this work; arms: no support, a message, a call. The outcome, the next mark, is real; "
        "what support would do to it is assumed. The utility was fixed before any agent was run."
    )
    return Dataset(
        name="oulad",
        about=about,
        source=SOURCE,
        archive=near,
        replays={"support": replay},
        pieces=_by_student(old),
        scale=scale,
        reward_sd={"support": utility_noise(near, before, features)},
    )


def support_utility(next_score: Float) -> Float3:
    """Return u(a), (.., 3), for the next mark out of 1 (0 if never handed in; NaN: not known)."""
    loss = 1.0 - np.asarray(next_score, np.float64)
    left: Float1 = 1.0 - np.array(RECOVERED)
    found: Float3 = 1.0 - left * loss[..., None] - np.array(COST)
    return found


def _by_course(rows: DataFrame, outcome: str = W) -> History:
    """(student in a course, number of the TMA); units in the order of their names."""
    unit = rows[COURSE[0]].astype(str) + " " + rows[COURSE[1]].astype(str)
    frame = rows.assign(unit=unit + " " + rows["id_student"].astype(str), time=rows["number"])
    return History.from_frame(frame, unit="unit", time="time", observed=list(S), missing=[outcome])


def _by_student(rows: DataFrame) -> History:
    """(student, TMAs of one course after those of another, with a gap between them)."""
    courses = rows[["id_student", *COURSE]].drop_duplicates()
    courses = courses.sort_values(["id_student", COURSE[1], COURSE[0]])
    courses = courses.assign(turn=courses.groupby("id_student").cumcount())
    frame = rows.merge(courses, on=["id_student", *COURSE])
    span = int(rows["number"].max()) + 2
    frame = frame.assign(
        unit=frame["id_student"].astype(str), time=frame["turn"] * span + frame["number"]
    )
    return History.from_frame(frame, unit="unit", time="time", observed=list(S), missing=[W])


# OULAD: whom to support before the work just handed in is marked.
#
# Earlier marks are in S already, so the summary is the current row. More of the past was tried: the
# row before (``Lags(2)``, on the 57 % of rounds that have one) and the mean of all earlier rows
# raise
# the share of variance explained online by less than 0.002. OFUL on raw lags is then OFUL itself,
# and
# their lines in the table agree to the last digit.
#
# No state space law: a unit has one to four rows, S has marks, days, counts and facts that never
# change, which is no stationary Gaussian process, and with one row of memory its W is the linear
# law's.


PLAY_RULES = {
    "alpha 0.25": PlayRule(constant(0.25)),
    "in order of time": PlayRule(constant(0.25), by_time, everywhere=True),
}
CARRYING = Carrying(memory="level+ar")  # people differ, and what is left of a day lasts
NOW = Identity()
IMPUTERS = (
    Imputer("linear", linear_lags(NOW), fenced=True),
    Imputer("gp", gaussian_process(NOW)),
    Imputer("neural", neural_density(NOW, components=3, width=32), anew=True, adaptive=True),
)


def oulad_case(folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE) -> Case:
    """Compare agents, and judge their laws on students they have not seen."""
    start = time.perf_counter()
    dataset = load_oulad(folder)
    played = oulad_rounds(folder, runs=runs, seed=seed, engine=engine)
    findings = (
        *(setting_finding(played, name, f"Three tiers of {name}") for name in played.settings),
        judged_finding(judge(dataset, IMPUTERS, seed=seed, engine=engine), "D_t of the mark"),
    )
    return Case(
        dataset.name,
        played.headline(next(iter(played.settings))),
        dataset.about,
        dataset.source,
        findings,
        time.perf_counter() - start,
    )


OULAD = RealCase("oulad", oulad_case, lambda home: load_oulad(home).pieces)


def oulad_rounds(
    folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE
) -> Comparison:
    """Compare agents on OULAD; see ``datasets.oulad`` for what they decide and what is assumed.

    All decisions are played, 27,499 rounds on the published files. Expect little: E[W | S] is near
    to linear in S (a linear law explains 44 % of W online, networks 45 %), and Phi has a line in S
    for every arm, so that an imputed W is nearly a combination of features OFUL has already.
    Over 40 runs networks earned 0.0004 (se 0.0003) a round more than OFUL, the linear law 0.0002
    (0.0003) less, and seeing W 0.0038 (0.0004) more. Ten runs can name any law the best.
    """
    return compare(
        load_oulad(folder),
        IMPUTERS,
        NOW,
        play_rules=PLAY_RULES,
        carrying=CARRYING,
        runs=runs,
        seed=seed,
        engine=engine,
    )
