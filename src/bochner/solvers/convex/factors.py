"""Cholesky factors of Hessians that rounding may have made indefinite."""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, spotrf, spotrs

from bochner._core.shapes import Array, Float

#: Shares of the diagonal that are added to a Hessian which rounding has made indefinite.
JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5)


def cholesky(
    H: Float[Array, "p p"], diagonal: Float[Array, " p"], intercept: bool, single: bool = False
) -> Float[Array, "p p"]:
    """Return the upper factor of H with this diagonal, and as much more of it as rounding needs.

    Without an intercept the last column is a multiple of the identity's.
    """
    every = np.arange(len(H))
    potrf = spotrf if single else dpotrf
    for jitter in JITTERS:
        shifted = H.astype(np.float32 if single else np.float64, order="F")
        shifted[every, every] = (1 + jitter) * diagonal
        if not intercept:
            shifted[:-1, -1] = 0.0
        factor, failed = potrf(shifted, lower=0, clean=0, overwrite_a=1)
        if not failed:
            return factor
    return np.diag(np.sqrt(diagonal))


def solved(factor: Float[Array, "p p"], right: Float[Array, "u p"]) -> Float[Array, "u p"]:
    """Return the solutions for the rows of the right-hand sides."""
    potrs = spotrs if factor.dtype == np.float32 else dpotrs
    found, _ = potrs(factor, right.T.astype(factor.dtype), lower=0)
    return found.T.astype(np.float64)
