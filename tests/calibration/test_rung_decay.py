"""How bounds of rungs fall with the archive: what is compared, and what is not known."""

from types import SimpleNamespace

import numpy as np
import pytest

from pulse_pyro.calibration.average import AverageErrors
from pulse_pyro.calibration.forecast import Reliability
from pulse_pyro.calibration.rung import Rung, no_rung
from pulse_pyro.calibration.rung_decay import rung_decays


def ladder_of(size, bins=5, k=(3,), holds=True):
    """A calibration with the rungs forecast and average alone, of these sizes."""
    reliability = object.__new__(Reliability)
    object.__setattr__(reliability, "target", np.zeros(bins, int))
    average = object.__new__(AverageErrors)
    object.__setattr__(average, "k", np.array(k))
    sds = np.array([[size * (1 + m)] for m in range(len(k))])
    object.__setattr__(average, "in_sds", sds)
    verdict = "stands" if holds else "fails"
    rungs = (
        Rung("forecast", verdict, "F.", np.array([size]), details=reliability),
        Rung("average", verdict, "A.", sds[-1], details=average),
    )
    named = {rung.name: rung for rung in rungs}
    return SimpleNamespace(rungs=rungs, rung=named.__getitem__)


def followed(*sizes):
    return rung_decays(sizes, no_rung("uniform", "fails", "No."))


def test_rates_compare_the_same_bins_and_functions_and_one_ordering_voids_no_size():
    noise = np.exp(0.02 * np.random.default_rng(0).standard_normal((4, 4)))
    pairs = zip((10, 20, 40, 80), noise, strict=True)
    sizes = [(n, [n**-0.5 * u for u in row]) for n, row in pairs]
    plain = [(n, [ladder_of(v) for v in values]) for n, values in sizes]
    forecast, average = followed(*plain)
    for rung in (forecast, average):
        assert rung.half.low < 320 < rung.half.high
        assert rung.half.n == pytest.approx(320, rel=0.1)
    # an ordering whose rung fails at one size is left out, not the size
    hurt = [list(each) for each in plain]
    hurt[1] = (20, [ladder_of(1.0, holds=False), *plain[1][1][1:]])
    assert followed(*hurt)[0].decay.values.shape == (3, 4)
    # three bins of 10 clusters, and five of more, are two claims
    coarse = [(10, [ladder_of(0.1, bins=3) for _ in range(4)]), *plain[1:]]
    assert followed(*coarse)[0].decay.units.tolist() == [20, 40, 80]
    assert followed(*coarse)[0].half.n == pytest.approx(320, rel=0.2)
    # the largest k that three sizes have in common, though the rung now tells a larger one
    more = [*plain[:2], *((n, [ladder_of(v, k=(3, 9)) for v in row]) for n, row in sizes[2:])]
    average = followed(*more)[1]
    assert (average.alike, average.decay.units.tolist()) == ("k = 3", [10, 20, 40, 80])
    assert average.size == pytest.approx(np.mean(sizes[-1][1]))  # not twice that, as of k = 9
    few = followed(*((n, [ladder_of(v, bins=n) for v in row]) for n, row in sizes))[0]
    assert few.answer.startswith("not known: fewer than 3 sizes")


def test_more_than_tenfold_is_not_known():
    rng = np.random.default_rng(1)
    wild = [
        (n, [ladder_of(n**-0.3 * np.exp(0.4 * rng.standard_normal())) for _ in range(3)])
        for n in (10, 20, 40, 80)
    ]
    rung = followed(*wild)[0]
    assert rung.half.high > 10 * rung.half.low
    assert rung.answer.startswith("not known: by these orderings anything from ")
    assert np.isnan(rung.line["clusters for half"])
    flat = [(n, [ladder_of(1.0 + 1e-3 * o + 1e-9 * n) for o in range(3)]) for n in (10, 20, 40, 80)]
    assert followed(*flat)[0].answer.startswith("not reachable by this rate")
