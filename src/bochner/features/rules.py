"""From kernel and method to feature map: a table of identities.

A method serves some kernels whole: that is its leaf rule. Every other kernel is taken apart, for
any method: a sum concatenates, a scale multiplies by its root, a product is a tensor product
(sketched where it is too wide), columns and linear maps of the input go in front. One rule for
each way to build a kernel; a method that cannot serve a part is refused, with the names of those
that can.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import reduce, singledispatch
from math import prod

import numpy as np

from bochner._core.checks import require_room
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import (
    Concatenate,
    ConstantMap,
    FeatureMap,
    LinearMap,
    ModulatedMap,
    OnInputs,
    ScaledMap,
    TensorProduct,
    inner_inputs,
    sketched,
)
from bochner.features.method import Method, Request
from bochner.features.nystrom.nystrom import Nystrom, nystrom_map
from bochner.features.widths import (
    even_factor_widths,
    exact_width,
    expansion,
    factor_widths,
    series,
    shares,
    wide_factor_widths,
)
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
    Sum,
    Warped,
)


@singledispatch
def draw_map(method: Method, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the map of ``kernel`` by ``method``: by its leaf rule, of the whole or of its parts.

    A method that builds on other methods registers here, one that makes features in `leaf_map`.
    """
    return by_parts(method, kernel, ask)


@singledispatch
def leaf_map(method: Method, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw the map of a kernel that ``method`` serves whole; raise UnsupportedKernel for others."""
    raise InvalidInput(
        f"draw: method must be Fourier(...), Nystrom(...) or Auto(...); got {method!r}."
    )


@draw_map.register
def _(method: Nystrom, kernel: Kernel, ask: Request) -> FeatureMap:
    phi = nystrom_map(method, kernel, ask.X, ask.n_features, ask.stream("landmarks"))
    if phi.n_inputs != ask.n_inputs:
        raise InvalidInput(
            f"draw: Given(rows) must have the {ask.n_inputs} columns of the data; got "
            f"{phi.n_inputs}."
        )
    return phi


def by_parts(method: Method, kernel: Kernel, ask: Request) -> FeatureMap:
    """Draw exact features where they fit, else the leaf map, else the maps of the parts."""
    width = exact_width(kernel, ask.n_inputs)
    if width is not None and width <= ask.n_features:
        exact = compose(kernel, method, ask)
        if exact is not None:
            return exact
    _require_room(method, ask)
    try:
        return leaf_map(method, kernel, ask)
    except UnsupportedKernel:
        composed = compose(kernel, method, ask)
        if composed is None:
            raise
        return composed


def _require_room(method: Method, ask: Request) -> None:
    columns = ask.n_inputs if ask.X is None else min(ask.n_inputs, ask.X.shape[0])
    require_room(
        8 * method.least_numbers(ask.n_features, columns),
        f"draw: n_features={ask.n_features:,} for {ask.n_inputs:,} columns takes",
        "Ask for fewer features.",
    )


# --- One rule for each way to build a kernel ----------------------------------------------------


@singledispatch
def compose(kernel: Kernel, method: Method, ask: Request) -> FeatureMap | None:
    """Draw the map of a kernel from maps of its parts; None if it has no parts."""
    return None


@compose.register
def _(kernel: Constant, method: Method, ask: Request) -> FeatureMap:
    return ConstantMap(kernel, kernel.value, ask.n_inputs)


@compose.register
def _(kernel: Linear, method: Method, ask: Request) -> FeatureMap:
    return LinearMap(kernel, ask.n_inputs)


@compose.register
def _(kernel: Scaled, method: Method, ask: Request) -> FeatureMap:
    return ScaledMap(kernel, kernel.scale, draw_map(method, kernel.kernel, ask))


@compose.register
def _(kernel: Bilinear, method: Method, ask: Request) -> FeatureMap:
    return OnInputs(kernel, LinearMap(Linear(), kernel.root.shape[1]), ask.n_inputs)


@compose.register
def _(kernel: Modulated | Normalised, method: Method, ask: Request) -> FeatureMap:
    if isinstance(kernel, Normalised) and ask.X is not None:
        ask = replace(ask, X=kernel.rows(ask.X))
    return ModulatedMap(kernel, draw_map(method, kernel.kernel, ask))


@compose.register
def _(kernel: Columns | Mahalanobis | Warped, method: Method, ask: Request) -> FeatureMap:
    X = None if ask.X is None else inner_inputs(kernel, ask.X)
    like = inner_inputs(kernel, np.ones((1, ask.n_inputs))) if X is None else X
    inner = replace(ask, n_inputs=like.shape[1], X=X)
    return OnInputs(kernel, draw_map(method, kernel.kernel, inner), ask.n_inputs)


@compose.register
def _(kernel: Sum, method: Method, ask: Request) -> FeatureMap:
    return _added(kernel, {"left": kernel.left, "right": kernel.right}, method, ask)


@compose.register
def _(kernel: Exp, method: Method, ask: Request) -> FeatureMap:
    """exp(k) = Σ kⁿ/n!, up to where the rest is below the noise of D random features."""
    terms = {f"term{n}": term for n, term in enumerate(series(kernel, method, ask))}
    return _added(kernel, terms, method, ask)


def _added(kernel: Kernel, terms: dict[str, Kernel], method: Method, ask: Request) -> FeatureMap:
    widths = shares(tuple(terms.values()), kernel, method, ask)
    parts = zip(terms.items(), widths, strict=True)
    return Concatenate(
        kernel, tuple(draw_map(method, part, ask.part(name, D)) for (name, part), D in parts)
    )


@compose.register
def _(kernel: Product, method: Method, ask: Request) -> FeatureMap:
    def draw(widths: tuple[int, ...]) -> tuple[FeatureMap, ...]:
        left, right = ask.part("left", widths[0]), ask.part("right", widths[1])
        return draw_map(method, kernel.left, left), draw_map(method, kernel.right, right)

    if terms := expansion(kernel, ask):
        return _added(kernel, terms, method, ask)
    return _multiplied(kernel, (kernel.left, kernel.right), draw, method, ask)


@compose.register
def _(kernel: Power, method: Method, ask: Request) -> FeatureMap:
    def draw(widths: tuple[int, ...]) -> tuple[FeatureMap, ...]:
        first = draw_map(method, kernel.kernel, ask.part("factor0", widths[0]))
        if first.below_kernel:  # nothing random in it that could be taken twice for one number
            return (first,) * len(widths)
        others = (ask.part(f"factor{i}", D) for i, D in enumerate(widths[1:], start=1))
        return (first, *(draw_map(method, kernel.kernel, part) for part in others))

    if kernel.exponent == 1:
        return draw_map(method, kernel.kernel, ask)
    if terms := expansion(kernel, ask):
        return _added(kernel, terms, method, ask)
    return _multiplied(kernel, (kernel.kernel,) * kernel.exponent, draw, method, ask)


Draw = Callable[[tuple[int, ...]], tuple[FeatureMap, ...]]


def _multiplied(
    kernel: Kernel, factors: tuple[Kernel, ...], draw: Draw, method: Method, ask: Request
) -> FeatureMap:
    """Return all products of the factors' features where they fit or must, else a sketch of them.

    A sketch adds noise: the product of maps that are below their kernels stays whole, narrower,
    and so below its own.
    """
    narrow = factor_widths(factors, kernel, method, ask)
    if narrow is not None:
        return _tensor(kernel, draw(narrow))
    maps = draw(wide_factor_widths(factors, kernel, method, ask))
    if prod(phi.n_features for phi in maps) <= ask.n_features:
        return _tensor(kernel, maps)
    if all(phi.below_kernel for phi in maps):
        with suppress(InvalidInput):  # too few features for the exact parts of a factor
            narrow_maps = draw(even_factor_widths(factors, method, ask))
            if prod(phi.n_features for phi in narrow_maps) <= ask.n_features:
                return _tensor(kernel, narrow_maps)
    return _sketch(kernel, maps, ask)


def _tensor(kernel: Kernel, maps: tuple[FeatureMap, ...]) -> FeatureMap:
    return reduce(lambda left, right: TensorProduct(kernel, left, right), maps)


def _sketch(kernel: Kernel, maps: tuple[FeatureMap, ...], ask: Request) -> FeatureMap:
    """Sketch pairs, then pairs of pairs: the noise of a tree grows least with the factors."""
    if len(maps) == 1:
        return maps[0]
    middle = len(maps) // 2
    left = _sketch(kernel, maps[:middle], ask.part("left", ask.n_features))
    right = _sketch(kernel, maps[middle:], ask.part("right", ask.n_features))
    return sketched(kernel, left, right, ask.n_features, ask.stream("sketch"))
