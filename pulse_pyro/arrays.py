"""Array type names used in signatures, and the two checks every boundary needs."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pulse_pyro.errors import PulseError, SettingError

Float: TypeAlias = NDArray[np.float64]
Float1: TypeAlias = NDArray[np.float64]  # the digit is the number of axes
Float2: TypeAlias = NDArray[np.float64]
Float3: TypeAlias = NDArray[np.float64]
Float4: TypeAlias = NDArray[np.float64]
Bool: TypeAlias = NDArray[np.bool_]
Int: TypeAlias = NDArray[np.int64]
Array: TypeAlias = NDArray[Any]


def as_float(
    value: ArrayLike, what: str, ndim: tuple[int, ...], error: type[PulseError] = SettingError
) -> Float:
    """Return ``value`` as float64 with one of the allowed numbers of axes; infinities refused.

    NaN passes: it means "not seen" in S. Callers that cannot use NaN check for it themselves.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise error(f"{what} must be numeric, but {type(value).__name__} came: {cause}.") from cause
    if array.ndim not in ndim:
        wanted = " or ".join(str(n) for n in ndim)
        raise error(f"{what} must have {wanted} axes, but its shape is {array.shape}.")
    if np.isinf(array).any():
        raise error(f"{what} holds an infinite value; drop the row or mark it NaN (not seen).")
    return array


def positive(value: float, what: str, *, zero: bool = False) -> float:
    """Return a finite float > 0 (or >= 0), or say which argument is off."""
    number = float(value)
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        bound = ">= 0" if zero else "> 0"
        raise SettingError(f"{what} must be a finite number {bound}, but {value!r} came.")
    return number


def whole(value: int, what: str, least: int) -> int:
    """Return an int >= ``least``, or say which argument is off."""
    integral = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not integral or value < least:
        raise SettingError(f"{what} must be a whole number >= {least}, but {value!r} came.")
    return int(value)
