"""Open Bandit data, a sample: which of 34 items a fashion shop shows, and whether it is clicked.

Two logs of the same week and campaign ("men"): ``random`` draws items uniformly, ``bts`` by
Bernoulli Thompson sampling, both with the probability of the item shown at its position.

    context   position (three of them, as 0/1 columns) and four hashed features of the user, each of
              their codes a 0/1 column
    a         item 0 .. 33 shown at the position. r  1 if it was clicked
    unit      the combination of the four user features: users have no identity in the data, and
              those who look alike are the nearest to one. Rows of different units may still be
              of one person whose features changed

Affinities of users to items are left out: almost all are 0 in the sample.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pulse_pyro.datasets.dataset import read_table
from pulse_pyro.errors import DataError, SettingError, nearest
from pulse_pyro.offpolicy.logged import Logged

LOGS = ("random", "bts")
USER = tuple(f"user_feature_{k}" for k in range(4))
ITEM = tuple(f"item_feature_{k}" for k in range(4))
SOURCE = (
    "Saito, Aihara, Matsutani and Narita (2020), Open Bandit Dataset and Pipeline, "
    "arXiv:2008.07146; sample from the obp package, for research use"
)


def load_open_bandit(folder: str | Path, log: str = "random") -> Logged:
    """Read ``random_men`` or ``bts_men`` and ``item_context_men`` (.csv or .csv.gz) of a folder."""
    if log not in LOGS:
        raise SettingError(f"load_open_bandit: no log {log!r}{nearest(log, LOGS)}")
    import pandas as pd

    columns = ("item_id", "position", "click", "propensity_score", *USER)
    frame = read_table(folder, f"{log}_men", columns)
    items = read_table(folder, "item_context_men", ("item_id", *ITEM))["item_id"]
    count = len(items)
    if sorted(items) != list(range(count)):
        raise DataError("open bandit: item_context_men must list items 0, 1, 2, ... once each.")
    for name in columns[:4]:
        if frame[name].dtype.kind not in "iuf" or frame[name].isna().any():
            raise DataError(f"open bandit: column {name!r} must hold a number in every row.")
    if frame[list(USER)].isna().any(axis=None):
        raise DataError("open bandit: a user feature is blank; drop the row or name it.")
    if not frame["click"].isin([0, 1]).all():
        raise DataError("open bandit: column 'click' must be 0 or 1.")
    kinds = pd.get_dummies(frame[["position", *USER]].astype(str), dtype=np.float64)
    unit = np.asarray(frame.groupby(list(USER), sort=True).ngroup(), np.int64)
    return Logged(
        kinds.to_numpy(), frame["item_id"].to_numpy(), frame["click"].to_numpy(np.float64),
        frame["propensity_score"].to_numpy(), unit, count, tuple(kinds.columns),
    )  # fmt: skip
