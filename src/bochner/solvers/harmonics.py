"""Ridge regression on spherical harmonics, as Fourier modes on the doubled sphere.

With colatitude θ and longitude λ, every harmonic of degree up to L is a sum of Fourier modes
e^{i(kθ + mλ)}, |k|, |m| ≤ L, on the sphere doubled to a torus (Merilees 1973; Townsend, Wilber and
Wright 2016). With P_lm = Σ_k p_lm(k) e^{ikθ} the associated Legendre functions,

    f = Σ_l √a_l Re Σ_m (2 − [m = 0]) c_lm P_lm(cos θ) e^{imλ},
    F(k, m) = Σ_l √a_l p_lm(k) c_lm

where F are the Fourier coefficients of f. So G = D Bᴴ T B D, where D = diag(√a_l), B takes the sums
over l, and T is the Toeplitz matrix of sums over rows (:mod:`~.gram`). A product takes two FFTs,
and O(L³) for the sums over l.

P_lm are orthonormal for the uniform probability measure, so Σ_m |P_lm|² = 2l + 1 by the addition
theorem, and the diagonal of G is about W a_l.

**Preconditioner.** If rows are uniform along every parallel, as on a grid, orders m decouple, and
M is G with the density of the rows averaged over longitude: one block per order (Schuh 1996).
Otherwise M is G among the first degrees, and its diagonal beyond.

The D = (L + 1)² real features are √a_l (√2 P_lm cos mλ, √2 P_lm sin mλ), m = l, ..., 1, and
√a_l P_l0, degree after degree.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.solvers.gram import ModeGram, ModePreconditioner, factor_shifted

MAX_LOW = 31  # Largest degree of the dense block: 1,024 harmonics
BATCH = 256  # Number of products per batch, for the dense block


@lru_cache(maxsize=2)
def mode_tables(degree: int) -> tuple[tuple[Float[Array, "l k"], ...], ...]:
    """Return p_lm(k) for each m: a table for even l and one for odd l, k ≥ 0 of the parity of l.

    For even m they are real and even in k; for odd m they are −i times the returned real numbers,
    which are odd in k. Recurrence: P_lm = a cos θ P_{l−1,m} − b P_{l−2,m}; cos θ shifts k by ±1.
    The tables take 2 L³ bytes: 250 MB and two seconds for degree 500.
    """
    L = degree
    k = [len(range(parity, L + 1, 2)) for parity in (0, 1)]
    tables = tuple(
        tuple(np.zeros((len(range(_first_degree(m, p), L + 1, 2)), k[p])) for p in (0, 1))
        for m in range(L + 1)
    )
    previous = np.zeros((L + 1, L + 2))
    current = np.zeros((L + 1, L + 2))
    current[0, 0] = 1.0
    for l in range(L + 1):
        if l:
            current, previous = _next_degree(l, current, previous), current
        for m in range(l + 1):
            row = current[m, l % 2 : L + 1 : 2]
            tables[m][l % 2][(l - _first_degree(m, l % 2)) // 2, : len(row)] = row
    return tables


def _first_degree(m: int, parity: int) -> int:
    """Return the smallest l ≥ m of this parity."""
    return m + (m + parity) % 2


def _next_degree(l: int, current: Array, previous: Array) -> Float[Array, "m k"]:
    """Return p_lm(k) of degree l for all m, from degrees l − 1 and l − 2."""
    m = np.arange(l)
    a = np.sqrt((4 * l * l - 1) / (l * l - m * m))
    b = np.sqrt((2 * l + 1) * ((l - 1) ** 2 - m * m) / ((2 * l - 3) * (l * l - m * m)))
    values = np.zeros_like(current)
    by_cosine = np.zeros((l, current.shape[1]))  # cos θ times ``current``
    by_cosine[:, 1:-1] = (current[:l, :-2] + current[:l, 2:]) / 2
    by_cosine[::2, 0] = current[:l:2, 1]
    values[:l] = a[:, None] * by_cosine - b[:, None] * previous[:l]
    last, sign = current[l - 1], 1 if l % 2 else -1  # P_ll from sin θ P_{l−1,l−1}
    values[l, 1:-1] = sign * (last[:-2] - last[2:]) / 2
    values[l, 0] = 0.0 if l % 2 else last[1]
    values[l] *= math.sqrt((2 * l + 1) / (2 * l))
    return values


def _cosines(m: int, l: Array) -> Array:
    """Return the column numbers of the features cos mλ of degrees l; sin mλ is the next column."""
    return np.asarray(l * l + 2 * (l - m))


def to_modes(c: Float[Array, "s D"], degree: int) -> Array:
    """Return half spectra (s, 2L + 1, L + 1), L = degree, of functions with coefficients c."""
    L = degree
    torus = np.zeros((L + 1, L + 1, len(c)), dtype=np.complex128)
    for m, tables in enumerate(mode_tables(L)):
        for parity, table in enumerate(tables):
            at = _cosines(m, np.arange(_first_degree(m, parity), L + 1, 2))
            part = np.zeros((len(at), len(c), 2))  # real and imaginary parts
            part[:, :, 0] = c[:, at].T
            if m:
                part[:, :, 1] = -c[:, at + 1].T
                part /= math.sqrt(2)
            sums = table.T @ part.reshape(len(at), 2 * len(c))
            torus[m, parity::2] = sums.view(np.complex128)
    torus[1::2] *= -1j
    modes = np.empty((len(c), 2 * L + 1, L + 1), dtype=np.complex128)
    modes[:, : L + 1] = torus.transpose(2, 1, 0)
    modes[:, :L:-1] = (_signs(L) * torus.transpose(1, 0, 2)[1:]).transpose(2, 0, 1)
    return modes


def from_modes(modes: Array) -> Float[Array, "s D"]:
    """Return the coefficients of real features: the adjoint of :func:`to_modes`."""
    L = modes.shape[2] - 1
    by_order = modes[:, : L + 1].transpose(2, 1, 0).copy()
    by_order[:, 1:] += (_signs(L) * modes[:, :L:-1].transpose(1, 2, 0)).transpose(1, 0, 2)
    by_order[1::2] *= 1j
    c = np.empty((len(modes), (L + 1) ** 2))
    for m, tables in enumerate(mode_tables(L)):
        for parity, table in enumerate(tables):
            at = _cosines(m, np.arange(_first_degree(m, parity), L + 1, 2))
            part = np.ascontiguousarray(by_order[m, parity::2]).view(np.float64)
            real, imaginary = (table @ part).reshape(len(at), len(modes), 2).T
            c[:, at] = math.sqrt(2) * real if m else real
            if m:
                c[:, at + 1] = -math.sqrt(2) * imaginary
    return c


def _signs(degree: int) -> Float[Array, "m 1"]:
    return (-1.0) ** np.arange(degree + 1)[:, None]


@dataclass(frozen=True, eq=False)
class HarmonicGram(ModeGram):
    """G of spherical harmonics; modes of colatitude and longitude, with variances a_l."""

    modes: Array
    variances: Array
    centred: bool

    @property
    def degree(self) -> int:
        return len(self.variances) - 1

    @property
    def extent(self) -> tuple[int, ...]:
        return self.degree, self.degree

    @property
    def size(self) -> float:
        return float((2 * np.arange(self.degree + 1) + 1) @ self.variances)

    @cached_property
    def roots(self) -> Float[Array, " D"]:
        return np.repeat(np.sqrt(self.variances), 2 * np.arange(self.degree + 1) + 1)

    def mode_means(self, values: Float[Array, " D"]) -> Float[Array, " D"]:
        out = values.copy()
        for l in range(1, self.degree + 1):
            cosines, sines = (slice(l * l + k, (l + 1) ** 2 - 1, 2) for k in (0, 1))
            out[cosines] = out[sines] = (values[cosines] + values[sines]) / 2
        return out

    def real(self, half: Array) -> Float[Array, "s D"]:
        return from_modes(half)

    def spectrum(self, c: Float[Array, "s D"]) -> Array:
        return to_modes(self.roots * c, self.degree)

    def preconditioner(self, alpha: float, full: bool = False) -> ModePreconditioner:
        """Return M with a block for each order, or one block of the first degrees.

        Blocks of orders take O(L⁴) time and store L³/3 numbers: half a second for degree 180, and
        170 MB for degree 400. First degrees are those with W a_l ≥ alpha/5, at most 31.
        """
        if not full and self.by_order and self.degree <= 400:
            blocks = []
            for m in range(self.degree + 1):
                cosines = _cosines(m, np.arange(m, self.degree + 1))
                blocks.append(np.stack([cosines, cosines + 1][: 1 + (m > 0)]))
            factors = [factor_shifted(G, alpha) for G in self.order_blocks]
            return ModePreconditioner(self, alpha, blocks, factors)
        large = np.flatnonzero(self.variances * self.weight >= 0.2 * alpha)
        low = self.degree if full else int(min(large.max(initial=0), MAX_LOW))
        return self.low_degrees(alpha, low)

    def low_degrees(self, alpha: float, low: int) -> ModePreconditioner:
        """Return M with one block of the degrees up to ``low``."""
        block = np.arange((low + 1) ** 2)[None]
        return ModePreconditioner(self, alpha, [block], [factor_shifted(self.block(low), alpha)])

    @cached_property
    def by_order(self) -> bool:
        """Whether rows are uniform along parallels: sums at m ≠ 0 are at most a tenth of W."""
        sums = np.abs(self._crop(min(2 * self.degree, 16)))
        sums[:, len(sums) // 2] = 0.0
        return bool(sums.max() <= 0.1 * self.weight)

    @cached_property
    def zonal(self) -> tuple[Float[Array, "k k"], Float[Array, "k k"]]:
        """Matrices of p_lm(k) for the density of rows averaged over longitude: m even, odd."""
        L = self.degree
        mean = self.modes[2 * L :, 2 * L].real
        k = np.arange(L + 1)
        differences, sums = mean[np.abs(k[:, None] - k)], mean[k[:, None] + k]
        half = np.where(k == 0, 0.5, 1.0)
        return tuple(2 * half[:, None] * half * (differences + sign * sums) for sign in (1, -1))

    @cached_property
    def order_blocks(self) -> tuple[Float[Array, "l l"], ...]:
        """G among the harmonics of each order m, with the density of `zonal`."""
        blocks = []
        for m, tables in enumerate(mode_tables(self.degree)):
            p = np.zeros((self.degree + 1 - m, self.degree + 1))
            for parity, table in enumerate(tables):
                p[_first_degree(m, parity) - m :: 2, parity::2] = table
            p *= np.sqrt(self.variances)[m:, None]
            blocks.append(p @ self.zonal[m % 2] @ p.T)
        if self.centred:
            zonal = self.sums[np.arange(1, self.degree + 2) ** 2 - 1]
            blocks[0] = blocks[0] - np.outer(zonal, zonal) / self.weight
        return tuple(blocks)

    def _crop(self, extent: int) -> Array:
        middle = slice(2 * self.degree - extent, 2 * self.degree + extent + 1)
        return self.modes[middle, middle]

    def block(self, degree: int) -> Float[Array, "b b"]:
        """Return G among the real features of degrees up to ``degree``; the result is cached."""
        cache = self.__dict__.setdefault("_blocks", {})
        if degree not in cache:
            part = HarmonicGram(self._crop(2 * degree), self.variances[: degree + 1], self.centred)
            pieces = np.split(np.eye(part.dimension), range(BATCH, part.dimension, BATCH))
            cache[degree] = np.concatenate([part(piece) for piece in pieces])
        return cache[degree]
