"""Committees, guards around them and memories, saved in mid-run: they go on to the last bit."""

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.sealed import read_sealed, write_sealed
from tests.policies.helpers import CUSTOM, archive, contexts, missing, with_gaps
from tests.policies.team_helpers import (
    SCALE,
    TWO,
    WA,
    everyone,
    filtering,
    guarded,
    law,
    team,
)
from tests.policies.test_guarded_policy import guarded as plain_guard
from tests.policies.test_saved_policy import assert_same

UNITS = ("a", "b", "c é")


def play(bot, start, stop, gaps=0.0):
    """Play rounds [start, stop) of three units; rewards late, lost, W revealed now and then."""
    s, arms = contexts(1, 200, 5), bot.features.actions
    w = missing(s, len(bot.law.schema.w_names), 5)[0]
    s = with_gaps(s, gaps, 5)[0]
    out = []
    for t in range(start, stop):
        for unit in UNITS if t == 0 else ():
            for k in range(5):
                bot.observe(s[190 + k], unit=unit, w=w[190 + k] if k == 4 else None)
        allowed = np.ones(arms, dtype=bool)
        allowed[t % arms] = t % 5 > 0
        out.append(bot.act(s[t], unit=UNITS[t * 7 % 3], allowed=allowed))
        if len(bot.pending) > 6:
            key = bot.pending[t % 4]
            if t % 11 == 3:
                bot.forget([key])
            else:
                shown = {"w": w[key]} if key % 6 == 2 else {}
                bot.learn(key, float(np.sin(2.0 * key)) + w[key, 0], **shown)
            if key % 5 == 1 and t % 11 != 3 and bot._tracks is not None:
                reveal(bot, key, w[key])  # learned by now
        if t % 9 == 4:
            reveal(bot, bot.pending[0], w[bot.pending[0]])
    return out


def reveal(bot, key, w):
    """Reveal a W that is not known yet; a memory that has moved on says so."""
    if not (bot._open.get(key) or bot._learned[key]).told:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "reveal: .* comes too late")
            bot.reveal(key, w)


def remembers(w_dim=1, kind="ar", radius=None, phi=None):
    phi = phi or (WA if w_dim == 1 else TWO)
    own = law(w_dim, memory=kind)
    return pp.PulseUCB(own, phi, radius or pp.constant(0.4), reward_sd=0.1)


def latent():
    """A memory in a world of another kind, whose law is that of a filter."""
    own = pp.laws.with_memory(filtering(), archive(12, 20), "level+ar")
    return pp.PulseUCB(own, WA, pp.constant(0.4), reward_sd=0.1)


BENT = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(w)), w[:, 0], a * np.exp(w[:, 0] / 3)]),
    2,
    ("1", "w", "e"),
)


def curved():
    """Members that draw, from streams of their own."""
    members = {"pulse": law(), "long": law(lags=4), "lags": pp.Lags(2)}
    return pp.Committee(members, BENT, **SCALE)


CASES = {
    "committee": team,
    "committee, 2 W": lambda: team(2),
    "committee, stacking": lambda: team(votes="stacking"),
    "committee, best": lambda: team(votes="best"),
    "committee of filters": lambda: team(members={"f": filtering(), "lags": pp.Lags(2)}),
    "committee of one": lambda: team(members={"only": law(memory="ar")}),
    "committee that draws": curved,
    "guard": plain_guard,
    "guard around a committee": guarded,
    "guard around a committee, 2 W": lambda: guarded(2, slack=1.0, votes="stacking"),
    "guard with memory around a committee": lambda: guarded(memory="ar"),
    "guard with memory": lambda: guarded(memory="level+ar", advisor=pp.thompson(0.3, seed=2)),
    "memory": remembers,
    "memory, 2 W": lambda: remembers(2, "level+ar"),
    "memory, level": lambda: remembers(kind="level"),
    "memory, thompson": lambda: remembers(radius=pp.thompson(0.3, seed=4)),
    "memory of a filter": latent,
}


def ballots(bot):
    """What a committee says of itself; None elsewhere."""
    ballot = getattr(bot, "ballot", None)
    return None if ballot is None else (ballot.table.to_csv(), *bot.core.past_weights)


def assert_same_policies(one, two):
    assert_same(one.state, two.state)
    assert one.pending == two.pending
    assert repr(one) == repr(two)
    for a, b in zip(one.core.kept, two.core.kept, strict=True):
        assert_array_equal(a, b)
    assert_array_equal(one.core.weights, two.core.weights)
    for a, b in zip(ballots(one) or (), ballots(two) or (), strict=True):
        assert_array_equal(a, b)
    for mine, yours in ((one._open, two._open), (one._learned, two._learned)):
        assert list(mine) == list(yours)
        for key, kept in mine.items():
            assert_same(kept.decision, yours[key].decision)
            assert (kept.unit, kept.row) == (yours[key].unit, yours[key].row)
            for a, b in zip(kept.carried, yours[key].carried, strict=True):
                assert_same(a, b)
    assert list(one._pasts.units) == list(two._pasts.units)
    for unit, past in one._pasts.units.items():
        for a, b in zip(past, two._pasts.units[unit], strict=True):
            mine, yours = a.state(), b.state()
            assert list(mine) == list(yours)
            for name in mine:
                assert_array_equal(mine[name], yours[name])


@pytest.mark.parametrize("case", CASES)
def test_a_pause_changes_nothing(case, tmp_path):
    make = CASES[case]
    straight, before = make(), make()
    whole = play(straight, 0, 75)
    play(before, 0, 45)
    after = pp.load(pp.save(before, tmp_path / "p"), features=before.features)
    assert type(after) is type(before)
    assert_same_policies(after, before)
    for one, two in zip(play(after, 45, 60), whole[45:60], strict=True):
        assert_same(one, two)
    again = pp.load(pp.save(after, tmp_path / "p"), features=before.features)
    for one, two in zip(play(again, 60, 75), whole[60:], strict=True):
        assert_same(one, two)
    assert_same_policies(again, straight)
    if "memory" in case:
        waiting = [one for one in before._open.values() if one.carried]
        assert len(waiting) > 4  # rewards that will tell of the unit were pending


def test_a_pause_in_the_middle_of_a_switch_changes_nothing(tmp_path):
    """Saved again and again while the members' weights move from one to another."""
    straight, paused = team(votes="tempered"), team(votes="tempered")
    seen = []
    for t in range(0, 60, 4):
        for one, two in zip(play(straight, t, t + 4), play(paused, t, t + 4), strict=True):
            assert_same(one, two)
        seen.append(straight.core.weights)
        paused = pp.load(pp.save(paused, tmp_path / "p"), features=WA)
    assert_same_policies(straight, paused)
    leaders = [int(each.argmax()) for each in seen]
    moved = [np.abs(b - a).max() for a, b in pairwise(seen)]
    assert len(set(leaders)) > 1
    assert max(moved) > 0.2


@pytest.mark.parametrize("make", [team, guarded], ids=["alone", "guarded"])
def test_who_joined_or_left_before_the_pause_and_after(make, tmp_path):
    bots = [make(), make()]
    for bot in bots:
        play(bot, 0, 20)
        bot.ballot.add("new", law(lags=4, memory="ar"))
        bot.ballot.retire("lags")
        play(bot, 20, 26)
    bots[1] = pp.load(pp.save(bots[1], tmp_path / "p"), features=WA)
    assert_same_policies(*bots)
    for bot in bots:
        bot.ballot.retire("memory")
        bot.ballot.add("last", (pp.Lags(2), pp.policies.past_rewards(1)))
    for one, two in zip(play(bots[0], 26, 50), play(bots[1], 26, 50), strict=True):
        assert_same(one, two)
    assert_same_policies(*bots)


def test_a_law_that_several_members_share_is_stored_once(tmp_path):
    bot = pp.load(pp.save(guarded(), tmp_path / "p"), features=WA)
    members = bot.scorer.members
    assert members["guard"].law is members["pulse"].law is members["lags"].law
    assert members["adaptive"].law is members["pulse"].law
    assert members["memory"].law.memory.kind == "level+ar"
    manifest, _ = read_sealed(tmp_path / "p")
    stored = [name for name in manifest["thing"]["scorer"] if name.startswith("law ")]
    assert stored == ["law 1", "law 2"]  # with memory, and of four lags
    assert bot.ballot.rules.features is bot.features


def test_gaps_and_a_committee_that_has_not_played(tmp_path):
    members = {"f": filtering(), "lags": pp.Lags(3), "pulse": law()}
    bots = [team(members=members), team(members=members)]
    bots[1] = pp.load(pp.save(bots[1], tmp_path / "p"), features=WA)
    for start, stop in ((0, 30), (30, 60)):
        for one, two in zip(*(play(bot, start, stop, 0.3) for bot in bots), strict=True):
            assert_same(one, two)
        bots[1] = pp.load(pp.save(bots[1], tmp_path / "p"), features=WA)
    assert bots[0].table["rounds"].nunique() > 1  # some sat out
    assert_same_policies(*bots)


# What earlier versions wrote.


def as_before(path):
    """Bring a saved policy into the form that had one member, no memory and no weights."""
    manifest, arrays = read_sealed(path)
    state = manifest["thing"]["state"]
    keys, places, chosen = state.pop("open decisions")
    state |= {"open": keys, "places": places, "chosen": chosen}
    del state["learned decisions"]
    draws = state.pop("draws")
    state |= {"draws": draws[0][0] if draws else None, "affine": draws[0][1] if draws else None}
    state.pop("stride", None)
    guard = manifest["thing"].get("guard", {})
    for name in ("guess", "votes", "others"):
        guard.pop(name, None)
    new = ("state/weights", "state/learned.")
    old = {name: value for name, value in arrays.items() if not name.startswith(new)}
    about = {n: v for n, v in manifest.items() if n in ("format", "kind", "thing")}
    return write_sealed(path, about, old)


@pytest.mark.parametrize("guard", [True, False], ids=["guard", "bonus"])
def test_what_an_earlier_version_saved_is_still_read(guard, tmp_path):
    bot = plain_guard() if guard else pp.PulseUCB(law(), WA, pp.thompson(0.4))
    play(bot, 0, 30)
    path = as_before(pp.save(bot, tmp_path / "p"))
    back = pp.load(path, features=WA)
    for one, two in zip(play(back, 30, 50), play(bot, 30, 50), strict=True):
        assert_same(one, two)


# What does not fit.


def custom(seed=0):
    return CUSTOM.fit(archive(4, 8), pp.Laplace(40), seed=seed)


def test_custom_models_are_handed_back_by_the_name_of_their_member(tmp_path):
    mine = custom()
    bot = team(members={"pulse": law(), "mine": mine, "again": mine})
    play(bot, 0, 20)
    path = pp.save(bot, tmp_path / "p")
    for handed in (CUSTOM, mine):
        back = pp.load(path, law={"mine": handed}, features=WA)
        assert back.scorer.members["mine"].law is back.scorer.members["again"].law
        for one, two in zip(
            play(back, 20, 23), play(pp.load(path, {"mine": mine}, WA), 20, 23), strict=True
        ):
            assert_same(one, two)
    first = team(members={"mine": mine, "lags": pp.Lags(2)})
    path = pp.save(first, tmp_path / "q")
    for handed in (CUSTOM, {"mine": CUSTOM}):
        assert pp.load(path, handed, WA).law.id == mine.id


def test_laws_that_are_not_those_of_a_member_are_refused(tmp_path):
    path = pp.save(team(members={"pulse": law(), "mine": custom()}), tmp_path / "p")
    for handed, says in (
        (None, r"law of member 'mine': it holds a custom model"),
        ({"min": CUSTOM}, r"the law of no member.*mine"),
        ({"mine": pp.linear_lags(2)}, "law of member 'mine'"),
        ({"mine": CUSTOM, "pulse": law(lags=4)}, "law passed"),
    ):
        with pytest.raises(pp.errors.BundleError, match=says):
            pp.load(path, handed, WA)
    path = pp.save(team(), tmp_path / "q")
    with pytest.raises(pp.errors.BundleError, match="has no law of its own"):
        pp.load(path, {"lags": law()}, WA)
    path = pp.save(plain_guard(), tmp_path / "r")
    with pytest.raises(pp.errors.BundleError, match="it is no committee"):
        pp.load(path, {"pulse": law()}, WA)


def test_a_summary_of_ones_own_is_not_stored(tmp_path):
    mine = pp.Window(3, lambda rows, axis: rows.max(axis))
    bot = team(members={"pulse": law(), "mine": mine})
    with pytest.raises(pp.errors.BundleError, match="summary of your own, which is not stored"):
        pp.save(bot, tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_a_committee_with_a_phi_of_its_own_is_not_saved(tmp_path):
    twin = pp.Features(WA.fn, 2, WA.names)
    other = pp.Features(lambda s, w, a: 2 * WA.fn(s, w, a), 2, WA.names)
    for phi, fits in ((twin, True), (other, False)):
        bot = guarded(advisor=pp.Committee({"p": law()}, phi, **SCALE))
        if fits:
            play(bot, 0, 10)
            back = pp.load(pp.save(bot, tmp_path / "p"), features=WA)
            assert_same_policies(back, bot)
        else:
            with pytest.raises(pp.errors.BundleError, match="'p' has a Phi of its own"):
                pp.save(bot, tmp_path / "q")


def test_a_law_with_another_memory_is_refused(tmp_path):
    bot = remembers()
    path = pp.save(bot, tmp_path / "p")
    assert pp.load(path, law(memory="ar"), WA).law is law(memory="ar")
    for other in (law(), law(memory="level"), replace(law(memory="ar"), memory=None)):
        with pytest.raises(pp.errors.BundleError, match="memory"):
            pp.load(path, other, WA)


class Bare:
    """A law of another make: __call__ and schema alone, and what it looks at."""

    def __init__(self, own):
        self.own, self.schema, self.summary = own, own.schema, own.summary

    def __call__(self, source, at=None):
        return self.own(source, at)


def test_laws_of_another_make_are_handed_back_as_they_were_handed_in(tmp_path):
    bare, other = Bare(law()), Bare(law(lags=4))
    told = pp.laws.with_memory(bare, archive(12, 20), "ar")
    bots = [
        (lambda: pp.PulseUCB(bare, WA, pp.constant(1.0)), bare),
        (lambda: pp.PulseUCB(told, WA, pp.constant(1.0), reward_sd=0.1), told),
        (lambda: team(members={"pulse": law(), "bare": other}), {"bare": other}),
    ]
    for make, handed in bots:
        straight, bot = make(), make()
        whole = play(straight, 0, 30)
        play(bot, 0, 20)
        back = pp.load(pp.save(bot, tmp_path / "p"), handed, WA)
        for one, two in zip(play(back, 20, 30), whole[20:], strict=True):
            assert_same(one, two)
    path = pp.save(bots[1][0](), tmp_path / "p")
    with pytest.raises(pp.errors.BundleError, match=r"a law of memory 'ar', but .* no memory"):
        pp.load(path, bare, WA)


SHAPES = {
    "weights": "state/weights",
    "past weights": "state/weights.past",
    "a step": "state/open.step 0.slope",
    "rows": "state/unit.0.0.0.rows",
    "memory": "state/unit.0.0.1.memory.cov",
    "past rewards": "state/unit.0.0.4.past",
    "theta": "state/theta",
}


@pytest.mark.parametrize("case", SHAPES)
def test_arrays_of_another_shape_are_refused(case, tmp_path):
    bot = team()
    play(bot, 0, 30)
    path = pp.save(bot, tmp_path / "p")
    manifest, arrays = read_sealed(path)
    arrays[SHAPES[case]] = arrays[SHAPES[case]][..., :-1]
    about = {n: v for n, v in manifest.items() if n in ("format", "kind", "thing")}
    write_sealed(path, about, arrays)
    with pytest.raises(pp.errors.BundleError, match=r"needed|must have shape"):
        pp.load(path, features=WA)


def test_all_kinds_of_members_are_here():
    assert {type(each).__name__ for each in team().scorer.members.values()} == {
        "Imputed",
        "Remembered",
        "Augmented",
        "RawLags",
    }
    assert len(everyone()) == 6
