"""Running policies as plain values and arrays, and back: they go on as if they had never paused."""

from __future__ import annotations

from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Array
from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.online import (
    CalibratedErrors,
    OnlineErrors,
    warn_if_failed,
)
from pulse_pyro.calibration.saved import (
    pack_any_law,
    pack_calibration,
    unpack_any_law,
    unpack_calibration,
)
from pulse_pyro.features import Features, pack_features, unpack_features
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.saved import pack_archive, unpack_archive
from pulse_pyro.policies.adaptive import Adapted, AdaptivePulseUCB
from pulse_pyro.policies.imputed import Imputed, Scorer
from pulse_pyro.policies.linear import Decision
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.policies.streaming import PendingDecision, Streaming
from pulse_pyro.policies.unsure_directions import DrawDirections, LinearDirections
from pulse_pyro.radius import SAMPLED, Radius

POLICIES: dict[str, type[Streaming]] = {"PulseUCB": PulseUCB, "AdaptivePulseUCB": AdaptivePulseUCB}
DIRECTIONS = (LinearDirections, DrawDirections)
ERRORS = (CalibratedErrors,)
STATE = ("precision", "inverse", "b", "theta", "sums")


def pack_policy(policy: Streaming) -> Packed:
    """Write all of a running policy but Phi, and the code of a custom law.

    Its law, calibration and radius, what was learned, open decisions, the pasts of all units, a
    growing archive with its rows, and the state of its random numbers.
    """
    if POLICIES.get(type(policy).__name__) is not type(policy):
        raise BundleError(f"{type(policy).__name__} is a class of your own; {list(POLICIES)} are.")
    law, names = policy.law, policy.scorer.w_names
    manifest: dict[str, Any] = {"policy": type(policy).__name__, "ridge": policy._state.ridge}
    packed = Packed(manifest, {}).holding("radius", pack_value(policy.radius, (Radius,)))
    packed = packed.holding("law", pack_any_law(law, law.schema.contexts))
    packed = packed.holding(
        "features", pack_features(policy.features, law.schema.contexts, len(names))
    )
    packed = packed.holding("scorer", _pack_scorer(policy.scorer))
    if policy.errors is not None:
        packed = packed.holding("errors", _pack_errors(policy.errors, law))
    if policy.archive is not None:
        packed = packed.holding("archive", pack_archive(policy.archive, law))
    return packed.holding("state", _pack_state(policy))


def unpack_policy(packed: Packed, law: object = None, features: object = None) -> Streaming:
    """Make a policy anew, in the state it was in."""
    saved = packed.manifest
    model = law.law if isinstance(law, PosteriorLaw) else law
    # a law that grows is another one by now than the one that was fitted at the start
    playing = unpack_any_law(packed.part("law"), model if "archive" in saved else law)
    phi = unpack_features(packed.part("features"), features)
    scorer = _unpack_scorer(packed.part("scorer"), playing, phi)
    radius = unpack_value(packed.part("radius"), Radius, (Radius,))
    errors = archive = None
    if "errors" in saved:
        errors = _unpack_errors(packed.part("errors"), playing, model, phi)
    if "archive" in saved:
        archive = unpack_archive(packed.part("archive"), playing, model)
    policy = object.__new__(POLICIES[saved["policy"]])
    Streaming.__init__(policy, scorer, radius, saved["ridge"], errors, archive)
    _unpack_state(packed.part("state"), policy)
    return policy


def _pack_scorer(scorer: Scorer) -> Packed:
    if isinstance(scorer, Imputed):
        return Packed({"is": "imputed", "size": scorer.size}, {})
    if isinstance(scorer, Adapted):
        found = pack_value(scorer.found, DIRECTIONS, {"law": scorer.law})
        about = {"is": "adapted", "theta_bound": float(scorer.theta_bound)}
        return Packed(about, {}).holding("directions", found)
    raise BundleError(f"its features are scored by {type(scorer).__name__}, which is your own.")


def _unpack_scorer(packed: Packed, law: FittedLaw, features: Features) -> Scorer:
    if packed.manifest["is"] == "imputed":
        return Imputed(law, features, packed.manifest["size"], seed=0)
    found: Any = unpack_value(packed.part("directions"), object, DIRECTIONS, {"law": law})
    return Adapted(found, features, packed.manifest["theta_bound"], seed=0)


def _pack_errors(errors: OnlineErrors, law: FittedLaw) -> Packed:
    about = errors.calibration
    same = about.law_id == getattr(law, "id", None) and len(about.parts) == 1
    own = about.parts[0].law if same else None  # the policy's own: stored already
    packed = pack_value(errors, ERRORS, {"calibration": about})
    return packed.holding("calibration", pack_calibration(about, own))


def _unpack_errors(
    packed: Packed, law: FittedLaw, model: object, features: Features
) -> OnlineErrors:
    about = unpack_calibration(packed.part("calibration"), model, features, law)
    warn_if_failed(about)
    found: Any = unpack_value(packed, object, ERRORS, {"calibration": about})
    return found  # type: ignore[no-any-return]


# What was learned, and what is still open.


def _pack_state(policy: Streaming) -> Packed:
    arrays: dict[str, Array] = dict(zip(STATE, policy._state[:5], strict=True))
    opened = policy._open.values()
    for name, size in _sizes(policy).items():
        values = [one.s if name == "s" else getattr(one.decision, name) for one in opened]
        arrays[f"open.{name}"] = np.array(values, np.float64).reshape(len(opened), *size)
    for i, past in enumerate(policy._pasts.units.values()):
        for k, follower in enumerate(past):
            for name, value in follower.state().items():
                arrays[f"unit.{i}.{k}.{name}"] = value
    inner = _inner(policy.scorer)
    manifest = {
        "issued": policy._issued,
        "open": list(policy._open),
        "places": [[one.unit, one.row] for one in opened],
        "units": [[unit, len(past)] for unit, past in policy._pasts.units.items()],
        "draws": inner.rng.bit_generator.state,
        "affine": inner.affine,
        "noise": policy._noise.bit_generator.state if policy.radius.kind == SAMPLED else None,
    }
    return Packed(manifest, arrays)


def _unpack_state(packed: Packed, policy: Streaming) -> None:
    saved = packed.manifest
    for name, array in zip(STATE, policy._state[:5], strict=True):
        array[:] = packed.shaped(name, *array.shape)
    policy._issued = saved["issued"]
    count = len(saved["open"])
    opened = {n: packed.shaped(f"open.{n}", count, *size) for n, size in _sizes(policy).items()}
    for row, (key, (unit, place)) in enumerate(zip(saved["open"], saved["places"], strict=True)):
        own = {name: np.array(values[row]) for name, values in opened.items()}
        own["x"].flags.writeable = False
        decision = Decision(
            action=int(own["action"]),
            x=own["x"],
            mean=own["mean"],
            width=own["width"],
            gamma=float(own["gamma"]),
            error=float(own["error"]),
            id=key,
        )
        policy._open[key] = PendingDecision(decision, own["s"], unit, place)
    for i, (unit, followers) in enumerate(saved["units"]):
        policy._pasts.units[unit] = [policy.law.follow() for _ in range(followers)]
        for k, follower in enumerate(policy._pasts.units[unit]):
            start = f"unit.{i}.{k}."
            own = {n[len(start) :]: v for n, v in packed.arrays.items() if n.startswith(start)}
            if isinstance(policy.law, PosteriorLaw):  # what other laws keep is their own affair
                own = {n: packed.shaped(start + n, *v.shape) for n, v in follower.state().items()}
            follower.restore(own)
    inner = _inner(policy.scorer)
    inner.rng.bit_generator.state = saved["draws"]
    inner.affine = saved["affine"]
    if saved["noise"] is not None:
        policy._noise.bit_generator.state = saved["noise"]


def _sizes(policy: Streaming) -> dict[str, tuple[int, ...]]:
    """Shapes of what is kept of an open decision."""
    arms, dim, s_dim = len(policy._arms), len(policy.scorer.names), len(policy.law.schema.s_names)
    one: tuple[int, ...] = ()
    return {
        "action": one,
        "x": (dim,),
        "mean": (arms,),
        "width": (arms,),
        "gamma": one,
        "error": one,
        "s": (s_dim,),
    }


def _inner(scorer: Scorer) -> Imputed:
    if isinstance(scorer, Adapted):
        return scorer.inner
    assert isinstance(scorer, Imputed)
    return scorer
