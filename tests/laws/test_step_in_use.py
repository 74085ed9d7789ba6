"""A law with a state in studies, in ArviZ and under simulation-based calibration."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro import Laplace, StepLaw, sbc
from pulse_pyro.laws import FittedStepLaw
from pulse_pyro.study import fit_study
from pulse_pyro.study.workspace import open_workspace
from tests.helpers import FALSE_ALARM
from tests.laws.step_programs import LEVEL, LEVEL_TRUTH, at_truth, level_archive, masked

LAW = """
import pyro
import pyro.distributions as dist


def prior():
    return {
        "keep": pyro.sample("keep", dist.Beta(8.0, 2.0)),
        "sd": pyro.sample("sd", dist.LogNormal(-1.0, 0.5)),
    }


def first(p):
    pyro.sample("z", dist.Normal(0.5, 1.5))


def step(p, z, s_past):
    z = pyro.sample("z", dist.Normal(p["keep"] * z + 0.1, 0.5))
    pyro.sample("pulse", dist.Normal(2.0 * z - 1.0, 0.8))
    pyro.sample("w", dist.Normal(z, p["sd"]))
"""
STUDY = """seed = 3
[data]
file = "archive.csv"
unit = "unit"
time = "time"
observed = ["pulse", "given"]
missing = ["w"]
[law]
file = "law.py"
[inference]
kind = "laplace"
draws = 20
"""


def test_arviz_is_given_posterior_predictions_and_scores():
    history = masked(level_archive(units=3, time=6)[0], 0.3)
    law = at_truth(StepLaw(*LEVEL, name="level"), history, LEVEL_TRUTH, 6)
    law = replace(law, draws={n: v * (1.0 + 0.02 * np.arange(6)) for n, v in law.draws.items()})
    tree = law.to_arviz(history, size=3)
    assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 6}
    assert set(tree["posterior"].data_vars) == {"keep", "slope", "sd"}
    assert tree["posterior_predictive"]["w"].shape == (1, 3, 18)
    at = tree["log_likelihood"]["draw"].values
    scores = [law.holding(at[i : i + 1])(history).log_density(history.w)[:, 0] for i in range(3)]
    assert_allclose(tree["log_likelihood"]["w"].values[0], scores, rtol=1e-10)
    assert_allclose(tree["observed_data"]["w"].values, history.w[:, 0])


@pytest.mark.parametrize("state", ["auto", "particles"])
def test_every_draw_of_a_prediction_has_its_own_filter(state):
    history = level_archive(units=2, time=5)[0]
    law = at_truth(StepLaw(*LEVEL, state=state, particles=400), history, LEVEL_TRUTH, 3)
    tree = law.to_arviz(history, size=3)
    assert tree["posterior_predictive"]["w"].shape == (1, 3, 10)
    assert np.isfinite(tree["log_likelihood"]["w"].values).all()


def test_ranks_of_a_program_are_those_of_its_own_archives(monkeypatch):
    history = level_archive(units=4, time=5)[0]
    seen = []

    def prior_again(law, own, how, *, seed):
        seen.append(own)
        draws = law.simulate(own, 99, seed=seed + 1).truth  # as if nothing had been learned
        return replace(at_truth(law, own, LEVEL_TRUTH), draws=draws)

    monkeypatch.setattr(StepLaw, "fit", prior_again)
    found = sbc(StepLaw(*LEVEL), history, Laplace(draws=99), replications=20, seed=0)
    assert found.names == ("keep", "slope", "sd")
    assert found.ranks.shape == (20, 3)
    assert found.p_value > FALSE_ALARM
    assert len({own.w.sum() for own in seen}) == 20
    assert_array_equal(seen[0].s[:, 1], history.s[:, 1])  # what the step takes as given


def test_a_study_fits_stores_and_reads_it(tmp_path):
    history = level_archive(units=8, time=6)[0]
    history.to_frame().to_csv(tmp_path / "archive.csv", index=False)
    (tmp_path / "law.py").write_text(LAW)
    (tmp_path / "study.toml").write_text(STUDY)
    fitted = fit_study(tmp_path / "study.toml")
    assert isinstance(fitted, FittedStepLaw)
    work = open_workspace(tmp_path / "study.toml")
    assert_array_equal(work.fitted(history).mean(), fitted(history).mean())
    about = json.loads((work.folder("fit") / "fit.json").read_text())
    assert [row["parameter"] for row in about["parameters"]] == ["keep", "sd"]
