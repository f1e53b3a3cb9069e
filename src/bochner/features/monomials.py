"""Polynomial kernels written out: every product of columns is a feature, and nothing is left over.

⟨x, y⟩ⁿ = Σ n!/(e₁! ⋯ e_d!) x^e y^e over the exponents e of sum n, so that a kernel Σ aₙ ⟨x, y⟩ⁿ
that ends has finitely many features of its own, √(aₙ n!/(e₁! ⋯ e_d!)) x^e.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import dense, moved
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.powers import log_coefficients, powers
from bochner.features.products import Pairs, factored, in_double, products_of_rows
from bochner.features.request import Request
from bochner.features.rules import draw_map, leaf_map
from bochner.kernels import Kernel
from bochner.kernels.series import PowerSeries

#: Exact features of one row are this many at most: 8 MB.
MOST_EXACT = 1 << 20


@dataclass(frozen=True)
class Expanded(Method):
    """All features of a kernel that has finitely many, whatever their number.

    Notes
    -----
    Serves kernels of ⟨x, y⟩ whose power series ends (Polynomial, DotProduct of coefficients), all
    that other methods serve exactly (Linear, Constant, FourierSeries, Polynomials), and sums,
    products and powers of such. Cost of φ(X): O(n D).
    """

    def least_numbers(self, n_features: int, n_columns: int) -> int:  # noqa: ARG002
        """Return 0: it finds out how many features serve."""
        return 0


@dataclass(frozen=True, eq=False)
class MonomialMap(FeatureMap):
    """φ(x) = (c_k Π_i x_{k_i})_k. Exact.

    Attributes
    ----------
    columns : (D, p) int32
        Columns that each feature multiplies; d stands for the factor 1.
    weights : (D,) float64
        c.
    inputs : int
        d.
    """

    kernel: Kernel
    columns: Array
    weights: Float[Array, " D"]
    inputs: int

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.inputs

    @property
    def n_features(self) -> int:
        """D, the number of monomials."""
        return len(self.weights)

    @property
    def below_kernel(self) -> bool:
        """Exact, so below."""
        return True

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the weighted monomials, (n, D)."""
        Z = products_of_rows(self._how, self.n_features, self._table, X)
        return Z * moved(self.weights, like=Z)[None, :]

    @cached_property
    def _how(self) -> Pairs | Array:
        return factored(self.columns)

    def _table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        ones = X[:, :1] * 0 + 1
        return xp.permute_dims(xp.concat([X, ones], axis=1), (1, 0))


def exact_map(kernel: Kernel, n_inputs: int) -> FeatureMap:
    """Return all features of a kernel with finitely many.

    Raises
    ------
    UnsupportedKernel
        If it has infinitely many, or more than 2²⁰.
    """
    try:
        phi = draw_map(Expanded(), kernel, Request(n_inputs, MOST_EXACT, 0))
    except UnsupportedKernel as refused:
        raise UnsupportedKernel(
            f"{kernel!r} has no finite features of its own, as Linear, Constant, Polynomial, "
            "FourierSeries, Polynomials and sums, products and powers of such have."
        ) from refused
    except InvalidInput:
        phi = None
    if phi is None or phi.n_features > MOST_EXACT or not phi.below_kernel:
        raise UnsupportedKernel(
            f"{kernel!r} of {n_inputs} columns has more than {MOST_EXACT:,} features of its own."
        )
    return phi


@leaf_map.register
def _(method: Expanded, kernel: Kernel, ask: Request) -> FeatureMap:
    series = powers(kernel, method, ask.n_inputs).series
    if series.degree is None:
        raise UnsupportedKernel(f"Expanded requires a power series that ends; got {kernel!r}.")
    degrees = [n for n in range(series.degree + 1) if np.isfinite(log_coefficients(series, n))]
    if sum(math.comb(ask.n_inputs + n - 1, n) for n in degrees) > MOST_EXACT:
        raise InvalidInput(f"Expanded: {kernel!r} has more than {MOST_EXACT:,} features.")
    parts = [_monomials(series, n, ask.n_inputs) for n in degrees]
    return MonomialMap(
        kernel,
        np.concatenate([columns for columns, _ in parts]),
        np.concatenate([weights for _, weights in parts]),
        ask.n_inputs,
    )


def _monomials(series: PowerSeries, n: int, d: int) -> tuple[Array, Float[Array, " D"]]:
    """Return the monomials of degree n, padded by the factor 1 to the series' degree."""
    rows = list(combinations_with_replacement(range(d), n))
    chosen = np.array(rows, dtype=np.int32).reshape(len(rows), n)
    columns = np.full((len(chosen), max(1, series.degree or 0)), d, dtype=np.int32)
    columns[:, :n] = chosen
    logs = log_coefficients(series, n) + gammaln(n + 1.0) - _log_factorials(chosen)
    return columns, np.exp(0.5 * logs)


def _log_factorials(chosen: Array) -> Float[Array, " D"]:
    """Return log Π e_j!: the i-th copy of a column in a sorted row contributes i."""
    copies, total = np.ones(len(chosen)), np.zeros(len(chosen))
    for i in range(1, chosen.shape[1]):
        copies = np.where(chosen[:, i] == chosen[:, i - 1], copies + 1, 1.0)
        total += np.log(copies)
    return total
