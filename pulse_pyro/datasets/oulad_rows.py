"""From three tables of OULAD to one row per piece of work handed in and not yet marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.datasets.dataset import read_table
from pulse_pyro.errors import DataError, nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

COURSE = ["code_module", "code_presentation"]
STUDENT = [*COURSE, "id_student"]
EDUCATION = (
    "No Formal quals", "Lower Than A Level", "A Level or Equivalent", "HE Qualification",
    "Post Graduate Qualification",
)  # fmt: skip
MARKING = 14  # days until a mark is known; 95 % of work is handed in 22 days or more after the last
LATEST = 30.0  # days early or late, beyond which it makes no difference here
TABLES: dict[str, tuple[list[str], list[str]]] = {  # what identifies a row; which are numbers
    "assessments": (["id_assessment"], ["date", "weight"]),
    "studentInfo": (STUDENT, ["num_of_prev_attempts", "studied_credits"]),
    "studentAssessment": (
        ["id_assessment", "id_student"], ["date_submitted", "is_banked", "score"],
    ),
}  # fmt: skip
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
        education=education, attempts=info["num_of_prev_attempts"],
        log_credits=np.log(info["studied_credits"]),
    )  # fmt: skip


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
