"""save and load: the same for every kind, and what is not theirs is refused in one sentence."""

import json
import os
import subprocess
import sys
import time
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.saved import FORMAT, KINDS
from pulse_pyro._core.sealed import read_sealed, seal, write_sealed

WORLD = pp.envs.w_times_action()
PHI = WORLD.features
FILES = ("manifest.json", "arrays.npz")


@cache
def things():
    """One of each kind, and what load must be handed with it."""
    own, held_out = WORLD.archive(30, 30, rng=pp.stream(0, "archive")).split(seed=0)
    law = pp.linear_lags(3).fit(own, pp.Exact(50), seed=0)
    world = WORLD.world(runs=2, horizon=20, rng=pp.stream(0, "online"))
    run = pp.simulate(world, [pp.envs.oful(world), pp.envs.cond_oracle(world)])
    cross = pp.calibration.crossfit(pp.linear_lags(3), own, PHI, seed=0, band="linear")
    return {
        "law": (law, {}),
        "step_law": _step_law(),
        "average_law": (cross.law, {}),
        "repaired_law": (pp.calibration.repair(law, held_out, ["forecast"], seed=0).law, {}),
        "calibration": (pp.calibrate(law, held_out, PHI, seed=0, band="linear"), {"features": PHI}),
        "diagnostics": (pp.diagnose(law, held_out, archive=own, seed=0), {}),
        "policy": (pp.PulseUCB(law, PHI, pp.constant(1.0)), {"features": PHI}),
        "run": (run, {}),
        "design": (_design(), {}),
    }


def _step_law():
    """A level that W and the S of the archive tell of."""
    import pyro
    import pyro.distributions as dist

    def prior():
        return pyro.sample("sd", dist.LogNormal(0.0, 1.0))

    def first(p):
        pyro.sample("z", dist.Normal(0.0, 1.0))

    def step(p, z, s_past):
        z = pyro.sample("z", dist.Normal(0.8 * z, 0.5))
        for name in ("s", "w"):
            pyro.sample(name, dist.Normal(z, p))

    law = pp.StepLaw(prior, first, step)
    archive = WORLD.archive(4, 30, rng=pp.stream(0, "archive"))
    return law.fit(archive, pp.Laplace(10), seed=0), {"law": law}


def _design():
    settings = pp.study.DesignSettings(
        ("oful",), constants=(), scenarios=pp.study.SCENARIOS[:1], runs=2, workers=1
    )
    return pp.design(
        WORLD.archive(30, 30, rng=pp.stream(0, "archive")),
        pp.linear_lags(3),
        PHI,
        stakes=pp.calibration.Stakes(horizon=20, sigma=0.2),
        settings=settings,
        seed=0,
    )


def test_every_kind_is_tried_here():
    assert set(things()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thing_comes_back_as_what_it_was(kind, tmp_path):
    thing, handed = things()[kind]
    path = pp.save(thing, tmp_path / "new" / "thing")
    assert path == tmp_path / "new" / "thing"
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    assert [file.name for file in path.parent.iterdir()] == ["thing"]
    back = pp.load(str(path), **handed)
    assert type(back) is type(thing)
    assert repr(back) == repr(thing)


def test_diagnostics_keep_checks_scores_and_evidence(tmp_path):
    found = things()["diagnostics"][0]
    back = pp.load(pp.save(found, tmp_path / "d"))
    assert back.checks == found.checks
    assert back.table.equals(found.table)
    assert back.scores.equals(found.scores)
    for name in ("w", "mean", "pit"):
        assert_array_equal(getattr(back.evidence, name), getattr(found.evidence, name))
    assert back.plot().axes[0].get_title() == found.plot().axes[0].get_title()


def test_diagnostics_of_contexts_carry_no_evidence(tmp_path):
    made = WORLD.archive(20, 25, rng=pp.stream(0, "archive"))
    found = pp.Domain.of(made, pp.Lags(2)).check(made.s[:3])
    back = pp.load(pp.save(found, tmp_path / "d"))
    assert back.checks == found.checks
    assert back.evidence is None


def test_a_run_keeps_actions_and_regret(tmp_path):
    run = things()["run"][0]
    back = pp.load(pp.save(run, tmp_path / "r"))
    assert back.names == run.names
    assert back.action.dtype == run.action.dtype
    for name in ("action", "regret", "regret_cond", "info_gap"):
        assert_array_equal(getattr(back, name), getattr(run, name))
    assert back.table.equals(run.table)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_any_file_is_noticed(kind, file, tmp_path):
    thing, handed = things()[kind]
    path = pp.save(thing, tmp_path / "thing")
    whole = (path / file).read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:-40], flipped, b"", b"\xff\xfe\x00", b"[1]", b"{}"):
        (path / file).write_bytes(damaged)
        with pytest.raises(pp.errors.BundleError, match=rf"load: .*{file}"):
            pp.load(path, **handed)
    (path / file).unlink()
    with pytest.raises(pp.errors.BundleError, match=rf"does not hold a saved object.*{file}"):
        pp.load(path, **handed)
    (path / file).write_bytes(whole)
    assert type(pp.load(path, **handed)) is type(thing)


def reseal(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text()) | changes
    (path / "manifest.json").write_text(json.dumps(manifest | {"seal": seal(manifest)}))


@pytest.mark.parametrize("kind", KINDS)
def test_another_version_and_another_kind_say_so(kind, tmp_path):
    thing, handed = things()[kind]
    path = pp.save(thing, tmp_path / "thing")
    reseal(path, format=FORMAT + 1)
    with pytest.raises(pp.errors.BundleError, match=f"{kind} of format {FORMAT + 1}.*{FORMAT}"):
        pp.load(path, **handed)
    reseal(path, format=FORMAT, kind="committee")
    with pytest.raises(pp.errors.BundleError, match="'committee', which this version does not"):
        pp.load(path, **handed)
    other = "run" if kind != "run" else "diagnostics"
    reseal(path, kind=other)
    with pytest.raises(pp.errors.BundleError):
        pp.load(path)
    (path / "manifest.json").write_text("{}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_lacks_something_is_refused(kind, tmp_path):
    """Sealed again, as nobody does by accident: still one sentence, never a KeyError."""
    thing, handed = things()[kind]
    path = pp.save(thing, tmp_path / "thing")
    manifest, arrays = read_sealed(path)
    about = {name: manifest[name] for name in ("kind", "format")}
    for name in manifest["thing"]:
        left = {key: value for key, value in manifest["thing"].items() if key != name}
        write_sealed(path, {**about, "thing": left}, arrays)
        with pytest.raises(pp.errors.BundleError, match="load: "):
            pp.load(path, **handed)
    write_sealed(path, {**about, "thing": manifest["thing"]}, {})
    with pytest.raises(pp.errors.BundleError, match="load: "):
        pp.load(path, **handed)


def test_a_thing_is_saved_over_one_of_its_own_kind_alone(tmp_path):
    path = pp.save(things()["law"][0], tmp_path / "thing")
    pp.save(things()["law"][0], path)
    with pytest.raises(pp.errors.BundleError, match="not a saved run but a saved law"):
        pp.save(things()["run"][0], path)
    assert isinstance(pp.load(path), pp.laws.PosteriorLaw)


@pytest.mark.parametrize(
    ("thing", "says"), [(pp.linear_lags(3), "fit it first"), (PHI, "Features"), (3, "int")]
)
def test_what_cannot_be_saved_is_named(thing, says, tmp_path):
    with pytest.raises(pp.errors.BundleError, match=f"save: .*{says}"):
        pp.save(thing, tmp_path / "thing")
    assert not list(tmp_path.iterdir())


def test_a_class_of_the_same_name_elsewhere_is_not_ours(tmp_path):
    with pytest.raises(pp.errors.BundleError, match="Run"):
        pp.save(type("Run", (), {})(), tmp_path / "thing")


def test_arguments_in_the_wrong_order_are_named(tmp_path):
    law = things()["law"][0]
    with pytest.raises(pp.errors.BundleError, match="path must be text"):
        pp.save(tmp_path / "law", law)
    with pytest.raises(pp.errors.BundleError, match="path must be text"):
        pp.load(law, tmp_path / "law")


@pytest.mark.parametrize(
    ("kind", "handed"),
    [("run", {"law": 1}), ("diagnostics", {"features": PHI}), ("law", {"features": PHI})],
)
def test_what_is_of_no_use_is_not_taken(kind, handed, tmp_path):
    with pytest.raises(pp.errors.BundleError, match=f"{next(iter(handed))}= is not needed"):
        pp.load(pp.save(things()[kind][0], tmp_path / "thing"), **handed)


def test_a_folder_or_file_of_ones_own_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(pp.errors.BundleError, match="exists and is not a saved law"):
            pp.save(things()["law"][0], path)
        with pytest.raises(pp.errors.BundleError, match="does not hold a saved object"):
            pp.load(path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_temporary_folders_of_saves_that_died_are_swept_fresh_ones_and_others_not(tmp_path):
    names = (".law.saving.abc", ".law.saving.fresh", ".law.mine", ".other.saving.abc")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.npz").write_text("half")
        if "fresh" not in name:
            os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    pp.save(things()["law"][0], tmp_path / "law")
    assert {file.name for file in tmp_path.iterdir()} == {*names[1:], "law"}


def test_the_order_of_memory_survives(tmp_path):
    """Sums over an array are rounded by it."""
    made = np.arange(24.0).reshape(2, 3, 4)
    orders = [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)]
    arrays = {str(i): np.transpose(made, order) for i, order in enumerate(orders)}
    path = write_sealed(tmp_path / "n", {"kind": "note", "format": 1}, arrays)
    for name, back in read_sealed(path)[1].items():
        assert_array_equal(back, arrays[name])
        assert back.strides == arrays[name].strides


def test_what_needs_only_numbers_loads_no_torch(tmp_path):
    numbers = [kind for kind in KINDS if kind != "step_law"]  # which is a program
    paths = {kind: str(pp.save(things()[kind][0], tmp_path / kind)) for kind in numbers}
    code = f"""
import sys
import pulse_pyro as pp
phi = pp.envs.w_times_action().features
for kind, path in {paths!r}.items():
    pp.load(path, **({{"features": phi}} if kind in ("policy", "calibration") else {{}}))
print([name for name in ("torch", "pyro", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
