"""Is a fitted law fit for use? Checks on units it has not seen: verdict first, then evidence."""

from pulse_pyro.diagnostics.domain import Domain
from pulse_pyro.diagnostics.held_out import GAPS, diagnose
from pulse_pyro.diagnostics.result import Diagnostics
from pulse_pyro.verdicts import RANK, Check

__all__ = ["GAPS", "RANK", "Check", "Diagnostics", "Domain", "diagnose"]
