"""Sparse rows are the same rows: from them the same is chosen, and the same predicted."""

import numpy as np
import pytest
import scipy.sparse
from tolerance import assert_close

import bochner as bo
from bochner import Blocks
from bochner.kernels import Monotone
from bochner.selection.rows import TuningRows, column_means, column_spread
from bochner.selection.spec import accepts_sparse
from bochner.sums.rows import sampled

RNG = np.random.default_rng(0)
SCALES = np.array([1.0, 1000.0, 0.01, 1.0, 30.0])
X = (RNG.standard_normal((240, 5)) + 0.5) * (RNG.random((240, 5)) < 0.6) * SCALES
Y = np.sin(2 * X[:, 1] / 1000) + X[:, 2] / 0.01 + 0.1 * RNG.standard_normal(240)


def answers(model, rows):
    for name in ("decision_function", "predict", "transform"):
        if hasattr(model, name):
            return np.asarray(getattr(model, name)(rows), float)
    raise AssertionError(model)


def skewed(n=300):
    """Rows with outliers, and a target of kinks along each column."""
    rng = np.random.default_rng(1)
    rows = np.exp(1.5 * rng.standard_normal((n, 3))) * (rng.random((n, 3)) < 0.7)
    return rows, np.abs(np.log1p(rows) - 0.5).sum(axis=1)


@pytest.mark.parametrize(
    "learner", [bo.KernelRidge, bo.GaussianProcessRegressor, bo.SVR, bo.KernelRidgeClassifier]
)
def test_transformed_columns_and_sums_over_columns_are_chosen_of_sparse_rows_too(learner):
    rows, y = skewed()
    y = y > np.median(y) if learner is bo.KernelRidgeClassifier else y
    dense = learner(random_state=0).fit(rows, y)
    sparse = learner(random_state=0).fit(scipy.sparse.csr_array(rows), y)
    assert isinstance(dense.kernel_, Monotone) or not accepts_sparse(dense.kernel_)
    assert sparse.kernel_ == dense.kernel_
    expected = answers(dense, rows)
    for held in (rows, scipy.sparse.csr_array(rows), scipy.sparse.csc_matrix(rows)):
        assert_close(answers(sparse, held), expected, factor=300)
        assert_close(answers(dense, held), expected, factor=300)


def test_sparse_rows_of_many_cells_stay_sparse(monkeypatch):
    """They choose among kernels that serve them, and are predicted by what dense rows chose."""
    rows, y = skewed()
    few = bo.KernelRidge(random_state=0).fit(rows, y)
    monkeypatch.setattr("bochner.models._base.FEW_CELLS", rows.size - 1)
    many = bo.KernelRidge(random_state=0).fit(scipy.sparse.csr_array(rows), y)
    assert accepts_sparse(many.kernel_)
    assert scipy.sparse.issparse(many.fit_.X)
    assert not accepts_sparse(few.kernel_)
    assert_close(few.predict(scipy.sparse.csr_array(rows)), few.predict(rows), factor=300)


def test_a_column_of_small_numbers_counts_as_much_sparse_as_dense():
    """Half of the target lies in a column of hundredths, beside one of thousands."""
    model = bo.KernelRidge("gaussian", n_features=128, random_state=0)
    sparse = model.fit(scipy.sparse.csr_array(X[:160]), Y[:160])
    assert sparse.score(scipy.sparse.csr_array(X[160:]), Y[160:]) > 0.8
    assert np.ptp(np.log10(np.array(sparse.kernel_.lengthscale) / SCALES)) < 0.3


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_means_and_deviations_of_sparse_columns_are_those_of_dense_ones(offset):
    """Two passes: an offset of 1e6 leaves ten digits of a deviation of one."""
    A = np.hstack([X, X[:, :1] + offset, np.zeros((240, 1)), np.full((240, 1), 3.0)])
    w = RNG.uniform(0.5, 2.0, 240)
    S = scipy.sparse.csr_array(A)
    assert np.allclose(column_means(S, w), w @ A / w.sum(), rtol=1e-12, atol=1e-15)
    size, deviation = column_spread(S, w)
    mean = w @ A / w.sum()
    expected = np.sqrt(w @ (A - mean) ** 2 / w.sum())
    assert np.allclose(size * deviation, expected, rtol=1e-9, atol=1e-13)
    stored_twice = scipy.sparse.csr_array((np.ones(4), np.zeros(4, int), [0, 2, 4]), shape=(2, 3))
    assert column_spread(stored_twice, np.ones(2))[0].tolist() == [2.0, 1e-300, 1e-300]


@pytest.mark.parametrize("order", [1, 2])
def test_the_median_distance_of_sparse_rows_minds_the_lengthscales(order):
    logs = np.log(np.array([1.0, 300.0, 0.002, 4.0, 20.0]))
    sample = sampled(Blocks.from_arrays(X, Y), 0)
    ones = np.ones(5)
    dense = TuningRows.of(sample.X, sample.y, sample.w, ones).log_median(0, logs, order)
    sparse = TuningRows.of(scipy.sparse.csr_array(sample.X), sample.y, sample.w, ones)
    assert sparse.log_median(0, logs, order) == dense != sparse.log_median(0, 0.0, order)
