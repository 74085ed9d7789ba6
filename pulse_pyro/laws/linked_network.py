"""Networks behind a link: W_t a 0/1, a level, a count, ... whose predictor is a network of x.

With x (n, p) standardised, eta (n, q) the outputs of a network with ReLU layers, and the response
that of ``generalised_lags``: its own sites (shares of levels, overdispersion, precision) are
trained beside the weights, one for each network, with the same priors. Given the ensemble,
probabilities, means and E[Phi] of W of finitely many values are exact sums.

Not covered: several W columns; slopes that differ by level (ordinal); and as for every ensemble,
its spread is no posterior and tends to be too small far from the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pulse_pyro._core.arrays import Float, Float2, Float3, Int
from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.inference import Ensemble, Fit, Inference
from pulse_pyro.base import ModelCard
from pulse_pyro.data.history import History
from pulse_pyro.laws.generalised import (
    FiniteKernel,
    GeneralisedKernel,
    in_codes,
    linked_kernel,
    never_seen,
    response_from,
    response_spec,
)
from pulse_pyro.laws.law import FitData, Unseen, with_unseen
from pulse_pyro.laws.layers import Layers, gaps, rows_for, with_mask
from pulse_pyro.laws.responses import Response, ResponseKind

if TYPE_CHECKING:
    from pulse_pyro._pyro.networks import LinkShape


class NetworkPredictor:
    """eta of an ensemble: member e is draw e."""

    def __init__(self, layers: Layers) -> None:
        self.layers, self.count, self.columns = layers, layers.count, layers.columns

    def __call__(self, x: Float2 | Float3, index: Int | None) -> Float3:
        """Return eta, (len(index), n, q); x (n, p), the same for all."""
        if index is None:
            return self.layers(x, slice(None))
        used, which = np.unique(index, return_inverse=True)
        return np.stack([self.layers(x, int(member)) for member in used])[which]


@dataclass(frozen=True)
class LinkedNetworkFamily:
    """Sizes of the networks, the kind of W, and how they are trained and asked.

    missable, most : as in ``layers.Layers``; settled by the archive, as the response is.
    """

    linear: ClassVar[bool] = False
    uses_holes: ClassVar[bool] = True
    engines: ClassVar[tuple[type[Inference], ...]] = (Ensemble,)
    engine_reason: ClassVar[str] = "it has thousands of weights"
    kind: ResponseKind | None
    width: int
    depth: int
    masking: float
    missable: tuple[bool, ...] = ()
    most: int = 0
    response: Response | None = None

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        settled = None if self.response is None else response_spec(self.response)
        own = {**vars(self), "missable": list(self.missable), "response": settled}
        return {"family": "neural_density", **own}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> LinkedNetworkFamily:
        """Rebuild from :meth:`spec`."""
        plain = {name: value for name, value in spec.items() if name != "family"}
        settled = plain["response"]
        plain["response"] = None if settled is None else response_from(settled)
        return LinkedNetworkFamily(**{**plain, "missable": tuple(plain["missable"])})

    def settle(self, data: FitData, history: History) -> tuple[FitData, LinkedNetworkFamily]:
        """Leave W in its own units, as codes; settle its kind and which inputs may be missing."""
        coded, response = in_codes(self.kind, data, history, "neural_density")
        missable, most = gaps(coded, self.masking)
        return coded, replace(self, response=response, missable=missable, most=most)

    def resolve(self, data: FitData) -> LinkedNetworkFamily:
        """Nothing more depends on the data: see :meth:`settle`."""
        return self

    @property
    def masked(self) -> bool:
        """Whether masks are inputs too."""
        return any(self.missable)

    @property
    def unseen(self) -> Unseen:
        """Learned from masks where there is something to learn from."""
        return "learned" if self.masked else "refused"

    @property
    def settled(self) -> Response:
        """The kind of W, once it is known."""
        if self.response is None:
            raise ModelError("neural_density: its kind is known only once it has met data.")
        return self.response

    def shape(self, p: int) -> LinkShape:
        """Sizes for p inputs."""
        from pulse_pyro._pyro.networks import LinkShape

        return LinkShape(2 * p if self.masked else p, self.width, self.depth, self.settled)

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Bayesian network as a Pyro model."""
        from pulse_pyro._pyro.networks import link_model

        masked = self.masked

        def inputs_of(x: Any) -> Any:
            import torch

            return torch.as_tensor(with_mask(x.numpy())) if masked else x

        return link_model(self.shape(p), inputs_of)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Train the ensemble; the held-out score is in W's own units."""
        from pulse_pyro._pyro.networks import train

        assert isinstance(how, Ensemble), f"neural_density: {how!r} was not refused"
        x, w, held = rows_for(data, self.missable, how, seed)
        shape = self.shape(data.x.shape[1])
        fit = train(x, w, held, shape, how=how, masking=self.masking, seed=seed)
        return None, with_unseen(fit, never_seen(self.settled, data.w))

    def kernel(self, draws: Mapping[str, Float]) -> GeneralisedKernel | FiniteKernel:
        """NumPy prediction."""
        own = {n: v for n, v in draws.items() if not n.startswith(("weight", "bias"))}
        layers = Layers(draws, self.missable, self.most)
        return linked_kernel(self.settled, NetworkPredictor(layers), own)
