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
    ("negative", lambda: Gaussian(-1.0), InvalidInput, "lengthscale must be a positive finite"),
    ("zero", lambda: Laplace(0), InvalidInput, "Laplace: lengthscale must be a positive .*got"),
    ("nan", lambda: Cauchy(np.nan), InvalidInput, "Cauchy: lengthscale .*; got nan"),
    ("infinite", lambda: Exponential(np.inf), InvalidInput, "lengthscale .*; got inf"),
    ("a negative one", lambda: Gaussian([1, -2]), InvalidInput, r"lengthscale\[1\] .*got -2\.0"),
    ("an infinite one", lambda: Gaussian((1.0, np.inf)), InvalidInput, r"lengthscale\[1\] .*got"),
    ("nested", lambda: Gaussian([[1.0]]), InvalidType, r"lengthscale\[0\] .*got \[1\.0\] of type"),
    ("empty", lambda: Gaussian([]), InvalidInput, "one per column; got an empty sequence"),
    ("text", lambda: Matern(1.5, "long"), InvalidType, "Matern: lengthscale .*; got 'long' of"),
    ("none", lambda: Gaussian(None), InvalidType, "got None of type NoneType"),
    ("truth", lambda: Gaussian(True), InvalidType, "got True of type bool"),
    ("complex", lambda: Gaussian(1j), InvalidType, "got 1j of type complex"),
    ("smoothness", lambda: Matern(0.0), InvalidInput, "Matern: smoothness must be a positive"),
    ("shape", lambda: RationalQuadratic(-0.5), InvalidInput, "RationalQuadratic: shape must be a"),
    ("constant", lambda: Constant(-1), InvalidInput, "Constant: value must be a non-negative"),
    ("scale", lambda: -2.0 * Gaussian(), InvalidInput, "Scaled: scale must be a positive finite"),
    ("sum with a negative number", lambda: Gaussian() + -1.0, InvalidInput, "Constant: value must"),
    ("no kernel", lambda: Scaled(1.0, "gaussian"), InvalidType, "Scaled: kernel must be a kernel"),
    ("a class", lambda: Sum(Gaussian(), Gaussian), InvalidType, "Sum: right must be a kernel; got"),
    ("column twice", lambda: Columns(Gaussian(), [0, 0]), InvalidInput, "Columns: columns must be"),
    ("no column", lambda: Columns(Gaussian(), []), InvalidInput, r"at least one; got \(\)"),
    ("column below zero", lambda: Columns(Gaussian(), [-1]), InvalidInput, r"columns\[0\] must be"),
    ("column name", lambda: Columns(Gaussian(), ["age"]), InvalidType, r"columns\[0\] must be an"),
    (
        "ragged metric",
        lambda: Mahalanobis(Gaussian(), [[1.0], [0.0, 1.0]]),
        InvalidInput,
        "Mahalanobis: matrix must be square",
    ),
    ("metric of nan", lambda: Mahalanobis(Gaussian(), [[np.nan]]), InvalidInput, r"matrix\[0, 0\]"),
    (
        "lopsided metric",
        lambda: Mahalanobis(Gaussian(), [[1, 1], [0, 1]]),
        NotPositive,
        "must be symmetric; got entries that differ from their mirror by 1",
    ),
    (
        "negative metric",
        lambda: Mahalanobis(Gaussian(), [[1, 2], [2, 1]]),
        NotPositive,
        "positive semi-definite; got smallest eigenvalue -1",
    ),
    ("unknown parameter", lambda: Gaussian().replace(colour=1), InvalidInput, "Gaussian has no"),
    ("parameter of another name", lambda: Gaussian().replace(scale=1), InvalidInput, r"meaning\."),
    ("unknown path", lambda: (2 * Gaussian()).replace(kernel__x=1), InvalidInput, "Gaussian has"),
    (
        "path into a number",
        lambda: Gaussian().replace(lengthscale__x=1),
        InvalidInput,
        "Gaussian has no parameter 'lengthscale__x'",
    ),
    ("no parameters", lambda: Linear().replace(x=1), InvalidInput, "Linear has no parameter 'x'"),
    (
        "bad replacement",
        lambda: (2 * Gaussian()).replace(kernel__lengthscale=0),
        InvalidInput,
        "Gaussian: lengthscale must be a positive",
    ),
    ("no dimension", lambda: Gaussian().spectral_measure(0), InvalidInput, "1 or above; got 0"),
    (
        "wrong dimension",
        lambda: Gaussian((1.0, 2.0)).spectral_measure(3),
        InvalidInput,
        "one per column; got 2 for 3 columns",
    ),
    # arrays given to kernels
    ("one dimension", lambda: Gaussian()(X[0]), InvalidInput, "Gaussian: X must have two"),
    ("three dimensions", lambda: Gaussian()(X, X[None]), InvalidInput, "Y must have two"),
    ("no columns", lambda: Linear()(X[:, :0]), InvalidInput, "Linear: X must have .*at least one"),
    ("a number", lambda: Gaussian()(1.0), InvalidInput, r"got shape \(\)"),
    ("ragged", lambda: Gaussian()([[1.0], [1.0, 2.0]]), InvalidInput, "X must be a table of"),
    ("other columns", lambda: Gaussian()(X, X[:, :2]), InvalidInput, "X and Y must have the same"),
    ("other library", lambda: Gaussian()(X, torch.ones(2, 3)), InvalidType, "one array library"),
    ("complex", lambda: Gaussian()(X * 1j), InvalidType, "X must hold real numbers; got dtype"),
    (
        "complex torch",
        lambda: Gaussian()(torch.ones(2, 3, dtype=torch.complex64)),
        InvalidType,
        r"got dtype torch\.complex64",
    ),
    ("text", lambda: Gaussian()([["a", "b"]]), InvalidType, "X must hold real numbers; got dtype"),
    ("objects", lambda: Gaussian()(np.array([[None]])), InvalidType, "real numbers; got dtype"),
    (
        "dates",
        lambda: Gaussian()(np.array([["2020-01-01"]], dtype="M8[D]")),
        InvalidType,
        "got dtype datetime64",
    ),
    ("nan", lambda: Gaussian()(np.array([[np.nan]])), InvalidInput, "X must be finite; got NaN or"),
    ("infinite Y", lambda: Linear()(X, X * np.inf), InvalidInput, "Linear: Y must be finite"),
    ("infinite torch", lambda: Linear()(torch.full((2, 2), torch.inf)), InvalidInput, "be finite"),
    ("sparse nan", lambda: Linear()(SPARSE * np.nan), InvalidInput, "X must be finite"),
    ("masked", lambda: Gaussian()(np.ma.masked_equal(np.eye(2), 1.0)), InvalidInput, "2 masked"),
    ("lengthscales", lambda: Gaussian((1.0, 2.0))(X), InvalidInput, "Gaussian: lengthscale must"),
    ("column", lambda: Columns(Gaussian(), (0, 3))(X), InvalidInput, "below the number of columns"),
    ("metric", lambda: Mahalanobis(Gaussian(), np.eye(2))(X), InvalidInput, "one row and column"),
    ("sparse Laplace", lambda: Laplace()(SPARSE), InvalidInput, "Laplace: X must be dense, "),
    ("sparse in a sum", lambda: (Linear() + Cauchy())(X, SPARSE), InvalidInput, "Cauchy: X must"),
    (
        "tiny lengthscale",
        lambda: Gaussian(1e-300)(np.array([[0.0], [1e10]])),
        InvalidInput,
        "X divided by lengthscale must be a number of dtype float64; got an overflow",
    ),
    (
        "tiny for float32",
        lambda: Gaussian(1e-30)(np.array([[0.0], [1e10]], dtype=np.float32)),
        InvalidInput,
        "dtype float32; got an overflow with lengthscale 1e-30",
    ),
    (
        "diagonal of one dimension",
        lambda: Gaussian().diag(X[0]),
        InvalidInput,
        "Gaussian: X must have",
    ),
    (
        "diagonal of no numbers",
        lambda: Gaussian().diag(X * 1j),
        InvalidType,
        "X must hold real numbers",
    ),
    ("diagonal of NaN", lambda: Linear().diag(X * np.nan), InvalidInput, "X must be finite"),
    (
        "diagonal of other columns",
        lambda: Gaussian((1.0, 2.0)).diag(X),
        InvalidInput,
        "got 2 for 3",
    ),
    # series and radial kernels
    ("no rotation", lambda: radial_kernels(Laplace(), 3), UnsupportedKernel, "require a kernel of"),
    (
        "a column",
        lambda: radial_kernels(Columns(Gaussian(), 0), 3),
        UnsupportedKernel,
        "got Columns",
    ),
    (
        "lengthscales",
        lambda: radial_kernels(Gaussian((1.0, 2.0)), 2),
        UnsupportedKernel,
        "one lengthscale for all columns; got Gaussian.*Divide the columns",
    ),
    ("not isotropic", lambda: isotropic(Linear(), 2), UnsupportedKernel, "kernel of the Euclidean"),
    (
        "no monomials",
        lambda: monomials(radial_kernels(Matern(), 3), 2, 2, ONES),
        UnsupportedKernel,
        "Monomial radial functions require a kernel of ⟨x, y⟩ or the Gaussian; got",
    ),
    (
        "not a kernel in so many dimensions",
        lambda: radial_kernels(NotAKernel(), 3).matrix(1, ONES, ONES),
        NotPositive,
        "positive semi-definite in dimension 3; got coefficient -1 of degree 1 from NotAKernel",
    ),
    (
        "overflow",
        lambda: radial_kernels(DotExponential(), 3).matrix(0, 30 * ONES, 30 * ONES),
        InvalidInput,
        r"scale·\|x\|·\|y\| must be below 700; got an overflow",
    ),
    (
        "divergent radius",
        lambda: radial_kernels(DotProduct(lambda n: gammaln(n + 1.0)), 3).matrix(0, ONES, ONES),
        InvalidInput,
        r"power series must converge at \|x\|·\|y\|; at 1 it has not after 4096 terms",
    ),
    (
        "divergent",
        lambda: DotProduct(lambda n: gammaln(n + 1.0))([[2.0]]),
        InvalidInput,
        r"must converge at every inner product; at \|⟨x, y⟩\| = 4 it has not",
    ),
    ("negative coefficient", lambda: Coefficients((1.0, -0.5)), NotPositive, "Coefficients:"),
    ("no coefficients", lambda: DotProduct(()), InvalidInput, r"at least one; got \(\)"),
    ("a word", lambda: Coefficients("exp"), InvalidInput, "sequence of numbers.*got 'exp'"),
    ("infinite", lambda: Coefficients((np.inf,)), InvalidInput, r"values\[0\] must be a finite"),
    ("no function", lambda: LogDerivatives(2.0), InvalidType, "LogDerivatives: function must be a"),
    ("a negative degree", lambda: LogDerivatives(np.abs, -1), InvalidInput, "degree must be an"),
    (
        "nan",
        lambda: LogDerivatives(lambda n: np.nan * n).log_derivative(np.arange(2)),
        NotPositive,
        "function must return, for each integer n, the logarithm",
    ),
    (
        "shape",
        lambda: LogDerivatives(lambda n: 1.0).log_derivative(np.arange(2)),
        NotPositive,
        r"for each integer n, .* got array\(1\.\)",
    ),
    ("rate", lambda: ExponentialSeries(0.0), InvalidInput, "scale must be a positive"),
    ("power", lambda: Binomial(-1), InvalidInput, "power must be an integer, 0 or above"),
    ("offset", lambda: Binomial(2, -1.0), InvalidInput, "offset must be a non-negative"),
    # rows, targets and weights of a fit
    ("no columns", lambda: model().fit(X[:, :0], Y), ValueError, r"0 feature\(s\).*minimum of 1"),
    ("three dimensions", lambda: model().fit(X[None], Y), ValueError, "KernelRidge: X with three"),
    ("complex", lambda: model().fit(X + 1j, Y), ValueError, "Complex data not supported"),
    ("masked", lambda: model().fit(np.ma.masked_array(X, X > 2), Y), ValueError, "X must have no"),
    ("words", lambda: model().fit(np.full((60, 3), "a"), Y), ValueError, "X must hold numbers"),
    (
        "words as objects",
        lambda: model().fit(np.full((60, 3), "a", object), Y),
        ValueError,
        "X must hold numbers; got text",
    ),
    ("dates", lambda: model().fit(DATES, Y), InvalidType, "KernelRidge: X must hold real numbers"),
    ("spans of time", lambda: model().fit(DATES - DATES[0], Y), InvalidType, "X must hold real"),
    ("ragged", lambda: model().fit([[1.0, 2.0], [3.0]], [1.0, 2.0]), ValueError, "of equal length"),
    ("a path", lambda: model().fit("table.csv", Y), ValueError, "X must be rows; got the text"),
    ("nothing", lambda: model().fit(None, Y), ValueError, r"two dimensions, .*; got shape \(\)"),
    ("y words", lambda: model().fit(X, np.full(60, "a")), InvalidType, "KernelRidge: y must hold"),
    (
        "y words as objects",
        lambda: model().fit(X, np.full(60, "a", object)),
        InvalidType,
        "Ridge: y .* a classifier takes labels",
    ),
    ("y with commas", lambda: model().fit(X, np.full(60, "0,5")), InvalidType, "got text, such as"),
    (
        "y spans of time",
        lambda: model().fit(X, DATES[:, 0] - DATES[0, 0]),
        InvalidType,
        "by a unit",
    ),
    ("y dates", lambda: model().fit(X, DATES[:, 0]), InvalidType, "KernelRidge: y .* got dtype"),
    ("y infinity", lambda: model().fit(X, put(Y, np.inf)), ValueError, "y must hold finite"),
    ("y complex", lambda: model().fit(X, Y + 1j), ValueError, "Complex data not supported"),
    ("y of three dimensions", lambda: model().fit(X, Y[:, None, None]), ValueError, "with dim 3"),
    ("y masked", lambda: model().fit(X, np.ma.masked_array(Y, Y > 1)), ValueError, "got a masked"),
    ("y beyond squaring", lambda: model().fit(X, Y * 1e170), ValueError, "y must lie within"),
    (
        "weights: NaN",
        lambda: model(Gaussian()).fit(X, Y, put(np.ones(60), np.nan)),
        ValueError,
        "Input sample_weight contains NaN",
    ),
    (
        "weights: two columns",
        lambda: model(Gaussian()).fit(X, Y, np.ones((60, 2))),
        ValueError,
        "must be 1D array or scalar",
    ),
    (
        "weights: words",
        lambda: model(Gaussian()).fit(X, Y, np.full(60, "a")),
        ValueError,
        "could not convert string to float",
    ),
    (
        "weights: masked",
        lambda: model(Gaussian()).fit(X, Y, np.ma.masked_array(np.ones(60), Y > 1)),
        ValueError,
        "sample_weight must have no missing",
    ),
    (
        "weights that are dates",
        lambda: model().fit(X, Y, DATES[:, 0]),
        InvalidType,
        "sample_weight must hold real",
    ),
    (
        "two columns of a name",
        lambda: model().fit(TWICE, Y),
        InvalidInput,
        "columns of X must have different names; got 'a' more",
    ),
    ("a Series", lambda: model().fit(pd.Series(Y), Y), InvalidInput, r"Pass X.to_frame\(\)"),
    (
        "a Series of text",
        lambda: model().fit(pd.Series(["a"] * 60), Y),
        InvalidInput,
        "got a Series",
    ),
    ("a Series of polars", lambda: model().fit(pl.Series("a", Y), Y), InvalidInput, "got a Series"),
    (
        "rows all missing",
        lambda: model().fit(X * np.nan, Y),
        InvalidInput,
        "must tell rows apart; got none",
    ),
    (
        "denormal rows",
        lambda: model().fit(X * 1e-315, Y),
        InvalidInput,
        "differences float64 holds to all its digits",
    ),
    (
        "denormal rows, Laplace",
        lambda: model("laplace").fit(X * 1e-315, Y),
        InvalidInput,
        "differences float64 holds",
    ),
    # parameters of a learner
    ("odd", lambda: model(n_features=33, method="iid").fit(X, Y), ValueError, "even number of"),
    (
        "no rotation",
        lambda: model(kernel="laplace", method="orthogonal").fit(X, Y),
        ValueError,
        r"Euclidean.*IID\(\).*Nystrom",
    ),
    (
        "intercept",
        lambda: model(fit_intercept="no").fit(X, Y),
        InvalidType,
        "fit_intercept must be True or False; got 'no'",
    ),
    (
        "no intercept",
        lambda: model(fit_intercept=None).fit(X, Y),
        InvalidType,
        "fit_intercept must be True",
    ),
    (
        "a half column",
        lambda: bo.draw(Gaussian(), n_features=8, n_inputs=1.5),
        InvalidType,
        "draw: n_inputs must be",
    ),
    (
        "columns are true",
        lambda: bo.draw(Gaussian(), n_features=8, n_inputs=True),
        InvalidType,
        "n_inputs must be an",
    ),
    (
        "columns in text",
        lambda: bo.draw(Gaussian(), n_features=8, n_inputs="3"),
        InvalidType,
        "n_inputs must be an",
    ),
    (
        "nought columns",
        lambda: bo.draw(Gaussian(), n_features=8, n_inputs=0),
        InvalidInput,
        "n_inputs must be an integer, 1",
    ),
    # rows to predict
    ("NaN", lambda: FITTED.predict(put(X, np.nan)), ValueError, "the rows of the fit had none"),
    ("no rows", lambda: FITTED.predict(X[:0]), ValueError, r"0 sample\(s\).*minimum of 1 is"),
    ("words", lambda: FITTED.predict(np.full((2, 3), "a")), ValueError, "X must hold numbers; got"),
    ("masked", lambda: FITTED.predict(np.ma.masked_array(X, X > 2)), ValueError, "X must have no"),
    ("complex", lambda: FITTED.predict(X + 1j), ValueError, "Complex data not supported"),
    (
        "dates in a table",
        lambda: FITTED.predict(pd.DataFrame(DATES)),
        InvalidType,
        "KernelRidge: X must hold real numbers; got dtype date",
    ),
    (
        "columns of one name",
        lambda: FITTED.predict(TWICE),
        InvalidInput,
        "must have different names; got 'a' more than once",
    ),
    (
        "certificate before a fit",
        lambda: model().certificate_,
        NotFittedError,
        "This KernelRidge instance is not fitted yet",
    ),
    (
        "certify before a fit",
        lambda: model().certify(X),
        NotFittedError,
        "instance is not fitted yet",
    ),
    ("merge before a fit", lambda: bo.merge(model()), NotFittedError, "instance is not fitted yet"),
    (
        "target too large to tune",
        lambda: bo.tune(model(), X, 1e300 * Y),
        InvalidInput,
        "tune: y must .* by a power of ten",
    ),
    (
        "target too small to tune",
        lambda: bo.tune(model(), X, 1e-300 * Y),
        InvalidInput,
        "tune: y must .* by a power of ten",
    ),
    # other calls
    (
        "jobs: none",
        lambda: model(n_jobs=0).fit(X, Y),
        InvalidInput,
        "KernelRidge: n_jobs must be None",
    ),
    ("jobs: half", lambda: model(n_jobs=1.5).fit(X, Y), InvalidInput, "n_jobs must be None or an"),
    ("jobs: true", lambda: model(n_jobs=True).fit(X, Y), InvalidInput, "n_jobs must be None or an"),
    (
        "latitude",
        lambda: on_sphere([13.4, 151.2], [52.5, -33.9]),
        InvalidInput,
        r"latitude must lie within -90 to 90.*to 151\.2\. Pass",
    ),
    ("longitude", lambda: on_sphere([13.4], [np.nan]), InvalidInput, "longitude must be finite"),
    (
        "a loss in words",
        lambda: CustomLoss("square", np.add, np.add),
        InvalidType,
        r"must be functions of \(y, f\); got 'square'",
    ),
    *(
        (
            f"quantiles {q}",
            lambda q=q: as_levels(q),
            InvalidInput,
            "quantiles must lie between 0 and 1",
        )
        for q in (0.0, 1.0, (0.5, 0.5), (0.9, 0.1), (), (0.2, 1.2))
    ),
    (
        "no neighbours",
        lambda: bo.NearestNeighbours(0),
        InvalidInput,
        "neighbours must be an integer, 1",
    ),
    (
        "neighbours after neighbours",
        lambda: bo.NearestNeighbours(after=bo.NearestNeighbours()),
        InvalidInput,
        "after must be a method that makes features",
    ),
    (
        "neighbours of a kernel",
        lambda: near(Linear()).fit(X, Y),
        UnsupportedKernel,
        "requires a stationary kernel",
    ),
    (
        "neighbours of one row",
        lambda: near().fit(X[:1], Y[:1]),
        InvalidInput,
        "at least 2 rows of positive",
    ),
    (
        "neighbours and a metric",
        lambda: near(metric="learned").fit(X, Y),
        InvalidInput,
        'metric="learned" chooses features',
    ),
    (
        "neighbours of a ridge",
        lambda: model(Matern(), method=bo.NearestNeighbours()).fit(X, Y),
        InvalidInput,
        "NearestNeighbours makes no features",
    ),
    (
        "no common period",
        lambda: waves(Periodic(1.0) + Periodic(2**0.5), 1e-10).fit(1000 * X[:, :1], Y),
        UnsupportedKernel,
        r"got 1, 1\.41421 of column 0.*Round them, take a",
    ),
    (
        "a turned period",
        lambda: waves(Mahalanobis(Periodic(1.0), ((1.0,),)), 1e-3).fit(X[:, :1], Y),
        UnsupportedKernel,
        "requires a stationary kernel with a spectral",
    ),
    (
        "plan of what serves nothing",
        lambda: bo.plan(X, Y, Linear(), methods=[bo.FourierGrid()]),
        InvalidInput,
        "spectral density",
    ),
    ("plan of no target", lambda: bo.plan(X, None, Gaussian()), InvalidInput, "requires y"),
    (
        "plan of few rows",
        lambda: bo.plan(X[:15], Y[:15], Gaussian()),
        InvalidInput,
        "at least 16 rows; got 15",
    ),
    (
        "plan of one value",
        lambda: bo.plan(X, 0 * Y, Gaussian()),
        InvalidInput,
        "the target must vary",
    ),
    ("plan of NaN", lambda: bo.plan(X * np.nan, Y, Gaussian()), InvalidInput, "finite|NaN|missing"),
    (
        "plan of blocks of one value",
        lambda: bo.plan(bo.Blocks.from_arrays(X), None, Gaussian()),
        InvalidInput,
        "the target must vary",
    ),
    (
        "plan of blocks and a target",
        lambda: bo.plan(bo.Blocks.from_arrays(X), Y, Gaussian()),
        InvalidInput,
        "leave y out",
    ),
    (
        "scores of a learner",
        lambda: bo.predictive_scorer(model(), X, Y),
        InvalidInput,
        "must be a GaussianProcessRegressor.*got KernelRidge",
    ),
    (
        "scores of shapes",
        lambda: bo.normal_scores(Y, ONES, Y**2),
        InvalidInput,
        r"must have one shape.*got \(60,\), \(1,\)",
    ),
    (
        "scores of NaN",
        lambda: bo.normal_scores(Y * np.nan, Y, Y**2),
        InvalidInput,
        "y must be finite; got NaN or infinity",
    ),
    (
        "scores of no width",
        lambda: bo.normal_scores(Y, Y, 0 * Y),
        InvalidInput,
        "deviation must be above 0; got 0.*include_noise=True",
    ),
    (
        "scores of coverage",
        lambda: bo.normal_scores(Y, Y, Y**2, coverages=(1.5,)),
        InvalidInput,
        "coverages must be above 0 and below 1; got 1.5",
    ),
    (
        "client",
        lambda: bo.engines.Dask(3),
        InvalidType,
        "client must be a distributed.Client or.*got int",
    ),
    ("timeout of Dask", lambda: bo.engines.Dask(None, 0), InvalidInput, "Dask: timeout must be"),
    ("timeout of Ray", lambda: bo.engines.Ray(None, np.inf), InvalidInput, "Ray: timeout must be"),
    (
        "timeout of Spark",
        lambda: bo.engines.Spark(None, "soon"),
        InvalidType,
        "Spark: timeout must be",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
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
