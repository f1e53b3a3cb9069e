"""Choice of the penalty of ridge regressions and processes, and its outcome."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from bochner._core.checks import nonnegative, positive
from bochner._core.shapes import Array, Float
from bochner._core.text import Sentence
from bochner.errors import InvalidInput
from bochner.solvers.ridge.eigen import Eigen, floor, left_out_path, penalties
from bochner.solvers.ridge.problem import amplitude_at, evidence, evidence_slope, freedom, gcv


class Outcome(Sentence):
    """Outcome of a fit, from best to worst; ``str(outcome)`` is its meaning and remedy."""

    CONSTANT_TARGET = "The target is constant: the model predicts that constant everywhere."
    SOLVED = (
        "Solved: rounding errors are far below alpha. If alpha was chosen, its criterion is no "
        "better at smaller and larger values."
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
    def good(self) -> bool:
        """Whether nothing needs to be done."""
        return Outcome.worst([self, Outcome.LEAST_NORM]) is Outcome.LEAST_NORM


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


def best_of(values: Float[Array, " p"], criterion: str, share: float = SAME) -> int:
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
    """Criteria along a path of penalties, (p,) float64; infinite or NaN if unknown."""

    alphas: Float[Array, " p"]  # ascending
    # Leave-one-out mean squared error of all rows. For a sample it is the mean, exact for each row,
    # times the ratio of mean squared residuals of all rows and the sample. Several targets: the
    # mean of their errors relative to their variances, times the mean variance.
    loo: Float[Array, " p"]
    gcv: Float[Array, " p"]  # generalised cross-validation, (RSS/W)/(1 − (1 + d_λ)/n)²
    evidence: Float[Array, " p"]  # log marginal likelihood at the best amplitude, of all targets
    effective_dimension: Float[Array, " p"]  # d_λ = Tr G(G + λI)⁻¹
    loo_rows: int = 0  # rows that the leave-one-out errors were computed for
    # Standard error of ``loo`` as an estimate of the expected squared error on new rows; it does
    # not include the choice of alpha and kernel by the same errors
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
    """Coefficients of a ridge regression on features, and how they were chosen."""

    coef: Float[Array, "D t"]  # β; of an exact fit one coefficient per row, (n, t)
    intercept: Float[Array, " t"]
    alpha: float | Float[Array, " t"]  # one, or one per target
    outcome: Outcome  # its text is the remedy
    path: Path
    criterion: str  # "loo", "gcv", "evidence" or "given"
    history: tuple[str, ...] = ()  # steps of the solver, in order
    # 1 − leverage (residual over leave-one-out error) of the rows of an exact fit, or of a sample
    # of rows that are read in passes; NaN where it is not computed
    slack: Float[Array, "n s"] | None = None
    iterations: int = 0  # of conjugate gradients

    def of_rows(self, order: Array) -> "Solution":
        """Return the solution of an exact fit with its rows in another order."""
        slack = None if self.slack is None else self.slack[order]
        return replace(self, coef=self.coef[order], slack=slack)

    def in_unit(self, unit: float) -> "Solution":
        """Return the solution for weights multiplied by ``unit``."""
        path = replace(self.path, alphas=self.path.alphas * unit)
        return replace(self, alpha=self.alpha * unit, path=path)

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


# --- The penalty along a path of eigenvalues -----------------------------------------------------

Alpha = float | tuple[float, ...] | Literal["loo", "gcv", "evidence"]

PENALTY_CRITERIA = ("loo", "gcv", "evidence")  # Ways to choose the penalty


def as_alpha(alpha: Any, who: str) -> Alpha:
    """Return a criterion's name, a penalty ≥ 0, or a tuple of them."""
    if isinstance(alpha, str):
        if alpha in PENALTY_CRITERIA:
            return alpha  # type: ignore[return-value]
        raise InvalidInput(
            f'{who}: alpha must be "loo", "gcv", "evidence", a nonnegative number, or one number '
            f"per target; got {alpha!r}."
        )
    if isinstance(alpha, list | tuple) or np.ndim(alpha) == 1:
        values = tuple(nonnegative(a, who, f"alpha[{i}]") for i, a in enumerate(alpha))
        if not values:
            raise InvalidInput(f"{who}: alpha must be a number for each target; got none.")
        return values
    return nonnegative(alpha, who, "alpha")


def given_alpha(alpha: Alpha) -> float | None:
    """Return the smallest given penalty; None if a criterion chooses it."""
    return None if isinstance(alpha, str) else float(np.min(alpha))


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
    "gcv". If the outcome is FLOAT32_LIMITED, form the moments in float64 and call again.
    """
    given = None if isinstance(alpha, str) else as_alphas(alpha, len(eigen.power))
    alphas = penalties(eigen)
    if given is not None and np.any(given > 0):
        alphas = np.unique(np.append(alphas, given[given > 0]))
    loo = None if rows is None else left_out_path(eigen, rows, alphas)
    loo = loo if loo is not None and loo.rows else None
    along = eigen.at(alphas)
    of_targets = {"gcv": gcv(eigen, along), "evidence": evidence(eigen, along)}
    of_loo = np.full(len(alphas), np.nan), 0, None
    if loo is not None:
        of_targets["loo"] = loo.mean_squares
        of_loo = pool(loo.mean_squares, eigen.power / eigen.weight), loo.rows, loo.deviation
    path = Path(
        alphas,
        of_loo[0],
        pool(of_targets["gcv"], eigen.power),
        of_targets["evidence"][:, eigen.power > 0].sum(axis=1),
        (eigen.values[:, None] / (eigen.values[:, None] + alphas)).sum(axis=0),
        *of_loo[1:],
    )
    name: Any = "gcv" if alpha == "loo" and loo is None else alpha

    def best(target: int | None) -> float:
        place = path.best(name) if target is None else best_of(of_targets[name][:, target], name)
        return float(alphas[place])

    chosen, criterion = given, "given"
    if chosen is None:
        chosen, criterion = choose_alpha(eigen.power, name, per_target, best, float(alphas[-1]))
    used = chosen if len(chosen) == len(eigen.power) > 1 else float(chosen[0])
    coef, outcome = eigen.coefficients(used), _outcome(eigen, path, chosen, criterion)
    return Solution(coef, means[1] - means[0] @ coef, used, outcome, path, criterion)


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


def _outcome(eigen: Eigen, path: Path, chosen: Float[Array, " c"], criterion: str) -> Outcome:
    """Return the worst outcome of the targets that vary."""
    varies = eigen.power > 0
    if not np.any(varies):
        return Outcome.CONSTANT_TARGET
    single, low, shared = eigen.precision == "float32", floor(eigen), len(chosen) == 1
    D, rank = len(eigen.vectors), np.count_nonzero(eigen.values > eigen.noise)
    loses_nothing = not single and rank >= min(eigen.rows - eigen.centred, D)  # at alpha = 0

    def of(alpha: float) -> Outcome:
        limited = Outcome.FLOAT32_LIMITED if single else Outcome.SINGULAR
        if criterion == "given" and alpha == 0 and loses_nothing:
            return Outcome.SOLVED if rank == D else Outcome.LEAST_NORM
        if criterion == "given":
            return limited if alpha < low and eigen.values[0] < low else Outcome.SOLVED
        if alpha > path.alphas[path.lowest(criterion)]:
            return Outcome.EDGE_HIGH if alpha >= path.alphas[-1] else Outcome.SOLVED
        if not single:
            return Outcome.EDGE_LOW
        return Outcome.SOLVED if shared and path.level(criterion) else limited

    return of(float(chosen[0])) if shared else Outcome.worst(map(of, chosen[varies].tolist()))


# --- Noise and amplitude of a Gaussian process on features, from moments alone -------------------
#
# y = b + Zβ + ε with β ~ N(0, a²I), ε_i ~ N(0, σ²/w_i) and λ = σ²/a². With G = V diag(μ) Vᵀ,
# B = Σ w z y, P = Σ w y² (all about the means) and c = VᵀB, ν = n − 1 degrees of freedom (b has a
# flat prior: its contrasts are integrated, as in restricted maximum likelihood) or ν = n without an
# intercept,
#
#     q(λ) = (P − Σ c²/(μ + λ))/λ,     log |ZZᵀ + λI| = Σ log(μ + λ) + (ν − D) log λ
#
# in the evidence of :mod:`~.problem`. The only unknown is λ for each target, where its slope is
# zero (Rasmussen and Williams 2006, eq. 2.30; with an intercept eq. 2.45 and ½ log n).


class EvidenceOutcome(Sentence):
    """Outcome of the choice of noise and amplitude, from best to worst; ``str`` explains it."""

    CONSTANT_TARGET = (
        "A target is constant, so noise and amplitude cannot be estimated: the model predicts "
        "that constant, with the given noise and amplitude, or with zero."
    )
    SOLVED = "Solved: the evidence has its maximum inside the range of noise that was searched."
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
    def good(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (EvidenceOutcome.SOLVED, EvidenceOutcome.CONSTANT_TARGET)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Noise and amplitude of each target, and the log marginal likelihood there."""

    noise: Float[Array, " t"]  # σ², the variance of y about the features' function, in units of y²
    amplitude: Float[Array, " t"]  # a², the factor of the kernel, in units of y²
    alpha: Float[Array, " t"]  # λ = σ²/a², the ridge penalty
    log_likelihood: Float[Array, " t"]  # log p(y); of the contrasts of y if there is an intercept
    outcome: EvidenceOutcome  # the worst among the targets; its text is the remedy

    def __repr__(self) -> str:
        noise, amplitude = (np.array2string(a, precision=4) for a in (self.noise, self.amplitude))
        return f"Evidence(noise={noise}, amplitude={amplitude}, outcome={self.outcome.name})"


def as_variance(value: object, name: str) -> float | None:
    """Return a given noise ≥ 0 or amplitude > 0; None for "auto" and "evidence"."""
    if isinstance(value, str):
        if value in ("auto", "evidence"):
            return None
        raise InvalidInput(
            f'GaussianProcessRegressor: {name} must be "auto", "evidence" or a number, the '
            f"variance in units of y²; got {value!r}."
        )
    check = nonnegative if name == "noise" else positive
    return check(value, "GaussianProcessRegressor", name)


def maximise_evidence(
    eigen: Eigen, noise: float | None = None, amplitude: float | None = None
) -> Evidence:
    """Return the noise and amplitude of largest marginal likelihood, for each target.

    λ is the best of :func:`~.eigen.penalties`, then the root of the slope between its neighbours.
    """
    targets = (eigen.target(i) for i in range(len(eigen.power)))
    maxima, outcomes = zip(*(_maximise(one, noise, amplitude) for one in targets), strict=True)
    noises, amplitudes, alpha, log_p = np.array(maxima).T
    return Evidence(noises, amplitudes, alpha, log_p, EvidenceOutcome.worst(outcomes))


def _maximise(
    eigen: Eigen, noise: float | None, amplitude: float | None
) -> tuple[tuple[float, float, float, float], EvidenceOutcome]:
    """Return (σ², a², λ, log p), see :class:`Evidence`, and the outcome of one target."""
    float32, low, outcome = eigen.precision == "float32", floor(eigen), EvidenceOutcome.SOLVED
    limited = EvidenceOutcome.FLOAT32_LIMITED if float32 else EvidenceOutcome.SINGULAR
    alphas, fixed, given = penalties(eigen), noise, (noise, amplitude)
    if noise is not None and amplitude is not None:
        alpha, given = max(noise / amplitude, low if float32 else 0.1 * low), (None, amplitude)
        if noise / amplitude < low and eigen.values[0] < low:
            outcome = limited
    elif not (eigen.power[0] > 0 and freedom(eigen) > 0):
        top, constant = max(float(eigen.values[-1]), 1.0), EvidenceOutcome.CONSTANT_TARGET
        return (noise or 0.0, amplitude or 0.0, top, float("nan")), constant
    elif noise == 0:
        alpha, given = low, (None, None)
    else:
        if noise is not None and low < alphas[0]:
            alphas = np.concatenate([[low], alphas])
        best = int(np.argmax(evidence(eigen, eigen.at(alphas), *given)[:, 0]))
        ends = np.log(alphas[[max(best - 1, 0), min(best + 1, len(alphas) - 1)]])

        def slope(log_alpha: float) -> float:
            return float(evidence_slope(eigen, eigen.at(np.exp([log_alpha])), *given)[0, 0])

        alpha, fixed = float(alphas[best]), None
        if slope(ends[0]) > 0 > slope(ends[1]):
            alpha = float(np.exp(brentq(slope, *ends, xtol=1e-13, rtol=1e-13)))
        if alpha <= alphas[0] and noise is not None:
            # At the smallest resolved λ, σ²/λ would be proportional to the given noise, so the
            # amplitude is the best one at this λ.
            directions = min(eigen.rows - eigen.centred, len(eigen.vectors))
            all_resolved = np.count_nonzero(eigen.values > low) >= directions
            outcome = limited if float32 or not all_resolved else outcome
            alpha, fixed, given = low, noise, (None, None)
        elif alpha <= alphas[0]:
            outcome = limited if float32 else EvidenceOutcome.EDGE_LOW
        elif alpha >= alphas[-1]:
            outcome = EvidenceOutcome.EDGE_HIGH
    there = eigen.at([alpha])
    a2, log_p = (float(f(eigen, there, *given)[0, 0]) for f in (amplitude_at, evidence))
    return (alpha * a2 if fixed is None else fixed, a2, alpha, log_p), outcome
