"""State space law: S a VARMA process seen in part, W_t linear in a window of its lags."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Float4, Int, whole
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Inference, choose_engine
from pulse_pyro.base import ModelCard
from pulse_pyro.data.history import History, Source, series_of
from pulse_pyro.data.summary import Lags, as_summary
from pulse_pyro.laws.conjugate import LOG_2PI, Conjugate, LinearKernel, exact_draws
from pulse_pyro.laws.fitted import (
    CDF_DRAWS,
    FitRecord,
    PosteriorConditional,
    PosteriorLaw,
    by_action,
    chosen,
)
from pulse_pyro.laws.law import FitData, Law, left_out
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.laws.memory import MemoryKind
from pulse_pyro.laws.remembering import RememberingLaw
from pulse_pyro.laws.varma import Process, advance, filtered, fit_process, observe

# The summary with memory: every lag as it is expected given all that has been seen so far.


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
        windows, _ = self.run(series, np.empty((self.window.count * len(self.mean), 0)))
        return windows.reshape(*np.shape(s)[:-1], -1)

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
            self.process,
            (s - self.mean) / self.scale,
            self.window.start,
            self.window.count,
            slope * scale[:, None],
        )
        return window * scale + np.tile(self.mean, self.window.count), var

    def __repr__(self) -> str:
        p, q = len(self.process.ar), len(self.process.ma)
        return f"Filtered({self.window!r}, VARMA({p}, {q}))"


# The emission of a state space law: W regressed on lags that are known only in part.
#
# At row t the filter gives the expected window x_t and leaves the covariance V_t of b'window open,
# so w_t = (1, x_t) b + u_t with u_t ~ N(0, S + V_t): least squares weighted by (S + V_t)^-1, with
# S,
# the noise of W, put at its maximum likelihood.


ROUNDS = 4  # of regression, open variance and noise in turn
TURNS = 60  # of the noise alone
PRIOR = Conjugate()


def draw_emission(
    x: Float2,
    w: Float2,
    unit: Int,
    open_at: Callable[[Float2], Float3],
    draws: int,
    rng: np.random.Generator,
) -> dict[str, Float]:
    """Return draws of coef, variance and link, as ``exact_draws``, for rows x (n, p), w (n, q).

    unit : (n,) whose rows depend on each other: one unseen value enters many windows. open_at :
    slopes (p, q) -> V (n, q, q). Draws of the coefficients have the covariance of the estimating
    equations summed by unit (where units are few, their average factor over independence); those
    of the noise are inverse-Wishart with as many degrees of freedom as rows tell of it. Where
    nearly everything is unseen, noise and open variance cannot be told apart.
    """
    n, q = w.shape
    z = np.concatenate([np.ones((n, 1)), x], axis=1)
    sigma, open_variance = w.T @ w / n + 1e-9 * np.eye(q), np.zeros((n, q, q))
    for _ in range(ROUNDS):
        mean, _ = _regress(z, w, sigma + open_variance, sigma)
        open_variance = open_at(mean[1:])
        sigma = _noise_covariance(w - z @ mean, open_variance, sigma)
    mean, precision = _regress(z, w, sigma + open_variance, sigma)
    root = _root(z, w - z @ mean, np.linalg.inv(sigma + open_variance), unit, precision)
    free = root @ rng.standard_normal((mean.size, draws))
    coef = mean + (free - free.mean(1, keepdims=True)).T.reshape(draws, q, -1).swapaxes(1, 2)
    noise_variance = np.diagonal(sigma)
    information = (
        noise_variance / (noise_variance + np.diagonal(open_variance, axis1=1, axis2=2))
    ) ** 2
    df = max(float(information.sum(0).min()), 1.0)
    noise = stats.invwishart.rvs(df + q + 1, sigma * df, size=draws, random_state=rng)
    return _triangular(coef, np.asarray(noise).reshape(draws, q, q))


def _regress(z: Float2, w: Float2, cov: Float3, sigma: Float2) -> tuple[Float2, Float2]:
    """Return generalised least squares (1 + p, q) and its precision, columns stacked."""
    weight = np.linalg.inv(cov)
    p1, q = z.shape[1], w.shape[1]
    precision = np.empty((q, p1, q, p1))
    for i in range(q):
        for j in range(i + 1):
            precision[i, :, j] = (z * weight[:, i, j, None]).T @ z
            precision[j, :, i] = precision[i, :, j]
    right = np.einsum("na,nij,nj->ia", z, weight, w)
    flat = precision.reshape(q * p1, q * p1)
    prior = np.full(p1, PRIOR.slope_sd(p1 - 1) ** -2)
    prior[0] = PRIOR.intercept**-2
    flat = flat + np.kron(np.linalg.inv(sigma), np.diag(prior))
    return np.linalg.solve(flat, right.ravel()).reshape(q, p1).T, flat


def _root(z: Float2, miss: Float2, weight: Float3, unit: Int, precision: Float2) -> Float2:
    """Return a root of the coefficients' covariance, rows of a unit dependent."""
    score = np.einsum("nij,nj,na->nia", weight, miss, z).reshape(len(z), -1)
    _, code = np.unique(unit, return_inverse=True)
    total = np.zeros((code.max() + 1, score.shape[1]))
    np.add.at(total, code, score)
    inverse = np.linalg.inv(precision)
    cov = inverse @ (total.T @ total) @ inverse
    if len(total) < 2 * len(cov):  # too few units for a matrix of their own: one factor for all
        cov = inverse * max(float(np.trace(precision @ cov)) / len(cov), 1.0)
    value, vector = np.linalg.eigh((cov + cov.T) / 2.0)
    out: Float2 = vector * np.sqrt(np.maximum(value, 0.0))
    return out


def _noise_covariance(miss: Float2, open_variance: Float3, sigma: Float2) -> Float2:
    """Return S that maximises the likelihood of miss ~ N(0, S + open_variance), by EM."""
    floor = 1e-10 * np.diag((miss**2).mean(0)) + 1e-12 * np.eye(miss.shape[1])

    def step(s: Float2) -> Float2:
        gain = s @ np.linalg.inv(s + open_variance)
        guess = np.einsum("nij,nj->ni", gain, miss)
        spare = s - gain @ s
        out: Float2 = guess.T @ guess / len(miss) + spare.mean(0) + floor
        return out

    for _ in range(TURNS):
        once = step(sigma)
        twice = step(once)
        first, second = once - sigma, twice - once - (once - sigma)
        size = np.sqrt((first**2).sum() / max((second**2).sum(), 1e-300))
        # squared extrapolation: EM alone creeps where most rows are open
        leap = sigma + 2.0 * size * first + size**2 * second
        leap = (leap + leap.T) / 2.0
        safe = np.linalg.eigvalsh(leap).min() > floor.min()
        before, sigma = sigma, step(leap) if safe else twice
        if np.abs(sigma - before).max() < 1e-8 * np.abs(before).max():
            break
    return sigma


def _triangular(coef: Float3, noise: Float3) -> dict[str, Float]:
    """Turn reduced-form coefficients and covariances into coef, variance and link."""
    q = noise.shape[1]
    root = np.linalg.cholesky(noise)
    scale = np.diagonal(root, axis1=1, axis2=2)
    mix = np.linalg.inv(root / scale[:, None, :])  # T w = T (1, x) b + sqrt(variance) noise
    out = {"coef": coef @ np.swapaxes(mix, 1, 2), "variance": scale**2}
    if q > 1:
        row, column = np.tril_indices(q, -1)
        out["link"] = -mix[:, row, column]
    return out


# A fitted state space law: a linear law on filtered windows, plus what the filter leaves open.


@dataclass(frozen=True, eq=False)
class FilteredLaw(PosteriorLaw):
    """p^(W_t | all of S seen up to t); see :func:`state_space`.

    Means and mean draws are those of the linear law at the filtered window; draws of W add the
    variance that unseen lags leave open, at the posterior mean of the slopes.
    """

    @property
    def filtered(self) -> Filtered:
        """The summary: filtered lags."""
        if not isinstance(self.law.summary, Filtered):
            raise TypeError("FilteredLaw needs a Filtered summary.")
        return self.law.summary

    @cached_property
    def id(self) -> str:
        """Fingerprint of the emission and of the process of S."""
        digest = hashlib.sha256(super().id.encode())
        seen = self.filtered
        parts = (seen.process.ar, seen.process.ma, seen.process.noise, seen.mean, seen.scale)
        for value in parts:
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    @property
    def conditions(self) -> bool:
        """Rows with unseen inputs are answered."""
        return True

    @property
    def slope(self) -> Float2:
        """(p, w_dim) posterior mean of the emission's slopes, in raw units."""
        line = self.line
        if line is None:
            raise TypeError("FilteredLaw needs a linear emission.")
        return line[1]

    def __call__(self, source: Source, at: ArrayLike | None = None) -> FilteredConditional:
        """Return the law of W at rows, given all of S seen up to each; see PosteriorLaw."""
        source, at = by_action(source, at)
        names, label = self.schema.s_names, self.law.label
        if isinstance(source, History):
            self.schema.expect_s(source.schema, label, "the history has")
            x, open_variance, s = *filter_rows(self.filtered, source, self.slope), source.s
        else:
            series = series_of(source, names, label)
            x, open_variance = self.filtered.run(series, self.slope)
            x, s = x.reshape(-1, x.shape[-1]), series.reshape(-1, series.shape[-1])
            open_variance = open_variance.reshape(-1, *open_variance.shape[2:])
        rows = chosen(at, len(x))
        x, open_variance = x[rows], open_variance[rows]
        return FilteredConditional(self, lambda: (x, open_variance), s[rows])

    def follow(self, unit: str | None = None) -> KalmanFollower:  # type: ignore[override]
        """Start to follow a series online: O(state^2) a step."""
        return KalmanFollower(self)

    def __repr__(self) -> str:
        process = self.filtered.process
        return (
            super().__repr__()
            + f"\n  S: VARMA({len(process.ar)}, {len(process.ma)}) of "
            + f"{len(self.schema.s_names)} columns"
        )


class FilteredConditional(PosteriorConditional):
    """The law of W at rows whose lags are known only in part: what is open adds to the noise.

    window : gives the filtered windows (n, p) and the variance they leave open, (n, w_dim, w_dim);
    worked out when first needed. mean : (n, w_dim), where it is known already.
    """

    def __init__(
        self,
        law: FilteredLaw,
        window: Callable[[], tuple[Float2, Float3]],
        s: Float2,
        mean: Float2 | None = None,
    ) -> None:
        self.law, self.s = law, s
        self._window, self._mean = window, mean

    @cached_property
    def _rows(self) -> tuple[Float2, Float3]:
        return self._window()

    @property
    def x(self) -> Float2:  # type: ignore[override]
        """(n, p) the filtered windows."""
        return self._rows[0]

    @property
    def open_variance(self) -> Float3:
        """(n, w_dim, w_dim) the variance of E[W] that unseen lags leave open."""
        return self._rows[1]

    def mean(self) -> Float2:
        """Return E[W | all of S seen so far], (n, w_dim)."""
        return self.law.mean_at(self.x) if self._mean is None else self._mean

    def draws_of(self, index: Int, rng: np.random.Generator) -> Float3:
        """Draw W once for each posterior draw in ``index``, (len(index), n, w_dim)."""
        drawn = self.law.sample_at(self.x, index, rng)
        return drawn + _noise_draws(self.open_variance, len(index), rng)

    def covariance(self) -> Float3:
        """Return Cov(W | S_1:t), (n, w_dim, w_dim): noise, unseen lags and the posterior."""
        return super().covariance() + self.open_variance

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim), closed form given the draws."""
        w = self._beside(w)
        mean, sd = self._columns(self.law.some(CDF_DRAWS))
        out: Float2 = special.ndtr((w - mean) / sd).mean(0)
        return out

    def _columns(self, index: Int) -> tuple[Float3, Float3]:
        """Return E[W_j] and its sd given posterior draws, (len(index), n, w_dim) each."""
        scaler, kernel = self.law.scaler, LinearKernel(self.law.draws)
        mean = scaler.w_out(kernel.mean_draws(scaler.x_in(self.x), index))
        noise = (kernel.factor[index] ** 2).sum(-1) * scaler.w_scale**2
        return mean, np.sqrt(noise[:, None] + np.diagonal(self.open_variance, axis1=1, axis2=2))

    def log_density(self, w: Float2, *, draws: int = 200) -> Float2:
        """Return log p^(W_j = w_j | all seen so far), (n, w_dim); NaN where w is NaN."""
        each = self.column_log_densities(w, self.law.some(draws))
        out: Float2 = special.logsumexp(each, axis=0) - np.log(len(each))
        return out

    def column_log_densities(self, w: Float2, index: Int) -> Float3:
        """Return log p(W_j = w_j | all seen so far, draw), (len(index), n, w_dim)."""
        w = self._beside(w)
        mean, sd = self._columns(index)
        out: Float3 = -0.5 * (((w - mean) / sd) ** 2 + LOG_2PI) - np.log(sd)
        return out

    def joint_log_density(self, w: Float2, *, draws: int = 200) -> Float1:
        """Return log p^(W = w | all seen so far), (n,); NaN where one of w is NaN."""
        index = self.law.some(draws)
        total = np.full(len(self.x), -np.inf)
        for log_density in self._densities(self._beside(w), index):
            with np.errstate(invalid="ignore"):  # NaN where w is
                total = np.logaddexp(total, log_density)
        return np.asarray(total - np.log(len(index)))

    def log_densities(self, w: Float2, index: Int) -> Float2:
        """Return log p(W = w | all seen so far, draw), (len(index), n)."""
        return np.stack(list(self._densities(self._beside(w), index)))

    def _densities(self, w: Float2, index: Int) -> Iterator[Float1]:
        """Yield log p(w | all seen so far, draw), (n,), draw by draw."""
        kernel, scaler = LinearKernel(self.law.draws), self.law.scaler
        rows = scaler.x_in(self.x)
        for at in bar(index, label="log densities"):
            root = kernel.factor[at] * scaler.w_scale[:, None]
            mean = scaler.w_out(kernel.mean_draws(rows, at[None])[0])
            yield _normal(w - mean, self.open_variance + root @ root.T)


def filter_rows(seen: Filtered, history: History, slope: Float2) -> tuple[Float2, Float3]:
    """Return the filtered windows (rows, p) of an archive and what they leave open of W."""
    x = np.empty((len(history.s), seen.window.count * len(seen.mean)))
    open_variance = np.empty((len(history.s), slope.shape[1], slope.shape[1]))
    for block in history.blocks():
        windows, open_here = seen.run(block.s, slope)
        x[block.row[block.seen]] = windows[block.seen]
        open_variance[block.row[block.seen]] = open_here[block.seen]
    return x, open_variance


def _noise_draws(cov: Float3, size: int, rng: np.random.Generator) -> Float3:
    """Draw N(0, cov) for covariances (n, d, d) that may be singular: (size, n, d)."""
    value, vector = np.linalg.eigh(cov)
    root = vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]
    out: Float3 = np.einsum("nij,mnj->mni", root, rng.standard_normal((size, *cov.shape[:2])))
    return out


def _normal(off: Float2, cov: Float3) -> Float1:
    """Return log N(off; 0, cov), (n,), for off (n, d)."""
    square = (off * np.linalg.solve(cov, off[..., None])[..., 0]).sum(-1)
    out: Float1 = -0.5 * (square + np.linalg.slogdet(cov)[1] + off.shape[-1] * LOG_2PI)
    return out


class KalmanFollower:
    """One series as it unfolds: the state of its Kalman filter."""

    def __init__(self, law: FilteredLaw) -> None:
        self._law, seen = law, law.filtered
        self._top, start = seen.process.start(seen.memory)
        self._noise = seen.process.noise
        d = len(seen.mean)
        self._lags = self._top.shape[1] // d - len(seen.process.ma)
        self._at = slice(seen.window.start * d, (seen.window.start + seen.window.count) * d)
        self._state, self._cov = np.zeros(len(start)), start.copy()
        self._fresh = True
        self._now = np.full(d, np.nan)
        self._mean, self._scale = seen.mean, seen.scale
        # E[W] = level + state @ slope, in one product
        tile = np.tile(seen.scale, seen.window.count)
        level = law.line[0] if law.line is not None else 0.0
        self._level = level + np.tile(seen.mean, seen.window.count) @ law.slope
        self._slope = law.slope * tile[:, None]

    @property
    def now(self) -> Float1:
        """The newest S_t."""
        return self._now

    @property
    def conditional(self) -> FilteredConditional:
        """The law of W_t given all seen so far; it holds until the next push."""
        mean: Float1 = self._level + self._state[self._at] @ self._slope
        return FilteredConditional(self._law, self._open, self._now[None], mean[None])

    def _open(self) -> tuple[Float2, Float3]:
        open_variance = self._slope.T @ self._cov[self._at, self._at] @ self._slope
        return self.inputs()[None], open_variance[None]

    def push(self, s: Float1, w: Float1 | None = None) -> FilteredConditional:
        """Move on by one step and take in what is seen of S_t; W is of no use to this filter."""
        if not self._fresh:
            advance(self._state, self._cov, self._top, self._noise, self._lags)
        self._fresh = False
        self._now = np.array(s, np.float64)
        observe(self._state, self._cov, (self._now - self._mean) / self._scale)
        return self.conditional

    def inputs(self) -> Float1:
        """Return the filtered window."""
        count = self._law.filtered.window.count
        out: Float1 = self._state[self._at] * np.tile(self._scale, count)
        return out + np.tile(self._mean, count)

    def state(self) -> dict[str, Float]:
        """Return the filter's state, its covariance, the newest row, whether there is any."""
        fresh = np.array([float(self._fresh)])
        return {
            "state": self._state.copy(),
            "cov": self._cov.copy(),
            "now": self._now.copy(),
            "fresh": fresh,
        }

    def restore(self, state: Mapping[str, Float]) -> None:
        """Take over a filter's state."""
        self._state[:], self._cov[:] = state["state"], state["cov"]
        self._now, self._fresh = np.array(state["now"]), bool(state["fresh"][0])


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
    >>> archive = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = state_space(19, ma=0).fit(archive, seed=0)
    >>> s = np.where(np.arange(60)[:, None] < 30, archive.grid.s[:1], np.nan)  # lost half way
    >>> variance = law(s).covariance()[:, 0, 0]
    >>> bool(variance[-1] > 2 * variance[29])
    True
    """
    lags = as_summary(window, "state_space")
    if not isinstance(lags, Lags):
        raise SettingError(
            f"state_space: window must be a number of lags or Lags(...), but got {window!r}; the "
            "filter keeps lags of S, other summaries need another law."
        )
    moving = None if ma is None else whole(ma, "state_space: ma", 0)
    return StateSpace(lags, whole(ar, "state_space: ar", 0), moving, "state_space")


@dataclass(frozen=True)
class StateSpace:
    """A state space law, not yet fitted; see :func:`state_space`."""

    engines: ClassVar[tuple[type[Inference], ...]] = ()
    engine_reason: ClassVar[str] = "it fits itself, by maximum likelihood"
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
        self,
        history: History,
        how: Inference | None = None,
        *,
        seed: int,
        warm: object = None,
        draws: int = 1000,
    ) -> FilteredLaw:
        """Fit the process of S by maximum likelihood, and draw from the emission's posterior.

        Both use every row: S may be seen in part in the archive too. Rows whose window is not
        fully seen weigh less, by the variance the filter leaves open; the noise of W is then put
        at its maximum likelihood.
        """
        self._expect(history)
        choose_engine(how, self.engines, self.name, self.engine_reason)
        ma = self.ma if self.ma is not None else 2 if len(history.s_names) == 1 else 0
        whole(draws, "state_space: draws", 2)
        contexts = _moments(history)
        constant = contexts[1] <= 1e-9 * (np.abs(contexts[0]) + 1e-300)  # zero up to rounding
        mean, scale = contexts[0], np.where(constant, 1.0, contexts[1])
        standard = (history.s - mean) / scale
        standard[:, constant] *= 0.0  # rounding is no signal
        process, fit = fit_process(replace(history, s=standard), self.ar, ma, seed)
        seen = Filtered(self.window, process, mean, scale)
        family = LinearFamily("normal", Conjugate())
        law = Law(None, seen, self.name, family=family)
        raw = FitData.raw(history.rows(seen))
        kinds = [f"{s}.lag" for _ in self.window.names for s in history.s_names]
        data = raw.standardised(kinds)
        posterior = _emission(data, history, seen, draws, seed)
        record = FitRecord(
            f"state_space: maximum likelihood of VARMA({self.ar}, {ma}), Exact emission",
            int(seed),
            data.n,
            data.rows.dropped,
            {"log_likelihood": fit, "spectral_radius": process.radius}
            | left_out(history, seen, data),
        )
        return FilteredLaw(
            law=law,
            draws=posterior,
            card=None,
            scaler=data.scaler,
            inputs=data.inputs,
            record=record,
            units=history.clusters,
            schema=history.schema.with_moments(contexts),
        )

    def with_memory(self, kind: MemoryKind = "ar") -> RememberingLaw:
        """Return the law whose fit also learns how what it leaves of W persists.

        See ``laws.with_memory``.
        """
        return RememberingLaw(self, kind)

    def _expect(self, history: History) -> None:
        if not isinstance(history, History):
            raise DataError(
                f"{self.name}: a History was expected, but got {type(history).__name__}; make one "
                "with History.from_frame, and pass one part of a split."
            )


def _moments(history: History) -> Float2:
    """Return mean and sd of S over what is seen, (2, s_dim)."""
    s = history.s
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
        open_variance = filter_rows(seen, history, raw)[1][rows.at]
        return open_variance / np.outer(scaler.w_scale, scaler.w_scale)

    if not open_at(np.ones((data.x.shape[1], data.w_dim))).max() > 1e-12:
        return exact_draws(data.full, data.w_dim, Conjugate(), draws, rng)
    return draw_emission(data.x, data.w, rows.unit, open_at, draws, rng)
