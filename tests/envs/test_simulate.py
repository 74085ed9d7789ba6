from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import FeatureError, SettingError
from pulse_pyro.data.summary import Lags
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, oful_paper, pulse
from pulse_pyro.envs.arma import main_linear, w_times_action
from pulse_pyro.envs.simulation import Agent, Fixed, cond_oracle, simulate
from pulse_pyro.envs.world import World
from pulse_pyro.features import Features
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.radius import constant
from tests.helpers import assert_mean, z_bound

ENV = w_times_action()
LAW = linear_lags(19).fit(ENV.archive(200, 40, rng=np.random.default_rng(0)), seed=0)
WORLD = ENV.world(300, 100, rng=np.random.default_rng(1))
IDENTITY = Features(lambda s, w, a: np.column_stack([s, a * w]), 2, ("S", "W*a"))


def by_hand():
    """One run, two rounds, two arms, d = 1: Phi = 1, 3 then 2, 0; given S alone 2, 1 then 1, 1."""
    phi = np.array([[[[1.0], [3.0]], [[2.0], [0.0]]]])
    phibar = np.array([[[[2.0], [1.0]], [[1.0], [1.0]]]])
    return World(
        np.zeros((1, 2, 1)),
        np.zeros((1, 2, 1)),
        phi,
        phibar,
        np.array([0.5]),
        np.array([[0.1, -0.2]]),
        IDENTITY,
        0,
    )


def test_regret_of_both_kinds_by_hand():
    action = {"zeros": [[0, 0]], "ones": [[1, 1]], "refused": [[-1, 1]]}
    run = simulate(by_hand(), [Fixed(name, np.array(a)) for name, a in action.items()])
    assert_allclose(run.of("zeros"), [[1.0, 1.0]])
    assert_allclose(run.of("ones"), [[0.0, 1.0]])
    assert_allclose(run.of("refused"), [[0.0, 1.0]])
    assert_allclose(run.regret_cond[:, 0], [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0]])
    assert_allclose(run.info_gap, [1.0])
    assert list(run.table["refused"]) == [0, 0, 1]


def test_a_learning_agent_by_hand():
    agent = Agent("full", by_hand().phi, constant(0.0), ridge=1.0)
    run = simulate(by_hand(), [agent, cond_oracle(by_hand())])
    assert_array_equal(run.action[0], [[0, 0]])
    bold = Agent("bold", by_hand().phi, constant(10.0), ridge=1.0)
    assert_array_equal(simulate(by_hand(), [bold]).action[0], [[1, 0]])


def test_full_regret_is_conditional_regret_plus_the_same_gap_for_all_who_see_only_s():
    agents = [
        pulse(WORLD, LAW),
        oful(WORLD),
        oful_paper(WORLD),
        oful_lags(WORLD, Lags(19)),
        Fixed("ones", np.ones((300, 100), int)),
    ]
    run = simulate(WORLD, agents)
    rest = run.regret[..., -1] - run.regret_cond[..., -1] - run.info_gap
    assert_mean(rest, 0.0, axis=1)
    assert run.info_gap.min() >= 0


def test_an_agent_that_sees_w_beats_the_gap_that_others_cannot_close():
    peek = Fixed("peek", WORLD.mean_full.argmax(-1))
    run = simulate(WORLD, [peek, cond_oracle(WORLD), oful_full(WORLD)])
    rest = run.regret[..., -1] - run.regret_cond[..., -1] - run.info_gap
    assert (run.of("peek") == 0).all()
    assert run.info_gap.mean() > 0
    for leaking in (0, 2):
        se = rest[leaking].std(ddof=1) / np.sqrt(300)
        assert rest[leaking].mean() < -z_bound() * se


def test_no_policy_can_learn_a_coin_it_does_not_see():
    rounds, runs, rng = 50, 400, np.random.default_rng(3)
    coin, arm = rng.choice([-1.0, 1.0], (runs, rounds)), np.array([-1.0, 1.0])
    phi = (coin[..., None] * arm)[..., None]
    features = Features(lambda s, w, a: arm[a] * w, 2, ("aW",))
    world = World(
        np.zeros((runs, rounds, 1)),
        coin[..., None],
        phi,
        np.zeros_like(phi),
        np.ones(1),
        np.zeros((runs, rounds)),
        features,
        0,
    )
    guess = Fixed("guess", rng.integers(0, 2, (runs, rounds)))
    exact = Agent("pulse", world.phibar)
    run = simulate(world, [exact, oful(world), oful_paper(world), guess, cond_oracle(world)])
    assert not run.regret_cond.any()
    assert_mean(run.regret[..., -1], float(rounds), axis=1)
    assert_mean(run.info_gap, float(rounds))


@pytest.mark.parametrize("sign", [-1.0, 0.0], ids=["inverted", "ignores S"])
def test_a_wrong_law_costs_regret(sign):
    coef = LAW.draws["coef"] * np.r_[1.0, np.full(19, sign)][:, None]
    wrong = replace(LAW, draws={**LAW.draws, "coef": coef})
    run = simulate(WORLD, [pulse(WORLD, LAW), pulse(WORLD, wrong, name="wrong")])
    loss = run.of("wrong")[:, -1] - run.of("pulse")[:, -1]
    assert loss.mean() > z_bound() * loss.std(ddof=1) / np.sqrt(len(loss))


def test_agents_do_not_disturb_each_other():
    together = simulate(WORLD, [oful(WORLD), pulse(WORLD, LAW), cond_oracle(WORLD)])
    alone = simulate(WORLD, [pulse(WORLD, LAW)])
    assert_array_equal(together.of("pulse"), alone.of("pulse"))
    twins = simulate(WORLD, [Agent(name, WORLD.phi) for name in "ab"])
    assert_array_equal(twins.of("a"), twins.of("b"))
    assert not together.regret_cond[2].any()


def test_one_law_for_all_runs_equals_the_same_law_in_every_run():
    small = ENV.world(3, 20, rng=np.random.default_rng(4))
    assert_allclose(pulse(small, [LAW] * 3).x, pulse(small, LAW).x, rtol=1e-12)
    with pytest.raises(SettingError, match="2 laws were given for 3 runs"):
        pulse(small, [LAW] * 2)


def test_the_table_holds_means_and_standard_errors():
    run = simulate(WORLD, [oful(WORLD), oful_full(WORLD)])
    final = run.of("oful")[:, -1]
    line = run.table.loc["oful"]
    assert line["regret"] == pytest.approx(final.mean())
    assert line["se"] == pytest.approx(final.std(ddof=1) / np.sqrt(300))
    assert run.table.shape[0] == 2
    one = simulate(by_hand(), [Fixed("x", np.zeros((1, 2), int))]).table
    assert np.isnan(one.loc["x", "se"])


def test_rounds_that_cannot_be_scored_are_counted_and_cost_nothing():
    x = WORLD.phi.copy()
    x[0, 10, 1, 2] = np.nan
    run = simulate(WORLD, [Agent("holes", x), oful(WORLD)])
    assert run.action[0, 0, 10] == -1
    assert run.table.loc["holes", "refused"] == 1
    assert run.of("holes")[0, 10] == run.of("holes")[0, 9]
    assert (run.action[0, 0, 11:] >= 0).all()


OK = Agent("ok", by_hand().phi)
BAD = {
    "at least one agent": (SettingError, []),
    "distinct names.*'ok', 'ok'": (SettingError, [OK, OK]),
    "'short' has features": (FeatureError, [Agent("short", np.ones((1, 1, 2, 1)))]),
    "'wide' has features": (FeatureError, [Agent("wide", np.ones((1, 2, 3, 1)))]),
    "'flat'": (SettingError, [OK, Fixed("flat", np.zeros(2, int))]),
    "'many'": (SettingError, [Fixed("many", np.zeros((5, 2), int))]),
    "'third'": (SettingError, [Fixed("third", np.full((1, 2), 2))]),
    "'half'": (SettingError, [Fixed("half", np.full((1, 2), 0.5))]),
    "error": (SettingError, [replace(OK, error=-np.ones((1, 2, 2)))]),
    "ridge": (SettingError, [replace(OK, ridge=0.0)]),
}


@pytest.mark.parametrize("says", BAD)
def test_an_agent_that_does_not_fit_the_world_is_named(says):
    error, agents = BAD[says]
    with pytest.raises(error, match=says):
        simulate(by_hand(), agents)


def test_an_unknown_agent_gets_a_suggestion():
    with pytest.raises(SettingError, match="no agent 'puls'; did you mean 'pulse'"):
        simulate(by_hand(), [replace(OK, name="pulse")]).of("puls")


def test_an_agent_that_refuses_to_play_is_not_the_best():
    world = main_linear().world(2, 20, rng=np.random.default_rng(0))
    run = simulate(world, [Agent("broken", world.phi * np.nan), Agent("full", world.phi)])
    assert "lowest conditional regret: full; agents that refused" in repr(run)


def test_whom_bounds_are_against_and_what_they_rest_on_is_told(tmp_path):
    zeros = np.zeros((4, 2, 3))
    run = pp.envs.Run(
        ("a", "b", "c", "d"),
        zeros.astype(int),
        zeros,
        zeros,
        np.zeros(2),
        benchmarks=("the best policy on S",) * 3 + ("",),
        rests_on=("sigma holds", "sigma holds", "the moon is round", ""),
        heuristic=("", "", "W remembers", ""),
    )
    assert run.table["benchmark"].tolist() == [
        "the best policy on S",
        "the best policy on S",
        "the best policy on S (heuristic)",
        "",
    ]
    said = repr(run)
    assert "The bound of a, b is against the best policy on S, conditional on: sigma holds." in said
    assert "Heuristic, no guarantee: W remembers; so the ball of c need not hold." in said
    assert "the moon is round" not in said
    assert repr(pp.load(pp.save(run, tmp_path / "run"))) == said
    old = replace(run, benchmarks=(), rests_on=(), heuristic=())
    assert old.table["benchmark"].tolist() == [""] * 4
    assert "bound" not in repr(old)
