"""Is the fitted law fit for use? Checks on units it has not seen, verdict first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Bool, Float2, Float3, whole
from pulse_pyro.errors import DataError, LeakageError, ModelError
from pulse_pyro.history import History
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.seeds import stream
from pulse_pyro.serial import serial_check, serial_dependence
from pulse_pyro.verdicts import RANK, Check, Verdict

if TYPE_CHECKING:
    from pandas import DataFrame

GAPS = 100  # rows that lack an input, at least, to judge them
LEVEL = 0.9  # of the predictive intervals that are checked
LIMITS = {  # warn above the first, fail above the second
    "r_hat": (1.01, 1.05),
    "divergences": (0.0, 10.0),
    "pareto_k": (0.5, 0.62),  # 1 - 1 / log10(400 draws)
    "improper": (0.0, 0.0),
    "loss_drop": (2.0, 4.0),
    "basis": (1.0, 1.5),
    "finer": (1.0, 1.5),
}


@dataclass(frozen=True)
class Diagnostics:
    """All checks of a law on held-out units."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the checks."""
        return RANK[max(RANK.index(check.verdict) for check in self.checks)]

    @property
    def table(self) -> DataFrame:
        """One line per check."""
        import pandas as pd

        return pd.DataFrame([asdict(check) for check in self.checks]).set_index("name")

    def __repr__(self) -> str:
        worst = sorted(self.checks, key=lambda c: -RANK.index(c.verdict))
        lines = [f"  {c.verdict:4} {c.name}: {c.value:.4g}. {c.text}" for c in worst[:10]]
        if len(worst) > 10:
            lines.append(f"  ... and {len(worst) - 10} more, none worse; see .table")
        return "\n".join([f"Diagnostics: {self.verdict}", *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>"


def diagnose(fitted: FittedLaw, held_out: History, *, seed: int, size: int = 400) -> Diagnostics:
    """Check a law on units it was not fitted on.

    Parameters
    ----------
    fitted : the law.
    held_out : other units; units the law has seen raise LeakageError.
    seed, size : predictive draws.

    Convergence is judged by the kind of inference; skill is the share of held-out variance of W
    explained; coverage compares the share of held-out W inside the 90 % predictive interval,
    unit by unit, so that rows of one unit need not be independent; what is left of W must not
    depend on what was left before, or earlier rewards tell more than S. Rows that lack an input are
    judged apart, where the law answers them. A law may pass and still be wrong in places the
    held-out units do not visit.
    """
    whole(size, "diagnose: size", 100)
    if not isinstance(fitted, FittedLaw):
        raise ModelError(
            f"diagnose: a fitted law was expected, {type(fitted).__name__} came; fit it first: "
            "law.fit(history, seed=0)."
        )
    leaked = sorted(set(fitted.fit_units) & set(held_out.units))
    if leaked:
        raise LeakageError(
            f"diagnose: unit {leaked[0]!r} (and {len(leaked) - 1} more) was fitted on; pass the "
            "held-out part of History.split."
        )
    for kind in ("s_names", "w_names"):
        fitted_on, came = getattr(fitted, kind), getattr(held_out, kind)
        if fitted_on != came:
            odd = sorted(set(fitted_on) ^ set(came)) or [came[0]]
            raise DataError(
                f"diagnose: the law was fitted on columns {fitted_on}, but the held-out units have "
                f"{came}; {odd[0]!r} does not match."
            )
    held_out.rows(fitted.summary)  # refuses, with a sentence, if no row is complete
    x = fitted.summary(held_out.s)
    whole_rows: Bool = np.asarray(np.isfinite(x).all(-1))
    w, mean, inside = _predictions(fitted, held_out, whole_rows, stream(seed, "diagnose"), size)
    used = np.isfinite(w[..., 0])
    rows = Check(
        "rows", "info", float(used.sum()), float(held_out.rows_seen),
        f"Held-out rows judged, of {int(used.any(1).sum())} of {len(held_out.units)} units; the "
        "others lack an input or W, or were left out to save memory.",
    )  # fmt: skip
    # where lags were not seen, earlier W do tell more than what was seen, whatever the law
    raw = fitted.summary.window if isinstance(fitted.summary, Filtered) else fitted.summary
    lags_seen: Bool = np.asarray(np.isfinite(raw(held_out.s)).all(-1))
    checks = [rows, *(_quality(name, value) for name, value in fitted.record.quality.items())]
    for j, name in enumerate(held_out.w_names):
        left = np.where(lags_seen[: len(w)], w[..., j] - mean[..., j], np.nan)
        checks += [
            _skill(name, w[..., j], mean[..., j]),
            _coverage(name, inside[..., j]),
            serial_check(name, serial_dependence(left, x[: len(left)])),
        ]
    if fitted.conditions:
        checks += _gaps(fitted, held_out, ~whole_rows, seed, size)
    return Diagnostics(tuple(checks))


def _gaps(fitted: FittedLaw, held_out: History, short: Bool, seed: int, size: int) -> list[Check]:
    """Judge rows that lack an input on their own: answers there rest on more assumptions."""
    if (held_out.seen & short & np.isfinite(held_out.w).all(-1)).sum() < GAPS:
        return []
    w, _, inside = _predictions(fitted, held_out, short, stream(seed, "gaps"), size)
    if np.isfinite(w[..., 0]).sum() < GAPS:  # the law refused most of them
        return []
    return [
        _coverage(f"{name}, inputs unseen", inside[..., j])
        for j, name in enumerate(held_out.w_names)
    ]


def _predictions(
    fitted: FittedLaw, held_out: History, where: Bool, rng: np.random.Generator, size: int
) -> tuple[Float3, Float3, Float3]:
    """Return w, E[w] and "inside the interval" as (unit, time, w_dim), NaN where not judged."""
    usable = held_out.seen & where & np.isfinite(held_out.w).all(-1)
    # whole units, as many as keep the draws within about 400 MB
    rows = np.cumsum(usable.sum(1))
    most = max(int((rows <= 50_000_000 // (size * len(held_out.w_names))).sum()), 2)
    usable, w = usable[:most], held_out.w[:most]
    centre, draws = fitted.predict_where(held_out.s[:most], usable, size, rng=rng)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    out = np.full((3, *w.shape), np.nan)
    out[0, usable], out[1, usable] = w[usable], centre
    out[2, usable] = (low <= w[usable]) & (w[usable] <= high)
    out[:, np.isnan(out[1]).any(-1)] = np.nan  # rows the law refused after all
    return out[0], out[1], out[2]


def _quality(name: str, value: float) -> Check:
    if name not in LIMITS:
        return Check(name, "info", value, float("nan"), "For information.")
    warn, fail = LIMITS[name]
    verdict: Verdict = "fail" if not value <= fail else "warn" if value > warn else "pass"
    text = {
        "r_hat": "Chains agree if this is near 1.",
        "divergences": "Steps the sampler could not follow; it may have missed a region.",
        "loss_drop": "The loss still falls, by this many standard errors, at the end of the fit.",
        "improper": "Directions the rows do not span: draws carry no uncertainty there.",
        "basis": "Basis functions, or box, that an input needs at its fitted length scale, over "
        "what it has; above 1 ask for more functions, gaussian_process(..., basis=...).",
        "finer": "What finer sines explain of the residuals, over the 99.9 % point of chance; "
        "above 1 the basis is too small, or residuals of a unit depend on each other.",
        "pareto_k": "Above 0.62 the Gaussian approximation of the posterior cannot be trusted.",
    }[name]
    return Check(name, verdict, value, fail, text)


def _skill(name: str, w: Float2, mean: Float2) -> Check:
    spread = np.nanvar(w)
    value = float(1 - np.nanmean((w - mean) ** 2) / spread) if spread > 0 else float("nan")
    verdict: Verdict = "pass" if value > 0.05 else "warn" if value > 0 else "fail"
    text = f"Share of the held-out variance of {name} the law explains; below 0 it misleads."
    if verdict != "pass":
        text += " Other lags or more units may help, or S may not tell."
    return Check(f"skill {name}", verdict, value, 0.0, text)


def _coverage(name: str, inside: Float2) -> Check:
    """Compare coverage with its level by a t test over units; tiny deviations always pass."""
    rows = np.isfinite(inside).sum(1)
    by_unit = np.nansum(inside, axis=1)[rows > 0] - LEVEL * rows[rows > 0]
    value = float(np.nanmean(inside))
    units = len(by_unit)
    if units < 2:
        return Check(f"coverage {name}", "info", value, LEVEL, "One held-out unit: not judged.")
    error = by_unit.std(ddof=1) * np.sqrt(units)
    p = 2 * stats.t.sf(abs(by_unit.sum()) / error, units - 1) if error > 0 else 0.0
    apart = abs(value - LEVEL)
    verdict: Verdict = "pass"
    if p < 0.001 and apart > 0.03:
        verdict = "fail"
    elif p < 0.05 and apart > 0.01:
        verdict = "warn"
    side = "wide: cautious" if value > LEVEL else "narrow: over-confident"
    text = f"Share of held-out {name} inside its 90 % predictive interval ({units} units)."
    if verdict != "pass":
        text += f" Intervals are too {side}; try another noise model or summary."
    return Check(f"coverage {name}", verdict, value, LEVEL, text)
