"""Threads: how many compiled loops and BLAS may use, and tasks that run in parallel.

Python threads compute in parallel if their calls release the lock of Python, as NumPy, the compiled
loops and :mod:`bochner._core.lapack` do. Unlike threads of a BLAS, they wait without using a core.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, wraps
from itertools import repeat
from numbers import Integral
from threading import RLock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from bochner.errors import InvalidInput

Call = TypeVar("Call", bound=Callable[..., Any])
Result = TypeVar("Result")

_chosen_threads: list[int] = []

#: Of one Python thread: the threads that it may use, and whether it has limited BLAS to one.
_limit: ContextVar[int | None] = ContextVar("limit", default=None)
_limited: ContextVar[bool] = ContextVar("limited", default=False)


def set_num_threads(n: int | None) -> None:
    """Let compiled loops use at most `n` threads; None restores the default."""
    if n is not None and n < 1:
        raise InvalidInput(
            f"set_num_threads requires at least 1 thread, got {n!r}; pass None for the default."
        )
    _chosen_threads[:] = [] if n is None else [int(n)]


def get_num_threads() -> int:
    """Return the largest number of threads to use.

    The first that is set: 1 in :func:`run_parallel`, `n_jobs` of the fit, `set_num_threads`, the
    variables ``BOCHNER_NUM_THREADS`` and ``OMP_NUM_THREADS``, the number of processors.
    """
    if (limit := _limit.get()) is not None:
        return limit
    if _chosen_threads:
        return _chosen_threads[0]
    for name in ("BOCHNER_NUM_THREADS", "OMP_NUM_THREADS"):
        first = os.environ.get(name, "").split(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return int(first)
    return _processors()


def limit_jobs(method: Call) -> Call:
    """Limit a method of an estimator to ``n_jobs`` threads, and BLAS to one thread.

    If ``n_jobs`` is None, joblib's context sets the limit, if any. The outermost method decides.
    """

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_jobs: int | None = getattr(self, "n_jobs", None)
        limit = _limit.get()
        if limit is None:
            if n_jobs is None:
                from joblib.parallel import get_active_backend  # noqa: PLC0415  few need it

                n_jobs = get_active_backend()[1]
            if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral | None) or n_jobs == 0:
                raise InvalidInput(
                    f"{type(self).__name__}: n_jobs must be None or an integer other than 0; got "
                    f"{n_jobs!r}."
                )
            if n_jobs is not None:  # −1 means all processors, −2 all but one
                limit = int(n_jobs) if n_jobs > 0 else max(1, _processors() + 1 + int(n_jobs))
        token = _limit.set(limit)
        try:
            with single_thread():
                return method(self, *args, **kwargs)
        finally:
            _limit.reset(token)

    return wrapper  # type: ignore[return-value]


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_lock = RLock()  # a generator may end by garbage collection in the thread that has it
_counts: list[list[int]] = []  # threads of each BLAS before each Python thread set its limit


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit BLAS of this process to one thread, for work in which its threads would wait."""
    if _limited.get():
        yield
        return
    token = _limited.set(True)
    with _lock:
        _counts.append(_set_threads(repeat(1)))
    try:
        yield
    finally:
        _limited.reset(token)
        with _lock:
            previous = _counts.pop()
            if not _counts:
                _set_threads(previous)


@contextmanager
def all_threads() -> Iterator[None]:
    """Lift the limit of `single_thread` for long work, unless another Python thread also has it."""
    with _lock:
        if is_lifted := _limited.get() and len(_counts) == 1:
            _set_threads([min(number, get_num_threads()) for number in _counts[0]])
    try:
        yield
    finally:
        with _lock:
            if is_lifted:
                _set_threads(repeat(1))


#: The BLAS libraries; finding them takes a millisecond.
_libraries = cache(lambda: ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(numbers: Iterable[int]) -> list[int]:
    """Set the number of threads of each BLAS library, and return the previous numbers."""
    # threadpoolctl 3.8 obeys only the first Python thread that sets a number
    previous = []
    for library, number in zip(_libraries(), numbers, strict=False):
        previous.append(library.num_threads)
        getattr(library, "_real_set_num_threads", library.set_num_threads)(number)
    return previous


def run_parallel(tasks: Sequence[Callable[[], Result]], limit: int = 4) -> list[Result]:
    """Return the results of tasks in order, from up to ``limit`` threads with one BLAS thread each.

    After an error no further task is started; it is raised when the running tasks have ended.
    """
    workers = min(get_num_threads(), len(tasks), limit)
    with single_thread():
        if workers <= 1:
            return [task() for task in tasks]
        with ThreadPoolExecutor(workers) as pool:
            context = copy_context()
            context.run(_limit.set, 1)
            futures = [pool.submit(context.copy().run, task) for task in tasks]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
