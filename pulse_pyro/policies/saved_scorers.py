"""What scores a policy's features as plain values and arrays, and back.

Functions are not stored: Phi, custom models and summaries are handed back in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulse_pyro._core.errors import BundleError, nearest
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro.base import FittedLaw, Summary
from pulse_pyro.calibration.saved import pack_any_law, unpack_any_law
from pulse_pyro.features import Features, pack_features, unpack_features
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.laws.memory import Memory
from pulse_pyro.laws.saved import same_memory, summary_from, summary_spec
from pulse_pyro.policies.adaptive import Adapted
from pulse_pyro.policies.augmented import Augmented
from pulse_pyro.policies.carried import past_rewards
from pulse_pyro.policies.committee import Joint
from pulse_pyro.policies.guard import BiasMap
from pulse_pyro.policies.imputed import Imputed, Scorer
from pulse_pyro.policies.raw_lags import RawLags
from pulse_pyro.policies.remembered import Remembered
from pulse_pyro.policies.unsure_directions import DrawDirections, LinearDirections

DIRECTIONS = (LinearDirections, DrawDirections)
AUGMENTED = (Augmented, BiasMap, Ellipsoid)


def pack_scorer(scorer: Scorer) -> Packed:
    """Write a scorer; its law, of a committee the first one's, is stored elsewhere."""
    if isinstance(scorer, Imputed):
        return Packed({"is": "imputed", "size": scorer.size}, {})
    if isinstance(scorer, Remembered):
        about = {"is": "remembered", "size": scorer.inner.size, "reward_sd": scorer.reward_sd}
        return Packed(about, {}).holding("memory", pack_value(scorer.memory, (Memory,)))
    if isinstance(scorer, RawLags):
        spec = _stored(scorer.summary, "the raw lags of a member are")
        count = None if scorer.past is None else scorer.past.count
        return Packed({"is": "raw lags", "summary": spec, "past": count}, {})
    if isinstance(scorer, Adapted):
        found = pack_value(scorer.found, DIRECTIONS, {"law": scorer.law})
        bound = {"is": "adapted", "theta_bound": float(scorer.theta_bound)}
        return Packed(bound, {}).holding("directions", found)
    if isinstance(scorer, Augmented):
        sieve = scorer.ellipsoid.sieve
        kept = None if sieve is None else _stored(sieve, "its sieve is")
        handed = {"law": scorer.law, "features": scorer.features}
        handed |= {} if sieve is None else {"sieve": sieve}
        packed = Packed({"is": "augmented", "sieve": kept}, {})
        return packed.holding("scores", pack_value(scorer, AUGMENTED, handed))
    if isinstance(scorer, Joint):
        return _pack_joint(scorer)
    raise BundleError(f"its features are scored by {type(scorer).__name__}, which is your own.")


def unpack_scorer(
    packed: Packed, law: FittedLaw, features: Features, others: Mapping[str, object]
) -> Scorer:
    """Make a scorer anew; others : laws of custom models, by the member that plays with them."""
    saved = packed.manifest
    if saved["is"] == "joint":
        return _unpack_joint(packed, law, features, others)
    if others:
        raise BundleError("it has one law; pass that itself, load(path, law=law).")
    if saved["is"] == "imputed":
        return Imputed(law, features, saved["size"], seed=0)
    if saved["is"] == "remembered":
        known = unpack_value(packed.part("memory"), Memory, (Memory,))
        same_memory(getattr(law, "memory", None), known)
        return Remembered(Imputed(law, features, saved["size"], seed=0), saved["reward_sd"])
    if saved["is"] == "raw lags":
        past = None if saved["past"] is None else past_rewards(saved["past"])
        return RawLags(law, features, _rebuilt(saved["summary"]), past)
    if saved["is"] == "augmented":
        spec = saved["sieve"]
        handed = {"law": law, "features": features, "sieve": spec and _rebuilt(spec)}
        return unpack_value(packed.part("scores"), Augmented, AUGMENTED, handed)
    found: Any = unpack_value(packed.part("directions"), object, DIRECTIONS, {"law": law})
    return Adapted(found, features, saved["theta_bound"], seed=0)


def members_of(scorer: Scorer) -> Sequence[Scorer]:
    """Return the members of a committee, else the scorer itself."""
    return list(scorer.members.values()) if isinstance(scorer, Joint) else [scorer]


def memories(scorer: Scorer) -> list[Remembered]:
    """Return the members that keep a step of each decision, in the order they keep it."""
    return [one for one in members_of(scorer) if isinstance(one, Remembered)]


def drawing(scorer: Scorer) -> list[Imputed]:
    """Return what draws, where features are an expectation."""
    inner = [
        one.inner if isinstance(one, Adapted | Remembered) else one for one in members_of(scorer)
    ]
    return [one for one in inner if isinstance(one, Imputed)]


def dealt_laws(law: object, names: Sequence[str]) -> tuple[object, dict[str, object]]:
    """Return what is handed in for the first law, and for others by the name of their member.

    names : of a committee's members, none elsewhere.
    """
    if not isinstance(law, Mapping):
        return law, {}
    strange = [name for name in law if name not in names]
    if strange:
        members = f"its members are {list(names)}" if names else "it is no committee"
        raise BundleError(
            f"law={{{strange[0]!r}: ...}} is the law of no member, {members}"
            f"{nearest(str(strange[0]), names)}"
        )
    return law.get(names[0]), {name: each for name, each in law.items() if name != names[0]}


# Members side by side; a law that several of them share is stored once.


def _pack_joint(joint: Joint) -> Packed:
    laws: list[FittedLaw] = [joint.law]
    phi = pack_features(joint.features, joint.law.schema.contexts, len(joint.w_names))
    packed = Packed({"is": "joint", "names": list(joint.members)}, {})
    for k, (name, each) in enumerate(joint.members.items()):
        try:
            unpack_features(phi, each.features)
        except BundleError as cause:
            raise BundleError(
                f"its member {name!r} has a Phi of its own, and only one is handed back in by "
                f"load: {cause}"
            ) from cause
        if not any(each.law is law for law in laws):
            laws.append(each.law)
        at = next(n for n, law in enumerate(laws) if law is each.law)
        part = pack_scorer(each)
        packed = packed.holding(f"member {k}", Packed({**part.manifest, "law": at}, part.arrays))
    for n, law in enumerate(laws[1:], 1):
        packed = packed.holding(f"law {n}", pack_any_law(law, law.schema.contexts))
    return packed


def _unpack_joint(
    packed: Packed, first: FittedLaw, features: Features, others: Mapping[str, object]
) -> Joint:
    names, laws = packed.manifest["names"], [first]
    members: dict[str, Scorer] = {}
    used = set()
    for k, name in enumerate(names):
        part = packed.part(f"member {k}")
        at = part.manifest["law"]
        if at == len(laws):
            try:
                laws.append(unpack_any_law(packed.part(f"law {at}"), others.get(name)))
            except BundleError as cause:
                raise BundleError(
                    f"the law of member {name!r}: {cause} Of a committee: law={{{name!r}: law}}."
                ) from cause
            used.add(name)
        members[name] = unpack_scorer(part, laws[at], features, {})
    if not used.issuperset(others):
        (name, *_) = set(others) - used
        raise BundleError(f"law={{{name!r}: ...}} is not needed: that member has no law of its own")
    return Joint(members)


def _stored(summary: object, what: str) -> dict[str, Any]:
    spec = summary_spec(summary) if isinstance(summary, Summary) else None
    if spec is None or summary_from(spec) is None:
        raise BundleError(f"{what} a function or summary of your own, which is not stored.")
    return spec


def _rebuilt(spec: dict[str, Any]) -> Summary:
    summary = summary_from(spec)
    if summary is None:
        raise BundleError(f"it holds a summary {spec['kind']!r}, which this version does not know.")
    return summary
