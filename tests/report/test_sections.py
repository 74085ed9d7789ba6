"""What the sections say and draw, against the values they are made from."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from pulse_pyro._core.errors import BundleError, SettingError
from pulse_pyro.report.law import data_sections, diagnostics_sections, law_sections
from pulse_pyro.report.plots import line_look
from pulse_pyro.report.policy import policy_sections, radius_parts, radius_sections
from pulse_pyro.report.provenance import provenance_sections
from tests.helpers import linear_history, mean_at
from tests.report.helpers import a_run


def texts(ax):
    return [text.get_text() for text in ax.figure.legends[0].get_texts()]


# --- data, law, diagnostics ---------------------------------------------------------------------


def test_data_of_unequal_length_with_holes_are_drawn():
    history, _ = linear_history(units=6, time=8, lags=1, seed=0)
    seen = np.array(history.grid.seen)
    seen[:, 5:] = False
    seen[0, 5] = True
    w = np.array(history.grid.w)
    w[:, 2] = np.nan  # nobody has W here
    short = pp.History.from_arrays(
        history.grid.s,
        w,
        seen=seen,
        units=history.units,
        s_names=history.s_names,
        w_names=history.w_names,
    )
    (section,) = data_sections(short, 4)
    assert "5 to 6 a unit" in section.text
    assert "on 4 units; the other 2" in section.text
    w_panel = section.figure.figure.axes[1]
    assert_allclose(w_panel.lines[0].get_xdata(), [0, 1, 3, 4, 5])
    assert_allclose(w_panel.lines[0].get_ydata()[1], np.median(history.grid.w[:, 1, 0]))


def test_the_law_is_shown_for_every_column_of_w():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((8, 12, 1))
    w = np.concatenate([s, -2 * s], axis=-1) + 0.1 * rng.standard_normal((8, 12, 2))
    seen = np.ones((8, 12), dtype=bool)
    history = pp.History.from_arrays(
        s, w, seen=seen, units=tuple("abcdefgh"), s_names=("s",), w_names=("one", "two")
    )
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    first, second = law_sections(law, held_out, seed=0)
    assert (first.title, second.title) == ("Law", "Law: two")
    for j, section in enumerate((first, second)):
        assert_allclose(
            section.figure.lines[0].get_ydata(), mean_at(law, held_out.grid.s[:1])[0, :, j]
        )
        assert_allclose(section.figure.lines[1].get_ydata(), held_out.grid.w[0, :, j])


def test_diagnostics_give_the_verdict_first_and_evidence_for_every_w(demo):
    first, evidence = diagnostics_sections(demo.diagnostics)
    assert first.text.startswith(f"Verdict: {demo.diagnostics.verdict}")
    assert len(first.table) == len(demo.diagnostics.checks)
    assert evidence.title == "Evidence: w"
    assert len(evidence.figure.figure.axes) == 4
    bad = replace(demo.diagnostics.checks[0], verdict="fail", name="odd")
    (alone,) = diagnostics_sections(pp.diagnostics.Diagnostics((bad,)))
    assert "Look at: odd" in alone.text


# --- radius and policy --------------------------------------------------------------------------


def an_agent(error, rounds=60, name="agent1"):
    x = np.random.default_rng(1).standard_normal((2, rounds, 3, 4))
    return pp.envs.Agent(name, x, pp.corrected(sigma=0.5), 2.0, error)


def test_the_radius_is_split_along_the_actions_that_were_played():
    run, error = a_run(), np.random.default_rng(2).random((2, 60, 3))
    run.action[1, 0, 10] = -1  # refused: nothing was learned
    agent = an_agent(error)
    steps = np.delete(np.arange(60), 10)
    at = (0, steps, run.action[1, 0, steps])
    due = agent.radius.split(agent.x[at], error[at], 2.0)
    assert_allclose(radius_parts(agent, run), due)
    (section,) = radius_sections(due, outside=0.125)
    assert "12.5% of the online contexts" in section.text
    shares = due[-1] / due[-1].sum()
    assert f"imputation {shares[2]:.0%}" in section.text
    assert "more history would help more" in section.reading
    (clean,) = radius_sections(radius_parts(an_agent(None), run))
    assert "imputation 0%" in clean.text
    assert "more history would help little" in clean.reading


def test_the_radius_of_an_agent_that_did_not_play_is_refused():
    with pytest.raises(SettingError, match="no agent 'nobody'"):
        radius_parts(an_agent(None, name="nobody"), a_run())


def test_policy_sections_show_both_regrets_costs_and_actions():
    run = a_run(rounds=500)
    regret, curve, actions = policy_sections(run, "Who they are.")
    assert regret.text.endswith("Who they are.")
    assert f"gap ({run.info_gap.mean():.3g} here)" in regret.text
    above, below = regret.figure.figure.axes
    for ax, values in ((above, run.regret), (below, run.regret_cond)):
        for i in range(3):
            steps = ax.lines[i].get_xdata() - 1
            assert_allclose(ax.lines[i].get_ydata(), values[i].mean(0)[steps])
            assert steps[-1] == 499
    assert texts(above) == list(run.names)
    each = np.diff(run.regret_cond[0].mean(0), prepend=0.0)
    first, last = curve.figure.lines[0].get_ydata()[[0, -1]]
    assert_allclose(first, each[0])
    start = next(k for k in range(1, 500) if np.isclose(each[-k:].mean(), last))
    assert 20 < start < 200  # the last group is a share of the rounds, not one of them
    for ax in actions.figure.figure.axes[:3]:
        tops = ax.collections[-1].get_paths()[0].vertices[:, 1].max()
        assert_allclose(tops, 1.0)
    assert texts(actions.figure) == ["action 0", "action 1", "action 2"]


def test_one_run_of_one_round_can_be_shown():
    for section in policy_sections(a_run(agents=1, runs=1, rounds=1)):
        assert section.figure is not None


def guarded_run():
    """Three agents, the last without a guard."""
    run, none = a_run(), np.full(2, np.nan)
    overruled, radius = (
        np.array([[0.1, 0.3], [0.0, 0.0], none]),
        np.array([[2.0, 4.0], [1, 1], none]),
    )
    return replace(run, overruled=overruled, radius=radius, held=np.array([[1, 0], none, none]))


def test_guards_are_told_of_those_that_have_one():
    assert "Guards" not in [section.title for section in policy_sections(a_run())]
    regret, guards, *_ = policy_sections(guarded_run())
    assert "overruled" not in regret.table
    assert guards.table.index.tolist() == ["agent0", "agent1"]
    assert_allclose(guards.table.loc["agent0"], [0.2, 3.0, 0.5])
    assert "Heuristic" not in guards.text


def test_no_radius_is_told_of_a_guard_that_promises_nothing():
    why = {"agent0": "a check failed", "agent1": "W remembers"}
    one = policy_sections(replace(guarded_run(), heuristic=("a check failed", "", "")))[1]
    assert np.isnan(one.table.loc["agent0", "radius"])
    assert one.table.loc["agent1", "radius"] == 1.0
    both = policy_sections(replace(guarded_run(), heuristic=(*why.values(), "")))[1]
    assert both.table.columns.tolist() == ["overruled"]
    for name, reason in why.items():
        assert f"Heuristic, no guarantee: {reason}" in both.text
        assert name in both.text


def bounded_run():
    """The same, with what is claimed of their regret; the last has a ball, but no guard."""
    rests = ("the moon is round; sigma holds", "sigma holds", "the sea is deep")
    against = ("the best policy on the forecast", "the best policy on S", "the best policy on S")
    return replace(guarded_run(), benchmarks=against, rests_on=rests, heuristic=("", "", ""))


def test_a_guard_is_told_with_whom_it_is_against_and_what_it_rests_on():
    run = bounded_run()
    regret, guards, *_ = policy_sections(run)
    assert guards.table["benchmark"].tolist() == list(run.benchmarks[:2])
    for i in range(2):
        said = f"The bound of agent{i} is against {run.benchmarks[i]}, conditional on: "
        assert said + run.rests_on[i] in guards.text
    assert "against the best policy on S, the law's" not in guards.text
    assert "agent2 is against the best policy on S, conditional on: the sea is deep" in regret.text
    odd = policy_sections(replace(run, heuristic=("W remembers", "", "")))[1]
    assert odd.table["benchmark"].tolist() == ["", "the best policy on S"]
    assert "the moon is round" not in odd.text


def test_a_radius_of_a_conditional_rung_is_called_conditional():
    parts = np.ones((3, 3))
    (said,) = radius_sections(parts, rests_on="the moon is round", benchmark="the best policy on S")
    assert "Conditional: it holds if the moon is round." in said.text
    assert "Regret is against the best policy on S." in said.text


def test_the_votes_of_a_committee_are_drawn_as_they_were():
    first = np.linspace(0.5, 0.9, 500)
    votes = pp.report.Votes(("law", "lags"), np.column_stack([first, 1.0 - first]))
    section = policy_sections(a_run(), votes=votes)[1]
    assert (section.title, texts(section.figure)) == ("Committee", ["law", "lags"])
    assert "law 90% and lags 10%" in section.text
    bottom = section.figure.collections[0].get_paths()[0].vertices[:, 1]
    assert_allclose(bottom.max(), 0.9)
    assert_allclose(section.figure.collections[1].get_paths()[0].vertices[:, 1].max(), 1.0)


def test_no_two_curves_of_many_look_alike():
    looks = [line_look(i) for i in range(42)]
    assert len({str(sorted(look.items())) for look in looks}) == 42
    ax = policy_sections(a_run(agents=12))[0].figure
    drawn = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in ax.lines}
    assert len(drawn) == 12


# --- provenance ---------------------------------------------------------------------------------


def test_provenance_names_seed_law_versions_and_files():
    hashes = {"a.csv": "3a6eb0", "law/arrays.npz": "99e0b1"}
    (section,) = provenance_sections({"law": "f00", "calibration": "f00"}, seed=7, hashes=hashes)
    found = dict(section.table.to_numpy())
    assert (found["seed"], found["law_id"]) == ("7", "f00")
    assert {"Python", "numpy", "torch", "pyro-ppl", "pulse-pyro"} <= set(found)
    assert "date" not in found
    assert dict(section.more[0][1].to_numpy()) == hashes
    (dated,) = provenance_sections({"law": "f00"}, seed=7, date="2026-01-31")
    assert dict(dated.table.to_numpy())["date"] == "2026-01-31"
    assert dated.more == ()


def test_parts_of_different_laws_are_refused():
    with pytest.raises(BundleError, match=r"different laws \(law: a, calibration: b\)"):
        provenance_sections({"law": "a", "calibration": "b"}, seed=0)


def played(second, spread, runs=4):
    """A run in which b has regret_cond ``second`` above a, with the given spread over runs."""
    wiggle = spread * np.linspace(-1.0, 1.0, runs)
    cond = np.stack([10.0 + wiggle, 10.0 + second + wiggle])[..., None] * np.ones(3)
    action = np.zeros(cond.shape, int)
    return pp.envs.Run(("a", "b"), action, cond + 8.55, cond, np.full(runs, 8.55))


def test_the_gap_is_said_of_policies_that_see_only_s_on_average():
    text = policy_sections(played(5.0, 0.1))[0].text
    assert "on average" in text
    assert "8.55" in text


@pytest.mark.parametrize(("second", "spread", "doubt"), [(5.0, 0.1, False), (0.1, 4.0, True)])
def test_the_lowest_regret_is_called_unclear_where_it_is(second, spread, doubt):
    text = policy_sections(played(second, spread))[0].text
    assert "Lowest regret_cond: a" in text
    assert ("not clearly" in text) == doubt


def test_one_run_decides_nothing():
    text = policy_sections(played(5.0, 0.0, runs=1))[0].text
    assert "a (not clearly: one run" in text
