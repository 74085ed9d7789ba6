"""One table of a settings file, read key by key: unknown, missing and ill-typed keys are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pulse_pyro.errors import PulseError, SettingError, nearest


class Table:
    """Values of one section, and what the section may hold.

    where : for messages, e.g. "study.toml [data]". known : key -> what a value looks like, shown
    where the key is missing.
    """

    def __init__(self, values: Any, where: str, known: Mapping[str, str]) -> None:
        if not isinstance(values, dict):
            raise SettingError(f"{where} must be a section of keys, but {values!r} came.")
        self.values, self.where, self.known = values, where, known
        for key in values:
            if key not in known:
                raise SettingError(f"{where} has no key {key!r}{nearest(key, known)}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def need(self, key: str) -> Any:
        """Return a value that must be there."""
        if key not in self.values:
            raise SettingError(f"{self.where} needs {key!r}; add {key} = {self.known[key]}.")
        return self.values[key]

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        value = self.need(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text stands for a list of one."""
        value = self.need(key)
        many = [value] if isinstance(value, str) else value
        if not isinstance(many, list) or not many or not all(isinstance(v, str) for v in many):
            raise self._wrong(key, value)
        return tuple(many)

    def whole(self, key: str) -> int:
        """Return a whole number."""
        value = self.need(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number, or the default where the key is not there."""
        if default is not None and key not in self.values:
            return default
        value = self.need(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, value)
        return float(value)

    def choice(self, key: str, options: tuple[str, ...], default: str | None = None) -> str:
        """Return one of the options, or the default where the key is not there."""
        if default is not None and key not in self.values:
            return default
        value = self.text(key)
        if value not in options:
            raise SettingError(
                f"{self.where} {key}: there is no {value!r}{nearest(value, options)}"
            )
        return value

    def file(self, key: str, folder: Path) -> Path:
        """Return a path that exists, relative ones beginning at ``folder``."""
        path = folder / self.text(key)
        if not path.is_file():
            there = [str(p.relative_to(folder)) for p in sorted(folder.glob(f"*{path.suffix}"))]
            raise SettingError(
                f"{self.where} {key}: there is no file {path}{nearest(self.text(key), there)}"
            )
        return path

    def one_of(self, keys: tuple[str, ...]) -> str:
        """Return the single key that is there of several that exclude each other."""
        found = [key for key in keys if key in self.values]
        if len(found) != 1:
            ways = " or ".join(f"{key} = {self.known[key]}" for key in keys)
            came = f"{' and '.join(found)} came together" if found else "none came"
            raise SettingError(f"{self.where} needs one of {ways}; {came}.")
        return found[0]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Put the section's name before what goes wrong inside."""
        try:
            yield
        except PulseError as cause:
            raise type(cause)(f"{self.where} {cause}") from cause

    def _wrong(self, key: str, value: object) -> SettingError:
        return SettingError(
            f"{self.where} {key} should look like {self.known[key]}, but {value!r} came."
        )
