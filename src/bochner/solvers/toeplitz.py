"""Ridge regression on waves of equispaced frequencies: the Gram matrix is Toeplitz, never formed.

With f(x) = Σ_k √v_k c_k e^{i k·θ(x)}, c_{−k} = conj c_k, over whole k, the ridge regression is
(D T D + αI) c = D b: D = diag(√v), T the Toeplitz matrix of t(j − l), multiplied by FFT
(Greengard, Rachh and Barnett 2022, section 3). An intercept takes a matrix of rank one off it.

Coefficients are halves of spectra, as in :func:`numpy.fft.rfftn`: leading axes in the order 0, ...,
m, −m, ..., −1, the last 0, ..., m. These are D = Π (2 m_a + 1) real numbers, and every product
below is the one of R^D: the modes √v_0, √(2 v_k) cos k·θ, √(2 v_k) sin k·θ are its real features.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.fft import irfftn, next_fast_len, rfftn
from scipy.linalg.lapack import dpotri

from bochner._core.shapes import Array, Float
from bochner.solvers.gram import DenseBlock, WaveGram, factored, inner

#: Waves that are solved for densely, at most: 1,023 real features, and Cholesky in 0.1 s.
MOST_LOW = 512

#: And for variances: 4,095 real features, and Cholesky and its inverse in some seconds.
MOST_BESIDE = 2048

#: A wave is among them if the rows bring it this many penalties, and more.
WORTH = 0.2


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


def to_real(half: Array) -> Float[Array, "D s"]:
    """Return coefficients of the real features: of cosines, then of sines, k lexicographic."""
    flat = full_of(half).reshape(len(half), -1)
    upper = flat[:, flat.shape[1] // 2 :] * math.sqrt(2)
    cosines = upper.real.copy()
    cosines[:, 0] /= math.sqrt(2)
    return np.concatenate([cosines, -upper.imag[:, 1:]], axis=1).T


def from_real(coef: Float[Array, "D s"], extent: tuple[int, ...]) -> Array:
    """Return the half of the spectrum: the inverse of :func:`to_real`."""
    count = (len(coef) + 1) // 2
    upper = coef[:count].T.astype(np.complex128) / math.sqrt(2)
    upper[:, 1:] -= 1j * coef[count:].T / math.sqrt(2)
    upper[:, 0] = coef[0]
    flat = np.concatenate([np.conj(np.flip(upper[:, 1:], axis=1)), upper], axis=1)
    return half_of(flat.reshape(-1, *(2 * m + 1 for m in extent)))


# --- Products ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ToeplitzGram(WaveGram):
    """G = D T D, about the rows' mean where there is an intercept; products by FFT.

    A product takes two FFTs of Π (4 m_a + 2) real numbers.
    """

    waves: Array  # t, of k in rising order
    variances: Array  # v, of k in rising order
    centred: bool

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(length // 2 for length in self.variances.shape)

    @property
    def dimension(self) -> int:
        return self.variances.size

    @property
    def size(self) -> float:
        return float(self.variances.sum())

    @property
    def weight(self) -> float:
        return float(self.waves[tuple(2 * m for m in self.extent)].real)

    @cached_property
    def roots(self) -> Array:
        return half_of(np.sqrt(self.variances)[None])[0]

    @cached_property
    def sums(self) -> Array:
        middle = tuple(slice(m, 3 * m + 1) for m in self.extent)
        return self.roots * half_of(self.waves[middle][None])[0]

    @cached_property
    def _density(self) -> Array:
        """The rows' density on a grid of places: multiplying by it there is the Toeplitz matrix."""
        shape = tuple(next_fast_len(4 * m + 1, real=True) for m in self.extent)
        wide = pad(half_of(self.waves[None])[0], tuple(2 * m for m in self.extent), shape)
        return irfftn(wide, s=shape) * math.prod(shape)

    @cached_property
    def counts(self) -> Array:
        counts = np.full(self.roots.shape, 2.0)
        counts[..., 0] = 1.0
        return counts

    def white(self, rng: np.random.Generator, count: int) -> Array:
        shape = self.variances.shape
        axes = tuple(range(1, len(shape) + 1))
        return rfftn(rng.standard_normal((count, *shape)), axes=axes) / math.sqrt(math.prod(shape))

    def to_real(self, c: Array) -> Float[Array, "D s"]:
        return to_real(c)

    def from_real(self, coef: Float[Array, "D s"]) -> Array:
        return from_real(coef, self.extent)

    def right(self, cross: Array) -> Array:
        return half_of(cross) * self.roots

    def spectrum(self, c: Array) -> Array:
        return c * self.roots

    def preconditioner(self, alpha: float) -> "LowWaves":
        return LowWaves(self, alpha)

    def neighbourhood(self, alpha: float) -> "LowWaves":
        """Return M of more waves, for variances that draws are compared with."""
        return LowWaves(self, alpha, most=MOST_BESIDE)

    def full_block(self, alpha: float) -> "LowWaves":
        return LowWaves(self, alpha, worth=0.0, most=self.dimension)

    def __call__(self, c: Array) -> Array:
        return np.stack([self._product(one) for one in c])

    def _product(self, c: Array) -> Array:
        shape, extent = self._density.shape, self.extent
        places = irfftn(pad(self.roots * c, extent, shape), s=shape, overwrite_x=True)
        places *= self._density
        product = unpad(rfftn(places, overwrite_x=True), extent)
        product *= self.roots
        if self.centred:
            product -= self.sums * (inner(self.sums[None], c[None])[0] / self.weight)
        return product


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


# --- The preconditioner --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LowWaves(DenseBlock):
    """The block holds the waves that the rows bring most."""

    gram: ToeplitzGram
    alpha: float
    worth: float = WORTH  # penalties that the rows bring a wave of the block, at least
    most: int = MOST_LOW  # waves of the block

    @cached_property
    def _low(self) -> tuple[Array, Array, Array]:
        """Whole numbers of the waves of the block, from zero on, and where they and −k are."""
        extent = self.gram.extent
        axes = [np.fft.ifftshift(np.arange(-m, m + 1)) for m in extent]
        axes[-1] = axes[-1][: extent[-1] + 1]
        K = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(extent))
        weights = self.gram.roots.ravel() ** 2 * self.gram.weight
        first = K[:, -1] > 0
        for a in range(len(extent) - 1):  # of k and −k with last 0, that whose first sign is +
            first |= (K[:, -1] == 0) & (K[:, a] > 0) & ~(K[:, :a] != 0).any(axis=1)
        index = np.flatnonzero(first)
        count = min(self.most - 1, int(np.count_nonzero(weights[index] >= self.worth * self.alpha)))
        index = index[np.argsort(-weights[index], kind="stable")[:count]]
        at = np.concatenate([[0], index])
        flat = K[at]
        mirrored = np.where(flat[:, -1:] == 0, -flat, flat)
        shape = self.gram.roots.shape
        return flat, at, np.ravel_multi_index(tuple((mirrored % shape).T), shape)

    @cached_property
    def factor(self) -> Float[Array, "b b"]:
        K, at, _ = self._low
        gram = self.gram
        t = gram.waves
        shift = np.array([2 * m for m in gram.extent])
        minus = t[tuple((K[:, None] - K[None] + shift).transpose(2, 0, 1))]
        plus = t[tuple((K[:, None] + K[None] + shift).transpose(2, 0, 1))]
        mixed = minus.imag - plus.imag
        G = np.block(
            [
                [minus.real + plus.real, mixed[:, 1:]],
                [mixed[:, 1:].T, (minus.real - plus.real)[1:, 1:]],
            ]
        )
        roots = gram.roots.ravel()[at]
        roots = np.concatenate([roots[:1] / math.sqrt(2), roots[1:], roots[1:]])
        G *= roots[:, None] * roots
        if gram.centred:
            sums = self.gather(gram.sums[None])[0]
            G -= np.outer(sums, sums) / gram.weight
        return factored(G, self.alpha)

    def spread(self) -> Array:
        """Return the waves |k_a| ≤ 2 m_a of φ(x)ᵀM⁻¹φ(x), of k in rising order.

        φ is about its mean over the rows where there is an intercept. Waves beyond the block add
        the same at all places. O(b³ + D log D) for b waves of the block.
        """
        roots = self._spread_of_block()
        middle = tuple(length // 2 for length in roots.shape)
        roots[middle] += float((self.others * self.gram.roots**2 / self.diagonal).sum())
        if self.gram.centred:
            mean = self.gram.sums[None] / self.gram.weight
            c = self.solve(mean)
            inside = tuple(slice(m, 3 * m + 1) for m in self.gram.extent)
            roots[inside] -= 2 * full_of(self.gram.spectrum(c))[0]
            roots[middle] += float(inner(mean, c)[0])
        return roots

    def _spread_of_block(self) -> Array:
        """Products of waves j and l are waves j − l and j + l: add up what each has."""
        K, at, _ = self._low
        inverse, _ = dpotri(self.factor, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        roots = self.gram.roots.ravel()[at]
        roots[0] /= math.sqrt(2)
        pairs, count = roots[:, None] * roots, len(at)
        cosines = pairs * inverse[:count, :count]
        sines, mixed = np.zeros_like(pairs), np.zeros_like(pairs)
        sines[1:, 1:] = pairs[1:, 1:] * inverse[count:, count:]
        mixed[:, 1:] = 2 * pairs[:, 1:] * inverse[:count, count:]
        shape = self.gram.waves.shape
        shift = np.array([length // 2 for length in shape])
        size = math.prod(shape)
        even, odd = np.zeros(size), np.zeros(size)
        for sign in (-1, 1):
            k = (K[:, None] + sign * K[None] + shift).transpose(2, 0, 1)
            places = np.ravel_multi_index(tuple(k), shape).ravel()
            even += np.bincount(places, (cosines - sign * sines).ravel(), size)
            odd += np.bincount(places, sign * mixed.ravel(), size)
        return ((even + even[::-1]) / 2 + (odd - odd[::-1]) / 2j).reshape(shape)

    def gather(self, c: Array) -> Float[Array, "s b"]:
        upper = c.reshape(len(c), -1)[:, self._low[1]]
        rest = math.sqrt(2) * upper[:, 1:]
        return np.concatenate([upper[:, :1].real, rest.real, -rest.imag], axis=1)

    def scatter(self, real: Float[Array, "s b"], c: Array) -> Array:
        _, at, other = self._low
        count = len(at)
        upper = np.empty((len(real), count), dtype=np.complex128)
        upper[:, 0] = real[:, 0]
        upper[:, 1:] = (real[:, 1:count] - 1j * real[:, count:]) / math.sqrt(2)
        flat = c.reshape(len(c), -1)
        mirrored = other != at
        flat[:, at] = upper
        flat[:, other[mirrored]] = np.conj(upper[:, mirrored])
        return c
