"""Units of one row may be alike by chance; units of two are known by their values."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.diagnostics.leaks import refuse_duplicate_units


def people(rows, seed=0):
    """Forty people met ``rows`` times, marks in whole numbers; the last two give equal answers."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 10, (40, rows, 2)).astype(float)
    w = rng.integers(0, 10, (40, rows, 1)).astype(float)
    s[-1], w[-1] = s[-2], w[-2]
    units = tuple(f"p{i:02d}" for i in range(40))
    return pp.History.from_arrays(s, w, units=units, s_names=("s1", "s2"), w_names=("w",))


def test_two_people_met_once_may_answer_alike():
    refuse_duplicate_units(people(rows=1), "study.toml [data]")


def test_two_people_met_twice_do_not():
    with pytest.raises(pp.errors.LeakageError, match="'p38' and 'p39' have the same values"):
        refuse_duplicate_units(people(rows=2), "study.toml [data]")


@pytest.mark.parametrize(("rows", "leaks"), [(1, False), (2, True)])
def test_the_same_holds_for_held_out_units(rows, leaks):
    both = people(rows)
    fit, held_out = both.take(range(39)), both.take([39])
    law = pp.linear_lags(1).fit(fit, seed=0)
    if leaks:
        with pytest.raises(pp.errors.LeakageError, match="has the values of unit 'p38'"):
            pp.diagnose(law, held_out, seed=0, archive=fit)
    else:
        pp.diagnose(law, held_out, seed=0, archive=fit)
