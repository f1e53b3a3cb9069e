"""Learners of `tables` and `raw`, and other libraries that several experiments use.

Learners without categories receive them one-hot, with standardised numbers. A tuned learner has
the best of thirty random settings on a fifth of the rows, and is refitted to all rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from scipy.stats import loguniform, randint, uniform
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RandomizedSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

import bochner as bo

#: Number of random settings of a tuned learner, and share of rows that compare them.
DRAWS, HELD_OUT = 30, 0.2

#: Largest number of rows of scikit-learn's Gaussian process.
FEW = 2000

#: Learners of bochner, by whether targets are classes; the first is the simplest.
BOCHNER = {
    False: (
        *("KernelRidge, Gaussian", "KernelRidge", "GaussianProcess"),
        "KernelRidge, learned metric",
    ),
    True: ("KernelRidgeClassifier, Gaussian", "KernelRidgeClassifier", "SVC", "LogisticRegression"),
}

#: Settings of tuned trees.
RATE, LEAVES = loguniform(0.02, 0.3), randint(8, 128)
HIST: dict[str, Any] = {"learning_rate": RATE, "max_iter": randint(50, 800)}
HIST |= {"max_leaf_nodes": LEAVES, "min_samples_leaf": randint(3, 60)}
LIGHT: dict[str, Any] = {"learning_rate": RATE, "n_estimators": randint(50, 1000)}
LIGHT |= {"num_leaves": LEAVES, "min_child_samples": randint(3, 60), "subsample_freq": [1]}
LIGHT |= {"subsample": uniform(0.5, 0.5), "colsample_bytree": uniform(0.4, 0.6)}
CAT: dict[str, Any] = {"learning_rate": RATE, "depth": randint(4, 9)}
CAT |= {"l2_leaf_reg": loguniform(1, 30), "random_strength": loguniform(0.1, 10)}
SPACES = {
    "HistGradientBoosting": HIST | {"l2_regularization": loguniform(1e-3, 30)},
    "LightGBM": LIGHT | {"reg_lambda": loguniform(1e-3, 30)},
    "CatBoost": CAT | {"bagging_temperature": uniform(0, 1)},
}

QUIET = {"verbose": 0, "allow_writing_files": False}

#: Optional libraries: package, start of the name of the class, and parameters.
PACKAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "LightGBM": ("lightgbm", "LGBM", {"verbose": -1}),
    "CatBoost": ("catboost", "CatBoost", QUIET | {"random_state": 0}),
    "RealMLP": ("pytabkit", "RealMLP_TD_", {"device": "cpu", "verbosity": 0}),
}


def with_seed(model: Any, seed: int) -> Any:
    """Return an unfitted copy of a learner with a seed."""
    names = [name for name in model.get_params() if name.endswith("random_state")]
    return clone(model).set_params(**dict.fromkeys(names, seed))


@dataclass(frozen=True)
class Learner:
    """A learner, the space of its settings if it is tuned, and its largest number of rows."""

    name: str
    model: Any
    space: Mapping[str, Any] = field(default_factory=dict)
    max_rows: int = 10**9

    def fit(self, X: Any, y: np.ndarray, seed: int) -> Any:
        """Return the fitted learner."""
        estimator, options = with_seed(self.model, seed), {}
        if self.name.startswith("CatBoost"):
            options["cat_features"] = list(X.columns[X.dtypes == "category"])
        if self.space:
            estimator = RandomizedSearchCV(
                estimator,
                dict(self.space),
                n_iter=DRAWS,
                cv=ShuffleSplit(1, test_size=HELD_OUT, random_state=seed),
                scoring="accuracy" if y.dtype.kind in "iu" else "neg_root_mean_squared_error",
                random_state=seed,
            )
        return estimator.fit(X, y, **options)


def learners(classes: bool, tuned: bool = True) -> list[Learner]:
    """Return the installed learners of classes or of quantities, those of bochner first."""
    if classes:
        histogram, linear = HistGradientBoostingClassifier, LogisticRegression(max_iter=1000)
        models = {
            "KernelRidgeClassifier, Gaussian": bo.KernelRidgeClassifier("gaussian"),
            "KernelRidgeClassifier": bo.KernelRidgeClassifier(),
            "SVC": bo.SVC(probability=True),
            "LogisticRegression": bo.LogisticRegression(),
            "SVC of scikit-learn": _in_numbers(SVC()),
            "LogisticRegression of scikit-learn": _in_numbers(linear),
        }
    else:
        histogram = HistGradientBoostingRegressor
        models = {
            "KernelRidge, Gaussian": bo.KernelRidge("gaussian"),
            "KernelRidge": bo.KernelRidge(),
            "GaussianProcess": bo.GaussianProcessRegressor(),
            "KernelRidge, learned metric": bo.KernelRidge(metric="learned"),
            "SVR of scikit-learn": _in_numbers(SVR()),
            "GP of scikit-learn": _in_numbers(process()),
        }
    models["HistGradientBoosting"] = histogram(categorical_features="from_dtype")
    for name, (package, kind, options) in PACKAGES.items():
        if find_spec(package):
            task = "Classifier" if classes else "Regressor"
            models[name] = getattr(import_module(package), kind + task)(**options)
    if find_spec("xrfm"):
        models["xRFM"] = _in_numbers(RecursiveFeatures(classes))
    max_rows = lambda name: FEW if name.startswith("GP of") else 10**9
    result = [Learner(name, model, max_rows=max_rows(name)) for name, model in models.items()]
    spaces = {name: space for name, space in SPACES.items() if tuned and name in models}
    return result + [Learner(f"{name}, tuned", models[name], s) for name, s in spaces.items()]


def missing(*packages: str) -> list[dict[str, str]]:
    """Return a note for each package that is not installed."""
    absent = [package for package in packages if find_spec(package) is None]
    return [{"note": f"{package}: not installed."} for package in absent]


def process() -> Any:
    """Return scikit-learn's Gaussian process with kernel and noise chosen by its evidence."""
    return GaussianProcessRegressor(ConstantKernel() * RBF() + WhiteKernel(), normalize_y=True)


def in_numbers() -> Any:
    """Return a transformer to one-hot categories and scaled numbers."""
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (encoder, make_column_selector(dtype_include="category")),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )


def _in_numbers(estimator: Any) -> Any:
    return make_pipeline(in_numbers(), estimator)


class RecursiveFeatures(BaseEstimator):
    """xRFM with its defaults; a fifth of the rows is for validation, which it requires."""

    def __init__(self, classes: bool = False, random_state: int = 0) -> None:
        self.classes, self.random_state = classes, random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to four fifths of the rows and choose on the rest."""
        self.labels_ = LabelEncoder().fit(y) if self.classes else None
        y = self.labels_.transform(y) if self.labels_ else y.astype(np.float32)[:, None]
        order = np.random.default_rng(self.random_state).permutation(len(y))
        validation, train = np.split(order, [int(HELD_OUT * len(y))])
        X, metric = X.astype(np.float32), "accuracy" if self.classes else "mse"
        self.model_ = import_module("xrfm").xRFM(
            device="cpu", tuning_metric=metric, random_state=self.random_state, verbose=False
        )
        self.model_.fit(X[train], y[train], X[validation], y[validation])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, (n,)."""
        predicted = np.ravel(self.model_.predict(X.astype(np.float32)))
        if self.labels_ is None:
            return predicted
        return self.labels_.inverse_transform(predicted.astype(int))


class Falkon(BaseEstimator):
    """Falkon on the CPU with a Gaussian kernel of lengthscale 1, for NumPy arrays."""

    def __init__(self, width: int, penalty: float, random_state: int = 0) -> None:
        self.width, self.penalty, self.random_state = width, penalty, random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Fit to float32 rows."""
        falkon, torch = import_module("falkon"), import_module("torch")
        options = {"M": self.width, "penalty": self.penalty, "seed": self.random_state}
        options["options"] = falkon.FalkonOptions(use_cpu=True, keops_active="no")
        kernel = import_module("falkon.kernels").GaussianKernel(1.0)
        self.model_ = falkon.Falkon(kernel=kernel, **options)
        self.model_.fit(torch.from_numpy(X), torch.from_numpy(y)[:, None])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, (n, 1)."""
        return self.model_.predict(import_module("torch").from_numpy(X)).numpy()
