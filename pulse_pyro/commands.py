"""What can be typed: every verb with its arguments. Nothing here imports more than argparse."""

from __future__ import annotations

import argparse
from pathlib import Path

from pulse_pyro import __version__

NAMES = (
    "comparison-linear", "comparison-nonlinear", "sweep-n", "sweep-t0", "sweep-points",
    "smoothness", "masking", "shift-variance", "shift-rotation", "shift-translation",
    "shift-deformation", "lower-bound",
)  # fmt: skip
DATA_SETS = ("beijing", "heartsteps", "oulad", "open-bandit")
ARCHIVES = DATA_SETS[:3]  # the last has no W
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
    ("reproduce", "names"): (*NAMES, "all"), ("real", "names"): (*DATA_SETS, "all"),
    ("real", "--data"): ("folder",), ("export", "name"): ARCHIVES,
    ("export", "--data"): ("folder",), ("export", "--out"): ("csv",),
    ("models", "folder"): ("folder",),
    ("new", "name"): ("folder",), ("check", "file"): ("toml", "py"), ("check", "--data"): ("csv",),
    ("completion", "shell"): SHELLS, ("taobao", "--raw"): ("folder",),
} | {(verb, "study"): ("toml",) for verb in (*STAGES, "run", "plan")}  # fmt: skip
CODES = (
    "exit codes: 0 done; 1 done, but a verdict of diagnose or calibrate is fail (verbs diagnose, "
    "calibrate, report, run); 2 bad input, nothing half-written; 130 stopped; 141 the "
    "reader of its output has gone."
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
    _laws(verbs)
    _studies(verbs)
    _reproduce(verbs)
    _real(verbs)
    _export(verbs)
    _taobao(verbs)
    script = verbs.add_parser("completion", help="print a script that completes commands")
    script.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
    for verb in verbs.choices.values():
        verb.add_argument("--json", action="store_true", help="print JSON instead of text")
    return top


def _laws(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    known = verbs.add_parser("models", help="list the laws: built in, and files of a folder")
    known.add_argument("folder", nargs="?", type=Path, default=Path("models"))
    new = verbs.add_parser("new", help="write a study that runs as it is, or a law's file")
    new.add_argument("name", metavar="NAME", help="of a folder, or of a file ending in .py")
    check = verbs.add_parser("check", help="look at a study or a law's file before any fit")
    check.add_argument("file", type=Path, metavar="STUDY.toml|LAW.py")
    check.add_argument("--data", type=Path, help="of a law: CSV of an archive (else made-up rows)")
    for name, what in (("unit", "column"), ("time", "column"), ("observed", "columns, a,b,c"),
                       ("missing", "columns, a,b,c")):  # fmt: skip
        check.add_argument(f"--{name}", metavar="NAME", help=f"{what} of the CSV")


def _studies(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = verbs.add_parser("run", help="all stages of a study that are not up to date, and report")
    made = {name: verbs.add_parser(name, help=text) for name, text in STAGES.items()}
    for verb in (run, *made.values()):
        verb.add_argument("study", type=Path, metavar="STUDY.toml")
        verb.add_argument("--out", type=Path, default=None,
                          help="results folder (results, beside the study)")  # fmt: skip
    run.add_argument("--force", action="store_true", help="make every stage again")
    ahead = verbs.add_parser("plan", help="how much history until imputation costs less than noise")
    ahead.add_argument("study", type=Path, metavar="STUDY.toml")
    ahead.add_argument("--out", type=Path, default=None, help="folder for plan.json and plan.svg")


def _reproduce(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    again.add_argument("--seed", type=int, default=0)


def _real(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    real = verbs.add_parser(
        "real", help="agents on real data sets: gains and null results",
        epilog="names: " + ", ".join(DATA_SETS) + ". The data are not part of this package.",
    )  # fmt: skip
    real.add_argument("names", nargs="*", metavar="NAME", help="data sets, or all (the default)")
    real.add_argument("--data", type=Path, required=True, metavar="DIR",
                      help="folder that holds a folder for each data set")  # fmt: skip
    real.add_argument("--runs", type=int, default=10, help="orders of the rounds (10)")
    real.add_argument("--workers", type=int, default=None, help="local processes (all cores)")
    real.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
    real.add_argument("--seed", type=int, default=0)


def _export(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    out = verbs.add_parser(
        "export", help="write the archive of a data set as the table of a study",
        epilog="names: " + ", ".join(ARCHIVES) + "; studies of them: notebooks/studies.",
    )  # fmt: skip
    out.add_argument("name", metavar="NAME", help="of the data set")
    out.add_argument("--data", type=Path, required=True, metavar="DIR",
                     help="folder that holds a folder for each data set")  # fmt: skip
    out.add_argument("--out", type=Path, required=True, metavar="FILE.csv", help="file to write")


def _taobao(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ads = verbs.add_parser(
        "taobao", help="click rates on Taobao's ad log, from its original files",
        epilog="The files are not part of this package, and it was only ever run on made-up files "
        "of their schema and size.",
    )  # fmt: skip
    ads.add_argument("--raw", type=Path, required=True, metavar="DIR",
                     help="folder of raw_sample.csv, ad_feature.csv, user_profile.csv")  # fmt: skip
    ads.add_argument("--out", type=Path, default=Path("results"), help="folder (results)")
    ads.add_argument("--law", choices=("mlp", "neural"), default="mlp",
                     help="of the unseen half (mlp, as published)")  # fmt: skip
    ads.add_argument("--seeds", type=int, default=5, help="runs (5)")
    ads.add_argument("--rounds", type=int, default=None, help="at most (online displays - 20)")
    ads.add_argument("--epochs", type=int, default=500, help="of the autoencoder (500)")
    ads.add_argument("--seed", type=int, default=0)
