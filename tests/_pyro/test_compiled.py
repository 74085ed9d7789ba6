"""Flat programs: the same answers, and none for what cannot be written down."""

import numpy as np
import pytest
import torch

from pulse_pyro._pyro.compiled import flat_program
from pulse_pyro._pyro.sandbox import sandbox

RNG = np.random.default_rng(0)
X, OTHER, AT = torch.tensor(RNG.standard_normal((3, 1, 3)))
COEF = torch.tensor(RNG.standard_normal((50, 1, 3)))


@pytest.fixture(autouse=True)
def alone():
    with sandbox(0, "compiled"):
        yield


def operations(flat):
    return [node for node in flat.graph.nodes if node.op == "call_function"]


def test_what_the_input_does_not_reach_is_worked_out_once():
    def line(x):
        sd = torch.exp(COEF).sum() * torch.randn(())  # reaches nothing
        scale = torch.linalg.inv(COEF.mT @ COEF + torch.eye(3))
        assert sd.ndim == 0
        return (x * (COEF @ scale)).sum(-1)

    flat = flat_program(line, [X], [OTHER])
    assert len(operations(flat)) == 2  # a product and a sum
    torch.testing.assert_close(flat(AT), line(AT), rtol=0, atol=1e-12)


def test_writes_in_place_count():
    def stepwise(x):
        out = torch.zeros(2, 3)
        out[:1] += x
        out[1:] = 2 * out[:1]
        return out.clamp_(min=0.0)

    flat = flat_program(stepwise, [X], [OTHER])
    at = torch.tensor([[1.0, -1.0, 3.0]])
    assert flat(at).tolist() == [[1.0, 0.0, 3.0], [2.0, 0.0, 6.0]]


def test_several_inputs_and_an_answer_that_is_one_of_them():
    flat = flat_program(lambda x, y: x + 2 * y, [X, AT], [OTHER, X])
    torch.testing.assert_close(flat(X, OTHER), X + 2 * OTHER)
    torch.testing.assert_close(flat_program(lambda x: x, [X], [OTHER])(OTHER), OTHER)


calls = []


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x if x.sum() > 0 else -x,  # decided by values
        lambda x: x + torch.randn(()),
        lambda x: x + float(x.detach().numpy().sum()),
        lambda x: calls.append(0) or x * len(calls),  # another answer each time
        lambda x: x.no_such_method(),
    ],
    ids=["branch", "random", "numpy", "state", "error"],
)
def test_what_cannot_be_written_down_is_left_to_be_run(program):
    assert flat_program(program, [X], [OTHER]) is None


LOW = torch.full((1, 3), -torch.inf)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.cat([LOW, x * (calls.append(0) or len(calls))]),
        lambda x: torch.cat([x, LOW if calls.append(0) or len(calls) % 2 else -LOW]),
        lambda x: torch.cat([x, LOW if calls.append(0) or len(calls) % 2 else 0.0 * x]),
        lambda x: torch.cat([x, 0.0 * x if calls.append(0) or len(calls) % 2 else LOW]),
    ],
    ids=["finite beside infinite", "sign", "infinite no more", "infinite now"],
)
def test_an_infinite_value_excuses_nothing(program):
    calls.clear()
    assert flat_program(program, [X], [OTHER]) is None


def test_infinite_values_in_place_are_no_obstacle():
    def bounded(x):
        return torch.where(x > 0.0, torch.log(x.clamp(min=0.0)), -torch.inf)

    flat = flat_program(bounded, [X], [OTHER])
    assert torch.isneginf(bounded(X)).any()
    torch.testing.assert_close(flat(AT), bounded(AT), rtol=0, atol=1e-12)
