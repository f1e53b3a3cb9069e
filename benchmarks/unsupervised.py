"""Kernel PCA and kernel k-means of 50,000 rows, against exact ones of 10,000.

Gaussian kernel with the median distance as lengthscale, columns in standard deviations. Principal
components: ``sklearn.decomposition.KernelPCA`` with the solver it takes by itself, and the share of
the variance, in the kernel's own space, that the components explain of rows kept apart. Clusters:
scikit-learn has no kernel k-means, so the rival is the textbook's on ``rbf_kernel``, one start; the
cost is that of both clusterings of the same 10,000 rows, by the exact kernel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import rbf_kernel

import bochner as bo
from benchmarks.harness import Options, Row, compared, each, interleaved, judged, stored
from bochner.kernels import Gaussian

__all__ = ["run"]

#: Tables of the folder of data with 50,000 rows to fit and some to spare, and their clusters.
TABLES = {"shuttle": 7, "mnist": 10}
MANY, FEW, APART = 50_000, 10_000, 2000
COMPONENTS = 8


def run(options: Options) -> list[Row]:
    """Return two rows for each table."""
    return each(TABLES, lambda name: _both(name, options))


def _both(name: str, options: Options) -> list[Row]:
    X = _rows(name, options)
    scale = float(np.median(pdist(X[:1000]))) or 1.0
    clusters = _clusters(name, X, scale, TABLES[name], options)
    return [_components(name, X, scale, options), clusters]


def _rows(name: str, options: Options) -> np.ndarray:
    X = stored(name, options.data)["X"].astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))[: options.pick(MANY + APART, 3000)]]
    spread = X.std() if name == "mnist" else np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    return np.asarray((X - X.mean(axis=0)) / spread, dtype=np.float32)


def _components(name: str, X: np.ndarray, scale: float, options: Options) -> Row:
    few, apart = options.pick((FEW, APART), (1000, 500))
    X, new = X[:-apart], X[-apart:]
    kernel, width = Gaussian(scale), options.pick(512, 128)

    def ours(seed: int) -> Any:
        return bo.KernelPCA(COMPONENTS, kernel, n_features=width, random_state=seed).fit(X)

    def rival(seed: int) -> Any:
        model = KernelPCA(COMPONENTS, kernel="rbf", gamma=0.5 / scale**2, random_state=seed)
        return model.fit(X[:few])

    row, a, b = _timed(ours, rival, options)
    return {
        "model": "KernelPCA",
        "table": name,
        "rows": len(X),
        "rival's rows": few,
        "columns": X.shape[1],
        "D": width,
        **row,
        "error": 1 - _explained(a, kernel, new),
        "rival's": 1 - _explained(b, kernel, new),
        "method": str(a.choice_.method),
    }


def _explained(model: Any, kernel: Gaussian, new: np.ndarray) -> float:
    """Share of the variance of rows kept apart, in the kernel's space, that scores explain."""
    K = kernel(new.astype(np.float64))
    total = np.trace(K) - K.sum() / len(K)
    S = model.transform(new)
    return float(((S - S.mean(axis=0)) ** 2).sum() / total)


def _clusters(name: str, X: np.ndarray, scale: float, k: int, options: Options) -> Row:
    few, width = options.pick((FEW, 512), (1000, 128))
    X = X[: -options.pick(APART, 500)]
    kernel = Gaussian(scale)

    def ours(seed: int) -> Any:
        return bo.KernelKMeans(k, kernel, n_features=width, random_state=seed).fit(X)

    def rival(seed: int) -> Any:
        return _textbook(X[:few], 0.5 / scale**2, k, seed)

    row, a, b = _timed(ours, rival, options)
    K = rbf_kernel(X[:few], gamma=0.5 / scale**2)
    return {
        "model": "KernelKMeans",
        "table": name,
        "rows": len(X),
        "rival's rows": few,
        "columns": X.shape[1],
        "D": width,
        **row,
        "error": _cost(K, a.labels_[:few], k) / few,
        "rival's": _cost(K, b, k) / few,
        "method": str(a.choice_.method),
        "bounds": f"{a.objective_.low / len(X):.4g} to {a.objective_.high / len(X):.4g}",
    }


def _timed(
    ours: Callable[[int], Any], rival: Callable[[int], Any], options: Options
) -> tuple[Row, Any, Any]:
    times = interleaved({"ours": ours, "rival": rival}, options.pick(2, 1), warm_up=False)
    ratio = times["rival"].median / times["ours"].median
    row = {**compared(times["ours"], times["rival"]), **judged(ratio, 1.0)}
    return row, times["ours"].values[0], times["rival"].values[0]


def _textbook(X: np.ndarray, gamma: float, k: int, seed: int) -> np.ndarray:
    """Kernel k-means with the whole kernel matrix, k-means++ and at most 300 passes."""
    K = rbf_kernel(X, gamma=gamma)
    centres = _seeds(K, k, np.random.default_rng(seed))
    labels = np.argmax(K[:, centres], axis=1)
    for _ in range(300):
        members = np.eye(k, dtype=K.dtype)[labels]
        sizes = np.maximum(members.sum(axis=0), 1)
        sums = K @ members / sizes
        gaps = np.einsum("ij,ij->j", members, sums) / sizes - 2 * sums
        moved = np.argmin(gaps, axis=1)
        if np.array_equal(moved, labels):
            break
        labels = moved
    return labels


def _seeds(K: np.ndarray, k: int, rng: np.random.Generator) -> list[int]:
    chosen = [int(rng.integers(len(K)))]
    gaps = 2 - 2 * K[chosen[0]]
    while len(chosen) < k:
        chosen.append(int(rng.choice(len(K), p=gaps / gaps.sum())))
        gaps = np.minimum(gaps, np.maximum(2 - 2 * K[chosen[-1]], 0))
    return chosen


def _cost(K: np.ndarray, labels: np.ndarray, k: int) -> float:
    members = np.eye(k)[labels] / np.sqrt(np.maximum(np.bincount(labels, minlength=k), 1))
    return float(np.trace(K) - np.einsum("ij,ij->", members, K @ members))
