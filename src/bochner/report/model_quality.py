"""How good the predictions are: errors in numbers, residuals, calibration."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.sample import Sample
from bochner.models._inputs import indicators
from bochner.models.displays import CalibrationDisplay, ResidualDisplay
from bochner.report.model_judges import Leverage
from bochner.report.model_rows import Seen, as_given, features, kind_of, predictions
from bochner.sums.moments import Moments


@dataclass(frozen=True, eq=False)
class Quality:
    """Predicted beside observed.

    Attributes
    ----------
    errors : dict of str to dict of str to float
        Of each target, on all rows: "rmse" and "r_squared", or "accuracy"; with ``left_out`` also
        "loo_rmse" and "loo_r_squared", or "loo_accuracy": what leaving rows out costs is measured
        on the sample, and added to the error of all.
    left_out : bool
        Whether pictures and calibration show leave-one-out predictions.
    residuals : ResidualDisplay or None
        Of the first target.
    calibration : CalibrationDisplay or None
    confusion : (K, K) or None
        Of all rows, or of the sample with ``left_out``.
    labels : array or None
        Targets of the sample, as the learner takes them.
    """

    errors: dict[str, dict[str, float]]
    left_out: bool = False
    residuals: ResidualDisplay | None = None
    calibration: CalibrationDisplay | None = None
    confusion: Float[Array, "K K"] | None = None
    labels: Any = None


def quality_of(model: Any, sample: Sample, seen: Seen, leverage: Leverage | None) -> Quality:
    """Judge the predictions; with ``leverage``, of rows of the fit left out one by one.

    Where rounding hides what leaving out a row does, rows stay in.
    """
    kind = kind_of(model)
    if sample.y is None or kind not in ("regression", "classification"):
        return Quality({})
    if leverage is not None and not leverage.tells(features(model, sample.X), sample.w):
        leverage = None
    if kind == "classification":
        return _classified(model, sample, seen, leverage)
    return _regressed(model, sample, seen, leverage)


def errors_of(model: Any, seen: Seen) -> dict[str, dict[str, float]]:
    """Return the errors of each target on all rows; none without targets or a single prediction."""
    if seen.confusion is not None:
        return {_names(model, 1)[0]: {"accuracy": _accuracy(seen.confusion)}}
    if seen.sums is None:
        return {}
    t, spread = len(seen.sums.power) // 2, seen.sums.power / seen.sums.weight
    squared = spread[:t] + seen.sums.target_mean[:t] ** 2
    return {name: _pair(squared[j], spread[t + j]) for j, name in enumerate(_names(model, t))}


def _names(model: Any, t: int) -> tuple[str, ...]:
    schema = getattr(model, "schema_", None)
    names: Any = getattr(schema, "target_names", None)
    return names if names and len(names) == t else ("target",) if t == 1 else _numbered(t)


def _numbered(t: int) -> tuple[str, ...]:
    return tuple(f"target {i + 1}" for i in range(t))


def _regressed(model: Any, sample: Sample, seen: Seen, leverage: Leverage | None) -> Quality:
    y = to_numpy(sample.y).astype(np.float64)
    columns = y.reshape(len(y), -1)
    rows = as_given(model, sample.X)
    found = predictions(model, sample.X)
    if seen.sums is None or found is None:  # several quantiles: no one prediction
        return Quality({}, calibration=CalibrationDisplay.from_estimator(model, rows, y), labels=y)
    errors, fitted = errors_of(model, seen), found.reshape(columns.shape)
    if leverage is not None:
        without = leverage.left_out(features(model, sample.X), columns, fitted, sample.w)
        _add_left_out(errors, seen.sums, columns, fitted, without, sample.w)
        fitted = without
    return Quality(
        errors,
        leverage is not None,
        ResidualDisplay.from_predictions(columns[:, 0], fitted[:, 0], next(iter(errors))),
        _calibrated(model, rows, columns, fitted, leverage is not None),
        labels=y,
    )


def _pair(squared: float, variance: float) -> dict[str, float]:
    share = 1 - squared / variance if variance > 0 else float("nan")
    return {"rmse": float(squared) ** 0.5, "r_squared": float(share)}


def _add_left_out(
    errors: dict[str, dict[str, float]],
    sums: Moments,
    y: Array,
    fitted: Array,
    left_out: Array,
    w: Array,
) -> None:
    """Add what leaving rows out costs on the sample to the error on all rows."""
    t = y.shape[1]
    gained = np.average((y - left_out) ** 2 - (y - fitted) ** 2, axis=0, weights=w)
    for j, found in enumerate(errors.values()):
        pair = _pair(found["rmse"] ** 2 + gained[j], sums.power[t + j] / sums.weight)
        found |= {f"loo_{key}": value for key, value in pair.items()}


def _calibrated(
    model: Any, rows: Any, y: Array, fitted: Array, left_out: bool
) -> CalibrationDisplay:
    if not hasattr(model, "sample_functions"):
        return CalibrationDisplay.of_means(y[:, 0], fitted[:, 0])
    if left_out and len(model.calibration_):
        return CalibrationDisplay.of_scores(model.calibration_.scores[:, 0])
    return CalibrationDisplay.from_estimator(model, rows, y)


def _classified(model: Any, sample: Sample, seen: Seen, leverage: Leverage | None) -> Quality:
    codes = to_numpy(sample.y).astype(int)
    labels, confusion = model.classes_[codes], seen.confusion
    errors = errors_of(model, seen)
    if leverage is not None:
        before, confusion = _left_out(model, sample, codes, leverage)
        lost = _accuracy(before) - _accuracy(confusion)
        for found in errors.values():
            found["loo_accuracy"] = found["accuracy"] - lost
    calibration = None
    if hasattr(model, "predict_proba"):
        rows = as_given(model, sample.X)
        calibration = CalibrationDisplay.from_estimator(model, rows, labels)
    return Quality(errors, leverage is not None, None, calibration, confusion, labels)


def _accuracy(confusion: Any) -> float:
    return float(np.trace(confusion) / confusion.sum())


def _left_out(model: Any, sample: Sample, codes: Array, leverage: Leverage) -> tuple[Array, Array]:
    """Return confusion tables of the sample: as fitted, and each row by a fit without it."""
    K = len(model.classes_)
    Y = indicators(codes.astype(np.float64), K)
    Z = features(model, sample.X)
    fitted = Z @ model.solution_.coef + model.solution_.intercept
    without = leverage.left_out(Z, Y, fitted, sample.w)
    return _table(codes, fitted, sample.w, K), _table(codes, without, sample.w, K)


def _table(codes: Array, f: Array, w: Array, K: int) -> Float[Array, "K K"]:
    chosen = (f[:, 0] > 0).astype(int) if K == 2 else f.argmax(axis=1)
    table = np.zeros((K, K))
    np.add.at(table, (codes, chosen), w)
    return table
