"""Matrix products and decompositions, all computed by SciPy's BLAS and LAPACK.

NumPy and SciPy each bring their own BLAS with its own threads, and a thread that has just finished
keeps its core busy while it waits for work. Calls that alternate between the two therefore take
twice the time (two cores, a rank-2048 update after a matrix-vector product: 106 instead of 52 ms).
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
from bochner._core.threads import all_threads, run_parallel, single_thread

#: Side of the tiles of `mirror`: two tiles fit into the cache.
TILE = 256

#: Largest number of columns that are multiplied, or solved for, one by one.
FEW_COLUMNS = 4

#: Smallest number of multiplications (about 5 ms), and of rows or columns, of the part of a product
#: that a thread computes; largest number of parts.
MIN_WORK, MIN_WIDTH, MAX_PARTS = 1 << 28, 256, 16

#: Smallest side of a matrix that several threads factor in parts; side of a part.
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

    _run_slices(multiply, _equal_parts(max(C.shape), C.size * B.shape[0]))
    return C


def _equal_parts(length: int, work: int) -> list[int]:
    """Return the ends of equal parts of ``length`` rows, for ``work`` multiplications in all."""
    count = min(max(work // MIN_WORK, 1), max(length // MIN_WIDTH, 1), MAX_PARTS)
    return (length * np.arange(count + 1) // count).tolist()


def _run_slices(task: Callable[[slice], None], ends: Sequence[int]) -> None:
    """Call ``task`` with each slice between successive ends, in parallel, the last slice first."""
    if len(ends) == 2:
        with single_thread():
            task(slice(*ends))
    else:
        tasks = [partial(task, slice(*pair)) for pair in pairwise(ends)]
        run_parallel(tasks[::-1], limit=len(tasks))


def symmetric_product(K: Float[Array, "n n"], c: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return K @ c for symmetric K, C-contiguous; a loop over few columns reads half of K."""
    is_direct = K.flags.c_contiguous and K.dtype == c.dtype
    if is_direct and 0 < c.shape[1] <= FEW_COLUMNS:
        return np.stack([lapack.upper_product(K.T, x) for x in c.T], axis=1)
    return np.ascontiguousarray((c.T @ K).T)


def solve_factored(U: Float[Array, "n n"], B: Float[Array, "n t"]) -> Float[Array, "n t"]:
    """Return (UᵀU)⁻¹ @ B for upper triangular U; a loop over few columns takes half the time."""
    solution = np.array(B, U.dtype, order="F")
    for part in solution.T if solution.shape[1] <= FEW_COLUMNS else [solution]:
        for transposed in (True, False):
            lapack.solve_by_triangle(U, part, transposed)
    return solution


def add_gram(G: Float[Array, "D D"], Z: Float[Array, "n D"], factor: float = 1.0) -> None:
    """Add factor · Zᵀ Z to the upper triangle of G (Fortran-contiguous, dtype of Z)."""
    A = np.ascontiguousarray(Z).T
    # parts of equal area in the triangle; each part reads all rows of Z, so none is narrow
    D = len(A)
    count = min(max(A.size * D // (4 * MIN_WORK), 1), max(D // PART, 2), MAX_PARTS)
    ends = [*((D * np.sqrt(np.arange(count) / count)).astype(int) // 32 * 32).tolist(), D]

    def add_part(part: slice) -> None:
        if part.start:
            head = slice(part.start)
            lapack.add_product(G[head, part], A[head], A[part], factor, transposed=(False, True))
        lapack.add_square(G[part, part], A[part], factor)

    _run_slices(add_part, ends)


def factor(A: Float[Array, "n n"]) -> None:
    """Overwrite the upper triangle of A with its Cholesky factor U, A = UᵀU.

    LinAlgError is raised if A is not positive definite. U is the same for any number of threads.
    """
    if len(A) < SHARED:
        with single_thread():
            lapack.factor(A)
        return

    def solve(pivot: slice, part: slice) -> None:
        lapack.solve_by_triangle(A[pivot, pivot], A[pivot, part])

    def update(pivot: slice, part: slice) -> None:  # rows between the pivot and the diagonal
        middle = slice(pivot.stop, part.start)
        upper = A[pivot, middle], A[pivot, part]
        lapack.add_product(A[middle, part], *upper, -1.0, transposed=(True, False))
        lapack.add_square(A[part, part], A[pivot, part], -1.0, transposed=True)

    for start in range(0, len(A), PART):
        pivot, ends = slice(start, start + PART), [*range(start + PART, len(A), PART), len(A)]
        with single_thread():
            lapack.factor(A[pivot, pivot])
        _run_slices(partial(solve, pivot), ends)
        _run_slices(partial(update, pivot), ends)


def triangular_product(C: Float[Array, "n D"], L: Float[Array, "D D"]) -> Float[Array, "n D"]:
    """Return C @ L.T for lower triangular L, in half the work; a C-contiguous C is overwritten."""
    C, L = np.ascontiguousarray(C), np.asfortranarray(L, C.dtype)
    multiply = lambda part: lapack.multiply_by_triangle(L, C[part].T)
    _run_slices(multiply, _equal_parts(len(C), C.size * len(L) // 2))
    return C


def mirror(G: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """Copy the upper triangle of G onto the lower one, in place, and return G."""
    D, lower = len(G), np.tri(min(len(G), TILE), k=-1, dtype=bool)
    for start in range(0, D, TILE):
        stop = min(start + TILE, D)
        corner = G[start:stop, start:stop]
        np.copyto(corner, corner.T.copy(), where=lower[: stop - start, : stop - start])
        G[stop:, start:stop] = G[start:stop, stop:].T
    return G


# --- Decompositions of matrices, on one thread ---------------------------------------------------
#
# The threads of an eigendecomposition wait for one another several times per column, and OpenBLAS's
# threads keep their processors busy while they wait. On two processors, two threads save a third of
# the time of one thread; if another process uses a processor, they take ten to forty times as long.
# For large matrices the work between two waits takes longer than a wait: they use all threads.

#: Smallest side of a matrix that all threads decompose. If another process uses a processor, a wait
#: takes 5 to 10 ms, and the waits of 8192 columns take about as long as all work on one thread.
LARGE = 8192


def _single_threaded(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(decomposition)
    def decompose(A: Any, *arguments: Any, **options: Any) -> Any:
        with single_thread() if min(A.shape[-2:]) < LARGE else all_threads():
            return decomposition(A, *arguments, **options)

    return decompose


cho_factor = _single_threaded(scipy.linalg.cho_factor)
cholesky = _single_threaded(scipy.linalg.cholesky)
eigvalsh = _single_threaded(scipy.linalg.eigvalsh)
qr = _single_threaded(scipy.linalg.qr)
svd = _single_threaded(scipy.linalg.svd)
_eigh_here = _single_threaded(scipy.linalg.eigh)

#: Function that returns eigenvalues and eigenvectors of a float64 matrix, e.g. on a GPU.
Decomposition = Callable[[Array], tuple[Array, Array]]
_EIGH: ContextVar[Decomposition | None] = ContextVar("eigh", default=None)


@contextmanager
def use_decomposition(decompose: Decomposition) -> Iterator[None]:
    """Use ``decompose`` for eigendecompositions of large matrices within this context."""
    token = _EIGH.set(decompose)
    try:
        yield
    finally:
        _EIGH.reset(token)


def eigh(A: Float[Array, "n n"], **options: Any) -> Any:
    """Return ``eigh(A)`` of SciPy, or for 1024 rows or more of `use_decomposition`, if set."""
    decompose = _EIGH.get()
    if decompose is None or len(A) < 1024 or "subset_by_index" in options:
        return _eigh_here(A, **options)
    return decompose(A)
