"""Distributions written by hand, whose draws, mean and cdf have to tell of one law.

Whoever changes a known distribution by a class of its own inherits what was not changed. A class on
Normal that cuts off sample() alone keeps Normal's rsample(), which is what a site draws by, its
mean and its cdf, and every answer would be off without a word.

Each is compared with DRAWS draws, at a tolerance of ten standard errors: a class that is right is
not refused, and small errors are not seen. NOT seen: a density that is not that of the draws.
"""

from typing import Any

import torch

from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.sites import support_of

DRAWS = 10_000
NUMBERS = 4_000_000  # most draws in all
TAIL = 0.05  # share of one draw in all squared deviations, above which no mean is compared
STOCK = ("torch.", "pyro.")


def check_handmade(label: str, name: str, fn: Any) -> None:
    """Refuse a hand-written distribution of site ``name`` that contradicts its own draws."""
    while type(fn).__module__.startswith(STOCK):
        if not hasattr(fn, "base_dist"):
            return
        fn = fn.base_dist
    count = min(DRAWS, NUMBERS // max(fn.batch_shape.numel() * fn.event_shape.numel(), 1))
    draws = fn.sample((count,)).double()
    near = 10.0 * 0.5 / count**0.5
    wrong = ""
    if fn.has_rsample and _apart(draws, fn.rsample((count,)).double(), near):
        wrong = "sample() and rsample() draw from different laws"
    elif support_of(fn) is None and _mean_is_off(fn, draws):
        wrong = "its mean is not that of its draws"
    elif not fn.event_shape and support_of(fn) is None and _cdf_is_off(fn, draws, near):
        wrong = "its cdf is not that of its draws"
    if wrong:
        raise ModelError(
            f"{label}: site {name!r}, {type(fn).__name__}: {wrong}; a class that changes one of "
            "rsample(), log_prob(), mean and cdf() must change all of them, write "
            "sample(shape) as rsample(shape).detach(), and let mean and cdf raise "
            "NotImplementedError where there is no closed form."
        )


def _apart(one: torch.Tensor, two: torch.Tensor, near: float) -> bool:
    """Tell whether the shares below the median of one differ; values may come again."""
    at = two.median(0).values
    below = (one < at).double().mean(0) - (two < at).double().mean(0)
    upto = (one <= at).double().mean(0) - (two <= at).double().mean(0)
    return bool((torch.maximum(below.abs(), upto.abs()) > 2.0 * near).any())


def _mean_is_off(fn: Any, draws: torch.Tensor) -> bool:
    try:
        mean = torch.as_tensor(fn.mean)
    except NotImplementedError:
        return False
    off = draws - draws.mean(0)
    square = (off**2).sum(0)
    # where a few draws are most of the spread their average says little about the mean
    light = (off**2).amax(0) < TAIL * square
    far = (draws.mean(0) - mean).abs() > 10.0 * square.sqrt() / len(draws)
    return bool((light & far).any())


def _cdf_is_off(fn: Any, draws: torch.Tensor, near: float) -> bool:
    at = draws.median(0).values
    try:
        found = torch.as_tensor(fn.cdf(at))
    except NotImplementedError:
        return False
    low, high = (draws < at).double().mean(0) - near, (draws <= at).double().mean(0) + near
    return bool(((found < low) | (found > high)).any())
