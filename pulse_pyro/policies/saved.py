"""Save and restore a running policy: plain arrays and a manifest, nothing to execute."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro.arrays import Array, Float
from pulse_pyro.errors import BundleError
from pulse_pyro.laws.follow import OnlineLaw
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.laws.law import Law
from pulse_pyro.policies.adaptive import Adapted
from pulse_pyro.policies.asked import Open
from pulse_pyro.policies.imputed import Imputed
from pulse_pyro.policies.linear import Decision
from pulse_pyro.policies.streaming import Streaming
from pulse_pyro.radius import SAMPLED
from pulse_pyro.sealed import read_sealed, write_sealed
from pulse_pyro.seeds import stream

FORMAT = 2
STATE = ("precision", "inverse", "b", "theta", "sums")
OPEN = ("action", "x", "mean", "width", "gamma", "error")


def save_policy(policy: Streaming, path: str | Path) -> Path:
    """Write all that a running policy has learned to the folder ``path`` and return it.

    What was learned, open decisions, the pasts of all units and the state of its random numbers:
    later decisions are the same to the last bit as without the pause. Written aside and renamed
    into place; the law, Phi and the calibration are not stored but recognised by what they answer.
    """
    if not isinstance(policy, Streaming):
        raise BundleError(
            f"save_policy: a policy such as PulseUCB was expected, {type(policy).__name__} came."
        )
    arrays: dict[str, Array] = dict(zip(STATE, policy._state[:5], strict=True))
    opened = policy._open.values()
    for name in OPEN:
        arrays[f"open.{name}"] = np.array([getattr(one.decision, name) for one in opened])
    arrays["open.s"] = np.array([one.s for one in opened])
    learned = int(policy._state.sums[0, 0])
    extra = policy._extra
    arrays["past"], arrays["past_error"] = extra.past[:, :learned], extra.past_error[:, :learned]
    arrays["kappa"], arrays["slopes"] = policy._kappa, policy._slopes
    for i, past in enumerate(policy._pasts.units.values()):
        for k, follower in enumerate(past):
            for name, value in follower.state().items():
                arrays[f"unit.{i}.{k}.{name}"] = value
    events: dict[str, Any] | None = None
    if policy.archive is not None:
        rows, events = policy.archive.state()
        arrays |= {f"archive.{name}": value for name, value in rows.items()}
    manifest = {
        "format": FORMAT,
        **_who(policy),
        "events": events,
        "places": [[one.unit, one.row] for one in opened],
        "issued": policy._issued,
        "open": list(policy._open),
        "units": [[unit, len(past)] for unit, past in policy._pasts.units.items()],
        "random": _random(policy),
        "probe": _probe(policy).ravel().tolist(),
    }
    return write_sealed(path, "policy", manifest, arrays)


def load_policy(path: str | Path, policy: Streaming) -> Streaming:
    """Restore what was saved into a fresh policy, made as the saved one was, and return it.

    policy : PulseUCB(law, features, radius, ...) or AdaptivePulseUCB(...) with the same law,
    features, radius, ridge and errors; any difference that can be told is refused, and nothing is
    changed. Phi is compared at a few contexts. A growing archive must start from the same history,
    and is brought back by fitting again what was fitted.
    """
    if not isinstance(path, str | Path):
        raise BundleError(f"load_policy(path, policy): the path came as {type(path).__name__}.")
    manifest, arrays = read_sealed(path, "policy", FORMAT)
    used = isinstance(policy, Streaming) and (policy._issued or policy._pasts.units)
    grown = isinstance(policy, Streaming) and policy.archive and not policy.archive.fresh
    if not isinstance(policy, Streaming) or used or grown:
        raise BundleError(
            "load_policy: pass a fresh policy, made as the saved one was, that has not acted yet."
        )
    mine = _who(policy)
    for name, value in mine.items():
        if manifest[name] != value:
            saved = manifest[name]
            if isinstance(saved, dict) and isinstance(value, dict):
                odd = [key for key in value if saved.get(key) != value[key]]
                saved, value = ({key: each.get(key) for key in odd} for each in (saved, value))
            raise BundleError(
                f"load_policy: {path} was saved with {name} {saved}, but the policy passed has "
                f"{value}."
            )
    came, kept = _probe(policy).ravel(), np.array(manifest["probe"])
    if not np.allclose(came, kept, rtol=1e-9, atol=0.0, equal_nan=True):
        raise BundleError(
            f"load_policy: Phi of the policy passed gives other values than when {path} was saved."
        )
    if policy.archive is not None:
        rows = {name[8:]: v for name, v in arrays.items() if name.startswith("archive.")}
        policy.archive.restore(rows, manifest["events"])
        if policy.archive.fitted is not policy.archive.first:
            policy.swap_law(policy.archive.fitted)
    for name, array in zip(STATE, policy._state[:5], strict=True):
        array[:] = arrays[name]
    policy._issued = manifest["issued"]
    for row, key in enumerate(manifest["open"]):
        unit, place = manifest["places"][row]
        policy._open[key] = _opened(arrays, row, key)._replace(unit=unit, row=place)
    if policy._extra.past.shape[1]:
        room = max(64, arrays["past"].shape[1])
        past = np.empty((1, room, arrays["past"].shape[2]))
        error = np.empty((1, room))
        past[:, : arrays["past"].shape[1]] = arrays["past"]
        error[:, : arrays["past"].shape[1]] = arrays["past_error"]
        policy._extra = policy._extra._replace(past=past, past_error=error)
    policy._kappa, policy._slopes = arrays["kappa"], arrays["slopes"]
    for i, (unit, count) in enumerate(manifest["units"]):
        followers = [policy.law.follow() for _ in range(count)]
        for k, follower in enumerate(followers):
            start = f"unit.{i}.{k}."
            follower.restore(
                {name[len(start) :]: v for name, v in arrays.items() if name.startswith(start)}
            )
        policy._pasts.units[unit] = followers
    _set_random(policy, manifest["random"])
    return policy


def _opened(arrays: dict[str, Float], row: int, key: int) -> Open:
    action, x, mean, width, gamma, error = (arrays[f"open.{name}"][row] for name in OPEN)
    x = x.copy()
    x.flags.writeable = False
    decision = Decision(int(action), x, mean.copy(), width.copy(), float(gamma), float(error), key)
    return Open(decision, arrays["open.s"][row].copy())


def _who(policy: Streaming) -> dict[str, Any]:
    """What the policy that takes over must share."""
    errors, scorer = policy.errors, policy.scorer
    source = None if errors is None else f"{type(errors).__name__} {_errors_id(errors)}"
    return {
        "policy": type(policy).__name__,
        "law_id": str(getattr(_first_law(policy), "law_id", type(policy.law).__name__)),
        "radius": {**asdict(policy.radius), "params": list(policy.radius.params)},
        "ridge": policy._state.ridge,
        "features": list(scorer.names),
        "actions": scorer.features.actions,
        "scorer": scorer.fingerprint(),
        "errors": source,
        "archive": None if policy.archive is None else _archive(policy.archive),
    }


def _archive(archive: GrowingArchive) -> dict[str, Any]:
    law, how = archive.law, repr(archive.inference)
    about = law.label if isinstance(law, Law) else repr(law)
    if isinstance(law, Law) and law.family is not None:
        about = repr(law.family.spec())
    return {
        "every": archive.every,
        "seed": archive.seed,
        "inference": how,
        "law": about,
        "history": archive.history_id,
    }


def _first_law(policy: Streaming) -> OnlineLaw:
    return policy.law if policy.archive is None else policy.archive.first


def _errors_id(errors: Any) -> str:
    about = errors.calibration
    digest = hashlib.sha256(np.ascontiguousarray(about.error).tobytes())
    own = {k: v for k, v in vars(errors).items() if k != "calibration"}
    digest.update(repr((about.level, about.mode, about.seed, own)).encode())
    return digest.hexdigest()[:16]


def _probe(policy: Streaming) -> Float:
    """Phi at three contexts, for every arm, to recognise it by."""
    features, (mean, sd) = policy.features, _first_law(policy).contexts
    rng = stream(0, "probe")
    s = mean + sd * rng.standard_normal((3, len(mean)))
    w = rng.standard_normal((3, len(policy.scorer.w_names)))
    with np.errstate(all="ignore"):
        return np.stack([features.unchecked(s, w, a) for a in range(features.actions)])


def _random(policy: Streaming) -> dict[str, Any]:
    inner = _inner(policy)
    noise = policy._noise.bit_generator.state if policy.radius.kind == SAMPLED else None
    return {"draws": inner.rng.bit_generator.state, "affine": inner.affine, "noise": noise}


def _set_random(policy: Streaming, saved: dict[str, Any]) -> None:
    inner = _inner(policy)
    inner.rng.bit_generator.state = saved["draws"]
    inner.affine = saved["affine"]
    if saved["noise"] is not None:
        policy._noise.bit_generator.state = saved["noise"]


def _inner(policy: Streaming) -> Imputed:
    scorer = policy.scorer
    inner = scorer.inner if isinstance(scorer, Adapted) else scorer
    if not isinstance(inner, Imputed):
        raise BundleError(f"save_policy: {type(scorer).__name__} cannot be saved.")
    return inner
