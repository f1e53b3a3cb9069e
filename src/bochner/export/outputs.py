"""Fitted learners and maps as graphs of ONNX, for runtimes without Python."""

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import dense, squared_norms
from bochner._core.checks import one_of
from bochner._core.native import Chains, Programme
from bochner.data.encoders import Encoder, Levels, Numbers, Times
from bochner.data.schema import Inputs, Schema
from bochner.data.writers import open_atomic
from bochner.errors import InvalidType, UnsupportedKernel
from bochner.export.arrays import ANY, DOMAIN, FLOAT, INTEGER, TEXT, Graph, NoOperator, Rows, Symbol
from bochner.features.map import FeatureMap
from bochner.models._base import KernelEstimator
from bochner.models.gaussian_process.law import ExactProcess, FeatureProcess
from bochner.models.gaussian_process.regressor import ProcessFit
from bochner.models.representations.exact import LeafRows
from bochner.models.unsupervised.kmeans import Clustering, KernelCost
from bochner.models.unsupervised.transformers import FeaturesFit
from bochner.persist.values import stored_classes


def to_onnx(
    model: Any, path: str | PathLike[str] | None = None, *, precision: str = "float32"
) -> Any:
    """Return a fitted learner, or a feature map, as an ONNX model; write it to ``path`` if given.

    Parameters
    ----------
    model : estimator or FeatureMap
        Fitted to rows of numbers, or to a table.
    path : path, optional
        Usually named ``*.onnx``; an existing file is replaced. Default: no file is written.
    precision : {"float32", "float64"}, default "float32"
        Type of inputs and outputs. All operations are float64, because coefficients of smooth
        kernels are large and cancel. Use "float64" for inputs such as times in seconds.

    Returns
    -------
    onnx.ModelProto
        Model of opset 18 (onnxruntime 1.17 or later), for any number of rows. A model fitted to
        numbers has one input, ``X`` of shape (rows, columns). A model fitted to a table with text,
        dates or times has an input (rows, 1) per column, with its name: text ("" if missing); dates
        as seconds since 1970 and times of day as seconds since midnight, in float64; and numbers in
        ``precision`` (NaN if missing). Outputs by kind of model:

        ======================================  ================================================
        regressors                              ``prediction``; for a Gaussian process also
                                                ``deviation``, the standard deviation of f
        classifiers, :class:`OneClassSVM`       ``label``, ``decision``, and ``probability`` if
                                                the model has ``predict_proba``
        :class:`KernelPCA`, :class:`KernelCCA`  ``scores`` (of X)
        :class:`KernelKMeans`                   ``cluster``, ``distances``
        :class:`KernelFeatures`, maps           ``features``
        ======================================  ================================================

    Raises
    ------
    UnsupportedKernel
        The kernel or the map needs operations without ONNX nodes.
    InvalidInput
        A column has a name that the graph uses, such as "prediction" or "label".
    InvalidType
        The model is not a learner or feature map of bochner.
    MissingDependency
        The package onnx is not installed.

    Notes
    -----
    The outputs equal the model's for rows in float64, up to the rounding of ``precision`` and, if
    the fit rounded features to float32, up to the rounding of the model's predictions.

    Kernels are evaluated from differences of rows, column by column: graphs of landmarks in
    hundreds of columns are long and slow. Rows must be finite, which is not checked. Like a model
    file, the graph contains training rows if the map does.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    >>> model = bo.KernelRidge(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> graph = bo.export.to_onnx(model)
    >>> [output.name for output in graph.graph.output]
    ['prediction']
    """
    one_of(precision, "to_onnx", "precision", ("float32", "float64"))
    if isinstance(model, FeatureMap):
        inputs = Inputs(model.n_inputs)
    elif isinstance(model, KernelEstimator):
        check_is_fitted(model)
        inputs = model.fit_.inputs
    else:
        raise InvalidType(
            "to_onnx: model must be a fitted estimator or a feature map of bochner; got "
            f"{type(model).__module__}.{type(model).__qualname__}."
        )
    graph, dtype, caller = Graph(), np.dtype(precision), type(model).__name__
    try:
        graph_outputs = outputs(model, add_inputs(inputs, graph, dtype))
    except NoOperator as reason:
        kernel = model.kernel if isinstance(model, FeatureMap) else model.fit_.chosen.kernel
        raise UnsupportedKernel(
            f"to_onnx: a graph needs formulas of ONNX's operators; {caller} needs {reason}, in "
            f"{kernel!r}. Use Fourier() or Nystrom() with a kernel such as Gaussian, "
            "Exponential, Laplace, Matern of smoothness 0.5, 1.5 or 2.5, or Polynomial."
        ) from reason
    values = {}
    for name, output in graph_outputs.items():
        value = graph.astype(output, dtype) if output.dtype == FLOAT else output
        is_constant = not isinstance(value.shape[0], Rows)  # the same for all rows
        values[name] = graph.expand(value, (ANY, *value.shape[1:])) if is_constant else value
    proto = graph.model(caller, values)
    if path is not None:
        with open_atomic(path) as file:
            file.write(proto.SerializeToString())
    return proto


# --- Inputs of a graph: one matrix of numbers, or columns of numbers, text and times --------------


def add_inputs(inputs: Inputs, graph: Graph, dtype: np.dtype) -> Symbol:
    """Add the inputs to the graph, and return them encoded as numeric columns."""
    schema = inputs.schema

    def matrix(columns: int, text: str) -> Symbol:
        return graph.astype(graph.input("X", dtype, columns, f"rows of {columns} {text}"), FLOAT)

    if schema is None or schema.features_only() == Schema(schema.columns):
        return matrix(inputs.n_columns, "finite numbers")
    encoders = schema.plain
    if inputs.names is None or all(isinstance(e, Numbers) for e in encoders):
        X = matrix(len(schema.columns), "numbers, NaN where missing")
        places = [schema.columns.index(e.name) for e in encoders]
        parts = [_columns(e, X[:, j : j + 1]) for e, j in zip(encoders, places, strict=True)]
    else:
        parts = [_columns(e, _cells(e, graph, dtype)) for e in encoders]
    return graph.concat(parts, axis=1)


def _cells(encoder: Encoder, graph: Graph, dtype: np.dtype) -> Symbol:
    """Return the cells of a column: numbers, seconds, or for text the index of its level.

    With L levels, the index of a missing value is L, and that of an unseen value L + 1.
    """
    if not isinstance(encoder, Levels):
        is_time = isinstance(encoder, Times)
        kind, text = (FLOAT, "seconds since 1970") if is_time else (dtype, "numbers")
        cells = graph.input(encoder.name, kind, 1, f"{text}, NaN where missing")
        return graph.astype(cells, FLOAT)
    keys = [*encoder.levels, *[""] * ("" not in encoder.levels)]
    place = graph.node(
        "LabelEncoder",
        graph.input(encoder.name, TEXT, 1, "texts, '' where missing").name,
        domain=DOMAIN,
        keys_strings=keys,
        values_int64s=list(range(len(keys))),
        default_int64=len(encoder.levels) + 1,
    )
    return Symbol(graph, place, (ANY, 1), INTEGER)


def _columns(encoder: Encoder, cells: Symbol) -> Symbol:
    """Return the numeric columns that encode the cells of one column."""
    xp = cells.graph
    if isinstance(encoder, Levels):
        missing = np.arange(len(encoder.rows)) == len(encoder.levels)
        table = np.column_stack([encoder.rows, *[missing] * encoder.indicator])
        return xp.reshape(xp.take(table, cells), (ANY, table.shape[1]))
    assert isinstance(encoder, Numbers | Times)
    missing = xp.isnan(cells)
    values = xp.where(missing, encoder.fill, cells)
    columns = encoder.columns(values) if isinstance(encoder, Times) else [values]
    return xp.concat([*columns, *[xp.astype(missing, FLOAT)] * encoder.indicator], axis=1)


# --- Outputs for symbolic rows, by name -----------------------------------------------------------

Outputs = dict[str, Symbol]


def outputs(model: Any, X: Symbol) -> Outputs:
    """Return the outputs of a map or learner for rows X, by name."""
    if isinstance(model, FeatureMap):
        return {"features": model.features(X)}
    match model.fit_:
        case Clustering() as fit:
            xp, Z, C = X.graph, fit.chosen.precision_map.features(X), fit.clusters.centres
            gaps = squared_norms(C) - 2.0 * (Z @ C.T)
            squares = gaps + squared_norms(Z)[:, None]
            distances = xp.sqrt(xp.maximum(squares, 0.0))
            return {"cluster": xp.argmin(gaps, axis=1), "distances": distances}
        case ProcessFit() as fit:
            return _process_outputs(fit, X)
        case FeaturesFit() as fit:
            f = fit.chosen.precision_map.features(X)
        case fit if isinstance(rows := getattr(fit, "representation", None), LeafRows):
            # Zero for rows outside of a leaf
            f = sum(rows.machine(leaf, fit.solution)(X) * mask for leaf, mask in _leaves(rows, X))
            f = fit.pairs.values(f) if getattr(fit, "pairs", None) else f
        case fit:
            f = fit.values()(X)
    return model._outputs_of(f)


def _leaves(rows: LeafRows, X: Symbol) -> Iterator[tuple[int, Any]]:
    """Yield the index of each leaf of a tree, and a column: 1 for rows in the leaf, else 0."""
    xp, tree = X.graph, rows.tree
    kernel, X = rows.chosen.kernel.unwrap(X)

    def descend(number: int, mask: Any) -> Iterator[tuple[int, Any]]:
        if number < 0:  # a leaf
            yield -1 - number, mask
            return
        K = kernel.evaluate(X, xp.asarray(tree.rows[number]))
        p = K @ tree.weights[number][:, None]
        second = xp.where(p >= float(tree.cuts[number]), 1.0, 0.0)
        for child, condition in zip(tree.children[number], (1.0 - second, second), strict=True):
            yield from descend(int(child), condition * mask)

    return descend(0 if len(tree.cuts) else -1, 1.0)


# --- Gaussian processes --------------------------------------------------------------------------


def _process_outputs(fit: ProcessFit, X: Symbol) -> Outputs:
    xp = X.graph
    match fit.law:
        case FeatureProcess() as law:
            Z = law.chosen.precision_map.features(X)
            kernel, landmarks = law.unexplained.kernel, law.unexplained.landmarks
            k = kernel.diagonal(X)
            span = Z if landmarks is None else landmarks.features(X)
            e = xp.maximum(k - squared_norms(span), 0.0)
            mean = law.mean(Z)
            variance = law.total_variance(law.leverage(Z), e, k)
        case ExactProcess() as law:
            k = law.chosen.kernel.evaluate(X, xp.asarray(dense(law.representation.X)))
            prior, parts = law.chosen.kernel.diagonal(X)[:, None], []
            for factor, a2 in zip(law.factors, law.evidence.amplitude, strict=True):
                inverse, constant, total = factor.quadratic
                posterior = prior - xp.sum((k @ inverse) * k, axis=1, keepdims=True)
                if law.spec.fit_intercept:
                    posterior = posterior + xp.square(k @ constant[:, None] - 1.0) / total
                parts.append(a2 * xp.maximum(posterior, 0.0))
            mean, variance = k @ law.coef + law.intercept, xp.concat(parts, axis=1)
        case law:
            raise NoOperator(f"predictions of a {type(law).__name__}")
    pair = mean, xp.sqrt(variance)
    pair = pair if fit.target_shape else tuple(values[:, 0] for values in pair)
    return dict(zip(("prediction", "deviation"), pair, strict=True))


# --- Types of bochner in skops files, to be passed as ``trusted`` when loading --------------------

#: Full names for ``skops.io.load(file, trusted=bochner.export.TRUSTED)``: the classes of bochner's
#: model files, and of values that they cache. No class runs code of the file when it is built.
TRUSTED = sorted(
    f"{cls.__module__}.{cls.__qualname__}"
    for cls in {*stored_classes(), Chains, KernelCost, Programme}
)
