"""Errors of feature maps: of each method, of the automatic choice, and of bounds for them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

import bochner as bo
from benchmarks.bench import Options, Row, bench, each, goal, used
from benchmarks.data import Split, scaled, standardised
from benchmarks.speed import relative_error
from bochner.certificates.bounds.table import compare_bounds
from bochner.datasets import load_concrete, load_earth
from bochner.features import Method
from bochner.kernels import (
    AdditiveChi2,
    Exponential,
    Gaussian,
    Kernel,
    Matern,
    NeuralTangent,
    Polynomial,
)

Array = np.ndarray
Law = Callable[[np.random.Generator, int], Array]


def median_distance(X: Array) -> float:
    """Return the median distance between rows; 1 if it is zero."""
    return float(np.median(pdist(X))) or 1.0


def spectral_distance(Z: Array, K: Array, alpha: float) -> float:
    """Return ε: the largest |eigenvalue| of (K + α)^−½ (ZZᵀ − K) (K + α)^−½."""
    values, vectors = np.linalg.eigh(K)
    root = vectors / np.sqrt(np.maximum(values, 0.0) + alpha)
    return float(np.abs(np.linalg.eigvalsh(root.T @ (Z @ Z.T - K) @ root)).max())


# --- errors of docs/choose.md --------------------------------------------------------------------

SEEDS = (0, 1, 2)
#: Rows that maps are drawn with, and rows of errors.
DRAWN_WITH, NEW = 2000, 1000
#: Rows of a fit to the relief of the Earth, and its features.
RELIEF, RELIEF_D = 18_000, 1024
IID = bo.Fourier(bo.IID())


class Case(NamedTuple):
    """Distribution of rows, kernel (None: Gaussian at the median distance), and methods."""

    name: str
    law: Law
    kernel: Kernel | None
    n_features: int
    methods: tuple[Method, ...]


def normal(d: int, halving: float = 1.0) -> Law:
    """Return the law N(0, diag(h⁰, h², h⁴, ...)) of standard deviations 1, h, h², ..."""
    return lambda rng, n: rng.standard_normal((n, d)) * halving ** np.arange(d)


def sphere(rng: np.random.Generator, n: int) -> Array:
    """Return rows of the sphere of radius 2 in R³."""
    X = rng.standard_normal((n, 3))
    return 2.0 * X / np.linalg.norm(X, axis=1, keepdims=True)


def cube(rng: np.random.Generator, n: int) -> Array:
    """Return rows of [−1, 1]³."""
    return rng.uniform(-1.0, 1.0, (n, 3))


def positive(rng: np.random.Generator, n: int) -> Array:
    """Return absolute values of N(0, I) in 100 columns, whose pairs are not nearly orthogonal."""
    return np.abs(rng.standard_normal((n, 100)))


def shares(rng: np.random.Generator, n: int) -> Array:
    """Return histograms of ten columns: shares of a Dirichlet law with all parameters one."""
    return rng.dirichlet(np.ones(10), n)


#: Methods at d = 100.
WIDE = (bo.HermiteMercer(), bo.Nystrom("kmeans"), bo.Fourier(bo.Structured()), IID)
NTK = (bo.MercerHarmonic(), bo.NeuralTangentFeatures())
SKETCHES = (bo.PolySketch(), bo.TensorSketch())

CASES = (
    Case("normal-3", normal(3), None, 256, (bo.MercerHarmonic(), bo.Fourier(bo.QMC()), IID)),
    Case("sphere", sphere, Gaussian(1.0), 512, (bo.MercerHarmonic(), IID)),
    Case("normal-9", normal(9), None, 256, (bo.HermiteMercer(), IID)),
    Case("halving-9", normal(9, 0.5), None, 256, (bo.HermiteMercer(), IID)),
    Case("halving-9-wide", normal(9, 0.5), None, 1000, (bo.Nystrom(), bo.HermiteMercer(), IID)),
    Case("normal-20", normal(20), None, 256, (bo.Fourier(bo.Orthogonal()), IID)),
    Case("normal-100", normal(100), None, 256, WIDE),
    Case("rough", cube, Matern(0.5), 512, (bo.MercerHarmonic(), bo.Nystrom(), IID)),
    Case("cubic", normal(100), Polynomial(3), 1024, SKETCHES),
    Case("cubic-positive", positive, Polynomial(3), 1024, SKETCHES),
    Case("networks", normal(5), NeuralTangent(2), 512, NTK),
    Case("histograms", shares, AdditiveChi2(), 90, (bo.HistogramSampling(),)),
)


@bench()
def choose(options: Options) -> Iterator[Row]:
    """Measure the errors of docs/choose.md: relative Frobenius, root mean square over seeds.

    Errors are of new rows. The last rows are R² of fits to the relief of the Earth.
    """
    for case in CASES:
        yield from errors_of_case(case, options)
    earth, n = load_earth(), options.pick(RELIEF, 400)
    chosen = np.random.default_rng(0).permutation(len(earth.X))[: 2 * n]
    X, y = earth.X[chosen].astype(float), earth.y[chosen].astype(float)
    D, seeds = options.pick(RELIEF_D, 96), options.pick(SEEDS, SEEDS[:1])
    for scale in (1.0, 0.5, 0.25):
        for method in (bo.MercerHarmonic(), bo.Nystrom(), bo.Gegenbauer(), IID):
            scores = []
            for seed in seeds:
                model = bo.KernelRidge(
                    Gaussian(scale), method=method, n_features=D, random_state=seed
                )
                scores.append(model.fit(X[:n], y[:n]).score(X[n:], y[n:]))
            yield {"case": f"relief {scale}", "who": str(method), "D": D, "R²": np.mean(scores)}


def errors_of_case(case: Case, options: Options) -> Iterator[Row]:
    """Yield the error of each method of a case."""
    rng = np.random.default_rng(0)
    X, new = (case.law(rng, options.pick(n, n // 10)) for n in (DRAWN_WITH, NEW))
    kernel = case.kernel or Gaussian(median_distance(X[:500]))
    D, K = options.pick(case.n_features, max(90, case.n_features // 16 * 2)), kernel(new)
    for method in case.methods:
        errors = []
        for seed in options.pick(SEEDS, SEEDS[:1]):
            phi = bo.draw(kernel, method, n_features=D, X=X, random_state=seed)
            errors.append(relative_error(phi(new), K))
        row = {"case": case.name, "who": str(method), "kernel": repr(kernel), "D": D}
        yield row | {"error": float(np.sqrt(np.mean(np.square(errors))))}


# --- bounds and leverage -------------------------------------------------------------------------


@bench()
def bounds(options: Options) -> Iterator[Row]:
    """Widths that theorems require and errors that they promise, against measured ones.

    500 rows, α = 0.01 n, D = 1024, lengthscale at the median distance, largest error of 20 draws.
    """
    X = sphere(np.random.default_rng(0), 500) * 0.75
    yield from _bounds("sphere of radius 1.5", X, (Gaussian(),), options)

    def of_table(name: str) -> Iterator[Row]:
        X = standardised(name, options, options.pick(500, 200))
        scale = median_distance(X)
        kernels = Gaussian(scale), Matern(1.5, scale), Exponential(scale)
        yield from _bounds(name, X, kernels, options)

    yield from each(("protein", "power_plant", "california_housing"), of_table)


def _bounds(name: str, X: Array, kernels: tuple[Kernel, ...], options: Options) -> Iterator[Row]:
    D, draws = options.pick((1024, 20), (128, 2))
    given = {"alpha": 0.01 * len(X), "n_features": D, "n_draws": draws, "n_sample": len(X)}
    for kernel in kernels:
        found = compare_bounds(kernel, X, random_state=0, **given)
        for row in found.rows:
            about: Row = {"case": f"{name}, {type(kernel).__name__}", "who": row.name}
            about |= {"error of": row.bound.quantity, "promised": row.promised, "found": row.found}
            over = None if row.asked is None else row.asked / found.n_features
            yield about | {"width required": row.asked or "none", "times too wide": over}


@bench()
def proof(options: Options) -> Iterator[Row]:
    """Certificates from half of the rows of concrete, beside ε of all rows and a bound for it."""
    table, kernel, alpha = load_concrete(), Gaussian(4.0), 10.0
    X = ((table.X - table.X.mean(axis=0)) / table.X.std(axis=0)).astype(np.float64)
    X = X[: options.pick(None, 300)]
    D, given = options.pick(512, 64), {"alpha": alpha, "random_state": 0}
    for method in ("fourier", "nystrom"):
        phi = bo.draw(kernel, method, n_features=D, X=X, random_state=0)
        sample = X[np.random.default_rng(0).permutation(len(X))[: len(X) // 2]]
        found = bo.certify(phi, sample, n_rows=len(X), **given)
        row: Row = dict(zip(("low", "high"), found.epsilon_interval, strict=True))
        row["true"] = spectral_distance(phi(X), kernel(X), alpha)
        yield {"case": "concrete", "who": method, "D": D} | row
    found = compare_bounds(kernel, X, n_features=D, n_draws=3, **given)
    asked = next(row.asked for row in found.rows if "spectral" in row.bound.quantity)
    yield {"case": "concrete", "who": "fourier, a-priori bound", "D": D, "asked": asked}


@bench()
def leverage(options: Options) -> Iterator[Row]:
    """Spectral distance of Fourier features drawn by ridge leverage, beside the kernel's own law.

    500 rows uniform in [−1, 1]^d, 512 features, means of five draws; "error" is relative Frobenius.
    """
    n, D = options.pick((500, 512), (60, 32))
    for kernel, d in (
        (Gaussian(0.1), 1),
        (Gaussian(0.35), 2),
        (Gaussian(0.6), 3),
        (Gaussian(0.8), 4),
        (Matern(1.5, 0.5), 2),
        (Matern(1.5, 3.0), 12),
    ):
        X = np.random.default_rng(d).uniform(-1, 1, (n, d))
        K = kernel(X)
        values = np.maximum(np.linalg.eigvalsh(K), 0)
        for penalty in (1e-2, 1e-4):
            case = {"case": f"{kernel!r}, d={d}, λ/n={penalty:g}"}
            dimension = float(np.sum(values / (values + penalty * n)))
            for method in (bo.Fourier(bo.IID()), bo.Fourier(bo.QMC()), bo.LeverageFourier(penalty)):
                maps = [
                    bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(X)
                    for seed in range(5)
                ]
                row = case | {"who": str(method), "effective dimension": dimension}
                row["ε"] = np.mean([spectral_distance(Z, K, penalty * n) for Z in maps])
                yield row | {"error": np.mean([relative_error(Z, K) for Z in maps])}


# --- precision -----------------------------------------------------------------------------------


@bench()
def precision(options: Options) -> Iterator[Row]:
    """Float32 products against float64, where plain float32 chooses too small a penalty.

    ``protein``, at the chosen lengthscale and at three times of it; "plain NumPy" chooses its
    penalty by generalised cross-validation on float32 sums.
    """
    width = options.pick(2048, 256)
    data = scaled("protein", options, width)
    for scale in (1.0, 3.0):
        for alpha in ("gcv", "loo"):
            exact = None
            for name in (
                "float64",
                "auto",
                "float32",
                *(["plain NumPy"] if alpha == "gcv" else []),
            ):
                fit = (lambda *_: _plain(data, scale, width)) if "NumPy" in name else _penalised  # noqa: B023
                (chosen, error), taken = used(lambda: fit(data, scale, width, alpha, name))  # noqa: B023
                exact = exact or error
                row = {"case": f"lengthscale {scale:g}, {alpha}", "who": name, "alpha": chosen}
                row |= {"error": error, "error over float64": error / exact} | taken
                yield goal(row, "error over float64", most=1.01) if name == "auto" else row


def _penalised(data: Split, scale: float, width: int, alpha: str, name: str) -> tuple[float, float]:
    model = bo.KernelRidge(
        Gaussian(scale),
        method="orthogonal",
        n_features=width,
        alpha=alpha,
        precision=name,
        random_state=0,
    ).fit(data.X, data.y)
    return float(model.alpha_), data.error(model.predict(data.X_test))


def _plain(data: Split, scale: float, width: int) -> tuple[float, float]:
    phi = bo.draw(Gaussian(scale), "orthogonal", n_features=width, X=data.X, random_state=0)
    Z, y = phi(data.X), data.y
    values, V = np.linalg.eigh((Z.T @ Z).astype(np.float64))
    b, power = V.T @ (Z.T @ y), float(y @ y)
    values, alphas = np.maximum(values, 0), np.logspace(-9, 0, 37) * values[-1]
    sizes = values[:, None] + alphas
    explained = np.sum(b[:, None] ** 2 * (sizes + alphas) / sizes**2, axis=0)
    gcv = (power - explained) / (len(y) - np.sum(values[:, None] / sizes, axis=0)) ** 2
    alpha = float(alphas[int(np.nanargmin(gcv))])
    return alpha, data.error(phi(data.X_test) @ (V @ (b / (values + alpha))))
