"""Study files: what they say, and one sentence for everything they can get wrong."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.laws.filtering import StateSpace
from tests.helpers import linear_history
from tests.study.helpers import write_study

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
        return pp.study.read_study(folder / "study.toml")

    return make


def test_a_whole_study(study):
    found = study()
    history, _ = linear_history(units=6, time=8, lags=2)
    assert np.array_equal(found.history().s, history.s)
    assert np.allclose(found.history().w, history.w, rtol=1e-12)
    assert found.law() == pp.linear_lags(2)
    assert found.recipe == pp.calibration.Recipe(
        pp.Exact(500), 0.9, "all", 0.4, pp.bands.BandMethod()
    )
    assert found.stakes() == pp.calibration.Stakes(2000, 0.3, 1.1, 1.0, 0.05)
    assert found.seed == 3
    assert (found.splits, found.misfit, found.theta_bound) == (0, False, 1.1)
    asked = study(("level = 0.9", "level = 0.9\nsplits = 5\nmisfit = true"))
    assert (asked.splits, asked.misfit) == (5, True)
    assert asked.recipe == found.recipe


def test_defaults_are_those_of_the_library(study):
    text = TOML.split("[inference]")[0].replace("seed = 3", "")
    found = study(text=text)
    assert (found.seed, found.inference) == (0, None)
    assert found.recipe == pp.calibration.Recipe(band=pp.bands.BandMethod())


def test_terms_are_products_of_columns_and_the_action():
    terms = ["1", "s", "w", " w * a", "s*s*w", "a", "1*u"]
    made = pp.terms(terms, 3, observed=["s", "u"], missing=["w"])
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
    pp.laws.new_law(folder / "mine.py")
    for more, lags in (("", 2), ("\nlags = 4", 4)):
        found = study(('name = "linear_lags"\nlags = 2', f'file = "mine.py"{more}')).law()
        assert found.summary == pp.Lags(lags)


PHI = "import numpy as np\ndef phi(s, w, action):\n    return np.column_stack([s, w * action])\n"


@pytest.mark.parametrize(
    "code",
    [
        PHI + 'ACTIONS = 2\nNAMES = ("s", "w*a")\n',
        PHI + 'import pulse_pyro as pp\nfeatures = pp.Features(phi, 2, ("s", "w*a"))\n',
    ],
)
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
    assert study(("archive.csv", "dated.csv")).history().grid.seen.shape == (4, 5)
    frame.assign(time="monday").to_csv(folder / "dated.csv", index=False)
    with pytest.raises(pp.errors.DataError, match="neither whole numbers nor dates"):
        study(("archive.csv", "dated.csv")).history()


def test_parquet_by_its_ending(study, folder, monkeypatch):
    frame = linear_history(units=4, time=5, lags=2)[0].to_frame()
    (folder / "archive.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    assert len(study(("archive.csv", "archive.parquet")).history().units) == 4

    def absent(path):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", absent)
    with pytest.raises(pp.errors.DataError, match="needs pyarrow"):
        study(("archive.csv", "archive.parquet")).history()


BAD = [
    ("[policy]", "[polcy]", "no key 'polcy'; did you mean 'policy'"),
    ("horizon", "horizons", r"\[policy\] has no key 'horizons'; did you mean 'horizon'"),
    ("horizon = 2000", "", r"\[policy\] needs 'horizon'; add horizon = 1000"),
    ("horizon = 2000", "horizon = 2.5", "should look like 1000, but got 2.5"),
    ("horizon = 2000", "horizon = 0", r"\[policy\] Stakes: horizon must be a whole number >= 1"),
    ("sigma = 0.3", "", "needs one of sigma = 0.5 or reward_low"),
    ("sigma = 0.3", "sigma = 0.3\nreward_sd = 1.0\ncontext_sd = 1.0", "are given together"),
    ("sigma = 0.3", "reward_low = 0.0", "needs 'reward_high'"),
    ("sigma = 0.3", "context_sd = 1.0", "needs 'reward_sd'"),
    ("sigma = 0.3", "reward_low = 1.0\nreward_high = 0.0", "high - low must be"),
    ("sigma = 0.3", "sigma = true", "should look like 0.5, but got True"),
    ("seed = 3", 'seed = "three"', "study.toml seed should look like 0"),
    ("level = 0.9", "level = 0.9\nsplits = 1", "splits must be a whole number >= 2"),
    ("level = 0.9", "level = 0.9\nsplits = true", "splits should look like 5, but got True"),
    ("level = 0.9", "level = 0.9\nmisfit = 1", "misfit should look like true, but got 1"),
    ("level = 0.9", "level = 95", r"\[calibration\] Recipe: level must .* mean 0.95"),
    ('mode = "all"', 'mode = "al"', "did you mean 'all'"),
    ("fit = 0.4", "fit = 1.0", "Recipe: fit must be a share"),
    ("fit = 0.4", 'band = "splin"', "did you mean 'spline'"),
    ('kind = "exact"', 'kind = "exakt"', "did you mean 'exact'"),
    ("draws = 500", "steps = 500", "steps is not for exact"),
    ("linear_lags", "linear_lag", "did you mean 'linear_lags'"),
    ("lags = 2", "", "needs one of lags = 3 or window = 3; none is given"),
    ("lags = 2", "lags = 2\nwindow = 2", "lags and window are given together"),
    ("lags = 2", "lags = 0", "Lags: count must be"),
    ('name = "linear_lags"\nlags', 'name = "state_space"\nwindow', "number of lags"),
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
    with pytest.raises(pp.errors.SettingError, match=rf"no section \[{section}\]; add it, with"):
        getattr(found, ask)()


@pytest.mark.parametrize(
    ("section", "text"), [("data", "[law" + TOML.split("[law")[1]), ("law", TOML.split("[law")[0])]
)
def test_data_and_law_are_always_needed(study, section, text):
    with pytest.raises(pp.errors.SettingError, match=rf"no section \[{section}\]; add it, with"):
        study(text=text)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = 1", "defines no 'phi'"),
        ("def phy(s, w, a): ...", "did you mean 'phy'"),
        (PHI + "NAMES = ('a', 'b')", "defines no 'ACTIONS'"),
        ("phi = ACTIONS = NAMES = 2", "'phi'"),
        (PHI + "ACTIONS = 1\nNAMES = ('a', 'b')", "actions must be"),
        ("1 / 0", "line 1, raised"),
        ("features = 3", "'features' must be Features"),
    ],
)
def test_faulty_feature_files(tmp_path, code, words):
    (tmp_path / "phi.py").write_text(code)
    with pytest.raises(pp.PulseError, match=words):
        pp.features.features_from_file(tmp_path / "phi.py")
    with pytest.raises(pp.errors.FeatureError, match=r"no file .*did you mean 'phi.py'"):
        pp.features.features_from_file(tmp_path / "phy.py")


@pytest.mark.parametrize(
    ("terms", "column"), [("w", "w"), ([], "w"), ([1], "w"), ("1", "a"), ("1", "1"), ("1", "x*y")]
)
def test_terms_must_be_texts_of_columns_that_do_not_read_like_terms(terms, column):
    with pytest.raises(pp.errors.FeatureError, match=r"cannot stand in a term|must be"):
        pp.terms(terms, 2, observed=["s"], missing=[column])


def test_a_study_that_is_not_there(folder, study):
    study()
    with pytest.raises(pp.errors.SettingError, match=r"no file .*did you mean 'study.toml'"):
        pp.study.read_study(folder / "studi.toml")


# --- kinds of columns, and clusters -------------------------------------------------------------

CITIES = ("Rome", "Paris", "New York")
KINDS = 'kinds = {city = "categorical", hour = "clock 24"}'
TYPED = (
    ('"archive.csv"', '"typed.csv"'),
    ('["s"]', '["s", "city", "hour"]'),
    ('missing = ["w0"]', 'missing = ["w0"]\n' + KINDS),
    ('"w0*a"]', '"city[Paris]", "city[Rome]*a", "hour[sin]*w0"]'),
)


def typed_frame(units=("1", "01", "001", "2", "3", "4"), steps=5):
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-05-30") + np.arange(steps)
    return pd.DataFrame(
        [
            (unit, day, CITIES[i % 3], f"0{i % 2}", hour, *rng.standard_normal(2))
            for i, unit in enumerate(units)
            for hour, day in zip((3.0, 6.0, 12.0, 18.0, np.nan), days.astype(str), strict=True)
        ],
        columns=["unit", "time", "city", "region", "hour", "s", "w0"],
    )


@pytest.fixture
def typed(study, folder):
    """Read a study of columns that are not numbers, with further replacements."""

    def make(*changes, frame=None):
        table = typed_frame() if frame is None else frame
        table.to_csv(folder / "typed.csv", index=False)
        return study(*TYPED, *changes)

    return make


def clustered(line):
    return (KINDS, f"{KINDS}\ncluster = {line}")


def test_ids_of_a_csv_are_text(typed):
    history = typed().history()
    assert set(history.units) == {"1", "01", "001", "2", "3", "4"}
    assert len(typed(clustered('"region"')).history().clusters) == 2
    assert typed(clustered('"region"')).history().clusters == ("00", "01")


def test_kinds_become_numeric_columns_that_terms_may_name(typed):
    found = typed()
    history = found.history()
    names = ("s", "city[Paris]", "city[Rome]", "hour[sin]", "hour[cos]")
    assert history.s_names == names
    rome = history.take([history.units.index("1")])
    assert_allclose(
        rome.s[:3, 1:],
        [[0, 1, h, c] for h, c in ((0.5**0.5, 0.5**0.5), (1, 0), (0, -1))],
        atol=1e-12,
    )
    assert np.isnan(rome.s[4, 3:]).all()
    phi = found.features()
    assert phi.names == ("1", "s", "w0", "city[Paris]", "city[Rome]*a", "hour[sin]*w0")
    values = phi(rome.s[:1], np.array([[3.0]]), 1)
    assert_allclose(values, [[1, rome.s[0, 0], 3, 0, 1, 3 * 0.5**0.5]])


def test_levels_may_be_declared_with_their_order_and_those_to_come(typed):
    long = (
        'kinds = {city = {kind = "categorical", levels = ["Paris", "Rome"], unknown = "other"}, '
        'hour = {kind = "clock", period = 12}, s = "real"}'
    )
    found = typed((KINDS, long), ('"city[Paris]"', '"city[other]"'))
    assert found.history().s_names[1:3] == ("city[Rome]", "city[other]")
    assert found.features().names[3] == "city[other]"
    ordered = ("hour", '{kind = "ordinal", levels = ["6.0", "3.0", "12.0", "18.0"]}')
    line = f'kinds = {{city = "categorical", {ordered[0]} = {ordered[1]}}}'
    history = typed((KINDS, line), ('"hour[sin]*w0"', '"hour*w0"')).history()
    assert history.take([0]).s[:4, -1].tolist() == [1.0, 0.0, 2.0, 3.0]


@pytest.mark.parametrize("levels", ["[3, 6.0, 12, 18]", '["3", "6", "12", "18"]'])
def test_levels_may_be_numbers_of_a_column_with_empty_cells(typed, levels):
    line = f'kinds = {{city = "categorical", hour = {{kind = "ordinal", levels = {levels}}}}}'
    history = typed((KINDS, line), ('"hour[sin]*w0"', '"hour*w0"')).history()
    assert_array_equal(history.take([0]).s[:, -1], [3, 6, 12, 18, np.nan])


def test_a_level_may_hold_spaces(typed):
    late = (
        'kinds = {city = "categorical"',
        'kinds = {city = {kind = "categorical", levels = ["Rome", "Paris", "New York"]}',
    )
    found = typed(late, ('"city[Rome]*a"', '"city[New York] * a"'))
    assert found.features().names[4] == "city[New York]*a"


def test_clusters_are_a_column_or_a_period_of_time(typed):
    whole = typed().history()
    assert whole.clusters == whole.units
    assert typed(clustered('"city"')).history().clusters == tuple(sorted(CITIES))
    weeks = typed(clustered('["week"]')).history()
    assert len(weeks.clusters) == 2  # Thursday to Monday
    assert len(weeks.units) == 6
    fit, held_out = weeks.split(seed=0)
    assert fit.units == held_out.units
    assert not set(fit.clusters) & set(held_out.clusters)


def test_a_number_that_is_seen_may_be_the_cluster(typed):
    frame = typed_frame().assign(s=lambda f: f["region"].astype(float))
    history = typed(clustered('"s"'), frame=frame).history()
    assert history.clusters == ("0.0", "1.0")
    assert set(history.s[:, 0]) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (KINDS, 'kinds = "categorical"', r"\[data\] kinds must be a section of keys"),
        (KINDS, 'kinds = {citi = "categorical"}', r"kinds has no key 'citi'; did you mean 'city'"),
        (KINDS, 'kinds = {region = "categorical"}', "kinds has no key 'region'"),
        (KINDS, 'kinds = {city = "categorial"}', "no kind 'categorial'; did you mean 'categorical"),
        (KINDS, "kinds = {city = 3}", 'city should look like "categorical", but got 3'),
        (KINDS, 'kinds = {city = ""}', 'city should look like "categorical"'),
        (KINDS, 'kinds = {hour = "clock"}', "'hour': period"),
        (KINDS, 'kinds = {hour = "clock noon"}', "'hour': period"),
        (KINDS, 'kinds = {hour = "count 24"}', "only a clock has a period"),
        (KINDS, 'kinds = {hour = "ordinal"}', "must be named in order"),
        (KINDS, 'kinds = {hour = {kind = "real", level = ["a"]}}', "did you mean 'levels'"),
        (KINDS, 'kinds = {hour = {kind = "ordinal", levels = [true]}}', "levels should look like"),
        (KINDS, 'kinds = {hour = {kind = "ordinal", levels = 3}}', "levels should look like"),
        (KINDS, "kinds = {hour = {period = 24}}", "hour needs 'kind'"),
        (KINDS, 'kinds = {hour = {kind = "clock", period = "x"}}', "period should look like 24"),
        (KINDS, 'kinds = {city = {kind = "categorical", levels = ["a", "a"]}}', "distinct"),
        ('"city[Paris]"', '"city[Pari]"', r"not a column; did you mean 'city\[Paris\]'"),
        ('"city[Paris]"', '"city"', "'city' in term 'city' is not a column"),
        ('"hour[sin]*w0"', '"hour*w0"', "'hour' in term .* is not a column"),
        (*clustered('"regio"'), "cluster: there is no column 'regio'; did you mean 'region'"),
        (*clustered('["weak"]'), "no period of time 'weak'; did you mean 'week'"),
        (*clustered('["day", "week"]'), "cluster should look like"),
        (*clustered("7"), "cluster should look like"),
    ],
)
def test_slips_in_kinds_and_clusters_are_one_sentence_when_the_file_is_read(typed, old, new, words):
    with pytest.raises(pp.PulseError, match=words) as caught:
        typed((old, new))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (*clustered('"hour"'), "missing value|several clusters"),
        (*clustered('"time"'), "several clusters"),
        (KINDS, KINDS.replace("hour", "w0"), "column 'w0' must be numeric"),
        (KINDS, KINDS.replace('"clock 24"', '"binary"'), "declared binary, but it holds"),
        (
            'city = "categorical"',
            'city = {kind = "categorical", levels = ["Rome", "Paris"]}',
            "no level 'New York'",
        ),
    ],
)
def test_what_the_archive_contradicts_is_refused_when_it_is_read(typed, old, new, words):
    plain = ('"city[Rome]*a", "hour[sin]*w0"', '"s*w0"')
    with pytest.raises(pp.PulseError, match=words):
        typed((old, new), plain).history()


def test_a_period_of_time_needs_dates(typed):
    frame = typed_frame().assign(time=lambda f: f.groupby("unit").cumcount())
    with pytest.raises(pp.errors.DataError, match="needs dates"):
        typed(clustered('["week"]'), frame=frame).history()


def test_a_category_of_a_parquet_file_is_declared(typed, folder, monkeypatch):
    frame = typed_frame().astype({"city": "category"})
    (folder / "typed.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    found = typed(("typed.csv", "typed.parquet"), (KINDS, 'kinds = {hour = "clock 24"}'))
    assert found.features().names[3] == "city[Paris]"
    assert found.history().s_names[1] == "city[Paris]"


def test_rows_with_some_w_count_for_a_law_with_a_site_per_column(tmp_path):
    path = write_study(
        tmp_path / "mine",
        ('missing = ["w0"]', 'missing = ["w0", "w1"]'),
        ('name = "linear_lags"\nlags = 3', 'file = "both.py"'),
    )
    frame = pd.read_csv(path.parent / "archive.csv")
    frame["w1"] = np.where(np.arange(len(frame)) % 2, np.nan, 0.5)
    frame.to_csv(path.parent / "archive.csv", index=False)
    (path.parent / "both.py").write_text(
        """
import pyro
import pyro.distributions as dist


def model(x, w=None):
    w = w or {}
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        for name in ("w0", "w1"):
            pyro.sample(name, dist.Normal(a + x[..., 0], 1.0), obs=w.get(name))
"""
    )
    said = pp.study.check_study(path).table.loc["rows", "text"]
    assert "incomplete rows of which those with all inputs and some W count too" in said
    fitted = pp.study.fit_study(path)
    assert fitted.record.rows > int(said.split()[0].replace(",", ""))


def test_a_study_with_kinds_and_clusters_is_checked_and_fitted(tmp_path):
    path = write_study(
        tmp_path / "mine",
        ('observed = ["s"]', 'observed = ["s", "city"]\ncluster = ["week"]'),
        ('missing = ["w0"]', 'missing = ["w0"]\nkinds = {city = "categorical"}'),
        ("lags = 3", "lags = 2"),
        ('"w0*a"]', '"w0*a", "city[Paris]"]'),
    )
    frame = pd.read_csv(path.parent / "archive.csv")
    frame["city"] = np.array(CITIES)[frame["unit"].str[1:].astype(int) % 3]
    frame["time"] = pd.Timestamp("2024-05-27") + pd.to_timedelta(frame["time"], unit="D")
    frame.to_csv(path.parent / "archive.csv", index=False)
    found = pp.study.check_study(path)
    assert "2 clusters to fit on, 1 held out; 24 units" in found.table.loc["units", "text"]
    law = pp.study.fit_study(path)
    assert law.schema.s_names == ("s", "city[Paris]", "city[Rome]")
    again = pp.load(path.parent / "results" / "fit" / "law")
    assert again.schema.s_names == law.schema.s_names
    assert len(again.units) == 2
    made = json.loads((path.parent / "results" / "fit" / "fit.json").read_text())
    assert (made["fit_units"], made["held_out_units"]) == (2, 1)
    assert (
        "fitted on 2 clusters; the other 1"
        in (path.parent / "results" / "fit" / "sections.json").read_text()
    )
