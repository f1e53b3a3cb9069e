"""The float32 trap: a penalty below the noise of float32 products, and what a user gets.

On ``protein`` plain float32 products let generalised cross-validation pick a penalty that they do
not resolve, most of all at lengthscales beyond the best, where the spectrum falls fast. The row
"plain NumPy" is that trap; the others are the library's three precisions, whose test error is
compared with that of float64. Lengthscales are in units of the one that leave-one-out chose.
"""

import time
import warnings

import numpy as np

import bochner as bo
from benchmarks import scaled
from benchmarks.harness import Options, Row, judged
from benchmarks.scaled import Split
from bochner.errors import SolutionWarning
from bochner.kernels import Gaussian

__all__ = ["run"]


#: Lengthscales, in units of the chosen one: the second is about the median distance.
SCALES = (1.0, 3.0)


def run(options: Options) -> list[Row]:
    """Fit in each precision, by each criterion, at each lengthscale."""
    width = options.pick(2048, 256)
    data = scaled.split("protein", options, width)
    return [row for scale in SCALES for row in _rows(data, scale, width)]


def _rows(data: Split, scale: float, width: int) -> list[Row]:
    rows: list[Row] = []
    for alpha in ("gcv", "loo"):
        exact = _ours(data, scale, width, alpha, "float64")
        others = [_ours(data, scale, width, alpha, precision) for precision in ("auto", "float32")]
        others += [_plain(data, scale, width)] if alpha == "gcv" else []
        rows += [exact, *(_against(exact, row) for row in others)]
    return [{"lengthscale": scale} | row for row in rows]


def _against(exact: Row, row: Row) -> Row:
    ratio = row["test RMSE"] / exact["test RMSE"]
    promised = row["fit"] == "ours, auto"
    return row | {"of float64": ratio} | (judged(ratio, 1.01, least=False) if promised else {})


def _ours(data: Split, scale: float, width: int, alpha: str, precision: str) -> Row:
    model = bo.KernelRidge(
        Gaussian(scale),
        method="orthogonal",
        n_features=width,
        alpha=alpha,
        precision=precision,
        random_state=0,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SolutionWarning)  # the outcome is in the row
        model.fit(data.X, data.y)
    return {
        "fit": f"ours, {precision}",
        "alpha by": alpha,
        "seconds": time.perf_counter() - start,
        "alpha": model.alpha_,
        "test RMSE": data.error(model.predict(data.X_test)),
        "outcome": model.solution_.outcome.name.lower(),
    }


def _plain(data: Split, scale: float, width: int) -> Row:
    """Ridge regression on float32 sums about zero, penalty by GCV over a path: the trap."""
    phi = bo.draw(Gaussian(scale), "orthogonal", n_features=width, X=data.X, random_state=0)
    start = time.perf_counter()
    Z = phi(data.X)
    values, V = np.linalg.eigh((Z.T @ Z).astype(np.float64))
    b, power = V.T @ (Z.T @ data.y), float(data.y @ data.y)
    values, alphas = np.maximum(values, 0), np.logspace(-9, 0, 37) * values[-1]
    gcv = [_gcv(values, b, power, len(Z), alpha) for alpha in alphas]
    alpha = float(alphas[int(np.nanargmin(gcv))])
    coef = V @ (b / (values + alpha))
    return {
        "fit": "plain NumPy, float32",
        "alpha by": "gcv",
        "seconds": time.perf_counter() - start,
        "alpha": alpha,
        "test RMSE": data.error(phi(data.X_test) @ coef),
    }


def _gcv(values: np.ndarray, b: np.ndarray, power: float, n: int, alpha: float) -> float:
    explained = np.sum(b**2 * (values + 2 * alpha) / (values + alpha) ** 2)
    return (power - explained) / (n - np.sum(values / (values + alpha))) ** 2
