"""Gaussian process law: W_t a smooth unknown function of a summary of S_1:t, plus noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.fit import Fit
from pulse_pyro._pyro.inference import Ensemble, Exact, Inference, Laplace
from pulse_pyro.arrays import Float, Float2, Float3, Int, whole
from pulse_pyro.errors import ModelError
from pulse_pyro.laws.data import FitData, run_model
from pulse_pyro.laws.gp_model import draw_weights, gp_model, marginal_energy, marginal_model
from pulse_pyro.laws.hilbert import JOINT, Hilbert
from pulse_pyro.laws.law import Law, Unseen
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Lags, Summary

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
    default) puts amplitude, length scales and noise at the maximum of the marginal likelihood with
    their prior, and draws them around it; Nuts samples them; the weights follow in closed form.
    Inputs that are NaN at prediction time are averaged over given the seen ones. Not covered:
    residuals that depend on x or, within a unit, on each other; functions with jumps or kinks,
    which it smooths; beyond the range of the archive, where only the straight line goes on.
    """
    seen = Lags(int(summary)) if isinstance(summary, int | np.integer) else summary
    size = None if basis is None else whole(basis, "gaussian_process: basis", 2)
    return Law(None, seen, "gaussian_process", family=GPFamily(size))


@dataclass(frozen=True)
class GPFamily:
    """The closed forms of the Gaussian process law."""

    size: int | None
    box: Hilbert | None = None

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        box = self.box
        data = None if box is None else {"low": box.low, "high": box.high, "size": box.size}
        return {"family": "gaussian_process", "size": self.size, "box": data}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> GPFamily:
        """Rebuild from :meth:`spec`."""
        box = spec["box"]
        if box is None:
            return GPFamily(spec["size"])
        return GPFamily(spec["size"], Hilbert(tuple(box["low"]), tuple(box["high"]), box["size"]))

    def resolve(self, data: FitData) -> GPFamily:
        """Put the box around the rows."""
        box = Hilbert.around(data.x, self.size)
        if box.columns > MOST:
            way = f"at most {int(MOST ** (1 / box.p))}" if box.p <= JOINT else "fewer, or less lags"
            raise ModelError(
                f"gaussian_process: {box.size} functions for each of {box.p} inputs make "
                f"{box.columns} columns (limit {MOST}); ask for basis={way}."
            )
        return replace(self, box=box)

    @property
    def default(self) -> Inference:
        """Marginal likelihood."""
        return Laplace()

    @property
    def unseen(self) -> Unseen:
        """Averaged over given the seen ones."""
        return "conditioned on"

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
        )  # fmt: skip
        draws = draw_weights(basis, gram, found.draws, stream(seed, "weights"))
        needed = basis.needed(np.median(draws["length"], axis=0).min(0))
        quality = found.quality | {"basis": float(needed.max() / basis.size)}
        return card, Fit(draws, quality, found.losses)

    def kernel(self, draws: Mapping[str, Float]) -> GPKernel:
        """NumPy prediction."""
        return GPKernel(self.basis, draws)


class GPKernel:
    """A linear kernel on the columns (x, phi)."""

    exact_mean = True

    def __init__(self, basis: Hilbert, draws: Mapping[str, Float]) -> None:
        self.basis, self.linear = basis, LinearKernel(draws)
        self.count = self.linear.count

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x]: (n, w_dim)."""
        return self.linear.mean(self.basis.design(x))

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, draw]: (len(index), n, w_dim)."""
        return self.linear.mean_draws(self.basis.design(x), index)

    def sample(self, x: Float2 | Float3, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), once per entry of ``index``."""
        return self.linear.sample(self.basis.design(x), index, rng)
