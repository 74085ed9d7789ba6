"""A saved policy that does not fit, or is damaged, is refused in a sentence; nothing changes."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro import sealed
from tests.streaming_worlds import archive, w_features
from tests.test_saved_policy import (
    CORRECTED,
    WA,
    Plan,
    adaptive,
    assert_same,
    errors,
    growing,
    grown,
    law,
    play,
    ucb,
)

OTHER = pp.Features(lambda s, w, a: WA.fn(s, w, a) * [1.0, 1.0, 2.0], 2, WA.names)
NAMED = pp.Features(WA.fn, 2, ("1", "W", "other"))
SMALL, LESS = (
    pp.Features(lambda s, w, a, by=by: WA.fn(s, w, a) * by, 2, WA.names) for by in (1e-9, 2e-9)
)
MORE_ARMS = w_features(1, actions=3)


def other_law():
    return pp.PulseUCB(law("linear", 1, 1), WA, CORRECTED)


def few():
    return pp.directions(law("gp", 1), archive().s, most=2)


PLAIN, WITH, ADAPT = ucb(CORRECTED), lambda: ucb(CORRECTED, errors=errors())(), adaptive("gp")
GROWN = grown()
MISFITS = {
    "law": (PLAIN, other_law, "law_id"),
    "Phi": (PLAIN, ucb(CORRECTED, OTHER), "Phi"),
    "Phi of small values": (ucb(CORRECTED, SMALL), ucb(CORRECTED, LESS), "Phi"),
    "names": (PLAIN, ucb(CORRECTED, NAMED), "features"),
    "arms": (PLAIN, ucb(CORRECTED, MORE_ARMS), "actions"),
    "radius": (PLAIN, ucb(pp.corrected(sigma=0.5, theta_bound=2.0)), "radius"),
    "kind of radius": (PLAIN, ucb(pp.constant(1.0)), "radius"),
    "refinement": (PLAIN, ucb(CORRECTED.refined()), "radius"),
    "ridge": (PLAIN, ucb(CORRECTED, ridge=2.0), "ridge"),
    "draws": (PLAIN, ucb(CORRECTED, size=16), "scorer"),
    "policy": (PLAIN, adaptive(), "policy"),
    "no errors": (WITH, PLAIN, "errors"),
    "errors": (PLAIN, WITH, "errors"),
    "kind of errors": (
        WITH, lambda: ucb(CORRECTED, errors=errors(pp.SensitiveErrors))(), "errors"),
    "calibration": (WITH, lambda: ucb(CORRECTED, errors=errors(seed=1))(), "errors"),
    "bound of errors": (
        WITH,
        lambda: ucb(CORRECTED, errors=pp.CalibratedErrors(errors().calibration, 3.0))(),
        "errors"),
    "directions": (ADAPT, adaptive("gp", found=few), "features|scorer"),
    "seed of directions": (ADAPT, adaptive("gp", seed=1), "features|scorer"),
    "bound of directions": (ADAPT, adaptive("gp", theta_bound=3.0), "scorer"),
    "no archive": (GROWN, ucb(pp.constant(1.0)), "archive"),
    "every": (GROWN, grown(every=8), "archive"),
    "seed of refits": (GROWN, grown(seed=1), "archive|seed|law"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_a_policy_made_otherwise_is_refused_and_left_as_it_was(case, tmp_path):
    make, other, says = MISFITS[case]
    bot, reveal = make(), make is GROWN
    play(bot, Plan(reveal=reveal), 0, 30)
    path = pp.save_policy(bot, tmp_path / "p")
    target, arms = other(), 3 if case == "arms" else 2
    with pytest.raises(pp.BundleError, match=says):
        pp.load_policy(path, target)
    assert target.pending == ()
    fresh, plan = other(), Plan(arms=arms, reveal=target.archive is not None)
    assert_same(target.state, fresh.state)
    for one, two in zip(play(target, plan, 0, 12), play(fresh, plan, 0, 12), strict=True):
        assert_same(one, two)


@pytest.mark.parametrize("used", ["acted", "observed", "no policy"])
def test_only_a_fresh_policy_takes_over(used, tmp_path):
    path = pp.save_policy(PLAIN(), tmp_path / "p")
    target = PLAIN()
    if used == "acted":
        target.learn(target.act([1.0, -90.0]), 1.0)
    elif used == "observed":
        target.observe([1.0, -90.0])
    before = target.state
    with pytest.raises(pp.BundleError, match="fresh policy"):
        pp.load_policy(path, law("linear", 1) if used == "no policy" else target)
    assert_same(target.state, before)


def test_an_archive_that_has_seen_something_is_not_fresh(tmp_path):
    """Its rows would mix with those that were saved."""
    bot = GROWN()
    play(bot, Plan(reveal=True), 0, 30)
    path = pp.save_policy(bot, tmp_path / "p")
    kept = growing()
    kept.reveal("z", kept.see("z", np.array([1.0, -90.0])), np.array([0.2]))
    target = pp.PulseUCB(law("linear", 1), WA, pp.constant(1.0), archive=kept)
    with pytest.raises(pp.BundleError):
        pp.load_policy(path, target)


def reseal(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text()) | changes
    manifest["seal"] = sealed.seal(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def cut(name):
    def damage(path):
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[: len(whole) // 2])

    return damage


def edit(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"issued": 20', '"issued": 21'))


def edit_arrays(path):
    with np.load(path / "arrays.npz") as old:
        arrays = {name: old[name] for name in old.files}
    arrays["theta"] = arrays["theta"] + 1e-9
    np.savez(path / "arrays.npz", **arrays)


def as_law(path):
    shutil.rmtree(path)
    pp.save_law(law("linear", 1), path)


DAMAGE = {
    "manifest cut": (cut("manifest.json"), "cut short"),
    "arrays cut": (cut("arrays.npz"), "cut short"),
    "manifest edited": (edit, "edited after saving"),
    "arrays edited": (edit_arrays, "edited after saving"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "not a saved policy"),
    "no arrays": (lambda path: (path / "arrays.npz").unlink(), "not a saved policy"),
    "no folder": (shutil.rmtree, "not a saved policy"),
    "a law": (as_law, "holds a saved law"),
    "newer": (lambda path: reseal(path, format=3), "format 3, this version reads 2"),
    "no object": (lambda path: (path / "manifest.json").write_text("[1]"), "not ours"),
    "empty": (lambda path: (path / "manifest.json").write_text(""), "cut short or not ours"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_refused(case, tmp_path):
    damage, says = DAMAGE[case]
    bot = PLAIN()
    play(bot, Plan(), 0, 20)
    path = pp.save_policy(bot, tmp_path / "p")
    damage(path)
    target = PLAIN()
    with pytest.raises(pp.BundleError, match=f"load_policy: .*{says}"):
        pp.load_policy(path, target)
    assert_same(target.state, PLAIN().state)


def test_a_law_is_not_loaded_from_a_policy_nor_saved_over_one(tmp_path):
    path = pp.save_policy(PLAIN(), tmp_path / "p")
    with pytest.raises(pp.BundleError, match=r"load_law: .*saved policy"):
        pp.load_law(path)
    with pytest.raises(pp.BundleError, match="not a saved law"):
        pp.save_law(law("linear", 1), path)
    kept = pp.save_law(law("linear", 1), tmp_path / "law")
    with pytest.raises(pp.BundleError, match="not a saved policy"):
        pp.save_policy(PLAIN(), kept)
    assert pp.load_law(kept).law_id == law("linear", 1).law_id


def test_what_is_no_policy_cannot_be_saved(tmp_path):
    with pytest.raises(pp.BundleError, match="PulseUCB was expected"):
        pp.save_policy(law("linear", 1), tmp_path / "p")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop", [OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["write_bytes", "write_text", "rename"])
def test_a_save_that_fails_leaves_the_earlier_one_whole(at, stop, tmp_path, monkeypatch):
    bot = PLAIN()
    play(bot, Plan(), 0, 20)
    path = pp.save_policy(bot, tmp_path / "p")
    kept = {f.name: f.read_bytes() for f in path.iterdir()}
    play(bot, Plan(), 20, 25)
    plain, calls = getattr(sealed.Path, at), []

    def broken(self, *args, **more):
        calls.append(self)
        if at != "rename" or len(calls) == 2:  # the old one is aside, the new one comes
            raise stop("disk full")
        return plain(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(sealed.Path, at, broken)
        with pytest.raises(stop, match="disk full"):
            pp.save_policy(bot, path)
    assert {f.name: f.read_bytes() for f in path.iterdir()} == kept
    assert [f.name for f in tmp_path.iterdir()] == ["p"]
    back = pp.load_policy(path, PLAIN())
    assert back.state.rounds == 16
    pp.save_policy(bot, path)
    assert_same(pp.load_policy(path, PLAIN()).state, bot.state)


KILLED = """
import os, sys
from pathlib import Path
from pulse_pyro.sealed import write_sealed

path, last = sys.argv[1], int(sys.argv[2])
plain, calls = Path.rename, []

def rename(self, to):
    calls.append(to)
    if len(calls) == last:
        os._exit(9)  # as a kill does: nothing is caught, nothing tidied up
    return plain(self, to)

Path.rename = rename
write_sealed(path, "note", {"law_id": "", "format": 1, "which": "new"}, {"a": [2.0]})
"""


@pytest.mark.parametrize(("last", "which"), [(1, "old"), (2, "old"), (3, "new")])
def test_a_kill_at_any_step_leaves_one_version_whole(last, which, tmp_path):
    """Before the earlier one is put aside, before the new one is there, before the earlier goes."""
    about = {"law_id": "", "format": 1}
    path = sealed.write_sealed(tmp_path / "n", "note", {**about, "which": "old"}, {"a": [1.0]})
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(last)], check=False)
    assert done.returncode == 9
    manifest, arrays = sealed.read_sealed(path, "note", 1)
    assert (manifest["which"], arrays["a"][0]) == (which, 1.0 if which == "old" else 2.0)
    for value in (3.0, 4.0):  # and saving goes on as before
        sealed.write_sealed(path, "note", {**about, "which": "next"}, {"a": [value]})
        assert sealed.read_sealed(path, "note", 1)[1]["a"][0] == value
        assert not (tmp_path / ".n.old").exists()


def test_a_folder_of_ones_own_is_not_deleted_for_its_name(tmp_path):
    (tmp_path / ".p.old").mkdir()
    (tmp_path / ".p.old" / "thesis.txt").write_text("mine")
    with pytest.raises(pp.BundleError, match=r"\.p\.old exists and is not a saved policy"):
        pp.save_policy(PLAIN(), tmp_path / "p")
    assert (tmp_path / ".p.old" / "thesis.txt").read_text() == "mine"
