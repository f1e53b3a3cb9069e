"""Tuned lengthscales, errors of a choice, screening of columns, and bo.tune."""

import numpy as np
import pytest
from gallery import sample_of
from sklearn.base import clone

import bochner as bo
from bochner import tune
from bochner.kernels import Exponential, Gaussian, Laplace, Matern
from bochner.selection.held_out import FOLDS, first_least, nested_errors
from bochner.selection.lengthscales import tune_lengthscales
from bochner.selection.rows import screened_lengthscales
from bochner.solvers.ridge.dual import CRITERIA, KernelRows, kernel_evidence

# --- errors of a choice --------------------------------------------------------------------------


@pytest.mark.statistical
def test_nested_errors_are_unbiased_after_a_choice():
    """Twenty equal candidates have squared normal errors, mean one, on 40 rows.

    The candidate chosen by three folds is evaluated on the fourth. The mean of 400 tables is
    1 ± 5 √(2/40/400), with an alarm rate of 6e-7. The smallest of twenty means is about 0.6.
    """
    tables = np.random.default_rng(0).standard_normal((400, 20, 40)) ** 2
    mean = np.mean([nested_errors(list(table)).mean() for table in tables])
    assert abs(mean - 1) < 5 * np.sqrt(2 / 40 / 400)
    assert np.mean([table.mean(axis=1).min() for table in tables]) < 0.7


def test_nested_errors_of_one_candidate_or_few_rows_are_its_errors():
    first = np.arange(12.0)
    assert np.array_equal(nested_errors([first, first + 1]), first)
    subset = np.ones(2 * FOLDS - 1)
    assert np.array_equal(nested_errors([2 * subset, subset]), subset)
    assert first_least(np.array([1.0 + 1e-9, 1.0])) == 0
    assert first_least(np.array([1.1, 1.0])) == 1


# --- the search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["evidence", "loo"])
def test_tuning_recovers_the_lengthscales_of_a_draw_of_a_process(criterion):
    """Errors of log lengthscales are within five deviations by the Fisher information.

    I_kl = ½ tr(C⁻¹ ∂_k C C⁻¹ ∂_l C) bounds the variance of unbiased estimates, and maximum
    likelihood attains it. Leave-one-out is less efficient: twice the deviation.
    """
    X, truth, noise = np.random.default_rng(8).uniform(-2, 2, (400, 2)), np.array([0.8, 2.0]), 0.1
    K, draw = Gaussian(tuple(truth))(X), np.random.default_rng(9).standard_normal((2, 400))
    y = np.linalg.cholesky(K + 1e-10 * np.eye(400)) @ draw[0] + noise * draw[1]
    inverse = np.linalg.inv(K + noise**2 * np.eye(len(X)))
    slopes = [K * (X[:, [k]] - X[:, k]) ** 2 / truth[k] ** 2 for k in range(2)]
    parts = [inverse @ S for S in [*slopes, K, noise**2 * np.eye(len(X))]]
    information = [[0.5 * np.sum(A * B.T) for B in parts] for A in parts]
    deviation = np.sqrt(np.diag(np.linalg.inv(information))[:2])
    kernel = tune_lengthscales(Gaussian(), sample_of(X, y), CRITERIA[criterion]).kernel
    bar = (5 if criterion == "evidence" else 10) * deviation
    assert np.all(np.abs(np.log(kernel.lengthscale) - np.log(truth)) < bar)
    assert np.all(bar < np.log(3.0))  # a factor of three would fail


@pytest.fixture(scope="module")
def two_columns():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((500, 6)) * [1, 10, 0.1, 1, 1, 1]
    return X, np.sin(2 * X[:, 1] / 10) + np.cos(X[:, 3] * 1.5) + 0.1 * rng.standard_normal(500)


@pytest.fixture(scope="module")
def tuned(two_columns):
    return tune(bo.KernelRidge(Matern(1.5), n_features=64, random_state=0), *two_columns)


def test_columns_that_do_not_matter_get_long_lengthscales(tuned, two_columns):
    lengths = np.array(tuned.kernel.lengthscale) / two_columns[0].std(axis=0)
    assert lengths[[1, 3]].max() * 3 < np.delete(lengths, [1, 3]).min()


def test_one_lengthscale_and_one_per_column_are_compared(tuned):
    single, per_column = tuned.candidates
    assert (single.n_tuned, per_column.n_tuned) == (1, 6)
    assert 0 < per_column.error < single.error < 1
    assert per_column.kernel == tuned.kernel
    assert repr(tuned.kernel) in str(tuned)


def test_noise_keeps_one_lengthscale():
    """For 60 rows of six columns, one lengthscale per column would fit the noise."""
    simple = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((60, 6)), rng.standard_normal(60)
        kernel = tune_lengthscales(Gaussian(2.0), sample_of(X, y)).kernel
        simple += np.ptp(np.log(np.atleast_1d(kernel.lengthscale))) < 1.0
    assert simple >= 4


def test_screening_finds_columns_that_one_lengthscale_misses():
    """Two of 20 columns matter: a kernel of all columns resolves nothing, the screening does."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((2000, 20))
    y = X[:, 4] * np.sin(1.5 * X[:, 15]) + 0.1 * rng.standard_normal(2000)
    arguments = np.ones(2000), np.ones(20)
    assert set(np.argsort(screened_lengthscales(X, y[:, None], *arguments))[:2]) == {4, 15}
    assert screened_lengthscales(X, rng.standard_normal((2000, 1)), *arguments) is None


# --- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["auto", "laplace"])
def test_tune_chooses_the_kernel_of_the_fit(kernel, two_columns):
    X, y = two_columns[0][:200], two_columns[1][:200]
    model = bo.KernelRidge(kernel, random_state=0)
    assert tune(model, X, y).kernel == clone(model).fit(X, y).kernel_


def test_tune_returns_an_estimator_ready_to_fit(tuned, two_columns):
    X, y = two_columns
    assert isinstance(tuned.kernel, Matern)
    assert tuned.kernel.smoothness == 1.5
    assert tuned.estimator.kernel == tuned.kernel
    assert clone(tuned.estimator).fit(X, y).score(X, y) > 0.9
    coordinates = tune(bo.KernelRidge(Laplace((1.0,) * 6)), X[:200], y[:200]).kernel
    assert set(np.argsort(np.array(coordinates.lengthscale) / X.std(axis=0))[:2]) == {1, 3}
    likeliest = tune(bo.KernelRidge(random_state=0), X, y, criterion="evidence")
    assert isinstance(likeliest.kernel, Matern)
    assert likeliest.criterion == "evidence"


def test_a_constant_target_or_few_rows_do_not_change_the_kernel():
    X = np.random.default_rng(13).standard_normal((50, 2))
    for rows in (sample_of(X, np.ones(50)), sample_of(X[:5], np.arange(5.0))):
        assert tune_lengthscales(Matern(1.5, 3.0), rows).kernel == Matern(1.5, 3.0)


def test_gradients_do_not_depend_on_uninitialised_memory(monkeypatch):
    """Zeros times NaN in memory gave NaN, and so NaN lengthscales."""
    filled = lambda shape, dtype=float, order="C": np.full(shape, np.nan, dtype, order)
    monkeypatch.setattr(np, "empty", filled)
    X = np.linspace(0, 1, 600)[:, None]
    problem = KernelRows(Exponential(0.5)(X), np.sin(9 * X), np.ones(600), True)
    assert np.isfinite(kernel_evidence(problem, 0.1).lower).all()
