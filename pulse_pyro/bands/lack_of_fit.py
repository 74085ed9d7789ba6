"""A test whether the summary is enough: scores of a band's residuals on what it left out."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float2, Int
from pulse_pyro.bands.band import BandFit, consecutive
from pulse_pyro.bands.critical import sup_draws

FREQUENCIES = np.array([1.5, 3.0, 5.0])  # per standard deviation of an input
WAVES = 30  # random Fourier features
MIX = "a nonlinear mix"
BLOCK = 8  # candidates worked on at a time


class LackOfFit(NamedTuple):
    """p-value, the statistic, and the candidate that gave it."""

    p: float
    statistic: float
    worst: str


def lack_of_fit(
    fit: BandFit,
    omitted: Float2,
    names: tuple[str, ...],
    unit: Int,
    rng: np.random.Generator,
    draws: int = 1000,
) -> LackOfFit:
    """Test whether what the band leaves depends on ``omitted`` (kept, m), functions of S_1:t.

    Candidates: the omitted columns, their squares, waves in each of several inputs of the band, and
    random Fourier features of all columns, each freed of what the band's own smoother can follow;
    per coordinate and candidate the score sum_i e_i z_i over its standard deviation by unit,
    supremum by a multiplier bootstrap by unit.
    A value that is not there (a lag before the unit's start) counts as the mean: whatever is known
    at t is a fair candidate. Power is limited to what these candidates can see.
    """
    code, _ = consecutive(unit)
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(code[order]) != 0])
    scale = np.sqrt((fit.residual**2).mean(0))
    scores, labels = [], []
    several = set(fit.band.x_names) if len(fit.band.x_names) > 1 else set()
    for z, label in candidates(omitted, names, rng, several):
        for j in range(fit.residual.shape[1]):
            free = z - fit.smooth(z, j)
            e = fit.residual[:, j, None] / scale[j]
            scores.append(np.add.reduceat((e * free)[order], starts))
            labels += label
    if not scores:
        return LackOfFit(1.0, 0.0, "nothing: no candidate was left out")
    return judge_scores(np.concatenate(scores, axis=1), labels, rng, draws)


def judge_scores(psi: Float2, labels: list[str], rng: np.random.Generator, draws: int) -> LackOfFit:
    """Judge the largest of m scores, psi (clusters, m) what each cluster adds to it.

    max_k |sum_c psi_ck| / sd_k, each as the normal value of its t with clusters - 1 degrees of
    freedom, against the supremum of the multiplier bootstrap by cluster. labels : of the m scores.
    """
    # centred: under a real lack of fit the scores have a mean, which must not widen the null
    centred = psi - psi.mean(0)
    spread = np.sqrt((centred**2).sum(0))
    live = np.flatnonzero(spread > 1e-9 * spread.max())
    if not len(live):
        return LackOfFit(1.0, 0.0, "nothing: no candidate is left once the summary is used")
    raw = np.abs(psi[:, live].sum(0)) / spread[live] * np.sqrt((len(psi) - 1.0) / len(psi))
    # few units make a studentised score a t; its normal equivalent meets a normal supremum
    t = stats.norm.isf(np.maximum(stats.t.sf(raw, len(psi) - 1.0), 1e-300))
    cov = centred[:, live].T @ centred[:, live]
    sups = sup_draws(cov, draws, rng)
    p = float((1 + (sups >= t.max()).sum()) / (1 + len(sups)))
    named = np.array([labels[k] != MIX for k in live])
    clear = named & (t >= np.quantile(sups, 0.95))  # a name helps more than a mix that beats it
    worst = int(np.where(clear if clear.any() else True, raw, -1.0).argmax())
    return LackOfFit(p, float(t.max()), labels[int(live[worst])])


def candidates(
    omitted: Float2,
    names: tuple[str, ...],
    rng: np.random.Generator,
    bent: Set[str] = frozenset(),
) -> Iterator[tuple[Float2, list[str]]]:
    """Yield blocks of centred candidates (n, <= 8) with their names.

    Columns named in ``bent`` (the band's own inputs, where it has several) also come as sines and
    cosines of their own: a curve in one of many inputs is lost in a mix of all of them.
    """
    seen = np.isfinite(omitted)
    count = np.maximum(seen.sum(0), 1)
    mean = np.where(seen, omitted, 0.0).sum(0) / count
    u = np.where(seen, omitted - mean, 0.0)
    sd = np.sqrt((u**2).sum(0) / count)
    live = sd > 1e-12 * (np.abs(mean) + 1e-300)
    u = u[:, live] / sd[live]
    kept = [name for name, ok in zip(names, live, strict=True) if ok]
    frequency = rng.standard_normal((u.shape[1], WAVES)) / np.sqrt(max(u.shape[1], 1))
    phase = rng.uniform(0, 2 * np.pi, WAVES)
    for start in range(0, len(kept), BLOCK):
        at = slice(start, start + BLOCK)
        yield u[:, at], kept[at]
        yield _centred(u[:, at] ** 2), [f"{name} squared" for name in kept[at]]
    for i in [i for i, name in enumerate(kept) if name in bent]:
        angles = np.clip(u[:, i : i + 1], -4, 4) * FREQUENCIES
        both = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        yield _centred(both), [f"{kept[i]}, curved"] * both.shape[1]
    for start in range(0, WAVES if kept else 0, BLOCK):
        at = slice(start, start + BLOCK)
        waves = np.cos(np.clip(u, -4, 4) @ frequency[:, at] + phase[at])
        yield _centred(waves), [MIX] * waves.shape[1]


def _centred(z: Float2) -> Float2:
    out: Float2 = z - z.mean(0)
    return out
