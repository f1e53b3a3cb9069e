"""Ridge regression on waves of equispaced frequencies: the Gram matrix is Toeplitz, never formed.

With f(x) = Σ_k √v_k c_k e^{i k·θ(x)}, c_{−k} = conj c_k, over whole k, the ridge regression is
(D T D + αI) c = D b: D = diag(√v), T the Toeplitz matrix of t(j − l), multiplied by FFT
(Greengard, Rachh and Barnett 2022, section 3). An intercept takes a matrix of rank one off it.

The D = Π (2 m_a + 1) real features are √v_0, √(2 v_k) cos k·θ and √(2 v_k) sin k·θ. Halves of
spectra, as in :func:`numpy.fft.rfftn`, have leading axes in the order 0, ..., m, −m, ..., −1, the
last 0, ..., m.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.linalg.lapack import dpotri

from bochner._core.shapes import Array, Float, Int
from bochner.solvers.gram import WaveGram, WavePreconditioner, factored, full_of

MOST_LOW = 512  # Waves solved for densely, at most: 1,023 real features, Cholesky in 0.1 s
MOST_BESIDE = 2048  # The same for variances: 4,095 real features, in some seconds
WORTH = 0.2  # A wave is among them if the rows bring it this many penalties, and more


@lru_cache(maxsize=4)
def _layout(extent: tuple[int, ...]) -> tuple[Array, Float[Array, " h"], Array, Array]:
    """Return where the waves of real features are in half a spectrum, and signs of their sines.

    Also which of them have conjugates in it too, and where these are.
    """
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
    """Return coefficients of the real features: of cosines, then of sines, k lexicographic."""
    at, sign, _, _ = _layout(extent)
    c = np.empty((len(half), 2 * len(at) - 1))
    for row, wave in zip(c, half.reshape(len(half), -1), strict=True):
        upper = wave.take(at)
        np.multiply(upper.real, math.sqrt(2), out=row[: len(at)])
        row[0] = upper[0].real
        np.multiply(upper.imag[1:], sign, out=row[len(at) :])
    return c


def from_real(c: Float[Array, "s D"], extent: tuple[int, ...]) -> Array:
    """Return the half of the spectrum: the inverse of :func:`to_real`."""
    at, sign, edge, other = _layout(extent)
    shape = (*(2 * m + 1 for m in extent[:-1]), extent[-1] + 1)
    half = np.empty((len(c), math.prod(shape)), dtype=np.complex128)
    upper = np.zeros(len(at), dtype=np.complex128)
    for row, wave in zip(c, half, strict=True):
        np.multiply(row[: len(at)], math.sqrt(0.5), out=upper.real)
        upper[0] = row[0]
        np.multiply(row[len(at) :], sign / 2, out=upper.imag[1:])
        wave[at], wave[other] = upper, np.conj(upper[edge])
    return half.reshape(-1, *shape)


# --- Products ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ToeplitzGram(WaveGram):
    """G = D T D; the variances are v, of k in rising order."""

    waves: Array
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

    def shared(self, numbers: Float[Array, " D"]) -> Float[Array, " D"]:
        half = self.dimension // 2
        mean = (numbers[1 : half + 1] + numbers[half + 1 :]) / 2
        return np.concatenate([numbers[:1], mean, mean])

    def real(self, half: Array) -> Float[Array, "s D"]:
        return to_real(half, self.extent)

    def spectrum(self, c: Float[Array, "s D"]) -> Array:
        return from_real(c * self.roots, self.extent)

    def preconditioner(
        self, alpha: float, full: bool = False, most: int = MOST_LOW
    ) -> WavePreconditioner:
        """Return M whose block holds the waves that the rows bring most, up to ``most``."""
        middle = self.dimension // 2
        weights = self.variances.ravel()[middle + 1 :] * self.weight
        count = min(most - 1, int(np.count_nonzero(weights >= WORTH * alpha)))
        at = np.append(0, 1 + np.argsort(-weights, kind="stable")[: middle if full else count])
        block, K = np.concatenate([at, at[1:] + middle]), self.wave_numbers(at)
        shift = np.array([2 * m for m in self.extent])
        minus, plus = (
            self.waves[tuple((K[:, None] + sign * K[None] + shift).transpose(2, 0, 1))]
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
        return WavePreconditioner(self, alpha, [block[None]], [factored(G, alpha)])

    def wave_numbers(self, at: Array) -> Int[Array, "b d"]:
        """Return whole numbers k of the waves of some cosines."""
        k = np.unravel_index(at + self.dimension // 2, self.variances.shape)
        return np.stack(k, axis=1) - np.array(self.extent)


# --- The variance of functions ---


def spread(M: WavePreconditioner) -> Array:
    """Return the waves |k_a| ≤ 2 m_a of φ(x)ᵀM⁻¹φ(x) of a Toeplitz G, of k in rising order.

    φ is about its mean over the rows where there is an intercept. Waves beyond the block add
    the same at all places. O(b³ + D log D) for b waves of the block.
    """
    gram, roots = M.gram, _spread_of_block(M)
    middle = tuple(length // 2 for length in roots.shape)
    roots[middle] += float((gram.roots**2 / M.diagonal)[M.others].sum())
    if gram.centred:
        mean = gram.sums[None] / gram.weight
        c = M.solve(mean)
        inside = tuple(slice(m, 3 * m + 1) for m in gram.extent)
        roots[inside] -= 2 * full_of(gram.spectrum(c))[0]
        roots[middle] += float(mean[0] @ c[0])
    return roots


def _spread_of_block(M: WavePreconditioner) -> Array:
    """Add the products of modes j and l to the modes j − l and j + l."""
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
    shape = gram.waves.shape
    shift = np.array([length // 2 for length in shape])
    size = math.prod(shape)
    even, odd = np.zeros(size), np.zeros(size)
    for sign in (-1, 1):
        k = (K[:, None] + sign * K[None] + shift).transpose(2, 0, 1)
        places = np.ravel_multi_index(tuple(k), shape).ravel()
        even += np.bincount(places, (cosines - sign * sines).ravel(), size)
        odd += np.bincount(places, sign * mixed.ravel(), size)
    return ((even + even[::-1]) / 2 + (odd - odd[::-1]) / 2j).reshape(shape)
