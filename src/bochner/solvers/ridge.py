"""Ridge regression: the penalty is chosen along a path, and the outcome says how that went."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from bochner._ground.checks import nonnegative
from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.solvers.direct import Eigen, floor, leave_one_out, path_of, penalties
from bochner.solvers.solution import Outcome, Path, Solution

__all__ = ["CRITERIA", "Alpha", "as_alpha", "solve_ridge"]

Alpha = float | Literal["loo", "gcv", "evidence"]

#: Ways to choose the penalty.
CRITERIA = ("loo", "gcv", "evidence")


def as_alpha(alpha: object) -> Alpha:
    """Return a criterion's name or a penalty ≥ 0."""
    if isinstance(alpha, str):
        if alpha in CRITERIA:
            return alpha  # type: ignore[return-value]
        raise InvalidInput(
            f'alpha must be "loo", "gcv", "evidence" or a number of 0 or above; got {alpha!r}.'
        )
    return nonnegative(alpha, "KernelRidge", "alpha")


def solve_ridge(
    eigen: Eigen,
    means: tuple[Float[Array, " D"], Float[Array, " t"]],
    alpha: Alpha,
    rows: Iterable[tuple[Array, Array, Array | None]] = (),
) -> Solution:
    """Return the coefficients at a given penalty, or at the best of a path.

    Parameters
    ----------
    eigen : Eigen
        Decomposition of the moments.
    means : ((D,), (t,))
        Means that the moments are about: zero without an intercept.
    alpha : float or {"loo", "gcv", "evidence"}
        The penalty, or how to choose it.
    rows : iterable of (Z, y, w)
        Rows about the means, for the leave-one-out errors; without rows "loo" is "gcv".

    Returns
    -------
    Solution
        With outcome FLOAT32_LIMITED where float32 moments do not resolve the penalty: form them
        in float64 and call again.
    """
    alphas = penalties(eigen)
    if not isinstance(alpha, str) and alpha > 0:
        alphas = np.unique(np.append(alphas, alpha))
    loo, loo_rows = leave_one_out(eigen, rows, alphas)
    path = path_of(eigen, alphas, loo if loo_rows else None, loo_rows)
    criterion = "given" if not isinstance(alpha, str) else alpha
    if criterion == "loo" and not loo_rows:
        criterion = "gcv"
    chosen = path.alphas[path.best(criterion)] if isinstance(alpha, str) else alpha
    coef = eigen.coefficients(float(chosen))
    return Solution(
        coef,
        means[1] - means[0] @ coef,
        float(chosen),
        _outcome(eigen, path, float(chosen), criterion),
        path,
        criterion,
        eigen.residual_power(np.array([chosen]))[0] / eigen.weight,
    )


def _outcome(eigen: Eigen, path: Path, alpha: float, criterion: str) -> Outcome:
    if not np.any(eigen.power > 0):
        return Outcome.CONSTANT_TARGET
    low = floor(eigen)
    if criterion == "given":
        limited = Outcome.FLOAT32_LIMITED if eigen.precision == "float32" else Outcome.SINGULAR
        return limited if alpha < low and eigen.values[0] < low else Outcome.SOLVED
    if alpha <= path.alphas[0]:
        return Outcome.FLOAT32_LIMITED if eigen.precision == "float32" else Outcome.EDGE_LOW
    return Outcome.EDGE_HIGH if alpha >= path.alphas[-1] else Outcome.SOLVED
