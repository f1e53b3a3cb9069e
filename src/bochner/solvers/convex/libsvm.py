"""Duals on a kernel matrix, by LIBSVM: sequential minimal optimisation (Chang and Lin 2011).

The hinge, ε-insensitive and one-class losses:

    minimise  Σᵢ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2) cᵀKc + drift·b,    f = Kc + b,

The coefficients are multipliers, between 0 and wᵢ/alpha for the hinge, of the sign of yᵢ. Each step
changes two of them (Fan, Chen and Lin 2005) and reads two rows of K. Rows with multipliers at their
bounds cost nothing, so this is faster than any factor of K. The dual of the squared hinge has no
upper bound and adds alpha/2wᵢ to k(xᵢ, xᵢ) (Cortes and Vapnik 1995). The module uses scikit-learn's
copy of LIBSVM.

For many rows LIBSVM computes values of a Gaussian kernel itself, and caches those of support
vectors.
"""

import warnings
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bochner._core.blas import square_part
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.kernel import values
from bochner.solvers.convex.losses import BelowZero, ClassMargin, EpsilonInsensitive, SquaredHinge
from bochner.solvers.convex.problem import Convergence, Problem, State, Step, side_by_side

MOVES = 1000  # Moves for each row, at most: where penalties are tiny there is no end otherwise.
MOVES_COMPARED = 100  # The same for machines whose penalties are compared

#: Classifiers end where slopes of the dual agree to this multiple of ``tol``: on tables of 3,000
#: rows the objective is then 1e-6 to 2e-4 of itself above its minimum, for tol = 1e-4.
SLOPES = 10.0

UNBOUNDED = 1e4  # Weight that bounds no multiplier of a squared hinge: they are 2w(1 − yf)/alpha.
LARGE_CACHE = 1000  # Megabytes of rows of K that are kept where LIBSVM computes them
TILE = 1024  # Rows whose kernel values are computed at a time


@dataclass(frozen=True, eq=False)
class GaussianRows:
    """Rows in place of their Gaussian kernel matrix: LIBSVM computes values as it needs them."""

    kernel: Any  # solvers do not import kernels
    X: Float[Array, "n d"]

    def __len__(self) -> int:
        return len(self.X)

    def __matmul__(self, coef: Float[Array, "n t"]) -> Float[Array, "n t"]:
        support = np.any(coef != 0, axis=1)
        tiles = (self.X[start : start + TILE] for start in range(0, len(self.X), TILE))
        return np.concatenate([self.kernel(X, self.X[support]) @ coef[support] for X in tiles])


def decomposed(problem: Problem, slopes: float, moves: int = MOVES) -> State:
    """Return where slopes of the dual agree to ``slopes``, or ``moves`` for each row were made.

    Columns of y are numbers, zeros for one class, or −1 and +1, and 0 of rows that take no part.
    There is an intercept. O(n²) to O(n³) a column, mostly near the former.
    """
    coef, intercept, taken = np.zeros(problem.y.shape), np.zeros(problem.y.shape[1]), []
    before: tuple[Any, ...] = ()  # rows, weights and matrix of the column before
    for k in range(len(intercept)):
        column = problem.at(np.array([k]))
        y, live = column.y[:, 0], column.w[:, 0] > 0
        of_classes = isinstance(column.loss, ClassMargin)
        rows = np.flatnonzero(live & (y != 0) if of_classes else live)
        if not (before and np.array_equal(rows, before[0]) and np.array_equal(column.w, before[1])):
            before = rows, column.w, _matrix(column, rows)
        y = y[rows] > 0 if of_classes else y[rows]
        machine, most = _fitted(column, rows, before[2], y, slopes, moves)
        coef[rows[machine.support_], k] = machine.dual_coef_[0]
        intercept[k] = machine.intercept_[0]
        taken.append((int(np.max(machine.n_iter_)), most))
    return _ended(problem, coef, intercept, taken)


def decomposed_pairs(problem: Problem, codes: Array, slopes: float, moves: int = MOVES) -> State:
    """Return the same for all pairs of classes by one call, which is faster: each has few rows.

    y has a column for each pair (k, l), k < l, in the order of :func:`itertools.combinations`: 1 in
    rows of class k, −1 of l, else 0; ``codes`` are the classes of rows, from 0. Without rows of one
    class of a pair the other wins; without rows of both none does.
    """
    coef, rows, taken = np.zeros(problem.y.shape), np.flatnonzero(problem.w[:, 0] > 0), []
    present, labels = np.unique(codes[rows].astype(np.int64), return_inverse=True)
    n_classes = round((1 + (1 + 8 * coef.shape[1]) ** 0.5) / 2)
    pairs = {pair: place for place, pair in enumerate(combinations(range(n_classes), 2))}
    intercept = np.array([float(k in present) - float(l in present) for k, l in pairs])
    if len(present) > 1:
        K = _matrix(problem, rows)
        machine, most = _fitted(problem, rows, K, labels, slopes, moves)
        taken.append((int(np.max(machine.n_iter_)), most))
        support = np.split(rows[machine.support_], np.cumsum(machine.n_support_)[:-1])
        duals = np.split(machine.dual_coef_, np.cumsum(machine.n_support_)[:-1], axis=1)
        sign = -1.0 if len(present) == 2 else 1.0  # of two classes the second has values above zero
        ends = combinations(range(len(present)), 2)
        for (i, j), b in zip(ends, machine.intercept_, strict=True):
            place = pairs[int(present[i]), int(present[j])]
            coef[support[i], place] = sign * duals[i][j - 1]
            coef[support[j], place] = sign * duals[j][i]
            intercept[place] = sign * b
    return _ended(problem, coef, intercept, taken)


def _fitted(
    problem: Problem, rows: Array, K: Any, y: Array, slopes: float, moves: int
) -> tuple[Any, int]:
    """Return LIBSVM's machine for some rows with this matrix, and the moves that it may make."""
    w, most = problem.w[rows, 0], moves * len(y)
    machine = _machine(problem, w).set_params(tol=slopes, max_iter=most)
    if isinstance(K, GaussianRows):
        machine.set_params(kernel="rbf", gamma=0.5, cache_size=LARGE_CACHE)
        K, _ = K.kernel.in_units(K.X, K.X)  # rows in place of their matrix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is part of the outcome
        machine.fit(K, y, UNBOUNDED * w if isinstance(problem.loss, SquaredHinge) else w)
    return machine, most


def _ended(problem: Problem, coef: Array, intercept: Array, taken: list[tuple[int, int]]) -> State:
    """Return the state at the end; ``taken`` are the moves and the limit of each machine."""
    ended = all(moves < most for moves, most in taken)
    outcome = Convergence.CONVERGED if ended else Convergence.MOST_STEPS
    at = judged(problem, coef, intercept, moves=sum(moves for moves, _ in taken))
    return replace(at, outcome=outcome)


def refined(problem: Problem, tol: float, moves: int, slopes: tuple[float, ...]) -> State:
    """Return the minimum to a share ``tol`` of it, if one of ``slopes``, in turn, reaches that."""
    ends = []
    for k in range(problem.y.shape[1]):
        column, tried, near = problem.at(np.array([k])), list[State](), False
        for fine in slopes:
            tried.append(decomposed(column, fine, moves))
            best = min(tried, key=lambda at: at.gap[0])
            near = best.gap[0] <= tol * best.value[0]
            if near:
                break
        outcome = Convergence.CONVERGED if near else Convergence.ROUNDED
        ends.append(replace(best, outcome=outcome))
    return side_by_side(ends)


def judged(
    problem: Problem,
    coef: Float[Array, "n t"],
    intercept: Float[Array, " t"],
    tol: float = 1.0,
    moves: float = 0,
) -> State:
    """Return the point with its duality gap; converged if that is a share ``tol`` or less."""
    image, w = problem.rows.K @ coef, problem.w
    at, norms = State(coef, intercept, image + intercept), (coef * image).sum(axis=0)
    if isinstance(problem.loss, SquaredHinge):
        norms += problem.alpha / 2 * (coef**2 / np.where(w > 0, w, np.inf)).sum(axis=0)
    value, epsilon = values(problem, at), np.asarray(getattr(problem.loss, "epsilon", 0.0))
    dual = (problem.y * coef - epsilon * np.abs(coef)).sum(axis=0) - 0.5 * norms
    gap = np.maximum(value + problem.drift * intercept - problem.alpha * dual, 0.0)
    outcome = Convergence.CONVERGED if np.all(gap <= tol * value) else Convergence.ROUNDED
    promised, active = float((problem.value * gap).sum()), float(np.any(coef != 0, axis=1).mean())
    steps = (Step(problem.objective(value, intercept), promised, moves, active),)
    return replace(at, value=value, gap=gap, algorithm="libsvm", outcome=outcome, steps=steps)


def _machine(problem: Problem, w: Float[Array, " n"]) -> Any:
    from sklearn import svm  # noqa: PLC0415  takes a sixth of a second to import

    if isinstance(problem.loss, BelowZero):
        nu = min(1.0, problem.drift / float(w.sum()))
        return svm.OneClassSVM(kernel="precomputed", nu=nu)
    if isinstance(problem.loss, EpsilonInsensitive):
        epsilon = float(np.ravel(problem.loss.epsilon)[0])
        return svm.SVR(kernel="precomputed", C=1 / problem.alpha, epsilon=epsilon)
    return svm.SVC(kernel="precomputed", C=1 / problem.alpha)


def _matrix(problem: Problem, rows: Array) -> Any:
    """Return the kernel matrix of these rows as LIBSVM takes it."""
    K = problem.rows.K
    if isinstance(K, GaussianRows):
        return GaussianRows(K.kernel, K.X[rows])
    few = len(rows) < len(K)
    K = square_part(K, rows) if few else K
    if isinstance(problem.loss, SquaredHinge):
        K = K if few else K.copy()
        K[np.diag_indices(len(K))] += problem.alpha / (2 * problem.w[rows, 0])
    return K
