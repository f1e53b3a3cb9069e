"""The errors that docs/choose.md states: of which features, for which rows and kernel.

‖Z Zᵀ − K‖_F/‖K‖_F on 1,000 rows of the law that is named, of maps that are drawn with 2,000 other
rows of it, at equal width: the root of the mean square over seeds 0, 1 and 2 (``--quick``: one
seed, few rows, an eighth of the features). "lengthscale" is the median distance of 500 of the
rows, or the number in the kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

import bochner as bo
from benchmarks.harness import Options, Row
from bochner.datasets import load_earth
from bochner.features import Method
from bochner.kernels import AdditiveChi2, Gaussian, Kernel, Matern, NeuralTangent, Polynomial

__all__ = ["CASES", "run"]

Array = np.ndarray
SEEDS = (0, 1, 2)
#: Rows that maps are drawn with, and rows of errors.
DRAWN_WITH, NEW = 2000, 1000
#: Rows of a fit to the relief, and its features.
RELIEF, RELIEF_D = 18_000, 1024
IID = bo.Fourier(bo.IID())


class Case(NamedTuple):
    """Rows of a law, a kernel (none: the Gaussian at the median distance), methods at one width."""

    name: str
    law: Callable[[np.random.Generator, int], Array]
    kernel: Kernel | None
    n_features: int
    methods: tuple[Method, ...]


def normal(d: int, halving: float = 1.0) -> Callable[[np.random.Generator, int], Array]:
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


CASES = (
    Case("normal-3", normal(3), None, 256, (bo.MercerHarmonic(), bo.Fourier(bo.QMC()), IID)),
    Case("sphere", sphere, Gaussian(1.0), 512, (bo.MercerHarmonic(), IID)),
    Case("normal-9", normal(9), None, 256, (bo.HermiteMercer(), IID)),
    Case("halving-9", normal(9, 0.5), None, 256, (bo.HermiteMercer(), IID)),
    Case("halving-9-wide", normal(9, 0.5), None, 1000, (bo.Nystrom(), bo.HermiteMercer(), IID)),
    Case("normal-20", normal(20), None, 256, (bo.Fourier(bo.Orthogonal()), IID)),
    Case(
        "normal-100",
        normal(100),
        None,
        256,
        (bo.HermiteMercer(), bo.Nystrom("kmeans"), bo.Fourier(bo.Structured()), IID),
    ),
    Case("rough", cube, Matern(0.5), 512, (bo.MercerHarmonic(), bo.Nystrom(), IID)),
    Case("cubic", normal(100), Polynomial(3), 1024, (bo.PolySketch(), bo.TensorSketch())),
    Case("cubic-positive", positive, Polynomial(3), 1024, (bo.PolySketch(), bo.TensorSketch())),
    Case(
        "networks",
        normal(5),
        NeuralTangent(2),
        512,
        (bo.MercerHarmonic(), bo.NeuralTangentFeatures()),
    ),
    Case("histograms", shares, AdditiveChi2(), 90, (bo.HistogramSampling(),)),
)


def run(options: Options) -> list[Row]:
    """Return a row for each case and method, and of the relief for each lengthscale."""
    return [row for case in CASES for row in of_case(case, options)] + relief(options)


def relief(options: Options) -> list[Row]:
    """Return R² of fits to the relief of the Earth by methods for the sphere, and by Fourier's."""
    earth, n = load_earth(), options.pick(RELIEF, 400)
    chosen = np.random.default_rng(0).permutation(len(earth.X))[: 2 * n]
    X, y = earth.X[chosen].astype(float), earth.y[chosen].astype(float)
    D, seeds = options.pick(RELIEF_D, 96), options.pick(SEEDS, SEEDS[:1])

    def score(method: Method, scale: float, seed: int) -> float:
        model = bo.KernelRidge(Gaussian(scale), method=method, n_features=D, random_state=seed)
        return model.fit(X[:n], y[:n]).score(X[n:], y[n:])

    return [
        {
            "case": "relief",
            "kernel": "Gaussian",
            "lengthscale": scale,
            "D": D,
            "method": str(method),
            "R²": float(np.mean([score(method, scale, seed) for seed in seeds])),
        }
        for scale in (1.0, 0.5, 0.25)
        for method in (bo.MercerHarmonic(), bo.Nystrom(), bo.Gegenbauer(), IID)
    ]


def of_case(case: Case, options: Options) -> list[Row]:
    rng = np.random.default_rng(0)
    X, new = case.law(rng, options.pick(DRAWN_WITH, 200)), case.law(rng, options.pick(NEW, 100))
    scale = None if case.kernel else float(np.median(pdist(X[:500])))
    kernel = case.kernel or Gaussian(scale)
    D = options.pick(case.n_features, max(90, case.n_features // 16 * 2))
    K = kernel(new)
    return [
        {
            "case": case.name,
            "kernel": type(kernel).__name__,
            "lengthscale": getattr(kernel, "lengthscale", None),
            "D": D,
            "method": str(method),
            "error": _error(method, kernel, X, new, K, D, options.pick(SEEDS, SEEDS[:1])),
        }
        for method in case.methods
    ]


def _error(
    method: Method, kernel: Kernel, X: Array, new: Array, K: Array, D: int, seeds: tuple[int, ...]
) -> float:
    maps = (bo.draw(kernel, method, n_features=D, X=X, random_state=seed) for seed in seeds)
    errors = [np.linalg.norm((Z := phi(new)) @ Z.T - K) / np.linalg.norm(K) for phi in maps]
    return float(np.sqrt(np.mean(np.square(errors))))
