"""A smooth loss of a user is one class: learners give it intervals, gradients, blocks and graphs."""

from dataclasses import KW_ONLY, replace
from functools import partial

import numpy as np
import pytest
from gallery import table

import bochner as bo
from bochner.engines import Local
from bochner.kernels import Gaussian, Kernel
from bochner.models._parameters import estimator
from bochner.models.convex.classification import ConvexClassifier
from bochner.solvers.convex.kernel import KernelMatrix
from bochner.solvers.convex.losses import Loss
from bochner.solvers.convex.newton import minimise
from bochner.solvers.convex.problem import Problem, State
from bochner.sums.passes import indicators

FEATURES = {"kernel": Gaussian(1.0), "tol": 1e-6, "random_state": 0}
LEAVES, GRADIENTS = bo.LocalKernel(60, 24), bo.ExactKernel("nystrom")
METHODS = {"orthogonal": 200, "nystrom": 80, "hermite": 100, "exact": None, LEAVES: None}


class LogCosh(Loss):
    """The loss log cosh(f − y)."""

    def value(self, y, f):
        return np.logaddexp(f - y, y - f) - np.log(2)

    def slope(self, y, f):
        return np.tanh(f - y)

    def curvature(self, y, f):
        return 1 / np.cosh(f - y) ** 2


@estimator
class Classifier(ConvexClassifier):
    """A classifier of two classes by this loss, with targets −1 and 1."""

    kernel: Kernel | str = "gaussian"
    _: KW_ONLY

    def _loss(self, n_classes, rows):
        return LogCosh()

    def _log_probabilities(self, f):
        return np.log((1 + np.clip(np.hstack([-f, f]), -0.99, 0.99)) / 2)


def predict_onnx(model, X):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = bo.export.to_onnx(model, precision="float64").SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})[0]


@pytest.mark.parametrize("method", METHODS)
def test_regressors_of_a_new_loss_have_intervals_gradients_blocks_and_graphs(method):
    (X, y), (new, truth) = table(), table(200, seed=1)
    parameters = dict(loss=LogCosh(), method=method, n_features=METHODS[method], **FEATURES)
    model = bo.KernelRegressor(**parameters).fit(X, y)
    assert model.score(new, truth) > 0.7
    low, high = model.predict_interval(new, coverage=0.8)[-2:]
    assert 0.7 < np.mean((low <= truth) & (truth <= high)) < 0.9
    slopes = [(model.predict(new + e) - model.predict(new - e)) / 2e-5 for e in (1e-5 * np.eye(2))]
    np.testing.assert_allclose(model.gradient(new), np.transpose(slopes), atol=1e-5)
    np.testing.assert_allclose(predict_onnx(model, new), model.predict(new), atol=1e-8)
    if method in ("exact", LEAVES):
        return
    blocks = bo.Blocks.from_arrays(X, y, block_rows=37)
    streamed = bo.KernelRegressor(**parameters).fit_blocks(blocks, Local(cache_bytes=0))
    np.testing.assert_allclose(streamed.predict(new), model.predict(new), atol=1e-4)


def test_a_classifier_of_a_new_loss_agrees_on_features_and_the_exact_kernel():
    (X, y), (new, truth) = table(), table(200, seed=1)
    exact = Classifier(C=3.0, **FEATURES).fit(X, y > 5)
    features = Classifier(C=3.0, method="nystrom", n_features=300, **FEATURES).fit(X, y > 5)
    assert exact.X_fit_.shape == X.shape
    for name in ("decision_function", "predict_proba"):
        first, other = (getattr(model, name)(new) for model in (features, exact))
        np.testing.assert_allclose(first, other, atol=1e-3)
    assert (exact.predict(new) == (truth > 5)).mean() > 0.85
    np.testing.assert_array_equal(predict_onnx(exact, new), exact.predict(new))
    assert Classifier(**FEATURES).fit(X, y > 5).path_.best > 0


#: Learner, parameters and type of target for each smooth loss; the penalty is 1/4.
SMOOTH = {
    "logistic": (bo.LogisticRegression, {"C": 4.0}, "two"),
    "multinomial": (bo.LogisticRegression, {"C": 4.0}, "three"),
    "pairs": (bo.SVC, {"C": 4.0, "loss": "squared_hinge", "multi_class": "ovo"}, "three"),
    "epsilon": (bo.SVR, {"C": 4.0, "loss": "squared_epsilon_insensitive"}, "number"),
    "squared": (bo.KernelRegressor, {"alpha": 0.25}, "number"),
    "huber": (bo.KernelRegressor, {"alpha": 0.25, "loss": bo.Huber(0.3)}, "numbers"),
    "poisson": (bo.KernelRegressor, {"alpha": 0.25, "loss": "poisson"}, "count"),
    "log cosh": (bo.KernelRegressor, {"alpha": 0.25, "loss": LogCosh()}, "number"),
}


@pytest.mark.parametrize("method", [LEAVES, GRADIENTS], ids=["leaves", "gradients"])
@pytest.mark.parametrize("case", SMOOTH)
def test_smooth_losses_without_features_attain_the_minimum_on_the_kernel_matrix(case, method):
    (kind, options, target), rng, n = SMOOTH[case], np.random.default_rng(0), 150
    X, w = rng.uniform(-2, 2, (n, 2)), rng.uniform(0.5, 2.0, n)
    f = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(n)
    codes = np.digitize(f, [-0.4, 0.4] if target == "three" else [0.1])
    y = {"number": f, "numbers": np.outer(f, [1, 2]), "count": np.ceil(f + 9)}.get(target, codes)
    model = kind(Gaussian(0.8), method=method, tol=1e-8, random_state=0, **options)
    fit, K, Z = model.fit(X, y, sample_weight=w).fit_, model.kernel_(X), model.map_(X)
    if method is LEAVES:
        leaf = fit.representation.leaf
        K = np.where(leaf[:, None] == leaf, K, Z @ Z.T)
    if fit.inputs.classes is not None:
        y = indicators(codes, len(fit.inputs.classes))
        y = (y + 1) / 2 if fit.loss.joint else y if fit.pairs is None else fit.pairs.targets(codes)
    problem = Problem(KernelMatrix(K), y.reshape(n, -1), w[:, None], fit.loss, 0.25)
    minimum_of = partial(minimise, tol=1e-10, max_iter=300)
    end, (coef, b) = minimum_of(problem), (fit.solution.coef, fit.solution.intercept)
    minimum = problem.objective(end.value, end.intercept)
    assert abs(fit.solution.objective / minimum - 1) < 1e-5
    for size, close in ((1.0, True), (1.02, False)):  # a function 2 % larger fails
        value = problem.values(State(size * coef, b, size * K @ coef + b))
        assert (problem.objective(value, b) / minimum - 1 < 1e-5) is close
    for i in (0, 40, 149) if fit.left_out else ():
        left_out = replace(problem, w=np.where(np.arange(n) == i, 0.0, w)[:, None])
        expected, row = minimum_of(left_out).fitted[i], (fit.left_out.X == X[i]).all(axis=1)
        distance = abs(fit.left_out.predicted[row] - expected).max()
        assert distance < (1e-2 if case == "squared" else 0.2) * abs(expected - end.fitted[i]).max()
        np.testing.assert_allclose(y[i] - fit.left_out.errors[row][0], expected, atol=2 * distance)
