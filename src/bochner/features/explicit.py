"""Explicit bases: kernels that are defined by their features, and those features.

`FourierSeries` and `Polynomials` are kernels k(x, y) = Π_j Σ_i f_i(x_j) f_i(y_j); the products of
the f_i are exact features, and any choice of them is below the kernel.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core.arrays import dense
from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.products import (
    Pairs,
    best_products,
    factored,
    in_double,
    left_over,
    products_of_rows,
)
from bochner.features.request import Request
from bochner.features.rules import compose, leaf_map
from bochner.features.structure import exact_width
from bochner.kernels import Kernel
from bochner.kernels.basis import Basis


@dataclass(frozen=True)
class Explicit(Method):
    """The kernel's own features, or the D of them that carry most.

    Notes
    -----
    Serves ``FourierSeries`` and ``Polynomials``, and with ``Linear`` and ``Constant`` all that is
    made of them. m functions of one column make m^d products of d columns; where D is less, those
    of largest mean square are taken, and Z Zᵀ ⪯ K. Where the width is enough for all, every
    method gives these features, for they are exact. Cost of φ(X): O(n (d m + D)).
    """

    def least_numbers(self, n_features: int, n_columns: int) -> int:  # noqa: ARG002
        """Return 0: it finds out how many features serve."""
        return 0


@dataclass(frozen=True, eq=False)
class BasisMap(FeatureMap):
    """φ(x) = (Π_j f_{k_j}(x_j))_k.

    Attributes
    ----------
    indices : (D, d) int32
        k of each feature, by decreasing mean square.
    """

    kernel: Basis
    indices: Array

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.indices.shape[1]

    @property
    def n_features(self) -> int:
        """D, the number of products."""
        return len(self.indices)

    @property
    def below_kernel(self) -> bool:
        """Some of the features that make the kernel: always."""
        return True

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the products, (n, D)."""
        return products_of_rows(self._how, self.n_features, self._table, X)

    def residual(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return e(x) = k(x, x) − |φ(x)|² ≥ 0 in float64: |k − k̂|(x, y) ≤ √(e(x) e(y))."""
        return left_over(self, X)

    @cached_property
    def _how(self) -> Pairs | Array:
        return factored(self.indices * self.n_inputs + np.arange(self.n_inputs))

    def _table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        return xp.permute_dims(xp.concat(self.kernel.functions(X), axis=1), (1, 0))


def _basis_map(kernel: Basis, ask: Request) -> BasisMap:
    sizes = np.array(kernel.sizes)
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    ranks, _ = best_products([np.log(sizes[order])] * ask.n_inputs, ask.n_features)
    return BasisMap(kernel, order.astype(np.int32)[ranks])


@exact_width.register
def _(kernel: Basis, d: int) -> int | None:
    return int(np.count_nonzero(kernel.sizes)) ** d


@compose.register
def _(kernel: Basis, method: Method, ask: Request) -> FeatureMap:  # noqa: ARG001
    return _basis_map(kernel, ask)


@leaf_map.register
def _(method: Explicit, kernel: Kernel, ask: Request) -> FeatureMap:  # noqa: ARG001
    if isinstance(kernel, Basis):
        return _basis_map(kernel, ask)
    raise UnsupportedKernel(
        "Explicit requires a kernel with finitely many features of its own: FourierSeries, "
        f"Polynomials, Linear, Constant, or sums and products of such; got {kernel!r}. "
        "Nystrom(...) serves every kernel."
    )
