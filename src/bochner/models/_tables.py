"""Tables of a fit: checks, and encoders of columns, which are learned and then applied."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NoReturn

import numpy as np
from sklearn.utils import _safe_indexing

from bochner._core.arrays import is_sparse
from bochner._core.checks import warn_user
from bochner._core.sizes import block_rows
from bochner._core.threads import limit_jobs
from bochner.data.blocks import Blocks
from bochner.data.columns import cells_in, columns_from
from bochner.data.encoders import is_number
from bochner.data.frames import batches, is_pandas, library_of, names_in, rows_without_target
from bochner.data.learning import warn_without_target
from bochner.data.partitions import MAPPED, with_dask_columns
from bochner.data.schema import did_you_mean, quote, reasons
from bochner.data.tables import Tables
from bochner.errors import DataWarning, InvalidInput, InvalidType
from bochner.features.mercer.sphere import ModeMethod
from bochner.sums.passes import LOCAL, BlockSum, Executor

_INFINITE = (
    "X must hold finite numbers, or NaN where one is missing; got infinity. Drop these rows, or "
    "replace such cells by NaN."
)

#: Messages that replace errors of scikit-learn, by the beginning of the original.
_SENTENCES = {
    "could not convert string": (
        "X must hold numbers; got text ({text}). Pass a table, such as a pandas or polars "
        "DataFrame: its columns of text are encoded."
    ),
    "Expected 2D array": (
        "X must have two dimensions, rows and at least one column; got shape {shape}. "
        "Reshape your data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if one row."
    ),
    "setting an array element": "X must have rows of equal length; got several lengths.",
    "Input X contains": _INFINITE,
    "Input contains infinity": _INFINITE,
    "Input contains": (
        "y must have no missing labels; got NaN. Drop such rows, or give them a separate label."
    ),
    "Input y contains": (
        "y must hold finite numbers; got {value}. Drop the rows whose target is missing."
    ),
}


def raise_in_one_sentence(caller: str, X: Any, error: ValueError) -> NoReturn:
    """Raise the error of scikit-learn about X or y as a sentence with the caller and the remedy."""
    text = str(error)
    message = next((_SENTENCES[start] for start in _SENTENCES if text.startswith(start)), None)
    if isinstance(X, str):
        text = X
        message = "X must be rows; got the text {text!r}. Pass Blocks.from_files to fit_blocks."
    if message is None or isinstance(error, InvalidInput):
        raise error
    shape = np.shape(X) if "{shape}" in message else ()
    value = "NaN" if "NaN" in text else "infinity"
    message = message.format(text=text, shape=shape, value=value)
    raise InvalidInput(f"{caller}: {message}") from error


def refuse_no_numbers(caller: str, y: Any) -> None:
    """Raise an error for targets that are text, dates or durations."""
    if y is None or getattr(y, "dtype", None) in (np.float64, np.float32):
        return
    try:
        y = np.asarray(y)
    except ValueError:  # rows of several lengths, which scikit-learn refuses
        return
    kind = y.dtype.kind
    if kind in "mM":
        first = "Subtract the first date, then divide" if kind == "M" else "Divide y"
        raise InvalidType(
            f"{caller}: y must hold real numbers; got dtype {y.dtype}. {first} by a unit, such as "
            "np.timedelta64(1, 's')."
        )
    is_text = lambda cell: kind != "O" or (isinstance(cell, str) and not is_number(cell))
    text = next(filter(is_text, y.flat if kind in "USO" else ()), None)
    if text is not None:
        text = str(text)
        remedy = "A regressor takes numbers, a classifier labels, such as KernelRidgeClassifier."
        if is_number(text.replace(",", ".")):
            remedy = "Read them as numbers, as pandas.read_csv does with decimal=','."
        raise InvalidType(f"{caller}: y must be real numbers; got text, such as {text!r}. {remedy}")


def is_table(X: Any) -> bool:
    """Whether X is a table with named columns."""
    return hasattr(X, "__arrow_c_stream__")


def pop_targets(caller: str, X: Any, y: Any = None, w: Any = None) -> tuple[Any, Any, Any]:
    """Return X, y and weights; if y or w name columns of the table X, X is without them."""
    # Rows with a missing target are dropped.
    names = [name for name in (y, w) if isinstance(name, str)]
    if not names or not library_of(X, "memory"):
        return X, y, w
    columns = names_in(X)
    for name in names:
        if name not in columns:
            raise InvalidInput(
                f"{caller}: the table must have a column {name!r}{did_you_mean(name, columns)}; "
                f"its columns are {quote(columns)}."
            )
    if isinstance(y, str):
        missing = rows_without_target([y], X)
        if len(missing):
            first = f"in row {missing[0]} of X (counted from 0)"
            warn_without_target(caller, [y], len(missing), len(X), first)
            rows = np.setdiff1d(np.arange(len(X)), missing)
            w = w if w is None or isinstance(w, str) else _safe_indexing(w, rows)
            X = _safe_indexing(X, rows)
    y, w = (X[v] if isinstance(v, str) else v for v in (y, w))
    if is_pandas(X):
        return X.drop(columns=names), y, w
    is_arrow = library_of(X, "memory") == "pyarrow"
    return X.drop_columns(names) if is_arrow else X.drop(names), y, w


def needs_schema(X: Any) -> bool:
    """Whether a table has missing cells, or columns that are not numeric."""
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None or not (is_pandas(X) or hasattr(X, "get_columns")):
        return True  # an Arrow table or stream is always read by a schema
    sparse = [str(t).startswith("Sparse") for t in dtypes]
    if any(sparse):
        text = not all(sparse)  # a schema makes some sparse columns dense
    else:
        text = not all(getattr(t, "is_numeric", lambda t=t: t.kind in "iufb")() for t in dtypes)
    if text or is_pandas(X):
        return text or bool(X.isna().to_numpy().any())
    columns = X.get_columns()  # of polars
    return any(c.null_count() or (c.dtype.is_float() and c.is_nan().any()) for c in columns)


def refuse_gaps(caller: str, X: Any, first: bool = False, method: Any = None) -> None:
    """Raise InvalidInput for NaN in X, unless a fit to dense rows can fill the missing values."""
    if is_sparse(X):
        raise InvalidInput(
            f"{caller}: a sparse X must have no missing values; got NaN in "
            f"{np.isnan(X.data).sum()} of its cells. Fill them, or pass a dense array."
        )
    row, column = np.argwhere(np.isnan(X))[0]
    place = f"row {row}, column {column} (counted from 0)"
    if method == "grid" or isinstance(method, ModeMethod):
        raise InvalidInput(f"{caller}: coordinates must be finite; got NaN in {place}. Drop it.")
    if not first:
        raise InvalidInput(
            f"{caller}: X must have no missing values, since the rows of the fit had none; got NaN "
            f"in {place}. Fill such cells, or fit to rows with gaps."
        )


def encode(
    caller: str, blocks: Blocks, n_classes: int = 0, has_y: bool = True, where: Executor = LOCAL
) -> Blocks:
    """Return blocks of a table, encoded after one pass over the rows; other blocks unchanged."""
    tables = blocks.source
    if not isinstance(tables, Tables) or is_learned(tables):
        return blocks
    drafts = tables.drafts or ()
    statistics: Any = None
    if drafts:
        cells = blocks.cells()
        size = max((1 << 18) // cells.n_columns, cells.block_rows)  # a block has a fixed cost
        summand = BlockSum(partial(cells_in, drafts=drafts, n_classes=n_classes, supervised=has_y))
        statistics = where.sum(summand, cells.with_rows(size))
    encoders, dropped, fold_tables = columns_from(drafts, statistics, tables.schema.dropped)
    if not encoders and not dropped:
        return blocks
    dropped = sorted(dropped, key=lambda pair: tables.schema.columns.index(pair[0]))
    left_out = reasons(dropped)
    words = "; ".join(f"{quote(names)} ({reason})" for reason, names in left_out.items())
    if not encoders:
        raise InvalidInput(
            f"{caller}: at least one column must vary between rows; got none: {words}. Add columns."
        )
    if left_out:
        warn_user(f"{caller}: columns are left out: {words}.", DataWarning)
    source = tables.with_encoders(encoders, dropped, fold_tables)
    size = blocks.block_rows
    if size == block_rows(blocks.n_columns):  # of the table with a column per category
        size = block_rows(source.n_columns)
    return replace(blocks, source=source, block_rows=size)


def is_learned(tables: Tables) -> bool:
    """Whether the encoders of the columns are given or learned."""
    return bool(tables.schema.encoders) or tables.drafts is None


#: Name of the column of predictions, by method.
_NAMES = {
    "predict": "prediction",
    "decision_function": "decision",
    "score_samples": "score",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
    "transform": "component",
}


def lazy_blocks(caller: str, X: Any, y: Any = None, w: Any = None) -> Blocks:
    """Return blocks of partitioned rows, targets and weights."""
    # y and w are names of columns, or columns of dask with the partitions of X.
    if hasattr(X, "rechunk"):
        return Blocks.from_arrays(X, y, w)
    target, columns = _names_of(y, "y")
    weight, weight_columns = _names_of(w, "sample_weight")
    columns |= weight_columns
    library = library_of(X, "engine", "lazy")
    if columns and library != "dask":
        raise InvalidInput(
            f"{caller}: for a table of {library}, y and sample_weight must be names of its "
            f"columns, as in fit(table, 'price'); got {type(y if y is not None else w).__name__}."
        )
    duplicates = [name for name in columns if name in X.columns]
    if duplicates:
        raise InvalidInput(
            f"{caller}: y and sample_weight must not be columns of X too; got {duplicates[0]!r} in "
            "both. Pass X without it: X.drop(columns=...)."
        )
    table = with_dask_columns(X, columns) if columns else X
    return Blocks.from_table(table, target=target, weight=weight)


def _names_of(column: Any, default: str) -> tuple[Any, dict[str, Any]]:
    """Return the name or names of a column, and the columns that are not in X, by name."""
    if column is None or isinstance(column, str):
        return column, {}
    if isinstance(column, list | tuple) and all(isinstance(name, str) for name in column):
        return list(column), {}
    if getattr(column, "ndim", 1) == 2:
        return list(column.columns), {name: column[name] for name in column.columns}
    name = getattr(column, "name", None)
    name = name if isinstance(name, str) else default
    return name, {name: column}


def accept_partitions(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a prediction method accept lazy tables, and tables of dask, Ray and Spark (lazily)."""
    name = _NAMES[method.__name__]

    @wraps(method)
    @limit_jobs
    def of_rows(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if library_of(X, "lazy"):
            parts = [method(self, batch, *args, **kwargs) for batch in batches(X)]
            if isinstance(parts[0], tuple):
                return tuple(np.concatenate(values) for values in zip(*parts, strict=True))
            return np.concatenate(parts)
        if not library_of(X, "engine", "lazy"):
            return method(self, X, *args, **kwargs)
        call = partial(_call, self, method.__name__, args, kwargs)
        return MAPPED[library_of(X, "engine")](X, call, name)

    return of_rows


def _call(learner: Any, name: str, args: Any, kwargs: dict[str, Any], rows: Any) -> Any:
    """Return the result of a method, by name, for the rows of one partition, a single array."""
    values = getattr(learner, name)(rows, *args, **kwargs)
    if isinstance(values, tuple):
        raise InvalidInput(
            f"{name}: tables of dask, Ray and Spark return one array; got several. "
            "Leave out return_std, return_cov and y."
        )
    return values
