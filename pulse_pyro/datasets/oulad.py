"""OULAD, the Open University's courses: whom to support before the work just in is marked.

Students of 22 runs of seven courses hand in tutor-marked assessments (TMAs), three to six a course.
A decision is taken on the day one is handed in. Its mark, about two weeks away, is not known.

    S  the last mark and the mean of all earlier ones, TMAs missed so far, days this work and the
       one before were late, which TMA of the course it is, earlier attempts at the course,
       credits studied, highest education
    W  the mark of the work just handed in, out of 1
    a  support: 0 none, 1 a message, 2 a call by the tutor

Utility, with L the loss on the course's NEXT TMA (recorded): 1 minus its mark, 1 if it is never
handed in,

    u(a) = 1 - (1 - r_a) L - c_a    r = (0, 0.2, 0.6)    c = (0, 0.06, 0.30)

so support wins back a share r_a of what would be lost, and costs c_a. A message pays from L = 0.3
(a mark of 70), a call instead of a message from L = 0.6 (a mark of 40, the pass mark). The outcome
is real. The EFFECT of support is assumed: nobody in OULAD was supported at random, or on record.

Gender, age, region, deprivation and disability are in the files and left out of S on purpose: help
should not depend on them. Education stands in for some of it; drop it where that matters. Exams are
not handed in; computer-marked work (CMA) is marked at once, so nothing of it is missing. Weight
and date of a TMA are left out too: in the archive they take so few values (9 and 22 of them) that
they name courses, and 2014 has values that were never met. The click log is not used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float, Float1, Float3
from pulse_pyro.datasets.arms import line_per_arm
from pulse_pyro.datasets.dataset import Dataset, scale_of
from pulse_pyro.datasets.oulad_rows import COURSE, decision_points, read_oulad
from pulse_pyro.environments.replay import Replay
from pulse_pyro.errors import DataError
from pulse_pyro.history import History

if TYPE_CHECKING:
    from pandas import DataFrame

S = (
    "last_score", "mean_score", "missed", "late", "last_late", "number", "attempts", "log_credits",
    "education",
)  # fmt: skip
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
    block = np.broadcast_to(np.unique(names, return_inverse=True)[1][:, None], far.seen.shape)
    utility = support_utility(outcome.w[..., 0])
    replay = Replay(far, utility, line_per_arm(far, len(COST)), block)
    dropped = rows.loc[(year == BEFORE) & again, "id_student"].nunique()
    about = (
        f"{old['id_student'].nunique():,} students of {BEFORE} as the archive ({dropped:,} who "
        f"come back in {ONLINE} left out), {new['id_student'].nunique():,} of {ONLINE} online. A "
        "decision when work is handed in; S: earlier marks, lateness and study record; W: the mark "
        "of this work; arms: no support, a message, a call. The outcome, the next mark, is real; "
        "what support would do to it is assumed. The utility was fixed before any agent was run."
    )
    return Dataset("oulad", about, SOURCE, near, {"support": replay}, _by_student(old), scale)


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
