"""Class labels: checks, codes, and class weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from bochner._core.arrays import to_numpy
from bochner._core.checks import warn_user
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import listed
from bochner.data.sources import required_targets
from bochner.data.times import is_missing
from bochner.errors import DataWarning, InvalidInput
from bochner.models._refusals import is_number
from bochner.sums.executor import LOCAL, Executor

#: More classes than this are taken for a target of regression.
MOST_CLASSES = 10_000

#: Up to this many different values are classes, for any number of rows.
FEW_CLASSES = 50

#: More values are classes only if each has this many rows on average.
MANY_CLASSES, ROWS_OF_CLASS = 100, 20

#: Labels that are text count as numbers with this share of others, such as "?".
MOST_OTHERS = 0.05

#: A warning names classes with fewer rows than this, unless all classes are that small.
RARE_ROWS, FEW_ROWS = 5, 100

_REGRESSORS = {
    "KernelRidgeClassifier": "KernelRidge",
    "KernelSGDClassifier": "KernelSGDRegressor",
    "LogisticRegression": "KernelRegressor",
    "SVC": "SVR",
}


def require_sortable(who: str, labels: Any) -> None:
    """Refuse labels that are missing, and numbers among texts."""
    if _has_missing(labels):
        labels = np.asarray(labels, object)
    if getattr(getattr(labels, "dtype", None), "kind", "") != "O":
        return
    first: dict[bool, Any] = {}
    for row, label in enumerate(np.ravel(labels)):
        if is_missing(label):
            raise InvalidInput(
                f"{who}: y must have no missing labels; got {label!r} in row {row} (counted from "
                "0). Drop such rows, or give them a label of their own."
            )
        first.setdefault(isinstance(label, str), label)
    if len(first) > 1:
        raise InvalidInput(
            f"{who}: labels in y must be all text or all numbers; got {first[True]!r} and "
            f"{first[False]!r}. Make them alike, e.g. with y.astype(str)."
        )


def _has_missing(labels: Any) -> bool:
    """Whether NaN is among floating-point numbers, or NA among nullable labels of pandas."""
    dtype = getattr(labels, "dtype", None)
    if hasattr(dtype, "numpy_dtype"):
        return bool(labels.isna().any())
    return getattr(dtype, "kind", "") == "f" and bool(np.isnan(labels).any())


def of_one_type(labels: Any) -> Any:
    """Return labels of pandas that may be missing, and are not, as the type that they hold.

    scikit-learn makes floating-point numbers of whole ones and of truth values.
    """
    kind = getattr(getattr(labels, "dtype", None), "numpy_dtype", None)
    if getattr(kind, "kind", "") not in tuple("biu") or labels.isna().any():
        return labels
    return labels.to_numpy(kind)


def refuse_quantity(who: str, labels: Array, rows: int | None) -> None:
    """Refuse numbers that are not whole, and many numbers with few rows each.

    Numbers may be text. Without a number of rows only the first is refused.
    """
    if labels.dtype.kind == "f":
        broken = labels[np.isfinite(labels) & (labels != np.rint(labels))]
        if len(broken):
            raise InvalidInput(
                f"{who}: y must hold classes; got numbers that are not whole, such as "
                f"{broken.flat[0]:g} (Unknown label type: continuous). {_remedy(who)}; name "
                "classes by whole numbers or text."
            )
    if rows is None or rows <= 2 * FEW_CLASSES:
        return
    classes = np.unique(labels)
    if len(classes) <= max(FEW_CLASSES, min(rows / 2, max(MANY_CLASSES, rows / ROWS_OF_CLASS))):
        return
    others = [label for label in classes.tolist() if not is_number(label)]
    if len(others) <= MOST_OTHERS * len(classes):
        but = f", but for {listed(others)}" if others else ""
        raise InvalidInput(
            f"{who}: y must hold classes; got {len(classes):,} different numbers in {rows:,} "
            f"rows{but}. {_remedy(who)}."
        )


def _remedy(who: str) -> str:
    return f"For a target that is a quantity take {_REGRESSORS.get(who, 'a regressor')}"


def known_classes(who: str, classes: Any) -> Array:
    """Return the sorted classes; at least two are required."""
    classes = np.asarray(classes)
    require_sortable(who, classes)
    classes = np.unique(classes)
    if len(classes) < 2:
        raise InvalidInput(
            f"{who}: y must have at least 2 classes; got the 1 class {classes.tolist()[0]!r} only."
            if len(classes)
            else f"{who}: y must have at least 2 classes; got none."
        )
    return classes


def codes_of(who: str, labels: Array, classes: Array) -> Float[Array, " n"]:
    """Return the place of each label in the sorted classes."""
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    unknown = classes[codes] != labels
    if np.any(unknown):
        raise InvalidInput(
            f"{who}: every label must be one of the classes {listed(classes.tolist())}; got "
            f"{listed(np.unique(labels[unknown]).tolist())}. Name all classes in the first call "
            "(partial_fit(..., classes=...)), or fit anew."
        )
    return codes.astype(np.float64)


def warn_of_rare(who: str, codes: Array, classes: Array) -> None:
    """Warn of classes with too few rows for leave-one-out checks."""
    counts = np.bincount(codes.astype(np.int64), minlength=len(classes))
    rare = np.flatnonzero((counts > 0) & (counts < RARE_ROWS))
    if len(codes) < max(FEW_ROWS, ROWS_OF_CLASS * len(classes)) or not len(rare):
        return
    named = listed([f"{classes[k]} ({counts[k]})" for k in rare])
    have = "1 class has" if len(rare) == 1 else f"{len(rare)} classes have"
    warn_user(
        f"{who}: {have} fewer than {RARE_ROWS} of the {len(codes):,} rows: {named}. These rows "
        "take part as all others do; such a class is seldom predicted, and its probability is a "
        'guess. Give it more rows, join it with another, or weigh it by class_weight="balanced".',
        DataWarning,
    )


def labels_of(who: str, blocks: Blocks, where: Executor = LOCAL) -> Array:
    """Return the distinct labels of a pass.

    For a table it reads cells, because encoders of columns are learned with the classes.
    """
    seen, rows = where.sum(LabelsOf(who), blocks.cells() or blocks)
    refuse_quantity(who, seen, rows)
    check_classification_targets(seen)
    return seen.astype(np.int64) if np.array_equal(seen, np.rint(seen)) else seen


@dataclass(frozen=True)
class LabelsOf:
    """The summand of distinct labels, and of the number of rows."""

    who: str

    def zero(self) -> tuple[Array, int]:
        """Return no labels."""
        return np.empty(0), 0

    def add(self, total: tuple[Array, int], block: Any) -> tuple[Array, int]:
        """Add the labels of a block; refuse values that cannot be classes."""
        y = required_targets(self.who, block.y)
        if y.ndim != 1:
            raise InvalidInput(
                f"{self.who}: y must be one column of labels; got rows of shape {y.shape[1:]}."
            )
        return self.merge(total, (np.unique(to_numpy(y)), len(y)))

    def merge(self, a: tuple[Array, int], b: tuple[Array, int]) -> tuple[Array, int]:
        """Return the labels of both."""
        seen = np.union1d(a[0], b[0])
        refuse_quantity(self.who, seen, None)
        if len(seen) > MOST_CLASSES:
            raise InvalidInput(
                f"{self.who}: y must hold classes, {MOST_CLASSES:,} at most; got more different "
                f"numbers. {_remedy(self.who)}."
            )
        return seen, a[1] + b[1]


def factors_of(
    who: str, given: Any, classes: Array, blocks: Blocks, where: Executor = LOCAL
) -> Float[Array, " K"]:
    """Return the factor of each class: 1 on average by weight where "balanced", or as given."""
    if isinstance(given, Mapping):
        return _given_factors(who, given, classes)
    if given != "balanced":
        raise InvalidInput(
            f'{who}: class_weight must be None, "balanced" or a dict of class: weight; '
            f"got {given!r}."
        )
    sizes = where.sum(ClassSizes(len(classes)), blocks)
    return np.divide(sizes.sum(), len(classes) * sizes, out=np.zeros_like(sizes), where=sizes > 0)


def _given_factors(who: str, given: Mapping[Any, float], classes: Array) -> Float[Array, " K"]:
    unknown = [label for label in given if label not in classes.tolist()]
    if unknown:
        raise InvalidInput(
            f"{who}: class_weight must name classes among {listed(classes.tolist())}; got "
            f"{listed(unknown)}."
        )
    factors = np.array([float(given.get(label, 1.0)) for label in classes.tolist()])
    if not np.all((factors >= 0) & np.isfinite(factors)):
        raise InvalidInput(
            f"{who}: the weights in class_weight must be finite and not negative; got {given!r}."
        )
    return factors


@dataclass(frozen=True)
class ClassSizes:
    """The summand of the weight of each class: n/(K n_k) weighs all classes alike."""

    n_classes: int

    def zero(self) -> Float[Array, " K"]:
        """Return no weights."""
        return np.zeros(self.n_classes)

    def add(self, total: Array, block: Any) -> Float[Array, " K"]:
        """Add the rows of a block."""
        w = None if block.w is None else to_numpy(block.w)
        codes = to_numpy(block.y).astype(np.int64)
        return total + np.bincount(codes, w, minlength=self.n_classes)

    def merge(self, a: Array, b: Array) -> Float[Array, " K"]:
        """Return the weights of both."""
        return a + b
