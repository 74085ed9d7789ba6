"""What a law with a state says of W at rows: a mixture over posterior draws and over the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float3, Int, whole
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro import answers
from pulse_pyro._pyro.filters import StateBelief, effective
from pulse_pyro._pyro.sandbox import quiet
from pulse_pyro._pyro.step_draws import ProgramDraws
from pulse_pyro.base import Expectation, FeatureMap
from pulse_pyro.features import Features, enumerated, expectation, partly_enumerated
from pulse_pyro.laws.fitted import w_beside
from pulse_pyro.laws.responses import covariance_of

CHUNK = 2**21  # values in flight
SHARES = 1000  # draws behind a distribution function, or covariance, without a closed form
MOST_CELLS = 4096  # values of all columns together that are gone through


class StepConditional:
    """p^(W | S_1:t) at n rows: a mixture over posterior draws and over what is known of the state.

    law : the program at its posterior draws. belief : of the state at the rows. past : (n, memory,
    s_dim). s : (n, s_dim). means : (draw, n, w_dim), where they are known better than from
    ``belief``, which may hold fewer particles.
    """

    def __init__(
        self,
        law: ProgramDraws,
        belief: StateBelief,
        past: Float3,
        s: Float2,
        means: Float3 | None = None,
    ) -> None:
        self.law, self.s = law, s
        self._belief, self._past, self._means = belief, past, means

    @property
    def exact(self) -> bool:
        """Whether the mean is closed form given the stored draws."""
        return self.law.card.closed_mean and self.law.filtered_exactly

    def mean(self) -> Float2:
        """Return E[W | S_1:t], (n, w_dim); NaN where an S that W needs is not seen."""
        out: Float2 = self._draw_means.mean(0)
        return out

    @cached_property
    def _draw_means(self) -> Float3:
        """(draw, n, w_dim) E[W | S_1:t, draw]."""
        import torch

        if self._means is not None:
            return self._means
        if len(self.s) == 1 and self.law.flat.means is not None:
            found: Float3 = self.law.flat.means(*self._belief, torch.tensor(self._past)).numpy()
            return found
        return self._each(answers.means)

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Return posterior draws of E[W | S_1:t], (size, n, w_dim)."""
        out: Float3 = self.law.by_draw(self._draw_means)[
            self.law.pick(size, rng) // self.law.copies
        ]
        return out

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, (size, n, w_dim): each draw uses one posterior draw, and one state a row."""
        return self.draws_of(self.law.pick(size, rng), rng)

    def draws_of(self, index: Int, rng: np.random.Generator) -> Float3:
        """Draw W once for each of the filters, by their places: (len(index), n, w_dim)."""
        seed, block = int(rng.integers(2**62)), max(CHUNK // (len(index) * self._cells), 1)
        parts = []
        with quiet(seed, "draws"):
            chosen_filter = self.law.filter_at(index)
            for start in range(0, len(self.s), block):
                belief, past = self._rows(slice(start, start + block), index)
                parts.append(answers.sampled(chosen_filter.answer(belief, past)).numpy())
        return np.concatenate(parts, axis=1) if parts else np.empty((len(index), 0, self.law.w_dim))

    @cached_property
    def support(self) -> Float2 | None:
        """The values W can take, (cells, w_dim), where they are finitely many; else None.

        Also None without an exact filter, which knows their chances but roughly.
        """
        return self._codes if self.law.filtered_exactly and self._fixed.all() else None

    def probabilities(self) -> Float2:
        """Return P(W = value | S_1:t), (n, cells), of the values in :attr:`support`."""
        return self._chances

    @cached_property
    def _chances(self) -> Float2:
        assert self._codes is not None
        blocks = self._blocks(answers.chances, cells=len(self._codes))
        return np.concatenate([each.mean(0) for each in blocks])

    @property
    def _fixed(self) -> Bool:
        """(w_dim,) columns of few values."""
        values = self.law.card.values
        return np.repeat([bool(each) for each in values], self.law.program.widths)

    @property
    def _codes(self) -> Float2 | None:
        """What the columns of few values take together, (cells, their w_dim); None: too much."""
        few = [values for values in self.law.card.values if values]
        if not few or prod(map(len, few)) > MOST_CELLS:
            return None
        return np.array([np.concatenate(cell) for cell in product(*few)])

    @cached_property
    def closed_cdf(self) -> bool:
        """Whether :meth:`cdf` is closed form given the stored draws."""
        if not self.law.filtered_exactly:
            return False
        try:
            next(self._blocks(answers.cdfs, np.zeros((len(self.s), self.law.w_dim))))
        except NotImplementedError:
            return False
        return True

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi((S_t, W), a) | S_1:t], mean and mcse (n, action, d).

        Exact given the posterior draws where the filter is and W takes finitely many values, or Phi
        is affine in w (in the columns of w that have not finitely many) and the mean closed form;
        otherwise by ``size`` draws.

        Without an exact filter nothing is exact; the error is then told from the independent copies
        of each draw's filter, and holds what they and the draws of W (so many at least that every
        copy has one; none where Phi is affine in w or W takes a few values) contribute.
        """
        if not self.law.filtered_exactly:
            phi = features
            if not isinstance(phi, Features):
                phi = Features(features, features.actions, features.names)
            return self._by_copies(phi, size, rng)
        if self.support is not None:
            return enumerated(features, self.s, self.support, self.probabilities())
        if self.exact and self._fixed.any() and self._codes is not None:
            found = partly_enumerated(features, self.s, self._fixed, *self._by_codes(self._codes))
            if found is not None:
                return found
        return expectation(self, features, self.s, size=size, rng=rng)

    def _by_copies(self, phi: Features, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi] as the average over all filters, and how far the copies of a draw differ.

        With v_d the squared error of draw d, told by its copies, that of the average over D draws
        is the sum over d of v_d / D^2.
        """
        codes = self._codes if self._fixed.all() else None
        phi.check_rows(self.s, self._draw_means[0])
        if codes is not None:
            size, chance = 0, self._each(answers.chances, cells=len(codes))
            points = np.broadcast_to(codes[:, None], (len(codes), *self._draw_means.shape[1:]))
            each = [
                np.einsum("mnc,cnd->mnd", chance, self._phi_at(phi, points, a))
                for a in range(phi.actions)
            ]
        else:
            w = self._draw_means[None]
            if self.law.card.closed_mean and phi.affine_in_w(self.s, self.mean()):
                size = 0
            else:  # every filter draws as often
                times = -(-whole(size, "expect: size", 2) // self.law.count)
                size = times * self.law.count
                drawn = self.draws_of(np.tile(np.arange(self.law.count), times), rng)
                w = drawn.reshape(times, *self._draw_means.shape)
            each = [np.mean([self._phi_at(phi, v, a) for v in w], 0) for a in range(phi.actions)]
        squares = [self.law.squared_errors(one).mean(0) * self.law.copies for one in each]
        mcse = np.sqrt(np.stack(squares, axis=1) / self.law.count)
        return Expectation(np.stack([one.mean(0) for one in each], axis=1), mcse, False, size)

    def _phi_at(self, phi: Features, w: Float3, action: int) -> Float3:
        """Return Phi at w (m, n, w_dim) and S of the rows, (m, n, d)."""
        s = np.broadcast_to(self.s, (len(w), *self.s.shape)).reshape(-1, self.s.shape[-1])
        return phi(s, w.reshape(-1, w.shape[-1]), action).reshape(*w.shape[:2], -1)

    def _by_codes(self, codes: Float2) -> tuple[Float3, Float2]:
        """Return E[W | codes], (n, cells, w_dim), and P(codes), (n, cells)."""
        blocks = self._blocks(answers.means_by_codes, cells=len(codes))
        both = np.concatenate([each.mean(0) for each in blocks])
        chance: Float2 = both[..., 0]
        points = np.empty((*chance.shape, self.law.w_dim))
        points[..., self._fixed] = codes
        # a cell without a chance has no mean: any number will do, it is not counted
        points[..., ~self._fixed] = both[..., 1:] / np.where(chance > 0.0, chance, 1.0)[..., None]
        return points, chance

    @property
    def rough(self) -> Float2:
        """Standard error of each draw's E[W], (n, w_dim), the root mean square over draws.

        That of :meth:`mean`, their average, is smaller by the root of the number of draws. 0 with
        an exact filter.
        """
        if self.law.filtered_exactly:
            return np.zeros((len(self.s), self.law.w_dim))
        out: Float2 = np.sqrt(self.law.squared_errors(self._draw_means).mean(0))
        return out

    def covariance(self) -> Float3:
        """Return Cov(W | S_1:t), (n, w_dim, w_dim): noise, state and posterior together.

        Where a distribution does not know its variance: of 1,000 draws, the same ones every time.
        """
        if self.support is not None:
            return covariance_of(self.support, self.probabilities())
        try:
            within = self._each(answers.covariances).mean(0)
        except NotImplementedError:
            drawn = self.draws(SHARES, rng=stream(0, "covariance"))
            away = drawn - drawn.mean(0)
            return np.asarray(np.einsum("mni,mnj->nij", away, away) / (len(drawn) - 1))
        away = self._draw_means - self._draw_means.mean(0)
        return np.asarray(within + np.einsum("mni,mnj->nij", away, away) / len(away))

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim); NaN where w is.

        Closed form given draws and states for distributions with a distribution function, a few
        values, or counts; for others the share of 1,000 draws, the same ones every time.
        """
        w = self._beside(w)
        try:
            out: Float2 = self._each(answers.cdfs, w).mean(0)
        except NotImplementedError:
            drawn = self.draws(SHARES, rng=stream(0, "cdf"))
            out = np.where(np.isnan(drawn[0]), np.nan, (drawn <= w).mean(0))
        return np.where(np.isnan(w), np.nan, out)

    def log_density(self, w: Float2) -> Float2:
        """Return log p^(W_j = w_j | S_1:t), (n, w_dim), column by column; NaN where w is."""
        w = self._beside(w)
        each = self._each(answers.log_densities, w)
        out: Float2 = special.logsumexp(each, axis=0) - np.log(len(each))
        return np.where(np.isnan(w), np.nan, out)

    def joint_log_density(self, w: Float2) -> Float1:
        """Return log p^(W = w | S_1:t), (n,), all columns together; NaN where one of w is."""
        each = self._each(answers.joint_log_densities, self.law.program.encoded(self._beside(w)))
        out: Float1 = special.logsumexp(each, axis=0) - np.log(len(each))
        return out

    def log_densities(self, w: Float2, index: Int) -> Float2:
        """Return log p(W = w | S_1:t, draw), (len(index), n), of chosen draws, by their places."""
        found = self._each(answers.joint_log_densities, self.law.program.encoded(self._beside(w)))
        return self._per_draw(found)[index]

    def column_log_densities(self, w: Float2, index: Int) -> Float3:
        """Return log p(W_j = w_j | S_1:t, draw), (len(index), n, w_dim), of chosen draws."""
        return self._per_draw(self._each(answers.log_densities, self._beside(w)))[index]

    def _per_draw(self, log: Float) -> Float:
        """Average densities over the copies of a draw."""
        apart = log.reshape(-1, self.law.copies, *log.shape[1:])
        out: Float = special.logsumexp(apart, axis=1) - np.log(self.law.copies)
        return out

    @property
    def effective_size(self) -> float:
        """Particles that count, the least of any row and draw; infinite with an exact filter."""
        if self.law.filtered_exactly:
            return float("inf")
        return float(effective(self._belief.second).min())

    @property
    def _cells(self) -> int:
        """Values a draw has in flight at a row."""
        parts = self._belief.first if self.law.filtered_exactly else self._belief.second
        power = 2 if self.law.card.state == "gaussian" else 1
        widest = max(len(values) for values in ((), *self.law.card.values)) or 1
        cells: int = parts.shape[-1] ** power * self.law.w_dim * widest
        return cells

    def _beside(self, w: ArrayLike) -> Float2:
        return w_beside(w, (len(self.s), self.law.w_dim), self.law.program.label)

    def _rows(self, at: slice, index: Int | None = None) -> tuple[StateBelief, Any]:
        """Return what is known at some rows, of some draws, and their past as tensors."""
        import torch

        def part(values: Any) -> Any:
            if values.ndim < 2:
                return values
            return values[:, at] if index is None else values[:, at][torch.as_tensor(index)]

        belief = StateBelief(*(part(values) for values in self._belief))
        return belief, torch.as_tensor(self._past[at])

    def _each(self, ask: Callable[..., Any], *given: Float2, cells: int = 1) -> Float:
        """Ask the law of W, (draw, n, ...); given : (n, ...) for each row."""
        return np.concatenate(list(self._blocks(ask, *given, cells=cells)), axis=1)

    def _blocks(self, ask: Callable[..., Any], *given: Float2, cells: int = 1) -> Iterator[Float]:
        """Yield (draw, rows, ...) block of rows by block; cells : values asked for at a row."""
        import torch

        block = max(CHUNK // (self.law.count * self._cells * cells), 1)
        # a mean without a closed form is drawn: the same way every time
        seed = () if self.law.card.closed_mean else (0, "ask")
        for start in range(0, max(len(self.s), 1), block):
            part = slice(start, start + block)
            with quiet(*seed):
                belief, past = self._rows(part)
                told = (torch.tensor(each[part]) for each in given)
                found = ask(self.law.filter.answer(belief, past), *told).numpy()
            yield found
