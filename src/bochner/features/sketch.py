"""Features of powers of inner products: random Maclaurin features, PolySketch and TensorSketch.

Supported kernels are k(x, y) = g(x) g(y) Σ aₙ ⟨Sx, Sy⟩ⁿ with aₙ ≥ 0, S diagonal, and g = 1 or
e^{−|Sx|²/2} (Gaussian kernels). ⟨x, y⟩ⁿ is the inner product of the tensor powers x^{⊗n}, y^{⊗n};
the maps sketch powers of unit rows and multiply by powers of the norm, in float64 logarithms.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from itertools import combinations_with_replacement, pairwise
from operator import imul
from typing import Annotated, Any

import numpy as np
import scipy.fft
import scipy.sparse
from scipy.special import gammaln

from bochner._core import arrays, native
from bochner._core.checks import MaybeCounted, word
from bochner._core.native import power_of_two, signed_walsh
from bochner._core.shapes import Array, Float, Int
from bochner._core.threads import run_parallel
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, Method, Request, capped_shares, to_double
from bochner.features.mercer.products import Halves, Products, split_products
from bochner.kernels.dotproduct import Polynomial
from bochner.kernels.kernel import Kernel, Power, Product, Scaled, Sum
from bochner.kernels.series import PowerSeries, exponential, scale_by
from bochner.kernels.stationary import Gaussian
from bochner.kernels.zonal import directions

TERMS = 1 << 14  # Terms after which the energies of a series count as divergent at this radius
NEGLIGIBLE = 1e-18  # Share of the energy below which a degree is lost to rounding in float64
SHORTEST = 1e-30  # Smallest length of a row, so that its logarithm is finite

#: The series log κ⁽ⁿ⁾(0) = log(n! aₙ), whether g(x) is e^{−|Sx|²/2} or 1, and the diagonal of S.
Powers = tuple[PowerSeries, bool, Float[np.ndarray, " d"]]

#: Kernels that sketches of powers support.
POWER_SERIES = (
    "a kernel of ⟨x, y⟩ with a power series (Polynomial, DotExponential, DotProduct, Linear, "
    "Constant), sums of these, or a Gaussian"
)


def powers(kernel: Kernel, d: int) -> Any:
    """Return the kernel's power series, a value of `Powers`; None if it has none."""
    inner, _ = next(kernel.leaves(Scaled))
    if isinstance(inner, Gaussian):
        scales = np.asarray(inner.spectral(d).scales)
        return scale_by(kernel.at_zero(d), exponential()), True, scales
    # Products are drawn by their factors.
    products = any(isinstance(term, Product | Power) for term, _ in kernel.leaves((Sum, Scaled)))
    series = None if products else kernel.series(d)
    return None if series is None else (series, False, np.ones(d))


def log_coefficients(series: PowerSeries, n: Any) -> Float[np.ndarray, "..."]:
    """Return log aₙ = log κ⁽ⁿ⁾(0) − log n!."""
    n = np.asarray(n)
    return np.asarray(series.log_derivative(n), dtype=np.float64) - gammaln(n + 1.0)


def unit_rows(
    X: Float[Array, "n d"], scales: Float[Array, " d"], constant: float = 0.0
) -> tuple[Array, Array]:
    """Return directions u, in X's precision, and lengths r, (n,) in float64: r u = (s ∘ x, c)."""
    if arrays.is_sparse(X):
        scaled = scipy.sparse.csr_array(X, copy=True)
        scaled.data *= scales.astype(X.dtype)[scaled.indices]
        if constant:
            column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
            scaled = scipy.sparse.hstack([scaled, scipy.sparse.csr_array(column)], format="csr")
    else:
        scaled = X if (scales == 1).all() else X * arrays.adapt(scales, like=X)[None, :]
        if constant:
            xp = arrays.array_namespace(X)
            scaled = xp.concat([scaled, X[:, :1] * 0 + constant], axis=1)
    U, lengths = directions(scaled)
    xp, lengths = to_double(lengths)
    return U, xp.where(lengths < SHORTEST, xp.full_like(lengths, SHORTEST), lengths)


@dataclass(frozen=True, eq=False)
class Terms:
    """Powers uⁿ of the directions of rows, each times w rⁿ g; the first are exact features."""

    scales: Float[Array, " d"]  # s, of the columns
    gaussian: bool  # whether g = e^{−r²/2}, rather than 1
    degrees: Int[Array, " k"]  # n
    logs: Float[Array, " k"]  # log w
    exact: int  # number of exact powers: degree 0 is one feature, degree 1 is all columns
    constant: float = 0.0  # value of an additional coordinate; none if zero

    @property
    def exact_width(self) -> int:
        """Number of exact features."""
        return sum(len(self.scales) if n else 1 for n in self.degrees[: self.exact])

    def split(self, X: Float[Array, "n d"]) -> tuple[Array, Array, list[Array]]:
        """Return directions, (n, d), the weight of each power, (n, k), and the exact features."""
        U, lengths = unit_rows(X, self.scales, self.constant)
        xp = arrays.array_namespace(lengths)
        degrees = arrays.adapt(self.degrees.astype(np.float64), like=lengths)
        exponents = degrees[None, :] * xp.log(lengths)[:, None]
        exponents = exponents + arrays.adapt(self.logs, like=lengths)[None, :]
        if self.gaussian:  # one exponent in float64
            exponents = exponents - 0.5 * (lengths * lengths)[:, None]
        with np.errstate(over="ignore", under="ignore"):
            weights = xp.astype(xp.exp(exponents), U.dtype)
        columns = ((n, weights[:, i : i + 1]) for i, n in enumerate(self.degrees[: self.exact]))
        return U, weights, [w * arrays.dense(U) if n else w for n, w in columns]


def _terms(parts: Powers, exact: Array, degrees: Any, chances: Any) -> Terms:
    """Return the exact powers, and random powers divided by the chances of their degrees."""
    series, gaussian, scales = parts
    all_degrees = np.array([*exact, *degrees], dtype=np.int64)
    logs = log_coefficients(series, all_degrees)
    logs[len(exact) :] -= np.log(chances)
    return Terms(scales, gaussian, all_degrees, 0.5 * logs, len(exact))


def allocate_exact(
    kernel: Kernel, method: Method, parts: Powers, ask: Request
) -> tuple[np.ndarray, Float[np.ndarray, " N"], int]:
    """Return exact degrees, the energies of the other degrees, and the number of their features."""
    energy = energies(parts[0], _lengths(parts, ask))
    d, D = ask.n_inputs, ask.n_features
    remaining = D - bool(energy[0])
    # The linear term gets d exact features if this reduces the total error: the variance of the
    # remaining terms is about (Σ wₙ)²/D, with features in proportion to the weights wₙ.
    linear, power = float(energy[1:2].sum()), float(energy[2:].sum())
    pays = linear > 0 and remaining >= d + (power > 0)
    if pays and power > 0:
        pays = remaining > d and power**2 / (remaining - d) < (linear + power) ** 2 / remaining
    exact = np.flatnonzero([energy[0] > 0, pays])
    remaining -= d * pays
    energy[exact] = 0.0
    if energy.any():
        minimum, name = D - remaining + 1, type(method).__name__
        ask.require_width(minimum, name, "above the width of the exact parts of {!r}", kernel)
    return exact, energy, remaining


def _lengths(parts: Powers, ask: Request) -> Float[np.ndarray, " k"]:
    """Return the lengths of at most 512 scaled rows, from which `energies` are computed."""
    series, _, scales = parts
    if series.degree is not None and (ask.X is None or not ask.X.shape[0]):
        present = np.isfinite(log_coefficients(series, np.arange(series.degree + 1)))
        if present.sum() <= 1:
            return np.ones(1)  # one degree needs no weights
    X = ask.rows("a sketch of a power series", "what degrees contribute to k(x, x)")
    rows = X[np.unique(np.linspace(0, X.shape[0] - 1, min(X.shape[0], 512)).astype(np.int64))]
    return arrays.to_numpy(unit_rows(rows, scales)[1])


def energies(series: PowerSeries, lengths: Float[np.ndarray, " k"]) -> Float[np.ndarray, " N"]:
    """Return wₙ, the mean over rows of the share aₙ r²ⁿ/Σ aₖ r²ᵏ of degree n in κ(|x|²)."""
    count = 64 if series.degree is None else series.degree + 1
    while True:
        n = np.arange(count)
        logs = log_coefficients(series, n) + 2 * n * np.log(lengths)[:, None]
        top = logs.max(axis=1, keepdims=True)
        if series.degree is not None:
            break
        converged = logs[:, -count // 4 :].max(axis=1) < top[:, 0] + math.log(NEGLIGIBLE)
        if converged.all() or (count >= TERMS and converged.any()):
            logs, top = logs[converged], top[converged]
            break
        if count >= TERMS:
            raise InvalidInput(
                "draw: the power series must converge at |x|² of the rows, "
                f"{float(lengths.min()) ** 2:.3g} or more; after {count} terms it has not. "
                "Rescale X."
            )
        count *= 2
    if top.max() == -math.inf:
        raise InvalidInput("draw: the power series must have a term above zero; all are zero.")
    weights = np.exp(logs - top)
    weights = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights if series.degree is not None else np.where(weights < NEGLIGIBLE, 0.0, weights)


#: A degree, the number of its features, and its chance: 1, or less for a random degree.
Share = tuple[int, int, float]


def shares(
    energy: Float[np.ndarray, " N"], capacity: Any, D: int, rng: np.random.Generator
) -> list[Share]:
    """Divide D features among degrees in proportion to their energies (zero: no features).

    A degree with a share of one feature or more is kept; with ``capacity`` features it is exact.
    T draws represent the other degrees: n has probability pₙ ∝ wₙ and weight 1/(T pₙ), unbiased.
    """
    present = np.flatnonzero(energy)
    if not len(present) or D < 1:
        return []
    caps = np.array([capacity(int(n)) for n in present], dtype=np.float64)
    parts = capped_shares(energy[present], caps, D)
    core, part = parts >= 1, parts < 1
    T = max(1, round(float(parts[part].sum()))) if part.any() else 0
    # Shares of one or more are rounded by largest remainder.
    widths = np.floor(parts[core]).astype(np.int64)
    remainder = min(D - T, round(float(parts[core].sum()))) - int(widths.sum())
    if remainder > 0:
        widths[np.argsort(widths - parts[core], kind="stable")[:remainder]] += 1
    for _ in range(-remainder):
        widths[np.argmax(widths)] -= 1
    result = [(int(n), int(w), 1.0) for n, w in zip(present[core], widths, strict=True)]
    if T:
        p = energy[present[part]] / energy[present[part]].sum()
        distinct, copies = np.unique(rng.choice(len(p), size=T, p=p), return_counts=True)
        draws = zip(present[part][distinct], copies, caps[part][distinct], p[distinct], strict=True)
        result += [(int(n), int(min(c, cap)), float(T * p_n / c)) for n, c, cap, p_n in draws]
    return sorted(result)


def random_signs(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Return fair independent signs, int8."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


# --- Monomials: every product of columns is a feature of a polynomial kernel ---------------------
#
# ⟨x, y⟩ⁿ = Σ n!/(e₁! ⋯ e_d!) x^e y^e over the exponents e of sum n, so a finite kernel Σ aₙ ⟨x, y⟩ⁿ
# has finitely many exact features, √(aₙ n!/(e₁! ⋯ e_d!)) x^e.

MAX_EXACT = 1 << 20  # Largest number of exact features: 8 MB per row


@dataclass(frozen=True, eq=False)
class MonomialMap(Products):
    """φ(x) = (c_k Π_i x_{k_i})_k. Exact."""

    kernel: Kernel
    columns: Array  # Columns that each feature multiplies; d denotes the factor 1
    inputs: int  # d
    amplitudes: Float[Array, " D"] | None = None  # c

    below_kernel = True  # exact

    @cached_property
    def halves(self) -> Halves:
        return split_products(self.columns)

    def table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = to_double(arrays.dense(X))
        return xp.permute_dims(xp.concat([X, X[:, :1] * 0 + 1], axis=1), (1, 0))


def draw_monomials(method: Method, kernel: Kernel, ask: Request) -> MonomialMap:
    """Draw all monomials of a finite power series, by degree; lower degrees are padded with 1."""
    (series, _, _), d = powers(kernel, ask.n_inputs), ask.n_inputs
    max_degree = max(1, series.degree or 0)
    present = np.isfinite(log_coefficients(series, np.arange(max_degree + 1)))
    count = sum(math.comb(d + int(n) - 1, n) for n in np.flatnonzero(present))
    ask.require_width(count, "Explicit", "all monomials of {!r}", kernel)
    rows = np.array([*combinations_with_replacement(range(d + 1), max_degree)], dtype=np.int32)
    degrees = (rows < d).sum(axis=1)
    order = np.argsort(degrees, kind="stable")
    order = order[present[degrees[order]]]
    columns, n = rows[order], degrees[order]
    # log Π e_j!: the i-th copy of a column in a sorted row contributes i.
    copies, log_factorials = np.ones(count), np.zeros(count)
    for i in range(1, max_degree):
        copies = np.where(columns[:, i] == columns[:, i - 1], copies + 1, 1.0)
        log_factorials += np.where(n > i, np.log(copies), 0.0)
    logs = log_coefficients(series, n) + gammaln(n + 1.0) - log_factorials
    return MonomialMap(kernel, columns, d, np.exp(0.5 * logs))


# --- Random Maclaurin features: products of projections on random signs --------------------------
#
# With rows ω of independent signs, E Π_{j≤N} ⟨ω_j, x⟩⟨ω_j, y⟩ = ⟨x, y⟩ᴺ. A degree N drawn with
# probability q_N and weighted by a_N/q_N sums the power series:
#
#     z(x) = D^{−1/2} [ (a_N/q_N)^{1/2} Π_{j≤N} ⟨ω_j, x⟩ ]   one N and N new ω_j for each feature.


@dataclass(frozen=True)
class Maclaurin(Method):
    """Random Maclaurin features of a power series of ⟨x, y⟩: Kar and Karnick (2012).

    Parameters
    ----------
    degrees : {"energy", "geometric"}, default "energy"
        "energy": the constant is exact, and the linear term if this reduces the error; degree n has
        features in proportion to its term aₙ r²ⁿ at the lengths r of the rows. "geometric": the
        published method, Algorithm 1 with p = 2: P(N = n) = 2^{−n−1}, no exact terms.

    See Also
    --------
    PolySketch : A lower error for higher degrees.
    Explicit : All monomials, without error.

    Notes
    -----
    Supports Polynomial, DotExponential and DotProduct kernels, their sums and multiples, and the
    Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}. Unbiased; the variance of a feature of degree n
    is up to 3ⁿ|x|²ⁿ|y|²ⁿ. Cost of φ(X): O(n d D N̄), N̄ the mean degree; memory D N̄ d bytes. Sparse
    rows are not made dense. Use it for low degrees and sparse rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> bo.draw(bo.kernels.Polynomial(3), bo.Maclaurin(), n_features=64, X=X)
    MaclaurinMap(kernel=Polynomial(degree=3, offset=1.0, scale=1.0), n_inputs=3, n_features=64)
    """

    degrees: Annotated[str, word("energy", "geometric")] = "energy"


@dataclass(frozen=True, eq=False)
class MaclaurinMap(FeatureMap):
    """φ(x) = [exact constant, exact linear term, weighted products of projections ⟨ω, x⟩]."""

    kernel: Kernel
    terms: Terms
    counts: Int[Array, " r"]  # features of each random degree
    signs: Int[Array, "d _"]  # ω: per degree the first of every feature, then the second, …

    @property
    def n_features(self) -> int:
        return self.terms.exact_width + int(self.counts.sum())

    @property
    def below_kernel(self) -> bool:
        return not len(self.counts)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, weights, parts = self.terms.split(X)
        start = 0
        for i, size in enumerate(self.counts.tolist(), start=self.terms.exact):
            product = weights[:, i : i + 1] * arrays.adapt(np.ones((1, size)), like=weights)
            for _ in range(self.terms.degrees[i]):
                signs = arrays.adapt(self.signs[:, start : start + size], like=U)
                product, start = product * (U @ signs), start + size
            parts.append(product)
        return arrays.array_namespace(weights).concat(parts, axis=1)


def draw_maclaurin(method: Maclaurin, kernel: Kernel, ask: Request) -> MaclaurinMap:
    """Draw products of random projections; degrees by their energies or as published."""
    parts, D = powers(kernel, ask.n_inputs), ask.n_features
    exact = degrees = np.empty(0, dtype=np.int64)
    if method.degrees == "geometric":  # Kar and Karnick (2012), Algorithm 1
        degrees = ask.stream("degrees").geometric(0.5, D) - 1
        chances = 0.5 ** np.arange(1.0, degrees.max() + 2)
    else:
        exact, energy, D = allocate_exact(kernel, method, parts, ask)
        chances = energy / max(energy.sum(), math.ulp(0.0))
        if energy.any():  # quantiles of u + tφ modulo one, φ the golden section: evenly spread
            golden, cumulative = (math.sqrt(5) - 1) / 2, np.cumsum(energy)
            points = (ask.stream("degrees").random() + np.arange(D) * golden) % 1.0
            draws = np.searchsorted(cumulative, points * cumulative[-1], side="right")
            degrees = np.minimum(draws, np.flatnonzero(energy)[-1]).astype(np.int64)
    signs = random_signs(ask.stream("signs"), (int(degrees.sum()), ask.n_inputs))
    first = np.cumsum(degrees) - degrees
    distinct, counts = np.unique(degrees, return_counts=True)
    order = [first[degrees == n] + j for n in distinct for j in range(n)]
    terms = _terms(parts, exact, distinct, chances[distinct] * max(D, 1))
    signs = signs[np.concatenate([np.empty(0, np.int64), *order])]
    return MaclaurinMap(kernel, terms, counts, np.ascontiguousarray(signs.T))


# --- A tree of sketches, and the blocks of features that are computed from it --------------------
#
# A step computes H D v, not normalised, of a value v from the rows or from earlier steps: H is the
# Walsh-Hadamard matrix, D a diagonal of random signs. A block fills its columns of Z.


@dataclass(frozen=True, eq=False)
class SketchMap(FeatureMap):
    """φ(x) = [weighted sketch of each power], computed by NumPy in blocks of rows."""

    kernel: Kernel
    terms: Terms
    blocks: "tuple[Pairs | CountSketch, ...]"  # Sketches, degree by degree
    steps: "tuple[Hadamard | Pairs, ...]"  # Nodes of the tree, children before parents
    complete: bool  # Whether the map is not random

    @property
    def n_inputs(self) -> int:
        return len(self.terms.scales)

    @property
    def n_features(self) -> int:
        return self.terms.exact_width + sum(block.width for block in self.blocks)

    @property
    def below_kernel(self) -> bool:
        return self.complete

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        rows = X if isinstance(X, np.ndarray) or arrays.is_sparse(X) else arrays.to_numpy(X)
        Z = np.empty((X.shape[0], self.n_features), dtype=rows.dtype)
        # Blocks of rows whose transforms fit into the cache; FFTs of TensorSketch need more memory
        widths = self.terms.exact_width, *(block.width for block in self.blocks)
        cells = 1 << (19 if self.steps else 17)
        parts = list(arrays.slices(len(Z), max(1, cells // max(widths))))

        def fill(part: slice) -> None:
            U, weights, exact = self.terms.split(rows[part])
            start = self.terms.exact_width
            np.concatenate([weights[:, :0], *exact], axis=1, out=Z[part, :start])
            values = [np.ones((len(weights), 1), dtype=U.dtype)]
            for step in self.steps:
                values.append(step.apply(U, values))
            for i, block in enumerate(self.blocks, start=self.terms.exact):
                out = Z[part, start : start + block.width]
                block.fill(out, U, values, weights[:, i : i + 1])
                start += block.width

        run_parallel([partial(fill, part) for part in parts], limit=len(parts))
        return arrays.adapt(Z, like=X)


@dataclass(frozen=True, eq=False)
class Hadamard:
    """Walsh-Hadamard transform H S x, entries of H ±1; S is a diagonal of signs or OSNAP matrix."""

    signs: Array  # Diagonal of S, for x padded with zeros; or Sᵀ, sparse
    width: int  # P, a power of two

    def apply(self, U: Array, values: list[Array]) -> Array:
        if not arrays.is_sparse(self.signs):
            return signed_walsh(arrays.dense(U), self.signs)
        Z = np.ascontiguousarray(arrays.dense(U @ self.signs.astype(U.dtype)))
        return native.hadamard(Z, out=Z)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Products of entries of two values, times m^{−1/2}; as a step, H D of the products."""

    left: int  # Numbers of the values: 0 is the constant 1, then the steps; the left is the wider
    right: int
    full: int  # Number of blocks with all entries of the left value in order
    tail: Array  # Entries of the left value after these blocks
    partners: Array  # Entries of the right value, or of its negative

    @property
    def width(self) -> int:
        """Number m of products."""
        return len(self.partners)

    def fill(self, Z: Array, U: Array, values: list[Array], weight: Array) -> None:
        left = values[self.left]
        right = values[self.right] * (weight * np.array(self.width**-0.5, dtype=Z.dtype))
        np.take(np.concatenate([right, -right], axis=1), self.partners, axis=1, out=Z, mode="clip")
        width = self.full * left.shape[1]
        blocks = Z[:, :width].reshape(len(Z), self.full, left.shape[1])  # a view
        blocks *= left[:, None, :]
        if len(self.tail):
            Z[:, width:] *= np.take(left, self.tail, axis=1, mode="clip")

    def apply(self, U: Array, values: list[Array]) -> Array:
        Z = np.empty((U.shape[0], self.width), dtype=U.dtype)
        self.fill(Z, U, values, np.ones((1, 1), dtype=U.dtype))
        return native.hadamard(Z, out=Z)


# --- PolySketch: powers x^{⊗n} by a binary tree of sketches of degree two ------------------------
#
# A node with children L and R sketches L ⊗ R by products of the entries of their randomly signed
# Walsh-Hadamard transforms (TensorSRHT),
#
#     z_t = m^{−1/2} (H D₁ L)_{i_t} (H D₂ R)_{k_t},   t = 1, …, m,   E z(x)·z(y) = ⟨L, L'⟩⟨R, R'⟩,
#
# H of entries ±1. No pair (i, k) occurs twice, and all i and all k occur equally often: for near
# rows the variance is a half to a quarter of the variance of independent pairs. Degree n uses the
# first n leaves; a node whose right leaves are all e₁ is a rotation of its left child, and is
# omitted. So all degrees of a power series share one tree.


@dataclass(frozen=True)
class PolySketch(Method):
    """A tree of sketches of degree two: Ahle et al. (2020), with TensorSRHT nodes, OSNAP leaves.

    Parameters
    ----------
    inner : int, optional
        Width of inner nodes, rounded up to a power of two. Default: the largest width of a degree.

    Notes
    -----
    Supports Polynomial, DotExponential and DotProduct kernels, their sums and multiples, and the
    Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}. The constant is exact, and the linear term if
    this reduces the error; other degrees have features in proportion to their terms. Unbiased; the
    variance grows like the degree p (like 3ᵖ for Maclaurin and TensorSketch). Cost of φ(X):
    O(nnz(X) + n (D + p m log m)) for inner width m. Sparse rows are not made dense beyond ``inner``
    columns. Use it for polynomials of many columns.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-0.2, 0.2, (50, 40))
    >>> bo.draw(bo.kernels.Polynomial(4), bo.PolySketch(), n_features=128, X=X)
    SketchMap(kernel=Polynomial(degree=4, offset=1.0, scale=1.0), n_inputs=40, n_features=128)
    """

    inner: MaybeCounted = None

    floats_each = 0


class Tree:
    """Builder of a tree: each step is drawn once, from a random stream named by its position."""

    def __init__(self, ask: Request, inner: int) -> None:
        self.ask, self.inner = ask, inner
        self.padded = min(inner, power_of_two(ask.n_inputs))
        self.steps: list[Hadamard | Pairs] = []
        self._numbers: dict[tuple[int, int, int], int] = {}

    def power(self, n: int, width: int) -> Pairs:
        """Return the block of x^{⊗n}, n ≥ 1; for n = 1 it has random entries of a step."""
        if n > 1:
            return self._pairs(0, power_of_two(n), n, width, "block")
        entries = np.sort(self.ask.stream("entries").permutation(self.padded)[:width])
        return Pairs(self._step(0, 1, 1), 0, 0, entries, np.zeros(width, np.int32))

    def _step(self, start: int, size: int, count: int) -> int:
        """Return the number of the node of ``size`` leaves; its first ``count`` leaves are x."""
        while count <= size // 2:
            size //= 2
        place = start, size, count
        if place not in self._numbers:
            self.steps.append(self._leaf(start) if size == 1 else self._node(*place))
            self._numbers[place] = len(self.steps)
        return self._numbers[place]

    def _node(self, start: int, size: int, count: int) -> Pairs:
        width = min(self.inner, capacity(count, self.padded, self.inner))
        pairs = self._pairs(start, size, count, width, "node")
        rng = self.ask.stream(f"signs {start} {size} {count}")
        signs = rng.integers(0, 2, width, dtype=np.int32)
        negative = np.int32(self.steps[pairs.right - 1].width) * signs
        return replace(pairs, partners=pairs.partners + negative)

    def _pairs(self, start: int, size: int, count: int, width: int, use: str) -> Pairs:
        half = size // 2
        left, right = self._step(start, half, half), self._step(start + half, half, count - half)
        rng = self.ask.stream(f"{use} {start} {size} {count}")
        widths = self.steps[left - 1].width, self.steps[right - 1].width
        return Pairs(left, right, *_balanced_pairs(*widths, width, rng))

    def _leaf(self, start: int) -> Hadamard:
        """Pad the columns with zeros, or hash each to s ≤ 4 of P entries (OSNAP)."""
        rng, d, P = self.ask.stream(f"leaf {start}"), self.ask.n_inputs, self.padded
        if d <= P:
            return Hadamard(random_signs(rng, P), P)
        s = min(4, P)
        # One random row in each of s parts of the range, so rows are distinct
        edges = np.linspace(0, P, s + 1).astype(np.int64)
        rows = np.stack([rng.integers(a, b, d) for a, b in pairwise(edges)], axis=1)
        entries = random_signs(rng, (d, s)) * s**-0.5
        place = np.repeat(np.arange(d), s), rows.ravel()
        return Hadamard(scipy.sparse.csr_array((entries.ravel(), place), shape=(d, P)), P)


@lru_cache(maxsize=4096)
def capacity(n: int, width: int, inner: int) -> int:
    """Return the number of pairs of the top node of degree n; with all pairs it is exact."""
    half = power_of_two(n) // 2
    entries = (width if k == 1 else min(inner, capacity(k, width, inner)) for k in (half, n - half))
    return math.prod(entries) if n > 1 else width


def _balanced_pairs(P: int, Q: int, m: int, rng: np.random.Generator) -> tuple[int, Array, Array]:
    """Return ``full``, ``tail`` and ``partners`` of :class:`Pairs`, without repeated pairs."""
    # Block b pairs i with π((σ(i) + s_b) mod Q), for random π, σ and different shifts s_b.
    places, order, shifts = rng.permutation(P), rng.permutation(Q), rng.permutation(Q)
    full, n_tail = divmod(m, P)
    tail = np.sort(rng.permutation(P)[:n_tail])
    shifted = (places[None, :] + shifts[:full, None]) % Q
    tail_partners = (places[tail] + shifts[full]) % Q if n_tail else np.empty(0, dtype=np.int64)
    partners = order[np.concatenate([shifted.ravel(), tail_partners])]
    return full, tail.astype(np.int32), partners.astype(np.int32)


def draw_polysketch(method: PolySketch, kernel: Kernel, ask: Request) -> SketchMap:
    """Draw the sketches of all powers from one tree."""
    parts = powers(kernel, ask.n_inputs)
    exact, energy, remaining = allocate_exact(kernel, method, parts, ask)
    inner, columns = power_of_two(method.inner or remaining), power_of_two(ask.n_inputs)
    limit = lambda n: capacity(n, min(inner, columns), inner)
    counts = shares(energy, limit, remaining, ask.stream("degrees"))
    widest = max((width for _, width, _ in counts), default=1)
    tree = Tree(ask, power_of_two(method.inner or widest))
    sketches = [tree.power(n, width) for n, width, _ in counts]
    complete = all(p == 1 and width == columns**n for n, width, p in counts)
    terms = _terms(parts, exact, [n for n, _, _ in counts], [p for _, _, p in counts])
    return SketchMap(kernel, terms, tuple(sketches), tuple(tree.steps), complete)


# --- TensorSketch: the CountSketch of x^{⊗p}, without forming it, by FFT -------------------------
#
# A CountSketch C x adds each coordinate, with a random sign, to one of D buckets. The circular
# convolution of p independent CountSketches of x is a CountSketch of x^{⊗p}, whose buckets are sums
# of theirs modulo D, and whose signs are products:
#
#     z(x) = FFT⁻¹( FFT(C₁x) ∘ … ∘ FFT(C_p x) ),   E z(x)·z(y) = ⟨x, y⟩ᵖ.


@dataclass(frozen=True)
class TensorSketch(Method):
    """CountSketches of x combined by FFT: Pham and Pagh (2013), Algorithm 1.

    Notes
    -----
    Polynomial(degree p, offset c, scale γ) is sketched as published: power p of the row (√γ x, √c).
    Other power series of ⟨x, y⟩, and the Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}, are sums:
    the constant is exact, and each power has a sketch, with features in proportion to its term.
    Unbiased; a sketch of degree p has a variance of at most (2 + 3ᵖ)|x|²ᵖ|y|²ᵖ/D. Cost of φ(X):
    O(p (nnz(X) + n D log D)); memory O(p d). Sparse rows are not made dense. Use it for sparse
    rows and as the published standard; :class:`PolySketch` is better for dense rows.

    Examples
    --------
    >>> import scipy.sparse
    >>> import bochner as bo
    >>> X = scipy.sparse.random_array((50, 40), density=0.1, format="csr", rng=0)
    >>> bo.draw(bo.kernels.Polynomial(2), bo.TensorSketch(), n_features=64, X=X)
    SketchMap(kernel=Polynomial(degree=2, offset=1.0, scale=1.0), n_inputs=40, n_features=64)
    """

    floats_each = 1


@dataclass(frozen=True, eq=False)
class CountSketch:
    """The CountSketches of one power, (width, d) each."""

    matrices: tuple[Array, ...]  # sparse
    width: int

    def fill(self, Z: Array, U: Array, values: list[Array], weight: Array) -> None:
        sketches = (arrays.dense(C @ U.T) for C in self.matrices)
        if len(self.matrices) > 1:
            spectrum = reduce(imul, (scipy.fft.rfft(sketch, axis=0) for sketch in sketches))
            sketch = scipy.fft.irfft(spectrum, n=self.width, axis=0, overwrite_x=True)
        else:
            sketch = next(sketches)
        np.multiply(sketch.T, weight, out=Z)


def draw_tensorsketch(method: TensorSketch, kernel: Kernel, ask: Request) -> SketchMap:
    """Draw a CountSketch of each power, or of the polynomial with its offset as a coordinate."""
    if isinstance(kernel, Polynomial) and kernel.offset:
        sketch = _hashes(kernel.degree, ask.n_features, ask.n_inputs + 1, ask.stream("hashes"))
        scales, degrees = np.full(ask.n_inputs, kernel.scale**0.5), np.array([kernel.degree])
        terms = Terms(scales, False, degrees, np.zeros(1), 0, kernel.offset**0.5)
        return SketchMap(kernel, terms, (sketch,), (), False)
    parts = powers(kernel, ask.n_inputs)
    exact, energy, remaining = allocate_exact(kernel, method, parts, ask)
    counts = shares(energy, lambda _: np.inf, remaining, ask.stream("degrees"))
    sketches = (_hashes(n, w, ask.n_inputs, ask.stream(f"hashes {n}")) for n, w, _ in counts)
    terms = _terms(parts, exact, [n for n, _, _ in counts], [p for _, _, p in counts])
    return SketchMap(kernel, terms, tuple(sketches), (), not counts)


def _hashes(p: int, width: int, d: int, rng: np.random.Generator) -> CountSketch:
    """Return fully random hashes; the proof needs only limited independence."""
    buckets = rng.integers(0, width, (p, d), dtype=np.int32)
    signs, columns = random_signs(rng, (p, d)), np.arange(d)
    places = ((signs[i], (buckets[i], columns)) for i in range(p))
    return CountSketch(tuple(scipy.sparse.csr_array(v, shape=(width, d)) for v in places), width)
