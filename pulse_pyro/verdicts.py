"""What every check has to say: a verdict, the number behind it, a sentence."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "warn", "fail", "info"]
RANK: tuple[Verdict, ...] = ("info", "pass", "warn", "fail")


@dataclass(frozen=True)
class Check:
    """One question put to a law: verdict, the number behind it, its threshold, a sentence."""

    name: str
    verdict: Verdict
    value: float
    threshold: float
    text: str
