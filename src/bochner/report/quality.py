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
from bochner.certificates.certificate import Certificate
from bochner.data.blocks import Blocks
from bochner.data.sample import Sample
from bochner.data.sources import Block
from bochner.errors import InvalidInput
from bochner.features.nystrom.nystrom import Rounded
from bochner.models._base import KernelEstimator
from bochner.models.gaussian_process.regressor import GaussianProcessRegressor
from bochner.models.prediction_displays import (
    RIDGE,
    CalibrationDisplay,
    ResidualDisplay,
    has_features,
    scores_of,
)
from bochner.models.unsupervised.pca import KernelPCA
from bochner.report.labelled import KeptValues
from bochner.solvers.ridge.eigen import Eigen
from bochner.solvers.ridge.leave_one_out import Rounding, left_out_errors
from bochner.sums.moments import Accumulator, Moments
from bochner.sums.rows import indicators

LISTED = 8  # Rows listed
OFF = "Rows that the features approximate worst"
UNSURE = "Rows whose prediction is least certain"
STRANGE = "Rows most unlike the others"
MISSED = "Rows with the largest errors"


# --- What a fitted learner does ------------------------------------------------------------------


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


def predictions(model: KernelEstimator, X: Array) -> Array | None:
    """Return what the learner predicts for rows as its map reads them; None if nothing."""
    if kind_of(model) == "features":
        return None
    return to_numpy(model.predict(Blocks.from_arrays(X)))


# --- One pass over all rows ----------------------------------------------------------------------


class Row(NamedTuple):
    """A row to look at: its number, the value it is listed for, y, prediction, and its columns."""

    number: int
    value: float
    observed: Any
    predicted: Any
    x: Sequence[Any]  # of a table the cells as they were given, None where they are missing


@dataclass(frozen=True, eq=False)
class RowList:
    """The rows of largest value, largest first: what they are, and what the value means."""

    title: str
    measure: str
    words: str
    rows: tuple[Row, ...] = ()


class Ranking(NamedTuple):
    """A list without rows, and the value of each row from X, Z, y and its prediction."""

    empty: RowList
    value: Callable[[Array, Array, Array | None, Array | None], Array]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a pass over all rows found."""

    n_rows: int
    sums: Moments | None  # of residuals and targets side by side, of regressions
    #: Weight of rows by true class (down) and predicted class (across).
    confusion: Float[Array, "K K"] | None
    labelled: dict[str, float]  # "log_loss" and "auc" of classes, as held_out.HeldOut has them
    counts: dict[str, int]  # rows by cluster, or inside and outside
    lists: tuple[RowList, ...]
    columns: tuple[str, ...]  # names of the columns of listed rows, of a table as it was given
    fingerprint: str  # SHA-256 of all numbers of the rows, in their order


def look(model: KernelEstimator, blocks: Blocks, rankings: Sequence[Ranking]) -> Seen:
    """Read all rows once."""
    seen = _Pass(model, rankings)
    width = model.map_.n_features if has_features(model) else 1024
    for block in blocks.with_rows(block_rows(width)):
        seen.add(block)
    return seen.found()


def as_given(seen: Seen, blocks: Blocks) -> Seen:
    """Return it with rows as the table has them; those of arrays stay as they are."""
    numbers = [row.number for one in seen.lists for row in one.rows]
    given = blocks.as_given(numbers) if numbers else None
    if given is None:
        return seen
    names, cells = given
    of_row = dict(zip(numbers, cells, strict=True))
    lists = (
        replace(one, rows=tuple(row._replace(x=of_row[row.number]) for row in one.rows))
        for one in seen.lists
    )
    return replace(seen, lists=tuple(lists), columns=names)


class _Pass:
    """What has been seen so far."""

    def __init__(self, model: KernelEstimator, rankings: Sequence[Ranking]) -> None:
        self.model, self.rankings, self.kind = model, rankings, kind_of(model)
        self.n_rows, self.sums = 0, Accumulator()
        self.hashes = {name: hashlib.sha256() for name in ("X", "places", "lengths", "y", "w")}
        self.counts: dict[str, int] = {}
        self.leaders: list[list[Row]] = [[] for _ in rankings]
        K = len(model.classes_) if self.kind == "classification" else 0
        self.confusion = np.zeros((K, K))
        self.values = KeptValues(model, model.seed_) if K else None

    def add(self, block: Block) -> None:
        """Take in the rows of a block."""
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        y, w = (None if a is None else to_numpy(a) for a in (block.y, block.w))
        _hash(self.hashes, X, y, w)
        self.n_rows += X.shape[0]
        f = predictions(self.model, X)
        self._count(f)
        if y is not None and f is not None:
            w = np.ones(len(y)) if w is None else w.astype(np.float64)
            self._compare(y, f, w)
            if self.values is not None:
                self.values.add(X, y, w, block.start)
        Z = features(self.model, X) if self.rankings else X
        for held, ranking in zip(self.leaders, self.rankings, strict=True):
            _keep(held, ranking.value(X, Z, y, f), block.start, X, y, f)

    def _count(self, found: Array | None) -> None:
        if self.kind in ("clusters", "outliers") and found is not None:
            names = {1: "inside", -1: "outside"} if self.kind == "outliers" else {}
            for label, count in zip(*np.unique(found, return_counts=True), strict=True):
                name = names.get(int(label), str(label))
                self.counts[name] = self.counts.get(name, 0) + int(count)

    def _compare(self, y: Array, f: Array, w: Array) -> None:
        if self.kind == "classification":
            codes = np.searchsorted(self.model.classes_, f)
            np.add.at(self.confusion, (y.astype(int), codes), w)
        elif self.kind == "regression" and f.size == y.size:
            y = y.reshape(len(y), -1).astype(np.float64)
            self.sums.add(np.zeros((len(y), 1)), np.hstack([y - f.reshape(y.shape), y]), w)

    def found(self) -> Seen:
        """Return what the pass has found."""
        lists = zip(self.rankings, self.leaders, strict=True)
        return Seen(
            self.n_rows,
            self.sums.moments() if self.sums.rows > 0 else None,
            self.confusion if self.confusion.sum() > 0 else None,
            {} if self.values is None else self.values.measures(),
            dict(sorted(self.counts.items(), key=lambda pair: -pair[1])),
            tuple(replace(ranking.empty, rows=tuple(rows)) for ranking, rows in lists if rows),
            (),
            hashlib.sha256(b"".join(one.digest() for one in self.hashes.values())).hexdigest(),
        )


def _keep(
    held: list[Row], values: Array, start: int, X: Any, y: Array | None, f: Array | None
) -> None:
    """Keep the rows of largest value, this block's among them."""
    least = held[-1].value if len(held) == LISTED else -np.inf
    for j in np.argsort(-values, kind="stable")[:LISTED]:
        if values[j] > least:
            x = X[[j]].toarray()[0] if is_sparse(X) else X[j]
            observed, predicted = (None if a is None else a[j] for a in (y, f))
            held.append(Row(start + int(j), float(values[j]), observed, predicted, x))
    held.sort(key=lambda row: (-row.value, row.number))
    del held[LISTED:]


def _hash(parts: dict[str, Any], X: Any, y: Array | None, w: Array | None) -> None:
    """Add the numbers of rows to SHA-256 sums: the same for any size of blocks."""
    arrays = {"X": X, "y": y, "w": w}
    if is_sparse(X):
        X = X.tocsr()
        arrays |= {"places": X.indices, "lengths": np.diff(X.indptr), "X": X.data}
    for name, array in arrays.items():
        if array is not None:
            parts[name].update(np.ascontiguousarray(array, dtype="<f8").data)


# --- What rows are listed by ---------------------------------------------------------------------


def rankings_for(
    model: KernelEstimator, reference: Array, leverage: "RowLeverage | None"
) -> tuple[Ranking, ...]:
    """Return what the rows of this learner are listed by.

    The kernel is compared on ``reference``, random rows; ``leverage`` is of ridge regressions.
    """
    found = (_off(model, reference), _unsure(model, leverage), _missed(model))
    return tuple(filter(None, found))


def _off(model: KernelEstimator, reference: Array) -> Ranking | None:
    """Rank rows by how far their features are from the kernel."""
    if not has_features(model):
        return None
    kernel = model.kernel_
    if model.map_.below_kernel:
        words = (
            "e(x)/k(x, x), where e(x) = k(x, x) − |φ(x)|²: the share of the row that the features "
            "leave out. Where it is near 1 they know nothing of the row, and the prediction is "
            "close to the intercept."
        )

        def share(X: Array, Z: Array, *_: Any) -> Array:
            size = to_numpy(kernel.diag(X.astype(np.float64))).astype(np.float64)
            left = np.maximum(size - np.einsum("ij,ij->i", Z, Z), 0.0)
            return np.divide(left, size, out=np.zeros_like(left), where=size > 0)

        return Ranking(RowList(OFF, "share left out", words), share)
    other = features(model, reference)
    words = (
        f"Root mean square of φ(x)·φ(s) − k(x, s) over {reference.shape[0]:,} random rows s, in "
        "units of the kernel. Features of this map have the length √k(x, x), so their length shows "
        "no error."
    )

    def off(X: Array, Z: Array, *_: Any) -> Array:
        K = to_numpy(kernel(X.astype(np.float64), reference.astype(np.float64)))
        return np.sqrt(np.mean((Z @ other.T - K) ** 2, axis=1))

    return Ranking(RowList(OFF, "kernel error", words), off)


def _unsure(model: KernelEstimator, leverage: "RowLeverage | None") -> Ranking | None:
    """Rank rows by how uncertain their prediction is, in the terms of the learner."""
    kind = kind_of(model)
    if kind == "classification":
        return _doubtful(model)
    if isinstance(model, GaussianProcessRegressor):
        words = "Standard deviation of f(x) under the posterior, in units of the target."

        def deviation(X: Array, *_: Any) -> Array:
            found = to_numpy(model.predict(Blocks.from_arrays(X), return_std=True)[1])
            return found.reshape(len(found), -1)[:, 0]

        return Ranking(RowList(UNSURE, "deviation", words), deviation)
    if leverage is not None:
        words = (
            "σ√h(x): the standard deviation that a Gaussian process on the same features would "
            "give, in units of the target; h(x) is the leverage of the row."
        )
        return Ranking(RowList(UNSURE, "deviation", words), lambda _, Z, *__: leverage.deviation(Z))
    if kind == "outliers":
        words = "−φ(x)·β: the higher, the less like the rows of the fit."
        score = lambda X, *_: -to_numpy(model.score_samples(Blocks.from_arrays(X)))
        return Ranking(RowList(STRANGE, "strangeness", words), score)
    if kind == "clusters":
        words = "Distance to the nearest centre over that to the next: 1 is halfway between two."
        return Ranking(RowList(UNSURE, "ratio", words), lambda X, *_: _between(model, X))
    return None


def _doubtful(model: KernelEstimator) -> Ranking:
    if hasattr(model, "predict_proba"):
        words = "1 − the probability of the label predicted."
        doubt = lambda X, *_: 1 - to_numpy(model.predict_proba(Blocks.from_arrays(X))).max(axis=1)
        return Ranking(RowList(UNSURE, "doubt", words), doubt)

    def margin(X: Array, *_: Any) -> Array:
        f = to_numpy(model.decision_function(Blocks.from_arrays(X)))
        best = np.sort(f, axis=1) if f.ndim == 2 else None
        return -np.abs(f) if best is None else best[:, -2] - best[:, -1]

    words = "The margin between the label predicted and the next, negated: 0 is a tie."
    return Ranking(RowList(UNSURE, "−margin", words), margin)


def _between(model: KernelEstimator, X: Array) -> Array:
    distances = np.sort(to_numpy(model.transform(Blocks.from_arrays(X))), axis=1)
    if distances.shape[1] < 2:
        return np.zeros(len(distances))
    ratio = np.ones(len(distances))
    return np.divide(distances[:, 0], distances[:, 1], out=ratio, where=distances[:, 1] > 0)


def _missed(model: KernelEstimator) -> Ranking | None:
    """Rank rows by their error: of a Gaussian process, in deviations of a new observation."""
    none = -np.inf  # a value that is never listed
    if isinstance(model, GaussianProcessRegressor):
        words = "|y − mean| in standard deviations of a new y: beyond 4 is a row to look at."

        def surprise(X: Array, _: Array, y: Array | None, __: Any) -> Array:
            if y is None:
                return np.full(X.shape[0], none)
            return np.abs(scores_of(model, Blocks.from_arrays(X), y)[:, 0])

        return Ranking(RowList(MISSED, "deviations off", words), surprise)
    if kind_of(model) != "regression":
        return None
    words = "|observed − predicted|, in units of the target (the first, if there are several)."

    def error(X: Array, _: Array, y: Array | None, f: Array | None) -> Array:
        if y is None or f is None or f.size != y.size:
            return np.full(X.shape[0], none)
        return np.abs(y.reshape(len(y), -1) - f.reshape(len(y), -1))[:, 0]

    return Ranking(RowList(MISSED, "error", words), error)


@dataclass(frozen=True, eq=False)
class RowLeverage:
    """h(x) of a ridge regression: (φ(x) − z̄)ᵀ(G + λI)⁻¹(φ(x) − z̄) + 1/W, (b, t)."""

    eigen: Eigen
    mean: Float[Array, " D"]
    alpha: Float[Array, " t"]
    deviations: Float[Array, " t"]

    @staticmethod
    def of(model: KernelEstimator, moments: Moments, eigen: Eigen) -> "RowLeverage | None":
        """Return that of a ridge regression or Gaussian process; None where h tells nothing.

        Without a penalty every row that can be fitted exactly is, and h is 1.
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
        """Return h of rows of features."""
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
        return Rounding.of(self.eigen, np.float64).slack(self(Z), w, self.alpha)

    def deviation(self, Z: Array) -> Array:
        """Return σ√h of the first target."""
        return self.deviations[0] * np.sqrt(self(Z)[:, 0])


# --- How good the predictions are ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Quality:
    """Predicted and observed: residuals of the first target, and targets of the sample.

    Attributes
    ----------
    errors : dict of str to dict of str to float
        Of each target, on all rows: "rmse" and "r_squared", or "accuracy", "majority", "auc", and
        "log_loss" where there are probabilities, these two on 65,536 rows at most; with
        ``left_out`` also "loo_rmse" and "loo_r_squared", or "loo_accuracy": the cost of leaving
        rows out is measured on the sample, and added to the error of all.
    left_out : bool
        Whether pictures and calibration show leave-one-out predictions.
    confusion : (K, K) or None
        Of all rows, or of the sample with ``left_out``.
    """

    errors: dict[str, dict[str, float]]
    left_out: bool = False
    residuals: ResidualDisplay | None = None
    calibration: CalibrationDisplay | None = None
    confusion: Float[Array, "K K"] | None = None
    labels: Any = None


def certificate_of(model: KernelEstimator, blocks: Blocks, other: bool) -> Certificate | str:
    """Return the certificate on the rows of the fit, or on other rows; why, if there is none."""
    if not has_features(model):
        return "the fit has the kernel itself, and nothing to certify."
    try:
        return model._certificate_on(model._as_fitted(blocks), other)
    except InvalidInput as error:
        return str(error)


def quality_of(
    model: KernelEstimator, sample: Sample, seen: Seen, leverage: RowLeverage | None
) -> Quality:
    """Judge the predictions; with ``leverage``, of rows of the fit left out one by one.

    Where rounding hides what leaving out a row does, rows stay in.
    """
    kind = kind_of(model)
    if sample.y is None or kind not in ("regression", "classification"):
        return Quality({})
    if leverage is not None and not leverage.resolves(features(model, sample.X), sample.w):
        leverage = None
    if kind == "classification":
        return _classified(model, sample, seen, leverage)
    return _regressed(model, sample, seen, leverage)


def errors_of(model: KernelEstimator, seen: Seen) -> dict[str, dict[str, float]]:
    """Return the errors of each target on all rows; none without targets or a single prediction."""
    if seen.confusion is not None:
        weights = seen.confusion.sum(axis=1)
        shares = {"accuracy": _accuracy(seen.confusion), "majority": weights.max() / weights.sum()}
        found = {name: float(v) for name, v in shares.items()} | seen.labelled
        return {target_names(model, 1)[0]: found}
    if seen.sums is None:
        return {}
    t, spread = len(seen.sums.power) // 2, seen.sums.power / seen.sums.weight
    squared = spread[:t] + seen.sums.target_mean[:t] ** 2
    return {name: _pair(squared[j], spread[t + j]) for j, name in enumerate(target_names(model, t))}


def target_names(model: KernelEstimator, t: int) -> tuple[str, ...]:
    """Return the names of so many targets, where they have any."""
    names = () if model.schema_ is None else model.schema_.target_names or ()
    if len(names) == t:
        return names
    return ("target",) if t == 1 else tuple(f"target {i + 1}" for i in range(t))


def _pair(squared: float, variance: float) -> dict[str, float]:
    share = 1 - squared / variance if variance > 0 else float("nan")
    return {"rmse": float(squared) ** 0.5, "r_squared": float(share)}


def _regressed(
    model: KernelEstimator, sample: Sample, seen: Seen, leverage: RowLeverage | None
) -> Quality:
    y = to_numpy(sample.y).astype(np.float64)
    rows, columns, w = Blocks.from_arrays(sample.X), y.reshape(len(y), -1), sample.w
    found = predictions(model, sample.X)
    if seen.sums is None or found is None:  # several quantiles: no one prediction
        return Quality({}, calibration=CalibrationDisplay.from_estimator(model, rows, y), labels=y)
    errors, fitted = errors_of(model, seen), found.reshape(columns.shape)
    if leverage is not None:
        without = leverage.left_out(features(model, sample.X), columns, fitted, w)
        gained = np.average((columns - without) ** 2 - (columns - fitted) ** 2, axis=0, weights=w)
        spread = (seen.sums.power / seen.sums.weight)[columns.shape[1] :]
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
    shown = ResidualDisplay.from_predictions(columns[:, 0], fitted[:, 0], next(iter(errors)))
    return Quality(errors, leverage is not None, shown, calibration, labels=y)


def _classified(
    model: KernelEstimator, sample: Sample, seen: Seen, leverage: RowLeverage | None
) -> Quality:
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
        rows = Blocks.from_arrays(sample.X)
        calibration = CalibrationDisplay.from_estimator(model, rows, labels)
    return Quality(errors, leverage is not None, None, calibration, confusion, labels)


def _accuracy(confusion: Any) -> float:
    return float(np.trace(confusion) / confusion.sum())


def _left_out(
    model: KernelEstimator, sample: Sample, codes: Array, leverage: RowLeverage
) -> tuple[Array, Array]:
    """Return confusion tables of the sample: as fitted, and each row by a fit without it."""
    K, Z = len(model.classes_), features(model, sample.X)
    fitted = Z @ model.solution_.coef + model.solution_.intercept
    Y = indicators(codes.astype(np.float64), K)
    tables = np.zeros((2, K, K))
    for table, f in zip(tables, (fitted, leverage.left_out(Z, Y, fitted, sample.w)), strict=True):
        chosen = (f[:, 0] > 0).astype(int) if K == 2 else f.argmax(axis=1)
        np.add.at(table, (codes, chosen), sample.w)
    return tables[0], tables[1]
