"""A process with more Fourier modes than rows, solved by the n × n kernel matrix of the rows.

The sample of a pass holds all rows if they are few. One factor of A = √w K √w + λI gives the
evidence, coefficients and deviations of the exact process. Coefficients u of the rows become
coefficients of modes, Σ √w_i u_i φ(x_i), which are exact up to the tolerance. If the noise is
open, the penalty of the modes includes the part of f that they leave out as noise; the penalty of
the rows does not.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bochner._core.arrays import dense, to_numpy
from bochner._core.nufft import sums_of_waves
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.features.map import WaveMap
from bochner.kernels.kernel import Kernel
from bochner.solvers.gram import DenseBlock, WaveGram
from bochner.solvers.ridge.dual import KernelFactor, KernelRows
from bochner.solvers.ridge.evidence import Evidence
from bochner.solvers.ridge.kernel_path import choose_penalty
from bochner.solvers.ridge.problem import amplitude_at, evidence
from bochner.solvers.waves import MOST_EXACT, WaveProblem

#: Largest error of the kernel, as a share of k(x, x), at which its matrix may replace the modes'.
MOST_ERROR = 1e-2

#: Waves per row above which the kernel matrix is cheaper.
WAVES = 4

#: Condition number after preconditioning above which conjugate gradients take longer than some
#: factors of 2048 rows.
HARD = 2.0

#: Rows that tell about where the penalty is.
LOOKED_AT = 512

#: Products n² b, of deviations of b places: beyond, draws of the posterior take less.
MOST_PRODUCTS = 1e11

#: Places whose kernel values are held at once.
PLACES = 1024

#: Penalties that differ by rounding, relatively.
SAME = 1e-8

#: Error of sums of waves over coefficients: rows of opposite signs cancel.
SUMMED = 1e-13


@dataclass(frozen=True, eq=False)
class FewRows:
    """All rows of a fit, in random order, and their kernel matrix once it is asked for."""

    kernel: Kernel
    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    centred: bool
    _factors: dict[float, KernelFactor] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(kernel: Kernel, sample: RowSample, centred: bool) -> "FewRows":
        """Take the rows of a sample that holds all, the first at random first."""
        order = np.argsort(sample.priority, kind="stable")
        rows = as_rows(sample.X)[order], sample.y[order], sample.w[order]
        return FewRows(kernel, *rows, centred)

    @cached_property
    def rows(self) -> KernelRows:
        """The kernel matrix, n ≤ 8192: 3 n² numbers with its factor."""
        return self._first(len(self.w))

    def _first(self, m: int) -> KernelRows:
        K = np.asarray(to_numpy(self.kernel(self.X[:m])), np.float64)
        return KernelRows(K, self.y[:m], self.w[:m], self.centred)

    def penalty(self, noise: float | None, amplitude: float | None) -> float:
        """Return about the least λ of all targets, by the evidence of some rows."""
        rows = self._first(LOOKED_AT)
        return float(choose_penalty(rows, noise, amplitude, criterion="evidence")[0].min())

    def is_faster(self, gram: WaveGram, alpha: float) -> bool:
        """Whether conjugate gradients on waves take longer than factors of the rows, near α."""
        low = gram.preconditioner(alpha)
        return isinstance(low, DenseBlock) and low.left > HARD

    def posterior(self, alpha: float) -> KernelFactor:
        """Return the posterior at λ, for an amplitude of one; the factor is kept."""
        near = (known for known in self._factors if abs(known - alpha) <= SAME * alpha)
        alpha = next(near, alpha)
        if alpha not in self._factors:
            self._factors[alpha] = self.rows.factored(alpha)
        return self._factors[alpha]

    def solved(
        self,
        noise: float | None,
        amplitude: float | None,
        phi: WaveMap,
        gram: WaveGram,
        left_out: float,
        start: float | None,
    ) -> tuple[Evidence, Float[Array, "D t"]]:
        """Return noise and amplitude of the largest evidence, and the coefficients of waves.

        ``left_out`` is what these waves leave out of k(x, x).
        """
        rows = self.rows
        alpha, outcome = choose_penalty(rows, noise, amplitude, criterion="evidence", start=start)
        coef, found = np.empty_like(rows.y), []
        for i, value in enumerate(alpha):
            posterior = self.posterior(float(value))
            coef[:, i] = posterior.coef[:, i]
            given = rows, posterior, noise or None, amplitude
            found.append((amplitude_at(*given)[i], evidence(*given)[i]))
        scale, likelihood = np.array(found).T
        penalty = alpha if noise is not None else alpha + left_out
        law = Evidence(scale * penalty, scale, penalty, likelihood, outcome)
        return law, self._as_waves(phi, gram, coef)

    def _as_waves(
        self, phi: WaveMap, gram: WaveGram, coef: Float[Array, "n t"]
    ) -> Float[Array, "D t"]:
        """Return Σ_i c_i φ(x_i), coefficients of features."""
        angles = phi.places.angles(self.X)
        waves = [sums_of_waves(angles, c[None], phi.shape, SUMMED) for c in coef.T]
        return gram.to_real(gram.right(np.concatenate(waves)))

    def variance(self, X: Array, evidence: Evidence, noise: Array) -> Float[Array, "b t"] | None:
        """Return the variance of f at rows; None if draws are faster for this many rows."""
        if len(X) * len(self.X) ** 2 > MOST_PRODUCTS:
            return None
        X = as_rows(X)
        parts = [
            self._variance(X[start : start + PLACES], evidence, noise)
            for start in range(0, len(X), PLACES)
        ]
        return np.concatenate(parts) if parts else np.empty((0, len(noise)))

    def _variance(self, X: Array, evidence: Evidence, noise: Array) -> Float[Array, "b t"]:
        k, prior = self._values(X), np.asarray(to_numpy(self.kernel.diag(X)), np.float64)
        found = [one.variance(k, prior) for one in self._posteriors(evidence, noise)]
        return np.stack(found, axis=1) * evidence.amplitude

    def covariance(self, X: Array, evidence: Evidence, noise: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        X = as_rows(X)
        k, prior = self._values(X), np.asarray(to_numpy(self.kernel(X)), np.float64)
        found = [one.covariance(k, prior) for one in self._posteriors(evidence, noise)]
        return np.stack(found, axis=2) * evidence.amplitude

    def _posteriors(self, evidence: Evidence, noise: Array) -> list[KernelFactor]:
        shares = np.maximum(noise / evidence.amplitude, 0.0)
        return [self.posterior(float(alpha)) for alpha in shares]

    def _values(self, X: Array) -> Float[Array, "b n"]:
        return np.asarray(to_numpy(self.kernel(X, self.X)), np.float64)


def as_rows(X: Array) -> Float[Array, "n d"]:
    """Return rows in NumPy's float64, dense."""
    return to_numpy(dense(X)).astype(np.float64, copy=False)


def is_served(n: int, phi: WaveMap, problem: WaveProblem) -> bool:
    """Whether the targets of n rows vary, and waves are many more."""
    many = max(MOST_EXACT, WAVES * n) < phi.n_features and phi.error <= MOST_ERROR
    return many and bool(np.all(problem.power > 0))
