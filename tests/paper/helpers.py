"""What the tests of this folder share."""

import argparse
import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

# A made-up file of the schema of decisions_6h.csv: four stations, a few months.


STATIONS = ("Alpha", "Beta", "Gamma", "Delta")


def beijing_frame(days=120, seed=0):
    """Pollution rises with humidity and falls with wind; the second half is 'from 2016'."""
    rng = np.random.default_rng(seed)
    time = pd.date_range("2015-11-02", periods=4 * days, freq="6h")
    parts = []
    weather = rng.standard_normal((len(time), 5)).cumsum(0) * 0.1
    for k, station in enumerate(STATIONS):
        own = weather + 0.3 * rng.standard_normal(weather.shape)
        dirt = 3.8 + 0.8 * own[:, 2] - 0.8 * own[:, 4]
        part = pd.DataFrame({"station": station, "time": time.strftime("%Y-%m-%dT%H")})
        part["hour"], part["doy"] = time.hour, time.day_of_year
        part["TEMP"], part["PRES"], part["DEWP"] = own[:, 0], 1010 + own[:, 1], own[:, 2]
        part["RAIN"] = np.abs(own[:, 3])
        part["WSPM"] = np.exp(own[:, 4])
        part["O3"] = 50 + 5 * own[:, 0] + rng.random(len(time))
        part["wind_x"], part["wind_y"] = own[:, 4], rng.standard_normal(len(time))
        for name in ("PM2.5", "PM10", "NO2", "SO2", "CO"):
            part[f"log_{name}"] = dirt + 0.3 * rng.standard_normal(len(time))
        part["next6h_log_PM2.5"] = np.r_[part["log_PM2.5"][1:], np.nan]
        late = time >= "2016-01-01"
        part["split"] = np.where(
            late, *(("online", "unused") if k % 2 else ("unused", "historical"))
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def beijing_folder(path, table=None):
    """Write the table, or the made-up one, and return the folder."""
    (beijing_frame() if table is None else table).to_csv(path / "decisions_6h.csv", index=False)
    return path


# Small files with the columns of the recorded logs, and noise in them.


def heartsteps_frame(users=10, points=40, seed=0):
    """Decision points of the trial; W and S mean nothing here."""
    rng = np.random.default_rng(seed)
    n = users * points
    t = np.tile(np.arange(points), users)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(1, users + 1), points),
            "t": t,
            "hour_local": 8.0 + 2.5 * (t % 5),
            "weekend": (t // 5 % 7 > 4).astype(float),
            "avail": (rng.random(n) < 0.8).astype(int),
            "action": rng.choice([0.0, 1.0, 2.0], n, p=[0.4, 0.3, 0.3]),
            "steps30": rng.poisson(200, n),
            "pre30": rng.poisson(100, n) * (rng.random(n) < 0.5),
            "pre_missing": (rng.random(n) < 0.2).astype(int),
            "location": rng.choice(["home", "work", "other", "missing"], n),
            "temperature": np.where(rng.random(n) < 0.2, np.nan, rng.normal(10, 5, n)),
            "windspeed": rng.choice([-1.0, 2.0, 5.0], n),
            "precip_chance": rng.choice([0.0, 50.0, np.nan], n),
            "weather": rng.choice(["clear", "rain", "snow", "cloudy", "missing"], n),
            "activity": rng.choice(["still", "unknown"], n),
        }
    )


def bandit_frames(rows=600, items=4, seed=0):
    """Two logs and the list of items; clicks are more frequent than in any shop."""
    rng = np.random.default_rng(seed)
    frames = {"item_context_men": pd.DataFrame({"item_id": range(items)})}
    for k in range(4):
        frames["item_context_men"][f"item_feature_{k}"] = [f"f{k}{i % 2}" for i in range(items)]
    tilt = np.linspace(2.0, 1.0, items) / np.linspace(2.0, 1.0, items).sum()
    for log, chances in (("random", np.full(items, 1.0 / items)), ("bts", tilt)):
        item = rng.choice(items, rows, p=chances)
        made = {
            "item_id": item,
            "position": rng.integers(1, 4, rows),
            "click": (rng.random(rows) < 0.2 + 0.1 * (item == 0)).astype(int),
            "propensity_score": chances[item],
        }
        made |= {f"user_feature_{k}": rng.choice(["aa", "bb", "cc"], rows) for k in range(4)}
        frames[f"{log}_men"] = pd.DataFrame(made)
    return frames


def written(folder, frames):
    """Write tables by name as CSV and return the folder."""
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


# Folders with the files of OULAD: one small enough to work by hand, one to fit laws on.


A_LEVEL, HIGHER, LOWER = "A Level or Equivalent", "HE Qualification", "Lower Than A Level"
NAN = float("nan")
ASSESSMENTS = (  # course, presentation, id, kind, deadline, weight
    ("AAA", "2013J", 1, "TMA", 20.0, 10.0),
    ("AAA", "2013J", 2, "TMA", 60.0, 25.0),
    ("AAA", "2013J", 3, "TMA", 100.0, 25.0),
    ("AAA", "2013J", 4, "TMA", 140.0, 40.0),
    ("AAA", "2013J", 5, "Exam", NAN, 100.0),
    ("AAA", "2013J", 6, "CMA", 60.0, 0.0),
    ("BBB", "2014J", 11, "TMA", 20.0, 10.0),
    ("BBB", "2014J", 12, "TMA", 60.0, 25.0),
    ("BBB", "2014J", 13, "TMA", 100.0, 25.0),
    ("BBB", "2014J", 14, "TMA", 140.0, 40.0),
    ("BBB", "2014J", 15, "TMA", 10.0, 0.0),  # ticked, not marked: no weight where others have some
    ("BBB", "2014J", 16, "Exam", 200.0, 100.0),
    ("DDD", "2013B", 21, "TMA", 30.0, 0.0),  # no TMA of this course has weight: they are marked
    ("DDD", "2013B", 22, "TMA", 70.0, 0.0),
    ("DDD", "2013B", 23, "TMA", 110.0, 0.0),
)
STUDENTS = (  # course, presentation, id, education, attempts, credits
    ("AAA", "2013J", 101, A_LEVEL, 0, 60),
    ("DDD", "2013B", 101, A_LEVEL, 0, 60),
    ("AAA", "2013J", 102, HIGHER, 1, 120),
    ("AAA", "2013J", 103, A_LEVEL, 1, 60),
    ("AAA", "2013J", 104, LOWER, 0, 60),
    ("AAA", "2013J", 105, A_LEVEL, 0, 60),
    ("BBB", "2014J", 104, LOWER, 0, 60),
    ("BBB", "2014J", 201, A_LEVEL, 0, 30),
    ("BBB", "2014J", 202, HIGHER, 2, 90),
    ("BBB", "2014J", 203, LOWER, 0, 60),
    ("BBB", "2014J", 204, LOWER, 0, 60),
    ("BBB", "2014J", 205, LOWER, 0, 60),
)
WORK = (  # student, assessment, day, banked, score
    (101, 1, 18, 0, 80.0),
    (101, 2, 60, 0, 60.0),
    (101, 3, 103, 0, 70.0),
    (101, 4, 140, 0, 90.0),
    (101, 21, 30, 0, 65.0),
    (101, 22, 70, 0, 75.0),
    (101, 23, 110, 0, 85.0),
    (102, 1, 20, 0, 50.0),
    (102, 3, 95, 0, 40.0),  # 2 is missed, 4 never comes
    (103, 1, -1, 1, 90.0),
    (103, 2, 60, 0, 90.0),
    (103, 3, 100, 0, 90.0),  # 1 is banked
    (104, 1, 20, 0, 60.0),
    (104, 2, 60, 0, 60.0),
    (104, 3, 100, 0, 60.0),  # comes back in 2014
    (105, 1, 20, 0, 70.0),
    (105, 2, 30, 0, 71.0),  # 1 is not marked yet
    (105, 3, 100, 0, NAN),
    (105, 4, 140, 0, 50.0),  # the mark of 3 is not recorded
    (101, 5, 230, 0, 40.0),
    (101, 6, 50, 0, 100.0),  # an exam, and work marked at once
    (104, 11, 20, 0, 90.0),
    (104, 12, 101, 0, 70.0),  # 12 comes after the deadline of 13
    (104, 13, 120, 0, 80.0),
    (104, 14, 140, 0, 60.0),
    (201, 11, 20, 0, 100.0),
    (201, 12, 58, 0, 50.0),
    (201, 13, 100, 0, NAN),
    (201, 14, 139, 0, 30.0),
    (202, 11, 15, 0, 60.0),
    (202, 12, 61, 0, 80.0),
    (203, 15, 9, 0, 1.0),
    (203, 11, 20, 0, 40.0),
    (203, 12, 60, 0, 30.0),
    (203, 13, 100, 0, 70.0),
    (203, 14, 139, 0, 100.0),
    (204, 11, 20, 0, 55.0),
    (204, 12, 70, 0, 60.0),
    (204, 13, 65, 0, 70.0),  # 13 before 12
    (205, 11, 65, 0, 50.0),
    (205, 12, 50, 0, 55.0),  # 11 after 12, so not marked yet ...
    (205, 13, 75, 0, 60.0),
    (205, 14, 139, 0, 65.0),  # ... when 13 comes
)


def hand_made():
    """The tables, by file."""
    course = ["code_module", "code_presentation"]
    about = [*course, "id_student", "highest_education", "num_of_prev_attempts", "studied_credits"]
    work = ["id_student", "id_assessment", "date_submitted", "is_banked", "score"]
    kinds = [*course, "id_assessment", "assessment_type", "date", "weight"]
    return {
        "assessments": pd.DataFrame(ASSESSMENTS, columns=kinds),
        "studentInfo": pd.DataFrame(STUDENTS, columns=about),
        "studentAssessment": pd.DataFrame(WORK, columns=work),
    }


def many(students=120, seed=0):
    """The tables of two courses, 2013 and 2014, with as many students in each."""
    rng = np.random.default_rng(seed)
    tables = hand_made()
    kinds = tables["assessments"]
    tma = (kinds["assessment_type"] == "TMA") & (kinds["weight"] > 0)
    about, work = [], []
    for course, when, first in (("AAA", "2013J", 1000), ("BBB", "2014J", 5000)):
        own = kinds[tma & (kinds["code_presentation"] == when)]
        who = first + np.arange(students)
        count, shape = len(own), (students, len(own))
        able = rng.normal(70.0, 10.0, (students, 1))
        score = np.clip(np.round(able + rng.normal(0.0, 12.0, shape)), 0.0, 100.0)
        day = own["date"].to_numpy() + rng.integers(-6, 4, shape)
        level = rng.choice([A_LEVEL, HIGHER, LOWER], students)
        facts = {"highest_education": level, "num_of_prev_attempts": rng.integers(0, 3, students)}
        names = {"code_module": course, "code_presentation": when, "id_student": who}
        credit = {"studied_credits": rng.choice([30, 60, 120], students)}
        about.append(pd.DataFrame(names | facts | credit))
        done = {"id_student": np.repeat(who, count), "date_submitted": day.ravel(), "is_banked": 0}
        ids = np.tile(own["id_assessment"].to_numpy(), students)
        frame = pd.DataFrame(done | {"id_assessment": ids, "score": score.ravel()})
        work.append(frame[rng.random(len(frame)) < 0.9])
    return {
        "assessments": kinds,
        "studentInfo": pd.concat(about, ignore_index=True),
        "studentAssessment": pd.concat(work, ignore_index=True),
    }


def write(folder, tables, blank=""):
    """Write the tables, one of them gzipped, as they are published; returns the folder."""
    for stem, table in tables.items():
        text = table.to_csv(index=False, na_rep=blank)
        if stem == "studentAssessment":
            (folder / f"{stem}.csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{stem}.csv").write_text(text)
    return folder


# Where real data sets lie, if they do: beside the repository, or where PULSE_DATA says.


BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


def folder(name):
    """The folder of a data set; the test is skipped where there is none."""
    home = Path(os.environ.get("PULSE_DATA", BESIDE))
    if not (home / name).is_dir():
        pytest.skip(f"the data set {name} is not here; set PULSE_DATA to the folder that holds it.")
    return home / name


# Made-up files of the schema and size class of Taobao's, with planted click structure:
# python -m tests.paper.helpers DIR --rows 5000000


MOST_USERS, MOST_ADS = 1_061_768, 846_811  # of the original
CATEGORIES, BRANDS = 6_769, 100_000
PIECE = 1_000_000


def write_taobao(folder, rows, *, users=None, ads=None, seed=0):
    """Write the three files; tables have the original's size from about 5 million rows on.

    Clicks depend on category, brand, price, age, shopping depth, and on gender by category:
    about 5 in 100, as in the original. 4 % of the displays are of users without a profile, a few
    of ads without features.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    n_users = users or int(np.clip(rows // 5, 200, MOST_USERS))
    n_ads = ads or int(np.clip(rows // 6, 200, MOST_ADS))
    profile, taste = _users(n_users, rng)
    feature, appeal, leaning = _ads(n_ads, rng)
    profile.to_csv(folder / "user_profile.csv", index=False)
    feature.to_csv(folder / "ad_feature.csv", index=False, na_rep="NULL")
    female = (profile["final_gender_code"] == 2).to_numpy()
    with (folder / "raw_sample.csv").open("w") as file:
        for start in range(0, rows, PIECE):
            n = min(PIECE, rows - start)
            who = rng.integers(0, int(1.04 * n_users) + 1, n)
            what = rng.integers(0, int(1.002 * n_ads) + 1, n)
            w, a = who % n_users, what % n_ads  # whatever click strangers do is never read
            logit = -3.7 + taste[w] + appeal[a] + np.where(female[w], 1.0, -1.0) * leaning[a]
            click = (rng.random(n) < 1.0 / (1.0 + np.exp(-logit))).astype(np.int8)
            pd.DataFrame(
                {
                    "user": who + 1,
                    "time_stamp": 1_494_000_000 + rng.integers(0, 8 * 86_400, n),
                    "adgroup_id": what + 1,
                    "pid": np.where(rng.random(n) < 0.5, "430548_1007", "430539_1007"),
                    "nonclk": 1 - click,
                    "clk": click,
                }
            ).to_csv(file, index=False, header=start == 0)
    return folder


def _users(n, rng):
    age = rng.integers(0, 7, n)
    shopping = rng.choice([1, 2, 3], n, p=[0.1, 0.2, 0.7])
    frame = pd.DataFrame(
        {
            "userid": rng.permutation(n) + 1,
            "cms_segid": np.where(rng.random(n) < 0.77, 0, rng.integers(1, 97, n)),
            "cms_group_id": age + 6 * rng.integers(0, 2, n),
            "final_gender_code": rng.choice([1, 2], n, p=[0.35, 0.65]),
            "age_level": age,
            "pvalue_level": _blank(rng.integers(1, 4, n), 0.54, rng),
            "shopping_level": shopping,
            "occupation": (rng.random(n) < 0.05).astype(int),
            "new_user_class_level ": _blank(rng.integers(1, 5, n), 0.32, rng),
        }
    )
    order = np.argsort(frame["userid"].to_numpy())  # taste[i] is of user i + 1
    frame, age, shopping = frame.iloc[order], age[order], shopping[order]
    return frame, 0.12 * (age - 3) + 0.3 * (shopping - 2)


def _ads(n, rng):
    category, brand = _zipf(CATEGORIES, n, rng), _zipf(BRANDS, n, rng)
    price = np.round(np.exp(rng.normal(5.0, 1.6, n)), 2) + 0.01
    frame = pd.DataFrame(
        {
            "adgroup_id": np.arange(1, n + 1),
            "cate_id": category + 1,
            "campaign_id": rng.integers(1, n + 1, n),
            "customer": rng.integers(1, n // 3 + 2, n),
            "brand": pd.array(brand + 1, dtype="Int64"),
            "price": price,
        }
    )
    frame.loc[rng.random(n) < 0.3, "brand"] = pd.NA
    of_category, of_brand = rng.normal(0.0, 0.6, CATEGORIES), rng.normal(0.0, 0.6, BRANDS)
    leaning = rng.normal(0.0, 0.4, CATEGORIES)
    appeal = of_category[category] + of_brand[brand] - 0.25 * (np.log10(price) - 2.0)
    return frame, appeal, leaning[category]


def _zipf(levels, n, rng):
    weight = np.arange(1, levels + 1) ** -0.9
    return np.searchsorted(np.cumsum(weight / weight.sum()), rng.random(n)).clip(max=levels - 1)


def _blank(values, share, rng):
    column = pd.array(values, dtype="Int64")
    column[rng.random(len(values)) < share] = pd.NA
    return column


def main():
    parser = argparse.ArgumentParser(description="Write made-up files like Taobao's.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_taobao(arguments.folder, arguments.rows, seed=arguments.seed)


if __name__ == "__main__":
    main()
