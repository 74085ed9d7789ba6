"""A growing policy whose refit failed, or that is handed another history, when it is restored."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro.laws.running import RunningLinear
from tests.streaming_worlds import archive, contexts, w_features
from tests.test_growing import custom

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


def failing(patch, fitter, bad):
    """Let fits fail, those that bad() names by their number."""
    plain, calls = fitter.fit, []

    def fit(self, *args, **more):
        calls.append(1)
        if bad(len(calls)):
            raise pp.ConvergenceError("no way")
        return plain(self, *args, **more)

    patch.setattr(fitter, "fit", fit)


@pytest.mark.parametrize("later", [False, True], ids=["last", "before a good one"])
@pytest.mark.parametrize("fails", [False, True], ids=["works again", "fails again"])
def test_a_policy_whose_refit_failed_goes_on_with_the_law_it_had(
    kind, later, fails, tmp_path, monkeypatch
):
    bot, rounds = policy(kind), 26 if later else 18
    with monkeypatch.context() as patch:
        failing(patch, kind[2], lambda call: call == 2)
        with pytest.warns(UserWarning, match="not be refitted"):
            play(bot, 0, rounds)
    assert bot.law.law_id != kind[3].law_id
    path = pp.save_policy(bot, tmp_path / "p")
    with monkeypatch.context() as patch:
        if fails:  # what failed then is not even tried
            failing(patch, kind[2], lambda call: call > 1 + later)
        back = pp.load_policy(path, policy(kind))
    assert back.law.law_id == bot.law.law_id
    for one, two in zip(play(back, rounds, 36), play(bot, rounds, 36), strict=True):
        assert_array_equal(one.x, two.x)
        assert_array_equal(one.mean, two.mean)
    assert back.law.law_id == bot.law.law_id  # after one more refit


def test_a_policy_whose_every_refit_failed_keeps_its_first_law(kind, tmp_path, monkeypatch):
    bot = policy(kind)
    with monkeypatch.context() as patch:
        failing(patch, kind[2], lambda call: True)
        with pytest.warns(UserWarning, match="not be refitted"):
            play(bot, 0, 18)
        back = pp.load_policy(pp.save_policy(bot, tmp_path / "p"), policy(kind))
    assert back.law is bot.law is kind[3]
    play(back, 18, 26)
    play(bot, 18, 26)
    assert back.law.law_id == bot.law.law_id != kind[3].law_id


CHANGES = {
    "S": lambda h: replace(h, s=np.where(np.arange(9)[:, None] == 4, h.s + 1e-9, h.s)),
    "W": lambda h: replace(h, w=h.w + 1e-9),
    "rows that are seen": lambda h: replace(
        h, seen=np.arange(9) < np.array([9, 9, 8])[:, None],
        s=np.where((np.arange(9) < np.array([9, 9, 8])[:, None])[..., None], h.s, np.nan),
        w=np.where((np.arange(9) < np.array([9, 9, 8])[:, None])[..., None], h.w, np.nan),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_another_history_of_the_same_names_is_refused(what, tmp_path):
    law, how, fitter = KINDS["linear"]
    kind = (law, how, fitter, law.fit(HISTORY, how, seed=0))
    bot = policy(kind)
    play(bot, 0, 10)
    path = pp.save_policy(bot, tmp_path / "p")
    with pytest.raises(pp.BundleError, match=r"archive.*history"):
        pp.load_policy(path, policy(kind, CHANGES[what](HISTORY)))
    same = replace(HISTORY, s=HISTORY.s.copy(), w=np.asfortranarray(HISTORY.w))
    assert pp.load_policy(path, policy(kind, same)).law.law_id == bot.law.law_id
