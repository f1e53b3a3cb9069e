"""Displays of a fitted learner on rows: calibration, and other numbers of features."""

import warnings
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.checks import integer
from bochner._core.random import Seed, seed_of, stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sources import Piece, join
from bochner.errors import InvalidInput, SolutionWarning
from bochner.features.auto import Choice
from bochner.features.map import FeatureMap
from bochner.features.method import Method, Request
from bochner.features.nystrom.landmarks import Uniform
from bochner.features.nystrom.nystrom import Nystrom
from bochner.features.rules import draw_map
from bochner.models._base import KernelEstimator
from bochner.models.convex.regressors import KernelRegressor
from bochner.models.drawn import Display
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.ridge.estimators import KernelRidge, KernelRidgeClassifier
from bochner.models.sgd.estimators import KernelSGDClassifier, KernelSGDRegressor
from bochner.models.sgd.steps import DUAL, EXACT
from bochner.models.unsupervised.pca import KernelPCA

SGD = (KernelSGDClassifier, KernelSGDRegressor)
#: Learners that are fitted from the moments of their rows.
RIDGE = (KernelRidge, KernelRidgeClassifier, GaussianProcessRegressor)


def has_features(model: KernelEstimator) -> bool:
    """Whether a fitted learner works with a feature map, and not with the kernel itself."""
    choice = choice_of(model)
    return model.strategy_ not in DUAL if choice is None else choice.method.has_features


def choice_of(model: KernelEstimator) -> Choice | None:
    """Return how the method of a fitted learner was chosen; None where no features were drawn."""
    if isinstance(model, SGD) and model.strategy_ in (*DUAL, *EXACT):
        return None
    return model.choice_


def method_of(model: KernelEstimator) -> Method:
    """Return the method of a fitted learner: the one that was taken, or else the one asked for."""
    choice = choice_of(model)
    return model.method if choice is None else choice.method


# --- Predictions and observations ----------------------------------------------------------------

#: Half-width of 95 of 100 cases, in standard errors.
TWO_SIDED = float(norm.ppf(0.975))

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
            happened, p = top_probability(model, X, y)
            return CalibrationDisplay.of_probabilities(happened, p, n_bins)
        if isinstance(model, GaussianProcessRegressor):
            return CalibrationDisplay.of_scores(scores_of(model, X, y)[:, 0])
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


def top_probability(model: BaseEstimator, X: Array, y: Array) -> tuple[Array, Array]:
    """Return whether it happened, and its predicted probability; see ``from_estimator``."""
    try:
        predict_proba = model.predict_proba
    except AttributeError as error:
        raise InvalidInput(
            f"CalibrationDisplay: the classifier must give probabilities; this "
            f"{type(model).__name__} has no predict_proba. LogisticRegression, or "
            "SVC(probability=True), has."
        ) from error
    p, y = to_numpy(predict_proba(X)), np.asarray(y)
    if p.shape[1] == 2:
        return y == model.classes_[1], p[:, 1]
    top = p.argmax(axis=1)
    return y == model.classes_[top], p[np.arange(len(p)), top]


def scores_of(model: BaseEstimator, X: Array, y: Array) -> Float[Array, "m t"]:
    """Return errors of a Gaussian process in standard deviations of a new y."""
    mean, deviation = (to_numpy(a) for a in model.predict(X, return_std=True))
    mean, deviation = (a.reshape(len(a), -1) for a in (mean, deviation))
    return (np.asarray(y).reshape(mean.shape) - mean) / np.sqrt(
        deviation**2 + np.atleast_1d(model.noise_variance_)
    )


def _bins(n_bins: int) -> int:
    return integer(n_bins, "CalibrationDisplay", "n_bins", 1)


# --- Error against the number of features -------------------------------------------------------

#: The smallest width that is tried, and how often the width is halved.
LEAST, HALVINGS = 8, 5

#: Rows that the error of the kernel is measured on, at most.
KERNEL_ROWS = 512

#: Rows that the exact kernel is fitted to, at most: by one solve, and by sweeps.
EXACT_ROWS, SWEPT_ROWS = 2048, 1024


@dataclass(frozen=True, eq=False)
class WidthDisplay(Display):
    """Errors at several widths on a sample: half of it to learn from, half to judge by.

    Attributes
    ----------
    widths : (p,) int
        D, rising; the last is the model's own.
    errors : (p,)
        On the rows held out; NaN for learners that predict nothing.
    seconds : (p,)
        Of each fit.
    kernel_errors : (p,)
        ‖Z Zᵀ − K‖_F/‖K‖_F on rows held out.
    exact : float or None
        Error with the kernel itself (Nyström features of every row), where it was tried.
    measure : str
        What ``errors`` are.
    n_train, n_test : int
    """

    widths: Array
    errors: Float[Array, " p"]
    seconds: Float[Array, " p"]
    kernel_errors: Float[Array, " p"]
    exact: float | None
    measure: str
    n_train: int
    n_test: int

    @staticmethod
    def from_estimator(
        model: KernelEstimator,
        X: Any,
        y: Array | None = None,
        *,
        widths: Any = None,
        n_sample: int = 4096,
        exact: bool = True,
        random_state: Seed = 0,
    ) -> "WidthDisplay":
        """Fit the model's kernel by its method at each width, on a random half of a sample.

        Parameters
        ----------
        model : fitted learner
        X : (n, d)
        y : (n,) or (n, t), optional
            Where the learner has a target.
        widths : sequence of int, optional
            Default: the model's, halved five times. Widths that the method cannot serve are left
            out.
        n_sample : int, default 4096
            Rows used, at most. A penalty that was given is taken in proportion.
        exact : bool, default True
            Whether the kernel itself is tried too.
        random_state : int, Generator, RandomState or None, default 0
            Of the split and the features.

        Raises
        ------
        InvalidInput
            The model has no features, or there are fewer than 16 rows.

        Notes
        -----
        Kernel, lengthscale and method are the model's; only the number of features changes.
        """
        who, seed = "WidthDisplay", seed_of(random_state)
        if not has_features(model):
            raise InvalidInput(
                f"{who}: the model must have features whose number can be changed; this "
                f"{type(model).__name__} works with the kernel itself."
            )
        rows = _split(_rows(model, X), y, integer(n_sample, who, "n_sample", 16), seed)
        study = _Study(model, _penalties(model, rows.n, len(rows.train_rows)), rows, seed)
        tried = [found for D in _widths(model, widths) if (found := _tried(study, D)) is not None]
        if not tried:
            raise InvalidInput(f"{who}: none of the widths {widths!r} serves the model's method.")
        D, error, second, kernel = (np.array(a) for a in zip(*tried, strict=True))
        best = _exact(study) if exact and study.judged else None
        counts = len(rows.train_rows), len(rows.test_rows)
        return WidthDisplay(D, error, second, kernel, best, study.measure, *counts)

    def plot(self, ax: Any = None) -> Self:
        """Draw the error, or the error of the kernel, against D; return the display."""
        ax = self._axes(ax)
        judged = bool(np.isfinite(self.errors).any())
        ax.plot(self.widths, self.errors if judged else self.kernel_errors, "o-")
        if judged and self.exact is not None:
            ax.axhline(self.exact, color="gray", linestyle=":", label="exact kernel")
            ax.legend()
        ax.set(xscale="log", xlabel="features D")
        ax.set_ylabel(self.measure if judged else "relative error of the kernel")
        shown = self.widths[:: -(-len(self.widths) // 8)]
        ax.set_xticks(shown, [f"{D:,}" for D in shown])
        ax.minorticks_off()
        return self


class _Split(NamedTuple):
    """Rows, targets or None, the numbers of those to learn from and to judge by, and n."""

    X: Any
    y: Any
    train_rows: Array
    test_rows: Array
    n: int

    @property
    def train(self) -> tuple[Any, Any]:
        return self.X[self.train_rows], None if self.y is None else self.y[self.train_rows]

    @property
    def test(self) -> tuple[Any, Any]:
        return self.X[self.test_rows], None if self.y is None else self.y[self.test_rows]


def _rows(model: KernelEstimator, X: Any) -> Any:
    """Return rows as the map reads them."""
    return join([Piece(block.X) for block in model._rows_to_predict(X)]).X


def _split(X: Any, y: Any, n_sample: int, seed: int) -> _Split:
    n = int(X.shape[0])
    if n < 16:
        raise InvalidInput(
            f"WidthDisplay: at least 16 rows are required, half of them to judge by; got {n}."
        )
    X = X if is_sparse(X) else to_numpy(X)
    order = stream(seed, "widths").permutation(n)[:n_sample]
    half = len(order) // 2
    return _Split(X, None if y is None else np.asarray(y), order[:half], order[half:], n)


def _widths(model: KernelEstimator, widths: Any) -> list[int]:
    D = model.map_.n_features
    if widths is None:
        return sorted({max(min(D, LEAST), D >> i) for i in range(HALVINGS + 1)})
    return sorted({integer(width, "WidthDisplay", "widths", 1) for width in widths})


def _penalties(model: KernelEstimator, n: int, m: int) -> dict[str, float]:
    """Return penalties that weigh m rows as those given weigh n."""
    asked = model.get_params(deep=False)
    given: dict[str, float] = {}
    if "C" in asked:
        given["C"] = float(np.min(model.C_)) * n / m
    alpha = asked.get("alpha")
    if isinstance(alpha, int | float) and not isinstance(model, SGD):
        fitted = model.moments_.rows if isinstance(model, (*RIDGE, KernelPCA)) else n
        given["alpha"] = float(alpha) * m / fitted
    return given


@dataclass(frozen=True, eq=False)
class _Study:
    """Quantities shared by all widths."""

    model: KernelEstimator
    penalties: dict[str, float]
    rows: _Split
    seed: int

    @property
    def method(self) -> Method:
        return method_of(self.model)

    @property
    def judged(self) -> bool:
        """Whether there are predictions to judge."""
        return self.rows.y is not None and (is_classifier(self.model) or is_regressor(self.model))

    @property
    def measure(self) -> str:
        if not self.judged:
            return "relative error of the kernel"
        if is_classifier(self.model):
            return "share of labels wrong"
        one = self.rows.y.ndim == 1 or self.rows.y.shape[1] == 1
        losses = ("quantile", "poisson", "gamma")
        if isinstance(self.model, KernelRegressor) and self.model.loss in losses:
            return "1 − score"
        return "RMSE" if one else "RMSE in deviations of the targets"

    def map(self, method: Method, width: int) -> FeatureMap:
        X = self.rows.train[0]
        return draw_map(method, self.model.kernel_, Request(X.shape[1], width, self.seed, X=X))

    def fitted(self, method: Method, width: int) -> Any:
        """Return the learner fitted to the half to learn from."""
        one = clone(self.model)
        given: dict[str, Any] = {
            "kernel": self.model.kernel_,
            "method": method,
            "n_features": width,
        }
        known = one.get_params(deep=False)
        given |= {"random_state": self.seed} | self.penalties
        one.set_params(**{name: value for name, value in given.items() if name in known})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SolutionWarning)
            return one.fit(*self.rows.train)

    def error(self, one: Any) -> float:
        """Return its error on the other half."""
        X, y = self.rows.test
        if self.measure == "1 − score":
            return 1 - float(one.score(X, y))
        found = to_numpy(one.predict(X))
        if is_classifier(one):
            return float(np.mean(found != y))
        y = y.reshape(len(y), -1).astype(np.float64)
        squares = np.mean((y - found.reshape(y.shape)) ** 2, axis=0)
        if y.shape[1] > 1:
            squares = squares / np.maximum(y.var(axis=0), np.finfo(np.float64).tiny)
        return float(np.sqrt(squares.mean()))


def _tried(study: _Study, width: int) -> tuple[int, float, float, float] | None:
    """Return width, error, seconds and the kernel's error; None where the method cannot serve."""
    try:
        phi = study.map(study.method, width)
    except InvalidInput:
        return None
    kernel_error = _kernel_error(study, phi)
    if not study.judged:
        return phi.n_features, float("nan"), float("nan"), kernel_error
    began = perf_counter()
    one = study.fitted(study.method, width)
    seconds = perf_counter() - began
    return phi.n_features, study.error(one), seconds, kernel_error


def _kernel_error(study: _Study, phi: FeatureMap) -> float:
    block = next(iter(Blocks.from_arrays(study.rows.test[0][:KERNEL_ROWS])))
    Z = to_numpy(phi(block.X)).astype(np.float64)
    K = to_numpy(study.model.kernel_(block.X)).astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


def _exact(study: _Study) -> float | None:
    """Return the error with every row a landmark, where that is quickly had."""
    m = len(study.rows.train_rows)
    most = EXACT_ROWS if isinstance(study.model, RIDGE) else SWEPT_ROWS
    if m > most or isinstance(study.model, SGD):
        return None
    try:
        return study.error(study.fitted(Nystrom(Uniform()), m))
    except InvalidInput:
        return None
