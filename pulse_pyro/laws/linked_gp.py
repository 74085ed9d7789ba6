"""Gaussian process behind a link: W_t a 0/1, a level, a count, ... by a smooth curve of x.

With x (n, p) standardised and q predictors (1, or levels - 1 of a category),

    eta = intercept + x'slope + f(x),   f = sum_j spread_j(amplitude, length) weight_j phi_j(x),

phi the functions of ``laws.hilbert``, weight_j ~ N(0, 1) a priori; the response turns eta into W as
in ``generalised_lags``, with the same priors of intercept, slope and its own sites. amplitude ~
LogNormal(-0.5, 1) and length ~ LogNormal(0, 0.7) as in ``gaussian_process``, in units of eta; the
predictors of a category share them.

Laplace is nested: given amplitude and length, all other sites are Gaussian around their mode, whose
evidence weighs proposals of amplitude and length; "pareto_k" is the worse of the shapes of these
weights and of those towards the exact posterior of everything. Nuts and Svi run the Pyro model.

Not covered: several W columns; residuals that depend on each other within a unit; jumps; more than
1e8 values of rows times functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import optimize

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import ConvergenceError, ModelError
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Fit, Inference, Laplace, Nuts, Svi
from pulse_pyro.base import ModelCard
from pulse_pyro.data.history import History
from pulse_pyro.laws.generalised import (
    FiniteKernel,
    GeneralisedKernel,
    Line,
    in_codes,
    linked_kernel,
    never_seen,
    response_from,
    response_spec,
    sample_own,
    sample_predictor,
)
from pulse_pyro.laws.gp_weights import (
    AMPLITUDE,
    GOOD,
    LEAST,
    LENGTH,
    MATTERS,
    PILOT,
    ROWS,
    box_around,
    box_from,
    box_spec,
    by_importance,
    finer_waves,
    heavy_proposals,
    starts,
)
from pulse_pyro.laws.hilbert import Hilbert
from pulse_pyro.laws.law import FitData, Unseen, checked, run_model, with_unseen
from pulse_pyro.laws.responses import NegativeBinomial, Poisson, Response, ResponseKind

HELD = 1e8  # values of rows times functions
SITES = ("intercept", "slope", "amplitude", "length", "weight")
SETTINGS = 100  # of amplitude and length, proposed at once
TURNS = 3  # of proposing
JUDGED = 200  # draws whose weight towards the exact posterior is looked at
CLOSE = 1e-10  # squared Newton decrement at which a mode is found
BEND = 0.05  # step, in logarithms, that tells how the evidence bends
TOGETHER = 8  # parameters up to which their bends are taken together


def linked_model(basis: Hilbert, response: Response) -> Callable[..., None]:
    """Return model(x, w=None) for standardised x (n, p) and w (n, w_dim) in codes."""

    def model(x: Any, w: Any = None) -> None:
        import pyro
        import pyro.distributions as dist
        import torch

        eta = sample_predictor(x, basis.p, response)
        own = sample_own(response)
        positive = dist.LogNormal(*AMPLITUDE).expand([basis.processes]).to_event(1)
        amplitude = pyro.sample("amplitude", positive)
        length = pyro.sample("length", dist.LogNormal(*LENGTH).expand([basis.p]).to_event(1))
        plain = dist.Normal(0.0, torch.ones(basis.columns, response.predictors)).to_event(2)
        weight = pyro.sample("weight", plain)
        # draws stand left of the rows: (m, 1, M, q) and (m, 1, M)
        sd = basis.spread(amplitude, length, torch) + LEAST
        weight = weight.squeeze(-3) if weight.dim() > 2 else weight
        sd = sd.squeeze(-2) if sd.dim() > 1 else sd
        eta = eta + torch.as_tensor(basis(x.numpy())) @ (sd[..., None] * weight)
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", response.distribution(eta, own), obs=w)

    return model


class Curve:
    """eta = intercept + x'slope + f(x), from posterior draws."""

    def __init__(self, basis: Hilbert, draws: Mapping[str, Float]) -> None:
        sd = basis.spread(draws["amplitude"], draws["length"], np) + LEAST
        coef = np.concatenate([draws["slope"], sd[..., None] * draws["weight"]], axis=1)
        self.basis, self.line = basis, Line(coef, draws.get("intercept"))
        self.count, self.columns = self.line.count, self.line.columns

    def __call__(self, x: Float2 | Float3, index: Int | None) -> Float3:
        """Return eta, (len(index), n, q)."""
        return self.line(self.basis.design(x), index)


@dataclass(frozen=True)
class LinkedGPFamily:
    """What a Gaussian process behind a link knows beyond its Pyro model; w is not standardised."""

    engines: ClassVar[tuple[type[Inference], ...]] = (Laplace, Nuts, Svi)
    engine_reason: ClassVar[str] = "its posterior has no closed form, and no networks to train"
    linear: ClassVar[bool] = False
    uses_holes: ClassVar[bool] = False
    unseen: ClassVar[Unseen] = "conditioned on"
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "intercept": ("output",),
        "slope": ("input", "output"),
        "share": ("level",),
        "amplitude": ("process",),
        "length": ("input",),
        "weight": ("function", "output"),
    }
    kind: ResponseKind | None
    size: int | None
    box: Hilbert | None = None
    response: Response | None = None

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        return {
            "family": "gaussian_process",
            "kind": self.kind,
            "size": self.size,
            "box": box_spec(self.box),
            "response": None if self.response is None else response_spec(self.response),
        }

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> LinkedGPFamily:
        """Rebuild from :meth:`spec`."""
        settled = spec["response"]
        response = None if settled is None else response_from(settled)
        return LinkedGPFamily(spec["kind"], spec["size"], box_from(spec["box"]), response)

    def settle(self, data: FitData, history: History) -> tuple[FitData, LinkedGPFamily]:
        """Leave W in its own units, as codes; settle its kind, its levels and the box."""
        coded, response = in_codes(self.kind, data, history, "gaussian_process")
        box = box_around(coded.x, self.size)
        if coded.n * box.columns > HELD:
            raise ModelError(
                f"gaussian_process: {coded.n} rows times {box.columns} functions are too many to "
                f"hold (limit {HELD:.0e}) with a kind; ask for a smaller basis=..., or fewer rows."
            )
        length = suggested(box, coded, response)
        return coded, replace(self, box=box.widened(length), response=response)

    def resolve(self, data: FitData) -> LinkedGPFamily:
        """Nothing more depends on the data: see :meth:`settle`."""
        return self

    @property
    def settled(self) -> tuple[Hilbert, Response]:
        """Basis and kind of W, once they are known."""
        if self.box is None or self.response is None:
            raise ModelError("gaussian_process: its basis is known only once it has met data.")
        return self.box, self.response

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model."""
        return linked_model(*self.settled)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Run the nested approximation, or an engine on everything."""
        basis, response = self.settled
        model = self.model(basis.p, data.w_dim)
        if isinstance(how, Laplace):
            card = checked(model, data, "gaussian_process")
            fit = nested(basis, response, data, how.draws, seed)
        else:
            card, fit = run_model(model, data, how, seed, label="gaussian_process")
        quality = fit.quality | self._enough(data, fit.draws, stream(seed, "basis"))
        return card, with_unseen(replace(fit, quality=quality), never_seen(response, data.w))

    def _enough(
        self, data: FitData, draws: Mapping[str, Float], rng: np.random.Generator
    ) -> dict[str, float]:
        """Return "basis" and "finer" as ``gaussian_process`` has them, by Pearson residuals."""
        basis, response = self.settled
        some = np.sort(rng.permutation(data.n)[:ROWS])
        x, kernel = data.x[some], self.kernel(draws)
        sd = basis.spread(draws["amplitude"], draws["length"], np)
        coef = (sd[..., None] * draws["weight"]).mean(0)
        strain, worst = basis.strain(np.median(draws["length"], axis=0)), 0.0
        for process in range(basis.processes):
            own = np.flatnonzero(basis.process == process)
            if (basis(x)[:, own] @ coef[own]).var(0).max() >= MATTERS:
                worst = max(worst, float((strain if basis.joint else strain[process]).max()))
        few = rng.permutation(kernel.count)[:20]
        spread = kernel.variance_draws(x, few).mean(0)
        w = data.w[some]
        if response.support is not None and data.w_dim == 1:
            w = response.support[w[:, 0].astype(np.int64)]
        left = w - kernel.mean(x)
        left = left / np.sqrt(np.maximum(np.diagonal(spread, axis1=1, axis2=2), 1e-12))
        return {"basis": worst, "finer": finer_waves(basis, x, left)}

    def kernel(self, draws: Mapping[str, Float]) -> GeneralisedKernel | FiniteKernel:
        """NumPy prediction."""
        basis, response = self.settled
        own = {name: value for name, value in draws.items() if name not in SITES}
        return linked_kernel(response, Curve(basis, draws), own)


def suggested(box: Hilbert, data: FitData, response: Response) -> Float1:
    """Return length scales, (p,), that a regression of the codes on a few rows suggests."""
    some = stream(0, "pilot").permutation(data.n)[:PILOT]
    w = data.w[some]
    w = np.log1p(w) if isinstance(response, Poisson | NegativeBinomial) else w
    w = w - w.mean(0)
    scale = np.sqrt((w**2).mean(0))
    w = w / np.where(scale > 0, scale, 1.0)
    out: Float1 = starts(box, box.gram(data.x[some], w), w.shape[1])["length"].max(0)
    return out


# The nested approximation.


class Mode(NamedTuple):
    """Everything but amplitude and length at its mode, given these.

    at : (dim,) coefficients in prior sds, then own sites, unconstrained. factor : (dim, dim) lower
    Cholesky factor of the Hessian. energy : -log of the joint density there, given amplitude and
    length. evidence : log of the density of w given them, by the Gaussian around the mode.
    """

    at: Any
    factor: Any
    energy: float
    evidence: float


class Inner:
    """The posterior of everything but amplitude and length, in torch.

    Coefficients are counted in prior sds, so that their prior is N(0, 1) throughout.
    """

    def __init__(self, basis: Hilbert, response: Response, x: Float2, w: Float2) -> None:
        import torch
        from torch.distributions import biject_to

        self.basis, self.response, self.q = basis, response, response.predictors
        level, together = response.scales
        each = together / math.sqrt(max(basis.p, 1))
        self.scales = np.concatenate(
            [np.full(int(response.intercept), level), np.full(basis.p, each)]
        )
        ones = np.ones((len(x), int(response.intercept)))
        self.design = torch.as_tensor(np.concatenate([ones, x, basis(x)], axis=1))
        self.w = torch.as_tensor(w)
        self.width = self.design.shape[1]
        self.priors = response.priors()
        self.maps = {name: biject_to(law.support) for name, law in self.priors.items()}
        self.free = {
            name: self.maps[name].inv(law.sample()).numel() for name, law in self.priors.items()
        }
        self.dim = self.width * self.q + sum(self.free.values())

    def scaled(self, log: Float1) -> Any:
        """Return the design in prior sds, (n, width), at log amplitude and length."""
        import torch

        amplitude, length = np.split(np.exp(log), [self.basis.processes])
        sd = self.basis.spread(amplitude, length, np) + LEAST
        return self.design * torch.as_tensor(np.concatenate([self.scales, sd]))

    def own(self, rest: Any) -> tuple[dict[str, Any], Any]:
        """Return the kind's own sites at unconstrained values, and -log of their prior."""
        import torch

        out, energy, at = {}, torch.zeros(()), 0
        for name, law in self.priors.items():
            part = rest[at : at + self.free[name]]
            part = part if law.event_shape else part.reshape(())
            out[name] = self.maps[name](part)
            jacobian = self.maps[name].log_abs_det_jacobian(part, out[name]).sum()
            energy = energy - law.log_prob(out[name]) - jacobian
            at += self.free[name]
        return out, energy

    def energy(self, design: Any, at: Any) -> float:
        """Return -log of the joint density of w and everything but amplitude and length."""
        coef, rest = at[: self.width * self.q], at[self.width * self.q :]
        own, prior = self.own(rest)
        fit = self.response.distribution(design @ coef.reshape(self.width, self.q), own)
        half = 0.5 * (coef.square().sum() + len(coef) * math.log(2 * math.pi))
        return float(half + prior - fit.log_prob(self.w).sum())

    def bends(self, design: Any, at: Any) -> tuple[Any, Any]:
        """Return gradient (dim,) and Hessian (dim, dim) of the energy."""
        import torch

        width, q = self.width, self.q
        size, k = width * q, self.dim - width * q
        coef = at[:size]
        eta = (design @ coef.reshape(width, q)).requires_grad_(True)
        rest = at[size:].clone().requires_grad_(True)
        own, prior = self.own(rest)
        log = self.response.distribution(eta, own).log_prob(self.w).sum()
        used = (eta, rest) if k else (eta,)
        first = torch.autograd.grad(prior - log, used, create_graph=True)
        gradient = torch.cat([(design.T @ first[0]).reshape(-1) + coef, *first[1:]]).detach()
        hessian = torch.eye(self.dim)
        blocks = hessian[:size, :size].view(width, q, width, q)  # index is (column, predictor)
        for a in range(q):
            (second,) = torch.autograd.grad(first[0][:, a].sum(), eta, retain_graph=True)
            for b in range(q):
                blocks[:, a, :, b] += design.T @ (second[:, b, None] * design)
        for j in range(k):
            to_eta, to_rest = torch.autograd.grad(first[1][j], used, retain_graph=True)
            cross = (design.T @ to_eta).reshape(-1)
            hessian[:size, size + j] = hessian[size + j, :size] = cross
            hessian[size:, size + j] = to_rest
        return gradient, hessian

    def mode(self, log: Float1, start: Any) -> Mode:
        """Search the mode given log amplitude and length by Newton's method, damped."""
        import torch

        design, at = self.scaled(log), start
        energy = self.energy(design, at)
        for _ in range(100):
            gradient, hessian = self.bends(design, at)
            factor, failed = torch.linalg.cholesky_ex(hessian)
            ridge = 1.0
            while failed and ridge < 1e12:  # not convex here: a shorter step downhill
                factor, failed = torch.linalg.cholesky_ex(hessian + ridge * torch.eye(self.dim))
                ridge *= 10.0
            step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
            gain = float(gradient @ step)
            if not gain > CLOSE:
                break
            # an own site may be flat far out: overdispersion near 0 is a Poisson all the same
            longest = step[self.width * self.q :].abs().max().item() if self.free else 0.0
            size = 1.0 / max(longest, 1.0)
            while size > 1e-8:
                there = self.energy(design, at - size * step)
                if there <= energy - 1e-4 * size * gain:
                    break
                size /= 2.0
            else:
                break
            at, energy = at - size * step, there
        if not math.isfinite(gain) or ridge > 1.0 or gain > 1e-4:
            raise ConvergenceError(
                "gaussian_process: the mode of its weights was not found; are columns copies of "
                "each other, or counts far out? Try a smaller basis=..., or Nuts()."
            )
        half_log_det = float(factor.diagonal().log().sum())
        evidence = 0.5 * self.dim * math.log(2 * math.pi) - energy - half_log_det
        return Mode(at, factor, energy, evidence)

    def sites(self, log: Float1, at: Float1) -> dict[str, Float]:
        """Return the model's sites at log amplitude and length and everything else."""
        import torch

        amplitude, length = np.split(np.exp(log), [self.basis.processes])
        coef = at[: self.width * self.q].reshape(self.width, self.q)
        line = coef[: len(self.scales)] * self.scales[:, None]
        out = {"slope": line[-self.basis.p :]}
        if self.response.intercept:
            out["intercept"] = line[0]
        own, _ = self.own(torch.as_tensor(at[self.width * self.q :]))
        out |= {name: value.numpy() for name, value in own.items()}
        return out | {"amplitude": amplitude, "length": length, "weight": coef[len(self.scales) :]}


def nested(basis: Hilbert, response: Response, data: FitData, count: int, seed: int) -> Fit:
    """Draw amplitude and length by their approximate evidence, then the rest around its mode."""
    import pyro
    import torch

    from pulse_pyro._pyro.engines import pareto_shape
    from pulse_pyro._pyro.sandbox import sandbox

    rng = stream(seed, "nested")
    prior = np.array([AMPLITUDE] * basis.processes + [LENGTH] * basis.p)

    # a Newton step may try values that are none; they have no energy and the step is halved
    with sandbox(seed, "fit"), pyro.validation_enabled(False):
        inner = Inner(basis, response, data.x, data.w)
        near = torch.zeros(inner.dim)

        def solved(log: Float1) -> tuple[Mode, float]:
            mode = inner.mode(log, near)
            z = (log - prior[:, 0]) / prior[:, 1]
            constant = np.log(prior[:, 1]).sum() + 0.5 * len(log) * math.log(2 * math.pi)
            return mode, mode.evidence - 0.5 * float(z @ z) - float(constant)

        def loss(log: Float1) -> float:
            nonlocal near
            mode, value = solved(np.asarray(log))
            near = mode.at
            return -value

        start = np.concatenate(
            [np.zeros(basis.processes), np.log(suggested(basis, data, response))]
        )
        limits = [(mean - 4.0 * sd, mean + 4.0 * sd) for mean, sd in prior]
        start = np.clip(start, *np.array(limits).T)
        found = optimize.minimize(
            loss,
            start,
            method="L-BFGS-B",
            bounds=limits,
            options={"eps": 1e-3, "gtol": 1e-2, "ftol": 1e-7, "maxiter": 60},
        ).x
        loss(found)
        root = np.linalg.cholesky(gaussian_spread(loss, found, 1.0 / prior[:, 1] ** 2))
        loss(found)
        like, shape, best = found + rng.standard_normal((1000, len(found))) @ root.T, np.inf, None
        for _ in range(TURNS):
            log, log_q = heavy_proposals(like, SETTINGS, rng)
            log = np.clip(log, *np.array(limits).T)
            both = [solved(one) for one in log]
            ratio = np.array([value for _, value in both]) - log_q
            now = float(pareto_shape(ratio))
            if best is None or now < shape:
                shape, best = now, (log, ratio, [mode.at for mode, _ in both])
            if shape <= GOOD:
                break
            like = log[by_importance(ratio, 1000, rng)]
        assert best is not None
        log, ratio, modes = best
        use = by_importance(ratio, count, rng)
        judged = set(rng.permutation(count)[:JUDGED].tolist())
        sites: list[dict[str, Float]] = [{}] * count
        weights = []
        for i in np.unique(use):
            mode = inner.mode(log[i], modes[i])
            design = inner.scaled(log[i])
            for draw in np.flatnonzero(use == i):
                noise = torch.as_tensor(rng.standard_normal(inner.dim))
                off = torch.linalg.solve_triangular(mode.factor.T, noise[:, None], upper=True)
                at = mode.at + off[:, 0]
                sites[draw] = inner.sites(log[i], at.numpy())
                if int(draw) in judged:
                    gaussian = mode.energy + 0.5 * float(noise.square().sum())
                    weights.append(gaussian - inner.energy(design, at))
    draws = {name: np.stack([one[name] for one in sites]) for name in sites[0]}
    return Fit(draws, {"pareto_k": max(shape, float(pareto_shape(np.array(weights))))})


def gaussian_spread(loss: Callable[[Float1], float], found: Float1, least: Float1) -> Float2:
    """Return the covariance, (d, d), of a Gaussian with the bends of a loss at its minimum.

    least : (d,) what the prior bends by; at least a quarter of it is taken. Beyond 8 parameters
    each is bent alone.
    """
    d, centre = len(found), loss(found)
    step = BEND * np.eye(d)
    up, down = (np.array([loss(found + sign * one) for one in step]) for sign in (1, -1))
    bend = np.diag((up + down - 2 * centre) / BEND**2)
    for i in range(d if d <= TOGETHER else 0):
        for j in range(i):
            both = loss(found + step[i] + step[j])
            bend[i, j] = bend[j, i] = (both - up[i] - up[j] + centre) / BEND**2
    value, vector = np.linalg.eigh(bend)
    held = np.maximum(value, 0.25 * least.min())
    out: Float2 = (vector / held) @ vector.T
    return out
