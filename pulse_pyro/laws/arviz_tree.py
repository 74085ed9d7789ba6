"""A fitted law for ArviZ: posterior, predictions and densities in labelled groups.

The one place that knows of ArviZ: its InferenceData up to 0.x, xarray's DataTree from 1.x on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float2, Float3, Int, whole
from pulse_pyro._core.errors import BundleError, DataError, ModelError, PulseError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import History
from pulse_pyro.laws.conjugate import LinearKernel
from pulse_pyro.laws.table import input_names, regression

if TYPE_CHECKING:
    from xarray import Dataset

    from pulse_pyro.laws.fitted import PosteriorConditional, PosteriorLaw

# The posterior of a fitted law with the axes of its parameters named.


JOINT = "joint"  # the log density of all columns of W together
TAKEN = ("chain", "draw", "row", "unit", "time")  # axes and labels of every result


class Named(NamedTuple):
    """Draws (draw, *dims) of one parameter, and the names of its axes."""

    dims: tuple[str, ...]
    draws: Float

    @property
    def lengths(self) -> list[tuple[str, int]]:
        """Each axis with its length."""
        return list(zip(self.dims, self.draws.shape[1:], strict=True))


def named_draws(fitted: PosteriorLaw) -> dict[str, Named]:
    """Return the posterior by parameter; axes "input" of the summary, "output" of W.

    A built-in law of one W column has no axis "output".
    For a linear law the regression in the data's units, as in its table; otherwise the sites in
    the law's own units, their axes named by ``Law.dims`` (name_dim_0, ... where it is silent;
    "member" is the axis of a site of units).
    """
    kernel, family = getattr(fitted, "kernel", None), getattr(fitted.law, "family", None)
    if isinstance(kernel, LinearKernel):
        return _of_one(fitted, _linear(fitted, kernel))
    given: dict[str, Any] = dict(getattr(family, "dims", {})) | dict(
        getattr(fitted.law, "dims", {})
    )
    for site in () if fitted.card is None else fitted.card.unit_sites:
        rest = (f"{site.name}_dim_{i + 1}" for i in range(len(site.event_shape)))
        given.setdefault(site.name, ("member", *rest))
    out = {
        name: Named(_axes(name, value, given.get(name), fitted.law.label), value)
        for name, value in fitted.draws.items()
    }
    _refuse_clashes(out, fitted.law.label)
    return out if family is None else _of_one(fitted, out)


def _of_one(fitted: PosteriorLaw, named: dict[str, Named]) -> dict[str, Named]:
    """Drop axes that tell apart what is one, so that a slope reads slope[steps.lag1].

    These are "output" of a built-in law of one W, and "mood_predictor" of a column with one.
    """
    ends = ("_predictor",) if len(fitted.schema.w_names) > 1 else ("output", "_predictor")
    out = {}
    for name, (dims, draws) in named.items():
        single = [
            i for i, axis in enumerate(dims) if axis.endswith(ends) and draws.shape[i + 1] == 1
        ]
        kept = tuple(axis for i, axis in enumerate(dims) if i not in single)
        out[name] = Named(kept, draws.squeeze(tuple(i + 1 for i in single)))
    return out


def axis_labels(fitted: PosteriorLaw, named: Mapping[str, Named]) -> dict[str, list[str]]:
    """Label the axes whose names and lengths are those of inputs, of W, its levels or units."""
    w = fitted.schema.w_names
    pairs = [f"{w[i]}, {w[j]}" for i in range(len(w)) for j in range(i)]
    labels = {"input": list(input_names(fitted)), "output": list(w), "pair": pairs}
    labels["member"] = list(getattr(fitted, "members", ()))  # units whose latents are kept
    labels |= _labels_of_kinds(fitted)
    size = {axis: n for site in named.values() for axis, n in site.lengths}
    return {axis: names for axis, names in labels.items() if size.get(axis) == len(names)}


def _labels_of_kinds(fitted: PosteriorLaw) -> dict[str, list[str]]:
    """Label what built-in laws of 0/1, levels, categories and counts have axes for, by column."""
    family, names = getattr(fitted.law, "family", None), fitted.schema.w_names
    levels = {column.name: list(column.levels) for column in fitted.schema.w_columns}
    parts = getattr(family, "parts", ())  # columns of several kinds, in turn
    out = {} if parts else {"level": next(iter(levels.values()))}
    for part in parts:
        earlier = [names[parts[i].columns] for i in part.parents]
        out[f"{part.name}_level"] = levels[part.name]
        out[f"{part.name}_predictor"] = list(names[part.columns])
        out[f"{part.name}_given"] = [name for each in earlier for name in each]
    return out


def _linear(fitted: PosteriorLaw, kernel: LinearKernel) -> dict[str, Named]:
    level, slope, spread = regression(fitted, kernel)
    out = {
        "intercept": Named(("output",), level),
        "slope": Named(("input", "output"), slope),
        "noise_scale": Named(("output",), spread),
    }
    if len(fitted.schema.w_names) > 1:
        cov = kernel.factor @ np.swapaxes(kernel.factor, 1, 2)
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        row, column = np.tril_indices(len(fitted.schema.w_names), -1)
        out["noise_correlation"] = Named(
            ("pair",), cov[:, row, column] / (sd[:, row] * sd[:, column])
        )
    if kernel.df is not None:
        out["df"] = Named((), kernel.df)
    return out


def _axes(name: str, value: Float, given: Any, label: str) -> tuple[str, ...]:
    count = value.ndim - 1
    if given is None:
        return tuple(f"{name}_dim_{i}" for i in range(count))
    axes = (given,) if isinstance(given, str) else tuple(map(str, given))
    if len(axes) != count or len(set(axes)) != count:
        raise ModelError(
            f"{label}: dims names the axes of site {name!r} {axes}, but its draws have {count} "
            f"{'axis' if count == 1 else 'axes'}, {value.shape[1:]}; give each one name of its own."
        )
    odd = [axis for axis in axes if axis in TAKEN]
    if odd:
        raise ModelError(
            f"{label}: dims calls an axis of site {name!r} {odd[0]!r}, which every result has "
            f"({', '.join(TAKEN)}); choose another name."
        )
    return axes


def _refuse_clashes(named: Mapping[str, Named], label: str) -> None:
    """Refuse one name for two lengths, or for an axis and a site."""
    size: dict[str, tuple[str, int]] = {}
    for name, site in named.items():
        for axis, length in site.lengths:
            first, before = size.setdefault(axis, (name, length))
            if before != length:
                raise ModelError(
                    f"{label}: dims calls an axis of {first!r} (length {before}) and one of "
                    f"{name!r} (length {length}) both {axis!r}; name them apart."
                )
            if axis in named:
                raise ModelError(
                    f"{label}: dims calls an axis of {name!r} {axis!r}, which is a site too; "
                    "choose another name."
                )


# Rows of a history under a fitted law: predictions, densities and labels, as groups for ArviZ.


MOST = 50_000_000  # predicted values and densities: 400 MB


class ArchiveRows(NamedTuple):
    """Rows of a history: their numbers (n,), and p^(W | S_1:t) there."""

    row: Int
    conditional: PosteriorConditional


def archive_rows(fitted: PosteriorLaw, history: History) -> ArchiveRows:
    """Return the rows that have W and all the law needs, or say why there are none."""
    if not isinstance(history, History):
        raise DataError(
            f"to_arviz: a History was expected, but got {type(history).__name__}; pass the one the "
            "law was fitted on, or held-out units."
        )
    for kind in ("s_names", "w_names"):
        ours, got = getattr(fitted.schema, kind), getattr(history, kind)
        if ours != got:
            odd = sorted(set(ours) ^ set(got)) or [got[0]]
            raise DataError(
                f"to_arviz: the law was fitted on columns {ours}, but the history has {got}; "
                f"{odd[0]!r} does not match."
            )
    # a law with a state answers wherever its own S is seen
    learned = getattr(fitted.law, "unseen", "learned") == "learned"
    rows = history.rows(fitted.summary, holes="x" if learned else "")
    row = rows.at
    if learned:  # such a law still refuses some rows, by the mean they are given
        row = row[np.isfinite(fitted(history, row).mean()).all(-1)]
        if not len(row):
            raise DataError(
                f"to_arviz: {fitted.law.label} refuses every row of this history: each lacks an "
                "input that training never saw missing."
            )
    return ArchiveRows(row, fitted(history, row))


class Draws(NamedTuple):
    """Posterior draws that predict: their positions (chain, draw), and their labels (draw,)."""

    at: Int
    label: Int


def row_groups(
    fitted: PosteriorLaw,
    history: History,
    rows: ArchiveRows,
    draws: Draws,
    rng: np.random.Generator,
) -> dict[str, Dataset]:
    """Return posterior_predictive, observed_data, constant_data and log_likelihood."""
    import xarray as xr

    index = draws.at
    w_dim, n = len(history.w_names), len(rows.row)
    each = w_dim if w_dim == 1 else w_dim + 1  # densities of a row
    values = index.size * n * (2 * w_dim + each)  # predictions of posterior and prior
    if values > MOST:
        fits = max(MOST // (n * (2 * w_dim + each)), 1)
        raise SettingError(
            f"to_arviz: {index.size} draws of {n} rows make {values:,} values (limit {MOST:,}); "
            f"ask for size={fits} or fewer, or pass fewer units: history.take(range(100))."
        )
    by_row = {
        "row": rows.row,
        "unit": ("row", np.array(history.units)[history.unit_of[rows.row]]),
        "time": ("row", history.step[rows.row]),
    }
    names = variables(history.w_names)
    inputs = list(input_names(fitted))  # behind them a law with sites of units has its number
    by_draw = {"chain": np.arange(len(index)), "draw": draws.label} | by_row
    shape, w = (*index.shape, n), history.w[rows.row]
    conditional = rows.conditional
    if hasattr(fitted, "holding"):  # such a law mixes some of its draws only: those asked for
        conditional, index = fitted.holding(index.ravel())(history, rows.row), _places(index)
    drawn = conditional.draws_of(index.ravel(), rng)
    out = {
        "posterior_predictive": xr.Dataset(_columns(names, drawn, shape), by_draw),
        "observed_data": xr.Dataset(
            {name: ("row", w[:, j]) for j, name in enumerate(names)}, by_row
        ),
        "constant_data": xr.Dataset(
            {"x": (("row", "input"), history.inputs(fitted.summary)[rows.row, : len(inputs)])},
            by_row | {"input": inputs},
        ),
    }
    if not _latent(fitted):
        scores = _scores(names, conditional, w, index)
        out["log_likelihood"] = xr.Dataset(scores, by_draw)
    return out


def _places(index: Int) -> Int:
    """Number draws (chain, draw) one after the other."""
    return np.arange(index.size).reshape(index.shape)


def variables(w_names: tuple[str, ...]) -> tuple[str, ...]:
    """Name the variables of W: like its columns, "/" as "_", which files read as a path."""
    names = tuple(name.replace("/", "_") for name in w_names)
    odd = [name for name in names if name in (*TAKEN, JOINT) or names.count(name) > 1]
    if odd:
        raise DataError(
            f"to_arviz: a column of W gives a variable its name, but {odd[0]!r} is taken (by an "
            f"axis, a label or {JOINT!r}, or by another column); rename the column."
        )
    return names


def _columns(names: tuple[str, ...], values: Float3, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return values (draws, n, w_dim) as one variable (chain, draw, row) a column."""
    axes = ("chain", "draw", "row")
    return {name: (axes, values[..., j].reshape(shape)) for j, name in enumerate(names)}


def _scores(
    names: tuple[str, ...], conditional: PosteriorConditional, w: Float2, index: Int
) -> dict[str, Any]:
    """Return log densities column by column where the law has them, and of several W jointly."""
    shape = (*index.shape, len(w))
    if len(names) == 1:
        return _columns(names, conditional.log_densities(w, index.ravel())[..., None], shape)
    each = conditional.column_log_densities(w, index.ravel())
    out = {} if each is None else _columns(names, each, shape)
    both = conditional.log_densities(w, index.ravel()).reshape(shape)
    return out | {JOINT: (("chain", "draw", "row"), both)}


def _latent(fitted: PosteriorLaw) -> list[str]:
    """Sites that rows have of their own, over which a density would have to be averaged."""
    if fitted.card is None or fitted.card.by_site or hasattr(fitted, "holding"):  # summed out
        return []
    return [site.name for site in fitted.card.locals]


def row_attrs(fitted: PosteriorLaw, history: History, rows: ArchiveRows) -> dict[str, Any]:
    """Return how many rows there are, how many were fitted on, and whether they are scored."""
    in_fit = np.isin(np.array(history.clusters), np.array(fitted.units))
    scored = "log p(w | S_1:t, draw), computed row by row from the law's own density"
    if _latent(fitted):
        scored = (
            f"left out: rows have latents of their own ({', '.join(_latent(fitted))}), and the "
            "density of w given the draws is an average over them"
        )
    return {
        "rows": len(rows.row),
        "rows_left_out": len(history.s) - len(rows.row),
        "rows_fitted_on": int(in_fit[history.cluster[rows.row]].sum()),
        "log_likelihood": scored,
    }


def prior_groups(
    fitted: PosteriorLaw, history: History, row: Int, size: int, seed: int
) -> tuple[dict[str, Dataset], str]:
    """Return prior and prior_predictive at these rows in one chain, and what they are, or why not.

    The law's units come from its archive, so a prior in the data's units has seen its scale.
    """
    import xarray as xr

    why = _no_prior(fitted)
    if why:
        return {}, f"left out: {why}"
    from pulse_pyro._pyro.predict import prior_sites

    p, units = len(fitted.scaler.x_mean), len(getattr(fitted, "members", ()))
    p = fitted.card.x_dim if fitted.card is not None else p
    try:
        model = fitted.law.model_for(p, len(fitted.schema.w_names))
        draws = prior_sites(model, p, fitted.draws, size, seed, units)
    except (PulseError, KeyError) as cause:  # an improper prior; a site the model does not draw
        return {}, f"left out: no draws of it can be had ({cause})"
    before = replace(fitted, draws=draws)
    at = np.arange(size)[None]
    out, said = {"prior": _posterior(before, at)}, "drawn from the law's own prior, in its units"
    axes = {
        "chain": [0],
        "draw": at[0],
        "row": row,
        "unit": ("row", np.array(history.units)[history.unit_of[row]]),
        "time": ("row", history.step[row]),
    }
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            drawn = before(history, row).draws_of(at[0], stream(seed, "prior predictive"))
    except (ValueError, RuntimeError) as cause:  # counts beyond what a number holds
        return out, f"{said}; prior_predictive is left out: {cause}"
    each = _columns(variables(history.w_names), drawn, (1, size, len(row)))
    return out | {"prior_predictive": xr.Dataset(each, axes)}, said


def _no_prior(fitted: PosteriorLaw) -> str:
    """Say why a law has no prior to draw from, or nothing."""
    if hasattr(fitted, "holding"):
        return "StepLaw.simulate draws archives from it"
    if hasattr(fitted, "filtered"):
        return "the process of S is fitted by maximum likelihood and has no prior"
    if fitted.record.inference.startswith("Ensemble"):
        return "networks of an ensemble are trained, not drawn from a posterior"
    return ""


def log_prior_group(fitted: PosteriorLaw, index: Int) -> tuple[dict[str, Dataset], str]:
    """Return log_prior (chain, draw) of every global site, and what it is, or why it is not there.

    Sites of units are left out: what spreads units is part of the model, and scaling it by a power
    would change the question (Kallioinen et al. 2024).
    """
    import xarray as xr

    from pulse_pyro._pyro.predict import log_prior_sites

    stateful, card = hasattr(fitted, "holding"), fitted.card
    why = "" if stateful else _no_prior(fitted)
    names = list(fitted.draws) if card is None else [site.name for site in card.globals]
    if why or not names:
        return {}, f"left out: {why or 'the law has no global sites'}"
    draws = {name: fitted.draws[name] for name in names}
    plates = {} if card is None else {site.name: len(site.batch_shape) for site in card.globals}
    try:
        if stateful:
            run, nesting, together = fitted.program.prior, 2, True  # type: ignore[attr-defined]
        else:
            run = _at_no_inputs(fitted)
            nesting = 1 if card is None else card.nesting
            together = card is None or card.vectorised
        found = log_prior_sites(run, draws, plates, nesting, together)
    except PulseError as cause:  # an improper prior; a site the model does not draw
        return {}, f"left out: it cannot be evaluated ({cause})"
    axes = {"chain": np.arange(len(index)), "draw": np.arange(index.shape[1])}
    data = {name: (("chain", "draw"), value[index]) for name, value in found.items()}
    said = "log p(site | sites before it) of global sites, in the law's own units"
    if card is not None and not stateful and card.unit_sites:
        own = ", ".join(site.name for site in card.unit_sites)
        said += f"; sites of units ({own}) are part of the model and left out"
    return {"log_prior": xr.Dataset(data, axes)}, said


def _at_no_inputs(fitted: PosteriorLaw) -> Callable[[], Any]:
    """Return the model at two rows of inputs 0, of one unit where it asks for units."""
    import torch

    p = len(fitted.scaler.x_mean) if fitted.card is None else fitted.card.x_dim
    model = fitted.law.model_for(p, len(fitted.schema.w_names))
    by_unit = fitted.card is not None and fitted.card.by_unit
    extras = {"unit": torch.zeros(2, dtype=torch.int64)} if by_unit else {}
    return partial(model, torch.zeros((2, p), dtype=torch.float64), **extras)


COUNTED = {"tree_depth", "n_steps"}
DEEPEST = 10  # doublings after which Pyro's NUTS gives up
PACKAGES = ("pulse-pyro", "pyro-ppl", "torch", "numpy", "arviz", "xarray")


class Bounds(Protocol):
    """What is needed of a Calibration, whose module this one must not know."""

    @property
    def law_id(self) -> str:
        """The law it is about."""

    @property
    def level(self) -> float:
        """Its probability."""

    @property
    def mode(self) -> str:
        """Split, all or crossfit."""

    @property
    def error(self) -> Float3:
        """E_{t,a,j}, (context, action, d)."""

    @property
    def inside(self) -> Bool:
        """Which contexts lie in the domain, (context,)."""

    @property
    def usable(self) -> bool:
        """Whether the claim behind ``error`` holds."""

    @property
    def claim(self) -> str:
        """The strongest claim that stands."""


def to_tree(
    fitted: PosteriorLaw,
    history: History | None = None,
    *,
    seed: int = 0,
    size: int = 500,
    calibration: Bounds | None = None,
) -> Any:
    """Return a fitted law as ArviZ holds results: InferenceData (0.x) or a DataTree (1.x).

    Parameters
    ----------
    fitted : the law.
    history : rows to predict and to score; its columns are those the law was fitted on.
    seed : of the predictions.
    size : posterior draws, over all chains, that predict and score; spread evenly.
    calibration : of this law; another law's is refused.

    Groups, with (chain, draw) first where there are draws:

    - posterior : for a linear law intercept, slope (input, output) and noise_scale in the data's
      units (no axis output in a built-in law of one W), otherwise every site in the law's own
      units, axes named by ``Law.dims``.
    - sample_stats : after Nuts diverging, lp (log posterior density, up to a constant), energy,
      tree_depth, n_steps, acceptance_rate, step_size, reached_max_treedepth; attributes
      warmup_time and sampling_time, seconds of all chains together.
    - log_prior : log density of each global site (no axes of its own) under its prior, for
      ``az.psens``; left out where the prior has none, with the reason in the attribute
      ``log_prior``.
    - fit : quality figures, and loss (step) if there is one.
    - posterior_predictive : one variable (row) a column of W, named like it; draw d made from
      posterior draw d.
    - log_likelihood : log p(w_j | S_1:t, draw) by column, the other columns summed out, and where
      there are several "joint", of all together, which is not their sum (only "joint" of a custom
      model whose one site holds several W); left out where rows have latents of their own, with
      the reason in the attribute ``log_likelihood``.
    - prior, prior_predictive : with a history, as many draws as predict, in one chain, laid out
      like the posterior; the attribute ``prior`` gives the reason where there are none.
    - observed_data : the columns of W (row). constant_data : x (row, input).
    - calibration : D_t and inside (context,) at the calibration's own held-out contexts, NaN
      where one is not complete; attributes level, mode.

    ``row`` numbers the rows of ``history.to_frame()``, so rows of two laws can be matched; each
    has its ``unit`` and ``time`` as labels. Rows that lack W, or an input the law cannot do
    without, are left out and counted in ``rows_left_out``.

    With several columns say which: ``az.loo(tree, var_name="joint")``. ``az.psens(tree,
    component="likelihood")`` needs the density of every draw: ``size`` no less than all draws.

    Not covered: ``az.loo`` leaves out single rows, as if those of a unit were independent, and it
    means something only for rows the law was fitted on (the attribute ``rows_fitted_on`` tells);
    on held-out units ``fitted(history).log_density(history.w)`` is the score. A model with effects
    of units is asked for the density of a unit nobody has met, as in prediction. Only draws after
    Nuts stand in chains: r_hat and ESS of any other law say nothing (``az.summary(...,
    kind="stats")`` leaves them out). Members of a neural ensemble are few and no posterior;
    ``az.loo`` says nothing of them.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> tree = law.to_arviz(history.take(range(5)), size=50)
    >>> dict(tree["log_likelihood"].sizes)
    {'chain': 1, 'draw': 50, 'row': 200}
    >>> tree["posterior"]["slope"].coords["input"].values.tolist()[:2]
    ['s.lag0', 's.lag1']
    """
    import_arviz()
    if not hasattr(fitted, "draws"):
        raise ModelError(
            f"to_tree: a fitted law was expected, but got {type(fitted).__name__}; fit it first: "
            "law.fit(history, seed=0)."
        )
    whole(size, "to_arviz: size", 1)
    rng = stream(seed, "arviz")
    index = _chains(fitted)
    groups, attrs = {"posterior": _posterior(fitted, index)}, _attrs(fitted)
    about, attrs["log_prior"] = log_prior_group(fitted, index)
    groups |= _fit_groups(fitted, index) | about
    if history is not None:
        rows = archive_rows(fitted, history)
        draw = _spread(index, size)
        groups |= row_groups(fitted, history, rows, Draws(index[:, draw], draw), rng)
        attrs |= row_attrs(fitted, history, rows) | {"seed_of_predictions": int(seed)}
        about, why = prior_groups(fitted, history, rows.row, index[:, draw].size, seed)
        groups |= about
        attrs["prior"] = why
    if calibration is not None:
        groups["calibration"] = _calibration(fitted, calibration)
    return joined_groups(groups, attrs)


def _calibration(fitted: PosteriorLaw, calibration: Bounds) -> Dataset:
    import xarray as xr

    if calibration.law_id != fitted.id:
        raise BundleError(
            f"to_arviz: the calibration is about law {calibration.law_id}, this law is "
            f"{fitted.id}; calibrate this one."
        )
    data = {"inside": ("context", calibration.inside)}
    if calibration.usable:  # a claim that failed has no numbers
        data["D"] = ("context", np.max(calibration.error**2, axis=(1, 2)))
    attrs = {"level": calibration.level, "mode": calibration.mode, "claim": calibration.claim}
    return xr.Dataset(data, attrs=attrs)


def import_arviz() -> Any:
    """Return the module arviz, which takes seconds to load, or say how to get it back."""
    try:
        import arviz
    except ImportError as cause:
        raise SettingError(
            f"to_arviz: ArviZ comes with pulse-pyro but cannot be loaded here ({cause}); "
            "pip install arviz brings it back."
        ) from cause
    return arviz


def joined_groups(groups: Mapping[str, Dataset], attrs: Mapping[str, Any]) -> Any:
    """Put groups together as the installed ArviZ wants them."""
    arviz = import_arviz()
    labelled = {name: group.assign_attrs(attrs) for name, group in groups.items()}
    # looked up in the module's own names: asking 1.x for the attribute draws a warning
    if "InferenceData" in vars(arviz):
        return arviz.InferenceData(attrs=dict(attrs), **labelled)
    from xarray import DataTree

    tree = DataTree.from_dict({f"/{name}": group for name, group in labelled.items()})
    tree.attrs.update(attrs)
    return tree


def _chains(fitted: PosteriorLaw) -> Int:
    """Return the positions (chain, draw) of stored draws, chains cut to the shortest."""
    count, chains = stored(fitted), fitted.record.chains
    each = -(-count // chains)
    shortest = count - each * (chains - 1)
    return np.arange(chains)[:, None] * each + np.arange(shortest)


def stored(fitted: PosteriorLaw) -> int:
    """Return how many posterior draws a law has; one whose sites are fixed has one."""
    return len(next(iter(fitted.draws.values()))) if fitted.draws else 1


def _spread(index: Int, size: int) -> Int:
    """Return the draws of a chain that predict: evenly spread, ``size`` over all chains."""
    chains, length = index.shape
    some = min(max(size // chains, 1), length)
    return np.unique(np.linspace(0, length - 1, some).round().astype(np.int64))


def _posterior(fitted: PosteriorLaw, index: Int) -> Dataset:
    import xarray as xr

    named = named_draws(fitted)
    data = {
        name: (("chain", "draw", *site.dims), site.draws[index]) for name, site in named.items()
    }
    chain, draw = np.arange(len(index)), np.arange(index.shape[1])
    out = xr.Dataset(data, {"chain": chain, "draw": draw} | axis_labels(fitted, named))
    # one order of axes for all: summary of ArviZ 1.3 mixes up labels where orders differ
    axes = dict.fromkeys(axis for site in named.values() for axis in site.dims)
    return out.transpose("chain", "draw", *axes)


def _fit_groups(fitted: PosteriorLaw, index: Int) -> dict[str, Dataset]:
    import xarray as xr

    out, record = {}, fitted.record
    if record.diverging is not None:
        diverging = np.isin(index, np.array(record.diverging, np.int64))
        draw = {"chain": np.arange(len(index)), "draw": np.arange(index.shape[1])}
        told = {name: np.array(values)[index] for name, values in record.sampler.items()}
        for name in COUNTED & set(told):
            told[name] = told[name].astype(np.int64)
        if "tree_depth" in told:
            told["reached_max_treedepth"] = told["tree_depth"] >= DEEPEST
        told = {"diverging": diverging} | told
        out["sample_stats"] = xr.Dataset(
            {name: (("chain", "draw"), values) for name, values in told.items()},
            draw,
            {f"{part}_time": float(value) for part, value in record.seconds.items()},
        )
    about: dict[str, Any] = dict(record.quality)
    if record.losses:
        about["loss"] = ("step", np.array(record.losses))
    if about:
        out["fit"] = xr.Dataset(about)
    return out


def _attrs(fitted: PosteriorLaw) -> dict[str, Any]:
    record = fitted.record
    if record.diverging is not None:
        chains = f"{record.made(stored(fitted))} of NUTS"
    elif "divergences" in record.quality:
        chains = "draws stand in one chain: those of NUTS were mixed when weights were drawn"
    else:
        chains = "draws stand in one chain: they are no Markov chain, and r_hat means nothing"
    return {
        "law": fitted.law.label,
        "law_id": fitted.id,
        "inference": record.inference,
        "seed": record.seed,
        "chains": chains,
        "rows_of_the_fit": record.rows,
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
