"""One pass over the rows of a report: errors, the rows to look at, and what tells these rows."""

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
from bochner.data.sources import Block
from bochner.models import _engine
from bochner.models._inputs import class_blocks
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
