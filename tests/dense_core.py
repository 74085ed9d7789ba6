"""The linear core written out densely from the formulas, one run, everything anew each round."""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Rule:
    """Settings of the corrected radius and its variants; alpha infinite: all rounds count 1."""

    sigma: float = 0.3
    delta: float = 0.05
    size: float = 1.0
    alpha: float = math.inf
    budget: float = math.inf
    bias: bool = False
    ridge: bool = False
    optimistic: bool = False


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


def dense(x, reward, rule, lam=1.0, *, error=None, eps=None, slopes=None, taught=None):
    """Play x (time, action, d), reward (time, action).

    error : (time, action). eps : (time, q) with slopes (action, q, d), constant, or
    (time, action, q, d). taught : (time, action, d) learned from instead, with error 0.
    """
    rounds, arms, d = x.shape
    sigma, b, path = lam * np.eye(d), np.zeros(d), Path()
    learned, squares, triangle = [], 0.0, 0.0  # learned: (w, e, features)
    kappa = np.full((arms, 0 if eps is None else eps.shape[1]), np.inf)
    for t in range(rounds):
        inverse = np.linalg.inv(sigma)
        theta = inverse @ b
        logdet = np.linalg.slogdet(sigma)[1] - d * math.log(lam)
        bias = min(math.sqrt(squares), triangle, rule.alpha * rule.budget)
        spread = rule.sigma * math.sqrt(logdet + 2 * math.log(1 / rule.delta)) if learned else 0.0
        root = math.sqrt(lam) * rule.size + spread + bias
        e = np.zeros(arms) if error is None else error[t].copy()
        score = np.empty(arms)
        for a in range(arms):
            if eps is not None:
                fixed = slopes.ndim == 3
                rows = slopes[a] if fixed else slopes[t, a]
                for i, m in enumerate(rows):
                    now = abs(theta @ m) + root * math.sqrt(m @ inverse @ m)
                    now = min(rule.size * math.sqrt(m @ m), now)
                    kappa[a, i] = min(now, kappa[a, i]) if fixed else now
                e[a] = kappa[a] @ eps[t]
            v = inverse @ x[t, a]
            width = math.sqrt(x[t, a] @ v)
            score[a] = x[t, a] @ theta + spread * width
            score[a] += rule.size * (
                lam * math.sqrt(v @ v) if rule.ridge else math.sqrt(lam) * width
            )
            if rule.bias:
                score[a] += sum(w * err * abs(v @ z) for w, err, z in learned)
            else:
                score[a] += bias * width
            score[a] += e[a] if rule.optimistic else 0.0
        a = int(score.argmax())
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
        learned.append((w, err, z))
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
