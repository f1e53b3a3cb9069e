"""PolySketch: powers x^{⊗n} by a binary tree of sketches of degree two.

A node with children L and R sketches L ⊗ R by products of the entries of their randomly signed
Walsh-Hadamard transforms (TensorSRHT),

    z_t = m^{−1/2} (H D₁ L)_{i_t} (H D₂ R)_{k_t},   t = 1, …, m,   E z(x)·z(y) = ⟨L, L'⟩⟨R, R'⟩,

H of entries ±1. Degree n takes the first n leaves; a node whose right leaves are all e₁ is its
left child, turned, and left out. So all degrees of a power series share one tree.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np

from bochner._core.arrays import (
    is_numpy,
    is_sparse,
    moved,
    to_numpy,
)
from bochner._core.checks import integer, one_of, positive
from bochner._core.native import power_of_two
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.powers import (
    Inputs,
    Weights,
    log_coefficients,
    powers,
    random_signs,
    shares,
    split_off,
)
from bochner.features.request import Request
from bochner.features.rules import leaf_map
from bochner.features.tensorsketch import by_pieces
from bochner.features.treesteps import Entries, Exact, Hashed, Node, Padded, Pairs
from bochner.kernels import Kernel


@dataclass(frozen=True)
class PolySketch(Method):
    """A tree of sketches of degree two: Ahle et al. (2020), with TensorSRHT nodes, OSNAP leaves.

    Parameters
    ----------
    pairs : {"balanced", "independent"}, default "balanced"
        Which entries a node multiplies. "balanced": no pair (i, k) twice, and each i, and each k,
        equally often. With V(x, y) = |x|²|y|² + ⟨x, y⟩² − 2Σxᵢ²yᵢ² of either child, P_L ≥ P_R
        their entries and m = B P_L, a node's variance is
        V_L V_R (P_R − B) / (B (P_L − 1)(P_R − 1)), zero when all pairs are there.
        "independent": as published; ((V_L + S_L)(V_R + S_R) − S_L S_R)/m, S = ⟨x, y⟩², which is
        two to four times as much for near rows.
    inner : int, optional
        Entries of inner nodes, rounded up to a power of two. Default: as many as the features of
        the degree that has most.
    nonzeros : int, default 4
        Leaves of more columns than ``inner`` are first hashed to ``inner`` by an OSNAP matrix
        with this many entries for each column; 1 is a CountSketch.
    radius : float, optional
        Length of rows at which the terms of a power series are weighed, in units of the
        lengthscale where the kernel has one. Default: the median of the rows it is drawn with.

    Notes
    -----
    Serves Polynomial, DotExponential and DotProduct kernels, their sums and multiples, and the
    Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}. The constant is exact, the linear term where it
    pays; every other degree gets the share of the features that its term has. Unbiased; the
    variance grows with the degree p like p, not like 3ᵖ as those of :class:`Maclaurin` and
    :class:`TensorSketch`. Cost of φ(X): O(nnz(X) + n (D + p m log m)) for inner width m. Sparse
    rows are not made dense beyond ``inner`` columns. Choose it for polynomials of many columns;
    for a Gaussian in few dimensions every deterministic map is far ahead.
    """

    pairs: Literal["balanced", "independent"] = "balanced"
    inner: int | None = None
    nonzeros: int = 4
    radius: float | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        one_of(self.pairs, "PolySketch", "pairs", ("balanced", "independent"))
        integer(self.nonzeros, "PolySketch", "nonzeros", least=1)
        if self.inner is not None:
            integer(self.inner, "PolySketch", "inner", least=1)
        if self.radius is not None:
            object.__setattr__(self, "radius", positive(self.radius, "PolySketch", "radius"))

    def least_numbers(self, n_features: int, n_columns: int) -> int:  # noqa: ARG002
        """Return 0: it finds out how many features serve."""
        return 0


@dataclass(frozen=True, eq=False)
class PolySketchMap(FeatureMap):
    """φ(x) = [weighted sketch of each power], read off one tree.

    Attributes
    ----------
    inputs : Inputs
        Scales of the columns.
    weights : Weights
        Degree and weight of each block.
    steps : tuple of Padded, Hashed or Node
        The tree, children before parents.
    blocks : tuple of Exact, Entries or Pairs
        The features, degree by degree.
    complete : bool
        Whether every block holds all pairs, and so nothing is left to chance.
    """

    kernel: Kernel
    inputs: Inputs
    weights: Weights
    steps: tuple[Padded | Hashed | Node, ...]
    blocks: tuple[Exact | Entries | Pairs, ...]
    complete: bool

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs.width

    @property
    def n_features(self) -> int:
        """D."""
        return sum(block.width for block in self.blocks)

    @property
    def below_kernel(self) -> bool:
        """Only where it is exact."""
        return self.complete

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the sketches side by side, (n, D)."""
        rows = X if is_numpy(X) or is_sparse(X) else to_numpy(X)
        Z = np.empty((X.shape[0], self.n_features), dtype=rows.dtype)
        widest = max(block.width for block in self.blocks)
        by_pieces(lambda part: self._fill(Z[part], rows[part]), len(Z), widest)
        return moved(Z, like=X)

    def _fill(self, Z: Array, X: Array) -> None:
        U, lengths = self.inputs.split(X)
        weights = self.weights.at(lengths, like=U)
        earlier: list[Array] = []
        for step in self.steps:
            earlier.append(step.of(U, earlier))
        start = 0
        for i, block in enumerate(self.blocks):
            out = Z[:, start : start + block.width]
            block.fill(out, U, earlier, weights[:, i : i + 1])
            start += block.width


# --- Drawing --------------------------------------------------------------------------------------


class Tree:
    """The steps of a tree while it is drawn; each once, its stream named by its place."""

    def __init__(self, method: PolySketch, ask: Request, inner: int) -> None:
        self.method, self.ask, self.inner = method, ask, inner
        self.padded = min(inner, power_of_two(ask.n_inputs))
        self.steps: list[Padded | Hashed | Node] = []
        self.widths: list[int] = []
        self._places: dict[tuple[int, int, int], int] = {}

    def power(self, n: int, width: int) -> Pairs | Entries:
        """Return the block of x^{⊗n}, n ≥ 1."""
        if n == 1:
            chosen = self.ask.stream("entries").permutation(self.padded)[:width]
            return Entries(self._step(0, 1, 1), np.sort(chosen).astype(np.int32))
        return self._pairs(0, power_of_two(n), n, width, "block")

    def _step(self, start: int, size: int, count: int) -> int:
        """Return the step of a node of ``size`` leaves, of which the first ``count`` are x."""
        while count <= size // 2:
            size //= 2
        place = (start, size, count)
        if place not in self._places:
            step, width = self._leaf(start) if size == 1 else self._node(*place)
            self.steps.append(step)
            self.widths.append(width)
            self._places[place] = len(self.steps) - 1
        return self._places[place]

    def _node(self, start: int, size: int, count: int) -> tuple[Node, int]:
        most = capacity(count, self.padded, self.inner, self.method.pairs)
        width = int(min(self.inner, most))
        pairs = self._pairs(start, size, count, width, "node")
        rng = self.ask.stream(f"signs {start} {size} {count}")
        negative = np.int32(self.widths[pairs.right]) * rng.integers(0, 2, width, dtype=np.int32)
        return Node(replace(pairs, partners=pairs.partners + negative)), width

    def _pairs(self, start: int, size: int, count: int, width: int, use: str) -> Pairs:
        half = size // 2
        left, right = self._step(start, half, half), self._step(start + half, half, count - half)
        if self.widths[left] < self.widths[right]:
            left, right = right, left
        draw = _balanced if self.method.pairs == "balanced" else _independent
        rng = self.ask.stream(f"{use} {start} {size} {count}")
        return Pairs(left, right, *draw(self.widths[left], self.widths[right], width, rng))

    def _leaf(self, start: int) -> tuple[Padded | Hashed, int]:
        """Pad, or hash by OSNAP: s different rows for each column."""
        rng, d, P = self.ask.stream(f"leaf {start}"), self.ask.n_inputs, self.padded
        if d <= P:
            return Padded(random_signs(rng, P)), P
        s = min(self.method.nonzeros, P)
        # One row in each of s parts of the range: different without a test.
        edges = np.linspace(0, P, s + 1).astype(np.int64)
        rows = np.stack([rng.integers(a, b, d) for a, b in pairwise(edges)], axis=1)
        return Hashed(rows.astype(np.int32), random_signs(rng, (d, s)), P), P


@lru_cache(maxsize=4096)
def capacity(n: int, padded: int, inner: int, pairs: str) -> float:
    """Return how many pairs the top node of degree n has: its sketch with all of them is exact."""
    if pairs == "independent":
        return np.inf
    half = power_of_two(n) // 2
    return _entries(half, padded, inner) * _entries(n - half, padded, inner) if n > 1 else padded


def _entries(n: int, padded: int, inner: int) -> float:
    return padded if n == 1 else min(inner, capacity(n, padded, inner, "balanced"))


def _balanced(P: int, Q: int, m: int, rng: np.random.Generator) -> tuple[int, Array, Array]:
    """Return full blocks, the left entries after them, and the right entries: no pair twice.

    Block b pairs i with π((σ(i) + s_b) mod Q), for random π, σ and different shifts s_b.
    """
    places, order, shifts = rng.permutation(P), rng.permutation(Q), rng.permutation(Q)
    full, left = divmod(m, P)
    tail = np.sort(rng.permutation(P)[:left])
    whole = (places[None, :] + shifts[:full, None]) % Q
    rest = (places[tail] + shifts[full]) % Q if left else np.empty(0, dtype=np.int64)
    partners = order[np.concatenate([whole.ravel(), rest])]
    return full, tail.astype(np.int32), partners.astype(np.int32)


def _independent(P: int, Q: int, m: int, rng: np.random.Generator) -> tuple[int, Array, Array]:
    left, right = rng.integers(0, P, m, dtype=np.int32), rng.integers(0, Q, m, dtype=np.int32)
    return 0, left, right


@leaf_map.register
def _(method: PolySketch, kernel: Kernel, ask: Request) -> FeatureMap:
    parts = powers(kernel, method, ask.n_inputs)
    exact, energy, left = split_off(kernel, method, parts, ask)
    d = ask.n_inputs
    inner = power_of_two(method.inner or left)
    padded = min(inner, power_of_two(d))
    got = shares(
        energy, lambda n: capacity(n, padded, inner, method.pairs), left, ask.stream("degrees")
    )
    tree = Tree(method, ask, power_of_two(method.inner or max(got.widths, default=1)))
    blocks: list[Exact | Entries | Pairs] = [Exact(int(n), d if n else 1) for n in exact]
    blocks += [tree.power(n, w) for n, w in zip(got.degrees, got.widths, strict=True)]
    degrees = np.array([*exact, *got.degrees], dtype=np.int64)
    logs = log_coefficients(parts.series, degrees)
    logs -= np.log([1.0] * len(exact) + list(got.probabilities))
    weights = Weights(degrees, 0.5 * logs, parts.gaussian)
    complete = all(
        method.pairs == "balanced" and p == 1 and w == power_of_two(d) ** n
        for n, w, p in zip(*got.columns, strict=True)
    )
    steps = tuple(tree.steps)
    return PolySketchMap(kernel, Inputs(parts.scales), weights, steps, tuple(blocks), complete)
