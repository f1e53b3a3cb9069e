"""Kernels, methods and data of the laws: each kernel alone and combined, for three columns."""

import numpy as np
import pandas as pd

import bochner as bo
from bochner.kernels import Columns, Gaussian, Laplace, Linear, Matern, Polynomial, Warped
from bochner.landmarks import KMeans, Points, RidgeLeverage, RPCholesky, Uniform
from bochner.sums.passes import draw_rows

N_COLUMNS = 3


def absolute(X):
    """Return |x| in any array library: rows without negative values, like histograms."""
    return abs(X)


def weight(X):
    """Return 1 + |x_0| of each row."""
    return 1.0 + abs(X[:, 0])


def squared_products(X, Y):
    """Return ⟨x, y⟩², a kernel given by a function."""
    return (X @ Y.T) ** 2


FUNCTIONS = {f.__name__: f for f in (absolute, weight, squared_products)}

STATIONARY = [
    Gaussian(),
    Gaussian(lengthscale=(0.5, 1.0, 3.0)),
    bo.kernels.Exponential(lengthscale=2.0),
    bo.kernels.RationalQuadratic(shape=0.8, lengthscale=1.5),
    bo.kernels.RationalQuadratic(shape=2.5, lengthscale=(0.7, 1.0, 2.0)),
    bo.kernels.ExponentialPower(power=0.7, lengthscale=2.0),
    bo.kernels.ExponentialPower(power=1.6, lengthscale=(0.7, 1.0, 2.0)),
    bo.kernels.ExponentialPower(power=2.0),
    Laplace(lengthscale=3.0),
    Laplace(lengthscale=(1.0, 2.0, 5.0)),
    bo.kernels.Cauchy(lengthscale=1.5),
    Matern(smoothness=0.5),
    Matern(smoothness=0.8, lengthscale=2.0),
    Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)),
    Matern(smoothness=2.5, lengthscale=1.5),
    Matern(smoothness=3.5),
    Matern(smoothness=3.7, lengthscale=0.8),
    Matern(smoothness=40.0),
]

TURNED = bo.kernels.Mahalanobis(Gaussian(), ((2.0, 0.5, 0.0), (0.5, 1.0, 0.0), (0.0, 0.0, 0.1)))
OTHERS = [
    Linear(),
    bo.kernels.Constant(value=2.5),
    2.0 * Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)) + Gaussian(lengthscale=0.5),
    Gaussian(lengthscale=2.0) * Laplace(lengthscale=4.0),
    Linear() * bo.kernels.Exponential() + 0.5,
    Columns(Gaussian(lengthscale=(1.0, 0.5)), columns=(2, 0)),
    Columns(bo.kernels.Cauchy(), columns=(1,)) * Columns(Matern(smoothness=2.5), columns=(0, 2)),
    TURNED,
    bo.kernels.Monotone(
        Gaussian(lengthscale=(1.0, 0.5, 2.0)),
        columns=(2, 0),
        points=((-1.0, 0.0, 0.5, 4.0), (-2.0, 0.0, 2.0)),
        values=((-3.0, 0.0, 0.5, 1.0), (-0.5, 0.0, 0.0)),
    ),
    bo.kernels.Mahalanobis(Linear(), matrix=((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0))),
]

SERIES = [
    Polynomial(degree=3, offset=0.5, scale=0.2),
    Polynomial(degree=2),
    bo.kernels.DotExponential(scale=0.001),
    bo.kernels.DotProduct(terms=(1.0, 0.0, 0.5)),
    bo.kernels.Zonal(coefficients=(1.0, 0.5, 0.25)),
    bo.kernels.Zonal(coefficients=(0.5, 1.0, 0.0, 0.5), power=0),
    bo.kernels.GeneralizedZonal(
        radial_functions=(
            bo.kernels.Monomials((1.0, 0.5), (0, 2)),
            bo.kernels.Monomials((0.5,), (1,), decay=0.001),
        )
    ),
    bo.kernels.Angular(),
    bo.kernels.ArcCosine(order=0),
    bo.kernels.ArcCosine(),
    bo.kernels.ArcCosine(order=2),
    bo.kernels.NNGP(depth=3),
    bo.kernels.NeuralTangent(),
    bo.kernels.NeuralTangent(depth=3),
]
"""Kernels of inner products and angles: no frequencies."""

BY_RULE = [
    Gaussian(lengthscale=2.0) ** 3,
    (Linear() + 1.0) ** 2,
    bo.kernels.Exp(Gaussian(lengthscale=1.5)),
    bo.kernels.Modulated(weight, Matern(smoothness=1.5)),
    bo.kernels.Normalised((Linear() + 1.0) ** 2),
    bo.kernels.Normalised(3.0 * Gaussian() + Linear()),
    (Linear() + Gaussian(lengthscale=2.0)) * (Matern(smoothness=2.5) + 0.5),
    bo.kernels.Periodic(period=(2.0, 3.0, 5.0), lengthscale=0.8),
    bo.kernels.Periodic(period=4.0, lengthscale=(0.8, 1.0, 2.0)),
    bo.kernels.SpectralMixture(
        weights=(2.0, 1.0), means=(0.5, (1.0, 0.0, 2.0)), scales=((0.5, 1.0, 2.0), 0.3)
    ),
    Warped(absolute, bo.kernels.SkewedChi2(skew=0.5)),
    bo.kernels.Windows(Gaussian(lengthscale=1.5), width=2),
    bo.kernels.Windows(Matern(smoothness=1.5) + Linear(), average="root", lengths=True),
]
"""The algebra of kernels, and spectra with peaks."""

WITHOUT_FREQUENCIES = [
    Warped(absolute, bo.kernels.AdditiveChi2()),
    Warped(absolute, bo.kernels.Intersection()),
    Warped(absolute, bo.kernels.JensenShannon()),
    bo.kernels.Exp(bo.kernels.Normalised(Linear() + 1.0)),
    bo.kernels.Custom(squared_products),
    bo.kernels.FourierSeries(weights=(1.0, 0.5)),
    bo.kernels.Polynomials(weights=(1.0, 0.5, 0.25), lower=-4.0, upper=4.0),
    Warped(absolute, bo.kernels.Brownian(length=3.0)),
    Warped(absolute, bo.kernels.Brownian(length=3.0, bridge=True)),
]
"""Kernels for Nyström and for special methods only."""

KERNELS = STATIONARY + OTHERS + BY_RULE + SERIES + WITHOUT_FREQUENCIES

EXACT = [kernel for kernel in OTHERS + BY_RULE if kernel.exact(N_COLUMNS) is not None]
"""Kernels with finitely many exact features."""

DENSE_ONLY = ("Laplace", "Cauchy", "Periodic", "Mixture", "Chi2", "Intersection", "JensenShannon")
DENSE_ONLY += ("Custom", "Modulated")
"""Parts of names of kernels that are sums over columns, or functions of dense rows."""

PLACEMENTS = [bo.IID(), bo.Orthogonal(), bo.QMC()]
FOURIER = [bo.Fourier(placement, form) for placement in PLACEMENTS for form in ("pair", "phase")]
NYSTROM = [bo.Nystrom(RPCholesky()), bo.Nystrom(Uniform())]
METHODS = [*FOURIER, *NYSTROM, bo.Auto()]


def serves(method, kernel):
    """Return whether the method serves the kernel; orthogonal ones require an invariant kernel."""
    if kernel in SERIES + WITHOUT_FREQUENCIES and isinstance(method, bo.Fourier):
        return False
    if getattr(kernel, "power", 2) < 2 and method in FOURIER[4:]:
        return False  # Sobol points need a quantile
    by_coordinate = any(name in repr(kernel) for name in DENSE_ONLY if name != "Modulated")
    orthogonal = isinstance(method, bo.Fourier) and method.placement == bo.Orthogonal()
    return not (by_coordinate and orthogonal)


MAPS = [(kernel, method) for kernel in KERNELS for method in METHODS if serves(method, kernel)]
KINDS = [pair for pair in MAPS if pair[1] in (FOURIER[0], FOURIER[1], NYSTROM[0])]
"""Pairs with each way to evaluate a map, whatever the origin of frequencies and landmarks."""
RANDOM_MAPS = [(kernel, method) for kernel, method in MAPS if method in FOURIER]

DIRECTIONS = (bo.Orthogonal(), bo.IID(), bo.QMC())
NETWORKS = [
    (bo.kernels.Angular(), bo.Sign()),
    (bo.kernels.Angular(), bo.Sign(bo.IID())),
    (bo.kernels.Angular(), bo.Sign(bo.QMC())),
    *((bo.kernels.ArcCosine(p), bo.ReLU(p, place)) for p in range(3) for place in DIRECTIONS),
    *((bo.kernels.ArcCosine(p), bo.ReLU(p, bo.IID(), split=False)) for p in range(3)),
    (bo.kernels.NNGP(depth=1), bo.NeuralTangentFeatures()),
    (bo.kernels.NeuralTangent(depth=1), bo.NeuralTangentFeatures()),
]
"""Unbiased random features of angle kernels."""

DEEP = [
    (kernel, bo.NeuralTangentFeatures())
    for kernel in (bo.kernels.NNGP(depth=3), bo.kernels.NeuralTangent(depth=3))
]
"""Features of features: their bias decreases like 1/D."""

LANDMARKS = [
    bo.Nystrom(landmarks)
    for landmarks in (
        Uniform(),
        RPCholesky(),
        KMeans(),
        RidgeLeverage(),
        RidgeLeverage(alpha=0.1),
        Points(np.random.default_rng(9).normal(size=(24, N_COLUMNS))),
    )
]
"""Every choice of landmarks."""

ROTATION_INVARIANT = [
    Gaussian(),
    Gaussian(lengthscale=(0.5, 1.0, 3.0)),
    bo.kernels.Exponential(lengthscale=2.0),
    bo.kernels.RationalQuadratic(shape=0.8, lengthscale=1.5),
    bo.kernels.ExponentialPower(power=1.6, lengthscale=(0.7, 1.0, 2.0)),
    Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)),
    Matern(smoothness=2.5, lengthscale=1.5),
    2.0 * Matern(smoothness=1.5, lengthscale=0.7) + Gaussian(lengthscale=0.5),
    *SERIES,
]
"""Functions of the radii and of the angle between rows, in units of their lengthscales."""

MONOMIAL = [Gaussian(), Gaussian(lengthscale=(0.5, 1.0, 3.0)), *SERIES[:4]]
"""Kernels with monomial radial functions."""

GEGENBAUER = [
    *((kernel, bo.Gegenbauer("monomial")) for kernel in MONOMIAL),
    *((kernel, bo.Gegenbauer()) for kernel in ROTATION_INVARIANT),
    (Gaussian(), bo.Gegenbauer("monomial", order=3, degree=6)),
    (Matern(1.5), bo.Gegenbauer(order=3)),
]
"""Random Gegenbauer features, as published and with optimal radial functions."""

MERCER = [(kernel, bo.MercerHarmonic()) for kernel in ROTATION_INVARIANT]

BASES = [
    (bo.kernels.FourierSeries(weights=(1.0, 0.5, 0.25), period=5.0), bo.Explicit()),
    (bo.kernels.Polynomials(weights=(1.0, 0.0, 0.5, 0.1), lower=-3.0, upper=3.0), bo.Explicit()),
    (Columns(bo.kernels.FourierSeries((1.0, 0.5), period=5.0), (0, 1)) + Linear(), bo.Explicit()),
    (bo.kernels.Brownian(length=4.0), bo.LaplacianEigenfunctions()),
    (bo.kernels.Brownian(length=4.0, bridge=True), bo.LaplacianEigenfunctions()),
]
"""Kernels with exact features or eigenfunctions."""

HERMITE = [
    (Gaussian(), bo.HermiteMercer()),
    (Gaussian(lengthscale=2.0), bo.HermiteMercer(scale=1.0)),
    (Gaussian(lengthscale=(0.5, 1.0, 3.0)), bo.HermiteMercer()),
    (Laplace(lengthscale=3.0), bo.HermiteMercer()),
    (bo.kernels.Cauchy(lengthscale=(1.5, 2.0, 9.0)), bo.HermiteMercer()),
    (Columns(Matern(2.5), (0,)) * Columns(Gaussian(), (2,)), bo.HermiteMercer()),
    (Gaussian(lengthscale=2.0) * Laplace(lengthscale=4.0), bo.HermiteMercer()),
    (2.0 * Gaussian() + Columns(Matern(1.5), (1,)), bo.HermiteMercer()),
    (TURNED, bo.HermiteMercer()),
]
COMPRESSED = [
    (Gaussian(), bo.Compressed(bo.HermiteMercer())),
    (Matern(smoothness=1.5), bo.Compressed(bo.Nystrom(), width=2)),
    (Laplace(lengthscale=3.0), bo.Compressed(bo.Fourier(bo.IID()))),
]
SINES = [
    (Gaussian(), bo.LaplacianEigenfunctions(boundary=2.0, conditions="neumann")),
    (Matern(smoothness=1.5), bo.LaplacianEigenfunctions(boundary=2.0, conditions="periodic")),
    *(
        (kernel, bo.LaplacianEigenfunctions(boundary=2.0))
        for kernel in (
            Gaussian(),
            Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)),
            Laplace(lengthscale=3.0),
            2.0 * Matern(smoothness=2.5) + Gaussian(lengthscale=2.0),
        )
    ),
]
PROJECTED = [
    (Gaussian(), bo.Projected(bo.HermiteMercer(), 2)),
    (Matern(smoothness=1.5, lengthscale=(0.3, 1.0, 2.0)), bo.Projected(bo.Nystrom(), 2, "jl")),
    (Polynomial(degree=2), bo.Projected(bo.Nystrom(), 2)),
    (Gaussian(), bo.Projected(bo.Fourier(), 2, projection="jl")),
    (Matern(smoothness=2.5), bo.Projected(bo.MercerHarmonic(), 2)),
]

POWERS = [
    Polynomial(degree=2, offset=0.0),
    Polynomial(degree=3, offset=0.0, scale=0.5),
    Polynomial(degree=3, offset=1.0, scale=0.5),
    Polynomial(degree=7, offset=0.5, scale=0.2),
    bo.kernels.DotExponential(scale=0.5),
    bo.kernels.DotProduct(terms=(1.0, 0.0, 0.5, 0.1)),
    2.0 * bo.kernels.DotExponential(scale=0.3) + Polynomial(degree=2),
    Gaussian(lengthscale=(1.0, 2.0, 3.0)),
    0.5 * Gaussian(lengthscale=2.0),
]
SKETCH_METHODS = [bo.Maclaurin(), bo.Maclaurin("geometric"), bo.TensorSketch(), bo.PolySketch()]
HASHED = [bo.PolySketch(inner=4), bo.PolySketch(inner=2)]
POSITIVE = [bo.Positive(place, form) for place in DIRECTIONS for form in ("hyperbolic", "plain")]
SKETCHED = [(k, m) for k in POWERS for m in SKETCH_METHODS]
SKETCHED += [(k, m) for k in (POWERS[1], POWERS[2], POWERS[7]) for m in HASHED]
SKETCHED += [(k, m) for k in (POWERS[4], Gaussian(lengthscale=2.0)) for m in POSITIVE]
"""Kernels of inner products and the Gaussian, with every sketch of their powers."""


def maker(learner, kernel, **options):
    """Return a function that constructs a learner; its arguments replace kernel and options."""
    return lambda kernel=kernel, **changes: learner(kernel=kernel, **options | changes)


def small_matrix():
    """Return a kernel matrix of two large, nearly equal rows and fourteen small ones."""
    K = np.diag([1.0, 1.0, *[0.007] * 14])
    K[0, 1] = K[1, 0] = 0.975
    K[2, 3] = K[3, 2] = 0.006
    return K


def rows(n, seed=0, mean=0.0, dtype=np.float64):
    """Return n normal rows of three columns about ``mean``; the last equals the first."""
    X = np.random.default_rng(seed).normal(mean, 1.0, (n, N_COLUMNS)).astype(dtype)
    X[-1] = X[0]
    return X


def points(n=300, d=3, seed=0):
    """Return n standard normal rows of d columns."""
    return np.random.default_rng(seed).standard_normal((n, d))


def fixed_points(n, d, dtype=np.float64, seed=0):
    """Return n read-only rows of d columns."""
    X = points(n, d, seed).astype(dtype)
    X.flags.writeable = False
    return X


def sphere(n, radius=1.5, d=3, seed=0):
    """Return n rows of norm ``radius`` in random directions."""
    X = points(n, d, seed)
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


def table(n=300, d=2, t=None, seed=0, noise=0.1):
    """Return X (n, d) and y (n,) or (n, t): a smooth function of two columns, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + noise * rng.standard_normal(n) + 5
    return X, (y if t is None else np.column_stack([y * (i + 1) + X[:, 0] ** i for i in range(t)]))


def sectors(n=300, K=3, seed=0, noise=0.3):
    """Return X (n, 2) and codes (n,): the sector of the plane, of K, with noise in the angle."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + noise * rng.standard_normal(n) + np.pi
    return X, np.floor(angle * K / (2 * np.pi)).astype(int) % K


def unit_table(n=400, d=2, seed=0, noise=0.1):
    """Return X (n, d) in the unit cube and y (n,): a smooth function of two columns, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, np.sin(5 * X[:, 0]) + np.cos(4 * X[:, -1]) + noise * rng.standard_normal(n)


def globe(n=400, seed=0):
    """Return uniform places (latitude, longitude), and a function of latitude with noise."""
    rng = np.random.default_rng(seed)
    X = np.stack([np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)], axis=1)
    return X, np.cos(np.deg2rad(X[:, 0])) + 0.1 * rng.standard_normal(n)


def two_maps(n=300, D=60):
    """Return a map of random frequencies and a map of landmarks, drawn from the same rows."""
    options = {"n_features": D, "X": points(n), "random_state": 0}
    return [bo.draw(Gaussian(1.5), method, **options) for method in ("iid", "nystrom")]


def sample_of(X, y, w=None, seed=0):
    """Return a RowSample of the rows, as the choice of a kernel gets it."""
    return draw_rows(bo.Blocks.from_arrays(X, y, w), seed)


def raw_table(n, seed=0):
    """Return a table with each kind of column that real tables have."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "gap": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "colour": rng.choice(["red", "green", "blue"], n),
            "make": np.where(rng.random(n) < 0.2, None, rng.choice(["u", "v"], n)),
            "tail": [f"N{i}" for i in rng.integers(0, 80, n)],
            "date": pd.date_range("2019-01-01", periods=n, freq="49h"),
            "leaves": [f"{h:02d}:{m:02d}" for h, m in rng.integers(0, 24, (n, 2))],
            "one": 1.0,
            "nothing": [None] * n,
            "flag": rng.random(n) < 0.5,
            "id": [f"row {i}" for i in range(n)],
        }
    )
    frame["twin"] = frame["size"]
    hour = frame["leaves"].str[:2].astype(int)
    y = frame["size"] + np.sin(2 * np.pi * hour / 24) + (frame["colour"] == "red")
    return frame.assign(y=y + frame["tail"].str[1:].astype(int) / 40)
