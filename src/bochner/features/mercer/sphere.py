"""Spherical harmonics of latitude and longitude: features of isotropic kernels on the globe.

k(x, y) = Σ_l a_l Σ_m Y_lm(x) Y_lm(y) (:mod:`bochner.kernels.sphere`), cut at a degree L: what is
left out is Σ_{l > L} (2l + 1) a_l of k(x, x), the same everywhere. Fits that sum waves never make
these features (:mod:`bochner.solvers.harmonics`).
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from bochner._core.arrays import dense, moved, precision
from bochner._core.checks import integer, require_room
from bochner._core.globe import require_places, unit_vectors
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, in_double, in_precision
from bochner.features.mercer.recurrence import harmonic_blocks
from bochner.features.method import Method, Request
from bochner.kernels.kernel import Kernel
from bochner.kernels.sphere import degree_variances, of_degrees
from bochner.solvers.harmonics import HarmonicGram
from bochner.sums.fourier import GlobePlaces, Places

#: The largest degree: beyond, waves of the highest orders underflow near the poles.
MOST_DEGREE = 1000


@dataclass(frozen=True)
class SphericalHarmonics(Method):
    """All spherical harmonics up to a degree, of kernels of latitude and longitude in degrees.

    Parameters
    ----------
    degree : int, default 100
        L, from 1 to 1,000: (L + 1)² harmonics, which resolve 180/L degrees.

    See Also
    --------
    FourierGrid : The same for rows in one to three columns.

    Notes
    -----
    Serves isotropic :class:`~bochner.kernels.OnSphere`, sums, products and multiples of such.

    :class:`KernelRidge` and :class:`GaussianProcessRegressor` do not make these features: they sum
    rows once, as waves of colatitude and longitude, by non-uniform FFT (finufft, ``pip
    install "bochner[grid]"``). A step of conjugate gradients takes two FFTs and O(L³) operations,
    memory 250 L² + 2 L³ bytes; ``n_features`` is not used. All other learners use the degrees that
    ``n_features`` holds whole.

    Sources: Schoenberg (1942), the expansion; Merilees (1973) and Townsend, Wilber and Wright
    (2016), the sphere doubled to a torus; Reinecke, Belkner and Carron (2023), section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian, OnSphere
    >>> X = np.array([[52.5, 13.4], [48.9, 2.4], [-33.9, 151.2]])
    >>> method = bo.SphericalHarmonics(degree=20)
    >>> phi = bo.draw(OnSphere(Gaussian()), method, n_features=441, X=X, random_state=0)
    >>> phi(X).shape
    (3, 441)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.01
    True
    """

    degree: Annotated[int, integer] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.degree <= MOST_DEGREE:
            raise InvalidInput(
                f"SphericalHarmonics: degree must be from 1 to {MOST_DEGREE:,}; got {self.degree}."
            )

    accuracy = 1e-5  # Relative error of transforms and solutions
    numbers_each = 0


@dataclass(frozen=True, eq=False)
class SphericalMap(FeatureMap):
    """φ(x) = (√a_l Y_lm(x)), degree after degree."""

    kernel: Kernel
    weights: Float[Array, " l"]  # a_0, ..., a_L
    error: float  # Share of k(x, x) of higher degrees

    def __post_init__(self) -> None:
        if len(self.weights) == 0 or not np.all(self.weights >= 0):
            raise InvalidInput("SphericalMap: weights must be those of degrees, zero or above.")

    n_inputs = 2
    below_kernel = True  # all that is left out is positive

    @property
    def degree(self) -> int:
        """Largest degree, L."""
        return len(self.weights) - 1

    @property
    def n_features(self) -> int:
        return len(self.weights) ** 2

    def features(self, X: Float[Array, "n 2"]) -> Float[Array, "n D"]:
        dtype = precision(X)
        X = in_double(dense(X))[1]
        require_places("SphericalHarmonics", X)
        degrees = np.arange(len(self.weights))
        radial = 0.0 * X[:, :1] + moved(np.sqrt(self.weights), like=X)[None, :]
        blocks = harmonic_blocks(unit_vectors(X), 3, degrees, 2 * degrees + 1, radial)
        return in_precision(blocks, dtype)

    # --- waves -----------------------------------------------------------------------------------

    places: ClassVar[Places] = GlobePlaces()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.degree, self.degree

    @property
    def variances(self) -> Array:
        return self.weights

    def variances_of(self, kernel: Kernel) -> Array:
        return degree_variances(kernel, self.degree)

    gram = HarmonicGram

    def as_coefficients(self, numbers: Array) -> Array:
        return np.repeat(numbers, 2 * np.arange(len(numbers)) + 1)

    def matrix(self, X: Float[Array, "m 2"], error: float) -> Float[Array, "m m"]:
        return of_degrees(self.weights, X)


def spherical_map(kernel: Kernel, degree: int) -> SphericalMap:
    """Return the map of all degrees up to this one."""
    require_room(
        250 * degree**2 + 2 * degree**3,
        f"SphericalHarmonics: degree={degree} takes",
        "Ask for a smaller degree.",
    )
    weights = degree_variances(kernel, degree)
    variance = float(kernel.diag(np.zeros((1, 2)))[0])
    kept = float((2 * np.arange(degree + 1) + 1) @ weights)
    return SphericalMap(kernel, weights, max(1 - kept / variance, 0.0))


def draw_spherical(method: SphericalHarmonics, kernel: Kernel, ask: Request) -> SphericalMap:
    """Draw the degrees from zero up whose harmonics all fit into the width."""
    if ask.n_inputs != 2:
        require_places("SphericalHarmonics", np.zeros((1, ask.n_inputs)))
    return spherical_map(kernel, min(method.degree, math.isqrt(ask.n_features) - 1))
