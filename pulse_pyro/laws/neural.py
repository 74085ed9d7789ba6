"""Neural conditional density: W_t given x is a mixture of Gaussians whose parameters x decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.fit import Fit
from pulse_pyro._pyro.inference import Ensemble, Inference
from pulse_pyro.arrays import Bool, Float, share, whole
from pulse_pyro.errors import DataError, ModelError
from pulse_pyro.laws.data import FitData
from pulse_pyro.laws.law import Law, Unseen
from pulse_pyro.laws.neural_kernel import NeuralKernel, with_mask
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Summary, as_summary

if TYPE_CHECKING:
    from pulse_pyro._pyro.network import Shape

ENOUGH, ENOUGH_SHARE = 30, 0.005  # rows that lack an input, at least, to learn to do without it


def neural_density(
    summary: int | Summary, *, components: int = 6, width: int = 64, depth: int = 2,
    masking: float = 0.0,
) -> Law:  # fmt: skip
    """Return a law in which W_t given x is a mixture of Gaussians with a network's parameters.

    Parameters
    ----------
    summary : number of lags, the current S_t included, or a summary.
    components : Gaussians in the mixture, each with a full covariance over several W.
    width, depth : of the hidden layers.
    masking : share of inputs hidden at random while training, in half of the rows. Where it is
        positive, or the archive has rows that lack an input, the network also sees which inputs
        are missing and learns from such rows (x_obs, mask). Inputs it has seen missing may be
        missing later; a row that lacks another one is refused.

    Fitted by Ensemble(): networks from different starts, each stopped by its log score on units
    held out inside the fit; their spread is the law's epistemic uncertainty (``mean_draws``). The
    mean is closed form. Not covered: an ensemble's spread is no posterior and tends to be too
    small far from the archive; combinations of missing inputs that were never seen in training.
    ``held_out_score`` is the best of many looks, averaged over networks: it flatters.
    """
    whole(components, "neural_density: components", 1)
    whole(width, "neural_density: width", 1)
    whole(depth, "neural_density: depth", 1)
    hidden = share(masking, "neural_density: masking", zero=True)
    seen = as_summary(summary, "neural_density")
    family = NeuralFamily(components, width, depth, hidden)
    return Law(None, seen, "neural_density", family=family)


@dataclass(frozen=True)
class NeuralFamily:
    """Sizes of the networks and how they are trained and asked.

    missable, most : for each input, whether training sees it missing, and how many at once;
        settled by the archive. Where any is, masks are inputs too; a row that lacks another
        input, or more of them, is refused.
    """

    uses_holes: ClassVar[bool] = True
    components: int
    width: int
    depth: int
    masking: float
    missable: tuple[bool, ...] = ()
    most: int = 0

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        return {"family": "neural_density", **vars(self), "missable": list(self.missable)}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> NeuralFamily:
        """Rebuild from :meth:`spec`."""
        plain = {name: value for name, value in spec.items() if name != "family"}
        return NeuralFamily(**{**plain, "missable": tuple(plain["missable"])})

    def resolve(self, data: FitData) -> NeuralFamily:
        """Note which inputs training will see missing, in enough rows to learn from."""
        hole = np.isnan(data.rows.x)
        p = hole.shape[1]
        if self.masking > 0:
            return replace(self, missable=(True,) * p, most=p)
        enough = max(ENOUGH, ENOUGH_SHARE * data.n)
        missable = hole.sum(0) >= enough
        at_once = (hole & missable).sum(1)
        often = [k for k in range(p + 1) if (at_once >= k).sum() >= enough]
        return replace(self, missable=tuple(map(bool, missable)), most=max(often, default=0))

    @property
    def masked(self) -> bool:
        """Whether masks are inputs too."""
        return any(self.missable)

    @property
    def default(self) -> Inference:
        """Five networks."""
        return Ensemble()

    @property
    def unseen(self) -> Unseen:
        """Learned from masks where there is something to learn from."""
        return "learned" if self.masked else "refused"

    def shape(self, p: int, w_dim: int) -> Shape:
        """Sizes for p inputs."""
        from pulse_pyro._pyro.network import Shape

        inputs = 2 * p if self.masked else p
        return Shape(inputs, w_dim, self.components, self.width, self.depth)

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Bayesian network as a Pyro model."""
        from pulse_pyro._pyro.network import network_model

        masked = self.masked

        def inputs_of(x: Any) -> Any:
            import torch

            return torch.as_tensor(with_mask(x.numpy())) if masked else x

        return network_model(self.shape(p, w_dim), inputs_of)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Train the ensemble."""
        from pulse_pyro._pyro.network import train

        if not isinstance(how, Ensemble):
            raise ModelError(
                f"neural_density: {type(how).__name__}() does not suit thousands of weights; use "
                "Ensemble()."
            )
        held = _held_out(data, how, seed)
        shape = self.shape(data.x.shape[1], data.w_dim)
        # a gap too rare to learn from costs its rows
        kept = ~np.isnan(data.x[:, ~np.array(self.missable)]).any(axis=1)
        x = with_mask(data.x[kept]) if self.masked else data.x[kept]
        found = train(x, data.w[kept], held[kept], shape, how, self.masking, seed)
        # from the law's units to those of w
        score = found.quality["held_out_score"] - float(np.log(data.scaler.w_scale).sum())
        return None, replace(found, quality={"held_out_score": score})

    def kernel(self, draws: Mapping[str, Float]) -> NeuralKernel:
        """NumPy prediction."""
        layers = len(draws) // 2
        w_dim = _columns(draws[f"bias{layers - 1}"].shape[-1] // self.components)
        return NeuralKernel(draws, self.components, w_dim, self.missable, self.most)


def _columns(per_component: int) -> int:
    """Solve 1 + d + d (d + 1) / 2 = per_component."""
    return int((np.sqrt(9 + 8 * (per_component - 1)) - 3) / 2 + 0.5)


def _held_out(data: FitData, how: Ensemble, seed: int) -> Bool:
    """Choose whole units to stop by; of a single unit, its last rows."""
    unit = data.unit
    units = int(unit.max()) + 1
    if data.n < 10:
        raise DataError(
            f"neural_density: {data.n} rows cannot train a network and tell when to stop; use "
            "linear_lags or gaussian_process."
        )
    if units == 1:
        order = np.argsort(data.rows.time, kind="stable")
        held: Bool = np.zeros(data.n, dtype=np.bool_)
        held[order[-_some(how.holdout, data.n) :]] = True
        return held
    chosen = stream(seed, "stop").permutation(units)[: _some(how.holdout, units)]
    return np.isin(unit, chosen)


def _some(part: float, count: int) -> int:
    """Return a share of ``count``, but at least one, and leaving at least one."""
    return min(max(round(part * count), 1), count - 1)
