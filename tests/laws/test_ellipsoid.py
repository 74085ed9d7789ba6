"""The ellipsoid of a linear law, and of a declared sieve: by hand, its level, saves, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro._core.sealed import read_sealed, write_sealed
from pulse_pyro.laws.ellipsoid import least_squares
from tests.policies.helpers import archive, contexts


def wide(units=40, time=8, w_dim=2, seed=0):
    return archive(units=units, time=time, w_dim=w_dim, seed=seed)


def by_hand(history, lags, variance, level):
    """Coefficients in raw units and their covariance, with a loop over clusters."""
    rows = history.rows(pp.Lags(lags))
    z = np.column_stack([np.ones(len(rows.x)), rows.x])
    inverse = np.linalg.inv(z.T @ z)
    beta = inverse @ z.T @ rows.w
    rest, (n, size) = rows.w - z @ beta, z.shape
    cluster = history.cluster[rows.at]
    each = 1 - (1 - level) / rows.w.shape[1]
    covariances = []
    for j in range(rows.w.shape[1]):
        if variance == "classical":
            covariances.append(inverse * (rest[:, j] @ rest[:, j]) / (n - size))
            continue
        meat = np.zeros((size, size))
        for c in np.unique(cluster):
            g = z[cluster == c].T @ rest[cluster == c, j]
            meat += np.outer(g, g)
        covariances.append(inverse @ meat @ inverse)
    count = len(np.unique(cluster))
    if variance == "classical":
        chi2 = size * stats.f.ppf(each, size, n - size)
    else:
        chi2 = size * (count - 1) / (count - size) * stats.f.ppf(each, size, count - size)
    return beta, covariances, np.sqrt(chi2), z


@pytest.mark.parametrize("variance", ["cluster", "classical"])
def test_mean_and_spread_are_those_by_hand(variance):
    history = wide()
    law = pp.linear_lags(2).fit(history, seed=0)
    found = law.ellipsoid(0.9, variance)
    beta, covariances, chi, z = by_hand(history, 2, variance, 0.9)
    own, mean = found.at(law, history)
    seen = np.isfinite(history.inputs(law.summary)).all(1)
    assert_allclose(mean[seen], z @ beta, rtol=1e-9, atol=1e-9)
    psi = found.psi(own[seen])
    for j, cov in enumerate(covariances):
        assert_allclose((psi[:, j] ** 2).sum(-1), ((z @ cov) * z).sum(-1), rtol=1e-6)
    assert_allclose(found.chi, chi, rtol=1e-12)
    assert found.law_id == law.id


def test_clusters_count_not_units():
    """Every unit twice under one cluster: half as many clusters, and a wider ellipsoid."""
    history = wide(units=60)
    pairs = replace(
        history, cluster=history.cluster // 2, clusters=tuple(f"c{i}" for i in range(30))
    )
    one, two = (pp.linear_lags(2).fit(each, seed=0) for each in (history, pairs))
    assert_array_equal(one.draws["coef"], two.draws["coef"])
    assert (one.squares.clusters, two.squares.clusters) == (60, 30)
    assert two.ellipsoid().chi[0] > one.ellipsoid().chi[0]


def test_blocks_of_rows_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    z, w = np.column_stack([np.ones(500), rng.normal(size=(500, 3))]), rng.normal(size=(500, 2))
    cluster = rng.integers(40, size=500)
    whole = least_squares(z, w, cluster)
    monkeypatch.setattr("pulse_pyro.laws.ellipsoid.BLOCK", 37)
    parts = least_squares(z, w, cluster)
    for name in ("centre", "inverse", "meat", "residual"):
        assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def covered(variance, unit_level, runs=300, units=40, time=5):
    """Share of archives whose ellipsoid of 95 % holds the true line, in two columns of S."""
    inside = 0
    for run in range(runs):
        rng = np.random.default_rng([run, int(10 * unit_level)])
        s = rng.normal(size=(units, time, 1))
        level = unit_level * rng.normal(size=(units, 1, 1))
        w = 0.5 + s + level + 0.5 * rng.normal(size=s.shape)
        z = np.column_stack([np.ones(s.size), s.ravel()])
        line = least_squares(z, w.reshape(-1, 1), np.repeat(np.arange(units), time))
        found = line.ellipsoid(0.95, variance=variance)
        v = np.linalg.solve(found.root[0], np.array([0.5, 1.0]) - found.centre[0])
        inside += np.linalg.norm(v) <= found.chi[0]
    return inside / runs


def test_it_holds_the_line_as_often_as_it_says_and_classical_fails_with_unit_levels():
    """Must fail: rows of a unit share a level, and are called independent."""
    error = 3 * np.sqrt(0.05 * 0.95 / 300)
    assert covered("classical", 0.0) >= 0.95 - error
    assert covered("cluster", 0.0) >= 0.95 - error - 0.01
    assert covered("cluster", 1.0) >= 0.95 - error - 0.01
    assert covered("classical", 1.0) < 0.8


def test_followed_online_it_says_the_same():
    history = wide()
    law = pp.linear_lags(2).fit(history, seed=0)
    found, s = law.ellipsoid(), contexts(1, 12, 3)
    z, mean = found.at(law, s)
    follower = law.follow()
    for t, row in enumerate(s[0]):
        follower.push(row)
        now, here = found.now(law, follower)
        assert_allclose(now[0], z[t], rtol=1e-12)
        assert_allclose(here[0], mean[t], rtol=1e-12)


def bent(units, seed):
    """W is a curve in the newest S plus a line in the one before."""
    rng, s = np.random.default_rng([seed, 9]), contexts(units, 10, seed)
    z = (s - [1.0, -100.0]) / [0.5, 20.0]
    past = np.concatenate([z[:, :1], z[:, :-1]], axis=1)
    w = np.sin(2 * z[..., :1]) + 0.5 * past[..., 1:] + 0.1 * rng.normal(size=(units, 10, 1))
    return pp.History.from_arrays(
        s,
        w,
        seen=np.ones(w.shape[:2], bool),
        units=tuple(f"{seed} {i}" for i in range(units)),
        s_names=("a", "b"),
        w_names=("w",),
    )


@pytest.fixture(scope="module")
def curve():
    return pp.gaussian_process(2).fit(bent(8, 1), pp.Laplace(60), seed=0)


@pytest.mark.parametrize("kind", ["summary", "function"])
def test_a_sieve_explains_what_the_law_leaves(curve, kind):
    """What is added to the law is the regression of its residuals on the sieve."""
    held_out = bent(40, 2)
    sieve = pp.Lags(2) if kind == "summary" else lambda x: x[:, [0, 3]]
    found = curve.ellipsoid(0.95, sieve=sieve, archive=held_out)
    x = held_out.inputs(curve.summary)
    q = x if kind == "summary" else x[:, [0, 3]]
    seen = np.isfinite(x).all(1)
    z = np.column_stack([np.ones(seen.sum()), q[seen]])
    rest = held_out.w[seen] - curve(held_out).mean()[seen]
    beta = np.linalg.lstsq(z, rest, rcond=None)[0]
    _, mean = found.at(curve, held_out)
    assert_allclose(mean[seen] - curve(held_out).mean()[seen], z @ beta, rtol=1e-7, atol=1e-9)
    assert "sieve" in found.rests_on[0]
    follower = curve.follow()
    for row in held_out.s[:3]:
        follower.push(row)
    assert_allclose(found.now(curve, follower)[1][0], mean[2], rtol=1e-9)


def test_saved_with_the_law_and_missing_in_old_ones(tmp_path):
    law = pp.linear_lags(2).fit(wide(), seed=0)
    path = pp.save(law, tmp_path / "law")
    back = pp.load(path)
    for name in ("centre", "root", "chi", "residual", "shift", "scale"):
        assert_array_equal(getattr(back.ellipsoid(), name), getattr(law.ellipsoid(), name))
    manifest, arrays = read_sealed(path)
    old = {name: value for name, value in arrays.items() if not name.startswith("squares.")}
    about = {name: manifest[name] for name in ("format", "kind", "thing")}
    write_sealed(tmp_path / "old", about, old)
    earlier = pp.load(tmp_path / "old")
    assert earlier.id == law.id
    with pytest.raises(pp.errors.ModelError, match="earlier version"):
        earlier.ellipsoid()


def refitted():
    history = wide(units=10, w_dim=1)
    law = pp.linear_lags(2).fit(history, seed=0)
    kept = pp.GrowingArchive(history, law, every=1)
    kept.reveal("a", kept.see("a", history.s[0]), np.array([0.0]))
    return kept.refit()


def repeated():
    history = wide()
    twice = np.repeat(history.s[:, :1], 2, axis=-1) * [1.0, 2.0]
    return pp.linear_lags(1).fit(replace(history, s=twice), seed=0)


REFUSALS = {
    "few clusters": (lambda: pp.linear_lags(2).fit(wide(units=14), seed=0), {}, "14 clusters"),
    "few rows": (lambda: pp.linear_lags(5).fit(wide(units=2, time=6), seed=0), {}, "rows"),
    "rank": (repeated, {}, "coefficients apart"),
    "running sums": (refitted, {}, "running sums"),
    "level": (lambda: pp.linear_lags(1).fit(wide(), seed=0), {"level": 1.5}, "level"),
    "variance": (lambda: pp.linear_lags(1).fit(wide(), seed=0), {"variance": "HC3"}, "HC3"),
    "state space": (
        lambda: pp.state_space(2, ar=1, ma=0).fit(wide(w_dim=1), seed=0, draws=20),
        {},
        "not linear",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_has_no_ellipsoid_says_why(case):
    make, options, says = REFUSALS[case]
    with pytest.raises(pp.errors.PulseError, match=says):
        make().ellipsoid(**options)


def constant(x):
    return np.ones((len(x), 1))


SIEVES = {
    "no sieve": ({}, "not linear"),
    "no archive": ({"sieve": pp.Lags(2)}, "archive="),
    "seen before": ({"sieve": pp.Lags(2), "archive": bent(8, 1)}, "has not seen"),
    "too long": ({"sieve": pp.Lags(3), "archive": bent(40, 2)}, "looks back 3 rows"),
    "no function": ({"sieve": 3, "archive": bent(40, 2)}, "a sieve is"),
    "rank": ({"sieve": constant, "archive": bent(40, 2)}, "coefficients of the sieve"),
    "shape": ({"sieve": np.sum, "archive": bent(40, 2)}, "one row of numbers each"),
    "few clusters": ({"sieve": pp.Lags(2), "archive": bent(9, 2)}, "9 clusters"),
}


@pytest.mark.parametrize("case", SIEVES)
def test_a_sieve_that_will_not_do_is_refused(curve, case):
    options, says = SIEVES[case]
    with pytest.raises(pp.errors.PulseError, match=says):
        curve.ellipsoid(**options)


def test_a_law_that_filters_takes_a_function_of_its_inputs():
    law = pp.state_space(2, ar=1, ma=0).fit(bent(20, 1), seed=0, draws=20)
    held_out = bent(40, 2)
    with pytest.raises(pp.errors.SettingError, match="keeps no rows"):
        law.ellipsoid(sieve=pp.Lags(2), archive=held_out)
    found = law.ellipsoid(sieve=lambda x: x[:, :2], archive=held_out)
    _, mean = found.at(law, held_out.grid.s[:1])
    follower = law.follow()
    for row in held_out.grid.s[0]:
        follower.push(row)
    assert_allclose(found.now(law, follower)[1][0], mean[-1], rtol=1e-9)
