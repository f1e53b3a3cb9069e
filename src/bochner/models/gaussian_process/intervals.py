"""Intervals whose width is read off errors on rows: split conformal prediction.

Scores s_i = |y_i − f̂(x_i)|/sd(x_i) of m rows; the interval f̂(x) ± s_(j) sd(x) takes the j-th
smallest, j = ⌈(m + 1) coverage⌉. If the rows were not fitted on and are exchangeable with the new
one, the interval holds y with chance ``coverage`` at least, and if no two scores are equal at most
1/(m + 1) more, whatever the model is worth (Vovk, Gammerman and Shafer 2005; Lei et al. 2018,
theorem 2.2).
"""

from dataclasses import dataclass
from math import ceil
from numbers import Real

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput

#: How rows were predicted that scores come from, and what follows.
GUARANTEES = {
    "held out": "each new row is covered with chance coverage at least, on average over "
    "calibrations, if it is exchangeable with the rows of calibrate(), whatever the model",
    "leave one out": "none for a finite number of rows: leave-one-out scores cover as asked "
    "where leaving out one row hardly changes the fit, as with so many; the rows that lengthscales "
    "were compared on take no part; calibrate() on rows kept back gives a guarantee",
}


@dataclass(frozen=True, eq=False)
class Conformal:
    """Scores of rows, sorted.

    Attributes
    ----------
    scores : (m, t) float64
        Errors in standard deviations of their predictions, rising.
    source : {"held out", "leave one out"}
    """

    scores: Float[Array, "m t"]
    source: str

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
        """What holds of the intervals, in a sentence."""
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
    """Return |error|/sd; an error where none is expected counts as infinite."""
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
