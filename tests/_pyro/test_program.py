"""The contract of a program with a state: every usual mistake has a sentence."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro import StepLaw
from pulse_pyro._core.errors import ModelError, SettingError
from tests.laws.step_programs import LEVEL, REGIME, level_archive, regime_archive

HISTORY = level_archive(units=3, time=12)[0]


def normal(name, loc, sd=1.0):
    return pyro.sample(name, dist.Normal(loc, sd))


def prior():
    return normal("a", 0.0), normal("c", 0.0)


def first(p):
    normal("z", torch.zeros(()))


def step(p, z, s_past):
    z = normal("z", 0.5 * z)
    normal("w", z + p[0])


def test_a_program_is_described():
    card = StepLaw(*LEVEL).check(HISTORY)
    assert card.state == "gaussian"
    assert card.modelled == ("pulse",)
    assert [site.kind for site in card.sites] == ["global"] * 3 + ["local"] + ["observed"] * 2
    assert "Kalman" in repr(card)
    card = StepLaw(*REGIME).check(regime_archive(3, 12)[0])
    assert (card.state, card.states) == ("discrete", 3)
    assert "forward" in repr(card)
    assert StepLaw(prior, first, step).check(HISTORY).state == "gaussian"


def no_z(p, z, s_past):
    normal("state", z)
    normal("w", p[0])


def no_w(p, z, s_past):
    normal("pulse", normal("z", z))


def other_shape(p, z, s_past):
    z = pyro.sample("z", dist.Normal(torch.stack([z, z], -1), 1.0).to_event(1))
    normal("w", z[..., 0])


def stray(p, z, s_past):
    normal("w", normal("z", z) + normal("u", 0.0))


def event_column(p, z, s_past):
    z = normal("z", z)
    pyro.sample("w", dist.Normal(z[..., None], 1.0).to_event(1))


def old_state(p, z, s_past):
    normal("z", 0.5 * z)
    normal("w", z)


def chained(p, z, s_past):
    z = normal("z", 0.5 * z)
    normal("w", z + normal("pulse", z))


def peeks(p, z, s_past):
    z = normal("z", 0.5 * z)
    normal("pulse", z)
    normal("w", z + s_past[..., -1, 0])


def state_peeks(p, z, s_past):
    z = normal("z", 0.5 * z + s_past[..., -1, 0])
    normal("pulse", z)
    normal("w", z)


def explodes(p, z, s_past):
    normal("w", normal("z", 1e30 * z))


def mixes_draws(p, z, s_past):
    z = normal("z", 0.5 * z)
    normal("w", z + p[0].mean())


def branches(p, z, s_past):
    normal("w", normal("z", 0.5 * z if z > 0 else z))


def parameter(p, z, s_past):
    normal("w", normal("z", 0.5 * z) + pyro.param("free", torch.zeros(())))


STEPS = {
    "no site 'z'": no_z,
    "'w' has no site in step": no_w,
    "event shape": other_shape,
    "neither the state 'z' nor a column": stray,
    "leave .to_event": event_column,
    "changes with the state before": old_state,
    "another sampled column": chained,
    "newest": peeks,
    "may not depend on a column": state_peeks,
    "explodes": explodes,
    "one by one": mixes_draws,
    "no if on a tensor": branches,
    "pyro.param": parameter,
}


@pytest.mark.parametrize("says", STEPS)
def test_a_mistake_in_step_is_said_in_a_sentence(says):
    with pytest.raises(ModelError, match=says):
        StepLaw(prior, first, STEPS[says]).check(HISTORY)


def batch_prior():
    return normal("a", torch.zeros(3))


def discrete_prior():
    return (pyro.sample("a", dist.Bernoulli(0.5)),)


def empty_prior():
    return (torch.zeros(()),)


def column_prior():
    return (normal("w", 0.0),)


def param_prior():
    normal("b", 0.0)
    return (pyro.param("a", torch.zeros(())),)


PRIORS = {
    r"to_event\(1\)": batch_prior,
    "discrete": discrete_prior,
    "samples nothing": empty_prior,
    "column's name": column_prior,
    "pyro.param": param_prior,
}


@pytest.mark.parametrize("says", PRIORS)
def test_a_mistake_in_prior_is_said_in_a_sentence(says):
    with pytest.raises(ModelError, match=says):
        StepLaw(PRIORS[says], first, step).check(HISTORY)


def test_first_samples_the_state_alone():
    with pytest.raises(ModelError, match="samples no site 'z'"):
        StepLaw(prior, lambda p: None, step).check(HISTORY)

    def too_much(p):
        normal("z", torch.zeros(()))
        normal("w", torch.zeros(()))

    with pytest.raises(ModelError, match="columns belong into step"):
        StepLaw(prior, too_much, step).check(HISTORY)


def bent(p, z, s_past):
    normal("w", normal("z", torch.tanh(z)))


def scaled(p, z, s_past):
    normal("w", normal("z", z * 0.5, torch.exp(0.1 * z)))


def heavy(p, z, s_past):
    pyro.sample("w", dist.StudentT(4.0, normal("z", 0.5 * z), 1.0))


@pytest.mark.parametrize(
    ("program", "why"), [(bent, "not affine"), (scaled, "scale"), (heavy, "StudentT")]
)
def test_what_is_not_gaussian_is_filtered_by_particles(program, why):
    card = StepLaw(prior, first, program).check(HISTORY)
    assert card.state == "particles"
    assert why in card.why
    with pytest.raises(ModelError, match=why):
        StepLaw(prior, first, program, state="gaussian").check(HISTORY)
    with pytest.raises(ModelError, match="declared state='discrete'"):
        StepLaw(prior, first, program, state="discrete").check(HISTORY)


def test_a_vector_state_with_correlated_noise_is_gaussian():
    def start(p):
        pyro.sample("z", dist.MultivariateNormal(torch.zeros(2), torch.eye(2)))

    def move(p, z, s_past):
        loc = torch.stack([0.5 * z[..., 0] + 0.1 * z[..., 1], z[..., 1]], -1)
        cov = torch.tensor([[1.0, 0.5], [0.5, 2.0]])
        z = pyro.sample("z", dist.MultivariateNormal(loc, cov))
        normal("w", z.sum(-1) + p[0])

    assert StepLaw(prior, start, move).check(HISTORY).state == "gaussian"


@pytest.mark.parametrize(
    "settings", [{"state": "linear"}, {"memory": 0}, {"particles": 7}, {"draws": 0}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(SettingError):
        StepLaw(prior, first, step, **settings)
    with pytest.raises(SettingError, match="must be a function"):
        StepLaw(np.zeros(2), first, step)
