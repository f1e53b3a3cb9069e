"""Equispaced Fourier features: waves on a grid of frequencies, in one to three columns.

Greengard, Rachh and Barnett (2022) take k(x − y) = ∫ p(ω) cos ω·(x − y) dω by the trapezoidal rule
with frequencies h∘j, |j_a| ≤ m_a, which :mod:`bochner.features.fourier.frequencies` finds.

Rows outside the box by more than a margin r count as r away, where the kernel with all rows of the
box is below a hundredth: there a fit is its prior mean. In a sum with periodic terms, such rows
are moved by whole periods to just beyond the margin, where periodic terms have the same value.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core.arrays import dense, moved, precision
from bochner._core.checks import check_fields, optional, share
from bochner._core.nufft import waves_at
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, in_double, in_precision
from bochner.features.mercer.sphere import SphericalHarmonics, SphericalMap
from bochner.features.method import Method
from bochner.kernels.equispaced import equispaced_weights, tapered_weights
from bochner.kernels.green import checked_box
from bochner.kernels.kernel import Kernel
from bochner.kernels.periods import is_cyclic, turns
from bochner.solvers.toeplitz import ToeplitzGram
from bochner.sums.fourier import BoxPlaces, within

FINEST = 1e-12  # The finest tolerance: below, rounding of float64 sums is as large
PAIRS = 1 << 20  # Pairs of rows whose kernel is summed up together


@dataclass(frozen=True)
class FourierGrid(Method):
    """Waves of equispaced frequencies, within a tolerance of the kernel for all pairs of rows.

    Parameters
    ----------
    tolerance : float, default 1e-4
        Largest error of φ(x)·φ(y), as a share of k(x, x), in the box: from 1e-12 to below 1.
    box : d pairs (lower, upper), optional
        The box. Default: the smallest box of the rows.

    See Also
    --------
    LaplacianEigenfunctions : Sines on a box, for the same columns.
    SphericalHarmonics : Sums over the sphere.

    Notes
    -----
    Serves stationary kernels with a spectral density in one to three columns, ``Periodic`` ones,
    sums, multiples and products of them. Periods of a column must divide one of up to 4,096 times
    the longest.

    :class:`KernelRidge` and :class:`GaussianProcessRegressor` do not make these features: they sum
    waves over the rows by non-uniform FFT, and solve by conjugate gradients with FFT. Time O(n
    log^d(1/tolerance)) for n rows and O(D log D) per step, memory O(2^d D). The tolerance
    determines D, up to many millions, and ``n_features`` is not used. This needs
    finufft (``pip install "bochner[grid]"``). All other learners use at most ``n_features`` waves,
    at the best tolerance that these allow.

    Sources: Greengard, Rachh and Barnett (2022), *Equispaced Fourier representations for efficient
    Gaussian process regression from a billion data points*; Barnett, Greengard and Rachh (2023),
    *Uniform approximation of common Gaussian process kernels using equispaced Fourier grids*.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 1))
    >>> method = bo.FourierGrid(tolerance=1e-4)
    >>> phi = bo.draw(Gaussian(), method, n_features=64, X=X, random_state=0)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 1e-4
    True
    """

    tolerance: float = 1e-4
    box: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self, tolerance=share, box=optional(checked_box))
        if self.tolerance < FINEST:
            raise InvalidInput(
                f"FourierGrid: tolerance must be {FINEST:g} or above, which is what float64 "
                f"resolves; got {self.tolerance:g}."
            )

    @property
    def accuracy(self) -> float:
        """Relative error of transforms and solutions."""
        return self.tolerance

    numbers_each = 0


@dataclass(frozen=True, eq=False)
class EquispacedMap(FeatureMap):
    """φ(x) = (√v_0, (√(2 v_j) cos j·θ)_j, (√(2 v_j) sin j·θ)_j), θ = h∘(x − centre)."""

    kernel: Kernel
    centre: Float[Array, " d"]  # Of the box
    spacing: Float[Array, " d"]  # h
    half: Float[Array, " d"]  # Half of the box's size
    extent: Int[Array, " d"]  # m: one j of each pair j, −j, |j| ≤ m, has features, the later one
    weights: Float[Array, " F"]  # v_j of those, from j = 0 on
    error: float  # Bound of |φ(x)·φ(y) − k(x, y)| in the box, as a share of k(x, x)
    tapered: bool = False  # Whether the kernel is tapered beyond the box; else it has images

    def __post_init__(self) -> None:
        waves = math.prod(2 * m + 1 for m in self.shape) if min(self.shape, default=-1) >= 0 else 0
        if waves != self.n_features:
            raise InvalidInput(
                f"EquispacedMap: weights of {waves:,} waves are required, one for a pair j, −j; "
                f"got {len(self.weights):,}."
            )

    unbiased = False  # Nothing random

    @property
    def n_features(self) -> int:
        return 2 * len(self.weights) - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Largest j along each axis."""
        return tuple(int(m) for m in self.extent)

    @property
    def variances(self) -> Array:
        """Weights of all waves."""
        flat = np.concatenate([self.weights[:0:-1], self.weights])
        return flat.reshape([2 * m + 1 for m in self.shape])

    @cached_property
    def places(self) -> BoxPlaces:
        """Map from rows to angles."""
        d = self.n_inputs
        cyclic = np.array([is_cyclic(self.kernel, a, d) for a in range(d)])
        half = np.where(cyclic, math.inf, self.half)
        return BoxPlaces(self.centre, self.spacing, half, turns(self.kernel, self.spacing))

    def variances_of(self, kernel: Kernel) -> Array:
        """Return the weights of another kernel on the same waves."""
        if self.tapered:
            return np.maximum(tapered_weights(kernel, self.spacing, self.shape, 2 * self.half), 0.0)
        return equispaced_weights(kernel, self.spacing, self.shape)

    def gram(self, waves: Array, variances: Array, centred: bool) -> ToeplitzGram:
        """Return ZᵀZ from sums of waves over rows."""
        return ToeplitzGram(waves, variances, centred)

    def as_coefficients(self, numbers: Array) -> Array:
        """Return numbers in the order of the weights as coefficients of waves."""
        upper = numbers.ravel()[numbers.size // 2 :]
        return np.concatenate([upper, upper[1:]])

    def matrix(self, X: Float[Array, "m d"], error: float) -> Float[Array, "m m"]:
        """Return Σ_j v_j cos j·(θ(x) − θ(y)) of all pairs of rows."""
        angles = self.places.angles(X)
        waves = self.variances[None].astype(np.complex128)
        m = len(angles)
        i, j = np.tril_indices(m)
        K = np.empty((m, m))
        for start in range(0, len(i), PAIRS):
            part = slice(start, start + PAIRS)
            values = waves_at(angles[i[part]] - angles[j[part]], waves, error)[0].real
            K[i[part], j[part]] = values
            K[j[part], i[part]] = values
        return K

    @cached_property
    def _waves(self) -> Array:
        """Whole numbers j of the features, (F, d)."""
        axes = [np.arange(-m, m + 1, dtype=np.float64) for m in self.shape]
        lattice = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        return lattice[len(lattice) // 2 :]

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        dtype = precision(X)
        xp, X = in_double(dense(X))
        theta = (X - moved(self.centre, like=X)) * moved(self.spacing, like=X)
        theta = within(theta, self.places.turns)
        waves = moved(np.ascontiguousarray(self._waves), like=X)
        axes = range(self.n_inputs)
        phases = sum(theta[:, a][:, None] * waves[:, a][None, :] for a in axes)
        roots = np.sqrt(2 * self.weights)
        roots[0] = math.sqrt(self.weights[0])
        along = moved(roots, like=X)
        Z = xp.concat([xp.cos(phases) * along, xp.sin(phases[:, 1:]) * along[1:]], axis=1)
        return in_precision(Z, dtype)


#: Methods whose features no fit that sums waves makes, any number of them; and their maps.
WaveMethod = FourierGrid | SphericalHarmonics
WaveMap = EquispacedMap | SphericalMap
