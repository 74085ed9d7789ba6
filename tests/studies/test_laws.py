"""How good the laws are where the truth is known: `make studies` prints the tables."""

import time

import numpy as np
import pytest

import pulse_pyro as pp
from tests.helpers import draws_at, log_density_at, mean_at, variance_at, z_bound

MEAN3 = pp.Window(3, np.mean)


def history(s, w):
    names = tuple(f"u{i}" for i in range(len(s)))
    seen = np.ones(s.shape[:2], bool)
    columns = [tuple(f"{n}{i}" for i in range(v.shape[-1])) for n, v in (("s", s), ("w", w))]
    return pp.History(s, w, seen, names, *columns)


@pytest.mark.parametrize("units", [10, 100, 1000])
def test_gaussian_process_on_the_nonlinear_case(units):
    """W = .5 - .14 x + sin(4 x) + N(0, .1^2), 100 rows a unit."""
    world = pp.envs.main_nonlinear()
    out = []
    for seed in range(20):
        archive = world.archive(units, 102, rng=pp.stream(seed, "archive"))
        start = time.process_time()
        law = pp.gaussian_process(MEAN3).fit(archive, seed=seed)
        seconds = time.process_time() - start
        online = world.world(5, 1000, rng=pp.stream(seed, "online"))
        w, truth = online.w[..., 0], online.phibar[:, :, 0, 2]
        ask = {"rng": pp.stream(seed, "ask")}
        mean = mean_at(law, online.s)[:, 2:, 0]
        covered = []
        for target, draws in (
            (w, law.sample(online.s, 400, **ask)),
            (truth, law.mean_draws(online.s, 400, **ask)),
        ):
            low, high = np.quantile(draws[:, :, 2:, 0], [0.05, 0.95], axis=0)
            covered.append(((low <= target) & (target <= high)).mean())
        out.append([np.sqrt(np.mean((mean - truth) ** 2)), *covered, seconds])
    rmse, predictive, function, seconds = np.array(out).T
    print(
        f"\ngaussian_process, n = {100 * units}, 20 seeds: RMSE to the mean {rmse.mean():.5f} "
        f"(worst {rmse.max():.5f}), 90 % coverage of W {predictive.mean():.3f} "
        f"({predictive.min():.3f} to {predictive.max():.3f}), of the function "
        f"{function.mean():.3f} (s.e. {function.std() / 20**0.5:.3f}), fit {seconds.mean():.2f} s"
    )
    if units == 1000:
        assert rmse.max() <= 0.002
        assert 0.89 <= predictive.mean() <= 0.91
        assert function.mean() >= 0.85
        assert seconds.max() < 3


def bimodal(units, rng):
    s = rng.standard_normal((units, 100, 1))
    side = np.where(rng.random(s.shape) < 1 / (1 + np.exp(-s)), 1.0, -1.0)
    return s, side * (1 + 0.5 * np.sin(2 * s)) + 0.3 * rng.standard_normal(s.shape)


def bimodal_score(s, w):
    high, middle = 1 / (1 + np.exp(-s)), 1 + 0.5 * np.sin(2 * s)
    normal = [np.exp(-0.5 * ((w - sign * middle) / 0.3) ** 2) for sign in (1, -1)]
    return np.log((high * normal[0] + (1 - high) * normal[1]) / (0.3 * np.sqrt(2 * np.pi))).mean()


def test_neural_density_on_the_bimodal_case():
    gaps = []
    for seed in range(3):
        rng = pp.stream(seed, "bimodal")
        archive, (s, w) = history(*bimodal(200, rng)), bimodal(500, rng)
        start = time.process_time()
        law = pp.neural_density(pp.data.Identity()).fit(archive, seed=seed)
        seconds = time.process_time() - start
        score = log_density_at(law, s, w).mean()
        gaps.append(bimodal_score(s, w) - score)
        print(
            f"\nneural_density, bimodal, n = 20000, seed {seed}: log score {score:.4f}, truth "
            f"{bimodal_score(s, w):.4f}, gap {gaps[-1]:.4f} nats, fit {seconds:.1f} s"
        )
    assert max(gaps) <= 0.02


def wide(units, rng):
    """16 W given 16 S: two regimes, correlated noise. Returns s, w and the truth's log score."""
    fixed = np.random.default_rng(7)
    a, b, c = fixed.standard_normal((3, 16, 16)) / 4
    root = 0.5 * (c + 0.5 * np.eye(16))
    s = rng.standard_normal((units, 100, 16))
    side = np.where(rng.random((units, 100, 1)) < 0.5, 1.0, -1.0)
    centre, swing = 1.5 * np.tanh(s @ a), 0.7 * np.sin(s @ b)
    w = centre + side * swing + rng.standard_normal(s.shape) @ root
    inverse = np.linalg.inv(root)
    normal = [
        -0.5 * (((w - centre - sign * swing) @ inverse) ** 2).sum(-1)
        + np.linalg.slogdet(inverse)[1]
        - 8 * np.log(2 * np.pi)
        for sign in (1, -1)
    ]
    return s, w, np.logaddexp(*normal).mean() - np.log(2)


def test_neural_density_of_sixteen_w():
    rng = pp.stream(0, "wide")
    s, w, _ = wide(370, rng)
    archive, (fresh_s, fresh_w, truth) = history(s, w), wide(100, rng)
    straight = pp.linear_lags(1).fit(archive, seed=0)
    left = (w - straight.mean(s)).reshape(-1, 16)
    cov = left.T @ left / len(left)
    off = (fresh_w - straight.mean(fresh_s)).reshape(-1, 16)
    linear = -0.5 * ((off @ np.linalg.inv(cov)) * off).sum(1).mean()
    linear -= 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    start = time.process_time()
    law = pp.neural_density(pp.data.Identity()).fit(archive, seed=0)
    seconds = time.process_time() - start
    score = log_density_at(law, fresh_s, fresh_w).mean()
    rate = 0.0
    for _ in range(3):  # the first call compiles and touches fresh memory
        start = time.process_time()
        draws_at(law, fresh_s[:10], 1000, rng=rng)
        rate = max(rate, 1e6 / (time.process_time() - start))
    print(
        f"\nneural_density, 16 W, n = 37000: held-out log score {score:.2f} (linear law "
        f"{linear:.2f}, truth {truth:.2f}), fit {seconds:.0f} s, {rate:.2g} samples/s"
    )
    assert linear < score < truth
    assert rate >= 1e6


@pytest.mark.parametrize("masked", [0.2, 0.5, 0.8])
def test_state_space_under_masks(masked):
    """W linear in 19 lags of an ARMA(2,2); every S_t is hidden with this probability."""
    world, out = pp.envs.w_times_action(), []
    for seed in range(10):
        archive = world.archive(100, 100, rng=pp.stream(seed, "archive"))
        online = world.world(200, 500, rng=pp.stream(seed, "online"))
        mask = pp.stream(seed, "mask").random(online.s.shape) < masked
        s, lead = np.where(mask, np.nan, online.s), online.lead
        law = pp.state_space(20).fit(archive, seed=0)
        straight = pp.linear_lags(20).fit(archive, seed=0)
        means = mean_at(law, s), straight.mean(np.nan_to_num(s)), straight.mean(s)
        miss = [np.mean((m[:, lead:, 0] - online.phibar[:, :, 0, 2]) ** 2) for m in means]
        squared = np.mean((online.w[..., 0] - means[0][:, lead:, 0]) ** 2)
        out.append([*miss, squared / variance_at(law, s)[:, lead:, 0].mean()])
    memory, zero, static = np.sqrt(np.mean(out, axis=0)[:3])
    ratio = np.array(out)[:, 3]
    print(
        f"\nstate_space, masked {masked}, 10 archives: RMSE of E[W] {memory:.3f}, zero-filling "
        f"{zero:.3f} (ratio {memory / zero:.3f}), conditioning without memory {static:.3f}; "
        f"MSE / variance {ratio.mean():.4f} (s.e. {ratio.std(ddof=1) / 10**0.5:.4f}, "
        f"{ratio.min():.3f} to {ratio.max():.3f})"
    )
    assert abs(ratio.mean() - 1) < 0.03


@pytest.mark.parametrize("rho", [4.0, 8.0])
def test_a_misspecified_law_loses_where_w_decides(rho):
    world = pp.envs.nonlinear_w_times_action(rho)
    archive = world.archive(100, 102, rng=pp.stream(0, "archive"))
    online = world.world(60, 1000, rng=pp.stream(0, "online"))
    laws = {
        "linear": pp.linear_lags(MEAN3),
        "gaussian process": pp.gaussian_process(MEAN3),
        "neural": pp.neural_density(MEAN3),
    }
    agents = [
        pp.envs.pulse(online, law.fit(archive, seed=0), name=name) for name, law in laws.items()
    ]
    run = pp.simulate(
        online,
        [*agents, pp.envs.oful(online), pp.envs.oful_full(online), pp.envs.cond_oracle(online)],
    )
    table = run.table.to_string(float_format="{:.2f}".format)
    print(f"\nnonlinear W*a, rho = {rho:g}, T = 1000\n{table}")
    final = {name: run.regret_cond[i, :, -1] for i, name in enumerate(run.names)}
    for name in ("gaussian process", "neural"):
        gain = final["linear"] - final[name]
        assert gain.mean() > z_bound() * gain.std(ddof=1) / np.sqrt(len(gain))
