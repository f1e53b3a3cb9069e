"""Products with the kernel matrix of rows with one another, which is made while it is multiplied.

Each value off the diagonal serves twice, as itself and transposed, and never leaves the cache of
one processor: no tile of the matrix goes to memory and back.
"""

import numpy as np

from bochner._ground.native import PROFILES, _loops, _row_blocks, get_num_threads
from bochner._ground.shapes import Array, Float

__all__ = ["radial_product", "radial_product_twin"]


def radial_product(
    X: Float[Array, "n d"], V: Float[Array, "n t"], profile: str, parameter: float = 1.0
) -> Float[Array, "n t"]:
    """Return K V in float64 for the kernel matrix K that `native.radial` gives of X and X.

    X and V, float32 or float64, are alike. Values are of their precision, within a few roundings
    of those of `native.radial`, and so are sums over blocks of 256 × 256 values; sums over blocks
    are float64, in one order for any number of threads. Costs n² d + 2 n² t multiplications, n²/2
    values, and up to 2 KB of memory a row.
    """
    right, out = np.ascontiguousarray(V.T), np.empty((V.shape[1], len(X)))
    if (loops := _loops()) is not None:
        loops.radial_product(X, profile, parameter, right, out, get_num_threads())
        return out.T
    return radial_product_twin(X, V, profile, parameter)


def radial_product_twin(X: Array, V: Array, profile: str, parameter: float) -> Array:
    """Do what `radial_product` does, in NumPy, some rows of the upper triangle at a time."""
    measure, value = PROFILES[profile]
    out, parameter = np.zeros(V.shape), X.dtype.type(parameter)
    for rows in _row_blocks(X, 4 * len(X)):
        block = X[rows]
        below = slice(rows.start + len(block), None)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            K = value(measure(block, X[rows.start :]), parameter)
        out[rows] += K @ V[rows.start :]
        out[below] += K[:, len(block) :].T @ V[rows]
    return out
