"""Laws in files: list them, start a new one, check one before any data are touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro.arrays import Float1
from pulse_pyro.errors import DataError, ModelError
from pulse_pyro.files import write_whole
from pulse_pyro.history import History
from pulse_pyro.laws.from_file import law_from_file, story
from pulse_pyro.laws.law import Law
from pulse_pyro.seeds import stream

if TYPE_CHECKING:
    from pandas import DataFrame

BUILT_IN = ("linear_lags", "gaussian_process", "neural_density", "state_space")
QUANTILES = (0.05, 0.5, 0.95)
TEMPLATE = '''"""{name}: what W is, in one sentence; `pulse-pyro models` shows this line.

    W_t = a + b'x_t + sd * e_t,   e_t ~ N(0, 1),   x_t = (S_t, S_{{t-1}}).

Say here when to use it and what it does not cover.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(2)  # what the model sees of the past: x = (S_t, S_(t-1)), p = 2 numbers a row
DIMS = {{"b": ("input",)}}  # names of site axes, for tables


def model(x, w=None):
    """x (rows, p); w (rows, 1) in the archive, None when W is to be predicted."""
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 1.0))
    loc = a + (x * b).sum(-1)  # not x @ b: (x * b).sum(-1) also works for many draws of b at once
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)
'''


@dataclass(frozen=True, eq=False)
class LawCheck:
    """A law's file that meets the contract: its card, and what its priors alone say about W.

    prior : (3, w_dim) 5 %, 50 % and 95 % points of W over 200 prior draws; rows : how many rows,
    and of which archive, it was run on.
    """

    name: str
    card: ModelCard
    prior: Float1
    rows: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        sites = [[s.name, s.kind, list(s.shape), s.distribution] for s in self.card.sites]
        return {
            "name": self.name, "ok": True, "inputs": self.card.x_dim, "w_dim": self.card.w_dim,
            "vectorised": self.card.vectorised, "unseen": self.card.unseen, "sites": sites,
            "prior": self.prior.tolist(), "rows": self.rows,
        }  # fmt: skip

    def __repr__(self) -> str:
        low, middle, high = (", ".join(f"{v:.3g}" for v in row) for row in self.prior)
        return (
            f"{self.name}: {self.card!r}\n"
            f"  before any data, its priors put W in {low} to {high} (90 %), median {middle}\n"
            f"  run on {self.rows}"
        )


def list_laws(folder: str | Path = "models") -> DataFrame:
    """Return the built-in laws and the files of a folder, one line each; no file is run."""
    import pandas as pd

    import pulse_pyro

    rows = []
    for name in BUILT_IN:
        doc = (getattr(pulse_pyro, name).__doc__ or "").strip().split("\n", 1)[0]
        rows.append((name, "built in", doc))
    where = Path(folder)
    for file in sorted(where.glob("*.py")) if where.is_dir() else ():
        rows.append((str(file), "file", story(file)))
    return pd.DataFrame(rows, columns=["law", "kind", "story"]).set_index("law")


def new_law(path: str | Path) -> Path:
    """Write a law's file that passes :func:`check_law` as it is, and return its path."""
    file = Path(path)
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ModelError(f"new: {file} must be a Python file with a plain name, such as my_law.py.")
    if file.exists():
        raise ModelError(f"new: {file} exists; choose another name, nothing was written.")
    return write_whole(file, TEMPLATE.format(name=file.stem))


def check_law(path: str | Path, history: History | None = None) -> LawCheck:
    """Load a law's file and run its model on a few rows, or say which rule it breaks.

    Without an archive the rows are made up: one standard normal S, and W drawn from the model's
    own prior, so that its support fits. NOT checked: that the model describes your data.
    """
    law = law_from_file(path)
    made = history is None
    archive = _made_up(law) if history is None else history
    card = law.check(archive)
    from pulse_pyro._pyro.simulate import prior_w

    x = archive.rows(law.summary).x[:50] if not made else _inputs(law, archive)
    model = law.model_for(x.shape[1], card.w_dim)
    w = np.concatenate([prior_w(model, x, r) for r in range(200)])
    if not np.isfinite(w).all():
        raise ModelError(f"{law.label}: W drawn from the prior is not finite; tighten the priors.")
    names = "made-up rows of one S column" if made else f"{len(archive.units)} units of the archive"
    return LawCheck(law.label, card, np.quantile(w, QUANTILES, axis=0), names)


def _inputs(law: Law, archive: History) -> Any:
    x = law.summary(archive.s)
    return x.reshape(-1, x.shape[-1])[np.isfinite(x).all(-1).ravel()][:50]


def _made_up(law: Law) -> History:
    """Six units, one S column, W from the model's prior; zeros where the model cannot run."""
    from pulse_pyro._pyro.simulate import prior_w

    length = law.summary.memory + 8
    s = stream(0, "made up").standard_normal((6, length, 1))
    try:
        x = law.summary(s)
        whole = np.isfinite(x).all(-1)
        drawn = prior_w(law.model_for(x.shape[-1], 1), x[whole], 0)
        drawn = drawn if drawn.ndim == 2 else np.zeros((len(drawn), 1))
        w = np.zeros((6, length, drawn.shape[-1]))
        w[whole] = drawn
    except Exception:  # whatever is wrong, the contract check says it better
        w = np.zeros((6, length, 1))
    names = tuple(f"unit{i}" for i in range(6))
    columns = tuple(f"w{j}" for j in range(w.shape[-1]))
    if not np.isfinite(w).all():
        raise DataError(f"{law.label}: W drawn from the prior is not finite; tighten the priors.")
    return History(s, w, np.ones((6, length), dtype=np.bool_), names, ("s",), columns)
