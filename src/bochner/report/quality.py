"""Measures of a report: predictions of random rows, their errors, and the rows to look at."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier, is_clusterer, is_outlier_detector, is_regressor
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

import bochner as bo
from bochner._core.arrays import dense, is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import count_rows
from bochner.data.sample import Sample, chosen_rows
from bochner.errors import DataWarning, InvalidInput, SolutionWarning
from bochner.models._base import KernelEstimator
from bochner.models._labels import LabelEstimator, decided
from bochner.models.error_law import LeftOutRows
from bochner.report.render import number

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


def coded(
    model: KernelEstimator, X: Any, y: Any = None, w: Any = None, first: bool = False
) -> bo.Blocks:
    """Return the rows as the fit reads them, of a classifier without class_weight.

    Its labels are codes, and rows keep their own weights.
    """
    if not isinstance(model, LabelEstimator):
        return model._read(X, y, w, first)[0]
    plain: Any = copy(model)
    plain.class_weight = None
    return LabelEstimator._read(plain, X, y, w, first)[0]


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

    def sample(self, m: int, seed: int) -> Sample:
        """Return ``m`` random rows of them."""
        kept = np.flatnonzero(np.isin(self.index, chosen_rows(seed, self.n_rows, m)))
        y = None if self.y is None else self.y[kept]
        return Sample(self.X[kept], y, self.w[kept], self.index[kept])


def examine(model: KernelEstimator, blocks: bo.Blocks, seed: int) -> Examined:
    """Return random rows and their predictions: 2²⁰, fewer if columns are many, all if no more."""
    most = max(FEWEST_ROWS, min(MOST_ROWS, MOST_NUMBERS // blocks.n_columns))
    X, y, w, index = blocks.sample(most, seed)
    X = X if is_sparse(X) else to_numpy(X)
    w = np.ones(len(index)) if w is None else to_numpy(w).astype(np.float64)
    outputs = {} if kind_of(model) == "features" else model.outputs(bo.Blocks.from_arrays(X))
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


class RowList(NamedTuple):
    """The rows of largest value, largest first, and the meaning of the value."""

    title: str
    measure: str
    words: str
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, eq=False)
class Seen:
    """The rows of the data, the predicted groups, and the rows to look at."""

    n_rows: int
    n_examined: int  # Random rows that errors, counts and the list are of
    counts: dict[str, int]  # Rows by cluster, or inside and outside
    worst: RowList | None
    columns: tuple[str, ...]  # Names of the columns of listed rows, of a table as it was given


def seen_of(model: KernelEstimator, examined: Examined, given: bo.Blocks) -> Seen:
    """Return the rows to look at, with cells as ``given`` has them, and the predicted groups."""
    columns: tuple[str, ...] = ()
    worst, values = _ranked(model, examined)
    if worst is not None:
        places = np.argsort(-values, kind="stable")[:8]
        numbers, X = examined.index[places].tolist(), dense(examined.X[places])
        columns, X = given.as_given(numbers) or ((), X)
        y, f = (
            [None] * len(X) if a is None else a[places] for a in (examined.y, examined.predicted)
        )
        lines = zip(numbers, values[places].tolist(), y, f, X, strict=True)
        worst = worst._replace(rows=tuple(map(Row._make, lines)))
    kind, counts = kind_of(model), Counter[str]()
    if kind in ("clusters", "outliers"):
        names = {1: "inside", -1: "outside"} if kind == "outliers" else {}
        labels = np.asarray(examined.predicted).tolist()
        counts.update(names.get(label, str(label)) for label in labels)
    return Seen(examined.n_rows, len(examined.index), dict(counts.most_common()), worst, columns)


def _ranked(model: KernelEstimator, examined: Examined) -> tuple[RowList | None, Array]:
    """Return what rows of this learner are ranked by, and the value of each row."""
    kind, out, y = kind_of(model), examined.outputs, examined.y
    if kind == "outliers":
        words = "−φ(x)·β: the higher, the less like the rows of the fit."
        strangeness = -(out["decision"] + float(model.offset_[0]))
        return RowList("Rows most unlike the others", "strangeness", words), strangeness
    title, predicted = "Rows with the largest errors", examined.predicted
    if y is None or predicted is None or predicted.size != y.size:
        return None, np.empty(0)
    if kind == "classification":
        words = "By how much the value of another label exceeds that of the observed label."
        values, labelled = _by_class(out["decision"]), (np.arange(len(y)), y.astype(np.intp))
        others = values.copy()
        others[labelled] = -np.inf
        return RowList(title, "−margin", words), others.max(axis=1) - values[labelled]
    errors = np.abs(y.reshape(len(y), -1) - predicted.reshape(len(y), -1))[:, 0]
    if isinstance(model, bo.GaussianProcessRegressor):
        words = "|y − mean| in standard deviations of a new y: beyond 4 is a row to look at."
        deviation = out["deviation"].reshape(len(y), -1)[:, 0]
        spread = np.sqrt(deviation**2 + np.atleast_1d(model.noise_variance_)[0])
        return RowList(title, "deviations off", words), errors / spread
    words = "|observed − predicted|, in units of the target (the first, if there are several)."
    return RowList(title, "error", words), errors


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
    classes: Array, outputs: Mapping[str, Array], labels: Array, w: Float[Array, " m"]
) -> Iterator[tuple[str, float]]:
    """Yield accuracy, share of the most frequent label, log loss and area under the curve.

    Without probabilities there is no log loss. "auc" is the area under the receiver operating
    curve; for several classes, the mean over one-against-rest curves of the classes that occur.
    """
    yield "accuracy", float(accuracy_score(labels, outputs["label"], sample_weight=w))
    shares = [float(w[labels == c].sum() / w.sum()) for c in classes]
    yield "majority", max(shares)
    f, p = _by_class(outputs["decision"]), outputs.get("probability")
    if p is not None:
        p = p.astype(np.float64)
        yield "log_loss", float(log_loss(labels, p, sample_weight=w, labels=classes))
    both = [k for k, share in enumerate(shares) if 0 < share < 1]
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
    return {
        name: {"rmse": float(s) ** 0.5, "r_squared": float(1 - s / v) if v > 0 else float("nan")}
        for name, s, v in zip(target_names(model, y.shape[1]), squared, variance, strict=True)
    }


def errors_of(model: KernelEstimator, examined: Examined) -> dict[str, dict[str, float]]:
    """Return the errors of each target; none without targets or a single prediction of each."""
    kind, y, predicted = kind_of(model), examined.y, examined.predicted
    if y is None or predicted is None or not examined.w.sum() > 0:
        return {}
    if kind == "classification":
        labels = model.classes_[y.astype(np.intp)]
        errors = label_errors(model.classes_, examined.outputs, labels, examined.w)
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


def certificate_of(
    model: KernelEstimator, blocks: bo.Blocks, other: bool = False
) -> tuple[bo.Certificate | None, str]:
    """Return the certificate on the rows of the fit, or on other rows; if none, the reason."""
    if not model._has_features:
        return None, "none: the fit has the kernel itself, and nothing to certify."
    try:
        certificate = model._certificate_on(model._as_fitted(blocks), other)
    except InvalidInput as error:
        return None, f"none: {error}"
    return certificate, str(certificate)


class Residuals(NamedTuple):
    """Observed and predicted values of one target, and its name."""

    observed: Float[Array, " m"]
    predicted: Float[Array, " m"]
    name: str


@dataclass(frozen=True, eq=False)
class Quality:
    """Predicted and observed: residuals of the first target, and targets of the sample."""

    # Measures of each target on the rows examined; those that begin with "loo_" are of the rows
    # that the fit kept, each predicted without itself
    errors: dict[str, dict[str, float]]
    left_out: int = 0  # rows that pictures show by leave-one-out predictions; 0: the sample
    residuals: Residuals | None = None
    calibration: bo.CalibrationDisplay | None = None
    # Weight of rows by true class (down) and predicted class (across)
    confusion: Float[Array, "K K"] | None = None


def left_out_of(model: KernelEstimator) -> LeftOutRows | None:
    """Return rows of the fit that are predicted without themselves, of learners with features."""
    fit: Any = model.fit_
    if isinstance(model, bo.GaussianProcessRegressor):
        rows = fit.law.representation.left_out(fit.law.evidence)
    else:
        squares = isinstance(model, bo.KernelRidge | bo.KernelRidgeClassifier)
        rows = fit.left_out() if squares else None
    # an error that rounding hides is infinite
    return None if rows is None else rows.take(np.isfinite(rows.errors).all(axis=1))


def quality_of(
    model: KernelEstimator, sample: Sample, examined: Examined, left_out: LeftOutRows | None
) -> Quality:
    """Judge the predictions, of rows of the fit by ``left_out`` where there are any."""
    kind = kind_of(model)
    if sample.y is None or kind not in ("regression", "classification"):
        return Quality({})
    if left_out is not None and not len(left_out.w):
        left_out = None
    judge = _classified if kind == "classification" else _regressed
    return judge(model, sample, examined, left_out)


def _regressed(
    model: KernelEstimator, sample: Sample, examined: Examined, left_out: LeftOutRows | None
) -> Quality:
    y, rows = sample.y.astype(np.float64), bo.Blocks.from_arrays(sample.X)
    errors = errors_of(model, examined)
    if not errors:  # several quantiles: no one prediction
        return Quality({}, calibration=bo.CalibrationDisplay.from_estimator(model, rows, y))
    observed = y.reshape(len(y), -1)
    if left_out is None:
        predicted = to_numpy(model.predict(rows)).reshape(observed.shape)
    else:
        predicted, observed = left_out.predicted, left_out.predicted + left_out.errors
        for name, values in number_errors(model, observed, predicted, left_out.w).items():
            errors[name] |= {f"loo_{key}": value for key, value in values.items()}
    if not isinstance(model, bo.GaussianProcessRegressor):
        calibration = bo.CalibrationDisplay.of_means(observed[:, 0], predicted[:, 0])
    elif left_out is not None and len(model.calibration_):
        calibration = bo.CalibrationDisplay.of_scores(model.calibration_.targets[0].scores)
    else:
        calibration = bo.CalibrationDisplay.from_estimator(model, rows, y.reshape(len(y), -1))
    residuals = Residuals(observed[:, 0], predicted[:, 0], next(iter(errors)))
    return Quality(errors, 0 if left_out is None else len(left_out.w), residuals, calibration)


def _classified(
    model: KernelEstimator, sample: Sample, examined: Examined, left_out: LeftOutRows | None
) -> Quality:
    errors, classes = errors_of(model, examined), model.classes_
    if left_out is None:
        observed, predicted = classes[examined.y.astype(int)], examined.predicted
        w = examined.w
    else:
        observed = classes[decided(left_out.predicted + left_out.errors)]
        predicted, w = classes[decided(left_out.predicted)], left_out.w
        right = float(accuracy_score(observed, predicted, sample_weight=w))
        for one in errors.values():
            one["loo_accuracy"] = right
    confusion = confusion_matrix(observed, predicted, sample_weight=w, labels=classes)
    calibration = None
    if hasattr(model, "predict_proba"):
        rows, labels = bo.Blocks.from_arrays(sample.X), classes[sample.y.astype(int)]
        calibration = bo.CalibrationDisplay.from_estimator(model, rows, labels)
    return Quality(errors, 0 if left_out is None else len(w), None, calibration, confusion)


# --- Errors on rows held out of a second fit ------------------------------------------------------

#: Rows that are looked at, at most, and how many of them to one that is held out.
ROWS, TO_ONE = 8192, 5


def judge_held_out(
    model: KernelEstimator, blocks: bo.Blocks, n_sample: int = ROWS
) -> tuple[dict[str, Any] | None, str]:
    """Return the errors of a learner like this on rows held out of its fit, and their words.

    A copy is fitted to the other rows and makes every choice of the learner again. Errors are by
    target, then by measure, beside the numbers of rows. Without any, None and why.
    Every fifth of the random rows is held out, of labels every fifth of each. The other fit has the
    same parameters, with penalties in proportion to its rows.
    """
    if not (is_classifier(model) or is_regressor(model) or isinstance(model, bo.OneClassSVM)):
        return None, f"none: {type(model).__name__} predicts nothing that could be wrong."
    rows = coded(model, blocks, first=True)
    sample = rows.sample(n_sample, model.seed_)
    sample = sample if is_sparse(sample.X) else sample._replace(X=to_numpy(sample.X))
    y = None if sample.y is None else to_numpy(sample.y)
    train, test = _split(len(sample.index), y if is_classifier(model) else None, model.seed_)
    if not len(test):
        return None, f"none: {len(train)} rows are too few to hold some out."
    n = count_rows(blocks)
    try:
        other = _fitted_to(model, sample, train, n)
    except (InvalidInput, ValueError) as error:
        return None, f"none: a fit to {len(train)} rows is refused: {error}"
    X, w, of_values = sample.X[test], np.ones(len(test)), ("squared", "huber", "absolute")
    if sample.w is not None and to_numpy(sample.w)[test].sum() > 0:
        w = to_numpy(sample.w)[test].astype(np.float64)
    if y is None:
        outside = float(np.average(to_numpy(other.predict(X)) < 0, weights=w))
        errors = {"rows": {"outside": outside, "nu": float(model.get_params()["nu"])}}
    elif isinstance(model, bo.KernelRegressor) and model.loss not in of_values:
        errors = {target_names(model, 1)[0]: {"explained": other.score(X, y[test], w)}}
    else:
        seen = Examined(len(w), X, y[test], w, np.arange(len(w)), other.outputs(X))
        errors = errors_of(model, seen)
    facts = {"errors": errors, "n_train": len(train), "n_test": len(test), "n_rows": n}
    whose = f"held out: {len(test):,} rows, of a fit to {len(train):,} others"
    return facts, f"{errors_in_words(errors)} ({whose})"


def _split(n: int, codes: Array | None, seed: int) -> tuple[Array, Array]:
    """Return rows to fit and rows to hold out: of each label at least one is kept."""
    order = stream(seed, "held out").permutation(n)
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
    out = np.arange(n) % TO_ONE == TO_ONE - 1
    if codes is not None:
        sorted_codes = codes[order]
        out[1:] &= sorted_codes[1:] == sorted_codes[:-1]
    return np.sort(order[~out]), np.sort(order[out])


def _fitted_to(model: KernelEstimator, sample: Sample, train: Array, n: int) -> Any:
    one, share, scaled = clone(model), len(train) / n, {}
    asked = model.get_params(deep=False)
    # penalties that are numbers weigh fewer rows as they weigh all
    for name, factor in (("alpha", share), ("C", 1 / share)):
        value = asked.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not isinstance(model, bo.KernelSGDClassifier | bo.KernelSGDRegressor):
            scaled[name] = float(value) * factor
    one.set_params(**scaled, random_state=model.seed_)
    w = None if sample.w is None else to_numpy(sample.w)[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SolutionWarning)
        warnings.simplefilter("ignore", DataWarning)
        if sample.y is None:
            return one.fit(sample.X[train], sample_weight=w)
        y = to_numpy(sample.y)[train]
        labels = model.classes_[y.astype(np.intp)] if is_classifier(model) else y
        return one.fit(sample.X[train], labels, sample_weight=w)
