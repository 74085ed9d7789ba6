"""The errors pulse_pyro raises: what was asked, where, what was got, what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches


class PulseError(Exception):
    """Base of every error this package raises on purpose."""


class DataError(PulseError):
    """The archive (a data frame or a History) cannot be used as it is."""


class ModelError(PulseError):
    """A Pyro model breaks the contract of a law, or an engine cannot fit it."""


class ConvergenceError(ModelError):
    """An engine ran, but did not arrive anywhere that could be used."""


class FeatureError(PulseError):
    """A feature map returned the wrong shape or a value that is not finite."""


class SettingError(PulseError):
    """A number or name handed to the library is outside what it accepts."""


class RewardError(PulseError):
    """A reward is not finite, or belongs to no open decision."""


class LeakageError(PulseError):
    """Units used to fit a law turn up where fresh units are required."""


class BundleError(PulseError):
    """What was saved is incomplete, was edited, or belongs to another model or Phi."""


def nearest(name: str, options: Iterable[str]) -> str:
    """Return a "; did you mean ...?" clause for a misspelt name, or the list of options."""
    names = [str(option) for option in options]
    same = [option for option in names if option.lower() == str(name).lower()]
    close = same or get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = ", ".join(repr(option) for option in names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"; known: {shown}{more}." if names else "; none is known."
