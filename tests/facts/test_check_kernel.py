"""What ``check_kernel`` says of kernels that are none, and that it has nothing to say of those that are."""

from dataclasses import dataclass

import numpy as np
import pytest
from gallery import KERNELS, absolute, rows, squared_products

import bochner as bo
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels import Custom, Gaussian, Kernel, Linear

X = rows(60)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_every_kernel_of_the_gallery_passes(kernel):
    check = bo.check_kernel(kernel, X)
    assert check.ok, str(check)
    assert bool(check)
    assert str(check).endswith("positive semi-definite, diagonal.")
    assert repr(kernel) in str(check)


def gaussian(X, Y):
    return Gaussian()(X, Y)


def scaled_by_the_data(X, Y):
    return np.exp(-((X[:, None] - Y[None]) ** 2).sum(axis=2) / np.median(Y) ** 2)


def writing(X, Y):
    X *= 1.0000001
    return X @ Y.T


def holed(X, Y):
    K = X @ Y.T
    return np.where(K > 1, np.nan, K)


FAULTS = {
    "sigmoid": (
        lambda X, Y: np.tanh(X @ Y.T - 1),
        ["positive"],
        r"smallest of 60 eigenvalues is -\d",
    ),
    "distance": (
        lambda X, Y: -((X[:, None] - Y[None]) ** 2).sum(axis=2),
        ["positive"],
        r"positive semi-def",
    ),
    "bump": (
        lambda X, Y: (Gaussian()(X, Y) > 0.3).astype(X.dtype),
        ["positive"],
        r"no feature map",
    ),
    "one-sided": (
        lambda X, Y: X @ np.triu(np.ones((3, 3)), 0).astype(X.dtype) @ Y.T,
        ["symmetric"],
        r"k\(x, y\) must be k\(y, x\); it is",
    ),
    "of the data": (scaled_by_the_data, ["rows"], r"beside other rows"),
    "random": (
        lambda X, Y: X @ Y.T + np.random.default_rng().random(),
        ["deterministic"],
        r"the same when asked again",
    ),
    "writes": (writing, ["arguments"], r"wrote into them"),
    "shape": (
        lambda X, Y: X[:, 0],
        ["raises"],
        r"InvalidInput: Custom: the function must return an array of shape",
    ),
    "not finite": (holed, ["raises"], r"finite numbers; got \d+ NaN"),
    "raises": (lambda X, Y: X @ Y, ["raises"], r"raised ValueError: matmul"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_evidence(name):
    function, names, message = FAULTS[name]
    check = bo.check_kernel(Custom(function), X)
    found = [flaw.name for flaw in check.flaws]
    assert set(names) <= set(found)
    assert not check.ok
    assert not check
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(str(check))


def test_evidence_of_a_negative_direction_is_one():
    (flaw,) = bo.check_kernel(Custom(FAULTS["sigmoid"][0]), X).flaws
    c, at = flaw.evidence["c"], flaw.evidence["rows"]
    assert c @ np.tanh(at @ at.T - 1) @ c == pytest.approx(flaw.evidence["smallest"])
    assert flaw.evidence["smallest"] < -0.1


@dataclass(frozen=True)
class Own(Kernel):
    """A kernel of a user's own class, with a fault to choose."""

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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("dtype", r"must keep the precision of the rows; got float64 for float32"),
        (
            "shape",
            r"k\(X, Y\) must have one value for each pair of rows, shape \(30, 60\); got \(30, 1\)",
        ),
        ("finite", r"must be finite; got inf at \(\d+, \d+\) in float64"),
        ("diagonal", r"k.diag\(X\) must be the diagonal of k\(X\); it is .* in 60 of 60 values"),
    ],
)
def test_a_fault_of_a_class_is_named(fault, message):
    check = bo.check_kernel(Own(fault), X)
    assert {flaw.name for flaw in check.flaws} == {fault}
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(str(check))
    assert bo.check_kernel(Own(), X).ok


def test_wrong_arguments_are_refused():
    with pytest.raises(
        InvalidType, match=r"kernel must be a Kernel; got <function.*Custom\(function\)"
    ):
        bo.check_kernel(squared_products, X)
    with pytest.raises(InvalidInput, match=r"check_kernel: X must have at least one row; got 0"):
        bo.check_kernel(Linear(), X[:0])


# ---- functions as kernels


def test_a_function_is_a_kernel_like_any_other():
    kernel, y = Custom(gaussian), np.sin(X[:, 0])
    assert (kernel(X) == Gaussian()(X)).all()
    assert kernel == Custom(gaussian)
    assert hash(kernel) == hash(Custom(gaussian))
    assert kernel != Custom(squared_products)
    a, b = (
        bo.KernelRidge(k, method="nystrom", n_features=30, alpha=1e-3, random_state=0)
        .fit(X, y)
        .predict(X)
        for k in (kernel, Gaussian())
    )
    np.testing.assert_allclose(a, b, atol=1e-8)
    assert (
        bo.draw(2.0 * kernel + Linear(), "nystrom", n_features=20, X=X, random_state=0)(X)
    ).shape == (60, 20)


def test_a_diagonal_of_its_own_is_used():
    kernel = Custom(gaussian, diagonal_of=lambda X: 0 * X[:, 0] + 1)
    assert (kernel.diag(rows(200)) == 1).all()
    assert "diagonal_of=" in repr(kernel)
    assert (Custom(gaussian).diag(rows(200)) == 1).all()
    assert Custom(gaussian).diag(rows(200)[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Custom("rbf"),
            InvalidType,
            r"Custom: function must be a function of rows; got 'rbf'",
        ),
        (lambda: Custom(gaussian, 1.0), InvalidType, r"Custom: diagonal_of must be a function"),
        (
            lambda: Custom(lambda X, Y: 1.0)(X),
            InvalidInput,
            r"shape \(60, 60\) for 60 rows; got float",
        ),
        (
            lambda: Custom(gaussian, lambda X: X).diag(X),
            InvalidInput,
            r"shape \(60,\) for 60 rows; got \(60, 3\)",
        ),
        (
            lambda: bo.kernels.Warped(absolute, "gaussian"),
            InvalidType,
            r"Warped: kernel must be a kernel; got 'gaussian'",
        ),
        (
            lambda: bo.kernels.Warped(3, Gaussian()),
            InvalidType,
            r"Warped: function must be a function of rows; got 3",
        ),
        (
            lambda: bo.kernels.Warped(lambda X: X[:, 0], Gaussian())(X),
            InvalidInput,
            r"Warped: the function must return.*got \(60,\)",
        ),
        (
            lambda: bo.kernels.Modulated(lambda X: X, Gaussian())(X),
            InvalidInput,
            r"Modulated: the function must return.*got \(60, 3\)",
        ),
        (
            lambda: bo.kernels.Bilinear(-np.eye(2)),
            bo.errors.NotPositive,
            r"Bilinear: matrix must be positive semi-definite; got smallest eigenvalue -1",
        ),
        (
            lambda: bo.kernels.Bilinear([[0, 1], [0, 0]]),
            bo.errors.NotPositive,
            r"Bilinear: matrix must be symmetric",
        ),
        (
            lambda: bo.kernels.Bilinear(np.eye(2))(X),
            InvalidInput,
            r"Bilinear: matrix must have one row and column per column of X; got 2 for 3",
        ),
        (
            lambda: bo.kernels.Exp(1e6 * Linear())(X),
            InvalidInput,
            r"Exp: values of the kernel.*overflow.*Scale the kernel down",
        ),
        (
            lambda: Gaussian() ** 0,
            InvalidInput,
            r"Power: exponent must be an integer, 1 or above; got 0",
        ),
        (lambda: Gaussian() ** 1.5, InvalidType, r"Power: exponent must be an integer"),
    ],
)
def test_wrong_kernels_are_refused_in_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()
