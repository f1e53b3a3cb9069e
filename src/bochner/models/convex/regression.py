"""Regression by convex losses on features.

Of all β with ‖β‖ ≤ r the loss is least on the path of β(α), the minima of Σ w ℓ + (α/2)‖β‖²: r
falls as α rises, and takes all values up to the norm at the least loss. So the minimum of
Σ w ℓ + R(‖β‖) is on that path for any R that never falls, convex or not, and one number is searched
for. Either is a sum over rows Σ uᵢ φ(xᵢ) (Schölkopf, Herbrich and Smola 2001, theorem 1).
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Bool, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece, join
from bochner.errors import InvalidInput
from bochner.models._rows import N_FOLDS, FeatureBlock, Kept, folds_of, row_marks, rows_left_out
from bochner.models.convex.fit import ConvexFit, ConvexSpec, features_of, targets_of, warned
from bochner.models.convex.left_out import left_out
from bochner.models.convex.units import ScaledRows, scaled, spread_of
from bochner.selection.choose import choose_map
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.class_losses import MultinomialShares, check_shares
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.losses import (
    LOG_LINK,
    Absolute,
    GammaDeviance,
    Loss,
    PoissonDeviance,
    Quantile,
    SquaredEpsilonInsensitive,
    huber_scale,
    hubers,
)
from bochner.solvers.convex.penalty_path import (
    FACTOR,
    HeldOutPath,
    held_out_path,
    largest_penalty,
)
from bochner.solvers.convex.problem import Problem, State, best_constant, optimum
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.rows import sampled

#: epsilon="auto", as a share of the mean distance of y from its median.
AUTO_EPSILON = 0.05

#: Least spread of targets, in their units, that penalties start from.
NARROW_SPREAD = 1e-3

#: Rows that penalties of SVR are compared on, and the number from which one fold of five is enough.
PATH_ROWS, ONE_FOLD = 4096, 1000

#: The threshold of Huber's loss, in standard deviations of the noise: 95 % as efficient as squares.
HUBER_SCALES = 1.35

#: Scales below this share of the standard deviation mean that half of y is one number.
SPIKE = 1e-3

#: Rounds of fit and scale, at most, and the relative change of the scale that ends them.
SCALE_ROUNDS, SCALE_CHANGE = 30, 1e-6

#: Penalties tried by factors of ten, and the tolerance of the logarithm of the best one.
DECADES, LOG_TOL = 16, 1e-6

#: Rows up to which the coefficients of rows are kept.
MOST_DUAL = 1024


# --- support vectors -----------------------------------------------------------------------------


def tube_of(loss: Loss, epsilon: float | str, rows: ScaledRows) -> Loss:
    """Return an epsilon-insensitive loss of this kind in the rows' units."""
    tube = AUTO_EPSILON * rows.spread if isinstance(epsilon, str) else epsilon / rows.units
    given = tuple(tube.tolist()) if len(tube) > 1 else float(tube[0])
    return replace(loss, epsilon=given)  # type: ignore[type-var]


def curvature_of(rows: ScaledRows) -> float:
    """Return the curvature as if all rows were active, of squares or over the spread of y.

    The spread is not that about a median, which may be any number of an interval.
    """
    if rows.degree == 2:
        return 2.0
    return 1 / float(np.maximum(rows.spread, NARROW_SPREAD).mean())


def fold_count(marks: Array) -> int:
    """Return how many folds rows with these marks need; 0 where all rows are equal."""
    different = len(np.unique(marks))
    if different < 2:
        return 0
    return 1 if different >= ONE_FOLD else min(N_FOLDS, different)


def _svr_path(
    spec: ConvexSpec, loss: Loss, rows: ScaledRows, chosen: Chosen, where: Executor
) -> tuple[HeldOutPath | None, State | None]:
    """Return penalties in the rows' units with losses of rows left out, and the best's end."""
    sample = sampled(rows.blocks, chosen.seed, where=where).lowest(PATH_ROWS)
    marks = row_marks(sample.X, chosen.seed)
    folds = fold_count(marks)
    if not folds:
        return None, None
    Z = to_numpy(chosen.features(sample.X))
    kept = Kept(FeatureBlock(Z, sample.y, sample.w, 0))
    problem = Problem(kept, sample.y, sample.w[:, None], loss, 0.0, spec.fit_intercept)
    curvature = curvature_of(rows)
    largest = curvature * float(sample.w @ (Z.astype(np.float64) ** 2).sum(axis=1)) or 1.0
    out = folds_of(marks, sample.w)[:, None] == np.arange(folds)
    share = chosen.search.share * float(sample.w.sum()) * curvature / largest
    path, end = _path(problem, out, spec.max_iter, largest, share)
    return path, None if end is None else replace(end, multipliers=None)


def _path(
    problem: Problem, left_out: Bool[Array, "n k"], max_iter: int, largest: float, share: float
) -> tuple[HeldOutPath, State | None]:
    """Return penalties by rows left out: near a share of the largest, where one is known."""
    known = not problem.loss.joint and np.isfinite(share) and share > 0
    near = int(np.rint(np.log(share) / np.log(FACTOR))) if known else None
    return held_out_path(problem, left_out, max_iter, largest, near)


# --- any loss ------------------------------------------------------------------------------------


def fit_regressor(
    spec: ConvexSpec,
    blocks: Blocks,
    inputs: Inputs,
    *,
    epsilon: float | str | None = None,
    finds_scale: bool = False,
    one_level: bool = False,
    where: Executor = LOCAL,
) -> ConvexFit:
    """Fit a regression by any convex loss on features.

    ``spec.alpha`` is a number, "holdout" or "kfold". With ``epsilon``, a number or "auto", the loss
    is a support vector regression, and ``spec.alpha`` a number or "auto". ``finds_scale``: the
    threshold of Huber's loss follows the scale of the noise; ``one_level``: one quantile is
    predicted as (n,).
    """
    rows = scaled(spec.who, blocks, spec.loss.degree, where)
    asked = spec.loss
    if epsilon is not None:
        asked = tube_of(asked, epsilon, rows).in_units(1 / rows.units)
    chosen = choose_map(spec.features, rows.blocks, _like_ridge(spec, rows), where)
    features = features_of(chosen, rows.blocks, where)
    y, w, shape = targets_of(spec.who, features)
    if isinstance(asked, MultinomialShares):
        check_shares(y, w)
    y, shape = _columns(spec.who, asked, y, shape, one_level)
    rows = rows.repeated(y.shape[1] // len(rows.units))
    _check_targets(asked, y, w)
    loss = asked.in_units(rows.units)
    problem = Problem(features, y, w, loss, 0.0, spec.fit_intercept, value=rows.value)
    path, near = None, None
    if spec.norm is not None:
        problem, state = under_norm(problem, rows, spec)
    else:
        problem = replace(problem, loss=_first_huber(problem)) if finds_scale else problem
        if spec.alpha == "auto":
            path, near = _svr_path(spec, loss, rows, chosen, where)
        elif isinstance(spec.alpha, str):
            folds, seed = N_FOLDS if spec.alpha == "kfold" else 1, chosen.seed
            out = rows_left_out(spec.who, rows.blocks, w[:, 0], seed, folds, where)
            Z = problem.first.Z
            squares = float(np.einsum("ij,ij->", Z, Z, dtype=np.float64)) / len(Z) or 1.0
            share = chosen.search.share / squares
            path, near = _path(problem, out, spec.max_iter, largest_penalty(problem), share)
        given = 1.0 if isinstance(spec.alpha, str) else rows.penalty(spec.alpha)
        problem = replace(problem, alpha=given if path is None else path.alpha)
        state = solve(problem, near, tol=spec.tol, max_iter=spec.max_iter)
        if finds_scale:
            problem, state = _with_scale(problem, state, spec)
    dual, X = None, None
    if epsilon is None and where is LOCAL and len(w) <= MOST_DUAL:
        dual = dual_of(problem, state, rows)
        X = None if dual is None else join([Piece(block.X) for block in rows.blocks]).X
    return warned(
        ConvexFit(
            inputs,
            chosen,
            problem.loss.in_units(1 / rows.units) if finds_scale else asked,
            optimum(problem, state, rows.units, rows.original(problem.alpha)),
            len(state.steps),
            rows.original_path(path),
            target_shape=shape,
            left_out=left_out(problem, state, rows, chosen) if where is LOCAL else None,
            X=X,
            dual=dual,
        )
    )


def _with_scale(problem: Problem, at: State, spec: ConvexSpec) -> tuple[Problem, State]:
    """Fit and estimate the scale of the noise in turns, until both stay."""
    least = 1e-6 * np.maximum(np.abs(problem.y).max(axis=0), 1e-300)
    old, steps = np.full(len(least), np.inf), at.steps
    for _ in range(SCALE_ROUNDS):
        scale = np.maximum(huber_scale(problem.y - at.fitted, problem.w, HUBER_SCALES), least)
        if np.all(np.abs(scale / old - 1) <= SCALE_CHANGE):
            break
        problem, old = replace(problem, loss=hubers(HUBER_SCALES * scale)), scale
        at = solve(problem, at, tol=spec.tol, max_iter=spec.max_iter)
        steps += at.steps
    return problem, replace(at, steps=steps)


def _like_ridge(spec: ConvexSpec, rows: ScaledRows) -> float | None:
    """Return the penalty of squares that corresponds to a given one, if the losses compare."""
    if isinstance(spec.alpha, str) or isinstance(spec.loss, LOG_LINK):
        return None
    if spec.norm is not None or spec.loss.joint:
        return None
    per_square = 0.5 if isinstance(spec.loss, SquaredEpsilonInsensitive) else 1.0
    spread = spread_of(rows.blocks) if spec.loss.nonsmooth else per_square
    return spread * float(np.mean(rows.penalty(spec.alpha)))


def _columns(
    who: str, loss: Loss, y: Float[Array, "n t"], shape: tuple[int, ...], one_level: bool
) -> tuple[Float[Array, "n t"], tuple[int, ...]]:
    """Return y with a column for each quantile, and the shape of a row of predictions."""
    levels = loss.level if isinstance(loss, Quantile) else 0.5
    if not isinstance(levels, tuple):
        return y, shape
    if y.shape[1] > 1 and len(levels) > 1:
        raise InvalidInput(
            f"{who}: several quantiles need one target; got {len(levels)} quantiles "
            f"and {y.shape[1]} targets. Fit the targets one by one, or ask for one quantile."
        )
    if y.shape[1] > 1 or (len(levels) == 1 and one_level):
        return y, shape
    return np.repeat(y, len(levels), axis=1), (len(levels),)


def _check_targets(loss: Loss, y: Float[Array, "n t"], w: Float[Array, "n 1"]) -> None:
    """Refuse targets that a log link cannot have."""
    there = y[w[:, 0] > 0]
    if isinstance(loss, PoissonDeviance) and np.any(there < 0):
        raise InvalidInput(
            f'KernelRegressor: loss="poisson" needs y of 0 or above; got {there.min():g}. '
            'For targets of both signs take loss="squared" or "huber".'
        )
    if isinstance(loss, GammaDeviance) and np.any(there <= 0):
        raise InvalidInput(
            f'KernelRegressor: loss="gamma" needs y above 0; got {there.min():g}. For zeros take '
            'loss="poisson", for targets of both signs "squared" or "huber".'
        )
    if isinstance(loss, PoissonDeviance) and np.any(there.max(axis=0) <= 0):
        raise InvalidInput(
            'KernelRegressor: loss="poisson" needs a y above 0 in some row; all are 0, so the mean '
            "has no logarithm."
        )


def _first_huber(problem: Problem) -> Loss:
    """Return the loss whose thresholds suit the spread of y itself."""
    y = problem.y
    w = np.broadcast_to(problem.w, y.shape)
    r = y - best_constant(Absolute(), y, w)
    scale = huber_scale(r, problem.w, HUBER_SCALES)
    deviation = np.sqrt((w * r**2).sum(axis=0) / w.sum(axis=0))
    some = np.where(scale > SPIKE * deviation, scale, deviation)
    return hubers(HUBER_SCALES * np.where(some > 0, some, 1.0))


# --- penalties of the norm, and coefficients of rows ----------------------------------------------


def under_norm(problem: Problem, rows: ScaledRows, spec: ConvexSpec) -> tuple[Problem, State]:
    """Minimise Σ w ℓ + alpha·R(‖β‖): return the problem of squares with that minimum, and it.

    Raises
    ------
    InvalidInput
        If R falls somewhere, or is infinite on the whole path.
    """
    R, largest = spec.norm, float(np.max(rows.original(largest_penalty(problem))))
    assert R is not None
    ends: dict[float, tuple[float, float, Problem, State]] = {}

    def objective(step: float) -> float:
        near = ends[min(ends, key=lambda known: abs(known - step))][3] if ends else None
        alpha = rows.penalty(largest * 10.0**step)
        here = replace(problem, alpha=alpha)
        state = solve(here, near, tol=spec.tol, max_iter=spec.max_iter)
        found = optimum(here, state, rows.units, rows.original(alpha))
        squares = np.square(found.coef).sum(axis=0)
        loss = found.objective - 0.5 * float((squares * found.alpha).sum())
        norm = float(np.sqrt(squares.sum()))
        value = loss + float(spec.alpha) * float(R(norm))
        ends[step] = value, norm, here, state
        return value

    steps = np.arange(2, 2 - DECADES, -1.0)
    values = [objective(float(step)) for step in steps]
    _check_norm([(ends[step][1], R(ends[step][1])) for step in steps])
    best = int(np.argmin(values))
    bounds = steps[min(best + 1, len(steps) - 1)], steps[max(best - 1, 0)]
    with np.errstate(invalid="ignore"):  # penalties may be infinite
        options = {"xatol": LOG_TOL}
        minimize_scalar(objective, bounds=bounds, method="bounded", options=options)
    return min(ends.values(), key=lambda end: end[0])[2:]


def _check_norm(pairs: list[tuple[float, float]]) -> None:
    pairs = sorted(pairs)
    values = np.array([value for _, value in pairs], dtype=np.float64)
    if np.isnan(values).any() or not np.isfinite(values).any():
        raise InvalidInput(
            "KernelRegressor: penalty must be a number for some norm that fits have; got "
            f"{values.tolist()[:3]} … for norms {pairs[0][0]:.3g} … {pairs[-1][0]:.3g}."
        )
    finite = values[np.isfinite(values)]
    if np.any(np.diff(finite) < -1e-12 * np.abs(finite[1:])):
        raise InvalidInput(
            "KernelRegressor: penalty must never fall as the norm rises; got "
            f"{finite.tolist()[:3]} … for rising norms. Pass, say, lambda r: r."
        )


def dual_of(problem: Problem, state: State, rows: ScaledRows) -> Float[Array, "n t"] | None:
    """Return u with β = Σ uᵢ φ(xᵢ), in units of one; None without a penalty.

    Of a smooth loss u_i = −w_i ℓ'(y_i, f_i)/alpha, where the gradient of the objective is zero; of
    others the u of least norm that gives β.
    """
    if not np.all(problem.alpha):
        return None
    if not problem.loss.nonsmooth:
        u = -problem.w * problem.loss.slope(problem.y, state.fitted) / problem.alpha
    else:
        Z = np.concatenate([to_numpy(block.Z) for block in problem.rows]).astype(np.float64)
        live = np.flatnonzero(problem.w[:, 0] > 0)
        u = np.zeros(state.fitted.shape)
        u[live] = np.linalg.lstsq(Z[live].T, state.coef, rcond=None)[0]
    return np.asarray(u * rows.units)
