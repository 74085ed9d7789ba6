"""Real contexts and residuals with effects that are known: what each action would have earned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Int, positive, whole
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.parallel import Engine
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity
from pulse_pyro.envs.replay import Replay, by_time
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.offpolicy.estimators import always, doubly_robust, greedy, ips, outcome_model, snips
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.value import Value, averaged, difference
from pulse_pyro.paper.case import (
    Case,
    Estimate,
    Estimates,
    RealCase,
    estimates_finding,
    judged_finding,
    setting_finding,
)
from pulse_pyro.paper.datasets import Dataset, line_per_arm, read_table, scale_of, utility_noise
from pulse_pyro.paper.judge import judge
from pulse_pyro.paper.replay_comparison import (
    HERE,
    Carrying,
    Comparison,
    Imputer,
    PlayRule,
    compare,
)
from pulse_pyro.radius import constant

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Effects:
    """Least squares of the reward on (1, z) and a (1, z), z the centred context, a = 0 or 1.

    Attributes
    ----------
    z : (n, 1 + p), a one first. base : (n,) fitted mean of action 0.
    effect : (1 + p,) of action 1 at the mean context, then how it changes with each column.
    residual : (n,) what the fit leaves of each recorded reward.

    The fit becomes the truth of a semi-synthetic world. Its effects are estimates: with a weak
    signal their spread is mostly noise of estimation, and so larger than the real one.
    """

    z: Float2
    base: Float1
    effect: Float1
    residual: Float1

    def utility(self, factor: float) -> Float2:
        """Return base + a (effect_0 + factor z' effect_1..p) + residual, (n, 2).

        The residual is the row's own and the same for both actions; with factor 1 the action that
        was taken is worth exactly its recorded reward. The mean effect is kept.
        """
        moved = np.concatenate([self.effect[:1], factor * self.effect[1:]])
        none = self.base + self.residual
        return np.column_stack([none, none + self.z @ moved])

    def gap(self, factor: float, seen: Bool) -> float:
        """Return how much the best policy that knows the effects loses by seeing few columns.

        seen : (p,) the columns it sees; it plays by the projection of the effect on a line in them.
        What no policy that leaves the other columns out can gain back.
        """
        none, sent = self.utility(factor).T
        effect = sent - none
        line = self.z[:, np.concatenate([[True], seen])]
        guess = line @ np.linalg.lstsq(line, effect, rcond=None)[0]
        return float((np.maximum(effect, 0.0) - effect * (guess > 0)).mean())


def fit_effects(logged: Logged) -> Effects:
    """Fit the reward of a log with two actions by least squares."""
    if logged.actions != 2:
        raise DataError(f"fit_effects: a log of two actions is needed, not {logged.actions}.")
    x = logged.context
    z = np.column_stack([np.ones(len(x)), x - x.mean(0)])
    design = np.column_stack([z, logged.action[:, None] * z])
    fitted, *_ = np.linalg.lstsq(design, logged.reward, rcond=None)
    base, effect = np.split(fitted, 2)
    return Effects(z, z @ base, effect, logged.reward - design @ fitted)


# HeartSteps V1: 37 people, five times a day a coin decides whether a phone suggests a walk.
#
#     S  time of day (sine and cosine), weekend; temperature, wind, chance of rain, clear or wet
#        sky,
#        whether weather is missing; whether the tracker recorded no steps before (pre_missing)
#     W  log(0.5 + steps of the 30 minutes before), place (home, work, unknown; else other),
#        activity
#        unknown (else still: people who walk or drive were not available)
#     a  0 nothing, 1 a suggestion (walking or anti-sedentary), drawn with probability 0.6
#     r  log(0.5 + steps of the 30 minutes after)
#
# Rows: decision points t < 210 (six weeks) at which the person was available and the coin was
# thrown.
#
# Missing values: weather that is missing (or -1, the service's mark for it) takes the mean of the
# rows that have it, and ``weather_missing`` says where the temperature is; a place that is missing
# is
# a place of its own, ``place_unknown``; steps the tracker did not record count as 0, before and
# after, as in the trial's own analysis. Kinds of suggestion are one action: their split was not by
# a
# fair coin.


WEATHER = ("temperature", "windspeed", "precip_chance")
S = ("hour_sin", "hour_cos", "weekend", *WEATHER, "clear", "wet", "weather_missing", "pre_missing")
W = ("log_pre30", "home", "work", "place_unknown", "activity_unknown")
NUMBERS = (
    "user",
    "t",
    "hour_local",
    "weekend",
    "avail",
    "action",
    "steps30",
    "pre30",
    "pre_missing",
    *WEATHER,
)
SEND = 0.6  # by design
HORIZON = 210  # decision points: six weeks, five a day
SOURCE = (
    "Klasnja et al. (2019), Annals of Behavioral Medicine 53(6), doi:10.1093/abm/kay067; "
    "github.com/klasnja/HeartStepsV1, CC BY 4.0"
)


@dataclass(frozen=True, eq=False)
class HeartSteps:
    """The micro-randomised log, and rounds made from it.

    Attributes
    ----------
    logged : context (n, p) = the columns S then W, binary action, reward, propensity, unit = user.
    time : (n,) decision point of each row.
    s_names, w_names : which columns are seen online, and which are not.
    """

    logged: Logged
    time: Int
    s_names: tuple[str, ...] = S
    w_names: tuple[str, ...] = W

    @property
    def is_s(self) -> Bool:
        """Which columns of the context are S, (p,)."""
        return np.isin(self.logged.names, self.s_names)

    @property
    def is_w(self) -> Bool:
        """Which columns of the context are W, (p,)."""
        return np.isin(self.logged.names, self.w_names)

    def history(self) -> History:
        """Return (S, W) of all people in original units; decision points left out are gaps."""
        import pandas as pd

        frame = pd.DataFrame(self.logged.context, columns=list(self.logged.names))
        keys = pd.DataFrame({"user": self.logged.unit, "t": self.time})
        return History.from_frame(
            keys.join(frame), unit="user", time="t", observed=self.s_names, missing=self.w_names
        )

    def dataset(self, factors: Sequence[float] = (1.0, 3.0), *, seed: int = 0) -> Dataset:
        """Return a semi-synthetic data set: half of the people archive, the others online.

        factors : one setting each, "effects x3" say; see :meth:`Effects.utility`. seed : of the
        split, ``History.split(0.5)``, the same for all settings.
        """
        if not len(factors):
            raise DataError("HeartSteps.dataset: at least one factor is needed.")
        effects, full = fit_effects(self.logged), self.history()
        archive, online = full.split(0.5, seed=seed)
        scale = scale_of(archive)
        near, far = scale(archive), scale(online)
        before, at = ([full.units.index(unit) for unit in part.units] for part in (near, far))
        replays, noise = {}, {}
        # padded to the longest: the archive's grid may be narrower than that of all people
        rows = slice(near.grid.seen.shape[1]), slice(far.grid.seen.shape[1])
        for factor in factors:
            value = effects.utility(positive(factor, "HeartSteps.dataset: factor", zero=True))
            utility, features = self._on_grid(value, full), line_per_arm(far, 2)
            name = f"effects x{factor:g}"
            replays[name] = Replay(far, utility[at][:, rows[1]], features)
            noise[name] = utility_noise(near, utility[before][:, rows[0]], features)
        about = (
            f"{len(near.units)} people as the archive, {len(far.units)} others online, chosen by "
            f"seed {seed}. S: time of day, weather, whether steps were recorded; W: steps before, "
            "place, activity; arms: nothing or a suggestion. Semi-synthetic: real contexts and "
            "residuals, a fitted mean whose send effects are multiplied; x1 is the fit itself, "
            "much of it noise of estimation."
        )
        return Dataset(
            name="heartsteps",
            about=about,
            source=SOURCE,
            archive=near,
            replays=replays,
            pieces=archive,
            scale=scale,
            reward_sd=noise,
        )

    def _on_grid(self, values: Float2, grid: History) -> Float3:
        """Put values of rows (n, k) where the history has them, (unit, time, k); else NaN."""
        rank = np.array([grid.units.index(str(unit)) for unit in self.logged.unit])
        out: Float3 = grid.on_grid(values[np.lexsort((self.time, rank))])
        return out


def load_heartsteps(folder: str | Path) -> HeartSteps:
    """Read ``decisions.csv`` of a folder; see the top of this module for what becomes of it."""
    table = read_table(folder, "decisions", (*NUMBERS, "location", "weather", "activity"))
    for name in NUMBERS:
        if table[name].dtype.kind not in "iuf":
            raise DataError(
                f"heartsteps: column {name!r} must be numeric, not {table[name].dtype}."
            )
    keys = table[["user", "t"]]
    if keys.isna().any(axis=None) or (keys % 1 != 0).any(axis=None):
        raise DataError("heartsteps: user and t must be whole numbers in every row.")
    kept = (table["t"] < HORIZON) & (table["avail"] == 1) & table["action"].notna()
    frame = table[kept].reset_index(drop=True)
    if frame["user"].nunique() < 2:
        raise DataError(
            f"heartsteps: of {len(table)} rows {len(frame)} have t < {HORIZON}, avail = 1 and an "
            "action; they must be of two users at least."
        )
    if frame.duplicated(["user", "t"]).any():
        raise DataError("heartsteps: a decision point (user, t) stands twice.")
    if not (
        (frame[["steps30", "pre30"]] >= 0).all(axis=None) and frame["action"].isin([0, 1, 2]).all()
    ):
        raise DataError("heartsteps: steps must be >= 0, and actions 0, 1 or 2.")
    made = _columns(frame)
    bad = [name for name in (*S, *W) if not np.isfinite(made[name]).all()]
    if bad:
        raise DataError(f"heartsteps: what {bad[0]!r} is made of is missing in some row.")
    sent = np.asarray(frame["action"] > 0, np.int64)
    logged = Logged(
        context=np.column_stack([made[name] for name in (*S, *W)]),
        action=sent,
        reward=np.log(frame["steps30"].to_numpy(np.float64) + 0.5),
        propensity=np.where(sent == 1, SEND, 1.0 - SEND),
        unit=frame["user"].to_numpy(np.int64),
        actions=2,
        names=(*S, *W),
    )
    return HeartSteps(logged, frame["t"].to_numpy(np.int64))


def _columns(frame: DataFrame) -> dict[str, Float1]:
    """Make every column of S and W, (n,) each."""
    angle = 2.0 * np.pi * frame["hour_local"] / 24.0
    made = {
        "hour_sin": np.sin(angle),
        "hour_cos": np.cos(angle),
        "weekend": frame["weekend"],
        "clear": frame["weather"] == "clear",
        "wet": frame["weather"].isin(["rain", "snow"]),
        "weather_missing": frame["temperature"].isna(),
        "pre_missing": frame["pre_missing"],
        "log_pre30": np.log(frame["pre30"] + 0.5),
        "home": frame["location"] == "home",
        "work": frame["location"] == "work",
        "place_unknown": frame["location"].isna() | (frame["location"] == "missing"),
        "activity_unknown": frame["activity"] == "unknown",
    }
    for name in WEATHER:
        known = frame[name]
        if name != "temperature":
            known = known.where(known >= 0)
        made[name] = known.fillna(known.mean())
    return {name: column.to_numpy(np.float64) for name, column in made.items()}


# HeartSteps: what seeing W is worth to a policy, and what it were if effects were larger.


PLAY_RULES = {
    "alpha 0.25": PlayRule(constant(0.25)),
    "in order of time": PlayRule(constant(0.25), by_time, everywhere=True),
}
CARRYING = Carrying(memory="level+ar")  # people differ, and what is left of a day lasts
NOW = Identity()  # rows at which people were not available are gaps: lags would lose most rounds
# No state_space: with the present row alone as its window, and S always seen, it is the linear law.
IMPUTERS = (
    Imputer("linear", linear_lags(NOW), fenced=True),
    Imputer("gp", gaussian_process(NOW, basis=8)),
    Imputer("neural", neural_density(NOW, components=3), anew=True, adaptive=True),
)
BOTH, SEEN = "S+W", "S"
DRAWS = 20  # of the folds
READING = (
    "Each line is the difference of two policies' values by one estimator, with its 95 % interval "
    "over people; it holds 0 where nothing shows."
)


def heartsteps_null(
    folder: str | Path, *, folds: int = 5, draws: int = DRAWS, seed: int = 0
) -> Estimates:
    """Value policies that see S, or S and W, on the log of the trial itself.

    folds : of whole people; policies and outcome models of each are learned on the others.
    draws : of the folds; estimates are averaged over them (``averaged``). seed : of the folds.

    Policies: send or not by the larger of two lines in S, or in (S, W); always; never. Intervals
    are over people. What is asked is whether S+W minus S is above 0. One draw of the folds is not
    enough to say: the intervals of some leave 0 out, below it, and the verdict counts how many hold
    it. The averaged interval is wider than most of one draw because it counts that spread too.
    """
    start = time.perf_counter()
    whole(draws, "heartsteps_null: draws", 1)
    data = load_heartsteps(folder)
    found: dict[tuple[str, str], list[Value]] = {}
    for k in range(draws):
        own = int(stream(seed, "folds", k).integers(2**31))
        for key, value in _once(data, folds, own).items():
            found.setdefault(key, []).append(value)
    lines = tuple(
        Estimate("trial", policy, how, averaged(values)) for (policy, how), values in found.items()
    )
    main = f"{BOTH} minus {SEEN}", "doubly robust"
    gain = next(each.value for each in lines if (each.policy, each.estimator) == main)
    about = (
        f"{data.logged.rows:,} decisions of {data.logged.units} people, send or not with "
        f"probability 0.6; reward log(steps of 30 minutes + 0.5); {folds} folds of people, drawn "
        f"{draws} times. Policies learned with more columns are also learned with more noise."
    )
    return Estimates(
        "heartsteps",
        _verdict(gain, found[main]),
        about,
        SOURCE,
        lines,
        time.perf_counter() - start,
    )


def heartsteps_case(
    folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE
) -> Case:
    """Ask the trial's log what seeing W is worth, then what it were with larger effects."""
    start = time.perf_counter()
    null = heartsteps_null(folder, seed=seed)
    dataset = load_heartsteps(folder).dataset(seed=seed)
    played = heartsteps_rounds(folder, runs=runs, seed=seed, engine=engine)
    judged = judge(dataset, IMPUTERS, seed=seed, engine=engine)
    findings = (
        estimates_finding(null, "What the trial itself says", READING),
        *(setting_finding(played, name, f"Semi-synthetic, {name}") for name in played.settings),
        judged_finding(judged, "D_t of steps, place and activity"),
    )
    about = f"{null.about}\n\n{dataset.about}"
    headline = null.verdict.split(" (se")[0]
    return Case("heartsteps", headline, about, SOURCE, findings, time.perf_counter() - start)


HEARTSTEPS = RealCase(
    "heartsteps_v1", heartsteps_case, lambda home: load_heartsteps(home).history()
)


def heartsteps_rounds(
    folder: str | Path,
    *,
    factors: Sequence[float] = (1.0, 3.0),
    runs: int = 10,
    seed: int = 0,
    engine: Engine = HERE,
) -> Comparison:
    """Compare agents on the semi-synthetic rounds; ``seed`` also draws who is in the archive."""
    dataset = load_heartsteps(folder).dataset(factors, seed=seed)
    return compare(
        dataset,
        IMPUTERS,
        NOW,
        play_rules=PLAY_RULES,
        carrying=CARRYING,
        runs=runs,
        seed=seed,
        engine=engine,
    )


def _once(data: HeartSteps, folds: int, seed: int) -> dict[tuple[str, str], Value]:
    """Return (policy, estimator) -> value, for one draw of the folds."""
    logged = data.logged
    q = outcome_model(logged, folds=folds, seed=seed)
    seen = outcome_model(logged, data.s_names, folds=folds, seed=seed)
    policies = {
        SEEN: greedy(seen),
        BOTH: greedy(q),
        "send always": always(logged, 1),
        "send never": always(logged, 0),
    }
    values = {name: _values(logged, policy, q) for name, policy in policies.items()}
    for one, two in ((BOTH, SEEN), ("send always", "send never")):
        values[f"{one} minus {two}"] = {
            how: difference(values[one][how], values[two][how]) for how in values[one]
        }
    hows = values[BOTH]
    return {(name, how): each[how] for how in hows for name, each in values.items()}


def _values(logged: Logged, policy: Float2, q: Float2) -> dict[str, Value]:
    return {
        "doubly robust": doubly_robust(logged, policy, q),
        "snips": snips(logged, policy),
        "ips": ips(logged, policy),
    }


def _verdict(gain: Value, draws: Sequence[Value]) -> str:
    if gain.low > 0:
        what = "seeing W pays"
    elif gain.high < 0:
        what = "seeing W costs: more columns, more noise, no signal"
    else:
        what = "no gain from seeing W shows"
    each = [value.estimate for value in draws]
    return (
        f"heartsteps: {what}; S+W minus S is {gain.estimate:+.3f}, {gain.level:.0%} interval "
        f"{gain.low:+.3f} to {gain.high:+.3f} (se {gain.se:.3f} over {gain.units} people); over "
        f"{len(draws)} draws of folds it runs from {min(each):+.3f} to {max(each):+.3f}, and "
        f"{sum(value.holds(0.0) for value in draws)} of their own intervals hold 0."
    )
