"""Verbs of the command line that read real data sets."""

from __future__ import annotations

import argparse
import json
import os
import sys


def real(arguments: argparse.Namespace) -> int:
    """Run agents on real data sets and write the page."""
    from pulse_pyro.parallel import Local
    from pulse_pyro.real_data import CASES, run_cases, write_cases

    names = list(dict.fromkeys(arguments.names)) or ["all"]
    rest = [name for name in names if name != "all"]
    chosen = [*(name for name in CASES if "all" in names and name not in rest), *rest]
    workers = os.cpu_count() or 1 if arguments.workers is None else arguments.workers
    arguments.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    cases = run_cases(
        chosen, arguments.data, runs=arguments.runs, seed=arguments.seed, engine=Local(workers)
    )
    page = write_cases(cases, arguments.out, seed=arguments.seed)
    if arguments.json:
        print(json.dumps([case.to_json() for case in cases]))
        return 0
    print(*cases, f"Page: {page}", sep="\n\n")
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write a data set's archive as CSV."""
    from pulse_pyro.real_data import export_archive

    found = export_archive(arguments.name, arguments.data, arguments.out)
    print(json.dumps({"written": str(arguments.out)}) if arguments.json else
          f"{found!r}\nwritten: {arguments.out}")  # fmt: skip
    return 0


def taobao(arguments: argparse.Namespace) -> int:
    """Run the ad-click experiment."""
    from pulse_pyro.cases.taobao import run_taobao

    found = run_taobao(
        arguments.raw, out=arguments.out, law=arguments.law, seeds=arguments.seeds,
        rounds=arguments.rounds, epochs=arguments.epochs, seed=arguments.seed,
    )  # fmt: skip
    steps = ", ".join(f"{step} {taken:.1f} s" for step, taken in found.seconds.items())
    print(json.dumps(found.to_json()) if arguments.json else f"{found}\n{steps}")
    print(f"written: {arguments.out / 'taobao'}.json, .svg", file=sys.stderr)
    return 0
