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

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro._core.parallel import Engine
from pulse_pyro.offpolicy.estimators import (
    as_logged,
    doubly_robust,
    ips,
    outcome_model,
    replay_value,
    snips,
    uniform,
)
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.value import Value
from pulse_pyro.paper.case import Case, Estimate, Estimates, RealCase, estimates_finding
from pulse_pyro.paper.datasets import read_table
from pulse_pyro.paper.replay_comparison import HERE

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
        context=kinds.to_numpy(),
        action=frame["item_id"].to_numpy(),
        reward=frame["click"].to_numpy(np.float64),
        propensity=frame["propensity_score"].to_numpy(),
        unit=unit,
        actions=count,
        names=tuple(kinds.columns),
    )


# Open Bandit sample: estimators beside values that are known, with few clicks.


RIDGE = 100.0  # showings after which an item's own line counts as much as the common one
CLAIM = 0.2  # a value that is not known to within a fifth of itself supports no claim
POSITIONS = tuple(f"position_{k}" for k in (1, 2, 3))
SHARES = "bts shares"
READING = (
    "Each line is a policy's click rate by one estimator, with its 95 % interval; a mark shows the "
    "rate of the log that played the policy."
)


def open_bandit_case(
    folder: str | Path, *, runs: int = 1, seed: int = 0, engine: Engine = HERE
) -> Case:
    """Put estimators beside known values.

    One quick computation: ``runs`` and ``engine`` are those of every case, and not used.
    """
    found = open_bandit_values(folder, seed=seed)
    finding = estimates_finding(found, "Estimators beside known click rates", READING)
    headline = found.verdict.split(";")[0]
    return Case("open-bandit", headline, found.about, found.source, (finding,), found.seconds)


OPEN_BANDIT = RealCase("open_bandit_sample", open_bandit_case)


def open_bandit_values(folder: str | Path, *, folds: int = 5, seed: int = 0) -> Estimates:
    """Value each log's own policy, and each policy by the other log.

    The uniform policy by the ``bts`` log is set beside the click rate of the ``random`` log, which
    played it. The other way round, what ``bts`` would have done in the random log's rounds was not
    recorded: its shares of items at each position stand in for it ("bts shares"), which is exact
    only as far as that policy did not change during the week. folds : for the outcome model, a
    line per item in the position. seed : of the folds and of the replay.
    """
    start = time.perf_counter()
    logs = {name: load_open_bandit(folder, name) for name in LOGS}
    rate = {name: float(log.reward.mean()) for name, log in logs.items()}
    random, bts = logs["random"], logs["bts"]
    lines: list[Estimate] = []
    policy_of_log = {"random": "uniform", "bts": "bts"}
    for name, log in logs.items():
        values = {"ips": ips(log, as_logged(log)), "snips": snips(log, as_logged(log))}
        lines += _lines(name, policy_of_log[name], values, rate[name])
    plan = uniform(bts)
    lines += _lines("bts", "uniform", _values(bts, plan, folds, seed), rate["random"])
    plan = item_shares(bts, random)
    values = _values(random, plan, folds, seed)
    values["replay"] = replay_value(random, plan, seed=seed)
    lines += _lines("random", SHARES, values, rate["bts"])
    replayed = {"replay": replay_value(random, uniform(random), seed=seed)}
    lines += _lines("random", "uniform", replayed, rate["random"])
    about = (
        f"{random.rows:,} and {bts.rows:,} impressions with {random.reward.sum():.0f} (random) and "
        f"{bts.reward.sum():.0f} (bts) clicks, 34 items at three positions; intervals over "
        f"{random.units} and {bts.units} combinations of user features, for want of user "
        "identities."
    )
    verdict = _verdict(lines, policy_of_log, logs)
    return Estimates(
        "open bandit", verdict, about, SOURCE, tuple(lines), time.perf_counter() - start
    )


def item_shares(source: Logged, target: Logged) -> Float2:
    """Return how often ``source`` showed each item at the position of ``target``'s rows, (n, K)."""
    at, there = (log.columns(POSITIONS).argmax(1) for log in (source, target))
    count = np.zeros((len(POSITIONS), source.actions))
    np.add.at(count, (at, source.action), 1.0)
    if (count.sum(1)[np.unique(there)] == 0).any():
        count += 1.0 / source.actions  # a position the source never shows: nothing is known of it
    shares: Float2 = (count / count.sum(1, keepdims=True))[there]
    return shares


def _values(log: Logged, policy: Float2, folds: int, seed: int) -> dict[str, Value]:
    q = outcome_model(log, POSITIONS, folds=folds, seed=seed, ridge=RIDGE)
    return {
        "ips": ips(log, policy),
        "snips": snips(log, policy),
        "doubly robust": doubly_robust(log, policy, q),
    }


def _lines(log: str, policy: str, values: Mapping[str, Value], known: float) -> list[Estimate]:
    return [Estimate(log, policy, how, value, known) for how, value in values.items()]


def _verdict(
    lines: Sequence[Estimate], policy_of_log: Mapping[str, str], logs: Mapping[str, Logged]
) -> str:
    reach = [_reach(each.value) for each in lines]
    # by ips with weights of 1, the click rate itself: a replay of the same log knows less of it
    played = {
        each.policy: each.value.se
        for each in lines
        if policy_of_log[each.log] == each.policy and each.estimator == "ips"
    }
    played[SHARES] = played[policy_of_log["bts"]]
    far = [
        abs(each.value.estimate - each.known) / np.hypot(each.value.se, played[each.policy])
        for each in lines
        if policy_of_log[each.log] != each.policy
    ]
    clicks = " and ".join(f"{log.reward.sum():.0f}" for log in logs.values())
    what = "too few clicks for claims" if min(reach) > CLAIM else "enough clicks for some claims"
    return (
        f"open bandit: {what} ({clicks}); the best known value is told to within {min(reach):.0%} "
        f"of itself, the worst to {max(reach):.0%}; values of policies that were not logged lie "
        f"within {max(far):.1f} standard errors (of both) of the click rate of the log that "
        "played them."
    )


def _reach(value: Value) -> float:
    """Half the interval as a share of the estimate; endless where nothing was clicked."""
    half = (value.high - value.low) / 2.0
    return half / value.estimate if value.estimate > 0 else np.inf
