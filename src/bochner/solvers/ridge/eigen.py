"""Ridge regression from moments: one eigendecomposition serves a whole path of penalties.

With G = V diag(w) Vᵀ and c = VᵀB (all about the means):

    β(λ) = V c/(w + λ),            d_λ = Σ w/(w + λ),
    RSS  = P − Σ c² (w + 2λ)/(w + λ)²,
    GCV  = (RSS/W)/(1 − (1 + d_λ)/n)²,   n = W, or the number of rows if that is more,
    leverage of a row z: h = (z − z̄)ᵀ(G + λI)⁻¹(z − z̄) + 1/W = Σ a²/(w + λ) + 1/W, a = Vᵀ(z − z̄),
    leave-one-out error: (y − ŷ)/s, with the slack s = 1 − min(w, 1) h.

A row of weight w > 1 stands for w equal rows, and one of them is left out; a row of weight below
one is left out whole. Where the fit passes through the rows, h is near one. Rounding changes it by
about g ‖G‖ q + 2u √(‖G‖ q) + u, with q = Σ a²/(w + λ)², g the relative error of G and u that of the
products. As q ≤ s/λ, that is little beside s down to λ = 1e-11 ‖G‖ in float64. Where it is not,
nothing is known of the row without itself: its slack is set to zero and its error to infinity.

What little such a fit leaves of y is summed over directions, not taken as a difference:

    RSS = P⊥ + Σ (c²/w) (λ/(w + λ))²,   n − 1 − d_λ = n − 1 − r + Σ λ/(w + λ) over the r largest w,

P⊥ the part of P that no direction explains and r = min(D, n − 1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from bochner._core.blas import eigh, product, qr, svd
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.solution import Path

#: Smallest penalty of the path, as a share of ‖G‖.
LOWEST = 1e-11

#: Smallest penalty that float32 products resolve, as a share of ‖G‖.
FLOAT32_FLOOR = 1e-6

#: Relative error of G where its products are of float32.
FLOAT32_GRAM = 1e-8

#: A slack is told from rounding if it is more than so many times what first-order bounds say of
#: that, in float32 and in float64. Rounding was measured to be up to five times as large as they
#: say.
TOLD = (50.0, 500.0)

#: Of a slack in float64 so many times that bound is taken off: on a plateau of errors the least is
#: then where rounding takes no part, and not where it happened to fall. In float32 the bound is too
#: far above what rounding makes.
DOUBTED = (0.0, 10.0)

#: A difference below this share of its terms is not formed.
CANCELS = 1e-6

#: Smallest ‖G‖ that is told from zero: its penalties can still be squared.
TINY = 1e-100

#: Penalties per factor of ten of the path.
PER_DECADE = 4

#: Rounding of float64.
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Eigen:
    """G = V diag(w) Vᵀ with the right-hand side in its coordinates.

    Attributes
    ----------
    values : (D,) float64
        w ≥ 0, rising.
    vectors : (D, D)
        V.
    projected : (D, t) float64
        c = VᵀB.
    power : (t,) float64
        P.
    weight : float
        W.
    precision : str
        Precision of the products in G.
    centred : bool
        Whether an intercept is fitted.
    rows : int
        n, the number of rows of positive weight.
    resolution : float or None
        Share of the largest eigenvalue below which rounding alone fills a direction; None: that of
        a Gram in float64, Dε.
    """

    values: Float[Array, " D"]
    vectors: Float[Array, "D D"]
    projected: Float[Array, "D t"]
    power: Float[Array, " t"]
    weight: float
    precision: str
    centred: bool = True
    rows: int = 0
    resolution: float | None = None

    @property
    def count(self) -> float:
        """Rows that the data are worth: W where weights count copies, n where they are shares."""
        return max(self.weight, self.rows)

    @property
    def _noise(self) -> float:
        """What rounding leaves of an eigenvalue of zero."""
        share = len(self.values) * EPS if self.resolution is None else self.resolution
        return share * float(self.values[-1])

    @property
    def rank(self) -> int:
        """Directions that are told from rounding."""
        return int(np.count_nonzero(self.values > self._noise))

    @property
    def full(self) -> bool:
        """Whether the rank is as high as rows and features allow: alpha = 0 loses nothing."""
        return self.rank >= min(self.rows - self.centred, len(self.vectors))

    def coefficients(self, alpha: float | Float[Array, " t"]) -> Float[Array, "D t"]:
        """Return β(alpha), alpha one number or one a target.

        Directions that rounding alone fills take no part: at alpha = 0 this is the solution of
        least norm.
        """
        return self.vectors @ (self.projected * self._inverse(alpha))

    def residual_power_at(self, alpha: float | Float[Array, " t"]) -> Float[Array, " t"]:
        """Return RSS of each target, alpha one number or one a target."""
        inverse = self._inverse(alpha)
        explained = (inverse * (1 + alpha * inverse) * self.projected**2).sum(axis=0)
        share, outside = self.shares
        return self._left(explained, outside + (share * (alpha * inverse) ** 2).sum(axis=0))

    def _inverse(self, alpha: float | Float[Array, " t"]) -> Float[Array, "D t"]:
        """Return 1/(w + alpha), zero where rounding alone is left; one column, or one a target."""
        weights = self.values[:, None] + alpha
        return np.divide(1, weights, out=np.zeros_like(weights), where=weights > self._noise)

    def residual_power(self, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
        """Return RSS at each penalty, for each target."""
        inverse = self._inverse(alphas)
        explained = (inverse * (1 + alphas * inverse)).T @ self.projected**2
        share, outside = self.shares
        return self._left(explained, outside + ((alphas * inverse) ** 2).T @ share)

    def unexplained(self, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
        """Return yᵀ(ZZᵀ/λ + I)⁻¹y = P − Σ c²/(w + λ) at each penalty, for each target."""
        explained = (1 / (self.values[:, None] + alphas)).T @ self.projected**2
        share, outside = self.shares
        return self._left(explained, outside + (alphas * self._inverse(alphas)).T @ share)

    def _left(self, explained: Array, summed: Array) -> Array:
        """Return P less what is explained, or that summed up where the difference cancels."""
        left = self.power - explained
        return np.where(left > CANCELS * self.power, left, summed)

    @cached_property
    def shares(self) -> tuple[Float[Array, "D t"], Float[Array, " t"]]:
        """c²/w, the part of P in each direction, and P⊥; directions of rounding are in P⊥."""
        resolved = FLOAT32_GRAM if self.precision == "float32" else 0.0
        told = self.values > max(self._noise, resolved * float(self.values[-1]))
        share = np.zeros_like(self.projected)
        share[told] = self.projected[told] ** 2 / self.values[told, None]
        every = np.count_nonzero(told) >= self.rows - self.centred
        outside = np.maximum(self.power - share.sum(axis=0), 0.0)
        return share, outside * (not every)


class Sums(Protocol):
    """What is decomposed: the moments of all rows."""

    @property
    def rows(self) -> int: ...
    @property
    def weight(self) -> float: ...
    @property
    def gram(self) -> Float[Array, "D D"]: ...
    @property
    def cross(self) -> Float[Array, "D t"]: ...
    @property
    def power(self) -> Float[Array, " t"]: ...
    @property
    def precision(self) -> Any: ...


def decompose(sums: Sums, centred: bool = True) -> Eigen:
    """Return the eigendecomposition, by LAPACK's divide and conquer in float64: O(D³)."""
    values, vectors = eigh(sums.gram, driver="evd", check_finite=False)
    return Eigen(
        np.maximum(values, 0.0),
        vectors,
        vectors.T @ sums.cross,
        sums.power,
        sums.weight,
        sums.precision,
        centred,
        sums.rows,
    )


def decompose_rows(
    Z: Float[Array, "n D"],
    y: Float[Array, "n t"],
    w: Float[Array, " n"],
    centred: bool = True,
    *,
    weight: float | None = None,
    rows: int | None = None,
) -> Eigen:
    """Return the same from rows about their means, by singular values of √w Z: O(n D min(n, D)).

    The smallest eigenvalues keep twice as many digits as those of G do. The rows may be those of
    a triangle that stands for others: then ``weight`` and ``rows`` are W and n of those others.
    """
    root = np.sqrt(w)[:, None]
    U, s, Vt = svd(root * Z, full_matrices=False, check_finite=False)
    U, s, V = U[:, ::-1], s[::-1], Vt[::-1].T
    power = ((root * y) ** 2).sum(axis=0)
    projected = s[:, None] * (U.T @ (root * y))
    weight, rows = float(w.sum()) if weight is None else weight, len(w) if rows is None else rows
    noise = (max(rows, Z.shape[1]) * EPS) ** 2
    return Eigen(s**2, V, projected, power, weight, "float64", centred, rows, noise)


def floor(eigen: Eigen) -> float:
    """Return the smallest penalty that the precision of G resolves.

    float64: 10·D·ε·‖G‖. float32 products, about the mean and summed in float64 every
    8192 rows: 1e-6 ‖G‖. Measured on 41,157 rows, D = 2048, they are off by 7e-9 ‖G‖ in norm, and
    predictions by 1e-4 of their spread at a penalty of 1e-6 ‖G‖, 2e-3 at 2e-7 and 2e-2 at 2e-8.
    """
    top = max(float(eigen.values[-1]), TINY)
    if eigen.precision == "float32":
        return FLOAT32_FLOOR * top
    return 10 * len(eigen.values) * EPS * top


def penalties(eigen: Eigen) -> Float[Array, " p"]:
    """Return the default path: from 1e-11 ‖G‖, or the floor of the precision, to ten times ‖G‖.

    Smaller penalties can be given by hand.
    """
    top = max(float(eigen.values[-1]), TINY)
    low, high = np.log10(max(floor(eigen), LOWEST * top)), np.log10(10 * top)
    # Less a little: the quotient is whole for the usual path, and rounding must not add a penalty.
    count = max(2, int(np.ceil((high - low) * PER_DECADE - 1e-6)) + 1)
    return np.logspace(low, high, count)


def path_of(
    eigen: Eigen,
    alphas: Float[Array, " p"],
    loo: Float[Array, " p"] | None = None,
    loo_rows: int = 0,
    kfold: Float[Array, " p"] | None = None,
    loo_error: Float[Array, " p"] | None = None,
) -> Path:
    """Return all criteria along the path; those that moments alone give cost O(p D t)."""
    evidence = evidence_of(eigen, alphas)[:, eigen.power > 0]
    return Path(
        alphas,
        np.full(len(alphas), np.nan) if loo is None else loo,
        pooled(gcv_of(eigen, alphas), eigen.power),
        evidence.sum(axis=1),
        _effective_dimension(eigen, alphas),
        loo_rows,
        kfold,
        loo_error,
    )


def _effective_dimension(eigen: Eigen, alphas: Float[Array, " p"]) -> Float[Array, " p"]:
    w = eigen.values[:, None]
    return (w / (w + alphas)).sum(axis=0)


def gcv_of(eigen: Eigen, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
    """Generalised cross-validation of each target; infinite where no degree of freedom is left."""
    n, w = eigen.count, eigen.values
    r = max(min(len(w), eigen.rows - eigen.centred), 0)
    left = (alphas / (w[len(w) - r :, None] + alphas)).sum(axis=0)
    free = (max(n - eigen.centred - r, 0.0) + left)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        gcv = (n / free) ** 2 * eigen.residual_power(alphas) / eigen.weight
    return np.where(free > 0, gcv, np.inf)


def evidence_of(eigen: Eigen, alphas: Float[Array, " p"]) -> Float[Array, "p t"]:
    """Log marginal likelihood of y ~ N(0, a²(ZZᵀ + λI)) at the best amplitude a, each target's.

    −(n/2)(1 + log 2πâ²) − ½ log det(ZZᵀ + λI), with â² = yᵀ(ZZᵀ + λI)⁻¹y / n.
    """
    w, lam, n = eigen.values[:, None], alphas[None, :], eigen.count
    left = np.maximum(eigen.unexplained(alphas), np.finfo(float).tiny)
    log_q = np.log(left) - np.log(alphas)[:, None]
    logdet = np.log(w + lam).sum(axis=0) + (n - len(eigen.values)) * np.log(alphas)
    return -0.5 * n * (1 + np.log(2 * np.pi / n) + log_q) - 0.5 * logdet[:, None]


def pooled(errors: Float[Array, "p t"], power: Float[Array, " t"]) -> Float[Array, " p"]:
    """Mean over targets of relative errors, in units of the mean power: no target dominates."""
    varies = power > 0
    if not np.any(varies):
        return errors.mean(axis=1)
    return np.mean(errors[:, varies] / power[varies], axis=1) * power[varies].mean()


def leave_one_out(
    eigen: Eigen,
    blocks: Iterable[tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"] | None]],
    alphas: Float[Array, " p"],
) -> tuple[Float[Array, " p"], int]:
    """Return the leave-one-out mean squared error at every penalty, and the rows it is a mean of.

    Several targets: the mean of their relative errors; see :func:`leave_one_out_each`.
    """
    errors, rows = leave_one_out_each(eigen, blocks, alphas)
    return pooled(errors, eigen.power / eigen.weight), rows


def leave_one_out_each(
    eigen: Eigen,
    blocks: Iterable[tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"] | None]],
    alphas: Float[Array, " p"],
) -> tuple[Float[Array, "p t"], int]:
    """Return the leave-one-out mean squared errors of each target, and the rows of that mean.

    Parameters
    ----------
    eigen : Eigen
        Of the moments of all rows.
    blocks : iterable of (Z, y, w)
        Rows among those of the moments, about the means that the moments have.
    alphas : (p,)

    Notes
    -----
    Exact for each row; with a sample of rows the mean is an unbiased estimate of that of all.
    Time O(b D (D + p)) a block. Directions whose eigenvalues sum to less than 1e-6 of the
    smallest penalty change no slack by a larger share, and are left out.
    """
    total, weight, rows = np.zeros((len(alphas), len(eigen.power))), 0.0, 0
    for w, targets in squared_rows(eigen, blocks, alphas):
        total += np.stack([w @ errors for _, errors in targets], axis=1)
        weight += float(w.sum())
        rows += len(w)
    return total / max(weight, np.finfo(float).tiny), rows


def squared_rows(
    eigen: Eigen,
    blocks: Iterable[tuple[Float[Array, "b D"], Float[Array, "b t"], Float[Array, " b"] | None]],
    alphas: Float[Array, " p"],
) -> Iterator[tuple[Float[Array, " b"], Iterator[tuple[Array, Array]]]]:
    """Give for each block its weights, and for each target squares of residuals and errors, (b, p).

    The errors are those of leaving the row out; see :func:`leave_one_out_each`.
    """
    kept = np.cumsum(eigen.values) > 1e-6 * alphas[0]
    vectors = eigen.vectors[:, kept]
    for Z, y, w in blocks:
        A = product(Z, np.ascontiguousarray(vectors, dtype=Z.dtype))
        weights = np.ones(len(y)) if w is None else w
        yield weights, _squares(A, y, weights, kept, alphas, eigen)


def _squares(
    A: Array, y: Array, w: Array, kept: Array, alphas: Array, eigen: Eigen
) -> Iterator[tuple[Array, Array]]:
    inverse = 1 / (eigen.values[kept, None] + alphas)
    slack = Rounding.of(eigen, A.dtype).slack(_leverage(A, inverse, eigen), w, alphas)
    for target, c in enumerate(eigen.projected[kept].T):
        residuals = y[:, target, None] - product(A, (c[:, None] * inverse).astype(A.dtype))
        yield residuals**2, left_out_errors(residuals, slack) ** 2


def _leverage(A: Array, inverse: Array, eigen: Eigen) -> Float[Array, "b p"]:
    """Return h of rows in the coordinates of the eigenvectors."""
    mean = 1 / eigen.weight if eigen.centred else 0.0
    return product(A * A, inverse.astype(A.dtype)).astype(np.float64) + mean


def left_out_errors(residuals: Array, slack: Array) -> Array:
    """Return residuals over slack, infinite where that is zero."""
    errors = np.full(np.broadcast_shapes(residuals.shape, slack.shape), np.inf)
    return np.divide(residuals, slack, out=errors, where=slack > 0)


@dataclass(frozen=True)
class Rounding:
    """What rounding may change leverages by.

    Attributes
    ----------
    top, least : float
        Largest and smallest eigenvalue of G.
    gram : float
        g, the relative error of G.
    unit : float
        u, that of the products with rows.
    """

    top: float
    least: float
    gram: float
    unit: float

    @staticmethod
    def of(eigen: Eigen, dtype: Any) -> "Rounding":
        """Return that of a decomposition, and of rows of this precision."""
        gram = FLOAT32_GRAM if eigen.precision == "float32" else EPS
        least, top = float(eigen.values[0]), float(eigen.values[-1])
        return Rounding(top, least, gram, float(np.finfo(dtype).eps))

    def slack(
        self, leverage: Float[Array, "b p"], w: Float[Array, " b"], alphas: Float[Array, " p"]
    ) -> Float[Array, "b p"]:
        """Return s = 1 − min(w, 1) h, or zero where rounding hides it.

        In float64 it is the least that s may be, so that errors are at least what they are.

        q = Σ a²/(w + λ)² is bounded by s/λ and by h/(w_1 + λ), w_1 the smallest eigenvalue.
        """
        inside = np.minimum(w, 1.0)[:, None] * leverage
        slack = 1 - inside
        with np.errstate(divide="ignore", invalid="ignore"):
            q = np.fmin(np.maximum(slack, 0.0) / alphas, inside / (self.least + alphas))
        q *= self.top
        doubt = self.gram * q + 2 * self.unit * np.sqrt(q) + self.unit
        double = max(self.gram, self.unit) <= EPS
        return np.where(slack > TOLD[double] * doubt, slack - DOUBTED[double] * doubt, 0.0)


# --- Rows added up as a triangle: QR of √w [1, Z, y], which keeps the digits that ZᵀZ loses ------
#
# An eigenvalue of ZᵀZ below Dε of the largest is lost, so singular values of Z below √(Dε) ≈ 1e-7
# are; those of the triangle R are lost below Dε. That is what a fit without penalty needs where D
# is near n. The column of ones comes first: what is left of Z and y below its row is centred.


class Triangle:
    """Adds blocks up to R with RᵀR = Σ w [1, z, y]ᵀ[1, z, y], by Householder reflections.

    Parameters
    ----------
    centred : bool, default True
        Whether an intercept is fitted.

    Notes
    -----
    Time 2 n D² and memory 2 D², whatever n; float64. Any number of rows, fewer than D too.
    """

    def __init__(self, centred: bool = True) -> None:
        self._centred = centred
        self._held: list[Array] = []
        self._features = 0
        self._rows = 0
        self._weight = 0.0

    def add(
        self, Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"] | None = None
    ) -> None:
        """Add one block."""
        w = np.ones(len(Z)) if w is None else np.asarray(w, np.float64)
        root = np.sqrt(w)[:, None]
        parts = [root * Z, root * y.reshape(len(Z), -1)]
        self._held.append(np.concatenate([root, *parts] if self._centred else parts, axis=1))
        self._features = Z.shape[1]
        self._rows += int(np.count_nonzero(w))
        self._weight += float(w.sum())
        if sum(map(len, self._held)) > 2 * self._held[0].shape[1]:
            self._reduce()

    def merge(self, other: "Triangle") -> "Triangle":
        """Return the triangle of the rows of both; ``other`` is used up."""
        self._held += other._held
        self._features = max(self._features, other._features)
        self._rows, self._weight = self._rows + other._rows, self._weight + other._weight
        return self

    def eigen(self) -> Eigen:
        """Return the decomposition of what was added: singular values of R."""
        self._reduce()
        first = int(self._centred)
        R, last = self._held[0][first:], first + self._features
        return decompose_rows(
            R[:, first:last],
            R[:, last:],
            np.ones(len(R)),
            self._centred,
            weight=self._weight,
            rows=self._rows,
        )

    def _reduce(self) -> None:
        stacked = np.concatenate(self._held)
        (R,) = qr(stacked, overwrite_a=True, mode="r", check_finite=False)
        self._held = [R[: R.shape[1]]]
