"""Decompositions of matrices, on one thread.

An eigendecomposition makes its threads wait for one another several times for each column, and
OpenBLAS's threads wait at full speed. Where another process has one of the processors, each wait
takes until that process is moved away: two threads on two processors, one of them taken, need ten
to forty times as long as one thread, and alone they save a third of its time. One thread takes
the same time whatever else runs, and gives the same bits whatever the number of threads.

Of large matrices the work between two waits, which grows with the square of the side, is longer
than a wait: these use all threads.

The functions are SciPy's, under SciPy's names.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import scipy.linalg

from bochner._ground.blas import one_thread

__all__ = ["LARGE", "cho_factor", "cholesky", "eigh", "eigvalsh", "qr", "svd"]

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
eigh = _on_one_thread(scipy.linalg.eigh)
eigvalsh = _on_one_thread(scipy.linalg.eigvalsh)
qr = _on_one_thread(scipy.linalg.qr)
svd = _on_one_thread(scipy.linalg.svd)
