"""The sweep that sums up all rows, features included, as a share of the machine's ssyrk rate.

The rate is that of scipy.linalg.blas.ssyrk adding blocks of 512 to 4096 rows into one matrix, the
best of them. The sweep makes blocks of rows on the fly, their features, and the moments: n D²
operations are counted, as for ssyrk, and nothing else, so that 100 % cannot be reached.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.linalg.blas import ssyrk

import bochner as bo
from benchmarks.harness import Options, Row, interleaved, judged
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks
from bochner.features.nystrom.nystrom import Rounded
from bochner.kernels import Gaussian
from bochner.sums.executor import LOCAL
from bochner.sums.moments import Moments, MomentsOf

__all__ = ["run"]

#: Rows a block of the plain ssyrk, and its rows in all.
BLOCKS, PLAIN_ROWS = (512, 1024, 2048, 4096), 16_384

D_COLUMNS, ROWS_MADE = 10, 4096


def run(options: Options) -> list[Row]:
    """Time the sweep and the plain updates in turns."""
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
            "error of G": _error(phi),
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


def _error(phi: bo.FeatureMap) -> float:
    """Return ‖G − G₆₄‖_F / ‖G₆₄‖_F on 10,000 rows, G₆₄ all in float64."""
    single, double = (_summed(phi, _blocks(10_000), dtype).gram for dtype in ("float32", "float64"))
    return float(np.linalg.norm(single - double) / np.linalg.norm(double))
