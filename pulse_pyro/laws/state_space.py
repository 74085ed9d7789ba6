"""State space law: S a VARMA process seen in part, W_t linear in a window of its lags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro.arrays import Float1, Float2, Float3, whole
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.history import History
from pulse_pyro.laws.data import FitData
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FitRecord
from pulse_pyro.laws.fitted_state_space import FittedStateSpace
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.laws.linear_exact import Conjugate, LinearKernel, exact_draws
from pulse_pyro.laws.varma_fit import fit_process
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Lags

ROUNDS = 4  # of weighting rows by what the filter leaves open


def state_space(window: int | Lags, *, ar: int = 2, ma: int = 2) -> StateSpace:
    """Return a law with memory: E[W_t | everything of S seen so far], exact under its model.

    Parameters
    ----------
    window : the lags of S that W_t depends on: a number, the current S_t included, or Lags.
    ar, ma : orders of the VARMA process of S.

    S is a stationary Gaussian VARMA process, the same for every unit; W_t is linear in the window
    plus Gaussian noise. A Kalman filter conditions on every value of S that was seen, at any
    coordinate and time, and skips what was not. Not covered: S that is not Gaussian or has a
    level of its own in each unit, values missing because of what they would have been, and the
    uncertainty of the VARMA coefficients, which are put at their maximum likelihood.
    """
    lags = Lags(int(window)) if isinstance(window, int | np.integer) else window
    if not isinstance(lags, Lags):
        raise SettingError(
            f"state_space: window must be a number of lags or Lags(...), but {window!r} came; the "
            "filter keeps lags of S, other summaries need another law."
        )
    return StateSpace(
        lags, whole(ar, "state_space: ar", 0), whole(ma, "state_space: ma", 0), "state_space"
    )


@dataclass(frozen=True)
class StateSpace:
    """A state space law, not yet fitted; see :func:`state_space`."""

    window: Lags
    ar: int
    ma: int
    name: str = "state_space"

    @property
    def summary(self) -> Lags:
        """The window W depends on."""
        return self.window

    def check(self, history: History) -> ModelCard:
        """Check the emission as the linear law it is, on complete rows."""
        family = LinearFamily("normal", Conjugate())
        card = Law(None, self.window, self.name, family=family).check(history)
        return replace(card, unseen="conditioned on, with memory")

    def fit(self, history: History, *, seed: int, draws: int = 1000) -> FittedStateSpace:
        """Fit the process of S by maximum likelihood, and draw from the emission's posterior.

        Both use every row: S may be seen in part in the archive too. Rows whose window is not
        fully seen weigh less, by the variance the filter leaves open; with several W their
        average is used.
        """
        if not isinstance(history, History):
            raise DataError(
                f"{self.name}: a History was expected, {type(history).__name__} came; make one "
                "with History.from_frame, and pass one part of a split."
            )
        whole(draws, "state_space: draws", 2)
        contexts = _moments(history)
        mean, scale = contexts[0], np.where(contexts[1] > 0, contexts[1], 1.0)
        process, fit = fit_process((history.s - mean) / scale, self.ar, self.ma, seed)
        seen = Filtered(self.window, process, mean, scale)
        family = LinearFamily("normal", Conjugate())
        law = Law(None, seen, self.name, family=family)
        raw = FitData.raw(history.rows(seen))
        kinds = [f"{s}.lag" for _ in self.window.names for s in history.s_names]
        data = raw.standardised(kinds)
        found = _emission(data, history, seen, draws, seed)
        record = FitRecord(
            f"state_space: maximum likelihood of VARMA({self.ar}, {self.ma}), Exact emission",
            int(seed), data.n, data.rows.dropped,
            {"log_likelihood": fit, "spectral_radius": process.radius},
        )  # fmt: skip
        return FittedStateSpace(
            law, found, None, data.scaler, data.inputs, contexts, record, history.units,
            history.s_names, history.w_names,
        )  # fmt: skip


def _moments(history: History) -> Float2:
    """Return mean and sd of S over what is seen, (2, s_dim)."""
    s = history.s[history.seen]
    if np.isnan(s).all(axis=0).any():
        empty = history.s_names[int(np.flatnonzero(np.isnan(s).all(axis=0))[0])]
        raise DataError(f"state_space: column {empty!r} is never seen in the archive; drop it.")
    return np.stack([np.nanmean(s, axis=0), np.nanstd(s, axis=0)])


def _emission(
    data: FitData, history: History, seen: Filtered, draws: int, seed: int
) -> dict[str, Float3]:
    """Regress w on the filtered window, rows weighted by 1 / (1 + open variance / noise)."""
    rows, scaler = data.rows, data.scaler
    columns = np.concatenate([np.ones((data.n, 1)), data.x, data.w], axis=1)
    weight: Float1 = np.ones(data.n)
    for turn in range(ROUNDS + 1):
        full = (columns * weight[:, None]).T @ columns
        last = turn == ROUNDS
        size = draws if last else 50
        found = exact_draws(full, data.w_dim, Conjugate(), size, stream(seed, "emission"), n=data.n)
        if last:
            break
        kernel = LinearKernel(found)
        slope = kernel.mean_coef[1:] * scaler.w_scale / scaler.x_scale[:, None]
        _, var = seen.run(history.s, slope)
        left = np.diagonal(var[rows.unit, rows.time], axis1=-2, axis2=-1)
        miss = rows.w - scaler.w_out(kernel.mean(data.x))
        noise = np.array([_noise(miss[:, j], left[:, j]) for j in range(data.w_dim)])
        weight = 1.0 / (1.0 + (left / noise).mean(-1))
    return found


def _noise(miss: Float1, left: Float1) -> float:
    """Return v that maximises the likelihood of miss ~ N(0, v + left): both (n,)."""

    def loss(log: float) -> float:
        total = np.exp(log) + left
        return float(np.sum(np.log(total) + miss**2 / total))

    high = np.log(np.mean(miss**2) + 1e-300)
    return float(np.exp(optimize.minimize_scalar(loss, bounds=(high - 15.0, high + 1.0)).x))
