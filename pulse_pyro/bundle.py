"""Save and load fitted laws: a manifest and plain arrays, nothing that could be executed."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro._pyro.card import ModelCard, Site
from pulse_pyro.arrays import Float
from pulse_pyro.errors import BundleError, PulseError
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.fitted_state_space import FittedStateSpace
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.record import FitRecord
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from pulse_pyro.laws.specs import family_from, summary_from, summary_spec
from pulse_pyro.sealed import read_sealed, write_sealed

FORMAT = 1
SETTLED = ("box", "missable", "most")
PARTS = ("x_mean", "x_scale", "w_mean", "w_scale", "input_mean", "input_cov", "contexts")


def save_law(fitted: FittedLaw, path: str | Path) -> Path:
    """Write a fitted law to the folder ``path`` and return it.

    ``manifest.json`` names law, summary, columns, fit and checksums; ``arrays.npz`` holds draws.
    Both are written aside first and renamed into place, so a crash leaves no half-written law. An
    earlier law at that path is replaced; any other folder is left alone. Units' names are stored
    (calibration must recognise them), rows of data are not.

    Examples
    --------
    >>> import tempfile
    >>> import pulse_pyro as pp
    >>> history = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.linear_lags(19).fit(history, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load_law(save_law(law, f"{folder}/law"))
    >>> again.law_id == law.law_id
    True
    """
    if not isinstance(fitted, FittedLaw):
        raise BundleError(
            f"save_law: a fitted law was expected, {type(fitted).__name__} came; fit it first."
        )
    arrays = {f"draw.{name}": value for name, value in fitted.draws.items()}
    scaler, inputs = fitted.scaler, fitted.inputs
    moments = (
        scaler.x_mean,
        scaler.x_scale,
        scaler.w_mean,
        scaler.w_scale,
        inputs.mean,
        inputs.cov,
        fitted.contexts,
    )
    arrays.update(zip(PARTS, moments, strict=True))
    family = fitted.law.family
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "law": family.spec() if family is not None else {"family": "custom"},
        "name": fitted.law.name,
        "summary": summary_spec(fitted.law.summary),
        "card": None if fitted.card is None else asdict(fitted.card),
        "record": asdict(fitted.record),
        "fit_units": fitted.fit_units,
        "s_names": fitted.s_names,
        "w_names": fitted.w_names,
        "law_id": fitted.law_id,
        "probe": None if family is not None else _probe(fitted),
    }
    return write_sealed(path, "law", manifest, arrays)


def load_law(path: str | Path, model: Law | None = None) -> FittedLaw:
    """Read a fitted law back; seeded draws are the same as before it was saved.

    Parameters
    ----------
    path : the folder.
    model : the Law itself, needed for a custom model or summary: code is never read from a bundle.
        Its sites, shapes, summary and its answers at a few inputs are compared with those saved.
    """
    manifest, arrays = read_sealed(path, "law", FORMAT)
    law = _law(manifest, model, Path(path))
    card = None if manifest["card"] is None else _card(manifest["card"])
    if law.family is None:
        card = _matching_card(law, card, arrays["input_mean"])
    scaler = Scaler(*(arrays[name] for name in PARTS[:4]))
    inputs = GaussianInputs(arrays["input_mean"], arrays["input_cov"])
    draws = {name[5:]: value for name, value in arrays.items() if name.startswith("draw.")}
    record = FitRecord(**{k: _tuple(v) for k, v in manifest["record"].items()})
    kind = FittedStateSpace if isinstance(law.summary, Filtered) else FittedLaw
    fitted = kind(
        law, draws, card, scaler, inputs, arrays["contexts"], record,
        tuple(manifest["fit_units"]), tuple(manifest["s_names"]), tuple(manifest["w_names"]),
    )  # fmt: skip
    if law.family is None and not np.allclose(
        _probe(fitted), manifest["probe"], rtol=1e-6, equal_nan=True
    ):
        raise BundleError(
            f"load_law: {law.label} gives other answers than when it was saved; its model has "
            "changed since."
        )
    if fitted.law_id != manifest["law_id"]:
        raise BundleError(f"load_law: {path} does not carry the law its manifest names.")
    return fitted


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # JSON knows lists alone


def _probe(fitted: FittedLaw) -> list[float]:
    """Answers of a custom law at three rows of inputs, to recognise its model by."""
    spread = np.sqrt(np.diag(fitted.inputs.cov))
    rows = fitted.inputs.mean + np.array([[-1.0], [0.3], [1.0]]) * spread
    found = fitted.kernel.log_density(
        fitted.scaler.x_in(rows), np.ones((3, len(fitted.w_names))), np.arange(2)
    )
    return [float(v) for v in found.ravel()]


def _law(manifest: dict[str, Any], model: Law | None, path: Path) -> Law:
    summary = summary_from(manifest["summary"])
    spec = manifest["law"]
    if model is None:
        if spec["family"] == "custom" or summary is None:
            what = "model" if spec["family"] == "custom" else "summary"
            raise BundleError(
                f"load_law: {path} holds a custom {what}; pass the Law it was made with: "
                "load_law(path, model=law)."
            )
        return Law(None, summary, manifest["name"], family=family_from(spec))
    if not isinstance(model, Law):
        raise BundleError(
            f"load_law: model must be the Law it was made with, Law(model, summary), but "
            f"{type(model).__name__} came."
        )
    kept = model.family.spec() if model.family is not None else {"family": "custom"}
    settled = {name: spec.get(name) for name in SETTLED if name in kept}  # by the data, at the fit
    if kept | settled != spec or summary_spec(model.summary) != manifest["summary"]:
        raise BundleError(
            f"load_law: {path} was made with law {spec} on {manifest['summary']}, but the law "
            f"passed is {kept} on {summary_spec(model.summary)}."
        )
    return model if model.family is None else replace(model, family=family_from(spec))


def _card(saved: dict[str, Any]) -> ModelCard:
    sites = tuple(
        Site(
            **{**s, "batch_shape": tuple(s["batch_shape"]), "event_shape": tuple(s["event_shape"])}
        )
        for s in saved["sites"]
    )
    return ModelCard(**{**saved, "sites": sites})


def _matching_card(law: Law, card: ModelCard | None, x_mean: Float) -> ModelCard:
    from pulse_pyro._pyro.contract import check_model

    if card is None:
        raise BundleError("load_law: the bundle holds a custom law without its model card.")
    model = law.model_for(card.x_dim, card.w_dim)
    try:
        now = check_model(model, np.tile(x_mean, (8, 1)), np.zeros((8, card.w_dim)), law.label)
    except PulseError as cause:
        raise BundleError(f"load_law: the law passed does not run: {cause}") from cause
    if card.unseen != law.unseen:
        raise BundleError(
            f"load_law: {law.label} was saved with unseen inputs {card.unseen}, but the law passed "
            f"has them {law.unseen}."
        )
    before, after = _fingerprint(card), _fingerprint(now)
    if before != after:
        raise BundleError(
            f"load_law: {law.label} has sites {after}, but the law was saved with {before}."
        )
    return card


def _fingerprint(card: ModelCard) -> list[tuple[str, str, tuple[int, ...], str]]:
    # rows of the check are arbitrary; a global site's batch shape is the model's own
    return [
        (s.name, s.kind, s.shape if s.kind == "global" else s.event_shape, s.distribution)
        for s in card.sites
    ]
