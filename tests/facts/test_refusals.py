"""What is refused: one table of calls, the error of each, and words that its message must have."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from scipy.special import gammaln
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError

import bochner as bo
from bochner import CustomLoss, models
from bochner.datasets import on_sphere
from bochner.errors import InvalidInput, InvalidType, NotPositive, UnsupportedKernel
from bochner.kernels import (
    Cauchy,
    Coefficients,
    Columns,
    Constant,
    DotExponential,
    DotProduct,
    Exponential,
    Gaussian,
    Homogeneous,
    Laplace,
    Linear,
    LogDerivatives,
    Mahalanobis,
    Matern,
    Periodic,
    RationalQuadratic,
    Scaled,
    Sum,
)
from bochner.kernels.dotproduct import Binomial, ExponentialSeries
from bochner.kernels.radial import isotropic, monomials, radial_kernels
from bochner.solvers.convex.losses import as_levels

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
ONES = np.ones(1)
SPARSE = scipy.sparse.csr_array(X)
DATES = np.arange(180).reshape(60, 3).astype("datetime64[s]")
TWICE = pd.DataFrame(np.column_stack([X, Y]), columns=list("abca"))


def put(array, value):
    array = array.copy()
    array[3, ...] = value
    return array


def model(kernel="gaussian", **changes):
    return bo.KernelRidge(kernel, **dict(n_features=32, random_state=0) | changes)


def near(kernel=None, **options):
    kernel = kernel or Matern(1.5, 0.3)
    return bo.GaussianProcessRegressor(kernel, method=bo.NearestNeighbours(), **options)


def waves(kernel, tolerance):
    return bo.KernelRidge(kernel, method=bo.FourierGrid(tolerance), alpha=1.0)


FITTED = model().fit(X, Y)


class NotAKernel(Homogeneous):
    """−cos θ, a function of the angle that is no kernel."""

    degree = 0

    def profile(self, angle):
        return -angle.cos

    def __repr__(self):
        return "NotAKernel()"


CASES = [
    # values of kernels
    (lambda: Gaussian(-1.0), InvalidInput, "lengthscale must be a positive finite"),
    (lambda: Laplace(0), InvalidInput, "Laplace: lengthscale must be a positive .*got"),
    (lambda: Cauchy(np.nan), InvalidInput, "Cauchy: lengthscale .*; got nan"),
    (lambda: Exponential(np.inf), InvalidInput, "lengthscale .*; got inf"),
    (lambda: Gaussian([1, -2]), InvalidInput, r"lengthscale\[1\] .*got -2\.0"),
    (lambda: Gaussian((1.0, np.inf)), InvalidInput, r"lengthscale\[1\] .*got"),
    (lambda: Gaussian([[1.0]]), InvalidType, r"lengthscale\[0\] .*got \[1\.0\] of type"),
    (lambda: Gaussian([]), InvalidInput, "one per column; got an empty sequence"),
    (lambda: Matern(1.5, "long"), InvalidType, "Matern: lengthscale .*; got 'long' of"),
    (lambda: Gaussian(None), InvalidType, "got None of type NoneType"),
    (lambda: Gaussian(True), InvalidType, "got True of type bool"),
    (lambda: Gaussian(1j), InvalidType, "got 1j of type complex"),
    (lambda: Matern(0.0), InvalidInput, "Matern: smoothness must be a positive"),
    (lambda: RationalQuadratic(-0.5), InvalidInput, "RationalQuadratic: shape must be a"),
    (lambda: Constant(-1), InvalidInput, "Constant: value must be a non-negative"),
    (lambda: -2.0 * Gaussian(), InvalidInput, "Scaled: scale must be a positive finite"),
    (lambda: Gaussian() + -1.0, InvalidInput, "Constant: value must"),
    (lambda: Scaled(1.0, "gaussian"), InvalidType, "Scaled: kernel must be a kernel"),
    (lambda: Sum(Gaussian(), Gaussian), InvalidType, "Sum: right must be a kernel; got"),
    (lambda: Columns(Gaussian(), [0, 0]), InvalidInput, "Columns: columns must be"),
    (lambda: Columns(Gaussian(), []), InvalidInput, r"at least one; got \(\)"),
    (lambda: Columns(Gaussian(), [-1]), InvalidInput, r"columns\[0\] must be"),
    (lambda: Columns(Gaussian(), ["age"]), InvalidType, r"columns\[0\] must be an"),
    (lambda: Mahalanobis(Gaussian(), [[1.0], [0.0, 1.0]]), InvalidInput, "Mahalanobis: matrix"),
    (lambda: Mahalanobis(Gaussian(), [[np.nan]]), InvalidInput, r"matrix\[0, 0\]"),
    (lambda: Mahalanobis(Gaussian(), [[1, 1], [0, 1]]), NotPositive, "must be symmetric; got"),
    (lambda: Mahalanobis(Gaussian(), [[1, 2], [2, 1]]), NotPositive, "positive semi-definite; got"),
    (lambda: Gaussian().replace(colour=1), InvalidInput, "Gaussian has no"),
    (lambda: Gaussian().replace(scale=1), InvalidInput, r"meaning\."),
    (lambda: (2 * Gaussian()).replace(kernel__x=1), InvalidInput, "Gaussian has"),
    (lambda: Gaussian().replace(lengthscale__x=1), InvalidInput, "Gaussian has no parameter"),
    (lambda: Linear().replace(x=1), InvalidInput, "Linear has no parameter 'x'"),
    (lambda: (2 * Gaussian()).replace(kernel__lengthscale=0), InvalidInput, "Gaussian:"),
    (lambda: Gaussian().spectral_measure(0), InvalidInput, "1 or above; got 0"),
    (lambda: Gaussian((1.0, 2.0)).spectral_measure(3), InvalidInput, "one per column; got 2 for 3"),
    # arrays given to kernels
    (lambda: Gaussian()(X[0]), InvalidInput, "Gaussian: X must have two"),
    (lambda: Gaussian()(X, X[None]), InvalidInput, "Y must have two"),
    (lambda: Linear()(X[:, :0]), InvalidInput, "Linear: X must have .*at least one"),
    (lambda: Gaussian()(1.0), InvalidInput, r"got shape \(\)"),
    (lambda: Gaussian()([[1.0], [1.0, 2.0]]), InvalidInput, "X must be a table of"),
    (lambda: Gaussian()(X, X[:, :2]), InvalidInput, "X and Y must have the same"),
    (lambda: Gaussian()(X, torch.ones(2, 3)), InvalidType, "one array library"),
    (lambda: Gaussian()(X * 1j), InvalidType, "X must hold real numbers; got dtype"),
    (lambda: Gaussian()(torch.ones(2, 3, dtype=torch.complex64)), InvalidType, "got dtype"),
    (lambda: Gaussian()([["a", "b"]]), InvalidType, "X must hold real numbers; got dtype"),
    (lambda: Gaussian()(np.array([[None]])), InvalidType, "real numbers; got dtype"),
    (lambda: Gaussian()(np.array([["2020-01-01"]], dtype="M8[D]")), InvalidType, "got dtype"),
    (lambda: Gaussian()(np.array([[np.nan]])), InvalidInput, "X must be finite; got NaN or"),
    (lambda: Linear()(X, X * np.inf), InvalidInput, "Linear: Y must be finite"),
    (lambda: Linear()(torch.full((2, 2), torch.inf)), InvalidInput, "be finite"),
    (lambda: Linear()(SPARSE * np.nan), InvalidInput, "X must be finite"),
    (lambda: Gaussian()(np.ma.masked_equal(np.eye(2), 1.0)), InvalidInput, "2 masked"),
    (lambda: Gaussian((1.0, 2.0))(X), InvalidInput, "Gaussian: lengthscale must"),
    (lambda: Columns(Gaussian(), (0, 3))(X), InvalidInput, "below the number of columns"),
    (lambda: Mahalanobis(Gaussian(), np.eye(2))(X), InvalidInput, "one row and column"),
    (lambda: Laplace()(SPARSE), InvalidInput, "Laplace: X must be dense, "),
    (lambda: (Linear() + Cauchy())(X, SPARSE), InvalidInput, "Cauchy: X must"),
    (lambda: Gaussian(1e-300)(np.array([[0.0], [1e10]])), InvalidInput, "X divided by lengthscale"),
    (
        lambda: Gaussian(1e-30)(np.array([[0.0], [1e10]], dtype=np.float32)),
        InvalidInput,
        "dtype float32; got an overflow with lengthscale 1e-30",
    ),
    (lambda: Gaussian().diag(X[0]), InvalidInput, "Gaussian: X must have"),
    (lambda: Gaussian().diag(X * 1j), InvalidType, "X must hold real numbers"),
    (lambda: Linear().diag(X * np.nan), InvalidInput, "X must be finite"),
    (lambda: Gaussian((1.0, 2.0)).diag(X), InvalidInput, "got 2 for 3"),
    # series and radial kernels
    (lambda: radial_kernels(Laplace(), 3), UnsupportedKernel, "require a kernel of"),
    (lambda: radial_kernels(Columns(Gaussian(), 0), 3), UnsupportedKernel, "got Columns"),
    (lambda: radial_kernels(Gaussian((1.0, 2.0)), 2), UnsupportedKernel, "one lengthscale for all"),
    (lambda: isotropic(Linear(), 2), UnsupportedKernel, "kernel of the Euclidean"),
    (
        lambda: monomials(radial_kernels(Matern(), 3), 2, 2, ONES),
        UnsupportedKernel,
        "Monomial radial functions require a kernel of ⟨x, y⟩ or the Gaussian; got",
    ),
    (
        lambda: radial_kernels(NotAKernel(), 3).matrix(1, ONES, ONES),
        NotPositive,
        "positive semi-definite in dimension 3; got coefficient -1 of degree 1 from NotAKernel",
    ),
    (
        lambda: radial_kernels(DotExponential(), 3).matrix(0, 30 * ONES, 30 * ONES),
        InvalidInput,
        r"scale·\|x\|·\|y\| must be below 700; got an overflow",
    ),
    (
        lambda: radial_kernels(DotProduct(lambda n: gammaln(n + 1.0)), 3).matrix(0, ONES, ONES),
        InvalidInput,
        r"power series must converge at \|x\|·\|y\|; at 1 it has not after 4096 terms",
    ),
    (lambda: DotProduct(lambda n: gammaln(n + 1.0))([[2.0]]), InvalidInput, "must converge at"),
    (lambda: Coefficients((1.0, -0.5)), NotPositive, "Coefficients:"),
    (lambda: DotProduct(()), InvalidInput, r"at least one; got \(\)"),
    (lambda: Coefficients("exp"), InvalidInput, "sequence of numbers.*got 'exp'"),
    (lambda: Coefficients((np.inf,)), InvalidInput, r"values\[0\] must be a finite"),
    (lambda: LogDerivatives(2.0), InvalidType, "LogDerivatives: function must be a"),
    (lambda: LogDerivatives(np.abs, -1), InvalidInput, "degree must be an"),
    (
        lambda: LogDerivatives(lambda n: np.nan * n).log_derivative(np.arange(2)),
        NotPositive,
        "function must return, for each integer n, the logarithm",
    ),
    (
        lambda: LogDerivatives(lambda n: 1.0).log_derivative(np.arange(2)),
        NotPositive,
        r"for each integer n, .* got array\(1\.\)",
    ),
    (lambda: ExponentialSeries(0.0), InvalidInput, "scale must be a positive"),
    (lambda: Binomial(-1), InvalidInput, "power must be an integer, 0 or above"),
    (lambda: Binomial(2, -1.0), InvalidInput, "offset must be a non-negative"),
    # rows, targets and weights of a fit
    (lambda: model().fit(X[:, :0], Y), ValueError, r"0 feature\(s\).*minimum of 1"),
    (lambda: model().fit(X[None], Y), ValueError, "KernelRidge: X with three"),
    (lambda: model().fit(X + 1j, Y), ValueError, "Complex data not supported"),
    (lambda: model().fit(np.ma.masked_array(X, X > 2), Y), ValueError, "X must have no"),
    (lambda: model().fit(np.full((60, 3), "a"), Y), ValueError, "X must hold numbers"),
    (lambda: model().fit(np.full((60, 3), "a", object), Y), ValueError, "X must hold numbers; got"),
    (lambda: model().fit(DATES, Y), InvalidType, "KernelRidge: X must hold real numbers"),
    (lambda: model().fit(DATES - DATES[0], Y), InvalidType, "X must hold real"),
    (lambda: model().fit([[1.0, 2.0], [3.0]], [1.0, 2.0]), ValueError, "of equal length"),
    (lambda: model().fit("table.csv", Y), ValueError, "X must be rows; got the text"),
    (lambda: model().fit(None, Y), ValueError, r"two dimensions, .*; got shape \(\)"),
    (lambda: model().fit(X, np.full(60, "a")), InvalidType, "KernelRidge: y must hold"),
    (lambda: model().fit(X, np.full(60, "a", object)), InvalidType, "Ridge: y .* a classifier"),
    (lambda: model().fit(X, np.full(60, "0,5")), InvalidType, "got text, such as"),
    (lambda: model().fit(X, DATES[:, 0] - DATES[0, 0]), InvalidType, "by a unit"),
    (lambda: model().fit(X, DATES[:, 0]), InvalidType, "KernelRidge: y .* got dtype"),
    (lambda: model().fit(X, put(Y, np.inf)), ValueError, "y must hold finite"),
    (lambda: model().fit(X, Y + 1j), ValueError, "Complex data not supported"),
    (lambda: model().fit(X, Y[:, None, None]), ValueError, "with dim 3"),
    (lambda: model().fit(X, np.ma.masked_array(Y, Y > 1)), ValueError, "got a masked"),
    (lambda: model().fit(X, Y * 1e170), ValueError, "y must lie within"),
    (
        lambda: model(Gaussian()).fit(X, Y, put(np.ones(60), np.nan)),
        ValueError,
        "Input sample_weight contains NaN",
    ),
    (lambda: model(Gaussian()).fit(X, Y, np.ones((60, 2))), ValueError, "must be 1D array or"),
    (lambda: model(Gaussian()).fit(X, Y, np.full(60, "a")), ValueError, "could not convert string"),
    (
        lambda: model(Gaussian()).fit(X, Y, np.ma.masked_array(np.ones(60), Y > 1)),
        ValueError,
        "sample_weight must have no missing",
    ),
    (lambda: model().fit(X, Y, DATES[:, 0]), InvalidType, "sample_weight must hold real"),
    (lambda: model().fit(TWICE, Y), InvalidInput, "columns of X must have different names; got"),
    (lambda: model().fit(pd.Series(Y), Y), InvalidInput, r"Pass X.to_frame\(\)"),
    (lambda: model().fit(pd.Series(["a"] * 60), Y), InvalidInput, "got a Series"),
    (lambda: model().fit(pl.Series("a", Y), Y), InvalidInput, "got a Series"),
    (lambda: model().fit(X * np.nan, Y), InvalidInput, "must tell rows apart; got none"),
    (lambda: model().fit(X * 1e-315, Y), InvalidInput, "differences float64 holds to all its"),
    (lambda: model("laplace").fit(X * 1e-315, Y), InvalidInput, "differences float64 holds"),
    # parameters of a learner
    (lambda: model(n_features=33, method="iid").fit(X, Y), ValueError, "even number of"),
    (lambda: model(kernel="laplace", method="orthogonal").fit(X, Y), ValueError, "Euclidean"),
    (lambda: model(fit_intercept="no").fit(X, Y), InvalidType, "fit_intercept must be True or"),
    (lambda: model(fit_intercept=None).fit(X, Y), InvalidType, "fit_intercept must be True"),
    (lambda: bo.draw(Gaussian(), n_features=8, n_inputs=1.5), InvalidType, "draw: n_inputs must"),
    (lambda: bo.draw(Gaussian(), n_features=8, n_inputs=True), InvalidType, "n_inputs must be an"),
    (lambda: bo.draw(Gaussian(), n_features=8, n_inputs="3"), InvalidType, "n_inputs must be an"),
    (lambda: bo.draw(Gaussian(), n_features=8, n_inputs=0), InvalidInput, "n_inputs must be an"),
    # rows to predict
    (lambda: FITTED.predict(put(X, np.nan)), ValueError, "the rows of the fit had none"),
    (lambda: FITTED.predict(X[:0]), ValueError, r"0 sample\(s\).*minimum of 1 is"),
    (lambda: FITTED.predict(np.full((2, 3), "a")), ValueError, "X must hold numbers; got"),
    (lambda: FITTED.predict(np.ma.masked_array(X, X > 2)), ValueError, "X must have no"),
    (lambda: FITTED.predict(X + 1j), ValueError, "Complex data not supported"),
    (lambda: FITTED.predict(pd.DataFrame(DATES)), InvalidType, "KernelRidge: X must hold real"),
    (lambda: FITTED.predict(TWICE), InvalidInput, "must have different names; got 'a' more than"),
    (lambda: model().certificate_, NotFittedError, "This KernelRidge instance is not fitted yet"),
    (lambda: model().certify(X), NotFittedError, "instance is not fitted yet"),
    (lambda: bo.merge(model()), NotFittedError, "instance is not fitted yet"),
    (lambda: bo.tune(model(), X, 1e300 * Y), InvalidInput, "tune: y must .* by a power of ten"),
    (lambda: bo.tune(model(), X, 1e-300 * Y), InvalidInput, "tune: y must .* by a power of ten"),
    # other calls
    (lambda: model(n_jobs=0).fit(X, Y), InvalidInput, "KernelRidge: n_jobs must be None"),
    (lambda: model(n_jobs=1.5).fit(X, Y), InvalidInput, "n_jobs must be None or an"),
    (lambda: model(n_jobs=True).fit(X, Y), InvalidInput, "n_jobs must be None or an"),
    (lambda: on_sphere([13.4, 151.2], [52.5, -33.9]), InvalidInput, "latitude must lie within"),
    (lambda: on_sphere([13.4], [np.nan]), InvalidInput, "longitude must be finite"),
    (lambda: CustomLoss("square", np.add, np.add), InvalidType, r"must be functions of \(y, f\)"),
    *(
        (lambda q=q: as_levels(q), InvalidInput, "quantiles must lie between 0 and 1")
        for q in (0.0, 1.0, (0.5, 0.5), (0.9, 0.1), (), (0.2, 1.2))
    ),
    (lambda: bo.NearestNeighbours(0), InvalidInput, "neighbours must be an integer, 1"),
    (lambda: bo.NearestNeighbours(after=bo.NearestNeighbours()), InvalidInput, "after must be a"),
    (lambda: near(Linear()).fit(X, Y), UnsupportedKernel, "requires a stationary kernel"),
    (lambda: near().fit(X[:1], Y[:1]), InvalidInput, "at least 2 rows of positive"),
    (lambda: near(metric="learned").fit(X, Y), InvalidInput, 'metric="learned" chooses features'),
    (
        lambda: model(Matern(), method=bo.NearestNeighbours()).fit(X, Y),
        InvalidInput,
        "NearestNeighbours makes no features",
    ),
    (
        lambda: waves(Periodic(1.0) + Periodic(2**0.5), 1e-10).fit(1000 * X[:, :1], Y),
        UnsupportedKernel,
        r"got 1, 1\.41421 of column 0.*Round them, take a",
    ),
    (
        lambda: waves(Mahalanobis(Periodic(1.0), ((1.0,),)), 1e-3).fit(X[:, :1], Y),
        UnsupportedKernel,
        "requires a stationary kernel with a spectral",
    ),
    (lambda: bo.plan(X, Y, Linear(), methods=[bo.FourierGrid()]), InvalidInput, "spectral density"),
    (lambda: bo.plan(X, None, Gaussian()), InvalidInput, "requires y"),
    (lambda: bo.plan(X[:15], Y[:15], Gaussian()), InvalidInput, "at least 16 rows; got 15"),
    (lambda: bo.plan(X, 0 * Y, Gaussian()), InvalidInput, "the target must vary"),
    (lambda: bo.plan(X * np.nan, Y, Gaussian()), InvalidInput, "finite|NaN|missing"),
    (lambda: bo.plan(bo.Blocks.from_arrays(X), None, Gaussian()), InvalidInput, "the target must"),
    (lambda: bo.plan(bo.Blocks.from_arrays(X), Y, Gaussian()), InvalidInput, "leave y out"),
    (lambda: bo.predictive_scorer(model(), X, Y), InvalidInput, "must be a"),
    (lambda: bo.normal_scores(Y, ONES, Y**2), InvalidInput, r"must have one shape.*got \(60,\)"),
    (lambda: bo.normal_scores(Y * np.nan, Y, Y**2), InvalidInput, "y must be finite; got NaN or"),
    (lambda: bo.normal_scores(Y, Y, 0 * Y), InvalidInput, "deviation must be above 0; got 0"),
    (lambda: bo.normal_scores(Y, Y, Y**2, coverages=(1.5,)), InvalidInput, "coverages must be"),
    (lambda: bo.engines.Dask(3), InvalidType, "client must be a distributed.Client or.*got int"),
    (lambda: bo.engines.Dask(None, 0), InvalidInput, "Dask: timeout must be"),
    (lambda: bo.engines.Ray(None, np.inf), InvalidInput, "Ray: timeout must be"),
    (lambda: bo.engines.Spark(None, "soon"), InvalidType, "Spark: timeout must be"),
]


@pytest.mark.parametrize(
    ("call", "error", "words"), CASES, ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_cannot_be_is_refused_in_a_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("other", ["2", None, True, 1j, [1.0]])
def test_algebra_with_other_things_is_a_type_error(other):
    with pytest.raises(TypeError):
        Gaussian() * other
    with pytest.raises(TypeError):
        other + Gaussian()


CLASSIFIERS = [
    cls
    for cls in map(models.__dict__.get, models.__all__)
    if isinstance(cls, type) and hasattr(cls, "fit_blocks") and is_classifier(cls())
]


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (1, "labels in y must be all text or all numbers; got 'a' and 1. Make them alike"),
        (None, r"y must have no missing labels; got None in row 1 \(counted from 0\). Drop"),
    ],
)
def test_labels_of_mixed_kinds_are_refused(cls, other, words):
    with pytest.raises(InvalidInput, match=f"{cls.__name__}: {words}"):
        cls(n_features=16).fit(X, np.array(["a", other] * 30, dtype=object))


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "Float64", "string", "float64"])
def test_missing_labels_of_every_kind_are_named_by_their_row(dtype):
    labels = pd.Series([1, 0] * 30, dtype="Int64").astype(dtype)
    labels[5] = np.nan if dtype == "float64" else pd.NA
    words = r"Classifier: y must have no missing labels; got (<NA>|nan) in row 5 \(counted from 0\)"
    with pytest.raises(InvalidInput, match=words):
        bo.KernelRidgeClassifier(n_features=16).fit(X, labels)
