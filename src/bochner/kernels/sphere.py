"""Kernels of latitude and longitude in degrees, and their degree variances.

An isotropic kernel on the sphere is k(x, y) = Σ_l (2l + 1) a_l P_l(cos θ), θ the great-circle angle
and P_l the Legendre polynomials, with a_l ≥ 0 (Schoenberg 1942). By the addition theorem it is
Σ_l a_l Σ_m Y_lm(x) Y_lm(y), of spherical harmonics that are orthonormal for the uniform law.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from bochner._core.arrays import array_namespace
from bochner._core.checks import positive
from bochner._core.globe import require_places, unit_vectors
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, NotPositive, UnsupportedKernel
from bochner.kernels.algebra import SAME_ROWS
from bochner.kernels.hyperparameters import Free, free_or
from bochner.kernels.kernel import Columns, Combined, Constant, Kernel, Transformed
from bochner.kernels.series import angles, gegenbauers
from bochner.kernels.stationary import Exponential, Gaussian, RationalQuadratic
from bochner.kernels.stationary_families import Matern
from bochner.kernels.zonal import Zonal

#: Kernels of three columns by name.
FAMILIES: dict[str, Kernel] = {
    "gaussian": Gaussian(),
    "exponential": Exponential(),
    "matern12": Matern(0.5),
    "matern32": Matern(1.5),
    "matern52": Matern(2.5),
    "rational_quadratic": RationalQuadratic(),
}


def _family(value: Any, caller: str, name: str) -> Kernel:
    """Coerce a kernel, or the name of one of ``FAMILIES``, to a kernel."""
    kernel = FAMILIES.get(value, value) if isinstance(value, str) else value
    if not isinstance(kernel, Kernel):
        raise InvalidInput(
            f"{caller}: {name} must be a Kernel of three columns, such as Matern(1.5), or one of "
            f"{', '.join(map(repr, FAMILIES))}; got {value!r}."
        )
    return kernel


@dataclass(frozen=True)
class OnSphere(Transformed):
    """A kernel of places on the globe, given as (latitude, longitude) in degrees.

    k(x, y) = kernel(u/r, v/r), with the points u, v of the unit sphere and the lengthscale r in
    radians. |u − v| is the chord 2 sin(θ/2), θ the great-circle angle.

    Parameters
    ----------
    kernel : Kernel or str, default "matern32"
        A kernel of three columns, or a family by name: "gaussian", "exponential", "matern12",
        "matern32", "matern52" or "rational_quadratic". For given degree variances pass
        ``Zonal(coefficients, power=0)``, which is Σ_l c_l P_l(cos θ).
    lengthscale : float or "auto", default 10.0
        Positive, in degrees of a great circle (111 km each): the lengthscale of a family by name,
        and the unit of the lengthscale of a given kernel. "auto": a fit chooses the lengthscale of
        the inner kernel, in degrees.

    Raises
    ------
    InvalidInput
        At evaluation, if rows do not have two columns, or a latitude is outside [−90, 90].

    Notes
    -----
    Every family is positive definite as a function of the chord. As a function of the angle, a
    Matérn kernel is so only up to smoothness 1/2 (Gneiting 2013, *Strictly and non-strictly
    positive definite functions on spheres*, table 1).

    Examples
    --------
    >>> from bochner.kernels import OnSphere
    >>> k = OnSphere("matern32", lengthscale=10.0)
    >>> K = k([[0.0, 179.0]], [[0.0, -179.0], [0.0, 177.0], [90.0, 0.0]])
    >>> bool(abs(K[0, 0] - K[0, 1]) < 1e-12 and K[0, 2] < 1e-4)
    True
    """

    kernel: Annotated[Any, _family] = "matern32"  # the check replaces a name by its kernel
    lengthscale: Annotated[float, free_or(positive)] = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.lengthscale, Free):  # a free number of the inner kernel, in degrees
            inner = self.kernel.replace(lengthscale=self.lengthscale)
            object.__setattr__(self, "kernel", inner)
            object.__setattr__(self, "lengthscale", 1.0)

    @property
    def radius(self) -> float:
        """Radius of the sphere on which the inner kernel is evaluated."""
        return 180.0 / (math.pi * self.lengthscale)

    def inputs(self, X: Float[Array, "n 2"]) -> Float[Array, "n 3"]:
        require_places("OnSphere", X)
        return unit_vectors(X) * self.radius

    def backward(self, X: Float[Array, "n 2"], G: Float[Array, "n 3"]) -> Float[Array, "n 2"]:
        xp, turn = array_namespace(X), math.pi / 180
        phi, lam = X[:, 0] * turn, X[:, 1] * turn
        radial = G[:, 0] * xp.cos(lam) + G[:, 1] * xp.sin(lam)
        east = G[:, 1] * xp.cos(lam) - G[:, 0] * xp.sin(lam)
        north = xp.cos(phi) * G[:, 2] - xp.sin(phi) * radial
        return xp.stack([north, xp.cos(phi) * east], axis=1) * (turn * self.radius)


def as_sphere_kernel(kernel: Kernel | str) -> Kernel:
    """Coerce a kernel or the name of a family to a kernel on the sphere."""
    kernel = "gaussian" if isinstance(kernel, str) and kernel == "auto" else kernel
    return OnSphere(kernel) if isinstance(kernel, str) else kernel


def is_on_sphere(kernel: Kernel) -> bool:
    """Whether every leaf of the kernel is `OnSphere` or constant."""
    return all(isinstance(leaf, OnSphere | Constant) for leaf, _ in kernel.leaves())


def degree_variances(kernel: Kernel, degree: int) -> Float[Array, " l"]:
    """Return a_l = ½ ∫ k(θ) P_l(cos θ) sin θ dθ for l ≤ degree; errors are about 1e-15 k(x, x)."""
    if not is_on_sphere(kernel):
        raise UnsupportedKernel(
            "SphericalHarmonics requires an OnSphere kernel, or sums and products of these; "
            f"got {kernel!r}. Pass OnSphere(kernel), of rows (latitude, longitude) in degrees."
        )
    degrees = np.array([1.0, 30.0, 120.0])  # an isotropic k is equal along a meridian and equator
    value = kernel(np.zeros((1, 2)), np.stack([np.zeros_like(degrees), degrees], axis=1))[0]
    if not np.allclose(value, _arc(kernel, degrees), rtol=1e-6, atol=1e-9 * abs(float(value[0]))):
        raise UnsupportedKernel(
            "SphericalHarmonics requires an isotropic kernel, the same in all directions; got "
            f"{kernel!r}. Take one lengthscale for all columns, or Nystrom()."
        )
    theta, weights = angles(3, degree, towards_zero=True)
    values = _arc(kernel, np.rad2deg(theta)) * weights
    variances = np.array([values @ P for P in gegenbauers(degree, 3, np.cos(theta))])
    if variances.min() < -1e-12 * float(np.abs(values).sum()):
        raise NotPositive(
            f"SphericalHarmonics: degree variances must be zero or above; got {variances.min():.3g}"
            f" at degree {int(np.argmin(variances))}: {kernel!r} is not a kernel on the sphere."
        )
    return np.maximum(variances, 0.0)


def _arc(kernel: Kernel, angles: Float[Array, " q"]) -> Float[Array, " q"]:
    """Return k between the north pole and points at these angles from it, in degrees."""
    places = np.stack([90.0 - angles, np.zeros_like(angles)], axis=1)
    return kernel(np.array([[90.0, 0.0]]), places)[0]


def with_lengthscale(kernel: Any, inner: Any) -> OnSphere:
    """Return ``kernel`` with the lengthscale of ``inner``, a kernel of unit vectors."""
    ratio = float(inner.lengthscale) / float(kernel.kernel.lengthscale)
    return OnSphere(kernel.kernel, math.degrees(ratio))


def chordal_kernel(kernel: Kernel) -> Kernel:
    """Return the inner kernel as a kernel of points of the unit sphere."""
    inner = kernel.kernel if isinstance(kernel, OnSphere) else kernel
    length = inner.get_params(deep=False).get("lengthscale")
    if not isinstance(kernel, OnSphere) or not isinstance(length, float | int):
        raise UnsupportedKernel(
            "Lengthscales on the globe require OnSphere of a stationary kernel with one "
            f"lengthscale; got {kernel!r}. Pass lengthscales, and SphericalHarmonics()."
        )
    return inner.replace(lengthscale=float(length) * math.radians(kernel.lengthscale))


#: Column numbers of rows of any width.
ALL = range(1 << 31)


def globe_columns(kernel: Kernel) -> set[tuple[int, ...]]:
    """Return the columns that kernels on the globe use as latitude and longitude."""
    leaves = kernel.leaves((*SAME_ROWS, Columns), ALL)
    return {tuple(columns[:2]) for leaf, columns in leaves if isinstance(leaf, OnSphere)}


def kernel_on_points(kernel: Kernel, globe: tuple[int, ...]) -> Kernel:
    """Return the same kernel on unit vectors (three columns), followed by the other columns."""

    def change(part: Kernel, columns: Sequence[int]) -> Kernel:
        match part:
            case Constant() | Combined():
                return part
            case OnSphere():
                return Columns(chordal_kernel(part), (0, 1, 2))
            case Columns():
                return part.kernel
        if columns is ALL or set(columns) & set(globe):
            raise UnsupportedKernel(
                "With further columns, latitude and longitude must be used by OnSphere only; "
                f"got {part!r}. Name the columns of other kernels, as in Columns(kernel, (2,))."
            )
        return Columns(part, tuple(3 + c - sum(g < c for g in globe) for c in columns))

    return kernel.rebuild(change, (Combined, Columns), ALL)


def of_degrees(variances: Float[Array, " l"], X: Float[Array, "n 2"]) -> Float[Array, "n n"]:
    """Return Σ_l (2l + 1) a_l P_l(cos θ) of all pairs of rows (latitude, longitude)."""
    l = np.arange(len(variances))
    coefficients = tuple(float(c) for c in (2 * l + 1) * variances)
    return Zonal(coefficients, power=0)(unit_vectors(X))
