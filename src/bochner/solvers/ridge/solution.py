"""The result of a solver: solution, outcome with its remedy, and path."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.text import Sentence

LABELS = {"loo": "error", "evidence": "minus log evidence per row"}  # Quantity of each criterion

#: How a ridge penalty was chosen.
WORDS = {
    "loo": "chosen by leave-one-out error",
    "gcv": "chosen by generalised cross-validation",
    "evidence": "chosen by marginal likelihood",
    "given": "as given",
}


class Outcome(Sentence):
    """How it went, and what to do; ``str(outcome)`` is the sentence."""

    SOLVED = (
        "Solved: rounding errors are far below alpha. If alpha was chosen, its criterion is no "
        "better at smaller and larger values."
    )
    EDGE_LOW = (
        "The best alpha is the smallest that was tried, and the criterion still falls there: the "
        "data ask for less smoothing, as when the target has no noise. Use more features or a "
        "smaller lengthscale, or set a smaller penalty with alpha=..."
    )
    EDGE_HIGH = (
        "The best alpha is the largest that was tried: the features explain next to nothing of the "
        "target. Try another kernel or lengthscale, scale the columns, or check the target."
    )
    SINGULAR = (
        "ZᵀZ + alpha I is singular to working precision: alpha is below what float64 resolves. "
        'Raise alpha, or let it be chosen with alpha="loo".'
    )
    FLOAT32_LIMITED = (
        "alpha is below what float32 products of the features resolve, and they could not be "
        'formed again. Use precision="float64", or an alpha above 1e-6 times the largest '
        "eigenvalue of ZᵀZ."
    )
    REFINED = (
        "Solved in float64: float32 products of the features did not resolve the alpha that the "
        "data ask for, so the sweep was done again in float64."
    )
    LEAST_NORM = (
        "alpha is 0 and there are no more rows than features: of all coefficients that pass "
        "through every row, those of least norm."
    )
    NOT_CONVERGED = (
        "The iteration stopped before predictions were as close to the exact ones as was asked; "
        "solution_.history says how close they are. Raise alpha, or n_features (the width of the "
        "preconditioner), or ask for less with method=ExactKernel(tol=..., max_iter=...)."
    )
    PASSES_ENDED = (
        "The passes over the rows ended before predictions were as close to those of all rows as "
        "is little beside their own error; solution_.history says how close they are. Raise alpha, "
        "or take fewer features: up to 10,000 are solved for directly."
    )
    CONSTANT_TARGET = "The target is constant: the model predicts that constant everywhere."

    @property
    def good(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (
            Outcome.SOLVED,
            Outcome.REFINED,
            Outcome.LEAST_NORM,
            Outcome.CONSTANT_TARGET,
        )


# Differences between errors that are rounding. Rounding of float64 products, which differs between
# processors, moves a leave-one-out error by less than 1e-6 of itself, and by less than 1e-10 of the
# variance where it is next to nothing: the square of 1e-5, a hundred times what rounding leaves of
# residuals at the smallest penalties. A choice is decided by differences a hundred times above
# rounding.

NO_ERROR = 1e-10  # Errors below this share of the targets' variance are rounding

#: Errors within this share of one another are equal: of one fit, by products in float64; of several
#: fits that are compared, by products in float64; and by products in float32.
SAME_ROUNDED, SAME, SAME_FLOAT32 = 1e-6, 1e-4, 1e-3

#: Errors that fall by less than this share of themselves a step of the path, or for half the
#: penalty, are level: while they flatten, the twenty steps down to the end of a float64 path bring
#: less than one in a hundred.
LEVEL = 5e-4


def best_of(values: Float[Array, " p"], criterion: str, share: float = SAME) -> int:
    """Return the index of the best of a criterion, in rising order of alpha.

    Of errors within this share of the least, or 1e-10 of the largest, the largest alpha is taken:
    the differences mean nothing, and on a plateau they are rounding. Within the standard error of
    the difference, larger penalties are better on some tables and worse on others.
    """
    if criterion == "evidence":
        return int(np.argmax(values))
    errors = np.nan_to_num(values, nan=np.inf, posinf=np.inf)
    largest = np.max(errors, where=np.isfinite(errors), initial=0.0)
    return int(np.flatnonzero(errors <= (1 + share) * errors.min() + NO_ERROR * largest)[-1])


def pooled(errors: Float[Array, "p t"], power: Float[Array, " t"]) -> Float[Array, " p"]:
    """Mean over targets of relative errors, in units of the mean power: no target dominates."""
    varies = power > 0
    if not np.any(varies):
        return errors.mean(axis=1)
    return np.mean(errors[:, varies] / power[varies], axis=1) * power[varies].mean()


@dataclass(frozen=True, eq=False)
class Path:
    """Criteria along a path of penalties, all (p,) float64, in rising order of ``alphas``.

    Attributes
    ----------
    alphas : (p,)
        Penalties.
    loo : (p,)
        Leave-one-out mean squared error of all rows. For a sample of ``loo_rows`` it is the mean,
        exact for each row, times the ratio of mean squared residuals of all rows and the sample.
        Infinite where rounding hides it, as in float32 where the fit passes through a row; NaN if
        not computed. Several targets: the mean of their errors relative to their variances,
        times the mean variance.
    gcv : (p,)
        Generalised cross-validation, (RSS/W)/(1 − (1 + d_λ)/n)², n = max(W, number of rows).
    evidence : (p,)
        Log marginal likelihood with the amplitude profiled out, summed over targets.
    effective_dimension : (p,)
        d_λ = Tr G(G + λI)⁻¹.
    loo_rows : int
        Rows that the leave-one-out errors were computed for.
    loo_error : (p,) or None
        Standard error of ``loo``, as an estimate of the expected squared error on new rows. It
        includes the sampling of all rows from the population, but not the choice of alpha and
        kernel by the same errors. None if there are none.
    """

    alphas: Float[Array, " p"]
    loo: Float[Array, " p"]
    gcv: Float[Array, " p"]
    evidence: Float[Array, " p"]
    effective_dimension: Float[Array, " p"]
    loo_rows: int = 0
    loo_error: Float[Array, " p"] | None = None

    def __str__(self) -> str:
        names = ["alpha", "loo", "gcv", "evidence", "d_eff"]
        columns = [self.alphas, self.loo, self.gcv, self.evidence, self.effective_dimension]
        if self.loo_error is not None:
            names.insert(2, "loo_error")
            columns.insert(2, self.loo_error)
        rows = zip(*columns, strict=True)
        lines = ["".join(f"{name:>13}" for name in names)]
        lines += ["".join(f"{value:13.5g}" for value in row) for row in rows]
        return "\n".join(lines)

    def best(self, criterion: str) -> int:
        return best_of(getattr(self, criterion), criterion)

    def lowest(self, criterion: str) -> int:
        """Return the index of the smallest alpha at which rounding leaves the criterion a value."""
        return int(np.argmax(np.isfinite(getattr(self, criterion))))

    def level(self, criterion: str) -> bool:
        """Whether the errors are level at the smallest alpha that has one, see :data:`LEVEL`."""
        if criterion == "evidence":
            return False
        errors, low = getattr(self, criterion), self.lowest(criterion)
        return bool(np.all(errors[low + 1 : low + 2] <= (1 + LEVEL) * errors[low]))


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients of a ridge regression on features, and how they were chosen.

    Attributes
    ----------
    coef : (D, t) float64
        β: predictions are Z β + intercept. Of an exact fit (n, t): of the kernel and each row.
    intercept : (t,) float64
    alpha : float or (t,)
        The penalty used, one or one per target.
    outcome : Outcome
        Its text is the remedy.
    path : Path
        Criteria at every alpha tried.
    criterion : str
        "loo", "gcv", "evidence" or "given".
    residual_variance : (t,) float64
        Σ w (y − ŷ)² / W on the rows of the fit.
    history : tuple of str
        Steps of the solver, in order.
    slack : (n, 1) or (n, t), or None
        Residual over leave-one-out error of each row of an exact fit, or of a sample of rows that
        are read in passes; NaN for rows without one. None if there are none.
    iterations : int
        Iterations of conjugate gradients for the exact kernel; else 0.
    """

    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    alpha: float | Float[Array, " t"]
    outcome: Outcome
    path: Path
    criterion: str
    residual_variance: Float[Array, " t"]
    history: tuple[str, ...] = ()
    slack: Float[Array, "n s"] | None = None
    iterations: int = 0

    def of_rows(self, order: Array) -> "Solution":
        """Return the solution of an exact fit with its rows in another order."""
        slack = None if self.slack is None else self.slack[order]
        return replace(self, coef=self.coef[order], slack=slack)

    @property
    def chosen_by(self) -> str:
        """How the penalty was chosen, in words."""
        return WORDS[self.criterion]

    def __repr__(self) -> str:
        alphas = ", ".join(f"{alpha:.4g}" for alpha in np.atleast_1d(self.alpha))
        return (
            f"Solution(alpha={alphas} by {self.criterion}, D={len(self.coef)}, "
            f"outcome={self.outcome.name})"
        )
