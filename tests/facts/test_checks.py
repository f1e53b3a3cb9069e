"""check_kernel, check_features and compare: valid kernels and maps pass, faulty ones fail."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from gallery import KERNELS, points, rows
from gallery import two_maps as maps

import bochner as bo
from bochner import FeatureMap, check_features
from bochner.certificates.comparison import all_methods
from bochner.features import MercerHarmonic, Nystrom, Sign
from bochner.kernels import Custom, Gaussian, Kernel

X = rows(60)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_every_kernel_of_the_gallery_passes(kernel):
    check = bo.check_kernel(kernel, X)
    assert check.ok, str(check)
    assert bool(check)
    assert len(check.laws) == 9
    assert repr(kernel) in str(check)


def scaled_by_the_data(X, Y):
    return np.exp(-((X[:, None] - Y[None]) ** 2).sum(axis=2) / np.median(Y) ** 2)


def writing(X, Y):
    X *= 1.0000001
    return X @ Y.T


def one_sided(X, Y):
    return X @ np.tri(3, dtype=X.dtype) @ Y.T


def at_random(X, Y):
    return X @ Y.T + np.random.default_rng().random()


def holed(X, Y):
    K = X @ Y.T
    return np.where(K > 1, np.nan, K)


#: Functions that are no kernels, the law that they break, and a pattern of the message.
FAULTS = {
    "sigmoid": (lambda X, Y: np.tanh(X @ Y.T - 1), "positive", r"of 60 eigenvalues is -\d"),
    "distance": (lambda X, Y: -((X[:, None] - Y[None]) ** 2).sum(2), "positive", "positive semi-"),
    "bump": (lambda X, Y: (Gaussian()(X, Y) > 0.3).astype(X.dtype), "positive", "no feature map"),
    "one-sided": (one_sided, "symmetric", r"k\(x, y\) must be k\(y, x\); it is"),
    "of the data": (scaled_by_the_data, "rows", "among fewer rows"),
    "random": (at_random, "deterministic", "a second call must return the same"),
    "writes": (writing, "arguments", "wrote into them"),
    "shape": (lambda X, Y: X[:, 0], "shape", "InvalidInput: Custom: the function must return"),
    "not finite": (holed, "shape", r"finite numbers; got \d+ NaN"),
    "raises": (lambda X, Y: X @ Y, "shape", "got ValueError: matmul"),
}


@pytest.mark.parametrize(("function", "flaw", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_reported_with_its_evidence(function, flaw, message):
    check = bo.check_kernel(Custom(function), X)
    assert flaw in [law.name for law in check.failed]
    assert not check
    assert re.search(message, str(check))


@dataclass(frozen=True)
class UserKernel(Kernel):
    """A kernel of a user's class, with the given fault."""

    fault: str = ""

    def evaluate(self, X, Y):
        K = X @ Y.T
        if self.fault == "dtype":
            return K.astype(np.float64)
        if self.fault == "shape":
            return K[:, :1]
        return np.where(K > 1, np.inf, K) if self.fault == "finite" else K

    def diagonal(self, X):
        return (X * X).sum(axis=1) + (self.fault == "diagonal")


def test_a_fault_of_a_kernel_class_is_reported():
    for fault, message in (
        ("dtype", r"must keep the precision of the rows; got float64 of k\(X, Y\) for float32"),
        ("shape", r"k\(X, Y\) must have shape \(30, 60\); got \(30"),
        ("finite", r"must be finite; got inf of k\(X, Y\) at \(\d+, \d+\)"),
        ("diagonal", r"k.diag\(X\) must be the diagonal of k\(X\); it is .* in 60 of 60 values"),
    ):
        check = bo.check_kernel(UserKernel(fault), X)
        assert {flaw.name for flaw in check.failed} == {fault}
        assert re.search(message, str(check))
        assert bo.check_kernel(UserKernel(), X).ok


# ---- check_features: each law passes valid maps, fails faulty ones, and states its measurement


class Broken(FeatureMap):
    """cos and sin of three columns, with the fault ``how``."""

    def __init__(self, kind):
        self.kind, self.kernel, self.calls = kind, Custom(cosines), 0

    n_inputs, n_features = 3, 6
    __repr__ = lambda self: f"Broken {self.kind}"

    @property
    def below_kernel(self):
        return self.kind in ("below_kernel", "exact")

    def features(self, X):
        Z = np.concatenate([np.cos(X), np.sin(X)], axis=1) / np.sqrt(3).astype(X.dtype)
        self.calls += 1
        if self.kind in SPOILED:
            return SPOILED[self.kind](Z, X, self.calls)
        return Z

    def __call__(self, X):
        return self.features(X[:, :3]) if self.kind == "columns" else FeatureMap.__call__(self, X)


def cosines(X, Y):
    return np.cos(X[:, None] - Y[None]).mean(axis=2)


def written(Z, X, calls):
    X += 1
    return Z


SPOILED = {
    "shape": lambda Z, X, c: Z[:, :5],
    "dtype": lambda Z, X, c: Z.astype(np.float64),
    "finite": lambda Z, X, c: np.where(X[:, :1] > 0, np.inf, Z),
    "deterministic": lambda Z, X, c: Z + c,
    "arguments": written,
    "rows": lambda Z, X, c: Z - Z.mean(axis=0),
    "precision": lambda Z, X, c: Z * (1.1 if X.dtype == np.float32 else 1.0),
    "kernel": lambda Z, X, c: Z * 2,
    "below_kernel": lambda Z, X, c: Z * 1.01,
    "raises": lambda Z, X, c: Z @ Z,
}


@pytest.mark.parametrize("kind", [*SPOILED, "columns"])
def test_each_planted_fault_of_features_breaks_its_law(kind):
    check = check_features(Broken(kind), points(40))
    assert not check
    assert check["shape" if kind == "raises" else kind].outcome == "failed"
    assert kind != "raises" or "got ValueError" in str(check)


def test_valid_features_pass_every_law():
    check = check_features(Broken("exact"), points(40))
    assert check.ok
    assert str(check).startswith("Broken exact: on 40 rows")  # the repr of a user's class is used
    assert check["below_kernel"].outcome == "passed"
    assert check["kernel"].number < 1e-12
    assert check["length"].outcome == "not applicable"  # its matrix is stated to be below K
    for phi in maps():
        check = check_features(phi, points())
        assert check.ok, str(check)


def test_features_that_lose_the_norm_of_rows_fail():
    """Order one of a column leaves less than half of k(x, x) where e^{−r²}(1 + r²) < ½."""
    X = points(d=1)
    for order, outcome in ((1, "failed"), (12, "passed")):
        method = bo.Gegenbauer("monomial", order)
        check = check_features(bo.draw(Gaussian(), method, n_features=4096, X=X, random_state=0), X)
        assert check["kernel"].outcome == "passed"
        assert check["length"].outcome == outcome
        assert bool(check) == (outcome == "passed")


class Scaled:
    """A map times a number, with the attributes of the map."""

    def __init__(self, phi, factor):
        self.phi, self.factor, self.kernel = phi, factor, phi.kernel
        self.below_kernel = phi.below_kernel

    def __call__(self, X):
        return self.factor * self.phi(X)


def test_measurements_of_a_map_agree_with_dense_matrices():
    X, (fourier, nystrom) = points(80), maps()
    K = fourier.kernel(X)
    for factor in (0.69, 0.72, 1.0, 1.3):
        Z = factor * fourier(X)
        check = check_features(Scaled(fourier, factor), X)
        distance = np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)
        assert check["kernel"].number == pytest.approx(distance)
        assert check["length"].number == float(factor**2 < 0.5)  # for iid frequencies |φ|² = k
        Z = factor * nystrom(X)
        check = check_features(Scaled(nystrom, factor), X)["below_kernel"]
        minimum = min(np.linalg.eigvalsh(K - Z @ Z.T)[0], 0.0)
        assert check.number == pytest.approx(-minimum / np.linalg.norm(K, 2), abs=1e-9)
        assert check.outcome == ("passed" if factor <= 1 else "failed")


def test_compare_agrees_with_measurements_on_new_rows():
    X = points(1200, 3)
    methods = ["iid", MercerHarmonic(), Nystrom(), Sign()]
    table = bo.compare(Gaussian(2.0), X, n_features=50, methods=methods, random_state=3)
    errors = [row.error for row in table.rows[:3]]
    assert errors == sorted(errors)
    assert table.best == table.rows[0].method == MercerHarmonic()
    assert table.rows[-1].method == Sign()
    assert "Sign" in table.rows[-1].refusal
    fresh = points(800, 3, seed=9)
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


def test_compare_includes_every_method_of_the_library_once():
    methods = all_methods(3)
    assert len(set(methods)) == len(methods)
    left_out = {"Auto", "Compressed", "Projected", "Explicit", "Method", "LaplacianEigenfunctions"}
    left_out |= {"ExactKernel", "LocalKernel", "NearestNeighbours"}  # no features
    public = {n for n in bo.__all__ if isinstance(getattr(bo, n), type)}
    names = {n for n in public if issubclass(getattr(bo, n), bo.Method)}
    assert {type(method).__name__ for method in methods} == names - left_out
