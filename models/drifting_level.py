"""A level of one's own that drifts: W is a line in S plus a level that wanders, person by person.

    z_t = z_{t-1} + drift * e_t,   z_0 ~ N(0, spread^2),
    S_t = c + d z_t + s_sd * e'_t,   W_t = a + z_t + w_sd * e''_t.

Use it when people differ in level and the level itself moves slowly (fitness, mood over weeks): S
tells of it with noise, and so does every W that is revealed. The level is integrated out exactly
(Kalman filter); S may be unseen at any row. Columns "s" and "w". Not covered: levels that are
pulled back (see ar_errors), jumps, a W that is not near normal.
"""

import pyro
import pyro.distributions as dist


def prior():
    return {
        "drift": pyro.sample("drift", dist.LogNormal(-1.5, 0.5)),
        "spread": pyro.sample("spread", dist.LogNormal(0.0, 0.5)),
        "a": pyro.sample("a", dist.Normal(0.0, 1.0)),
        "c": pyro.sample("c", dist.Normal(0.0, 1.0)),
        "d": pyro.sample("d", dist.Normal(1.0, 0.5)),
        "s_sd": pyro.sample("s_sd", dist.LogNormal(-0.5, 0.5)),
        "w_sd": pyro.sample("w_sd", dist.LogNormal(-0.5, 0.5)),
    }


def first(p):
    pyro.sample("z", dist.Normal(0.0, p["spread"]))


def step(p, z, s_past):
    z = pyro.sample("z", dist.Normal(z, p["drift"]))
    pyro.sample("s", dist.Normal(p["c"] + p["d"] * z, p["s_sd"]))
    pyro.sample("w", dist.Normal(p["a"] + z, p["w_sd"]))
