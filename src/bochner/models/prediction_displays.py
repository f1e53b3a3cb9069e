"""Calibration of a fitted learner on rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator, is_classifier

from bochner._core.arrays import to_numpy
from bochner._core.checks import integer
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.models.convex.regressors import KernelRegressor
from bochner.models.displays import Display
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor

TWO_SIDED = float(norm.ppf(0.975))  # Half-width of 95 of 100 cases, in standard errors

#: Nominal coverages that intervals are asked for.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)

#: Names of both axes of a calibration.
CALIBRATIONS = {
    "prediction": ("mean prediction", "mean observed"),
    "probability": ("probability predicted", "share observed"),
    "quantile": ("quantile asked for", "share of rows below it"),
    "coverage": ("coverage asked for", "share of rows inside"),
}


@dataclass(frozen=True, eq=False)
class CalibrationDisplay(Display):
    """Predicted means, probabilities, quantiles or intervals against observations.

    Attributes
    ----------
    expected, observed : (b,)
        Means over the rows of each bin, or levels.
    spread : (b,)
        Half-width of 95 of 100 cases of observed − expected, if the model were right.
    count : (b,) int
        Rows behind each.
    kind : {"prediction", "probability", "quantile", "coverage"}

    See Also
    --------
    NormalScores : Scores of predicted means and deviations.
    PathDisplay : Criteria that a penalty is chosen by.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0, 1, 2000)
    >>> happened = rng.uniform(0, 1, 2000) < p
    >>> display = bo.CalibrationDisplay.from_predictions(happened, p, n_bins=5)
    >>> display.kind, int(display.count.sum()), bool(display.error < 0.05)
    ('probability', 2000, True)
    """

    expected: Float[Array, " b"]
    observed: Float[Array, " b"]
    spread: Float[Array, " b"]
    count: Array
    kind: str

    @property
    def error(self) -> float:
        """Mean of |observed − expected|, by rows."""
        return float(np.average(np.abs(self.observed - self.expected), weights=self.count))

    @staticmethod
    def of_means(observed: Array, predicted: Array, n_bins: int = 10) -> "CalibrationDisplay":
        """Return means of bins of as many rows each, in the order of the predictions."""
        order = np.argsort(predicted, kind="stable")
        parts = np.array_split(order, min(_bins(n_bins), max(1, len(order) // 2)))
        errors = [TWO_SIDED * np.std(observed[p] - predicted[p]) / len(p) ** 0.5 for p in parts]
        expected, means = (np.array([a[p].mean() for p in parts]) for a in (predicted, observed))
        count = np.array([len(p) for p in parts])
        return CalibrationDisplay(expected, means, np.array(errors), count, "prediction")

    @staticmethod
    def of_probabilities(happened: Array, p: Array, n_bins: int = 10) -> "CalibrationDisplay":
        """Return bins of equal width of the probability, those with rows."""
        n_bins = _bins(n_bins)
        where = np.minimum((p * n_bins).astype(int), n_bins - 1)
        count = np.bincount(where, minlength=n_bins)
        kept = count > 0
        means = (np.bincount(where, a, n_bins)[kept] / count[kept] for a in (p, happened * 1.0))
        expected, observed = means
        variance = np.bincount(where, p * (1 - p), n_bins)[kept] / count[kept]
        spread = TWO_SIDED * np.sqrt(variance / count[kept])
        return CalibrationDisplay(expected, observed, spread, count[kept], "probability")

    @staticmethod
    def of_levels(levels: Any, inside: Array, kind: str) -> "CalibrationDisplay":
        """Return shares of rows, a column of ``inside`` (m, b) for each level."""
        levels, m = np.asarray(levels, np.float64), len(inside)
        spread = TWO_SIDED * np.sqrt(levels * (1 - levels) / m)
        count = np.full(len(levels), m)
        return CalibrationDisplay(levels, inside.mean(axis=0), spread, count, kind)

    @staticmethod
    def of_scores(scores: Array) -> "CalibrationDisplay":
        """Return the coverage of Gaussian intervals from errors in standard deviations, (m,)."""
        inside = np.abs(scores)[:, None] <= norm.ppf(0.5 + np.array(LEVELS) / 2)
        return CalibrationDisplay.of_levels(LEVELS, inside, "coverage")

    @staticmethod
    def from_predictions(
        observed: Array, predicted: Array, *, n_bins: int = 10
    ) -> "CalibrationDisplay":
        """Return the calibration of predictions, (m,): of means, or of probabilities.

        Where ``observed`` holds two labels (numbers 0 and 1, or any others) and ``predicted`` lies
        between 0 and 1, it is the probability of the second label in sorted order.
        """
        y, f = np.asarray(observed).ravel(), np.asarray(predicted, np.float64).ravel()
        if len(y) != len(f) or not len(y):
            raise InvalidInput(
                "CalibrationDisplay: one prediction for each observed value is required, and one "
                f"row at least; got {len(f)} and {len(y)}."
            )
        labels = np.unique(y)
        if len(labels) == 2 and f.min() >= 0 and f.max() <= 1:
            return CalibrationDisplay.of_probabilities(y == labels[1], f, n_bins)
        return CalibrationDisplay.of_means(y.astype(np.float64), f, n_bins)

    @staticmethod
    def from_estimator(
        model: BaseEstimator, X: Array, y: Array, *, n_bins: int = 10
    ) -> "CalibrationDisplay":
        """Return the calibration that suits the learner, on rows that it has not seen.

        Classifiers with probabilities: of the second class of two, or of the label predicted.
        Gaussian processes: coverage of the first target's intervals. Quantile regression: shares
        below each quantile. Other regressors: means.
        """
        y = np.asarray(y)
        if is_classifier(model):
            try:
                p = to_numpy(model.predict_proba(X))
            except AttributeError as error:
                raise InvalidInput(
                    f"CalibrationDisplay: the classifier must give probabilities; this "
                    f"{type(model).__name__} has no predict_proba. LogisticRegression, or "
                    "SVC(probability=True), has."
                ) from error
            top = np.ones(len(p), np.intp) if p.shape[1] == 2 else p.argmax(axis=1)
            happened, p = y == model.classes_[top], p[np.arange(len(p)), top]
            return CalibrationDisplay.of_probabilities(happened, p, n_bins)
        if isinstance(model, GaussianProcessRegressor):
            predicted = model.predict(X, return_std=True, include_noise=True)
            mean, deviation = (to_numpy(a).reshape(len(y), -1)[:, 0] for a in predicted)
            return CalibrationDisplay.of_scores((y.reshape(len(y), -1)[:, 0] - mean) / deviation)
        f, y = to_numpy(model.predict(X)), y.reshape(len(y), -1).astype(np.float64)
        f = f.reshape(len(f), -1)
        if f.shape[1] != y.shape[1] and isinstance(model, KernelRegressor):  # several quantiles
            levels = np.atleast_1d(model.quantiles)
            return CalibrationDisplay.of_levels(levels, y <= f, "quantile")
        return CalibrationDisplay.of_means(y[:, 0], f[:, 0], n_bins)

    def plot(self, ax: Any = None) -> Self:
        """Draw observations against predictions; return the display."""
        ax = self._axes(ax)
        ax.axline((self.expected[0],) * 2, slope=1, color="gray", linestyle=":")
        room = [np.inf, np.inf] if self.kind == "prediction" else [self.observed, 1 - self.observed]
        whiskers = [np.minimum(self.spread, most) for most in room]
        ax.errorbar(self.expected, self.observed, whiskers, fmt="o-", capsize=3)
        ax.set(**dict(zip(("xlabel", "ylabel"), CALIBRATIONS[self.kind], strict=True)))
        return self


def _bins(n_bins: int) -> int:
    return integer(n_bins, "CalibrationDisplay", "n_bins", 1)
