"""Run a model at stored posterior draws, or at draws from its prior; all at once where allowed."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.poutine as poutine
import torch

from pulse_pyro._core.arrays import Float, Float2, Float3, Int
from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.codes import Coding, codings, codings_of
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.base import ModelCard

# Run a model at stored posterior draws: all draws at once where the contract check allows it.


CHUNK = 2**21  # values of w in flight
LOCAL_REPEATS = 32  # redraws of row-wise latents when a mean is asked for


class Stacked:
    """Distributions of w draw by draw, behaving as one with a leading draw axis."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.batch_shape = torch.Size([len(parts), *parts[0].batch_shape])

    @property
    def mean(self) -> torch.Tensor:
        """(draws, rows, w_dim)."""
        return torch.stack([part.mean for part in self.parts])

    def sample(self) -> torch.Tensor:
        """(draws, rows, w_dim)."""
        return torch.stack([part.sample() for part in self.parts])

    def log_prob(self, w: torch.Tensor) -> torch.Tensor:
        """(draws, rows)."""
        return torch.stack([part.log_prob(w) for part in self.parts])


def run_at_draws(
    model: Callable[..., Any], x: torch.Tensor, draws: Mapping[str, torch.Tensor], card: ModelCard
) -> Any:
    """Return the distribution of w at x (n, p) for each draw: batch (draws, n), event (w_dim,).

    Each site's draws (m, *batch, *event) get singleton axes between m and their own batch
    axes, so that m lands left of every plate whatever the site's event dimension is.
    """
    count = len(next(iter(draws.values()))) if draws else 1
    if not card.vectorised:
        parts = []
        for i in range(count):
            fixed = poutine.condition(model, {name: value[i] for name, value in draws.items()})
            parts.append(poutine.trace(fixed).get_trace(x).nodes["w"]["fn"])
        return Stacked(parts)
    fixed = poutine.condition(model, padded(draws, card, count))
    with pyro.plate("_draws", count, dim=-card.nesting - 1):
        fn = poutine.trace(fixed).get_trace(x).nodes["w"]["fn"]
    # plates between the draws and the rows are not part of w's contract: nesting axes of size 1
    shape = torch.Size([count, len(x)])
    return fn if fn.batch_shape == shape else _squeezed(fn, shape)


def padded(
    draws: Mapping[str, torch.Tensor], card: ModelCard, count: int
) -> dict[str, torch.Tensor]:
    """Return draws (m, *batch, *event) with singleton axes right of m, as many as plates need."""
    out = {}
    for site in (site for site in card.sites if site.name in draws):
        gap = (1,) * (card.nesting - len(site.batch_shape))
        value = draws[site.name]  # of as many units as are asked for, not as the check had
        own = value.shape[1:] if site.kind == "unit" else site.shape
        out[site.name] = value.reshape(count, *gap, *own)
    return out


def _squeezed(fn: Any, shape: torch.Size) -> Any:
    class Squeezed:
        batch_shape = shape

        @property
        def mean(self) -> torch.Tensor:
            return fn.mean.reshape(*shape, -1)

        def sample(self) -> torch.Tensor:
            return fn.sample().reshape(*shape, -1)

        def log_prob(self, w: torch.Tensor) -> torch.Tensor:
            return fn.log_prob(w).reshape(shape)

    return Squeezed()


def written_down(
    means: Callable[[torch.Tensor], torch.Tensor], card: ModelCard
) -> Callable[..., torch.Tensor] | None:
    """Return means of one row, x (1, x_dim), as a flat program; None where it has to be run."""
    if not (card.vectorised and card.closed_mean):
        return None
    from pulse_pyro._pyro.compiled import flat_program

    with sandbox(0, "predict"), torch.no_grad(), pyro.validation_enabled(False):
        return flat_program(means, (torch.randn(1, card.x_dim),), (torch.randn(1, card.x_dim),))


def flat_means(flat: Callable[..., torch.Tensor] | None, x: Float2) -> Float3 | None:
    """Return (draws, 1, w_dim); None where the program has to be run, as it may not have a mean."""
    if flat is None:
        return None
    found: Float3 = flat(torch.tensor(x)).numpy()
    return found if np.isfinite(found).all() else None


class PyroKernel:
    """Prediction for any model, by running it at the stored draws inside the sandbox.

    Used for custom models; built-in laws bring their own NumPy formulas.
    """

    def __init__(
        self, model: Callable[..., Any], draws: Mapping[str, Float], card: ModelCard
    ) -> None:
        self.model, self.card = model, card
        self.draws = {name: torch.tensor(value) for name, value in draws.items()}
        self.count = len(next(iter(draws.values()))) if draws else 1
        self.columns = self.count * card.w_dim

    @property
    def exact_mean(self) -> bool:
        """Whether w has a closed-form mean given a draw."""
        return self.card.closed_mean

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x], (n, w_dim), the average over all draws."""
        rows = max(CHUNK // (self.count * self.card.w_dim), 1)
        every = np.arange(self.count)
        parts = [
            self.mean_draws(x[start : start + rows], every).mean(0)
            for start in range(0, len(x), rows)
        ]
        return np.concatenate(parts)

    def mean_draws(self, x: Float2, index: Any) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim); a row's own latents are averaged out."""
        if len(x) == 1 and (known := flat_means(self.flat, x)) is not None:
            return known[index]
        repeats = LOCAL_REPEATS if self.card.locals else 1

        def average(fn_of: Callable[[], Any]) -> torch.Tensor:
            parts = [_mean(fn_of()) for _ in range(repeats)]
            return torch.stack(parts).mean(0)

        return self._by_rows(x, index, 0, average)

    @cached_property
    def flat(self) -> Callable[..., torch.Tensor] | None:
        """Means of every draw at one row, (draws, 1, w_dim), without Pyro: as asked for online."""
        if self.card.locals:
            return None

        def means(x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = run_at_draws(self.model, x, self.draws, self.card).mean
            return out

        return written_down(means, self.card)

    def sample(self, x: Float2 | Float3, index: Any, rng: Any) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), once per entry of ``index``."""
        if x.ndim == 3:
            parts = [self.sample(own, [i], rng) for own, i in zip(x, index, strict=True)]
            return np.concatenate(parts)
        seed = int(rng.integers(2**62))
        return self._by_rows(x, index, seed, lambda fn_of: fn_of().sample())

    def log_density(self, x: Float2, w: Float2, index: Any) -> Float2:
        """Return log p(w | x, draw), (len(index), n); NaN if rows have latents of their own."""
        if self.card.locals:
            return np.full((len(index), len(x)), np.nan)
        chosen = {name: value[index] for name, value in self.draws.items()}
        with sandbox(0, "predict"), torch.no_grad():
            law = run_at_draws(self.model, torch.as_tensor(x), chosen, self.card)
            out: Float2 = law.log_prob(torch.as_tensor(w)).numpy()
        return out

    def column_log_density(self, x: Float2, w: Float2, index: Any) -> Float3 | None:
        """Return log p(w_j | x, draw), (len(index), n, 1); None of several W: a model says no more.

        Its site is one distribution of all W; what that makes of one of them is not asked of Pyro.
        """
        return self.log_density(x, w, index)[..., None] if self.card.w_dim == 1 else None

    def _by_rows(
        self, x: Float2, index: Any, seed: int, use: Callable[[Callable[[], Any]], torch.Tensor]
    ) -> Float3:
        chosen = {name: value[index] for name, value in self.draws.items()}
        block = max(CHUNK // (len(index) * self.card.w_dim), 1)
        with sandbox(seed, "predict"), torch.no_grad():
            parts = [
                use(partial(run_at_draws, self.model, part, chosen, self.card))
                for part in torch.as_tensor(x).split(block)
            ]
            return torch.cat(parts, dim=1).numpy()


def has_mean(fn: Any) -> bool:
    """Tell whether a distribution knows its mean."""
    try:
        return bool(torch.isfinite(fn.mean).all())
    except (NotImplementedError, AttributeError):
        return False


def _mean(fn: Any) -> torch.Tensor:
    return fn.mean if has_mean(fn) else torch.stack([fn.sample() for _ in range(64)]).mean(0)


# Draw parameters from a model's prior, and an archive from the model given them.


class Simulated(NamedTuple):
    """truth : global site -> its value. w : (n, w_dim), NaN where the model did not record it."""

    truth: dict[str, Float]
    w: Float2


def simulate_prior(
    model: Callable[..., Any], x: Float2, unit: Int, card: ModelCard, seed: int, *names: str | int
) -> Simulated:
    """Run model(x) once, with its parameters from the prior.

    A model that names ``unit`` is given it; one with a site ``seen`` decides which w are recorded.
    """
    extras: dict[str, Any] = {}
    if "unit" in inspect.signature(model).parameters:
        extras["unit"] = torch.as_tensor(unit)
    with sandbox(seed, "prior", *names), torch.no_grad():
        nodes = poutine.trace(model).get_trace(torch.tensor(x), **extras).nodes
        truth = {site.name: nodes[site.name]["value"].numpy().copy() for site in card.globals}
        w = _w_of(nodes, codings_of(card))
        if "seen" in nodes:
            w[nodes["seen"]["value"].numpy() == 0] = np.nan
    return Simulated(truth, w)


def prior_sites(
    model: Callable[..., Any], p: int, names: Iterable[str], count: int, seed: int, units: int = 0
) -> dict[str, Float]:
    """Draw sites from the prior, (count, *site shape) each, at inputs 0 of p columns.

    units : of a model with plate "units", how many it has; else 0.
    """
    x = torch.zeros((max(units, 2), p), dtype=torch.float64)
    extras = {"unit": torch.arange(units)} if units else {}
    with sandbox(seed, "prior sites"), torch.no_grad():
        runs = [
            poutine.trace(model).get_trace(x[:units] if units else x, **extras).nodes
            for _ in range(count)
        ]
        return {
            name: np.stack([nodes[name]["value"].numpy().astype(np.float64) for nodes in runs])
            for name in names
        }


def log_prior_sites(
    run: Callable[[], Any],
    draws: Mapping[str, Float],
    plates: Mapping[str, int],
    nesting: int,
    together: bool,
) -> dict[str, Float]:
    """Return log p(site | sites before it) at draws (draw, *site shape), (draw,) for each site.

    Densities are of the sites as they are written, not of anything the engine made of them.

    run : the model, or as much of it as samples the sites. plates : how many axes of a site are
    those of plates, 0 where a name is left out. nesting : plate axes of the model; draws go to the
    left of them. together : the model broadcasts over draws, as far as W goes.
    """
    count = len(next(iter(draws.values())))

    def densities(given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        trace = poutine.trace(poutine.condition(run, given)).get_trace()
        absent = [name for name in given if name not in trace.nodes]
        if absent:
            raise ModelError(f"the model does not sample site {absent[0]!r}")
        trace.compute_log_prob(site_filter=lambda name, site: name in given)
        return {name: trace.nodes[name]["log_prob"] for name in given}

    def alone(i: int) -> dict[str, float]:
        given = {name: torch.tensor(value[i]) for name, value in draws.items()}
        return {name: float(value.sum()) for name, value in densities(given).items()}

    with sandbox(0, "log prior"), torch.no_grad(), pyro.validation_enabled(False):
        ends = {0: alone(0), count - 1: alone(count - 1)}
        if together:
            wide = {}
            for name, value in draws.items():
                gap = (1,) * (nesting - plates.get(name, 0))
                wide[name] = torch.tensor(value).reshape(count, *gap, *value.shape[1:])
            try:
                found = densities(wide)
                flat = {name: value.reshape(count, -1).sum(1) for name, value in found.items()}
            except RuntimeError:  # a prior that broadcasts is no rule: W alone is checked
                flat = {}
            # a prior that mixes draws up gives other numbers than one draw does
            if flat and all(np.isclose(flat[n][i], v) for i in ends for n, v in ends[i].items()):
                return {name: value.numpy() for name, value in flat.items()}
        each = [alone(i) for i in range(count)]
    return {name: np.array([one[name] for one in each]) for name in draws}


def prior_w(
    model: Callable[..., Any],
    x: Float2,
    seed: int,
    columns: tuple[str, ...] = (),
    by_unit: bool = False,
) -> Float2:
    """Draw w, (n, w_dim), at x (n, p), with parameters from the prior.

    columns : the W columns, if each has a site of its own. by_unit : every row is a unit.
    """
    extras = {"unit": torch.arange(len(x))} if by_unit else {}
    with sandbox(seed, "prior w"), torch.no_grad():
        nodes = poutine.trace(model).get_trace(torch.tensor(x), **extras).nodes
        return _w_of(nodes, codings(columns, (), ()))


def _w_of(nodes: Mapping[str, Any], coded: tuple[Coding, ...]) -> Float2:
    """Return the w that a run drew, (n, w_dim)."""
    if not coded:
        drawn: Float2 = nodes["w"]["value"].numpy().astype(np.float64)
        return drawn
    return np.concatenate([each.of(nodes[each.name]["value"]).numpy() for each in coded], axis=-1)
