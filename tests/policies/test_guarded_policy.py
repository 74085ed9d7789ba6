"""A guarded policy, one decision at a time: against the batch, by hand, against bad advisors."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.policies.ball import BallRounds
from pulse_pyro.policies.balls import band_rounds
from pulse_pyro.policies.core import RoundErrors
from pulse_pyro.policies.guard import NO_PSI, Learner, play_guarded
from tests.calibration.helpers import LINEAR
from tests.helpers import with_failure
from tests.policies.helpers import archive, contexts, mixed_features, w_features, world
from tests.policies.test_guard import by_hand
from tests.policies.test_saved_policy import Plan, assert_same, play

WA = w_features(1)
ROUNDS = 120


def renamed(history):
    """The same rows under other names: units the law has not seen."""
    return replace(
        history,
        units=tuple(f"h{name}" for name in history.units),
        clusters=tuple(f"h{name}" for name in history.clusters),
    )


@cache
def law(w_dim=1, units=8, seed=0):
    return pp.linear_lags(2).fit(archive(units, 10, w_dim), pp.Exact(100), seed=seed)


@cache
def calibration(features=WA, w_dim=1, seed=0):
    held_out = renamed(archive(30, 20, w_dim, seed=8))
    # a band of W itself also serves a law that is refitted
    band = replace(LINEAR, of="target")
    return pp.calibrate(law(w_dim), held_out, features, seed=seed, band=band)


TRUST = {"reward_sd": 0.1, "theta_bound": 2.0}


def guarded(features=WA, w_dim=1, **more):
    known = calibration(features, w_dim)
    return pp.PulseUCB(law(w_dim), features, calibration=known, **(TRUST | more))


class Spy:
    """A source of errors that remembers what it said; ``by`` multiplies it."""

    def __init__(self, source, by=1.0):
        self.source, self.by, self.said = source, by, []

    def at(self, past):
        found = self.source.at(past)
        self.said.append(found.coef * self.by)
        return RoundErrors(self.said[-1], found.psi)

    def check_swap(self):
        self.source.check_swap()


def stream(bot, online, mask=None, rounds=ROUNDS):
    """Play a world's only run; return decisions, features (1, time, K, d), errors and widths."""
    bot.core.source = Spy(bot.core.source)
    x, choices = [], []
    for row in online.s[0, : online.lead]:
        bot.observe(row)
    for t in range(rounds):
        allowed = None if mask is None else mask[t]
        choice = bot.act(online.s[0, online.lead + t], allowed=allowed)
        x.append(bot._x[0, 0].copy())
        choices.append(choice)
        bot.learn(choice, online.reward[0, t, choice.action])
    return choices, np.array(x)[None], np.array(bot.core.source.said)[None]


ADVISORS = {
    "constant": pp.constant(0.2),
    "thompson": pp.thompson(0.3, seed=4),
    "greedy": "greedy",
    "ball": "ball",
}


@pytest.mark.parametrize("masked", [False, True], ids=["all arms", "masked"])
@pytest.mark.parametrize("advisor", ADVISORS)
def test_streaming_is_the_batch_to_the_last_bit(advisor, masked):
    features = mixed_features()
    online = world(features, contexts(1, ROUNDS + 2, 9), 2)
    mask = None
    if masked:
        mask = np.random.default_rng(0).random((ROUNDS, 3)) < 0.6
        mask[~mask.any(1), 1] = True
    bot = guarded(features, 2, advisor=ADVISORS[advisor], slack=1.2)
    choices, x, coef = stream(bot, online, mask)
    x[~np.isfinite(x)] = 0.0  # arms that were not allowed
    ball = bot.core.ball
    batch = play_guarded(
        [Learner(x, bot.core.ridge, ball.sigma, ball.sigma)],
        online.reward[:, :ROUNDS],
        ball=ball,
        rounds=BallRounds(np.nan_to_num(coef), NO_PSI),
        advisor=ADVISORS[advisor],
        slack=1.2,
        allowed=None if mask is None else mask[None],
    )
    assert_array_equal([c.action for c in choices], batch.action[0])
    assert_array_equal([c.gamma for c in choices], batch.root[0] ** 2)
    assert_array_equal([c.cost for c in choices], batch.cost[0])
    assert_array_equal([c.by == "guard" for c in choices], batch.overruled[0])
    assert_array_equal(bot.state.theta, batch.state.theta[0, 0])
    assert_array_equal(bot.state.inverse, batch.state.inverse[0, 0])
    if advisor == "greedy":
        assert 0 < bot.core.share_overruled < 1


def test_rounds_of_whole_series_are_those_met_one_by_one():
    features = mixed_features()
    online = world(features, contexts(1, 32, 9), 2)
    bot = guarded(features, 2)
    _, x, coef = stream(bot, online, rounds=30)
    bias = bot.core.source.source.bias
    rounds = band_rounds(calibration(features, 2), bias, online.s, online.lead)
    assert_allclose(rounds.coef[:, :30], coef, rtol=1e-9, atol=1e-12)
    assert_allclose(pp.envs.pulse(online, law(2)).x[:, :30], x, rtol=1e-9, atol=1e-12)
    # a context per arm: each arm's own
    apart = np.repeat(online.s[:, :, None], 3, axis=2)
    assert_allclose(band_rounds(calibration(features, 2), bias, apart, 2).coef, rounds.coef)


@pytest.mark.parametrize("whole", [False, True], ids=["reward_sd", "sigma"])
def test_arms_radii_and_costs_are_those_of_a_loop_by_hand(whole):
    online = world(WA, contexts(1, 62, 9), 1)
    noise = {"reward_sd": None, "sigma": 0.7} if whole else {}
    bot = guarded(slack=1.5, **noise)
    choices, x, coef = stream(bot, online, rounds=60)
    ball = bot.core.ball
    assert (ball.spread is None) == whole
    assert bot.core.ridge == pytest.approx(3 * (ball.sigma / 2.0) ** 2)
    played, roots, costs = by_hand(
        x[0], online.reward[0], ball, BallRounds(coef, NO_PSI), ball.sigma, 1.5, bot.core.ridge
    )
    assert [c.action for c in choices] == played
    assert_allclose([c.gamma for c in choices], np.square(roots), rtol=1e-8)
    assert_allclose([c.cost for c in choices], costs, rtol=1e-7)


def in_ball(bot, choice, theta):
    apart = theta - bot.state.theta
    return apart @ bot.state.precision @ apart <= choice.gamma * (1 + 1e-9)


def off(fitted, by):
    """A law whose E[W] is too high."""
    draws = dict(fitted.draws)
    coef = draws["coef"].copy()
    coef[:, 0] += by / fitted.scaler.w_scale
    return replace(fitted, draws=draws | {"coef": coef})


def wrong(by, ignore):
    """Play with a law that is off, its calibration's errors counted or not; rounds held."""
    online = world(WA, contexts(1, 252, 9), 1)
    online = replace(online, theta=np.array([0.1, 0.4, 1.2]))
    fitted = off(law(), by)
    held_out = renamed(archive(30, 20, seed=8))
    known = pp.calibrate(fitted, held_out, WA, seed=0, band=LINEAR)
    size = float(np.linalg.norm(online.theta))
    bot = pp.PulseUCB(fitted, WA, calibration=known, reward_sd=0.1, theta_bound=size)
    bot.core.source = Spy(bot.core.source, 0.0 if ignore else 1.0)
    means, held = [], []
    for row in online.s[0, :2]:
        bot.observe(row)
    for t in range(250):
        choice = bot.act(online.s[0, 2 + t])
        held.append(in_ball(bot, choice, online.theta))
        means.append(choice)
        bot.learn(choice, online.reward[0, t, choice.action])
    return np.array(held)


def test_the_ball_of_a_law_that_is_off_holds_theta_and_fails_if_its_error_is_ignored():
    """Must fail: E[W] too high by .7, and its error called 0."""
    assert wrong(0.7, ignore=False).all()
    assert not wrong(0.7, ignore=True).all()


@pytest.mark.parametrize("slack", [1.0, 3.0])
def test_no_round_costs_more_than_promised_whoever_advises(slack):
    """The advisor knows theta* and proposes the worst arm."""
    online = world(WA, contexts(1, 302, 9), 1)
    theta = online.theta
    size = float(np.linalg.norm(theta))
    seen = []

    def worst(mean, width, allowed):
        return int((bot._x[0, 0] @ theta).argmin())

    bot = guarded(advisor=worst, slack=slack, theta_bound=size)
    for row in online.s[0, :2]:
        bot.observe(row)
    for t in range(300):
        choice = bot.act(online.s[0, 2 + t])
        means = bot._x[0, 0] @ theta
        assert in_ball(bot, choice, theta)
        lost = means.max() - means[choice.action]
        assert lost <= min(means.max() - means.min(), choice.cost) + 1e-12
        seen.append(choice.by)
        bot.learn(choice, online.reward[0, t, choice.action])
    assert {"advisor", "guard"} >= set(seen)
    assert slack > 1 or "guard" in seen
    assert bot.core.share_overruled == pytest.approx(np.mean([by == "guard" for by in seen]))


def test_an_advisor_without_an_arm_is_counted_and_the_guard_plays():
    odd = [7, -1, None, "1", 1.0, np.int64(1), True]

    def strange(mean, width, allowed):
        assert np.isnan(mean[~allowed]).all()
        return odd[len(asked) % len(odd)]

    asked = []
    bot = guarded(advisor=strange, slack=1e9)
    s = contexts(1, 20, 5)[0]
    bot.observe(s[0])
    for row in s[1:15]:
        asked.append(bot.act(row, allowed=[True, len(asked) % 2 == 0]))
        assert asked[-1].action in ((0, 1) if len(asked) % 2 else (0,))
    usable = [c.by == "advisor" for c in asked]
    # np.int64(1) and True are arms, where they are allowed
    assert sum(usable) == sum(i % 7 in (5, 6) and i % 2 == 0 for i in range(14))
    assert f"{14 - sum(usable)} proposals unusable" in repr(bot)
    assert all("no arm" in c.why for c, good in zip(asked, usable, strict=True) if not good)


def test_an_advisor_that_fails_leaves_nothing_half_done():
    broken = [True]

    def fails(mean, width, allowed):
        if broken[0]:
            raise KeyError("no idea")
        return 0

    bot, twin = guarded(advisor=fails), guarded(advisor=lambda m, w, a: 0)
    s = contexts(1, 5, 5)[0]
    for each in (bot, twin):
        each.observe(s[0])
    with pytest.raises(KeyError, match="no idea") as found:
        bot.act(s[1])
    assert any("taken in" in note for note in found.value.__notes__)
    assert bot.pending == ()
    assert bot.core.counts.sum() == 0
    broken[0] = False
    twin.observe(s[1])
    assert_same(bot.act(s[2]), twin.act(s[2]))


def test_late_lost_and_revealed_rewards_are_learned_with_their_own_error():
    bot, s = guarded(), contexts(1, 90, 5)[0]
    rng, waiting, x, r, coef = np.random.default_rng(0), [], [], [], []
    bot.core.source = Spy(bot.core.source)
    bot.observe(s[0])
    for t, row in enumerate(s[1:]):
        choice = bot.act(row)
        waiting.append((choice, bot.core.source.said[-1][choice.action], row, t))
        rng.shuffle(waiting)
        while len(waiting) > 12:
            choice, error, at, when = waiting.pop()
            w = [0.3] if when % 4 == 0 else None
            bot.learn(choice, float(np.sin(when)), w=w)
            x.append(choice.x if w is None else WA(at[None], np.array([w]), choice.action)[0])
            r.append(np.sin(when))
            coef.append(error if w is None else 0 * error)
    bot.forget(choice for choice, *_ in waiting)
    x, coef = np.array(x), np.array(coef)
    state = bot.state
    assert_allclose(state.precision, bot.core.ridge * np.eye(3) + x.T @ x, rtol=1e-10)
    assert_allclose(state.theta, np.linalg.solve(state.precision, x.T @ r), rtol=1e-7)
    assert_allclose(bot.core.sums.plain[0, :, 0], (coef**2).sum(0), rtol=1e-10)
    assert bot.pending == ()
    assert state.rounds == len(r)


def test_nothing_grows_with_time():
    bot, online = guarded(), world(WA, contexts(1, 402, 9), 1)

    def size():
        kept = [*bot.core.kept, *bot.core.sums, bot.core.counts]
        return sum(each.nbytes for each in kept), len(bot._open), len(bot._pasts.units)

    for row in online.s[0, :2]:
        bot.observe(row)
    sizes = set()
    for t in range(400):
        choice = bot.act(online.s[0, 2 + t])
        bot.learn(choice, online.reward[0, t, choice.action])
        sizes.add(size())
    assert len(sizes) == 1


def propose(mean, width, allowed):
    """The arm of the widest interval."""
    return int(np.nanargmax(width))


def growing():
    own = pp.linear_lags(2).fit(archive(8, 10), pp.Exact(100), seed=0)
    kept = pp.GrowingArchive(archive(8, 10), own, every=7)
    return pp.PulseUCB(own, WA, calibration=calibration(), archive=kept, **TRUST)


CASES = {
    "constant": (guarded, Plan()),
    "thompson": (lambda: guarded(advisor=pp.thompson(0.3, seed=2)), Plan()),
    "greedy, units": (lambda: guarded(advisor="greedy"), Plan(units=("a", "b"))),
    "function": (lambda: guarded(advisor=propose), Plan(reveal=True)),
    "per arm": (lambda: guarded(mixed_features(), 2), Plan(per_arm=True, arms=3)),
    "sigma": (lambda: guarded(reward_sd=None, sigma=0.4), Plan(late=1)),
    "growing": (growing, Plan(reveal=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pause_changes_nothing(case, tmp_path):
    make, plan = CASES[case]
    straight, before = make(), make()
    whole = play(straight, plan, 0, 70)
    play(before, plan, 0, 40)
    handed = {"features": before.features} | ({"advisor": propose} if case == "function" else {})
    after = pp.load(pp.save(before, tmp_path / "p"), **handed)
    assert after.pending == before.pending
    assert repr(after) == repr(before)
    assert_same(after.state, before.state)
    for key, one in before._open.items():
        assert_same(after._open[key].decision, one.decision)
    for one, two in zip(play(after, plan, 40, 70), whole[40:], strict=True):
        assert_same(one, two)
    assert_same(after.state, straight.state)
    assert_array_equal(after.core.sums.plain, straight.core.sums.plain)
    assert_array_equal(after.core.counts, straight.core.counts)
    if case == "growing":
        assert after.law.id == straight.law.id != calibration().law_id


def test_a_function_must_be_handed_back_and_only_then(tmp_path):
    path = pp.save(guarded(advisor=propose), tmp_path / "p")
    with pytest.raises(pp.errors.BundleError, match="propose"):
        pp.load(path, features=WA)
    path = pp.save(guarded(), tmp_path / "q")
    with pytest.raises(pp.errors.BundleError, match="advisor="):
        pp.load(path, features=WA, advisor=propose)


def test_the_repr_says_who_advises_and_what_it_rests_on():
    said = repr(guarded(slack=2.0))
    assert "guard around constant(" in said
    assert "slack 2" in said
    assert "against the best policy on S" in said
    assert "conditional on:" in said
    assert "what W varies by given S is as the law says" in said
    assert ">= 0.9" in said
    assert "sigma" in repr(guarded(reward_sd=None, reward_range=(0, 1))).split("conditional")[1]


def test_a_failed_calibration_makes_it_a_heuristic(tmp_path):
    known = with_failure(calibration(), "lack of fit")
    with pytest.warns(UserWarning, match="failed"):
        bot = pp.PulseUCB(law(), WA, calibration=known, **TRUST)
    assert "heuristic: a check of the calibration failed (lack of fit)" in repr(bot)
    assert "guarantee" not in repr(bot)


def test_a_range_is_sigma_itself():
    bot = guarded(reward_sd=None, reward_range=(-1.0, 2.0))
    assert bot.core.ball.spread is None
    assert bot.core.ball.sigma == 1.5


BENT = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], a * w[:, 0] ** 2]), 2, ("w", "a w2"))
OTHER = pp.Features(lambda s, w, a: 2 * WA.fn(s, w, a), 2, WA.names)
REFUSALS = {
    "slack": ({"slack": 0.9}, "slack must be at least 1"),
    "slack text": ({"slack": "much"}, "slack"),
    "no S": ({"theta_bound": None}, r"theta_bound is missing.*about R /"),
    "no S, range": (
        {"theta_bound": None, "reward_sd": None, "reward_range": (0, 1)},
        "of this scale, about",
    ),
    "no noise": ({"reward_sd": None}, r"reward_sd is missing.*leaves up to"),
    "both": ({"sigma": 1.0}, "is enough"),
    "range": ({"reward_sd": None, "reward_range": (1, 0)}, "reward_range"),
    "half a range": ({"reward_sd": None, "reward_range": 3}, "reward_range"),
    "negative": ({"reward_sd": -1.0}, "reward_sd"),
    "delta": ({"delta": 1.5}, "delta"),
    "advisor": ({"advisor": 3}, "an advisor is"),
    "unknown advisor": ({"advisor": "best"}, "an advisor is"),
    "corrected": ({"advisor": pp.corrected(sigma=1.0)}, "an advisor is"),
    "radius too": ({"radius": pp.constant(1.0)}, "give one of them"),
    "nothing": ({"calibration": None}, "reward_sd= is for|give calibration"),
    "no calibration": ({"calibration": "cal"}, "must be a Calibration"),
    "errors too": (
        {"errors": pp.calibration.CalibratedErrors(calibration())},
        "errors= is for a radius",
    ),
    "another law": ({"law": law(1, 9)}, "calibrate the law that plays"),
    "another Phi": ({"features": OTHER}, "other features"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_guard_cannot_be_made_from_is_said(case):
    change, says = REFUSALS[case]
    options = {"law": law(), "features": WA, "calibration": calibration()} | TRUST | change
    with pytest.raises(pp.errors.PulseError, match=says):
        pp.PulseUCB(options.pop("law"), options.pop("features"), **options)


def test_a_law_with_memory_makes_it_a_heuristic():
    """What it leaves of W persists: no ball is valid."""
    history = archive(8, 10)
    own = pp.linear_lags(2).with_memory("ar").fit(history, pp.Exact(100), seed=0)
    assert own.id == law().id
    bot = pp.PulseUCB(own, WA, calibration=calibration(), **TRUST)
    assert "heuristic: what the law leaves of W was fitted with memory" in repr(bot)
    assert "guarantee" not in repr(bot)


def test_a_curved_map_and_two_laws_are_refused():
    both = pp.calibration.crossfit(pp.linear_lags(2), archive(40, 20), WA, seed=0, band=LINEAR)
    with pytest.raises(pp.errors.SettingError, match="two laws"):
        pp.PulseUCB(both.law, WA, calibration=both.calibration, **TRUST)
    bent = pp.calibrate(law(), renamed(archive(60, 20, seed=8)), BENT, seed=0)
    with pytest.raises(pp.errors.SettingError, match="affine"):
        pp.PulseUCB(law(), BENT, calibration=bent, **TRUST)


@pytest.mark.parametrize(
    "change",
    [
        {"reward_sd": 1e5},
        {"reward_sd": None, "sigma": 1e-6},
        {"reward_sd": None, "sigma": 1e6},
        {"theta_bound": 1e9, "reward_sd": 0.1},
    ],
    ids=str,
)
def test_what_is_absurd_beside_the_archive_is_warned_of(change):
    with pytest.warns(UserWarning, match="other units"):
        guarded(**change)


def test_what_belongs_to_the_other_kind_of_policy_is_refused():
    with pytest.raises(pp.errors.SettingError, match="theta_bound= is for a guarded policy"):
        pp.PulseUCB(law(), WA, pp.constant(1.0), theta_bound=2.0)
    with pytest.raises(pp.errors.SettingError, match="calibration="):
        pp.PulseUCB(law(), WA)
    bot, s = guarded(), contexts(1, 4, 5)[0]
    bot.observe(s[0])
    with pytest.raises(pp.errors.SettingError, match="error= is not for a guarded"):
        bot.act(s[1], error=0.1)
    twin = guarded()
    twin.observe(s[0])
    assert_same(bot.act(s[1]), twin.act(s[1]))


def test_a_round_whose_inputs_are_not_all_seen_is_refused_and_the_next_is_played():
    bot, s = guarded(), contexts(1, 4, 5)[0]
    with pytest.raises(pp.errors.FeatureError, match="calibrated error is not known"):
        bot.act(s[0])
    assert bot.act(s[1]).id == 0


def test_decisions_without_a_guard_say_so():
    bot, s = pp.PulseUCB(law(), WA, pp.constant(1.0)), contexts(1, 3, 5)[0]
    choice = bot.act(s[0])
    assert choice.by == "radius"
    assert "largest" in choice.why
    assert np.isnan(choice.cost)
    old = pp.policies.Decision(0, np.ones(2), np.ones(2), np.ones(2), 1.0, 0.0)
    assert (old.by, old.why) == ("radius", "")
