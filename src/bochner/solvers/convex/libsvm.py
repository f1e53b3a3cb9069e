"""The hinge on a kernel matrix, by LIBSVM: sequential minimal optimisation of its dual.

    minimise  Σᵢ wᵢ max(0, 1 − yᵢfᵢ) + (alpha/2) cᵀKc,    f = Kc + b,

whose dual has 0 ≤ yᵢcᵢ ≤ wᵢ/alpha. Pairs of multipliers are moved in turn (Fan, Chen and Lin 2005),
each step reading two rows of K: rows with multipliers at their bounds cost nothing, so that no
factor of a matrix is as fast. Of the squared hinge the dual has no upper bound, and alpha/2wᵢ is
added to k(xᵢ, xᵢ) (Cortes and Vapnik 1995). It is scikit-learn's copy of LIBSVM that does it.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.class_losses import SquaredHinge
from bochner.solvers.convex.kernel import DualPoint, KernelOptimum, KernelProblem
from bochner.solvers.convex.optimum import Convergence, Libsvm, Optimum, Step, history_of

#: Moves for each row, at most: where penalties are tiny there is no end otherwise.
MOVES = 1000

#: Weight that bounds no multiplier of a squared hinge: they are 2w(1 − yf)/alpha.
UNBOUNDED = 1e4

#: Megabytes that it keeps of rows of K.
CACHE = 200


def hinge_on_kernel(problem: KernelProblem, *, tol: float = 1e-4) -> KernelOptimum:
    """Return the least of a hinge, or its square, on a kernel matrix, with an intercept.

    Parameters
    ----------
    problem : KernelProblem
        Its loss is :class:`Hinge` or :class:`SquaredHinge`; columns of y are −1 and +1, 0 of rows
        that take no part.
    tol : float
        LIBSVM's: slopes of the dual agree to so much, which is how well margins are met.
        ``solution.gap`` is the duality gap that is left.

    Returns
    -------
    KernelOptimum

    Notes
    -----
    O(n²) to O(n³) a column, mostly near the former.
    """
    there = np.flatnonzero(problem.w > 0)
    K = problem.K if len(there) == len(problem.w) else problem.K[np.ix_(there, there)]
    w, alpha, square = problem.w[there], problem.alpha, 0.0
    coef, intercept = np.zeros(problem.y.shape), np.empty(problem.y.shape[1])
    squared, ended = isinstance(problem.loss, SquaredHinge), True
    if squared:
        K = K.copy()
        K[np.diag_indices(len(K))] += alpha / (2 * w)
    for k, y in enumerate(problem.y[there].T):
        c, intercept[k], ends = _column(K, y, UNBOUNDED * w if squared else w, alpha, tol)
        square += float(alpha / 2 * (c**2 / w).sum()) if squared else 0.0
        coef[there, k], ended = c, ended and ends
    at = DualPoint(coef, intercept, problem.K @ coef + intercept)
    value = problem.value(at)
    dual = np.abs(coef).sum() - 0.5 * (float((coef * (at.fitted - intercept)).sum()) + square)
    gap = max(value - problem.alpha * float(dual), 0.0)
    solution = Optimum(
        coef,
        intercept,
        problem.alpha,
        value,
        gap,
        Convergence.CONVERGED if ended else Convergence.MOST_STEPS,
        history_of((Step(value, gap, active=float(np.any(coef != 0, axis=1).mean())),)),
        Libsvm(),
    )
    return KernelOptimum(solution, at)


def _column(
    K: Float[Array, "n n"], y: Float[Array, " n"], w: Float[Array, " n"], alpha: float, tol: float
) -> tuple[Float[Array, " n"], float, bool]:
    """Return coefficients and intercept of one column, and whether LIBSVM ended by itself."""
    n, rows = len(y), np.flatnonzero(y)
    if len(rows) < len(y):
        K, y, w = K[np.ix_(rows, rows)], y[rows], w[rows]
    most = MOVES * len(y)
    machine = SVC(kernel="precomputed", C=1 / alpha, tol=tol, cache_size=CACHE, max_iter=most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is said in bochner's words
        found = machine.fit(K, y > 0, w)
    coef = np.zeros(n)
    coef[rows[found.support_]] = found.dual_coef_[0]
    return coef, float(found.intercept_[0]), bool(np.max(found.n_iter_) < most)
