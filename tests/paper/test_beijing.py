"""Beijing air quality: utilities by hand, pieces, refusals; the real file where it is at hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError
from pulse_pyro.paper.beijing import (
    LEAD,
    W,
    band_utility,
    load_beijing,
    ventilation_utility,
    weekly,
)
from pulse_pyro.paper.datasets import scale_of
from tests.helpers import mean_at
from tests.paper.helpers import beijing_folder, beijing_frame, folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return load_beijing(beijing_folder(tmp_path_factory.mktemp("beijing")))


def test_utility_of_ventilation_by_hand():
    found = ventilation_utility(np.log1p(np.array([[75.0, 0.0, 151.0]])))
    assert_allclose(found[0, 0], 0.0, atol=1e-15)  # at the limit opening does neither good nor harm
    assert_allclose(found[0, 1], [0.0, 0.5 * np.log(76), np.log(76)])
    assert_allclose(found[0, 2], [0.0, -0.5 * np.log(2), -np.log(2)])


def test_utility_of_bands_by_hand():
    outcome = np.log1p(np.array([10.0, 50.0, 100.0, 149.0, 600.0]))
    found = band_utility(np.append(outcome, np.nan)[None])[0]
    assert_array_equal(found[:5], np.eye(5))
    assert np.isnan(found[5]).all()


def test_stations_and_years_do_not_mix(made):
    assert made.archive.units == ("Alpha", "Gamma")
    assert made.replays["ventilation"].history.units == ("Beta", "Delta")
    assert made.archive.grid.seen.shape[1] == 60 * 4  # November and December


def test_stations_can_be_swapped(tmp_path):
    other = load_beijing(beijing_folder(tmp_path), swapped=True)
    assert other.archive.units == ("Beta", "Delta")
    assert other.replays["bands"].history.units == ("Alpha", "Gamma")


def test_columns_are_in_units_of_the_archive(made):
    rows = made.archive.grid.s[made.archive.grid.seen]
    assert_allclose(np.nanmean(rows, 0), 0.0, atol=1e-12)
    assert_allclose(np.nanstd(rows, 0), 1.0)
    online = made.replays["ventilation"].w
    assert abs(np.nanmean(online)) > 0.01  # the online units keep their own level


def test_the_outcome_is_what_came_next(made):
    replay = made.replays["ventilation"]
    table = beijing_frame()
    beta = table[(table["station"] == "Beta") & (table["time"] >= "2016")]
    assert_allclose(replay.utility[0, :-1, 2], np.log(76) - beta["log_PM2.5"].to_numpy()[1:])
    assert np.isnan(replay.utility[0, -1]).all()
    assert_array_equal(replay.block[:, :28], 0)
    assert_array_equal(replay.block[:, 28], 1)


def test_a_week_of_all_stations_is_a_piece_with_lags_of_its_own(made):
    archive = made.archive
    pieces = weekly(archive)
    assert len(pieces.units) == archive.grid.seen.shape[1] // 28
    lags = pp.Lags(LEAD + 1)
    whole, cut = lags(archive.grid.s), lags(pieces.grid.s)
    for week, station in ((1, 0), (3, 1), (5, 1)):
        at = station * (LEAD + 28) + LEAD
        rows = slice(28 * week, 28 * (week + 1))
        assert_array_equal(cut[week, at : at + 28], whole[station, rows])
        assert_array_equal(pieces.grid.w[week, at : at + 28], archive.grid.w[station, rows])
        assert np.isnan(pieces.grid.w[week, at - LEAD : at]).all()  # S to fill lags, nothing to fit
    fitted = archive.rows(pp.data.Identity()).w
    again = pieces.rows(pp.data.Identity()).w
    assert len(again) == len(fitted) - len(archive.units) * (archive.grid.seen.shape[1] % 28)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: t.drop(columns="O3"), "there is no column 'O3'"),
        (lambda t: t.iloc[:0], "has a header but no rows"),
        (lambda t: t.assign(split="historical"), "must mark historical and online rows"),
        (lambda t: t.assign(time="soon"), "column 'time' must hold dates"),
        (lambda t: t.assign(TEMP="warm"), "'TEMP' must be numeric"),
        (lambda t: t.assign(RAIN="wet"), "'RAIN' must be numeric"),
        (lambda t: t.assign(hour="noon"), "'hour' must be numeric"),
        (lambda t: t.assign(O3=-1.0), "must be >= 0"),
        (lambda t: t.assign(time=t["time"].where(t.index > 0)), "no station or no time"),
        (lambda t: t.drop(index=0), "station 'Alpha' begins at .*; all must begin together"),
        (lambda t: t.assign(PRES=1000.0), "column 'PRES' is constant"),
        (lambda t: t.assign(log_CO=np.nan), "'log_CO' holds only NaN"),
        (lambda t: t[t["time"] > "2015-12-24"], "less than two weeks"),
    ],
)
def test_a_file_that_cannot_be_used_gets_a_sentence(tmp_path, spoil, words):
    with pytest.raises(DataError, match=words):
        load_beijing(beijing_folder(tmp_path, spoil(beijing_frame())))


def test_a_folder_without_the_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has neither decisions_6h\.csv nor decisions_6h\.csv\.gz"):
        load_beijing(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        load_beijing(tmp_path / "nowhere")
    (tmp_path / "decisions_6h.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        load_beijing(tmp_path)


def test_order_of_rows_in_the_file_changes_nothing(tmp_path, made):
    table = beijing_frame().sample(frac=1.0, random_state=1)
    again = load_beijing(beijing_folder(tmp_path, table))
    assert_array_equal(again.archive.grid.s, made.archive.grid.s)
    assert_array_equal(again.replays["bands"].utility, made.replays["bands"].utility)


def test_a_column_never_recorded_in_the_archive_is_refused(made):
    history = made.pieces
    w = np.array(history.grid.w)
    w[..., 2] = np.nan
    with pytest.raises(DataError, match="'log_NO2' has fewer than two values"):
        scale_of(
            pp.History.from_arrays(
                history.grid.s,
                w,
                seen=history.grid.seen,
                units=history.units,
                s_names=history.s_names,
                w_names=W,
            )
        )


def test_the_real_file_has_the_stated_rows():
    found = load_beijing(folder("beijing_multisite"))
    assert len(found.archive.s) == 24768
    assert len(found.replays["ventilation"].history.s) == 10200
    # R2 of W given S by a line in S_t alone, as measured with plain tools
    law = pp.linear_lags(1).fit(found.archive, seed=0)
    replay = found.replays["ventilation"]
    left = (mean_at(law, replay.s) - replay.w)[replay.complete]
    share = 1 - (left**2).mean(0) / replay.w[replay.complete].var(0)
    assert_allclose(share, [0.55, 0.39, 0.53, 0.31, 0.54], atol=0.06)
