"""The law of errors of new rows: their scale and their distribution, from errors of rows left out.

With e = y − f̂(x) of rows that f̂ was made without, and z = x or f̂(x), in their deviations:

    log s(z)      kernel ridge regression of log |e|,
    F(a | z)      kernel ridge regressions of the indicators e/s ≤ a, one for each of some a,

all on landmarks (:mod:`~bochner.models._learning`). (Not both x and f̂(x): together they would
reveal e, because f̂ without a row differs from f̂ with all rows by a share of e.) For each training
row, e, s and F are leave-one-out values. The score of a row is v = F(e/s | z), or e/s if one
distribution serves for all z; s is 1 if a constant scale serves. The interval at z takes the scores
of rank ⌊(m + 1)(1 − c)/2⌋ and ⌈(m + 1)(1 + c)/2⌉ of all m, and inverts them:
f̂(x) + s(z) F⁻¹(v | z).
This is conformal prediction with normalised scores (Lei et al. 2018, section 5.2), or with scores
from a conditional distribution (Chernozhukov, Wüthrich and Zhu 2021).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.html import HtmlResult
from bochner._core.shapes import Array, Both, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, SolutionWarning
from bochner.models._calibration import Calibration, calibrate, decided
from bochner.models._kernel_sum import KernelSum
from bochner.models._rows import row_marks

POOLED = 0.02  # Weight of the pooled distribution in each conditional distribution

#: Rows of a fit whose errors without themselves are looked at, at most: of one in twenty that lie
#: outside, the share is then known to a third of a hundredth.
LEFT_OUT_ROWS = 4096

#: How rows were predicted that scores come from, and what follows.
GUARANTEES = {
    "held out": "a new row that is exchangeable with those of calibrate() is covered with chance "
    "coverage at least, on average over calibrations, whatever the model",
    "cross-validation": "rows are predicted by fits without their fold: a new row is covered about "
    "as asked where a fold more or less changes the fit little, and mostly more",
    "leave one out": "none for a finite number of rows, because kernel and penalty were chosen on "
    "them: about as asked where a row more or less changes the fit little; calibrate() on rows "
    "kept back gives a guarantee",
}


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """Rows, and the errors of predictions that were made without them."""

    X: Any  # As the fit reads them
    # f̂ and y − f̂; an error that rounding hides is infinite
    predicted: Float[Array, "m t"]
    errors: Float[Array, "m t"]
    w: Float[Array, " m"]  # Above 0
    source: str  # "held out", "cross-validation", "leave one out"
    deviation: Float[Array, "m t"] | None = None  # Of a new y, where the fit has it

    @property
    def calibration(self) -> Calibration:
        """Probabilities of classes, by these predictions of ±1."""
        return calibrate(self.predicted, decided(self.predicted + self.errors), self.w)

    def take(self, rows: Array) -> "LeftOutRows":
        """Return these rows."""
        deviation = None if self.deviation is None else self.deviation[rows]
        parts = self.X[rows], self.predicted[rows], self.errors[rows], self.w[rows]
        return LeftOutRows(*parts, self.source, deviation)


@dataclass(frozen=True, eq=False)
class ErrorInputs:
    """Inputs z of the law: the columns of x, or f̂, standardised."""

    centre: Float[Array, " k"]
    unit: Float[Array, " k"]
    by_columns: bool

    @staticmethod
    def of(X: Any, predicted: Float[Array, " m"], by_columns: bool) -> "ErrorInputs":
        """Return the inputs of rows."""
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
    """Conditional distributions of u: their values at knots, and tails that all rows share."""

    knots: Float[Array, " J"]  # Rising
    values: KernelSum  # z ↦ F at the knots, before it is made to rise
    pooled: Float[Array, " J"]  # F of all rows
    # All u up to the first knot, and all from the last on, rising
    below: Float[Array, " b"]
    above: Float[Array, " a"]

    def risen(self, F: Float[Array, "m J"]) -> Float[Array, "m J"]:
        """Return values that rise from above 0 to below 1 (Chernozhukov et al. 2010)."""
        return (1 - POOLED) * np.clip(np.sort(F, axis=1), 0.0, 1.0) + POOLED * self.pooled

    def scores(self, F: Float[Array, "m J"], u: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return F(u) of each row, from its values at the knots."""
        right = np.clip(np.searchsorted(self.knots, u), 1, len(self.knots) - 1)
        row, (a, b) = np.arange(len(u)), (self.knots[right - 1], self.knots[right])
        share = np.clip((u - a) / (b - a), 0.0, 1.0)
        inside = F[row, right - 1] * (1 - share) + F[row, right] * share
        low = F[:, 0] * np.interp(u, self.below, _shares(self.below))
        high = 1 - (1 - F[:, -1]) * (1 - np.interp(u, self.above, _shares(self.above)))
        return np.where(u < self.knots[0], low, np.where(u > self.knots[-1], high, inside))

    def quantile(self, F: Float[Array, "m J"], level: float) -> Float[Array, " m"]:
        """Return F⁻¹(level) of each row."""
        right = np.clip((level > F).sum(axis=1), 1, len(self.knots) - 1)
        row = np.arange(len(F))
        before, after = F[row, right - 1], F[row, right]
        share = np.clip((level - before) / np.maximum(after - before, 1e-300), 0.0, 1.0)
        inside = self.knots[right - 1] * (1 - share) + self.knots[right] * share
        low = np.interp(level / F[:, 0], _shares(self.below), self.below)
        left = 1 - (1 - level) / (1 - F[:, -1])
        high = np.interp(left, _shares(self.above), self.above)
        return np.where(level < F[:, 0], low, np.where(level > F[:, -1], high, inside))


def _shares(values: Float[Array, " b"]) -> Float[Array, " b"]:
    return np.linspace(0.0, 1.0, len(values)) if len(values) > 1 else np.ones(len(values))


@dataclass(frozen=True, eq=False)
class TargetLaw:
    """The law of the errors of one target."""

    scores: Float[Array, " m"]  # Rising
    shares: Float[Array, " m"]  # Weight of the scores up to each, in rows: m in all
    inputs: ErrorInputs | None = None  # What z is; None: nothing depends on it
    scale: KernelSum | None = None  # z ↦ log s; None: s is 1, or the deviation of a process
    shape: Distribution | None = None  # Of e/s; None: one for all z, which the scores are
    # Least and largest log s of the rows it was learned from. The regression may extrapolate to any
    # value far from them.
    reach: tuple[float, float] = (-700.0, 700.0)
    symmetric: bool = False  # Whether bounds are as far from the prediction on either side

    @staticmethod
    def of(scores: Float[Array, " m"], w: Float[Array, " m"], **law: Any) -> "TargetLaw":
        """Return the law with these scores, of rows that count in proportion to ``w``."""
        order = np.argsort(scores, kind="stable")
        shares = np.cumsum(w[order])
        unit = len(w) / shares[-1] if len(w) else 1.0
        return TargetLaw(scores[order], shares * unit, **law)

    def ends(self, coverage: float) -> tuple[float, float]:
        """Return the scores between which this share of rows lies, with equal tails.

        It is symmetric where fewer than five scores lie beyond each end.
        """
        m, tail = len(self.scores), (1 - coverage) / 2
        if not self.symmetric and (m + 1) * tail >= 5:
            low = np.searchsorted(self.shares, (m + 1) * tail * (1 + 1e-12), side="right") - 1
            return float(self.scores[max(low, 0)]), self._at((m + 1) * (1 - tail))
        middle = 0.0 if self.shape is None else 0.5
        away = TargetLaw.of(np.abs(self.scores - middle), np.diff(self.shares, prepend=0.0))
        half = away._at((m + 1) * coverage)
        return middle - half, middle + half

    def _at(self, place: float) -> float:
        index = int(np.searchsorted(self.shares, place * (1 - 1e-12)))
        return float(self.scores[index]) if index < len(self.scores) else np.inf

    def bounds(
        self, X: Any, predicted: Float[Array, " b"], coverage: float, deviation: Any = 1.0
    ) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
        """Return the ends of the interval of each row; a process gives its deviations."""
        if self.inputs is None or self.scale is None:
            low, high = self.errors(deviation, None, coverage)
        else:
            z = self.inputs(X, predicted)
            s = np.exp(np.clip(self.scale.at(z)[:, 0], *self.reach))
            F = None if self.shape is None else self.shape.risen(self.shape.values.at(z))
            low, high = self.errors(s, F, coverage)
        return predicted + low, predicted + high

    def errors(self, s: Any, F: Float[Array, "b J"] | None, coverage: float) -> tuple[Any, Any]:
        """Return the errors at both ends, of rows with scale s and distribution F."""
        low, high = self.ends(coverage)
        if self.shape is not None:
            low, high = (self.shape.quantile(F, level) for level in (low, high))
        return s * low, s * high


@dataclass(frozen=True, eq=False)
class ErrorLaw(HtmlResult):
    """The laws of the errors of all targets, where they come from, and what holds of intervals."""

    targets: tuple[TargetLaw, ...]
    source: str  # "held out", "cross-validation", "leave one out"

    def __str__(self) -> str:
        """Return what holds of the intervals."""
        return self.guarantee

    @property
    def guarantee(self) -> str:
        """Guarantee of the intervals, in a sentence."""
        if not len(self):
            return "None: one row alone cannot be left out; calibrate() on others gives one."
        return f"{self.source.capitalize()}, {len(self):,} rows: {GUARANTEES[self.source]}."

    def calibrates(self, coverage: float) -> bool:
        """Whether the scores are enough for intervals of this coverage."""
        return len(self) >= _least_rows(coverage)

    def require(self, who: str, coverage: float) -> None:
        """Refuse a coverage that the scores are too few for."""
        if not self.calibrates(coverage):
            raise InvalidInput(
                f"{who}.predict_interval: {len(self)} rows cannot calibrate a coverage of "
                f"{coverage:g}, which takes {_least_rows(coverage)}. Call calibrate with more "
                "rows, or ask for a smaller coverage."
            )

    @staticmethod
    def of_process(
        errors: Float[Array, "m t"],
        deviation: Float[Array, "m t"] | float,
        source: str,
        w: Float[Array, " m"] | None = None,
    ) -> "ErrorLaw":
        """Return the law of a process, by errors in standard deviations of their predictions."""
        w = np.ones(len(errors)) if w is None else w
        scores = scores_of(errors, deviation).T
        return ErrorLaw(tuple(TargetLaw.of(s, w, symmetric=True) for s in scores), source)

    def __len__(self) -> int:
        return len(self.targets[0].scores)

    def __repr__(self) -> str:
        """Return one line."""
        return f"ErrorLaw({len(self):,} scores, {self.source})"

    @property
    def varies(self) -> tuple[str, ...]:
        """Part of the law that depends on the row: "nothing", "scale" or "distribution"."""
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
        """Return the interval of each row and target; a process gives its deviations."""
        columns = predicted.T, np.broadcast_to(deviation, predicted.shape).T
        laws = zip(self.targets, *columns, strict=True)
        low, high = zip(*(law.bounds(X, f, coverage, s) for law, f, s in laws), strict=True)
        return np.stack(low, axis=1), np.stack(high, axis=1)


def _least_rows(coverage: float) -> int:
    """Return how many scores a coverage takes."""
    return int(np.ceil(coverage / (1 - coverage) - 1e-9))


def interval_score(
    y: Float[Array, " m"],
    low: Float[Array, " m"],
    high: Float[Array, " m"],
    coverage: float,
    w: Float[Array, " m"] | None = None,
) -> float:
    """Return the mean of width + 2/(1 − coverage) × what y is outside by.

    Least, in the mean, at the quantiles (1 ± coverage)/2 (Gneiting and Raftery 2007, eq. 43).
    """
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.average(high - low + 2 / (1 - coverage) * outside, weights=w))


# --- Intervals of processes, whose width is read off errors on rows: split conformal prediction ---
#
# Scores s_i = |y_i − f̂(x_i)|/sd(x_i) of m rows; the interval f̂(x) ± s_(j) sd(x) takes the j-th
# smallest, j = ⌈(m + 1) coverage⌉. If the rows were not fitted on and are exchangeable with the new
# one, the interval contains y with probability at least ``coverage``, and at most 1/(m + 1) more if
# no two scores are equal, for any model (Vovk, Gammerman and Shafer 2005; Lei et al. 2018, theorem
# 2.2).


def scores_of(
    errors: Float[Array, "m t"], deviation: Float[Array, "m t"] | float
) -> Float[Array, "m t"]:
    """Return |error|/sd; infinite for an error where the deviation is zero."""
    scores = np.full(errors.shape, np.inf)
    scores[errors == 0] = 0.0
    return np.divide(np.abs(errors), deviation, out=scores, where=np.asarray(deviation) > 0)


def fold_scores(refit: Callable[[RowSample], Any], sample: RowSample) -> ErrorLaw:
    """Return the scores of each fold of the sample's rows, by a process fitted to the others.

    Equal rows are in one fold and have one score: a copy adds no information about new rows.
    """
    marks = row_marks(sample.X, 0) + row_marks(sample.y, 1)
    groups = np.unique(marks, return_inverse=True)[1]
    firsts = np.unique(groups, return_index=True)[1]
    m = len(firsts)
    # A model of most of few rows is near that of all, and costs little
    K = min(10 if m <= 512 else 5, m) if m > 1 else 0
    rank = np.argsort(np.argsort(sample.priority[firsts], kind="stable"))
    fold_of = rank % max(K, 1)
    scores = [np.empty((0, sample.y.shape[1]))]
    for k in range(K):
        with catch_warnings():
            simplefilter("ignore", SolutionWarning)
            law = refit(sample.take(np.flatnonzero(fold_of[groups] != k)))
        left = sample.take(firsts[fold_of == k])
        mean, variance = law.moments(left.X)
        scores.append(scores_of(left.y - mean, np.sqrt(variance + law.noise)))
    return ErrorLaw.of_process(np.concatenate(scores), 1.0, "cross-validation")
