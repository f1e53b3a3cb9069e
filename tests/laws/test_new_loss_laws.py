"""A new smooth loss is one class from outside the package: all that learners do is done with it."""

from dataclasses import KW_ONLY

import numpy as np
import pytest
from gallery import table

import bochner as bo
from bochner.engines import Local
from bochner.kernels import Gaussian, Kernel
from bochner.models._parameters import estimator
from bochner.models.convex.classification import ConvexClassifier
from bochner.solvers.convex.losses import Loss

FEATURES = {"kernel": Gaussian(1.0), "tol": 1e-6, "random_state": 0}
METHODS = {"orthogonal": 200, "nystrom": 80, "hermite": 100, "exact": None}


class LogCosh(Loss):
    """log cosh(f − y)."""

    def value(self, y, f):
        return np.logaddexp(f - y, y - f) - np.log(2)

    def slope(self, y, f):
        return np.tanh(f - y)

    def curvature(self, y, f):
        return 1 / np.cosh(f - y) ** 2


@estimator
class Classifier(ConvexClassifier):
    """A classifier by the loss, of targets −1 and +1."""

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY

    def _loss(self, n_classes, rows):
        return LogCosh()

    def _log_probabilities(self, f):
        return np.log((1 + np.clip(np.hstack([-f, f]), -0.99, 0.99)) / 2)


def exported(model, X):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = bo.export.to_onnx(model, precision="float64").SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})[0]


@pytest.mark.parametrize("method", METHODS)
def test_regression_by_a_new_loss_has_intervals_gradients_streams_and_graphs(method):
    (X, y), (new, truth) = table(), table(200, seed=1)
    given = dict(loss=LogCosh(), method=method, n_features=METHODS[method], **FEATURES)
    model = bo.KernelRegressor(**given).fit(X, y)
    assert model.score(new, truth) > 0.7
    low, high = model.predict_interval(new, coverage=0.8)[-2:]
    assert 0.7 < np.mean((low <= truth) & (truth <= high)) < 0.9
    h = 1e-5 * np.eye(2)
    slopes = [(model.predict(new + e) - model.predict(new - e)) / 2e-5 for e in h]
    np.testing.assert_allclose(model.gradient(new), np.transpose(slopes), atol=1e-5)
    np.testing.assert_allclose(exported(model, new), model.predict(new), atol=1e-8)
    if method == "exact":
        return
    blocks = bo.Blocks.from_arrays(X, y, block_rows=37)
    streamed = bo.KernelRegressor(**given).fit_blocks(blocks, Local(memory=0))
    np.testing.assert_allclose(streamed.predict(new), model.predict(new), atol=1e-4)


def test_classification_by_a_new_loss_is_the_same_on_features_and_the_kernel_itself():
    (X, y), (new, truth) = table(), table(200, seed=1)
    exact = Classifier(C=3.0, **FEATURES).fit(X, y > 5)
    features = Classifier(C=3.0, method="nystrom", n_features=300, **FEATURES).fit(X, y > 5)
    assert exact.X_fit_.shape == X.shape
    for ask in ("decision_function", "predict_proba"):
        np.testing.assert_allclose(getattr(features, ask)(new), getattr(exact, ask)(new), atol=1e-3)
    assert (exact.predict(new) == (truth > 5)).mean() > 0.85
    np.testing.assert_array_equal(exported(exact, new), exact.predict(new))
    assert Classifier(**FEATURES).fit(X, y > 5).path_.best > 0
