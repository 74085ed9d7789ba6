"""Did the engine arrive? Judged by its kind, from what the fit recorded, nothing else.

r_hat, effective draws and divergences exist for NUTS alone; Svi and Laplace have the Pareto shape
of their importance ratios, Svi the slope of its loss as well; an exact posterior has nothing to
converge; an ensemble of networks is no posterior, and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse_pyro.base import Check, verdict
from pulse_pyro.laws.fitted import FitRecord, PosteriorLaw
from pulse_pyro.laws.step import FittedStepLaw

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

LIMITS = {  # warn above the first, fail above the second
    "r_hat": (1.01, 1.05),
    "divergences": (0.0, 10.0),
    "pareto_k": (0.5, 0.62),  # 1 - 1 / log10(400 draws)
    "improper": (0.0, 0.0),
    "loss_drop": (2.0, 4.0),
    "basis": (1.0, 1.5),
    "finer": (1.0, 1.5),
    "particle_error": (0.1, 0.3),
    "unseen_levels": (0.0, float("inf")),
    "partly_seen": (0.05, float("inf")),
}
LEAST = {"ess": (100.0, 25.0)}  # warn below the first, fail below the second
TEXTS = {
    "r_hat": "Chains agree if this is near 1.",
    "ess": "Independent draws that the least effective parameter is worth; with 100 a posterior "
    "mean is known to a tenth of its sd. Ask for more draws a chain: Nuts(draws=...).",
    "divergences": "Steps the sampler could not follow; it may have missed a region.",
    "loss_drop": "The loss still falls, by this many standard errors, at the end of the fit.",
    "improper": "Directions the rows do not span: draws carry no uncertainty there.",
    "basis": "Basis functions, or box, that an input needs at its fitted length scale, over "
    "what it has; above 1 ask for more functions, gaussian_process(..., basis=...).",
    "finer": "What finer sines explain of the residuals, over the 99.9 % point of chance; "
    "above 1 the basis is too small, or residuals of a unit depend on each other.",
    "unseen_levels": "Values W may take that never occur in the fitted archive: how likely they "
    "are is told by the prior alone; merge such a level with its neighbour, or declare fewer.",
    "partly_seen": "Share of rows with all inputs and some of W, but not all, which this law "
    "leaves out. It is then of rows where W is whole: wrong where what is missing goes with what "
    "is seen (minutes of sleep where somebody slept). Fit W columns apart, or write a model with a "
    "site for each, which keeps such rows.",
    "as_plain_numbers": "W columns that are declared as no plain numbers, but are to this law: it "
    "foretells halves of a level, and values beyond the last. laws.generalised_lags and mixed_lags "
    "take them as they are declared.",
    "particle_error": "Error of a draw's E[W] by particles, in predictive sds; above 0.1 ask for "
    "more, StepLaw(..., particles=...).",
    "pareto_k": "Above 0.62 the Gaussian approximation of the posterior cannot be trusted.",
}
CURES = {"pareto_k": " Fit with Nuts(): law.fit(history, pp.Nuts(), seed=0)."}
NO_POSTERIOR = {  # engines whose spread of draws means something else, or less
    "Ensemble": "The spread over networks is no posterior: it shows how training varies, not what "
    "the archive leaves open. Nothing here speaks of convergence; coverage and PIT judge the law.",
    "state_space": "The process of S is put at its maximum likelihood: draws carry the uncertainty "
    "of the emission alone.",
}


def ask_convergence(case: HeldOut) -> list[Check]:
    """Ask whether the engine arrived."""
    fitted = case.fitted  # laws made elsewhere have no engine
    return convergence(fitted.record) if isinstance(fitted, PosteriorLaw | FittedStepLaw) else []


def convergence(record: FitRecord) -> list[Check]:
    """Return a check for each figure the engine recorded, by its kind."""
    kind = record.inference.split("(")[0].split(":")[0]
    checks = [_judge(name, value) for name, value in record.quality.items()]
    if kind in NO_POSTERIOR:
        nan = float("nan")
        checks.append(Check("posterior", "info", nan, nan, NO_POSTERIOR[kind]))
    return checks


def _judge(name: str, value: float) -> Check:
    """Compare a figure with its limits; one that is not a number fails."""
    if name in LIMITS:
        warn, fail = LIMITS[name]
        word = verdict(-value, limits=(-warn, -fail))
        cure = CURES.get(name, "") if word != "pass" else ""
        return Check(name, word, value, fail, TEXTS[name] + cure)
    if name in LEAST:
        return Check(name, verdict(value, limits=LEAST[name]), value, LEAST[name][1], TEXTS[name])
    text = TEXTS.get(name, "For information.")
    return Check(name, "info", value, float("nan"), text)
