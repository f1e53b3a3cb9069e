"""Kernels in words: short, ranked, and true."""

import numpy as np
import pytest

import bochner as bo
from bochner.kernels import Columns, Gaussian, Laplace, Linear, Mahalanobis, Matern, Monotone
from bochner.kernels.words import in_words

MANY = tuple(float(10 + (7 * j) % 100 + j / 1000) for j in range(100))
NAMES = [f"c{j}" for j in range(100)]


def test_few_lengthscales_are_written_out_and_rounded():
    assert in_words(Gaussian((1.23456789, 2.0))) == "Gaussian(lengthscale=(1.235, 2.0))"
    assert in_words(Linear()) == repr(Linear())


def test_of_many_the_shortest_are_named_and_the_others_counted():
    order = np.argsort(MANY)
    shown = ", ".join(f"c{j} {MANY[j]:.3g}" for j in order[:6])
    rest = f"94 others from {MANY[order[6]]:.3g} to {MANY[order[-1]]:.3g}"
    expected = f"Laplace, lengthscales of 100 columns, shortest first: {shown}; {rest}"
    assert in_words(Laplace(MANY), NAMES) == expected


def test_one_other_is_not_a_range():
    text = in_words(Gaussian(MANY[:7]))
    assert text.endswith(f"; one other, {max(MANY[:7]):.3g}")


def test_in_deviations_the_order_is_another():
    spread = np.where(np.arange(100) == 50, 1e6, 1.0)
    text = in_words(Gaussian(MANY), NAMES, spread)
    assert f"in standard deviations, shortest first: c50 {MANY[50] / 1e6:.3g}, " in text


def test_a_metric_is_told_by_lengthscales_along_columns():
    A = np.array([[4.0, 0.5], [0.5, 0.25]])
    text = in_words(Mahalanobis(Gaussian(3.0), A), ["a", "b"])
    expected = "Gaussian, a metric with lengthscales along 2 columns, shortest first: a 1.5, b 6"
    assert text == expected


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


def test_six_lengthscales_and_names_are_written_out_and_seven_are_not():
    six, seven = tuple(range(6)), tuple(range(7))
    assert in_words(Gaussian(MANY[:6])) == f"Gaussian(lengthscale={MANY[:6]})"
    assert in_words(Gaussian(MANY[:7])).startswith("Gaussian, lengthscales of 7 columns, shortest")
    assert in_words(Gaussian(MANY[:8])).endswith(f"; 2 others from {MANY[6]:.3g} to {MANY[7]:.3g}")
    assert in_words(Columns(Gaussian(), six), NAMES).endswith(" of c0, c1, c2, c3, c4, c5")
    assert in_words(Columns(Gaussian(), seven), NAMES).endswith("c3, c4, c5 and 1 more")


def test_names_are_used_where_there_is_one_for_each_column():
    """A name for every column that is seen, and none to spare; else columns are numbered."""
    curves = ((0.0, 1.0),), ((0.0, 1.0),)
    for names, said in ((["a", "b", "c"], "c"), (["a", "b"], "column 2"), (None, "column 2")):
        assert in_words(Columns(Gaussian(), (2,)), names).endswith(f" of {said}")
        assert in_words(Monotone(Gaussian(), (2,), *curves), names).endswith(
            f"; {said} transformed"
        )
    text = in_words(Gaussian(MANY[:7]), list("abcdefg"))
    assert ", shortest first: a 10, b 17, c 24, d 31, e 38, f 45; " in text


def test_a_linear_metric_has_lengthscales_in_the_units_of_columns():
    text = in_words(Mahalanobis(Linear(), np.diag([4.0, 1.0 / 9.0])), ["a", "b"])
    assert text == "Linear, a metric with lengthscales along 2 columns, shortest first: a 0.5, b 3"


def test_columns_that_do_not_vary_keep_their_units():
    spread = np.where(np.arange(7) == 2, 0.0, 10.0)
    text = in_words(Gaussian((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)), list("abcdefg"), spread)
    assert text.endswith("first: a 0.1, b 0.2, d 0.4, e 0.5, f 0.6, g 0.7; one other, 3")
    other = in_words(Gaussian(MANY[:7]), None, np.ones(6))  # of other columns
    assert "in standard deviations" not in other


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


def test_a_search_tells_its_kernel_in_words():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 9))
    scales = tuple(float(j + 1) for j in range(9))
    model = bo.KernelRidge(Gaussian(scales), n_features=16, random_state=0).fit(X, X[:, 0])
    assert "3 others from 7 to 9: nothing else was tried" in str(model.search_)
