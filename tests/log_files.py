"""Small files with the columns of the recorded logs, and noise in them."""

import numpy as np
import pandas as pd


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
