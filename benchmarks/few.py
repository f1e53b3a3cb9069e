"""Few rows: fit and predict, every learner against scikit-learn's exact counterpart.

``make_friedman1`` of ten columns with noise 1, as many new rows as the fit has; classes are above
and below the median, three of them for ``SVC``. "given": both are told the Gaussian kernel at
lengthscale 1 and the penalty; "default": both as they come, which for ours means that kernel,
columns and penalty are chosen from the rows. Learners without an exact counterpart have
``Nystroem`` with as many features in front of the linear one. Seconds are those of one processor,
fit and predictions together, the median of the repeats. "error" is of the new rows: RMSE in
deviations of y, misclassified share, share of rows outside away from nu, unexplained share of the
kernel's variance, or the disagreement with the true groups.

``python -m benchmarks.few [--learner NAME ...] [--rows N ...] [--how given default]`` runs a part.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn import linear_model, svm
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_friedman1
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

import bochner as bo
from benchmarks.harness import Options, Row, judged, say, table
from bochner.kernels import Gaussian

__all__ = ["run"]

Array = np.ndarray

ROWS, HOW, REPEATS = (100, 500, 2000), ("given", "default"), 3
LENGTHSCALE, ALPHA, C, NU, FEATURES = 1.0, 0.1, 1.0, 0.1, 512
GAMMA = 0.5 / LENGTHSCALE**2


@dataclass(frozen=True)
class Case:
    """What is fitted both ways, on which rows, and how its answers on new rows are scored."""

    data: str  # "numbers", "two classes", "three classes", "rows" or "groups"
    ours: Any  # class
    given: dict[str, Any]  # what ours is told beside the kernel
    theirs: Callable[[int, float | None], Any]  # from the number of rows, and gamma where given
    score: Callable[[Any, Any], float]


@dataclass(frozen=True)
class Split:
    """Rows to fit, and as many new ones."""

    X: Array
    y: Array | None
    X_test: Array
    y_test: Array


def split(data: str, n: int, seed: int) -> Split:
    """Draw rows of one kind."""
    if data == "groups":
        X, y = make_blobs(2 * n, 10, centers=8, cluster_std=2.0, random_state=seed)
        X = X / X.std(axis=0) / 3
        return Split(X[:n], None, X[:n], y[:n])
    X, y = make_friedman1(2 * n, 10, noise=1.0, random_state=seed)
    if data.endswith("classes"):
        shares = (0.5,) if data.startswith("two") else (1 / 3, 2 / 3)
        y = np.digitize(y, np.quantile(y, shares))
    return Split(X[:n], None if data == "rows" else y[:n], X[n:], y[n:])


def wrong(found: Any, rows: Split) -> float:
    """Return the share of new rows that are misclassified."""
    return float(np.mean(found.predict(rows.X_test) != rows.y_test))


def rmse(found: Any, rows: Split) -> float:
    """Return the error of predictions, in deviations of y."""
    errors = np.ravel(found.predict(rows.X_test)) - rows.y_test
    return float(np.sqrt(np.mean(errors**2)) / rows.y_test.std())


def off_nu(found: Any, rows: Split) -> float:
    """Return how far the share of new rows outside is from nu."""
    return abs(float(np.mean(found.predict(rows.X_test) < 0)) - NU)


def unexplained(found: Any, rows: Split) -> float:
    """Return the share of the kernel's variance over new rows that the scores leave out."""
    scores = np.asarray(found.transform(rows.X_test))
    K = Gaussian(LENGTHSCALE)(rows.X_test)
    variance = float(np.mean(np.diag(K)) - K.mean())
    return 1 - float((scores.var(axis=0)).sum()) / variance


def disagreement(found: Any, rows: Split) -> float:
    """Return one less the adjusted Rand index of the groups found and the true ones."""
    return 1 - float(adjusted_rand_score(rows.y_test, found.predict(rows.X_test)))


def linear(last: Any) -> Callable[[int, float | None], Any]:
    """Return what makes a linear learner on Nyström's features of all rows, or of 512 of many."""

    def make(n: int, gamma: float | None) -> Any:
        width = min(n, FEATURES)
        return make_pipeline(Nystroem(gamma=gamma, n_components=width, random_state=0), clone(last))

    return make


def process(_: int, gamma: float | None) -> Any:
    """Return scikit-learn's process: of the kernel that is given, or by its evidence."""
    rbf = kernels.RBF(LENGTHSCALE)
    if gamma is not None:
        return GaussianProcessRegressor(rbf, alpha=ALPHA, optimizer=None)
    free = kernels.ConstantKernel() * rbf + kernels.WhiteKernel(ALPHA)
    return GaussianProcessRegressor(free, normalize_y=True)


def machine(learner: Any, **given: Any) -> Callable[[int, float | None], Any]:
    """Return what makes an exact machine of scikit-learn, by default as it comes."""

    def make(_: int, gamma: float | None) -> Any:
        return learner() if gamma is None else learner(gamma=gamma, **given)

    return make


RIDGE, SAME = {"alpha": ALPHA}, {"C": C, "epsilon": 0.1}

CASES = {
    "KernelRidge": Case(
        "numbers",
        bo.KernelRidge,
        RIDGE,
        machine(partial(KernelRidge, kernel="rbf"), **RIDGE),
        rmse,
    ),
    "GaussianProcessRegressor": Case(
        "numbers", bo.GaussianProcessRegressor, {"noise": ALPHA, "amplitude": 1.0}, process, rmse
    ),
    "SVR": Case("numbers", bo.SVR, SAME, machine(svm.SVR, **SAME), rmse),
    "KernelRegressor, squared": Case(
        "numbers",
        bo.KernelRegressor,
        RIDGE,
        machine(partial(KernelRidge, kernel="rbf"), **RIDGE),
        rmse,
    ),
    "KernelRegressor, Huber": Case(
        "numbers",
        partial(bo.KernelRegressor, loss="huber"),
        RIDGE,
        linear(linear_model.HuberRegressor(alpha=ALPHA, max_iter=1000)),
        rmse,
    ),
    "KernelRegressor, median": Case(
        "numbers",
        partial(bo.KernelRegressor, loss="absolute"),
        RIDGE,
        machine(partial(svm.SVR, epsilon=0.0), C=1 / ALPHA),
        rmse,
    ),
    "SVC": Case(
        "three classes", bo.SVC, {"C": C, "probability": False}, machine(svm.SVC, C=C), wrong
    ),
    "LogisticRegression": Case(
        "two classes",
        bo.LogisticRegression,
        {"C": C},
        linear(linear_model.LogisticRegression()),
        wrong,
    ),
    "KernelRidgeClassifier": Case(
        "two classes",
        bo.KernelRidgeClassifier,
        RIDGE,
        linear(linear_model.RidgeClassifier(ALPHA)),
        wrong,
    ),
    "OneClassSVM": Case(
        "rows", partial(bo.OneClassSVM, nu=NU), {}, machine(partial(svm.OneClassSVM, nu=NU)), off_nu
    ),
    "KernelPCA": Case(
        "rows",
        partial(bo.KernelPCA, 8),
        {},
        machine(partial(KernelPCA, 8, kernel="rbf")),
        unexplained,
    ),
    "KernelKMeans": Case(
        "groups",
        partial(bo.KernelKMeans, 8, n_init=3),
        {},
        linear(KMeans(8, n_init=3)),
        disagreement,
    ),
}


def run(options: Options) -> list[Row]:
    """Return a row for each learner, number of rows and way."""
    sizes, repeats = options.pick((ROWS, REPEATS), ((60,), 1))
    return [row for name in CASES for row in rows_of(name, sizes, HOW, repeats)]


def rows_of(name: str, sizes: Sequence[int], how: Sequence[str], repeats: int) -> Iterator[Row]:
    """Give what both take, and their errors."""
    case = CASES[name]
    for way, n in product(how, sizes):
        gamma, told = None, {}
        if way == "given":
            gamma, told = GAMMA, {"kernel": Gaussian(LENGTHSCALE), **case.given}
        both = (lambda: case.ours(random_state=0, **told)), (lambda: case.theirs(n, gamma))  # noqa: B023
        took: list[list[float]] = [[], []]
        lost: list[list[float]] = [[], []]
        for seed in range(repeats):
            rows = split(case.data, n, seed)
            for i, make in enumerate(both):
                seconds, found = used(make, rows)
                took[i].append(seconds)
                lost[i].append(case.score(found, rows))
        ours, rival = map(statistics.median, took)
        yield {
            "learner": name,
            "how": way,
            "rows": n,
            "seconds": ours,
            "rival s": rival,
            "of the rival's": ours / rival,
            "error": statistics.fmean(lost[0]),
            "rival's": statistics.fmean(lost[1]),
        } | judged(ours / rival, 1.0, least=False)


def used(make: Callable[[], Any], rows: Split) -> tuple[float, Any]:
    """Return the seconds of one processor that fit and predictions take, and what was fitted."""
    found = make()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        found.fit(rows.X, rows.y)
        found.predict(rows.X_test) if hasattr(found, "predict") else found.transform(rows.X_test)
        return time.process_time() - start, found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few")
    parser.add_argument("--learner", nargs="*", default=tuple(CASES), choices=tuple(CASES))
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--how", nargs="*", default=HOW, choices=HOW)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    asked = parser.parse_args(arguments)
    # Libraries load what they need in a first call.
    for name in asked.learner:
        list(rows_of(name, (50,), asked.how, 1))
    found = [
        row for name in asked.learner for row in rows_of(name, asked.rows, asked.how, asked.repeats)
    ]
    say(table(found))


if __name__ == "__main__":
    main()
