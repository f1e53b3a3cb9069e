"""Ridge regression: the penalty is chosen along a path, and the outcome says how that went."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from bochner._core.checks import nonnegative
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.solvers.ridge.eigen import Eigen, SummedProducts, decompose, floor, penalties
from bochner.solvers.ridge.evidence import evidence_of
from bochner.solvers.ridge.leave_one_out import LeftOutErrors, left_out_path
from bochner.solvers.ridge.solution import (
    Outcome,
    Path,
    Solution,
    best_of,
    pooled,
)

Alpha = float | tuple[float, ...] | Literal["loo", "gcv", "evidence", "kfold"]

#: Ways to choose the penalty.
PENALTY_CRITERIA = ("loo", "gcv", "evidence", "kfold")

#: Errors of each target along the path, (p, t), or None where they were not computed.
Errors = Float[Array, "p t"] | None

#: From the worst: of several targets the worst outcome is reported.
WORST_FIRST = (
    Outcome.FLOAT32_LIMITED,
    Outcome.SINGULAR,
    Outcome.EDGE_LOW,
    Outcome.EDGE_HIGH,
    Outcome.LEAST_NORM,
    Outcome.SOLVED,
)


def path_of(
    eigen: Eigen,
    alphas: Float[Array, " p"],
    loo: LeftOutErrors | None = None,
    kfold: Errors = None,
) -> Path:
    """Return all criteria along the path; those that moments alone give cost O(p D t)."""
    power = eigen.power / eigen.weight
    evidence = evidence_of(eigen, alphas)[:, eigen.power > 0]
    return Path(
        alphas,
        np.full(len(alphas), np.nan) if loo is None else pooled(loo.each, power),
        pooled(gcv_of(eigen, alphas), eigen.power),
        evidence.sum(axis=1),
        (eigen.values[:, None] / (eigen.values[:, None] + alphas)).sum(axis=0),
        0 if loo is None else loo.rows,
        None if kfold is None else pooled(kfold, power),
        None if loo is None else loo.deviation,
    )


def gcv_of(eigen: Eigen, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
    """Return (RSS/W)/(1 − (1 + d_λ)/n)² of each target, n the count of rows.

    Infinite where no degree of freedom is left.
    """
    free = eigen.left_over(alphas)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        gcv = (eigen.count / free) ** 2 * eigen.residual_power(alphas) / eigen.weight
    return np.where(free > 0, gcv, np.inf)


def as_alpha(alpha: Any) -> Alpha:
    """Return a criterion's name, a penalty ≥ 0, or a tuple of them."""
    if isinstance(alpha, str):
        if alpha in PENALTY_CRITERIA:
            return alpha  # type: ignore[return-value]
        raise InvalidInput(
            'alpha must be "loo", "gcv", "evidence" or a number of 0 or above, or "kfold", or '
            f"such a number for each target; got {alpha!r}."
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
    kfold: Callable[[Float[Array, " p"]], Errors] | None = None,
    per_target: bool = False,
) -> Solution:
    """Return the coefficients at a given penalty, or at the best of a path.

    Parameters
    ----------
    eigen : Eigen
        Decomposition of the moments.
    means : ((D,), (t,))
        Means that the moments are about: zero without an intercept.
    alpha : float, (t,) or {"loo", "gcv", "evidence", "kfold"}
        The penalty, or one for each target, or how to choose it.
    rows : iterable of (Z, y, w), optional
        Rows about the means, for the leave-one-out errors: all, or a random sample of them.
        Without rows "loo" is "gcv".
    kfold : callable, optional
        Gives the errors of cross-validation at these penalties, (p, t); without it "kfold" is
        "gcv".
    per_target : bool, default False
        Whether each target has the penalty that is best for it alone.

    Returns
    -------
    Solution
        With outcome FLOAT32_LIMITED where float32 moments do not resolve the penalty: form them
        in float64 and call again.
    """
    given = None if isinstance(alpha, str) else as_given(alpha, len(eigen.power))
    alphas = penalties(eigen)
    if given is not None and np.any(given > 0):
        alphas = np.unique(np.append(alphas, given[given > 0]))
    loo = None if rows is None else left_out_path(eigen, rows, alphas)
    loo = loo if loo is not None and loo.rows else None
    errors: dict[str, Errors] = {
        "loo": None if loo is None else loo.each,
        "kfold": None if kfold is None else kfold(alphas),
    }
    path = path_of(eigen, alphas, loo, errors["kfold"])
    criterion = alpha if isinstance(alpha, str) else "given"
    if criterion in errors and errors[criterion] is None:
        criterion = "gcv"
    if given is not None:
        chosen = given
    elif per_target:
        chosen = _best_each(eigen, path, criterion, errors)
    else:
        chosen = np.array([path.alphas[path.best(criterion)]])
    return _at(eigen, means, chosen, path, criterion)


def as_given(alpha: float | tuple[float, ...], targets: int) -> Float[Array, " t"]:
    """Return penalties that are given: one, or one for each of so many targets."""
    if isinstance(alpha, tuple) and len(alpha) != targets:
        raise InvalidInput(
            f"alpha must be one number, or one for each of the {targets} targets; got {len(alpha)}."
        )
    return np.atleast_1d(np.asarray(alpha, np.float64))


def _best_each(
    eigen: Eigen, path: Path, criterion: str, errors: dict[str, Errors]
) -> Float[Array, " t"]:
    """Return the best penalty of each target; for a constant one, the largest."""
    of_moments: dict[str, Any] = {"gcv": gcv_of, "evidence": evidence_of}
    values = errors.get(criterion)
    if values is None:
        values = of_moments[criterion](eigen, path.alphas)
    best = [best_of(column, criterion) for column in values.T]
    return np.where(eigen.power > 0, path.alphas[best], path.alphas[-1])


def _at(
    eigen: Eigen,
    means: tuple[Float[Array, " D"], Float[Array, " t"]],
    chosen: Float[Array, " t"],
    path: Path,
    criterion: str,
) -> Solution:
    """Return the solution at one penalty, or one for each target."""
    alpha = chosen if len(chosen) == len(eigen.power) > 1 else float(chosen[0])
    coef = eigen.coefficients(alpha)
    return Solution(
        coef,
        means[1] - means[0] @ coef,
        alpha,
        _outcome(eigen, path, chosen, criterion),
        path,
        criterion,
        eigen.residual_power_at(alpha) / eigen.weight,
    )


def _outcome(eigen: Eigen, path: Path, chosen: Sequence[float] | Array, criterion: str) -> Outcome:
    """Return the worst outcome of the targets that vary."""
    varies = eigen.power > 0
    if not np.any(varies):
        return Outcome.CONSTANT_TARGET
    shared, worst = len(chosen) == 1, Outcome.SOLVED
    for alpha in chosen if shared else np.asarray(chosen)[varies]:
        found = _outcome_at(eigen, path, float(alpha), criterion, shared)
        worst = min(worst, found, key=WORST_FIRST.index)
    return worst


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


# --- Cross-validation from moments: folds are taken out of the total, and no row is read again ---
#
# With the moments of all rows and those of one fold, the others' are their difference. The ridge
# regression of the others then errs on the fold by
#
#     W_k δ² + P_k − 2 β·B_k + βᵀ G_k β,   δ = ȳ_k − ȳ − (z̄_k − z̄)·β,
#
# where z̄, ȳ are the means that it was fitted about.

#: Share of the weight that the other folds have at least.
LEAST_LEFT = 1e-9


class FoldMoments(SummedProducts, Protocol):
    """Moments that can be taken out of others."""

    @property
    def feature_mean(self) -> Float[Array, " D"]: ...
    @property
    def target_mean(self) -> Float[Array, " t"]: ...
    def about_zero(self) -> Any: ...
    def __sub__(self, other: Any) -> Any: ...


def kfold_errors(
    total: FoldMoments,
    folds: Sequence[FoldMoments],
    alphas: Float[Array, " p"],
    centred: bool = True,
) -> Float[Array, "p t"] | None:
    """Return the mean squared error of each target at every penalty, each fold left out in turn.

    Parameters
    ----------
    total : Moments
        Of all rows, about their means.
    folds : sequence of Moments
        Of each fold, about its means; together they are the total.
    alphas : (p,)
        Penalties of the fits to the other folds, not scaled to their fewer rows.
    centred : bool, default True
        Whether an intercept is fitted.

    Returns
    -------
    errors : (p, t), or None
        None where there are not two folds.

    Notes
    -----
    Time O(K (D³ + p t D²)), no pass over rows. Errors below about 1e-13 of the variance, 1e-7 in
    float32, are rounding.
    """
    left = [f for f in folds if total.weight - f.weight > LEAST_LEFT * total.weight]
    if len(left) < 2:
        return None
    errors = np.zeros((len(alphas), len(total.power)))
    for fold in left:
        others = total - fold
        others = others if centred else others.about_zero()
        errors += _errors(decompose(others, centred), others, fold, alphas)
    return errors / sum(fold.weight for fold in left)


def _errors(
    eigen: Eigen, others: FoldMoments, fold: FoldMoments, alphas: Float[Array, " p"]
) -> Float[Array, "p t"]:
    """Weighted sum of squared errors on the fold, in the coordinates of the eigenvectors."""
    V = eigen.vectors
    gram, cross = V.T @ fold.gram @ V, V.T @ fold.cross
    shift = V.T @ (fold.feature_mean - others.feature_mean)
    rise = fold.target_mean - others.target_mean
    errors = []
    for alpha in alphas:
        beta = eigen.projected / (eigen.values[:, None] + alpha)
        spread = fold.power + (beta * (gram @ beta - 2 * cross)).sum(axis=0)
        errors.append(fold.weight * (rise - shift @ beta) ** 2 + np.maximum(spread, 0.0))
    return np.stack(errors)
