"""Intervals whose width is read off errors on rows: split conformal prediction.

Scores s_i = |y_i − f̂(x_i)|/sd(x_i) of m rows; the interval f̂(x) ± s_(j) sd(x) takes the j-th
smallest, j = ⌈(m + 1) coverage⌉. If the rows were not fitted on and are exchangeable with the new
one, the interval contains y with probability at least ``coverage``, and at most 1/(m + 1) more if
no two scores are equal, for any model (Vovk, Gammerman and Shafer 2005; Lei et al. 2018, theorem
2.2).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from numbers import Real
from typing import Any, Protocol
from warnings import catch_warnings, simplefilter

import numpy as np

from bochner._core.html import ShownResult
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput, SolutionWarning
from bochner.models._rows import row_marks

#: How rows were predicted that scores come from, and what follows.
GUARANTEES = {
    "held out": "each new row is covered with chance coverage at least, on average over "
    "calibrations, if it is exchangeable with the rows of calibrate(), whatever the model",
    "leave one out": "none for a finite number of rows: leave-one-out scores cover as asked "
    "where leaving out one row hardly changes the fit, as with so many; the rows that lengthscales "
    "were compared on take no part; calibrate() on rows kept back gives a guarantee",
}


@dataclass(frozen=True, eq=False)
class Conformal(ShownResult):
    """Scores of rows, sorted."""

    scores: Float[Array, "m t"]  # Errors in standard deviations of their predictions, rising
    source: str  # "held out", "leave one out"

    @staticmethod
    def of(errors: Float[Array, "m t"], deviation: Float[Array, "m t"], source: str) -> "Conformal":
        """Return the scores of these errors."""
        return Conformal(np.sort(scores_of(errors, deviation), axis=0), source)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        """Return one line."""
        return f"Conformal({len(self):,} scores, {self.source})"

    def __str__(self) -> str:
        """Return what holds of the intervals."""
        return self.guarantee

    @property
    def guarantee(self) -> str:
        """Guarantee of the intervals, in a sentence."""
        return f"{self.source.capitalize()}, {len(self)} rows: {GUARANTEES[self.source]}."

    def quantile(self, coverage: float) -> Float[Array, " t"]:
        """Return the ⌈(m + 1) coverage⌉-th smallest score of each target."""
        return self.scores[place_of(len(self), coverage) - 1]

    def bounds(
        self, mean: Float[Array, "b t"], deviation: Float[Array, "b t"], coverage: float
    ) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the interval of each row."""
        half = self.quantile(coverage) * deviation
        return mean - half, mean + half


def scores_of(errors: Float[Array, "m t"], deviation: Float[Array, "m t"]) -> Float[Array, "m t"]:
    """Return |error|/sd; infinite for an error where the deviation is zero."""
    scores = np.full(errors.shape, np.inf)
    scores[errors == 0] = 0.0
    return np.divide(np.abs(errors), deviation, out=scores, where=deviation > 0)


def place_of(m: int, coverage: float) -> int:
    """Return ⌈(m + 1) coverage⌉, the place of the score that m rows are calibrated by."""
    place = ceil((m + 1) * coverage * (1 - 1e-12))
    if place > m:
        raise InvalidInput(
            f"predict_interval: {m} rows cannot calibrate a coverage of {coverage:g}, which "
            f"takes {ceil(coverage / (1 - coverage) - 1e-9)}. Call calibrate with more rows, "
            "or ask for calibrated=False."
        )
    return place


def as_coverage(coverage: object) -> float:
    """Return a coverage between zero and one."""
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0 < float(coverage) < 1:
        raise InvalidInput(
            f"predict_interval: coverage must be a number above 0 and below 1; got {coverage!r}. "
            "0.95 means that 95 of 100 new targets lie inside."
        )
    return float(coverage)


# --- Intervals from fits without a fold of the rows: CV+ (Barber et al. 2021) --------------------
#
# The distinct rows of a sample, m of them, are dealt into K folds. Model k chooses its
# lengthscales, noise and amplitude and is fitted without fold k, and row i of fold k has the score
#
#     R_i = |y_i − f_k(x_i)|/s_k(x_i).
#
# The interval of x reaches from the ⌊α(m + 1)⌋-th smallest f_k(x) − R_i s_k(x) to the
# ⌈(1 − α)(m + 1)⌉-th smallest f_k(x) + R_i s_k(x), k the fold of i and α = 1 − coverage. A row that
# is exchangeable with the rows of the fit is inside with probability at least
#
#     1 − 2α − min{2(1 − 1/K)/(m/K + 1), (1 − K/m)/(K + 1)}
#
# for any models (their theorem 4, whose proof holds for any score that rises with |y − f_k|), and
# with about 1 − α if leaving out a fold changes the models little. Leave-one-out errors of one fit
# have no such bound, because its hyperparameters were chosen on the same rows.

#: K of few rows, and up to how many those are; K of more. A model of most of few rows is near that
#: of all, and costs little.
MANY_FOLDS, FEW_ROWS, FOLDS = 10, 512, 5

#: Largest number of bounds (new rows × scores) computed at once.
MOST_BOUNDS = 1 << 22


class Predicts(Protocol):
    """A law of f, as intervals need it."""

    @property
    def noise(self) -> Float[Array, " t"]:
        """Variance of y about f."""

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of f at rows."""


@dataclass(frozen=True, eq=False)
class Fold:
    """A law that has not seen some of the rows, and its scores on those."""

    law: Any
    scores: Float[Array, "m t"]

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and the standard deviation of y at rows."""
        return deviations(self.law, X)


def deviations(law: Predicts, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
    """Return the mean and the standard deviation of y at rows."""
    mean, variance = law.moments(X)
    return mean, np.sqrt(variance + law.noise)


@dataclass(frozen=True, eq=False)
class CrossConformal(ShownResult):
    """Fold models and scores of CV+ intervals."""

    folds: tuple[Fold, ...]
    source: str = "cross-validation"

    @property
    def scores(self) -> Float[Array, "m t"]:
        """Errors of rows in standard deviations, by fits without their fold, rising."""
        return np.sort(np.concatenate([fold.scores for fold in self.folds]), axis=0)

    def __len__(self) -> int:
        return sum(len(fold.scores) for fold in self.folds)

    def __repr__(self) -> str:
        """Return one line."""
        return f"CrossConformal({len(self):,} scores, {len(self.folds)} folds)"

    def __str__(self) -> str:
        """Return what holds of the intervals."""
        return self.guarantee

    @property
    def guarantee(self) -> str:
        """Guarantee of the intervals, in a sentence."""
        m, K = len(self), len(self.folds)
        if not m:
            return "None: one row alone cannot be left out; calibrate() on others gives one."
        lost = min(2 * (1 - 1 / K) / (m / K + 1), (1 - K / m) / (K + 1))
        return (
            f"Cross-validation, {m:,} distinct rows in {K} folds (CV+): a new row that is "
            "exchangeable with those of the fit is covered with chance 2 coverage − "
            f"{1 + lost:.3g} at least, whatever the model, and about as asked where a fold more or "
            "less changes the fit little; calibrate() on rows kept back gives coverage itself."
        )

    def bounds(self, X: Array, coverage: float) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the interval of each row."""
        place = place_of(len(self), coverage)
        moments = [fold.moments(X) for fold in self.folds]
        rows, t = moments[0][0].shape
        size = max(1, MOST_BOUNDS // (len(self) * t))
        parts = [self._bounds(moments, slice(i, i + size), place) for i in range(0, rows, size)]
        low, high = (np.concatenate(part) for part in zip(*parts, strict=True))
        return low, high

    def _bounds(
        self, moments: list[tuple[Array, Array]], rows: slice, place: int
    ) -> tuple[Array, Array]:
        """Return the interval of some rows: O(b m)."""
        lows, highs = [], []
        for fold, (mean, deviation) in zip(self.folds, moments, strict=True):
            half = _reach(fold.scores[:, None], deviation[rows])
            lows.append(half - mean[rows])
            highs.append(half + mean[rows])
        low, high = (np.partition(np.concatenate(a), place - 1, axis=0) for a in (lows, highs))
        return -low[place - 1], high[place - 1]


def _reach(score: Array, deviation: Array) -> Float[Array, "m b t"]:
    """Return scores times deviations; infinite where an infinite score meets a zero deviation."""
    with np.errstate(invalid="ignore"):
        half = score * deviation
    return np.where(np.isnan(half), np.inf, half)


#: Fits a law of the same kind to some rows.
Refit = Callable[[RowSample], Predicts]


def cross_conformal(refit: Refit, sample: RowSample) -> CrossConformal:
    """Fit a model like this without each fold of the sample's rows, and score those.

    Equal rows are in one fold and have one score: a copy adds no information about new rows.
    """
    groups = _groups(sample)
    firsts = np.unique(groups, return_index=True)[1]
    m = len(firsts)
    K = min(MANY_FOLDS if m <= FEW_ROWS else FOLDS, m) if m > 1 else 0
    rank = np.argsort(np.argsort(sample.priority[firsts], kind="stable"))
    fold_of = rank % max(K, 1)
    return CrossConformal(
        tuple(
            _fold(refit, sample, np.flatnonzero(fold_of[groups] != k), firsts[fold_of == k])
            for k in range(K)
        )
    )


def _fold(refit: Refit, sample: RowSample, seen: Array, judged: Array) -> Fold:
    with catch_warnings():
        simplefilter("ignore", SolutionWarning)
        law = refit(sample.take(seen))
    left = sample.take(judged)
    mean, deviation = deviations(law, left.X)
    return Fold(law, scores_of(left.y - mean, deviation))


def _groups(sample: RowSample) -> Array:
    """Return a number for each row, the same for rows that are equal in X and y."""
    marks = row_marks(sample.X, 0) + row_marks(sample.y, 1)
    return np.unique(marks, return_inverse=True)[1]
