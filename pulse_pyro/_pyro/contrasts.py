"""A category as 0/1 columns, one for each level but the first, as a Pyro distribution."""

from typing import Any, ClassVar

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch.distributions import constraints


class Contrasts(TorchDistribution):  # type: ignore[misc]
    """w (..., levels - 1) of 0 and 1, at most one of them 1: level k has logit eta_k, the first 0.

    eta : (..., levels - 1). P(w = e_k) = exp(eta_k) / (1 + sum exp(eta)), P(w = 0) the rest.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"eta": constraints.real_vector}
    support = constraints.independent(constraints.boolean, 1)

    def __init__(self, eta: torch.Tensor, validate_args: bool | None = None) -> None:
        self.eta = eta
        super().__init__(eta.shape[:-1], eta.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        """(..., levels - 1) probabilities of all levels but the first."""
        return torch.softmax(self._every, -1)[..., 1:]

    @property
    def _every(self) -> torch.Tensor:
        return torch.cat([torch.zeros_like(self.eta[..., :1]), self.eta], -1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Contrasts":
        """Return the same with a larger batch."""
        return Contrasts(self.eta.expand(*batch_shape, *self.event_shape), validate_args=False)

    def sample(self, sample_shape: Any = torch.Size()) -> torch.Tensor:  # noqa: B008
        """Draw (..., levels - 1)."""
        level = torch.distributions.Categorical(logits=self._every).sample(sample_shape)
        every = torch.nn.functional.one_hot(level, self.eta.shape[-1] + 1)
        return every[..., 1:].to(self.eta.dtype)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return (...,) log probabilities of rows of 0 and 1."""
        if self._validate_args:
            self._validate_sample(value)
        return (value * self.eta).sum(-1) - torch.logsumexp(self._every, -1)
