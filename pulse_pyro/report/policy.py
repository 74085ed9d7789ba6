"""Sections about the confidence radius and about what the policies earned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.errors import SettingError
from pulse_pyro.report.page import Section
from pulse_pyro.report.panels import (
    WIDTH,
    actions_over_time,
    learning_curves,
    regret_panels,
    votes_over_time,
)
from pulse_pyro.report.plots import axis, gamma_split

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from pulse_pyro.envs.simulation import Agent, Run


def radius_parts(agent: Agent, run: Run) -> Float2:
    """Return (rounds, 3) ridge, noise and imputation parts of an agent's radius in the first run.

    Rounds the agent refused are left out.
    """
    if agent.name not in run.names:
        raise SettingError(f"radius_parts: there is no agent {agent.name!r} in the run.")
    action = run.action[run.names.index(agent.name)][0]
    steps = np.flatnonzero(action >= 0)
    at = (0, steps, action[steps])
    error = None if agent.error is None else agent.error[at]
    taught = agent.x if agent.taught is None else agent.taught
    return agent.radius.split(taught[at], error, agent.ridge)


def radius_sections(
    parts: Float2, *, outside: float | None = None, rests_on: str = "", benchmark: str = ""
) -> list[Section]:
    """Return what sqrt(gamma_t) is made of along a run.

    parts : (rounds, 3) of :func:`radius_parts` or ``Radius.split``. outside : share of the online
    contexts that lie outside the calibrated domain. rests_on, benchmark : what the rung it is made
    from is conditional on, and whom it compares a policy with, in words.
    """
    end = parts[-1]
    total = float(end.sum())
    ridge, noise, imputation = (float(piece) / total for piece in end)
    away = (
        ""
        if outside is None
        else (f" {outside:.1%} of the online contexts lie outside the calibrated domain.")
    )
    against = f" Regret is against {benchmark}." if benchmark else ""
    given = f" Conditional: it holds if {rests_on}." if rests_on else ""
    longer = (
        "more history would help more than more rounds"
        if imputation > noise
        else (
            "the noise of the rewards counts for more than the law's error: more history would "
            "help little"
        )
    )
    return [
        Section(
            "Radius",
            "How far theta may be from its estimate: sqrt(gamma_t), the radius of the confidence "
            "ball, in the first run. It is made of the ridge, the noise of the rewards, and the "
            "imputation error that D_t bounds, summed over rounds. After "
            f"{len(parts):,} rounds it is {total:.3g}: ridge {ridge:.0%}, noise {noise:.0%}, "
            f"imputation {imputation:.0%}.{away}{against}{given}",
            None,
            gamma_split(parts, axis(None, WIDTH, 3.6)),
            f"Imputation makes {imputation:.0%} of the radius at the end, so {longer}.",
        )
    ]


class Votes(NamedTuple):
    """What the votes of a committee's members counted, mean over runs.

    labels : k members. weights : (time, k).
    """

    labels: tuple[str, ...]
    weights: Float2


def guard_sections(run: Run) -> list[Section]:
    """Return what the guards of a run did; nothing where no agent has one.

    A guard's bound is told with whom it is against and what it is conditional on. Of a guard whose
    ball need not hold neither radius nor ball is told, but why.
    """
    if run.overruled is None or run.radius is None or run.held is None:
        return []
    import pandas as pd

    at = np.flatnonzero(np.isfinite(run.overruled).all(1))
    if not len(at):
        return []
    rows = []
    for i in at:
        bound = run.bounds[i]
        told = not bound.heuristic
        rows.append(
            {
                "agent": run.names[i],
                "overruled": float(run.overruled[i].mean()),
                "radius": float(run.radius[i].mean()) if told else math.nan,
                "held": float(run.held[i].mean()) if told else math.nan,
                "benchmark": bound.benchmark if told else "",
            }
        )
    table = pd.DataFrame(rows).set_index("agent").dropna(axis=1, how="all")
    if not table["benchmark"].any():
        table = table.drop(columns="benchmark")
    words = (
        "A guard plays what its advisor proposes as long as that arm cannot be shown to be worse "
        "than the guard's ball is wide. If the ball holds theta*, no round costs more than "
        "2 c r w, whoever advises: r is the radius, w the width of the arm played, c the "
        "slack, 3 by default; against the benchmark, the law's error comes on top where a "
        "calibration bounds it. That is c times a conservative bound. overruled is the share of "
        "rounds in which the guard did not follow its advisor"
    )
    words += ", radius the mean of r" if "radius" in table else ""
    words += (
        ", held the share of runs in which the ball held theta* in all rounds."
        if "held" in table
        else "."
    )
    for sentence in run.bound_sentences([run.names[i] for i in at]):
        words += f"\n\n{sentence}"
    if any(run.bounds[i].heuristic for i in at):
        words += (
            "\n\nA guard that is a heuristic only plays like its advisor; neither its radius nor a "
            "bound is told."
        )
    reading = "Near 0 the guard costs nothing; near 1 the ball plays, not the advisor."
    return [Section("Guards", words, table, None, reading)]


def committee_sections(votes: Votes | None) -> list[Section]:
    """Return whom a committee listened to, over time; nothing without one."""
    if votes is None:
        return []
    last = votes.weights[-1]
    order = np.argsort(-last, kind="stable")[:2]
    ends = " and ".join(f"{votes.labels[k]} {last[k]:.0%}" for k in order)
    return [
        Section(
            "Committee",
            "Members learn from every round, and each round they vote; a vote weighs by how well "
            "the member has predicted rewards so far, never more sharply than Bayes' rule. Mean "
            f"over runs. At the end: {ends}. Weights are measured, they guarantee nothing.",
            None,
            votes_over_time(*votes),
            "A member whose area grows predicts better; areas that stay alike mean that the "
            "choice between them matters little.",
        )
    ]


def policy_sections(
    run: Run,
    about: str = "",
    *,
    votes: Votes | None = None,
) -> list[Section]:
    """Return regret of both kinds, guards, learning curves, and which actions were played when.

    about : who the agents are, in words of the study. votes : of a committee.
    """
    table = run.table.drop(columns=["overruled", "benchmark"])  # told in words, and with the guards
    gap = float(run.info_gap.mean())
    played = table[table["refused"] == 0]["regret_cond"].drop("cond_oracle", errors="ignore")
    best = f" Lowest regret_cond: {played.idxmin()}{_doubt(table, played)}." if len(played) else ""
    rounds = run.regret.shape[-1]
    guards = run.table["overruled"].dropna().index
    alone = [name for name in run.names if name not in guards]
    bounds = " ".join(run.bound_sentences(alone))
    return [
        Section(
            "Regret",
            f"{len(run.names)} agents over {rounds:,} rounds, {run.regret.shape[1]} runs, all with "
            "the same contexts and noise. regret compares with the best action given S and W, "
            "regret_cond with the best action given S alone. For policies that see only S "
            f"their difference is, on average, the information gap ({gap:.3g} here), which none of "
            f"them can avoid; for one that sees W it is not.{best}"
            + "".join(f"\n\n{text}" for text in (about, bounds) if text),
            table,
            regret_panels(run),
            "Lower is better, and a curve that flattens has learned; the lower panel is for "
            "policies that see only S, and means little for one that sees W and follows it.",
        ),
        *guard_sections(run),
        *committee_sections(votes),
        Section(
            "Learning curve",
            "What a round costs on average, against the best action given S alone, as rounds go "
            "by.",
            None,
            learning_curves(run),
            "A curve that falls is learning; near zero it has found the best action that S allows.",
        ),
        Section(
            "Actions",
            "Which share of the runs played each action, over time.",
            None,
            actions_over_time(run),
            "Early exploration shows as shares that move; they settle when an agent has learned, "
            "at what the contexts call for.",
        ),
    ]


def _doubt(table: DataFrame, played: Series) -> str:
    """Say so where the lowest is no further from the next than their standard errors together."""
    if len(played) < 2:
        return ""
    first, second = played.nsmallest(2).index
    both = float(table["se_cond"][first] + table["se_cond"][second])
    if math.isnan(both):
        return " (not clearly: one run has no standard error)"
    near = float(played[second] - played[first]) <= both
    return " (not clearly: within the standard errors)" if near else ""
