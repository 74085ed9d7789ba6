"""The command line: each verb is one public function call."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pulse_pyro import __version__
from pulse_pyro.errors import PulseError, SettingError, nearest

if TYPE_CHECKING:
    from pulse_pyro.experiments.result import Result
    from pulse_pyro.history import History
    from pulse_pyro.parallel import Engine

NAMES = (
    "comparison-linear", "comparison-nonlinear", "sweep-n", "sweep-t0", "sweep-points",
    "smoothness", "masking", "shift-variance", "shift-rotation", "shift-translation",
    "shift-deformation", "lower-bound",
)  # fmt: skip


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
    again.add_argument("--engine", choices=("local", "dask"), default="local", help="where to run")
    again.add_argument("--workers", type=int, default=None, help="local processes (all cores)")
    again.add_argument("--address", default=None, help="of a Dask scheduler (starts one without)")
    again.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
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
    ahead = verbs.add_parser("plan", help="how much history until imputation costs less than noise")
    ahead.add_argument("study", type=Path, metavar="STUDY.toml")
    ahead.add_argument("--out", type=Path, default=None, help="folder for plan.json and plan.svg")
    ahead.set_defaults(run=_plan)
    for verb in (demo, again):
        verb.add_argument("--seed", type=int, default=0)
    for verb in (demo, again, known, new, check, ahead):
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
    from pulse_pyro.experiments.runner import run_experiments
    from pulse_pyro.reproduction import verdict_of, write_reproduction

    arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    start = clock.perf_counter()
    results = run_experiments(
        [EXPERIMENTS[name] for name in chosen], runs=arguments.runs, seed=arguments.seed,
        engine=_engine(arguments),
    )  # fmt: skip
    page = write_reproduction(results, arguments.out)
    if arguments.json:
        print(*(json.dumps(result.to_json()) for result in results), sep="\n")
        return 0
    for result in results:
        _print(result)
    print(f"{verdict_of(results)}\nPage: {page} ({clock.perf_counter() - start:.0f} s)")
    return 0


def _engine(arguments: argparse.Namespace) -> Engine:
    from pulse_pyro.parallel import Dask, Local

    if arguments.engine == "dask":
        if arguments.workers is not None:
            raise SettingError("reproduce: --workers is for --engine local; a cluster has its own.")
        return Dask(arguments.address)
    if arguments.address is not None:
        raise SettingError("reproduce: --address is for --engine dask.")
    return Local(arguments.workers or os.cpu_count() or 1)


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
    from pulse_pyro.frames import read_frame
    from pulse_pyro.history import History

    unit, time, observed, missing = columns
    return History.from_frame(
        read_frame(arguments.data, dates=time), unit=unit, time=time,
        observed=observed.split(","), missing=missing.split(","),
    )  # fmt: skip


def _plan(arguments: argparse.Namespace) -> int:
    from pulse_pyro.planning.planner import plan_study

    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    found = plan_study(arguments.study)
    if arguments.json:
        print(json.dumps(found.to_json()))
    else:
        print(found, "", found.table.to_string(index=False, float_format="{:.4g}".format), sep="\n")
    if arguments.out is not None:
        from pulse_pyro.files import write_whole
        from pulse_pyro.report import figure_svg

        write_whole(arguments.out / "plan.json", json.dumps(found.to_json(), indent=1))
        write_whole(arguments.out / "plan.svg", figure_svg(found.plot(), "plan", found.verdict))
        print(f"written: {arguments.out / 'plan'}.json, .svg", file=sys.stderr)
    return 0


def _print(result: Result) -> None:
    print(result)
    shown = result.table.fillna({"published": float("nan")})
    columns = {"regret": "{:.1f}", "se": "{:.2f}", "regret_cond": "{:.1f}", "info_gap": "{:.2f}",
               "published": "{:.1f}", "ratio": "{:.2f}"}  # fmt: skip
    formats = {name: style.format for name, style in columns.items()}
    print(shown.to_string(index=False, formatters=formats, na_rep="", max_colwidth=None), "\n")


if __name__ == "__main__":
    raise SystemExit(main())
