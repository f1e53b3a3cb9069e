"""What method="auto" picks, against the best of all candidates, on ten tables.

Relative Frobenius error on 2,000 rows that no map was drawn from, D = 128, 512 and 2048, Gaussian
and Matérn-3/2 kernels with the median distance as lengthscale, columns in standard deviations.
"""

import numpy as np
from scipy.spatial.distance import pdist

import bochner as bo
from benchmarks.harness import Options, Row, each, judged
from benchmarks.scaled import standardised
from bochner.errors import UnsupportedKernel
from bochner.features.auto import relative_error, width_of
from bochner.features.rules import contenders
from bochner.kernels import Gaussian, Kernel, Matern

__all__ = ["run"]

#: Tables of the folder of data; CONTRIBUTING.md says where they are from.
TABLES = (
    "protein",
    "california_housing",
    "kin8nm",
    "power_plant",
    "abalone_jmlr",
    "magic",
    "pendigits",
    "uci_pol",
    "uci_tamielectric",
    "covtype_20k",
)
ROWS, SAMPLE = 10_000, 2000


def run(options: Options) -> list[Row]:
    """Return a row for each table, kernel and width."""
    return each(TABLES, lambda name: _table(name, options))


def _table(name: str, options: Options) -> list[Row]:
    X = standardised(name, options, options.pick(ROWS, 1500))
    scale = float(np.median(pdist(X[:1000]))) or 1.0
    return [
        _case(name, kernel, X, D)
        for kernel in (Gaussian(scale), Matern(1.5, scale))
        for D in options.pick((128, 512, 2048), (64,))
    ]


def _case(name: str, kernel: Kernel, X: np.ndarray, D: int) -> Row:
    m = min(SAMPLE, len(X) // 4)
    kept, others = X[:m], X[m:]
    K = kernel(kept)
    errors = {}
    for method in contenders(X.shape[1]):
        try:
            phi = bo.draw(kernel, method, n_features=width_of(method, D), X=others, random_state=1)
        except UnsupportedKernel:
            continue
        errors[str(method)] = relative_error(phi, kept, K)
    auto = bo.KernelFeatures(kernel, method="auto", n_features=D, random_state=0).fit(others)
    error = relative_error(auto.map_, kept, K)
    best = min(errors, key=lambda method: errors[method])
    return {
        "table": name,
        "columns": X.shape[1],
        "kernel": type(kernel).__name__,
        "D": D,
        "auto took": str(auto.choice_.method),
        "its error": error,
        "best": best,
        "best error": errors[best],
        **judged(error / max(errors[best], 1e-12), 1.5, least=False),
    }
