"""A Gaussian process: choose, sum, solve; and what its intervals are made of."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.sizes import LOO_ROWS
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.errors import SolutionWarning
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import has_free
from bochner.models.gaussian_process.adaptation import left_out, solve_process
from bochner.models.gaussian_process.intervals import (
    NO_SCORES,
    Conformal,
    CrossConformal,
    Fold,
    cross_conformal,
)
from bochner.models.gaussian_process.posterior import Predictive
from bochner.models.gaussian_process.spec import GaussianProcessSpec, ShownProcess, likelier, warned
from bochner.models.ridge.sums import Summed, merged
from bochner.selection.choose import Search, choose
from bochner.selection.chosen import Chosen
from bochner.selection.numbers import by_evidence
from bochner.selection.record import Tuning
from bochner.selection.search import choose_lengthscale
from bochner.selection.spec import UNASKED
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Precision

#: Rows beyond those that chose lengthscales, from which on their errors make intervals.
ENOUGH = 1024


@dataclass(frozen=True, eq=False)
class GaussianProcessFit(ShownProcess):
    """A Gaussian process on features: what was chosen, the sums, the law of f.

    Attributes
    ----------
    inputs : Inputs
    spec : GaussianProcessSpec
    summed : Summed
    law : Predictive
    loo_log_density : float
    calibrated : Conformal, CrossConformal or None
        Scores that calibrated intervals are made of; None until they are asked for.
    """

    inputs: Inputs
    spec: GaussianProcessSpec
    summed: Summed
    law: Predictive
    loo_log_density: float
    calibrated: Conformal | CrossConformal | None = field(default=None)

    @property
    def chosen(self) -> Chosen:
        """The kernel, the map, and how they were found."""
        return self.summed.chosen

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self.summed.target_shape

    @property
    def outcome(self) -> EvidenceOutcome:
        """How the choice of noise and amplitude went."""
        return self.law.posterior.evidence.outcome

    @property
    def noise(self) -> Float[Array, " t"]:
        """σ² of a new row."""
        return self.law.noise

    @property
    def evidence(self) -> Evidence:
        """Noise, amplitude and likelihood of the fit."""
        return self.law.posterior.evidence

    @property
    def block_rows(self) -> int:
        """Rows that are predicted together."""
        return self.chosen.block_rows

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""
        return lambda X: self.law.posterior.mean(self.chosen.double(X))

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        Z = self.chosen.double(X)
        return self.law.covariance(X, Z).reshape(len(Z), len(Z), -1)

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of f at rows."""
        Z = self.chosen.double(X)
        return self.law.posterior.mean(Z), self.law.variance(X, Z)

    def resolved_moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of f at rows."""
        return self.moments(X)

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Give the rows of one block after the other, and the gradients of the mean there."""
        return self.chosen.gradients(self.law.posterior.coef, blocks)

    def calibration(self) -> Conformal | CrossConformal:
        """Return the scores that calibrated intervals are made of; found once, and kept.

        By rows that chose no lengthscale, where they are many, else by fits without folds.
        """
        if self.calibrated is None:
            object.__setattr__(self, "calibrated", self._calibration())
        return self.calibrated  # type: ignore[return-value]

    def _calibration(self) -> Conformal | CrossConformal:
        sample = self.summed.sample
        order = np.argsort(sample.priority, kind="stable")
        if len(order) - LOO_ROWS < ENOUGH:
            return cross_conformal(self._refit, sample)
        errors, deviation = (
            of_all[order[LOO_ROWS:]] for of_all in left_out(self.summed, self.law, sample)
        )
        return Conformal.of(errors, deviation, "leave one out")

    def _refit(self, rows: RowSample) -> Fold:
        y = rows.y.reshape(len(rows), *self.target_shape)
        fit = fit_process(self.spec, Blocks.from_arrays(rows.X, y, rows.w), self.inputs)
        return Fold(fit.chosen.map, fit.chosen.precision, fit.law, NO_SCORES)


def fit_process(
    spec: GaussianProcessSpec,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> GaussianProcessFit:
    """Choose what is open, sum up all rows, find the law; again in float64 where that is needed.

    Parameters
    ----------
    spec : GaussianProcessSpec
    blocks : Blocks
    inputs : Inputs
        What the rows are.
    where : Executor
    precision : {"float32", "float64"}, optional
        Of all, where rows do not come again.
    """
    chosen, _ = choose(spec.features, blocks, search=search_of(spec), where=where)
    return fit_chosen(spec, chosen, blocks, inputs, where, precision)


def fit_chosen(
    spec: GaussianProcessSpec,
    chosen: Chosen,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> GaussianProcessFit:
    """Sum up all rows as features of what was chosen, and find the law."""
    fit = solved(spec, inputs, spec.rows(chosen, blocks, where, precision))
    limited = fit.outcome is EvidenceOutcome.FLOAT32_LIMITED
    if limited and spec.features.precision == "auto":
        fit = solved(spec, inputs, spec.rows.again(fit.summed, blocks, where))
    return warned(fit)


def solved(spec: GaussianProcessSpec, inputs: Inputs, summed: Summed) -> GaussianProcessFit:
    """Return the fit that sums lead to."""
    summed = replace(summed, fit_intercept=spec.fit_intercept)
    law, densities = solve_process(summed, spec.noise, spec.amplitude)
    return GaussianProcessFit(inputs, spec, summed, law, float(densities.sum()))


def merge_processes(fits: list[GaussianProcessFit]) -> GaussianProcessFit:
    """Return the fit of the rows of all."""
    return solved(fits[0].spec, fits[0].inputs, merged([fit.summed for fit in fits]))


# --- Lengthscales --------------------------------------------------------------------------------


def _likelier(spec: GaussianProcessSpec, name: str, sample: RowSample) -> Tuning:
    """Return the search that ends where rows are likelier under the law without them."""
    first = _named(spec, name, sample)
    second = _by_evidence(spec, first.kernel, sample)
    if not second.path or second.kernel == first.kernel:
        return first
    few = sample.lowest(LOO_ROWS)
    return likelier(first, second, *(_log_density(spec, t.kernel, few) for t in (first, second)))


def _log_density(spec: GaussianProcessSpec, kernel: Kernel, sample: RowSample) -> float:
    """Return the mean leave-one-out log density of a fit to these rows."""
    features = replace(spec.features, kernel=kernel, width=spec.features.width_to_search)
    trial = replace(spec, features=features, lengthscale="loo")
    blocks = Blocks.from_arrays(sample.X, sample.y, sample.w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SolutionWarning)
        return fit_process(trial, blocks, Inputs(blocks.n_columns)).loo_log_density


def _named(spec: GaussianProcessSpec, name: str, sample: RowSample) -> Tuning:
    asked = spec.features
    return choose_lengthscale(name, sample, asked.width_to_search, asked.seed, method=asked.method)


def search_of(spec: GaussianProcessSpec) -> Search | None:
    """Return how the kernel is found; None for the usual search."""
    kernel = spec.features.kernel
    if has_free(kernel) and spec.lengthscale != "loo":
        return partial(_by_evidence, spec)
    if spec.lengthscale == "evidence":
        return partial(_by_evidence, spec)
    named = isinstance(kernel, str) and kernel not in UNASKED
    likelier = spec.lengthscale == "auto" and named and not spec.features.learns_metric
    return partial(_likelier, spec) if likelier else None


def _by_evidence(spec: GaussianProcessSpec, kernel: Kernel | str, sample: RowSample) -> Tuning:
    return by_evidence(
        _named(spec, kernel, sample).kernel if isinstance(kernel, str) else kernel,
        sample,
        spec.features.seed,
        centred=spec.fit_intercept,
        noise=spec.noise,
        amplitude=spec.amplitude,
    )
