"""Is the law of any use? Log score and CRPS against climatology and a linear baseline."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float2, Float3
from pulse_pyro.diagnostics.baselines import RowScores
from pulse_pyro.diagnostics.by_unit import FAIL, WARN, unit_mean
from pulse_pyro.diagnostics.result import Comparison
from pulse_pyro.verdicts import Check, Verdict

MARGIN = 0.01  # nats a row, or share of the baseline's CRPS: less is not worth a word


def comparisons(
    own: RowScores, others: dict[str, RowScores], used: Bool, names: tuple[str, ...], extra: float
) -> list[Comparison]:
    """Return what the law gains over each baseline, in log score and in the CRPS of each W.

    Row by row, so what makes a row hard for all cancels; intervals and p are by unit. extra : see
    ``by_unit``; it allows for the law, and a line, both having been estimated.
    """
    out = []
    for against, other in others.items():
        if not np.isnan(own.log - other.log).all():
            out.append(_one("log score", against, own.log - other.log, used, extra))
        for j, name in enumerate(names):
            scale = np.nanmean(other.crps[:, j])
            gain = (other.crps[:, j] - own.crps[:, j]) / scale
            if scale > 0:
                out.append(_one(f"crps {name}", against, gain, used, extra))
    return out


def score_checks(found: list[Comparison]) -> list[Check]:
    """Return one check a score: worse than climatology fails.

    No better than climatology (a gain below 0.01), or worse than a linear law, warns. "Worse" is at
    p < 0.001 (climatology) or 0.01 (linear) over units, and by 0.01 at least; a right law is called
    worse no more often than that. "No better" is a fact, not a test, and has no such rate: a right
    law whose S tells little about W is warned of as a matter of course.
    """
    return [
        _check(score, {one.against: one for one in found if one.score == score})
        for score in dict.fromkeys(one.score for one in found)
    ]


def has_density(draws: Float3) -> bool:
    """Tell whether draws (size, n, w_dim) come from a density: no value is ever drawn twice.

    The log of a probability, as of a count, cannot be set beside that of a normal density.
    """
    return not bool((draws[0] == draws[1]).any())


def _one(score: str, against: str, gain: Float1, used: Bool, extra: float) -> Comparison:
    if np.isneginf(gain).any():  # W the law calls impossible: no mean makes up for it
        return Comparison(score, against, -np.inf, -np.inf, -np.inf, 0.0)
    grid: Float2 = np.full(used.shape, np.nan)
    grid[used] = gain
    test = unit_mean(grid, extra=extra)
    return Comparison(score, against, test.mean, *test.interval, test.p_below)


def _check(score: str, against: dict[str, Comparison]) -> Check:
    what = "in nats a row" if score == "log score" else "as a share of its CRPS"
    flat, line = against["climatology"], against["linear"]
    verdict: Verdict = "pass"
    more = ""
    if flat.gain < -MARGIN and flat.p < FAIL:
        verdict, more = "fail", " It is WORSE than no law at all: do not use it."
    elif flat.gain < MARGIN:
        verdict, more = "warn", " No gain over climatology: S may not tell, or units are few."
    elif line.gain < -MARGIN and line.p < WARN:
        verdict, more = "warn", " A straight line on the same inputs does better (linear_lags)."
    text = (
        f"Gain over climatology {what} (95 % interval {flat.low:.3g} to {flat.high:.3g}); over a "
        f"linear law {line.gain:.3g} ({line.low:.3g} to {line.high:.3g}).{more}"
    )
    return Check(score, verdict, flat.gain, 0.0, text)
