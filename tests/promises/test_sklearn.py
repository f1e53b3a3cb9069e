"""scikit-learn's checks of estimators, pipelines and grid search."""

import numpy as np
import pytest
from gallery import table
from learners import KINDS
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bochner as bo
from bochner.kernels import Gaussian, Matern

#: Values of parameters that learners choose by default, to save time in scikit-learn's checks.
GIVEN = {"kernel": Gaussian(3.0), "alpha": 0.1, "C": 1.0, "noise": 0.1, "amplitude": 1.0}


def without_choices(kind):
    """Return a learner with given values for all parameters that it would choose."""
    defaults = kind().get_params(deep=False)
    return kind(**{name: GIVEN[name] for name in GIVEN if isinstance(defaults.get(name), str)})


@parametrize_with_checks([without_choices(kind) for kind in KINDS])
@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([kind() for kind in KINDS])
@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_scikit_learn_checks_of_defaults_pass(estimator, check):
    check(estimator)


def test_grid_search_sets_the_lengthscale_and_does_not_change_the_kernel():
    kernel = Gaussian(lengthscale=1.0)
    model = bo.KernelRidge(kernel=kernel, method="orthogonal", n_features=128, random_state=0)
    search = GridSearchCV(model, {"kernel__lengthscale": [0.01, 1.0, 100.0]}, cv=3).fit(*table())
    assert search.best_params_ == {"kernel__lengthscale": 1.0}
    assert kernel == Gaussian(lengthscale=1.0)
    assert model.kernel is kernel


def test_a_named_kernel_can_be_given_a_lengthscale_by_path():
    model = bo.KernelRidge(kernel="matern32").set_params(kernel__lengthscale=0.3)
    assert model.kernel == Matern(1.5, 0.3)


def test_pipeline_of_features_and_a_linear_model_equals_the_estimator():
    X, y = table()
    kernel = Gaussian(lengthscale=0.7)
    pipeline = make_pipeline(
        StandardScaler(),
        bo.KernelFeatures(kernel, method="orthogonal", n_features=64, random_state=3),
        Ridge(alpha=0.1),
    ).fit(X, y)
    ridge = bo.KernelRidge(kernel, method="orthogonal", n_features=64, alpha=0.1, random_state=3)
    process = make_pipeline(StandardScaler(), ridge).fit(X, y)
    np.testing.assert_allclose(process.predict(X), pipeline.predict(X), rtol=1e-9, atol=1e-9)
