"""Sums of waves at scattered points, by finufft."""

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
    return _transform(1, angles, values, error, tuple(2 * m + 1 for m in extent))


def waves_at(angles: Float[Array, "n d"], coef: Array, error: float) -> Array:
    """Return Σ_k c_k e^{i k·θ_n} at each point, (s, n); the error is relative to ‖c‖."""
    return _transform(2, angles, coef, error)


def _transform(
    kind: int, angles: Float[Array, "n d"], values: Array, error: float, *waves: Any
) -> Array:
    """Return what finufft gives of values: of kind 1 at waves, of kind 2 at points."""
    values = np.ascontiguousarray(values, dtype=np.complex128)
    shape = (len(values), *(waves[0] if waves else (len(angles),)))
    if not len(angles):
        return np.zeros(shape, dtype=np.complex128)
    finufft = needed("finufft", "A fit by sums of waves", "'bochner[grid]'")
    transform = getattr(finufft, f"nufft{angles.shape[1]}d{kind}")
    columns = [np.ascontiguousarray(column, dtype=np.float64) for column in angles.T]
    # relative errors that finufft may be asked for: the finest that float64 has, and the coarsest
    eps = min(max(error, 1e-14), 1e-4)
    return transform(*columns, values, *waves, eps=eps, isign=2 * kind - 3).reshape(shape)
