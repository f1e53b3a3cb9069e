"""Speed: features, transforms, sums, fits and processes, rivals in the same run."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Self

import numpy as np
from scipy.linalg import hadamard as sylvester
from scipy.linalg.blas import ssyrk
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from threadpoolctl import threadpool_limits

import bochner as bo
from benchmarks.data import NAMES, Split, split
from benchmarks.harness import (
    Options,
    Row,
    Timing,
    child,
    command_seconds,
    compared,
    each,
    interleaved,
    judged,
)
from bochner._core import native
from bochner._core.blas import eigh, factor
from bochner._core.sizes import block_rows
from bochner._core.threads import get_num_threads, set_num_threads
from bochner.data.blocks import Blocks
from bochner.datasets import load_concrete
from bochner.errors import SolutionWarning
from bochner.features import Fourier, Orthogonal, Structured, draw
from bochner.features.nystrom.nystrom import Rounded
from bochner.kernels import Gaussian
from bochner.sums.executor import LOCAL
from bochner.sums.moments import Moments, MomentsOf

# --- features --------------------------------------------------------------------------------


#: Columns d, features D, precision, and how many times faster is asked.
CASES = (
    (10, 2048, "float32", 6.0),
    (100, 2048, "float32", 4.0),
    (784, 4096, "float32", 1.3),
    (10, 2048, "float64", 10.0),
)

Array = np.ndarray


def run_features(options: Options) -> list[Row]:
    """phi(X) against RBFSampler.transform: seconds, and the largest error of a feature.

    Rows are standard normal, the kernel is Gaussian of lengthscale 1. The error is that against
    the same features computed in float64 from float64 frequencies, by NumPy, and is given as a
    share of 2e-6 √(2/D) (1 + ‖x‖); "at √(2d)" is the same at that lengthscale, about the median
    distance, where angles are as they are in use. RBFSampler is held to its own frequencies, as
    it stored them.
    """
    return [_case(options, *case) for case in CASES]


def _case(options: Options, d: int, D: int, dtype: str, asked: float) -> Row:
    n = options.pick(20_000, 1000)
    X = np.random.default_rng(d).standard_normal((n, d)).astype(dtype)
    phi = bo.draw(Gaussian(1.0), "orthogonal", n_features=D, n_inputs=d, random_state=0)
    rival = RBFSampler(gamma=0.5, n_components=D, random_state=0).fit(X)
    times = interleaved(
        {"ours": _silent(phi, X), "rival": _silent(rival.transform, X)}, options.pick(9, 3)
    )
    ratio = times["rival"].median / times["ours"].median
    error = _own_share(phi, X)
    wide = bo.draw(Gaussian((2 * d) ** 0.5), "orthogonal", n_features=D, n_inputs=d, random_state=0)
    return {
        "case": f"d={d}, D={D}, {dtype}",
        **compared(times["ours"], times["rival"]),
        **judged(ratio, asked),
        "error / bound": error,
        "at √(2d)": _own_share(wide, X),
        "rival's": _share_of_bound(rival.transform, lambda rows: _phase(rival, rows), X, D),
        "within": "yes" if error <= 1 else "NO",
    }


def _silent(function: Callable[[Array], Array], X: Array) -> Callable[[int], None]:
    """Return a case that lets its result go, as a fit does with a block's features."""

    def case(_: int) -> None:
        function(X)

    return case


def _own_share(phi: bo.FeatureMap, X: Array) -> float:
    return _share_of_bound(phi, lambda rows: _pair(phi, rows), X, phi.n_features)


def _share_of_bound(
    function: Callable[[Array], Array], exact: Callable[[Array], Array], X: Array, D: int
) -> float:
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


# --- hadamard --------------------------------------------------------------------------------


def run_hadamard(options: Options) -> list[Row]:
    """The Walsh-Hadamard transform and structured features, against fht-cpu and matrix products.

    Errors stand beside: of the transform against float64, of features against those of the formed
    frequencies.
    """
    return [*_transforms(options), *_features(options)]


def _transforms(options: Options) -> list[Row]:
    n, p = options.pick(8192, 256), 1024
    X = np.random.default_rng(0).standard_normal((n, p)).astype(np.float32)
    H = sylvester(p).astype(np.float32)
    out, zeros = np.empty_like(X), np.zeros_like(X)
    exact = X[:64].astype(np.float64) @ H
    cases: dict[str, Callable[[int], Any]] = {
        "ours": lambda _: native.hadamard(X, out=out),
        "ours in place": lambda _: native.hadamard(zeros, out=zeros),
        "X @ H": lambda _: X @ H,
        "copy of X": lambda _: np.copyto(out, X),
    }
    if find_spec("fht_cpu"):
        from fht_cpu import fht  # noqa: PLC0415  where it is installed

        os.environ.setdefault("OMP_NUM_THREADS", str(get_num_threads()))
        cases["fht-cpu"] = lambda _: fht(X, out=out)
        cases["fht-cpu in place"] = lambda _: fht(zeros)
    times = interleaved(cases, options.pick(9, 2))
    error = float(np.abs(native.hadamard(X[:64]) - exact).max() / np.abs(exact).max())
    case = {"case": f"{n} x {p} float32", "error": error}
    return _transform_rows(case, times)


def _transform_rows(case: Row, times: dict[str, Timing]) -> list[Row]:
    rows = []
    for ours, rival, least in (
        ("ours", "X @ H", 20.0),
        ("ours", "fht-cpu", 1.0),
        ("ours in place", "fht-cpu in place", 1.0),
    ):
        if rival in times:
            found = compared(times[ours], times[rival])
            row = {**case, "rival": rival, **found}
            rows.append({**row, **judged(row["times faster"], least)})
    rows.append({**case, "rival": "copy of X", **compared(times["ours"], times["copy of X"])})
    if "fht-cpu" not in times:
        rows.append({"note": "fht-cpu is not installed here: pip install fht-cpu."})
    return rows


def _features(options: Options) -> list[Row]:
    rows = []
    for d, D, least in ((1024, 8192, 2.0), (100, 2048, None)):
        n = options.pick(512, 64)  # a block of a fit of this width
        X = np.random.default_rng(d).standard_normal((n, d)).astype(np.float32)
        kernel = Gaussian((2 * d) ** 0.5)
        fast, formed = (
            draw(kernel, Fourier(placement), n_features=D, n_inputs=d, random_state=0)
            for placement in (Structured(), Orthogonal())
        )
        cases = {"fast": lambda _, f=fast, X=X: f(X), "formed": lambda _, f=formed, X=X: f(X)}
        times = interleaved(cases, options.pick(9, 2))
        K = kernel(X[:256].astype(np.float64))
        row = {
            "case": f"features {n} x {d} to {D}",
            "error": _error(fast, X[:256], K),
            "rival": f"dense, of error {_error(formed, X[:256], K):.3g}",
            **compared(times["fast"], times["formed"]),
        }
        rows.append(row if least is None else {**row, **judged(row["times faster"], least)})
    return rows


def _error(phi: Any, X: np.ndarray, K: np.ndarray) -> float:
    Z = phi(X).astype(np.float64)
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))


# --- moments ---------------------------------------------------------------------------------


#: Rows a block of the plain ssyrk, and its rows in all.
BLOCKS, PLAIN_ROWS = (512, 1024, 2048, 4096), 16_384

D_COLUMNS, ROWS_MADE = 10, 4096


def run_moments(options: Options) -> list[Row]:
    """The sweep that sums up all rows, features included, as a share of the machine's ssyrk rate.

    The rate is that of scipy.linalg.blas.ssyrk adding blocks of 512 to 4096 rows into one matrix,
    the best of them. The sweep makes blocks of rows on the fly, their features, and the moments:
    n D² operations are counted, as for ssyrk, and nothing else, so that 100 % cannot be reached.
    """
    n, D = options.pick((100_000, 4096), (8192, 512))
    phi = bo.draw(Gaussian(3.0), "orthogonal", n_features=D, n_inputs=D_COLUMNS, random_state=0)
    cases: dict[str, Callable[[int], object]] = {
        f"ssyrk {rows}": _plain(D, rows) for rows in BLOCKS
    }
    cases["features"] = lambda _: _features_alone(phi, n)
    cases["sweep"] = lambda _: _summed(phi, _blocks(n), "float32") and None
    times = interleaved(cases, options.pick(5, 2))
    rates = {rows: PLAIN_ROWS * D**2 / times[f"ssyrk {rows}"].median / 1e9 for rows in BLOCKS}
    best = max(rates, key=rates.__getitem__)
    sweep = times["sweep"].median
    share = n * D**2 / sweep / 1e9 / rates[best]
    return [
        {
            "case": f"n={n:,}, d={D_COLUMNS}, D={D}",
            "seconds": sweep,
            "of these, features": times["features"].median,
            "GFLOP/s": n * D**2 / sweep / 1e9,
            "ssyrk GFLOP/s": rates[best],
            "at rows": best,
            "share": share,
            **judged(share, 0.8),
            "error of G": _error_of_moments(phi),
        }
    ]


def _blocks(n: int) -> bo.Blocks:
    """Return n rows that are made when they are asked for."""

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        for start in range(0, n, ROWS_MADE):
            rows = min(ROWS_MADE, n - start)
            X = rng.standard_normal((rows, D_COLUMNS), dtype=np.float32)
            yield X, np.sin(X[:, 0])

    return bo.Blocks.from_iterable(pieces)


def _features_alone(phi: bo.FeatureMap, n: int) -> None:
    for block in _blocks(n).with_rows(block_rows(phi.n_features)):
        phi(block.X)


def _plain(D: int, rows: int) -> Callable[[int], None]:
    Z = np.random.default_rng(0).standard_normal((rows, D), dtype=np.float32)
    total = np.zeros((D, D), np.float32, order="F")

    def case(_: int) -> None:
        for _ in range(PLAIN_ROWS // rows):
            ssyrk(1e-6, Z.T, beta=1.0, c=total, overwrite_c=1)

    return case


def _summed(phi: bo.FeatureMap, blocks: Blocks, dtype: Any) -> Moments:
    """Return the moments of features and products in this precision."""
    summand = MomentsOf(Rounded(phi.kernel, phi, dtype), dtype)
    return summand.moments(LOCAL.sum(summand, blocks.with_rows(block_rows(phi.n_features))))


def _error_of_moments(phi: bo.FeatureMap) -> float:
    """Return ‖G − G₆₄‖_F / ‖G₆₄‖_F on 10,000 rows, G₆₄ all in float64."""
    single, double = (_summed(phi, _blocks(10_000), dtype).gram for dtype in ("float32", "float64"))
    return float(np.linalg.norm(single - double) / np.linalg.norm(double))


# --- imports ---------------------------------------------------------------------------------


_SNIPPETS = {
    "python": "pass",
    "import sklearn.linear_model": "import sklearn.linear_model",
    "import bochner": "import bochner",
    "import bochner; bochner.KernelRidge": "import bochner; bochner.KernelRidge",
}

_HELP = "import sys; sys.argv = ['bochner', '--help']; from bochner.cli import main; main()"


def run_imports(options: Options) -> list[Row]:
    """Seconds to start: the import and the command line, each a fresh process.

    Whole processes are timed, the interpreter's own start included, in turns; "python" is that
    alone.
    """
    commands = {name: [sys.executable, "-c", code] for name, code in _SNIPPETS.items()}
    commands["bochner --help"] = _help_command()
    cases = {name: command_seconds(command) for name, command in commands.items()}
    times = interleaved(cases, options.pick(15, 3))
    allowed = times["import sklearn.linear_model"].median + 0.1
    asked = {
        "import bochner": allowed,
        "import bochner; bochner.KernelRidge": allowed,
        "bochner --help": 0.5,
    }
    rows = []
    for name, timing in times.items():
        spread = f"{min(timing.seconds):.3g} to {max(timing.seconds):.3g}"
        row = {"process": name, "seconds": timing.median, "range": spread}
        rows.append(row | (judged(timing.median, asked[name], False) if name in asked else {}))
    return rows


def _help_command() -> list[str]:
    """Return the installed command, or the same by its module where there is none."""
    script = Path(sys.executable).with_name("bochner")
    return [str(script), "--help"] if script.is_file() else [sys.executable, "-c", _HELP]


# --- busy ------------------------------------------------------------------------------------


#: Times as long as alone that a fit may take beside a busy processor.
ASKED = 4.0

#: Times the processor seconds of one thread that a fit may take.
ASKED_CPU = 1.3


def run_busy(options: Options) -> list[Row]:
    """Fits beside a processor that another process has, against the same fits alone.

    Threads that wait for one another at full speed are the danger: where one of two processors is
    taken, each wait takes until the other process is moved away, and decompositions that wait a
    few thousand times took 18 to 53 seconds in the place of one. "one thread" is the same fit,
    alone, with BLAS, the compiled loops and what is done side by side on one thread: what threads
    gain, and what a busy processor may cost.

    Processor seconds of the fit alone are compared with those of one thread: threads that wait at
    full speed take processors that other processes could use.
    """
    n, wide, repeats = options.pick((20_000, 2048, 3), (1_000, 128, 1))
    return [_row(name, fit, repeats) for name, fit in _cases(n, wide).items()]


def _cases(n: int, wide: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 8)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
    A = rng.standard_normal((2 * wide, wide))
    G = A.T @ A
    spd = np.asfortranarray(A @ A.T + np.eye(2 * wide))
    kernel = Gaussian(2.0)
    ridge = bo.KernelRidge(kernel, method="orthogonal", n_features=wide, random_state=0)
    process = bo.GaussianProcessRegressor(n_features=wide // 4, random_state=0)
    machine = bo.SVC(kernel, n_features=wide // 4, random_state=0)
    logistic = bo.LogisticRegression(kernel, n_features=wide // 4, random_state=0)
    exact = bo.KernelRidge(kernel, method="exact", n_features=wide // 4, random_state=0)
    default = bo.KernelRidge(random_state=0)
    concrete = load_concrete()
    strong = concrete.y > 35
    small, gp = X[: n // 10], bo.GaussianProcessRegressor("gaussian", random_state=0)
    log_wide = bo.LogisticRegression(n_features=wide // 2, random_state=0)
    concrete_svc = bo.SVC(n_features=256, random_state=0)
    return {
        f"LogisticRegression by default, D={wide // 2}, 1,461 rows": lambda: log_wide.fit(
            X[:1461], y[:1461] > 0
        ),
        "SVC by default, D=256, concrete": lambda: concrete_svc.fit(concrete.X, strong),
        "Four learners on concrete": lambda: _learners(concrete.X, concrete.y, strong),
        f"GaussianProcessRegressor, exact, {n // 10:,} rows": lambda: gp.fit(small, y[: n // 10]),
        f"KernelPCA, {n // 4:,} rows": lambda: bo.KernelPCA(random_state=0).fit(X[: n // 4]),
        f"Cholesky factor, {2 * wide} x {2 * wide}": lambda: factor(spd.copy(order="F")),
        f"KernelRidge by default, {n // 4:,} rows": lambda: default.fit(X[: n // 4], y[: n // 4]),
        f"eigh, {wide} x {wide}": lambda: eigh(G, driver="evd"),
        f"KernelRidge, D={wide}": lambda: ridge.fit(X, y),
        f'KernelRidge, "exact", {n // 4:,} rows': lambda: exact.fit(X[: n // 4], y[: n // 4]),
        f"GaussianProcessRegressor, D={wide // 4}": lambda: process.fit(X, y),
        f"SVC, D={wide // 4}": lambda: machine.fit(X, y > 0),
        f"LogisticRegression, D={wide // 4}": lambda: logistic.fit(X, y > 0),
    }


def _learners(X: Any, y: Any, strong: Any) -> None:
    """Fit the learners of README's block on shared features."""
    bo.GaussianProcessRegressor(n_features=256, random_state=0).fit(X, y)
    bo.SVC(n_features=256, random_state=0).fit(X, strong)
    quantile = bo.KernelRegressor(loss="quantile", n_features=128, alpha=0.1, random_state=0)
    quantile.fit(X, y)
    bo.KernelKMeans(n_clusters=4, n_features=128, random_state=0).fit_predict(X)


def _row(name: str, fit: Callable[[], object], repeats: int) -> Row:
    def cpu(_: int) -> float:
        start = time.process_time()
        fit()
        return time.process_time() - start

    def beside(_: int) -> None:
        with _busy_processor():
            fit()

    def on_one_thread(_: int) -> float:
        set_num_threads(1)
        with threadpool_limits(1):
            seconds = cpu(0)
        set_num_threads(None)
        return seconds

    cases = {"alone": cpu, "busy": beside, "one thread": on_one_thread}
    times = interleaved(cases, repeats)
    alone, busy = times["alone"].median, times["busy"].median
    used = [statistics.median(times[case].values) for case in ("alone", "one thread")]
    extra = used[0] / used[1]
    return {
        "case": name,
        "seconds": alone,
        "beside a busy one": busy,
        "one thread": times["one thread"].median,
        "times as long": busy / alone,
        "times the CPU": extra,
    } | judged(max(busy / alone / ASKED, extra / ASKED_CPU), 1.0, least=False)


@contextmanager
def _busy_processor() -> Iterator[None]:
    """Keep one processor busy by a process of its own."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


# --- memory ----------------------------------------------------------------------------------


COLUMNS, ROWS_WRITTEN, NOISE = 10, 65_536, 0.1

_FIT = """
import json, sys, time
import numpy as np
import bochner as bo
from bochner.kernels import Gaussian

table, test = sys.argv[1:]
start = time.perf_counter()
model = bo.KernelRidge(
    kernel=Gaussian(1.0), method="orthogonal", n_features=1024, alpha=0.1, random_state=0
)
model.fit_blocks(bo.Blocks.from_files(table, target="y"))
seconds = time.perf_counter() - start
rows = bo.Blocks.from_files(test, target="y")
fitted = np.concatenate(list(model.predict_blocks(rows)))
error = np.sqrt(np.mean((fitted - np.concatenate([block.y for block in rows])) ** 2))
print(json.dumps({"seconds": seconds, "error": float(error)}))
"""


def run_memory(options: Options) -> list[Row]:
    """Peak memory of a fit from Parquet, which must not grow with the number of rows.

    Each fit runs in a process of its own, whose peak of resident memory is what the system
    counted (ru_maxrss), imports and prediction included. Rows: ten float64 columns and a target,
    written in a stream to a temporary folder that is removed afterwards.
    """
    sizes = options.pick((10**6, 10**7), (20_000, 100_000))
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        rows = [_fit(Path(folder), n) for n in sizes]
    small, large = (row["peak MB"] for row in rows)
    rows[0] |= judged(small, 600, least=False)
    rows[1] |= judged(large, min(600, 1.1 * small), least=False)
    return rows


def _fit(folder: Path, n: int) -> Row:
    table, test = folder / "rows.parquet", folder / "test.parquet"
    _write(table, n, seed=0)
    _write(test, 5000, seed=1)
    size = table.stat().st_size
    done = child(_FIT, str(table), str(test))
    table.unlink()
    return {
        "rows": n,
        "file MB": size / 1e6,
        "seconds": done.output["seconds"],
        "rows a second": n / done.output["seconds"],
        "peak MB": done.peak_mb,
        "test RMSE": done.output["error"],
        "noise": NOISE,
    }


def _write(path: Path, n: int, seed: int) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    names = [*(f"x{i}" for i in range(COLUMNS)), "y"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _rows(n, seed):
            writer.write_table(pa.table(list(rows.T.copy()), schema=schema))


def _rows(n: int, seed: int) -> Iterator[np.ndarray]:
    """Give rows (X, y), at most 65,536 at a time: y is smooth in three columns, with noise."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, ROWS_WRITTEN):
        X = 0.5 * rng.standard_normal((min(ROWS_WRITTEN, n - start), COLUMNS))
        y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + NOISE * rng.standard_normal(len(X))
        yield np.column_stack([X, y])


# --- regression ------------------------------------------------------------------------------


#: Given the width and the seed, a model with ``fit`` and ``predict``.
Maker = Callable[[int, int], object]


def ours(method: str) -> Maker:
    """Return the library's model with this method; its penalty is chosen by leave-one-out."""

    def make(width: int, seed: int) -> bo.KernelRidge:
        return bo.KernelRidge(Gaussian(1.0), method=method, n_features=width, random_state=seed)

    return make


def compare(
    options: Options, method: str, rivals: Callable[[Split], Mapping[str, tuple[Maker, float]]]
) -> list[Row]:
    """Return a row for each table and rival; a rival comes with how many times faster is asked.

    The seed is the number of the repeat, for everyone, and errors are means over the seeds.
    """
    width = options.pick(2048, 256)

    def rows_of(name: str) -> list[Row]:
        data = split(name, options, width)
        return _table_rows(options, name, data, width, method, rivals(data))

    return each(NAMES, rows_of)


def _table_rows(
    options: Options,
    name: str,
    data: Split,
    width: int,
    method: str,
    rivals: Mapping[str, tuple[Maker, float]],
) -> list[Row]:
    makers = {"ours": ours(method)} | {rival: maker for rival, (maker, _) in rivals.items()}
    cases = {key: _case_of_regression(maker, data, width) for key, maker in makers.items()}
    times = interleaved(cases, options.pick(3, 2), warm_up=False)
    return [
        {
            "table": name,
            "rows": len(data.y),
            "D": width,
            "rival": rival,
            **compared(times["ours"], times[rival]),
            **judged(times[rival].median / times["ours"].median, asked),
            "test RMSE": mean(times["ours"].values),
            "rival's": mean(times[rival].values),
            "± over seeds": _spread(times["ours"]),
            "no worse": "yes" if mean(times["ours"].values) <= mean(times[rival].values) else "NO",
            "lengthscale": np.array2string(np.asarray(data.lengthscale), precision=3),
        }
        for rival, (_, asked) in rivals.items()
    ]


def _case_of_regression(maker: Maker, data: Split, width: int) -> Callable[[int], float]:
    def case(seed: int) -> float:
        return data.error(maker(width, seed).fit(data.X, data.y).predict(data.X_test))

    return case


def _spread(timing: Timing) -> float:
    return stdev(timing.values) if len(timing.values) > 1 else 0.0


# --- fourier ---------------------------------------------------------------------------------


def run_fourier(options: Options) -> list[Row]:
    """Fit and predict with random Fourier features, against RBFSampler and RidgeCV.

    Same width, rows and lengthscale. Both choose their penalty: RidgeCV among nine, by
    generalised cross-validation; ours along its own path, by leave-one-out.
    """
    return compare(options, "orthogonal", lambda _: {"RBFSampler + RidgeCV": (_pipeline, 15.0)})


def _pipeline(width: int, seed: int) -> Pipeline:
    sampler = RBFSampler(gamma=0.5, n_components=width, random_state=seed)
    return make_pipeline(sampler, RidgeCV(np.logspace(-6, 2, 9)))


# --- auto ------------------------------------------------------------------------------------


def run_auto(options: Options) -> list[Row]:
    """Fit and predict with method="auto", against Nystroem and RidgeCV, and against Falkon.

    Same width (Falkon: M = D), rows and lengthscale. Falkon chooses no penalty: it is given the
    one that was best when the lengthscale was chosen, for nothing.
    """
    rows = compare(options, "auto", _rivals)
    if find_spec("falkon") is None:
        rows.append({"note": "Falkon: not installed."})
    return rows


def _rivals(data: Split) -> dict[str, tuple[Maker, float]]:
    rivals: dict[str, tuple[Maker, float]] = {"Nystroem + RidgeCV": (_pipeline_of_auto, 8.0)}
    if find_spec("falkon") is not None:
        penalty = max(data.penalty / len(data.y), 1e-8)
        rivals["Falkon"] = (lambda width, seed: _Falkon(width, penalty, seed), 1.5)
    return rivals


def _pipeline_of_auto(width: int, seed: int) -> Pipeline:
    landmarks = Nystroem(kernel="rbf", gamma=0.5, n_components=width, random_state=seed)
    return make_pipeline(landmarks, RidgeCV(np.logspace(-6, 2, 9)))


class _Falkon:
    """Falkon on the processor, with arrays in and out."""

    def __init__(self, width: int, penalty: float, seed: int) -> None:
        from falkon import Falkon, FalkonOptions  # noqa: PLC0415
        from falkon.kernels import GaussianKernel  # noqa: PLC0415

        self._model = Falkon(
            kernel=GaussianKernel(1.0),
            penalty=penalty,
            M=width,
            seed=seed,
            options=FalkonOptions(use_cpu=True, keops_active="no"),
        )

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        import torch  # noqa: PLC0415

        self._model.fit(torch.from_numpy(X), torch.from_numpy(y)[:, None])
        return self

    def predict(self, X: np.ndarray) -> Any:
        import torch  # noqa: PLC0415

        return self._model.predict(torch.from_numpy(X)).numpy()


# --- precision -------------------------------------------------------------------------------


#: Lengthscales, in units of the chosen one: the second is about the median distance.
SCALES = (1.0, 3.0)


def run_precision(options: Options) -> list[Row]:
    """The float32 trap: a penalty below the noise of float32 products, and what a user gets.

    On ``protein`` plain float32 products let generalised cross-validation pick a penalty that
    they do not resolve, most of all at lengthscales beyond the best, where the spectrum falls
    fast. The row "plain NumPy" is that trap; the others are the library's three precisions, whose
    test error is compared with that of float64. Lengthscales are in units of the one that leave-
    one-out chose.
    """
    width = options.pick(2048, 256)
    data = split("protein", options, width)
    return [row for scale in SCALES for row in _rows_of_precision(data, scale, width)]


def _rows_of_precision(data: Split, scale: float, width: int) -> list[Row]:
    rows: list[Row] = []
    for alpha in ("gcv", "loo"):
        exact = _ours(data, scale, width, alpha, "float64")
        others = [_ours(data, scale, width, alpha, precision) for precision in ("auto", "float32")]
        others += [_plain_of_precision(data, scale, width)] if alpha == "gcv" else []
        rows += [exact, *(_against(exact, row) for row in others)]
    return [{"lengthscale": scale} | row for row in rows]


def _against(exact: Row, row: Row) -> Row:
    ratio = row["test RMSE"] / exact["test RMSE"]
    promised = row["fit"] == "ours, auto"
    return row | {"of float64": ratio} | (judged(ratio, 1.01, least=False) if promised else {})


def _ours(data: Split, scale: float, width: int, alpha: str, precision: str) -> Row:
    model = bo.KernelRidge(
        Gaussian(scale),
        method="orthogonal",
        n_features=width,
        alpha=alpha,
        precision=precision,
        random_state=0,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SolutionWarning)  # the outcome is in the row
        model.fit(data.X, data.y)
    return {
        "fit": f"ours, {precision}",
        "alpha by": alpha,
        "seconds": time.perf_counter() - start,
        "alpha": model.alpha_,
        "test RMSE": data.error(model.predict(data.X_test)),
        "outcome": model.solution_.outcome.name.lower(),
    }


def _plain_of_precision(data: Split, scale: float, width: int) -> Row:
    """Ridge regression on float32 sums about zero, penalty by GCV over a path: the trap."""
    phi = bo.draw(Gaussian(scale), "orthogonal", n_features=width, X=data.X, random_state=0)
    start = time.perf_counter()
    Z = phi(data.X)
    values, V = np.linalg.eigh((Z.T @ Z).astype(np.float64))
    b, power = V.T @ (Z.T @ data.y), float(data.y @ data.y)
    values, alphas = np.maximum(values, 0), np.logspace(-9, 0, 37) * values[-1]
    gcv = [_gcv(values, b, power, len(Z), alpha) for alpha in alphas]
    alpha = float(alphas[int(np.nanargmin(gcv))])
    coef = V @ (b / (values + alpha))
    return {
        "fit": "plain NumPy, float32",
        "alpha by": "gcv",
        "seconds": time.perf_counter() - start,
        "alpha": alpha,
        "test RMSE": data.error(phi(data.X_test) @ coef),
    }


def _gcv(values: np.ndarray, b: np.ndarray, power: float, n: int, alpha: float) -> float:
    explained = np.sum(b**2 * (values + 2 * alpha) / (values + alpha) ** 2)
    return (power - explained) / (n - np.sum(values / (values + alpha))) ** 2


# --- exact -----------------------------------------------------------------------------------


_OURS = """
import bochner as bo
from bochner.kernels import Gaussian
model = bo.KernelRidge(Gaussian(1.0), method="exact", alpha=alpha, fit_intercept=False,
                       n_features=width, random_state=0)
"""

_THEIRS = """
from sklearn.kernel_ridge import KernelRidge
model = KernelRidge(kernel="rbf", gamma=0.5, alpha=alpha)
"""

_FIT_EXACT = """
import json, sys, time
import numpy as np
with np.load(sys.argv[1]) as data:
    X, y, X_test = data["X"], data["y"], data["X_test"]
alpha, width = float(sys.argv[2]), int(sys.argv[3])
{model}
start = time.perf_counter()
model.fit(X, y)
seconds = time.perf_counter() - start
start = time.perf_counter()
np.save(sys.argv[4], model.predict(X_test))
after = time.perf_counter() - start
history = ["", *getattr(getattr(model, "solution_", None), "history", ())][-1]
print(json.dumps({{"seconds": seconds, "predict s": after, "history": history}}))
"""

#: A penalty near the best of both tables.
ALPHA = 0.1

#: Width of the preconditioner.
WIDTH = 1024


def run_exact(options: Options) -> list[Row]:
    """The exact kernel by conjugate gradients, against scikit-learn's KernelRidge.

    The same 20,000 rows, kernel and penalty, no intercept, each fit in a process of its own,
    whose peak of resident memory is what the system counted, imports and prediction included.
    scikit-learn's needs 16 n² bytes. "difference" is the largest of all predictions on test rows,
    in standard deviations of the target; what was asked is 1e-6.
    """
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        return each(NAMES, lambda name: _both(name, Path(folder), options))


def _both(name: str, folder: Path, options: Options) -> list[Row]:
    n, width = options.pick((20_000, 2048), (2000, 256))
    data = split(name, options, width)
    ours, found = _fit_of_exact(_OURS, data, n, folder)
    theirs, expected = _fit_of_exact(_THEIRS, data, n, folder)
    spread = float(data.y[:n].std())
    difference = float(np.abs(found - expected).max()) / spread
    both = [
        {"table": name, "fit": "ours", "rows": n, "alpha": ALPHA} | ours,
        {"table": name, "fit": "scikit-learn", "rows": n, "alpha": ALPHA} | theirs,
    ]
    for row, predicted in zip(both, (found, expected), strict=True):
        row["test RMSE"] = data.error(predicted)
    both[0]["difference"] = difference
    asked = [
        ("times faster", theirs["seconds"] / ours["seconds"], 10, True),
        ("memory, of theirs", ours["peak MB"] / theirs["peak MB"], 0.1, False),
        ("difference", difference, 1e-6, False),
    ]
    goals = [
        {"table": name, "fit": what, "value": value} | judged(value, goal, least)
        for what, value, goal, least in asked
    ]
    return [*both, *goals]


def _fit_of_exact(model: str, data: Split, n: int, folder: Path) -> tuple[Row, np.ndarray]:
    table, predictions = folder / "rows.npz", folder / "predictions.npy"
    arrays = {"X": data.X[:n], "y": data.y[:n], "X_test": data.X_test}
    np.savez(table, **{key: value.astype(np.float64) for key, value in arrays.items()})
    done = child(
        _FIT_EXACT.format(model=model), str(table), repr(ALPHA), str(WIDTH), str(predictions)
    )
    row = {"peak MB": done.peak_mb, **done.output}
    row["iterations"] = row.pop("history").partition(":")[0].removeprefix("iteration ")
    return row, np.load(predictions)
