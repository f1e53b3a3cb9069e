"""Duals on a kernel matrix, by LIBSVM: sequential minimal optimisation (Chang and Lin 2011).

The hinge loss:

    minimise  Σᵢ wᵢ max(0, 1 − yᵢfᵢ) + (alpha/2) cᵀKc,    f = Kc + b,

The dual has the constraints 0 ≤ yᵢcᵢ ≤ wᵢ/alpha. Each step changes two multipliers (Fan, Chen and
Lin 2005) and reads two rows of K. Rows with multipliers at their bounds cost nothing, so this is
faster than any factor of K. The dual of the squared hinge has no upper bound and adds alpha/2wᵢ to
k(xᵢ, xᵢ) (Cortes and Vapnik 1995). The module uses scikit-learn's copy of LIBSVM.

For many rows LIBSVM computes values of a Gaussian kernel itself, and caches those of support
vectors.

Several classes are separated pair by pair, in one call: each pair has few rows.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bochner._core.shapes import Array, Float
from bochner.solvers.convex.kernel import values
from bochner.solvers.convex.losses import SquaredHinge
from bochner.solvers.convex.optimum import Convergence, Optimum, Step, history_of
from bochner.solvers.convex.problem import Problem, State

MOVES = 1000  # Moves for each row, at most: where penalties are tiny there is no end otherwise.
MOVES_COMPARED = 100  # The same for machines of which penalties are compared

#: LIBSVM ends where slopes of the dual agree to this multiple of ``tol``: on tables of 3,000 rows
#: the objective is then 1e-6 to 2e-4 of itself above its minimum, for tol = 1e-4.
SLOPES = 10.0

UNBOUNDED = 1e4  # Weight that bounds no multiplier of a squared hinge: they are 2w(1 − yf)/alpha.
CACHE = 200  # Megabytes that it keeps of rows of K
LARGE_CACHE = 1000  # The same where it computes them itself
TILE = 1024  # Rows whose kernel values are computed at a time


@dataclass(frozen=True, eq=False)
class GaussianRows:
    """The matrix of a Gaussian kernel between many rows; LIBSVM computes its values."""

    kernel: Any  # solvers do not import kernels
    X: Float[Array, "n d"]

    def __len__(self) -> int:
        return len(self.X)

    def __matmul__(self, coef: Float[Array, "n t"]) -> Float[Array, "n t"]:
        support = np.any(coef != 0, axis=1)
        tiles = (self.X[start : start + TILE] for start in range(0, len(self.X), TILE))
        return np.concatenate([self.kernel(X, self.X[support]) @ coef[support] for X in tiles])


def _among(K: Any, rows: Array) -> Any:
    """Return the matrix of these rows."""
    if isinstance(K, GaussianRows):
        return GaussianRows(K.kernel, K.X[rows])
    return K[np.ix_(rows, rows)]


def hinge_on_kernel(problem: Problem, *, tol: float = 1e-4, moves: int = MOVES) -> State:
    """Return the least of a hinge, or its square, on a kernel matrix, with an intercept.

    Columns of y are −1 and +1, 0 of rows that take no part. The objective is above its minimum by
    about the share ``tol``: slopes of the dual agree to ten times as much, which is how well
    margins are met; ``solution.gap`` is the duality gap that is left. ``moves`` of LIBSVM are
    allowed for each row. O(n²) to O(n³) a column, mostly near the former.
    """
    weighed, K, w = _weighed(problem)
    coef, intercept = np.zeros(problem.y.shape), np.empty(problem.y.shape[1])
    ended = True
    bounds = UNBOUNDED * w if isinstance(problem.loss, SquaredHinge) else w
    for k, y in enumerate(problem.y[weighed].T):
        rows = np.flatnonzero(y)
        matrix = K if len(rows) == len(y) else _among(K, rows)
        machine, ends = _fitted(matrix, y[rows] > 0, bounds[rows], problem.alpha, tol, moves)
        coef[weighed[rows[machine.support_]], k] = machine.dual_coef_[0]
        intercept[k], ended = float(machine.intercept_[0]), ended and ends
    return _judged(problem, coef, intercept, problem.rows.K @ coef + intercept, ended)


def hinge_of_pairs(
    problem: Problem, codes: Array, *, tol: float = 1e-4, moves: int = MOVES
) -> State:
    """Return the same for the pairs of classes, whose rows the columns of y have as −1 and +1.

    y has a column for each pair (k, l), k < l, in the order of :func:`itertools.combinations`: 1 in
    rows of class k, −1 of l, else 0; ``codes`` are the classes of rows, from 0. Without rows of one
    class of a pair the other wins; without rows of both none does. O(n²) for all pairs where
    classes have similar sizes.
    """
    weighed, K, w = _weighed(problem)
    pairs = codes[weighed].astype(np.int64)
    bounds = UNBOUNDED * w if isinstance(problem.loss, SquaredHinge) else w
    present = np.unique(pairs)
    coef, intercept = np.zeros(problem.y.shape), np.zeros(problem.y.shape[1])
    n_classes = round((1 + (1 + 8 * problem.y.shape[1]) ** 0.5) / 2)
    number = {pair: place for place, pair in enumerate(combinations(range(n_classes), 2))}
    for (k, l), place in number.items():
        intercept[place] = float(k in present) - float(l in present)
    ended = True
    if len(present) > 1:
        machine, ended = _fitted(K, pairs, bounds, problem.alpha, tol, moves)
        for pair, c, b in _of_machine(machine, present):
            rows, values = c
            coef[weighed[rows], number[pair]], intercept[number[pair]] = values, b
    fitted = np.tile(intercept, (len(coef), 1))
    if isinstance(problem.rows.K, GaussianRows):
        return _judged(problem, coef, intercept, fitted + problem.rows.K @ coef, ended)
    for k in present:
        rows = weighed[pairs == k]
        rows = rows[np.any(coef[rows] != 0, axis=1)]
        columns = [place for pair, place in number.items() if k in pair]
        fitted[:, columns] += problem.rows.K[rows].T @ coef[np.ix_(rows, columns)]
    return _judged(problem, coef, intercept, fitted, ended)


def _of_machine(
    machine: Any, present: Array
) -> Iterator[tuple[tuple[int, int], tuple[Array, Array], float]]:
    """Yield each pair of LIBSVM, its support rows with their coefficients, and b."""
    ends = np.cumsum(machine.n_support_)
    spans = [slice(end - size, end) for end, size in zip(ends, machine.n_support_, strict=True)]
    sign = -1.0 if len(present) == 2 else 1.0  # of two classes the second has values above zero
    for (i, j), b in zip(combinations(range(len(present)), 2), machine.intercept_, strict=True):
        first, second = spans[i], spans[j]
        rows = np.concatenate([machine.support_[first], machine.support_[second]])
        c = [machine.dual_coef_[j - 1, first], machine.dual_coef_[i, second]]
        pair = int(present[i]), int(present[j])
        yield pair, (rows, sign * np.concatenate(c)), sign * float(b)


def _weighed(problem: Problem) -> tuple[Array, Any, Float[Array, " m"]]:
    """Return which rows count, their kernel matrix as LIBSVM takes it, and their weights."""
    w = problem.w[:, 0]
    rows = np.flatnonzero(w > 0)
    K = problem.rows.K if len(rows) == len(w) else _among(problem.rows.K, rows)
    if isinstance(problem.loss, SquaredHinge):
        K = K.copy()
        K[np.diag_indices(len(K))] += problem.alpha / (2 * w[rows])
    return rows, K, w[rows]


def _judged(
    problem: Problem,
    coef: Float[Array, "n t"],
    intercept: Float[Array, " t"],
    fitted: Float[Array, "n t"],
    ended: bool,
) -> State:
    """Return the point with its duality gap."""
    at, squares = State(coef, intercept, fitted), np.zeros(len(intercept))
    if isinstance(problem.loss, SquaredHinge):
        there = problem.w[:, 0] > 0
        squares = problem.alpha / 2 * (coef[there] ** 2 / problem.w[there]).sum(axis=0)
    value = values(problem, at)
    dual = np.abs(coef).sum(axis=0) - 0.5 * ((coef * (fitted - intercept)).sum(axis=0) + squares)
    gap = np.maximum(value - problem.alpha * dual, 0.0)
    active = float(np.any(coef != 0, axis=1).mean())
    return replace(
        at,
        value=value,
        gap=gap,
        algorithm="libsvm",
        outcome=Convergence.CONVERGED if ended else Convergence.MOST_STEPS,
        steps=(Step(float(value.sum()), float(gap.sum()), active=active),),
    )


def _fitted(
    K: Any, y: Array, w: Float[Array, " n"], alpha: float, tol: float, moves: int
) -> tuple[Any, bool]:
    """Return LIBSVM's machine, and whether it ended by itself."""
    from sklearn.svm import SVC  # noqa: PLC0415  takes a sixth of a second to import

    most = moves * len(y)
    slopes = SLOPES * tol
    machine = SVC(kernel="precomputed", C=1 / alpha, tol=slopes, cache_size=CACHE, max_iter=most)
    if isinstance(K, GaussianRows):
        machine.set_params(kernel="rbf", gamma=0.5, cache_size=LARGE_CACHE)
        K, _ = K.kernel.in_units(K.X, K.X)
    machine = _quietly(machine, K, y, w)
    return machine, bool(np.max(machine.n_iter_) < most)


def _quietly(machine: Any, K: Array, y: Array, w: Array) -> Any:
    """Return the fitted machine, with bochner's warning if it did not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return machine.fit(K, y, w)


# --- SVR and one-class machines ------------------------------------------------------------------
#
#     minimise  ½ aᵀKa − yᵀa + ε Σ |aᵢ|,    lowerᵢ ≤ aᵢ ≤ upperᵢ,    Σ a = total
#
# The duality gap bounds the distance of the objective from its minimum. The primal problem has
# f = Ka + b and the loss upper max(0, y − f − ε) − lower max(0, f − y − ε) of each row.


@dataclass(frozen=True, eq=False)
class BoxPoint:
    """Coefficients of the rows, an intercept, the primal objective, its gap, and the steps."""

    coef: Float[Array, " n"]
    intercept: float
    value: float
    gap: float
    steps: int

    def optimum(self, alpha: float, tol: float, worth: float, drift: float = 0.0) -> Optimum:
        """Return the optimum at a penalty, of ``worth`` times this objective and drift·b."""
        value, gap = worth * (self.value + drift * self.intercept), worth * self.gap
        return Optimum(
            self.coef[:, None],
            np.array([self.intercept]),
            alpha,
            value,
            gap,
            Convergence.CONVERGED if self.gap <= tol * self.value else Convergence.ROUNDED,
            history_of((Step(value, gap, self.steps),)),
            "libsvm",
        )


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """The problem, and scikit-learn's machine that solves it on a precomputed kernel matrix."""

    K: Float[Array, "n n"]
    y: Float[Array, " n"]
    w: Float[Array, " n"]  # weights that the machine takes
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    total: float
    epsilon: float
    machine: Any

    def judged(self, coef: Float[Array, " n"], intercept: float, steps: int) -> BoxPoint:
        """Return coefficients with their objective and duality gap."""
        image = self.K @ coef
        power = 0.5 * float(coef @ image)
        r = self.y - image - intercept
        lost = self.upper * np.maximum(r - self.epsilon, 0.0)
        lost -= self.lower * np.maximum(-r - self.epsilon, 0.0)
        value = power + float(lost.sum())
        dual = float(self.y @ coef) - self.epsilon * float(np.abs(coef).sum()) - power
        gap = value - dual + self.total * intercept
        return BoxPoint(coef, intercept, value, max(gap, 0.0), steps)

    def decomposed(self, tol: float, most: int) -> BoxPoint:
        """Return LIBSVM's answer."""
        machine = clone(self.machine).set_params(kernel="precomputed", tol=tol, max_iter=most)
        machine = _quietly(machine, self.K, self.y, self.w)
        coef = np.zeros(len(self.y))
        coef[machine.support_] = machine.dual_coef_[0]
        return self.judged(coef, float(machine.intercept_[0]), int(machine.n_iter_))

    def solved(self, tol: float, max_iter: int, tolerances: tuple[float, ...]) -> BoxPoint:
        """Return the minimum, to a share ``tol`` of it where LIBSVM's tolerances reach that."""
        best = None
        for fine in tolerances:
            at = self.decomposed(fine, max_iter * len(self.y))
            best = at if best is None or at.gap < best.gap else best
            if best.gap <= tol * best.value:
                break
        assert best is not None
        return best
