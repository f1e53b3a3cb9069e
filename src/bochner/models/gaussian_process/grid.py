"""Gaussian process on a Fourier grid or on spherical harmonics.

The posterior covariance of f is a² α φ(x)ᵀ(G + αI)⁻¹φ(y), with modes φ centred over the rows, plus
σ²/W with an intercept. If f has modes up to order m, its variance has modes up to order 2m. Up to a
factor it is Σ_s f_s(x)², where the coefficients p_s of f_s satisfy Σ p_s p_sᵀ = (G + αI)⁻¹. It is
exact up to 4,096 modes. For more modes the f_s are random, with control variates of known variance.

If there are far fewer rows than modes, the model contains all rows, and the factor of their kernel
matrix gives evidence, coefficients and standard deviations. Coefficients u of the rows become
coefficients of modes, Σ √w_i u_i φ(x_i), which are exact up to the tolerance. If the fit chooses
the noise, the part of f above the highest frequency counts as noise in the penalty of the modes,
but not in the penalty of the kernel matrix.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from bochner._core.random import stream
from bochner._core.shapes import Array, Both, Float
from bochner._core.sizes import LOO_ROWS
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.features.fourier.grid import FourierGrid
from bochner.features.mercer.sphere import SphericalHarmonics
from bochner.models.gaussian_process import law
from bochner.models.representations import modes
from bochner.models.representations.representation import without_copies
from bochner.selection.lengthscales import EVIDENCE, ROWS
from bochner.selection.modes import RANGE, lengthscales_on_modes, rescale
from bochner.selection.record import Tuning
from bochner.selection.spec import UNTUNED
from bochner.solvers.gram import (
    MAX_VARIANCE_ROWS,
    ModePreconditioner,
    ToeplitzGram,
    conjugate_gradients,
    spread,
)
from bochner.solvers.modes import (
    MAX_EXACT,
    draws,
    exact_block,
    maximise_mode_evidence,
    modes_of_samples,
    spread_by_draws,
    square_sums,
)
from bochner.solvers.ridge.kernel_path import choose_penalty
from bochner.solvers.ridge.problem import left_out_errors
from bochner.solvers.ridge.solution import Evidence
from bochner.sums.fourier import nufft
from bochner.sums.passes import LOCAL, Executor

#: Number of posterior draws from which standard deviations are computed if they are not exact; the
#: relative error is at most 1/√(2 PATHS), 6 %.
PATHS = 128


@dataclass(frozen=True, eq=False)
class ModeProcess(law.ProcessLaw):
    """Posterior of f on Fourier modes of a grid, or on spherical harmonics."""

    spec: law.GaussianProcessSpec
    representation: modes.GridSums
    coef: Float[Array, "D t"]  # β
    evidence: Evidence

    block_rows = modes.BLOCK_ROWS
    chosen = property(attrgetter("representation.chosen"))

    @classmethod
    def fit(
        cls, spec: law.GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL
    ) -> "ModeProcess":
        """Return the posterior given all rows, after all open choices."""
        survey = modes.survey(spec.features, blocks, where)
        options = spec.fit_intercept, spec.lengthscale, spec.noise, spec.amplitude
        sample, unit = without_copies(spec, survey.sample)
        tuning = modes.stationary_kernel(spec.features, sample, *options)
        start = penalty_of(tuning, replace(sample, w=sample.w * unit))
        is_large = len(survey.sample) > ROWS
        kernel, criterion = spec.features.kernel, spec.lengthscale
        has_name = isinstance(kernel, str) and kernel not in UNTUNED
        by_all = criterion == "evidence" or (criterion == "auto" and has_name)
        if by_all and is_large and "lengthscale" in tuning.kernel.get_params(deep=False):
            tuning, start = refine(spec, survey, tuning, start, blocks, where)
        sums = survey.sum_up(survey.choose(tuning), spec.fit_intercept, blocks, where)
        return ModeProcess.solve(spec, sums, start)

    @property
    def intercept(self) -> Float[Array, " t"]:
        """Intercept of each target."""
        return self.representation.intercept(self.coef)

    def moments(self, X: Array) -> Both:
        mean, rows, exact = self.means(X), modes.as_rows(X), self.as_exact
        # With many rows, draws are faster
        if exact is None or len(rows) * len(exact.representation) ** 2 > 1e11:
            sums = self.representation
            if len(X) <= 64 and sums.map.n_features > MAX_EXACT:  # a linear solve for each row
                variance = np.einsum("iit->it", self._covariance(X))
            else:
                variance = np.maximum(sums.of_modes(self._modes)(X), 0.0) + self._intercept_modes
            return mean, variance + self.left_out_variance
        parts = [exact.variance(rows[i : i + 1024]) for i in range(0, max(len(rows), 1), 1024)]
        return mean, np.concatenate(parts)

    @cached_property
    def as_exact(self) -> law.ExactProcess | None:
        """The posterior from the kernel matrix of the rows; None unless there are few rows."""
        rows = few_rows(self.representation)
        if rows is None:
            return None
        alphas = np.maximum(self.noise / self.evidence.amplitude, 0.0)
        problem = law.kernel_rows(self.chosen.kernel, rows, self.representation.fit_intercept)
        factors = law.factor_all(problem, alphas / rows.unit)
        evidence = replace(self.evidence, alpha=alphas)
        return law.ExactProcess.of(self.spec, self.chosen, rows, evidence, factors)

    @property
    def left_out_variance(self) -> Float[Array, " t"]:
        """Prior variance of the part of f above the highest frequency."""
        # Chosen noise includes this part; ``noise`` does not, so that the variance of y is right.
        prior = self.evidence.amplitude * self.representation.unexplained
        return prior if self.spec.noise is not None else np.minimum(prior, self.evidence.noise)

    @property
    def noise(self) -> Float[Array, " t"]:
        fixed = self.spec.noise is not None
        return self.evidence.noise - (0.0 if fixed else self.left_out_variance)

    @cached_property
    def _modes(self) -> Array:
        """Fourier modes of the variance of f, for each target."""
        return np.stack([s2 * self._variance_modes(i) for i, s2 in enumerate(self.evidence.noise)])

    @property
    def _intercept_modes(self) -> Float[Array, " t"]:
        sums = self.representation
        return self.evidence.noise / sums.sums.weight * sums.fit_intercept

    def _variance_modes(self, i: int) -> Array:
        gram, alpha = self.representation.problem.gram, float(self.evidence.alpha[i])
        exact, rng = exact_block(gram, alpha), stream(self.chosen.seed, "deviations")
        if isinstance(gram, ToeplitzGram):
            if exact is not None:
                return spread(exact)
            low = gram.preconditioner(alpha, size=MAX_VARIANCE_ROWS)
            z = rng.standard_normal((PATHS, gram.dimension))
            return spread_by_draws(low, z, _steps(low, z))
        if exact is None:
            squares = square_sums(gram, self._draw(i, PATHS, rng)) / PATHS
        else:
            paths = exact.inverse_root(np.eye(gram.dimension), transposed=True)
            squares = square_sums(gram, paths)
        return modes_of_samples(squares, tuple(2 * m for m in gram.extent))

    def _draw(self, i: int, count: int, rng: np.random.Generator) -> Array:
        """Return draws with covariance (G + αI)⁻¹."""
        gram, alpha = self.representation.problem.gram, float(self.evidence.alpha[i])
        z, exact = rng.standard_normal((count, gram.dimension)), exact_block(gram, alpha)
        if exact is not None:
            return exact.inverse_root(z, transposed=True)
        low = gram.preconditioner(alpha)
        return draws(low, z, _steps(low, z))

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f; the part above the modes is independent between rows."""
        if self.as_exact is not None:
            return self.as_exact.covariance(modes.as_rows(X))
        return self._covariance(X) + np.eye(len(X))[:, :, None] * self.left_out_variance

    def _covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of the part of f on the modes, by one linear solve per row."""
        sums, gram = self.representation, self.representation.problem.gram
        options = np.ones((1, 1)), modes.TRANSFORMED * sums.tolerance, sums.map.shape
        angles = sums.map.places.angles(modes.as_rows(X))
        phi = np.concatenate([gram.right_side(nufft(angle[None], *options)) for angle in angles])
        phi = phi - gram.sums / gram.weight if gram.centred else phi
        covariances = []
        for i, alpha in enumerate(self.evidence.alpha):
            low = exact_block(gram, float(alpha)) or gram.preconditioner(float(alpha))
            c = conjugate_gradients(low, phi, modes.SOLVED * sums.tolerance).solution
            covariances.append(self.evidence.noise[i] * phi @ c.T)
        cov = np.stack(covariances, axis=2)
        return (cov + cov.transpose(1, 0, 2)) / 2 + self._intercept_modes

    def scores(self) -> Both:
        return self.left_out(self.representation.sample)

    @staticmethod
    def solve(
        spec: law.GaussianProcessSpec, sums: modes.GridSums, start: float | None = None
    ) -> "ModeProcess":
        """Return the posterior from sums over all rows; ``start`` is near the best penalty."""
        sums = replace(sums, fit_intercept=spec.fit_intercept).without_copies(spec)
        options = spec.noise, spec.amplitude
        rows, gram = few_rows(sums), sums.problem.gram
        if rows is not None and start is None:
            part = law.kernel_rows(sums.chosen.kernel, rows, sums.fit_intercept, 512)
            start = rows.unit * float(choose_penalty(part, *options, criterion="evidence")[0].min())
        low = None if start is None else gram.preconditioner(start + sums.unexplained)
        # Above this condition number conjugate gradients take longer than a factor of 2,048 rows
        if rows is not None and start is not None and low is not None and low.condition > 2.0:
            return _solve_by_rows(spec, sums, rows, start / rows.unit)
        problem, error = sums.problem, modes.SOLVED * sums.tolerance
        evidence, states = maximise_mode_evidence(problem, *options, start)
        parts = []
        for i, state in enumerate(states):
            target = replace(problem.target(i), probes=problem.probes[:0])
            parts.append(target.at(state.alpha, error).coef.T)
        return ModeProcess(spec, sums, np.concatenate(parts, axis=1), evidence)

    def left_out(self, sample: RowSample) -> Both:
        """Return leave-one-out errors of training rows, and standard deviations of their y."""
        # With the leverage h = w Var f(x)/σ², errors are (y − f(x))/(1 − h) and variances
        # Var f/(1 − h).
        mean, variance = self.moments(sample.X)
        variance = np.maximum(variance - self.left_out_variance, 0.0)  # Of the modes
        noise = np.maximum(self.evidence.noise, np.finfo(np.float64).tiny)
        slack = np.clip(1 - sample.w[:, None] * variance / noise, 1e-3, 1.0)
        errors = left_out_errors(sample.y - mean, slack)
        return errors, np.sqrt(variance / slack + self.noise + self.left_out_variance)

    @cached_property
    def loo_log_density(self) -> float:  # type: ignore[override]
        rows = self.representation.sample.lowest(LOO_ROWS)
        errors, deviation = self.left_out(rows)
        return law.log_density(errors, deviation**2, rows.w)

    def draw(self, n: int, seed: int) -> law.Values:
        """Draw n functions; a block of rows takes a non-uniform FFT for every two functions."""
        sums = self.representation
        parts, offsets, t = [], [], len(self.noise)
        for i in range(t):
            rng = stream(seed, "functions", i)
            draws = self._draw(i, n, rng).T * math.sqrt(self.evidence.noise[i])
            coef = self.coef[:, i : i + 1] + draws
            means = sums.problem.gram.sums @ coef / sums.sums.weight
            shifts = rng.standard_normal(n) * math.sqrt(self._intercept_modes[i])
            offsets.append(shifts + (sums.target_mean[i] - means) * sums.fit_intercept)
            parts.append(coef)
        values, offset = sums.linear(np.concatenate(parts, axis=1)), np.concatenate(offsets)
        return lambda X: (values(X) + offset).reshape(-1, t, n)


def _steps(low: ModePreconditioner, z: Array) -> int:
    """Return the number of Lanczos steps for draws."""
    result = conjugate_gradients(low, low.root(z[:1]), 1e-3)  # relative error of draws
    return result.products + 10


def few_rows(sums: modes.GridSums) -> law.FitRows | None:
    """Return all rows in random order, if the sample has all and there are many more modes."""
    # From 4 modes per row on the kernel matrix of the rows is cheaper. It replaces modes only if
    # their error of the kernel is at most 0.01 k(x, x).
    sample, phi, method = sums.sample, sums.map, sums.chosen.choice.method
    has_more_modes = max(MAX_EXACT, 4 * len(sample)) < phi.n_features and phi.error <= 1e-2
    has_all_rows = isinstance(method, FourierGrid) and sums.keeps_all
    if not (has_more_modes and has_all_rows and np.all(sums.problem.power > 0)):
        return None
    rows = sample.take(sample.order)
    arrays = modes.as_rows(rows.X), rows.y, rows.w, rows.priority
    return law.FitRows(*arrays, sums.rows, sums.target_shape, sums.max_weight)


def _solve_by_rows(
    spec: law.GaussianProcessSpec, sums: modes.GridSums, rows: law.FitRows, start: float | None
) -> ModeProcess:
    """Return the posterior of largest evidence, from the kernel matrix of the rows."""
    exact = law.solve_exactly(replace(spec, criterion="evidence"), sums.chosen, rows, start)
    best, phi, gram = exact.evidence, sums.map, sums.problem.gram
    penalty = best.alpha if spec.noise is not None else best.alpha + sums.unexplained
    angles = phi.places.angles(rows.X)
    # The tolerance is small, because coefficients of opposite signs cancel
    modes = [nufft(angles, c[None], 1e-13, phi.shape) for c in exact.coef.T]
    coef = gram.right_side(np.concatenate(modes)).T
    evidence = replace(best, noise=best.amplitude * penalty, alpha=penalty)
    process = ModeProcess(spec, sums, coef, evidence)
    process.__dict__["by_rows"] = exact
    return process


def penalty_of(tuning: Tuning, sample: RowSample) -> float | None:
    """Return σ²/a² from the evidence of the sample; None if another criterion was used."""
    if tuning.criterion != EVIDENCE.name or not np.isfinite(tuning.share):
        return None
    return tuning.share * float(sample.lowest(ROWS).w.sum())


def refine(
    spec: law.GaussianProcessSpec,
    survey: modes.Survey,
    tuning: Tuning,
    alpha: float | None,
    blocks: Blocks,
    where: Executor,
) -> tuple[Tuning, float | None]:
    """Return the kernel with lengthscales tuned on all rows, and the penalty."""
    # Each round sums modes over the rows once; the sums are accurate for lengthscales within a
    # factor RANGE. Harmonics are accurate for all lengthscales and are summed only once.
    sums, globe = None, isinstance(survey.method, SphericalHarmonics)
    for _ in range(4):
        if sums is None or not globe:
            kernel = tuning.kernel
            ends = rescale(kernel, np.array([1 / RANGE])), rescale(kernel, np.array([RANGE]))
            chosen = survey.choose(tuning, survey.map_of(kernel, ends))
            sums = survey.sum_up(chosen, spec.fit_intercept, blocks, where).without_copies(spec)
        kernel, alpha, converged = lengthscales_on_modes(
            tuning.kernel, sums.problem_of, sums.map, spec.noise, spec.amplitude, alpha
        )
        tuning = replace(tuning, kernel=kernel)
        if converged:
            break
    return tuning, alpha
