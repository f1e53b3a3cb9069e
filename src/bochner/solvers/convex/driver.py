"""Minimise a sum of convex losses on features, by the algorithm that suits or is asked for.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

How it is used::

    features = Features(phi, blocks, dtype)      # re-iterable blocks (Z, y, w, start)
    found = minimise(features, SquaredHinge(), 1 / C, targets=lambda y: indicators(y, K))
    f = Z @ found.coef + found.intercept
    if not found.outcome.good: warnings.warn(str(found.outcome), SolutionWarning)
    print(found.algorithm)                       # Cholesky(kept=True)
"""

from collections.abc import Callable

import numpy as np

from bochner._core.shapes import Array
from bochner.errors import InvalidInput
from bochner.solvers.convex import dense, newton, smoothing
from bochner.solvers.convex.conjugate_gradients import HessianProducts
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.optimum import Algorithm, Cholesky, ConjugateGradients, Optimum
from bochner.solvers.convex.problem import Problem, SolverRows, State, TargetsOf, optimum
from bochner.solvers.ridge.problem import SummedProducts

MOST_ACTIVE = 2048  # Features up to which Hessians are faster, where inactive rows are left out

#: The same where all rows are active, and the cells of the Hessians of all columns.
MOST_ALL = 128
MOST_CELLS = 1 << 26


def minimise(
    rows: SolverRows,
    loss: Loss,
    alpha: float,
    *,
    fit_intercept: bool = True,
    start: Optimum | None = None,
    moments: SummedProducts | None = None,
    targets: Callable[[Array], Array] | None = None,
    held_out: Array | None = None,
    algorithm: Algorithm | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
) -> Optimum:
    """Minimise Σ w ℓ(y, Zβ + b) + (alpha/2) ‖β‖², each column for itself or all jointly.

    ``rows`` are re-iterable blocks (Z, y, w, start). The start is zero by default, from where the
    first step of a squared hinge is to the ridge solution. ``moments`` of all rows precondition
    every step of conjugate gradients, which pays where features are not kept in memory; by default,
    and where a loss is smoothed, a few thousand rows do, drawn by their curvature. ``targets``
    makes the (b, t) numbers that the loss compares from y of a block; ``held_out`` rows take no
    part.
    The last step promised to lower the objective by less than the share ``tol`` of it (what is left
    after it is far less); smoothing leaves no more than this share open. ``max_iter`` limits the
    Newton steps; where a width goes to zero, those for each width.

    Memory O(n t) beside the features. Time a step: one pass of 4 n D t operations, and as many
    again for a product with the Hessian, on active rows; O(D³) where a preconditioner is made. With
    dense Hessians memory is O(t D²) more, and a step takes O(a D² + D³) a column beside the pass, a
    rows of changed curvature.
    """
    y, w = map(np.concatenate, zip(*rows.sum(TargetsOf()), strict=True))
    w = (w if held_out is None else np.where(held_out, 0.0, w))[:, None]
    y = y.astype(np.float64)
    problem = Problem(rows, y, w, loss, alpha, fit_intercept, encode=targets)
    if algorithm is None:
        # Factors where features are in memory and not too many: more pay where rows are inactive.
        D, local = rows.n_features, loss.has_inactive_rows or loss.nonsmooth
        few = (MOST_ACTIVE if local else MOST_ALL) >= D and problem.n_columns * D**2 <= MOST_CELLS
        suits = few and rows.cached and moments is None and alpha > 0 and not loss.joint
        algorithm = Cholesky() if suits else ConjugateGradients()
    state = solve(problem, start, algorithm=algorithm, tol=tol, max_iter=max_iter, moments=moments)
    return optimum(problem, state)


def solve(
    problem: Problem,
    start: State | Optimum | None = None,
    *,
    tol: float,
    max_iter: int,
    algorithm: Algorithm | None = None,
    moments: SummedProducts | None = None,
) -> State:
    """Return the minimum with the rows' numbers there; see :func:`minimise`.

    By default Hessians are summed again in each step, as learners of numbers need: they weigh each
    column's rows by itself, and weights and copies of rows agree to more digits than products with
    Hessians give. Joint losses take conjugate gradients.
    """
    loss = problem.loss
    default = ConjugateGradients() if loss.joint else Cholesky(kept=False)
    algorithm = algorithm or default
    if isinstance(start, Optimum):
        far = np.full(len(start.intercept), np.inf)
        start = State(start.coef, start.intercept, np.empty((0, len(far))), far, far)
    if isinstance(algorithm, Cholesky) and (
        loss.joint or (algorithm.kept and not loss.nonsmooth and not np.all(problem.alpha))
    ):
        raise InvalidInput(
            "minimise: Cholesky factors need a penalty above zero and a loss of single columns; "
            f"got alpha={problem.alpha!r} and {loss!r}. Take ConjugateGradients()."
        )
    if loss.nonsmooth or algorithm == Cholesky(kept=False):
        return smoothing.descend(problem, start, algorithm, tol, max_iter)
    if isinstance(algorithm, Cholesky):
        return dense.minimum(problem, start, tol, max_iter)
    theta = None if start is None else start.theta
    system = HessianProducts(problem, moments)
    return newton.descend(problem, theta, system, ConjugateGradients(), tol, max_iter)
