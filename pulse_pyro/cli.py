"""The command line: each verb is one public function call."""

from __future__ import annotations

import argparse
import json
import sys
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pulse_pyro import __version__
from pulse_pyro.errors import DataError, PulseError, SettingError, nearest

if TYPE_CHECKING:
    from pulse_pyro.experiments.runner import Result
    from pulse_pyro.history import History

NAMES = ("comparison-linear", "comparison-nonlinear", "sweep-n", "sweep-t0", "sweep-points")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; errors are one sentence on stderr and exit code 2."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except PulseError as error:
        print(f"pulse-pyro: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"pulse-pyro: {error.filename or ''}: {error.strerror or error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pulse-pyro: stopped; finished files are kept.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulse-pyro", description="Bandit decisions with incomplete context."
    )
    parser.add_argument("--version", action="version", version=f"pulse-pyro {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = verbs.add_parser("demo", help="the main job end to end on data it makes")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder to write (demo)")
    demo.set_defaults(run=_demo)
    again = verbs.add_parser(
        "reproduce", help="published tables, measured beside printed",
        epilog="names: " + ", ".join(NAMES),
    )  # fmt: skip
    again.add_argument("names", nargs="*", metavar="NAME", help="experiments, or all (the default)")
    again.add_argument("--runs", type=int, default=None, help="runs per setting (as published)")
    again.add_argument("--out", type=Path, default=None, help="folder for results and figures")
    again.set_defaults(run=_reproduce)
    known = verbs.add_parser("models", help="list the laws: built in, and files of a folder")
    known.add_argument("folder", nargs="?", type=Path, default=Path("models"))
    known.set_defaults(run=_models)
    new = verbs.add_parser("new", help="write a law's file that already passes check")
    new.add_argument("file", type=Path)
    new.set_defaults(run=_new)
    check = verbs.add_parser("check", help="run a law's file on a few rows, or say what is wrong")
    check.add_argument("file", type=Path)
    check.add_argument("--data", type=Path, help="CSV of an archive (made-up rows without it)")
    for name, what in (("unit", "column"), ("time", "column"), ("observed", "columns, a,b,c"),
                       ("missing", "columns, a,b,c")):  # fmt: skip
        check.add_argument(f"--{name}", metavar="NAME", help=f"{what} of the CSV")
    check.set_defaults(run=_check)
    for verb in (demo, again):
        verb.add_argument("--seed", type=int, default=0)
    for verb in (demo, again, known, new, check):
        verb.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from pulse_pyro.demo import results, run_demo

    start = clock.perf_counter()
    demo = run_demo(arguments.out, seed=arguments.seed)
    if arguments.json:
        print(json.dumps(results(demo)))
        return 0
    print(
        demo.diagnostics,
        "",
        demo.calibration,
        "",
        demo.run.table.to_string(float_format="{:.2f}".format),
        sep="\n",
    )
    print(f"\n{demo.verdict}\nReport: {demo.report} ({clock.perf_counter() - start:.1f} s)")
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    names = list(arguments.names) or ["all"]
    chosen = list(NAMES) if "all" in names else names
    for name in chosen:
        if name not in NAMES:
            raise SettingError(f"reproduce: there is no experiment {name!r}{nearest(name, NAMES)}")
    from pulse_pyro.experiments import EXPERIMENTS
    from pulse_pyro.experiments.runner import run_experiment

    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    for name in chosen:
        result = run_experiment(EXPERIMENTS[name], runs=arguments.runs, seed=arguments.seed)
        if arguments.json:
            print(json.dumps(result.to_json()))
        else:
            _print(result)
        if arguments.out is not None:
            _write(result, arguments.out)
    return 0


def _models(arguments: argparse.Namespace) -> int:
    from pulse_pyro.gallery import list_laws

    table = list_laws(arguments.folder)
    if arguments.json:
        print(json.dumps(table.reset_index().to_dict("records")))
        return 0
    wide = max(len(name) for name in table.index)
    for name, row in table.iterrows():
        print(f"{name:{wide}}  {row['story']}")
    if not (table["kind"] == "file").any():
        print(f"no files in {arguments.folder}; pulse-pyro new {arguments.folder}/my_law.py")
    return 0


def _new(arguments: argparse.Namespace) -> int:
    from pulse_pyro.gallery import new_law

    file = new_law(arguments.file)
    print(json.dumps({"written": str(file)}) if arguments.json else
          f"written: {file}\nnext: pulse-pyro check {file}")  # fmt: skip
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from pulse_pyro.gallery import check_law

    found = check_law(arguments.file, _archive(arguments))
    print(json.dumps(found.to_json()) if arguments.json else found)
    return 0


def _archive(arguments: argparse.Namespace) -> History | None:
    columns = [arguments.unit, arguments.time, arguments.observed, arguments.missing]
    if arguments.data is None:
        if any(columns):
            raise SettingError("check: columns were named without --data; add --data FILE.csv.")
        return None
    if not all(columns):
        raise SettingError("check: --data needs --unit, --time, --observed and --missing.")
    import pandas as pd

    from pulse_pyro.history import History

    try:
        frame = pd.read_csv(arguments.data)
    except (ValueError, UnicodeDecodeError) as cause:
        raise DataError(f"check: {arguments.data} cannot be read as CSV: {cause}.") from cause
    unit, time, observed, missing = columns
    return History.from_frame(
        frame, unit=unit, time=time, observed=observed.split(","), missing=missing.split(",")
    )


def _print(result: Result) -> None:
    print(result)
    shown = result.table.fillna({"published": float("nan")})
    columns = {"regret": "{:.1f}", "se": "{:.2f}", "regret_cond": "{:.1f}", "info_gap": "{:.2f}",
               "published": "{:.1f}", "ratio": "{:.2f}"}  # fmt: skip
    formats = {name: style.format for name, style in columns.items()}
    print(shown.to_string(index=False, formatters=formats, na_rep="", max_colwidth=None), "\n")


def _write(result: Result, folder: Path) -> None:
    from pulse_pyro.files import write_whole
    from pulse_pyro.plots import regret_curves, sweep
    from pulse_pyro.report import figure_svg

    single = len(result.curves) == 1
    ax = regret_curves(next(iter(result.curves.values()))) if single else sweep(result)
    write_whole(folder / f"{result.name}.json", json.dumps(result.to_json(), indent=1))
    write_whole(folder / f"{result.name}.svg", figure_svg(ax, result.name, result.title))
    print(f"written: {folder / result.name}.json, .svg", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
