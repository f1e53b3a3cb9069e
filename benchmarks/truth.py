"""Numbers that fits report, against new rows, the exact kernel or the training rows."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.metrics import log_loss

import bochner as bo
from benchmarks.bench import Options, Row, bench
from benchmarks.data import Split
from bochner.errors import BochnerWarning, InvalidInput

Array = np.ndarray

#: New rows of each table.
NEW = 2000


# --- tables --------------------------------------------------------------------------------------


def _copies(rng: np.random.Generator, X: Array) -> tuple[Array, Array]:
    """Rows repeat a third as many places as are fitted; each has its own noise."""
    places = max(2, (len(X) - NEW) // 3)
    X = X[rng.integers(places, size=len(X)), :4]
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(len(X))


def _offset(rng: np.random.Generator, X: Array) -> tuple[Array, Array]:
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(len(X))
    return X[:, :4] + np.array([1e9, 0, 0, 0]), y


#: From a generator and normal rows of eight columns to X and y.
TABLES: dict[str, Callable[[np.random.Generator, Array], tuple[Array, Array]]] = {
    "noise": lambda rng, X: (X, rng.standard_normal(len(X))),
    "linear": lambda rng, X: (X, X @ np.linspace(1, 0.1, 8) + 0.5 * rng.standard_normal(len(X))),
    "heavy tails": lambda rng, X: (
        X,
        np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + rng.standard_t(2.5, len(X)),
    ),
    "copies": _copies,
    "offset": _offset,
}


def _data(name: str, n: int, seed: int) -> Split:
    rng = np.random.default_rng([seed, n, list(TABLES).index(name)])
    X, y = TABLES[name](rng, rng.standard_normal((n + NEW, 8)))
    return Split(X[:n], y[:n], X[n:], y[n:])


# --- numbers -------------------------------------------------------------------------------------


class Number(NamedTuple):
    """A reported number, its true value, and the tolerated difference.

    ``flatters`` is the sign of reported − true that would be too good; 0 counts both.
    """

    name: str
    reported: float
    true: float
    tolerated: float
    flatters: Literal[-1, 0, 1] = 0


Numbers = Iterator[Number]


def _loo(model: Any, new: float, name: str, unit: float = 1.0) -> Number:
    """Compare the leave-one-out error at the chosen penalty with the error on new rows."""
    path = model.solution_.path
    loo = float(np.interp(model.alpha_, path.alphas, path.loo))
    return Number(name, loo / unit, new / unit, 0.05 * new / unit, -1)


def _ridge(model: Any, data: Split) -> Numbers:
    new = float(np.mean((model.predict(data.X_test) - data.y_test) ** 2))
    yield _loo(model, new, "leave-one-out error / variance", float(np.var(data.y)) or 1.0)


def _process(model: Any, data: Split) -> Numbers:
    with suppress(InvalidInput):  # too few rows for a guarantee, and it says so
        _, low, high = model.predict_interval(data.X_test, 0.9)
        covered = float(np.mean((low <= data.y_test) & (data.y_test <= high)))
        yield Number("90 % intervals", 0.9, covered, 0.01, 1)
    mean, std = model.predict(data.X_test, return_std=True, include_noise=True)
    covered = float(np.mean(np.abs(data.y_test - mean) <= 1.6448536 * std))
    yield Number("90 % intervals, not calibrated", 0.9, covered, 0.05, 1)
    new = float(np.mean(model.log_predictive_density(data.X_test, data.y_test)))
    yield Number("leave-one-out log density", model.loo_log_density_, new, 0.1, 1)


def _probabilities(model: Any, data: Split) -> Numbers:
    p = model.predict_proba(data.X_test)
    hit = float(np.mean(model.classes_[p.argmax(axis=1)] == data.y_test))
    yield Number("chance of the class predicted", float(p.max(axis=1).mean()), hit, 0.05, 1)
    loss = log_loss(data.y_test, p, labels=model.classes_)
    yield Number("log loss beside that of ½", np.log(2.0), loss, 0.05, -1)


def _signs(model: Any, data: Split) -> Numbers:
    new = float(np.mean((model.decision_function(data.X_test) - (2 * data.y_test - 1)) ** 2))
    yield _loo(model, new, "leave-one-out error of ±1")


def _steps(model: Any, data: Split) -> Numbers:
    """Compare the best of the scores on held-out rows with new rows."""
    new = float(np.mean((model.predict(data.X_test) - data.y_test) ** 2) / np.var(data.y_test))
    yield Number("R² of rows held out", max(model.validation_scores_), 1 - new, 0.1, 1)


def _machine(model: Any, data: Split) -> Numbers:
    """Errors of a penalty's path, as shares of the best constant's."""
    if getattr(model, "path_", None) is not None:
        free = getattr(model, "epsilon_", 0.0)
        guesses = model.predict(data.X_test), np.median(data.y)
        new, constant = (np.maximum(np.abs(data.y_test - f) - free, 0).mean() for f in guesses)
        new = float(new / constant)
        yield Number("error on rows left out", float(model.path_.errors.min()), new, 0.1 * new, -1)


def _quantile(model: Any, data: Split) -> Numbers:
    below = float(np.mean(data.y_test <= model.predict(data.X_test)))
    yield Number("share below the 90 % quantile", 0.9, below, 0.05, 1)


def _one_class(model: Any, data: Split) -> Numbers:
    outside = float(np.mean(model.predict(data.X) < 0))
    yield Number("share outside, at most nu", 0.05, outside, 0.0, -1)


def _correlations(model: Any, data: Split) -> Numbers:
    if model.path_:
        a, b = model.transform(*_halves(data.X_test))
        new, known = float(np.corrcoef(a[:, 0], b[:, 0])[0, 1]), max(r for _, r in model.path_)
        yield Number("correlation on rows left out", known, new, 0.1, 1)


def _halves(X: Array) -> tuple[Array, Array]:
    return X[:, : X.shape[1] // 2], X[:, X.shape[1] // 2 :]


#: By name: estimator and the numbers of a fit; classifiers are fitted to y above its median.
LEARNERS: dict[str, tuple[Callable[..., Any], Callable[[Any, Split], Numbers]]] = {
    "KernelRidge": (bo.KernelRidge, _ridge),
    "GaussianProcessRegressor": (bo.GaussianProcessRegressor, _process),
    "KernelRidgeClassifier": (bo.KernelRidgeClassifier, _signs),
    "LogisticRegression": (bo.LogisticRegression, _probabilities),
    "SVC": (partial(bo.SVC, probability=True), _probabilities),
    "SVR": (bo.SVR, _machine),
    "KernelRegressor, absolute": (partial(bo.KernelRegressor, loss="absolute"), _machine),
    "KernelRegressor, quantile": (
        partial(bo.KernelRegressor, loss="quantile", quantiles=0.9),
        _quantile,
    ),
    "KernelSGDRegressor": (partial(bo.KernelSGDRegressor, early_stopping=True), _steps),
    "OneClassSVM": (partial(bo.OneClassSVM, nu=0.05), _one_class),
    "KernelCCA": (partial(bo.KernelCCA, 1), _correlations),
}


def _numbers(learner: str, data: Split, seed: int) -> list[Number]:
    """Fit a learner and return its numbers."""
    make, numbers = LEARNERS[learner]
    if numbers in (_signs, _probabilities):
        labels = ((y > np.median(data.y)).astype(int) for y in (data.y, data.y_test))
        data = Split(data.X, next(labels), data.X_test, next(labels))
    given = _halves(data.X) if learner == "KernelCCA" else (data.X, data.y)
    return list(numbers(make(random_state=seed).fit(*given), data))


# --- verdicts ------------------------------------------------------------------------------------


@bench()
def truth(options: Options) -> Iterator[Row]:
    """Compare numbers that fits report with new rows, the exact kernel or the training rows.

    Defaults of all learners on 5 to 5,000 rows of five kinds of tables. "off" is the mean of
    reported − true over the seeds, "±" its standard error; "FALSE" is off by more than three of
    them and more than is tolerated, in the flattering direction if there is one.
    """
    warnings.filterwarnings("ignore", category=BochnerWarning)
    sizes = (options.rows,) if options.rows else options.pick((5, 20, 100, 300, 1000, 5000), (20,))
    for learner in LEARNERS:
        for name in TABLES:
            for n in sizes:
                case = f"{learner}, {name}, n={n}"
                if options.selects(case):
                    yield from _case(case, learner, name, n, options.seeds(10))


def _case(case: str, learner: str, name: str, n: int, seeds: range) -> Iterator[Row]:
    found: dict[str, list[Number]] = {}
    refused = ""
    for seed in seeds:
        try:
            numbers = _numbers(learner, _data(name, n, seed), seed)
        except InvalidInput as refusal:
            refused = str(refusal)
            continue
        for number in numbers:
            found.setdefault(number.name, []).append(number)
    if refused:
        yield {"case": case, "who": f"refused: {refused[:60]}", "verdict": "said"}
    for who, numbers in found.items():
        yield {"case": case, "who": who} | _verdict(numbers)


def _verdict(numbers: list[Number]) -> Row:
    reported, true, tolerated = np.array([number[1:4] for number in numbers]).T
    off = reported - true
    mean, error = float(off.mean()), float(off.std(ddof=min(1, len(off) - 1)) / np.sqrt(len(off)))
    beyond = abs(mean) if numbers[0].flatters == 0 else numbers[0].flatters * mean
    row: Row = {"reported": float(reported.mean()), "true": float(true.mean()), "off": mean}
    wrong = beyond > max(float(tolerated.mean()), 3 * error)
    return row | {"±": error, "verdict": "FALSE" if wrong else "true"}
