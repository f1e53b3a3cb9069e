"""Invalid calls: one table with the error of each and a pattern of its message."""

from dataclasses import fields, is_dataclass, replace
from functools import partial

import gallery
import maps
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from learners import KINDS
from scipy.special import gammaln
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import bochner as bo
from bochner import CustomLoss, Moments, certify, landmarks
from bochner import certificates as bounds
from bochner import kernels as k
from bochner._core import lapack
from bochner._core.native import hadamard
from bochner.certificates.bounds import Bound
from bochner.data.schema import Schema
from bochner.datasets import on_sphere
from bochner.engines import Local
from bochner.errors import (
    BochnerError,
    IncompatibleModels,
    InvalidInput,
    InvalidType,
    ModelFileError,
    NotPositive,
    UnsupportedKernel,
)
from bochner.kernels import Columns, DotExponential, Gaussian, Laplace, Linear, Matern, OnSphere
from bochner.kernels.sphere import degree_variances
from bochner.persist.files import require_arrays
from bochner.report.demo import run_demo
from bochner.selection.race import learn_metric
from bochner.solvers.convex.losses import as_levels
from bochner.sums.moments import Accumulator
from bochner.sums.passes import draw_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
BLOCKS = bo.Blocks.from_arrays(X, Y)
TWOS, UPPER = np.full(1, 2, "u1"), np.eye(3, order="F")
ONES, THIRTY, FAR = np.ones(1), np.full((2, 1), 30.0), np.array([[0.0], [1e10]])
MASKED = np.ma.masked_array(np.ones(60), Y > 1)
ODD = k.Periodic(1.0) + k.Periodic(2**0.5)
WIDE = np.ones((2, 2049))
PROJECTED = bo.Projected(bo.Fourier(), 2)
SPARSE = scipy.sparse.csr_array(X)
DATES = np.arange(180).reshape(60, 3).astype("datetime64[s]")
TWICE = pd.DataFrame(np.column_stack([X, Y]), columns=list("abca"))


def put(array, value):
    array = array.copy()
    array[3, ...] = value
    return array


model = gallery.maker(bo.KernelRidge, "gaussian", n_features=32, random_state=0)
NEIGHBOURS = {"kernel": Matern(1.5, 0.3), "method": bo.NearestNeighbours()}
nngp = gallery.maker(bo.GaussianProcessRegressor, **NEIGHBOURS)
LONG = np.zeros((20_001, 1))


def process(kernel=None, X=X, y=Y, **options):
    parameters = {"noise": 0.1, "amplitude": 1.0} | options
    return bo.GaussianProcessRegressor(kernel or Gaussian(), **parameters).fit(X, y)


PROCESS = process()


def plan_of(**options):
    return bo.plan(X, Y, **{"kernel": Gaussian(), "widths": [16], "random_state": 0} | options)


def krige(process=PROCESS, X=X, y=Y, **options):
    return bo.universal_kriging(process, X, y, **options)


def cells(process=PROCESS, lower=X, upper=X + 1, **options):
    return bo.cell_averages(process, lower, upper, **options)


def vario(X=X, y=Y, **options):
    return bo.variogram(X, y, **options)


def globe(X=X[:, :2], **options):
    return bo.variogram(X, Y, **{"metric": "great-circle"} | options)


def regressor(y=Y, **options):
    options = {"alpha": 0.3, "n_features": 16, "method": "orthogonal", "random_state": 0} | options
    return bo.KernelRegressor(Gaussian(), **options).fit(X, y)


def squares(a, **changes):
    """Return a loss of two outputs, a ‖y − f‖²/2; ``changes`` replace its functions."""
    parts = {
        "value_of": lambda y, f: a * ((f - y) ** 2).sum(1) / 2,
        "slope_of": lambda y, f: a * (f - y),
    }
    parts |= {"hessian_of": lambda y, f: np.broadcast_to(a * np.eye(2), (len(y), 2, 2))}
    return bo.JointLoss(**parts | changes)


def metric(kernel=None, X=X, **options):
    rows = draw_rows(bo.Blocks.from_arrays(X, Y), 0)
    return learn_metric(kernel or Gaussian(), rows, 0, **options)


def classes(kind=bo.KernelRidgeClassifier, K=2, **options):
    return kind(Gaussian(), n_features=16, **options).fit(X, np.arange(60) % K)


def plot(kind, *arguments):
    return getattr(bo, f"{kind}Display").from_estimator(*arguments)


def schema(**encoder):
    return Schema(("a",), encoders=[{"name": "a"} | encoder])


def descent(y=Y, test=(X, Y), **options):
    return bo.double_descent(X, y, *test, **options)


def part(y=Y, **options):
    return model(Gaussian(), method="iid", **options).fit(X, y)


PART, BALANCED = part(), bo.KernelSGDClassifier(class_weight="balanced")
ITERATED = bo.ExactKernel("nystrom")
EXACT = model(method="exact").fit(X, Y)
LEAVES = model(method=bo.LocalKernel(40, 12), n_features="auto").fit(X, Y)

COMPONENTS = bo.KernelPCA(2, Gaussian(), n_features=16).fit(X)
CORRELATED = bo.KernelCCA(1, Gaussian(), n_features=16, alpha=0.5).fit(X, X[:, :2])


def sums(w=None):
    return Moments.of(X, Y, w)


def steps(kernel=None, stream=False, **options):
    fit = bo.KernelSGDClassifier(kernel or Gaussian(), **{"max_iter": 5, "tol": None} | options)
    blocks = bo.Blocks.from_arrays(X, 1.0 * (Y > 0))
    return fit.fit_blocks(blocks, bo.engines.Local(cache_bytes=0)) if stream else fit.fit(X, Y > 0)


WILD = bo.KernelSGDRegressor(Linear(), eta0=10.0, tol=None, random_state=0)
TILED = np.tile(9 * X, (300, 1)), np.tile(Y, 300)
NEAR = nngp().fit(X, Y)


def squared(a=1, **changes):
    """Return the loss a (y − f)²; ``changes`` replace its functions."""
    parts = {"value": lambda y, f: a * (y - f) ** 2, "slope": lambda y, f: 2 * a * (f - y)}
    parts |= {"curvature": lambda y, f: 2 * a + 0 * f} | changes
    return CustomLoss(*parts.values(), name="mine")


FITTED = model().fit(X, Y)


def draw(kernel, method):
    """Return a map of 64 features for three columns of normal numbers."""
    return bo.draw(kernel, method, n_features=64, X=X, random_state=0)


def blind(kernel, method, n_features=5, d=3):
    """Return a map drawn without rows."""
    return bo.draw(kernel, method, n_features=n_features, n_inputs=d)


def compare(**options):
    return bo.compare(Gaussian(), X, n_features=8, **options)


NET, GAUSS, SINES = bo.NeuralTangentFeatures(), bo.Fourier(bo.Grid()), bo.LaplacianEigenfunctions
PLATE, ALL_DEGREES = ((0.0, 1.0),) * 2, bo.Maclaurin("geometric")
STABLE = k.ExponentialPower(1.5)
DIVERGENT, UNIT = k.DotProduct(lambda n: gammaln(n + 1.0)), np.eye(3)
WAVES, BELOW = draw(Gaussian(1.5), "iid"), draw(Gaussian(1.5), "nystrom")
NEGATIVE = k.Custom(lambda X, Y: -(X @ Y.T))
ENDLESS = lambda X, Y=None: np.full((len(X),) * 2, np.inf)
MANY, TALL = RNG.normal(size=(300, 3)), np.zeros((10_001, 1))
#: Positive definite on a sample of 64 rows, but not on all rows.
DENTED = k.Custom(
    lambda X, Y: Gaussian(1.5)(X, Y) - 60.0 * np.exp(-np.add.outer((X**2).sum(1), (Y**2).sum(1)))
)
directions, fourier = bounds.features_bound, bounds.fourier_bound
HOEFFDING = bounds.fourier_bound(Gaussian(), X, "hoeffding")
CUTS = Bound("spectral distance", cuts=(replace(bounds.leverage_bound(60.0, 20.0, 2), tail=0.1),))

HISTOGRAM = bo.features.HistogramSampling()


def on_grid(kernel, X=X[:, :2], t=1e-3, box=None, **options):
    return bo.KernelRidge(kernel, method=bo.FourierGrid(t, box), **options).fit(X, Y)


SPHERE = bo.GaussianProcessRegressor(OnSphere("gaussian", 40.0), method=bo.SphericalHarmonics(12))
GLOBE = Columns(OnSphere("matern32", 25.0), (1, 2))
HARMONICS = bo.SphericalHarmonics(5)
ON_GLOBE = model(OnSphere() + Linear(), method=HARMONICS)
SQUARED_ANGLE = lambda X, Y: np.exp(-(np.arccos(np.clip(X @ Y.T, -1, 1)) ** 2))
ARC = OnSphere(k.Custom(SQUARED_ANGLE), 180 / np.pi)
EQUAL = k.Windows(Gaussian(), width=3, channels=2)
TRACKS = k.Windows(Gaussian(), width=2, channels=2, lengths=True)
STEPS, LONGER = RNG.normal(size=(60, 4, 2)), RNG.normal(size=(60, 5, 2))


class NotAKernel(k.Homogeneous):
    """−cos θ, a function of the angle that is not positive definite."""

    degree = 0

    def profile(self, angle):
        return -angle.cos

    def __repr__(self):
        return "NotAKernel()"


EYE, GAP = np.eye(3), np.array([0, 1, np.nan])
#: Arguments of Blocks.from_arrays, and sources of Blocks.from_iterable.
ARRAYS = [
    ((np.ones(3),), InvalidInput, r"X must have two dimensions.*got shape \(3,\).*reshape"),
    ((EYE[:, :0],), InvalidInput, r"rows and at least one column; got shape \(3, 0\)"),
    ((EYE[:0],), InvalidInput, r"must have at least one row; arrays of numpy has none"),
    ((EYE, np.ones(2)), InvalidInput, r"y must be dense.* one entry per row of X \(3\); got"),
    ((EYE, np.ones((3, 1, 1))), InvalidInput, r"y must be dense.*shape \(3, 1, 1\)"),
    ((EYE, scipy.sparse.csr_array(EYE)), InvalidInput, r"got a sparse array of shape"),
    ((EYE, None, EYE), InvalidInput, r"sample_weight must be dense.*shape \(3, 3\)"),
    ((EYE * 1j,), InvalidType, r"X must hold real numbers; got dtype complex128"),
    ((EYE.astype(object),), InvalidType, r"X must hold real numbers; got dtype object"),
    (([["a"]],), InvalidType, r"X must hold real numbers; got dtype <U1"),
    ((EYE, ["a", "b", "c"]), InvalidType, r"y must hold real numbers; got dtype <U1"),
    (([[1, 2], [3]],), InvalidInput, r"rows of equal length; got list that NumPy cannot read"),
    ((np.ma.array(EYE, mask=EYE > 0),), InvalidInput, r"masked array with 3 masked"),
    ((pd.DataFrame(EYE),), InvalidType, r"got a table \(DataFrame\). Use Blocks.from_table"),
    ((EYE, None, None, 0), InvalidInput, r"block_rows must be an integer, 1 or above; got 0"),
    ((EYE, GAP), InvalidInput, r"Blocks: y must hold finite .* missing .* in row 2 "),
    ((EYE, np.column_stack([X[:3, 0], GAP])), InvalidInput, r"column 1 of y must .* in row 2 "),
    ((EYE, None, GAP), InvalidInput, r"sample weight must hold finite .* in row 2 "),
    ((EYE, None, [0, -1, 0]), InvalidInput, r"weight must be zero or above, .* got -1 in row 1 "),
    ((EYE, None, [0, 1, 1e200]), InvalidInput, r"1e\+150 at most; got 1e\+200 in row 2 .* divide"),
]
SOURCES = [
    (iter([EYE]), InvalidInput, r"readable more than once; got list_iterator.*Pass a func"),
    ((X for X in [EYE]), InvalidInput, r"got generator, which is used up after one pass"),
    ([], InvalidInput, r"must give at least one row; got none"),
    ([EYE[:0]], InvalidInput, r"at least one row; pieces of list has none"),
    (partial(next, iter([iter([EYE])] * 9)), InvalidInput, r"makes a new iterator each time"),
    (3, InvalidType, r"must be an iterable of \(X,\), .* or a function .*; got int"),
    (lambda: None, InvalidType, r"got a function that returns NoneType"),
    ([(EYE, 1, 2, 3, 4)], InvalidInput, r"must be \(X,\), \(X, y\) or \(X, y, w\); got 5"),
    ([EYE, EYE[:, :2]], InvalidInput, r"got ndarray of 2 .* piece 1 where piece 0 has .* of 3"),
    ([EYE, np.float32(EYE)], InvalidInput, r"float32.* in piece 1 where piece 0 has .*float64"),
    ([EYE, (EYE, EYE[0])], InvalidInput, r"y of shape .* in piece 1 where piece 0 has .* no y"),
    ([EYE, (EYE, None, EYE[0])], InvalidInput, r"weights \(float64\) in piece 1 .* no weights"),
    ([EYE, scipy.sparse.csr_array(EYE)], InvalidInput, r"csr_array of 3 .* piece 0 has ndarray"),
    ([EYE, np.diag(GAP)], InvalidInput, r"column 2 of X .* in row 5 "),
]

CASES = [
    # blocks
    *((lambda a=a: list(bo.Blocks.from_arrays(*a)), *refusal) for a, *refusal in ARRAYS),
    *((lambda a=a: list(bo.Blocks.from_iterable(a)), *refusal) for a, *refusal in SOURCES),
    # values of kernels
    (lambda: Gaussian([1, -2]), InvalidInput, r"lengthscale\[1\] .*got -2\.0"),
    (lambda: Gaussian([]), InvalidInput, "a sequence of one item or more"),
    (lambda: Columns(Gaussian(), [0, 0]), InvalidInput, "Columns: columns must be"),
    (lambda: k.Mahalanobis(Gaussian(), [[1.0], [0.0, 1.0]]), InvalidInput, "Mahalanobis: matrix"),
    (lambda: k.Mahalanobis(Gaussian(), [[1, 1], [0, 1]]), NotPositive, "mirror by 1 "),
    (lambda: k.Mahalanobis(Gaussian(), [[1, 2], [2, 1]]), NotPositive, "positive semi-definite"),
    (lambda: Gaussian().replace(colour=1), InvalidInput, "Gaussian has no"),
    (lambda: Gaussian().replace(scale=1), InvalidInput, r"meaning\."),
    (lambda: (2 * Gaussian()).replace(kernel__x=1), InvalidInput, "Gaussian has"),
    (lambda: Gaussian().spectral(0), InvalidInput, "1 or above; got 0"),
    (lambda: Gaussian((1.0, 2.0)).spectral(3), InvalidInput, "one per column; got 2 for 3"),
    # arrays given to kernels
    (lambda: Gaussian()(X[0]), InvalidInput, "Gaussian: X must have two"),
    (lambda: Gaussian()(X, X[None]), InvalidInput, "Y must have two"),
    (lambda: Linear()(X[:, :0]), InvalidInput, "Linear: X must have .*at least one"),
    (lambda: Gaussian()([[1.0], [1.0, 2.0]]), InvalidInput, "X must be a table of"),
    (lambda: Gaussian()(X, X[:, :2]), InvalidInput, "X and Y must have the same"),
    (lambda: Gaussian()(X, torch.ones(2, 3)), InvalidType, "one array library"),
    (lambda: Gaussian()(X * 1j), InvalidType, "X must hold real numbers; got dtype"),
    (lambda: Gaussian()(np.array([[np.nan]])), InvalidInput, "X must be finite; got NaN or"),
    (lambda: Linear()(X, X * np.inf), InvalidInput, "Linear: Y must be finite"),
    (lambda: Linear()(SPARSE * np.nan), InvalidInput, "X must be finite"),
    (lambda: Gaussian()(np.ma.masked_equal(np.eye(2), 1.0)), InvalidInput, "2 masked"),
    (lambda: Gaussian((1.0, 2.0))(X), InvalidInput, "Gaussian: lengthscale must"),
    (lambda: Columns(Gaussian(), (0, 3))(X), InvalidInput, "below the number of columns"),
    (lambda: k.Mahalanobis(Gaussian(), np.eye(2))(X), InvalidInput, "one row and column"),
    (lambda: Laplace()(SPARSE), InvalidInput, "Laplace: X must be dense; "),
    (lambda: (Linear() + k.Cauchy())(X, SPARSE), InvalidInput, "Cauchy: X must"),
    (lambda: Gaussian(1e-300)(FAR), InvalidInput, "X divided by lengthscale"),
    (lambda: Gaussian(1e-30)(np.float32(FAR)), InvalidInput, "float32; got an overflow with"),
    (lambda: Gaussian().diag(X[0]), InvalidInput, "Gaussian: X must have"),
    (lambda: Gaussian((1.0, 2.0)).diag(X), InvalidInput, "got 2 for 3"),
    # series and radial kernels
    (lambda: NotAKernel().zonal(3).matrices(1, ONES, ONES), NotPositive, "ient -1"),
    (lambda: DotExponential().zonal(3).matrices(0, *THIRTY), InvalidInput, "below 700"),
    (lambda: DIVERGENT.zonal(3).matrices(0, ONES, ONES), InvalidInput, "after 4096 t"),
    (lambda: DIVERGENT([[2.0]]), InvalidInput, "must converge at"),
    (lambda: k.DotProduct((1.0, -0.5)), NotPositive, "DotProduct: terms must be zero or above"),
    (lambda: k.PowerSeries(2.0), InvalidInput, "PowerSeries: terms must be a sequence"),
    (lambda: k.PowerSeries(np.abs, -1), InvalidInput, "degree must be an"),
    (lambda: k.PowerSeries(lambda n: np.nan * n).log_derivative(ONES), NotPositive, "for each int"),
    (lambda: DotExponential()(30 * X), InvalidInput, "must be a number of dtype float64"),
    (lambda: DotExponential().diag(30 * X), InvalidInput, "got an overflow"),
    (lambda: k.ArcCosine(2)(1e100 * X), InvalidInput, r"rows are too long\. Rescale X"),
    (lambda: k.NNGP().diag(1e200 * X), InvalidInput, "NNGP: .*too long"),
    (lambda: k.Zonal((1.0, -0.1)), NotPositive, r"coefficients must be zero or above.*got -0\.1"),
    (lambda: k.GeneralizedZonal(lambda t: ONES)(X), InvalidInput, r"radial_functions\[0\] must"),
    (lambda: k.GeneralizedZonal(lambda t: np.inf + t)(X), InvalidInput, "NaN or infinite numbers"),
    (lambda: k.Monomials((1.0,), (0, 1)), InvalidInput, "must have the same length; got 1 and 2"),
    (lambda: k.ExponentialPower(2.1), InvalidInput, "power must be from 0 to 2; got 2.1"),
    (lambda: k.Periodic((1.0, 2.0))(X), InvalidInput, "Periodic: period.*got 2 for 3"),
    (lambda: k.SpectralMixture((1.0,), (0.0, 1.0), (1.0,)), InvalidInput, "component; got 1, 2 an"),
    (lambda: k.SpectralMixture((1.0,), ((0.0, 1.0),), (1.0,))(X), InvalidInput, "means must be"),
    (lambda: k.AdditiveChi2()(X), InvalidInput, "must be not below 0, as in a histogram; got -"),
    (lambda: blind(k.AdditiveChi2(), HISTOGRAM)(X), InvalidInput, "must be not below 0, as in a"),
    (lambda: k.SkewedChi2(0.25)(X), InvalidInput, "SkewedChi2: all numbers of X .* above -0.25"),
    (lambda: blind(Gaussian(), HISTOGRAM), UnsupportedKernel, "requires AdditiveChi2.*Nystrom"),
    (lambda: blind(k.AdditiveChi2(), HISTOGRAM, 2), InvalidInput, "one per column; got 2"),
    (lambda: blind(k.Intersection(), HISTOGRAM).gradient(0 * X, Y[:3]), InvalidInput, "above 0"),
    # functions as kernels, and free hyperparameters
    (lambda: bo.check_kernel(np.dot, X), InvalidType, "kernel must be a Kernel"),
    (lambda: bo.check_kernel(Linear(), X[:0]), InvalidInput, "must have at least one row; got 0"),
    (lambda: k.Custom(lambda X, Y: 1.0)(X), InvalidInput, r"shape \(60, 60\) for 60 rows; got"),
    (lambda: k.Custom(np.dot, lambda X: X).diag(X), InvalidInput, r"\(60,\) for 60 rows; got \(60"),
    (lambda: k.Warped(lambda X: X[:, 0], Gaussian())(X), InvalidInput, "Warped: the function must"),
    (lambda: k.Modulated(abs, Gaussian())(X), InvalidInput, "Modulated: the function must return"),
    (lambda: k.Exp(1e6 * Linear())(X), InvalidInput, "Exp: the exponential .*overflow.*Scale"),
    (lambda: (k.Normalised(Linear() ** 2 + 1.0))(1e80 * X), InvalidInput, "Normalised: .*overflow"),
    (lambda: (k.Normalised(Linear() ** 2 + 1.0)).diag(1e80 * X), InvalidInput, "Normalised:"),
    (lambda: k.Free(0.0), InvalidInput, "Free: start must be a positive finite number; got"),
    (lambda: k.Free(2.0, low=3.0), InvalidInput, "Free: low ≤ start ≤ high and low < high are"),
    (lambda: Gaussian(("auto", -1.0)), InvalidInput, r"lengthscale\[1\] must be a positive finite"),
    *(
        (lambda free=kernel: free(X), InvalidInput, r'\("auto"\) has no values before a fit')
        for kernel in (
            *(make("auto") for make in (Gaussian, Matern, Laplace, k.RationalQuadratic)),
            k.Constant("auto"),
            *(Gaussian(("auto", 1.0, 1.0)), k.Periodic(1.0, "auto"), k.Polynomial(2, "auto")),
            *(k.Free() * Gaussian(), DotExponential("auto"), k.ExponentialPower("auto")),
        )
    ),
    (lambda: bo.KernelPCA(kernel=Gaussian("auto")).fit(X), InvalidInput, "requires targets,"),
    (
        lambda: bo.KernelPCA(n_features=0.5).fit(X),
        InvalidType,
        "KernelPCA: n_features must be an i",
    ),
    (lambda: model(Gaussian("auto")).fit(SPARSE, Y), InvalidInput, "requires dense rows; got"),
    (lambda: model(Gaussian("auto"), metric="learned").fit(X, Y), InvalidInput, 'metric="learned"'),
    (lambda: bo.tune(model(Linear()), X, Y), UnsupportedKernel, "Tuning requires a stationary"),
    # methods of features
    (lambda: SINES(boundary=0.5), InvalidInput, "boundary must be 1 or above"),
    (lambda: SINES(box=(1.0, 2.0)), InvalidInput, r"box\[0\] must be a sequence of"),
    (lambda: SINES(box=((2.0, 1.0),)), InvalidInput, "box must have lower below upper"),
    (lambda: k.Polynomials((1.0,), 1.0, 1.0), InvalidInput, "lower must be below upper"),
    (lambda: k.Polynomials((0.0,)), InvalidInput, "weights must not all be zero"),
    (lambda: k.GreenFunction([(1.0, 0.0)]), InvalidInput, "GreenFunction: box must have lower"),
    (lambda: draw(Gaussian(), bo.Fourier(form="phase")).complex(X), InvalidInput, "must be pairs"),
    (lambda: draw(STABLE, bo.Fourier(bo.QMC())), UnsupportedKernel, "Quantiles and densities"),
    (lambda: k.GreenFunction(PLATE, "neumann"), InvalidInput, "kappa must be positive unless"),
    (lambda: k.GreenFunction(PLATE, power=1), InvalidInput, "power must be above half the 2 col"),
    (lambda: k.GreenFunction(PLATE)([[1.0]], [[1.0]]), InvalidInput, "must have the 2 columns of"),
    # draw
    (lambda: bo.draw("gaussian", X=X), InvalidInput, "draw: kernel must be a Kernel.*got"),
    (lambda: draw(Gaussian(), "best"), InvalidInput, "method must be a value such as.*'qmc'.*got"),
    (lambda: bo.draw(Gaussian(), n_features=0, X=X), InvalidInput, "must be a positive integer"),
    (lambda: blind(Gaussian(), "iid", 7), InvalidInput, 'even number.*got 7.*form="phase"'),
    (lambda: bo.draw(Gaussian()), InvalidInput, r"pass X \(rows of data\) or n_inputs"),
    (lambda: blind(Gaussian(), "nystrom"), InvalidInput, "landmarks from rows.*Pass X="),
    (lambda: bo.draw(Gaussian(), X=X, random_state=-1), InvalidInput, "must be None, a"),
    (lambda: blind(1e-9 * Gaussian() + Matern(), "iid", 3), InvalidInput, "n_features of at least"),
    (lambda: blind(Linear() * Gaussian(), "iid", 1), InvalidInput, "above the width of the exact"),
    (lambda: draw(Gaussian(), bo.features.Auto(sample=1)), InvalidInput, "2 or above; got 1"),
    (lambda: bo.Auto(("nystrom",)), InvalidInput, "must be a method, such as"),
    (lambda: blind(Gaussian(), "qmc", 2, d=30000), InvalidInput, "at most 21200 columns; got"),
    (lambda: draw(Laplace(), "orthogonal"), UnsupportedKernel, r"Euclidean.*IID.*QMC.*Nystrom"),
    (lambda: draw(NEGATIVE, "fourier"), UnsupportedKernel, "Fourier requires a kernel of x − y"),
    (lambda: draw(NEGATIVE, bo.features.Auto((bo.Fourier(),))), UnsupportedKernel, "no candidate"),
    *(
        (call, InvalidInput, words)
        for phi in (WAVES, BELOW)
        for call, words in (
            (lambda f=phi: f(X[:, :2]), "must have the 3 columns the map was drawn for; got 2"),
            (lambda f=phi: f(X * np.inf), "X must be finite; got NaN or infinity"),
            (lambda f=phi: f(Y), r"two dimensions.*got shape \(60,\)"),
        )
    ),
    (lambda: bo.draw(Gaussian(), n_features="auto", X=X), InvalidInput, "a positive integer; got"),
    (lambda: model(n_features=1.5).fit(X, Y), InvalidInput, "a number below one .* got 1.5"),
    # maps that cannot be drawn
    (lambda: draw(Matern(), bo.PolySketch()), UnsupportedKernel, "PolySketch requires .* Nystrom"),
    (lambda: blind(DotExponential(), bo.Maclaurin()), InvalidInput, "got none. Pass X=..."),
    (lambda: blind(k.Polynomial(2), bo.Positive()), UnsupportedKernel, "DotExponential or Gauss"),
    (lambda: bo.draw(DIVERGENT, bo.Maclaurin(), X=1.5 * UNIT), InvalidInput, "must converge"),
    (lambda: draw(k.DotProduct((0.0, 0.0)), bo.Maclaurin()), InvalidInput, "above zero"),
    (lambda: blind(Gaussian(), bo.Sign()), UnsupportedKernel, r"Sign requires Angular\(\)"),
    (lambda: blind(k.Angular(), NET), UnsupportedKernel, "requires Neu.* or NNGP.*Nystrom"),
    (lambda: blind(k.ArcCosine(2), bo.ReLU(2, split=True)), InvalidInput, "at least 7, more"),
    (lambda: blind(k.NeuralTangent(9), NET), InvalidInput, "too few features.*more"),
    (lambda: blind(Gaussian(), bo.LeverageFourier(), 8), InvalidInput, "takes rows to measure"),
    (lambda: blind(Matern(1.5), GAUSS), UnsupportedKernel, "Gaussian kernel.*Gauss-Hermite"),
    (lambda: blind(Gaussian(), GAUSS, d=4), InvalidInput, r"at most 3 columns.*for d = 4\."),
    (lambda: bo.Fourier(bo.Grid(), "phase"), InvalidInput, 'Grid.* requires form="pair".*got'),
    (lambda: draw(Matern(), bo.Gegenbauer("monomial")), UnsupportedKernel, "requires a kernel of"),
    (lambda: blind(Gaussian(), bo.Gegenbauer()), InvalidInput, "Gegenbauer takes its radial"),
    (lambda: blind(Gaussian(), bo.Gegenbauer("monomial", 3, 2), 2), InvalidInput, "at least 3"),
    (lambda: blind(Gaussian(), bo.MercerHarmonic()), InvalidInput, "takes its radial functions"),
    (lambda: draw(Gaussian(), bo.Explicit()), UnsupportedKernel, "a kernel with finitely many"),
    (lambda: draw(2.0 * k.Periodic(), PROJECTED), UnsupportedKernel, "of the Euclidean"),
    (lambda: draw(Matern(), bo.Compressed(bo.HermiteMercer())), UnsupportedKernel, "requires a"),
    (lambda: blind(Gaussian(), bo.HermiteMercer()), InvalidInput, "takes mean and principal axes"),
    (lambda: blind(Gaussian(), SINES()), InvalidInput, "takes the box from rows"),
    (lambda: blind(Gaussian(), bo.Compressed(bo.Fourier()), 6), InvalidInput, "its directions"),
    (lambda: blind(Gaussian(), PROJECTED, 6), InvalidInput, "principal axes"),
    (lambda: blind(k.Brownian(), SINES(conditions="neumann"), d=1), InvalidInput, "its own box"),
    (lambda: blind(k.GreenFunction(PLATE), SINES(boundary=2.0), d=2), InvalidInput, "own box"),
    (lambda: blind(k.GreenFunction(PLATE), SINES()), UnsupportedKernel, "the 2 columns of the"),
    (lambda: draw(Gaussian(), SINES(box=((0.0, 1.0),))), InvalidInput, "each column; got 1 for 3"),
    (lambda: draw(Gaussian(), bo.Nystrom([[1.0, 2.0]])), InvalidInput, "the 3 columns.*got 2"),
    (lambda: bo.Nystrom("k-means"), InvalidInput, "landmarks must be 'rpcholesky', .*got"),
    (lambda: draw(Gaussian(), bo.ExactKernel()), InvalidInput, "ExactKernel makes no features"),
    (lambda: bo.SVR(method="local").fit(X, Y), InvalidInput, "LocalKernel makes no features"),
    (lambda: landmarks.Points(X[:0]), InvalidInput, "Points: rows must be at least one row; got"),
    # certificates
    (lambda: certify(WAVES, X, alpha=0), InvalidInput, "alpha must be a positive finite number"),
    (lambda: certify(WAVES, X[:, :2], alpha=1.0), InvalidInput, "the 3 columns the map was"),
    (lambda: certify(WAVES, X, alpha=1.0, confidence=1), InvalidInput, "above 0 and below 1; got"),
    (lambda: certify(WAVES, X, alpha=1.0, n_sample=10), InvalidInput, "an integer, 64 or above"),
    (lambda: certify(WAVES, X, alpha=1.0, n_rows=10), InvalidInput, "an integer, 60 or above; got"),
    (lambda: certify(WAVES, X[:1], alpha=1.0), InvalidInput, "at least 2 rows; got 1"),
    (lambda: certify(WAVES, X, alpha=1.0, n_rows=99), InvalidInput, "64 rows to represent"),
    (lambda: certify(WAVES, X, alpha=1.0, kernel=ENDLESS), InvalidInput, "must be finite"),
    (lambda: certify(WAVES, X, alpha=1.0, kernel=np.ravel), InvalidInput, r"kernel\(X\) must be a"),
    (lambda: certify(WAVES, X, alpha=1.0, kernel=NEGATIVE), NotPositive, "must be positive"),
    (lambda: certify(WAVES, MANY, alpha=0.5, kernel=DENTED), NotPositive, "must be positive"),
    (lambda: certify(np.tanh, X, alpha=1.0), InvalidInput, "kernel must be passed"),
    (lambda: certify(np.ravel, X, alpha=1.0, kernel=Gaussian()), InvalidInput, r"phi\(X\) must be"),
    (lambda: bo.certify_costs(WAVES, X, rank=60), InvalidInput, "below the 60 rows measur"),
    (lambda: bo.risk(WAVES, X, Y[:5], alpha=1.0), InvalidInput, "same number of rows"),
    (lambda: bo.risk(WAVES, X, Y, alpha=-1), InvalidInput, "alpha must be a posi"),
    (lambda: bo.risk(WAVES, X, Y, alpha=1.0, noise=-0.1), InvalidInput, "noise must be a"),
    (lambda: bounds.leverage_scores(3, X, alpha=1), InvalidType, "must be a Kernel or a Feat"),
    (lambda: bounds.effective_dimension(Gaussian(), TALL, alpha=1), InvalidInput, "1 to 10,000"),
    (lambda: bounds.effective_dimension(NEGATIVE, X, alpha=1), NotPositive, "its eigenvalues run"),
    (lambda: bo.check_features(3), InvalidType, "phi must be a FeatureMap or a callable"),
    (lambda: bo.check_features(np.tanh), InvalidInput, "X must be passed if the map has no n_i"),
    (lambda: bo.check_features(WAVES, X[:1]), InvalidInput, "at least 2 rows; got 1"),
    (lambda: bo.compare("gaussian", X, n_features=8), InvalidType, "kernel must be a Kernel"),
    (lambda: bo.compare(Gaussian(), X[:7], n_features=8), InvalidInput, "at least 8 rows; got 7"),
    (lambda: bo.compare(Gaussian(), X, n_features=8, n_sample=1), InvalidInput, "n_sample must be"),
    (lambda: compare(methods=["best"]), InvalidInput, "must be a"),
    (lambda: compare(methods=[bo.Sign()]), InvalidInput, "no method supports"),
    # bounds
    (lambda: HOEFFDING.width(0.0), InvalidInput, "error must be a positive finite number"),
    (lambda: HOEFFDING.error(1), InvalidInput, "n_features must be 2 or above; got 1"),
    (lambda: HOEFFDING.error(10, 1.0), InvalidInput, "confidence must be a number above 0"),
    (lambda: fourier(Gaussian(), X, "hoeffding", "complex"), InvalidInput, "form must be one of"),
    (lambda: fourier(Linear(), X, "hoeffding"), UnsupportedKernel, "requires a kernel of x − y"),
    (lambda: fourier(Laplace(), X, "rahimi_recht"), UnsupportedKernel, "got Laplace"),
    (lambda: fourier(k.Exponential(), X, "rahimi_recht"), UnsupportedKernel, "finite variance"),
    (lambda: bounds.leverage_bound(-5.0, 9.0), InvalidInput, "leverage must be a positive"),
    (lambda: bounds.leverage_bound(9.0, 9.0 * (1 + 1e-7)), InvalidInput, "must be at least"),
    (lambda: fourier(Gaussian(), X, "spectral", alpha=1e4), InvalidInput, "at most ‖K‖ ="),
    (lambda: fourier(Gaussian(), X, "projection_cost", rank=60), InvalidInput, "lower rank"),
    (lambda: bounds.zonal_bound(Matern(1.5), X, alpha=1.0), UnsupportedKernel, "or rows on one"),
    (lambda: bounds.zonal_bound(Gaussian(0.01), X, alpha=0.1), InvalidInput, "part of the trace"),
    (lambda: CUTS.width(0.05), InvalidInput, "the error of the last cut"),
    (lambda: bounds.ball_bound(Matern(1.5), X, alpha=1.0), UnsupportedKernel, "the Gaussian"),
    (lambda: bounds.ball_bound(Gaussian(0.01), X, alpha=0.1), InvalidInput, "functions, which a"),
    (lambda: HOEFFDING.best_cut(9), InvalidInput, "requires a bound of zonal_bound"),
    (lambda: directions(k.Angular(), X, bo.ReLU(1)), UnsupportedKernel, r"requires Angular\(\)"),
    (lambda: directions(k.ArcCosine(1), X, bo.ReLU(1)), UnsupportedKernel, "power series of ⟨"),
    (lambda: directions(DIVERGENT, 0.3 * X, ALL_DEGREES), UnsupportedKernel, "whose terms 2ᴺ a_N"),
    (lambda: directions(Linear(), X, bo.TensorSketch()), UnsupportedKernel, "with Tensor"),
    (lambda: bo.compare_bounds(NEGATIVE, X, alpha=1.0), NotPositive, "its eigenvalues run from"),
    (lambda: bo.compare_bounds(Linear() * k.NNGP(), X, alpha=1.0), UnsupportedKernel, "or a rot"),
    (lambda: bo.compare_bounds("gaussian", X, alpha=1.0), InvalidType, "must be a Kernel"),
    # grids and the globe
    (lambda: on_grid(Gaussian(0.3), np.tile(X, 2)[:, :4]), UnsupportedKernel, "one to three"),
    (lambda: on_grid(Linear()), UnsupportedKernel, "requires a stationary kernel with a spectral"),
    (lambda: on_grid(Gaussian(1e-9)), InvalidInput, "more than any memory holds.*a longer"),
    (lambda: on_grid(k.Exponential(1e-3)), InvalidInput, "tolerance=0.001 takes .* modes"),
    (lambda: on_grid(Gaussian(), metric="learned"), InvalidInput, "learned.*supports few"),
    (lambda: on_grid(Gaussian(), alpha=0.0), InvalidInput, "alpha must be above 0 where modes"),
    (lambda: on_grid(Gaussian(), X[:, :2] * [1, 0]), InvalidInput, "a size along each column; got"),
    (lambda: on_grid(Gaussian(), box=((0.0, 0.5),) * 2), InvalidInput, "rows must lie in the box"),
    (lambda: on_grid(Gaussian(), box=((0.0, 0.5),)), InvalidInput, "a pair for each column; got 1"),
    (lambda: bo.FourierGrid(1e-15), InvalidInput, "tolerance must be from 1e-12 to 1"),
    (lambda: blind(Gaussian(), bo.FourierGrid(), d=2), InvalidInput, "takes the box from rows"),
    (lambda: SPHERE.fit(X[:, :2] + [90, 0], Y), InvalidInput, "must lie within -90 to 90"),
    (lambda: SPHERE.fit(X[:, :2], Y).predict([[95.0, 10.0]]), InvalidInput, "within -90 to 90"),
    (lambda: degree_variances(ARC, 30), NotPositive, "degree variances must be zero or above; got"),
    (lambda: degree_variances(OnSphere(Gaussian((1.0, 1.0, 2.0))), 30), UnsupportedKernel, "isotr"),
    (lambda: degree_variances(Gaussian(), 30), UnsupportedKernel, "requires an OnSphere kernel"),
    (lambda: OnSphere("linear"), InvalidInput, "kernel must be a Kernel of three columns"),
    (lambda: OnSphere()([[95.0, 0.0]]), InvalidInput, r"within -90 to 90 degrees; got 95\."),
    (lambda: draw(OnSphere(), bo.SphericalHarmonics()), InvalidInput, "in degrees; got 3 columns"),
    (lambda: bo.SphericalHarmonics(1001), InvalidInput, "degree must be from 1 to 1,000; got"),
    (lambda: ON_GLOBE.fit(X[:, :2], Y), UnsupportedKernel, "requires an OnSphere kernel"),
    (lambda: blind(Gaussian(), HARMONICS, 36, d=2), UnsupportedKernel, "OnSphere"),
    (lambda: nngp(GLOBE * Matern()).fit(X, Y), UnsupportedKernel, "stationary kernel, for which"),
    (lambda: nngp(GLOBE + k.Exp(Columns(OnSphere(), (0, 1)))).fit(X, Y), UnsupportedKernel, "Near"),
    (lambda: nngp(GLOBE).fit(X + 95.0, Y), InvalidInput, "latitude, the first column, must lie"),
    # sequences
    (lambda: EQUAL(X[:, :2]), InvalidInput, "rows must have 2 for each of 3 steps or more; got 2"),
    (lambda: TRACKS(np.ones((3, 6))), InvalidInput, "one column for the number of steps and 2 for"),
    (lambda: EQUAL.rows([np.ones((n, 2)) for n in (1, 5)]), InvalidInput, "must all have 5 steps"),
    (lambda: TRACKS.rows([np.ones((7, 2))], 5), InvalidInput, "room for 5 steps; got a sequence"),
    (lambda: TRACKS.rows([]), InvalidInput, "there must be one sequence or more; got none"),
    (lambda: TRACKS.rows([np.ones((3, 4))]), InvalidInput, r"numbers of shape \(steps, 2\); got"),
    (lambda: EQUAL.rows(np.ones((3, 4, 5))), InvalidInput, r"shape \(4, 5\) for sequence 0"),
    (lambda: k.one_hot("ACGT", "ACGT"), InvalidInput, "texts must be a sequence of strings; got"),
    (lambda: k.one_hot(["A"], "AA"), InvalidInput, "letters must be a string of different letters"),
    (lambda: k.spectrum(0, 4), InvalidInput, "spectrum: width must be an integer, 1 or above"),
    (lambda: model().fit(STEPS, Y), InvalidInput, "three dimensions, .* requires a kernel of"),
    (lambda: model(Columns(EQUAL, range(8))).fit(STEPS, Y), InvalidInput, "a kernel of sequences"),
    (lambda: model(EQUAL).fit(STEPS, Y).predict(STEPS[:, :3]), ValueError, "X has 6 features, but"),
    (lambda: model(TRACKS + Linear()).fit(STEPS, Y).predict(LONGER), InvalidInput, "room for 4"),
    # rows, targets and weights of a fit
    (lambda: model().fit(np.ma.masked_array(X, X > 2), Y), ValueError, "X must have no"),
    (lambda: model().fit(np.full((60, 3), "a", object), Y), ValueError, "X must hold numbers; got"),
    (lambda: model().fit(DATES, Y), InvalidType, "KernelRidge: X must hold real numbers"),
    (lambda: model().fit("table.csv", Y), ValueError, "X must be rows; got the text"),
    (lambda: model().fit(X, np.full(60, "a")), InvalidType, "KernelRidge: y must be real"),
    (lambda: model().fit(X, np.full(60, "a", object)), InvalidType, "Ridge: y .* a classifier"),
    (lambda: model().fit(X, DATES[:, 0] - DATES[0, 0]), InvalidType, "by a unit"),
    (lambda: model().fit(X, DATES[:, 0]), InvalidType, "KernelRidge: y .* got dtype"),
    (lambda: model().fit(X, put(Y, np.inf)), ValueError, "y must hold finite"),
    (lambda: model().fit(X, Y * 1e170), ValueError, "y must lie within"),
    (lambda: model(Gaussian()).fit(X, Y, put(np.ones(60), np.nan)), ValueError, "contains NaN"),
    (lambda: model(Gaussian()).fit(X, Y, np.ones((60, 2))), ValueError, "must be 1D array or"),
    (lambda: model(Gaussian()).fit(X, Y, MASKED), ValueError, "sample_weight must have no missing"),
    (lambda: model().fit(X, Y, DATES[:, 0]), InvalidType, "sample_weight must hold real"),
    (lambda: model().fit(TWICE, Y), InvalidInput, "columns of X must have different names; got"),
    (lambda: model().fit(pd.Series(Y), Y), InvalidInput, r"Pass X.to_frame\(\)"),
    (lambda: model().fit(X * np.nan, Y), InvalidInput, "must vary between rows; got none"),
    (lambda: model().fit(X * 1e-315, Y), InvalidInput, "underflow in float64"),
    # parameters of a learner
    (lambda: model(n_features=33, method="iid").fit(X, Y), ValueError, "even number of"),
    (lambda: model(fit_intercept="no").fit(X, Y), InvalidType, "fit_intercept must be True or"),
    (lambda: bo.draw(Gaussian(), n_features=8, n_inputs=1.5), InvalidType, "draw: n_inputs must"),
    # rows to predict
    (lambda: FITTED.predict(put(X, np.nan)), ValueError, "the rows of the fit had none"),
    (lambda: FITTED.predict(X[:0]), ValueError, r"0 sample\(s\).*minimum of 1 is"),
    (lambda: FITTED.predict(np.ma.masked_array(X, X > 2)), ValueError, "X must have no"),
    (lambda: FITTED.predict(pd.DataFrame(DATES)), InvalidType, "KernelRidge: X must hold real"),
    (lambda: FITTED.predict(TWICE), InvalidInput, "must have different names; got 'a' more than"),
    (lambda: model().certificate_, NotFittedError, "This KernelRidge instance is not fitted yet"),
    (lambda: model().certify(X), NotFittedError, "instance is not fitted yet"),
    (lambda: bo.merge(model()), NotFittedError, "instance is not fitted yet"),
    (lambda: bo.tune(model(), X, 1e300 * Y), InvalidInput, "KernelRidge: y must .* by a power of"),
    # other calls
    (lambda: on_sphere([13.4, 151.2], [52.5, -33.9]), InvalidInput, "latitude must lie within"),
    (lambda: CustomLoss("square", np.add, np.add), InvalidType, r"must be functions of \(y, f\)"),
    *(
        (lambda q=q: as_levels(q), InvalidInput, "quantiles must lie between 0 and 1")
        for q in (0.0, 1.0, (0.5, 0.5), (0.9, 0.1), (), (0.2, 1.2))
    ),
    (lambda: nngp().fit(X[:1], Y[:1]), InvalidInput, "at least 2 rows of positive"),
    (lambda: nngp(metric="learned").fit(X, Y), InvalidInput, 'metric="learned" chooses features'),
    (lambda: model(method=bo.NearestNeighbours()).fit(X, Y), InvalidInput, "no features"),
    (lambda: on_grid(ODD, 1e3 * X[:, :1], 1e-10), UnsupportedKernel, "Round them"),
    (lambda: bo.plan(X, Y, Linear(), methods=[bo.FourierGrid()]), InvalidInput, "spectral density"),
    (lambda: bo.plan(X, None, Gaussian()), InvalidInput, "the target must vary"),
    (lambda: bo.plan(X[:15], Y[:15], Gaussian()), InvalidInput, "at least 16 rows; got 15"),
    (lambda: bo.plan(X, 0 * Y, Gaussian()), InvalidInput, "the target must vary"),
    (lambda: bo.plan(bo.Blocks.from_arrays(X), Y, Gaussian()), InvalidInput, "leave y out"),
    (lambda: plan_of(budget=-1), InvalidInput, "budget must be a positive finite number; got -1"),
    (lambda: plan_of(budget="1h"), InvalidType, "budget must be a positive finite number; got '1h"),
    (lambda: plan_of(budget={"hours": 1}), InvalidInput, '"seconds", "bytes" or both; got hours'),
    (lambda: plan_of(budget={"bytes": 9}), InvalidInput, "no fit is predicted to take at most 9"),
    (lambda: plan_of(budget=1e-9), InvalidInput, "the fastest takes .* Allow more time or mem"),
    (lambda: plan_of(n_rows=20), InvalidInput, "n_rows must be at least the 60 rows pa.*; got 20"),
    (lambda: plan_of(widths=[]), InvalidInput, "widths must be at least one number"),
    (lambda: plan_of(widths=[16, 10_001]), InvalidInput, "10,000; got .* passes over the rows"),
    (lambda: plan_of(methods=[]), InvalidInput, "methods must name at least one"),
    (lambda: plan_of(kernel=k.Polynomial(2), methods=["structured"]), InvalidInput, "Fourier"),
    (lambda: bo.predictive_scorer(model(), X, Y), InvalidInput, "must be a"),
    (lambda: bo.normal_scores(Y, ONES, Y**2), InvalidInput, r"must have one shape.*got \(60,\)"),
    (lambda: bo.normal_scores(Y * np.nan, Y, Y**2), InvalidInput, "y must be finite; got NaN or"),
    (lambda: bo.normal_scores(Y, Y, 0 * Y), InvalidInput, "deviation must be above 0; got 0"),
    (lambda: bo.normal_scores(Y, Y, Y**2, coverages=(1.5,)), InvalidInput, "coverages must be"),
    (lambda: bo.engines.Dask(3), InvalidType, "client must be a distributed.Client or.*got int"),
    (lambda: bo.engines.Dask(None, 0), InvalidInput, "Dask: timeout must be"),
    # processes
    (lambda: PROCESS.predict(X, return_std=True, return_cov=True), InvalidInput, "return_std or"),
    (lambda: process(method=ITERATED), InvalidInput, "takes no preconditioner"),
    (lambda: process(X=LONG, y=LONG[:, 0], method="exact"), InvalidInput, "20,000; got 20,001"),
    (lambda: process(lengthscale="evidence", metric="learned"), InvalidInput, 'lengthscale="evide'),
    (lambda: process(Linear(), lengthscale="evidence"), UnsupportedKernel, "requires a stationary"),
    # derivatives and averages that are observed
    (lambda: bo.Derivatives(X, 3, Y), InvalidInput, "column must be below the 3 col"),
    (lambda: bo.Derivatives(X, 0, Y[:3]), InvalidInput, "for each of the 60 points"),
    (lambda: bo.Derivatives(X, 0, Y, -1.0), InvalidInput, "noise must be a variance"),
    (lambda: bo.BlockAverages(X + 1, X, Y), InvalidInput, "lower at most upper; got shapes"),
    (lambda: bo.BlockAverages(X[:2], X[:2] + 1, Y[:2], points=99), InvalidInput, "at most 8,192 "),
    (lambda: process().observe(), InvalidInput, "expected Derivatives or BlockAverages"),
    (lambda: process().observe(3), InvalidType, "expected Derivatives or Block"),
    (lambda: process().observe(bo.Derivatives(X[:, :2], 0, Y)), InvalidInput, "must have the 3"),
    (lambda: process(Laplace()).observe(bo.Derivatives(X, 0, Y)), UnsupportedKernel, "Gradients"),
    (lambda: nngp().fit(X, Y).observe(bo.Derivatives(X, 0, Y)), InvalidInput, "a fit on a Fourier"),
    # universal kriging, averages over cells, variograms
    (lambda: krige(trend="cubic"), InvalidInput, "trend must be"),
    (lambda: krige(trend=lambda X: X * (1, 1, 0)), InvalidInput, "must vary and be line"),
    (lambda: krige(trend=lambda X: X[:, 0]), InvalidInput, r"array of 60 rows.*got shape"),
    (lambda: krige(y=np.ones((60, 2))), InvalidInput, r"shapes \(n, d\) and \(n,\); got shapes"),
    (lambda: krige(process(fit_intercept=False)), InvalidInput, "with"),
    (lambda: krige(bo.KernelRidge()), InvalidInput, "must be a GaussianProcessRegressor"),
    (lambda: cells(upper=X), InvalidInput, "lower and upper must be finite, and lower below upper"),
    (lambda: cells(lower=X[0]), InvalidInput, r"corners of cells, both \(m, 3\); got shapes"),
    (lambda: cells(nodes=100), InvalidInput, r"at most 4,096 places per cell; got 100\^3 ="),
    (lambda: cells(nodes=0), InvalidInput, "nodes must be"),
    (lambda: cells(bo.KernelRidge()), InvalidInput, "process must be a GaussianProcessRegressor,"),
    (lambda: vario(y=ONES.repeat(60)), InvalidInput, "y must be one target that varies; got 1"),
    (lambda: vario(max_lag=1e-9), InvalidInput, "at least one pair of rows must be within max_lag"),
    (lambda: vario(direction=(0, 0, 0)), InvalidInput, r"direction must be a vector of 3"),
    (lambda: vario(estimator="mean"), InvalidInput, "estimator must be"),
    (lambda: vario(n_lags=0), InvalidInput, "n_lags must be"),
    (lambda: vario(X=0 * X), InvalidInput, "two or more places; got 60 rows at the same"),
    (lambda: vario().fit("linear"), UnsupportedKernel, "requires a kernel with a lengthscale"),
    (lambda: globe(direction=(0, 1)), InvalidInput, "direction requires metric"),
    (lambda: globe(X=X[:, :2] + 95), InvalidInput, "latitude, the first column, must lie within"),
    (lambda: globe(X=X), InvalidInput, r"rows must be \(latitude, longitude\) in degrees"),
    (lambda: globe(metric="haversine"), InvalidInput, "metric must be"),
    (lambda: globe().fit("laplace"), InvalidInput, "OnSphere: kernel must be a Kernel"),
    # regressions by other losses
    (lambda: regressor(alpha="loo"), InvalidInput, '"holdout" or a number of 0 or above; got'),
    (lambda: regressor(loss="poisson"), InvalidInput, 'loss="poisson" needs y of 0 or above; got'),
    (lambda: regressor(y=abs(Y) - abs(Y).min(), loss="gamma"), InvalidInput, 'loss="gamma" needs'),
    (lambda: regressor(y=0 * Y, loss="poisson"), InvalidInput, "needs a y above 0 in some row;"),
    (lambda: regressor(y=X, loss="quantile", quantiles=(0.2, 0.5, 0.8)), InvalidInput, "several"),
    (lambda: regressor(loss="multinomial"), InvalidInput, "two columns or"),
    (lambda: regressor(penalty=abs, alpha="holdout"), InvalidInput, "requires a number alpha"),
    (lambda: regressor(penalty=lambda r: -r), InvalidInput, "penalty must be nondecreasing"),
    (lambda: regressor(penalty=lambda r: np.nan), InvalidInput, "finite for some norm"),
    (lambda: squares(1, slope_of=lambda y, f: y - f), InvalidInput, "slope must be the derivative"),
    (lambda: squares(-1), InvalidInput, "the loss must be convex"),
    (lambda: squares(1, hessian_of=lambda y, f: f), InvalidInput, "hessian must return shape .16"),
    # tables
    (lambda: schema(of=["x"]), InvalidInput, "an encoder must have a kind, one of 'numbers'"),
    (lambda: schema(kind="other"), InvalidInput, "an encoder must have a kind, one of 'numbers'"),
    (lambda: model().fit(pd.DataFrame({"a": [None] * 60}), Y), InvalidInput, "one column must"),
    (lambda: model().fit(pd.DataFrame(X), "y"), InvalidInput, "must have a column 'y'"),
    (lambda: Schema(["a", "b"], target="a"), InvalidInput, "role and be named once; got 'a' more"),
    (lambda: Schema(["a", "a=x"], {"a": ["x"]}), InvalidInput, "other's category; got 'a=x' more"),
    (lambda: Schema([1]), InvalidType, "column names must be text; got 1"),
    # engines, files, reports and loops
    *(
        (lambda where=place: FITTED.fit_blocks(BLOCKS, Local(device=where)), InvalidInput, words)
        for place, text in ((3, " 3"), ((), ""), ("none", " none"), (("cpu", "cuda:77"), " cpu, c"))
        for words in [f"Local: device must name devices of .* with float64; got{text}"]
    ),
    (lambda: Local("run.ckpt", device="cpu"), InvalidInput, "sums of this process.*Leave out one"),
    (lambda: Local(interval=0), InvalidInput, "Local.*interval must be"),
    (lambda: Local(cache_bytes=-1), InvalidInput, "Local.*cache_bytes must be"),
    (lambda: model().fit_blocks(BLOCKS, "dask"), InvalidType, "Ridge: where must be an.*got str"),
    (lambda: model().fit_blocks(BLOCKS, Local), InvalidType, "where must be.*got the class Local"),
    (lambda: require_arrays({"0": TWOS.view(bool)}), ValueError, "array 0 must hold 0 and 1 only"),
    (lambda: model().__setstate__({}), ModelFileError, "the pickle is from an unknown version"),
    (lambda: run_demo(".", seed=-1), InvalidInput, "seed must be an integer, 0 or above"),
    (lambda: run_demo(".", seed="zero"), InvalidType, "seed must be an integer, 0 or above"),
    *(
        (lambda p=p: hadamard(np.ones((2, p))), InvalidInput, f"of two of columns, got {p}; pad")
        for p in (0, 3, 6, 1000)
    ),
    (lambda: lapack.solve_by_triangle(UPPER, np.ones(3, "f"), False), ValueError, "one kind, "),
    (lambda: lapack.factor(np.eye(3, dtype=np.int64)), ValueError, "got int64"),
    (lambda: lapack.factor(np.eye(6, order="F")[::2, ::2]), ValueError, "must be contiguous"),
    (lambda: lapack.solve_by_triangle(UPPER, ONES.repeat(6)[::2], False), ValueError, "contiguous"),
    (lambda: lapack.add_square(UPPER, np.broadcast_to(ONES, (3, 4))), ValueError, "contiguous"),
    # choices
    (lambda: metric(Laplace()), UnsupportedKernel, "requires a kernel of the Euclidean distance"),
    (lambda: metric(X=SPARSE), InvalidInput, "requires dense rows"),
    (lambda: k.Monotone(Gaussian(), (0,), ((1.0, 0.0),), ((0.0, 1.0),)), InvalidInput, "points"),
    (lambda: k.Monotone(Gaussian(), (0, 1), ((0, 1),), ((0, 1),)), InvalidInput, ": points"),
    (lambda: k.Monotone(Gaussian(), (3,), ((0, 1),), ((0, 1),))(X), InvalidInput, "columns must"),
    (lambda: bo.draw(Gaussian(), "hermite", X=WIDE), UnsupportedKernel, "HermiteMercer"),
    (lambda: bo.SVC(decision_function_shape="ovo"), InvalidType, "multi_class, 'ovr' or 'ovo'"),
    # merged models, and outputs that a fit does not have
    (lambda: bo.merge(PART, part(n_features=16)), IncompatibleModels, "same feature map"),
    (lambda: bo.merge(PART, part(y=X)), IncompatibleModels, "same targets; got rows of"),
    (lambda: bo.merge(PART, process(n_features=16)), IncompatibleModels, "one class; got"),
    (lambda: bo.merge(*[classes(bo.SVC)] * 2), InvalidType, r"must have moments.*got SVC"),
    (lambda: bo.merge(classes(), classes(K=3)), IncompatibleModels, "same classes; got"),
    (bo.merge, InvalidInput, "at least one fitted model is required; got none"),
    (lambda: model().solve_again(), NotFittedError, "not fitted yet"),
    (EXACT.solve_again, InvalidInput, "solve_again: an exact fit keeps no moments.*Call"),
    (lambda: EXACT.certify(X), InvalidInput, "nothing to certify; fit with features"),
    (lambda: EXACT.coef_, AttributeError, "exact fit has no features; see dual_coef_"),
    (lambda: EXACT.certificate_, AttributeError, "has no features, so there is nothing to"),
    (lambda: EXACT.partial_fit(X, Y), AttributeError, "no attribute 'partial_fit'"),
    (lambda: FITTED.dual_coef_, AttributeError, "only a fit with method="),
    (lambda: LEAVES.moments_, AttributeError, "moments_: a local fit has"),
    (LEAVES.solve_again, InvalidInput, "solve_again: a local fit keeps no moments.*Call"),
    (lambda: LEAVES.partial_fit(X, Y), AttributeError, "no attribute 'partial_fit'"),
    (lambda: model(method="exact", alpha=0).fit(X, Y), InvalidInput, 'method="exact" requires'),
    (lambda: model(method="local", alpha=0).fit(X, Y), InvalidInput, 'method="local" requires'),
    (lambda: bo.draw(Gaussian(), bo.LocalKernel(), n_features=8, X=X), InvalidInput, "LocalKernel"),
    (lambda: model(alpha=[1.0, 2.0]).fit(X, X), InvalidInput, "one for each of the 3 targets; got"),
    (lambda: model(alpha=[]).fit(X, Y), InvalidInput, "alpha must be a number for each target;"),
    (lambda: model(alpha=[1.0, -1.0]).fit(X, X[:, :2]), InvalidInput, r"alpha\[1\] must be a"),
    (lambda: classes(method=ITERATED).predict_proba(X), InvalidInput, "probabilities"),
    # intervals
    (lambda: model().fit(X[:9], Y[:9]).predict_interval(X), InvalidInput, "9 rows cannot cali"),
    (lambda: FITTED.predict_interval(X, 1.5), InvalidInput, "coverage must be a number above 0"),
    (lambda: FITTED.calibrate(X, X), InvalidInput, "calibrate: y must have the 1 targets.*got 3"),
    (lambda: FITTED.calibrate(X, Y, folds=70), InvalidInput, "folds=70 requires at least 70 rows"),
    (lambda: FITTED.calibrate(X, Y[:5], folds=2), InvalidInput, "X and y must have equally many"),
    (lambda: PROCESS.predict(X, include_noise=True), InvalidInput, "requires return_std=True"),
    # components and correlations
    (lambda: COMPONENTS.inverse_transform(X), AttributeError, "no attribute 'inverse_"),
    (lambda: CORRELATED.transform(X, X[:, 0]), InvalidInput, "Y must have the 2 columns of the"),
    (lambda: CORRELATED.partial_fit(X, X[:, 0]), InvalidInput, "Y must have the 2 columns of"),
    (lambda: CORRELATED.score(X, X[1:, :2]), InvalidInput, "same number of rows; got 60 and 59"),
    (lambda: bo.KernelKMeans(61, Gaussian()).fit(X), InvalidInput, "n_clusters=61 must be .* got"),
    (lambda: bo.KernelKMeans(61, Gaussian()).partial_fit(X), InvalidInput, "n_clusters=61 must be"),
    # moments
    (lambda: sums() + Moments.of(X, X), IncompatibleModels, "same features and targets.*t=1 and"),
    (lambda: Moments.of(X[:5], Y[:5]) - sums(), IncompatibleModels, "only rows that are included"),
    (lambda: sums(put(np.ones(60), -1.0)), InvalidInput, "sample_weight must be finite and not"),
    (lambda: sums(np.zeros(60)), InvalidInput, "at least one row with a positive weight"),
    (lambda: Accumulator().moments(), InvalidInput, "at least one row with a positive weight"),
    (lambda: sums().decay(0.0), InvalidInput, r"factor must lie in \(0, 1\]; got"),
    # stochastic gradient descent
    (lambda: steps(alpha=0.0), InvalidInput, "'optimal' requires alpha above zero"),
    (lambda: steps(early_stopping=True, validation_fraction=1e-4), InvalidInput, "leaves no rows"),
    (lambda: steps(strategy="exact_cached"), UnsupportedKernel, "has no exact finite features"),
    (lambda: steps(strategy="gram_cached", stream=True), InvalidInput, "'gram_cached' keeps all"),
    (lambda: steps(early_stopping=True, stream=True), InvalidInput, "early_stopping=True keeps"),
    (lambda: BALANCED.partial_fit(X, Y > 0), InvalidInput, "class_weight="),
    (lambda: WILD.fit(*TILED), InvalidInput, "the steps diverged in epoch"),
    (lambda: steps(Linear(), strategy="gram_cached").coef_, AttributeError, "dual_coef_ of supp"),
    # neighbours, and losses of a user
    (lambda: NEAR.predict(X, return_cov=True), InvalidInput, "has no covariance of rows"),
    (lambda: NEAR.sample_functions(2), InvalidInput, "has no functions"),
    (lambda: NEAR.gradient(X), InvalidInput, "has no gradients"),
    (lambda: NEAR.moments_, AttributeError, "by nearest neighbours have no features"),
    (lambda: NEAR.map_, AttributeError, "has no features"),
    (lambda: squared(slope=lambda y, f: (y - f) ** 2), InvalidInput, "'mine': slope must be the"),
    (lambda: squared(-1), InvalidInput, "must be convex, its curvature zero or above; got -2 at"),
    (lambda: squared(value=lambda y, f: y * f * np.nan), InvalidInput, "value must be finite"),
    (lambda: squared(value=lambda y, f: 1.0), InvalidInput, "one number for each of y and f"),
    # displays, reports and double descent
    (lambda: plot("Path", classes(bo.SVC, C=1.0)), BochnerError, "penalties.*SVC did not"),
    (lambda: plot("Spectrum", classes(bo.SVC)), BochnerError, r"keeps no moments .*\. Pass rows"),
    (
        lambda: plot("Calibration", classes(bo.SVC, probability=False), X, Y > 0),
        BochnerError,
        "no predict_proba",
    ),
    (lambda: bo.column_importance(COMPONENTS, X), BochnerError, "a target; KernelPCA has none"),
    (lambda: bo.column_importance(FITTED, X, by="shapley"), InvalidInput, "importance: by must be"),
    (lambda: bo.column_importance(FITTED, X[:1]), InvalidInput, "at least 2 rows are required to"),
    (lambda: bo.contributions(FITTED, X, X, n_orders=5), InvalidInput, "n_orders must be even"),
    (lambda: bo.report_model(FITTED, X[:, :1], Y), ValueError, "1 features, but KernelRidge is"),
    (lambda: bo.report_model(FITTED, X, Y, n_sample=3), InvalidInput, "report_model: n_sample"),
    (lambda: bo.report_model(classes(), X, ONES.repeat(60) + 6), ValueError, "label must be one"),
    (lambda: descent(widths=[]), InvalidInput, "widths must have at least one"),
    (lambda: descent(alpha=()), InvalidInput, "alpha must have at least one"),
    (lambda: descent(y=Y[:59]), InvalidInput, "y must be dense and have one entry per row of X"),
    (lambda: descent(y=np.full(60, "a")), InvalidInput, "y must have at least two classes, and"),
    (lambda: descent(y=np.full(60, "a"), task="regression"), InvalidType, "must hold real numbers"),
    (lambda: descent(test=(X[:, :2], Y)), InvalidInput, "test rows of the same columns"),
    (lambda: descent(kernel="sines"), BochnerError, "kernel must be a value"),
    # tuning
    (lambda: bo.tune(Ridge(), X, Y), InvalidInput, "requires an estimator with kernel, method"),
    (lambda: bo.tune(model(), X, Y, criterion="aic"), InvalidInput, "criterion must be one of"),
]


@pytest.mark.parametrize(
    ("call", "error", "words"), CASES, ids=lambda part: part if isinstance(part, str) else ""
)
def test_invalid_calls_raise_with_their_message(call, error, words):
    with pytest.raises(error, match=words):
        call()


def parts(value):
    """Yield a kernel or method, and all values that it contains."""
    if isinstance(value, tuple):
        for item in value:
            yield from parts(item)
    if is_dataclass(value):
        yield value
        for field in fields(value):
            yield from parts(getattr(value, field.name))


VALUES = (k.GreenFunction(PLATE), OnSphere(), HARMONICS, bo.FourierGrid(), bo.NearestNeighbours())
VALUES += (bo.LocalKernel(), bo.ExactKernel(), *gallery.KERNELS, *gallery.LANDMARKS)
VALUES += (*gallery.METHODS, *(pair for case in maps.CASES for pair in case[1:]))
CLASSES = {type(part): part for part in parts(VALUES) if not isinstance(part, bo.Auto)}
#: Invalid values for each type of a parameter.
WRONG = {float: (np.nan, -1.0, "x", True, 1j), int: (-1, 1.5, "x"), bool: (3,)}
WRONG |= {str: ("zzz",), tuple: ((), ("x",))}
#: Parameters that take such values, or that another constructor checks.
UNCHECKED = {"Polynomials": ("lower", "upper")}
UNCHECKED |= {"ExactKernel": ("preconditioner",)}


@pytest.mark.parametrize("name", sorted(kind.__name__ for kind in CLASSES))
def test_parameters_of_kernels_and_methods_are_checked_by_name(name):
    (part,) = (part for kind, part in CLASSES.items() if kind.__name__ == name)
    for field in fields(part):
        if not field.init or field.name in UNCHECKED.get(name, ()):
            continue
        for wrong in (object(), *WRONG.get(type(getattr(part, field.name)), ())):
            with pytest.raises(BochnerError, match=f"^{name}: {field.name}"):
                replace(part, **{field.name: wrong})


@pytest.mark.parametrize("other", ["2", None, True, 1j, [1.0]])
def test_algebra_of_kernels_with_other_objects_raises_a_type_error(other):
    with pytest.raises(TypeError):
        Gaussian() * other
    with pytest.raises(TypeError):
        other + Gaussian()


@pytest.mark.parametrize("cls", [kind for kind in KINDS if is_classifier(kind())])
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (1, "labels in y must be all text or all numbers; got 'a' and 1. Make them alike"),
        (None, r"y must have no missing labels; got None in row 1 \(counted from 0\). Drop"),
    ],
)
def test_labels_of_mixed_types_raise(cls, other, words):
    with pytest.raises(InvalidInput, match=f"{cls.__name__}: {words}"):
        cls(n_features=16).fit(X, np.array(["a", other] * 30, dtype=object))


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "Float64", "string", "float64"])
def test_missing_labels_raise_with_their_row(dtype):
    labels = pd.Series([1, 0] * 30, dtype="Int64").astype(dtype)
    labels[5] = np.nan if dtype == "float64" else pd.NA
    words = r"Classifier: y must have no missing labels; got (<NA>|nan) in row 5 \(counted from 0\)"
    with pytest.raises(InvalidInput, match=words):
        bo.KernelRidgeClassifier(n_features=16).fit(X, labels)
