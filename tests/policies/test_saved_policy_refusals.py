"""A saved policy handed something else back, or damaged, is refused in a sentence."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core import sealed
from tests.policies.helpers import w_features
from tests.policies.test_saved_policy import (
    CORRECTED,
    WA,
    Plan,
    assert_same,
    errors,
    law,
    play,
    ucb,
)

OTHER = pp.Features(lambda s, w, a: WA.fn(s, w, a) * [1.0, 1.0, 2.0], 2, WA.names)
NAMED = pp.Features(WA.fn, 2, ("1", "W", "other"))
SMALL, LESS = (
    pp.Features(lambda s, w, a, by=by: WA.fn(s, w, a) * by, 2, WA.names) for by in (1e-9, 2e-9)
)
BROKEN = pp.Features(lambda s, w, a: 1 / 0, 2, WA.names)
PLAIN, WITH = ucb(CORRECTED), lambda: ucb(CORRECTED, errors=errors())()
MISFITS = {
    "no Phi": (PLAIN, {}, "features=phi"),
    "Phi": (PLAIN, {"features": OTHER}, "Phi"),
    "Phi of small values": (ucb(CORRECTED, SMALL), {"features": LESS}, "Phi"),
    "Phi that fails": (PLAIN, {"features": BROKEN}, "division"),
    "names": (PLAIN, {"features": NAMED}, "other"),
    "arms": (PLAIN, {"features": w_features(1, actions=3)}, "actions 2"),
    "no features": (PLAIN, {"features": WA.fn}, "function"),
    "calibrated Phi": (WITH, {"features": OTHER}, "Phi"),
    "another law": (PLAIN, {"law": lambda: law("linear", 1, 1), "features": WA}, "law passed"),
    "another kind of law": (PLAIN, {"law": lambda: law("gp", 1), "features": WA}, "law passed"),
    "a law not fitted": (PLAIN, {"law": pp.linear_lags(3), "features": WA}, "law passed"),
    "no law": (PLAIN, {"law": "linear", "features": WA}, "str"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_refused(case, tmp_path):
    make, handed, says = MISFITS[case]
    if callable(handed.get("law")):
        handed = handed | {"law": handed["law"]()}
    bot = make()
    play(bot, Plan(), 0, 30)
    with pytest.raises(pp.errors.BundleError, match=says):
        pp.load(pp.save(bot, tmp_path / "p"), **handed)


@pytest.mark.parametrize(
    "handed", [lambda: pp.linear_lags(2), lambda: law("linear", 1)], ids=["law", "fitted"]
)
def test_the_law_may_be_handed_in_though_it_is_stored(handed, tmp_path):
    bot = WITH()
    play(bot, Plan(), 0, 30)
    back = pp.load(pp.save(bot, tmp_path / "p"), handed(), WA)
    assert_same(back.state, bot.state)
    assert back.core.errors.calibration.parts[0].law is back.law


def test_a_law_that_was_swapped_is_the_one_that_plays_on(tmp_path):
    """The calibration still speaks of the first one, which is stored with it."""
    bot, second = WITH(), law("linear", 1, 1)
    play(bot, Plan(), 0, 10)
    bot.swap_law(second)
    play(bot, Plan(), 10, 20)
    back = pp.load(pp.save(bot, tmp_path / "p"), features=WA)
    assert back.law.id == second.id != back.core.errors.calibration.law_id
    for one, two in zip(play(back, Plan(), 20, 40), play(bot, Plan(), 20, 40), strict=True):
        assert_same(one, two)


def test_a_policy_class_of_ones_own_is_not_saved(tmp_path):
    class Mine(pp.PulseUCB):
        pass

    with pytest.raises(pp.errors.BundleError, match="Mine"):
        pp.save(Mine(law("linear", 1), WA, CORRECTED), tmp_path / "p")
    assert not list(tmp_path.iterdir())


def cut(name):
    def damage(path):
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[: len(whole) // 2])

    return damage


def edit(path):
    text = (path / "manifest.json").read_text()
    assert '"issued": 20' in text
    (path / "manifest.json").write_text(text.replace('"issued": 20', '"issued": 21'))


def edit_arrays(path):
    with np.load(path / "arrays.npz") as old:
        arrays = {name: old[name] for name in old.files}
    arrays["state/theta"] = arrays["state/theta"] + 1e-9
    np.savez(path / "arrays.npz", **arrays)


DAMAGE = {
    "manifest cut": (cut("manifest.json"), "incomplete"),
    "arrays cut": (cut("arrays.npz"), "incomplete"),
    "manifest edited": (edit, "edited after saving"),
    "arrays edited": (edit_arrays, "edited after saving"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "does not hold a saved object"),
    "no arrays": (lambda path: (path / "arrays.npz").unlink(), "does not hold a saved object"),
    "no folder": (shutil.rmtree, "does not hold a saved object"),
    "no object": (lambda path: (path / "manifest.json").write_text("[1]"), "not written by save"),
    "empty": (lambda path: (path / "manifest.json").write_text(""), "incomplete"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_refused(case, tmp_path):
    damage, says = DAMAGE[case]
    bot = PLAIN()
    play(bot, Plan(), 0, 20)
    path = pp.save(bot, tmp_path / "p")
    damage(path)
    with pytest.raises(pp.errors.BundleError, match=f"load: .*{says}"):
        pp.load(path, features=WA)


@pytest.mark.parametrize("stop", [OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["write_bytes", "write_text", "rename"])
def test_a_save_that_fails_leaves_the_earlier_one_whole(at, stop, tmp_path, monkeypatch):
    bot = PLAIN()
    play(bot, Plan(), 0, 20)
    path = pp.save(bot, tmp_path / "p")
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
            pp.save(bot, path)
    assert {f.name: f.read_bytes() for f in path.iterdir()} == kept
    assert [f.name for f in tmp_path.iterdir()] == ["p"]
    back = pp.load(path, features=WA)
    assert back.state.rounds == 16
    pp.save(bot, path)
    assert_same(pp.load(path, features=WA).state, bot.state)


KILLED = """
import os, sys
from pathlib import Path
from pulse_pyro._core.sealed import write_sealed

path, last = sys.argv[1], int(sys.argv[2])
plain, calls = Path.rename, []

def rename(self, to):
    calls.append(to)
    if len(calls) == last:
        os._exit(9)  # as a kill does: nothing is caught, nothing tidied up
    return plain(self, to)

Path.rename = rename
write_sealed(path, {"kind": "note", "format": 1, "which": "new"}, {"a": [2.0]})
"""


@pytest.mark.parametrize(("last", "which"), [(1, "old"), (2, "old"), (3, "new")])
def test_a_kill_at_any_step_leaves_one_version_whole(last, which, tmp_path):
    """Before the earlier one is put aside, before the new one is there, before the earlier goes."""
    about = {"kind": "note", "format": 1}
    path = sealed.write_sealed(tmp_path / "n", {**about, "which": "old"}, {"a": [1.0]})
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(last)], check=False)
    assert done.returncode == 9
    manifest, arrays = sealed.read_sealed(path)
    assert (manifest["which"], arrays["a"][0]) == (which, 1.0 if which == "old" else 2.0)
    for value in (3.0, 4.0):  # and saving goes on as before
        sealed.write_sealed(path, {**about, "which": "next"}, {"a": [value]})
        assert sealed.read_sealed(path)[1]["a"][0] == value
        assert not (tmp_path / ".n.old").exists()


def test_a_folder_of_ones_own_is_not_deleted_for_its_name(tmp_path):
    (tmp_path / ".p.old").mkdir()
    (tmp_path / ".p.old" / "thesis.txt").write_text("mine")
    with pytest.raises(pp.errors.BundleError, match=r"\.p\.old exists and is not a saved policy"):
        pp.save(PLAIN(), tmp_path / "p")
    assert (tmp_path / ".p.old" / "thesis.txt").read_text() == "mine"
