"""What a map below its kernel leaves out of each row: e(x) = k(x, x) − |φ(x)|² ≥ 0.

If Z Zᵀ ⪯ K for any rows, then for any two, seen or not, |k(x, y) − φ(x)·φ(y)|² ≤ e(x) e(y), and
‖K − Z Zᵀ‖ ≤ Tr(K − Z Zᵀ) = Σ e(x_i). No sample, no probability.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bochner._ground.arrays import as_matrix, to_numpy
from bochner._ground.checks import positive
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.planning.sample import double, kernel_of

__all__ = ["Trust", "trust"]

#: Rows whose features are made together.
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Trust:
    """How much of each row a map has; ``print`` says it in sentences.

    Attributes
    ----------
    residual : (n,)
        e(x) = k(x, x) − |φ(x)|², zero or above: zero where the map is exact.
    size : (n,)
        k(x, x).
    """

    residual: Float[np.ndarray, " n"]
    size: Float[np.ndarray, " n"]

    @property
    def score(self) -> Float[np.ndarray, " n"]:
        """|φ(x)|²/k(x, x): 1 where the map has all of x, 0 where it knows nothing of it."""
        share = np.divide(
            self.residual, self.size, out=np.zeros_like(self.residual), where=self.size > 0
        )
        return 1.0 - np.clip(share, 0.0, 1.0)

    @property
    def trace(self) -> float:
        """Σ e(x_i) = Tr(K − Z Zᵀ), no less than ‖K − Z Zᵀ‖."""
        return float(self.residual.sum())

    def entry_bound(self, i: int, j: int) -> float:
        """Return √(e(x_i) e(x_j)), what |φ(x_i)·φ(x_j) − k(x_i, x_j)| does not exceed."""
        return float(np.sqrt(self.residual[i] * self.residual[j]))

    def epsilon_bound(self, alpha: float) -> float:
        """Return t/(t + alpha), t = Σ e: the spectral distance of these rows is no larger.

        Certain, and loose where many directions are each left out a little: ``certify`` measures.
        """
        alpha = positive(alpha, "Trust.epsilon_bound", "alpha")
        return self.trace / (self.trace + alpha)

    def __str__(self) -> str:
        if not len(self.residual):
            return "There are no rows."
        score = self.score
        worst, poor = int(np.argmin(score)), int((score < 0.5).sum())
        few = (
            f" {poor:,} are held by less than half: the prediction there leans to the intercept, "
            "whatever the exact kernel would say."
            if poor
            else ""
        )
        return (
            f"Of {len(score):,} rows the features hold {100 * np.mean(score):.3g} % on average, "
            f"and {100 * score[worst]:.3g} % of the worst, row {worst}.{few} The kernel matrix is "
            f"off by at most {self.trace:.3g} (operator norm)."
        )


def trust(phi: Any, X: Float[Array, "n d"], *, kernel: Any = None) -> Trust:
    """Return how much of each row a deterministic map has, for rows of a fit or rows to predict.

    Parameters
    ----------
    phi : FeatureMap
        Below its kernel: Nystrom, MercerHarmonic, HermiteMercer and the like. It is called with
        the rows' own precision.
    X : (n, d)
    kernel : Kernel, optional
        ``phi.kernel`` if not given.

    Returns
    -------
    Trust

    Raises
    ------
    InvalidInput
        If the map is not below its kernel, or X does not fit it.

    Notes
    -----
    That of φ(X), memory one block of features. In float32 e(x) is known to about 1e-6 k(x, x).

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.planning import trust
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> phi = bo.draw(bo.kernels.Gaussian(), "nystrom", n_features=100, X=X, random_state=0)
    >>> near, far = trust(phi, [[0.0, 0.0], [9.0, 9.0]]).score
    >>> bool(near > 0.999 and far < 0.001)
    True
    """
    kernel = kernel_of(phi, kernel, "trust")
    if not getattr(phi, "below_kernel", False):
        raise InvalidInput(
            "trust requires a map that stays below its kernel (Nystrom, MercerHarmonic, "
            f"HermiteMercer); got {type(phi).__name__}, whose errors have both signs. certify "
            "measures those."
        )
    X = as_matrix(X, "trust")
    held = [_held(phi, X[i : i + BLOCK]) for i in range(0, X.shape[0], BLOCK)]
    size = to_numpy(kernel.diag(double(X))).astype(np.float64)
    return Trust(np.maximum(size - np.concatenate([np.empty(0), *held]), 0.0), size)


def _held(phi: Any, X: Array) -> Float[np.ndarray, " b"]:
    Z = to_numpy(phi(X)).astype(np.float64)
    return np.einsum("ij,ij->i", Z, Z)
