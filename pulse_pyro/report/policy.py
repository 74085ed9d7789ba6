"""Sections about the confidence radius and about what the policies earned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.errors import SettingError
from pulse_pyro.report.page import Section
from pulse_pyro.report.panels import WIDTH, actions_over_time, learning_curves, regret_panels
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


def radius_sections(parts: Float2, *, outside: float | None = None) -> list[Section]:
    """Return what sqrt(gamma_t) is made of along a run.

    parts : (rounds, 3) of :func:`radius_parts` or ``Radius.split``. outside : share of the online
    contexts that lie outside the calibrated domain.
    """
    end = parts[-1]
    total = float(end.sum())
    ridge, noise, imputation = (float(piece) / total for piece in end)
    away = (
        ""
        if outside is None
        else (f" {outside:.1%} of the online contexts lie outside the calibrated domain.")
    )
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
            f"imputation {imputation:.0%}.{away}",
            None,
            gamma_split(parts, axis(None, WIDTH, 3.6)),
            f"Imputation makes {imputation:.0%} of the radius at the end, so {longer}.",
        )
    ]


def policy_sections(run: Run, about: str = "") -> list[Section]:
    """Return regret of both kinds, learning curves, and which actions were played when.

    about : who the agents are, in words of the study.
    """
    table = run.table
    gap = float(run.info_gap.mean())
    played = table[table["refused"] == 0]["regret_cond"].drop("cond_oracle", errors="ignore")
    best = f" Lowest regret_cond: {played.idxmin()}{_doubt(table, played)}." if len(played) else ""
    rounds = run.regret.shape[-1]
    return [
        Section(
            "Regret",
            f"{len(run.names)} agents over {rounds:,} rounds, {run.regret.shape[1]} runs, all with "
            "the same contexts and noise. regret compares with the best action given S and W, "
            "regret_cond with the best action given S alone. For policies that see only S "
            f"their difference is, on average, the information gap ({gap:.3g} here), which none of "
            f"them can avoid; for one that sees W it is not.{best}"
            + (f"\n\n{about}" if about else ""),
            table,
            regret_panels(run),
            "Lower is better, and a curve that flattens has learned; the lower panel is for "
            "policies that see only S, and means little for one that sees W and follows it.",
        ),
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
