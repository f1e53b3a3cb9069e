"""Fits of more than 10,000 features, without a Gram matrix: passes are counted on sampled rows.

Some of the sampled rows make the preconditioner, as many as in the fit if there are enough. Passes
go over the others, with weights such that penalties have the size that they have in the fit. Both
are random rows, so that the number of passes is about that of the fit. The time of a pass grows
with the number of rows; all other time does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.shapes import Array
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.features.map import FeatureMap
from bochner.features.nystrom.nystrom import Rounded
from bochner.models.ridge.wide import wide_problem
from bochner.solvers.ridge.iterative import PROBES, rows_to_factor, solve_wide
from bochner.solvers.ridge.krylov import MOST_BYTES
from bochner.sums.executor import LOCAL

#: Bytes of the features that a pass holds at a time, in the precision of rows and as they are
#: multiplied, and arrays as long as all features that are held for each system.
PIECE, LONG = 48 << 20, 6


@dataclass(frozen=True)
class CountedPasses:
    """Passes, time and memory of a fit.

    Attributes
    ----------
    count : int
        Number of passes over the rows.
    row_seconds : float
        Seconds of one row in a pass.
    beside_seconds : float
        Seconds that do not grow with the rows.
    bytes : float
        Most bytes held at a time, without the rows.
    """

    count: int
    row_seconds: float
    beside_seconds: float
    bytes: float


def counted(
    phi: FeatureMap, sample: RowSample, n_rows: int, seed: int, timer: Callable[[], float]
) -> CountedPasses:
    """Solve for the sampled rows as a fit to so many does; the penalty by leave-one-out errors."""
    began, within, columns = timer(), list[float](), list[int]()
    D, order = phi.n_features, np.argsort(sample.priority, kind="stable")
    m = rows_to_factor(n_rows, D, len(sample) // 2)
    first, rest = sample.take(np.sort(order[:m])), sample.take(np.sort(order[m:]))
    w = rest.w * (n_rows / float(rest.w.sum()))
    blocks = Blocks.from_arrays(rest.X, rest.y, w)
    rounded = Rounded(phi.kernel, phi, "float32")
    problem, means = wide_problem(rounded, first, blocks, LOCAL, seed, True, n_rows)
    _ = problem.factor

    def multiply(V: Array, precision: str) -> Array:
        start = timer()
        product = problem.multiply(V, precision)
        within.append(timer() - start)
        columns.append(V.shape[1])
        return product

    solve_wide(replace(problem, multiply=multiply), "loo", False, means)
    beside = timer() - began - sum(within)
    each = sum(within) / len(within) / len(rest)
    held = float(_held(D, m, sum(columns), sample.y.shape[1]))
    return CountedPasses(1 + len(within), each, beside, held)


def _held(D: int, m: int, directions: int, t: int) -> int:
    """Return the bytes at the worst moment: the decomposition of m rows, or the solution.

    Directions and their products are copied, one after the other, when they become more.
    """
    rows = 4 * m * D
    factored = 8 * (4 * m**2 + 2 * m * min(D, 4096))
    solved = 8 * (m**2 + LONG * (t + PROBES) * D) + min(MOST_BYTES, 16 * D * directions) * 3 // 2
    return PIECE + rows + max(factored, solved)
