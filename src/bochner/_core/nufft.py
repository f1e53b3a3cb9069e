"""Sums of waves at scattered points: by finufft, or by NumPy where finufft is not installed."""

import math
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import PurePythonWarning

#: Relative errors that finufft is asked for: the finest that float64 has, and the coarsest.
FINEST, COARSEST = 1e-14, 1e-4

#: Bytes that tables of waves of the twin may take.
TWIN_BYTES = 32 << 20

_said: set[str] = set()


def sums_of_waves(
    angles: Float[Array, "n d"], values: Array, extent: tuple[int, ...], error: float
) -> Array:
    """Return Σ_n v_n e^{−i k·θ_n} for all whole k with |k_a| ≤ extent_a, in rising order.

    Of θ in radians, in one to three dimensions, and v (s, n); the result is (s, 2 extent_1 + 1, …).
    The error is relative to Σ |v_n|. A type-1 non-uniform FFT: O(n log^d(1/error) + N log N), N the
    number of waves. The twin takes O(n N).
    """
    values = np.ascontiguousarray(values, dtype=np.complex128)
    shape = tuple(2 * m + 1 for m in extent)
    if not len(angles):
        return np.zeros((len(values), *shape), dtype=np.complex128)
    library = _finufft()
    if library is None:
        return _slow_sums(angles, values, extent)
    transform = getattr(library, f"nufft{angles.shape[1]}d1")
    sums = transform(*_columns(angles), values, shape, eps=_error(error), isign=-1)
    return sums.reshape(len(values), *shape)


def waves_at(angles: Float[Array, "n d"], coef: Array, error: float) -> Array:
    """Return Σ_k c_k e^{i k·θ_n} at each point, (s, n) complex128, for whole k in rising order.

    The error is relative to the root of Σ |c_k|². A type-2 non-uniform FFT; costs as for
    :func:`sums_of_waves`.
    """
    coef = np.ascontiguousarray(coef, dtype=np.complex128)
    if not len(angles):
        return np.zeros((len(coef), 0), dtype=np.complex128)
    library = _finufft()
    if library is None:
        return _slow_waves(angles, coef)
    transform = getattr(library, f"nufft{angles.shape[1]}d2")
    values = transform(*_columns(angles), coef, eps=_error(error), isign=1)
    return values.reshape(len(coef), len(angles))


def _columns(angles: Float[Array, "n d"]) -> list[Array]:
    return [np.ascontiguousarray(column, dtype=np.float64) for column in angles.T]


def _error(error: float) -> float:
    return min(max(error, FINEST), COARSEST)


def is_fast() -> bool:
    """Whether sums are made by finufft."""
    return find_spec("finufft") is not None


def _finufft() -> ModuleType | None:
    """Return finufft; where it is not installed say so, once in a process."""
    try:
        import finufft
    except ImportError:
        if not _said:
            _said.add("finufft")
            warnings.warn(
                "FourierGrid sums waves at rows without finufft: results are the same, many times "
                'slower. To have it: pip install "bochner[grid]".',
                PurePythonWarning,
                stacklevel=3,
            )
        return None
    return finufft


# --- The twin: tables of waves along each axis ---------------------------------------------------


def _slow_sums(angles: Array, values: Array, extent: tuple[int, ...]) -> Array:
    shape = tuple(2 * m + 1 for m in extent)
    total = np.zeros((len(values), shape[0], math.prod(shape[1:])), dtype=np.complex128)
    for rows in _pieces(len(angles), shape):
        first, others = _tables(-angles[rows], extent)
        for s, v in enumerate(values[:, rows]):
            total[s] += (first * v[:, None]).T @ others
    return total.reshape(-1, *shape)


def _slow_waves(angles: Array, coef: Array) -> Array:
    shape = coef.shape[1:]
    extent = tuple(length // 2 for length in shape)
    values = np.empty((len(coef), len(angles)), dtype=np.complex128)
    for rows in _pieces(len(angles), shape):
        first, others = _tables(angles[rows], extent)
        for s, c in enumerate(coef.reshape(-1, shape[0], math.prod(shape[1:]))):
            values[s, rows] = np.einsum("nj,nj->n", others @ c.T, first)
    return values


def _tables(angles: Array, extent: tuple[int, ...]) -> tuple[Array, Array]:
    """Return waves along the first axis, and products of those along the others."""
    tables = [
        np.exp(1j * np.outer(angles[:, a], np.arange(-m, m + 1))) for a, m in enumerate(extent)
    ]
    others = np.ones((len(angles), 1), dtype=np.complex128)
    for table in tables[1:]:
        others = (others[:, :, None] * table[:, None, :]).reshape(len(angles), -1)
    return tables[0], others


def _pieces(n: int, shape: tuple[int, ...]) -> Iterator[slice]:
    size = max(1, TWIN_BYTES // (16 * (shape[0] + 2 * math.prod(shape[1:]))))
    return (slice(start, start + size) for start in range(0, n, size))
