"""How the D features of a map are shared among the parts of its kernel."""

import math
import operator
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Float
from bochner.errors import InvalidInput
from bochner.features.method import Method, Request
from bochner.kernels.algebra import (
    Bilinear,
    Columns,
    Exp,
    Mahalanobis,
    Modulated,
    Normalised,
    folded,
)
from bochner.kernels.basis import Basis
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import ALGEBRA, Constant, Kernel, Power, Product, Scaled, Sum, leaves_of
from bochner.kernels.stationary import Stationary
from bochner.kernels.windows import Windows


def is_stationary(kernel: Kernel) -> bool:
    """Whether k depends on x − y alone, as far as its structure tells."""
    kinds = (*ALGEBRA, Columns, Mahalanobis, Normalised, Exp)
    return all(isinstance(leaf, Stationary | Constant) for leaf in leaves_of(kernel, kinds))


def exact_width(kernel: Kernel, d: int) -> int | None:
    """Return the width of the kernel's finite exact features, None if there are none."""

    def leaf(part: Any, axes: tuple[int, ...]) -> int | None:
        match part:
            case Constant():
                return 1
            case Linear():
                return len(axes)
            case Bilinear():
                return part.root.shape[1]
            case Basis():
                return int(np.count_nonzero(part.sizes)) ** len(axes)
            case Windows():
                return exact_width(part.kernel, part.columns)
            case Mahalanobis() | Modulated() | Normalised():
                return exact_width(part.kernel, len(axes))
        return None

    return folded(kernel, leaf, operator.add, operator.mul, columns=(*range(d),))


def shares(
    parts: tuple[Kernel, ...], kernel: Kernel, method: Method, ask: Request
) -> tuple[int, ...]:
    """Split D: exact parts take what they need, other parts in proportion to their kernels' size.

    Var of Σ aᵢ k̂ᵢ with Dᵢ features each is Σ aᵢ²/Dᵢ, least for Dᵢ ∝ aᵢ. A part that is a sum
    itself has features for each of its terms, however small it is.
    """
    exact = [exact_width(part, ask.n_inputs) for part in parts]
    if None in exact or sum(width or 0 for width in exact) > ask.n_features:
        exact = [_needed(part, ask) for part in parts]
    widths = [width or 0 for width in exact]
    others = [i for i, width in enumerate(exact) if width is None]
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
    match kernel:
        case Sum():
            return _least(kernel.left, d, method) + _least(kernel.right, d, method)
        case Scaled() | Mahalanobis() | Modulated() | Normalised():
            return _least(kernel.kernel, d, method)
        case Columns():
            return _least(kernel.kernel, len(kernel.columns), method)
        case Linear() | Bilinear() | Constant():
            return exact_width(kernel, d) or 1
    return method.granularity


def _needed(kernel: Kernel, ask: Request) -> int | None:
    """Return the width of exact features; None where there are none, or a sketch is better."""
    width = exact_width(kernel, ask.n_inputs)
    inner = kernel.kernel if isinstance(kernel, Scaled) else kernel
    if width is not None and isinstance(inner, Power | Product) and width > ask.n_features // 4:
        return None
    return width


def _diagonal(kernel: Kernel, ask: Request) -> Float[np.ndarray, " n"]:
    """Return k(x, x) of some rows, of one row of ones where there are none."""
    rows = np.ones((1, ask.n_inputs)) if ask.X is None else ask.X[:256]
    return to_numpy(kernel.diag(rows)).astype(np.float64)


def series(kernel: Exp, method: Method, ask: Request) -> tuple[Kernel, ...]:
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
    return Constant(1.0), kernel.kernel, *powers


def expansion(kernel: Product | Power, ask: Request) -> dict[str, Kernel]:
    """Return the terms of (a + b)(c + d) or (a + b)ᵖ, where D is enough for all of them, or none.

    Terms of exact factors are then exact, and stationary terms need no sketch: measured,
    the error is 0.56 to 0.99 times the error of one sketch.
    """
    width = exact_width(kernel, ask.n_inputs)
    if width is not None and width <= ask.n_features:
        return {}
    terms: list[Kernel]
    if isinstance(kernel, Product):
        terms = [a * b for a in _terms(kernel.left) for b in _terms(kernel.right)]
    else:
        p, terms = kernel.exponent, _terms(kernel.kernel)
        if len(terms) != 2:
            return {}
        a, b = ([k if i == 1 else Power(k, i) for i in range(1, p + 1)] for k in terms)
        middle = (Scaled(math.comb(p, i), a[i - 1] * b[-i - 1]) for i in range(1, p))
        terms = [a[-1], *middle, b[-1]]
    enough = 1 < len(terms) <= ask.n_features // 16
    return {f"term{n}": term for n, term in enumerate(terms)} if enough else {}


def _terms(kernel: Kernel) -> list[Kernel]:
    """Return the kernels whose sum this one is."""
    if isinstance(kernel, Sum):
        return [*_terms(kernel.left), *_terms(kernel.right)]
    if isinstance(kernel, Scaled):
        return [Scaled(kernel.scale, term) for term in _terms(kernel.kernel)]
    return [kernel]


def factor_widths(
    factors: tuple[Kernel, ...], kernel: Kernel, method: Method, ask: Request
) -> tuple[int, ...] | None:
    """Split D = D₁ D₂ … where all but one factor are exact and leave it enough; None elsewhere."""
    exact = [exact_width(factor, ask.n_inputs) for factor in factors]
    written = math.prod(width or 1 for width in exact)
    if exact.count(None) == 0:
        return tuple(w for w in exact if w) if written <= ask.n_features else None
    # Measured: with four features or more for the other factor, it is up to twice as accurate as a
    # sketch, whose noise grows with all norms.
    if exact.count(None) > 1 or ask.n_features // written < 4:
        return None
    rest = whole_width(ask.n_features // written, kernel, method)
    return tuple(rest if width is None else width for width in exact)


def even_factor_widths(
    factors: tuple[Kernel, ...], method: Method, ask: Request
) -> tuple[int, ...]:
    """Split D = D₁ D₂ … evenly among the factors that are not exact."""
    exact = [exact_width(factor, ask.n_inputs) for factor in factors]
    left = ask.n_features // math.prod(width or 1 for width in exact)
    root = int(max(left, 1) ** (1 / max(exact.count(None), 1)) + 1e-9)
    rest = max(root - root % method.granularity, method.granularity)
    return tuple(rest if width is None else width for width in exact)


def whole_width(width: int, kernel: Kernel, method: Method) -> int:
    """Return the largest width that the method can have within this one."""
    step = method.granularity
    if width < step:
        raise InvalidInput(
            f"{type(method).__name__}: too few features for {kernel!r}, whose exact parts leave "
            f"{width} for the others. Ask for more features."
        )
    return width - width % step
