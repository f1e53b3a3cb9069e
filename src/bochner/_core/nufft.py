"""Sums of waves at scattered points, by finufft."""

from importlib.util import find_spec
from typing import Any

import numpy as np

from bochner._core.optional import needed
from bochner._core.shapes import Array, Float


def sums_of_waves(
    angles: Float[Array, "n d"], values: Array, extent: tuple[int, ...], error: float
) -> Array:
    """Return Σ_n v_n e^{−i k·θ_n} for all whole k with |k_a| ≤ extent_a, in rising order.

    Of θ in radians, in one to three dimensions, and v (s, n). The error is relative to Σ |v_n|.
    """
    values = np.ascontiguousarray(values, dtype=np.complex128)
    shape = tuple(2 * m + 1 for m in extent)
    if not len(angles):
        return np.zeros((len(values), *shape), dtype=np.complex128)
    return _transform(1, angles, values, error, shape).reshape(len(values), *shape)


def waves_at(angles: Float[Array, "n d"], coef: Array, error: float) -> Array:
    """Return Σ_k c_k e^{i k·θ_n} at each point, (s, n); the error is relative to ‖c‖."""
    coef = np.ascontiguousarray(coef, dtype=np.complex128)
    if not len(angles):
        return np.zeros((len(coef), 0), dtype=np.complex128)
    return _transform(2, angles, coef, error).reshape(len(coef), len(angles))


def _transform(
    kind: int, angles: Float[Array, "n d"], values: Array, error: float, *shape: Any
) -> Array:
    """Return what finufft gives of values: of kind 1 at waves, of kind 2 at points."""
    finufft = needed("finufft", "A fit by sums of waves", "'bochner[grid]'")
    transform = getattr(finufft, f"nufft{angles.shape[1]}d{kind}")
    columns = [np.ascontiguousarray(column, dtype=np.float64) for column in angles.T]
    # relative errors that finufft may be asked for: the finest that float64 has, and the coarsest
    eps = min(max(error, 1e-14), 1e-4)
    return transform(*columns, values, *shape, eps=eps, isign=2 * kind - 3)


def is_installed() -> bool:
    """Whether finufft is installed."""
    return find_spec("finufft") is not None
