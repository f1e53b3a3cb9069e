"""What several tests need of the inside of the package, which has no public name.

Constants and functions of the inside are replaced by ``monkeypatch.setattr("bochner....", value)``.
"""

import tracemalloc
from pkgutil import resolve_name

from bochner._core import native
from bochner._core.threads import set_num_threads

#: Whether loops are compiled; else all is pure Python.
HAVE_NATIVE = native.HAVE_NATIVE


def in_pure_python(monkeypatch):
    """Let the twins of the compiled loops do the work."""
    monkeypatch.setattr(native, "_compiled", None)
    monkeypatch.setattr(native, "_warnings", {"pure Python"})


def seen_by(monkeypatch, name):
    """A list that gets the arguments of every call of a function of the package."""
    calls, usual = [], resolve_name(name)
    monkeypatch.setattr(name, lambda *a: calls.append(a) or usual(*a))
    return calls


def with_peak(call):
    """What a call returns, and the most bytes that Python and NumPy had at a time."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def with_threads(make, *counts):
    """What is made with each number of threads of our own loops."""
    try:
        return [set_num_threads(count) or make() for count in counts]
    finally:
        set_num_threads(None)
