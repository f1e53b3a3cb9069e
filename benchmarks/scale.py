"""Fits of many rows or features: memory, seconds, plans and killed processes."""

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bochner as bo
from benchmarks.bench import Options, Row, bench, child, clock, collect, compare, goal, turns
from benchmarks.data import SCALED, Array, scaled, table_split, write_parquet
from benchmarks.learners import missing
from bochner.kernels import Gaussian

_FIT = """
import bochner as bo
kind, rows, table, test = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]

def piece(start, n):
    X = np.random.default_rng(start).uniform(-2, 2, (n, 8))
    return X, np.sin(X @ np.arange(1, 9) / 12)

options = {"kernel": bo.kernels.Gaussian(1.0), "alpha": 0.1}
if kind != "scale":
    blocks, new = (bo.Blocks.from_files(name, target="y") for name in (table, test))
if kind == "features":
    options |= {"method": "orthogonal", "n_features": 1024}
elif kind == "grid":
    options["method"] = bo.FourierGrid(1e-3, box=((-3.5, 3.5),) * 2)
    options["kernel"] = bo.kernels.Matern(1.5, 0.6)
else:
    pieces = lambda: (piece(i, min(10_000, rows - i)) for i in range(0, rows, 10_000))
    blocks, new = bo.Blocks.from_iterable(pieces), bo.Blocks.from_arrays(*piece(rows + 1, 5000))
    options = {"kernel": bo.kernels.Gaussian(4.0), "method": "fourier", "n_features": 512}
model = bo.KernelRidge(random_state=0, **options)
_, times = clock(lambda: model.fit_blocks(blocks))
y = np.concatenate([block.y for block in new]).ravel()
error = np.sqrt(np.mean((np.concatenate(list(model.predict_blocks(new))).ravel() - y) ** 2))
unit = y.std() if kind == "scale" else 1.0
print(json.dumps(times | {"error": float(error / unit)}))
"""


@bench()
def memory(options: Options) -> Iterator[Row]:
    """Peak memory of fits from Parquet: features of ten million rows, a grid of a hundred million.

    The noise is 0.1. The files have 0.9 and 2.4 GB.
    """

    def pieces(n: int, d: int, seed: int) -> Iterator[Array]:
        rng = np.random.default_rng(seed)
        for start in range(0, n, 65_536):
            X = 0.5 * rng.standard_normal((min(65_536, n - start), d))
            y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(len(X))
            yield np.column_stack([X, y])

    for kind, d, sizes in (("features", 10, (10**6, 10**7)), ("grid", 2, (10**6, 10**8))):
        limit = 600.0 if kind == "features" else 1000.0
        with tempfile.TemporaryDirectory() as folder:
            table, test = Path(folder) / "rows.parquet", Path(folder) / "test.parquet"
            write_parquet(test, pieces(5000, d, 1))
            for n in options.pick(sizes, (20_000,)):
                write_parquet(table, pieces(n, d, 0))
                result = child(_FIT, kind, n, table, test)
                yield goal({"case": f"{kind}, n={n:,}"} | result, "peak MB", maximum=limit)
                limit = min(limit, 1.1 * result["peak MB"])


@bench()
def scale(options: Options) -> Iterator[Row]:
    """Core seconds, peak memory and error of fits in one pass over a stream, by rows."""
    for n in options.pick((10_000, 40_000, 160_000), (2000,)):
        yield {"case": f"n={n:,}", "rows": n} | child(_FIT, "scale", n, "", "")


# --- the exact kernel, and very many features ---------------------------------------------------


def _save(kind: str, n: int, out: Path) -> None:
    """Save rows with a smooth target, or with a draw of a Gaussian process (4,000 waves)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + 5000, 10))
    if kind == "ridge":
        f = np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] + X[:, 3])
        f += np.exp(-((X[:, 4] - X[:, 5]) ** 2)) + np.tanh(2 * X[:, 6] * X[:, 7])
    else:
        W, phase = rng.standard_normal((4000, 10)) / 3, rng.uniform(0, 2 * np.pi, 4000)
        weights = rng.standard_normal(4000) * np.sqrt(2 / 4000)
        f = np.concatenate([np.cos(x @ W.T + phase) @ weights for x in np.array_split(X, 100)])
    noise = 0.2 if kind == "ridge" else 0.1
    np.savez(f"{out}.npz", X=X, y=f + noise * rng.standard_normal(len(f)), f=f)


_START = """
rows, width, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
alpha, tol = map(float, sys.argv[4:])
with np.load(out + ".npz") as data:
    X, y, f = data["X"], data["y"], data["f"]
steps = lambda: ""
"""


def _ridge(arguments: str) -> str:
    """Return the code of a ridge regression of bochner."""
    return f"""
import bochner as bo
from bochner.kernels import Gaussian
model = bo.KernelRidge({arguments}, n_features=width, alpha=alpha, random_state=0)
def steps():
    counts = re.findall(r"(?:pass|iteration) (\\d+)", str(model.solution_.history))
    return int((["0"] + counts)[-1])
"""


#: Code that is not timed, by kind and learner; it defines ``model`` and may define ``fit``.
_LEARNERS = {
    ("ridge", "bochner"): _ridge('Gaussian(3.0), method="orthogonal"'),
    ("exact", "bochner"): _ridge(
        'Gaussian(3.0), method=bo.ExactKernel("nystrom", tol=tol), fit_intercept=False'
    ),
    ("file", "bochner"): _ridge('Gaussian(1.0), method="exact", fit_intercept=False'),
    ("file", "scikit-learn"): """
from sklearn.kernel_ridge import KernelRidge
model = KernelRidge(kernel="rbf", gamma=0.5, alpha=alpha)
""",
    ("ridge", "xGPR"): """
import xGPR
data = xGPR.build_regression_dataset(X[:rows], y[:rows])
model = xGPR.xGPRegression(num_rffs=width, device="cpu", verbose=False)
model.set_hyperparams(np.log([np.sqrt(alpha), 1 / 3.0]), data)
fit = lambda: model.fit(data, mode="cg", suppress_var=True, tol=tol)
""",
    ("exact", "GPyTorch, KeOps"): """
import gpytorch, torch
torch.set_num_threads(len(os.sched_getaffinity(0)))
Xt, yt = torch.tensor(X[:rows], dtype=torch.float32), torch.tensor(y[:rows], dtype=torch.float32)

class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(Xt, yt, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.keops.RBFKernel()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

likelihood = gpytorch.likelihoods.GaussianLikelihood()
likelihood.noise = alpha
model = Process(likelihood)
model.covar_module.lengthscale = 3.0
model.eval()
def fit():
    settings = gpytorch.settings
    with torch.no_grad(), settings.cg_tolerance(tol), settings.max_cg_iterations(1000), \\
            settings.max_preconditioner_size(0), settings.max_cholesky_size(1):
        new = torch.tensor(X[rows:], dtype=torch.float32)
        return model(new).mean.numpy().astype(float)
model.covar_module(Xt[:2], Xt[:2]).matmul(yt[:2, None])  # compiles
""",
}

_TAIL = """
result, times = clock(globals().get("fit", lambda: model.fit(X[:rows], y[:rows])))
predicted = result if isinstance(result, np.ndarray) else model.predict(X[rows:])
np.save(out, predicted)
error = float(np.sqrt(np.mean((predicted - f[rows:]) ** 2)))
print(json.dumps(times | {"error": error, "steps": steps()}))
"""


def _in_process(
    kind: str, name: str, rows: int, width: int, alpha: float, tol: float, out: Path
) -> tuple[Row, Array | None]:
    """Return row and predictions of a fit in a new process; other libraries have ten minutes."""
    code, limit = _START + _LEARNERS[kind, name] + _TAIL, None if name == "bochner" else 600.0
    try:
        return child(code, rows, width, out, alpha, tol, limit=limit), np.load(out)
    except RuntimeError as error:
        return {"failed": str(error)}, None


@bench()
def exact(options: Options) -> Iterator[Row]:
    """Conjugate gradients on the exact kernel, and scikit-learn's KernelRidge: 20,000 rows.

    Same kernel and penalty, no intercept. "difference" is the largest of all predictions, in
    standard deviations of the target.
    """

    def rows_of(name: str) -> Iterator[Row]:
        n, width = options.pick((20_000, 2048), (600, 256))
        data, fits = scaled(name, options, width), {}
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "predicted.npy"
            X = np.vstack([data.X[:n], data.X_test]).astype(np.float64)
            y = np.r_[data.y[:n], data.y_test].astype(np.float64)
            np.savez(f"{out}.npz", X=X, y=y, f=y)
            for learner in ("scikit-learn", "bochner"):
                fits[learner] = _in_process("file", learner, n, 1024, 0.1, 0.0, out)
        (reference, expected), (row, predicted) = fits["scikit-learn"], fits["bochner"]
        yield {"case": name, "who": "scikit-learn", "rows": n} | reference
        if expected is not None and predicted is not None:
            row["difference"] = float(np.abs(predicted - expected).max()) / float(y[:n].std())
            row["times faster"] = reference["seconds"] / row["seconds"]
            row["share of memory"] = row["peak MB"] / reference["peak MB"]
            row = goal(goal(row, "times faster", minimum=10), "share of memory", maximum=0.1)
            row = goal(row, "difference", maximum=1e-6)
        yield {"case": name, "who": "bochner", "rows": n} | row

    yield from collect(SCALED, rows_of)


@bench()
def wide(options: Options) -> Iterator[Row]:
    """Fits without a matrix: ridge regression of very many features, and the exact kernel.

    "ridge": penalty 1 for all. "exact": targets drawn from the process; each learner has the
    loosest tolerance whose predictions differ by less than 0.001 deviations from tol=1e-4.
    Other libraries have ten minutes. All take hours, ``--cases "ridge, 500,000 rows*"`` is a part.
    """
    ridges = options.pick(
        ((500_000, (8192, 32_768)), (50_000, (8192, 32_768)), (100_000, (10_240,))),
        ((9000, (10_240,)),),
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "predicted.npy"
        for rows, widths in ridges:
            cases = {f"ridge, {rows:,} rows, D={width}": width for width in widths}
            cases = {case: width for case, width in cases.items() if options.selects(case)}
            if cases:
                _save("ridge", rows, out)
            for case, width in cases.items():
                for name in ("bochner", *(["xGPR"] if find_spec("xGPR") else [])):
                    row, _ = _in_process("ridge", name, rows, width, 1.0, 1e-4, out)
                    row = {"case": case, "who": name} | row
                    required = rows == 500_000 and name == "bochner" and "peak MB" in row
                    yield goal(row, "peak MB", maximum=2000) if required else row
        rows, width = options.pick((100_000, 2048), (9000, 256))
        if options.selects(case := f"exact, {rows:,} rows, D={width}"):
            _save("exact", rows, out)
            yield from _exact(case, rows, width, out)
    yield from missing("xGPR", "gpytorch")


def _exact(case: str, rows: int, width: int, out: Path) -> Iterator[Row]:
    sizes = rows, width, 0.01  # the variance of the noise
    row, reference = _in_process("exact", "bochner", *sizes, 1e-4, out)
    yield {"case": case, "who": "bochner, tol=1e-4"} | row
    tolerances = {"bochner": (1.0, 0.2, 0.04), "GPyTorch, KeOps": (1.0, 0.1, 0.01, 0.001)}
    for name, tols in tolerances.items():
        if reference is None or (name != "bochner" and not find_spec("gpytorch")):
            continue
        for tol in tols:
            row, predicted = _in_process("exact", name, *sizes, tol, out)
            row |= {"case": case, "who": name, "tol": tol}
            if predicted is None:
                break
            error = float(np.sqrt(np.mean((predicted - reference) ** 2)))
            row["difference"] = error / float(np.std(reference))
            row = goal(row, "difference", maximum=1e-3)
            if row["met"] == "yes":
                break
        yield row


# --- plans ---------------------------------------------------------------------------------------

_PLAN = """
import bochner as bo
with np.load(sys.argv[1]) as data:
    print(json.dumps(bo.plan(data["X"], data["y"], budget=60, random_state=0).facts()))
"""

_PLANNED = """
import resource
import bochner as bo
from bochner.kernels import *
from bochner.features import *
from bochner.landmarks import *
from bochner import ExactKernel
with np.load(sys.argv[1]) as data:
    X, y = data["X"], data["y"]
fit, kernel = json.loads(sys.argv[2]), eval(sys.argv[3])
method, exact = eval(fit["method"]), fit["solver"] == "exact"
method = ExactKernel(method) if exact and not isinstance(method, ExactKernel) else method
precision = "auto" if exact or fit["solver"] == "moments float32" else "float64"
bo.KernelRidge(kernel, method=method, n_features=16).fit(X[:64], y[:64])
model = bo.KernelRidge(kernel, method=method, n_features=fit["n_features"], precision=precision,
                       random_state=0)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
(_, times), solution = clock(lambda: model.fit(X, y)), model.solution_
error = float(np.sqrt(np.nanmin(solution.path.loo)))
if exact and solution.slack is not None:  # of the last rows; the path is of the first rows
    rows = np.isfinite(solution.slack[:, 0])
    residuals = model.alpha_ * solution.coef[rows, 0] / solution.slack[rows, 0]
    error = float(np.sqrt(np.mean(residuals**2)))
row = times | {"before MB": before / 1e6, "error": error}
print(json.dumps(row))
"""


@bench()
def plan(options: Options) -> Iterator[Row]:
    """Seconds, memory and leave-one-out error that bo.plan predicts, and measured ones.

    On four development sets: the chosen fit, the widths 512 and 2048, and the exact kernel. Core
    seconds are compared, as other processes add to the wall time; use one thread.
    """
    sets = ["kin8nm", "california_housing", "protein", "elevation_etopo60"]
    sets = filter(options.selects, sets[: options.pick(None, 1)])
    yield from collect(sets, lambda name: _planned(name, options))


def _planned(name: str, options: Options) -> Iterator[Row]:
    data = table_split(name, options.data, options.pick(options.rows or 10**6, 1500), 0)
    with tempfile.TemporaryDirectory() as folder:
        table, limit = Path(folder) / "rows.npz", options.pick(60.0, 5.0)
        np.savez(table, X=data.X, y=data.y)
        planned = child(_PLAN, table)
        for fit in planned["fits"]:
            listed = fit["n_features"] in {512, 2048} or fit["solver"] == "exact"
            if fit["solver"] == "local" or fit["seconds"] > limit:
                continue
            if not listed and fit != planned["choice"]:
                continue
            result = child(_PLANNED, table, json.dumps(fit), planned["kernel"])
            megabytes = result.pop("before MB") + fit["bytes"] / 1e6
            learner = f"{fit['method']}, D={fit['n_features']}, {fit['solver']}"
            row: Row = {"case": name, "who": learner, "predicted seconds": fit["seconds"]}
            row |= result | {"predicted MB": megabytes, "predicted error": fit["error"]}
            row["seconds over predicted"] = result["core seconds"] / fit["seconds"]
            row["MB over predicted"] = result["peak MB"] / megabytes
            for metric, factor in (("seconds over predicted", 1.5), ("MB over predicted", 1.2)):
                row = goal(goal(row, metric, minimum=1 / factor), metric, maximum=factor)
            yield row


@bench()
def gpu(options: Options) -> Iterator[Row]:
    """Seconds and error of fits with features on a CUDA device, and on the CPU."""
    torch = import_module("torch") if find_spec("torch") else None
    if torch is None or not torch.cuda.is_available():
        yield {"note": "Left out: torch has no CUDA device."}
        return
    rng, n = np.random.default_rng(0), options.pick(400_000, 20_000)
    X = rng.standard_normal((n + 10_000, 10))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    y = f + 0.1 * rng.standard_normal(len(f))
    engines = {"bochner": bo.engines.Local(device="cuda"), "processor": bo.engines.Local()}
    for width in options.pick((1024, 4096), (64,)):
        for dtype in (np.float64, np.float32):
            rows = X.astype(dtype)
            blocks = bo.Blocks.from_arrays(rows[:n], y[:n])
            model = _model(width).set_params(kernel=Gaussian(3.0), alpha=1.0)
            fits = {w: partial(_predicted, model, blocks, e, rows[n:]) for w, e in engines.items()}
            times = turns(fits, len(options.seeds(3)))
            errors = {name: float(np.std(t.values[0] - f[n:])) for name, t in times.items()}
            case = f"{torch.cuda.get_device_name()}, n={n:,}, D={width}, {np.dtype(dtype)}"
            yield from compare(case, times, error=errors)


def _predicted(model: Any, blocks: bo.Blocks, where: Any, X: Array, _: int) -> Array:
    return np.asarray(model.fit_blocks(blocks, where=where).predict(X))


# --- killed processes ----------------------------------------------------------------------------


def _waves(n: int) -> bo.Blocks:
    X = np.random.default_rng(0).standard_normal((n, 4))
    return bo.Blocks.from_arrays(X, np.sin(X[:, 0]) + X[:, 1])


def _model(width: int = 16) -> bo.KernelRidge:
    return bo.KernelRidge(Gaussian(2.0), method="orthogonal", n_features=width, random_state=0)


def _seconds(blocks: bo.Blocks, where: Any, width: int = 16) -> float:
    return clock(lambda: _model(width).fit_blocks(blocks, where=where))[1]["seconds"]


@bench()
def kills(options: Options) -> Iterator[Row]:
    """Fits whose processes are killed at random moments, compared bit by bit with other fits.

    "checkpoint": the process that writes checkpoints; "dask": a worker. ``--splits`` is the number
    of kills. "overhead": least seconds of fits without and with checkpoints, and of two workers.
    """
    cases = {"checkpoint": _kill_processes}
    cases |= {"dask": _kill_workers} if find_spec("distributed") else {}
    for case, run in cases.items():
        if options.selects(case):
            yield {"case": case} | run(options, len(options.seeds(100, 2)))
    if options.selects("overhead") and find_spec("distributed"):
        yield from _overhead(options)
    yield from missing("distributed")


def _kill_processes(options: Options, n_kills: int) -> Row:
    """Return counts of fits that are killed at uniform moments, and continued until they end."""
    blocks, moments = _waves(options.pick(3_000_000, 300_000)), np.random.default_rng(1)
    expected, seconds = _model().fit_blocks(blocks).coef_, _seconds(blocks, bo.engines.Local())
    counts = {"kills": 0, "fits": 0, "same bits": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while counts["kills"] < n_kills:
            pid = os.fork()
            if pid == 0:
                where = bo.engines.Local(folder / "run.ckpt", interval=seconds / 30)
                np.save(folder / "coef.npy", _model().fit_blocks(blocks, where=where).coef_)
                os._exit(0)
            timer = _kill(pid, moments.uniform(0, 2 * seconds))
            _, status = os.waitpid(pid, 0)
            timer.cancel()
            if os.WIFEXITED(status):
                is_equal = np.array_equal(np.load(folder / "coef.npy"), expected)
                counts["fits"] += 1
                counts["same bits"] += int(os.WEXITSTATUS(status) == 0 and is_equal)
            else:
                counts["kills"] += 1
    return counts | {"seconds": seconds}


def _kill(pid: int, seconds: float) -> threading.Timer:
    """Return the timer that kills a process after these seconds."""

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    return timer


def _kill_workers(_: Options, n_kills: int) -> Row:
    """Return counts of fits of which a worker is killed at a uniform moment and restarted."""
    blocks, moments = _waves(140_000), np.random.default_rng(1)
    expected = _model().fit_blocks(blocks).coef_
    counts = {"killed during the fit": 0, "fits": n_kills, "same bits": 0}
    with _two_workers() as client:
        where = bo.engines.Dask(client, timeout=120)
        seconds = min(_seconds(blocks, where) for _ in range(3))
        for _ in range(n_kills):
            while len(pids := [*client.run(os.getpid, on_error="ignore").values()]) < 2:
                time.sleep(0.5)
            pid = int(moments.choice(pids))
            timer = _kill(pid, moments.uniform(0, seconds))
            coef = _model().fit_blocks(blocks, where=where).coef_
            counts["same bits"] += int(np.array_equal(coef, expected))
            counts["killed during the fit"] += not timer.is_alive()
            timer.join()
    return counts | {"seconds": seconds}


@contextmanager
def _two_workers() -> Iterator[Any]:
    distributed = import_module("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def _overhead(options: Options) -> Iterator[Row]:
    width, n = options.pick((1024, 400_000), (64, 20_000))
    blocks, fits = _waves(n), dict[str, list[tuple[float, float]]]()
    with tempfile.TemporaryDirectory() as folder, _two_workers() as client:
        core = lambda: time.process_time() + sum(client.run(time.process_time).values())
        engines = {
            "plain": bo.engines.Local(cache_bytes=0),
            "recorded": bo.engines.Local(f"{folder}/run", interval=2, cache_bytes=0),
            "two workers": bo.engines.Dask(client),
        }
        for _ in options.seeds(3):
            for name, where in engines.items():
                original, seconds = core(), _seconds(blocks, where, width)
                fits.setdefault(name, []).append((seconds, core() - original))
    for name, times in fits.items():
        seconds, processors = map(min, zip(*times, strict=True))
        row = {"case": f"overhead, n={n:,}, D={width}", "who": name, "seconds": seconds}
        yield row | {"core seconds": processors}
