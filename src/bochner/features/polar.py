"""Rows as radii and directions, for kernels that are invariant under rotation."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import (
    array_namespace,
    dense,
    is_numpy,
    moved,
    to_numpy,
)
from bochner._core.blas import product
from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.kernels import Kernel
from bochner.kernels.radial import isotropic, radial_kernels

ONE_RADIUS = 1e-6
"""Spread of radii, relative, up to which rows count as lying on one sphere."""

FLAT = 1e-2
"""Spread of radii, as a share of the rows' own spread, up to which that sphere is one about zero.

Rows of spread one that are 10⁷ away have equal radii too, whatever they are."""

LARGEST_ROTATION = 2048
"""Columns beyond which principal axes are not looked for."""


@dataclass(frozen=True, eq=False)
class Polar:
    """Rows x as radius r = |(x − c)/ℓ| and leading coordinates of the direction u = (x − c)/(ℓ r).

    Attributes
    ----------
    centre, scales : (d,)
        c and ℓ.
    axes : (d, a) or None
        Orthonormal columns: the coordinates are u·axes; with None, u itself.
    """

    centre: Float[np.ndarray, " d"]
    scales: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "d a"] | None

    def leading(self, count: int) -> "Polar":
        """Return the same with the first coordinates of the direction only."""
        d = len(self.scales)
        if count == d:
            return self
        axes = np.eye(d, count) if self.axes is None else self.axes
        return replace(self, axes=np.ascontiguousarray(axes[:, :count]))

    def __call__(self, X: Float[Array, "n d"]) -> tuple[Float[Array, "n a"], Float[Array, " n"]]:
        """Return coordinates, (n, a), and radii, (n,); rows at the centre have direction zero."""
        X = dense(X)
        xp = array_namespace(X)
        A = (X - moved(self.centre, like=X)) / moved(self.scales, like=X)
        largest = xp.max(xp.abs(A), axis=1)  # squares of what is divided by it cannot overflow
        A = A / xp.where(largest > 0, largest, xp.ones_like(largest))[:, None]
        norms = xp.sqrt(xp.sum(A * A, axis=1))
        U = A / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None]
        return _turned(U, self.axes), largest * norms


def _turned(U: Float[Array, "n d"], axes: Float[np.ndarray, "d a"] | None) -> Float[Array, "n a"]:
    if axes is None:
        return np.ascontiguousarray(U) if is_numpy(U) else U
    axes = moved(axes, like=U)
    return product(U, axes) if is_numpy(U) else U @ axes


def polar_of(
    scales: Float[np.ndarray, " d"], X: Array | None, centred: bool, rotated: bool = True
) -> Polar:
    """Return the change to radii and directions for rows X, with principal axes in front.

    The centre is the mean where the kernel allows it and the rows do not lie on a sphere.
    """
    d = len(scales)
    if X is None:
        return Polar(np.zeros(d), scales, None)
    sample = _sample(X)
    centre = np.zeros(d)
    if centred and not _on_sphere(sample / scales):
        centre = sample.mean(axis=0)
    axes = _principal_axes((sample - centre) / scales) if rotated else None
    return Polar(centre, scales, axes)


def _on_sphere(A: Float[np.ndarray, "n d"]) -> bool:
    """Whether rows lie on a sphere about zero; rows far away, close together, only seem to."""
    r = np.linalg.norm(A, axis=1)
    spread = np.linalg.norm(A - A.mean(axis=0)) / len(A) ** 0.5
    return one_radius(r) and bool(r.max() - r.min() <= FLAT * spread)


def _sample(X: Array, rows: int = 16384) -> Float[np.ndarray, "n d"]:
    """Return evenly spaced rows of X, dense."""
    return to_numpy(X[:: -(-X.shape[0] // rows)]).astype(np.float64)


def _principal_axes(A: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"] | None:
    d = A.shape[1]
    if d == 1 or d > LARGEST_ROTATION:
        return None
    A = A / (np.abs(A).max() or 1.0)
    return np.ascontiguousarray(np.linalg.eigh(A.T @ A)[1][:, ::-1])


def one_radius(r: Float[np.ndarray, " n"]) -> bool:
    """Whether all radii are equal, to rounding of float32 rows."""
    return bool(r.max() - r.min() <= ONE_RADIUS * r.max())


def in_balls(who: str, kernel: Kernel, d: int) -> tuple[Kernel, Float[np.ndarray, " d"]]:
    """Return a rotation-invariant kernel and scales ℓ: k(x, y) is that of x/ℓ and y/ℓ.

    Lengthscales go into ℓ where they can: squares of huge and tiny ones are no numbers.
    """
    try:
        unit, scales = isotropic(kernel, d)
    except UnsupportedKernel:
        unit, scales = kernel, np.ones(d)
    try:
        radial_kernels(unit, d)
    except UnsupportedKernel as error:
        raise UnsupportedKernel(
            f"{who} requires a rotation-invariant kernel: of the Euclidean distance (with one "
            "lengthscale, or one per column), of the inner product, of the angle, or sums and "
            f"multiples of such; got {kernel!r}. Nystrom(...) serves every kernel."
        ) from error
    return unit, scales


def on_axis(q: Float[np.ndarray, " M"], d: int) -> Float[np.ndarray, "M d"]:
    """Return rows of the radii q."""
    X = np.zeros((len(q), d))
    X[:, 0] = q
    return X
