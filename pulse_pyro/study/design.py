"""Which policy should this trial run? Candidates side by side in environments from the archive."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float1, Float2, Float3, positive, whole
from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.errors import DataError, ModelError, PulseError, SettingError, nearest
from pulse_pyro._core.files import write_whole
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro._core.parallel import Local, in_order
from pulse_pyro._core.progress import bar
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import UnfittedLaw, picture
from pulse_pyro.calibration.recipe import Recipe, fit_law
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.envs import POLICIES
from pulse_pyro.envs.simulation import Agent, Team
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features
from pulse_pyro.radius import matched_ridge
from pulse_pyro.report.page import Section, write_report
from pulse_pyro.study.rehearsal import (
    CEILING,
    Candidate,
    Pilot,
    Rehearsal,
    Rehearsed,
    constant_name,
    constants,
    fenced,
    on_trust,
    rehearse,
)
from pulse_pyro.study.scenarios import (
    SCENARIOS,
    Scenario,
    TrialRows,
    Truths,
    moved_contexts,
    trial_rows,
)
from pulse_pyro.study.workspace import Workspace, open_workspace, stage_status, title_of
from pulse_pyro.study.worlds import MOST, Reward, StudyPolicies, UnseenContext, usable_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

NEGLIGIBLE = 0.01  # of what playing at random costs: differences below it count as none
RUNS = 64  # of each environment
TIED = 2.0  # paired standard errors
CONTRADICTED = 0.05  # share of a pilot's posterior beyond theta_bound that is worth a note
RESAMPLED = 400  # bootstrap samples of the runs
ROOM = 3  # times as many held-out rows as rounds are kept: runs differ in their units
SCOPE = (
    "All of it is simulated from the archive: nothing is said of a world that differs from it in "
    "other ways than those tried."
)


@dataclass(frozen=True)
class DesignSettings:
    """How candidates are compared; the defaults take about a minute on two cores.

    Attributes
    ----------
    candidates : names of ``envs.POLICIES``; None: all of them. The one that sees W plays as a
        ceiling and is never recommended.
    constants : radii of further candidates on the expected features, as multiples of sigma.
    scenarios : the environments.
    runs : of each, with units, theta*, W and noise of their own.
    recipe : how the law is fitted and calibrated. workers : processes; None: all cores.
    """

    candidates: tuple[str, ...] | None = None
    constants: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    scenarios: tuple[Scenario, ...] = SCENARIOS
    runs: int = RUNS
    recipe: Recipe = field(default_factory=Recipe)
    workers: int | None = None

    def __post_init__(self) -> None:
        for name in self.candidates or ():
            if name not in POLICIES:
                raise SettingError(
                    f"design: there is no candidate {name!r}{nearest(name, POLICIES)}"
                )
        for share in self.constants:
            positive(share, "design: constants")
        if not self.constants and not [n for n in self.names if n != CEILING]:
            raise SettingError("design: at least one candidate is needed that does not see W.")
        if not self.scenarios:
            raise SettingError("design: at least one environment is needed; see SCENARIOS.")
        whole(self.runs, "design: runs", 2)
        if self.workers is not None:
            whole(self.workers, "design: workers", 1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of ``envs.POLICIES``."""
        return tuple(POLICIES) if self.candidates is None else tuple(dict.fromkeys(self.candidates))


# What was found.


@dataclass(frozen=True, eq=False)
class Design:
    """How candidates fared in environments made from an archive; k candidates, m environments.

    Attributes
    ----------
    candidates, scenarios : in the order of the arrays.
    regret, regret_cond : (k, m, run) mean a round, against the best arm given S and W and against
        the best policy on S; NaN where a candidate could not play.
    tenth : (k, m) mean regret a round in the worst tenth of units.
    arms : (k, m, action) share of rounds. overruled : (k, m) by a guard; NaN without one.
    random : (m, run) what playing at random costs a round, in the regret the environment is judged
        by. info_gap : (m, run) regret a round that no policy on S can avoid.
    stakes, rounds, seed, law_id : what was played for, how long, from where, with which law.
    notes : what went otherwise than meant. left_out : what, and why.

    It is a comparison by simulation: W, theta* and noise are made up. NOT covered: a world that
    differs from the archive in other ways than those tried, and rewards that are not linear in Phi.
    """

    candidates: tuple[Candidate, ...]
    scenarios: tuple[Scenario, ...]
    regret: Float3
    regret_cond: Float3
    tenth: Float2
    arms: Float3
    overruled: Float2
    random: Float2
    info_gap: Float2
    stakes: Stakes
    rounds: int
    seed: int
    law_id: str
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return tuple(candidate.name for candidate in self.candidates)

    @property
    def rivals(self) -> list[int]:
        """Which candidates may be recommended: they do not see W, and played everywhere."""
        whole_rows = np.asarray(np.isfinite(self.regret).all((1, 2)))
        return [i for i, each in enumerate(self.candidates) if not each.ceiling and whole_rows[i]]

    @cached_property
    def judged(self) -> Float3:
        """(k, m, run) the regret a round each environment is judged by."""
        full = np.array([scenario.judged_by == "regret" for scenario in self.scenarios])
        return np.where(full[:, None], self.regret, self.regret_cond)

    def _ratio(self, judged: Float3, random: Float2) -> Float2:
        """Regret beside that of the best candidate there, (k, m); see :attr:`ratio`."""
        sees_w = np.array([each.ceiling for each in self.candidates])
        mean = np.where(sees_w[:, None], np.nan, judged.mean(2) + NEGLIGIBLE * random.mean(1))
        return np.asarray(mean / np.nanmin(mean, axis=0))

    @cached_property
    def ratio(self) -> Float2:
        """(k, m) regret divided by that of the best candidate in the same environment.

        NaN where it did not play, and for the one that sees W. A hundredth of what playing at
        random costs is added to both, so that differences nobody would notice do not decide.
        """
        return self._ratio(self.judged, self.random)

    @cached_property
    def worst(self) -> Float1:
        """(k,) largest ratio over the environments; NaN for those that cannot be recommended."""
        out = np.full(len(self.candidates), np.nan)
        out[self.rivals] = self.ratio[self.rivals].max(1)
        return out

    @cached_property
    def _resampled(self) -> Float2:
        """(sample, k) the same in samples of the runs, all candidates and environments alike."""
        rng = stream(self.seed, "design", "bootstrap")
        runs = self.regret.shape[2]
        out = np.full((RESAMPLED, len(self.candidates)), np.nan)
        for sample in out:
            at = rng.integers(runs, size=runs)
            ratio = self._ratio(self.judged[..., at], self.random[:, at])
            sample[self.rivals] = ratio[self.rivals].max(1)
        return out

    def apart(self, i: int, j: int) -> float:
        """Return the paired standard error of the difference of two worst ratios."""
        return float((self._resampled[:, i] - self._resampled[:, j]).std(ddof=1))

    @cached_property
    def chosen(self) -> tuple[int, int] | None:
        """The candidate recommended, and the one of smallest worst ratio; None if none can be.

        Smallest worst ratio; of those within two paired standard errors of it one that carries a
        guarantee, if there is one.
        """
        if not self.rivals:
            return None
        first = min(self.rivals, key=lambda i: float(self.worst[i]))
        tied = [
            i
            for i in self.rivals
            if self.worst[i] - self.worst[first] <= TIED * self.apart(i, first)
        ]
        return min(
            tied, key=lambda i: (not self.candidates[i].guaranteed, float(self.worst[i]))
        ), first

    @property
    def recommended(self) -> str | None:
        """Name of the candidate."""
        return None if self.chosen is None else self.names[self.chosen[0]]

    @property
    def recommendation(self) -> str:
        """Which candidate, by which figures, and what they do not cover."""
        if self.chosen is None:
            return "No candidate can be recommended: none played in every environment. " + SCOPE
        i, first = self.chosen
        where = self.scenarios[int(self.ratio[i].argmax())].name
        count = len(self.scenarios)
        out = (
            f"Play {self.names[i]}: its regret is at most {self.worst[i]:.2f} times that of the "
            f"best candidate in each of {count} environments (worst: {where})."
        )
        if i != first:
            out += (
                f" {self.names[first]} has {self.worst[first]:.2f}, no more than two paired "
                f"standard errors of {self.apart(i, first):.2g} apart, but carries no guarantee."
            )
        elif len(self.rivals) > 1:
            second = sorted(self.rivals, key=lambda j: float(self.worst[j]))[1]
            gap, se = self.worst[second] - self.worst[i], self.apart(second, i)
            near = ", which is no clear difference" if gap <= TIED * se else ""
            out += f" Next comes {self.names[second]} with {self.worst[second]:.2f}{near}."
        return f"{out} {self._standing(i)} {SCOPE}"

    def _standing(self, i: int) -> str:
        each = self.candidates[i]
        if each.guaranteed:
            rests = each.rests_on or "sigma and theta_bound"
            return f"It plays inside a ball and carries its guarantee, conditional on: {rests}."
        if each.fenced:
            return f"Its ball is a heuristic here: {each.doubt}."
        if each.tuned:
            return "It was tuned by simulation, and nothing guarantees it."
        return "It is measured, not guaranteed."

    @property
    def ranking(self) -> DataFrame:
        """One line per candidate, best first: worst and mean ratio, where, what stands behind."""
        import pandas as pd

        rows = []
        for i, each in enumerate(self.candidates):
            known = np.isfinite(self.ratio[i])
            at = int(np.nanargmax(self.ratio[i])) if known.any() else 0
            rows.append(
                {
                    "candidate": each.name,
                    "worst ratio": self.worst[i],
                    "mean ratio": float(self.ratio[i][known].mean()) if known.any() else np.nan,
                    "worst in": self.scenarios[at].name if known.any() else "",
                    "regret a round": float(np.nanmean(self.judged[i, 0])) if known[0] else np.nan,
                    "standing": each.standing
                    if each.ceiling or i in self.rivals
                    else "did not play everywhere",
                }
            )
        table = pd.DataFrame(rows).set_index("candidate")
        return table.sort_values(["worst ratio", "mean ratio"], na_position="last")

    @property
    def ratios(self) -> DataFrame:
        """Ratio of each candidate, best first, in each environment."""
        import pandas as pd

        table = pd.DataFrame(
            self.ratio,
            index=pd.Index(self.names, name="candidate"),
            columns=[scenario.name for scenario in self.scenarios],
        )
        inside = [each.name for each in self.candidates if not each.ceiling]
        return table.loc[[name for name in self.ranking.index if name in inside]]

    @property
    def table(self) -> DataFrame:
        """One line per candidate and environment, figures a round."""
        import pandas as pd

        runs = self.regret.shape[2]
        rows = []
        for j, scenario in enumerate(self.scenarios):
            for i, name in enumerate(self.names):
                if not np.isfinite(self.regret[i, j]).all():
                    continue
                cond, full = self.regret_cond[i, j], self.regret[i, j]
                rows.append(
                    {
                        "environment": scenario.name,
                        "candidate": name,
                        "regret_cond": cond.mean(),
                        "se_cond": cond.std(ddof=1) / math.sqrt(runs),
                        "regret": full.mean(),
                        "se": full.std(ddof=1) / math.sqrt(runs),
                        "worst tenth": self.tenth[i, j],
                        "ratio": self.ratio[i, j],
                    }
                    | {f"arm {a}": share for a, share in enumerate(self.arms[i, j])}
                    | {"overruled": self.overruled[i, j]}
                )
        return pd.DataFrame(rows)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ratio of every candidate in every environment."""
        return picture("ratio_table")(self.ratios, self.recommended, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "recommendation": self.recommendation,
            "recommended": self.recommended,
            "rounds": self.rounds,
            "runs": self.regret.shape[2],
            "stakes": asdict(self.stakes),
            "law_id": self.law_id,
            "seed": self.seed,
            "ranking": records(self.ranking),
            "candidates": [asdict(each) for each in self.candidates],
            "environments": [
                asdict(each) | {"judged_by": each.judged_by, "info_gap": float(gap.mean())}
                for each, gap in zip(self.scenarios, self.info_gap, strict=True)
            ],
            "table": records(self.table),
            "notes": list(self.notes),
            "left_out": list(self.left_out),
        }

    def __repr__(self) -> str:
        shown = self.ranking.head(8)[["worst ratio", "mean ratio", "worst in", "standing"]]
        runs = self.regret.shape[2]
        lines = [
            f"Design: {self.recommendation}",
            f"  {runs} runs of {self.rounds:,} rounds an environment; ratios to the best there",
            shown.to_string(float_format="{:.2f}".format),
        ]
        lines += [f"  note: {note}" for note in self.notes[:3]]
        lines += [f"  left out: {why}" for why in self.left_out[:4]]
        more = len(self.left_out) - 4
        return "\n".join(lines + ([f"  and {more} more left out"] if more > 0 else []))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(repr(self))}</pre>{self.ratios.to_html(float_format='{:.2f}'.format)}"


def pack_design(design: Design) -> Packed:
    """Write a design as plain values and arrays; see ``save``."""
    return pack_value(design, (Design, Candidate, Scenario, Stakes))


def unpack_design(packed: Packed, law: object = None, features: object = None) -> Design:
    """Make a design anew."""
    found = unpack_value(packed, Design, (Design, Candidate, Scenario, Stakes))
    shape = (len(found.candidates), len(found.scenarios))
    if found.regret.shape[:2] != shape or found.regret_cond.shape != found.regret.shape:
        raise ValueError(f"regrets are not all {shape} and runs")
    return found


# How it is found.


def design(
    history: History,
    law: UnfittedLaw,
    features: Features,
    *,
    stakes: Stakes,
    settings: DesignSettings | None = None,
    pilot: tuple[ArrayLike, ArrayLike] | None = None,
    seed: int,
) -> Design:
    """Play candidates in environments made from an archive, and say which one to run.

    Parameters
    ----------
    history : the archive. law : of W, not fitted; it is fitted on a share of the units.
    features : Phi. stakes : horizon, sigma, theta_bound and reward_sd, taken on trust.
    settings : candidates, environments, runs; ``DesignSettings()`` by default.
    pilot : (x (n, d), reward (n,)), features of rounds that were played before and what they
        paid: theta* is then drawn from their ridge posterior instead of from the sphere of radius
        theta_bound.
    seed : of everything.

    Real are the contexts S of held-out units, each in its own order of time. Made up are W, theta*
    and noise; see ``study.scenarios`` for the environments. All candidates meet the same rounds.
    The one recommended minimises the largest ratio, over environments, of its regret to that of the
    best candidate there; of those within two paired standard errors (bootstrap over runs) one that
    carries a guarantee is preferred. A constant that is recommended was tuned by simulation.

    NOT covered: a world unlike the archive in other ways than those tried; rewards that are not
    linear in Phi; a sigma that is wrong; horizons beyond the held-out rows (``Design.rounds`` says
    how many were played). Standard errors are those of finitely many runs, not of the archive.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> phi = pp.terms(["1", "s", "w", "w*a"], 2, observed=["s"], missing=["w"])
    >>> few = pp.study.DesignSettings(("pulse", "oful"), runs=4, workers=1)
    >>> stakes = pp.calibration.Stakes(horizon=200, sigma=0.3)
    >>> found = design(history, pp.linear_lags(19), phi, stakes=stakes, settings=few, seed=0)
    >>> found.names[:2], found.recommended in found.names
    (('pulse', 'oful'), True)
    """
    _expect(history, law, features, stakes)
    how = settings or DesignSettings()
    archive, held_out = history.split(how.recipe.fit, seed=seed)
    fitted = fit_law(law, archive, how.recipe.inference, seed)
    calibration = how.recipe.bound(fitted, history, held_out, features, seed=seed)
    policies = StudyPolicies(
        names=how.names,
        law=fitted,
        archive=archive,
        calibration=calibration,
        stakes=stakes,
        seed=seed,
    )
    truths = Truths(fitted, law, how.recipe.inference, held_out, features, seed)
    before = None if pilot is None else pilot_posterior(*pilot, stakes=stakes, features=features)
    return compare_candidates(policies, truths, how, before)


def design_study(path: str | Path, *, runs: int = RUNS, workers: int | None = None) -> Design:
    """Compare the policies of a study file, see :func:`design`; needs [features] and [policy].

    runs, workers : as in :class:`DesignSettings`.

    A fitted law and a calibration that are up to date in its results folder are used; others are
    made anew, and nothing is written. [policy] agents are the candidates, all by default; with
    [policy] reward and action, columns of the archive, theta* is drawn from what they tell.
    """
    work = open_workspace(path)
    study = work.study
    stakes = study.stakes()  # refused before the data are read, not after
    features = work.features
    how = DesignSettings(
        candidates=study.agents(),
        runs=runs,
        recipe=study.recipe,
        workers=workers,
    )
    archive, held_out = work.parts
    fitted, calibration = _known(work)
    policies = StudyPolicies(
        names=how.names,
        law=fitted,
        archive=archive,
        calibration=calibration,
        stakes=stakes,
        seed=study.seed,
    )
    truths = Truths(fitted, work.law, study.inference, held_out, features, study.seed)
    found = study.pilot(features)
    before = None if found is None else pilot_posterior(*found, stakes=stakes, features=features)
    return compare_candidates(policies, truths, how, before)


def _known(work: Workspace) -> tuple[Any, Any]:
    """Return the fitted law and its calibration, stored or made anew."""
    if not any(stage_status(work, stage).why for stage in ("fit", "calibrate")):
        return work.fitted, work.calibration
    study, (archive, held_out) = work.study, work.parts
    fitted = fit_law(work.law, archive, study.inference, study.seed)
    return fitted, study.recipe.bound(
        fitted, work.history, held_out, work.features, seed=study.seed
    )


def pilot_posterior(
    x: ArrayLike, reward: ArrayLike, *, stakes: Stakes, features: Features
) -> Pilot:
    """Return what rewards of a pilot say of theta*: the ridge posterior.

    x : (n, d) features of the rounds, at the arms that were played; reward : (n,). The prior is
    N(0, S^2 / d), the noise that of the residuals, or sigma where there are no more rows than
    features. NOT covered: rows of one unit that depend on each other make it too sure.
    """
    rows, paid = np.asarray(x, np.float64), np.asarray(reward, np.float64)
    d = len(features.names)
    if rows.ndim != 2 or rows.shape[1] != d or paid.shape != (len(rows),):
        raise DataError(
            f"design: pilot must be (x (n, {d}), reward (n,)), but their shapes are {rows.shape} "
            f"and {paid.shape}."
        )
    seen = np.isfinite(rows).all(1) & np.isfinite(paid)
    if not seen.any():
        raise DataError(f"design: none of {len(rows)} pilot rows has its features and its reward.")
    rows, paid = rows[seen], paid[seen]
    ridge = matched_ridge(sigma=stakes.sigma, theta_bound=stakes.theta_bound, dim=d)
    precision = rows.T @ rows + ridge * np.eye(d)
    centre = np.asarray(np.linalg.solve(precision, rows.T @ paid), np.float64)
    left = paid - rows @ centre
    noise = math.sqrt(float(left @ left) / (len(left) - d)) if len(left) > 2 * d else stakes.sigma
    return Pilot(centre, noise * np.linalg.inv(np.linalg.cholesky(precision)).T)


def compare_candidates(
    policies: StudyPolicies, truths: Truths, how: DesignSettings, pilot: Pilot | None
) -> Design:
    """Play every candidate in every environment; see :func:`design`."""
    stakes = policies.stakes
    positive(stakes.sigma, "design: sigma")
    usable = usable_rows(policies.law, truths.held_out)
    rounds = min(stakes.horizon, MOST, int(usable.sum()))
    units = _enough(truths.held_out, usable, rounds, policies.seed)
    notes: list[str] = []
    left_out: list[str] = []
    jobs = _jobs(
        policies, truths, how, pilot, units=units, rounds=rounds, notes=notes, left_out=left_out
    )
    if not jobs:
        raise DataError(f"design: no environment can be made from the archive: {left_out[0]}")
    workers = how.workers or os.cpu_count() or 1
    engine = Local(min(workers, len(jobs)))
    played = list(bar(in_order(rehearse, jobs, engine), label="environments", total=len(jobs)))
    candidates = _candidates(policies, truths, how, jobs)
    notes = _short(stakes, rounds, int(usable.sum())) + _long(stakes, pilot, policies.seed) + notes
    return _gathered(policies, candidates, jobs, played, notes, left_out)


def _enough(history: History, usable: Any, rounds: int, seed: int) -> History:
    """Return units at random with some times as many usable rows as there are rounds."""
    count = np.bincount(history.unit_of[usable], minlength=len(history.units))
    order = stream(seed, "design", "contexts").permutation(len(history.units))
    order = order[count[order] > 0]
    needed = int(np.searchsorted(np.cumsum(count[order]), ROOM * rounds)) + 1
    return history.take(np.sort(order[:needed]))


def _jobs(
    policies: StudyPolicies,
    truths: Truths,
    how: DesignSettings,
    pilot: Pilot | None,
    *,
    units: History,
    rounds: int,
    notes: list[str],
    left_out: list[str],
) -> list[Rehearsal]:
    """Make the environments that can be made, and the candidates' features in each."""
    agents: dict[tuple[float, float], dict[str, list[Agent | Team]]] = {}
    unseen: dict[object, tuple[tuple[UnseenContext, ...], ...]] = {}
    jobs = []
    for scenario in bar(how.scenarios, label="contexts"):
        place = (scenario.spread, scenario.shift)
        whose = (scenario.law, scenario.memory, *place)
        try:
            moved = moved_contexts(units, scenario)
            rows = trial_rows(moved, usable_rows(policies.law, moved))
            if whose not in unseen:
                unseen[whose] = truths.unseen(scenario, rows.blocks, how.runs)
            if place not in agents:
                agents[place] = _agents(policies, how, rows, unseen[whose][0], notes)
        except PulseError as refusal:
            left_out.append(f"{scenario.name!r}: {refusal}")
            continue
        jobs.append(
            Rehearsal(
                scenario=scenario,
                rows=rows,
                unseen=unseen[whose],
                agents=agents[place],
                reward=Reward(policies.stakes, policies.stakes.reward_sd),
                pilot=pilot,
                ceiling=CEILING in how.names,
                rounds=rounds,
                runs=how.runs,
                seed=policies.seed,
            )
        )
    return jobs


def _agents(
    policies: StudyPolicies,
    how: DesignSettings,
    rows: TrialRows,
    unseen: Sequence[UnseenContext],
    notes: list[str],
) -> dict[str, list[Agent | Team]]:
    """Return candidate -> its agent on each block of contexts.

    Fair policies see S alone, so one set of features serves every run on these contexts; the W they
    are handed here is a draw of its own that is never played.
    """
    made = []
    for block, one in zip(rows.blocks, unseen, strict=True):
        full = one.draw(stream(policies.seed, "design", "never played"))
        d = full.phi.shape[-1]
        world = World(
            s=full.s,
            w=full.w,
            phi=full.phi,
            phibar=full.phibar,
            theta=np.zeros(d),
            noise=np.zeros(block.row.shape),
            features=one.features,
            lead=0,
        )
        made.append(policies.agents(world, notes) | constants(policies, world, how.constants))
    names = [name for name in made[0] if name != CEILING]
    return {
        name: [agents[name] for agents in made]
        for name in names
        if all(name in agents for agents in made)
    }


def _short(stakes: Stakes, rounds: int, rows: int) -> list[str]:
    if rounds == stakes.horizon:
        return []
    return [
        f"a horizon of {stakes.horizon:,} rounds was asked for, {rounds:,} were played: "
        f"{rows:,} held-out rows can be, and never more than {MOST:,}."
    ]


def _long(stakes: Stakes, pilot: Pilot | None, seed: int) -> list[str]:
    """Say so where a pilot contradicts theta_bound, which every ball rests on."""
    if pilot is None:
        return []
    rng = stream(seed, "design", "pilot")
    size = np.linalg.norm([pilot.draw(rng) for _ in range(200)], axis=1)
    share = float((size > stakes.theta_bound).mean())
    if share <= CONTRADICTED:
        return []
    return [
        f"{share:.0%} of what the pilot says of theta* is longer than theta_bound = "
        f"{stakes.theta_bound:g}; {np.quantile(size, 0.95):.2g} would hold 95 %."
    ]


def _gathered(
    policies: StudyPolicies,
    candidates: tuple[Candidate, ...],
    jobs: Sequence[Rehearsal],
    played: Sequence[Rehearsed],
    notes: Sequence[str],
    left_out: Sequence[str],
) -> Design:
    names = [each.name for each in candidates]
    k, m, runs = len(names), len(jobs), jobs[0].runs
    regret, cond = np.full((2, k, m, runs), np.nan)
    tenth, overruled = np.full((2, k, m), np.nan)
    arms = np.full((k, m, played[0].arms.shape[1]), np.nan)
    absent: dict[tuple[str, str], list[str]] = {}
    for j, found in enumerate(played):
        at = [names.index(name) for name in found.names]
        regret[at, j], cond[at, j] = found.regret, found.regret_cond
        tenth[at, j], arms[at, j], overruled[at, j] = found.tenth, found.arms, found.overruled
        for name, count in found.refused.items():
            cause = "takes rewards in order only" if count < 0 else f"refused {count:,} rounds"
            absent.setdefault((name, cause), []).append(repr(jobs[j].scenario.name))
    full = [job.scenario.judged_by == "regret" for job in jobs]
    random = [each.random if f else each.random_cond for each, f in zip(played, full, strict=True)]
    missing = [f"{name} in {', '.join(at)}: {cause}." for (name, cause), at in absent.items()]
    return Design(
        candidates=candidates,
        scenarios=tuple(job.scenario for job in jobs),
        regret=regret,
        regret_cond=cond,
        tenth=tenth,
        arms=arms,
        overruled=overruled,
        random=np.stack(random),
        info_gap=np.stack([found.info_gap for found in played]),
        stakes=policies.stakes,
        rounds=jobs[0].rounds,
        seed=policies.seed,
        law_id=policies.law.id,
        notes=tuple(notes),
        left_out=(*left_out, *missing),
    )


def _candidates(
    policies: StudyPolicies, truths: Truths, how: DesignSettings, jobs: Sequence[Rehearsal]
) -> tuple[Candidate, ...]:
    """Describe everyone who plays somewhere, in the order of the registry."""
    first = {name: agents[0] for job in reversed(jobs) for name, agents in job.agents.items()}
    tuned = {constant_name(share): share * policies.stakes.sigma for share in how.constants}
    lasting = (
        ""
        if truths.memory is None
        else "what the law leaves of W has memory, no ball is valid then"
    )
    out = []
    for name in (*how.names, *tuned):
        if name == CEILING:
            out.append(Candidate(name, _about(name), ceiling=True))
        elif name in tuned:
            about = f"PULSE with pp.constant({tuned[name]:.3g}) and the ridge d (sigma / S)^2."
            out.append(Candidate(name, about, tuned=True))
        elif name in first:
            rests, doubt = on_trust(first[name], policies.calibration)
            out.append(
                Candidate(
                    name,
                    _about(name),
                    fenced=fenced(first[name]),
                    rests_on=rests,
                    doubt="; ".join(filter(None, (doubt, lasting))) if fenced(first[name]) else "",
                )
            )
    return tuple(out)


def _about(name: str) -> str:
    """First sentence of what makes a policy."""
    return (named(POLICIES, name).__doc__ or "").strip().split("\n")[0]


def _expect(history: object, law: object, features: object, stakes: object) -> None:
    if not isinstance(history, History):
        raise DataError(f"design: a History was expected, but got {type(history).__name__}.")
    if not isinstance(law, UnfittedLaw):
        raise ModelError(
            f"design: a law that can be fitted again was expected, but got {type(law).__name__}; "
            "pass the law itself, e.g. linear_lags(19)."
        )
    if not isinstance(features, Features):
        raise SettingError(
            f"design: Features(fn, actions, names) expected, but got {type(features).__name__}."
        )
    if not isinstance(stakes, Stakes):
        raise SettingError(
            f"design: stakes must be Stakes(horizon=..., sigma=..., theta_bound=...), but got "
            f"{type(stakes).__name__}."
        )


# What is written.


def write_design(found: Design, folder: str | Path, path: str | Path) -> Path:
    """Write design.json and the page design.html of a study file to a folder; return the page."""
    out = Path(folder)
    write_whole(out / "design.json", to_json(found.to_json()))
    title = f"Which policy? {title_of(Path(path))}"
    return write_report(out / "design.html", title, found.recommendation, design_sections(found))


def design_sections(found: Design) -> list[Section]:
    """Return the picture, the ranking, who played where, and all figures."""
    import pandas as pd

    runs, stakes = found.regret.shape[2], found.stakes
    who = pd.DataFrame(
        [(each.name, each.about, each.standing, each.rests_on) for each in found.candidates],
        columns=["candidate", "what it does", "standing", "its ball rests on"],
    )
    where = pd.DataFrame(
        {
            "environment": [each.name for each in found.scenarios],
            "judged by": [each.judged_by for each in found.scenarios],
            "at random costs": found.random.mean(1),
            "info_gap": found.info_gap.mean(1),
        }
    )
    for i, each in enumerate(found.candidates):
        if each.ceiling:
            where[f"regret of {each.name}"] = found.regret[i].mean(1)
    left = "".join(f"\n\nLeft out: {why}" for why in found.left_out)
    notes = "".join(f"\n\nNote: {note}" for note in found.notes)
    return [
        Section(
            "Ranking",
            f"{runs} runs of {found.rounds:,} rounds in each environment, the same ones for every "
            f"candidate; sigma {stakes.sigma:.3g}, theta_bound {stakes.theta_bound:g}. A ratio is "
            "a candidate's regret divided by that of the best candidate in the same environment, a "
            "hundredth of what playing at random costs added to both. The smallest worst ratio "
            "wins; a constant that wins was tuned by simulation." + notes + left,
            found.ranking,
            found.plot(),
            "1.0 is the best candidate of that environment; the darker, the more it loses beside "
            "it. The top line is the worst of each column, by which the choice is made.",
        ),
        Section("Candidates", "Who played.", who),
        Section(
            "Environments",
            "Contexts S are those of held-out units; W, theta* and noise are made up. Judged by "
            "regret_cond, against the best policy on S, and by regret where earlier rewards tell "
            "of W. Figures are a round's. Where effects are twice as large, theta* is longer than "
            "theta_bound says, and no ball is valid. A policy that sees W is shown for comparison: "
            "none of the candidates can.",
            where,
        ),
        Section(
            "All figures",
            "Mean regret a round of both kinds with standard errors over runs, the mean of the "
            "tenth of units that fare worst, the share of rounds at each arm and of those in which "
            "a guard overruled its advisor.",
            found.table,
        ),
    ]
