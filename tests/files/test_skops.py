"""Files of skops: every learner comes back as it was, by the types that are named to be trusted."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bochner as bo
from bochner.kernels import Gaussian, Matern

skops_io = pytest.importorskip("skops.io")

X = np.random.default_rng(0).normal(size=(80, 2))
Y, CLASSES = X[:, 0] + X[:, 1] ** 2, X[:, 0] > 0
WORDS = np.where(CLASSES, "right", "left")
OPTIONS = dict(n_features=16, random_state=0)
MODELS = {
    "ridge": lambda: bo.KernelRidge(**OPTIONS).fit(X, Y),
    "ridge of a sum": lambda: bo.KernelRidge(
        Gaussian() + 0.5 * Matern(1.5), method="nystrom", **OPTIONS
    ).fit(X, Y),
    "exact": lambda: bo.KernelRidge(method="exact", random_state=0).fit(X, Y),
    "ridge classifier": lambda: bo.KernelRidgeClassifier(**OPTIONS).fit(X, WORDS),
    "process": lambda: bo.GaussianProcessRegressor(**OPTIONS).fit(X, Y),
    "svc": lambda: bo.SVC(probability=True, **OPTIONS).fit(X, CLASSES),
    "logistic": lambda: bo.LogisticRegression(method="hermite", **OPTIONS).fit(X, CLASSES),
    "svr": lambda: bo.SVR(**OPTIONS).fit(X, Y),
    "regressor": lambda: bo.KernelRegressor(**OPTIONS).fit(X, Y),
    "one class": lambda: bo.OneClassSVM(**OPTIONS).fit(X),
    "descent": lambda: bo.KernelSGDRegressor(**OPTIONS).fit(X, Y),
    "descent of classes": lambda: bo.KernelSGDClassifier(**OPTIONS).fit(X, CLASSES),
    "components": lambda: bo.KernelPCA(2, fit_inverse_transform=True, **OPTIONS).fit(X),
    "means": lambda: bo.KernelKMeans(2, **OPTIONS).fit(X),
    "features": lambda: bo.KernelFeatures(method="hermite", **OPTIONS).fit(X),
    "correlations": lambda: bo.KernelCCA(1, **OPTIONS).fit(X, X[:, :1] ** 2),
    "pipeline": lambda: make_pipeline(StandardScaler(), bo.KernelRidge(**OPTIONS)).fit(X, Y),
    "not fitted": lambda: bo.KernelRidge(Gaussian(0.5)),
}


def answers(model):
    if not hasattr(model, "fit_") and not hasattr(model, "steps"):
        return repr(model)
    return (model.predict if hasattr(model, "predict") else model.transform)(X).tolist()


@pytest.mark.main_cases(7)
@pytest.mark.parametrize("name", MODELS)
def test_a_learner_comes_back_as_it_was(name):
    model = MODELS[name]()
    wanted = answers(model)
    again = skops_io.loads(skops_io.dumps(model), trusted=bo.export.TRUSTED)
    assert type(again) is type(model)
    assert answers(again) == wanted


def test_what_was_asked_for_before_comes_back_too():
    model = bo.KernelRidge(**OPTIONS).fit(X, Y)
    wanted = model.certificate_.epsilon
    again = skops_io.loads(skops_io.dumps(model), trusted=bo.export.TRUSTED)
    assert again.certificate_.epsilon == wanted
    assert again.solution_.outcome is model.solution_.outcome


def test_without_the_list_nothing_of_ours_is_built():
    with pytest.raises(skops_io.exceptions.UntrustedTypesFoundException, match="bochner"):
        skops_io.loads(skops_io.dumps(MODELS["ridge"]()))
