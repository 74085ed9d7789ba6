"""The only place where Pyro runs: seeded, float64, and leaving no trace behind."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pyro
import torch

from pulse_pyro._core.seeds import torch_seed


@contextmanager
def sandbox(seed: int, *names: str | int) -> Iterator[None]:
    """Run Pyro with its own random stream, parameter store, dtype and one thread.

    On leaving, also by an exception, the caller's torch RNG, default dtype, thread count and
    Pyro parameter store are as they were. Several threads slow small models down a hundredfold on
    a busy machine, and one thread keeps sums in one order.
    """
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    with (
        torch.random.fork_rng(devices=[]),
        pyro.get_param_store().scope(),
        pyro.settings.context(module_local_params=True),
    ):
        torch.manual_seed(torch_seed(seed, *names))
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)


@contextmanager
def without_nan_warnings() -> Iterator[None]:
    """Silence Pyro's warning of a loss that is NaN, where the caller looks and says so itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Encountered (NaN|.*inf)", UserWarning)
        yield
