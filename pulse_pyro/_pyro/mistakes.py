"""The commonest mistakes in a law's model: how each is noticed, and the line to write instead."""

import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyro
import torch
from pyro.poutine.messenger import Messenger
from torch.overrides import TorchFunctionMode

from pulse_pyro._core.errors import ModelError, PulseError
from pulse_pyro._pyro.sandbox import without_nan_warnings

PLATE = 'pyro.plate("rows", x.shape[-2], dim=-1)'
SINGLE = (
    "everything is float64: make tensors inside the model, torch.zeros(p), without "
    "dtype=torch.float32 and without .float(), and call module.double() on a network"
)
WHERE = (
    "a model runs for all rows and draws at once, so it must not branch on values: write "
    "torch.where(x[..., 0] > 0, high, low) for if"
)
NO_W = (
    'w is None at prediction: begin with w = w or {{}} and write obs=w.get("stress") for '
    "w[:, 0] at the site of a column, or obs=w at the single site 'w'"
)
DETACHED = (
    "no gradient passes through NumPy, math, float(a), a.item(), a.detach() or "
    "torch.tensor([a, b]): write torch.exp(a) for np.exp(a), a for float(a), and "
    "torch.stack([a, b], -1) for torch.tensor([a, b])"
)
IN_PLACE = (
    "a tensor that is written into has no room for the axis of the draws: write loc = loc + new "
    "for loc += new, and loc = torch.where(x[..., 0] > 0, new, loc) for loc[x[:, 0] > 0] = new"
)
EXPANDED = "draws stand on the left of the rows: write loc + torch.zeros(2) for loc.expand(n, 2)"
SOME_ROWS = (
    "inside plate 'rows' every site has one value a row, whatever the data: open "
    f"{PLATE}, sample {{0}} for all rows, and write torch.where(x[..., 0] > 0, {{0}}, 0.0) where "
    "only some of them need it"
)
PRODUCT = (
    "parameters get axes on their left when draws run at once: write (x * b).sum(-1) for x @ b, "
    "and b[..., k] for b[k]"
)
POSITIVE = (
    "{0} is not positive for some row or draw from the prior: write "
    "torch.nn.functional.softplus({0}) for {0}, or give it the prior dist.LogNormal(0.0, 1.0)"
)
NOT_FINITE = (
    "{0} is NaN or infinite for some row or draw from the prior: write torch.log(a.clamp(min=1e-6))"
    " for torch.log(a), and choose priors so narrow that exp() stays finite"
)

ADVICE = (  # what Pyro, torch or Python says, what to write instead; the first that fits counts
    (
        r"Multiple sample sites named 'rows'",
        f"a plate is opened once: rows = {PLATE}, then with rows: ... as often as needed",
    ),
    (
        r"Multiple sample sites named '(.*)'",
        "two sites are called '{0}': a column has one site, for all rows together: write "
        f"with {PLATE}: for a loop over rows",
    ),
    (r"[Ee]xpected dim < 0|collide at dim|dim .* already", f"the plate is to be {PLATE}"),
    (r"Expected parameter (\w+) .*constraint (?:GreaterThan|Positive)", POSITIVE),
    (r"Expected parameter (\w+) .*constraint (?:Real|IndependentConstraint\(Real)", NOT_FINITE),
    (r"Shape mismatch inside plate\('rows'\) at site (\S+)", SOME_ROWS),
    (r"size cannot be zero", SOME_ROWS.replace("{0}", "e")),
    (
        r"expected scalar type|same dtype|dtype .*float|Float but|and Float|Double and|got Double",
        SINGLE,
    ),
    (
        r"'NoneType' object|unhashable type: 'slice'|^\(?slice\(|not a mapping"
        r"|(Tensor|tensor).* has no attribute 'get'|only integers, slices",
        NO_W,
    ),
    (
        r"required positional argument|takes . positional argument",
        "the model is to begin with 'def model(x, w=None):'",
    ),
    (
        r"expand\(torch.*\.expand",
        EXPANDED,
    ),
    (r"[Bb]ool(ean)? value of Tensor|a Tensor with .* elements", WHERE),
    (
        r"call numpy\(\) on Tensor|__array|converted to (a )?(Python )?[Ss]calar|=True to a scalar",
        DETACHED,
    ),
    (
        r"in-place operation|inplace operation|doesn't match the broadcast shape"
        r"|shape mismatch: value tensor|expand\(torch.*must be greater or equal",
        IN_PLACE,
    ),
    (
        r"mat1 and mat2|mat2 must be a matrix|size mismatch|m1 and m2|must match the size"
        r"|vector \+ matrix|einsum\(\)|too many values|not enough values|1D tensors? expected",
        PRODUCT,
    ),
)


def advice_on(said: str) -> str:
    """Return the line to write instead of what made Pyro, torch or Python stop, if it is known."""
    for pattern, line in ADVICE:
        found = re.search(pattern, said)
        if found:
            return line.format(*found.groups())
    return ""


def first_line(cause: BaseException) -> str:
    """Return what an exception says, without the shapes and values that follow."""
    return str(cause).strip().partition("\n")[0].removesuffix(", but found invalid values:")


def line_of(cause: BaseException) -> str:
    """Return where in a user's own code an exception came from: " in line 7, 'a + x @ b'"."""
    text, step = "", cause.__traceback__
    while step is not None:
        home = str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if home not in ("pulse_pyro", "pyro", "torch", "functools", "contextlib"):
            line = linecache.getline(step.tb_frame.f_code.co_filename, step.tb_lineno).strip()
            text = f" in line {step.tb_lineno}, {line!r}" if line else ""
        step = step.tb_next
    return text


# Tensors that are written into.


class _Versions(Messenger):  # type: ignore[misc]  # Pyro has no types
    """Note every sampled value and how often it had been written into when it was handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.Tensor, int]] = []

    def _pyro_post_sample(self, msg: Any) -> None:
        if isinstance(msg["value"], torch.Tensor):
            self.seen.append((msg["name"], msg["value"], msg["value"]._version))


@contextmanager
def unwritten(label: str, x: torch.Tensor, w: Any) -> Iterator[None]:
    """Refuse a model that writes into its inputs or into what it sampled, while it is run."""
    held = dict(w) if isinstance(w, Mapping) else {} if w is None else {"w": w}
    before = [("x", x, x._version)]
    shown = 'w["{}"]' if isinstance(w, Mapping) else "{}"
    before += [(shown.format(n), v, v._version) for n, v in held.items()]
    watch = _Versions()
    with watch:
        yield
    changed = isinstance(w, Mapping) and any(w.get(n) is not v for n, v in held.items())
    for name, value, version in (*before, *watch.seen):
        if value._version != version:
            raise ModelError(
                f"{label}: the model writes into {name}, which then is another the next time it "
                f"is read; make a new tensor: write {_variable(name)} = {_variable(name)} * 2 for "
                f"{_variable(name)} *= 2, and {_variable(name)} = torch.where(x[..., 0] > 0, new, "
                f"{_variable(name)}) for {_variable(name)}[x[:, 0] > 0] = new."
            )
    if changed:
        raise ModelError(
            f"{label}: the model puts other tensors into w, which is the archive's; write "
            "w = {**w, name: new} for w[name] = new."
        )


def _variable(name: str) -> str:
    """Return a name for the left of an assignment."""
    return "u" if name.startswith("w[") else name if name.isidentifier() else "value"


# Single precision.


class Precision(TorchFunctionMode):
    """Note the first operation that turns float64 into float32."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = ""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation."""
        out = func(*args, **(kwargs or {}))
        if (
            isinstance(out, torch.Tensor)
            and out.dtype == torch.float32
            and any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args)
        ):
            self.lost = self.lost or getattr(func, "__name__", "an operation")
        return out


def check_precision(label: str, run: Callable[[], Any]) -> None:
    """Refuse a model that computes in float32: nine digits of x or w are lost unnoticed.

    A constant or a prior in float32, made before the model is run, is let pass: values come in
    float64, and so does what is computed from both.
    """
    with Precision() as precise:
        run()
    if precise.lost:
        raise ModelError(
            f"{label}: the model turns float64 into float32 ({precise.lost}), but {SINGLE}."
        )


# Parameters that a fit could not move.


STEP = 1e-6


def check_gradients(
    label: str, run: Callable[[Mapping[str, torch.Tensor]], Any], held: Mapping[str, torch.Tensor]
) -> None:
    """Refuse a latent that the density changes with, but that no gradient reaches.

    run : traces the model with latents held at values. held : those values, of continuous sites.
    NOT noticed: a latent that is used with a gradient in one place and without in another.
    """
    leaves = {name: value.detach().clone().requires_grad_() for name, value in held.items()}
    with torch.enable_grad():
        terms = _terms(run(leaves))
        if not all(bool(torch.isfinite(term)) for term in terms.values()):
            return  # at an end of the support, nothing can be told from slopes
        for name, leaf in leaves.items():
            others = [v for n, v in terms.items() if n != name and v.requires_grad]
            slope = None
            if others:
                total = torch.stack(others).sum()
                (slope,) = torch.autograd.grad(total, leaf, retain_graph=True, allow_unused=True)
            flat = torch.ones_like(leaf) if slope is None else (slope == 0).to(leaf.dtype)
            if flat.any() and _moves(run, held, name, terms, flat):
                raise ModelError(
                    f"{label}: the density changes with site {name!r}, but no gradient reaches it, "
                    f"so that no engine could fit it; {DETACHED}."
                )


def _terms(trace: Any) -> dict[str, torch.Tensor]:
    """Return the log density of every site."""
    with without_nan_warnings():
        trace.compute_log_prob()
    return {
        name: torch.as_tensor(node["log_prob_sum"])
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and "log_prob_sum" in node
    }


def _moves(
    run: Callable[[Mapping[str, torch.Tensor]], Any],
    held: Mapping[str, torch.Tensor],
    name: str,
    terms: Mapping[str, torch.Tensor],
    flat: torch.Tensor,
) -> bool:
    """Tell whether the density of all but one site changes where that site is moved a little."""
    there = held[name].detach()
    other = there + STEP * (1.0 + there.abs()) * flat
    try:
        with torch.no_grad(), pyro.validation_enabled(False):
            moved = _terms(run({**held, name: other}))
    except PulseError:  # what is next to a value need not be one
        return False
    before = torch.stack([v.detach() for n, v in terms.items() if n != name]).sum()
    after = torch.stack([v for n, v in moved.items() if n != name]).sum()
    return bool((after - before).abs() > 1e-5 * STEP * (1.0 + before.abs()) + 1e-13 * before.abs())


# Data that leave a posterior without a mode.


def odd_data(x: torch.Tensor | None = None, w: Any = None) -> str:
    """Return what in x (n, p) and w, (n, w_dim) or by column, leaves parameters undetermined.

    W without noise makes a likelihood grow without end as a scale goes to 0; inputs that follow
    from each other leave a line that it does not change along. "" where nothing of this is found.
    """
    if x is None or w is None:
        return ""
    columns = w if isinstance(w, Mapping) else dict(enumerate(w.unbind(-1)))
    design = torch.cat([torch.ones_like(x[:, :1]), x], -1)
    for name, value in columns.items():
        seen = ~torch.isnan(value) & ~torch.isnan(design).any(-1)
        y, rows = value[seen].to(design.dtype), design[seen]
        if len(y) and bool((y == y[0]).all()):
            return (
                f"W column {name!r} is {float(y[0]):g} in all {len(y)} rows, so there is nothing "
                "to learn of it: leave it out, or bring an archive in which it varies"
            )
        if len(y) > rows.shape[1]:
            line = torch.linalg.lstsq(rows, y[:, None]).solution
            if float((y - (rows @ line)[:, 0]).std()) < 1e-9 * float(y.std()):
                return (
                    f"W column {name!r} follows from the inputs without noise, so it need not be "
                    "foretold: leave it out, or leave out the input that it was copied from"
                )
    for j, column in enumerate(x.unbind(-1)):
        same = [i for i in range(j) if torch.equal(x[:, i], column)]
        if same:
            return f"inputs {same[0]} and {j} are copies of each other: leave one of them out"
        if bool((column == column[0]).all()):
            return f"input {j} is {float(column[0]):g} in all rows: leave it out"
    if len(x) <= x.shape[1]:
        return f"there are {len(x)} rows for {x.shape[1]} inputs: bring more, or use fewer inputs"
    return ""


# A model that does not broadcast over draws.


def line_for_site(
    name: str, shape: tuple[int, ...], *, vector: bool, summed: bool, cause: Exception | None
) -> str:
    """Return what to write for a site that is not used as if it could have draws on its left.

    shape : of one value. vector : W is the single site "w". summed : some latent is summed over.
    cause : what the model stopped with at several draws, if it did.
    """
    place = "" if cause is None else line_of(cause)
    known = "" if cause is None else advice_on(first_line(cause) + place)
    stopped = f" (it stopped{place})" if place else ""
    if known in (WHERE, IN_PLACE, EXPANDED):
        return known + stopped
    if not shape and vector:
        line = f"write {name}[..., None] for {name} beside w, which has an axis of its own"
    elif not shape:
        line = (
            f"write torch.stack([{name}, ...], -1) for torch.stack([{name}, ...]), and "
            f"torch.where({name} > 0, high, low) for if"
        )
    elif summed:
        line = f"write Vindex({name})[..., k] (pyro.ops.indexing) for {name}[k]"
    else:
        line = f"write (x * {name}).sum(-1) for x @ {name}, and {name}[..., k] for {name}[k]"
        if not vector:
            line += f"; beside x[..., :1], {name} for {name}[..., None, :]"
    return line + stopped
