"""An archive that grows: refits are fits on all that is known, and nothing learned is lost."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.seeds import torch_seed
from tests.helpers import mean_at, z_bound
from tests.policies.helpers import archive, contexts, missing, w_features, with_gaps, world

RADIUS = pp.constant(1.0)
SUMMARIES = {
    "lags": pp.Lags(3),
    "past": pp.Lags(2, start=1),
    "window": pp.Window(3, np.mean),
}


def feed(kept, w_dim, gaps=0.0, rounds=60, seed=5, units=("", "b", "c")):
    """See rows of several units in turn; W comes late, in another order, or never."""
    s = with_gaps(contexts(len(units), rounds, seed), gaps, seed)
    w = missing(np.where(np.isnan(s), [1.0, -100.0], s), w_dim, seed)
    rng, waiting, refits = np.random.default_rng(seed), [], 0
    for t in range(rounds):
        i = int(rng.integers(len(units)))
        waiting.append((units[i], kept.see(units[i], s[i, t]), w[i, t]))
        rng.shuffle(waiting)
        if t % 3:
            kept.reveal(*waiting.pop())
        if kept.due:
            kept.refit()
            refits += 1
    return refits


@pytest.mark.parametrize("gaps", [0.0, 0.25])
@pytest.mark.parametrize("w_dim", [1, 2, 3])
@pytest.mark.parametrize("summary", SUMMARIES.values(), ids=SUMMARIES)
def test_running_moments_are_a_fit_on_all_rows(summary, w_dim, gaps):
    history = archive(units=3, time=9, w_dim=w_dim)
    history = replace(history, s=history.flat(with_gaps(history.grid.s, gaps, 1)))
    law = pp.linear_lags(summary)
    kept = pp.GrowingArchive(history, law.fit(history, pp.Exact(50), seed=0), every=11, seed=3)
    assert feed(kept, w_dim, gaps) >= 3
    fast, seed = kept.refit(), torch_seed(3, "refit", len(kept._refits))
    slow = law.fit(kept.grown, pp.Exact(50), seed=seed)
    s = with_gaps(contexts(2, 12, 8), gaps, 8)
    assert_allclose(mean_at(fast, s), mean_at(slow, s), rtol=1e-9, atol=1e-9)
    assert_allclose(fast.kernel.mean_coef, slow.kernel.mean_coef, rtol=1e-9, atol=1e-9)
    assert_allclose(fast.inputs.cov, slow.inputs.cov, rtol=1e-9, atol=1e-9)
    for name, value in vars(slow.scaler).items():
        assert_allclose(getattr(fast.scaler, name), value, rtol=1e-9)
    assert_allclose(fast.draws["variance"], slow.draws["variance"], rtol=1e-8)
    assert (fast.record.rows, fast.units) == (slow.record.rows, slow.units)
    assert fast.record.seed == seed


def test_the_archive_at_large_is_what_the_law_is_said_to_have_seen():
    """contexts are mean and sd of S in the archive, the grown one too."""
    history = archive(units=2, time=5)
    kept = pp.GrowingArchive(history, pp.linear_lags(2).fit(history, seed=0), every=20)
    feed(kept, 1)
    fast, slow = kept.refit(), pp.linear_lags(2).fit(kept.grown, seed=0)
    assert_allclose(fast.schema.contexts, slow.schema.contexts, rtol=1e-9)


def test_grown_holds_every_row_in_its_place():
    history = archive(units=2, time=4)
    kept = pp.GrowingArchive(history, pp.linear_lags(2).fit(history, seed=0), every=100)
    assert kept.grown is history
    s = contexts(1, 6, 5)[0]
    for t in range(6):
        assert kept.see("x", s[t]) == t
    kept.reveal("x", 4, np.array([0.7]))
    kept.reveal("x", 1, np.array([-0.2]))
    grown = kept.grown
    assert grown.units == ("u0", "u1", "online x")
    assert_array_equal(grown.grid.s[2], s)
    assert_array_equal(grown.grid.w[2, :, 0], [np.nan, -0.2, np.nan, np.nan, 0.7, np.nan])
    assert_array_equal(grown.grid.seen.sum(1), [4, 4, 6])
    assert_array_equal(grown.grid.w[:2, :4], history.grid.w)
    assert (kept.rounds, kept.due) == (2, False)


def test_units_met_online_cannot_calibrate_the_law():
    history = archive()
    kept = pp.GrowingArchive(history, pp.linear_lags(2).fit(history, seed=0), every=5)
    feed(kept, 1, units=("ann", "bob"))
    law, grown = kept.refit(), kept.grown
    assert {"online ann", "online bob"} < set(law.units)
    held = grown.take([i for i, unit in enumerate(grown.units) if unit.startswith("online")])
    with pytest.raises(pp.errors.LeakageError, match="online ann"):
        pp.calibrate(law, held, w_features(1), seed=0)


def custom():
    def model(x, w=None):
        b = pyro.sample("b", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        z = (x - 1.0) * 2.0
        loc = b[..., 0] + b[..., 1] * z[..., 0] / 2
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(loc.unsqueeze(-1), 0.5).to_event(1), obs=w)

    return pp.Law(model, pp.Lags(1), "mine")


LAWS = {
    "gp": (pp.gaussian_process(1), pp.Laplace(60)),
    "custom": (custom(), pp.Laplace(60)),
    "student": (pp.linear_lags(1, noise="student_t"), pp.Laplace(60)),
    "memory": (pp.state_space(1, ar=1, ma=0), None),
}


@pytest.mark.parametrize("kind", LAWS)
def test_other_laws_are_fitted_on_all_rows_again(kind):
    law, how = LAWS[kind]
    history = archive(units=3, time=9)
    fitted = law.fit(history, how, seed=0)
    kept = pp.GrowingArchive(history, fitted, every=25, law=law, inference=how)
    assert feed(kept, 1) == 1
    assert kept.fitted is not fitted
    fast, seed = kept.refit(), torch_seed(0, "refit", 2)
    warm = {"warm": kept.fitted} if kind == "custom" else {}
    slow = law.fit(kept.grown, how, seed=seed, **warm)
    s = contexts(2, 6, 8)
    assert_allclose(mean_at(fast, s), mean_at(slow, s), rtol=1e-6)
    assert fast.units == slow.units == kept.grown.units
    assert fast.record.rows == slow.record.rows > fitted.record.rows


def test_a_warm_start_ends_where_a_cold_one_does():
    history, law = archive(units=3, time=9), custom()
    kept = pp.GrowingArchive(history, law.fit(history, seed=0), every=20)
    feed(kept, 1)
    cold = law.fit(kept.grown, pp.Laplace(2000), seed=1)
    for start in (kept.fitted, law.fit(archive(seed=9), seed=0)):
        warm = law.fit(kept.grown, pp.Laplace(2000), seed=1, warm=start)
        sd = cold.draws["b"].std(0)
        assert (np.abs(warm.draws["b"].mean(0) - cold.draws["b"].mean(0)) < 1e-3 * sd).all()
        assert_allclose(warm.draws["b"].std(0), sd, rtol=1e-3)


@pytest.mark.parametrize("kind", ["linear", "gp", "memory"])
def test_streaming_is_the_batch(kind):
    law = {"linear": pp.linear_lags(2), "gp": pp.gaussian_process(1)}.get(kind)
    law, history = law or pp.state_space(2, ar=1, ma=0), archive(units=3, time=9)
    how = pp.Laplace(60) if kind == "gp" else None
    features, every = w_features(1), 12
    s = with_gaps(contexts(1, 52, 9), 0.3 if kind == "memory" else 0.0, 9)
    online = world(features, s, 1)
    agent = pp.envs.pulse_refit(
        online, law, [history], every=every, inference=how, radius=RADIUS, seed=4
    )
    action, _, whole = pp.policies.play_horizon(agent.x, online.reward, RADIUS, taught=agent.taught)
    fitted = law.fit(history, how, seed=4)
    kept = pp.GrowingArchive(history, fitted, every=every, law=law, inference=how, seed=4)
    bot = pp.PulseUCB(fitted, features, RADIUS, archive=kept)
    for row in s[0, :2]:
        bot.observe(row)
    seen = set()
    for t, row in enumerate(s[0, 2:]):
        choice = bot.act(row)
        seen.add(bot.law.id)
        assert choice.action == action[0, t]
        assert_allclose(choice.x, agent.x[0, t, choice.action], rtol=1e-8)
        bot.learn(choice, online.reward[0, t, choice.action], w=online.w[0, t])
    assert len(seen) == 5
    assert_allclose(bot.state.theta, whole.theta[0], rtol=1e-8)


def test_refits_lower_the_regret():
    env, runs = pp.envs.w_times_action(), 12
    online = env.world(runs, 300, rng=pp.stream(5, "online"))
    archives = [env.archive(2, 25, rng=pp.stream(5, "archive", r)) for r in range(runs)]
    law = pp.linear_lags(19)
    frozen = pp.envs.post_serving(
        online, pp.envs.pulse(online, [law.fit(a, seed=0) for a in archives])
    )
    refit = pp.envs.pulse_refit(online, law, archives, every=20)
    run = pp.simulate(online, [frozen, refit])
    apart = run.regret_cond[0, :, -1] - run.regret_cond[1, :, -1]
    assert apart.mean() > z_bound() * apart.std(ddof=1) / np.sqrt(runs)


@pytest.mark.parametrize("cluster", ["town", ("week",)])
def test_an_archive_with_clusters_grows_by_clusters_of_one_unit(cluster):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "who": np.repeat(list("abcdef"), 14),
            "town": np.repeat(["x", "y", "x", "y", "x", "y"], 14),
            "day": np.tile(pd.date_range("2024-01-01", periods=14), 6),
            "s": rng.standard_normal(84),
            "w": rng.standard_normal(84),
        }
    )
    roles = {"unit": "who", "time": "day", "observed": ["s"], "missing": ["w"]}
    history = pp.History.from_frame(frame, **roles, cluster=cluster)
    law = pp.linear_lags(1)
    kept = pp.GrowingArchive(history, law.fit(history, pp.Exact(50), seed=0), every=2, seed=3)
    for value in (1.0, 2.0):
        kept.reveal("ann", kept.see("ann", np.array([value])), np.array([value]))
    fast, slow = kept.refit(), law.fit(kept.grown, pp.Exact(50), seed=0)
    assert fast.units == slow.units == (*history.clusters, "online ann")
    assert fast.schema.cluster == slow.schema.cluster == cluster
    assert fast.schema.units == slow.schema.units == (*"abcdef", "online ann")
    pp.GrowingArchive(kept.grown, fast, every=1)
    with pytest.raises(pp.errors.DataError, match="other"):
        pp.GrowingArchive(history, fast, every=1)
