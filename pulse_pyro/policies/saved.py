"""Running policies as plain values and arrays, and back: they go on as if they had never paused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Array
from pulse_pyro._core.errors import BundleError, SettingError
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro.base import FittedLaw, Follower
from pulse_pyro.calibration.calibration import CalibratedErrors, Calibration
from pulse_pyro.calibration.online import (
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
from pulse_pyro.laws.filtering import KalmanFollower
from pulse_pyro.laws.fitted import PosteriorLaw, WindowFollower
from pulse_pyro.laws.saved import pack_archive, unpack_archive
from pulse_pyro.laws.units import UnitFollower
from pulse_pyro.policies.adaptive import AdaptivePulseUCB
from pulse_pyro.policies.committee import Ballot, Committee, CommitteeRules, Joint, JointFollower
from pulse_pyro.policies.core import BonusCore, Core, RoundErrors, told
from pulse_pyro.policies.guard import VOTES, Ball, BiasMap
from pulse_pyro.policies.imputed import NOWHERE, Carried, Scorer
from pulse_pyro.policies.linear import Decision
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.policies.raw_lags import RawFollower
from pulse_pyro.policies.remembered import Remembered, RememberedFollower
from pulse_pyro.policies.saved_scorers import (
    dealt_laws,
    drawing,
    memories,
    pack_scorer,
    unpack_scorer,
)
from pulse_pyro.policies.streaming import PendingDecision, Streaming
from pulse_pyro.policies.streaming_guard import BandRounds, LearnerShape, StreamingGuard
from pulse_pyro.radius import Radius

POLICIES: dict[str, type[Streaming]] = {
    "PulseUCB": PulseUCB,
    "AdaptivePulseUCB": AdaptivePulseUCB,
    "Committee": Committee,
}
ERRORS = (CalibratedErrors,)
STATE = ("precision", "inverse", "b", "theta", "sums")


def pack_policy(policy: Streaming) -> Packed:
    """Write all of a running policy but Phi, and the code of custom laws.

    Its laws, calibration and radius, what was learned, open decisions, the pasts of all units and
    what rewards have told of them, a committee's rules and weights, a growing archive with its
    rows, and the state of its random numbers.
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
    packed = packed.holding("scorer", pack_scorer(policy.scorer))
    for name, part in _pack_core(policy.core, law).items():
        packed = packed.holding(name, part)
    if isinstance(policy.scorer, Joint):
        rules: CommitteeRules = policy.ballot.rules  # type: ignore[attr-defined]
        own = pack_value(rules, (CommitteeRules,), {"features": rules.features})
        packed = packed.holding("rules", own)
    if policy.archive is not None:
        packed = packed.holding("archive", pack_archive(policy.archive, law))
    return packed.holding("state", _pack_state(policy))


def unpack_policy(
    packed: Packed, law: object = None, features: object = None, advisor: object = None
) -> Streaming:
    """Make a policy anew, in the state it was in.

    law : the Law of a custom model; of a committee also a mapping, member -> Law. advisor : its
    function, if it has one.
    """
    saved = packed.manifest
    law, others = dealt_laws(law, saved["scorer"].get("names", []))
    model = law.law if isinstance(law, PosteriorLaw) else law
    # a law that grows is another one by now than the one that was fitted at the start
    playing = unpack_any_law(packed.part("law"), model if "archive" in saved else law)
    phi = unpack_features(packed.part("features"), features)
    scorer = unpack_scorer(packed.part("scorer"), playing, phi, others)
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
    if isinstance(policy, PulseUCB | Committee) and "rules" in saved:
        known = unpack_value(
            packed.part("rules"), CommitteeRules, (CommitteeRules,), {"features": phi}
        )
        policy.ballot = Ballot(policy, known)
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
    setup = core.setup
    others = [list(each) for each in zip(setup.dims, setup.ridge, setup.alpha, strict=True)][1:]
    about = {
        "slack": core.slack,
        "named": core.advisor if named else None,
        "function": getattr(core.advisor, "__name__", "it") if _by_function(core) else None,
        "guess": float(setup.guess[0]),
        "votes": next(name for name, rule in VOTES.items() if rule == setup.rule),
        "others": [[int(dim), float(ridge), float(alpha)] for dim, ridge, alpha in others],
    }
    guard = Packed(about, {})
    if core.ball is not None:
        guard = guard.holding("ball", pack_value(core.ball, (Ball,)))
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
        band = unpack_calibration(saved.part("band"), model, phi, law)
        warn_if_failed(band)
        bias = unpack_value(saved.part("bias"), BiasMap, (BiasMap,), {"features": phi})
        source = BandRounds(band, bias)
    about = saved.manifest
    others = [LearnerShape(*each) for each in about.get("others", [])]
    dims = scorer.dims if isinstance(scorer, Joint) else [len(scorer.names)]
    if dims[1:] != [each.dim for each in others]:
        raise BundleError(f"its members have {dims} features, but others were learned from.")
    return StreamingGuard(
        unpack_value(saved.part("ball"), Ball, (Ball,)) if "ball" in about else None,
        source,
        phi.actions,
        dims[0],
        ridge,
        advisor,
        about["slack"],
        others=others,
        guess=about.get("guess"),  # earlier versions had a ball, whose sigma it is
        votes=about.get("votes", "tempered"),
    )


def _by_function(core: Core) -> bool:
    return isinstance(core, StreamingGuard) and not isinstance(core.advisor, Radius | str)


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
    manifest: dict[str, Any] = {
        "issued": policy._issued,
        "units": [[unit, len(past)] for unit, past in policy._pasts.units.items()],
        "draws": [
            [inner.rng.bit_generator.state, inner.affine] for inner in drawing(policy.scorer)
        ],
        "noise": core.noise.bit_generator.state,
    }
    if isinstance(core, StreamingGuard):
        arrays |= {"counts": core.counts, "sums of the ball": core.sums.plain}
        arrays |= {"weights": core.weights} | _pack_weights(core)
        manifest["stride"] = core.history.stride
        manifest["known"] = core.known
    for name, decisions in (("open", policy._open), ("learned", policy._learned)):
        about, kept = _pack_decisions(policy, decisions)
        manifest |= {f"{name} decisions": about}
        arrays |= {f"{name}.{key}": value for key, value in kept.items()}
    for i, past in enumerate(policy._pasts.units.values()):
        for k, follower in enumerate(past):
            for name, value in follower.state().items():
                arrays[f"unit.{i}.{k}.{name}"] = value
    return Packed(manifest, arrays)


def _unpack_state(packed: Packed, policy: Streaming) -> None:
    saved = packed.manifest
    core = _known(policy.core)
    for name, array in zip(STATE, core.kept[:5], strict=True):
        array[:] = packed.shaped(name, *array.shape)
    if isinstance(core, StreamingGuard):
        core.counts[:] = packed.shaped("counts", *core.counts.shape)
        core.sums.plain[:] = packed.shaped("sums of the ball", *core.sums.plain.shape)
        core.known = saved.get("known", 0)
        if "stride" in saved:
            _unpack_weights(packed, core)
    policy._issued = saved["issued"]
    for name, decisions in (("open", policy._open), ("learned", policy._learned)):
        about = saved.get(f"{name} decisions")
        if about is None and name == "open":  # as earlier versions had them
            about = [saved["open"], saved["places"], saved.get("chosen")]
        if about is not None:
            decisions |= _unpack_decisions(packed, policy, name, about)
    rows: dict[tuple[int, int], dict[str, Array]] = {}
    for name, value in packed.arrays.items():
        if name.startswith("unit."):
            _, number, place, rest = name.split(".", 3)
            rows.setdefault((int(number), int(place)), {})[rest] = value
    for i, (unit, followers) in enumerate(saved["units"]):
        called = policy._pasts.called(policy.law, unit)
        past = [policy.scorer.follow(called) for _ in range(followers)]
        for k, follower in enumerate(past):
            _restore(follower, Packed({}, rows[i, k]))
        policy._pasts.units[unit] = past
    draws = saved["draws"]
    if not isinstance(draws, list):  # of earlier versions: one, or none
        draws = [] if draws is None else [[draws, saved["affine"]]]
    for inner, (state, affine) in zip(drawing(policy.scorer), draws, strict=True):
        inner.rng.bit_generator.state = state
        inner.affine = affine
    if saved["noise"] is not None:
        core.noise.bit_generator.state = saved["noise"]


def _restore(follower: Follower, packed: Packed) -> None:
    """Let a follower go on from arrays, after a look at their shapes."""
    if isinstance(follower, JointFollower):
        for k, one in enumerate(follower.each):
            _restore(one, _under(packed, f"{k}."))
    elif isinstance(follower, RememberedFollower):
        _restore(follower.inner, packed)
        try:
            follower.memory.restore(_under(packed, "memory.").arrays)
        except SettingError as cause:
            raise BundleError(str(cause)) from cause
    elif isinstance(follower, UnitFollower):
        shapes = {name: value.shape for name, value in follower.state().items()}
        shapes["told"] = (-1, *shapes["told"][1:])  # as many rows as were revealed
        follower.restore({name: packed.shaped(name, *shape) for name, shape in shapes.items()})
    elif isinstance(follower, WindowFollower | KalmanFollower | RawFollower):
        shapes = {name: value.shape for name, value in follower.state().items()}
        follower.restore({name: packed.shaped(name, *shape) for name, shape in shapes.items()})
    else:  # what laws of another make keep is their own affair
        follower.restore(packed.arrays)


def _under(packed: Packed, start: str) -> Packed:
    inner = {n[len(start) :]: v for n, v in packed.arrays.items() if n.startswith(start)}
    return Packed({}, inner)


# The weights of a committee over time; NaN where a member had not joined.


def _pack_weights(core: StreamingGuard) -> dict[str, Array]:
    past = core.history
    weights = np.full((len(past.rounds), len(core.weights)), np.nan)
    for row, own in zip(weights, past.weights, strict=True):
        row[: len(own)] = own
    return {"weights.rounds": np.array(past.rounds, np.int64), "weights.past": weights}


def _unpack_weights(packed: Packed, core: StreamingGuard) -> None:
    members = len(core.weights)
    rounds = packed.shaped("weights.rounds", -1)
    past = packed.shaped("weights.past", len(rounds), members)
    core.restore_weights(packed.shaped("weights", members))
    core.history.stride = packed.manifest["stride"]
    core.history.rounds = [int(each) for each in rounds]
    core.history.weights = [np.array(row[np.isfinite(row)]) for row in past]


# Decisions: what is kept of each, and the steps of units that their rewards will tell of.


def _pack_decisions(
    policy: Streaming, decisions: Mapping[int, PendingDecision]
) -> tuple[list[Any], dict[str, Array]]:
    found = decisions.values()
    arrays: dict[str, Array] = {}
    for name, size in _sizes(policy).items():
        values = [_kept(one, name) for one in found]
        arrays[name] = np.array(values, np.float64).reshape(len(found), *size)
    for j, one in enumerate(memories(policy.scorer)):
        own = [(row, each.carried[j]) for row, each in enumerate(found) if len(each.carried) > j]
        for name, size in _step_sizes(one).items():
            values = [getattr(step, name) for _, step in own]
            arrays[f"step {j}.{name}"] = np.array(values, np.float64).reshape(len(own), *size)
        arrays[f"step {j}.of"] = np.array([row for row, _ in own], np.int64)
    arrays["place"] = np.concatenate([np.empty(0), *(one.place for one in found)])
    arrays["place.size"] = np.array([one.place.size for one in found], np.int64)
    arrays["told"] = np.array([one.told for one in found], np.bool_)
    places = [[one.unit, one.row] for one in found]
    chosen = [[one.decision.by, one.decision.why] for one in found]
    return [list(decisions), places, chosen], arrays


def _unpack_decisions(
    packed: Packed, policy: Streaming, start: str, about: Sequence[Any]
) -> dict[int, PendingDecision]:
    keys, places, chosen = about
    count = len(keys)
    chosen = chosen or [["radius", ""]] * count  # earlier versions had no other
    found = {n: packed.shaped(f"{start}.{n}", count, *size) for n, size in _sizes(policy).items()}
    steps: list[list[Carried]] = [[] for _ in keys]
    for j, one in enumerate(memories(policy.scorer)):
        of = packed.shaped(f"{start}.step {j}.of", -1)
        sizes = _step_sizes(one).items()
        own = {n: packed.shaped(f"{start}.step {j}.{n}", len(of), *size) for n, size in sizes}
        for k, row in enumerate(of):
            slope, left, mean = (np.array(own[name][k]) for name in ("slope", "left", "mean"))
            steps[row].append(Carried(int(own["at"][k]), slope, left, mean))
    whereabouts, known = [NOWHERE] * count, np.zeros(count, np.bool_)
    if f"{start}.place" in packed.arrays:  # earlier versions had none
        ends = np.cumsum(packed.shaped(f"{start}.place.size", count))
        whereabouts = np.split(packed.shaped(f"{start}.place", ends[-1] if count else 0), ends[:-1])
        known = packed.shaped(f"{start}.told", count)
    out = {}
    for row, (key, (unit, place)) in enumerate(zip(keys, places, strict=True)):
        mine = {name: np.array(values[row]) for name, values in found.items()}
        mine["x"].flags.writeable = False
        decision = Decision(
            action=int(mine["action"]),
            x=mine["x"],
            mean=mine["mean"],
            width=mine["width"],
            gamma=float(mine["gamma"]),
            error=float(mine["error"]),
            id=key,
            by=chosen[row][0],
            why=chosen[row][1],
            cost=float(mine["cost"]) if "cost" in mine else np.nan,
        )
        errors = told(float(mine["error"]))
        if "coef" in mine:
            errors = RoundErrors(mine["coef"], errors.psi)
        out[key] = PendingDecision(
            decision,
            mine["s"],
            errors,
            unit,
            place,
            tuple(steps[row]),
            np.array(whereabouts[row]),
            bool(known[row]),
        )
    return out


def _step_sizes(one: Remembered) -> dict[str, tuple[int, ...]]:
    """Shapes of what a decision keeps of its unit's step."""
    w = len(one.w_names)
    return {"at": (), "slope": (w, len(one.names)), "left": (w,), "mean": (w,)}


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
