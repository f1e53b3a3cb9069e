"""BLAS and LAPACK in place and without Python's lock, so that Python threads compute in parallel.

SciPy's wrappers hold the lock while a routine runs, and copy a submatrix. These functions call the
same routines through the pointers that SciPy exports (:mod:`scipy.linalg.cython_lapack`).

Matrices are float32 or float64, with one dtype per call. Their columns are contiguous: they are
Fortran-contiguous, or submatrices of a Fortran-contiguous matrix. Vectors are contiguous. Only the
upper triangle, with the diagonal, of a triangular or symmetric matrix is read or written.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cython_blas, cython_lapack

from bochner._core.shapes import Array, Float

#: Whole numbers of eight bytes serve libraries of either width where the lower half comes first.
_Whole = ctypes.c_int64 if sys.byteorder == "little" else ctypes.c_int
_ONE = _Whole(1)

#: Side of matrices that are worked on with the lock: to let go of it takes longer.
SMALL = 128


def factor(A: Float[Array, "n n"]) -> None:
    """Overwrite A with U, UᵀU = A; n³/3 operations.

    Raises
    ------
    LinAlgError
        If A is not positive.
    """
    _check(A, fit=_square(A))
    failed = _Whole(0)
    _lapack("potrf", A, 5)(b"U", _integer(len(A)), *_matrix(A), ctypes.byref(failed))
    if failed.value:
        raise LinAlgError("a matrix that rounding leaves not positive")


def invert(U: Float[Array, "n n"]) -> None:
    """Put the inverse of an upper triangle in its place; n³/3 operations.

    Raises
    ------
    LinAlgError
        If there is a zero on the diagonal.
    """
    _check(U, fit=_square(U))
    failed = _Whole(0)
    inverted = _lapack("trtri", U, 6)
    inverted(b"U", b"N", _integer(len(U)), *_matrix(U), ctypes.byref(failed))
    if failed.value:
        raise LinAlgError("a factor without an inverse")


def outer_of_rows(U: Float[Array, "n n"]) -> None:
    """Overwrite an upper triangle U with U Uᵀ; n³/3 operations."""
    _check(U, fit=_square(U))
    failed = _Whole(0)
    _lapack("lauum", U, 5)(b"U", _integer(len(U)), *_matrix(U), ctypes.byref(failed))


def solve_from_factor(U: Float[Array, "n n"], B: Float[Array, "n t"]) -> None:
    """Overwrite B with (UᵀU)⁻¹ B; 2 n² t operations."""
    _check(U, B, fit=_square(U) and len(U) == len(B))
    n, t, failed = _integer(len(U)), _integer(B.shape[1]), _Whole(0)
    solve = _lapack("potrs", U, 8)
    solve(b"U", n, t, *_matrix(U), *_matrix(B), ctypes.byref(failed))


def solve_by_triangle(U: Float[Array, "n n"], x: Float[Array, " n"], transposed: bool) -> None:
    """Overwrite x with U⁻¹x or U⁻ᵀx; n² operations."""
    _check(U, x, fit=_square(U) and U.shape[:1] == x.shape)
    solve = _blas("trsv", U, 8)
    solve(b"U", _side(transposed), b"N", _integer(len(U)), *_matrix(U), _at(x), _ref(_ONE))


def solve_rows_by_triangle(U: Float[Array, "n n"], B: Float[Array, "n m"]) -> None:
    """Overwrite B with U⁻ᵀB; n² m operations."""
    _check(U, B, fit=_square(U) and len(U) == len(B))
    solve = _blas("trsm", U, 11)
    n, m = _integer(B.shape[0]), _integer(B.shape[1])
    solve(b"L", b"U", b"T", b"N", n, m, _number(1.0, U), *_matrix(U), *_matrix(B))


def multiply_by_triangle(
    factor: float,
    U: Float[Array, "k k"],
    B: Float[Array, "n m"],
    *,
    right: bool = False,
    lower: bool = False,
) -> None:
    """Overwrite B with factor · U B or factor · B U; ``lower``: U is a lower triangle."""
    _check(U, B, fit=_square(U) and len(U) == B.shape[right])
    n, m = _integer(B.shape[0]), _integer(B.shape[1])
    multiply = _blas("trmm", U, 11)
    sides = b"R" if right else b"L", b"L" if lower else b"U"
    multiply(*sides, b"N", b"N", n, m, _number(factor, U), *_matrix(U), *_matrix(B))


def add_product(
    C: Float[Array, "n m"],
    A: Float[Array, "..."],
    B: Float[Array, "..."],
    factor: float = 1.0,
    keep: float = 1.0,
    transposed: tuple[bool, bool] = (False, False),
) -> None:
    """Overwrite C with keep · C + factor · A B, A and B optionally transposed."""
    (n, k), (inner, m) = (
        each.shape[::-1] if turned else each.shape
        for each, turned in zip((A, B), transposed, strict=True)
    )
    _check(C, A, B, fit=C.shape == (n, m) and inner == k)
    sizes = _integer(n), _integer(m), _integer(k)
    left, right = (_side(each) for each in transposed)
    multiply = _blas("gemm", C, 13)
    numbers = _number(factor, C), _number(keep, C)
    multiply(left, right, *sizes, numbers[0], *_matrix(A), *_matrix(B), numbers[1], *_matrix(C))


def add_square(
    C: Float[Array, "m m"],
    A: Float[Array, "..."],
    factor: float = 1.0,
    transposed: bool = False,
) -> None:
    """Add factor · A Aᵀ (or AᵀA) to C: half the work of a product."""
    m, k = A.shape[::-1] if transposed else A.shape
    _check(C, A, fit=C.shape == (m, m))
    update, sizes = _blas("syrk", C, 10), (_integer(m), _integer(k))
    numbers = _number(factor, C), _number(1.0, C)
    update(b"U", _side(transposed), *sizes, numbers[0], *_matrix(A), numbers[1], *_matrix(C))


def add_outer(A: Float[Array, "n n"], x: Float[Array, " n"], factor: float) -> None:
    """Add factor · x xᵀ to A."""
    x = np.ascontiguousarray(x, A.dtype)
    _check(A, x, fit=_square(A) and A.shape[:1] == x.shape)
    update = _blas("syr", A, 7)
    update(b"U", _integer(len(A)), _number(factor, A), _at(x), _ref(_ONE), *_matrix(A))


def add_outer_sum(A: Float[Array, "n n"], x: Float[Array, " n"], y: Float[Array, " n"]) -> None:
    """Add x yᵀ + y xᵀ to A."""
    x, y = (np.ascontiguousarray(each, A.dtype) for each in (x, y))
    _check(A, x, y, fit=_square(A) and A.shape[:1] == x.shape == y.shape)
    update = _blas("syr2", A, 9)
    one = _ref(_ONE)
    update(b"U", _integer(len(A)), _number(1.0, A), _at(x), one, _at(y), one, *_matrix(A))


def upper_product(A: Float[Array, "n n"], x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return A x."""
    x = np.ascontiguousarray(x, A.dtype)
    _check(A, x, fit=_square(A) and A.shape[:1] == x.shape)
    y, one = np.zeros_like(x), _ref(_ONE)
    multiply = _blas("symv", A, 10)
    numbers = _number(1.0, A), _number(0.0, A)
    multiply(b"U", _integer(len(A)), numbers[0], *_matrix(A), _at(x), one, numbers[1], _at(y), one)
    return y


def upper_products(A: Float[Array, "n n"], B: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return A B for a symmetric A, Fortran-contiguous."""
    B = np.asfortranarray(B, A.dtype)
    _check(A, B, fit=_square(A) and len(A) == len(B))
    C = np.empty(B.shape, B.dtype, order="F")
    multiply = _blas("symm", A, 12)
    n, k = _integer(B.shape[0]), _integer(B.shape[1])
    numbers = _number(1.0, A), _number(0.0, A)
    multiply(b"L", b"U", n, k, numbers[0], *_matrix(A), *_matrix(B), numbers[1], *_matrix(C))
    return C


# ---- arguments: all by address


def _check(*arrays: Array, fit: bool) -> None:
    """Refuse numbers that a routine would take for others, and shapes that do not fit together."""
    dtype = arrays[0].dtype
    if dtype not in _KINDS or any(each.dtype != dtype for each in arrays):
        dtypes = ", ".join(str(each.dtype) for each in arrays)
        raise ValueError(f"BLAS requires numbers of one kind, float32 or float64, got {dtypes}")
    if any(each.ndim == 1 and each.size and not each.flags.c_contiguous for each in arrays):
        raise ValueError("vectors for BLAS must be contiguous")
    if not fit:
        dtypes = ", ".join(str(each.shape) for each in arrays)
        raise ValueError(f"BLAS requires shapes that fit together, got {dtypes}")


def _square(A: Array) -> bool:
    return A.shape[0] == A.shape[1]


_KINDS = (np.dtype(np.float32), np.dtype(np.float64))


def _side(transposed: bool) -> bytes:
    return b"T" if transposed else b"N"


def _ref(number: Any) -> Any:
    return ctypes.byref(number)


@lru_cache(4096)
def _integer(n: int) -> Any:
    return ctypes.byref(_Whole(n))


def _number(value: float, like: Array) -> Any:
    kind = ctypes.c_float if like.dtype == np.float32 else ctypes.c_double
    return ctypes.byref(kind(value))


def _at(x: Array) -> Any:
    return x.__array_interface__["data"][0]


def _matrix(A: Array) -> tuple[Any, Any]:
    """Return the pointer and the leading dimension of a matrix."""
    (n, m), size = A.shape, A.itemsize
    rows, lead = A.strides[0] // size, A.strides[1] // size
    if A.size and ((n > 1 and rows != 1) or (m > 1 and lead < n)):
        raise ValueError("the columns of a matrix for BLAS must be contiguous")
    return _at(A), _integer(lead if A.size and m > 1 else max(n, 1))


# ---- addresses


def _blas(name: str, A: Array, arguments: int) -> Callable[..., None]:
    kind = "s" if A.dtype == np.float32 else "d"
    return _routine(cython_blas, kind + name, arguments, max(A.shape) <= SMALL)


def _lapack(name: str, A: Array, arguments: int) -> Callable[..., None]:
    kind = "s" if A.dtype == np.float32 else "d"
    return _routine(cython_lapack, kind + name, arguments, max(A.shape) <= SMALL)


@cache
def _routine(module: ModuleType, name: str, arguments: int, small: bool) -> Callable[..., None]:
    capsule = module.__pyx_capi__[name]
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = pointer(("PyCapsule_GetPointer", python))(capsule, name_of(capsule))
    kind = ctypes.PYFUNCTYPE if small else ctypes.CFUNCTYPE
    return kind(None, *[ctypes.c_void_p] * arguments)(address)
