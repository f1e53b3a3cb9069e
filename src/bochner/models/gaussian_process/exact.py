"""A Gaussian process with the kernel itself: the exact posterior of few rows, and no features.

The kernel is chosen as in :class:`bochner.KernelRidge`, among candidates and by held-out rows.
Noise and amplitude maximise the evidence among values with nearly the least leave-one-out error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bochner._core.arrays import numpy_rows, to_numpy
from bochner._core.random import stream
from bochner._core.shapes import Array, Both, Float, Gradients
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.features.map import Request
from bochner.features.nystrom import Nystrom
from bochner.features.rules import draw_map
from bochner.kernels.kernel import Kernel
from bochner.models._kernel_sum import KernelSum
from bochner.models.error_law import ErrorLaw
from bochner.models.gaussian_process.features import WIDTH, FeatureProcess, prior_map
from bochner.models.gaussian_process.law import (
    ENOUGH,
    GaussianProcessSpec,
    KeptRows,
    ProcessLaw,
    Values,
    log_normal,
    search_of,
)
from bochner.models.representations.representation import exact_choice
from bochner.selection.choose import choose_for_matrix, transformed
from bochner.selection.chosen import Chosen
from bochner.selection.record import Tuning
from bochner.solvers.ridge.dual import KernelFactor, KernelRows
from bochner.solvers.ridge.kernel_path import EVIDENCE_ROWS, choose_penalty
from bochner.solvers.ridge.problem import amplitude_at, evidence
from bochner.solvers.ridge.solution import Evidence
from bochner.sums.passes import LOCAL, Executor, require_order

MOST_ROWS = 20_000  # Rows of an n × n matrix and its factor, at most: seven gigabytes

MOST_SCORES = 2048  # Rows whose errors make intervals, at most


@dataclass(frozen=True, eq=False)
class KernelPosterior:
    """The law of f at amplitude one given rows, by a factor of their kernel matrix per target."""

    kernel: Kernel
    X: Any
    factors: Sequence[KernelFactor]

    @staticmethod
    def of(
        kernel: Kernel, X: Any, rows: KernelRows, alphas: Float[Array, " t"]
    ) -> "KernelPosterior":
        """Factor the matrix once for each penalty."""
        known = {alpha: rows.factored(float(alpha)) for alpha in np.unique(alphas)}
        return KernelPosterior(kernel, X, [known[alpha] for alpha in alphas])

    @property
    def coef(self) -> Float[Array, "n t"]:
        """Coefficients of the kernel and each row."""
        return np.stack([each.coef[:, i] for i, each in enumerate(self.factors)], axis=1)

    def values(self, X: Array) -> Float[Array, "b n"]:
        """Return k(x, x_i)."""
        return np.asarray(to_numpy(self.kernel(numpy_rows(X), self.X)), np.float64)

    def variance(self, X: Array) -> Float[Array, "b t"]:
        """Return the variance of f at rows."""
        prior = np.asarray(to_numpy(self.kernel.diag(numpy_rows(X))), np.float64)
        return self._each(KernelFactor.variance, self.values(X), prior)

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        prior = np.asarray(to_numpy(self.kernel(numpy_rows(X))), np.float64)
        return self.between((self.values(X),) * 2, (np.ones(len(prior)),) * 2, prior)

    def between(
        self, k: tuple[Array, Array], constant: tuple[Array, Array], prior: Float[Array, "b c"]
    ) -> Float[Array, "b c t"]:
        """Return Cov Lf, L'f' of linear functionals; see :meth:`KernelFactor.between`."""
        return self._each(KernelFactor.between, k, prior, constant)

    def _each(self, law: Callable[..., Array], *given: Any) -> Array:
        laws = {
            alpha: law(each, *given) for alpha, each in {e.alpha: e for e in self.factors}.items()
        }
        return np.stack([laws[each.alpha] for each in self.factors], axis=-1)


def kernel_rows(kernel: Kernel, rows: Any, centred: bool, most: int | None = None) -> KernelRows:
    """Return the kernel matrix of rows, or of the first of them."""
    K = np.asarray(to_numpy(kernel(rows.X[:most])), np.float64)
    return KernelRows(K, rows.y[:most], rows.w[:most], centred)


@dataclass(frozen=True, eq=False)
class ExactProcess(ProcessLaw):
    """The law of f with the kernel itself."""

    spec: GaussianProcessSpec
    chosen: Chosen  # Its map is the Nyström map on all rows
    representation: KeptRows  # All rows, in random order
    evidence: Evidence
    coef: Float[Array, "n t"]  # Of the kernel and each row
    intercept: Float[Array, " t"]
    loo_log_density: float

    block_rows = 1024

    lacks: ClassVar[Mapping[str, str]] = {
        **ProcessLaw.lacks,
        "merge": "an exact fit keeps no moments that add.",
    }

    @classmethod
    def fit(
        cls, spec: GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL
    ) -> "ExactProcess":
        """Choose the kernel by the matrix of some rows, noise and amplitude; solve with all."""
        why = 'method="exact" compares each row with all others'
        require_order(spec.features.who, why, where, "Leave where out, or take features.")
        who, n = spec.features.who, count_rows(blocks)
        if n > MOST_ROWS:
            raise InvalidInput(
                f'{who}: method="exact" factors the matrix of all rows, {MOST_ROWS:,} at most; got '
                f'{n:,}. Take features, method="auto", or NearestNeighbours().'
            )
        rows = KeptRows.of(who, blocks, spec.features.seed)
        every = rows.every.take(rows.order)  # In random order
        rows = replace(rows, X=every.X, y=every.y, w=every.w, priority=every.priority)
        chosen, start = _choose(spec, rows)
        return solved_exactly(spec, chosen, rows, start)

    @cached_property
    def posterior(self) -> KernelPosterior:
        """The posterior at the penalty of each target: factors, which no file holds."""
        kernel, rows = self.chosen.kernel, self.representation
        problem = kernel_rows(kernel, rows, self.spec.fit_intercept)
        return KernelPosterior.of(kernel, rows.X, problem, self.evidence.alpha)

    @property
    def _sum(self) -> KernelSum:
        return KernelSum(self.chosen.kernel, self.representation.X, self.coef, self.intercept)

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        return lambda X: self._sum.at(numpy_rows(X))

    def moments(self, X: Array) -> Both:
        return self.means()(X), self.posterior.variance(X) * self.evidence.amplitude

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        return self.posterior.covariance(X) * self.evidence.amplitude

    def gradients(self, blocks: Blocks) -> Gradients:
        return self._sum.gradients(blocks)

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions by Matheron's rule (Wilson et al. 2020, eq. 8).

        With f⁰ and ε drawn from the prior,

            f(x) = a f⁰(x) + k(x, X) c + b,

        where c and b solve the fit to y − a (f⁰(X) + ε); the uncertainty of b, which has a flat
        prior, is included in these targets. Without Fourier features of the kernel f⁰ is of Nyström
        features. O(m N (d + n t)), and O(m F d) for each function.
        """
        kept, kernel = self.representation, self.chosen.kernel
        posteriors, amplitude = self.posterior.factors, self.evidence.amplitude
        priors, coefs, offsets, d = [], [], [], kept.X.shape[1]
        for i in range(n):
            ask = Request(d, WIDTH, seed, ("prior", str(i)), kept.X)
            f0 = prior_map(kernel, d, seed, str(i)) or draw_map(Nystrom(), kernel, ask)
            rng = stream(seed, "prior functions", i)
            weights = rng.standard_normal((f0.n_features, kept.y.shape[1])) * np.sqrt(amplitude)
            rough = rng.standard_normal(kept.y.shape) / np.sqrt(kept.w)[:, None]
            noise = rough * np.sqrt(amplitude * self.evidence.alpha)
            left = kept.y - to_numpy(f0(kept.X)) @ weights - noise
            ends = [one.coefficients(left[:, j : j + 1]) for j, one in enumerate(posteriors)]
            priors.append((f0, weights))
            coefs.append(np.hstack([coef for coef, _ in ends]))
            offsets.append(np.concatenate([offset for _, offset in ends]))
        coef, offset = np.stack(coefs, axis=2), np.stack(offsets, axis=1)

        def values(X: Array) -> Float[Array, "b t n"]:
            rows = numpy_rows(X)
            k = np.asarray(to_numpy(kernel(rows, kept.X)), np.float64)
            prior = np.stack([to_numpy(f0(rows)) @ weights for f0, weights in priors], axis=2)
            return prior + np.tensordot(k, coef, 1) + offset

        return values

    def scores(self) -> ErrorLaw | None:
        unseen = len(self.representation) - EVIDENCE_ROWS
        if unseen < ENOUGH:
            return None
        m = min(unseen, MOST_SCORES)
        judged = [each.left_out(m) for each in self.posterior.factors]
        errors = np.stack([each[:, i] for i, (each, _) in enumerate(judged)], axis=1)
        slack = np.hstack([slack for _, slack in judged])
        deviation = np.sqrt(self.evidence.amplitude * self.evidence.alpha / slack)
        return ErrorLaw.of_process(errors, deviation, "leave one out")

    def solved(self, spec: GaussianProcessSpec, rows: KeptRows) -> "ExactProcess":
        return solved_exactly(spec, self.chosen, rows)

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> ProcessLaw:
        features = replace(self.spec.features, kernel=self.chosen.kernel, learns_metric=False)
        asked = replace(self.spec, features=features, lengthscale="loo")
        rows = self.representation
        y = rows.y.reshape(len(rows), *rows.target_shape)
        before = Blocks.from_arrays(rows.X, y, rows.w)
        return FeatureProcess.fit(asked, before, precision="float64").with_rows_of(spec, blocks)


# --- fitting -------------------------------------------------------------------------------------


def solved_exactly(
    spec: GaussianProcessSpec, chosen: Chosen, rows: KeptRows, start: float | None = None
) -> ExactProcess:
    """Return the law of a kernel given rows."""
    problem = kernel_rows(chosen.kernel, rows, spec.fit_intercept)
    alphas, outcome = choose_penalty(
        problem, spec.noise, spec.amplitude, criterion=spec.criterion, start=start
    )
    posterior = KernelPosterior.of(chosen.kernel, rows.X, problem, alphas)
    n, given, numbers = len(rows), (spec.noise or None, spec.amplitude), []
    m = n if n <= EVIDENCE_ROWS else min(max(n - EVIDENCE_ROWS, ENOUGH), MOST_SCORES)
    w = problem.w[-m:]
    for i, factor in enumerate(posterior.factors):
        if not problem.power[i] > 0:
            numbers.append((spec.noise or 0.0, spec.amplitude or 0.0, np.nan, np.nan))
            continue
        alpha, (errors, slack) = factor.alpha, factor.left_out(m)
        a2, log_p = (float(f(problem, factor, *given)[i]) for f in (amplitude_at, evidence))
        density = w @ log_normal(errors[:, i], alpha * a2 / slack[:, 0]) / w.sum()
        numbers.append((alpha * a2 if spec.noise is None else spec.noise, a2, log_p, density))
    noise, amplitude, likelihood, densities = np.array(numbers).T
    found = Evidence(noise, amplitude, alphas, likelihood, outcome)
    intercept = np.array([each.intercept[i] for i, each in enumerate(posterior.factors)])
    parts = found, posterior.coef, intercept, float(densities.sum())
    law = ExactProcess(spec, chosen, rows, *parts)
    law.__dict__["posterior"] = posterior
    return law


# --- the kernel ----------------------------------------------------------------------------------


def _choose(spec: GaussianProcessSpec, rows: KeptRows) -> tuple[Chosen, float | None]:
    """Return the choices, and the start of the search for the penalty."""
    asked, centred = spec.features, spec.fit_intercept
    sample = rows.every
    share = None  # Penalty per unit of weight, where noise and amplitude are given
    if spec.noise and spec.amplitude is not None:
        share = spec.noise / spec.amplitude / float(sample.w.sum())

    def log_density(sample: RowSample, kernel: Kernel) -> float:
        few, tuning = sample.lowest(1024), Tuning(kernel)
        fold_rows = KeptRows(few.X, few.y, few.w, few.priority, len(few), few.y.shape[1:])
        chosen = Chosen(asked.seed, tuning, exact_choice(tuning, few.X))
        return solved_exactly(spec, chosen, fold_rows).loo_log_density

    search = search_of(spec, log_density, share)
    if search is None:
        tuning, curves, sample = choose_for_matrix(asked, sample, share, centred)
    else:
        curves, sample = transformed(sample, asked.seed, asked.bends)
        tuning = search(asked.kernel, sample)
    chosen = Chosen(asked.seed, tuning, exact_choice(tuning, sample.X))
    chosen = chosen if curves is None else chosen.through(curves)
    start = tuning.share * float(rows.w[:EVIDENCE_ROWS].sum())
    return chosen, start if np.isfinite(start) and start > 0 else None
