"""Laws of W that is no plain number, in everything that comes after a fit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.envs.world import World
from tests.helpers import FALSE_ALARM
from tests.laws.test_generalised import PHI, made, phi


@pytest.fixture(scope="module")
def parts():
    """Law, archive, held-out units, by kind."""
    out = {}
    for kind in ("ordinal", "categorical", "negative_binomial", "beta"):
        fit, held_out = made(kind, units=100, time=12).split(0.5, seed=0)
        out[kind] = pp.generalised_lags(1, kind).fit(fit, pp.Laplace(200), seed=0), fit, held_out
    return out


def straight(history):
    """Phi that is affine in w."""
    last = history.w_names[-1]
    terms = ["1", "s0", f"{last}*a"]
    return pp.terms(terms, 2, observed=history.s_names, missing=history.w_names)


def test_diagnose_takes_a_right_law_and_catches_a_wrong_one(parts):
    for kind, (law, fit, held_out) in parts.items():
        found = pp.diagnose(law, held_out, seed=0, archive=fit)
        assert found.verdict in ("pass", "warn"), kind
        assert (found.table.filter(like="crps", axis=0)["verdict"] == "pass").all(), kind
    law, _, held_out = parts["ordinal"]
    flipped = pp.History(
        -held_out.s, held_out.w, held_out.offsets, held_out.step, held_out.units, held_out.schema
    )
    assert pp.diagnose(law, flipped, seed=0).verdict == "fail"


@pytest.mark.parametrize("kind", ["ordinal", "categorical"])
def test_the_ladder_gives_monte_carlo_no_share_of_the_bound(kind, parts):
    law, _, held_out = parts[kind]
    for features in (straight(held_out), PHI):
        found = pp.calibrate(law, held_out, features, groups=["s0"], seed=0)
        verdicts = {rung.name: rung.verdict for rung in found.rungs}
        assert verdicts["average"] == "stands"
        assert verdicts["forecast"] in ("stands", "conditional")
        assert verdicts["groups"] in ("stands", "conditional")
        assert found.parts
        for part in found.parts:
            assert part.failures == 0.0
            assert not part.budget(held_out).monte_carlo.any()


def test_a_law_of_endlessly_many_values_keeps_its_monte_carlo_share(parts):
    law, _, held_out = parts["beta"]
    square = pp.Features(lambda s, w, a: a * w**2, 2, ("w^2*a",))
    found = pp.calibrate(law, held_out, square, seed=0)
    assert found.parts[0].failures > 0


@pytest.mark.parametrize("kind", ["ordinal", "categorical"])
def test_a_policy_scores_by_the_sum_and_comes_back_bit_by_bit(kind, parts, tmp_path):
    law, _, held_out = parts[kind]
    rewards = np.random.default_rng(0).standard_normal(12)
    bot = pp.PulseUCB(law, PHI, pp.constant(2.0))
    s = held_out.grid.s[0]
    for t in range(6):
        bot.learn(bot.act(s[t]), rewards[t])
    expected = law(s[None]).expect(PHI, size=2, rng=None).mean
    pp.save(bot, tmp_path / "bot")
    again = pp.load(tmp_path / "bot", features=PHI)
    for t in range(6, 12):
        one, two = bot.act(s[t]), again.act(s[t])
        assert one.action == two.action
        assert_array_equal(one.x, two.x)
        assert_allclose(one.x, expected[t, one.action], atol=1e-12)
        bot.learn(one, rewards[t])
        again.learn(two, rewards[t])


@pytest.mark.parametrize("kind", ["ordinal", "categorical", "negative_binomial"])
def test_a_law_is_saved_bit_by_bit(kind, parts, tmp_path):
    law, _, held_out = parts[kind]
    pp.save(law, tmp_path / "law")
    for again in (
        pp.load(tmp_path / "law"),
        pp.load(tmp_path / "law", law=pp.generalised_lags(1, kind)),
    ):
        assert again.id == law.id
        assert again.schema == law.schema
        assert_array_equal(again(held_out).mean(), law(held_out).mean())
        assert_array_equal(again(held_out).cdf(held_out.w), law(held_out).cdf(held_out.w))
    with pytest.raises(pp.PulseError, match="generalised_lags"):
        pp.load(tmp_path / "law", law=pp.generalised_lags(2, kind))


def test_simulated_rounds_take_it(parts):
    law, _, held_out = parts["ordinal"]
    s = held_out.grid.s[:3, :, :]
    w = law(s).draws(1, rng=np.random.default_rng(0))[0].reshape(3, -1, 1)
    rows = s.reshape(-1, 2), w.reshape(-1, 1)
    full = np.stack([phi(*rows, a) for a in range(2)], 1).reshape(3, s.shape[1], 2, 3)
    found = pp.laws.expected_features(law, PHI, s, size=2, rng=None).mean
    theta = np.array([0.1, 0.3, -0.2])
    world = World(s, w, full, found, theta, np.zeros(s.shape[:2]), PHI, 0)
    run = pp.simulate(world, [pp.envs.pulse(world, law), pp.envs.cond_oracle(world)])
    assert run.table.loc["cond_oracle", "regret_cond"] == 0.0
    assert np.isfinite(run.regret).all()


def test_arviz_names_inputs_and_levels(parts):
    import arviz as az

    law, fit, _ = parts["categorical"]
    tree = law.to_arviz(fit.take(range(3)), size=20)
    names = az.summary(tree, kind="stats").index
    assert "slope[s0.lag0, w[mail]]" in names
    assert dict(tree["log_likelihood"].sizes)["draw"] == 20
    assert list(tree["posterior_predictive"].data_vars) == list(law.schema.w_names)


def test_a_study_file_offers_it():
    from pulse_pyro.laws import LAWS

    assert "generalised_lags" in LAWS
    assert "generalised_lags" in pp.__all__


def test_sbc_takes_it():
    history, law = made("bernoulli", units=6), pp.generalised_lags(1, "bernoulli")
    found = pp.sbc(law, history, pp.Laplace(100), replications=20, seed=0)
    assert found.names == ("slope[0]", "slope[1]", "intercept")
    assert found.p_value > FALSE_ALARM
