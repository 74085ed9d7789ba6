import random

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro._core.errors import SettingError
from pulse_pyro._pyro.contract import check_model
from pulse_pyro._pyro.engines import Problem, run_engine
from pulse_pyro._pyro.inference import Laplace, Nuts, Svi
from pulse_pyro._pyro.sandbox import sandbox

ENGINES = [Nuts(draws=4, warmup=5), Svi(draws=8, steps=5), Laplace(draws=8)]


@pytest.fixture
def caller_store():
    with pyro.get_param_store().scope():
        pyro.param("mine", torch.tensor([1.0, 2.0]))
        yield pyro.get_param_store()


def state():
    """Everything global that Pyro or torch is known to touch."""
    return {
        "torch": torch.random.get_rng_state().numpy().tobytes(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "local": pyro.settings.get("module_local_params"),
        "pyro_checks": pyro.infer.util.is_validation_enabled(),
        "torch_checks": torch.distributions.Distribution._validate_args,
        "numpy": str(np.random.get_state(legacy=False)),  # noqa: NPY002
        "python": random.getstate(),
        "store": {k: v.tolist() for k, v in pyro.get_param_store().items()},
    }


def disturb():
    pyro.param("mine", torch.tensor(5.0))
    pyro.param("theirs", torch.zeros(3))
    torch.randn(7)
    torch.set_default_dtype(torch.float16)
    torch.set_num_threads(3)


def test_nothing_global_changes(caller_store):
    before = state()
    with sandbox(3, "here"):
        disturb()
    assert state() == before
    assert caller_store["mine"].tolist() == [1.0, 2.0]


def test_nothing_global_changes_after_an_exception(caller_store):
    def fail():
        disturb()
        raise ZeroDivisionError

    before = state()
    with pytest.raises(ZeroDivisionError), sandbox(3, "here"):
        fail()
    assert state() == before


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_a_bad_seed_is_refused_and_nothing_global_changes(seed):
    before = state()
    with pytest.raises(SettingError, match="seed"), sandbox(seed):
        pytest.fail("the body must not run")
    assert state() == before


def test_inside_there_is_double_precision_one_thread_and_an_empty_store(caller_store):
    with sandbox(0):
        assert torch.zeros(1).dtype == torch.float64
        assert torch.get_num_threads() == 1
        assert not list(pyro.get_param_store().keys())
        assert pyro.settings.get("module_local_params")


def test_sandboxes_nest():
    before = state()
    with sandbox(1):
        torch.randn(3)
        middle = state()
        with sandbox(2):
            disturb()
        assert state() == middle
    assert state() == before


def draws_of(*key):
    with sandbox(*key):
        return torch.randn(4).tolist()


def test_the_stream_depends_on_seed_and_names_only():
    first = draws_of(1, "fit")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert draws_of(1, "fit") == first
    assert draws_of(2, "fit") != first
    assert draws_of(1, "predict") != first


def test_parameters_do_not_leak_into_the_next_sandbox():
    with sandbox(0):
        pyro.param("p", torch.tensor(3.0))
    with sandbox(0):
        assert pyro.param("p", torch.tensor(0.0)).item() == 0.0


def slope(x, w=None):
    b = pyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with pyro.plate("rows", len(x), dim=-1):
        pyro.sample("w", dist.Normal((x * b).sum(-1)[..., None], 1.0).to_event(1), obs=w)


def own_guide(x, w=None):
    loc = pyro.param("loc", lambda: torch.randn(2))
    pyro.sample("b", dist.Normal(loc, 0.1).to_event(1))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((20, 2)), rng.standard_normal((20, 1))
    tensors = (torch.as_tensor(x), torch.as_tensor(w))
    return Problem(slope, tensors, check_model(slope, x, w), "slope")


def fitted(problem, how, seed, guide=None):
    return run_engine(Problem(slope, problem.args, problem.card, "slope", guide), how, seed)


@pytest.mark.parametrize("how", ENGINES, ids=lambda how: type(how).__name__)
def test_fits_of_one_seed_agree_to_the_last_bit_and_others_differ(problem, how, caller_store):
    before = state()
    first, other = fitted(problem, how, 4), fitted(problem, how, 5)
    with torch.random.fork_rng(devices=[]):
        torch.randn(3)
        again = fitted(problem, how, 4)
    assert again.draws["b"].tobytes() == first.draws["b"].tobytes()
    assert again.quality == first.quality
    assert np.array_equal(again.losses, first.losses)
    assert not np.any(other.draws["b"] == first.draws["b"])
    assert state() == before


@pytest.mark.parametrize("kind", ["function", "module"])
def test_a_guide_starts_afresh_in_every_fit(problem, kind):
    guide = own_guide if kind == "function" else pyro.infer.autoguide.AutoNormal(slope)
    how = Svi(draws=8, steps=20)
    first, again = fitted(problem, how, 4, guide), fitted(problem, how, 4, guide)
    assert np.array_equal(first.losses, again.losses)
    assert np.array_equal(first.draws["b"], again.draws["b"])


def test_a_model_that_fails_half_way_leaves_nothing_behind(problem, caller_store):
    def fails(x, w=None):
        slope(x, w)
        pyro.param("theirs", torch.zeros(3))
        raise ArithmeticError("half-way")

    before = state()
    with pytest.raises(ArithmeticError, match="half-way"):
        run_engine(Problem(fails, problem.args, problem.card, "fails"), Laplace(draws=8), 0)
    assert state() == before
