"""The objective and its minimum, sums over rows, and line searches.

For every column of targets, f = Zβ + b:

    minimise  Σᵢ wᵢ ℓ(yᵢ, fᵢ) + (alpha/2) ‖β‖² + drift·b

Parameters θ are (t, D + 1): one row per column of targets, β and then b.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import getitem
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dgemv, sgemv
from scipy.optimize import minimize

from bochner._core.arrays import add
from bochner._core.blas import factor, product, solve_factored
from bochner._core.shapes import Array, Bool, Float
from bochner._core.text import Sentence
from bochner.solvers.cg import inner
from bochner.solvers.convex.losses import Loss, weigh
from bochner.solvers.factorisations import retry

TINY = 1e-300  # Least divisor, and least entry of a diagonal
TOL = 3e-3  # Tolerance of fits that compare penalties

# --- algorithms, outcomes and the minimum ---------------------------------------------------------

# "cholesky": Newton steps by factors of the Hessian, summed again in each step, or of the kernel
# matrix of the active rows. "cholesky updates": Newton steps by factors of Hessians, updated by the
# rows whose curvature changed. "conjugate gradients": preconditioned products with Hessians, one
# pass for all columns. "libsvm": sequential minimal optimisation of the dual.
Algorithm = Literal["cholesky", "cholesky updates", "conjugate gradients", "libsvm"]


class Convergence(Sentence):
    """Outcome of a minimisation; ``str(outcome)`` is its meaning and remedy."""

    CONVERGED = "Converged: the relative error of the objective is at most tol."
    ROUNDED = (
        "Converged as far as rounding allows: no step lowers the objective by more than rounding "
        'errors of the features. Set precision="float64" for smaller ones.'
    )
    MOST_STEPS = (
        "Not converged: the limit of Newton steps (max_iter) or of LIBSVM's moves was reached, and "
        "the objective still falls. Raise max_iter or tol, or raise the penalty (a smaller C, a "
        "larger alpha)."
    )
    UNBOUNDED = (
        "Without a penalty the loss is nearly zero: the classes are separable, or the target is "
        "fitted exactly. No finite coefficients are optimal; the fit returns one of many "
        "solutions. Set a penalty: a finite C, or an alpha above zero."
    )

    @property
    def is_good(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (Convergence.CONVERGED, Convergence.ROUNDED)


@dataclass(frozen=True, eq=False)
class Optimum:
    """Minimum of the objective.

    Attributes
    ----------
    coef : array of shape (D, t)
        β.
    intercept : array of shape (t,)
    alpha : float or array of shape (t,)
    objective : float
        Value of the objective, summed over columns; of a nonsmooth loss itself, not smoothed.
    gap : float
        Bound of the objective above its minimum; 0 for smooth losses.
    outcome : Convergence
        Its text is the remedy.
    iterations : int
    algorithm : str or None
        The algorithm used.
    """

    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    alpha: Any
    objective: float
    gap: float
    outcome: Convergence
    iterations: int
    algorithm: Algorithm | None = None

    def __repr__(self) -> str:
        return (
            f"Optimum(objective={self.objective:.6g}, D={len(self.coef)}, iterations="
            f"{self.iterations}, outcome={self.outcome.name}, algorithm={self.algorithm!r})"
        )


# --- rows, and sums over them --------------------------------------------------------------------
#
# Rows of a problem are a FeatureBlock, a table whose features are computed in blocks, or a kernel
# matrix. Iteration yields blocks with Z (b, D), y, w (b,) or None, and ``start``, the number of the
# first row. ``sum`` makes one pass, perhaps in workers. ``is_cached``: features are computed once.

Rows = Any


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """Features Z of a block of rows, or of all rows; X holds the rows themselves, if needed."""

    Z: Array
    y: Array | None = None
    w: Array | None = None
    start: int = 0
    X: Any = None

    is_cached: ClassVar[bool] = True

    @property
    def n_features(self) -> int:
        return self.Z.shape[1]

    def __iter__(self) -> Iterator["FeatureBlock"]:
        for i in range(0, len(self.Z), 2048):
            Z, y, w = (None if a is None else a[i : i + 2048] for a in (self.Z, self.y, self.w))
            yield FeatureBlock(Z, y, w, self.start + i)

    def sum(self, summand: Any) -> Any:
        return reduce(summand.add, self, None)


class DualRows:
    """Rows with a kernel matrix K; solvers use its products, and functions are K c + b."""

    system: ClassVar[Any]  # (problem, curvatures) to a function from a gradient to a descent step
    is_cached: ClassVar[bool] = True  # whether a system that serves several steps saves time
    n_features = property(len)  # number of coefficients of a column


Gradient = tuple[Array, Array]  # r and s: the gradient of the objective is K r in c, and s in b
System = Callable[[Gradient], "State"]  # A descent step


def places(block: Any, first: int = 0) -> slice:
    """Return the positions of a block's rows among all rows, or among the rows from ``first``."""
    start = block.start - first
    return slice(start, start + len(block.Z))


def forward(Z: Float[Array, "b D"], theta: Float[Array, "t p"]) -> Float[Array, "b t"]:
    """Return Z β + b in float64; one or two columns by products with vectors."""
    coef = theta[:, :-1].astype(Z.dtype)
    if len(coef) > 2:
        return product(Z, coef.T) + theta[:, -1]
    gemv = sgemv if Z.dtype == np.float32 else dgemv
    return np.stack([gemv(1.0, Z.T, c, trans=1) for c in coef], axis=1) + theta[:, -1]


def backward(Z: Float[Array, "b D"], R: Float[Array, "b t"]) -> Float[Array, "t p"]:
    """Return Rᵀ [Z 1] in float64."""
    right = np.ascontiguousarray(R.T, dtype=Z.dtype)
    if len(right) > 2:
        sums = product(right, Z)
    else:
        gemv = sgemv if Z.dtype == np.float32 else dgemv
        sums = np.stack([gemv(1.0, Z.T, r) for r in right])
    return np.column_stack([sums.astype(np.float64), R.sum(axis=0)])


@dataclass(frozen=True, eq=False)
class RowSum:
    """Sum over blocks of a function of the features and of arrays with one entry per row."""

    part: Callable[..., Any]  # part(Z, *arrays); its arrays may be changed by the sum
    arrays: tuple[Array, ...] = ()  # one entry per row, from row ``first`` on
    first: int = 0
    in_place: bool = False  # whether part(total, Z, *arrays) adds to the total, None at first
    stacked: bool = False  # whether parts are listed, not added

    def add(self, total: Any, block: Any) -> Any:
        rows = places(block, self.first)
        arrays = (a[rows] for a in self.arrays)
        if self.in_place:
            return self.part(total, block.Z, *arrays)
        part = self.part(block.Z, *arrays)
        return add(total, [part] if self.stacked else part)

    def merge(self, a: Any, b: Any) -> Any:
        return add(a, b)

    def for_rows(self, rows: slice) -> "RowSum":
        return replace(self, arrays=tuple(a[rows] for a in self.arrays), first=rows.start)


def gradients(rows: Rows, slopes: Float[Array, "n t"]) -> Float[Array, "t p"]:
    """Return Σ sᵢ [zᵢ 1] for each column of the slopes s, by one pass."""
    return np.asarray(rows.sum(RowSum(backward, (slopes,))))


def images(rows: Rows, theta: Float[Array, "t p"]) -> Float[Array, "n t"]:
    """Return Z β + b at all rows, by one pass."""
    return np.concatenate(rows.sum(RowSum(partial(forward, theta=theta), stacked=True)))


def select_rows(rows: Rows, mask: Bool[Array, " n"]) -> Float[Array, "m D"]:
    """Return the features of the rows in ``mask``, by one pass."""
    return np.concatenate(rows.sum(RowSum(getitem, (mask,), stacked=True)))


@dataclass(frozen=True, eq=False)
class Problem:
    """The objective: rows, targets, weights, loss and penalty."""

    rows: Rows
    y: Float[Array, "n t"]  # Targets of the loss; float32 for classes on features
    # Weights, zero or above; with t columns each target has its own, as in cross-validation
    w: Float[Array, " n #t"]
    loss: Loss  # convex in f
    alpha: Any  # zero or above; one number, or one per column
    fit_intercept: bool = True  # whether b is fitted, or zero
    drift: float = 0.0  # factor of b in the objective
    # Factor of the reported objective, per column, if y was divided by its unit
    value: Any = 1.0

    def at(self, columns: Array) -> "Problem":
        """Return the problem of these columns."""
        if len(columns) == self.y.shape[1]:
            return self
        alpha, value = (
            a[columns if len(columns) > 1 else columns[0]] if np.ndim(a) and len(a) > 1 else a
            for a in (self.alpha, self.value)
        )
        w = self.w[:, columns] if self.w.shape[1] > 1 else self.w
        y, loss = self.y[:, columns], self.loss.at(columns)
        return replace(self, y=y, w=w, loss=loss, alpha=alpha, value=value)

    def inner(self, a: "State", b: "State") -> Float[Array, " t"]:
        """Return the inner product β·β' or cᵀKc' of each column of two states."""
        right = b.fitted - b.intercept if isinstance(self.rows, DualRows) else b.coef
        return inner(a.coef.T, right.T, self.loss.joint)

    def values(self, at: "State") -> Float[Array, " t"]:
        """Return loss plus penalty of each column; of a joint loss the total, repeated."""
        with np.errstate(over="ignore", invalid="ignore"):
            sums = weigh(self.w, self.loss.value(self.y, at.fitted)).sum(axis=0)
            values = sums + 0.5 * self.alpha * self.inner(at, at)
        return np.where(np.isnan(values), np.inf, values)

    def objective(self, value: Float[Array, " t"], intercept: Float[Array, " t"]) -> float:
        """Return the objective in reported units: summed over columns, or of a joint loss."""
        with np.errstate(over="ignore"):
            values = self.value * (value + self.drift * intercept)
            return float(values[0] if self.loss.joint else values.sum())


@dataclass(frozen=True, eq=False)
class State:
    """A point, or a step, with the data from which a similar problem can start."""

    coef: Float[Array, "D t"]  # of features, or on a kernel matrix one per row
    intercept: Float[Array, " t"]
    fitted: Float[Array, "n t"]  # f at the rows
    # uᵢ of a nonsmooth loss: at the minimum a subgradient of the loss at each row, with
    # alpha β = −Σ wᵢ uᵢ zᵢ
    multipliers: Float[Array, "n t"] | None = None
    width: float = 0.0  # δ of the smoothed loss
    value: Any = np.inf  # (t,) loss plus penalty; of a joint loss the total, repeated
    gap: Any = np.inf  # (t,) bound of the objective above its minimum; 0 for smooth losses
    # Curvatures c of a smooth loss and Σ c [z 1]ᵀ [z 1] per column, reused if c stays the same
    hessians: tuple[Float[Array, "n t"], list[Array]] | None = None
    algorithm: Algorithm | None = None  # the algorithm used
    outcome: Convergence = Convergence.MOST_STEPS
    steps: int = 0

    def at_step(self, length: Any, step: "State") -> "State":
        """Return the point self + length × step, without a new value; ``length`` is one or (t,)."""
        return replace(
            self,
            coef=self.coef + length * step.coef,
            intercept=self.intercept + length * step.intercept,
            fitted=self.fitted + length * step.fitted,
        )

    def at(self, columns: Array) -> "State":
        """Return the state of these columns."""
        if len(columns) == len(self.intercept):
            return self
        u = self.multipliers
        return replace(
            self,
            coef=self.coef[:, columns],
            intercept=self.intercept[columns],
            fitted=self.fitted[:, columns],
            multipliers=None if u is None else u[:, columns],
            hessians=None,
        )

    def replace_columns(self, columns: Array, part: "State") -> "State":
        """Return the point with these columns replaced by ``part``."""
        if len(columns) == len(self.intercept):
            return part
        coef, intercept, fitted = (a.copy() for a in (self.coef, self.intercept, self.fitted))
        coef[:, columns], fitted[:, columns] = part.coef, part.fitted
        intercept[columns] = part.intercept
        return replace(self, coef=coef, intercept=intercept, fitted=fitted)


def join_states(ends: Sequence[State]) -> State:
    """Return one state of all columns from states of one column each."""
    names = "coef", "intercept", "fitted", "multipliers", "value", "gap"
    columns: Any = {n: np.concatenate([getattr(end, n) for end in ends], axis=-1) for n in names}
    outcome = Convergence.worst(end.outcome for end in ends)
    return replace(ends[0], **columns, outcome=outcome, steps=max(end.steps for end in ends))


def optimum(problem: Problem, at: State, units: Any = 1.0, alpha: Any = None) -> Optimum:
    """Return the Optimum of a state; coefficients are multiplied by the ``units`` of targets."""
    return Optimum(
        units * at.coef,
        units * problem.loss.centred(at.intercept),
        problem.alpha if alpha is None else alpha,
        problem.objective(at.value, at.intercept),
        float((problem.value * at.gap).sum()),
        at.outcome,
        at.steps,
        at.algorithm,
    )


def factor_with_jitter(
    factor: Callable[[float], Array], diagonal: Any, low: float, high: float
) -> Float[Array, "p p"]:
    """Return ``factor(jitter)`` for the first jitter that succeeds, or the diagonal's factor."""
    try:
        return retry(factor, 0.0, low, high)
    except LinAlgError:
        return np.asfortranarray(np.diag(np.sqrt(diagonal)))


def hessian_factor(
    H: Float[Array, "p p"], alpha: float, floor: float, intercept: bool, single: bool = False
) -> Float[Array, "p p"]:
    """Return the upper factor of H + alpha I, with a larger diagonal if rounding needs it.

    The intercept, the last entry, has no penalty and a curvature of at least ``floor``.
    """
    diagonal = np.diag(H).astype(np.float64) + alpha
    diagonal[-1] = max(float(H[-1, -1]), floor, TINY)

    def shifted(jitter: float) -> Float[Array, "p p"]:
        A = H.astype(np.float32 if single else np.float64, order="F")
        A[np.diag_indices(len(H))] = (1 + jitter) * diagonal
        if not intercept:
            A[:-1, -1] = 0.0
        factor(A)
        return A

    return factor_with_jitter(shifted, diagonal, 1e-14, 1e-5)


def solve(factor: Float[Array, "p p"], right: Float[Array, "u p"]) -> Float[Array, "u p"]:
    """Return the solutions, one row per row of ``right``."""
    return solve_factored(factor, right.T).T.astype(np.float64)


def line_search(
    problem: Problem, fitted: Float[Array, "n t"], at: State, step: State
) -> Float[Array, " t"]:
    """Return the step length of least objective of each column, without reading features.

    ``fitted`` are the values at which the loss is evaluated for length zero.
    """
    image, linear, quadratic = step.fitted, problem.inner(at, step), problem.inner(step, step)

    def slopes(length: Float[Array, " t"]) -> Float[Array, " t"]:
        sums = np.zeros(image.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(fitted), 1 << 15):
                rows = slice(start, start + (1 << 15))
                slope = problem.loss.slope(problem.y[rows], fitted[rows] + length * image[rows])
                sums += weigh(problem.w[rows], slope * image[rows]).sum(axis=0)
        sums = np.full(len(length), sums.sum()) if problem.loss.joint else sums
        sums = np.where(np.isfinite(sums), sums, np.inf) + problem.drift * step.intercept
        return sums + problem.alpha * (linear + length * quadratic)

    return best_length(slopes, len(linear))


Slope = Callable[[Float[Array, " t"]], Float[Array, " t"]]
SLOPE_RATIO = 0.1  # Slopes below this share of the first count as zero


def best_length(slope: Slope, count: int) -> Float[Array, " t"]:
    """Return lengths at which |slope| is at most a tenth of |slope(0)|; zero if slope(0) ≥ 0.

    Slopes increase. Each length is doubled from 1 to bracket the root, if one is not enough.
    """
    low, high = np.zeros(count), np.ones(count)
    first, at_high = slope(low), slope(high)
    at_low, falls = first, first < 0
    for _ in range(20):
        short = falls & (at_high < SLOPE_RATIO * first)
        if not np.any(short):
            break
        low, at_low = np.where(short, high, low), np.where(short, at_high, at_low)
        high = np.where(short, 2 * high, high)
        at_high = slope(high)
    tolerance = np.where(falls & (at_high > 0), SLOPE_RATIO * np.abs(first), np.inf)
    return np.where(falls, _root(slope, low, high, at_low, at_high, tolerance), 0.0)


def _root(
    slope: Slope, low: Array, high: Array, at_low: Array, at_high: Array, tolerance: Array
) -> Float[Array, " t"]:
    """Return where increasing slopes are within ``tolerance`` of zero, by secants and bisection.

    If an end of the bracket stays, its slope is halved (Illinois algorithm), as slopes may jump.
    """
    best: Array = high
    value: Array = at_high
    side = np.zeros(len(tolerance))
    for turn in range(64):
        open_ = np.abs(value) > tolerance
        if not np.any(open_):
            break
        rise = at_high - at_low
        secant = low - at_low * (high - low) / np.where(rise > 0, rise, 1)
        halve = (turn % 3 == 2) | (turn > 12) | ~np.isfinite(rise) | (rise <= 0)
        best = np.where(open_, np.where(halve, (low + high) / 2, secant), best)
        value = np.where(open_, slope(best), value)
        left = open_ & (value < 0)
        right = open_ & ~left
        factor = np.where(side == np.sign(value), 0.5, 1.0)
        side = np.sign(value)
        at_low = np.where(left, value, np.where(right, factor * at_low, at_low))
        at_high = np.where(right, value, np.where(left, factor * at_high, at_high))
        low, high = np.where(left, best, low), np.where(right, best, high)
    return best


def best_constant(
    loss: Loss, y: Float[Array, "n t"], w: Float[Array, " n #t"]
) -> Float[Array, " t"]:
    """Return the constants that minimise the loss: by a formula, by descent, or by bisection."""
    constant = loss.constant(y, w)
    if constant is not None:
        return constant
    if loss.joint:
        share = w[:, :1] / max(float(w[:, 0].sum()), TINY)

        def at(b: Array) -> tuple[float, Array]:
            f = np.broadcast_to(b, y.shape)
            return float((share * loss.value(y, f)).sum()), (share * loss.slope(y, f)).sum(axis=0)

        return np.asarray(minimize(at, np.zeros(y.shape[1]), jac=True, tol=1e-10).x)

    def slope(b: Array) -> Float[Array, " t"]:
        with np.errstate(over="ignore", invalid="ignore"):
            total = (w * loss.slope(y, np.broadcast_to(b, y.shape))).sum(axis=0)
        return np.nan_to_num(total, nan=np.inf, posinf=np.inf)

    low, high = -np.ones(y.shape[1]), np.ones(y.shape[1])
    floor = 1e-12 * w.sum(axis=0)
    for _ in range(100):
        falls, rises = slope(high) < -floor, slope(low) > floor
        if not np.any(falls | rises):
            break
        low, high = np.where(rises, 2 * low, low), np.where(falls, 2 * high, high)
    for _ in range(64):
        middle = (low + high) / 2
        rising = slope(middle) < 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return (low + high) / 2
