"""Jobs give the same figures wherever they run, in order, and failures arrive as they are."""

import numpy as np
import pytest

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.parallel import Dask, Local, in_order

ENGINES = {"one": Local(1), "two": Local(2), "dask": Dask()}


def product(seed):
    """Large enough for linear algebra to use several threads, if it were allowed to."""
    x = np.random.default_rng(seed).standard_normal((400, 400))
    return (x @ x.T @ x).sum()


def refuse(number):
    if number == 2:
        raise DataError("number 2 is refused.")
    return number


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


def test_results_are_the_same_and_in_order(engine):
    jobs = [3, 1, 2, 5, 4]
    assert list(in_order(product, jobs, engine)) == list(in_order(product, jobs, Local(1)))


def test_a_closure_can_be_a_job():
    shift = 10
    assert list(in_order(lambda n: n + shift, [1, 2, 3], Local(2))) == [11, 12, 13]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_job_is_that_error(workers):
    with pytest.raises(DataError, match="number 2 is refused"):
        list(in_order(refuse, [1, 2, 3], Local(workers)))


@pytest.mark.parametrize("workers", [0, -1, 1.5])
def test_a_number_of_workers_that_is_none_is_refused(workers):
    with pytest.raises(SettingError, match="workers"):
        Local(workers)


def test_no_jobs_give_no_results():
    assert list(in_order(product, [], Local(2))) == []
