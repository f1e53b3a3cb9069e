"""The law of f given the rows, as a Gaussian process has it on any representation of these."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bochner._core.checks import one_of
from bochner._core.shapes import Array, Both, Float, Gradients
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.errors import InvalidInput
from bochner.kernels.kernel import Kernel
from bochner.models.error_law import ErrorLaw
from bochner.models.gaussian_process.functions import Values
from bochner.models.representations.features import Pass
from bochner.models.representations.representation import Lacking
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.selection.record import KernelComparison, Tuning
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome, as_variance


@dataclass(frozen=True)
class GaussianProcessSpec:
    """Checked parameters of a Gaussian process."""

    features: FeatureSpec
    # None: chosen by the evidence
    noise: float | None
    amplitude: float | None
    lengthscale: str  # "auto", "loo", "evidence"
    fit_intercept: bool
    # "auto", "evidence". What noise and amplitude are chosen by where the kernel itself is fitted.
    criterion: str = "evidence"

    @staticmethod
    def of(
        features: FeatureSpec, noise: object, amplitude: object, lengthscale: str, centred: bool
    ) -> "GaussianProcessSpec":
        """Check what the user passed."""
        who = features.who
        one_of(lengthscale, who, "lengthscale", ("auto", "loo", "evidence"))
        if lengthscale == "evidence" and features.learns_metric:
            raise InvalidInput(
                f'{who}: lengthscale="evidence" and metric="learned" both say how columns are '
                "scaled; set one of them."
            )
        variances = as_variance(noise, "noise"), as_variance(amplitude, "amplitude")
        by = "evidence" if "evidence" in (noise, amplitude) else "auto"
        return GaussianProcessSpec(features, *variances, lengthscale, centred, by)

    @property
    def rows(self) -> Pass:
        """How rows are summed up."""
        who, precision = self.features.who, self.features.precision
        return Pass(who, "evidence", self.fit_intercept, precision, forecasts=False)


def likelier(first: Tuning, second: Tuning, log_density: Callable[[Kernel], float]) -> Tuning:
    """Return the search with the larger leave-one-out log density, with the comparison.

    ``log_density`` is that of a fit to some rows with the kernel.
    """
    if not second.path or second.kernel == first.kernel:
        return first
    before, after = log_density(first.kernel), log_density(second.kernel)
    numbers = [np.size(tuning.kernel.get_params()["lengthscale"]) for tuning in (first, second)]
    measure = "minus the log density per row, left out"
    compared = (
        KernelComparison(numbers[0], first.kernel, -before, np.nan, np.nan, True, measure),
        KernelComparison(
            numbers[1], second.kernel, -after, after - before, 0.0, after > before, measure
        ),
    )
    tuning = second if after > before else first
    return replace(tuning, compared=(*tuning.compared, *compared))


#: Why there are no moments of features.
NO_FEATURES = (
    "a fit with the kernel itself makes no features, nor does one on a Fourier grid or on nearest "
    "neighbours; what it keeps of the rows is fit_.law.representation."
)


class ProcessLaw(Lacking, ABC):
    """The law of f given the rows. Frozen, and saved with the fit."""

    spec: GaussianProcessSpec
    chosen: Chosen  # The kernel, the map, and how they were found
    representation: Any  # The rows as they were solved
    evidence: Evidence  # Noise, amplitude and likelihood of each target
    # Mean log density of rows under the law without each, summed over targets
    loo_log_density: float

    lacks: ClassVar[Mapping[str, str]] = {"moments_": NO_FEATURES, "predictive_": NO_FEATURES}

    @property
    def of_values(self) -> "ProcessLaw":
        """The law given the values alone, without derivatives and averages."""
        return self

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self.representation.target_shape

    @property
    def outcome(self) -> EvidenceOutcome:
        """How the choice of noise and amplitude went."""
        return self.evidence.outcome

    @property
    def noise(self) -> Float[Array, " t"]:
        """σ² of a new row."""
        return self.evidence.noise

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """Rows that are predicted together."""

    @abstractmethod
    def means(self) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ the mean of f."""

    @abstractmethod
    def moments(self, X: Array) -> Both:
        """Return the mean and variance of f at rows."""

    def covariance(self, X: Array) -> Float[Array, "m m t"]:
        """Return the covariance of f at all pairs of rows."""
        raise NotImplementedError

    def draw(self, n: int, seed: int) -> Values:
        """Draw n functions of the posterior; return their values at rows, (b, t, n)."""
        raise NotImplementedError

    @property
    def drawn_rows(self) -> int:
        """Rows at which functions are evaluated together."""
        return self.block_rows

    def gradients(self, blocks: Blocks) -> Gradients:
        """Yield the rows of each block and the gradients of the mean there."""
        raise NotImplementedError

    @abstractmethod
    def scores(self) -> ErrorLaw | None:
        """Return standardised leave-one-out errors of rows not used for tuning; None if too few."""

    @abstractmethod
    def again(self, blocks: Blocks) -> Any:
        """Return the law of a fit of the same kind to other rows."""

    def without_fold(self, rows: RowSample) -> Any:
        """Return the law of a fit of the same kind to some rows."""
        y = rows.y.reshape(len(rows), *self.target_shape)
        return self.again(Blocks.from_arrays(rows.X, y, rows.w))

    @abstractmethod
    def solved(self, spec: GaussianProcessSpec, representation: Any = None) -> "ProcessLaw":
        """Find noise and amplitude again, of these rows or of others in the same form."""

    @abstractmethod
    def with_rows_of(self, spec: GaussianProcessSpec, blocks: Blocks) -> "ProcessLaw":
        """Return the law given the rows before and these."""


def log_normal(errors: Float[Array, "*m t"], variance: Float[Array, "*m t"]) -> Array:
    """Return log N(error; 0, variance)."""
    variance = np.maximum(variance, np.finfo(np.float64).tiny)
    return -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)


def log_density(
    errors: Float[Array, "m t"], variance: Float[Array, "m t"], w: Float[Array, " m"]
) -> float:
    """Return the mean of log N(error; 0, variance), summed over targets."""
    return float((w @ log_normal(errors, variance) / w.sum()).sum())
