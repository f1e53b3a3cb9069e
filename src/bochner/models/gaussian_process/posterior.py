"""The posterior of a Gaussian process on features: the law of its coefficients.

With G = V diag(w) Vᵀ about the mean z̄, λ = σ²/a² and b of flat prior,

    f(x) = ȳ + (φ(x) − z̄)·β + b',   β ~ N(β̂, a²λ (G + λI)⁻¹),   b' ~ N(0, a²λ/W),
    Var f(x) = a² λ (Σ_j A_j²/(w_j + λ) + 1/W),   A = Vᵀ(φ(x) − z̄).
"""

from dataclasses import dataclass

import numpy as np

from bochner._core.blas import product
from bochner._core.shapes import Array, Float
from bochner.solvers.ridge.eigen import FLOAT32_GRAM, Eigen
from bochner.solvers.ridge.evidence import Evidence
from bochner.solvers.ridge.leave_one_out import dual_slacks, resolved_slacks


@dataclass(frozen=True, eq=False)
class Posterior:
    """The law of β and of the intercept.

    Attributes
    ----------
    values : (r,) float64
        w.
    vectors : (D, r) float64
        V; directions that are not there have w = 0.
    feature_mean : (D,) float64
        z̄, zero without an intercept.
    coef : (D, t) float64
        β̂.
    intercept : (t,) float64
        ȳ − z̄·β̂.
    spread : float
        1/W, or zero without an intercept.
    evidence : Evidence
        λ, a² and σ² of each target.
    """

    values: Float[Array, " r"]
    vectors: Float[Array, "D r"]
    feature_mean: Float[Array, " D"]
    coef: Float[Array, "D t"]
    intercept: Float[Array, " t"]
    spread: float
    evidence: Evidence

    @property
    def floor(self) -> Float[Array, " t"]:
        """a²λ: the noise that rows were fitted with."""
        return self.evidence.amplitude * self.evidence.alpha

    def mean(self, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return E f(x), for rows of features."""
        return Z @ self.coef + self.intercept

    def leverage(self, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return Var f(x)/(a²λ) without what the features leave out."""
        A, outside = self._coordinates(Z)
        inverse = 1 / (self.values[:, None] + self.evidence.alpha)
        return (A * A) @ inverse + outside[:, None] / self.evidence.alpha + self.spread

    def held(
        self, Z: Float[Array, "b D"], directions: Float[Array, "b D"]
    ) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and the leverage of each row if aᵀβ = 0, with a direction a of its own.

        With M = (G + λI)⁻¹ and z = φ(x) − z̄ they lose zᵀMa aᵀβ̂/aᵀMa and (zᵀMa)²/aᵀMa.
        """
        (A, _), a = self._coordinates(Z), product(directions, self.vectors)
        alpha, inverse = self.evidence.alpha, 1 / (self.values[:, None] + self.evidence.alpha)
        outside = np.einsum("ij,ij->i", directions, Z - self.feature_mean) - (A * a).sum(axis=1)
        own = np.einsum("ij,ij->i", directions, directions) - (a * a).sum(axis=1)
        cross = (A * a) @ inverse + outside[:, None] / alpha
        within = (a * a) @ inverse + np.maximum(own, 0.0)[:, None] / alpha
        mean = self.mean(Z) - cross * (directions @ self.coef) / within
        return mean, np.maximum(self.leverage(Z) - cross**2 / within, 0.0)

    def covariance(self, Z: Float[Array, "b D"], target: int) -> Float[Array, "b b"]:
        """Return Cov f(x), f(x') of one target without what the features leave out."""
        A, _ = self._coordinates(Z)
        scale, alpha = self.evidence.amplitude[target], self.evidence.alpha[target]
        centred = Z - self.feature_mean
        explained = (A * (self.values / (self.values + alpha))) @ A.T
        return scale * (centred @ centred.T - explained + alpha * self.spread)

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Float[Array, "D t n"], Float[Array, "t n"]]:
        """Return n draws of β and of the intercept that goes with it."""
        D, t = self.coef.shape
        rough = rng.standard_normal((D, t, n))
        shrink = np.sqrt(self.evidence.alpha / (self.values[:, None] + self.evidence.alpha))
        turned = np.tensordot(self.vectors.T, rough, 1)
        moved = np.tensordot(self.vectors, turned * (shrink[:, :, None] - 1), 1)
        deviation = np.sqrt(self.evidence.amplitude)[:, None] * (rough + moved)
        wander = np.sqrt(self.floor * self.spread)[:, None] * rng.standard_normal((t, n))
        offset = self.intercept[:, None] + wander - np.tensordot(self.feature_mean, deviation, 1)
        return self.coef[:, :, None] + deviation, offset

    def _coordinates(self, Z: Array) -> tuple[Float[Array, "b r"], Float[Array, " b"]]:
        """Return A, and the squared length of what lies outside V."""
        centred = Z - self.feature_mean
        A = product(centred, np.ascontiguousarray(self.vectors))
        if self.vectors.shape[0] == self.vectors.shape[1]:
            return A, np.zeros(len(Z))
        outside = np.einsum("ij,ij->i", centred, centred) - np.einsum("ij,ij->i", A, A)
        return A, np.maximum(outside, 0.0)


def posterior_of(
    eigen: Eigen, means: tuple[Float[Array, " D"], Float[Array, " t"]], evidence: Evidence
) -> Posterior:
    """Return the posterior at the noise and amplitude of ``evidence``."""
    coef = np.column_stack(
        [eigen.coefficients(alpha)[:, i] for i, alpha in enumerate(evidence.alpha)]
    )
    spread = 1 / eigen.count if eigen.centred else 0.0
    intercept = means[1] - means[0] @ coef
    return Posterior(eigen.values, eigen.vectors, means[0], coef, intercept, spread, evidence)


# --- What leaving out a row costs: its residual y − f̂ and its slack 1 − h ------------------------

#: Rows of the n × n form, at most: a fraction of a second.
MOST_ROWS = 1024


def of_all_rows(
    posterior: Posterior, Z: Float[Array, "n D"], y: Float[Array, "n t"], w: Float[Array, " n"]
) -> tuple[Float[Array, "n t"], Float[Array, "n t"]]:
    """Return residuals and slacks of the rows that the posterior is of, all of them: O(n³)."""
    centred, alpha = y - _centre(posterior), posterior.evidence.alpha
    return dual_slacks(Z - posterior.feature_mean, centred, w, alpha, bool(posterior.spread))


def of_some_rows(
    posterior: Posterior,
    Z: Float[Array, "b D"],
    y: Float[Array, "b t"],
    w: Float[Array, " b"],
    precision: str = "float64",
) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
    """Return residuals and slacks of some rows: O(b D²)."""
    prior = np.einsum("ij,ij->i", Z - posterior.feature_mean, Z - posterior.feature_mean)
    leverage = posterior.leverage(Z)
    return told_apart(posterior, y, posterior.mean(Z), leverage, w, prior, precision)


def told_apart(
    posterior: Posterior,
    y: Float[Array, "b t"],
    mean: Float[Array, "b t"],
    leverage: Float[Array, "b t"],
    w: Float[Array, " b"],
    prior: Float[Array, " b"],
    precision: str = "float64",
) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
    """Return y − f̂ and 1 − h; where rounding made them, those of a row that stands by itself."""
    alpha, D = posterior.evidence.alpha, len(posterior.coef)
    top = posterior.values.max(initial=0.0) if precision == "float32" else 0.0
    centred = y - _centre(posterior)
    return resolved_slacks(y - mean, centred, leverage, w, prior, alpha, D, FLOAT32_GRAM * top)


def _centre(posterior: Posterior) -> Float[Array, " t"]:
    return posterior.intercept + posterior.feature_mean @ posterior.coef
