"""Preconditioned conjugate gradients for systems (G + αI) c = b of Fourier modes.

Vectors are rows of coefficients of the D real features: a cosine and a sine per mode, and the
constant. Modes are equispaced, or those of :mod:`~.harmonics`. Half spectra are ordered as in
:func:`numpy.fft.rfftn`: leading axes 0, ..., m, −m, ..., −1, the last axis 0, ..., m.

**Preconditioner.** M is G + αI among the modes of largest weight, and its diagonal for all other
modes. The preconditioned matrix is then close to the identity.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from scipy.fft import irfftn, next_fast_len, rfftn
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri

from bochner._core.shapes import Array, Bool, Float, Int
from bochner.solvers import cg
from bochner.solvers.cg import Steps
from bochner.solvers.factorisations import jittered_cholesky

# --- Halves of spectra ---------------------------------------------------------------------------


def half_of(full: Array) -> Array:
    """Return the half spectra (s, ...) of full spectra in ascending order of k."""
    axes = tuple(range(1, full.ndim))
    return np.ascontiguousarray(np.fft.ifftshift(full, axes)[..., : full.shape[-1] // 2 + 1])


def full_of(half: Array) -> Array:
    """Return the full spectra in ascending order of k: the inverse of :func:`half_of`."""
    leading = tuple(range(1, half.ndim - 1))
    right = np.fft.fftshift(half, leading) if leading else half
    axes = (*leading, half.ndim - 1)
    return np.concatenate([np.conj(np.flip(right[..., 1:], axes)), right], axis=-1)


def _corners(extent: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield pairs of slices of equal modes: in a half spectrum, and in the padded one."""
    last = slice(0, extent[-1] + 1)
    axes = [
        [(slice(0, m + 1),) * 2, (slice(m + 1, None), slice(-m, None))][: 2 if m else 1]
        for m in extent[:-1]
    ]
    for sides in product(*axes):
        yield (*(inner for inner, _ in sides), last), (*(outer for _, outer in sides), last)


def pad(half: Array, extent: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return a half spectrum padded with zeros, as irfftn needs for real samples of ``shape``."""
    large = np.zeros((*shape[:-1], shape[-1] // 2 + 1), dtype=np.complex128)
    for inner, outer in _corners(extent):
        large[outer] = half[inner]
    return large


def unpad(large: Array, extent: tuple[int, ...]) -> Array:
    """Return the part of a half spectrum up to the extent: the inverse of :func:`pad`."""
    small = np.empty((*(2 * m + 1 for m in extent[:-1]), extent[-1] + 1), dtype=np.complex128)
    for inner, outer in _corners(extent):
        small[inner] = large[outer]
    return small


class ModeGram(ABC):
    """G of Fourier modes, centred at their mean if there is an intercept."""

    modes: Array  # sums of modes over the rows, k ascending, |k_a| ≤ 2 m_a
    variances: Array  # weights of the modes, or of degrees
    centred: bool

    @property
    @abstractmethod
    def extent(self) -> tuple[int, ...]:
        """Largest frequency number k of the modes along each axis."""

    @property
    @abstractmethod
    def size(self) -> float:
        """k(x, x), the sum of the weights of all modes."""

    @property
    @abstractmethod
    def roots(self) -> Float[Array, " D"]:
        """Square root of the weight of each feature."""

    @abstractmethod
    def mode_means(self, values: Float[Array, " D"]) -> Float[Array, " D"]:
        """Return the values of features, averaged over the cosine and sine of each mode."""

    @abstractmethod
    def real(self, half: Array) -> Float[Array, "s D"]:
        """Return the adjoint of `spectrum` without weights: real coefficients of half spectra."""

    @abstractmethod
    def spectrum(self, c: Float[Array, "s D"]) -> Array:
        """Return the half spectra of functions with coefficients c."""

    @abstractmethod
    def preconditioner(self, alpha: float, full: bool = False) -> "ModePreconditioner":
        """Return a preconditioner of G + αI; with ``full``, the exact dense factorisation."""

    @property
    def dimension(self) -> int:
        return len(self.roots)

    @property
    def weight(self) -> float:
        """W, the sum of the rows' weights."""
        return float(self.modes[tuple(length // 2 for length in self.modes.shape)].real)

    @cached_property
    def sums(self) -> Float[Array, " D"]:
        """Weighted sum of each feature over the rows, which an intercept removes."""
        return self.right_side(self.modes[tuple(slice(m, 3 * m + 1) for m in self.extent)][None])[0]

    @cached_property
    def density(self) -> Array:
        """Density of the rows on a grid, by which the Toeplitz matrix multiplies a function."""
        extent = tuple(length // 2 for length in self.modes.shape)
        shape = tuple(next_fast_len(2 * m + 1, real=True) for m in extent)
        half = pad(half_of(self.modes[None])[0], extent, shape)
        return irfftn(half, s=shape) * math.prod(shape)

    def right_side(self, cross: Array) -> Float[Array, "s D"]:
        """Return the right-hand side b from ``cross``, sums of w y e^{−ik·θ}, k ascending."""
        return self.real(half_of(cross)) * self.roots

    def __call__(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        halves, shape = [], self.density.shape
        for half in self.spectrum(c):
            places = irfftn(pad(half, self.extent, shape), s=shape, overwrite_x=True)
            places *= self.density
            halves.append(unpad(rfftn(places, overwrite_x=True), self.extent))
        result = self.real(np.stack(halves)) * self.roots
        if self.centred:
            result -= np.outer(c @ self.sums / self.weight, self.sums)
        return result


@dataclass(frozen=True, eq=False)
class ModePreconditioner:
    """M = R Rᵀ: G + αI within blocks of features, and its diagonal for all other features."""

    gram: Any  # G, a ModeGram
    alpha: float
    blocks: list[Int[Array, "k b"]]  # features of a block, or of k blocks with one factor
    factors: list[Float[Array, "b b"]]  # L of M = L Lᵀ within each block

    @cached_property
    def diagonal(self) -> Float[Array, " D"]:
        """Diagonal of G + αI, averaged over cosine and sine of each mode."""
        gram = self.gram
        full = gram.roots**2 * gram.weight
        if gram.centred:
            full = full - gram.mode_means(gram.sums**2) / gram.weight
        return np.maximum(full, 0.0) + self.alpha

    @cached_property
    def outside(self) -> Bool[Array, " D"]:
        """Mask of the features outside all blocks."""
        mask = np.ones(self.gram.dimension, bool)
        for block in self.blocks:
            mask[block] = False
        return mask

    @property
    def condition(self) -> float:
        """Largest diagonal element outside the blocks, divided by α: a condition number."""
        return float(self.diagonal[self.outside].max(initial=0.0)) / self.alpha

    def _by_block(
        self, out: Float[Array, "s D"], c: Float[Array, "s D"], change: Callable[..., Array]
    ) -> Float[Array, "s D"]:
        """Return ``out`` with ``change(factor, part of c)`` in each block."""
        for block, factor in zip(self.blocks, self.factors, strict=True):
            part = c[:, block]
            out[:, block] = change(factor, part.reshape(-1, len(factor)).T).T.reshape(part.shape)
        return out

    def solve(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        """Return M⁻¹ c."""
        solve = lambda L, part: cho_solve((L, True), part, check_finite=False)
        return self._by_block(c / self.diagonal, c, solve)

    def root(self, c: Float[Array, "s D"]) -> Float[Array, "s D"]:
        """Return R c."""
        return self._by_block(c * np.sqrt(self.diagonal), c, np.matmul)

    def inverse_root(self, c: Float[Array, "s D"], transposed: bool = False) -> Float[Array, "s D"]:
        """Return R⁻¹ c, or R⁻ᵀ c."""
        options: dict[str, Any] = {"lower": True, "trans": int(transposed), "check_finite": False}
        solve = lambda L, part: solve_triangular(L, part, **options)
        return self._by_block(c / np.sqrt(self.diagonal), c, solve)

    @cached_property
    def inverse_diagonal(self) -> Float[Array, " D"]:
        """Diagonal of M⁻¹, averaged over cosine and sine of each mode."""
        out = 1 / self.diagonal
        for block, factor in zip(self.blocks, self.factors, strict=True):
            inverse = solve_triangular(factor, np.eye(len(factor)), lower=True)
            out[block] = np.einsum("ij,ij->j", inverse, inverse)
        return self.gram.mode_means(out)

    def log_determinant(self) -> float:
        """Return log det M."""
        pairs = zip(self.blocks, self.factors, strict=True)
        low = sum(2 * len(block) * float(np.log(np.diagonal(L)).sum()) for block, L in pairs)
        return low + float(np.log(self.diagonal[self.outside]).sum())


def factor_shifted(G: Float[Array, "b b"], alpha: float) -> Float[Array, "b b"]:
    """Return L of (G + Gᵀ)/2 + αI = L Lᵀ; α is raised if rounding requires it."""
    return jittered_cholesky((G + G.T) / 2, alpha, 1e-12 * float(np.trace(G)))


def conjugate_gradients(
    low: ModePreconditioner, b: Float[Array, "s D"], error: float, max_steps: int = 2000
) -> Steps:
    """Solve (G + αI) c = b for several right-hand sides, to a relative ``error``."""
    product = lambda V, _: low.gram(V) + low.alpha * V
    shares = np.full(len(b), error)
    return cg.conjugate_gradients(product, b, lambda V, _: low.solve(V), shares, max_steps)


# --- Modes of equispaced frequencies ------------------------------------------------------------
#
# With f(x) = Σ_k √v_k c_k e^{i k·θ(x)}, c_{−k} = conj c_k, over integer k, the ridge regression is
# (D T D + αI) c = D b: D = diag(√v), T the Toeplitz matrix of t(j − l), multiplied by FFT
# (Greengard, Rachh and Barnett 2022, section 3). An intercept subtracts a matrix of rank one.
#
# The D = Π (2 m_a + 1) real features are √v_0, √(2 v_k) cos k·θ and √(2 v_k) sin k·θ.

MAX_LOW = 512  # Largest number of modes in the dense block: 1,023 real features, 0.1 s
MAX_VARIANCE_ROWS = 2048  # The same for variances: 4,095 real features, some seconds


@lru_cache(maxsize=4)
def _layout(extent: tuple[int, ...]) -> tuple[Array, Float[Array, " h"], Array, Array]:
    """Return indices of modes in a half spectrum, factors of sines, and pairs ±k with k_d = 0."""
    axes = np.meshgrid(*(np.arange(-m, m + 1) for m in extent), indexing="ij")
    k = np.stack([axis.ravel()[axis.size // 2 :] for axis in axes])
    lengths = np.array([2 * m + 1 for m in extent])[:, None]
    shape = (*(2 * m + 1 for m in extent[:-1]), extent[-1] + 1)
    flip = np.where(k[-1] < 0, -1, 1)
    at = np.ravel_multi_index(tuple(flip * k % lengths), shape)
    edge = np.flatnonzero(k[-1] == 0)[1:]
    other = np.ravel_multi_index(tuple(-k[:, edge] % lengths), shape)
    return at, -math.sqrt(2) * flip[1:], edge, other


def to_real(half: Array, extent: tuple[int, ...]) -> Float[Array, "s D"]:
    """Return the coefficients of the real features of half spectra: cosines, then sines, by k."""
    at, sign, _, _ = _layout(extent)
    c = np.empty((len(half), 2 * len(at) - 1))
    for row, mode in zip(c, half.reshape(len(half), -1), strict=True):
        upper = mode.take(at)
        np.multiply(upper.real, math.sqrt(2), out=row[: len(at)])
        row[0] = upper[0].real
        np.multiply(upper.imag[1:], sign, out=row[len(at) :])
    return c


def from_real(c: Float[Array, "s D"], extent: tuple[int, ...]) -> Array:
    """Return the half spectra of real coefficients: the inverse of :func:`to_real`."""
    at, sign, edge, other = _layout(extent)
    shape = (*(2 * m + 1 for m in extent[:-1]), extent[-1] + 1)
    half = np.empty((len(c), math.prod(shape)), dtype=np.complex128)
    upper = np.zeros(len(at), dtype=np.complex128)
    for row, mode in zip(c, half, strict=True):
        np.multiply(row[: len(at)], math.sqrt(0.5), out=upper.real)
        upper[0] = row[0]
        np.multiply(row[len(at) :], sign / 2, out=upper.imag[1:])
        mode[at], mode[other] = upper, np.conj(upper[edge])
    return half.reshape(-1, *shape)


@dataclass(frozen=True, eq=False)
class ToeplitzGram(ModeGram):
    """G = D T D; the variances are v_k, k ascending."""

    modes: Array
    variances: Array
    centred: bool

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(length // 2 for length in self.variances.shape)

    @property
    def size(self) -> float:
        return float(self.variances.sum())

    @cached_property
    def roots(self) -> Float[Array, " D"]:
        upper = np.sqrt(self.variances).ravel()[self.variances.size // 2 :]
        return np.concatenate([upper, upper[1:]])

    def mode_means(self, values: Float[Array, " D"]) -> Float[Array, " D"]:
        half = self.dimension // 2
        mean = (values[1 : half + 1] + values[half + 1 :]) / 2
        return np.concatenate([values[:1], mean, mean])

    def real(self, half: Array) -> Float[Array, "s D"]:
        return to_real(half, self.extent)

    def spectrum(self, c: Float[Array, "s D"]) -> Array:
        return from_real(c * self.roots, self.extent)

    def preconditioner(
        self, alpha: float, full: bool = False, size: int = MAX_LOW
    ) -> ModePreconditioner:
        """Return M; its dense block has at most ``size`` modes, with W v_k ≥ alpha/5."""
        middle = self.dimension // 2
        weights = self.variances.ravel()[middle + 1 :] * self.weight
        count = min(size - 1, int(np.count_nonzero(weights >= 0.2 * alpha)))
        at = np.append(0, 1 + np.argsort(-weights, kind="stable")[: middle if full else count])
        block, K = np.concatenate([at, at[1:] + middle]), self.wave_numbers(at)
        shift = np.array([2 * m for m in self.extent])
        minus, plus = (
            self.modes[tuple((K[:, None] + sign * K[None] + shift).transpose(2, 0, 1))]
            for sign in (-1, 1)
        )
        mixed = minus.imag - plus.imag
        G = np.block(
            [
                [minus.real + plus.real, mixed[:, 1:]],
                [mixed[:, 1:].T, (minus.real - plus.real)[1:, 1:]],
            ]
        )
        roots = self.roots[block]
        roots[0] /= math.sqrt(2)
        G *= roots[:, None] * roots
        if self.centred:
            G -= np.outer(self.sums[block], self.sums[block]) / self.weight
        return ModePreconditioner(self, alpha, [block[None]], [factor_shifted(G, alpha)])

    def wave_numbers(self, positions: Array) -> Int[Array, "b d"]:
        """Return the integer vectors k of the modes at these positions, (b, d)."""
        k = np.unravel_index(positions + self.dimension // 2, self.variances.shape)
        return np.stack(k, axis=1) - np.array(self.extent)


def spread(M: ModePreconditioner) -> Array:
    """Return the Fourier coefficients, |k_a| ≤ 2 m_a, k ascending, of the function φ(x)ᵀM⁻¹φ(x).

    M is of a ToeplitzGram; φ is centred if there is an intercept. O(b³ + D log D), block of size b.
    """
    gram, roots = M.gram, _spread_of_block(M)
    middle = tuple(length // 2 for length in roots.shape)
    roots[middle] += float((gram.roots**2 / M.diagonal)[M.outside].sum())
    if gram.centred:
        mean = gram.sums[None] / gram.weight
        c = M.solve(mean)
        window = tuple(slice(m, 3 * m + 1) for m in gram.extent)
        roots[window] -= 2 * full_of(gram.spectrum(c))[0]
        roots[middle] += float(mean[0] @ c[0])
    return roots


def _spread_of_block(M: ModePreconditioner) -> Array:
    """Return the part of the dense block, whose modes j and l contribute to j − l and j + l."""
    gram, block = M.gram, M.blocks[0][0]
    at = block[: (len(block) + 1) // 2]
    K = gram.wave_numbers(at)
    inverse, _ = dpotri(M.factors[0], lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    roots = gram.roots[at]
    roots[0] /= math.sqrt(2)
    pairs, count = roots[:, None] * roots, len(at)
    cosines = pairs * inverse[:count, :count]
    sines, mixed = np.zeros_like(pairs), np.zeros_like(pairs)
    sines[1:, 1:] = pairs[1:, 1:] * inverse[count:, count:]
    mixed[:, 1:] = 2 * pairs[:, 1:] * inverse[:count, count:]
    shape = gram.modes.shape
    shift = np.array([length // 2 for length in shape])
    size = math.prod(shape)
    even, odd = np.zeros(size), np.zeros(size)
    for sign in (-1, 1):
        k = (K[:, None] + sign * K[None] + shift).transpose(2, 0, 1)
        places = np.ravel_multi_index(tuple(k), shape).ravel()
        even += np.bincount(places, (cosines - sign * sines).ravel(), size)
        odd += np.bincount(places, sign * mixed.ravel(), size)
    return ((even + even[::-1]) / 2 + (odd - odd[::-1]) / 2j).reshape(shape)
