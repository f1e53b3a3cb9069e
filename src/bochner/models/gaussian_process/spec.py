"""Checked parameters of a Gaussian process."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.checks import one_of
from bochner.errors import InvalidInput
from bochner.models.representations.features import Pass
from bochner.selection.chosen import FeatureSpec
from bochner.selection.record import KernelComparison, Tuning
from bochner.solvers.ridge.evidence import as_variance


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


def likelier(first: Tuning, second: Tuning, before: float, after: float) -> Tuning:
    """Return the search with the larger leave-one-out log density, with the comparison."""
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
