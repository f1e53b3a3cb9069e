"""Whether float32 products will limit an answer, judged from the first rows of a sweep."""

from collections.abc import Iterable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import eigsh

from bochner._ground.lapack import cholesky
from bochner._ground.shapes import Array, Float
from bochner.solvers.direct import EPS, FLOAT32_FLOOR, FLOAT32_GRAM, Rounding, Sums, left_out_errors
from bochner.solvers.solution import LEVEL

__all__ = ["limited"]

#: Step of the penalty whose gain is looked at.
STEP = 2.0


def limited(
    sums: Sums,
    n: int,
    alpha: float | str,
    rows: Iterable[tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"]]],
) -> bool:
    """Return whether n rows such as these will ask for a penalty that float32 does not resolve.

    A given penalty is compared with that of all n rows, 1e-6 n/rows ‖G‖. One to be chosen by
    leave-one-out lies below it where the errors still fall there and are not level. The other
    criteria are not foretold.

    Parameters
    ----------
    sums : Sums
        Moments of the first rows.
    n : int
        Rows there will be.
    alpha : float or {"loo", "gcv", "evidence"}
    rows : iterable of (Z, y, w)
        Some of the first rows, about the means of ``sums``.

    Notes
    -----
    Two Cholesky factors and triangular solves, O(D³/3 + b D²) each: a tenth of an
    eigendecomposition.
    """
    top = float(eigsh(sums.gram, k=1, tol=1e-2, v0=np.ones(len(sums.gram)))[0][0])
    resolved = FLOAT32_FLOOR * top * n / sums.rows
    if not isinstance(alpha, str):
        return alpha < resolved
    if alpha != "loo" or not top > 0 or not np.any(sums.power > 0):
        return False
    given = list(rows)
    here, there = (_loo_error(sums, given, step * resolved, top) for step in (1.0, STEP))
    return here < (1 - LEVEL) * there


def _loo_error(
    sums: Sums, rows: list[tuple[Array, Array, Array]], alpha: float, top: float
) -> float:
    """Leave-one-out mean squared error of the rows, as :func:`leave_one_out`, by Cholesky."""
    gram = FLOAT32_GRAM if sums.precision == "float32" else EPS
    rounding = Rounding(top, 0.0, gram, EPS)
    L = cholesky(sums.gram + alpha * np.eye(len(sums.gram)), lower=True, check_finite=False)
    projected = solve_triangular(L, sums.cross, lower=True, check_finite=False)
    varies, total = sums.power > 0, 0.0
    for Z, y, w in rows:
        A = solve_triangular(L, Z.T.astype(np.float64), lower=True, check_finite=False)
        leverage = (A * A).sum(axis=0) + 1 / sums.weight
        slack = rounding.slack(leverage[:, None], w, np.array([alpha]))
        errors = left_out_errors((y - A.T @ projected)[:, varies], slack)
        total += float(w @ (errors**2 / sums.power[varies]).sum(axis=1))
    return total
