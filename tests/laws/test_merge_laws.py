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
every_learner = pytest.mark.parametrize("name", LEARNERS)


def fitted(name, rows):
    model, y = LEARNERS[name]
    model = type(model)(**model.get_params(deep=False))
    return model.fit(X[rows], None if y is None else y[rows])


def told(model):
    """What the model says of the rows."""
    if hasattr(model, "decision_function"):
        return model.decision_function(X)
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


@every_learner
def test_parts_are_one_fit_in_any_order(name):
    parts = [fitted(name, slice(0, 50)), fitted(name, slice(50, 90)), fitted(name, slice(90, 150))]
    one = fitted(name, slice(0, 150))
    for order in ((0, 1, 2), (2, 0, 1)):
        merged = bo.merge(*(parts[i] for i in order))
        assert told(merged) == pytest.approx(told(one), abs=1e-8)
        assert merged.moments_.gram == pytest.approx(one.moments_.gram, abs=1e-10)
        assert merged.rows_seen_ == 150


@every_learner
def test_merging_changes_no_part(name):
    a, b = fitted(name, slice(0, 75)), fitted(name, slice(75, 150))
    before = told(a)
    bo.merge(a, b)
    assert np.array_equal(told(a), before)


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
