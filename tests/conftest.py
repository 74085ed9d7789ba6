"""What holds for every test: its marker, and that global state is left as it was found."""

import os
import sys

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
from hypothesis import settings

HELPERS = ("tests.calibration.helpers", "tests.report.helpers")  # with fixtures of the session
pytest.register_assert_rewrite(*HELPERS)  # tests import from them before they are plug-ins
pytest_plugins = HELPERS

# the same examples every time, and no verdict by the clock of a busy machine
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

# by what a test's id begins with; everything else is core
_GOLDEN = "tests/golden/test_golden.py::test_figures_are_as_before"
SLOW = {
    "pages": ("tests/report/test_browser.py",),
    "notebooks": ("tests/test_notebooks.py",),
    "paper": (
        "tests/paper/",
        "tests/cli/test_cli.py",  # reproduce
        f"{_GOLDEN}[comparison-linear]",
        f"{_GOLDEN}[masking]",
        f"{_GOLDEN}[real-beijing]",
        f"{_GOLDEN}[sweep-n]",
    ),
    # what takes long by its nature; a core test guards the same code at a smaller size
    "long": (
        f"{_GOLDEN}[demo]",
        f"{_GOLDEN}[law-linear_nuts]",
        f"{_GOLDEN}[law-linear_svi]",
        f"{_GOLDEN}[law-own_laplace]",
        f"{_GOLDEN}[law-own_svi]",
        f"{_GOLDEN}[sbc]",
        f"{_GOLDEN}[study]",
        "tests/_pyro/test_enumeration.py::test_nuts_finds_the_posterior_of_the_sum_by_hand",
        "tests/_pyro/test_enumeration.py::test_nuts_finds_the_reference_posterior_of_a_mixture",
        "tests/_pyro/test_enumeration.py::test_the_mode_and_curvature_are_near_the_reference[h",
        "tests/diagnostics/test_domain.py::test_streams_like_the_archive_are_passed[1-100-",
        "tests/laws/test_gp_oracle.py::test_the_parameter_posterior_is_that_of_the_exact_process[N",
        "tests/laws/test_honest.py::test_the_emission_is_as_sure_as_it_is_right[0.5",
        "tests/laws/test_linear_law.py::test_every_engine_finds_the_exact_posterior[Nuts]",
        "tests/laws/test_linear_law.py::test_every_engine_finds_the_exact_posterior[Svi]",
        "tests/laws/test_varma_fit.py::test_white_noise_stays_white[orders2]",
        "tests/report/test_page.py::test_two_demos_write_the_same_page",
    ),
}


def pytest_collection_modifyitems(items):
    """Mark every test by where it is, so that a test file needs no decorator."""
    for item in items:
        item.add_marker(marker_of(item.nodeid))


def marker_of(test):
    """Return the one marker of a test's id."""
    return next((name for name, starts in SLOW.items() if test.startswith(starts)), "core")


@pytest.fixture(autouse=True)
def global_state_is_left_alone():
    """A test fails if it leaves a trace in NumPy's or torch's globals, Pyro's store or pyplot."""
    numpy_state = np.random.get_state(legacy=False)["state"]["pos"]  # noqa: NPY002
    torch = sys.modules.get("torch")
    before = _torch_state(torch) if torch else None
    yield
    assert np.random.get_state(legacy=False)["state"]["pos"] == numpy_state  # noqa: NPY002
    if torch:
        assert _torch_state(torch) == before
    if "pyro" in sys.modules:
        import pyro

        assert not list(pyro.get_param_store().keys())
    if "matplotlib.pyplot" in sys.modules:
        import matplotlib.pyplot as plt

        assert not plt.get_fignums()


def _torch_state(torch):
    rng = torch.random.get_rng_state().numpy().tobytes()
    validate = torch.distributions.Distribution._validate_args
    return rng, torch.get_default_dtype(), torch.get_num_threads(), validate
