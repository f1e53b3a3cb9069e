"""Numbers that fits report, against new rows, the exact kernel or the training rows."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.metrics import log_loss

import bochner as bo
from benchmarks.bench import Options, Row, bench
from benchmarks.data import Split
from benchmarks.maps import spectral_distance
from bochner.errors import BochnerWarning, InvalidInput

Array = np.ndarray

#: New rows of each table, and the most rows of dense matrices.
NEW, DENSE = 2000, 1000


# --- tables --------------------------------------------------------------------------------------


def _noise(rng: np.random.Generator, X: Array, _: int) -> tuple[Array, Array]:
    return X, rng.standard_normal(len(X))


def _linear(rng: np.random.Generator, X: Array, _: int) -> tuple[Array, Array]:
    return X, X @ np.linspace(1, 0.1, 8) + 0.5 * rng.standard_normal(len(X))


def _heavy(rng: np.random.Generator, X: Array, _: int) -> tuple[Array, Array]:
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + rng.standard_t(2.5, len(X))


def _copies(rng: np.random.Generator, X: Array, n: int) -> tuple[Array, Array]:
    """Rows repeat n/3 places; each has its own noise."""
    X = X[rng.integers(max(2, n // 3), size=len(X)), :4]
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(len(X))


def _offset(rng: np.random.Generator, X: Array, _: int) -> tuple[Array, Array]:
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(len(X))
    return X[:, :4] + np.array([1e9, 0, 0, 0]), y


#: From a generator, normal rows of eight columns and the number of fitted rows to X and y.
TABLES = {
    "noise": _noise,
    "linear": _linear,
    "heavy tails": _heavy,
    "copies": _copies,
    "offset": _offset,
}


def _data(name: str, n: int, seed: int) -> Split:
    rng = np.random.default_rng([seed, n, list(TABLES).index(name)])
    X, y = TABLES[name](rng, rng.standard_normal((n + NEW, 8)), n)
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


def _ridge(data: Split, seed: int) -> Iterator[Number]:
    model = bo.KernelRidge(random_state=seed).fit(data.X, data.y)
    variance = float(np.var(data.y)) or 1.0
    path = model.solution_.path
    loo = float(np.interp(model.alpha_, path.alphas, path.loo)) / variance
    new = float(np.mean((model.predict(data.X_test) - data.y_test) ** 2)) / variance
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
    true = spectral_distance(model.map_(X), K, alpha)
    rounding = 1e-3 * true + 100 * np.finfo(float).eps * np.trace(K) / alpha
    inside = low - rounding <= true <= high + rounding
    yield Number(
        "certificate's interval holds ε", 1.0, float(inside), 1 - certificate.confidence, 1
    )


def _process(data: Split, seed: int) -> Iterator[Number]:
    model = bo.GaussianProcessRegressor(random_state=seed).fit(data.X, data.y)
    for calibrated in (True, False):
        try:
            _, low, high = model.predict_interval(data.X_test, 0.9, calibrated=calibrated)
        except InvalidInput:  # too few rows for a guarantee, and it says so
            continue
        covered = float(np.mean((low <= data.y_test) & (data.y_test <= high)))
        name = "90 % intervals" + ("" if calibrated else ", not calibrated")
        yield Number(name, 0.9, covered, 0.01 if calibrated else 0.05, 1)
    new = float(np.mean(model.log_predictive_density(data.X_test, data.y_test)))
    yield Number("leave-one-out log density", model.loo_log_density_, new, 0.1, 1)


def _classes(y: Array) -> Array:
    return (y > np.median(y)).astype(int)


def _probabilities(make: Callable[[int], Any]) -> Callable[[Split, int], Iterator[Number]]:
    def numbers(data: Split, seed: int) -> Iterator[Number]:
        model, labels = make(seed).fit(data.X, _classes(data.y)), _labels_of(data)
        p = model.predict_proba(data.X_test)
        hit = float(np.mean(model.classes_[p.argmax(axis=1)] == labels))
        yield Number("chance of the class predicted", float(p.max(axis=1).mean()), hit, 0.05, 1)
        loss = log_loss(labels, p, labels=model.classes_)
        yield Number("log loss beside that of ½", np.log(2.0), loss, 0.05, -1)

    return numbers


def _labels_of(data: Split) -> Array:
    return (data.y_test > np.median(data.y)).astype(int)


def _ridge_classes(data: Split, seed: int) -> Iterator[Number]:
    model = bo.KernelRidgeClassifier(random_state=seed).fit(data.X, _classes(data.y))
    path = model.solution_.path
    loo = float(np.interp(model.alpha_, path.alphas, path.loo))
    new = float(np.mean((model.decision_function(data.X_test) - (2 * _labels_of(data) - 1)) ** 2))
    yield Number("leave-one-out error of ±1", loo, new, 0.05 * new, -1)


def _steps(data: Split, seed: int) -> Iterator[Number]:
    """Scores of rows held out, of which the best is kept."""
    model = bo.KernelSGDRegressor(early_stopping=True, random_state=seed).fit(data.X, data.y)
    new = float(np.mean((model.predict(data.X_test) - data.y_test) ** 2) / np.var(data.y_test))
    yield Number("R² of rows held out", max(model.validation_scores_), 1 - new, 0.1, 1)


def _machine(make: Callable[[int], Any]) -> Callable[[Split, int], Iterator[Number]]:
    """Errors of a penalty's path, as shares of the best constant's."""

    def numbers(data: Split, seed: int) -> Iterator[Number]:
        model = make(seed).fit(data.X, data.y)
        if getattr(model, "path_", None) is None:
            return
        free = getattr(model, "epsilon_", 0.0)
        guesses = model.predict(data.X_test), np.median(data.y)
        new, constant = (np.maximum(np.abs(data.y_test - f) - free, 0).mean() for f in guesses)
        new = float(new / constant)
        yield Number("error on rows left out", float(model.path_.errors.min()), new, 0.1 * new, -1)

    return numbers


def _quantile(data: Split, seed: int) -> Iterator[Number]:
    model = bo.KernelRegressor(loss="quantile", quantiles=0.9, random_state=seed)
    below = data.y_test <= model.fit(data.X, data.y).predict(data.X_test)
    yield Number("share below the 90 % quantile", 0.9, float(below.mean()), 0.05, 1)


def _one_class(data: Split, seed: int) -> Iterator[Number]:
    model = bo.OneClassSVM(nu=0.05, random_state=seed).fit(data.X)
    outside = float(np.mean(model.predict(data.X) < 0))
    yield Number("share outside, at most nu", 0.05, outside, 0.0, -1)


def _components(data: Split, seed: int) -> Iterator[Number]:
    if not 8 < len(data.X) <= DENSE:
        return
    model = bo.KernelPCA(4, random_state=seed).fit(data.X)
    K = model.kernel_(data.X)
    H = np.eye(len(K)) - 1 / len(K)
    values = np.linalg.eigvalsh(H @ K @ H)[::-1]
    exact = float(values[:4].sum() / values.sum())
    share = float(model.explained_variance_ratio_.sum())
    yield Number("share of variance of four components", share, exact, 0.01, 1)


def _clusters(data: Split, seed: int) -> Iterator[Number]:
    if not 8 < len(data.X) <= DENSE:
        return
    model = bo.KernelKMeans(4, random_state=seed).fit(data.X)
    K, member = model.kernel_(data.X), np.eye(4)[model.labels_]
    sizes = np.maximum(member.sum(axis=0), 1)
    exact = float(np.trace(K) - (np.einsum("ik,ij,jk->k", member, K, member) / sizes).sum())
    cost = model.objective_
    held = cost.low * (1 - 1e-9) <= exact <= cost.high * (1 + 1e-9)
    yield Number("interval holds the cost of clusters", 1.0, float(held), 1 - cost.confidence, 1)


def _correlations(data: Split, seed: int) -> Iterator[Number]:
    half = data.X.shape[1] // 2
    model = bo.KernelCCA(1, random_state=seed).fit(data.X[:, :half], data.X[:, half:])
    if not model.path_:
        return
    a, b = model.transform(data.X_test[:, :half], data.X_test[:, half:])
    new = float(np.corrcoef(a[:, 0], b[:, 0])[0, 1])
    yield Number("correlation on rows left out", max(r for _, r in model.path_), new, 0.1, 1)


#: By name: data and seed to the numbers of a fit.
LEARNERS: dict[str, Callable[[Split, int], Iterator[Number]]] = {
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
            numbers = list(LEARNERS[learner](_data(name, n, seed), seed))
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
