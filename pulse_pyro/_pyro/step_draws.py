"""A program with a state at the posterior draws that predictions are mixed over: its filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from pulse_pyro._core.arrays import Float, Float3, Int, whole
from pulse_pyro._pyro import answers
from pulse_pyro._pyro.compiled import flat_program
from pulse_pyro._pyro.filters import Filter, StateBelief, StepRows, make_filter
from pulse_pyro._pyro.program import Program, StepCard
from pulse_pyro._pyro.sandbox import quiet

COPIES = 4  # independent particle filters of each draw, from whose spread their error is told


class FlatSteps(NamedTuple):
    """Flat programs, None where there is none: see ``flat_program``.

    step : (first, second, past (1, 1, memory, s_dim), y (1, 1, columns)) -> what is known then;
    means : (first, second, past (1, memory, s_dim)) -> (draw, 1, w_dim).
    """

    step: Callable[..., Any] | None
    means: Callable[..., Any] | None


@dataclass(frozen=True, eq=False)
class ProgramDraws:
    """A program at some draws of its parameters, each filtered once, or by particles four times.

    Attributes
    ----------
    program, card : as checked. values : global site -> (draw, *site shape).
    particles : of a draw, in all of its filters. seed : of their random numbers.

    Where there is no exact filter, each draw has ``COPIES`` filters that share its particles and
    nothing else. The copies of a draw stand together, and count as draws in all that is asked; how
    they differ tells how far off they are. NOT told: their common bias, of the order of the square
    of one filter's error over the sd of the state; it counts where many draws are averaged, or
    where a row is so surprising that few particles are left.
    """

    program: Program
    card: StepCard
    values: Mapping[str, Float]
    particles: int
    seed: int

    @property
    def filtered_exactly(self) -> bool:
        """Whether the state is summed or integrated out without Monte Carlo error."""
        return self.card.state != "particles"

    @property
    def copies(self) -> int:
        """Filters of a draw."""
        return 1 if self.filtered_exactly else COPIES

    @property
    def each(self) -> int:
        """Particles of one filter."""
        return self.particles // COPIES

    @cached_property
    def count(self) -> int:
        """Filters of all draws."""
        return len(next(iter(self.values.values()))) * self.copies

    @cached_property
    def w_dim(self) -> int:
        """Numbers of W that Phi sees."""
        return sum(self.program.widths)

    @cached_property
    def filter(self) -> Filter:
        """All filters, as one."""
        with quiet():
            return self.filter_at(np.arange(self.count))

    def filter_at(self, index: Int) -> Filter:
        """Return some of the filters, by their places."""
        picked = {n: torch.tensor(v[index // self.copies]) for n, v in self.values.items()}
        p = self.program.parameters(picked)
        return make_filter(self.program, p, len(index), self.card.state, self.each)

    @cached_property
    def flat(self) -> FlatSteps:
        """One step and one mean without Pyro, as they are asked for online."""
        if not self.filtered_exactly:
            return FlatSteps(None, None)
        every, columns = np.arange(self.count), self.program.sampled

        def met(first: Any, second: Any, past: Any, y: Any) -> Any:
            rows = StepRows(past, y)
            return tuple(self.filter_at(every).go(StateBelief(first, second), rows, columns)[0][0])

        def means(first: Any, second: Any, past: Any) -> Any:
            answer = self.filter_at(every).answer(StateBelief(first, second), past)
            return answers.means(answer, answers.closed_site_mean)

        with quiet(0, "flat"):
            known = [value.clone() for value in self.filter.start(1)]
            shape = (1, 1, self.program.memory, len(self.program.s_names))
            past = [torch.randn(shape) for _ in range(2)]
            y = [torch.randn(1, 1, len(columns)) for _ in range(2)]
            for each in past:
                each[..., -1, self.program.sampled_at] = torch.nan
            y[1][..., :1] = torch.nan  # not seen
            step = flat_program(met, (*known, past[0], y[0]), (*known, past[1], y[1]))
            if not self.card.closed_mean:
                return FlatSteps(step, None)
            one, two = ((*known, each[0]) for each in past)
            return FlatSteps(step, flat_program(means, one, two))

    def randomness(self, *names: str | int) -> tuple[Any, ...]:
        """Return what seeds a filter's random numbers; nothing where it needs none."""
        return () if self.filtered_exactly else (self.seed, *names)

    def pick(self, size: int, rng: np.random.Generator) -> Int:
        """Choose among the filters: each equally often, in random order."""
        whole(size, f"{self.program.label}: the number of draws", 1)
        every = [rng.permutation(self.count) for _ in range(-(-size // self.count))]
        return np.concatenate(every)[:size]

    def by_draw(self, each: Float) -> Float:
        """Average what the copies of a draw say, (filter, ...): (draw, ...)."""
        out: Float = each.reshape(-1, self.copies, *each.shape[1:]).mean(1)
        return out

    def squared_errors(self, each: Float3) -> Float3:
        """Return the variance of :meth:`by_draw` around its expectation, (draw, ...)."""
        apart = each.reshape(-1, self.copies, *each.shape[1:])
        out: Float3 = apart.var(1, ddof=1) / self.copies
        return out
