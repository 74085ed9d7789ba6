"""What every loader of a real data set returns, how it reads its files, and Phi of the replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float3
from pulse_pyro._core.errors import DataError, nearest
from pulse_pyro.data.history import History
from pulse_pyro.envs.replay import Replay
from pulse_pyro.features import Features
from pulse_pyro.policies.oful import interactions

if TYPE_CHECKING:
    from pandas import DataFrame

# What every loader returns, and how it reads its files.


class Scale(NamedTuple):
    """Mean and sd of every column: s_mean, s_sd (s_dim,), w_mean, w_sd (w_dim,).

    One ridge suits every feature in these units, and errors of several W can be read side by side.
    """

    s_mean: Float1
    s_sd: Float1
    w_mean: Float1
    w_sd: Float1

    def __call__(self, history: History) -> History:
        """Return a history in these units."""
        s, w = (history.s - self.s_mean) / self.s_sd, (history.w - self.w_mean) / self.w_sd
        return replace(history, s=s, w=w, schema=replace(history.schema, moments=None))


@dataclass(frozen=True, eq=False)
class Dataset:
    """An archive with (S, W), and units met later on which policies are measured.

    Attributes
    ----------
    name : of the data set.
    about : what S, W, the arms and the utility are, how rows were chosen, and why it is here.
    source : whom to cite, and the licence.
    archive : what laws are fitted on, in the units of ``scale``.
    replays : setting -> recorded rounds of other units, in the same units.
    pieces : the archive as units that may count as independent of each other, in the original
        units of S and W: what a study file wants, and, scaled, ``diagnose`` and ``calibrate``.
    scale : mean and sd of every column of the archive.
    reward_sd : setting -> sd of a utility given the full context, see :func:`utility_noise`; what a
        memory tracked by rewards takes for their noise.
    """

    name: str
    about: str
    source: str
    archive: History
    replays: Mapping[str, Replay]
    pieces: History
    scale: Scale
    reward_sd: Mapping[str, float] = field(default_factory=dict)

    def noise_of(self, setting: str) -> float:
        """Return reward_sd of a setting; where no archive told it, half the sd of its utilities."""
        if setting in self.reward_sd:
            return self.reward_sd[setting]
        return 0.5 * float(np.nanstd(self.replays[setting].utility))

    def __repr__(self) -> str:
        rounds = {name: int(each.complete.sum()) for name, each in self.replays.items()}
        counts = ", ".join(f"{name} ({count:,} complete rounds)" for name, count in rounds.items())
        return f"Dataset {self.name}: {self.about}\n{self.archive!r}\n  replays: {counts}"


def read_table(folder: str | Path, stem: str, columns: Sequence[str]) -> DataFrame:
    """Read ``stem``.csv or ``stem``.csv.gz of a folder; it must have these columns, and rows."""
    import pandas as pd

    home = Path(folder)
    files = [home / f"{stem}{ending}" for ending in (".csv", ".csv.gz")]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        what = "has neither" if home.is_dir() else "is not a folder with"
        raise DataError(
            f"{home} {what} {files[0].name} {'nor' if home.is_dir() else 'or'} {files[1].name}; "
            "data sets are not part of the package: pass the folder they were unpacked to."
        )
    try:
        frame = pd.read_csv(file)
    except (ValueError, OSError, EOFError) as cause:  # pandas' own errors are ValueErrors
        raise DataError(f"{file} cannot be read as CSV: {cause}.") from cause
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"{file}: there is no column {name!r}{nearest(name, frame.columns)}")
    if not len(frame):
        raise DataError(f"{file} has a header but no rows.")
    return frame


def scale_of(archive: History) -> Scale:
    """Return the mean and sd of every column of an archive.

    A column that is constant in the archive, or hardly recorded, is refused.
    """
    moments = []
    for kind, names in (("s", archive.s_names), ("w", archive.w_names)):
        values = getattr(archive, kind)
        known = np.isfinite(values).sum(0)
        if (known < 2).any():
            at = int(np.flatnonzero(known < 2)[0])
            raise DataError(f"column {names[at]!r} has fewer than two values in the archive.")
        mean, sd = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        flat = sd <= 1e-9 * np.abs(mean)
        if flat.any():
            at = int(np.flatnonzero(flat)[0])
            raise DataError(f"column {names[at]!r} is constant in the archive; leave it out.")
        moments += [mean, sd]
    return Scale(*moments)


def utility_noise(archive: History, utility: Float3, features: Features) -> float:
    """Return the sd that utilities have given the full context, measured on the archive alone.

    sqrt of the mean square residual of a ridge regression (lambda = 1) of the utility on Phi, over
    all arms of all complete rows: one figure for arms that may differ in noise. utility : (unit,
    time, action) of the archive's own rows, in the units its S and W are in.
    """
    s, w, seen = archive.grid
    rows = seen & np.isfinite(utility).all(-1) & np.isfinite(s).all(-1) & np.isfinite(w).all(-1)
    if not rows.any():
        raise DataError("utility_noise: no row of the archive has S, W and all utilities.")
    arms = utility.shape[-1]
    x = np.concatenate([features(s[rows], w[rows], a) for a in range(arms)])
    y = np.concatenate([utility[rows][:, a] for a in range(arms)])
    theta = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y)
    return float(np.sqrt(np.mean((y - x @ theta) ** 2)))


# Phi of the replays: every arm has a line of its own in the whole context.


class _Lines:
    """Phi((s, w), a) = (1, s, w, 1[a = k], 1[a = k] (s, w) for k = 1 .. K-1): affine in w."""

    def __init__(self, actions: int) -> None:
        self.actions = actions

    def __call__(self, s: Float2, w: Float2, action: int) -> Float2:
        out: Float2 = interactions(np.concatenate([s, w], axis=-1)[None], self.actions)[
            0, :, action
        ]
        return out


def line_per_arm(history: History, actions: int) -> Features:
    """Return Phi in which the mean reward of each arm is linear in (1, S, W)."""
    base = ("1", *history.s_names, *history.w_names)
    names = base + tuple(f"{name}*[a={k}]" for k in range(1, actions) for name in base)
    return Features(_Lines(actions), actions, names)
