"""Custom laws with a site per column, and latents that are summed out: ranks, and NUTS by hand."""

import pytest

import pulse_pyro as pp
from pulse_pyro.diagnostics import sbc
from tests._pyro.test_enumeration import REFERENCES
from tests._pyro.test_sites import FORMS, LAW, PLACES, bumps, history, summed_by_hand, table


def test_ranks_of_the_truth_are_uniform():
    found = sbc(LAW, history(table(200)), pp.Laplace(99), replications=40, seed=0)
    assert found.check.verdict != "fail"


def test_nuts_agrees_with_the_regimes_summed_by_hand():
    data, how = bumps(20, 20), pp.Nuts(draws=1500, warmup=200, chains=2)
    own = pp.Law(FORMS["column"], pp.Lags(1), "own").fit(data, how, seed=0)
    hand = summed_by_hand().fit(data, how, seed=0)
    for name in PLACES:
        sd = hand.draws[name].std()
        assert abs(own.draws[name].mean() - hand.draws[name].mean()) < 0.05 * sd


@pytest.mark.parametrize("name", REFERENCES)
def test_nuts_finds_the_reference_posterior(name):
    """Posteriors of posteriordb whose discrete latents are summed out."""
    found, draws = REFERENCES[name](pp.Nuts(draws=1000, warmup=300, chains=2))
    for column, value in found.items():
        reference = draws[column]
        off = (value.mean() - reference.mean()) / reference.std()
        print(f"\n{name} {column}: {off:+.3f} sd off, sd {value.std() / reference.std():.3f} of it")
        assert abs(off) < 0.1
        assert abs(value.std() / reference.std() - 1.0) < 0.1
