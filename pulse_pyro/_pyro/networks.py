"""Networks trained by gradient descent: densities, a plain mean, a linear autoencoder."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from pyro.infer import Trace_ELBO

from pulse_pyro._core.arrays import Bool, Float1, Float2
from pulse_pyro._core.errors import ConvergenceError
from pulse_pyro._core.progress import bar
from pulse_pyro._pyro.inference import Ensemble, Fit
from pulse_pyro._pyro.sandbox import sandbox, without_nan_warnings

# Mixture density networks, a whole ensemble at once: the log-density and its training.


FLOOR, CEILING = -6.0, 7.0  # of log 1/sd in standardised units: no spike on single rows
LOOKS = 25  # times the held-out units are looked at
JUDGED = 2**23  # outputs, over rows and members, they are judged by at each look


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of a network: inputs, columns of w, mixture components, width and number of layers."""

    inputs: int
    w_dim: int
    components: int
    width: int
    depth: int

    @property
    def outputs(self) -> int:
        """A component has a weight, a mean and a triangular root of its precision."""
        return self.components * (1 + self.w_dim + self.w_dim * (self.w_dim + 1) // 2)

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(fan in, fan out) of every layer."""
        return tuple(pairwise([self.inputs, *[self.width] * self.depth, self.outputs]))

    @property
    def numbers(self) -> torch.dtype:
        """How exact w is."""
        return torch.float32

    def start(self, members: int) -> dict[str, torch.Tensor]:
        """Return weights to start from."""
        weights = _start(self.layers, members)
        k, d = self.components, self.w_dim
        bias = weights[f"bias{self.depth}"]
        bias[:, k : k + k * d] = torch.randn(members, k * d)  # means apart from 0
        return weights

    def score(self, weights: dict[str, Any], x: Any, w: Any) -> Any:
        """Return log p(w | x), (members, n)."""
        return log_density(mixture(self, weights, x), w)

    def decay(self, weights: dict[str, Any]) -> Any:
        """Return -log prior of all members, up to a constant."""
        return _decay(self.layers, weights)

    def worst(self, look: Callable[[], Any]) -> float:
        """Return the held-out loss that training must reach: not far above that of pure noise."""
        return self.w_dim * (0.5 * math.log(2 * math.pi * math.e) + 1.0)

    def draws(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return the weights as stored."""
        return weights


@dataclass(frozen=True)
class LinkShape:
    """Sizes of a network whose outputs are the predictors of a response, (..., n, q).

    response : as in ``laws.responses``. Its own sites are trained beside the weights, one for each
    member, unconstrained and by their prior.
    """

    inputs: int
    width: int
    depth: int
    response: Any

    @property
    def outputs(self) -> int:
        """Predictors."""
        return int(self.response.predictors)

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(fan in, fan out) of every layer."""
        return tuple(pairwise([self.inputs, *[self.width] * self.depth, self.outputs]))

    @property
    def numbers(self) -> torch.dtype:
        """How exact w is: a share may be closer to 1 than single precision knows."""
        return torch.float64

    def start(self, members: int) -> dict[str, torch.Tensor]:
        """Return weights to start from; the response's own sites at their prior mean."""
        weights = _start(self.layers, members)
        for name, law in self.response.priors().items():
            at = torch.distributions.biject_to(law.support).inv(law.mean)
            weights[name] = at.expand(members, *at.shape).clone()
        return weights

    def score(self, weights: dict[str, Any], x: Any, w: Any) -> Any:
        """Return log p(w | x), (members, n)."""
        own = {name: value.unsqueeze(1) for name, value in self._own(weights).items()}
        return self.response.distribution(run(weights, x, self.depth), own).log_prob(w)

    def decay(self, weights: dict[str, Any]) -> Any:
        """Return -log prior of all members, up to a constant."""
        total = _decay(self.layers, weights)
        for name, law in self.response.priors().items():
            to = torch.distributions.biject_to(law.support)
            value = to(weights[name])
            stretch = to.log_abs_det_jacobian(weights[name], value)
            total = total - (law.log_prob(value) + stretch).sum()
        return total

    def worst(self, look: Callable[[], Any]) -> float:
        """Return the held-out loss that training must reach: not far above its first."""
        return float(look().max()) + 1.0

    def draws(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return the weights as stored, and the own sites in their units."""
        return weights | self._own(weights)

    def _own(self, weights: dict[str, Any]) -> dict[str, Any]:
        priors = self.response.priors()
        return {
            name: torch.distributions.biject_to(law.support)(weights[name])
            for name, law in priors.items()
        }


class Mixture(NamedTuple):
    """Gaussian mixtures: with K components over d columns of w, at any leading axes.

    log_weight (..., K), mean (..., K, d), and the triangular root R of the precision, R R' never
    formed: log_root (..., K, d) is the log of its diagonal, lower (..., K, d (d - 1) / 2) the rest.
    """

    log_weight: Any
    mean: Any
    log_root: Any
    lower: Any

    def root(self) -> Any:
        """Return R (..., K, d, d): R (w - mean) is standard normal."""
        d = self.mean.shape[-1]
        root = torch.diag_embed(self.log_root.exp())
        row, column = torch.tril_indices(d, d, -1)
        root[..., row, column] = self.lower
        return root


def run(weights: dict[str, Any], x: Any, depth: int) -> Any:
    """Return the outputs at x (..., n, inputs): ``depth`` hidden layers and a linear one."""
    hidden = x
    for i in range(depth + 1):
        hidden = hidden @ weights[f"weight{i}"] + weights[f"bias{i}"].unsqueeze(-2)
        if i < depth:
            hidden = torch.relu(hidden)
    return hidden


def mixture(shape: NetworkShape, weights: dict[str, Any], x: Any) -> Mixture:
    """Run the network at x (..., n, inputs).

    weights : "weight0" (..., in, out), "bias0" (..., out), ...
    """
    hidden = run(weights, x, shape.depth)
    k, d = shape.components, shape.w_dim
    parts = hidden.split([k, k * d, k * d, k * d * (d - 1) // 2], -1)
    logit, mean, log_root, lower = (part.reshape(*hidden.shape[:-1], k, -1) for part in parts)
    return Mixture(logit.squeeze(-1).log_softmax(-1), mean, log_root.clamp(FLOOR, CEILING), lower)


def log_density(found: Mixture, w: Any) -> Any:
    """Return log p(w | x), (..., n), for w (..., n, d).

    The product with the triangular root is two products with constant 0/1 matrices: scattering
    into (d, d) matrices and back is several times slower to differentiate.
    """
    d = w.shape[-1]
    off = w.unsqueeze(-2) - found.mean
    z = found.log_root.exp() * off
    if d > 1:
        row, column = torch.tril_indices(d, d, -1)
        eye = torch.eye(d, dtype=w.dtype)
        z = z + (found.lower * (off @ eye[:, column])) @ eye[row]
    normal = found.log_root.sum(-1) - 0.5 * (z**2).sum(-1) - 0.5 * d * math.log(2 * math.pi)
    return torch.logsumexp(found.log_weight + normal, -1)


def network_model(shape: NetworkShape, inputs_of: Callable[[Any], Any]) -> Callable[..., None]:
    """Return the Bayesian network as model(x, w=None): weights N(0, 2 / fan in), biases N(0, 1)."""

    def model(x: Any, w: Any = None) -> None:
        weights = _sampled(shape.layers)
        # a draw's axes come before the rows' one: (draws, 1, in, out) on rows (n, 1, in)
        found = mixture(shape, weights, inputs_of(x).unsqueeze(-2))
        eye = torch.eye(shape.w_dim)
        tril = torch.linalg.solve_triangular(found.root().squeeze(-4), eye, upper=False)
        parts = dist.MultivariateNormal(found.mean.squeeze(-3), scale_tril=tril)
        with pyro.plate("rows", x.shape[-2], dim=-1):
            choice = dist.Categorical(logits=found.log_weight.squeeze(-2))
            pyro.sample("w", dist.MixtureSameFamily(choice, parts), obs=w)

    return model


def link_model(shape: LinkShape, inputs_of: Callable[[Any], Any]) -> Callable[..., None]:
    """Return the same behind a link: the response's own sites have its priors."""

    def model(x: Any, w: Any = None) -> None:
        weights = _sampled(shape.layers)
        own = {name: pyro.sample(name, law) for name, law in shape.response.priors().items()}
        eta = run(weights, inputs_of(x).unsqueeze(-2), shape.depth).squeeze(-2)
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", shape.response.distribution(eta, own), obs=w)

    return model


def _sampled(layers: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    weights = {}
    for i, (before, after) in enumerate(layers):
        wide = torch.full((before, after), math.sqrt(2.0 / before))
        weights[f"weight{i}"] = pyro.sample(f"weight{i}", dist.Normal(0.0, wide).to_event(2))
        one = torch.ones(after)
        weights[f"bias{i}"] = pyro.sample(f"bias{i}", dist.Normal(0.0, one).to_event(1))
    return weights


def train(
    x: Float2,
    w: Float2,
    held: Bool,
    shape: NetworkShape | LinkShape,
    how: Ensemble,
    masking: float,
    seed: int,
) -> Fit:
    """Train every member at once on rows x (n, inputs), w (n, d) that are not ``held``.

    Each member minimises -log posterior of :func:`network_model` on batches of its own and keeps
    the weights with the best log score on the held rows. The likelihood enters Pyro as one factor.
    masking : the share of inputs hidden at random in half of each batch; the second half of the
    columns of x are then masks (1 = not seen) of the first.
    """
    with sandbox(seed, "network"), pyro.validation_enabled(False):
        rows = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(w, dtype=shape.numbers)
        fit_on = torch.as_tensor(np.flatnonzero(~held))
        judge = torch.as_tensor(np.flatnonzero(held))
        most = max(JUDGED // (how.members * shape.outputs), 1000)
        judge = judge[torch.randperm(len(judge))[:most]]
        weights = {n: v.float().requires_grad_(True) for n, v in shape.start(how.members).items()}
        losses = _descend(rows, fit_on, judge, shape, weights, how=how, masking=masking)
        double = {name: value.detach().double() for name, value in weights.items()}
        draws = {name: value.numpy() for name, value in shape.draws(double).items()}
    return Fit(draws, {"held_out_score": -float(losses.min(0).mean())}, losses.mean(1))


def _start(layers: tuple[tuple[int, int], ...], members: int) -> dict[str, torch.Tensor]:
    weights = {}
    for i, (before, after) in enumerate(layers):
        scale = math.sqrt(2.0 / before) * (0.3 if i == len(layers) - 1 else 1.0)
        weights[f"weight{i}"] = scale * torch.randn(members, before, after)
        weights[f"bias{i}"] = torch.zeros(members, after)
    return weights


def _descend(
    rows: tuple[torch.Tensor, torch.Tensor],
    fit_on: torch.Tensor,
    judge: torch.Tensor,
    shape: NetworkShape | LinkShape,
    weights: dict[str, torch.Tensor],
    how: Ensemble,
    masking: float,
) -> Any:
    """Optimise in place, leaving each member's best weights; return held-out losses by look."""
    x, w = rows
    batch = min(how.batch, len(fit_on))

    def model(at: torch.Tensor) -> None:
        inputs = _hide(x[at], masking) if masking else x[at]
        fit = shape.score(weights, inputs, w[at]).sum() / batch
        pyro.factor("posterior", fit - shape.decay(weights) / len(fit_on))

    objective = Trace_ELBO()(model, lambda at: None)
    adam = torch.optim.Adam(list(weights.values()), lr=how.rate, foreach=True)
    cycle = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=how.rate, total_steps=how.steps + 1)
    every = max(how.steps // LOOKS, 1)
    best = {name: value.detach().clone() for name, value in weights.items()}
    judged = _hide(x[judge], masking) if masking else x[judge]
    least, since, looks = torch.full((how.members,), torch.inf), 0, []

    def look() -> torch.Tensor:
        with torch.no_grad():
            return -shape.score(weights, judged, w[judge]).mean(-1).float()

    worst = shape.worst(look)
    for step in bar(range(how.steps), label="network"):
        at = fit_on[torch.randint(len(fit_on), (how.members, batch))]
        adam.zero_grad()
        with without_nan_warnings():
            objective(at).backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 10.0 * how.members)
        adam.step()
        cycle.step()
        if (step + 1) % every and step + 1 < how.steps:
            continue
        loss = look()
        if not torch.isfinite(loss).all():
            raise ConvergenceError(
                f"neural_density: training diverged at step {step + 1}: a held-out log score is "
                f"{-loss.max().item()}; lower Ensemble(rate=...) and look for outliers in W."
            )
        looks.append(loss.double().numpy())
        better = loss < least
        least = torch.where(better, loss, least)
        for name, value in weights.items():
            best[name][better] = value.detach()[better]
        since = 0 if better.any() else since + every
        if 3 * since >= how.steps:
            break
    if not least.max() < worst:
        raise ConvergenceError(
            f"neural_density: a network's held-out log score in the law's units, "
            f"{-least.max().item():.3g}, is not above {-worst:.3g}, the least there is: it "
            "diverged or hardly moved; lower Ensemble(rate=...), raise steps, look for outliers."
        )
    for name, value in weights.items():
        value.data = best[name]
    return np.array(looks)


def _decay(layers: tuple[tuple[int, int], ...], weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """-log prior of all members, up to a constant."""
    total = torch.zeros(())
    for i, (before, _) in enumerate(layers):
        total = total + before / 4.0 * (weights[f"weight{i}"] ** 2).sum()
        total = total + 0.5 * (weights[f"bias{i}"] ** 2).sum()
    return total


def _hide(x: torch.Tensor, share: float) -> torch.Tensor:
    """Hide inputs at random in half of the rows: their value becomes 0, their mask 1."""
    p = x.shape[-1] // 2
    value, mask = x[..., :p], x[..., p:]
    hidden = (torch.rand(value.shape) < share) & (torch.rand(*x.shape[:-1], 1) < 0.5)
    return torch.cat([value.masked_fill(hidden, 0.0), mask.masked_fill(hidden, 1.0)], -1)


# A network trained by squared error: a mean and nothing else.


WIDTH, MEAN_BATCH, MEAN_RATE = 128, 256, 1e-3  # as published


def train_mean(
    x: Float2, y: Float2, *, epochs: int, seed: int
) -> tuple[list[tuple[Float2, Float1]], Float1]:
    """Train a network p-128-128-q with ReLU on x (n, p), y (n, q).

    Adam, learning rate 1e-3, 256 rows a batch, squared error, single precision on one thread.
    Returns (weight (in, out), bias (out,)) of each layer and the loss of each epoch, (epochs,).
    """
    with sandbox(seed, "mean network"):
        inputs = torch.as_tensor(x, dtype=torch.float32)
        targets = torch.as_tensor(y, dtype=torch.float32)
        sizes = (x.shape[1], WIDTH, WIDTH, y.shape[1])
        linear = [torch.nn.Linear(a, b).float() for a, b in pairwise(sizes)]
        network = torch.nn.Sequential(
            linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2]
        )
        adam = torch.optim.Adam(network.parameters(), lr=MEAN_RATE, foreach=True)
        losses = np.empty(epochs)
        for epoch in bar(range(epochs), label="mean network"):
            total = torch.zeros(())
            for at in torch.randperm(len(inputs)).split(MEAN_BATCH):
                loss = torch.nn.functional.mse_loss(network(inputs[at]), targets[at])
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.detach() * len(at)
            losses[epoch] = float(total) / len(inputs)
        layers = [
            (one.weight.detach().double().numpy().T.copy(), one.bias.detach().double().numpy())
            for one in linear
        ]
    if not np.isfinite(losses[-1]):
        raise ConvergenceError("mean network: training diverged; look for outliers in W.")
    return layers, losses


# A linear autoencoder with batch normalisation: many 0/1 columns in, a few numbers out.


CODE_BATCH, CODE_RATE, DECAY = 10_000, 1e-5, 1e-6  # as published


@dataclass(frozen=True, eq=False)
class Embedding:
    """What an autoencoder learned.

    values : (n, size) codes of the rows it was trained on, by its running mean and variance.
    losses : (epochs,) mean squared error of the reconstruction, while training.
    unexplained : mean squared error after training as a share of what predicting each column's
        mean would leave: 0 is perfect, 1 and more is nothing learned.
    """

    values: Float2
    losses: Float1
    unexplained: float


def embed(rows: NDArray[np.uint8], *, size: int = 32, epochs: int = 500, seed: int) -> Embedding:
    """Train Linear(d, size) + BatchNorm, Linear(size, d) on rows (n, d) of 0 and 1; return codes.

    Adam, learning rate 1e-5, weight decay 1e-6, at most 10,000 rows a batch (batches of one epoch
    differ by at most one row, so that none is too small to normalise by), squared error, in single
    precision on one thread.

    Not covered: at this rate a weight moves by at most about 1e-5 a step, so with few steps the
    codes are close to a random projection; ``unexplained`` tells. The rows embedded are those
    trained on; labels are not seen.
    """
    with sandbox(seed, "autoencoder"):
        data = torch.from_numpy(np.ascontiguousarray(rows))
        d = data.shape[1]
        encoder = torch.nn.Sequential(torch.nn.Linear(d, size), torch.nn.BatchNorm1d(size)).float()
        decoder = torch.nn.Linear(size, d).float()
        weights = [*encoder.parameters(), *decoder.parameters()]
        adam = torch.optim.Adam(weights, lr=CODE_RATE, weight_decay=DECAY, foreach=True)
        losses = np.empty(epochs)
        for epoch in bar(range(epochs), label="autoencoder"):
            order = torch.randperm(len(data))
            batches = torch.tensor_split(order, -(-len(data) // CODE_BATCH))
            total = 0.0
            for at in batches:
                batch = data[at].float()
                loss = torch.nn.functional.mse_loss(decoder(encoder(batch)), batch)
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.item() * len(at)
            losses[epoch] = total / len(data)
        encoder.eval()
        with torch.no_grad():
            pieces = [encoder(piece.float()) for piece in data.split(CODE_BATCH)]
            left = sum(
                float(((decoder(code) - piece.float()) ** 2).sum())
                for code, piece in zip(pieces, data.split(CODE_BATCH), strict=True)
            )
        values = torch.cat(pieces).double().numpy()
    if not np.isfinite(values).all():
        raise ConvergenceError("autoencoder: training diverged; a code is not finite.")
    mean = rows.mean(0)
    return Embedding(values, losses, left / (len(rows) * float((mean * (1.0 - mean)).sum())))
