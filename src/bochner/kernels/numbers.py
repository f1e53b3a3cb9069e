"""Hyperparameters of kernels, and gradients of kernel values in hyperparameters and rows.

Derivatives of a scalar E with ∂E/∂K = C are computed backwards through the parts of a kernel: a sum
passes C to both parts, a product C ∘ right to the left part, a power p C ∘ kernel^(p − 1). A leaf
sums C ∘ ∂k/∂log θ for each number θ, or C ∘ ∂k/∂x for its rows. All derivatives together cost as
much as a few kernel matrices.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np

from bochner._core.arrays import slices
from bochner._core.shapes import Array, Others, Pairs, Rows
from bochner.kernels import distances
from bochner.kernels.kernel import Combined, Free, Kernel, Product, Scaled, Sum, Transformed, Values
from bochner.kernels.stationary import Compilable, CoordinateWise, Radial
from bochner.kernels.stationary_families import Periodic


@dataclass(frozen=True)
class Place:
    """The place of a hyperparameter: its path as in :meth:`Kernel.get_params`, and its column."""

    path: str
    column: int | None = None

    @property
    def name(self) -> str:
        """The field."""
        return self.path.rpartition("__")[2]

    def within(self, part: str) -> "Place":
        """Return the place as seen from the kernel whose field ``part`` has it."""
        return Place(f"{part}__{self.path}", self.column)

    def of(self, kernel: Kernel) -> Any:
        """Return the value at this place."""
        value = kernel.get_params()[self.path]
        return value if self.column is None else value[self.column]


def places_of(kernel: Kernel) -> list[Place]:
    """Return the places of all numbers that could be found, from left to right."""
    places: list[Place] = []
    params = kernel.get_params()
    for path, value in params.items():
        owner, _, name = path.rpartition("__")
        if name in getattr(params.get(owner, kernel), "tunable", ()):
            several = enumerate(value) if isinstance(value, tuple) else [(None, value)]
            places += [Place(path, j) for j, one in several if not isinstance(one, tuple)]
    return places


def free_places(kernel: Kernel) -> list[Place]:
    """Return the places of the numbers that are free."""
    return [place for place in places_of(kernel) if isinstance(place.of(kernel), Free)]


def with_numbers(kernel: Kernel, numbers: dict[Place, Any]) -> Kernel:
    """Return the kernel with new values of some numbers."""
    changes: dict[str, Any] = {}
    for place, value in numbers.items():
        if place.column is None:
            changes[place.path] = value
        else:
            row = changes.setdefault(place.path, list(kernel.get_params()[place.path]))
            row[place.column] = value
    return kernel.replace(**changes)


# --- Values, and derivatives in the rows or in all numbers ---------------------------------------

Back = Callable[[Array], Any]


def gradients(kernel: Kernel, X: Rows, Y: Others, C: Pairs) -> Rows:
    """Return Σ_j C[i, j] ∂k(x_i, y_j)/∂x_i of each row i, as :meth:`Kernel.pullback`."""
    return traced(kernel, X, Y, None)[1](C)


def traced(
    kernel: Kernel, X: Array, Y: Array, wanted: Callable[[Place], bool] | None
) -> tuple[Values, Back]:
    """Return the function that gives K, and the one from ∂E/∂K to gradients."""
    # Gradients are in the rows X if wanted is None, else for Y = X in the logs of wanted numbers:
    # exact for lengthscales per column, periods and weights, by central differences of one part of
    # the kernel for all others.

    def of(part: str, X: Array = X, Y: Array = Y) -> tuple[Values, Back]:
        """Return the same of a part of the kernel."""
        if wanted is None:
            return traced(getattr(kernel, part), X, Y, None)
        K, back = traced(getattr(kernel, part), X, Y, lambda place: wanted(place.within(part)))
        return K, lambda C: {place.within(part): slope for place, slope in back(C).items()}

    K: Values
    if isinstance(kernel, Combined):
        values, backs = zip(*map(of, kernel.parts), strict=True)
        if isinstance(kernel, Product):  # whose factors are asked for at each level
            values = tuple(map(cache, values))
        joined = lambda: kernel.joined(*values)
        K = joined if isinstance(kernel, Sum | Scaled) else cache(joined)

        def through(C: Array) -> Any:
            each = zip(backs, kernel.back(C, K, *values), strict=True)
            slopes = [back(slope) for back, slope in each]
            if wanted is None:
                return reduce(operator.add, slopes)
            if isinstance(kernel, Scaled):
                slopes.append({Place("scale"): float(kernel.scale * np.vdot(C, values[0]()))})
            return reduce(operator.or_, slopes)

        return K, through
    known: Back = lambda _: {}
    if isinstance(kernel, Transformed):
        U = kernel.inputs(X)
        K, known = of("kernel", U, U if Y is X else kernel.inputs(Y))
        if wanted is None:
            return K, lambda C: kernel.back(X, known(C))
    elif wanted is None:
        return lambda: kernel.evaluate(X, Y), lambda C: kernel.pullback(X, Y, C)
    else:
        K = cache(lambda: kernel.evaluate(X, X))
        # For one lengthscale two more matrices by a compiled loop take less time than formulas.
        match kernel:
            case Compilable(lengthscale=float()) if kernel.compiled is not None:
                pass
            case Radial():
                K, known = _traced_radial(kernel, X)
            case CoordinateWise() | Periodic():
                known = lambda C: _column_slopes(kernel, X, C * K())
    moved = lambda at, h: with_numbers(kernel, {at: at.of(kernel) * math.exp(h)}).evaluate(X, X)

    def back(C: Array) -> dict[Place, float]:
        slopes, h = known(C), 1e-4
        others = (at for at in places_of(kernel) if wanted(at) and at not in slopes)
        return slopes | {
            at: float(np.vdot(C, moved(at, h) - moved(at, -h))) / (2 * h) for at in others
        }

    return K, back


def _traced_radial(kernel: Radial, X: Array) -> tuple[Values, Back]:
    U, _ = kernel.in_units(X, X)
    s = distances.squared(U, U)
    K, slope = kernel.with_slope(s)

    def through(C: Array) -> dict[Place, float]:
        R = C * slope
        if not isinstance(kernel.lengthscale, tuple):
            return {Place("lengthscale"): -2 * float(np.vdot(R, s))}
        turned = R @ U
        each = -2 * (R.sum(axis=1) + R.sum(axis=0)) @ (U * U) + 4 * np.einsum("ij,ij->j", U, turned)
        return {Place("lengthscale", j): float(v) for j, v in enumerate(each)}

    return lambda: K, through


def _column_slopes(kernel: Any, X: Array, R: Array) -> dict[Place, float]:
    """Return Σ R ∘ ∂ log k/∂ log θ of the numbers θ of each column; R is ∂E/∂k times k."""
    slopes: dict[Place, float] = {}
    for rows in slices(len(X), max(1, (1 << 16) // len(X))):  # whose arrays stay in the cache
        for j in range(X.shape[1]):
            gap = X[rows, j, None] - X[None, :, j]
            for name, slope in kernel.log_slopes(gap, j, X.shape[1]).items():
                at = Place(name, j if isinstance(getattr(kernel, name), tuple) else None)
                slopes[at] = slopes.get(at, 0.0) + float(np.vdot(R[rows], slope))
    return slopes
