"""The contract of a law's model, checked by running it: model(x, w=None)."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyro.poutine as poutine
import torch

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.errors import ModelError, PulseError, nearest
from pulse_pyro._pyro.predict import has_mean, run_at_draws
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.base import ModelCard, Site

Model = Callable[..., Any]
RULE = 'a law\'s model(x, w=None) samples "w" with obs=w inside pyro.plate("rows", n, dim=-1)'


def check_model(model: Model, x: Float2, w: Float2, name: str = "") -> ModelCard:
    """Run the model on a few rows of x (n, p), w (n, w_dim) and describe it, or say what is wrong.

    Checked: site "w" exists, is observed when w is given and sampled when it is not, has batch
    shape (rows,) and event shape (w_dim,); plate "rows" is on dim -1; no site outside the plate
    changes shape with the number of rows; and whether all draws can run at once. NOT checked:
    that the model is a sensible description of the data.
    """
    label = name or getattr(model, "__name__", "model")
    many = max(min(len(x), 8), 2)
    rows = np.arange(many) % len(x)
    x, w = np.nan_to_num(x[rows]), w[rows]
    extras = _extras(model, w)
    with sandbox(0, "contract"):
        tx, tw = torch.as_tensor(x), torch.as_tensor(np.nan_to_num(w))
        given = _trace(model, label, tx, tw, extras)
        free = _trace(model, label, tx, None, {})
        short = _trace(model, label, tx[:-1], tw[:-1], {k: v[:-1] for k, v in extras.items()})
        learned = [n for n, node in given.nodes.items() if node["type"] == "param"]
        if learned:
            raise ModelError(
                f"{label}: {learned[0]!r} is a pyro.param, but only sample sites leave a fit; give "
                "it a prior with pyro.sample."
            )
        _check_w(label, given, free, many, tw.shape[-1])
        # a unit's own latent that is drawn at prediction too is a row's latent there
        sites = tuple(
            replace(site, kind="local") if site.kind == "unit" and site.name in free.nodes else site
            for site in (_site(n, node) for n, node in given.nodes.items() if _stochastic(node))
        )
        for site in sites:
            other = short.nodes.get(site.name)
            if site.name not in free.nodes and site.kind != "unit":
                raise ModelError(
                    f"{label}: site {site.name!r} is there when w is given but not when w=None; "
                    "the model must sample the same sites for fitting and for prediction."
                )
            if site.kind == "global" and (other is None or _shape(other) != site.shape):
                raise ModelError(
                    f"{label}: site {site.name!r} has shape {site.shape} for {many} rows but "
                    f"{None if other is None else _shape(other)} for {many - 1}; a site with one "
                    'value per row belongs inside plate "rows".'
                )
        if not any(site.kind == "global" for site in sites):
            raise ModelError(
                f"{label}: there is no latent site outside plate 'rows', so nothing can be learned "
                "from the archive; give the parameters priors with pyro.sample."
            )
        nesting = max(1, *(len(site.batch_shape) for site in sites))
        local = any(site.kind == "local" for site in sites)
        closed = not local and has_mean(given.nodes["w"]["fn"])
        _check_alone(model, label, tx, free)
        slow = ModelCard(sites, x.shape[1], tw.shape[-1], False, nesting, closed)
        fast = replace(slow, vectorised=True)
        return fast if _same_law(model, label, tx, tw, slow, fast) else slow


def _extras(model: Model, w: Float2) -> dict[str, torch.Tensor]:
    """Return stand-ins for what a model asks for beside x and w."""
    named = inspect.signature(model).parameters if callable(model) else {}
    stands = {
        "unit": torch.arange(len(w)) // 2,
        "seen": torch.as_tensor(~np.isnan(w)),
    }
    return {name: value for name, value in stands.items() if name in named}


def _trace(
    model: Model, label: str, x: torch.Tensor, w: torch.Tensor | None, extras: dict[str, Any]
) -> Any:
    try:
        return poutine.trace(model).get_trace(*((x,) if w is None else (x, w)), **extras)
    except PulseError:
        raise
    except Exception as cause:
        call = "model(x)" if w is None else "model(x, w)"
        raise ModelError(
            f"{label}: {call} failed for x {tuple(x.shape)} of {x.dtype}: {type(cause).__name__}: "
            f"{str(cause).strip().splitlines()[0] if str(cause).strip() else ''}. Remember: {RULE}."
        ) from cause


def _is_sample(node: dict[str, Any]) -> bool:
    return node["type"] == "sample" and not poutine.util.site_is_subsample(node)


def _stochastic(node: dict[str, Any]) -> bool:
    return _is_sample(node) and (not node["is_observed"] or node["name"] == "w")


def _shape(node: dict[str, Any]) -> tuple[int, ...]:
    return tuple(node["fn"].batch_shape) + tuple(node["fn"].event_shape)


def _site(name: str, node: dict[str, Any]) -> Site:
    plates = {frame.name for frame in node["cond_indep_stack"]}
    fn = node["fn"]
    base = fn.base_dist if hasattr(fn, "base_dist") else fn
    return Site(
        name,
        "observed"
        if name == "w"
        else "local"
        if "rows" in plates
        else "unit"
        if "units" in plates
        else "global",
        tuple(fn.batch_shape),
        tuple(fn.event_shape),
        type(base).__name__,
        bool(fn.support.is_discrete) if name != "w" else False,
    )


def _check_w(label: str, given: Any, free: Any, many: int, w_dim: int) -> None:
    names = [n for n, node in given.nodes.items() if _is_sample(node)]
    if "w" not in names:
        raise ModelError(f"{label}: there is no site 'w'{nearest('w', names)} Remember: {RULE}.")
    node = given.nodes["w"]
    if not node["is_observed"]:
        raise ModelError(f"{label}: model(x, w) does not observe site 'w'; pass obs=w to it.")
    if "w" not in free.nodes:
        raise ModelError(f"{label}: model(x) samples no site 'w'; with w=None it must.")
    if free.nodes["w"]["is_observed"]:
        raise ModelError(f"{label}: model(x) observes site 'w'; with w=None it must be sampled.")
    frame = next((f for f in node["cond_indep_stack"] if f.name == "rows"), None)
    if frame is None or frame.dim != -1:
        raise ModelError(f"{label}: site 'w' is not inside plate 'rows' on dim -1; {RULE}.")
    batch, event = tuple(node["fn"].batch_shape), tuple(node["fn"].event_shape)
    if batch != (many,) or event != (w_dim,):
        raise ModelError(
            f"{label}: site 'w' has batch shape {batch} and event shape {event} for {many} rows; "
            f"they must be ({many},) and ({w_dim},): parameters need a last axis "
            "for w, loc[..., None], and the distribution ends with .to_event(1)."
        )


def _check_alone(model: Model, label: str, x: torch.Tensor, free: Any) -> None:
    """Refuse a model in which a row's law depends on the other rows: online there is only one."""
    latent = {n: node for n, node in free.nodes.items() if n != "w" and _stochastic(node)}
    if any(_site(n, node).kind != "global" for n, node in latent.items()):
        return  # a row's own latent is drawn anew each time
    held = poutine.condition(model, {n: node["value"] for n, node in latent.items()})
    value = free.nodes["w"]["value"]
    alone = _trace(held, label, x[-1:], None, {}).nodes["w"]["fn"]
    one, two = free.nodes["w"]["fn"].log_prob(value)[-1], alone.log_prob(value[-1:])[0]
    if not torch.allclose(one, two, rtol=1e-6, equal_nan=True):
        raise ModelError(
            f"{label}: the law of a row changes with the other rows (log-density {float(two):.4g} "
            f"alone, {float(one):.4g} among others); online there is only one row, so no "
            "x.mean(-2) or x.std(-2) in a model: put it into the summary or the data."
        )


def _same_law(
    model: Model, label: str, x: torch.Tensor, w: torch.Tensor, slow: ModelCard, fast: ModelCard
) -> bool:
    """Compare log p(w | draw) of two prior draws, run one by one and both at once."""
    traces = [_trace(model, label, x, None, {}) for _ in range(2)]
    draws = {
        site.name: torch.stack([t.nodes[site.name]["value"].detach() for t in traces])
        for site in (*slow.globals, *slow.locals)  # row-wise latents too: the same noise for both
    }
    try:
        apart = run_at_draws(model, x, draws, slow).log_prob(w)
        at_once = run_at_draws(model, x, draws, fast).log_prob(w)
        return bool(torch.allclose(apart, at_once, rtol=1e-8))
    except Exception:  # whatever a model does when it does not broadcast
        return False
