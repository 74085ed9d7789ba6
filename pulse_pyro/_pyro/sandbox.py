"""The only place where Pyro runs: seeded, float64, and leaving no trace behind."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pyro
import torch
from pyro.distributions import enable_validation, is_validation_enabled

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
def quiet(seed: int | None = None, *names: str | int) -> Iterator[None]:
    """Run a checked program: float64, no gradients, no validation, and its own random numbers.

    Nothing is left behind. It is entered at every step online, so it does without what only a fit
    needs; torch.manual_seed alone takes longer than a step.
    """
    dtype, validated = torch.get_default_dtype(), is_validation_enabled()
    before = None if seed is None else torch.default_generator.get_state()
    try:
        torch.set_default_dtype(torch.float64)
        enable_validation(False)
        if seed is not None:
            torch.default_generator.manual_seed(torch_seed(seed, *names))
        with torch.no_grad():
            yield
    finally:
        if before is not None:
            torch.default_generator.set_state(before)
        enable_validation(validated)
        torch.set_default_dtype(dtype)


@contextmanager
def without_nan_warnings() -> Iterator[None]:
    """Silence Pyro's warning of a loss that is NaN, where the caller looks and says so itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Encountered (NaN|.*inf)", UserWarning)
        yield
