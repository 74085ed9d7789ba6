"""State space law: S a VARMA process seen in part, W_t linear in a window of its lags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro.arrays import Float, Float2, Float3, whole
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.history import History
from pulse_pyro.laws.data import FitData
from pulse_pyro.laws.emission import draw_emission
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted_state_space import FittedStateSpace
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.laws.linear_exact import Conjugate, exact_draws
from pulse_pyro.laws.record import FitRecord
from pulse_pyro.laws.varma_fit import fit_process
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Lags, as_summary


def state_space(window: int | Lags, *, ar: int = 2, ma: int | None = None) -> StateSpace:
    """Return a law with memory: E[W_t | everything of S seen so far], exact under its model.

    Parameters
    ----------
    window : the lags of S that W_t depends on: a number, the current S_t included, or Lags.
    ar, ma : orders of the VARMA process of S; ma is 2 for one column of S and 0 for several,
        where every moving-average matrix costs much time to fit.

    S is a stationary Gaussian VARMA process, the same for every unit; W_t is linear in the window
    plus Gaussian noise. A Kalman filter conditions on every value of S that was seen, at any
    coordinate and time, and skips what was not. Not covered: S that is not Gaussian or has a
    level of its own in each unit, values missing because of what they would have been, and the
    uncertainty of the VARMA coefficients, which are put at their maximum likelihood.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> archive = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = state_space(19, ma=0).fit(archive, seed=0)
    >>> s = np.where(np.arange(60)[:, None] < 30, archive.s[:1], np.nan)  # S is lost half way
    >>> variance = law.variance(s)[0, :, 0]
    >>> bool(variance[-1] > 2 * variance[29])
    True
    """
    lags = as_summary(window, "state_space")
    if not isinstance(lags, Lags):
        raise SettingError(
            f"state_space: window must be a number of lags or Lags(...), but {window!r} came; the "
            "filter keeps lags of S, other summaries need another law."
        )
    moving = None if ma is None else whole(ma, "state_space: ma", 0)
    return StateSpace(lags, whole(ar, "state_space: ar", 0), moving, "state_space")


@dataclass(frozen=True)
class StateSpace:
    """A state space law, not yet fitted; see :func:`state_space`."""

    window: Lags
    ar: int
    ma: int | None
    name: str = "state_space"

    @property
    def summary(self) -> Lags:
        """The window W depends on."""
        return self.window

    def check(self, history: History) -> ModelCard:
        """Check the emission as the linear law it is, unseen values of S at their mean."""
        self._expect(history)
        full = np.where(np.isnan(history.s), _moments(history)[0], history.s)
        family = LinearFamily("normal", Conjugate())
        law = Law(None, self.window, self.name, family=family)
        card = law.check(replace(history, s=full))
        return replace(card, unseen="conditioned on, with memory")

    def fit(
        self, history: History, inference: None = None, *, seed: int, draws: int = 1000
    ) -> FittedStateSpace:
        """Fit the process of S by maximum likelihood, and draw from the emission's posterior.

        Both use every row: S may be seen in part in the archive too. Rows whose window is not
        fully seen weigh less, by the variance the filter leaves open; the noise of W is then put
        at its maximum likelihood.
        """
        self._expect(history)
        if inference is not None:
            raise SettingError(
                f"state_space: it fits itself, by maximum likelihood; {inference!r} is of no use."
            )
        ma = self.ma if self.ma is not None else 2 if len(history.s_names) == 1 else 0
        whole(draws, "state_space: draws", 2)
        contexts = _moments(history)
        constant = contexts[1] <= 1e-9 * (np.abs(contexts[0]) + 1e-300)  # zero up to rounding
        mean, scale = contexts[0], np.where(constant, 1.0, contexts[1])
        standard = (history.s - mean) / scale
        standard[..., constant] *= 0.0  # rounding is no signal
        process, fit = fit_process(standard, self.ar, ma, seed)
        seen = Filtered(self.window, process, mean, scale)
        family = LinearFamily("normal", Conjugate())
        law = Law(None, seen, self.name, family=family)
        raw = FitData.raw(history.rows(seen))
        kinds = [f"{s}.lag" for _ in self.window.names for s in history.s_names]
        data = raw.standardised(kinds)
        found = _emission(data, history, seen, draws, seed)
        record = FitRecord(
            f"state_space: maximum likelihood of VARMA({self.ar}, {ma}), Exact emission",
            int(seed), data.n, data.rows.dropped,
            {"log_likelihood": fit, "spectral_radius": process.radius},
        )  # fmt: skip
        return FittedStateSpace(
            law, found, None, data.scaler, data.inputs, contexts, record, history.units,
            history.s_names, history.w_names,
        )  # fmt: skip

    def _expect(self, history: History) -> None:
        if not isinstance(history, History):
            raise DataError(
                f"{self.name}: a History was expected, {type(history).__name__} came; make one "
                "with History.from_frame, and pass one part of a split."
            )


def _moments(history: History) -> Float2:
    """Return mean and sd of S over what is seen, (2, s_dim)."""
    s = history.s[history.seen]
    if np.isnan(s).all(axis=0).any():
        empty = history.s_names[int(np.flatnonzero(np.isnan(s).all(axis=0))[0])]
        raise DataError(f"state_space: column {empty!r} is never seen in the archive; drop it.")
    return np.stack([np.nanmean(s, axis=0), np.nanstd(s, axis=0)])


def _emission(
    data: FitData, history: History, seen: Filtered, draws: int, seed: int
) -> dict[str, Float]:
    """Draw from the emission: conjugate if every window was fully seen, weighted otherwise."""
    rows, scaler, rng = data.rows, data.scaler, stream(seed, "emission")

    def open_at(slope: Float2) -> Float3:
        raw = slope * scaler.w_scale / scaler.x_scale[:, None]
        left = seen.run(history.s, raw)[1][rows.unit, rows.time]
        return left / np.outer(scaler.w_scale, scaler.w_scale)

    if not open_at(np.ones((data.x.shape[1], data.w_dim))).max() > 1e-12:
        return exact_draws(data.full, data.w_dim, Conjugate(), draws, rng)
    return draw_emission(data.x, data.w, rows.unit, open_at, draws, rng)
