"""Checks made while calibrating: is the summary enough, the noise as assumed, the domain wide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pulse_pyro._core.arrays import Float2, Int
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import BandFit, Sample
from pulse_pyro.bands.bins import SKEWED
from pulse_pyro.bands.dependence import EACH, FEWEST_CLUSTERS, LEVEL, dependence_p, shared_dates_p
from pulse_pyro.bands.kinks import GATE
from pulse_pyro.bands.lack_of_fit import MIX, lack_of_fit
from pulse_pyro.bands.misfits import MOST_ROWS, Misfit, RowTimes, misfit_tests
from pulse_pyro.base import FAIL, Check, verdict
from pulse_pyro.calibration.rung import ErrorRows
from pulse_pyro.data.history import History

DEPENDENCE = "dependence within units"
FIT_LIMITS = (0.05, 0.01)  # p-values of lack of fit that warn, that fail
SHARED_LIMITS = (0.05, 0.001)
# test -> the name of its check, and what it asks
ASKS = {
    "score": (
        "lack of fit",
        "given the summary, in the band's form, the past of S tells no more.",
    ),
    "products": ("products of inputs", "no product of two or three inputs tells more."),
    "waves": ("waves of inputs", "no wave in one or two inputs tells more."),
    "jump": ("jumps", "what is left does not jump along an input, or in a corner of two."),
    "time": ("time", "what is left has no trend and no weekday."),
    "unit length": ("unit length", "units that stay long are like those that leave."),
    "hunting": ("hunting", "boosted trees find nothing in all that is known at a row."),
}
GATES = tuple(name for name, _ in ASKS.values())
COLUMNS = 60  # lagged columns the lack-of-fit test looks at, at most
BEYOND = 3  # lags it looks back beyond the summary's memory
MANY_EACH = 5  # units per coefficient from which cluster variances of a linear band are steady
FEW_VALUES, PROBE = 10, 5000
GROUPS, RARE = 20, 20  # groups of rows by fitted value; rows of a rarer value each must hold
HANDED = Check(
    "band", "info", float("nan"), float("nan"), "Handed over ready made: nothing was checked here."
)
UNTESTED = Check("band", "info", float("nan"), float("nan"), "Nothing was tested, as asked for.")


def band_checks(
    fit: BandFit, sample: Sample, rows: ErrorRows, history: History, memory: int, seed: int
) -> list[Check]:
    """Return the checks of a band on the rows it was made from.

    history : the archive they stand in. memory : how many rows the law looks at.
    """
    out = _misfits(fit, sample, rows, history, memory, seed)
    out.append(_dependence(fit, sample))
    shared = shared_dates(rows.take(fit.kept), fit.residual, seed)
    if shared is not None:
        out.append(shared)
    rare = _rare(fit, sample, rows)
    if rare is not None:
        out.append(rare)
    if np.isfinite(fit.skewness):
        out.append(_skewness(fit))
    if np.isfinite(fit.roughness):
        rough = fit.roughness < GATE
        text = "A kink shows: the band allows for one." if rough else "No kink shows."
        out.append(Check("smoothness", "info", fit.roughness, GATE, text))
    return out


def _misfits(
    fit: BandFit, sample: Sample, rows: ErrorRows, history: History, memory: int, seed: int
) -> list[Check]:
    """Ask in seven ways whether the band leaves anything; each by its own p-value."""
    lags, names = _lagged(history, rows, memory)
    # where the band looks at less than the law, the rest of the law's inputs is left out too
    own = rows.x[:, : 0 if sample.x_names == rows.x_names else None]
    names = (*rows.x_names[: own.shape[1]], *names)
    found = misfit_tests(
        fit,
        sample,
        lambda at: np.concatenate([own[at], lags(at)], axis=1),
        names,
        stream(seed, "lack of fit"),
        times=RowTimes(rows.unit, rows.time, rows.date, rows.per_day),
    )
    ran = [test for test in found if np.isfinite(test.p)]  # those that could be run
    return [_misfit(test, int(fit.kept.sum())) for test in ran]


def _misfit(test: Misfit, rows: int) -> Check:
    name, asks = ASKS[test.name]
    word = verdict(test.p, limits=FIT_LIMITS)
    some = f" (asked of {MOST_ROWS:,} of {rows:,} rows)" if rows > MOST_ROWS else ""
    text = f"p-value of{some}: {asks}"
    if word != "pass":
        text += f" What is left depends on {test.worst}: {_remedy(test)} Until then the bound "
        text += "does not hold." if word == "fail" else "is in doubt."
    return Check(name, word, test.p, FIT_LIMITS[0], text)


def _remedy(test: Misfit) -> str:
    worst = test.worst
    if test.name == "unit length":
        return "units that leave differ from those that stay; give the law what tells them apart."
    if test.name == "time":
        return "give the law the time, or the weekday, as a column."
    if test.name in ("products", "hunting", "waves") or worst == MIX:
        return (
            "squares or products of columns as columns of their own, a law that bends, or more "
            "lags, may help."
        )
    if test.name == "jump" or worst.endswith(("squared", "curved")):
        return (
            "give the frame a column with its square, a step, or another bend, and list it in "
            "observed."
        )
    return "add it to the summary."


def _lagged(
    history: History, rows: ErrorRows, memory: int
) -> tuple[Callable[[Int], Float2], tuple[str, ...]]:
    """Return S_t, S_{t-1}, ... of some rows, NaN before a unit's start, as a function; names."""
    dim = len(history.s_names)
    memory = min(memory, int(rows.time.min()) + 1)
    count = max(min(memory + BEYOND, COLUMNS // dim), 1)
    names = tuple(f"{name}.lag{lag}" for lag in range(count) for name in history.s_names)

    def lags(at: Int) -> Float2:
        row = rows.history_row[at]
        first = history.offsets[:-1][history.unit_of[row]]
        parts = [
            np.where((row - lag >= first)[:, None], history.s[np.maximum(row - lag, 0)], np.nan)
            for lag in range(count)
        ]
        return np.concatenate(parts, axis=1)

    return lags, names


def _dependence(fit: BandFit, sample: Sample) -> Check:
    unit = sample.unit[fit.kept]
    p = min(1.0, min(dependence_p(e, unit) for e in fit.residual.T) * fit.residual.shape[1])
    units, bad = fit.band.units, p < LEVEL
    if fit.band.noise == "units":
        wanted = MANY_EACH * (len(fit.band.x_names) + 1) if fit.band.kind == "linear" else 0
        text = f"p-value of: rows of one unit (of {units}) do not depend on each other. The band's "
        text += "variances allow for it" + (", and some shows." if bad else "; none shows.")
        if bad:
            text += " The radius does not: see the check serial of diagnose."
        if bad and units < wanted:
            text += (
                f" For {len(fit.band.x_names)} inputs they need about {wanted} units to be steady: "
                "the band may cover less than it says."
            )
        short = bad and units < wanted
        return Check(DEPENDENCE, "warn" if short else "pass", p, LEVEL, text)
    text = "p-value of: residuals of one unit do not depend on each other."
    if bad:
        text += f" They do, and rows were taken as independent ({units} units): the band is too "
        needed = max(FEWEST_CLUSTERS, EACH * (len(fit.band.x_names) + 1))
        text += (
            f"narrow. Variances by unit for {len(fit.band.x_names)} inputs need about {needed} "
            "held-out units: hold out more, or use fewer inputs."
        )
        if units < needed:  # rows were not chosen, they are what is left: nothing allows for it
            return Check(DEPENDENCE, "fail", p, LEVEL, text)
    return Check(DEPENDENCE, verdict(p, limits=(LEVEL, FAIL)), p, LEVEL, text)


def shared_dates(rows: ErrorRows, residual: Float2, seed: int) -> Check | None:
    """Ask whether clusters that share dates move together; nothing where dates are not known.

    residual : (n, q) of the rows, what is left of the law's error.
    """
    if rows.date is None:
        return None
    rng = stream(seed, "shared dates")
    each = [shared_dates_p(e, rows.cluster, rows.date, rng) for e in residual.T]
    p = min(1.0, min(each) * len(each))
    text = "p-value of: clusters that share dates do not move together."
    word = verdict(p, limits=SHARED_LIMITS)
    if word != "pass":
        seen = "They do, so" if word == "fail" else "They may: if they do,"
        text += f" {seen} they are not independent, and no variance by cluster holds: declare "
        text += 'larger clusters, a place or a period of time: cluster="city", cluster=("week",).'
    return Check("shared dates", word, p, SHARED_LIMITS[0], text)


def earlier_forecasts(fit: BandFit, sample: Sample, rows: ErrorRows, seed: int) -> Check:
    """Ask of a band given z whether what it leaves depends on z of up to three steps before."""
    kept, parts, names = np.flatnonzero(fit.kept), [], []
    for lag in range(1, BEYOND + 1):
        before = np.maximum(np.arange(len(rows.unit)) - lag, 0)
        follows = (rows.unit[before] == rows.unit) & (rows.time[before] == rows.time - lag)
        parts.append(np.where(follows[:, None], sample.x[before], np.nan)[kept])
        names += [f"{name}, {lag} before" for name in sample.x_names]
    columns = np.concatenate(parts, axis=1)
    seen = np.isfinite(columns).any(0)
    rng = stream(seed, "earlier forecasts")
    labels = tuple(name for name, there in zip(names, seen, strict=True) if there)
    found = lack_of_fit(fit, columns[:, seen], labels, sample.unit[kept], rng)
    word = verdict(found.p, limits=FIT_LIMITS)
    text = "p-value of: what Phi saw in earlier rounds tells nothing more."
    if word != "pass":
        text += f" What is left depends on {found.worst}: rounds are not exchangeable."
    return Check("earlier forecasts", word, found.p, FIT_LIMITS[0], text)


def _rare(fit: BandFit, sample: Sample, rows: ErrorRows) -> Check | None:
    """Judge targets of few values: where one of them hardly occurs, no normal band can hold."""
    worst, name = np.inf, ""
    target, centre = rows.target[fit.kept], sample.y[fit.kept] - fit.residual
    if (sample.y == rows.error).all():  # a band of the law's error: what it expects of the target
        centre = centre + rows.forecast[fit.kept]
    for j in range(target.shape[1]):
        if len(np.unique(target[:PROBE, j])) > FEW_VALUES:
            continue
        for part in np.array_split(target[np.argsort(centre[:, j]), j], GROUPS):
            _, count = np.unique(part, return_counts=True)
            least = int(count.sum() - count.max())
            if least < worst:
                worst, name = least, sample.y_names[j]
    if not name:
        return None
    text = f"{name} takes few values; least number of rows, in a twentieth of them, off the usual."
    if worst < RARE:
        text += (
            " There its noise cannot be judged and the bound does not hold: hold out more units, "
            "or narrow the domain (BandMethod)."
        )
    return Check("rare values", "fail" if worst < RARE else "pass", float(worst), RARE, text)


def _skewness(fit: BandFit) -> Check:
    handled = all("bootstrap t" in made for made in fit.band.made)
    skewed = fit.skewness > SKEWED
    text = "Skewness of the noise over the root of the local sample size."
    if skewed and handled:
        text += " It matters here; the bootstrap used for it takes the noise to keep its shape."
    elif skewed:
        text += " It matters here and is not allowed for: the band may cover less than it says."
    return Check(
        "skewness", "warn" if skewed and not handled else "pass", fit.skewness, SKEWED, text
    )
