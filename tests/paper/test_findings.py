"""Findings are said only where the figures show them."""

from dataclasses import replace

import pytest

from pulse_pyro._core.registry import named
from pulse_pyro.paper import EXPERIMENTS
from pulse_pyro.paper.findings import findings
from pulse_pyro.paper.result import Result, Row

SHOWN = {
    ("comparison-linear", "linear", "oful_paper"): (39.0, 39.6),
    ("comparison-linear", "linear", "oful"): (11.7, None),
    ("comparison-linear", "linear", "pulse"): (11.5, 11.9),
    ("comparison-linear", "linear", "clbbf_paper"): (20.6, 20.6),
    ("comparison-linear", "linear", "clbbf"): (26.7, None),
    ("sweep-n", "N=1", "pulse_flat"): (292.0, 252.1),
    ("sweep-n", "N=1", "oful_lags"): (11.1, None),
    ("sweep-n", "N=1", "pulse_adaptive"): (11.4, None),
    ("sweep-n", "N=1000", "pulse"): (3.9, None),
    ("sweep-n", "N=1000", "pulse_adaptive"): (3.9, None),
    ("sweep-n", "N=1000", "clbbf_paper"): (148.0, 145.3),
    ("sweep-n", "N=1000", "clbbf"): (731.0, None),
    ("sweep-n", "N=1000", "cond_oracle"): (1.58, None),
    ("masking", "p=0", "pulse_zero_paper"): (47.5, 46.52),
    ("masking", "p=0", "pulse_dropout"): (8.5, None),
    ("masking", "p=0", "pulse_zero"): (3.9, None),
    ("masking", "p=0", "pulse_conditioned"): (3.9, None),
    ("masking", "p=0", "pulse_memory"): (3.9, None),
    ("masking", "p=0.8", "pulse_zero_paper"): (234.0, 267.07),
    ("masking", "p=0.8", "pulse_dropout"): (179.0, None),
    ("masking", "p=0.8", "pulse_zero"): (142.0, None),
    ("masking", "p=0.8", "pulse_conditioned"): (131.0, None),
    ("masking", "p=0.8", "pulse_memory"): (3.9, None),
    ("shift-variance", "sd=2 as run", "pulse"): (4.5, 5.0),
    ("shift-variance", "sd=2", "pulse"): (42.8, 6.0),
    ("shift-variance", "sd=2", "oful_full"): (42.6, 4.0),
}
# an opposite figure -> the start of the paragraph it must silence
CONTRARY = {
    ("comparison-linear", "linear", "oful"): (35.0, "The OFUL baseline"),
    ("comparison-linear", "linear", "clbbf"): (12.0, "CLBBF"),
    ("sweep-n", "N=1", "pulse_flat"): (9.0, "Little history"),
    ("sweep-n", "N=1000", "cond_oracle"): (0.0, "The benchmark"),
    ("masking", "p=0.8", "pulse_conditioned"): (300.0, "Masks"),
    ("shift-variance", "sd=2", "oful_full"): (4.0, "The variance shift"),
}


def results_of(figures):
    names = dict.fromkeys(name for name, _, _ in figures)
    return [
        Result(
            named(EXPERIMENTS, name),
            tuple(
                Row(
                    setting,
                    agent,
                    regret,
                    0.1,
                    regret,
                    1.0,
                    10,
                    printed,
                    None,
                    ""
                    if printed is None
                    else "reproduced"
                    if abs(regret / printed - 1) <= 0.2
                    else "differs",
                    "",
                )
                for (own, setting, agent), (regret, printed) in figures.items()
                if own == name
            ),
            1.0,
            0,
            {},
        )
        for name in names
    ]


def starts(figures):
    return {paragraph.split(".")[0] for paragraph in findings(results_of(figures))}


def test_all_are_said_where_all_are_shown():
    assert starts(SHOWN) == {start for _, start in CONTRARY.values()}


@pytest.mark.parametrize("at", CONTRARY, ids=lambda at: at[0])
def test_a_figure_to_the_contrary_silences_its_paragraph_alone(at):
    regret, start = CONTRARY[at]
    assert starts(SHOWN) - starts(SHOWN | {at: (regret, SHOWN[at][1])}) == {start}


@pytest.mark.parametrize(
    ("at", "start"),
    [
        (("comparison-linear", "linear", "clbbf_paper"), "CLBBF"),
        (("masking", "p=0", "pulse_zero_paper"), "Masks"),
        (("shift-variance", "sd=2 as run", "pulse"), "The variance shift"),
    ],
)
def test_nothing_comes_out_that_was_not_reproduced(at, start):
    _, printed = SHOWN[at]
    assert start not in starts(SHOWN | {at: (10 * printed, printed)})


def test_figures_are_those_of_the_rows():
    text = " ".join(findings(results_of(SHOWN)))
    assert "11.7 (se 0.1)" in text
    assert "252.1" in text
    changed = results_of(SHOWN)
    rows = tuple(replace(r, regret=12.34) if r.agent == "oful" else r for r in changed[0].rows)
    assert "12.3 (se 0.1)" in findings([replace(changed[0], rows=rows)])[0]


def test_experiments_that_were_not_run_are_not_spoken_of():
    few = {at: value for at, value in SHOWN.items() if at[0] == "masking"}
    assert starts(few) == {"Masks"}
