"""Beijing multi-site air quality: when to ventilate without an expensive monitor.

Twelve stations, hourly 2013-03-01 to 2017-02-28, cut to a decision every six hours.

    S  weather (temperature, pressure, dew point, rain, wind) and ozone: cheap sensors;
       time of day and of year as sine and cosine
    W  log(1 + x) of PM2.5, PM10, NO2, SO2, CO at the moment of the decision: expensive monitors
    a  how far to open: v = 0 (closed), 1/2, 1 (open)

Utility of opening by v over the next six hours, with P the mean PM2.5 of these hours (recorded,
whatever was decided):

    u(v) = v (log(1 + 75) - log(1 + P))

Outdoor air does good, or harm, in proportion to how much of it is let in. 75 micrograms per cubic
metre, the daily limit of China's air quality standard for residential areas (GB 3095-2012, grade
II), is where it does neither. The logarithm says that a doubling counts the same at every level;
dose-response curves of fine particles flatten in this way. "bands": five arms, one for each range
between 35, 75, 115 and 150 micrograms; 1 for naming the range P falls into, else 0.

Gaps of up to six hours were interpolated when the file was made (about 2 % of the values), so some
S and W contain a little of later hours.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.parallel import Engine
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags, Stack, Window
from pulse_pyro.envs.replay import Replay, by_time
from pulse_pyro.laws.filtering import state_space
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.paper.case import (
    Case,
    RealCase,
    judged_finding,
    play_rules_finding,
    setting_finding,
)
from pulse_pyro.paper.datasets import Dataset, line_per_arm, read_table, scale_of, utility_noise
from pulse_pyro.paper.judge import judge
from pulse_pyro.paper.replay_comparison import HERE, Carrying, Imputer, PlayRule, compare
from pulse_pyro.radius import constant

if TYPE_CHECKING:
    from pandas import DataFrame

WEATHER = ("TEMP", "PRES", "DEWP", "RAIN", "WSPM", "O3", "wind_x", "wind_y")
CLOCK = {"hour": 24.0, "doy": 365.25}
W = ("log_PM2.5", "log_PM10", "log_NO2", "log_SO2", "log_CO")
OUTCOME = "next6h_log_PM2.5"
OPENING = (0.0, 0.5, 1.0)
LIMIT = 75.0  # micrograms per cubic metre
BANDS = (35.0, 75.0, 115.0, 150.0)  # where the daily air quality index of PM2.5 changes its name
A_DAY = 4  # decisions
LEAD = 28  # rows of S before a piece, to fill its lags
SOURCE = (
    "Chen (2017), Beijing Multi-Site Air Quality, UCI Machine Learning Repository, "
    "doi:10.24432/C5RK5G, CC BY 4.0; Zhang et al. (2017), Proc. R. Soc. A 473:20170457"
)


def load_beijing(folder: str | Path, *, swapped: bool = False) -> Dataset:
    """Read ``decisions_6h.csv`` of a folder.

    Archive: six stations before 2016. Online: the other six from 2016. With ``swapped`` the two
    sets of stations change places. The archive's pieces are weeks, all its stations in one week
    being one unit: stations share their weather, so they are not independent of each other.
    """
    columns = ("station", "time", *CLOCK, *WEATHER, *W, OUTCOME, "split")
    frame = _prepared(read_table(folder, "decisions_6h", columns))
    first = sorted(frame.loc[frame["split"] == "historical", "station"].unique())
    second = sorted(frame.loc[frame["split"] == "online", "station"].unique())
    if not first or not second or set(first) & set(second):
        raise DataError(
            "beijing: column 'split' must mark historical and online rows of different stations, "
            f"but it marks {first} and {second}."
        )
    early = frame["time"] < frame.loc[frame["split"] == "online", "time"].min()
    old, new = (second, first) if swapped else (first, second)
    past = frame[early & frame["station"].isin(old)]
    late = frame[~early & frame["station"].isin(new)]
    for part in (past, late):
        _aligned(part)
    archive = _history(past)
    before, outcome = _outcome(past), _outcome(late)
    scale = scale_of(archive)
    near, far = scale(archive), scale(_history(late))
    shape = far.grid.seen.shape
    week = np.broadcast_to(np.arange(shape[1]) // (7 * A_DAY), shape)
    replays = {
        "ventilation": Replay(far, ventilation_utility(outcome), line_per_arm(far, 3), week),
        "bands": Replay(far, band_utility(outcome), line_per_arm(far, len(BANDS) + 1), week),
    }
    utilities = {"ventilation": ventilation_utility(before), "bands": band_utility(before)}
    noise = {
        name: utility_noise(near, value, replays[name].features)
        for name, value in utilities.items()
    }
    about = (
        f"{len(old)} stations before 2016 as the archive, {len(new)} others from 2016 online, a "
        "decision every six hours. S: weather and ozone; W: five pollutants; arms: three "
        "ventilation levels (or five bands), judged by the real PM2.5 of the next six hours. "
        "It was selected because a gain from imputing W shows."
    )
    return Dataset(
        name="beijing",
        about=about,
        source=SOURCE,
        archive=near,
        replays=replays,
        pieces=weekly(archive),
        scale=scale,
        reward_sd=noise,
    )


def _outcome(frame: DataFrame) -> Float2:
    """Return log(1 + PM2.5) of the hours after each row, (station, time)."""
    history = History.from_frame(
        frame, unit="station", time="time", observed=["hour"], missing=[OUTCOME]
    )
    out: Float2 = history.grid.w[..., 0]
    return out


def ventilation_utility(outcome: Float2) -> Float3:
    """Return u = v (log(1 + 75) - outcome), (.., 3), outcome = log(1 + PM2.5) of the next hours."""
    opening: Float1 = np.array(OPENING)
    found: Float3 = (np.log1p(LIMIT) - outcome)[..., None] * opening
    return found


def band_utility(outcome: Float2) -> Float3:
    """Return 1 for the arm that names the band of the outcome, 0 for the others, (.., 5)."""
    known = np.isfinite(outcome)
    band = np.digitize(np.expm1(np.where(known, outcome, 0.0)), BANDS)
    return np.where(known[..., None], np.eye(len(BANDS) + 1)[band], np.nan)


def weekly(archive: History) -> History:
    """Return the archive cut into weeks, a unit each, its stations one after the other in it.

    Before a station's rows stand 28 rows of its S without W, so that lags of up to a week are
    those of the station itself; rows without W are not fitted on, or judged.
    """
    length = 7 * A_DAY
    all_s, all_w, there = archive.grid
    weeks = there.shape[1] // length
    if weeks < 2:
        raise DataError(f"beijing: {there.shape[1]} rows a station are less than two weeks.")
    start = length * np.arange(weeks)[:, None]
    at = start + np.arange(-LEAD, length)  # (week, row); negative: before the archive
    own = at >= 0
    at = np.maximum(at, 0)

    def cut(values: Float3) -> Float3:
        """(station, time, ..) -> (week, station * row, ..)."""
        moved = np.moveaxis(values[:, at], 1, 0)
        return moved.reshape(weeks, -1, *values.shape[2:])

    seen = np.moveaxis((there[:, at] & own), 1, 0).reshape(weeks, -1)
    judged = np.broadcast_to(at >= start, (len(archive.units), *at.shape))
    w = np.where(np.moveaxis(judged, 1, 0).reshape(weeks, -1, 1), cut(all_w), np.nan)
    units = tuple(f"week{k:03d}" for k in range(weeks))
    return History.from_arrays(
        cut(all_s), w, seen=seen, units=units, s_names=archive.s_names, w_names=archive.w_names
    )


def _aligned(frame: DataFrame) -> None:
    """Refuse stations that do not begin together: rows of one number must be of one time."""
    first = frame.groupby("station")["time"].min()
    if first.nunique() > 1:
        late = first[first > first.min()].index[0]
        raise DataError(
            f"beijing: station {late!r} begins at {first[late]}, others at {first.min()}; all must "
            "begin together: fill in rows with blank values, or cut the others."
        )


def _prepared(frame: DataFrame) -> DataFrame:
    """Turn times into dates, the clock into angles, and straighten skewed sensors."""
    import pandas as pd

    out = frame.copy()
    for name in (*CLOCK, *WEATHER, *W, OUTCOME):
        if out[name].dtype.kind not in "iuf":
            raise DataError(f"beijing: column {name!r} must be numeric, not {out[name].dtype}.")
    if out[["station", "time"]].isna().any(axis=None):
        raise DataError("beijing: a row has no station or no time; fill it in or drop the row.")
    if (out[["RAIN", "WSPM", "O3"]] < 0).any(axis=None):
        raise DataError(
            "beijing: rain, wind speed and ozone must be >= 0; blank what is not known."
        )
    try:
        out["time"] = pd.to_datetime(out["time"], format="ISO8601")
    except (ValueError, TypeError) as cause:
        raise DataError(f"beijing: column 'time' must hold dates: {cause}.") from cause
    for name, period in CLOCK.items():
        angle = 2.0 * np.pi * out[name] / period
        out[f"{name}_sin"], out[f"{name}_cos"] = np.sin(angle), np.cos(angle)
    for name in ("RAIN", "WSPM"):
        out[name] = np.log1p(out[name])
    out["O3"] = np.sqrt(out["O3"])
    return out


def _history(frame: DataFrame) -> History:
    clock = [f"{name}_{kind}" for name in CLOCK for kind in ("sin", "cos")]
    return History.from_frame(
        frame, unit="station", time="time", observed=[*WEATHER, *clock], missing=list(W)
    )


# Beijing air quality: ventilation without an expensive monitor.


MAIN = "alpha 0.25"
PLAY_RULES = {
    MAIN: PlayRule(constant(0.25)),
    "alpha 0.1": PlayRule(constant(0.1), everyone=False),
    "alpha 1": PlayRule(constant(1.0), everyone=False),
    "in order of time": PlayRule(constant(0.25), by_time),
}
# two past rewards as well as one; five arms of 90 features each would take longer than all the rest
CARRYING = Carrying(memory="ar", past=(1, 2), plain=("bands",))


def mean_weather(values: Float, axis: int) -> Float:
    """Return the mean of what was seen of the weather, NaN where nothing was; 0 for the clock.

    Means of a clock over whole days are zero up to rounding, which must not pass for a signal.
    """
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    mean[..., len(WEATHER) :] = 0.0
    return mean


# half a day in full, then means over one, three and seven days
PAST = Stack(Lags(3), Window(4, mean_weather), Window(12, mean_weather), Window(28, mean_weather))
DAY = Stack(Identity(), Window(4, mean_weather))
IMPUTERS = (
    Imputer("linear", linear_lags(PAST), fenced=True),
    Imputer("gp", gaussian_process(DAY, basis=10)),
    Imputer("neural", neural_density(PAST, components=3, width=128), anew=True, adaptive=True),
    Imputer("state_space", state_space(4, ar=1)),
)


def beijing_case(
    folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE
) -> Case:
    """Compare agents on the Beijing data; see ``datasets.beijing`` for what they decide.

    The laws' inputs were settled by looking at a handful of choices on these very rounds, so the
    same laws are also played with the two sets of stations swapped, which nobody looked at before.
    """
    start = time.perf_counter()
    dataset = load_beijing(folder)
    timely = [name for name, rule in PLAY_RULES.items() if rule.order is by_time]
    first = compare(
        dataset,
        IMPUTERS,
        PAST,
        play_rules=PLAY_RULES,
        carrying=CARRYING,
        runs=runs,
        seed=seed,
        engine=engine,
    )
    swapped = load_beijing(folder, swapped=True)
    other = compare(
        replace(swapped, replays={"ventilation": swapped.replays["ventilation"]}),
        IMPUTERS,
        PAST,
        play_rules={name: PLAY_RULES[name] for name in (MAIN, *timely)},
        carrying=CARRYING,
        runs=runs,
        seed=seed,
        engine=engine,
    )
    judged = judge(
        dataset, [each for each in IMPUTERS if each.name != "state_space"], seed=seed, engine=engine
    )
    main, bands = f"ventilation, {MAIN}", f"bands, {MAIN}"
    findings = (
        setting_finding(first, main, "Three ventilation levels"),
        setting_finding(other, main, "Stations swapped", first.best(main)),
        setting_finding(first, bands, "Five bands"),
        play_rules_finding(
            first,
            [name for name in first.settings if name != bands],
            "Other radii, and in order of time (stations of one time learn in turn)",
        ),
        judged_finding(judged, "D_t of five pollutants"),
        *(
            setting_finding(played, f"ventilation, {name}", f"{title}, {name}")
            for name in timely
            for played, title in ((first, "Three ventilation levels"), (other, "Stations swapped"))
        ),
    )
    return Case(
        dataset.name,
        first.headline(main),
        dataset.about,
        dataset.source,
        findings,
        time.perf_counter() - start,
    )


BEIJING = RealCase("beijing_multisite", beijing_case, lambda home: load_beijing(home).pieces)
