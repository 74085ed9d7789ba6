"""One law bounded by one band: what both give at any context, in batch and one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import Band
from pulse_pyro.bands.support import Support
from pulse_pyro.base import Check, FittedLaw, Follower
from pulse_pyro.calibration.targets import MissingTargets, Targets
from pulse_pyro.data.history import History, Source, context_rows, series_of

CONTEXTS = 1_000_000  # a calibration may be asked for, in all, before Monte Carlo failures add up
POLICY_DRAWS = 256  # Monte Carlo draws a policy uses at least
MC_SHARE = 0.05  # of the allowed failures, given to Monte Carlo error where there is any
MOST_MC = 0.1  # share of a bound that Monte Carlo error may make
FORECAST = "forecast"


@dataclass(frozen=True, eq=False)
class BandInputs:
    """Which numbers a band looks at: inputs of the law, columns of S_t, the law's own forecasts.

    x : columns of the law's inputs. s : columns of S_t. forecast : targets. names : of all of them,
    in this order. given_z : whether these are the numbers that Phi itself sees, all of them and no
    others: columns of S_t, and the forecast of every target.
    """

    x: Int
    s: Int
    forecast: Int
    names: tuple[str, ...]
    given_z: bool = False

    def __call__(self, x: Float2, s: Float2, forecast: Float2) -> Float2:
        """Pick them from rows x (n, p), s (n, s_dim), forecast (n, q)."""
        picked = [x[:, self.x], s[:, self.s], forecast[:, self.forecast]]
        return np.concatenate(picked, axis=1)

    @staticmethod
    def whole(x_names: Sequence[str]) -> BandInputs:
        """All that the law looks at."""
        nothing = np.zeros(0, np.int64)
        return BandInputs(np.arange(len(x_names)), nothing, nothing, tuple(x_names))

    @staticmethod
    def seen_by_phi(s: Int, s_names: Sequence[str], targets: Sequence[str]) -> BandInputs:
        """Columns s of S_t, and the forecast of every target: z, all that Phi sees."""
        names = (*(s_names[i] for i in s), *(f"{FORECAST} of {name}" for name in targets))
        return BandInputs(np.zeros(0, np.int64), s, np.arange(len(targets)), names, given_z=True)

    @staticmethod
    def named(
        names: Sequence[str], x_names: Sequence[str], s_names: Sequence[str], targets: Sequence[str]
    ) -> BandInputs:
        """Find inputs by name: of the law's inputs, of S_t, "forecast" or "forecast of w"."""
        x: list[int] = []
        s: list[int] = []
        forecast: list[int] = []
        for name in names:
            if name in x_names:
                x.append(list(x_names).index(name))
            elif name in s_names:
                s.append(list(s_names).index(name))
            elif name == FORECAST:
                forecast += [j for j in range(len(targets)) if j not in forecast]
            elif name in (every := [f"{FORECAST} of {target}" for target in targets]):
                forecast.append(every.index(name))
            else:
                every = [*x_names, *s_names, FORECAST, *every]
                raise SettingError(
                    f"calibrate: there is no input {name!r}{nearest(str(name), every)} Known are "
                    "the law's inputs, the columns of S, and 'forecast'."
                )
        if not names or len(set(names)) < len(names):
            raise SettingError(
                f"calibrate: inputs must name one column or more, each once, but got {names!r}."
            )
        labels = [x_names[i] for i in x] + [s_names[i] for i in s]
        labels += [f"{FORECAST} of {targets[j]}" for j in forecast]
        of_x, of_s, of_w = (np.array(found, np.int64) for found in (x, s, forecast))
        return BandInputs(of_x, of_s, of_w, tuple(labels))


class Budget(NamedTuple):
    """The pieces of a bound, (n, q), and what is inside the domain, (n,)."""

    centre: Float2
    half: Float2
    predicted: Float2
    monte_carlo: Float2
    inside: Bool

    @property
    def total(self) -> Float2:
        """R + |m - mu_p^| + Monte Carlo error."""
        return self.half + np.abs(self.centre - self.predicted) + self.monte_carlo


@dataclass(frozen=True, eq=False)
class Part:
    """A law, a band made on other rows, and how errors reach the features.

    band : of E[target - mu_p^ | z] where ``own_error``, else of E[target | z]. inputs : z.
    failures : allowed probability for Monte Carlo error, 0 if exact. size, seed : Monte Carlo draws
    where the law's mean is not closed form. support : where the archive has contexts near by; None
    where the band's own domain says it. longest : steps of the longest held-out unit: nobody has
    looked at what comes after them.
    """

    law: FittedLaw
    band: Band
    targets: Targets
    inputs: BandInputs
    own_error: bool
    failures: float
    size: int
    seed: int
    support: Support | None = None
    longest: float = np.inf

    def budget(self, source: Source) -> Budget:
        """Evaluate band and law at the rows of an archive, or of s (batch, time, s_dim).

        NaN where an input is.
        """
        x, s = context_rows(source, self.law.summary, self.law.schema, "Calibration")
        rng = stream(self.seed, "calibration")
        predicted, mcse = self.targets.predicted(self.law(source), self.size, rng)
        values = self.band.at(self.inputs(x, s, predicted))
        centre = values.centre + predicted if self.own_error else values.centre
        return Budget(centre, values.half, predicted, self.monte_carlo(mcse), values.inside)

    def monte_carlo(self, mcse: Float2) -> Float2:
        """Return what Monte Carlo may add to the error, (n, q), by its standard errors (n, q)."""
        # two Monte Carlo errors, either sign: of this prediction, and of a policy's own with fewer
        # draws; as many contexts as a long run may ask for, however they are split into calls
        count = 4.0 * CONTEXTS * mcse.shape[-1] * self.targets.features.actions
        both = 1.0 + np.sqrt(self.size / POLICY_DRAWS)
        z = both * float(stats.norm.isf(self.failures / count)) if self.failures > 0 else 0.0
        return z * mcse

    def near(self, source: Source) -> Bool:
        """Tell which rows (n,) have archived contexts near by; a search, so only where asked.

        Rows of an archive, or of s (batch, time, s_dim) from the step 0 of each series on; with a
        context per action, (batch, time, action, s_dim), a round is near if every action's is.
        """
        if not isinstance(source, History) and np.ndim(source) == 4:
            s = np.asarray(source)
            each = [self.near(s[:, :, a]) for a in range(s.shape[2])]
            return np.asarray(np.all(each, axis=0))
        x, s = context_rows(source, self.law.summary, self.law.schema, "Calibration")
        step = source.step if isinstance(source, History) else _steps(np.shape(source))
        soon: Bool = step < self.longest
        if self.support is None:
            return soon
        rng = stream(self.seed, "calibration")
        predicted, _ = self.targets.predicted(self.law(source), self.size, rng)
        return soon & self.support.inside(self.inputs(x, s, predicted))

    def errors(self, source: Source) -> tuple[Float3, Bool]:
        """Return E (n, action, d) and inside (n,) at the rows of an archive or of series.

        Series are (batch, time, s_dim), or (batch, time, action, s_dim) with a context per action;
        then a round is inside if every action's context is.
        """
        actions = range(self.targets.features.actions)
        if isinstance(source, History) or np.ndim(source) != 4:
            return self._errors_of(source, list(actions))
        s = np.asarray(source)
        if s.shape[2] != len(actions):
            raise DataError(
                f"Calibration: s must hold a context for each of {len(actions)} actions, but its "
                f"shape is {s.shape}."
            )
        each = [self._errors_of(s[:, :, a], [a]) for a in actions]
        return (
            np.concatenate([e for e, _ in each], axis=1),
            np.all([inside for _, inside in each], axis=0),
        )

    def _errors_of(self, source: Source, actions: list[int]) -> tuple[Float3, Bool]:
        budget = self.budget(source)
        names = self.law.schema.s_names
        s = source.s if isinstance(source, History) else series_of(source, names, "Calibration")
        rows: Float2 = s.reshape(-1, len(names))
        columns = [self.targets.errors(rows, budget.total, a) for a in actions]
        return np.stack(columns, axis=1), budget.inside

    def missing_error(self, follower: Follower) -> Float1:
        """Return eps = r + |m - E_p^[W_t]|, (q,): the bound on E[W]'s error at the newest row."""
        if not isinstance(self.targets, MissingTargets):
            raise SettingError("calibrated errors: Phi is not affine in w.")
        asked = follower.conditional
        if not asked.exact:
            raise SettingError("calibrated errors: E[W] of this law carries Monte Carlo error.")
        mean = asked.mean()[:, self.targets.used]
        values = self.band.at(self.inputs(follower.inputs()[None], follower.now[None], mean))
        gap = values.centre if self.own_error else values.centre - mean
        out: Float1 = (values.half + np.abs(gap))[0]
        return out


def _steps(shape: tuple[int, ...]) -> Int:
    """Return which step each row of series (batch, time, s_dim) is, (batch * time,)."""
    return np.tile(np.arange(shape[1]), shape[0])


def draws_check(
    monte_carlo: Float2, total: Float2, names: Sequence[str], size: int
) -> Check | None:
    """Ask whether Monte Carlo error is a small part of the bound; None where there is none.

    monte_carlo, total : (n, q) what it adds to the bound, and the bound, of targets ``names``.
    size : draws made here. More of them would not do: a policy has 256 a round or more of its own,
    whose error, the larger of the two from 256 on, is allowed for beside it.
    """
    shares = monte_carlo.mean(0) / total.mean(0)
    if not shares.max() > 0:
        return None
    worst = int(shares.argmax())
    share = float(shares[worst])
    text = f"Share of the mean bound of {names[worst]} that is Monte Carlo error, of {size} draws "
    text += f"here and {POLICY_DRAWS} in a policy."
    if share > MOST_MC:
        text += " No history takes it away: a law with expectations in closed form, or Phi affine "
        text += "in W, has none."
    return Check("Monte Carlo", "warn" if share > MOST_MC else "pass", share, MOST_MC, text)
