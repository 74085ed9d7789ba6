"""Which policy for this trial: environments from an archive, candidates in them, a choice."""

import json
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.envs import POLICIES
from pulse_pyro.envs.policy_setup import make_oful
from pulse_pyro.policies.guard import Series
from pulse_pyro.study import design as designs
from pulse_pyro.study.design import Design, DesignSettings, design_study, pilot_posterior
from pulse_pyro.study.rehearsal import Candidate, patient
from pulse_pyro.study.scenarios import SCENARIOS, Scenario, Truths, moved_contexts
from pulse_pyro.study.worlds import residual_paths
from tests.helpers import assert_mean, linear_history
from tests.study.helpers import edit, write_study

PHI = pp.terms(["1", "s", "w0", "w0*a"], 2, observed=["s"], missing=["w0"])
STAKES = Stakes(horizon=60, sigma=0.2, theta_bound=1.1)
KNOWN = {"pulse", "oful", "oful_full", "pulse_calibrated"}  # older than this file


def small(**changes):
    names = tuple(name for name in POLICIES if name in KNOWN)
    return DesignSettings(**({"candidates": names, "runs": 3, "workers": 1} | changes))


def history(**changes):
    return linear_history(**({"units": 24, "time": 20} | changes))[0]


@pytest.fixture(scope="module")
def found():
    return pp.design(history(), pp.linear_lags(3), PHI, stakes=STAKES, settings=small(), seed=0)


def test_everyone_plays_where_they_can(found):
    tried = {scenario.name for scenario in found.scenarios}
    assert {s.name for s in SCENARIOS if not s.memory} == tried  # this archive has no memory
    assert found.regret.shape == (len(found.candidates), len(tried), 3)
    late = [scenario.late > 0 for scenario in found.scenarios]
    i = found.names.index("pulse_calibrated")  # its radius takes rewards in order
    assert (np.isnan(found.regret[i]).all(1) == late).all()
    assert any("pulse_calibrated in 'rewards five" in why for why in found.left_out)
    others = np.delete(found.regret, i, axis=0)
    assert np.isfinite(others).all()
    shares = np.delete(found.arms, i, axis=0).sum(-1)
    np.testing.assert_allclose(shares, 1.0)


def test_the_one_that_sees_w_is_apart(found):
    i = found.names.index("oful_full")
    assert found.candidates[i].ceiling
    assert i not in found.rivals
    assert "oful_full" not in found.ratios.index
    assert "oful_full" in set(found.table["candidate"])


def test_ratios_are_to_the_best_there(found):
    ratios = found.ratios
    np.testing.assert_allclose(ratios.min(), 1.0)
    assert found.ranking.index[0] == found.names[int(np.nanargmin(found.worst))]
    assert found.recommended in ratios.index
    assert found.ranking.loc["oful", "worst ratio"] > 2  # W decides the arm, and oful leaves it out


def test_what_is_said_fits_on_a_screen_and_into_json(found):
    assert len(repr(found).splitlines()) <= 24
    assert found.recommendation in repr(found)
    assert "simulated from the archive" in found.recommendation
    values = json.loads(json.dumps(found.to_json(), allow_nan=True))
    assert values["recommended"] == found.recommended
    assert len(values["table"]) == len(found.table)
    drawn = {text.get_text() for text in found.plot().texts}
    assert "1.0" in drawn


def test_saved_and_loaded_it_says_the_same(found, tmp_path):
    again = pp.load(pp.save(found, tmp_path / "design"))
    assert again.recommendation == found.recommendation
    assert again.table.equals(found.table)


def test_the_same_seed_gives_the_same_figures_in_another_process(found, monkeypatch):
    """A job goes to workers as bytes: what they read is what was sent, law or no law."""
    sent = []
    monkeypatch.setattr(
        designs,
        "in_order",
        lambda run, jobs, engine: (
            run(cloudpickle.loads(sent.append(cloudpickle.dumps(job)) or sent[-1])) for job in jobs
        ),
    )
    one = small(scenarios=SCENARIOS[:1])
    again = pp.design(history(), pp.linear_lags(3), PHI, stakes=STAKES, settings=one, seed=0)
    np.testing.assert_array_equal(again.regret[:, 0], found.regret[:, 0])
    assert max(map(len, sent)) < 20e6


def test_a_policy_that_is_registered_takes_part(monkeypatch):
    def idle(setup):
        """Never do anything."""
        agent = make_oful(setup)
        nothing = np.zeros(agent.x.shape[:2], np.int64)
        return replace(patient(agent, 0.2), name="idle", advisor=nothing)

    monkeypatch.setitem(POLICIES, "idle", idle)
    settings = small(candidates=("idle",), constants=(0.5,), scenarios=SCENARIOS[:2], runs=4)
    stakes = replace(STAKES, horizon=200)
    made = pp.design(history(), pp.linear_lags(3), PHI, stakes=stakes, settings=settings, seed=0)
    assert made.recommended == "constant 0.5 sigma"
    assert made.candidates[0].about == "Never do anything."
    assert (made.arms[0, :, 0] == 1.0).all()


def test_effects_scale_theta_and_nothing_else():
    """Twice the effect is exactly twice what playing at random costs."""
    twice = (Scenario("as stated"), Scenario("twice", effect=2.0))
    settings = small(candidates=("oful",), constants=(), scenarios=twice)
    made = pp.design(history(), pp.linear_lags(3), PHI, stakes=STAKES, settings=settings, seed=0)
    np.testing.assert_allclose(made.random[1], 2 * made.random[0])
    np.testing.assert_allclose(made.info_gap[1], 2 * made.info_gap[0])


# Pieces of environments.


def test_only_numbers_are_moved():
    archive = history()
    s = np.column_stack([archive.s[:, 0], np.arange(len(archive.s)) % 2])
    schema = pp.Schema.of(("s", "weekend"), ("w0",))
    both = replace(archive, s=s, schema=schema)
    away = moved_contexts(both, Scenario("moved", spread=1.5, shift=1.0))
    np.testing.assert_array_equal(away.s[:, 1], s[:, 1])
    np.testing.assert_allclose(away.s[:, 0].std(), 1.5 * s[:, 0].std())
    np.testing.assert_allclose(away.s[:, 0].mean(), s[:, 0].mean() + s[:, 0].std())
    flags = replace(both, s=s[:, 1:], schema=pp.Schema.of(("weekend",), ("w0",)))
    with pytest.raises(pp.errors.DataError, match="none can be moved"):
        moved_contexts(flags, Scenario("moved", shift=1.0))


def test_residual_paths_have_the_memory_they_should():
    memory = pp.laws.Memory(
        kind="level+ar",
        keep=np.array([1.0, 0.8]),
        shock=np.diag([0.0, 0.36]),
        start=np.diag([0.5, 1.0]),
        rows=9,
        units=3,
        log_likelihood=0.0,
        memoryless=0.0,
    )
    u = residual_paths(memory, (20000, 4), 1, np.random.default_rng(0))[..., 0]
    assert_mean(u[:, 0] ** 2, 1.5)
    assert_mean(u[:, 3] ** 2, 1.5)
    assert_mean(u[:, 0] * u[:, 2], 0.5 + 0.8**2)


def test_memory_is_found_where_it_is_and_balls_become_heuristic():
    env = pp.envs.latent_ar()
    archive = env.archive(30, 30, rng=pp.stream(0, "archive"))
    phi = env.world(1, 2, rng=pp.stream(0, "online")).features
    law = pp.linear_lags(1)
    names = tuple(name for name in ("pulse_calibrated", "pulse") if name in POLICIES)
    picked = tuple(s for s in SCENARIOS if s.memory or s == SCENARIOS[0])
    settings = small(candidates=names, scenarios=picked)
    made = pp.design(archive, law, phi, stakes=STAKES, settings=settings, seed=0)
    assert [s.judged_by for s in made.scenarios] == ["regret_cond", "regret", "regret"]
    assert not any(each.guaranteed for each in made.candidates)
    assert "memory" in made.candidates[0].doubt
    right, (own, others) = pp.linear_lags(3), history(units=60).split(seed=0)
    assert Truths(right.fit(own, seed=0), right, None, others, PHI, 0).memory is None


def test_an_agent_that_waits_plays_as_before_where_nothing_is_late(found):
    world = pp.envs.w_times_action().world(2, 80, rng=pp.stream(0, "online"))
    agent = pp.envs.oful(world)
    waiting = patient(agent, 0.3)
    run = pp.simulate(world, [agent, replace(waiting, name="waiting")])
    np.testing.assert_array_equal(run.action[0], run.action[1])
    late = replace(waiting, name="late", series=Series(late=5))
    assert (pp.simulate(world, [agent, late]).action[0] != run.action[0]).sum() == 0
    assert patient(replace(agent, radius=pp.corrected(sigma=1.0)), 0.3) is None


# The choice, by figures made up for it.


def made_up(regret, *, fenced, doubt=""):
    """A design of two candidates, (2, environment, run), the first tuned."""
    guarded = Candidate("guarded", "", fenced=fenced, doubt=doubt)
    candidates = (Candidate("tuned", "", tuned=True), guarded)
    k, m, runs = np.shape(regret)
    return Design(
        candidates=candidates,
        scenarios=SCENARIOS[:m],
        regret=np.array(regret),
        regret_cond=np.array(regret),
        tenth=np.zeros((k, m)),
        arms=np.full((k, m, 2), 0.5),
        overruled=np.full((k, m), np.nan),
        random=np.ones((m, runs)),
        info_gap=np.zeros((m, runs)),
        stakes=STAKES,
        rounds=60,
        seed=0,
        law_id="",
    )


def figures(gap, spread, runs=200):
    rng = np.random.default_rng(0)
    one = 0.2 + 0.05 * rng.random((1, 2, runs))
    return np.concatenate([one, one + gap + spread * rng.standard_normal(one.shape)])


def test_a_tie_goes_to_the_guarantee():
    tied = made_up(figures(0.002, 0.05), fenced=True)
    assert tied.worst[0] < tied.worst[1]
    assert tied.recommended == "guarded"
    assert "carries its guarantee, conditional on: " in tied.recommendation
    assert tied.ranking.loc["guarded", "standing"] == "conditional guarantee"
    assert "paired" in tied.recommendation


def test_a_clear_lead_is_kept_and_called_tuned():
    clear = made_up(figures(0.05, 0.05), fenced=True)
    assert clear.recommended == "tuned"
    assert "tuned by simulation" in clear.recommendation


@pytest.mark.parametrize(("fenced", "doubt"), [(True, "a check failed"), (False, "")])
def test_without_a_valid_ball_a_tie_is_decided_by_figures(fenced, doubt):
    assert made_up(figures(0.002, 0.05), fenced=fenced, doubt=doubt).recommended == "tuned"


def test_a_ball_that_is_not_valid_is_called_heuristic():
    ahead = made_up(figures(-0.05, 0.01), fenced=True, doubt="a check failed")
    assert ahead.recommended == "guarded"
    assert "heuristic" in ahead.recommendation
    assert "guarantee" not in ahead.ranking.loc["guarded", "standing"]


def test_whoever_missed_an_environment_is_not_recommended():
    regret = figures(-0.1, 0.01)
    regret[1, 1] = np.nan
    assert made_up(regret, fenced=True).recommended == "tuned"
    none = np.full((2, 2, 5), np.nan)
    none[:, 0] = 0.1
    assert "No candidate" in made_up(none, fenced=True).recommendation


# Pilots.


def test_a_pilot_tells_where_theta_is():
    rng = np.random.default_rng(0)
    theta, x = np.array([0.5, -1.0, 0.25, 0.0]), rng.standard_normal((4000, 4))
    reward = x @ theta + 0.3 * rng.standard_normal(4000)
    reward[7] = np.nan
    pilot = pilot_posterior(x, reward, stakes=STAKES, features=PHI)
    draws = np.stack([pilot.draw(rng) for _ in range(500)])
    np.testing.assert_allclose(draws.mean(0), theta, atol=0.03)
    np.testing.assert_allclose(draws.std(0), 0.3 / np.sqrt(4000), rtol=0.25)
    with pytest.raises(pp.errors.DataError, match=r"pilot must be .*\(n, 4\)"):
        pilot_posterior(x[:, :2], reward, stakes=STAKES, features=PHI)


def test_a_pilot_that_contradicts_theta_bound_is_noted():
    x = np.random.default_rng(0).standard_normal((400, 4))
    settings = small(candidates=("oful",), constants=(), scenarios=SCENARIOS[:1])
    notes = [
        pp.design(
            history(),
            pp.linear_lags(3),
            PHI,
            stakes=STAKES,
            settings=settings,
            pilot=(x, scale * x[:, 1]),
            seed=0,
        ).notes
        for scale in (0.5, 2.0)
    ]
    assert not notes[0]
    assert "theta_bound = 1.1; 2 would" in notes[1][0]


def with_rewards(folder, arms=2):
    import pandas as pd

    path = write_study(folder, ("horizon = 40", 'horizon = 40\nreward = "paid"\naction = "sent"'))
    frame = pd.read_csv(folder / "archive.csv")
    rng = np.random.default_rng(0)
    frame["sent"] = rng.integers(0, arms, len(frame))
    frame["paid"] = 0.7 * frame["w0"] * frame["sent"] + 0.05 * rng.standard_normal(len(frame))
    frame.loc[0, "paid"] = np.nan
    frame.to_csv(folder / "archive.csv", index=False)
    return path


def test_columns_of_a_study_are_a_pilot(tmp_path):
    study = pp.study.read_study(with_rewards(tmp_path))
    x, reward = study.pilot(study.features())
    assert len(x) == len(reward) == 24 * 20 - 1
    pilot = pilot_posterior(x, reward, stakes=study.stakes(), features=study.features())
    np.testing.assert_allclose(pilot.centre, [0, 0, 0, 0.7], atol=0.05)


def test_slips_in_a_pilot_are_named(tmp_path):
    study = pp.study.read_study(with_rewards(tmp_path / "three", arms=3))
    with pytest.raises(pp.errors.DataError, match="arms from 0 to 1, but it holds 2"):
        study.pilot(study.features())
    path = with_rewards(tmp_path / "two")
    edit(path, ('reward = "paid"', 'reward = "payd"'))
    with pytest.raises(pp.errors.DataError, match="no column 'payd'; did you mean 'paid'"):
        pp.study.read_study(path)
    edit(path, ('reward = "payd"\n', ""))
    with pytest.raises(pp.errors.SettingError, match="needs 'reward'"):
        pp.study.read_study(path)


# Studies and bad input.


def test_a_horizon_beyond_the_rows_is_stated(tmp_path):
    path = write_study(tmp_path, ("horizon = 40", 'horizon = 4000\nagents = ["oful"]'), units=20)
    made = design_study(path, runs=2, workers=1)
    assert made.rounds == 10 * 18
    assert any("4,000 rounds was asked for, 180 were played" in note for note in made.notes)
    assert not (tmp_path / "results").exists()  # it only advises


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidates": ("pulze",)}, "did you mean 'pulse'"),
        ({"candidates": ("oful_full",), "constants": ()}, "does not see W"),
        ({"constants": (-1.0,)}, "constants"),
        ({"scenarios": ()}, "at least one environment"),
        ({"runs": 1}, "runs"),
        ({"workers": 0}, "workers"),
    ],
)
def test_settings_that_cannot_be(changes, words):
    with pytest.raises(pp.errors.SettingError, match=words):
        DesignSettings(**changes)


def test_what_cannot_be_compared_is_one_sentence():
    law, one = pp.linear_lags(3), history().unit(0)
    with pytest.raises(pp.errors.DataError, match="at least 2 units"):
        pp.design(one, law, PHI, stakes=STAKES, seed=0)
    with pytest.raises(pp.errors.ModelError, match="fitted again"):
        pp.design(history(), law.fit(history(), seed=0), PHI, stakes=STAKES, seed=0)
    with pytest.raises(pp.errors.SettingError, match="theta_bound"):
        pp.design(history(), law, PHI, stakes={"horizon": 9}, seed=0)
    still = replace(STAKES, sigma=0.0)
    with pytest.raises(pp.errors.SettingError, match="sigma"):
        pp.design(history(), law, PHI, stakes=still, settings=small(), seed=0)


def test_a_job_without_its_candidates_says_who_is_missing(monkeypatch):
    """A policy that cannot play returns None: the others go on without it."""
    monkeypatch.setitem(POLICIES, "never", lambda setup: None)
    settings = small(candidates=("never", "oful"), constants=(), scenarios=SCENARIOS[:1])
    made = pp.design(history(), pp.linear_lags(3), PHI, stakes=STAKES, settings=settings, seed=0)
    assert made.names == ("oful",)
