"""A policy in a program of its own: run with the saved folder, it plays on and prints what it did.

Run as ``python -m tests.policies.restarted FOLDER KIND START STOP``; it sees no archive.
"""

import json
import sys

import numpy as np
import pyro
import pyro.distributions as dist

import pulse_pyro as pp
from tests.policies.helpers import contexts, w_features

FEATURES = w_features(1)


def model(x, w=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
    level = pyro.sample("level", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = level[..., None] + (x * slope[..., None, :]).sum(-1)
        pyro.sample("w", dist.Normal(mean.unsqueeze(-1), 0.3).to_event(1), obs=w)


CUSTOM = pp.Law(model, pp.Lags(2), "mine")


def play(bot, start, stop, *, reveal=False):
    """Play rounds [start, stop) and return what was decided, exactly."""
    s, w = contexts(1, 200, 5)[0], np.random.default_rng(6).standard_normal((200, 1))
    out = []
    for t in range(start, stop):
        choice = bot.act(s[t], unit=f"u{t % 2}")
        late = {"w": w[t]} if reveal else {}
        if t % 7:
            bot.learn(choice, float(np.sin(2.0 * t)), **late)
        numbers = [*choice.x, *choice.mean, *choice.width, choice.gamma, choice.error]
        out.append([int(choice.action), *(float(v).hex() for v in numbers)])
    return out


if __name__ == "__main__":
    folder, kind, start, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    law = CUSTOM if "custom" in kind else None
    policy = pp.load(folder, law, FEATURES)
    print(json.dumps([policy.law.id, play(policy, start, stop, reveal="growing" in kind)]))
