"""Random Fourier features of stationary kernels.

By Bochner's theorem k(x − y) = k(0) E cos(ω·(x − y)) with ω from the kernel's spectral measure.
m frequencies ω_j give

    pair:    z(x) = √(k(0)/m) [cos ω_j·x, sin ω_j·x]_j,             D = 2m,
    phase:   z(x) = √(2 k(0)/m) [cos(ω_j·x + b_j)]_j, b ~ U[0, 2π],   D = m,
    complex: z(x) = √(k(0)/m) [exp(i ω_j·x)]_j,                     D = m.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from bochner._core import native
from bochner._core.arrays import array_namespace, is_numpy, moved
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.far import reach_of, with_far_rows
from bochner.features.map import FeatureMap, parts_of
from bochner.features.method import Method
from bochner.features.placements import Grid, Orthogonal, Placement
from bochner.kernels import Kernel

FORMS = ("pair", "phase", "complex")


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
        wherever k(2δ) < 2k(δ)²: always for Gaussian, Laplace and Matérn kernels.
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
        """Check the arguments."""
        if not isinstance(self.placement, Placement):
            raise InvalidInput(
                "Fourier: placement must be IID(), Orthogonal(), Structured(), Fastfood(), QMC() "
                f"or Grid(); got {self.placement!r}."
            )
        if self.form not in FORMS:
            raise InvalidInput(
                f'Fourier: form must be "pair", "phase" or "complex"; got {self.form!r}.'
            )
        if isinstance(self.placement, Grid) and self.form != "pair":
            raise InvalidInput(
                f'Fourier(Grid()) requires form="pair", which its weights are for; got '
                f"{self.form!r}."
            )

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        """Return how many numbers a map takes at least."""
        return n_features * (1 + (n_columns if self.placement.formed else 2))


@dataclass(frozen=True, eq=False)
class FourierMap(FeatureMap):
    """Cosine and sine of each frequency: φ(x) = √(k(0)/m) [cos Wᵀx, sin Wᵀx].

    Attributes
    ----------
    frequencies : (d, m) float64
        W.
    amplitude : float
        k(0).

    Notes
    -----
    Columns 0..m−1 are the cosines, m..2m−1 the sines. In float32 the error of a feature is below
    2e-6 √(2/D) (1 + ‖x‖) for lengthscales near one; the angle is reduced exactly, in turns, so
    the only loss is the rounding of W and of the product. Rows so far from the origin that this
    would be seen, sparse ones too, have their angles in float64.
    """

    kernel: Kernel
    frequencies: Float[Array, "d m"]
    amplitude: float

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.frequencies.shape[0]

    @property
    def n_features(self) -> int:
        """D = 2m."""
        return 2 * self.frequencies.shape[1]

    @property
    def below_kernel(self) -> bool:
        """Unbiased, so errors have both signs."""
        return False

    @property
    def multiplications(self) -> float:
        """Of the angles of a row: d m."""
        return float(self.frequencies.size)

    @cached_property
    def reach(self) -> float:
        """Radians that a middling frequency turns along a step of length one."""
        return reach_of(self.frequencies)

    @cached_property
    def _turns(self) -> tuple[Float[Array, "d m"], Float[Array, "d m"]]:
        return _in_turns(self.frequencies)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return cosines and sines, (n, 2m)."""
        return with_far_rows(X, self.reach, self._waves)

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        scale = (self.amplitude / self.frequencies.shape[1]) ** 0.5
        if is_numpy(X):
            X = np.ascontiguousarray(X)
            return native.cos_sin(X, self._turns[X.dtype == np.float64], scale)
        xp = array_namespace(X)
        angles = X @ moved(self.frequencies, like=X)
        return scale * xp.concat([xp.cos(angles), xp.sin(angles)], axis=1)


@dataclass(frozen=True, eq=False)
class FourierPhaseMap(FeatureMap):
    """Cosine with a random phase: φ(x) = √(2k(0)/m) cos(Wᵀx + b).

    Attributes
    ----------
    frequencies : (d, m) float64
        W.
    phases : (m,) float64
        b, in radians.
    amplitude : float
        k(0).
    """

    kernel: Kernel
    frequencies: Float[Array, "d m"]
    phases: Float[Array, " m"]
    amplitude: float

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.frequencies.shape[0]

    @property
    def n_features(self) -> int:
        """D = m."""
        return self.frequencies.shape[1]

    @property
    def below_kernel(self) -> bool:
        """Unbiased, so errors have both signs."""
        return False

    @property
    def multiplications(self) -> float:
        """Of the angles of a row: d m."""
        return float(self.frequencies.size)

    @cached_property
    def reach(self) -> float:
        """Radians that a middling frequency turns along a step of length one."""
        return reach_of(self.frequencies)

    @cached_property
    def _turns(self) -> tuple[Float[Array, "d m"], Float[Array, "d m"]]:
        return _in_turns(self.frequencies)

    @cached_property
    def _phase_turns(self) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        return _in_turns(self.phases)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return shifted cosines, (n, m)."""
        return with_far_rows(X, self.reach, self._waves)

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        scale = (2 * self.amplitude / len(self.phases)) ** 0.5
        if is_numpy(X):
            double = X.dtype == np.float64
            X = np.ascontiguousarray(X)
            return native.cos_bias(X, self._turns[double], self._phase_turns[double], scale)
        angles = X @ moved(self.frequencies, like=X)
        xp = array_namespace(angles)
        return scale * xp.cos(angles + moved(self.phases, like=angles))


@dataclass(frozen=True, eq=False)
class FourierGridMap(FeatureMap):
    """Weighted cosine and sine of each node: φ(x) = √k(0) [√w cos Wᵀx, √w sin Wᵀx].

    Attributes
    ----------
    frequencies : (d, m) float64
        W.
    weights : (m,) float64
        w ≥ 0, of sum one.
    amplitude : float
        k(0).
    """

    kernel: Kernel
    frequencies: Float[Array, "d m"]
    weights: Float[Array, " m"]
    amplitude: float

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.frequencies.shape[0]

    @property
    def n_features(self) -> int:
        """D = 2m."""
        return 2 * self.frequencies.shape[1]

    @property
    def below_kernel(self) -> bool:
        """Quadrature errors have both signs."""
        return False

    @property
    def reach(self) -> float:
        """Radians that a middling frequency turns along a step of length one."""
        return self._even.reach

    @property
    def unbiased(self) -> bool:
        """Nodes are no draws."""
        return False

    @cached_property
    def _even(self) -> FourierMap:
        return FourierMap(self.kernel, self.frequencies, self.amplitude * len(self.weights))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return weighted cosines and sines, (n, 2m)."""
        Z = self._even.features(X)
        return Z * moved(np.sqrt(np.concatenate([self.weights, self.weights])), like=Z)


@dataclass(frozen=True, eq=False)
class FourierComplexMap(FeatureMap):
    """Complex exponentials: φ(x) = √(k(0)/m) exp(i Wᵀx), with φ(X) φ(Y)ᴴ ≈ K.

    Attributes
    ----------
    pairs : FeatureMap
        The cosines, then the sines, that become real and imaginary parts.
    """

    kernel: Kernel
    pairs: FeatureMap

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.pairs.n_inputs

    @property
    def n_features(self) -> int:
        """D = m."""
        return self.pairs.n_features // 2

    @property
    def below_kernel(self) -> bool:
        """Unbiased, so errors have both signs."""
        return False

    @property
    def reach(self) -> float:
        """Radians that a middling frequency turns along a step of length one."""
        return self.pairs.reach

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return exponentials, (n, m): complex64 for float32 rows, complex128 for float64."""
        Z, m = self.pairs.features(X), self.n_features
        xp = array_namespace(Z)
        dtype = xp.complex64 if Z.dtype == xp.float32 else xp.complex128
        return xp.astype(Z[:, :m], dtype) + 1j * xp.astype(Z[:, m:], dtype)


def require_real(phi: object, who: str) -> None:
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
