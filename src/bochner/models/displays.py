"""Pictures of a fitted learner, in scikit-learn's manner: numbers first, then ``plot``.

Each ``Display.from_estimator(model, ...)`` holds what it draws, as arrays; ``plot(ax=None)`` draws
it with matplotlib, imported then. Here: what the fit alone tells. On rows with targets:
``errors_display``; at other widths: ``width_display``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from bochner._core.arrays import to_numpy
from bochner._core.blas import eigvalsh
from bochner._core.checks import integer, one_of
from bochner._core.shapes import Array, Float
from bochner._core.text import axes_for
from bochner.errors import InvalidInput
from bochner.models import _engine
from bochner.models._inputs import predict_blocks_of
from bochner.models._judged import ridge_penalty
from bochner.solvers.convex.penalty_path import HeldOutPath
from bochner.solvers.ridge.solution import Path
from bochner.sums.moments import Moments

#: Names of a ridge path's criteria.
CRITERIA = {"loo": "leave-one-out", "kfold": "five folds", "gcv": "generalised cross-validation"}


@dataclass(frozen=True, eq=False)
class PathDisplay:
    """What each penalty would have done: the criteria along the path.

    Attributes
    ----------
    alphas : (p,)
        Penalties, rising.
    criteria : dict of str to (p,)
        By name; NaN where there is none.
    alpha : (t,)
        The penalty taken, of each target.
    unit : str
        What the criteria are.
    chosen : str
        Name of the criterion that decided; "" where the penalty was given.
    effective_dimension : (p,) or None
        d_λ along the path.
    """

    alphas: Float[Array, " p"]
    criteria: Mapping[str, Float[Array, " p"]]
    alpha: Float[Array, " t"]
    unit: str
    chosen: str = ""
    effective_dimension: Float[Array, " p"] | None = None

    @staticmethod
    def from_estimator(model: Any) -> "PathDisplay":
        """Return the path of a fitted learner that chose its penalty.

        Raises
        ------
        InvalidInput
            The learner tried no other penalty than its own.
        """
        check_is_fitted(model)
        path = getattr(getattr(model, "solution_", None), "path", getattr(model, "path_", None))
        if isinstance(path, Path):
            return _ridge_path(path, model.solution_)
        if isinstance(path, HeldOutPath):
            order = np.argsort(path.alphas)
            errors = {"rows left out": path.errors[order]}
            unit = "loss, as a share of the best constant's"
            return PathDisplay(
                path.alphas[order], errors, np.atleast_1d(path.alpha), unit, "rows left out"
            )
        raise InvalidInput(
            f"PathDisplay: the model must have tried a path of penalties, as KernelRidge does; "
            f"this {type(model).__name__} has none. Let it choose alpha or C, or take another "
            "display."
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the criteria against the penalty; return the axes.

        Errors are drawn on a logarithmic scale, up to twenty times the least.
        """
        ax = axes_for("PathDisplay", ax)
        for i, (name, values) in enumerate(self.criteria.items()):
            ax.plot(self.alphas, values, "--" if i else "-", label=name)
        for i, alpha in enumerate(self.alpha[self.alpha > 0]):
            ax.axvline(alpha, color="gray", linestyle=":", label="" if i else "taken")
        ax.set(xscale="log", xlabel="penalty alpha", ylabel=self.unit)
        values = np.concatenate([np.ravel(v) for v in self.criteria.values()])
        finite = values[np.isfinite(values)]
        if len(finite) and finite.min() > 0:
            shown = finite[finite <= 20 * finite.min()]
            margin = max((shown.max() / shown.min()) ** 0.05, 1.02)
            ax.set(yscale="log", ylim=(shown.min() / margin, shown.max() * margin))
            _write_out(ax.yaxis)
        ax.legend()
        return ax


def _write_out(axis: Any) -> None:
    """Write 0.2 at the ticks of a logarithmic axis, and not 2 × 10⁻¹."""
    from matplotlib.ticker import LogFormatter  # noqa: PLC0415

    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter())


def _ridge_path(path: Path, solution: Any) -> PathDisplay:
    """Return errors, or the likelihood where that decided."""
    alpha, chosen = np.atleast_1d(solution.alpha), CRITERIA.get(solution.criterion, "")
    if solution.criterion == "evidence":
        name = "log marginal likelihood"
        found, unit = {name: path.evidence}, name
        return PathDisplay(path.alphas, found, alpha, unit, name, path.effective_dimension)
    squares = {CRITERIA[key]: getattr(path, key) for key in CRITERIA}
    roots = {name: _root(values) for name, values in squares.items() if values is not None}
    known = {name: values for name, values in roots.items() if np.isfinite(values).any()}
    unit = "root mean squared error"
    return PathDisplay(path.alphas, known, alpha, unit, chosen, path.effective_dimension)


def _root(values: Float[Array, " p"]) -> Float[Array, " p"]:
    return np.sqrt(np.where(np.isfinite(values) & (values >= 0), values, np.nan))


# --- spectrum ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SpectrumDisplay:
    """Eigenvalues of G = ZᵀZ about the mean: how many directions the features have, above what.

    Attributes
    ----------
    eigenvalues : (D,)
        Falling.
    alpha : float
        Penalty that they are compared with: the model's, on the scale of ``n_rows`` rows.
    n_rows : int
    """

    eigenvalues: Float[Array, " D"]
    alpha: float
    n_rows: int

    @property
    def effective_dimension(self) -> float:
        """d_λ = Tr G(G + λI)⁻¹: directions that the penalty leaves; λ = alpha."""
        kept = self.eigenvalues[self.eigenvalues > 0]
        return float((kept / (kept + self.alpha)).sum())

    @staticmethod
    def from_estimator(model: Any, X: Array | None = None) -> "SpectrumDisplay":
        """Return the spectrum of a fitted learner's features: O(D³).

        Parameters
        ----------
        model : fitted learner
        X : (n, d) or Blocks, optional
            Rows, for learners that do not keep moments: all but ridge, Gaussian process and
            principal components.

        Raises
        ------
        InvalidInput
            There are no moments, and no rows.
        """
        check_is_fitted(model)
        moments = getattr(model, "moments_", None)
        if not isinstance(moments, Moments):
            moments = _moments(model, X)
        if not getattr(model, "fit_intercept", True):
            moments = moments.about_zero()
        values = np.maximum(eigvalsh(moments.gram, check_finite=False)[::-1], 0.0)
        return SpectrumDisplay(values, penalty_of(model, X, moments.rows), moments.rows)

    def plot(self, ax: Any = None) -> Any:
        """Draw the eigenvalues above rounding, and the penalty; return the axes."""
        ax = axes_for("SpectrumDisplay", ax)
        rank = max(1, int(np.sum(self.eigenvalues > 1e-14 * self.eigenvalues[0])))
        number = np.unique(np.geomspace(1, rank, 300).astype(int))  # all that the axis can show
        values = self.eigenvalues[number - 1]
        ax.loglog(number, values, ".-", markersize=3, label="eigenvalues of G")
        if self.alpha > 0:
            ax.axhline(self.alpha, color="gray", linestyle=":", label="penalty alpha")
        ax.set(xlabel="number", ylabel="eigenvalue")
        ax.legend()
        return ax


def _moments(model: Any, X: Any) -> Moments:
    if X is None or not hasattr(model, "map_"):
        raise InvalidInput(
            f"SpectrumDisplay: {type(model).__name__} keeps no moments of its rows"
            + (". Pass rows: from_estimator(model, X)." if X is None else ", and has no features.")
        )
    dtype = getattr(model, "feature_dtype_", "float64")
    blocks: Any = _Untargeted(predict_blocks_of(model, X))
    return _engine.sweep(model.map_, blocks, dtype, "float64")


@dataclass(frozen=True, eq=False)
class _Untargeted:
    """Blocks with a target of nothing: moments of the features alone."""

    blocks: Any

    @property
    def n_rows(self) -> int | None:
        return self.blocks.n_rows

    def with_rows(self, block_rows: int) -> "_Untargeted":
        return _Untargeted(self.blocks.with_rows(block_rows))

    def __iter__(self) -> Any:
        for block in self.blocks:
            yield block._replace(y=np.zeros((block.X.shape[0], 1)))


def penalty_of(model: Any, X: Any, n: int) -> float:
    """Return alpha of the ridge regression that n rows of this learner amount to."""
    evidence = getattr(model, "evidence_", None)
    if evidence is not None:
        return float(np.min(evidence.alpha))
    if hasattr(model, "alpha_") and not hasattr(model, "C"):
        return float(np.min(model.alpha_))
    rows = None if X is None else next(iter(predict_blocks_of(model, X))).X
    return 0.0 if rows is None else ridge_penalty(model, rows, n)


# --- Pictures of predictions beside what was observed: residuals and calibration -----------------

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
        """Draw residuals, observations or a histogram of residuals; return the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"residual_vs_predicted", "actual_vs_predicted", "histogram"}
        """
        kinds = ("residual_vs_predicted", "actual_vs_predicted", "histogram")
        one_of(kind, "ResidualDisplay.plot", "kind", kinds)
        ax, name = axes_for("ResidualDisplay", ax), self.name
        if kind == "histogram":
            ax.hist(self.residuals, bins=min(40, max(8, int(len(self.residuals) ** 0.5))))
            ax.axvline(0, color="gray", linestyle=":")
            ax.set(xlabel=f"observed − predicted {name}", ylabel="rows")
            return ax
        actual = kind == "actual_vs_predicted"
        ax.plot(self.predicted, self.observed if actual else self.residuals, ".", alpha=0.4)
        middle = float(np.median(self.predicted))
        ax.axline((middle, middle if actual else 0.0), slope=float(actual), color="gray")
        ax.set_xlabel(f"predicted {name}")
        ax.set_ylabel(f"observed {name}" if actual else "observed − predicted")
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
        room = [np.inf, np.inf] if self.kind == "prediction" else [self.observed, 1 - self.observed]
        whiskers = [np.minimum(self.spread, most) for most in room]
        ax.errorbar(self.expected, self.observed, whiskers, fmt="o-", capsize=3)
        ax.set(**dict(zip(("xlabel", "ylabel"), CALIBRATIONS[self.kind], strict=True)))
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
