"""Independent jobs on this machine's cores or on a Dask cluster; results come in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pulse_pyro._core.arrays import whole
from pulse_pyro._core.errors import SettingError

Job = TypeVar("Job")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Local:
    """The machine at hand: ``workers`` processes, or no further process if it is one."""

    workers: int = 1

    def __post_init__(self) -> None:
        whole(self.workers, "Local: workers", 1)


@dataclass(frozen=True)
class Dask:
    """A Dask cluster: the address of its scheduler, or None to start one on this machine."""

    address: str | None = None


Engine: TypeAlias = Local | Dask


def in_order(run: Callable[[Job], Found], jobs: Sequence[Job], engine: Engine) -> Iterator[Found]:
    """Yield run(job) for each job, in order, as they are finished.

    Every job runs with one thread of linear algebra, wherever it runs: sums are then formed in the
    same order, and results do not depend on the engine or on the number of workers.
    """
    import joblib

    if not jobs:
        return

    def one(job: Job) -> Found:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return run(job)

    with _backend(engine) as workers:
        found = iter(
            joblib.Parallel(n_jobs=workers, return_as="generator", batch_size=1)(
                joblib.delayed(one)(job) for job in jobs
            )
        )
        for _ in jobs:
            with warnings.catch_warnings():
                # a worker that has grown by 300 MB is replaced by a fresh one: nothing is lost
                warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
                answer = next(found)
            yield answer
        next(found, None)  # lets it end, so that workers are let go


@contextmanager
def _backend(engine: Engine) -> Iterator[int]:
    import joblib

    if isinstance(engine, Local):
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            yield engine.workers
        return
    client = _client(engine)
    try:
        with joblib.parallel_config("dask"):
            yield -1
    finally:
        client.close()


def _client(engine: Dask) -> Any:
    try:
        from distributed import Client
    except ImportError as cause:
        raise SettingError(
            "Dask needs the package distributed: pip install 'pulse-pyro[dask]', or use Local()."
        ) from cause
    try:
        return Client(engine.address) if engine.address else Client(threads_per_worker=1)
    except (OSError, ValueError) as cause:
        raise SettingError(f"Dask: no scheduler answers at {engine.address}: {cause}.") from cause
