"""A Gaussian process with the kernel itself: the exact posterior of few rows, and no features.

The kernel is chosen as in :class:`bochner.KernelRidge`, among candidates and by held-out rows.
Noise and amplitude maximise the evidence among values with nearly the least leave-one-out error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from bochner._core.arrays import numpy_rows, to_numpy
from bochner._core.checks import require_squares
from bochner._core.shapes import Array, Both, Float, Gradients
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, row_priorities
from bochner.data.sources import required_targets
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import has_free
from bochner.models._kernel_sum import KernelSum
from bochner.models.error_law import ErrorLaw
from bochner.models.gaussian_process.features import FeatureProcess, feature_process
from bochner.models.gaussian_process.functions import Values, with_kernel
from bochner.models.gaussian_process.law import (
    GaussianProcessSpec,
    ProcessLaw,
    likelier,
    log_normal,
)
from bochner.models.gaussian_process.neighbours import KeptRows
from bochner.models.representations.methods import exact_choice
from bochner.models.representations.representation import gather
from bochner.selection.candidates import choose_lengthscale_exactly
from bochner.selection.choose import choose_for_matrix, transformed
from bochner.selection.chosen import Chosen
from bochner.selection.lengthscales import tune_lengthscales
from bochner.selection.numbers import by_evidence
from bochner.selection.record import Tuning
from bochner.selection.spec import UNASKED
from bochner.solvers.ridge.dual import KernelFactor, KernelRows
from bochner.solvers.ridge.evidence import Evidence
from bochner.solvers.ridge.kernel_path import EVIDENCE_ROWS, choose_penalty
from bochner.solvers.ridge.problem import amplitude_at, evidence

MOST_ROWS = 20_000  # Rows of an n × n matrix and its factor, at most: seven gigabytes

#: Intervals use errors of rows that did not choose the noise if there are at least this many, and
#: at most this many.
ENOUGH, MOST_SCORES = 1024, 2048

BLOCK_ROWS = 1024  # Rows of a block of predictions
COMPARED = 1024  # Rows that lengthscales by errors and by evidence are compared on

TINY = float(np.finfo(np.float64).tiny)


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

    lacks: ClassVar[Mapping[str, str]] = {
        **ProcessLaw.lacks,
        "certify": "an exact fit has the kernel itself, and nothing to certify; fit with features, "
        'e.g. method="auto", for a certificate.',
        "merge": "an exact fit keeps no moments that add.",
    }

    @property
    def block_rows(self) -> int:
        return BLOCK_ROWS

    @cached_property
    def posteriors(self) -> dict[float, KernelFactor]:
        """The posterior at the penalty of each target: a factor, which no file holds."""
        problem = _problem(self.chosen.kernel, self.representation, self.spec.fit_intercept)
        return {float(a): problem.factored(float(a)) for a in self.evidence.alpha}

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        return lambda X: self._values(X) @ self.coef + self.intercept

    def moments(self, X: Array) -> Both:
        k, X = self._values(X), numpy_rows(X)
        prior = np.asarray(to_numpy(self.chosen.kernel.diag(X)), np.float64)
        shares = {alpha: one.variance(k, prior) for alpha, one in self.posteriors.items()}
        variance = [shares[float(alpha)] for alpha in self.evidence.alpha]
        return k @ self.coef + self.intercept, np.stack(variance, 1) * self.evidence.amplitude

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        k, prior = (
            self._values(X),
            np.asarray(to_numpy(self.chosen.kernel(numpy_rows(X))), np.float64),
        )
        shares = {alpha: one.covariance(k, prior) for alpha, one in self.posteriors.items()}
        return self.evidence.amplitude * np.stack(
            [shares[float(alpha)] for alpha in self.evidence.alpha], 2
        )

    def gradients(self, blocks: Blocks) -> Gradients:
        total = KernelSum(self.chosen.kernel, self.representation.X, self.coef, self.intercept)
        return total.gradients(blocks)

    def draw(self, n: int, seed: int) -> Values:
        posteriors = [self.posteriors[float(alpha)] for alpha in self.evidence.alpha]
        return with_kernel(
            self.chosen.kernel, self.representation, self.evidence, posteriors, n, seed
        )

    def _values(self, X: Array) -> Float[Array, "b n"]:
        return np.asarray(
            to_numpy(self.chosen.kernel(numpy_rows(X), self.representation.X)), np.float64
        )

    def scores(self) -> ErrorLaw | None:
        unseen = len(self.representation) - EVIDENCE_ROWS
        if unseen < ENOUGH:
            return None
        m = min(unseen, MOST_SCORES)
        pairs = [
            _left_out(self.posteriors[float(alpha)], self.coef[:, i], self.representation.w, m)
            for i, alpha in enumerate(self.evidence.alpha)
        ]
        errors, slack = (np.stack(each, axis=1) for each in zip(*pairs, strict=True))
        floor = self.evidence.amplitude * self.evidence.alpha
        return ErrorLaw.of_process(errors / slack, np.sqrt(floor / slack), "leave one out")

    def again(self, blocks: Blocks) -> "ExactProcess":
        return exact_process(self.spec, blocks)

    def solved(
        self, spec: GaussianProcessSpec, representation: KeptRows | None = None
    ) -> "ExactProcess":
        return solved_exactly(spec, self.chosen, representation or self.representation)

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> FeatureProcess:
        features = replace(self.spec.features, kernel=self.chosen.kernel, learns_metric=False)
        asked = replace(self.spec, features=features, lengthscale="loo")
        first = feature_process(asked, self.representation.blocks, precision="float64")
        return first.with_rows_of(spec, blocks)


def _left_out(
    posterior: KernelFactor, coef: Float[Array, " n"], w: Float[Array, " n"], m: int
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Return residuals and slacks of the last m rows."""
    return posterior.alpha * coef[-m:] / w[-m:], posterior.slack(m)


# --- fitting -------------------------------------------------------------------------------------


def exact_process(spec: GaussianProcessSpec, blocks: Blocks) -> ExactProcess:
    """Choose the kernel by the matrix of some rows, then noise and amplitude, then solve with all.

    Time O(n³/3) once, and O(m³) some times with m ≤ 2048; memory 2 n² numbers.
    """
    rows = _kept(spec, blocks)
    chosen, start = _choose(spec, rows)
    return solved_exactly(spec, chosen, rows, start)


def _kept(spec: GaussianProcessSpec, blocks: Blocks) -> KeptRows:
    """Read all rows, and put them in random order."""
    who, seed = spec.features.who, spec.features.seed
    shape, n = required_targets(who, blocks.target_shape), count_rows(blocks)
    if n > MOST_ROWS:
        raise InvalidInput(
            f'{who}: method="exact" factors the matrix of all rows, {MOST_ROWS:,} at most; got '
            f'{n:,}. Take features, method="auto", or NearestNeighbours().'
        )
    rows = gather(blocks)
    priority = row_priorities(seed, 0, n)[rows.number]
    order = np.argsort(priority, kind="stable")
    return KeptRows(rows.X[order], rows.y[order], rows.w[order], priority[order], n, shape)


def solved_exactly(
    spec: GaussianProcessSpec, chosen: Chosen, rows: KeptRows, start: float | None = None
) -> ExactProcess:
    """Return the law of a kernel given rows."""
    problem = _problem(chosen.kernel, rows, spec.fit_intercept)
    alpha, outcome = choose_penalty(
        problem, spec.noise, spec.amplitude, criterion=spec.criterion, start=start
    )
    posteriors = {float(a): problem.factored(float(a)) for a in np.unique(alpha)}
    ends = [(posteriors[float(a)], i) for i, a in enumerate(alpha)]
    coef = np.stack([each.coef[:, i] for each, i in ends], axis=1)
    intercept = np.array([each.intercept[i] for each, i in ends])
    solutions = [
        _scaled(spec, posteriors[float(a)], problem, coef[:, i], i) for i, a in enumerate(alpha)
    ]
    noise, amplitude, likelihood, density = np.array(solutions).T
    evidence = Evidence(noise, amplitude, alpha, likelihood, outcome)
    density = float(density.sum())
    law = ExactProcess(spec, chosen, rows, evidence, coef, intercept, density)
    law.__dict__["posteriors"] = posteriors
    return law


def _problem(kernel: Kernel, rows: KeptRows, centred: bool) -> KernelRows:
    K = np.asarray(to_numpy(kernel(rows.X)), np.float64)
    return KernelRows(K, rows.y, rows.w, centred)


def _scaled(
    spec: GaussianProcessSpec,
    posterior: KernelFactor,
    rows: KernelRows,
    coef: Float[Array, " n"],
    i: int,
) -> tuple[float, float, float, float]:
    """Return noise, amplitude, log evidence and mean leave-one-out log density of one target."""
    n, alpha = len(rows.w), posterior.alpha
    if not rows.power[i] > 0:
        return spec.noise or 0.0, spec.amplitude or 0.0, np.nan, np.nan
    m = n if n <= EVIDENCE_ROWS else min(max(n - EVIDENCE_ROWS, ENOUGH), MOST_SCORES)
    residual, slack = _left_out(posterior, coef, rows.w, m)
    w = rows.w[-m:]
    given = rows, posterior, spec.noise or None, spec.amplitude
    a2, likelihood = float(amplitude_at(*given)[i]), float(evidence(*given)[i])
    noise = alpha * a2 if spec.noise is None else spec.noise
    density = log_normal(residual / slack, alpha * a2 / slack)
    return noise, a2, likelihood, float(w @ density / w.sum())


# --- the kernel ----------------------------------------------------------------------------------


def _choose(spec: GaussianProcessSpec, rows: KeptRows) -> tuple[Chosen, float | None]:
    """Return the choices, and the start of the search for the penalty."""
    asked, X = spec.features, rows.X
    require_squares(asked.who, rows.y, rows.w)
    sample = RowSample(X, rows.y, rows.w, rows.priority)
    curves, sample = transformed(sample, asked.seed, asked.bends)
    tuning = _tuned(spec, sample)
    chosen = Chosen(asked.seed, tuning, exact_choice(tuning, sample.X))
    chosen = chosen if curves is None else chosen.through(curves)
    start = tuning.share * float(rows.w[:EVIDENCE_ROWS].sum())
    return chosen, start if np.isfinite(start) and start > 0 else None


def _tuned(spec: GaussianProcessSpec, sample: RowSample) -> Tuning:
    """Return the kernel by errors, by evidence, or by the larger held-out density of both."""
    asked, likeliest = spec.features, spec.lengthscale == "evidence"
    kernel: Any = asked.kernel
    given: Any = {"centred": spec.fit_intercept, "noise": spec.noise, "amplitude": spec.amplitude}
    is_open = isinstance(kernel, Kernel) and has_free(kernel) and spec.lengthscale != "loo"
    if is_open or (isinstance(kernel, Kernel) and likeliest and not asked.learns_metric):
        return by_evidence(kernel, sample, asked.seed, **given)
    is_given = isinstance(kernel, Kernel) or (kernel in UNASKED and not likeliest)
    if asked.learns_metric or is_given:
        return choose_for_matrix(asked, sample, _share(spec, sample), spec.fit_intercept)
    first = _by_errors(spec, sample)
    if spec.lengthscale == "loo" or kernel == "linear":
        return first
    second = tune_lengthscales(first.kernel, sample, **given)
    if likeliest:
        return second
    return likelier(first, second, partial(_log_density, spec, sample.lowest(COMPARED)))


def _share(spec: GaussianProcessSpec, sample: RowSample) -> float | None:
    """Return the penalty a row, where noise and amplitude are given."""
    if not spec.noise or spec.amplitude is None:
        return None
    return spec.noise / spec.amplitude / float(sample.w.sum())


def _by_errors(spec: GaussianProcessSpec, sample: RowSample) -> Tuning:
    """Return the kernel of a name with the lengthscale of the least errors."""
    kernel, seed = str(spec.features.kernel), spec.features.seed
    name, share = "matern32" if kernel == "auto" else kernel, _share(spec, sample)
    return choose_lengthscale_exactly(name, sample, seed, share, spec.fit_intercept)


def _log_density(spec: GaussianProcessSpec, sample: RowSample, kernel: Kernel) -> float:
    """Return the mean leave-one-out log density of a fit to these rows."""
    n, t = sample.y.shape
    rows = KeptRows(sample.X, sample.y, sample.w, sample.priority, n, (t,))
    tuning = Tuning(kernel)
    chosen = Chosen(spec.features.seed, tuning, exact_choice(tuning, sample.X))
    return solved_exactly(spec, chosen, rows).loo_log_density
