"""Accuracy: distance of features from the kernel, by method and width."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigvalsh, solve_triangular
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

import bochner as bo
from benchmarks.data import DEVELOPMENT, development, standardised
from benchmarks.harness import MissingDataSet, Options, Row, compared, each, interleaved, judged
from bochner._core.native import polynomials_twin
from bochner.certificates.bounds.table import compare_bounds
from bochner.datasets import load_earth
from bochner.errors import UnsupportedKernel
from bochner.features import Method
from bochner.features.auto import relative_error, width_of
from bochner.features.rules import contenders
from bochner.features.sketch.polysketch import PolySketch
from bochner.features.sketch.tensorsketch import TensorSketch
from bochner.kernels import (
    AdditiveChi2,
    Exponential,
    Gaussian,
    Kernel,
    Matern,
    NeuralTangent,
    Polynomial,
)

# --- kernel_error ----------------------------------------------------------------------------


#: Columns d, placement, and the share of the rival's error that is asked.
CASES = ((5, "qmc", 1 / 8), (20, "orthogonal", 1 / 3), (100, "orthogonal", 1 / 3))


def run_kernel_error(options: Options) -> list[Row]:
    """Error of the kernel matrix at equal width, against RBFSampler.

    Gaussian rows, Gaussian kernel with the median distance of the rows as its lengthscale, pair
    form; ‖ZZᵀ − K‖_F / ‖K‖_F with K from scikit-learn, medians over seeds. Seconds are those of
    drawing the map and making the features.
    """
    return [_case(options, *case) for case in CASES]


def _case(options: Options, d: int, placement: str, asked: float) -> Row:
    n, D = options.pick((2000, 1024), (300, 1024))
    X = np.random.default_rng(d).standard_normal((n, d))
    scale = float(np.median(pdist(X)))
    K = rbf_kernel(X, gamma=0.5 / scale**2)
    makers = {"ours": _ours(placement, scale, D, X), "rival": _rival(scale, D, X)}
    times = interleaved(makers, options.pick(11, 3))
    errors = {
        name: median(float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) for Z in timing.values)
        for name, timing in times.items()
    }
    share = errors["ours"] / errors["rival"]
    return {
        "case": f"d={d}, D={D}, n={n}, {placement}",
        "error": errors["ours"],
        "rival's": errors["rival"],
        "share": share,
        **judged(share, asked, least=False),
        "seconds": times["ours"].median,
        "rival s": times["rival"].median,
    }


def _ours(placement: str, scale: float, D: int, X: np.ndarray) -> Callable[[int], np.ndarray]:
    def case(seed: int) -> np.ndarray:
        return bo.draw(Gaussian(scale), placement, n_features=D, X=X, random_state=seed)(X)

    return case


def _rival(scale: float, D: int, X: np.ndarray) -> Callable[[int], np.ndarray]:
    def case(seed: int) -> np.ndarray:
        sampler = RBFSampler(gamma=0.5 / scale**2, n_components=D, random_state=seed)
        return sampler.fit_transform(X)

    return case


# --- choose ----------------------------------------------------------------------------------


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


CASES_CHOOSE = (
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


def run_choose(options: Options) -> list[Row]:
    """The errors that docs/choose.md states: of which features, for which rows and kernel.

    ‖Z Zᵀ − K‖_F/‖K‖_F on 1,000 rows of the law that is named, of maps that are drawn with 2,000
    other rows of it, at equal width: the root of the mean square over seeds 0, 1 and 2
    (``--quick``: one seed, few rows, an eighth of the features). "lengthscale" is the median
    distance of 500 of the rows, or the number in the kernel.
    """
    return [row for case in CASES_CHOOSE for row in of_case(case, options)] + relief(options)


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
    """Return the errors of the methods of a case."""
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


# --- choice ----------------------------------------------------------------------------------


#: Tables of the folder of data; CONTRIBUTING.md says where they are from.
TABLES = (
    "protein",
    "california_housing",
    "kin8nm",
    "power_plant",
    "abalone_jmlr",
    "magic",
    "pendigits",
    "uci_pol",
    "uci_tamielectric",
    "covtype_20k",
)
ROWS, SAMPLE = 10_000, 2000


def run_choice(options: Options) -> list[Row]:
    """What method="auto" picks, against the best of all candidates, on ten tables.

    Relative Frobenius error on 2,000 rows that no map was drawn from, D = 128, 512 and 2048,
    Gaussian and Matérn-3/2 kernels with the median distance as lengthscale, columns in standard
    deviations.
    """
    return each(TABLES, lambda name: _table(name, options))


def _table(name: str, options: Options) -> list[Row]:
    X = standardised(name, options, options.pick(ROWS, 1500))
    scale = float(np.median(pdist(X[:1000]))) or 1.0
    return [
        _case_of_choice(name, kernel, X, D)
        for kernel in (Gaussian(scale), Matern(1.5, scale))
        for D in options.pick((128, 512, 2048), (64,))
    ]


def _case_of_choice(name: str, kernel: Kernel, X: np.ndarray, D: int) -> Row:
    m = min(SAMPLE, len(X) // 4)
    kept, others = X[:m], X[m:]
    K = kernel(kept)
    errors = {}
    for method in contenders(X.shape[1]):
        try:
            phi = bo.draw(kernel, method, n_features=width_of(method, D), X=others, random_state=1)
        except UnsupportedKernel:
            continue
        errors[str(method)] = relative_error(phi, kept, K)
    auto = bo.KernelFeatures(kernel, method="auto", n_features=D, random_state=0).fit(others)
    error = relative_error(auto.map_, kept, K)
    best = min(errors, key=lambda method: errors[method])
    return {
        "table": name,
        "columns": X.shape[1],
        "kernel": type(kernel).__name__,
        "D": D,
        "auto took": str(auto.choice_.method),
        "its error": error,
        "best": best,
        "best error": errors[best],
        **judged(error / max(errors[best], 1e-12), 1.5, least=False),
    }


# --- harmonic --------------------------------------------------------------------------------


#: Width and the share of the published error that is asked.
SPHERE = ((128, 1e-4), (512, 1e-6))


def run_harmonic(options: Options) -> list[Row]:
    """Harmonic features: error on the sphere at equal width, and seconds beside rivals.

    "Published" is `Gegenbauer("monomial")`, definition 8 of Han et al. (2022). Errors are ‖ZZᵀ −
    K‖_F/‖K‖_F on 2,000 rows of the sphere of radius 2 in R³, Gaussian kernel; for the timings, on
    2,000 of the rows. "NumPy passes" is the same recurrence with an array operation for each
    step. Seconds on the sphere are those of φ(X), without drawing the map.
    """
    return [
        *(_sphere(options, *case) for case in SPHERE),
        _recurrence(options),
        *(_mercer(options, kernel) for kernel in (Gaussian(), Matern(1.5))),
    ]


def _error_of_harmonic(Z: Array, K: Array) -> float:
    Z = Z.astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


def _sphere(options: Options, D: int, asked: float) -> Row:
    X = np.random.default_rng(0).standard_normal((options.pick(2000, 300), 3))
    X *= 2.0 / np.linalg.norm(X, axis=1, keepdims=True)
    K = Gaussian()(X)
    maps = [
        bo.draw(Gaussian(), bo.Gegenbauer("monomial"), n_features=D, X=X, random_state=seed)
        for seed in range(5)
    ]
    phi = bo.draw(Gaussian(), bo.MercerHarmonic(), n_features=D, X=X)
    times = interleaved(
        {"ours": lambda _: phi(X), "rival": lambda r: maps[r % 5](X)}, options.pick(9, 3)
    )
    error, rival = _error_of_harmonic(phi(X), K), median(_error_of_harmonic(p(X), K) for p in maps)
    return {
        "case": f"sphere d=3, R=2, D={D} (MercerHarmonic: {phi.n_features}) against published",
        **compared(times["ours"], times["rival"]),
        "error": error,
        "rival's": rival,
        "share": error / rival,
        **judged(error / rival, asked, least=False),
    }


def _recurrence(options: Options) -> Row:
    n, m = options.pick(20_000, 1000), 512
    X = np.random.default_rng(1).standard_normal((n, 3)).astype(np.float32)
    method = bo.Gegenbauer("monomial", order=1, degree=15)
    phi = bo.draw(Gaussian(), method, n_features=m, X=X, random_state=0)
    times = interleaved(
        {"ours": lambda _: phi(X), "rival": lambda _: _passes(phi, X)}, options.pick(5, 3)
    )
    few, exact = X[:2000], phi(X[:2000].astype(np.float64))
    size = float(np.abs(exact).max())
    return {
        "case": f"Gegenbauer, n={n}, d=3, m={m}, degree 15, float32, against NumPy passes",
        **compared(times["ours"], times["rival"]),
        "error": float(np.abs(phi(few) - exact).max()) / size,
        "rival's": float(np.abs(_passes(phi, few) - exact).max()) / size,
        **judged(times["rival"].median / times["ours"].median, 8.0),
    }


def _passes(phi: bo.FeatureMap, X: Array) -> Array:
    """Return the features of a map by one array operation after the other."""
    U, r = phi.polar(X)
    H = phi.radial(r) * phi.directions.shape[1] ** -0.5
    H = np.concatenate([H, np.zeros_like(H[:, :1])], axis=1)[:, phi._places]
    H = H.reshape(len(X), phi.order, phi.degree + 1).astype(X.dtype)
    return polynomials_twin(U, phi.directions.astype(X.dtype), H, *phi._steps)


def _mercer(options: Options, kernel: bo.kernels.Kernel) -> Row:
    n, D = options.pick(20_000, 1000), 512
    X = np.random.default_rng(2).standard_normal((n, 3)).astype(np.float32)
    phi = bo.draw(kernel, bo.MercerHarmonic(), n_features=D, X=X)
    rival = RBFSampler(gamma=0.5, n_components=D, random_state=0).fit(X)
    cases = {"ours": _silent(phi, X), "rival": _silent(rival.transform, X)}
    times = interleaved(cases, options.pick(15, 3))
    few = X[:2000].astype(np.float64)
    share = (
        _error_of_harmonic(rival.transform(few), Gaussian()(few)) if kernel == Gaussian() else None
    )
    return {
        "case": f"MercerHarmonic, {kernel!r}, {n} x {D}, float32, against RBFSampler",
        **compared(times["ours"], times["rival"]),
        "error": _error_of_harmonic(phi(X[:2000]), kernel(few)),
        "rival's": share,
        **judged(times["rival"].median / times["ours"].median, 1.0),
    }


def _silent(function: Callable[[Array], Array], X: Array) -> Callable[[int], None]:
    """Return a case that lets its result go, as a fit does with a block's features."""

    def case(_: int) -> None:
        function(X)

    return case


# --- hermite ---------------------------------------------------------------------------------


COLUMNS, LENGTHSCALE = 9, 3.0


def run_hermite(options: Options) -> list[Row]:
    """HermiteMercer against RBFSampler in seconds, and against orthogonal frequencies in error.

    Rows are standard normal in nine columns, the kernel is Gaussian of lengthscale 3. Seconds are
    those of 20,000 × 512 features; the error is ‖ZZᵀ − K‖_F / ‖K‖_F at D = 256 on rows that no
    map has seen.
    """
    return [_seconds(options, "float32"), _seconds(options, "float64"), _error_of_hermite(options)]


def _seconds(options: Options, dtype: str) -> Row:
    n, D = options.pick((20_000, 512), (1000, 512))
    X = np.random.default_rng(0).standard_normal((n, COLUMNS)).astype(dtype)
    phi = bo.draw(Gaussian(LENGTHSCALE), bo.HermiteMercer(), n_features=D, X=X, random_state=0)
    rival = RBFSampler(gamma=0.5 / LENGTHSCALE**2, n_components=D, random_state=0).fit(X)
    times = interleaved(
        {"ours": _silent_of_hermite(phi, X), "rival": _silent_of_hermite(rival.transform, X)},
        options.pick(15, 3),
    )
    ratio = times["rival"].median / times["ours"].median
    K = Gaussian(LENGTHSCALE)(X[:1000])
    return {
        "case": f"seconds, n={n}, D={D}, {dtype}",
        **compared(times["ours"], times["rival"]),
        **judged(ratio, 1.0),
        "error": _relative(phi(X[:1000]), K),
        "rival's": _relative(rival.transform(X[:1000]), K),
    }


def _silent_of_hermite(function: Callable[[Array], Array], X: Array) -> Callable[[int], None]:
    """Return a case that lets its result go, as a fit does with a block's features."""

    def case(_: int) -> None:
        function(X)

    return case


def _error_of_hermite(options: Options) -> Row:
    n, D = options.pick((2000, 256), (500, 256))
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((n, COLUMNS)), rng.standard_normal((n, COLUMNS))
    kernel = Gaussian(LENGTHSCALE)
    K = kernel(Y)
    errors = {
        name: median(
            _relative(bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(Y), K)
            for seed in range(options.pick(11, 3))
        )
        for name, method in {"ours": bo.HermiteMercer(), "rival": "orthogonal"}.items()
    }
    share = errors["ours"] / errors["rival"]
    return {
        "case": f"error, n={n}, D={D}, float64",
        **judged(share, 1 / 20, least=False),
        "error": errors["ours"],
        "rival's": errors["rival"],
    }


def _relative(Z: Array, K: Array) -> float:
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


# --- sketches --------------------------------------------------------------------------------


#: Method, rows, and how many times faster is asked.
CASES_SKETCHES = (
    (PolySketch(), "normal", 10.0),
    (PolySketch(), "positive", 10.0),
    (TensorSketch(), "positive", 1.0),
)

DEGREE, COLUMNS_SKETCHES, ERROR_ROWS = 3, 128, 400


def run_sketches(options: Options) -> list[Row]:
    """PolySketch and TensorSketch against PolynomialCountSketch: seconds, and error of Z Zᵀ.

    Kernel ⟨x, y⟩³ of 128 columns, 4,096 features, float32 rows: standard normal ones, whose pairs
    are nearly orthogonal, and their absolute values, whose pairs are not. Errors are ‖ZZᵀ −
    K‖_F/‖K‖_F on the first rows, the root of the mean square over seeds; PolynomialCountSketch
    returns float64.
    """
    return [_case_of_sketches(options, *case) for case in CASES_SKETCHES]


def _case_of_sketches(
    options: Options, method: PolySketch | TensorSketch, rows: str, asked: float
) -> Row:
    n, D = options.pick(4000, 500), options.pick(4096, 512)
    X = np.random.default_rng(0).standard_normal((n, COLUMNS_SKETCHES)).astype(np.float32)
    X = np.abs(X) if rows == "positive" else X
    ours, rival = _drawn(method, D, X, 0), _rival_of_sketches(D, X, 0)
    times = interleaved(
        {"ours": _silent_of_sketches(ours, X), "rival": _silent_of_sketches(rival, X)},
        options.pick(7, 3),
    )
    seeds = range(options.pick(25, 2))
    errors = [
        _error_of_sketches([make(seed) for seed in seeds], X) for make in _makers(method, D, X)
    ]
    return {
        "case": f"{type(method).__name__}, {rows} rows",
        **compared(times["ours"], times["rival"]),
        **judged(times["rival"].median / times["ours"].median, asked),
        "error": errors[0],
        "rival's": errors[1],
        "no worse": "yes" if errors[0] <= errors[1] else "NO",
        "precision": f"{ours(X[:2]).dtype}, rival {rival(X[:2]).dtype}",
    }


def _makers(method: PolySketch | TensorSketch, D: int, X: Array) -> tuple[Callable, Callable]:
    return (lambda seed: _drawn(method, D, X, seed)), (lambda seed: _rival_of_sketches(D, X, seed))


def _drawn(method: PolySketch | TensorSketch, D: int, X: Array, seed: int) -> bo.FeatureMap:
    return bo.draw(Polynomial(DEGREE, 0.0), method, n_features=D, X=X, random_state=seed)


def _rival_of_sketches(D: int, X: Array, seed: int) -> Callable[[Array], Array]:
    sketch = PolynomialCountSketch(degree=DEGREE, n_components=D, random_state=seed)
    return sketch.fit(X).transform


def _silent_of_sketches(function: Callable[[Array], Array], X: Array) -> Callable[[int], None]:
    """Return a case that lets its result go, as a fit does with a block's features."""

    def case(_: int) -> None:
        function(X)

    return case


def _error_of_sketches(maps: list[Callable[[Array], Array]], X: Array) -> float:
    rows = X[:ERROR_ROWS]
    K = Polynomial(DEGREE, 0.0)(rows.astype(np.float64))
    squares = []
    for phi in maps:
        Z = phi(rows).astype(np.float64)
        squares.append((np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) ** 2)
    return float(np.mean(squares) ** 0.5)


# --- bounds ----------------------------------------------------------------------------------


#: Tables of the folder of data; CONTRIBUTING.md says where they are from.
TABLES_BOUNDS = ("protein", "power_plant", "california_housing")


def run_bounds(options: Options) -> list[Row]:
    """What bounds ask, against what is needed: width by theorem and by draws, on tables.

    Gaussian and Matérn-3/2 kernels with the median distance as lengthscale, columns in standard
    deviations, 500 rows, alpha = 0.01 n, D = 1024, the largest error of 20 draws; and rows on a
    sphere, where Gegenbauer features are at their best. "times too many" is what a fit would pay
    that trusts the bound.
    """
    sphere = _table_of_bounds("sphere, radius 1.5", _sphere_of_bounds(), (Gaussian(),), options)
    return sphere + each(TABLES_BOUNDS, lambda name: _real(name, options))


def _real(name: str, options: Options) -> list[Row]:
    X = standardised(name, options, options.pick(500, 200))
    scale = float(np.median(pdist(X)))
    return _table_of_bounds(
        name, X, (Gaussian(scale), Matern(1.5, scale), Exponential(scale)), options
    )


def _table_of_bounds(
    name: str, X: np.ndarray, kernels: tuple[Kernel, ...], options: Options
) -> list[Row]:
    D, draws = options.pick(1024, 128), options.pick(20, 2)
    rows: list[Row] = []
    for kernel in kernels:
        alpha = 0.01 * len(X)
        found = compare_bounds(
            kernel, X, alpha=alpha, n_features=D, n_draws=draws, n_sample=len(X), random_state=0
        )
        rows += [
            {
                "table": name,
                "kernel": type(kernel).__name__,
                "bound": row.name,
                "error of": row.bound.quantity,
                "promised": row.promised,
                "found": row.found,
                "asked": "none" if row.asked is None else row.asked,
                "times too many": None if row.asked is None else row.asked / found.n_features,
            }
            for row in found.rows
        ]
    return rows


def _sphere_of_bounds() -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((500, 3))
    return 1.5 * X / np.linalg.norm(X, axis=1, keepdims=True)


# --- leverage --------------------------------------------------------------------------------


PENALTIES = (1e-2, 1e-4)
CASES_LEVERAGE: tuple[tuple[Kernel, int], ...] = (
    (Gaussian(0.1), 1),
    (Gaussian(0.35), 2),
    (Gaussian(0.6), 3),
    (Gaussian(0.8), 4),
    (Matern(1.5, 0.5), 2),
    (Matern(1.5, 3.0), 12),
)


def run_leverage(options: Options) -> list[Row]:
    """Spectral distance of Fourier features by leverage, beside those from the kernel's own law.

    500 rows uniform in [−1, 1]^d, 512 features, means of five draws, at penalties λ = 1e-2 n and
    1e-4 n (and the relative Frobenius error, "entries"); ``LeverageFourier(λ/n)`` is drawn for
    its penalty.
    """
    return [row for kernel, d in CASES_LEVERAGE for row in _of(kernel, d, options)]


def _of(kernel: Kernel, d: int, options: Options) -> Iterator[Row]:
    n, D = options.pick((500, 512), (60, 32))
    X = np.random.default_rng(d).uniform(-1, 1, (n, d))
    K = kernel(X)
    values, V = np.linalg.eigh(K)
    for penalty in PENALTIES:
        sizes = np.maximum(values, 0) + penalty * n
        methods: tuple[Method, ...] = (
            bo.Fourier(bo.IID()),
            bo.Fourier(bo.QMC()),
            bo.LeverageFourier(penalty),
        )
        about = {"kernel": repr(kernel), "d": d, "λ/n": penalty}
        about["effective dimension"] = float(np.sum(1 - penalty * n / sizes))
        for method in methods:
            yield about | _errors(kernel, method, X, K, V / np.sqrt(sizes), D)


def _errors(
    kernel: Kernel, method: Method, X: np.ndarray, K: np.ndarray, whitening: np.ndarray, D: int
) -> Row:
    distances, entries = [], []
    for seed in range(5):
        Z = bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(X)
        E = Z @ Z.T - K
        distances.append(np.abs(np.linalg.eigvalsh(whitening.T @ E @ whitening)).max())
        entries.append(np.linalg.norm(E) / np.linalg.norm(K))
    return {
        "method": str(method),
        "distance": float(np.mean(distances)),
        "entries": float(np.mean(entries)),
    }


# --- required_features -----------------------------------------------------------------------


ROWS_REQUIRED_FEATURES, TOLERANCE = 2500, 0.1

METHODS: tuple[Method, ...] = (bo.Auto(), bo.Fourier(bo.Orthogonal()))


class _Found(NamedTuple):
    """A width, the true ε there and at half of it, and what stopped the search, if anything."""

    width: int
    epsilon: float
    at_half: float
    limit: str | None


def run_required_features(options: Options) -> list[Row]:
    """Is ``n_features="auto"`` enough, and not too much? ε of all rows against what was asked.

    Gaussian kernels with the median distance as lengthscale, 2,500 rows of each development set,
    the penalty of least leave-one-out error, a tolerance of 0.1 and ``method="auto"`` or
    orthogonal Fourier features. "true ε" is that of all rows by dense matrices in float64; half
    the width must miss the tolerance, else the width was more than twice the least.
    """
    rows: list[Row] = []
    found: list[_Found] = []
    for name in DEVELOPMENT[: options.pick(None, 2)]:
        try:
            X, alpha = _rows(name, options)
        except MissingDataSet as missing:
            rows.append({"note": f"Left out: {missing}"})
            continue
        for method in METHODS:
            draws = list(_draws(X, alpha, method, options.pick(6, 1)))
            rows.append(_row(name, method, alpha, draws))
            found += draws
    return rows + _shares(found)


def _rows(name: str, options: Options) -> tuple[np.ndarray, float]:
    data = development(name, options, most=options.pick(ROWS_REQUIRED_FEATURES, 300))
    kernel = Gaussian(float(np.median(pdist(data.X))))
    fit = bo.KernelRidge(kernel, method="nystrom", n_features=1024, random_state=0).fit(
        data.X, data.y
    )
    return data.X, fit.alpha_


def _draws(X: np.ndarray, alpha: float, method: Method, seeds: int) -> Iterator[_Found]:
    kernel = Gaussian(float(np.median(pdist(X))))
    K = kernel(X)
    L = cholesky(K + alpha * np.eye(len(X)), lower=True)
    for seed in range(seeds):
        width = bo.required_features(kernel, method, X, alpha=alpha, random_state=seed)
        half = bo.draw(
            kernel, width.method, n_features=width.n_features // 4 * 2, X=X, random_state=seed
        )
        epsilon, at_half = (_epsilon(phi(X), K, L) for phi in (width.map, half))
        yield _Found(width.n_features, epsilon, at_half, width.limit)


def _epsilon(Z: np.ndarray, K: np.ndarray, L: np.ndarray) -> float:
    """Return the norm of (K + alpha I)^(-1/2) (Z Zᵀ − K) (K + alpha I)^(-1/2)."""
    E = solve_triangular(L, solve_triangular(L, Z @ Z.T - K, lower=True).T, lower=True)
    return float(np.abs(eigvalsh((E + E.T) / 2)).max())


def _row(name: str, method: Method, alpha: float, draws: list[_Found]) -> Row:
    return {
        "table": name,
        "method": str(method),
        "alpha": alpha,
        "D": int(np.median([f.width for f in draws])),
        "true ε": float(np.median([f.epsilon for f in draws])),
        "largest": max(f.epsilon for f in draws),
        "at half of D": float(np.median([f.at_half for f in draws])),
        "stopped": next((f.limit for f in draws if f.limit), ""),
    }


def _shares(found: list[_Found]) -> list[Row]:
    """Return the shares within the tolerance and not too wide, of draws that nothing stopped."""
    free = [f for f in found if f.limit is None]
    if not free:
        return []
    within = float(np.mean([f.epsilon <= TOLERANCE for f in free]))
    needed = float(np.mean([f.at_half > TOLERANCE for f in free]))
    return [
        {"note": f"{len(free)} of {len(found)} draws were stopped by nothing."},
        {
            "table": "all",
            "question": "within the tolerance",
            "share": within,
            **judged(within, 0.95),
        },
        {"table": "all", "question": "half would not do", "share": needed, **judged(needed, 0.95)},
    ]
