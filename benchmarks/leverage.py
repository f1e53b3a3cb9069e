"""Spectral distance of Fourier features by leverage, beside those from the kernel's own law.

500 rows uniform in [−1, 1]^d, 512 features, means of five draws, at penalties λ = 1e-2 n and 1e-4 n
(and the relative Frobenius error, "entries"); ``LeverageFourier(λ/n)`` is drawn for its penalty.
"""

from collections.abc import Iterator

import numpy as np

import bochner as bo
from benchmarks.harness import Options, Row
from bochner.features import Method
from bochner.kernels import Gaussian, Kernel, Matern

PENALTIES = (1e-2, 1e-4)
CASES: tuple[tuple[Kernel, int], ...] = (
    (Gaussian(0.1), 1),
    (Gaussian(0.35), 2),
    (Gaussian(0.6), 3),
    (Gaussian(0.8), 4),
    (Matern(1.5, 0.5), 2),
    (Matern(1.5, 3.0), 12),
)


def run(options: Options) -> list[Row]:
    """Return a row for each kernel, penalty and method."""
    return [row for kernel, d in CASES for row in _of(kernel, d, options)]


def _of(kernel: Kernel, d: int, options: Options) -> Iterator[Row]:
    n, D = options.pick((500, 512), (60, 32))
    X = np.random.default_rng(d).uniform(-1, 1, (n, d))
    K = kernel(X)
    values, V = np.linalg.eigh(K)
    for penalty in PENALTIES:
        sizes = np.maximum(values, 0) + penalty * n
        methods: tuple[Method, ...] = (
            bo.Fourier(bo.IID()),
            bo.Fourier(bo.QMC()),
            bo.LeverageFourier(penalty),
        )
        about = {"kernel": repr(kernel), "d": d, "λ/n": penalty}
        about["effective dimension"] = float(np.sum(1 - penalty * n / sizes))
        for method in methods:
            yield about | _errors(kernel, method, X, K, V / np.sqrt(sizes), D)


def _errors(
    kernel: Kernel, method: Method, X: np.ndarray, K: np.ndarray, whitening: np.ndarray, D: int
) -> Row:
    distances, entries = [], []
    for seed in range(5):
        Z = bo.draw(kernel, method, n_features=D, X=X, random_state=seed)(X)
        E = Z @ Z.T - K
        distances.append(np.abs(np.linalg.eigvalsh(whitening.T @ E @ whitening)).max())
        entries.append(np.linalg.norm(E) / np.linalg.norm(K))
    return {
        "method": str(method),
        "distance": float(np.mean(distances)),
        "entries": float(np.mean(entries)),
    }
