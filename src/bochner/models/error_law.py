"""Prediction intervals: scale and distribution of the errors of new rows, from held-out errors.

The errors e = y − f̂(x) are those of rows that were not used for f̂. With z = x or z = f̂(x),
standardised, their distribution has two parts, fitted on landmarks (`fit_smoother`):

    log s(z)      kernel ridge regression of log |e|,
    F(a | z)      kernel ridge regressions of the indicators e/s ≤ a, for up to 39 thresholds a.

z does not contain both x and f̂(x): together they reveal e, because f̂ without a row differs from f̂
with all rows by a share of e. For each training row, e, s and F are leave-one-out values. The score
of a row is v = F(e/s | z), or e/s if one distribution is enough for all z; s is 1 if a constant
scale is enough. For coverage c the ends of the interval are f̂(x) + s(z) F⁻¹(v | z), for the scores
v of rank ⌊(m + 1)(1 − c)/2⌋ and ⌈(m + 1)(1 + c)/2⌉ among m. This is conformal prediction with
normalised scores (Lei et al. 2018, section 5.2), or with scores from a conditional distribution
(Chernozhukov, Wüthrich and Zhu 2021).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Both, Float
from bochner._core.text import HtmlResult
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, SolutionWarning
from bochner.features.map import Request
from bochner.features.nystrom import Nystrom, draw_nystrom
from bochner.kernels.kernel import Kernel
from bochner.models._rows import KernelSum, row_marks
from bochner.selection.choices import FeatureSpec
from bochner.solvers.ridge.eigen import decompose, left_out_rows, solve_ridge
from bochner.sums.moments import Moments

#: Largest number of leave-one-out errors: the share of rows outside 95 % intervals then has a
#: standard error of 0.34 %.
LEFT_OUT_ROWS = 4096

#: Guarantee of the intervals, by how the calibration rows were predicted.
GUARANTEES = {
    "held out": "coverage is at least as requested for new rows that are exchangeable with the "
    "rows of calibrate(), on average over calibration sets, for any model",
    "cross-validation": "no guarantee for a finite number of rows; coverage is about as requested "
    "or higher if leaving out a fold changes the fit little",
    "leave one out": "no guarantee for a finite number of rows, because kernel and penalty were "
    "chosen on them; coverage is about as requested if leaving out a row changes the fit little. "
    "calibrate() with held-out rows gives a guarantee",
}


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Held-out rows, their predictions and errors."""

    X: Any  # Encoded as in the fit
    # f̂ and y − f̂; the error is infinite if rounding hides it
    predicted: Float[Array, "m t"]
    errors: Float[Array, "m t"]
    w: Float[Array, " m"]  # Above 0
    source: str  # "held out", "cross-validation", "leave one out"
    deviation: Float[Array, "m t"] | None = None  # Standard deviation of a new y, for processes

    def take(self, rows: Array) -> "HeldOutRows":
        deviation = None if self.deviation is None else self.deviation[rows]
        parts = self.X[rows], self.predicted[rows], self.errors[rows], self.w[rows]
        return HeldOutRows(*parts, self.source, deviation)


@dataclass(frozen=True, eq=False)
class ErrorInputs:
    """Inputs z of the error distribution: the columns of x, or f̂, standardised."""

    centre: Float[Array, " k"]
    unit: Float[Array, " k"]
    by_columns: bool

    @staticmethod
    def of(X: Any, predicted: Float[Array, " m"], by_columns: bool) -> "ErrorInputs":
        """Return the inputs, standardised on these rows."""
        columns = ErrorInputs(np.zeros(1), np.ones(1), by_columns)(X, predicted)
        spread = columns.std(axis=0)
        unit = np.where(spread > 0, spread, 1.0)
        return ErrorInputs(columns.mean(axis=0), unit, by_columns)

    def __call__(self, X: Any, predicted: Float[Array, " m"]) -> Float[Array, "m k"]:
        """Return z of rows."""
        columns = to_numpy(X).astype(np.float64) if self.by_columns else predicted[:, None]
        return (columns - self.centre) / self.unit


@dataclass(frozen=True, eq=False)
class Distribution:
    """Conditional distributions of u = e/s: values of F at knots, and tails equal for all rows."""

    knots: Float[Array, " J"]  # Sorted
    values: KernelSum  # z ↦ F at the knots, not yet monotone
    pooled: Float[Array, " J"]  # F of all rows
    # Sorted: all u up to the first knot, and all u from the last knot
    low_tail: Float[Array, " b"]
    high_tail: Float[Array, " a"]

    def sort_values(self, F: Float[Array, "m J"]) -> Float[Array, "m J"]:
        """Return F sorted along the knots (Chernozhukov et al. 2010), with 2 % of the pooled F."""
        share = 0.02  # of the pooled distribution in each conditional distribution
        return (1 - share) * np.clip(np.sort(F, axis=1), 0.0, 1.0) + share * self.pooled

    def scores(self, F: Float[Array, "m J"], u: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return F(u) of each row, from its values at the knots."""
        right = np.clip(np.searchsorted(self.knots, u), 1, len(self.knots) - 1)
        row, (a, b) = np.arange(len(u)), (self.knots[right - 1], self.knots[right])
        share = np.clip((u - a) / (b - a), 0.0, 1.0)
        middle = F[row, right - 1] * (1 - share) + F[row, right] * share
        low = F[:, 0] * np.interp(u, self.low_tail, _shares(self.low_tail))
        high = 1 - (1 - F[:, -1]) * (1 - np.interp(u, self.high_tail, _shares(self.high_tail)))
        return np.where(u < self.knots[0], low, np.where(u > self.knots[-1], high, middle))

    def quantile(self, F: Float[Array, "m J"], level: float) -> Float[Array, " m"]:
        """Return F⁻¹(level) of each row."""
        right = np.clip((level > F).sum(axis=1), 1, len(self.knots) - 1)
        row = np.arange(len(F))
        lower, upper = F[row, right - 1], F[row, right]
        share = np.clip((level - lower) / np.maximum(upper - lower, 1e-300), 0.0, 1.0)
        middle = self.knots[right - 1] * (1 - share) + self.knots[right] * share
        low = np.interp(level / F[:, 0], _shares(self.low_tail), self.low_tail)
        upper_level = 1 - (1 - level) / (1 - F[:, -1])
        high = np.interp(upper_level, _shares(self.high_tail), self.high_tail)
        return np.where(level < F[:, 0], low, np.where(level > F[:, -1], high, middle))


def _shares(values: Float[Array, " b"]) -> Float[Array, " b"]:
    return np.linspace(0.0, 1.0, len(values)) if len(values) > 1 else np.ones(len(values))


@dataclass(frozen=True, eq=False)
class TargetLaw:
    """Distribution of the errors of one target."""

    scores: Float[Array, " m"]  # Sorted
    shares: Float[Array, " m"]  # Cumulative weights of the scores, in a unit in which the last is m
    inputs: ErrorInputs | None = None  # z; None: the distribution does not depend on the row
    scale: KernelSum | None = None  # z ↦ log s; None: s is 1, or the deviation of a process
    shape: Distribution | None = None  # Of e/s; None: that of the scores, for all z
    # Range of log s on the training rows, to which s is clipped: far from them the regression may
    # extrapolate to any value.
    reach: tuple[float, float] = (-700.0, 700.0)
    symmetric: bool = False  # Whether intervals are symmetric about the prediction

    @staticmethod
    def of(scores: Float[Array, " m"], w: Float[Array, " m"], **law: Any) -> "TargetLaw":
        """Return the distribution of these scores, of rows with weights ``w``."""
        order = np.argsort(scores, kind="stable")
        shares = np.cumsum(w[order])
        unit = len(w) / shares[-1] if len(w) else 1.0
        return TargetLaw(scores[order], shares * unit, **law)

    def ends(self, coverage: float) -> tuple[float, float]:
        """Return the scores at both ends: of equal tails if each has 5 rows, else symmetric."""
        m, tail = len(self.scores), (1 - coverage) / 2
        if not self.symmetric and (m + 1) * tail >= 5:
            low = np.searchsorted(self.shares, (m + 1) * tail * (1 + 1e-12), side="right") - 1
            return float(self.scores[max(low, 0)]), self._quantile((m + 1) * (1 - tail))
        middle = 0.0 if self.shape is None else 0.5
        distances = TargetLaw.of(np.abs(self.scores - middle), np.diff(self.shares, prepend=0.0))
        half = distances._quantile((m + 1) * coverage)
        return middle - half, middle + half

    def _quantile(self, place: float) -> float:
        index = int(np.searchsorted(self.shares, place * (1 - 1e-12)))
        return float(self.scores[index]) if index < len(self.scores) else np.inf

    def bounds(
        self, X: Any, predicted: Float[Array, " b"], coverage: float, deviation: Any = 1.0
    ) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
        """Return the interval of each row; ``deviation`` is the standard deviation of a process."""
        if self.inputs is None or self.scale is None:
            low, high = self.errors(deviation, None, coverage)
        else:
            z = self.inputs(X, predicted)
            s = np.exp(np.clip(self.scale(z)[:, 0], *self.reach))
            F = None if self.shape is None else self.shape.sort_values(self.shape.values(z))
            low, high = self.errors(s, F, coverage)
        return predicted + low, predicted + high

    def errors(self, s: Any, F: Float[Array, "b J"] | None, coverage: float) -> tuple[Any, Any]:
        """Return the errors at both ends of the interval, for rows with scale s and F at knots."""
        low, high = self.ends(coverage)
        if self.shape is not None:
            low, high = (self.shape.quantile(F, level) for level in (low, high))
        return s * low, s * high


@dataclass(frozen=True, eq=False)
class ErrorLaw(HtmlResult):
    """Error distribution of each target, and the guarantee of prediction intervals.

    Attributes
    ----------
    targets : tuple of TargetLaw
    source : {"held out", "cross-validation", "leave one out"}
    """

    targets: tuple[TargetLaw, ...]
    source: str

    def __str__(self) -> str:
        """Return the guarantee of the intervals, a sentence."""
        return self.guarantee

    @property
    def guarantee(self) -> str:
        """Guarantee of the intervals, in a sentence."""
        if not len(self):
            return "None: a single row cannot be left out. Call calibrate() with other rows."
        return f"{self.source.capitalize()}, {len(self):,} rows: {GUARANTEES[self.source]}."

    def calibrates(self, coverage: float) -> bool:
        """Whether there are enough scores for intervals of this coverage."""
        return len(self) >= _least_rows(coverage)

    def require(self, caller: str, coverage: float) -> None:
        """Raise InvalidInput if there are too few scores for the coverage."""
        if not self.calibrates(coverage):
            raise InvalidInput(
                f"{caller}.predict_interval: {len(self)} rows cannot calibrate a coverage of "
                f"{coverage:g}, which requires {_least_rows(coverage)}. Call calibrate with more "
                "rows, or use a smaller coverage."
            )

    @staticmethod
    def of_process(
        errors: Float[Array, "m t"],
        deviation: Float[Array, "m t"] | float,
        source: str,
        w: Float[Array, " m"] | None = None,
    ) -> "ErrorLaw":
        """Return the distribution for a process; scores are |error|/deviation, infinite for x/0."""
        w = np.ones(len(errors)) if w is None else w
        scores = np.where(errors == 0, 0.0, np.inf)
        np.divide(np.abs(errors), deviation, out=scores, where=np.asarray(deviation) > 0)
        return ErrorLaw(tuple(TargetLaw.of(s, w, symmetric=True) for s in scores.T), source)

    def __len__(self) -> int:
        return len(self.targets[0].scores)

    def __repr__(self) -> str:
        return f"ErrorLaw({len(self):,} scores, {self.source})"

    @property
    def varies(self) -> tuple[str, ...]:
        """Per target: "nothing", "scale" or "distribution" of the errors depends on the row."""
        return tuple(
            "nothing" if law.scale is None else "scale" if law.shape is None else "distribution"
            for law in self.targets
        )

    def bounds(
        self,
        X: Any,
        predicted: Float[Array, "b t"],
        coverage: float,
        deviation: Float[Array, "b t"] | float = 1.0,
    ) -> Both:
        """Return the bounds of each row and target, both (b, t)."""
        columns = predicted.T, np.broadcast_to(deviation, predicted.shape).T
        laws = zip(self.targets, *columns, strict=True)
        low, high = zip(*(law.bounds(X, f, coverage, s) for law, f, s in laws), strict=True)
        return np.stack(low, axis=1), np.stack(high, axis=1)


def _least_rows(coverage: float) -> int:
    """Return the number of scores that a coverage requires."""
    return int(np.ceil(coverage / (1 - coverage) - 1e-9))


def interval_score(
    y: Float[Array, " m"],
    low: Float[Array, " m"],
    high: Float[Array, " m"],
    coverage: float,
    w: Float[Array, " m"] | None = None,
) -> float:
    """Return the mean of width + 2/(1 − coverage) × the distance of y outside the interval."""
    # Its mean is least at the quantiles (1 ± coverage)/2 (Gneiting and Raftery 2007, eq. 43).
    distance = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.average(high - low + 2 / (1 - coverage) * distance, weights=w))


# --- Intervals of processes ----------------------------------------------------------------------
#
# Scores are |y − f̂(x)|/sd(x). The interval is f̂(x) ± s sd(x), where s is the ⌈(m + 1) coverage⌉-th
# smallest of m scores. If the m rows are exchangeable with a new row and were not used for the fit,
# the interval contains the new y with probability at least ``coverage`` and, without ties, at most
# coverage + 1/(m + 1) (Lei et al. 2018, theorem 2.2).


def fold_scores(refit: Callable[[RowSample], Any], sample: RowSample) -> ErrorLaw:
    """Return a process's error distribution by cross-validation; equal rows count as one row."""
    marks = row_marks(sample.X, 0) + row_marks(sample.y, 1)
    _, firsts, groups = np.unique(marks, return_index=True, return_inverse=True)
    m = len(firsts)
    # Fits to nine tenths are closer to the fit to all rows, and affordable for few rows
    K = min(10 if m <= 512 else 5, m) if m > 1 else 0
    fold_of = np.argsort(np.argsort(sample.priority[firsts], kind="stable")) % max(K, 1)
    errors, deviations = np.empty((2, m if K else 0, sample.y.shape[1]))
    for k in range(K):
        held_out = fold_of == k
        with catch_warnings():
            simplefilter("ignore", SolutionWarning)
            law = refit(sample.take(np.flatnonzero(~held_out[groups])))
        test = sample.take(firsts[held_out])
        mean, variance = law.moments(test.X)
        errors[held_out], deviations[held_out] = test.y - mean, np.sqrt(variance + law.noise)
    return ErrorLaw.of_process(errors, deviations, "cross-validation")


# --- The distribution of errors, from held-out rows ----------------------------------------------

FEWEST_ROWS = 128  # With fewer rows the distribution does not depend on z
MIN_GAIN = 0.01  # Relative reduction of the interval score that a finer distribution must reach


def learn_errors(rows: HeldOutRows, seed: int) -> ErrorLaw:
    """Return the simplest distribution of errors with interval scores within 1 % of the best."""
    if rows.deviation is not None:  # a process has its own scale
        return ErrorLaw.of_process(rows.errors, rows.deviation, rows.source, rows.w)
    unit = max(float(rows.w.max(initial=0)), 1.0)
    rows = replace(rows, w=rows.w / unit)  # no weight above 1
    order = np.random.default_rng(seed).permutation(len(rows.w))
    learned = judges = np.sort(order[:LEFT_OUT_ROWS]) if rows.source == "leave one out" else order
    shared = rows.source != "held out"
    if not shared:
        # The first half determines scale and distribution, the second half the scores
        half = len(order) // 2 if len(order) >= 2 * FEWEST_ROWS else 0
        learned, judges = order[:half], order[half:]
    parts = rows.take(learned), rows.take(judges)
    laws = (_learn(*parts, j, seed, shared) for j in range(rows.errors.shape[1]))
    return ErrorLaw(tuple(laws), rows.source)


def _learn(
    learning: HeldOutRows, scored: HeldOutRows, j: int, seed: int, shared: bool
) -> TargetLaw:
    """Return the distribution of target j; ``shared``: rows of ``learning`` have scores too."""
    base = TargetLaw.of(scored.errors[:, j], scored.w)
    finite = np.flatnonzero(np.isfinite(learning.errors[:, j]))
    if len(finite) < FEWEST_ROWS or not np.median(np.abs(learning.errors[finite, j])) > 0:
        return base
    rows = learning.take(finite[:LEFT_OUT_ROWS])
    shared_rows = finite[:LEFT_OUT_ROWS] if shared else finite[:0]
    indices = np.setdiff1d(np.arange(len(scored.w)), shared_rows)
    other_rows, candidates = scored.take(indices), []
    many_columns = is_sparse(rows.X) or rows.X.shape[1] > 128
    for by_columns in (False,) if many_columns else (True, False):
        inputs = ErrorInputs.of(rows.X, rows.predicted[:, j], by_columns)
        z = inputs(rows.X, rows.predicted[:, j]), inputs(other_rows.X, other_rows.predicted[:, j])
        scale, log_scale, error = _scale(rows.errors[:, j], rows.w, z, seed)
        candidates.append((error * (1 - MIN_GAIN * by_columns), inputs, z, scale, log_scale))
    _, inputs, z, scale, log_scale = min(candidates, key=lambda candidate: candidate[0])
    m, order = len(rows.w), np.concatenate([shared_rows, indices])
    reach = float(log_scale[:m].min()), float(log_scale[:m].max())
    log_scale = np.clip(log_scale, *reach)
    s, first, e = np.exp(log_scale[:m]), 0 if shared else m, rows.errors[:, j]
    with np.errstate(over="ignore"):
        scaled = scored.errors[order, j] / np.exp(log_scale[first:])
    known_scale, w = {"inputs": inputs, "scale": scale, "reach": reach}, scored.w[order]
    laws, F = [base, TargetLaw.of(scaled, w, **known_scale)], None
    if m >= 512:  # with fewer rows one distribution is used for all z
        shape, F = _shape(scale.kernel, z, e / s, rows.w, seed)
        levels, F = shape.scores(F[first:], scaled), F[:m]
        laws.append(TargetLaw.of(levels, w, shape=shape, **known_scale))
    costs = []
    for law in laws:
        costs.append(0.0)
        for coverage in (0.5, 0.8, 0.9, 0.95):
            ends = law.errors(1.0 if law.scale is None else s, F, coverage)
            costs[-1] += (1 - coverage) * interval_score(e, *ends, coverage, rows.w)
    lowest = min(costs)  # the simplest distribution near the least cost
    return next(laws[k] for k, cost in enumerate(costs) if cost * (1 - MIN_GAIN) <= lowest)


#: Inputs z of the rows from which the distribution is learned, and of the other rows with scores.
Inputs = tuple[Float[Array, "m k"], Float[Array, "s k"]]


def _scale(
    e: Float[Array, " m"], w: Float[Array, " m"], z: Inputs, seed: int
) -> tuple[KernelSum, Float[Array, " n"], float]:
    """Return z ↦ log s, its leave-one-out values at all rows, and their mean squared error."""
    from bochner.selection.choose import choose_for_matrix  # noqa: PLC0415  loads the search

    # log |e|, with |e| between 0.1 and 1,000 times its median
    typical = float(np.median(np.abs(e)))
    size = np.minimum(np.abs(e), 1e3 * typical)
    target = 0.5 * np.log(size**2 + (0.1 * typical) ** 2)
    spec = FeatureSpec.of("ErrorLaw", "auto", "auto", None, seed, columns="auto", effort="low")
    priority = np.random.default_rng(seed).permutation(len(w)) / len(w)
    sample = RowSample(z[0], target[:, None], w, priority)
    tuning, curves = choose_for_matrix(spec, sample, None, True)
    kernel = tuning.kernel if curves is None else curves.of(tuning.kernel)
    machine, left_out = fit_smoother(kernel, z[0], target[:, None], w, seed)
    # Leave-one-out errors depend on one another, so the chosen penalty is too small: shrink the
    # values towards their mean by the least-squares factor, 0 to 1
    f = left_out[:, 0]
    mean = np.average(f, weights=w)
    centred = w * (f - mean)
    power = float(centred @ (f - mean))
    share = np.clip(centred @ target / power, 0.0, 1.0) if power > 0 else 0.0
    intercept = mean + share * (machine.intercept - mean)
    scale = replace(machine, coef=share * machine.coef, intercept=intercept)
    values = np.concatenate([mean + share * (f - mean), scale(z[1])[:, 0]])
    error = float(np.average((target - values[: len(w)]) ** 2, weights=w))
    return scale, values, error


def _shape(
    kernel: Kernel, z: Inputs, u: Float[Array, " m"], w: Float[Array, " m"], seed: int
) -> tuple[Distribution, Float[Array, "n J"]]:
    """Return the distributions of u = e/s given z, and the leave-one-out F(knots) of each row."""
    knots = np.unique(np.quantile(u, np.arange(1, 40) / 40))
    if len(knots) < 2:
        knots = np.array([u.min(), max(u.max(), np.nextafter(u.min(), np.inf))])
    indicators = (u[:, None] <= knots).astype(np.float64)
    machine, left_out = fit_smoother(kernel, z[0], indicators, w, seed)
    pooled = np.clip(indicators.mean(axis=0), 1 / (len(u) + 1), 1 - 1 / (len(u) + 1))
    ordered = np.sort(u)
    low_tail, high_tail = ordered[ordered <= knots[0]], ordered[ordered >= knots[-1]]
    shape = Distribution(knots, machine, pooled, low_tail, high_tail)
    return shape, shape.sort_values(np.concatenate([left_out, machine(z[1])]))


def fit_smoother(
    kernel: Kernel, z: Float[Array, "m k"], y: Float[Array, "m t"], w: Float[Array, " m"], seed: int
) -> tuple[KernelSum, Float[Array, "m t"]]:
    """Return a ridge regression on landmarks, and its leave-one-out values; O(m r² + r³)."""
    ask = Request(z.shape[1], 256, seed, X=z)  # smooth functions need few landmarks
    phi = draw_nystrom(Nystrom(), kernel, ask)
    Z = phi(z)
    moments = Moments.of(Z, y, w)
    mean, target_mean = moments.feature_mean, moments.target_mean
    Z -= mean
    eigen = decompose(moments)
    thinned = slice(None, None, -(-len(w) // 1024))  # rows on which the penalty is chosen
    tuning = Z[thinned], y[thinned] - target_mean, w[thinned]
    solution = solve_ridge(eigen, [tuning], (mean, target_mean), "loo")
    coef = phi.root(np.dtype(np.float64)) @ solution.coef
    alpha = np.full(y.shape[1], float(solution.alpha))
    (residuals, errors), *_ = left_out_rows(eigen, [(Z, y - target_mean, w)], alpha)
    left_out = y - np.where(np.isfinite(errors), errors, residuals)
    return KernelSum(kernel, phi.landmarks, coef, solution.intercept), left_out
