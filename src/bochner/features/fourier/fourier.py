"""Random Fourier features of stationary kernels.

By Bochner's theorem k(x − y) = k(0) E cos(ω·(x − y)) with ω from the kernel's spectral measure.
m frequencies ω_j give

    pair:    z(x) = √(k(0)/m) [cos ω_j·x, sin ω_j·x]_j,             D = 2m,
    phase:   z(x) = √(2 k(0)/m) [cos(ω_j·x + b_j)]_j, b ~ U[0, 2π],   D = m,
    complex: z(x) = √(k(0)/m) [exp(i ω_j·x)]_j,                     D = m.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from bochner._core import native
from bochner._core.arrays import array_namespace, moved
from bochner._core.checks import check_fields, word
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier.placements import (
    Grid,
    Orthogonal,
    Placement,
    StructuredMap,
    by_angles,
    chains_of,
    worthwhile,
)
from bochner.features.map import FeatureMap, parts_of, reach_of, with_far_rows
from bochner.features.method import Method, Request
from bochner.kernels.algebra import Columns, Exp, Mahalanobis, Normalised
from bochner.kernels.histogram import SkewedChi2
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.stationary import Stationary


@dataclass(frozen=True)
class Fourier(Method):
    """Random Fourier features: Rahimi and Recht (2007).

    Parameters
    ----------
    placement : Placement, default Orthogonal()
        Where the frequencies fall: ``IID()``, ``Orthogonal()``, ``QMC()``, ``Structured()`` (fast
        transforms, for d in the hundreds), ``Fastfood()``, or ``Grid()`` (weighted nodes).
    form : {"pair", "phase", "complex"}, default "pair"
        "pair" uses cosine and sine of each of D/2 frequencies: |φ(x)|² = k(x, x) exactly, and
        variance (1 + k(2δ) − 2k(δ)²)/D, lower than that of "phase", (1 + ½k(2δ) − k(δ)²)/D,
        wherever k(2δ) < 2k(δ)²: always for Gaussian and Laplace kernels, and Matérn kernels of
        smoothness ½ or more.
        "phase" uses D frequencies with random phases.
        "complex" gives D complex exponentials, complex64 or complex128, with
        φ(X) φ(Y)ᴴ ≈ K: the pair of D frequencies as one number each. What fits models takes real
        features only and refuses it.

    Notes
    -----
    Serves stationary kernels, their sums and products. Unbiased for any data, seen or not; the
    error falls like 1/√D. Choose it when data may be seen only once, for D in the thousands at
    high speed, or when the spectrum does not decay; :class:`Nystrom` is more accurate at equal
    width where it does. Cost of φ(X): O(n d D) and D/2 sine-cosine pairs a row.
    """

    placement: Placement = field(default_factory=Orthogonal)
    form: Literal["pair", "phase", "complex"] = "pair"

    def __post_init__(self) -> None:
        if not isinstance(self.placement, Placement):
            raise InvalidInput(
                "Fourier: placement must be IID(), Orthogonal(), Structured(), Fastfood(), QMC() "
                f"or Grid(); got {self.placement!r}."
            )
        check_fields(self, form=word("pair", "phase", "complex"))
        if isinstance(self.placement, Grid) and self.form != "pair":
            raise InvalidInput(
                f'Fourier(Grid()) requires form="pair", which its weights are for; got '
                f"{self.form!r}."
            )

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        return n_features * (1 + (n_columns if self.placement.formed else 2))

    @property
    def granularity(self) -> int:
        return 2 if self.form == "pair" else 1


class OfFrequencies(FeatureMap):
    """A map of cosines of the angles Wᵀx."""

    frequencies: Float[Array, "d m"]

    @property
    def n_inputs(self) -> int:
        return self.frequencies.shape[0]

    @cached_property
    def reach(self) -> float:
        return reach_of(self.frequencies)

    @cached_property
    def _turns(self) -> tuple[Float[Array, "d m"], Float[Array, "d m"]]:
        return _in_turns(self.frequencies)


@dataclass(frozen=True, eq=False)
class FourierMap(OfFrequencies):
    """Cosine and sine of each frequency: φ(x) = √(k(0)/m) [cos Wᵀx, sin Wᵀx].

    Notes
    -----
    Columns 0..m−1 are the cosines, m..2m−1 the sines. In float32 the error of a feature is below
    2e-6 √(2/D) (1 + ‖x‖) for lengthscales near one; the angle is reduced exactly, in turns, so
    the only loss is the rounding of W and of the product. Rows so far from the origin that this
    would be seen, sparse ones too, have their angles in float64.
    """

    kernel: Kernel
    frequencies: Float[Array, "d m"]  # W
    amplitude: float  # k(0)

    @property
    def n_features(self) -> int:
        return 2 * self.frequencies.shape[1]

    @property
    def multiplications(self) -> float:
        return float(self.frequencies.size)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        return with_far_rows(self, X, self._waves)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return by_angles(self.features(X), C) @ moved(self.frequencies.T, like=X)

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        scale = (self.amplitude / self.frequencies.shape[1]) ** 0.5
        if isinstance(X, np.ndarray):
            X = np.ascontiguousarray(X)
            return native.cos_sin(X, self._turns[X.dtype == np.float64], scale)
        xp = array_namespace(X)
        angles = X @ moved(self.frequencies, like=X)
        return scale * xp.concat([xp.cos(angles), xp.sin(angles)], axis=1)


@dataclass(frozen=True, eq=False)
class FourierPhaseMap(OfFrequencies):
    """Cosine with a random phase: φ(x) = √(2k(0)/m) cos(Wᵀx + b)."""

    kernel: Kernel
    frequencies: Float[Array, "d m"]  # W
    phases: Float[Array, " m"]  # b, in radians
    amplitude: float  # k(0)

    @property
    def n_features(self) -> int:
        return self.frequencies.shape[1]

    @property
    def multiplications(self) -> float:
        return float(self.frequencies.size)

    @cached_property
    def _phase_turns(self) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        return _in_turns(self.phases)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        return with_far_rows(self, X, self._waves)

    @cached_property
    def _sines(self) -> "FourierPhaseMap":
        return replace(self, phases=self.phases - np.pi / 2)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return (-C * self._sines.features(X)) @ moved(self.frequencies.T, like=X)

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        scale = (2 * self.amplitude / len(self.phases)) ** 0.5
        if isinstance(X, np.ndarray):
            double = X.dtype == np.float64
            X = np.ascontiguousarray(X)
            return native.cos_bias(X, self._turns[double], self._phase_turns[double], scale)
        angles = X @ moved(self.frequencies, like=X)
        xp = array_namespace(angles)
        return scale * xp.cos(angles + moved(self.phases, like=angles))


class WeightedPairs(OfFrequencies):
    """Weighted cosine and sine of each frequency: φ(x) = √k(0) [√w cos Wᵀx, √w sin Wᵀx]."""

    weights: Float[Array, " m"]  # w ≥ 0
    amplitude: float  # k(0)

    @property
    def n_features(self) -> int:
        return 2 * self.frequencies.shape[1]

    @property
    def multiplications(self) -> float:
        return float(self.frequencies.size)

    @cached_property
    def _even(self) -> FourierMap:
        return FourierMap(self.kernel, self.frequencies, self.amplitude * len(self.weights))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        Z = self._even.features(X)
        return Z * moved(self._roots, like=Z)

    @cached_property
    def _roots(self) -> Float[Array, " D"]:
        return np.sqrt(np.concatenate([self.weights, self.weights]))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        return self._even.pullback(X, C * moved(self._roots, like=X))


@dataclass(frozen=True, eq=False)
class FourierGridMap(WeightedPairs):
    """Nodes of a rule in the place of draws: weights of sum one."""

    kernel: Kernel
    frequencies: Float[Array, "d m"]  # W
    weights: Float[Array, " m"]  # w ≥ 0, of sum one
    amplitude: float  # k(0)

    unbiased = False  # nodes are no draws


@dataclass(frozen=True, eq=False)
class FourierComplexMap(FeatureMap):
    """Complex exponentials: φ(x) = √(k(0)/m) exp(i Wᵀx), with φ(X) φ(Y)ᴴ ≈ K."""

    kernel: Kernel
    pairs: FeatureMap  # The cosines, then the sines, that become real and imaginary parts

    @property
    def n_inputs(self) -> int:
        return self.pairs.n_inputs

    @property
    def n_features(self) -> int:
        return self.pairs.n_features // 2

    @property
    def reach(self) -> float:
        return self.pairs.reach

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        Z, m = self.pairs.features(X), self.n_features
        xp = array_namespace(Z)
        dtype = xp.complex64 if Z.dtype == xp.float32 else xp.complex128
        return xp.astype(Z[:, :m], dtype) + 1j * xp.astype(Z[:, m:], dtype)


def require_real(phi: FeatureMap, who: str) -> None:
    """Refuse a map with complex features, alone or as a part of others."""
    if isinstance(phi, FourierComplexMap):
        raise InvalidInput(
            f'{who} requires real features; got complex ones. Use Fourier(form="pair"), which '
            "holds the same numbers."
        )
    for part in parts_of(phi):
        require_real(part, who)


def _in_turns(angles: Array) -> tuple[Array, Array]:
    """Return angles/2π in float32 and float64: in turns, range reduction is exact."""
    turns = np.ascontiguousarray(angles / (2 * np.pi))
    with np.errstate(over="ignore"):  # of lengthscales that float32 rows cannot have
        return turns.astype(np.float32), turns


# --- Drawing -------------------------------------------------------------------------------------


def draw_stationary(method: Fourier, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw Fourier features of a kernel of x − y, or of log(x + c) − log(y + c)."""
    placement, d, m, amplitude = method.placement, ask.n_inputs, ask.n_features, 1.0
    if not isinstance(kernel, Stationary | SkewedChi2):
        amplitude = float(kernel.diag(np.zeros((1, d)))[0])
    if isinstance(placement, Grid):
        return _grid(kernel, placement, amplitude, ask)
    if method.form == "complex":
        pairs = draw_stationary(Fourier(placement), kernel, replace(ask, n_features=2 * m))
        return FourierComplexMap(kernel, pairs)
    phases = np.zeros(0)
    if method.form == "phase":
        phases = ask.stream("phases").uniform(0, 2 * np.pi, m)
    elif m < 2 or m % 2:
        raise InvalidInput(
            'Fourier(form="pair") requires an even number of features, a cosine and a sine of '
            f'each frequency; got {m}. Ask for one more, or use form="phase".'
        )
    else:
        m //= 2
    if isinstance(kernel, Stationary) and not placement.formed:
        chains = chains_of(placement, kernel.spectral_measure(d), m, ask.stream("frequencies"))
        if chains is not None and worthwhile(chains, d):
            return StructuredMap(kernel, chains.diagonals, chains.orders, d, m, phases, amplitude)
    W = frequencies(kernel, placement, m, d, ask.stream("frequencies"))
    if method.form == "pair":
        return FourierMap(kernel, W, amplitude)
    return FourierPhaseMap(kernel, W, phases, amplitude)


def _grid(kernel: Kernel, placement: Grid, amplitude: float, ask: Request) -> FeatureMap:
    if not isinstance(kernel, Stationary):
        raise placement.refusal()
    W, weights = placement.nodes(kernel.spectral_measure(ask.n_inputs), max(1, ask.n_features // 2))
    return FourierGridMap(kernel, W, weights, amplitude)


# --- Frequencies: W with E cos ω·δ = k(δ)/k(0) ---------------------------------------------------


def frequencies(
    kernel: Kernel, placement: Placement, m: int, d: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m frequencies of a stationary kernel, (d, m).

    The spectral measure of a product is a convolution, so that frequencies add; columns and linear
    maps of the input act on the frequencies.
    """
    if isinstance(kernel, Stationary | SkewedChi2):
        return placement.place(kernel.spectral_measure(d), m, rng)

    def drawn(part: Kernel, columns: int = d) -> Float[Array, "d m"]:
        return frequencies(part, placement, m, columns, rng)

    # Columns of an orthogonal block depend on one another: a random order makes a pairing fair.
    match kernel:
        case Constant():
            return np.zeros((d, m))
        case Scaled() | Normalised():
            return drawn(kernel.kernel)
        case Power():
            parts = (drawn(kernel.kernel) for _ in range(kernel.exponent))
            return sum(W[:, rng.permutation(m)] for W in parts)
        case Product():
            left = drawn(kernel.left)
            return left + drawn(kernel.right)[:, rng.permutation(m)]
        case Sum():
            left, right = drawn(kernel.left), drawn(kernel.right)
            sizes = kernel.left.diag(np.zeros((1, d)))[0], kernel.right.diag(np.zeros((1, d)))[0]
            return np.where(rng.random(m) * sum(sizes) < sizes[0], left, right)
        case Exp():
            # exp(k) = e^c Σ e^(−c) cⁿ/n! (k/c)ⁿ with c = k(0): the sum of a Poisson number of them.
            counts = rng.poisson(float(kernel.kernel.diag(np.zeros((1, d)))[0]), m)
            total = np.zeros((d, m))
            for n in range(counts.max()):
                total += np.where(counts > n, drawn(kernel.kernel)[:, rng.permutation(m)], 0.0)
            return total
        case Columns():
            W = np.zeros((d, m))
            W[list(kernel.columns)] = drawn(kernel.kernel, len(kernel.columns))
            return W
        case Mahalanobis():
            return kernel.root @ drawn(kernel.kernel)
    raise UnsupportedKernel(f"Fourier: {kernel!r} has no spectral measure. Use Nystrom(...).")
