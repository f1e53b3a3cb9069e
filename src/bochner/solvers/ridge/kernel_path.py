"""Choice of the penalty of a ridge regression on a kernel matrix, by the slope of a criterion.

A search takes three to six penalties (two to four for a candidate kernel), with one factor and one
inverse each. An eigendecomposition serves all, but takes as long as 5.6 (512 to 2,048 rows).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.dual import REFINED, TINY, KernelFactor, KernelRows, RowSolution
from bochner.solvers.ridge.eigen import deviation_of
from bochner.solvers.ridge.problem import freedom, left_out_errors
from bochner.solvers.ridge.search import likeliest_alpha, minimise, settle
from bochner.solvers.ridge.solution import (
    Alpha,
    EvidenceOutcome,
    Outcome,
    Path,
    Solution,
    choose_alpha,
    pool,
)

LOWEST, HIGHEST = 1e-12, 10.0  # Range of penalties, relative to the trace of √w K √w
FIRST = 0.03  # Start of the search, relative to the mean of w k(x, x)
LEVEL, START_LEVEL = 3e-3, 1e-2  # Slopes ∂log(criterion)/∂log α taken as zero; 2nd with a start
PENALTY_ROWS = 1024  # Largest number of rows by which a penalty is first chosen

#: Rows of a second choice, by squared errors and by a loss: denser rows may need a smaller penalty.
#: Rows of the first choice before it; step of log α in the second choice, and its most steps.
DENSE_ROWS, DENSE_FOR_LOSS, SETTLED_ROWS, FINER, MAX_STEPS = 2048, 3072, 512, np.log(3.0), 4

EVIDENCE_ROWS = 2048  # Largest number of rows for the choice of noise and amplitude
ALL_ROWS = 8192  # Largest number of rows at which several penalties are tried on all rows
LOSS_ROWS = 2048  # Largest number of rows in the log loss that chooses alpha
COMPARED = 1e-4  # Relative residual of solutions whose errors are only compared, to three digits

#: Least log evidence of a function relative to noise about a constant. For the best of many kernels
#: it was at most 3 on 28 of 30 tables of noise, and at least 15 on tables with a function.
ABOVE_NOISE = 3.0


@dataclass(frozen=True, eq=False)
class Penalties:
    """Regressions at the penalties that were tried; each is factored once."""

    rows: KernelRows
    fits: dict[float, KernelFactor | None] = field(default_factory=dict)
    level: float = LEVEL
    noise_is_constant: bool = True  # False if a loss chooses the penalty afterwards

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest log α."""
        return np.log(LOWEST * self.rows.trace), np.log(HIGHEST * self.rows.trace)

    def at(self, alpha: float) -> KernelFactor | None:
        """Return the regression at a penalty; None if the matrix is singular to rounding."""
        if alpha not in self.fits:
            try:
                fit = self.rows.at(alpha)
                stored = replace(fit, inverse=None)
                stored.__dict__.update(criteria=fit.criteria, diagonal=fit.diagonal)
                self.fits[alpha] = stored
            except LinAlgError:
                self.fits[alpha] = None
        return self.fits[alpha]

    def best(self, criterion: str, start: float, target: int | None = None) -> float:
        """Return the penalty that minimises a criterion, for one target or for all."""
        slope = lambda log_alpha: self.slope(criterion, target, float(np.exp(log_alpha)))
        return float(np.exp(minimise(slope, float(np.log(start)), *self.bounds, self.level)))

    def slope(self, criterion: str, target: int | None, alpha: float) -> tuple[float, float]:
        """Return the logarithm of a criterion and its slope in log α, for one target or for all.

        Penalties with a prior variance above a thousand variances of the target are excluded: with
        a long lengthscale the fit would extrapolate like a polynomial.
        """
        fit = self.at(alpha)
        if fit is None or self.amplitude(fit, target) > 1e3:
            return np.inf, -np.inf
        value, slope = fit.criteria[criterion]
        if criterion == "evidence":  # already a logarithm
            targets = self.rows.power > 0 if target is None else target
            return float(value[targets].sum()), float(slope[targets].sum())
        if target is None:
            value, slope = pool(value[None], self.rows.power), pool(slope[None], self.rows.power)
            target = 0
        floor = max(float(value[target]), TINY)
        return float(np.log(floor)), float(slope[target]) / floor

    def best_in_bounds(self, criterion: str, start: float, target: int | None = None) -> float:
        """Return the best penalty; if "loo" is unreliable, the penalty of :meth:`likeliest`.

        "loo" is unreliable if the prior variance exceeds ten variances of the target, or if errors
        are not below those of a constant by two standard errors.
        """
        best, rows = self.best(criterion, start, target), self.rows
        fit = self.at(best)
        if criterion != "loo" or fit is None:
            return best
        slack = 1 - rows.centred * rows.w[:, None] / rows.weight
        gains = left_out_errors(rows.deviations, slack) ** 2 - fit.left_out()[0] ** 2
        gain = rows.w * (pool(gains, rows.power) if target is None else gains[:, target])
        gain = gain / max(float(np.abs(gain).max()), TINY)  # Prevents overflow of squares
        significant = gain.mean() > 2 * gain.std() / len(gain) ** 0.5
        reliable = significant and self.amplitude(fit, target) <= 10.0
        return best if reliable else self.likeliest(best, target)

    def amplitude(self, fit: KernelFactor, target: int | None) -> float:
        """Return the ratio of the prior variance to a target's variance; the largest for None.

        The prior variance is about the mean of the rows, as an intercept fits the mean: a straight
        line with a long lengthscale has an amplitude a² of thousands.
        """
        rows, nu = self.rows, max(freedom(self.rows), 1.0)
        ratios = fit.quadratic_form * rows.spread / (nu * np.maximum(rows.power, TINY))
        return float(ratios.max() if target is None else ratios[target])

    def likeliest(self, start: float, target: int | None = None) -> float:
        """Return the penalty of largest evidence among those with a small leave-one-out error.

        The search starts at the smallest error, tries the largest evidence, and bisects five times
        between both if the error there is too large. The squared error may exceed the smallest by
        2 % of the error of the best 99 % of the rows: an outlier would allow more. If the evidence
        is hardly above the evidence of noise, return the largest penalty: a nearly constant fit.
        """
        low = self.best("loo", start, target)
        squares = self._squares(low, target)
        limit = squares.sum() + 0.02 * squares[: int(0.99 * len(squares))].sum()
        high = middle = self.best("evidence", low, target)
        power, nu = self.rows.power, max(freedom(self.rows), 1.0)
        power = power[power > 0] if target is None else power[[target]]
        of_noise = float((1 + np.log(2 * np.pi * power / nu)).sum())
        excess = 0.5 * nu * (of_noise - self.slope("evidence", target, high)[0])
        if self.noise_is_constant and -np.inf < excess <= ABOVE_NOISE:
            return float(np.exp(self.bounds[1]))
        for _ in range(5):
            small = self._squares(middle, target).sum() <= limit
            low, high = (middle, high) if small else (low, middle)
            middle = float(np.sqrt(low * high))
        return low

    def _squares(self, alpha: float, target: int | None) -> Float[Array, " n"]:
        """Return squared leave-one-out errors, ascending; infinite if the matrix is singular."""
        fit, rows = self.at(alpha), self.rows
        if fit is None:
            return np.full(len(rows.w), np.inf)
        squares = fit.left_out()[0] ** 2
        pooled = pool(squares, rows.power) if target is None else squares[:, target]
        return np.sort(rows.w * pooled)


def solve_kernel(
    rows: KernelRows,
    alpha: Alpha,
    *,
    per_target: bool = False,
    start: float | None = None,
    loss: Callable[[Array, Array, Array], float] | None = None,
) -> Solution:
    """Return the coefficients of the rows at a given penalty, or at the best penalty.

    ``start`` is a first guess of the penalty. ``loss(f, y, w)`` is a loss of leave-one-out
    predictions f; "loo" then minimises it, starting at the penalty of squared errors.

    A penalty takes O(n³) time and 3 n² numbers. With more than 1024 rows it is chosen on the first
    1024, and their path is returned. One penalty by "loo" is chosen again on the first 2048 rows
    (3072 with ``loss``), as denser rows may need a smaller one; with more than 2048 rows and no
    ``loss`` its first choice is on 512. Slacks are of the last 1024 (with ``loss`` 3072) rows.
    """
    dense = rows.first(DENSE_FOR_LOSS if loss else DENSE_ROWS)
    refines = alpha == "loo" and not per_target and loss is None and len(dense.w) < len(rows.w)
    subset = dense.first(SETTLED_ROWS if refines else PENALTY_ROWS)
    level = LEVEL if start is None else START_LEVEL
    penalties = Penalties(subset, level=level, noise_is_constant=loss is None)
    fits, start_ = dict[float, RowSolution](), None
    first = FIRST * subset.trace / len(subset.w) if start is None else start
    best = lambda target: penalties.best_in_bounds(str(alpha), first, target)
    constant = float(np.exp(penalties.bounds[1]))
    chosen, criterion = choose_alpha(subset.power, alpha, per_target, best, constant)
    is_large, size = len(rows.w) > PENALTY_ROWS, PENALTY_ROWS if loss is None else len(dense.w)

    def error(part: KernelRows, alpha: float, last: int) -> float:
        progress(f"Choosing alpha with {len(part.w):,} rows", f"alpha = {alpha:.3g}")
        try:
            fit = part.solve(alpha, last, REFINED if part is rows else COMPARED)
        except LinAlgError:
            return np.inf
        if part is rows:
            fits[alpha] = fit
        y, w = part.y[-last:], part.w[-last:]
        if loss is not None:
            return loss(y - fit.left_out, y, w)
        return float(pool((w @ fit.left_out**2 / w.sum())[None], part.power)[0])

    settles = criterion == "loo" and len(chosen) == 1 and bool(np.any(subset.power > 0))
    if settles and (is_large or loss is not None):
        at = start_ = float(chosen[0])
        has_all_rows = len(dense.w) == len(rows.w)
        if loss is not None or not has_all_rows:
            last = PENALTY_ROWS if loss is None else min(LOSS_ROWS, len(dense.w))
            at = settle(lambda a: error(dense, a, last), at, penalties.bounds, FINER, MAX_STEPS)
        if (loss is None) == has_all_rows and len(rows.w) <= ALL_ROWS:
            # On all rows only multiples of the penalty are compared, without interpolation
            start_, low = (start_, -np.inf) if has_all_rows else (None, penalties.bounds[0])
            # On all rows, a quarter of the penalty must lower the loss by 0.2 %.
            step, decrease = (FINER, 0.0) if has_all_rows else (np.log(4.0), 0.002)
            bounds = low, np.log(at)
            limits: Any = bounds, step, MAX_STEPS, decrease, False
            at = settle(lambda a: error(rows, a, size), at, *limits)
        chosen = np.array([at])
        penalties.at(at)
    solution = _solution(penalties, chosen, criterion, start_)
    if not is_large:
        return solution
    if (end := fits.get(float(np.min(solution.alpha)))) is None:
        progress(f"Factoring the kernel matrix of {len(rows.w):,} rows")
        end = rows.solve(solution.alpha, size)
    slack = np.full((len(rows.w), end.slack.shape[1]), np.nan)
    slack[-size:] = end.slack
    return replace(solution, coef=end.coef, intercept=end.intercept, slack=slack)


def _solution(
    penalties: Penalties, chosen: Float[Array, " c"], criterion: str, start: float | None = None
) -> Solution:
    """Return the solution at the chosen penalties; ``start`` is the penalty on fewer rows."""
    fits: list[Any] = list(map(penalties.at, chosen.tolist()))
    outcome = _outcome(penalties, chosen, criterion, start)
    if None in fits:
        low = float(np.exp(penalties.bounds[0]))
        raised = np.maximum(chosen, 10 * max(low, float(chosen.min())))
        return replace(_solution(penalties, raised, criterion), outcome=outcome)
    coef, intercept, slack = fits[0].coef, fits[0].intercept, fits[0].left_out()[1]
    if len(fits) > 1:  # one penalty per target
        coef = np.stack([fit.coef[:, i] for i, fit in enumerate(fits)], axis=1)
        intercept = np.array([fit.intercept[i] for i, fit in enumerate(fits)])
        slack = np.hstack([fit.left_out()[1] for fit in fits])
    alpha_ = chosen if len(fits) > 1 else float(chosen[0])
    return Solution(coef, intercept, alpha_, outcome, _path(penalties), criterion, slack=slack)


def _path(penalties: Penalties) -> Path:
    rows, table = penalties.rows, []
    for alpha, fit in sorted(penalties.fits.items()):
        if fit is not None:
            squares = pool(fit.left_out()[0] ** 2, rows.power)
            # Divided by the mean, so that squares do not overflow
            unit = squares / max(float(rows.w @ squares / rows.weight), TINY)
            (loo, _), (gcv, _), (per_row, _) = fit.criteria.values()
            table.append((alpha, loo, gcv, per_row, fit.free, unit))
    alphas, loo, gcv, per_row, free, units = map(np.array, zip(*table, strict=True))
    errors, scores = pool(loo, rows.power), pool(gcv, rows.power)
    likelihood = -0.5 * max(freedom(rows), 1.0) * per_row[:, rows.power > 0].sum(axis=1)
    dimension = rows.count - rows.centred - free
    deviation = errors * deviation_of(units.T, units.T, rows.w, 1.0)
    return Path(alphas, errors, scores, likelihood, dimension, len(rows.w), deviation)


def _outcome(
    penalties: Penalties, chosen: Float[Array, " c"], criterion: str, start: float | None
) -> Outcome:
    """Return the outcome; an edge if the criterion still falls at the end of the penalties."""
    power, shared = penalties.rows.power, len(chosen) == 1
    if not np.any(power > 0):
        return Outcome.CONSTANT_TARGET
    best = {None if shared else i: float(a) for i, a in enumerate(chosen) if shared or power[i] > 0}
    if None in map(penalties.fits.get, best.values()):
        return Outcome.SINGULAR
    if criterion == "given":
        return Outcome.SOLVED
    low, high = np.exp(penalties.bounds)
    falls = 0.0  # Negative if the criterion falls towards smaller penalties
    if min(best.values()) <= 1.001 * low or max(best.values()) >= 0.999 * high:
        falls = -1.0 if min(best.values()) <= 1.001 * low else 1.0
    elif start is not None:
        change = float(np.log(chosen[0] / start))
        falls = change if abs(change) > (MAX_STEPS - 0.5) * FINER else 0.0
    else:
        alphas = sorted(filter(penalties.fits.get, penalties.fits))
        for target, alpha in best.items():
            _, slope = penalties.slope(criterion, target, alpha)
            if abs(slope) > penalties.level and alpha == alphas[-1 if slope < 0 else 0]:
                falls = -slope
                break
    if falls == 0:
        return Outcome.SOLVED
    return Outcome.EDGE_LOW if falls < 0 else Outcome.EDGE_HIGH


def choose_penalty(
    rows: KernelRows,
    noise: float | None = None,
    amplitude: float | None = None,
    *,
    criterion: str = "auto",
    start: float | None = None,
) -> tuple[Float[Array, " t"], EvidenceOutcome]:
    """Return λ = σ²/a² of each target, and the outcome; four to twelve λ are tried, each O(m³).

    "evidence" maximises the marginal likelihood. "auto", if noise and amplitude are not given,
    maximises it among λ with a leave-one-out error at most about 1 % above the smallest, because
    with a misspecified kernel the maximum may predict badly.
    """
    subset = rows if len(rows.w) <= EVIDENCE_ROWS else rows.first(EVIDENCE_ROWS)
    bounds = LOWEST * subset.trace, HIGHEST * subset.trace
    first = FIRST * subset.trace / len(subset.w) if start is None else start
    is_open = criterion == "auto" and noise is None and amplitude is None
    penalties = Penalties(subset)

    def best(target: int) -> tuple[float, EvidenceOutcome]:
        find = partial(penalties.likeliest, first, target) if is_open else None
        single = replace(subset, y=subset.y[:, target : target + 1])
        return likeliest_alpha(single, single.at, (noise, amplitude), bounds, first, 3e-4, find)

    alphas, outcomes = zip(*map(best, range(rows.y.shape[1])), strict=True)
    return np.array(alphas), EvidenceOutcome.worst(outcomes)
