"""The ladder on a page: every verdict renders, and a rung that fails leaves no number anywhere."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from pulse_pyro._core.as_json import to_json
from pulse_pyro.calibration.planted import SmallestMisfit
from pulse_pyro.calibration.rung import no_rung
from pulse_pyro.calibration.split_stability import Stability
from pulse_pyro.report.ladder import headline, ladder_table, reward_size, split_table
from pulse_pyro.report.page import plain_text, sections_to_plain
from pulse_pyro.report.plots import COLOURS
from tests.calibration.helpers import CURVE, W_FEATURES, split_archive
from tests.helpers import linear_history

NAMES = ("uniform", "forecast", "groups", "average", "free")


@pytest.fixture(scope="module")
def grouped():
    law, held_out, _ = split_archive(lags=1, units=80, seed=1)  # the band passes its checks
    return pp.calibrate(law, held_out, W_FEATURES, seed=0, band=CURVE, groups=["s", "forecast"])


@pytest.fixture(scope="module")
def crossed():
    history, _ = linear_history(units=60, time=15, lags=2, seed=1)
    found = pp.calibration.crossfit(
        pp.linear_lags(2), history, W_FEATURES, seed=0, groups=["s"], band="linear"
    )
    return found.calibration


@pytest.fixture(scope="module")
def bandless():
    """Too few clusters for any band."""
    law, held_out, _ = split_archive(lags=1, units=8)
    found = pp.calibrate(law, held_out, W_FEATURES, seed=0)
    assert found.parts == ()
    return found


def with_rung(calibration, name, verdict):
    """The same calibration, one rung with another verdict."""
    old = calibration.rung(name)
    new = (
        replace(old, verdict=verdict, rests_on="the moon is round")
        if verdict in ("stands", "conditional")
        else no_rung(name, verdict, f"Nothing is known of {name}.", "Hold out more clusters.")
    )
    rungs = tuple(new if rung is old else rung for rung in calibration.rungs)
    return replace(calibration, rungs=rungs)


def page_of(calibration, tmp_path, **more):
    path = pp.report.write_calibration_report(tmp_path / "page.html", calibration, **more)
    return path.read_text()


def titles(page):
    return [html.unescape(title) for title in re.findall(r"<h2[^>]*>([^<]+)</h2>", page)]


# --- every verdict ------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["stands", "conditional", "fails", "not asked"])
@pytest.mark.parametrize("name", NAMES)
def test_every_rung_renders_with_every_verdict(grouped, name, verdict):
    changed = with_rung(grouped, name, verdict)
    sections = pp.report.calibration_sections(changed)
    table = next(s.table for s in sections if s.title == "Ladder of claims")
    assert table.index.tolist() == list(NAMES)
    assert table.loc[name, "verdict"] == verdict
    assert changed.rung(name).claim in table.loc[name, "claim"]
    numbers = table.loc[name].drop(["verdict", "claim"]).astype(float)
    assert np.isfinite(numbers).all() == (verdict in ("stands", "conditional"))
    assert np.isnan(numbers).all() == (verdict in ("fails", "not asked"))
    assert all(section.reading for section in sections if section.figure is not None)


def test_the_page_opens_with_the_claim_that_stands_then_the_ladder(grouped, tmp_path):
    page = page_of(grouped, tmp_path)
    assert titles(page)[1:3] == ["Ladder of claims", "Groups"]
    first = page[page.index("<main>") : page.index("</section>")]
    assert html.escape(grouped.claim) in first
    assert first.count("<svg") == 1


def test_the_headline_is_the_standing_claim_and_the_conditional_uniform_one(grouped):
    calibration = with_rung(grouped, "uniform", "conditional")
    said = pp.report.calibration_verdict(calibration)
    assert said == f"{grouped.rung('forecast').claim} {calibration.rung('uniform').claim}"
    proved = with_rung(grouped, "uniform", "stands")
    assert pp.report.calibration_verdict(proved) == proved.claim == proved.rung("uniform").claim


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ("stands stands fails", "0"),
        ("fails stands stands", "1"),
        ("conditional fails stands", "2 0"),
        ("fails conditional fails", "1"),
        ("conditional not_asked not_asked", "0"),
        ("fails not_asked not_asked", "0"),
        ("not_asked not_asked not_asked", "2"),
    ],
)
def test_the_headline_says_the_strongest_true_thing(verdicts, said):
    words = [verdict.replace("_", " ") for verdict in verdicts.split()]
    assert headline([(verdict, str(i)) for i, verdict in enumerate(words)]) == said


# --- a failed rung has no number ----------------------------------------------------------------


def formatted(values):
    """Numbers as a page writes them, those of four digits, which nothing else repeats."""
    shown = {f"{value:.4g}" for value in np.ravel(values) if np.isfinite(value)}
    return {text for text in shown if len(re.sub(r"^[-0.]+|\.|e.*", "", text)) == 4}


def told(numbers, text):
    """Those numbers that a reader of a text or page meets; coordinates of pictures are none."""
    words = set(re.findall(r"\d[\d.]*(?:e-?\d+)?", plain_text(text)))
    return {number for number in numbers if number.lstrip("-") in words}


def stored_numbers(value):
    """Every number of parsed JSON, texts aside, as a page would write it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(stored_numbers, value))
    return {f"{value:.4g}"} if isinstance(value, float) else set()


def uniform_numbers(calibration):
    details, rung = calibration.rung("uniform").details, calibration.rung("uniform")
    table = calibration.table.select_dtypes("number")
    wanted = [details.table.to_numpy(), rung.sizes, table.to_numpy(), calibration.bound.max()]
    return formatted(np.concatenate([np.ravel(values) for values in wanted]))


def test_a_uniform_rung_that_fails_leaves_no_number_of_it(grouped, tmp_path):
    numbers = uniform_numbers(grouped)
    before = page_of(grouped, tmp_path)
    shown = numbers - formatted(grouped.bound.max())  # which lies beyond the domain
    assert len(shown) >= 5
    assert told(numbers, before) >= shown  # the search does find them
    plain = sections_to_plain(pp.report.calibration_sections(grouped), "calibrate")
    assert stored_numbers(json.loads(to_json(plain))) >= shown
    failed = with_rung(grouped, "uniform", "fails")
    assert failed.parts
    assert not failed.usable
    page = page_of(failed, tmp_path, theta_bound=2.0)
    stored = to_json(sections_to_plain(pp.report.calibration_sections(failed), "calibrate"))
    for text in (page, stored, repr(failed), failed._repr_html_()):
        assert told(numbers, text) == set()
    assert stored_numbers(json.loads(stored)) & numbers == set()
    assert "D_t" not in page
    at = titles(page)
    assert "Errors at single contexts" in at
    assert not {"Calibration of D_t", "What halves the bound"} & set(at)
    assert not [title for title in at if title.startswith("Band and")]
    (one,) = [s for s in json.loads(stored) if s["title"] == "Errors at single contexts"]
    rung = failed.rung("uniform")
    for part in (rung.claim, rung.remedy, failed.claim):
        assert part in one["text"]


@pytest.mark.parametrize("name", ["forecast", "groups", "average", "free"])
def test_no_other_rung_that_fails_leaves_a_number_either(grouped, name, tmp_path):
    details = grouped.rung(name).details
    edges = [
        "rows",
        "from",
        "to",
    ]  # where groups are cut is no claim
    table = details.table.select_dtypes("number").drop(columns=edges, errors="ignore")
    own = formatted([*np.ravel(table.to_numpy(float)), *grouped.rung(name).sizes])
    other = {
        number
        for rung in grouped.rungs
        if rung.name not in (name, "uniform")
        for number in formatted(rung.details.table.select_dtypes("number").to_numpy(float))
    }
    numbers = own - other  # groups by forecast repeat some bins
    before, after = (
        page_of(calibration, tmp_path)
        for calibration in (grouped, with_rung(grouped, name, "fails"))
    )
    assert told(numbers, before)
    assert told(numbers, after) == set()


@pytest.mark.parametrize(
    ("draw", "rung"),
    [
        ("plot", "forecast"),
        ("plot_groups", "groups"),
        ("plot_band", "uniform"),
        ("plot_budget", "uniform"),
    ],
)
def test_pictures_of_a_failed_rung_are_words(grouped, draw, rung):
    shown = getattr(grouped, draw)()
    assert len(shown.lines) + len(shown.collections) > 0
    failed = with_rung(grouped, rung, "fails")
    ax = getattr(failed, draw)()
    assert len(ax.lines) + len(ax.collections) == 0
    words = " ".join(text.get_text() for text in ax.texts).replace("\n", " ")
    assert failed.rung(rung).claim in words


# --- calibrations of other kinds ----------------------------------------------------------------


def test_a_calibration_without_a_band_renders(bandless, tmp_path):
    page = page_of(bandless, tmp_path, theta_bound=1.0)
    assert "Errors at single contexts" in titles(page)
    assert html.escape(bandless.rung("uniform").claim) in page
    for draw in (bandless.plot, bandless.plot_band, bandless.plot_budget, bandless.plot_groups):
        assert draw().texts


def test_a_cross_fitted_calibration_shows_both_halves(crossed, tmp_path):
    page = page_of(crossed, tmp_path)
    assert "half 1" in page
    assert "half 2" in page
    forecast = crossed.rung("forecast").details
    bins = len(forecast.one.target) + len(forecast.two.target)
    sections = {s.title: s for s in pp.report.calibration_sections(crossed)}
    assert len(sections["Reliability, bin by bin"].table) == bins
    assert f"{bins} bars" in sections["What can be said of the law's error"].reading
    groups = crossed.rung("groups").details
    lines = len(groups.one.group) + len(groups.two.group)
    assert len(sections["Groups"].table) == lines
    own = ladder_table(crossed)["in units of w0"]["forecast"]
    due = [half.sizes[0] * half.spread[0] for half in (forecast.one, forecast.two)]
    assert max(due) <= own * (1 + 1e-12) <= 1.2 * max(due)  # never told smaller than it is


def test_pictures_have_a_name_that_says_what_they_show(grouped, crossed, tmp_path):
    for calibration in (grouped, crossed):
        page = page_of(calibration, tmp_path)
        labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
        assert len(labels) == page.count("<svg") >= 2
        assert "bars" in labels[0]
        assert "bars" in labels[1]
        assert all(len(label) > 30 for label in labels)


# --- what is drawn and told is what was found ---------------------------------------------------


def test_reliability_is_drawn_as_it_was_found(grouped):
    found = grouped.rung("forecast").details
    ax = grouped.plot()
    assert_allclose(ax.lines[0].get_xdata(), ax.lines[0].get_ydata())
    bars = np.concatenate([np.array(c.get_segments()) for c in ax.collections])
    bars = bars[np.argsort(bars[:, 0, 0])]
    assert_allclose(bars[:, 0, 0], found.forecast)
    assert_allclose(bars[:, 0, 1], found.forecast + found.lower)
    assert_allclose(bars[:, 1, 1], found.forecast + found.upper)


def test_bars_that_miss_the_line_look_different_and_are_counted(grouped):
    forecast = grouped.rung("forecast")
    found = forecast.details
    lower, upper = found.lower.copy(), found.upper.copy()
    lower[:] = np.minimum(lower, -1e-9)
    upper[:] = np.maximum(upper, 1e-9)
    lower[0], upper[0] = 0.1, 0.3
    details = replace(found, lower=lower, upper=upper, error=(lower + upper) / 2)
    rungs = tuple(
        replace(rung, details=details) if rung is forecast else rung for rung in grouped.rungs
    )
    off = replace(grouped, rungs=rungs)
    reading = pp.report.calibration_sections(off)[0].reading
    assert f"1 of {len(lower)} bars" in reading
    assert "1 too low" in reading
    faces = {line.get_markerfacecolor() for line in off.plot().lines if line.get_marker() == "o"}
    assert faces == {"white", COLOURS[0]}
    assert f"All {len(lower)} bars" in (
        pp.report.ladder.reliability_reading(
            replace(
                grouped,
                rungs=tuple(
                    replace(r, details=replace(found, lower=-np.abs(lower), upper=np.abs(upper)))
                    if r is forecast
                    else r
                    for r in grouped.rungs
                ),
            )
        )
    )


def test_groups_are_drawn_in_sds_and_those_not_judged_say_so(grouped):
    rung = grouped.rung("groups")
    found = rung.details
    ax = grouped.plot_groups()
    segments = np.array(ax.collections[0].get_segments())
    assert_allclose(segments[:, 0, 0], found.low / found.spread[0])
    assert_allclose(segments[:, 1, 0], found.high / found.spread[0])
    judged = found.judged.copy()
    judged[2] = False
    low, high = (np.where(judged, v, np.nan) for v in (found.low, found.high))
    details = replace(found, judged=judged, low=low, high=high)
    rungs = tuple(replace(r, details=details) if r is rung else r for r in grouped.rungs)
    some = replace(grouped, rungs=rungs)
    assert "not judged" in " ".join(text.get_text() for text in some.plot_groups().texts)
    table = next(s.table for s in pp.report.calibration_sections(some) if s.title == "Groups")
    assert "not judged" in table["verdict"].iloc[2]
    assert table["band"].iloc[2] == ""


def test_sizes_are_told_in_the_units_of_w_and_of_the_reward(grouped):
    table = ladder_table(grouped, theta_bound=2.0)
    spread = grouped.rung("forecast").details.spread[0]
    assert_allclose(table["in units of w0"], table["size in sds"] * spread, rtol=1e-9)
    # Phi = (w, w a), a in 0, 1: an error e moves the reward by at most 2 sqrt(2) e
    moved = table["in units of the reward"]
    assert_allclose(moved, 2.0 * np.sqrt(2.0) * table["in units of w0"])
    assert reward_size(grouped, np.array([0.5]), 1.0) == pytest.approx(np.sqrt(0.5))


def test_where_theta_bound_is_not_known_the_column_says_so(grouped):
    known, open_ = (ladder_table(grouped, theta_bound=bound) for bound in (2.0, None))
    told = "in units of the reward, times theta_bound"
    assert_allclose(known["in units of the reward"], 2.0 * open_[told])
    assert "in units of the reward" not in open_
    texts = {
        bound: next(
            s.text
            for s in pp.report.calibration_sections(grouped, theta_bound=bound)
            if s.title == "Ladder of claims"
        )
        for bound in (2.0, None)
    }
    assert "theta_bound 2;" in texts[2.0]
    assert "theta_bound is not known here: multiply by it" in texts[None]


def test_the_ladder_says_whom_policies_are_compared_with(grouped):
    for verdict in ("conditional", "fails"):
        changed = with_rung(grouped, "uniform", verdict)
        sections = pp.report.calibration_sections(changed)
        text = next(s.text for s in sections if s.title == "Ladder of claims")
        due = "against the best policy on S, if the moon is round." in text
        assert due == (verdict == "conditional")


# --- how firm the conditional claim is ----------------------------------------------------------


def misfits(**changes):
    """The smallest misfits seen: of a bend; none of a jump; of a sign time ran out."""
    found = SmallestMisfit(
        kinds=("bend", "jump", "sign"),
        size=np.array([0.1428, np.nan, np.nan]),
        seen=np.array([33, 0, 0]),
        tried=np.array([40, 0, 0]),
        in_time=np.array([True, True, False]),
        power=0.8,
        level=0.01,
        false_alarms=0.05,
        tested=40,
    )
    return replace(found, **changes)


def splits_of(*uniform):
    """Stability whose uniform rung had these verdicts; sizes of four digits where it held."""
    sizes = [[1.234 + i if word != "fails" else np.nan] * 5 for i, word in enumerate(uniform)]
    return Stability(
        rungs=NAMES,
        verdicts=tuple((word, "stands", "not asked", "stands", "stands") for word in uniform),
        sizes=np.array(sizes),
        tests=("lack of fit",),
        p=np.full((len(uniform), 1), 0.5),
        refused=np.zeros(len(uniform), bool),
    )


def beside(calibration, **asked):
    return pp.report.calibration_sections(calibration, **asked)[0].text


def test_misfits_and_splits_stand_beside_the_conditional_claim(grouped, tmp_path):
    calibration = with_rung(grouped, "uniform", "conditional")
    asked = {"misfit": misfits(), "stability": splits_of("conditional", "conditional", "fails")}
    text = beside(calibration, **asked)
    claim = text.index("Conditional, rung uniform")
    for said in (
        "80% of the time",
        "bend 0.1428; jump not at any size tried; sign not known, as time ran out",
        "something was seen 5% of the time (of 40)",
        "Over 3 random splits of the archive the rung uniform: conditional in 67%, fails in 33%",
        "its size from 1.2 to 2.2 sd",
    ):
        assert text.index(said) > claim
    assert "Not asked" not in text
    page = page_of(calibration, tmp_path, **asked)
    assert "1.234" in page
    assert "The same ladder on 3 random splits" in page


def test_a_page_says_how_to_ask_for_what_was_not_asked(grouped):
    calibration = with_rung(grouped, "uniform", "conditional")
    both = beside(calibration)
    for words in ("misfit = true", "splits = 5", "calibration.smallest_misfit"):
        assert words in both
    assert "splits = 5" not in beside(calibration, stability=splits_of("conditional"))
    assert "misfit = true" not in beside(calibration, misfit=misfits())
    assert "Not asked" not in beside(with_rung(grouped, "uniform", "fails"))


@pytest.mark.parametrize("uniform", [("conditional", "fails"), ("conditional", "conditional")])
def test_what_fails_here_or_over_splits_has_no_size_of_any_split(grouped, tmp_path, uniform):
    verdict = "fails" if "fails" not in uniform else "conditional"
    calibration = with_rung(grouped, "uniform", verdict)
    asked = {"misfit": misfits(), "stability": splits_of(*uniform)}
    assert asked["stability"].fails("uniform") == ("fails" in uniform)
    table = split_table(calibration, asked["stability"])
    assert table.loc["uniform", ["size, median", "smallest", "largest"]].isna().all()
    assert table.loc["forecast", "smallest"] == 1.234
    assert "groups" not in table.index  # not asked
    assert "its size from" not in beside(calibration, **asked)
    assert ("0.1428" in page_of(calibration, tmp_path, **asked)) == (verdict == "conditional")


def test_a_band_with_fewer_inputs_than_the_law_is_drawn_over_its_own():
    law, held_out, _ = split_archive(lags=2, units=60)
    one = pp.calibrate(law, held_out, W_FEATURES, seed=0, inputs=["s.lag1"])
    given = pp.calibrate(law, held_out, W_FEATURES, seed=0, inputs="forecast")
    for calibration in (one, given):
        part = calibration.parts[0]
        usable = with_rung(calibration, "forecast", "stands")
        assert usable.usable
        ax = usable.plot_band()
        assert ax.get_xlabel() == part.inputs.names[0]
        budget = part.budget(calibration.contexts)
        x = (
            calibration.contexts.inputs(law.summary)[:, part.inputs.x[0]]
            if len(part.inputs.x)
            else budget.predicted[:, 0]
        )
        seen = x[budget.inside]
        assert seen.min() - 1e-9 <= min(ax.lines[0].get_xdata())
        assert max(ax.lines[0].get_xdata()) <= seen.max() + 1e-9
        assert usable.plot_budget().get_xlabel() == part.inputs.names[0]
    # over what is forecast the law is the diagonal; over an input it is not a curve
    law_line = given.plot_band().lines[1]
    assert_allclose(law_line.get_xdata(), law_line.get_ydata())
    assert_allclose(one.plot_band().lines[1].get_ydata(), 0.0)
