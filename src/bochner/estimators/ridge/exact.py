"""Kernel ridge regression with the kernel itself: the n × n answer, without an n × n matrix.

With A = √w K √w, and without the direction √w where an intercept takes it up, the model is
f(x) = Σ_i c_i k(x, x_i) + b, c = √w u, (A + alpha I)u = √w y: the least of
Σ w_i (y_i − f(x_i))² + alpha |f|² over all functions of the kernel.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._ground import native
from bochner._ground.arrays import is_sparse, to_numpy
from bochner._ground.blas import one_thread
from bochner._ground.blocks import Blocks
from bochner._ground.checks import integer, positive
from bochner._ground.lapack import eigh
from bochner._ground.random import seed_of
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.estimators.fitting import engine
from bochner.estimators.fitting.named import as_kernel
from bochner.estimators.ridge.exact_features import (
    ALONE,
    Prepared,
    Rows,
    gather,
    peak,
    prepare,
    rounded,
)
from bochner.estimators.ridge.normal import share_of, target_shape
from bochner.features import Method, Nystrom
from bochner.features.auto import Choice
from bochner.features.draw import as_method
from bochner.kernels import (
    Constant,
    CoordinateWise,
    Kernel,
    Power,
    Product,
    Scaled,
    Stationary,
    Sum,
)
from bochner.kernels.distances import overflow
from bochner.kernels.stationary import Radial
from bochner.planning.width import as_enough
from bochner.solvers.cg import (
    FeaturePreconditioner,
    Found,
    System,
    solve_system,
)
from bochner.solvers.operator import TILE, KernelOperator, Precision
from bochner.solvers.ridge import as_alpha, least_alpha
from bochner.solvers.solution import Outcome, Solution

__all__ = ["ExactKernel", "as_exact", "fit_exact", "predict_exact", "takes_pieces"]

#: So few rows have an n × n matrix, and its eigenvectors, in no time.
FEW_ROWS = 100

#: Width of the preconditioner where it is left open.
WIDTH = 1024

NYSTROM = Nystrom()


@dataclass(frozen=True)
class ExactKernel(Method):
    """The kernel itself, by preconditioned conjugate gradients; the method of ``"exact"``.

    Parameters
    ----------
    preconditioner : Method or str, default "nystrom"
        Features, ``n_features`` of them, that make the system easy: Nyström with pivots, or a
        Mercer map where the kernel has one. Fourier features help little.
    tol : float, default 1e-6
        Every prediction, at any x with k(x, x) ≤ max k(x_i, x_i), is within so much of the exact
        one, in units of the target's standard deviation. Proved from the residual, not guessed;
        mostly the error is ten to a hundred times smaller.
    max_iter : int, default 1000
        Of conjugate gradients.
    """

    preconditioner: Method | str = NYSTROM
    tol: float = 1e-6
    max_iter: int = 1000

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "preconditioner", as_method(self.preconditioner))
        object.__setattr__(self, "tol", positive(self.tol, "ExactKernel", "tol"))
        least = integer(self.max_iter, "ExactKernel", "max_iter", least=1)
        object.__setattr__(self, "max_iter", least)


def as_exact(method: object) -> ExactKernel | None:
    """Return the method if it is the kernel itself, or its name."""
    if isinstance(method, str) and method == "exact":
        return ExactKernel()
    return method if isinstance(method, ExactKernel) else None


def takes_pieces(model: Any) -> bool:
    """Whether rows can come in pieces; raise AttributeError, which says why, where they cannot."""
    if as_exact(model.method) is not None:
        raise AttributeError(
            f'{type(model).__name__}.partial_fit: method="exact" needs all rows at once; call fit, '
            "or take features, whose moments add up."
        )
    return True


# --- fitting -------------------------------------------------------------------------------------


def fit_exact(model: Any, method: ExactKernel, blocks: Blocks) -> None:
    """Choose what is open on features, then solve for the kernel itself."""
    alpha = as_alpha(model.alpha)
    if least_alpha(alpha) == 0:
        raise InvalidInput(
            f'{type(model).__name__}: method="exact" requires alpha above 0; got {model.alpha!r}. '
            "Pass a small one, e.g. 1e-6, or take features: they have a solution of least norm."
        )
    _choose(model, method, blocks)
    model.target_shape_ = target_shape(model, blocks)
    model.rows_seen_ = engine.count_rows(blocks)
    model.feature_dtype_ = "float64"
    rows = gather(blocks)
    prepared = prepare(model, rows, alpha)
    found, intercept = _solve(model, method, rows, prepared)
    model.X_fit_ = rows.X
    model.solution_ = _solution(rows, prepared, found, intercept, method.tol)


def _choose(model: Any, method: ExactKernel, blocks: Blocks) -> None:
    """Choose the kernel, and draw the preconditioner's features from a sample of the rows."""
    kernel, preconditioner = as_kernel(model.kernel), as_method(method.preconditioner)
    model.seed_ = seed_of(model.random_state)
    sample = engine.presample(blocks, model.seed_)
    width = WIDTH if as_enough(model.n_features, 0.1) else model.n_features
    share, d = share_of(model, blocks), blocks.n_columns
    kernel = engine.in_metric(model, kernel, preconditioner, sample, width, share)
    with one_thread() if isinstance(kernel, Kernel) and width <= ALONE else nullcontext():
        recipe = engine.prepare(
            kernel, preconditioner, width, d, sample, model.seed_, share=share, by_targets=False
        )
    model.kernel_, model.map_, model.search_ = recipe.kernel, recipe.map, recipe.search
    reason = (
        f"The exact kernel, by conjugate gradients preconditioned with {recipe.map.n_features} "
        f"features of {recipe.choice.method}."
    )
    model.choice_ = Choice(recipe.map, method, (), reason)


def _solve(
    model: Any, method: ExactKernel, rows: Rows, prepared: Prepared
) -> tuple[Found, Float[Array, " t"]]:
    """Solve for u; return it, and the intercept."""
    kernel = model.kernel_
    operator = _operator(kernel, rows.X)
    seen = _Seen(operator, rows.w, model.fit_intercept)
    alphas = np.broadcast_to(np.asarray(prepared.solution.alpha), prepared.mean.shape)
    eigen = prepared.eigen
    system = System(
        seen.exact,
        seen.rough if seen.operator.single else seen.exact,
        seen.project(np.sqrt(rows.w)[:, None] * (rows.y - prepared.mean)),
        alphas,
        (1 + model.fit_intercept) * peak(kernel, rows),
        np.sqrt(eigen.power / eigen.weight),
    )
    Z = rounded(prepared.Z, eigen.values, alphas)
    inverse = FeaturePreconditioner(Z, eigen.values, eigen.vectors, alphas)
    ordered = bool(model.map_.below_kernel) and Z.dtype == np.float64
    if len(rows.w) <= FEW_ROWS:
        found = _solve_few(system, seen)
        return found, prepared.mean - seen.lift
    tol, most = method.tol, method.max_iter
    with one_thread():  # or its threads wait in those of the compiled loop
        found = solve_system(
            system, lambda r: seen.project(inverse(r)), tol=tol, max_iter=most, ordered=ordered
        )
    return found, prepared.mean - seen.lift


def _solve_few(system: System, seen: "_Seen") -> Found:
    """Solve by the eigendecomposition of A: to rounding, and in no time for few rows."""
    A = seen.exact(seen.project(np.eye(len(system.right))))
    values, vectors = eigh(A, driver="evd", check_finite=False)
    weights = np.maximum(values, 0.0)[:, None] + system.alphas
    u = seen.project(vectors @ (vectors.T @ system.right / weights))
    system.residual(u)
    return Found(u, 0 * system.alphas, True, 0, ("solved by eigenvectors of all rows",))


def _operator(kernel: Kernel, X: Array) -> KernelOperator:
    """Return the operator, by the compiled loop alone where the kernel has one for these rows."""
    loop = kernel.compiled if isinstance(kernel, Radial | CoordinateWise) else None
    if loop is not None and not is_sparse(X) and isinstance(kernel, Stationary):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = (X - X.mean(axis=0)) / np.asarray(kernel.lengthscale)
        if np.isfinite(scaled).all() and not overflow(scaled, scaled):
            return KernelOperator(
                lambda A, B: native.radial(A, B, *loop), scaled, moved=True, loop=loop
            )
    return KernelOperator(kernel.evaluate, X, moved=_of_differences(kernel))


def _of_differences(kernel: Kernel) -> bool:
    """Whether the kernel is one of x − y alone."""
    if isinstance(kernel, Sum | Product):
        return _of_differences(kernel.left) and _of_differences(kernel.right)
    if isinstance(kernel, Scaled | Power):
        return _of_differences(kernel.kernel)
    return isinstance(kernel, Stationary | Constant)


class _Seen:
    """A: the kernel as the fit sees it, weighted, and without the direction of the intercept.

    ``lift`` is the weighted mean of K c in the last exact product: what the intercept takes off.
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
    rows: Rows, prepared: Prepared, found: Found, intercept: Float[Array, " t"], tol: float
) -> Solution:
    chosen = prepared.solution
    power = (np.asarray(chosen.alpha) ** 2) * (found.u**2).sum(axis=0)
    return Solution(
        np.sqrt(rows.w)[:, None] * found.u,
        intercept,
        chosen.alpha,
        _outcome(chosen, found, tol),
        chosen.path,
        chosen.criterion,
        power / rows.weight,
        found.history,
    )


def _outcome(chosen: Solution, found: Found, tol: float) -> Outcome:
    if chosen.outcome is Outcome.CONSTANT_TARGET:
        return Outcome.CONSTANT_TARGET
    if np.any(found.bound > tol):
        return Outcome.NOT_CONVERGED
    edge = chosen.outcome in (Outcome.EDGE_LOW, Outcome.EDGE_HIGH)
    return chosen.outcome if edge else Outcome.SOLVED


# --- prediction ----------------------------------------------------------------------------------


def predict_exact(model: Any, blocks: Blocks) -> Iterator[tuple[Array, Array]]:
    """Give the rows of one block after the other, and their predictions, (b, t), by tiles."""
    dual, fitted, kernel = model.solution_.coef, model.X_fit_, model.kernel_
    for block in blocks.with_rows(TILE):
        X = block.X if is_sparse(block.X) else np.ascontiguousarray(to_numpy(block.X))
        X = X.astype(np.float64, copy=False)
        total = np.zeros((X.shape[0], dual.shape[1])) + model.solution_.intercept
        for start in range(0, len(dual), TILE):
            here = slice(start, start + TILE)
            total += kernel(X, fitted[here]) @ dual[here]
        yield block.X, total
