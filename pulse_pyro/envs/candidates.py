"""Recorded rows as arms: every round a few candidates, one is picked, its reward is seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Int, positive, whole
from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.policies.horizon import play_on
from pulse_pyro.policies.linear import check_size, init

BLOCK = 1024  # rounds in flight: 5 MB for 20 candidates of 32 features
RANDOM = "random"


def draw_candidates(rows: int, arms: int, rounds: int, *, rng: np.random.Generator) -> Int:
    """Draw ``arms`` of ``rows`` for every round: (rounds, arms), no row twice in a round.

    Every ordered choice is equally likely, so the first candidate is a fair random pick. Rows do
    come back in other rounds.
    """
    whole(arms, "draw_candidates: arms", 1)
    whole(rounds, "draw_candidates: rounds", 0)
    if whole(rows, "draw_candidates: rows", 1) < arms:
        raise SettingError(
            f"draw_candidates: {arms} different candidates were asked of {rows} rows; ask for "
            "fewer, or bring more rows."
        )
    if rows <= arms**2:  # a repeat is likely: shuffle instead of drawing again
        return rng.random((rounds, rows)).argsort(axis=1)[:, :arms]
    candidates = rng.integers(0, rows, (rounds, arms))
    while True:
        ordered = np.sort(candidates, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if not twice.any():
            return candidates
        candidates[twice] = rng.integers(0, rows, (int(twice.sum()), arms))


def play_candidates(
    features: Mapping[str, Float2],
    reward: Float1,
    *,
    rounds: int,
    seed: int,
    arms: int = 20,
    alpha: float = 1.0,
    ridge: float = 1.0,
) -> dict[str, Int]:
    """Play a linear UCB agent on each table of features, all on the same candidates.

    Parameters
    ----------
    features : agent -> (n, d) what it sees of each row; d may differ.
    reward : (n,) what picking a row pays.
    rounds, arms : T, and candidates a round, drawn without replacement within the round.
    seed : of the candidates. More rounds leave earlier ones as they were.
    alpha, ridge : constant sqrt(gamma), and lambda.

    Returns
    -------
    agent -> (rounds,) the row each picked; ``random`` picks the first candidate. Memory does not
    grow with rounds, but for the answer: 1,024 rounds are played at a time, each agent's state is
    carried on, and the picks are those of :func:`play_horizon` in one go, to the last bit.

    Not covered: candidates are drawn, not those that were shown together, and a recorded reward is
    paid whatever else stands in the round; a constant radius carries no guarantee.
    """
    pays = np.asarray(reward, dtype=np.float64)
    tables = {name: np.asarray(table, dtype=np.float64) for name, table in features.items()}
    _check(tables, pays)
    whole(rounds, "play_candidates: rounds", 1)
    root = positive(alpha, "play_candidates: alpha", zero=True)
    states = {name: init(table.shape[1], ridge, (1,)) for name, table in tables.items()}
    for table in tables.values():
        check_size(table, ridge, "play_candidates")
    picks = {name: np.empty(rounds, dtype=np.int64) for name in (*tables, RANDOM)}
    for start in bar(range(0, rounds, BLOCK), label="rounds x 1024"):
        rng = stream(seed, "candidates", start // BLOCK)
        at = draw_candidates(len(pays), arms, BLOCK, rng=rng)[: rounds - start]
        now, roots = slice(start, start + len(at)), np.full((1, len(at)), root)
        picks[RANDOM][now] = at[:, 0]
        for name, table in tables.items():
            action = play_on(states[name], table[at][None], pays[at][None], roots)[0]
            picks[name][now] = at[np.arange(len(at)), action]
    return picks


def _check(tables: Mapping[str, Float2], pays: Float1) -> None:
    if not tables or RANDOM in tables:
        raise SettingError(
            f"play_candidates: name at least one agent, and none {RANDOM!r}, which always plays; "
            f"got {list(tables)}."
        )
    if pays.ndim != 1 or not np.isfinite(pays).all():
        raise RewardError(
            f"play_candidates: reward must be finite, one a row, but its shape is {pays.shape} "
            f"and {int((~np.isfinite(pays)).sum())} of its values are not finite."
        )
    for name, table in tables.items():
        if table.ndim != 2 or len(table) != len(pays) or not np.isfinite(table).all():
            raise FeatureError(
                f"play_candidates: the features of {name!r} must be finite and ({len(pays)}, d), "
                f"one row a reward, but their shape is {table.shape} and "
                f"{int((~np.isfinite(table)).sum())} of their values are not finite."
            )
