"""One false-alarm rate for every statistical test, and the bounds that go with it."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-5


def z_bound(comparisons=1):
    """|z| that a standard normal exceeds with probability FALSE_ALARM over all comparisons."""
    return stats.norm.isf(FALSE_ALARM / comparisons / 2)


def assert_mean(sample, expected, axis=0):
    """The sample's mean along ``axis`` agrees with ``expected`` at the stated rate."""
    sample = np.asarray(sample)
    count = sample.shape[axis]
    error = sample.std(axis, ddof=1) / np.sqrt(count)
    z = np.abs(sample.mean(axis) - expected) / error
    assert np.max(z) <= z_bound(np.size(z)), f"largest |z| is {np.max(z):.2f}"


def binomial_floor(trials, rate):
    """Least count that is still compatible with success probability >= rate."""
    return int(stats.binom.ppf(FALSE_ALARM, trials, rate))
