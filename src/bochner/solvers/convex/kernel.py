"""Convex losses on the kernel matrix of their rows: one coefficient per row, and no features.

    minimise  Σᵢ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2) cᵀKc,    f = Kc + b

**Newton's method.** With slopes g = w ℓ' and curvatures h = w ℓ'' its step (Chapelle 2007) solves

    (√h K √h + alpha I) u = √h (f − g/h − b),   c = √h u,   Σ c = 0,

in the loop of :mod:`~.newton`. The features Z = chol(K), K = ZZᵀ, have the same steps, but take 4
to 15 times as long. The factor excludes rows with almost no curvature and serves several steps. A
joint loss has one factor, for the mean curvature of its columns.

**LIBSVM** (Chang and Lin 2011; scikit-learn's copy) solves the duals of the hinge, ε-insensitive
and one-class losses by sequential minimal optimisation (Fan, Chen and Lin 2005). A coefficient is a
multiplier; for the hinge it has the sign of yᵢ and a size of at most wᵢ/alpha. Multipliers at their
bounds cost nothing, so LIBSVM is faster than factoring K. The dual of the squared hinge has no
upper bound and adds alpha/(2wᵢ) to k(xᵢ, xᵢ) (Cortes and Vapnik 1995).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from bochner._core.arrays import slices
from bochner._core.blas import factor, symmetric_product
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.losses import EpsilonInsensitive, Hinge, ZeroHinge, weigh
from bochner.solvers.convex.problem import (
    TINY,
    TOL,
    Convergence,
    DualRows,
    Gradient,
    Problem,
    State,
    System,
    factor_with_jitter,
    solve,
)
from bochner.solvers.factorisations import FLOAT32_PENALTY

# --- factors -------------------------------------------------------------------------------------


def _factor(K: Array, root: Float[Array, " a"], alpha: float) -> Float[Array, "a a"]:
    """Return the factor U of √h K √h + αI = UᵀU; α is raised if rounding needs it."""
    root, diagonal = root.astype(K.dtype), np.diag_indices(len(root))

    def shifted(jitter: float) -> Float[Array, "a a"]:
        A = root[:, None] * K
        A *= root
        A = np.asfortranarray(A.T)  # symmetric
        A[diagonal] += (1 + jitter) * alpha
        factor(A)
        return A

    size = float(root**2 @ np.diag(K)) + alpha
    return factor_with_jitter(shifted, np.full(len(root), size, K.dtype), 1e-3, 1e2)


def _curved_rows(problem: Problem, h: Float[Array, " n"]) -> Array:
    """Return the rows of a factor: active, of large curvature, or all, whose small h are raised."""
    active = np.flatnonzero(h)
    if (problem.loss.has_inactive_rows or problem.loss.nonsmooth) and len(active):
        return active
    size = h * np.diag(problem.rows.K) / problem.alpha
    order = np.argsort(size)
    # The part of √h K √h on the omitted rows has a trace of at most 2α
    n_omitted = int(np.searchsorted(np.cumsum(size[order]), 2.0))
    rows, positive = np.sort(order[min(n_omitted, len(h) - 1) :]), np.flatnonzero(problem.w)
    if len(rows) <= 0.7 * len(positive) and len(positive) > 64:
        return rows
    w = problem.w[positive, 0]
    h[positive] = np.maximum(h[positive], 1e-3 * w * h[positive].sum() / w.sum())
    return positive


@dataclass(frozen=True, eq=False)
class KernelMatrix(DualRows):
    """The kernel matrix of the rows of a problem, instead of features."""

    K: Any  # (n, n)
    #: Rows, curvatures and factor of the last system; the next column may use the same factor.
    last: list[tuple[Array, Array, Array]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.K)

    def __matmul__(self, coef: Float[Array, "n t"]) -> Float[Array, "n t"]:
        return symmetric_product(self.K, coef)

    @cached_property
    def single(self) -> Array:
        return np.asarray(self.K.astype(np.float32))

    def part(self, mask: Array) -> "KernelMatrix":
        """Return the matrix of the rows in ``mask``."""
        return KernelMatrix(self.K[np.ix_(mask, mask)])

    def system(self, problem: Problem, curvature: Float[Array, "n t"]) -> System:
        """Return a function for steps by one factor, for the curvatures averaged over columns.

        The factor is of the rows of ``_curved_rows``; a step of other rows is δc = −r/α.
        """
        loss, K, alpha, (n, t) = problem.loss, self.K, problem.alpha, problem.y.shape
        curvatures = weigh(problem.w, loss.diagonal(curvature)).mean(axis=1)
        rows = _curved_rows(problem, curvatures)
        h, diagonal = np.maximum(curvatures[rows], TINY), K.diagonal()
        last = self.last
        if not (last and np.array_equal(rows, last[0][0]) and np.array_equal(h, last[0][1])):
            # Whether rounding errors of a float32 factor are negligible in the steps
            is_large = len(rows) > 256 and alpha > 1e-30 and float(diagonal.max()) < 1e30
            single = is_large and float(h @ diagonal[rows]) * FLOAT32_PENALTY <= alpha
            matrix = self.single if single else K
            if len(rows) < n:
                matrix = matrix[np.ix_(rows, rows)]
            last[:] = [(rows, h, _factor(matrix, np.sqrt(h), alpha))]
        factor, root = last[0][2], np.sqrt(h)[:, None]
        # The change of the coefficients if the intercept decreases by 1
        unit = root * solve(factor, root.T).T
        remainder = max(float(curvatures.sum() - curvatures[rows].sum()), 0.0) / alpha

        def step(gradient: Gradient) -> State:
            r, s = gradient
            image = c = -r / alpha
            b, target = np.zeros(t), (s - r.sum(axis=0)) / alpha  # target of Σ δc
            c[rows] = 0.0
            if np.any(c):
                matrix = self.single if factor.dtype == np.float32 else K
                image = symmetric_product(matrix, c.astype(matrix.dtype))
            c[rows] = root * solve(factor, (-r[rows] / root - root * image[rows]).T).T
            if problem.fit_intercept:
                curvature = float(unit.sum()) + remainder
                if curvature > TINY**0.5:  # where no row is active, nothing determines b
                    b = (c.sum(axis=0) - target) / curvature
                c[rows] -= unit * b
            c, b = loss.centred(c), loss.centred(b)
            return State(c, b, symmetric_product(K, c) + b)

        return step


# --- ridge regressions of rows in any representation ----------------------------------------------


@dataclass(frozen=True, eq=False)
class RidgeRows(DualRows):
    """Rows on which only ridge regressions are available, with any targets and weights.

    Smooth losses are minimised by iteratively reweighted least squares: with h = wℓ″ and
    r = wℓ′ + αc, Newton's step is the ridge regression of −r/h with weights h. For a joint loss h
    is the mean over columns.
    """

    rows: Any  # a representation
    #: Function of (targets, weights, alpha) to a representation and a ridge solution
    ridge: Callable[[Float[Array, "n t"], Float[Array, " n"], float], tuple[Any, Any]]

    is_cached: ClassVar[bool] = False

    def __len__(self) -> int:
        return int(self.rows.X.shape[0])

    def weights(self, problem: Problem, curvature: Float[Array, "n t"]) -> Float[Array, " n"]:
        """Return h, raised to a floor that changes a step by at most 1 %."""
        h = weigh(problem.w, problem.loss.diagonal(curvature)).mean(axis=1)
        size = float(np.sum(self.rows.chosen.kernel.diag(self.rows.X)))
        return np.maximum(h, 0.01 * problem.alpha / size)

    def system(self, problem: Problem, curvature: Float[Array, "n t"]) -> System:
        h = self.weights(problem, curvature)

        def step(gradient: Gradient) -> State:
            rows, end = self.ridge(-gradient[0] / h[:, None], h, problem.alpha)
            f, blocks = rows.values(end), slices(len(self), rows.block_rows)
            fitted = np.concatenate([f(rows.X[block]) for block in blocks])
            return State(end.coef, end.intercept, fitted)

        return step

    def regression(self, problem: Problem, at: State, units: Any) -> tuple[Any, Any]:
        """Return the ridge regression whose solution is ``at``, for targets times ``units``.

        At the minimum αc = −wℓ′: leave-one-out predictions are those of one Newton step without
        the row (Rad and Maleki 2020).
        """
        h = self.weights(problem, problem.loss.curvature(problem.y, at.fitted))
        targets = at.fitted + problem.alpha * at.coef / h[:, None]
        return self.ridge(units * targets, h, problem.alpha)


MOVES = 1000  # Most moves of LIBSVM per row; with tiny penalties it may not end
MOVES_COMPARED = 100  # The same for fits that compare penalties
FEW_ROWS = 1000  # A final fit of fewer rows may make as many moves; 60 rows need 200 to 1,000 each
SQUARED_HINGE_ROWS = 2048  # Up to this number of rows squared hinges use factors of K, not LIBSVM

#: LIBSVM ends when slopes of the dual agree to this multiple of ``tol``. With tol = 1e-4 the
#: relative error of a classifier's objective is then 1e-6 to 2e-4 on tables of 3,000 rows.
SLOPES = 10.0

MAX_GAP = 0.01  # Relative gap up to which a final fit may use all its moves without a warning
UNBOUNDED = 1e4  # Factor of weights, so that multipliers of a squared hinge reach no bound
LARGE_CACHE = 1000  # Megabytes of LIBSVM's cache for rows of K that it computes
TILE = 1024  # Least number of rows whose kernel values are computed at a time


@dataclass(frozen=True, eq=False)
class GaussianRows:
    """Rows, whose Gaussian kernel values LIBSVM computes when it needs them."""

    kernel: Any  # solvers do not import kernels
    X: Float[Array, "n d"]

    def __len__(self) -> int:
        return len(self.X)

    def __matmul__(self, coef: Float[Array, "n t"]) -> Float[Array, "n t"]:
        support = np.any(coef != 0, axis=1)
        sparse, X = csr_array(coef[support].T), self.X[support]  # each pair has few support vectors
        size = max(TILE, (1 << 22) // max(1, len(X)))  # 32 MB of kernel values
        tiles = (self.X[start : start + size] for start in range(0, len(self.X), size))
        return np.concatenate([sparse @ self.kernel(X, Y) for Y in tiles], axis=1).T


def is_machine(problem: Problem) -> bool:
    """Return whether LIBSVM minimises the problem; it requires an intercept."""
    loss, is_large = problem.loss, len(problem.w) > SQUARED_HINGE_ROWS or _of_pairs(problem)
    has_box = loss.nonsmooth or (isinstance(loss, Hinge) and is_large)
    of_kernel = isinstance(problem.rows, KernelMatrix) and problem.fit_intercept
    return of_kernel and has_box and isinstance(loss, Hinge | EpsilonInsensitive | ZeroHinge)


def _of_pairs(problem: Problem) -> bool:
    """Return whether columns are pairs of classes, in which y = 0 for rows of other classes."""
    return isinstance(problem.loss, Hinge) and not np.all(problem.y)


def run_libsvm(problem: Problem, tol: float, moves: int) -> State:
    """Return LIBSVM's state, after at most ``moves`` per row.

    y has real targets, zeros (one class), or −1 and +1 with 0 for unused rows. A final fit of real
    targets ends at a gap of ``tol``, and with few rows may make more moves.
    """
    y, middle, slopes, tolerance = problem.y, np.zeros(problem.y.shape[1]), SLOPES * tol, 1.0
    if not isinstance(problem.loss, Hinge):
        middle = np.median(y, axis=0)  # Otherwise rounding of a large offset is fitted
        problem = replace(problem, y=y - middle)
        if tol < TOL:
            slopes, tolerance = 0.01 * tol, tol
            moves *= max(1, FEW_ROWS // len(y))
    fit_machines = _fit_pairs if _of_pairs(problem) else _fit_columns
    coef, b, machines = fit_machines(problem, partial(_fit_machine, tol=slopes, moves=moves))
    at = State(coef, b, problem.rows.K @ coef + b, algorithm="libsvm", steps=1)
    at, outcome = with_gap(problem, at), Convergence.MOST_STEPS
    ended = all(int(np.max(m.n_iter_)) < m.max_iter for m in machines)
    if ended or (tolerance < 1.0 and np.all(at.gap <= MAX_GAP * at.value)):
        is_close = bool(np.all(at.gap <= tolerance * at.value))
        outcome = Convergence.CONVERGED if is_close else Convergence.ROUNDED
    return replace(at, intercept=b + middle, fitted=at.fitted + middle, outcome=outcome)


Machines = tuple[Float[Array, "n t"], Float[Array, " t"], list[Any]]  # coefficients, b, machines


def _fit_columns(problem: Problem, fit: Callable[..., Any]) -> Machines:
    coef, intercept, machines = np.zeros(problem.y.shape), np.zeros(problem.y.shape[1]), []
    last: tuple[Any, ...] = ()  # weights and matrix of the last column
    for k in range(len(intercept)):
        column = problem.at(np.array([k]))
        y, rows = column.y[:, 0], np.flatnonzero(column.w[:, 0] > 0)
        if not (last and np.array_equal(column.w, last[0])):
            last = column.w, _matrix(column, rows)
        y = y[rows] > 0 if isinstance(column.loss, Hinge) else y[rows]
        machine = fit(column, rows, last[1], y)
        coef[rows[machine.support_], k] = machine.dual_coef_[0]
        intercept[k] = machine.intercept_[0]
        machines.append(machine)
    return coef, intercept, machines


def _fit_pairs(problem: Problem, fit: Callable[..., Any]) -> Machines:
    """Fit all pairs of classes by one call, which takes a third to a half of the time of several.

    If a class has no rows, f has the sign of the other class of the pair; if both have none, f = 0.
    """
    coef, rows = np.zeros(problem.y.shape), np.flatnonzero(problem.w[:, 0] > 0)
    n_classes = round((1 + (1 + 8 * coef.shape[1]) ** 0.5) / 2)
    ends = list(combinations(range(n_classes), 2))
    first, second = (np.eye(n_classes)[list(classes)] for classes in zip(*ends, strict=True))
    codes = np.argmax(problem.y[rows] @ (first - second), axis=1)  # the class that is in all pairs
    present, labels = np.unique(codes, return_inverse=True)
    intercept = np.array([float(k in present) - float(l in present) for k, l in ends])
    if len(present) < 2:
        return coef, intercept, []
    machine = fit(problem, rows, _matrix(problem, rows), labels)
    support = np.split(rows[machine.support_], np.cumsum(machine.n_support_)[:-1])
    duals = np.split(machine.dual_coef_, np.cumsum(machine.n_support_)[:-1], axis=1)
    sign = -1.0 if len(present) == 2 else 1.0  # for two classes scikit-learn's sign is opposite
    for (i, j), b in zip(combinations(range(len(present)), 2), machine.intercept_, strict=True):
        place = ends.index((int(present[i]), int(present[j])))
        coef[support[i], place] = sign * duals[i][j - 1]
        coef[support[j], place] = sign * duals[j][i]
        intercept[place] = sign * b
    return coef, intercept, [machine]


def _fit_machine(problem: Problem, rows: Array, K: Any, y: Array, tol: float, moves: int) -> Any:
    """Return scikit-learn's SVM of ``rows`` with kernel matrix K; at most ``moves`` per row."""
    from sklearn import svm  # noqa: PLC0415  takes a sixth of a second to import

    w, loss, C = problem.w[rows, 0], problem.loss, 1 / problem.alpha
    options: dict[str, Any] = {"tol": tol, "max_iter": moves * len(y), "kernel": "precomputed"}
    if isinstance(K, GaussianRows):
        options |= {"kernel": "rbf", "gamma": 0.5, "cache_size": LARGE_CACHE}
        K, _ = K.kernel.scale_inputs(K.X, K.X)  # rows, as LIBSVM computes the matrix
    if isinstance(loss, ZeroHinge):
        machine = svm.OneClassSVM(nu=min(1.0, problem.drift / float(w.sum())), **options)
    elif isinstance(loss, EpsilonInsensitive):
        machine = svm.SVR(C=C, epsilon=float(np.ravel(loss.epsilon)[0]), **options)
    else:
        machine = svm.SVC(C=C, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the outcome reports it
        return machine.fit(K, y, UNBOUNDED * w if loss.has_inactive_rows else w)


def with_gap(problem: Problem, at: State) -> State:
    """Return a state of LIBSVM with its value and duality gap."""
    w, norms, coef = problem.w, problem.inner(at, at), at.coef
    if problem.loss.has_inactive_rows:
        norms += problem.alpha / 2 * (coef**2 / np.where(w > 0, w, np.inf)).sum(axis=0)
    value, epsilon = problem.values(at), np.asarray(getattr(problem.loss, "epsilon", 0.0))
    dual = (problem.y * coef - epsilon * np.abs(coef)).sum(axis=0) - 0.5 * norms
    gap = np.maximum(value + problem.drift * at.intercept - problem.alpha * dual, 0.0)
    return replace(at, value=value, gap=gap)


def _matrix(problem: Problem, rows: Array) -> Any:
    """Return the kernel matrix of these rows for :func:`_fit_machine`; dual of a squared hinge."""
    K = problem.rows.K
    if isinstance(K, GaussianRows):
        return GaussianRows(K.kernel, K.X[rows])
    is_part = len(rows) < len(K)
    K = K[np.ix_(rows, rows)] if is_part else K
    if problem.loss.has_inactive_rows:
        K = K if is_part else K.copy()
        K[np.diag_indices(len(K))] += problem.alpha / (2 * problem.w[rows, 0])
    return K
