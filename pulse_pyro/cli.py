"""The command line: each verb is one public function call."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time as clock
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulse_pyro.cli_data import export, real, taobao
from pulse_pyro.commands import NAMES, parser
from pulse_pyro.errors import PulseError, SettingError, nearest

if TYPE_CHECKING:
    from pulse_pyro.experiments.result import Result
    from pulse_pyro.gallery import LawCheck
    from pulse_pyro.history import History
    from pulse_pyro.parallel import Engine
    from pulse_pyro.stages.check import StudyCheck


GONE = 141  # what shells say of a command whose reader has gone: 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 a verdict is fail, 2 bad input, one sentence on stderr."""
    try:
        try:
            arguments = parser().parse_args(argv)
            return VERBS[arguments.verb](arguments)
        finally:
            sys.stdout.flush()  # here, where a reader that has gone away can be dealt with
    except BrokenPipeError:  # "| head" has read enough; no word, and none from the interpreter
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GONE
    except PulseError as error:
        print(f"pulse-pyro: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"pulse-pyro: {error.filename or ''}: {error.strerror or error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pulse-pyro: stopped; finished files are kept.", file=sys.stderr)
        return 130


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
    for name in names:
        if name not in (*NAMES, "all"):
            raise SettingError(f"reproduce: there is no experiment {name!r}{nearest(name, NAMES)}")
    chosen = list(NAMES) if "all" in names else names
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
    return Local(os.cpu_count() or 1 if arguments.workers is None else arguments.workers)


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
    law = arguments.name.endswith(".py")
    if law:
        from pulse_pyro.gallery import new_law

        file = new_law(arguments.name)
    else:
        from pulse_pyro.stages.new import new_study

        file = new_study(arguments.name)
    verb = "check" if law else "run"
    print(json.dumps({"written": str(file)}) if arguments.json else
          f"written: {file}\nnext: pulse-pyro {verb} {file}")  # fmt: skip
    return 0


def _check(arguments: argparse.Namespace) -> int:
    found: LawCheck | StudyCheck
    if arguments.file.suffix == ".toml" or arguments.file.is_dir():
        columns = (arguments.unit, arguments.time, arguments.observed, arguments.missing)
        if arguments.data is not None or any(columns):
            raise SettingError("check: a study names its own data; --data is for a law's file.")
        from pulse_pyro.stages.check import check_study

        found = check_study(arguments.file)
    else:
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


def _stage(arguments: argparse.Namespace) -> int:
    """Make one stage of a study; what is printed as JSON is what it wrote."""
    from pulse_pyro.stages.inputs import ARTEFACT
    from pulse_pyro.stages.run import STUDY_VERBS
    from pulse_pyro.stages.workspace import open_workspace

    found = STUDY_VERBS[arguments.verb](arguments.study, arguments.out)
    folder = open_workspace(arguments.study, arguments.out).folder(arguments.verb)
    if arguments.json:
        print((folder / ARTEFACT[arguments.verb]).read_text(encoding="utf-8"))
    else:
        print(found)
        print(f"written: {folder}", file=sys.stderr)
    return int(getattr(found, "verdict", "") == "fail")


def _report(arguments: argparse.Namespace) -> int:
    from pulse_pyro.stages.report import report_study

    found = report_study(arguments.study, arguments.out)
    print(json.dumps(found.to_json()) if arguments.json else found)
    return int(found.verdict == "fail")


def _run(arguments: argparse.Namespace) -> int:
    from pulse_pyro.stages.run import run_study

    start = clock.perf_counter()
    found = run_study(
        arguments.study, arguments.out, force=arguments.force,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    print(json.dumps(found.to_json()) if arguments.json else
          f"{found.report} ({clock.perf_counter() - start:.1f} s)")  # fmt: skip
    return int(found.report.verdict == "fail")


def _completion(arguments: argparse.Namespace) -> int:
    from pulse_pyro.completion import completion

    script = completion(arguments.shell)
    said = json.dumps({"shell": arguments.shell, "script": script}) if arguments.json else script
    print(said, end="" if said.endswith("\n") else "\n")
    return 0


def _print(result: Result) -> None:
    print(result)
    shown = result.table.fillna({"published": float("nan")})
    columns = {"regret": "{:.1f}", "se": "{:.2f}", "regret_cond": "{:.1f}", "info_gap": "{:.2f}",
               "published": "{:.1f}", "ratio": "{:.2f}"}  # fmt: skip
    formats = {name: style.format for name, style in columns.items()}
    print(shown.to_string(index=False, formatters=formats, na_rep="", max_colwidth=None), "\n")


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": _demo, "models": _models, "new": _new, "check": _check, "run": _run, "fit": _stage,
    "diagnose": _stage, "calibrate": _stage, "simulate": _stage, "report": _report, "plan": _plan,
    "reproduce": _reproduce, "real": real, "export": export, "taobao": taobao,
    "completion": _completion,
}  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main())
