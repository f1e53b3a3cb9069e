"""The estimator contract: all of scikit-learn's checks, pipelines, grid search, clone, pickling."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bochner as bo
from bochner.kernels import Gaussian, Laplace, Matern, Polynomial

ESTIMATORS = [
    bo.SVC(n_features=64, tol=1e-10),
    bo.SVC(kernel=Gaussian(5.0), method="orthogonal", n_features=32, probability=True, tol=1e-14),
    bo.SVC(tol=1e-10),
    bo.SVC(kernel=Gaussian(5.0), probability=True, tol=1e-12),
    bo.LogisticRegression(tol=1e-14),
    bo.LogisticRegression(n_features=64, tol=1e-14),
    bo.LogisticRegression(kernel=Gaussian(5.0), n_features=32, multinomial=False, tol=1e-14),
    bo.SVR(n_features=64, C=10.0, tol=1e-12),
    bo.SVR(kernel=Gaussian(5.0), n_features=32, loss="squared_epsilon_insensitive"),
    bo.OneClassSVM(kernel=Gaussian(5.0), method="orthogonal", n_features=32, nu=0.15, tol=1e-12),
    bo.KernelRegressor(n_features=32, tol=1e-12),
    bo.KernelRegressor(Gaussian(5.0), n_features=32, loss="huber"),
    bo.GaussianProcessRegressor(n_features=64),
    bo.GaussianProcessRegressor(
        kernel="matern32", method="orthogonal", n_features=64, noise=0.1, fit_intercept=False
    ),
    bo.KernelRidge(n_features=128),
    bo.KernelRidge(kernel=Matern(1.5, 5.0), method="orthogonal", n_features=64, alpha=1e-3),
    bo.KernelRidge(kernel="laplace", method="nystrom", n_features=32, alpha="gcv"),
    bo.KernelRidge(precision="float64", n_features=64, fit_intercept=False),
    bo.KernelRidge(method="exact", n_features=32),
    bo.KernelRidgeClassifier(n_features=64),
    bo.KernelRidgeClassifier(method="exact", n_features=32, alpha=0.1),
    bo.KernelFeatures(n_features=64),
    bo.KernelFeatures(kernel=Laplace(2.0), method="qmc", n_features=64),
    bo.KernelPCA(3, n_features=64, fit_inverse_transform=True),
    bo.KernelPCA(kernel=Gaussian(5.0), method="orthogonal", n_features=64),
    bo.KernelCCA(n_features=32),
    bo.KernelKMeans(3, n_features=64),
    bo.KernelKMeans(3, Gaussian(3.0), method="qmc", n_features=64, algorithm="minibatch"),
    bo.KernelSGDClassifier(n_features=64),
    bo.KernelSGDClassifier(Polynomial(2), loss="log_loss", strategy="exact_cached"),
    bo.KernelSGDRegressor(n_features=64, method="orthogonal", strategy="approximate_on_the_fly"),
    bo.KernelSGDRegressor(strategy="gram_cached", learning_rate="adaptive", max_iter=100),
]


# Some checks fit without a seed of their own: each run would be another draw.
@parametrize_with_checks([estimator.set_params(random_state=0) for estimator in ESTIMATORS])
@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(300)


def test_grid_search_reaches_the_lengthscale_and_leaves_the_kernel_untouched(table):
    kernel = Gaussian(lengthscale=1.0)
    model = bo.KernelRidge(kernel=kernel, method="orthogonal", n_features=128, random_state=0)
    grid = {"kernel__lengthscale": [0.01, 1.0, 100.0]}
    search = GridSearchCV(model, grid, cv=3).fit(*table)
    assert search.best_params_ == {"kernel__lengthscale": 1.0}
    assert kernel == Gaussian(lengthscale=1.0)
    assert model.kernel is kernel


def test_a_named_kernel_can_be_given_a_lengthscale_by_path():
    model = bo.KernelRidge(kernel="matern32").set_params(kernel__lengthscale=0.3)
    assert model.kernel == Matern(1.5, 0.3)


def test_an_unknown_parameter_path_names_the_known_ones():
    with pytest.raises(ValueError, match=r"no parameter 'length'.*lengthscale"):
        bo.KernelRidge(kernel=Gaussian()).set_params(kernel__length=1.0)


def test_pipeline_of_features_and_a_linear_model_equals_the_estimator(table):
    X, y = table
    kernel = Gaussian(lengthscale=0.7)
    pipeline = make_pipeline(
        StandardScaler(),
        bo.KernelFeatures(kernel, method="orthogonal", n_features=64, random_state=3),
        Ridge(alpha=0.1),
    ).fit(X, y)
    ridge = bo.KernelRidge(kernel, method="orthogonal", n_features=64, alpha=0.1, random_state=3)
    ours = make_pipeline(StandardScaler(), ridge).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), pipeline.predict(X), rtol=1e-9, atol=1e-9)


def test_pickling_and_cloning_keep_what_they_should(table):
    X, y = table
    model = bo.KernelRidge(Gaussian(0.5), n_features=64, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    assert not hasattr(fresh, "map_")
