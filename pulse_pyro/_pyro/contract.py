"""The contract of a law's model, checked by running it: model(x, w=None)."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyro.poutine as poutine
import torch

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.errors import DataError, ModelError, PulseError, nearest
from pulse_pyro._pyro.handmade import check_handmade
from pulse_pyro._pyro.mistakes import (
    PLATE,
    advice_on,
    check_gradients,
    check_precision,
    first_line,
    line_for_site,
    line_of,
    unwritten,
)
from pulse_pyro._pyro.predict import run_at_draws
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.sites import (
    MOST_CELLS,
    NODES,
    NODES_OF_TWO,
    has_known_mean,
    is_normal,
    kind_of,
    runs_at,
    support_of,
)
from pulse_pyro.base import ModelCard, Site

Model = Callable[..., Any]
UNITS = 'with pyro.plate("units", int(unit.max()) + 1, dim=-1)'
RULE = 'a law\'s model(x, w=None) samples "w" with obs=w inside pyro.plate("rows", n, dim=-1)'


def check_model(
    model: Model,
    x: Float2,
    w: Float2,
    name: str = "",
    columns: tuple[str, ...] = (),
    codes: Float2 | None = None,
) -> ModelCard:
    """Run the model on a few rows of x (n, p), w (n, w_dim) and describe it, or say what is wrong.

    columns : names of the W columns; a model may have a site for each of them instead of "w".
    codes : (n, columns), w as such a site sees it; the first columns of w, if they are not given.

    Checked: site "w" exists, is observed when w is given and sampled when it is not, has batch
    shape (rows,) and event shape (w_dim,), or the site of every W column batch shape (rows,) and
    no event; plate "rows" is on dim -1; no site outside the plate changes shape with the number of
    rows, and none outside plate "units" with that of units; and whether all draws can run at once.
    NOT checked: that the model is a sensible description of the data.
    """
    label = name or getattr(model, "__name__", "model")
    many = max(min(len(x), 8), 2)
    rows = np.arange(many) % len(x)
    codes = w[:, : len(columns)] if codes is None else codes
    x, first, w = np.nan_to_num(x[rows]), codes, w[rows]
    with sandbox(0, "contract"):
        tx = torch.as_tensor(x)
        by_unit = asks_for_units(model, tx)
        asked = model
        if by_unit:
            model = _in_pairs(model)
        free = _trace(model, label, tx, None, {})
        by_column = has_column_sites(free, columns, many)
        _check_names(label, free, by_column, columns)
        outcomes = columns if by_column else ("w",)
        tw = _given(free, first, rows, columns) if by_column else torch.as_tensor(np.nan_to_num(w))
        extras = _extras(model, first[rows] if by_column else w, outcomes if by_column else ())
        check_precision(label, lambda: _trace(model, label, tx, tw, extras))
        given = _trace(model, label, tx, tw, extras)
        other = _one_unit(asked) if by_unit else model
        short = _trace(
            other, label, tx[:-1], _cut(tw, -1), {k: _cut(v, -1) for k, v in extras.items()}
        )
        learned = [n for n, node in given.nodes.items() if node["type"] == "param"]
        if learned:
            raise ModelError(
                f"{label}: {learned[0]!r} is a pyro.param, but only sample sites leave a fit; give "
                "it a prior with pyro.sample."
            )
        if by_column:
            for column in columns:
                _check_column(label, column, given, free, many)
        else:
            _check_w(label, given, free, many, w.shape[-1])
        _check_once(model, label, tx, tw, extras, free)
        # a unit's own latent that is drawn at prediction too is a row's latent there
        sites = tuple(
            replace(site, kind="local")
            if site.kind == "unit" and site.name in free.nodes and not by_unit
            else site
            for site in (
                _site(n, node, outcomes)
                for n, node in given.nodes.items()
                if _stochastic(node, outcomes)
            )
        )
        for site in sites:
            other = short.nodes.get(site.name)
            if site.name not in free.nodes and site.kind != "unit":
                raise ModelError(
                    f"{label}: site {site.name!r} is there when w is given but not when w=None; "
                    "the model must sample the same sites for fitting and for prediction."
                )
            if site.kind == "global" and (other is None or _shape(other) != site.shape):
                most = many // 2 + many % 2
                raise ModelError(
                    f"{label}: site {site.name!r} has shape {site.shape} for {many} rows"
                    f"{f' of {most} units' * by_unit} but "
                    f"{None if other is None else _shape(other)} for {many - 1}"
                    f"{' of one unit' * by_unit}; a site with one value per row belongs inside "
                    'plate "rows"'
                    + (f", one with a value per unit inside {UNITS}." if by_unit else ".")
                )
            if site.kind == "unit" and by_unit:
                _check_unit(label, site, given, other, many)
        if not any(site.kind == "global" for site in sites):
            raise ModelError(
                f"{label}: there is no latent site outside plate 'rows', so nothing can be learned "
                "from the archive; give the parameters priors with pyro.sample."
            )
        _check_shapes(model, label, tx, tw, extras, sites)
        able = _possible(free.nodes["w"], tw) if isinstance(tw, torch.Tensor) else tw
        _check_fit(model, label, tx, able, extras, sites)
        nesting = max(1, *(len(site.batch_shape) for site in sites))
        sites = _with_supports(sites, free, by_column, by_unit)
        if by_column:
            sites = _with_parents(model, label, tx, free, sites)
        slow = ModelCard(
            sites,
            x.shape[1],
            w.shape[-1],
            False,
            nesting,
            False,
            columns=outcomes * by_column,
            by_unit=by_unit and any(site.kind == "unit" for site in sites),
        )
        if slow.cells > MOST_CELLS:
            raise ModelError(
                f"{label}: sites {', '.join(slow.summed)} are summed over together, which makes "
                f"{slow.cells} terms a row (limit {MOST_CELLS}); use fewer of them or fewer values."
            )
        known = all(has_known_mean(free.nodes[n]["fn"]) for n in outcomes)
        drawn = slow.draws_for_means if slow.by_site else bool(slow.locals)
        drawn |= slow.by_unit and not slow.unit_cells
        slow = replace(slow, closed_mean=known and not drawn)
        _check_answers(label, free, outcomes)
        _check_alone(model, label, tx, free, outcomes, by_unit)
        if not extras:
            _check_both_ways(model, label, tx, able, outcomes)
        fast = replace(slow, vectorised=True)
        if _same_law(model, label, tx, tw, slow, fast):
            return fast
        why = _why_slow(model, label, tx, tw, slow, fast, given)
        if slow.by_unit:
            name = slow.unit_sites[0].name
            raise ModelError(
                f"{label}: it does not give the same law when all draws run at once, which a law "
                f"with sites per unit must: write {name}[..., unit] for {name}[unit], (x * b)"
                ".sum(-1) for x @ b, sd[..., None] beside [..., None], and .to_event(1) on vector "
                "sites."
            )
        return replace(slow, slow=why)


def asks_for_units(model: Model, x: Any) -> bool:
    """Tell whether a model wants ``unit`` at prediction too: it has, or may have, sites of units.

    x : (n, p), a few rows of its inputs.

    Not if model(x) without a unit runs and leaves plate "units" out: it then treats a new unit in
    a way of its own.
    """
    if "unit" not in (inspect.signature(model).parameters if callable(model) else {}):
        return False
    try:
        with sandbox(0, "contract"):
            nodes = poutine.trace(model).get_trace(torch.as_tensor(x)).nodes
    except Exception:  # the unit that is not there
        return True
    return any(
        _is_sample(node) and any(frame.name == "units" for frame in node["cond_indep_stack"])
        for node in nodes.values()
    )


def _in_pairs(model: Model) -> Model:
    """Return a model whose rows belong to units 0, 0, 1, 1, ..."""

    def of_pairs(x: Any, w: Any = None, **extras: Any) -> Any:
        return model(x, w, **{**extras, "unit": torch.arange(x.shape[-2]) // 2})

    # what else it asks for is read from its signature
    of_pairs.__signature__ = inspect.signature(model)  # type: ignore[attr-defined]
    return of_pairs


def _one_unit(model: Model) -> Model:
    """Return a model whose rows are all of unit 0."""

    def of_one(x: Any, w: Any = None, **extras: Any) -> Any:
        return model(x, w, **{**extras, "unit": torch.zeros(x.shape[-2], dtype=torch.int64)})

    return of_one


def _check_unit(label: str, site: Site, given: Any, short: Any, many: int) -> None:
    """Refuse a site of units that is not on the last axis, one value for each unit."""
    stack = given.nodes[site.name]["cond_indep_stack"]
    frame = next(frame for frame in stack if frame.name == "units")
    most = many // 2 + many % 2
    first = None if short is None else tuple(short["fn"].batch_shape)
    if frame.dim != -1 or site.batch_shape != (most,) or first != (1,):
        raise ModelError(
            f"{label}: site {site.name!r} of plate 'units' has batch shape {site.batch_shape} for "
            f"{most} units and {first} for one, on dim {frame.dim}; write {UNITS} and "
            f"{site.name}[..., unit] for the rows."
        )


def has_column_sites(free: Any, columns: tuple[str, ...], many: int) -> bool:
    """Tell from a trace without w whether each W column has a site of its own, or all are "w"."""
    node = free.nodes.get("w")
    if node is not None and node["type"] == "sample":
        return "w" in columns and _shape(node) == (many,) and not node["fn"].event_shape
    return any(n in free.nodes and _is_sample(free.nodes[n]) for n in columns)


def samples_columns(model: Model, x: Float2, label: str, columns: tuple[str, ...]) -> bool:
    """Tell whether a model has a site per W column; x (n, p) are a few rows of its inputs."""
    with sandbox(0, "contract"):
        tx = torch.as_tensor(np.nan_to_num(x))
        model = _in_pairs(model) if asks_for_units(model, tx) else model
        return has_column_sites(_trace(model, label, tx, None, {}), columns, len(x))


def check_values(
    model: Model,
    x: torch.Tensor,
    w: Any,
    counts: dict[str, torch.Tensor],
    label: str,
    place: Callable[[int], str],
    coded: tuple[str, ...] = (),
) -> None:
    """Refuse a W that its site cannot have, by column, row and unit.

    x : (n, p). w : by column, (n,) each, or (n, w_dim) of the single site "w". counts : which of
    the values count, (n,) for each column. place : tells where a row stands. coded : columns of
    declared levels, whose code is -1 for what is none of them.
    """
    with sandbox(0, "support"), torch.no_grad():
        nodes = _trace(model, label, x, w, {}).nodes
        for j, name in enumerate(counts):
            fn = nodes[name if isinstance(w, dict) else "w"]["fn"]
            value = w[name] if isinstance(w, dict) else w[:, j]
            if isinstance(w, dict):
                inside = fn.support.check(value)
            else:
                fn = getattr(fn, "base_dist", fn)
                inside = fn.support.check(w)
                # of a distribution of vectors the support answers for the whole row
                inside = inside[..., j] if inside.shape[-2:] == w.shape else inside
            odd = torch.nonzero(~inside & counts[name])
            if len(odd):
                row = int(odd[0, -1])
                got = float(value[row])
                held = (
                    "a number that is none of its levels"
                    if got == -1 and name in coded
                    else f"{got:g}"
                )
                raise DataError(
                    f"{label}: W column {name!r} holds {held} in {place(row)}, which its site, "
                    f"{kind_of(fn)}, cannot have ({len(odd)} such rows); correct the data, "
                    "or give the column another distribution."
                )


class _Asked(Mapping[str, None]):
    """A stand-in for w that notes which columns a model asks for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getitem__(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return 1  # "w or {}" must keep it


def asked_columns(model: Model, x: Float2) -> tuple[str, ...]:
    """Return the W columns that a model has sites for, in the order it asks for them.

    None if its site is "w", or if it fails: the contract check then says why.
    """
    asked = _Asked()
    with sandbox(0, "contract"):
        try:
            tx = torch.as_tensor(x)
            model = _in_pairs(model) if asks_for_units(model, tx) else model
            nodes = poutine.trace(model).get_trace(tx, asked).nodes
        except Exception:  # a model that wants a tensor
            return ()
    return tuple(n for n in asked.names if n in nodes and _is_sample(nodes[n]))


def _cut(value: Any, stop: int) -> Any:
    """Return the rows up to ``stop`` of a tensor, or of every tensor of a mapping."""
    if isinstance(value, dict):
        return {name: each[:stop] for name, each in value.items()}
    return value[:stop]


def _given(free: Any, w: Float2, rows: Any, columns: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return W by column at some rows; values that a site could not have are made up."""
    out = {}
    for j, name in enumerate(columns):
        value = torch.as_tensor(w[rows, j])
        node = free.nodes.get(name)
        if node is not None and _is_sample(node) and node["value"].shape == value.shape:
            fits = node["fn"].support.check(value) & ~torch.isnan(value)
            value = torch.where(fits, value, node["value"].to(value.dtype))
        out[name] = torch.nan_to_num(value)
    return out


def _possible(node: dict[str, Any], w: torch.Tensor) -> torch.Tensor:
    """Return w, or the draws of the site "w" where it could not have been w."""
    inside = node["fn"].support.check(w)
    return w if bool(inside.all()) else node["value"]


def _with_supports(
    sites: tuple[Site, ...], free: Any, by_column: bool, by_unit: bool
) -> tuple[Site, ...]:
    """Note over how many values a site is summed: latents of rows and new units, and W columns."""

    def size(site: Site) -> int:
        fn = free.nodes[site.name]["fn"] if site.name in free.nodes else None
        if (
            fn is None
            or site.kind not in ("local", "observed", *(("unit",) if by_unit else ()))
            or site.name == "w" * (not by_column)
        ):
            return 0
        values = support_of(fn)
        if values is not None:
            codes = site.kind != "observed" or torch.equal(
                values, torch.arange(len(values)).to(values)
            )
            return len(values) if codes else 0
        if site.kind == "unit":
            return nodes if is_normal(fn) else 0
        return NODES if site.kind == "local" and sums and is_normal(fn) else 0

    sums = by_column or any(site.kind == "local" and site.discrete for site in sites)
    nodes = NODES if sum(site.kind == "unit" for site in sites) == 1 else NODES_OF_TWO
    return tuple(replace(site, support=size(site)) for site in sites)


def _with_parents(
    model: Model, label: str, x: torch.Tensor, free: Any, sites: tuple[Site, ...]
) -> tuple[Site, ...]:
    """Note which W columns a column is conditioned on: its law moves when they are others."""
    held = {site.name: free.nodes[site.name]["value"] for site in sites if site.name in free.nodes}
    names = [site.name for site in sites if site.kind == "observed"]
    laws = {n: free.nodes[n]["fn"].log_prob(held[n]) for n in names}
    parents: dict[str, list[str]] = {n: [] for n in names}
    for above in names:
        fn = free.nodes[above]["fn"]
        values = support_of(fn)
        for shift in range(1, 3):  # another value for certain, or two that are drawn
            other = fn.sample()
            if values is not None:
                code = (held[above][:, None] == values).to(torch.int64).argmax(-1)
                other = values[(code + shift) % len(values)]
            fixed = poutine.condition(model, {**held, above: other})
            nodes = _trace(fixed, label, x, None, {}).nodes
            for n in names:
                same = torch.allclose(nodes[n]["fn"].log_prob(held[n]), laws[n], equal_nan=True)
                if n != above and above not in parents[n] and not same:
                    parents[n].append(above)
    return tuple(replace(site, parents=tuple(parents.get(site.name, ()))) for site in sites)


def _extras(model: Model, w: Float2, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return stand-ins for what a model asks for beside x and w."""
    named = inspect.signature(model).parameters if callable(model) else {}
    seen: Any = torch.as_tensor(~np.isnan(w))
    stands = {
        "unit": torch.arange(len(w)) // 2,
        "seen": dict(zip(columns, seen.unbind(-1), strict=True)) if columns else seen,
    }
    return {name: value for name, value in stands.items() if name in named}


def _trace(model: Model, label: str, x: torch.Tensor, w: Any, extras: dict[str, Any]) -> Any:
    try:
        with unwritten(label, x, w):
            return poutine.trace(model).get_trace(*((x,) if w is None else (x, w)), **extras)
    except PulseError:
        raise
    except Exception as cause:
        call = "model(x)" if w is None else "model(x, w)"
        said, place = first_line(cause), line_of(cause)
        line = advice_on(said + place)
        raise ModelError(
            f"{label}: {call} failed for x {tuple(x.shape)} of {x.dtype}{place}: "
            f"{type(cause).__name__}: {said}. {f'Perhaps {line}. ' if line else ''}"
            f"Remember: {RULE}."
        ) from cause


def _is_sample(node: dict[str, Any]) -> bool:
    return node["type"] == "sample" and not poutine.util.site_is_subsample(node)


def _stochastic(node: dict[str, Any], outcomes: tuple[str, ...]) -> bool:
    return _is_sample(node) and (not node["is_observed"] or node["name"] in outcomes)


def _shape(node: dict[str, Any]) -> tuple[int, ...]:
    return tuple(node["fn"].batch_shape) + tuple(node["fn"].event_shape)


def _site(name: str, node: dict[str, Any], outcomes: tuple[str, ...]) -> Site:
    plates = {frame.name for frame in node["cond_indep_stack"]}
    fn = node["fn"]
    return Site(
        name,
        "observed"
        if name in outcomes
        else "local"
        if "rows" in plates
        else "unit"
        if "units" in plates
        else "global",
        tuple(fn.batch_shape),
        tuple(fn.event_shape),
        kind_of(fn),
        bool(fn.support.is_discrete) if name not in outcomes else False,
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


def _check_column(label: str, name: str, given: Any, free: Any, many: int) -> None:
    line = f'pyro.sample("{name}", ..., obs=w.get("{name}"))'
    names = [n for n, node in given.nodes.items() if _is_sample(node)]
    if name not in names:
        raise ModelError(
            f"{label}: W column {name!r} has no site{nearest(name, names)} Write {line} inside "
            'plate "rows".'
        )
    node = given.nodes[name]
    if not node["is_observed"]:
        raise ModelError(f"{label}: model(x, w) does not observe site {name!r}; write {line}.")
    if name not in free.nodes or free.nodes[name]["is_observed"]:
        raise ModelError(
            f"{label}: model(x) does not sample site {name!r}, but with w=None it must; begin with "
            f"w = w or {{}} and write {line}."
        )
    frame = next((f for f in node["cond_indep_stack"] if f.name == "rows"), None)
    if frame is None or frame.dim != -1:
        raise ModelError(
            f"{label}: site {name!r} is not inside plate 'rows' on dim -1; write "
            f'with pyro.plate("rows", x.shape[-2], dim=-1): {line}.'
        )
    batch, event = tuple(node["fn"].batch_shape), tuple(node["fn"].event_shape)
    if batch != (many,) or event:
        raise ModelError(
            f"{label}: site {name!r} has batch shape {batch} and event shape {event} for {many} "
            f"rows; they must be ({many},) and (): one number a row, so no [..., None] and no "
            ".to_event(1) for the site of a column."
        )


def _check_once(
    model: Model, label: str, x: torch.Tensor, w: Any, extras: dict[str, Any], free: Any
) -> None:
    """Refuse a second site that observes W: it is handed the column, or follows it to other values.

    NOT noticed: one that observes what was worked out from a column, such as its logarithm.
    """
    by_column = isinstance(w, dict)
    names = tuple(w) if by_column else ("w",)
    drawn = {name: free.nodes[name]["value"].to(torch.float64) for name in names}
    runs: list[tuple[Mapping[str, Any], dict[str, torch.Tensor]]] = []
    for given in (w, drawn if by_column else drawn["w"]):
        nodes = _trace(model, label, x, given, extras).nodes
        parts = dict(given) if isinstance(given, dict) else {"w": given}
        if isinstance(given, torch.Tensor):
            parts |= {f"w[..., {j}]": value for j, value in enumerate(given.unbind(-1))}
        runs.append((nodes, parts))
    (nodes, parts), (others, moved) = runs
    for name, node in nodes.items():
        if not _is_sample(node) or not node["is_observed"] or name in names:
            continue
        for part, value in parts.items():
            follows = name in others and not _equal(value, moved[part])
            follows &= _equal(node["value"], value)
            if node["value"] is value or (follows and _equal(others[name]["value"], moved[part])):
                column = part if by_column else "w"
                obs = f'w.get("{column}")' if by_column else "w"
                raise ModelError(
                    f"{label}: two sites observe {f'W column {part!r}' if by_column else part}, "
                    f"{column!r} and {name!r}, so that each of its rows would count twice; keep "
                    f'pyro.sample("{column}", ..., obs={obs}) alone, and delete {name!r}.'
                )


def _equal(one: Any, two: torch.Tensor) -> bool:
    return isinstance(one, torch.Tensor) and one.shape == two.shape and bool((one == two).all())


def _check_names(label: str, free: Any, by_column: bool, columns: tuple[str, ...]) -> None:
    """Refuse a model without a site for W, and one with a column's site beside "w"."""
    names = [n for n, node in free.nodes.items() if _is_sample(node)]
    if by_column or not columns:
        return
    line = f'pyro.sample("{columns[0]}", ..., obs=w.get("{columns[0]}"))'
    if "w" not in names:
        clauses = [nearest(name, names) for name in (*columns, "w")]
        best = next((c for c in clauses if "did you mean" in c), clauses[-1])
        raise ModelError(
            f"{label}: with w=None there is no site named like a W column ({', '.join(columns)}), "
            f"and no site 'w'{best} Begin with w = w or {{}} and write with {PLATE}: {line}, and "
            "so for every column."
        )
    twice = [n for n in columns if n in names and n != "w" and _in_rows(free.nodes[n])]
    if twice:
        raise ModelError(
            f"{label}: two sites stand for W column {twice[0]!r}: its own, and 'w', which is all "
            f"columns at once; keep one of them: the single site 'w', or {line} for every column."
        )


def _in_rows(node: dict[str, Any]) -> bool:
    return any(frame.name == "rows" for frame in node["cond_indep_stack"])


def _check_shapes(
    model: Model,
    label: str,
    x: torch.Tensor,
    w: Any,
    extras: dict[str, Any],
    sites: tuple[Site, ...],
) -> None:
    """Refuse a site whose shape depends on the values of x: all rows are made alike."""
    for row in (0, -1):
        nodes = _trace(model, label, x[row].expand_as(x).clone(), w, extras).nodes
        for site in sites:
            now = _shape(nodes[site.name]) if site.name in nodes else None
            if now != site.shape:
                raise ModelError(
                    f"{label}: site {site.name!r} has shape {site.shape} for some rows and {now} "
                    f"for as many others, so it depends on the data; {_all_rows(site.name)}."
                )


def _all_rows(name: str) -> str:
    return (
        f'sample it for every row, with {PLATE}: {name} = pyro.sample("{name}", ...), and write '
        f"torch.where(x[..., 0] > 0, {name}, 0.0) where only some rows need it"
    )


def _check_fit(
    model: Model,
    label: str,
    x: torch.Tensor,
    w: Any,
    extras: dict[str, Any],
    sites: tuple[Site, ...],
) -> None:
    """Run the model as an engine does, with gradients; refuse latents that none reaches."""
    nodes = _trace(model, label, x, w, extras).nodes
    latent = {s.name: nodes[s.name]["value"] for s in sites if s.kind != "observed"}
    moved = {n: v for n, v in latent.items() if v.is_floating_point()}
    discrete = {s.name for s in sites if s.discrete}

    def run(held: Mapping[str, torch.Tensor]) -> Any:
        return _trace(poutine.condition(model, {**latent, **held}), label, x, w, extras)

    check_gradients(label, run, {n: v for n, v in moved.items() if n not in discrete})


def _check_answers(label: str, free: Any, outcomes: tuple[str, ...]) -> None:
    """Ask every W site for what prediction asks of it: draws, their density, and a mean."""
    for name in outcomes:
        fn = free.nodes[name]["fn"]
        kind = kind_of(fn)
        asked = "a draw"
        try:
            value = fn.sample()
            asked = "the density of a draw"
            log = fn.log_prob(value)
            asked = "a mean"
            has_known_mean(fn)
        except Exception as cause:
            raise ModelError(
                f"{label}: site {name!r}, {kind}, was asked for {asked} and failed: "
                f"{type(cause).__name__}: {cause}; give it sample() and log_prob(value), and let "
                "mean raise NotImplementedError where there is none."
            ) from cause
        if torch.isnan(log).all():
            raise ModelError(
                f"{label}: the density of {name!r}, {kind}, is NaN at a value drawn from it, "
                "under a draw from the prior; keep scales positive, e.g. dist.LogNormal or "
                "torch.nn.functional.softplus, and priors so narrow that exp() stays finite."
            )
        check_handmade(label, name, fn)


def _check_both_ways(
    model: Model,
    label: str,
    x: torch.Tensor,
    w: Any,
    outcomes: tuple[str, ...],
) -> None:
    """Refuse a model whose law is another when w is given than when it is not."""
    given = _trace(model, label, x, w, {})
    held = {n: node["value"] for n, node in given.nodes.items() if _is_sample(node)}
    nodes = _trace(poutine.condition(model, held), label, x, None, {}).nodes
    for n in outcomes:
        value = w[n] if isinstance(w, dict) else w
        one, two = (t[n]["fn"].log_prob(value) for t in (given.nodes, nodes))
        if not torch.allclose(one, two, rtol=1e-6, equal_nan=True):
            raise ModelError(
                f"{label}: the law of {n!r} is another when w is given than when w=None (log-"
                f"density {float(one.sum()):.4g} and {float(two.sum()):.4g}); hand w to obs= and "
                f'to nothing else: {n} = pyro.sample("{n}", ..., obs=w.get("{n}")), and go on '
                f"with {n}."
            )


def _check_alone(
    model: Model, label: str, x: torch.Tensor, free: Any, outcomes: tuple[str, ...], by_unit: bool
) -> None:
    """Refuse a model in which a row's law depends on the other rows: online there is only one."""
    latent = {
        n: node
        for n, node in free.nodes.items()
        if n not in outcomes and _stochastic(node, outcomes)
    }
    kinds = {n: _site(n, node, outcomes).kind for n, node in latent.items()}
    if any(kind == "unit" and not by_unit for kind in kinds.values()):
        return  # a row's own latent is drawn anew each time
    local = {n for n, kind in kinds.items() if kind == "local"}
    if any(tuple(latent[n]["fn"].batch_shape) != (len(x),) for n in local):
        return  # of rows and of something else: which of its values is the row's own is not known
    values = {n: free.nodes[n]["value"] for n in outcomes}
    whole = {n: node["value"] for n, node in latent.items()}
    held = {n: v[-1:] if kinds[n] != "global" else v for n, v in whole.items()}
    if len(outcomes) > 1:  # a column may be conditioned on another
        held |= {n: value[-1:] for n, value in values.items()}
        whole |= values
    alone = _trace(poutine.condition(model, held), label, x[-1:], None, {})
    for n, value in values.items():
        one = free.nodes[n]["fn"].log_prob(value)[-1]
        two = alone.nodes[n]["fn"].log_prob(value[-1:])[0]
        if not torch.allclose(one, two, rtol=1e-6, equal_nan=True):
            again = _trace(poutine.condition(model, whole), label, x, None, {})
            if not torch.allclose(one, again.nodes[n]["fn"].log_prob(value)[-1], rtol=1e-6):
                raise ModelError(
                    f"{label}: the law of {n!r} is another at each run with all sites held; random "
                    'numbers come from sites alone: write e = pyro.sample("e", dist.Normal(0.0, '
                    f"1.0)) inside {PLATE} for torch.randn(n) and np.random."
                )
            raise ModelError(
                f"{label}: the law of a row changes with the other rows (log-density "
                f"{float(two):.4g} alone, {float(one):.4g} among others); online there is only one "
                "row, so no x.mean(-2) or x.std(-2) in a model: put it into the summary or data; "
                "and write torch.where(x[..., 0] > 0, high, low) for if (x[:, 0] > 0).any()."
            )


def _same_law(
    model: Model, label: str, x: torch.Tensor, w: Any, slow: ModelCard, fast: ModelCard
) -> bool:
    """Compare log p(w | draw) of two prior draws, run one by one and both at once."""
    draws = _two_draws(model, label, x, slow)
    try:
        return _alike(model, x, w, draws, slow, fast)
    except Exception:  # whatever a model does when it does not broadcast
        return False


def _two_draws(
    model: Model, label: str, x: torch.Tensor, card: ModelCard
) -> dict[str, torch.Tensor]:
    """Draw twice from the prior what the model is to be held at, (2, *site shape) each."""
    traces = [_trace(model, label, x, None, {}) for _ in range(2)]
    # row-wise latents too, unless they are summed over: the same noise for both
    held = (*card.globals, *(card.sampled if card.by_site else card.locals), *card.unit_sites)
    return {
        site.name: torch.stack([t.nodes[site.name]["value"].detach() for t in traces])
        for site in held
    }


def _alike(
    model: Model,
    x: torch.Tensor,
    w: Any,
    draws: dict[str, torch.Tensor],
    slow: ModelCard,
    fast: ModelCard,
) -> bool:
    if slow.by_site:
        apart, at_once = (_densities(model, x, w, draws, card) for card in (slow, fast))
    else:
        apart = run_at_draws(model, x, draws, slow).log_prob(w)
        at_once = run_at_draws(model, x, draws, fast).log_prob(w)
    return bool(torch.allclose(apart, at_once, rtol=1e-8))


def _why_slow(
    model: Model,
    label: str,
    x: torch.Tensor,
    w: Any,
    slow: ModelCard,
    fast: ModelCard,
    given: Any,
) -> str:
    """Say which site a model uses as if it had no draws on its left, and what to write.

    One site at a time has two values; the others are held at one, without an axis for draws.
    """
    draws = _two_draws(model, label, x, slow)
    for site in slow.globals:
        rest = {n: v[0] for n, v in draws.items() if n != site.name}
        own, cause = {site.name: draws[site.name]}, None
        try:
            if _alike(poutine.condition(model, rest), x, w, own, slow, fast):
                continue
        except Exception as found:  # whatever a model does when it does not broadcast
            cause = found
        if site.batch_shape and not given.nodes[site.name]["cond_indep_stack"]:
            return f"end site {site.name!r} with .to_event({len(site.batch_shape)})"
        vector, summed = not slow.columns, bool(slow.enumerated)
        return line_for_site(site.name, site.event_shape, vector=vector, summed=summed, cause=cause)
    return ""


def _densities(
    model: Model, x: torch.Tensor, w: Any, draws: dict[str, torch.Tensor], card: ModelCard
) -> torch.Tensor:
    """Return log p(w | draw), of all W together and of each column."""
    values = w if card.columns else {"w": w}
    joint = [
        run.log_total(*(run.nodes[n]["fn"].log_prob(v) for n, v in values.items()))
        for run in runs_at(model, x, draws, card, card.summed_latents, w)
    ]
    if card.draws_for_means:  # columns that are drawn differ from run to run
        return torch.cat(joint)
    each = [
        run.log_total(run.nodes[n]["fn"].log_prob(v))
        for run in runs_at(model, x, draws, card, card.summed)
        for n, v in values.items()
    ]
    if card.vectorised:
        each = [one[i : i + 1] for i in range(len(joint[0])) for one in each]
    return torch.cat([*joint, *each])
