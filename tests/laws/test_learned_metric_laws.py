"""metric="learned": every learner that takes it fits in the metric, saves it, and gains by it."""

import numpy as np
import pytest

import bochner as bo
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian

RNG = np.random.default_rng(0)
X = RNG.standard_normal((700, 5))
CLEAN = np.sin(2 * (X[:, 0] + X[:, 1]))
Y = CLEAN + 0.1 * RNG.standard_normal(700)
LABELS = np.where(CLEAN > 0, "up", "down")
COMMON = {"kernel": "gaussian", "n_features": 64, "random_state": 0, "method": "orthogonal"}
LEARNERS = {
    "ridge": (bo.KernelRidge(**COMMON), Y),
    "exact": (bo.KernelRidge("gaussian", n_features=64, random_state=0, method="exact"), Y),
    "process": (bo.GaussianProcessRegressor(**COMMON), Y),
    "losses": (bo.KernelRegressor(alpha=0.1, **COMMON), Y),
    "classes": (bo.KernelRidgeClassifier(**COMMON), LABELS),
    "vectors": (bo.SVR(**COMMON), Y),
    "margins": (bo.SVC(**COMMON), LABELS),
    "probabilities": (bo.LogisticRegression(**COMMON), LABELS),
}


def fitted(name, metric):
    model, y = LEARNERS[name]
    parameters = model.get_params(deep=False) | {"metric": metric}
    return type(model)(**parameters).fit(X[:500], y[:500])


@pytest.mark.parametrize("name", LEARNERS)
def test_the_metric_finds_the_direction_that_matters(name, tmp_path):
    model, y = fitted(name, "learned"), LEARNERS[name][1]
    plain = fitted(name, None)
    assert model.score(X[500:], y[500:]) > plain.score(X[500:], y[500:])
    leading = np.linalg.eigh(np.array(model.metric_.matrix))[1][:, -1]
    assert abs(leading[:2].sum()) / 2**0.5 > 0.95  # along the sum of the first two columns
    bo.save(model, tmp_path / "model")
    again = bo.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), model.predict(X))


def test_a_kernel_of_ones_own_is_the_start():
    given = COMMON | {"kernel": Gaussian(1.0)}
    start = bo.KernelRidge(metric="learned", **given).fit(X[:300], Y[:300])
    assert repr(start.kernel_).startswith("Mahalanobis(")
    assert not hasattr(fitted("ridge", None), "metric_")


def test_a_metric_that_is_none_is_refused():
    with pytest.raises(InvalidInput, match=r'metric must be None or "learned"; got .euclid'):
        fitted("ridge", "euclid")
