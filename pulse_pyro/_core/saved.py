"""save and load: one pair for everything that can be kept, whatever its kind.

A kind is known by name here and looked up when it is asked for; its own module says how it becomes
plain values and arrays (``pack_<kind>``) and how it is made from them again (``unpack_<kind>``).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pulse_pyro._core.errors import BundleError, nearest
from pulse_pyro._core.packed import Packed
from pulse_pyro._core.sealed import read_sealed, saved_as, write_sealed

FORMAT = 3


class Kind(NamedTuple):
    """The class of a kind, the module that packs it, and what ``load`` may be handed for it."""

    cls: str
    module: str
    takes: tuple[str, ...] = ()


KINDS = {
    "law": Kind("PosteriorLaw", "laws.saved", ("law",)),
    "step_law": Kind("FittedStepLaw", "laws.step_saved", ("law",)),
    "average_law": Kind("AverageLaw", "calibration.saved", ("law",)),
    "repaired_law": Kind("RepairedLaw", "calibration.saved", ("law",)),
    "calibration": Kind("Calibration", "calibration.saved", ("law", "features")),
    "diagnostics": Kind("Diagnostics", "diagnostics.result"),
    "policy": Kind("Streaming", "policies.saved", ("law", "features", "advisor")),
    "run": Kind("Run", "envs.simulation"),
    "design": Kind("Design", "study.design"),
}


def save(thing: object, path: str | Path) -> Path:
    """Write a fitted law, Calibration, Diagnostics, Run, Design or policy to the folder ``path``.

    Returns the folder: ``manifest.json`` says what it is, ``arrays.npz`` holds its numbers. Both
    are written aside first and renamed into place, so a crash leaves no half-written folder; an
    earlier one of the same kind is replaced, any other folder is left alone. Functions (a custom
    Pyro model or summary, Phi, an advisor) are not stored: :func:`load` is handed them and
    recognises all but advisors by their answers. A law's units are stored by name, not their rows;
    a policy with a growing archive is the exception: it holds its archive.

    Examples
    --------
    >>> import tempfile
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> phi = pp.terms(["1", "w*a"], 2, observed=["s"], missing=["w"])
    >>> policy = pp.PulseUCB(law, phi, pp.constant(1.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = pp.load(pp.save(policy, f"{folder}/policy"), features=phi)
    >>> again.law.id == law.id
    True
    """
    if not isinstance(path, str | Path):
        raise BundleError(
            f"save: the path must be text or a Path, but got {type(path).__name__}; "
            "save(thing, path)."
        )
    kind = _kind_of(thing)
    try:
        packed: Packed = _function("pack", kind)(thing)
    except BundleError as cause:
        raise BundleError(f"save: {type(thing).__name__} cannot be saved: {cause}") from cause
    about = {"format": FORMAT, "kind": kind, "thing": packed.manifest}
    return write_sealed(path, about, packed.arrays)


def load(path: str | Path, law: Any = None, features: Any = None, advisor: Any = None) -> Any:
    """Read back what :func:`save` wrote; its answers are the same as before, to the last bit.

    Parameters
    ----------
    path : the folder.
    law : the Law a custom model or summary was fitted with, or the fitted law; nothing where the
        law is built in, for it was stored; of a committee with several custom laws a mapping,
        member -> Law. Its sites, shapes, summary and its answers at a few
        inputs are compared with those saved.
    features : Phi, needed by calibrations and policies; compared at a few contexts.
    advisor : the function a guarded policy was advised by, if it was one; its answers may depend on
        what it has seen, so they are not compared.

    A policy goes on as if it had never paused; it needs neither the archive nor its calibration.
    Nothing in the folder is executed. NOT noticed: a function that differs only elsewhere than at
    the inputs it is compared at.
    """
    if not isinstance(path, str | Path):
        raise BundleError(
            f"load: the path must be text or a Path, but got {type(path).__name__}; load(path)."
        )
    manifest, arrays = read_sealed(path)
    kind, form = manifest["kind"], manifest["format"]
    if form != FORMAT:
        raise BundleError(
            f"load: {path} holds {saved_as(kind)} of format {form}, but this version reads "
            f"{FORMAT}; save it again with this version."
        )
    if kind not in KINDS:
        raise BundleError(
            f"load: {path} holds a saved object of kind {kind!r}, which this version does not know"
            f"{nearest(kind, KINDS)}"
        )
    given = {"law": law, "features": features, "advisor": advisor}
    extra = [n for n, thing in given.items() if thing is not None and n not in KINDS[kind].takes]
    if extra:
        raise BundleError(
            f"load: {path} holds {saved_as(kind)}; {extra[0]}= is not needed to load it, leave it "
            "out."
        )
    try:
        handed = {name: given[name] for name in KINDS[kind].takes}
        return _function("unpack", kind)(Packed(manifest["thing"], arrays), **handed)
    except BundleError as cause:
        raise BundleError(f"load: {path}: {cause}") from cause
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as cause:
        raise BundleError(
            f"load: {path} should hold {saved_as(kind)}, but its content does not fit "
            f"({type(cause).__name__}: {cause}); save it again."
        ) from cause


def _kind_of(thing: object) -> str:
    ours = [c.__name__ for c in type(thing).__mro__ if c.__module__.startswith("pulse_pyro.")]
    for kind, about in KINDS.items():
        if about.cls in ours:
            return kind
    if callable(thing) and hasattr(thing, "schema"):
        raise BundleError(
            f"save: {type(thing).__name__} is a law of another make, which is not stored; keep its "
            "model yourself. Policies and calibrations with it are saved, and take the fitted law "
            "back: load(path, law=law)."
        )
    raise BundleError(
        f"save: a fitted law, a Calibration, Diagnostics, a Run, a Design or a policy such as "
        f"PulseUCB was expected, but got {type(thing).__name__}"
        + ("; fit it first: law.fit(history, seed=0)." if hasattr(thing, "fit") else ".")
    )


def _function(verb: str, kind: str) -> Any:
    """The one place where this part of the package reaches for later ones, when it is called."""
    module = import_module(f"pulse_pyro.{KINDS[kind].module}")
    return getattr(module, f"{verb}_{kind}")
