"""Causal summaries of the past of S: what a law is allowed to look at.

A summary maps (..., time, s_dim) to (..., time, p) and row t depends on rows <= t only. Each name
of a summary is one causal filter applied to every S column, so p = len(names) * s_dim and the
columns run (name 1 of every S column, name 2 of every S column, ...).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pulse_pyro._core.arrays import Float, whole
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import Summary


@dataclass(frozen=True)
class Lags:
    """The values S_{t-start}, ..., S_{t-start-count+1}.

    ``Lags(19)`` includes the current S_t; ``Lags(19, start=1)`` begins with S_{t-1}.

    Examples
    --------
    >>> Lags(2)(np.array([[1.0], [2.0], [3.0]]))
    array([[ 1., nan],
           [ 2.,  1.],
           [ 3.,  2.]])
    >>> Lags(2, start=1).names
    ('lag1', 'lag2')
    """

    count: int
    start: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole(self.count, "Lags: count", 1))
        object.__setattr__(self, "start", whole(self.start, "Lags: start", 0))

    @property
    def names(self) -> tuple[str, ...]:
        """lag0, lag1, ..."""
        return tuple(f"lag{self.start + j}" for j in range(self.count))

    @property
    def memory(self) -> int:
        """Rows looked at."""
        return self.start + self.count

    def __call__(self, s: Float) -> Float:
        """Map (..., time, s_dim) to (..., time, count * s_dim), a read-only view where it can."""
        newest_first = _windows(s, self.memory)[..., self.count - 1 :: -1]
        rows = np.moveaxis(newest_first, -1, -2)
        return rows.reshape(*s.shape[:-1], self.count * s.shape[-1])

    def last(self, past: Float) -> Float:
        """Return the newest row: (memory, s_dim) -> (p,)."""
        return past[: -self.memory - 1 : -1][self.start :].ravel()


def as_summary(summary: int | Summary, what: str) -> Summary:
    """Return a summary; a whole number stands for so many lags, the current S_t included."""
    if isinstance(summary, bool | int | np.integer):
        return Lags(whole(summary, f"{what}: the number of lags", 1))
    return summary


@dataclass(frozen=True)
class Window:
    """A NumPy reduction of the last ``count`` rows, e.g. ``Window(3, np.mean)``.

    ``fn(windows, axis=-2)`` is handed (..., count, s_dim) and must return (..., s_dim), each window
    on its own; a fn that mixes windows, and so could see the future, is refused.

    Examples
    --------
    >>> Window(2, np.mean)(np.array([[1.0], [2.0], [3.0]])).ravel()
    array([nan, 1.5, 2.5])
    """

    count: int
    fn: Callable[..., Float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole(self.count, "Window: count", 1))
        if not callable(self.fn):
            raise SettingError(f"Window: fn must be a function, but got {self.fn!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The function's name and the window's length."""
        return (f"{getattr(self.fn, '__name__', 'fn')}{self.count}",)

    @property
    def memory(self) -> int:
        """Rows looked at."""
        return self.count

    def __call__(self, s: Float) -> Float:
        """Map (..., time, s_dim) to (..., time, s_dim)."""
        windows = np.moveaxis(_windows(s, self.count), -1, -2)
        out = self._reduce(windows)
        if out.shape != s.shape:
            raise SettingError(
                f"Window: fn returned shape {out.shape} for windows of {self.count} rows of "
                f"{s.shape}; it must reduce axis -2 only."
            )
        series = (0,) * (s.ndim - 2)
        for t in {0, s.shape[-2] // 2, s.shape[-2] - 1} if out.size else ():
            alone = self._reduce(windows[series][t])
            if not np.allclose(alone, out[series][t], rtol=1e-9, atol=0.0, equal_nan=True):
                raise SettingError(
                    f"Window: fn gives {alone} for the window of row {t} alone but "
                    f"{out[series][t]} among the others; it must treat each window on its own."
                )
        return out

    def last(self, past: Float) -> Float:
        """Return the newest row: (memory, s_dim) -> (p,)."""
        return self._reduce(past[-self.count :])

    def __repr__(self) -> str:
        return f"Window({self.count}, {getattr(self.fn, '__name__', 'fn')})"

    def _reduce(self, windows: Float) -> Float:
        try:
            return np.asarray(self.fn(windows, axis=-2), dtype=np.float64)
        except TypeError as cause:
            raise SettingError(
                f"Window: fn could not be called as fn(windows, axis=-2): {cause}; pass a NumPy "
                "reduction such as np.mean, or a function with an axis argument."
            ) from cause


@dataclass(frozen=True)
class Identity:
    """The current row S_t alone."""

    @property
    def names(self) -> tuple[str, ...]:
        """The single name "now"."""
        return ("now",)

    @property
    def memory(self) -> int:
        """One row."""
        return 1

    def __call__(self, s: Float) -> Float:
        """Return s itself."""
        return s

    def last(self, past: Float) -> Float:
        """Return the newest row, (s_dim,)."""
        row: Float = past[-1]
        return row


@dataclass(frozen=True, init=False)
class Stack:
    """Several summaries side by side: ``Stack(Lags(3), Window(7, np.mean))``.

    Examples
    --------
    >>> Stack(Lags(2), Window(7, np.mean)).names
    ('lag0', 'lag1', 'mean7')
    """

    parts: tuple[Summary, ...]

    def __init__(self, *parts: Summary) -> None:
        if not parts:
            raise SettingError("Stack needs at least one summary.")
        for part in parts:
            if not callable(part) or not hasattr(part, "memory"):
                raise SettingError(f"Stack: {part!r} is not a summary; use Lags, Window, Identity.")
        object.__setattr__(self, "parts", parts)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def memory(self) -> int:
        """The longest memory of the parts."""
        return max(part.memory for part in self.parts)

    def __call__(self, s: Float) -> Float:
        """Map (..., time, s_dim) to (..., time, p)."""
        return np.concatenate([part(s) for part in self.parts], axis=-1)

    def last(self, past: Float) -> Float:
        """Return the newest row: (memory, s_dim) -> (p,)."""
        return np.concatenate([part.last(past) for part in self.parts])


def _windows(s: Float, count: int) -> Float:
    """View each row's last ``count`` rows, oldest first: (.., time, s_dim, count)."""
    padded = np.full((*s.shape[:-2], s.shape[-2] + count - 1, s.shape[-1]), np.nan)
    padded[..., count - 1 :, :] = s
    return sliding_window_view(padded, count, axis=-2)
