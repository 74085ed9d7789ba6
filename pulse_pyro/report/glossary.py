"""Paper symbols and technical words in plain words; a page lists those it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulse_pyro.report.section import Section

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Entry:
    """A symbol, what it means, and the pattern that finds it in a text."""

    symbol: str
    words: str
    pattern: str


def _entry(symbol: str, words: str, *forms: str) -> Entry:
    """An entry found by its symbol as a word of its own, or by any of ``forms`` (patterns)."""
    found = forms or (re.escape(symbol),)
    return Entry(symbol, words, rf"(?<![\w^])(?:{'|'.join(found)})(?!\w)")


GLOSSARY = (
    _entry("S", "the part of the context that is seen online; S_1:t is all of it up to round t",
           "S", r"S_t", r"S_1:t"),
    _entry("W", "the part of the context that only the archive has; W_t is its value in round t",
           "W", r"W_t"),
    _entry("t, T", "a round, that is one decision; T is the number of rounds", "T", "t"),
    _entry("a", "an action, one of the arms that can be played", r"action \d+", r"a,j"),
    _entry("law", "the fitted model of W given the past of S, p^ in the paper", "law"),
    _entry("Phi", "the features: what the reward is linear in, made from S, W and the action",
           r"Phi(?:_j)?"),
    _entry("E[...]", "the expectation of what stands in the brackets, given what is seen of S",
           r"E\[[^\]]+\]"),
    _entry("phibar", "the features' true expectation given what is seen of S"),
    _entry("phihat", "the same expectation under the law: what the policy works with"),
    _entry("mu_p0", "the reference fit: expectation of the target estimated anew from other units",
           "mu_p0", "reference fit"),
    _entry("mu_phat", "the law's own expectation of the target", "mu_phat", r"mu_p\^"),
    _entry("r(s)", "half-width of the confidence band around the reference fit at a context",
           r"r\(s\)", r"half-width r", "r"),
    _entry("difference", "|mu_p0 - mu_phat|: how far the reference fit and the law are apart",
           r"differences?"),
    _entry("E_{t,a,j}", "bound on the error of feature j of action a in round t: r + difference",
           r"E_\{t,a,j\}", "bound mean", "bound sup"),
    _entry("D_t", "the largest E_{t,a,j}^2 over actions and features: how wrong the law can be",
           r"D_t", r"D"),
    _entry("domain", "the contexts the band speaks of; beyond it the bound is widened by "
           "extrapolation", "domain"),
    _entry("level", "probability, over held-out units, with which all bounds hold at once",
           "level"),
    _entry("held out", "units the law was not fitted on", "held out", "held-out"),
    _entry("Monte Carlo", "error of averages over finitely many simulated draws"),
    _entry("n", "number of units the band is made from", r"n\^-[\d.]+"),
    _entry("KL route", "the paper's bound by way of a divergence between laws", "KL route"),
    _entry("critical", "how many standard errors wide the band must be to hold everywhere"),
    _entry("theta", "the unknown weights of the features in the reward; theta* are the true ones",
           r"theta\*?"),
    _entry("e_{t,a}", "bound on the error of the expected reward of action a: E weighed by theta",
           r"e_\{t,a\}"),
    _entry("gamma_t", "squared radius of the confidence ball around the estimate of theta",
           r"gamma_t", r"gamma"),
    _entry("ridge", "lambda: what keeps the estimate of theta near 0 before there are rewards",
           "ridge", "lambda"),
    _entry("imputation", "using the law's expectation in place of the W that is not seen"),
    _entry("sigma", "scale of the noise in a reward, given S"),
    _entry("delta", "probability with which the confidence ball may miss theta*"),
    _entry("regret", "reward lost, summed over rounds, against the best action given S and W"),
    _entry("regret_cond", "reward lost against the best action that can be found from S alone",
           "regret_cond", "conditional regret"),
    _entry("info_gap", "the information gap: regret no policy can avoid that does not see W",
           "info_gap", "information gap"),
    _entry("se", "standard error: how much a mean over runs would vary in other runs",
           "se", "se_cond", r"standard errors?"),
    _entry("refused", "rounds a policy could not score, because an input was not seen",
           "refused"),
    _entry("law_id", "fingerprint of the fitted law: another fit has another one"),
    _entry("SHA-256", "fingerprint of a file: one changed byte changes it"),
    _entry("seed", "the number all random draws start from; the same seed gives the same page",
           "seed", "Seed"),
    _entry("skill", "share of the variance of held-out W that the law explains"),
    _entry("coverage", "share of held-out W inside the law's predictive interval"),
    _entry("PIT", "share of the law's draws that lie below the recorded value; evenly spread if "
           "the law is right", "PIT", "pit"),
    _entry("CRPS", "a score of forecasts: how far the law's draws are from what came, small is "
           "good", "CRPS", "crps"),
    _entry("log score", "logarithm of the density the law gave to what came, in nats; large is "
           "good", "log score", "nats"),
    _entry("climatology", "a guess that ignores S: the spread of W in the archive"),
    _entry("serial", "whether what is left of W depends on what was left before"),
    _entry("r_hat", "agreement of sampling chains; near 1 is good"),
    _entry("pareto_k", "whether importance weights can be trusted; small is good"),
)  # fmt: skip


def entries_in(text: str) -> list[Entry]:
    """Return the entries whose symbols occur in a text, in the glossary's order."""
    return [entry for entry in GLOSSARY if re.search(entry.pattern, text)]


def glossary_table(text: str) -> DataFrame:
    """Return one line per symbol that occurs in a text."""
    import pandas as pd

    found = [(entry.symbol, entry.words) for entry in entries_in(text)]
    return pd.DataFrame(found, columns=["symbol", "in plain words"])


def glossary_section(text: str) -> Section:
    """Return the glossary of a page whose text is given."""
    return Section(
        "Glossary", "Symbols of the paper and words of the field, as used on this page.",
        glossary_table(text),
    )  # fmt: skip
