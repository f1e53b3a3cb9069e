"""Choice of the penalty of ridge regressions and processes, and its outcome."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bochner._core.checks import nonnegative
from bochner._core.shapes import Array, Float
from bochner._core.text import Sentence
from bochner.errors import InvalidInput


class Outcome(Sentence):
    """Outcome of a fit, from best to worst; ``str(outcome)`` is its meaning and remedy."""

    CONSTANT_TARGET = "The target is constant: the model predicts that constant everywhere."
    SOLVED = (
        "Solved: rounding errors are negligible compared with alpha. A chosen alpha is a minimum "
        "of its criterion."
    )
    REFINED = (
        "Solved in float64: float32 products of the features did not resolve the best alpha, so "
        "the pass was repeated in float64."
    )
    LEAST_NORM = (
        "alpha is 0 and there are at most as many rows as features: the fit interpolates every "
        "row, with the coefficients of least norm."
    )
    EDGE_HIGH = (
        "The best alpha is the largest that was tried: the features hardly explain the target. "
        "Try another kernel or lengthscale, scale the columns, or check the target."
    )
    EDGE_LOW = (
        "The best alpha is the smallest that was tried, and the criterion still falls there: the "
        "data need less smoothing, for example because the target has no noise. Use more features "
        "or a smaller lengthscale, or set a smaller penalty with alpha=..."
    )
    SINGULAR = (
        "ZᵀZ + alpha I is singular to working precision: alpha is below what float64 resolves. "
        'Raise alpha, or let it be chosen with alpha="loo".'
    )
    FLOAT32_LIMITED = (
        "float32 products of the features do not resolve alpha, and the rows could not be read "
        'again for float64. Use precision="float64", or an alpha above 1e-6 times the largest '
        "eigenvalue of ZᵀZ."
    )
    NOT_CONVERGED = (
        "The iteration stopped before the error of predictions was at most tol; "
        "solution_.history states the error. Raise alpha, or n_features (the width of the "
        "preconditioner), or raise tol or max_iter with method=ExactKernel(tol=..., max_iter=...)."
    )
    PASSES_ENDED = (
        "The passes over the rows ended before the numerical error of predictions was small "
        "compared with the error of the fit; solution_.history states it. Raise alpha, or use "
        "fewer features: fits with at most 10,000 features are solved directly."
    )

    @property
    def is_good(self) -> bool:
        """Whether nothing needs to be done."""
        return self not in (Outcome.EDGE_HIGH, Outcome.EDGE_LOW, *WARNED)


#: Outcomes of a fit that warns.
WARNED = Outcome.SINGULAR, Outcome.FLOAT32_LIMITED, Outcome.NOT_CONVERGED, Outcome.PASSES_ENDED

# Differences between errors at rounding level. Rounding of float64 products, which differs between
# processors, changes a leave-one-out error by less than 1e-6 of it, and tiny errors by less than
# 1e-10 of the variance: the square of 1e-5, a hundred times the rounding error of residuals at the
# smallest penalties. Choices depend only on differences a hundred times larger.

NO_ERROR = 1e-10  # Errors below this, relative to the targets' variance, are rounding errors

#: Relative differences at which errors count as equal: within one float64 fit, between float64
#: fits, and between float32 fits.
SAME_ROUNDED, SAME, SAME_FLOAT32 = 1e-6, 1e-4, 1e-3

#: An error is level if it falls by less than this share in one step of the path. The twenty steps
#: from the end of a float32 path to that of a float64 path then lower it by less than 1 %.
LEVEL = 5e-4


def best_index(values: Float[Array, " p"], criterion: str, share: float = SAME) -> int:
    """Return the index of the best value of a criterion; ``values`` are ascending in alpha.

    Among errors within ``share`` of the smallest, or 1e-10 of the largest, the largest alpha is
    chosen, because these differences are rounding errors.
    """
    if criterion == "evidence":
        return int(np.argmax(values))
    errors = np.nan_to_num(values, nan=np.inf, posinf=np.inf)
    largest = np.max(errors, where=np.isfinite(errors), initial=0.0)
    return int(np.flatnonzero(errors <= (1 + share) * errors.min() + NO_ERROR * largest)[-1])


def pool(errors: Float[Array, "p t"], power: Float[Array, " t"]) -> Float[Array, " p"]:
    """Return the mean over targets of error/power, times the mean power: no target dominates."""
    varies = power > 0
    if not np.any(varies):
        return errors.mean(axis=1)
    return np.mean(errors[:, varies] / power[varies], axis=1) * power[varies].mean()


@dataclass(frozen=True, eq=False)
class Path:
    """Criteria along a path of penalties, (p,) float64; infinite or NaN if unknown.

    Attributes
    ----------
    alphas : array of shape (p,)
        Penalties, ascending.
    loo : array of shape (p,)
        Leave-one-out mean squared error of all rows. For a sample: its mean error, exact for each
        row, times the ratio of mean squared residuals of all rows and the sample. For several
        targets: the mean of their errors relative to their variances, times the mean variance.
    gcv : array of shape (p,)
        Generalised cross-validation, (RSS/W)/(1 − (1 + d_λ)/n)².
    evidence : array of shape (p,)
        Log marginal likelihood of all targets at the best amplitude.
    effective_dimension : array of shape (p,)
        d_λ = Tr G(G + λI)⁻¹.
    loo_rows : int
        Number of rows whose leave-one-out errors were computed.
    loo_error : array of shape (p,) or None
        Standard error of ``loo`` as an estimate of the expected squared error on new rows. It does
        not include the choice of alpha and kernel by the same errors.
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
        return best_index(getattr(self, criterion), criterion)

    def lowest(self, criterion: str) -> int:
        """Return the index of the smallest alpha at which the criterion is finite."""
        return int(np.argmax(np.isfinite(getattr(self, criterion))))

    def level(self, criterion: str) -> bool:
        """Whether the error is level (:data:`LEVEL`) at the smallest alpha at which it is known."""
        if criterion == "evidence":
            return False
        errors, low = getattr(self, criterion), self.lowest(criterion)
        return bool(np.all(errors[low + 1 : low + 2] <= (1 + LEVEL) * errors[low]))


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients of a ridge regression on features, and how they were chosen.

    Attributes
    ----------
    coef : array of shape (D, t)
        β; for an exact fit one coefficient per row, (n, t).
    intercept : array of shape (t,)
    alpha : float or array of shape (t,)
        Penalty, or one per target.
    outcome : Outcome
        Its text is the remedy.
    criteria, spectrum : Path or None, Eigen or None
        The path; for a given penalty eigenvalues, from which ``path`` is computed when it is read.
    criterion : {"loo", "gcv", "evidence", "given"}
    history : tuple of str
        Steps of the solver, in order.
    slack : array of shape (n, s) or None
        1 − leverage (residual over leave-one-out error) of the rows of an exact fit, or of a
        sample of rows that are read in passes; NaN where it is not computed.
    iterations : int
        Number of steps of conjugate gradients.
    """

    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    alpha: float | Float[Array, " t"]
    outcome: Outcome
    criteria: Path | None
    criterion: str
    history: tuple[str, ...] = ()
    slack: Float[Array, "n s"] | None = None
    iterations: int = 0
    spectrum: Any = None

    @cached_property
    def path(self) -> Path:
        """The criteria along a path of penalties."""
        return self.criteria or self.spectrum.criteria(self.alpha)[0]

    def in_unit(self, unit: float, order: Any = slice(None)) -> "Solution":
        """Return the solution of an exact fit for weights times ``unit``, and rows in an order."""
        path: Any = self.criteria
        path, slack = replace(path, alphas=path.alphas * unit), self.slack
        slack = None if slack is None else slack[order]
        alpha, coef = self.alpha * unit, self.coef[order]
        return replace(self, coef=coef, alpha=alpha, criteria=path, slack=slack)

    @property
    def chosen_by(self) -> str:
        """How the penalty was chosen, in words."""
        names = {
            "loo": "leave-one-out error",
            "gcv": "generalised cross-validation",
            "evidence": "marginal likelihood",
        }
        return f"chosen by {names[self.criterion]}" if self.criterion in names else "as given"

    def __repr__(self) -> str:
        alphas = ", ".join(f"{alpha:.4g}" for alpha in np.atleast_1d(self.alpha))
        return (
            f"Solution(alpha={alphas} by {self.criterion}, D={len(self.coef)}, "
            f"outcome={self.outcome.name})"
        )


Alpha = float | tuple[float, ...] | Literal["loo", "gcv", "evidence"]

PENALTY_CRITERIA = ("loo", "gcv", "evidence")  # Ways to choose the penalty


def as_alpha(alpha: Any, caller: str) -> Alpha:
    """Return a criterion's name, a penalty ≥ 0, or a tuple of them."""
    if isinstance(alpha, str):
        if alpha in PENALTY_CRITERIA:
            return alpha  # type: ignore[return-value]
        raise InvalidInput(
            f'{caller}: alpha must be "loo", "gcv", "evidence", a nonnegative number, or one '
            f"number per target; got {alpha!r}."
        )
    if isinstance(alpha, list | tuple) or np.ndim(alpha) == 1:
        values = tuple(nonnegative(a, caller, f"alpha[{i}]") for i, a in enumerate(alpha))
        if not values:
            raise InvalidInput(f"{caller}: alpha must be a number for each target; got none.")
        return values
    return nonnegative(alpha, caller, "alpha")


def choose_alpha(
    power: Float[Array, " t"],
    alpha: Alpha,
    per_target: bool,
    best: Callable[[int | None], float],
    constant: float,
) -> tuple[Float[Array, " c"], str]:
    """Return the penalties, one or one per target, and the criterion that chose them, or "given".

    ``best(target)`` returns the best penalty of a target, or of all targets for None; ``constant``
    is the penalty of constant targets.
    """
    if not isinstance(alpha, str):
        return as_alphas(alpha, len(power)), "given"
    varies = np.flatnonzero(power > 0)
    if not per_target:
        return np.array([best(None) if len(varies) else constant]), alpha
    chosen = np.full(len(power), constant)
    chosen[varies] = [best(int(target)) for target in varies]
    return chosen, alpha


def as_alphas(alpha: float | tuple[float, ...], targets: int) -> Float[Array, " t"]:
    """Return the given penalties as an array: one, or one per target."""
    if isinstance(alpha, tuple) and len(alpha) != targets:
        raise InvalidInput(
            f"alpha must be one number, or one for each of the {targets} targets; got {len(alpha)}."
        )
    return np.atleast_1d(np.asarray(alpha, np.float64))


class EvidenceOutcome(Sentence):
    """Outcome of the choice of noise and amplitude, from best to worst; ``str`` explains it."""

    CONSTANT_TARGET = (
        "A target is constant, so noise and amplitude cannot be estimated: the model predicts "
        "that constant, with the given noise and amplitude, or with zero."
    )
    SOLVED = "Solved: the evidence has its maximum inside the range of the noise."
    EDGE_LOW = (
        "The evidence is largest at the smallest noise that the precision resolves, for example "
        "because the target has no noise. Set noise=..., or use more features or a smaller "
        "lengthscale."
    )
    EDGE_HIGH = (
        "The evidence is largest at the largest noise that was tried: the features hardly explain "
        "the target. Try another kernel or lengthscale, scale the columns, or check the target."
    )
    SINGULAR = (
        "ZᵀZ + (noise/amplitude) I is singular to working precision. Raise noise, or let it be "
        'chosen with noise="evidence".'
    )
    FLOAT32_LIMITED = (
        "float32 products of the features do not resolve noise/amplitude, and the rows could not "
        'be read again for float64. Use precision="float64".'
    )

    @property
    def is_good(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (EvidenceOutcome.SOLVED, EvidenceOutcome.CONSTANT_TARGET)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Noise and amplitude of each target, and the log marginal likelihood there.

    Attributes
    ----------
    noise : array of shape (t,)
        σ², the variance of y about the function of the features, in units of y².
    amplitude : array of shape (t,)
        a², the factor of the kernel, in units of y².
    alpha : array of shape (t,)
        λ = σ²/a², the ridge penalty.
    log_likelihood : array of shape (t,)
        log p(y); with an intercept, of the contrasts of y.
    outcome : EvidenceOutcome
        Worst outcome among the targets; its text is the remedy.
    """

    noise: Float[Array, " t"]
    amplitude: Float[Array, " t"]
    alpha: Float[Array, " t"]
    log_likelihood: Float[Array, " t"]
    outcome: EvidenceOutcome

    def __repr__(self) -> str:
        noise, amplitude = (np.array2string(a, precision=4) for a in (self.noise, self.amplitude))
        return f"Evidence(noise={noise}, amplitude={amplitude}, outcome={self.outcome.name})"
