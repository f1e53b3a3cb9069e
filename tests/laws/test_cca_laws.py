"""KernelCCA: the generalised eigenproblem, scikit-learn's CCA, blocks, pieces and weights."""

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.cross_decomposition import CCA
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Linear, Matern

KERNEL = Gaussian(1.5)


def pairs(n=300, seed=0):
    """Two tables that share one hidden number through a square, and noise besides."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-1, 1, n)
    X = np.column_stack([t, rng.standard_normal(n)])
    return X, np.column_stack([rng.standard_normal(n), t**2 + 0.02 * rng.standard_normal(n)])


def model(kernel=KERNEL, n_components=2, **changes):
    options = dict(method="orthogonal", n_features=32, alpha=0.5, random_state=0) | changes
    return bo.KernelCCA(n_components, kernel, **options)


def brute(A, B, alpha, q):
    """Generalised eigenvalues of [[0, C], [Cᵀ, 0]] against the penalised blocks."""
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    m = A.shape[1]
    full = np.hstack([A, B]).T @ np.hstack([A, B])
    left, right = np.zeros_like(full), alpha * np.eye(len(full))
    left[:m, m:], left[m:, :m] = full[:m, m:], full[m:, :m]
    right[:m, :m] += full[:m, :m]
    right[m:, m:] += full[m:, m:]
    values, vectors = eigh(left, right)
    return values[::-1][:q], vectors[:m, ::-1][:, :q], vectors[m:, ::-1][:, :q]


def columns(A, B):
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(A.T, B.T, strict=True)])


# ---- equal to the eigenproblem, and to scikit-learn's


@pytest.mark.parametrize("alpha", [1e-3, 0.5])
@pytest.mark.parametrize("kernel_y", [None, Matern(1.5, 2.0)], ids=repr)
def test_it_is_the_generalised_eigenproblem_of_the_features(alpha, kernel_y):
    X, Y = pairs()
    ours = model(alpha=alpha, kernel_y=kernel_y).fit(X, Y)
    A, B = ours.map_(X), ours.map_y_(Y)
    values, a, b = brute(A, B, alpha, 2)
    assert_close(ours.singular_values_, values, factor=1e4)
    for scores, expected in zip(ours.transform(X, Y), (A @ a, B @ b), strict=True):
        assert np.abs(np.abs(columns(scores, expected)) - 1).max() < 1e-6
        assert_close(scores.var(axis=0), np.ones(2), factor=1e4)
        assert_close(scores.mean(axis=0), np.zeros(2), factor=1e4)


@pytest.mark.parametrize("side", [1, 3])
def test_with_linear_kernels_it_has_the_correlations_of_scikit_learns(side):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)) + 5
    Y = X[:, :side] @ rng.standard_normal((side, side)) + rng.standard_normal((300, side))
    ours = model(Linear(), side, alpha=0.0).fit(X, Y)
    plain = CCA(side, tol=1e-14, max_iter=20000).fit(X, Y)
    assert_close(ours.correlations_, columns(*plain.transform(X, Y)), factor=1e7)
    assert_close(ours.correlations_, ours.singular_values_, factor=1e4)


def test_correlations_are_those_of_the_scores_and_score_is_their_mean():
    X, Y = pairs()
    ours = model().fit(X, Y)
    assert_close(ours.correlations_, columns(*ours.transform(X, Y)), factor=1e4)
    assert_close(ours.score(X, Y), ours.correlations_.mean(), factor=1e4)
    new = pairs(seed=1)
    assert_close(ours.score(*new), columns(*ours.transform(*new)).mean(), factor=1e4)
    np.testing.assert_array_equal(ours.transform(X), ours.transform(X, Y)[0])


# ---- the penalty


def test_the_penalty_is_chosen_by_rows_left_out():
    """Without a penalty, unrelated tables correlate nearly perfectly, and fail on new rows."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 200, 2))
    fooled = model(n_features=128, alpha=1e-8).fit(X, Y)
    assert fooled.correlations_[0] > 0.95
    chosen = model(n_features=128, alpha="cv").fit(X, Y)
    assert chosen.alpha_ in dict(chosen.path_)
    assert abs(chosen.score(*rng.standard_normal((2, 200, 2)))) < 0.3
    X, Y = pairs(600)
    found = model(n_features=128, alpha="cv").fit(X, Y)
    assert found.score(*pairs(600, seed=1)) > 0.6
    best = max(value for _, value in found.path_)
    assert dict(found.path_)[found.alpha_] >= best - 1e-6


# ---- the same from blocks, pieces and weights


def same(a, b, factor=1e6):
    new = pairs(50, seed=9)
    assert_close(a.singular_values_, b.singular_values_, factor=factor)
    for ours, theirs in zip(a.transform(*new), b.transform(*new), strict=True):
        assert_close(ours, theirs, factor=factor)


# ---- libraries, files


@pytest.mark.filterwarnings("ignore::bochner.errors.SolutionWarning")
def test_rounding_takes_no_part_in_the_choice_of_the_penalty():
    """Whole weights are repeated rows to scikit-learn's 1e-7, on tables with far fewer rows than
    features: all correlate perfectly without a penalty, and Y may be constant in one half."""
    for seed in range(25):
        rng = np.random.RandomState(seed)
        X, y, w = rng.rand(15, 10), rng.randint(0, 3, 15), rng.randint(0, 5, 15)
        order = rng.permutation(15)
        options = dict(method="auto", alpha="cv")
        copied = model("gaussian", **options).fit(X.repeat(w, axis=0), y.repeat(w))
        weighed = model("gaussian", **options).fit(X[order], y[order], sample_weight=w[order])
        assert weighed.alpha_ == pytest.approx(copied.alpha_, rel=1e-9), seed
        ours, theirs = weighed.transform(X), copied.transform(X)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9, err_msg=str(seed))


def test_a_constant_side_correlates_with_nothing():
    X, _ = pairs(200)
    with pytest.warns(SolutionWarning, match="have 0 pairs"):
        m = model().fit(X, np.full((200, 1), 0.3))
    assert m.transform(X).shape == (200, 0)


# ---- refusals and warnings


def test_more_components_than_there_are_is_said():
    X, Y = pairs()
    text = r"n_components=2, but 300 rows have 1 pairs of directions above rounding"
    with pytest.warns(SolutionWarning, match=text):
        fitted = model(kernel_y=Linear()).fit(X, Y[:, 1])
    assert fitted.transform(X).shape == (300, 1)
    with pytest.warns(SolutionWarning, match=r"have 0 pairs"):
        assert model(alpha="cv").fit(X, np.zeros(300)).score(X, np.zeros(300)) == 0


def test_refusals():
    X, Y = pairs()
    with pytest.raises(InvalidInput, match=r"KernelCCA: requires y to be passed"):
        model().fit(X, None)
    with pytest.raises(InvalidInput, match=r"name its columns with target=\[...\]"):
        model().fit_blocks(bo.Blocks.from_arrays(X))
    with pytest.raises(InvalidInput, match=r"KernelCCA: alpha must be a non-negative finite"):
        model(alpha=-1.0).fit(X, Y)
    with pytest.raises(InvalidInput, match=r"n_components must be an integer, 1 or above"):
        model(n_components=0).fit(X, Y)
    with pytest.raises(InvalidInput, match=r"at least one row must have a weight above zero"):
        model().fit_blocks(bo.Blocks.from_arrays(X, Y, np.zeros(300)))
    fitted = model().fit(X, Y)
    with pytest.raises(InvalidInput, match=r"Y must have the 2 columns of the fit; got 1"):
        fitted.transform(X, Y[:, 0])
    with pytest.raises(InvalidInput, match=r"Y must have the 2 columns of the fit; got 1"):
        fitted.partial_fit(X, Y[:, 0])
    with pytest.raises(InvalidInput, match=r"same number of rows; got 300 and 299"):
        fitted.score(X, Y[1:])
