import hashlib
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest

from pulse_pyro import Exact, Laplace, Law, linear_lags
from pulse_pyro._core import sealed
from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.saved import load, save
from pulse_pyro.data.summary import Identity, Lags, Stack, Window
from pulse_pyro.laws.conjugate import Conjugate, Flat
from tests.helpers import draws_at, linear_history, mean_at, mean_draws_at

HISTORY = linear_history(units=6, time=12, w_dim=2)[0]
ONE_W = linear_history(units=6, time=12)[0]
SPREAD = Window(3, lambda windows, axis: windows.max(axis) - windows.min(axis))


def custom(site="slope", width=1, parts=2, summary=None, change=lambda x: x[..., 0]):
    def model(x, w=None):
        slope = pyro.sample(site, dist.Normal(0.0, 1.0).expand([width]).to_event(1))
        with pyro.plate("part", parts, dim=-2):
            part = pyro.sample("part_effect", dist.Normal(0.0, 1.0))
        loc = slope.sum(-1) * change(x) + part.sum(-2)
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(loc.unsqueeze(-1), 0.5).to_event(1), obs=w)

    return Law(model, summary or Identity(), "mine")


@pytest.fixture(scope="module")
def linear():
    return linear_lags(3).fit(HISTORY, Exact(draws=20), seed=1)


@pytest.fixture(scope="module")
def mine():
    return custom().fit(ONE_W, Laplace(draws=20), seed=1)


def answers(law, s, rng=np.random.default_rng):
    return mean_at(law, s), draws_at(law, s, 30, rng=rng(3)), mean_draws_at(law, s, 30, rng=rng(4))


def assert_same(one, two, s):
    for before, after in zip(answers(one, s), answers(two, s), strict=True):
        np.testing.assert_array_equal(before, after)
    for name in ("record", "card", "units", "schema", "id"):
        assert getattr(one, name) == getattr(two, name), name
    assert (one.law.name, one.law.summary) == (two.law.name, two.law.summary)


NESTED = Stack(Identity(), Window(4, np.max), Stack(Lags(1, start=2)))
LAWS = [linear_lags(summary) for summary in (3, Lags(2, start=1), Window(3, np.mean), NESTED)]
LAWS += [linear_lags(2, prior=prior) for prior in (Flat(), Conjugate(slope=3.0, residual=0.7))]
LAWS += [linear_lags(2, noise="student_t")]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.summary} {law.family}")
def test_a_built_in_law_answers_as_before(law, tmp_path):
    fitted, s = law.fit(HISTORY, seed=1), HISTORY.grid.s.copy()
    s[1, 5] = np.nan
    assert_same(fitted, load(save(fitted, tmp_path / "new" / "law")), s)


def test_a_custom_law_answers_as_before_given_its_model(mine, tmp_path):
    path = save(mine, tmp_path / "law")
    with pytest.raises(BundleError, match="holds a custom model; pass the Law"):
        load(path)
    assert_same(mine, load(path, law=custom()), ONE_W.grid.s)


def test_a_custom_window_needs_its_law_again(tmp_path):
    law = linear_lags(Stack(Lags(1), SPREAD))
    fitted = law.fit(HISTORY, Exact(draws=20), seed=1)
    path = save(fitted, tmp_path / "law")
    with pytest.raises(BundleError, match="holds a custom summary"):
        load(path)
    with pytest.raises(BundleError, match="was made with law"):
        load(path, law=linear_lags(Stack(Lags(1), Window(4, SPREAD.fn))))
    assert_same(load(path, law=law), fitted, HISTORY.grid.s)


OTHERS = {
    "renamed site": (custom(site="gradient"), "gradient"),
    "wider site": (custom(width=3), r"\(3,"),
    "larger plate": (custom(parts=3), r"\(3,"),
    "other summary": (custom(summary=Lags(2)), "Lags"),
    "built-in": (linear_lags(Identity()), "linear_lags"),
    "bare function": (custom().model, "Law"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_law_that_does_not_match_is_refused(mine, tmp_path, other):
    law, culprit = OTHERS[other]
    with pytest.raises(BundleError, match=culprit):
        load(save(mine, tmp_path / "law"), law=law)


def test_a_model_of_positive_inputs_can_be_loaded(tmp_path):
    law = custom(summary=Lags(2), change=lambda x: x[..., 0].log() - x[..., 1].log())
    fitted = law.fit(replace(ONE_W, s=np.exp(ONE_W.s)), Laplace(draws=20), seed=1)
    assert load(save(fitted, tmp_path / "law"), law=law).id == fitted.id


@pytest.mark.parametrize(("count", "seed"), [(2, np.int64(1)), (np.int64(2), 1)])
def test_whole_numbers_of_numpy_are_saved_too(tmp_path, count, seed):
    fitted = linear_lags(Lags(count)).fit(HISTORY, Exact(draws=20), seed=seed)
    assert load(save(fitted, tmp_path / "law")).id == fitted.id


def test_a_bundle_is_plain_numbers_and_the_law_stays_as_it_was(linear, tmp_path):
    before = {name: value.copy() for name, value in linear.draws.items()}
    path = save(linear, tmp_path / "law")
    assert {file.name for file in path.iterdir()} == {"manifest.json", "arrays.npz"}
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        assert {arrays[name].dtype for name in arrays.files} == {np.dtype(np.float64)}
        for name, value in before.items():
            np.testing.assert_array_equal(arrays[f"draw.{name}"], value)
            np.testing.assert_array_equal(linear.draws[name], value)


def test_nothing_in_a_bundle_is_executed(linear, tmp_path):
    bomb = type("Bomb", (), {"__reduce__": lambda self: (os.mkdir, (str(tmp_path / "ran"),))})
    path = save(linear, tmp_path / "law")
    np.savez(path / "arrays.npz", **{"draw.coef": np.array([bomb()])})
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["arrays"] = hashlib.sha256((path / "arrays.npz").read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest | {"seal": sealed.seal(manifest)}))
    with pytest.raises(BundleError, match="cannot be read"):
        load(path)
    assert not (tmp_path / "ran").exists()


def test_an_older_law_is_replaced(linear, mine, tmp_path):
    save(mine, tmp_path / "law")
    assert load(save(linear, tmp_path / "law")).id == linear.id
    assert [file.name for file in tmp_path.iterdir()] == ["law"]


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_a_folder_that_is_not_a_law_is_left_alone(linear, tmp_path, name):
    (tmp_path / name).write_text('{"name": "my web page"}')
    with pytest.raises(BundleError, match="is not a saved law"):
        save(linear, tmp_path)
    assert (tmp_path / name).read_text() == '{"name": "my web page"}'


@pytest.mark.parametrize("step", ["write_bytes", "write_text", "rename"])
@pytest.mark.parametrize("name", ["old", "new"])
def test_a_failed_save_leaves_what_was_there(linear, mine, tmp_path, monkeypatch, step, name):
    real = os.rename

    def fail(*args):
        if step == "rename" and Path(args[1]) != tmp_path / name:
            return real(*args)
        monkeypatch.undo()
        raise OSError("no space left")

    save(mine, tmp_path / "old")
    for home, call in [(os, "rename"), (os, "replace")] if step == "rename" else [(Path, step)]:
        monkeypatch.setattr(home, call, fail)
    with pytest.raises((OSError, BundleError), match="no space left"):
        save(linear, tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert load(tmp_path / "old", law=custom()).id == mine.id


def shifted(old):
    arrays = dict(np.load(io.BytesIO(old)))
    np.savez(new := io.BytesIO(), **arrays | {"x_mean": arrays["x_mean"] + 1})
    return new.getvalue()


DAMAGE = {
    "no arrays": ("arrays.npz", None),
    "no manifest": ("manifest.json", None),
    "cut arrays": ("arrays.npz", lambda old: old[:-50]),
    "edited arrays": ("arrays.npz", shifted),
    "edited manifest": ("manifest.json", lambda old: old.replace(b'"u000"', b'"u999"')),
    "cut manifest": ("manifest.json", lambda old: old[:-50]),
    "binary manifest": ("manifest.json", lambda old: b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_bundle_is_refused(linear, tmp_path, damage):
    path, (name, change) = save(linear, tmp_path / "law"), DAMAGE[damage]
    old = (path / name).read_bytes()
    (path / name).write_bytes(change(old)) if change else (path / name).unlink()
    with pytest.raises(BundleError, match=name):
        load(path)
