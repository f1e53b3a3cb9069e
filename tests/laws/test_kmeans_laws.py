"""KernelKMeans: Lloyd's algorithm, and what its cost says of the kernel's own."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.cluster import KMeans
from tolerance import ALARM, assert_close

import bochner as bo
from bochner.errors import InvalidInput, SolutionWarning
from bochner.kernels import Gaussian, Laplace
from bochner.models._rows import FeatureBlock
from bochner.models.unsupervised.clustering import matrix_error
from bochner.solvers.lloyd import CentroidsOf, StepsOf, assign, in_order, run_lloyd

KERNEL = Gaussian(1.0)
PLACES = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])


def rows(each=75, seed=0, spread=0.6):
    rng = np.random.default_rng(seed)
    X = np.repeat(PLACES, each, axis=0) + spread * rng.standard_normal((4 * each, 2))
    return X[rng.permutation(len(X))]


def model(n_clusters=4, kernel=KERNEL, **changes):
    options = dict(method="orthogonal", n_features=64, random_state=0) | changes
    return bo.KernelKMeans(n_clusters, kernel, **options)


def exact_cost(K, labels, w=None):
    """Σ w |Φ(x) − mean|² in the kernel's own space, by its definition."""
    w = np.ones(len(K)) if w is None else w
    total = float(w @ np.diag(K))
    for c in np.unique(labels):
        p = w * (labels == c)
        total -= float(p @ K @ p / p.sum()) if p.sum() > 0 else 0.0
    return total


# ---- Lloyd's algorithm


def naive_pass(Z, w, centres):
    labels = np.array([np.argmin([((z - c) ** 2).sum() for c in centres]) for z in Z])
    inertia = sum(wi * ((z - centres[j]) ** 2).sum() for z, wi, j in zip(Z, w, labels, strict=True))
    means = [
        np.average(Z[labels == j], axis=0, weights=w[labels == j]) for j in range(len(centres))
    ]
    return labels, inertia, np.array(means)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pass_assigns_to_the_nearest_and_takes_means(dtype):
    rng = np.random.default_rng(0)
    Z, w = rng.standard_normal((60, 5)).astype(dtype), rng.uniform(0.5, 2, 60)
    blocks = [FeatureBlock(Z[i : i + 25], None, w[i : i + 25], i) for i in (0, 25, 50)]
    labels, inertia, means = naive_pass(Z.astype(float), w, Z[:3].astype(float))
    found = assign(blocks, Z[:3].astype(float))
    np.testing.assert_array_equal(found.labels, labels)
    assert_close(found.inertia, inertia, dtype, factor=10)
    assert_close(found.means, means, dtype, factor=10)
    about = sum(wi * ((z - means[j]) ** 2).sum() for z, wi, j in zip(Z, w, labels, strict=True))
    assert_close(found.cost, about, dtype, factor=10)


def test_no_pass_raises_the_cost_and_the_end_is_a_fixed_point():
    Z = np.random.default_rng(0).standard_normal((300, 4))
    block = [FeatureBlock(Z, None, None, 0)]
    first = assign(block, Z[:5])
    costs = [run_lloyd(block, first, m, 0.0).inertia for m in range(1, 9)]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(costs))
    end = run_lloyd(block, first, 300, 0.0)
    assert end.converged
    assert_close(end.means, end.centres, factor=10)
    assert_close(end.inertia, KMeans(5, init=Z[:5], n_init=1, tol=0).fit(Z).inertia_, factor=100)


def test_sums_of_parts_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    Z, w = rng.standard_normal((60, 5)), rng.uniform(0.5, 2, 60)
    blocks = [FeatureBlock(Z[i : i + 20], None, w[i : i + 20], i) for i in (0, 20, 40)]
    passes = CentroidsOf(Z[:3])
    merged = passes.merge(in_order(passes, blocks[:1]), in_order(passes, blocks[1:]))
    whole, parts = (passes.clusters(total) for total in (in_order(passes, blocks), merged))
    np.testing.assert_array_equal(parts.labels, whole.labels)
    assert_close([*parts.means, *parts.sums], [*whole.means, *whole.sums], factor=10)
    assert_close([parts.cost, parts.power], [whole.cost, whole.power], factor=10)
    steps = StepsOf(Z[:1] + 1, np.array([7.0]))
    centre, seen = steps.merge(in_order(steps, blocks[:1]), in_order(steps, blocks[1:]))
    assert_close(seen, [7 + w.sum()])
    assert_close(centre[0], (7 * (Z[0] + 1) + w @ Z) / (7 + w.sum()), factor=10)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_weights_times_a_number_move_no_centre(factor):
    """Clusters that weigh less than one row too."""
    rng = np.random.default_rng(0)
    Z, w = rng.standard_normal((60, 5)), rng.uniform(0.5, 2, 60)
    one, many = (assign([FeatureBlock(Z, None, v, 0)], Z[:3]) for v in (w, factor * w))
    assert_close(many.means, one.means, factor=10)
    assert_close(
        [many.inertia, many.cost, many.power],
        factor * np.array([one.inertia, one.cost, one.power]),
        factor=10,
    )
    ends = [
        run_lloyd([FeatureBlock(Z, None, v, 0)], c, 50, 0.0)
        for v, c in ((w, one), (factor * w, many))
    ]
    assert_close(ends[1].means, ends[0].means, factor=10)


def test_an_empty_cluster_keeps_its_centre():
    Z = np.random.default_rng(0).standard_normal((50, 2))
    centres = np.vstack([Z[:2], [[1e3, 1e3]]])
    np.testing.assert_array_equal(assign([FeatureBlock(Z, None, None, 0)], centres).means[2], 1e3)


# ---- the model


def test_it_is_as_good_as_scikit_learns_on_the_same_features():
    X = rows()
    ours = model().fit(X)
    theirs = KMeans(4, n_init=5, random_state=0).fit(ours.map_(X))
    assert abs(ours.inertia_ / theirs.inertia_ - 1) < 1e-4
    Z = ours.map_(X)
    squares = ((Z[:, None] - ours.cluster_centers_) ** 2).sum(axis=2)
    assert_close(ours.transform(X), np.sqrt(squares), factor=1e4)
    np.testing.assert_array_equal(ours.predict(X), np.argmin(squares, axis=1))
    np.testing.assert_array_equal(ours.predict(X), ours.labels_)
    assert_close(ours.inertia_, squares.min(axis=1).sum(), factor=1e4)
    assert_close(ours.score(X), -ours.inertia_, factor=1e4)


def test_minibatches_come_near_and_one_cluster_is_the_running_mean():
    X, w = rows(200), np.random.default_rng(0).uniform(0.5, 2, 800)
    full = model().fit(X)
    assert model(algorithm="minibatch").fit(X).inertia_ < 1.05 * full.inertia_
    one = model(1)
    for part in (slice(0, 300), slice(300, 301), slice(301, 800)):
        one.partial_fit(X[part], sample_weight=w[part])
    mean = np.average(one.map_(X), axis=0, weights=w)
    assert_close(one.cluster_centers_[0], mean, factor=1e3)
    stream = model()
    for start in range(0, 800, 100):
        stream.partial_fit(X[start : start + 100])
    assert -stream.score(X) < 1.05 * full.inertia_
    assert len(stream.labels_) == 100


# ---- the objective in the kernel's own terms


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [KERNEL, Laplace(2.0)], ids=repr)
@pytest.mark.parametrize("method", ["nystrom", "iid"])
def test_the_exact_cost_lies_where_the_objective_says(method, kernel, weighted):
    X = rows()
    w = np.random.default_rng(0).uniform(0.2, 3, 300) if weighted else np.ones(300)
    fitted = model(kernel=kernel, method=method, n_features=16).fit(X, sample_weight=w)
    exact = exact_cost(kernel(X), fitted.labels_, w)
    o = fitted.objective_
    assert o.confidence == 1.0
    assert o.low - 1e-9 <= exact <= o.high + 1e-9
    assert o.below_kernel == (method == "nystrom")
    assert_close(o.features, exact_cost(fitted.map_(X) @ fitted.map_(X).T, fitted.labels_, w))
    assert abs(o.features / exact - 1) > 1e-4  # so that the next line can fail
    assert not o.features * (1 - 1e-9) <= exact <= o.features * (1 + 1e-9)
    again = fitted.objective(X, sample_weight=w)
    assert_close([again.low, again.high], [o.low, o.high], factor=1e5)


@pytest.mark.parametrize("method", ["nystrom", "orthogonal"])
def test_no_clustering_beats_the_best_of_features_by_more_than_is_hidden(method):
    """All clusterings of nine rows into two, in features and in the kernel."""
    X = rows(3)[:9]
    fitted = model(2, method=method, n_features=4).fit(X)
    K, F = KERNEL(X), fitted.map_(X) @ fitted.map_(X).T
    labels = [np.array([int(b) for b in f"{i:09b}"]) for i in range(1, 256)]
    exact, features = (np.array([exact_cost(M, each) for each in labels]) for M in (K, F))
    regret = exact[np.argmin(features)] - exact.min()
    assert regret <= fitted.objective_.hidden + 1e-12
    worst = np.abs(exact - features - np.trace(K - F)).max()
    assert worst <= max(fitted.objective_.hidden, np.trace(K - F)) + 1e-12


def test_exact_features_hide_nothing():
    X = rows(20)
    fitted = model(method="auto", n_features=128).fit(X)
    assert_close(fitted.objective_.low, exact_cost(KERNEL(X), fitted.labels_), factor=1e6)
    assert fitted.objective_.hidden < 1e-6


def test_bound_of_the_matrix_from_a_sample_holds_as_often_as_it_says():
    """200 samples of 150 of 600 rows: at most 5 % of the bounds may fail, and half of estimates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3))
    Z = model().fit(X).map_(X)
    E = Z @ Z.T - KERNEL(X)
    true = np.linalg.norm(E)
    assert_close(matrix_error(E, 600)[0], true, factor=10)
    bounds, plain = [], []
    for _ in range(200):
        few = rng.choice(600, 150, replace=False)
        bounds.append(matrix_error(E[np.ix_(few, few)], 600)[0])
        plain.append(matrix_error(E[np.ix_(few, few)], 600, confidence=0.5)[0])
    most = binom.isf(ALARM, 200, 0.05)
    assert sum(b < true for b in bounds) <= most
    assert sum(b < true for b in plain) > most  # the planted fault


def test_the_objective_speaks():
    said = str(model(method="nystrom").fit(rows()).objective_)
    assert said.startswith("In 64 features these 4 clusters cost 0.39")
    assert "the features lie below the kernel; certain" in said
    big = rows(600)
    said = str(model(n_features=16).fit(big).objective_)
    assert "95 % confidence" in said
    assert "A clustering of least cost in features costs at most" in said


# ---- libraries, files


def test_a_saved_model_gives_the_same_bits_and_goes_on(tmp_path):
    X = rows()
    fitted = model(kernel="gaussian", method="nystrom").fit(X)
    fitted.objective_  # noqa: B018  measured, and so saved
    bo.save(fitted, tmp_path / "m")
    again = bo.load(tmp_path / "m")
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert again.objective_ == fitted.objective_
    ours, theirs = (m.partial_fit(X[:99]).cluster_centers_ for m in (again, fitted))
    np.testing.assert_array_equal(ours, theirs)


# ---- refusals and warnings


def test_fewer_rows_than_clusters_is_refused_and_fewer_different_ones_said():
    X = rows()
    for call in ("fit", "partial_fit"):
        with pytest.raises(InvalidInput, match=r"n_clusters=4 must be .* got n_samples=3 of posit"):
            getattr(model(), call)(X[:3])
    with pytest.warns(SolutionWarning, match=r"n_clusters=4, but .* only 3 different features"):
        fitted = model().fit(np.repeat(X[:3], 5, axis=0))
    assert len(np.unique(fitted.labels_)) == 3
    assert fitted.inertia_ < 1e-9


def test_centres_that_still_move_are_said():
    X = np.random.default_rng(0).standard_normal((9000, 2))
    with pytest.warns(SolutionWarning, match=r"still move after max_iter=1 passes; raise max_iter"):
        model(20, n_features=16, max_iter=1, tol=0.0).fit(X)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"n_clusters": 0}, r"KernelKMeans: n_clusters must be an integer, 1 or above"),
        ({"n_init": 0}, r"KernelKMeans: n_init must be an integer, 1 or above"),
        ({"tol": -1.0}, r"KernelKMeans: tol must be a non-negative finite number"),
        ({"algorithm": "elkan"}, r"algorithm must be one of 'full', 'minibatch'; got 'elkan'"),
        ({"precision": "half"}, r"KernelKMeans: precision must be one of"),
    ],
)
def test_arguments_out_of_range_are_refused(changes, text):
    with pytest.raises(InvalidInput, match=text):
        model(**changes).fit(rows())
