"""Online contexts that do not follow the archive: what p^ was fitted on is not where it is used.

Only the law of S changes; W given the past of S and the rewards stay as they were, so a law of W
that is right stays right, and one fitted on few rows is asked to extrapolate.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pulse_pyro._core.arrays import positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro.envs.arma import ArmaWorld

OSCILLATING = (-0.8, -0.2)  # the autoregression the published rotation ends at


def variance_shift(world: ArmaWorld, sd: float) -> ArmaWorld:
    """Online innovations of S have standard deviation ``sd``; every lag is stretched alike."""
    return replace(world, online=replace(world.series, sd=positive(sd, "variance_shift: sd")))


def rotation(world: ArmaWorld, share: float) -> ArmaWorld:
    """Move the online autoregression ``share`` of the way to (-.8, -.2).

    The lags' covariance turns: see :func:`series.subspace_similarity` for how far.
    """
    if not 0.0 <= share <= 1.0:
        raise SettingError(f"rotation: share must lie between 0 and 1, but got {share!r}.")
    pairs = zip(world.series.ar, OSCILLATING, strict=True)
    ar = tuple((1.0 - share) * a + share * b for a, b in pairs)
    return replace(world, online=replace(world.series, ar=ar))


def translation(world: ArmaWorld, mean: float) -> ArmaWorld:
    """Add ``mean`` to every online S_t."""
    return replace(world, online=replace(world.series, mean=world.series.mean + mean))


def deformation(world: ArmaWorld, scale: float, *, df: float = 3.0) -> ArmaWorld:
    """Online innovations are ``scale`` times Student-t with ``df`` degrees of freedom.

    Not rescaled: at df = 3 their standard deviation is 1.7 times ``scale`` times the archive's.
    """
    if math.isinf(df):
        raise SettingError("deformation: df must be finite; variance_shift keeps them normal.")
    sd = world.series.sd * positive(scale, "deformation: scale")
    return replace(world, online=replace(world.series, sd=sd, df=df))
