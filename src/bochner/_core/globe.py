"""Latitude and longitude in degrees: their check, and points of the unit sphere."""

import math
from typing import Any

from bochner._core.arrays import array_namespace
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput


def require_places(caller: str, X: Array) -> None:
    """Refuse rows that are not (latitude, longitude) in degrees."""
    if X.shape[1] != 2:
        raise InvalidInput(
            f"{caller}: rows must be (latitude, longitude) in degrees; got {X.shape[1]} columns. "
            "If there are more, select these two with Columns(kernel, (i, j))."
        )
    xp = array_namespace(X)
    invalid = xp.abs(X[:, 0]) > 90 + 1e-4  # rounding in float32
    if bool(xp.any(invalid)):
        row = int(xp.argmax(xp.astype(invalid, xp.int8)))
        raise InvalidInput(
            f"{caller}: latitude, the first column, must lie within -90 to 90 degrees; got "
            f"{float(X[row, 0]):.6g}. If longitude comes first, exchange the columns."
        )


def unit_vectors(X: Float[Array, "n 2"]) -> Float[Array, "n 3"]:
    """Return (cos φ cos λ, cos φ sin λ, sin φ) for latitude φ and longitude λ in degrees."""
    xp: Any = array_namespace(X)
    phi, lam = X[:, 0] * (math.pi / 180), X[:, 1] * (math.pi / 180)
    return xp.stack([xp.cos(phi) * xp.cos(lam), xp.cos(phi) * xp.sin(lam), xp.sin(phi)], axis=1)
