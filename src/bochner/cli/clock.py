"""Seconds by phase."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Clock:
    """Measures named phases, in the order they come."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens within."""
        began = perf_counter()
        yield
        self.seconds[name] = round(perf_counter() - began, 4)

    def __str__(self) -> str:
        """Return ``fit 3.1 s, write 0.2 s``."""
        return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.seconds.items())
