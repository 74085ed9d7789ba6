"""Neural conditional density: W_t given x is a mixture of Gaussians whose parameters x decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numba
import numpy as np
from scipy.special import logsumexp

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int, share, whole
from pulse_pyro._pyro.inference import Ensemble, Fit, Inference
from pulse_pyro.base import ModelCard, Summary
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import as_summary
from pulse_pyro.laws.conjugate import LOG_2PI
from pulse_pyro.laws.generalised import check_kind, declared
from pulse_pyro.laws.law import FitData, Law, Unseen
from pulse_pyro.laws.layers import Layers, gaps, rows_for, with_mask
from pulse_pyro.laws.linked_network import LinkedNetworkFamily
from pulse_pyro.laws.responses import ResponseKind

if TYPE_CHECKING:
    from pulse_pyro._pyro.networks import NetworkShape

# Prediction with mixture density networks, in NumPy and one compiled loop.


FLOOR, CEILING = -6.0, 7.0  # of log 1/sd, as in training
BLOCK = 2**22  # values in flight


class NeuralKernel:
    """An ensemble: member e is draw e, each a mixture of Gaussians at every x.

    draws : "weight0" (member, in, out), "bias0" (member, out), ...
    """

    exact_mean = True

    def __init__(
        self,
        draws: Mapping[str, Float],
        components: int,
        w_dim: int,
        missable: tuple[bool, ...] = (),
        most: int = 0,
    ) -> None:
        self.layers = Layers(draws, missable, most)
        self.count, self.columns = self.layers.count, self.layers.columns
        self.k, self.w_dim = components, w_dim

    def _means(self, out: Float) -> Float:
        """E[w] of outputs (..., out): sum_k pi_k mu_k, (..., w_dim)."""
        logit = out[..., : self.k]
        weight = np.exp(logit - logit.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        mean = out[..., self.k : self.k * (1 + self.w_dim)]
        centre: Float = (weight[..., None, :] @ mean.reshape(*out.shape[:-1], self.k, -1))[
            ..., 0, :
        ]
        return centre

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x], (n, w_dim), the average over members."""
        rows = self._rows(self.count)
        parts = [
            self._means(self.layers(x[start : start + rows], slice(None))).mean(0)
            for start in range(0, len(x), rows)
        ]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _rows(self, members: int) -> int:
        """Rows to run at once."""
        return max(BLOCK * self.count // (self.columns * members), 1)

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, member], (len(index), n, w_dim)."""
        used, which = np.unique(index, return_inverse=True)
        rows = self._rows(1)
        means = np.empty((len(used), len(x), self.w_dim))
        for i, member in enumerate(used):
            for start in range(0, len(x), rows):
                at = slice(start, start + rows)
                means[i, at] = self._means(self.layers(x[at], int(member)))
        return means[which]

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, member), (len(index), n)."""
        used, which = np.unique(index, return_inverse=True)
        return np.stack([self._score(self.layers(x, int(member)), w) for member in used])[which]

    def column_log_density(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return log p(w_j | x, member), (len(index), n, w_dim)."""
        used, which = np.unique(index, return_inverse=True)
        scores = [self._column_scores(self.layers(x, int(member)), w) for member in used]
        return np.stack(scores)[which]

    def _parts(self, out: Float2) -> tuple[Float3, Float3, Float3, Float3]:
        """Return logits (n, k, 1), means, log roots (n, k, d), what is below their diagonal."""
        k, d = self.k, self.w_dim
        logit, mean, log_root, lower = (
            part.reshape(len(out), k, -1)
            for part in np.split(out, [k, k + k * d, k + 2 * k * d], 1)
        )
        return logit, mean, np.clip(log_root, FLOOR, CEILING), lower

    def _score(self, out: Float2, w: Float2) -> Float1:
        d = self.w_dim
        logit, mean, log_root, lower = self._parts(out)
        row, column = np.tril_indices(d, -1)
        off = w[:, None] - mean
        z = np.exp(log_root) * off + (lower * off[..., column]) @ np.eye(d)[row]
        normal = log_root.sum(-1) - 0.5 * ((z**2).sum(-1) + d * LOG_2PI)
        weight = logit[..., 0] - logsumexp(logit[..., 0], axis=1, keepdims=True)
        score: Float1 = logsumexp(weight + normal, axis=1)
        return score

    def _column_scores(self, out: Float2, w: Float2) -> Float2:
        d = self.w_dim
        logit, mean, log_root, lower = self._parts(out)
        root = np.exp(log_root)[..., None] * np.eye(d)
        root[..., *np.tril_indices(d, -1)] = lower
        sd = np.sqrt((np.linalg.inv(root) ** 2).sum(-1))  # root (w - mu) is standard noise
        normal = -0.5 * (((w[:, None] - mean) / sd) ** 2 + LOG_2PI) - np.log(sd)
        weight = logit - logsumexp(logit, axis=1, keepdims=True)
        scores: Float2 = logsumexp(weight + normal, axis=1)
        return scores

    def sample(self, x: Float2, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p) once per entry of ``index``: (len(index), n, w_dim)."""
        out = np.empty((len(index), len(x), self.w_dim))
        noise = rng.standard_normal(out.shape)
        choice = rng.random(out.shape[:2])
        rows = self._rows(1)
        for member in np.unique(index):
            draws = np.flatnonzero(index == member)
            for start in range(0, len(x), rows):
                at = slice(start, start + rows)
                outputs = self.layers(x[at], int(member))
                _draw(outputs, draws, choice[:, at], noise[:, at], self.k, self.w_dim, out[:, at])
        return out


@numba.njit(cache=True)
def _draw(
    params: Float2, own: Int, choice: Float2, noise: Float3, k: int, d: int, out: Float3
) -> None:
    """Pick a component by its weight, then solve root (w - mu) = noise by substitution."""
    rows = params.shape[0]
    share, spread = np.empty((rows, k)), np.empty((rows, k * d))
    for row in range(rows):
        top = params[row, :k].max()
        total = 0.0
        for j in range(k):
            total += np.exp(params[row, j] - top)
            share[row, j] = total
        for j in range(k * d):
            spread[row, j] = np.exp(-min(max(params[row, k + k * d + j], FLOOR), CEILING))
    step = d * (d - 1) // 2
    for i in own:
        for row in range(rows):
            aim = choice[i, row] * share[row, k - 1]
            part = 0
            while part < k - 1 and share[row, part] < aim:
                part += 1
            mean = k + part * d
            at = k + 2 * k * d + part * step
            for a in range(d):
                value = noise[i, row, a]
                for b in range(a):
                    value -= params[row, at] * out[i, row, b]
                    at += 1
                out[i, row, a] = value * spread[row, part * d + a]
            for a in range(d):
                out[i, row, a] += params[row, mean + a]


def neural_density(
    summary: int | Summary,
    *,
    components: int = 6,
    width: int = 64,
    depth: int = 2,
    masking: float = 0.0,
    kind: ResponseKind | Literal["normal"] | None = None,
) -> Law:
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

    kind : of one W column that is no plain number, as in ``generalised_lags``: "bernoulli",
        "ordinal", "categorical", "poisson", "negative_binomial", "beta"; None: as its column is
        declared, numbers where it is not; "normal": numbers, whatever is declared. Behind a link
        there are no components, see ``laws.linked_network``; E[Phi] of W of finitely many values is
        their exact sum, for any Phi.

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
    family: NeuralFamily | LinkedNetworkFamily
    if kind is None or kind == "normal":
        family = NeuralFamily(components, width, depth, hidden, numbers=kind == "normal")
    else:
        family = LinkedNetworkFamily(check_kind(kind, "neural_density"), width, depth, hidden)
    return Law(None, seen, "neural_density", family=family)


@dataclass(frozen=True)
class NeuralFamily:
    """Sizes of the networks and how they are trained and asked.

    missable, most : for each input, whether training sees it missing, and how many at once;
        settled by the archive. Where any is, masks are inputs too; a row that lacks another
        input, or more of them, is refused.
    numbers : whether W is a number even where its column is declared as something else.
    """

    linear: ClassVar[bool] = False
    uses_holes: ClassVar[bool] = True
    engines: ClassVar[tuple[type[Inference], ...]] = (Ensemble,)
    engine_reason: ClassVar[str] = "it has thousands of weights"
    components: int
    width: int
    depth: int
    masking: float
    missable: tuple[bool, ...] = ()
    most: int = 0
    numbers: bool = False

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        return {"family": "neural_density", **vars(self), "missable": list(self.missable)}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> NeuralFamily | LinkedNetworkFamily:
        """Rebuild from :meth:`spec`, also what stands behind a link."""
        if "kind" in spec:
            return LinkedNetworkFamily.from_spec(spec)
        plain = {name: value for name, value in spec.items() if name != "family"}
        return NeuralFamily(**{**plain, "missable": tuple(plain["missable"])})

    def settle(
        self, data: FitData, history: History
    ) -> tuple[FitData, NeuralFamily | LinkedNetworkFamily]:
        """Go behind a link where the one W column is declared to be no plain number."""
        if self.numbers or not declared(history):
            return data, self.resolve(data)
        return LinkedNetworkFamily(None, self.width, self.depth, self.masking).settle(data, history)

    def resolve(self, data: FitData) -> NeuralFamily:
        """Note which inputs training will see missing, in enough rows to learn from."""
        missable, most = gaps(data, self.masking)
        return replace(self, missable=missable, most=most)

    @property
    def masked(self) -> bool:
        """Whether masks are inputs too."""
        return any(self.missable)

    @property
    def unseen(self) -> Unseen:
        """Learned from masks where there is something to learn from."""
        return "learned" if self.masked else "refused"

    def shape(self, p: int, w_dim: int) -> NetworkShape:
        """Sizes for p inputs."""
        from pulse_pyro._pyro.networks import NetworkShape

        inputs = 2 * p if self.masked else p
        return NetworkShape(inputs, w_dim, self.components, self.width, self.depth)

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Bayesian network as a Pyro model."""
        from pulse_pyro._pyro.networks import network_model

        masked = self.masked

        def inputs_of(x: Any) -> Any:
            import torch

            return torch.as_tensor(with_mask(x.numpy())) if masked else x

        return network_model(self.shape(p, w_dim), inputs_of)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Train the ensemble."""
        from pulse_pyro._pyro.networks import train

        assert isinstance(how, Ensemble), f"neural_density: {how!r} was not refused"
        x, w, held = rows_for(data, self.missable, how, seed)
        shape = self.shape(data.x.shape[1], data.w_dim)
        trained = train(x, w, held, shape, how=how, masking=self.masking, seed=seed)
        # from the law's units to those of w
        score = trained.quality["held_out_score"] - float(np.log(data.scaler.w_scale).sum())
        return None, replace(trained, quality={"held_out_score": score})

    def kernel(self, draws: Mapping[str, Float]) -> NeuralKernel:
        """NumPy prediction."""
        layers = len(draws) // 2
        w_dim = _columns(draws[f"bias{layers - 1}"].shape[-1] // self.components)
        return NeuralKernel(draws, self.components, w_dim, self.missable, self.most)


def _columns(per_component: int) -> int:
    """Solve 1 + d + d (d + 1) / 2 = per_component."""
    return int((np.sqrt(9 + 8 * (per_component - 1)) - 3) / 2 + 0.5)
