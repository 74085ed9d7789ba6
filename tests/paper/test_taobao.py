"""Taobao's clicks from files to curves: the same every time, nothing unseen leaks."""

import json

import numpy as np
import pytest

from pulse_pyro._core.errors import DataError, PulseError
from pulse_pyro.cli import main
from pulse_pyro.envs.candidates import play_candidates
from pulse_pyro.paper.taobao import agent_features, fit_mean_network, run_taobao
from tests.paper.helpers import write_taobao

AGENTS = (
    "oful",
    "oful_wide",
    "pulse",
    "oful_full",
    "oful_paper",
    "pulse_paper",
    "oful_full_paper",
    "random",
)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_taobao(tmp_path_factory.mktemp("taobao"), 14_000)


@pytest.fixture(scope="module")
def found(raw, tmp_path_factory):
    return run_taobao(raw, out=tmp_path_factory.mktemp("out"), seeds=2, rounds=300, epochs=2)


def plain(run):
    return {key: value for key, value in run.to_json().items() if key != "seconds"}


def test_the_result_says_what_was_done(found):
    assert found.names == AGENTS
    assert found.clicks.shape == (8, 2, 300)
    assert list(found.table.index) == list(AGENTS)
    assert found.table.loc["oful", "gain_over_oful"] == 0.0
    assert len(repr(found).splitlines()) <= 12
    assert "highest click rate" in repr(found)
    assert "<table" in found._repr_html_()
    at, rate = found.curve("pulse")
    assert at[-1] == 300
    np.testing.assert_allclose(rate[:, -1], found.of("pulse").mean(1))
    written = found.to_json()["curves"]["pulse"]
    assert written["ctr"][-1] == pytest.approx(found.table.loc["pulse", "ctr"], abs=1e-6)
    assert written["se"][-1] == pytest.approx(found.table.loc["pulse", "se"], abs=1e-6)
    assert set(found.seconds) == {"read", "autoencoder", "law", "play"}
    assert [line.get_label() for line in found.plot().get_lines()] == list(AGENTS)
    with pytest.raises(PulseError, match="did you mean 'pulse'"):
        found.of("puls")


def test_the_same_seed_gives_the_same_run_and_another_another(raw, found, tmp_path):
    again = run_taobao(raw, out=tmp_path, seeds=2, rounds=300, epochs=2)
    assert plain(again) == plain(found)
    svg = (tmp_path / "taobao.svg").read_text()
    one = run_taobao(raw, out=tmp_path, seeds=1, rounds=300, epochs=2)
    np.testing.assert_array_equal(one.clicks[:, 0], found.clicks[:, 0])  # runs stand alone
    assert one.table["se"].isna().all()
    assert one.to_json()["rows"][0]["se"] is None
    assert one.to_json()["curves"]["oful"]["se"] is None
    assert (tmp_path / "taobao.svg").read_text() != svg
    other = run_taobao(raw, out=tmp_path, seeds=2, rounds=300, epochs=2, seed=1)
    assert (other.clicks != found.clicks).any()


def test_the_horizon_is_the_online_displays_less_the_candidates(raw, tmp_path):
    run = run_taobao(raw, out=tmp_path, seeds=1, epochs=1)
    kept = run.counts["kept"]
    assert run.clicks.shape[-1] == kept - round(0.2 * kept) - 20


def test_what_is_not_seen_online_does_not_reach_oful_and_pulse():
    rng = np.random.default_rng(0)
    z, pays = rng.normal(size=(500, 32)), (rng.random(500) < 0.3).astype(float)
    law = fit_mean_network(z[:100, :16], z[:100, 16:], epochs=2, seed=0)
    s, w = z[100:, :16], z[100:, 16:]
    before, after = (
        play_candidates(agent_features(law, s, seen, seed=0), pays[100:], rounds=300, seed=0)
        for seen in (w, 5.0 - 3.0 * w)
    )
    full = {"oful_full", "oful_full_paper"}
    assert full < set(before)
    for name in before:
        assert (before[name] != after[name]).any() == (name in full)


def test_pulse_closes_the_gap_where_the_unseen_half_pays_and_can_be_imputed():
    rng = np.random.default_rng(1)
    s = rng.normal(size=(8000, 2))
    w = np.sin(2.5 * s) * np.sqrt(2.0)  # hardly correlated with s, and a function of it
    pays = (rng.random(8000) < 1 / (1 + np.exp(3.0 - 2.0 * w[:, 0]))).astype(float)
    law = fit_mean_network(s[:2000], w[:2000], epochs=30, seed=0)
    tables = agent_features(law, s[2000:], w[2000:], seed=0)
    picks = play_candidates(tables, pays[2000:], rounds=2000, seed=0)
    rate = {name: pays[2000:][at].mean() for name, at in picks.items()}
    assert rate["oful_full"] > rate["oful"] + 0.08  # 5 standard errors of a difference
    assert rate["pulse"] > rate["oful"] + 0.08
    assert abs(rate["pulse"] - rate["oful_full"]) < 0.08


def test_the_mean_network_learns_and_gives_a_mean_for_each_row():
    rng = np.random.default_rng(2)
    s = rng.normal(size=(3000, 3))
    w = np.column_stack([np.abs(s[:, 0]), s[:, 1] * s[:, 2]])
    law = fit_mean_network(s[:2000], w[:2000], epochs=40, seed=0)
    guess = law(s[2000:])
    assert guess.shape == (1000, 2)
    left = ((guess - w[2000:]) ** 2).mean(0) / w[2000:].var(0)
    assert (left < 0.15).all()
    assert law.losses[-1] < 0.1 * law.losses[0]
    again = fit_mean_network(s[:2000], w[:2000], epochs=40, seed=0)
    np.testing.assert_array_equal(again(s[:1]), law(s[:1]))


@pytest.mark.parametrize(
    "rows",
    [
        (np.ones((3, 2)), np.ones((2, 2))),
        (np.ones(3), np.ones(3)),
        (np.full((3, 1), np.nan), np.ones((3, 1))),
    ],
)
def test_the_mean_network_refuses_rows_it_cannot_use(rows):
    with pytest.raises(DataError, match="fit_mean_network: s and w must be"):
        fit_mean_network(*rows, seed=0)


def test_the_autoencoder_learns_as_far_as_its_rate_lets_it(monkeypatch):
    from pulse_pyro._pyro import networks

    rng = np.random.default_rng(3)
    rows = np.eye(40, dtype=np.uint8)[rng.integers(0, 40, 700)]
    short, long = (networks.embed(rows, epochs=n, seed=0) for n in (1, 400))
    assert long.values.shape == (700, 32)
    assert long.losses[-1] < long.losses[0]
    assert long.unexplained > 1.0  # 400 steps of 1e-5 are too few, and it says so
    np.testing.assert_array_equal(networks.embed(rows, epochs=1, seed=0).values, short.values)
    assert not np.array_equal(networks.embed(rows, epochs=1, seed=1).values, short.values)
    monkeypatch.setattr(networks, "CODE_RATE", 1e-2)
    assert networks.embed(rows, epochs=400, seed=0).unexplained < 0.3  # 8 of 40 dimensions


def test_a_large_epoch_has_no_batch_too_small_to_normalise():
    from pulse_pyro._pyro import networks

    rows = np.eye(33, dtype=np.uint8)[np.arange(networks.CODE_BATCH + 1) % 33]
    assert np.isfinite(networks.embed(rows, epochs=1, seed=0).values).all()


def test_the_neural_law_plays_too(raw, tmp_path):
    run = run_taobao(raw, out=tmp_path, law="neural", seeds=1, rounds=100, epochs=1)
    assert run.law == "neural"
    assert np.isfinite(run.imputed).all()


def test_the_verb_writes_what_it_prints(raw, tmp_path, capsys):
    asked = ["taobao", "--raw", str(raw), "--seeds", "2", "--rounds", "50", "--epochs", "1"]
    assert main([*asked, "--out", str(tmp_path), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == json.loads((tmp_path / "taobao.json").read_text())
    assert told.err.startswith("written: ")
    assert "<svg" in (tmp_path / "taobao.svg").read_text()
    assert main([*asked, "--out", str(tmp_path)]) == 0
    assert "highest click rate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (["--raw", "nowhere"], "raw_sample.csv does not exist"),
        (["--seeds", "0"], "taobao: seeds must be"),
        (["--rounds", "0"], "taobao: rounds must be"),
        (["--epochs", "0"], "taobao: epochs must be"),
        (["--seed", "-1"], "seed must be"),
    ],
)
def test_bad_arguments_are_one_sentence(raw, tmp_path, capsys, argument, words):
    assert main(["taobao", "--raw", str(raw), "--out", str(tmp_path), *argument]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_too_few_displays_and_an_unknown_law_are_told(raw, tmp_path):
    few = write_taobao(tmp_path / "few", 300)
    with pytest.raises(DataError, match="at least 200 are needed"):
        run_taobao(few, out=tmp_path / "out", seeds=1)
    with pytest.raises(PulseError, match="did you mean 'mlp'"):
        run_taobao(raw, out=tmp_path / "out", law="mlpp")
