"""Ridge regression: the penalty is chosen along a path, and the outcome says how that went."""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from bochner._core.checks import nonnegative
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.solvers.ridge.eigen import Eigen, floor, penalties
from bochner.solvers.ridge.leave_one_out import LeftOutErrors, left_out_path
from bochner.solvers.ridge.problem import evidence, gcv
from bochner.solvers.ridge.solution import Outcome, Path, Solution, best_of, pooled

Alpha = float | tuple[float, ...] | Literal["loo", "gcv", "evidence"]

PENALTY_CRITERIA = ("loo", "gcv", "evidence")  # Ways to choose the penalty

#: From the worst: of several targets the worst outcome is reported.
WORST_FIRST = (
    Outcome.FLOAT32_LIMITED,
    Outcome.SINGULAR,
    Outcome.EDGE_LOW,
    Outcome.EDGE_HIGH,
    Outcome.LEAST_NORM,
    Outcome.SOLVED,
)


def path_of(eigen: Eigen, alphas: Float[Array, " p"], loo: LeftOutErrors | None = None) -> Path:
    """Return all criteria along the path; criteria from moments cost O(p D t)."""
    power = eigen.power / eigen.weight
    values = eigen.at(alphas)
    likelihood = evidence(eigen, values)[:, eigen.power > 0]
    return Path(
        alphas,
        np.full(len(alphas), np.nan) if loo is None else pooled(loo.each, power),
        pooled(gcv(eigen, values), eigen.power),
        likelihood.sum(axis=1),
        (eigen.values[:, None] / (eigen.values[:, None] + alphas)).sum(axis=0),
        0 if loo is None else loo.rows,
        None if loo is None else loo.deviation,
    )


def as_alpha(alpha: Any) -> Alpha:
    """Return a criterion's name, a penalty ≥ 0, or a tuple of them."""
    if isinstance(alpha, str):
        if alpha in PENALTY_CRITERIA:
            return alpha  # type: ignore[return-value]
        raise InvalidInput(
            'alpha must be "loo", "gcv", "evidence" or a number of 0 or above, or such a number '
            f"for each target; got {alpha!r}."
        )
    if isinstance(alpha, list | tuple) or np.ndim(alpha) == 1:
        each = tuple(nonnegative(a, "KernelRidge", f"alpha[{i}]") for i, a in enumerate(alpha))
        if not each:
            raise InvalidInput("alpha must be a number for each target; got an empty sequence.")
        return each
    return nonnegative(alpha, "KernelRidge", "alpha")


def least_alpha(alpha: Alpha) -> Any:
    """Return the smallest of given penalties, or the criterion."""
    return min(alpha) if isinstance(alpha, tuple) else alpha


def given_alpha(alpha: Alpha) -> float | None:
    """Return the smallest of given penalties, None where a criterion chooses."""
    return None if isinstance(alpha, str) else least_alpha(alpha)


def solve_ridge(
    eigen: Eigen,
    means: tuple[Float[Array, " D"], Float[Array, " t"]],
    alpha: Alpha,
    rows: Iterable[tuple[Array, Array, Array | None]] | None = None,
    *,
    per_target: bool = False,
) -> Solution:
    """Return the coefficients at a given penalty, or at the best of a path.

    The moments are centred at ``means``, which are zero without an intercept. ``rows`` are centred
    rows (Z, y, w) for the leave-one-out errors: all, or a random sample; without rows "loo" is
    "gcv". The outcome is FLOAT32_LIMITED if float32 moments do not resolve the penalty: form them
    in float64 and call again.
    """
    given = None if isinstance(alpha, str) else as_given(alpha, len(eigen.power))
    alphas = penalties(eigen)
    if given is not None and np.any(given > 0):
        alphas = np.unique(np.append(alphas, given[given > 0]))
    loo = None if rows is None else left_out_path(eigen, rows, alphas)
    loo = loo if loo is not None and loo.rows else None
    path = path_of(eigen, alphas, loo)
    criterion = alpha if isinstance(alpha, str) else "given"
    if criterion == "loo" and loo is None:
        criterion = "gcv"
    if given is not None:
        chosen = given
    elif per_target:
        values = (evidence if criterion == "evidence" else gcv)(eigen, eigen.at(alphas))
        if criterion == "loo" and loo is not None:
            values = loo.each
        best = [best_of(column, criterion) for column in values.T]
        chosen = np.where(eigen.power > 0, alphas[best], alphas[-1])
    else:
        chosen = np.array([path.alphas[path.best(criterion)]])
    used = chosen if len(chosen) == len(eigen.power) > 1 else float(chosen[0])
    coef, outcome = eigen.coefficients(used), _outcome(eigen, path, chosen, criterion)
    left = eigen.residual_power_at(used) / eigen.weight
    return Solution(coef, means[1] - means[0] @ coef, used, outcome, path, criterion, left)


def as_given(alpha: float | tuple[float, ...], targets: int) -> Float[Array, " t"]:
    """Return given penalties: one, or one per target."""
    if isinstance(alpha, tuple) and len(alpha) != targets:
        raise InvalidInput(
            f"alpha must be one number, or one for each of the {targets} targets; got {len(alpha)}."
        )
    return np.atleast_1d(np.asarray(alpha, np.float64))


def _outcome(eigen: Eigen, path: Path, chosen: Float[Array, " c"], criterion: str) -> Outcome:
    """Return the worst outcome of the targets that vary."""
    varies = eigen.power > 0
    if not np.any(varies):
        return Outcome.CONSTANT_TARGET
    shared = len(chosen) == 1
    each = (float(alpha) for alpha in (chosen if shared else chosen[varies]))
    outcomes = (_outcome_at(eigen, path, alpha, criterion, shared) for alpha in each)
    return min(outcomes, key=WORST_FIRST.index)


def _outcome_at(eigen: Eigen, path: Path, alpha: float, criterion: str, shared: bool) -> Outcome:
    single = eigen.precision == "float32"
    low = floor(eigen)
    if criterion == "given" and alpha == 0 and not single and eigen.full:
        return Outcome.SOLVED if eigen.rank == len(eigen.vectors) else Outcome.LEAST_NORM
    if criterion == "given":
        limited = Outcome.FLOAT32_LIMITED if single else Outcome.SINGULAR
        return limited if alpha < low and eigen.values[0] < low else Outcome.SOLVED
    if alpha <= path.alphas[path.lowest(criterion)]:
        if single:
            return Outcome.SOLVED if shared and path.level(criterion) else Outcome.FLOAT32_LIMITED
        return Outcome.EDGE_LOW
    return Outcome.EDGE_HIGH if alpha >= path.alphas[-1] else Outcome.SOLVED
