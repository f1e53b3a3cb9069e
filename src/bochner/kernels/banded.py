"""The kernel matrix of rows with themselves; of a sum in bands, each pair once."""

from typing import Any

import numpy as np

from bochner._core.blas import mirror
from bochner._core.shapes import Array, Float
from bochner.kernels.algebra import Transformed
from bochner.kernels.kernel import Kernel, Sum

#: Rows of a band.
BAND = 256


def kernel_matrix(kernel: Kernel, X: Any) -> Float[Array, "n n"]:
    """Return ``kernel(X)`` of NumPy or sparse rows, C-contiguous.

    The matrix of a sum is made in bands up to the diagonal, and mirrored: terms need no further
    memory, and two thirds of the time of bands of all columns.
    """
    if X.shape[0] <= BAND or not _is_sum(kernel):
        return np.ascontiguousarray(kernel(X))
    if isinstance(kernel, Transformed):
        return kernel_matrix(kernel.kernel, kernel.inputs(X))
    first = kernel(X[:BAND])
    K = np.empty((X.shape[0], X.shape[0]), first.dtype)
    K[:BAND, :BAND] = first
    for start in range(BAND, len(K), BAND):
        here = slice(start, start + BAND)
        K[here, : start + BAND] = kernel(X[here], X[: start + BAND])
    return mirror(K.T).T


def _is_sum(kernel: Kernel) -> bool:
    """Whether a kernel is a sum, of rows as they are or transformed."""
    return _is_sum(kernel.kernel) if isinstance(kernel, Transformed) else isinstance(kernel, Sum)
