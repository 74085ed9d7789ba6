"""A growing policy whose refit failed, when it is restored; nothing is fitted again."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro.laws.growing import RunningLinear
from tests.laws.test_growing import custom
from tests.policies.helpers import archive, contexts, w_features

HISTORY = archive(units=3, time=9)
KINDS = {
    "linear": (pp.linear_lags(1), pp.Exact(60), RunningLinear),
    "gp": (pp.gaussian_process(1), pp.Laplace(60), pp.Law),
    "custom": (custom(), pp.Laplace(60), pp.Law),
    "memory": (pp.state_space(1, ar=1, ma=0), None, type(pp.state_space(1))),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    law, how, fitter = KINDS[request.param]
    return law, how, fitter, law.fit(HISTORY, how, seed=0)


def policy(kind, history=HISTORY):
    law, how, _, fitted = kind
    kept = pp.GrowingArchive(history, fitted, every=8, law=law, inference=how)
    return pp.PulseUCB(fitted, w_features(1), pp.constant(1.0), archive=kept)


def play(bot, start, stop):
    s, w = contexts(1, 60, 5)[0], np.random.default_rng(1).standard_normal((60, 1))
    out = []
    for t in range(start, stop):
        choice = bot.act(s[t])
        bot.learn(choice, float(np.sin(t)), w=w[t])
        out.append(choice)
    return out


def restored(path, kind):
    """Without the archive; only a custom model is handed in, its code is not stored."""
    law = kind[0] if isinstance(kind[0], pp.Law) and kind[0].family is None else None
    return pp.load(path, law, w_features(1))


def failing(patch, fitter, bad):
    """Let fits fail, those that bad() names by their number."""
    plain, calls = fitter.fit, []

    def fit(self, *args, **more):
        calls.append(1)
        if bad(len(calls)):
            raise pp.errors.ConvergenceError("no way")
        return plain(self, *args, **more)

    patch.setattr(fitter, "fit", fit)


@pytest.mark.parametrize("later", [False, True], ids=["last", "before a good one"])
def test_a_policy_whose_refit_failed_goes_on_with_the_law_it_had(
    kind, later, tmp_path, monkeypatch
):
    bot, rounds = policy(kind), 26 if later else 18
    with monkeypatch.context() as patch:
        failing(patch, kind[2], lambda call: call == 2)
        with pytest.warns(UserWarning, match="not be refitted"):
            play(bot, 0, rounds)
    assert bot.law.id != kind[3].id
    path = pp.save(bot, tmp_path / "p")
    with monkeypatch.context() as patch:
        failing(patch, kind[2], lambda call: True)  # nothing is fitted again
        back = restored(path, kind)
    assert back.law.id == bot.law.id
    for one, two in zip(play(back, rounds, 36), play(bot, rounds, 36), strict=True):
        assert_array_equal(one.x, two.x)
        assert_array_equal(one.mean, two.mean)
    assert back.law.id == bot.law.id  # after one more refit


def test_a_policy_whose_every_refit_failed_keeps_its_first_law(kind, tmp_path, monkeypatch):
    bot = policy(kind)
    with monkeypatch.context() as patch:
        failing(patch, kind[2], lambda call: True)
        with pytest.warns(UserWarning, match="not be refitted"):
            play(bot, 0, 18)
        back = restored(pp.save(bot, tmp_path / "p"), kind)
    assert bot.law is kind[3]
    assert back.law.id == bot.law.id
    play(back, 18, 26)
    play(bot, 18, 26)
    assert back.law.id == bot.law.id != kind[3].id


def test_an_archive_refitted_with_another_custom_law_is_not_saved(tmp_path):
    law, how, _ = KINDS["custom"]
    fitted = law.fit(HISTORY, how, seed=0)
    kept = pp.GrowingArchive(HISTORY, fitted, every=8, law=custom(), inference=how)
    bot = pp.PulseUCB(fitted, w_features(1), pp.constant(1.0), archive=kept)
    with pytest.raises(pp.errors.BundleError, match="another custom law"):
        pp.save(bot, tmp_path / "p")
    assert not list(tmp_path.iterdir())
