"""Is every number that a fit reports true of new rows? All learners, on tables that are hard.

Each learner is fitted with its defaults to n rows of each kind of table, with several seeds, and
each number that it reports is set beside what shows whether it is true: 2,000 new rows of the same
law, the exact kernel, or the training rows themselves. "off" is the mean difference over the
seeds, in the direction that flatters where there is one; "± " its standard error. A number is
"FALSE" where it is off by more than three standard errors and by more than is tolerated.

``python -m benchmarks.truth [--learners NAMES] [--tables NAMES] [--sizes N] [--seeds N]`` runs
parts. Two hours on two cores for all.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigh, eigvalsh, solve_triangular
from sklearn.metrics import log_loss

import bochner as bo
from benchmarks.harness import Options, Row, say, table
from bochner.errors import BochnerWarning, InvalidInput

__all__ = ["LEARNERS", "TABLES", "run"]

Array = np.ndarray

SIZES, SEEDS = (5, 20, 100, 300, 1000, 5000), 10

#: New rows that numbers are held against, and rows from which on dense matrices are too slow.
NEW, DENSE = 2000, 1000


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Data:
    """Rows to fit, and new rows of the same law."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array


def _noise(rng: np.random.Generator, rows: int, _: int) -> tuple[Array, Array]:
    return rng.standard_normal((rows, 8)), rng.standard_normal(rows)


def _linear(rng: np.random.Generator, rows: int, _: int) -> tuple[Array, Array]:
    X = rng.standard_normal((rows, 8))
    return X, X @ np.linspace(1, 0.1, 8) + 0.5 * rng.standard_normal(rows)


def _heavy(rng: np.random.Generator, rows: int, _: int) -> tuple[Array, Array]:
    X = rng.standard_normal((rows, 8))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + rng.standard_t(2.5, rows)


def _copies(rng: np.random.Generator, rows: int, n: int) -> tuple[Array, Array]:
    """n/3 places, drawn with replacement, each time with noise of its own."""
    places = rng.standard_normal((max(2, n // 3), 4))
    X = places[rng.integers(len(places), size=rows)]
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(rows)


def _offset(rng: np.random.Generator, rows: int, _: int) -> tuple[Array, Array]:
    X = rng.standard_normal((rows, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(rows)
    return X + np.array([1e9, 0, 0, 0]), y


#: By name: a generator, all rows, and those of them that are fitted, to X and y.
TABLES: dict[str, Callable[[np.random.Generator, int, int], tuple[Array, Array]]] = {
    "noise": _noise,
    "linear": _linear,
    "heavy tails": _heavy,
    "copies": _copies,
    "offset": _offset,
}


def _data(name: str, n: int, seed: int) -> Data:
    rng = np.random.default_rng([seed, n, list(TABLES).index(name)])
    X, y = TABLES[name](rng, n + NEW, n)
    return Data(X[:n], y[:n], X[n:], y[n:])


# --- numbers -------------------------------------------------------------------------------------


class Number(NamedTuple):
    """What a fit reports, what shows whether it is true, and how far off is tolerated.

    ``flatters`` is the direction in which the report would be too good: only that one counts. 0:
    both do.
    """

    name: str
    reported: float
    shown: float
    tolerated: float
    flatters: Literal[-1, 0, 1] = 0


def _ridge(data: Data, seed: int) -> Iterator[Number]:
    model = bo.KernelRidge(random_state=seed).fit(data.X, data.y)
    variance = float(np.var(data.y)) or 1.0
    path = model.solution_.path
    loo = float(np.interp(model.alpha_, path.alphas, path.loo)) / variance
    new = float(np.mean((model.predict(data.X_new) - data.y_new) ** 2)) / variance
    yield Number("leave-one-out error / variance", loo, new, 0.05 * new, -1)
    if len(data.X) <= DENSE:
        yield from _certified(model, data.X)


def _certified(model: Any, X: Array) -> Iterator[Number]:
    """Whether the interval of the certificate holds ε, by dense matrices; no row of exact fits."""
    if (certificate := getattr(model, "certificate_", None)) is None:
        return
    low, high = certificate.epsilon_interval
    K = model.kernel_(X)
    alpha = certificate.alpha_measured
    true = _epsilon(model.map_(X), K, alpha)
    rounding = 1e-3 * true + 100 * np.finfo(float).eps * np.trace(K) / alpha
    inside = low - rounding <= true <= high + rounding
    yield Number(
        "certificate's interval holds ε", 1.0, float(inside), 1 - certificate.confidence, 1
    )


def _epsilon(Z: Array, K: Array, alpha: float) -> float:
    L = cholesky(K + alpha * np.eye(len(K)), lower=True)
    E = solve_triangular(L, solve_triangular(L, Z @ Z.T - K, lower=True).T, lower=True)
    return float(np.abs(eigvalsh((E + E.T) / 2)).max())


def _process(data: Data, seed: int) -> Iterator[Number]:
    model = bo.GaussianProcessRegressor(random_state=seed).fit(data.X, data.y)
    for calibrated in (True, False):
        try:
            _, low, high = model.predict_interval(data.X_new, 0.9, calibrated=calibrated)
        except InvalidInput:  # too few rows for a guarantee, and it says so
            continue
        covered = float(np.mean((low <= data.y_new) & (data.y_new <= high)))
        name = "90 % intervals" + ("" if calibrated else ", not calibrated")
        yield Number(name, 0.9, covered, 0.01 if calibrated else 0.05, 1)
    new = float(np.mean(model.log_predictive_density(data.X_new, data.y_new)))
    yield Number("leave-one-out log density", model.loo_log_density_, new, 0.1, 1)


def _classes(y: Array) -> Array:
    return (y > np.median(y)).astype(int)


def _probabilities(make: Callable[[int], Any]) -> Callable[[Data, int], Iterator[Number]]:
    def numbers(data: Data, seed: int) -> Iterator[Number]:
        model, labels = make(seed).fit(data.X, _classes(data.y)), _labels_of(data)
        p = model.predict_proba(data.X_new)
        hit = float(np.mean(model.classes_[p.argmax(axis=1)] == labels))
        yield Number("chance of the class predicted", float(p.max(axis=1).mean()), hit, 0.05, 1)
        loss = log_loss(labels, p, labels=model.classes_)
        yield Number("log loss beside that of ½", np.log(2.0), loss, 0.05, -1)

    return numbers


def _labels_of(data: Data) -> Array:
    return (data.y_new > np.median(data.y)).astype(int)


def _ridge_classes(data: Data, seed: int) -> Iterator[Number]:
    model = bo.KernelRidgeClassifier(random_state=seed).fit(data.X, _classes(data.y))
    path = model.solution_.path
    loo = float(np.interp(model.alpha_, path.alphas, path.loo))
    new = float(np.mean((model.decision_function(data.X_new) - (2 * _labels_of(data) - 1)) ** 2))
    yield Number("leave-one-out error of ±1", loo, new, 0.05 * new, -1)


def _steps(data: Data, seed: int) -> Iterator[Number]:
    """Scores of rows held out, of which the best is kept."""
    model = bo.KernelSGDRegressor(early_stopping=True, random_state=seed).fit(data.X, data.y)
    new = float(np.mean((model.predict(data.X_new) - data.y_new) ** 2) / np.var(data.y_new))
    yield Number("R² of rows held out", max(model.validation_scores_), 1 - new, 0.1, 1)


def _machine(make: Callable[[int], Any]) -> Callable[[Data, int], Iterator[Number]]:
    """Errors of a penalty's path, as shares of the best constant's."""

    def numbers(data: Data, seed: int) -> Iterator[Number]:
        model = make(seed).fit(data.X, data.y)
        if getattr(model, "path_", None) is None:
            return
        free = getattr(model, "epsilon_", 0.0)
        guesses = model.predict(data.X_new), np.median(data.y)
        new, constant = (np.maximum(np.abs(data.y_new - f) - free, 0).mean() for f in guesses)
        new = float(new / constant)
        yield Number("error on rows left out", float(model.path_.errors.min()), new, 0.1 * new, -1)

    return numbers


def _quantile(data: Data, seed: int) -> Iterator[Number]:
    model = bo.KernelRegressor(loss="quantile", quantiles=0.9, random_state=seed)
    below = data.y_new <= model.fit(data.X, data.y).predict(data.X_new)
    yield Number("share below the 90 % quantile", 0.9, float(below.mean()), 0.05, 1)


def _one_class(data: Data, seed: int) -> Iterator[Number]:
    model = bo.OneClassSVM(nu=0.05, random_state=seed).fit(data.X)
    outside = float(np.mean(model.predict(data.X) < 0))
    yield Number("share outside, at most nu", 0.05, outside, 0.0, -1)


def _components(data: Data, seed: int) -> Iterator[Number]:
    if not 8 < len(data.X) <= DENSE:
        return
    model = bo.KernelPCA(4, random_state=seed).fit(data.X)
    K = model.kernel_(data.X)
    H = np.eye(len(K)) - 1 / len(K)
    values = eigh(H @ K @ H, eigvals_only=True)[::-1]
    exact = float(values[:4].sum() / values.sum())
    share = float(model.explained_variance_ratio_.sum())
    yield Number("share of variance of four components", share, exact, 0.01, 1)


def _clusters(data: Data, seed: int) -> Iterator[Number]:
    if not 8 < len(data.X) <= DENSE:
        return
    model = bo.KernelKMeans(4, random_state=seed).fit(data.X)
    K, member = model.kernel_(data.X), np.eye(4)[model.labels_]
    sizes = np.maximum(member.sum(axis=0), 1)
    exact = float(np.trace(K) - (np.einsum("ik,ij,jk->k", member, K, member) / sizes).sum())
    cost = model.objective_
    held = cost.low * (1 - 1e-9) <= exact <= cost.high * (1 + 1e-9)
    yield Number("interval holds the cost of clusters", 1.0, float(held), 1 - cost.confidence, 1)


def _correlations(data: Data, seed: int) -> Iterator[Number]:
    half = data.X.shape[1] // 2
    model = bo.KernelCCA(1, random_state=seed).fit(data.X[:, :half], data.X[:, half:])
    if not model.path_:
        return
    a, b = model.transform(data.X_new[:, :half], data.X_new[:, half:])
    new = float(np.corrcoef(a[:, 0], b[:, 0])[0, 1])
    yield Number("correlation on rows left out", max(r for _, r in model.path_), new, 0.1, 1)


#: By name: data and seed to the numbers of a fit.
LEARNERS: dict[str, Callable[[Data, int], Iterator[Number]]] = {
    "KernelRidge": _ridge,
    "GaussianProcessRegressor": _process,
    "KernelRidgeClassifier": _ridge_classes,
    "LogisticRegression": _probabilities(lambda s: bo.LogisticRegression(random_state=s)),
    "SVC": _probabilities(lambda s: bo.SVC(probability=True, random_state=s)),
    "SVR": _machine(lambda s: bo.SVR(random_state=s)),
    "KernelRegressor, absolute": _machine(
        lambda s: bo.KernelRegressor(loss="absolute", random_state=s)
    ),
    "KernelRegressor, quantile": _quantile,
    "KernelSGDRegressor": _steps,
    "OneClassSVM": _one_class,
    "KernelPCA": _components,
    "KernelKMeans": _clusters,
    "KernelCCA": _correlations,
}


# --- rows ----------------------------------------------------------------------------------------


def run(options: Options) -> list[Row]:
    """Return a row for each learner, table, size and number."""
    sizes, seeds = options.pick(SIZES, (20, 100)), options.pick(SEEDS, 2)
    return list(_rows(tuple(LEARNERS), tuple(TABLES), sizes, seeds))


def _rows(
    learners: Sequence[str], tables: Sequence[str], sizes: Sequence[int], seeds: int
) -> Iterator[Row]:
    for learner in learners:
        for name in tables:
            for n in sizes:
                yield from _case(learner, name, n, seeds)


def _case(learner: str, name: str, n: int, seeds: int) -> Iterator[Row]:
    found: dict[str, list[Number]] = {}
    refused = ""
    for seed in range(seeds):
        try:
            numbers = list(LEARNERS[learner](_data(name, n, seed), seed))
        except InvalidInput as refusal:
            refused = str(refusal)
            continue
        for number in numbers:
            found.setdefault(number.name, []).append(number)
    head = {"learner": learner, "table": name, "n": n}
    if refused:
        yield {**head, "number": f"refused: {refused[:60]}", "verdict": "said"}
    for key, numbers in found.items():
        yield {**head, "number": key, **_judged(numbers)}


def _judged(numbers: list[Number]) -> Row:
    off = np.array([number.reported - number.shown for number in numbers])
    mean, error = float(off.mean()), float(off.std(ddof=min(1, len(off) - 1)) / np.sqrt(len(off)))
    flatters = numbers[0].flatters
    beyond = abs(mean) if flatters == 0 else flatters * mean
    tolerated = float(np.mean([number.tolerated for number in numbers]))
    return {
        "reported": float(np.mean([number.reported for number in numbers])),
        "shown": float(np.mean([number.shown for number in numbers])),
        "off": mean,
        "±": error,
        "verdict": "FALSE" if beyond > max(tolerated, 3 * error) else "true",
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--learners", nargs="*", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=BochnerWarning)
    rows = []
    for row in _rows(asked.learners, asked.tables, asked.sizes, asked.seeds):
        rows.append(row)
        say(" · ".join(str(value) for value in row.values()))
    say(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
