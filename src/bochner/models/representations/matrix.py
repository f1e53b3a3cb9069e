"""Ridge regression with the kernel itself: directly of few rows, else by conjugate gradients.

Features of all rows precondition the latter, and choose the penalty.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bochner._core import native
from bochner._core.arrays import is_sparse, numpy_rows, to_numpy
from bochner._core.shapes import Array, Float, Gradients
from bochner._core.sizes import KEPT_ROWS
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, chosen_rows
from bochner.features.auto import Choice
from bochner.features.composed import is_stationary
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.distances import overflow
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Compilable
from bochner.models._labels import Calibration, calibrate, decided, log_loss_of_signs
from bochner.models._rows import KernelSum
from bochner.models.error_law import LEFT_OUT_ROWS, LeftOutRows
from bochner.models.representations.leaves import among_near_rows
from bochner.models.representations.representation import (
    DIRECT_ROWS,
    AllRows,
    ExactKernel,
    RidgeSpec,
    exact_choice,
    gather,
    given_share,
    lacks_of_kernel,
    require_kernel_fit,
)
from bochner.selection.choose import choose, choose_for_matrix
from bochner.selection.chosen import Chosen
from bochner.selection.record import Curves, Tuning
from bochner.solvers.cg import TILE, KernelOperator
from bochner.solvers.ridge.dual import KernelRows
from bochner.solvers.ridge.eigen import Eigen, decompose
from bochner.solvers.ridge.kernel_path import PENALTY_ROWS, solve_kernel
from bochner.solvers.ridge.krylov import ShiftedSystems, low_rank_inverse, solve_kernel_systems
from bochner.solvers.ridge.solution import Outcome, Solution, given_alpha, solve_ridge
from bochner.sums.moments import Accumulator, Moments, Precision
from bochner.sums.passes import LOCAL, Executor

# --- Kernel ridge regression with the kernel itself: the n × n answer, without an n × n matrix ---
#
# With A = √w K √w, and without the direction √w where an intercept takes it up, the model is
# f(x) = Σ_i c_i k(x, x_i) + b, c = √w u, (A + alpha I)u = √w y: the least of
# Σ w_i (y_i − f(x_i))² + alpha |f|² over all functions of the kernel.


@dataclass(frozen=True, eq=False)
class MatrixRows(AllRows):
    """All rows, solved by their kernel matrix."""

    chosen: Chosen  # Its map is the preconditioner's; for few rows the Nyström map on all of them
    target_shape: tuple[int, ...]
    rows: int
    fit_intercept: bool
    X: Any
    # Targets and weights, so that features can be made of the rows when more come
    y: Any = None
    w: Any = None

    lacks: ClassVar[Mapping[str, str]] = lacks_of_kernel("an exact fit")

    block_rows = TILE

    def values(self, solution: Any) -> Callable[[Array], Float[Array, "b t"]]:
        total = KernelSum(self.chosen.kernel, self.X, solution.coef, solution.intercept)
        return lambda X: total.at(numpy_rows(X))

    def gradients(self, solution: Any, blocks: Blocks) -> Gradients:
        total = KernelSum(self.chosen.kernel, self.X, solution.coef, solution.intercept)
        return total.gradients(blocks)

    def left_out(self, solution: Solution) -> LeftOutRows | None:
        """Return rows with their leave-one-out predictions; None where no targets were kept.

        All of them up to 4096, else a random 4096: the last block of a Cholesky factor.
        """
        if self.y is None:
            return None
        n, m = len(self.w), min(len(self.w), LEFT_OUT_ROWS)
        index = chosen_rows(self.chosen.seed, n, m)
        order = np.concatenate([np.setdiff1d(np.arange(n), index), index])
        y, w, X = self.y[order], self.w[order], self.X[order]
        rows = KernelRows(kernel_matrix(self.chosen.kernel, X), y, w, self.fit_intercept)
        errors, last = rows.solved(solution.alpha, m).left_out, slice(n - m, None)
        return LeftOutRows(X[last], y[last] - errors, errors, w[last], "leave one out")

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
    """Choose what is open, then solve with the exact kernel; features precondition many rows."""
    shape = require_kernel_fit(spec, "exact", "compares each row with all others", blocks, where)
    n = blocks.n_rows
    if method.preconditioner is None and n is not None and n <= DIRECT_ROWS:
        return _direct_rows(spec, method, blocks, shape)
    width = 1024 if isinstance(spec.features.width, float) else spec.features.width
    asked, alpha = replace(spec.features, width=width), given_alpha(spec.alpha)
    chosen, _ = choose(asked, blocks, alpha=alpha, by_targets=False, where=where)
    reason = (
        f"The exact kernel, by conjugate gradients preconditioned with {chosen.n_features} "
        f"features of {chosen.choice.method}."
    )
    chosen = replace(chosen, choice=Choice(chosen.map, method, (), reason))
    rows = gather(blocks, chosen.seed)
    solution = _by_gradients(spec, method, chosen, rows)
    return MatrixRows(chosen, shape, count_rows(blocks), spec.fit_intercept, rows.X), solution


def _direct_rows(
    spec: RidgeSpec, method: ExactKernel, blocks: Blocks, shape: tuple[int, ...]
) -> tuple[MatrixRows, Solution]:
    """Choose the kernel by the matrix of some rows, then solve with the matrix of all."""
    seed = spec.features.seed
    rows = gather(blocks, seed)
    tuning, curves, sample = chosen_by_matrix(spec, rows)
    chosen = Chosen(seed, tuning, exact_choice(tuning, sample.X, method))
    chosen = chosen if curves is None else chosen.through(curves)
    order = np.argsort(sample.priority) if len(rows) > PENALTY_ROWS else np.arange(len(rows))
    shuffled = rows.take(order)
    judged = tuning.share * float(shuffled.w[:PENALTY_ROWS].sum())
    K = kernel_matrix(chosen.kernel, shuffled.X)
    solution = solve_kernel(
        KernelRows(K, shuffled.y, shuffled.w, spec.fit_intercept),
        spec.alpha,
        per_target=spec.per_target,
        start=judged if np.isfinite(judged) else None,
        lost=log_loss_of_signs if spec.features.of_classes else None,
    )
    kept = rows.X, rows.y, rows.w
    made = MatrixRows(chosen, shape, count_rows(blocks), spec.fit_intercept, *kept)
    return made, solution.of_rows(np.argsort(order))


def chosen_by_matrix(spec: RidgeSpec, rows: RowSample) -> tuple[Tuning, Curves | None, RowSample]:
    """Return the kernel, the curves of columns, and the rows through these."""
    share = given_share(spec, rows)
    tuning, curves, sample = choose_for_matrix(spec.features, rows, share, spec.fit_intercept)
    searched = len(tuning.compared) > 1 and tuning.matrix is None and not is_sparse(sample.X)
    if searched and share is None and len(rows) > 4096:  # Then by the density of all rows
        tuning = among_near_rows(spec, sample, (tuning, None, sample))[0]
    return tuning, curves, sample


def _summed(
    chosen: Chosen, rows: RowSample, precision: Precision, centred: bool
) -> tuple[Array, Moments, Eigen]:
    """Return φ of all rows, its moments, about zero if there is no intercept, and eigenvalues."""
    features = replace(chosen, precision=precision).features
    Z, sums = np.empty((len(rows), chosen.n_features), precision), Accumulator(precision)
    for start in range(0, len(Z), chosen.block_rows):
        here = slice(start, start + chosen.block_rows)
        Z[here] = to_numpy(features(rows.X[here]))
        sums.add(Z[here], rows.y[here], rows.w[here])
    moments = sums.moments() if centred else sums.moments().about_zero()
    return Z, moments, decompose(moments, centred)


def _by_gradients(
    spec: RidgeSpec, method: ExactKernel, chosen: Chosen, rows: RowSample
) -> Solution:
    """Choose the penalty on the features, and solve for u by conjugate gradients.

    Features are of float32, in half of the time, where a given penalty is above their rounding. The
    lift is the weighted mean of K c in the last exact product, which the intercept removes.
    """
    kernel, weight, root = chosen.kernel, float(rows.w.sum()), np.sqrt(rows.w)[:, None]
    alpha, peak, summed = spec.alpha, float(np.sqrt(np.max(kernel.diag(rows.X)))), None
    if not isinstance(alpha, str) and peak**2 * weight <= min(1e7 * np.min(alpha), 1e30):
        summed = _summed(chosen, rows, "float32", spec.fit_intercept)
        summed = summed if _serves(summed[2].values, alpha) else None
    Z, moments, eigen = summed or _summed(chosen, rows, "float64", spec.fit_intercept)
    mean = moments.target_mean
    Z -= moments.feature_mean.astype(Z.dtype)
    kept = chosen_rows(chosen.seed, len(rows), KEPT_ROWS)
    judged = ((Z[i], rows.y[i] - mean, rows.w[i]) for i in np.array_split(kept, 8))
    solution = solve_ridge(
        eigen,
        (moments.feature_mean, mean),
        alpha,
        judged if alpha == "loo" else (),
        per_target=spec.per_target,
    )
    Z *= root.astype(Z.dtype)
    alphas = np.broadcast_to(np.asarray(solution.alpha), mean.shape)
    Z = Z.astype(np.float32, copy=False) if _serves(eigen.values, alphas) else Z
    operator, centred = _operator(kernel, rows.X), spec.fit_intercept
    lift: Any = 0.0

    def project(V: Array) -> Array:
        return V - root * (root.T @ V / weight) if centred else V

    def rough(V: Array) -> Array:
        return project(root * operator.product(root * V, "float32"))

    def exact(V: Array) -> Array:
        nonlocal lift
        products = root * operator.product(root * V, "float64")
        lift = centred * (root.T @ products)[0] / weight
        return project(products)

    scale = np.sqrt(eigen.power / eigen.weight) / ((1 + centred) * peak)
    systems = ShiftedSystems(project(root * (rows.y - mean)), alphas, scale)

    def inverse(r: Array, alphas: Array) -> Array:
        return project(low_rank_inverse(Z, eigen.values, eigen.vectors, r, alphas))

    ordered = bool(chosen.map.below_kernel) and Z.dtype == np.float64
    iterate = solve_kernel_systems(
        systems,
        exact,
        rough if operator.single else None,
        inverse,
        (1 + centred) * peak,
        tol=method.tol,
        max_iter=method.max_iter,
        ordered=ordered,
    )
    outcome = solution.outcome
    if outcome is not Outcome.CONSTANT_TARGET and np.any(iterate.bound > method.tol):
        outcome = Outcome.NOT_CONVERGED
    elif outcome not in (Outcome.CONSTANT_TARGET, Outcome.EDGE_LOW, Outcome.EDGE_HIGH):
        outcome = Outcome.SOLVED
    power = np.asarray(solution.alpha) ** 2 * (iterate.u**2).sum(axis=0)
    return replace(
        solution,
        coef=root * iterate.u,
        intercept=mean - lift,
        outcome=outcome,
        residual_variance=power / weight,
        history=iterate.history,
        iterations=iterate.iterations,
    )


def _serves(values: Array, alphas: Any) -> bool:
    """Whether float32 changes little of ZZᵀ, which has these eigenvalues, beside the penalties."""
    rounding = np.finfo(np.float32).eps * values.max(initial=0.0)
    return bool(rounding <= 0.01 * np.min(alphas))


def _operator(kernel: Kernel, X: Array) -> KernelOperator:
    """Return the operator; only the compiled loop if the kernel has one for these rows."""
    fast = native.loops() is not None and not is_sparse(X)
    if fast and isinstance(kernel, Compilable) and (loop := kernel.compiled) is not None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = (X - X.mean(axis=0)) / np.asarray(kernel.lengthscale)
        if np.isfinite(scaled).all() and not overflow(scaled, scaled):
            tiles = lambda A, B: native.radial(A, B, *loop)
            return KernelOperator(tiles, scaled, moved=True, loop=loop)
    return KernelOperator(kernel.evaluate, X, moved=is_stationary(kernel))
