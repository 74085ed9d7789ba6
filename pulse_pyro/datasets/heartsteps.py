"""HeartSteps V1: 37 people, five times a day a coin decides whether a phone suggests a walk.

    S  time of day (sine and cosine), weekend; temperature, wind, chance of rain, clear or wet sky,
       whether weather is missing; whether the tracker recorded no steps before (pre_missing)
    W  log(0.5 + steps of the 30 minutes before), place (home, work, unknown; else other), activity
       unknown (else still: people who walk or drive were not available)
    a  0 nothing, 1 a suggestion (walking or anti-sedentary), drawn with probability 0.6
    r  log(0.5 + steps of the 30 minutes after)

Rows: decision points t < 210 (six weeks) at which the person was available and the coin was thrown.

Missing values: weather that is missing (or -1, the service's mark for it) takes the mean of the
rows that have it, and ``weather_missing`` says where the temperature is; a place that is missing is
a place of its own, ``place_unknown``; steps the tracker did not record count as 0, before and
after, as in the trial's own analysis. Kinds of suggestion are one action: their split was not by a
fair coin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float2, Float3, Int, positive
from pulse_pyro.datasets.arms import line_per_arm
from pulse_pyro.datasets.dataset import Dataset, read_table, scale_of
from pulse_pyro.datasets.effects import fit_effects
from pulse_pyro.environments.replay import Replay
from pulse_pyro.errors import DataError
from pulse_pyro.history import History
from pulse_pyro.offpolicy.logged import Logged

if TYPE_CHECKING:
    from pandas import DataFrame

WEATHER = ("temperature", "windspeed", "precip_chance")
S = ("hour_sin", "hour_cos", "weekend", *WEATHER, "clear", "wet", "weather_missing", "pre_missing")
W = ("log_pre30", "home", "work", "place_unknown", "activity_unknown")
NUMBERS = (
    "user", "t", "hour_local", "weekend", "avail", "action", "steps30", "pre30", "pre_missing",
    *WEATHER,
)  # fmt: skip
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
        at = [full.units.index(unit) for unit in far.units]
        replays = {}
        for factor in factors:
            value = effects.utility(positive(factor, "HeartSteps.dataset: factor", zero=True))
            utility = self._on_grid(value, full)[at]
            replays[f"effects x{factor:g}"] = Replay(far, utility, line_per_arm(far, 2))
        about = (
            f"{len(near.units)} people as the archive, {len(far.units)} others online, chosen by "
            f"seed {seed}. S: time of day, weather, whether steps were recorded; W: steps before, "
            "place, activity; arms: nothing or a suggestion. Semi-synthetic: real contexts and "
            "residuals, a fitted mean whose send effects are multiplied; x1 is the fit itself, "
            "much of it noise of estimation."
        )
        return Dataset("heartsteps", about, SOURCE, near, replays, archive, scale)

    def _on_grid(self, values: Float2, grid: History) -> Float3:
        """Put values of rows (n, k) where the history has them, (unit, time, k); else NaN."""
        rank = np.array([grid.units.index(str(unit)) for unit in self.logged.unit])
        out = np.full((*grid.seen.shape, values.shape[1]), np.nan)
        out[grid.seen] = values[np.lexsort((self.time, rank))]
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
        np.column_stack([made[name] for name in (*S, *W)]), sent,
        np.log(frame["steps30"].to_numpy(np.float64) + 0.5),
        np.where(sent == 1, SEND, 1.0 - SEND), frame["user"].to_numpy(np.int64), 2, (*S, *W),
    )  # fmt: skip
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
