"""What a user asks of a Gaussian process, checked."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from bochner._core.checks import one_of, warn_user
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.models._shown import Fact, ShownFit, numbers
from bochner.models.ridge.sums import Pass
from bochner.selection.chosen import FeatureSpec
from bochner.selection.record import KernelComparison, Tuning
from bochner.solvers.ridge.evidence import Evidence, EvidenceOutcome, as_variance

#: Outcomes that a user is warned of.
WARNED = (EvidenceOutcome.FLOAT32_LIMITED, EvidenceOutcome.SINGULAR)


@dataclass(frozen=True)
class GaussianProcessSpec:
    """What a user asks of a Gaussian process, checked.

    Attributes
    ----------
    features : FeatureSpec
    noise, amplitude : float or None
        None: chosen by the evidence.
    lengthscale : {"auto", "loo", "evidence"}
    fit_intercept : bool
    criterion : {"auto", "evidence"}
        What noise and amplitude are chosen by where the kernel itself is fitted.
    """

    features: FeatureSpec
    noise: float | None
    amplitude: float | None
    lengthscale: str
    fit_intercept: bool
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


class Ended(Protocol):
    """A fit that says how the choice of noise and amplitude went."""

    @property
    def outcome(self) -> EvidenceOutcome: ...


Fit = TypeVar("Fit", bound=Ended)


def warned(fit: Fit) -> Fit:
    """Return the fit; warn of an outcome that asks for attention."""
    if fit.outcome in WARNED:
        warn_user(str(fit.outcome))
    return fit


class ShownProcess(ShownFit):
    """A fit of a process that notebooks show."""

    def _found(self) -> Iterator[Fact]:
        """Give the evidence and how it was found."""
        fit: Any = self
        evidence: Evidence = fit.evidence
        yield "noise variance", numbers(evidence.noise)
        yield "amplitude", numbers(evidence.amplitude)
        yield "log marginal likelihood", numbers(evidence.log_likelihood)
        yield "outcome", str(evidence.outcome)


class FeaturelessFit(ShownProcess):
    """What fits of a process share that never make features: all is in the evidence."""

    summed: Any
    evidence: Evidence

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self.summed.target_shape

    @property
    def outcome(self) -> EvidenceOutcome:
        """How the choice of noise and amplitude went."""
        return self.evidence.outcome

    @property
    def law(self) -> None:
        """No law of coefficients of features: there are none."""

    @property
    def noise(self) -> Float[Array, " t"]:
        """σ²."""
        return self.evidence.noise


def likelier(first: Tuning, second: Tuning, before: float, after: float) -> Tuning:
    """Return the search whose kernel leaves rows the larger log density, and what was compared."""
    numbers = [np.size(found.kernel.get_params()["lengthscale"]) for found in (first, second)]
    measure = "minus the log density per row, left out"
    compared = (
        KernelComparison(numbers[0], first.kernel, -before, np.nan, np.nan, True, measure),
        KernelComparison(
            numbers[1], second.kernel, -after, after - before, 0.0, after > before, measure
        ),
    )
    found = second if after > before else first
    return replace(found, compared=(*found.compared, *compared))
