"""Systems (G + αI) c = b of waves, G known by its products: conjugate gradients, preconditioned.

Vectors are rows of coefficients of the D real features: of each wave a cosine and a sine, of the
constant one. The waves are those of :mod:`~.toeplitz` or :mod:`~.harmonics`.

**Preconditioner.** The waves of most weight are solved for densely, among one another, the others
by their diagonal: M is block diagonal, and what remains is nearly the identity.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from bochner._core.shapes import Array, Bool, Float, Int
from bochner.solvers import cg
from bochner.solvers.cg import Steps
from bochner.solvers.factorisations import raised_factor

ROUNDED = 1e-12  # Rounding of sums of waves, as a share of their size
MOST_STEPS = 2000  # Steps of conjugate gradients, at most


class WavePreconditioner(ABC):
    """M, near G + αI, and R with M = R Rᵀ."""

    gram: Any  # G, a ToeplitzGram or a HarmonicGram
    alpha: float

    @abstractmethod
    def solve(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        """Return M⁻¹ c."""

    @abstractmethod
    def root(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        """Return R c."""

    @abstractmethod
    def inverse_root(self, c: Float[Array, "s D"], transposed: bool = False) -> Float[Array, "s D"]:
        """Return R⁻¹ c, or R⁻ᵀ c."""

    @abstractmethod
    def log_determinant(self) -> float:
        """Return log det M."""

    @property
    @abstractmethod
    def inverse_diagonal(self) -> Float[Array, " D"]:
        """Diagonal of M⁻¹; cosine and sine of a wave share the mean of theirs."""


class DenseBlock(WavePreconditioner):
    """M: G + αI among some features, its diagonal for the others."""

    @property
    @abstractmethod
    def block(self) -> Int[Array, " b"]:
        """Numbers of the features of the block, cosines and sines."""

    @property
    @abstractmethod
    def factor(self) -> Float[Array, "b b"]:
        """L of M = L Lᵀ among the features of the block."""

    @cached_property
    def diagonal(self) -> Float[Array, " D"]:
        """Of G + αI; cosine and sine of a wave share the mean of theirs."""
        gram = self.gram
        full = gram.roots**2 * gram.weight
        if gram.centred:
            full = full - gram.shared(gram.sums**2) / gram.weight
        return np.maximum(full, 0.0) + self.alpha

    @cached_property
    def others(self) -> Bool[Array, " D"]:
        """Which features are not of the block."""
        outside = np.ones(self.gram.dimension, bool)
        outside[self.block] = False
        return outside

    @property
    def left(self) -> float:
        """Largest element of the diagonal beyond the block, in penalties: as a condition number."""
        return float(self.diagonal[self.others].max(initial=0.0)) / self.alpha

    def solve(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        out = c / self.diagonal
        out[:, self.block] = cho_solve(
            (self.factor, True), c[:, self.block].T, check_finite=False
        ).T
        return out

    def root(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        out = c * np.sqrt(self.diagonal)
        out[:, self.block] = c[:, self.block] @ self.factor.T
        return out

    def inverse_root(self, c: Float[Array, "s D"], transposed: bool = False) -> Float[Array, "s D"]:
        out = c / np.sqrt(self.diagonal)
        given: dict[str, Any] = {"lower": True, "trans": int(transposed), "check_finite": False}
        out[:, self.block] = solve_triangular(self.factor, c[:, self.block].T, **given).T
        return out

    @cached_property
    def inverse_diagonal(self) -> Float[Array, " D"]:
        inverse = solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)
        out = 1 / self.diagonal
        out[self.block] = np.einsum("ij,ij->j", inverse, inverse)
        return self.gram.shared(out)

    def log_determinant(self) -> float:
        low = 2 * float(np.log(np.diagonal(self.factor)).sum())
        return low + float(np.log(self.diagonal[self.others]).sum())


def factored(G: Float[Array, "b b"], alpha: float) -> Float[Array, "b b"]:
    """Return L of G + αI = L Lᵀ; of a larger α where sums were rounded below that."""
    return raised_factor(G, alpha, ROUNDED * float(np.trace(G)))


def conjugate_gradients(
    low: WavePreconditioner, b: Float[Array, "s D"], error: float, most: int = MOST_STEPS
) -> Steps:
    """Solve (G + αI) c = b for several right sides at once, to a relative ``error``."""
    product = lambda V, _: low.gram(V) + low.alpha * V
    return cg.conjugate_gradients(
        product, b, lambda V, _: low.solve(V), np.full(len(b), error), most
    )
