"""compare and the errors that theory expects: formulas against brute force, and the table."""

import numpy as np
import pytest
from tolerance import assert_close

import bochner as bo
from bochner.certificates.comparison import all_methods
from bochner.errors import InvalidInput, InvalidType
from bochner.features import IID, Fourier, MercerHarmonic, Nystrom, Orthogonal, Sign
from bochner.features.auto import expected_error, paired_error
from bochner.kernels import Gaussian, Laplace, Matern

SEEDS = 200
ALARM = 6.0
"""Standard errors a mean may be off: 1e-6 false alarms for all cases together, and some."""


def rows(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def squared_errors(method, kernel, X, D):
    K = kernel(X)
    maps = (bo.draw(kernel, method, n_features=D, X=X, random_state=s) for s in range(SEEDS))
    return np.array([np.sum((phi(X) @ phi(X).T - K) ** 2) for phi in maps]) / np.sum(K**2)


def off_by(method, kernel, X, D, expected):
    """How many standard errors the mean squared error over seeds is from what is expected."""
    found = squared_errors(method, kernel, X, D)
    return abs(found.mean() - expected**2) / (found.std(ddof=1) / SEEDS**0.5)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("method", "kernel", "d"),
    [
        (Fourier(IID()), Gaussian(2.0), 3),
        (Fourier(IID()), 2.5 * Matern(1.5, 2.0), 4),
        (Fourier(IID()), Laplace(3.0), 2),
        (Fourier(IID(), "phase"), Matern(0.5, 1.5), 3),
        (Fourier(Orthogonal()), Gaussian(3.0), 3),
        (Fourier(Orthogonal()), Gaussian((2.0, 1.0, 4.0, 3.0, 3.0)), 5),
        (Fourier(Orthogonal()), Gaussian(5.0), 20),
    ],
    ids=repr,
)
def test_formulas_expect_the_mean_error_over_seeds(method, kernel, d):
    X = rows(30, d)
    inner = kernel.kernel if hasattr(kernel, "kernel") else kernel
    expected = expected_error(method, inner, X, 24)
    assert off_by(method, kernel, X, 24, expected) < ALARM


@pytest.mark.parametrize("form", ["pair", "phase"])
def test_formulas_expect_the_error_that_quadrature_over_all_draws_gives(form):
    """One column, k = exp(−δ²/2): the variance of a draw, by Gauss-Hermite nodes and even phases."""
    X = np.linspace(-2.0, 2.0, 9)[:, None]
    w, share = np.polynomial.hermite_e.hermegauss(80)
    share, b = share / share.sum(), np.arange(64) * np.pi / 32
    if form == "pair":
        draws = np.cos((X - X.T)[..., None] * w)
        second = draws**2 @ share
    else:
        waves = np.cos(X[:, :, None] * w[:, None] + b)
        second = np.einsum("iwb,jwb,w->ij", 4 * waves**2, waves**2, share) / len(b)
    K = Gaussian()(X)
    draws = 24 // (2 if form == "pair" else 1)
    variance = (second - K**2) / draws
    expected = expected_error(Fourier(IID(), form), Gaussian(), X, 24)
    assert expected == pytest.approx(np.sqrt(variance.sum()) / np.linalg.norm(K), rel=1e-9)


@pytest.mark.statistical
def test_planted_fault_the_formula_of_the_other_form_or_placement_is_seen():
    X = rows(30, 3)
    phase = expected_error(Fourier(IID(), "phase"), Gaussian(2.0), X, 24)
    assert off_by(Fourier(IID()), Gaussian(2.0), X, 24, phase) > ALARM
    independent = expected_error(Fourier(IID()), Gaussian(3.0), X, 24)
    assert off_by(Fourier(Orthogonal()), Gaussian(3.0), X, 24, independent) > ALARM


def test_pairs_stand_for_the_whole_matrix():
    """Equal to the weighted mean over the same pairs, one by one; near that of the matrix."""
    X, kernel = rows(400, 3), Gaussian(2.0)
    phi = bo.draw(kernel, "iid", n_features=40, n_inputs=3, random_state=0)
    error = size = 0.0
    for x, y in zip(X[::2], X[1::2], strict=True):
        z, v = phi(x[None])[0], phi(y[None])[0]
        k = kernel(x[None], y[None])[0, 0]
        error += 399 * (z @ v - k) ** 2 + (z @ z - 1) ** 2
        size += 399 * k**2 + 1
    assert_close(paired_error(phi, X), (error / size) ** 0.5, factor=10)
    K, Z = kernel(X), phi(X)
    assert 0.7 < paired_error(phi, X) / (np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) < 1.4


# ---- the table


def test_compare_measures_what_anyone_can_measure():
    X = rows(1200, 3)
    methods = ["iid", MercerHarmonic(), Nystrom(), Sign()]
    table = bo.compare(Gaussian(2.0), X, n_features=50, methods=methods, random_state=3)
    errors = [row.error for row in table.rows[:3]]
    assert errors == sorted(errors)
    assert table.best == table.rows[0].method == MercerHarmonic()
    assert table.rows[-1].method == Sign()
    assert "Sign" in table.rows[-1].refused
    fresh = rows(800, 3, seed=9)
    K = Gaussian(2.0)(fresh)
    for row in table.rows[:3]:
        phi = bo.draw(Gaussian(2.0), row.method, n_features=50, X=X, random_state=7)
        E = phi(fresh) @ phi(fresh).T - K
        assert 1 / 3 < row.error / (np.linalg.norm(E) / np.linalg.norm(K)) < 3
        assert 0.5 < row.predicted / row.error < 2
        assert row.entrywise > row.error * np.linalg.norm(K) / len(K)
        assert row.seconds > 0
        assert row.draw_seconds > 0
    assert table.n_sample == 300


def test_compare_tries_every_method_of_the_library_once():
    methods = all_methods(3)
    assert len(set(methods)) == len(methods)
    kinds = {type(method).__name__ for method in methods}
    bases = {"Auto", "Compressed", "Projected", "Explicit", "Method", "LaplacianEigenfunctions"}
    bases |= {"ExactKernel", "LocalKernel", "NearestNeighbours"}  # no features
    bases |= {"SphericalHarmonics"}  # of the globe alone
    public = {n for n in bo.__all__ if isinstance(getattr(bo, n), type)}
    known = {n for n in public if issubclass(getattr(bo, n), bo.Method)}
    assert kinds == known - bases


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        (dict(kernel="gaussian"), InvalidType, "kernel must be a Kernel, e.g. Gaussian"),
        (dict(X=rows(7, 2)), InvalidInput, "at least 8 rows; got 7"),
        (dict(X=np.full((9, 2), np.nan)), InvalidInput, "finite"),
        (dict(n_features=0), InvalidInput, "n_features must be"),
        (dict(n_sample=1), InvalidInput, "n_sample must be"),
        (dict(methods=["best"]), InvalidInput, "method must be a value such as"),
        (dict(methods=[Sign()]), InvalidInput, "no method serves Gaussian"),
    ],
)
def test_compare_refuses_what_it_cannot_compare(arguments, kind, sentence):
    given = dict(kernel=Gaussian(), X=rows(40, 2), n_features=8) | arguments
    with pytest.raises(kind, match=sentence):
        bo.compare(given.pop("kernel"), given.pop("X"), **given)
