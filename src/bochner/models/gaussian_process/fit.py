"""A fitted Gaussian process: the law of f, and the scores that its intervals are made of."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from bochner._core.checks import warn_user
from bochner._core.shapes import Array, Float
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.features.map import WaveMethod
from bochner.models._shown import ShownFit
from bochner.models.gaussian_process.exact import exact_process
from bochner.models.gaussian_process.features import (
    FeatureProcess,
    chosen_features,
    feature_process,
    search_of,
)
from bochner.models.gaussian_process.grid import chosen_waves, wave_process
from bochner.models.gaussian_process.intervals import Conformal, CrossConformal, cross_conformal
from bochner.models.gaussian_process.law import ProcessLaw
from bochner.models.gaussian_process.neighbours import by_neighbours, neighbour_process
from bochner.models.gaussian_process.rough import by_features_or_neighbours
from bochner.models.gaussian_process.spec import GaussianProcessSpec
from bochner.models.representations.waves import on_grid
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen
from bochner.solvers.ridge.evidence import EvidenceOutcome
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.moments import Precision

#: Outcomes that a user is warned of.
WARNED = (EvidenceOutcome.FLOAT32_LIMITED, EvidenceOutcome.SINGULAR)


@dataclass(frozen=True, eq=False)
class ProcessFit(ShownFit):
    """A Gaussian process: the law of f given the rows."""

    inputs: Inputs
    law: ProcessLaw
    # Scores that calibrated intervals are made of; None until they are asked for
    calibrated: Conformal | CrossConformal | None = None

    @property
    def chosen(self) -> Chosen:
        """The kernel, the map, and how they were found."""
        return self.law.chosen

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Of one row of y: () or (t,)."""
        return self.law.target_shape

    def gradients(self, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b d t"]]]:
        """Yield the rows of each block and the gradients of the mean there."""
        return self.law.require("gradient", self.law.spec.features.who).gradients(blocks)

    def calibration(self) -> Conformal | CrossConformal:
        """Return the scores that calibrated intervals are made of; found once, and kept.

        By leave-one-out errors where the law has enough of them, else by fits without folds.
        """
        if self.calibrated is None:
            found: Conformal | CrossConformal | None = self.law.scores()
            if found is None:
                found = cross_conformal(self.law.without_fold, self.law.representation.sample)
            object.__setattr__(self, "calibrated", found)
        return self.calibrated  # type: ignore[return-value]

    def _found(self) -> dict[str, Any]:
        evidence = self.law.evidence
        return {
            "noise_variance": evidence.noise,
            "amplitude": evidence.amplitude,
            "log_marginal_likelihood": evidence.log_likelihood,
            "outcome": evidence.outcome.name,
            "outcome_words": str(evidence.outcome),
        }


def fitted(inputs: Inputs, law: ProcessLaw) -> ProcessFit:
    """Return the fit; warn of an outcome that asks for attention."""
    if law.outcome in WARNED:
        warn_user(str(law.outcome))
    return ProcessFit(inputs, law)


def process(
    spec: GaussianProcessSpec,
    blocks: Blocks,
    where: Executor = LOCAL,
    precision: Precision | None = None,
    *,
    exact: bool = False,
    any_features: bool = False,
    any_method: bool = False,
) -> ProcessLaw:
    """Choose the representation and what is open of kernel and features; find the law.

    Parameters
    ----------
    spec : GaussianProcessSpec
    blocks : Blocks
    where : Executor
    precision : {"float32", "float64"}, optional
        Of all sums, where rows cannot be read again: these have features.
    exact : bool
        Whether the kernel itself is fitted.
    any_features : bool
        Whether width and precision of features are left open.
    any_method : bool
        Whether the method is.
    """
    if exact:
        return exact_process(spec, blocks)
    if on_grid(spec.features):
        return wave_process(spec, blocks, where)
    if by_neighbours(spec):
        return neighbour_process(spec, blocks, where)
    if precision is not None or not any_features:
        return feature_process(spec, blocks, where, precision)
    law = features_or_waves(spec, blocks, where)
    if not any_method or not isinstance(law, FeatureProcess):
        return law
    return by_features_or_neighbours(spec, law, blocks, where)


def features_or_waves(
    spec: GaussianProcessSpec, blocks: Blocks, where: Executor = LOCAL
) -> ProcessLaw:
    """Choose what is open; sum up waves of all rows where "auto" took waves, else features."""
    features = replace(spec.features, waves=True)
    chosen, sample = choose(features, blocks, search=search_of(spec), where=where)
    if sample is None or not isinstance(chosen.choice.method, WaveMethod):
        return chosen_features(spec, chosen, blocks, where)
    return chosen_waves(spec, chosen, sample, blocks, where)


def merge_processes(fits: list[ProcessFit]) -> ProcessFit:
    """Return the fit of the rows of all."""
    first = fits[0].law
    rows = reduce(lambda a, b: a.merge(b), [fit.law.representation for fit in fits])
    return fitted(fits[0].inputs, first.solved(first.spec, rows))
