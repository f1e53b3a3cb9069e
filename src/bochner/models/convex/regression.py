"""Regression by convex losses: choose, minimise; penalties by rows that were left out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Bool, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece, join
from bochner.errors import InvalidInput
from bochner.models._rows import N_FOLDS, FeatureBlock, Kept, folds_of, row_marks, rows_left_out
from bochner.models.convex.fit import (
    ConvexFit,
    ConvexSpec,
    features_of,
    scaled,
    spread_of,
    targets_of,
    warned,
)
from bochner.models.convex.general import (
    MOST_DUAL,
    NormPenalty,
    dual_of,
    joint_path,
    scale_of,
)
from bochner.models.convex.left_out import left_out
from bochner.models.convex.units import ScaledRows
from bochner.selection.choose import choose_map
from bochner.selection.chosen import Chosen
from bochner.solvers.convex.driver import solve
from bochner.solvers.convex.joint_losses import MultinomialShares, check_shares
from bochner.solvers.convex.losses import (
    LOG_LINK,
    Absolute,
    EpsilonInsensitive,
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
    walked_path,
)
from bochner.solvers.convex.problem import Problem, State, best_constant, optimum
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.rows import sampled

#: epsilon="auto", as a share of the mean distance of y from its median.
AUTO_EPSILON = 0.05

#: Least spread of targets, in their units, that penalties start from.
NARROW_SPREAD = 1e-3

#: Rows that penalties of SVR are compared on, and from how many on one fold of five is enough.
PATH_ROWS, ONE_FOLD = 4096, 1000

#: The threshold of Huber's loss, in standard deviations of the noise: 95 % as efficient as squares.
HUBER_SCALES = 1.35

#: Scales below this share of the standard deviation mean that half of y is one number.
SPIKE = 1e-3

#: Rounds of fit and scale, at most, and the relative change of the scale that ends them.
SCALE_ROUNDS, SCALE_CHANGE = 30, 1e-6


# --- support vectors -----------------------------------------------------------------------------


def fit_svr(
    spec: ConvexSpec,
    epsilon: float | str,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
) -> ConvexFit:
    """Fit a support vector regression, whose loss gets its ``epsilon`` here.

    Both ``spec.alpha`` and ``epsilon`` are a number or "auto".
    """
    rows = scaled(spec.who, blocks, spec.loss.degree, where)
    tube = AUTO_EPSILON * rows.spread if isinstance(epsilon, str) else epsilon / rows.units
    loss = epsilon_insensitive(spec.loss, tube)
    alpha: Any = None if isinstance(spec.alpha, str) else rows.penalty(spec.alpha)
    path, ridge, near = None, None, None
    if alpha is not None:
        ridge = (spread_of(rows.blocks) if loss.nonsmooth else 0.5) * float(np.mean(alpha))
    chosen = choose_map(spec.features, rows.blocks, ridge, where)
    if alpha is None:
        path, alpha, near = _svr_path(spec, loss, rows, chosen, where)
    features = features_of(chosen, rows.blocks, where)
    y, w, shape = targets_of(spec.who, features)
    problem = Problem(features, y, w, loss, alpha, spec.fit_intercept, value=rows.value)
    found = _Ended(problem, solve(problem, near, tol=spec.tol, max_iter=spec.max_iter), path=path)
    return _fit(found, rows, chosen, inputs, shape, loss.in_units(1 / rows.units), where)


@dataclass(frozen=True, eq=False)
class _Ended:
    """A problem with its penalty and loss, where its descent ended, and how both were found."""

    problem: Problem
    state: State
    n_iter: int | None = None  # default: the steps of the state
    path: HeldOutPath | None = None
    X: Any = None  # Few rows, for their coefficients


def _fit(
    ended: _Ended,
    rows: ScaledRows,
    chosen: Chosen,
    inputs: Inputs,
    shape: tuple[int, ...],
    loss: Loss,
    where: Executor,
) -> ConvexFit:
    """Return what was found in units of one, with this loss."""
    problem, state = ended.problem, ended.state
    at_minimum = where is LOCAL
    return warned(
        ConvexFit(
            inputs,
            chosen,
            loss,
            optimum(problem, state, rows.units, rows.original(problem.alpha)),
            len(state.steps) if ended.n_iter is None else ended.n_iter,
            None if ended.path is None else rows.original_path(ended.path),
            shape,
            dual=None if ended.X is None else dual_of(problem, state, rows),
            X=ended.X,
            left_out=left_out(problem, state, rows, chosen) if at_minimum else None,
        )
    )


def epsilon_insensitive(loss: Loss, epsilon: Float[Array, " t"]) -> Loss:
    """Return a loss of this kind, with an epsilon for each target."""
    given = tuple(epsilon.tolist()) if len(epsilon) > 1 else float(epsilon[0])
    squared = isinstance(loss, SquaredEpsilonInsensitive)
    return SquaredEpsilonInsensitive(given) if squared else EpsilonInsensitive(given)


def _svr_path(
    spec: ConvexSpec, loss: Loss, rows: ScaledRows, chosen: Chosen, where: Executor
) -> tuple[HeldOutPath | None, float, State | None]:
    """Return what rows left out lost, the best penalty in the rows' units, and where it ended."""
    sample = sampled(rows.blocks, chosen.seed, where=where).lowest(PATH_ROWS)
    different = len(np.unique(row_marks(sample.X, chosen.seed)))
    if different < 2:
        return None, 1.0, None
    folds = 1 if different >= ONE_FOLD else min(N_FOLDS, different)
    numbers = folds_of(row_marks(sample.X, chosen.seed), sample.w)
    Z = to_numpy(chosen.features(sample.X))
    kept = Kept(FeatureBlock(Z, sample.y, sample.w, 0))
    problem = Problem(kept, sample.y, sample.w[:, None], loss, 0.0, spec.fit_intercept)
    # As if all rows were active, of squares or over the spread: medians may be any in an interval.
    spread = float(np.maximum(rows.spread, NARROW_SPREAD).mean())
    curvature = 2.0 if rows.degree == 2 else 1 / spread
    largest = curvature * float(sample.w @ (Z.astype(np.float64) ** 2).sum(axis=1)) or 1.0
    left_out = numbers[:, None] == np.arange(folds)
    share = chosen.search.share * float(sample.w.sum()) * curvature / largest
    path, end = _path(problem, left_out, spec.max_iter, largest, share)
    return path, path.alpha, replace(end, multipliers=None)


def _path(
    problem: Problem, left_out: Bool[Array, "n k"], max_iter: int, largest: float, share: float
) -> tuple[HeldOutPath, State]:
    """Return penalties by rows left out: near a share of the largest, where one is known."""
    if not (np.isfinite(share) and share > 0):
        return held_out_path(problem, left_out, max_iter, largest)
    near = int(np.rint(np.log(share) / np.log(FACTOR)))
    return walked_path(problem, left_out, max_iter, largest, near)


# --- any loss ------------------------------------------------------------------------------------


def fit_regressor(
    spec: ConvexSpec,
    blocks: Blocks,
    inputs: Inputs,
    *,
    finds_scale: bool = False,
    one_level: bool = False,
    where: Executor = LOCAL,
) -> ConvexFit:
    """Fit a regression by any convex loss; ``spec.alpha`` is a number, "holdout" or "kfold".

    ``finds_scale``: the threshold of Huber's loss follows the scale of the noise; ``one_level``:
    one quantile is predicted as (n,).
    """
    asked = spec.loss
    rows = scaled(spec.who, blocks, asked.degree, where)
    chosen = choose_map(spec.features, rows.blocks, _like_ridge(spec, rows), where)
    features = features_of(chosen, rows.blocks, where)
    y, w, shape = targets_of(spec.who, features)
    if asked.joint:
        _check_joint(asked, y, w)
    y, shape = _columns(spec.who, asked, y, shape, one_level)
    rows = rows.repeated(y.shape[1] // len(rows.units))
    _check_targets(asked, y, w)
    loss = asked.in_units(rows.units)
    problem = Problem(features, y, w, loss, 0.0, spec.fit_intercept, value=rows.value)
    if finds_scale:
        problem = replace(problem, loss=_first_huber(problem))
    found = _Descents(problem, rows, spec, chosen.seed, where, chosen.search.share)
    ended = found.descended(finds_scale)
    if where is LOCAL and len(w) <= MOST_DUAL:
        ended = replace(ended, X=join([Piece(block.X) for block in rows.blocks]).X)
    final = ended.problem.loss.in_units(1 / rows.units) if finds_scale else asked
    return _fit(ended, rows, chosen, inputs, shape, final, where)


@dataclass(frozen=True, eq=False)
class _Descents:
    """How a problem without penalty is solved."""

    problem: Problem
    rows: ScaledRows
    spec: ConvexSpec
    seed: int
    where: Executor = LOCAL
    share: float = float("nan")  # the penalty of ridge regression per row, where it was looked for

    def descended(self, finds_scale: bool) -> _Ended:
        """Return the minimum, at the penalty that is given or chosen."""
        spec, at, path = self.spec, None, None
        if spec.norm is not None:
            return self._under(spec.norm)
        if isinstance(spec.alpha, str):
            out = self._left_out(N_FOLDS if spec.alpha == "kfold" else 1)
            path, at = self._path(out)
            alpha: Any = path.alpha
        else:
            alpha = self.rows.penalty(spec.alpha)
        problem = replace(self.problem, alpha=alpha)
        found = solve(problem, at, tol=spec.tol, max_iter=spec.max_iter)
        if finds_scale:
            return self._with_scale(problem, found, path)
        return _Ended(problem, found, path=path)

    def _path(self, out: Bool[Array, "n k"]) -> tuple[HeldOutPath, State | None]:
        """Return penalties by rows left out, and a state to start from."""
        problem, steps = self.problem, self.spec.max_iter
        if problem.loss.joint:
            return joint_path(problem, out, steps)
        Z = problem.first.Z
        squares = float(np.einsum("ij,ij->", Z, Z, dtype=np.float64)) / len(Z) or 1.0
        return _path(problem, out, steps, largest_penalty(problem), self.share / squares)

    def _under(self, R: Callable[[float], float]) -> _Ended:
        """Return the minimum under a penalty of the norm: that of squares with the same one."""
        spec, first = self.spec, scale_of if self.problem.loss.joint else largest_penalty
        largest = float(np.max(self.rows.original(first(self.problem))))
        times = float(spec.alpha)
        penalty = NormPenalty(self.problem, self.rows, R, times, spec.tol, spec.max_iter)
        return _Ended(*penalty.minimum(largest))

    def _with_scale(self, problem: Problem, at: State, path: HeldOutPath | None) -> _Ended:
        """Fit and estimate the scale of the noise in turns, until both stay."""
        least = 1e-6 * np.maximum(np.abs(problem.y).max(axis=0), 1e-300)
        old, steps = np.full(len(least), np.inf), len(at.steps)
        for _ in range(SCALE_ROUNDS):
            scale = np.maximum(huber_scale(problem.y - at.fitted, problem.w, HUBER_SCALES), least)
            if np.all(np.abs(scale / old - 1) <= SCALE_CHANGE):
                break
            problem, old = replace(problem, loss=hubers(HUBER_SCALES * scale)), scale
            at = solve(problem, at, tol=self.spec.tol, max_iter=self.spec.max_iter)
            steps += len(at.steps)
        return _Ended(problem, at, steps, path)

    def _left_out(self, folds: int) -> Bool[Array, "n k"]:
        w = self.problem.w[:, 0]
        return rows_left_out(self.spec.who, self.rows.blocks, w, self.seed, folds, self.where)


def _like_ridge(spec: ConvexSpec, rows: ScaledRows) -> float | None:
    """Return a given penalty as that of squares, where the two compare."""
    if isinstance(spec.alpha, str) or isinstance(spec.loss, LOG_LINK):
        return None
    if spec.norm is not None or spec.loss.joint:
        return None
    spread = spread_of(rows.blocks) if spec.loss.nonsmooth else 1.0
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


def _check_joint(loss: Loss, y: Float[Array, "n t"], w: Float[Array, "n 1"]) -> None:
    """Refuse what joint losses do not serve."""
    if isinstance(loss, MultinomialShares):
        check_shares(y, w)


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
