"""Matrix products of the hot loops, all by one library.

NumPy and SciPy each bring their own BLAS with its own threads, and a thread that has just finished
waits for more work at full speed. Calls that alternate between the two therefore take twice the
time (two cores, a rank-2048 update after a matrix-vector product: 106 against 52 ms). Products of a
sweep use SciPy's BLAS, as its factorisations do.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg

from bochner._core import lapack
from bochner._core.shapes import Array, Float
from bochner._core.threads import all_threads, one_thread, side_by_side

#: Side of the tiles that a triangle is mirrored by: two of them stay in cache.
TILE = 256

#: Columns that are multiplied, or solved for, one by one, at most.
FEW_COLUMNS = 4

#: Multiplications, and rows or columns, of a part of a product that is shared by threads, at least:
#: a part takes some 5 milliseconds. Largest number of parts.
LEAST_WORK, LEAST_WIDTH, MOST_PARTS = 1 << 28, 256, 16

#: Side of the matrices that are factored in parts by several threads, and of a part.
SHARED, PART = 2048, 512


def product(A: Float[Array, "n k"], B: Float[Array, "k m"]) -> Float[Array, "n m"]:
    """Return A @ B, C-contiguous; both of one dtype, float32 or float64."""
    dtype = np.float32 if A.dtype == np.float32 else np.float64
    A, B = np.ascontiguousarray(A, dtype), np.ascontiguousarray(B, dtype)
    C = np.empty((len(A), B.shape[1]), dtype)

    def multiply(part: slice) -> None:
        if len(A) >= B.shape[1]:
            lapack.add_product(C[part].T, B.T, A[part].T, keep=0.0)
        else:
            lapack.add_product(C[:, part].T, B[:, part].T, A.T, keep=0.0)

    _in_parts(multiply, _equal_parts(max(C.shape), C.size * B.shape[0]))
    return C


def _equal_parts(length: int, work: int) -> list[int]:
    """Return the ends of equal parts of rows or columns, for this number of multiplications."""
    count = min(max(work // LEAST_WORK, 1), max(length // LEAST_WIDTH, 1), MOST_PARTS)
    return [length * k // count for k in range(count + 1)]


def _in_parts(task: Callable[[slice], None], ends: Sequence[int]) -> None:
    """Call ``task`` with the rows or columns between these ends, side by side, last ones first."""
    tasks = [partial(task, slice(*between)) for between in pairwise(ends)][::-1]
    side_by_side(tasks, most=len(tasks))


def symmetric_product(K: Float[Array, "n n"], c: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return K @ c of a symmetric K, C-contiguous; a few columns one by one, from half of K."""
    alike = K.flags.c_contiguous and K.dtype == c.dtype
    if alike and 0 < c.shape[1] <= FEW_COLUMNS:
        return np.stack([lapack.upper_product(K.T, x) for x in c.T], axis=1)
    return np.ascontiguousarray((c.T @ K).T)


def solve_factored(U: Float[Array, "n n"], right: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return (UᵀU)⁻¹ @ right of an upper triangle U; a few columns one by one, in half the time."""
    solution = np.array(right, U.dtype, order="F")
    for part in solution.T if solution.shape[1] <= FEW_COLUMNS else [solution]:
        for transposed in (True, False):
            lapack.solve_by_triangle(U, part, transposed)
    return solution


def add_gram(G: Float[Array, "D D"], Z: Float[Array, "n D"], factor: float = 1.0) -> None:
    """Add factor · Zᵀ Z to the upper triangle of G, Fortran-contiguous, of the dtype of Z."""
    A = np.ascontiguousarray(Z).T
    # columns in parts of equal areas; more than two are wide, or rows would be read too often
    D = len(A)
    count = min(max(A.size * D // (4 * LEAST_WORK), 1), max(D // PART, 2), MOST_PARTS)
    ends = [int(D * (k / count) ** 0.5) // 32 * 32 for k in range(count)] + [D]

    def add_to(part: slice) -> None:
        if part.start:
            above = slice(part.start)
            lapack.add_product(G[above, part], A[above], A[part], factor, transposed=(False, True))
        lapack.add_square(G[part, part], A[part], factor)

    _in_parts(add_to, ends)


def factor(A: Float[Array, "n n"]) -> None:
    """Overwrite the upper triangle of A with U, UᵀU = A; LinAlgError if A is not positive.

    Parts of a large matrix are computed side by side: the same for any number of threads.
    """
    if len(A) < SHARED:
        with one_thread():
            lapack.factor(A)
        return

    def solve(pivot: slice, part: slice) -> None:
        lapack.solve_by_triangle(A[pivot, pivot], A[pivot, part])

    def update(pivot: slice, part: slice) -> None:  # from the pivot down to the diagonal
        between = slice(pivot.stop, part.start)
        above = A[pivot, between], A[pivot, part]
        lapack.add_product(A[between, part], *above, -1.0, transposed=(True, False))
        lapack.add_square(A[part, part], A[pivot, part], -1.0, transposed=True)

    for start in range(0, len(A), PART):
        pivot, ends = slice(start, start + PART), [*range(start + PART, len(A), PART), len(A)]
        with one_thread():
            lapack.factor(A[pivot, pivot])
        _in_parts(partial(solve, pivot), ends)
        _in_parts(partial(update, pivot), ends)


def triangular_product(C: Float[Array, "n D"], L: Float[Array, "D D"]) -> Float[Array, "n D"]:
    """Overwrite C with C @ L.T, for lower triangular L: half the work of a product."""
    C, L = np.ascontiguousarray(C), np.asfortranarray(L, C.dtype)
    multiply = lambda part: lapack.multiply_by_triangle(L, C[part].T)
    _in_parts(multiply, _equal_parts(len(C), C.size * len(L) // 2))
    return C


def mirror(G: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """Copy the upper triangle of G onto the lower one, in place, and return G."""
    D, below = len(G), np.tri(min(len(G), TILE), k=-1, dtype=bool)
    for start in range(0, D, TILE):
        stop = min(start + TILE, D)
        corner = G[start:stop, start:stop]
        np.copyto(corner, corner.T.copy(), where=below[: stop - start, : stop - start])
        G[stop:, start:stop] = G[start:stop, stop:].T
    return G


# --- Decompositions of matrices, on one thread ---------------------------------------------------
#
# An eigendecomposition makes its threads wait for one another several times for each column, and
# OpenBLAS's threads wait at full speed. Two threads on two processors, one of them taken by another
# process, need ten to forty times as long as one thread; alone they save a third of its time. Of
# large matrices the work between two waits is longer than a wait: these use all threads.

#: Side of the matrices that are decomposed by all threads. A wait takes 5 to 10 ms: beside a busy
#: processor, 8192 columns of waits take about as long as one thread takes for all of the work.
LARGE = 8192


def _on_one_thread(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(decomposition)
    def decomposed(A: Any, *arguments: Any, **options: Any) -> Any:
        with one_thread() if min(A.shape[-2:]) < LARGE else all_threads():
            return decomposition(A, *arguments, **options)

    return decomposed


cho_factor = _on_one_thread(scipy.linalg.cho_factor)
cholesky = _on_one_thread(scipy.linalg.cholesky)
eigvalsh = _on_one_thread(scipy.linalg.eigvalsh)
qr = _on_one_thread(scipy.linalg.qr)
svd = _on_one_thread(scipy.linalg.svd)
_eigh_here = _on_one_thread(scipy.linalg.eigh)

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
    """Return SciPy's ``eigh``; `decompositions_by` may replace it for large matrices."""
    decomposed = _DECOMPOSED.get()
    if decomposed is None or len(A) < 1024 or "subset_by_index" in options:
        return _eigh_here(A, **options)
    return decomposed(A)
