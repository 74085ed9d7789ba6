"""Distributions written by hand whose draws, mean and cdf tell of different laws."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro import History, Law, StepLaw
from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.handmade import check_handmade
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.data.summary import Identity

LOW = 0.5


class Sampled(dist.Normal):
    """max(LOW, Normal) in sample() and log_prob() alone."""

    def sample(self, sample_shape=()):
        return super().sample(torch.Size(sample_shape)).clamp(min=LOW)

    def log_prob(self, value):
        below = torch.special.log_ndtr((LOW - self.loc) / self.scale)
        return torch.where(value <= LOW, below, super().log_prob(value))


class Drawn(Sampled):
    """Its draws are right."""

    def rsample(self, sample_shape=()):
        return dist.Normal.rsample(self, torch.Size(sample_shape)).clamp(min=LOW)

    def sample(self, sample_shape=()):
        return self.rsample(sample_shape).detach()


class Averaged(Drawn):
    """Its mean is right too."""

    @property
    def mean(self):
        z = (self.loc - LOW) / self.scale
        ahead = (self.loc - LOW) * torch.special.ndtr(z)
        return LOW + ahead + self.scale * torch.exp(-z * z / 2) / (2.0 * torch.pi) ** 0.5


class NoMean(Drawn):
    """It says that it has no mean, and no cdf."""

    @property
    def mean(self):
        raise NotImplementedError

    def cdf(self, value):
        raise NotImplementedError


class Shifted(Averaged):
    """Its cdf is wrong."""

    def cdf(self, value):
        return super().cdf(value - 1.0)


def cases(kind):
    return kind(torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.5, 1.0, 3.0]))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Sampled, r"'w', Sampled: sample\(\) and rsample\(\) draw from different laws; a class"),
        (Drawn, "its mean is not that of its draws; .*must change all of them"),
        (Shifted, "its cdf is not that of its draws"),
    ],
)
def test_a_class_that_contradicts_its_draws_is_refused(kind, says):
    with sandbox(0, "test"), pytest.raises(ModelError, match=says):
        check_handmade("mine", "w", cases(kind))
    with sandbox(0, "test"), pytest.raises(ModelError, match=says):
        check_handmade("mine", "w", cases(kind).to_event(1))


class Heavy(dist.LogNormal):
    """A mean that no average of draws comes near."""


class Few(dist.Categorical):
    """Values that are summed over need no mean."""


@pytest.mark.parametrize("seed", range(20))
def test_right_classes_and_those_of_the_libraries_pass(seed):
    with sandbox(seed, "test"):
        for fn in (
            cases(Averaged),
            cases(NoMean),
            Heavy(0.0, torch.tensor([0.1, 1.0, 2.0, 6.0])),
            Few(logits=torch.randn(3, 4)),
            dist.StudentT(1.0).mask(False),
            dist.Categorical(logits=torch.zeros(3)),
        ):
            check_handmade("mine", "w", fn)


def rows(x, w=None, kind=Sampled):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", kind(a + x[..., 0], 1.0), obs=(w or {}).get("w"))


def test_the_check_of_a_law_says_so():
    s = np.random.default_rng(0).standard_normal((4, 6, 1))
    archive = History.from_arrays(s, np.maximum(s, LOW), s_names=("s",), w_names=("w",))
    with pytest.raises(ModelError, match="Sampled: sample"):
        Law(rows, Identity()).check(archive)
    Law(lambda x, w=None: rows(x, w, Averaged), Identity(), name="right").check(archive)

    def prior():
        return pyro.sample("sd", dist.LogNormal(0.0, 0.3))

    def first(p):
        pyro.sample("z", dist.Normal(0.0, 1.0))

    def step(p, z, s_past):
        z = pyro.sample("z", dist.Normal(0.5 * z, p))
        pyro.sample("w", Drawn(z, 1.0))

    with pytest.raises(ModelError, match="Drawn: its mean"):
        StepLaw(prior, first, step, state="particles").check(archive)
