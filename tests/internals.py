"""Private parts of the package that several tests use.

Tests replace private constants and functions by ``monkeypatch.setattr("bochner....", value)``.
"""

import tracemalloc
from pkgutil import resolve_name

import numpy as np

from bochner._core import native
from bochner._core.threads import set_num_threads
from bochner.solvers.convex.problem import FeatureBlock
from bochner.sums.passes import sum_blocks

#: Whether the compiled loops are available; otherwise pure Python is used.
HAVE_NATIVE = native.HAVE_NATIVE


def in_pure_python(monkeypatch):
    """Use the pure Python twins of the compiled loops."""
    monkeypatch.setattr(native, "_compiled", None)
    monkeypatch.setattr(native, "_warnings", {"pure Python"})


def record_calls(monkeypatch, name):
    """Return a list to which the arguments of each call of the function are appended."""
    calls, usual = [], resolve_name(name)
    monkeypatch.setattr(name, lambda *a: calls.append(a) or usual(*a))
    return calls


class Source(list):
    """Blocks of features in memory; ``sweeps`` counts the iterations over them."""

    cached = True
    sweeps = 0

    @property
    def n_features(self):
        return self[0].Z.shape[1]

    @property
    def Z(self):
        return np.concatenate([block.Z for block in self])

    def sum(self, summand):
        return sum_blocks(summand, self, 1 << 16)

    def __iter__(self):
        self.sweeps += 1
        return super().__iter__()


def source(Z, y=None, w=None, size=97, dtype="float64", cached=True):
    """Return features, targets and weights as a Source of blocks of ``size`` rows."""
    Z, part = Z.astype(dtype), lambda a, s: None if a is None else a[s]
    cut = [slice(i, i + size) for i in range(0, len(Z), size)]
    rows = Source(FeatureBlock(Z[s], part(y, s), part(w, s), s.start) for s in cut)
    rows.is_cached = cached
    return rows


def with_peak(call):
    """Return the result of a call, and the peak memory of Python and NumPy in bytes."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def with_threads(make, *counts):
    """Return the results of ``make()`` for each number of threads of the compiled loops."""
    try:
        return [set_num_threads(count) or make() for count in counts]
    finally:
        set_num_threads(None)
