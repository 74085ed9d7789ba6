from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, LeakageError, ModelError, SettingError
from pulse_pyro.base import Check
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics import Diagnostics, diagnose
from pulse_pyro.laws.linear import linear_lags
from tests.helpers import linear_history, mean_at

HISTORY, _ = linear_history(units=60, time=40, seed=4, w_dim=2)
FIT, HELD_OUT = HISTORY.split(seed=0)
LAW = linear_lags(3).fit(FIT, seed=0)


def altered(law=LAW, **changes):
    """The same law with some of its draws changed."""
    return replace(law, draws={**law.draws, **{k: fn(law.draws[k]) for k, fn in changes.items()}})


def verdicts(law, held_out=HELD_OUT, seed=0):
    return diagnose(law, held_out, seed=seed).table["verdict"].to_dict()


def shifted(by):
    return altered(coef=lambda c: c + np.r_[by, np.zeros(3)][:, None])


def test_a_right_law_passes():
    found = diagnose(LAW, HELD_OUT, seed=0)
    assert found.verdict == "pass"
    mean = ("skill", "trend", "interactions", "time")
    form = ("coverage", "pit", "spread", "unit spread", "crps", "replicates")
    kinds = (*mean, *form, "serial", "dependence")
    names = ["rows", "log score", *(f"{check} w{j}" for j in (0, 1) for check in kinds)]
    assert list(found.table.index) == names
    complete = HELD_OUT.rows(LAW.law.summary).x
    assert found.table.loc["rows", "value"] == len(complete)
    assert repr(found).startswith("Diagnostics: pass")


def test_a_right_law_does_not_fail_on_other_archives_and_seeds():
    for seed in range(20):
        fit, held_out = linear_history(units=60, time=40, seed=seed)[0].split(seed=seed)
        law = linear_lags(3).fit(fit, seed=seed)
        assert diagnose(law, held_out, seed=seed).verdict != "fail"


@pytest.mark.parametrize("factor", [1 / 9, 9.0], ids=["over-confident", "under-confident"])
def test_a_law_with_the_wrong_spread_fails_coverage(factor):
    found = verdicts(altered(variance=lambda v: v * factor))
    assert found["coverage w0"] == found["coverage w1"] == "fail"
    assert found["skill w0"] == found["skill w1"] == "pass"


def test_a_wrong_spread_of_one_column_is_laid_at_its_door():
    found = verdicts(altered(variance=lambda v: v * [1.0, 1 / 25]))
    assert found["coverage w0"] == "pass"
    assert found["coverage w1"] == "fail"


def test_a_shifted_law_fails_skill_and_coverage():
    found = verdicts(shifted(3.0))
    assert found["skill w0"] == found["coverage w0"] == "fail"
    assert diagnose(shifted(3.0), HELD_OUT, seed=0).verdict == "fail"


def test_a_law_that_has_learned_nothing_is_not_passed():
    found = verdicts(altered(coef=lambda c: c * 0.0))
    assert found["skill w0"] in ("warn", "fail")


def test_skill_is_the_share_of_variance_explained():
    table = diagnose(LAW, HELD_OUT, seed=0).table
    w, mean = HELD_OUT.grid.w[:, 2:, 0], mean_at(LAW, HELD_OUT.grid.s)[:, 2:, 0]
    skill = 1 - ((w - mean) ** 2).mean() / w.var()
    assert table.loc["skill w0", "value"] == pytest.approx(skill, rel=1e-12)


def test_coverage_is_the_share_inside():
    w = np.array(HELD_OUT.grid.w)
    w[:, 2::2, 0] = 1e9
    half, vague = replace(HELD_OUT, w=HELD_OUT.flat(w)), altered(variance=lambda v: v * 1e8)
    assert diagnose(vague, half, seed=0).table.loc["coverage w0", "value"] == 0.5
    assert diagnose(vague, half, seed=0).table.loc["coverage w1", "value"] == 1.0


def test_rows_that_are_not_complete_are_left_out():
    s, w, seen = (np.array(a) for a in (HELD_OUT.grid.s, HELD_OUT.grid.w, HELD_OUT.grid.seen))
    s[0, 10], w[1, 5], seen[2, 20:] = np.nan, np.nan, False
    s[2, 20:], w[2, 20:] = 1e3, -1e3
    names = {"s_names": HELD_OUT.s_names, "w_names": HELD_OUT.w_names}
    holes = pp.History.from_arrays(s, w, seen=seen, units=HELD_OUT.units, **names)
    assert diagnose(LAW, holes, seed=0).verdict == "pass"


def test_units_the_law_was_fitted_on_are_refused():
    with pytest.raises(LeakageError, match=r"'u\d+' \(and \d+ more\) was fitted on.*held-out"):
        diagnose(LAW, HISTORY, seed=0)
    one = HISTORY.take([HISTORY.units.index(FIT.units[0])])
    with pytest.raises(LeakageError, match=FIT.units[0]):
        diagnose(LAW, one, seed=0)


def test_a_single_held_out_unit_is_not_judged_on_coverage():
    found = diagnose(LAW, HELD_OUT.take([0]), seed=0).table
    assert found.loc["coverage w0", "verdict"] == "info"


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("r_hat", 1.0, "pass"),
        ("r_hat", 1.01, "pass"),
        ("r_hat", 1.02, "warn"),
        ("r_hat", 1.06, "fail"),
        ("r_hat", np.nan, "fail"),
        ("pareto_k", 0.3, "pass"),
        ("pareto_k", 0.6, "warn"),
        ("pareto_k", 0.71, "fail"),
        ("pareto_k", np.inf, "fail"),
        ("divergences", 0.0, "pass"),
        ("divergences", 3.0, "warn"),
        ("divergences", 11.0, "fail"),
        ("loss", 1e9, "info"),
    ],
)
def test_quality_figures_of_the_fit_are_judged_by_their_limits(name, value, verdict):
    law = replace(LAW, record=replace(LAW.record, quality={name: value}))
    assert verdicts(law)[name] == verdict


def test_the_verdict_is_the_worst_of_all():
    def of(*names):
        return Diagnostics(tuple(Check(n, n, 0.0, 0.0, "") for n in names)).verdict

    assert of("info", "pass") == "pass"
    assert of("pass", "warn", "info") == "warn"
    assert of("warn", "fail", "pass") == "fail"


def test_one_seed_gives_one_answer():
    one, two = (diagnose(LAW, HELD_OUT, seed=3).table for _ in range(2))
    assert one.equals(two)


def fresh(s_names=("s",), w_names=("w0", "w1"), time=40):
    shape = (2, time)
    return History.from_arrays(
        np.ones((*shape, len(s_names))),
        np.ones((*shape, len(w_names))),
        units=("x", "y"),
        s_names=s_names,
        w_names=w_names,
    )


BAD = {
    "no complete row": fresh(time=2),
    "'t'": fresh(s_names=("t",)),
    "'v'": fresh(w_names=("w0", "v")),
    "'w1'": fresh(w_names=("w0",)),
}


@pytest.mark.parametrize("says", BAD)
def test_an_archive_that_does_not_fit_the_law_is_refused(says):
    with pytest.raises(DataError, match=f"(?i){says}"):
        diagnose(LAW, BAD[says], seed=0)


def test_too_few_draws_are_refused():
    with pytest.raises(SettingError, match="size must be a whole number >= 100"):
        diagnose(LAW, HELD_OUT, seed=0, size=10)


def test_a_law_nothing_could_judge_does_not_pass():
    found = diagnose(LAW, HELD_OUT.take([0, 1]), seed=0)
    assert found.verdict == "warn"
    assert found.table.loc["few units", "text"].startswith("No test could judge this law")
    assert "few units" not in diagnose(LAW, HELD_OUT, seed=0).table.index


def test_a_long_list_of_checks_hides_no_failure():
    wide, _ = linear_history(units=20, time=20, lags=1, w_dim=8)
    fit, held_out = wide.split(seed=0)
    law = linear_lags(1).fit(fit, seed=0)
    narrow = {**law.draws, "variance": 1e-4 * law.draws["variance"]}
    broken = replace(law, draws=narrow)
    found = diagnose(broken, held_out, seed=0)
    assert len(repr(found).splitlines()) <= 12
    assert repr(found).splitlines()[1].split()[0] == "fail"
    assert "more, none worse" in repr(found)


def test_a_law_that_is_not_fitted_is_refused():
    with pytest.raises(ModelError, match="fit it first"):
        diagnose(linear_lags(2), HELD_OUT, seed=0)
