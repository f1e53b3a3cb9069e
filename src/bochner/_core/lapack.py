"""BLAS and LAPACK in place and without Python's lock (GIL), so that threads compute in parallel.

SciPy's wrappers hold the lock while a routine runs, and copy a submatrix. These functions call the
same routines through the pointers that SciPy exports (:mod:`scipy.linalg.cython_lapack`).

Matrices are float32 or float64, with one dtype per call. Their columns are contiguous: they are
Fortran-contiguous, or submatrices of a Fortran-contiguous matrix. Vectors are contiguous. Only the
upper triangle, with the diagonal, of a triangular or symmetric matrix is read or written.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cython_blas, cython_lapack

from bochner._core.shapes import Array, Float

#: Little-endian integers of 8 bytes serve libraries that read 4 bytes and libraries that read 8.
_Integer = ctypes.c_int64 if sys.byteorder == "little" else ctypes.c_int

#: Largest side of a matrix for which the lock is kept: releasing it takes longer than the work.
SMALL = 128

#: BLAS's letters for a matrix as it is (N) and transposed (T).
TRANS = {False: b"N", True: b"T"}


def factor(A: Float[Array, "n n"]) -> None:
    """Overwrite the upper triangle of A with U, A = UᵀU; LinAlgError if A is not positive."""
    if _lapack("potrf", _square(A), b"U", len(A), A):
        raise LinAlgError("the matrix is not positive definite within rounding errors")


def invert_triangle(U: Float[Array, "n n"]) -> None:
    """Invert an upper triangle in place; LinAlgError if its diagonal has a zero.

    By halves, [A B; 0 C]⁻¹ = [A⁻¹ −A⁻¹BC⁻¹; 0 C⁻¹]; LAPACK takes a fifth longer for n ≤ 512.
    """
    if len(U) > SMALL and _square(U):
        half = len(U) // 2
        left, corner, right = U[:half, :half], U[:half, half:], U[half:, half:]
        invert_triangle(left)
        invert_triangle(right)
        multiply_by_triangle(left, corner, -1.0, sides=b"LU")
        multiply_by_triangle(right, corner, sides=b"RU")
    elif _lapack("trtri", _square(U), b"U", b"N", len(U), U):
        raise LinAlgError("the triangular matrix has no inverse: its diagonal has a zero")


def outer_of_rows(U: Float[Array, "n n"]) -> None:
    """Overwrite an upper triangle U with U Uᵀ; n³/3 operations."""
    _lapack("lauum", _square(U), b"U", len(U), U)


def solve_by_triangle(
    U: Float[Array, "n n"], B: Float[Array, "n ..."], transposed: bool = True
) -> None:
    """Overwrite the vector or matrix B with U⁻ᵀB, or U⁻¹B; n² operations per column."""
    fit, side = _square(U) and len(U) == len(B), TRANS[transposed]
    if B.ndim == 1:
        _blas("trsv", fit, b"U", side, b"N", len(U), U, B)
    else:
        _blas("trsm", fit, b"L", b"U", side, b"N", *B.shape, 1.0, U, B)


def multiply_by_triangle(
    L: Float[Array, "k k"], B: Float[Array, "n m"], factor: float = 1.0, sides: bytes = b"LL"
) -> None:
    """Overwrite B with factor · L B (sides: L.) or B L (R.), for lower (.L) or upper (.U) L."""
    fit = _square(L) and len(L) == B.shape[sides[:1] == b"R"]
    _blas("trmm", fit, sides[:1], sides[1:], b"N", b"N", *B.shape, factor, L, B)


def add_product(
    C: Float[Array, "n m"],
    A: Float[Array, "..."],
    B: Float[Array, "..."],
    factor: float = 1.0,
    keep: float = 1.0,
    transposed: tuple[bool, bool] = (False, False),
) -> None:
    """Overwrite C with keep · C + factor · A B, A and B optionally transposed."""
    left, right = transposed
    n, k = A.shape[::-1] if left else A.shape
    inner, m = B.shape[::-1] if right else B.shape
    fit = C.shape == (n, m) and inner == k
    _blas("gemm", fit, TRANS[left], TRANS[right], n, m, k, float(factor), A, B, float(keep), C)


def add_square(
    C: Float[Array, "m m"], A: Float[Array, "..."], factor: float = 1.0, transposed: bool = False
) -> None:
    """Add factor · A Aᵀ (or AᵀA) to C: half the work of a product."""
    m, k = A.shape[::-1] if transposed else A.shape
    _blas("syrk", C.shape == (m, m), b"U", TRANS[transposed], m, k, float(factor), A, 1.0, C)


def add_symmetric_product(
    C: Float[Array, "n n"], A: Float[Array, "n k"], B: Float[Array, "n k"]
) -> None:
    """Add A Bᵀ + B Aᵀ to C."""
    A, B = np.asfortranarray(A, C.dtype), np.asfortranarray(B, C.dtype)
    fit = _square(C) and len(C) == len(A) and A.shape == B.shape
    if A.shape[1:] == (1,):  # syr2 takes half the time
        _blas("syr2", fit, b"U", len(C), 1.0, A[:, 0], B[:, 0], C)
    else:
        _blas("syr2k", fit, b"U", b"N", *A.shape, 1.0, A, B, 1.0, C)


def upper_product(A: Float[Array, "n n"], B: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """Return A B, Fortran-contiguous, for a symmetric A and a vector or matrix B."""
    B = np.asfortranarray(B, A.dtype)
    C, fit = np.zeros_like(B), _square(A) and len(A) == len(B)
    if B.ndim == 1:
        _blas("symv", fit, b"U", len(A), 1.0, A, B, 0.0, C)
    else:
        _blas("symm", fit, b"L", b"U", *B.shape, 1.0, A, B, 0.0, C)
    return C


# ---- arguments: all by address


def _square(A: Array) -> bool:
    return A.shape[0] == A.shape[1]


_KINDS = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}


@lru_cache(4096)
def _integer(n: int) -> Any:
    return ctypes.byref(_Integer(n))


def _array(A: Array) -> tuple[Any, Any]:
    """Return the pointer, and the leading dimension of a matrix or the stride of a vector."""
    if A.ndim == 1:
        if A.size and not A.flags.c_contiguous:
            raise ValueError("vectors for BLAS must be contiguous")
        return A.__array_interface__["data"][0], _integer(1)
    (n, m), size = A.shape, A.itemsize
    rows, lead = A.strides[0] // size, A.strides[1] // size
    if A.size and ((n > 1 and rows != 1) or (m > 1 and lead < n)):
        raise ValueError("the columns of a matrix for BLAS must be contiguous")
    return A.__array_interface__["data"][0], _integer(lead if A.size and m > 1 else max(n, 1))


def _call(module: ModuleType, name: str, fit: bool, *arguments: Any) -> bool:
    """Call a routine with letters, sizes, factors and arrays; return whether LAPACK failed.

    ``fit`` tells whether the shapes fit together.
    """
    arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    dtype, small = arrays[0].dtype, True
    for array in arrays:
        fit = fit and array.dtype == dtype
        small = small and max(array.shape) <= SMALL
    if not fit or dtype not in _KINDS:
        shapes = ", ".join(f"{array.dtype} {array.shape}" for array in arrays)
        raise ValueError(
            "BLAS requires numbers of one kind, float32 or float64, and shapes that fit together; "
            f"got {shapes}"
        )
    letter, number = _KINDS[dtype]
    pointers: list[Any] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            pointers += _array(value)
        elif isinstance(value, int):
            pointers.append(_integer(value))
        else:
            pointers.append(ctypes.byref(number(value)) if isinstance(value, float) else value)
    info = _Integer(0)
    if module is cython_lapack:
        pointers.append(ctypes.byref(info))
    _routine(module, letter + name, len(pointers), small)(*pointers)
    return bool(info.value)


_blas, _lapack = partial(_call, cython_blas), partial(_call, cython_lapack)


@cache
def _routine(module: ModuleType, name: str, arguments: int, small: bool) -> Callable[..., None]:
    capsule = module.__pyx_capi__[name]
    python = ctypes.pythonapi
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = pointer(("PyCapsule_GetPointer", python))(capsule, get_name(capsule))
    kind = ctypes.PYFUNCTYPE if small else ctypes.CFUNCTYPE
    return kind(None, *[ctypes.c_void_p] * arguments)(address)
