"""Filters against what can be worked out otherwise: all paths by hand, one dense Gaussian."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro import StepLaw
from pulse_pyro._pyro.filters import Kalman, StepRows, effective, ready, resampled, systematic
from pulse_pyro._pyro.filters import marginal as marginal_of
from pulse_pyro._pyro.sandbox import sandbox
from tests.laws.step_programs import (
    LEVEL,
    LEVEL_TRUTH,
    REGIME,
    REGIME_TRUTH,
    at_truth,
    level_archive,
    masked,
    regime_archive,
)


def log_marginal(law, history, truth):
    """log p(archive | truth) as the fit works it out."""
    program, card = law._checked(history)
    with sandbox(0, "test"), torch.no_grad():
        p = program.parameters({n: torch.tensor(v)[None].double() for n, v in truth.items()})
        blocks = []
        for block in history.blocks():
            y = np.concatenate([block.s[..., program.sampled_at], block.w], -1)
            rows = StepRows(torch.as_tensor(program.windows(block.s)), torch.as_tensor(y))
            blocks.append(ready(program, p, rows, list(history.units)))
        return float(marginal_of(program, p, card.state, blocks))


# The forward algorithm: a sum over all 3^T paths, written out.


def by_all_paths(s, w, truth):
    """Return (p(calls, w), E[w_t | calls_1:t] of the last t) over all paths of one short series."""
    start, move = np.array([0.5, 0.3, 0.2]), np.array(truth["move"])
    time = len(s)
    calls = stats.poisson.pmf(s[:, :1], truth["rate"])  # (time, state)
    chance = 1.0 / (1.0 + np.exp(-np.array(truth["logit"]) - s[:, 1:]))
    seen_s = np.where(np.isnan(s[:, :1]), 1.0, calls)
    seen_w = np.where(np.isnan(w), 1.0, np.where(w == 1, chance, 1.0 - chance))
    total, top, bottom = 0.0, 0.0, 0.0
    for path in itertools.product(range(3), repeat=time + 1):
        prob, given = start[path[0]], 1.0
        for t in range(time):
            prob *= move[path[t], path[t + 1]] * seen_s[t, path[t + 1]]
            given *= seen_w[t, path[t + 1]]
        total, top = total + prob * given, top + prob * chance[-1, path[-1]]
        bottom += prob
    return total, top / bottom


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_forward_algorithm_is_the_sum_over_all_paths(share):
    history, _ = regime_archive(units=3, time=5)
    history = masked(history, share)
    w = history.w.copy()
    w[[1, 7]] = np.nan
    history = replace(history, w=w)
    law = StepLaw(*REGIME)
    assert law.check(history).state == "discrete"
    grid = history.grid
    each = [by_all_paths(grid.s[i], grid.w[i], REGIME_TRUTH) for i in range(3)]
    found = log_marginal(law, history, REGIME_TRUTH)
    assert_allclose(found, sum(np.log(p) for p, _ in each), rtol=1e-10)
    fitted = at_truth(law, history, REGIME_TRUTH)
    mean = history.on_grid(fitted(history).mean())
    for t in range(5):
        short = [
            by_all_paths(grid.s[i, : t + 1], grid.w[i, : t + 1], REGIME_TRUTH)[1] for i in range(3)
        ]
        assert_allclose(mean[:, t, 0], short, rtol=1e-10)


# The Kalman filter: the states of a series and all columns as one dense Gaussian vector.


def dense(s, w, truth, mask_w=False):
    """Return (log p(pulse, w), E[w_t | pulse_1:t], its variance) from one joint Gaussian."""
    time = len(s)
    mean, cov = np.empty(time), np.empty((time, time))
    m, v = 0.5, 1.5**2
    for t in range(time):
        m, v = truth["keep"] * m + 0.1, truth["keep"] ** 2 * v + 0.25
        mean[t] = m
        cov[t, t:] = cov[t:, t] = v * truth["keep"] ** np.arange(time - t)
    both = np.concatenate([2.0 * np.eye(time), np.eye(time)])
    noise = np.repeat([0.64, truth["sd"] ** 2], time)
    loc = both @ mean + np.concatenate([-np.ones(time), truth["slope"] * s[:, 1]])
    full = both @ cov @ both.T + np.diag(noise)
    y = np.concatenate([s[:, 0], w[:, 0]])
    seen = ~np.isnan(y)
    log = stats.multivariate_normal(loc[seen], full[np.ix_(seen, seen)]).logpdf(y[seen])
    answers = []
    for t in range(time):
        known = np.flatnonzero(seen[: t + 1])
        at = time + t
        gain = np.linalg.solve(full[np.ix_(known, known)], full[known, at])
        off = y[known] - loc[known]
        answers.append((loc[at] + off @ gain, full[at, at] - full[at, known] @ gain))
    return log, np.array(answers)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
def test_the_kalman_filter_is_the_dense_gaussian(share):
    history, _ = level_archive(units=4, time=15)
    history = masked(history, share)
    w = history.w.copy()
    w[[0, 9, 31]] = np.nan
    history = replace(history, w=w)
    law = StepLaw(*LEVEL)
    assert law.check(history).state == "gaussian"
    grid = history.grid
    each = [dense(grid.s[i], grid.w[i], LEVEL_TRUTH) for i in range(4)]
    assert_allclose(log_marginal(law, history, LEVEL_TRUTH), sum(e[0] for e in each), rtol=1e-8)
    fitted = at_truth(law, history, LEVEL_TRUTH)(history)
    oracle = np.concatenate([e[1] for e in each])
    assert_allclose(fitted.mean()[:, 0], oracle[:, 0], rtol=1e-8)
    assert_allclose(fitted.covariance()[:, 0, 0], oracle[:, 1], rtol=1e-8)


def test_systematic_resampling_keeps_every_share_to_one_particle():
    with sandbox(0, "resampling"):
        log = torch.log(torch.tensor([[0.5, 0.25, 0.2, 0.05], [0.1, 0.1, 0.1, 0.7]]))
        index = systematic(log, 40)
        counts = torch.stack([(index == k).sum(-1) for k in range(4)], -1)
        assert ((counts - 40 * torch.exp(log)).abs() < 1.0).all()
        assert_allclose(effective(log)[0], 1.0 / (0.25 + 0.0625 + 0.04 + 0.0025), rtol=1e-12)
        z = torch.arange(4.0).expand(2, 4)
        kept, weight = resampled(z, torch.tensor([[0.0, 0.1, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]]))
        assert_allclose(kept[0], z[0])  # enough of them count: as they were
        assert (kept[1] == 0.0).all()
        assert (weight[1] == 0.0).all()


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_particles_come_near_the_kalman_filter(share):
    history, _ = level_archive(units=40, time=20, seed=3)
    history = masked(history, share)
    exact = at_truth(StepLaw(*LEVEL), history, LEVEL_TRUTH)(history)
    assert exact.exact
    sd = np.sqrt(exact.covariance()[:, 0] - LEVEL_TRUTH["sd"] ** 2)
    for count in (500, 8000):  # a wrong filter would not come nearer and nearer
        law = StepLaw(*LEVEL, state="particles", particles=count)
        rough = at_truth(law, history, LEVEL_TRUTH)(history)
        assert not rough.exact
        away = (rough.mean() - exact.mean()) / sd
        assert np.sqrt((away**2).mean()) < 3.0 / np.sqrt(count)
        assert abs(away.mean()) < 0.3 / np.sqrt(count)


def test_a_filter_of_several_draws_is_each_of_them():
    history, _ = level_archive(units=2, time=6)
    law = StepLaw(*LEVEL)
    program = law._checked(history)[0]
    values = {"keep": [0.5, 0.9], "slope": [1.0, -1.0], "sd": [0.1, 2.0]}
    with sandbox(0, "draws"), torch.no_grad():
        past = torch.as_tensor(program.windows(history.grid.s))
        rows = StepRows(past, torch.tensor(history.grid.s[..., :1]))

        def run(at):
            p = program.parameters({n: torch.tensor(v).double()[at] for n, v in values.items()})
            one = Kalman(program, p, len(at))
            return one.go(one.start(2), rows, ("pulse",))

        both, alone = run([0, 1]), [run([i]) for i in range(2)]
        for i in range(2):
            assert_allclose(both[1][i], alone[i][1][0], rtol=1e-12)
            assert_allclose(both[0][-1].first[i], alone[i][0][-1].first[0], rtol=1e-12)
