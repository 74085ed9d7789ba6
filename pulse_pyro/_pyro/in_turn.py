"""Columns of W in turn, each given those before it, as one Pyro distribution."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch.distributions import constraints

Step = tuple[slice, Callable[[torch.Tensor], Any]]  # where in w, and its law given w before it


class InTurn(TorchDistribution):  # type: ignore[misc]  # Pyro has no types
    """p(w) = prod_j p(w_j | w_1, ..., w_{j-1}) for w (..., width).

    steps : for every part its place in w and a function from w, of which it may look at what came
    before, to the part's distribution, batch (...), event (length of the part,).
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector

    def __init__(self, steps: tuple[Step, ...], batch: Any, width: int) -> None:
        self.steps = steps
        super().__init__(torch.Size(batch), torch.Size([width]), validate_args=False)

    @property
    def mean(self) -> torch.Tensor:
        """Not known: it would be a sum over what came before."""
        raise NotImplementedError

    def expand(self, batch_shape: Any, _instance: Any = None) -> "InTurn":
        """Return the same with a larger batch."""
        return InTurn(self.steps, batch_shape, self.event_shape[0])

    def sample(self, sample_shape: Any = torch.Size()) -> torch.Tensor:  # noqa: B008
        """Draw (..., width), part after part."""
        w = torch.zeros(*sample_shape, *self.batch_shape, *self.event_shape)
        for at, law in self.steps:
            part = law(w)
            w[..., at] = part.expand(w.shape[:-1]).sample()
        return w

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return (...,) log densities."""
        parts = [law(value).log_prob(value[..., at]) for at, law in self.steps]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)
