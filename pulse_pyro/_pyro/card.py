"""What the contract check found out about a model. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pandas import DataFrame


SLOW = (
    "\n  slow because the model does not broadcast over draws: write (x * b).sum(-1) for x @ b, "
    "sd[..., None], and .to_event(1) on vector sites"
)
DISCRETE = (
    "\n  site {!r} is discrete: no engine fits it; sum it out (MixtureSameFamily), or bring a "
    "guide of your own for Svi"
)


@dataclass(frozen=True)
class Site:
    """One sample site of a model.

    ``global`` sites stand outside plate "rows" and make up the posterior; ``unit`` ones stand in
    plate "units", belong to single units of the archive and are not stored; ``local`` ones stand
    inside "rows", are redrawn for new rows and never stored; ``observed`` is the site w.
    """

    name: str
    kind: Literal["global", "unit", "local", "observed"]
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    distribution: str
    discrete: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one draw."""
        return self.batch_shape + self.event_shape


@dataclass(frozen=True)
class ModelCard:
    """A model that meets the contract: its sites and how fast it can be run.

    Attributes
    ----------
    sites : every sample site, in order.
    x_dim, w_dim : width of the inputs and of w.
    vectorised : the model gives the same law when all draws run at once (fast prediction);
        otherwise prediction loops over draws.
    closed_mean : w has a closed-form mean given the global sites.
    nesting : plate dimensions the model uses; draws go to the left of them.
    unseen : what becomes of inputs that are not seen at prediction time.
    """

    sites: tuple[Site, ...]
    x_dim: int
    w_dim: int
    vectorised: bool
    nesting: int
    closed_mean: bool
    unseen: str = "refused"

    @property
    def globals(self) -> tuple[Site, ...]:
        """Sites that make up the posterior."""
        return tuple(site for site in self.sites if site.kind == "global")

    @property
    def locals(self) -> tuple[Site, ...]:
        """Latent sites of single rows."""
        return tuple(site for site in self.sites if site.kind == "local")

    @property
    def table(self) -> DataFrame:
        """One line per site."""
        import pandas as pd

        rows = [(s.name, s.kind, s.shape, s.distribution, s.discrete) for s in self.sites]
        return pd.DataFrame(rows, columns=["site", "kind", "shape", "distribution", "discrete"])

    def __repr__(self) -> str:
        speed = "all draws at once" if self.vectorised else "draw by draw (slow)"
        latent = ", ".join(f"{s.name}{list(s.shape)}" for s in self.globals) or "none"
        local = ", ".join(s.name for s in self.locals) or "none"
        missing = {
            "refused": "rounds that lack one are refused",
            "learned": "learned, for inputs training saw missing; refused for others",
        }
        return (
            f"ModelCard: ok, {self.x_dim} inputs -> w[{self.w_dim}], predicts {speed}\n"
            f"  global sites: {latent}\n  local sites: {local}\n"
            f"  unseen inputs: {missing.get(self.unseen, self.unseen)}"
            + "".join(DISCRETE.format(s.name) for s in self.sites if s.discrete)
            + ("" if self.vectorised else SLOW)
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(index=False)}"
