"""Table 2: kernel ridge regression, Gaussian kernel, every method at the same width.

Mean squared error on the tenth of the rows that was kept out, and the seconds of all: drawing the
map, features, penalty by two-fold cross-validation, fit, predictions. The lengthscale is the one
of least two-fold error of three published methods on some of the training rows: one for everyone.
Auto chooses as it does for a learner, by the targets of a sample of the training rows.
"""

from collections.abc import Callable, Iterator
from statistics import mean, stdev

import numpy as np

import bochner as bo
from benchmarks.harness import MissingDataSet, Options, Row, interleaved
from benchmarks.paper.data import REGRESSION, Split, split
from benchmarks.paper.methods import METHODS, PUBLISHED, verdict, warm_up
from benchmarks.paper.ridge import fit_and_predict, two_fold_error
from bochner.data.blocks import Blocks
from bochner.features import Auto, Method
from bochner.kernels import Gaussian
from bochner.selection.choose import choose
from bochner.selection.chosen import FeatureSpec

__all__ = ["run"]

#: Mean squared errors and seconds that were published, in the order of PUBLISHED.
PAPER = {
    "Elevation": ((1.14, 1.30, 1.35, 1.90, 1.56, 1.15), (3.81, 2.10, 7.79, 1.07, 7.65, 1.71)),
    "CO2": ((0.533, 0.548, 0.551, 0.593, 0.590, 0.532), (8.17, 4.73, 17.3, 2.38, 16.4, 3.49)),
    "Climate": ((3.14, 3.15, 3.16, 3.18, 3.15, 3.13), (12.0, 6.93, 26.3, 3.55, 23.5, 5.41)),
    "Protein": ((18.9, 19.8, 19.8, 25.9, 26.9, 21.0), (2.85, 1.66, 4.94, 1.05, 4.96, 9.72)),
}

#: Lengthscales that are tried: the median distance of rows times these.
SCALES = (1.0, 0.5, 0.25, 0.125, 0.0625)

#: Methods that choose the lengthscale: the three most accurate ones of the paper.
CHOOSERS = ("Nystrom", "Fourier", "Gegenbauer")


def run(options: Options, seeds: int) -> Iterator[list[Row]]:
    """Give the rows of one data set after the other."""
    for name in REGRESSION:
        try:
            yield _data_set(name, options, seeds)
        except MissingDataSet as missing:
            yield [{"note": f"Left out: {missing}"}]


def _data_set(name: str, options: Options, seeds: int) -> list[Row]:
    data, width = split(name, options), options.pick(1024, 64)
    scale = _lengthscale(data, width, options.pick(8000, 500), options.pick(SCALES, SCALES[1:2]))
    warm_up(Gaussian(scale), data.X)
    cases = {key: _case(data, method, scale, width) for key, method in METHODS.items()}
    times = interleaved(cases, seeds, warm_up=False)
    published = dict(zip(PUBLISHED, zip(*PAPER[name], strict=True), strict=True))
    rows = [
        {
            "data": name,
            "method": key,
            "MSE": mean(timing.values),
            "± over seeds": stdev(timing.values) if len(timing.values) > 1 else 0.0,
            "seconds": timing.median,
            "paper's MSE": published.get(key, (None,))[0],
            "paper's s": published.get(key, (None, None))[1],
        }
        for key, timing in times.items()
    ]
    n, d = data.X.shape
    about = f"{name}: n = {n:,} and {len(data.X_test):,}, d = {d}, D = {width}, ℓ = {scale:.3g}."
    return [*rows, {"note": about}, verdict(rows, "MSE")]


def _case(data: Split, method: Method | str, scale: float, width: int) -> Callable[[int], float]:
    def case(seed: int) -> float:
        if method == "auto":
            phi = _chosen(scale, width, data, seed)
        else:
            phi = _draw(method, scale, width, data.X, seed)
        predicted = fit_and_predict(phi, data.X, data.y, data.X_test)
        return float(np.mean((predicted - data.y_test) ** 2))

    return case


def _chosen(scale: float, width: int, data: Split, seed: int) -> bo.FeatureMap:
    asked = FeatureSpec.of("table 2", Gaussian(scale), Auto(), width, "auto", seed)
    return choose(asked, Blocks.from_arrays(data.X, data.y))[0].map


def _draw(
    method: Method | str, scale: float, width: int, X: np.ndarray, seed: int
) -> bo.FeatureMap:
    return bo.draw(Gaussian(scale), method, n_features=width, X=X, random_state=seed)


def _lengthscale(data: Split, width: int, most: int, scales: tuple[float, ...]) -> float:
    """Return the best of ``scales``, or one between it and its neighbours, by ``most`` rows."""
    X, y = data.X[:most], data.y[:most]
    half = len(X) // 2
    median = float(np.median(np.linalg.norm(X[:half] - X[half : 2 * half], axis=1)))
    found: dict[float, float] = {}

    def best(scales: tuple[float, ...]) -> float:
        for scale in scales:
            maps = (_draw(PUBLISHED[name], median * scale, width, X, 0) for name in CHOOSERS)
            found[scale] = min(two_fold_error(phi, X, y) for phi in maps)
        return min(found, key=lambda scale: found[scale])

    coarse = best(scales)
    return median * best((coarse * 0.5**0.5, coarse * 2**0.5))
