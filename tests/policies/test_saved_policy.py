"""A policy saved in mid-run and restored goes on as if nothing had happened, to the last bit."""

import json
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from tests.calibration.helpers import LINEAR
from tests.policies.helpers import archive, contexts, mixed_features, w_features, with_gaps

WA, BENT = (
    w_features(1),
    pp.Features(
        lambda s, w, a: np.column_stack([np.ones(len(w)), a * np.exp(w[:, 0] / 3)]), 2, ("1", "e")
    ),
)
SEEN = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(w)), s[:, 1] / 100, a * w[:, 0]]),
    2,
    ("1", "S", "Wa"),
)
CORRECTED = pp.corrected(sigma=0.4, theta_bound=2.0)
ADDED = pp.corrected(sigma=0.4, theta_bound=2.0, form="sum")
HELD_OUT = archive(units=30, time=20, seed=8)


@cache
def law(kind, w_dim, seed=0):
    history = archive(w_dim=w_dim)
    if kind == "linear":
        return pp.linear_lags(2).fit(history, pp.Exact(100), seed=seed)
    if kind == "gp":
        return pp.gaussian_process(2).fit(history, pp.Laplace(140), seed=seed)
    return pp.state_space(2, ar=1, ma=0).fit(history, seed=seed, draws=100)


@cache
def errors(seed=0):
    units = pp.History.from_arrays(
        HELD_OUT.grid.s,
        HELD_OUT.grid.w,
        seen=HELD_OUT.grid.seen,
        units=tuple(f"h{i}" for i in range(30)),
        s_names=HELD_OUT.s_names,
        w_names=HELD_OUT.w_names,
    )
    # a band of W itself also serves a law that is refitted
    band = replace(LINEAR, of="target")
    found = pp.calibrate(law("linear", 1), units, WA, seed=seed, band=band)
    return pp.calibration.CalibratedErrors(found, 2.0)


def growing(kind="linear", every=7, seed=0):
    how = {"law": pp.state_space(2, ar=1, ma=0)} if kind == "memory" else {}
    how |= {"inference": pp.Laplace(60)} if kind == "gp" else {}
    return pp.GrowingArchive(archive(), law(kind, 1), every=every, seed=seed, **how)


def ucb(radius, features=WA, kind="linear", w_dim=1, **more):
    return lambda: pp.PulseUCB(law(kind, w_dim), features, radius, **more)


def grown(kind="linear", features=WA, **more):
    def make():
        kept = growing(kind, **more)
        return pp.PulseUCB(law(kind, 1), features, pp.constant(1.0), archive=kept)

    return make


def adaptive(kind="linear", w_dim=1, features=WA, found=None, **more):
    def make():
        known = archive(w_dim=w_dim).grid.s if found is None else found()
        return pp.AdaptivePulseUCB(law(kind, w_dim), features, CORRECTED, known, **more)

    return make


@dataclass(frozen=True)
class Plan:
    """How a policy is played: units, a context per arm, gaps in S, W revealed."""

    units: tuple[str, ...] = ("",)
    per_arm: bool = False
    gaps: float = 0.0
    reveal: bool = False
    arms: int = 2
    late: int = field(default=4)


ROBUST = pp.policies.robust(sigma=0.4, budget=20.0, dim=3, theta_bound=2.0)
CASES = {
    "constant": (ucb(pp.constant(1.0)), Plan()),
    "corrected, calibrated": (lambda: ucb(CORRECTED, errors=errors())(), Plan()),
    "corrected, late by one": (lambda: ucb(CORRECTED, errors=errors())(), Plan(late=1)),
    "sum of roots": (lambda: ucb(ADDED, errors=errors())(), Plan()),
    "robust": (lambda: ucb(ROBUST, errors=errors())(), Plan()),
    "robust, no errors": (ucb(ROBUST), Plan()),
    "robust, revealed": (ucb(ROBUST), Plan(reveal=True)),
    "thompson": (ucb(pp.thompson(0.5, seed=3)), Plan()),
    "monte carlo": (ucb(pp.constant(1.0), BENT, size=16), Plan(units=("a", "b"))),
    "monte carlo thompson": (ucb(pp.thompson(1.0), BENT, size=8), Plan(per_arm=True)),
    "per arm": (ucb(CORRECTED), Plan(per_arm=True, units=("x", "y"))),
    "many units": (ucb(CORRECTED), Plan(units=tuple(f"u {i}/é" for i in range(9)))),
    "revealed": (ucb(CORRECTED), Plan(reveal=True)),
    "gaps": (ucb(CORRECTED), Plan(gaps=0.3)),
    "memory": (ucb(CORRECTED, kind="memory"), Plan(gaps=0.4, units=("a", "b"))),
    "memory per arm": (ucb(CORRECTED, kind="memory"), Plan(gaps=0.4, per_arm=True)),
    "memory monte carlo": (ucb(CORRECTED, BENT, "memory", size=8), Plan(gaps=0.4)),
    "adaptive": (adaptive(), Plan(units=("a", "b", "c"))),
    "adaptive 2 W": (adaptive(w_dim=2, features=mixed_features()), Plan(arms=3)),
    "adaptive gp": (adaptive("gp"), Plan(gaps=0.2)),
    "adaptive memory": (adaptive("memory"), Plan(gaps=0.4, per_arm=True)),
    "growing": (grown(), Plan(reveal=True, units=("a", "b"))),
    "growing gaps": (grown(every=5, seed=4), Plan(reveal=True, gaps=0.2, late=9)),
    "growing gp": (grown("gp", every=30), Plan(reveal=True, late=3)),
    "growing, Phi of S": (grown(features=SEEN), Plan(reveal=True)),
    "growing gp, Phi of S": (grown("gp", SEEN, every=30), Plan(reveal=True)),
    "growing memory": (grown("memory", every=30), Plan(reveal=True, gaps=0.3)),
}


def play(bot, plan, start, stop):
    """Play rounds [start, stop); rewards come ``late`` rounds later, by the id of the decision."""
    s = with_gaps(contexts(1, 200, 5), plan.gaps, 5)[0]
    w = np.random.default_rng(6).standard_normal((200, 1))
    out = []
    for t in range(start, stop):
        row, first = s[t], s[199]
        if plan.per_arm:
            row, first = (np.stack([r, *[s[t + 1]] * (plan.arms - 1)]) for r in (row, first))
        for unit in plan.units if t == 0 else ():  # bands speak once the lags are filled
            bot.observe(first, unit=unit)
        allowed = np.ones(plan.arms, dtype=bool)
        allowed[t % plan.arms] = t % 5 > 0
        choice = bot.act(row, unit=plan.units[t * 7 % len(plan.units)], allowed=allowed)
        out.append(choice)
        if len(bot.pending) > plan.late:
            key = bot.pending[t % 2]
            shown = {"w": w[key]} if plan.reveal and key % 3 else {}
            bot.learn(key, float(np.sin(2.0 * key)), **shown)
    return out


def assert_same(one, two):
    for field_, a, b in zip(one._fields, one, two, strict=True):
        assert_array_equal(a, b, err_msg=field_)


@pytest.mark.parametrize("pause", [0, 70])
@pytest.mark.parametrize("case", CASES)
def test_a_pause_changes_nothing(case, pause, tmp_path):
    make, plan = CASES[case]
    rounds = pause + (65 if "growing" in case else 25)
    straight, before = make(), make()
    whole = play(straight, plan, 0, rounds)
    play(before, plan, 0, pause)
    path = pp.save(before, tmp_path / "policy")
    after = pp.load(path, features=before.features)
    assert type(after) is type(before)
    assert_same(after.state, before.state)
    assert after.pending == before.pending
    for one, two in zip(play(after, plan, pause, rounds), whole[pause:], strict=True):
        assert_same(one, two)
    assert_same(after.state, straight.state)
    assert after.pending == straight.pending
    if straight.archive is not None:
        assert after.archive.rounds == straight.archive.rounds
        assert after.law.id == straight.law.id
        assert straight.archive.rounds >= straight.archive.every
    # a second pause, of the policy that was restored
    again = pp.load(pp.save(after, path), features=before.features)
    for one, two in zip(
        play(again, plan, rounds, rounds + 8), play(straight, plan, rounds, rounds + 8), strict=True
    ):
        assert_same(one, two)


def test_saving_leaves_the_policy_alone_and_no_open_decision_is_needed(tmp_path):
    bot, twin = ucb(CORRECTED)(), ucb(CORRECTED)()
    for each in (bot, twin):
        play(each, Plan(), 0, 20)
        each.forget(each.pending)
    back = pp.load(pp.save(bot, tmp_path / "p"), features=WA)
    assert back.pending == ()
    for one, two, three in zip(*(play(b, Plan(), 20, 40) for b in (bot, twin, back)), strict=True):
        assert_same(one, two)
        assert_same(one, three)


def test_a_decision_made_before_the_pause_is_learned_after_it(tmp_path):
    bot = ucb(CORRECTED)()
    choice = bot.act([1.0, -90.0], error=[0.1, 0.3])
    back = pp.load(pp.save(bot, tmp_path / "p"), features=WA)
    with pytest.raises(pp.errors.RewardError, match="another policy"):
        back.learn(choice._replace(x=choice.x + 1), 1.0)
    back.learn(choice, 1.0)
    bot.learn(choice, 1.0)
    assert_same(back.state, bot.state)
    with pytest.raises(pp.errors.RewardError, match="learned or forgotten before"):
        back.learn(choice, 1.0)


def test_units_that_were_only_observed_are_kept(tmp_path):
    bot, s = ucb(CORRECTED)(), contexts(1, 3, 5)[0]
    bot.observe(s[0], unit="quiet")
    back = pp.load(pp.save(bot, tmp_path / "p"), features=WA)
    assert_same(back.act(s[1], unit="quiet"), bot.act(s[1], unit="quiet"))


def test_nothing_is_pickled_and_all_is_plain(tmp_path):
    bot = grown()()
    play(bot, Plan(reveal=True), 0, 40)
    path = pp.save(bot, tmp_path / "new" / "p")
    assert sorted(f.name for f in path.iterdir()) == ["arrays.npz", "manifest.json"]
    assert [f.name for f in path.parent.iterdir()] == ["p"]
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        kinds = {arrays[name].dtype.name for name in arrays.files}
    assert kinds <= {"float64", "int64", "bool"}
    assert json.loads((path / "manifest.json").read_text())["kind"] == "policy"
