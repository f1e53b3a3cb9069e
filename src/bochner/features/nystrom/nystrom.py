"""Nyström features: rows of the data themselves as landmarks.

With landmarks S, C = k(X, S) and A = k(S, S) = L Lᵀ the features are Z = C L⁻ᵀ, so that
Z Zᵀ = C A⁻¹ Cᵀ: the kernel matrix of the projections onto span{k(s, ·)}. Hence Z Zᵀ ⪯ K, and
k(x, x) − |φ(x)|² ≥ 0 is an exact certificate for every point.
"""

from dataclasses import dataclass, field

import numpy as np

from bochner._core.arrays import is_numpy, is_sparse, moved, precision, to_numpy
from bochner._core.blas import invert_triangle, triangular_product
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, in_precision
from bochner.features.method import Method, Request
from bochner.features.nystrom.landmarks import Given, Landmarks, RPCholesky, as_landmarks
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import gradients
from bochner.solvers.factorisations import raised_factor


@dataclass(frozen=True)
class Nystrom(Method):
    """Nyström features with the given choice of landmarks.

    Parameters
    ----------
    landmarks : str, rows (m, d) or a value of `bochner.landmarks`, default "rpcholesky"
        "rpcholesky", "kmeans", "uniform" or "ridge-leverage" are short for
        ``RPCholesky()``, ``KMeans()``, ``Uniform()`` and ``RidgeLeverage()``, which have options of
        their own; rows, which need not be of the data, for ``Given(rows)``. The value is kept.

    See Also
    --------
    Fourier : Features that need no rows.
    HermiteMercer : Fixed functions, for smooth kernels.

    Notes
    -----
    Serves every kernel, and needs rows to be drawn from. Follows the spectrum of K: where it
    decays, 5 to 10⁸ times more accurate than random features of equal width; where it does not,
    use :class:`Fourier`. Cost of φ(X): O(n d D + n D²), about three times the moments'
    sweep. Fewer than D landmarks are taken when they explain the kernel to float32's rounding.
    ``phi.residual(X)`` is the certificate, k(x, x) − |φ(x)|² ≥ 0 for every row. Landmarks are
    chosen among rows in memory.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(Gaussian(), bo.Nystrom("kmeans"), n_features=32, X=X, random_state=0)
    >>> phi(X).shape
    (50, 32)
    >>> bool(phi.residual(X).max() < 0.1)
    True
    """

    landmarks: Landmarks = field(default_factory=RPCholesky)

    def __init__(self, landmarks: Landmarks | str | Float[Array, "m d"] = "rpcholesky") -> None:
        object.__setattr__(self, "landmarks", as_landmarks(landmarks, "Nystrom"))


#: Share of the mean diagonal added to A = k(S, S) before its Cholesky factorization, so that
#: float32 features keep four digits of the smallest direction, and Z Zᵀ stays below K.
JITTER = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
#: Least jitter at which float64 sums of k(S, x) may be whitened; G is then as exact as in float32.
COARSE = 1e-6


@dataclass(frozen=True, eq=False)
class NystromMap(FeatureMap):
    """φ(x) = L⁻¹ k(S, x) with A = k(S, S) + τI = L Lᵀ; τ limits the rounding of k(x, S).

    A saved map has rows of the training data, and L⁻ᵀ, so that it is the same on all machines.
    """

    kernel: Kernel
    landmarks: Float[Array, "D d"]  # S, rows of the data
    #: τ as a share of the mean diagonal of A. None: 1e-6 for float32 rows and 1e-12 for float64
    #: rows.
    jitter: float | None = None
    #: L⁻ᵀ, (D, D), by the name of its precision: a cache, filled when first needed.
    roots: dict[str, Array] = field(default_factory=dict, compare=False)
    whitened: bool = True  # False: values k(S, x), which cost less and are no approximation

    unbiased = False

    @property
    def below_kernel(self) -> bool:  # A projection in feature space: always
        return self.whitened

    @property
    def multiplications(self) -> float:
        d, D = self.n_inputs, self.n_features
        return float(D * d + 2 * D * D)

    def root(self, dtype: np.dtype) -> Float[Array, "D D"]:
        """Return L⁻ᵀ in this precision, so that features are one product C L⁻ᵀ."""
        known = self.roots.get(dtype.name)
        if known is None:
            A = to_numpy(self.kernel(self.landmarks, self.landmarks)).astype(np.float64)
            scale = float(np.mean(np.diag(A))) or 1.0
            jitter = scale * (JITTER[dtype] if self.jitter is None else self.jitter)
            lower = raised_factor(A, jitter, float(np.finfo(float).eps) * scale)
            upper = np.asfortranarray(lower.T)
            invert_triangle(upper)
            known = np.ascontiguousarray(upper, dtype=dtype)
            self.roots[dtype.name] = known
        return known

    def values(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return C = k(X, S), (n, D), of checked rows."""
        return self.kernel.evaluate(X, moved(self.landmarks, like=X))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        C = self.values(X)
        if is_numpy(C) or not self.whitened:
            return self.whiten(C) if self.whitened else C
        return C @ moved(self.root(precision(C)), like=C)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        if self.whitened:
            C = C @ moved(self.root(precision(X)).T, like=X)
        return gradients(self.kernel, X, moved(self.landmarks, like=X), C)

    def whiten(self, C: Float[Array, "n D"]) -> Float[Array, "n D"]:
        """Return C L⁻ᵀ, written over the NumPy array C, in its precision."""
        return triangular_product(C, self.root(C.dtype).T)


@dataclass(frozen=True, eq=False)
class Rounded(FeatureMap):
    """A map whose features, not rows, are rounded to one precision: times keep their minutes."""

    kernel: Kernel
    inner: FeatureMap
    precision: str

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        inner = self.inner
        if self.precision == "float64":
            return inner.features(in_precision(X, "float64"))
        if isinstance(inner, NystromMap) and (is_numpy(X) or is_sparse(X)):
            return inner.whiten(inner.values(X).astype(np.float32, copy=False))
        return in_precision(inner.features(X), "float32")

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        """Return gradients of the features as they are before they are rounded."""
        return self.inner.pullback(X, C)


def draw_nystrom(method: Nystrom, kernel: Kernel, ask: Request) -> NystromMap:
    """Draw the map of at most D landmarks, chosen among the rows of the request."""
    if ask.X is None and not isinstance(method.landmarks, Given):
        raise InvalidInput(
            "draw: Nystrom takes its landmarks from rows of data; got none. Pass X=..."
        )
    rng = ask.stream("landmarks")
    rows = method.landmarks.choose(kernel, ask.X, ask.n_features, rng)
    if rows.shape[1] != ask.n_inputs:
        raise InvalidInput(
            f"draw: Given(rows) must have the {ask.n_inputs} columns of the data; got "
            f"{rows.shape[1]}."
        )
    return NystromMap(kernel, rows)
