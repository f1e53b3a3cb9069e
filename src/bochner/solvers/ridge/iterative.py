"""Ridge regression with very many features by conjugate gradients, without the Gram matrix.

(G + αI)β = B is solved by products G V, each a pass over the rows. A random sample of m rows Z_m,
each representing n/m rows, gives the preconditioner

    P = CᵀC + αI,   C = √(n/m) Z_m,   CCᵀ = U diag(s) Uᵀ,   P⁻¹r = (r − CᵀU (s + α)⁻¹ UᵀC r)/α,

whose m × m decomposition serves all penalties (compare Rudi, Carratino and Rosasco 2017; Frangella,
Tropp and Udell 2023). Penalties, targets and random vectors share one subspace (:mod:`~.krylov`),
so that each pass serves all of them.

**Stopping.** With the residual r and e = (G + αI)⁻¹r, the mean squared error of predictions on the
training rows is eᵀGe/W ≤ |r|²/(4αW), because λ/(λ + α)² ≤ 1/(4α). The iteration stops when the
root of this bound is below a share of the expected error of the fit.

**Traces.** With g = Zᵀ√w ε, ε random signs, gᵀ(G + αI)⁻¹g is an unbiased estimate of the effective
dimension d = tr G(G + αI)⁻¹ (Hutchinson 1990). From a solution x with residual r it is estimated as
gᵀx + rᵀx, whose error is of second order.

**Leave-one-out errors.** In a fit to the sample only, let leverages have odds o = h/(1 − h). In the
fit to all rows they are then about h = c o m/n / (1 + c o m/n), with c such that the leverages of
all rows sum to the estimate of d. The mean of e² = r²/(1 − h)² is multiplied by the ratio of the
mean r² of all rows and of the sample, as in :mod:`~.eigen`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.optimize import brentq

from bochner._core.arrays import slices
from bochner._core.blas import eigh
from bochner._core.shapes import Array, Both, Float
from bochner.solvers.ridge.eigen import deviation_of, extrapolate_errors
from bochner.solvers.ridge.krylov import GrowingSubspace, ShiftedSystems, low_rank_inverse
from bochner.solvers.ridge.problem import gcv, left_out_errors, slack_of_leverage
from bochner.solvers.ridge.search import settle
from bochner.solvers.ridge.solution import Outcome, Path, Solution, best_index, choose_alpha, pool

PROBES = 4  # Number of random vectors for traces

#: Error of the iteration relative to the expected root mean squared error of the fit: 0.02 adds
#: 0.04 % to the mean square. Factor of this error during the search for a penalty.
SHARE, ROUGHLY = 0.02, 3.0

FINEST, COARSEST = 1e-6, 1e-3  # Range of tolerances, in standard deviations of the target
MAX_STEPS = 300  # Largest number of passes

STEP = 10**0.5  # Factor from one penalty of the path to the next
WORTH = 0.005  # Share by which each step must lower the error
MIN_ALPHA, MAX_ALPHA = 1e-10, 1e2  # Range of penalties, relative to the largest eigenvalue of G


@dataclass(frozen=True, eq=False)
class SampleRows:
    """Random rows, centred at the means of all rows, for the preconditioner and the penalty."""

    Z: Float[Array, "m D"]
    y: Float[Array, "m t"]
    w: Float[Array, " m"]
    weight: float  # W of all rows

    @property
    def factor(self) -> float:
        """Factor ω of the weights of the sample, so that they sum to W."""
        return self.weight / float(self.w.sum())

    @cached_property
    def root(self) -> Float[Array, " m"]:
        """√(ω w), the factor of a row in C."""
        return np.sqrt(self.factor * self.w)

    @cached_property
    def eigen(self) -> Both:
        """Eigenvalues s and vectors U of CCᵀ = U diag(s) Uᵀ: O(m²D + m³), in float64."""
        S = np.zeros((len(self.w), len(self.w)))
        for part in slices(self.Z.shape[1], 4096):
            C = self.Z[:, part].astype(np.float64) * self.root[:, None]
            S += C @ C.T
        values, vectors = eigh(S, driver="evd", overwrite_a=True, check_finite=False)
        return np.maximum(values, 0.0), vectors

    @property
    def top(self) -> float:
        """Largest eigenvalue of CᵀC."""
        return max(float(self.eigen[0][-1]), 1e-300)

    def inverse(self, r: Float[Array, "D c"], alphas: Float[Array, " c"]) -> Float[Array, "D c"]:
        """Return P⁻¹r with one penalty per column, in the precision of Z."""
        values, vectors = self.eigen
        return low_rank_inverse(self.Z.T, values, self.root[:, None] * vectors, r, alphas)


@dataclass(frozen=True, eq=False)
class WideProblem:
    """Sums over rows for a solution without the Gram matrix."""

    multiply: Callable[[Array, str], Array]  # (V, precision) to G V: a pass over the rows
    cross: Float[Array, "D t"]  # B = Σ w (z − z̄)(y − ȳ)
    power: Float[Array, " t"]  # Σ w (y − ȳ)²
    weight: float  # W
    rows: int  # n, of positive weight
    centred: bool  # whether an intercept is fitted
    draws: Float[Array, "D s"]  # Σ √w (z − z̄) ε
    sample: SampleRows

    @property
    def count(self) -> float:
        return max(self.weight, self.rows)

    @property
    def spread(self) -> Float[Array, " t"]:
        return np.sqrt(self.power / self.weight)


def rows_to_factor(n: int, D: int, n_sample: int) -> int:
    """Return m, at most 4,096, for at most 512 MB of features and the time of ten passes."""
    return max(1, min(n_sample, 4096, (512 << 20) // (4 * D), int((45.0 * n * D) ** (1 / 3))))


def guess(problem: WideProblem) -> tuple[float, float, float]:
    """Return estimates of the best penalty and of its effective dimension, and the tolerance.

    The tolerance of the iteration is relative to the spread of the targets. Leave-one-out errors of
    the sample are extrapolated to all rows, along a path of penalties.
    """
    sample, (values, U) = problem.sample, problem.sample.eigen
    values, m = values / sample.factor, len(sample.w)
    alphas = np.geomspace(1e-9, 10.0, 61) * max(float(values[-1]), 1e-300)
    shrink = alphas / (values[:, None] + alphas)
    projected = U.T @ (np.sqrt(sample.w)[:, None] * sample.y)
    slack = np.maximum((U**2) @ shrink, 1e-9)
    squares = [
        (left_out_errors(U @ (shrink * c[:, None]), slack) ** 2).sum(axis=0) for c in projected.T
    ]
    power = problem.power / problem.weight
    errors = pool(np.stack(squares, axis=1) / sample.w.sum(), power)
    ratio, free = problem.rows / m, max(m - problem.centred, 1.0)
    trace, square_trace = shrink.sum(axis=0), (shrink**2).sum(axis=0)
    errors = extrapolate_errors(errors, trace, square_trace, free, ratio)
    at = best_index(errors, "loo")
    alpha = alphas[at] * (trace[at] + (ratio - 1) * free) / trace[at]
    size = float(power[power > 0].mean())
    tolerance = np.clip(SHARE * np.sqrt(float(errors[at]) / size), FINEST, COARSEST)
    return float(alpha), float(m - trace[at]) + 1.0, float(tolerance)


@dataclass(frozen=True, eq=False)
class WideState:
    """Errors and degrees of freedom of the solution at one penalty."""

    alpha: float
    rss: Float[Array, " t"]  # Σ w (y − ŷ)²
    free: float  # tr (I − H)
    dimension: float  # d
    loo: Float[Array, " t"]  # mean squared leave-one-out errors
    loo_deviation: Float[Array, " t"]  # their standard errors


def state_at(
    problem: WideProblem, space: GrowingSubspace, alpha: float, dimension: float, tol: float
) -> WideState:
    """Return the state at a penalty; traces of the probes have a relative error of 0.05."""
    t, s = len(problem.power), problem.draws.shape[1]
    wide = np.sqrt(dimension / problem.weight) * 0.05 / tol
    scale = np.append(problem.spread, np.full(s, wide)) * np.sqrt(problem.weight)
    right = np.column_stack([problem.cross, problem.draws])
    systems = ShiftedSystems(right, np.full(t + s, alpha), scale)
    solution = space.solve(systems, problem.sample.inverse, tol, MAX_STEPS, proven=False)
    u, r = solution.u, solution.residual
    gram = right - r - alpha * u
    traces = (u[:, t:] * (right + r)[:, t:]).sum(axis=0)
    d, deviation = float(traces.mean()), float(traces.std(ddof=1) / np.sqrt(len(traces)))
    rss = problem.power + ((gram[:, :t] - 2 * problem.cross) * u[:, :t]).sum(axis=0)
    rss, n = np.maximum(rss, 1e-14 * problem.power), problem.count
    loo, error = left_out(problem, alpha, u[:, :t], rss, d, deviation)
    return WideState(alpha, rss, max(n - problem.centred - d, 1e-12 * n), d, loo, error)


def left_out(
    problem: WideProblem,
    alpha: float,
    coef: Float[Array, "D t"],
    rss: Float[Array, " t"],
    dimension: float,
    deviation: float,  # standard error of ``dimension``
) -> Both:
    """Return estimates of the mean squared leave-one-out errors, and their standard errors."""
    sample, w = problem.sample, problem.sample.w
    parts = [sample.Z[i].astype(np.float64) @ coef for i in slices(len(w), 256)]
    residual = sample.y - np.concatenate(parts)
    r2, e2 = residual**2, left_out_errors(residual, slacks(problem, alpha, dimension)[:, None]) ** 2
    share = min(1.0, len(w) / problem.rows)
    ratio = rss / problem.weight / np.maximum(w @ r2 / w.sum(), 1e-300)
    error = w @ e2 / w.sum() * ratio
    by_trace = 2 * error * deviation / max(problem.rows - dimension, 1.0) if share < 1 else 0.0
    return error, np.sqrt(deviation_of(e2, r2, w, share) ** 2 + by_trace**2)


def slacks(problem: WideProblem, alpha: float, dimension: float | None) -> Float[Array, " m"]:
    """Return 1 − leverage of the sampled rows; the leverages of all rows sum to ``dimension``."""
    (values, vectors), rows, n = problem.sample.eigen, problem.sample, problem.rows
    h, m = (vectors**2) @ (values / (values + alpha)), len(rows.w)
    odds = h / np.maximum(1 - h, 1e-12) / rows.factor

    def leverages(log_c: float) -> Float[Array, " m"]:
        scaled = np.exp(log_c) * odds
        return scaled / (1 + scaled)

    log_c = 0.0
    if m < n and dimension is not None:
        excess = lambda log_c: float(leverages(log_c).sum()) * n / m - dimension
        if excess(-7.0) <= 0 <= excess(7.0):
            log_c = brentq(excess, -7.0, 7.0, xtol=1e-6)
    h = leverages(log_c) / rows.w + problem.centred / problem.weight
    return np.maximum(slack_of_leverage(h, rows.w), 1e-6)


def solve_wide(
    problem: WideProblem,
    alpha: Float[Array, " t"] | str,
    per_target: bool,
    means: tuple[Float[Array, " D"], Float[Array, " t"]],
) -> Solution:
    """Return the solution at a given penalty, or at the best by "loo" or "gcv".

    ``per_target``: each target has its own penalty. ``means``: z̄ and ȳ, or zeros.
    """
    D, t = problem.cross.shape
    sides, scale = t + problem.draws.shape[1], problem.spread * np.sqrt(problem.weight)
    for precision in ("float32", "float64"):
        space = GrowingSubspace(problem.multiply, D, sides, precision)
        states, chosen, tol = _choose_penalty(problem, space, alpha, per_target)
        alphas = np.array(np.broadcast_to(chosen, t))
        systems = ShiftedSystems(problem.cross, alphas, scale)
        solution, first = space.refine(systems, problem.sample.inverse, tol, MAX_STEPS)
        if first <= ROUGHLY * tol:
            break
    coef = solution.u
    text = (
        f"{D:,} features, preconditioned by {len(problem.sample.w):,} rows: numerical error of "
        f"predictions at most {solution.bound.max(initial=0.0):.1g} of the spread, tol {tol:.1g}."
    )
    path, criterion = _path_of(problem, states, alphas), str(alpha) if states else "given"
    dimensions: Any = [None] * t
    if states:
        dimensions = np.interp(np.log(alphas), np.log(path.alphas), path.effective_dimension)
    outcome = Outcome.SOLVED
    if not np.any(problem.power > 0):
        outcome = Outcome.CONSTANT_TARGET
    elif not solution.converged:
        outcome = Outcome.PASSES_ENDED
    elif states and is_falling(getattr(path, criterion)):
        outcome = Outcome.EDGE_LOW
    elif states and path.best(criterion) == len(states) - 1:
        outcome = Outcome.EDGE_HIGH
    return Solution(
        coef,
        means[1] - means[0] @ coef,
        float(chosen[0]) if len(chosen) == 1 else chosen,
        outcome,
        path,
        criterion,
        (*solution.history, text),
        np.stack([slacks(problem, a, d) for a, d in zip(alphas, dimensions, strict=True)], axis=1),
    )


def _choose_penalty(
    problem: WideProblem, space: GrowingSubspace, alpha: Float[Array, " t"] | str, per_target: bool
) -> tuple[list[WideState], Float[Array, " a"], float]:
    """Return the path (or []), one penalty or one per target, and the tolerance.

    The path starts four steps above the first guess: large penalties take few passes, and small
    penalties start from their solutions.
    """
    power, top = problem.power, problem.sample.top
    if not np.any(power > 0):
        return [], np.atleast_1d(1e-3 * top if isinstance(alpha, str) else alpha), COARSEST
    first, dimension, tolerance = guess(problem)
    if not isinstance(alpha, str):
        return [], np.asarray(alpha), tolerance
    states: dict[float, WideState] = {}

    def error(penalty: float, target: int | None) -> float:
        if penalty not in states:
            states[penalty] = state_at(problem, space, penalty, dimension, ROUGHLY * tolerance)
        errors = states[penalty].loo if alpha == "loo" else gcv(problem, states[penalty])
        return float(pool(errors[None], power)[0] if target is None else errors[target])

    start = float(np.clip(first * STEP**4, STEP * MIN_ALPHA * top, MAX_ALPHA * top / STEP))
    limits = (np.log(MIN_ALPHA * top), np.log(MAX_ALPHA * top)), np.log(STEP), 14, WORTH
    best = lambda target: settle(partial(error, target=target), start, *limits)
    options: Any = alpha, per_target, best, start
    chosen, _ = choose_alpha(power, *options)
    return [states[key] for key in sorted(states)], chosen, tolerance


def is_falling(errors: Float[Array, " p"]) -> bool:
    """Return whether the smallest error is at the smallest penalty, and well below the next."""
    return bool(errors.argmin() == 0 and errors[0] < (1 - WORTH) * errors[1])


def _path_of(problem: WideProblem, states: list[WideState], alphas: Array) -> Path:
    """Return the criteria along the path; they are NaN if there are no states."""
    if not states:
        penalties = np.unique(alphas)
        return Path(penalties, *np.full((4, len(penalties)), np.nan))
    triples = [(s.loo, gcv(problem, s), s.loo_deviation) for s in states]
    loo, scores, deviation = (pool(np.stack(a), problem.power) for a in zip(*triples, strict=True))
    penalties, dimension = np.array([(s.alpha, s.dimension) for s in states]).T
    nan = np.full(len(states), np.nan)
    return Path(penalties, loo, scores, nan, dimension, len(problem.sample.w), deviation)
