"""Nuts, Svi and Laplace: a model and data in, arrays of posterior draws out."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyro
import pyro.poutine as poutine
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal, AutoGuide, AutoMultivariateNormal
from pyro.infer.autoguide.initialization import init_to_median, init_to_value
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.stats import effective_sample_size, fit_generalized_pareto, split_gelman_rubin

from pulse_pyro._core.arrays import Float, Float1
from pulse_pyro._core.errors import ConvergenceError, ModelError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import torch_seed
from pulse_pyro._pyro.inference import Fit, Laplace, Nuts, Svi
from pulse_pyro._pyro.sandbox import sandbox, without_nan_warnings
from pulse_pyro._pyro.sites import summed_model
from pulse_pyro.base import ModelCard, Site

# The posterior of a model as one function of a flat, whitened vector.
#
# Raw-scale samplers crawl and raw-scale variational fits go astray when posterior scales differ by
# orders of magnitude. So every engine works on z with u = mode + L z, where L L' is the inverse
# Hessian of the potential at the posterior mode: the posterior of z is close to N(0, I).


RESTARTS = 20
NEAR = 0.05  # posterior sds by which the mode may be missed
WHITEN_LIMIT = 400  # parameters; beyond this the dense Hessian costs more than it saves


class Potential:
    """U(u) = -log p(u, data) on unconstrained parameters, flattened and whitened."""

    def __init__(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        label: str,
        energy: Callable[..., Any] | None = None,
        first: Mapping[str, Float] | None = None,
    ) -> None:
        try:
            start, self._potential, self._transforms, _ = initialize_model(
                model, args, init_strategy=init_to_median(num_samples=15)
            )
        except (ValueError, RuntimeError, NotImplementedError) as cause:
            raise ModelError(
                f"{label}: no starting point with finite posterior density was found "
                f"({cause}); check priors, supports and NaN in the data."
            ) from cause
        self._potential = energy or self._potential
        for name, value in (first or {}).items():
            there = torch.as_tensor(value)
            start[name] = self._transforms[name](there) if name in self._transforms else there
        self.shapes = {name: value.shape for name, value in start.items()}
        flat = torch.cat([start[name].reshape(-1) for name in self.shapes])
        self.dim = len(flat)
        self.mode, self.scale, self.whitened = self._whiten(flat)

    def unflatten(self, u: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cut (..., dim) into unconstrained sites (..., *shape)."""
        out, at = {}, 0
        for name, shape in self.shapes.items():
            out[name] = u[..., at : at + shape.numel()].reshape(u.shape[:-1] + shape)
            at += shape.numel()
        return out

    def energy(self, u: torch.Tensor) -> torch.Tensor:
        """Return U at one flat vector (dim,)."""
        return self._potential(self.unflatten(u))

    def from_white(self, z: torch.Tensor) -> torch.Tensor:
        """Map z (..., dim) to u = mode + L z."""
        return self.mode + z @ self.scale.T

    def draws(self, u: torch.Tensor) -> dict[str, Float]:
        """Map flat draws (m, dim) to constrained sites, (m, *shape) each, as NumPy arrays."""
        with torch.no_grad():
            sites = self.unflatten(u)
            return {
                name: self._transforms[name].inv(value).numpy()
                if name in self._transforms
                else value.numpy()
                for name, value in sites.items()
            }

    def _whiten(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Return (mode, L, True), or (start, I, False) where no proper mode is found."""
        plain = start, torch.eye(self.dim), False
        if self.dim > WHITEN_LIMIT:
            return plain
        mode, slope = self._minimise(start)
        hessian = torch.autograd.functional.hessian(self.energy, mode)
        if not torch.isfinite(hessian).all():
            return plain
        factor, failed = torch.linalg.cholesky_ex(0.5 * (hessian + hessian.T))
        if failed:
            return plain
        # H = F F'  =>  H^-1 = F^-T F^-1, so L = F^-T
        scale = torch.linalg.solve_triangular(factor, torch.eye(self.dim), upper=False).T
        # |L' gradient| is the distance to the mode in posterior standard deviations
        if not torch.linalg.vector_norm(scale.T @ slope) <= NEAR:
            return plain
        return mode, scale, True

    def _minimise(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Search the mode, restarting while it helps; return it and the gradient there."""
        u = start.clone().requires_grad_(True)
        progress = bar(label="posterior mode, evaluations")

        def closure() -> torch.Tensor:
            search.zero_grad()
            loss = self.energy(u)
            loss.backward()
            progress.update()
            return loss

        before = float(self.energy(start).detach())
        for _ in range(RESTARTS):  # a restart drops the curvature gathered far from the mode
            search = torch.optim.LBFGS(
                [u],
                max_iter=300,
                history_size=30,
                tolerance_grad=1e-8,
                tolerance_change=1e-13,
                line_search_fn="strong_wolfe",
            )
            search.step(closure)
            energy = float(closure().detach())
            gained, before = before - energy, energy
            if not gained > 1e-9 * abs(energy):
                break
        progress.close()
        slope = torch.zeros_like(start) if u.grad is None else u.grad.detach()
        found = u.detach()
        return (found, slope) if torch.isfinite(found).all() else (start, slope)


PSIS_DRAWS = 400
DIVERGED = (
    "{}: Svi diverged: its loss went from {:.4g} to {:.4g}; lower Svi(rate=...), or use Laplace() "
    "or Nuts()."
)
PARTICLES = 2  # draws per step of the variational objective


@dataclass(frozen=True)
class Problem:
    """A model bound to its data: what every engine needs."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    card: ModelCard
    label: str
    guide: Callable[..., Any] | None = None
    energy: Callable[..., Any] | None = None
    start: Mapping[str, Float] | None = None

    @property
    def summed(self) -> Callable[..., Any]:
        """The model with discrete latents of rows summed out."""
        names = tuple(site.name for site in self.card.enumerated)
        return summed_model(self.model, names, self.card.nesting) if names else self.model


def run_engine(problem: Problem, inference: Nuts | Svi | Laplace, seed: int) -> Fit:
    """Fit inside the sandbox; only arrays of the global sites leave it."""
    _refuse_early(problem, inference)
    # the checks have validated model and data; validating again at every step doubles the time
    with _errors_in_words(problem.label), sandbox(seed, "fit"), pyro.validation_enabled(False):
        if isinstance(inference, Svi) and problem.guide is not None:
            fit = _svi_with_guide(problem, problem.guide, inference)
        else:
            potential = Potential(
                problem.summed, problem.args, problem.label, problem.energy, problem.start
            )
            if isinstance(inference, Nuts):
                fit = _nuts(potential, inference, seed)
            elif isinstance(inference, Svi):
                fit = _svi(potential, inference, problem.label)
            else:
                fit = _laplace(potential, inference, problem.label)
    keep = {site.name for site in problem.card.globals}
    draws = {name: value for name, value in fit.draws.items() if name in keep}
    return replace(fit, draws=draws)


@contextmanager
def _errors_in_words(label: str) -> Iterator[None]:
    try:
        yield
    except torch.linalg.LinAlgError as cause:  # type: ignore[attr-defined]
        raise ConvergenceError(
            f"{label}: a matrix is not positive definite ({cause}); are columns constant or copies "
            "of each other, or is W known without noise?"
        ) from cause


def _refuse_early(problem: Problem, inference: Nuts | Svi | Laplace) -> None:
    """Say what no engine could make sense of: discrete sites, data outside w's support."""
    own_guide = isinstance(inference, Svi) and problem.guide is not None
    lost = [s for s in problem.card.sites if s.discrete and s not in problem.card.enumerated]
    if lost and not own_guide:
        raise ModelError(f"{problem.label}: {_how_to_sum(lost[0])} or pass your own guide to Svi.")
    with sandbox(0, "support"), pyro.validation_enabled(True):
        try:
            poutine.trace(problem.model).get_trace(*problem.args).compute_log_prob()
        except ValueError as cause:
            raise ModelError(
                f"{problem.label}: the data do not fit the model's distributions: {cause}"
            ) from cause


def _how_to_sum(site: Site) -> str:
    """Say why a discrete site is not summed out, and what to write instead."""
    if site.kind != "local":
        return (
            f"site {site.name!r} is discrete and shared by rows, and every engine here needs "
            "continuous sites; sum it out by hand (e.g. MixtureSameFamily), let each row have its "
            f'own: with pyro.plate("rows", ...): pyro.sample("{site.name}", ...), make it '
            f'continuous: pyro.sample("{site.name}", dist.Beta(1.0, 1.0)),'
        )
    return (
        f"site {site.name!r} is discrete, {site.distribution}, and has no finite support to sum "
        f'over; cut it off: pyro.sample("{site.name}", dist.Categorical(logits=law.log_prob('
        "torch.arange(50.0)[:, None]).T)),"
    )


class TellingNuts(NUTS):  # type: ignore[misc]  # Pyro has no types
    """Pyro's NUTS, draw by draw the same, that notes what its trees told of each transition.

    told : name -> a number for each transition since warm-up. lp : log posterior density of the
    draw, unconstrained and up to a constant. energy : Hamiltonian at the start of the transition.
    tree_depth : doublings tried. n_steps : leapfrog steps. acceptance_rate : their mean.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names = ("lp", "energy", "tree_depth", "n_steps", "acceptance_rate", "step_size")
        self.told: dict[str, list[float]] = {name: [] for name in names}
        self._deepest, self._accepted, self._start = 0, [0.0], 0.0

    def _build_tree(self, *args: Any) -> Any:
        self._deepest = max(self._deepest, args[-2] + 1)
        return super()._build_tree(*args)

    def _build_basetree(self, *args: Any) -> Any:
        tree = super()._build_basetree(*args)
        self._start = float(args[-1])
        self._accepted.append(float(tree.sum_accept_probs))
        return tree

    def sample(self, params: Any) -> Any:
        """Make one transition."""
        self._deepest, self._accepted = 0, []
        size = float(self.step_size)
        out = super().sample(params)
        if self._t > self._warmup_steps:
            density = -float(self._potential_energy_last)
            mean = sum(self._accepted) / max(len(self._accepted), 1)
            now = (density, self._start, self._deepest, len(self._accepted), mean, size)
            for values, value in zip(self.told.values(), now, strict=True):
                values.append(float(value))
        return out


def _nuts(potential: Potential, how: Nuts, seed: int) -> Fit:
    each = how.draws
    chains, diverging = [], []
    told: dict[str, list[float]] = {}
    label = f"NUTS, {how.chains} chains x {each} draws"
    with bar(total=how.chains * (how.warmup + each), label=label) as progress:
        for chain in range(how.chains):
            torch.manual_seed(torch_seed(seed, "chain", chain))
            kernel = TellingNuts(
                potential_fn=lambda site: potential.energy(potential.from_white(site["z"])),
                target_accept_prob=how.target_accept,
            )
            # over-dispersed starts: twice the posterior's own scale in whitened coordinates
            spread = 2.0 if potential.whitened else 0.0
            start = {"z": spread * torch.randn(potential.dim)}
            mcmc = MCMC(
                kernel,
                num_samples=each,
                warmup_steps=how.warmup,
                initial_params=start,
                disable_progbar=True,
                hook_fn=lambda *_: progress.update(),
            )
            mcmc.run()
            chains.append(mcmc.get_samples()["z"])
            lost = mcmc.diagnostics()["divergences"].values()
            diverging += [chain * each + int(i) for one in lost for i in one]
            for name, values in kernel.told.items():
                told.setdefault(name, []).extend(values)
    z = torch.stack(chains)  # (chain, draw, dim)
    u = potential.from_white(z.reshape(-1, potential.dim))
    quality = {
        "r_hat": float(split_gelman_rubin(z, chain_dim=0, sample_dim=1).max()),
        "ess": float(effective_sample_size(z, chain_dim=0, sample_dim=1).min()),
        "divergences": float(len(diverging)),
    }
    return Fit(
        potential.draws(u),
        quality,
        chains=how.chains,
        diverging=tuple(diverging),
        sampler={name: np.array(values) for name, values in told.items()},
    )


def _laplace(potential: Potential, how: Laplace, label: str) -> Fit:
    if not potential.whitened:
        why = (
            f"it has {potential.dim} parameters (limit {WHITEN_LIMIT})"
            if potential.dim > WHITEN_LIMIT
            else "the posterior has no proper mode in unconstrained coordinates"
        )
        raise ModelError(f"{label}: Laplace cannot be used because {why}; use Nuts() or Svi().")
    z = torch.randn(how.draws, potential.dim)
    log_q = -0.5 * (z**2).sum(-1)
    u = potential.from_white(z)
    return Fit(potential.draws(u), {"pareto_k": _pareto_k(potential, u, log_q)})


def _svi(potential: Potential, how: Svi, label: str) -> Fit:
    flat = pyro.distributions.Normal(torch.zeros(potential.dim), 1.0).to_event(1).mask(False)

    def white_model() -> None:
        z = pyro.sample("z", flat)
        # blocked: energy() runs the model, whose sites must not be counted a second time here
        with poutine.block():
            energy = potential.energy(potential.from_white(z))
        pyro.factor("posterior", -energy)

    at_mode = init_to_value(values={"z": torch.zeros(potential.dim)})
    if potential.dim > WHITEN_LIMIT:
        guide: Any = AutoDiagonalNormal(white_model, init_loc_fn=at_mode, init_scale=0.1)
    else:
        scale = 1.0 if potential.whitened else 0.1
        guide = AutoMultivariateNormal(white_model, init_loc_fn=at_mode, init_scale=scale)
    losses = _optimise(white_model, guide, how, label)
    with torch.no_grad():
        q = guide.get_posterior()
        z = q.sample((how.draws,))
        u = potential.from_white(z)
        quality = {
            "pareto_k": _pareto_k(potential, u, q.log_prob(z)),
            "loss_drop": _loss_drop(losses),
        }
        return Fit(potential.draws(u), quality, losses)


def _svi_with_guide(problem: Problem, guide: Callable[..., Any], how: Svi) -> Fit:
    if isinstance(guide, torch.nn.Module):
        guide = _fresh(guide)
    # a guide made outside the sandbox may keep its parameters in the store, which is scoped here
    optimiser = pyro.optim.ClippedAdam({"lr": how.rate, "lrd": _decay(how)})
    with pyro.settings.context(module_local_params=False):
        found = _check_guide(problem, guide)
        own = all(site.name in found.nodes for site in problem.card.enumerated)
        svi = SVI(
            problem.model if own else problem.summed,
            guide,
            optimiser,
            Trace_ELBO(num_particles=PARTICLES),
        )
        losses = np.empty(how.steps)
        for i in bar(range(how.steps), label="SVI"):
            with without_nan_warnings():
                losses[i] = svi.step(*problem.args)
            _refuse_nan(losses[i], i, problem.label)
        _refuse_diverged(losses, problem.label)
        with torch.no_grad():
            drawn = Predictive(guide, num_samples=how.draws)(*problem.args)
    shapes = {site.name: site.shape for site in problem.card.globals}
    draws = {name: drawn[name].reshape(how.draws, *shape).numpy() for name, shape in shapes.items()}
    return Fit(draws, {"loss_drop": _loss_drop(losses)}, losses)


def _check_guide(problem: Problem, guide: Any) -> Any:
    """Run the guide once, before the long part, and return its trace."""
    try:
        found = poutine.trace(guide).get_trace(*problem.args)
    except Exception as cause:
        raise ModelError(
            f"{problem.label}: the guide failed: {type(cause).__name__}: {cause}; it takes the "
            "same arguments as the model."
        ) from cause
    absent = [site.name for site in problem.card.globals if site.name not in found.nodes]
    if absent:
        raise ModelError(f"{problem.label}: the guide does not sample site {absent[0]!r}.")
    return found


def _fresh(guide: Any) -> Any:
    """Return a copy: a fit starts anew and leaves the caller's guide alone."""
    if not isinstance(guide, AutoGuide):
        return copy.deepcopy(guide)
    model = guide._model  # copying strips the model from the copy AND from the original
    twin = copy.deepcopy(guide)
    guide._model = twin._model = model
    return twin


def _loss_drop(losses: Float1) -> float:
    """How clearly the loss still falls over the last fifth of the steps, in standard errors."""
    tail = losses[-max(len(losses) // 5, 4) :]
    early, late = np.array_split(tail, 2)
    if len(late) < 2:
        return float("nan")
    error = np.sqrt(early.var(ddof=1) / len(early) + late.var(ddof=1) / len(late))
    return float((early.mean() - late.mean()) / error) if error > 0 else 0.0


def _decay(how: Svi) -> float:
    """Per-step factor by which the learning rate falls a hundredfold, so that the end settles."""
    return float(0.01 ** (1 / how.steps))


def _optimise(model: Any, guide: Any, how: Svi, label: str) -> Float1:
    loss_of = Trace_ELBO(num_particles=PARTICLES)(model, guide)
    begin = np.array([loss_of().item() for _ in range(20)])  # the first call makes parameters
    adam = torch.optim.Adam(guide.parameters(), lr=how.rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, _decay(how))
    losses = np.empty(how.steps)
    for i in bar(range(how.steps), label="SVI"):
        adam.zero_grad()
        with without_nan_warnings():
            loss = loss_of()
            loss.backward()
        adam.step()
        schedule.step()
        losses[i] = loss.item()
        _refuse_nan(losses[i], i, label)
    if np.median(losses[-20:]) > begin.max() + 5.0 * begin.std() + 1.0:  # it began at Laplace's fit
        raise ConvergenceError(DIVERGED.format(label, begin.mean(), losses[-20:].mean()))
    return losses


def _refuse_nan(loss: float, step: int, label: str) -> None:
    if not np.isfinite(loss):
        raise ConvergenceError(
            f"{label}: Svi diverged: its loss is {loss} at step {step + 1}; lower Svi(rate=...), "
            "bound the scales in the model, or use Laplace() or Nuts()."
        )


def _refuse_diverged(losses: Float1, label: str) -> None:
    """Refuse a loss that ends, for the most part, above everything it began with."""
    some = len(losses) // 10
    if some < 3 or not np.median(losses[-some:]) > losses[:some].max():
        return
    raise ConvergenceError(DIVERGED.format(label, losses[:some].mean(), losses[-some:].mean()))


def _pareto_k(potential: Potential, u: torch.Tensor, log_q: torch.Tensor) -> float:
    """Pareto shape of the importance ratios p/q over at most 400 draws."""
    with torch.no_grad():
        energy = torch.stack([potential.energy(row) for row in u[:PSIS_DRAWS]])
    return pareto_shape((-energy - log_q[:PSIS_DRAWS]).numpy())


def pareto_shape(log_ratio: Float1) -> float:
    """Pareto shape of importance ratios, (n,) logs: below 0.62 they can be relied on."""
    log = torch.as_tensor(log_ratio)
    ratio = torch.exp(log - log.max()).sort().values
    tail = int(np.ceil(min(0.2 * len(ratio), 3 * np.sqrt(len(ratio)))))
    excess = ratio[-tail:] - ratio[-tail - 1]
    if not torch.isfinite(excess).all() or excess[-1] <= 1e-12:  # all ratios alike: q is exact
        return float("nan") if not torch.isfinite(excess).all() else float("-inf")
    try:
        return float(fit_generalized_pareto(excess)[0])
    except ZeroDivisionError:  # one ratio outweighs all the others
        return float("inf")
