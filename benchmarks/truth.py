"""Numbers that fits report, compared with new rows, the exact kernel or the training rows."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.metrics import log_loss

import bochner as bo
from benchmarks.bench import Options, Row, bench
from benchmarks.data import Array, Split
from bochner.errors import BochnerWarning, InvalidInput

#: New rows of each table.
NEW = 2000

TABLES = ("noise", "linear", "heavy tails", "copies", "offset")


def _data(name: str, n: int, seed: int) -> Split:
    """Return rows to fit and to test; rows of "copies" repeat n/3 places, each with its noise."""
    rng = np.random.default_rng([seed, n, TABLES.index(name)])
    X = rng.standard_normal((n + NEW, 8))
    if name == "copies":
        X = X[rng.integers(max(2, n // 3), size=len(X)), :4]
    noise = rng.standard_t(2.5, len(X)) if name == "heavy tails" else rng.standard_normal(len(X))
    wave = np.sin(2 * X[:, 0])
    y = {
        "noise": noise,
        "linear": X @ np.linspace(1, 0.1, X.shape[1]) + 0.5 * noise,
        "heavy tails": wave + X[:, 1] ** 2 + noise,
        "copies": wave + X[:, 1] + 0.5 * noise,
        "offset": wave + X[:, 1] + 0.3 * noise,
    }[name]
    X = X[:, :4] + np.array([1e9, 0, 0, 0]) if name == "offset" else X
    return Split(X[:n], y[:n], X[n:], y[n:])


class Number(NamedTuple):
    """A reported number, its true value, and the largest acceptable difference.

    ``flatters`` is the sign of reported − true that would be too good; 0 counts both.
    """

    name: str
    reported: float
    true: float
    tolerance: float
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
    with suppress(InvalidInput):  # too few rows for a guarantee raise
        _, low, high = model.predict_interval(data.X_test, 0.9)
        share = np.mean((low <= data.y_test) & (data.y_test <= high))
        yield Number("90 % intervals", 0.9, share, 0.01, 1)
    mean, std = model.predict(data.X_test, return_std=True, include_noise=True)
    share = np.mean(np.abs(data.y_test - mean) <= 1.6448536 * std)
    yield Number("90 % intervals, not calibrated", 0.9, share, 0.05, 1)
    new = np.mean(model.log_predictive_density(data.X_test, data.y_test))
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
    """Compare errors of the penalty path, relative to the best constant, with new rows."""
    if getattr(model, "path_", None) is not None:
        free = getattr(model, "epsilon_", 0.0)
        guesses = model.predict(data.X_test), np.median(data.y)
        new, constant = (np.maximum(np.abs(data.y_test - f) - free, 0).mean() for f in guesses)
        new = float(new / constant)
        yield Number("error on rows left out", float(model.path_.errors.min()), new, 0.1 * new, -1)


def _quantile(model: Any, data: Split) -> Numbers:
    share = float(np.mean(data.y_test <= model.predict(data.X_test)))
    yield Number("share below the 90 % quantile", 0.9, share, 0.05, 1)


def _one_class(model: Any, data: Split) -> Numbers:
    share = float(np.mean(model.predict(data.X) < 0))
    yield Number("share outside, at most nu", 0.05, share, 0.0, -1)


def _correlations(model: Any, data: Split) -> Numbers:
    if model.path_:
        a, b = model.transform(*_halves(data.X_test))
        new, old = float(np.corrcoef(a[:, 0], b[:, 0])[0, 1]), max(r for _, r in model.path_)
        yield Number("correlation on rows left out", old, new, 0.1, 1)


def _halves(X: Array) -> tuple[Array, Array]:
    return X[:, : X.shape[1] // 2], X[:, X.shape[1] // 2 :]


#: By name: estimator and the numbers of a fit; classifiers are fitted to y above its median.
LEARNERS: dict[str, tuple[Any, Callable[[Any, Split], Numbers]]] = {
    "KernelRidge": (bo.KernelRidge(), _ridge),
    "GaussianProcessRegressor": (bo.GaussianProcessRegressor(), _process),
    "KernelRidgeClassifier": (bo.KernelRidgeClassifier(), _signs),
    "LogisticRegression": (bo.LogisticRegression(), _probabilities),
    "SVC": (bo.SVC(probability=True), _probabilities),
    "SVR": (bo.SVR(), _machine),
    "KernelRegressor, absolute": (bo.KernelRegressor(loss="absolute"), _machine),
    "KernelRegressor, quantile": (bo.KernelRegressor(loss="quantile", quantiles=0.9), _quantile),
    "KernelSGDRegressor": (bo.KernelSGDRegressor(early_stopping=True), _steps),
    "OneClassSVM": (bo.OneClassSVM(nu=0.05), _one_class),
    "KernelCCA": (bo.KernelCCA(1), _correlations),
}


def _numbers(learner: str, data: Split, seed: int) -> list[Number]:
    """Return the numbers that a fit of a learner reports."""
    model, numbers = LEARNERS[learner]
    if numbers in (_signs, _probabilities):
        middle = np.median(data.y)
        labels, new_labels = (data.y > middle).astype(int), (data.y_test > middle).astype(int)
        data = Split(data.X, labels, data.X_test, new_labels)
    arguments = _halves(data.X) if learner == "KernelCCA" else (data.X, data.y)
    return list(numbers(clone(model).set_params(random_state=seed).fit(*arguments), data))


@bench()
def truth(options: Options) -> Iterator[Row]:
    """Compare numbers that fits report with new rows, the exact kernel or the training rows.

    Defaults of all learners on 5 to 5,000 rows of five kinds of tables. "off" is the mean of
    reported − true over the seeds, "±" its standard error. "FALSE": off by more than three of them
    and the tolerance, in the flattering direction if there is one; "said": a message tells it.
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
    reports: dict[str, list[Number]] = {}
    message = ""
    for seed in seeds:
        try:
            for number in _numbers(learner, _data(name, n, seed), seed):
                reports.setdefault(number.name, []).append(number)
        except InvalidInput as exception:
            message = str(exception)
    if message:
        yield {"case": case, "who": f"refused: {message[:60]}", "verdict": "said"}
    for label, numbers in reports.items():
        reported, true, tolerance = np.array([number[1:4] for number in numbers]).T
        d, sign = reported - true, numbers[0].flatters
        mean, error = d.mean(), d.std(ddof=min(1, len(d) - 1)) / len(d) ** 0.5
        excess = sign * mean if sign else abs(mean)
        row: Row = {"case": case, "who": label, "reported": reported.mean(), "true": true.mean()}
        wrong = excess > max(tolerance.mean(), 3 * error)
        yield row | {"off": mean, "±": error, "verdict": "FALSE" if wrong else "true"}
