"""What several tests need of the inside of the package, which has no public name.

Constants and functions of the inside are replaced by ``monkeypatch.setattr("bochner....", value)``.
"""

import tracemalloc
from pkgutil import resolve_name

import numpy as np

from bochner._core import native
from bochner._core.threads import set_num_threads
from bochner.solvers.convex.problem import FeatureBlock
from bochner.sums.passes import sum_up

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


class Source(list):
    """Blocks of features in memory, as often as asked, which counts how often that was."""

    cached = True
    sweeps = 0

    @property
    def n_features(self):
        return self[0].Z.shape[1]

    @property
    def Z(self):
        return np.concatenate([block.Z for block in self])

    def sum(self, summand):
        return sum_up(summand, self, 1 << 16)

    def __iter__(self):
        self.sweeps += 1
        return super().__iter__()


def source(Z, y=None, w=None, size=97, dtype="float64", cached=True):
    """Rows of features, of targets and of weights, in blocks of this size."""
    Z, part = Z.astype(dtype), lambda a, s: None if a is None else a[s]
    cut = [slice(i, i + size) for i in range(0, len(Z), size)]
    rows = Source(FeatureBlock(Z[s], part(y, s), part(w, s), s.start) for s in cut)
    rows.is_cached = cached
    return rows


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
