"""Held-out rows made by hand, for the tests of rungs."""

import numpy as np

from pulse_pyro.base import Column, Schema
from pulse_pyro.calibration.rung import ErrorRows

SCHEMA = Schema((Column("s"), Column("w", "W")))


def error_rows(target, forecast, cluster, *, s=None, s_names=("s",), time=None, names=None):
    """Rows of targets and forecasts, (n,) or (n, q); S is the first forecast unless given."""
    target, forecast = (np.asarray(v, float).reshape(len(cluster), -1) for v in (target, forecast))
    s = forecast[:, :1] if s is None else np.asarray(s, float).reshape(len(cluster), -1)
    cluster = np.asarray(cluster)
    return ErrorRows(
        names=names or tuple(f"w{j}" for j in range(target.shape[1])),
        error=target - forecast,
        forecast=forecast,
        x=s,
        x_names=s_names,
        s=s,
        s_names=s_names,
        cluster=cluster,
        unit=cluster,
        time=np.arange(len(cluster)) if time is None else np.asarray(time),
        history_row=np.arange(len(cluster)),
    )


def world(clusters, rows, seed=0, bias=0.0, binary=False):
    """W around the forecast s, off by ``bias``, with an intercept for each cluster."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(clusters), rows)
    s = rng.random(len(cluster))
    if binary:
        return error_rows(rng.random(len(s)) < s, np.clip(s - bias, 0, 1), cluster)
    w = s + rng.normal(0, 0.3, clusters)[cluster] + rng.normal(0, 1, len(s))
    return error_rows(w, s - bias, cluster)
