"""A made-up file of the schema of decisions_6h.csv: four stations, a few months."""

import numpy as np
import pandas as pd

STATIONS = ("Alpha", "Beta", "Gamma", "Delta")


def frame(days=120, seed=0):
    """Pollution rises with humidity and falls with wind; the second half is 'from 2016'."""
    rng = np.random.default_rng(seed)
    time = pd.date_range("2015-11-02", periods=4 * days, freq="6h")
    parts = []
    weather = rng.standard_normal((len(time), 5)).cumsum(0) * 0.1
    for k, station in enumerate(STATIONS):
        own = weather + 0.3 * rng.standard_normal(weather.shape)
        dirt = 3.8 + 0.8 * own[:, 2] - 0.8 * own[:, 4]
        part = pd.DataFrame({"station": station, "time": time.strftime("%Y-%m-%dT%H")})
        part["hour"], part["doy"] = time.hour, time.day_of_year
        part["TEMP"], part["PRES"], part["DEWP"] = own[:, 0], 1010 + own[:, 1], own[:, 2]
        part["RAIN"] = np.abs(own[:, 3])
        part["WSPM"] = np.exp(own[:, 4])
        part["O3"] = 50 + 5 * own[:, 0] + rng.random(len(time))
        part["wind_x"], part["wind_y"] = own[:, 4], rng.standard_normal(len(time))
        for name in ("PM2.5", "PM10", "NO2", "SO2", "CO"):
            part[f"log_{name}"] = dirt + 0.3 * rng.standard_normal(len(time))
        part["next6h_log_PM2.5"] = np.r_[part["log_PM2.5"][1:], np.nan]
        late = time >= "2016-01-01"
        part["split"] = np.where(
            late, *(("online", "unused") if k % 2 else ("unused", "historical"))
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def folder(path, table=None):
    """Write the table, or the made-up one, and return the folder."""
    (frame() if table is None else table).to_csv(path / "decisions_6h.csv", index=False)
    return path
