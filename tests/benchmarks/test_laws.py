"""Speed of the laws beside the plain alternative, measured in one run."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.laws.files import check_law
from tests.benchmarks.timing import best_of
from tests.helpers import mean_at

MEAN3 = pp.Window(3, np.mean)
MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def nonlinear():
    world = pp.envs.main_nonlinear()
    archive = world.archive(1000, 102, rng=pp.stream(0, "archive"))
    online = world.world(20, 1000, rng=pp.stream(0, "online"))
    return archive, online


def sparse_gp(archive, online, inducing=32, steps=200):
    """pyro.contrib.gp's collapsed sparse GP, Adam: seconds and RMSE to the true mean."""
    import pyro
    import pyro.contrib.gp as gp
    import torch

    from pulse_pyro._pyro.sandbox import sandbox

    rows = archive.rows(MEAN3)
    centre, scale, level, wide = rows.x.mean(), rows.x.std(), rows.w.mean(), rows.w.std()
    with sandbox(0, "sparse gp"), pyro.settings.context(module_local_params=False):
        start = time.perf_counter()
        x = torch.as_tensor((rows.x - centre) / scale)
        y = torch.as_tensor((rows.w[:, 0] - level) / wide)
        at = torch.quantile(x[:10_000, 0], torch.linspace(0.001, 0.999, inducing))[:, None]
        model = gp.models.SparseGPRegression(
            x, y, gp.kernels.RBF(1), Xu=at, noise=torch.tensor(0.1), approx="VFE", jitter=1e-6
        )
        adam = torch.optim.Adam(model.parameters(), lr=0.05)
        gp.util.train(model, adam, num_steps=steps)
        seconds = time.perf_counter() - start
        fresh = torch.as_tensor((MEAN3(online.s)[:, online.lead :].reshape(-1, 1) - centre) / scale)
        with torch.no_grad():
            mean = model(fresh, noiseless=True)[0].numpy() * wide + level
    return seconds, np.sqrt(np.mean((mean - online.phibar[:, :, 0, 2].ravel()) ** 2))


def test_gaussian_process_against_pyros_sparse_gp(nonlinear):
    archive, online = nonlinear
    law = pp.gaussian_process(MEAN3)
    law.fit(archive.take(range(20)), seed=0)  # imports and compiles
    start = time.perf_counter()
    fitted = law.fit(archive, seed=0)
    ours = time.perf_counter() - start
    mean = mean_at(fitted, online.s)[:, online.lead :, 0]
    error = np.sqrt(np.mean((mean - online.phibar[:, :, 0, 2]) ** 2))
    theirs, their_error = sparse_gp(archive, online)
    start = time.perf_counter()
    nuts = law.fit(archive, pp.Nuts(), seed=0)
    sampled = time.perf_counter() - start
    print(
        f"\ngaussian_process, n = 100000: {ours:.2f} s, RMSE {error:.5f}; pyro.contrib.gp's sparse "
        f"GP (32 points, 200 steps) {theirs:.1f} s, RMSE {their_error:.5f}: {theirs / ours:.0f} x "
        f"the time, {their_error / error:.2f} x the error; Nuts over the hyperparameters "
        f"{sampled:.1f} s (1000 draws, ess {nuts.record.quality['ess']:.0f})"
    )
    assert theirs > 3 * ours


def decide_one_by_one(law, features, s):
    """Median microseconds of one act, of its law alone, over the rounds of s (time, s_dim)."""
    policy = pp.PulseUCB(law, features, pp.constant(1.0))
    follower = law.follow()
    act, ask = [], []
    for row in s:
        start = time.perf_counter()
        follower.push(row)
        follower.conditional.mean()
        middle = time.perf_counter()
        try:
            policy.learn(policy.act(row), 0.0)
        except pp.errors.FeatureError:
            continue
        act.append(time.perf_counter() - middle)
        ask.append(middle - start)
    return 1e6 * np.median(act[20:]), 1e6 * np.median(ask[20:])


def test_latency_of_a_decision(nonlinear):
    archive, online = nonlinear
    small = archive.take(range(50))
    features = pp.envs.main_nonlinear().features
    laws = {
        "linear_lags(3)": pp.linear_lags(3),
        "gaussian_process(3 lags)": pp.gaussian_process(3),
        "gaussian_process(1 input)": pp.gaussian_process(MEAN3),
        "neural_density(3)": pp.neural_density(3),
        "state_space(3)": pp.state_space(3),
        "state_space(20)": pp.state_space(20),
        "models/student_t_lags.py": pp.law_from_file(MODELS / "student_t_lags.py"),
    }
    found = {}
    for name, law in laws.items():
        quick = (pp.Ensemble(steps=50),) if name.startswith("neural") else ()
        fitted = law.fit(small, *quick, seed=0)
        found[name] = decide_one_by_one(fitted, features, online.s[0, :320])
    print("\none decision, median microseconds: act and learn together; the law alone")
    for name, (act, ask) in found.items():
        print(f"  {name:28} {act:8.0f} {ask:8.0f}")
    assert found["linear_lags(3)"][0] < found["models/student_t_lags.py"][0]


def dense_filter(process, s, lags):
    """A textbook Kalman filter in NumPy over one series s (time, 1)."""
    top, cov = process.start(lags)
    m = len(cov)
    move = np.eye(m, k=-1)
    move[0] = top[0]
    shock = np.zeros(m)
    shock[0] = 1.0
    if len(process.ma):
        first = m - len(process.ma)
        move[first] = 0.0
        shock[first] = 1.0
    noise = process.noise[0, 0] * np.outer(shock, shock)
    x, out = np.zeros(m), np.empty((len(s), lags))
    for t, value in enumerate(s[:, 0]):
        if t:
            x, cov = move @ x, move @ cov @ move.T + noise
        if np.isfinite(value):
            gain = cov[:, 0] / cov[0, 0]
            x, cov = x + gain * (value - x[0]), cov - np.outer(gain, cov[0])
        out[t] = x[:lags]
    return out


def test_filter_of_thirty_series(nonlinear):
    from pulse_pyro.laws.varma import Process, filtered

    process = Process(
        np.array([[[0.75]], [[-0.25]]]), np.array([[[0.65]], [[0.35]]]), np.eye(1) * 0.01
    )
    online = pp.envs.w_times_action().world(30, 980, rng=pp.stream(0, "online"))
    s = np.where(pp.stream(0, "mask").random(online.s.shape) < 0.5, np.nan, online.s)
    slope = np.ones((20, 1))
    np.testing.assert_allclose(
        filtered(process, s[:1], 0, 20, slope)[0][0], dense_filter(process, s[0], 20), atol=1e-9
    )
    least = best_of(
        5,
        ours=lambda: filtered(process, s, 0, 20, slope),
        dense=lambda: dense_filter(process, s[0], 20),
    )
    ratio = 30 * least["dense"] / least["ours"]
    print(
        f"\nKalman filter, 30 x 1000 steps, 20 lags, half seen: {1e3 * least['ours']:.0f} ms with "
        f"variances; dense NumPy {30e3 * least['dense']:.0f} ms, {ratio:.0f} times"
    )
    assert ratio > 5


def draw_by_draw(fitted, x, unit):
    """E[W | x] as one would write it: the program run once for each stored draw."""
    import pyro.poutine as poutine
    import torch

    from pulse_pyro._pyro.sandbox import sandbox

    draws = {name: torch.as_tensor(value.copy()) for name, value in fitted.draws.items()}
    program, total = fitted.law.model, 0.0
    count = len(next(iter(draws.values())))
    with sandbox(0, "draw by draw"), torch.no_grad():
        for k in range(count):
            held = {name: value[k] for name, value in draws.items() if name != "level"}
            run = poutine.trace(poutine.condition(program, held))
            found = run.get_trace(torch.as_tensor(x), unit=torch.as_tensor(unit)).nodes
            level = found["level"]["value"][unit]
            total = total + found["w"]["fn"].mean[:, 0] - level  # its population mean is 0
    return (total / count).numpy()


def test_a_new_person_against_running_the_program_draw_by_draw():
    rng = pp.stream(0, "people")
    s = rng.standard_normal((60, 20, 1))
    w = s + rng.standard_normal((60, 1, 1)) + 0.3 * rng.standard_normal(s.shape)
    history = pp.History.from_arrays(s, w, s_names=("s",), w_names=("w",))
    law = pp.law_from_file(MODELS / "person_levels.py")
    fitted = law.fit(history, pp.Laplace(draws=500), seed=0)
    row, blank = rng.standard_normal((2, 1)), np.zeros((2, 1))
    new = pp.History.from_arrays(
        row[None], blank[None], units=("Ann",), s_names=("s",), w_names=("w",)
    )
    x = new.rows(fitted.summary).x[-1:]
    by_hand = draw_by_draw(fitted, x, np.zeros(1, int))
    own = fitted(new).mean()[-1]
    assert abs(own[0] - by_hand[0]) < 1e-8
    follower = fitted.follow("Ann")
    follower.push(row[0])
    found = best_of(
        5,
        slow=lambda: draw_by_draw(fitted, x, np.zeros(1, int)),
        batch=lambda: fitted(new).mean(),
        online=lambda: follower.push(row[1]).mean(),
    )
    print(
        f"\na new person, 500 draws: draw by draw {1e3 * found['slow']:.0f} ms, batch "
        f"{1e3 * found['batch']:.2f} ms ({found['slow'] / found['batch']:.0f}x), online "
        f"{1e3 * found['online']:.2f} ms ({found['slow'] / found['online']:.0f}x)"
    )
    assert found["slow"] > 50 * found["online"]


def prior_archive(law, columns):
    """W drawn from a gallery law's own prior, given one S that is standard normal."""
    from pulse_pyro._pyro.predict import simulate_prior

    names = {"s_names": ("s",), "w_names": columns}
    s = pp.stream(0, "gallery").standard_normal((12, 30, 1))
    blank = pp.History.from_arrays(s, np.zeros((12, 30, len(columns))), **names)
    if isinstance(law, pp.StepLaw):
        made = law.simulate(blank, 1, seed=0)
        return pp.History.from_arrays(made.s[0], made.w[0], **names)
    data, settled = law.prepare(blank)
    card, model = settled.check(blank), settled.model_for(data.x.shape[1], data.w_dim)
    w = np.full(blank.w.shape, np.nan)
    w[data.rows.at] = simulate_prior(model, data.x, data.unit, card, 0, 3).w
    return replace(blank, w=w)


def test_latency_of_the_gallery():
    """E[W | s] of a new unit, one context after the other: the bar is 300 microseconds."""
    print("\nE[W | s] of a new unit, 500 draws, median microseconds")
    for file in sorted(MODELS.glob("*.py")):
        law = pp.law_from_file(file)
        columns = getattr(check_law(file).card, "columns", ()) or ("w",)
        fitted = law.fit(prior_archive(law, columns), pp.Laplace(draws=500), seed=0)
        follower, took = fitted.follow("Ann"), []
        for row in pp.stream(0, "online").standard_normal((220, 1)):
            start = time.perf_counter()
            follower.push(row).mean()
            took.append(time.perf_counter() - start)
        print(f"  {file.stem:24} {1e6 * np.median(took[20:]):6.0f}")
