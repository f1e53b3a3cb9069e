"""Table 3: kernel k-means, Gaussian kernel on the unit sphere, every method at the same widths.

k-means on the features, scikit-learn's, from ten k-means++ seeds, k the number of classes. The
objective is the mean squared distance of a row to the centre of its cluster: "in features" as the
method sees it, as published, and "exact", of the same clustering under the kernel itself. The
first flatters maps that drop energy (shorter vectors are nearer to each other); only the second
compares clusterings. Each seed draws maps and starts anew, of the same rows; "±" is the standard
error of the mean of "exact" over seeds.
"""

from collections.abc import Callable, Iterator
from statistics import mean

import numpy as np
from sklearn.cluster import KMeans

import bochner as bo
from benchmarks.harness import MissingDataSet, Options, Row, interleaved
from benchmarks.paper.data import CLUSTERING, Clusters, clusters
from benchmarks.paper.methods import METHODS, PUBLISHED, standard_error, verdict, warm_up
from bochner.features import Method
from bochner.kernels import Gaussian

__all__ = ["exact_objectives", "run"]

#: Objectives that were published, in the order of PUBLISHED; their width is not in our copy.
PAPER = {
    "Abalone": (0.38, 0.38, 0.43, 0.43, 0.35, 0.35),
    "Pendigits": (0.42, 0.43, 0.46, 0.46, 0.45, 0.40),
    "Mushroom": (0.71, 0.72, 0.74, 0.72, 0.67, 0.71),
    "Magic": (0.64, 0.66, 0.67, 0.73, 0.66, 0.59),
    "Statlog": (0.23, 0.24, 0.24, 0.23, 0.21, 0.21),
    "Connect-4": (0.61, 0.81, 0.83, 0.90, 0.82, 0.78),
}

#: One lengthscale for all data sets: exp(-|x - y|²), from 1 down to exp(-4) on the unit sphere.
LENGTHSCALE = 0.5**0.5

#: Rows that the exact objective is the mean over, and of a block of the kernel matrix.
SAMPLE, BLOCK = 5000, 250

Array = np.ndarray


def run(options: Options, seeds: int) -> Iterator[list[Row]]:
    """Give the rows of one data set and width after the other."""
    for name in options.tables or CLUSTERING:
        for width in options.pick((1024, 512), (64,)):
            try:
                yield _data_set(name, width, options, seeds)
            except MissingDataSet as missing:
                yield [{"note": f"Left out: {missing}"}]


def _data_set(name: str, width: int, options: Options, seeds: int) -> list[Row]:
    data, starts = clusters(name, options), options.pick(10, 2)
    warm_up(Gaussian(LENGTHSCALE), data.X)
    cases = {key: _case(data, method, width, starts) for key, method in METHODS.items()}
    times = interleaved(cases, seeds, warm_up=False)
    labels = [found for timing in times.values() for _, found in timing.values]
    exact = exact_objectives(Gaussian(LENGTHSCALE), data.X, labels, SAMPLE).reshape(-1, seeds)
    published = dict(zip(PUBLISHED, PAPER[name], strict=True))
    n, d = data.X.shape
    rows = [
        {
            "data": name,
            "D": width,
            "method": key,
            "in features": mean(objective for objective, _ in timing.values),
            "exact": mean(errors),
            "±": standard_error(errors),
            "seconds": timing.median,
            "paper's": published.get(key),
            "errors": errors,
            "rows": n,
            "columns": d,
            "clusters": data.n_clusters,
        }
        for (key, timing), errors in zip(times.items(), exact.tolist(), strict=True)
    ]
    about = f"{name}: n = {n:,}, d = {d}, k = {data.n_clusters}, D = {width}."
    return [*rows, {"note": about}, verdict(rows, "exact")]


def _case(
    data: Clusters, method: Method | str, width: int, starts: int
) -> Callable[[int], tuple[float, Array]]:
    X = data.X.astype(np.float32)

    def case(seed: int) -> tuple[float, Array]:
        kernel = Gaussian(LENGTHSCALE)
        Z = bo.draw(kernel, method, n_features=width, X=X, random_state=seed)(X)
        found = KMeans(data.n_clusters, n_init=starts, random_state=seed).fit(Z)
        return float(found.inertia_) / len(X), found.labels_

    return case


def exact_objectives(kernel: bo.kernels.Kernel, X: Array, labels: list[Array], most: int) -> Array:
    """Return mean k(x, x) − 2 k(x, C) + k(C, C) for each clustering, C the cluster of x.

    k(x, C) and k(C, C) are means over all rows of the cluster; the mean over x is that of at most
    ``most`` rows, the same for every clustering. It equals the mean of k(x, x) − k(x, C).
    """
    sample = np.random.default_rng(0).permutation(len(X))[:most]
    inside = [_indicator(found) for found in labels]
    shares = np.hstack([member / member.sum(axis=0) for member in inside])
    chosen = np.hstack(inside)[sample]
    ends = np.cumsum([member.shape[1] for member in inside])[:-1]
    total = np.zeros(len(labels))
    for start in range(0, len(sample), BLOCK):
        rows = sample[start : start + BLOCK]
        near = (kernel(X[rows], X) @ shares) * chosen[start : start + BLOCK]
        total += [part.sum() for part in np.split(near, ends, axis=1)]
    return float(np.mean(kernel.diag(X[sample]))) - total / len(sample)


def _indicator(labels: Array) -> Array:
    return (labels[:, None] == np.unique(labels)).astype(np.float64)
