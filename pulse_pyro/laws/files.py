"""Laws in Python files: load one, list the gallery, start a new one, check one before any data."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro._core.errors import DataError, ModelError, PulseError, nearest
from pulse_pyro._core.files import run_file, write_whole
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import ModelCard
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity
from pulse_pyro.laws import LAWS
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.step import StepLaw

if TYPE_CHECKING:
    from pandas import DataFrame

# A law from a Python file: one file, one model.


NAMES = ("model", "SUMMARY", "DIMS", "UNSEEN", "guide")
PROGRAM = ("prior", "first", "step")


def law_from_file(path: str | Path) -> Law | StepLaw:
    """Return the law a Python file describes; the file is run, so name only files you trust.

    The file defines ``model(x, w=None)`` and, if it likes, ``SUMMARY`` (Identity() otherwise),
    ``DIMS`` (names of site axes), ``guide`` (for Svi) and ``UNSEEN`` ("refused" or "conditioned
    on"), as in :class:`Law`. The law is named after the file. A law with a state defines
    ``prior()``, ``first(p)`` and ``step(p, z, s_past)`` instead, and ``MEMORY`` if it looks at more
    rows of S than the newest, as in :class:`StepLaw`.
    """
    file = Path(path)
    if not file.is_file():
        there = sorted(other.name for other in file.parent.glob("*.py"))
        raise ModelError(f"law_from_file: there is no file {file}{nearest(file.name, there)}")
    if file.suffix != ".py":
        raise ModelError(f"law_from_file: {file} is not a Python file (.py).")
    module = run_file(file)
    if not hasattr(module, "model") and any(hasattr(module, name) for name in PROGRAM):
        return _program(module, file)
    _misnamed(module, file)
    model: Any = getattr(module, "model", None)
    if not callable(model):
        raise ModelError(f"{file}: 'model' must be a function model(x, w=None), it is {model!r}.")
    try:
        return Law(
            model,
            getattr(module, "SUMMARY", Identity()),
            file.stem,
            getattr(module, "DIMS", {}),
            getattr(module, "guide", None),
            getattr(module, "UNSEEN", "refused"),
        )
    except PulseError as cause:
        raise ModelError(f"{file}: {cause}") from cause


def _program(module: ModuleType, file: Path) -> StepLaw:
    absent = [name for name in PROGRAM if not callable(getattr(module, name, None))]
    if absent:
        raise ModelError(
            f"{file}: it defines no function {absent[0]!r}; a law with a state has prior(), "
            "first(p) and step(p, z, s_past)."
        )
    prior, first, step = (getattr(module, name) for name in PROGRAM)
    try:
        return StepLaw(prior, first, step, getattr(module, "MEMORY", 1), name=file.stem)
    except PulseError as cause:
        raise ModelError(f"{file}: {cause}") from cause


def story(path: str | Path) -> str:
    """Return the first sentence of a file's docstring, without running the file."""
    import ast

    try:
        text = ast.get_docstring(ast.parse(Path(path).read_text())) or ""
    except (OSError, SyntaxError, ValueError) as cause:
        return f"cannot be read: {type(cause).__name__}: {cause}"
    return text.strip().split("\n", 1)[0]


def _misnamed(module: ModuleType, file: Path) -> None:
    """Catch a name that would silently be ignored: Model, summary, dims, Guide, ..."""
    mine = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, type | ModuleType)
    ]
    for name in mine:
        meant = [wanted for wanted in NAMES if wanted.lower() == name.lower() and wanted != name]
        if meant and meant[0] not in mine:
            raise ModelError(f"{file}: {name!r} is not used; did you mean {meant[0]!r}?")
    if "model" not in mine:
        raise ModelError(
            f"{file}: it defines no 'model'{nearest('model', mine)} A law's file has a function "
            "model(x, w=None)."
        )


# Laws in files: list them, start a new one, check one before any data are touched.


STARTER = "linear_lags"  # the built-in law that TEMPLATE is
QUANTILES = (0.05, 0.5, 0.95)
MOST_COLUMNS = 6  # of S in made-up rows
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
    and of which archive, it was run on; drawn : (200 * rows, w_dim) these W, codes of levels.
    """

    name: str
    card: ModelCard
    prior: Float1
    rows: str
    drawn: Float2

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        sites = [[s.name, s.kind, list(s.shape), s.distribution] for s in self.card.sites]
        return {
            "name": self.name,
            "ok": True,
            "inputs": self.card.x_dim,
            "w_dim": self.card.w_dim,
            "vectorised": self.card.vectorised,
            "unseen": self.card.unseen,
            "sites": sites,
            "prior": self.prior.tolist(),
            "rows": self.rows,
        }

    def __repr__(self) -> str:
        low, middle, high = (", ".join(f"{v:.3g}" for v in row) for row in self.prior)
        return (
            f"{self.name}: {self.card!r}\n"
            f"  before any data, its priors put W in {low} to {high} (90 %), median {middle}\n"
            f"  run on {self.rows}"
        )


def gallery() -> dict[str, Path]:
    """Return the laws that come with the package as files to copy from, name -> file."""
    package = Path(str(files("pulse_pyro")))
    shipped = package / "models"  # in an installed package; in the repository it lies beside it
    folder = shipped if shipped.is_dir() else package.parent / "models"
    return {file.stem: file for file in sorted(folder.glob("*.py"))}


def list_laws(folder: str | Path | None = None) -> DataFrame:
    """Return the built-in laws, the gallery and the files of a folder, one line each.

    folder : ./models if there is one, when none is named. No file is run.
    """
    import pandas as pd

    rows = []
    for name in LAWS:
        doc = (named(LAWS, name).__doc__ or "").strip().split("\n", 1)[0]
        rows.append((name, "built in", doc))
    known = gallery()
    rows += [(name, "gallery", story(file)) for name, file in known.items()]
    shown = {file.resolve() for file in known.values()}  # in the repository ./models is the gallery
    own = sorted(Path("models" if folder is None else folder).glob("*.py"))
    rows += [(str(file), "file", story(file)) for file in own if file.resolve() not in shown]
    return pd.DataFrame(rows, columns=["law", "kind", "story"]).set_index("law")


def new_law(path: str | Path, *, like: str = STARTER) -> Path:
    """Write a law's file that passes :func:`check_law` as it is, and return its path.

    like : a law of the gallery, which is copied, or "linear_lags". The other built-in laws are more
    than a function model(x, w=None), so no file can start from them.
    """
    file = Path(path)
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ModelError(f"new: {file} must be a Python file with a plain name, such as my_law.py.")
    known = gallery()
    if like != STARTER and like not in known:
        if like in LAWS:
            raise ModelError(
                f"new: {like} is built in and has no file to copy; name it in a study or call "
                f"pulse_pyro.{like}, or start from one of {', '.join([STARTER, *known])}."
            )
        raise ModelError(f"new: there is no law {like!r}{nearest(like, [STARTER, *known])}")
    if file.exists():
        raise ModelError(f"new: {file} exists; choose another name, nothing was written.")
    if like == STARTER:
        return write_whole(file, TEMPLATE.format(name=file.stem))
    return write_whole(file, known[like].read_text(encoding="utf-8"))


def check_law(path: str | Path, history: History | None = None) -> LawCheck:
    """Load a law's file and run its model on a few rows, or say which rule it breaks.

    Without an archive the rows are made up: standard normal S, of as many columns, up to six, as
    the model needs, and W drawn from its own prior, so that its support fits. NOT checked: that
    the model describes your data.
    """
    law = law_from_file(path)
    if isinstance(law, StepLaw):
        return _check_program(law, history)
    made = history is None
    archive, card = _run_on_made_up(law) if history is None else (history, law.check(history))
    from pulse_pyro._pyro.predict import prior_w

    x = archive.rows(law.summary).x[:50] if not made else _inputs(law, archive)
    model = law.model_for(x.shape[1], card.w_dim)
    runs = [prior_w(model, x, r, card.columns, card.by_unit) for r in range(200)]
    w = np.concatenate(runs)
    if not np.isfinite(w).all():
        raise ModelError(f"{law.label}: W drawn from the prior is not finite; tighten the priors.")
    count = len(archive.s_names)
    names = f"{len(archive.units)} units of the archive"
    if made:
        names = f"made-up rows of {'one S column' if count == 1 else f'{count} S columns'}"
    return LawCheck(law.label, card, np.quantile(w, QUANTILES, axis=0), names, w)


def _check_program(law: StepLaw, history: History | None) -> LawCheck:
    """Check a law with a state; without an archive, on made-up rows of columns "s" and "w"."""
    made = History.from_arrays(
        stream(0, "made up").standard_normal((6, law.memory + 8, 1)),
        np.full((6, law.memory + 8, 1), np.nan),
        s_names=("s",),
        w_names=("w",),
    )
    archive = made if history is None else history
    try:
        card = law.check(archive)
    except ModelError as cause:
        if history is not None:
            raise
        raise ModelError(
            f"{cause} It ran on made-up rows of columns s and w; columns of other names are known "
            "by an archive: pulse-pyro check FILE.py --data archive.csv --unit person --time day "
            "--observed steps --missing mood, or check_law(path, history)."
        ) from cause
    w = law.simulate(archive, 200, seed=0).w.reshape(-1, card.w_dim)
    if not np.isfinite(w).all():
        raise ModelError(f"{law.label}: W drawn from the prior is not finite; tighten the priors.")
    rows = "made-up rows of columns s and w"
    if history is not None:
        rows = f"{len(history.units)} units of the archive"
    return LawCheck(law.label, card, np.quantile(w, QUANTILES, axis=0), rows, w)


def _inputs(law: Law, archive: History) -> Any:
    x = archive.inputs(law.summary)
    return x[np.isfinite(x).all(-1)][:50]


def _run_on_made_up(law: Law) -> tuple[History, ModelCard]:
    """Return made-up rows of as few S columns as the model runs on, and what it says of them."""
    first: PulseError | None = None
    for columns in range(1, MOST_COLUMNS + 1):
        try:
            archive = _made_up(law, columns)
            return archive, law.check(archive)
        except PulseError as cause:
            first = first or cause
    assert first is not None
    raise first


def _made_up(law: Law, count: int) -> History:
    """Six units, a few S columns, W from the model's prior; zeros where the model cannot run."""
    from pulse_pyro._pyro.contract import asked_columns, asks_for_units
    from pulse_pyro._pyro.predict import prior_w

    columns: tuple[str, ...] = ()
    length = law.summary.memory + 8
    s = stream(0, "made up").standard_normal((6, length, count))
    try:
        x = law.summary(s)
        whole = np.isfinite(x).all(-1)
        model = law.model_for(x.shape[-1], 1)
        columns = asked_columns(model, x[whole])
        by_unit = asks_for_units(model, x[whole])
        drawn = prior_w(model, x[whole], 0, columns, by_unit)
        drawn = drawn if drawn.ndim == 2 else np.zeros((len(drawn), 1))
        w = np.zeros((6, length, drawn.shape[-1]))
        w[whole] = drawn
    except Exception:  # whatever is wrong, the contract check says it better
        w = np.zeros((6, length, 1))
    names = tuple(f"unit{i}" for i in range(6))
    columns = columns or tuple(f"w{j}" for j in range(w.shape[-1]))
    if not np.isfinite(w).all():
        raise DataError(f"{law.label}: W drawn from the prior is not finite; tighten the priors.")
    s_names = ("s",) if count == 1 else tuple(f"s{j}" for j in range(count))
    return History.from_arrays(s, w, units=names, s_names=s_names, w_names=columns)
