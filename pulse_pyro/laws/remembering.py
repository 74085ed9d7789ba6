"""Laws that know the memory of what they leave of W: taught by an archive, or fitted with it."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Bool, Float2
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.base import FittedLaw, ModelCard, Summary, UnfittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.laws.adapter import LawAdapter, as_law
from pulse_pyro.laws.memory import Memory, MemoryKind, fit_memory, known_kind


def with_memory(law: Any, archive: History, kind: MemoryKind = "ar") -> Any:
    """Return a fitted law that also knows how what it leaves of W persists, in ``.memory``.

    Parameters
    ----------
    law : a fitted law, or any object with ``__call__`` and ``schema``.
    archive : units to learn from; W is seen there. Rows without W, or with an input that is not
        seen, are gaps of which only the time counts.
    kind : "ar": u_t = keep u_{t-1} + noise; "level": units have levels of their own, which do not
        fade; "level+ar": both. See :class:`Memory` for the equations.

    The law that is returned is of the same class and answers as before: means, covariances and
    draws are those given S alone, and its ``id`` is the same, because calibrations and saves speak
    of that mean, which memory does not change. Laws of another make, which have no place for a
    memory, come back wrapped. ``diagnose`` asks ``serial`` of what the filter leaves.

    Residuals on the units a flexible law was fitted on are too small, and look too much like noise:
    teach its memory by units it has not seen, and hold out others for ``diagnose`` (which units
    taught a memory is not recorded). Linear laws on many rows can do with their own archive. No
    ball is valid once residuals have memory, see :class:`Memory`. A law with latents of units has
    the levels of its own units in its mean, and is refused a "level" learned from them.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = pp.laws.with_memory(pp.linear_lags(5).fit(history, seed=0), history, "ar")
    >>> law.memory.keep.shape, law.memory.shock.shape
    ((1,), (1, 1))
    """
    kind = known_kind(kind, "with_memory")
    fitted = as_law(law, "with_memory")
    residual = residuals(fitted, archive, "with_memory")
    known = set(getattr(fitted, "members", ())) & set(archive.units)
    if known and "level" in kind:
        raise SettingError(
            f"with_memory: the law knows the latents of {len(known)} of these units, so what it "
            f"leaves of their W shows no {kind!r}; pass units it has not seen, as history.split("
            "0.5, seed=0) holds them out."
        )
    memory = fit_memory(residual, archive.unit_of, archive.step, kind, "with_memory")
    if is_dataclass(fitted) and any(field.name == "memory" for field in fields(fitted)):
        return replace(fitted, memory=memory)
    return LawAdapter(fitted, memory)


def memory_of(law: object) -> Memory | None:
    """Return the memory a law was given, None if it has none."""
    memory = getattr(law, "memory", None)
    return memory if isinstance(memory, Memory) else None


def residuals(law: FittedLaw, archive: History, where: str) -> Float2:
    """Return W minus the law's mean, (rows, w_dim); NaN where W or what the law looks at is not.

    where : for the message about an archive of other columns.
    """
    if not isinstance(archive, History):
        raise DataError(
            f"{where}: a History was expected, but got {type(archive).__name__}; make one with "
            "History.from_frame."
        )
    law.schema.expect(archive.schema, where, "the archive has")
    out: Float2 = np.where(inputs_seen(law, archive)[:, None], archive.w, np.nan)
    at = np.flatnonzero(np.isfinite(out).all(-1))
    out[at] -= law(archive, at).mean()
    return out


def inputs_seen(law: FittedLaw, archive: History) -> Bool:
    """Return (rows,) where all that the law looks at was seen.

    A filter fills in lags that were not: elsewhere earlier W do tell more, whatever the law.
    """
    window = getattr(law.summary, "window", None)  # of a filter
    raw = window if isinstance(window, Lags) else law.summary
    return np.asarray(np.isfinite(archive.inputs(raw)).all(-1))


@dataclass(frozen=True)
class RememberingLaw:
    """A law, not yet fitted, whose fit also learns the memory of what it leaves of W.

    law : any law that is not fitted. kind : see :func:`with_memory`, which also says what residuals
    of the units a law was fitted on are good for.
    """

    law: UnfittedLaw
    kind: MemoryKind

    def __post_init__(self) -> None:
        known_kind(self.kind, "with_memory")

    @property
    def name(self) -> str:
        """That of the law."""
        return self.law.name

    @property
    def summary(self) -> Summary:
        """What of the past of S the law looks at."""
        return self.law.summary

    @property
    def engines(self) -> tuple[type, ...]:
        """Engines the law can be fitted by."""
        return self.law.engines

    def check(self, history: Any) -> ModelCard:
        """Look at the law's model on a few rows."""
        return self.law.check(history)

    def fit(self, history: History, how: Any = None, *, seed: int, warm: Any = None) -> Any:
        """Fit the law, and then its memory on the same archive; see :func:`with_memory`."""
        return with_memory(self.law.fit(history, how, seed=seed, warm=warm), history, self.kind)
