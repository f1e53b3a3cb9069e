"""Ridge regressions and Gaussian processes on Fourier modes: penalties, evidence and variances.

All results follow from solutions of (G + αI) c = b, and from solutions with random right-hand sides
Rz, with the preconditioner M = R Rᵀ and a random z of norm √D (:mod:`~.gram`):

    tr A⁻¹ = tr M⁻¹ + E (A⁻¹Rz − M⁻¹Rz)·M⁻¹Rz,     log det A = log det M + E zᵀ log(R⁻¹AR⁻ᵀ) z,

A = G + αI, and similarly for each diagonal element of A⁻¹. The expectations are estimated by means
over a few z, which are the same for every α, so that criteria are smooth. Only the remainder after
preconditioning is random (Wenger, Pleiss, Hennig, Cunningham and Gardner 2022).

With noise variance σ², amplitude a², α = σ²/a², P = Σ w (y − ȳ)², q = (P − b·c)/α and ν degrees
of freedom, :mod:`~.ridge.problem` has the log evidence and its slope in log α. The slope in a
parameter θ of the weights v of the modes follows from

    ∂q/∂θ = −Σ c_j² ∂log v_j/∂θ,     ∂log det A/∂θ = Σ (1 − α (A⁻¹)_jj) ∂log v_j/∂θ.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from scipy.fft import irfftn, next_fast_len, rfftn
from scipy.linalg import eigh_tridiagonal

from bochner._core.arrays import slices
from bochner._core.shapes import Array, Float
from bochner.solvers.cg import Steps, inner
from bochner.solvers.gram import (
    ModeGram,
    ModePreconditioner,
    conjugate_gradients,
    full_of,
    pad,
    spread,
    unpad,
)
from bochner.solvers.ridge.problem import amplitude_at, evidence, freedom
from bochner.solvers.ridge.search import likeliest_alpha
from bochner.solvers.ridge.solution import Evidence, EvidenceOutcome

PROBES = 8  # Number of random right-hand sides
ROUGH = 1e-3  # Relative error of solutions during the search for a penalty
MAX_EXACT = 4096  # Largest number of features for exact posteriors, by Cholesky
LEVEL = 3e-6  # Slopes of the log evidence per row in log α below this count as zero
MIN_ALPHA, MAX_ALPHA = 1e-11, 1e2  # Range of penalties, relative to W k(0)


@dataclass(frozen=True, eq=False)
class ModeProblem:
    """Sums over the rows that determine the coefficients of Fourier modes."""

    gram: ModeGram
    b: Float[Array, "t D"]  # Σ w (y − ȳ) of each feature
    power: Float[Array, " t"]  # Σ w (y − ȳ)²
    count: float  # n: the larger of the number of rows and their weight
    probes: Float[Array, "s D"]  # z, each of norm √D

    @staticmethod
    def of(
        gram: ModeGram,
        cross: Array,
        power: Float[Array, " t"],
        count: float,
        rng: np.random.Generator,
    ) -> "ModeProblem":
        """Return the problem of the sums ``cross``, k ascending, with random probes."""
        z = rng.standard_normal((PROBES, gram.dimension))
        z *= np.sqrt(gram.dimension / inner(z, z))[:, None]
        return ModeProblem(gram, gram.right_side(cross), power, count, z)

    @property
    def weight(self) -> float:
        return self.gram.weight

    @property
    def centred(self) -> bool:
        return self.gram.centred

    @property
    def scale(self) -> float:
        """W k(0)."""
        return self.gram.weight * self.gram.size

    def target(self, i: int) -> "ModeProblem":
        return replace(self, b=self.b[i : i + 1], power=self.power[i : i + 1])

    def at(self, alpha: float, error: float = ROUGH) -> "ModeState":
        """Return the solutions at penalty α for targets and probes, to a relative ``error``."""
        D = self.gram.dimension
        low = self.gram.preconditioner(alpha, full=D < 2048)  # at most 0.3 s
        if D <= MAX_EXACT and low.condition > 4.0:
            low = self.gram.preconditioner(alpha, full=True)
        draws = low.root(self.probes) if len(self.probes) else self.probes
        krylov = conjugate_gradients(low, np.concatenate([self.b, draws]), error)
        return ModeState(self, low, krylov, draws)


@dataclass(frozen=True, eq=False)
class ModeState:
    """Solutions at one penalty, and the terms of the criteria."""

    problem: ModeProblem
    low: ModePreconditioner
    krylov: Steps  # of the targets, then of the probes
    draws: Array  # Rz

    @property
    def alpha(self) -> float:
        return self.low.alpha

    @property
    def coef(self) -> Array:
        """Coefficients of the modes for each target."""
        return self.krylov.solution[: len(self.problem.power)]

    @cached_property
    def overlap(self) -> Float[Array, " t"]:
        return inner(self.problem.b, self.coef)

    @cached_property
    def squared_norm(self) -> Float[Array, " t"]:
        return inner(self.coef, self.coef)

    @cached_property
    def inverse_diagonal(self) -> Float[Array, " D"]:
        """Diagonal of (G + αI)⁻¹, averaged over the cosine and sine of each mode."""
        t = len(self.problem.power)
        approximate = self.low.solve(self.draws)
        change = np.mean((self.krylov.solution[t:] - approximate) * approximate, axis=0)
        return self.low.inverse_diagonal + self.problem.gram.mode_means(change)

    @cached_property
    def trace(self) -> float:
        return float(self.inverse_diagonal.sum())

    @property
    def effective_dimension(self) -> float:
        """d_α = tr G (G + αI)⁻¹."""
        return self.problem.gram.dimension - self.alpha * self.trace

    @property
    def rss(self) -> Float[Array, " t"]:
        rss = self.problem.power - self.overlap - self.alpha * self.squared_norm
        return np.maximum(rss, 1e-14 * self.problem.power)

    @property
    def free(self) -> float:
        n, freedom_ = self.problem.count, self.effective_dimension + self.problem.centred
        return max(n - freedom_, 1e-12 * n)

    @property
    def quadratic_form(self) -> Float[Array, " t"]:
        difference = self.problem.power - self.overlap
        return np.maximum(difference, 1e-14 * self.problem.power + 1e-300) / self.alpha

    @cached_property
    def log_det(self) -> float:
        of_probes = self.krylov.log_forms()[len(self.problem.power) :]
        remainder = freedom(self.problem) - self.problem.gram.dimension
        part = self.low.log_determinant() + remainder * math.log(self.alpha)
        return part + float(of_probes.mean())

    def slope(self, noise: float | None, amplitude: float | None) -> Float[Array, " t"]:
        """Return ∂log p/∂log α, by a formula in which rounding errors of RSS cancel."""
        minus_d, nu = self.alpha * self.trace - self.problem.gram.dimension, freedom(self.problem)
        if noise is not None and amplitude is None:
            return -0.5 * (self.alpha * self.squared_norm / noise + minus_d)
        a2 = amplitude_at(self.problem, self, noise, amplitude)
        return 0.5 * ((self.quadratic_form - self.squared_norm) / a2 - minus_d - nu)

    def slope_in(
        self, log_rates: Array, noise: float | None, amplitude: float | None
    ) -> Float[Array, " t"]:
        """Return ∂log p/∂θ from ``log_rates``, ∂log v/∂θ of each feature, (D,)."""
        squares = self.coef**2 @ log_rates
        a2 = amplitude_at(self.problem, self, noise, amplitude)
        volume = float((1 - self.alpha * self.inverse_diagonal) @ log_rates)
        return 0.5 * (squares / a2 - volume)


def maximise_mode_evidence(
    problem: ModeProblem, noise: float | None, amplitude: float | None, start: float | None = None
) -> tuple[Evidence, list[ModeState]]:
    """Return the maximum of the evidence of each target, near ``start``, and the states there."""
    law, bounds = (noise, amplitude), (problem.scale * MIN_ALPHA, problem.scale * MAX_ALPHA)
    first = problem.scale * 1e-3 if start is None else start
    states, outcomes, numbers = list[ModeState](), list[EvidenceOutcome](), []
    for part in map(problem.target, range(len(problem.power))):
        at = cache(part.at)
        alpha, outcome = likeliest_alpha(part, at, law, bounds, first, LEVEL)
        a2, log_p = (float(f(part, at(alpha), *law)[0]) for f in (amplitude_at, evidence))
        if law == (None, None) and not part.power[0] > 0:
            a2 = 0.0
        states.append(at(alpha))
        outcomes.append(outcome)
        numbers.append((a2 * alpha, a2, alpha, log_p))
    noises, amplitudes, alphas, values = np.array(numbers).T
    worst = EvidenceOutcome.worst(outcomes)
    return Evidence(noises, amplitudes, alphas, values, worst), states


def draws(low: ModePreconditioner, z: Array, steps: int) -> Array:
    """Return R⁻ᵀ (R⁻¹AR⁻ᵀ)^(−½) z, of covariance A⁻¹ for white noise z, by Lanczos; A = G + αI.

    At most ``steps`` products; batches take at most 256 MB.
    """
    batch = max(1, (1 << 28) // (8 * steps * z.shape[1]))
    if len(z) > batch:
        return np.concatenate([draws(low, z[part], steps) for part in slices(len(z), batch)])
    basis: list[Array] = []
    diagonal, off_diagonal = np.ones((steps, len(z))), np.zeros((steps, len(z)))
    size = np.sqrt(inner(z, z))
    q, last, b = z / size[:, None], np.zeros_like(z), np.zeros(len(z))
    for step in range(steps):
        basis.append(q)
        r = low.inverse_root(q, transposed=True)
        r = low.inverse_root(low.gram(r) + low.alpha * r) - b[:, None] * last
        a = inner(r, q)
        active = inner(q, q) > 0.5  # converged vectors are zero
        r -= a[:, None] * q
        diagonal[step] = np.where(active, a, 1.0)
        b = np.sqrt(inner(r, r))
        active &= b > 1e-9 * np.abs(a)
        if not active.any():
            break
        b = np.where(active, b, 0.0)
        off_diagonal[step] = b
        last, q = q, r * (active / np.where(active, b, 1.0))[:, None]
    y = np.zeros_like(z)
    for s in range(len(z)):
        values, vectors = eigh_tridiagonal(
            diagonal[: len(basis), s], off_diagonal[: len(basis) - 1, s]
        )
        weights = vectors @ (vectors[0] / np.sqrt(np.maximum(values, 1e-300)))
        for weight, vector in zip(weights, basis, strict=True):
            y[s] += weight * size[s] * vector[s]
    return low.inverse_root(y, transposed=True)


def spread_by_draws(low: ModePreconditioner, z: Array, steps: int) -> Array:
    """Return the Fourier coefficients, |k_a| ≤ 2 m_a, of φ(x)ᵀ(G + αI)⁻¹φ(x), by random draws.

    With p = φ(x)ᵀ(G + αI)^(−½)z and q = φ(x)ᵀM^(−½)z of the same z, Var p is c Var q plus the mean
    of p² − c q², for any c. Var q is known (:func:`~.gram.spread`). With s draws, and ρ the
    correlation of p and q, the relative standard error of √Var p is √((1 − ρ⁴)/(2s)).
    """
    gram, s = low.gram, len(z)
    p, q = draws(low, z, steps), low.inverse_root(z, transposed=True)
    pp, qq, sums = (square_sums(gram, c) for c in (p, q, p + q))
    mixed = (sums - pp - qq) / 2
    # c of least relative variance, by least squares
    share = float(((mixed / pp) ** 2).sum() / ((qq / pp) ** 2).sum())
    wide = tuple(2 * m for m in gram.extent)
    return modes_of_samples((pp - share * qq) / s, wide) + share * spread(low)


def square_sums(gram: ModeGram, paths: Array) -> Array:
    """Return Σ_s f_s(x)² as samples on a grid, f_s the function with coefficients ``paths[s]``.

    The samples resolve modes up to 2m. With an intercept, f_s is centred over the rows.
    """
    extent = gram.extent
    shape = tuple(next_fast_len(4 * m + 1, real=True) for m in extent)
    squares = np.zeros(shape)
    for c in paths:
        values = irfftn(pad(gram.spectrum(c[None])[0], extent, shape), s=shape) * math.prod(shape)
        if gram.centred:
            values -= gram.sums @ c / gram.weight
        squares += values**2
    return squares


def modes_of_samples(samples: Array, extent: tuple[int, ...]) -> Array:
    """Return the Fourier coefficients, |k_a| ≤ extent_a, of real samples on a grid, k ascending."""
    return full_of(unpad(rfftn(samples) / samples.size, extent)[None])[0]


def exact_block(gram: ModeGram, alpha: float) -> ModePreconditioner | None:
    """Return the exact factorisation of G + αI; None for more than MAX_EXACT features."""
    return None if gram.dimension > MAX_EXACT else gram.preconditioner(alpha, full=True)
