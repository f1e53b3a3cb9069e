"""Systems (G + αI) c = b of waves, G known by its products: conjugate gradients, preconditioned.

Vectors are rows of coefficients of the D real features: of each wave a cosine and a sine, of the
constant one. The waves are those of :mod:`~.toeplitz` or :mod:`~.harmonics`. Halves of spectra, as
in :func:`numpy.fft.rfftn`, have leading axes in the order 0, ..., m, −m, ..., −1, the last 0, ...,
m.

**Preconditioner.** The waves of most weight are solved for densely, among one another, the others
by their diagonal: M is block diagonal, and what remains is nearly the identity.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from scipy.fft import irfftn, next_fast_len, rfftn
from scipy.linalg import cho_solve, solve_triangular

from bochner._core.shapes import Array, Bool, Float, Int
from bochner.solvers import cg
from bochner.solvers.cg import Steps
from bochner.solvers.factorisations import raised_factor

ROUNDED = 1e-12  # Rounding of sums of waves, as a share of their size
MOST_STEPS = 2000  # Steps of conjugate gradients, at most


# --- Halves of spectra ---------------------------------------------------------------------------


def half_of(full: Array) -> Array:
    """Return the half of a spectrum whose whole is given in rising order, after one other axis."""
    axes = tuple(range(1, full.ndim))
    return np.ascontiguousarray(np.fft.ifftshift(full, axes)[..., : full.shape[-1] // 2 + 1])


def full_of(half: Array) -> Array:
    """Return the whole spectrum in rising order: the inverse of :func:`half_of`."""
    leading = tuple(range(1, half.ndim - 1))
    right = np.fft.fftshift(half, leading) if leading else half
    axes = (*leading, half.ndim - 1)
    return np.concatenate([np.conj(np.flip(right[..., 1:], axes)), right], axis=-1)


def _corners(extent: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Give where parts of a half spectrum lie in it, and in one that is padded with zeros."""
    last = slice(0, extent[-1] + 1)
    axes = [
        [(slice(0, m + 1),) * 2, (slice(m + 1, None), slice(-m, None))][: 2 if m else 1]
        for m in extent[:-1]
    ]
    for sides in product(*axes):
        yield (*(ours for ours, _ in sides), last), (*(theirs for _, theirs in sides), last)


def pad(half: Array, extent: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return a half spectrum padded with zeros to real samples of a shape."""
    large = np.zeros((*shape[:-1], shape[-1] // 2 + 1), dtype=np.complex128)
    for ours, theirs in _corners(extent):
        large[theirs] = half[ours]
    return large


def unpad(large: Array, extent: tuple[int, ...]) -> Array:
    """Return the part of a half spectrum up to the extent: the inverse of :func:`pad`."""
    small = np.empty((*(2 * m + 1 for m in extent[:-1]), extent[-1] + 1), dtype=np.complex128)
    for ours, theirs in _corners(extent):
        small[ours] = large[theirs]
    return small


# --- Products ------------------------------------------------------------------------------------


class WaveGram(ABC):
    """G of Fourier modes, centred at their mean if there is an intercept.

    A product takes two FFTs of Π (4 m_a + 2) real numbers, m the extent.
    """

    waves: Array  # sums of waves over the rows, of k in rising order, |k_a| ≤ 2 m_a
    variances: Array  # weights of the waves, or of degrees
    centred: bool

    @property
    @abstractmethod
    def extent(self) -> tuple[int, ...]:
        """Largest frequency number k of the modes along each axis."""

    @property
    @abstractmethod
    def size(self) -> float:
        """k(x, x), the sum of the weights of all waves."""

    @property
    @abstractmethod
    def roots(self) -> Float[Array, " D"]:
        """Root of the weight of each feature."""

    @abstractmethod
    def shared(self, numbers: Float[Array, " D"]) -> Float[Array, " D"]:
        """Return numbers of features, for cosine and sine of a wave the mean of both."""

    @abstractmethod
    def real(self, half: Array) -> Float[Array, "s D"]:
        """Return the coefficients, without weights, of halves of spectra: an adjoint."""

    @abstractmethod
    def spectrum(self, c: Float[Array, "s D"]) -> Array:
        """Return the waves of the functions, halves of spectra."""

    @abstractmethod
    def preconditioner(self, alpha: float, full: bool = False) -> "WavePreconditioner":
        """Return M, near G + αI, or that itself, all waves solved for densely."""

    @property
    def dimension(self) -> int:
        return len(self.roots)

    @property
    def weight(self) -> float:
        """W, the sum of the rows' weights."""
        return float(self.waves[tuple(length // 2 for length in self.waves.shape)].real)

    @cached_property
    def sums(self) -> Float[Array, " D"]:
        """Σ w of each feature, which an intercept removes."""
        return self.right(self.waves[tuple(slice(m, 3 * m + 1) for m in self.extent)][None])[0]

    @cached_property
    def density(self) -> Array:
        """The rows' density on a grid of places: times it there is the Toeplitz matrix."""
        extent = tuple(length // 2 for length in self.waves.shape)
        shape = tuple(next_fast_len(2 * m + 1, real=True) for m in extent)
        half = pad(half_of(self.waves[None])[0], extent, shape)
        return irfftn(half, s=shape) * math.prod(shape)

    def right(self, cross: Array) -> Float[Array, "s D"]:
        """Return b of sums over rows, of k in rising order."""
        return self.real(half_of(cross)) * self.roots

    def __call__(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        made, shape = [], self.density.shape
        for half in self.spectrum(c):
            places = irfftn(pad(half, self.extent, shape), s=shape, overwrite_x=True)
            places *= self.density
            made.append(unpad(rfftn(places, overwrite_x=True), self.extent))
        result = self.real(np.stack(made)) * self.roots
        if self.centred:
            result -= np.outer(c @ self.sums / self.weight, self.sums)
        return result


# --- The preconditioner --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WavePreconditioner:
    """M = R Rᵀ, near G + αI: that matrix within blocks of features, its diagonal for the others."""

    gram: Any  # G, a WaveGram
    alpha: float
    blocks: list[Int[Array, "k b"]]  # features of each block, or of k blocks that share a factor
    factors: list[Float[Array, "b b"]]  # L of M = L Lᵀ within each block

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
        """Mask of the features outside all blocks."""
        outside = np.ones(self.gram.dimension, bool)
        for block in self.blocks:
            outside[block] = False
        return outside

    @property
    def left(self) -> float:
        """Largest element of the diagonal beyond the blocks, in penalties: a condition number."""
        return float(self.diagonal[self.others].max(initial=0.0)) / self.alpha

    def _each(
        self, out: Float[Array, "s D"], c: Float[Array, "s D"], change: Callable[..., Array]
    ) -> Float[Array, "s D"]:
        """Return ``out`` with what ``change`` makes of each factor and its part of ``c``."""
        for block, factor in zip(self.blocks, self.factors, strict=True):
            part = c[:, block]
            out[:, block] = change(factor, part.reshape(-1, len(factor)).T).T.reshape(part.shape)
        return out

    def solve(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        """Return M⁻¹ c."""
        solve = lambda L, part: cho_solve((L, True), part, check_finite=False)
        return self._each(c / self.diagonal, c, solve)

    def root(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        """Return R c."""
        return self._each(c * np.sqrt(self.diagonal), c, np.matmul)

    def inverse_root(self, c: Float[Array, "s D"], transposed: bool = False) -> Float[Array, "s D"]:
        """Return R⁻¹ c, or R⁻ᵀ c."""
        given: dict[str, Any] = {"lower": True, "trans": int(transposed), "check_finite": False}
        solve = lambda L, part: solve_triangular(L, part, **given)
        return self._each(c / np.sqrt(self.diagonal), c, solve)

    @cached_property
    def inverse_diagonal(self) -> Float[Array, " D"]:
        """Diagonal of M⁻¹; cosine and sine of a wave share the mean of theirs."""
        out = 1 / self.diagonal
        for block, factor in zip(self.blocks, self.factors, strict=True):
            inverse = solve_triangular(factor, np.eye(len(factor)), lower=True)
            out[block] = np.einsum("ij,ij->j", inverse, inverse)
        return self.gram.shared(out)

    def log_determinant(self) -> float:
        """Return log det M."""
        pairs = zip(self.blocks, self.factors, strict=True)
        low = sum(2 * len(block) * float(np.log(np.diagonal(L)).sum()) for block, L in pairs)
        return low + float(np.log(self.diagonal[self.others]).sum())


def factored(G: Float[Array, "b b"], alpha: float) -> Float[Array, "b b"]:
    """Return L of (G + Gᵀ)/2 + αI = L Lᵀ; of a larger α where sums were rounded below that."""
    return raised_factor((G + G.T) / 2, alpha, ROUNDED * float(np.trace(G)))


def conjugate_gradients(
    low: WavePreconditioner, b: Float[Array, "s D"], error: float, most: int = MOST_STEPS
) -> Steps:
    """Solve (G + αI) c = b for several right sides at once, to a relative ``error``."""
    product = lambda V, _: low.gram(V) + low.alpha * V
    return cg.conjugate_gradients(
        product, b, lambda V, _: low.solve(V), np.full(len(b), error), most
    )
