"""Discrete latents of units: summed out of a fit, then drawn given everything else.

With k_u the discrete latents of unit u, whatever it has of them together,

    p(w_u | theta) = sum_k p(k | theta) prod_(rows i of u) p(w_i | k, theta),

a sum of K terms a unit and not K^units, because units are independent given theta. NOT covered: a
continuous site whose prior depends on k_u; sample its noise and shift it, m[k] + s * noise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.poutine as poutine
import torch

from pulse_pyro._core.arrays import Float
from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.sites import SumOver


@dataclass(frozen=True, eq=False)
class UnitSums:
    """A model bound to its data with discrete latents of rows and of units to sum over.

    rows, units : names of these sites. nesting : axes that plates use. unit : (n,) of each row.
    """

    model: Callable[..., Any]
    rows: tuple[str, ...]
    units: tuple[str, ...]
    nesting: int
    unit: torch.Tensor

    def summed(self, *args: Any) -> None:
        """Run the model without them: only the other latents are left."""
        table, rest, axes, _ = self._run(args)
        each = torch.logsumexp(table, dim=tuple(axes))
        pyro.factor("_summed_over_units", each.sum() + rest)

    def drawn(self, args: tuple[Any, ...], known: Mapping[str, Float]) -> dict[str, Float]:
        """Draw the latents of units from p(k_u | theta, data), (m, units) each.

        known : draws of all other latents, (m, ...).
        """
        held = {name: torch.tensor(value) for name, value in known.items()}
        count = len(next(iter(held.values())))
        found: dict[str, list[torch.Tensor]] = {name: [] for name in self.units}
        for i in range(count):
            own = {name: value[i] for name, value in held.items()}
            with torch.no_grad(), poutine.block(), poutine.condition(data=own):
                table, _, axes, values = self._run(args)
            sizes = [table.shape[axis] for axis in axes]
            # the axes of the sites, the first site's first, and one of units
            cells = table.movedim(tuple(axes), tuple(range(len(axes)))).reshape(*sizes, -1)
            flat = cells.reshape(-1, cells.shape[-1])
            at = torch.distributions.Categorical(logits=flat.T).sample()
            for name, place in zip(self.units, torch.unravel_index(at, tuple(sizes)), strict=True):
                found[name].append(values[name].reshape(-1)[place].to(torch.float64))
        return {name: torch.stack(value).numpy() for name, value in found.items()}

    def _run(
        self, args: tuple[Any, ...]
    ) -> tuple[torch.Tensor, torch.Tensor, list[int], dict[str, torch.Tensor]]:
        """Return log p(k_u, w_u | theta), (..., 1, ..., units), and the rest of the log density.

        And the axis of each site of units, and the values along it.
        """
        hidden: set[str] = set()

        def hide(msg: Any) -> bool:
            # noted here, before whoever runs this model holds its parameters at values
            own = msg["type"] == "sample" and (
                msg["is_observed"] or msg["name"] in (*self.rows, *self.units)
            )
            if own:
                hidden.add(msg["name"])
            elif len(getattr(msg["fn"], "batch_shape", ())) > self.nesting:  # plates have none
                raise ModelError(
                    f"site {msg['name']!r} depends on a discrete latent that is summed out; sample "
                    "its noise, with a law of its own, and shift it: m[..., k] + s * noise."
                )
            return bool(own)

        over = SumOver((*self.rows, *self.units), -self.nesting - 1)
        with poutine.block(hide_fn=hide), poutine.trace() as tracer:
            over(self.model)(*args)
        trace = tracer.trace
        trace.compute_log_prob(site_filter=lambda name, _: name in hidden)
        rows, units, rest = torch.zeros(1), torch.zeros(1), torch.zeros(())
        for name in hidden:
            node = trace.nodes[name]
            plates = {frame.name for frame in node["cond_indep_stack"]}
            if "rows" in plates:
                rows = rows + node["log_prob"]
            elif name in self.units:
                units = units + node["log_prob"]
            else:
                rest = rest + node["log_prob_sum"]
        own = [axis for n, axis in over.axes.items() if n in self.rows and rows.ndim >= -axis]
        rows = torch.logsumexp(rows, dim=tuple(own), keepdim=True) if own else rows
        plates_left = tuple(d for d in range(-self.nesting, -1) if rows.ndim >= -d)
        rows = rows.sum(dim=plates_left, keepdim=True) if plates_left else rows
        size = int(self.unit.max()) + 1
        full = rows.expand(*rows.shape[:-1], len(self.unit))
        by_unit = torch.zeros(*rows.shape[:-1], size).index_add(-1, self.unit, full)
        axes = [over.axes[name] for name in self.units]
        values = {name: trace.nodes[name]["value"].select(-1, 0) for name in self.units}
        return by_unit + units, rest, axes, values
