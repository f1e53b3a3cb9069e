"""Large matrices are decomposed in steps, so that Ctrl-C is heard: the same numbers all the same.

The other route is LAPACK at once. Both are backward stable: eigenvalues differ by a small multiple
of m ε ‖A‖, factors by one of m ε ‖A‖ in L Lᵀ.
"""

import signal
import time
from threading import Timer

import numpy as np
import pytest
import scipy.linalg

import bochner as bo
from bochner.kernels import Gaussian
from bochner.solvers.factorisations import (
    eigenvalues,
    interruptible,
    lower_factor,
    raised,
    solve_lower,
    symmetric,
)

EPS = np.finfo(np.float64).eps
RNG = np.random.default_rng(0)
M = 150


def kernel_matrix(lengthscale):
    return Gaussian(lengthscale)(RNG.standard_normal((M, 3)))


MATRICES = {
    "random": symmetric(RNG.standard_normal((M, M))),
    "kernel": kernel_matrix(1.0),
    "of low rank": kernel_matrix(100.0),
    "diagonal": np.diag(RNG.standard_normal(M)),
    "tridiagonal": np.diag(np.ones(M))
    + np.diag(np.full(M - 1, 0.5), 1)
    + np.diag(np.full(M - 1, 0.5), -1),
    "zero": np.zeros((M, M)),
    "tiny": 1e-200 * kernel_matrix(1.0),
    "huge": 1e200 * kernel_matrix(1.0),
}
every_matrix = pytest.mark.parametrize("name", MATRICES)


def inside(name):
    """The full name of what works in steps."""
    return f"bochner.solvers.factorisations.{name}"


@pytest.fixture
def in_steps(monkeypatch):
    for name, value in {"AT_ONCE": 40, "COLUMNS": 11, "SLAB": 13}.items():
        monkeypatch.setattr(inside(name), value)


@every_matrix
def test_eigenvalues_are_those_of_lapack(name, in_steps):
    A = MATRICES[name]
    expected = scipy.linalg.eigvalsh(A)
    found = eigenvalues(A)
    assert np.all(np.diff(found) >= 0)
    assert found == pytest.approx(expected, rel=0, abs=10 * M * EPS * np.abs(expected).max())


def test_a_matrix_is_factored_and_solved_in_steps(in_steps):
    A = MATRICES["kernel"] + 0.1 * np.eye(M)
    L = lower_factor(A.copy(order="F"))
    assert np.array_equal(L, np.tril(L))
    assert pytest.approx(A, abs=M * EPS * M) == L @ L.T
    B = RNG.standard_normal((M, 30))
    X = solve_lower(L, B)
    assert pytest.approx(B, abs=1e-11) == L @ X


def test_a_matrix_that_is_not_positive_is_refused_in_steps(in_steps):
    with pytest.raises(np.linalg.LinAlgError, match="not positive"):
        lower_factor(MATRICES["random"].copy(order="F"))


def test_a_matrix_without_a_factor_is_raised_until_there_is_one_or_none_can_be():
    tried = []

    def factor(value, A):
        tried.append(value)
        return np.linalg.cholesky(A + value * np.eye(2))

    assert raised(lambda v: factor(v, -np.eye(2)), 0.0, 0.02)[0, 0] == pytest.approx(1.0)
    assert tried == pytest.approx([0.0, 0.02, 0.2, 2.0])
    with pytest.raises(np.linalg.LinAlgError):
        raised(lambda v: np.linalg.cholesky(-np.eye(2)), 0.0, 0.02)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_wait_for_a_decomposition():
    """The work goes on in its thread, without Python's lock."""
    began = time.monotonic()
    Timer(0.1, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: time.sleep(30))
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("below", [True, False])
def test_a_certificate_is_the_same_in_steps(below, monkeypatch):
    """Extreme eigenvalues are sought to 1e-5 either way, from matrices that agree to rounding."""
    X = np.random.default_rng(1).standard_normal((900, 3))
    method = "nystrom" if below else "orthogonal"
    phi = bo.draw(Gaussian(1.5), method, n_features=30, X=X, random_state=0)
    ask = {"alpha": 1.0, "n_sample": 600, "random_state": 0}
    expected = bo.certify(phi, X, **ask).to_dict()
    for name, value in {"AT_ONCE": 100, "SLAB": 70}.items():
        monkeypatch.setattr(inside(name), value)
    found = bo.certify(phi, X, **ask).to_dict()
    for name, value in expected.items():
        exact = value is None or isinstance(value, str)
        assert found[name] == (value if exact else pytest.approx(value, rel=1e-6, abs=1e-9)), name


def test_rows_without_memory_for_their_matrices_are_refused(monkeypatch):
    monkeypatch.setattr("bochner._core.checks._at_most", lambda: 300 << 20)
    X = np.zeros((4000, 1)) + np.arange(4000)[:, None]
    phi = bo.draw(Gaussian(), "iid", n_features=4, n_inputs=1, random_state=0)
    match = r"measuring 3,500 rows densely takes 392 MB of memory at least; there are 315 MB\. Lower n_sample"
    with pytest.raises(bo.errors.InvalidInput, match=match):
        bo.certify(phi, X, alpha=1.0, n_sample=3500)
