"""Do earlier W tell more about W than the law's inputs do? A test on residuals of held-out units.

The guarantee of the radius needs E[Phi(Y_t, a) | Y_1:t-1, earlier noise, S_1:t] =
E[Phi(Y_t, a) | S_1:t]. It fails if what the law leaves of W_t depends on what it left of W_{t-j}.

A law's mean may be off by a function of its inputs x_t, and x_t is itself serially dependent, so
residuals are first regressed on powers of the inputs, z_t = (1, x_t, x_t^2, x_t^3), over all rows.
With e_k what is left of row k, l the row j steps before it and h = z (Z'Z)^-1 z',
    v_kl = (e_k + h_kl e_l / (1 - h_ll)) psi(e_l),      U_i = sum of v_kl over the pairs of unit i.
The bracket is the residual of row k in a regression without row l, so that serially independent
rows give E v_kl = 0 whatever their variances, where plain products of residuals are biased towards
negative dependence, the more so the more columns Z has and the slower they move. psi is the normal
score of the rank of e_l: it is symmetric, so skewed noise does not skew U. Units are independent: a
t test of E U_i = 0 at each lag, and Bonferroni over lags. At levels below 0.08 units that differ in
variance make the t test cautious, not wrong.

Of a law with memory, what its filter leaves is tested. The memory was itself estimated: an error in
lag-1 memory moves the correlation of what is left by as much, with a variance of at most 1 / (rows
that taught it). So t is divided by the root of 1 + held-out / taught, by units or by rows,
whichever is more; it is cautious then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from pulse_pyro._core.arrays import Array, Float1, Float2, Int, whole
from pulse_pyro._core.errors import DataError
from pulse_pyro.base import FAIL, Check, verdict
from pulse_pyro.diagnostics.by_unit import Place

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

FEWEST = 8  # units with a pair, below which nothing is judged
ROWS_A_COLUMN = 5  # rows, at least, for each column of Z
NUMBERS = 20_000_000  # most entries of Z: 160 MB
DEGREE = 3
RANK = 1e-10  # eigenvalues of Z'Z below this share of the largest count as zero
BY_INPUTS = (
    " Try more lags of S or a more flexible mean; if units have levels of their own, or earlier W"
    " come to be known, make them inputs; else the noise itself has a memory, which past rewards"
    " can tell: laws.with_memory."
)
TOLD = (
    " Judged is {0} less what the law expects once it is told the unit's earlier {0}. Policies are"
    " not told: rounds of a unit that was decided about before are beyond the radius' guarantee."
)
OTHER_SHAPE = (
    " So what it believes of units, or its state, is of another shape: give it another distribution"
    " or motion (StepLaw), or try more lags of S or a more flexible mean."
)
LARGE = 0.3  # |correlation| worth a warning where there are too few units for a test
MARGINS = (0.02, 0.05)  # |correlations| that warn, that fail


class SerialTest(NamedTuple):
    """Serial dependence of one W's residuals within units.

    statistic : t of the unit scores at ``lag``, the lag with the smallest p; NaN if not judged.
    p : Bonferroni over lags; NaN if not judged.
    correlation : of the residual with the normal score of the one ``lag`` steps before, given x_t.
    units : units with a pair of rows at that lag.
    lags : lags that were judged.
    lag : where ``statistic`` and ``correlation`` were taken; 0 if not judged.
    """

    statistic: float
    p: float
    correlation: float
    units: int
    lags: int
    lag: int


def serial_dependence(residual: ArrayLike, x: ArrayLike, lags: int = 3) -> SerialTest:
    """Test whether residuals of a unit depend on earlier ones.

    Parameters
    ----------
    residual : (unit, time) W minus the law's mean, on units the law was not fitted on; NaN where
        not judged. Columns are equally spaced times: a gap breaks the lags across it.
    x : (unit, time, p) inputs of the law; rows with an unseen input are left out.
    lags : 1, ..., lags are tested.

    With few rows for the inputs (5 for each column), cubes are left out of z, then squares, then
    the least varying principal components of x. Fewer than 8 units with a pair: not judged.
    Dependence also shows if E[W_t | S_1:t] involves lags or bends of S that neither the law nor z
    has. Not seen: dependence of the spread on earlier rows, or at longer lags only.
    """
    whole(lags, "serial_dependence: lags", 1)
    r, inputs = np.asarray(residual, np.float64), np.asarray(x, np.float64)
    if r.ndim != 2 or inputs.ndim != 3 or inputs.shape[:2] != r.shape:
        raise DataError(
            "serial_dependence: residual must be (unit, time) and x (unit, time, p), but got "
            f"{r.shape} and {inputs.shape}."
        )
    if np.isinf(r).any() or np.isinf(inputs).any():
        raise DataError("serial_dependence: got infinite values; use NaN where not judged.")
    unit, step = np.nonzero(np.isfinite(r))
    return serial_rows(r[unit, step], inputs[unit, step], Place(unit, step), lags)


def serial_rows(
    residual: Float1,
    x: Float2,
    place: Place,
    lags: int = 3,
    extra: float = 1.0,
    cluster: Int | None = None,
) -> SerialTest:
    """Test the residuals (n,) of rows of an archive; see :func:`serial_dependence`.

    x : (n, p) inputs of the law; rows with an unseen input, or NaN residual, are left out. place :
    where the rows stand, in order of unit and step. extra : t^2 is divided by it. cluster : (n,)
    independent pieces, where they are not the units.
    """
    used = np.isfinite(residual) & np.isfinite(x).all(-1)
    y, kept = residual[used], Place(place.unit[used], place.step[used])
    units = len(np.unique(kept.unit))
    if units < 2:
        return _not_judged(units)
    q = controls(x[used])
    e = y - q @ (q.T @ y)
    if not np.abs(e).max() > 1e-9 * np.abs(y).max():
        return _not_judged(units)  # nothing is left to depend on anything
    piece = kept.unit if cluster is None else cluster[used]
    return _test(e, q, kept, piece, lags, extra)


def ask_serial(case: HeldOut, j: int) -> list[Check]:
    """Ask whether earlier W tell more than the law's inputs, and its memory if it has one, do."""
    judged, memory = case.judged, case.memory
    test = serial_rows(
        case.left[:, j],
        case.x[judged.row],
        judged.place,
        extra=case.memory_extra,
        cluster=judged.cluster,
    )
    test = test._replace(p=min(1.0, test.p * len(case.names)) if np.isfinite(test.p) else test.p)
    kind = "" if memory is None else memory.kind
    return [serial_check(case.names[j], test, kind, case.learns)]


def serial_check(name: str, test: SerialTest, memory: str = "", learns: bool = False) -> Check:
    """Return the verdict on one W; memory : its kind, where the test is of what the filter leaves.

    learns : the law has latents of units, or a state, and was told the unit's earlier W.

    "fail" at p < 0.001 and |correlation| >= 0.05, "warn" at p < 0.01 and >= 0.02, "info" where the
    test did not judge: small dependence passes, however surely it is there.
    """
    label = f"serial {name}"
    who = f"the law with memory {memory!r}" if memory else "the law"
    if not np.isfinite(test.p):
        large = np.isfinite(test.correlation) and abs(test.correlation) >= LARGE
        text = f"Not judged: {test.units} units have rows to compare and {FEWEST} are needed."
        if large:
            text += (
                f" But what {who} leaves of {name} correlates with what it left {test.lag} "
                "step(s) earlier: hold out more units, or cut long ones into stretches, and look."
            )
        return Check(label, "warn" if large else "info", test.correlation, MARGINS[1], text)
    size = abs(test.correlation)
    word = verdict(test.p, size, MARGINS)
    text = (
        f"Correlation of what {who} leaves of {name} with what it left {test.lag} "
        f"step{'s' if test.lag > 1 else ''} earlier, the clearest of {test.lags} lags "
        f"({test.units} units, p = {test.p:.2g} over all lags; it fails below {FAIL} if the "
        f"correlation is {MARGINS[1]} or more)."
    )
    if memory:
        text += f" {name} less what its mean and the unit's earlier {name} predict is judged."
    if word != "pass" and memory:
        text += (
            " So the memory is of another shape, and the filter is not to be trusted: try"
            " 'level+ar', more lags of S or a more flexible mean."
        )
    elif learns:
        text += TOLD.format(name) + (OTHER_SHAPE if word != "pass" else "")
    elif word != "pass":
        text += (
            f" Earlier {name}, hence earlier rewards, tell more than the law's inputs do, which the"
            " radius' guarantee does not cover."
        )
        text += BY_INPUTS
    return Check(label, word, test.correlation, MARGINS[1], text)


def _test(e: Float1, q: Float2, place: Place, cluster: Int, lags: int, extra: float) -> SerialTest:
    units = len(np.unique(place.unit))
    leverage = (q**2).sum(1)
    # a row that Z fits by itself alone leaves no residual, and nothing can be said without it
    part = np.where(leverage < 1.0 - 1e-8, e / np.maximum(1.0 - leverage, 1e-8), 0.0)
    score = special.ndtri(stats.rankdata(e) / (len(e) + 1.0))
    tests = []
    for lag in range(1, min(lags, int(place.step.max())) + 1):
        k, l = place.pairs(lag)  # noqa: E741
        if not len(k):
            continue
        without = e[k] + np.einsum("ij,ij->i", q[k], q[l]) * part[l]
        whose = np.unique(cluster[k], return_inverse=True)[1]
        total = np.bincount(whose, without * score[l]).astype(np.float64)
        scale = np.sqrt((without**2).sum() * (score[l] ** 2).sum())
        test = _lag(total, scale, lag, extra)
        if test is not None:
            tests.append(test)
    if not tests:
        return _not_judged(units)
    judged = [test for test in tests if np.isfinite(test.p)]
    if not judged:
        return max(tests, key=lambda test: abs(test.correlation))._replace(lags=len(tests))
    best = min(judged, key=lambda test: test.p)
    return best._replace(p=min(1.0, best.p * len(judged)), lags=len(judged))


def _lag(by_unit: Float1, scale: float, lag: int, extra: float) -> SerialTest | None:
    """Return the t test of the unit scores of one lag, p NaN for few; None if all are 0."""
    units = len(by_unit)
    error = by_unit.std(ddof=1) * np.sqrt(units) if units > 1 else 0.0
    if not error > 1e-12 * scale:
        return None
    if units < FEWEST:
        return SerialTest(np.nan, np.nan, float(by_unit.sum() / scale), units, 1, lag)
    t = float(by_unit.sum() / (error * np.sqrt(extra)))
    return SerialTest(
        t, float(2.0 * stats.t.sf(abs(t), units - 1)), float(by_unit.sum() / scale), units, 1, lag
    )


def _not_judged(units: int) -> SerialTest:
    return SerialTest(np.nan, np.nan, np.nan, units, 0, 0)


def controls(x: Float2) -> Float2:
    """Return orthonormal columns (n, m) that span powers of the inputs x (n, p), and 1."""
    most = max(min(len(x) // ROWS_A_COLUMN, NUMBERS // len(x)), 1)
    x = _standard(x)
    degree = max((d for d in range(1, DEGREE + 1) if 1 + d * x.shape[1] <= most), default=0)
    if degree:
        powers: Array = np.concatenate([_standard(x**d) for d in range(1, degree + 1)], axis=1)
    else:
        # directions that vary most are, among lags, the slow ones: those that could masquerade
        powers = x @ np.linalg.eigh(x.T @ x)[1][:, ::-1][:, : most - 1]
    z = np.concatenate([np.ones((len(x), 1)), powers], axis=1)
    value, vector = np.linalg.eigh(z.T @ z)
    keep = value > RANK * value[-1]
    out: Float2 = z @ (vector[:, keep] / np.sqrt(value[keep]))
    return out


def _standard(x: Float2) -> Float2:
    """Centre and scale columns; columns that do not vary are dropped."""
    centred = x - x.mean(0)
    spread = centred.std(0)
    varies = spread > 1e-12 * np.maximum(np.abs(x).max(0, initial=0.0), 1e-300)
    out: Float2 = centred[:, varies] / spread[varies]
    return out
