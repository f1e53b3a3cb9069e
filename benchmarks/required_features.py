"""Is ``n_features="auto"`` enough, and not too much? ε of all rows against what was asked.

Gaussian kernels with the median distance as lengthscale, 2,500 rows of each development set, the
penalty of least leave-one-out error, a tolerance of 0.1 and ``method="auto"`` or orthogonal
Fourier features. "true ε" is that of all rows by dense matrices in float64; half the width must
miss the tolerance, else the width was more than twice the least.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigvalsh, solve_triangular
from scipy.spatial.distance import pdist

import bochner as bo
from benchmarks.development import NAMES, development
from benchmarks.harness import MissingDataSet, Options, Row, judged
from bochner.features import Method
from bochner.kernels import Gaussian

__all__ = ["run"]

ROWS, TOLERANCE = 2500, 0.1

METHODS: tuple[Method, ...] = (bo.Auto(), bo.Fourier(bo.Orthogonal()))


class _Found(NamedTuple):
    """A width, the true ε there and at half of it, and what stopped the search, if anything."""

    width: int
    epsilon: float
    at_half: float
    limit: str | None


def run(options: Options) -> list[Row]:
    """Return a row for each set and method, and the shares of all."""
    rows: list[Row] = []
    found: list[_Found] = []
    for name in NAMES[: options.pick(None, 2)]:
        try:
            X, alpha = _rows(name, options)
        except MissingDataSet as missing:
            rows.append({"note": f"Left out: {missing}"})
            continue
        for method in METHODS:
            draws = list(_draws(X, alpha, method, options.pick(6, 1)))
            rows.append(_row(name, method, alpha, draws))
            found += draws
    return rows + _shares(found)


def _rows(name: str, options: Options) -> tuple[np.ndarray, float]:
    data = development(name, options, most=options.pick(ROWS, 300))
    kernel = Gaussian(float(np.median(pdist(data.X))))
    fit = bo.KernelRidge(kernel, method="nystrom", n_features=1024, random_state=0).fit(
        data.X, data.y
    )
    return data.X, fit.alpha_


def _draws(X: np.ndarray, alpha: float, method: Method, seeds: int) -> Iterator[_Found]:
    kernel = Gaussian(float(np.median(pdist(X))))
    K = kernel(X)
    L = cholesky(K + alpha * np.eye(len(X)), lower=True)
    for seed in range(seeds):
        width = bo.required_features(kernel, method, X, alpha=alpha, random_state=seed)
        half = bo.draw(
            kernel, width.method, n_features=width.n_features // 4 * 2, X=X, random_state=seed
        )
        epsilon, at_half = (_epsilon(phi(X), K, L) for phi in (width.map, half))
        yield _Found(width.n_features, epsilon, at_half, width.limit)


def _epsilon(Z: np.ndarray, K: np.ndarray, L: np.ndarray) -> float:
    """Return the norm of (K + alpha I)^(-1/2) (Z Zᵀ − K) (K + alpha I)^(-1/2)."""
    E = solve_triangular(L, solve_triangular(L, Z @ Z.T - K, lower=True).T, lower=True)
    return float(np.abs(eigvalsh((E + E.T) / 2)).max())


def _row(name: str, method: Method, alpha: float, draws: list[_Found]) -> Row:
    return {
        "table": name,
        "method": str(method),
        "alpha": alpha,
        "D": int(np.median([f.width for f in draws])),
        "true ε": float(np.median([f.epsilon for f in draws])),
        "largest": max(f.epsilon for f in draws),
        "at half of D": float(np.median([f.at_half for f in draws])),
        "stopped": next((f.limit for f in draws if f.limit), ""),
    }


def _shares(found: list[_Found]) -> list[Row]:
    """Return the shares within the tolerance and not too wide, of draws that nothing stopped."""
    free = [f for f in found if f.limit is None]
    if not free:
        return []
    within = float(np.mean([f.epsilon <= TOLERANCE for f in free]))
    needed = float(np.mean([f.at_half > TOLERANCE for f in free]))
    return [
        {"note": f"{len(free)} of {len(found)} draws were stopped by nothing."},
        {
            "table": "all",
            "question": "within the tolerance",
            "share": within,
            **judged(within, 0.95),
        },
        {"table": "all", "question": "half would not do", "share": needed, **judged(needed, 0.95)},
    ]
