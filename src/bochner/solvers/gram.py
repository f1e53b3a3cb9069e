"""Systems (G + αI) c = b of waves, G known by its products: conjugate gradients, preconditioned.

Coefficients of real functions are complex arrays whose last axis starts at 0 and represents
negative frequencies too: c_{−m} is the conjugate of c_m. These are D real numbers, and every
product below is the one of R^D. A :class:`WaveGram` defines the modes (:mod:`~.toeplitz`,
:mod:`~.harmonics`).

**Preconditioner.** The waves of most weight are solved for densely, among one another, the others
by their diagonal: M is block diagonal, and what remains is nearly the identity.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from bochner._core.shapes import Array, Float
from bochner.solvers import cg
from bochner.solvers.cg import Steps
from bochner.solvers.factorisations import raised_factor

#: Rounding of sums of waves, as a share of their size.
ROUNDED = 1e-12

#: Steps of conjugate gradients, at most.
MOST_STEPS = 2000


def inner(a: Array, b: Array) -> Float[Array, " s"]:
    """Return the inner products of R^D."""
    return 2 * _dot(a, b) - _dot(a[..., :1], b[..., :1])


def _dot(a: Array, b: Array) -> Float[Array, " s"]:
    rows = [np.ascontiguousarray(c).reshape(len(c), -1).view(np.float64) for c in (a, b)]
    return np.einsum("ij,ij->i", *rows)


def total(half: Array) -> float:
    """Return the sum over all waves of real numbers that are equal at m and −m."""
    return 2 * half.sum() - half[..., 0].sum()


# --- Kinds ---------------------------------------------------------------------------------------


class WaveGram(ABC):
    """G = ZᵀZ of waves Z with weights, about the rows' mean where there is an intercept."""

    centred: bool

    @property
    @abstractmethod
    def extent(self) -> tuple[int, ...]:
        """Largest k along each axis of the waves that functions are made of."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """D."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """W, the sum of the rows' weights."""

    @property
    @abstractmethod
    def size(self) -> float:
        """k(x, x), the sum of the weights of all modes."""

    @property
    @abstractmethod
    def roots(self) -> Array:
        """Roots of the weights of modes."""

    @property
    @abstractmethod
    def sums(self) -> Array:
        """Σ w of each mode, which an intercept removes."""

    @property
    @abstractmethod
    def counts(self) -> Array:
        """How often each place of an array of coefficients counts in R^D."""

    @abstractmethod
    def __call__(self, c: Array) -> Array:
        """Return G c of several vectors."""

    @abstractmethod
    def white(self, rng: np.random.Generator, count: int) -> Array:
        """Return independent standard normal vectors of R^D."""

    @abstractmethod
    def to_real(self, c: Array) -> Float[Array, "D s"]:
        """Return coefficients of the real features."""

    @abstractmethod
    def from_real(self, coef: Float[Array, "D s"]) -> Array:
        """Return the inverse of :meth:`to_real`."""

    @abstractmethod
    def right(self, cross: Array) -> Array:
        """Return b of sums over rows, of k in rising order."""

    @abstractmethod
    def spectrum(self, c: Array) -> Array:
        """Return the waves of the functions, halves of spectra."""

    @abstractmethod
    def preconditioner(self, alpha: float) -> "WavePreconditioner":
        """Return M for a penalty."""

    @abstractmethod
    def full_block(self, alpha: float) -> "DenseBlock":
        """Return G + αI itself, all waves solved for densely."""


class WavePreconditioner(ABC):
    """M, near G + αI, and R with M = R Rᵀ."""

    gram: WaveGram
    alpha: float

    @abstractmethod
    def solve(self, c: Array) -> Array:
        """Return M⁻¹ c."""

    @abstractmethod
    def root(self, c: Array) -> Array:
        """Return R c."""

    @abstractmethod
    def inverse_root(self, c: Array, transposed: bool = False) -> Array:
        """Return R⁻¹ c, or R⁻ᵀ c."""

    @abstractmethod
    def log_determinant(self) -> float:
        """Return log det M."""

    @property
    @abstractmethod
    def inverse_diagonal(self) -> Array:
        """Diagonal of M⁻¹, as coefficients are laid out: real and imaginary part share theirs."""


class DenseBlock(WavePreconditioner):
    """M: G + αI among some waves, its diagonal for the others."""

    @cached_property
    def diagonal(self) -> Array:
        """Of G + αI, as coefficients are laid out."""
        gram = self.gram
        full = np.broadcast_to(gram.roots**2 * gram.weight, gram.counts.shape)
        if gram.centred:
            full = full - np.abs(gram.sums) ** 2 / gram.weight
        return np.where(gram.counts > 0, np.maximum(full, 0.0), 0.0) + self.alpha

    @property
    @abstractmethod
    def factor(self) -> Float[Array, "b b"]:
        """L of M = L Lᵀ among the real features of the block."""

    @cached_property
    def others(self) -> Array:
        """How often each place counts in R^D; zero within the block."""
        counts = self.gram.counts[None].astype(np.complex128)
        return self.scatter(np.zeros_like(self.gather(counts)), counts)[0].real

    @abstractmethod
    def gather(self, c: Array) -> Float[Array, "s b"]:
        """Return the real coefficients of the block."""

    @abstractmethod
    def scatter(self, real: Float[Array, "s b"], c: Array) -> Array:
        """Put the real coefficients of the block into vectors."""

    @property
    def left(self) -> float:
        """Largest element of the diagonal beyond the block, in penalties: as a condition number."""
        return float((self.diagonal * (self.others > 0)).max()) / self.alpha

    def solve(self, c: Array) -> Array:
        block = cho_solve((self.factor, True), self.gather(c).T, check_finite=False)
        return self.scatter(block.T, c / self.diagonal)

    def root(self, c: Array) -> Array:
        return self.scatter(self.gather(c) @ self.factor.T, c * np.sqrt(self.diagonal))

    def inverse_root(self, c: Array, transposed: bool = False) -> Array:
        block = solve_triangular(
            self.factor, self.gather(c).T, lower=True, trans=int(transposed), check_finite=False
        )
        return self.scatter(block.T, c / np.sqrt(self.diagonal))

    @cached_property
    def inverse_of_block(self) -> Float[Array, " b"]:
        """Diagonal of M⁻¹ among the real features of the block."""
        inverse = solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)
        return np.einsum("ij,ij->j", inverse, inverse)

    @cached_property
    def inverse_diagonal(self) -> Array:
        # Real and imaginary part of a coefficient share the mean of their features' elements.
        roots = np.sqrt(self.inverse_of_block)[None]
        block = self.scatter(roots, np.zeros((1, *self.diagonal.shape), np.complex128))[0]
        return np.where(self.others > 0, 1 / self.diagonal, np.abs(block) ** 2)

    def log_determinant(self) -> float:
        low = 2 * float(np.log(np.diagonal(self.factor)).sum())
        return low + float((self.others * np.log(self.diagonal)).sum())


def factored(G: Float[Array, "b b"], alpha: float) -> Float[Array, "b b"]:
    """Return L of G + αI = L Lᵀ; of a larger α where sums were rounded below that."""
    return raised_factor(G, alpha, ROUNDED * float(np.trace(G)))


def conjugate_gradients(
    low: WavePreconditioner, b: Array, error: float, most: int = MOST_STEPS
) -> Steps:
    """Solve (G + αI) c = b for several right sides at once, to a relative ``error``."""
    return cg.conjugate_gradients(
        lambda V, _: low.gram(V) + low.alpha * V,
        b,
        lambda V, _: low.solve(V),
        np.full(len(b), error),
        most,
        inner,
    )
