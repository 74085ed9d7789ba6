"""Gaussian process law: W_t a smooth unknown function of a summary of S_1:t, plus noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from pulse_pyro._core.arrays import Float, Float2, Float3, Int, whole
from pulse_pyro._core.errors import ModelError
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Fit, Inference, Laplace, Nuts, Svi
from pulse_pyro.base import ModelCard, Summary
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import as_summary
from pulse_pyro.laws.conjugate import LinearKernel
from pulse_pyro.laws.generalised import check_kind, declared
from pulse_pyro.laws.gp_weights import (
    FLOOR,
    PILOT,
    basis_quality,
    box_around,
    box_from,
    box_spec,
    draw_corrected,
    draw_weights,
    gp_model,
    marginal_energy,
    marginal_model,
    starts,
)
from pulse_pyro.laws.hilbert import Hilbert
from pulse_pyro.laws.law import FitData, Law, Unseen, run_model
from pulse_pyro.laws.linked_gp import LinkedGPFamily
from pulse_pyro.laws.responses import ResponseKind
from pulse_pyro.laws.scaling import CHUNK, InputMoments


def gaussian_process(
    summary: int | Summary,
    *,
    basis: int | None = None,
    kind: ResponseKind | Literal["normal"] | None = None,
) -> Law:
    """Return a law in which E[W_t | x] = b_0 + b'x + f(x), f a Gaussian process.

    Parameters
    ----------
    summary : number of lags, the current S_t included, or a summary.
    basis : functions an input (40, 16^2, 8^3 for one, two, three inputs; 24 each beyond).
    kind : of one W column that is no plain number, as in ``generalised_lags``: "bernoulli",
        "ordinal", "categorical", "poisson", "negative_binomial", "beta"; None: as its column is
        declared, numbers where it is not; "normal": numbers, whatever is declared.

    The process is squared-exponential with one length scale an input, in a Hilbert-space basis
    (see ``hilbert``): joint for up to three inputs, additive beyond, where interactions between
    inputs are NOT modelled. Several W have a process each and correlated residuals. Laplace (the
    default) finds the maximum of the marginal likelihood of amplitude, length scales and noise with
    their prior, and draws them around it, corrected by importance; Nuts samples them; the weights
    follow in closed form.
    Inputs that are NaN at prediction time are averaged over given the seen ones. Not covered:
    residuals that depend on x or, within a unit, on each other; functions with jumps or kinks,
    which it smooths; contexts far beyond the archive, where only the straight line goes on.

    With a ``kind``, the line and the process stand behind its link, eta = b_0 + b'x + f(x); see
    ``laws.linked_gp`` for priors and what is not covered. E[Phi] of W of finitely many values is
    then their exact sum given the posterior draws, for any Phi.
    """
    seen = as_summary(summary, "gaussian_process")
    size = None if basis is None else whole(basis, "gaussian_process: basis", 2)
    if kind is not None and kind != "normal":
        linked = LinkedGPFamily(check_kind(kind, "gaussian_process"), size)
        return Law(None, seen, "gaussian_process", family=linked)
    return Law(None, seen, "gaussian_process", family=GPFamily(size, numbers=kind == "normal"))


@dataclass(frozen=True)
class GPFamily:
    """The closed forms of the Gaussian process law.

    numbers : whether W is a number even where its column is declared as something else.
    """

    engines: ClassVar[tuple[type[Inference], ...]] = (Laplace, Nuts, Svi)
    engine_reason: ClassVar[str] = "its length scales have no closed form"
    linear: ClassVar[bool] = False
    uses_holes: ClassVar[bool] = False
    unseen: ClassVar[Unseen] = "conditioned on"
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "amplitude": ("output", "process"),
        "length": ("output", "input"),
        "variance": ("output",),
        "coef": ("column", "output"),
    }
    size: int | None
    box: Hilbert | None = None
    numbers: bool = False

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        own = {"size": self.size, "box": box_spec(self.box), "numbers": self.numbers}
        return {"family": "gaussian_process", **own}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> Any:
        """Rebuild from :meth:`spec`, also what stands behind a link."""
        if "kind" in spec:
            return LinkedGPFamily.from_spec(spec)
        return GPFamily(spec["size"], box_from(spec["box"]), spec.get("numbers", False))

    def settle(self, data: FitData, history: History) -> tuple[FitData, GPFamily | LinkedGPFamily]:
        """Go behind a link where the one W column is declared to be no plain number."""
        if self.numbers or not declared(history):
            return data, self.resolve(data)
        return LinkedGPFamily(None, self.size).settle(data, history)

    def resolve(self, data: FitData) -> GPFamily:
        """Put the box around the rows, wide enough for the length scale a few of them suggest."""
        box = box_around(data.x, self.size)
        some = stream(0, "pilot").permutation(data.n)[:PILOT]
        pilot = starts(box, box.gram(data.x[some], data.w[some]), data.w_dim)
        return replace(self, box=box.widened(pilot["length"].max(0)))

    @property
    def basis(self) -> Hilbert:
        """The basis, once the box is known."""
        if self.box is None:
            raise ModelError("gaussian_process: its basis is known only once it has met data.")
        return self.box

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model."""
        return gp_model(self.basis, w_dim)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Run the engine on the few parameters, then draw the weights given them."""
        basis = self.basis
        gram = basis.gram(data.x, data.w)
        card, engine_fit = run_model(
            self.model(basis.p, data.w_dim),
            data,
            how,
            seed,
            label="gaussian_process",
            short=marginal_model(basis, gram, data.w_dim),
            energy=marginal_energy(basis, gram, data.w_dim),
            start=starts(basis, gram, data.w_dim),
        )
        quality, rng = dict(engine_fit.quality), stream(seed, "weights")
        if isinstance(how, Laplace):
            gaussian_shape = quality["pareto_k"]
            draws, quality["pareto_k"] = draw_corrected(
                basis, gram, engine_fit.draws, rng, gaussian_shape
            )
        else:
            draws = draw_weights(basis, gram, engine_fit.draws, rng)
        quality |= basis_quality(basis, gram, data, draws, stream(seed, "basis"))
        if np.array_equal(draws["length"], engine_fit.draws["length"]):
            return card, replace(engine_fit, draws=draws, quality=quality)
        return card, Fit(draws, quality, engine_fit.losses)  # no longer chain after chain

    def kernel(self, draws: Mapping[str, Float]) -> GPKernel:
        """NumPy prediction."""
        return GPKernel(self.basis, draws)


class GPKernel:
    """A linear kernel on the columns (x, phi), a block of rows at a time."""

    exact_mean = True
    takes_moments = True

    def __init__(self, basis: Hilbert, draws: Mapping[str, Float]) -> None:
        noisy = {**draws, "variance": draws["variance"] + FLOOR}
        self.basis, self.linear = basis, LinearKernel(noisy)
        self.count, self.columns = self.linear.count, basis.p + basis.columns

    def mean(self, x: Float2 | InputMoments) -> Float2:
        """Return E[w | x], (n, w_dim), at rows (n, p) or over inputs known by their moments."""
        return np.concatenate([self.linear.mean(z) for z, _ in self._blocks(x)])

    def mean_draws(self, x: Float2 | InputMoments, index: Int) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim), at rows or over inputs with moments."""
        return np.concatenate(
            [self.linear.mean_draws(z, index) for z, _ in self._blocks(x)], axis=1
        )

    def sample(self, x: Float2 | Float3, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), once per entry of ``index``."""
        parts = [self.linear.sample(z, index, rng) for z, _ in self._blocks(x)]
        return np.concatenate(parts, axis=1)

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, draw), (len(index), n)."""
        parts = [self.linear.log_density(z, w[at], index) for z, at in self._blocks(x)]
        return np.concatenate(parts, axis=1)

    def column_log_density(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return log p(w_j | x, draw), (len(index), n, w_dim)."""
        parts = [self.linear.column_log_density(z, w[at], index) for z, at in self._blocks(x)]
        return np.concatenate(parts, axis=1)

    def _blocks(self, x: Float | InputMoments) -> Iterator[tuple[Float, slice]]:
        if isinstance(x, InputMoments):
            rows = max(CHUNK // (8 * self.columns), 1)  # complex, and an exponent beside
            for start in range(0, len(x.mean), rows):
                at = slice(start, start + rows)
                yield self.basis.expected(x.mean[at], x.cov[at]), at
            return
        rows = max(CHUNK // (self.columns * (len(x) if x.ndim == 3 else 1)), 1)
        for start in range(0, max(x.shape[-2], 1), rows):
            at = slice(start, start + rows)
            yield self.basis.design(x[..., at, :]), at
