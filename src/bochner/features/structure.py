"""What the rules ask of kernels and methods: stationary or not, exact widths, whole widths."""

from functools import singledispatch

from bochner.features.method import Method
from bochner.kernels import (
    Bilinear,
    Columns,
    Constant,
    Exp,
    Kernel,
    Linear,
    Mahalanobis,
    Modulated,
    Normalised,
    Power,
    Product,
    Scaled,
    Stationary,
    Sum,
)


@singledispatch
def is_stationary(kernel: Kernel) -> bool:
    """Whether k depends on x − y alone, as far as its structure tells."""
    return isinstance(kernel, Stationary | Constant)


@is_stationary.register
def _(kernel: Sum | Product) -> bool:
    return is_stationary(kernel.left) and is_stationary(kernel.right)


@is_stationary.register
def _(kernel: Scaled | Columns | Mahalanobis | Normalised | Power | Exp) -> bool:
    return is_stationary(kernel.kernel)


@singledispatch
def exact_width(kernel: Kernel, d: int) -> int | None:
    """Return the width of the kernel's finite exact features, None if there are none."""
    return None


@exact_width.register
def _(kernel: Constant, d: int) -> int | None:
    return 1


@exact_width.register
def _(kernel: Linear, d: int) -> int | None:
    return d


@exact_width.register
def _(kernel: Columns, d: int) -> int | None:
    return exact_width(kernel.kernel, len(kernel.columns))


@exact_width.register
def _(kernel: Bilinear, d: int) -> int | None:
    return kernel.root.shape[1]


@exact_width.register
def _(kernel: Power, d: int) -> int | None:
    width = exact_width(kernel.kernel, d)
    return None if width is None else width**kernel.exponent


@exact_width.register
def _(kernel: Scaled | Mahalanobis | Modulated | Normalised, d: int) -> int | None:
    return exact_width(kernel.kernel, d)


@exact_width.register
def _(kernel: Sum | Product, d: int) -> int | None:
    left, right = exact_width(kernel.left, d), exact_width(kernel.right, d)
    if left is None or right is None:
        return None
    return left + right if isinstance(kernel, Sum) else left * right


@singledispatch
def granularity(method: Method) -> int:
    """Return the number that the width of a map of this method is a multiple of."""
    return 1
