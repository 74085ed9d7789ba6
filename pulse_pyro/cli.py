"""The command line: each verb is one public function call."""

from __future__ import annotations

import argparse
import os
import sys
import time as clock
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pulse_pyro import __version__
from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.errors import PulseError, SettingError, nearest
from pulse_pyro.paper import DATASETS, EXPERIMENTS

if TYPE_CHECKING:
    from pulse_pyro._core.parallel import Engine
    from pulse_pyro.data.history import History
    from pulse_pyro.laws.files import LawCheck
    from pulse_pyro.paper.result import Result
    from pulse_pyro.study.check import StudyCheck
    from pulse_pyro.study.report import StudyReport

# What can be typed: every verb with its arguments. Nothing here imports more than argparse.


SHELLS = ("bash", "zsh", "fish")
STAGES = {
    "fit": "fit the law and save it",
    "diagnose": "what held-out units say about the law; exit code 1 if it fails",
    "calibrate": "how wrong the law can be, D_t; exit code 1 if a check fails",
    "simulate": "policies on real contexts with made-up rewards",
    "report": "one page from what the other stages wrote",
}
# what stands in an argument's place, for shells: words, or "toml", "py", "csv", "folder"
OFFERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("reproduce", "names"): (*EXPERIMENTS, "all"),
    ("real", "names"): (*DATASETS, "all"),
    ("real", "--data"): ("folder",),
    ("export", "name"): tuple(DATASETS),
    ("export", "--data"): ("folder",),
    ("export", "--out"): ("csv",),
    ("models", "folder"): ("folder",),
    ("new", "name"): ("folder",),
    ("check", "file"): ("toml", "py"),
    ("check", "--data"): ("csv",),
    ("completion", "shell"): SHELLS,
    ("taobao", "--raw"): ("folder",),
} | {(verb, "study"): ("toml",) for verb in (*STAGES, "run", "plan", "design")}
CODES = (
    "exit codes: 0 done; 1 done, but a verdict of diagnose or calibrate is fail (verbs diagnose, "
    "calibrate, report, run), or the rung uniform that plan plans by fails; 2 bad input, nothing "
    "half-written; 70 a fault of pulse-pyro, to be reported to the project's issue tracker; 130 "
    "stopped; 141 the reader of its output has gone."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs; ``verb`` names the one that was typed."""
    top = argparse.ArgumentParser(
        prog="pulse-pyro", description="Bandit decisions with incomplete context.", epilog=CODES
    )
    top.add_argument("--version", action="version", version=f"pulse-pyro {__version__}")
    verbs = top.add_subparsers(required=True, metavar="COMMAND", dest="verb")
    demo = verbs.add_parser("demo", help="the main job end to end on data it makes")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder to write (demo)")
    demo.add_argument("--seed", type=int, default=0)
    _law_arguments(verbs)
    _study_arguments(verbs)
    _reproduce_arguments(verbs)
    _real_arguments(verbs)
    _export_arguments(verbs)
    _taobao_arguments(verbs)
    shell = verbs.add_parser("completion", help="print a script that completes commands")
    shell.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
    for verb in verbs.choices.values():
        verb.add_argument("--json", action="store_true", help="print JSON instead of text")
        verb.add_argument("--debug", action="store_true", help="print the traceback of an error")
    return top


def _law_arguments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    models = verbs.add_parser("models", help="list the laws: built in, gallery, files of a folder")
    models.add_argument(
        "folder", nargs="?", type=Path, default=None, help="of your own laws (models, if there)"
    )
    new = verbs.add_parser("new", help="write a study that runs as it is, or a law's file")
    new.add_argument("name", metavar="NAME", help="of a folder, or of a file ending in .py")
    new.add_argument(
        "--from",
        dest="like",
        metavar="LAW",
        help="of a law's file: copy this one (pulse-pyro models lists them)",
    )
    check = verbs.add_parser("check", help="look at a study or a law's file before any fit")
    check.add_argument("file", type=Path, metavar="STUDY.toml|LAW.py")
    check.add_argument("--data", type=Path, help="of a law: CSV of an archive (else made-up rows)")
    for name, what in (
        ("unit", "column"),
        ("time", "column"),
        ("observed", "columns, a,b,c"),
        ("missing", "columns, a,b,c"),
    ):
        check.add_argument(f"--{name}", metavar="NAME", help=f"{what} of the CSV")


def _study_arguments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = verbs.add_parser("run", help="all stages of a study that are not up to date, and report")
    stages = {name: verbs.add_parser(name, help=text) for name, text in STAGES.items()}
    for verb in (run, *stages.values()):
        verb.add_argument("study", type=Path, metavar="STUDY.toml")
        verb.add_argument(
            "--out", type=Path, default=None, help="results folder (results, beside the study)"
        )
    run.add_argument("--force", action="store_true", help="make every stage again")
    plan = verbs.add_parser("plan", help="how much history until imputation costs less than noise")
    plan.add_argument("study", type=Path, metavar="STUDY.toml")
    plan.add_argument("--out", type=Path, default=None, help="folder for plan.json and plan.svg")
    design = verbs.add_parser("design", help="which policy should this trial run, by simulation")
    design.add_argument("study", type=Path, metavar="STUDY.toml")
    design.add_argument(
        "--out", type=Path, default=None, help="folder for design.json and design.html"
    )
    design.add_argument("--runs", type=int, default=None, help="of each environment (64)")
    design.add_argument("--workers", type=int, default=None, help="local processes (all cores)")


def _reproduce_arguments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    reproduce = verbs.add_parser(
        "reproduce",
        help="published tables, measured beside printed",
        epilog="names: " + ", ".join(EXPERIMENTS),
    )
    reproduce.add_argument(
        "names", nargs="*", metavar="NAME", help="experiments, or all (the default)"
    )
    reproduce.add_argument("--runs", type=int, default=None, help="runs per setting (as published)")
    reproduce.add_argument(
        "--engine", choices=("local", "dask"), default="local", help="where to run"
    )
    reproduce.add_argument("--workers", type=int, default=None, help="local processes (all cores)")
    reproduce.add_argument(
        "--address", default=None, help="of a Dask scheduler (starts one without)"
    )
    reproduce.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
    reproduce.add_argument("--seed", type=int, default=0)


def _real_arguments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    real = verbs.add_parser(
        "real",
        help="agents on real data sets: gains and null results",
        epilog="names: " + ", ".join(DATASETS) + ". The data are not part of this package.",
    )
    real.add_argument("names", nargs="*", metavar="NAME", help="data sets, or all (the default)")
    real.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder that holds a folder for each data set",
    )
    real.add_argument("--runs", type=int, default=10, help="orders of the rounds (10)")
    real.add_argument("--workers", type=int, default=None, help="local processes (all cores)")
    real.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
    real.add_argument("--seed", type=int, default=0)


def _export_arguments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = verbs.add_parser(
        "export",
        help="write the archive of a data set as the table of a study",
        epilog="names: " + ", ".join(DATASETS) + " (if it has S and W); studies of them: "
        "notebooks/studies.",
    )
    export.add_argument("name", metavar="NAME", help="of the data set")
    export.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder that holds a folder for each data set",
    )
    export.add_argument("--out", type=Path, required=True, metavar="FILE.csv", help="file to write")


def _taobao_arguments(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    taobao = verbs.add_parser(
        "taobao",
        help="click rates on Taobao's ad log, from its original files",
        epilog="The files are not part of this package, and it was only ever run on made-up files "
        "of their schema and size.",
    )
    taobao.add_argument(
        "--raw",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of raw_sample.csv, ad_feature.csv, user_profile.csv",
    )
    taobao.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
    taobao.add_argument(
        "--law",
        choices=("mlp", "neural"),
        default="mlp",
        help="of the unseen half (mlp, as published)",
    )
    taobao.add_argument("--seeds", type=int, default=5, help="runs (5)")
    taobao.add_argument("--rounds", type=int, default=None, help="at most (online displays - 20)")
    taobao.add_argument("--epochs", type=int, default=500, help="of the autoencoder (500)")
    taobao.add_argument("--seed", type=int, default=0)


# Scripts that complete commands in bash, zsh and fish, made from the parser itself.


ENDINGS = {"toml": "*.toml", "py": "*.py", "csv": "*.csv"}
FOLDER = "folder"


@dataclass(frozen=True)
class Verb:
    """A verb: its options with their words, and what stands in place of its argument.

    options : --name -> (help, takes a value, words it may take). offers : words, or kinds of file.
    """

    name: str
    text: str
    options: dict[str, tuple[str, bool, tuple[str, ...]]]
    offers: tuple[str, ...]


def completion(shell: str) -> str:
    """Return the script of a shell: ``eval "$(pulse-pyro completion bash)"`` in its start file."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in SHELLS:
        raise SettingError(f"completion: there is no script for {shell!r}{nearest(shell, SHELLS)}")
    return makers[shell](verbs())


def verbs() -> list[Verb]:
    """Return every verb of the parser."""
    [subparsers] = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
    return [_verb(name, helps.get(name, ""), each) for name, each in subparsers.choices.items()]


def _verb(name: str, text: str, subparser: argparse.ArgumentParser) -> Verb:
    options: dict[str, tuple[str, bool, tuple[str, ...]]] = {}
    offers: tuple[str, ...] = ()
    for action in subparser._actions:
        if action.option_strings:
            long = action.option_strings[-1]
            words = tuple(map(str, action.choices or OFFERS.get((name, long), ())))
            value = action.nargs is None
            if value and not words and long == "--out":
                words = (FOLDER,)
            options[long] = (action.help or "", value, words)
        else:
            offers = OFFERS.get((name, action.dest), ())
    return Verb(name, text, options, offers)


def _bash(verbs: list[Verb]) -> str:
    cases = []
    for verb in verbs:
        after = "".join(
            f"        {option}) {_bash_offer(words)}; return ;;\n"
            for option, (_, value, words) in verb.options.items()
            if value
        )
        cases.append(
            f"    {verb.name})\n"
            + (f'      case "$before" in\n{after}      esac\n' if after else "")
            + f'      if [[ "$word" == -* ]]; then\n'
            f'        COMPREPLY=($(compgen -W "{" ".join(verb.options)}" -- "$word"))\n'
            f"      else {_bash_offer(verb.offers)}; fi ;;\n"
        )
    names = " ".join(verb.name for verb in verbs)
    return (
        "_pulse_pyro() {\n"
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"\n'
        "  COMPREPLY=()\n"
        "  if ((COMP_CWORD == 1)); then\n"
        f'    COMPREPLY=($(compgen -W "{names} --help --version" -- "$word")); return\n'
        "  fi\n"
        '  case "${COMP_WORDS[1]}" in\n' + "".join(cases) + "  esac\n}\n"
        "complete -o filenames -F _pulse_pyro pulse-pyro\n"
    )


def _bash_offer(offers: tuple[str, ...]) -> str:
    endings = [ENDINGS[kind] for kind in offers if kind in ENDINGS]
    if endings:  # folders lead to files
        files = "".join(f'$(compgen -f -X "!{ending}" -- "$word") ' for ending in endings)
        return f"local IFS=$'\\n'; COMPREPLY=({files}$(compgen -d -- \"$word\"))"
    if FOLDER in offers:  # by lines: names may hold spaces
        return "local IFS=$'\\n'; COMPREPLY=($(compgen -d -- \"$word\"))"
    return f'COMPREPLY=($(compgen -W "{" ".join(offers)}" -- "$word"))' if offers else ":"


def _zsh(verbs: list[Verb]) -> str:
    names = "\n".join(f"    {_quoted(f'{v.name}:{v.text}')}" for v in verbs)
    cases = ""
    for verb in verbs:
        specs = [
            _quoted(f"{option}[{_bare(text)}]" + (f":value:{_zsh_offer(words)}" if value else ""))
            for option, (text, value, words) in verb.options.items()
        ]
        if verb.offers:
            specs.append(_quoted(f"*:argument:{_zsh_offer(verb.offers)}"))
        cases += f"    {verb.name}) _arguments {' '.join(specs)} ;;\n"
    return (
        "#compdef pulse-pyro\n_pulse_pyro() {\n"
        f"  local -a commands\n  commands=(\n{names}\n  )\n"
        "  if ((CURRENT == 2)); then _describe command commands; return; fi\n"
        "  local verb=$words[2]\n  shift words; ((CURRENT--))\n"
        f'  case "$verb" in\n{cases}  esac\n}}\n'
        "compdef _pulse_pyro pulse-pyro\n"
    )


def _zsh_offer(offers: tuple[str, ...]) -> str:
    endings = [ENDINGS[kind] for kind in offers if kind in ENDINGS]
    if endings:
        return f'_files -g "{endings[0] if len(endings) == 1 else "(" + "|".join(endings) + ")"}"'
    if FOLDER in offers:
        return "_files -/"
    return f"({' '.join(offers)})" if offers else " "


def _fish(verbs: list[Verb]) -> str:
    lines = ["complete -c pulse-pyro -f"]
    for verb in verbs:
        lines.append(
            "complete -c pulse-pyro -n __fish_use_subcommand "
            f"-a {verb.name} -d {_quoted(verb.text)}"
        )
        here = f"complete -c pulse-pyro -n '__fish_seen_subcommand_from {verb.name}'"
        for option, (text, value, words) in verb.options.items():
            takes = f" -r {_fish_offer(words)}".rstrip() if value else ""
            lines.append(f"{here} -l {option[2:]} -d {_quoted(text)}{takes}")
        if verb.offers:
            lines.append(f"{here} {_fish_offer(verb.offers)}")
    return "\n".join(lines) + "\n"


def _fish_offer(offers: tuple[str, ...]) -> str:
    if any(kind in ENDINGS for kind in offers):
        files = "; ".join(f"__fish_complete_suffix .{kind}" for kind in offers)
        return f"-a '({files})'"
    if FOLDER in offers:
        return "-a '(__fish_complete_directories)'"
    return f"-a {_quoted(' '.join(offers))}" if offers else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _bare(text: str) -> str:
    return text.replace("[", "(").replace("]", ")").replace(":", ",")


# Verbs of the command line that read real data sets.


def _real(arguments: argparse.Namespace) -> int:
    """Run agents on real data sets and write the page."""
    from pulse_pyro._core.parallel import Local
    from pulse_pyro.paper.real import run_cases, write_cases

    names = list(dict.fromkeys(arguments.names)) or ["all"]
    rest = [name for name in names if name != "all"]
    chosen = [*(name for name in DATASETS if "all" in names and name not in rest), *rest]
    workers = os.cpu_count() or 1 if arguments.workers is None else arguments.workers
    arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    cases = run_cases(
        chosen, arguments.data, runs=arguments.runs, seed=arguments.seed, engine=Local(workers)
    )
    page = write_cases(cases, arguments.out, seed=arguments.seed)
    if arguments.json:
        _print_json([case.to_json() for case in cases])
        return 0
    print(*cases, f"Page: {page}", sep="\n\n")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    """Write a data set's archive as CSV."""
    from pulse_pyro.paper.real import export_archive

    archive = export_archive(arguments.name, arguments.data, arguments.out)
    if arguments.json:
        _print_json({"written": str(arguments.out)})
    else:
        print(f"{archive!r}\nwritten: {arguments.out}")
    return 0


def _taobao(arguments: argparse.Namespace) -> int:
    """Run the ad-click experiment."""
    from pulse_pyro.paper.taobao import run_taobao

    experiment = run_taobao(
        arguments.raw,
        out=arguments.out,
        law=arguments.law,
        seeds=arguments.seeds,
        rounds=arguments.rounds,
        epochs=arguments.epochs,
        seed=arguments.seed,
    )
    if arguments.json:
        _print_json(experiment.to_json())
    else:
        steps = [f"{step} {taken:.1f} s" for step, taken in experiment.seconds.items()]
        print(f"{experiment}\n{', '.join(steps)}")
    print(f"written: {arguments.out / 'taobao'}.json, .svg", file=sys.stderr)
    return 0


FAULT = 70  # what sysexits.h calls EX_SOFTWARE
STOPPED = 130  # what shells say of a command that was interrupted: 128 + SIGINT
READER_GONE = 141  # and of one whose reader has gone: 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, see ``CODES``; an error is one sentence on stderr."""
    debug = False
    try:
        try:
            arguments = parser().parse_args(argv)
            debug = arguments.debug
            return VERBS[arguments.verb](arguments)
        finally:
            sys.stdout.flush()  # here, where a reader that has gone away can be dealt with
    except BrokenPipeError:  # "| head" has read enough; no word, and none from the interpreter
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except KeyboardInterrupt:
        return _failed("stopped; finished files are kept.", STOPPED, debug)
    except PulseError as error:
        return _failed(str(error), 2, debug)
    except OSError as error:
        return _failed(f"{error.filename or ''}: {error.strerror or error}.", 2, debug)
    except Exception as error:  # whatever it is, it should not have got here
        what = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "" if debug else " and what the same command prints with --debug"
        text = (
            f"this is a fault of pulse-pyro, not of your input ({what}); please report it to the "
            f"project's issue tracker, with the command{hint}."
        )
        return _failed(text, FAULT, debug)


def _failed(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"pulse-pyro: {text}", file=sys.stderr)
    return code


def _demo(arguments: argparse.Namespace) -> int:
    from pulse_pyro.study.demo import results, run_demo

    start = clock.perf_counter()
    demo = run_demo(arguments.out, seed=arguments.seed)
    if arguments.json:
        _print_json(results(demo))
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
        if name not in (*EXPERIMENTS, "all"):
            hint = nearest(name, EXPERIMENTS)
            raise SettingError(f"reproduce: there is no experiment {name!r}{hint}")
    chosen = list(EXPERIMENTS) if "all" in names else names
    from pulse_pyro.paper.reproduction import verdict_of, write_reproduction
    from pulse_pyro.paper.runner import run_experiments

    arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    start = clock.perf_counter()
    results = run_experiments(
        chosen,
        runs=arguments.runs,
        seed=arguments.seed,
        engine=_engine(arguments),
    )
    page = write_reproduction(results, arguments.out)
    if arguments.json:
        for result in results:  # one on each line
            _print_json(result.to_json())
        return 0
    for result in results:
        _print_experiment(result)
    print(f"{verdict_of(results)}\nPage: {page} ({clock.perf_counter() - start:.0f} s)")
    return 0


def _engine(arguments: argparse.Namespace) -> Engine:
    from pulse_pyro._core.parallel import Dask, Local

    if arguments.engine == "dask":
        if arguments.workers is not None:
            raise SettingError("reproduce: --workers is for --engine local; a cluster has its own.")
        return Dask(arguments.address)
    if arguments.address is not None:
        raise SettingError("reproduce: --address is for --engine dask.")
    return Local(os.cpu_count() or 1 if arguments.workers is None else arguments.workers)


def _models(arguments: argparse.Namespace) -> int:
    from pulse_pyro.laws.files import list_laws

    table = list_laws(arguments.folder)
    if arguments.json:
        _print_json(records(table))
        return 0
    wide = max(len(name) for name in table.index)
    for name, row in table.iterrows():
        print(f"{name:{wide}}  {row['kind']:8}  {row['story']}")
    folder = arguments.folder
    if folder is not None and not any(folder.glob("*.py")):
        print(f"no files in {folder}; pulse-pyro new {folder}/my_law.py")
    elif not (table["kind"] == "file").any():
        print("a law of your own: pulse-pyro new my_law.py --from NAME")
    return 0


def _new(arguments: argparse.Namespace) -> int:
    law = arguments.name.endswith(".py")
    if law:
        from pulse_pyro.laws.files import STARTER, new_law

        file = new_law(arguments.name, like=STARTER if arguments.like is None else arguments.like)
    elif arguments.like is not None:
        raise SettingError(
            f"new: --from {arguments.like} is for a law's file, but {arguments.name} would be a "
            f"study's folder; write pulse-pyro new my_law.py --from {arguments.like}."
        )
    else:
        from pulse_pyro.study.new import new_study

        file = new_study(arguments.name)
    verb = "check" if law else "run"
    if arguments.json:
        _print_json({"written": str(file)})
    else:
        print(f"written: {file}\nnext: pulse-pyro {verb} {file}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    checked: LawCheck | StudyCheck
    if arguments.file.suffix == ".toml" or arguments.file.is_dir():
        columns = (arguments.unit, arguments.time, arguments.observed, arguments.missing)
        if arguments.data is not None or any(columns):
            raise SettingError("check: a study names its own data; --data is for a law's file.")
        from pulse_pyro.study.check import check_study

        checked = check_study(arguments.file)
    else:
        from pulse_pyro.laws.files import check_law

        checked = check_law(arguments.file, _archive(arguments))
    _print_result(checked, arguments)
    return 0


def _archive(arguments: argparse.Namespace) -> History | None:
    columns = [arguments.unit, arguments.time, arguments.observed, arguments.missing]
    if arguments.data is None:
        if any(columns):
            raise SettingError("check: columns were named without --data; add --data FILE.csv.")
        return None
    if not all(columns):
        raise SettingError("check: --data needs --unit, --time, --observed and --missing.")
    from pulse_pyro.data.history import History
    from pulse_pyro.data.tables import read_frame

    unit, time, observed, missing = columns
    return History.from_frame(
        read_frame(arguments.data, dates=time, text=(unit,)),
        unit=unit,
        time=time,
        observed=observed.split(","),
        missing=missing.split(","),
    )


def _plan(arguments: argparse.Namespace) -> int:
    from pulse_pyro.study.stages import plan_study

    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    plan = plan_study(arguments.study)
    if arguments.json:
        _print_json(plan.to_json())
    else:
        print(plan, "", plan.table.to_string(index=False, float_format="{:.4g}".format), sep="\n")
    if arguments.out is not None:
        from pulse_pyro._core.files import write_whole
        from pulse_pyro.report.page import write_svg

        write_whole(arguments.out / "plan.json", to_json(plan.to_json()))
        drawn = plan.answer != "refused"
        if drawn:
            write_svg(arguments.out / "plan.svg", plan.plot(), plan.verdict)
        print(f"written: {arguments.out / 'plan'}.json{', .svg' * drawn}", file=sys.stderr)
    return int(plan.answer == "refused")


def _design(arguments: argparse.Namespace) -> int:
    from pulse_pyro.study.design import RUNS, design_study, write_design

    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    start = clock.perf_counter()
    runs = RUNS if arguments.runs is None else arguments.runs
    design = design_study(arguments.study, runs=runs, workers=arguments.workers)
    if arguments.json:
        _print_json(design.to_json())
    else:
        print(f"{design}\n({clock.perf_counter() - start:.1f} s)")
    if arguments.out is not None:
        page = write_design(design, arguments.out, arguments.study)
        print(f"written: {arguments.out / 'design.json'}, {page}", file=sys.stderr)
    return 0


def _stage(arguments: argparse.Namespace) -> int:
    """Make one stage of a study; what is printed as JSON is what it wrote."""
    from pulse_pyro.study.run import STUDY_VERBS
    from pulse_pyro.study.workspace import ARTEFACT, open_workspace

    result = STUDY_VERBS[arguments.verb](arguments.study, arguments.out)
    folder = open_workspace(arguments.study, arguments.out).folder(arguments.verb)
    if arguments.json:
        print((folder / ARTEFACT[arguments.verb]).read_text(encoding="utf-8"))
    else:
        print(result)
        print(f"written: {folder}", file=sys.stderr)
    return int(getattr(result, "verdict", "") == "fail")


def _report(arguments: argparse.Namespace) -> int:
    from pulse_pyro.study.report import report_study

    report = report_study(arguments.study, arguments.out)
    _print_result(report, arguments)
    return int(report.verdict == "fail")


def _run(arguments: argparse.Namespace) -> int:
    from pulse_pyro.study.run import run_study

    start = clock.perf_counter()
    run = run_study(
        arguments.study,
        arguments.out,
        force=arguments.force,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if arguments.json:
        _print_json(run.to_json())
    else:
        print(f"{run.report} ({clock.perf_counter() - start:.1f} s)")
    return int(run.report.verdict == "fail")


def _completion(arguments: argparse.Namespace) -> int:
    script = completion(arguments.shell)
    if arguments.json:
        _print_json({"shell": arguments.shell, "script": script})
    else:
        print(script, end="")
    return 0


def _print_json(values: object) -> None:
    print(to_json(values, indent=None))


def _print_result(
    result: LawCheck | StudyCheck | StudyReport, arguments: argparse.Namespace
) -> None:
    if arguments.json:
        _print_json(result.to_json())
    else:
        print(result)


def _print_experiment(result: Result) -> None:
    print(result)
    shown = result.table.fillna({"published": float("nan")})
    columns = {
        "regret": "{:.1f}",
        "se": "{:.2f}",
        "regret_cond": "{:.1f}",
        "info_gap": "{:.2f}",
        "published": "{:.1f}",
        "ratio": "{:.2f}",
    }
    formats = {name: style.format for name, style in columns.items()}
    print(shown.to_string(index=False, formatters=formats, na_rep="", max_colwidth=None), "\n")


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": _demo,
    "models": _models,
    "new": _new,
    "check": _check,
    "run": _run,
    "fit": _stage,
    "diagnose": _stage,
    "calibrate": _stage,
    "simulate": _stage,
    "report": _report,
    "plan": _plan,
    "design": _design,
    "reproduce": _reproduce,
    "real": _real,
    "export": _export,
    "taobao": _taobao,
    "completion": _completion,
}

if __name__ == "__main__":
    raise SystemExit(main())
