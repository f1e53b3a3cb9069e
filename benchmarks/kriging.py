"""Fourier grids: predictions of exact processes, and up to a hundred million rows.

"share" is the error of predictions over the tolerance, of 5,000 rows with noise; where a grid is
refused, "met" is the sentence that says so. Deviations are compared where they are exact, with up
to 4,096 waves. ``python -m benchmarks.kriging exactness many files chosen`` runs parts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

import bochner as bo
from benchmarks.harness import Options, Row, child, judged, say, table
from bochner.errors import InvalidInput
from bochner.kernels import Cauchy, Gaussian, Kernel, Laplace, Matern, RationalQuadratic

__all__ = ["run"]

Array = np.ndarray

NOISE = 0.09
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
LENGTHS = {1: 0.1, 2: 0.2, 3: 0.3}
MOST_WAVES, TOO_MANY, MOST_DEVIATED = 250_000, 10**8, 4096
WRITTEN = 1 << 18

_FIT = """
import json, sys, time
import numpy as np
import bochner as bo
from bochner.kernels import Matern

table, box = sys.argv[1], ((0.0, 1.0),) * int(sys.argv[2])
method = bo.FourierGrid(1e-3, box=box)
start = time.perf_counter()
model = bo.KernelRidge(Matern(1.5, 0.1), method=method, alpha=0.09)
model.fit_blocks(bo.Blocks.from_files(table, target="y"))
print(json.dumps({"seconds": time.perf_counter() - start, "waves": model.map_.n_features}))
"""


def run(options: Options) -> list[Row]:
    """Compare with exact processes, then take many rows."""
    return [row for part in PARTS.values() for row in part(options)]


def truth(X: Array) -> Array:
    """Return a smooth function of the first and the last column."""
    return np.sin(9 * X[:, 0]) * np.cos(7 * X[:, -1])


def rows_of(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Return places in the unit cube, and the function there with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    return X, truth(X) + NOISE**0.5 * rng.standard_normal(n)


# --- exact processes -----------------------------------------------------------------------------


def exact(
    kernel: Kernel, X: Array, y: Array, new: Array, amplitude: float = 1.0
) -> tuple[Array, Array]:
    """Return mean and deviation of an exact process with an unknown mean."""
    one, alpha = np.ones(len(y)), NOISE / amplitude
    factor = cho_factor(kernel(X) + alpha * np.eye(len(y)), lower=True, overwrite_a=True)
    k = kernel(new, X)
    a, b = cho_solve(factor, np.stack([y, one], axis=1)).T
    mean = a.sum() / b.sum()
    rest = 1 - k @ b
    left = kernel.diag(new) - np.einsum("ij,ji->i", k, cho_solve(factor, k.T))
    variance = amplitude * (left + rest**2 / b.sum())
    return mean + k @ (a - mean * b), np.sqrt(variance)


def _exactness(options: Options) -> Iterator[Row]:
    """Errors of predictions as shares of the tolerance, or why there are none."""
    n, m = options.pick((5000, 1000), (400, 50))
    for d, length in LENGTHS.items():
        X, y = rows_of(n, d)
        new = np.random.default_rng(1).uniform(0, 1, (m, d))
        smooth = (Gaussian(length), RationalQuadratic(2.0, length), Cauchy(length))
        rough = (Matern(2.5, length), Matern(1.5, length), Matern(0.5, length), Laplace(length))
        for kernel in (*smooth, *rough):
            mean, deviation = exact(kernel, X, y, new)
            for tolerance in options.pick(TOLERANCES, TOLERANCES[:1]):
                row = _one(kernel, tolerance, X, y, new, mean, deviation)
                yield {"what": f"exact, d = {d}", "kernel": repr(kernel), **row}


def _one(
    kernel: Kernel, tolerance: float, X: Array, y: Array, new: Array, mean: Array, deviation: Array
) -> Row:
    box = ((0.0, 1.0),) * X.shape[1]
    method, given = bo.FourierGrid(tolerance, box), {"noise": NOISE, "amplitude": 1.0}
    found: Row = {"tolerance": tolerance, "waves": _waves(kernel, method)}
    if MOST_WAVES < found["waves"] < TOO_MANY:
        return found | {"met": f"not tried: over {MOST_WAVES:,} waves"}
    start = time.perf_counter()
    try:
        model = bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X, y)
    except InvalidInput as refused:
        return found | {"met": str(refused)}
    seconds = time.perf_counter() - start
    error = float(np.linalg.norm(model.predict(new) - mean) / np.linalg.norm(mean))
    row = found | {"seconds": seconds, "error": error, "share": error / tolerance}
    row |= judged(error, tolerance, least=False)
    if tolerance == TOLERANCES[0] and model.map_.n_features <= MOST_DEVIATED:
        process = bo.GaussianProcessRegressor(kernel, method=method, **given).fit(X, y)
        _, std = process.predict(new, return_std=True)
        row["deviation off by"] = float(np.sqrt(np.mean((std / deviation - 1) ** 2)))
    return row


def _waves(kernel: Kernel, method: Any) -> int:
    from bochner.features.fourier.frequencies import grid_of  # noqa: PLC0415

    lower, upper = np.array(method.box).T
    return grid_of(kernel, lower, upper, method.tolerance).waves


# --- many rows -----------------------------------------------------------------------------------


def _many(options: Options) -> Iterator[Row]:
    cases = ((10**6, 2, 1e-3, 2.0), (10**7, 1, 1e-3, 30.0))
    for n, d, tolerance, asked in options.pick(cases, ((10_000, 2, 1e-3, 2.0),)):
        X, y = rows_of(n, d)
        kernel, method = Matern(1.5, 0.1), bo.FourierGrid(tolerance)
        bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X[:2000], y[:2000])
        start, used = time.perf_counter(), time.process_time()
        model = bo.KernelRidge(kernel, method=method, alpha=NOISE).fit(X, y)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        new = np.random.default_rng(1).uniform(0, 1, (10_000, d))
        rmse = float(np.sqrt(np.mean((model.predict(new) - truth(new)) ** 2)))
        row = {"what": f"n = {n:,}, d = {d}", "kernel": repr(kernel), "tolerance": tolerance}
        row |= {"waves": model.map_.n_features, "seconds": seconds, "core seconds": used}
        yield row | {"error": rmse} | judged(seconds, asked, least=False)


def _files(options: Options) -> Iterator[Row]:
    sizes = options.pick((10**6, 10**8), (5000, 20_000))
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for n in sizes:
            table = Path(folder) / "rows.parquet"
            _write(table, n)
            done = child(_FIT, str(table), "2")
            table.unlink()
            row = {"what": f"Parquet, n = {n:,}, d = 2", "waves": done.output["waves"]}
            row |= {"seconds": done.output["seconds"], "peak MB": done.peak_mb}
            yield row | judged(done.peak_mb, 1000, least=False)
            if n == 10**8:
                yield row | judged(done.output["seconds"], 90.0, least=False)


def _write(path: Path, n: int) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema([(name, pa.float64()) for name in ("u", "v", "y")])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, WRITTEN):
            X, y = rows_of(min(WRITTEN, n - start), 2, seed=start)
            writer.write_table(pa.table([X[:, 0], X[:, 1], y], schema=schema))


def _chosen(options: Options) -> Iterator[Row]:
    """Lengthscale, noise and amplitude by the evidence of all rows; what intervals cover."""
    n = options.pick(10**6, 3000)
    X, y = rows_of(n + 5000, 2)
    start, used = time.perf_counter(), time.process_time()
    model = bo.GaussianProcessRegressor("matern32", method=bo.FourierGrid(1e-3), random_state=0)
    model.fit(X[:n], y[:n])
    seconds, used = time.perf_counter() - start, time.process_time() - used
    mean, std = model.predict(X[n:], return_std=True)
    z = np.abs(y[n:] - mean) / np.sqrt(std**2 + model.noise_variance_)
    row = {"what": f"by evidence, n = {n:,}", "kernel": repr(model.kernel_)}
    row |= {"waves": model.map_.n_features, "seconds": seconds, "core seconds": used}
    row |= {
        f"{share:.0%} covers": float(np.mean(z < norm.ppf(0.5 + share / 2))) for share in (0.9,)
    }
    yield row | judged(seconds, 120.0, least=False)


#: What is measured, by name.
PARTS: dict[str, Callable[[Options], Iterator[Row]]] = {
    "exactness": _exactness,
    "many": _many,
    "files": _files,
    "chosen": _chosen,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kriging")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    for name in asked.parts:
        rows = []
        for row in PARTS[name](Options(quick=asked.quick, scratch=asked.scratch)):
            rows.append(row)
            say(str(row))
        say(table(rows))


if __name__ == "__main__":
    main()
