"""Pictures of predictions beside what was observed: residuals and calibration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import is_classifier

from bochner._ground.arrays import to_numpy
from bochner._ground.checks import integer, one_of
from bochner._ground.shapes import Array, Float
from bochner._ground.shown import axes_for
from bochner.errors import InvalidInput

__all__ = ["CalibrationDisplay", "ResidualDisplay", "scores_of", "top_probability"]

#: Half-width of 95 of 100 cases, in standard errors.
TWO_SIDED = float(norm.ppf(0.975))

#: Nominal coverages that intervals are asked for.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)

#: What is drawn for calibration: names of both axes.
CALIBRATIONS = {
    "prediction": ("mean prediction", "mean observed"),
    "probability": ("probability predicted", "share observed"),
    "quantile": ("quantile asked for", "share of rows below it"),
    "coverage": ("coverage asked for", "share of rows inside"),
}


@dataclass(frozen=True, eq=False)
class ResidualDisplay:
    """Predictions beside what was observed, a point for each row.

    Attributes
    ----------
    predicted, observed : (m,)
    name : str
        Of the target, with its unit where that is known.
    """

    predicted: Float[Array, " m"]
    observed: Float[Array, " m"]
    name: str = "target"

    @property
    def residuals(self) -> Float[Array, " m"]:
        """Observed less predicted."""
        return self.observed - self.predicted

    @staticmethod
    def from_predictions(observed: Array, predicted: Array, name: str = "target") -> Any:
        """Return the display of these numbers."""
        y, f = (np.asarray(a, np.float64).ravel() for a in (observed, predicted))
        if len(y) != len(f) or not len(y):
            raise InvalidInput(
                "ResidualDisplay: one prediction for each observed value is required, and one row "
                f"at least; got {len(f)} and {len(y)}."
            )
        return ResidualDisplay(f, y, name)

    @staticmethod
    def from_estimator(model: Any, X: Array, y: Array, *, target: int = 0) -> "ResidualDisplay":
        """Return predictions for X beside y; of several targets, the one of this number."""
        predicted, y = to_numpy(model.predict(X)), np.asarray(y)
        if is_classifier(model) or not np.issubdtype(predicted.dtype, np.floating):
            raise InvalidInput(
                f"ResidualDisplay: predictions must be quantities; {type(model).__name__} gives "
                "labels. Take CalibrationDisplay."
            )
        columns = (a.reshape(len(a), -1) for a in (y, predicted))
        f, t = (a[:, target if a.shape[1] > 1 else 0] for a in reversed(list(columns)))
        return ResidualDisplay.from_predictions(t, f)

    def plot(self, ax: Any = None, *, kind: str = "residual_vs_predicted") -> Any:
        """Draw residuals, or what was observed ("actual_vs_predicted"); return the axes."""
        kinds = ("residual_vs_predicted", "actual_vs_predicted")
        one_of(kind, "ResidualDisplay.plot", "kind", kinds)
        ax = axes_for("ResidualDisplay", ax)
        actual = kind == "actual_vs_predicted"
        ax.plot(self.predicted, self.observed if actual else self.residuals, ".", alpha=0.4)
        middle = float(np.median(self.predicted))
        ax.axline((middle, middle if actual else 0.0), slope=float(actual), color="gray")
        ax.set_xlabel(f"predicted {self.name}")
        ax.set_ylabel(f"observed {self.name}" if actual else "observed − predicted")
        return ax


@dataclass(frozen=True, eq=False)
class CalibrationDisplay:
    """What was promised beside what came: means, probabilities, quantiles or intervals.

    Attributes
    ----------
    expected, observed : (b,)
        Means over the rows of each bin, or levels.
    spread : (b,)
        What chance alone makes of observed − expected, in 95 of 100 cases, were the model right.
    count : (b,) int
        Rows behind each.
    kind : {"prediction", "probability", "quantile", "coverage"}
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
        expected, found = (np.array([a[p].mean() for p in parts]) for a in (predicted, observed))
        count = np.array([len(p) for p in parts])
        return CalibrationDisplay(expected, found, np.array(errors), count, "prediction")

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
    def of_levels(levels: Array, inside: Array, kind: str) -> "CalibrationDisplay":
        """Return shares of rows, a column of ``inside`` (m, b) for each level."""
        levels, m = np.asarray(levels, np.float64), len(inside)
        spread = TWO_SIDED * np.sqrt(levels * (1 - levels) / m)
        count = np.full(len(levels), m)
        return CalibrationDisplay(levels, inside.mean(axis=0), spread, count, kind)

    @staticmethod
    def of_scores(scores: Array, levels: Any = LEVELS) -> "CalibrationDisplay":
        """Return the coverage of Gaussian intervals from errors in standard deviations, (m,)."""
        inside = np.abs(scores)[:, None] <= norm.ppf(0.5 + np.asarray(levels) / 2)
        return CalibrationDisplay.of_levels(levels, inside, "coverage")

    @staticmethod
    def from_estimator(model: Any, X: Array, y: Array, *, n_bins: int = 10) -> "CalibrationDisplay":
        """Return what suits the learner, on rows that it has not seen.

        Classifiers with probabilities: of the second class of two, or of the label predicted.
        Gaussian processes: coverage of the first target's intervals. Quantile regression: shares
        below each quantile. Other regressors: means.
        """
        y = np.asarray(y)
        if is_classifier(model):
            happened, p = top_probability(model, X, y)
            return CalibrationDisplay.of_probabilities(happened, p, n_bins)
        if hasattr(model, "sample_functions"):
            return CalibrationDisplay.of_scores(scores_of(model, X, y)[:, 0])
        f, y = to_numpy(model.predict(X)), y.reshape(len(y), -1).astype(np.float64)
        f = f.reshape(len(f), -1)
        if f.shape[1] != y.shape[1] and getattr(model, "loss", None) == "quantile":
            levels = np.atleast_1d(model.quantiles)
            return CalibrationDisplay.of_levels(levels, y <= f, "quantile")
        return CalibrationDisplay.of_means(y[:, 0], f[:, 0], n_bins)

    def plot(self, ax: Any = None) -> Any:
        """Draw what came against what was promised; return the axes."""
        ax = axes_for("CalibrationDisplay", ax)
        ax.axline((self.expected[0],) * 2, slope=1, color="gray", linestyle=":")
        ax.errorbar(self.expected, self.observed, self.spread, fmt="o-", capsize=3)
        for name, text in zip(("xlabel", "ylabel"), CALIBRATIONS[self.kind], strict=True):
            getattr(ax, f"set_{name}")(text)
        return ax


def top_probability(model: Any, X: Array, y: Array) -> tuple[Array, Array]:
    """Return whether it happened, and how probable it was said to be; see ``from_estimator``."""
    if not hasattr(model, "predict_proba"):
        raise InvalidInput(
            f"CalibrationDisplay: the classifier must give probabilities; this "
            f"{type(model).__name__} has no predict_proba. LogisticRegression, or "
            "SVC(probability=True), has."
        )
    p, y = to_numpy(model.predict_proba(X)), np.asarray(y)
    if p.shape[1] == 2:
        return y == model.classes_[1], p[:, 1]
    top = p.argmax(axis=1)
    return y == model.classes_[top], p[np.arange(len(p)), top]


def scores_of(model: Any, X: Array, y: Array) -> Float[Array, "m t"]:
    """Return errors of a Gaussian process in standard deviations of a new y."""
    mean, deviation = (to_numpy(a) for a in model.predict(X, return_std=True))
    mean, deviation = (a.reshape(len(a), -1) for a in (mean, deviation))
    return (np.asarray(y).reshape(mean.shape) - mean) / np.sqrt(
        deviation**2 + np.atleast_1d(model.noise_variance_)
    )


def _bins(n_bins: int) -> int:
    return integer(n_bins, "CalibrationDisplay", "n_bins", 1)
