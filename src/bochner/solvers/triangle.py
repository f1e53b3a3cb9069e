"""Rows added up as a triangle: QR of √w [1, Z, y], which keeps the digits that ZᵀZ loses.

An eigenvalue of ZᵀZ below Dε of the largest is lost, so singular values of Z below √(Dε) ≈ 1e-7
are; those of the triangle R are lost below Dε. That is what a fit without penalty needs where D
is near n. The column of ones comes first: what is left of Z and y below its row is centred.
"""

import numpy as np

from bochner._ground.lapack import qr
from bochner._ground.shapes import Array, Float
from bochner.solvers.direct import Eigen, decompose_rows

__all__ = ["Triangle"]


class Triangle:
    """Adds blocks up to R with RᵀR = Σ w [1, z, y]ᵀ[1, z, y], by Householder reflections.

    Parameters
    ----------
    centred : bool, default True
        Whether an intercept is fitted.

    Notes
    -----
    Time 2 n D² and memory 2 D², whatever n; float64. Any number of rows, fewer than D too.
    """

    def __init__(self, centred: bool = True) -> None:
        self._centred = centred
        self._held: list[Array] = []
        self._features = 0
        self._rows = 0
        self._weight = 0.0

    def add(
        self, Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"] | None = None
    ) -> None:
        """Add one block."""
        w = np.ones(len(Z)) if w is None else np.asarray(w, np.float64)
        root = np.sqrt(w)[:, None]
        parts = [root * Z, root * y.reshape(len(Z), -1)]
        self._held.append(np.concatenate([root, *parts] if self._centred else parts, axis=1))
        self._features = Z.shape[1]
        self._rows += int(np.count_nonzero(w))
        self._weight += float(w.sum())
        if sum(map(len, self._held)) > 2 * self._held[0].shape[1]:
            self._reduce()

    def eigen(self) -> Eigen:
        """Return the decomposition of what was added: singular values of R."""
        self._reduce()
        first = int(self._centred)
        R, last = self._held[0][first:], first + self._features
        return decompose_rows(
            R[:, first:last],
            R[:, last:],
            np.ones(len(R)),
            self._centred,
            weight=self._weight,
            rows=self._rows,
        )

    def _reduce(self) -> None:
        stacked = np.concatenate(self._held)
        (R,) = qr(stacked, overwrite_a=True, mode="r", check_finite=False)
        self._held = [R[: R.shape[1]]]
