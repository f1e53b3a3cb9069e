"""Table 2: ridge regression, Gaussian kernel, D = 1024: as published, each at its best, and ours.

Mean squared error on the tenth of the rows that was kept out, in five protocols. "published": the
lengthscale is 1 for every method; the paper does not give it, and at 1 its errors on the elevation
come out. "own": each method has the lengthscale of its own least two-fold error on some training
rows. "ours": the same for bochner's maps of equal width. "leaves": the same for the kernel itself
within leaves of D/2 rows, and D/2 landmarks across them, which is D kernel values a prediction; and
for auto that may take them in the place of D features. "learner": KernelRidge as it is, with kernel
and width of its own choice. Each seed splits the rows anew and draws every map anew; "±" is the
standard error of the mean over seeds, and seconds are those of the processor for drawing, features,
penalty by two-fold cross-validation (of a learner by errors of rows left out), fit and predictions.
"""

import time
from collections.abc import Callable, Iterator
from statistics import mean

import numpy as np

import bochner as bo
from benchmarks.harness import MissingDataSet, Options, Row, say
from benchmarks.paper.data import REGRESSION, Split, split
from benchmarks.paper.methods import OPTIMAL, PUBLISHED, standard_error, warm_up
from benchmarks.paper.ridge import fit_and_predict, two_fold_error
from bochner.data.blocks import Blocks
from bochner.features import Auto, Method
from bochner.kernels import Gaussian
from bochner.selection.choose import choose
from bochner.selection.chosen import FeatureSpec

__all__ = ["OURS", "PAPER", "PROTOCOLS", "run"]

#: Mean squared errors and seconds that were published, in the order of PUBLISHED.
PAPER = {
    "Elevation": ((1.14, 1.30, 1.35, 1.90, 1.56, 1.15), (3.81, 2.10, 7.79, 1.07, 7.65, 1.71)),
    "CO2": ((0.533, 0.548, 0.551, 0.593, 0.590, 0.532), (8.17, 4.73, 17.3, 2.38, 16.4, 3.49)),
    "Climate": ((3.14, 3.15, 3.16, 3.18, 3.15, 3.13), (12.0, 6.93, 26.3, 3.55, 23.5, 5.41)),
    "Protein": ((18.9, 19.8, 19.8, 25.9, 26.9, 21.0), (2.85, 1.66, 4.94, 1.05, 4.96, 9.72)),
}

#: Bochner's maps at the width of the paper, and its learner with nothing asked.
AUTO, LEAVES, EITHER, LEARNER = "auto", "LocalKernel", "Auto(leaves=True)", "KernelRidge()"
OURS: dict[str, Method | str] = {AUTO: "auto", "Nystrom('kmeans')": bo.Nystrom("kmeans")}
PROTOCOLS = ("published", "own", "ours", "leaves", "learner")

#: Training rows that lengthscales are chosen on, in a full run and a quick one.
CHOSEN_ON = (8000, 300)

#: Powers of two that lengthscales lie between.
SHORTEST, LONGEST = -6.0, 3.0


def run(options: Options, seeds: int) -> Iterator[list[Row]]:
    """Give the rows of one data set after the other."""
    for name in options.tables or REGRESSION:
        try:
            yield list(_data_set(name, options, seeds))
        except MissingDataSet as missing:
            yield [{"note": f"Left out: {missing}"}]


def _data_set(name: str, options: Options, seeds: int) -> Iterator[Row]:
    width, splits = options.pick(1024, 64), [split(name, options, seed) for seed in range(seeds)]
    n, d = splits[0].X.shape
    about = {"data": name, "D": width, "rows": n, "tested": len(splits[0].X_test), "columns": d}
    warm_up(Gaussian(1.0), splits[0].X)
    for protocol in options.parts or PROTOCOLS:
        if protocol == "learner":
            yield about | _measured(protocol, LEARNER, None, _learner, splits, name)
            continue
        for key, method in _methods(protocol, width).items():
            scale = 1.0 if protocol == "published" else _best(splits[0], method, width, options)
            case = _at(method, scale, width)
            yield about | _measured(protocol, key, scale, case, splits, name)


def _methods(protocol: str, width: int) -> dict[str, Method | str]:
    if protocol == "leaves":
        leaves = bo.LocalKernel(leaf_rows=width // 2, landmarks=width // 2)
        return {LEAVES: leaves, EITHER: bo.Auto(leaves=True)}
    return OURS if protocol == "ours" else PUBLISHED | OPTIMAL


def _measured(
    protocol: str,
    key: str,
    scale: float | None,
    case: Callable[[Split, int], np.ndarray],
    splits: list[Split],
    name: str,
) -> Row:
    errors, seconds = [], []
    for seed, data in enumerate(splits):
        began = time.process_time()
        predicted = case(data, seed)
        seconds.append(time.process_time() - began)
        errors.append(float(np.mean((predicted - data.y_test) ** 2)))
    published = dict(zip(PUBLISHED, PAPER[name][0], strict=True))
    say(f"{name} {protocol} {key} ℓ = {scale}: {mean(errors):.4g}, {mean(seconds):.3g} s")
    return {
        "protocol": protocol,
        "method": key,
        "lengthscale": scale,
        "MSE": mean(errors),
        "±": standard_error(errors),
        "seconds": mean(seconds),
        "paper's MSE": published.get(key) if protocol == "published" else None,
        "errors": errors,
    }


# --- fits ----------------------------------------------------------------------------------------


def _learner(data: Split, seed: int) -> np.ndarray:
    return bo.KernelRidge(random_state=seed).fit(data.X, data.y).predict(data.X_test)


def _at(method: Method | str, scale: float, width: int) -> Callable[[Split, int], np.ndarray]:
    """Return the fit of a method at a lengthscale, and its predictions."""

    def case(data: Split, seed: int) -> np.ndarray:
        if _learned(method):
            return _fitted(method, scale, width, data.X, data.y, seed).predict(data.X_test)
        phi = _drawn(method, scale, width, data.X, data.y, seed)
        return fit_and_predict(phi, data.X, data.y, data.X_test)

    return case


def _learned(method: Method | str) -> bool:
    """Whether there may be no map, and the learner is fitted itself."""
    return isinstance(method, bo.LocalKernel) or method == bo.Auto(leaves=True)


def _fitted(
    method: Method | str, scale: float, width: int, X: np.ndarray, y: np.ndarray, seed: int
) -> bo.KernelRidge:
    """Fit the learner; the penalty is chosen by errors of rows left out."""
    model = bo.KernelRidge(Gaussian(scale), method=method, n_features=width, random_state=seed)
    return model.fit(X, y)


def _two_fold(
    method: Method | str, scale: float, width: int, X: np.ndarray, y: np.ndarray
) -> float:
    """Return the mean squared error of each half of the rows as the other predicts it."""
    if not _learned(method):
        return two_fold_error(_drawn(method, scale, width, X, y, 0), X, y)
    halves = slice(None, len(X) // 2), slice(len(X) // 2, None)
    errors = (
        (_fitted(method, scale, width, X[a], y[a], 0).predict(X[b]) - y[b]) ** 2
        for a, b in (halves, halves[::-1])
    )
    return float(np.concatenate(list(errors)).mean())


def _drawn(
    method: Method | str, scale: float, width: int, X: np.ndarray, y: np.ndarray, seed: int
) -> bo.FeatureMap:
    """Draw a map; auto chooses as it does for a learner, by the targets of sampled rows."""
    if method == "auto":
        asked = FeatureSpec.of("table 2", Gaussian(scale), Auto(), width, "auto", seed)
        return choose(asked, Blocks.from_arrays(X, y))[0].map
    return bo.draw(Gaussian(scale), method, n_features=width, X=X, random_state=seed)


def _best(data: Split, method: Method | str, width: int, options: Options) -> float:
    """Return the lengthscale of least two-fold error: downhill from 1 by powers of 2, then √2.

    Errors of one draw are noisy, so that two steps are looked at on either side, not one.
    """
    most = options.pick(*CHOSEN_ON)
    X, y, known = data.X[:most], data.y[:most], dict[float, float]()

    def error(power: float) -> float:
        if power not in known:
            known[power] = _two_fold(method, 2.0**power, width, X, y)
        return known[power]

    at = 0.0
    for step in (1.0, 0.5):
        while True:
            steps = (0.0, -step, step, -2 * step, 2 * step)
            near = [at + s for s in steps if SHORTEST <= at + s <= LONGEST]
            best = min(near, key=error)
            if best == at:
                break
            at = best
    return float(2.0**at)
