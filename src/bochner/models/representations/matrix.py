"""Ridge regression with the kernel itself: directly of few rows, else by conjugate gradients.

Features of all rows precondition the latter, and choose the penalty.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bochner._core import native
from bochner._core.arrays import is_sparse
from bochner._core.blas import eigh
from bochner._core.shapes import Array, Float, Gradients, Predictions
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, chosen_rows, row_priorities
from bochner.features.auto import Choice
from bochner.features.map import FeatureMap
from bochner.features.nystrom.nystrom import Rounded
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.distances import overflow
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import CoordinateWise, Radial, Stationary
from bochner.models._calibration import Calibration, calibrate, decided, log_loss_of_signs
from bochner.models._kernel_sum import KernelSum
from bochner.models.error_law import LEFT_OUT_ROWS, Coupling, LeftOutRows
from bochner.models.representations.leaves import among_near_rows
from bochner.models.representations.methods import DIRECT_ROWS, ExactKernel, exact_choice
from bochner.models.representations.representation import (
    GatheredRows,
    Representation,
    RidgeSpec,
    gather,
    lacks_of_kernel,
    of_differences,
    require_kernel_fit,
    variance_of,
)
from bochner.selection.choose import choose, choose_for_matrix, transformed
from bochner.selection.chosen import Chosen
from bochner.selection.record import Curves, Tuning
from bochner.selection.spec import Tolerance
from bochner.solvers.cg import KernelOperator
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.eigen import Eigen, decompose
from bochner.solvers.ridge.kernel_path import PENALTY_ROWS, solve_kernel
from bochner.solvers.ridge.krylov import KrylovSolution, System, low_rank_inverse, solve_system
from bochner.solvers.ridge.path import given_alpha, least_alpha, solve_ridge
from bochner.solvers.ridge.problem import left_out_errors, slack_of_inverse
from bochner.solvers.ridge.solution import Outcome, Solution
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Accumulator, Moments, Precision

MOST_LOO_ROWS = 8192  # Number of rows with leave-one-out errors; a random subset if there are more
ROUNDED = 0.01  # Share of a penalty that features may be rounded by
SAMPLE_ROWS = 4096  # If there are more rows than this, the kernel is tuned again at their density

#: Trace of the kernel matrix, in penalties and at all, up to which features of float32 are tried.
MOST_TRACE, LARGEST_TRACE = 1e7, 1e30


@dataclass(frozen=True, eq=False)
class Prepared:
    """Features of the rows about their means and weighted, and the ridge regression on them."""

    Z: Float[Array, "n r"]
    eigen: Eigen
    mean: Float[Array, " t"]
    solution: Solution


def prepare(spec: RidgeSpec, chosen: Chosen, rows: GatheredRows) -> Prepared:
    """Make the features, and choose the penalty on them.

    They are of float32, in half of the time, where a penalty is given that they serve for.
    """
    alpha, centred = spec.alpha, spec.fit_intercept
    Z, moments, eigen = _single(spec, chosen, rows) or _summed(chosen.map, rows, "float64", centred)
    Z -= moments.feature_mean.astype(Z.dtype)
    solution = solve_ridge(
        eigen,
        (moments.feature_mean, moments.target_mean),
        alpha,
        _loo_rows(chosen.seed, rows, Z, moments) if alpha == "loo" else (),
        per_target=spec.per_target,
    )
    Z *= np.sqrt(rows.w).astype(Z.dtype)[:, None]
    return Prepared(Z, eigen, moments.target_mean, solution)


class _Summed(NamedTuple):
    """Features, their moments, about zero if there is no intercept, and eigenvalues."""

    Z: Float[Array, "n r"]
    moments: Moments
    eigen: Eigen


def _single(spec: RidgeSpec, chosen: Chosen, rows: GatheredRows) -> _Summed | None:
    """Return all in float32; None where a penalty must be found, or is too small for it."""
    alpha = spec.alpha
    if isinstance(alpha, str):
        return None
    trace = peak(chosen.kernel, rows) ** 2 * rows.weight
    if not trace <= min(MOST_TRACE * np.min(alpha), LARGEST_TRACE):
        return None
    sums = _summed(chosen.map, rows, "float32", spec.fit_intercept)
    return sums if _serves(sums.eigen.values, alpha) else None


def _summed(phi: FeatureMap, rows: GatheredRows, precision: Precision, centred: bool) -> _Summed:
    Z, sums = _features(phi, rows, precision)
    moments = sums if centred else sums.about_zero()
    return _Summed(Z, moments, decompose(moments, centred))


def _features(
    phi: FeatureMap, rows: GatheredRows, precision: Precision
) -> tuple[Float[Array, "n r"], Moments]:
    """Return φ of all rows, and its moments."""
    size, single = block_rows(phi.n_features), Rounded(phi.kernel, phi, precision)
    Z, sums = np.empty((len(rows.w), phi.n_features), precision), Accumulator(precision)
    for start in range(0, len(Z), size):
        here = slice(start, start + size)
        Z[here] = single(rows.X[here])
        sums.add(Z[here], rows.y[here], rows.w[here])
    return Z, sums.moments()


def _loo_rows(
    seed: int, rows: GatheredRows, Z: Array, moments: Moments
) -> Iterator[tuple[Array, Array, Array]]:
    n = len(Z)
    kept = chosen_rows(seed, n, min(n, MOST_LOO_ROWS))
    for index in np.array_split(kept, max(1, len(kept) // block_rows(Z.shape[1]))):
        yield Z[index], rows.y[index] - moments.target_mean, rows.w[index]


def rounded(Z: Array, values: Array, alphas: Array) -> Array:
    """Return Z in float32, where what that changes of ZZᵀ is little beside the penalties."""
    return Z.astype(np.float32, copy=False) if _serves(values, alphas) else Z


def _serves(values: Array, alphas: Any) -> bool:
    """Whether float32 changes little of ZZᵀ, which has these eigenvalues, beside the penalties."""
    rounding = np.finfo(np.float32).eps * values.max(initial=0.0)
    return bool(rounding <= ROUNDED * np.min(alphas))


def peak(kernel: Kernel, rows: GatheredRows) -> float:
    """Return the largest √k(x, x) of the rows."""
    return float(np.sqrt(np.max(kernel.diag(rows.X))))


# --- Kernel ridge regression with the kernel itself: the n × n answer, without an n × n matrix ---
#
# With A = √w K √w, and without the direction √w where an intercept takes it up, the model is
# f(x) = Σ_i c_i k(x, x_i) + b, c = √w u, (A + alpha I)u = √w y: the least of
# Σ w_i (y_i − f(x_i))² + alpha |f|² over all functions of the kernel.

FEW_ROWS = 100  # Up to this many rows the system is solved by eigenvectors
WIDTH = 1024  # Width of the preconditioner where it is left open


@dataclass(frozen=True, eq=False)
class MatrixRows(Representation):
    """All rows, for fits with the kernel itself."""

    chosen: Chosen  # Its map is the preconditioner's; for few rows the Nyström map on all of them
    target_shape: tuple[int, ...]
    rows: int
    fit_intercept: bool
    X: Any
    # Targets and weights, so that features can be made of the rows when more come
    y: Any = None
    w: Any = None

    lacks: ClassVar[Mapping[str, str]] = lacks_of_kernel("an exact fit")

    @property
    def count(self) -> int:
        return int(self.X.shape[0])

    @property
    def target_variance(self) -> float:
        return np.nan if self.y is None else variance_of(self.y, self.w)

    def predictions(self, solution: Solution, blocks: Blocks) -> Predictions:
        return self.sum(solution).values(blocks)

    def gradients(self, solution: Solution, blocks: Blocks) -> Gradients:
        return self.sum(solution).gradients(blocks)

    def sum(self, solution: Solution) -> KernelSum:
        """Return f as a sum over rows."""
        return KernelSum(self.chosen.kernel, self.X, solution.coef, solution.intercept)

    def left_out(self, solution: Solution) -> LeftOutRows | None:
        """Return rows with their leave-one-out predictions; None where no targets were kept.

        All of them up to 4096, else a random 4096: the last block of a Cholesky factor.
        """
        if self.y is None:
            return None
        n = len(self.w)
        index = chosen_rows(self.chosen.seed, n, min(n, LEFT_OUT_ROWS))
        order = np.concatenate([np.setdiff1d(np.arange(n), index), index])
        y, w, X = self.y[order], self.w[order], self.X[order]
        rows = KernelRows(kernel_matrix(self.chosen.kernel, X), y, w, self.fit_intercept)
        last, errors = slice(n - len(index), None), np.empty((len(index), y.shape[1]))
        each = np.broadcast_to(np.asarray(solution.alpha, np.float64), y.shape[1])
        coupling: list[Any] = [None] * len(each)
        for alpha in np.unique(each):
            targets = np.flatnonzero(each == alpha)
            factor = replace(rows, y=y[:, targets]).factored(float(alpha))
            u, M = factor.u[last], factor.inverse_of_last(len(index))
            slack = slack_of_inverse(alpha * np.diag(M), w[last])
            errors[:, targets] = left_out_errors(alpha * u / rows.root[last, None], slack[:, None])
            for j, each_u in zip(targets, u.T, strict=True):
                coupling[j] = Coupling.of_matrix(each_u, rows.root[last], M)
        parts = X[last], y[last] - errors, errors, w[last], "leave one out"
        return LeftOutRows(*parts, tuple(coupling), np.arange(len(index)))

    def calibration(self, solution: Solution) -> Calibration | None:
        slack, y, w = solution.slack, self.y, self.w
        if slack is None or y is None:
            return None
        finite = np.flatnonzero(np.isfinite(slack).all(axis=1))
        residual = solution.alpha * solution.coef[finite] / w[finite, None]
        return calibrate(y[finite] - residual / slack[finite], decided(y[finite]), w[finite])


# --- fitting -------------------------------------------------------------------------------------


def exact_rows(
    spec: RidgeSpec, method: ExactKernel, blocks: Blocks, where: Executor = LOCAL
) -> tuple[MatrixRows, Solution]:
    """Choose what is open on features, then solve for the kernel itself.

    The method of ``spec.features`` is the preconditioner's.
    """
    shape = require_kernel_fit(spec, "exact", "compares each row with all others", blocks, where)
    n = blocks.n_rows
    if method.preconditioner is None and n is not None and n <= DIRECT_ROWS:
        return _direct_rows(spec, method, blocks, shape)
    chosen = _chosen(spec, method, blocks, where)
    rows = gather(blocks)
    prepared = prepare(spec, chosen, rows)
    krylov, intercept = _solve(spec, chosen, method, rows, prepared)
    solution = _solution(rows, prepared, krylov, intercept, method.tol)
    return MatrixRows(chosen, shape, count_rows(blocks), spec.fit_intercept, rows.X), solution


def _direct_rows(
    spec: RidgeSpec, method: ExactKernel, blocks: Blocks, shape: tuple[int, ...]
) -> tuple[MatrixRows, Solution]:
    """Choose the kernel by the matrix of some rows, then solve with the matrix of all."""
    rows, seed = gather(blocks), spec.features.seed
    tuning, curves, sample = chosen_by_matrix(spec, rows)
    chosen = Chosen(seed, tuning, exact_choice(tuning, sample.X, method))
    chosen = chosen if curves is None else chosen.through(curves)
    order = np.argsort(sample.priority) if len(rows.w) > PENALTY_ROWS else np.arange(len(rows.w))
    solution = _solved(spec, tuning.share, chosen, rows.take(order)).of_rows(np.argsort(order))
    kept = rows.X, rows.y, rows.w
    return MatrixRows(chosen, shape, count_rows(blocks), spec.fit_intercept, *kept), solution


def chosen_by_matrix(
    spec: RidgeSpec, rows: GatheredRows
) -> tuple[Tuning, Curves | None, RowSample]:
    """Return the kernel, the curves of columns, and the rows through these."""
    seed = spec.features.seed
    priority = row_priorities(seed, 0, int(rows.number[-1]) + 1)[rows.number]
    sample = RowSample(rows.X, rows.y, rows.w, priority)
    curves, sample = transformed(sample, seed, spec.features.bends)
    alpha = least_alpha(spec.alpha)
    share = None if isinstance(alpha, str) else alpha / rows.weight
    tuning = choose_for_matrix(spec.features, sample, share, spec.fit_intercept)
    searched = tuning.compared and tuning.matrix is None and not is_sparse(sample.X)
    if searched and share is None and len(rows.w) > SAMPLE_ROWS:
        inside = replace(rows, X=sample.X)
        tuning = among_near_rows(spec, inside, (tuning, None, sample))[0]
    return tuning, curves, sample


def _solved(spec: RidgeSpec, share: float, chosen: Chosen, rows: GatheredRows) -> Solution:
    """Solve with the kernel matrix of rows in random order."""
    judged = min(rows.weight, float(rows.w[:PENALTY_ROWS].sum()))
    start = share * judged if np.isfinite(share) else None
    K = kernel_matrix(chosen.kernel, rows.X)
    problem = KernelRows(K, rows.y, rows.w, spec.fit_intercept)
    lost = log_loss_of_signs if spec.features.of_classes else None
    return solve_kernel(problem, spec.alpha, per_target=spec.per_target, start=start, lost=lost)


def _chosen(spec: RidgeSpec, method: ExactKernel, blocks: Blocks, where: Executor) -> Chosen:
    """Choose the kernel, and draw the preconditioner's features."""
    width = WIDTH if isinstance(spec.features.width, Tolerance) else spec.features.width
    asked = replace(spec.features, width=width)
    chosen, _ = choose(asked, blocks, alpha=given_alpha(spec.alpha), by_targets=False, where=where)
    reason = (
        f"The exact kernel, by conjugate gradients preconditioned with {chosen.n_features} "
        f"features of {chosen.choice.method}."
    )
    return replace(chosen, choice=Choice(chosen.map, method, (), reason))


def _solve(
    spec: RidgeSpec, chosen: Chosen, method: ExactKernel, rows: GatheredRows, prepared: Prepared
) -> tuple[KrylovSolution, Float[Array, " t"]]:
    """Solve for u; return it, and the intercept."""
    kernel = chosen.kernel
    operator = _operator(kernel, rows.X)
    seen = _FitOperator(operator, rows.w, spec.fit_intercept)
    alphas = np.broadcast_to(np.asarray(prepared.solution.alpha), prepared.mean.shape)
    eigen = prepared.eigen
    system = System(
        seen.exact,
        seen.rough if seen.operator.single else seen.exact,
        seen.project(np.sqrt(rows.w)[:, None] * (rows.y - prepared.mean)),
        alphas,
        (1 + spec.fit_intercept) * peak(kernel, rows),
        np.sqrt(eigen.power / eigen.weight),
    )
    Z = rounded(prepared.Z, eigen.values, alphas)

    def inverse(r: Array, alphas: Array) -> Array:
        return seen.project(low_rank_inverse(Z, eigen.values, eigen.vectors, r, alphas))

    ordered = bool(chosen.map.below_kernel) and Z.dtype == np.float64
    if len(rows.w) <= FEW_ROWS:
        solution = _solve_few(system, seen)
        return solution, prepared.mean - seen.lift
    tol, most = method.tol, method.max_iter
    solution = solve_system(system, inverse, tol=tol, max_iter=most, ordered=ordered)
    return solution, prepared.mean - seen.lift


def _solve_few(system: System, seen: "_FitOperator") -> KrylovSolution:
    """Solve by the eigendecomposition of A: to rounding, and in no time for few rows."""
    A = seen.exact(seen.project(np.eye(len(system.right))))
    values, vectors = eigh(A, driver="evd", check_finite=False)
    weights = np.maximum(values, 0.0)[:, None] + system.alphas
    u = seen.project(vectors @ (vectors.T @ system.right / weights))
    history = ("solved by eigenvectors of all rows",)
    return KrylovSolution(u, 0 * system.alphas, True, 0, history, system.residual(u))


def _operator(kernel: Kernel, X: Array) -> KernelOperator:
    """Return the operator, by the compiled loop alone where the kernel has one for these rows."""
    loop = kernel.compiled if isinstance(kernel, Radial | CoordinateWise) else None
    if (
        loop is not None
        and native.loops() is not None
        and not is_sparse(X)
        and isinstance(kernel, Stationary)
    ):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = (X - X.mean(axis=0)) / np.asarray(kernel.lengthscale)
        if np.isfinite(scaled).all() and not overflow(scaled, scaled):
            return KernelOperator(
                lambda A, B: native.radial(A, B, *loop), scaled, moved=True, loop=loop
            )
    return KernelOperator(kernel.evaluate, X, moved=of_differences(kernel))


class _FitOperator:
    """A: the kernel as the fit sees it, weighted, and without the direction of the intercept.

    ``lift`` is the weighted mean of K c in the last exact product, which the intercept removes.
    """

    def __init__(self, operator: KernelOperator, w: Float[Array, " n"], centred: bool) -> None:
        self.operator, self.w, self.centred = operator, w, centred
        self.lift: Any = 0.0

    def exact(self, V: Array) -> Array:
        products = self._products(V, "float64")
        if self.centred:
            self.lift = np.sqrt(self.w) @ products / self.w.sum()
        return self.project(products)

    def rough(self, V: Array) -> Array:
        return self.project(self._products(V, "float32"))

    def project(self, V: Array) -> Array:
        """Return V without its part along √w, where an intercept is fitted."""
        if not self.centred:
            return V
        root = np.sqrt(self.w)
        return V - np.outer(root, root @ V / self.w.sum())

    def _products(self, V: Array, precision: Precision) -> Array:
        root = np.sqrt(self.w)[:, None]
        return root * self.operator.product(root * V, precision)


def _solution(
    rows: GatheredRows,
    prepared: Prepared,
    solution: KrylovSolution,
    intercept: Float[Array, " t"],
    tol: float,
) -> Solution:
    chosen = prepared.solution
    power = (np.asarray(chosen.alpha) ** 2) * (solution.u**2).sum(axis=0)
    return Solution(
        np.sqrt(rows.w)[:, None] * solution.u,
        intercept,
        chosen.alpha,
        _outcome(chosen, solution, tol),
        chosen.path,
        chosen.criterion,
        power / rows.weight,
        solution.history,
        iterations=solution.iterations,
    )


def _outcome(chosen: Solution, solution: KrylovSolution, tol: float) -> Outcome:
    if chosen.outcome is Outcome.CONSTANT_TARGET:
        return Outcome.CONSTANT_TARGET
    if np.any(solution.bound > tol):
        return Outcome.NOT_CONVERGED
    edge = chosen.outcome in (Outcome.EDGE_LOW, Outcome.EDGE_HIGH)
    return chosen.outcome if edge else Outcome.SOLVED
