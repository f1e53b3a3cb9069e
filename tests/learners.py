"""Table of learners, each with each of its representations: rows, tolerances and laws.

``laws/test_learner_laws.py`` has the laws. Some hold for all learners except those that name the
law in ``but``; other laws, for example of repeated rows, hold for those that name it in ``can``.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import clone

import bochner as bo
from bochner.kernels import Gaussian, Matern, OnSphere

N, NEW = 90, 30
KERNEL = Gaussian(0.8)
SEED = {"random_state": 0}
FEATURES = {"kernel": KERNEL, "method": "orthogonal", "n_features": 24, **SEED}
LANDMARKS = FEATURES | {"method": "nystrom"}
GIVEN = FEATURES | {
    "method": bo.Nystrom(bo.landmarks.Points(np.random.default_rng(8).uniform(-2, 2, (20, 2))))
}
MATRIX = {"kernel": KERNEL, **SEED}
EXACT = {"kernel": KERNEL, "method": "exact", **SEED}
CHOSEN = {"n_features": 24, **SEED}
AUTO = FEATURES | {"method": "auto"}
NAMED = {"kernel": "gaussian", **CHOSEN}
LENGTHS = {"method": "orthogonal", **NAMED}
ABOUT_ZERO = {"alpha": 0.3, "fit_intercept": False, **FEATURES}
ITERATED = {"alpha": 0.1, **FEATURES, "method": bo.ExactKernel("nystrom")}
LEAVES = {"alpha": 0.1, **MATRIX, "method": bo.LocalKernel(30, 12)}
LOCAL = {"tol": 1e-9, "precision": "float64", **MATRIX, "method": bo.LocalKernel(30, 12)}
GRID = {**MATRIX, "method": bo.FourierGrid(box=((-2.0, 2.0),) * 2)}
PLACES = {"kernel": OnSphere(Matern(1.5, 0.5)), **SEED}
NEAR = {"kernel": Matern(1.5, 0.8), "method": bo.NearestNeighbours(10), **SEED}
LAW = {"noise": 0.1, "amplitude": 2.0}
FEW_STEPS = {"tol": None, "max_iter": 4, "alpha": 1e-3}
CACHED = {"strategy": "approximate_cached", **FEW_STEPS, **FEATURES}
ON_ROWS = {"strategy": "gram_cached", **FEW_STEPS, **MATRIX}
LOG_LOSS = {"loss": "log_loss", **CACHED}
WAY_BACK = {"fit_inverse_transform": True, "inverse_kernel": KERNEL, **FEATURES}
TIGHT, TIGHT_ROWS = {"tol": 1e-11, **FEATURES}, {"tol": 1e-11, **MATRIX}
LIBSVM = {"C": 2.0, "loss": "hinge", "tol": 1e-9, **MATRIX}
QUANTILES = {"loss": "quantile", "alpha": 0.3, **TIGHT}

#: Classes of learners.
KINDS = [kind for name in bo.__all__ if hasattr(kind := getattr(bo, name), "fit_blocks")]


@dataclass(frozen=True, eq=False)
class Case:
    """A learner, the kind of its target, the relative tolerance of its outputs, and its laws.

    ``kind`` is "number", "class", "class of two", "pair" (two columns) or "none"; ``skip``: no law.
    """

    name: str
    model: Any
    kind: str = "number"
    rtol: float = 1e-8
    law: str = ""
    skip: str = ""
    make_rows: Any = None  # function of (rng, n), if rows are not in the square

    def __repr__(self):
        return self.name

    def rows(self, n=N, seed=0, t=None):
        """Return rows and a target, both read-only; the target has ``t`` numeric columns if given."""
        rng = np.random.default_rng(seed)
        X = (self.make_rows or square)(rng, n)
        f = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(n)
        y = {
            "class": lambda: np.digitize(f, [-0.4, 0.4]),
            "class of two": lambda: np.digitize(f, [0.1]),
            "none": lambda: None,
            "pair": lambda: np.column_stack([f, X[:, 0] ** 2]),
            "number": lambda: f + 1,
        }[self.kind]()
        if t is not None:
            y = np.column_stack([(f + 1) * (j + 1) + X[:, 0] ** j for j in range(t)])
        for array in (X, y):
            if array is not None:
                array.flags.writeable = False
        return X, y

    @property
    def new(self):
        """Return rows that are in no fit."""
        return self.rows(NEW, seed=9)[0]

    def fit(self, X, y=None, w=None, **changes):
        """Return a new fit of the learner; ``sample_weight`` is passed only if w is given."""
        model = clone(self.model).set_params(**changes)
        return model.fit(X, y) if w is None else model.fit(X, y, sample_weight=w)

    @property
    def fitted(self):
        """Return the cached fit to the rows of the case: copy it before a change."""
        return fitted(self)


@cache
def fitted(case):
    return case.fit(*case.rows())


def square(rng, n):
    return rng.uniform(-2, 2, (n, 2))


def globe(rng, n):
    return np.column_stack([rng.uniform(-80, 80, n), rng.uniform(-180, 180, n)])


#: Methods whose fits keep no rows for leave-one-out errors, like stochastic gradient descent.
WITHOUT_ROWS = bo.FourierGrid, bo.NearestNeighbours, bo.ExactKernel
ANSWERS = {
    "predict": lambda m, X: m.predict(X),
    "decision_function": lambda m, X: m.decision_function(X),
    "score_samples": lambda m, X: m.score_samples(X),
    "predict_proba": lambda m, X: m.predict_proba(X),
    "transform": lambda m, X: m.transform(X),
    "inverse_transform": lambda m, X: m.inverse_transform(m.transform(X)),
    "sample_y": lambda m, X: m.predict(X, return_std=True)[1],
    "predict_interval": lambda m, X: np.stack(m.predict_interval(X, coverage=0.6)),
}


def answers(model, X, names=ANSWERS):
    """Return the outputs of a fitted model at rows, by name of the method."""
    rowless = isinstance(model, bo.KernelSGDRegressor) or isinstance(model.method, WITHOUT_ROWS)
    exclusions = ("predict_interval",) if rowless else ()
    return {
        name: np.asarray(ANSWERS[name](model, X))
        for name in names
        if hasattr(model, name) and name not in exclusions
    }


def gap(actual, expected):
    """Return the largest relative difference of two sets of outputs; infinite if labels differ."""
    assert actual.keys() == expected.keys(), f"{actual.keys()} is not {expected.keys()}"
    worst = 0.0
    for name, a in actual.items():
        b = expected[name]
        assert a.shape == b.shape, f"{name}: {a.shape} is not {b.shape}"
        if a.dtype.kind in "fc":
            worst = max(worst, np.abs(a - b).max(initial=0) / max(1.0, np.abs(b).max(initial=0)))
        elif not np.array_equal(a, b):
            worst = np.inf
    return worst


RIDGE, PROCESS, LOSS = bo.KernelRidge, bo.GaussianProcessRegressor, bo.KernelRegressor
SIGNS, SVC, SVR, LOGISTIC = bo.KernelRidgeClassifier, bo.SVC, bo.SVR, bo.LogisticRegression
ONE_CLASS, SGD, CCA = bo.OneClassSVM, bo.KernelSGDRegressor, bo.KernelCCA
PCA, SGD_OF_CLASSES = bo.KernelPCA, bo.KernelSGDClassifier
#: Laws of fits by sums over rows, of fits whose maps do not depend on rows, and of fits by a loss.
ADDED = "weights order pieces merge"
JOINT, SUM = ADDED + " targets", ADDED + " targets unit"
FREE, ORDERED = "weights order targets unit", "weights order"
FREE_SCALED = FREE + " scale"
SCALED, SEVERAL = "weights order scale", "weights order targets scale"
WAVES, NEIGHBOURS = "order pieces merge targets unit", "order pieces merge unit"
#: Laws that fail for places, for lengthscales chosen by evidence, and for rows in memory.
OF_PLACES, OPEN = "stream sparse tables onnx", "range kept tables libraries"
IN_MEMORY = "offset blocks memory stream intervals"
CASES = [
    Case("ridge on features", RIDGE(alpha="loo", **FEATURES), law=SUM),
    Case("ridge, gcv", RIDGE(alpha="gcv", **FEATURES), law=SUM),
    Case("ridge, evidence", RIDGE(alpha="evidence", **FEATURES), law=SUM),
    Case("ridge, alpha given", RIDGE(**ABOUT_ZERO), law=SUM + " scale", skip="offset"),
    Case("ridge on landmarks", RIDGE(**LANDMARKS), rtol=1e-7, law="targets unit", skip="dense"),
    Case("ridge, map chosen", RIDGE(**AUTO), rtol=1e-7, law="targets unit", skip="gradient dense"),
    Case("ridge, all chosen", RIDGE(effort="low", **CHOSEN), skip="gradient"),
    Case("ridge, kernel by name", RIDGE("matern32", **CHOSEN), law="unit", skip="gradient"),
    Case("ridge, learned metric", RIDGE(metric="learned", **NAMED), law="unit", skip="gradient"),
    Case("exact ridge", RIDGE(alpha="gcv", **EXACT), law="order targets unit", skip="stream"),
    Case("exact ridge, alpha given", RIDGE(alpha=0.1, **EXACT), law=FREE_SCALED, skip="stream"),
    Case("exact ridge, chosen", RIDGE(effort="low", **SEED), law="order", skip="stream"),
    Case("iterated ridge", RIDGE(**ITERATED), rtol=1e-5, law=FREE_SCALED, skip="range intervals"),
    Case("ridge in leaves", RIDGE(**LEAVES), rtol=1e-6, law="targets unit", skip="range"),
    Case("ridge on a grid", RIDGE(alpha=0.1, **GRID), law=WAVES, skip="zeros intervals onnx"),
    Case("ridge on the sphere", RIDGE(**PLACES), make_rows=globe, law="order unit", skip=OF_PLACES),
    Case("ridge classifier", SIGNS(**FEATURES), "class", law=SUM, skip="class-weights"),
    Case("exact ridge classifier", SIGNS(alpha=0.3, **EXACT), "class", law=FREE_SCALED),
    Case("process", PROCESS(**FEATURES), law="pieces targets unit"),
    Case("process, law given", PROCESS(**LAW, **GIVEN), law=JOINT, skip="tables bytes"),
    Case("process, lengthscales chosen", PROCESS(**LENGTHS), law="unit", skip=OPEN),
    Case("exact process", PROCESS(**EXACT), law="order targets unit"),
    Case("exact process, law given", PROCESS(**LAW, **EXACT), law="weights order targets"),
    Case("process on a grid", PROCESS(**GRID), rtol=1e-7, law=WAVES, skip="onnx sparse"),
    Case("process of neighbours", PROCESS(**NEAR), law=NEIGHBOURS, skip="gradient onnx"),
    Case("svc", SVC(C=2.0, **TIGHT), "class", law=SCALED),
    Case("svc of two", SVC(C=2.0, **TIGHT), "class of two", law=SCALED),
    Case("exact svc of two", SVC(C=2.0, **MATRIX), "class of two", skip="memory"),
    Case("logistic of two", LOGISTIC(C=2.0, tol=1e-9, **FEATURES), "class of two", skip="memory"),
    Case("ridge classifier of two", SIGNS(alpha=0.3, **FEATURES), "class of two", law=SUM),
    Case("svc, C chosen", SVC(**FEATURES), "class of two", law="order", skip="memory dtype"),
    Case("svc of pairs", SVC(C=2.0, multi_class="ovo", **TIGHT), "class", law=SCALED),
    Case("exact svc", SVC(**LIBSVM), "class", rtol=1e-5, law=SCALED, skip="memory"),
    Case("logistic", LOGISTIC(C=2.0, **TIGHT), "class", rtol=1e-6, law=SCALED),
    Case("logistic in leaves", LOGISTIC(C=2.0, **LOCAL), "class of two", 1e-5, skip="memory range"),
    Case("exact logistic", LOGISTIC(C=2.0, **TIGHT_ROWS), "class", rtol=1e-5, law=SCALED),
    Case("svr", SVR(C=2.0, epsilon=0.1, **TIGHT), rtol=1e-7, law=SEVERAL, skip="offset"),
    Case("svr, C chosen", SVR(tol=1e-9, **FEATURES), "number", 1e-6, "order unit", "dtype"),
    Case("exact svr", SVR(C=2.0, epsilon=0.1, **TIGHT_ROWS), rtol=1e-3, law=SEVERAL),
    Case("absolute loss", LOSS(loss="absolute", alpha=0.3, **TIGHT), rtol=1e-7, law=SEVERAL),
    Case("huber, alpha chosen", LOSS(loss="huber", **TIGHT), law="order unit", skip="offset dtype"),
    Case("quantiles", LOSS(**QUANTILES), rtol=1e-7, law=SCALED, skip="offset"),
    Case("one class", ONE_CLASS(nu=0.3, **TIGHT), "none", law=ORDERED),
    Case("exact one class", ONE_CLASS(nu=0.3, **MATRIX), "none", law=ORDERED, skip="memory"),
    Case("sgd", SGD(**CACHED), law="weights targets", skip="offset intervals bytes"),
    Case("sgd on rows", SGD(**ON_ROWS), law="weights targets", skip=IN_MEMORY),
    Case("sgd classifier", SGD_OF_CLASSES(**LOG_LOSS), "class", law="weights", skip="bytes"),
    Case("components", PCA(3, **WAY_BACK), "none", law=ADDED),
    Case("clusters", bo.KernelKMeans(3, **FEATURES), "none", law=SCALED, skip="dtype"),
    Case("correlations, chosen", CCA(2, **FEATURES), "pair", law="weights pieces", skip="dtype"),
    Case("correlations", CCA(2, alpha=0.5, **FEATURES), "pair", law="weights order pieces"),
    Case("features", bo.KernelFeatures(**LANDMARKS), "none", skip="zeros"),
]
#: Laws in the main tier of cases with slow fits; their other laws are in the slow tier.
MAIN = {
    "ridge, kernel by name": "blocks kept zeros sparse unit",
    "ridge, learned metric": "kept sparse zeros offset",
    "process, lengthscales chosen": "",
    "svc, C chosen": "order zeros kept blocks sparse",
    "svc of pairs": "labels weights kept",
    "svr, C chosen": "",
    "huber, alpha chosen": "order unit zeros blocks",
    "quantiles": "blocks weights kept",
}
