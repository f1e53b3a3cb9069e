"""Seconds and errors of feature maps beside rivals."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler

import bochner as bo
from benchmarks.bench import Options, Row, against, bench, goal, turns
from bochner.kernels import Gaussian, Kernel, Matern, Polynomial

Array = np.ndarray
Map = Callable[[Array], Array]


# --- feature maps beside rivals ------------------------------------------------------------------


def relative_error(Z: Array, K: Array) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F."""
    Z = Z.astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


class MapCase(NamedTuple):
    """Rows, kernel and width of maps; rivals are methods of ours, or make a map from a seed."""

    name: str
    kernel: Kernel
    D: int
    X: Array
    ours: Any
    rivals: dict[str, Any]
    seeds: int = 1  # of the errors, whose root mean square is reported
    least: float | None = None  # required ratio of seconds
    most: float | None = None  # required ratio of our error to that of a rival
    new: Array | None = None  # rows of the errors; None: the first 2,000 rows


def compare_maps(case: MapCase, repeats: int) -> Iterator[Row]:
    """Yield the seconds of φ(X) and the error of ZZᵀ of each map."""
    rows = case.X[:2000] if case.new is None else case.new
    K = case.kernel(rows.astype(np.float64))

    def drawn(method: Any, seed: int) -> Map:
        if not isinstance(method, bo.Method | str):
            return method(seed)
        given = {"n_features": case.D, "X": case.X, "random_state": seed}
        return bo.draw(case.kernel, method, **given)

    methods = {"ours": case.ours} | case.rivals
    maps = {who: drawn(method, 0) for who, method in methods.items()}
    times = turns({who: _silent(phi, case.X) for who, phi in maps.items()}, repeats)
    errors = {}
    for who, method in methods.items():
        found = [relative_error(drawn(method, seed)(rows), K) for seed in range(case.seeds)]
        errors[who] = float(np.mean(np.square(found)) ** 0.5)
    for row in against(case.name, times, case.least, error=errors):
        if row["who"] != "ours":
            row["error of ours over it"] = errors["ours"] / row["error"]
            if case.most:
                row = goal(row, "error of ours over it", most=case.most)  # noqa: PLW2901
        yield row


def _silent(function: Callable[[Array], Any], X: Array) -> Callable[[int], None]:
    """Return a case that drops its result, as a fit does with the features of a block."""

    def case(_: int) -> None:
        function(X)

    return case


def _normal(n: int, d: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


def _sampler(lengthscale: float, D: int, X: Array) -> dict[str, Any]:
    given = {"gamma": 0.5 / lengthscale**2, "n_components": D}
    return {"RBFSampler": lambda seed: RBFSampler(random_state=seed, **given).fit(X).transform}


@bench()
def features(options: Options) -> Iterator[Row]:
    """phi(X) against RBFSampler.transform: seconds, and the largest error of a feature.

    Rows are normal, the lengthscale is 1. "error / bound" is the largest difference from NumPy in
    float64, as a share of 2e-6 √(2/D) (1 + ‖x‖); "at √(2d)" the same at that lengthscale.
    """
    cases = ((10, 2048, "float32", 6.0), (100, 2048, "float32", 4.0))
    cases += ((784, 4096, "float32", 1.3), (10, 2048, "float64", 10.0))
    for d, D, dtype, least in cases:
        X = _normal(options.pick(20_000, 1000), d, d).astype(dtype)
        phi, far = (
            bo.draw(Gaussian(scale), "orthogonal", n_features=D, n_inputs=d, random_state=0)
            for scale in (1.0, (2 * d) ** 0.5)
        )
        rival = RBFSampler(gamma=0.5, n_components=D, random_state=0).fit(X)
        of_rival = lambda rows, rival=rival: (
            np.sqrt(2 / len(rival.random_offset_))
            * np.cos(rows @ rival.random_weights_.astype(np.float64) + rival.random_offset_)
        )
        shares = {"ours": _share_of_bound(phi, _pairs(phi), X)}
        shares["RBFSampler"] = _share_of_bound(rival.transform, of_rival, X)
        wide = {"ours": _share_of_bound(far, _pairs(far), X)}
        maps = {"ours": _silent(phi, X), "RBFSampler": _silent(rival.transform, X)}
        times, named = turns(maps, options.pick(9, 3)), {"error / bound": shares, "at √(2d)": wide}
        for row in against(f"d={d}, D={D}, {dtype}", times, least, **named):
            yield goal(row, "error / bound", most=1) if row["who"] == "ours" else row


def _pairs(phi: bo.FeatureMap) -> Map:
    def exact(X: Array) -> Array:
        angles = X @ phi.frequencies
        return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(angles.shape[1])

    return exact


def _share_of_bound(function: Map, exact: Map, X: Array) -> float:
    worst = 0.0
    for rows in np.array_split(X, max(1, len(X) // 1000)):
        expected = exact(rows.astype(np.float64))
        scale = np.sqrt(2 / expected.shape[1])
        bound = 2e-6 * scale * (1 + np.linalg.norm(rows.astype(float), axis=1))
        worst = max(worst, float((np.abs(function(rows) - expected).max(axis=1) / bound).max()))
    return worst


@bench()
def kernel_error(options: Options) -> Iterator[Row]:
    """Error of the kernel matrix at equal width, against RBFSampler.

    Normal rows; the lengthscale is the median distance of the rows.
    """
    D, repeats = 1024, options.pick(11, 3)
    for d, placement in ((5, "qmc"), (20, "orthogonal"), (100, "orthogonal")):
        X = _normal(options.pick(2000, 300), d, d)
        scale, most = float(np.median(pdist(X))), 1 / 8 if d == 5 else 1 / 3
        given = Gaussian(scale), D, X, placement, _sampler(scale, D, X)
        case = MapCase(f"d={d}, D={D}, {placement}", *given, seeds=repeats, most=most)
        yield from compare_maps(case, 3)


@bench()
def hermite(options: Options) -> Iterator[Row]:
    """HermiteMercer against RBFSampler in seconds, and against orthogonal frequencies in error.

    Normal rows in nine columns, lengthscale 3; errors against orthogonal frequencies are of rows
    that no map was drawn from.
    """
    kernel, method, n, D = Gaussian(3.0), bo.HermiteMercer(), options.pick(20_000, 1000), 512
    for dtype in ("float32", "float64"):
        X = _normal(n, 9).astype(dtype)
        given = kernel, D, X, method, _sampler(3.0, D, X)
        case = MapCase(f"n={n}, D={D}, {dtype}", *given, least=1.0, new=X[:1000])
        yield from compare_maps(case, options.pick(15, 3))
    X, new = np.split(_normal(options.pick(4000, 1000), 9, 1), 2)
    given = kernel, 256, X, method, {"orthogonal": "orthogonal"}
    case = MapCase("new rows, D=256", *given, seeds=options.pick(11, 3), most=0.05, new=new)
    yield from compare_maps(case, 3)


@bench()
def harmonic(options: Options) -> Iterator[Row]:
    """Harmonic features: error on the sphere against Han et al. (2022), and seconds beside rivals.

    "as published" is ``Gegenbauer("monomial")``.
    """
    kernel, method, published = Gaussian(), bo.MercerHarmonic(), bo.Gegenbauer("monomial")
    X = _normal(options.pick(2000, 300), 3)
    X *= 2.0 / np.linalg.norm(X, axis=1, keepdims=True)
    for D, most in ((128, 1e-4), (512, 1e-6)):
        given = kernel, D, X, method, {"as published": published}
        case = MapCase(f"sphere, D={D}", *given, seeds=5, most=most)
        yield from compare_maps(case, options.pick(9, 3))
    n = options.pick(20_000, 1000)
    X = _normal(n, 3, 2).astype(np.float32)
    for k in (kernel, Matern(1.5)):
        name = f"MercerHarmonic, {k!r}, n={n}, float32"
        case = MapCase(name, k, 512, X, method, _sampler(1.0, 512, X), least=1.0)
        yield from compare_maps(case, options.pick(15, 3))


@bench()
def sketches(options: Options) -> Iterator[Row]:
    """PolySketch and TensorSketch of ⟨x, y⟩³ against PolynomialCountSketch, of 128 columns.

    Normal rows, whose pairs are nearly orthogonal, and their absolute values.
    """
    n, D, kernel = options.pick(4000, 500), options.pick(4096, 512), Polynomial(3, 0.0)
    cases = ((bo.PolySketch(), "normal", 10.0), (bo.PolySketch(), "positive", 10.0))
    for method, rows, least in (*cases, (bo.TensorSketch(), "positive", 1.0)):
        X = _normal(n, 128).astype(np.float32)
        X = np.abs(X) if rows == "positive" else X
        rival = lambda seed, X=X: (
            PolynomialCountSketch(degree=3, n_components=D, random_state=seed).fit(X).transform
        )
        given = kernel, D, X, method, {"PolynomialCountSketch": rival}
        wanted = {"seeds": options.pick(25, 2), "least": least, "most": 1.0, "new": X[:400]}
        case = MapCase(f"{type(method).__name__}, {rows} rows", *given, **wanted)
        yield from compare_maps(case, options.pick(7, 3))


@bench()
def hadamard(options: Options) -> Iterator[Row]:
    """Structured features beside features of the same frequencies as a matrix."""
    for d, D, least in ((1024, 8192, 2.0), (100, 2048, None)):
        n, kernel = options.pick(512, 64), Gaussian((2 * d) ** 0.5)  # a block of a fit
        X = _normal(n, d, d).astype(np.float32)
        given = kernel, D, X, bo.Fourier(bo.Structured()), {"formed": bo.Fourier(bo.Orthogonal())}
        case = MapCase(f"features {n} x {d} to {D}", *given, least=least, new=X[:256])
        yield from compare_maps(case, options.pick(9, 2))
