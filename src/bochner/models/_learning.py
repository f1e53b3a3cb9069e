"""The law of errors, learned from errors of rows that were left out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.blas import product
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.features.map import FeatureMap
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
from bochner.solvers.ridge.path import solve_ridge
from bochner.sums.moments import Moments

# --- Kernel ridge regression on landmarks as a linear smoother, with its hat matrix ---------------
#
# With features φ of the landmarks about their mean, φ̄, Σ w φφᵀ = V diag(λ) Vᵀ and a = Vᵀ(φ − φ̄),
#
#     f(z) = Σ_j H_j(z) y_j,   H_j(z) = w_j (a(z)·(a_j/(λ + α)) + 1/W),
#
# and without row i its value there is Σ_{j≠i} H_ij y_j/(1 − H_ii).


@dataclass(frozen=True, eq=False)
class LandmarkSmoother:
    """A ridge regression on landmarks, its penalty chosen by leave-one-out errors."""

    sum: KernelSum  # z ↦ f(z), of the kernel and each landmark
    phi: FeatureMap
    mean: Float[Array, " r"]  # φ̄
    turn: Float[Array, "r r"]  # V/√(λ + α): products of turned features are those with 1/(λ + α)
    turned: Float[Array, "m r"]  # (φ − φ̄)V/√(λ + α) of the rows
    w: Float[Array, " m"]
    left: Float[Array, "m 1"]  # 1 − H_ii
    left_out: Float[Array, "m t"]  # Values of rows, each without itself

    @staticmethod
    def of(
        kernel: Kernel,
        z: Float[Array, "m k"],
        y: Float[Array, "m t"],
        w: Float[Array, " m"],
        seed: int,
    ) -> "LandmarkSmoother":
        """Return the regression of targets of rows; O(m r² + r³)."""
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
        turn = eigen.vectors / np.sqrt(eigen.values + float(solution.alpha))
        coef = phi.root(np.dtype(np.float64)) @ solution.coef
        machine = KernelSum(kernel, phi.landmarks, coef, solution.intercept)
        turned, right, W = product(Z, turn), w[:, None] * y, w.sum()
        leverage = (w * (np.square(turned).sum(axis=1) + 1 / W))[:, None]
        left = np.maximum(1 - leverage, 1e-8)  # smaller values are rounding error
        values = turned @ (turned.T @ right) + right.sum(axis=0) / W
        left_out = (values - leverage * y) / left
        return LandmarkSmoother(machine, phi, mean, turn, turned, w, left, left_out)

    def shares(self, z: Float[Array, "b k"]) -> Float[Array, "b m"]:
        """Return H(z); O(b m r)."""
        return self._shares(product(self.phi(z) - self.mean, self.turn))

    def _shares(self, turned: Float[Array, "b r"]) -> Float[Array, "b m"]:
        """Return H in float32: no row of ``turned`` is longer than one, so products keep digits."""
        H = product(turned.astype(np.float32), self._single)
        H += np.float32(1 / self.w.sum())
        H *= self.w.astype(np.float32)
        return H

    @cached_property
    def _single(self) -> Float[Array, "r m"]:
        return np.ascontiguousarray(self.turned.T, dtype=np.float32)

    def left_out_shares(self, rows: Array) -> Float[Array, "b m"]:
        """Return the shares of rows in the values of some of them, each without itself."""
        H = self._shares(self.turned[rows])
        H[np.arange(len(rows)), rows] = 0.0
        H /= self.left[rows].astype(np.float32)
        return H


#: Fewer rows than these have one law for all z, and one distribution.
FEWEST_ROWS, FEWEST_FOR_SHAPE = 128, 512

#: Coverages that laws are compared at, and the least gain that a finer one is taken for.
JUDGED, LEAST_GAIN = (0.5, 0.8, 0.9, 0.95), 0.01


# --- learning the law ----------------------------------------------------------------------------


def learn_errors(rows: LeftOutRows, seed: int) -> ErrorLaw:
    """Learn the law of errors: the simplest whose intervals are as short, and miss as little.

    Scale and distribution are learned from 4096 rows at most, in about a second for each target; at
    row i from leave-two-out errors, if a coupling is known. Held-out rows are split in half: one
    half learns the law, the other gives the scores.
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
    shared = learning.X is scored.X or rows.source != "held out"
    laws = (_learn(learning, scored, j, seed, shared) for j in range(rows.errors.shape[1]))
    return ErrorLaw(tuple(laws), rows.source)


@dataclass(frozen=True, eq=False)
class _Learned:
    """Rows that a law is learned from, the others that have scores, and a target's errors."""

    judges: LeftOutRows
    rest: LeftOutRows
    j: int
    inputs: ErrorInputs
    without: Float[Array, "m m"]  # the errors of all, each time without a row too
    z: Float[Array, "m k"]
    z_of_rest: Float[Array, "s k"]

    @property
    def e(self) -> Float[Array, " m"]:
        return self.judges.errors[:, self.j]


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
    rows, scale, log_scale = _closest(few, scored.take(others), j, seed)
    m, order = len(few.w), np.concatenate([shared_rows, others])
    reach = float(log_scale[:m].min()), float(log_scale[:m].max())
    log_scale = np.clip(log_scale, *reach)
    log_s, first = log_scale[:m], 0 if shared else m
    shape, F = _shape(rows, rows.e / np.exp(log_s), scale, log_s, seed)
    with np.errstate(over="ignore"):
        scaled = scored.errors[order, j] / np.exp(log_scale[first:])
    law, w = {"inputs": rows.inputs, "scale": scale, "reach": reach}, scored.w[order]
    levels = shape.scores(F[first:], scaled)
    laws = [plain, TargetLaw.of(scaled, w, **law), TargetLaw.of(levels, w, shape=shape, **law)]
    return laws[_best(laws if m >= FEWEST_FOR_SHAPE else laws[:2], rows, np.exp(log_s), F[:m])]


def _closest(
    few: LeftOutRows, rest: LeftOutRows, j: int, seed: int
) -> tuple[_Learned, KernelSum, Float[Array, " n"]]:
    """Take z, by columns or predictions, that tells more of log |e| of rows left out."""
    costs = []
    wide, without = is_sparse(few.X) or few.X.shape[1] > 128, few.without(few, j)
    for by_columns in (False,) if wide else (True, False):
        inputs = ErrorInputs.of(few.X, few.predicted[:, j], by_columns)
        z = [inputs(each.X, each.predicted[:, j]) for each in (few, rest)]
        rows = _Learned(few, rest, j, inputs, without, *z)
        scale, log_s, lost = _scale(rows, seed)
        costs.append((lost * (1 - LEAST_GAIN * by_columns), rows, scale, log_s))
    return min(costs, key=lambda each: each[0])[1:]


def _scale(rows: _Learned, seed: int) -> tuple[KernelSum, Float[Array, " n"], float]:
    """Return z ↦ log s, its values at all rows, each as learned without it, and their error."""
    typical, w = float(np.median(np.abs(rows.e))), rows.judges.w
    target = _log_size(rows.e, typical)[:, None]
    spec = FeatureSpec.of(
        "ErrorLaw", "auto", "auto", None, "auto", seed, columns="auto", effort="low"
    )
    priority = np.random.default_rng(seed).permutation(len(w)) / len(w)
    sample = RowSample(rows.z, target, w, priority)
    tuning, curves, _ = choose_for_matrix(spec, sample, None, True)
    kernel = tuning.kernel if curves is None else curves.of(tuning.kernel)
    smoother = LandmarkSmoother.of(kernel, rows.z, target, w, seed)

    def summed(H: Array, e: Array) -> Float[Array, "b 1"]:
        return np.einsum("ij,ij->i", H, _log_size(e, typical))[:, None]

    values = _values(rows, smoother, summed)[:, 0]
    # A penalty that is chosen on dependent errors is too small
    mean, share = _slope(target[:, 0], values[: len(w)], w)
    scale = replace(
        smoother.sum,
        coef=share * smoother.sum.coef,
        intercept=mean + share * (smoother.sum.intercept - mean),
    )
    values = mean + share * (values - mean)
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


def _values(
    rows: _Learned, smoother: LandmarkSmoother, summed: Callable[[Array, Array], Array]
) -> Float[Array, "n t"]:
    """Return leave-one-out values at the learning rows and values at others, from shares."""
    judges, rest = rows.judges, rows.rest
    if judges.coupling is None:
        return np.concatenate([smoother.left_out, smoother.sum.at(rows.z_of_rest)])
    parts = []
    for here in _stretches(len(judges.w)):
        parts.append(summed(smoother.left_out_shares(here), rows.without[here]))
    for here in _stretches(len(rest.w)):
        errors = rest.take(here).without(judges, rows.j)
        parts.append(summed(smoother.shares(rows.z_of_rest[here]), errors))
    return np.concatenate(parts)


def _stretches(n: int) -> list[Array]:
    # shares of 128 rows stay in cache
    return np.array_split(np.arange(n), -(-n // 128)) if n else []


def _shape(
    rows: _Learned, u: Float[Array, " m"], scale: KernelSum, log_s: Float[Array, " m"], seed: int
) -> tuple[Distribution, Float[Array, "n J"]]:
    """Return the conditional distributions of u, and those at all rows, as learned without each."""
    knots = np.unique(np.quantile(u, np.arange(1, 40) / 40))
    if len(knots) < 2:
        knots = np.array([u.min(), max(u.max(), np.nextafter(u.min(), np.inf))])
    indicators = (u[:, None] <= knots).astype(np.float64)
    smoother = LandmarkSmoother.of(scale.kernel, rows.z, indicators, rows.judges.w, seed)

    def summed(H: Array, e: Array) -> Float[Array, "b J"]:
        place = np.searchsorted(knots, e / np.exp(log_s))
        flat = place + (len(knots) + 1) * np.arange(len(H))[:, None]
        most = (len(knots) + 1) * len(H)
        each = np.bincount(flat.ravel(), weights=H.ravel(), minlength=most)
        return np.cumsum(each.reshape(len(H), -1)[:, :-1], axis=1)

    F = _values(rows, smoother, summed)
    pooled = np.clip(indicators.mean(axis=0), 1 / (len(u) + 1), 1 - 1 / (len(u) + 1))
    ordered = np.sort(u)
    below, above = ordered[ordered <= knots[0]], ordered[ordered >= knots[-1]]
    shape = Distribution(knots, smoother.sum, pooled, below, above)
    return shape, shape.risen(F)


def _best(
    laws: list[TargetLaw], rows: _Learned, s: Float[Array, " m"], F: Float[Array, "m J"]
) -> int:
    """Return which law has the least interval score; a simpler one that is as good comes first."""
    costs = []
    for law in laws:
        total = 0.0
        for coverage in JUDGED:
            ends = law.errors(1.0 if law.scale is None else s, F, coverage)
            total += (1 - coverage) * interval_score(rows.e, *ends, coverage, rows.judges.w)
        costs.append(total)
    best = int(np.argmin(costs))
    return next(k for k in range(len(costs)) if costs[k] * (1 - LEAST_GAIN) <= costs[best])
