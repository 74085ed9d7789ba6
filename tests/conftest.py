"""Guards that hold for every test: global state is left as it was found."""

import os
import sys

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
from hypothesis import settings

# tests import helpers of it before pytest loads it as a plugin
pytest.register_assert_rewrite("tests.report_pages")

# the same examples every time, and no verdict by the clock of a busy machine
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


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
