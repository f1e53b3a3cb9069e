"""Random Maclaurin features: each is a product of random signs' projections of x.

With rows ω of independent signs, E Π_{j≤N} ⟨ω_j, x⟩⟨ω_j, y⟩ = ⟨x, y⟩ᴺ. A degree N drawn with
probability q_N and weighted by a_N/q_N sums the power series:

    z(x) = D^{−1/2} [ (a_N/q_N)^{1/2} Π_{j≤N} ⟨ω_j, x⟩ ]   one N and N new ω_j for each feature.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from bochner._core.arrays import array_namespace, dense, device, moved, taken
from bochner._core.checks import word
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.features.sketch import powers
from bochner.kernels.kernel import Kernel


@dataclass(frozen=True)
class Maclaurin(Method):
    """Random Maclaurin features of a power series of ⟨x, y⟩: Kar and Karnick (2012).

    Parameters
    ----------
    degrees : {"energy", "geometric"}, default "energy"
        "energy" takes the constant and, if it pays, the linear term exactly, and gives degree n
        the share of the others that its term aₙ r²ⁿ has at the lengths r of the rows; "geometric"
        is the published method, Algorithm 1 with p = 2: P(N = n) = 2^{−n−1}, nothing exact.

    See Also
    --------
    PolySketch : A lower error for higher degrees.
    Explicit : All monomials, without error.

    Notes
    -----
    Serves Polynomial, DotExponential and DotProduct kernels, their sums and multiples, and the
    Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}. Unbiased; the variance of a feature of degree n
    is up to 3ⁿ|x|²ⁿ|y|²ⁿ. Cost of φ(X): O(n d D N̄), N̄ the mean degree; memory D N̄ d bytes. Sparse
    rows are not made dense. Choose it for low degrees and sparse rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Polynomial
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(Polynomial(3), bo.Maclaurin(), n_features=64, X=X, random_state=0)
    >>> phi(X).shape
    (50, 64)
    """

    degrees: Annotated[str, word("energy", "geometric")] = "energy"


@dataclass(frozen=True, eq=False)
class MaclaurinMap(FeatureMap):
    """φ(x) = [exact constant, exact linear term, weighted products of signs' projections]."""

    kernel: Kernel
    inputs: powers.UnitRows  # Scales of the columns
    exact: powers.Weights  # Degrees 0 and 1 that are taken exactly, if any
    weights: powers.Weights  # Degree and weight of each random feature
    signs: Array  # ω of the first feature, then of the second, and so on

    @property
    def n_inputs(self) -> int:
        return self.inputs.width

    @property
    def n_features(self) -> int:
        exact = sum(1 if n == 0 else self.n_inputs for n in self.exact.degrees)
        return exact + len(self.weights.degrees)

    @property
    def below_kernel(self) -> bool:
        return len(self.weights.degrees) == 0

    @cached_property
    def _order(self) -> Array:
        """Indices of the features, by decreasing degree."""
        return np.argsort(-self.weights.degrees, kind="stable")

    @cached_property
    def _steps(self) -> tuple[Array, ...]:
        """Return for each j the j-th ω of every feature that has one, by falling degree."""
        first = (np.cumsum(self.weights.degrees) - self.weights.degrees)[self._order]
        degrees = self.weights.degrees[self._order]
        highest = int(degrees.max(initial=0))
        return tuple(self.signs[:, first[degrees > j] + j] for j in range(highest))

    @cached_property
    def _distinct(self) -> tuple[powers.Weights, Array]:
        """The weights of the distinct degrees, and for each feature the index of its degree."""
        degrees, first, which = np.unique(
            self.weights.degrees, return_index=True, return_inverse=True
        )
        return replace(self.weights, degrees=degrees, logs=self.weights.logs[first]), which

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, lengths = self.inputs.split(X)
        exact = self.exact.at(lengths, like=U)
        columns = ((n, exact[:, i : i + 1]) for i, n in enumerate(self.exact.degrees))
        parts = [c * dense(U) if n else c for n, c in columns]
        if len(self.weights.degrees):
            distinct, which = self._distinct
            products = taken(self._products(U), self._order.argsort(), axis=1)
            parts.append(products * taken(distinct.at(lengths, like=U), which, axis=1))
        return array_namespace(parts[0]).concat(parts, axis=1)

    def _products(self, U: Array) -> Array:
        """Return Π_j ⟨ω_j, u⟩ by falling degree, from the last factor to the first."""
        xp = array_namespace(U)
        constants = len(self.weights.degrees) - (self._steps[0].shape[1] if self._steps else 0)
        product = None
        for step in reversed(self._steps):
            projected = U @ moved(step, like=U)
            if product is not None:
                both = projected[:, : product.shape[1]] * product
                projected = xp.concat([both, projected[:, product.shape[1] :]], axis=1)
            product = projected
        if not constants:
            return product
        ones = xp.ones((U.shape[0], constants), dtype=U.dtype, device=device(U))
        return ones if product is None else xp.concat([product, ones], axis=1)


def draw_maclaurin(method: Maclaurin, kernel: Kernel, ask: Request) -> MaclaurinMap:
    """Draw products of random projections, degrees by what they contribute or as published."""
    parts, D = powers.powers(kernel, ask.n_inputs), ask.n_features
    exact = degrees = np.empty(0, dtype=np.int64)
    if method.degrees == "geometric":  # Kar and Karnick (2012), Algorithm 1
        degrees = ask.stream("degrees").geometric(0.5, D) - 1
        log_chances = -(degrees + 1) * math.log(2)
    else:
        exact, energy, D = powers.split_off(kernel, method, parts, ask)
        if energy.any():
            degrees = _spread(energy, D, ask)
        with np.errstate(divide="ignore"):
            log_chances = np.log(energy / max(energy.sum(), math.ulp(0.0)))[degrees]
    logs = powers.log_coefficients(parts.series, degrees) - log_chances - math.log(max(D, 1))
    signs = powers.random_signs(ask.stream("signs"), (int(degrees.sum()), ask.n_inputs))
    return MaclaurinMap(
        kernel,
        powers.UnitRows(parts.scales),
        powers.Weights(exact, 0.5 * powers.log_coefficients(parts.series, exact), parts.gaussian),
        powers.Weights(degrees, 0.5 * logs, parts.gaussian),
        np.ascontiguousarray(signs.T),
    )


def _spread(energy: Float[Array, " N"], D: int, ask: Request) -> Array:
    """Return D degrees, each of law ``energy``, evenly spread and the first of more of them.

    Quantiles of the points u + tφ modulo one, u uniform, φ the golden section.
    """
    points = (ask.stream("degrees").random() + np.arange(D) * ((math.sqrt(5) - 1) / 2)) % 1.0
    cumulative = np.cumsum(energy)
    degrees = np.searchsorted(cumulative, points * cumulative[-1], side="right")
    return np.minimum(degrees, np.flatnonzero(energy)[-1]).astype(np.int64)
