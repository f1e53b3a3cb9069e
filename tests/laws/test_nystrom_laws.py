"""Laws of Nyström maps, and of pivots, leverages and clusters that choose landmarks."""

from collections import Counter
from pkgutil import resolve_name

import numpy as np
import pytest
import scipy.sparse
import torch
from gallery import LANDMARKS, rows, small_matrix
from internals import record_calls
from naive import pivot_law
from scipy.stats import binomtest
from sklearn.cluster import KMeans as SklearnKMeans
from tolerance import ALARM, assert_close, bernstein_bar, of

import bochner as bo
from bochner import draw
from bochner.features import Nystrom
from bochner.features.nystrom import NystromMap, estimate
from bochner.kernels import Angular, ArcCosine, Columns, Gaussian, Laplace, Linear, Matern
from bochner.landmarks import KMeans, Points, RidgeLeverage, RPCholesky, Uniform
from bochner.solvers import factorisations
from bochner.solvers.factorisations import accept, randomly_pivoted_cholesky

D = 24

ROUNDED = 1e-9
"""Error of features: a jitter of 1e-12, and rounding of k(X, S) times at most 1e6 by L⁻ᵀ."""

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


def new_map(kernel, method, seed=0, n_features=D, X=None):
    """Return a Nyström map of 60 rows, or of ``X``."""
    X = rows(60, seed=5) if X is None else X
    return draw(kernel, method, n_features=n_features, X=X, random_state=seed)


@every_method
@every_kernel
def test_features_are_exact_on_landmarks(kernel, method):
    phi = new_map(kernel, method)
    S, other = phi.landmarks, rows(10, seed=7)
    Z = phi(S)
    assert_close(Z @ Z.T, kernel(S), factor=ROUNDED / of(np.float64))
    assert_close(phi(other) @ Z.T, kernel(other, S), factor=ROUNDED / of(np.float64))
    assert phi.residual(S).max() <= ROUNDED * max(1.0, kernel.diag(S).max())


@pytest.mark.parametrize("landmarks", [Uniform(), RPCholesky(), RidgeLeverage()], ids=repr)
def test_landmarks_are_distinct_rows_of_the_data(landmarks):
    X = rows(60, seed=5)[:-1]
    for seed in range(10):
        S = new_map(Gaussian(), Nystrom(landmarks), seed, X=X).landmarks
        assert len(np.unique(S, axis=0)) == len(S) == D
        assert {tuple(s) for s in S} <= {tuple(x) for x in X}


@every_method
def test_few_rows_are_all_landmarks_once(method):
    X = np.repeat(rows(6)[:5], 8, axis=0)
    phi, psi = new_map(Gaussian(), method, X=X), new_map(Gaussian(), method, n_features=1, X=X[:1])
    is_given = isinstance(method.landmarks, Points)
    if isinstance(method.landmarks, RPCholesky | KMeans):
        assert phi.n_features == 5
        assert_close(phi(X) @ phi(X).T, Gaussian()(X), factor=ROUNDED / of(np.float64))
    assert np.isfinite(phi(X)).all()
    assert psi(X[:1]).shape == (1, 1)
    assert is_given or abs(psi(X[:1])[0, 0] - 1) < 1e3 * of(np.float64)


@pytest.mark.parametrize("learner", [bo.KernelRidge, bo.LogisticRegression])
def test_landmarks_are_factored_once_for_all_passes_and_predictions(learner, monkeypatch):
    """L depends on the landmarks and the precision only; it was computed twice in a pass."""
    calls = record_calls(monkeypatch, "bochner.features.nystrom.jittered_cholesky")
    X, options = rows(200), {"n_features": D, "precision": "float64", "random_state": 0}
    blocks = bo.Blocks.from_arrays(X, np.sign(X[:, 0]), block_rows=30)
    model = learner(Gaussian(), method="uniform", **options).fit_blocks(blocks)
    for function in (model.predict, model.gradient, model.map_.residual):
        function(X)
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_saved_map_keeps_its_bits_where_factors_round_differently(dtype, tmp_path, monkeypatch):
    """A factor of a slightly different matrix stands for LAPACK of another machine."""
    X = rows(50).astype(dtype)
    phi = new_map(Gaussian(lengthscale=3.0), Nystrom())
    expected = phi(X)
    bo.save(phi, tmp_path / "map")
    name = "bochner.features.nystrom.jittered_cholesky"
    factor = resolve_name(name)
    monkeypatch.setattr(name, lambda A, *of: factor(A * (1 + 1e-15), 2 * of[0], of[1]))
    loaded, fresh = bo.load(tmp_path / "map"), NystromMap(phi.kernel, phi.landmarks)
    assert loaded(X).tobytes() == expected.tobytes() != fresh(X).tobytes()


def test_given_landmarks_need_no_data_and_are_a_read_only_copy():
    phi = draw(Gaussian(), Nystrom(Points(rows(9))), n_features=5, n_inputs=3)
    assert (phi.landmarks == rows(9)[:5]).all()
    assert draw(Gaussian(), Nystrom(Points(rows(9))), n_inputs=3).n_features == 9
    S = rows(4)
    landmarks = Points(S)
    S[0] = 7
    assert landmarks == Points(rows(4)) == Points(torch.asarray(rows(4))) != Points(S)
    assert hash(landmarks) == hash(Points(rows(4).tolist()))
    with pytest.raises(ValueError, match="read-only"):
        landmarks.rows[0] = 1
    assert repr(Points([[1.0, 2.0]])) == "Points(rows=[[1.0, 2.0]])"
    assert repr(Points(rows(40))) == "Points(rows=<40 × 3>)"


def test_landmarks_may_be_names_or_rows():
    named = {"rpcholesky": RPCholesky(), "kmeans": KMeans(), "uniform": Uniform()}
    named["ridge-leverage"] = RidgeLeverage()
    for name, value in (*named.items(), (rows(4).tolist(), Points(rows(4)))):
        assert Nystrom(name) == Nystrom(value)
        assert Nystrom(name).landmarks == value


def pivots(K, rank, seed):
    """Return the pivots of a randomly pivoted Cholesky factor."""
    rng = np.random.default_rng(seed)
    corner = lambda rows: K[np.ix_(rows, rows)]
    return randomly_pivoted_cholesky(lambda j: K[:, j], np.diag(K), rank, rng, corner)


def law_excess(runs=2000):
    """Return the largest |share − probability| over its bound; it exceeds one with chance 1e-6."""
    K, law, counts = small_matrix(), Counter(), Counter()
    for sequence, p in pivot_law(K, 3).items():
        law[tuple(min(i, 2) for i in sequence)] += p
    for seed in range(runs):
        counts[tuple(min(int(i), 2) for i in pivots(K, 3, seed))] += 1
    return max(
        abs(counts[kinds] / runs - p) / bernstein_bar(2 * len(law), (p * (1 - p)) ** 0.5, 1.0, runs)
        for kinds, p in law.items()
    )


@pytest.mark.slow
@pytest.mark.statistical
def test_pivots_have_the_enumerated_probabilities(monkeypatch):
    """The planted fault accepts all pivots that are proposed together and not yet explained."""
    assert law_excess() < 1
    accept_all = lambda H, start, proposed, chances: accept(H, start, proposed, 0 * chances)
    monkeypatch.setattr(factorisations, "accept", accept_all)
    assert law_excess() > 1


def test_pivots_are_distinct_and_as_many_as_the_rank():
    K = Gaussian()(rows(80))
    for rank in (1, 10, 40):
        assert len(set(pivots(K, rank, rank).tolist())) == rank
    A = np.random.default_rng(0).normal(size=(60, 4))
    assert len(pivots(A @ A.T, 30, 0)) == 4


def exact_leverage(kernel, X, penalty):
    K = kernel(X)
    return np.diag(K @ np.linalg.inv(K + penalty * np.eye(len(K))))


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_leverages_from_all_rows_are_exact_and_from_fewer_not_smaller(penalty):
    """With probabilities of one: K_S ⪯ K explains less."""
    X, kernel = rows(80), Laplace(lengthscale=2.0)
    previous = exact_leverage(kernel, X, penalty)
    leverages = estimate(kernel, X, X, np.ones(80), penalty)
    assert_close(leverages, previous, factor=1e3)
    for m in (60, 30, 5, 1):
        leverages = estimate(kernel, X, X[:m], np.ones(m), penalty)
        assert (leverages >= previous - 1e-9).all()
        assert (leverages <= 1).all()
        previous = leverages


@pytest.mark.statistical
def test_ridge_leverage_draws_rows_of_high_leverage():
    """A row far from 200 equal rows has half of the leverage; 20 draws nearly always include it."""
    X = np.concatenate([np.zeros((200, 2)), [[9.0, 9.0]]])
    tau = exact_leverage(Gaussian(), X, 1.0)
    assert tau[-1] > 100 * tau[0]

    def count(method):
        maps = (new_map(Gaussian(), Nystrom(method), seed, 20, X) for seed in range(60))
        return sum(bool((phi.landmarks == 9.0).any()) for phi in maps)

    assert binomtest(count(RidgeLeverage(alpha=1.0)), 60, 0.5, "greater").pvalue < ALARM
    assert binomtest(count(Uniform()), 60, 0.5, "less").pvalue < ALARM


def test_centres_equal_those_of_scikit_learn():
    X = rows(300)
    rng = np.random.default_rng(3)
    centres = KMeans(iterations=300).choose(Gaussian(), X, 12, rng)
    rng = np.random.default_rng(3)
    rng.choice(300, size=300, replace=False)
    twin = SklearnKMeans(12, n_init=1, random_state=int(rng.integers(2**31))).fit(X)
    assert_close(centres, np.unique(twin.cluster_centers_, axis=0))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_centres_of_float32_rows_of_any_scale_equal_those_of_float64(size):
    X = np.float32(size) * (rows(2000) + 30).astype(np.float32)
    single, double = (
        KMeans(iterations=1, seeds="random").choose(Gaussian(), A, 9, np.random.default_rng(0))
        for A in (X, X.astype(np.float64))
    )
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=1e-3)  # rows on boundaries may differ


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
def test_clusters_use_the_distance_of_the_kernel(composite, form):
    """A column with a huge lengthscale is ignored, though it has the largest spread."""
    rng, kernel = np.random.default_rng(0), Gaussian(lengthscale=(0.1, 1e5))
    X = np.column_stack([np.repeat([1.0, 2.0, 3.0, 4.0], 50), 1e3 * rng.random(200)])
    X = X[rng.permutation(200)]

    def error(metric):
        centres = KMeans().choose(metric, form(X), 12, np.random.default_rng(0))
        return 1 - kernel(X, centres).max(axis=1).min()

    assert error(composite(kernel)) < 0.1 < error(Gaussian())
