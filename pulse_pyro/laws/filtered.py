"""The summary with memory: every lag as it is expected given all that has been seen so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Float, Float1, Float2, Float3, Float4
from pulse_pyro.laws.varma import Process, filtered
from pulse_pyro.summary import Lags


@dataclass(frozen=True, eq=False)
class Filtered:
    """E[S_{t-j} | everything seen up to t] for the lags of ``window``, by the Kalman filter.

    Complete at every row: a value that was seen is itself, any other is its expectation under the
    process. mean, scale : (s_dim,) units of S. ``memory`` is that of the window; the filter
    itself remembers a series from its beginning.
    """

    window: Lags
    process: Process
    mean: Float1
    scale: Float1

    @property
    def names(self) -> tuple[str, ...]:
        """lag0, lag1, ..."""
        return self.window.names

    @property
    def memory(self) -> int:
        """Rows of the window."""
        return self.window.memory

    def __call__(self, s: Float) -> Float:
        """Map (..., time, s_dim) to (..., time, count * s_dim)."""
        series = np.asarray(s, np.float64).reshape(-1, *np.shape(s)[-2:])
        found, _ = self.run(series, np.empty((self.window.count * len(self.mean), 0)))
        return found.reshape(*np.shape(s)[:-1], -1)

    def last(self, past: Float) -> Float:
        """Return the newest row, for a past (time, s_dim) taken as all there is."""
        row: Float = self(past[None])[0, -1]
        return row

    def run(self, s: Float3, slope: Float2) -> tuple[Float3, Float4]:
        """Return the windows (batch, time, p) and the variance slope' Cov slope they leave open.

        slope : (p, w_dim) on the raw window.
        """
        scale = np.tile(self.scale, self.window.count)
        window, var = filtered(
            self.process, (s - self.mean) / self.scale, self.window.start, self.window.count,
            slope * scale[:, None],
        )  # fmt: skip
        return window * scale + np.tile(self.mean, self.window.count), var

    def __repr__(self) -> str:
        p, q = len(self.process.ar), len(self.process.ma)
        return f"Filtered({self.window!r}, VARMA({p}, {q}))"
