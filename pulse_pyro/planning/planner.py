"""How much history until imputation no longer dominates regret? From nested parts of an archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float2, Float3, Int, whole
from pulse_pyro.calibration.calibration import Calibration, reward_bound
from pulse_pyro.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro.features import Features, expected_features
from pulse_pyro.history import History
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.state_space import StateSpace
from pulse_pyro.planning.decay import FEWEST, fit_decay
from pulse_pyro.planning.plans import Plan
from pulse_pyro.progress import bar
from pulse_pyro.seeds import stream
from pulse_pyro.study.recipe import Recipe
from pulse_pyro.study.stakes import Stakes
from pulse_pyro.study.study import read_study
from pulse_pyro.verdicts import RANK

SHARES = (8, 4, 2, 1)  # the archive is divided by these
CONTEXTS = 2000  # of the archive's S the bound is averaged over
DEPENDENT = 0.01  # p-value: clustering by mistake would cost the small sizes
COMMON = 0.5  # of the contexts inside at the largest size a smaller size must have inside
SIZE = 512  # Monte Carlo draws of expected features, where they are not closed form


class Size(NamedTuple):
    """What one size gave, over orderings: D and e (ordering, context), inside (context,)."""

    units: int
    rows: float
    d: Float2
    e: Float2
    inside: Bool
    made: tuple[Calibration, ...]


def plan(
    history: History, law: Law | StateSpace, features: Features, *, stakes: Stakes,
    recipe: Recipe | None = None, orderings: int = 8, seed: int,
) -> Plan:  # fmt: skip
    """Measure how the calibrated bound falls with the size of the archive, and extrapolate.

    Parameters
    ----------
    history : the archive, n units with (S, W).
    law : not yet fitted; it is fitted anew on every subset.
    features : Phi.
    stakes : horizon, noise and size of theta*, see :class:`Stakes`.
    recipe : how to fit and calibrate; ``Recipe()`` by default.
    orderings : how often the archive is ordered anew, 2 or more; each costs four fits.
    seed : of the orderings, splits, fits and critical values.

    In each ordering the law is refitted and recalibrated on the first n/8, n/4, n/2 and n units.
    The orderings are one random order begun at evenly spaced places, so that with eight of them
    the subsets of n/8 units share none; at n only the split into fit and held-out units differs.
    All sizes are judged at the same contexts, S of up to 2,000 rows of the archive, inside the
    domain of every calibration; both curves are then lifted to what the largest size has at all of
    its contexts, the rare ones included:

        root mean D = sqrt(mean_t D_t),  e(n) = sqrt(mean_t max_a e_{t,a}^2),  e_{t,a} as in (E1).

    log of either is fitted by c - rate log n (:class:`Decay` says what its band leaves out), and n
    is enough when e(n) <= e*, where the imputation part of bound (11) equals its statistical part:
    ``Stakes.balance`` has the formula, with B the largest norm of the expected features at these
    contexts under the laws of the largest size. The kind of band is the one chosen at full size;
    its variances are by row at every size unless rows of a unit clearly depend (p < 0.01; calibrate
    itself goes by unit from 50 units on in any case, which is somewhat wider).

    Not covered: that the decay goes on beyond n as it was within it. A bias of the law that noise
    still hides stops it later (``Plan.decay.flattening`` looks for a start of that); Monte Carlo
    error, where Phi or the law's mean is not closed form, never falls (``Plan.monte_carlo``).
    Nor online contexts unlike the archive's, units longer or shorter than those of the archive, or
    whether the bound holds at all, which is for the checks of the calibration to say.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> phi = pp.features_from_terms(["1", "w*a"], 2, observed=["s"], missing=["w"])
    >>> stakes = pp.Stakes(horizon=1000, sigma=0.5)
    >>> needed = plan(history, pp.linear_lags(19), phi, stakes=stakes, orderings=2, seed=0)
    >>> print(str(needed)[:20])
    Plan: already there;
    """
    _expect(history, law, features, stakes)
    whole(orderings, "plan: orderings", 2)
    recipe = recipe or Recipe()
    contexts = _contexts(history, seed)
    sizes = sorted({round(len(history.units) / share) for share in SHARES} - {0})
    settled = _settle(recipe, law, history, features, seed)
    steps = bar(total=len(sizes) * orderings, label="plan")
    found: list[Size] = []
    left_out: list[str] = []
    for units in sizes:
        try:
            parts = [
                history.take(part) for part in _subsets(len(history.units), units, orderings, seed)
            ]
            made = []
            for o, part in enumerate(parts):
                own = int(stream(seed, "plan", "ordering", o).integers(2**31))
                made.append(settled.calibrate(law, part, features, seed=own))
                steps.update()
            found.append(_judge(units, parts, made, contexts, stakes))
        except PulseError as error:
            left_out.append(f"{units} units are too few: {error}")
    steps.close()
    found = _comparable(found, left_out)
    if len(found) < FEWEST:
        what = " ".join(left_out) or f"an archive of {len(history.units)} units has no more."
        raise DataError(
            f"plan: a decay needs {FEWEST} sizes, {len(found)} of {len(sizes)} could be judged; "
            "bring more units, a summary with fewer inputs, mode 'all', or, if rows of a unit are "
            f"independent given the summary, noise 'rows'. {what}"
        )
    return _result(found, left_out, contexts, features, stakes, settled, seed)


def plan_study(path: str | Path) -> Plan:
    """Plan what a study file describes; see :func:`read_study` and :func:`plan`."""
    study = read_study(path)
    stakes = study.stakes()  # refused before the data are read, not after
    return plan(
        study.history(), study.law(), study.features(), stakes=stakes, recipe=study.recipe,
        seed=study.seed,
    )  # fmt: skip


def _expect(history: object, law: object, features: object, stakes: object) -> None:
    if not isinstance(history, History):
        raise DataError(f"plan: a History was expected, {type(history).__name__} came.")
    if not isinstance(law, Law | StateSpace):
        raise ModelError(
            f"plan: a law that can be fitted again was expected, {type(law).__name__} came; pass "
            "the law itself, e.g. linear_lags(19)."
        )
    if not isinstance(features, Features):
        raise SettingError(
            f"plan: Features(fn, actions, names) expected, {type(features).__name__} came."
        )
    if not isinstance(stakes, Stakes):
        raise SettingError(
            f"plan: stakes must be Stakes(horizon=..., sigma=...), {type(stakes).__name__} came."
        )


def _contexts(history: History, seed: int) -> Float3:
    """Return S of whole units, at random, that make up to about 2,000 rows."""
    order = stream(seed, "plan", "contexts").permutation(len(history.units))
    rows = np.cumsum(history.seen.sum(1)[order])
    return history.s[order[: max(int((rows <= CONTEXTS).sum()), 1)]]


def _subsets(n: int, units: int, orderings: int, seed: int) -> list[Int]:
    """Return the first units of each ordering: one random order begun at different places."""
    order = stream(seed, "plan", "order").permutation(n)
    return [np.sort(np.roll(order, -(o * n // orderings))[:units]) for o in range(orderings)]


def _settle(
    recipe: Recipe, law: Law | StateSpace, history: History, features: Features, seed: int
) -> Recipe:
    """Choose the band at full size, once: a choice that changes with n would look like a decay."""
    try:
        full = recipe.calibrate(law, history, features, seed=seed)
    except PulseError as error:
        raise type(error)(
            f"plan: the whole archive of {len(history.units)} units cannot be fitted and "
            f"calibrated: {error}"
        ) from error
    method, band = recipe.method, full.parts[0].band
    shown = [check.value for check in full.checks if check.name == "dependence within units"]
    by_row = bool(shown) and min(shown) >= DEPENDENT
    kind: Any = band.kind if method.kind == "auto" else method.kind
    noise: Any = method.noise if method.noise != "auto" else "rows" if by_row else "units"
    return replace(recipe, band=replace(method, kind=kind, noise=noise))


def _judge(
    units: int, parts: list[History], made: list[Calibration], contexts: Float3, stakes: Stakes
) -> Size:
    d, e, inside = [], [], []
    for calibration in made:
        error = calibration.error_at(contexts)
        d.append(np.max(error**2, axis=(2, 3)).ravel())
        e.append(reward_bound(error, stakes.theta_bound).max(-1).ravel())
        known = calibration.inside_at(contexts) & np.isfinite(error).all((2, 3))
        inside.append(known.ravel())
    rows = float(np.mean([part.rows_seen for part in parts]))
    return Size(units, rows, np.stack(d), np.stack(e), np.all(inside, axis=0), tuple(made))


def _comparable(found: list[Size], left_out: list[str]) -> list[Size]:
    """Drop sizes whose domain misses most contexts: all sizes are judged at the same ones."""
    if not found or not found[-1].inside.any():
        return []
    largest = found[-1].inside
    kept = []
    for size in found:
        common = float((size.inside & largest).sum() / largest.sum())
        if common >= COMMON:
            kept.append(size)
        else:
            left_out.append(
                f"{size.units} units are too few: their domain holds {common:.0%} of the contexts."
            )
    return kept


def _result(
    found: list[Size], left_out: list[str], contexts: Float3, features: Features, stakes: Stakes,
    recipe: Recipe, seed: int,
) -> Plan:  # fmt: skip
    common = np.all([size.inside for size in found], axis=0)
    units: Float1 = np.array([size.units for size in found], dtype=np.float64)
    root_d = np.stack([np.sqrt(size.d[:, common].mean(1)) for size in found], axis=1)
    e = np.stack([np.sqrt((size.e[:, common] ** 2).mean(1)) for size in found], axis=1)
    # small archives have no bound at rare contexts: the decay is that at the common ones, its level
    # that at all contexts the whole archive bounds
    largest = found[-1]
    bounded = np.isfinite(largest.e).all(0) & np.isfinite(largest.d).all(0)
    root_d *= _root(largest.d[:, bounded]) / _root(largest.d[:, common])
    scale = _root(largest.e[:, bounded] ** 2) / _root(largest.e[:, common] ** 2)
    e *= scale
    mean_e = scale * np.stack([size.e[:, common].mean(1) for size in found], axis=1)
    at = common.reshape(contexts.shape[:2])
    rng = stream(seed, "plan", "features")
    norm = 0.0
    for calibration in found[-1].made:
        law = calibration.parts[0].law
        phi = expected_features(law, features, contexts, size=SIZE, rng=rng).mean[at]
        norm = max(norm, float(np.sqrt((phi**2).sum(-1)).max()))
    budget = found[-1].made[0].parts[0].budget(contexts)
    monte_carlo = float(budget.monte_carlo[at].mean() / budget.total[at].mean())
    # of one calibration: the worst of several would cry wolf more often than it says
    worst = max(found[-1].made[0].checks, key=lambda check: RANK.index(check.verdict))
    return Plan(
        stakes, recipe, seed, np.array([size.rows for size in found]), mean_e,
        fit_decay(units, root_d), fit_decay(units, e), len(features.names), norm,
        int(common.sum()), int(bounded.sum()), monte_carlo, worst, tuple(left_out),
    )  # fmt: skip


def _root(squares: Float2) -> float:
    """Root of the mean over orderings and contexts."""
    return float(np.sqrt(squares.mean()))
