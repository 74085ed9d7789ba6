"""What the tables say about the published protocol, in sentences made from their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pulse_pyro.experiments.result import Result, Row

Tables: TypeAlias = dict[tuple[str, str, str], Row]  # experiment, setting, agent


def findings(results: Sequence[Result]) -> list[str]:
    """Return one sentence for each finding whose experiments are among the results."""
    tables = {(result.name, row.setting, row.agent): row for result in results
              for row in result.rows}  # fmt: skip
    run = {result.name for result in results}
    return [sentence(tables) for names, sentence in FINDINGS if run.issuperset(names)]


def _regret(tables: Tables, name: str, setting: str, agent: str) -> str:
    row = tables[name, setting, agent]
    return f"{row.regret:.3g} (se {row.se:.2g})"


def _printed(tables: Tables, name: str, setting: str, agent: str) -> str:
    return f"{tables[name, setting, agent].published:g}"


def _baseline(t: Tables) -> str:
    at = ("comparison-linear", "linear")
    return (
        f"The OFUL baseline. Printed {_printed(t, *at, 'oful_paper')}, measured "
        f"{_regret(t, *at, 'oful_paper')} with the published features (1, S*a). With the main "
        f"effect of S, which is observed, OFUL has {_regret(t, *at, 'oful')}, PULSE-UCB "
        f"{_regret(t, *at, 'pulse')}: in this comparison the gap is the missing column's, not W's."
    )


def _leak(t: Tables) -> str:
    one, two = ("comparison-linear", "linear"), ("sweep-n", "N=1000")
    return (
        f"CLBBF. The printed {_printed(t, *one, 'clbbf_paper')} and "
        f"{_printed(t, *two, 'clbbf_paper')} come out ({_regret(t, *one, 'clbbf_paper')}, "
        f"{_regret(t, *two, 'clbbf_paper')}) if its moments are taken over the true W and W*a "
        f"counts as observed. Without W it has {_regret(t, *one, 'clbbf')} and "
        f"{_regret(t, *two, 'clbbf')}; a W that is never observed cannot be learned online."
    )


def _history(t: Tables) -> str:
    few, many = ("sweep-n", "N=1"), ("sweep-n", "N=1000")
    return (
        f"Little history. With one archived unit PULSE-UCB has {_regret(t, *few, 'pulse_flat')} "
        f"(printed {_printed(t, *few, 'pulse_flat')}), OFUL on the raw lags, without any archive, "
        f"{_regret(t, *few, 'oful_lags')}; adaptive PULSE-UCB has "
        f"{_regret(t, *few, 'pulse_adaptive')}. With 1000 units it has "
        f"{_regret(t, *many, 'pulse_adaptive')}, PULSE-UCB {_regret(t, *many, 'pulse')}."
    )


def _variance(t: Tables) -> str:
    name = "shift-variance"
    return (
        f"The variance shift. The printed lines come out if S is not shifted "
        f"({_regret(t, name, 'sd=2 as run', 'pulse')}, printed for sd 2: "
        f"{_printed(t, name, 'sd=2', 'pulse')}). Really shifted to sd 2, PULSE-UCB has "
        f"{_regret(t, name, 'sd=2', 'pulse')} and the agent that sees W "
        f"{_regret(t, name, 'sd=2', 'oful_full')}: it does follow the oracle, and the figures grow "
        "with the scale of S."
    )


def _masks(t: Tables) -> str:
    name = "masking"
    return (
        f"Masks. Printed {_printed(t, name, 'p=0', 'pulse_zero_paper')} without any mask: scoring "
        f"arms with single draws of W ({_regret(t, name, 'p=0', 'pulse_zero_paper')}) costs that, "
        f"its mean has {_regret(t, name, 'p=0', 'pulse_zero')}. At p = .8 zeros in the holes have "
        f"{_regret(t, name, 'p=0.8', 'pulse_zero')}, conditioning on what is seen "
        f"{_regret(t, name, 'p=0.8', 'pulse_conditioned')}, memory "
        f"{_regret(t, name, 'p=0.8', 'pulse_memory')} (printed "
        f"{_printed(t, name, 'p=0.8', 'pulse_zero_paper')})."
    )


def _benchmark(t: Tables) -> str:
    return (
        "The benchmark. The regret theorem compares with the best arm given the full context, but "
        "its proof holds for the best policy on S. Where W decides the arm the two differ: a "
        f"policy that knows theta and E[Phi | S] still has "
        f"{_regret(t, 'sweep-n', 'N=1000', 'cond_oracle')}, and no policy on S has less on average."
    )


FINDINGS: tuple[tuple[tuple[str, ...], Callable[[Tables], str]], ...] = (
    (("comparison-linear",), _baseline),
    (("comparison-linear", "sweep-n"), _leak),
    (("sweep-n",), _history),
    (("sweep-n",), _benchmark),
    (("masking",), _masks),
    (("shift-variance",), _variance),
)
