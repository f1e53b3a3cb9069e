"""phi(X) against RBFSampler.transform: seconds, and the largest error of a feature.

Rows are standard normal, the kernel is Gaussian of lengthscale 1. The error is that against the
same features computed in float64 from float64 frequencies, by NumPy, and is given as a share of
2e-6 √(2/D) (1 + ‖x‖); "at √(2d)" is the same at that lengthscale, about the median distance, where
angles are as they are in use. RBFSampler is held to its own frequencies, as it stored them.
"""

from collections.abc import Callable

import numpy as np
from sklearn.kernel_approximation import RBFSampler

import bochner as bo
from benchmarks.harness import Options, Row, compared, interleaved, judged
from bochner.kernels import Gaussian

__all__ = ["run"]

#: Columns d, features D, precision, and how many times faster is asked.
CASES = (
    (10, 2048, "float32", 6.0),
    (100, 2048, "float32", 4.0),
    (784, 4096, "float32", 1.3),
    (10, 2048, "float64", 10.0),
)

Array = np.ndarray


def run(options: Options) -> list[Row]:
    """Time and check each case."""
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
