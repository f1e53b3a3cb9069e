"""Arrays of any library: functions, types and checks.

NumPy arrays, SciPy sparse matrices and arrays of the array API standard (torch, CuPy,
array-api-strict) stay in their library; other objects are converted to NumPy arrays.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import filterfalse
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np
import scipy.sparse

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType

#: Whether X is a SciPy sparse matrix or sparse array.
is_sparse = scipy.sparse.issparse


def is_symbolic(X: object) -> bool:
    """Whether X is a symbolic array of a graph that is being exported, without values."""
    return hasattr(X, "graph")


def array_namespace(*arrays: Any) -> Any:
    """Return the array API namespace of the arrays; NumPy's for sparse matrices."""
    dense_arrays = list(filterfalse(is_sparse, arrays))
    if not dense_arrays or (len(dense_arrays) == 1 and isinstance(dense_arrays[0], np.ndarray)):
        return array_api_compat.numpy
    return array_api_compat.array_namespace(*dense_arrays)


def device(X: Any) -> Any:
    """Return the device of X; None for NumPy arrays and sparse matrices."""
    return None if is_sparse(X) or isinstance(X, np.ndarray) else array_api_compat.device(X)


def to_numpy(X: Any) -> np.ndarray:
    """Return X as a NumPy array, which may share memory with X: do not write into it."""
    if isinstance(X, np.ndarray):
        return X
    if is_sparse(X):
        return X.toarray()
    if array_api_compat.is_torch_array(X):
        return X.detach().cpu().numpy()
    if array_api_compat.is_cupy_array(X):
        return X.get()
    return np.from_dlpack(X)


def dense(X: Any) -> Any:
    """Return X as a dense array of its own library, on its device."""
    return X.toarray() if is_sparse(X) else X


def from_numpy(A: np.ndarray, like: Any) -> Any:
    """Return the NumPy array A as an array of the library, and on the device, of ``like``."""
    if isinstance(like, np.ndarray) or is_sparse(like):
        return A
    return array_namespace(like).asarray(A, device=device(like))


def precision(X: Any) -> np.dtype:
    """Return float32 for float32 arrays of any library, float64 for others."""
    return np.dtype(np.float32 if str(X.dtype).endswith("float32") else np.float64)


def in_precision(A: Array, dtype: Any) -> Array:
    """Return A in ``dtype``, a NumPy dtype or its name: float32 or float64; no copy if A has it."""
    if isinstance(A, np.ndarray) or is_sparse(A):
        return A.astype(dtype, copy=False)
    xp = array_namespace(A)
    return xp.astype(A, getattr(xp, str(dtype)), copy=False)


in_float64 = partial(in_precision, dtype="float64")


def adapt(A: np.ndarray, like: Any) -> Any:
    """Return the NumPy array A in the library, precision and device of ``like``."""
    return from_numpy(A.astype(precision(like), copy=False), like=like)


def take(A: Array, places: np.ndarray, axis: int) -> Array:
    """Return the rows (axis 0) or columns (axis 1) of A with the numbers ``places``."""
    if is_sparse(A):
        return A[:, places] if axis else A[places]
    return array_namespace(A).take(A, from_numpy(places, like=A), axis=axis)


def all_finite(X: Array) -> bool:
    """Return whether no value of a dense or sparse array is NaN or infinite."""
    values = X.data if is_sparse(X) else X
    xp = array_namespace(values)
    return bool(xp.all(xp.isfinite(values)))


def as_matrix(X: Any, caller: str, name: str = "X") -> Any:
    """Return X as a two-dimensional float32 or float64 array, or CSR matrix, of finite numbers."""
    array = as_array(X, caller, name)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidInput(
            f"{caller}: {name} must have two dimensions, rows and at least one column; got shape "
            f"{tuple(array.shape)}. Pass {name}.reshape(-1, 1) if it is one column, "
            f"{name}.reshape(1, -1) if it is one row."
        )
    array = as_floating(array)
    if not all_finite(array):
        raise InvalidInput(
            f"{caller}: {name} must be finite; got NaN or infinity. Remove or fill these rows."
        )
    return array


def as_array(X: Any, caller: str, name: str) -> Any:
    """Return X as an array of its library, or a sparse X as CSR; raise InvalidType if not real."""
    if is_sparse(X):
        X = X.tocsr()
    elif isinstance(X, np.ndarray) or not array_api_compat.is_array_api_obj(X):
        refuse_masked(X, caller, name)
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise InvalidInput(
                f"{caller}: {name} must be a table of numbers, rows of equal length; got "
                f"{type(X).__name__} that NumPy cannot read ({error})."
            ) from error
    if not array_namespace(X).isdtype(X.dtype, ("bool", "integral", "real floating")):
        raise _no_numbers(caller, name, X.dtype)
    return X


def are_numbers(*arrays: Any) -> bool:
    """Whether each is None or a plain NumPy array of real numbers: no conversion is needed."""
    for array in arrays:
        if array is not None and (type(array) is not np.ndarray or array.dtype.kind not in "biuf"):
            return False
    return True


def refuse_masked(X: Any, caller: str, name: str = "X") -> None:
    """Refuse a masked array with masked values, which NumPy would read as numbers."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InvalidInput(
            f"{caller}: {name} must have no missing values; got a masked array with "
            f"{np.ma.count_masked(X)} masked. Fill them first, e.g. with {name}.filled(0)."
        )


def refuse_dates(X: Any, caller: str, name: str = "X") -> None:
    """Raise an error for dates, times and durations, which NumPy would read as integers."""
    dtypes = getattr(X, "dtypes", getattr(X, "dtype", None))
    for dtype in dtypes if isinstance(dtypes, Iterable) else [dtypes]:
        if getattr(dtype, "kind", "") in ("M", "m"):
            raise _no_numbers(caller, name, dtype)


def as_floating(X: Any) -> Any:
    """Return X in float32 if it has that dtype, else in float64; NumPy arrays are aligned."""
    X = X if str(X.dtype).endswith(("float32", "float64")) else in_float64(X)
    return np.require(X, requirements="A") if isinstance(X, np.ndarray) else X


def _no_numbers(caller: str, name: str, dtype: Any) -> InvalidType:
    return InvalidType(
        f"{caller}: {name} must hold real numbers; got dtype {dtype}. "
        "Convert text, categories, dates and complex numbers to real numbers first."
    )


def require_alike(X: Float[Array, "n d"], Y: Float[Array, "m d"], caller: str) -> None:
    """Raise an error if X and Y are of two libraries or have different numbers of columns."""
    is_numpy = [isinstance(A, np.ndarray) or is_sparse(A) for A in (X, Y)]
    if not all(is_numpy) and (any(is_numpy) or type(X) is not type(Y)):
        raise InvalidType(
            f"{caller}: X and Y must be of one array library; got {type(X).__module__}."
            f"{type(X).__name__} and {type(Y).__module__}.{type(Y).__name__}. Convert one of them."
        )
    if X.shape[1] != Y.shape[1]:
        raise InvalidInput(
            f"{caller}: X and Y must have the same columns; got {X.shape[1]} and {Y.shape[1]}. "
            "Prepare both in the same way."
        )


def slices(n: int, step: int) -> Iterator[slice]:
    """Yield slices of n rows, ``step`` at a time."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def concat(parts: Sequence[Array]) -> Array:
    """Concatenate arrays of one library by rows."""
    if len(parts) == 1:
        return parts[0]
    if is_sparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    return array_namespace(*parts).concat(parts, axis=0)


def numpy_rows(X: Any) -> Any:
    """Return X as a C-contiguous float64 NumPy array; a sparse matrix stays sparse."""
    rows = X if is_sparse(X) else np.ascontiguousarray(to_numpy(X))
    return rows.astype(np.float64, copy=False)


def squared_norms(X: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Return Σ_j X_ij² of each row, dense or sparse."""
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
    if isinstance(X, np.ndarray) and X.dtype == np.float64:  # einsum loses digits in float32
        return np.einsum("ij,ij->i", X, X)
    return array_namespace(X).sum(X * X, axis=1)


def unit_of(largest: float) -> float:
    """Return the largest power of two ≤ ``largest`` (1 for 0): dividing by it is exact."""
    return 2.0 ** np.clip(math.frexp(largest)[1] - 1, -1000, 1000) if largest > 0 else 1.0


def add(a: Any, b: Any) -> Any:
    """Return a + b, added in place to the arrays of a; None is the sum of no rows."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, tuple):
        return tuple(map(add, a, b))
    a += b
    return a
