"""The posterior of a Gaussian process from the kernel matrix of its rows: one Cholesky factor.

With s = √w, A = √w K √w + λI and k = √w k(X, x), and with an intercept b of flat prior where one is
fitted, the process y = b + f(x) + ε, f ~ GP(0, a² k), ε ~ N(0, a²λ/w), has

    E y    = b̂ + kᵀu,   u = A⁻¹(√w y − s b̂),   b̂ = sᵀA⁻¹√w y/sᵀA⁻¹s,
    Var f  = a² (k(x, x) − kᵀA⁻¹k + (1 − kᵀA⁻¹s)²/sᵀA⁻¹s)

(Rasmussen and Williams 2006, eq. 2.25, 2.26 and 2.41 with B⁻¹ = 0), and for the last m rows the
block of A⁻¹ is U₂₂⁻¹U₂₂⁻ᵀ, with the last m × m block of A = UᵀU: leave-one-out for m rows costs m³.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bochner._core.blas import factor, solve_factored
from bochner._core.lapack import solve_rows_by_triangle
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.dual import SINGLE_FROM, KernelRows, inverse_diagonal
from bochner.solvers.ridge.evidence import EvidenceOutcome
from bochner.solvers.ridge.kernel_evidence import kernel_evidence, shifted
from bochner.solvers.ridge.kernel_path import FIRST, HIGHEST, Penalties, least_along
from bochner.solvers.ridge.problem import TINY, log_likelihood, slack_of_inverse

#: Rows that the noise is chosen by, at most.
EVIDENCE_ROWS = 2048

#: Share of a penalty that a factor in float32 may be off by.
ROUNDED = 0.01

#: Refinements of a float32 solution: each reduces the error a hundredfold.
REFINEMENTS = 6

#: Products that tell the largest eigenvalue of A to a few per cent.
PRODUCTS = 4

#: Penalties between which noise is looked for, as shares of the trace; given ones below are raised.
LOWEST = 1e-12

#: The slope of the log evidence a row, in log λ, that is level.
LEVEL = 3e-4


@dataclass(frozen=True, eq=False)
class KernelPosterior:
    """The posterior at one penalty, for an amplitude of one."""

    # U, the upper triangle, in float32 where that is off by little beside the penalty.
    factor: Float[Array, "n n"] = field(repr=False)
    root: Float[Array, " n"]  # s
    alpha: float  # λ
    centred: bool

    @staticmethod
    def of(rows: KernelRows, alpha: float) -> "KernelPosterior":
        """Factor the matrix of rows: n³/3 operations.

        Raises
        ------
        LinAlgError
            If rounding leaves A not positive.
        """
        single = len(rows.w) > SINGLE_FROM and _bears_float32(rows, alpha)
        try:
            U = _factor(rows, alpha, np.float32 if single else np.float64)
        except LinAlgError:
            if not single:
                raise
            U = _factor(rows, alpha, np.float64)
        return KernelPosterior(U, rows.root, alpha, rows.centred)

    def inverse(self, right: Float[Array, "n r"]) -> Float[Array, "n r"]:
        """Return A⁻¹ of columns, in the precision of the factor."""
        return solve_factored(self.factor, right).astype(np.float64)

    @cached_property
    def _one(self) -> tuple[Float[Array, " n"], float]:
        """A⁻¹s, and sᵀA⁻¹s."""
        p = self.inverse(self.root[:, None])[:, 0]
        return p, max(float(self.root @ p), TINY)

    def coefficients(
        self, y: Float[Array, "n t"], rows: KernelRows | None = None
    ) -> tuple[Float[Array, "n t"], Float[Array, " t"]]:
        """Return √w u and b̂: the mean is Σ_i √w_i u_i k(x, x_i) + b̂.

        With ``rows``, the rows of the factor, a float32 solution is refined to float64.
        """
        mean = self.centred * (self.root**2 @ y) / (self.root @ self.root)
        right = np.hstack([self.root[:, None] * (y - mean), self.root[:, None]])
        u = self.inverse(right)
        for _ in range(REFINEMENTS if rows and self.factor.dtype == np.float32 else 0):
            u += self.inverse(right - rows.weighted @ u - self.alpha * u)  # type: ignore[union-attr]
        u, p = u[:, :-1], u[:, -1:]
        intercept = np.zeros(y.shape[1])
        if self.centred:
            intercept = self.root @ u / (self.root @ p)
            u = u - p * intercept
        return self.root[:, None] * u, mean + intercept

    @property
    def log_det(self) -> float:
        """Of A, on all directions but s where an intercept is fitted."""
        found = 2 * float(np.log(np.diag(self.factor).astype(np.float64)).sum())
        if self.centred:
            found += float(np.log(self._one[1] / (self.root @ self.root)))
        return found

    @property
    def quadratic(self) -> tuple[Float[Array, "n n"], Float[Array, " n"], float]:
        """√w A⁻¹ √w, √w A⁻¹s and sᵀA⁻¹s, which variances are made of: O(n³)."""
        inverse = self.inverse(np.eye(len(self.root)))
        p, whole = self._one
        return self.root[:, None] * inverse * self.root, self.root * p, whole

    def variance(self, k: Float[Array, "b n"], prior: Float[Array, " b"]) -> Float[Array, " b"]:
        """Return Var f/a² at rows with these kernel values, and k(x, x): O(b n²)."""
        half = self._half(k)
        found = prior - np.einsum("ij,ij->j", half, half, dtype=np.float64)
        return np.maximum(found + self._by_intercept(k) ** 2, 0.0)

    def covariance(self, k: Float[Array, "b n"], prior: Float[Array, "b b"]) -> Float[Array, "b b"]:
        """Return Cov f, f'/a² of rows."""
        half, own = self._half(k).astype(np.float64), self._by_intercept(k)
        return prior - half.T @ half + np.outer(own, own)

    def between(
        self,
        k: tuple[Float[Array, "b n"], Float[Array, "c n"]],
        prior: Float[Array, "b c"],
        constant: tuple[Float[Array, " b"], Float[Array, " c"]],
    ) -> Float[Array, "b c"]:
        """Return Cov Lf, L'f'/a² of linear functionals: rows, derivatives, averages.

        ``k`` is L k(·, X), ``prior`` L L'k, ``constant`` what L makes of the constant 1.
        """
        halves = [self._half(each).astype(np.float64) for each in k]
        own = [self._by_intercept(e, c) for e, c in zip(k, constant, strict=True)]
        return prior - halves[0].T @ halves[1] + np.outer(*own)

    def _half(self, k: Float[Array, "b n"]) -> Float[Array, "n b"]:
        half = np.array((self.root * k).T, self.factor.dtype, order="F")
        solve_rows_by_triangle(self.factor, half)
        return half

    def _by_intercept(
        self, k: Float[Array, "b n"], constant: Float[Array, " b"] | float = 1.0
    ) -> Float[Array, " b"]:
        """Return (1 − kᵀA⁻¹s)/√(sᵀA⁻¹s); zero without an intercept."""
        if not self.centred:
            return np.zeros(len(k))
        p, whole = self._one
        return (constant - k @ (self.root * p)) / np.sqrt(whole)

    def slack(self, m: int) -> Float[Array, " m"]:
        """Return what their own fit leaves of the last m rows: O(m³)."""
        n = len(self.root)
        diagonal = inverse_diagonal(self.factor[n - m :, n - m :].astype(np.float64), m)
        if self.centred:
            p, whole = self._one
            diagonal = diagonal - p[n - m :] ** 2 / whole
        return slack_of_inverse(self.alpha * diagonal, self.root[n - m :] ** 2)


def _factor(rows: KernelRows, alpha: float, dtype: Any) -> Float[Array, "n n"]:
    A = shifted(rows.K, rows.root, alpha, dtype=dtype)
    factor(A)
    return A


def _bears_float32(rows: KernelRows, alpha: float) -> bool:
    """Whether a factor of float32 is off by little beside the penalty."""
    v = rows.root / np.linalg.norm(rows.root)
    for _ in range(PRODUCTS):
        v = rows.weighted @ v
        top = float(np.linalg.norm(v))
        v = v / max(top, TINY)
    return bool(np.finfo(np.float32).eps * top <= ROUNDED * alpha)


# --- noise and amplitude -------------------------------------------------------------------------
#
# By evidence. Where the kernel is not the one of the data, its largest value may be at a λ at which
# rows are predicted badly. So where noise and amplitude are both open, λ is one at which rows left
# out err by hardly more than the least.

#: How noise and amplitude are chosen: "auto" has regard to errors of rows left out.
CRITERIA = ("auto", "evidence")


def choose_penalty(
    rows: KernelRows,
    noise: float | None = None,
    amplitude: float | None = None,
    *,
    criterion: str = "auto",
    start: float | None = None,
) -> tuple[Float[Array, " t"], EvidenceOutcome]:
    """Return λ = σ²/a² of each target, and how the choice went.

    Parameters
    ----------
    rows : KernelRows
        In random order: of more than 2048 the first ones choose.
    noise, amplitude : float, optional
        σ² and a² where they are given.
    criterion : {"auto", "evidence"}
        "evidence": the largest marginal likelihood. "auto": the same, where noise and amplitude are
        both open among λ at which rows left out err by about one per cent more than the least at
        most.
    start : float, optional
        Where λ is looked for first.

    Notes
    -----
    O(m³) for each of four to twelve λ a target, m ≤ 2048.
    """
    few = rows if len(rows.w) <= EVIDENCE_ROWS else rows.take(np.arange(EVIDENCE_ROWS))
    bounded = criterion == "auto" and noise is None and amplitude is None
    found = [_chosen(few, i, noise, amplitude, start, bounded) for i in range(rows.y.shape[1])]
    outcomes = [outcome for _, outcome in found]
    varying = [each for each in outcomes if each is not EvidenceOutcome.CONSTANT_TARGET]
    outcome = max(varying, key=list(EvidenceOutcome).index, default=EvidenceOutcome.CONSTANT_TARGET)
    return np.array([alpha for alpha, _ in found]), outcome


def _chosen(
    rows: KernelRows,
    i: int,
    noise: float | None,
    amplitude: float | None,
    start: float | None,
    bounded: bool,
) -> tuple[float, EvidenceOutcome]:
    low, high = LOWEST * rows.trace, HIGHEST * rows.trace
    if noise is not None and amplitude is not None:
        return max(noise / amplitude, low), EvidenceOutcome.SOLVED
    if not rows.power[i] > 0 or rows.count <= rows.centred:
        return high, EvidenceOutcome.CONSTANT_TARGET
    if noise == 0:
        return low, EvidenceOutcome.SOLVED

    def at(log_alpha: float) -> tuple[float, float]:
        try:
            return _by_evidence(rows, i, noise, amplitude, float(np.exp(log_alpha)))
        except LinAlgError:
            return np.inf, -np.inf

    first = FIRST * rows.trace / len(rows.w) if start is None else start
    path = float(np.log(first)), float(np.log(low)), float(np.log(high))
    if bounded:
        alpha = Penalties(replace(rows, y=rows.y[:, i : i + 1])).likeliest(first)
    else:
        alpha = float(np.exp(least_along(at, *path, level=LEVEL)))
    if alpha <= 1.001 * low:
        return alpha, EvidenceOutcome.EDGE_LOW
    return alpha, EvidenceOutcome.EDGE_HIGH if alpha >= 0.999 * high else EvidenceOutcome.SOLVED


def _by_evidence(
    rows: KernelRows, i: int, noise: float | None, amplitude: float | None, alpha: float
) -> tuple[float, float]:
    """Return minus the log evidence a row, and its slope in log λ."""
    held = {"centred": rows.centred, "noise": noise, "amplitude": amplitude}
    score = kernel_evidence(rows.K, rows.about[:, i : i + 1], rows.w, alpha, **held)  # type: ignore[arg-type]
    return score.value / rows.count, score.by_log_alpha / rows.count


def evidence_at(
    posterior: KernelPosterior, rows: KernelRows, coef: Float[Array, " n"], i: int, a2: float | None
) -> tuple[float, float]:
    """Return a² as it is given or of the largest evidence of all rows, and the log evidence."""
    freedom = max(rows.count - rows.centred, 1.0)
    q = max(float(rows.about[:, i] @ coef), TINY)
    scale = q / freedom if a2 is None else max(a2, TINY)
    left = freedom - (len(rows.w) - rows.centred)
    log_det = posterior.log_det + left * np.log(posterior.alpha)
    return scale, log_likelihood(q, log_det, freedom, scale)
