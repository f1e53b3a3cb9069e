"""Where k-means begins, and what more clusters would save."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bochner._ground.arrays import to_numpy
from bochner._ground.checks import integer
from bochner._ground.random import stream
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.estimators.fitting.alike import row_marks
from bochner.estimators.fitting.engine import as_features
from bochner.estimators.fitting.rows import RowSample
from bochner.estimators.unsupervised.clustering import COMPARED_ROWS, Elbow
from bochner.kernels import Kernel

__all__ = ["best_start", "different", "elbow", "kernel_silhouette"]


def different(rows: RowSample, seed: int) -> RowSample:
    """Return the different rows, in an order of their own, with the weights of all their copies.

    So a row of weight 2 starts as two rows do, in whatever order they came.
    """
    marks = row_marks(rows.X, seed)
    _, first, which = np.unique(marks, return_index=True, return_inverse=True)
    return replace(rows.take(first), w=np.bincount(which, rows.w))


def best_start(model: Any, Z: Float[Array, "m D"], w: Float[Array, " m"], k: int) -> Any:
    """Return scikit-learn's k-means of these features: the best of ``n_init`` k-means++ starts."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  takes a second to import
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    seed = int(stream(model.seed_, "clusters").integers(2**31))
    means = KMeans(k, n_init=model.n_init, max_iter=model.max_iter, random_state=seed)
    with warnings.catch_warnings():  # of fewer different rows than clusters
        warnings.simplefilter("ignore", ConvergenceWarning)
        return means.fit(Z, sample_weight=w)


def elbow(model: Any, rows: RowSample, clusters: Iterable[int], silhouette: bool) -> Elbow:
    """Return what these numbers of clusters cost on these rows."""
    numbers = tuple(sorted({integer(k, "KernelKMeans", "clusters", 1) for k in clusters}))
    if not numbers or numbers[-1] > len(rows):
        raise InvalidInput(
            f"KernelKMeans.elbow: clusters must be numbers from 1 to the {len(rows)} rows looked "
            f"at; got {numbers}."
        )
    Z = to_numpy(as_features(model.map_, rows.X, model.feature_dtype_))
    found = [best_start(model, Z, rows.w, k) for k in numbers]
    costs = tuple(float(f.inertia_) / float(rows.w.sum()) for f in found)
    few = np.arange(min(len(rows), COMPARED_ROWS) if silhouette else 0)
    X = rows.take(few).X
    each = [kernel_silhouette(model.kernel_, X, f.labels_[few]) for f in found if silhouette]
    return Elbow(numbers, costs, tuple(each), len(rows))


def kernel_silhouette(kernel: Kernel, X: Array, labels: Array) -> float:
    """Return the mean silhouette; 0 where all rows are of one cluster, or each of its own."""
    from sklearn.metrics import silhouette_score  # noqa: PLC0415  takes a second to import

    if not 1 < len(np.unique(labels)) < len(labels):
        return 0.0
    K = to_numpy(kernel(X)).astype(np.float64)
    squares = np.diagonal(K)[:, None] + np.diagonal(K) - (K + K.T)
    np.fill_diagonal(squares, 0.0)
    lengths = np.sqrt(np.maximum(squares, 0.0))
    return float(silhouette_score(lengths, labels, metric="precomputed"))
