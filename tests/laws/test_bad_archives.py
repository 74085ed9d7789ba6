"""A custom law on archives and models that are odd: one sentence that says what and where."""

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro.diagnostics.convergence import convergence

RNG = np.random.default_rng(0)
S = RNG.standard_normal((60, 2))
TABLE = pd.DataFrame(
    {
        "who": np.repeat([f"person {i}" for i in range(6)], 10),
        "day": np.tile(np.arange(10), 6),
        "s1": S[:, 0],
        "s2": S[:, 1],
        "mood": S[:, 0] + 0.3 * RNG.standard_normal(60),
    }
)


def archive(table=TABLE, **changes):
    roles = {"unit": "who", "time": "day", "observed": ["s1", "s2"], "missing": ["mood"]}
    return pp.History.from_frame(table.assign(**changes), **roles)


def site(x, w, loc, scale):
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("mood", dist.Normal(loc, scale), obs=(w or {}).get("mood"))


def line(x, w=None, width=10.0):
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), width).to_event(1))
    site(x, w, a + (x * b).sum(-1), pyro.sample("sd", dist.LogNormal(0.0, 2.0)))


def wide(x, w=None):
    line(x, w, width=1e9)


def nan_far_out(x, w=None):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    site(x, w, torch.where(x[..., 0] > 50.0, torch.log(-a.abs()), a), torch.tensor(1.0))


def negative_far_out(x, w=None):
    site(x, w, pyro.sample("a", dist.Normal(0.0, 1.0)), 50.0 - x[..., 0])


def law(model):
    return pp.Law(model, pp.data.Identity())


OUTLIER = np.where(np.arange(60) == 40, 60.0, S[:, 0])
CASES = {  # model, changes to the archive, the words that matter
    "constant W": (line, {"mood": 1.0}, "'mood' is 1 in all 60 rows"),
    "W without noise": (line, {"mood": 2.0 * S[:, 0] + 1.0}, "without noise"),
    "columns that are copies": (wide, {"s2": S[:, 0]}, "copies of each other"),
    "a column that is constant": (wide, {"s2": 3.0}, "input 1 is 3 in all rows"),
    "NaN in one row": (nan_far_out, {"s1": OUTLIER}, "loc is NaN or infinite"),
    "negative sd in one row": (negative_far_out, {"s1": OUTLIER}, "scale is not positive"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_fitted_is_said_in_a_sentence(case):
    model, changes, words = CASES[case]
    with pytest.raises(ModelError) as caught:
        law(model).fit(archive(**changes), pp.Laplace(draws=20), seed=0)
    assert words in str(caught.value)


def test_one_unit_one_row_and_text_ids_are_no_mistakes():
    for table in (TABLE[:10], TABLE[:1], TABLE):
        fitted = law(line).fit(archive(table), pp.Laplace(draws=20), seed=0)
        assert np.isfinite(fitted(archive(table)).mean()).all()
    assert fitted.units[0] == "person 0"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: archive(TABLE[:0]), "no rows"),
        (lambda: archive(mood=np.nan), "only NaN"),
        (lambda: archive(mood=np.where(np.arange(60) == 3, np.inf, 0.0)), "infinite at row 3"),
        (lambda: archive(pd.concat([TABLE, TABLE[["mood"]]], axis=1)[:5].copy()), "twice"),
        (lambda: law(line).fit(TABLE, seed=0), "History was expected"),
        (lambda: law(line).fit(S, seed=0), "History was expected"),
    ],
)
def test_what_is_no_archive_is_refused(call, words):
    with pytest.raises(DataError, match=words):
        call()


@pytest.mark.parametrize("model", [3, "models/mine.py", {"a": 1}])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(SettingError, match="def model"):
        law(model)


@pytest.mark.parametrize("model", [lambda: None, lambda x: None, lambda x, w, more: None])
def test_a_model_of_other_arguments_is_told_how_to_begin(model):
    with pytest.raises(PulseError, match=r"def model\(x, w=None\)|obs=w.get"):
        law(model).check(archive())


def test_an_infinite_context_is_refused_with_its_place():
    fitted = law(line).fit(archive(), pp.Laplace(draws=20), seed=0)
    s = np.zeros((2, 3, 2))
    s[1, 2, 0] = np.inf
    with pytest.raises(DataError, match="row 2 of series 1, column 's1'"):
        fitted(s)
    with pytest.raises(DataError, match="row 2 of series 1, column 's1'"):
        pp.linear_lags(1).fit(archive(), seed=0)(s)


# W that is seen in part.

PAIR = TABLE.assign(slept=(S[:, 0] + RNG.standard_normal(60) > 0).astype(float))
ODD = np.arange(60) % 2 == 1


def pair(**changes):
    roles = {"unit": "who", "time": "day", "observed": ["s1", "s2"], "missing": ["mood", "slept"]}
    return pp.History.from_frame(PAIR.assign(**changes), **roles)


def chained(x, w=None):
    """Mood, and sleep given the mood."""
    w = w or {}
    a, b = (pyro.sample(name, dist.Normal(0.0, 2.0)) for name in "ab")
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mood = pyro.sample("mood", dist.Normal(a + x[..., 0], 0.5), obs=w.get("mood"))
        pyro.sample("slept", dist.Bernoulli(logits=b * mood), obs=w.get("slept"))


def in_one_site(x, w=None):
    a = pyro.sample("a", dist.Normal(0.0, 2.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = (a + x[..., 0])[..., None].expand(*(a + x[..., 0]).shape, 2)
        pyro.sample("w", dist.Normal(loc, 1.0).to_event(1), obs=w)


def masked_by_hand(x, w=None, seen=None):
    a = pyro.sample("a", dist.Normal(0.0, 2.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = (a + x[..., 0])[..., None].expand(*(a + x[..., 0]).shape, 2)
        noise = dist.Normal(loc, 1.0)
        noise = noise if seen is None else noise.mask(seen)
        pyro.sample("w", noise.to_event(1), obs=w)


APART = {"mood": np.where(ODD, np.nan, S[:, 0]), "slept": np.where(ODD, 1.0, np.nan)}
ONE_RECORDED = pp.History.from_arrays(
    S.reshape(6, 10, 2),
    np.stack([S[:, 0], np.full(60, np.nan)], -1).reshape(6, 10, 2),
    w_names=["mood", "slept"],
)
NEVER_WHOLE = {
    "linear": pp.linear_lags(1),
    "filtered": pp.state_space(1, ar=1, ma=0),
    "mixed": pp.laws.mixed_lags(1, {"slept": "bernoulli"}),
    "custom": law(in_one_site),
}


def test_a_column_never_seen_with_the_one_it_is_conditioned_on_is_refused():
    words = r"'slept' is conditioned on mood.*'mood' is NaN in row 1, unit 'person 0', step 1"
    with pytest.raises(DataError, match=words):
        law(chained).fit(pair(**APART), pp.Laplace(draws=20), seed=0)
    some = dict(APART, mood=np.where(np.arange(60) % 3 == 1, np.nan, S[:, 0]))
    fitted = law(chained).fit(pair(**some), pp.Laplace(draws=20), seed=0)
    assert fitted.record.quality.get("partly_seen") is None  # each site is masked on its own


@pytest.mark.parametrize("name", NEVER_WHOLE)
def test_w_that_is_never_whole_is_refused_with_its_column_and_place(name):
    words = "some of W, but none has all.*'slept' is NaN at unit 'person 0', step 0"
    with pytest.raises(DataError, match=words):
        NEVER_WHOLE[name].fit(pair(**APART), seed=0)
    with pytest.raises(DataError, match="'slept' is never seen"):
        NEVER_WHOLE[name].fit(ONE_RECORDED, seed=0)


def test_a_column_that_is_masked_by_hand_must_be_recorded_somewhere():
    with pytest.raises(DataError, match="'slept' is never recorded"):
        law(masked_by_hand).fit(ONE_RECORDED, pp.Laplace(draws=20), seed=0)


@pytest.mark.parametrize("name", NEVER_WHOLE)
def test_rows_that_are_left_out_for_a_part_of_w_are_told_of(name):
    history = pair(slept=np.where(ODD, np.nan, PAIR["slept"]))
    fitted = NEVER_WHOLE[name].fit(history, seed=0)
    assert fitted.record.quality["partly_seen"] == pytest.approx(0.5)
    (check,) = (each for each in convergence(fitted.record) if each.name == "partly_seen")
    assert check.verdict == "warn"
    assert "partly_seen" not in NEVER_WHOLE[name].fit(pair(), seed=0).record.quality
