"""Features of powers of inner products: random Maclaurin features, PolySketch and TensorSketch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from itertools import pairwise
from operator import imul
from typing import Annotated

import numpy as np
import scipy.fft
import scipy.sparse

from bochner._core import arrays, native
from bochner._core.checks import MaybeCounted, word
from bochner._core.native import power_of_two, signed_walsh
from bochner._core.shapes import Array, Float
from bochner._core.threads import side_by_side
from bochner.features.map import FeatureMap, Method, Request
from bochner.features.sketch import powers
from bochner.kernels.dotproduct import Polynomial
from bochner.kernels.kernel import Kernel

# --- Random Maclaurin features: products of random signs' projections ----------------------------
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
        "energy" takes the constant and, if it pays, the linear term exactly, and gives degree n
        the share of the others that its term aₙ r²ⁿ has at the lengths r of the rows; "geometric"
        is the published method, Algorithm 1 with p = 2: P(N = n) = 2^{−n−1}, nothing exact.

    See Also
    --------
    PolySketch : A lower error for higher degrees.
    Explicit : All monomials, without error.

    Notes
    -----
    Serves Polynomial, DotExponential and DotProduct kernels, their sums and multiples, and the
    Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}. Unbiased; the variance of a feature of degree n
    is up to 3ⁿ|x|²ⁿ|y|²ⁿ. Cost of φ(X): O(n d D N̄), N̄ the mean degree; memory D N̄ d bytes. Sparse
    rows are not made dense. Choose it for low degrees and sparse rows.

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
    """φ(x) = [exact constant, exact linear term, weighted products of signs' projections]."""

    kernel: Kernel
    inputs: powers.UnitRows  # Scales of the columns
    exact: powers.Weights  # Degrees 0 and 1 that are taken exactly, if any
    weights: powers.Weights  # Degree and weight of each random feature
    signs: Array  # ω of the first feature, then of the second, and so on

    @property
    def n_inputs(self) -> int:
        return len(self.inputs.scales)

    @property
    def n_features(self) -> int:
        exact = sum(1 if n == 0 else self.n_inputs for n in self.exact.degrees)
        return exact + len(self.weights.degrees)

    @property
    def below_kernel(self) -> bool:
        return len(self.weights.degrees) == 0

    @cached_property
    def _groups(self) -> list[tuple[Array, list[Array]]]:
        """For each degree n, the features that have it, and the first, ..., n-th ω of each."""
        degrees = self.weights.degrees
        first = np.cumsum(degrees) - degrees
        of_degree = [(n, np.flatnonzero(degrees == n)) for n in np.unique(degrees)]
        return [
            (all_n, [self.signs[:, first[all_n] + j] for j in range(n)]) for n, all_n in of_degree
        ]

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, lengths = self.inputs.split(X)
        exact = self.exact.at(lengths, like=U)
        columns = ((n, exact[:, i : i + 1]) for i, n in enumerate(self.exact.degrees))
        parts, random = [c * arrays.dense(U) if n else c for n, c in columns], []
        for which, steps in self._groups:
            weight = self.weights.chosen(which[:1]).at(lengths, like=U)  # the same for all of them
            product = weight * arrays.moved(np.ones((1, len(which))), like=weight)
            for signs in steps:
                product = product * (U @ arrays.moved(signs, like=U))
            random.append(product)
        if random:
            order = np.concatenate([which for which, _ in self._groups]).argsort()
            products = arrays.array_namespace(product).concat(random, axis=1)
            parts.append(arrays.taken(products, order, axis=1))
        return arrays.array_namespace(parts[0]).concat(parts, axis=1)


def draw_maclaurin(method: Maclaurin, kernel: Kernel, ask: Request) -> MaclaurinMap:
    """Draw products of random projections, degrees by what they contribute or as published."""
    parts, D = powers.powers(kernel, ask.n_inputs), ask.n_features
    exact = degrees = np.empty(0, dtype=np.int64)
    if method.degrees == "geometric":  # Kar and Karnick (2012), Algorithm 1
        degrees = ask.stream("degrees").geometric(0.5, D) - 1
        log_chances = -(degrees + 1) * math.log(2)
    else:
        exact, energy, D = powers.split_off(kernel, method, parts, ask)
        if energy.any():  # quantiles of u + tφ modulo one, φ the golden section: evenly spread
            golden, cumulative = (math.sqrt(5) - 1) / 2, np.cumsum(energy)
            points = (ask.stream("degrees").random() + np.arange(D) * golden) % 1.0
            drawn = np.searchsorted(cumulative, points * cumulative[-1], side="right")
            degrees = np.minimum(drawn, np.flatnonzero(energy)[-1]).astype(np.int64)
        with np.errstate(divide="ignore"):
            log_chances = np.log(energy / max(energy.sum(), math.ulp(0.0)))[degrees]
    logs = powers.log_coefficients(parts.series, degrees) - log_chances - math.log(max(D, 1))
    signs = powers.random_signs(ask.stream("signs"), (int(degrees.sum()), ask.n_inputs))
    return MaclaurinMap(
        kernel,
        powers.UnitRows(parts.scales),
        powers.Weights(exact, 0.5 * powers.log_coefficients(parts.series, exact), parts.gaussian),
        powers.Weights(degrees, 0.5 * logs, parts.gaussian),
        np.ascontiguousarray(signs.T),
    )


# --- A tree of sketches, and the blocks of features that are read off it -------------------------
#
# A step gives H D v of a value v of its own, not normalised, from the rows or from earlier steps:
# H the Walsh-Hadamard matrix, D a diagonal of random signs. A block fills its columns of Z.


@dataclass(frozen=True, eq=False)
class Exact:
    """Degree 0, one feature, or degree 1, all columns."""

    degree: int
    width: int

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:
        np.multiply(arrays.dense(U) if self.degree else 1, weight, out=Z)


@dataclass(frozen=True, eq=False)
class SketchMap(FeatureMap):
    """φ(x) = [weighted sketch of each power], made by NumPy a bounded number of rows at a time."""

    kernel: Kernel
    inputs: powers.UnitRows  # Scales of the columns, and a constant
    weights: powers.Weights  # Degree and weight of each block
    #: The features, degree by degree: columns of Z, times a weight per row.
    blocks: "tuple[Exact | Entries | Pairs | CountSketch, ...]"
    steps: "tuple[Hashed | Pairs, ...]"  # Nodes that blocks read, children before parents
    complete: bool  # Whether the map is not random

    @property
    def n_inputs(self) -> int:
        return len(self.inputs.scales)

    @property
    def n_features(self) -> int:
        return sum(block.width for block in self.blocks)

    @property
    def below_kernel(self) -> bool:
        return self.complete

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        rows = X if arrays.is_numpy(X) or arrays.is_sparse(X) else arrays.to_numpy(X)
        Z = np.empty((X.shape[0], self.n_features), dtype=rows.dtype)
        # Rows whose transforms stay in the cache.
        step = max(1, (1 << 19) // max(block.width for block in self.blocks))
        parts = list(arrays.slices(len(Z), step))

        def fill(part: slice) -> None:
            U, lengths = self.inputs.split(rows[part])
            weights, start = self.weights.at(lengths, like=U), 0
            earlier: list[Array] = []
            for step in self.steps:
                earlier.append(step.of(U, earlier))
            for i, block in enumerate(self.blocks):
                out = Z[part, start : start + block.width]
                block.fill(out, U, earlier, weights[:, i : i + 1])
                start += block.width

        side_by_side([partial(fill, part) for part in parts], most=len(parts))
        return arrays.moved(Z, like=X)


def sketch_map(
    kernel: Kernel,
    parts: powers.Powers,
    exact: np.ndarray,
    shared: list[powers.Share],
    sketches: "Iterable[Entries | Pairs | CountSketch]",
    steps: "tuple[Hashed | Pairs, ...]" = (),
    complete: bool = False,
) -> SketchMap:
    """Return the map of exact degrees and of a sketch for each of the other degrees."""
    d = len(parts.scales)
    degrees = np.array([*exact, *(n for n, _, _ in shared)], dtype=np.int64)
    logs = powers.log_coefficients(parts.series, degrees)
    logs[len(exact) :] -= np.log([probability for _, _, probability in shared])
    weights = powers.Weights(degrees, 0.5 * logs, parts.gaussian)
    blocks = *(Exact(int(n), d if n else 1) for n in exact), *sketches
    complete = complete or len(blocks) == len(exact)
    return SketchMap(kernel, powers.UnitRows(parts.scales), weights, blocks, steps, complete)


@dataclass(frozen=True, eq=False)
class Hashed:
    """H D x, not normalised; or H S x, S an OSNAP matrix with s entries ±s^{−1/2} a column."""

    signs: Array  # Diagonal of D, and x has zeros after it; or entries of S
    rows: Array | None = None  # Where each column goes
    width: int = 0  # P, a power of two

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        """√s Sᵀ."""
        assert self.rows is not None
        d, s = self.rows.shape
        place = (np.repeat(np.arange(d), s), self.rows.ravel())
        return scipy.sparse.csr_array((self.signs.ravel(), place), shape=(d, self.width))

    def of(self, U: Array, earlier: list[Array]) -> Array:
        if self.rows is None:
            return signed_walsh(arrays.dense(U), self.signs)
        hashed = np.ascontiguousarray(arrays.dense(U @ self._matrix))
        hashed *= self.rows.shape[1] ** -0.5
        return native.hadamard(hashed, out=hashed)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Products of entries of two steps, times m^{−1/2}; as a step H D of them, D in their signs."""

    left: int  # Steps; the left one is the wider
    right: int
    full: int  # Number of blocks that take all entries of the left one in order
    tail: Array  # Entries of the left one after that
    partners: Array  # Entries of the right one, and of its negative after them

    @property
    def width(self) -> int:
        """Number m of entries."""
        return len(self.partners)

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:
        left = earlier[self.left]
        right = earlier[self.right] * (weight * np.array(self.width**-0.5, dtype=Z.dtype))
        np.take(np.hstack([right, -right]), self.partners, axis=1, out=Z, mode="clip")
        tiled = self.full * left.shape[1]
        blocks = Z[:, :tiled].reshape(len(Z), self.full, left.shape[1])  # a view
        blocks *= left[:, None, :]
        if len(self.tail):
            Z[:, tiled:] *= np.take(left, self.tail, axis=1, mode="clip")

    def of(self, U: Array, earlier: list[Array]) -> Array:
        Z = np.empty((U.shape[0], self.width), dtype=U.dtype)
        self.fill(Z, U, earlier, np.ones((1, 1), dtype=U.dtype))
        return native.hadamard(Z, out=Z)


@dataclass(frozen=True, eq=False)
class Entries:
    """Some entries of a step, times m^{−1/2}: the sketch of degree one."""

    source: int
    chosen: Array

    @property
    def width(self) -> int:
        """Number m of entries."""
        return len(self.chosen)

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:
        entries = np.take(earlier[self.source], self.chosen, axis=1)
        np.multiply(entries, weight * np.array(self.width**-0.5, dtype=Z.dtype), out=Z)


# --- PolySketch: powers x^{⊗n} by a binary tree of sketches of degree two ------------------------
#
# A node with children L and R sketches L ⊗ R by products of the entries of their randomly signed
# Walsh-Hadamard transforms (TensorSRHT),
#
#     z_t = m^{−1/2} (H D₁ L)_{i_t} (H D₂ R)_{k_t},   t = 1, …, m,   E z(x)·z(y) = ⟨L, L'⟩⟨R, R'⟩,
#
# H of entries ±1. No pair (i, k) comes twice, and each i, and each k, comes equally often: for near
# rows this has a half to a quarter of the variance of independent pairs. Degree n takes the first n
# leaves; a node whose right leaves are all e₁ is its left child, turned, and left out. So all
# degrees of a power series share one tree.


@dataclass(frozen=True)
class PolySketch(Method):
    """A tree of sketches of degree two: Ahle et al. (2020), with TensorSRHT nodes, OSNAP leaves.

    Parameters
    ----------
    inner : int, optional
        Entries of inner nodes, rounded up to a power of two. Default: those of the widest degree.

    Notes
    -----
    Serves Polynomial, DotExponential and DotProduct kernels, their sums and multiples, and the
    Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}. The constant is exact, the linear term where it
    pays; each other degree gets features in proportion to its term. Unbiased; the variance grows
    with the degree p like p, for :class:`Maclaurin` and :class:`TensorSketch` like 3ᵖ. Cost of
    φ(X): O(nnz(X) + n (D + p m log m)) for inner width m. Sparse rows are not made dense beyond
    ``inner`` columns. Choose it for polynomials of many columns.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-0.2, 0.2, (50, 40))
    >>> bo.draw(bo.kernels.Polynomial(4), bo.PolySketch(), n_features=128, X=X)
    SketchMap(kernel=Polynomial(degree=4, offset=1.0, scale=1.0), n_inputs=40, n_features=128)
    """

    inner: MaybeCounted = None

    numbers_each = 0


class Tree:
    """The steps of a tree while it is drawn, each once; random streams are named by place."""

    def __init__(self, ask: Request, inner: int) -> None:
        self.ask, self.inner = ask, inner
        self.padded = min(inner, power_of_two(ask.n_inputs))
        self.steps: list[Hashed | Pairs] = []
        self.widths: list[int] = []
        self._places: dict[tuple[int, int, int], int] = {}

    def power(self, n: int, width: int) -> Pairs | Entries:
        """Return the block of x^{⊗n}, n ≥ 1."""
        if n == 1:
            chosen = self.ask.stream("entries").permutation(self.padded)[:width]
            return Entries(self._step(0, 1, 1), np.sort(chosen).astype(np.int32))
        return self._pairs(0, power_of_two(n), n, width, "block")

    def _step(self, start: int, size: int, count: int) -> int:
        """Return the step of a node of ``size`` leaves; the first ``count`` are x."""
        while count <= size // 2:
            size //= 2
        place = (start, size, count)
        if place not in self._places:
            step, width = self._leaf(start) if size == 1 else self._node(*place)
            self.steps.append(step)
            self.widths.append(width)
            self._places[place] = len(self.steps) - 1
        return self._places[place]

    def _node(self, start: int, size: int, count: int) -> tuple[Pairs, int]:
        width = min(self.inner, capacity(count, self.padded, self.inner))
        pairs = self._pairs(start, size, count, width, "node")
        rng = self.ask.stream(f"signs {start} {size} {count}")
        negative = np.int32(self.widths[pairs.right]) * rng.integers(0, 2, width, dtype=np.int32)
        return replace(pairs, partners=pairs.partners + negative), width

    def _pairs(self, start: int, size: int, count: int, width: int, use: str) -> Pairs:
        half = size // 2
        left, right = self._step(start, half, half), self._step(start + half, half, count - half)
        rng = self.ask.stream(f"{use} {start} {size} {count}")
        return Pairs(left, right, *_balanced(self.widths[left], self.widths[right], width, rng))

    def _leaf(self, start: int) -> tuple[Hashed, int]:
        """Pad, or hash by OSNAP: s different rows for each column."""
        rng, d, P = self.ask.stream(f"leaf {start}"), self.ask.n_inputs, self.padded
        if d <= P:
            return Hashed(powers.random_signs(rng, P)), P
        s = min(4, P)
        # One row in each of s parts of the range: different without a test.
        edges = np.linspace(0, P, s + 1).astype(np.int64)
        rows = np.stack([rng.integers(a, b, d) for a, b in pairwise(edges)], axis=1)
        return Hashed(powers.random_signs(rng, (d, s)), rows.astype(np.int32), P), P


@lru_cache(maxsize=4096)
def capacity(n: int, padded: int, inner: int) -> int:
    """Return how many pairs the top node of degree n has: its sketch with all of them is exact."""
    half = power_of_two(n) // 2
    entries = (
        padded if k == 1 else min(inner, capacity(k, padded, inner)) for k in (half, n - half)
    )
    return math.prod(entries) if n > 1 else padded


def _balanced(P: int, Q: int, m: int, rng: np.random.Generator) -> tuple[int, Array, Array]:
    """Return full blocks, the left entries after them, and the right entries: no pair twice."""
    # Block b pairs i with π((σ(i) + s_b) mod Q), for random π, σ and different shifts s_b.
    places, order, shifts = rng.permutation(P), rng.permutation(Q), rng.permutation(Q)
    full, left = divmod(m, P)
    tail = np.sort(rng.permutation(P)[:left])
    shifted = (places[None, :] + shifts[:full, None]) % Q
    rest = (places[tail] + shifts[full]) % Q if left else np.empty(0, dtype=np.int64)
    partners = order[np.concatenate([shifted.ravel(), rest])]
    return full, tail.astype(np.int32), partners.astype(np.int32)


def draw_polysketch(method: PolySketch, kernel: Kernel, ask: Request) -> SketchMap:
    """Draw the sketches of all powers from one tree."""
    parts = powers.powers(kernel, ask.n_inputs)
    exact, energy, left = powers.split_off(kernel, method, parts, ask)
    inner, columns = power_of_two(method.inner or left), power_of_two(ask.n_inputs)
    most = lambda n: capacity(n, min(inner, columns), inner)
    shared = powers.shares(energy, most, left, ask.stream("degrees"))
    widest = max((width for _, width, _ in shared), default=1)
    tree = Tree(ask, power_of_two(method.inner or widest))
    sketches = [tree.power(n, width) for n, width, _ in shared]
    complete = all(p == 1 and width == columns**n for n, width, p in shared)
    return sketch_map(kernel, parts, exact, shared, sketches, tuple(tree.steps), complete)


# --- TensorSketch: the CountSketch of x^{⊗p}, without forming it, by FFT -------------------------
#
# A CountSketch C x adds each coordinate, with a random sign, to one of D buckets. The one of x^{⊗p}
# whose buckets are sums modulo D, and whose signs are products, of those of p independent
# CountSketches is their circular convolution:
#
#     z(x) = FFT⁻¹( FFT(C₁x) ∘ … ∘ FFT(C_p x) ),   E z(x)·z(y) = ⟨x, y⟩ᵖ.


@dataclass(frozen=True)
class TensorSketch(Method):
    """CountSketches of x combined by FFT: Pham and Pagh (2013), Algorithm 1.

    Notes
    -----
    Polynomial(degree p, offset c, scale γ) is sketched as published: that of (√γ x, √c), p times.
    Other power series of ⟨x, y⟩, and the Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}, are sums:
    the constant exactly, each power by its own sketch, with features in proportion to its term.
    Unbiased; a sketch of degree p has a variance of at most (2 + 3ᵖ)|x|²ᵖ|y|²ᵖ/D. Cost of φ(X):
    O(p (nnz(X) + n D log D)); memory O(p d). Sparse rows are not made dense. Choose it for sparse
    rows and as the published standard; :class:`PolySketch` is better for dense rows.

    Examples
    --------
    >>> import scipy.sparse
    >>> import bochner as bo
    >>> X = scipy.sparse.random_array((50, 40), density=0.1, format="csr", rng=0)
    >>> bo.draw(bo.kernels.Polynomial(2), bo.TensorSketch(), n_features=64, X=X)
    SketchMap(kernel=Polynomial(degree=2, offset=1.0, scale=1.0), n_inputs=40, n_features=64)
    """

    numbers_each = 1


@dataclass(frozen=True, eq=False)
class CountSketch:
    """Hashes of the CountSketches of one power, one row for each."""

    buckets: Array  # h, below ``width``
    signs: Array  # s
    width: int

    @cached_property
    def _matrices(self) -> list[scipy.sparse.csr_array]:
        """The CountSketches."""
        shape, columns = (self.width, self.buckets.shape[1]), np.arange(self.buckets.shape[1])
        matrix = lambda h, s: scipy.sparse.csr_array((s, (h, columns)), shape=shape)
        return list(map(matrix, self.buckets, self.signs))

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:
        sketches = (arrays.dense(C @ U.T) for C in self._matrices)
        if len(self._matrices) > 1:
            spectrum = reduce(imul, (scipy.fft.rfft(sketch, axis=0) for sketch in sketches))
            sketch = scipy.fft.irfft(spectrum, n=self.width, axis=0, overwrite_x=True)
        else:
            sketch = next(sketches)
        np.multiply(sketch.T, weight, out=Z)


def draw_tensorsketch(method: TensorSketch, kernel: Kernel, ask: Request) -> SketchMap:
    """Draw a CountSketch of each power, or of the polynomial with its offset as a coordinate."""
    if isinstance(kernel, Polynomial) and kernel.offset:
        inputs = powers.UnitRows(np.full(ask.n_inputs, kernel.scale**0.5), kernel.offset**0.5)
        sketch = _hashes(kernel.degree, ask.n_features, ask.n_inputs + 1, ask.stream("hashes"))
        weights = powers.Weights(np.array([kernel.degree]), np.zeros(1), False)
        return SketchMap(kernel, inputs, weights, (sketch,), (), False)
    parts = powers.powers(kernel, ask.n_inputs)
    exact, energy, left = powers.split_off(kernel, method, parts, ask)
    shared = powers.shares(energy, lambda _: np.inf, left, ask.stream("degrees"))
    sketches = (
        _hashes(n, width, ask.n_inputs, ask.stream(f"hashes {n}")) for n, width, _ in shared
    )
    return sketch_map(kernel, parts, exact, shared, sketches)


def _hashes(p: int, width: int, d: int, rng: np.random.Generator) -> CountSketch:
    """Return fully random hashes; the proof needs only limited independence."""
    buckets = rng.integers(0, width, (p, d), dtype=np.int32)
    return CountSketch(buckets, powers.random_signs(rng, (p, d)), width)
