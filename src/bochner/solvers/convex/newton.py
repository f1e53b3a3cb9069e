"""Newton's method for convex losses on features, all columns of a problem sharing its sweeps.

    minimise  Σᵢ wᵢ ℓ(yᵢ, φ(xᵢ)·β + b) + (alpha/2) ‖β‖²

Features kept in memory, and not too many, take whole Hessians:
:mod:`bochner.solvers.convex.whole_newton`, and with kinks
:mod:`bochner.solvers.convex.nonsmooth`. What follows is for the others.

Each step solves H d = −∇ by conjugate gradients, preconditioned with moments: of all rows where
they are given, else of a few thousand rows drawn by their curvature. A product with H reads only
rows that bend; one sweep of all rows gives the next value and gradient (Lin, Weng and Keerthi 2008;
Keerthi and DeCoste 2005).

A loss with kinks is smoothed, and its width δ shrinks until Σ w (ℓ − ℓ_δ), which bounds what the
solution is above the minimum, is small beside the objective.

How it is used::

    features = engine.Features(phi, blocks, dtype)      # re-iterable blocks (Z, y, w, start)
    found = minimise(features, SquaredHinge(), 1 / C, targets=lambda y: indicators(y, K))
    f = Z @ found.coef + found.intercept
    if not found.outcome.good: warnings.warn(str(found.outcome), SolutionWarning)
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bochner._core.blas import one_thread
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import conjugate_gradients, inner
from bochner.solvers.convex import nonsmooth
from bochner.solvers.convex.hessian import (
    Hessian,
    Preconditioners,
    Rows,
    Sums,
    bending,
    forward,
    from_moments,
    from_rows,
)
from bochner.solvers.convex.loss import Loss
from bochner.solvers.convex.objective import (
    Line,
    Objective,
    Point,
    Source,
)
from bochner.solvers.convex.optimum import Convergence, NewtonHistory, Optimum
from bochner.solvers.convex.row_table import Table
from bochner.solvers.convex.whole_newton import WIDE, descend
from bochner.solvers.convex.whole_steps import FLOOR

#: Share of the gradient that the first conjugate gradients may leave ...
FIRST_SHARE = 0.1

#: ... and the last: the step is then Newton's to 1e-4 of its decrease.
LAST_SHARE = 0.01

#: What conjugate gradients leave of a decrease may be this share of the tolerance; but not with
#: kinks, whose next width starts from the minimum of this one.
BESIDE = 0.1

#: Products a step, at most.
MOST_PRODUCTS = 250

#: Factor between one width of a kink and the next.
NARROWER = 0.2

#: A width is left when its own minimum is known to this share, times the width: the next one moves
#: it by more.
TRACKING = 1e-3

#: Rounding of the objective, relative, for each precision of the features.
ROUNDING = {"float32": 1e-7, "float64": 1e-13}

#: An operation of a product with vectors takes this many times one of the preconditioner's.
VECTOR_COST = 6

#: Whole Hessians are made for so many features at most where rows without slope are left out ...
MOST_LOCAL = 2048

#: ... for so many where all rows bend, and for so many numbers of all columns.
MOST_WHOLE = 128
MOST_CELLS = 1 << 26

#: Width of a kink where a descent starts from another's end.
AGAIN = 0.1

#: Without a penalty, an objective of this share of that at zero is next to nothing.
NOTHING = 1e-9


def minimise(
    features: Source,
    loss: Loss,
    alpha: float,
    *,
    fit_intercept: bool = True,
    start: Optimum | None = None,
    moments: Sums | None = None,
    targets: Callable[[Array], Array] | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
) -> Optimum:
    """Minimise Σ w ℓ(y, Zβ + b) + (alpha/2) ‖β‖², each column for itself or all jointly.

    Parameters
    ----------
    features : Source
        Re-iterable blocks (Z, y, w, start), with an attribute ``cached``;
        ``bochner.models._engine.Features``.
    loss : Loss
    alpha : float
        Penalty, not negative; 1/C.
    fit_intercept : bool, default True
        Whether b is fitted, without penalty.
    start : Optimum, optional
        Where to start from; default zero, from where the first step of a squared hinge is to the
        ridge solution.
    moments : Sums, optional
        Of all rows: they precondition every step, which pays where features are not kept in
        memory. By default, and with kinks, a few thousand rows do, drawn by their curvature.
    targets : callable, optional
        From the blocks' y to the (b, t) numbers that the loss compares; default y itself.
    tol : float, default 1e-4
        The last step promised to lower the objective by less than this share of it (what is left
        after it is far less); kinks leave no more than this share open.
    max_iter : int, default 100
        Newton steps at most; where kinks are smoothed, for each width.

    Returns
    -------
    Optimum

    Notes
    -----
    Memory O(n t) beside the features. Time a step: one sweep of 4 n D t operations, and as many
    again for a product with the Hessian, on rows that bend; O(D³) where the preconditioner is made.
    With whole Hessians memory is O(t D²) more, and a step takes O(a D² + D³) a column beside the
    sweep, a rows bending otherwise than before.
    """
    objective = Objective(features, alpha, fit_intercept, targets)
    if moments is None and _few(objective, loss):
        by = _by_multipliers if loss.kinked else _by_whole
        return by(objective, loss, start, tol, max_iter)
    theta = np.zeros((objective.n_columns, objective.n_features + 1))
    if start is not None:
        theta = start.theta.copy()
    descent = _Descending(objective, moments, max_iter)
    if loss.kinked:
        return _through_kinks(descent, loss, theta, tol)
    point, outcome = descent.run(loss, theta, tol)
    return descent.optimum(loss, point, outcome)


def _few(objective: Objective, loss: Loss) -> bool:
    """Whether whole Hessians are the faster: of few features, or of the few rows that bend."""
    D, t = objective.n_features, objective.n_columns
    most = MOST_LOCAL if loss.local or loss.kinked else MOST_WHOLE
    fits = most >= D and t * D * D <= MOST_CELLS
    return fits and objective.features.cached and objective.alpha > 0 and not loss.joint


def _by_whole(
    objective: Objective, loss: Loss, start: Optimum | None, tol: float, max_iter: int
) -> Optimum:
    targets = objective.targets(slice(0, len(objective.w)))
    table = Table([b.Z for b in objective.features], np.ascontiguousarray(targets.T), objective.w)
    # Products of few columns: several threads wait longer for one another than one takes.
    with one_thread() if table.n_features < WIDE else nullcontext():
        found = descend(
            table,
            loss,
            objective.alpha,
            fit_intercept=objective.fit_intercept,
            start=None if start is None else start.theta,
            tol=tol,
            max_iter=max_iter,
            slack=ROUNDING[np.dtype(objective.dtype).name],
        )
    history = NewtonHistory(*np.array(found.log).reshape(-1, 5).T)
    coef, intercept = found.theta[:, :-1].T.copy(), found.theta[:, -1].copy()
    least = float(found.value.sum())
    return Optimum(coef, intercept, objective.alpha, least, 0.0, found.outcome, history)


def _by_multipliers(
    objective: Objective, loss: Loss, start: Optimum | None, tol: float, max_iter: int
) -> Optimum:
    """Return what :mod:`bochner.solvers.convex.nonsmooth` finds."""
    y = objective.targets(slice(0, len(objective.w)))
    problem = nonsmooth.Problem(
        Numbered(objective.features, objective.n_features),
        y,
        objective.w[:, None],
        loss,
        objective.alpha,
        objective.fit_intercept,
    )
    at = None
    if start is not None:
        fitted = np.concatenate([forward(b.Z, start.theta) for b in objective.features])
        far = np.full(y.shape[1], np.inf)
        slope = loss.slope(y, fitted)
        at = nonsmooth.State(start.coef, start.intercept, fitted, slope, AGAIN, far)
    return nonsmooth.minimise(problem, at, tol=tol, max_iter=max_iter)


@dataclass(frozen=True, eq=False)
class Numbered:
    """Rows that can be read again, with the number of their features."""

    rows: Source
    n_features: int

    def __iter__(self) -> Iterator[Rows]:
        return iter(self.rows)


def _through_kinks(descent: "_Descending", loss: Loss, theta: Array, tol: float) -> Optimum:
    """Let the width go to zero until the smoothed minimum meets the objective."""
    objective = descent.objective
    width = descent.first_width(loss, theta)
    while True:
        smooth = loss.smooth(width)
        point, outcome = descent.run(smooth, theta, max(0.1 * tol, TRACKING * width), width)
        least = objective.total(loss, point)
        gap = least - objective.total(smooth, point)
        if gap <= tol * least or not outcome.good:
            return descent.optimum(loss, point, outcome, gap)
        if width < descent.finest:
            return descent.optimum(loss, point, Convergence.ROUNDED, gap)
        theta = descent.follow(smooth, point, width)
        width = NARROWER * width


class _Step(NamedTuple):
    """One place a column."""

    point: Point
    decrease: Float[Array, " u"]
    stuck: Array


class _Descending:
    """Newton steps on one objective; counts them, and keeps the preconditioner while it serves."""

    def __init__(self, objective: Objective, moments: Sums | None, max_iter: int) -> None:
        self.objective = objective
        self._moments = moments
        self._most = max_iter
        self._preconditioners: Preconditioners | None = None
        self._apart = False
        self._log: list[tuple[float, ...]] = []
        self._rounding = ROUNDING[np.dtype(objective.dtype).name]
        #: Narrower kinks than this are lost in the rounding of the fit.
        self.finest = 10 * self._rounding

    def optimum(self, loss: Loss, point: Point, outcome: Convergence, gap: float = 0.0) -> Optimum:
        """Return what was found."""
        history = NewtonHistory(*np.array(self._log).reshape(-1, 5).T)
        coef, intercept = point.theta[:, :-1].T, loss.settled(point.theta[:, -1])
        least = self.objective.total(loss, point)
        alpha = self.objective.alpha
        return Optimum(coef.copy(), intercept.copy(), alpha, least, gap, outcome, history)

    def run(
        self, loss: Loss, theta: Float[Array, "t p"], tol: float, width: float = 0.0
    ) -> tuple[Point, Convergence]:
        """Take steps until every column is done."""
        live = np.arange(len(theta))
        point, outcome = self.objective.point(loss, theta, live), Convergence.CONVERGED
        nothing, left = self._nothing(loss), self._most
        self._preconditioners, self._apart = None, False
        while True:
            if np.any(point.value[live] <= nothing[live]):
                outcome, live = Convergence.UNBOUNDED, live[point.value[live] > nothing[live]]
            if not len(live):
                return point, outcome
            if not left:
                return point, Convergence.MOST_STEPS
            step = self._step(loss.at(live), point.at(live), live, width, tol)
            point, left = point.put(live, step.point), left - 1
            done = step.decrease <= tol * step.point.value
            if np.any(step.stuck & ~done):
                outcome = Convergence.ROUNDED
            live = live[~(done | step.stuck)]

    def _nothing(self, loss: Loss) -> Float[Array, " t"]:
        """Return the value of each column that is next to nothing; below all if penalised."""
        objective = self.objective
        if objective.alpha > 0:
            return np.full(objective.n_columns, -np.inf)
        zero = np.zeros((objective.n_columns, objective.n_features + 1))
        fitted = np.zeros((len(objective.w), objective.n_columns))
        return NOTHING * objective.values(loss, zero, fitted, np.arange(objective.n_columns))

    def _step(self, loss: Loss, point: Point, columns: Array, width: float, tol: float) -> _Step:
        """Solve for Newton's direction and go along it."""
        hessian = self._hessian(loss, point, columns, width)
        inverse = self._inverse(hessian, columns, self._apart or width > 0)
        estimate = inner(point.gradient, inverse(point.gradient), loss.joint) / 2
        rest = estimate / np.maximum(point.value, 1e-300)
        beside = 0.0 if width else BESIDE * tol
        shares = np.maximum(np.sqrt(rest), np.sqrt(beside / np.maximum(rest, 1e-300)))
        shares = np.clip(shares, LAST_SHARE, FIRST_SHARE)
        found = conjugate_gradients(
            hessian, -point.gradient, inverse, shares, MOST_PRODUCTS, loss.joint
        )
        self._judge(found.products, hessian.share, len(columns))
        decrease = -inner(point.gradient, found.solution, loss.joint) / 2
        moved, stuck = self._along(loss, point, found.solution, decrease, columns)
        total = float(moved.value[0] if loss.joint else moved.value.sum())
        promised = float(decrease[0] if loss.joint else decrease.sum())
        self._log.append((total, promised, found.products, hessian.share, width))
        return _Step(moved, decrease, stuck)

    def _along(
        self, loss: Loss, point: Point, direction: Array, decrease: Array, columns: Array
    ) -> tuple[Point, Array]:
        """Go the whole way where that keeps half its promise, else to the least on the way."""
        objective = self.objective
        slack = self._rounding * np.abs(point.value)
        moved = objective.point(loss, point.theta + direction, columns)
        short = ~(moved.value <= point.value - 0.5 * decrease + slack)
        if np.any(short):
            line = Line(objective, loss, columns, point, direction, moved.fitted - point.fitted)
            length = np.where(short, line.least(), 1.0)
            moved = objective.point(loss, point.theta + length[:, None] * direction, columns)
        stuck = ~(moved.value <= point.value + slack)
        return (moved.where(~stuck, point) if np.any(stuck) else moved), stuck

    # --- kinks -----------------------------------------------------------------------------------

    def first_width(self, loss: Loss, theta: Float[Array, "t p"]) -> float:
        """Return the width to start from, judged on the first rows."""
        objective = self.objective
        block = next(iter(objective.features))
        targets = objective.targets(slice(0, len(block.Z)))
        return loss.spread(targets, forward(block.Z, theta)) or 1.0

    def follow(self, loss: Loss, point: Point, width: float) -> Float[Array, "t p"]:
        """Return where the minimum goes when the width shrinks, if the same rows bend.

        Their slopes are in proportion to 1/δ, and so is their part of H: then one solution of
        (alpha I + H_bend/s) d = −(1/s − 1) ∇_bend is where it goes, s being the factor of δ.
        """
        objective, columns = self.objective, np.arange(len(point.theta))
        hessian = self._hessian(loss, point, columns, width, 1 / NARROWER)
        right = (1 - 1 / NARROWER) * objective.stiffening(loss, point.fitted)
        inverse = from_rows(hessian, apart=True)
        shares = np.full(len(columns), LAST_SHARE)
        found = conjugate_gradients(hessian, right, inverse, shares, MOST_PRODUCTS, loss.joint)
        narrower = loss.smooth(NARROWER * width)
        moved = objective.point(narrower, point.theta + found.solution, columns)
        stays = objective.values(narrower, point.theta, point.fitted, columns)
        return np.where((moved.value < stays)[:, None], moved.theta, point.theta)

    # --- preconditioner --------------------------------------------------------------------------

    def _hessian(
        self, loss: Loss, point: Point, columns: Array, width: float, scale: float = 1.0
    ) -> Hessian:
        objective = self.objective
        bends = objective.bends(loss, point.fitted, columns)
        pieces, share = bending(objective.features, bends, objective.features.cached)
        floor = FLOOR * float(objective.w.sum()) / (width or 1.0)
        floor = floor if objective.fit_intercept else 0.0
        return Hessian(pieces, share, loss, objective.alpha, floor, scale)

    def _inverse(self, hessian: Hessian, columns: Array, apart: bool) -> Preconditioners:
        """Return the preconditioner: the one of before while it is cheaper to keep."""
        if self._preconditioners is None:
            if self._moments is not None and not apart:
                weight = float(self.objective.w.sum())
                self._preconditioners = from_moments(self._moments, weight, hessian)
            else:
                self._preconditioners = from_rows(hessian, apart)
            self._made_for = columns
        return self._preconditioners.at(np.searchsorted(self._made_for, columns))

    def _judge(self, products: int, share: float, columns: int) -> None:
        """Drop the preconditioner if the products of a step took longer than to make it.

        If they took longer than one for each column takes, the next is that.
        """
        D = self.objective.n_features
        rows = share * len(self.objective.w)
        spent = products * VECTOR_COST * 4 * rows * columns
        making = min(2 * D, rows) * D + D * D / 3
        if spent >= making:
            self._preconditioners = None
            self._apart = spent >= columns * making
