"""Feature maps: errors of each method, comparisons with other libraries, and bounds."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler

import bochner as bo
from benchmarks.bench import Options, Row, bench, collect, compare, goal, turns
from benchmarks.data import Array, stored
from bochner.certificates.comparison import compare_bounds
from bochner.datasets import load_concrete, load_earth
from bochner.features import Method
from bochner.kernels import Exponential, Gaussian, Kernel, Matern, Polynomial

Law = Callable[[np.random.Generator, int], Array]
Map = Callable[[Array], Array]


def median_distance(X: Array) -> float:
    """Return the median distance between rows; 1 if it is zero."""
    return float(np.median(pdist(X))) or 1.0


def relative_error(Z: Array, K: Array) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F."""
    Z = Z.astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


def map_error(maps: Iterable[Map], X: Array, K: Array) -> float:
    """Return the root mean square over maps of the relative errors."""
    return float(np.mean([relative_error(phi(X), K) ** 2 for phi in maps]) ** 0.5)


def spectral_distance(Z: Array, K: Array, alpha: float) -> float:
    """Return ε: the largest |eigenvalue| of (K + α)^−½ (ZZᵀ − K) (K + α)^−½."""
    values, vectors = np.linalg.eigh(K)
    root = vectors / np.sqrt(np.maximum(values, 0.0) + alpha)
    return float(np.abs(np.linalg.eigvalsh(root.T @ (Z @ Z.T - K) @ root)).max())


IID = bo.Fourier(bo.IID())


class Case(NamedTuple):
    """Distribution of rows, kernel (None: Gaussian at the median distance), and methods."""

    name: str
    law: Law
    kernel: Kernel | None
    n_features: int
    methods: tuple[Method, ...]


def normal(d: int, halving: float = 1.0) -> Law:
    """Return the distribution N(0, diag(1, h², h⁴, ...)) with h = ``halving``."""
    return lambda rng, n: rng.standard_normal((n, d)) * halving ** np.arange(d)


def sphere(rng: np.random.Generator, n: int) -> Array:
    """Return n uniform rows of the sphere of radius 2 in R³."""
    X = rng.standard_normal((n, 3))
    return 2.0 * X / np.linalg.norm(X, axis=1, keepdims=True)


#: Uniform rows of [−1, 1]³; absolute values of normal rows, which are not nearly orthogonal; and
#: histograms of ten columns, by the Dirichlet distribution with parameters one.
cube: Law = lambda rng, n: rng.uniform(-1.0, 1.0, (n, 3))
positive: Law = lambda rng, n: np.abs(rng.standard_normal((n, 100)))
shares: Law = lambda rng, n: rng.dirichlet(np.ones(10), n)

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
    Case("networks", normal(5), bo.kernels.NeuralTangent(2), 512, NTK),
    Case("histograms", shares, bo.kernels.AdditiveChi2(), 90, (bo.HistogramSampling(),)),
)


@bench()
def choose(options: Options) -> Iterator[Row]:
    """Measure the errors of docs/choose.md: relative Frobenius, root mean square over seeds.

    Errors are of new rows. The last rows are R² of fits to the relief of the Earth.
    """
    seeds = options.pick(range(3), range(1))
    for case in CASES:
        rng = np.random.default_rng(0)
        X, new = (case.law(rng, n) for n in options.pick((2000, 1000), (200, 100)))
        kernel = case.kernel or Gaussian(median_distance(X[:500]))
        D, K = options.pick(case.n_features, max(90, case.n_features // 16 * 2)), kernel(new)
        for method in case.methods:
            maps = (bo.draw(kernel, method, n_features=D, X=X, random_state=s) for s in seeds)
            row = {"case": case.name, "who": str(method), "kernel": repr(kernel), "D": D}
            yield row | {"error": map_error(maps, new, K)}
    earth, n, D = load_earth(), *options.pick((18_000, 1024), (400, 96))
    order = np.random.default_rng(0).permutation(len(earth.X))[: 2 * n]
    X, y = earth.X[order].astype(float), earth.y[order].astype(float)
    for scale in (1.0, 0.5, 0.25):
        for method in (bo.MercerHarmonic(), bo.Nystrom(), bo.Gegenbauer(), IID):
            model = bo.KernelRidge(Gaussian(scale), method=method, n_features=D)
            fits = (model.set_params(random_state=seed).fit(X[:n], y[:n]) for seed in seeds)
            row = {"case": f"relief {scale}", "who": str(method), "D": D}
            yield row | {"R²": np.mean([fit.score(X[n:], y[n:]) for fit in fits])}


class MapCase(NamedTuple):
    """Rows, kernel and width of maps; the others are methods, or functions from seeds to maps."""

    name: str
    kernel: Kernel
    D: int
    X: Array
    method: Any
    references: dict[str, Any]
    seeds: int = 1  # of the errors, whose root mean square is reported
    minimum: float | None = None  # required ratio of seconds
    maximum: float | None = None  # largest ratio of our error to another
    new: Array | None = None  # rows of the errors; None: the first 2,000 rows


def _compare(case: MapCase, repeats: int) -> Iterator[Row]:
    """Yield the seconds of φ(X) and the error of ZZᵀ of each map."""
    rows = case.X[:2000] if case.new is None else case.new
    K = case.kernel(rows.astype(np.float64))

    def make_map(method: Any, seed: int) -> Map:
        if not isinstance(method, bo.Method | str):
            return method(seed)
        options = {"n_features": case.D, "X": case.X, "random_state": seed}
        return bo.draw(case.kernel, method, **options)

    def transform(phi: Map, _: int) -> None:
        phi(case.X)  # the result is dropped, as a fit drops the features of a block

    methods = {"bochner": case.method} | case.references
    maps = {name: partial(transform, make_map(method, 0)) for name, method in methods.items()}
    times, seeds = turns(maps, repeats), range(case.seeds)
    errors = {w: map_error((make_map(m, s) for s in seeds), rows, K) for w, m in methods.items()}
    for row in compare(case.name, times, case.minimum, error=errors):
        if row["who"] != "bochner":
            row["error of bochner over it"] = errors["bochner"] / row["error"]
            if case.maximum:
                row = goal(row, "error of bochner over it", maximum=case.maximum)  # noqa: PLW2901
        yield row


def _normal(n: int, d: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


def _transformer(model: Any, X: Array) -> dict[str, Any]:
    """Return a function from seeds to fitted transforms, by the name of the transformer."""
    fitted = lambda seed: clone(model).set_params(random_state=seed).fit(X).transform
    return {type(model).__name__: fitted}


def _sampler(lengthscale: float, D: int, X: Array) -> dict[str, Any]:
    return _transformer(RBFSampler(gamma=0.5 / lengthscale**2, n_components=D), X)


@bench()
def features(options: Options) -> Iterator[Row]:
    """Seconds of φ(X) and error of ZZᵀ of each family of maps, and of others of equal width.

    "d=": speed at lengthscale 1; "placed": frequencies, lengthscale at the median distance;
    "hermite": normal rows of nine columns; "sphere": three columns, compared with the map of Han et
    al. (2022); "harmonic": three normal columns; "sketch": ⟨x, y⟩³ of 128 normal columns or their
    absolute values; "structured": fast transforms, and orthogonal frequencies as a matrix.
    """
    for case in _map_cases(options):
        if options.selects(case.name):
            yield from _compare(case, options.pick(9, 2))


def _map_cases(options: Options) -> Iterator[MapCase]:
    n_small, n_large = options.pick((2000, 20_000), (300, 1000))
    single = ((10, 2048, "float32", 6.0), (100, 2048, "float32", 4.0), (784, 4096, "float32", 1.3))
    for d, D, dtype, minimum in (*single, (10, 2048, "float64", 10.0)):
        X = _normal(n_large, d, d).astype(dtype)
        arguments = Gaussian(1.0), D, X, "orthogonal", _sampler(1.0, D, X)
        yield MapCase(f"d={d}, D={D}, {dtype}", *arguments, minimum=minimum)
    seeds, d_of = options.pick(11, 3), {5: "qmc", 20: "orthogonal", 100: "orthogonal"}
    for d, placement in d_of.items():
        X = _normal(n_small, d, d)
        scale, maximum = median_distance(X), 1 / 8 if d == 5 else 1 / 3
        arguments = Gaussian(scale), 1024, X, placement, _sampler(scale, 1024, X)
        yield MapCase(f"placed, d={d}, {placement}", *arguments, seeds=seeds, maximum=maximum)
    hermite, harmonic = bo.HermiteMercer(), bo.MercerHarmonic()
    X = _normal(n_large, 9).astype(np.float32)
    arguments = Gaussian(3.0), 512, X, hermite, _sampler(3.0, 512, X)
    yield MapCase("hermite, D=512", *arguments, minimum=1.0, new=X[:1000])
    X, new = np.split(_normal(2 * n_small, 9, 1), 2)
    arguments = Gaussian(3.0), 256, X, hermite, {"orthogonal": "orthogonal"}
    yield MapCase("hermite, D=256, new rows", *arguments, seeds=seeds, maximum=0.05, new=new)
    X = sphere(np.random.default_rng(0), n_small)
    for D, maximum in ((128, 1e-4), (512, 1e-6)):
        arguments = Gaussian(), D, X, harmonic, {"published": bo.Gegenbauer("monomial")}
        yield MapCase(f"sphere, D={D}", *arguments, seeds=5, maximum=maximum)
    X = _normal(n_large, 3, 2).astype(np.float32)
    for kernel in (Gaussian(), Matern(1.5)):
        arguments = kernel, 512, X, harmonic, _sampler(1.0, 512, X)
        yield MapCase(f"harmonic, {kernel!r}", *arguments, minimum=1.0)
    X, D = _normal(2 * n_small, 128).astype(np.float32), options.pick(4096, 512)
    poly, tensor = (bo.PolySketch(), 10.0), (bo.TensorSketch(), 1.0)
    for (method, minimum), law in ((poly, "normal"), (poly, "positive"), (tensor, "positive")):
        rows = np.abs(X) if law == "positive" else X
        sketch = _transformer(PolynomialCountSketch(degree=3, n_components=D), rows)
        arguments = Polynomial(3, 0.0), D, rows, method, sketch
        name = f"sketch, {type(method).__name__}, {law} rows"
        yield MapCase(name, *arguments, seeds=seeds, minimum=minimum, maximum=1.0, new=rows[:400])
    for d, D, minimum in ((1024, 8192, 2.0), (100, 2048, None)):
        X = _normal(options.pick(512, 64), d, d).astype(np.float32)  # the size of a block in a fit
        arguments = Gaussian((2 * d) ** 0.5), D, X, bo.Fourier(bo.Structured())
        formed = {"formed": bo.Fourier(bo.Orthogonal())}
        yield MapCase(f"structured, {d} to {D}", *arguments, formed, minimum=minimum, new=X[:256])


@bench()
def bounds(options: Options) -> Iterator[Row]:
    """Widths that theorems require and errors that they guarantee, and measured ones.

    500 rows, α = 0.01 n, D = 1024, lengthscale at the median distance, largest error of 20 draws.
    """
    X = sphere(np.random.default_rng(0), 500) * 0.75
    yield from _bounds("sphere of radius 1.5", X, (Gaussian(),), options)

    def of_table(name: str) -> Iterator[Row]:
        X = stored(name, options.data)["X"].astype(np.float64)
        X = X[np.random.default_rng(0).permutation(len(X))[: options.pick(500, 200)]]
        X = X[:, X.std(axis=0) > 0]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        scale = median_distance(X)
        kernels = Gaussian(scale), Matern(1.5, scale), Exponential(scale)
        yield from _bounds(name, X, kernels, options)

    yield from collect(("protein", "power_plant", "california_housing"), of_table)


def _bounds(name: str, X: Array, kernels: tuple[Kernel, ...], options: Options) -> Iterator[Row]:
    D, draws = options.pick((1024, 20), (128, 2))
    arguments = {"alpha": 0.01 * len(X), "n_features": D, "n_draws": draws, "n_sample": len(X)}
    for kernel in kernels:
        result = compare_bounds(kernel, X, random_state=0, **arguments)
        for row in result.rows:
            fields: Row = {"case": f"{name}, {type(kernel).__name__}", "who": row.name}
            fields |= {"error": row.bound.quantity, "bound": row.limit, "measured": row.measured}
            ratio = None if row.required is None else row.required / result.n_features
            yield fields | {"required": row.required or "none", "times too many": ratio}


@bench()
def proof(options: Options) -> Iterator[Row]:
    """Certificates from half of the rows of concrete, ε of all rows, and an a-priori bound."""
    table, kernel, alpha = load_concrete(), Gaussian(4.0), 10.0
    X = ((table.X - table.X.mean(axis=0)) / table.X.std(axis=0)).astype(np.float64)
    X = X[: options.pick(None, 300)]
    D, arguments = options.pick(512, 64), {"alpha": alpha, "random_state": 0}
    for method in ("fourier", "nystrom"):
        phi = bo.draw(kernel, method, n_features=D, X=X, random_state=0)
        sample = X[np.random.default_rng(0).permutation(len(X))[: len(X) // 2]]
        result = bo.certify(phi, sample, n_rows=len(X), **arguments)
        row: Row = dict(zip(("low", "high"), result.epsilon_interval, strict=True))
        row["true"] = spectral_distance(phi(X), kernel(X), alpha)
        yield {"case": "concrete", "who": method, "D": D} | row
    result = compare_bounds(kernel, X, n_features=D, n_draws=3, **arguments)
    required = next(row.required for row in result.rows if "spectral" in row.bound.quantity)
    yield {"case": "concrete", "who": "fourier, a-priori bound", "D": D, "asked": required}


@bench()
def leverage(options: Options) -> Iterator[Row]:
    """Spectral distance of Fourier features drawn by ridge leverage, or by the spectral density.

    500 rows uniform in [−1, 1]^d, 512 features, means of five draws; "error" is relative Frobenius.
    """
    n, D = options.pick((500, 512), (60, 32))
    smooth = ((Gaussian(0.1), 1), (Gaussian(0.35), 2), (Gaussian(0.6), 3), (Gaussian(0.8), 4))
    for kernel, d in (*smooth, (Matern(1.5, 0.5), 2), (Matern(1.5, 3.0), 12)):
        X = np.random.default_rng(d).uniform(-1, 1, (n, d))
        K, arguments = kernel(X), {"n_features": D, "X": X}
        values = np.maximum(np.linalg.eigvalsh(K), 0)
        for penalty in (1e-2, 1e-4):
            for method in (IID, bo.Fourier(bo.QMC()), bo.LeverageFourier(penalty)):
                maps = [bo.draw(kernel, method, random_state=s, **arguments)(X) for s in range(5)]
                row = {"case": f"{kernel!r}, d={d}, λ/n={penalty:g}", "who": str(method)}
                row["effective dimension"] = float(np.sum(values / (values + penalty * n)))
                row["ε"] = np.mean([spectral_distance(Z, K, penalty * n) for Z in maps])
                yield row | {"error": np.mean([relative_error(Z, K) for Z in maps])}
