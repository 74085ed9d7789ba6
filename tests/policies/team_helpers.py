"""Committees, memories and worlds for the tests of this folder."""

from functools import cache

import numpy as np

import pulse_pyro as pp
from pulse_pyro.policies.guard import Learner, play_guarded
from pulse_pyro.radius import matched_ridge
from tests.calibration.helpers import LINEAR
from tests.policies.helpers import archive, contexts, mixed_features, w_features, world
from tests.policies.test_guarded_policy import renamed

SCALE = {"sigma": 0.4, "theta_bound": 2.0}
WA, TWO = w_features(1), mixed_features()  # one W and two arms; two W and three arms


def law(w_dim=1, lags=2, memory=None, seed=0):
    return _law(w_dim, lags, memory, seed)


@cache
def _law(w_dim, lags, memory, seed):
    model = pp.linear_lags(lags)
    model = model if memory is None else model.with_memory(memory)
    return model.fit(archive(12, 20, w_dim), pp.Exact(60), seed=seed)


@cache
def filtering():
    return pp.state_space(2, ar=1, ma=0).fit(archive(12, 20), seed=0, draws=60)


@cache
def calibration(w_dim=1):
    phi = WA if w_dim == 1 else TWO
    held_out = renamed(archive(30, 20, w_dim, seed=8))
    return pp.calibrate(law(w_dim), held_out, phi, seed=0, band=LINEAR)


def everyone(w_dim=1):
    """All kinds of members."""
    return {
        "pulse": law(w_dim),
        "memory": law(w_dim, memory="level+ar"),
        "adaptive": law(w_dim).ellipsoid(variance="classical"),
        "lags": pp.Lags(3),
        "rewards": (pp.Lags(1), pp.policies.past_rewards(2)),
        "long": law(w_dim, 4),
    }


def team(w_dim=1, members=None, **more):
    phi = WA if w_dim == 1 else TWO
    options = SCALE | {"reward_sd": 0.1} | more
    return pp.Committee(members or everyone(w_dim), phi, **options)


def guarded(w_dim=1, members=None, memory=None, **more):
    """A guard around a committee."""
    own = law(w_dim, memory=memory)
    advisor = team(w_dim, members, votes=more.pop("votes", "tempered"))
    options = {"reward_sd": 0.1, "theta_bound": 2.0, "advisor": advisor} | more
    phi = WA if w_dim == 1 else TWO
    return pp.PulseUCB(own, phi, calibration=calibration(w_dim), **options)


@cache
def online(w_dim=1, rounds=80, lead=5, seed=9):
    """A world of one run."""
    phi = WA if w_dim == 1 else TWO
    return world(phi, contexts(1, rounds + lead, seed), w_dim, lead=lead)


def learner(x, carry=None):
    """A learner as a committee of SCALE has it; x (run, time, action, d)."""
    ridge = matched_ridge(dim=x.shape[-1], **SCALE)
    return Learner(x, ridge, SCALE["sigma"], SCALE["sigma"], carry)


def stream(bot, here):
    """Play a world's run; return decisions, features (time, K, d) and weights (time, k)."""
    for row in here.s[0, : here.lead]:
        bot.observe(row)
    choices, x, weights = [], [], []
    for t, row in enumerate(here.s[0, here.lead :]):
        choices.append(bot.act(row))
        x.append(bot._x[0, 0].copy())
        weights.append(bot.core.weights)
        bot.learn(choices[-1], here.reward[0, t, choices[-1].action])
    return choices, np.array(x), np.array(weights)


def batch(here, *learners, votes="tempered"):
    return play_guarded(list(learners), here.reward, ball=None, votes=votes)
