"""Nuts, Svi and Laplace: a model and data in, arrays of posterior draws out."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pyro
import pyro.poutine as poutine
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoGuide,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)
from pyro.infer.autoguide.initialization import init_to_value
from pyro.ops.stats import effective_sample_size, fit_generalized_pareto, split_gelman_rubin

from pulse_pyro._core.arrays import Float, Float1
from pulse_pyro._core.errors import ConvergenceError, ModelError
from pulse_pyro._core.progress import bar, tell
from pulse_pyro._core.seeds import torch_seed
from pulse_pyro._pyro.batches import (
    FEW,
    Archive,
    Batches,
    BatchPotential,
    Scaled,
    in_plates,
    split_units,
    sums_over_units,
    terms_of,
)
from pulse_pyro._pyro.inference import Fit, Laplace, Nuts, Svi
from pulse_pyro._pyro.mistakes import first_line, odd_data
from pulse_pyro._pyro.potential import WHITEN_LIMIT, Potential
from pulse_pyro._pyro.sandbox import sandbox, without_nan_warnings
from pulse_pyro._pyro.sites import summed_model
from pulse_pyro._pyro.unit_potential import UnitPotential
from pulse_pyro._pyro.unit_sums import UnitSums
from pulse_pyro.base import ModelCard, Site

PSIS_DRAWS = 400
DIVERGED = (
    "{}: Svi diverged: its loss went from {:.4g} to {:.4g}; lower Svi(rate=...), or use Laplace() "
    "or Nuts()."
)
PARTICLES = 2  # draws per step of the variational objective; one in batches
LOOK = 20  # steps between two looks at units held out
MOST_FULL = 2000  # numbers of a full-rank guide
FORMS = {
    "diagonal": AutoDiagonalNormal,
    "low rank": AutoLowRankMultivariateNormal,
    "full": AutoMultivariateNormal,
    "structured": AutoMultivariateNormal,  # over the global sites: those of units follow them
}


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
    archive: Archive | None = None
    unit: torch.Tensor | None = None

    @property
    def unit_sums(self) -> UnitSums | None:
        """Discrete latents of units, and how they are summed out, where there are some."""
        names = tuple(site.name for site in self.card.enumerated_units)
        if not names or self.unit is None:
            return None
        rows = tuple(site.name for site in self.card.enumerated)
        return UnitSums(self.model, rows, names, self.card.nesting, self.unit)

    @property
    def summed(self) -> Callable[..., Any]:
        """The model with discrete latents of rows, and of units, summed out."""
        if self.unit_sums is not None:
            return self.unit_sums.summed
        return self.summing(self.model)

    def summing(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """Return a model with discrete latents of rows summed out."""
        names = tuple(site.name for site in self.card.enumerated)
        return summed_model(model, names, self.card.nesting) if names else model


def run_engine(problem: Problem, inference: Nuts | Svi | Laplace, seed: int) -> Fit:
    """Fit inside the sandbox; only arrays of the global sites, and of units, leave it."""
    _refuse_early(problem, inference)
    # the checks have validated model and data; validating again at every step doubles the time
    with _errors_in_words(problem.label), sandbox(seed, "fit"), pyro.validation_enabled(False):
        if isinstance(inference, Svi) and problem.guide is not None:
            fit = _svi_with_guide(problem, problem.guide, inference)
        elif isinstance(inference, Svi) and _by_units(inference):
            fit = _svi(_in_batches(problem, inference), inference, problem)
        else:
            potential = _potential(problem)
            if isinstance(inference, Nuts):
                fit = _nuts(potential, inference, seed)
            elif isinstance(inference, Svi):
                fit = _svi(potential, inference, problem)
            else:
                odd = "" if potential.whitened else odd_data(*problem.args)
                fit = _laplace(potential, inference, problem.label, odd)
        sums = problem.unit_sums
        if sums is not None:
            fit = replace(fit, draws={**fit.draws, **sums.drawn(problem.args, fit.draws)})
    keep = {site.name for site in (*problem.card.globals, *problem.card.unit_sites)}
    draws = {name: value for name, value in fit.draws.items() if name in keep}
    return replace(fit, draws=draws)


def _potential(problem: Problem) -> Potential:
    own = tuple(site.name for site in problem.card.unit_sites if not site.discrete)
    if own:
        return UnitPotential(problem.summed, problem.args, problem.label, own, problem.start)
    return Potential(problem.summed, problem.args, problem.label, problem.energy, problem.start)


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
    if isinstance(inference, Svi) and own_guide and inference.guide is not None:
        raise ModelError(
            f"{problem.label}: Svi(guide={inference.guide!r}) was asked for, but the law has a "
            "guide of its own; leave one of the two out."
        )
    summed = (*problem.card.enumerated, *problem.card.enumerated_units)
    lost = [s for s in problem.card.sites if s.discrete and s not in summed]
    if lost and not own_guide:
        raise ModelError(f"{problem.label}: {_how_to_sum(lost[0])} or pass your own guide to Svi.")
    with sandbox(0, "support"), pyro.validation_enabled(True):
        try:
            poutine.trace(problem.model).get_trace(*problem.args).compute_log_prob()
        except ValueError as cause:
            raise ModelError(
                f"{problem.label}: the data do not fit the model's distributions: "
                f"{first_line(cause)}; correct the data, or choose other distributions."
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
        self.warm_at = perf_counter()  # when warm-up ended

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
        if self._t == self._warmup_steps:
            self.warm_at = perf_counter()
        elif self._t > self._warmup_steps:
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
    seconds = {"warmup": 0.0, "sampling": 0.0}
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
            began = perf_counter()
            mcmc.run()
            seconds["warmup"] += kernel.warm_at - began
            seconds["sampling"] += perf_counter() - kernel.warm_at
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
        seconds=seconds,
    )


def _laplace(potential: Potential, how: Laplace, label: str, odd: str) -> Fit:
    if not potential.whitened:
        why = (
            f"it has {potential.dim} parameters (limit {WHITEN_LIMIT})"
            if potential.dim > WHITEN_LIMIT
            else "the posterior has no proper mode in unconstrained coordinates, as where a scale "
            "may run to 0 with what it scales (write effect = scale * pyro.sample(..., "
            "dist.Normal(0.0, 1.0)) for pyro.sample(..., dist.Normal(0.0, scale)))"
        )
        if odd:
            raise ModelError(f"{label}: Laplace cannot be used because {why}; {odd}.")
        raise ModelError(f"{label}: Laplace cannot be used because {why}; use Nuts() or Svi().")
    z = torch.randn(how.draws, potential.dim)
    log_q = -0.5 * (z**2).sum(-1)
    u = potential.from_white(z)
    return Fit(potential.draws(u), {"pareto_k": _pareto_k(potential, u, log_q)})


def _by_units(how: Svi) -> bool:
    """Tell whether the units of the archive must be told apart."""
    return how.batch is not None or how.guide == "structured"


def _rows(problem: Problem, how: Svi) -> Archive:
    if problem.archive is None:
        raise ModelError(
            f"{problem.label}: {how!r} looks at the rows of some units at a time, but this law is "
            "not fitted row by row; leave batch out, and guide='structured'."
        )
    return problem.archive


def _in_batches(problem: Problem, how: Svi) -> BatchPotential:
    archive = _rows(problem, how)
    if problem.card.enumerated_units:
        raise ModelError(
            f"{problem.label}: site {problem.card.enumerated_units[0].name!r} is a discrete latent "
            "of units, which is summed out over all units at once; leave Svi(batch=...) and "
            "guide='structured' out."
        )
    return BatchPotential(
        archive, problem.summing, problem.label, how.batch, how.holdout, problem.start
    )


def _svi(potential: Potential | BatchPotential, how: Svi, problem: Problem) -> Fit:
    label = problem.label
    flat = pyro.distributions.Normal(torch.zeros(potential.dim), 1.0).to_event(1).mask(False)
    small = potential.dim <= WHITEN_LIMIT
    form = how.guide or ("full" if small else "diagonal")
    scale = potential.scale
    if form in ("diagonal", "low rank"):  # in coordinates of their own: others would mix them
        scale = torch.diag(torch.linalg.vector_norm(scale, dim=1))
    elif potential.dim > MOST_FULL:
        raise ModelError(
            f"{label}: a full-rank guide of {potential.dim} numbers is too large (limit "
            f"{MOST_FULL}); use Svi(guide='low rank') or Svi(guide='diagonal')."
        )

    def unwhite(z: torch.Tensor) -> torch.Tensor:
        return potential.from_white(z, scale)

    def white_model() -> None:
        z = pyro.sample("z", flat)
        # blocked: energy() runs the model, whose sites must not be counted a second time here
        with poutine.block():
            energy = potential.energy(unwhite(z))
        pyro.factor("posterior", -energy)

    at_mode = init_to_value(values={"z": torch.zeros(potential.dim)})
    wide = 1.0 if potential.whitened else 0.1
    guide: Any = FORMS[form](white_model, init_loc_fn=at_mode, init_scale=wide)
    watch = None
    if isinstance(potential, BatchPotential) and len(potential.held):
        batches = potential

        def watch() -> float:
            return batches.held_out(unwhite(guide.get_posterior().mean.detach()))

    losses = _optimise(white_model, guide, how, label, watch)
    with torch.no_grad():
        q = guide.get_posterior()
        z = q.sample((how.draws,))
        u = unwhite(z)
        quality = {"loss_drop": _loss_drop(losses)}
        if isinstance(potential, Potential):
            quality = {"pareto_k": _pareto_k(potential, u, q.log_prob(z)), **quality}
            return Fit(potential.draws(u), quality, losses)
    draws = potential.draws(u)
    if problem.card.unit_sites:
        draws |= potential.unit_draws(u)
    return Fit(draws, quality, losses)


def _svi_with_guide(problem: Problem, guide: Callable[..., Any], how: Svi) -> Fit:
    if isinstance(guide, torch.nn.Module):
        guide = _fresh(guide)
    # a guide made outside the sandbox may keep its parameters in the store, which is scoped here
    optimiser = pyro.optim.ClippedAdam({"lr": how.rate, "lrd": _decay(how)})
    with pyro.settings.context(module_local_params=False):
        found = _check_guide(problem, guide)
        own = all(site.name in found.nodes for site in problem.card.enumerated)
        own &= problem.unit_sums is None
        elbo = Trace_ELBO(num_particles=PARTICLES)
        if how.batch is None:
            svi = SVI(problem.model if own else problem.summed, guide, optimiser, elbo)
            step: Callable[[], float] = partial(svi.step, *problem.args)
        else:
            step = _batch_step(problem, guide, how, partial(SVI, optim=optimiser, loss=elbo))
        losses = np.empty(how.steps)
        progress = bar(range(how.steps), label="SVI")
        for i in progress:
            with without_nan_warnings():
                losses[i] = step()
            tell(progress, f"loss {losses[i]:.6g}")
            _refuse_nan(losses[i], i, problem.label)
        _refuse_diverged(losses, problem.label)
        with torch.no_grad():
            drawn = Predictive(guide, num_samples=how.draws)(*problem.args)
    shapes = {site.name: site.shape for site in problem.card.globals}
    shapes |= {s.name: drawn[s.name].shape[1:] for s in problem.card.unit_sites if not s.discrete}
    draws = {name: drawn[name].reshape(how.draws, *shape).numpy() for name, shape in shapes.items()}
    return Fit(draws, {"loss_drop": _loss_drop(losses)}, losses)


def _batch_step(
    problem: Problem, guide: Callable[..., Any], how: Svi, svi: Callable[..., Any]
) -> Callable[[], float]:
    """Return a step of the law's own guide on the next batch; the guide sees its x and w."""
    archive = _rows(problem, how)
    assert how.batch is not None
    if how.holdout:
        raise ModelError(
            f"{problem.label}: Svi(holdout=...) is not for a law with its own guide; leave it out."
        )
    units, _ = split_units(archive, how.batch, 0.0, problem.label)
    batches = Batches(units, how.batch)
    names = _sums(problem, archive, units)

    def step() -> float:
        bound, args = archive.take(batches.next())
        scaled = [Scaled(names, batches.factor)(each) for each in (problem.summing(bound), guide)]
        return float(svi(*scaled).step(*args))

    return step


def _sums(problem: Problem, archive: Archive, units: torch.Tensor) -> frozenset[str]:
    """Return the terms of a model that are sums over units, by running it at a few."""
    few = min(FEW, len(units) // 2)
    some = [units[:few], units[few : 2 * few], units[: 2 * few]]
    bound, args = archive.take(some[2])
    trace = poutine.trace(problem.summing(bound)).get_trace(*args)
    inside = in_plates(trace)
    drawn = {
        name: node["value"]
        for name, node in trace.nodes.items()
        if node["type"] == "sample"
        and not node["is_observed"]
        and not poutine.util.site_is_subsample(node)
    }
    own = [name for name in drawn if name in inside]
    if own:
        raise ModelError(
            f"{problem.label}: Svi(batch=...) with a guide of the law's own is for global sites, "
            f"but site {own[0]!r} belongs to units or rows; leave the guide or batch out."
        )
    terms = []
    for part in some:
        bound, args = archive.take(part)
        model = poutine.condition(problem.summing(bound), drawn)
        terms.append(terms_of(poutine.trace(model).get_trace(*args)))
    return sums_over_units((terms[0], terms[1], terms[2]), inside, problem.label)[0]


def _check_guide(problem: Problem, guide: Any) -> Any:
    """Run the guide once, before the long part, and return its trace."""
    try:
        found = poutine.trace(guide).get_trace(*problem.args)
    except Exception as cause:
        raise ModelError(
            f"{problem.label}: the guide failed: {type(cause).__name__}: {cause}; it takes the "
            "same arguments as the model."
        ) from cause
    wanted = (*problem.card.globals, *(s for s in problem.card.unit_sites if not s.discrete))
    absent = [site.name for site in wanted if site.name not in found.nodes]
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


def _optimise(
    model: Any, guide: Any, how: Svi, label: str, watch: Callable[[], float] | None = None
) -> Float1:
    """Run the steps; watch : the loss on units held out, which may end them early."""
    particles = 1 if _by_units(how) else PARTICLES
    loss_of = Trace_ELBO(num_particles=particles)(model, guide)
    begin = np.array([loss_of().item() for _ in range(20)])  # the first call makes parameters
    adam = torch.optim.Adam(guide.parameters(), lr=how.rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, _decay(how))
    losses = np.empty(how.steps)
    best, kept, waited = np.inf, None, 0
    progress = bar(range(how.steps), label="SVI")
    for i in progress:
        adam.zero_grad()
        with without_nan_warnings():
            loss = loss_of()
            loss.backward()
        adam.step()
        schedule.step()
        losses[i] = loss.item()
        tell(progress, f"loss {losses[i]:.6g}")
        _refuse_nan(losses[i], i, label)
        if watch is not None and (i + 1) % LOOK == 0:
            found = watch()
            waited += 1
            if found < best:
                best, kept, waited = found, copy.deepcopy(guide.state_dict()), 0
            if waited >= how.patience:
                losses = losses[: i + 1]
                break
    progress.close()
    if np.median(losses[-20:]) > begin.max() + 5.0 * begin.std() + 1.0:  # it began at Laplace's fit
        raise ConvergenceError(DIVERGED.format(label, begin.mean(), losses[-20:].mean()))
    if kept is not None:
        guide.load_state_dict(kept)
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
