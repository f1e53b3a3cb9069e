"""Fitted learners and maps as ONNX files, for runtimes without Python."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bochner._core.checks import one_of
from bochner._core.native import Chains, Programme
from bochner.data.encoders import Encoder, Levels, Numbers, Times
from bochner.data.schema import Inputs, Schema
from bochner.data.writers import atomic
from bochner.errors import InvalidType, UnsupportedKernel
from bochner.export.arrays import (
    ANY,
    DOMAIN,
    FLOAT,
    OPSET,
    TEXT,
    WHOLE,
    Graph,
    OnnxNamespace,
    Rows,
    Traced,
    Unwritable,
)
from bochner.export.outputs import outputs
from bochner.features.map import FeatureMap
from bochner.features.mercer.hermite import Mehler
from bochner.features.mercer.products import Halves
from bochner.models._base import KernelEstimator
from bochner.models.unsupervised.kmeans import KernelCost
from bochner.persist.values import stored_classes


def to_onnx(
    model: Any, path: str | PathLike[str] | None = None, *, precision: str = "float32"
) -> Any:
    """Write a fitted learner, or a feature map, as a graph of ONNX.

    Parameters
    ----------
    model : estimator or FeatureMap
        Fitted to rows of numbers, or to a table.
    path : path, optional
        Usually named ``*.onnx``; a file that is there is replaced. Default: no file is written.
    precision : {"float32", "float64"}, default "float32"
        Of the numbers that come in and go out. All between is float64, because coefficients of
        smooth kernels are large and cancel. Take "float64" for numbers that float32 blurs.

    Returns
    -------
    onnx.ModelProto
        Operators of version 18 (onnxruntime 1.17 or later), for any number of rows. Of a model
        that was fitted to numbers, the one input is ``X`` of shape (rows, columns). Of one that was
        fitted to a table with text, dates or times, each column that it uses is an input of its
        name and of shape (rows, 1): text as text, "" where missing; dates and times as seconds
        from 1970 on in float64; numbers of ``precision``; NaN where missing. Categories, medians
        and other learned values are in the graph. Outputs by kind of model:

        ======================================  ================================================
        regressors                              ``prediction``; of a Gaussian process ``deviation``
        classifiers, :class:`OneClassSVM`       ``label``, ``decision``, and ``probability`` where
                                                ``predict_proba`` is there
        :class:`KernelPCA`, :class:`KernelCCA`  ``scores`` (of X)
        :class:`KernelKMeans`                   ``cluster``, ``distances``
        :class:`KernelFeatures`, maps           ``features``
        ======================================  ================================================

    Raises
    ------
    UnsupportedKernel
        The kernel or the map is made by steps that ONNX has no nodes for.
    InvalidInput
        A column has a name that the graph uses, such as "prediction" or "label".
    InvalidType
        Not a learner or map of bochner.
    MissingDependency
        The package onnx is not installed.

    Notes
    -----
    The outputs equal the model's for rows in float64, up to the rounding of ``precision``.
    If the fit rounded features to float32 ("auto" with many rows), what that rounding adds to
    the model's own predictions is missing from the graph's.

    Kernels are evaluated from differences of rows, column by column, as exactly as here: graphs of
    landmarks in hundreds of columns are long and slow. Rows must be finite, which is not checked. A
    ``MercerHarmonic`` map is NaN for rows a quarter farther from the centre than any row it was
    drawn from. Like a model file the graph holds rows of the training data where the map does.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = bo.KernelRidge(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> graph = bo.export.to_onnx(model)
    >>> [one.name for one in graph.graph.output]
    ['prediction']
    """
    one_of(precision, "to_onnx", "precision", ("float32", "float64"))
    if isinstance(model, FeatureMap):
        fit, inputs = model, Inputs(model.n_inputs)
    elif isinstance(model, KernelEstimator):
        check_is_fitted(model)
        fit, inputs = model.fit_, model.fit_.inputs
    else:
        kind = "estimator" if isinstance(model, BaseEstimator) else "value"
        raise InvalidType(
            "to_onnx: model must be a fitted estimator or a feature map of bochner; got the "
            f"{kind} {type(model).__module__}.{type(model).__qualname__}."
        )
    graph, dtype, who = Graph(), np.dtype(precision), type(model).__name__
    try:
        graph_outputs = outputs(fit, rows_of(inputs, graph, dtype))
    except Unwritable as reason:
        kernel = fit.kernel if isinstance(fit, FeatureMap) else fit.chosen.kernel
        raise UnsupportedKernel(
            f"to_onnx: a graph needs formulas of ONNX's operators; {who} needs {reason}, in "
            f"{kernel!r}. Use Fourier() or Nystrom() with a kernel such as Gaussian, "
            "Exponential, Laplace, Matern of smoothness 0.5, 1.5 or 2.5, or Polynomial."
        ) from reason
    xp, shapes = OnnxNamespace(graph), {}
    for name, value in graph_outputs.items():
        given = xp.astype(value, dtype) if value.dtype == FLOAT else value
        if not isinstance(given.shape[0], Rows):
            given = xp.spread(given, (ANY, *given.shape[1:]))
        graph.named(name, given.name)
        shapes[name] = (given.dtype, ["rows", *map(int, given.shape[1:])])
    text = f"{who} of bochner. Computed in float64; operators of version {OPSET}."
    made = graph.model(who, text, shapes)
    if path is not None:
        with atomic(path) as file:
            file.write(made.SerializeToString())
    return made


# --- Rows as a graph takes them: one matrix of numbers, or columns of text and times too ----------

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


# --- Types of bochner in skops files, to be passed as ``trusted`` when loading --------------------

#: Cached values of fits and maps, which model files leave out.
_KEPT = (Chains, Halves, KernelCost, Mehler, Programme)

#: Full names, as ``skops.io.load(file, trusted=bochner.export.TRUSTED)`` takes them: the classes
#: that bochner's model files hold, and what these keep. None runs code when it is built.
TRUSTED = sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in {*stored_classes(), *_KEPT})
