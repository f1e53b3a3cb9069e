"""Skewed columns: transformed where that predicts better, as a part of the kernel."""

import numpy as np
import pytest
import scipy.sparse

import bochner as bo
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.kernels import Gaussian, Monotone
from bochner.selection.curves import choose_curves
from bochner.selection.search import error_near_median

RNG = np.random.default_rng(0)
SKEWED = np.column_stack([RNG.lognormal(0, 2, 600), RNG.normal(size=600)])
FAST = {"n_features": 128, "random_state": 0}


def sample(X, y):
    return RowSample(X, y.reshape(len(y), -1), np.ones(len(y)), np.arange(len(y)) / len(y))


def test_a_function_of_the_logarithm_is_found():
    y = np.sin(2 * np.log(SKEWED[:, 0])) + SKEWED[:, 1]
    curves = choose_curves(sample(SKEWED, y), 0, error_near_median)
    assert curves.columns == (0,)
    assert curves.gain > 0.3
    bent = curves.inputs(SKEWED)
    np.testing.assert_array_equal(bent[:, 1], SKEWED[:, 1])
    order = np.argsort(SKEWED[:, 0])
    assert (np.diff(bent[order, 0]) >= 0).all()
    before, after = (np.clip(x[:, 0], *np.quantile(x[:, 0], [0.01, 0.99])) for x in (SKEWED, bent))
    assert np.std(after) == pytest.approx(np.std(before), rel=1e-3)


def test_a_few_numbers_of_any_size_leave_the_others_apart():
    """Of 600 numbers 3 are wrong: the curve is of the other 597, as if these were not there."""
    wrong = SKEWED.copy()
    wrong[:3, 0] = 1e12
    y = np.log(SKEWED[:, 0])
    clean = choose_curves(sample(SKEWED, y), 0, error_near_median).inputs(SKEWED)[3:, 0]
    found = choose_curves(sample(wrong, y), 0, error_near_median).inputs(wrong)[3:, 0]
    shares = [(x - x.min()) / np.std(x) for x in (clean, found)]
    assert np.abs(shares[0] - shares[1]).max() < 0.5
    model, rest = bo.KernelRidge(random_state=0).fit(wrong[:400], y[:400]), slice(400, None)
    assert model.score(SKEWED[rest], y[rest]) > 0.99


def test_rows_are_left_as_they_are_where_that_is_as_good():
    y = np.sin(SKEWED[:, 1])  # the skewed column tells nothing
    assert choose_curves(sample(SKEWED[:, 1:], y), 0, error_near_median) is None
    normal = RNG.normal(size=(600, 2))
    assert choose_curves(sample(normal, normal[:, 0]), 0, error_near_median) is None
    assert choose_curves(sample(SKEWED[:50], SKEWED[:50, 0]), 0, error_near_median) is None
    assert choose_curves(sample(scipy.sparse.csr_array(SKEWED), y), 0, error_near_median) is None
    assert choose_curves(sample(SKEWED, np.zeros(600)), 0, error_near_median) is None


@pytest.mark.parametrize("cls", [bo.KernelRidge, bo.KernelRidgeClassifier])
def test_a_fit_transforms_and_its_model_file_does(cls, tmp_path):
    f = np.sin(2 * np.log(SKEWED[:, 0]))
    y = f > 0 if cls is bo.KernelRidgeClassifier else f
    plain, model = (cls("gaussian", columns=c, **FAST) for c in ("as_given", "auto"))
    plain.fit(SKEWED[:400], y[:400])
    model.fit(SKEWED[:400], y[:400])
    assert isinstance(model.kernel_, Monotone)
    assert isinstance(plain.kernel_, Gaussian)
    assert model.score(SKEWED[400:], y[400:]) > plain.score(SKEWED[400:], y[400:]) + 0.05
    bo.save(model, tmp_path / "m")
    np.testing.assert_array_equal(bo.load(tmp_path / "m").predict(SKEWED), model.predict(SKEWED))


def test_blocks_and_arrays_are_one_fit_in_units_of_the_rows():
    y = np.sin(2 * np.log(SKEWED[:, 0]))
    model = bo.KernelRidge(**FAST).fit(SKEWED, y)
    blocks = bo.Blocks.from_arrays(SKEWED, y, block_rows=77)
    again = bo.KernelRidge(**FAST).fit_blocks(blocks)
    np.testing.assert_allclose(again.predict(SKEWED), model.predict(SKEWED), atol=1e-5)
    Z = model.map_(SKEWED)
    np.testing.assert_allclose(Z @ model.coef_ + model.intercept_, model.predict(SKEWED), atol=1e-3)
    np.testing.assert_allclose(np.diag(Z[:5] @ Z[:5].T), model.kernel_.diag(SKEWED[:5]), atol=0.2)
    assert model.certificate_.epsilon >= 0


def test_a_kernel_with_numbers_is_of_the_columns_as_given():
    y = np.sin(2 * np.log(SKEWED[:, 0]))
    model = bo.KernelRidge(Gaussian(2.0), **FAST).fit(SKEWED, y)
    assert model.kernel_ == Gaussian(2.0)


def test_what_is_asked_of_columns_must_be_known():
    with pytest.raises(InvalidInput, match=r"columns must be .*'auto'.*'as_given'.*got 'scaled'"):
        bo.KernelRidge(columns="scaled").fit(SKEWED, SKEWED[:, 1])


def test_curves_of_zero_keep_sparse_rows_sparse():
    X = scipy.sparse.random_array((30, 3), density=0.3, rng=np.random.default_rng(1), format="csr")
    kernel = Monotone(Gaussian(), (0, 2), ((0.0, 0.5, 2.0),) * 2, ((0.0, 1.0, 2.0),) * 2)
    assert scipy.sparse.issparse(kernel.inputs(X))
    np.testing.assert_allclose(kernel(X), kernel(X.toarray()), atol=1e-12)
    other = kernel.replace(values=((0.5, 1.0, 2.0),) * 2)
    np.testing.assert_allclose(other(X), other(X.toarray()), atol=1e-12)


@pytest.mark.parametrize(
    ("columns", "points", "values"),
    [
        ((0,), ((1.0, 0.0),), ((0.0, 1.0),)),
        ((0,), ((0.0, 1.0),), ((1.0, 0.0),)),
        ((0,), ((0.0,),), ((0.0,),)),
        ((0,), ((0.0, np.inf),), ((0.0, 1.0),)),
        ((0, 1), ((0.0, 1.0),), ((0.0, 1.0),)),
    ],
)
def test_curves_that_do_not_rise_are_refused(columns, points, values):
    with pytest.raises(InvalidInput, match="Monotone: points and values must be two or more"):
        Monotone(Gaussian(), columns, points, values)


def test_columns_must_be_there():
    kernel = Monotone(Gaussian(), (3,), ((0.0, 1.0),), ((0.0, 1.0),))
    with pytest.raises(InvalidInput, match="Monotone: columns must be below the number of columns"):
        kernel(np.zeros((2, 2)))
