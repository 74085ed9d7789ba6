"""A fitted law: posterior draws as arrays, and what can be asked of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro.arrays import Bool, Float, Float1, Float2, Float3, Float4, Int, whole
from pulse_pyro.errors import ModelError
from pulse_pyro.laws.follow import Follower, Window
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.laws.record import FitRecord as FitRecord
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from pulse_pyro.laws.score import check_series, check_shape, density_draws, log_score
from pulse_pyro.laws.unseen import CHUNK, average

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.history import History
    from pulse_pyro.laws.law import Kernel, Law
    from pulse_pyro.summary import Summary
    from pulse_pyro.tree import Bounds


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """p^(W_t | S_1:t): the mixture over stored posterior draws of a law.

    Attributes
    ----------
    law : the law that was fitted.
    draws : global site -> (draw, *site shape), in the law's own units.
    card : the contract check's findings (None after Exact, which runs no Pyro).
    scaler, inputs : units, and the moments used to condition on unseen inputs.
    contexts : (2, s_dim) mean and sd of S in the archive.
    record : engine, seed, quality.
    fit_units : the units it has seen; calibration refuses to meet them again.

    The law is as good as its model: nothing here checks that W given S really follows it.
    """

    law: Law
    draws: Mapping[str, Float]
    card: ModelCard | None
    scaler: Scaler
    inputs: GaussianInputs
    contexts: Float2
    record: FitRecord
    fit_units: tuple[str, ...]
    s_names: tuple[str, ...]
    w_names: tuple[str, ...]

    def __post_init__(self) -> None:
        kept = {name: np.array(value, np.float64) for name, value in self.draws.items()}
        for value in kept.values():
            value.flags.writeable = False
        object.__setattr__(self, "draws", MappingProxyType(kept))

    @property
    def summary(self) -> Summary:
        """What the law looks at: the summary of the past of S."""
        return self.law.summary

    @cached_property
    def kernel(self) -> Kernel:
        """Prediction in model units."""
        if self.law.family is not None:
            return self.law.family.kernel(self.draws)
        from pulse_pyro._pyro.predict import PyroKernel

        if self.card is None:
            raise ModelError(f"{self.law.label}: a custom law cannot predict without its card.")
        model = self.law.model_for(self.card.x_dim, self.card.w_dim)
        return PyroKernel(model, self.draws, self.card)

    @cached_property
    def law_id(self) -> str:
        """Fingerprint of the family, the summary, the columns, the units and every draw.

        A custom model's code is not part of it.
        """
        family = self.law.family.spec() if self.law.family is not None else self.law.unseen
        about = (family, self.law.summary.names, self.s_names, self.w_names)
        digest = hashlib.sha256(repr(about).encode())
        units = {f"units {key}": value for key, value in vars(self.scaler).items()}
        inputs = {f"inputs {key}": value for key, value in vars(self.inputs).items()}
        for name, value in sorted((dict(self.draws) | units | inputs).items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def mean(self, s: Float3) -> Float3:
        """Return E[W_t | S_1:t] at every t: (batch, time, s_dim) -> (batch, time, w_dim).

        Rows with an unseen input are answered where the law allows it (see :attr:`conditions`);
        otherwise they are NaN, here and in every method below.
        """
        return self._mean(self._inputs(s)).reshape(*np.shape(s)[:-1], -1)

    def mean_now(self, past: Float2) -> Float1:
        """Return E[W_t | past] for the last row of past (time, s_dim): (w_dim,)."""
        x = self.newest(past)
        if self._line is not None:
            out: Float1 = self._line[0] + x @ self._line[1]
            if out[0] == out[0]:  # NaN in, NaN out: only then is there something to condition on
                return out
        mean: Float1 = self._mean(x[None])[0]
        return mean

    def mean_draws(self, s: Float3, draws: int, *, rng: np.random.Generator) -> Float4:
        """Return posterior draws of E[W_t | S_1:t]: (draws, batch, time, w_dim)."""
        index = self._pick(draws, rng)
        out = self.mean_draws_at(self._inputs(s), index)
        return out.reshape(draws, *np.shape(s)[:-1], -1)

    def mean_draws_at(self, x: Float2, index: Int) -> Float3:
        """Return E[W | x] of chosen draws, (len(index), n, w_dim), at rows x (n, p)."""
        if self._line is not None:
            x = self.inputs.fill(x)
        return self._at(x, lambda rows: self.kernel.mean_draws(rows, index), len(index))

    def sample(self, s: Float3, size: int, *, rng: np.random.Generator) -> Float4:
        """Draw W_t given S_1:t at every t: (size, batch, time, w_dim).

        Each draw uses one posterior draw; unseen inputs are drawn given the seen ones.
        """
        x, index = self._inputs(s), self._pick(size, rng)
        return self._sample(x, index, rng).reshape(size, *np.shape(s)[:-1], -1)

    def sample_now(self, past: Float2, size: int, *, rng: np.random.Generator) -> Float2:
        """Draw W_t given the past (time, s_dim), for its last row: (size, w_dim)."""
        return self._sample(self.newest(past)[None], self._pick(size, rng), rng)[:, 0]

    def predict_rows(
        self, x: Float2, size: int, *, rng: np.random.Generator
    ) -> tuple[Float2, Float3]:
        """Return E[W], (n, w_dim), and draws of W, (size, n, w_dim), at summary rows x (n, p)."""
        return self._mean(x), self._sample(x, self._pick(size, rng), rng)

    def predict_where(
        self, s: Float3, where: Bool, size: int, *, rng: np.random.Generator
    ) -> tuple[Float2, Float3]:
        """Return E[W] and draws of W as ``predict_rows``, where (batch, time) is True."""
        return self.predict_rows(self.summary(s)[where], size, rng=rng)

    def sample_where(
        self, s: Float3, where: Bool, index: Int, *, rng: np.random.Generator
    ) -> Float3:
        """Draw W once for each posterior draw in ``index``, (len(index), n, w_dim), where True."""
        return self._sample(self.summary(s)[where], index, rng)

    def log_density_where(self, s: Float3, w: Float3, where: Bool, index: Int) -> Float2:
        """Return log p(W_t = w_t | S_1:t, draw), (len(index), n), where (batch, time) is True."""
        return density_draws(self, self.summary(s)[where], w[where], index)

    def log_density(self, s: Float3, w: Float3, *, draws: int = 200) -> Float2:
        """Return log p^(W_t = w_t | S_1:t), (batch, time), averaged over stored draws.

        The log score of the law at held-out w (batch, time, w_dim). NaN where w is NaN, or an
        input is not seen and the law has not learned to do without.
        """
        series = self._series(s)
        check_shape(self, series, w)
        return log_score(self, series, np.asarray(w, np.float64), draws)

    def follow(self) -> Follower:
        """Start to follow a series online."""
        return Window(self)

    @property
    def conditions(self) -> bool:
        """Whether rows with unseen inputs are answered: see ``law.unseen``."""
        return self.law.unseen != "refused"

    @property
    def exact_mean(self) -> bool:
        """Whether E[W | S_1:t] is closed form given the draws, free of further Monte Carlo."""
        return self.kernel.exact_mean

    @cached_property
    def _line(self) -> tuple[Float1, Float2] | None:
        """Intercept (w_dim,) and slopes (p, w_dim) of E[W | x] in raw units, if it is affine."""
        if not isinstance(self.kernel, LinearKernel):
            return None
        coef = self.kernel.mean_coef
        slope = coef[1:] * self.scaler.w_scale / self.scaler.x_scale[:, None]
        return self.scaler.w_out(coef[0]) - self.scaler.x_mean @ slope, slope

    def _mean(self, x: Float2) -> Float2:
        if self._line is not None:
            return self._line[0] + self.inputs.fill(x) @ self._line[1]
        mean: Float2 = self._at(x, lambda rows: self.kernel.mean(rows)[None], 1)[0]
        return mean

    def _sample(self, x: Float2, index: Int, rng: np.random.Generator) -> Float3:
        size = len(index)
        short = np.flatnonzero(np.isnan(x.sum(-1)))
        if self.law.unseen != "conditioned on" or not len(short):
            return self._at(x, lambda rows: self.kernel.sample(rows, index, rng), size)
        out = np.empty((size, len(x), len(self.w_names)))
        seen = np.setdiff1d(np.arange(len(x)), short)
        if len(seen):
            out[:, seen] = self.kernel.sample(self.scaler.x_in(x[seen]), index, rng)
        block = max(CHUNK // (size * self.kernel.columns), 1)  # completions of a row: (size, p)
        for start in range(0, len(short), block):
            rows = short[start : start + block]
            filled = self.scaler.x_in(self.inputs.draw(x[rows], size, rng))
            out[:, rows] = self.kernel.sample(filled, index, rng)
        return self.scaler.w_out(out)

    def _at(self, x: Float2, predict: Callable[[Any], Float3], size: int) -> Float3:
        """Predict (size, n, w_dim) in raw units from rows x (n, p), some of which may hold NaN."""
        hole = np.isnan(x.sum(-1))
        if self.law.unseen == "learned" or not hole.any():
            return self.scaler.w_out(predict(self.scaler.x_in(x)))
        out = np.full((size, len(x), len(self.w_names)), np.nan)
        if not hole.all():
            out[:, ~hole] = predict(self.scaler.x_in(x[~hole]))
        if getattr(self.kernel, "takes_moments", False):
            rows = np.flatnonzero(hole)
            block = max(CHUNK // x.shape[1] ** 2, 1)  # a covariance for each row
            for start in range(0, len(rows), block):
                at = rows[start : start + block]
                unseen = self.scaler.moments_in(self.inputs.moments(x[at]))
                out[:, at] = predict(unseen)
        elif self.law.unseen == "conditioned on":
            out[:, hole] = average(
                x[hole], self.inputs, lambda rows: predict(self.scaler.x_in(rows)), size,
                self.kernel.columns,
            )  # fmt: skip
        return self.scaler.w_out(out)

    def newest(self, past: Float2) -> Float1:
        """Return x (p,) of the last row of past (time, s_dim); rows before its first are unseen."""
        short = self.law.summary.memory - len(past)
        if short > 0:
            past = np.concatenate([np.full((short, past.shape[1]), np.nan), past])
        return self.law.summary.last(past)

    def _series(self, s: Float3) -> Float3:
        return check_series(self, s)

    def _inputs(self, s: Float3) -> Float2:
        x = self.law.summary(self._series(s))
        return x.reshape(-1, x.shape[-1])

    def _pick(self, size: int, rng: np.random.Generator) -> Int:
        """Choose posterior draws: each equally often, in random order."""
        whole(size, f"{self.law.label}: the number of draws", 1)
        count = self.kernel.count
        return np.concatenate([rng.permutation(count) for _ in range(-(-size // count))])[:size]

    @property
    def table(self) -> DataFrame:
        """Posterior mean and sd of the parameters, see :func:`laws.table.parameters`."""
        from pulse_pyro.laws.table import parameters

        return parameters(self)

    def to_arviz(
        self, history: History | None = None, *, seed: int = 0, size: int = 500,
        calibration: Bounds | None = None,
    ) -> Any:  # fmt: skip
        """Return the posterior for ArviZ, and predictions of a history's W; see ``tree``."""
        from pulse_pyro.tree import to_tree

        return to_tree(self, history, seed=seed, size=size, calibration=calibration)

    def __repr__(self) -> str:
        quality = ", ".join(f"{k} {v:.3g}" for k, v in self.record.quality.items())
        shapes = ", ".join(f"{k}{list(v.shape[1:])}" for k, v in self.draws.items())
        return (
            f"FittedLaw {self.law.label}: {', '.join(self.w_names)} given "
            f"{', '.join(self.s_names)} ({', '.join(self.law.summary.names[:4])}"
            f"{', ...' if len(self.law.summary.names) > 4 else ''})\n"
            f"  {self.record.inference}, seed {self.record.seed}: {self.record.rows} rows of "
            f"{len(self.fit_units)} units, {self.record.dropped} incomplete rows left out\n"
            f"  draws: {shapes}" + (f"\n  quality: {quality}" if quality else "")
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(float_format='{:.4g}'.format)}"
