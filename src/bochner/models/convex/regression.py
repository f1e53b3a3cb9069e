"""Support vector regression, and regression by any convex loss, at any number of rows.

Let β(α) minimise Σ w ℓ + (α/2)‖β‖². As α falls, ‖β(α)‖ increases through all norms up to the norm
of the unpenalised minimum, and β(α) has the least loss among all β with at most its norm. So for
any nondecreasing R, one of the β(α) minimises Σ w ℓ + R(‖β‖), and a search over α is enough.
Both minima are sums Σ uᵢ φ(xᵢ) over rows (Schölkopf, Herbrich and Smola 2001, theorem 1).
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, pinvh, solve_triangular
from scipy.optimize import minimize_scalar
from sklearn.utils import Tags

from bochner._core.arrays import array_namespace, is_sparse, to_numpy, unit_of
from bochner._core.checks import nonnegative, one_of, positive
from bochner._core.random import stream
from bochner._core.shapes import Array, Float, Gradients, Tabular
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece, join, part, require_targets
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels.algebra import kernel_matrix
from bochner.kernels.kernel import Kernel
from bochner.models import _rows
from bochner.models._base import Differentiable, getter
from bochner.models._intervals import IntervalRegressor
from bochner.models._labels import log_probabilities
from bochner.models._parameters import FeatureParameters, KernelParameters, estimator
from bochner.models.convex.fit import ConvexEstimator, ConvexFit, ConvexSpec, rows_of
from bochner.models.error_law import LEFT_OUT_ROWS, HeldOutRows
from bochner.selection.choices import Choices
from bochner.solvers.convex import losses
from bochner.solvers.convex.kernel import KernelMatrix
from bochner.solvers.convex.losses import weigh
from bochner.solvers.convex.newton import derivative_sums, loss_slopes, minimise
from bochner.solvers.convex.penalty_path import HeldOutLoss, HeldOutPath, largest_penalty
from bochner.solvers.convex.problem import (
    TOL,
    FeatureBlock,
    Problem,
    State,
    best_constant,
    hessian_factor,
    optimum,
)
from bochner.solvers.ridge.problem import left_out_errors
from bochner.sums.passes import LOCAL, Executor, draw_rows

# --- Targets in a unit near their spread, so that their squares do not overflow -------------------


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Rows with targets divided by a unit s, the power of two near their spread."""

    # In these units a loss of degree p is divided by sᵖ, and alpha is multiplied by s²⁻ᵖ
    blocks: Blocks
    y: Float[Array, "n t"]  # in units of s; rows of weight zero have the target of another row
    w: Float[Array, "n 1"]
    units: Float[Array, " k"]  # s of each fitted column; a target may have several columns
    spread: Float[Array, " k"]  # mean of |y − median| of each column, in units of s
    degree: int
    shape: tuple[int, ...]  # of the prediction of a row

    @property
    def per_alpha(self) -> Float[Array, " k"]:
        """Penalties in these units for alpha = 1 in the units of y."""
        return self.units ** (2 - self.degree)


def one_or_each(values: Any) -> Any:
    """Return a number if all are equal, else the array."""
    values = np.atleast_1d(values)
    return float(values[0]) if np.all(values == values[0]) else values


def scale_rows(spec: ConvexSpec, blocks: Blocks, where: Executor = LOCAL) -> ScaledRows:
    """Return rows with targets divided by a unit, which is 1 unless the loss is homogeneous."""
    times, shape = _columns(spec, require_targets(spec.caller, blocks.target_shape))
    y, w = map(np.concatenate, zip(*where.sum(_rows.TARGETS, blocks), strict=True))
    y, w = y.reshape(len(y), -1).astype(np.float64), w[:, None]
    y_used, v = y[w[:, 0] > 0], w[w > 0, None]
    _check_targets(spec.loss, y_used)
    y = np.where(w > 0, y, y_used[0])
    median = best_constant(losses.Absolute(), y_used, np.broadcast_to(v, y_used.shape))
    spread = (v * np.abs(y_used - median)).sum(axis=0) / v.sum()
    # If the spread is tiny relative to the targets, the unit follows the targets
    sizes = np.maximum(spread, 2.0**-26 * np.abs(y).max(axis=0))
    units = np.array([unit_of(size) if spec.loss.degree else 1.0 for size in sizes])
    unit = units[0] if len(units) == 1 else units
    divided = blocks.recode(lambda y: to_numpy(y).astype(np.float64) / unit)
    y, units, spread = (np.repeat(a, times, -1) for a in (y / units, units, spread / units))
    return ScaledRows(divided, y, w, units, spread, spec.loss.degree, shape)


# --- Leave-one-out predictions from the fit to all rows -------------------------------------------
#
# Without row i the fit changes by about one Newton step. With the Hessian H at the minimum,
# g_i = zᵢᵀ H⁻¹ zᵢ, and slope s_i and curvature c_i of the loss of the row,
#
#     f₋ᵢ(xᵢ) ≈ fᵢ + g_i s_i / (1 − g_i c_i)
#
# (approximate leave-one-out: Rad and Maleki 2020), exact for squares. At a kink of the loss, s is
# the multiplier, and rows at the kink stay there, as in the span of support vectors (Vapnik and
# Chapelle 2000). Kernel, features and penalty do not change; they were chosen with all rows.

MAX_LOO = 2048  # Largest number of rows with leave-one-out predictions
HIDDEN = 1e-9  # Floor of 1 − g c: smaller values are rounding errors


def left_out(problem: Problem, at: State, rows: ScaledRows, chosen: Choices) -> HeldOutRows | None:
    """Return leave-one-out predictions without landmarks; None for joint losses or no cache."""
    if not problem.rows.is_cached or problem.loss.joint:
        return None
    index = np.flatnonzero(problem.w[:, 0] > 0)
    if len(index) > MAX_LOO:
        index = np.sort(stream(chosen.seed, "left out").permutation(index)[:MAX_LOO])
    pieces = []
    for block in rows.blocks:
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        indices = index[(index >= block.start) & (index < block.start + X.shape[0])]
        pieces.append(part(Piece(X), indices - block.start))
    X = join(pieces).X
    local = loss_slopes(problem, at)
    slopes, curvatures = weigh(problem.w, local.slope), weigh(problem.w, local.curvature)
    hessians = derivative_sums(problem, at, slopes, curvatures)[1]
    Z = np.column_stack([chosen.double(X), np.full(len(index), float(problem.fit_intercept))])
    changes = np.empty((len(index), len(hessians)))
    alphas = np.broadcast_to(problem.alpha, len(hessians))
    for k, (H, alpha) in enumerate(zip(hessians, alphas, strict=True)):
        factor = hessian_factor(H, float(alpha), 0.0, problem.fit_intercept)
        half = solve_triangular(factor, Z.T, trans=1, check_finite=False)
        # If no row has curvature, the intercept is not determined and is held fixed
        half = half if H[-1, -1] > 0 else half[:-1]
        g = np.einsum("ij,ij->j", half, half)
        slack = 1 - g * curvatures[index, k]
        slack = np.where(slack > HIDDEN, slack, 0.0)
        changes[:, k] = left_out_errors(g * slopes[index, k], slack)
    errors = problem.y[index] - at.fitted[index] - changes
    predictions = _left_out(X, problem.y[index], errors, problem.w[index, 0], rows.units)
    return predictions.take(_rows.no_landmarks(chosen.map, X))


def _left_out(X: Array, y: Array, errors: Array, w: Array, units: Array) -> HeldOutRows:
    """Return leave-one-out predictions and errors in units of y; unknown errors are infinite."""
    finite = np.isfinite(errors)
    predicted, errors = np.where(finite, y - errors, y), np.where(finite, errors, np.inf)
    return HeldOutRows(X, predicted * units, errors * units, w, "leave one out")


def left_out_of_matrix(problem: Problem, at: State, rows: ScaledRows, X: Any) -> HeldOutRows | None:
    """Return leave-one-out predictions of f = Ka + b; None for many rows or a `Loss.joint`."""
    # Without row i, rows with curvature have new predictions, rows at a kink stay at the kink, and
    # the coefficients of all other rows do not change.
    K, w, errors = problem.rows.K, problem.w[:, 0], problem.y - at.fitted
    if len(K) > LEFT_OUT_ROWS or problem.loss.joint:
        return None
    local, unit = loss_slopes(problem, at), float(problem.fit_intercept)
    for k, alpha in enumerate(np.broadcast_to(problem.alpha, errors.shape[1])):
        coef, ridge, bound = at.coef[:, k], np.zeros(len(w)), w / alpha
        # Coefficients within this distance of zero, or of their bound, count as equal to it
        small = 1e-8 * (bound if at.algorithm == "libsvm" else np.abs(coef).max())
        support = np.abs(coef) > small
        if at.algorithm == "libsvm":
            moves = support & (np.abs(coef) < bound - small)
        else:
            curvature = w * local.curvature[:, k]
            moves = curvature > 0
            ridge[moves] = alpha / curvature[moves]
        movable = np.flatnonzero(moves)
        if not len(movable):
            errors[support, k] += (coef * np.diag(K))[support]
            continue
        A = np.full((len(movable) + 1, len(movable) + 1), unit)
        A[:-1, :-1], A[-1, -1] = K[np.ix_(movable, movable)] + np.diag(ridge[movable]), 1 - unit
        try:
            inverse = np.linalg.inv(A)
        except LinAlgError:
            inverse = pinvh(A)
        spans = np.diag(inverse)[:-1]
        errors[movable, k] += left_out_errors(coef[movable], spans) - (coef * ridge)[movable]
        edge = np.flatnonzero(support & ~moves)
        row = np.column_stack([K[np.ix_(edge, movable)], np.full(len(edge), unit)])
        distances = np.diag(K)[edge] - np.einsum("ij,ij->i", row @ inverse, row)
        errors[edge, k] += coef[edge] * np.maximum(distances, 0.0)
    return _left_out(X, rows.y, errors, w, rows.units)


def curvature_of(loss: losses.Loss, rows: ScaledRows) -> float:
    """Return the curvature of the loss: of its squares, or the mean over the spread of y."""
    if loss.nonsmooth:
        return 1 / float(np.maximum(rows.spread, 1e-3).mean())
    return 2.0 if loss.has_inactive_rows else 1.0


def _fit_folds(
    problem: Problem, X: Array, squares: Array, rows: ScaledRows, chosen: Choices, fit: Any
) -> tuple[HeldOutPath | None, State | None]:
    """Return the penalties with held-out losses, and the best state; ``squares`` are k(x, x)."""
    marks, w = _rows.row_marks(X, chosen.seed), problem.w[:, 0]
    n_marks, fold_of = len(np.unique(marks)), _rows.folds_of(marks, w)
    if n_marks < 2:
        return None, None
    curvature = curvature_of(problem.loss, rows)
    if isinstance(problem.loss, losses.PoissonDeviance):  # at the mean
        curvature = float(w @ problem.y.mean(axis=1) / w.sum()) or 1.0
    folds = [fold_of == k for k in range(1 if n_marks >= 1000 else min(_rows.N_FOLDS, n_marks))]
    held_out = HeldOutLoss(problem, folds, fit, curvature * float(w @ squares) or 1.0)
    held_out.walk(curvature * chosen.search.share * float(w.sum()))
    return held_out.path()


def _best_penalty(
    spec: ConvexSpec, problem: Problem, X: Any, rows: ScaledRows, chosen: Choices, where: Executor
) -> tuple[HeldOutPath | None, State | None]:
    """Return the penalties with held-out losses, and the best state if a fit can start there."""
    # A penalty for which LIBSVM needs more than 20 steps per row is too small
    fit = partial(minimise, tol=TOL, max_iter=spec.max_iter, moves=20)
    if isinstance(problem.rows, KernelMatrix):
        return _fit_folds(problem, X, np.diag(problem.rows.K), rows, chosen, fit)[0], None
    if spec.epsilon is not None or spec.by_ridge:
        sample = draw_rows(rows.blocks, chosen.seed, where=where).lowest(4096)
        Z = to_numpy(chosen.precision_map.features(sample.X))
        features = FeatureBlock(Z, sample.y, sample.w)
        problem = replace(problem, rows=features, y=sample.y, w=sample.w[:, None], value=1.0)
        squares = (features.Z.astype(np.float64) ** 2).sum(axis=1)
        path, end = _fit_folds(problem, sample.X, squares, rows, chosen, fit)
        # Multipliers belong to the rows of the sample; without features all coefficients do
        return path, None if end is None or spec.by_ridge else replace(end, multipliers=None)
    fold_of = _rows.fold_numbers(rows.blocks, problem.w[:, 0], chosen.seed, where)
    if not fold_of[problem.w[:, 0] > 0].any():
        raise InvalidInput(
            f"{spec.caller}: the choice of alpha requires at least 2 distinct rows of positive "
            "weight; got n_samples = 1. Pass a number as alpha."
        )
    largest, Z = largest_penalty(problem), next(iter(problem.rows)).Z
    square = float(np.einsum("ij,ij->", Z, Z, dtype=np.float64)) / len(Z) or 1.0
    held_out = HeldOutLoss(problem, [fold_of == 0], fit, largest)
    held_out.walk(0.0 if problem.loss.joint else chosen.search.share / square * largest)
    return held_out.path()


def fit_regressor(
    spec: ConvexSpec, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL, exact: bool = False
) -> ConvexFit:
    """Return a regression by a convex loss, on features, a kernel matrix or ridge regressions."""
    rows = scale_rows(spec, blocks, where)
    like_ridge = None  # The ridge penalty that corresponds to alpha
    comparable = not (spec.norm or spec.loss.joint or isinstance(spec.loss, losses.LOG_LINK))
    if spec.alpha is not None and comparable:
        like_ridge = float(np.mean(spec.alpha * rows.per_alpha)) / curvature_of(spec.loss, rows)
    chosen, design, sample = rows_of(spec, rows.blocks, like_ridge, where, exact)
    if sample is not None:
        mask, merged = rows.w[:, 0] > 0, spec.by_ridge and sample.y is not None  # copies are one
        y, w = (sample.y, sample.w[:, None]) if merged else (rows.y[mask], rows.w[mask])
        rows = replace(rows, y=y, w=w)
    X = None if sample is None else sample.X
    if exact:
        design = KernelMatrix(kernel_matrix(chosen.kernel, X))
    loss, value, tube = spec.loss.in_units(rows.units), rows.units**rows.degree, spec.epsilon
    if tube is not None:
        loss = loss.of(0.05 * rows.spread if tube == "auto" else tube / rows.units)
    problem = Problem(design, rows.y, rows.w, loss, 0.0, spec.fit_intercept, value=value)
    path, start = None, None
    if spec.norm is not None:
        problem, state = minimise_norm(problem, rows, spec)
    else:
        problem = replace(problem, loss=_first_huber(problem)) if spec.finds_scale else problem
        if spec.alpha is None:
            path, start = _best_penalty(spec, problem, X, rows, chosen, where)
        alpha = 1.0 if spec.alpha is None else one_or_each(spec.alpha * rows.per_alpha)
        problem = replace(problem, alpha=alpha if path is None else path.alpha)
        state = minimise(problem, start, tol=spec.tol, max_iter=spec.max_iter)
        if spec.finds_scale:
            problem, state = _estimate_scale(problem, state, spec)
    solution = optimum(problem, state, rows.units, one_or_each(problem.alpha / rows.per_alpha))
    # Penalties in the unit of the first target
    path = path and replace(path, alphas=path.alphas / rows.per_alpha[0])
    loss = problem.loss.in_units(1 / rows.units)
    fit = ConvexFit(inputs, chosen, loss, solution, path, target_shape=rows.shape).warn()
    if exact:
        return replace(fit, left_out=left_out_of_matrix(problem, state, rows, X), X=X)
    if spec.by_ridge:
        return fit.by_ridge(problem, state, rows.units)
    if where is not LOCAL:
        return fit
    fit = replace(fit, left_out=left_out(problem, state, rows, chosen))
    if spec.epsilon is not None or len(rows.w) > 1024 or not np.all(problem.alpha):
        return fit
    X = join([Piece(block.X) for block in rows.blocks]).X
    # The gradient of the objective is zero: β = Σ uᵢ φ(xᵢ), with the multipliers as slopes at kinks
    u = -problem.w * loss_slopes(problem, state).slope / problem.alpha
    return replace(fit, X=X, dual=u * rows.units)


#: Threshold of Huber's loss in standard deviations of the noise: 95 % efficiency for normal noise.
HUBER_SCALES = 1.35


def _estimate_scale(problem: Problem, at: State, spec: ConvexSpec) -> tuple[Problem, State]:
    """Return problem and state after alternate fits and estimates of the noise scale."""
    floor = 1e-6 * np.maximum(np.abs(problem.y).max(axis=0), 1e-300)
    old, steps = np.full(len(floor), np.inf), at.steps
    for _ in range(30):
        scale = losses.huber_scale(problem.y - at.fitted, problem.w, HUBER_SCALES)
        scale = np.maximum(scale, floor)
        if np.all(np.abs(scale / old - 1) <= 1e-6):
            break
        problem, old = replace(problem, loss=losses.Huber().of(HUBER_SCALES * scale)), scale
        at = minimise(problem, at, tol=spec.tol, max_iter=spec.max_iter)
        steps += at.steps
    return problem, replace(at, steps=steps)


def _columns(spec: ConvexSpec, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return the number of columns per target (of quantiles), and the shape of a prediction."""
    levels = spec.loss.level if isinstance(spec.loss, losses.Quantile) else 0.5
    if not isinstance(levels, tuple):
        return 1, shape
    t = math.prod(shape)
    if t > 1 and len(levels) > 1:
        raise InvalidInput(
            f"{spec.caller}: several quantiles require one target; got {len(levels)} quantiles "
            f"and {t} targets. Fit the targets one by one, or use one quantile."
        )
    if t > 1 or (len(levels) == 1 and spec.one_level):
        return 1, shape
    return len(levels), (len(levels),)


def _check_targets(loss: losses.Loss, y: Float[Array, "n t"]) -> None:
    """Raise InvalidInput for targets outside the domain of the loss."""
    cause = ""
    if isinstance(loss, losses.Multinomial):
        sums = y.sum(axis=1)
        if y.shape[1] < 2 or np.any(y < 0) or not np.all(np.abs(sums - 1) <= 1e-6):
            cause = (
                '"multinomial" needs y of two columns or more, shares of 0 or above whose rows sum '
                f"to one; got {y.shape[1]} columns, sums from {sums.min():g} to {sums.max():g}. "
                "Divide rows by their sums; for labels use LogisticRegression."
            )
    elif isinstance(loss, losses.PoissonDeviance) and np.any(y < 0):
        cause = (
            f'"poisson" needs y of 0 or above; got {y.min():g}. For targets of both signs use '
            'loss="squared" or "huber".'
        )
    elif isinstance(loss, losses.GammaDeviance) and np.any(y <= 0):
        cause = (
            f'"gamma" needs y above 0; got {y.min():g}. For zeros use loss="poisson", for '
            'targets of both signs "squared" or "huber".'
        )
    elif isinstance(loss, losses.PoissonDeviance) and np.any(y.max(axis=0) <= 0):
        cause = '"poisson" needs a y above 0 in some row; all are 0, so the mean has no logarithm.'
    if cause:
        raise InvalidInput(f"KernelRegressor: loss={cause}")


def _first_huber(problem: Problem) -> losses.Loss:
    """Return the Huber loss for the first fit, with thresholds from the spread of y."""
    y = problem.y
    w = np.broadcast_to(problem.w, y.shape)
    r = y - best_constant(losses.Absolute(), y, w)
    scale = losses.huber_scale(r, problem.w, HUBER_SCALES)
    deviation = np.sqrt((w * r**2).sum(axis=0) / w.sum(axis=0))
    # The scale is about zero if half of y is one number
    spread = np.where(scale > 1e-3 * deviation, scale, deviation)
    return losses.Huber().of(HUBER_SCALES * np.where(spread > 0, spread, 1.0))


def minimise_norm(problem: Problem, rows: ScaledRows, spec: ConvexSpec) -> tuple[Problem, State]:
    """Return (problem, minimum): Σ w ℓ + λ‖β‖² with the minimum of Σ w ℓ + alpha·R(‖β‖).

    R may jump, and the minimum is then at the jump: bisection to 1e-6, not a parabola.
    """
    R, strength = spec.norm, spec.alpha
    assert R is not None
    assert strength is not None
    largest = float(np.max(largest_penalty(problem) / rows.per_alpha))
    ends: dict[float, tuple[float, float, Problem, State]] = {}

    def objective(step: float) -> float:
        start = ends[min(ends, key=lambda place: abs(place - step))][3] if ends else None
        alpha = one_or_each(largest * 10.0**step * rows.per_alpha)
        trial = replace(problem, alpha=alpha)
        state = minimise(trial, start, tol=spec.tol, max_iter=spec.max_iter)
        optimal = optimum(trial, state, rows.units, one_or_each(alpha / rows.per_alpha))
        squares = np.square(optimal.coef).sum(axis=0)
        loss = optimal.objective - 0.5 * float((squares * optimal.alpha).sum())
        norm = float(np.sqrt(squares.sum()))
        value = loss + strength * float(R(norm))
        ends[step] = value, norm, trial, state
        return value

    steps = np.arange(2, -14, -1.0)  # powers of ten
    values = [objective(float(step)) for step in steps]
    norms = sorted(ends[step][1] for step in steps)
    penalties = np.array([R(norm) for norm in norms], dtype=np.float64)
    finite = penalties[np.isfinite(penalties)]
    falls = np.any(np.diff(finite) < -1e-12 * np.abs(finite[1:]))
    if np.isnan(penalties).any() or not len(finite) or falls:
        raise InvalidInput(
            "KernelRegressor: penalty must be nondecreasing, not NaN, and finite for some norm; "
            f"got {penalties.tolist()[:3]} … for norms from {norms[0]:.3g} to {norms[-1]:.3g}. "
            "Pass for example lambda r: r."
        )
    best = int(np.argmin(values))
    bounds = steps[min(best + 1, len(steps) - 1)], steps[max(best - 1, 0)]
    with np.errstate(invalid="ignore"):  # penalties may be infinite
        options = {"xatol": 1e-6}
        minimize_scalar(objective, bounds=bounds, method="bounded", options=options)
    return min(ends.values(), key=lambda optimal: optimal[0])[2:]


class ConvexRegressor(Differentiable, IntervalRegressor, ConvexEstimator):
    """Base class of regressors with a convex loss."""

    def _left_out(self) -> HeldOutRows | None:
        errors = self._fitted.left_out
        if errors is None:
            return None
        y, is_known = errors.predicted + errors.errors, np.isfinite(errors.errors)
        prediction = self._centre(self._predictions(errors.predicted))
        y, is_known = y[:, : prediction.shape[1]], is_known[:, : prediction.shape[1]]
        return replace(
            errors, predicted=prediction, errors=np.where(is_known, y - prediction, np.inf)
        )

    intercept_ = getter("solution.intercept", "Intercept b, a number or (t,).", by_target=True)


@estimator
class SVR(KernelParameters, ConvexRegressor):
    """Support vector regression: exact kernel for few rows, features for many.

    Minimises ½‖β‖² + C Σ wᵢ max(0, |yᵢ − φ(xᵢ)·β − b| − epsilon) where φ(x)·φ(y) ≈ k(x, y): the
    problem of scikit-learn's SVR with the kernel φ(x)·φ(y), for any number of rows.

    Parameters
    ----------
    %(kernel or auto)s
    method : Method, str or None, default None
        - None: the exact kernel up to 2048 rows, unless ``n_features`` or ``precision`` is set, or
          ``fit_intercept=False`` with the loss that is not squared; "auto" for more rows.
        - "exact", "local": no features; above 8192 rows and for "local" the loss must be squared.
        - "auto" or a method: features; see :func:`bochner.draw`.
    %(n_features or exact)s
    C : "auto" or float, default "auto"
        Weight of the loss, above zero, as in scikit-learn. "auto": the C of smallest held-out loss
        on a sample of some thousand rows.
    epsilon : "auto" or float, default "auto"
        Errors up to epsilon have no loss; zero or above, in the units of y. "auto": 0.05 times the
        mean absolute deviation of y from its median.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default "epsilon_insensitive"
        The squared loss is smooth and faster to fit.
    tol : float, default 1e-6
        Largest relative distance of the objective from its minimum. With the exact kernel LIBSVM
        mostly reaches 1e-4; see ``solution_.gap``.
    max_iter : int, default 200
        Largest number of Newton steps; with the exact kernel, of LIBSVM steps per row (below
        1,000 rows as many steps as for 1,000 rows).

    See Also
    --------
    KernelRegressor : Regression by any convex loss.
    KernelRidge : Regression by squares.

    Notes
    -----
    Targets are scaled to their spread: with "auto" for C and epsilon, a fit to s·y is s times the
    fit to y. With the exact kernel LIBSVM takes between O(n²) and O(n³) per penalty. With features
    s steps take O(s (n D + a D²)) for a rows near the edge of the tube, few in the last steps;
    features are cached if they fit in a quarter of the free memory.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import SVR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (300, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300)
    >>> model = SVR("gaussian", random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.1)
    True
    """

    kernel: Kernel | str = "auto"
    _: KW_ONLY
    C: float | str = "auto"
    epsilon: float | str = "auto"
    loss: str = "epsilon_insensitive"
    tol: float = 1e-6
    max_iter: int = 200

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        kinds = "epsilon_insensitive", "squared_epsilon_insensitive"
        squared = one_of(self.loss, "SVR", "loss", kinds) == kinds[1]
        loss = losses.EpsilonInsensitive(width=None if squared else 0.0)
        C = self._number("C", positive)
        epsilon = self._number("epsilon", nonnegative)
        tube = {"epsilon": "auto" if epsilon is None else epsilon}
        spec = self._convex_spec(loss, None if C is None else 1 / C, **tube)
        limit = 2048 if spec.fit_intercept or not loss.nonsmooth else 0
        return fit_regressor(spec, blocks, inputs, where, self._uses_kernel(blocks, limit, where))

    @property
    def C_(self) -> Any:
        """The C of the fit; (t,) if it differs between targets."""
        return 1 / self.solution_.alpha

    @property
    def epsilon_(self) -> Any:
        """Largest error without loss, in the units of y; (t,) if it differs between targets."""
        return one_or_each(self._fitted.loss.epsilon)


@estimator
class KernelRegressor(FeatureParameters, ConvexRegressor):
    """Regression with any convex loss: medians, quantiles, counts and your own losses.

    Minimises Σ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2)‖β‖² where φ(x)·φ(y) ≈ k(x, y), or with alpha
    times any nondecreasing function of ‖β‖.

    Parameters
    ----------
    %(kernel of rows)s
    loss : str or Loss, default "squared"
        - "squared": (y − f)²/2. "absolute": |y − f|, for the conditional median.
        - "huber": squares up to 1.35 standard deviations of the noise, then linear; the fit
          estimates the standard deviation, as scikit-learn's ``HuberRegressor`` does.
        - "quantile": the loss of the levels ``quantiles``.
        - "poisson" (y ≥ 0), "gamma" (y > 0): half the deviance with a log link, summed over rows.
        - "multinomial": log Σ exp f_k − Σ y_k f_k for shares that sum to one; predicts softmax(f).
        - :class:`Huber`, :class:`CustomLoss`, or for several outputs :class:`JointLoss`.
    quantiles : float or sequence of float, default (0.1, 0.5, 0.9)
        Levels for loss="quantile". Several levels give columns of the prediction that never
        cross: they are sorted in each row (Chernozhukov et al. 2010), which reduces their error.
    method : Method or str, default "auto"
        - "auto" or a method: features; see :func:`bochner.draw`.
        - "exact", "local": no features; above 8192 rows and for "local" the loss must be smooth.
    %(n_features)s
    alpha : float or "holdout", default "holdout"
        The penalty. "holdout": the alpha of smallest loss on a held-out fifth of the rows; without
        features on five folds below 1,000 rows, and above 8192 rows on a sample of 4096.
    penalty : callable, optional
        R, a nondecreasing function of r = ‖β‖ (of all targets together), infinite where a fit is
        not allowed: ``lambda r: r``, ``lambda r: 0 if r <= 3 else np.inf``. The penalty is then
        alpha·R(‖β‖) instead of (alpha/2)‖β‖²; alpha must be a number. About 40 fits find the
        ``alpha_`` at which (alpha_/2)‖β‖² has the same minimum.
    tol : float, default 1e-6
        Largest relative distance of the objective from its minimum.
    max_iter : int, default 200
        Largest number of Newton steps.

    See Also
    --------
    KernelRidge : Regression by squares, in one pass over the rows.
    SVR : Regression without loss for small errors.

    Notes
    -----
    Targets are scaled to their spread: a fit to s·y is s times the fit to y, except for custom
    losses and losses with a log link. s steps take O(s (n D + a D²)) for a active rows: all rows
    for smooth losses, few rows for other losses.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner import KernelRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> model = KernelRegressor(loss="quantile", quantiles=(0.1, 0.9), random_state=0).fit(X, y)
    >>> low, high = model.predict([[1.0]])[0]
    >>> bool(low < np.sin(1.0) < high)
    True
    """

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY
    loss: str | losses.Loss = "squared"
    quantiles: Any = (0.1, 0.5, 0.9)
    n_features: int | float | str | None = 1024
    metric: str | None = None
    columns: str = "auto"
    alpha: float | str = "holdout"
    penalty: Callable[[float], float] | None = None
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 200

    def _fit(self, blocks: Blocks, inputs: Inputs, where: Executor = LOCAL) -> ConvexFit:
        loss = losses.convex_loss(self.loss, self.quantiles)
        alpha = self._number("alpha", nonnegative, "holdout")
        options = {"finds_scale": self.loss == "huber", "one_level": np.ndim(self.quantiles) == 0}
        spec = self._convex_spec(loss, alpha, norm=self.penalty, **options)
        if self.penalty is not None and not callable(self.penalty):
            raise InvalidType(
                "KernelRegressor: penalty must be a function of the norm; got "
                f"{self.penalty!r}. Pass for example lambda r: r."
            )
        if self.penalty is not None and (not alpha or self.loss == "huber"):
            raise InvalidInput(
                "KernelRegressor: a penalty requires a number alpha above zero, and for Huber's "
                f"loss a threshold; got alpha={self.alpha!r}, "
                f"loss={self.loss!r}. Pass alpha=1.0, or Huber(threshold)."
            )
        exact = self._uses_kernel(blocks, 0, where)
        if self.penalty is not None and not spec.features.method.has_features:
            raise InvalidInput(
                "KernelRegressor: penalty requires features; got "
                f"method={self.method!r}. Leave method out."
            )
        return fit_regressor(spec, blocks, inputs, where, exact)

    def _predictions(self, f: Float[Array, "b t"]) -> Float[Array, "b t"]:
        xp = array_namespace(f)
        if isinstance(self.loss_, losses.LOG_LINK):
            return xp.exp(xp.minimum(f, 700.0))
        if isinstance(self.loss_, losses.Multinomial):
            return xp.exp(log_probabilities(f))
        return xp.sort(f, axis=1) if _several_levels(self.loss_) else f

    def _gradients(self, blocks: Blocks) -> Gradients:
        for X, G in self._fitted.gradients(blocks):
            f = self._fitted.function(X)
            if isinstance(self.loss_, losses.LOG_LINK):
                yield X, self._predictions(f)[:, None, :] * G
            elif isinstance(self.loss_, losses.Multinomial):
                p = self._predictions(f)[:, None, :]
                yield X, p * (G - (p * G).sum(axis=2, keepdims=True))
            elif _several_levels(self.loss_):
                yield X, np.take_along_axis(G, np.argsort(f, axis=1)[:, None, :], axis=2)
            else:
                yield X, G

    def _centre(self, predicted: Float[Array, "b t"]) -> Float[Array, "b t"]:
        if not _several_levels(self.loss_):
            return predicted
        nearest = int(np.argmin(np.abs(np.sort(self.loss_.level) - 0.5)))
        return predicted[:, nearest : nearest + 1]

    def score(self, X: Tabular, y: Array, sample_weight: Array | None = None) -> float:
        """Return D² = 1 − loss / (loss of the best constant), averaged over targets (as R²)."""
        fitted = np.concatenate([f for _, f in self._fitted.predictions(self._rows_to_predict(X))])
        fitted = np.sort(fitted, axis=1) if _several_levels(self.loss_) else fitted
        y = np.broadcast_to(np.asarray(y, np.float64).reshape(len(fitted), -1), fitted.shape)
        w = np.ones((len(y), 1)) if sample_weight is None else np.asarray(sample_weight)[:, None]
        loss, w = self.loss_, np.broadcast_to(w, y.shape)
        total = (w * loss.value(y, fitted)).sum(axis=0)
        best = np.broadcast_to(best_constant(loss, y, w), y.shape)
        reference = (w * loss.value(y, best)).sum(axis=0)
        return float(np.mean(1 - total / np.maximum(reference, 1e-300)))

    loss_ = getter("loss", "The loss, with all parameters.")
    alpha_ = getter("solution.alpha", "The penalty of the fit; (t,) if it differs between targets.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in ("poisson", "gamma")
        return tags


def _several_levels(loss: losses.Loss) -> bool:
    return isinstance(loss, losses.Quantile) and np.size(loss.level) > 1
