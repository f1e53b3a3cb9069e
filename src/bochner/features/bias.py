"""What the features of a map lack in the mean: the part of its error that is no noise.

The error of a map has two parts. Noise, of features that are drawn at random, falls like 1/√D and
averages over rows. Bias stays however many features of the kind there are: what a series that is
cut leaves out, what landmarks do not explain. Where the mean K̃ of Z Zᵀ over draws is below K,

    K − K̃ ⪰ 0,   e(x) = k(x, x) − k̃(x, x) ≥ 0,   ‖K − K̃‖_F ≤ Σ e(x_i),   K ⪯ K̃ + (Σ e) I.
"""

from functools import singledispatch

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.features.gegenbauer import GegenbauerMap
from bochner.features.map import Concatenate, FeatureMap, OnInputs, ScaledMap, inner_inputs
from bochner.features.nystrom import Rounded

#: Shares of k(x, x) up to here are rounding of what was subtracted.
ROUNDING = 1e-12


@singledispatch
def left_out(phi: FeatureMap, X: Float[Array, "n d"]) -> Float[Array, " n"] | None:
    """Return e(x) = k(x, x) − E|φ(x)|² of rows in float64; None where it is not known.

    Zero for unbiased maps; k(x, x) − |φ(x)|² for maps below their kernel; what the series leaves
    out where it is cut. Not known of quadrature, of projections, and of products with such.
    """
    if phi.below_kernel:
        Z = to_numpy(phi.features(X))
        return _rest(phi, X, (Z * Z).sum(axis=1))
    return np.zeros(X.shape[0]) if phi.unbiased else None


def _rest(phi: FeatureMap, X: Array, held: Float[Array, " n"]) -> Float[Array, " n"]:
    whole = to_numpy(phi.kernel.diag(X))
    rest = whole - held
    return np.where(rest > ROUNDING * whole, rest, 0.0)


@left_out.register
def _(phi: GegenbauerMap, X: Array) -> Array:
    functions = to_numpy(phi.radial(phi.polar(X)[1]))
    return _rest(phi, X, (functions**2).sum(axis=1))  # P_l(1) = 1


@left_out.register
def _(phi: ScaledMap, X: Array) -> Array | None:
    inner = left_out(phi.inner, X)
    return None if inner is None else phi.scale * inner


@left_out.register
def _(phi: OnInputs, X: Array) -> Array | None:
    return left_out(phi.inner, inner_inputs(phi.kernel, X))


@left_out.register
def _(phi: Rounded, X: Array) -> Array | None:
    return left_out(phi.inner, X)


@left_out.register
def _(phi: Concatenate, X: Array) -> Array | None:
    parts = [left_out(part, X) for part in phi.parts]
    known = [part for part in parts if part is not None]
    return np.sum(known, axis=0) if len(known) == len(parts) else None
