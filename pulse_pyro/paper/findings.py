"""What the tables say about the published protocol, in sentences made from their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pulse_pyro.paper.result import Result, Row

Tables: TypeAlias = dict[tuple[str, str, str], Row]  # experiment, setting, agent


def findings(results: Sequence[Result]) -> list[str]:
    """Return one sentence for each finding the results bear out.

    A finding is left out if an experiment it needs was not run, or if its figures do not show it.
    """
    tables = {
        (result.name, row.setting, row.agent): row for result in results for row in result.rows
    }
    run = {result.name for result in results}
    found = [say(tables) for names, say in FINDINGS if run.issuperset(names)]
    return [sentence for sentence in found if sentence]


def _shown(row: Row) -> str:
    return f"{row.regret:.3g} (se {row.se:.2g})"


def _comes_out(*rows: Row) -> bool:
    return all(row.verdict == "reproduced" for row in rows)


def _alike(first: Row, second: Row) -> bool:
    return abs(first.regret - second.regret) <= 0.15 * max(first.regret, second.regret)


def _baseline(t: Tables) -> str:
    own = {a: t["comparison-linear", "linear", a] for a in ("oful_paper", "oful", "pulse")}
    if not _comes_out(own["oful_paper"]) or not _alike(own["oful"], own["pulse"]):
        return ""
    return (
        f"The OFUL baseline. Printed {own['oful_paper'].published:g}, measured "
        f"{_shown(own['oful_paper'])} with the published features (1, S*a). With the main effect "
        f"of S, which is observed, OFUL has {_shown(own['oful'])}, PULSE-UCB "
        f"{_shown(own['pulse'])}: in this comparison the gap is the missing column's, not W's."
    )


def _leak(t: Tables) -> str:
    places = (("comparison-linear", "linear"), ("sweep-n", "N=1000"))
    leaky, honest = ([t[*at, agent] for at in places] for agent in ("clbbf_paper", "clbbf"))
    worse = all(h.regret > b.regret for h, b in zip(honest, leaky, strict=True))
    if not _comes_out(*leaky) or not worse:
        return ""
    return (
        f"CLBBF. The printed {leaky[0].published:g} and {leaky[1].published:g} come out "
        f"({_shown(leaky[0])}, {_shown(leaky[1])}) if its moments are taken over the true W and "
        f"W*a counts as observed. Without W it has {_shown(honest[0])} and {_shown(honest[1])}; a "
        "W that is never observed cannot be learned online."
    )


def _history(t: Tables) -> str:
    few = {a: t["sweep-n", "N=1", a] for a in ("pulse_flat", "oful_lags", "pulse_adaptive")}
    many = {a: t["sweep-n", "N=1000", a] for a in ("pulse", "pulse_adaptive")}
    worst = few["pulse_flat"].regret
    if worst <= max(few["oful_lags"].regret, few["pulse_adaptive"].regret):
        return ""
    return (
        f"Little history. With one archived unit PULSE-UCB has {_shown(few['pulse_flat'])} "
        f"(printed {few['pulse_flat'].published:g}), OFUL on the raw lags, without any archive, "
        f"{_shown(few['oful_lags'])}; adaptive PULSE-UCB has {_shown(few['pulse_adaptive'])}. With "
        f"1000 units it has {_shown(many['pulse_adaptive'])}, PULSE-UCB {_shown(many['pulse'])}."
    )


def _variance(t: Tables) -> str:
    name, as_run = (
        "shift-variance",
        [
            row
            for (exp, setting, agent), row in t.items()
            if exp == "shift-variance" and setting.endswith("as run") and row.published is not None
        ],
    )
    pulse, full = t[name, "sd=2", "pulse"], t[name, "sd=2", "oful_full"]
    fits = sum(row.verdict == "reproduced" for row in as_run)
    if fits < 0.8 * len(as_run) or not _alike(pulse, full):
        return ""
    return (
        f"The variance shift. {fits} of the {len(as_run)} printed figures come out if S is not "
        f"shifted. Really shifted to sd 2, PULSE-UCB has {_shown(pulse)} (printed "
        f"{pulse.published:g}) and the agent that sees W {_shown(full)} (printed "
        f"{full.published:g}): PULSE-UCB does follow it, and both grow with the scale of S."
    )


def _masks(t: Tables) -> str:
    at = {
        (p, a): t["masking", f"p={p:g}", a]
        for p in (0.0, 0.8)
        for a in (
            "pulse_zero_paper",
            "pulse_dropout",
            "pulse_zero",
            "pulse_conditioned",
            "pulse_memory",
        )
    }
    paper, far = at[0.0, "pulse_zero_paper"], at[0.8, "pulse_zero_paper"]
    better = at[0.8, "pulse_conditioned"].regret < far.regret
    if not _comes_out(paper, far) or not better:
        return ""
    return (
        f"Masks. The printed {paper.published:g} without any mask comes out ({_shown(paper)}) if a "
        "law trained with dropout, whose residual spread dropout inflates, scores every arm with a "
        f"single draw of W; its mean has {_shown(at[0.0, 'pulse_dropout'])}, a law trained without "
        f"dropout {_shown(at[0.0, 'pulse_zero'])}. At p = .8 (printed {far.published:g}, measured "
        f"{_shown(far)}) the mean has {_shown(at[0.8, 'pulse_dropout'])}, dropout at the rate of "
        f"the masks {_shown(at[0.8, 'pulse_zero'])}, conditioning on what is seen "
        f"{_shown(at[0.8, 'pulse_conditioned'])}, memory {_shown(at[0.8, 'pulse_memory'])}."
    )


def _benchmark(t: Tables) -> str:
    row = t["sweep-n", "N=1000", "cond_oracle"]
    if row.regret <= 2 * row.se:
        return ""
    return (
        "The benchmark. The regret theorem compares with the best arm given the full context, but "
        "its proof holds for the best policy on S. Where W decides the arm the two differ: a "
        f"policy that knows theta and E[Phi | S] still has {_shown(row)}, and no policy on S has "
        "less on average."
    )


FINDINGS: tuple[tuple[tuple[str, ...], Callable[[Tables], str]], ...] = (
    (("comparison-linear",), _baseline),
    (("comparison-linear", "sweep-n"), _leak),
    (("sweep-n",), _history),
    (("sweep-n",), _benchmark),
    (("masking",), _masks),
    (("shift-variance",), _variance),
)
