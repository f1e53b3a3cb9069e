"""Maps made of maps: sums, products, multiples, features of other inputs; and how these share D."""

import math
import operator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bochner._core import arrays
from bochner._core.arrays import array_namespace, in_precision, is_numpy, moved, slices, taken
from bochner._core.native import signed_walsh
from bochner._core.shapes import Array, Float, Int
from bochner.errors import InvalidInput
from bochner.features.map import FeatureMap, Method, Request, with_far_rows
from bochner.kernels import algebra
from bochner.kernels.basis import Basis
from bochner.kernels.dotproduct import Linear
from bochner.kernels.histogram import SkewedChi2
from bochner.kernels.kernel import ALGEBRA, Constant, Kernel, Power, Product, Scaled, leaves_of
from bochner.kernels.stationary import Stationary
from bochner.kernels.windows import Windows


@dataclass(frozen=True, eq=False)
class LinearMap(FeatureMap):
    """The d columns of X themselves, or one feature √c of the constant kernel c: exact."""

    kernel: Linear | Constant
    inputs: int

    below_kernel = True  # exact, so below

    @property
    def n_features(self) -> int:
        return 1 if isinstance(self.kernel, Constant) else self.inputs

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if isinstance(self.kernel, Constant):
            return moved(np.full((X.shape[0], 1), self.kernel.value**0.5), like=X)
        return arrays.dense(X)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp = array_namespace(X)
        return xp.zeros_like(X) if isinstance(self.kernel, Constant) else xp.asarray(C, copy=True)


@dataclass(frozen=True, eq=False)
class Concatenate(FeatureMap):
    """[φ₁(x), φ₂(x), …]: features of a sum of kernels."""

    kernel: Kernel
    parts: tuple[FeatureMap, ...]

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        columns = [part.features(X) for part in self.parts]
        return array_namespace(columns[0]).concat(columns, axis=1)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        ends = np.cumsum([0, *(part.n_features for part in self.parts)]).tolist()
        of_parts = zip(self.parts, pairwise(ends), strict=True)
        gradients = [part.pullback(X, C[:, start:end]) for part, (start, end) in of_parts]
        return sum(gradients[1:], gradients[0])


@dataclass(frozen=True, eq=False)
class TensorProduct(FeatureMap):
    """φ₁(x) ⊗ φ₂(x): features of a product of kernels, D₁·D₂ of them."""

    kernel: Kernel
    left: FeatureMap
    right: FeatureMap

    @property
    def n_features(self) -> int:
        return self.left.n_features * self.right.n_features

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        left, right = self.left.features(X), self.right.features(X)
        product = left[:, :, None] * right[:, None, :]
        return array_namespace(product).reshape(product, (X.shape[0], self.n_features))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        xp, left, right = array_namespace(X), self.left.features(X), self.right.features(X)
        C = xp.reshape(C, (X.shape[0], left.shape[1], right.shape[1]))
        by_left = self.left.pullback(X, xp.sum(C * right[:, None, :], axis=2))
        return by_left + self.right.pullback(X, xp.sum(C * left[:, :, None], axis=1))


#: Kernels of transformed rows.
Changed = algebra.Transformed | SkewedChi2


@dataclass(frozen=True, eq=False)
class DerivedMap(FeatureMap):
    """Features of a kernel made from one kernel: of changed rows, with a factor, of windows."""

    kernel: Scaled | algebra.Modulated | algebra.Normalised | Windows | Changed
    inner: FeatureMap
    inputs: int | None = None  # columns of X; None: as many as the inner map takes

    @cached_property
    def reach(self) -> float:
        if isinstance(self.kernel, algebra.Mahalanobis):  # steps in other units
            return self.inner.reach * float(np.linalg.norm(self.kernel.root, 2))
        other = isinstance(self.kernel, Changed) and not isinstance(self.kernel, algebra.Columns)
        return 0.0 if other else self.inner.reach

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        kernel, inner = self.kernel, self.inner
        match kernel:
            case Scaled():
                return kernel.scale**0.5 * inner.features(X)
            case Windows():
                return kernel.summed(X, inner.features)
            case algebra.Modulated() | algebra.Normalised():
                U = kernel.rows(X) if isinstance(kernel, algebra.Normalised) else X
                Z = kernel.factor(U)[:, None] * inner.features(U)
                return in_precision(Z, arrays.precision(X))
        return with_far_rows(self, X, lambda X: inner.features(kernel.inputs(X)))

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        kernel, inner = self.kernel, self.inner
        match kernel:
            case Scaled():
                return inner.pullback(X, kernel.scale**0.5 * C)
            case Windows():
                back = lambda rows, U, share: inner.pullback(U, share[:, None] * C[rows, :])
                return kernel.back(X, back)
            case algebra.Modulated() | algebra.Normalised():
                return super().pullback(X, C)
        return kernel.back(X, inner.pullback(kernel.inputs(X), C))


@dataclass(frozen=True, eq=False)
class SketchedProduct(FeatureMap):
    """D random numbers of φ₁(x) ⊗ φ₂(x): a product of kernels at any width.

    z_t = D^(−½) (H s₁∘φ₁(x))_{i_t} (H s₂∘φ₂(x))_{j_t}, t = 1, …, D, with H the Hadamard matrix of
    signs, random signs s and random rows i, j: the TensorSRHT [Ahle et al. (2020), definition 15].
    The variance of an entry is about (|u|²|u'|² + 2⟨u, u'⟩²)(|v|²|v'|² + 2⟨v, v'⟩²)/D.
    """

    kernel: Kernel
    left: FeatureMap  # φ₁, padded with zeros to a power of two
    right: FeatureMap  # φ₂, as well
    left_signs: Int[Array, " D1"]  # s₁, int8
    right_signs: Int[Array, " D2"]  # s₂
    rows: Int[Array, "2 D"]  # i and j: each walks through all rows before it repeats one

    below_kernel = False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        left, right = self.left.features(X), self.right.features(X)
        if not is_numpy(left):
            return self._sampled(left, right)
        Z = np.empty((X.shape[0], self.n_features), dtype=left.dtype)
        for rows in slices(len(Z), 512):  # which stay in a core's own cache
            Z[rows] = self._sampled(left[rows], right[rows])
        return Z

    def _sampled(self, left: Float[Array, "n D1"], right: Float[Array, "n D2"]) -> Array:
        first = taken(signed_walsh(left, self.left_signs), self.rows[0], axis=1)
        first *= self.n_features**-0.5
        first *= taken(signed_walsh(right, self.right_signs), self.rows[1], axis=1)
        return first


# --- How the D features of a map are shared among the parts of its kernel ------------------------


def is_stationary(kernel: Kernel) -> bool:
    """Whether k depends on x − y alone, as far as its structure tells."""
    kinds = (*ALGEBRA, algebra.Columns, algebra.Mahalanobis, algebra.Normalised, algebra.Exp)
    return all(isinstance(leaf, Stationary | Constant) for leaf in leaves_of(kernel, kinds))


def exact_width(kernel: Kernel, d: int) -> int | None:
    """Return the width of the kernel's finite exact features, None if there are none."""

    def leaf(part: Any, axes: tuple[int, ...]) -> int | None:
        match part:
            case Constant():
                return 1
            case Linear():
                return len(axes)
            case Basis():
                return int(np.count_nonzero(part.sizes)) ** len(axes)
            case Windows():
                return exact_width(part.kernel, part.columns)
            case algebra.Mahalanobis() | algebra.Modulated() | algebra.Normalised():
                return exact_width(part.kernel, len(axes))
        return None

    return algebra.folded(kernel, leaf, operator.add, operator.mul, columns=(*range(d),))


def shares(
    parts: tuple[Kernel, ...], kernel: Kernel, method: Method, ask: Request
) -> tuple[int, ...]:
    """Split D: exact parts take what they need, others share in proportion to their kernels' size.

    Var of Σ aᵢ k̂ᵢ with Dᵢ features each is Σ aᵢ²/Dᵢ, least for Dᵢ ∝ aᵢ.
    """
    exact = {i: exact_width(part, ask.n_inputs) for i, part in enumerate(parts)}
    if None in exact.values() or sum(width or 0 for width in exact.values()) > ask.n_features:
        for i, part in enumerate(parts):  # of wide products a sketch is better
            inner = part.kernel if isinstance(part, Scaled) else part
            if isinstance(inner, Power | Product) and (exact[i] or 0) > ask.n_features // 4:
                exact[i] = None
    widths = [width or 0 for width in exact.values()]
    others = [i for i, width in exact.items() if width is None]
    left = ask.n_features - sum(widths)
    least = [_least(parts[i], ask.n_inputs, method) for i in others]
    if sum(least) > left:
        raise InvalidInput(
            f"{type(method).__name__}: {kernel!r} requires n_features of at least "
            f"{sum(widths) + sum(least)}, some for each of its terms; got {ask.n_features}. Ask "
            "for more features, or use Nystrom(), which takes a kernel whole."
        )
    sizes, step = [float(_diagonal(parts[i], ask).mean()) for i in others], method.granularity
    for place, i in enumerate(others):
        widths[i] = whole_width(left - sum(least[place + 1 :]), kernel, method)
        if i != others[-1]:
            share = step * round(left * sizes[place] / (sum(sizes[place:]) or 1.0) / step)
            widths[i] = min(max(least[place], share), widths[i])
        left -= widths[i]
    return tuple(widths)


def _least(kernel: Kernel, d: int, method: Method) -> int:
    """Return the least width of a part: the sum over its terms with exact features."""

    def leaf(part: Any, axes: tuple[int, ...]) -> int:
        if isinstance(part, algebra.Mahalanobis | algebra.Modulated | algebra.Normalised):
            return _least(part.kernel, len(axes), method)
        return (exact_width(part, len(axes)) or 1) if isinstance(part, Linear | Constant) else step

    step = method.granularity
    return algebra.folded(kernel, leaf, operator.add, lambda *_: step, columns=(*range(d),)) or step


def _diagonal(kernel: Kernel, ask: Request) -> Float[np.ndarray, " n"]:
    """Return k(x, x) of some rows, of one row of ones where there are none."""
    rows = np.ones((1, ask.n_inputs)) if ask.X is None else ask.X[:256]
    return arrays.to_numpy(kernel.diag(rows)).astype(np.float64)


def series(kernel: algebra.Exp, method: Method, ask: Request) -> dict[str, Kernel]:
    """Return 1, k, k²/2, …, up to where the rest is below a tenth of 1/√D of the whole."""
    most, allowed = ask.n_features // (4 * method.granularity), 0.1 * ask.n_features**-0.5
    left, inner = _diagonal(kernel, ask), _diagonal(kernel.kernel, ask)
    total, term, n = left.mean(), np.ones_like(left), 0
    left = left - term
    while n < 2 or (left.mean() > allowed * total and n < most):
        n += 1
        term = term * inner / n
        left = left - term
    powers = (Scaled(1 / math.factorial(i), Power(kernel.kernel, i)) for i in range(2, n + 1))
    return {f"term{i}": term for i, term in enumerate((Constant(1.0), kernel.kernel, *powers))}


def expansion(kernel: Product | Power, ask: Request) -> dict[str, Kernel]:
    """Return the terms of (a + b)(c + d) or (a + b)ᵖ, where D is enough for all of them, or none.

    Measured, the error is 0.56 to 0.99 times the error of one sketch.
    """
    width = exact_width(kernel, ask.n_inputs)
    if width is not None and width <= ask.n_features:
        return {}
    terms: list[Kernel]
    if isinstance(kernel, Product):
        terms = [
            a * b for a in algebra.summands(kernel.left) for b in algebra.summands(kernel.right)
        ]
    else:
        p, terms = kernel.exponent, algebra.summands(kernel.kernel)
        if len(terms) != 2:
            return {}
        a, b = ([k if i == 1 else Power(k, i) for i in range(1, p + 1)] for k in terms)
        middle = (Scaled(math.comb(p, i), a[i - 1] * b[-i - 1]) for i in range(1, p))
        terms = [a[-1], *middle, b[-1]]
    enough = 1 < len(terms) <= ask.n_features // 16
    return {f"term{n}": term for n, term in enumerate(terms)} if enough else {}


def whole_width(width: int, kernel: Kernel, method: Method) -> int:
    """Return the largest width that the method can have within this one."""
    step = method.granularity
    if width < step:
        raise InvalidInput(
            f"{type(method).__name__}: too few features for {kernel!r}, whose exact parts leave "
            f"{width} for the others. Ask for more features."
        )
    return width - width % step
