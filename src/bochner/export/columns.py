"""Rows as a graph takes them: one matrix of numbers, or a table's columns of text and times too."""

from collections.abc import Sequence

import numpy as np

from bochner.data.encoders import Encoder, Levels, Numbers, Times
from bochner.data.schema import Inputs, Schema
from bochner.export.arrays import ANY, FLOAT, WHOLE, OnnxNamespace, Traced
from bochner.export.graph import DOMAIN, TEXT, Graph

#: Text of a missing value, if it is no category.
MISSING = ""


def rows_of(inputs: Inputs, graph: Graph, dtype: np.dtype) -> Traced:
    """Return the numeric columns that a model sees; first add the graph inputs they come from."""
    schema = inputs.schema
    if schema is None or schema.features_only() == Schema(schema.columns):
        return _matrix(graph, inputs.n_columns, dtype, "finite numbers")
    used = schema.plain
    if inputs.names is None or all(isinstance(e, Numbers) for e in used):
        X = _matrix(graph, len(schema.columns), dtype, "numbers, NaN where missing")
        places = [schema.columns.index(e.name) for e in used]
        parts = [_columns(e, X[:, j : j + 1]) for e, j in zip(used, places, strict=True)]
    else:
        parts = [_columns(e, _cells(e, graph, dtype)) for e in used]
    return OnnxNamespace(graph).concat(parts, axis=1)


def _matrix(graph: Graph, columns: int, dtype: np.dtype, what: str) -> Traced:
    name = graph.input("X", dtype, columns, f"rows of {columns} {what}")
    return OnnxNamespace(graph).astype(Traced(graph, name, (ANY, columns), dtype), FLOAT)


def _cells(encoder: Encoder, graph: Graph, dtype: np.dtype) -> Traced:
    """Return the cells of a column: places of texts among its levels, seconds, or numbers."""
    if isinstance(encoder, Levels):
        return _places(graph, encoder.name, encoder.levels)
    if isinstance(encoder, Times):
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


def _columns(encoder: Encoder, cells: Traced) -> Traced:
    """Return the numeric columns that encode the cells of one column."""
    xp = OnnxNamespace(cells.graph)
    if isinstance(encoder, Levels):
        missing = np.arange(len(encoder.rows)) == len(encoder.levels)
        table = np.column_stack([encoder.rows, *[missing] * encoder.indicator])
        return xp.reshape(xp.take(table, cells), (ANY, table.shape[1]))
    assert isinstance(encoder, Numbers | Times)
    gone = xp.isnan(cells)
    filled = xp.where(gone, encoder.fill, cells)
    columns = encoder.columns(filled) if isinstance(encoder, Times) else [filled]
    return xp.concat([*columns, *[xp.astype(gone, FLOAT)] * encoder.indicator], axis=1)
