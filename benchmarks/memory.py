"""Peak memory of a fit from Parquet, which must not grow with the number of rows.

Each fit runs in a process of its own, whose peak of resident memory is what the system counted
(ru_maxrss), imports and prediction included. Rows: ten float64 columns and a target, written in a
stream to a temporary folder that is removed afterwards.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Options, Row, child, judged

__all__ = ["run"]

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


def run(options: Options) -> list[Row]:
    """Fit the small table and the large one, and compare."""
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
