"""The law of errors, learned from errors of rows that were left out."""

from dataclasses import replace

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import Nystrom, draw_nystrom
from bochner.kernels.kernel import Kernel
from bochner.models._kernel_sum import KernelSum
from bochner.models.error_law import (
    LEFT_OUT_ROWS,
    Distribution,
    ErrorInputs,
    ErrorLaw,
    LeftOutRows,
    TargetLaw,
    interval_score,
)
from bochner.selection.choose import choose_for_matrix
from bochner.selection.chosen import FeatureSpec
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.leave_one_out import left_out_rows
from bochner.solvers.ridge.path import solve_ridge
from bochner.sums.moments import Moments


def smoothed(
    kernel: Kernel, z: Float[Array, "m k"], y: Float[Array, "m t"], w: Float[Array, " m"], seed: int
) -> tuple[KernelSum, Float[Array, "m t"]]:
    """Return a ridge regression on landmarks, and its leave-one-out values; O(m r² + r³).

    Leave-one-out errors choose its penalty.
    """
    ask = Request(z.shape[1], 256, seed, X=z)  # smooth functions need few landmarks
    phi = draw_nystrom(Nystrom(), kernel, ask)
    Z = phi(z)
    moments = Moments.of(Z, y, w)
    mean, about = moments.feature_mean, moments.target_mean
    Z -= mean
    eigen = decompose(moments)
    every = slice(None, None, -(-len(w) // 1024))  # rows that the penalty is chosen by
    judged = Z[every], y[every] - about, w[every]
    solution = solve_ridge(eigen, (mean, about), "loo", [judged])
    coef = phi.root(np.dtype(np.float64)) @ solution.coef
    alpha = np.full(y.shape[1], float(solution.alpha))
    (residuals, errors), *_ = left_out_rows(eigen, [(Z, y - about, w)], alpha)
    left_out = y - np.where(np.isfinite(errors), errors, residuals)
    return KernelSum(kernel, phi.landmarks, coef, solution.intercept), left_out


#: Fewer rows than these have one law for all z, and one distribution.
FEWEST_ROWS, FEWEST_FOR_SHAPE = 128, 512

#: Coverages that laws are compared at, and the least gain that a finer one is taken for.
JUDGED, LEAST_GAIN = (0.5, 0.8, 0.9, 0.95), 0.01


# --- learning the law ----------------------------------------------------------------------------


def learn_errors(rows: LeftOutRows, seed: int) -> ErrorLaw:
    """Learn the law of errors: the simplest whose intervals are as short, and miss as little.

    Scale and distribution are learned from 4096 rows at most, in about a second for each target.
    Held-out rows are split in half: one half learns the law, the other gives the scores.
    """
    if rows.deviation is not None:  # a process has a scale of its own
        return ErrorLaw.of_process(rows.errors, rows.deviation, rows.source, rows.w)
    order = np.random.default_rng(seed).permutation(len(rows.w))
    if rows.source == "leave one out":
        order = np.sort(order[:LEFT_OUT_ROWS])
    learning, scored = rows.take(order), rows.take(order)
    if rows.source == "held out" and len(order) >= 2 * FEWEST_ROWS:
        half = len(order) // 2
        learning, scored = rows.take(order[:half]), rows.take(order[half:])
    elif rows.source == "held out":
        learning = rows.take(order[:0])
    shared = rows.source != "held out"
    laws = (_learn(learning, scored, j, seed, shared) for j in range(rows.errors.shape[1]))
    return ErrorLaw(tuple(laws), rows.source)


def _learn(
    learning: LeftOutRows, scored: LeftOutRows, j: int, seed: int, shared: bool
) -> TargetLaw:
    plain = TargetLaw.of(scored.errors[:, j], scored.w)
    known = np.flatnonzero(np.isfinite(learning.errors[:, j]))
    if len(known) < FEWEST_ROWS or not np.median(np.abs(learning.errors[known, j])) > 0:
        return plain
    few = learning.take(known[:LEFT_OUT_ROWS])
    shared_rows = known[:LEFT_OUT_ROWS] if shared else known[:0]
    others = np.setdiff1d(np.arange(len(scored.w)), shared_rows)
    inputs, z, scale, log_scale = _closest(few, scored.take(others), j, seed)
    m, order = len(few.w), np.concatenate([shared_rows, others])
    reach = float(log_scale[:m].min()), float(log_scale[:m].max())
    log_scale = np.clip(log_scale, *reach)
    s, first, e = np.exp(log_scale[:m]), 0 if shared else m, few.errors[:, j]
    shape, F = _shape(scale.kernel, z, e / s, few.w, seed)
    with np.errstate(over="ignore"):
        scaled = scored.errors[order, j] / np.exp(log_scale[first:])
    law, w = {"inputs": inputs, "scale": scale, "reach": reach}, scored.w[order]
    levels = shape.scores(F[first:], scaled)
    laws = [plain, TargetLaw.of(scaled, w, **law), TargetLaw.of(levels, w, shape=shape, **law)]
    return laws[_best(laws if m >= FEWEST_FOR_SHAPE else laws[:2], e, few.w, s, F[:m])]


#: Inputs z of the rows that a law is learned from, and of the others that have scores.
Inputs = tuple[Float[Array, "m k"], Float[Array, "s k"]]


def _closest(
    few: LeftOutRows, rest: LeftOutRows, j: int, seed: int
) -> tuple[ErrorInputs, Inputs, KernelSum, Float[Array, " n"]]:
    """Take z, by columns or predictions, that tells more of log |e| of rows left out."""
    costs = []
    wide = is_sparse(few.X) or few.X.shape[1] > 128
    for by_columns in (False,) if wide else (True, False):
        inputs = ErrorInputs.of(few.X, few.predicted[:, j], by_columns)
        z = inputs(few.X, few.predicted[:, j]), inputs(rest.X, rest.predicted[:, j])
        scale, log_s, lost = _scale(few.errors[:, j], few.w, z, seed)
        costs.append((lost * (1 - LEAST_GAIN * by_columns), inputs, z, scale, log_s))
    return min(costs, key=lambda each: each[0])[1:]


def _scale(
    e: Float[Array, " m"], w: Float[Array, " m"], z: Inputs, seed: int
) -> tuple[KernelSum, Float[Array, " n"], float]:
    """Return z ↦ log s, its values at all rows, each as learned without it, and their error."""
    target = _log_size(e, float(np.median(np.abs(e))))[:, None]
    spec = FeatureSpec.of(
        "ErrorLaw", "auto", "auto", None, "auto", seed, columns="auto", effort="low"
    )
    priority = np.random.default_rng(seed).permutation(len(w)) / len(w)
    tuning, curves, _ = choose_for_matrix(spec, RowSample(z[0], target, w, priority), None, True)
    kernel = tuning.kernel if curves is None else curves.of(tuning.kernel)
    machine, left_out = smoothed(kernel, z[0], target, w, seed)
    # A penalty that is chosen on dependent errors is too small
    mean, share = _slope(target[:, 0], left_out[:, 0], w)
    intercept = mean + share * (machine.intercept - mean)
    scale = replace(machine, coef=share * machine.coef, intercept=intercept)
    values = np.concatenate([mean + share * (left_out - mean), scale.at(z[1])])[:, 0]
    lost = float(np.average((target[:, 0] - values[: len(w)]) ** 2, weights=w))
    return scale, values, lost


def _log_size(e: Array, typical: float) -> Array:
    """Return log |e|, with |e| from a tenth of its median to a thousand of it."""
    size = np.minimum(np.abs(e), 1e3 * typical)
    return 0.5 * np.log(size**2 + (0.1 * typical) ** 2)


def _slope(y: Float[Array, " m"], f: Float[Array, " m"], w: Float[Array, " m"]) -> Array:
    """Return the mean of f, and the share of f about it that y is nearest to, 0 to 1."""
    mean = np.average(f, weights=w)
    away = w * (f - mean)
    power = float(away @ (f - mean))
    return np.array([mean, np.clip(away @ y / power, 0.0, 1.0) if power > 0 else 0.0])


def _shape(
    kernel: Kernel, z: Inputs, u: Float[Array, " m"], w: Float[Array, " m"], seed: int
) -> tuple[Distribution, Float[Array, "n J"]]:
    """Return the conditional distributions of u, and those at all rows, as learned without each."""
    knots = np.unique(np.quantile(u, np.arange(1, 40) / 40))
    if len(knots) < 2:
        knots = np.array([u.min(), max(u.max(), np.nextafter(u.min(), np.inf))])
    indicators = (u[:, None] <= knots).astype(np.float64)
    machine, left_out = smoothed(kernel, z[0], indicators, w, seed)
    pooled = np.clip(indicators.mean(axis=0), 1 / (len(u) + 1), 1 - 1 / (len(u) + 1))
    ordered = np.sort(u)
    below, above = ordered[ordered <= knots[0]], ordered[ordered >= knots[-1]]
    shape = Distribution(knots, machine, pooled, below, above)
    return shape, shape.risen(np.concatenate([left_out, machine.at(z[1])]))


def _best(
    laws: list[TargetLaw],
    e: Float[Array, " m"],
    w: Float[Array, " m"],
    s: Float[Array, " m"],
    F: Float[Array, "m J"],
) -> int:
    """Return which law has the least interval score; a simpler one that is as good comes first."""
    costs = []
    for law in laws:
        total = 0.0
        for coverage in JUDGED:
            ends = law.errors(1.0 if law.scale is None else s, F, coverage)
            total += (1 - coverage) * interval_score(e, *ends, coverage, w)
        costs.append(total)
    best = int(np.argmin(costs))
    return next(k for k in range(len(costs)) if costs[k] * (1 - LEAST_GAIN) <= costs[best])
