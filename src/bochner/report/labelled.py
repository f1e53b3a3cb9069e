"""How sure a classifier is, and how rightly: log loss and areas under curves, as scikit-learn's."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.sample import row_priorities

#: Rows, and rows times classes, whose values are kept for areas: of more, so many at random.
MOST_ROWS, MOST_CELLS = 1 << 16, 1 << 22


def values_of(model: Any, X: Any) -> tuple[Float[Array, "m K"], Float[Array, "m K"] | None]:
    """Return the decision value of each class, and its probability if the learner has any."""
    f = to_numpy(model.decision_function(X)).astype(np.float64)
    p = None
    if hasattr(model, "predict_proba"):
        p = to_numpy(model.predict_proba(X)).astype(np.float64)
    return (np.column_stack([-f, f]) if f.ndim == 1 else f), p


def measures(
    codes: Float[Array, " m"],
    f: Float[Array, "m K"],
    p: Float[Array, "m K"] | None,
    w: Float[Array, " m"],
) -> Iterator[tuple[str, float]]:
    """Give "log_loss", where there are probabilities, and "auc", where a curve has both ends.

    Parameters
    ----------
    codes : (m,)
        Numbers of the classes of the rows, from 0.
    f : (m, K)
        Decision values: of two classes the second is the first, negated.
    p : (m, K) or None
    w : (m,)

    Notes
    -----
    "auc" is the area under the receiver's curve; of several classes the mean of those of each
    against the rest, of classes that some rows have.
    """
    classes = np.arange(f.shape[1])
    if p is not None:
        yield "log_loss", float(log_loss(codes, p, sample_weight=w, labels=classes))
    both = [k for k in classes if 0 < w[codes == k].sum() < w.sum()]
    if both:
        areas = [roc_auc_score(codes == k, f[:, k], sample_weight=w) for k in both]
        yield "auc", float(np.mean(areas))


class KeptValues:
    """Classes and values of rows in a pass: of all rows, or of many those that chance keeps.

    Parameters
    ----------
    model : fitted classifier
    seed : int
        Which rows are kept depends on it and on their numbers alone.
    most : int, default 65,536
        Rows that are kept, at most; fewer of very many classes.
    """

    def __init__(self, model: Any, seed: int, most: int = MOST_ROWS) -> None:
        self._model, self._seed = model, seed
        self._most = max(1, min(most, MOST_CELLS // len(model.classes_)))
        self._parts: list[tuple[Any, ...]] = []
        self._limit = np.inf

    def add(self, X: Any, codes: Array, w: Float[Array, " b"], start: int) -> None:
        """Take in the rows of a block, the first of which has the number ``start``."""
        priority = row_priorities(self._seed, start, len(w))
        rows = np.flatnonzero((w > 0) & (priority <= self._limit))
        if not len(rows):
            return
        f, p = values_of(self._model, Blocks.from_arrays(X[rows]))
        self._parts.append((priority[rows], codes[rows].astype(np.intp), f, p, w[rows]))
        if sum(len(part[0]) for part in self._parts) > 2 * self._most:
            self._parts = [self._together()]
            self._limit = self._parts[0][0].max()

    def measures(self) -> dict[str, float]:
        """Return the measures of the rows that were kept; nothing of none."""
        return dict(measures(*self._together()[1:])) if self._parts else {}

    def _together(self) -> tuple[Any, ...]:
        columns = zip(*self._parts, strict=True)
        joined = [None if each[0] is None else np.concatenate(each) for each in columns]
        priority: Any = joined[0]
        kept = np.sort(np.argsort(priority, kind="stable")[: self._most])
        return tuple(None if each is None else each[kept] for each in joined)
