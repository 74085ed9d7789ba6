"""Laws as a manifest and plain arrays, and back; nothing in them could be executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float
from pulse_pyro._core.errors import BundleError, PulseError, nearest
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro._core.registry import named
from pulse_pyro._pyro.inference import Ensemble, Exact, Laplace, Nuts, Svi
from pulse_pyro.base import ModelCard, Schema, Site, Summary, UnfittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags, Stack, Window
from pulse_pyro.laws import LAWS
from pulse_pyro.laws.ellipsoid import LeastSquares
from pulse_pyro.laws.filtering import Filtered, FilteredLaw, StateSpace
from pulse_pyro.laws.fitted import FitRecord, PosteriorLaw
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.laws.law import Family, Law
from pulse_pyro.laws.memory import Memory
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from pulse_pyro.laws.units import UnitLaw, of_units
from pulse_pyro.laws.varma import Process

# Families and summaries as plain values, and back: what a saved law says of itself.


REDUCTIONS = (
    "mean",
    "median",
    "sum",
    "min",
    "max",
    "std",
    "var",
    "ptp",
    "nanmean",
    "nanmedian",
    "nansum",
    "nanmin",
    "nanmax",
    "nanstd",
    "nanvar",
)


def family_from(spec: Mapping[str, Any]) -> Family:
    """Rebuild a family of ``laws.LAWS`` from its ``spec()``."""
    name = spec["family"]
    if name not in LAWS:
        raise BundleError(f"there is no law family {name!r}{nearest(name, LAWS)}")
    made = named(LAWS, name)(Lags(1))  # any law of the family knows how to rebuild another
    if getattr(made, "family", None) is None:
        raise BundleError(f"{name} is not saved as a family of its own.")
    family: Family = made.family.from_spec(spec)
    return family


def summary_spec(summary: Summary) -> dict[str, Any]:
    """Describe a summary in plain values; a custom one by its names alone."""
    if isinstance(summary, Lags):
        return {"kind": "Lags", "count": summary.count, "start": summary.start}
    if isinstance(summary, Identity):
        return {"kind": "Identity"}
    if isinstance(summary, Stack):
        return {"kind": "Stack", "parts": [summary_spec(part) for part in summary.parts]}
    if isinstance(summary, Filtered):
        parts = {**vars(summary.process), "mean": summary.mean, "scale": summary.scale}
        return {
            "kind": "Filtered",
            "window": summary_spec(summary.window),
            **{name: value.tolist() for name, value in parts.items()},
        }
    if isinstance(summary, Window):
        names = [name for name in REDUCTIONS if getattr(np, name) is summary.fn]
        if names:
            return {"kind": "Window", "count": summary.count, "fn": names[0]}
    return {"kind": "custom", "names": list(summary.names), "memory": summary.memory}


def summary_from(spec: dict[str, Any]) -> Summary | None:
    """Rebuild a summary, or None if it is custom."""
    if spec["kind"] == "Lags":
        return Lags(spec["count"], spec["start"])
    if spec["kind"] == "Identity":
        return Identity()
    if spec["kind"] == "Window" and spec["fn"] in REDUCTIONS:
        return Window(spec["count"], getattr(np, spec["fn"]))
    if spec["kind"] == "Filtered":
        mean, scale = np.array(spec["mean"]), np.array(spec["scale"])
        d = len(mean)
        ar, ma = (np.array(spec[name]).reshape(-1, d, d) for name in ("ar", "ma"))
        window = Lags(spec["window"]["count"], spec["window"]["start"])
        return Filtered(window, Process(ar, ma, np.array(spec["noise"])), mean, scale)
    if spec["kind"] == "Stack":
        parts = [summary_from(part) for part in spec["parts"]]
        built = [part for part in parts if part is not None]
        return Stack(*built) if len(built) == len(parts) else None
    return None


# A law before it is fitted: by its family, or recognised among what is handed in.


SETTLED = ("box", "missable", "most", "response", "parts")  # by the data, at the fit


def law_spec(law: UnfittedLaw) -> dict[str, Any]:
    """Describe a law in plain values; a custom one by its name alone."""
    if isinstance(law, StateSpace):
        family = {"family": "state_space", "ar": law.ar, "ma": law.ma}
    elif isinstance(law, Law):
        family = law.family.spec() if law.family is not None else {"family": "custom"}
    else:
        raise BundleError(
            f"its law, {law.name}, is a {type(law).__name__}, which is not stored; keep it "
            "yourself and fit it again."
        )
    return {"law": family, "name": law.name, "summary": summary_spec(law.summary)}


def law_from(spec: Mapping[str, Any], law: object) -> UnfittedLaw:
    """Rebuild a law; a custom model or summary is that of ``law``, which must look the same."""
    summary, family = summary_from(spec["summary"]), spec["law"]
    if isinstance(law, PosteriorLaw):
        law = law.law
    if isinstance(law, StateSpace):
        law = None  # built in: all of it was stored
    if law is None:
        if family["family"] == "custom" or summary is None:
            what = "model" if family["family"] == "custom" else "summary"
            raise BundleError(
                f"it holds a custom {what}; pass the Law it was made with: load(path, law=law)."
            )
        if family["family"] == "state_space":
            lags = Lags(spec["summary"]["count"], spec["summary"]["start"])
            return StateSpace(lags, family["ar"], family["ma"], spec["name"])
        return Law(None, summary, spec["name"], family=family_from(family))
    if not isinstance(law, Law):
        raise BundleError(
            "law must be the Law it was made with, Law(model, summary), or the fitted law, but got "
            f"{type(law).__name__}."
        )
    kept = law.family.spec() if law.family is not None else {"family": "custom"}
    settled = {name: family.get(name) for name in SETTLED if name in kept}
    if kept | settled != family or summary_spec(law.summary) != spec["summary"]:
        raise BundleError(
            f"it was made with law {family} on {spec['summary']}, but the law passed is {kept} on "
            f"{summary_spec(law.summary)}."
        )
    return law if law.family is None else replace(law, family=family_from(family))


# A fitted law: draws, units and the moments of its inputs.


RECORDS = (FitRecord, ModelCard, Site)
SCALER = ("x_mean", "x_scale", "w_mean", "w_scale")


def pack_law(fitted: PosteriorLaw) -> Packed:
    """Write a fitted law; its custom model, if it has one, is left to be handed back in."""
    arrays = {f"draw.{name}": value for name, value in fitted.draws.items()}
    arrays |= {name: getattr(fitted.scaler, name) for name in SCALER}
    arrays |= {"input_mean": fitted.inputs.mean, "input_cov": fitted.inputs.cov}
    if fitted.squares is not None:
        arrays |= {f"squares.{name}": np.array(v) for name, v in vars(fitted.squares).items()}
    manifest: dict[str, Any] = {
        "spec": law_spec(fitted.law),
        "units": list(fitted.units),
        "schema": fitted.schema.to_plain(),
        "law_id": fitted.id,
        "probe": None if fitted.law.family is not None else _probe(fitted),
    }
    if isinstance(fitted, UnitLaw):
        manifest["members"] = list(fitted.members)
    packed = Packed(manifest, {name: np.asarray(v, np.float64) for name, v in arrays.items()})
    packed = packed.holding("fit", pack_value((fitted.record, fitted.card), RECORDS))
    if fitted.memory is None:
        return packed
    return packed.holding("memory", pack_value(fitted.memory, (Memory,)))


def unpack_law(packed: Packed, law: object = None, features: object = None) -> PosteriorLaw:
    """Make a fitted law anew; ``law`` is its Law, or itself, where its model or summary is custom.

    A fitted law that is handed in is compared and returned as it is.
    """
    saved = packed.manifest
    schema = Schema.from_plain(saved["schema"])
    memory = _unpack_memory(packed, len(schema.w_names))
    if isinstance(law, PosteriorLaw):
        if law.id != saved["law_id"]:
            raise BundleError(
                f"it was made with law {saved['law_id']}, but the law passed is {law.id}."
            )
        _same_answers(law, saved["probe"])
        same_memory(law.memory, memory)
        return law
    model = law_from(saved["spec"], law)
    if not isinstance(model, Law):
        raise BundleError(f"it does not hold a fitted law but {model!r}.")
    record, card = unpack_value(packed.part("fit"), tuple, RECORDS)
    p, w_dim = len(packed.arrays["x_mean"]), len(schema.w_names)
    input_mean = packed.shaped("input_mean", p)
    if model.family is None:
        card = _matching_card(model, card, input_mean[: card.x_dim])
    kind = FilteredLaw if isinstance(model.summary, Filtered) else PosteriorLaw
    draws = {name[5:]: value for name, value in packed.arrays.items() if name.startswith("draw.")}
    fitted: PosteriorLaw = kind(
        law=model,
        draws=draws,
        card=card,
        scaler=Scaler(
            *(packed.shaped(name, p) for name in SCALER[:2]),
            *(packed.shaped(name, w_dim) for name in SCALER[2:]),
        ),
        inputs=GaussianInputs(input_mean, packed.shaped("input_cov", p, p)),
        record=record,
        units=tuple(saved["units"]),
        schema=schema,
        memory=memory,
        squares=_squares(packed, p, w_dim),
    )
    if "members" in saved:
        fitted = of_units(fitted, tuple(saved["members"]))
    _same_answers(fitted, saved["probe"])
    if fitted.id != saved["law_id"]:
        raise BundleError("it does not carry the law its manifest names.")
    return fitted


def _unpack_memory(packed: Packed, w_dim: int) -> Memory | None:
    """Return what is saved of a law's memory, None if it had none."""
    if "memory" not in packed.manifest:
        return None
    memory = unpack_value(packed.part("memory"), Memory, (Memory,))
    if memory.w_dim != w_dim:
        raise BundleError(f"its memory is of {memory.w_dim} columns of W, its law of {w_dim}.")
    return memory


def same_memory(handed: Memory | None, saved: Memory | None) -> None:
    """Refuse a law whose memory is another than the one saved: its ``id`` does not tell."""
    values = [
        None if each is None else (each.kind, *(a.tobytes() for a in each.arrays))
        for each in (handed, saved)
    ]
    if values[0] != values[1]:
        words = ["no memory" if m is None else f"memory {m.kind!r}" for m in (saved, handed)]
        raise BundleError(
            f"it was made with a law of {words[0]}, but the law passed has {words[1]}, or other "
            "numbers in it; pass the law it was made with."
        )


def _squares(packed: Packed, p: int, w_dim: int) -> LeastSquares | None:
    """Least squares of a linear law; earlier versions did not keep them."""
    if "squares.centre" not in packed.arrays:
        return None
    size = 1 + p
    return LeastSquares(
        centre=packed.shaped("squares.centre", w_dim, size),
        inverse=packed.shaped("squares.inverse", size, size),
        meat=packed.shaped("squares.meat", w_dim, size, size),
        residual=packed.shaped("squares.residual", w_dim, w_dim),
        rows=int(packed.shaped("squares.rows")),
        clusters=int(packed.shaped("squares.clusters")),
        shift=packed.shaped("squares.shift", p),
        scale=packed.shaped("squares.scale", p),
    )


def _same_answers(fitted: PosteriorLaw, probe: list[float] | None) -> None:
    if fitted.law.family is None and not np.allclose(
        _probe(fitted), np.array(probe, np.float64), rtol=1e-6, equal_nan=True
    ):
        raise BundleError(
            f"{fitted.law.label} gives other answers than when it was saved; its model has changed "
            "since."
        )


def _probe(fitted: PosteriorLaw) -> list[float]:
    """Answers of a custom law at three rows of inputs, to recognise its model by."""
    spread = np.sqrt(np.diag(fitted.inputs.cov))
    rows = fitted.inputs.mean + np.array([[-1.0], [0.3], [1.0]]) * spread
    if isinstance(fitted, UnitLaw):  # one of the archive, and a new one
        rows[:, -1] = [0.0, 0.0, len(fitted.members)]
    densities = fitted.kernel.log_density(
        fitted.scaler.x_in(rows), np.ones((3, len(fitted.schema.w_names))), np.arange(2)
    )
    return [float(v) for v in densities.ravel()]


def _matching_card(law: Law, card: ModelCard | None, x_mean: Float) -> ModelCard:
    from pulse_pyro._pyro.contract import check_model

    if card is None:
        raise BundleError("it holds a custom law without its model card.")
    model = law.model_for(card.x_dim, card.w_dim)
    try:
        rows, w = np.tile(x_mean, (8, 1)), np.zeros((8, card.w_dim))
        now = check_model(model, rows, w, law.label, card.columns)
    except PulseError as cause:
        raise BundleError(f"the law passed does not run: {cause}") from cause
    if card.unseen != law.unseen:
        raise BundleError(
            f"{law.label} was saved with unseen inputs {card.unseen}, but the law passed "
            f"has them {law.unseen}."
        )
    before, after = _fingerprint(card), _fingerprint(now)
    if before != after:
        raise BundleError(f"{law.label} has sites {after}, but the law was saved with {before}.")
    return card


def _fingerprint(card: ModelCard) -> list[tuple[str, str, tuple[int, ...], str]]:
    # rows of the check are arbitrary; a global site's batch shape is the model's own
    return [
        (s.name, s.kind, s.shape if s.kind == "global" else s.event_shape, s.distribution)
        for s in card.sites
    ]


# An archive: its rows and where they stand.


ROWS = ("s", "w", "offsets", "step", "cluster")


def pack_history(history: History) -> Packed:
    """Write an archive."""
    manifest = {
        "units": list(history.units),
        "clusters": list(history.clusters),
        "schema": history.schema.to_plain(),
        "step_days": history.step_days,
    }
    packed = Packed(manifest, {name: getattr(history, name) for name in ROWS})
    if history.start is not None:
        packed.arrays["start"] = history.start
    return packed


def unpack_history(packed: Packed) -> History:
    """Make an archive anew."""
    saved = packed.manifest
    s, w, offsets, step, cluster = (packed.arrays[name] for name in ROWS)
    schema, units = Schema.from_plain(saved["schema"]), tuple(saved["units"])
    return History(
        s=s,
        w=w,
        offsets=offsets,
        step=step,
        units=units,
        schema=schema,
        cluster=cluster,
        clusters=tuple(saved["clusters"]),
        start=packed.arrays.get("start"),
        step_days=saved.get("step_days", 0.0),
    )


# An archive that grows: the rows it started from, those taken in since, and its laws.


ENGINES = (Exact, Nuts, Svi, Laplace, Ensemble)


def pack_archive(archive: GrowingArchive, playing: object) -> Packed:
    """Write a growing archive with its rows; ``playing`` : a law of it that is stored elsewhere."""
    law, first = archive.law, archive.first.law
    spec = law_spec(law)
    custom = spec["law"]["family"] == "custom" or summary_from(spec["summary"]) is None
    if custom and (getattr(law, "model", None) is not first.model or law.summary != first.summary):
        raise BundleError("its archive is refitted with another custom law than it began with.")
    rows, events = archive.state()
    old = archive.history
    manifest = {
        "every": archive.every,
        "seed": archive.seed,
        "refitted": spec,
        "events": events,
        "first": archive.first is playing,
        "fitted": archive.fitted is playing,
    }
    packed = Packed(manifest, {}).holding("history", pack_history(old))
    packed = packed.holding("rows", Packed({}, dict(rows)))
    packed = packed.holding("inference", pack_value(archive.inference, ENGINES))
    if archive.first is not playing:
        packed = packed.holding("law at first", pack_law(archive.first))
    if archive.fitted is not playing:
        packed = packed.holding("law by now", pack_law(archive.fitted))
    return packed


def unpack_archive(packed: Packed, playing: Any, law: object) -> GrowingArchive:
    """Make a growing archive anew; ``law`` : the Law of a custom model."""
    saved = packed.manifest
    history = unpack_history(packed.part("history"))
    first = playing if saved["first"] else unpack_law(packed.part("law at first"), law)
    fitted = playing if saved["fitted"] else unpack_law(packed.part("law by now"), law)
    how: Any = unpack_value(packed.part("inference"), object, ENGINES)
    refitted: Any = law_from(saved["refitted"], law)
    archive = GrowingArchive(
        history,
        first,
        every=saved["every"],
        law=refitted,
        inference=how,
        seed=saved["seed"],
    )
    archive.restore(packed.part("rows").arrays, saved["events"], fitted)
    return archive
