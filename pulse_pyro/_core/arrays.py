"""Array type names used in signatures, and the checks of plain numbers."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pulse_pyro._core.errors import SettingError

Float: TypeAlias = NDArray[np.float64]
Float1: TypeAlias = NDArray[np.float64]  # the digit is the number of axes
Float2: TypeAlias = NDArray[np.float64]
Float3: TypeAlias = NDArray[np.float64]
Float4: TypeAlias = NDArray[np.float64]
Bool: TypeAlias = NDArray[np.bool_]
Int: TypeAlias = NDArray[np.int64]
Array: TypeAlias = NDArray[Any]


def positive(value: float, what: str, *, zero: bool = False) -> float:
    """Return a finite float > 0 (or >= 0), or say which argument is off."""
    try:
        number = float(value)
    except (TypeError, ValueError) as cause:
        raise SettingError(f"{what} must be a number, but got {value!r}.") from cause
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        bound = ">= 0" if zero else "> 0"
        raise SettingError(f"{what} must be a finite number {bound}, but got {value!r}.")
    return number


def share(value: float, what: str, *, zero: bool = False) -> float:
    """Return a float strictly between 0 and 1 (0 itself where allowed), or say what is off."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not 0 <= number < 1 or (number == 0 and not zero):
        bound = "0 <= share < 1" if zero else "between 0 and 1"
        raise SettingError(f"{what} must be a share, {bound}, but got {value!r}.")
    return number


def whole(value: int, what: str, least: int) -> int:
    """Return an int >= ``least``, or say which argument is off."""
    integral = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not integral or value < least:
        raise SettingError(f"{what} must be a whole number >= {least}, but got {value!r}.")
    return int(value)
