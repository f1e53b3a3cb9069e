"""Sums of waves at scattered points, by finufft."""

import numpy as np

from bochner._core.optional import needed
from bochner._core.shapes import Array, Float


def nufft(
    angles: Float[Array, "n d"], values: Array, error: float, extent: tuple[int, ...] | None = None
) -> Array:
    """Return Σ_n v_n e^{−i k·θ_n} for all whole k with |k_a| ≤ extent_a, in rising order.

    Of θ in radians, in one to three dimensions, and v (s, n); the error is relative to Σ |v_n|.
    Without ``extent`` return Σ_k c_k e^{i k·θ_n} of values c at each point, (s, n); the error is
    relative to ‖c‖.
    """
    values = np.ascontiguousarray(values, dtype=np.complex128)
    waves = [] if extent is None else [tuple(2 * m + 1 for m in extent)]
    shape = (len(values), *(waves[0] if waves else (len(angles),)))
    if not len(angles):
        return np.zeros(shape, dtype=np.complex128)
    finufft = needed("finufft", "A fit by sums of waves", "'bochner[grid]'")
    transform = getattr(finufft, f"nufft{angles.shape[1]}d{1 if waves else 2}")
    columns = [np.ascontiguousarray(column, dtype=np.float64) for column in angles.T]
    # relative errors that finufft may be asked for: the finest that float64 has, and the coarsest
    eps = min(max(error, 1e-14), 1e-4)
    sign = -1 if waves else 1
    return transform(*columns, values, *waves, eps=eps, isign=sign).reshape(shape)
