"""Is the law of any use? Skill, log score and CRPS against climatology and a straight line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FAIL, WARN, Check, FittedLaw, Verdict
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics.by_unit import estimated, unit_mean
from pulse_pyro.diagnostics.levels import has_ties, levels_of
from pulse_pyro.diagnostics.result import ScoreComparison
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.linear import linear_lags

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut, Predictions

# W of few values: Brier's score and the ranked probability score (RPS), which are the CRPS of laws
# on these values. Of two values a < b it is (b - a) (1{w = b} - P(b))^2, P(b) from the law's MEAN,
# so that a law with a density is judged by what it may be used for; of more, draws are moved to the
# nearest value first. Climatology is then the shares of the values in the archive.


def level_crps(levels: Float1, w: Float1, mean: Float1, draws: Float2 | None = None) -> Float1:
    """Return the score (n,) of a law on a few values: Brier's for two of them, the RPS for more.

    levels : (k,) rising. w, mean : (n,); of two values the mean decides. draws : (size, n).
    """
    gap = np.diff(levels)
    if len(gap) == 1:
        chance = np.clip((mean - levels[0]) / gap[0], 0.0, 1.0)
        out: Float1 = gap[0] * ((w - levels[0]) / gap[0] - chance) ** 2
        return out
    assert draws is not None
    if not has_ties(draws):
        middle = (levels[1:] + levels[:-1]) / 2
        draws = levels[np.searchsorted(middle, draws)]
    return draws_crps(draws[..., None], w[:, None])[:, 0]


def value_crps(values: Float1, probability: Float2, w: Float1) -> Float1:
    """Return the score (n,) of a law that gives values (cells,) with probability (n, cells).

    Brier's for two of them, the RPS for more, exactly: no draw is needed.
    """
    levels = np.unique(values)
    below = probability @ (values[:, None] <= levels[:-1]).astype(np.float64)
    out: Float1 = ((below - (w[:, None] <= levels[:-1])) ** 2 * np.diff(levels)).sum(1)
    return out


def share_crps(levels: Float1, w: Float1, train: Float1) -> Float1:
    """Return the score (n,) of one law for all rows: the shares of values in ``train``."""
    known = train[np.isfinite(train)]
    below = (known[:, None] <= levels[:-1] + 1e-9).mean(0)
    out: Float1 = (((w[:, None] <= levels[:-1] + 1e-9) - below) ** 2 * np.diff(levels)).sum(1)
    return out


# What a law has to beat: climatology, and a straight line on its own inputs.
#
# Climatology is one normal law for every row, with the mean and sd of W in the fitted archive, as a
# built-in law records them; for a custom law they come from the units the line is fitted on. The
# linear baseline is ``linear_lags`` on the law's own summary, fitted on ``archive`` if that is
# handed over (then both have seen the same units, and like is compared with like); otherwise
# held-out units are scored by a line fitted on the other held-out units, in five folds by unit.


FOLDS = 5
LOG_2PI = float(np.log(2 * np.pi))


class RowScores(NamedTuple):
    """Scores of one law at rows: log (n,), the larger the better; crps (n, w_dim), the smaller."""

    log: Float1
    crps: Float2


def draws_crps(draws: Float3, w: Float2) -> Float2:
    """Return the unbiased CRPS, E|X - w| - E|X - X'| / 2, (n, w_dim), of draws (size, n, w_dim)."""
    size = len(draws)
    rank = 2.0 * np.arange(1, size + 1) - size - 1
    spread = np.einsum("m,mnj->nj", rank, np.sort(draws, axis=0)) / (size * (size - 1))
    out: Float2 = np.abs(draws - w).mean(0) - spread
    return out


def normal_scores(w: Float2, mean: Float1, sd: Float1) -> RowScores:
    """Return the scores of independent normal laws at w (n, w_dim)."""
    z = (w - mean) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    crps: Float2 = sd * (z * (2 * special.ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    log = -0.5 * (z**2 + LOG_2PI) - np.log(sd)
    return RowScores(log.sum(-1), crps)


def baselines(
    fitted: FittedLaw,
    held_out: History,
    row: Int,
    archive: History | None,
    seed: int,
    size: int,
    levels: Sequence[Float1 | None] = (),
) -> dict[str, RowScores]:
    """Return the scores of both baselines at the judged rows; empty if none can be fitted.

    row : (n,) numbers of the rows of held_out, rising. archive : see above. seed, size : draws.
    levels : for each W the values it takes, None where it is not discrete; none is, by default.
    """
    unit, w = held_out.unit_of[row], held_out.w[row]
    flat, line = (RowScores(np.full(len(row), np.nan), np.full(w.shape, np.nan)) for _ in range(2))
    if archive is None and len(np.unique(unit)) < 2:
        return {}
    for train, judged in _folds(held_out, unit, archive, seed):
        at = np.flatnonzero(np.isin(unit, judged))
        try:
            fit = linear_lags(fitted.summary).fit(train, seed=seed)
        except DataError:  # a fold without a complete row
            return {}
        given = fit(held_out, row[at])
        draws = given.draws(size, rng=stream(seed, "baseline", at[0]))
        flat.log[at], flat.crps[at] = normal_scores(w[at], *_marginal(fitted, train))
        line.log[at], line.crps[at] = given.joint_log_density(w[at]), draws_crps(draws, w[at])
        mean = given.mean()
        for j, values in enumerate(levels):
            if values is not None:
                flat.crps[at, j] = share_crps(values, w[at, j], train.w[:, j])
                line.crps[at, j] = level_crps(values, w[at, j], mean[:, j], draws[..., j])
    return {"climatology": flat, "linear": line}


def _folds(
    held_out: History, unit: Int, archive: History | None, seed: int
) -> Iterator[tuple[History, Int]]:
    """Yield an archive to fit baselines on, and the units to judge."""
    units = np.unique(unit)
    if archive is not None:
        yield archive, units
        return
    order = stream(seed, "folds").permutation(units)
    for judged in np.array_split(order, min(FOLDS, len(units))):
        yield held_out.take(np.setdiff1d(units, judged)), np.sort(judged)


def _marginal(fitted: FittedLaw, train: History) -> tuple[Float, Float]:
    """Return mean and sd of W, (w_dim,), in the fitted archive, or else in ``train``."""
    if isinstance(fitted, PosteriorLaw) and fitted.law.family is not None:
        mean, sd = fitted.scaler.w_mean, fitted.scaler.w_scale
        if mean.any() or (sd != 1.0).any():  # else the law works in W's own units
            return mean, sd
    w = train.w
    mean, sd = np.nanmean(w, axis=0), np.nanstd(w, axis=0)
    return mean, np.where(sd > 1e-10 * (np.abs(mean) + 1e-300), sd, 1.0)


# Is the law of any use? Log score and CRPS against climatology and a linear baseline.


MARGIN = 0.01  # nats a row, or share of the baseline's CRPS: less is not worth a word


def ask_log_score(case: HeldOut) -> list[Check]:
    """Ask whether the law's density says more about W than no law at all."""
    found = [c for c in score_checks(case.comparisons) if c.name == "log score"]
    discrete = any(levels is not None for levels in case.levels)
    if not found and (discrete or not has_density(case.judged.draws)):
        text = (
            "Not compared: a probability of a value and a density are not on one scale, and a "
            "density at a few points can be as large as one likes. See crps, which is Brier's score"
            " for W of two values and the ranked probability score for more."
        )
        return [Check("log score", "info", float("nan"), 0.0, text)]
    return found


def ask_crps(case: HeldOut, j: int) -> list[Check]:
    """Ask whether the law's draws are nearer to W than those of no law at all."""
    wanted = f"crps {case.names[j]}"
    return [check for check in score_checks(case.comparisons) if check.name == wanted]


def compared(
    fitted: FittedLaw,
    held_out: History,
    archive: History | None,
    judged: Predictions,
    seed: int,
) -> tuple[ScoreComparison, ...]:
    """Return what the law gains over climatology and a line, in every score."""
    own = RowScores(np.full(len(judged.row), np.nan), draws_crps(judged.draws, judged.w))
    columns = zip(judged.w.T, held_out.schema.w_declared, strict=True)
    levels = [levels_of(w, column) for w, column in columns]
    law = fitted(held_out, judged.row)
    support: Float2 | None = getattr(law, "support", None)
    for j, values in enumerate(levels):
        if support is not None:
            chance = law.probabilities()  # type: ignore[attr-defined]
            own.crps[:, j] = value_crps(support[:, j], chance, judged.w[:, j])
        elif values is not None:
            w, mean = judged.w[:, j], judged.mean[:, j]
            own.crps[:, j] = level_crps(values, w, mean, judged.draws[..., j])
    # a density is not compared where W has a few values: a point can be given any density
    if has_density(judged.draws) and all(values is None for values in levels):
        log = law.joint_log_density(judged.w)
        if log is not None:
            own.log[:] = log
    size = len(judged.draws)
    others = baselines(fitted, held_out, judged.row, archive, seed, size, levels)
    extra = estimated(fitted, judged.unit)
    return tuple(comparisons(own, others, judged.cluster, held_out.w_names, extra))


def comparisons(
    own: RowScores, others: dict[str, RowScores], unit: Int, names: tuple[str, ...], extra: float
) -> list[ScoreComparison]:
    """Return what the law gains over each baseline, in log score and in the CRPS of each W.

    Row by row, so what makes a row hard for all cancels; intervals and p are by unit. extra : see
    ``by_unit``; it allows for the law, and a line, both having been estimated.
    """
    out = []
    for against, other in others.items():
        if not np.isnan(own.log - other.log).all():
            out.append(_one("log score", against, own.log - other.log, unit, extra))
        for j, name in enumerate(names):
            scale = np.nanmean(other.crps[:, j])
            gain = (other.crps[:, j] - own.crps[:, j]) / scale
            if scale > 0:
                out.append(_one(f"crps {name}", against, gain, unit, extra))
    return out


def score_checks(compared_scores: Sequence[ScoreComparison]) -> list[Check]:
    """Return one check a score: worse than climatology fails.

    No better than climatology (a gain below 0.01), or worse than a linear law, warns. "Worse" is at
    p < 0.001 (climatology) or 0.01 (linear) over units, and by 0.01 at least; a right law is called
    worse no more often than that. "No better" is a fact, not a test, and has no such rate: a right
    law whose S tells little about W is warned of as a matter of course.
    """
    return [
        _check(score, {gain.against: gain for gain in compared_scores if gain.score == score})
        for score in dict.fromkeys(gain.score for gain in compared_scores)
    ]


def has_density(draws: Float3) -> bool:
    """Tell whether draws (size, n, w_dim) come from a density: no value is ever drawn twice.

    The log of a probability, as of a count, cannot be set beside that of a normal density.
    """
    return not bool((draws[0] == draws[1]).any())


def _one(score: str, against: str, gain: Float1, unit: Int, extra: float) -> ScoreComparison:
    if np.isneginf(gain).any():  # W the law calls impossible: no mean makes up for it
        return ScoreComparison(score, against, -np.inf, -np.inf, -np.inf, 0.0)
    test = unit_mean(gain, unit, extra=extra)
    return ScoreComparison(score, against, test.mean, *test.interval, test.p_below)


def _check(score: str, against: dict[str, ScoreComparison]) -> Check:
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


# Skill: how much of W the law explains.


LITTLE = 0.05


def ask_skill(case: HeldOut, j: int) -> list[Check]:
    """Ask how much of W the law explains."""
    w, mean = case.judged.w[:, j], case.judged.mean[:, j]
    return [skill_check(case.names[j], w, mean, case.judged.cluster, case.extra)]


def skill_check(name: str, w: Float1, mean: Float1, unit: Int, extra: float) -> Check:
    """Return the share of held-out variance of W explained, 1 - E (w - mean)^2 / Var w.

    w, mean, unit (n,). Fails if expecting the same everywhere would have been better, at p <
    0.001 over units (or if there are too few units to say); warns below 0.05: S may not tell.
    """
    spread = float(np.nanvar(w))
    value = float(1 - np.nanmean((w - mean) ** 2) / spread) if spread > 0 else float("nan")
    gain = (w - np.nanmean(w)) ** 2 - (w - mean) ** 2
    test = unit_mean(gain, unit, extra=extra)
    worse = value <= 0 and (test.units < 2 or test.p_below < FAIL)
    verdict: Verdict = "pass" if value > LITTLE else "fail" if worse or spread <= 0 else "warn"
    text = f"Share of the held-out variance of {name} the law explains; below 0 it misleads."
    if verdict != "pass":
        text += " Other lags or more units may help, or S may not tell."
    return Check(f"skill {name}", verdict, value, 0.0, text)
