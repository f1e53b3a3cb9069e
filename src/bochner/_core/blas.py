"""Matrix products of the hot loops, all by one library.

NumPy and SciPy each bring their own BLAS with its own threads, and a thread that has just finished
waits for more work at full speed. Calls that alternate between the two so take twice the time
(two cores, a rank-2048 update after a matrix-vector product: 106 against 52 ms). What a sweep
multiplies goes through SciPy's, as its factorisations do.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, wraps
from threading import local
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.blas import (
    dgemm,
    dsymm,
    dsymv,
    dsyr,
    dsyr2,
    dsyrk,
    dtrmm,
    dtrsv,
    sgemm,
    ssymv,
    ssyr,
    ssyrk,
    strmm,
    strsv,
)
from scipy.linalg.lapack import dpotrs, dtrtri, spotrs, strtri
from threadpoolctl import ThreadpoolController

from bochner._core.shapes import Array, Bool, Float

#: Side of the tiles that a triangle is mirrored by: two of them stay in cache.
TILE = 256

#: Rows that are gathered at a time, where some rows and columns of a matrix are.
BAND = 32

#: Columns that are multiplied, or solved for, one by one, at most.
FEW_COLUMNS = 4

#: Side of triangles that LAPACK inverts: of larger ones its own blocks take up to twice as long as
#: halves do.
TRIANGLE = 64


class _Here(local):
    """What is so in one thread of Python."""

    alone = False  # whether it has asked for one thread of BLAS


_here = _Here()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use one thread: where several would wait for one another.

    The number of threads is the process's, and comes back afterwards. Asking for it takes a tenth
    of a millisecond, and nothing within another such context.
    """
    if _here.alone:
        yield
        return
    _here.alone = True
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        _here.alone = False


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # finding them takes a millisecond


def product(A: Float[Array, "n k"], B: Float[Array, "k m"]) -> Float[Array, "n m"]:
    """Return A @ B, C-contiguous; both of one dtype, float32 or float64."""
    gemm = sgemm if A.dtype == np.float32 else dgemm
    return gemm(1.0, B.T, A.T).T


def symmetric_product(K: Float[Array, "n n"], c: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return K @ c of a symmetric K, C-contiguous; of a few columns in a third of the time of that.

    They are multiplied one by one, which reads half of K, or from the left, where BLAS copies none
    of K into panels of its own.
    """
    alike = K.flags.c_contiguous and K.dtype == c.dtype
    if alike and 0 < c.shape[1] <= FEW_COLUMNS:
        symv = ssymv if K.dtype == np.float32 else dsymv
        return np.stack([symv(1.0, K.T, x) for x in c.T], axis=1)
    return np.ascontiguousarray((c.T @ K).T)


def solve_factored(U: Float[Array, "n n"], right: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return (UᵀU)⁻¹ @ right; below the diagonal of U, Fortran-contiguous, nothing is read.

    A few columns are solved for one by one, in half of the time: LAPACK copies U into panels.
    """
    single = U.dtype == np.float32
    if not 0 < right.shape[1] <= FEW_COLUMNS:
        return (spotrs if single else dpotrs)(U, right)[0]
    trsv = strsv if single else dtrsv
    return np.stack([trsv(U, trsv(U, x, trans=1), overwrite_x=1) for x in right.T], axis=1)


def square_part(K: Float[Array, "n n"], some: Array) -> Float[Array, "m m"]:
    """Return the rows and columns of these numbers, without a copy of whole rows between."""
    part = np.empty((len(some), len(some)), K.dtype)
    for start in range(0, len(some), BAND):
        here = slice(start, start + BAND)
        K[some[here]].take(some, axis=1, out=part[here], mode="clip")
    return part


def subtract_product(
    C: Float[Array, "n m"], A: Float[Array, "n k"], B: Float[Array, "m k"]
) -> None:
    """Subtract A Bᵀ from C, in place; B and C are Fortran-contiguous, and not copied."""
    gemm = sgemm if C.dtype == np.float32 else dgemm
    updated = gemm(-1.0, A, B, beta=1.0, c=C, trans_b=True, overwrite_c=1)
    if not np.shares_memory(updated, C):
        raise AssertionError("BLAS copied the sum: it must be Fortran-contiguous, of A's dtype")


def add_gram(G: Float[Array, "D D"], Z: Float[Array, "n D"], factor: float = 1.0) -> None:
    """Add factor · Zᵀ Z to the upper triangle of G, in place.

    G is Fortran-contiguous, Z C-contiguous, both of one dtype. A symmetric rank-n update is half
    the work of a product, and adding into its result makes small blocks as fast as large ones.
    """
    syrk = ssyrk if G.dtype == np.float32 else dsyrk
    updated = syrk(factor, Z.T, beta=1.0, c=G, overwrite_c=1)
    if not np.shares_memory(updated, G):
        raise AssertionError("BLAS copied the sum: it must be Fortran-contiguous, of Z's dtype")


def add_outer(G: Float[Array, "D D"], z: Float[Array, " D"], factor: float) -> None:
    """Add factor · z zᵀ to the upper triangle of G, in place; both of one dtype."""
    syr = ssyr if G.dtype == np.float32 else dsyr
    syr(factor, z, a=G, overwrite_a=1)


def add_outer_sum(G: Float[Array, "D D"], x: Float[Array, " D"], y: Float[Array, " D"]) -> None:
    """Add x yᵀ + y xᵀ to the upper triangle of the float64 matrix G, in place."""
    dsyr2(1.0, x, y, a=G, overwrite_a=1)


def upper_product(A: Float[Array, "n n"], x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return A x of a symmetric float64 matrix, of which only the upper triangle is read."""
    return dsymv(1.0, A, x)


def upper_products(A: Float[Array, "n n"], X: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return A X of a symmetric float64 matrix, of which only the upper triangle is read."""
    return dsymm(1.0, A, X)


def invert_triangle(U: Float[Array, "n n"]) -> None:
    """Put the inverse of an upper triangle in its place: n³/3 operations.

    By halves, [A B; 0 C]⁻¹ = [A⁻¹ −A⁻¹BC⁻¹; 0 C⁻¹]. Nothing below the diagonal is read or written.
    U is Fortran-contiguous, or a part of such; its diagonal is positive.
    """
    n = len(U)
    if n <= TRIANGLE:
        trtri = strtri if U.dtype == np.float32 else dtrtri
        inverse, failed = trtri(U)
        if failed:
            raise scipy.linalg.LinAlgError("a factor without an inverse")
        U[...] = inverse
        return
    half = n // 2
    left, right = U[:half, :half], U[half:, half:]
    invert_triangle(left)
    invert_triangle(right)
    trmm = strmm if U.dtype == np.float32 else dtrmm
    corner = trmm(-1.0, left, np.asfortranarray(U[:half, half:]), overwrite_b=1)
    U[:half, half:] = trmm(1.0, right, corner, side=1, overwrite_b=1)


def scaled_gram(M: Float[Array, "n n"], q: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Return the upper triangle of M diag(q) M, M symmetric, q ≥ 0; half the work of a product."""
    return dsyrk(1.0, M * np.sqrt(q))


def triangular_product(C: Float[Array, "n D"], L: Float[Array, "D D"]) -> Float[Array, "n D"]:
    """Return C @ L.T in the place of C, for lower triangular L: half the work of a product."""
    trmm = strmm if C.dtype == np.float32 else dtrmm
    return trmm(1.0, L, C.T, lower=1, overwrite_b=1).T


def mirror(G: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """Copy the upper triangle of G onto the lower one, in place, and return G."""
    D = len(G)
    for start in range(0, D, TILE):
        stop = min(start + TILE, D)
        corner = G[start:stop, start:stop]
        below = _below()[: stop - start, : stop - start]
        np.copyto(corner, corner.T.copy(), where=below)
        G[stop:, start:stop] = G[start:stop, stop:].T
    return G


def upper_part(U: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return U on and above its diagonal, zero below, Fortran-contiguous."""
    upper = np.zeros(U.shape, U.dtype, order="F")
    for start in range(0, len(U), TILE):
        here = slice(start, start + TILE)
        upper[:start, here] = U[:start, here]
        upper[here, here] = np.triu(U[here, here])
    return upper


@cache
def _below() -> Bool[Array, "tile tile"]:
    """Where a tile is below its diagonal."""
    return np.tri(TILE, k=-1, dtype=bool)


# --- Decompositions of matrices, on one thread ---------------------------------------------------
#
# An eigendecomposition makes its threads wait for one another several times for each column, and
# OpenBLAS's threads wait at full speed. Where another process has one of the processors, each wait
# takes until that process is moved away: two threads on two processors, one of them taken, need ten
# to forty times as long as one thread, and alone they save a third of its time. One thread takes
# the same time whatever else runs, and gives the same bits whatever the number of threads.
#
# Of large matrices the work between two waits, which grows with the square of the side, is longer
# than a wait: these use all threads.
#
# The functions are SciPy's, under SciPy's names.

#: Side of the matrices that are decomposed by all threads. A wait takes 5 to 10 ms: beside a busy
#: processor, 8192 columns of waits take about as long as one thread takes for all of the work.
LARGE = 8192


def _on_one_thread(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(decomposition)
    def decomposed(A: Any, *arguments: Any, **options: Any) -> Any:
        with one_thread() if min(A.shape[-2:]) < LARGE else nullcontext():
            return decomposition(A, *arguments, **options)

    return decomposed


cho_factor = _on_one_thread(scipy.linalg.cho_factor)
cholesky = _on_one_thread(scipy.linalg.cholesky)
eigvalsh = _on_one_thread(scipy.linalg.eigvalsh)
qr = _on_one_thread(scipy.linalg.qr)
svd = _on_one_thread(scipy.linalg.svd)
_eigh_here = _on_one_thread(scipy.linalg.eigh)

#: Side of the matrices that are worth moving to where a fit has its sums.
ELSEWHERE = 1024

#: Gives eigenvalues and vectors of a float64 matrix elsewhere, within a fit that asks for it.
Decomposition = Callable[[Array], tuple[Array, Array]]
_DECOMPOSED: ContextVar[Decomposition | None] = ContextVar("decomposed", default=None)


@contextmanager
def decompositions_by(decomposed: Decomposition) -> Iterator[None]:
    """Let large matrices be decomposed elsewhere, such as on a graphics card."""
    token = _DECOMPOSED.set(decomposed)
    try:
        yield
    finally:
        _DECOMPOSED.reset(token)


def eigh(A: Float[Array, "n n"], **options: Any) -> Any:
    """Return eigenvalues and vectors as SciPy's function does, elsewhere where that is asked for.

    What needs only some of the eigenvalues is made here.
    """
    decomposed = _DECOMPOSED.get()
    if decomposed is None or len(A) < ELSEWHERE or "subset_by_index" in options:
        return _eigh_here(A, **options)
    return decomposed(A)
