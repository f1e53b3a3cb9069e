"""What users pass to ``fit`` and ``predict``: arrays, sparse matrices, tables."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from bochner._core.arrays import (
    array_namespace,
    is_numpy,
    is_sparse,
    refuse_dates,
    refuse_masked,
    to_numpy,
)
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import listed, repeated
from bochner.errors import InvalidInput, InvalidType
from bochner.models._base import KernelEstimator
from bochner.models._state import forget
from bochner.selection.search import accepts_sparse


def fit_blocks_of(model: BaseEstimator, X: Any, y: Any, sample_weight: Any, reset: bool) -> Blocks:
    """Return checked training data as blocks, and note names and numbers of columns on the model.

    Tables with text columns are one-hot encoded by a schema that the model keeps; other arrays of
    the array API standard stay in their library; all else passes scikit-learn's checks.
    """
    if isinstance(model, KernelEstimator):
        return model._blocks_of(X, y, sample_weight, reset)[0]
    for array, name in ((X, "X"), (y, "y"), (sample_weight, "sample_weight")):
        refuse_masked(array, type(model).__name__, name)
    _require_switch(model)
    _refuse_odd_tables(X, type(model).__name__)
    if reset:
        _start_anew(model)
    if _has_text(X):
        return _table_blocks(model, X, y, sample_weight, reset)
    if is_foreign(X):
        blocks = Blocks.from_arrays(X, y, sample_weight)
        note_columns(model, blocks, reset)
        return blocks
    for array, name in ((X, "X"), (sample_weight, "sample_weight")):
        refuse_dates(array, type(model).__name__, name)
    sparse = "csr" if accepts_sparse(model.kernel) else False
    options = {"accept_sparse": sparse, "dtype": ["float64", "float32"], "reset": reset}
    if y is None:
        X = validate_data(model, X, **options)
    else:
        X, y = validate_data(model, X, y, multi_output=True, y_numeric=True, **options)
    if reset:
        model.schema_ = None
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    return Blocks.from_arrays(X, y, sample_weight)


def predict_blocks_of(model: BaseEstimator, X: Any) -> Blocks:
    """Return checked rows to predict as blocks, encoded as the training data were.

    Blocks are taken as they are: read with the model's schema, or made of arrays.
    """
    if isinstance(model, KernelEstimator):
        return model._rows_to_predict(X)
    if isinstance(X, Blocks):
        _check_width(model, X.n_columns)
        return X
    refuse_masked(X, type(model).__name__)
    _refuse_odd_tables(X, type(model).__name__)
    schema = getattr(model, "schema_", None)
    if schema is not None and _is_table(X):
        return Blocks.from_table(X, schema=schema.features_only())
    if schema is not None and schema.categories:
        raise InvalidInput(
            f"{type(model).__name__}: fitted on a table with text columns, so rows must come as a "
            f"table with the columns {', '.join(schema.columns)}; got {type(X).__name__}."
        )
    if is_foreign(X):
        blocks = Blocks.from_arrays(X)
        note_columns(model, blocks, reset=False)
        return blocks
    refuse_dates(X, type(model).__name__)
    X = validate_data(model, X, accept_sparse="csr", dtype=["float64", "float32"], reset=False)
    return Blocks.from_arrays(X)


def note_columns(model: BaseEstimator, blocks: Blocks, reset: bool) -> None:
    """Set, or compare with, what the model was fitted on."""
    _require_switch(model)
    if reset:
        _start_anew(model)
    schema = blocks.schema
    if schema is not None and schema.classes and not is_classifier(model):
        raise InvalidInput(
            f"{type(model).__name__}: target {schema.target!r} must hold numbers; got text "
            f"({listed(schema.classes)}). Code it as numbers first, or take a classifier."
        )
    columns = len(schema.columns) if schema is not None else blocks.n_columns
    if not reset and columns != model.n_features_in_:
        raise InvalidInput(
            f"X has {columns} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input."
        )
    if not reset:
        return
    model.n_features_in_ = columns
    model.schema_ = schema
    model.__dict__.pop("feature_names_in_", None)
    if schema is not None:
        model.feature_names_in_ = np.array(schema.columns, dtype=object)


def _start_anew(model: BaseEstimator) -> None:
    """Forget the fit before, unless a warm start may go on from it; it forgets where it cannot."""
    if not getattr(model, "warm_start", False):
        forget(model)


def _require_switch(model: BaseEstimator) -> None:
    """Refuse an intercept that is neither wanted nor not."""
    given = getattr(model, "fit_intercept", True)
    if not isinstance(given, bool | np.bool_):
        raise InvalidType(
            f"{type(model).__name__}: fit_intercept must be True or False; got {given!r}."
        )


def _refuse_odd_tables(X: Any, who: str) -> None:
    """Refuse a single column of a table, and tables with a name twice."""
    if hasattr(X, "to_frame") and hasattr(X, "dtype"):
        raise InvalidInput(
            f"{who}: X must have two dimensions, rows and at least one column; got a Series, which "
            "is one column. Pass X.to_frame()."
        )
    if _is_pandas(X) and not X.columns.is_unique:
        raise InvalidInput(
            f"{who}: the columns of X must have different names; got "
            f"{listed(repeated(X.columns.tolist()))} more than once. Rename or drop the repeated "
            "ones."
        )


def _check_width(model: BaseEstimator, columns: int) -> None:
    schema = getattr(model, "schema_", None)
    expected = model.n_features_in_ if schema is None else len(schema.feature_names)
    if columns != expected:
        raise InvalidInput(
            f"X has {columns} columns, but {type(model).__name__} is expecting {expected}. "
            "Read files and tables with schema=model.schema_."
        )


def _table_blocks(model: BaseEstimator, X: Any, y: Any, sample_weight: Any, reset: bool) -> Blocks:
    schema = None if reset else getattr(model, "schema_", None)
    table = Blocks.from_table(X, schema=None if schema is None else schema.features_only())
    note_columns(model, table, reset)
    rows = np.concatenate([block.X for block in table])
    y, sample_weight = (None if a is None else np.asarray(a) for a in (y, sample_weight))
    return Blocks.from_arrays(rows, y, sample_weight)


def _is_table(X: Any) -> bool:
    return hasattr(X, "__arrow_c_stream__") or _is_pandas(X)


def _is_pandas(X: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def _has_text(X: Any) -> bool:
    """Whether X is a table that scikit-learn's checks would not read as numbers."""
    if not _is_table(X) or is_numpy(X):
        return False
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None:
        return True  # an Arrow table or stream: read by the schema, whatever it holds
    return not all(getattr(t, "is_numeric", lambda t=t: t.kind in "iufbc")() for t in dtypes)


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library than NumPy (torch, array-api-strict, ...)."""
    if is_numpy(X) or is_sparse(X) or not hasattr(X, "shape") or _is_table(X):
        return False
    try:
        return "numpy" not in array_namespace(X).__name__.split(".")
    except TypeError:
        return False


def required_targets(who: str, y: Array | None) -> Array:
    """Return the targets of a block, which must be there."""
    if y is None:
        raise InvalidInput(
            f"{who}: requires y to be passed, but the target y is None; name it with target=... "
            "where the blocks are made."
        )
    return y


# --- Classes in: labels of any type become codes 0, 1, ..., and stay names for the user ----------

#: More classes than this are taken for a target of regression.
MOST_CLASSES = 10_000

#: So many are no quantity, whatever the number of rows.
FEW_CLASSES = 50

#: Labels that are text count as numbers with this share of others, such as "?".
MOST_OTHERS = 0.05

_REGRESSORS = {
    "KernelRidgeClassifier": "KernelRidge",
    "KernelSGDClassifier": "KernelSGDRegressor",
    "LogisticRegression": "KernelRegressor",
    "SVC": "SVR",
}


def class_blocks_of(
    model: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    reset: bool = True,
    classes: Any = None,
) -> Blocks:
    """Return checked training data of a classifier as blocks whose y are codes of classes.

    Sets ``classes_`` (from ``classes`` where given, else from y) if ``reset``, and otherwise
    refuses labels that are not among them. ``class_weight`` of the model multiplies the weights.
    """
    who = type(model).__name__
    if isinstance(model, KernelEstimator):
        return model._class_blocks_of(X, y, sample_weight, reset, classes)[0]
    refuse_masked(y, who, "y")
    if y is None:
        raise InvalidInput(f"{who}: requires y to be passed, but the target y is None.")
    labels = _check_y(to_numpy(y) if is_foreign(y) else y, estimator=model)
    check_consistent_length(X, labels)
    _require_sortable(who, labels)
    _refuse_quantity(who, labels, len(labels) if classes is None else None)
    check_classification_targets(labels)
    given = np.unique(labels) if classes is None else classes
    known = _classes(who, given) if reset else model.classes_
    blocks = fit_blocks_of(model, X, _codes(who, labels, known), sample_weight, reset)
    model.classes_ = known
    return _weighted(model, blocks)


def class_blocks(model: BaseEstimator, blocks: Blocks, reset: bool = True) -> Blocks:
    """Return blocks whose y are codes of classes; one pass finds the classes of numbers.

    A target of text, read from files or a table, has its classes from the schema.
    """
    who = type(model).__name__
    note_columns(model, blocks, reset)
    text = () if blocks.schema is None else blocks.schema.classes
    found = np.array(text) if text else _found(who, blocks)
    if len(text) > FEW_CLASSES:
        _refuse_quantity(who, found, sum(len(block.y) for block in blocks))
    if reset:
        model.classes_ = _classes(who, found)
    known = model.classes_
    if text and np.array_equal(found, known):
        return _weighted(model, blocks)
    if text:
        return _weighted(model, blocks.recoded(lambda y: _codes(who, found[y.astype(int)], known)))
    return _weighted(model, blocks.recoded(lambda y: _codes(who, to_numpy(y), known)))


def indicators(codes: Float[Array, " n"], n_classes: int) -> Float[Array, "n K"]:
    """Return −1 and +1 of classes against the rest; one column, of the second, for two classes."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def _require_sortable(who: str, labels: Any) -> None:
    """Refuse labels that are missing, and numbers among texts."""
    if getattr(getattr(labels, "dtype", None), "kind", "") != "O":
        return
    first: dict[bool, Any] = {}
    for row, label in enumerate(np.ravel(labels)):
        if label is None or label != label:  # noqa: PLR0124  NaN
            raise InvalidInput(
                f"{who}: y must have no missing labels; got {label!r} in row {row} (counted from "
                "0). Drop such rows, or give them a label of their own."
            )
        first.setdefault(isinstance(label, str), label)
    if len(first) > 1:
        raise InvalidInput(
            f"{who}: labels in y must be all text or all numbers; got {first[True]!r} and "
            f"{first[False]!r}. Make them alike, e.g. with y.astype(str)."
        )


def _refuse_quantity(who: str, labels: Array, rows: int | None) -> None:
    """Refuse numbers that are not whole, and numbers of which most rows have their own.

    Numbers may be text. Without a number of rows only the first is refused.
    """
    if labels.dtype.kind == "f":
        broken = labels[np.isfinite(labels) & (labels != np.rint(labels))]
        if len(broken):
            raise InvalidInput(
                f"{who}: y must hold classes; got numbers that are not whole, such as "
                f"{broken.flat[0]:g} (Unknown label type: continuous). {_remedy(who)}; name "
                "classes by whole numbers or text."
            )
    if rows is None or rows <= 2 * FEW_CLASSES:
        return
    classes = np.unique(labels)
    if len(classes) <= max(FEW_CLASSES, rows / 2):
        return
    others = [label for label in classes.tolist() if not _is_number(label)]
    if len(others) <= MOST_OTHERS * len(classes):
        but = f", but for {listed(others)}" if others else ""
        raise InvalidInput(
            f"{who}: y must hold classes; got {len(classes):,} different numbers in {rows:,} "
            f"rows{but}. {_remedy(who)}."
        )


def _remedy(who: str) -> str:
    return f"For a target that is a quantity take {_REGRESSORS.get(who, 'a regressor')}"


def _is_number(label: object) -> bool:
    try:
        float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _classes(who: str, classes: Any) -> Array:
    classes = np.asarray(classes)
    _require_sortable(who, classes)
    classes = np.unique(classes)
    if len(classes) < 2:
        raise InvalidInput(
            f"{who}: y must have at least 2 classes; got the 1 class {classes.tolist()[0]!r} only."
            if len(classes)
            else f"{who}: y must have at least 2 classes; got none."
        )
    return classes


def _codes(who: str, labels: Array, classes: Array) -> Float[Array, " n"]:
    """Return the place of each label in the sorted classes."""
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    unknown = classes[codes] != labels
    if np.any(unknown):
        raise InvalidInput(
            f"{who}: every label must be one of the classes {listed(classes.tolist())}; got "
            f"{listed(np.unique(labels[unknown]).tolist())}. Name all classes in the first call "
            "(partial_fit(..., classes=...)), or fit anew."
        )
    return codes.astype(np.float64)


def _found(who: str, blocks: Blocks) -> Array:
    """Return the distinct labels of a pass."""
    seen: Array = np.empty(0)
    rows = 0
    for block in blocks:
        y = required_targets(who, block.y)
        if y.ndim != 1:
            raise InvalidInput(
                f"{who}: y must be one column of labels; got rows of shape {y.shape[1:]}."
            )
        seen, rows = np.union1d(seen, to_numpy(y)), rows + len(y)
        _refuse_quantity(who, seen, None)
        if len(seen) > MOST_CLASSES:
            raise InvalidInput(
                f"{who}: y must hold classes, {MOST_CLASSES:,} at most; got more different "
                f"numbers. {_remedy(who)}."
            )
    _refuse_quantity(who, seen, rows)
    check_classification_targets(seen)
    return seen.astype(np.int64) if np.array_equal(seen, np.rint(seen)) else seen


def _weighted(model: BaseEstimator, blocks: Blocks) -> Blocks:
    """Multiply the weights by the model's ``class_weight``."""
    given = getattr(model, "class_weight", None)
    if given is None:
        return blocks
    factors = _factors(type(model).__name__, given, model.classes_, blocks)
    return blocks.reweighted(lambda y: factors[to_numpy(y).astype(np.int64)])


def _factors(who: str, given: Any, classes: Array, blocks: Blocks) -> Float[Array, " K"]:
    if isinstance(given, Mapping):
        return _given_factors(who, given, classes)
    if given != "balanced":
        raise InvalidInput(
            f'{who}: class_weight must be None, "balanced" or a dict of class: weight; '
            f"got {given!r}."
        )
    sizes = _sizes(blocks, len(classes))
    return np.divide(sizes.sum(), len(classes) * sizes, out=np.zeros_like(sizes), where=sizes > 0)


def _given_factors(who: str, given: Mapping[Any, float], classes: Array) -> Float[Array, " K"]:
    unknown = [label for label in given if label not in classes.tolist()]
    if unknown:
        raise InvalidInput(
            f"{who}: class_weight must name classes among {listed(classes.tolist())}; got "
            f"{listed(unknown)}."
        )
    factors = np.array([float(given.get(label, 1.0)) for label in classes.tolist()])
    if not np.all((factors >= 0) & np.isfinite(factors)):
        raise InvalidInput(
            f"{who}: the weights in class_weight must be finite and not negative; got {given!r}."
        )
    return factors


def _sizes(blocks: Iterable[Any], n_classes: int) -> Float[Array, " K"]:
    """Return the weight of each class: n/(K n_k) weighs all classes alike."""
    sizes = np.zeros(n_classes)
    for block in blocks:
        w = None if block.w is None else to_numpy(block.w)
        sizes += np.bincount(to_numpy(block.y).astype(np.int64), w, minlength=n_classes)
    return sizes
