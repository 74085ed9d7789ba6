"""A fitted law for ArviZ: posterior, predictions and densities in labelled groups.

The one place that knows of ArviZ: its InferenceData up to 0.x, xarray's DataTree from 1.x on.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pulse_pyro.arrays import Bool, Float4, Int, whole
from pulse_pyro.errors import BundleError, ModelError, SettingError
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.named import axis_labels, named_draws
from pulse_pyro.seeds import stream
from pulse_pyro.tree_rows import Draws, asked_rows, row_attrs, row_groups

if TYPE_CHECKING:
    from xarray import Dataset

PACKAGES = ("pulse-pyro", "pyro-ppl", "torch", "numpy", "arviz", "xarray")


class Bounds(Protocol):
    """What is asked of a Calibration, whose module this one must not know."""

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
    def error(self) -> Float4:
        """E_{t,a,j}, (series, time, action, d)."""

    @property
    def inside(self) -> Bool:
        """Which contexts lie in the domain, (series, time)."""


def to_tree(
    fitted: FittedLaw, history: History | None = None, *, seed: int = 0, size: int = 500,
    calibration: Bounds | None = None,
) -> Any:  # fmt: skip
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
      units, otherwise every site in the law's own units, axes named by ``Law.dims``.
    - sample_stats : diverging, after Nuts. fit : quality figures, and loss (step) if there is one.
    - posterior_predictive : w (row, output), draw d made from posterior draw d.
    - log_likelihood : w (row), log p(w | S_1:t, draw), all outputs jointly; left out where rows
      have latents of their own, with the reason in the attribute ``log_likelihood``.
    - observed_data : w (row, output). constant_data : x (row, input).
    - calibration : D_t and inside (series, time) at the calibration's own held-out contexts, NaN
      where one is not complete; attributes level, mode.

    ``row`` numbers the rows of ``history.to_frame()``, so rows of two laws can be matched; each
    has its ``unit`` and ``time`` as labels. Rows that lack W, or an input the law cannot do
    without, are left out and counted in ``rows_left_out``.

    Not covered: ``az.loo`` leaves out single rows, as if those of a unit were independent, and it
    means something only for rows the law was fitted on (the attribute ``rows_fitted_on`` tells);
    on held-out units ``fitted.log_density`` is the score. A model with effects of units is asked
    for the density of a unit nobody has met, as in prediction. Only draws after Nuts stand in
    chains: r_hat and ESS of any other law say nothing (``az.summary(..., kind="stats")`` does not
    ask). Members of a neural ensemble are few and no posterior; ``az.loo`` says nothing of them.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> tree = law.to_arviz(history.take(range(5)), size=50)
    >>> dict(tree["log_likelihood"].sizes)
    {'chain': 1, 'draw': 50, 'row': 200}
    >>> tree["posterior"]["slope"].coords["input"].values.tolist()[:2]
    ['s.lag0', 's.lag1']
    """
    import_arviz()
    if not isinstance(fitted, FittedLaw):
        raise ModelError(
            f"to_tree: a fitted law was expected, {type(fitted).__name__} came; fit it first: "
            "law.fit(history, seed=0)."
        )
    whole(size, "to_arviz: size", 1)
    rng = stream(seed, "arviz")
    index = _chains(fitted)
    groups, attrs = {"posterior": _posterior(fitted, index)}, _attrs(fitted)
    groups |= _fit_groups(fitted, index)
    if history is not None:
        rows = asked_rows(fitted, history)
        draw = _spread(index, size)
        groups |= row_groups(fitted, history, rows, Draws(index[:, draw], draw), rng)
        attrs |= row_attrs(fitted, history, rows) | {"seed_of_predictions": int(seed)}
    if calibration is not None:
        groups["calibration"] = _calibration(fitted, calibration)
    return joined(groups, attrs)


def _calibration(fitted: FittedLaw, found: Bounds) -> Dataset:
    import xarray as xr

    if found.law_id != fitted.law_id:
        raise BundleError(
            f"to_arviz: the calibration is about law {found.law_id}, this law is {fitted.law_id}; "
            "calibrate this one."
        )
    axes, bound = ("series", "time"), np.max(found.error**2, axis=(2, 3))
    data = {"D": (axes, bound), "inside": (axes, found.inside)}
    return xr.Dataset(data, attrs={"level": found.level, "mode": found.mode})


def import_arviz() -> Any:
    """Return the module arviz, or say how to install it."""
    try:
        import arviz
    except ImportError as cause:
        raise SettingError(
            "to_arviz: ArviZ is not installed; pip install 'pulse-pyro[arviz]' brings it."
        ) from cause
    return arviz


def joined(groups: Mapping[str, Dataset], attrs: Mapping[str, Any]) -> Any:
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


def _chains(fitted: FittedLaw) -> Int:
    """Return the positions (chain, draw) of stored draws, chains cut to the shortest."""
    count, chains = fitted.kernel.count, fitted.record.chains
    each = -(-count // chains)
    shortest = count - each * (chains - 1)
    return np.arange(chains)[:, None] * each + np.arange(shortest)


def _spread(index: Int, size: int) -> Int:
    """Return the draws of a chain that predict: evenly spread, ``size`` over all chains."""
    chains, length = index.shape
    some = min(max(size // chains, 1), length)
    return np.unique(np.linspace(0, length - 1, some).round().astype(np.int64))


def _posterior(fitted: FittedLaw, index: Int) -> Dataset:
    import xarray as xr

    named = named_draws(fitted)
    data = {name: (("chain", "draw", *one.dims), one.draws[index]) for name, one in named.items()}
    chain, draw = np.arange(len(index)), np.arange(index.shape[1])
    out = xr.Dataset(data, {"chain": chain, "draw": draw} | axis_labels(fitted, named))
    # one order of axes for all: summary of ArviZ 1.3 mixes up labels where orders differ
    axes = dict.fromkeys(axis for one in named.values() for axis in one.dims)
    return out.transpose("chain", "draw", *axes)


def _fit_groups(fitted: FittedLaw, index: Int) -> dict[str, Dataset]:
    import xarray as xr

    out, record = {}, fitted.record
    if record.diverging is not None:
        diverging = np.isin(index, np.array(record.diverging, np.int64))
        draw = {"chain": np.arange(len(index)), "draw": np.arange(index.shape[1])}
        out["sample_stats"] = xr.Dataset({"diverging": (("chain", "draw"), diverging)}, draw)
    about: dict[str, Any] = dict(record.quality)
    if record.losses:
        about["loss"] = ("step", np.array(record.losses))
    if about:
        out["fit"] = xr.Dataset(about)
    return out


def _attrs(fitted: FittedLaw) -> dict[str, Any]:
    record = fitted.record
    if record.diverging is not None:
        told = f"{record.chains} chains of NUTS"
    elif "divergences" in record.quality:
        told = "draws stand in one chain: those of NUTS were mixed when weights were drawn"
    else:
        told = "draws stand in one chain: they are no Markov chain, and r_hat means nothing"
    return {
        "law": fitted.law.label,
        "law_id": fitted.law_id,
        "inference": record.inference,
        "seed": record.seed,
        "chains": told,
        "rows_of_the_fit": record.rows,
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
