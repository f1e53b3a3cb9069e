"""Graphics cards: how near sums of features come to the card's own rates, and what fits take.

"products" are the card's own rates: matrix products of float32 without TF32 and of float64, and
copies of its memory. "sweep" is a pass of ridge regression, features and their products, over rows
that are on the card: its share of the rate of products counts 2 n D² operations. "fit" is a whole
fit of synthetic rows in the memory of the host, of as many columns as HIGGS has, through
``Local(device=...)``. "kernel products" are K v of the kernel itself by tiles, beside KeOps where
it is installed. Without a card there is a note, and ``--device cpu`` tries the script.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

import bochner as bo
from benchmarks.harness import Options, Row, judged, say, table
from bochner.kernels import Gaussian
from bochner.sums.moments import MomentsOf

__all__ = ["run"]

#: Columns and features; rows of the sweep, of a block, and of the fit.
COLUMNS, WIDTH, SWEPT, BLOCK, FITTED = 28, 8192, 500_000, 16_384, 10_000_000

#: What is asked: the share of the card's rate of products, and seconds of the fit.
SHARE, SECONDS = 0.6, 10.0

#: Side of the matrices that rates are measured with, rows of kernel products, and repeats.
SIDE, PAIRED, REPEATS = 8192, 100_000, 3


def run(options: Options, device: str = "cuda") -> list[Row]:
    """Return rates, sweeps, the fit and kernel products."""
    if find_spec("torch") is None:
        return [{"note": "Left out: torch is not installed."}]
    import torch  # noqa: PLC0415

    if device.startswith("cuda") and not torch.cuda.is_available():
        return [{"note": "Left out: torch sees no card. --device cpu tries the script."}]
    torch.backends.cuda.matmul.allow_tf32 = False
    rates = products(device, options.pick(SIDE, 512))
    width, rows = options.pick(WIDTH, 256), options.pick(SWEPT, 20_000)
    own = {row["dtype"]: row["Gflop/s"] for row in rates if "Gflop/s" in row}
    return [
        *rates,
        sweep(device, rows, width, own["float32"], not options.quick),
        fit(device, options.pick(FITTED, 50_000), width, not options.quick),
        *kernel_products(device, options.pick(PAIRED, 5000)),
    ]


def seconds_of(call: Callable[[], Any], device: str) -> float:
    """Return the least seconds of three, until the device is done; one before is not counted."""
    import torch  # noqa: PLC0415

    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    found = []
    for _ in range(1 + REPEATS):
        wait()
        began = time.perf_counter()
        call()
        wait()
        found.append(time.perf_counter() - began)
    return min(found[1:])


def products(device: str, side: int) -> list[Row]:
    """Return the card's own rates."""
    import torch  # noqa: PLC0415

    rows: list[Row] = []
    for dtype in ("float32", "float64"):
        A = torch.randn(side, side, device=device, dtype=getattr(torch, dtype))
        seconds = seconds_of(lambda A=A: A @ A, device)
        rows.append({"what": "products", "dtype": dtype, "Gflop/s": 2e-9 * side**3 / seconds})
    A = torch.empty(side * side, device=device)
    seconds = seconds_of(A.clone, device)
    rows.append({"what": "copies", "dtype": "float32", "GB/s": 2 * A.nbytes / seconds / 1e9})
    return rows


def sweep(device: str, n: int, width: int, rate: float, judge: bool) -> Row:
    """Return the rate of a pass over rows that are on the card."""
    import torch  # noqa: PLC0415

    X = torch.randn(n, COLUMNS, device=device)
    kernel = Gaussian(COLUMNS**0.5)
    phi = bo.draw(kernel, "orthogonal", n_features=width, n_inputs=COLUMNS, random_state=0)
    blocks = bo.Blocks.from_arrays(X, np.zeros(n), block_rows=BLOCK)
    summand = MomentsOf(phi, "float32")

    def swept() -> None:
        total = summand.zero()
        for block in blocks:
            total = summand.add(total, block)

    seconds = seconds_of(swept, device)
    done = 2e-9 * n * width**2 / seconds
    row = {"what": "sweep", "dtype": "float32", "rows": n, "D": width, "seconds": seconds}
    row |= {"Gflop/s": done, "share": done / rate}
    return row | (judged(done / rate, SHARE) if judge else {})


def fit(device: str, n: int, width: int, judge: bool) -> Row:
    """Return the seconds of a whole fit to rows in the memory of the host."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    kernel, where = Gaussian(COLUMNS**0.5), bo.engines.Local(device=device)
    options: dict[str, Any] = {"method": "orthogonal", "n_features": width, "random_state": 0}
    model = bo.KernelRidge(kernel, alpha=1.0, precision="float32", **options)
    blocks = bo.Blocks.from_arrays(X, y, block_rows=BLOCK)
    model.fit_blocks(bo.Blocks.from_arrays(X[:BLOCK], y[:BLOCK]), where=where)  # warms up
    began = time.perf_counter()
    model.fit_blocks(blocks, where=where)
    seconds = time.perf_counter() - began
    row: Row = {"what": "fit", "dtype": "float32", "rows": n, "D": width, "seconds": seconds}
    return row | (judged(seconds, SECONDS, least=False) if judge else {})


def kernel_products(device: str, n: int) -> list[Row]:
    """Return the pairs a second of K v, ours by tiles and KeOps'."""
    import torch  # noqa: PLC0415

    X, v = torch.randn(n, COLUMNS, device=device), torch.randn(n, 1, device=device)
    kernel = Gaussian(COLUMNS**0.5)

    def ours() -> Any:
        return torch.cat([kernel(tile, X) @ v for tile in X.split(4096)])

    rows = [_pairs("ours", n, seconds_of(ours, device))]
    if find_spec("pykeops") is None:
        return [*rows, {"note": "KeOps is not installed."}]
    from pykeops.torch import LazyTensor  # noqa: PLC0415

    def keops() -> Any:
        away = ((LazyTensor(X[:, None, :]) - LazyTensor(X[None, :, :])) ** 2).sum(-1)
        return (-away / (2 * COLUMNS)).exp() @ v

    return [*rows, _pairs("KeOps", n, seconds_of(keops, device))]


def _pairs(by: str, n: int, seconds: float) -> Row:
    row: Row = {"what": "kernel products", "by": by, "dtype": "float32", "rows": n}
    return row | {"seconds": seconds, "pairs/s": n * n / seconds}


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", default="cuda", help="of torch: cuda, cuda:1, cpu")
    parser.add_argument("--quick", action="store_true", help="small sizes: only try the script")
    asked = parser.parse_args()
    say(table(run(Options(quick=asked.quick), asked.device)))


if __name__ == "__main__":
    _main()
