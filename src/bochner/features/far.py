"""float32 rows far from the origin, for maps that multiply rows by frequencies.

An angle ω·x is rounded in proportion to |ω| |x|: rows 10⁶ from the origin, of spread one, have
angles that are off by a tenth in float32, whatever their differences are. A kernel of x − y knows
no origin; but a shift of the origin would have to be chosen from rows, and maps of equal seeds
drawn from other rows would differ. The angles of such rows are computed in float64 instead, and
their features rounded. Which rows these are depends on each row alone.
"""

from collections.abc import Callable

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    is_numpy,
    is_sparse,
    precision,
)
from bochner._core.shapes import Array, Float

#: Radians, |ω| |x|, from which on angles are computed in float64: in float32 they are off by 6e-5.
FAR = 1024.0

#: Beyond it a reach is no number.
LARGEST = float(np.finfo(np.float64).max)


def reach_of(W: Float[Array, "d m"]) -> float:
    """Return |ω| of a frequency in the middle: some of heavy-tailed kernels are without bound.

    Of those that turn at all: most frequencies of a periodic kernel may be zero.
    """
    lengths = norms(W, axis=0)
    turning = lengths[lengths > 0]
    return float(np.median(turning)) if turning.size else 0.0


def norms(A: Float[Array, "..."], axis: int) -> Array:
    """Return Euclidean norms along an axis; squares of very large numbers do not overflow."""
    largest = float(np.abs(A).max(initial=0.0)) or 1.0
    return largest * np.linalg.norm(A / largest, axis=axis)


def with_far_rows(
    X: Float[Array, "n d"], reach: float, features: Callable[[Array], Array]
) -> Float[Array, "n D"]:
    """Return ``features(X)``, in float64 and then rounded of rows that are far away."""
    if reach == 0.0 or precision(X) == np.float64 or X.shape[0] == 0:
        return features(X)
    with np.errstate(over="ignore"):  # of lengthscales that float32 rows cannot have
        far = _lengths(X) * min(reach, LARGEST) > FAR
    if not bool(array_namespace(far).any(far)):
        return features(X)
    if not (is_numpy(X) or is_sparse(X)):
        return _chosen(X, far, features)
    if far.all():
        return features(X.astype(np.float64)).astype(np.float32)
    Z = features(X)
    Z[far] = features(X[np.flatnonzero(far)].astype(np.float64))
    return Z


def _lengths(X: Float[Array, "n d"]) -> Array:
    """Return |x| of each row, in float64."""
    if is_sparse(X):
        return np.sqrt(np.asarray(X.astype(np.float64).power(2).sum(axis=1)).reshape(-1))
    if is_numpy(X):
        return np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    xp = array_namespace(X)
    return xp.sqrt(xp.sum(xp.astype(X, xp.float64) ** 2, axis=1))


def _chosen(X: Array, far: Array, features: Callable[[Array], Array]) -> Array:
    """Return both, chosen by rows: other libraries may not pick rows by a condition."""
    xp = array_namespace(X)
    precise = xp.astype(features(xp.astype(X, xp.float64)), xp.float32)
    return xp.where(far[:, None], precise, features(X))
