import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pulse_pyro._core.errors import SettingError
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags, Stack, Window

NAN = np.nan
PROPERTY = settings(deadline=None, derandomize=True)
SUMMARIES = (
    Identity(),
    Lags(1),
    Lags(4),
    Lags(2, start=3),
    Window(3, np.mean),
    Window(4, np.median),
    Stack(Lags(2), Window(5, np.max)),
    Stack(Window(2, np.std), Stack(Identity(), Lags(1, start=2))),
)
VALUE = st.floats(-1e3, 1e3, width=32) | st.just(NAN)


@st.composite
def paths(draw, least=1):
    time = draw(st.integers(least, 14))
    return draw(arrays(np.float64, (time, draw(st.integers(1, 3))), elements=VALUE))


@PROPERTY
@given(st.sampled_from(SUMMARIES), paths(), st.data())
def test_changing_the_future_moves_nothing(summary, s, data):
    now = data.draw(st.integers(0, len(s) - 1))
    other = s.copy()
    other[now + 1 :] = data.draw(arrays(np.float64, other[now + 1 :].shape, elements=VALUE))
    np.testing.assert_array_equal(summary(other)[: now + 1], summary(s)[: now + 1])


@PROPERTY
@given(st.sampled_from(SUMMARIES), paths(), st.data())
def test_nothing_older_than_the_memory_matters(summary, s, data):
    now = data.draw(st.integers(0, len(s) - 1))
    other = s.copy()
    old = other[: max(now + 1 - summary.memory, 0)]
    old[:] = data.draw(arrays(np.float64, old.shape, elements=VALUE))
    np.testing.assert_array_equal(summary(other)[now], summary(s)[now])


@PROPERTY
@given(st.sampled_from(SUMMARIES), paths(least=6))
def test_last_is_the_last_row_of_the_call(summary, s):
    for past in (s, s[-summary.memory :]):
        np.testing.assert_allclose(summary.last(past), summary(s)[-1], rtol=1e-12, atol=1e-9)


@PROPERTY
@given(st.sampled_from(SUMMARIES), paths())
def test_the_width_is_names_times_columns(summary, s):
    assert summary(s).shape == (len(s), len(summary.names) * s.shape[1])


@pytest.mark.parametrize("summary", SUMMARIES, ids=repr)
def test_a_batch_is_summarised_series_by_series(summary):
    s = np.random.default_rng(0).standard_normal((3, 9, 2))
    np.testing.assert_array_equal(summary(s), np.stack([summary(one) for one in s]))


S = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        (Identity(), [[1, 10], [2, 20], [4, 40]]),
        (Lags(2), [[1, 10, NAN, NAN], [2, 20, 1, 10], [4, 40, 2, 20]]),
        (Lags(1, start=1), [[NAN, NAN], [1, 10], [2, 20]]),
        (Lags(2, start=1), [[NAN] * 4, [1, 10, NAN, NAN], [2, 20, 1, 10]]),
        (
            Lags(5),
            [[1, 10] + 8 * [NAN], [2, 20, 1, 10] + 6 * [NAN], [4, 40, 2, 20, 1, 10] + 4 * [NAN]],
        ),
        (Window(2, np.mean), [[NAN, NAN], [1.5, 15], [3, 30]]),
        (Window(1, np.sum), [[1, 10], [2, 20], [4, 40]]),
        (Stack(Window(2, np.max), Lags(1)), [[NAN, NAN, 1, 10], [2, 20, 2, 20], [4, 40, 4, 40]]),
    ],
    ids=repr,
)
def test_values_worked_by_hand(summary, expected):
    np.testing.assert_array_equal(summary(S), expected)


@pytest.mark.parametrize(
    ("summary", "names", "memory"),
    [
        (Identity(), ("now",), 1),
        (Lags(3), ("lag0", "lag1", "lag2"), 3),
        (Lags(2, start=4), ("lag4", "lag5"), 6),
        (Window(7, np.mean), ("mean7",), 7),
        (Stack(Lags(1), Window(7, np.max)), ("lag0", "max7"), 7),
    ],
)
def test_names_and_memory(summary, names, memory):
    assert (summary.names, summary.memory) == (names, memory)


def test_column_labels_follow_the_columns():
    history = History.from_arrays(
        S[None], S[None, :, :1], units=("u",), s_names=("hr", "steps"), w_names=("w",)
    )
    rows = history.rows(Stack(Lags(2), Window(2, np.mean)))
    expected = {
        "hr.lag0": [2, 4],
        "steps.lag0": [20, 40],
        "hr.lag1": [1, 2],
        "steps.lag1": [10, 20],
        "hr.mean2": [1.5, 3],
        "steps.mean2": [15, 30],
    }
    found = dict(zip(rows.x_names, rows.x.T.tolist(), strict=True))
    assert found == expected


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda: Lags(0), "Lags: count"),
        (lambda: Lags(-2), "Lags: count"),
        (lambda: Lags(2.0), "Lags: count"),
        (lambda: Lags(True), "Lags: count"),
        (lambda: Lags("3"), "Lags: count"),
        (lambda: Lags(2, start=-1), "Lags: start"),
        (lambda: Window(0, np.mean), "Window: count"),
        (lambda: Window(3, "mean"), "Window: fn"),
        (lambda: Stack(), "Stack"),
        (lambda: Stack(Lags(2), 3), "Stack"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, culprit):
    with pytest.raises(SettingError, match=culprit):
        make()


@pytest.mark.parametrize(
    "fn",
    [np.cumsum, lambda v, axis: v.mean(), lambda v, axis: v.mean(-1), lambda v: v.mean(-2)],
    ids=["keeps the axis", "reduces all", "reduces S", "takes no axis"],
)
def test_a_window_function_that_does_not_reduce_the_window_is_refused(fn):
    with pytest.raises(SettingError, match="Window: fn"):
        Window(3, fn)(S)


def test_a_window_function_that_mixes_windows_cannot_let_the_future_in():
    share = Window(2, lambda v, axis: (v / np.nanmax(v)).mean(axis))
    s = np.arange(1.0, 7.0)[:, None]
    later = np.where(np.arange(6)[:, None] < 4, s, 100.0)
    try:
        before, after = share(s), share(later)
    except SettingError:
        return
    np.testing.assert_array_equal(after[:4], before[:4])


def test_a_summary_is_a_value():
    assert Stack(Lags(3), Window(2, np.mean)) == Stack(Lags(3), Window(2, np.mean))
    assert Lags(3) != Lags(3, start=1)
    with pytest.raises(AttributeError):
        Lags(3).count = 4
