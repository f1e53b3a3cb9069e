"""Measures of a report: predictions of random rows, their errors, and the rows to look at."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_clusterer, is_outlier_detector, is_regressor
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import Sample, chosen_rows
from bochner.errors import InvalidInput
from bochner.features.nystrom.nystrom import Rounded
from bochner.models._base import KernelEstimator
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.prediction_displays import (
    RIDGE,
    CalibrationDisplay,
    has_features,
)
from bochner.models.unsupervised.pca import KernelPCA
from bochner.report.render import number
from bochner.solvers.ridge.eigen import Eigen
from bochner.solvers.ridge.leave_one_out import slack_above_rounding
from bochner.solvers.ridge.problem import left_out_errors
from bochner.sums.moments import Moments
from bochner.sums.rows import indicators

LISTED = 8  # Rows listed
#: Random rows that are predicted, and their numbers, at most: 256 MB in float64.
MOST_ROWS, MOST_NUMBERS = 1 << 20, 1 << 25
FEWEST_ROWS = 1024  # For any number of columns


# --- The kind of a learner, its features and its rows --------------------------------------------


def kind_of(model: KernelEstimator) -> str:
    """Return what the learner does."""
    kinds = {
        "classification": is_classifier,
        "regression": is_regressor,
        "outliers": is_outlier_detector,
        "clusters": is_clusterer,
    }
    return next((name for name, holds in kinds.items() if holds(model)), "features")


def moments_of(model: KernelEstimator) -> Moments | None:
    """Return the moments of the rows of its fit, of learners that keep them."""
    keeps = isinstance(model, (*RIDGE, KernelPCA)) and has_features(model)
    return model.moments_ if keeps else None


def coded(model: KernelEstimator, blocks: Blocks) -> Blocks:
    """Return the rows; labels as codes, their weights as they are."""
    if kind_of(model) != "classification":
        return blocks
    return unweighted(model)._class_blocks(blocks, first=False)[0]


def unweighted(model: KernelEstimator) -> Any:
    """Return the classifier as one that counts every row by its own weight."""
    plain = copy(model)
    plain.class_weight = None
    return plain


def features(model: KernelEstimator, X: Array) -> Float[Array, "b D"]:
    """Return φ(X) as the model rounds it, in float64; no columns where there is no map."""
    if not has_features(model):
        return np.zeros((X.shape[0], 0))
    return to_numpy(Rounded(model.kernel_, model.map_, model.feature_dtype_)(X)).astype(np.float64)


# --- Random rows and their predictions -----------------------------------------------------------


class Examined(NamedTuple):
    """Random rows, labels as codes, and the predictions of a learner for them."""

    n_rows: int  # Of all data
    X: Any
    y: Any
    w: Array
    index: Array
    outputs: Mapping[str, Array]  # Of the learner; none of learners that transform only

    @property
    def predicted(self) -> Array | None:
        """Labels, predictions or clusters; None for learners that transform only."""
        names = ("label", "prediction", "cluster")
        return next((self.outputs[name] for name in names if name in self.outputs), None)

    @property
    def rows(self) -> Blocks:
        """The rows as the learner reads them."""
        return Blocks.from_arrays(self.X)

    def sample(self, m: int, seed: int) -> Sample:
        """Return ``m`` random rows of them."""
        kept = np.flatnonzero(np.isin(self.index, chosen_rows(seed, self.n_rows, m)))
        y = None if self.y is None else self.y[kept]
        return Sample(self.X[kept], y, self.w[kept], self.index[kept])


def examine(model: KernelEstimator, blocks: Blocks, seed: int) -> Examined:
    """Return the predictions of at most 2²⁰ random rows, of all rows if there are no more."""
    most = max(FEWEST_ROWS, min(MOST_ROWS, MOST_NUMBERS // blocks.n_columns))
    X, y, w, index = blocks.sample(most, seed)
    X = X if is_sparse(X) else to_numpy(X)
    w = np.ones(len(index)) if w is None else to_numpy(w).astype(np.float64)
    outputs = {} if kind_of(model) == "features" else model.outputs(Blocks.from_arrays(X))
    n_rows = len(index) if len(index) < most else count_rows(blocks)
    return Examined(n_rows, X, None if y is None else to_numpy(y), w, index, outputs)


# --- Rows to look at -----------------------------------------------------------------------------


class Row(NamedTuple):
    """A row to inspect: number, the value that ranks the row, target, prediction and columns."""

    number: int
    value: float
    observed: Any
    predicted: Any
    x: Sequence[Any]  # of a table the cells as they were given, None where they are missing


@dataclass(frozen=True, eq=False)
class RowList:
    """The rows of largest value, largest first, and the meaning of the value."""

    title: str
    measure: str
    words: str
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, eq=False)
class Seen:
    """The rows of the data, the predicted groups, and the rows to look at."""

    n_rows: int
    n_examined: int  # Random rows that errors, counts and lists are of
    counts: dict[str, int]  # Rows by cluster, or inside and outside
    lists: tuple[RowList, ...]
    columns: tuple[str, ...]  # Names of the columns of listed rows, of a table as it was given


def seen_of(
    model: KernelEstimator, examined: Examined, leverage: "RowLeverage | None", given: Blocks
) -> Seen:
    """Return the rows to look at, with cells as ``given`` has them, and the predicted groups."""
    lists = [
        replace(one, rows=_largest(examined, values))
        for one, values in _ranked(model, examined, leverage)
    ]
    lists = [one for one in lists if one.rows]
    columns: tuple[str, ...] = ()
    numbers = [row.number for one in lists for row in one.rows]
    table = given.as_given(numbers) if numbers else None
    if table is not None:
        columns, cells = table
        of_row = dict(zip(numbers, cells, strict=True))
        for i, one in enumerate(lists):
            rows = tuple(row._replace(x=of_row[row.number]) for row in one.rows)
            lists[i] = replace(one, rows=rows)
    counts = _counts(model, examined.predicted)
    return Seen(examined.n_rows, len(examined.index), counts, tuple(lists), columns)


def _counts(model: KernelEstimator, predicted: Array | None) -> dict[str, int]:
    """Return the rows by cluster, or inside and outside, the most frequent first."""
    kind = kind_of(model)
    if kind not in ("clusters", "outliers") or predicted is None:
        return {}
    names = {1: "inside", -1: "outside"} if kind == "outliers" else {}
    labels, counts = np.unique(predicted, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {names.get(int(labels[i]), str(labels[i])): int(counts[i]) for i in order}


def _largest(examined: Examined, values: Array) -> tuple[Row, ...]:
    rows = []
    for j in np.argsort(-values, kind="stable")[:LISTED]:
        x = examined.X[[j]].toarray()[0] if is_sparse(examined.X) else examined.X[j]
        y, f = (None if a is None else a[j] for a in (examined.y, examined.predicted))
        rows.append(Row(int(examined.index[j]), float(values[j]), y, f, x))
    return tuple(rows)


def _ranked(
    model: KernelEstimator, examined: Examined, leverage: "RowLeverage | None"
) -> Iterator[tuple[RowList, Array]]:
    """Yield the lists of this learner without rows, and the value of each row."""
    kind, rows, title = kind_of(model), examined.rows, "Rows whose prediction is least certain"
    out = examined.outputs
    process = isinstance(model, GaussianProcessRegressor)
    if "probability" in out:
        words = "1 − the probability of the label predicted."
        yield RowList(title, "doubt", words), 1 - out["probability"].max(axis=1)
    elif kind == "classification":
        words = "The margin between the label predicted and the next, negated: 0 is a tie."
        best = np.sort(_by_class(out["decision"]), axis=1)
        margin = (best[:, -1] - best[:, -2]) / (1 + (out["decision"].ndim == 1))
        yield RowList(title, "−margin", words), -margin
    elif process:
        words = "Standard deviation of f(x) under the posterior, in units of the target."
        deviation = out["deviation"].reshape(len(out["deviation"]), -1)[:, 0]
        yield RowList(title, "deviation", words), deviation
    elif leverage is not None:
        words = (
            "σ√h(x): the standard deviation that a Gaussian process on the same features would "
            "give, in units of the target; h(x) is the leverage of the row."
        )
        blocks = rows.with_rows(block_rows(model.map_.n_features))
        parts = [leverage.deviation(features(model, block.X)) for block in blocks]
        yield RowList(title, "deviation", words), np.concatenate(parts)
    elif kind == "outliers":
        words = "−φ(x)·β: the higher, the less like the rows of the fit."
        yield (
            RowList("Rows most unlike the others", "strangeness", words),
            -(out["decision"] + float(model.offset_[0])),
        )
    elif kind == "clusters":
        words = "Distance to the nearest centre over that to the next: 1 is halfway between two."
        yield RowList(title, "ratio", words), _between(model, rows)
    y, predicted, title = examined.y, examined.predicted, "Rows with the largest errors"
    if kind != "regression" or y is None or predicted is None or predicted.size != y.size:
        return
    errors = np.abs(y.reshape(len(y), -1) - predicted.reshape(len(y), -1))[:, 0]
    if process:
        words = "|y − mean| in standard deviations of a new y: beyond 4 is a row to look at."
        spread = np.sqrt(deviation**2 + np.atleast_1d(model.noise_variance_)[0])
        yield RowList(title, "deviations off", words), errors / spread
    else:
        words = "|observed − predicted|, in units of the target (the first, if there are several)."
        yield RowList(title, "error", words), errors


def _between(model: KernelEstimator, rows: Blocks) -> Array:
    distances = np.sort(to_numpy(model.transform(rows)), axis=1)
    if distances.shape[1] < 2:
        return np.zeros(len(distances))
    ratio = np.ones(len(distances))
    return np.divide(distances[:, 0], distances[:, 1], out=ratio, where=distances[:, 1] > 0)


@dataclass(frozen=True, eq=False)
class RowLeverage:
    """h(x) of a ridge regression: (φ(x) − z̄)ᵀ(G + λI)⁻¹(φ(x) − z̄) + 1/W, (b, t)."""

    eigen: Eigen
    mean: Float[Array, " D"]
    alpha: Float[Array, " t"]
    deviations: Float[Array, " t"]

    @staticmethod
    def of(model: KernelEstimator, moments: Moments, eigen: Eigen) -> "RowLeverage | None":
        """Return the leverages of a ridge regression or Gaussian process; None if they are unknown.

        None also without a penalty: rows that can be fitted exactly then have leverage 1.
        """
        process = isinstance(model, GaussianProcessRegressor)
        alpha = model.evidence_.alpha if process else model.solution_.alpha
        alpha = np.atleast_1d(np.asarray(alpha, np.float64))
        if not np.all(alpha > 0):
            return None
        mean = moments.feature_mean if eigen.centred else 0 * moments.feature_mean
        freedom = (eigen.values[:, None] / (eigen.values[:, None] + alpha)).sum(axis=0)
        left = np.maximum(eigen.count - eigen.centred - freedom, 1.0)
        power = eigen.residual_power_at(alpha)
        return RowLeverage(eigen, mean, alpha, np.sqrt(power / left))

    def __call__(self, Z: Array) -> Float[Array, "b t"]:
        squares = ((Z - self.mean) @ self.eigen.vectors) ** 2
        spread = 1 / self.eigen.weight if self.eigen.centred else 0.0
        return squares @ (1 / (self.eigen.values[:, None] + self.alpha)) + spread

    def left_out(
        self, Z: Array, y: Float[Array, "b t"], fitted: Float[Array, "b t"], w: Array
    ) -> Float[Array, "b t"]:
        """Return what the fit without the row predicts for it, exactly: y − (y − ŷ)/(1 − h)."""
        return y - left_out_errors(y - fitted, self._slack(Z, w))

    def resolves(self, Z: Array, w: Array) -> bool:
        """Whether rounding leaves 1 − h positive for all rows."""
        return bool(np.all(self._slack(Z, w) > 0))

    def _slack(self, Z: Array, w: Array) -> Float[Array, "b t"]:
        return slack_above_rounding(self.eigen, np.float64, self(Z), w, self.alpha)

    def deviation(self, Z: Array) -> Array:
        """Return σ√h of the first target."""
        return self.deviations[0] * np.sqrt(self(Z)[:, 0])


# --- Errors --------------------------------------------------------------------------------------

#: Measures of errors and their names.
MEASURES = {
    "rmse": "RMSE",
    "r_squared": "R²",
    "explained": "share of the loss explained",
    "accuracy": "labels right",
    "majority": "most frequent label",
    "log_loss": "log loss",
    "auc": "AUC",
    "outside": "share outside",
    "nu": "nu",
    "loo_rmse": "leave-one-out RMSE",
    "loo_r_squared": "leave-one-out R²",
    "loo_accuracy": "leave-one-out, right",
}


def errors_in_words(errors: Mapping[str, Mapping[str, float]]) -> str:
    """Return the errors of each target as text."""
    named = len(errors) > 1
    return "; ".join(
        f"{name}: " * named + ", ".join(f"{MEASURES[k]} {number(v)}" for k, v in values.items())
        for name, values in errors.items()
    )


def _by_class(f: Array) -> Float[Array, "m K"]:
    """Return the decision value of each class."""
    return np.column_stack([-f, f]) if f.ndim == 1 else f


def label_errors(
    model: Any, outputs: Mapping[str, Array], labels: Array, w: Float[Array, " m"]
) -> Iterator[tuple[str, float]]:
    """Yield accuracy, share of the most frequent label, log loss and area under the curve.

    Without probabilities there is no log loss. "auc" is the area under the receiver operating
    curve; for several classes, the mean over one-against-rest curves of the classes that occur.
    """
    classes = model.classes_
    yield "accuracy", float(accuracy_score(labels, outputs["label"], sample_weight=w))
    yield "majority", max(float(w[labels == c].sum() / w.sum()) for c in classes)
    f, p = _by_class(outputs["decision"]), outputs.get("probability")
    if p is not None:
        yield (
            "log_loss",
            float(log_loss(labels, p.astype(np.float64), sample_weight=w, labels=classes)),
        )
    both = [k for k, c in enumerate(classes) if 0 < w[labels == c].sum() < w.sum()]
    if both:
        areas = [roc_auc_score(labels == classes[k], f[:, k], sample_weight=w) for k in both]
        yield "auc", float(np.mean(areas))


def number_errors(
    model: KernelEstimator, y: Array, predicted: Array, w: Float[Array, " m"]
) -> dict[str, dict[str, float]]:
    """Return the root mean squared error and R² of each target."""
    y, f = (a.reshape(len(y), -1).astype(np.float64) for a in (y, predicted))
    squared = np.average((y - f) ** 2, axis=0, weights=w)
    variance = np.average((y - np.average(y, axis=0, weights=w)) ** 2, axis=0, weights=w)
    pairs = zip(target_names(model, y.shape[1]), squared, variance, strict=True)
    return {name: _pair(*pair) for name, *pair in pairs}


def _pair(squared: float, variance: float) -> dict[str, float]:
    share = 1 - squared / variance if variance > 0 else float("nan")
    return {"rmse": float(squared) ** 0.5, "r_squared": float(share)}


def errors_of(model: KernelEstimator, examined: Examined) -> dict[str, dict[str, float]]:
    """Return the errors of each target; none without targets or a single prediction of each."""
    kind, y, predicted = kind_of(model), examined.y, examined.predicted
    if y is None or predicted is None or not examined.w.sum() > 0:
        return {}
    if kind == "classification":
        labels = model.classes_[y.astype(np.intp)]
        errors = label_errors(model, examined.outputs, labels, examined.w)
        return {target_names(model, 1)[0]: dict(errors)}
    if kind != "regression" or predicted.size != y.size:
        return {}
    return number_errors(model, y, predicted, examined.w)


def target_names(model: KernelEstimator, t: int) -> tuple[str, ...]:
    """Return the names of ``t`` targets, if any."""
    names = () if model.schema_ is None else model.schema_.target_names or ()
    if len(names) == t:
        return names
    return ("target",) if t == 1 else tuple(f"target {i + 1}" for i in range(t))


def certificate_of(model: KernelEstimator, blocks: Blocks, other: bool) -> Certificate | str:
    """Return the certificate on the rows of the fit, or on other rows; why, if there is none."""
    if not has_features(model):
        return "the fit has the kernel itself, and nothing to certify."
    try:
        return model._certificate_on(model._as_fitted(blocks), other)
    except InvalidInput as error:
        return str(error)


class Residuals(NamedTuple):
    """Observed and predicted values of one target, and its name."""

    observed: Float[Array, " m"]
    predicted: Float[Array, " m"]
    name: str


@dataclass(frozen=True, eq=False)
class Quality:
    """Predicted and observed: residuals of the first target, and targets of the sample."""

    # Measures of each target on the rows examined. The cost of leaving rows out, of measures that
    # begin with "loo_", is measured on the sample and added to the error of all.
    errors: dict[str, dict[str, float]]
    left_out: bool = False  # whether pictures and calibration show leave-one-out predictions
    residuals: Residuals | None = None
    calibration: CalibrationDisplay | None = None
    # Weight of rows by true class (down) and predicted class (across)
    confusion: Float[Array, "K K"] | None = None
    labels: Any = None


def quality_of(
    model: KernelEstimator, sample: Sample, examined: Examined, leverage: RowLeverage | None
) -> Quality:
    """Judge the predictions; with ``leverage``, of rows of the fit left out one by one.

    Where rounding hides the effect of leaving out a row, rows stay in.
    """
    kind = kind_of(model)
    if sample.y is None or kind not in ("regression", "classification"):
        return Quality({})
    if leverage is not None and not leverage.resolves(features(model, sample.X), sample.w):
        leverage = None
    judge = _classified if kind == "classification" else _regressed
    return judge(model, sample, examined, leverage)


def _regressed(
    model: KernelEstimator, sample: Sample, examined: Examined, leverage: RowLeverage | None
) -> Quality:
    y = sample.y.astype(np.float64)
    rows, columns, w = Blocks.from_arrays(sample.X), y.reshape(len(y), -1), sample.w
    errors, fitted = errors_of(model, examined), to_numpy(model.predict(rows))
    if not errors:  # several quantiles: no one prediction
        return Quality({}, calibration=CalibrationDisplay.from_estimator(model, rows, y), labels=y)
    fitted = fitted.reshape(columns.shape)
    if leverage is not None:
        without = leverage.left_out(features(model, sample.X), columns, fitted, w)
        gained = np.average((columns - without) ** 2 - (columns - fitted) ** 2, axis=0, weights=w)
        every = examined.y.reshape(len(examined.index), -1).astype(np.float64)
        mean = np.average(every, axis=0, weights=examined.w)
        spread = np.average((every - mean) ** 2, axis=0, weights=examined.w)
        for j, one in enumerate(errors.values()):
            left_out = _pair(one["rmse"] ** 2 + gained[j], spread[j])
            one |= {f"loo_{key}": value for key, value in left_out.items()}
        fitted = without
    if not isinstance(model, GaussianProcessRegressor):
        calibration = CalibrationDisplay.of_means(columns[:, 0], fitted[:, 0])
    elif leverage is not None and len(model.calibration_):
        calibration = CalibrationDisplay.of_scores(model.calibration_.scores[:, 0])
    else:
        calibration = CalibrationDisplay.from_estimator(model, rows, columns)
    residuals = Residuals(columns[:, 0], fitted[:, 0], next(iter(errors)))
    return Quality(errors, leverage is not None, residuals, calibration, labels=y)


def _classified(
    model: KernelEstimator, sample: Sample, examined: Examined, leverage: RowLeverage | None
) -> Quality:
    codes = sample.y.astype(int)
    labels, errors = model.classes_[codes], errors_of(model, examined)
    observed = model.classes_[examined.y.astype(int)]
    confusion = confusion_matrix(
        observed, examined.predicted, sample_weight=examined.w, labels=model.classes_
    )
    if leverage is not None:
        before, confusion = _left_out(model, sample, codes, leverage)
        lost = (np.trace(before) - np.trace(confusion)) / confusion.sum()
        for one in errors.values():
            one["loo_accuracy"] = one["accuracy"] - float(lost)
    calibration = None
    if hasattr(model, "predict_proba"):
        rows = Blocks.from_arrays(sample.X)
        calibration = CalibrationDisplay.from_estimator(model, rows, labels)
    return Quality(errors, leverage is not None, None, calibration, confusion, labels)


def _left_out(
    model: KernelEstimator, sample: Sample, codes: Array, leverage: RowLeverage
) -> tuple[Array, Array]:
    """Return two confusion tables of the sample: of fitted and of leave-one-out predictions."""
    K, Z = len(model.classes_), features(model, sample.X)
    fitted = Z @ model.solution_.coef + model.solution_.intercept
    Y = indicators(codes.astype(np.float64), K)
    tables = np.zeros((2, K, K))
    for table, f in zip(tables, (fitted, leverage.left_out(Z, Y, fitted, sample.w)), strict=True):
        chosen = (f[:, 0] > 0).astype(int) if K == 2 else f.argmax(axis=1)
        np.add.at(table, (codes, chosen), sample.w)
    return tables[0], tables[1]
