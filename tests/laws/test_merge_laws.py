"""Learners made of moments, fitted apart and put together, are one fit of all rows."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import IncompatibleModels, InvalidType
from bochner.kernels import Gaussian

RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(150)
LABELS = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
COMMON = {"kernel": Gaussian(2.0), "method": "orthogonal", "n_features": 20, "random_state": 0}
LEARNERS = {
    "ridge": (bo.KernelRidge(alpha=0.1, **COMMON), Y),
    "classifier": (bo.KernelRidgeClassifier(alpha=0.1, **COMMON), LABELS),
    "process": (bo.GaussianProcessRegressor(**COMMON), Y),
    "components": (bo.KernelPCA(3, **COMMON), None),
}


def fitted(name, rows):
    model, y = LEARNERS[name]
    model = type(model)(**model.get_params(deep=False))
    return model.fit(X[rows], None if y is None else y[rows])


def test_learners_of_other_losses_are_refused():
    models = [bo.SVC(**COMMON).fit(X, LABELS) for _ in range(2)]
    with pytest.raises(InvalidType, match=r"must be made of moments.*got SVC\. Fit it on all rows"):
        bo.merge(*models)


def test_learners_of_two_kinds_are_refused():
    with pytest.raises(IncompatibleModels, match="one class; got KernelRidge and Gaussian"):
        bo.merge(fitted("ridge", slice(0, 75)), fitted("process", slice(75, 150)))


def test_classifiers_of_other_classes_are_refused():
    few = bo.KernelRidgeClassifier(**COMMON).fit(X[LABELS != "c"], LABELS[LABELS != "c"])
    with pytest.raises(IncompatibleModels, match=r"same classes; got \['a', 'b', 'c'\] and"):
        bo.merge(fitted("classifier", slice(0, 150)), few)
