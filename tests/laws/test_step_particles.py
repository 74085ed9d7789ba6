"""What particles get wrong is told: beside the Kalman filter, which is exact."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro import Features, StepLaw, Svi, load, save, terms
from pulse_pyro._core.errors import SettingError
from pulse_pyro.diagnostics.convergence import convergence
from tests.laws.step_programs import (
    LEVEL,
    LEVEL_TRUTH,
    REGIME,
    REGIME_TRUTH,
    at_truth,
    level_archive,
    regime_archive,
)

LINE = terms(["1", "w"], 2, observed=["pulse", "given"], missing=["w"])
SQUARE = Features(lambda s, w, a: np.column_stack([s[:, 0], w[:, 0] ** 2]), 2, ("s", "w2"))


@pytest.mark.parametrize(("particles", "draws"), [(2000, 2), (1000, 4)])
@pytest.mark.parametrize("kind", ["line", "square", "sum"])
def test_the_error_that_is_told_is_the_error_there_is(kind, particles, draws):
    program, archive, truth = (
        (REGIME, regime_archive, REGIME_TRUTH)
        if kind == "sum"
        else (LEVEL, level_archive, LEVEL_TRUTH)
    )
    history = archive(40, 12, 3)[0]
    exact = at_truth(StepLaw(*program), history, truth)(history)
    law = StepLaw(*program, state="particles", particles=particles)
    asked = at_truth(law, history, truth, draws)(history)
    if kind == "square":
        right = exact.mean() ** 2 + exact.covariance()[:, 0]
        found = asked.expect(SQUARE, size=400, rng=np.random.default_rng(0))
    else:
        right = exact.mean()
        found = asked.expect(LINE, size=400, rng=np.random.default_rng(0))
    assert not found.exact
    assert found.size == (400 if kind == "square" else 0)
    off = found.mean[:, 0, 1] - right[:, 0]
    told = found.mcse[:, 0, 1]
    assert_allclose(found.mcse[:, 0, 0], 0.0, atol=1e-12)
    # half of a normal lies within .674 sd; a few rows surprise all particles alike, and are further
    assert 0.75 < np.median(np.abs(off)) / 0.674 / np.sqrt(np.median(told**2)) < 1.35
    assert (np.abs(off) > 4.0 * told).mean() < 0.03
    assert asked.rough.shape == (len(history.s), 1)
    assert asked.support is None


def test_particles_are_doubled_until_they_are_enough():
    history = level_archive(units=4, time=6)[0]
    law = StepLaw(*LEVEL, state="particles", draws=5)
    fitted = law.fit(history, Svi(draws=20, steps=20), seed=0)
    found = fitted.record.quality
    assert fitted.particles == found["particles"] >= 128
    assert found["particle_error"] <= 0.1
    few = replace(law, particles=8).fit(history, Svi(draws=20, steps=20), seed=0)
    assert few.record.quality["particles"] == 8
    assert few.record.quality["particle_error"] > 0.1
    verdicts = {check.name: check.verdict for check in convergence(few.record)}
    assert verdicts["particle_error"] in ("warn", "fail")
    assert "pareto_k" in verdicts


def test_the_number_that_was_found_is_saved(tmp_path):
    history = level_archive(units=2, time=4)[0]
    law = at_truth(StepLaw(*LEVEL, state="particles"), history, LEVEL_TRUTH, 2)
    law = replace(law, record=replace(law.record, quality={"particles": 256.0}))
    again = load(save(law, tmp_path / "law"), law=law.law)
    assert again.particles == 256
    assert_array_equal(again(history).mean(), law(history).mean())
    answer = law.follow().push(history.s[0])
    assert_allclose(answer.mean(), law(history, [0]).mean(), atol=0.3)


def test_a_number_that_makes_no_sense_is_refused():
    for particles in (7, 10.5, "many"):
        with pytest.raises(SettingError, match="particles"):
            StepLaw(*LEVEL, particles=particles)
