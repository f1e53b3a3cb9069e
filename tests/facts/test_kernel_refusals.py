"""What kernels refuse, in one sentence each: who, what was required, what came, what to do."""

import numpy as np
import pytest
import scipy.sparse
import torch

from bochner.errors import BochnerError, InvalidInput, InvalidType, NotPositive
from bochner.kernels import (
    Cauchy,
    Columns,
    Constant,
    Exponential,
    Gaussian,
    Laplace,
    Linear,
    Mahalanobis,
    Matern,
    RationalQuadratic,
    Scaled,
    Sum,
)

X = np.ones((4, 3))
SPARSE = scipy.sparse.csr_array(X)

VALUES = {
    "negative": (
        lambda: Gaussian(-1.0),
        InvalidInput,
        r"lengthscale must be a positive finite number; got -1\.0\. Pass a value above",
    ),
    "zero": (
        lambda: Laplace(0),
        InvalidInput,
        r"Laplace: lengthscale must be a positive .*got 0\.0",
    ),
    "nan": (lambda: Cauchy(float("nan")), InvalidInput, r"Cauchy: lengthscale .*; got nan"),
    "infinite": (lambda: Exponential(np.inf), InvalidInput, r"lengthscale .*; got inf"),
    "a negative one": (lambda: Gaussian([1, -2]), InvalidInput, r"lengthscale\[1\] .*got -2\.0"),
    "an infinite one": (
        lambda: Gaussian((1.0, np.inf)),
        InvalidInput,
        r"lengthscale\[1\] .*got inf",
    ),
    "nested": (
        lambda: Gaussian([[1.0]]),
        InvalidType,
        r"lengthscale\[0\] .*got \[1\.0\] of type list",
    ),
    "empty": (lambda: Gaussian([]), InvalidInput, r"one per column; got an empty sequence"),
    "text": (
        lambda: Matern(1.5, "long"),
        InvalidType,
        r"Matern: lengthscale .*; got 'long' of type str",
    ),
    "none": (lambda: Gaussian(None), InvalidType, r"got None of type NoneType"),
    "truth": (lambda: Gaussian(True), InvalidType, r"got True of type bool"),
    "complex": (lambda: Gaussian(1j), InvalidType, r"got 1j of type complex"),
    "smoothness": (lambda: Matern(0.0), InvalidInput, r"Matern: smoothness must be a positive"),
    "shape": (
        lambda: RationalQuadratic(-0.5),
        InvalidInput,
        r"RationalQuadratic: shape must be a positive",
    ),
    "constant": (
        lambda: Constant(-1),
        InvalidInput,
        r"Constant: value must be a non-negative finite number; got -1",
    ),
    "scale": (
        lambda: -2.0 * Gaussian(),
        InvalidInput,
        r"Scaled: scale must be a positive finite number; got -2\.0",
    ),
    "sum with a negative number": (
        lambda: Gaussian() + -1.0,
        InvalidInput,
        r"Constant: value must be",
    ),
    "no kernel": (
        lambda: Scaled(1.0, "gaussian"),
        InvalidType,
        r"Scaled: kernel must be a kernel; got 'gaussian' of type str",
    ),
    "a class": (
        lambda: Sum(Gaussian(), Gaussian),
        InvalidType,
        r"Sum: right must be a kernel; got <class",
    ),
    "column twice": (
        lambda: Columns(Gaussian(), [0, 0]),
        InvalidInput,
        r"Columns: columns must be different column numbers.*got \(0, 0\)",
    ),
    "no column": (lambda: Columns(Gaussian(), []), InvalidInput, r"at least one; got \(\)"),
    "column below zero": (
        lambda: Columns(Gaussian(), [-1]),
        InvalidInput,
        r"columns\[0\] must be an integer, 0 or above; got -1",
    ),
    "column name": (
        lambda: Columns(Gaussian(), ["age"]),
        InvalidType,
        r"columns\[0\] must be an integer.*got 'age'",
    ),
    "ragged metric": (
        lambda: Mahalanobis(Gaussian(), [[1.0], [0.0, 1.0]]),
        InvalidInput,
        r"Mahalanobis: matrix must be square",
    ),
    "metric of nan": (
        lambda: Mahalanobis(Gaussian(), [[np.nan]]),
        InvalidInput,
        r"matrix\[0, 0\] must be a finite number; got nan",
    ),
    "lopsided metric": (
        lambda: Mahalanobis(Gaussian(), [[1, 1], [0, 1]]),
        NotPositive,
        r"must be symmetric; got entries that differ from their mirror by 1",
    ),
    "negative metric": (
        lambda: Mahalanobis(Gaussian(), [[1, 2], [2, 1]]),
        NotPositive,
        r"positive semi-definite; got smallest eigenvalue -1",
    ),
    "unknown parameter": (
        lambda: Gaussian().replace(colour=1),
        InvalidInput,
        r"Gaussian has no parameter 'colour'; its parameters are: lengthscale",
    ),
    "parameter of another name": (
        lambda: Gaussian().replace(scale=1),
        InvalidInput,
        r"Gaussian has no parameter 'scale': give lengthscale, with the same meaning\.",
    ),
    "unknown path": (
        lambda: (2 * Gaussian()).replace(kernel__x=1),
        InvalidInput,
        r"Gaussian has no parameter 'x'; its parameters are: lengthscale",
    ),
    "path into a number": (
        lambda: Gaussian().replace(lengthscale__x=1),
        InvalidInput,
        r"Gaussian has no parameter 'lengthscale__x'",
    ),
    "no parameters": (
        lambda: Linear().replace(x=1),
        InvalidInput,
        r"Linear has no parameter 'x'; its parameters are: none: it has no",
    ),
    "bad replacement": (
        lambda: (2 * Gaussian()).replace(kernel__lengthscale=0),
        InvalidInput,
        r"Gaussian: lengthscale must be a positive",
    ),
    "no dimension": (
        lambda: Gaussian().spectral_measure(0),
        InvalidInput,
        r"Gaussian\.spectral_measure: d must be an integer, 1 or above; got 0",
    ),
    "wrong dimension": (
        lambda: Gaussian((1.0, 2.0)).spectral_measure(3),
        InvalidInput,
        r"one per column; got 2 for 3 columns",
    ),
}

ARRAYS = {
    "one dimension": (
        Gaussian(),
        (X[0],),
        InvalidInput,
        r"Gaussian: X must have two dimensions.*; got shape \(3,\)\. Pass X\.reshape",
    ),
    "three dimensions": (
        Gaussian(),
        (X, X[None]),
        InvalidInput,
        r"Y must have two dimensions.*\(1, 4, 3\)",
    ),
    "no columns": (
        Linear(),
        (X[:, :0],),
        InvalidInput,
        r"Linear: X must have .*at least one column; got shape \(4, 0\)",
    ),
    "a number": (Gaussian(), (1.0,), InvalidInput, r"got shape \(\)"),
    "ragged": (
        Gaussian(),
        ([[1.0], [1.0, 2.0]],),
        InvalidInput,
        r"X must be a table of numbers, rows of equal length; got list",
    ),
    "other columns": (
        Gaussian(),
        (X, X[:, :2]),
        InvalidInput,
        r"X and Y must have the same columns; got 3 and 2",
    ),
    "other library": (
        Gaussian(),
        (X, torch.ones(2, 3)),
        InvalidType,
        r"one array library; got numpy\.ndarray and torch\.Tensor",
    ),
    "complex": (
        Gaussian(),
        (X * 1j,),
        InvalidType,
        r"X must hold real numbers; got dtype complex128",
    ),
    "complex torch": (
        Gaussian(),
        (torch.ones(2, 3, dtype=torch.complex64),),
        InvalidType,
        r"got dtype torch\.complex64",
    ),
    "text": (Gaussian(), ([["a", "b"]],), InvalidType, r"X must hold real numbers; got dtype <U1"),
    "objects": (Gaussian(), (np.array([[None]]),), InvalidType, r"real numbers; got dtype object"),
    "dates": (
        Gaussian(),
        (np.array([["2020-01-01"]], dtype="M8[D]"),),
        InvalidType,
        r"got dtype datetime64",
    ),
    "nan": (
        Gaussian(),
        (np.array([[np.nan]]),),
        InvalidInput,
        r"X must be finite; got NaN or infinity\. Remove",
    ),
    "infinite Y": (Linear(), (X, X * np.inf), InvalidInput, r"Linear: Y must be finite"),
    "infinite torch": (
        Linear(),
        (torch.full((2, 2), torch.inf),),
        InvalidInput,
        r"X must be finite",
    ),
    "sparse nan": (Linear(), (SPARSE * np.nan,), InvalidInput, r"X must be finite"),
    "masked": (
        Gaussian(),
        (np.ma.masked_equal(np.eye(2), 1.0),),
        InvalidInput,
        r"X must have no missing values; got a masked array with 2 masked",
    ),
    "lengthscales": (
        Gaussian((1.0, 2.0)),
        (X,),
        InvalidInput,
        r"Gaussian: lengthscale must be one number or one per column; got 2 for 3 columns\. Pass 3",
    ),
    "column": (
        Columns(Gaussian(), (0, 3)),
        (X,),
        InvalidInput,
        r"below the number of columns of X; got column 3 of 3",
    ),
    "metric": (
        Mahalanobis(Gaussian(), np.eye(2)),
        (X,),
        InvalidInput,
        r"one row and column per column of X; got 2 for 3 columns",
    ),
    "sparse Laplace": (
        Laplace(),
        (SPARSE,),
        InvalidInput,
        r"Laplace: X must be dense, .*X\.toarray\(\), or use a kernel of the Euclidean distance",
    ),
    "sparse in a sum": (Linear() + Cauchy(), (X, SPARSE), InvalidInput, r"Cauchy: X must be dense"),
    "tiny lengthscale": (
        Gaussian(1e-300),
        (np.array([[0.0], [1e10]]),),
        InvalidInput,
        r"X divided by lengthscale must be a number of dtype float64; got an overflow",
    ),
    "tiny for float32": (
        Gaussian(1e-30),
        (np.array([[0.0], [1e10]], dtype=np.float32),),
        InvalidInput,
        r"dtype float32; got an overflow with lengthscale 1e-30",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_refused_when_they_are_made(name):
    make, error, message = VALUES[name]
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_refused_at_the_door(name):
    kernel, arrays, error, message = ARRAYS[name]
    with pytest.raises(error, match=message):
        kernel(*arrays)


SEEN_BY_DIAG = [
    name
    for name, (_, arrays, _, _) in ARRAYS.items()
    if len(arrays) == 1 and not name.startswith(("sparse L", "tiny"))
]


@pytest.mark.parametrize("name", SEEN_BY_DIAG)
def test_diag_refuses_the_same_arrays(name):
    kernel, arrays, error, message = ARRAYS[name]
    with pytest.raises(error, match=message):
        kernel.diag(*arrays)


def test_every_refusal_is_one_error_of_bochner():
    for _, error, _ in VALUES.values():
        assert issubclass(error, BochnerError)


@pytest.mark.parametrize("other", ["2", None, True, 1j, [1.0]])
def test_algebra_with_other_things_is_a_type_error(other):
    with pytest.raises(TypeError):
        Gaussian() * other
    with pytest.raises(TypeError):
        other + Gaussian()


def test_unmasked_and_matrix_subclasses_are_taken():
    table = np.arange(6.0).reshape(2, 3)
    assert (Linear()(np.ma.masked_array(table)) == Linear()(table)).all()
    assert type(Linear()(table.view(np.recarray))) is np.ndarray


@pytest.mark.parametrize("magnitude", [1e-30, 1e18, 1e25, 1e37])
@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(),
        Matern(0.5),
        Matern(1.5),
        Matern(2.5),
        Matern(3.7),
        Matern(40.0),
        Laplace(),
        Cauchy(),
        RationalQuadratic(),
    ],
    ids=repr,
)
def test_huge_and_tiny_data_give_ones_and_zeros(kernel, magnitude):
    """Squared distances pass the largest float32 from 1e19 on."""
    K = kernel(np.array([[magnitude], [-magnitude]], dtype=np.float32))
    assert (np.diag(K) == 1).all()
    assert K[0, 1] == pytest.approx(1.0 if magnitude < 1 else 0.0, abs=1e-30)
