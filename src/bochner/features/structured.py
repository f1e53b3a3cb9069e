"""Frequencies that are never formed: products of Hadamard matrices and random diagonals.

A block of p = 2^⌈log₂ d⌉ frequencies costs O(p log p) for each row in place of O(p d).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bochner._core.arrays import is_numpy, is_sparse, precision
from bochner._core.native import Chains, chain_waves, chain_waves_twin, hadamard, power_of_two
from bochner._core.shapes import Array, Float
from bochner.features.far import norms, with_far_rows
from bochner.features.map import FeatureMap
from bochner.features.placements import (
    Orthogonal,
    Placement,
    in_streams,
    radii,
    require_isotropic,
)
from bochner.kernels import Kernel
from bochner.kernels.spectral import GaussianMixture, Measure

#: Below it, three transforms are far from a uniformly random rotation, and dense ones as fast.
LEAST_COLUMNS = 32

#: Rows of a sparse matrix that are made dense at a time, in cells.
CELLS = 1 << 22


@dataclass(frozen=True)
class Structured(Placement):
    """Blocks H D₁ H D₂ H D₃ with the radial law of the kernel, evaluated by fast transforms.

    Yu et al. (2016), *Orthogonal random features*, eq. 6, with p = 2^⌈log₂ d⌉, H the normalised
    Hadamard matrix and D random signs; rows are orthogonal. Published with rows of length √p,
    which is biased; here rows have independent lengths χ_p (times the kernel's factor). What bias
    is left comes from directions that are not quite uniform: at most 2e-3 k(0) at p = 32, along
    a coordinate axis, and less for larger p; below 32 columns random rotations are used. Above
    d = 50 or so evaluation is faster than a matrix product: 12 times at d = 1024, D = 8192. Where
    it is not, the frequencies are formed. Errors are those of :class:`Orthogonal`; the choice for
    d in the hundreds and more.
    Cost of φ(X): O(n D log d). Memory: 4 numbers a frequency.
    """

    formed: ClassVar[bool] = False

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return the frequencies, formed, (d, m)."""
        measure = require_isotropic(measure, "Structured()")
        chains = _structured(measure, m, rng)
        if chains is None:
            return Orthogonal().place(measure, m, rng)
        return frequencies_of(chains, len(measure.scales))


@dataclass(frozen=True)
class Fastfood(Placement):
    """Blocks S H G Π H B / √p: Le, Sarlós and Smola (2013), eq. 8.

    p = 2^⌈log₂ d⌉, B random signs, Π a random permutation, G normal, S lengths χ_p/‖G‖ (times
    the kernel's factor). Each frequency has exactly the spectral law, so features are unbiased;
    frequencies of a block depend on one another, and the variance is above that of :class:`IID`.
    For comparison with other work; :class:`Structured` has a lower error at the same speed.
    """

    formed: ClassVar[bool] = False

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return the frequencies, formed, (d, m)."""
        measure = require_isotropic(measure, "Fastfood()")
        return frequencies_of(_fastfood(measure, m, rng), len(measure.scales))


# --- What is drawn ------------------------------------------------------------------------------


def chains_of(
    placement: Placement, measure: Measure, m: int, rng: np.random.Generator
) -> Chains | None:
    """Return m frequencies of a placement as transforms, in turns; None where they are dense."""
    if isinstance(placement, Fastfood):
        return _fastfood(require_isotropic(measure, "Fastfood()"), m, rng)
    if isinstance(placement, Structured):
        return _structured(require_isotropic(measure, "Structured()"), m, rng)
    return None


def _structured(measure: GaussianMixture, m: int, rng: np.random.Generator) -> Chains | None:
    if len(measure.scales) < LEAST_COLUMNS:
        return None
    p = power_of_two(len(measure.scales))

    def draw(child: np.random.Generator, blocks: int) -> Float[Array, "b 4 p"]:
        signs = child.choice((-1.0, 1.0), (blocks, 3, p))
        lengths = radii(measure, p, blocks * p, child) / (2 * np.pi * p**1.5)
        signs[:, 0] *= _scales(measure, p)
        return np.concatenate([signs, lengths.reshape(blocks, 1, p)], axis=1)

    return Chains(in_streams(draw, -(-m // p), p, rng), np.empty((0, p), np.int32), m)


def _fastfood(measure: GaussianMixture, m: int, rng: np.random.Generator) -> Chains:
    p = power_of_two(len(measure.scales))

    def draw(child: np.random.Generator, blocks: int) -> Float[Array, "b 4 p"]:
        signs, G = child.choice((-1.0, 1.0), (blocks, p)), child.standard_normal((blocks, p))
        sizes = 2 * np.pi * p**0.5 * np.linalg.norm(G, axis=1, keepdims=True)
        lengths = radii(measure, p, blocks * p, child).reshape(blocks, p) / sizes
        orders = child.permuted(np.tile(np.arange(p), (blocks, 1)), axis=1)
        return np.stack([signs * _scales(measure, p), G, lengths, orders], axis=1)

    drawn = in_streams(draw, -(-m // p), p, rng)
    return Chains(np.ascontiguousarray(drawn[:, :3]), drawn[:, 3].astype(np.int32), m)


def _scales(measure: GaussianMixture, p: int) -> Float[Array, " p"]:
    scales = np.ones(p)
    scales[: len(measure.scales)] = measure.scales
    return scales


def frequencies_of(chains: Chains, d: int) -> Float[Array, "d m"]:
    """Return the frequencies that chains stand for, in radians; O(m p log p).

    Row j of a block's product S H D₁ H D₂ … is eⱼ times it, from the left: the transposed product
    of a unit vector, H being symmetric. No (d, d) matrix of unit vectors is made.
    """
    p = chains.diagonals.shape[2]
    W = np.empty((chains.m, p))
    for b, diagonals in enumerate(chains.diagonals):
        rows = W[b * p : (b + 1) * p]
        rows[:] = np.eye(len(rows), p)
        for step in reversed(range(1, len(diagonals))):
            rows *= diagonals[step]
            if step == 1 and len(chains.orders):
                rows[:, chains.orders[b]] = rows.copy()
            hadamard(rows, out=rows)
        rows *= diagonals[0]
    return 2 * np.pi * W[:, :d].T


def worthwhile(chains: Chains, d: int) -> bool:
    """Whether transforms cost less than a product with the frequencies."""
    return chain_multiplications(chains) < d * chains.m


def chain_multiplications(chains: Chains) -> float:
    """Return what chains cost a row, in multiplications of a product that takes as long.

    Measured (AVX2, p from 64 to 1024): a step takes 10 + log₂ p a number, an order 20.
    """
    blocks, diagonals, p = chains.diagonals.shape
    ordered = 20.0 if len(chains.orders) else 0.0
    return blocks * p * ((diagonals - 1) * (10 + np.log2(p)) + ordered)


# --- The map ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StructuredMap(FeatureMap):
    """Fourier features whose angles are computed by Walsh-Hadamard transforms.

    Pairs φ(x) = √(k(0)/m) [cos Wᵀx, sin Wᵀx], or with phases √(2k(0)/m) cos(Wᵀx + b).

    Attributes
    ----------
    diagonals : (blocks, s + 1, p) float64
        Of each block, in the order in which they meet x; the last ones in turns.
    orders : (blocks, p) int32, or (0, p)
        Permutations after the first transform.
    inputs : int
        d ≤ p.
    n_frequencies : int
        m.
    phases : (m,) float64, or (0,)
        b, in radians; none for pairs.
    amplitude : float
        k(0).
    """

    kernel: Kernel
    diagonals: Float[Array, "b s p"]
    orders: Array
    inputs: int
    n_frequencies: int
    phases: Float[Array, " m"]
    amplitude: float

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs

    @property
    def n_features(self) -> int:
        """D: 2m for pairs, m with phases."""
        return self.n_frequencies * (1 if len(self.phases) else 2)

    @property
    def below_kernel(self) -> bool:
        """Unbiased but for a little, so errors have both signs."""
        return False

    @property
    def multiplications(self) -> float:
        """What the angles of a row cost, in multiplications of a product as long."""
        return chain_multiplications(self._chains[True])

    @cached_property
    def reach(self) -> float:
        """Radians that a middling frequency turns along a step of length one."""
        first, between, last = np.split(self.diagonals, [1, self.diagonals.shape[1] - 1], axis=1)
        lengths = norms(first[..., : self.inputs], axis=2)
        lengths = lengths * norms(between, axis=2).prod(axis=1, keepdims=True)
        return 2 * np.pi * float(np.median(np.abs(last[:, 0]) * lengths))

    @cached_property
    def frequencies(self) -> Float[Array, "d m"]:
        """W, formed."""
        return frequencies_of(self._chains[True], self.inputs)

    @cached_property
    def _chains(self) -> tuple[Chains, Chains]:
        """In float32 and in float64."""
        orders = np.ascontiguousarray(self.orders, np.int32)
        double = Chains(np.ascontiguousarray(self.diagonals), orders, self.n_frequencies)
        with np.errstate(over="ignore"):  # of lengthscales that float32 rows cannot have
            return double._replace(diagonals=double.diagonals.astype(np.float32)), double

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return cosines and sines, or shifted cosines, (n, D)."""
        return with_far_rows(X, self.reach, self._waves)

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if is_sparse(X):
            return self._sparse(X)
        chains, b = self._chains[precision(X) == np.float64], self.phases / (2 * np.pi)
        phases = b.astype(chains.diagonals.dtype) if len(b) else None
        scale = (self.amplitude / self.n_frequencies * (2 if len(b) else 1)) ** 0.5
        if is_numpy(X):
            return chain_waves(np.ascontiguousarray(X), chains, scale, phases)
        return chain_waves_twin(X, chains, scale, phases)

    def _sparse(self, X: Array) -> Float[Array, "n D"]:
        """Return features of rows that are made dense a block at a time."""
        Z = np.empty((X.shape[0], self.n_features), X.dtype)
        block = max(1, CELLS // self.inputs)
        for start in range(0, X.shape[0], block):
            Z[start : start + block] = self._waves(X[start : start + block].toarray())
        return Z
