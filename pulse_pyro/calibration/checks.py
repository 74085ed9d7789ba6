"""Checks made while calibrating: is the summary enough, the noise as assumed, the domain wide."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Bool, Float2
from pulse_pyro.bands.band import BandFit
from pulse_pyro.bands.bootstrap_t import SKEWED
from pulse_pyro.bands.dependence import LEVEL, dependence_p
from pulse_pyro.bands.lack_of_fit import lack_of_fit
from pulse_pyro.bands.roughness import GATE
from pulse_pyro.bands.sample import Sample
from pulse_pyro.diagnostics import Check, Verdict
from pulse_pyro.history import History, Rows
from pulse_pyro.seeds import stream

WARN, FAIL = 0.05, 0.001
COLUMNS = 60  # lagged columns the lack-of-fit test looks at, at most
BEYOND = 3  # lags it looks back beyond the summary's memory
HANDED = Check(
    "band", "info", float("nan"), float("nan"), "Handed over ready made: nothing was checked here."
)


def band_checks(
    fit: BandFit, sample: Sample, held_out: History, rows: Rows, keep: Bool, seed: int
) -> list[Check]:
    """Return the checks of a band on the rows it was made from."""
    out = [_lack_of_fit(fit, sample, held_out, rows, keep, seed), _dependence(fit, sample)]
    if np.isfinite(fit.skewness):
        out.append(_skewness(fit))
    if np.isfinite(fit.roughness):
        rough = fit.roughness < GATE
        text = "A kink shows: the wider Lipschitz band is used." if rough else "No kink shows."
        out.append(Check("smoothness", "info", fit.roughness, GATE, text))
    return out


def _lack_of_fit(
    fit: BandFit, sample: Sample, held_out: History, rows: Rows, keep: Bool, seed: int
) -> Check:
    lagged, names = _lagged(held_out, rows, keep)
    omitted = np.concatenate([sample.x[fit.kept], lagged[fit.kept]], axis=1)
    test = lack_of_fit(
        fit, omitted, (*sample.x_names, *names), sample.unit[fit.kept], stream(seed, "lack of fit")
    )
    verdict: Verdict = "fail" if test.p <= FAIL else "warn" if test.p < WARN else "pass"
    text = "p-value of: the target depends on the past of S through the summary alone."
    if verdict != "pass":
        text += (
            f" What is left depends on {test.worst}: add it to the summary, or the bound does not "
            "hold."
        )
    return Check("lack of fit", verdict, test.p, WARN, text)


def _lagged(held_out: History, rows: Rows, keep: Bool) -> tuple[Float2, tuple[str, ...]]:
    """Return S_t, S_{t-1}, ... of the kept rows, NaN before a unit's start, with names."""
    dim = len(held_out.s_names)
    memory = int(rows.time.min()) + 1
    count = max(min(memory + BEYOND, COLUMNS // dim), 1)
    unit, time = rows.unit[keep], rows.time[keep]
    columns = []
    for lag in range(count):
        values = held_out.s[unit, np.maximum(time - lag, 0)]
        columns.append(np.where((time >= lag)[:, None], values, np.nan))
    names = tuple(f"{name}.lag{lag}" for lag in range(count) for name in held_out.s_names)
    return np.concatenate(columns, axis=1), names


def _dependence(fit: BandFit, sample: Sample) -> Check:
    unit = sample.unit[fit.kept]
    p = min(1.0, min(dependence_p(e, unit) for e in fit.residual.T) * fit.residual.shape[1])
    clustered = fit.band.noise == "units"
    if clustered:
        text = f"Variances allow for dependence within each of {fit.band.units} units."
        return Check("dependence within units", "pass", p, LEVEL, text)
    bad = p < LEVEL
    text = "p-value of: residuals of one unit do not depend on each other."
    if bad:
        text += (
            f" They do, but {fit.band.units} units are too few for variances by unit: the band is "
            'too narrow. Hold out more units, or use BandMethod("linear", critical="scheffe").'
        )
    return Check("dependence within units", "warn" if bad else "pass", p, LEVEL, text)


def _skewness(fit: BandFit) -> Check:
    handled = all("bootstrap t" in made for made in fit.band.made)
    skewed = fit.skewness > SKEWED
    text = "Skewness of the noise over the root of the local sample size."
    if skewed and handled:
        text += " It matters here; the studentised bootstrap allows for it."
    elif skewed:
        text += " It matters here and is not allowed for: the band may cover less than it says."
    return Check("skewness", "warn" if skewed and not handled else "pass", fit.skewness, SKEWED,
                 text)  # fmt: skip
