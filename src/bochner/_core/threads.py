"""Threads: how many compiled loops and BLAS may use, and work that is done side by side.

Threads of Python compute side by side where what they call lets go of Python's lock, as NumPy, the
compiled loops and :mod:`bochner._core.lapack` do. They wait for one another without spinning, where
those of a BLAS wait at full speed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from threading import local
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from bochner.errors import InvalidInput

Made = TypeVar("Made")

#: Tasks that are done side by side, at most: each holds matrices of its own.
MOST_SIDE_BY_SIDE = 4

_chosen_threads: list[int] = []


class _Here(local):
    """What is so in one thread of Python."""

    alone = False  # whether it has asked for one thread of BLAS
    beside_others = False  # whether others of its tasks run in other threads


_here = _Here()


# ---- how many


def set_num_threads(n: int | None) -> None:
    """Let compiled loops use at most `n` threads; None goes back to the default."""
    if n is not None and n < 1:
        raise InvalidInput(
            f"set_num_threads requires at least 1 thread, got {n!r}; pass None for the default."
        )
    _chosen_threads[:] = [] if n is None else [int(n)]


def get_num_threads() -> int:
    """Return the most threads that a compiled loop uses: one, where others run beside this one.

    The first of: `set_num_threads`, the environment variables ``BOCHNER_NUM_THREADS`` and
    ``OMP_NUM_THREADS``, the processors this process may run on.
    """
    if _here.beside_others:
        return 1
    if _chosen_threads:
        return _chosen_threads[0]
    for name in ("BOCHNER_NUM_THREADS", "OMP_NUM_THREADS"):
        first = os.environ.get(name, "").split(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return int(first)
    return _processors()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- BLAS


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use one thread: where several would wait for one another.

    The number of threads is the process's, and comes back afterwards. Asking for it takes a tenth
    of a millisecond, and nothing within another such context.
    """
    if _here.alone:
        yield
        return
    _here.alone = True
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        _here.alone = False


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # finding them takes a millisecond


# ---- tasks


def side_by_side(tasks: Sequence[Callable[[], Made]], most: int = MOST_SIDE_BY_SIDE) -> list[Made]:
    """Return what tasks give, in their order, done in up to so many threads.

    Each has one thread of BLAS, however many run, so that what it gives is the same for any number
    of them. Tasks of a task are done one after the other. The first error is raised once those that
    run have ended; the others are not begun.
    """
    workers = min(get_num_threads(), len(tasks), most)
    with one_thread():
        if workers <= 1:
            return [task() for task in tasks]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(copy_context().run, _beside_others, task) for task in tasks]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _beside_others(task: Callable[[], Made]) -> Made:
    _here.alone = _here.beside_others = True
    return task()
