"""Messages that suggest the right name, and descriptions of kernels in words."""

import pickle
import re
from importlib import import_module
from importlib.util import find_spec
from inspect import isabstract, signature

import numpy as np
import pytest
from sklearn.metrics import pairwise
from sklearn.metrics.pairwise import additive_chi2_kernel, chi2_kernel, polynomial_kernel
from tolerance import assert_close

import bochner as bo
from bochner import kernels
from bochner._core import names
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels import Columns, Gaussian, Laplace, Linear, Mahalanobis, Monotone
from bochner.selection.descriptions import describe

VALUES = [getattr(kernels, name) for name in kernels.__all__]
CLASSES = [v for v in (*VALUES, *(getattr(bo, n) for n in bo.__all__)) if isinstance(v, type)]
CONCRETE = [c for c in CLASSES if c is not bo.Method and not isabstract(c)]

X = [[0.0, 1.0], [1.0, 0.5], [2.0, 0.0], [0.5, 0.5], [1.5, 2.0], [2.5, 1.0]]
Y = [0.0, 1.0, 2.0, 0.5, 1.5, 2.5]


def fit(learner=bo.KernelRidge, **options):
    return learner(**options).fit(X, Y)


def test_misspelt_names_raise_with_a_suggestion():
    for call, message in (
        # arguments
        (lambda: kernels.Gaussian(gamma=0.5), r"lengthscale=1/sqrt\(2 gamma\)"),
        (lambda: kernels.Laplace(gamma=0.5), r"give lengthscale=1/gamma, as gamma = 1/lengthscale"),
        (lambda: kernels.Matern(gamma=0.5), r"give lengthscale; gamma = .* is that of Gaussian"),
        (lambda: kernels.Gaussian(nu=1.5), r"give Matern\(smoothness=nu, lengthscale=...\) in"),
        (lambda: bo.KernelRidge(gamma=1.0), r"KernelRidge .*give kernel=Gaussian\(lengthscale"),
        (lambda: bo.KernelRidge(lamda=1.0), r"give alpha, which minimises"),
        (lambda: bo.GaussianProcessRegressor(noise_level=1.0), r"give noise, with the same"),
        (lambda: bo.KernelRidge(n_feature=8), r"'n_feature'; did you mean 'n_features'\?"),
        (lambda: bo.KernelRidge(zzz=8), r"'zzz'\. It takes: kernel, alpha, alpha_per_target"),
        (lambda: bo.Orthogonal(seed=1), r"Orthogonal has no argument 'seed'"),
        # names of a module
        (lambda: kernels.RBF, r"'bochner.kernels' has no 'RBF': in bochner it is kernels.Gaussian"),
        (lambda: kernels.Mattern, r"did you mean 'Matern'\?"),
        (lambda: bo.Nystroem, r"in bochner it is KernelFeatures"),
        (lambda: bo.Gaussian, r"'bochner' has no 'Gaussian': in bochner it is kernels.Gaussian\."),
        (lambda: bo.zonal_bound, r"in bochner it is certificates.zonal_bound\."),
        (lambda: bo.Gausian, r"did you mean 'kernels.Gaussian'\?"),
        (lambda: bo.KMeans, r"in bochner it is KernelKMeans for clusters, landmarks.KMeans for"),
        (lambda: bo.KernelRidgeClasifier, r"did you mean 'KernelRidgeClassifier'\?"),
        (lambda: bo.zzz, r"module 'bochner' has no attribute 'zzz'$"),
        # words
        (lambda: fit(kernel="mattern"), r"got 'mattern'; did you mean 'matern32'\?"),
        (lambda: fit(kernel="Matern 5/2"), r"did you mean 'matern52'\?"),
        (lambda: fit(kernel="RBF"), r"'gaussian'\? As a value it is kernels\.Gaussian\(lengths"),
        (lambda: fit(kernel="precomputed"), r"give kernels\.Custom\(function\), whose function"),
        (lambda: fit(method="nystron"), r"got 'nystron'; did you mean 'nystrom'\?"),
        (lambda: fit(method="random fourier features"), r"did you mean 'fourier'\?"),
        (lambda: fit(method="fastfood"), r"got 'fastfood'; give Fourier\(Fastfood\(\)\)\."),
        (lambda: fit(effort="hihg"), r"got 'hihg'; did you mean 'high'\?"),
        (lambda: fit(precision="float-32"), r"got 'float-32'; did you mean 'float32'\?"),
        (lambda: fit(bo.KernelRegressor, loss="hubber"), r"got 'hubber'; did you mean 'huber'\?"),
    ):
        with pytest.raises((InvalidType, InvalidInput, AttributeError), match=message):
            call()


def test_set_params_suggests_the_right_parameter():
    """Grid searches set parameters like this."""
    for change, message in (
        ({"gamma": 1.0}, r"KernelRidge has no argument 'gamma': give kernel=Gaussian\(lengthscale"),
        ({"kernel__gamma": 1.0}, r"Gaussian has no parameter 'gamma': give lengthscale=1/sqrt\(2"),
        ({"kernel__length": 1.0}, r"Gaussian has no parameter 'length'.*lengthscale"),
        ({"zzz__a": 1.0}, r"KernelRidge has no argument 'zzz'\. It takes: kernel"),
    ):
        model = bo.KernelRidge("rbf")
        original = model.get_params()
        with pytest.raises(InvalidInput, match=message):
            model.set_params(**change)
        assert model.get_params() == original


def test_signatures_name_the_parameters_of_the_class():
    assert [cls for cls in CONCRETE if "given" in signature(cls).parameters] == []


def test_an_unknown_name_is_a_missing_attribute_for_other_code():
    assert not hasattr(kernels, "RBF")
    assert getattr(bo, "RBF", None) is None
    assert find_spec("bochner.kernels.RBF") is None
    with pytest.raises(ModuleNotFoundError):
        import_module("bochner.kernels.RBF")
    with pytest.raises(AttributeError):
        pickle.loads(b"cbochner.kernels\nRBF\n.")


GAMMA = 0.7
ROWS = np.random.default_rng(0).standard_normal((6, 3))
SHARES = np.random.default_rng(1).dirichlet(np.ones(3), 6)


def test_suggested_kernels_and_conversions_of_gamma_equal_the_kernels_of_scikit_learn():
    """scikit-learn's additive χ² is −Σ (x − y)²/(x + y): for shares twice the kernel minus two."""
    for word, reference, options in (
        ("poly", polynomial_kernel, {"gamma": GAMMA, "coef0": 2.0, "degree": 2}),
        ("cosine", pairwise.cosine_similarity, {}),
        ("additive_chi2", additive_chi2_kernel, {}),
        ("chi2", chi2_kernel, {"gamma": GAMMA}),
    ):
        expression = names.VALUES[word].replace("degree, offset, scale", f"2, 2.0, {GAMMA}")
        values = eval(expression, {**vars(kernels), "kernels": kernels, "gamma": GAMMA})(SHARES)
        values = 2 * values - 2 if word == "additive_chi2" else values
        assert_close(values, reference(SHARES, **options), label=word)
    for kernel, reference in (
        (kernels.Gaussian(1 / np.sqrt(2 * GAMMA)), pairwise.rbf_kernel),
        (kernels.Laplace(1 / GAMMA), pairwise.laplacian_kernel),
        (kernels.Polynomial(3, scale=GAMMA), polynomial_kernel),
    ):
        assert_close(kernel(ROWS), reference(ROWS, gamma=GAMMA), label=kernel)


@pytest.mark.parametrize("name", names.FOREIGN)
def test_suggested_names_exist(name):
    words = re.split(r"[ (,)]", names.FOREIGN[name].replace("kernels.", ""))
    assert any(hasattr(bo, word) or hasattr(kernels, word) or word == "number" for word in words)


MANY = tuple(float(10 + (7 * j) % 100 + j / 1000) for j in range(100))
NAMES = [f"c{j}" for j in range(100)]

WARPED = Monotone(Gaussian(2.0), (1,), ((0.0, 1.0),), ((0.0, 1.0),))


def test_of_many_lengthscales_the_shortest_are_listed_and_others_counted():
    order = np.argsort(MANY)
    first = ", ".join(f"c{j} {MANY[j]:.3g}" for j in order[:6])
    tail = f"94 others from {MANY[order[6]]:.3g} to {MANY[order[-1]]:.3g}"
    head = "Laplace, lengthscales of 100 columns, shortest first"
    assert describe(Laplace(MANY), NAMES) == f"{head}: {first}; {tail}"


def test_parts_of_kernels_are_described_too():
    for kernel, start in (
        (Gaussian(2.0) + Laplace(MANY), "Gaussian(lengthscale=2.0) + (Laplace, lengthscales of"),
        (3.0 * Gaussian(2.0), "3 × Gaussian(lengthscale=2.0)"),
        ((Gaussian(2.0) + Linear()) * Laplace(1.0), "(Gaussian(lengthscale=2.0) + Linear("),
        (Columns(Gaussian(2.0), (2, 0)), "Gaussian(lengthscale=2.0) of c2, c0"),
        (Columns(Gaussian(MANY[:8]), tuple(range(8))), "(Gaussian, lengthscales of 8 columns"),
        (WARPED, "Gaussian(lengthscale=2.0); c1"),
        (Mahalanobis(Linear(), np.eye(2)), "Linear, a metric with lengthscales along 2 columns"),
    ):
        text = describe(kernel, NAMES)
        assert text.startswith(start)
        assert len(text) < 300


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        (bo.KernelRidge, {"n_features": 32}),
        (bo.KernelRidge, {"method": "exact"}),
        (bo.KernelRidge, {"method": "local"}),
        (bo.GaussianProcessRegressor, {"method": "exact"}),
    ],
)
def test_descriptions_of_fits_state_lengthscales_in_standard_deviations(learner, options):
    X = np.random.default_rng(0).normal(size=(200, 8)) * 10.0 ** np.arange(8)
    scales = tuple(10.0 ** np.arange(8) * [4, 3, 2, 1, 5, 6, 7, 8])
    model = learner(Gaussian(scales), random_state=0, **options).fit(X, np.sign(X[:, 3]))
    text = str(model.fit_)
    if "n_features" in options:
        text = bo.report_model(model, X, n_sample=50).fit["kernel_words"]
        assert f"column 3 {scales[3] / X[:, 3].std():.3g}" in text
    assert "8 columns, in standard deviations, shortest first: column 3 " in text
    assert text.index("column 3") < text.index("column 2 ") < text.index("column 1 ")
