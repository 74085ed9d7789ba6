"""The posterior of a fitted law with the axes of its parameters named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulse_pyro.arrays import Float
from pulse_pyro.errors import ModelError
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.laws.table import input_names, regression

if TYPE_CHECKING:
    from pulse_pyro.laws.fitted import FittedLaw

TAKEN = ("chain", "draw", "row", "unit", "time")  # axes and labels of every result


class Named(NamedTuple):
    """Draws (draw, *dims) of one parameter, and the names of its axes."""

    dims: tuple[str, ...]
    draws: Float


def named_draws(fitted: FittedLaw) -> dict[str, Named]:
    """Return the posterior by parameter; an axis "input" is the summary's, "output" that of W.

    For a linear law the regression in the data's units, as in its table; otherwise the sites in
    the law's own units, their axes named by ``Law.dims`` (name_dim_0, ... where it is silent).
    """
    kernel = fitted.kernel
    if isinstance(kernel, LinearKernel):
        return _linear(fitted, kernel)
    given: dict[str, Any] = dict(getattr(fitted.law.family, "dims", {})) | dict(fitted.law.dims)
    out = {
        name: Named(_axes(name, value, given.get(name), fitted.law.label), value)
        for name, value in fitted.draws.items()
    }
    _refuse_clashes(out, fitted.law.label)
    return out


def axis_labels(fitted: FittedLaw, named: Mapping[str, Named]) -> dict[str, list[str]]:
    """Label "input", "output" and "pair" where their length is that of the inputs, or of W."""
    w = fitted.w_names
    pairs = [f"{w[i]}, {w[j]}" for i in range(len(w)) for j in range(i)]
    known = {"input": list(input_names(fitted)), "output": list(w), "pair": pairs}
    size = {d: n for one in named.values() for d, n in zip(one.dims, _shape(one), strict=True)}
    return {d: labels for d, labels in known.items() if size.get(d) == len(labels)}


def _linear(fitted: FittedLaw, kernel: LinearKernel) -> dict[str, Named]:
    level, slope, spread = regression(fitted, kernel)
    out = {
        "intercept": Named(("output",), level),
        "slope": Named(("input", "output"), slope),
        "noise_scale": Named(("output",), spread),
    }
    if len(fitted.w_names) > 1:
        cov = kernel.factor @ np.swapaxes(kernel.factor, 1, 2)
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        row, column = np.tril_indices(len(fitted.w_names), -1)
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
    for name, one in named.items():
        for axis, length in zip(one.dims, _shape(one), strict=True):
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


def _shape(one: Named) -> tuple[int, ...]:
    return tuple(one.draws.shape[1:])
