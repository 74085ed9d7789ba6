"""What the tests of this folder share."""

import json
import math
import sys
from dataclasses import dataclass, field

import numpy as np
import pyro
import pyro.distributions as dist

from pulse_pyro import Lags, Law, load
from pulse_pyro.data.history import History
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features

# The linear core written out densely from the formulas, one run, everything anew each round.


@dataclass(frozen=True)
class Rule:
    """Settings of the corrected radius and its variants; alpha infinite: all rounds count 1."""

    sigma: float = 0.3
    delta: float = 0.05
    size: float = 1.0
    alpha: float = math.inf
    budget: float = math.inf
    form: str = "sharp"


@dataclass
class Path:
    """What was played: one entry a round, and the final sums."""

    action: list = field(default_factory=list)
    root: list = field(default_factory=list)
    spent: list = field(default_factory=list)
    weight: list = field(default_factory=list)
    terms: tuple = (0.0, 0.0, math.inf)
    sigma: np.ndarray = None
    b: np.ndarray = None

    @property
    def theta(self):
        return np.linalg.solve(self.sigma, self.b)


def dense(x, reward, rule, lam=1.0, *, error=None, taught=None):
    """Play x (time, action, d), reward (time, action).

    error : (time, action). taught : (time, action, d) learned from instead, with error 0.
    """
    rounds, arms, d = x.shape
    sigma, b, path = lam * np.eye(d), np.zeros(d), Path()
    learned, squares, triangle = 0, 0.0, 0.0
    for t in range(rounds):
        inverse = np.linalg.inv(sigma)
        theta = inverse @ b
        logdet = np.linalg.slogdet(sigma)[1] - d * math.log(lam)
        bias = min(math.sqrt(squares), triangle, rule.alpha * rule.budget)
        spread = rule.sigma * math.sqrt(logdet + 2 * math.log(1 / rule.delta)) if learned else 0.0
        start = math.sqrt(lam) * rule.size
        root = bias + (start + spread if rule.form == "sum" else math.hypot(start, spread))
        e = np.zeros(arms) if error is None else error[t]
        score = [z @ theta + root * math.sqrt(z @ inverse @ z) for z in x[t]]
        a = int(np.argmax(score))
        z = x[t, a] if taught is None else taught[t, a]
        err = e[a] if taught is None else 0.0
        path.action.append(a)
        path.root.append(root)
        path.spent.append(err)
        if not np.isfinite(reward[t, a]):
            path.weight.append(np.nan)
            continue
        u = math.sqrt(z @ inverse @ z)
        w = min(1.0, rule.alpha / u) if u > 0 else 1.0
        path.weight.append(w)
        squares += w * err**2
        triangle += err * w * u / math.sqrt(1 + w * u**2)
        sigma, b = sigma + w * np.outer(z, z), b + w * reward[t, a] * z
        learned += 1
    path.terms = (math.sqrt(squares), triangle, rule.alpha * rule.budget)
    path.sigma, path.b = sigma, b
    return path


def always_inside(x, reward, action, gamma, theta, lam=1.0, weigh=None):
    """Runs (bool) whose ball holds theta before every round, from the actions played.

    x (run, time, action, d), reward (run, time, action), action and gamma (run, time); weigh: u ->
    w, all 1 by default. The last ball is the one the last round was played with.
    """
    runs, rounds, _, d = x.shape
    each, sigma, b = np.arange(runs), np.tile(lam * np.eye(d), (runs, 1, 1)), np.zeros((runs, d))
    inside = np.ones(runs, bool)
    for t in range(rounds):
        gap = np.linalg.solve(sigma, b[..., None])[..., 0] - theta
        distance = np.einsum("ri,rij,rj->r", gap, sigma, gap)
        inside &= distance <= gamma[:, t] * (1 + 1e-9)
        z = x[each, t, action[:, t]]
        u = np.sqrt(np.einsum("ri,ri->r", z, np.linalg.solve(sigma, z[..., None])[..., 0]))
        w = np.ones(runs) if weigh is None else weigh(u)
        sigma = sigma + w[:, None, None] * z[:, :, None] * z[:, None, :]
        b = b + (w * reward[each, t, action[:, t]])[:, None] * z
    return inside


# Archives, worlds and feature maps with two columns of S and several W, for streaming tests.


S_NAMES = ("a", "b")


def contexts(units, time, seed):
    """S (units, time, 2): a stable VAR(1) of two unlike columns."""
    rng = np.random.default_rng(seed)
    s, out = np.zeros((units, 2)), np.empty((units, time + 30, 2))
    for t in range(time + 30):
        s = s @ [[0.6, 0.2], [0.0, 0.4]] + rng.standard_normal((units, 2))
        out[:, t] = s
    return out[:, 30:] * [0.5, 20.0] + [1.0, -100.0]


def missing(s, w_dim, seed):
    """W (units, time, w_dim): linear in S_t and S_{t-1}, the first row as if S_0 = S_1."""
    rng = np.random.default_rng([seed, 1])
    past = np.concatenate([s[:, :1], s[:, :-1]], axis=1)
    z = (np.concatenate([s, past], axis=-1) - [1.0, -100.0] * 2) / [0.5, 20.0, 0.5, 20.0]
    coef = np.array([[0.5, -0.3, 0.2], [-0.4, 0.6, 0.1], [0.3, 0.2, -0.5], [0.1, -0.2, 0.4]])
    return z @ coef[:, :w_dim] + 0.1 + 0.3 * rng.standard_normal((*s.shape[:2], w_dim))


def archive(units=4, time=8, w_dim=1, seed=0):
    s = contexts(units, time, seed)
    seen = np.ones((units, time), dtype=bool)
    names = tuple(f"u{i}" for i in range(units))
    w_names = tuple(f"w{j}" for j in range(w_dim))
    return History.from_arrays(
        s, missing(s, w_dim, seed), seen=seen, units=names, s_names=S_NAMES, w_names=w_names
    )


def with_gaps(s, rate, seed):
    """S with values that are not seen; the first three rows stay whole."""
    out = s.copy()
    hole = np.random.default_rng([seed, 2]).random(s.shape) < rate
    hole[..., :3, :] = False
    out[hole] = np.nan
    return out


def w_features(w_dim, actions=2):
    """Phi = (1, W, W a): every W enters two coordinates; S is not needed."""
    names = ("1", *(f"W{j}" for j in range(w_dim)), *(f"W{j}*a" for j in range(w_dim)))
    return Features(lambda s, w, a: np.column_stack([np.ones(len(w)), w, w * a]), actions, names)


def mixed_features():
    """Three arms, several W in one coordinate, slopes that depend on S."""

    def fn(s, w, a):
        tilt = (s[:, 0] - 1.0) * a
        return np.column_stack([np.ones(len(w)), w[:, 0] + a * w[:, 1], tilt * w[:, 1], tilt])

    return Features(fn, 3, ("1", "w0+a w1", "t w1", "t"))


def world(features, s, w_dim, seed=0, lead=2):
    """A World on contexts s (run, lead + time, 2); phibar is not asked for here."""
    rng = np.random.default_rng([seed, 3])
    full = np.where(np.isnan(s), [1.0, -100.0], s)
    w = missing(full, w_dim, seed)[:, lead:]
    rows = full[:, lead:].reshape(-1, 2), w.reshape(-1, w_dim)
    phi = np.stack([features(*rows, a) for a in range(features.actions)], axis=1)
    phi = phi.reshape(*w.shape[:2], features.actions, -1)
    theta = rng.standard_normal(phi.shape[-1]) / 2
    noise = 0.1 * rng.standard_normal(w.shape[:2])
    return World(s, w, phi, phi, theta, noise, features, lead)


# Policies that go on in a program of their own: python -m tests.policies.helpers START STOP
# FOLDER=KIND ... loads them, plays on and prints what they did; it sees no archive.


RESTARTED = w_features(1)


def _model(x, w=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
    level = pyro.sample("level", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = level + (x * slope).sum(-1)
        pyro.sample("w", dist.Normal(mean.unsqueeze(-1), 0.3).to_event(1), obs=w)


CUSTOM = Law(_model, Lags(2), "mine")


def play_on(bot, start, stop, *, reveal=False):
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


def _go_on(start, stop, *policies):
    found = {}
    for folder, _, kind in (each.rpartition("=") for each in policies):
        bot = load(folder, CUSTOM if "custom" in kind else None, RESTARTED)
        law = bot.law.id  # before it grows further
        found[kind] = [law, play_on(bot, int(start), int(stop), reveal="growing" in kind)]
    print(json.dumps(found))


if __name__ == "__main__":
    _go_on(*sys.argv[1:])
