"""Seconds of feature maps, sums, imports and fits, each with its error."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.linalg import hadamard as sylvester
from scipy.linalg.blas import ssyrk
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler
from threadpoolctl import threadpool_limits

import bochner as bo
from benchmarks.bench import Options, Row, against, bench, goal, turns
from benchmarks.rivals import missing
from bochner._core import native
from bochner._core.blas import eigh, factor
from bochner._core.sizes import block_rows
from bochner._core.threads import get_num_threads, set_num_threads
from bochner.datasets import load_concrete
from bochner.features.nystrom.nystrom import Rounded
from bochner.features.sketch.polysketch import PolySketch
from bochner.features.sketch.tensorsketch import TensorSketch
from bochner.kernels import Gaussian, Kernel, Matern, Polynomial
from bochner.sums.executor import LOCAL
from bochner.sums.moments import Moments, MomentsOf

Array = np.ndarray
Map = Callable[[Array], Array]


# --- feature maps beside rivals ------------------------------------------------------------------


def relative_error(Z: Array, K: Array) -> float:
    """Return ‖ZZᵀ − K‖_F / ‖K‖_F."""
    Z = Z.astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


def compare_maps(
    case: str,
    makers: Mapping[str, Callable[[int], Map]],
    X: Array,
    kernel: Kernel,
    error_rows: Array,
    repeats: int,
    seeds: int = 1,
    least: float | None = None,
    most: float | None = None,
) -> Iterator[Row]:
    """Yield seconds of φ(X) and the error of ZZᵀ, root mean square over seeds, of each map.

    ``makers`` draw the maps from a seed, "ours" among them; ``least`` is the required ratio of
    seconds, ``most`` the required ratio of our error to that of the rival.
    """
    K = kernel(error_rows.astype(np.float64))
    drawn = {who: make(0) for who, make in makers.items()}
    times = turns({who: _silent(phi, X) for who, phi in drawn.items()}, repeats)
    errors = {}
    for who, make in makers.items():
        found = [relative_error(make(seed)(error_rows), K) for seed in range(seeds)]
        errors[who] = float(np.mean(np.square(found)) ** 0.5)
    for row in against(case, times, least, error=errors):
        if row["who"] != "ours":
            row["error of ours over it"] = errors["ours"] / row["error"]
            row = goal(row, "error of ours over it", most=most) if most else row  # noqa: PLW2901
        yield row


def _silent(function: Callable[[Array], Any], X: Array) -> Callable[[int], None]:
    """Return a case that drops its result, as a fit does with the features of a block."""

    def case(_: int) -> None:
        function(X)

    return case


def _ours(kernel: Kernel, method: Any, D: int, X: Array) -> Callable[[int], Map]:
    return lambda seed: bo.draw(kernel, method, n_features=D, X=X, random_state=seed)


def _sampler(lengthscale: float, D: int, X: Array) -> Callable[[int], Map]:
    gamma = 0.5 / lengthscale**2
    return lambda seed: RBFSampler(gamma=gamma, n_components=D, random_state=seed).fit(X).transform


@bench()
def features(options: Options) -> Iterator[Row]:
    """phi(X) against RBFSampler.transform: seconds, and the largest error of a feature.

    Rows are normal, the lengthscale is 1. "error / bound" is the largest difference from NumPy in
    float64, as a share of 2e-6 √(2/D) (1 + ‖x‖); "at √(2d)" the same at that lengthscale.
    """
    cases = ((10, 2048, "float32", 6.0), (100, 2048, "float32", 4.0))
    cases += ((784, 4096, "float32", 1.3), (10, 2048, "float64", 10.0))
    for d, D, dtype, least in cases:
        X = np.random.default_rng(d).standard_normal((options.pick(20_000, 1000), d)).astype(dtype)
        phi, far = (
            bo.draw(Gaussian(scale), "orthogonal", n_features=D, n_inputs=d, random_state=0)
            for scale in (1.0, (2 * d) ** 0.5)
        )
        rival = RBFSampler(gamma=0.5, n_components=D, random_state=0).fit(X)
        maps = {"ours": _silent(phi, X), "RBFSampler": _silent(rival.transform, X)}
        shares = {
            "ours": _share_of_bound(phi, lambda rows, phi=phi: _pair(phi, rows), X, D),
            "RBFSampler": _share_of_bound(rival.transform, lambda R, r=rival: _phase(r, R), X, D),
        }
        wide = {"ours": _share_of_bound(far, lambda rows, phi=far: _pair(phi, rows), X, D)}
        times = turns(maps, options.pick(9, 3))
        named = {"error / bound": shares, "at √(2d)": wide}
        for row in against(f"d={d}, D={D}, {dtype}", times, least, **named):
            yield goal(row, "error / bound", most=1) if row["who"] == "ours" else row


def _share_of_bound(function: Map, exact: Map, X: Array, D: int) -> float:
    worst = 0.0
    for start in range(0, len(X), 1000):
        rows = X[start : start + 1000]
        bound = 2e-6 * np.sqrt(2 / D) * (1 + np.linalg.norm(rows.astype(float), axis=1))
        error = np.abs(function(rows) - exact(rows.astype(np.float64))).max(axis=1)
        worst = max(worst, float((error / bound).max()))
    return worst


def _pair(phi: bo.FeatureMap, X: Array) -> Array:
    angles = X @ phi.frequencies
    return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(angles.shape[1])


def _phase(sampler: RBFSampler, X: Array) -> Array:
    weights, offset = sampler.random_weights_, sampler.random_offset_
    angles = X @ weights.astype(np.float64) + offset.astype(np.float64)
    return np.sqrt(2 / len(offset)) * np.cos(angles)


@bench()
def kernel_error(options: Options) -> Iterator[Row]:
    """Error of the kernel matrix at equal width, against RBFSampler.

    Normal rows; the lengthscale is the median distance of the rows.
    """
    for d, placement, most in (
        (5, "qmc", 1 / 8),
        (20, "orthogonal", 1 / 3),
        (100, "orthogonal", 1 / 3),
    ):
        X = np.random.default_rng(d).standard_normal((options.pick(2000, 300), d))
        scale, D, repeats = float(np.median(pdist(X))), 1024, options.pick(11, 3)
        makers = {"ours": _ours(Gaussian(scale), placement, D, X)}
        makers["RBFSampler"] = _sampler(scale, D, X)
        case = f"d={d}, D={D}, {placement}"
        yield from compare_maps(case, makers, X, Gaussian(scale), X, 3, repeats, most=most)


@bench()
def hermite(options: Options) -> Iterator[Row]:
    """HermiteMercer against RBFSampler in seconds, and against orthogonal frequencies in error.

    Normal rows in nine columns, lengthscale 3; errors against orthogonal frequencies are of rows
    that no map was drawn from.
    """
    kernel, method = Gaussian(3.0), bo.HermiteMercer()
    for dtype in ("float32", "float64"):
        n, D = options.pick(20_000, 1000), 512
        X = np.random.default_rng(0).standard_normal((n, 9)).astype(dtype)
        makers = {"ours": _ours(kernel, method, D, X), "RBFSampler": _sampler(3.0, D, X)}
        case, repeats = f"n={n}, D={D}, {dtype}", options.pick(15, 3)
        yield from compare_maps(case, makers, X, kernel, X[:1000], repeats, least=1.0)
    n, rng = options.pick(2000, 500), np.random.default_rng(1)
    X, new = rng.standard_normal((n, 9)), rng.standard_normal((n, 9))
    makers = {"ours": _ours(kernel, method, 256, X)}
    makers["orthogonal"] = _ours(kernel, "orthogonal", 256, X)
    yield from compare_maps(
        "new rows, D=256", makers, X, kernel, new, 3, options.pick(11, 3), most=0.05
    )


@bench()
def harmonic(options: Options) -> Iterator[Row]:
    """Harmonic features: error on the sphere against Han et al. (2022), and seconds beside rivals.

    "as published" is ``Gegenbauer("monomial")``.
    """
    kernel, repeats = Gaussian(), options.pick(9, 3)
    X = np.random.default_rng(0).standard_normal((options.pick(2000, 300), 3))
    X *= 2.0 / np.linalg.norm(X, axis=1, keepdims=True)
    for D, most in ((128, 1e-4), (512, 1e-6)):
        makers = {"ours": _ours(kernel, bo.MercerHarmonic(), D, X)}
        makers["as published"] = _ours(kernel, bo.Gegenbauer("monomial"), D, X)
        yield from compare_maps(f"sphere, D={D}", makers, X, kernel, X, repeats, 5, most=most)
    n = options.pick(20_000, 1000)
    X = np.random.default_rng(2).standard_normal((n, 3)).astype(np.float32)
    for k in (kernel, Matern(1.5)):
        makers = {
            "ours": _ours(k, bo.MercerHarmonic(), 512, X),
            "RBFSampler": _sampler(1.0, 512, X),
        }
        case = f"MercerHarmonic, {k!r}, n={n}, float32"
        yield from compare_maps(case, makers, X, k, X[:2000], options.pick(15, 3), least=1.0)


@bench()
def sketches(options: Options) -> Iterator[Row]:
    """PolySketch and TensorSketch of ⟨x, y⟩³ against PolynomialCountSketch, of 128 columns.

    Normal rows, whose pairs are nearly orthogonal, and their absolute values.
    """
    n, D, kernel = options.pick(4000, 500), options.pick(4096, 512), Polynomial(3, 0.0)
    cases = ((PolySketch(), "normal", 10.0), (PolySketch(), "positive", 10.0))
    for method, rows, least in (*cases, (TensorSketch(), "positive", 1.0)):
        X = np.random.default_rng(0).standard_normal((n, 128)).astype(np.float32)
        X = np.abs(X) if rows == "positive" else X
        rival = lambda seed, X=X: (
            PolynomialCountSketch(degree=3, n_components=D, random_state=seed).fit(X).transform
        )
        makers = {"ours": _ours(kernel, method, D, X), "PolynomialCountSketch": rival}
        case, seeds = f"{type(method).__name__}, {rows} rows", options.pick(25, 2)
        repeats = options.pick(7, 3)
        yield from compare_maps(case, makers, X, kernel, X[:400], repeats, seeds, least, 1.0)


@bench()
def hadamard(options: Options) -> Iterator[Row]:
    """Compare the Walsh-Hadamard transform and structured features with fht-cpu and products."""
    n, p, repeats = options.pick(8192, 256), 1024, options.pick(9, 2)
    X = np.random.default_rng(0).standard_normal((n, p)).astype(np.float32)
    H, out, zeros = sylvester(p).astype(np.float32), np.empty_like(X), np.zeros_like(X)
    exact = X[:64].astype(np.float64) @ H
    error = float(np.abs(native.hadamard(X[:64]) - exact).max() / np.abs(exact).max())
    cases: dict[str, Callable[[int], Any]] = {
        "ours": lambda _: native.hadamard(X, out=out),
        "X @ H": lambda _: X @ H,
        "copy of X": lambda _: np.copyto(out, X),
    }
    in_place = {"ours": lambda _: native.hadamard(zeros, out=zeros)}
    if find_spec("fht_cpu"):
        os.environ.setdefault("OMP_NUM_THREADS", str(get_num_threads()))
        fht = import_module("fht_cpu").fht
        cases["fht-cpu"] = lambda _: fht(X, out=out)
        in_place["fht-cpu"] = lambda _: fht(zeros)
    least = {"X @ H": 20.0, "fht-cpu": 1.0}
    for place, makers in (("", cases), (", in place", in_place)):
        times, case = turns(makers, repeats), f"{n} x {p} float32{place}"
        yield from against(case, times, least, error={"ours": error})
    yield from missing("fht_cpu")
    yield from structured_features(options)


def structured_features(options: Options) -> Iterator[Row]:
    """Yield structured features beside features of the same frequencies as a matrix."""
    for d, D, least in ((1024, 8192, 2.0), (100, 2048, None)):
        n, kernel = options.pick(512, 64), Gaussian((2 * d) ** 0.5)  # a block of a fit
        X = np.random.default_rng(d).standard_normal((n, d)).astype(np.float32)
        makers = {
            who: _ours(kernel, bo.Fourier(placement), D, X)
            for who, placement in {"ours": bo.Structured(), "formed": bo.Orthogonal()}.items()
        }
        case, repeats = f"features {n} x {d} to {D}", options.pick(9, 2)
        yield from compare_maps(case, makers, X, kernel, X[:256], repeats, least=least)


# --- sums of all rows ----------------------------------------------------------------------------

COLUMNS, PIECE = 10, 4096


@bench()
def moments(options: Options) -> Iterator[Row]:
    """Compare the pass that sums up all rows, features included, with the rate of ssyrk.

    The rate is the best of scipy.linalg.blas.ssyrk with 512 to 4096 rows. Only n D² operations are
    counted for both, so that the share is below 1.
    """
    n, D, rows = *options.pick((100_000, 4096), (8192, 512)), 16_384
    phi = bo.draw(Gaussian(3.0), "orthogonal", n_features=D, n_inputs=COLUMNS, random_state=0)
    cases = {f"ssyrk of {size} rows": _plain(D, size, rows) for size in (512, 1024, 2048, 4096)}
    cases["features"] = lambda _: _features_alone(phi, n)
    cases["pass"] = lambda _: _summed(phi, _blocks(n), "float32") and None
    times = turns(cases, options.pick(5, 2))
    rates = {
        who: (n if who == "pass" else rows) * D**2 / timing.median / 1e9
        for who, timing in times.items()
        if who != "features"
    }
    best = max(rate for who, rate in rates.items() if who != "pass")
    grams = [_summed(phi, _blocks(10_000), dtype).gram for dtype in ("float32", "float64")]
    error = float(np.linalg.norm(grams[0] - grams[1]) / np.linalg.norm(grams[1]))
    for who, timing in times.items():
        row: Row = {"case": f"n={n:,}, D={D}", "who": who, "seconds": timing.median}
        row["GFLOP/s"] = rates.get(who)
        if who == "pass":
            row |= {"share of ssyrk": rates[who] / best, "error of G in float32": error}
            row = goal(row, "share of ssyrk", least=0.8)
        yield row


def _blocks(n: int) -> bo.Blocks:
    """Return n rows that are made when they are read."""

    def pieces() -> Iterator[tuple[Array, Array]]:
        rng = np.random.default_rng(0)
        for start in range(0, n, PIECE):
            X = rng.standard_normal((min(PIECE, n - start), COLUMNS), dtype=np.float32)
            yield X, np.sin(X[:, 0])

    return bo.Blocks.from_iterable(pieces)


def _features_alone(phi: bo.FeatureMap, n: int) -> None:
    for block in _blocks(n).with_rows(block_rows(phi.n_features)):
        phi(block.X)


def _plain(D: int, size: int, rows: int) -> Callable[[int], None]:
    Z = np.random.default_rng(0).standard_normal((size, D), dtype=np.float32)
    total = np.zeros((D, D), np.float32, order="F")

    def case(_: int) -> None:
        for _ in range(rows // size):
            ssyrk(1e-6, Z.T, beta=1.0, c=total, overwrite_c=1)

    return case


def _summed(phi: bo.FeatureMap, blocks: bo.Blocks, dtype: Any) -> Moments:
    summand = MomentsOf(Rounded(phi.kernel, phi, dtype), dtype)
    return summand.moments(LOCAL.sum(summand, blocks.with_rows(block_rows(phi.n_features))))


# --- processes -----------------------------------------------------------------------------------


@bench()
def imports(options: Options) -> Iterator[Row]:
    """Seconds of fresh processes that import the package or print the help of its command."""
    script = Path(sys.executable).with_name("bochner")
    code = "import sys; sys.argv = ['bochner', '--help']; from bochner.cli import main; main()"
    commands = {
        name: [sys.executable, "-c", name if name.startswith("import") else "pass"]
        for name in (
            "python",
            "import sklearn.linear_model",
            "import bochner",
            "import bochner; bochner.KernelRidge",
        )
    }
    commands["bochner --help"] = (
        [str(script), "--help"] if script.is_file() else [sys.executable, "-c", code]
    )

    def case(command: list[str]) -> Callable[[int], Any]:
        return lambda _: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    times = turns({name: case(command) for name, command in commands.items()}, options.pick(15, 3))
    allowed = times["import sklearn.linear_model"].median + 0.1
    for name, timing in times.items():
        row: Row = {"case": name, "seconds": timing.median}
        row["range"] = f"{min(timing.seconds):.3g} to {max(timing.seconds):.3g}"
        if name.startswith("import bochner"):
            row = goal(row, "seconds", most=allowed)
        yield goal(row, "seconds", most=0.5) if name == "bochner --help" else row


@bench()
def busy(options: Options) -> Iterator[Row]:
    """Fits beside a processor that another process uses, against the same fits alone.

    Threads that wait for one another at full speed take 18 to 53 seconds in place of one if one of
    two processors is taken. "one thread" is the same fit alone, with all loops on one thread.
    """
    n, wide, repeats = options.pick((20_000, 2048, 3), (1_000, 128, 1))
    for name, fit in _fits(n, wide).items():
        slow = "concrete" in name or "default" in name
        if not options.selects(name) or (options.quick and slow):
            continue

        def alone(_: int, fit: Callable[[], object] = fit) -> float:
            start = time.process_time()
            fit()
            return time.process_time() - start

        def beside(_: int, fit: Callable[[], object] = fit) -> None:
            with _busy_processor():
                fit()

        def on_one_thread(_: int, alone: Callable[[int], float] = alone) -> float:
            set_num_threads(1)
            with threadpool_limits(1):
                core = alone(0)
            set_num_threads(None)
            return core

        times = turns({"alone": alone, "busy": beside, "one thread": on_one_thread}, repeats)
        core = {who: median(times[who].values) for who in ("alone", "one thread")}
        row = {"case": name} | {f"{who}, seconds": t.median for who, t in times.items()}
        row["busy over alone"] = times["busy"].median / times["alone"].median
        row["core seconds over one thread"] = core["alone"] / core["one thread"]
        yield goal(goal(row, "busy over alone", most=4.0), "core seconds over one thread", most=1.3)


def _fits(n: int, wide: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 8)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
    A = rng.standard_normal((2 * wide, wide))
    G, spd = A.T @ A, np.asfortranarray(A @ A.T + np.eye(2 * wide))
    kernel, table = Gaussian(2.0), load_concrete()
    few, small, strong = n // 4, n // 10, table.y > 35
    narrow: dict[str, Any] = {"n_features": wide // 4, "random_state": 0}
    ridge = bo.KernelRidge(kernel, method="orthogonal", n_features=wide, random_state=0)
    exact = bo.KernelRidge(kernel, method="exact", **narrow)
    process = bo.GaussianProcessRegressor("gaussian", random_state=0)
    wider = bo.LogisticRegression(n_features=wide // 2, random_state=0)
    svc = bo.SVC(n_features=256, random_state=0)
    return {
        "LogisticRegression by default": lambda: wider.fit(X[:1461], y[:1461] > 0),
        "SVC by default, concrete": lambda: svc.fit(table.X, strong),
        "four learners, concrete": lambda: _learners(table.X, table.y, strong),
        "GaussianProcessRegressor, exact": lambda: process.fit(X[:small], y[:small]),
        "KernelPCA": lambda: bo.KernelPCA(random_state=0).fit(X[:few]),
        "Cholesky factor": lambda: factor(spd.copy(order="F")),
        "KernelRidge by default": lambda: bo.KernelRidge(random_state=0).fit(X[:few], y[:few]),
        "eigh": lambda: eigh(G, driver="evd"),
        "KernelRidge, features": lambda: ridge.fit(X, y),
        "KernelRidge, exact": lambda: exact.fit(X[:few], y[:few]),
        "GaussianProcessRegressor, features": lambda: bo.GaussianProcessRegressor(**narrow).fit(
            X, y
        ),
        "SVC, features": lambda: bo.SVC(kernel, **narrow).fit(X, y > 0),
        "LogisticRegression, features": lambda: bo.LogisticRegression(kernel, **narrow).fit(
            X, y > 0
        ),
    }


def _learners(X: Array, y: Array, strong: Array) -> None:
    bo.GaussianProcessRegressor(n_features=256, random_state=0).fit(X, y)
    bo.SVC(n_features=256, random_state=0).fit(X, strong)
    quantile = bo.KernelRegressor(loss="quantile", n_features=128, alpha=0.1, random_state=0)
    quantile.fit(X, y)
    bo.KernelKMeans(n_clusters=4, n_features=128, random_state=0).fit_predict(X)


@contextmanager
def _busy_processor() -> Iterator[None]:
    """Keep one processor busy with another process."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


# --- graphics cards ------------------------------------------------------------------------------


@bench()
def gpu(options: Options) -> Iterator[Row]:
    """Graphics cards: passes as shares of the rate of products, a fit of 10⁷ rows, kernel products.

    Rates are of products in float32 without TF32 and in float64; a pass counts 2 n D² operations.
    ``--device cpu --quick`` tries the script without a card.
    """
    device, card = options.device, options.device.startswith("cuda")
    if find_spec("torch") is None or (card and not import_module("torch").cuda.is_available()):
        yield {"note": "Left out: torch with a card is missing; --device cpu tries the script."}
        return
    torch = import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = False

    def seconds_of(call: Callable[[], Any]) -> float:
        """Return the least of three after a warm-up, until the device is done."""
        wait, found = torch.cuda.synchronize if card else (lambda: None), []
        for _ in range(4):
            wait()
            start = time.perf_counter()
            call()
            wait()
            found.append(time.perf_counter() - start)
        return min(found[1:])

    side, rates = options.pick(8192, 512), {}
    for dtype in ("float32", "float64"):
        A = torch.randn(side, side, device=device, dtype=getattr(torch, dtype))
        rates[dtype] = 2e-9 * side**3 / seconds_of(lambda A=A: A @ A)
        yield {"case": f"products, {dtype}", "Gflop/s": rates[dtype]}
    A = torch.empty(side * side, device=device)
    yield {"case": "copies, float32", "GB/s": 2 * A.nbytes / seconds_of(A.clone) / 1e9}
    columns, kernel = 28, Gaussian(28**0.5)
    width, n = options.pick(8192, 256), options.pick(500_000, 20_000)
    phi = bo.draw(kernel, "orthogonal", n_features=width, n_inputs=columns, random_state=0)
    X = torch.randn(n, columns, device=device)
    blocks = bo.Blocks.from_arrays(X, np.zeros(n), block_rows=16_384)
    summand = MomentsOf(phi, "float32")

    def one_pass() -> None:
        total = summand.zero()
        for block in blocks:
            total = summand.add(total, block)

    seconds = seconds_of(one_pass)
    row: Row = {"case": f"pass, n={n:,}, D={width}", "seconds": seconds}
    row |= {"Gflop/s": 2e-9 * n * width**2 / seconds}
    yield goal(row | {"share": row["Gflop/s"] / rates["float32"]}, "share", least=0.6)
    yield _fit_on(device, options.pick(10_000_000, 50_000), width, columns)
    n = options.pick(100_000, 5000)
    X, v = torch.randn(n, columns, device=device), torch.randn(n, 1, device=device)
    products = {"ours": lambda: torch.cat([kernel(tile, X) @ v for tile in X.split(4096)])}
    if find_spec("pykeops"):
        lazy = import_module("pykeops.torch").LazyTensor
        away = lambda: ((lazy(X[:, None, :]) - lazy(X[None, :, :])) ** 2).sum(-1)
        products["KeOps"] = lambda: (-away() / (2 * columns)).exp() @ v
    for who, call in products.items():
        seconds = seconds_of(call)
        row = {"case": f"kernel products, n={n:,}", "who": who, "seconds": seconds}
        yield row | {"pairs/s": n * n / seconds}
    yield from missing("pykeops")


def _fit_on(device: str, n: int, width: int, columns: int) -> Row:
    """Return the seconds of a whole fit to rows in the memory of the host."""
    X = np.random.default_rng(0).standard_normal((n, columns), dtype=np.float32)
    y, where = np.sin(X[:, 0]) + X[:, 1] * X[:, 2], bo.engines.Local(device=device)
    given: dict[str, Any] = {"method": "orthogonal", "n_features": width, "random_state": 0}
    model = bo.KernelRidge(Gaussian(columns**0.5), alpha=1.0, precision="float32", **given)
    for rows in (16_384, n):  # the first warms up
        start = time.perf_counter()
        model.fit_blocks(bo.Blocks.from_arrays(X[:rows], y[:rows], block_rows=16_384), where=where)
    row = {"case": f"fit, n={n:,}, D={width}", "seconds": time.perf_counter() - start}
    return goal(row, "seconds", most=10.0)
