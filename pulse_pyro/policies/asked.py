"""What callers hand to a streaming policy, checked, each refusal in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro.arrays import Bool, Float, Float1, Float2
from pulse_pyro.errors import DataError, FeatureError, RewardError, SettingError
from pulse_pyro.policies.linear import Decision


class Open(NamedTuple):
    """A decision that waits for its reward, and the S_t it was made at, (s_dim,).

    unit, row : where a growing archive keeps that S_t; row -1 without one.
    """

    decision: Decision
    s: Float1
    unit: str = ""
    row: int = -1


def allowed_mask(allowed: ArrayLike, arms: int) -> Bool:
    """Return (1, 1, K) from the arms that may be played."""
    mask = np.asarray(allowed)
    if mask.shape != (arms,) or mask.dtype != np.bool_:
        raise SettingError(
            f"act: allowed must have {arms} entries True or False, one per arm, but {allowed!r} "
            "came."
        )
    if not mask.any():
        raise FeatureError("act: no arm is allowed this round; allow at least one.")
    return np.array(mask[None, None])


def error_bound(error: ArrayLike, arms: int) -> Float1:
    """Return e_{t,a}, (K,), from a number or one per arm."""
    values = np.asarray(error, dtype=np.float64)
    if values.shape not in ((), (arms,)):
        raise SettingError(f"act: error must be a number or one per arm, it is {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise SettingError(f"act: error must be finite and >= 0, but {error!r} came.")
    return np.array(np.broadcast_to(values, (arms,)))


def finite_reward(reward: float, key: int) -> float:
    """Return the reward as a number."""
    try:
        value = np.nan if isinstance(reward, str) else float(reward)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise RewardError(
            f"learn: the reward of decision {key} must be finite, but {reward!r} came; nothing "
            "was changed, and the decision stays open."
        )
    return value


def find_open(
    opened: Mapping[int, Open], issued: int, decision: Decision | int
) -> tuple[int, Open]:
    """Return the open decision meant by a Decision or its id."""
    if not isinstance(decision, Decision | int | np.integer):
        raise RewardError(
            f"learn: the first argument must be a Decision or its id, but {decision!r} came; "
            "learn(decision, reward)."
        )
    key = decision.id if isinstance(decision, Decision) else int(decision)
    found = opened.get(key)
    if found is None:
        known = 0 <= key < issued
        why = "its reward was learned or forgotten before" if known else "it was never issued"
        raise RewardError(
            f"learn: decision {key} is not open: {why}; nothing was changed. Pass the Decision "
            "itself or its id, not its action."
        )
    kept = found.decision.x
    mine = decision.x if isinstance(decision, Decision) else kept
    if mine is not kept and not np.array_equal(mine, kept):
        raise RewardError(
            f"learn: decision {key} holds other features than the one issued here; does it "
            "belong to another policy? Nothing was changed."
        )
    return key, found


def labelled(values: Any, names: tuple[str, ...], what: str) -> Float:
    """Return numbers in the order of ``names``; a Series or a dict is read by its labels."""
    if hasattr(values, "columns"):
        raise DataError(f"{what} must be one row of {names}; of a frame pass frame.iloc[i].")
    labels = list(values) if isinstance(values, Mapping) else None
    if labels is None and hasattr(values, "iloc"):
        labels = list(values.index)
    if labels is not None and set(labels) != set(names):
        raise DataError(f"{what} is labelled {labels}, but {names} are needed.")
    try:
        row = values if labels is None else [values[name] for name in names]
        return np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{what} must hold numbers for {names}: {cause}.") from cause


def full_row(w: ArrayLike, names: tuple[str, ...], key: int) -> Float2:
    """Return the revealed W, (1, w_dim)."""
    try:
        row = labelled(w, names, f"learn: the W revealed for decision {key}")
    except DataError as cause:
        raise DataError(f"{cause} Nothing was changed, and the decision stays open.") from cause
    row = row.reshape(-1) if row.ndim < 2 else row
    if row.shape != (len(names),) or not np.isfinite(row).all():
        raise DataError(
            f"learn: the W revealed for decision {key} must be {len(names)} finite numbers for "
            f"{names}, but {w!r} came; nothing was changed, and the decision stays open."
        )
    return row[None]


def unknown_error(unit: str) -> FeatureError:
    """Say that no calibration can speak of a round."""
    return FeatureError(
        f"act: this round{f' of unit {unit!r}' if unit else ''} is refused: an input of the law is "
        "not seen, so its calibrated error is not known. Nothing was learned; S_t was taken in, do "
        "not pass it again. To play such rounds, give the errors a value for them, "
        "CalibratedErrors(..., unseen=...), or pass error= in the first call."
    )


def refusal(names: tuple[str, ...], x: Float, arms: list[int], unit: str) -> FeatureError:
    """Say why a round could not be scored."""
    bad = [(a, j) for a in arms for j in np.flatnonzero(~np.isfinite(x[0, 0, a]))]
    where = "the scores overflow"
    if bad:
        arm, j = bad[0]
        where = f"feature {names[j]!r} of arm {arm} is {x[0, 0, arm, j]}"
    return FeatureError(
        f"act: this round{f' of unit {unit!r}' if unit else ''} is refused: {where}; was all "
        "of S that the law needs seen, and is fn finite there? Nothing was learned; S_t was "
        "taken in, do not pass it again. Rounds can be played again once all that the law "
        "looks back on is seen; observe() takes in S without deciding."
    )
