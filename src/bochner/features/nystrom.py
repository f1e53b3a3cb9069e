"""Nyström features: rows of the data themselves as landmarks.

With landmarks S, C = k(X, S) and A = k(S, S) = L Lᵀ the features are Z = C L⁻ᵀ, so that
Z Zᵀ = C A⁻¹ Cᵀ: the kernel matrix of the projections onto span{k(s, ·)}. Hence Z Zᵀ ⪯ K, and
k(x, x) − |φ(x)|² ≥ 0 is an exact certificate for every point.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from bochner._ground.arrays import array_namespace, is_numpy, is_sparse, to_numpy
from bochner._ground.blas import triangular_product
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, moved
from bochner.features.method import Method
from bochner.kernels import Kernel
from bochner.solvers.pivots import randomly_pivoted_cholesky

__all__ = ["Landmarks", "Nystrom", "NystromMap", "Pivoted", "Rounded", "Uniform"]


class Landmarks(ABC):
    """Chooses D rows of X to stand for all."""

    @abstractmethod
    def choose(
        self, kernel: Kernel, X: Float[Array, "n d"], count: int, rng: np.random.Generator
    ) -> Array:
        """Return at most ``count`` different row indices."""


@dataclass(frozen=True)
class Uniform(Landmarks):
    """Rows uniformly at random: Williams and Seeger (2001). Cheapest, and no better."""

    def choose(
        self,
        kernel: Kernel,  # noqa: ARG002
        X: Float[Array, "n d"],
        count: int,
        rng: np.random.Generator,
    ) -> Array:
        """Return a uniform sample without replacement."""
        return rng.choice(X.shape[0], size=min(count, X.shape[0]), replace=False)


@dataclass(frozen=True)
class Pivoted(Landmarks):
    """Rows by randomly pivoted Cholesky: Chen, Epperly, Tropp and Webber (2023).

    Follows the data's clusters and edges, and stops by itself when nothing is left to explain.

    Parameters
    ----------
    pool : int, default 4
        Landmarks are chosen among at most ``max(8192, pool * n_features)`` random rows, so that
        the cost of choosing, O(pool D³), does not grow with n.
    """

    pool: int = 4

    def choose(
        self, kernel: Kernel, X: Float[Array, "n d"], count: int, rng: np.random.Generator
    ) -> Array:
        """Return pivots among a random pool of rows."""
        size = min(X.shape[0], max(8192, self.pool * count))
        rows = np.sort(rng.choice(X.shape[0], size=size, replace=False))
        pool = (X if size == X.shape[0] else X[rows]).astype(np.float64, copy=False)
        result = randomly_pivoted_cholesky(
            lambda chosen: kernel(pool, pool[chosen]), kernel.diag(pool), count, rng
        )
        # Where the kernel is zero on every row there is no pivot, and one row does as well as any.
        return rows[result.pivots] if len(result.pivots) else rows[:1]


@dataclass(frozen=True)
class Nystrom(Method):
    """Nyström features with the given choice of landmarks.

    Parameters
    ----------
    landmarks : Landmarks, default Pivoted()
        ``Pivoted()`` or ``Uniform()``.

    Notes
    -----
    Serves every kernel, and needs rows to be drawn from. Follows the spectrum of K: where it
    decays, 5 to 10⁸ times more accurate than random features of equal width; where it does not,
    use :class:`Fourier`. Cost of φ(X): O(n d D + n D²), about three times that of the moments'
    sweep alone. Fewer than D landmarks are taken when they explain all that float32 carries.
    """

    landmarks: Landmarks = field(default_factory=Pivoted)

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not isinstance(self.landmarks, Landmarks):
            raise InvalidInput(
                f"Nystrom: landmarks must be Pivoted() or Uniform(); got {self.landmarks!r}."
            )


#: Share of the mean diagonal added to A = k(S, S) before it is factored. float32 entries of C
#: carry 6e-8; with L's smallest pivot at 1e-3 the features keep four digits of the smallest
#: direction, and Z Zᵀ stays below K.
JITTER = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}


@dataclass(frozen=True, eq=False)
class NystromMap(FeatureMap):
    """φ(x) = L⁻¹ k(S, x) with A = k(S, S) + τI = L Lᵀ.

    Attributes
    ----------
    landmarks : (D, d) float64
        S, rows of the data.

    Notes
    -----
    τ is 1e-6 of the mean diagonal of A for float32 rows and 1e-12 for float64 rows: what keeps
    rounding in k(x, S) from being amplified. Holding rows of the training data is part of the
    method: a saved map contains them.
    """

    kernel: Kernel
    landmarks: Float[Array, "D d"]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.landmarks.shape[1]

    @property
    def n_features(self) -> int:
        """D, the number of landmarks."""
        return self.landmarks.shape[0]

    @property
    def below_kernel(self) -> bool:
        """A projection in feature space: always."""
        return True

    @cached_property
    def _corner(self) -> Float[Array, "D D"]:
        return self.kernel(self.landmarks, self.landmarks)

    def _inverse(self, dtype: np.dtype) -> Float[Array, "D D"]:
        """Return L⁻¹, so that features are one product C L⁻ᵀ."""
        found = self._inverses.get(dtype)
        if found is None:
            inverse = _inverse_root(self._corner, JITTER[dtype])
            found = self._inverses[dtype] = np.asfortranarray(inverse, dtype=dtype)
        return found

    @cached_property
    def _inverses(self) -> dict[np.dtype, Array]:
        return {}

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return k(X, S) L⁻ᵀ, (n, D)."""
        if is_numpy(X) or is_sparse(X):
            return self.whiten(self.kernel(X, self.landmarks.astype(X.dtype, copy=False)))
        C = self.kernel(X, moved(self.landmarks, like=X))
        single = str(C.dtype).endswith("float32")
        inverse = self._inverse(np.dtype(np.float32 if single else np.float64))
        return C @ moved(inverse.T, like=C)

    def whiten(self, C: Float[Array, "n D"]) -> Float[Array, "n D"]:
        """Return C L⁻ᵀ in the place of the NumPy array C, in its precision."""
        return triangular_product(C, self._inverse(C.dtype))


@dataclass(frozen=True, eq=False)
class Rounded(FeatureMap):
    """A map whose features are rounded to one precision, whatever that of the rows.

    The projection, or the distances, are computed in the precision of the rows: rounding rows of
    time stamps to float32 would lose minutes, rounding their features loses nothing that matters.

    Attributes
    ----------
    inner : FeatureMap
    precision : {"float32", "float64"}
    """

    kernel: Kernel
    inner: FeatureMap
    precision: str

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inner.n_inputs

    @property
    def n_features(self) -> int:
        """D of the map that is rounded."""
        return self.inner.n_features

    @property
    def below_kernel(self) -> bool:
        """As the map that is rounded, to rounding."""
        return self.inner.below_kernel

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return φ(X), rounded."""
        inner = self.inner
        if self.precision == "float64":
            return inner.features(_in_precision(X, "float64"))
        if isinstance(inner, NystromMap) and (is_numpy(X) or is_sparse(X)):
            C = inner.kernel(X, inner.landmarks.astype(X.dtype, copy=False))
            return inner.whiten(C.astype(np.float32, copy=False))
        return _in_precision(inner.features(X), "float32")


def _in_precision(A: Array, precision: str) -> Array:
    if is_numpy(A) or is_sparse(A):
        return A.astype(precision, copy=False)
    xp = array_namespace(A)
    return xp.astype(A, getattr(xp, precision), copy=False)


def _inverse_root(A: Float[Array, "D D"], jitter: float) -> Float[Array, "D D"]:
    """Return the lower triangular L⁻¹ with L Lᵀ = A + τI, raising τ until the factor exists."""
    A = to_numpy(A).astype(np.float64)
    scale = float(np.mean(np.diag(A))) or 1.0
    while True:
        try:
            L = cholesky(A + jitter * scale * np.eye(len(A)), lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            jitter *= 10
            continue
        return solve_triangular(L, np.eye(len(A)), lower=True, check_finite=False)
