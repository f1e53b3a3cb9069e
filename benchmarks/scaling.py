"""Seconds and bytes of a ridge regression on 10⁹ to 10¹² rows, predicted from rates of one worker.

``python -m benchmarks.scaling``: rates of one worker of Dask on this machine, of merging two sums
and of sending one; the prediction checked against fits by one and by two workers, which read the
rows from a Parquet file themselves; then the table.

A pass is parts of rows on all workers, then merging: each part's sum, 8 D² bytes, goes to a worker
that has another, and the last ones of the tree follow one another.
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

import bochner as bo
from bochner.kernels import Gaussian
from bochner.sums.moments import Accumulator

#: Columns, features and rows of the fits that are measured.
COLUMNS, WIDTH, ROWS = 8, 256, 1_000_000

#: Rows of a part, sums that a node merges, and parts for each worker before parts become larger.
PART, BRANCHES, PARTS = 1 << 16, 16, 64


@dataclass(frozen=True)
class Rates:
    """What one worker does.

    Attributes
    ----------
    row : float
        Seconds for a row: read, features, products.
    task : float
        Seconds that the engine takes for each part beside that: a file opened, a map copied.
    merge : float
        Seconds to add two sums.
    byte : float
        Seconds for a byte from worker to worker.
    """

    row: float
    task: float
    merge: float
    byte: float


@dataclass(frozen=True)
class Prediction:
    """What a pass takes: seconds, bytes to and from the busiest worker, parts."""

    seconds: float
    bytes_a_worker: float
    parts: int


def predicted(rates: Rates, rows: float, workers: int, width: int = WIDTH) -> Prediction:
    """Return what a pass over so many rows takes."""
    size = PART
    while rows > PARTS * workers * size:
        size *= BRANCHES
    parts = int(-(-rows // size))
    turns = -(-parts // workers)
    summing = turns * (rates.task + min(size, rows) * rates.row)
    share = 1 - 1 / workers  # of sums that are merged where they are not
    one = rates.merge + share * 8 * width**2 * rates.byte
    levels, left = 0, parts
    while left > 1:
        levels, left = levels + 1, -(-left // BRANCHES)
    last = min(parts - 1, BRANCHES - 1) * levels  # those that nothing else is done beside
    merging = last * one + max(0, (parts - 1 - last) / workers) * one
    sent = 8 * width * COLUMNS + turns * share * 8 * width**2
    return Prediction(summing + merging, sent, parts)


def model(width: int = WIDTH) -> bo.KernelRidge:
    """Return a learner whose fit is one pass and a decomposition."""
    return bo.KernelRidge(
        Gaussian(2.0), method="orthogonal", n_features=width, alpha=1.0, random_state=0
    )


def data(rows: int, folder: Path) -> bo.Blocks:
    """Return rows of a target that is a wave, in a file that workers read."""
    path = folder / f"{rows}.parquet"
    if not path.exists():
        X = np.random.default_rng(0).standard_normal((rows, COLUMNS))
        columns = {f"x{j}": X[:, j] for j in range(COLUMNS)} | {"y": np.sin(X[:, 0])}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return bo.Blocks.from_files(path, target="y")


def seconds_of(rows: int, where: Any, folder: Path) -> float:
    """Return the seconds of a fit, the least of three."""
    blocks, found = data(rows, folder), []
    for _ in range(3):
        began = time.perf_counter()
        model().fit_blocks(blocks, where=where)
        found.append(time.perf_counter() - began)
    return min(found)


def seconds_of_row(folder: Path) -> float:
    """Return the seconds of a row in this process, from fits of two lengths."""
    here = [seconds_of(rows, bo.engines.Local(memory=0), folder) for rows in (PART, 3 * PART)]
    return (here[1] - here[0]) / (2 * PART)


def measured(client: Any, folder: Path) -> Rates:
    """Return the rates of one worker: fits in its own process and through the engine, and more."""
    where = bo.engines.Dask(client)
    short, long = (seconds_of(rows, where, folder) for rows in (PART, 3 * PART))
    row = client.submit(seconds_of_row, folder).result()
    task = max(0.0, (long - short) / 2 - PART * row)
    return Rates(row, task, _merging(), _sending(client))


def _merging() -> float:
    Z = np.random.default_rng(0).standard_normal((WIDTH, WIDTH))
    one, other = Accumulator("float64"), Accumulator("float64")
    for sums in (one, other):
        sums.add(Z, Z[:, 0])
    began = time.perf_counter()
    one.merge(other)
    return time.perf_counter() - began


def _sending(client: Any, megabytes: int = 64) -> float:
    """Return the seconds of a byte from here to a worker: through the same sockets as any other."""
    parcel = np.zeros(megabytes << 17)
    began = time.perf_counter()
    client.scatter(parcel, direct=True, hash=False)
    return (time.perf_counter() - began) / parcel.nbytes


def run() -> dict[str, Any]:
    """Return rates, the check, and the table."""
    found: dict[str, Any] = {"check": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for workers in (1, 2):
            with _workers(workers) as client:
                if workers == 1:
                    rates = measured(client, folder)
                    fixed = seconds_of(PART, bo.engines.Dask(client), folder)
                    fixed -= predicted(rates, PART, 1).seconds  # one decomposition, the map sent
                    found["rates"] = asdict(rates) | {"fixed": fixed}
                seconds = seconds_of(ROWS, bo.engines.Dask(client), folder)
            guess = fixed + predicted(rates, ROWS, workers).seconds
            found["check"][workers] = {"measured": seconds, "predicted": guess}
    found["table"] = {
        f"{rows:.0e} rows": {
            f"{workers} workers": asdict(predicted(rates, rows, workers))
            for workers in (10, 100, 1000)
        }
        for rows in (1e9, 1e10, 1e11, 1e12)
    }
    return found


def _workers(number: int) -> Any:
    import distributed  # noqa: PLC0415

    cluster = distributed.LocalCluster(
        n_workers=number, threads_per_worker=1, dashboard_address=None
    )
    return distributed.Client(cluster)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(), indent=1) + "\n")
