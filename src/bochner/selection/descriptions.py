"""Descriptions of kernels for people: the shortest lengthscales, and the number of others."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.text import round_numbers
from bochner.kernels.algebra import Mahalanobis, Monotone
from bochner.kernels.dotproduct import Linear
from bochner.kernels.kernel import Algebra, Columns, Kernel, Scaled, Sum
from bochner.kernels.sphere import ALL
from bochner.kernels.stationary import Stationary
from bochner.kernels.stationary_families import Matern

#: Largest number of lengthscales or columns that are listed: in text, and in a table cell.
TEXT_ITEMS, CELL_ITEMS = 6, 2

Names = Sequence[str] | None
Spread = Float[Array, " d"] | None


def describe(kernel: Kernel, names: Names = None, spread: Spread = None) -> str:
    """Return a short description of a kernel, lengthscales in units of the columns' ``spread``."""
    if isinstance(kernel, Algebra):
        return kernel.to_text(lambda part: _part_text(part, names, spread), "×")
    if isinstance(kernel, Columns):
        inner = _names_of(names, kernel.columns)
        widths = None if spread is None else spread[[*kernel.columns]]
        return f"{_part_text(kernel.kernel, inner, widths)} of {join_names(inner)}"
    if isinstance(kernel, Monotone):
        transformed = join_names(_names_of(names, kernel.columns))
        return f"{describe(kernel.kernel, names)}; {transformed} transformed"
    return _leaf(kernel, names, spread)


def terms_of(kernel: Kernel) -> list[tuple[Kernel, Sequence[int]]]:
    """Return the summands, without factors and transformations, and the columns of each."""
    return list(kernel.leaves((Sum, Scaled, Monotone, Columns), ALL))


def families_of(kernel: Kernel) -> str:
    """Return the families of the summands, each once."""
    return " + ".join(dict.fromkeys(_family(term) for term, _ in terms_of(kernel)))


def _family(kernel: Kernel) -> str:
    inner = kernel.kernel if isinstance(kernel, Mahalanobis) else kernel
    smoothness = f"({inner.smoothness:g})" if isinstance(inner, Matern) else ""
    return "Mahalanobis " * (inner is not kernel) + type(inner).__name__ + smoothness


def lengthscales_of(kernel: Kernel, names: Names = None) -> str:
    """Return the shortest lengthscales of each summand, with the names of their columns."""
    terms = terms_of(kernel)
    common = [_scales(term, names, columns) for term, columns in terms if columns is ALL]
    by_column = [
        pair
        for term, columns in terms
        if columns is not ALL
        for pair in _scales(term, names, columns)
    ]
    cells = []
    for pairs in filter(None, (*common, by_column)):
        ranked = sorted(pairs, key=lambda pair: pair[1])
        text = ", ".join(f"{name} {scale:.3g}".strip() for name, scale in ranked[:CELL_ITEMS])
        cells.append(text + f" and {len(pairs) - CELL_ITEMS} more" * (len(pairs) > CELL_ITEMS))
    return "; ".join(cells[:CELL_ITEMS]) + "; …" * (len(cells) > CELL_ITEMS)


def _scales(kernel: Kernel, names: Names, columns: Sequence[int]) -> list[tuple[str, float]]:
    """Return the lengthscales, each with the name of its column; "" for all columns."""
    inner = kernel.kernel if isinstance(kernel, Mahalanobis) else kernel
    scales: Any = inner.get_params(deep=False).get("lengthscale")
    if isinstance(kernel, Mahalanobis):  # ℓ/√A_jj along column j
        scales = 1.0 if isinstance(inner, Linear) else scales
        if not isinstance(scales, float) or not isinstance(inner, Stationary | Linear):
            return []
        weights = np.sqrt(np.diag(np.asarray(kernel.matrix)))
        scales = scales / np.maximum(weights, np.finfo(np.float64).tiny)
    if scales is None or np.ndim(scales) == 0:
        columns_text = "" if columns is ALL else join_names(_names_of(names, columns))
        return [(columns_text, scales)] if isinstance(scales, float) else []
    return list(zip(_names_of(names, columns[: len(scales)]), scales, strict=True))


def _part_text(kernel: Any, names: Names, spread: Spread) -> str:
    """Return the text of a part of a kernel, in brackets unless it is the part's repr."""
    if not isinstance(kernel, Kernel):  # a number
        return f"{kernel:.4g}"
    text = describe(kernel, names, spread)
    return text if text == round_numbers(repr(kernel)) else f"({text})"


def _leaf(kernel: Kernel, names: Names, spread: Spread) -> str:
    """Return the text of a leaf kernel, or of a leaf kernel with a Mahalanobis distance."""
    pairs, is_metric = _scales(kernel, names, ALL), isinstance(kernel, Mahalanobis)
    if not pairs or not (is_metric or (isinstance(kernel, Stationary) and len(pairs) > TEXT_ITEMS)):
        return round_numbers(repr(kernel))
    labels, lengths = zip(*pairs, strict=True)
    widths = None if spread is None or len(spread) != len(labels) else spread
    scales = np.asarray(lengths) / (1.0 if widths is None else np.where(widths > 0, widths, 1.0))
    ranked = sorted(zip(labels, scales, strict=True), key=lambda pair: pair[1])
    word = type(kernel.kernel if isinstance(kernel, Mahalanobis) else kernel).__name__
    noun = "a metric with lengthscales along" if is_metric else "lengthscales of"
    units = "" if widths is None else " in standard deviations,"
    limit = TEXT_ITEMS + (len(scales) == TEXT_ITEMS + 1)  # one more is as short as "1 other"
    text, tail = ", ".join(f"{name} {scale:.3g}" for name, scale in ranked[:limit]), ""
    if excess := ranked[limit:]:
        tail = f"; {len(excess)} others from {excess[0][1]:.3g} to {excess[-1][1]:.3g}"
    return f"{word}, {noun} {len(scales)} columns,{units} shortest first: {text}{tail}"


def _names_of(names: Names, columns: Sequence[int]) -> list[str]:
    """Return the names of columns, or "column 3" if not all have names."""
    complete = names is not None and len(names) > max(columns)
    return [str(names[j]) if complete else f"column {j}" for j in columns]  # type: ignore[index]


def join_names(names: Sequence[str]) -> str:
    """Return the first names as text, and the number of further ones."""
    n_more = len(names) - TEXT_ITEMS
    return ", ".join(names[:TEXT_ITEMS]) + (f" and {n_more} more" if n_more > 0 else "")
