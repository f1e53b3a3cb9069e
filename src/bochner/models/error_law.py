"""The law of errors of new rows: their scale and their distribution, from errors of rows left out.

With e = y − f̂(x) of rows that f̂ was made without, and z = x or f̂(x), in their deviations:

    log s(z)      kernel ridge regression of log |e|,
    F(a | z)      kernel ridge regressions of the indicators e/s ≤ a, one for each of some a,

all on landmarks (:mod:`~bochner.models.smoother`). (Not both x and f̂(x): together they would
reveal e, because f̂ without a row differs from f̂ with all rows by a share of e.) For each training
row, e, s and F are leave-one-out values. The score of a row is v = F(e/s | z), or e/s if one
distribution serves for all z; s is 1 if a constant scale serves. The interval at z takes the scores
of rank ⌊(m + 1)(1 − c)/2⌋ and ⌈(m + 1)(1 + c)/2⌉ of all m, and inverts them:
f̂(x) + s(z) F⁻¹(v | z).
This is conformal prediction with normalised scores (Lei et al. 2018, section 5.2), or with scores
from a conditional distribution (Chernozhukov, Wüthrich and Zhu 2021).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.html import ShownResult
from bochner._core.shapes import Array, Float, Int
from bochner.data.blocks import Blocks
from bochner.errors import InvalidInput
from bochner.models._calibration import Calibration, calibrate, decided
from bochner.models._kernel_sum import KernelSum
from bochner.models.coupling import Coupling

#: Weight of the pooled distribution in each conditional distribution.
POOLED = 0.02

#: The largest number whose exponential is one.
LARGEST = 700.0

#: Intervals are symmetric if fewer scores than this lie beyond each end.
BEYOND = 5

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
    # Of each target: how errors change where another row is left out too. None: not at all, or it
    # is not known.
    coupling: tuple[Coupling, ...] | None = None
    numbers: Int[Array, " m"] | None = None  # Of the rows, in the coupling

    @property
    def refitted(self) -> "LeftOutRows":
        """The same rows, predicted by fits without their fold."""
        return replace(self, source="cross-validation")

    @property
    def calibration(self) -> Calibration:
        """Probabilities of classes, by these predictions of ±1."""
        return calibrate(self.predicted, decided(self.predicted + self.errors), self.w)

    def take(self, rows: Array) -> "LeftOutRows":
        """Return these rows."""
        numbers = None if self.numbers is None else self.numbers[rows]
        parts = self.X[rows], self.predicted[rows], self.errors[rows], self.w[rows]
        return LeftOutRows(*parts, self.source, self.coupling, numbers)

    def without(self, others: "LeftOutRows", j: int) -> Float[Array, "m k"]:
        """Return the errors of a target of other rows, each time without one of these too."""
        errors = others.errors[:, j]
        if self.coupling is None or self.numbers is None or others.numbers is None:
            return np.broadcast_to(errors, (len(self.w), len(errors)))
        return self.coupling[j].without(self.numbers, others.numbers, errors)


@dataclass(frozen=True, eq=False)
class ErrorInputs:
    """Inputs z of the law: the columns of x, or f̂, standardised."""

    centre: Float[Array, " k"]
    unit: Float[Array, " k"]
    by_columns: bool

    @staticmethod
    def of(X: Any, predicted: Float[Array, " m"], by_columns: bool) -> "ErrorInputs":
        """Return the inputs of rows."""
        found = _columns(X, predicted, by_columns)
        spread = found.std(axis=0)
        unit = np.where(spread > 0, spread, 1.0)
        return ErrorInputs(found.mean(axis=0), unit, by_columns)

    def __call__(self, X: Any, predicted: Float[Array, " m"]) -> Float[Array, "m k"]:
        """Return z of rows."""
        return (_columns(X, predicted, self.by_columns) - self.centre) / self.unit


def _columns(X: Any, predicted: Float[Array, " m"], by_columns: bool) -> Float[Array, "m k"]:
    return to_numpy(X).astype(np.float64) if by_columns else predicted[:, None]


@dataclass(frozen=True, eq=False)
class Distribution:
    """Conditional distributions of u: their values at knots, and tails that all rows share."""

    knots: Float[Array, " J"]  # Rising
    values: KernelSum  # z ↦ F at the knots, before it is made to rise
    pooled: Float[Array, " J"]  # F of all rows
    # All u up to the first knot, and all from the last on, rising
    below: Float[Array, " b"]
    above: Float[Array, " a"]

    def at(self, z: Float[Array, "m k"]) -> Float[Array, "m J"]:
        """Return F at the knots, of rows."""
        return self.risen(evaluated(self.values, z))

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


def evaluated(function: KernelSum, z: Float[Array, "m k"]) -> Float[Array, "m t"]:
    """Return the values of a function at rows."""
    return np.concatenate([f for _, f in function.values(Blocks.from_arrays(z))])


@dataclass(frozen=True, eq=False)
class TargetLaw:
    """The law of the errors of one target."""

    inputs: ErrorInputs | None  # What z is; None: nothing depends on it
    scale: KernelSum | None  # z ↦ log s; None: s is 1
    shape: Distribution | None  # Of e/s; None: one for all z, which the scores are
    scores: Float[Array, " m"]  # Rising
    shares: Float[Array, " m"]  # Weight of the scores up to each, in rows: m in all
    # Least and largest log s of the rows it was learned from. The regression may extrapolate to any
    # value far from them.
    reach: tuple[float, float] = (-LARGEST, LARGEST)

    def ends(self, coverage: float) -> tuple[float, float]:
        """Return the scores between which this share of rows lies, with equal tails.

        For few scores the interval is symmetric.
        """
        m, tail = len(self.scores), (1 - coverage) / 2
        if (m + 1) * tail >= BEYOND:
            low = np.searchsorted(self.shares, (m + 1) * tail * (1 + 1e-12), side="right") - 1
            return float(self.scores[max(low, 0)]), self._at((m + 1) * (1 - tail))
        middle = 0.0 if self.shape is None else 0.5
        distance = np.abs(self.scores - middle)
        order = np.argsort(distance, kind="stable")
        own = np.diff(self.shares, prepend=0.0)[order]
        away = replace(self, scores=distance[order], shares=np.cumsum(own))
        half = away._at((m + 1) * coverage)
        return middle - half, middle + half

    def _at(self, place: float) -> float:
        m = len(self.scores)
        found = int(np.searchsorted(self.shares, place * (1 - 1e-12)))
        return float(self.scores[found]) if found < m else np.inf

    def bounds(
        self, X: Any, predicted: Float[Array, " b"], coverage: float
    ) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
        """Return the ends of the interval of each row."""
        return self.between(X, predicted, *self.ends(coverage))

    def between(
        self, X: Any, predicted: Float[Array, " b"], low: float, high: float
    ) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
        """Return the errors that have these scores, added to predictions."""
        if self.inputs is None or self.scale is None:
            return predicted + low, predicted + high
        z = self.inputs(X, predicted)
        s = np.exp(np.clip(evaluated(self.scale, z)[:, 0], *self.reach))
        if self.shape is None:
            return predicted + s * low, predicted + s * high
        F = self.shape.at(z)
        found = (self.shape.quantile(F, level) for level in (low, high))
        first, last = (predicted + s * u for u in found)
        return first, last


@dataclass(frozen=True, eq=False)
class ErrorLaw(ShownResult):
    """The laws of the errors of all targets, and where they come from."""

    targets: tuple[TargetLaw, ...]
    source: str  # "held out", "cross-validation", "leave one out"

    def __len__(self) -> int:
        return len(self.targets[0].scores)

    def __repr__(self) -> str:
        """Return one line."""
        return f"ErrorLaw({len(self):,} scores, {self.source})"

    def __str__(self) -> str:
        """Return what holds of the intervals."""
        return self.guarantee

    @property
    def guarantee(self) -> str:
        """Guarantee of the intervals, in a sentence."""
        return f"{self.source.capitalize()}, {len(self):,} rows: {GUARANTEES[self.source]}."

    @property
    def varies(self) -> tuple[str, ...]:
        """Part of the law that depends on the row: "nothing", "scale" or "distribution"."""
        return tuple(
            "nothing" if law.scale is None else "scale" if law.shape is None else "distribution"
            for law in self.targets
        )

    def calibrates(self, coverage: float) -> bool:
        """Whether the scores are enough for intervals of this coverage."""
        return len(self) >= least_rows(coverage)

    def require(self, who: str, coverage: float) -> None:
        """Refuse a coverage that the scores are too few for."""
        if not self.calibrates(coverage):
            raise InvalidInput(
                f"{who}.predict_interval: {len(self)} rows cannot calibrate a coverage of "
                f"{coverage:g}, which takes {least_rows(coverage)}. Call calibrate with more rows, "
                "or ask for a smaller coverage."
            )

    def bounds(
        self, X: Any, predicted: Float[Array, "b t"], coverage: float
    ) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the interval of each row and target."""
        found = [
            law.bounds(X, f, coverage) for law, f in zip(self.targets, predicted.T, strict=True)
        ]
        low, high = (np.stack(ends, axis=1) for ends in zip(*found, strict=True))
        return low, high


def least_rows(coverage: float) -> int:
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
