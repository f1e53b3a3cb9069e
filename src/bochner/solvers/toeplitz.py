"""Ridge regression on waves of equispaced frequencies: the Gram matrix is Toeplitz, never formed.

With f(x) = Σ_k √v_k c_k e^{i k·θ(x)}, c_{−k} = conj c_k, over whole k, the ridge regression is
(D T D + αI) c = D b: D = diag(√v), T the Toeplitz matrix of t(j − l), multiplied by FFT
(Greengard, Rachh and Barnett 2022, section 3). An intercept takes a matrix of rank one off it.

Coefficients are halves of spectra, as of :func:`numpy.fft.rfftn`: leading axes in the order 0, ...,
m, −m, ..., −1, the last 0, ..., m. These are D = Π (2 m_a + 1) real numbers, and every product
below is that of R^D: the waves √v_0, √(2 v_k) cos k·θ, √(2 v_k) sin k·θ are its real features.

**Preconditioner.** The waves of most weight are solved for densely, among one another, the others
by their diagonal: M is block diagonal, and what remains is nearly the identity.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.fft import irfftn, next_fast_len, rfftn
from scipy.linalg import cho_solve, eigh_tridiagonal, solve_triangular

from bochner._core.blas import cholesky
from bochner._core.shapes import Array, Float

#: Waves that are solved for densely, at most: 1,023 real features, and Cholesky in 0.1 s.
MOST_LOW = 512

#: A wave is among them if the rows bring it this many penalties, and more.
WORTH = 0.2

#: Rounding of sums of waves, as a share of their size.
ROUNDED = 1e-12

#: Steps of conjugate gradients, at most.
MOST_STEPS = 2000


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


def inner(a: Array, b: Array) -> Float[Array, " s"]:
    """Return the inner products of R^D."""
    return 2 * _dot(a, b) - _dot(a[..., :1], b[..., :1])


def _dot(a: Array, b: Array) -> Float[Array, " s"]:
    rows = [np.ascontiguousarray(c).reshape(len(c), -1).view(np.float64) for c in (a, b)]
    return np.einsum("ij,ij->i", *rows)


def white(rng: np.random.Generator, extent: tuple[int, ...], count: int) -> Array:
    """Return independent standard normal vectors of R^D."""
    shape = tuple(2 * m + 1 for m in extent)
    axes = tuple(range(1, len(shape) + 1))
    return rfftn(rng.standard_normal((count, *shape)), axes=axes) / math.sqrt(math.prod(shape))


# --- Products ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ToeplitzGram:
    """G = D T D, about the rows' mean where there is an intercept; products by FFT.

    Attributes
    ----------
    waves : complex (4 m_1 + 1, ..., 4 m_d + 1)
        t, of k in rising order.
    variances : (2 m_1 + 1, ..., 2 m_d + 1)
        v, of k in rising order.
    centred : bool

    Notes
    -----
    A product takes two FFTs of Π (4 m_a + 2) real numbers.
    """

    waves: Array
    variances: Array
    centred: bool

    @property
    def extent(self) -> tuple[int, ...]:
        """Largest k along each axis, m."""
        return tuple(length // 2 for length in self.variances.shape)

    @property
    def dimension(self) -> int:
        """D."""
        return self.variances.size

    @property
    def weight(self) -> float:
        """W, the sum of the rows' weights."""
        return float(self.waves[tuple(2 * m for m in self.extent)].real)

    @cached_property
    def roots(self) -> Array:
        """√v, half of the spectrum."""
        return half_of(np.sqrt(self.variances)[None])[0]

    @cached_property
    def sums(self) -> Array:
        """Σ w of each wave, times √v: what an intercept takes off."""
        middle = tuple(slice(m, 3 * m + 1) for m in self.extent)
        return self.roots * half_of(self.waves[middle][None])[0]

    @cached_property
    def _density(self) -> Array:
        """The rows' density on a grid of places: multiplying by it there is the Toeplitz matrix."""
        shape = tuple(next_fast_len(4 * m + 1, real=True) for m in self.extent)
        wide = pad(half_of(self.waves[None])[0], tuple(2 * m for m in self.extent), shape)
        return irfftn(wide, s=shape) * math.prod(shape)

    def __call__(self, c: Array) -> Array:
        """Return G c of several vectors, one by one."""
        return np.stack([self._product(one) for one in c])

    def _product(self, c: Array) -> Array:
        shape, extent = self._density.shape, self.extent
        places = irfftn(pad(self.roots * c, extent, shape), s=shape, overwrite_x=True)
        places *= self._density
        found = unpad(rfftn(places, overwrite_x=True), extent)
        found *= self.roots
        if self.centred:
            found -= self.sums * (inner(self.sums[None], c[None])[0] / self.weight)
        return found


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
    """Return a half spectrum as that of real samples of a shape, zero beyond the extent."""
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
class LowWaves:
    """M: G + αI among the waves of most weight, its diagonal for the others.

    Attributes
    ----------
    gram : ToeplitzGram
    alpha : float
    worth : float
        Penalties that the rows bring a wave of the block, at least.
    most : int
        Waves of the block.
    """

    gram: ToeplitzGram
    alpha: float
    worth: float = WORTH
    most: int = MOST_LOW

    @cached_property
    def diagonal(self) -> Array:
        """Of G + αI, half of a spectrum."""
        gram = self.gram
        found = gram.roots**2 * gram.weight
        if gram.centred:
            found = found - np.abs(gram.sums) ** 2 / gram.weight
        return np.maximum(found, 0.0) + self.alpha

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
        own = np.flatnonzero(first)
        count = min(self.most - 1, int(np.count_nonzero(weights[own] >= self.worth * self.alpha)))
        own = own[np.argsort(-weights[own], kind="stable")[:count]]
        at = np.concatenate([[0], own])
        flat = K[at]
        mirrored = np.where(flat[:, -1:] == 0, -flat, flat)
        other = np.ravel_multi_index(
            tuple(k % length for k, length in zip(mirrored.T, self._wrap, strict=True)),
            self.gram.roots.shape,
        )
        return flat, at, other

    @property
    def _wrap(self) -> tuple[int, ...]:
        extent = self.gram.extent
        return (*(2 * m + 1 for m in extent[:-1]), extent[-1] + 1)

    @cached_property
    def factor(self) -> Float[Array, "b b"]:
        """L of M = L Lᵀ among the real features of the block."""
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
            sums = self._gather(gram.sums[None])[0]
            G -= np.outer(sums, sums) / gram.weight
        return _factored(G, self.alpha)

    def _gather(self, c: Array) -> Float[Array, "s b"]:
        """Return the real coefficients of the block."""
        upper = c.reshape(len(c), -1)[:, self._low[1]]
        rest = math.sqrt(2) * upper[:, 1:]
        return np.concatenate([upper[:, :1].real, rest.real, -rest.imag], axis=1)

    def _scatter(self, real: Float[Array, "s b"], c: Array) -> Array:
        """Put the real coefficients of the block into vectors."""
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

    def from_block(self, real: Float[Array, "s b"]) -> Array:
        """Return vectors whose coefficients are those of the block, and zero elsewhere."""
        return self._scatter(real, np.zeros((len(real), *self.gram.roots.shape), np.complex128))

    def solve(self, c: Array) -> Array:
        """Return M⁻¹ c."""
        block = cho_solve((self.factor, True), self._gather(c).T, check_finite=False)
        return self._scatter(block.T, c / self.diagonal)

    def root(self, c: Array) -> Array:
        """Return R c with R Rᵀ = M."""
        return self._scatter(self._gather(c) @ self.factor.T, c * np.sqrt(self.diagonal))

    def inverse_root(self, c: Array, transposed: bool = False) -> Array:
        """Return R⁻¹ c, or R⁻ᵀ c."""
        block = solve_triangular(
            self.factor, self._gather(c).T, lower=True, trans=int(transposed), check_finite=False
        )
        return self._scatter(block.T, c / np.sqrt(self.diagonal))

    @cached_property
    def _others(self) -> Array:
        """How often each place of a half spectrum counts in R^D; zero within the block."""
        counts = np.full(self.gram.roots.shape, 2.0)
        counts[..., 0] = 1.0
        for places in self._low[1:]:
            counts.ravel()[places] = 0.0
        return counts

    def log_determinant(self) -> float:
        """Return log det M."""
        low = 2 * float(np.log(np.diagonal(self.factor)).sum())
        return low + float((self._others * np.log(self.diagonal)).sum())

    @cached_property
    def inverse_diagonal(self) -> Array:
        """Diagonal of M⁻¹, (D,) as half of a spectrum: k and −k share what the block has."""
        found = 1.0 / self.diagonal
        _, at, other = self._low
        inverse = solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)
        of_block = np.einsum("ij,ij->j", inverse, inverse)
        count = len(at)
        shared = of_block[:count].copy()
        shared[1:] = (shared[1:] + of_block[count:]) / 2
        flat = found.ravel()
        flat[at] = shared
        flat[other] = shared
        return found


def _factored(G: Float[Array, "b b"], alpha: float) -> Float[Array, "b b"]:
    """Return L of G + αI = L Lᵀ; of a larger α where sums were rounded below that."""
    added = alpha
    while True:
        try:
            return cholesky(G + added * np.eye(len(G)), lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            added = max(10 * added, ROUNDED * float(np.trace(G)))


# --- Conjugate gradients, and what their coefficients tell ---------------------------------------


@dataclass(frozen=True, eq=False)
class Krylov:
    """Solutions of (G + αI) c = b, and the tridiagonal matrices that conjugate gradients made.

    Attributes
    ----------
    c : complex (s, ...)
    steps : int
    residual : (s,)
        |r|/|b| in the norm of M⁻¹, which is nearly the relative error of c.
    sizes : (s,)
        bᵀM⁻¹b.
    lengths, ratios : (p, s)
        Of the steps; NaN once a vector is done.
    """

    c: Array
    steps: int
    residual: Float[Array, " s"]
    sizes: Float[Array, " s"]
    lengths: Float[Array, "p s"]
    ratios: Float[Array, "p s"]

    def log_forms(self) -> Float[Array, " s"]:
        """Return zᵀ log(R⁻¹ (G + αI) R⁻ᵀ) z of b = R z, by Gauss quadrature (Lanczos)."""
        return np.array([self._log_form(s) for s in range(len(self.sizes))])

    def _log_form(self, s: int) -> float:
        steps = self.lengths[:, s]
        steps = steps[np.isfinite(steps)]
        if not len(steps):
            return 0.0
        ratios = self.ratios[: len(steps), s]
        diagonal = 1 / steps
        diagonal[1:] += ratios[:-1] / steps[:-1]
        values, vectors = eigh_tridiagonal(diagonal, np.sqrt(ratios[:-1]) / steps[:-1])
        return float(self.sizes[s] * (vectors[0] ** 2 @ np.log(np.maximum(values, 1e-300))))


def solve(low: LowWaves, b: Array, error: float, most: int = MOST_STEPS) -> Krylov:
    """Solve (G + αI) c = b for several right sides at once, to a relative ``error``."""
    gram, alpha = low.gram, low.alpha
    c, r = np.zeros_like(b), b.copy()
    z = low.solve(r)
    p = z.copy()
    size = first = inner(r, z)
    going = first > 0
    lengths: list[Array] = []
    ratios: list[Array] = []
    while going.any() and len(lengths) < most:
        some = np.flatnonzero(going)
        q = gram(p[some]) + alpha * p[some]
        step = np.full(len(b), np.nan)
        along = inner(p[some], q)
        bent = along <= 0  # only by rounding of the sums: what is left of b lies below it
        going[some[bent]] = False
        some, q, along = some[~bent], q[~bent], along[~bent]
        if not len(some):
            break
        step[some] = size[some] / along
        shaped = step[some].reshape(-1, *(1,) * (b.ndim - 1))
        c[some] += shaped * p[some]
        r[some] -= shaped * q
        z = low.solve(r[some])
        new = size.copy()
        new[some] = np.maximum(inner(r[some], z), 0.0)
        ratio = np.full(len(b), np.nan)
        ratio[some] = new[some] / size[some]
        p[some] = z + ratio[some].reshape(shaped.shape) * p[some]
        lengths.append(step)
        ratios.append(ratio)
        size, going = new, going & (new > error**2 * first)
    residual = np.sqrt(np.divide(size, first, out=np.zeros_like(size), where=first > 0))
    empty = np.empty((0, len(b)))
    return Krylov(
        c,
        len(lengths),
        residual,
        first,
        np.array(lengths) if lengths else empty,
        np.array(ratios) if ratios else empty,
    )
