"""Projection in front: a kernel of few combinations of the columns in place of one of all."""

from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Literal

import numpy as np

from bochner._core.arrays import moved
from bochner._core.checks import integer, one_of
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.axes import (
    axes_of_rows,
    required_rows,
    some_rows,
)
from bochner.features.far import with_far_rows
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.request import Request
from bochner.features.rules import draw_map
from bochner.features.structure import is_stationary
from bochner.kernels import (
    Columns,
    CoordinateWise,
    Kernel,
    Power,
    Product,
    Scaled,
    Stationary,
    Sum,
)

#: Rows on whose pairs the distortion is measured.
MEASURED_ON = 512


@dataclass(frozen=True)
class Projected(Method):
    """Features by ``method`` of a few combinations of the columns: k(x, y) ≈ k(Px, Py).

    Parameters
    ----------
    method : Method
        What makes the features, of d′ columns.
    n_components : int
        d′; at most d combinations are taken.
    how : {"pca", "jl"}, default "pca"
        "pca": the principal axes of the rows (of their second moments, where the kernel is not one
        of differences). "jl": independent normal numbers of variance 1/d′, which keep all
        distances to a factor 1 ± √(8 log(n)/d′) whatever the rows [Johnson and Lindenstrauss
        (1984)].

    Notes
    -----
    Serves kernels of the Euclidean distance or of the inner product that ``method`` serves in d′
    columns. Two errors add up: that of the features, and the **distortion**, the mean of
    |k(x, y) − k(Px, Py)| over pairs of 512 of the rows. The map keeps it as ``distortion`` (not a
    number where there were no rows); certificates measure against k, and so include it.

    Choose it for methods whose blocks grow with d (``MercerHarmonic``, ``Gegenbauer``, ``QMC``)
    where few columns, or few combinations of them, matter. Cost of φ(X): O(n d d′) and that of
    ``method``; sparse rows stay sparse until they are projected.
    """

    method: Method
    n_components: int
    how: Literal["pca", "jl"] = "pca"

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not isinstance(self.method, Method):
            raise InvalidInput(
                "Projected: method must be a value such as Fourier() or MercerHarmonic(); got "
                f"{self.method!r}."
            )
        least = integer(self.n_components, "Projected", "n_components", least=1)
        object.__setattr__(self, "n_components", least)
        one_of(self.how, "Projected", "how", ("pca", "jl"))


@dataclass(frozen=True, eq=False)
class ProjectedMap(FeatureMap):
    """φ(x) = φ′(Px).

    Attributes
    ----------
    inner : FeatureMap
        φ′, of d′ columns.
    projection : (d, d′) float64
        P, as it multiplies rows from the right; lengthscales of single columns are in it.
    distortion : float
        Mean of |k(x, y) − k(Px, Py)| over pairs of rows.
    """

    kernel: Kernel
    inner: FeatureMap
    projection: Float[Array, "d d'"]
    distortion: float

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.projection.shape[0]

    @property
    def n_features(self) -> int:
        """D of the map behind the projection."""
        return self.inner.n_features

    @cached_property
    def reach(self) -> float:
        """That of the map behind the projection, along the direction that is stretched most."""
        return self.inner.reach * float(np.linalg.norm(self.projection, 2))

    @property
    def below_kernel(self) -> bool:
        """The kernel of projected rows is another: only where nothing is lost, and not then."""
        return False

    @property
    def unbiased(self) -> bool:
        """The kernel of projected rows is another."""
        return False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return φ′(X P), (n, D)."""
        projected = lambda X: self.inner.features(X @ moved(self.projection, like=X))
        return with_far_rows(X, self.reach, projected)


# --- The kernel of projected rows ---------------------------------------------------------------


@singledispatch
def rotatable(kernel: Kernel) -> bool:
    """Whether the kernel is one of distances or inner products, as far as its structure tells."""
    lengthscale = getattr(kernel, "lengthscale", None)
    return not isinstance(lengthscale, tuple)


@rotatable.register
def _(kernel: CoordinateWise | Columns) -> bool:  # noqa: ARG001
    return False


@rotatable.register
def _(kernel: Scaled | Power) -> bool:
    return rotatable(kernel.kernel)


@rotatable.register
def _(kernel: Sum | Product) -> bool:
    return rotatable(kernel.left) and rotatable(kernel.right)


def in_unit_lengthscales(kernel: Kernel, d: int) -> tuple[Kernel, Float[Array, " d"]]:
    """Return the kernel without lengthscales of single columns, and what to multiply these by."""
    if isinstance(kernel, Scaled):
        inner, scales = in_unit_lengthscales(kernel.kernel, d)
        return Scaled(kernel.scale, inner), scales
    lengthscale = getattr(kernel, "lengthscale", None)
    if isinstance(kernel, Stationary) and isinstance(lengthscale, tuple):
        kernel.spectral_measure(d)  # or say that their number is not d
        return kernel.replace(lengthscale=1.0), 1.0 / np.array(lengthscale)
    return kernel, np.ones(d)


# --- Drawing -------------------------------------------------------------------------------------


@draw_map.register
def _(method: Projected, kernel: Kernel, ask: Request) -> FeatureMap:
    plain, scales = in_unit_lengthscales(kernel, ask.n_inputs)
    if not rotatable(plain):
        raise UnsupportedKernel(
            "Projected requires a kernel of the Euclidean distance or of the inner product, such "
            "as Gaussian, Matern or Polynomial, with lengthscales for single columns at its top "
            f"only; got {kernel!r}. Nystrom(...) serves every kernel, of any number of columns."
        )
    P = _projection(method, plain, scales, ask)
    X = None if ask.X is None else ask.X @ moved(P, like=ask.X)
    inner = draw_map(method.method, plain, replace(ask, n_inputs=P.shape[1], X=X))
    return ProjectedMap(kernel, inner, P, _distortion(kernel, plain, P, ask))


def _projection(
    method: Projected, kernel: Kernel, scales: Float[Array, " d"], ask: Request
) -> Float[Array, "d d'"]:
    size = min(method.n_components, ask.n_inputs)
    if method.how == "jl":
        P = ask.stream("projection").standard_normal((ask.n_inputs, size)) / size**0.5
        return scales[:, None] * P
    X = required_rows(ask, 'Projected(how="pca")', "principal axes")
    axes = axes_of_rows(X, scales, is_stationary(kernel), size)
    return np.ascontiguousarray(scales[:, None] * axes)


def _distortion(kernel: Kernel, plain: Kernel, P: Float[Array, "d d'"], ask: Request) -> float:
    """Return the mean of |k(x, y) − k(Px, Py)| over pairs of different rows of a sample."""
    if ask.X is None or ask.X.shape[0] < 2:
        return float("nan")
    rows = some_rows(ask.X, MEASURED_ON, ask.stream("distortion"))
    lost = np.abs(kernel(rows) - plain(rows @ P))
    return float((lost.sum() - np.trace(lost)) / (len(rows) * (len(rows) - 1)))
