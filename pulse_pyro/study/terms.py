"""Features without code, from terms such as "w*a", or from a Python file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pulse_pyro.arrays import Float2, whole
from pulse_pyro.errors import FeatureError, PulseError, nearest
from pulse_pyro.features import Features
from pulse_pyro.laws.from_file import run_file

ACTION, ONE = "a", "1"


def features_from_terms(
    terms: Sequence[str], actions: int, *, observed: Sequence[str], missing: Sequence[str]
) -> Features:
    """Return Phi with one feature a term: "1", or a product of columns and the action.

    Parameters
    ----------
    terms : e.g. ["1", "s", "w", "w*a"]; factors are joined by ``*``, a power is a repeated factor.
    actions : K; ``a`` is the action's number 0 .. K - 1, so with more than two actions "w*a" says
        that they are equally far apart. For anything else write a features file.
    observed, missing : names of the columns of S and W, in order.

    Terms are taken apart, never run as code. Not checked: that rewards are linear in these terms.

    Examples
    --------
    >>> phi = features_from_terms(["1", "s", "w*a"], 2, observed=["s"], missing=["w"])
    >>> phi(np.array([[2.0]]), np.array([[3.0]]), 1)
    array([[1., 2., 3.]])
    """
    whole(actions, "features: actions", 2)
    columns = [*observed, *missing]
    odd = [name for name in columns if name in (ACTION, ONE) or "*" in name]
    if odd:
        raise FeatureError(
            f"features: column {odd[0]!r} cannot stand in a term, where a is the action, 1 the "
            "constant and * a product; rename it, or use a features file."
        )
    if isinstance(terms, str) or not terms:
        raise FeatureError(
            f'features: terms must be a list such as ["1", "s", "w*a"], but {terms!r} came.'
        )
    split = [_factors(term, columns) for term in terms]
    for i, factors in enumerate(split):
        if sorted(factors) in [sorted(other) for other in split[:i]]:
            raise FeatureError(f"features: term {terms[i]!r} stands twice; leave one out.")
    place = {name: j for j, name in enumerate(columns)}

    def phi(s: Float2, w: Float2, action: int) -> Float2:
        values = np.concatenate([s, w], axis=1)
        out = np.ones((len(s), len(split)))
        for j, factors in enumerate(split):
            for name in factors:
                out[:, j] *= action if name == ACTION else values[:, place[name]]
        return out

    return Features(phi, actions, tuple(term.replace(" ", "") for term in terms))


def features_from_file(path: str | Path) -> Features:
    """Return the features a Python file describes; the file is run: name only files you trust.

    It defines ``features``, a :class:`Features`, or ``phi(s, w, action)`` with ``ACTIONS`` (their
    number) and ``NAMES`` (of the features).
    """
    file = Path(path)
    if not file.is_file():
        there = sorted(other.name for other in file.parent.glob("*.py"))
        raise FeatureError(f"features: there is no file {file}{nearest(file.name, there)}")
    module = run_file(file)
    whole_map = getattr(module, "features", None)
    if isinstance(whole_map, Features):
        return whole_map
    if whole_map is not None:
        raise FeatureError(
            f"{file}: 'features' must be Features(phi, actions, names), it is "
            f"{type(whole_map).__name__}."
        )
    names = [name for name in vars(module) if not name.startswith("_")]
    for wanted in ("phi", "ACTIONS", "NAMES"):
        if not hasattr(module, wanted):
            raise FeatureError(
                f"{file}: it defines no {wanted!r}{nearest(wanted, names)} A features file has "
                "phi(s, w, action), ACTIONS and NAMES, or features = Features(...)."
            )
    if not callable(module.phi):
        raise FeatureError(f"{file}: 'phi' must be a function phi(s, w, action).")
    try:
        return Features(module.phi, module.ACTIONS, module.NAMES)
    except PulseError as cause:
        raise FeatureError(f"{file}: {cause}") from cause


def _factors(term: object, columns: list[str]) -> list[str]:
    """Take a term apart; the constant has no factors."""
    if not isinstance(term, str):
        raise FeatureError(
            f'features: a term must be text such as "w*a", but {term!r} came; the constant is "1".'
        )
    found = [factor.strip() for factor in term.split("*")]
    known = [*columns, ACTION, ONE]
    for factor in found:
        if not factor:
            raise FeatureError(
                f"features: term {term!r} has an empty factor; write it as name*name."
            )
        if factor not in known:
            raise FeatureError(
                f"features: {factor!r} in term {term!r} is not a column{nearest(factor, known)}"
            )
    return [factor for factor in found if factor != ONE]
