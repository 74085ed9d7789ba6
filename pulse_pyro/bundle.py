"""Save and load fitted laws: a manifest and plain arrays, nothing that could be executed."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro._pyro.card import ModelCard, Site
from pulse_pyro.arrays import Float
from pulse_pyro.errors import BundleError, PulseError
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FitRecord, FittedLaw
from pulse_pyro.laws.fitted_state_space import FittedStateSpace
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from pulse_pyro.laws.specs import family_from, summary_from, summary_spec

FORMAT = 1
SETTLED = ("box", "missable", "most")
PARTS = ("x_mean", "x_scale", "w_mean", "w_scale", "input_mean", "input_cov", "contexts")


def save_law(fitted: FittedLaw, path: str | Path) -> Path:
    """Write a fitted law to the folder ``path`` and return it.

    ``manifest.json`` names law, summary, columns, fit and checksums; ``arrays.npz`` holds draws.
    Both are written aside first and renamed into place, so a crash leaves no half-written law. An
    earlier law at that path is replaced; any other folder is left alone. Units' names are stored
    (calibration must recognise them), rows of data are not.
    """
    if not isinstance(fitted, FittedLaw):
        raise BundleError(
            f"save_law: a fitted law was expected, {type(fitted).__name__} came; fit it first."
        )
    target = Path(path)
    if target.exists() and not _is_ours(target):
        raise BundleError(f"save_law: {target} exists and is not a saved law; choose another path.")
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
    packed = io.BytesIO()
    np.savez(
        packed, allow_pickle=False, **{k: np.asarray(v, np.float64) for k, v in arrays.items()}
    )
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
        "arrays": hashlib.sha256(packed.getvalue()).hexdigest(),
        "versions": {name: version(name) for name in ("pulse-pyro", "numpy", "torch", "pyro-ppl")},
    }
    manifest["seal"] = _seal(manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        (aside / "arrays.npz").write_bytes(packed.getvalue())
        (aside / "manifest.json").write_text(json.dumps(manifest, indent=1))
        aside.chmod(0o755)
        if target.exists():  # the old law stays whole until the new one is complete
            target.rename(old := aside.with_name(aside.name + ".old"))
            try:
                aside.rename(target)
            except OSError:
                old.rename(target)
                raise
            shutil.rmtree(old)
        else:
            aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def load_law(path: str | Path, model: Law | None = None) -> FittedLaw:
    """Read a fitted law back; seeded draws are the same as before it was saved.

    Parameters
    ----------
    path : the folder.
    model : the Law itself, needed for a custom model or summary: code is never read from a bundle.
        Its sites, shapes, summary and its answers at a few inputs are compared with those saved.
    """
    manifest, arrays = _read(Path(path))
    law = _law(manifest, model, Path(path))
    card = None if manifest["card"] is None else _card(manifest["card"])
    if law.family is None:
        card = _matching_card(law, card, arrays["input_mean"])
    scaler = Scaler(*(arrays[name] for name in PARTS[:4]))
    inputs = GaussianInputs(arrays["input_mean"], arrays["input_cov"])
    draws = {name[5:]: value for name, value in arrays.items() if name.startswith("draw.")}
    record = FitRecord(**{**manifest["record"], "losses": tuple(manifest["record"]["losses"])})
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


def _probe(fitted: FittedLaw) -> list[float]:
    """Answers of a custom law at three rows of inputs, to recognise its model by."""
    spread = np.sqrt(np.diag(fitted.inputs.cov))
    rows = fitted.inputs.mean + np.array([[-1.0], [0.3], [1.0]]) * spread
    found = fitted.kernel.log_density(
        fitted.scaler.x_in(rows), np.ones((3, len(fitted.w_names))), np.arange(2)
    )
    return [float(v) for v in found.ravel()]


def _is_ours(path: Path) -> bool:
    """Tell a saved law, even a damaged one, from any other folder."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and {"seal", "law_id", "arrays"} <= set(manifest)


def _seal(manifest: dict[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Float]]:
    try:
        text = (path / "manifest.json").read_bytes()
        packed = (path / "arrays.npz").read_bytes()
    except OSError as cause:
        raise BundleError(
            f"load_law: {path} is not a saved law: {cause.strerror or cause}; it should be a "
            "folder with manifest.json and arrays.npz."
        ) from cause
    try:
        manifest = json.loads(text)
        sealed = manifest["seal"] == _seal(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BundleError(f"load_law: {path}/manifest.json is cut short or not ours.") from cause
    if not sealed:
        raise BundleError(f"load_law: {path}/manifest.json was edited after saving; save it again.")
    if manifest["format"] != FORMAT:
        raise BundleError(
            f"load_law: {path} has format {manifest['format']}, this version reads {FORMAT}."
        )
    if hashlib.sha256(packed).hexdigest() != manifest["arrays"]:
        raise BundleError(f"load_law: {path}/arrays.npz is cut short or was edited after saving.")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            return manifest, {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as cause:
        raise BundleError(f"load_law: {path}/arrays.npz cannot be read: {cause}.") from cause


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
