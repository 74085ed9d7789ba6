"""Simulation-based calibration: does an engine return the posterior of the model it was given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float, Float1, Float2, Int, whole
from pulse_pyro._core.errors import ModelError, SettingError, nearest
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Ensemble, Inference
from pulse_pyro.base import FAIL, Check, picture, verdict
from pulse_pyro.data.history import History
from pulse_pyro.laws.law import FitData, Law
from pulse_pyro.laws.step import StepLaw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

RANKS = 99  # posterior draws a rank is taken among: 100 possible ranks
BINS = 10
NULL, BLOCK = 400_000, 20_000  # simulated histograms the p-value is read from, at a time
RARE = 20  # simulated histograms beyond the observed one that are enough to count
SBC_WARN = 0.05  # one p-value speaks for all parameters


@dataclass(frozen=True, eq=False)
class Sbc:
    """Ranks of true parameters among posterior draws, uniform if the fit is what it says.

    Attributes
    ----------
    ranks : (replication, parameter) in 0 .. 99.
    names : the scalar parameters.
    p_values : (parameter,) of a uniform histogram in 10 bins, Pearson's statistic, simulated null.
    inference, seed : how.
    """

    ranks: Int
    names: tuple[str, ...]
    p_values: Float1
    inference: str
    seed: int

    @property
    def p_value(self) -> float:
        """Smallest p-value times the number of parameters (Bonferroni)."""
        return float(min(1.0, self.p_values.min() * len(self.p_values)))

    @property
    def check(self) -> Check:
        """The verdict: fail below 0.001, warn below 0.05."""
        worst = self.names[int(self.p_values.argmin())]
        word = verdict(self.p_value, limits=(SBC_WARN, FAIL))
        text = f"p-value of uniform ranks over {len(self.ranks)} simulated archives, worst {worst}."
        if word != "pass":
            text += f" {self._shape(worst)}"
        return Check("sbc", word, self.p_value, FAIL, text)

    def _shape(self, name: str) -> str:
        """Say in words what the histogram of one parameter looks like."""
        share = self.counts[:, self.names.index(name)] / len(self.ranks)
        if min(share[0], share[-1]) > 1 / BINS:
            return "Truths fall outside the draws too often: the posterior is too narrow."
        if max(share[0], share[-1]) < 1 / BINS:
            return "Truths crowd the middle of the draws: the posterior is too wide."
        low = share[: BINS // 2].sum() < 0.5
        return f"Draws lie too {'low' if low else 'high'}: the posterior is off centre."

    @property
    def counts(self) -> Int:
        """(bin, parameter) histogram of ranks in 10 bins."""
        return _counts(self.ranks)

    @property
    def table(self) -> DataFrame:
        """One line per parameter: p-value and the histogram."""
        import pandas as pd

        index = pd.Index(self.names, name="parameter")
        frame = pd.DataFrame(self.counts.T, index=index, columns=[f"{k}0s" for k in range(BINS)])
        frame.insert(0, "p_value", self.p_values)
        return frame

    def plot(self, ax: Axes | None = None, parameter: str | None = None) -> Axes:
        """Draw the rank histogram of a parameter (the worst one) and the range of a uniform one."""
        name = parameter or self.names[int(self.p_values.argmin())]
        if name not in self.names:
            raise SettingError(f"Sbc.plot: there is no {name!r}{nearest(name, self.names)}")
        return picture("rank_histogram")(self, name, ax)

    def __repr__(self) -> str:
        order = np.argsort(self.p_values)[:8]
        lines = [f"  {self.names[i]}: p {self.p_values[i]:.3g}" for i in order]
        more = [f"  ... and {len(self.names) - 8} more"] if len(self.names) > 8 else []
        head = f"Sbc: {self.check.verdict}, {self.inference}. {self.check.text}"
        return "\n".join([head, *lines, *more])

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>"


def sbc(
    law: Law | StepLaw,
    history: History,
    inference: Inference | None = None,
    *,
    replications: int = 100,
    seed: int,
) -> Sbc:
    """Fit a law to archives drawn from its own prior and rank the truth among the draws.

    Parameters
    ----------
    law : any Law, or a StepLaw; a built-in one is judged in the standardised units it works in.
    history : gives the inputs x and the units of the rows; its W is not used, nor is S where a
        StepLaw samples it.
    inference : the engine to judge; by default the law's own.
    replications : simulated archives, at least 20; each is one fit.
    seed : of all of it.

    Over the prior, the rank of a true parameter among exact posterior draws is uniform. A slope
    in the histogram is bias, a cup is over-confidence, a dome the opposite. It judges the engine
    on data the model itself made: it says NOTHING about whether the model suits your data.
    """
    if not isinstance(law, Law | StepLaw):
        raise ModelError(
            f"sbc: a Law was expected, but got {type(law).__name__}; state_space laws and "
            "regressors have no prior to draw from."
        )
    whole(replications, "sbc: replications", 20)
    if isinstance(law, StepLaw):
        found = _by_steps(law, history, inference, replications, seed)
    else:
        found = _by_rows(law, history, inference, replications, seed)
    how, ranks, names = found
    return Sbc(ranks, names, _uniform(ranks, seed), how, int(seed))


def _by_steps(
    law: StepLaw, history: History, inference: Inference | None, replications: int, seed: int
) -> tuple[str, Int, tuple[str, ...]]:
    """Rank the truth of archives a program with a state has made: the engine, ranks and names."""
    ranks: list[Int] = []
    names: tuple[str, ...] = ()
    how = ""
    for r in bar(range(replications), label="sbc"):
        drawn = law.simulate(history, 1, seed=_seed(seed, r))
        own = replace(history, s=history.flat(drawn.s[0]), w=history.flat(drawn.w[0]))
        fitted = law.fit(own, inference, seed=_seed(seed, r))
        how, truth = fitted.record.inference, {name: v[0] for name, v in drawn.truth.items()}
        ranked, names = _ranks(truth, dict(fitted.draws), stream(seed, "ties", r))
        ranks.append(ranked)
    return how, np.stack(ranks), names


def _by_rows(
    law: Law, history: History, inference: Inference | None, replications: int, seed: int
) -> tuple[str, Int, tuple[str, ...]]:
    """Rank the truth of archives a model has made row by row: the engine, ranks and names."""
    how = law.engine(inference)
    if isinstance(how, Ensemble):
        raise ModelError("sbc: an ensemble of networks is no posterior; there is nothing to rank.")
    if isinstance(history, History):  # every row with inputs counts
        history = replace(history, w=_filled(history.w, hasattr(law.family, "settle")))
    data, settled = law.prepare(history)
    card = settled.check(history)
    from pulse_pyro._pyro.predict import simulate_prior

    rows = replace(data.rows, x=data.x)
    model = settled.model_for(data.x.shape[1], data.w_dim)
    ranks: list[Int] = []
    names: tuple[str, ...] = ()
    for r in bar(range(replications), label="sbc"):
        drawn = simulate_prior(model, data.x, data.unit, card, seed, r)
        if not np.isfinite(drawn.w).any():
            raise ModelError(
                f"sbc: archive {r} drawn from the prior of {law.label} has no W at all."
            )
        own = FitData.raw(replace(rows, w=drawn.w), data.columns, data.units)
        _, fit = settled.fit_data(own, how, _seed(seed, r))
        ranked, names = _ranks(drawn.truth, fit.draws, stream(seed, "ties", r))
        ranks.append(ranked)
    return repr(how), np.stack(ranks), names


def _filled(w: Float2, levels: bool) -> Float2:
    """Return W without a gap: zeros, or, where its levels are asked of it, a value it has."""
    if not levels or np.isnan(w).all():
        return np.zeros_like(w)
    known = np.flatnonzero(~np.isnan(w).any(-1))
    return np.where(np.isnan(w), w[known[0]] if len(known) else 0.0, w)


def _seed(seed: int, replication: int) -> int:
    return int(stream(seed, "fit", replication).integers(2**31))


def _ranks(
    truth: dict[str, Float], draws: dict[str, Float], rng: np.random.Generator
) -> tuple[Int, tuple[str, ...]]:
    """Rank each scalar of the truth among 99 draws spread over all of them."""
    out, names = [], []
    for name, value in truth.items():
        posterior = draws[name]
        if len(posterior) < RANKS:
            raise ModelError(
                f"sbc: the engine returned {len(posterior)} draws, {RANKS} are needed."
            )
        some = posterior[np.linspace(0, len(posterior) - 1, RANKS).round().astype(int)].reshape(
            RANKS, -1
        )
        flat = np.asarray(value).reshape(-1)
        below, equal = (some < flat).sum(0), (some == flat).sum(0)
        out.append(below + rng.integers(0, equal + 1))
        names += [f"{name}[{i}]" for i in range(len(flat))] if len(flat) > 1 else [name]
    return np.concatenate(out), tuple(names)


def _counts(ranks: Int) -> Int:
    """Histogram of ranks (replication, parameter) in 10 bins: (bin, parameter)."""
    bins = ranks * BINS // (RANKS + 1)
    return np.stack([(bins == k).sum(0) for k in range(BINS)])


def _uniform(ranks: Int, seed: int) -> Float1:
    """Return p-values of Pearson's statistic of each column, against simulated histograms."""
    count = len(ranks)
    expected = count / BINS
    rng = stream(seed, "null")
    parts = []
    for _ in range(NULL // BLOCK):
        null = rng.multinomial(count, np.full(BINS, 1.0 / BINS), size=BLOCK)
        parts.append(((null - expected) ** 2).sum(1) / expected)
    reference = np.sort(np.concatenate(parts))
    seen = ((_counts(ranks) - expected) ** 2).sum(0) / expected
    above = NULL - np.searchsorted(reference, seen - 1e-9)
    # beyond what simulation can tell apart the chi-square limit goes on, with room for what it
    # misses in small samples (a factor of 2 to 5 there)
    limit = 5.0 * np.asarray(stats.chi2.sf(seen, BINS - 1))
    return np.where(above >= RARE, (above + 1.0) / (NULL + 1.0), limit)
