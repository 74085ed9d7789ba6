"""Gaussian process law: W_t a smooth unknown function of a summary of S_1:t, plus noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.fit import Fit
from pulse_pyro._pyro.inference import Ensemble, Exact, Inference, Laplace
from pulse_pyro.arrays import Float, Float2, Float3, Int, whole
from pulse_pyro.errors import ModelError
from pulse_pyro.laws.data import FitData, run_model
from pulse_pyro.laws.gp_checks import basis_quality
from pulse_pyro.laws.gp_model import FLOOR, gp_model, marginal_energy, marginal_model
from pulse_pyro.laws.gp_weights import draw_corrected, draw_weights, starts
from pulse_pyro.laws.hilbert import JOINT, Hilbert
from pulse_pyro.laws.law import Law, Unseen
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.laws.scaling import Moments
from pulse_pyro.laws.unseen import CHUNK
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Summary, as_summary

PILOT = 3000  # rows that suggest a length scale
MOST = 3000  # columns of the basis: beyond this one factorisation takes seconds


def gaussian_process(summary: int | Summary, *, basis: int | None = None) -> Law:
    """Return a law in which E[W_t | x] = b_0 + b'x + f(x), f a Gaussian process.

    Parameters
    ----------
    summary : number of lags, the current S_t included, or a summary.
    basis : functions an input (40, 16^2, 8^3 for one, two, three inputs; 24 each beyond).

    The process is squared-exponential with one length scale an input, in a Hilbert-space basis
    (see ``hilbert``): joint for up to three inputs, additive beyond, where interactions between
    inputs are NOT modelled. Several W have a process each and correlated residuals. Laplace (the
    default) finds the maximum of the marginal likelihood of amplitude, length scales and noise with
    their prior, and draws them around it, corrected by importance; Nuts samples them; the weights
    follow in closed form.
    Inputs that are NaN at prediction time are averaged over given the seen ones. Not covered:
    residuals that depend on x or, within a unit, on each other; functions with jumps or kinks,
    which it smooths; contexts far beyond the archive, where only the straight line goes on.
    """
    seen = as_summary(summary, "gaussian_process")
    size = None if basis is None else whole(basis, "gaussian_process: basis", 2)
    return Law(None, seen, "gaussian_process", family=GPFamily(size))


@dataclass(frozen=True)
class GPFamily:
    """The closed forms of the Gaussian process law."""

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

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        box = None if self.box is None else asdict(self.box)
        plain = None if box is None else {k: list(v) if k != "size" else v for k, v in box.items()}
        return {"family": "gaussian_process", "size": self.size, "box": plain}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> GPFamily:
        """Rebuild from :meth:`spec`."""
        box = spec["box"]
        if box is None:
            return GPFamily(spec["size"])
        low, high, reach = (tuple(box[name]) for name in ("low", "high", "reach"))
        return GPFamily(spec["size"], Hilbert(low, high, box["size"], reach))

    def resolve(self, data: FitData) -> GPFamily:
        """Put the box around the rows, wide enough for the length scale a few of them suggest."""
        box = Hilbert.around(data.x, self.size)
        if box.columns > MOST:
            most = int(MOST ** (1 / box.p)) if box.p <= JOINT else MOST // box.p
            raise ModelError(
                f"gaussian_process: {box.size} functions for each of {box.p} inputs make "
                f"{box.columns} columns (limit {MOST}); ask for basis={most} or use fewer lags."
            )
        some = stream(0, "pilot").permutation(data.n)[:PILOT]
        pilot = starts(box, box.gram(data.x[some], data.w[some]), data.w_dim)
        return replace(self, box=box.widened(pilot["length"].max(0)))

    @property
    def default(self) -> Inference:
        """Marginal likelihood."""
        return Laplace()

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
        if isinstance(how, Exact | Ensemble):
            raise ModelError(
                f"gaussian_process: {type(how).__name__}() does not suit it: its length scales "
                "have no closed form; use Laplace() (marginal likelihood) or Nuts()."
            )
        basis = self.basis
        gram = basis.gram(data.x, data.w)
        card, found = run_model(
            self.model(basis.p, data.w_dim), data, how, seed, label="gaussian_process",
            short=marginal_model(basis, gram, data.w_dim),
            energy=marginal_energy(basis, gram, data.w_dim),
            start=starts(basis, gram, data.w_dim),
        )  # fmt: skip
        quality, rng = dict(found.quality), stream(seed, "weights")
        if isinstance(how, Laplace):
            own = quality["pareto_k"]
            draws, quality["pareto_k"] = draw_corrected(basis, gram, found.draws, rng, own)
        else:
            draws = draw_weights(basis, gram, found.draws, rng)
        quality |= basis_quality(basis, gram, data, draws, stream(seed, "basis"))
        if np.array_equal(draws["length"], found.draws["length"]):
            return card, replace(found, draws=draws, quality=quality)
        return card, Fit(draws, quality, found.losses)  # no longer chain after chain

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

    def mean(self, x: Float2 | Moments) -> Float2:
        """Return E[w | x], (n, w_dim), at rows (n, p) or over inputs known by their moments."""
        return np.concatenate([self.linear.mean(z) for z, _ in self._blocks(x)])

    def mean_draws(self, x: Float2 | Moments, index: Int) -> Float3:
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

    def _blocks(self, x: Float | Moments) -> Iterator[tuple[Float, slice]]:
        if isinstance(x, Moments):
            rows = max(CHUNK // (8 * self.columns), 1)  # complex, and an exponent beside
            for start in range(0, len(x.mean), rows):
                at = slice(start, start + rows)
                yield self.basis.expected(x.mean[at], x.cov[at]), at
            return
        rows = max(CHUNK // (self.columns * (len(x) if x.ndim == 3 else 1)), 1)
        for start in range(0, max(x.shape[-2], 1), rows):
            at = slice(start, start + rows)
            yield self.basis.design(x[..., at, :]), at
