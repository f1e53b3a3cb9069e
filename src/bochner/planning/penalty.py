"""The penalty that leave-one-out error will choose, and that error with the kernel itself."""

import numpy as np

from bochner._ground.arrays import to_numpy
from bochner._ground.lapack import eigh
from bochner._ground.shapes import Array, Float
from bochner.features.judging import left_out
from bochner.kernels import Kernel
from bochner.solvers.solution import best_of

__all__ = ["least_error", "least_exact_error", "penalty_for"]

#: Rows that the penalty is forecast from.
ROWS = 1024


def penalty_for(
    kernel: Kernel, X: Float[Array, "m d"], y: Float[Array, "m t"], n_rows: int, seed: int
) -> float:
    """Forecast the penalty that leave-one-out error will choose for ``n_rows`` rows.

    The exact kernel's choice on m and on m/4 sampled rows gives a power of the number of rows
    (between 0 and 1), which is carried on. O(m³).
    """
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:ROWS])
    X, y = X[chosen], y[chosen]
    few = max(2, len(y) // 4)
    small, large = (least_exact_error(kernel, X[:m], y[:m])[1] for m in (few, len(y)))
    power = np.clip(np.log(large / small) / np.log(len(y) / few), 0.0, 1.0)
    return float(large * (n_rows / len(y)) ** power)


def least_exact_error(
    kernel: Kernel, X: Float[Array, "m d"], y: Float[Array, "m t"]
) -> tuple[float, float]:
    """Return the least leave-one-out error of the exact kernel on these rows, and its penalty.

    The rows of K's root are the features: Z Zᵀ = K.
    """
    values, vectors = eigh(to_numpy(kernel(X)).astype(np.float64), driver="evd", check_finite=False)
    return least_error(vectors * np.sqrt(np.maximum(values, 0.0)), y)


def least_error(Z: Float[Array, "m D"], y: Float[Array, "m t"]) -> tuple[float, float]:
    """Return the least leave-one-out mean squared error on these features, and its penalty."""
    found = left_out(Z, y)
    best = best_of(found.errors, "loo")
    return float(found.errors[best]), float(found.alphas[best])
