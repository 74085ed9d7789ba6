"""Made-up files of the schema and size class of Taobao's, with planted click structure.

python -m tests.paper.taobao_files DIR --rows 5000000
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_taobao(arguments.folder, arguments.rows, seed=arguments.seed)


if __name__ == "__main__":
    main()
