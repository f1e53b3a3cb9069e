"""The learners of ``benchmarks.tables``: ours, boosted trees, networks and exact machines.

Each takes a data frame of numbers and categories. Learners that take no categories are given them
one-hot, and numbers in standard deviations. A tuned one is the best of thirty draws of its
settings, judged on a fifth of the rows, and then fitted to all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import loguniform, randint, uniform
from sklearn.base import BaseEstimator
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

__all__ = ["OURS", "Learner", "learners"]

#: Settings that are tried for a tuned learner, and the share of rows they are judged on.
DRAWS, HELD_OUT = 30, 0.2

#: Rows that scikit-learn's Gaussian process is still fitted to.
FEW = 2000


#: From a seed and the names of the categorical columns to an estimator.
Maker = Callable[[int, list[str]], Any]


@dataclass(frozen=True)
class Learner:
    """A learner by its name.

    Attributes
    ----------
    name : str
    make : Maker
    space : dict
        Distributions of its settings, where it is tuned; empty: by default.
    most : int
        Rows that it is fitted to at most.
    """

    name: str
    make: Maker
    space: Mapping[str, Any] = field(default_factory=dict)
    most: int = 10**9

    def fit(self, X: pd.DataFrame, y: np.ndarray, seed: int) -> Any:
        """Return the learner, fitted."""
        estimator = self.make(seed, list(X.columns[X.dtypes == "category"]))
        if self.space:
            estimator = RandomizedSearchCV(
                estimator,
                dict(self.space),
                n_iter=DRAWS,
                cv=ShuffleSplit(1, test_size=HELD_OUT, random_state=seed),
                scoring="accuracy" if y.dtype.kind in "iu" else "neg_root_mean_squared_error",
                random_state=seed,
            )
        return estimator.fit(X, y)


#: Names of our learners; the first of each task is the simplest, which none may lose against.
OURS = {
    False: ("KernelRidge, Gaussian", "KernelRidge", "GaussianProcess"),
    True: ("KernelRidgeClassifier, Gaussian", "KernelRidgeClassifier", "SVC", "LogisticRegression"),
}


def learners(classes: bool) -> list[Learner]:
    """Return the learners of classes or of quantities that are installed."""
    found = [*(_of_classes() if classes else _of_quantities()), *_trees(classes)]
    return [*found, *_of_torch(classes)]


def _of_quantities() -> list[Learner]:
    process = GaussianProcessRegressor(ConstantKernel() * RBF() + WhiteKernel(), normalize_y=True)
    return [
        Learner("KernelRidge, Gaussian", _seeded(bo.KernelRidge, "gaussian")),
        Learner("KernelRidge", _seeded(bo.KernelRidge)),
        Learner("GaussianProcess", _seeded(bo.GaussianProcessRegressor)),
        Learner("SVR of scikit-learn", lambda *_: _in_numbers(SVR())),
        Learner("GP of scikit-learn", lambda *_: _in_numbers(process), most=FEW),
    ]


def _of_classes() -> list[Learner]:
    linear = LogisticRegression(max_iter=1000)
    return [
        Learner("KernelRidgeClassifier, Gaussian", _seeded(bo.KernelRidgeClassifier, "gaussian")),
        Learner("KernelRidgeClassifier", _seeded(bo.KernelRidgeClassifier)),
        Learner("SVC", _seeded(bo.SVC, probability=True)),
        Learner("LogisticRegression", _seeded(bo.LogisticRegression)),
        Learner("SVC of scikit-learn", lambda *_: _in_numbers(SVC())),
        Learner("LogisticRegression of scikit-learn", lambda *_: _in_numbers(linear)),
    ]


def _seeded(kind: Any, *given: Any, **named: Any) -> Maker:
    """Return what makes a learner of ours, which takes categories as they are."""
    return lambda seed, _: kind(*given, random_state=seed, **named)


def _in_numbers(estimator: Any) -> Any:
    """Return the estimator behind one-hot categories and scaled numbers."""
    columns = make_column_transformer(
        (
            OneHotEncoder(handle_unknown="ignore", sparse_output=False),
            make_column_selector(dtype_include="category"),
        ),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )
    return make_pipeline(columns, estimator)


# --- trees ---------------------------------------------------------------------------------------


def _trees(classes: bool) -> list[Learner]:
    made = [("HistGradientBoosting", _histogram(classes), _HISTOGRAM)]
    if find_spec("lightgbm"):
        made.append(("LightGBM", _light(classes), _LIGHT))
    if find_spec("catboost"):
        made.append(("CatBoost", _cat(classes), _CAT))
    return [
        Learner(f"{name}, tuned" if tuned else name, make, space if tuned else {})
        for tuned in (False, True)
        for name, make, space in made
    ]


def _histogram(classes: bool) -> Maker:
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return lambda seed, _: kind(random_state=seed, categorical_features="from_dtype")


def _light(classes: bool) -> Maker:
    kind = "LGBMClassifier" if classes else "LGBMRegressor"
    return lambda seed, _: getattr(import_module("lightgbm"), kind)(verbose=-1, random_state=seed)


def _cat(classes: bool) -> Maker:
    kind = "CatBoostClassifier" if classes else "CatBoostRegressor"
    quiet = {"verbose": 0, "allow_writing_files": False}
    # A tuple: a search copies its learner, and of a list CatBoost gives back another one.
    return lambda seed, names: getattr(import_module("catboost"), kind)(
        random_seed=seed, cat_features=tuple(names) or None, **quiet
    )


_HISTOGRAM = {
    "learning_rate": loguniform(0.02, 0.3),
    "max_iter": randint(50, 800),
    "max_leaf_nodes": randint(8, 128),
    "min_samples_leaf": randint(3, 60),
    "l2_regularization": loguniform(1e-3, 30),
}

_LIGHT = {
    "learning_rate": loguniform(0.02, 0.3),
    "n_estimators": randint(50, 1000),
    "num_leaves": randint(8, 128),
    "min_child_samples": randint(3, 60),
    "subsample": uniform(0.5, 0.5),
    "subsample_freq": [1],
    "colsample_bytree": uniform(0.4, 0.6),
    "reg_lambda": loguniform(1e-3, 30),
}

_CAT = {
    "learning_rate": loguniform(0.02, 0.3),
    "depth": randint(4, 9),
    "l2_leaf_reg": loguniform(1, 30),
    "random_strength": loguniform(0.1, 10),
    "bagging_temperature": uniform(0, 1),
}


# --- networks and feature machines ---------------------------------------------------------------


def _of_torch(classes: bool) -> list[Learner]:
    found = []
    if find_spec("xrfm"):
        found.append(Learner("xRFM", lambda seed, _: _in_numbers(RecursiveFeatures(seed, classes))))
    if find_spec("pytabkit"):
        kind = "RealMLP_TD_Classifier" if classes else "RealMLP_TD_Regressor"
        found.append(Learner("RealMLP", _network(kind)))
    return found


def _network(kind: str) -> Maker:
    return lambda seed, _: getattr(import_module("pytabkit"), kind)(
        random_state=seed, device="cpu", verbosity=0
    )


class RecursiveFeatures(BaseEstimator):
    """xRFM by default, with a fifth of the rows to validate on as it asks for."""

    def __init__(self, seed: int, classes: bool) -> None:
        self.seed, self.classes = seed, classes

    def fit(self, X: np.ndarray, y: np.ndarray) -> "RecursiveFeatures":
        """Fit to four fifths of the rows and choose on the rest."""
        self.labels_ = LabelEncoder().fit(y) if self.classes else None
        y = self.labels_.transform(y) if self.labels_ else y.astype(np.float32)[:, None]
        order = np.random.default_rng(self.seed).permutation(len(y))
        held, kept = np.split(order, [int(HELD_OUT * len(y))])
        X, metric = X.astype(np.float32), "accuracy" if self.classes else "mse"
        self.model_ = import_module("xrfm").xRFM(
            device="cpu", tuning_metric=metric, random_state=self.seed, verbose=False
        )
        self.model_.fit(X[kept], y[kept], X[held], y[held])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, (n,)."""
        found = np.ravel(self.model_.predict(X.astype(np.float32)))
        return self.labels_.inverse_transform(found.astype(int)) if self.labels_ else found
