"""Ridge regression from the kernel matrix of its rows: one Cholesky factor a penalty, no features.

With A = √w K √w + αI, s = √w and M = A⁻¹, or where an intercept is fitted
M = A⁻¹ − A⁻¹s sᵀA⁻¹/sᵀA⁻¹s, the inverse on all directions but s:

    u = M √w y,   f(x) = Σ √w_i u_i k(x, x_i) + b,   residuals r = α u/√w,

    leave-one-out:  e_i = r_i/s_i,  s_i = (W_i − 1 + α M_ii)/W_i,  W_i = max(w_i, 1),
    a fold k:       √w e = M_kk⁻¹ u_k,
    freedom:        tr(I − H) = α tr M,

so each criterion has its slope in log α for n² operations more: ∂u/∂α = −Mu, ∂M/∂α = −M². A walk
along the slope needs three to six penalties where a path of eigenvalues has forty, and a factor
takes a tenth of the time of the eigenvectors.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve
from scipy.linalg.lapack import dpotri

from bochner._core.blas import cho_factor, cholesky, mirror, one_thread, product
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.evidence import KernelScore
from bochner.solvers.ridge.path import Alpha, as_given
from bochner.solvers.ridge.solution import Outcome, Path, Solution, pooled

#: Penalties that are tried, as shares of the trace of √w K √w.
LOWEST, HIGHEST = 1e-12, 10.0

#: Where the walk starts, as a share of the mean of w k(x, x).
FIRST = 0.03

#: Steps of log α on the way to a change of sign: the first, and those after it.
STEP, LONGER = np.log(10.0), np.log(100.0)

#: Penalties of a walk, at most, and the slope ∂log(criterion)/∂log α that is level.
MOST, LEVEL = 14, 3e-3

#: Rows that a penalty is chosen by, at most: factors and inverses of that many.
PENALTY_ROWS = 2048

#: From so many rows on, factors are of float32; refinements of what they give, and its residual.
SINGLE_FROM, REFINEMENTS, REFINED = 2048, 12, 1e-12

#: A row that its own fit leaves nothing of, such as a row alone beside an intercept.
LEAST_SLACK = 1e-100

#: Below this numbers are no divisors.
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class KernelRows:
    """The kernel matrix of rows, their targets and weights.

    Attributes
    ----------
    K : (n, n)
    y : (n, t)
    w : (n,)
        Positive.
    centred : bool
        Whether an intercept is fitted.
    folds : tuple of (m,)
        Rows of each fold, where folds choose the penalty.
    """

    K: Float[Array, "n n"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    centred: bool = True
    folds: tuple[Array, ...] = ()

    @cached_property
    def root(self) -> Float[Array, " n"]:
        """√w."""
        return np.sqrt(self.w)

    @cached_property
    def weighted(self) -> Float[Array, "n n"]:
        """√w K √w."""
        if np.all(self.w == 1):
            return self.K
        return self.root[:, None] * self.K * self.root

    @property
    def count(self) -> float:
        """Rows that the data are worth: W where weights count copies, n where they are shares."""
        return max(float(self.w.sum()), len(self.w))

    @cached_property
    def trace(self) -> float:
        """Of √w K √w."""
        return max(float(np.trace(self.weighted)), TINY)

    @cached_property
    def power(self) -> Float[Array, " t"]:
        """Σ w (y − ȳ)² of each target; without an intercept about zero."""
        mean = self.w @ self.y / self.w.sum() if self.centred else 0.0
        return self.w @ (self.y - mean) ** 2

    def take(self, some: Array) -> "KernelRows":
        """Return these rows; folds are not kept."""
        part = self.K[np.ix_(some, some)], self.y[some], self.w[some]
        return KernelRows(*part, self.centred)

    def coefficients(
        self, alpha: float | Float[Array, " t"]
    ) -> tuple[Float[Array, "n t"], Float[Array, " t"]]:
        """Return coefficients and intercept at a penalty, or one for each target; n³/3 for each.

        Of many rows the factor is of float32, in half of the time, where a few refinements in
        float64 bring all digits back.

        Raises
        ------
        LinAlgError
            If rounding leaves A not positive.
        """
        root, one = self.root[:, None], self.root[:, None]
        each = np.broadcast_to(np.asarray(alpha, np.float64), self.y.shape[1])
        coef, intercept = np.empty(self.y.shape), np.zeros(self.y.shape[1])
        for value in np.unique(each):
            own = np.flatnonzero(each == value)
            right = np.hstack([root * self.y[:, own], one])
            u = self._refined(float(value), right)
            u, p = u[:, :-1], u[:, -1:]
            if self.centred:
                intercept[own] = self.root @ u / (self.root @ p)
                u = u - p * intercept[own]
            coef[:, own] = root * u
        return coef, intercept

    @one_thread()
    def _refined(self, alpha: float, right: Float[Array, "n r"]) -> Float[Array, "n r"]:
        """Return A⁻¹ of these columns."""
        if len(right) > SINGLE_FROM:
            found = self._by_single(alpha, right)
            if found is not None:
                return found
        A = self._shifted(alpha, np.float64)
        factor = cho_factor(A, True, overwrite_a=True, check_finite=False)
        return cho_solve(factor, right, check_finite=False)

    def _by_single(self, alpha: float, right: Float[Array, "n r"]) -> Float[Array, "n r"] | None:
        """Refine what a factor of float32 gives; None if that does not converge fast."""
        A = self._shifted(alpha, np.float32)
        try:
            factor = cho_factor(A, True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        size, u, before = np.linalg.norm(right, axis=0), np.zeros_like(right), np.inf
        left = right
        for _ in range(REFINEMENTS):
            u += cho_solve(factor, left.astype(np.float32), check_finite=False)
            left = right - self.weighted @ u - alpha * u
            off = float((np.linalg.norm(left, axis=0) / size).max())
            if off <= REFINED:
                return u
            if not off < 0.3 * before:
                return None
            before = off
        return None

    def _shifted(self, alpha: float, dtype: Any) -> Float[Array, "n n"]:
        A = np.array(self.weighted, dtype, order="F")
        A[np.diag_indices(len(A))] += alpha
        return A

    @one_thread()  # factors of few rows follow one another: threads would wait for one another
    def at(self, alpha: float) -> "Dual":
        """Return the ridge regression at one penalty; O(n³).

        Raises
        ------
        LinAlgError
            If rounding leaves A not positive.
        """
        A = self._shifted(alpha, np.float64)
        U = cholesky(A, overwrite_a=True, check_finite=False)
        log_det = 2 * float(np.log(np.diag(U)).sum())
        inverse = mirror(dpotri(U, overwrite_c=True)[0])
        if self.centred:
            p = inverse @ self.root
            share = max(float(self.root @ p), TINY)
            inverse -= np.outer(p, p / share)
            log_det += float(np.log(share / self.w.sum()))
        return Dual(self, alpha, inverse, inverse @ (self.root[:, None] * self.y), log_det)


@dataclass(frozen=True, eq=False)
class Dual:
    """A ridge regression on the kernel matrix of its rows, at one penalty.

    Attributes
    ----------
    rows : KernelRows
    alpha : float
    inverse : (n, n)
        M.
    u : (n, t)
    log_det : float
        Of A, on all directions but √w where an intercept is fitted.
    """

    rows: KernelRows
    alpha: float
    inverse: Float[Array, "n n"] = field(repr=False)
    u: Float[Array, "n t"] = field(repr=False)
    log_det: float

    @cached_property
    def coef(self) -> Float[Array, "n t"]:
        """Coefficients of the kernel and each row."""
        return self.rows.root[:, None] * self.u

    @cached_property
    def residuals(self) -> Float[Array, "n t"]:
        """Of the rows, y − f."""
        return self.alpha * self.u / self.rows.root[:, None]

    @cached_property
    def intercept(self) -> Float[Array, " t"]:
        """b: what is left of the mean."""
        rows = self.rows
        if not rows.centred:
            return np.zeros(rows.y.shape[1])
        left = rows.root @ (rows.weighted @ self.u)
        return (rows.w @ (rows.y - self.residuals) - left) / rows.w.sum()

    @cached_property
    def slack(self) -> Float[Array, " n"]:
        """s: what of a row its own fit leaves."""
        above = np.maximum(self.rows.w, 1.0)
        return np.maximum((above - 1 + self.alpha * np.diag(self.inverse)) / above, LEAST_SLACK)

    @cached_property
    def left_out(self) -> Float[Array, "n t"]:
        """Leave-one-out errors."""
        return self.residuals / self.slack[:, None]

    @cached_property
    def _falling(self) -> Float[Array, "n t"]:
        """−∂u/∂α."""
        return self.inverse @ self.u

    def loo(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return mean squared leave-one-out errors, and their slopes in log α."""
        w, alpha, above = self.rows.w, self.alpha, np.maximum(self.rows.w, 1.0)
        M = self.inverse
        by_diagonal = -np.einsum("ij,ij->i", M, M)
        slack = (np.diag(M) + alpha * by_diagonal) * alpha / above
        residuals = alpha * (self.u - alpha * self._falling) / self.rows.root[:, None]
        e, s = self.left_out, self.slack[:, None]
        slope = 2 * w @ (e * (residuals - e * slack[:, None]) / s)
        return w @ e**2 / w.sum(), slope / w.sum()

    def gcv(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return (RSS/W)/(tr(I − H)/n)², and its slope."""
        rows, alpha, M = self.rows, self.alpha, self.inverse
        free = max(self.freedom, LEAST_SLACK)
        slope = alpha * float(np.trace(M)) - alpha**2 * float(np.einsum("ij,ij->", M, M))
        u, falling = self.u, self._falling
        rss = alpha**2 * (u**2).sum(axis=0)
        by_rss = 2 * rss - 2 * alpha**3 * (u * falling).sum(axis=0)
        unit = (rows.count / free) ** 2 / rows.w.sum()
        return unit * rss, unit * (by_rss - 2 * rss * slope / free)

    def evidence(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return minus twice the log marginal likelihood per row, amplitudes profiled; its slope.

        Of each target; see :mod:`bochner.solvers.ridge.evidence`.
        """
        freedom = max(self.rows.count - self.rows.centred, 1.0)
        n = len(self.rows.w) - self.rows.centred
        q = np.maximum((self.rows.root[:, None] * self.rows.y * self.u).sum(axis=0), TINY)
        log_det = self.log_det + (freedom - n) * np.log(self.alpha)
        value = freedom * (1 + np.log(2 * np.pi * q / freedom)) + log_det
        by_q = -self.alpha * (self.u**2).sum(axis=0) * freedom / q
        slope = by_q + self.alpha * float(np.trace(self.inverse)) + freedom - n
        return value / freedom, slope / freedom

    def kfold(self) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Return mean squared errors of folds, each predicted from the others; slopes."""
        M, errors, slope = self.inverse, 0.0, 0.0
        for fold in self.rows.folds:
            own = M[np.ix_(fold, fold)]
            factor = cho_factor((own + own.T) / 2, True)
            e = cho_solve(factor, self.u[fold])
            bent = product(np.ascontiguousarray(M[fold]), np.ascontiguousarray(M[:, fold])) @ e
            errors = errors + (e**2).sum(axis=0)
            by = cho_solve(factor, bent - self._falling[fold])
            slope = slope + 2 * self.alpha * (e * by).sum(axis=0)
        return errors / self.rows.w.sum(), slope / self.rows.w.sum()

    @cached_property
    def freedom(self) -> float:
        """tr(I − H): of all rows that the data are worth, less the intercept."""
        rows = self.rows
        more = rows.count - len(rows.w)
        return more + self.alpha * float(np.trace(self.inverse))


# --- a criterion and its gradient in the kernel matrix -------------------------------------------
#
# With J = Σ_t c_t Σ_i w_i e_it², P = ∂J/∂u, q = ∂J/∂diag M and dM = −M dA M,
#
#     ∂J/∂A = −½(M P uᵀ + u PᵀM) − M diag(q) M.


def kernel_leave_one_out(rows: KernelRows, alpha: float) -> KernelScore:
    """Return the log of the mean squared leave-one-out error, relative to the targets' variances.

    And its gradient in K; O(n³), a third of which is the gradient's.

    Raises
    ------
    LinAlgError
        If rounding leaves A not positive.
    """
    dual, w = rows.at(alpha), rows.w
    e, s, above = dual.left_out, dual.slack, np.maximum(rows.w, 1.0)
    varies = rows.power > 0
    shares = np.where(varies, 1 / np.where(varies, rows.power, 1.0), 0.0) / max(varies.sum(), 1)
    squares = w * (e**2 @ shares)
    total = max(float(squares.sum()), TINY)
    by_u = 2 * alpha * shares * (rows.root / s)[:, None] * e
    by_diagonal = -2 * alpha * squares / (s * above)
    inverse = dual.inverse
    outer = -(inverse @ by_u) @ dual.u.T
    outer = 0.5 * (outer + outer.T) - product(inverse, by_diagonal[:, None] * inverse)
    by_alpha = float(np.trace(outer)) + float((by_u * dual.u).sum()) / alpha
    by_alpha += float(by_diagonal @ np.diag(inverse)) / alpha
    by_kernel = rows.root[:, None] * outer * rows.root
    return KernelScore(float(np.log(total)), by_kernel / total, alpha * by_alpha / total)


# --- the walk along the slope --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Penalties:
    """Penalties that were tried, and the regressions at them; each is factored once."""

    rows: KernelRows
    tried: dict[float, "AtPenalty | None"] = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest log α."""
        return np.log(LOWEST * self.rows.trace), np.log(HIGHEST * self.rows.trace)

    def at(self, alpha: float) -> "AtPenalty | None":
        """Return what a penalty gives; None where rounding leaves nothing of it."""
        if alpha not in self.tried:
            try:
                self.tried[alpha] = AtPenalty.of(self.rows.at(alpha))
            except LinAlgError:
                self.tried[alpha] = None
        return self.tried[alpha]

    def best(self, criterion: str, start: float, target: int | None = None) -> float:
        """Return the penalty at which a criterion is least, of one target or of all."""

        def slope(log_alpha: float) -> tuple[float, float]:
            found = self.at(float(np.exp(log_alpha)))
            if found is None:
                return np.inf, -np.inf
            value, slope = found.criteria[criterion]
            if criterion == "evidence":  # its logarithm is what is minimised already
                some = self.rows.power > 0 if target is None else target
                return float(value[some].sum()), float(slope[some].sum())
            if target is None:
                units = self.rows.power
                value, slope = (pooled(a[None], units) for a in (value, slope))
                return float(np.log(max(value[0], TINY))), float(slope[0] / max(value[0], TINY))
            value, slope = max(float(value[target]), TINY), float(slope[target])
            return float(np.log(value)), slope / value

        return float(np.exp(least_along(slope, float(np.log(start)), *self.bounds)))


@dataclass(frozen=True, eq=False)
class AtPenalty:
    """What is kept of a regression at one penalty: n numbers a target, not the inverse."""

    coef: Float[Array, "n t"]
    intercept: Float[Array, " t"]
    residual_variance: Float[Array, " t"]
    effective_dimension: float
    deviation: float  # standard error of the pooled leave-one-out error
    criteria: dict[str, tuple[Float[Array, " t"], Float[Array, " t"]]]

    @staticmethod
    @one_thread()
    def of(dual: Dual) -> "AtPenalty":
        """Take what is needed."""
        rows = dual.rows
        criteria = {"loo": dual.loo(), "gcv": dual.gcv(), "evidence": dual.evidence()}
        if rows.folds:
            criteria["kfold"] = dual.kfold()
        each = pooled(dual.left_out**2, rows.power / rows.w.sum())
        mean = float(rows.w @ each / rows.w.sum())
        spread = float(rows.w @ (each - mean) ** 2 / rows.w.sum())
        return AtPenalty(
            dual.coef,
            dual.intercept,
            rows.w @ dual.residuals**2 / rows.w.sum(),
            rows.count - rows.centred - dual.freedom,
            np.sqrt(spread / rows.count),
            criteria,
        )


def least_along(
    function: Callable[[float], tuple[float, float]], start: float, low: float, high: float
) -> float:
    """Return where a function of one number is least on the way down from the start.

    ``function`` returns a value and its slope, infinite where it has none. Steps grow until the
    slope changes its sign; then cubics through both ends.
    """
    x = float(np.clip(start, low, high))
    here = function(x)
    best, count, step = (here[0], x), 1, STEP
    ends: dict[bool, tuple[float, tuple[float, float]]] = {here[1] > 0: (x, here)}
    while count < MOST and abs(here[1]) > LEVEL:
        if len(ends) == 2:
            x = _between(*ends[False], *ends[True])
        else:
            x, step = float(np.clip(x - np.sign(here[1]) * step, low, high)), LONGER
        if x in (end[0] for end in ends.values()):
            break
        here, count = function(x), count + 1
        ends[here[1] > 0] = x, here
        best = min(best, (here[0], x))
        if len(ends) == 2 and abs(ends[True][0] - ends[False][0]) < 0.05:
            break
    return best[1]


def _between(a: float, left: tuple[float, float], b: float, right: tuple[float, float]) -> float:
    """Return the least of the cubic with these values and slopes at both ends, well inside."""
    width, inside = b - a, 0.5
    if np.all(np.isfinite([*left, *right])):
        d = left[1] + right[1] - 3 * (left[0] - right[0]) / (a - b)
        root = np.sqrt(max(d * d - left[1] * right[1], 0.0))
        share = (right[1] + root - d) / (right[1] - left[1] + 2 * root + TINY)
        inside = 1 - share if np.isfinite(share) else 0.5
    return a + float(np.clip(inside, 0.1, 0.9)) * width


# --- the solution --------------------------------------------------------------------------------


def solve_kernel(
    rows: KernelRows, alpha: Alpha, *, per_target: bool = False, start: float | None = None
) -> Solution:
    """Return the coefficients of the kernel and each row at a given penalty, or at the best.

    Parameters
    ----------
    rows : KernelRows
    alpha : float, (t,) or {"loo", "gcv", "evidence", "kfold"}
        Above 0.
    per_target : bool, default False
        Whether each target has the penalty that is best for it alone.
    start : float, optional
        Where a penalty is looked for first.

    Notes
    -----
    O(n³) for each penalty, three to six of them where it is chosen; memory 3 n². Of more than 2048
    rows it is chosen by the first 2048, alpha being the variance of the noise whatever n, and there
    is one factor of all: the path is that of those rows.
    """
    if len(rows.w) > PENALTY_ROWS:
        return _solve_many(rows, alpha, per_target, start)
    penalties = Penalties(rows)
    first = FIRST * rows.trace / len(rows.w) if start is None else start
    varies = np.flatnonzero(rows.power > 0)
    criterion = alpha if isinstance(alpha, str) else "given"
    if criterion == "kfold" and not rows.folds:
        criterion = "gcv"
    if not isinstance(alpha, str):
        chosen = as_given(alpha, len(rows.power))
    elif not len(varies):
        chosen = np.array([float(np.exp(penalties.bounds[1]))])
    elif per_target:
        chosen = np.full(len(rows.power), float(np.exp(penalties.bounds[1])))
        chosen[varies] = [penalties.best(criterion, first, int(i)) for i in varies]
    else:
        chosen = np.array([penalties.best(criterion, first)])
    return _solution(penalties, chosen, criterion)


def _solve_many(rows: KernelRows, alpha: Alpha, per_target: bool, start: float | None) -> Solution:
    """Choose the penalty by some of the rows, and factor the matrix of all once."""
    kept = np.arange(PENALTY_ROWS)
    folds = tuple(own for fold in rows.folds if len(own := fold[fold < PENALTY_ROWS]))
    few = replace(rows.take(kept), folds=folds if len(folds) > 1 else ())
    found = solve_kernel(few, alpha, per_target=per_target, start=start)
    coef, intercept = rows.coefficients(found.alpha)
    residuals = np.asarray(found.alpha) * coef / rows.w[:, None]
    variance = rows.w @ residuals**2 / rows.w.sum()
    return replace(found, coef=coef, intercept=intercept, residual_variance=variance)


def _solution(penalties: Penalties, chosen: Float[Array, " c"], criterion: str) -> Solution:
    rows = penalties.rows
    tried = [penalties.at(float(alpha)) for alpha in chosen]
    outcome = _outcome(penalties, chosen, criterion)
    found = [each for each in tried if each is not None]
    if len(found) < len(tried):
        low = float(np.exp(penalties.bounds[0]))
        raised = np.maximum(chosen, 10 * max(low, float(chosen.min())))
        return replace(_solution(penalties, raised, criterion), outcome=outcome)
    t = len(rows.power)
    found = found * t if len(found) == 1 else found
    take = [(each, i) for i, each in enumerate(found)]
    return Solution(
        np.stack([each.coef[:, i] for each, i in take], axis=1),
        np.array([each.intercept[i] for each, i in take]),
        chosen if len(chosen) == t > 1 else float(chosen[0]),
        outcome,
        _path(penalties),
        criterion,
        np.array([each.residual_variance[i] for each, i in take]),
    )


def _path(penalties: Penalties) -> Path:
    rows, tried = penalties.rows, penalties.tried
    alphas = np.array(sorted(alpha for alpha, found in tried.items() if found is not None))
    found = [each for alpha in alphas if (each := tried[alpha]) is not None]

    def values(name: str) -> Float[Array, " p"]:
        return pooled(np.stack([each.criteria[name][0] for each in found]), rows.power)

    freedom, varies = max(rows.count - rows.centred, 1.0), rows.power > 0
    evidence = np.stack([each.criteria["evidence"][0] for each in found])[:, varies]
    return Path(
        alphas,
        values("loo"),
        values("gcv"),
        -0.5 * freedom * evidence.sum(axis=1),
        np.array([each.effective_dimension for each in found]),
        len(rows.w),
        values("kfold") if rows.folds else None,
        np.array([each.deviation for each in found]),
    )


def _outcome(penalties: Penalties, chosen: Float[Array, " c"], criterion: str) -> Outcome:
    rows = penalties.rows
    if not np.any(rows.power > 0):
        return Outcome.CONSTANT_TARGET
    alphas = chosen if len(chosen) == 1 else chosen[rows.power > 0]
    low, high = np.exp(penalties.bounds)
    if any(penalties.tried.get(float(alpha)) is None for alpha in alphas):
        return Outcome.SINGULAR
    if criterion != "given" and np.any(alphas <= 1.001 * low):
        return Outcome.EDGE_LOW
    if criterion != "given" and np.any(alphas >= 0.999 * high):
        return Outcome.EDGE_HIGH
    return Outcome.SOLVED
