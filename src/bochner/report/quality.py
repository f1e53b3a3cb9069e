"""What a report measures: one pass over the rows, the rows to look at, and the predictions."""

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_clusterer, is_outlier_detector, is_regressor

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import Sample
from bochner.data.sources import Block
from bochner.models import _engine
from bochner.models._inputs import class_blocks, indicators
from bochner.models.displays import CalibrationDisplay, ResidualDisplay, scores_of
from bochner.solvers.ridge.eigen import Eigen
from bochner.solvers.ridge.leave_one_out import Rounding, left_out_errors
from bochner.sums.moments import Accumulator, Moments

#: Rows listed.
LISTED = 8


class Row(NamedTuple):
    """A row to look at: its number, the value it is listed for, y, prediction, and x."""

    number: int
    value: float
    observed: Any
    predicted: Any
    x: Float[Array, " d"]


@dataclass(frozen=True, eq=False)
class RowList:
    """The rows of largest value, largest first.

    Attributes
    ----------
    title, measure, words : str
        What they are, what the value is, and what it means.
    rows : tuple of Row
    """

    title: str
    measure: str
    words: str
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, eq=False)
class Seen:
    """What a pass over all rows found.

    Attributes
    ----------
    n_rows : int
    sums : Moments or None
        Of residuals and targets side by side, of regressions.
    confusion : (K, K) or None
        Weight of rows by true class (down) and predicted class (across).
    counts : dict of str to int
        Rows by cluster, or inside and outside.
    lists : tuple of RowList
    fingerprint : str
        SHA-256 of all numbers of the rows, in their order.
    """

    n_rows: int
    sums: Moments | None
    confusion: Float[Array, "K K"] | None
    counts: dict[str, int]
    lists: tuple[RowList, ...]
    fingerprint: str


class Judge(NamedTuple):
    """What rows are listed by: a list without rows, and one value a row from X, Z, y, ŷ."""

    empty: RowList
    value: Callable[[Array, Array, Array | None, Array | None], Array]


def kind_of(model: Any) -> str:
    """Return what the learner does."""
    kinds = {
        "classification": is_classifier,
        "regression": is_regressor,
        "outliers": is_outlier_detector,
        "clusters": is_clusterer,
    }
    return next((name for name, holds in kinds.items() if holds(model)), "features")


def has_features(model: Any) -> bool:
    """Whether a feature map stands for the kernel, and no fit with the kernel itself."""
    return hasattr(model, "map_") and not hasattr(model, "X_fit_")


def unweighted(model: Any) -> Any:
    """Return the classifier as one that judges every row by its own weight."""
    plain = copy(model)
    plain.class_weight = None
    return plain


def coded(model: Any, blocks: Blocks) -> Blocks:
    """Return the rows; labels as codes, their weights as they are."""
    if kind_of(model) != "classification":
        return blocks
    return class_blocks(unweighted(model), blocks, reset=False)


def features(model: Any, X: Array) -> Float[Array, "b D"]:
    """Return φ(X) as the model rounds it, in float64; no columns where there is no map."""
    if not has_features(model):
        return np.zeros((X.shape[0], 0))
    dtype = getattr(model, "feature_dtype_", "float64")
    return to_numpy(_engine.as_features(model.map_, X, dtype)).astype(np.float64)


def as_given(model: Any, X: Array) -> Any:
    """Return rows as its map reads them in a form that the learner takes for just that."""
    return Blocks.from_arrays(X) if hasattr(model, "map_") else X


def predictions(model: Any, X: Array) -> Array | None:
    """Return what the learner predicts for rows as its map reads them; None if nothing."""
    if not hasattr(model, "predict"):
        return None
    return to_numpy(model.predict(as_given(model, X)))


def look(model: Any, blocks: Blocks, judges: Sequence[Judge]) -> Seen:
    """Read all rows once."""
    pass_ = _Pass(model, judges)
    width = model.map_.n_features if hasattr(model, "map_") else 1024
    for block in blocks.with_rows(block_rows(width)):
        pass_.see(block)
    return pass_.found()


class _Pass:
    """What has been seen so far."""

    def __init__(self, model: Any, judges: Sequence[Judge]) -> None:
        self.model, self.judges, self.kind = model, judges, kind_of(model)
        self.n_rows = 0
        self.sums, self.print = Accumulator(), _Fingerprint()
        self.counts: dict[str, int] = {}
        self.leaders: list[list[Row]] = [[] for _ in judges]
        self.confusion: Any = None
        if self.kind == "classification":
            self.confusion = np.zeros((len(self.model.classes_),) * 2)

    def see(self, block: Block) -> None:
        """Take in the rows of a block."""
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        y, w = (None if a is None else to_numpy(a) for a in (block.y, block.w))
        self.print.see(X, y, w)
        self.n_rows += X.shape[0]
        found = predictions(self.model, X)
        self._tally(found, y, np.ones(X.shape[0]) if w is None else w.astype(np.float64))
        Z = features(self.model, X) if self.judges else None
        for held, judge in zip(self.leaders, self.judges, strict=True):
            _list(held, judge.value(X, Z, y, found), block.start, X, y, found)

    def _tally(self, found: Array | None, y: Array | None, w: Array) -> None:
        if self.kind in ("clusters", "outliers") and found is not None:
            names = {1: "inside", -1: "outside"} if self.kind == "outliers" else {}
            for label, count in zip(*np.unique(found, return_counts=True), strict=True):
                name = names.get(int(label), str(label))
                self.counts[name] = self.counts.get(name, 0) + int(count)
        if y is None or found is None:
            return
        if self.kind == "classification":
            codes = np.searchsorted(self.model.classes_, found)
            np.add.at(self.confusion, (y.astype(int), codes), w)
        elif self.kind == "regression":
            y = y.reshape(len(y), -1).astype(np.float64)
            if found.size == y.size:
                pairs = np.hstack([y - found.reshape(y.shape), y])
                self.sums.add(np.zeros((len(y), 1)), pairs, w)

    def found(self) -> Seen:
        """Return what the pass has found."""
        regressed = self.kind == "regression" and self.sums.rows > 0
        judged = self.confusion is not None and self.confusion.sum() > 0
        lists = tuple(
            replace(judge.empty, rows=tuple(rows))
            for judge, rows in zip(self.judges, self.leaders, strict=True)
            if rows
        )
        return Seen(
            self.n_rows,
            self.sums.moments() if regressed else None,
            self.confusion if judged else None,
            dict(sorted(self.counts.items(), key=lambda pair: -pair[1])),
            lists,
            self.print.digest(),
        )


def _list(
    held: list[Row], values: Array, start: int, X: Any, y: Array | None, found: Array | None
) -> None:
    """Keep the rows of largest value, this block's among them."""
    least = held[-1].value if len(held) == LISTED else -np.inf
    for j in np.argsort(-values, kind="stable")[:LISTED]:
        if values[j] > least:
            held.append(_row(start + int(j), values[j], int(j), X, y, found))
    held.sort(key=lambda row: (-row.value, row.number))
    del held[LISTED:]


def _row(number: int, value: float, j: int, X: Any, y: Any, found: Any) -> Row:
    x = X[[j]].toarray()[0] if is_sparse(X) else X[j]
    observed, predicted = (None if a is None else a[j] for a in (y, found))
    return Row(number, float(value), observed, predicted, x)


class _Fingerprint:
    """SHA-256 of rows in their order, the same for any block size."""

    def __init__(self) -> None:
        self.parts = {name: hashlib.sha256() for name in ("X", "places", "lengths", "y", "w")}

    def see(self, X: Any, y: Array | None, w: Array | None) -> None:
        """Take in rows."""
        if is_sparse(X):
            X = X.tocsr()
            self._add("places", X.indices)
            self._add("lengths", np.diff(X.indptr))
            X = X.data
        for name, array in (("X", X), ("y", y), ("w", w)):
            if array is not None:
                self._add(name, array)

    def _add(self, name: str, array: Array) -> None:
        self.parts[name].update(np.ascontiguousarray(array, dtype="<f8").data)

    def digest(self) -> str:
        """Return 64 hexadecimal digits."""
        return hashlib.sha256(b"".join(p.digest() for p in self.parts.values())).hexdigest()


# --- What the rows of a report are listed by, and the leverage of rows ---------------------------

OFF = "Rows that the features approximate worst"
UNSURE = "Rows whose prediction is least certain"
STRANGE = "Rows most unlike the others"
MISSED = "Rows missed by most"


def judges_for(model: Any, reference: Array, leverage: "Leverage | None") -> tuple[Judge, ...]:
    """Return what the rows of this learner are listed by.

    Parameters
    ----------
    model : fitted learner
    reference : (m, d)
        Random rows that the kernel is compared on.
    leverage : Leverage or None
        Of ridge regressions.
    """
    found = (_off(model, reference), _unsure(model, leverage), _missed(model))
    return tuple(one for one in found if one is not None)


def _off(model: Any, reference: Array) -> Judge | None:
    if not has_features(model):
        return None
    kernel = model.kernel_
    if model.map_.below_kernel:
        words = (
            "e(x)/k(x, x), e(x) = k(x, x) − |φ(x)|²: the share of the row that the features leave "
            "out. Where it is near 1 they know nothing of the row, and the prediction leans to "
            "the intercept."
        )
        return Judge(RowList(OFF, "share left out", words), lambda X, Z, *_: _share(kernel, X, Z))
    other = features(model, reference)
    words = (
        f"Root mean square of φ(x)·φ(s) − k(x, s) over {reference.shape[0]:,} random rows s, in "
        "units of the kernel. Features of this map have the length √k(x, x), so that e(x) tells "
        "nothing."
    )

    def off(X: Array, Z: Array, *_: Any) -> Array:
        K = to_numpy(kernel(X.astype(np.float64), reference.astype(np.float64)))
        return np.sqrt(np.mean((Z @ other.T - K) ** 2, axis=1))

    return Judge(RowList(OFF, "kernel error", words), off)


def _share(kernel: Any, X: Array, Z: Array) -> Array:
    size = to_numpy(kernel.diag(X.astype(np.float64))).astype(np.float64)
    left = np.maximum(size - np.einsum("ij,ij->i", Z, Z), 0.0)
    return np.divide(left, size, out=np.zeros_like(left), where=size > 0)


def _unsure(model: Any, leverage: "Leverage | None") -> Judge | None:
    kind = kind_of(model)
    if kind == "classification":
        return _doubtful(model)
    if hasattr(model, "sample_functions"):
        words = "Standard deviation of f(x) under the posterior, in units of the target."
        return Judge(RowList(UNSURE, "deviation", words), lambda X, *_: _deviation(model, X))
    if leverage is not None:
        words = (
            "σ√h(x): the standard deviation that a Gaussian process on the same features would "
            "state, in units of the target; h(x) is the leverage of the row."
        )
        return Judge(RowList(UNSURE, "deviation", words), lambda _, Z, *__: leverage.deviation(Z))
    if kind == "outliers":
        words = "−φ(x)·β: the higher, the less like the rows of the fit."
        return Judge(RowList(STRANGE, "strangeness", words), lambda X, *_: _strangeness(model, X))
    if kind == "clusters":
        words = "Distance to the nearest centre over that to the next: 1 is just between two."
        return Judge(RowList(UNSURE, "ratio", words), lambda X, *_: _between(model, X))
    return None


def _doubtful(model: Any) -> Judge:
    if hasattr(model, "predict_proba"):
        words = "1 − the probability of the label predicted."
        return Judge(RowList(UNSURE, "doubt", words), lambda X, *_: _doubt(model, X))
    words = "The margin between the label predicted and the next, with a minus: 0 is a tie."
    return Judge(RowList(UNSURE, "−margin", words), lambda X, *_: -_margin(model, X))


def _doubt(model: Any, X: Array) -> Array:
    return 1 - to_numpy(model.predict_proba(as_given(model, X))).max(axis=1)


def _margin(model: Any, X: Array) -> Array:
    f = to_numpy(model.decision_function(as_given(model, X)))
    if f.ndim == 1:
        return np.abs(f)
    best = np.sort(f, axis=1)
    return best[:, -1] - best[:, -2]


def _deviation(model: Any, X: Array) -> Array:
    deviation = to_numpy(model.predict(as_given(model, X), return_std=True)[1])
    return deviation.reshape(len(deviation), -1)[:, 0]


def _strangeness(model: Any, X: Array) -> Array:
    return -to_numpy(model.score_samples(as_given(model, X)))


def _between(model: Any, X: Array) -> Array:
    distances = np.sort(to_numpy(model.transform(as_given(model, X))), axis=1)
    ratio = np.ones(len(distances))
    if distances.shape[1] < 2:
        return 0 * ratio
    return np.divide(distances[:, 0], distances[:, 1], out=ratio, where=distances[:, 1] > 0)


def _missed(model: Any) -> Judge | None:
    if hasattr(model, "sample_functions"):
        words = "|y − mean| in standard deviations of a new y: beyond 4 is a row to look at."
        empty = RowList(MISSED, "deviations off", words)
        return Judge(empty, lambda X, _, y, __: _surprise(model, X, y))
    if kind_of(model) == "regression":
        words = "|observed − predicted|, in units of the target (the first, if there are several)."
        return Judge(RowList(MISSED, "error", words), lambda X, _, y, f: _error(X, y, f))
    return None


def _surprise(model: Any, X: Array, y: Array | None) -> Array:
    if y is None:
        return np.full(X.shape[0], -np.inf)
    return np.abs(scores_of(model, as_given(model, X), y)[:, 0])


def _error(X: Array, y: Array | None, f: Array | None) -> Array:
    if y is None or f is None or f.size != y.size:
        return np.full(X.shape[0], -np.inf)
    return np.abs(y.reshape(len(y), -1) - f.reshape(len(y), -1))[:, 0]


@dataclass(frozen=True, eq=False)
class Leverage:
    """h(x) of a ridge regression: (φ(x) − z̄)ᵀ(G + λI)⁻¹(φ(x) − z̄) + 1/W, (b, t)."""

    eigen: Eigen
    mean: Float[Array, " D"]
    alpha: Float[Array, " t"]
    deviations: Float[Array, " t"]

    @staticmethod
    def of(model: Any, eigen: Eigen) -> "Leverage | None":
        """Return that of a ridge regression or Gaussian process; None where h tells nothing.

        Without a penalty every row that can be passed through is, and h is 1.
        """
        alpha = model.evidence_.alpha if hasattr(model, "evidence_") else model.solution_.alpha
        alpha = np.atleast_1d(np.asarray(alpha, np.float64))
        if not np.all(alpha > 0):
            return None
        moments = model.moments_
        mean = moments.feature_mean if eigen.centred else 0 * moments.feature_mean
        freedom = (eigen.values[:, None] / (eigen.values[:, None] + alpha)).sum(axis=0)
        left = np.maximum(eigen.count - eigen.centred - freedom, 1.0)
        power = eigen.residual_power_at(alpha)
        return Leverage(eigen, mean, alpha, np.sqrt(power / left))

    def __call__(self, Z: Array) -> Float[Array, "b t"]:
        """Return h of rows of features."""
        squares = ((Z - self.mean) @ self.eigen.vectors) ** 2
        spread = 1 / self.eigen.weight if self.eigen.centred else 0.0
        return squares @ (1 / (self.eigen.values[:, None] + self.alpha)) + spread

    def left_out(
        self, Z: Array, y: Float[Array, "b t"], fitted: Float[Array, "b t"], w: Array
    ) -> Float[Array, "b t"]:
        """Return what the fit without the row predicts for it, exactly: y − (y − ŷ)/(1 − h)."""
        return y - left_out_errors(y - fitted, self._slack(Z, w))

    def tells(self, Z: Array, w: Array) -> bool:
        """Whether rounding leaves 1 − h of all rows."""
        return bool(np.all(self._slack(Z, w) > 0))

    def _slack(self, Z: Array, w: Array) -> Float[Array, "b t"]:
        return Rounding.of(self.eigen, np.float64).slack(self(Z), w, self.alpha)

    def deviation(self, Z: Array) -> Array:
        """Return σ√h of the first target."""
        return self.deviations[0] * np.sqrt(self(Z)[:, 0])


# --- How good the predictions are: errors in numbers, residuals, calibration ---------------------


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
