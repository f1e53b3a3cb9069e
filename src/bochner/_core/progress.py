"""Progress of a fit: each step is logged at INFO on the logger ``bochner`` and shown to listeners.

Listeners belong to the context of the call, so two fits in two threads print their own steps only;
:func:`bochner._core.threads.side_by_side` hands the context on to its threads.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

LOG = logging.getLogger("bochner")


class FitStep(NamedTuple):
    """One step of a fit."""

    stage: str  # for example "Choosing the kernel with 512 rows"
    detail: str = ""  # what this step tried or found
    number: int = 0  # of the step in its stage, from 1; 0 if not known
    total: int = 0  # number of steps; 0 if not known

    @property
    def heading(self) -> str:
        """Stage and number, as "Choosing the kernel: candidate 3 of 7"."""
        return f"{self.stage} {self.number} of {self.total}" if self.total else self.stage

    def __str__(self) -> str:
        return f"{self.heading}: {self.detail}" if self.detail else self.heading


Listener = Callable[[FitStep], None]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


def progress(stage: str, detail: str = "", number: int = 0, total: int = 0) -> None:
    """Log a step, and call the listeners of this context with it."""
    step = FitStep(stage, detail, number, total)
    LOG.info("%s", step)
    for listener in _listeners.get():
        listener(step)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Call a listener with each step within the block; None calls nothing."""
    known = _listeners.get()
    token = _listeners.set(known if listener is None or listener in known else (*known, listener))
    try:
        yield
    finally:
        _listeners.reset(token)


def print_step(step: FitStep) -> None:
    """Print a step to standard output, as ``verbose=True`` asks."""
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()
