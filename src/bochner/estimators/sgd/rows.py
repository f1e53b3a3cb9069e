"""What a descent reads of the rows: features or kernel values, on the fly or kept."""

from typing import Any

import numpy as np
import scipy.sparse

from bochner._ground.arrays import is_sparse, to_numpy
from bochner._ground.shapes import Array, Float
from bochner.estimators.fitting.engine import as_features
from bochner.features import FeatureMap
from bochner.kernels import Kernel
from bochner.planning.strategies import block_rows
from bochner.solvers.sgd import Descent

__all__ = ["FeatureRows", "KernelRows", "below"]


class FeatureRows:
    """Rows as features.

    Parameters
    ----------
    phi : FeatureMap
    dtype : {"float32", "float64"}
    X : (n, d)
    cached : bool
        Whether all features are computed now and kept.
    """

    def __init__(self, phi: FeatureMap, dtype: str, X: Array, cached: bool) -> None:
        self._map, self._dtype, self._X = phi, dtype, X
        self.n_coef, self.first = phi.n_features, 0
        self._Z = None
        if cached:
            self._Z = np.empty((X.shape[0], phi.n_features), dtype)
            for rows in _blocks(X.shape[0], phi.n_features):
                self._Z[rows] = as_features(phi, X[rows], dtype)

    def step(
        self, descent: Descent, index: Array, y: Float[Array, "c t"], w: Float[Array, " c"]
    ) -> None:
        """Let the descent make its steps on these rows."""
        if self._Z is not None:
            Z = self._Z[index]
        else:
            Z = as_features(self._map, self._X[index], self._dtype)
        descent.on_features(Z, y, w)

    def values(self, coef: Float[Array, "D t"]) -> Float[Array, "n t"]:
        """Return φ(X) β of all rows."""
        n = self._X.shape[0]
        if self._Z is not None:
            return self._Z @ coef
        parts = (
            as_features(self._map, self._X[rows], self._dtype) for rows in _blocks(n, self.n_coef)
        )
        return np.concatenate([Z @ coef for Z in parts])


class KernelRows:
    """Rows as kernel values with all rows that coefficients may be on.

    Parameters
    ----------
    kernel : Kernel
    before : (m, d) or None
        Rows that have coefficients already.
    X : (n, d)
        Rows to step on; they get the coefficients after those.
    cached : bool
        Whether all kernel values are computed now and kept.
    """

    def __init__(self, kernel: Kernel, before: Array | None, X: Array, cached: bool) -> None:
        self._kernel = kernel
        self.first = 0 if before is None else before.shape[0]
        self.all = X if before is None else below(before, X)
        self.n_coef = self.all.shape[0]
        self._K = None
        if cached:
            self._K = np.empty((X.shape[0], self.n_coef), X.dtype)
            for rows in _blocks(X.shape[0], self.n_coef):
                self._K[rows] = to_numpy(kernel(X[rows], self.all))

    def step(
        self, descent: Descent, index: Array, y: Float[Array, "c t"], w: Float[Array, " c"]
    ) -> None:
        """Let the descent make its steps on these rows."""
        own = self.first + index
        if self._K is not None:
            descent.on_kernels(self._K[index], y, w, slice(None), own)
            return
        # A row that has had no step yet has the coefficient zero: its kernel values are not needed.
        used = descent.walk.support
        used[own] = True
        columns = np.flatnonzero(used)
        there = self.all if len(columns) == self.n_coef else self.all[columns]
        K = to_numpy(self._kernel(self.all[own], there))
        descent.on_kernels(K, y, w, columns, np.searchsorted(columns, own))


def below(A: Array, B: Array) -> Array:
    """Return the rows of A and then those of B."""
    if is_sparse(A) or is_sparse(B):
        return scipy.sparse.vstack([A, B], format="csr")
    return np.concatenate([A, B])


def _blocks(n: int, width: int) -> Any:
    size = block_rows(width, 256)
    return (slice(start, start + size) for start in range(0, n, size))
