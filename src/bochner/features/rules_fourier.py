"""Fourier features in the rule table: which kernels they serve whole, and with what frequencies.

The spectral measure of a product of stationary kernels is a convolution, so their frequencies
add; columns and linear maps of the input act on the frequencies. All other ways to build a kernel
are those of :mod:`bochner.features.rules`.
"""

from dataclasses import replace
from functools import singledispatch

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier import (
    Fourier,
    FourierComplexMap,
    FourierGridMap,
    FourierMap,
    FourierPhaseMap,
)
from bochner.features.map import FeatureMap, OnInputs
from bochner.features.placements import Grid, Placement
from bochner.features.request import Request
from bochner.features.rules import leaf_map
from bochner.features.structure import granularity, is_stationary
from bochner.features.structured import StructuredMap, chains_of, worthwhile
from bochner.kernels import (
    Columns,
    Constant,
    Exp,
    Kernel,
    Mahalanobis,
    Normalised,
    Power,
    Product,
    Scaled,
    SkewedChi2,
    Stationary,
    Sum,
)


@granularity.register
def _(method: Fourier) -> int:
    return 2 if method.form == "pair" else 1


@leaf_map.register
def _(method: Fourier, kernel: Kernel, ask: Request) -> FeatureMap:
    if isinstance(kernel, SkewedChi2):  # stationary in log(x + c)
        inner = _stationary(method, kernel, 1.0, ask)
        return OnInputs(kernel, inner, ask.n_inputs)
    if not (isinstance(kernel, Stationary | Product | Power | Exp) and is_stationary(kernel)):
        raise UnsupportedKernel(
            f"Fourier requires a kernel of x − y, or sums and products of such with Linear() and "
            f"Constant(); got {kernel!r}. Nystrom(...) serves every kernel."
        )
    return _stationary(method, kernel, float(kernel.diag(np.zeros((1, ask.n_inputs)))[0]), ask)


def _stationary(method: Fourier, kernel: Kernel, amplitude: float, ask: Request) -> FeatureMap:
    if isinstance(method.placement, Grid):
        return _grid(kernel, method.placement, amplitude, ask)
    if method.form == "complex":
        pairs = replace(ask, n_features=2 * ask.n_features)
        inner = _random(Fourier(method.placement), kernel, amplitude, pairs)
        return FourierComplexMap(kernel, inner)
    return _random(method, kernel, amplitude, ask)


def _random(method: Fourier, kernel: Kernel, amplitude: float, ask: Request) -> FeatureMap:
    d, m = ask.n_inputs, _count(method, ask.n_features)
    phases = ask.stream("phases").uniform(0, 2 * np.pi, m if method.form == "phase" else 0)
    if isinstance(kernel, Stationary):
        measure = kernel.spectral_measure(d)
        chains = chains_of(method.placement, measure, m, ask.stream("frequencies"))
        if chains is not None and worthwhile(chains, d):
            return StructuredMap(kernel, chains.diagonals, chains.orders, d, m, phases, amplitude)
    W = frequencies(kernel, method.placement, m, d, ask.stream("frequencies"))
    if method.form == "pair":
        return FourierMap(kernel, W, amplitude)
    return FourierPhaseMap(kernel, W, phases, amplitude)


def _count(method: Fourier, n_features: int) -> int:
    """Return the number of frequencies of so many features."""
    if method.form == "phase":
        return n_features
    if n_features < 2 or n_features % 2:
        raise InvalidInput(
            'Fourier(form="pair") requires an even number of features, a cosine and a sine of '
            f'each frequency; got {n_features}. Ask for one more, or use form="phase".'
        )
    return n_features // 2


def _grid(kernel: Kernel, placement: Grid, amplitude: float, ask: Request) -> FeatureMap:
    if not isinstance(kernel, Stationary):
        raise placement.refusal()
    W, weights = placement.nodes(kernel.spectral_measure(ask.n_inputs), max(1, ask.n_features // 2))
    return FourierGridMap(kernel, W, weights, amplitude)


# --- Frequencies: W with E cos ω·δ = k(δ)/k(0) ---------------------------------------------------


@singledispatch
def frequencies(
    kernel: Kernel, placement: Placement, m: int, d: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m frequencies of a stationary kernel, (d, m)."""
    raise UnsupportedKernel(f"Fourier: {kernel!r} has no spectral measure. Use Nystrom(...).")


@frequencies.register
def _(
    kernel: Stationary | SkewedChi2, placement: Placement, m: int, d: int, rng: np.random.Generator
) -> Array:
    return placement.place(kernel.spectral_measure(d), m, rng)


@frequencies.register
def _(kernel: Constant, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    return np.zeros((d, m))


@frequencies.register
def _(kernel: Power, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    parts = (frequencies(kernel.kernel, placement, m, d, rng) for _ in range(kernel.exponent))
    return sum(W[:, rng.permutation(m)] for W in parts)


@frequencies.register
def _(kernel: Exp, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    """exp(k) = e^c Σ e^(−c) cⁿ/n! (k/c)ⁿ with c = k(0): the sum of a Poisson number of them."""
    counts = rng.poisson(float(kernel.kernel.diag(np.zeros((1, d)))[0]), m)
    total = np.zeros((d, m))
    for n in range(counts.max()):
        W = frequencies(kernel.kernel, placement, m, d, rng)[:, rng.permutation(m)]
        total += np.where(counts > n, W, 0.0)
    return total


@frequencies.register
def _(
    kernel: Scaled | Normalised, placement: Placement, m: int, d: int, rng: np.random.Generator
) -> Array:
    return frequencies(kernel.kernel, placement, m, d, rng)


@frequencies.register
def _(kernel: Product, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    left = frequencies(kernel.left, placement, m, d, rng)
    # Columns of an orthogonal block depend on one another: a random order makes the pairing fair.
    return left + frequencies(kernel.right, placement, m, d, rng)[:, rng.permutation(m)]


@frequencies.register
def _(kernel: Sum, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    left = frequencies(kernel.left, placement, m, d, rng)
    right = frequencies(kernel.right, placement, m, d, rng)
    sizes = kernel.left.diag(np.zeros((1, d)))[0], kernel.right.diag(np.zeros((1, d)))[0]
    return np.where(rng.random(m) * sum(sizes) < sizes[0], left, right)


@frequencies.register
def _(kernel: Columns, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    W = np.zeros((d, m))
    W[list(kernel.columns)] = frequencies(kernel.kernel, placement, m, len(kernel.columns), rng)
    return W


@frequencies.register
def _(kernel: Mahalanobis, placement: Placement, m: int, d: int, rng: np.random.Generator) -> Array:
    return kernel.root @ frequencies(kernel.kernel, placement, m, d, rng)
