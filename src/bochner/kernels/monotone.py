"""Kernels of columns that are transformed one by one, each by an increasing function."""

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from bochner._core.arrays import array_namespace, device, is_sparse
from bochner._core.checks import integers
from bochner._core.shapes import Array, Float, Rows
from bochner.errors import InvalidInput
from bochner.kernels.algebra import Transformed, require_columns
from bochner.kernels.kernel import Part

Curves = tuple[tuple[float, ...], ...]


@final
@dataclass(frozen=True)
class Monotone(Transformed):
    """A kernel of transformed columns: k(x, y) = kernel(f(x), f(y)), f one function a column.

    Each function is linear between points and flat beyond the first and the last, so that what is
    far outside counts as the outermost point: logarithms, quantiles and clipping of outliers alike.

    Parameters
    ----------
    kernel : Kernel
        Its lengthscales are in units of what columns become.
    columns : tuple of int
        Numbers from 0, each once; all other columns stay as they are.
    points : tuple of tuples of float
        For each of the columns two or more numbers, rising.
    values : tuple of tuples of float
        What these become, as many, rising or equal.

    Examples
    --------
    >>> from bochner.kernels import Gaussian, Monotone
    >>> kernel = Monotone(Gaussian(), (0,), ((1.0, 10.0, 100.0),), ((0.0, 1.0, 2.0),))
    >>> kernel.inputs([[5.5, 7.0], [1e6, 7.0]]).tolist()
    [[0.5, 7.0], [2.0, 7.0]]
    """

    kernel: Part
    columns: Annotated[tuple[int, ...], integers]
    points: Curves
    values: Curves

    def __str__(self) -> str:
        """Return the kernel in words, without the points of its curves; ``repr`` has them."""
        return f"{self.kernel}; columns {', '.join(map(str, self.columns))} transformed"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("points", "values"):
            curves = tuple(tuple(map(float, curve)) for curve in getattr(self, name))
            object.__setattr__(self, name, curves)
        fits = len(self.points) == len(self.values) == len(self.columns)
        for p, v in zip(self.points, self.values, strict=fits):
            fits = fits and len(p) == len(v) >= 2 and bool(np.isfinite((*p, *v)).all())
            fits = fits and bool((np.diff(p) > 0).all() and (np.diff(v) >= 0).all())
        if not fits:
            raise InvalidInput(
                "Monotone: points and values must be two or more finite numbers for each column, "
                f"points rising and values rising or equal; got {[len(p) for p in self.points]} "
                f"points and {[len(v) for v in self.values]} values. Sort and pair them."
            )

    def inputs(self, X: Rows) -> Rows:
        """Return the transformed rows, in their own format."""
        X = X if hasattr(X, "shape") else np.asarray(X, np.float64)
        require_columns("Monotone", self.columns, X)
        if is_sparse(X):
            return X.__class__(self.inputs(X.toarray()))
        columns = [X[:, j] for j in range(X.shape[1])]
        for j, *curve in zip(self.columns, self.points, self.values, strict=True):
            columns[j] = _through(X[:, j] + 0.0, *curve)[0]
        return array_namespace(X).stack(columns, axis=1)

    def back(self, X: Rows, G: Rows) -> Rows:
        columns = [G[:, j] for j in range(X.shape[1])]
        for j, *curve in zip(self.columns, self.points, self.values, strict=True):
            columns[j] = G[:, j] * _through(X[:, j] + 0.0, *curve)[1]
        return array_namespace(X).stack(columns, axis=1)


def _through(
    x: Float[Array, " n"], points: tuple[float, ...], values: tuple[float, ...]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return what numbers become, by linear interpolation, and the slopes: zero beyond the ends."""
    xp = array_namespace(x)
    p = xp.asarray(points, dtype=x.dtype, device=device(x))
    v = xp.asarray(values, dtype=x.dtype, device=device(x))
    at = xp.clip(xp.searchsorted(p, x), 1, len(points) - 1)
    low, high = xp.take(p, at - 1), xp.take(p, at)
    step = xp.where(high > low, high - low, xp.ones_like(high))  # equal once rounded to float32
    first = xp.take(v, at - 1)
    share, rise = (x - low) / step, xp.take(v, at) - first
    slope = xp.where((share >= 0.0) & (share <= 1.0), rise / step, xp.zeros_like(step))
    return first + xp.clip(share, 0.0, 1.0) * rise, slope
