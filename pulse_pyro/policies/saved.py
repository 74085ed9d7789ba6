"""Running policies as plain values and arrays, and back: they go on as if they had never paused."""

from __future__ import annotations

from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Array
from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro.base import FittedLaw, Summary
from pulse_pyro.calibration.calibration import Calibration
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
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.saved import pack_archive, summary_from, summary_spec, unpack_archive
from pulse_pyro.policies.adaptive import Adapted, AdaptivePulseUCB
from pulse_pyro.policies.augmented import Augmented
from pulse_pyro.policies.core import BonusCore, Core, RoundErrors, told
from pulse_pyro.policies.guard import Ball, BiasMap
from pulse_pyro.policies.imputed import Imputed, Scorer
from pulse_pyro.policies.linear import Decision
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.policies.streaming import PendingDecision, Streaming
from pulse_pyro.policies.streaming_guard import BandRounds, StreamingGuard
from pulse_pyro.policies.unsure_directions import DrawDirections, LinearDirections
from pulse_pyro.radius import Radius

POLICIES: dict[str, type[Streaming]] = {"PulseUCB": PulseUCB, "AdaptivePulseUCB": AdaptivePulseUCB}
DIRECTIONS = (LinearDirections, DrawDirections)
ERRORS = (CalibratedErrors,)
AUGMENTED = (Augmented, BiasMap, Ellipsoid)
STATE = ("precision", "inverse", "b", "theta", "sums")


def pack_policy(policy: Streaming) -> Packed:
    """Write all of a running policy but Phi, and the code of a custom law.

    Its law, calibration and radius, what was learned, open decisions, the pasts of all units, a
    growing archive with its rows, and the state of its random numbers.
    """
    if POLICIES.get(type(policy).__name__) is not type(policy):
        raise BundleError(f"{type(policy).__name__} is a class of your own; {list(POLICIES)} are.")
    law, names = policy.law, policy.scorer.w_names
    manifest: dict[str, Any] = {"policy": type(policy).__name__}
    manifest["ridge"] = policy.core.ridge
    packed = Packed(manifest, {}).holding("law", pack_any_law(law, law.schema.contexts))
    packed = packed.holding(
        "features", pack_features(policy.features, law.schema.contexts, len(names))
    )
    packed = packed.holding("scorer", _pack_scorer(policy.scorer))
    for name, part in _pack_core(policy.core, law).items():
        packed = packed.holding(name, part)
    if policy.archive is not None:
        packed = packed.holding("archive", pack_archive(policy.archive, law))
    return packed.holding("state", _pack_state(policy))


def unpack_policy(
    packed: Packed, law: object = None, features: object = None, advisor: object = None
) -> Streaming:
    """Make a policy anew, in the state it was in; ``advisor`` : its function, if it has one."""
    saved = packed.manifest
    model = law.law if isinstance(law, PosteriorLaw) else law
    # a law that grows is another one by now than the one that was fitted at the start
    playing = unpack_any_law(packed.part("law"), model if "archive" in saved else law)
    phi = unpack_features(packed.part("features"), features)
    scorer = _unpack_scorer(packed.part("scorer"), playing, phi)
    if "guard" in saved:
        core: Core = _unpack_guard(packed, playing, model, scorer, advisor)
    else:
        core = _unpack_bonus(packed, playing, model, scorer)
    if advisor is not None and not _by_function(core):
        raise BundleError("no function advises it; leave advisor= out.")
    archive = None
    if "archive" in saved:
        archive = unpack_archive(packed.part("archive"), playing, model)
    policy = object.__new__(POLICIES[saved["policy"]])
    Streaming.__init__(policy, scorer, core, archive)
    _unpack_state(packed.part("state"), policy)
    return policy


# Who chooses: a radius with its errors, or a guard with its ball.


def _pack_core(core: Core, law: FittedLaw) -> dict[str, Packed]:
    if isinstance(core, BonusCore):
        parts = {"radius": pack_value(core.radius, (Radius,))}
        if core.errors is not None:
            parts["errors"] = _pack_errors(core.errors, law)
        return parts
    if not isinstance(core, StreamingGuard):
        raise BundleError(f"its rounds are chosen by {type(core).__name__}, which is your own.")
    named = isinstance(core.advisor, str)
    about = {"slack": core.slack, "named": core.advisor if named else None}
    about["function"] = getattr(core.advisor, "__name__", "it") if _by_function(core) else None
    guard = Packed(about, {}).holding("ball", pack_value(core.ball, (Ball,)))
    if isinstance(core.advisor, Radius):
        guard = guard.holding("advisor", pack_value(core.advisor, (Radius,)))
    if core.source is None:
        return {"guard": guard}
    if not isinstance(core.source, BandRounds):
        raise BundleError(f"its errors are those of {type(core.source).__name__}, your own.")
    bias = core.source.bias
    guard = guard.holding("bias", pack_value(bias, (BiasMap,), {"features": bias.features}))
    return {"guard": guard.holding("band", _pack_own(core.source.calibration, law))}


def _unpack_bonus(packed: Packed, law: FittedLaw, model: object, scorer: Scorer) -> BonusCore:
    radius, errors = unpack_value(packed.part("radius"), Radius, (Radius,)), None
    if "errors" in packed.manifest:
        errors = _unpack_errors(packed.part("errors"), law, model, scorer.features)
    arms, dim = scorer.features.actions, len(scorer.names)
    return BonusCore(radius, packed.manifest["ridge"], arms, dim, errors)


def _unpack_guard(
    packed: Packed, law: FittedLaw, model: object, scorer: Scorer, function: object
) -> StreamingGuard:
    ridge, saved, phi = packed.manifest["ridge"], packed.part("guard"), scorer.features
    advisor: Any = saved.manifest["named"]
    if "advisor" in saved.manifest:
        advisor = unpack_value(saved.part("advisor"), Radius, (Radius,))
    elif advisor is None:
        if not callable(function):
            raise BundleError(
                f"a function ({saved.manifest['function']}) advises it, which is not stored; pass "
                "it: load(path, features=phi, advisor=function)."
            )
        advisor = function
    source = None
    if "band" in saved.manifest:
        about = unpack_calibration(saved.part("band"), model, phi, law)
        warn_if_failed(about)
        bias = unpack_value(saved.part("bias"), BiasMap, (BiasMap,), {"features": phi})
        source = BandRounds(about, bias)
    ball = unpack_value(saved.part("ball"), Ball, (Ball,))
    dim, slack = len(scorer.names), saved.manifest["slack"]
    return StreamingGuard(ball, source, phi.actions, dim, ridge, advisor, slack)


def _by_function(core: Core) -> bool:
    return isinstance(core, StreamingGuard) and not isinstance(core.advisor, Radius | str)


def _pack_scorer(scorer: Scorer) -> Packed:
    if isinstance(scorer, Imputed):
        return Packed({"is": "imputed", "size": scorer.size}, {})
    if isinstance(scorer, Adapted):
        found = pack_value(scorer.found, DIRECTIONS, {"law": scorer.law})
        about = {"is": "adapted", "theta_bound": float(scorer.theta_bound)}
        return Packed(about, {}).holding("directions", found)
    if isinstance(scorer, Augmented):
        sieve = scorer.ellipsoid.sieve
        spec = summary_spec(sieve) if isinstance(sieve, Summary) else None
        if sieve is not None and (spec is None or summary_from(spec) is None):
            raise BundleError(
                "its sieve is a function or summary of your own, which is not stored."
            )
        handed = {"law": scorer.law, "features": scorer.features}
        handed |= {} if sieve is None else {"sieve": sieve}
        packed = Packed({"is": "augmented", "sieve": spec}, {})
        return packed.holding("scores", pack_value(scorer, AUGMENTED, handed))
    raise BundleError(f"its features are scored by {type(scorer).__name__}, which is your own.")


def _unpack_scorer(packed: Packed, law: FittedLaw, features: Features) -> Scorer:
    if packed.manifest["is"] == "imputed":
        return Imputed(law, features, packed.manifest["size"], seed=0)
    if packed.manifest["is"] == "augmented":
        spec = packed.manifest["sieve"]
        handed = {"law": law, "features": features, "sieve": spec and summary_from(spec)}
        return unpack_value(packed.part("scores"), Augmented, AUGMENTED, handed)
    found: Any = unpack_value(packed.part("directions"), object, DIRECTIONS, {"law": law})
    return Adapted(found, features, packed.manifest["theta_bound"], seed=0)


def _pack_errors(errors: OnlineErrors, law: FittedLaw) -> Packed:
    packed = pack_value(errors, ERRORS, {"calibration": errors.calibration})
    return packed.holding("calibration", _pack_own(errors.calibration, law))


def _pack_own(calibration: Calibration, law: FittedLaw) -> Packed:
    """Write a calibration, without its law where that is the policy's own: stored already."""
    same = calibration.law_id == getattr(law, "id", None) and len(calibration.parts) == 1
    return pack_calibration(calibration, calibration.parts[0].law if same else None)


def _unpack_errors(
    packed: Packed, law: FittedLaw, model: object, features: Features
) -> OnlineErrors:
    about = unpack_calibration(packed.part("calibration"), model, features, law)
    warn_if_failed(about)
    found: Any = unpack_value(packed, object, ERRORS, {"calibration": about})
    return found  # type: ignore[no-any-return]


# What was learned, and what is still open.


def _pack_state(policy: Streaming) -> Packed:
    core = _known(policy.core)
    arrays: dict[str, Array] = dict(zip(STATE, core.kept[:5], strict=True))
    if isinstance(core, StreamingGuard):
        arrays |= {"counts": core.counts, "sums of the ball": core.sums.plain}
    opened = policy._open.values()
    for name, size in _sizes(policy).items():
        values = [_kept(one, name) for one in opened]
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
        "chosen": [[one.decision.by, one.decision.why] for one in opened],
        "draws": None if inner is None else inner.rng.bit_generator.state,
        "affine": None if inner is None else inner.affine,
        "noise": core.noise.bit_generator.state,
    }
    return Packed(manifest, arrays)


def _unpack_state(packed: Packed, policy: Streaming) -> None:
    saved = packed.manifest
    core = _known(policy.core)
    for name, array in zip(STATE, core.kept[:5], strict=True):
        array[:] = packed.shaped(name, *array.shape)
    if isinstance(core, StreamingGuard):
        core.counts[:] = packed.shaped("counts", *core.counts.shape)
        core.sums.plain[:] = packed.shaped("sums of the ball", *core.sums.plain.shape)
    policy._issued = saved["issued"]
    count = len(saved["open"])
    opened = {n: packed.shaped(f"open.{n}", count, *size) for n, size in _sizes(policy).items()}
    chosen = saved.get("chosen", [["radius", ""]] * count)  # earlier versions had no other
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
            by=chosen[row][0],
            why=chosen[row][1],
            cost=float(own["cost"]) if "cost" in own else np.nan,
        )
        about = told(float(own["error"]))
        if "coef" in own:
            about = RoundErrors(own["coef"], about.psi)
        policy._open[key] = PendingDecision(decision, own["s"], about, unit, place)
    for i, (unit, followers) in enumerate(saved["units"]):
        policy._pasts.units[unit] = [policy.law.follow() for _ in range(followers)]
        for k, follower in enumerate(policy._pasts.units[unit]):
            start = f"unit.{i}.{k}."
            own = {n[len(start) :]: v for n, v in packed.arrays.items() if n.startswith(start)}
            if isinstance(policy.law, PosteriorLaw):  # what other laws keep is their own affair
                own = {n: packed.shaped(start + n, *v.shape) for n, v in follower.state().items()}
            follower.restore(own)
    inner = _inner(policy.scorer)
    if inner is not None:
        inner.rng.bit_generator.state = saved["draws"]
        inner.affine = saved["affine"]
    if saved["noise"] is not None:
        core.noise.bit_generator.state = saved["noise"]


def _known(core: Core) -> BonusCore | StreamingGuard:
    assert isinstance(core, BonusCore | StreamingGuard)  # others were refused
    return core


def _kept(one: PendingDecision, name: str) -> Any:
    """Return what is kept of an open decision."""
    if name == "coef":
        return one.about.coef
    return one.s if name == "s" else getattr(one.decision, name)


def _sizes(policy: Streaming) -> dict[str, tuple[int, ...]]:
    """Shapes of what is kept of an open decision."""
    arms, dim, s_dim = len(policy._arms), len(policy.scorer.names), len(policy.law.schema.s_names)
    one: tuple[int, ...] = ()
    guard = {}
    if isinstance(policy.core, StreamingGuard):
        guard = {"cost": one, "coef": (1, len(policy.core.rule.directions))}
    return guard | {
        "action": one,
        "x": (dim,),
        "mean": (arms,),
        "width": (arms,),
        "gamma": one,
        "error": one,
        "s": (s_dim,),
    }


def _inner(scorer: Scorer) -> Imputed | None:
    """What draws, where features are an expectation."""
    if isinstance(scorer, Adapted):
        return scorer.inner
    return scorer if isinstance(scorer, Imputed) else None
