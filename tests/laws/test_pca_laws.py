"""KernelPCA: scikit-learn's with exact features; the same from blocks, pieces and weights."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Exact
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, SolutionWarning
from bochner.features import Nystrom
from bochner.kernels import Gaussian, Laplace, Linear, Polynomial
from bochner.landmarks import KMeans

KERNEL = Gaussian(1.5)


def rows(n=200, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def model(kernel=KERNEL, n_components=4, **changes):
    options = dict(method="orthogonal", n_features=64, random_state=0) | changes
    return bo.KernelPCA(n_components, kernel, **options)


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def up_to_sign(a, b):
    return a * np.sign((a * b).sum(axis=0))


# ---- equal to principal components of the kernel matrix


@pytest.mark.parametrize(
    "kernel", [KERNEL, Laplace(3.0), Polynomial(2, 0.3, 1.0), Linear()], ids=repr
)
def test_with_exact_features_it_is_scikit_learns(kernel):
    X, new = rows(), rows(40, seed=1)
    q = 3
    ours = model(kernel, q, method="auto", n_features=256).fit(X)
    exact = Exact(q, kernel="precomputed").fit(kernel(X))
    assert_close(ours.eigenvalues_ / exact.eigenvalues_, np.ones(q), factor=1e6)
    expected = exact.transform(kernel(new, X))
    assert np.abs(up_to_sign(ours.transform(new), expected) - expected).max() < 1e-6


@pytest.mark.parametrize("learner", [bo.KernelPCA, bo.KernelKMeans])
def test_wide_rows_are_drawn_for_in_little_time_but_a_method_that_is_asked_for_is_kept(learner):
    X = rows(400, 130)

    def method(X=X, **options):
        options = dict(n_features=32, random_state=0) | options
        return learner(2, Gaussian(15.0), **options).fit(X).choice_

    found = method()
    assert found.method == Nystrom(KMeans(iterations=2, seeds="random"))
    assert {type(c.method) for c in found.candidates} == {Nystrom, bo.Fourier}
    assert len(method(X[:, :100]).candidates) > len(found.candidates)
    assert method(method=Nystrom()).method == Nystrom()
    two = bo.Auto((Nystrom(), bo.Fourier()))
    assert {c.method for c in method(method=two).candidates} == set(two.candidates)
    assert method(scipy.sparse.csr_array(X)).method != found.method


def test_components_of_wide_rows_are_those_of_the_kernel_where_the_width_holds_them_all():
    X = np.repeat(rows(60, 130), 3, axis=0)
    ours = model(Gaussian(15.0), method="auto", n_features=64).fit(X)
    exact = Exact(4, kernel="precomputed").fit(ours.kernel_(X))
    assert_close(ours.eigenvalues_ / exact.eigenvalues_, np.ones(4), factor=1e6)


@pytest.mark.parametrize("method", ["orthogonal", "nystrom"])
def test_eigenvalues_and_scores_are_those_of_the_centred_matrix_of_the_features(method):
    X = rows()
    ours = model(method=method, n_features=32).fit(X)
    K = ours.map_(X) @ ours.map_(X).T
    values, vectors = np.linalg.eigh(centred(K))
    assert_close(ours.eigenvalues_, values[::-1][:4], factor=1e3)
    expected = vectors[:, ::-1][:, :4] * np.sqrt(values[::-1][:4])
    assert_close(up_to_sign(ours.transform(X), expected), expected, factor=1e5)


@pytest.mark.parametrize("lengthscale", [3.0, 0.4, 0.02], ids=["fast", "slow", "level"])
def test_few_components_of_many_features_are_those_of_a_decomposition(lengthscale):
    """However fast eigenvalues fall; level ones, of rows nearly orthogonal, take many steps."""
    X = rows(300)
    ours = model(Gaussian(lengthscale), 5, method="nystrom", n_features=300).fit(X)
    K = ours.map_(X) @ ours.map_(X).T
    assert_close(ours.eigenvalues_, np.linalg.eigvalsh(centred(K))[::-1][:5], factor=1e3)
    V = ours.eigenvectors_
    assert_close(V.T @ V, np.eye(5), factor=1e3)
    residual = ours.moments_.gram @ V - V * ours.eigenvalues_
    assert np.abs(residual).max() < 1e-10 * ours.eigenvalues_[0]


def test_repeated_eigenvalues_are_found_as_often_as_they_are():
    """Rows on a regular circle: sines and cosines in pairs, and the constant taken away."""
    angle = np.arange(320) * (2 * np.pi / 320)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    ours = model(Gaussian(0.7), 6, method="nystrom", n_features=320).fit(circle)
    exact = np.linalg.eigvalsh(centred(Gaussian(0.7)(circle)))[::-1][:6]
    assert np.abs(ours.eigenvalues_ / exact - 1).max() < 1e-6
    assert np.abs(ours.eigenvalues_[1::2] / ours.eigenvalues_[::2] - 1).max() < 1e-6


def test_linear_kernel_is_principal_components_both_ways():
    X = rows() * [3.0, 2.0, 0.5] + 7
    ours = model(Linear(), 2, fit_inverse_transform=True, inverse_kernel=Linear(), alpha=1e-9).fit(
        X
    )
    plain = PCA(2).fit(X)
    assert_close(ours.explained_variance_ratio_, plain.explained_variance_ratio_, factor=1e3)
    scores, expected = ours.transform(X), plain.transform(X)
    assert_close(up_to_sign(scores, expected), expected, factor=1e4)
    assert_close(ours.inverse_transform(scores), plain.inverse_transform(expected), factor=1e7)


# ---- shares of the kernel's variance


def test_shares_of_all_components_of_exact_features_are_all():
    ours = model(n_components=None, method="auto", n_features=256).fit(rows())
    assert abs(ours.explained_variance_ratio_.sum() - 1) < 1e-9
    assert ours.eigenvalues_.min() > 0


def test_what_features_leave_out_counts_as_unexplained():
    X = rows()
    few = model(n_components=None, method="nystrom", n_features=10).fit(X)
    z = few.map_(X).mean(axis=0)
    assert_close(few.trace_, np.trace(KERNEL(X)) - 200 * z @ z, factor=1e2)
    assert few.explained_variance_ratio_.sum() < 0.9
    exact = np.linalg.eigvalsh(centred(KERNEL(X)))[::-1]
    assert np.all(few.eigenvalues_ <= exact[: len(few.eigenvalues_)] * (1 + 1e-9))


# ---- the same from any blocks, pieces and weights


def same(a, b, factor=1e6):
    new = rows(40, seed=2)
    assert_close(a.eigenvalues_ / b.eigenvalues_, np.ones(len(b.eigenvalues_)), factor=factor)
    assert_close(a.transform(new), b.transform(new), factor=factor)
    assert_close(a.trace_ / b.trace_, 1.0, factor=factor)


# ---- the way back


def test_the_way_back_is_ridge_regression_from_scores_with_an_intercept():
    X, kernel = rows(80), Gaussian(0.7)
    ours = model(
        n_components=3,
        n_features=128,
        fit_inverse_transform=True,
        inverse_kernel=kernel,
        alpha=0.1,
    ).fit(X)
    S = ours.transform(X)
    system = np.block([[kernel(S) + 0.1 * np.eye(80), np.ones((80, 1))], [np.ones((1, 80)), 0]])
    dual = np.linalg.solve(system, np.vstack([X, np.zeros((1, 3))]))
    new = S[:5] + 0.01
    expected = kernel(new, S) @ dual[:-1] + dual[-1]
    assert np.abs(ours.inverse_transform(new) - expected).max() < 1e-6


def test_pre_images_take_noise_away():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 400)
    clean = np.column_stack([np.cos(angle), np.sin(angle), np.zeros((400, 8))])
    X = clean + 0.2 * rng.standard_normal(clean.shape)
    ours = model(Gaussian(2.0), 3, fit_inverse_transform=True).fit(X)
    back = ours.inverse_transform(ours.transform(X))
    assert ((back - clean) ** 2).sum() < 0.5 * ((X - clean) ** 2).sum()


def test_there_is_no_way_back_unless_it_is_asked_for():
    fitted = model().fit(rows())
    assert not hasattr(fitted, "inverse_transform")
    assert fitted.sample_ is None
    with pytest.raises(AttributeError) as caught:
        fitted.inverse_transform(np.zeros((1, 4)))
    assert "Fit with fit_inverse_transform=True" in str(caught.value.__cause__)


# ---- libraries, files, names


def test_components_have_names_and_go_into_frames():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rows(), columns=["a", "b", "c"])
    frame = model().set_output(transform="pandas").fit(X).transform(X)
    assert list(frame.columns) == [f"kernelpca{i}" for i in range(4)]


# ---- refusals and warnings


def test_more_components_than_there_are_is_said_and_those_there_are_kept():
    X = np.repeat(rows(3), 20, axis=0)
    text = r"n_components=4, but 60 rows in 64 features have 2 components above rounding"
    with pytest.warns(SolutionWarning, match=text):
        fitted = model().fit(X)
    assert fitted.transform(X).shape == (60, 2)
    with pytest.warns(SolutionWarning, match="1 components above rounding"):
        assert np.abs(model().fit(X[:5]).transform(X[:5])).max() < 1e-6


def test_refusals():
    X = rows()
    with pytest.raises(InvalidInput, match=r"KernelPCA: n_components must be an integer, 1 or"):
        model(n_components=0).fit(X)
    with pytest.raises(InvalidInput, match=r"KernelPCA: precision must be one of 'auto'"):
        model(precision="double").fit(X)
    with pytest.raises(InvalidInput, match=r"at least one row must have a weight above zero"):
        model().fit_blocks(bo.Blocks.from_arrays(X, None, np.zeros(200)))
    with pytest.raises(ValueError, match=r"X has 2 features, but KernelPCA is expecting 3"):
        model().fit(X).transform(X[:, :2])
