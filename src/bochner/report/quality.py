"""Measures of a report: predictions for a random sample, their errors, and rows to inspect."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn import metrics
from sklearn.base import clone
from sklearn.utils import Bunch, get_tags

import bochner as bo
from bochner._core.arrays import dense, is_sparse, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.blocks import count_rows
from bochner.data.sample import sample_rows
from bochner.data.tables import Tables
from bochner.errors import BochnerWarning, InvalidInput
from bochner.models._base import KernelEstimator
from bochner.models._labels import LabelEstimator, decide
from bochner.report.render import number

#: Most random rows that are predicted, and most of their cells: 256 MB in float64.
MAX_ROWS, MAX_NUMBERS = 1 << 20, 1 << 25
FEWEST_ROWS = 1024  # for any number of columns


# --- The kind of a learner, its features and its rows --------------------------------------------


def task_of(model: KernelEstimator) -> str:
    """Return the task of a learner: "regression", "classification", "clusters", …."""
    kinds = {"classifier": "classification", "regressor": "regression", "clusterer": "clusters"}
    kinds["outlier_detector"] = "outliers"
    return kinds.get(get_tags(model).estimator_type or "", "features")


def encode_rows(
    model: KernelEstimator, X: Any, y: Any = None, w: Any = None, first: bool = False
) -> bo.Blocks:
    """Return rows as the fit (``first``: a new fit) reads them: label codes, no class weights."""
    labels, blocks = isinstance(model, LabelEstimator), isinstance(X, bo.Blocks)
    if y is None and (labels or w is None) and not blocks:
        return model._rows_to_predict(X)
    if not labels:
        return model._read(X, y, w, first=first)[0]
    if blocks and not first:
        X = model._encode_as_fit(X)
        if next(iter(X)).y is None:
            return X
    unweighted: Any = copy(model)
    unweighted.class_weight = None
    return LabelEstimator._read(unweighted, X, y, w, first=first)[0]


# --- Random rows and their predictions -----------------------------------------------------------


class EvalRows(NamedTuple):
    """Rows with targets (labels as codes) and the predictions of a learner."""

    n_rows: int  # of all data
    X: Any
    y: Any
    w: Array
    index: Array
    outputs: Mapping[str, Array]  # of the learner; empty for learners that only transform

    @property
    def predicted(self) -> Array | None:
        """Labels, predictions or clusters; None for learners that only transform."""
        names = ("label", "prediction", "cluster")
        return next((self.outputs[name] for name in names if name in self.outputs), None)

    def take(self, places: Array) -> "EvalRows":
        """Return the rows at these places."""
        X, y, w, index = (None if a is None else a[places] for a in self[1:5])
        outputs = {name: values[places] for name, values in self.outputs.items()}
        return EvalRows(self.n_rows, X, y, w, index, outputs)

    def sample(self, m: int, seed: int) -> "EvalRows":
        """Return ``m`` of these rows at random."""
        return self.take(np.flatnonzero(np.isin(self.index, sample_rows(seed, self.n_rows, m))))


def random_rows(blocks: bo.Blocks, limit: int, seed: int) -> EvalRows:
    """Return up to ``limit`` random rows, without predictions."""
    X, y, w, index = blocks.sample(limit, seed)
    X, y = X if is_sparse(X) else to_numpy(X), None if y is None else to_numpy(y)
    w = np.ones(len(index)) if w is None else to_numpy(w).astype(np.float64)
    n_rows = len(index) if len(index) < limit else count_rows(blocks)
    return EvalRows(n_rows, X, y, w, index, {})


def examine(model: KernelEstimator, blocks: bo.Blocks, seed: int) -> EvalRows:
    """Return up to 2²⁰ random rows and their predictions; fewer if there are many columns."""
    limit = max(FEWEST_ROWS, min(MAX_ROWS, MAX_NUMBERS // blocks.n_columns))
    rows = random_rows(blocks, limit, seed)
    if task_of(model) == "features":
        return rows
    return rows._replace(outputs=model.outputs(bo.Blocks.from_arrays(rows.X)))


def rows_to_inspect(model: KernelEstimator, rows: EvalRows, table: bo.Blocks) -> Bunch:
    """Return the rows to inspect, with the cells of ``table``, and the sizes of predicted groups.

    ``n_evaluated`` of ``n_rows`` rows are ranked by ``measure`` ("": by none). ``counts`` are the
    numbers of rows in each cluster, or inside and outside (OneClassSVM). ``worst`` are the rows of
    largest value, largest first: ``number``, ``value``, ``known`` (the target, if any, and the
    prediction; labels are text) and ``x``, cells in the ``columns`` of a table, None where missing.
    """
    kind, n_rows = task_of(model), len(rows.index)
    result = Bunch(n_rows=rows.n_rows, n_evaluated=n_rows, counts={}, worst=(), columns=())
    result.measure, values = _rank(model, rows)
    if result.measure:
        places = np.argsort(-values, kind="stable")[:8]
        numbers, X = rows.index[places].tolist(), dense(rows.X[places])
        if isinstance(table.source, Tables):
            result.columns, X = table.source.raw_rows(numbers)
        columns = [a[places] for a in (rows.y, rows.predicted) if a is not None]
        if kind == "classification":
            codes, labels = columns
            columns = [model.classes_[codes.astype(np.intp)].astype(str), labels.astype(str)]
        lines = zip(numbers, values[places].tolist(), zip(*columns, strict=True), X, strict=True)
        result.worst = tuple(Bunch(number=n, value=v, known=k, x=x) for n, v, k, x in lines)
    if kind in ("clusters", "outliers"):
        names = {1: "inside", -1: "outside"} if kind == "outliers" else {}
        groups = Counter(np.asarray(rows.predicted).tolist()).most_common()
        result.counts = {names.get(group, str(group)): count for group, count in groups}
    return result


def _rank(model: KernelEstimator, rows: EvalRows) -> tuple[str, Array]:
    """Return the measure by which rows are ranked ("" if none), and its value for each row."""
    kind, out, y = task_of(model), rows.outputs, rows.y
    if kind == "outliers":
        return "outlier score", -(out["decision"] + float(model.offset_[0]))
    predicted = rows.predicted
    if y is None or predicted is None or predicted.size != y.size:
        return "", np.empty(0)
    if kind == "classification":
        values, true = _class_scores(out["decision"]), (np.arange(len(y)), y.astype(np.intp))
        margin = values.copy()
        margin[true] = -np.inf
        return "negative margin", margin.max(axis=1) - values[true]
    errors = np.abs(y.reshape(len(y), -1) - predicted.reshape(len(y), -1))[:, 0]
    if isinstance(model, bo.GaussianProcessRegressor):
        deviation = out["deviation"].reshape(len(y), -1)[:, 0]
        spread = np.sqrt(deviation**2 + np.atleast_1d(model.noise_variance_)[0])
        return "standardised error", errors / spread
    return "error", errors


# --- Errors --------------------------------------------------------------------------------------

#: Measures of errors and their names.
MEASURES = {
    "rmse": "RMSE",
    "r_squared": "R²",
    "explained": "share of the loss explained",
    "accuracy": "accuracy",
    "majority": "most frequent label",
    "log_loss": "log loss",
    "auc": "AUC",
    "outside": "share outside",
    "nu": "nu",
    "loo_rmse": "leave-one-out RMSE",
    "loo_r_squared": "leave-one-out R²",
    "loo_accuracy": "leave-one-out accuracy",
}


def errors_in_words(errors: Mapping[str, Mapping[str, float]]) -> str:
    """Return the errors of each target as text."""
    multiple = len(errors) > 1
    return "; ".join(
        f"{name}: " * multiple + ", ".join(f"{MEASURES[k]} {number(v)}" for k, v in values.items())
        for name, values in errors.items()
    )


def _class_scores(f: Array) -> Float[Array, "m K"]:
    """Return the decision value of each class."""
    f = f.reshape(len(f), -1)
    return np.hstack([-f, f]) if f.shape[1] == 1 else f


def errors_of(model: KernelEstimator, rows: EvalRows) -> dict[str, dict[str, float]]:
    """Return the errors of each target; the AUC is the mean over the classes that occur."""
    kind, y, predicted, w = task_of(model), rows.y, rows.predicted, rows.w
    if y is None or predicted is None or not w.sum() > 0:
        return {}
    if kind == "regression" and predicted.size == y.size:
        y, f = (a.reshape(len(y), -1).astype(np.float64) for a in (y, predicted))
        squares = np.average((y - f) ** 2, axis=0, weights=w)
        variances = np.average((y - np.average(y, axis=0, weights=w)) ** 2, axis=0, weights=w)
        return {
            name: {"rmse": float(s) ** 0.5, "r_squared": float(1 - s / v) if v > 0 else math.nan}
            for name, s, v in zip(target_names(model, y.shape[1]), squares, variances, strict=True)
        }
    if kind != "classification":
        return {}
    classes, out = model.classes_, rows.outputs
    codes, f = y.astype(np.intp), _class_scores(out["decision"])
    labels, shares = classes[codes], np.bincount(codes, w, len(classes)) / w.sum()
    right = metrics.accuracy_score(labels, predicted, sample_weight=w)
    errors = {"accuracy": float(right), "majority": float(shares.max())}
    if "probability" in out:
        p = out["probability"].astype(np.float64)
        errors["log_loss"] = float(metrics.log_loss(labels, p, sample_weight=w, labels=classes))
    if len(present := np.flatnonzero(shares)) > 1:
        areas = metrics.roc_auc_score(codes[:, None] == present, f[:, present], sample_weight=w)
        errors["auc"] = float(areas)
    return {target_names(model, 1)[0]: errors}


def target_names(model: KernelEstimator, t: int) -> tuple[str, ...]:
    """Return names of ``t`` targets: of the table's columns, or "target", or "target 1", …."""
    names = () if model.schema_ is None else model.schema_.target_names or ()
    if len(names) == t:
        return names
    return ("target",) if t == 1 else tuple(f"target {i + 1}" for i in range(t))


def certificate_of(
    model: KernelEstimator, blocks: bo.Blocks, new_rows: bool = False
) -> tuple[bo.Certificate | None, str]:
    """Return the certificate on training rows, or on new rows, and its text or why it is None."""
    if not model.choice_.method.has_features:
        return None, "none: the fit has no features."
    try:
        certificate = model._certificate_on(model._encode_as_fit(blocks), new_rows)
    except InvalidInput as error:
        return None, f"none: {error}"
    return certificate, str(certificate)


def loo_predictions(model: KernelEstimator) -> EvalRows | None:
    """Return leave-one-out predictions of training rows, or None if the learner has none."""
    fit: Any = model.fit_
    if isinstance(model, bo.GaussianProcessRegressor):
        rows = fit.law.representation.left_out(fit.law.evidence)
    else:
        squares = isinstance(model, bo.KernelRidge | bo.KernelRidgeClassifier)
        rows = fit.left_out() if squares else None
    if rows is None:
        return None
    rows = rows.take(np.isfinite(rows.errors).all(axis=1))  # infinite by rounding
    m, f, y = len(rows.w), rows.predicted, rows.predicted + rows.errors
    outputs = {"prediction": f}
    if task_of(model) == "classification":
        y, outputs = decide(y), {"label": model.classes_[decide(f)], "decision": f}
    return EvalRows(m, None, y, rows.w, np.arange(m), outputs) if m else None


def quality_of(
    model: KernelEstimator, sample: EvalRows, data: EvalRows, left_out: EvalRows | None
) -> Bunch:
    """Return errors and displays of predictions; ``left_out``: leave-one-out predictions, if any.

    ``errors`` are measures of each target on the rows examined; names with "loo_" are measures of
    leave-one-out predictions of ``left_out`` rows. Plots show these rows, or else the sample.
    ``residuals`` are of the first target. ``confusion`` (K, K) is the weight of rows by true class
    (down) and predicted class (across).
    """
    kind, errors = task_of(model), errors_of(model, data)
    quality = Bunch(errors=errors, left_out=0, residuals=None, calibration=None, confusion=None)
    if sample.y is None or kind not in ("regression", "classification"):
        return quality
    rows, shown_rows = bo.Blocks.from_arrays(sample.X), sample
    calibration = partial(bo.CalibrationDisplay.from_estimator, model, rows)
    if left_out is not None:
        shown_rows = data = left_out
        quality.left_out, left_out_errors = left_out.n_rows, errors_of(model, left_out)
        for name, values in errors.items():
            loo = {f"loo_{key}": value for key, value in left_out_errors[name].items()}
            values |= {key: value for key, value in loo.items() if key in MEASURES}
    if kind == "classification":
        options = {"sample_weight": data.w, "labels": model.classes_}
        true = model.classes_[data.y.astype(int)]
        quality.confusion = metrics.confusion_matrix(true, data.predicted, **options)
        if hasattr(model, "predict_proba"):
            quality.calibration = calibration(model.classes_[sample.y.astype(int)])
        return quality
    if errors:  # several quantiles have no errors
        pair: Any = shown_rows.y, shown_rows.predicted
        y, f = (a.reshape(len(a), -1)[:, 0].astype(np.float64) for a in pair)
        quality.residuals = metrics.PredictionErrorDisplay(y_true=y, y_pred=f)
        if not isinstance(model, bo.GaussianProcessRegressor):
            quality.calibration = bo.CalibrationDisplay.of_means(y, f)
        elif left_out is not None and len(model.calibration_):
            scores = model.calibration_.targets[0].scores
            quality.calibration = bo.CalibrationDisplay.of_scores(scores)
    if quality.calibration is None:
        quality.calibration = calibration(sample.y)
    return quality


# --- Errors on held-out rows of a second fit ------------------------------------------------------

#: Most rows of the second fit and its test; one row of FOLDS is held out.
ROWS, FOLDS = 8192, 5


def held_out_error(model: KernelEstimator, blocks: bo.Blocks) -> tuple[dict[str, Any] | None, str]:
    """Return the errors of a clone, fitted without some rows, on these rows; and a description.

    A random fifth of the rows is held out; for classifiers, a fifth of each class.
    """
    kind, loss = task_of(model), getattr(model, "loss", "squared")
    if kind in ("features", "clusters"):
        return None, f"none: {type(model).__name__} predicts nothing that could be wrong."
    rows = random_rows(encode_rows(model, blocks, first=True), ROWS, model.seed_)
    parts = _split(len(rows.w), rows.y if kind == "classification" else None, model.seed_)
    train, test = map(rows.take, parts)
    n_train, n_test = len(train.w), len(test.w)
    if not n_test:
        return None, f"none: {n_train} rows are too few to hold some out."
    try:
        refit = _refit(model, train)
    except ValueError as error:
        return None, f"none: a fit to {n_train} rows is refused: {error}"
    w = test.w if test.w.sum() > 0 else np.ones(n_test)
    test = test._replace(w=w, outputs=refit.outputs(test.X))
    if kind == "outliers":
        share = float(np.average(test.outputs["label"] < 0, weights=w))
        errors = {"rows": {"outside": share, "nu": float(model.get_params()["nu"])}}
    elif isinstance(model, bo.KernelRegressor) and loss not in ("squared", "huber", "absolute"):
        errors = {target_names(model, 1)[0]: {"explained": refit.score(test.X, test.y, w)}}
    else:
        errors = errors_of(model, test)
    facts = {"errors": errors, "n_train": n_train, "n_test": n_test, "n_rows": rows.n_rows}
    source = f"held out: {n_test:,} rows, of a fit to {n_train:,} others"
    return facts, f"{errors_in_words(errors)} ({source})"


def _split(n: int, codes: Array | None, seed: int) -> tuple[Array, Array]:
    """Return rows to fit and rows to hold out; at least one row of each class is fitted."""
    order = stream(seed, "held out").permutation(n)
    is_test = np.arange(n) % FOLDS == FOLDS - 1
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
        is_test[1:] &= codes[order][1:] == codes[order][:-1]
    return np.sort(order[~is_test]), np.sort(order[is_test])


def _refit(model: KernelEstimator, rows: EvalRows) -> Any:
    """Return a clone fitted to the rows; a numeric alpha or 1/C is scaled by the row ratio."""
    learner, share, values = clone(model), len(rows.w) / rows.n_rows, model.get_params(deep=False)
    if not isinstance(model, bo.KernelSGDClassifier | bo.KernelSGDRegressor):
        for name, factor in (("alpha", share), ("C", 1 / share)):
            if isinstance(values.get(name), int | float):
                learner.set_params(**{name: values[name] * factor})
    learner.set_params(random_state=model.seed_)
    y, w = rows.y, None if np.all(rows.w == 1) else rows.w
    if task_of(model) == "classification":
        y = model.classes_[y.astype(np.intp)]
    with warnings.catch_warnings(action="ignore", category=BochnerWarning):
        return learner.fit(rows.X, y, sample_weight=w)
