"""Minutes that are not counted on after an hour: W at the top means "at least the top".

    W_t = min(T_t, TOP),   log T_t = a + b'x_t + sd * e_t,   e_t ~ N(0, 1).

Use it when a timer, a form or a session limit cuts W off: a row at TOP says only that T was longer,
and taken at its word it bends the line. Prediction is of what will be recorded, W, so its mean
never passes TOP. The column of W is called "minutes".
"""

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import constraints

from pulse_pyro import Lags

TOP = 60.0
SUMMARY = Lags(1)
DIMS = {"b": ("input",)}
PHI = torch.special.ndtr


class Censored(dist.LogNormal):
    """min(T, TOP) for a log-normal T: a density below TOP, a point mass at it."""

    support = constraints.interval(0.0, TOP)

    def rsample(self, sample_shape=()):
        """Draw T and cut it off."""
        return super().rsample(torch.Size(sample_shape)).clamp(max=TOP)

    def sample(self, sample_shape=()):
        """Draw the same, without a gradient."""
        return self.rsample(sample_shape).detach()

    def log_prob(self, value):
        """Return the log density below TOP, log P(T >= TOP) at it."""
        below = super().log_prob(value.clamp(max=TOP * (1.0 - 1e-12)))
        return torch.where(value >= TOP, torch.special.log_ndtr(-self.score(TOP)), below)

    def score(self, value):
        """Return how many sds a value lies above the middle."""
        return (torch.as_tensor(value).log() - self.loc) / self.scale

    def cdf(self, value):
        """Return P(W <= value)."""
        return torch.where(value >= TOP, 1.0, PHI(self.score(value.clamp(min=1e-300))))

    @property
    def mean(self):
        """E[min(T, TOP)], in closed form."""
        z = self.score(TOP)
        return (self.loc + self.scale**2 / 2).exp() * PHI(z - self.scale) + TOP * PHI(-z)


def model(x, w=None):
    w = w or {}
    a = pyro.sample("a", dist.Normal(3.0, 0.7))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 0.5).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.4))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("minutes", Censored(a + (x * b).sum(-1), sd), obs=w.get("minutes"))
