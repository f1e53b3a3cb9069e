"""Base class of all estimators: parameters, one fitted value, checked rows.

An estimator has parameters and ``fit_``, an immutable value that ``fit`` assigns as its last step:
after a failed ``fit`` the estimator predicts as before. Fitted attributes are properties that read
``fit_``.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags, estimator_html_repr, validation

from bochner import __version__
from bochner._core import arrays
from bochner._core.names import NamedArguments, require_arguments
from bochner._core.optional import package
from bochner._core.progress import listening, print_step, progress
from bochner._core.shapes import Array, Float, Gradients, Predictions, Tabular
from bochner._core.sizes import FEW_CELLS, block_rows
from bochner._core.text import HtmlResult, facts_in_words, html_table
from bochner._core.threads import limit_jobs
from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks, count_rows
from bochner.data.frames import is_pandas, library_of
from bochner.data.schema import Inputs, quote, reasons, refuse_repeated
from bochner.data.sources import array_source, is_file_array, join
from bochner.data.tables import Tables
from bochner.errors import InvalidInput, ModelFileError
from bochner.features.nystrom import PrecisionMap
from bochner.kernels.algebra import Monotone
from bochner.kernels.windows import as_rows
from bochner.models import _tables
from bochner.selection.choices import FeatureSpec
from bochner.selection.descriptions import describe, join_names
from bochner.selection.rows import deviations
from bochner.selection.spec import DEFAULT_PENALTY, NAMED, SEARCHED, accepts_sparse, as_kernel
from bochner.sums.passes import LOCAL, Engine, Executor, as_engine, draw_rows, engine_of

#: Key of the version in the state of a pickle; with its space it cannot be an attribute's name.
_WRITTEN = "bochner version"


def getter(path: str, doc: str, message: str = "", by_target: bool = False) -> Any:
    """Return a property that reads ``path`` of the fit; with ``message``, None is an error."""
    read = attrgetter(path)

    def value(model: "KernelEstimator") -> Any:
        result = read(model._fitted)
        if result is None and message:
            raise AttributeError(message)
        return model._squeeze(result) if by_target else result  # one number for a single target

    return property(value, doc=doc)


class KernelEstimator(NamedArguments, BaseEstimator):
    """Base class of the estimators: parameters and one fitted value."""

    __shared__ = ("verbose",)  # A parameter of every estimator
    verbose: bool = False
    kernel: Any
    fit_: Any
    _path: Any = None  # Compared penalties and their errors
    _update: Any  # (blocks, inputs) -> the fit with these rows added

    @limit_jobs
    def fit(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix or table; columns of a table may have text, dates and missing
            values. With a kernel of sequences also (n, steps, channels), or a list of arrays.
            The workers of dask, ray.data and pyspark read the partitions of their tables. A
            polars LazyFrame, pyarrow dataset, DuckDB relation or ibis table is read in batches,
            once per pass.
        y : (n,) or (n, t)
            Numbers; for a classifier labels of any type, (n,), of at least two classes. For a table
            also the name of its target column; ray.data, pyspark and tables read in batches require
            the name. For dask also a column or array of dask.
        sample_weight : (n,), optional
            Finite, not negative; for a table also the name of a column. A row of weight 2 counts as
            two rows.

        Returns
        -------
        self

        Raises
        ------
        InvalidInput, ValueError
            If the data cannot be used; the message says what to do.
        """
        if not isinstance(X, np.ndarray):
            X, y, sample_weight = _tables.pop_targets(type(self).__name__, X, y, sample_weight)
            if library_of(X, "engine", "lazy"):
                blocks = _tables.lazy_blocks(type(self).__name__, X, y, sample_weight)
                return self.fit_blocks(blocks)
        self.fit_ = self._fit_rows(X, y, sample_weight)
        return self

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """Return the fit to rows in memory."""
        return self._run(self._fit, *self._read(X, y, sample_weight))

    @limit_jobs
    def fit_blocks(self, blocks: Blocks, where: Engine = LOCAL) -> Self:
        """Fit to blocks of rows: files larger than memory, tables, or repeatable streams.

        Parameters
        ----------
        blocks : Blocks
            Rows, with their targets for a regressor or classifier.
        where : engine, optional
            Engine that reads the rows, see :mod:`bochner.engines`. Default: dask, Ray or Spark for
            their own tables, otherwise this process.

        Returns
        -------
        self
        """
        caller = type(self).__name__
        engine = engine_of(blocks) if where is LOCAL else as_engine(where, caller)
        params = self.get_params() | {"n_jobs": None, "verbose": False}
        with engine.passes(f"{caller} {sorted(params.items())}", blocks) as executor:
            rows = self._read(blocks, where=executor)
            self.fit_ = self._run(self._fit, *rows, executor)
        return self

    def _run(self, fit: Callable[..., Any], blocks: Blocks, *arguments: Any) -> Any:
        """Return ``fit(blocks, *arguments)``; its steps are logged, and printed if ``verbose``."""
        start = time.monotonic()
        with listening(print_step) if self.verbose else nullcontext():
            result = fit(blocks, *arguments)
            progress(f"{type(self).__name__} fitted in {time.monotonic() - start:.2f} s", blocks)
        return result

    @abstractmethod
    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> Any:
        """Return the fit to checked rows."""

    @limit_jobs
    def _add_rows(self, X: Any, y: Any, sample_weight: Any, **classes: Any) -> Self:
        """Add rows in memory to the fit; without a fit, make one from these rows."""
        first = not self._has_sums
        rows = self._read(X, y, sample_weight, first=first, **classes)
        self.fit_ = self._run(self._first_piece if first else self._update, *rows)
        return self

    @property
    def _has_sums(self) -> bool:
        """Whether the estimator has a fit to which rows can be added."""
        return self.__sklearn_is_fitted__()

    def _first_piece(self, blocks: Blocks, inputs: Inputs) -> Any:
        """Return the fit to the first batch of rows."""
        return self._fit(blocks, inputs)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {_WRITTEN: __version__}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        version = state.get(_WRITTEN, "an unknown version")
        if version != __version__:  # parameters may have another meaning
            raise ModelFileError(
                f"{type(self).__name__}: a pickle opens only in the version of bochner that wrote "
                f"it; this is {__version__}, the pickle is from {version}. Fit again, and store "
                "models with bochner.save, whose files later versions open."
            )
        self.__dict__.update({n: value for n, value in state.items() if n != _WRITTEN})

    @property
    def _fitted(self) -> Any:
        """The fit; NotFittedError (an AttributeError) before ``fit``."""
        if "fit_" not in self.__dict__:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        return self.fit_

    def _squeeze(self, values: Any) -> Any:
        """Return values of all targets; a subclass may drop the axis of a single target."""
        return values

    def __sklearn_is_fitted__(self) -> bool:
        return "fit_" in self.__dict__

    _inputs = getter("inputs", "Columns and classes of the training data.")
    _chosen = getter("chosen", "The chosen kernel and feature map.")
    n_features_in_ = getter("inputs.n_features_in", "Number of columns of X.")
    schema_ = getter("inputs.schema", "A Schema of the columns of a table; None for arrays.")
    seed_ = getter("chosen.seed", "Seed of features, samples and folds.")
    feature_dtype_ = getter("chosen.precision", "Floating-point precision of the features.")
    kernel_ = getter("chosen.kernel", "The kernel of the fit, with all hyperparameters.")
    map_ = getter("chosen.map", "Feature map φ; for the exact kernel the Nyström map of all rows.")
    choice_ = getter(
        "chosen.explained", "A Choice: the chosen method, the compared methods, and the reason."
    )

    @property
    def search_(self) -> Any:
        """A Tuning: the kernels that were compared and their errors."""
        inputs, search = self._inputs, self._fitted.chosen.search
        names = inputs.names if inputs.schema is None else inputs.schema.feature_names
        return replace(search, names=names or ())

    @property
    def feature_names_in_(self) -> Array:
        """Names of the columns, if they have names."""
        names = self._inputs.names
        if names is None:
            raise AttributeError("feature_names_in_: the columns of the fit had no names.")
        return np.array(names, dtype=object)

    metric_ = getter(
        "chosen.metric",
        'A Tuning with the learned metric, for ``metric="learned"``.',
        'metric_: only a fit with metric="learned" has this attribute.',
    )

    def _certificate_on(self, blocks: Blocks, new_rows: bool = False) -> Certificate:
        """Return the certificate of the features on these rows, at a penalty for squared error."""
        rows, n = draw_rows(blocks, self.seed_), count_rows(blocks)
        return certify(
            PrecisionMap(self.kernel_, self.map_, self.feature_dtype_),
            rows.X,
            alpha=self._ridge_penalty(rows.X[:SEARCHED], n),
            kernel=self.kernel_,
            n_rows=n,
            random_state=self.seed_,
        )

    def _ridge_penalty(self, X: Any, n: int) -> float:
        """Return the ridge penalty of the fit: alpha, 1/(2C), or n/1000 times the mean k(x, x)."""
        if hasattr(self, "alpha_"):
            return float(np.min(self.alpha_))
        if hasattr(self, "C_"):
            return 1 / (2 * float(np.min(self.C_)))
        return 0.0 if X is None else DEFAULT_PENALTY * n * float(np.mean(self.kernel_.diag(X)))

    def outputs(self, X: Tabular) -> dict[str, Array]:
        """Return all predictions for rows as a dict of arrays, from one pass.

        Names are the same as for the outputs of :func:`bochner.export.to_onnx`.
        """
        values = self._fitted.predictions(self._rows_to_predict(X))
        return self._outputs_of(np.concatenate([arrays.to_numpy(f) for _, f in values]))

    def _outputs_of(self, f: Array) -> dict[str, Array]:
        """Return the outputs from values f of the fit, an array or a node of an ONNX graph."""
        return {"scores": f}

    def _feature_spec(self, method: Any) -> FeatureSpec:
        """Return the checked parameters of kernel and features."""
        options = vars(self) | {"method": method, "of_classes": isinstance(self, ClassifierMixin)}
        return FeatureSpec.of(type(self).__name__, **options)

    def _read(
        self, *rows: Any, first: bool = True, where: Executor = LOCAL, classes: Any = None
    ) -> tuple[Blocks, Inputs]:
        """Return the rows as blocks, and their inputs; with ``classes``, y holds class codes."""
        # ``rows`` are X, y and sample_weight, or Blocks. With ``first`` the schema that encodes
        # tables, and arrays with NaN, is learned from these rows; later calls use it.
        caller, fitted = type(self).__name__, None if first else self._inputs
        X, y, sample_weight = (*rows, None, None)[:3]
        if isinstance(X, Blocks):
            n_classes = 0 if classes is None else len(classes)
            options = n_classes, isinstance(self, ClassifierMixin | RegressorMixin), where
            blocks = _tables.encode(caller, X, *options) if first else self._encode_as_fit(X)
            return blocks, self._inputs_of(blocks, first)
        kind, schema = "numbers", None if fitted is None else fitted.schema
        is_plain = arrays.are_numbers(X, y, sample_weight) and np.ndim(X) == 2
        if not is_plain:
            columns = None if fitted is None else fitted.n_features_in
            X, kind = read_as(caller, X, y, sample_weight, self.kernel, columns)
        encoded = bool(fitted and fitted.names is None and schema and schema.encoders)  # of arrays
        is_table = kind == "text" if first else schema is not None and _tables.is_table(X)
        if is_table and not encoded:
            return self._table_blocks(X, y, sample_weight, fitted, classes)
        if schema is not None and not encoded and (schema.categories or schema.encoders):
            raise InvalidInput(
                f"{caller}: X must be a table with the columns {', '.join(schema.columns)}, "
                f"because the fit used a table with nonnumeric columns; got {type(X).__name__}."
            )
        if kind == "foreign" and not encoded:
            blocks = Blocks.from_arrays(X, y, sample_weight)
            return blocks, self._inputs_of(blocks, first)
        if not is_plain:
            arrays.refuse_dates(X, caller)
        X, y, inputs = self._check(X, y, fitted)
        gaps = np.isnan(X.data if arrays.is_sparse(X) else X).any()
        if gaps and not encoded:
            _tables.refuse_gaps(caller, X, first, vars(self).get("method"))
        # The search may transform columns or choose a sum over columns, which needs dense rows
        chosen = isinstance(self.kernel, str) and self.kernel != "linear"
        if chosen and arrays.is_sparse(X) and X.shape[0] * X.shape[1] <= FEW_CELLS:
            X = arrays.dense(X)
        if encoded or gaps:
            pyarrow = package("pyarrow", f"{caller}: filling missing values of an array")
            table = pyarrow.table({f"x{j}": column for j, column in enumerate(X.T)})
            blocks, inputs = self._table_blocks(table, y, sample_weight, fitted, classes)
            return blocks, replace(inputs, names=None)
        if sample_weight is not None:
            sample_weight = validation._check_sample_weight(
                sample_weight, X, ensure_non_negative=True
            )
        blocks = Blocks(array_source(X, y, sample_weight), block_rows(X.shape[1]))
        if arrays.is_sparse(X) and not first and not accepts_sparse(self.kernel_):
            blocks = blocks.map(lambda block: block._replace(X=arrays.dense(block.X)))
        return blocks, inputs

    def _check(self, X: Any, y: Any, fitted: Inputs | None) -> tuple[Any, Any, Inputs]:
        """Return X and y, checked by scikit-learn (NaN is allowed in X), and the inputs."""
        takes_sparse = fitted is not None or not arrays.is_sparse(X) or accepts_sparse(self.kernel)
        options: Any = {
            "accept_sparse": takes_sparse and "csr",
            "dtype": ["float64", "float32"],
            "ensure_all_finite": "allow-nan",
        }
        targets = {} if y is None else {"y": y, "multi_output": True, "y_numeric": True}
        try:
            if fitted is not None:
                checked = validation.validate_data(self, X, reset=False, **targets, **options)
            else:
                check = validation.check_array if y is None else validation.check_X_y
                checked = check(X, estimator=self, **targets, **options)
        except ValueError as error:
            _tables.raise_in_one_sentence(type(self).__name__, X, error)
        may_have_names = fitted is None and not isinstance(X, np.ndarray)
        names = validation._get_feature_names(X) if may_have_names else None
        X, y = (checked, None) if y is None else checked
        return X, y, fitted or Inputs(X.shape[1], names if names is None else tuple(names.tolist()))

    def _table_blocks(
        self, X: Any, y: Any, sample_weight: Any, fitted: Inputs | None, classes: Any
    ) -> tuple[Blocks, Inputs]:
        schema = None if fitted is None or fitted.schema is None else fitted.schema.features_only()
        table = Blocks.from_table(X, schema=schema)
        if fitted is not None and y is None and sample_weight is None:
            return table, fitted
        table, inputs = KernelEstimator._read(
            self, table.with_targets(y, sample_weight), first=fitted is None, classes=classes
        )
        # Encode once, because a fit reads the rows several times
        rows = join([*table])
        return Blocks.from_arrays(*rows), inputs

    def _encode_as_fit(self, blocks: Blocks) -> Blocks:
        """Return blocks encoded as in the fit; unchanged if a column of its table is missing."""
        tables, schema = blocks.source, self._inputs.schema
        if schema is not None and isinstance(tables, Tables) and not _tables.is_learned(tables):
            read = set(schema.features_only().read_names)
            if schema.encoders and read <= set(tables.schema.columns):
                return replace(blocks, source=tables.with_schema(schema))
        return blocks

    def _inputs_of(self, blocks: Blocks, first: bool = True) -> Inputs:
        """Return the inputs of the blocks; unless ``first``, they must match the fit."""
        caller, schema = type(self).__name__, blocks.schema
        inputs = None if first else self._inputs
        if schema is not None and schema.classes and not isinstance(self, ClassifierMixin):
            raise InvalidInput(
                f"{caller}: target {schema.target!r} must hold numbers; got text "
                f"({quote(schema.classes)}). Code it as numbers first, or use a classifier."
            )
        columns = len(schema.columns) if schema is not None else blocks.n_columns
        if inputs is None:
            names = None if schema is None else tuple(schema.columns)
            return Inputs(columns, names, schema)
        if columns != inputs.n_features_in:
            raise InvalidInput(
                f"X has {columns} features, but {caller} is expecting "
                f"{inputs.n_features_in} features as input."
            )
        return inputs

    def _rows_to_predict(self, X: Any) -> Blocks:
        """Return checked rows to predict as blocks, encoded as the training data were."""
        if not isinstance(X, Blocks):
            return KernelEstimator._read(self, X, first=False)[0]
        X, inputs = self._encode_as_fit(X), self._inputs
        if X.n_columns != inputs.n_columns:
            raise InvalidInput(
                f"X has {X.n_columns} columns, but {type(self).__name__} is expecting "
                f"{inputs.n_columns}. Read files and tables with schema=model.schema_."
            )
        return X

    def _atomic(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of a call of several steps; a failed call changes no attribute."""
        draft = copy(self)
        result = call(draft, *args, **kwargs)
        self.__dict__ = draft.__dict__
        return result

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__lengthscale=2.0`` replaces a hyperparameter of the kernel.

        The kernel that was passed in is not changed. A kernel name becomes this kernel with
        lengthscale 1. If one parameter is invalid, no parameter is changed.
        """
        inner = {k.removeprefix("kernel__"): v for k, v in params.items() if k[:8] == "kernel__"}
        outer = {k: v for k, v in params.items() if k[:8] != "kernel__"}
        require_arguments(type(self), (name.partition("__")[0] for name in outer))
        draft = copy(self)
        BaseEstimator.set_params(draft, **outer)
        if inner:
            kernel = as_kernel(draft.kernel)
            value = NAMED[kernel](1.0) if isinstance(kernel, str) else kernel
            draft.kernel = value.replace(**inner)
        self.__dict__ = draft.__dict__
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = accepts_sparse(self.kernel)
        tags.input_tags.allow_nan = True
        return tags

    # In notebooks: scikit-learn's diagram and the facts of the fit.

    def _get_fitted_attr_html(self, doc_link: str = "") -> "FitSummary":
        return self.fit_

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram, followed by the fit if the diagram does not contain it."""
        diagram = estimator_html_repr(self)
        if "fit_" not in self.__dict__:
            return diagram
        page = self.fit_._repr_html_()
        return diagram if page in diagram else diagram + page

    _repr_html_inner = _html_repr

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return text and, unless ``display="text"`` was set in scikit-learn, HTML."""
        bundle = {"text/plain": repr(self)}
        html = get_config()["display"] == "diagram"
        return bundle | ({"text/html": self._html_repr()} if html else {})


class Differentiable(KernelEstimator):
    """An estimator whose predictions or decision values have gradients with respect to X."""

    def gradient(self, X: Tabular) -> Float[Array, "n d *t"]:
        """Return the gradients of the predictions with respect to X.

        For a classifier and a one-class machine: the gradients of ``decision_function``.

        Parameters
        ----------
        X : (n, d)
            Rows, as in ``predict``.

        Returns
        -------
        gradients : (n, d), or (n, d, t) of t targets, or (n, d, K) of K > 2 classes
            In units of the prediction per unit of the column, as float64 in the array library of
            X. For tables: with respect to the encoded columns (``schema_``).

        Raises
        ------
        UnsupportedKernel
            If the features or their kernel have no gradient in closed form; the message names
            alternatives.

        Notes
        -----
        Gradients are computed in closed form, from features in float64. For a Gaussian process
        they are the gradients of its mean. Time: about twice ``predict`` for each target; memory:
        the result and a block of features.
        """
        parts = []
        for rows, G in self._gradients(self._rows_to_predict(X)):
            shape = self._fitted.target_shape
            if isinstance(self, ClassifierMixin):
                shape = G.shape[2:] if G.shape[2:] != (1,) else ()
            parts.append(arrays.from_numpy(G.reshape(*G.shape[:2], *shape), like=rows))
        return arrays.concat(parts)

    def _gradients(self, blocks: Blocks) -> Gradients:
        """Yield X and the gradients at X for each block."""
        return self._fitted.gradients(blocks)


class Unsupervised(KernelEstimator):
    """An estimator without targets."""

    def fit(self, X: Tabular, y: object = None, sample_weight: Array | None = None) -> Self:
        """Fit to rows in memory; y is ignored.

        Parameters
        ----------
        X : (n, d)
            Array, sparse matrix, or table.
        y : ignored
        sample_weight : (n,), optional
            Finite, not negative. A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        return super().fit(X, None, sample_weight)

    def _read(self, *rows: Any, **options: Any) -> tuple[Blocks, Inputs]:
        blocks, inputs = super()._read(*rows, **options)
        return blocks.recode(lambda _: None), inputs


def read_as(
    caller: str, X: Any, y: Any, w: Any, kernel: object, n_columns: int | None
) -> tuple[Any, Literal["numbers", "text", "foreign"]]:
    """Return X, with each sequence as a row, and its kind; refuse masked cells.

    Kinds: "numbers", "text" (a table to encode), "foreign" (of another library, or a file).
    """
    for array, name in ((X, "X"), (y, "y"), (w, "sample_weight")):
        arrays.refuse_masked(array, caller, name)
    arrays.refuse_dates(w, caller, "sample_weight")
    if not is_foreign(y):
        _tables.refuse_no_numbers(caller, y)
    X = as_rows(caller, X, kernel, n_columns)
    if isinstance(X, np.ndarray) or arrays.is_sparse(X):
        return X, "numbers"
    if hasattr(X, "to_frame") and hasattr(X, "dtype"):
        raise InvalidInput(
            f"{caller}: X must have two dimensions, rows and at least one column; got a Series, "
            "which is one column. Pass X.to_frame()."
        )
    if is_pandas(X):
        refuse_repeated(X.columns.tolist(), f"{caller}: the columns of X must have different names")
    if _tables.is_table(X):
        return X, "text" if _tables.needs_schema(X) else "numbers"
    return X, "foreign" if is_foreign(X) or is_file_array(X) else "numbers"


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library than NumPy (torch, array-api-strict, ...)."""
    is_supported = isinstance(X, np.ndarray) or arrays.is_sparse(X) or _tables.is_table(X)
    if is_supported or not hasattr(X, "shape"):
        return False
    try:
        return "numpy" not in arrays.array_namespace(X).__name__.split(".")
    except TypeError:
        return False


def kernel_words(fit: Any, names: Sequence[str] | None) -> str:
    """Return the kernel in words; lengthscales are in standard deviations if the fit has rows."""
    kernel, X, w = fit.chosen.kernel, None, None
    representation = getattr(getattr(fit, "law", fit), "representation", None)
    for rows in (getattr(representation, "sample", None), representation, fit):
        table = getattr(rows, "X", None)
        if table is None or arrays.is_sparse(table):
            continue
        if table.shape[1] == fit.inputs.n_columns:
            w = getattr(rows, "w", None)
            X, w = table, np.ones(table.shape[0]) if w is None else w
            break
    if not isinstance(kernel, Monotone):
        return describe(kernel, names, None if X is None else deviations(X, w))
    curves = fit.chosen.curves
    method = "" if curves is None else f" ({curves.name})"
    spread = None if X is None else deviations(kernel.inputs(np.asarray(X, np.float64)), w)
    transformed = join_names([names[j] if names else f"column {j}" for j in kernel.columns])
    return f"{describe(kernel.kernel, names, spread)}; transformed{method}: {transformed}"


class FitSummary(HtmlResult):
    """Inputs, choices and results of a fit, for print and notebooks."""

    inputs: Inputs
    chosen: Any
    values: Any  # () -> f, f: X ↦ (b, t), with the gradients f.slopes: X ↦ (b, d, t)

    block_rows = property(attrgetter("chosen.block_rows"))  # Rows per block in predictions

    @cached_property
    def function(self) -> Any:
        """The function of ``values``, cached; pickles omit it."""
        return self.values()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "function"}

    def predictions(self, blocks: Blocks) -> Predictions:
        """Yield (X, f(X)) for each block."""
        for block in blocks.with_rows(self.block_rows):
            yield block.X, self.function(block.X)

    def gradients(self, blocks: Blocks) -> Gradients:
        """Yield X and the gradients of f at X for each block."""
        slopes, limit = self.function.slopes, max(256, (1 << 22) // blocks.n_columns)  # 32 MB
        for block in blocks.with_rows(min(self.block_rows, limit)):
            yield block.X, slopes(np.ascontiguousarray(arrays.to_numpy(block.X), dtype=np.float64))

    def facts(self) -> dict[str, Any]:
        """Return all facts of the fit by name: numbers, texts and lists.

        A fact "name" may have a longer text for people under "name_words".
        """
        inputs, schema, search = self.inputs, self.inputs.schema, self.chosen.search
        n, raw = inputs.n_columns, inputs.n_features_in
        names = inputs.names if schema is None else schema.feature_names
        dropped = {} if schema is None else reasons(schema.dropped)
        choice = self.chosen.explained
        facts = {
            "columns": n,
            "columns_words": f"{n:,}" + f" (of {raw:,} in the table)" * (n != raw),
            "raw_columns": raw,
            "names": list(names or ()),
            "targets": list((schema and schema.target_names) or ()),
            "classes": None if inputs.classes is None else inputs.classes.tolist(),
            "left_out": [f"{', '.join(names)} ({reason})" for reason, names in dropped.items()],
            "kernel": repr(self.chosen.kernel),
            "kernel_words": kernel_words(self, names),
            "kernel_chosen": bool(search.candidates),
            "precision": self.chosen.precision,
            "seed": self.chosen.seed,
            "method": repr(choice.method),
            "method_words": choice.reason,
        }
        if choice.method.has_features:
            facts["n_features"] = choice.map.n_features
        return facts | self._results()

    def __str__(self) -> str:
        facts = facts_in_words(self.facts())
        longest = max(len(name) for name, _ in facts)
        lines = (f"  {name:<{longest}}  {words}" for name, words in facts)
        return "\n".join((type(self).__name__, *lines))

    def _html_parts(self) -> Iterator[str]:
        yield html_table((), [pair for pair in facts_in_words(self.facts()) if pair[1]], words=(1,))

    def _results(self) -> dict[str, Any]:
        return {}

    # With these two methods scikit-learn's diagram shows this summary. Its own table would read all
    # attributes, and so compute certificates and calibrations.

    _repr_html_inner = HtmlResult._repr_html_

    def __len__(self) -> int:
        return 1
