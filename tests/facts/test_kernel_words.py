"""Kernels in words: short, ranked, and true."""

import numpy as np
import pytest

import bochner as bo
from bochner.kernels import Columns, Gaussian, Laplace, Linear, Mahalanobis, Matern, Monotone
from bochner.kernels.words import in_words

MANY = tuple(float(10 + (7 * j) % 100 + j / 1000) for j in range(100))
NAMES = [f"c{j}" for j in range(100)]


def test_of_many_the_shortest_are_named_and_the_others_counted():
    order = np.argsort(MANY)
    shown = ", ".join(f"c{j} {MANY[j]:.3g}" for j in order[:6])
    rest = f"94 others from {MANY[order[6]]:.3g} to {MANY[order[-1]]:.3g}"
    expected = f"Laplace, lengthscales of 100 columns, shortest first: {shown}; {rest}"
    assert in_words(Laplace(MANY), NAMES) == expected


@pytest.mark.parametrize(
    ("kernel", "start"),
    [
        (
            Gaussian(2.0) + Laplace(MANY),
            "Gaussian(lengthscale=2.0) + (Laplace, lengthscales of 100",
        ),
        (3.0 * Gaussian(2.0), "3 × Gaussian(lengthscale=2.0)"),
        (0.12345678 * Matern(2.5, MANY), "0.1235 × (Matern, lengthscales of 100 columns"),
        (Gaussian(2.0) * Linear(), "Gaussian(lengthscale=2.0) × Linear("),
        ((Gaussian(2.0) + Linear()) * Laplace(1.0), "(Gaussian(lengthscale=2.0) + Linear("),
        (Columns(Gaussian(2.0), (2, 0)), "Gaussian(lengthscale=2.0) of c2, c0"),
        (Columns(Gaussian(MANY[:8]), tuple(range(8))), "(Gaussian, lengthscales of 8 columns"),
        (
            Monotone(Gaussian(2.0), (1,), ((0.0, 1.0),), ((0.0, 1.0),)),
            "Gaussian(lengthscale=2.0); c1",
        ),
        (Mahalanobis(Linear(), np.eye(2)), "Linear, a metric with lengthscales along 2 columns"),
    ],
    ids=["sum", "multiple", "smooth", "product", "brackets", "some", "many", "curves", "linear"],
)
def test_parts_of_kernels_are_in_words_too(kernel, start):
    text = in_words(kernel, NAMES)
    assert text.startswith(start)
    assert len(text) < 300


def test_the_words_of_a_fit_name_its_columns_in_their_deviations():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8)) * 10.0 ** np.arange(8)
    scales = tuple(10.0 ** np.arange(8) * [4, 3, 2, 1, 5, 6, 7, 8])
    model = bo.KernelRidge(Gaussian(scales), n_features=32, random_state=0).fit(X, X[:, 3])
    text = bo.report_model(model, X, widths=[16], n_sample=50, exact=False).fit.kernel_words
    assert "8 columns, in standard deviations, shortest first: column 3 " in text
    assert text.index("column 3") < text.index("column 2 ") < text.index("column 1 ")
    spread = X.std(axis=0)
    assert f"column 3 {scales[3] / spread[3]:.3g}" in text


@pytest.mark.parametrize(
    ("learner", "given"),
    [
        (bo.KernelRidge, {"method": "exact"}),
        (bo.KernelRidge, {"method": "local"}),
        (bo.KernelRidgeClassifier, {"method": "exact"}),
        (bo.LogisticRegression, {}),
        (bo.GaussianProcessRegressor, {"method": "exact"}),
    ],
)
def test_fits_with_the_kernel_itself_rank_lengthscales_in_deviations_too(learner, given):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8)) * 10.0 ** np.arange(8)
    scales = tuple(10.0 ** np.arange(8) * [4, 3, 2, 1, 5, 6, 7, 8])
    model = learner(Gaussian(scales), random_state=0, **given).fit(X, np.sign(X[:, 3]))
    text = str(model.fit_)
    assert "8 columns, in standard deviations, shortest first: column 3 " in text
    assert text.index("column 3") < text.index("column 2 ") < text.index("column 1 ")
