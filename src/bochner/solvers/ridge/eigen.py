"""Ridge regression from moments: one eigendecomposition serves a whole path of penalties.

With G = V diag(w) Vᵀ and c = VᵀB (all about the means):

    β(λ) = V c/(w + λ),   RSS = P − Σ c² (w + 2λ)/(w + λ)².

If a fit nearly interpolates, the residual sum of squares is a sum over directions, without the
cancellation of the difference:

    RSS = P⊥ + Σ (c²/w) (λ/(w + λ))²,   n − 1 − d_λ = n − 1 − r + Σ λ/(w + λ) over the r largest w,

with d_λ = Σ w/(w + λ), the part P⊥ of P outside all directions, and r = min(D, n − 1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from bochner._core.blas import eigh, product, qr, svd
from bochner._core.shapes import Array, Both, Float
from bochner.solvers.factorisations import FLOAT32_PENALTY
from bochner.solvers.ridge.problem import (
    TINY,
    amplitude_at,
    evidence,
    evidence_slope,
    freedom,
    gcv,
    left_out_errors,
    slack_of_leverage,
)
from bochner.solvers.ridge.solution import (
    Alpha,
    Evidence,
    EvidenceOutcome,
    Outcome,
    Path,
    Solution,
    as_alphas,
    best_index,
    choose_alpha,
    pool,
)

LOWEST = 1e-11  # Smallest penalty of the path, as a share of ‖G‖
FLOAT32_GRAM = 1e-8  # Relative error of G if its products are float32
EPS = float(np.finfo(np.float64).eps)  # Relative rounding error of float64


@dataclass(frozen=True, eq=False)
class Eigen:
    """G = V diag(w) Vᵀ, with the right-hand side in the coordinates of V."""

    values: Float[Array, " r"]  # w ≥ 0, ascending
    vectors: Float[Array, "D r"]  # V
    projected: Float[Array, "r t"]  # c = VᵀB
    power: Float[Array, " t"]  # P
    weight: float  # W
    precision: str  # precision of the products in G
    centred: bool = True  # whether an intercept is fitted
    rows: int = 0  # n, the number of rows of positive weight
    noise: float = 0.0  # rounding level of eigenvalues
    max_weight: float = 1.0  # largest weight that leave-one-out errors leave out of a row

    @cached_property
    def count(self) -> float:
        return max(self.weight / self.max_weight, self.rows)

    def target(self, i: int) -> "Eigen":
        return replace(self, projected=self.projected[:, i : i + 1], power=self.power[i : i + 1])

    def at(self, alphas: Any) -> "SpectralPath":
        """Return the terms of the criteria along a path of penalties."""
        # λ yᵀ(ZZᵀ + λI)⁻¹y and λ² yᵀ(ZZᵀ + λI)⁻²y, as differences from P, or as sums
        alphas = np.asarray(alphas, np.float64)
        inverse, squares, (share, remainder) = self._inverse(alphas), self.projected**2, self.shares
        shrunk, floor = alphas * inverse, 1e-6 * self.power
        difference = self.power - inverse.T @ squares
        q = np.where(difference > floor, difference, remainder + shrunk.T @ share) / alphas[:, None]
        difference = self.power - (inverse * (1 + shrunk)).T @ squares
        rss = np.where(difference > floor, difference, remainder + (shrunk**2).T @ share)
        n_zero = self.count - self.centred - len(self.values)
        log_det = np.log(self.values[:, None] + alphas).sum(axis=0) + n_zero * np.log(alphas)
        return SpectralPath(alphas, rss, q, self.trace(alphas), log_det)

    def criteria(
        self, alpha: Any, rows: Iterable["Rows"] = ()
    ) -> tuple[Path, dict[str, Float[Array, "p t"]]]:
        """Return the criteria at the default and given penalties, also those of each target."""
        given = np.atleast_1d([] if isinstance(alpha, str) else alpha)
        alphas = np.unique(np.append(penalties(self), given[given > 0]))
        along = self.at(alphas)
        of_targets = {"gcv": gcv(self, along), "evidence": evidence(self, along)}
        of_loo = np.full(len(alphas), np.nan), 0, None
        loo = left_out_path(self, rows, alphas) if alpha == "loo" else None
        if loo is not None and loo.rows:
            of_targets["loo"] = loo.mean_squares
            of_loo = pool(loo.mean_squares, self.power / self.weight), loo.rows, loo.deviation
        path = Path(
            alphas,
            of_loo[0],
            pool(of_targets["gcv"], self.power),
            of_targets["evidence"][:, self.power > 0].sum(axis=1),
            (self.values[:, None] / (self.values[:, None] + alphas)).sum(axis=0),
            *of_loo[1:],
        )
        return path, of_targets

    @cached_property
    def top(self) -> float:
        """‖G‖, at least 1e-100."""
        return max(float(self.values[-1]), 1e-100)

    @cached_property
    def floor(self) -> float:
        """Smallest penalty that the precision of G resolves.

        It is 10·D·ε·‖G‖ in float64, and 1e-6 ‖G‖ if G is summed from float32 products. On 41,157
        rows with D = 2048 these have an error of 7e-9 ‖G‖ in norm; the error of predictions,
        relative to their spread, is 1e-4 at a penalty of 1e-6 ‖G‖, 2e-3 at 2e-7 and 2e-2 at 2e-8.
        """
        if self.precision == "float32":
            return FLOAT32_PENALTY * self.top
        return 10 * len(self.values) * EPS * self.top

    @property
    def rounding(self) -> float:
        """Relative rounding error of G."""
        return FLOAT32_GRAM if self.precision == "float32" else EPS

    def trace(self, alphas: Float[Array, " p"], power: int = 1) -> Float[Array, " p"]:
        """Return tr (I − H)^power: n − 1 − r + Σ (λ/(w + λ))^power over the r largest w."""
        free = freedom(self)
        r = max(min(len(self.values), self.rows - self.centred), 0)
        largest = self.values[len(self.values) - r :, None]
        return max(free - r, 0.0) + ((alphas / (largest + alphas)) ** power).sum(axis=0)

    def coefficients(self, alpha: float | Float[Array, " t"]) -> Float[Array, "D t"]:
        """Return β for one alpha or one per target; alpha = 0 gives the solution of least norm."""
        return self.vectors @ (self.projected * self._inverse(alpha))

    def _inverse(self, alpha: float | Float[Array, " t"]) -> Float[Array, "D t"]:
        """Return 1/(w + alpha), zero if w + alpha is rounding; one column, or one per target."""
        weights = self.values[:, None] + alpha
        return np.divide(1, weights, out=np.zeros_like(weights), where=weights > self.noise)

    @cached_property
    def shares(self) -> tuple[Float[Array, "D t"], Float[Array, " t"]]:
        """Parts of P: c²/w of each resolved direction (else zero), and P⊥, outside all of them."""
        floor = FLOAT32_GRAM if self.precision == "float32" else 0.0
        resolved = self.values > max(self.noise, floor * float(self.values[-1]))
        share = np.zeros_like(self.projected)
        share[resolved] = self.projected[resolved] ** 2 / self.values[resolved, None]
        spans = np.count_nonzero(resolved) >= self.rows - self.centred
        return share, np.maximum(self.power - share.sum(axis=0), 0.0) * (not spans)


class SpectralPath(NamedTuple):
    """Terms of the criteria along a path of penalties."""

    alpha: Float[Array, " p"]
    rss: Float[Array, "p t"]
    quadratic_form: Float[Array, "p t"]
    free: Float[Array, " p"]
    log_det: Float[Array, " p"]  # log |ZZᵀ + λI| on the contrasts


def decompose(sums: Any, centred: bool = True) -> Eigen:
    """Return the eigendecomposition of :class:`bochner.Moments`, in float64: O(D³)."""
    values, V = eigh(sums.gram, driver="evd", check_finite=False)
    noise = len(values) * EPS * max(float(values[-1]), 0.0)
    P, W, precision, n = sums.power, sums.weight, sums.precision, sums.rows
    return Eigen(np.maximum(values, 0.0), V, V.T @ sums.cross, P, W, precision, centred, n, noise)


def decompose_rows(
    Z: Float[Array, "n D"],
    y: Float[Array, "n t"],
    w: Float[Array, " n"],
    centred: bool = True,
    *,
    weight: float | None = None,
    rows: int | None = None,
) -> Eigen:
    """Return the decomposition of centred rows by the SVD of √w Z, in O(n D min(n, D)).

    If Z and y are a triangular factor of the data, ``weight`` and ``rows`` are W and n of the data.
    """
    root = np.sqrt(w)[:, None]
    U, s, Vt = svd(root * Z, full_matrices=False, check_finite=False)
    U, s, V = U[:, ::-1], s[::-1], Vt[::-1].T
    power = ((root * y) ** 2).sum(axis=0)
    projected = s[:, None] * (U.T @ (root * y))
    weight, rows = float(w.sum()) if weight is None else weight, len(w) if rows is None else rows
    noise = (max(rows, Z.shape[1]) * EPS * float(s[-1])) ** 2
    return Eigen(s**2, V, projected, power, weight, "float64", centred, rows, noise)


def penalties(eigen: Eigen) -> Float[Array, " p"]:
    """Return default penalties, four per decade, from max(1e-11 ‖G‖, eigen.floor) to 10 ‖G‖."""
    low, high = np.log10(max(eigen.floor, LOWEST * eigen.top)), np.log10(10 * eigen.top)
    # Minus 1e-6, because the quotient is usually an integer, and rounding must not add a penalty.
    return np.logspace(low, high, max(2, int(np.ceil((high - low) * 4 - 1e-6)) + 1))


def solve_ridge(
    eigen: Eigen,
    rows: Iterable["Rows"],
    means: tuple[Float[Array, " D"], Float[Array, " t"]],
    alpha: Alpha,
    *,
    per_target: bool = False,
) -> Solution:
    """Return the coefficients at a given penalty, or at the best of a path.

    The moments are centred at ``means``, which are zero without an intercept. ``rows`` are centred
    rows (Z, y, w) for the leave-one-out errors that choose alpha: all, or a random sample; without
    rows "loo" is "gcv". If the outcome is FLOAT32_LIMITED, form moments in float64 and call again.
    """
    path: Any = None  # of a given penalty: computed when it is read
    if not isinstance(alpha, str):
        chosen, criterion = as_alphas(alpha, len(eigen.power)), "given"
    else:
        path, of_targets = eigen.criteria(alpha, rows)
        name: Any = "gcv" if alpha == "loo" and "loo" not in of_targets else alpha

        def best(target: int | None) -> float:
            errors = getattr(path, name) if target is None else of_targets[name][:, target]
            return float(path.alphas[best_index(errors, name)])

        constant = float(path.alphas[-1])
        chosen, criterion = choose_alpha(eigen.power, name, per_target, best, constant)
    alpha_ = chosen if len(chosen) == len(eigen.power) > 1 else float(chosen[0])
    coef, outcome = eigen.coefficients(alpha_), _outcome(eigen, path, chosen, criterion)
    spectrum = None if path else replace(eigen, vectors=np.empty((0, len(eigen.values))))
    intercept = means[1] - means[0] @ coef
    return Solution(coef, intercept, alpha_, outcome, path, criterion, spectrum=spectrum)


def _outcome(eigen: Eigen, path: Path, chosen: Float[Array, " c"], criterion: str) -> Outcome:
    """Return the worst outcome of the targets that vary."""
    varies = eigen.power > 0
    if not np.any(varies):
        return Outcome.CONSTANT_TARGET
    alphas = chosen if len(chosen) == 1 else chosen[varies]
    single = eigen.precision == "float32"
    limited = Outcome.FLOAT32_LIMITED if single else Outcome.SINGULAR
    if criterion == "given":
        D, rank = len(eigen.vectors), np.count_nonzero(eigen.values > eigen.noise)
        exact = (alphas == 0) & (not single and rank >= min(eigen.rows - eigen.centred, D))
        if eigen.values[0] < eigen.floor and np.any((alphas < eigen.floor) & ~exact):
            return limited
        return Outcome.LEAST_NORM if rank < D and np.any(exact) else Outcome.SOLVED
    if np.all(alphas > path.alphas[path.lowest(criterion)]):
        return Outcome.EDGE_HIGH if np.any(alphas >= path.alphas[-1]) else Outcome.SOLVED
    if not single:
        return Outcome.EDGE_LOW
    return Outcome.SOLVED if len(chosen) == 1 and path.level(criterion) else limited


# --- QR of √w [1, Z, y], which is more accurate than ZᵀZ -----------------------------------------
#
# Rounding hides eigenvalues of ZᵀZ below Dε times the largest, thus singular values of Z below
# √(Dε) ≈ 1e-7 of the largest. Of the triangle R it hides only singular values below Dε. A fit with
# alpha = 0 needs them if D is near n. The column of ones is first: other rows of R are centred.


@dataclass(frozen=True, eq=False)
class Triangle:
    """Triangle R of rows √w [1, z, y]; 2 n D² operations, at most 2 D² numbers for any n."""

    matrix: Float[Array, "m p"]  # rows, or R; without the column of ones if not centred
    features: int  # D
    rows: int  # n
    weight: float  # W
    centred: bool

    @staticmethod
    def of(
        Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Any = None, centred: bool = True
    ) -> "Triangle":
        """Return the rows of one block, not yet reduced."""
        w = np.ones(len(Z)) if w is None else np.asarray(w, np.float64)
        root = np.sqrt(w)[:, None]
        parts = [root, root * Z, root * y.reshape(len(Z), -1)][not centred :]
        counts = Z.shape[1], int(np.count_nonzero(w)), float(w.sum())
        return Triangle(np.concatenate(parts, axis=1), *counts, centred)

    def __add__(self, other: "Triangle") -> "Triangle":
        matrix = np.concatenate([self.matrix, other.matrix])
        matrix = _reduce(matrix) if len(matrix) > 2 * matrix.shape[1] else matrix
        rows, weight = self.rows + other.rows, self.weight + other.weight
        return replace(self, matrix=matrix, rows=rows, weight=weight)

    def eigen(self) -> Eigen:
        """Return the decomposition of all rows by the SVD of their triangular factor R."""
        first = int(self.centred)
        R, last = _reduce(self.matrix)[first:], first + self.features
        Z, y, w = R[:, first:last], R[:, last:], np.ones(len(R))
        return decompose_rows(Z, y, w, self.centred, weight=self.weight, rows=self.rows)


def _reduce(rows: Float[Array, "m p"]) -> Float[Array, "_ p"]:
    (R,) = qr(rows, mode="r", check_finite=False)
    return np.asarray(R[: R.shape[1]])


# --- Leave-one-out errors in closed form, of all rows or of a sample -----------------------------
#
# The leverage of a row z is h = (z − z̄)ᵀ(G + λI)⁻¹(z − z̄) + 1/W = Σ a²/(w + λ) + 1/W with its
# coordinates a = Vᵀ(z − z̄), and its leave-one-out error is e = (y − ŷ)/s with the slack
# s = 1 − min(w, m) h. Here m is ``max_weight``: 1 if a row of weight w stands for w rows, or the
# largest weight if each row is left out with all its weight.
#
# If the fit interpolates the rows, h is near one. Rounding changes it by about
# g ‖G‖ q + 2u √(‖G‖ q) + u, with q = Σ a²/(w + λ)², g the relative error of G and u of the
# products. As q ≤ s/λ, this is far below s for λ ≥ 1e-11 ‖G‖ in float64. Otherwise the
# leave-one-out error is unknown: the slack is set to zero and the error to infinity.
#
# From the sample S of m rows, with L the mean of e² and R the mean of the squared residuals r²,
# which the moments give for all rows:
#
#     L ≈ L_S R/R_S,
#     variance ≈ (1 − f) Σ (e² − b r²)²/m² + f Σ (e² − L_S)²/m²   over the m rows of S, b = L_S/R_S,
#
# f the share of the rows in S. s is near one for most rows, so the few rows of a heavy-tailed
# target that dominate L_S also dominate R_S. The second term is the variance of the mean over all
# rows about the expected error of a new row. In means a row of weight w counts as w rows; in
# variances as one row if w < 1.

#: Rows about the means of the moments: features, targets, weights.
Rows = tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"] | None]


def _slacks(
    eigen: Eigen, blocks: Iterable[Rows], alphas: Float[Array, " p"], selection: Any = slice(None)
) -> Iterator[tuple[Float[Array, "b r"], Float[Array, "b t"], Float[Array, " b"], Array]]:
    """Yield rows in the coordinates of eigenvectors, targets, weights and slacks.

    A block takes O(b D (D + p)). ``selection`` is the eigenvectors in use.
    """
    inverse, vectors = 1 / (eigen.values[selection, None] + alphas), eigen.vectors[:, selection]
    for Z, y, weights in blocks:
        A = product(Z, np.ascontiguousarray(vectors, dtype=Z.dtype))
        w = np.ones(len(y)) if weights is None else weights
        yield A, y, w, _slack(eigen, A, inverse, w, alphas)


def _slack(
    eigen: Eigen, A: Array, inverse: Array, w: Array, alphas: Float[Array, " p"]
) -> Float[Array, "b p"]:
    """Return s = 1 − min(w, m) h, or zero if s is at rounding level.

    The level is 50 times (float32) or 500 times (float64) the first-order bound of the rounding
    error, where q is at most s/λ and h/(w_1 + λ), w_1 the smallest eigenvalue. In float64 ten times
    the bound is subtracted from s, so that errors are not underestimated.
    """
    leverage = product(A * A, inverse.astype(A.dtype)).astype(np.float64)
    leverage += 1 / eigen.weight if eigen.centred else 0.0
    slack = slack_of_leverage(leverage, w[:, None], eigen.max_weight)
    gram, unit = eigen.rounding, float(np.finfo(A.dtype).eps)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.fmin(np.maximum(slack, 0.0) / alphas, (1 - slack) / (eigen.values[0] + alphas))
    q *= eigen.values[-1]
    doubt = gram * q + 2 * unit * np.sqrt(q) + unit
    resolved, withheld = (500.0, 10.0) if max(gram, unit) <= EPS else (50.0, 0.0)
    return np.where(slack > resolved * doubt, slack - withheld * doubt, 0.0)


def left_out_rows(
    eigen: Eigen, blocks: Iterable[Rows], alpha: Float[Array, " t"]
) -> Iterator[Both]:
    """Yield residuals and leave-one-out errors of blocks of rows; infinite at rounding level."""
    coef = eigen.projected / (eigen.values[:, None] + alpha)
    for A, y, _, slack in _slacks(eigen, blocks, alpha):
        residuals = y - product(A, coef.astype(A.dtype))
        errors = left_out_errors(residuals, slack)
        yield residuals, np.where(slack > 0, errors, np.copysign(np.inf, residuals))


class LooErrors(NamedTuple):
    """Leave-one-out errors along a path of penalties."""

    mean_squares: Float[Array, "p t"]  # mean squared error of each target
    #: Standard error of their pooled mean, for the expected squared error of a new row.
    deviation: Float[Array, " p"]
    rows: int  # number of rows with an error


def deviation_of(
    squares: Float[Array, "m p"],
    residual_squares: Float[Array, "m p"],
    w: Float[Array, " m"],
    share: float,
) -> Float[Array, " p"]:
    """Return the standard error of Σ w e²/Σ w, from e² and r² of a share ``share`` of all rows."""
    W, v = max(float(w.sum()), TINY), w * np.minimum(w, 1.0)
    mean = w @ squares / W
    b = mean / np.maximum(w @ residual_squares / W, TINY)
    residual = v @ (squares - b * residual_squares) ** 2
    return np.sqrt((1 - share) * residual + share * (v @ (squares - mean) ** 2)) / W


def left_out_path(eigen: Eigen, blocks: Iterable[Rows], alphas: Float[Array, " p"]) -> LooErrors:
    """Return the leave-one-out errors of all rows of ``eigen``, from a random sample of them.

    ``blocks`` has the sampled rows, centred at the means of all rows. Directions whose eigenvalues
    sum to less than 1e-6 of the smallest penalty are omitted; slacks change by less than 1e-6.
    """
    power = eigen.power / eigen.weight
    varies = power > 0
    units = np.divide(1 / max(varies.sum(), 1), power, out=np.zeros_like(power), where=varies)
    selection = np.cumsum(eigen.values) > 1e-6 * alphas[0]
    inverse = 1 / (eigen.values[selection, None] + alphas)
    coefs = [c[:, None] * inverse for c in eigen.projected[selection].T]
    residuals, errors = np.zeros((2, len(alphas), len(power)))
    W, rows, deviation = TINY, 0, np.zeros(len(alphas))

    def squares_of(A: Array, y: Array, w: Array, slack: Array) -> tuple[Array, Array, Array]:
        pooled = np.zeros((2, len(w), len(alphas)))
        for target, coef in enumerate(coefs):
            gaps = y[:, target, None] - product(A, coef.astype(A.dtype))
            r, e = gaps**2, left_out_errors(gaps, slack) ** 2
            residuals[:, target] += w @ r
            errors[:, target] += w @ e
            pooled += units[target] * np.stack([e, r])
        return pooled[0], pooled[1], w

    with np.errstate(invalid="ignore"):  # infinite errors have no deviation
        parts = [squares_of(*block) for block in _slacks(eigen, blocks, alphas, selection)]
        if parts:
            squares, residual_squares, w = map(np.concatenate, zip(*parts, strict=True))
            W, rows = max(float(w.sum()), TINY), len(w)
            deviation = deviation_of(squares, residual_squares, w, min(1.0, W / eigen.weight))
            deviation *= power[varies].mean() if np.any(varies) else 1.0
    mean_squares = errors / W
    if 0 < rows < eigen.rows:
        # R/R_S; for penalties at which RSS is rounding, the ratio of the next larger penalty.
        rss, sampled = eigen.at(alphas).rss, residuals / W
        clear = (1e3 * eigen.rounding * eigen.power < rss) & (sampled > 0)
        ratio = np.divide(rss / eigen.weight, sampled, out=np.ones_like(sampled), where=clear)
        first = np.maximum(clear.argmax(axis=0), np.arange(len(alphas))[:, None])
        mean_squares *= np.take_along_axis(ratio, first, axis=0)
    return LooErrors(mean_squares, np.nan_to_num(deviation, nan=np.inf), rows)


# --- A sample's error, extrapolated to a fit to more rows ----------------------------------------
#
# A ridge regression on m rows with penalty λ acts like one on infinitely many rows with
#
#     κ = λ/(m s),   s = tr (I − H)/m,
#
# H its hat matrix (Bach (2024), for random projections). At equal κ the fits to m and to n rows
# have the same bias b. Including noise, and bias that acts as noise, their errors are
#
#     e_m = b(κ)/(1 − δ/m),   e_n = b(κ)/(1 − δ/n),   δ = Σ μ²/(μ + κ)² of the population's μ.
#
# The sample determines δ: as Σ μ/(μ + κ) = tr H, differentiating κ by λ gives 1 − δ/m = s²/v with
# v = tr (I − H)²/m, so that
#
#     e_n(λ') ≈ e_m(λ) (s²/v)/(1 − (m/n)(1 − s²/v)),   λ' = κ (n − tr H) = λ (n − tr H)/(m − tr H).
#
# Least squares on D < m features has δ = D. tr H², which equals δ if D is far below m, cannot
# replace δ: it is m if D ≥ m and λ = 0.


def extrapolate(
    eigen: Eigen, errors: Float[Array, " p"], alphas: Float[Array, " p"], ratio: float
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """Return the errors and penalties of fits to ``ratio`` ≥ 1 times as many rows."""
    free = max(eigen.count - eigen.centred, 1.0)
    trace, square_trace = eigen.trace(alphas), eigen.trace(alphas, 2)
    penalties_ = alphas * (trace + (ratio - 1) * free) / trace
    return extrapolate_errors(errors, trace, square_trace, free, ratio), penalties_


def extrapolate_errors(
    errors: Float[Array, " p"],
    trace: Float[Array, " p"],  # tr (I − H)
    square_trace: Float[Array, " p"],  # tr (I − H)²
    free: float,
    ratio: float,
) -> Float[Array, " p"]:
    """Return errors for more rows from those for m rows; ``free`` is m − 1, or m if not centred."""
    slack = trace**2 / (free * square_trace)
    return errors * slack / (1 - (1 - slack) / ratio)


def equivalent_alpha(eigen: Eigen, share: float, ratio: float) -> float:
    """Return the λ with the κ of a fit to ``ratio`` times as many rows of penalty n·``share``."""
    alphas = penalties(eigen)
    _, large = extrapolate(eigen, np.zeros_like(alphas), alphas, ratio)
    target = share * ratio * eigen.weight
    if not target > 0:
        return eigen.floor
    log_ratio = np.interp(np.log(target), np.log(large), np.log(large / alphas))
    return max(target * float(np.exp(-log_ratio)), eigen.floor)


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


def maximise_evidence(
    eigen: Eigen, noise: float | None = None, amplitude: float | None = None
) -> Evidence:
    """Return the noise and amplitude of largest marginal likelihood, for each target.

    λ is the best of :func:`penalties`, then the root of the slope between its neighbours. Known
    eigenvalues give all of them (1 ms beside 140 ms for eigenvalues of D = 1000, downhill 0.5 ms),
    so the maximum is global.
    """
    targets = (eigen.target(i) for i in range(len(eigen.power)))
    maxima, outcomes = zip(*(_maximise(part, noise, amplitude) for part in targets), strict=True)
    noises, amplitudes, alpha, log_p = np.array(maxima).T
    return Evidence(noises, amplitudes, alpha, log_p, EvidenceOutcome.worst(outcomes))


def _maximise(
    eigen: Eigen, noise: float | None, amplitude: float | None
) -> tuple[tuple[float, float, float, float], EvidenceOutcome]:
    """Return (σ², a², λ, log p), see :class:`Evidence`, and the outcome of one target."""
    float32, low, outcome = eigen.precision == "float32", eigen.floor, EvidenceOutcome.SOLVED
    limited = EvidenceOutcome.FLOAT32_LIMITED if float32 else EvidenceOutcome.SINGULAR
    alphas, fixed, values = penalties(eigen), noise, (noise, amplitude)
    if noise is not None and amplitude is not None:
        alpha, values = max(noise / amplitude, low if float32 else 0.1 * low), (None, amplitude)
        if noise / amplitude < low and eigen.values[0] < low:
            outcome = limited
    elif not (eigen.power[0] > 0 and freedom(eigen) > 0):
        top, constant = max(float(eigen.values[-1]), 1.0), EvidenceOutcome.CONSTANT_TARGET
        return (noise or 0.0, amplitude or 0.0, top, float("nan")), constant
    elif noise == 0:
        alpha, values = low, (None, None)
    else:
        if noise is not None and low < alphas[0]:
            alphas = np.concatenate([[low], alphas])
        best = int(np.argmax(evidence(eigen, eigen.at(alphas), *values)[:, 0]))
        ends = np.log(alphas[[max(best - 1, 0), min(best + 1, len(alphas) - 1)]])

        def slope(log_alpha: float) -> float:
            return float(evidence_slope(eigen, eigen.at(np.exp([log_alpha])), *values)[0, 0])

        alpha, fixed = float(alphas[best]), None
        if slope(ends[0]) > 0 > slope(ends[1]):
            alpha = float(np.exp(brentq(slope, *ends, xtol=1e-13, rtol=1e-13)))
        if alpha <= alphas[0] and noise is not None:
            # At the smallest resolved λ, σ²/λ would be proportional to the given noise, so the
            # amplitude is the best one at this λ.
            directions = min(eigen.rows - eigen.centred, len(eigen.vectors))
            all_resolved = np.count_nonzero(eigen.values > low) >= directions
            outcome = limited if float32 or not all_resolved else outcome
            alpha, fixed, values = low, noise, (None, None)
        elif alpha <= alphas[0]:
            outcome = limited if float32 else EvidenceOutcome.EDGE_LOW
        elif alpha >= alphas[-1]:
            outcome = EvidenceOutcome.EDGE_HIGH
    path = eigen.at([alpha])
    a2, log_p = (float(f(eigen, path, *values)[0, 0]) for f in (amplitude_at, evidence))
    return (alpha * a2 if fixed is None else fixed, a2, alpha, log_p), outcome
