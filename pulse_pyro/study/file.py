"""A study in a file: which data, which law, which features, what is at stake."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, whole
from pulse_pyro._core.errors import DataError, PulseError, SettingError, nearest
from pulse_pyro._core.registry import named
from pulse_pyro._pyro.inference import ENGINES, Inference
from pulse_pyro.bands import BANDS
from pulse_pyro.bands.band import BandMethod, Noise
from pulse_pyro.base import Column, UnfittedLaw, level_text
from pulse_pyro.calibration.recipe import Mode, Recipe
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags, Window
from pulse_pyro.data.tables import PERIODS, column_names, declare, read_frame, s_columns
from pulse_pyro.envs import POLICIES
from pulse_pyro.features import Features, features_from_file, terms
from pulse_pyro.laws import LAWS
from pulse_pyro.laws.files import law_from_file
from pulse_pyro.laws.step import StepLaw
from pulse_pyro.radius import noise_scale

# One table of a settings file, read key by key: unknown, missing and ill-typed keys are named.


class Table:
    """Values of one section, and what the section may hold.

    where : for messages, e.g. "study.toml [data]". examples : every key the section may have ->
    what its value looks like, shown where the key is missing.
    """

    def __init__(self, values: Any, where: str, examples: Mapping[str, str]) -> None:
        if not isinstance(values, dict):
            raise SettingError(f"{where} must be a section of keys, but got {values!r}.")
        self.values, self.where, self.examples = values, where, examples
        for key in values:
            if key not in examples:
                raise SettingError(f"{where} has no key {key!r}{nearest(key, examples)}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def need(self, key: str) -> Any:
        """Return a value that must be there."""
        if key not in self.values:
            raise SettingError(f"{self.where} needs {key!r}; add {key} = {self.examples[key]}.")
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

    def levels(self, key: str) -> tuple[str, ...]:
        """Return levels in order, as text; 1 and "1" are the same."""
        value = self.need(key)
        fit = isinstance(value, list) and value
        if not fit or not all(type(level) in (str, int, float) for level in value):
            raise self._wrong(key, value)
        return tuple(level_text(level) for level in value)

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

    def yes(self, key: str) -> bool:
        """Return true or false; false where the key is not there."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, value)
        return value

    def file(self, key: str, folder: Path) -> Path:
        """Return a path that exists, relative ones beginning at ``folder``."""
        path = folder / self.text(key)
        if not path.is_file():
            present = [str(p.relative_to(folder)) for p in sorted(folder.glob(f"*{path.suffix}"))]
            raise SettingError(
                f"{self.where} {key}: there is no file {path}{nearest(self.text(key), present)}"
            )
        return path

    def one_of(self, keys: tuple[str, ...]) -> str:
        """Return the single key that is there of several that exclude each other."""
        present = [key for key in keys if key in self.values]
        if len(present) != 1:
            choices = " or ".join(f"{key} = {self.examples[key]}" for key in keys)
            got = f"{' and '.join(present)} are given together" if present else "none is given"
            raise SettingError(f"{self.where} needs one of {choices}; {got}.")
        return present[0]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Put the section's name before what goes wrong inside."""
        try:
            yield
        except PulseError as cause:
            raise type(cause)(f"{self.where} {cause}") from cause

    def _wrong(self, key: str, value: object) -> SettingError:
        return SettingError(
            f"{self.where} {key} should look like {self.examples[key]}, but got {value!r}."
        )


# every key a study may have, with what its value looks like
KEYS = {
    "data": {
        "file": '"archive.csv"',
        "unit": '"unit"',
        "time": '"day"',
        "observed": '["s"]',
        "missing": '["w"]',
        "cluster": '"city", a column, or ["week"], a period of time',
        "kinds": '{city = "categorical", hour = "clock 24"}',
    },
    "law": {"name": '"linear_lags"', "file": '"my_law.py"', "lags": "3", "window": "3"},
    "inference": {"kind": '"laplace"'}
    | {field.name: "1000" for engine in ENGINES.values() for field in fields(engine)},
    "features": {"file": '"features.py"', "terms": '["1", "s", "w", "w*a"]', "actions": "2"},
    "calibration": {
        "level": "0.95",
        "mode": '"split"',
        "fit": "0.5",
        "band": '"auto"',
        "noise": '"auto"',
        "groups": '["city", "forecast"]',
        "inputs": '["forecast"]',
        "splits": "5",
        "misfit": "true",
    },
    "policy": {
        "sigma": "0.5",
        "reward_low": "0.0",
        "reward_high": "1.0",
        "reward_sd": "0.05",
        "context_sd": "0.1",
        "theta_bound": "1.0",
        "ridge": "1.0",
        "delta": "0.05",
        "horizon": "1000",
        "agents": '["pulse", "oful"]',
        "reward": '"reward", a column of the archive',
        "action": '"action", a column of the archive',
    },
}

# of a column that is declared at length
COLUMN = {
    "kind": '"ordinal"',
    "levels": '["low", "high"]',
    "period": "24",
    "unknown": '"other"',
    "unit": '"km"',
}
LEVELLED = ("categorical", "ordinal")  # kinds whose values are text


@dataclass(frozen=True)
class Study:
    """What a study file says, checked; nothing is read or fitted before it is asked for.

    Attributes
    ----------
    path : the file; other paths in it are relative to its folder.
    seed : of everything.
    recipe : sections [inference] and [calibration].
    data, law_section, feature_section, policy : the other sections, key by key.
    splits : on how many random splits the ladder is climbed again, 0: none. misfit : whether the
        smallest misfit that its tests would have seen is looked for.
    """

    path: Path
    seed: int
    recipe: Recipe
    data: Table
    law_section: Table
    feature_section: Table | None
    policy: Table | None
    splits: int = 0
    misfit: bool = False

    @property
    def theta_bound(self) -> float | None:
        """S >= ||theta*||; None where there is no section [policy]."""
        return None if self.policy is None else self.stakes().theta_bound

    @property
    def inference(self) -> Inference | None:
        """The engine asked for; None: the law's best."""
        return self.recipe.inference

    def history(self) -> History:
        """Read the archive: times of text as dates; units, clusters and levels as text."""
        return self._history(self.data.texts("missing"))

    def pilot(self, features: Features) -> tuple[Float2, Float1] | None:
        """Return features of the archive's rows at the arm that was played, and what it paid.

        (n, d), (n,), of the columns [policy] reward and action; None if they are not named.
        """
        if not self.pilot_columns:
            return None
        missing = self.data.texts("missing")
        table = self._history((*missing, *self.pilot_columns))
        w, (paid, arm) = table.w[:, :-2], table.w[:, -2:].T
        known = np.isfinite(paid) & np.isfinite(arm)
        wrong = known & ~np.isin(arm, np.arange(features.actions))
        if wrong.any():
            raise DataError(
                f"{self._section(self.policy, 'policy').where} action: column "
                f"{self.pilot_columns[1]!r} must hold arms from 0 to {features.actions - 1}, but "
                f"it holds {arm[wrong][0]:g}."
            )
        x = np.full((len(paid), len(features.names)), np.nan)
        for a in range(features.actions):
            x[arm == a] = features(table.s[arm == a], w[arm == a], a)
        return x[known], paid[known]

    @property
    def pilot_columns(self) -> tuple[str, ...]:
        """Columns of rewards and actions of a pilot, or none."""
        table = self.policy
        if table is None or not ("reward" in table or "action" in table):
            return ()
        return table.text("reward"), table.text("action")  # one without the other is refused

    def _history(self, missing: tuple[str, ...]) -> History:
        table, kinds, cluster = self.data, self.kinds(), self.cluster()
        file, time = table.file("file", self.path.parent), table.text("time")
        observed = table.texts("observed")
        names = {name for name, column in kinds.items() if column.kind in LEVELLED}
        numbers = {time, *observed, *missing} - names
        ids = {table.text("unit"), cluster} if isinstance(cluster, str) else {table.text("unit")}
        frame = read_frame(file, dates=time, text=sorted(names | (ids - numbers)))
        return History.from_frame(
            frame,
            unit=table.text("unit"),
            time=time,
            observed=observed,
            missing=missing,
            cluster=cluster,
            kinds=kinds,
        )

    def cluster(self) -> str | tuple[str] | None:
        """Return the column of the independent pieces, or (period of time,); None: the units."""
        table = self.data
        if "cluster" not in table:
            return None
        given = table.values["cluster"]
        if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str):
            if given[0] not in PERIODS:
                raise SettingError(
                    f"{table.where} cluster: there is no period of time {given[0]!r}"
                    f"{nearest(given[0], PERIODS)}"
                )
            return (given[0],)
        return table.text("cluster")

    def kinds(self) -> dict[str, Column]:
        """Return the columns that are not plain numbers, by name.

        Each is a kind in words, or a section with kind and levels, period, unknown or unit.
        """
        table = self.data
        if "kinds" not in table:
            return {}
        where, columns = f"{table.where} kinds", table.texts("observed") + table.texts("missing")
        given = Table(table.values["kinds"], where, dict.fromkeys(columns, '"categorical"'))
        with given.blamed():
            return {name: _column(name, given) for name in given.values}

    def law(self) -> UnfittedLaw:
        """Return the law, not yet fitted; lags or window replace the summary of a law's file."""
        table = self.law_section
        summary: Lags | Window | None = None
        if "lags" in table or "window" in table:
            key = table.one_of(("lags", "window"))
            count = table.whole(key)
            summary = Lags(count) if key == "lags" else Window(count, np.mean)
        if table.one_of(("name", "file")) == "file":
            law = law_from_file(table.file("file", self.path.parent))
            if summary is not None and isinstance(law, StepLaw):
                raise SettingError(
                    f"{self.path}: {law.label} has a state and says itself, by MEMORY, how many "
                    "rows of S it looks at; leave lags and window out."
                )
            return (
                law
                if isinstance(law, StepLaw) or summary is None
                else replace(law, summary=summary)
            )
        name = table.choice("name", tuple(LAWS))
        if summary is None:
            table.one_of(("lags", "window"))
        with table.blamed():
            law_by_name: UnfittedLaw = named(LAWS, name)(summary)
        return law_by_name

    def features(self) -> Features:
        """Return Phi, from terms or from a file."""
        table = self._section(self.feature_section, "features")
        if table.one_of(("terms", "file")) == "file":
            if "actions" in table:
                raise SettingError(
                    f"{table.where}: the file itself says how many actions; remove actions."
                )
            return features_from_file(table.file("file", self.path.parent))
        products, actions = table.texts("terms"), table.whole("actions")
        missing, file = self.data.texts("missing"), self.data.file("file", self.path.parent)
        columns = s_columns(file, self.data.texts("observed"), self.kinds())
        observed = [name for column in columns for name in column.names]
        with table.blamed():
            return terms(products, actions, observed=observed, missing=missing)

    def stakes(self) -> Stakes:
        """Return horizon, noise and size of theta*; sigma in one of three ways."""
        table = self._section(self.policy, "policy")
        for first, second in (("reward_low", "reward_high"), ("reward_sd", "context_sd")):
            for key in (first, second) if first in table or second in table else ():
                table.number(key)  # one without the other is refused
        given = table.one_of(("sigma", "reward_low", "reward_sd"))
        table.number(given)
        horizon, size = table.whole("horizon"), table.number("theta_bound")
        ridge, delta = table.number("ridge", 1.0), table.number("delta", 0.05)
        reward_sd: float | None = None
        with table.blamed():
            if given == "reward_low":
                low, high = table.values["reward_low"], table.values["reward_high"]
                sigma = noise_scale(low=low, high=high)
            elif given == "reward_sd":
                reward_sd, context_sd = table.values["reward_sd"], table.values["context_sd"]
                sigma = noise_scale(reward_sd=reward_sd, context_sd=context_sd)
            else:
                sigma = table.values["sigma"]
            return Stakes(horizon, sigma, size, ridge, delta, reward_sd)

    def agents(self) -> tuple[str, ...]:
        """Return the names of the policies to simulate; all of ``envs.POLICIES`` by default."""
        table = self._section(self.policy, "policy")
        if "agents" not in table:
            return tuple(POLICIES)
        names = tuple(dict.fromkeys(table.texts("agents")))
        for name in names:
            if name not in POLICIES:
                hint = nearest(name, POLICIES)
                raise SettingError(f"{table.where} agents: there is no {name!r}{hint}")
        return names

    def _section(self, table: Table | None, name: str) -> Table:
        if table is None:
            keys = ", ".join(f"{key} = {value}" for key, value in KEYS[name].items())
            raise SettingError(f"{self.path.name} has no section [{name}]; add it, with {keys}.")
        return table


def read_study(path: str | Path) -> Study:
    """Read a study file (TOML) and check it; unknown keys are errors, with a suggestion.

    Sections [data] and [law] are needed, [features], [policy], [inference] and [calibration] where
    they are asked for; see notebooks/guide/study.md for an example. NOT checked here: what is in
    the data.
    """
    file = Path(path)
    if (file / "study.toml").is_file():
        raise SettingError(f"study: {file} is a folder; did you mean {file / 'study.toml'}?")
    if not file.is_file():
        there = sorted(other.name for other in file.parent.glob("*.toml"))
        raise SettingError(f"study: there is no file {file}{nearest(file.name, there)}")
    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise SettingError(f"{file} is not valid TOML: {cause}.") from cause
    name = file.name
    top = Table(sections, name, {"seed": "0"} | {key: f"[{key}]" for key in KEYS})
    tables = {
        key: Table(sections[key], f"{name} [{key}]", examples)
        for key, examples in KEYS.items()
        if key in sections
    }
    for key in ("data", "law"):
        if key not in tables:
            keys = ", ".join(f"{k} = {v}" for k, v in KEYS[key].items())
            raise SettingError(f"{name} has no section [{key}]; add it, with {keys}.")
    study = Study(
        path=file,
        seed=top.whole("seed") if "seed" in top else 0,
        recipe=_recipe(tables),
        data=tables["data"],
        law_section=tables["law"],
        feature_section=tables.get("features"),
        policy=tables.get("policy"),
        splits=_splits(tables.get("calibration")),
        misfit="calibration" in tables and tables["calibration"].yes("misfit"),
    )
    _check_at_once(study)
    return study


def _check_at_once(study: Study) -> None:
    """Read everything that costs nothing: a slip on the last line shows before the first fit."""
    data = study.data
    named_columns = {"unit": (data.text("unit"),), "time": (data.text("time"),)} | {
        key: data.texts(key) for key in ("observed", "missing")
    }
    cluster = study.cluster()
    if isinstance(cluster, str):
        named_columns["cluster"] = (cluster,)
    columns = column_names(data.file("file", study.path.parent))
    for key, names in named_columns.items():
        for name in names:
            if name not in columns:
                hint = nearest(name, columns)
                raise DataError(f"{data.where} {key}: there is no column {name!r}{hint}")
    for name in study.pilot_columns:
        if name not in columns:
            raise DataError(
                f"{study.path.name} [policy] reward, action: there is no column {name!r}"
                f"{nearest(name, columns)}"
            )
    study.kinds()
    if study.law_section.one_of(("name", "file")) == "name":
        study.law()
    if study.feature_section is not None and "terms" in study.feature_section:
        study.features()
    if study.policy is not None:
        study.stakes()
        study.agents()


def _column(name: str, kinds: Table) -> Column:
    """Return what one line of kinds declares."""
    given = kinds.values[name]
    if not isinstance(given, str | dict) or not given:
        raise SettingError(f"{name} should look like {kinds.examples[name]}, but got {given!r}.")
    column = declare(name, "S", given) if isinstance(given, str) else _declared(name, given)
    if column.kind == "ordinal" and not column.levels:
        raise SettingError(
            f"{name}: levels of an ordinal column must be named in order; write {name} = "
            '{kind = "ordinal", levels = ["low", "high"]}.'
        )
    return column


def _declared(name: str, given: dict[str, Any]) -> Column:
    """Return a column that is declared at length."""
    table = Table(given, name, COLUMN)
    values: dict[str, Any] = {"kind": table.text("kind")}
    values |= {key: table.text(key) for key in ("unknown", "unit") if key in table}
    if "levels" in table:
        values["levels"] = table.levels("levels")
    if "period" in table:
        values["period"] = table.number("period")
    return replace(declare(name, "S", "real"), **values)


def _recipe(tables: dict[str, Table]) -> Recipe:
    table = tables.get("calibration") or Table({}, "[calibration]", KEYS["calibration"])
    kind = table.choice("band", ("auto", *BANDS), "auto")
    noise: Any = table.choice("noise", get_args(Noise), "auto")
    mode: Any = table.choice("mode", get_args(Mode), "split")
    level, fit, engine = (
        table.number("level", 0.95),
        table.number("fit", 0.5),
        tables.get("inference"),
    )
    how = None if engine is None else _inference(engine)
    with table.blamed():
        return Recipe(
            how,
            level,
            mode,
            fit,
            BandMethod(kind, noise=noise),
            groups=tuple(table.texts("groups")) if "groups" in table else (),
            inputs=tuple(table.texts("inputs")) if "inputs" in table else (),
        )


def _splits(table: Table | None) -> int:
    """Return how many random splits are asked for; 0: none."""
    if table is None or "splits" not in table:
        return 0
    return whole(table.whole("splits"), f"{table.where} splits", 2)


def _inference(table: Table) -> Inference:
    engine = ENGINES[table.choice("kind", tuple(ENGINES))]
    settings = [field.name for field in fields(engine)]
    given = {key: table.need(key) for key in table.values if key != "kind"}
    for key in given:
        if key not in settings:
            raise SettingError(
                f"{table.where} {key} is not for {engine.__name__.lower()}{nearest(key, settings)}"
            )
    with table.blamed():
        return engine(**given)
