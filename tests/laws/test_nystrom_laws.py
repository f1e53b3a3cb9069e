"""Laws of Nyström maps, and of the pivots, leverages and clusters that choose their rows."""

from collections import Counter
from pkgutil import resolve_name

import numpy as np
import pytest
import scipy.sparse
import torch
from gallery import LANDMARKS, rows, small_matrix
from inside import record_calls
from naive import pivot_law
from scipy.stats import binomtest
from sklearn.cluster import KMeans as SklearnKMeans
from tolerance import ALARM, assert_close, bernstein_bar, of

import bochner as bo
from bochner import draw
from bochner.features import Nystrom
from bochner.features.nystrom import NystromMap, estimate
from bochner.kernels import Angular, ArcCosine, Columns, Gaussian, Laplace, Linear, Matern
from bochner.landmarks import Given, KMeans, RidgeLeverage, RPCholesky, Uniform
from bochner.solvers import factorisations
from bochner.solvers.factorisations import accept, randomly_pivoted_cholesky

D = 24

ROUNDED = 1e-9
"""Jitter of 1e-12 and roundings of C = k(X, S), made larger by L⁻ᵀ (at most 1e6 of them)."""

KERNELS = [
    Gaussian(),
    Gaussian(lengthscale=(0.5, 1.0, 3.0)),
    Matern(0.5) + 0.5 * Linear(),
    Laplace(lengthscale=2.0),
    bo.kernels.Polynomial(degree=3, offset=0.5, scale=0.2),
    Angular(),
    ArcCosine(),
    bo.kernels.NeuralTangent(depth=2),
]

every_method = pytest.mark.parametrize("method", LANDMARKS, ids=repr)
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def drawn(kernel, method, seed=0, n_features=D, X=None):
    X = rows(60, seed=5) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


@every_method
@every_kernel
def test_features_are_exact_on_landmarks(kernel, method):
    phi = drawn(kernel, method)
    S, other = phi.landmarks, rows(10, seed=7)
    Z = phi(S)
    assert_close(Z @ Z.T, kernel(S), factor=ROUNDED / of(np.float64))
    assert_close(phi(other) @ Z.T, kernel(other, S), factor=ROUNDED / of(np.float64))
    assert phi.residual(S).max() <= ROUNDED * max(1.0, kernel.diag(S).max())


@pytest.mark.parametrize("landmarks", [Uniform(), RPCholesky(), RidgeLeverage()], ids=repr)
def test_landmarks_are_different_rows_of_the_data(landmarks):
    X = rows(60, seed=5)[:-1]
    for seed in range(10):
        S = drawn(Gaussian(), Nystrom(landmarks), seed, X=X).landmarks
        assert len(np.unique(S, axis=0)) == len(S) == D
        assert {tuple(s) for s in S} <= {tuple(x) for x in X}


@every_method
def test_few_rows_are_all_taken_once(method):
    X = np.repeat(rows(6)[:5], 8, axis=0)
    phi, one = drawn(Gaussian(), method, X=X), drawn(Gaussian(), method, n_features=1, X=X[:1])
    given = isinstance(method.landmarks, Given)
    if isinstance(method.landmarks, RPCholesky | KMeans):
        assert phi.n_features == 5
        assert_close(phi(X) @ phi(X).T, Gaussian()(X), factor=ROUNDED / of(np.float64))
    assert np.isfinite(phi(X)).all()
    assert one(X[:1]).shape == (1, 1)
    assert given or abs(one(X[:1])[0, 0] - 1) < 1e3 * of(np.float64)


@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.LogisticRegression])
def test_landmarks_are_factored_once_for_all_passes_and_answers(learner, monkeypatch):
    """It was twice in a pass: L depends on the landmarks and the precision alone."""
    factored = record_calls(monkeypatch, "bochner.features.nystrom.raised_factor")
    X, given = rows(200), {"n_features": D, "precision": "float64", "random_state": 0}
    blocks = bo.Blocks.from_arrays(X, np.sign(X[:, 0]), block_rows=30)
    model = learner(Gaussian(), method="uniform", **given).fit_blocks(blocks)
    for answer in (model.predict, model.gradient, model.map_.residual):
        answer(X)
    assert len(factored) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_used_map_means_the_same_where_factors_come_out_otherwise(dtype, tmp_path, monkeypatch):
    """Another machine's LAPACK is played by a factor of another, equally good, matrix."""
    X = rows(50).astype(dtype)
    phi = drawn(Gaussian(lengthscale=3.0), Nystrom())
    expected = phi(X)
    bo.save(phi, tmp_path / "map")
    name = "bochner.features.nystrom.raised_factor"
    there = resolve_name(name)
    monkeypatch.setattr(name, lambda A, *of: there(A * (1 + 1e-15), 2 * of[0], of[1]))
    back, fresh = bo.load(tmp_path / "map"), NystromMap(phi.kernel, phi.landmarks)
    assert back(X).tobytes() == expected.tobytes() != fresh(X).tobytes()


def test_given_rows_need_no_data_and_are_a_copy_that_cannot_change():
    phi = draw(Gaussian(), Nystrom(Given(rows(9))), n_features=5, n_inputs=3)
    assert (phi.landmarks == rows(9)[:5]).all()
    assert draw(Gaussian(), Nystrom(Given(rows(9))), n_inputs=3).n_features == 9
    S = rows(4)
    landmarks = Given(S)
    S[0] = 7
    assert landmarks == Given(rows(4)) == Given(torch.asarray(rows(4))) != Given(S)
    assert hash(landmarks) == hash(Given(rows(4).tolist()))
    with pytest.raises(ValueError, match="read-only"):
        landmarks.rows[0] = 1
    assert repr(Given([[1.0, 2.0]])) == "Given(rows=[[1.0, 2.0]])"
    assert repr(Given(rows(40))) == "Given(rows=<40 × 3>)"


def test_names_and_rows_stand_for_the_values_of_landmarks():
    named = {"rpcholesky": RPCholesky(), "kmeans": KMeans(), "uniform": Uniform()}
    named["ridge-leverage"] = RidgeLeverage()
    for name, value in (*named.items(), (rows(4).tolist(), Given(rows(4)))):
        assert Nystrom(name) == Nystrom(value)
        assert Nystrom(name).landmarks == value


def pivots(K, rank, seed):
    rng = np.random.default_rng(seed)
    corner = lambda rows: K[np.ix_(rows, rows)]
    return randomly_pivoted_cholesky(lambda j: K[:, j], np.diag(K), rank, rng, corner)


def law_excess(runs=2000):
    """Largest |share − probability| over its Bernstein bar; above one with chance 1e-6 at most."""
    K, law, seen = small_matrix(), Counter(), Counter()
    for sequence, p in pivot_law(K, 3).items():
        law[tuple(min(i, 2) for i in sequence)] += p
    for seed in range(runs):
        seen[tuple(min(int(i), 2) for i in pivots(K, 3, seed))] += 1
    return max(
        abs(seen[kinds] / runs - p) / bernstein_bar(2 * len(law), (p * (1 - p)) ** 0.5, 1.0, runs)
        for kinds, p in law.items()
    )


@pytest.mark.slow
@pytest.mark.statistical
def test_pivots_have_the_enumerated_law(monkeypatch):
    """The planted fault: all that are proposed together and not yet explained are taken."""
    assert law_excess() < 1
    blocked = lambda H, start, proposed, chances: accept(H, start, proposed, 0 * chances)
    monkeypatch.setattr(factorisations, "accept", blocked)
    assert law_excess() > 1


def test_pivots_are_different_and_as_many_as_the_rank():
    K = Gaussian()(rows(80))
    for rank in (1, 10, 40):
        assert len(set(pivots(K, rank, rank).tolist())) == rank
    A = np.random.default_rng(0).normal(size=(60, 4))
    assert len(pivots(A @ A.T, 30, 0)) == 4


def exact_leverage(kernel, X, penalty):
    K = kernel(X)
    return np.diag(K @ np.linalg.inv(K + penalty * np.eye(len(K))))


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_leverage_estimated_from_all_rows_is_exact_and_of_fewer_no_less(penalty):
    """At p = 1: K_S ⪯ K, so less is explained."""
    X, kernel = rows(80), Laplace(lengthscale=2.0)
    previous = exact_leverage(kernel, X, penalty)
    found = estimate(kernel, X, X, np.ones(80), penalty)
    assert_close(found, previous, factor=1e3)
    for m in (60, 30, 5, 1):
        found = estimate(kernel, X, X[:m], np.ones(m), penalty)
        assert (found >= previous - 1e-9).all()
        assert (found <= 1).all()
        previous = found


@pytest.mark.statistical
def test_rows_are_drawn_by_leverage():
    """A row far from 200 equal ones has half of the leverage, and is nearly always among four."""
    X = np.concatenate([np.zeros((200, 2)), [[9.0, 9.0]]])
    tau = exact_leverage(Gaussian(), X, 1.0)
    assert tau[-1] > 100 * tau[0]

    def times(method):
        maps = (drawn(Gaussian(), Nystrom(method), seed, 20, X) for seed in range(60))
        return sum(bool((phi.landmarks == 9.0).any()) for phi in maps)

    assert binomtest(times(RidgeLeverage(alpha=1.0)), 60, 0.5, "greater").pvalue < ALARM
    assert binomtest(times(Uniform()), 60, 0.5, "less").pvalue < ALARM


def test_centres_are_those_of_scikit_learn():
    X = rows(300)
    rng = np.random.default_rng(3)
    centres = KMeans(iterations=300).choose(Gaussian(), X, 12, rng)
    rng = np.random.default_rng(3)
    rng.choice(300, size=300, replace=False)
    twin = SklearnKMeans(12, n_init=1, random_state=int(rng.integers(2**31))).fit(X)
    assert_close(centres, np.unique(twin.cluster_centers_, axis=0))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_centres_of_float32_rows_of_any_size_are_those_of_float64(size):
    X = np.float32(size) * (rows(2000) + 30).astype(np.float32)
    single, double = (
        KMeans(iterations=1, seeds="random").choose(Gaussian(), A, 9, np.random.default_rng(0))
        for A in (X, X.astype(np.float64))
    )
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=1e-3)  # a row on an edge may change sides


@pytest.mark.parametrize(
    "composite",
    [
        lambda k: k,
        lambda k: 2.0 * k,
        lambda k: k + 0.1,
        lambda k: k * Linear() + Gaussian(3.0),
        lambda k: Columns(k, (0, 1)),
        lambda k: Columns(Gaussian(0.1), (0,)) * Columns(Gaussian(1e5), (1,)),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_clusters_are_of_the_distance_that_the_kernel_has(composite, form):
    """A column that the kernel hardly sees, and that spreads most, is not clustered."""
    rng, kernel = np.random.default_rng(0), Gaussian(lengthscale=(0.1, 1e5))
    X = np.column_stack([np.repeat([1.0, 2.0, 3.0, 4.0], 50), 1e3 * rng.random(200)])
    X = X[rng.permutation(200)]

    def error(of):
        centres = KMeans().choose(of, form(X), 12, np.random.default_rng(0))
        return 1 - kernel(X, centres).max(axis=1).min()

    assert error(composite(kernel)) < 0.1 < error(Gaussian())
