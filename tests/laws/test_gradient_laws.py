"""Gradients in rows: closed forms compared with central differences of values."""

import re

import numpy as np
import pytest
from gallery import HERMITE, KERNELS, N_COLUMNS, rows, table
from scipy.sparse import csr_matrix
from tolerance import ROUNDINGS

import bochner as bo
from bochner import Blocks, KernelRegressor, KernelRidge, draw
from bochner.errors import UnsupportedKernel
from bochner.features import Compressed, Fourier, HermiteMercer, Nystrom, Projected, Structured
from bochner.features.nystrom import JITTER, NystromMap
from bochner.kernels import Columns, DotProduct, Exponential, Gaussian, Laplace, Linear, Matern

STEP = 1e-3
"""h of central differences: rows and lengthscales are of size one."""

WITHOUT = (
    *("Exponential(lengthscale=2.0)", "Exponential(lengthscale=1.0)", "power=0.7", "power=1.6"),
    *("smoothness=0.5", "smoothness=0.8", "Laplace", "Zonal", "Angular", "ArcCosine", "NNGP"),
    *("NeuralTangent", "Normalised", "Modulated", "Warped", "Custom", "FourierSeries"),
    "Polynomials",
)
"""Parts of names of kernels without a gradient everywhere, or without a closed form of it."""

ROUGH = [k for k in KERNELS if any(word in repr(k) for word in WITHOUT)]
SMOOTH = [
    *(k for k in KERNELS if k not in ROUGH),
    Columns(bo.kernels.SkewedChi2(skew=9.0), (2, 0)),
    DotProduct(lambda n: n * np.log(0.1)),
    DotProduct((2.0,)),
    Gaussian() * Matern(smoothness=2.5) * Linear(),
]

FREQUENCIES = [
    (Gaussian(lengthscale=(0.5, 1.0, 3.0)), Fourier()),
    (Gaussian(), Fourier(form="phase")),
    (Matern(smoothness=1.5), Fourier(Structured())),
    (Matern(smoothness=2.5), Fourier(Structured(), form="phase")),
    (Gaussian(), Fourier(bo.features.Grid())),
    (Gaussian(), bo.features.LeverageFourier()),
    (Laplace(lengthscale=3.0), Fourier(bo.features.IID())),
    (Exponential() + 0.5 * Linear() + 2.0, Fourier()),
    (Columns(Exponential(), (0,)) * Linear(), Fourier()),
]
"""Fourier features are smooth for any kernel."""
EDGES = ("dirichlet", "neumann", "periodic")
LINES = (0, 1, 2), ((-9.0, 9.0),) * 3, ((0.5, 4.0),) * 3  # linear, to positive numbers
OTHERS = [
    *((k, m) for k, m in HERMITE if type(k).__name__ in ("Gaussian", "Mahalanobis")),
    (Gaussian(), Compressed(HermiteMercer())),
    (Matern(smoothness=1.5), Compressed(Nystrom(), width=2)),
    (Gaussian(lengthscale=(1.0, 2.0, 3.0)), Projected(HermiteMercer(), 2)),
    (Gaussian(), Projected(Fourier(), 2, projection="jl")),
    (bo.kernels.DotExponential(0.3), bo.Positive()),
    (Gaussian(2.0), bo.Positive(form="plain")),
    (Columns(Matern(2.5), (1,)), bo.FourierGrid(1e-2)),
    (Columns(bo.kernels.OnSphere(lengthscale=60.0), (2, 0)), bo.SphericalHarmonics()),
    *((Matern(2.5, 3.0), bo.LaplacianEigenfunctions(4.0, conditions=edge)) for edge in EDGES),
    (bo.kernels.Monotone(bo.kernels.AdditiveChi2(), *LINES), bo.HistogramSampling()),
]
MAPS = [*FREQUENCIES, *((k, Nystrom()) for k in SMOOTH), *OTHERS]


def name_of(value):
    """Return the name of a case without the address of a function."""
    return re.sub(r" at 0x\w+", "", str(value))


NAMES = [f"{name_of(kernel)}-{method}" for kernel, method in MAPS]


def differences(f, X, step=STEP):
    """Return extrapolated central differences of f: (n, d) → (n, t), and bounds of their errors.

    The error of D(h) is c h² + O(h⁴), that of (4 D(h/2) − D(h))/3 below |D(h/2) − D(h)|.
    If f has only two derivatives it is c h, and also below this bound.
    """
    halves = []
    for h in (step, step / 2):
        steps = h * np.eye(X.shape[1])
        halves.append(np.stack([(f(X + e) - f(X - e)) / (2 * h) for e in steps], axis=1))
    return (4 * halves[1] - halves[0]) / 3, np.abs(halves[1] - halves[0])


def rounding(values, amplified=1.0):
    """Return the error of differences by roundings of ``values``, times ``amplified``."""
    return ROUNDINGS * np.finfo(float).eps * values * amplified / STEP


def amplification(phi):
    """Return the factor of roundings of kernel values by L⁻¹ of Nyström features: τ^(−½)."""
    holds = "Nystrom" in repr(phi) or isinstance(phi, NystromMap)
    return JITTER[np.dtype(float)] ** -0.5 if holds else 1.0


def new_map(kernel, method, n_features=16):
    return draw(kernel, method, n_features=n_features, X=rows(60, seed=5), random_state=1)


def assert_gradient(actual, f, X, size, amplified=1.0):
    expected, slack = differences(f, X)
    allowed = slack + rounding(size, amplified)
    assert np.all(np.abs(actual - expected) <= allowed), np.abs(actual - expected).max()
    assert np.abs(expected).max() == 0 or np.median(allowed) < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize(("kernel", "method"), MAPS, ids=NAMES)
def test_gradients_of_features_equal_central_differences(kernel, method):
    phi, X = new_map(kernel, method), rows(12, seed=2)
    coef = np.random.default_rng(3).standard_normal((phi.n_features, 2))
    coef /= np.linalg.norm(coef, axis=0)
    size = np.linalg.norm(phi(X), axis=1).max() + np.abs(kernel(X)).max()
    G = phi.gradient(X, coef)
    assert G.shape == (12, N_COLUMNS, 2)
    assert_gradient(G, lambda X: phi(X) @ coef, X, size, amplification(phi))
    # One function, or row by row: equal up to rounding, as sums have another order.
    tiny = rounding(size, amplification(phi)) * STEP
    assert np.abs(phi.gradient(X, coef[:, 0]) - G[:, :, 0]).max() <= tiny
    by_row = np.concatenate([phi.gradient(X[i : i + 1], coef) for i in range(len(X))])
    assert np.abs(by_row - G).max() <= tiny


@pytest.mark.parametrize("kernel", SMOOTH, ids=name_of)
def test_gradients_of_kernels_equal_central_differences(kernel):
    X, Y = rows(9, seed=2), rows(7, seed=3)
    Y[0] = X[1]  # equal rows: profiles must be smooth there
    C = np.random.default_rng(4).standard_normal((9, 7))
    value = lambda X: (C * kernel(X, Y)).sum(axis=1)[:, None]
    size = np.abs(C * kernel(X, Y)).sum(axis=1).max()
    assert_gradient(kernel.pullback(X, Y, C)[:, :, None], value, X, size)


@pytest.mark.parametrize("kernel", ROUGH, ids=name_of)
def test_kernels_without_a_gradient_raise_with_alternatives(kernel):
    X = np.abs(rows(4))
    with pytest.raises(UnsupportedKernel, match="radients in rows"):
        kernel.pullback(X, X[:3], np.ones((4, 3)))


def test_errors_of_gradients_state_the_reason():
    for kernel, message in (
        (bo.kernels.FourierSeries((1.0, 0.5)), r"closed form for FourierSeries\. Kernels"),
        (Laplace(), r"smooth at x = y; got Laplace\("),
        (Exponential(), r"smooth at x = y; got Exponential\(.*Take Gaussian"),
        (bo.kernels.Custom(lambda X, Y: X @ Y.T), r"closed form for Custom\."),
        (bo.kernels.Warped(np.abs, Gaussian()), "a custom function. Transform the rows"),
    ):
        phi = new_map(kernel, Nystrom())
        with pytest.raises(UnsupportedKernel, match=message):
            phi.gradient(rows(3), np.ones(phi.n_features))


@pytest.mark.parametrize(
    ("kernel", "method"),
    [
        (Gaussian(), Fourier()),
        (Gaussian(), Fourier(form="phase")),
        (Columns(bo.kernels.Cauchy(), (1,)) * Columns(Matern(2.5), (0, 2)), Nystrom()),
        (Linear() * bo.kernels.Periodic(4.0) + 1.0, Nystrom()),
        (Gaussian(), HermiteMercer()),
    ],
    ids=name_of,
)
def test_gradients_keep_the_library_and_precision_of_the_rows(kernel, method):
    import array_api_strict as strict  # noqa: PLC0415

    phi, X = new_map(kernel, method), rows(12, seed=2)
    coef = np.random.default_rng(3).standard_normal((phi.n_features, 2))
    G, strictly = phi.gradient(X, coef), phi.gradient(strict.asarray(X), coef)
    assert type(strictly).__module__.startswith("array_api_strict")
    size = ROUNDINGS * np.finfo(float).eps * np.abs(coef).sum() * amplification(phi)
    assert np.abs(np.asarray(strictly) - G).max() <= size
    assert phi.gradient(X.astype(np.float32), coef).dtype == np.float32
    assert np.abs(phi.gradient(csr_matrix(X), coef) - G).max() <= size


# --- Learners ------------------------------------------------------------------------------------

COMMON = {"kernel": Gaussian(0.8), "n_features": 24, "precision": "float64", "random_state": 0}
FOURIER = {"method": "orthogonal", **COMMON}


def assert_gradient_of(model, X, h=1e-5):
    """Compare gradients with central differences of predictions."""
    slopes = [model.predict(X + e) - model.predict(X - e) for e in h * np.eye(X.shape[1])]
    expected, G = np.stack(slopes, axis=1) / (2 * h), model.gradient(X)
    assert (G.shape, G.dtype) == (expected.shape, np.float64)
    assert np.abs(G - expected).max() < 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize(
    "model",
    [
        KernelRidge(**{**FOURIER, "metric": "learned"}),
        KernelRidge(**{**COMMON, "method": HermiteMercer()}),
        KernelRegressor(loss="poisson", alpha=0.1, **FOURIER),
        KernelRegressor(alpha=0.1, method="nystrom", **COMMON),
    ],
    ids=["metric", "columns", "counts", "landmarks"],
)
def test_gradients_of_learners_equal_central_differences(model):
    """Learners that are not in the law of all learners."""
    X, y = table(n=150)
    assert_gradient_of(model.fit(X, np.abs(y)), X[:9] + 0.01)


def test_gradients_of_quantiles_follow_their_sorted_order():
    X, y = table(n=60, noise=1.0)
    model = KernelRegressor(loss="quantile", quantiles=(0.4, 0.5, 0.6), alpha=1e-6, **FOURIER)
    model.fit(X, y)
    grid = np.random.default_rng(1).uniform(-4, 4, (40, 2))
    raw = np.concatenate([f for _, f in model.fit_.predictions(Blocks.from_arrays(grid))])
    separate = np.abs(np.diff(np.sort(raw, axis=1))).min(axis=1) > 0.01
    assert ((np.diff(raw, axis=1) < 0).any(axis=1) & separate).any()
    assert_gradient_of(model, grid[separate])
