"""A Gaussian process on features: choose, sum, find noise and amplitude."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner._core.sizes import LOO_ROWS
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import SolutionWarning
from bochner.kernels.kernel import Kernel
from bochner.kernels.numbers import has_free
from bochner.models.gaussian_process.adaptation import left_out, solve_process
from bochner.models.gaussian_process.functions import Functions, draw_functions
from bochner.models.gaussian_process.intervals import Conformal
from bochner.models.gaussian_process.law import ProcessLaw
from bochner.models.gaussian_process.posterior import Predictive
from bochner.models.gaussian_process.spec import GaussianProcessSpec, likelier
from bochner.models.representations.features import FeatureSums
from bochner.selection.choose import Search, choose
from bochner.selection.chosen import Chosen
from bochner.selection.numbers import by_evidence
from bochner.selection.record import Tuning
from bochner.selection.spec import UNASKED
from bochner.selection.walk import choose_lengthscale
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Precision

#: Rows beyond those that chose lengthscales, from which on their errors make intervals.
ENOUGH = 1024


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean and variance of f through features."""

    chosen: Chosen
    predictive: Predictive

    @property
    def noise(self) -> Float[Array, " t"]:
        """σ² of a new row."""
        return self.predictive.noise

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        """Return the mean and variance of f at rows."""
        Z = self.chosen.double(X)
        return self.predictive.posterior.mean(Z), self.predictive.variance(X, Z)


@dataclass(frozen=True, eq=False)
class FeatureProcess(ProcessLaw):
    """The law of f on features."""

    spec: GaussianProcessSpec
    representation: FeatureSums
    predictive: Predictive
    loo_log_density: float

    lacks = {}  # noqa: RUF012

    @property
    def chosen(self) -> Chosen:  # type: ignore[override]
        """The kernel, the map, and how they were found."""
        return self.representation.chosen

    @property
    def evidence(self) -> Evidence:  # type: ignore[override]
        """Noise, amplitude and likelihood of the fit."""
        return self.predictive.posterior.evidence

    @property
    def noise(self) -> Float[Array, " t"]:
        return self.predictive.noise

    @property
    def block_rows(self) -> int:
        return self.chosen.block_rows

    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        return lambda X: self.predictive.posterior.mean(self.chosen.double(X))

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        Z = self.chosen.double(X)
        return self.predictive.covariance(X, Z).reshape(len(Z), len(Z), -1)

    def moments(self, X: Array) -> tuple[Float[Array, "b t"], Float[Array, "b t"]]:
        return FeatureMoments(self.chosen, self.predictive).moments(X)

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        return self.chosen.gradients(self.predictive.posterior.coef, blocks)

    def functions(self, rows: Callable[[Any], Blocks], n: int, seed: int) -> Functions:
        return draw_functions(rows, self.representation, self.predictive, n, seed)

    def scores(self) -> Conformal | None:
        sample = self.representation.sample
        order = np.argsort(sample.priority, kind="stable")
        if len(order) - LOO_ROWS < ENOUGH:
            return None
        errors, deviation = (
            of_all[order[LOO_ROWS:]]
            for of_all in left_out(self.representation, self.predictive, sample)
        )
        return Conformal.of(errors, deviation, "leave one out")

    def again(self, blocks: Blocks) -> FeatureMoments:
        law = feature_process(self.spec, blocks)
        return FeatureMoments(law.chosen, law.predictive)

    def solved(
        self, spec: GaussianProcessSpec, representation: FeatureSums | None = None
    ) -> "FeatureProcess":
        return solved(spec, representation or self.representation)

    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> "FeatureProcess":
        return solved(spec, self.representation.with_rows_of(blocks))


def feature_process(
    spec: GaussianProcessSpec,
    blocks: Blocks,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> FeatureProcess:
    """Choose what is open, sum up all rows, find the law; again in float64 where that is needed.

    Parameters
    ----------
    spec : GaussianProcessSpec
    blocks : Blocks
    where : Executor
    precision : {"float32", "float64"}, optional
        Of all, where rows do not come again.
    """
    chosen, _ = choose(spec.features, blocks, search=search_of(spec), where=where)
    return chosen_features(spec, chosen, blocks, where, precision)


def chosen_features(
    spec: GaussianProcessSpec,
    chosen: Chosen,
    blocks: Blocks,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> FeatureProcess:
    """Sum the chosen features of all rows, and find the law."""
    law = solved(spec, spec.rows(chosen, blocks, where, precision))
    limited = law.outcome is EvidenceOutcome.FLOAT32_LIMITED
    if limited and spec.features.precision == "auto":
        law = solved(spec, spec.rows.again(law.representation, blocks, where))
    return law


def solved(spec: GaussianProcessSpec, sums: FeatureSums) -> FeatureProcess:
    """Return the law that sums lead to."""
    sums = replace(sums, fit_intercept=spec.fit_intercept)
    predictive, densities = solve_process(sums, spec.noise, spec.amplitude)
    return FeatureProcess(spec, sums, predictive, float(densities.sum()))


# --- Lengthscales --------------------------------------------------------------------------------


def _likelier(spec: GaussianProcessSpec, name: str, sample: RowSample) -> Tuning:
    """Return the search with the larger leave-one-out log density."""
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
        return feature_process(trial, blocks).loo_log_density


def _named(spec: GaussianProcessSpec, name: str, sample: RowSample) -> Tuning:
    asked = spec.features
    name = "matern32" if name == "auto" else name
    return choose_lengthscale(name, sample, asked.width_to_search, asked.seed)


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
