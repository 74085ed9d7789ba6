"""Rung uniform: a band of the law's error over contexts, for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.auto import Choice, make_band
from pulse_pyro.bands.band import Band, BandFit, BandMethod, Sample
from pulse_pyro.bands.support import Support
from pulse_pyro.base import Check, Checks, FittedLaw
from pulse_pyro.calibration.checks import (
    DEPENDENCE,
    FIT_LIMITS,
    HANDED,
    UNTESTED,
    band_checks,
    earlier_forecasts,
)
from pulse_pyro.calibration.forecast import cluster_check
from pulse_pyro.calibration.part import BandInputs, Part, draws_check
from pulse_pyro.calibration.rung import ON_S, ErrorRows, Rung, no_rung, percent, rounded_up
from pulse_pyro.calibration.targets import Targets
from pulse_pyro.data.history import History

if TYPE_CHECKING:
    from pandas import DataFrame

SIZE = 512  # Monte Carlo draws where Phi is not affine or the law's mean not closed form
FEWEST_ROWS = 50  # below which no neighbourhood can be judged
MOST_GIVEN = 3  # numbers that Phi may see for a band given all of them
CURVES = ("local_polynomial", "spline", "lipschitz")
# what a policy's ball needs beside the band, where rows of one unit depend on each other
ONCE = (
    "past rewards of a unit tell nothing of its W (rows of one unit do depend on each other here)"
)

BandChoice = str | BandMethod | Band


def is_auto(band: BandChoice) -> bool:
    """Tell whether the kind of a band is left to the toolkit."""
    return band == "auto" or (isinstance(band, BandMethod) and band.kind == "auto")


class Subject(NamedTuple):
    """Whose error is bounded, and with what.

    law, targets : mu_p^ and what it is a forecast of. rows : held out (or all, see ``held_out``).
    history : the archive they stand in. own_error : whether the law's own error may be smoothed:
    the rows are new to it, and it has no jumps. mcse : (n, q) Monte Carlo standard errors of the
    forecasts; 0 where they are closed form. failures : probability allowed for them.
    """

    law: FittedLaw
    targets: Targets
    rows: ErrorRows
    history: History
    own_error: bool
    failures: float
    mcse: Float2


@dataclass(frozen=True, eq=False)
class UniformBounds:
    """The mean bound of each target, in its own units and in standard deviations.

    half, difference, largest : (q,) means of r and of |m - mu_p^|, and the largest bound, over the
    held-out rows inside the domain.
    """

    names: tuple[str, ...]
    spread: Float1
    half: Float1
    difference: Float1
    largest: Float1

    @property
    def in_sds(self) -> Float1:
        """(q,) the mean bound in standard deviations of each target."""
        out: Float1 = (self.half + self.difference) / self.spread
        return out

    @property
    def told(self) -> str:
        """The bounds in words: on average, and at worst."""
        each = zip(self.names, self.in_sds, self.largest / self.spread, strict=True)
        return "; ".join(
            f"{name} by {rounded_up(mean)} sd on average over contexts, {rounded_up(top)} sd at "
            "worst"
            for name, mean, top in each
        )

    @property
    def table(self) -> DataFrame:
        """One line per target."""
        import pandas as pd

        return pd.DataFrame(
            {
                "target": self.names,
                "bound mean": self.half + self.difference,
                "bound mean, sds": self.in_sds,
                "largest": self.largest,
                "half-width mean": self.half,
                "difference mean": self.difference,
            }
        ).set_index("target")


class UniformResult(NamedTuple):
    """The rung, and the band behind it: none where it is not to be had.

    failed : names of this band's own checks that failed. tested : whether there were any.
    dependent : whether rows of one unit depend on each other in what the band leaves.
    bounds : how large the band's bounds are, whatever becomes of the rung.
    """

    rung: Rung
    part: Part | None
    noise_sd: Float1
    why: str
    failed: tuple[str, ...] = ()
    tested: bool = False
    dependent: bool = False
    bounds: UniformBounds | None = None


def uniform_rung(
    subject: Subject, inputs: BandInputs, band: BandChoice, *, level: float, seed: int
) -> UniformResult:
    """Bound the law's error at every context of the domain at once.

    With probability ``level`` over the held-out clusters, |E[target | S_1:t] - mu_p^(S_1:t)| <=
    r(z) + |m(z) - mu_p^|, m and r the centre and half-width of a uniform band in the inputs z: of
    the law's own error where the rows are new to it, else of the target. Valid if the error (or the
    target's mean) depends on S_1:t through z alone and has the band's form: tested, not proved, so
    the claim is conditional.
    """
    try:
        fit, why, own = _fit(subject, inputs, band, level=level, seed=seed)
    except DataError as refusal:
        if not is_auto(band):  # this very band was asked for
            raise
        why = str(refusal)
        rung = no_rung("uniform", "fails", f"No uniform band is to be had here: {why}", why)
        return UniformResult(rung, None, np.zeros(0), why)
    rows = subject.rows
    part = Part(
        law=subject.law,
        band=fit.band,
        targets=subject.targets,
        inputs=inputs,
        own_error=own,
        failures=subject.failures,
        size=SIZE,
        seed=seed,
        support=_support(fit.band, inputs, rows),
        longest=float(rows.time.max() + 1),
    )
    made_here = fit.residual.size > 0
    sample = _sample(subject, inputs, own)
    tested = made_here and not (isinstance(band, BandMethod) and not band.tested)
    checks = [UNTESTED if made_here else HANDED]
    if tested:
        memory = subject.law.summary.memory
        checks = band_checks(fit, sample, rows, subject.history, memory, seed)
    if tested and inputs.given_z:
        checks.append(earlier_forecasts(fit, sample, rows, seed))
    values = fit.band.at(sample.x)
    residual = sample.y - values.centre
    gap = np.abs(values.centre if own else values.centre - rows.forecast)
    extra = part.monte_carlo(subject.mcse)
    gap = gap + extra
    seen = values.inside if values.inside.any() else np.isfinite(values.half).all(-1)
    drawn = draws_check(extra[seen], (values.half + gap)[seen], rows.names, part.size)
    checks += [] if drawn is None else [drawn]
    bounds = UniformBounds(
        names=rows.names,
        spread=rows.spread,
        half=values.half[seen].mean(0),
        difference=gap[seen].mean(0),
        largest=(values.half + gap)[seen].max(0),
    )
    checks.append(cluster_check(rows.clusters))
    rung = _judge(bounds, fit.band, inputs, rows, Checks(checks), level)
    failed = tuple(check.name for check in checks if check.verdict == "fail")
    dependent = _dependent(checks)
    return UniformResult(rung, part, residual.std(0), why, failed, tested, dependent, bounds)


def _fit(
    subject: Subject, inputs: BandInputs, band: BandChoice, *, level: float, seed: int
) -> tuple[BandFit, str, bool]:
    """Return a band, the reason for its kind, and whether it is of the law's own error."""
    rows, level = subject.rows, level + subject.failures
    if isinstance(band, Band):
        own = band.y_names == _targets(subject, own=True) and subject.own_error
        if band.x_names != inputs.names or (band.y_names != rows.names and not own):
            raise DataError(
                f"calibrate: the band is for {band.y_names} given {band.x_names}, but the law and "
                f"features need {rows.names} given {inputs.names}."
            )
        if band.level < level:
            raise SettingError(
                f"calibrate: the band was made at level {band.level}, {level:g} is needed here "
                "(what is asked for, and a share for Monte Carlo error where there is any)."
            )
        nothing = np.empty((0, len(band.y_names)))
        fit = BandFit(band, np.zeros(0, np.bool_), nothing, lambda columns, _: columns)
        return fit, "handed over", own
    method = BandMethod(band) if isinstance(band, str) else band
    if not isinstance(method, BandMethod):
        raise SettingError(f"calibrate: band must be a name or a BandMethod, but got {band!r}.")
    if method.of == "error" and not subject.own_error:
        raise SettingError(
            "calibrate: the law's own error can be smoothed only on rows it was not fitted on, and "
            "for a law without jumps (not one of scikit-learn); use of='target'."
        )
    own = subject.own_error if method.of == "auto" else method.of == "error"
    choice: Choice = make_band(_sample(subject, inputs, own), method, level, stream(seed, "band"))
    return choice.fit, choice.why, own


def _support(band: Band, inputs: BandInputs, rows: ErrorRows) -> Support | None:
    """Return where the archive has contexts: for bands whose own domain is a box or an ellipse."""
    if len(inputs.names) == 1 or band.kind == "tensor" or len(rows.cluster) < FEWEST_ROWS:
        return None
    return Support.of(inputs(rows.x, rows.s, rows.forecast), rows.cluster)


def _sample(subject: Subject, inputs: BandInputs, own: bool) -> Sample:
    rows = subject.rows
    x = inputs(rows.x, rows.s, rows.forecast)
    y = rows.error if own else rows.target
    return Sample(x, y, rows.cluster, inputs.names, _targets(subject, own))


def _targets(subject: Subject, own: bool) -> tuple[str, ...]:
    """Name what a band is of: one of W is not one of a law's error, nor of another law's."""
    names = subject.rows.names
    return tuple(f"error of {name} (law {subject.law.id})" for name in names) if own else names


def _judge(
    bounds: UniformBounds,
    band: Band,
    inputs: BandInputs,
    rows: ErrorRows,
    checks: Checks,
    level: float,
) -> Rung:
    """Say what the band claims, and on what that rests."""
    failed = [check for check in checks if check.verdict == "fail"]
    if failed:
        # of a check's text, what follows the question it asks
        text = " ".join(check.text.split(". ", 1)[-1] for check in failed[:2])
        named = ", ".join(check.name for check in failed)
        claim = f"No uniform bound holds: {named} failed."
        return replace(no_rung("uniform", "fails", claim, text), checks=checks)
    claim = (
        f"{percent(level)}, over {band.shape.domain}, all at once, the law's "
        f"expectation is off by at most this much: {bounds.told}."
    )
    rests = _rests_on(band, inputs, rows, checks)
    if HANDED in checks:
        rests = "the band that was handed over holds"
    elif UNTESTED in checks:
        rests += " (nothing of this was tested)"
    if rests:
        claim = f"If {rests}: {claim[0].lower()}{claim[1:]}"
    return Rung(
        "uniform",
        "conditional" if rests else "stands",
        claim,
        bounds.in_sds,
        rests_on=rests,
        benchmark=ON_S,
        checks=checks,
        details=bounds,
    )


FORMS = {
    "linear": "linear in",
    "additive": "a sum of curves, one for each of",
    "single_index": "a curve of one mixture of",
    "ridge": "linear in",
}


def _rests_on(band: Band, inputs: BandInputs, rows: ErrorRows, checks: Iterable[Check]) -> str:
    """Say what nobody proved: tests look a few lags back, not at all of S_1:t."""
    names = _listed(inputs.names)
    form = "a function of"  # of one input: any
    if len(inputs.names) > 1:
        form = FORMS.get(band.kind, "a smooth function of")
    parts = [f"the law's error is {form} {names} and depends on nothing else of S_1:t"]
    if band.noise == "rows" and rows.clusters < len(rows.error):
        parts.append("rows of one cluster are independent given these (not rejected)")
    if _dependent(checks):
        parts.append(ONCE)
    return ", and ".join(parts)


def _dependent(checks: Iterable[Check]) -> bool:
    """Tell whether rows of one unit depend on each other, whatever the variances allow for."""
    return any(check.name == DEPENDENCE and check.value < FIT_LIMITS[1] for check in checks)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"its {len(names)} inputs"
