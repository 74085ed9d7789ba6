"""Figures and report of a calibration."""

import html
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.report.plots import band_plot, budget_plot
from tests.calibration.helpers import W_FEATURES, split_archive

# --- figures ------------------------------------------------------------------------------------


def test_the_band_plot_shows_centre_half_width_and_law_over_one_input(made):
    calibration = made["curve"]
    ax = calibration.plot_band()
    budget = calibration.parts[0].budget(calibration.contexts)
    x = calibration.contexts.s[budget.inside][:, 0]
    order = np.argsort(x)
    centre, law = (v[budget.inside][order, 0] for v in (budget.centre, budget.predicted))
    half = budget.half[budget.inside][order, 0]
    assert_array_equal(ax.lines[0].get_xdata(), x[order])
    assert_array_equal(ax.lines[0].get_ydata(), centre)
    assert_array_equal(ax.lines[1].get_ydata(), law)
    edge = ax.collections[0].get_paths()[0].vertices
    for side in (-1, 1):
        due = np.column_stack([x[order], centre + side * half])
        assert all((np.abs(edge - point).sum(1) < 1e-12).any() for point in due[::50])
    assert "95%" in ax.get_legend().get_texts()[0].get_text().replace(" %", "%")


def test_with_several_inputs_the_band_plot_shows_the_distance_from_the_law(made):
    ax = made["linear"].plot_band()
    assert_array_equal(ax.lines[1].get_ydata(), 0.0)
    assert len(ax.lines[0].get_xdata()) <= 60
    assert "minus law" in ax.get_ylabel()
    calibration = made["linear"]
    budget = calibration.parts[0].budget(calibration.contexts)
    law = budget.predicted[budget.inside][:, 0]
    gap = (budget.centre[budget.inside][:, 0] - law)[np.argsort(law)]
    due = [group.mean() for group in np.array_split(gap, 60)]
    assert_allclose(ax.lines[0].get_ydata(), due, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "layers"), [("curve", 2), ("linear", 2), ("bent", 3)])
def test_the_budget_plot_stacks_the_pieces_of_the_bound(made, name, layers):
    calibration = made[name]
    ax = calibration.plot_budget()
    assert len(ax.collections) == layers
    part = calibration.parts[0]
    total = part.budget(calibration.contexts).total[calibration.inside][:, 0]
    top = max(c.get_paths()[0].vertices[:, 1].max() for c in ax.collections)
    assert total.mean() < top <= total.max() * (1 + 1e-12)
    assert part.targets.names[0] in ax.get_ylabel()


def test_plots_use_the_axis_they_are_given_and_any_target(made):
    for draw in (band_plot, budget_plot):
        ax = Figure().add_subplot()
        assert draw(made["bent"], target=1, ax=ax) is ax
        assert made["bent"].parts[0].targets.names[1] in ax.get_ylabel()
    ax = Figure().add_subplot()
    for draw in (made["curve"].plot, made["curve"].plot_band, made["curve"].plot_budget):
        assert draw(ax) is ax


# --- the report ---------------------------------------------------------------------------------


def section(calibration, title):
    return next(s for s in pp.report.calibration_sections(calibration) if s.title == title)


@pytest.mark.parametrize("name", ["curve", "all", "crossfit"])
def test_the_report_states_level_mode_and_band(made, name, tmp_path):
    calibration = made[name]
    assert calibration.usable
    sections = pp.report.calibration_sections(calibration)
    text = section(calibration, "Calibration of D_t").text
    assert "95%" in text
    assert f"mode {calibration.mode}" in text
    assert calibration.parts[0].band.kind in text
    assert calibration.feeds.benchmark in text
    assert len(sections[-1].table) == len(calibration.checks)
    page = pp.write_report(tmp_path / "r.html", "Title", "Verdict", sections).read_text()
    for one in sections:
        assert html.escape(one.title) in page


def test_the_report_shows_every_target_of_every_part(made):
    for name in ("bent", "crossfit"):
        calibration = made[name]
        shown = [
            s for s in pp.report.calibration_sections(calibration) if s.title.startswith("Band and")
        ]
        assert len(shown) == sum(len(part.targets.names) for part in calibration.parts) == 2
        each = [(part, j) for part in calibration.parts for j in range(len(part.targets.names))]
        for section, (part, j) in zip(shown, each, strict=True):
            assert part.targets.names[j] in section.title
            budget = part.budget(calibration.contexts)
            total = budget.total[budget.inside][:, j]
            assert f"mean bound {total.mean():.3g}" in section.figure.figure.axes[1].get_title(
                "left"
            )
            words = [text.get_text() for text in section.figure.figure.legends[0].get_texts()]
            assert {"reference fit, mu_p0", "the law, mu_phat", "half-width r(s)"} <= set(words)
            assert section.reading


def test_the_report_draws_d_t_over_contexts_in_and_out_of_the_domain(made):
    calibration = made["linear"]
    ax = section(calibration, "Calibration of D_t").figure
    worst = np.max(calibration.error**2, axis=(1, 2))
    known = np.isfinite(worst)
    for line, where in zip(ax.lines, (calibration.inside, ~calibration.inside), strict=True):
        due = np.sort(worst[known & where])
        assert_allclose(line.get_ydata()[[0, -1]], due[[0, -1]])
        assert_allclose(np.interp(50, line.get_xdata(), line.get_ydata()), np.median(due), rtol=0.1)


def test_the_report_of_a_calibration_alone_has_a_verdict_and_a_provenance(made, tmp_path):
    path = pp.report.write_calibration_report(tmp_path / "r.html", made["curve"], date="2026-01-31")
    page = path.read_text()
    assert html.escape(made["curve"].claim) in page
    assert made["curve"].law_id in page
    assert "2026-01-31" in page
    again = pp.report.write_calibration_report(tmp_path / "again.html", made["curve"])
    assert again.read_text() == pp.report.write_calibration_report(path, made["curve"]).read_text()


def test_the_report_warns_of_a_check_that_warns_and_not_otherwise(made):
    sound = made["curve"]
    first, *others = sound.rungs
    for verdict in ("pass", "warn"):
        checks = tuple(replace(check, verdict=verdict) for check in first.checks)
        told = replace(sound, rungs=(replace(first, checks=checks), *others))
        text = section(told, "Calibration of D_t").text
        assert ("Read the checks first" in text) == (verdict == "warn")


def test_the_report_does_not_call_units_fresh_that_the_law_was_fitted_on(made):
    assert "has not seen" in section(made["curve"], "Calibration of D_t").text
    assert "has not seen" not in section(made["all"], "Calibration of D_t").text


def test_a_report_of_a_band_handed_over_can_be_written(made, tmp_path):
    law, held_out, _ = split_archive(lags=1)
    band = made["curve"].parts[0].band
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=band)
    sections = pp.report.calibration_sections(calibration)
    page = pp.write_report(tmp_path / "r.html", "Title", "Verdict", sections).read_text()
    assert "nothing was checked here" in page
