"""What bounds ask, against what is needed: width by theorem and by draws, on tables.

Gaussian and Matérn-3/2 kernels with the median distance as lengthscale, columns in standard
deviations, 500 rows, alpha = 0.01 n, D = 1024, the largest error of 20 draws; and rows on a
sphere, where Gegenbauer features are at their best. "times too many" is what a fit would pay that
trusts the bound.
"""

import numpy as np
from scipy.spatial.distance import pdist

from benchmarks.harness import Options, Row, each
from benchmarks.scaled import standardised
from bochner.certificates.bounds.table import compare_bounds
from bochner.kernels import Exponential, Gaussian, Kernel, Matern

__all__ = ["run"]

#: Tables of the folder of data; CONTRIBUTING.md says where they are from.
TABLES = ("protein", "power_plant", "california_housing")


def run(options: Options) -> list[Row]:
    """Return a row for each table, kernel and bound."""
    sphere = _table("sphere, radius 1.5", _sphere(), (Gaussian(),), options)
    return sphere + each(TABLES, lambda name: _real(name, options))


def _real(name: str, options: Options) -> list[Row]:
    X = standardised(name, options, options.pick(500, 200))
    scale = float(np.median(pdist(X)))
    return _table(name, X, (Gaussian(scale), Matern(1.5, scale), Exponential(scale)), options)


def _table(name: str, X: np.ndarray, kernels: tuple[Kernel, ...], options: Options) -> list[Row]:
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


def _sphere() -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((500, 3))
    return 1.5 * X / np.linalg.norm(X, axis=1, keepdims=True)
