"""The online part of the published linear comparison against a loop written the obvious way."""

from time import perf_counter

import numpy as np

from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.agents import oful_full, oful_paper, pulse
from pulse_pyro.envs.simulation import simulate
from pulse_pyro.paper.comparison import LINEAR
from tests.helpers import draws_at, mean_at

RUNS, NAIVE_RUNS, DRAWS, ALPHA = 30, 2, 30, 2.0
SETTING = LINEAR.settings[0]


class Predictor:
    """One draw of W at a time, from a law that is linear in the mean of the last three S."""

    def __init__(self, law, rng):
        at = mean_at(law, np.array([np.zeros((3, 1)), np.ones((3, 1))]))[:, -1, 0]
        self.intercept, self.slope = at[0], at[1] - at[0]
        self.sd = draws_at(law, np.zeros((1, 3, 1)), 1000, rng=rng)[:, 0, -1].std()
        self.rng = rng

    def draw(self, history):
        centre = self.intercept + self.slope * np.mean(history[-3:])
        return centre + self.sd * self.rng.standard_normal()


def main_phi(s, w, a):
    return np.array([1.0, s, w, s * a])


def naive_features(agent, history, w, a, predictor):
    if agent == "oful_paper":
        return np.array([1.0, history[-1] * a])
    if agent == "oful_full":
        return main_phi(history[-1], w, a)
    draws = [main_phi(history[-1], predictor.draw(history), a) for _ in range(DRAWS)]
    return np.mean(draws, axis=0)


def naive_run(agent, world, r, predictor):
    """Play one run; return the noise-free regret of every round."""
    dim = 2 if agent == "oful_paper" else 4
    sigma, b, regret = np.eye(dim), np.zeros(dim), []
    for t in range(world.phi.shape[1]):
        history = [float(s) for s in world.s[r, : world.lead + t + 1, 0]]
        w, scores = world.phi[r, t, 0, 2], []
        inverse = np.linalg.inv(sigma)
        theta = inverse @ b
        for a in range(2):
            x = naive_features(agent, history, w, a, predictor)
            scores.append(x @ theta + ALPHA * np.sqrt(x @ inverse @ x))
        a = int(np.argmax(scores))
        means = [main_phi(history[-1], w, k) @ world.theta for k in range(2)]
        x = naive_features(agent, history, w, a, predictor)
        sigma = sigma + np.outer(x, x)
        b = b + (means[a] + world.noise[r, t]) * x
        regret.append(max(means) - means[a])
    return np.array(regret)


def test_the_comparison_is_at_least_200_times_faster_than_the_naive_loop():
    env, law = SETTING.environment, SETTING.laws["pulse"]
    world = env.world(RUNS, SETTING.horizon, rng=stream(0, "online"))
    size = SETTING.units, SETTING.length
    archives = (env.archive(*size, rng=stream(0, "archive", r)) for r in range(RUNS))
    laws = [law.fit(archive, seed=0) for archive in archives]
    agents = ("pulse", "oful_paper", "oful_full")

    def ours():
        return simulate(world, [pulse(world, laws), oful_paper(world), oful_full(world)])

    def naive():
        regret = np.empty((3, NAIVE_RUNS, SETTING.horizon))
        for r in range(NAIVE_RUNS):
            predictor = Predictor(laws[r], stream(0, "naive", r))
            for i, agent in enumerate(agents):
                regret[i, r] = naive_run(agent, world, r, predictor)
        return regret

    fast, slow = ours(), naive()
    final = {name: fast.of(name)[:NAIVE_RUNS, -1].mean() for name in agents}
    naive_final = dict(zip(agents, slow.sum(-1).mean(-1), strict=True))
    for name in ("oful_paper", "oful_full"):
        assert abs(naive_final[name] - final[name]) < 1e-6 * final[name]
    assert 2 / 3 < naive_final["pulse"] / final["pulse"] < 3 / 2

    least = {"ours": np.inf, "naive": np.inf}
    for _ in range(3):
        for name, call, repeats in (("ours", ours, 5), ("naive", naive, 1)):
            for _ in range(repeats):
                start = perf_counter()
                call()
                least[name] = min(least[name], perf_counter() - start)
    scaled = least["naive"] * RUNS / NAIVE_RUNS
    ratio = scaled / least["ours"]
    print(
        f"\nlinear comparison, online part, 3 agents x {RUNS} runs x {SETTING.horizon} rounds: "
        f"ours {1e3 * least['ours']:.1f} ms, naive {scaled:.1f} s (measured on {NAIVE_RUNS} runs, "
        f"scaled): {ratio:.0f} times faster (bar 200); final regret of pulse {final['pulse']:.1f}, "
        f"naive {naive_final['pulse']:.1f}"
    )
    assert ratio >= 200
