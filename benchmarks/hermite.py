"""HermiteMercer against RBFSampler in seconds, and against orthogonal frequencies in error.

Rows are standard normal in nine columns, the kernel is Gaussian of lengthscale 3. Seconds are those
of 20,000 × 512 features; the error is ‖ZZᵀ − K‖_F / ‖K‖_F at D = 256 on rows that no map has seen.
"""

from collections.abc import Callable
from statistics import median

import numpy as np
from sklearn.kernel_approximation import RBFSampler

import bochner as bo
from benchmarks.harness import Options, Row, compared, interleaved, judged
from bochner.kernels import Gaussian

__all__ = ["run"]

COLUMNS, LENGTHSCALE = 9, 3.0

Array = np.ndarray


def run(options: Options) -> list[Row]:
    """Time both precisions, then measure the errors."""
    return [_seconds(options, "float32"), _seconds(options, "float64"), _error(options)]


def _seconds(options: Options, dtype: str) -> Row:
    n, D = options.pick((20_000, 512), (1000, 512))
    X = np.random.default_rng(0).standard_normal((n, COLUMNS)).astype(dtype)
    phi = bo.draw(Gaussian(LENGTHSCALE), bo.HermiteMercer(), n_features=D, X=X, random_state=0)
    rival = RBFSampler(gamma=0.5 / LENGTHSCALE**2, n_components=D, random_state=0).fit(X)
    times = interleaved(
        {"ours": _silent(phi, X), "rival": _silent(rival.transform, X)}, options.pick(15, 3)
    )
    ratio = times["rival"].median / times["ours"].median
    K = Gaussian(LENGTHSCALE)(X[:1000])
    return {
        "case": f"seconds, n={n}, D={D}, {dtype}",
        **compared(times["ours"], times["rival"]),
        **judged(ratio, 1.0),
        "error": _relative(phi(X[:1000]), K),
        "rival's": _relative(rival.transform(X[:1000]), K),
    }


def _silent(function: Callable[[Array], Array], X: Array) -> Callable[[int], None]:
    """Return a case that lets its result go, as a fit does with a block's features."""

    def case(_: int) -> None:
        function(X)

    return case


def _error(options: Options) -> Row:
    n, D = options.pick((2000, 256), (500, 256))
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((n, COLUMNS)), rng.standard_normal((n, COLUMNS))
    kernel = Gaussian(LENGTHSCALE)
    K = kernel(Y)
    errors = {
        name: median(
            _relative(bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(Y), K)
            for seed in range(options.pick(11, 3))
        )
        for name, method in {"ours": bo.HermiteMercer(), "rival": "orthogonal"}.items()
    }
    share = errors["ours"] / errors["rival"]
    return {
        "case": f"error, n={n}, D={D}, float64",
        **judged(share, 1 / 20, least=False),
        "error": errors["ours"],
        "rival's": errors["rival"],
    }


def _relative(Z: Array, K: Array) -> float:
    return float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K))
