"""Learners: error and seconds beside rivals."""

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import Ridge, SGDClassifier, SGDOneClassSVM
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

import bochner as bo
from benchmarks.data import DEVELOPMENT, NAMES, Development, Split, development, scored, split
from benchmarks.harness import (
    MissingDataSet,
    Options,
    Row,
    child,
    compared,
    each,
    interleaved,
    judged,
    stored,
)
from bochner.data.blocks import Blocks
from bochner.datasets import load_concrete
from bochner.kernels import Gaussian, Kernel, Polynomial
from bochner.selection.metric import learn_metric
from bochner.selection.search import tune_kernel
from bochner.sums.rows import sampled

# --- one_class -------------------------------------------------------------------------------


COLUMNS, NU, LENGTHSCALE, WIDTH = 20, 0.05, 4.0, 512


def run_one_class(options: Options) -> list[Row]:
    """One-class machines on 278,000 rows of 20 columns, against scikit-learn's.

    Rows: a mixture of eight normal clouds; of the rows to test, one in twenty is drawn from a
    wide cloud instead. "AUC" is the share of pairs of such a row and a plain one that the score
    has in the right order. scikit-learn's exact machine, whose time grows like n² or worse, gets
    10,000 rows; its ``SGDOneClassSVM`` gets all, on ``RBFSampler`` features of the same width.
    """
    n, few = options.pick((278_000, 10_000), (5_000, 1_000))
    X, (new, strange) = _rows(n, 0), _test_rows(10_000)
    gamma = 1 / (2 * LENGTHSCALE**2)
    ours = bo.OneClassSVM(
        Gaussian(LENGTHSCALE), method="orthogonal", n_features=WIDTH, nu=NU, random_state=0
    )
    sgd = make_pipeline(
        RBFSampler(gamma=gamma, n_components=WIDTH, random_state=0),
        SGDOneClassSVM(nu=NU, random_state=0),
    )
    exact = OneClassSVM(gamma=gamma, nu=NU)
    cases = {
        f"bochner, D={WIDTH}": (ours, n),
        f"RBFSampler + SGDOneClassSVM, D={WIDTH}": (sgd, n),
        "OneClassSVM": (exact, few),
    }
    fits = {name: (lambda _, m=model, k=k: m.fit(X[:k])) for name, (model, k) in cases.items()}
    times = interleaved(fits, 1, warm_up=False)
    rows = [
        {
            "case": name,
            "rows": k,
            "seconds": times[name].median,
            "AUC": roc_auc_score(strange, -model.decision_function(new)),
            "outside": float(np.mean(model.predict(X[:few]) < 0)),
            "nu": NU,
        }
        for name, (model, k) in cases.items()
    ]
    rows[0] |= judged(rows[0]["seconds"], 60, least=False)
    return rows


def _rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(99).standard_normal((8, COLUMNS))
    X = centres[rng.integers(8, size=n)] + rng.standard_normal((n, COLUMNS))
    return X.astype(np.float32)


def _test_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    strange = rng.random(n) < 0.05
    wide = (2.2 * rng.standard_normal((n, COLUMNS))).astype(np.float32)
    return np.where(strange[:, None], wide, _rows(n, 2)), strange


# --- unsupervised ----------------------------------------------------------------------------


#: Tables of the folder of data with 50,000 rows to fit and some to spare, and their clusters.
TABLES = {"shuttle": 7, "mnist": 10}
MANY, FEW, APART = 50_000, 10_000, 2000
COMPONENTS = 8


def run_unsupervised(options: Options) -> list[Row]:
    """Kernel PCA and kernel k-means of 50,000 rows, against exact ones of 10,000.

    Gaussian kernel with the median distance as lengthscale, columns in standard deviations.
    Principal components: ``sklearn.decomposition.KernelPCA`` with the solver it takes by itself,
    and the share of the variance, in the kernel's own space, that the components explain of rows
    kept apart. Clusters: scikit-learn has no kernel k-means, so the rival is the textbook's on
    ``rbf_kernel``, one start; the cost is that of both clusterings of the same 10,000 rows, by
    the exact kernel.
    """
    return each(TABLES, lambda name: _both(name, options))


def _both(name: str, options: Options) -> list[Row]:
    X = _rows_of_unsupervised(name, options)
    scale = float(np.median(pdist(X[:1000]))) or 1.0
    clusters = _clusters(name, X, scale, TABLES[name], options)
    return [_components(name, X, scale, options), clusters]


def _rows_of_unsupervised(name: str, options: Options) -> np.ndarray:
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


# --- tuning ----------------------------------------------------------------------------------


PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LENGTHSCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
ASKED = 5.0


def run_tuning(options: Options) -> list[Row]:
    """``kernel="auto"`` against a grid search over scikit-learn's own pipeline of the same width.

    ``GridSearchCV`` has five folds, five lengthscales (gamma 1/(2dℓ²), ℓ from a quarter to
    four) and
    five penalties of ``StandardScaler``, ``RBFSampler`` or ``Nystroem``, and ``Ridge``. Seconds
    include choosing, fitting and predicting.
    """
    width, most = options.pick((1024, 20_000), (64, 300))
    return each(
        options.pick(DEVELOPMENT, DEVELOPMENT[:1]), lambda name: compare(name, options, width, most)
    )


def compare(name: str, options: Options, width: int, most: int) -> list[Row]:
    """Return a row for each rival on one set."""
    data = development(name, options, most)
    rivals = {kind.__name__: _grid(kind, data, width) for kind in (RBFSampler, Nystroem)}
    cases = {"ours": _ours(width)} | rivals
    times = interleaved({key: scored(data, make) for key, make in cases.items()}, 1, warm_up=False)
    ours = times["ours"]
    return [
        {
            "set": name,
            "rows": len(data.y),
            "D": width,
            "rival": rival,
            **compared(ours, times[rival]),
            **judged(times[rival].median / ours.median, ASKED),
            "test RMSE": ours.values[0],
            "rival's": times[rival].values[0],
            "better": "yes" if ours.values[0] < times[rival].values[0] else "NO",
        }
        for rival in rivals
    ]


def _ours(width: int) -> Callable[[int], Any]:
    return lambda seed: bo.KernelRidge("auto", n_features=width, random_state=seed)


def _grid(kind: type, data: Development, width: int) -> Callable[[int], Any]:
    n, d = data.X.shape
    width = min(width, int(0.8 * n)) if kind is Nystroem else width
    step = kind.__name__.lower()
    grid = {
        f"{step}__gamma": [1 / (2 * d * np.square(length)) for length in LENGTHSCALES],
        "ridge__alpha": PENALTIES,
    }

    def make(seed: int) -> GridSearchCV:
        features = kind(n_components=width, random_state=seed)
        return GridSearchCV(make_pipeline(StandardScaler(), features, Ridge()), grid)

    return make


# --- metric ----------------------------------------------------------------------------------


def run_metric(options: Options) -> list[Row]:
    """A learned metric against boosted trees and xRFM: error and seconds of the whole.

    ``HistGradientBoostingRegressor`` always; LightGBM and xRFM if installed. All with their
    defaults, but xRFM, which is given a fifth of the rows to validate on.
    """
    width, most = options.pick((4096, 20_000), (64, 300))
    rows = each(
        options.pick(DEVELOPMENT, DEVELOPMENT[:1]),
        lambda name: compare_of_metric(name, options, width, most),
    )
    missing_rivals = [name for name in ("lightgbm", "xrfm") if find_spec(name) is None]
    return [*rows, *({"note": f"Left out: {name} is not installed."} for name in missing_rivals)]


def compare_of_metric(name: str, options: Options, width: int, most: int) -> list[Row]:
    """Return a row for each rival on one set."""
    data = development(name, options, most)
    cases = {"ours": lambda seed: Learned(width, seed), "tuned": _tuned(width)} | _rivals()
    times = interleaved({key: scored(data, make) for key, make in cases.items()}, 1, warm_up=False)
    ours = times.pop("ours")
    return [
        {
            "set": name,
            "rows": len(data.y),
            "D": width,
            "rival": rival,
            **compared(ours, timing),
            "test RMSE": ours.values[0],
            "rival's": timing.values[0],
            "better": "yes" if ours.values[0] < timing.values[0] else "NO",
        }
        for rival, timing in times.items()
    ]


class Learned:
    """Kernel ridge regression in a learned metric."""

    def __init__(self, width: int, seed: int) -> None:
        self._width, self._seed = width, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> bo.KernelRidge:
        """Learn the metric, then fit once."""
        sample = sampled(Blocks.from_arrays(X, y), self._seed)
        start = tune_kernel("auto", sample, self._width, self._seed, euclidean=True).kernel
        kernel = learn_metric(start, sample, self._width, self._seed).kernel
        return bo.KernelRidge(kernel, n_features=self._width, random_state=self._seed).fit(X, y)


def _tuned(width: int) -> Callable[[int], Any]:
    return lambda seed: bo.KernelRidge("auto", n_features=width, random_state=seed)


def _rivals() -> dict[str, Callable[[int], Any]]:
    rivals: dict[str, Callable[[int], Any]] = {
        "HistGradientBoosting": lambda seed: HistGradientBoostingRegressor(random_state=seed)
    }
    if find_spec("lightgbm") is not None:
        from lightgbm import LGBMRegressor  # noqa: PLC0415

        rivals["LightGBM"] = lambda seed: LGBMRegressor(random_state=seed, verbose=-1)
    if find_spec("xrfm") is not None:
        rivals["xRFM"] = Validated
    return rivals


class Validated:
    """xRFM with a fifth of the rows to validate on."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Validated":
        """Fit with the defaults of xRFM."""
        from xrfm import xRFM  # noqa: PLC0415

        order = np.random.default_rng(self._seed).permutation(len(y))
        held, kept = np.split(order, [len(y) // 5])
        X, y = X.astype(np.float32), y.astype(np.float32)
        self._model = xRFM(
            device="cpu", tuning_metric="mse", random_state=self._seed, verbose=False
        )
        self._model.fit(X[kept], y[kept, None], X[held], y[held, None])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, (n,)."""
        return np.ravel(self._model.predict(X.astype(np.float32)))


# --- sgd -------------------------------------------------------------------------------------


#: Operations of a strategy that is run, at most: some seconds.
MOST = 6e10


def run_sgd(options: Options) -> list[Row]:
    """Six strategies of gradient descent: counted, measured, and against scikit-learn's pipeline.

    Every strategy of fewer than ``MOST`` operations is run. "of the fastest" is its seconds over
    those of the fastest; ``auto`` takes an exact one up to 1.5 times, or a quarter of a second,
    above that.
    """
    small, large = options.pick((1000, 8000), (200, 400))
    cases: list[tuple[str, Kernel, int]] = [
        ("few rows", Gaussian(1.0), small),
        ("many rows", Gaussian(1.0), large),
        ("few features", Polynomial(2), large),
    ]
    rows = [row for case in cases for row in _six(options, *case)]
    try:
        return rows + _mnist(options)
    except MissingDataSet as missing:
        return [*rows, {"note": f"MNIST is left out: {missing}"}]


def _six(options: Options, name: str, kernel: Kernel, n: int) -> list[Row]:
    data = split("elevation", options, 512)
    model = bo.KernelSGDRegressor(
        kernel, method="orthogonal", n_features=512, max_iter=5, tol=None, random_state=0
    )
    X, y = data.X[:n], data.y[:n]
    plan = model.plan(X, y)
    names = [row.name for row in plan.rows if not row.refused and row.operations <= MOST]
    fits = {name: clone(model).set_params(strategy=name) for name in names}
    times = interleaved({name: lambda _, m=m: m.fit(X, y) for name, m in fits.items()}, 1)
    ran = {name: timing.median for name, timing in times.items()}
    return [
        {
            "case": f"{name}, n = {n:,}",
            "strategy": row.name + " (auto)" * (row.name == plan.best),
            "operations": row.operations,
            "seconds": ran.get(row.name),
            "counted MB": row.bytes / 1e6,
            "of the fastest": ran[row.name] / min(ran.values()) if row.name in ran else None,
        }
        for row in plan.rows
        if not row.refused
    ]


def _mnist(options: Options) -> list[Row]:
    """Fit random Fourier features and a hinge, the same width, penalty, rows and epochs."""
    X, y, X_test, y_test = digits(options)
    width, epochs = options.pick(1024, 64), options.pick(5, 1)
    common: dict[str, Any] = {"alpha": 1e-5, "max_iter": epochs, "tol": None}
    ours = bo.KernelSGDClassifier(
        Gaussian(6.0), strategy="approximate_cached", method="iid", n_features=width, **common
    )
    sampler = RBFSampler(gamma=1 / 72, n_components=width)
    rival = make_pipeline(sampler, SGDClassifier(**common))

    def fit(model: Any) -> Any:
        def case(repeat: int) -> float:
            seeds = {k: repeat for k in model.get_params() if k.endswith("random_state")}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.set_params(**seeds).fit(X, y)
            return float(model.score(X_test, y_test))

        return case

    times = interleaved({"ours": fit(ours), "rival": fit(rival)}, 1, warm_up=False)
    return [
        {
            "case": f"MNIST, n = {len(y):,}, D = {width}, {epochs} epochs",
            "strategy": "approximate_cached against RBFSampler, SGDClassifier",
            **compared(times["ours"], times["rival"]),
            "accuracy": float(np.mean(times["ours"].values)),
            "rival accuracy": float(np.mean(times["rival"].values)),
        }
    ]


def digits(options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of MNIST to train and to test on, from 0 to 1."""
    arrays = stored("mnist", options.data)
    X, y, test = (arrays["X"] / np.float32(255)).astype(np.float32), arrays["y"], arrays["split"]
    n, m = options.pick((20000, 10000), (500, 500))
    train, held = np.flatnonzero(test == 0)[:n], np.flatnonzero(test == 1)[:m]
    return X[train], y[train], X[held], y[held]


# --- double_descent --------------------------------------------------------------------------


#: Widths, in rows.
SHARES = (0.05, 0.2, 0.4, 0.8, 0.95, 1, 1.05, 1.2, 2, 4, 10)


def run_double_descent(options: Options) -> list[Row]:
    """Double descent: where the peak is, how high, and what the second descent and a penalty come
    to.

    Ridge regression on D random features, D from a twentieth of the rows to ten times as many;
    MNIST with its classes as zeros and ones, and the compressive strength of concrete. Errors are
    squared, in the units of the target; "peak / valley" is the largest test error over the
    smallest of those before D = 0.9 n.
    """
    data = {"concrete": _concrete(options)}
    notes: list[Row] = []
    try:
        data["MNIST"] = _mnist_of_double_descent(options)
    except MissingDataSet as missing:
        notes.append({"note": f"MNIST is left out: {missing}"})
    return [
        row
        for name, arrays in data.items()
        for features in ("fourier", "relu")
        for row in _rows_of_double_descent(name, features, arrays)
    ] + notes


def _rows_of_double_descent(name: str, features: str, data: tuple[np.ndarray, ...]) -> list[Row]:
    n = len(data[0])
    widths = sorted({max(1, round(share * n)) for share in SHARES})
    shown = bo.double_descent(
        *data, features=features, widths=widths, alpha=(0.0, 1.0), random_state=0
    )
    rows = []
    for i, alpha in enumerate(shown.alphas):
        errors, before = shown.test_error[i], shown.widths < 0.9 * n
        valley = errors[before].min()
        row = {
            "data": f"{name}, n = {n:,}",
            "features": features,
            "alpha": float(alpha),
            "worst D/n": float(shown.widths[np.argmax(errors)] / n),
            "peak / valley": float(errors.max() / valley),
            "valley": float(valley),
            "at D = 10 n": float(errors[-1]),
            "norm at D = n": float(shown.norm[i][shown.widths == n][0]),
            "norm at D = 10 n": float(shown.norm[i][-1]),
        }
        if shown.test_wrong is not None:
            row["wrong at 10 n"] = float(shown.test_wrong[i][-1])
        asked = judged(row["peak / valley"], 10) if alpha == 0 else {}
        rows.append(row | asked)
    return rows


def _concrete(options: Options) -> tuple[np.ndarray, ...]:
    table = load_concrete()
    X, y = table.X.astype(np.float64), table.y.astype(np.float64)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [options.pick(500, 100)])
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return X[train], y[train], X[test], y[test]


def _mnist_of_double_descent(options: Options) -> tuple[np.ndarray, ...]:
    X, y, X_test, y_test = digits(options)
    n = options.pick(1000, 100)
    return X[:n], y[:n], X_test[:5000], y_test[:5000]


# --- gaussian_process ------------------------------------------------------------------------


Array = np.ndarray

#: Mean and standard deviation of the test targets, with the noise.
Predicted = tuple[Array, Array]

#: Given rows, width and seconds, a fit and its predictions.
Case = Callable[[Split, int, float], Predicted]


def run_gaussian_process(options: Options) -> list[Row]:
    """Gaussian processes: log predictive density, coverage and seconds, beside GPyTorch's and
    xGPR's.

    Everyone standardised inputs and target, everyone chooses lengthscales, noise and amplitude in
    their own way, and that time counts. Rivals that descend by steps stop after a given time.
    """

    def rows_of(name: str) -> list[Row]:
        data = split(name, options, options.pick(1024, 128))
        densities = _compared(options, name, data) if name == "protein" else []
        return densities + _covered(options, name, data)

    rows = each(NAMES, rows_of)
    missing = [name for name in ("gpytorch", "xGPR") if find_spec(name) is None]
    return rows + [{"note": f"{name}: not installed."} for name in missing]


def _compared(options: Options, name: str, data: Split) -> list[Row]:
    width, limit = options.pick(1024, 128), options.pick(45.0, 2.0)
    mine = _timed_of_gaussian_process(_ours_of_gaussian_process, data, width, limit)
    rows = [_row(name, "ours", data, width, mine)]
    for rival, case in _rivals_of_gaussian_process().items():
        theirs = _timed_of_gaussian_process(case, data, width, limit)
        row = _row(name, rival, data, width, theirs)
        gain = _density(mine[2], data) - _density(theirs[2], data)
        faster = theirs[0] / mine[0]
        rows.append(row | {"ours better by": gain, "ours faster": faster} | judged(gain, 0.0))
    return rows


def _rivals_of_gaussian_process() -> dict[str, Case]:
    gpytorch: dict[str, Case] = {"GPyTorch SVGP": _svgp, "GPyTorch SGPR": _sgpr}
    found = gpytorch if find_spec("gpytorch") is not None else {}
    return found | ({"xGPR": _xgpr} if find_spec("xGPR") is not None else {})


def _timed_of_gaussian_process(
    case: Case, data: Split, width: int, limit: float
) -> tuple[float, float, Predicted]:
    start, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = case(data, width, limit)
    return time.perf_counter() - start, time.process_time() - used, predicted


def _density(predicted: Predicted, data: Split) -> float:
    return float(norm.logpdf(data.y_test, *predicted).mean())


def _row(name: str, who: str, data: Split, width: int, done: tuple[float, float, Predicted]) -> Row:
    seconds, used, (mean, std) = done
    inside = np.abs(data.y_test - mean) <= norm.ppf(0.975) * std
    return {
        "table": name,
        "rows": len(data.y),
        "who": who,
        "D": width,
        "seconds": seconds,
        "CPU s": used,
        "log density": _density((mean, std), data),
        "95 % covers": float(inside.mean()),
        "test RMSE": data.error(mean),
    }


def _covered(options: Options, name: str, data: Split) -> list[Row]:
    """Count what Gaussian and calibrated intervals hold, with Fourier and other features."""
    rows: list[Row] = []
    for method in ("auto", "orthogonal"):
        width = options.pick(1024, 128)
        model = bo.GaussianProcessRegressor(method=method, n_features=width, random_state=0)
        model.fit(data.X, data.y)
        for kind, calibrated in (("Gaussian", False), ("calibrated", True)):
            _, lower, upper = model.predict_interval(data.X_test, 0.95, calibrated=calibrated)
            covers = float(np.mean((lower <= data.y_test) & (data.y_test <= upper)))
            rows.append(
                {
                    "table": name,
                    "rows": len(data.y),
                    "who": f"{method}, {kind}",
                    "D": width,
                    "95 % covers": covers,
                    "asked": "0.93 to 0.97",
                    "met": "yes" if 0.93 <= covers <= 0.97 else "NO",
                }
            )
    return rows


# --- the models ----------------------------------------------------------------------------------


def _ours_of_gaussian_process(data: Split, width: int, _: float) -> Predicted:
    model = bo.GaussianProcessRegressor(n_features=width, random_state=0)
    mean, std = model.fit(data.X, data.y).predict(data.X_test, return_std=True)
    return mean, np.sqrt(std**2 + model.noise_variance_)


def _svgp(data: Split, width: int, limit: float) -> Predicted:
    """Stochastic variational: width/2 inducing points, Adam on blocks of 1024 rows."""
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points: Any) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, law))
            self.mean_module = gpytorch.means.ConstantMean()
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(inner)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    X, y = torch.from_numpy(data.X), torch.from_numpy(data.y)
    torch.manual_seed(0)
    model = Model(X[torch.randperm(len(X))[: width // 2]].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
    _descend(model, likelihood, elbo, _blocks(X, y), 0.01, limit)
    return _of_torch(model, likelihood, data)


def _sgpr(data: Split, width: int, limit: float) -> Predicted:
    """Titsias' bound on all rows: width/4 inducing points (a step is O(n m²)), Adam."""
    import gpytorch  # noqa: PLC0415
    import torch  # noqa: PLC0415

    X, y = torch.from_numpy(data.X), torch.from_numpy(data.y)
    torch.manual_seed(0)
    points = X[torch.randperm(len(X))[: width // 4]].clone()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                gpytorch.kernels.ScaleKernel(inner), points, likelihood
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    _descend(model, likelihood, bound, iter(lambda: (X, y), None), 0.1, limit)
    return _of_torch(model, likelihood, data)


def _blocks(X: Any, y: Any) -> Any:
    import torch  # noqa: PLC0415

    while True:
        for rows in torch.randperm(len(X)).split(1024):
            yield X[rows], y[rows]


def _descend(
    model: Any, likelihood: Any, bound: Any, blocks: Any, rate: float, limit: float
) -> None:
    import torch  # noqa: PLC0415

    own = {id(p): p for module in (model, likelihood) for p in module.parameters()}
    steps = torch.optim.Adam(own.values(), lr=rate)
    model.train(), likelihood.train()
    start = time.perf_counter()
    for X, y in blocks:
        steps.zero_grad()
        loss = -bound(model(X), y)
        loss.backward()
        steps.step()
        if time.perf_counter() - start > limit:
            return


def _of_torch(model: Any, likelihood: Any, data: Split) -> Predicted:
    import torch  # noqa: PLC0415

    model.eval(), likelihood.eval()
    with torch.no_grad():
        law = likelihood(model(torch.from_numpy(data.X_test)))
        return law.mean.numpy(), np.sqrt(law.variance.numpy())


def _xgpr(data: Split, width: int, _: float) -> Predicted:
    """Random features; tuned by marginal likelihood in ten steps, exact fit."""
    from xGPR import build_regression_dataset, xGPRegression  # noqa: PLC0415

    X, y = data.X.astype(np.float64), data.y.astype(np.float64)
    rows = build_regression_dataset(X, y, chunk_size=2000)
    model = xGPRegression(
        num_rffs=width, variance_rffs=width // 2, kernel_choice="RBF", device="cpu", verbose=False
    )
    model.tune_hyperparams_crude(rows, max_bayes_iter=10)
    model.fit(rows, mode="exact")
    test = data.X_test.astype(np.float64)
    mean, variance = model.predict(test, get_var=True)
    return mean, np.sqrt(np.maximum(variance, 1e-12))


# --- plan ------------------------------------------------------------------------------------


SETS = ("kin8nm", "california_housing", "protein", "elevation_etopo60")

_PLAN = """
import json, sys
import numpy as np
import bochner as bo
with np.load(sys.argv[1]) as data:
    found = bo.plan(data["X"], data["y"], budget=60, random_state=0)
print(json.dumps(found.facts()))
"""

_FIT = """
import json, resource, sys, time
import numpy as np
import bochner as bo
from bochner.kernels import *
from bochner.features import *
from bochner.landmarks import *
from bochner import ExactKernel

with np.load(sys.argv[1]) as data:
    X, y = data["X"], data["y"]
fit, kernel = json.loads(sys.argv[2]), eval(sys.argv[3])
method, exact = eval(fit["method"]), fit["solver"] == "exact"
if exact and not isinstance(method, ExactKernel):
    method = ExactKernel(method)
single = fit["solver"] == "moments float32"
few = bo.KernelRidge(kernel, method=method, n_features=16).fit(X[:64], y[:64])
model = bo.KernelRidge(
    kernel,
    method=method,
    n_features=fit["n_features"],
    precision="auto" if single or exact else "float64",
    random_state=0,
)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
start, processor = time.perf_counter(), time.process_time()
model.fit(X, y)
taken, busy = time.perf_counter() - start, time.process_time() - processor
solution, error = model.solution_, None
if exact and solution.slack is not None:  # of the last rows; the path is of the first ones
    kept = np.isfinite(solution.slack[:, 0])
    left_out = model.alpha_ * solution.coef[kept, 0] / solution.slack[kept, 0]
    error = float(np.sqrt(np.mean(left_out**2)))
print(json.dumps({
    "seconds": taken,
    "processor s": busy,
    "before MB": before / 1e6,
    "error": error or float(np.sqrt(np.nanmin(solution.path.loo))),
}))
"""


def run_plan(options: Options) -> list[Row]:
    """What bo.plan predicts against what fits take: seconds, memory and error, on development sets.

    Each set is planned, and some of the plan's fits, its choice among them, are run, each in a
    process of its own, right after one another: ``fit s`` is of the wall, the peak of resident
    memory is what the system counted. "memory" is the whole process: what it had before the fit
    (measured there) and what the plan says the fit takes. Errors are leave-one-out, as fits
    report them.
    """
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        return each(SETS, lambda name: _both_of_plan(name, Path(folder), options))


def _both_of_plan(name: str, folder: Path, options: Options) -> list[Row]:
    data, table = development(name, options, options.pick(None, 1500)), folder / "rows.npz"
    np.savez(table, X=data.X, y=data.y)
    found = child(_PLAN, str(table)).output
    most = options.pick(60.0, 5.0)
    own = ("local", "neighbours")  # of other estimators
    fits = [f for f in found["fits"] if not f["against"] and f["solver"] not in own]
    fits = [fit for fit in fits if fit["seconds"] <= most]
    return [_row_of_plan(name, fit, found, table) for fit in _some(fits, found["choice"])]


def _some(fits: list[Row], choice: Row) -> list[Row]:
    """Return the choice, the widths 512 and 2048 of each method, and the exact kernel."""
    asked = [f for f in fits if f["n_features"] in (512, 2048) or f["solver"] == "exact"]
    return [*(f for f in fits if f == choice), *(f for f in asked if f != choice)]


def _row_of_plan(name: str, fit: Row, found: Row, table: Path) -> Row:
    done = child(_FIT, str(table), json.dumps(fit), found["kernel"])
    memory = done.output["before MB"] + fit["bytes"] / 1e6
    row: Row = {
        "table": name,
        "rows": found["rows"],
        "method": fit["method"],
        "D": fit["n_features"],
        "solver": fit["solver"],
        "predicted s": fit["seconds"],
        "fit s": done.output["seconds"],
        "s, of predicted": done.output["seconds"] / fit["seconds"],
        "predicted MB": memory,
        "peak MB": done.peak_mb,
        "MB, of predicted": done.peak_mb / memory,
        "predicted error": fit["error"],
        "error": done.output["error"],
    }
    off = max(row["s, of predicted"], 1 / row["s, of predicted"])
    met = off <= 1.5 and 0.8 <= row["MB, of predicted"] <= 1.2
    return row | judged(off, 1.5, least=False) | {"met": "yes" if met else "NO"}
