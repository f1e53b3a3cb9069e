"""KernelPCA, KernelKMeans and KernelCCA, compared with scikit-learn and dense eigenproblems."""

from itertools import pairwise

import naive
import numpy as np
import pytest
from gallery import maker, points
from scipy.linalg import eigh
from sklearn.cluster import KMeans as LloydKMeans
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Exact
from tolerance import assert_close

import bochner as bo
from bochner.errors import SolutionWarning
from bochner.kernels import Gaussian, Laplace, Linear, Matern, Polynomial
from bochner.solvers.convex.problem import FeatureBlock
from bochner.solvers.lloyd import assign, run_lloyd

# ---- KernelPCA

KERNEL = Gaussian(1.5)
OPTIONS = {"method": "orthogonal", "n_features": 64, "random_state": 0}
components = maker(bo.KernelPCA, KERNEL, n_components=4, **OPTIONS)


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def up_to_sign(a, b):
    """Return the columns of a with the signs of those of b."""
    return a * np.sign((a * b).sum(axis=0))


@pytest.mark.parametrize("kernel", [KERNEL, Laplace(3), Polynomial(2, 0.3, 1), Linear()], ids=repr)
def test_kernel_pca_with_exact_features_equals_scikit_learn(kernel):
    X, new = points(200), points(40, seed=1)
    q = 3
    fit = components(kernel, n_components=q, method="auto", n_features=256).fit(X)
    exact = Exact(q, kernel="precomputed").fit(kernel(X))
    assert_close(fit.eigenvalues_ / exact.eigenvalues_, np.ones(q), factor=1e6)
    expected = exact.transform(kernel(new, X))
    assert np.abs(up_to_sign(fit.transform(new), expected) - expected).max() < 1e-6


@pytest.mark.parametrize("lengthscale", [3.0, 0.4, 0.02], ids=["fast", "slow", "level"])
def test_leading_components_equal_a_full_decomposition(lengthscale):
    """For any decay of eigenvalues; nearly equal ones (nearly orthogonal rows) take many steps."""
    X = points(300)
    fit = components(Gaussian(lengthscale), n_components=5, method="nystrom", n_features=300)
    K = fit.fit(X).map_(X) @ fit.map_(X).T
    assert_close(fit.eigenvalues_, np.linalg.eigvalsh(centred(K))[::-1][:5], factor=1e3)
    V = fit.eigenvectors_
    assert_close(V.T @ V, np.eye(5), factor=1e3)
    residual = fit.moments_.gram @ V - V * fit.eigenvalues_
    assert np.abs(residual).max() < 1e-10 * fit.eigenvalues_[0]


def test_repeated_eigenvalues_have_their_multiplicity():
    """Rows on a circle have pairs of sine and cosine; centring removes the constant."""
    angle = np.arange(320) * (2 * np.pi / 320)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    fit = components(Gaussian(0.7), n_components=6, method="nystrom", n_features=320).fit(circle)
    exact = np.linalg.eigvalsh(centred(Gaussian(0.7)(circle)))[::-1][:6]
    assert np.abs(fit.eigenvalues_ / exact - 1).max() < 1e-6
    assert np.abs(fit.eigenvalues_[1::2] / fit.eigenvalues_[::2] - 1).max() < 1e-6


def test_a_linear_kernel_equals_principal_components():
    X = points(200) * [3.0, 2.0, 0.5] + 7
    fit = components(
        Linear(), n_components=2, fit_inverse_transform=True, inverse_kernel=Linear(), alpha=1e-9
    ).fit(X)
    plain = PCA(2).fit(X)
    assert_close(fit.explained_variance_ratio_, plain.explained_variance_ratio_, factor=1e3)
    scores, expected = fit.transform(X), plain.transform(X)
    assert_close(up_to_sign(scores, expected), expected, factor=1e4)
    assert_close(fit.inverse_transform(scores), plain.inverse_transform(expected), factor=1e7)


def test_the_remainder_of_features_counts_as_unexplained():
    X = points(200)
    reduced = components(n_components=None, method="nystrom", n_features=10).fit(X)
    z = reduced.map_(X).mean(axis=0)
    assert_close(reduced.trace_, np.trace(KERNEL(X)) - 200 * z @ z, factor=1e2)
    assert reduced.explained_variance_ratio_.sum() < 0.9
    exact = np.linalg.eigvalsh(centred(KERNEL(X)))[::-1]
    assert np.all(reduced.eigenvalues_ <= exact[: len(reduced.eigenvalues_)] * (1 + 1e-9))
    base = components(n_components=None, method="auto", n_features=256).fit(X)
    assert abs(base.explained_variance_ratio_.sum() - 1) < 1e-9


def test_the_inverse_transform_is_ridge_regression_on_scores():
    X, kernel = points(80), Gaussian(0.7)
    options = dict(n_features=128, fit_inverse_transform=True, inverse_kernel=kernel, alpha=0.1)
    fit = components(n_components=3, **options).fit(X)
    S = fit.transform(X)
    coef, intercept = naive.dual(kernel(S), X, 0.1, np.ones(80))
    new = S[:5] + 0.01
    assert np.abs(fit.inverse_transform(new) - kernel(new, S) @ coef - intercept).max() < 1e-6


def test_pre_images_remove_noise():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 400)
    clean = np.column_stack([np.cos(angle), np.sin(angle), np.zeros((400, 8))])
    X = clean + 0.2 * rng.standard_normal(clean.shape)
    fit = components(Gaussian(2.0), n_components=3, fit_inverse_transform=True).fit(X)
    restored = fit.inverse_transform(fit.transform(X))
    assert ((restored - clean) ** 2).sum() < 0.5 * ((X - clean) ** 2).sum()


def test_too_many_components_warn_and_existing_ones_are_kept():
    X = np.repeat(points(3), 20, axis=0)
    text = r"n_components=4, but 60 rows in 64 features have 2 components above rounding"
    with pytest.warns(SolutionWarning, match=text):
        fitted = components().fit(X)
    assert fitted.transform(X).shape == (60, 2)
    X, Y = pairs()
    text = r"n_components=2, but 300 rows have 1 pairs of directions above rounding"
    with pytest.warns(SolutionWarning, match=text):
        assert correlations(kernel_y=Linear()).fit(X, Y[:, 1]).transform(X).shape == (300, 1)
    with pytest.warns(SolutionWarning, match=r"have 0 pairs"):
        assert correlations(alpha="cv").fit(X, np.zeros(300)).score(X, np.zeros(300)) == 0


# ---- KernelKMeans

UNIT = Gaussian(1.0)
clusters = maker(bo.KernelKMeans, UNIT, n_clusters=4, **OPTIONS)
PLACES = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])


def places(n=75, seed=0, spread=0.6):
    """Return n rows around each of four centres, in random order."""
    rng = np.random.default_rng(seed)
    X = np.repeat(PLACES, n, axis=0) + spread * rng.standard_normal((4 * n, 2))
    return X[rng.permutation(len(X))]


def exact_cost(K, labels, w=None):
    """Return Σ w |Φ(x) − mean|² in the space of the kernel."""
    w = np.ones(len(K)) if w is None else w
    total = float(w @ np.diag(K))
    for c in np.unique(labels):
        p = w * (labels == c)
        total -= float(p @ K @ p / p.sum()) if p.sum() > 0 else 0.0
    return total


def test_passes_do_not_raise_the_cost_and_end_at_a_fixed_point():
    Z = np.random.default_rng(0).standard_normal((300, 4))
    block = FeatureBlock(Z)
    first = assign(block, Z[:5])
    costs = [run_lloyd(block, first, m, 0.0).inertia for m in range(1, 9)]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(costs))
    end = run_lloyd(block, first, 300, 0.0)
    assert end.converged
    assert_close(end.means, end.centres, factor=10)
    peer = LloydKMeans(5, init=Z[:5], n_init=1, tol=0).fit(Z)
    assert_close(end.inertia, peer.inertia_, factor=100)


def test_clusters_have_the_cost_of_scikit_learn_on_the_features():
    X = places()
    fit = clusters().fit(X)
    Z = fit.map_(X)
    assert abs(fit.inertia_ / LloydKMeans(4, n_init=5, random_state=0).fit(Z).inertia_ - 1) < 1e-4
    squares = ((Z[:, None] - fit.cluster_centers_) ** 2).sum(axis=2)
    assert_close(fit.transform(X), np.sqrt(squares), factor=1e4)
    for labels in (fit.predict(X), fit.labels_):
        np.testing.assert_array_equal(labels, np.argmin(squares, axis=1))
    for cost in (fit.inertia_, -fit.score(X)):
        assert_close(cost, squares.min(axis=1).sum(), factor=1e4)
    exact = clusters(method="auto", n_features=512).fit(X).objective_  # no remainder
    assert exact.hidden < 1e-6


def test_partial_fits_are_nearly_as_good_and_one_cluster_is_the_mean():
    X, w = places(200), np.random.default_rng(0).uniform(0.5, 2, 800)
    full = clusters().fit(X)
    mono = clusters(n_clusters=1)
    for part in (slice(0, 300), slice(300, 301), slice(301, 800)):
        mono.partial_fit(X[part], sample_weight=w[part])
    assert_close(mono.cluster_centers_[0], np.average(mono.map_(X), axis=0, weights=w), factor=1e3)
    stream = clusters()
    for start in range(0, 800, 100):
        stream.partial_fit(X[start : start + 100])
    assert -stream.score(X) < 1.05 * full.inertia_
    assert len(stream.labels_) == 100


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [UNIT, Laplace(2.0)], ids=repr)
@pytest.mark.parametrize("method", ["nystrom", "iid"])
def test_the_objective_bounds_the_exact_cost(method, kernel, weighted):
    X = places()
    w = np.random.default_rng(0).uniform(0.2, 3, 300) if weighted else np.ones(300)
    fitted = clusters(kernel=kernel, method=method, n_features=16).fit(X, sample_weight=w)
    exact = exact_cost(kernel(X), fitted.labels_, w)
    o = fitted.objective_
    assert o.confidence == 1.0
    assert o.low - 1e-9 <= exact <= o.high + 1e-9
    assert o.below_kernel == (method == "nystrom")
    assert_close(o.features, exact_cost(fitted.map_(X) @ fitted.map_(X).T, fitted.labels_, w))
    assert abs(o.features / exact - 1) > 1e-4  # so that the next line can fail
    assert not o.features * (1 - 1e-9) <= exact <= o.features * (1 + 1e-9)


@pytest.mark.parametrize("method", ["nystrom", "orthogonal"])
def test_the_best_clustering_of_features_is_within_the_bound_of_the_best(method):
    """All clusterings of nine rows into two, by features and by the kernel."""
    X = places(3)[:9]
    fitted = clusters(n_clusters=2, method=method, n_features=4).fit(X)
    K, F = UNIT(X), fitted.map_(X) @ fitted.map_(X).T
    labels = [np.array([int(b) for b in f"{i:09b}"]) for i in range(1, 256)]
    exact, features = (np.array([exact_cost(M, c) for c in labels]) for M in (K, F))
    assert exact[np.argmin(features)] - exact.min() <= fitted.objective_.hidden + 1e-12
    worst = np.abs(exact - features - np.trace(K - F)).max()
    assert worst <= max(fitted.objective_.hidden, np.trace(K - F)) + 1e-12


def test_too_few_distinct_rows_and_missing_convergence_warn():
    X = places()
    with pytest.warns(SolutionWarning, match=r"n_clusters=4, but .* only 3 distinct features"):
        fitted = clusters().fit(np.repeat(X[:3], 5, axis=0))
    assert len(np.unique(fitted.labels_)) == 3
    assert fitted.inertia_ < 1e-9
    X = np.random.default_rng(0).standard_normal((9000, 2))
    with pytest.warns(SolutionWarning, match=r"not converged after max_iter=1 passes; increase"):
        clusters(n_clusters=20, n_features=16, max_iter=1, tol=0.0).fit(X)


# ---- KernelCCA

PAIRED = {"n_components": 2, "alpha": 0.5, **OPTIONS, "n_features": 32}
correlations = maker(bo.KernelCCA, KERNEL, **PAIRED)


def pairs(n=300, seed=0):
    """Return two tables; the second has the square of a column of the first, with noise."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-1, 1, n)
    X = np.column_stack([t, rng.standard_normal(n)])
    return X, np.column_stack([rng.standard_normal(n), t**2 + 0.02 * rng.standard_normal(n)])


def brute(A, B, alpha, q):
    """Return generalised eigenvalues and vectors of [[0, C], [Cᵀ, 0]] and the penalised blocks."""
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    m = A.shape[1]
    full = np.hstack([A, B]).T @ np.hstack([A, B])
    left, right = np.zeros_like(full), alpha * np.eye(len(full))
    left[:m, m:], left[m:, :m] = full[:m, m:], full[m:, :m]
    right[:m, :m] += full[:m, :m]
    right[m:, m:] += full[m:, m:]
    values, vectors = eigh(left, right)
    return values[::-1][:q], vectors[:m, ::-1][:, :q], vectors[m:, ::-1][:, :q]


def column_correlations(A, B):
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(A.T, B.T, strict=True)])


@pytest.mark.parametrize("alpha", [1e-3, 0.5])
@pytest.mark.parametrize("kernel_y", [None, Matern(1.5, 2.0)], ids=repr)
def test_kernel_cca_equals_the_generalised_eigenproblem_of_the_features(alpha, kernel_y):
    (X, Y), new = pairs(), pairs(seed=1)
    fit = correlations(alpha=alpha, kernel_y=kernel_y).fit(X, Y)
    A, B = fit.map_(X), fit.map_y_(Y)
    values, a, b = brute(A, B, alpha, 2)
    assert_close(fit.singular_values_, values, factor=1e4)
    for scores, expected in zip(fit.transform(X, Y), (A @ a, B @ b), strict=True):
        assert np.abs(np.abs(column_correlations(scores, expected)) - 1).max() < 1e-6
        assert_close(scores.var(axis=0), np.ones(2), factor=1e4)
        assert_close(scores.mean(axis=0), np.zeros(2), factor=1e4)
    assert_close(fit.correlations_, column_correlations(*fit.transform(X, Y)), factor=1e4)
    assert_close(fit.score(*new), column_correlations(*fit.transform(*new)).mean(), factor=1e4)


@pytest.mark.parametrize("side", [1, 3])
def test_linear_kernel_cca_has_the_correlations_of_scikit_learn(side):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)) + 5
    Y = X[:, :side] @ rng.standard_normal((side, side)) + rng.standard_normal((300, side))
    fit = correlations(Linear(), n_components=side, alpha=0.0).fit(X, Y)
    plain = CCA(side, tol=1e-14, max_iter=20000).fit(X, Y)
    assert_close(fit.correlations_, column_correlations(*plain.transform(X, Y)), factor=1e7)
    assert_close(fit.correlations_, fit.singular_values_, factor=1e4)


def test_the_penalty_is_chosen_by_cross_validation():
    """Without a penalty, independent tables correlate nearly perfectly, but not on new rows."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 200, 2))
    assert correlations(n_features=128, alpha=1e-8).fit(X, Y).correlations_[0] > 0.95
    chosen = correlations(n_features=128, alpha="cv").fit(X, Y)
    assert chosen.alpha_ in dict(chosen.path_)
    assert abs(chosen.score(*rng.standard_normal((2, 200, 2)))) < 0.3
    X, Y = pairs(600)
    model = correlations(n_features=128, alpha="cv").fit(X, Y)
    assert model.score(*pairs(600, seed=1)) > 0.6
    assert dict(model.path_)[model.alpha_] >= max(value for _, value in model.path_) - 1e-6
