"""Nyström features: rows of the data themselves as landmarks.

With landmarks S, C = k(X, S) and A = k(S, S) = L Lᵀ the features are Z = C L⁻ᵀ, so that
Z Zᵀ = C A⁻¹ Cᵀ: the kernel matrix of the projections onto span{k(s, ·)}. Hence Z Zᵀ ⪯ K, and
k(x, x) − |φ(x)|² ≥ 0 is an exact certificate for every point.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from bochner._core.arrays import (
    array_namespace,
    from_numpy,
    is_numpy,
    is_sparse,
    moved,
    precision,
    to_numpy,
)
from bochner._core.blas import cholesky, triangular_product
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.landmarks import Chosen, Given, Landmarks, Pivoted
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.kernels import Kernel


@dataclass(frozen=True)
class Nystrom(Method):
    """Nyström features with the given choice of landmarks.

    Parameters
    ----------
    landmarks : Landmarks, default Pivoted()
        ``Pivoted()``, ``Uniform()``, ``KMeans()``, ``RidgeLeverage()`` or ``Given(rows)``.

    Notes
    -----
    Serves every kernel, and needs rows to be drawn from. Follows the spectrum of K: where it
    decays, 5 to 10⁸ times more accurate than random features of equal width; where it does not,
    use :class:`Fourier`. Cost of φ(X): O(n d D + n D²), about three times that of the moments'
    sweep alone. Fewer than D landmarks are taken when they explain all that float32 carries.
    ``phi.residual(X)`` is the certificate, k(x, x) − |φ(x)|² ≥ 0 for every row. Landmarks are
    chosen among rows in memory; ``features.streamed.landmarks_of`` chooses them from blocks.
    """

    landmarks: Landmarks = field(default_factory=Pivoted)

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not isinstance(self.landmarks, Landmarks):
            raise InvalidInput(
                "Nystrom: landmarks must be Pivoted(), Uniform(), KMeans(), RidgeLeverage() or "
                f"Given(rows); got {self.landmarks!r}."
            )


#: Share of the mean diagonal added to A = k(S, S) before it is factored. float32 entries of C
#: carry 6e-8; with L's smallest pivot at 1e-3 the features keep four digits of the smallest
#: direction, and Z Zᵀ stays below K.
JITTER = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}

#: From this jitter on float64 sums of k(S, x) may be whitened: on nine tables (two lengthscales,
#: three choices of landmarks) G is then off by at most 1.4e-8 ‖G‖ at D = 1024 and 2.4e-8 at 2048,
#: about as if its products were of float32. What the jitter takes from a direction is a hundredth
#: of the penalties that such a G resolves.
COARSE = 1e-6


@dataclass(frozen=True, eq=False)
class Whitening:
    """What is found once for the landmarks of a map, and saved with it.

    Two maps of equal landmarks are one map, however far each has come with these: so all values
    of this class are equal.

    Attributes
    ----------
    roots : dict
        L⁻ᵀ, (D, D), by the name of its precision; filled when first needed.
    unexplained : float or None
        See :class:`Chosen`.
    """

    roots: dict[str, Array]
    unexplained: float | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whitening)

    def __hash__(self) -> int:
        return hash(Whitening)


@dataclass(frozen=True, eq=False)
class NystromMap(FeatureMap):
    """φ(x) = L⁻¹ k(S, x) with A = k(S, S) + τI = L Lᵀ.

    Attributes
    ----------
    landmarks : (D, d) float64
        S, rows of the data.
    whitening : Whitening
        L⁻ᵀ in the precisions used so far, and the share of the trace that is unexplained.
    jitter : float or None
        τ as a share of the mean diagonal of A. None: 1e-6 for float32 rows and 1e-12 for float64
        rows.

    Notes
    -----
    τ keeps rounding in k(x, S) from being amplified. Holding rows of the training data is part of
    the method: a saved map contains them, and L⁻ᵀ, so that it means the same on another machine.
    """

    kernel: Kernel
    landmarks: Float[Array, "D d"]
    whitening: Whitening = field(default_factory=lambda: Whitening({}))
    jitter: float | None = None

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

    @property
    def unexplained(self) -> float | None:
        """Tr(K − ZZᵀ)/Tr K of the rows that pivots were chosen from; None for other landmarks."""
        return self.whitening.unexplained

    def residual(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return k(x, x) − |φ(x)|² of each row, (n,), in the array library of X.

        What the landmarks do not explain of x, zero on landmarks: for any two rows
        |k(x, y) − φ(x)·φ(y)|² ≤ residual(x) · residual(y). Cost: that of φ(X).
        """
        Z = self(X)
        xp = array_namespace(Z)
        left = from_numpy(self.kernel.diag(X), Z) if is_sparse(X) else self.kernel.diag(X)
        return xp.clip(xp.astype(left, Z.dtype, copy=False) - xp.sum(Z * Z, axis=1), min=0.0)

    def with_jitter(self, jitter: float | None) -> "NystromMap":
        """Return the map of the same landmarks with another τ."""
        fresh = Whitening({}, self.unexplained)
        return NystromMap(self.kernel, self.landmarks, fresh, jitter)

    def root(self, dtype: np.dtype) -> Float[Array, "D D"]:
        """Return L⁻ᵀ in this precision, so that features are one product C L⁻ᵀ."""
        found = self.whitening.roots.get(dtype.name)
        if found is None:
            A = self.kernel(self.landmarks, self.landmarks)
            jitter = JITTER[dtype] if self.jitter is None else self.jitter
            found = np.ascontiguousarray(_inverse_root(A, jitter).T, dtype=dtype)
            self.whitening.roots[dtype.name] = found
        return found

    @property
    def sums_first(self) -> bool:
        """Whether sums over rows of k(S, x) may be whitened, in the place of each row.

        Their rounding, ε ‖CᵀC‖, is multiplied by up to 1/τ: see :data:`COARSE`.
        """
        return self.jitter is not None and self.jitter >= COARSE

    def values(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return C = k(X, S), (n, D)."""
        if is_numpy(X) or is_sparse(X):
            return self.kernel(X, self.landmarks.astype(X.dtype, copy=False))
        return self.kernel(X, moved(self.landmarks, like=X))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return k(X, S) L⁻ᵀ, (n, D)."""
        C = self.values(X)
        if is_numpy(C):
            return self.whiten(C)
        return C @ moved(self.root(precision(C)), like=C)

    def whiten(self, C: Float[Array, "n D"]) -> Float[Array, "n D"]:
        """Return C L⁻ᵀ in the place of the NumPy array C, in its precision."""
        return triangular_product(C, self.root(C.dtype).T)


@dataclass(frozen=True, eq=False)
class LandmarkValues(FeatureMap):
    """c(x) = k(S, x): what a Nyström map whitens, φ(x) = L⁻¹ c(x).

    Sums over rows of φ(x) and φ(x)φ(x)ᵀ follow from those of c(x) by one product in the place of
    one for each row, and β·φ(x) is (L⁻ᵀβ)·c(x).

    Attributes
    ----------
    inner : NystromMap
    """

    kernel: Kernel
    inner: NystromMap

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inner.n_inputs

    @property
    def n_features(self) -> int:
        """D, the number of landmarks."""
        return self.inner.n_features

    @property
    def below_kernel(self) -> bool:
        """Its products are not those of the kernel."""
        return False

    @property
    def unbiased(self) -> bool:
        """Its products are not those of the kernel."""
        return False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return k(X, S), (n, D)."""
        return self.inner.values(X)


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
            return inner.whiten(inner.values(X).astype(np.float32, copy=False))
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


def nystrom_map(
    method: Nystrom,
    kernel: Kernel,
    X: Float[Array, "n d"] | None,
    width: int,
    rng: np.random.Generator,
) -> NystromMap:
    """Return the Nyström map of at most ``width`` landmarks, chosen among the rows of X."""
    landmarks = method.landmarks
    if X is None and not isinstance(landmarks, Given):
        raise InvalidInput(
            "draw: Nystrom takes its landmarks from rows of data; got none. Pass X=..."
        )
    chosen: Chosen = landmarks.choose(kernel, X, width, rng)
    return NystromMap(kernel, chosen.rows, Whitening({}, chosen.unexplained))
