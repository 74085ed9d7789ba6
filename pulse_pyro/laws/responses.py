"""Kinds of W: how one W column is distributed given its linear predictor.

A response says the same thing twice: as a Pyro distribution, which is fitted, and in NumPy, which
predicts from stored draws. eta is the predictor, (..., n, q) with q = ``predictors``; ``own`` holds
the sites a kind has beside it. In NumPy a draw axis m comes first: eta (m, n, q), own sites (m,
...). w is (n, w_dim) in the numbers Phi sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from scipy import special, stats

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Float4

ResponseKind = Literal[
    "bernoulli", "ordinal", "categorical", "poisson", "negative_binomial", "beta"
]
RESPONSE_KINDS: tuple[ResponseKind, ...] = get_args(ResponseKind)
MOST_EXPONENT = 30.0  # of a mean of counts: exp(30) is 1e13
EDGE = 1e-6  # a mean share stays so far from 0 and 1, an overdispersion from 0
# prior sds of the intercept, and of what the slopes add up to; a number is standardised
LOGIT, LOG, LINE = (2.5, 2.5), (5.0, 1.0), (2.0, 2.0)

Own = Mapping[str, Any]


class Response(Protocol):
    """One kind of W. ``predictors``: q; ``scales``: prior sds of intercept and slopes together."""

    scales: ClassVar[tuple[float, float]]
    intercept: ClassVar[bool]

    @property
    def predictors(self) -> int:
        """Linear predictors, q."""

    @property
    def support(self) -> Float2 | None:
        """The values W can take, (cells, w_dim), where they are finitely many; else None."""

    def priors(self) -> dict[str, Any]:
        """Return the sites of its own by name, each a Pyro distribution."""

    def prepare(self, own: Own) -> Own:
        """Return what NumPy's answers need of its own sites, worked out once for all draws."""

    def distribution(self, eta: Any, own: Own) -> Any:
        """Return W's Pyro distribution, batch (..., n), event (w_dim,), in the model's codes."""

    def encode(self, w: Float2) -> Float2:
        """Return the model's codes of w (n, w_dim)."""

    def mean(self, eta: Float3, own: Own) -> Float3:
        """Return E[w | eta], (m, n, w_dim)."""

    def variance(self, eta: Float3, own: Own) -> Float4:
        """Return Cov(w | eta), (m, n, w_dim, w_dim)."""

    def sample(self, eta: Float3, own: Own, rng: np.random.Generator) -> Float3:
        """Draw w, (m, n, w_dim)."""

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log p(w | eta), (m, n); -inf where w cannot be."""

    def column_log_density(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return log p(w_j | eta), (m, n, w_dim)."""

    def cdf(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return P(w_j <= w | eta), (m, n, w_dim)."""


def spread(value: Float, eta: Float3) -> Float:
    """Return a site of its own, (m,), as (m, 1)."""
    return np.asarray(value).reshape(len(eta), 1)


# A few values: everything follows from their probabilities.


class FewValues:
    """A response of finitely many values; a kind says their log probabilities, (m, n, cells)."""

    scales: ClassVar[tuple[float, float]] = LOGIT
    intercept: ClassVar[bool] = True

    @property
    def support(self) -> Float2:
        """(cells, w_dim)."""
        raise NotImplementedError

    def log_probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return log P(w = cell | eta), (m, n, cells)."""
        raise NotImplementedError

    def probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return P(w = cell | eta), (m, n, cells); they add up to 1."""
        out: Float3 = np.exp(self.log_probabilities(eta, own))
        return out

    def priors(self) -> dict[str, Any]:
        """None."""
        return {}

    def prepare(self, own: Own) -> Own:
        """Return the sites as they are."""
        return own

    def encode(self, w: Float2) -> Float2:
        """Return the numbers as they are."""
        return w

    def mean(self, eta: Float3, own: Own) -> Float3:
        """Return the sum of value times probability, (m, n, w_dim)."""
        out: Float3 = self.probabilities(eta, own) @ self.support
        return out

    def variance(self, eta: Float3, own: Own) -> Float4:
        """Return Cov(w | eta), (m, n, w_dim, w_dim)."""
        return covariance_of(self.support, self.probabilities(eta, own))

    def sample(self, eta: Float3, own: Own, rng: np.random.Generator) -> Float3:
        """Draw w, (m, n, w_dim)."""
        below = self.probabilities(eta, own)[..., :-1].cumsum(-1)
        cell = (rng.random(below.shape[:2])[..., None] > below).sum(-1)
        out: Float3 = self.support[cell]
        return out

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log P(w | eta), (m, n); NaN where w is."""
        cell = cells_of(self.support, w)
        every = self.log_probabilities(eta, own)
        out = np.take_along_axis(every, np.maximum(cell, 0)[None, :, None], -1)[..., 0]
        return np.where(np.isnan(w).any(-1), np.nan, np.where(cell < 0, -np.inf, out))

    def column_log_density(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return log P(w_j | eta), (m, n, w_dim)."""
        same = (self.support[:, None] == w[None]).astype(np.float64)  # (cells, n, w_dim)
        chance = np.einsum("mnc,cnj->mnj", self.probabilities(eta, own), same)
        with np.errstate(divide="ignore"):
            return np.where(np.isnan(w), np.nan, np.log(chance))

    def cdf(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return P(w_j <= w | eta), (m, n, w_dim)."""
        return np.asarray(cdf_of(self.support, self.probabilities(eta, own), w))


def covariance_of(support: Float2, probability: Float) -> Float:
    """Return the covariance, (..., w_dim, w_dim), of values (cells, w_dim) by their chances."""
    mean = probability @ support
    square = np.einsum("...c,ci,cj->...ij", probability, support, support)
    out: Float = square - mean[..., :, None] * mean[..., None, :]
    return out


def cdf_of(support: Float2, probability: Float, w: Float2) -> Float:
    """Return P(W_j <= w_j), (..., n, w_dim), of chances (..., n, cells); NaN where w is."""
    below = (support[:, None] <= w[None]).astype(np.float64)
    total = np.einsum("...nc,cnj->...nj", probability, below)
    return np.where(np.isnan(w), np.nan, np.minimum(total, 1.0))


def cells_of(support: Float2, w: Float2) -> Any:
    """Return which of the values each row of w is, (n,); -1 where it is none."""
    same = (support[None] == w[:, None]).all(-1)
    return np.where(same.any(-1), same.argmax(-1), -1)


@dataclass(frozen=True)
class Bernoulli(FewValues):
    """P(w = 1) = logistic(eta)."""

    predictors: ClassVar[int] = 1

    @property
    def support(self) -> Float2:
        """0 and 1."""
        return np.array([[0.0], [1.0]])

    def distribution(self, eta: Any, own: Own) -> Any:
        """Bernoulli(logits=eta)."""
        import pyro.distributions as dist

        return dist.Bernoulli(logits=eta).to_event(1)

    def log_probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return log P(0), log P(1), (m, n, 2)."""
        out: Float3 = special.log_expit(eta * np.array([-1.0, 1.0]))
        return out

    def probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return the same without logarithms, which take most of the time."""
        out: Float3 = special.expit(eta * np.array([-1.0, 1.0]))
        return out


@dataclass(frozen=True)
class Ordinal(FewValues):
    """P(w <= level k) = logistic(c_k - eta); c_k = logit of the share of levels up to k at eta = 0.

    share ~ Dirichlet(1, ..., 1). numbers : what Phi sees of each level, rising.
    """

    predictors: ClassVar[int] = 1
    intercept: ClassVar[bool] = False
    numbers: tuple[float, ...]

    @property
    def support(self) -> Float2:
        """The levels as numbers."""
        return np.array(self.numbers)[:, None]

    def priors(self) -> dict[str, Any]:
        """Share, (levels,)."""
        import pyro.distributions as dist
        import torch

        return {"share": dist.Dirichlet(torch.ones(len(self.numbers)))}

    def prepare(self, own: Own) -> Own:
        """Add cut, (m, levels - 1), and log_gap, gap, (m, levels): what does not depend on eta."""
        share = np.asarray(own["share"])
        up = share.cumsum(-1)[..., :-1]
        over = share[..., ::-1].cumsum(-1)[..., ::-1][..., 1:]
        cut = np.log(up) - np.log(over)
        log_gap = np.zeros(share.shape)
        with np.errstate(divide="ignore"):  # a level whose share is nothing
            log_gap[..., 1:-1] = np.log(-np.expm1(cut[..., :-1] - cut[..., 1:]))
        return {**own, "cut": cut, "log_gap": log_gap, "gap": np.exp(log_gap)}

    def encode(self, w: Float2) -> Float2:
        """Return the number of each level, 0, 1, ..."""
        return np.searchsorted(np.array(self.numbers), w).astype(np.float64)

    def distribution(self, eta: Any, own: Own) -> Any:
        """Categorical over the levels."""
        import pyro.distributions as dist
        import torch
        from torch.nn.functional import logsigmoid

        share = own["share"]
        up = share.cumsum(-1)[..., :-1]
        over = share.flip(-1).cumsum(-1).flip(-1)[..., 1:]
        cut = up.log() - over.log()
        gap = torch.log1p(-torch.exp(cut[..., :-1] - cut[..., 1:]))
        side = torch.zeros_like(cut[..., :1])
        # logistic(a) - logistic(b) = logistic(a) logistic(-b) (1 - exp(b - a))
        below = torch.cat([logsigmoid(cut - eta), torch.zeros_like(eta)], -1)
        above = torch.cat([torch.zeros_like(eta), logsigmoid(eta - cut)], -1)
        between = torch.cat([side, gap, side], -1)
        return dist.Categorical(logits=(below + above + between).unsqueeze(-2)).to_event(1)

    def log_probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return the log probability of each level, (m, n, levels)."""
        own = own if "cut" in own else self.prepare(own)
        cut, gap = own["cut"][:, None], own["log_gap"][:, None]
        out = np.broadcast_to(gap, (*eta.shape[:2], gap.shape[-1])).copy()
        out[..., :-1] += special.log_expit(cut - eta)
        out[..., 1:] += special.log_expit(eta - cut)
        return out

    def probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return the same without logarithms, which take most of the time."""
        own = own if "cut" in own else self.prepare(own)
        gap, below = own["gap"][:, None], own["cut"][:, None] - eta
        out = np.broadcast_to(gap, (*eta.shape[:2], gap.shape[-1])).copy()
        out[..., :-1] *= special.expit(below)
        out[..., 1:] *= special.expit(-below)
        return out


@dataclass(frozen=True)
class Categories(FewValues):
    """P(level k) = exp(eta_k) / (1 + exp(eta_1) + ...), eta_0 = 0; w is 0/1 for each but the first.

    levels : how many, 2 or more.
    """

    levels: int

    @property
    def predictors(self) -> int:
        """One for each level but the first."""
        return self.levels - 1

    @property
    def support(self) -> Float2:
        """(levels, levels - 1): all 0 for the first."""
        return np.eye(self.levels)[:, 1:]

    def distribution(self, eta: Any, own: Own) -> Any:
        """One 0/1 column for each level but the first, at most one of them 1."""
        from pulse_pyro._pyro.contrasts import Contrasts

        return Contrasts(eta)

    def log_probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return the log probability of each level, (m, n, levels)."""
        every = self._from_top(eta)
        every -= np.log(np.exp(every).sum(-1, keepdims=True))
        return every

    def probabilities(self, eta: Float3, own: Own) -> Float3:
        """Return the same without logarithms, which take most of the time."""
        out = np.exp(self._from_top(eta))
        out /= out.sum(-1, keepdims=True)
        return out

    def _from_top(self, eta: Float3) -> Float3:
        """Return the predictors of all levels, less the largest, (m, n, levels)."""
        every = np.zeros((*eta.shape[:2], self.levels))
        every[..., 1:] = eta
        every -= every.max(-1, keepdims=True)
        return every


# Numbers, counts and shares: one column, no finite support.


class OneColumn:
    """A response of one column with closed forms: its two densities are the same."""

    predictors: ClassVar[int] = 1
    intercept: ClassVar[bool] = True
    support: ClassVar[None] = None

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log p(w | eta), (m, n)."""
        raise NotImplementedError

    def column_log_density(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return log p(w | eta), (m, n, 1)."""
        out: Float3 = self.log_density(eta, own, w)[..., None]
        return out

    def prepare(self, own: Own) -> Own:
        """Return the sites as they are."""
        return own

    def encode(self, w: Float2) -> Float2:
        """Return the numbers as they are."""
        return w


def _count_mean(eta: Float3) -> Float3:
    out: Float3 = np.exp(np.minimum(eta, MOST_EXPONENT))
    return out


@dataclass(frozen=True)
class Number(OneColumn):
    """w ~ Normal(eta, sd^2), sd ~ HalfNormal(1): a number in standard units."""

    scales: ClassVar[tuple[float, float]] = LINE

    def priors(self) -> dict[str, Any]:
        """The standard deviation."""
        import pyro.distributions as dist

        return {"sd": dist.HalfNormal(1.0)}

    def distribution(self, eta: Any, own: Own) -> Any:
        """Normal(eta, sd)."""
        import pyro.distributions as dist

        sd = own["sd"]
        return dist.Normal(eta, sd[..., None] if sd.dim() else sd).to_event(1)

    def mean(self, eta: Float3, own: Own) -> Float3:
        """Return eta."""
        return eta

    def variance(self, eta: Float3, own: Own) -> Float4:
        """Return sd^2."""
        square = spread(own["sd"], eta)[..., None, None] ** 2
        return np.broadcast_to(square, (*eta.shape, 1))

    def sample(self, eta: Float3, own: Own, rng: np.random.Generator) -> Float3:
        """Draw numbers, (m, n, 1)."""
        noise = rng.standard_normal(eta.shape)
        out: Float3 = eta + spread(own["sd"], eta)[..., None] * noise
        return out

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log p(w), (m, n)."""
        sd = spread(own["sd"], eta)
        z = (w[:, 0] - eta[..., 0]) / sd
        out: Float2 = -0.5 * (z**2 + np.log(2.0 * np.pi)) - np.log(sd)
        return out

    def cdf(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return P(number <= w), (m, n, 1)."""
        out: Float3 = special.ndtr((w - eta) / spread(own["sd"], eta)[..., None])
        return out


@dataclass(frozen=True)
class Poisson(OneColumn):
    """w ~ Poisson(exp(eta)), its exponent at most 30."""

    scales: ClassVar[tuple[float, float]] = LOG

    def priors(self) -> dict[str, Any]:
        """None."""
        return {}

    def distribution(self, eta: Any, own: Own) -> Any:
        """Poisson(exp(eta))."""
        import pyro.distributions as dist

        return dist.Poisson(eta.clamp(max=MOST_EXPONENT).exp()).to_event(1)

    def mean(self, eta: Float3, own: Own) -> Float3:
        """Return exp(eta)."""
        return _count_mean(eta)

    def variance(self, eta: Float3, own: Own) -> Float4:
        """Return exp(eta)."""
        out: Float4 = _count_mean(eta)[..., None]
        return out

    def sample(self, eta: Float3, own: Own, rng: np.random.Generator) -> Float3:
        """Draw counts, (m, n, 1)."""
        return rng.poisson(_count_mean(eta)).astype(np.float64)

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log P(w), (m, n)."""
        rate, k = _count_mean(eta)[..., 0], w[:, 0]
        return _counts_only(k, special.xlogy(k, rate) - rate - special.gammaln(k + 1.0))

    def cdf(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return P(count <= w), (m, n, 1)."""
        k = np.floor(w)
        found = special.gammaincc(np.maximum(k, 0.0) + 1.0, _count_mean(eta))
        return np.where(k < 0, 0.0, np.where(np.isnan(w), np.nan, found))


@dataclass(frozen=True)
class NegativeBinomial(OneColumn):
    """A count of mean mu = exp(eta) and variance mu + overdispersion mu^2.

    overdispersion ~ Exponential(1), kept from 0 by 1e-6.
    """

    scales: ClassVar[tuple[float, float]] = LOG

    def priors(self) -> dict[str, Any]:
        """Overdispersion."""
        import pyro.distributions as dist

        return {"overdispersion": dist.Exponential(1.0)}

    def distribution(self, eta: Any, own: Own) -> Any:
        """A Poisson count whose rate is Gamma distributed around exp(eta)."""
        import pyro.distributions as dist

        shape = 1.0 / (own["overdispersion"] + EDGE)
        shape = shape[..., None] if shape.dim() else shape
        mean = eta.clamp(max=MOST_EXPONENT).exp()
        return dist.GammaPoisson(shape.expand_as(mean), shape / mean).to_event(1)

    def mean(self, eta: Float3, own: Own) -> Float3:
        """Return exp(eta)."""
        return _count_mean(eta)

    def variance(self, eta: Float3, own: Own) -> Float4:
        """Return mu + overdispersion mu^2."""
        mean = _count_mean(eta)
        over = spread(own["overdispersion"], eta)[..., None] + EDGE
        out: Float4 = (mean + over * mean**2)[..., None]
        return out

    def sample(self, eta: Float3, own: Own, rng: np.random.Generator) -> Float3:
        """Draw counts, (m, n, 1)."""
        over = spread(own["overdispersion"], eta)[..., None] + EDGE
        rate = rng.gamma(1.0 / over, over * _count_mean(eta))
        return rng.poisson(rate).astype(np.float64)

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log P(w), (m, n)."""
        mean, k = _count_mean(eta)[..., 0], w[:, 0]
        shape = 1.0 / (spread(own["overdispersion"], eta) + EDGE)
        ways = special.gammaln(k + shape) - special.gammaln(shape) - special.gammaln(k + 1.0)
        log = ways - shape * np.log1p(mean / shape) + special.xlogy(k, mean / (shape + mean))
        return _counts_only(k, log)

    def cdf(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return P(count <= w), (m, n, 1)."""
        shape = 1.0 / (spread(own["overdispersion"], eta)[..., None] + EDGE)
        k = np.floor(w)
        found = special.betainc(shape, np.maximum(k, 0.0) + 1.0, shape / (shape + _count_mean(eta)))
        return np.where(k < 0, 0.0, np.where(np.isnan(w), np.nan, found))


def _counts_only(k: Float1, log: Float2) -> Float2:
    """Give counts their log probability and other numbers none."""
    return np.where(np.isnan(k) | ((k >= 0) & (k == np.round(k))), log, -np.inf)


@dataclass(frozen=True)
class Beta(OneColumn):
    """A share between 0 and 1: Beta(mu precision, (1 - mu) precision), mu = logistic(eta).

    precision ~ LogNormal(2, 1.5); mu is kept from 0 and 1 by 1e-6.
    """

    scales: ClassVar[tuple[float, float]] = LOGIT

    def priors(self) -> dict[str, Any]:
        """Precision."""
        import pyro.distributions as dist

        return {"precision": dist.LogNormal(2.0, 1.5)}

    def distribution(self, eta: Any, own: Own) -> Any:
        """Beta(mu precision, (1 - mu) precision)."""
        import pyro.distributions as dist

        precision = own["precision"]
        precision = precision[..., None] if precision.dim() else precision
        mean = eta.sigmoid() * (1.0 - 2.0 * EDGE) + EDGE
        return dist.Beta(mean * precision, (1.0 - mean) * precision).to_event(1)

    def mean(self, eta: Float3, own: Own) -> Float3:
        """Return mu."""
        out: Float3 = special.expit(eta) * (1.0 - 2.0 * EDGE) + EDGE
        return out

    def variance(self, eta: Float3, own: Own) -> Float4:
        """Return mu (1 - mu) / (1 + precision)."""
        mean = self.mean(eta, own)
        precision = spread(own["precision"], eta)[..., None]
        out: Float4 = (mean * (1.0 - mean) / (1.0 + precision))[..., None]
        return out

    def _shapes(self, eta: Float3, own: Own) -> tuple[Float3, Float3]:
        mean, precision = self.mean(eta, own), spread(own["precision"], eta)[..., None]
        return mean * precision, (1.0 - mean) * precision

    def sample(self, eta: Float3, own: Own, rng: np.random.Generator) -> Float3:
        """Draw shares, (m, n, 1)."""
        return rng.beta(*self._shapes(eta, own))

    def log_density(self, eta: Float3, own: Own, w: Float2) -> Float2:
        """Return log p(w), (m, n)."""
        one, two = (shape[..., 0] for shape in self._shapes(eta, own))
        share = w[:, 0]
        inside = (share > 0.0) & (share < 1.0)
        held = np.where(inside, share, 0.5)
        log = special.xlogy(one - 1.0, held) + special.xlog1py(two - 1.0, -held)
        log = log - special.betaln(one, two)
        return np.where(np.isnan(share), np.nan, np.where(inside, log, -np.inf))

    def cdf(self, eta: Float3, own: Own, w: Float2) -> Float3:
        """Return P(share <= w), (m, n, 1)."""
        return np.asarray(stats.beta.cdf(w, *self._shapes(eta, own)))
