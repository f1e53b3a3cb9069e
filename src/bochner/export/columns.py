"""Rows as a graph takes them: one matrix of numbers, or a table's columns of text and times too."""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from bochner.data.encoders import (
    DAY,
    PARTS,
    UNSEEN,
    DroppedColumn,
    Encoder,
    NumberColumn,
    TimeColumn,
)
from bochner.data.schema import Inputs, Schema
from bochner.export.arrays import ANY, FLOAT, WHOLE, OnnxNamespace, Traced
from bochner.export.graph import DOMAIN, TEXT, Graph

#: The text that stands for a missing one, where it is no category.
MISSING = ""


def rows_of(inputs: Inputs, graph: Graph, dtype: np.dtype) -> Traced:
    """Return the columns of numbers that a model sees, after the inputs they are computed from."""
    schema = inputs.schema
    if schema is None or schema.features_only() == Schema(schema.columns):
        return _matrix(graph, inputs.n_columns, dtype, "finite numbers")
    used = [e for e in schema.plain if not isinstance(e, DroppedColumn)]
    if _one_matrix(inputs, schema.plain):
        X = _matrix(graph, len(schema.columns), dtype, "numbers, NaN where missing")
        places = [schema.columns.index(e.name) for e in used]
        parts = [_columns(e, X[:, j : j + 1]) for e, j in zip(used, places, strict=True)]
    else:
        parts = [_columns(e, _cells(e, graph, dtype)) for e in used]
    return OnnxNamespace(graph).concat(parts, axis=1)


def _one_matrix(inputs: Inputs, encoders: Sequence[Encoder]) -> bool:
    """Whether all columns are numbers: those of an array, or of a table that has no others."""
    return inputs.names is None or all(isinstance(e, NumberColumn) for e in encoders)


def _matrix(graph: Graph, columns: int, dtype: np.dtype, what: str) -> Traced:
    name = graph.input("X", dtype, columns, f"rows of {columns} {what}")
    return OnnxNamespace(graph).astype(Traced(graph, name, (ANY, columns), dtype), FLOAT)


def _cells(encoder: Encoder, graph: Graph, dtype: np.dtype) -> Traced:
    """Return the cells of a column: places of texts among its levels, seconds, or numbers."""
    if encoder.levels is not None:
        return _places(graph, encoder.name, encoder.levels)
    if isinstance(encoder, TimeColumn):
        dtype, what = FLOAT, "seconds from 1970 on, NaN where missing"
    else:
        what = "numbers, NaN where missing"
    name = graph.input(encoder.name, dtype, 1, what)
    return OnnxNamespace(graph).astype(Traced(graph, name, (ANY, 1), dtype), FLOAT)


def _places(graph: Graph, name: str, levels: Sequence[str]) -> Traced:
    """Return places among the levels; after the last stands what is missing, then what is new."""
    keys = [*levels, *[MISSING] * (MISSING not in levels)]
    name = graph.input(name, TEXT, 1, f"texts, {MISSING!r} where missing")
    place = graph.node(
        "LabelEncoder",
        name,
        domain=DOMAIN,
        keys_strings=keys,
        values_int64s=list(range(len(keys))),
        default_int64=len(levels) + 1,
    )
    return Traced(graph, place, (ANY, 1), WHOLE)


@singledispatch
def _columns(encoder: Encoder, cells: Traced) -> Traced:
    """Return what the column becomes: of levels, a row of the table of all there can be."""
    levels = len(encoder.levels or ())
    table = encoder.encode(np.array([*range(levels), np.nan, UNSEEN]))
    xp = OnnxNamespace(cells.graph)
    return xp.reshape(xp.take(table, cells), (ANY, table.shape[1]))


@_columns.register
def _(encoder: NumberColumn, cells: Traced) -> Traced:
    filled, missing = _filled(cells, encoder.fill)
    return OnnxNamespace(cells.graph).concat([filled, *[missing] * encoder.indicator], axis=1)


@_columns.register
def _(encoder: TimeColumn, cells: Traced) -> Traced:
    seconds, missing = _filled(cells, encoder.fill)
    parts: list[Callable[[Any], tuple[Any, ...]]] = [PARTS[part][1] for part in encoder.parts]
    columns = [column for columns_of in parts for column in columns_of(seconds)]
    if "trend" in encoder.parts:
        columns[0] = columns[0] - encoder.origin / DAY
    return OnnxNamespace(cells.graph).concat([*columns, *[missing] * encoder.indicator], axis=1)


def _filled(cells: Traced, fill: float) -> tuple[Traced, Traced]:
    """Return the cells with missing ones filled, and 1 where they were missing."""
    xp = OnnxNamespace(cells.graph)
    missing = xp.isnan(cells)
    return xp.where(missing, fill, cells), xp.astype(missing, FLOAT)
