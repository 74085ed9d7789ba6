"""A study in a file: which data, which law, which features, what is at stake."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pulse_pyro._pyro.inference import Ensemble, Exact, Inference, Laplace, Nuts, Svi
from pulse_pyro.bands.sample import BandMethod, Kind, Noise
from pulse_pyro.errors import DataError, SettingError, nearest
from pulse_pyro.features import Features
from pulse_pyro.frames import column_names, read_frame
from pulse_pyro.history import History
from pulse_pyro.laws.from_file import law_from_file
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.laws.state_space import StateSpace, state_space
from pulse_pyro.radius import noise_scale
from pulse_pyro.study.recipe import Mode, Recipe
from pulse_pyro.study.settings import Table
from pulse_pyro.study.stakes import Stakes
from pulse_pyro.study.terms import features_from_file, features_from_terms
from pulse_pyro.summary import Lags, Window

LAWS = {
    "linear_lags": linear_lags, "gaussian_process": gaussian_process,
    "neural_density": neural_density, "state_space": state_space,
}  # fmt: skip
ENGINES: dict[str, type[Inference]] = {
    "exact": Exact, "nuts": Nuts, "svi": Svi, "laplace": Laplace, "ensemble": Ensemble,
}  # fmt: skip
# every key a study may have, with what its value looks like
KEYS = {
    "data": {"file": '"archive.csv"', "unit": '"unit"', "time": '"day"', "observed": '["s"]',
             "missing": '["w"]'},
    "law": {"name": '"linear_lags"', "file": '"my_law.py"', "lags": "3", "window": "3"},
    "inference": {"kind": '"laplace"'}
    | {field.name: "1000" for engine in ENGINES.values() for field in fields(engine)},
    "features": {"file": '"features.py"', "terms": '["1", "s", "w", "w*a"]', "actions": "2"},
    "calibration": {"level": "0.95", "mode": '"split"', "fit": "0.5", "band": '"auto"',
                    "noise": '"auto"'},
    "policy": {"sigma": "0.5", "reward_low": "0.0", "reward_high": "1.0", "reward_sd": "0.05",
               "context_sd": "0.1", "theta_bound": "1.0", "ridge": "1.0", "delta": "0.05",
               "horizon": "1000"},
}  # fmt: skip


@dataclass(frozen=True)
class Study:
    """What a study file says, checked; nothing is read or fitted before it is asked for.

    Attributes
    ----------
    path : the file; other paths in it are relative to its folder.
    seed : of everything.
    recipe : sections [inference] and [calibration].
    data, law_section, feature_section, policy : the other sections, key by key.
    """

    path: Path
    seed: int
    recipe: Recipe
    data: Table
    law_section: Table
    feature_section: Table | None
    policy: Table | None

    @property
    def inference(self) -> Inference | None:
        """The engine asked for; None: the law's best."""
        return self.recipe.inference

    def history(self) -> History:
        """Read the archive. A time column of text is read as dates."""
        table = self.data
        file, time = table.file("file", self.path.parent), table.text("time")
        frame = read_frame(file, dates=time)
        return History.from_frame(
            frame, unit=table.text("unit"), time=time, observed=table.texts("observed"),
            missing=table.texts("missing"),
        )  # fmt: skip

    def law(self) -> Law | StateSpace:
        """Return the law, not yet fitted; lags or window replace the summary of a law's file."""
        table = self.law_section
        summary: Lags | Window | None = None
        if "lags" in table or "window" in table:
            key = table.one_of(("lags", "window"))
            count = table.whole(key)
            summary = Lags(count) if key == "lags" else Window(count, np.mean)
        if table.one_of(("name", "file")) == "file":
            law = law_from_file(table.file("file", self.path.parent))
            return law if summary is None else replace(law, summary=summary)
        name = table.choice("name", tuple(LAWS))
        if summary is None:
            table.one_of(("lags", "window"))
        if name == "state_space" and isinstance(summary, Window):
            raise SettingError(f"{table.where}: state_space keeps lags of S; use lags, not window.")
        made: Law | StateSpace = LAWS[name](summary)  # type: ignore[operator]
        return made

    def features(self) -> Features:
        """Return Phi, from terms or from a file."""
        table = self._section(self.feature_section, "features")
        if table.one_of(("terms", "file")) == "file":
            if "actions" in table:
                raise SettingError(
                    f"{table.where}: the file itself says how many actions; remove actions."
                )
            return features_from_file(table.file("file", self.path.parent))
        terms, actions = table.texts("terms"), table.whole("actions")
        observed, missing = self.data.texts("observed"), self.data.texts("missing")
        with table.blamed():
            return features_from_terms(terms, actions, observed=observed, missing=missing)

    def stakes(self) -> Stakes:
        """Return horizon, noise and size of theta*; sigma in one of three ways."""
        table = self._section(self.policy, "policy")
        for first, second in (("reward_low", "reward_high"), ("reward_sd", "context_sd")):
            for key in (first, second) if first in table or second in table else ():
                table.number(key)  # one without the other is refused
        way = table.one_of(("sigma", "reward_low", "reward_sd"))
        table.number(way)
        horizon, size = table.whole("horizon"), table.number("theta_bound")
        ridge, delta = table.number("ridge", 1.0), table.number("delta", 0.05)
        with table.blamed():
            if way == "reward_low":
                low, high = table.values["reward_low"], table.values["reward_high"]
                sigma = noise_scale(low=low, high=high)
            elif way == "reward_sd":
                own, context = table.values["reward_sd"], table.values["context_sd"]
                sigma = noise_scale(reward_sd=own, context_sd=context)
            else:
                sigma = table.values["sigma"]
            return Stakes(horizon, sigma, size, ridge, delta)

    def _section(self, table: Table | None, name: str) -> Table:
        if table is None:
            keys = ", ".join(f"{key} = {value}" for key, value in KEYS[name].items())
            raise SettingError(f"{self.path.name} has no section [{name}]; add it, with {keys}.")
        return table


def read_study(path: str | Path) -> Study:
    """Read a study file (TOML) and check it; unknown keys are errors, with a suggestion.

    Sections [data] and [law] are needed, [features], [policy], [inference] and [calibration] where
    they are asked for; see the README for an example. NOT checked here: what is in the data.
    """
    file = Path(path)
    if (file / "study.toml").is_file():
        raise SettingError(f"study: {file} is a folder; did you mean {file / 'study.toml'}?")
    if not file.is_file():
        there = sorted(other.name for other in file.parent.glob("*.toml"))
        raise SettingError(f"study: there is no file {file}{nearest(file.name, there)}")
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise SettingError(f"{file} is not valid TOML: {cause}.") from cause
    name = file.name
    top = Table(found, name, {"seed": "0"} | {key: f"[{key}]" for key in KEYS})
    tables = {
        key: Table(found[key], f"{name} [{key}]", known)
        for key, known in KEYS.items()
        if key in found
    }
    for key in ("data", "law"):
        if key not in tables:
            known = ", ".join(f"{k} = {v}" for k, v in KEYS[key].items())
            raise SettingError(f"{name} has no section [{key}]; add it, with {known}.")
    study = Study(
        file, top.whole("seed") if "seed" in top else 0, _recipe(tables), tables["data"],
        tables["law"], tables.get("features"), tables.get("policy"),
    )  # fmt: skip
    _ask_all(study)
    return study


def _ask_all(study: Study) -> None:
    """Ask for everything that costs nothing: a slip on the last line shows before the first fit."""
    data = study.data
    asked = {"unit": (data.text("unit"),), "time": (data.text("time"),)} | {
        key: data.texts(key) for key in ("observed", "missing")
    }
    columns = column_names(data.file("file", study.path.parent))
    for key, names in asked.items():
        for name in names:
            if name not in columns:
                hint = nearest(name, columns)
                raise DataError(f"{data.where} {key}: there is no column {name!r}{hint}")
    if study.law_section.one_of(("name", "file")) == "name":
        study.law()
    if study.feature_section is not None and "terms" in study.feature_section:
        study.features()
    if study.policy is not None:
        study.stakes()


def _recipe(tables: dict[str, Table]) -> Recipe:
    table = tables.get("calibration") or Table({}, "[calibration]", KEYS["calibration"])
    kind: Any = table.choice("band", get_args(Kind), "auto")
    noise: Any = table.choice("noise", get_args(Noise), "auto")
    mode: Any = table.choice("mode", get_args(Mode), "split")
    level, fit, engine = (
        table.number("level", 0.95),
        table.number("fit", 0.5),
        tables.get("inference"),
    )
    how = None if engine is None else _inference(engine)
    with table.blamed():
        return Recipe(how, level, mode, fit, BandMethod(kind, noise=noise))


def _inference(table: Table) -> Inference:
    engine = ENGINES[table.choice("kind", tuple(ENGINES))]
    own = [field.name for field in fields(engine)]
    given = {key: table.need(key) for key in table.values if key != "kind"}
    for key in given:
        if key not in own:
            raise SettingError(
                f"{table.where} {key} is not for {engine.__name__.lower()}{nearest(key, own)}"
            )
    with table.blamed():
        return engine(**given)
