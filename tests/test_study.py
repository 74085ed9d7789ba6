"""Study files: what they say, and one sentence for everything they can get wrong."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.laws.state_space import StateSpace
from tests.worlds import linear_history

TOML = """
seed = 3

[data]
file = "archive.csv"
unit = "unit"
time = "time"
observed = ["s"]
missing = ["w0"]

[law]
name = "linear_lags"
lags = 2

[inference]
kind = "exact"
draws = 500

[features]
terms = ["1", "s", "w0", "w0*a"]
actions = 2

[calibration]
level = 0.9
mode = "all"
fit = 0.4

[policy]
sigma = 0.3
theta_bound = 1.1
horizon = 2000
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("study")
    linear_history(units=6, time=8, lags=2)[0].to_frame().to_csv(made / "archive.csv", index=False)
    return made


@pytest.fixture
def study(folder):
    """Write a study, with replacements, and read it."""

    def make(*changes, text=TOML):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / "study.toml").write_text(text)
        return pp.read_study(folder / "study.toml")

    return make


def test_a_whole_study(study):
    found = study()
    history, _ = linear_history(units=6, time=8, lags=2)
    assert np.array_equal(found.history().s, history.s)
    assert np.allclose(found.history().w, history.w, rtol=1e-12)
    assert found.law() == pp.linear_lags(2)
    assert found.recipe == pp.Recipe(pp.Exact(500), 0.9, "all", 0.4, pp.BandMethod())
    assert found.stakes() == pp.Stakes(2000, 0.3, 1.1, 1.0, 0.05)
    assert found.seed == 3


def test_defaults_are_those_of_the_library(study):
    text = TOML.split("[inference]")[0].replace("seed = 3", "")
    found = study(text=text)
    assert (found.seed, found.inference) == (0, None)
    assert found.recipe == pp.Recipe(band=pp.BandMethod())


def test_terms_are_products_of_columns_and_the_action():
    terms = ["1", "s", "w", " w * a", "s*s*w", "a", "1*u"]
    made = pp.features_from_terms(terms, 3, observed=["s", "u"], missing=["w"])
    rng = np.random.default_rng(0)
    s, w = rng.standard_normal((5, 2)), rng.standard_normal((5, 1))
    for a in range(3):
        one, x = np.ones(5), s[:, 0]
        wanted = [one, x, w[:, 0], w[:, 0] * a, x * x * w[:, 0], a * one, s[:, 1]]
        assert np.allclose(made(s, w, a), np.column_stack(wanted), rtol=1e-15)
    assert made.names == ("1", "s", "w", "w*a", "s*s*w", "a", "1*u")


@pytest.mark.parametrize(
    ("name", "count", "wanted"),
    [
        ("gaussian_process", "window", pp.gaussian_process(pp.Window(2, np.mean))),
        ("neural_density", "lags", pp.neural_density(2)),
        ("state_space", "lags", pp.state_space(2)),
    ],
)
def test_every_built_in_law_can_be_named(study, name, count, wanted):
    found = study(("linear_lags", name), ("lags = 2", f"{count} = 2")).law()
    assert found == wanted
    assert isinstance(found, StateSpace) == (name == "state_space")


def test_a_law_of_a_file_keeps_its_summary_unless_told(study, folder):
    pp.new_law(folder / "mine.py")
    for more, lags in (("", 2), ("\nlags = 4", 4)):
        found = study(('name = "linear_lags"\nlags = 2', f'file = "mine.py"{more}')).law()
        assert found.summary == pp.Lags(lags)


PHI = "import numpy as np\ndef phi(s, w, action):\n    return np.column_stack([s, w * action])\n"


@pytest.mark.parametrize(
    "code",
    [PHI + 'ACTIONS = 2\nNAMES = ("s", "w*a")\n',
     PHI + 'import pulse_pyro as pp\nfeatures = pp.Features(phi, 2, ("s", "w*a"))\n'],
)  # fmt: skip
def test_features_of_a_file(study, folder, code):
    (folder / "phi.py").write_text(code)
    found = study(('terms = ["1", "s", "w0", "w0*a"]\nactions = 2', 'file = "phi.py"')).features()
    assert (found.actions, found.names) == (2, ("s", "w*a"))
    assert found(np.ones((1, 1)), np.full((1, 1), 3.0), 1).tolist() == [[1.0, 3.0]]


@pytest.mark.parametrize(
    ("lines", "sigma"),
    [("reward_low = 0.0\nreward_high = 1", 0.5), ("reward_sd = 3.0\ncontext_sd = 4.0", 5.0)],
)
def test_the_noise_in_other_words(study, lines, sigma):
    assert study(("sigma = 0.3", lines)).stakes().sigma == sigma


def test_dates_are_read_as_dates(study, folder):
    frame = linear_history(units=4, time=5, lags=2)[0].to_frame()
    days = np.datetime64("2024-02-27") + frame["time"].to_numpy().astype("timedelta64[D]")
    frame.assign(time=days.astype(str)).to_csv(folder / "dated.csv", index=False)
    assert study(("archive.csv", "dated.csv")).history().seen.shape == (4, 5)
    frame.assign(time="monday").to_csv(folder / "dated.csv", index=False)
    with pytest.raises(pp.DataError, match="neither whole numbers nor dates"):
        study(("archive.csv", "dated.csv")).history()


def test_parquet_by_its_ending(study, folder, monkeypatch):
    import pandas as pd

    frame = linear_history(units=4, time=5, lags=2)[0].to_frame()
    (folder / "archive.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    assert len(study(("archive.csv", "archive.parquet")).history().units) == 4

    def absent(path):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", absent)
    with pytest.raises(pp.DataError, match="needs pyarrow"):
        study(("archive.csv", "archive.parquet")).history()


BAD = [
    ("[policy]", "[polcy]", "no key 'polcy'; did you mean 'policy'"),
    ("horizon", "horizons", r"\[policy\] has no key 'horizons'; did you mean 'horizon'"),
    ("horizon = 2000", "", r"\[policy\] needs 'horizon'; add horizon = 1000"),
    ("horizon = 2000", "horizon = 2.5", "should look like 1000, but 2.5 came"),
    ("horizon = 2000", "horizon = 0", r"\[policy\] Stakes: horizon must be a whole number >= 1"),
    ("sigma = 0.3", "", "needs one of sigma = 0.5 or reward_low"),
    ("sigma = 0.3", "sigma = 0.3\nreward_sd = 1.0\ncontext_sd = 1.0", "came together"),
    ("sigma = 0.3", "reward_low = 0.0", "needs 'reward_high'"),
    ("sigma = 0.3", "context_sd = 1.0", "needs 'reward_sd'"),
    ("sigma = 0.3", "reward_low = 1.0\nreward_high = 0.0", "high - low must be"),
    ("sigma = 0.3", "sigma = true", "should look like 0.5, but True came"),
    ("seed = 3", 'seed = "three"', "study.toml seed should look like 0"),
    ("level = 0.9", "level = 95", r"\[calibration\] Recipe: level must .* mean 0.95"),
    ('mode = "all"', 'mode = "al"', "did you mean 'all'"),
    ("fit = 0.4", "fit = 1.0", "Recipe: fit must be a share"),
    ("fit = 0.4", 'band = "splin"', "did you mean 'spline'"),
    ('kind = "exact"', 'kind = "exakt"', "did you mean 'exact'"),
    ("draws = 500", "steps = 500", "steps is not for exact"),
    ("linear_lags", "linear_lag", "did you mean 'linear_lags'"),
    ("lags = 2", "", "needs one of lags = 3 or window = 3; none came"),
    ("lags = 2", "lags = 2\nwindow = 2", "lags and window came together"),
    ("lags = 2", "lags = 0", "Lags: count must be"),
    ('name = "linear_lags"\nlags', 'name = "state_space"\nwindow', "use lags, not window"),
    ('"archive.csv"', '"archiv.csv"', "no file .*archiv.csv; did you mean 'archive.csv'"),
    ('observed = ["s"]', "observed = []", r"should look like \[\"s\"\]"),
    ('observed = ["s"]', "", "needs 'observed'"),
    ("[data]", "data = 3\n[inference.data]", "must be a section|no key 'data'"),
    ('"w0*a"', '"w*a"', r"\[features\] features: 'w' in term .*; did you mean 'w0'"),
    ('"w0*a"', '"w0*"', "empty factor"),
    ('"w0*a"', '"a*w0", "w0*a"', "stands twice"),
    ("actions = 2", "actions = 1", "actions must be a whole number >= 2"),
    ("actions = 2", "", "needs 'actions'"),
    ("[law]", "[law", "not valid TOML"),
]


@pytest.mark.parametrize(("old", "new", "words"), BAD)
def test_every_slip_is_one_sentence_when_the_file_is_read(study, old, new, words):
    with pytest.raises(pp.PulseError, match=words) as caught:
        study((old, new))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("section", "ask"), [("features", "features"), ("policy", "stakes")])
def test_sections_are_missed_only_where_they_are_asked_for(study, section, ask):
    found = study(text=TOML.split("[features]")[0])
    with pytest.raises(pp.SettingError, match=rf"no section \[{section}\]; add it, with"):
        getattr(found, ask)()


@pytest.mark.parametrize(
    ("section", "text"), [("data", "[law" + TOML.split("[law")[1]), ("law", TOML.split("[law")[0])]
)
def test_data_and_law_are_always_needed(study, section, text):
    with pytest.raises(pp.SettingError, match=rf"no section \[{section}\]; add it, with"):
        study(text=text)


@pytest.mark.parametrize(
    ("code", "words"),
    [("x = 1", "defines no 'phi'"), ("def phy(s, w, a): ...", "did you mean 'phy'"),
     (PHI + "NAMES = ('a', 'b')", "defines no 'ACTIONS'"), ("phi = ACTIONS = NAMES = 2", "'phi'"),
     (PHI + "ACTIONS = 1\nNAMES = ('a', 'b')", "actions must be"), ("1 / 0", "line 1, raised"),
     ("features = 3", "'features' must be Features")],
)  # fmt: skip
def test_faulty_feature_files(tmp_path, code, words):
    (tmp_path / "phi.py").write_text(code)
    with pytest.raises(pp.PulseError, match=words):
        pp.features_from_file(tmp_path / "phi.py")
    with pytest.raises(pp.FeatureError, match=r"no file .*did you mean 'phi.py'"):
        pp.features_from_file(tmp_path / "phy.py")


@pytest.mark.parametrize(
    ("terms", "column"), [("w", "w"), ([], "w"), ([1], "w"), ("1", "a"), ("1", "1"), ("1", "x*y")]
)
def test_terms_must_be_texts_of_columns_that_do_not_read_like_terms(terms, column):
    with pytest.raises(pp.FeatureError, match=r"cannot stand in a term|must be"):
        pp.features_from_terms(terms, 2, observed=["s"], missing=[column])


def test_a_study_that_is_not_there(folder, study):
    study()
    with pytest.raises(pp.SettingError, match=r"no file .*did you mean 'study.toml'"):
        pp.read_study(folder / "studi.toml")
