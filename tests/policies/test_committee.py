"""A committee, one decision at a time: against the batch, joining and leaving, as an advisor."""

import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.envs.teams import RewardScale, remembering
from pulse_pyro.policies.carried import past_rewards
from pulse_pyro.policies.oful import interactions
from tests.policies.helpers import archive, contexts, w_features, with_gaps
from tests.policies.team_helpers import (
    SCALE,
    WA,
    batch,
    calibration,
    everyone,
    filtering,
    guarded,
    law,
    learner,
    online,
    stream,
    team,
)

REWARD_SCALE = RewardScale(SCALE["sigma"], SCALE["theta_bound"], 0.1)


def raw(here, summary):
    """Raw lags with interactions, (1, time, K, d)."""
    return interactions(summary(here.s)[:, here.lead :], here.features.actions)


def imputed(here, own):
    """Features of a law's expectation."""
    return pp.envs.pulse(here, own).x


@pytest.mark.parametrize("votes", ["tempered", "stacking", "best"])
@pytest.mark.parametrize("w_dim", [1, 2])
def test_streaming_is_the_batch(w_dim, votes):
    here = online(w_dim)
    laws = {"two": law(w_dim), "four": law(w_dim, 4)}
    members = {**laws, "lags": pp.Lags(3), "past": (pp.Lags(1), pp.policies.past_rewards(2))}
    bot = team(w_dim, members, votes=votes)
    choices, _, weights = stream(bot, here)
    alone, arms = raw(here, pp.Lags(1)), here.features.actions
    carry = past_rewards(2).carry(arms, alone.shape[-1])
    room = np.concatenate([alone, np.zeros((*alone.shape[:3], len(carry.columns)))], -1)
    play = batch(
        here,
        *(learner(imputed(here, each)) for each in laws.values()),
        learner(raw(here, pp.Lags(3))),
        learner(room, carry),
        votes=votes,
    )
    assert_array_equal([one.action for one in choices], play.action[0])
    assert_allclose(weights, play.weights[0], atol=1e-9)
    assert_allclose(bot.core.kept.theta, play.state.theta, atol=1e-9)
    assert_allclose(bot.core.kept.sums, play.state.sums, atol=1e-8)
    assert len(set(play.action[0])) > 1
    said = {(one.by, one.why) for one in choices}
    assert said == {("committee", "it was proposed, and nothing fences it in")}


@pytest.mark.parametrize("kind", ["ar", "level", "level+ar"])
@pytest.mark.parametrize("w_dim", [1, 2])
def test_a_member_with_memory_is_that_of_the_batch(w_dim, kind):
    here, own = online(w_dim, lead=0), law(w_dim, memory=kind)
    bot = team(w_dim, {"memory": own, "s": pp.Lags(1)})
    choices, _, weights = stream(bot, here)
    (tracked,) = remembering(here, own, REWARD_SCALE).learners
    play = batch(here, tracked, learner(raw(here, pp.Lags(1))))
    assert_array_equal([one.action for one in choices], play.action[0])
    assert_allclose(weights, play.weights[0], atol=1e-8)
    assert_allclose(bot.core.kept.theta, play.state.theta, atol=1e-8)


def test_in_a_world_of_another_kind_memory_and_past_rewards_are_those_of_the_batch():
    env = pp.envs.latent_ar(share=0.5)
    own = (
        pp.linear_lags(3).with_memory("ar").fit(env.archive(20, 40, rng=pp.stream(0, "a")), seed=0)
    )
    here = env.world(1, 150, rng=pp.stream(1, "w"))
    scale = RewardScale(0.3, 1.0, 0.05)
    bot = pp.Committee(
        {"memory": own, "past": (pp.Lags(1), pp.policies.past_rewards(1))},
        here.features,
        sigma=0.3,
        theta_bound=1.0,
        reward_sd=0.05,
    )
    choices, _, weights = stream(bot, here)
    alone = pp.envs.Agent("s", interactions(here.s, 2), pp.constant(1.0))
    past = pp.envs.with_past_rewards(alone, past_rewards(1), scale, name="past")
    play = batch(here, *remembering(here, own, scale).learners, *past.learners)
    assert_array_equal([one.action for one in choices], play.action[0])
    assert_allclose(weights, play.weights[0], atol=1e-8)


def test_a_member_sits_out_what_it_cannot_see_and_all_do_or_the_round_is_refused():
    bot, s = team(members={"filter": filtering(), "lags": pp.Lags(2)}), contexts(1, 6, 5)[0]
    bot.learn(bot.act(s[0]), 1.0)  # two lags are not there yet
    assert bot.core.weights.tolist() == [1.0, 0.0]
    bot.learn(bot.act(s[1]), 1.0)
    assert bot.table["rounds"].tolist() == [2, 1]
    blind = team(members={"two": law(lags=2), "lags": pp.Lags(2)})
    blind.observe([np.nan, np.nan])
    plain = pp.Features(lambda s, w, a: np.column_stack([s[:, 0], a * w[:, 0]]), 2, ("s", "wa"))
    both = pp.Committee({"two": law(), "lags": pp.Lags(2)}, plain, **SCALE)
    both.learn(both.act(s[0]), 1.0)
    before = both.core.weights
    with pytest.raises(pp.errors.FeatureError, match="two: s"):
        both.act([np.nan, np.nan])
    assert_array_equal(both.core.weights, before)  # those of the newest decision
    assert both.act(s[1]).id == 1


def test_the_last_rewards_count_though_the_member_sat_out():
    bot = team(members={"two": law(), "past": (pp.Lags(3), pp.policies.past_rewards(1))})
    s = contexts(1, 5, 5)[0]
    for t in range(2):
        bot.learn(bot.act(s[t]), 5.0 + t)
    assert bot.table["rounds"].tolist() == [2, 0]
    (one,) = bot._pasts.units[""]
    assert 6.0 in one.each[1].past


def test_evidence_is_about_what_was_predicted_without_w():
    """W that is revealed with the reward teaches, but does not flatter those who impute it."""
    rng, here = np.random.default_rng(0), online(rounds=60)
    members = {"pulse": law(), "s": pp.Lags(1)}
    bots = {shown: team(members=members) for shown in (False, True)}
    for shown, bot in bots.items():
        for row in here.s[0, : here.lead]:
            bot.observe(row)
        for t, row in enumerate(here.s[0, here.lead :]):
            choice = bot.act(row)
            w = {"w": here.w[0, t] + 3.0 * rng.standard_normal(1)} if shown else {}
            theta, inverse = (each.copy() for each in bot.core.belief(0)[:2])
            before, scored = bot.core.kept.sums[0, 0].copy(), choice.x[:3]
            bot.learn(choice, 0.5, **w)
            missed = (0.5 - scored @ theta) ** 2 / (2 * (1 + scored @ inverse @ scored))
            assert_allclose(bot.core.kept.sums[0, 0, 3] - before[3], missed, atol=1e-12)
    assert bots[True].table["rounds"].tolist() == [60, 60]
    assert (bots[True].core.kept.theta != bots[False].core.kept.theta).any()


def test_members_join_and_leave_while_decisions_are_pending():
    bot, s = team(members={"pulse": law(), "lags": pp.Lags(2)}), contexts(1, 40, 5)[0]
    rewards = np.random.default_rng(0).standard_normal(40)
    early = [bot.act(s[t], unit=f"u{t % 2}") for t in range(6)]
    for one in early[:3]:
        bot.learn(one, rewards[one.id])
    evidence = bot.table["evidence"]
    bot.add("memory", law(memory="ar"))
    bot.add("past", (pp.Lags(1), pp.policies.past_rewards(1)))
    assert list(bot.table.index) == ["pulse", "lags", "memory", "past"]
    joined = bot.table.loc[["memory", "past"], "evidence"]
    assert ((evidence.min() <= joined) & (joined <= evidence.max())).all()
    bot.reveal(early[0], [0.2])  # decided before the memory was kept
    bot.learn(early[3].id, rewards[3])
    bot.forget([early[4].id])
    middle = [bot.act(s[t], unit=f"u{t % 2}") for t in range(6, 12)]
    assert bot.core.weights[2:].min() > 0
    for one in middle[:3]:
        bot.learn(one, rewards[one.id])
    assert bot.table["rounds"].tolist() == [7, 5, 3, 3]
    bot.retire("lags")
    assert list(bot.table.index) == ["pulse", "memory", "past"]
    with pytest.warns(UserWarning, match=r"decision 6 .*too late"):  # its reward is learned
        bot.reveal(middle[0], [0.1])
    bot.learn(middle[3].id, rewards[9], w=[0.3])
    bot.learn(early[5].id, rewards[5])
    bot.retire("memory")
    bot.reveal(middle[4].id, [0.1])
    bot.learn(middle[4].id, rewards[10])
    rest = [bot.act(s[t], unit=f"u{t % 2}") for t in range(12, 40)]
    for one in rest[::-1]:
        bot.learn(one, rewards[one.id])
    assert_allclose(bot.core.weights.sum(), 1.0)
    rounds, weights = bot.core.past_weights
    assert weights.shape == (len(rounds), 2)
    assert bot.pending == (middle[5].id,)


def test_who_joined_and_left_again_leaves_no_trace():
    here, members = online(), {"pulse": law(), "lags": pp.Lags(3)}
    one, two = team(members=members), team(members=members)
    two.add("guest", law(lags=4))
    two.retire("guest")
    for a, b in zip(stream(one, here)[0], stream(two, here)[0], strict=True):
        assert_array_equal(a.x, b.x)
        assert a.action == b.action
    assert_array_equal(one.core.kept.theta, two.core.kept.theta)


def test_who_joins_sees_steps_that_were_missed_in_their_place():
    s = with_gaps(contexts(1, 12, 5), 0.0, 5)[0]
    s[9] = np.nan
    one, two = (team(members={"four": law(lags=4)}) for _ in range(2))
    two.add("raw", pp.Lags(4))
    for row in s:
        one.observe(row)
        two.observe(row)
    one.add("raw", pp.Lags(4))
    seen = [bot._pasts.units[""][0].each[1].state()["rows"] for bot in (one, two)]
    assert_array_equal(*seen)


def test_the_table_counts_what_was_learned_and_who_led():
    bot = team()
    choices, _, weights = stream(bot, online())
    table = bot.table
    assert table["rounds"].tolist() == [80] * 6
    assert table["led"].sum() == 80
    assert_array_equal(table["led"], np.bincount(weights.argmax(1), minlength=6))
    assert_allclose(table["weight"], weights[-1])
    assert table["behind"].min() == 0
    assert "measured, not guaranteed" in repr(bot)
    assert "pulse" in repr(bot)
    assert len(choices[0].x) == sum(table["features"])


def test_weights_are_drawn_over_decisions():
    plots = importlib.import_module("pulse_pyro.report.plots")
    if not hasattr(plots, "committee_weights"):
        pytest.skip("no picture of weights yet")
    bot = team(members={"pulse": law(), "lags": pp.Lags(3)})
    stream(bot, online())
    assert bot.plot().get_xlabel()


# As the advisor of a guard.


def test_the_guard_stands_whoever_votes():
    """Members that learn from the reward's negative, the guard from the reward itself."""
    for w_dim in (1, 2):
        here = online(w_dim, rounds=150)
        bot = guarded(w_dim, {"liar": law(w_dim), "other": pp.Lags(2)}, slack=1.0)
        theta, costs, bounds = here.theta, [], []
        for row in here.s[0, : here.lead]:
            bot.observe(row)
        for t, row in enumerate(here.s[0, here.lead :]):
            bot.core.kept.theta[0, 1:] *= -1.0  # what they propose is what they find worst
            bot.core.kept.sums[0, 1:, 4] = 1e6  # and they alone are listened to
            choice = bot.act(row)
            bot.core.kept.theta[0, 1:] *= -1.0
            width = len(here.features.names)
            mean = bot._x[0, 0, :, :width] @ theta
            costs.append(mean.max() - mean[choice.action])
            bounds.append(choice.cost)
            bot.learn(choice, here.reward[0, t, choice.action])
        assert (np.array(costs) <= np.array(bounds) + 1e-9).all()
        assert 0 < bot.core.share_overruled < 1
        assert "guard around committee" in repr(bot)
        assert "guarantee" in repr(bot)


def test_the_guards_own_learner_votes_and_its_error_is_that_of_its_law():
    bot, plain = guarded(), guarded(advisor=None)
    here = online()
    for each in (bot, plain):
        for row in here.s[0, : here.lead]:
            each.observe(row)
        each.act(here.s[0, here.lead])
    assert list(bot.ballot.table.index) == ["guard", *everyone()]
    one, two = (each.core.source.at(each._pasts.units[""]) for each in (bot, plain))
    assert_array_equal(one.coef, two.coef)
    bot.ballot.add("more", pp.Lags(2))
    bot.ballot.retire("lags")
    assert bot.act(here.s[0, here.lead + 1]).by in ("advisor", "guard")


def test_a_round_the_guard_cannot_score_names_the_guards_feature():
    seen = pp.Features(
        lambda s, w, a: np.column_stack([np.ones(len(w)), s[:, 0] * a, w[:, 0] * a]),
        2,
        ("1", "sa", "wa"),
    )
    known = pp.calibrate(law(), calibration().contexts, seen, seed=0, band=calibration_band())
    advisor = pp.Committee({"p": law(), "lags": pp.Lags(4), "b": filtering()}, seen, **SCALE)
    bot = pp.PulseUCB(
        law(), seen, calibration=known, reward_sd=0.1, theta_bound=2.0, advisor=advisor
    )
    s = contexts(1, 6, 5)[0]
    bot.observe(s[0])
    assert bot.act(s[1]).id == 0
    with pytest.raises(pp.errors.FeatureError, match=r"feature 'guard: sa' of arm 0"):
        bot.act([np.nan, -100.0])


def calibration_band():
    from tests.calibration.helpers import LINEAR

    return LINEAR


# What cannot be.


OTHER = w_features(1, actions=3)
REFUSALS = {
    "no members": (lambda: pp.Committee({}, WA, **SCALE), "at least one"),
    "a list": (lambda: pp.Committee([law()], WA, **SCALE), "mapping of names"),
    "first no law": (lambda: team(members={"lags": pp.Lags(2)}), "first member must be a fitted"),
    "first an ellipsoid": (
        lambda: team(members={"e": law().ellipsoid(variance="classical")}),
        "first member must be",
    ),
    "not fitted": (lambda: team(members={"p": law(), "q": pp.linear_lags(2)}), "fit it first"),
    "votes": (lambda: team(votes="majority"), "no votes='majority'"),
    "sigma": (lambda: team(sigma=0.0), "sigma"),
    "theta_bound": (lambda: team(theta_bound=-1.0), "theta_bound"),
    "reward_sd": (lambda: team(reward_sd=-1.0), "reward_sd"),
    "features": (lambda: pp.Committee({"p": law()}, "phi", **SCALE), "must be Features"),
    "another ellipsoid": (
        lambda: team(members={"p": law(), "e": law(lags=4).ellipsoid(variance="classical")}),
        "is not that of the committee's first",
    ),
    "W": (lambda: team(members={"p": law(), "q": law(2)}), "same columns of W"),
    "past of a law": (
        lambda: team(members={"p": law(), "q": (law(lags=4), pp.policies.past_rewards(1))}),
        "past rewards of 'q' go with raw lags",
    ),
    "guard": (lambda: guarded(members={"guard": law()}), "'guard' is the name"),
    "archive": (
        lambda: pp.PulseUCB(
            (own := law()),
            WA,
            calibration=calibration(),
            reward_sd=0.1,
            theta_bound=2.0,
            advisor=team(),
            archive=pp.GrowingArchive(archive(12, 20), own, every=5),
        ),
        "leave archive= out",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_no_committee_is_said(case):
    make, says = REFUSALS[case]
    with pytest.raises(pp.errors.PulseError, match=says):
        make()


def test_members_must_have_the_same_arms_and_columns():
    with pytest.raises(pp.errors.SettingError, match=r"same arms, but 'p' has 3 and others 2"):
        pp.PulseUCB(
            law(),
            WA,
            calibration=calibration(),
            reward_sd=0.1,
            theta_bound=2.0,
            advisor=pp.Committee({"p": law()}, OTHER, **SCALE),
        )
    other = pp.envs.w_times_action().archive(units=12, length=30, rng=pp.stream(0, "a"))
    alien = pp.linear_lags(2).fit(other, pp.Exact(60), seed=0)
    with pytest.raises(pp.errors.SettingError, match="same columns of S, but 'q'"):
        team(members={"p": law(), "q": alien})
    bot = team(members={"p": law()})
    with pytest.raises(pp.errors.SettingError, match="same columns of S, but 'q'"):
        bot.add("q", alien)
    assert list(bot.table.index) == ["p"]


def test_a_committee_that_has_played_advises_nobody():
    used = team()
    used.observe(contexts(1, 1, 5)[0, 0])
    with pytest.raises(pp.errors.SettingError, match="has played already"):
        guarded(advisor=used)


def test_who_cannot_join_or_leave_is_said():
    bot = team(members={"pulse": law(), "lags": pp.Lags(2)})
    for name, says in (("pulse", "first member cannot"), ("lag", "no such.*lags")):
        with pytest.raises(pp.errors.SettingError, match=says):
            bot.retire(name)
    with pytest.raises(pp.errors.SettingError, match="a member 'lags' already"):
        bot.add("lags", pp.Lags(3))


def test_contexts_per_arm_are_refused_and_nothing_is_taken_in():
    bot, s = team(), contexts(1, 4, 5)[0]
    with pytest.raises(pp.errors.SettingError, match="a committee, or a memory, takes one context"):
        bot.act(s[:2])
    assert bot.act(s[0]).id == 0


def test_laws_of_a_committee_are_not_swapped():
    bot = team()
    stream(bot, online())
    with pytest.raises(pp.errors.SettingError, match="add the new one, retire the old"):
        bot.swap_law(law(seed=1))
    assert bot.law is law()
