"""A fitted Gaussian process: the law of f, and the scores that its intervals are made of."""

from dataclasses import dataclass, replace
from functools import reduce
from operator import attrgetter
from typing import Any

import numpy as np

from bochner._core.checks import warn_user
from bochner._core.shapes import Array, Float, Gradients, Predictions
from bochner._core.sizes import MOST_CELLS
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.features.fourier.grid import WaveMethod
from bochner.features.map import Method
from bochner.kernels.kernel import Kernel
from bochner.kernels.windows import windows_of
from bochner.models._html import FitSummary
from bochner.models.error_law import ErrorLaw
from bochner.models.gaussian_process.exact import ExactProcess
from bochner.models.gaussian_process.features import (
    FeatureProcess,
    chosen_features,
    feature_search,
    left_out,
)
from bochner.models.gaussian_process.grid import WaveProcess, chosen_waves
from bochner.models.gaussian_process.law import GaussianProcessSpec, ProcessLaw
from bochner.models.gaussian_process.neighbours import (
    JUDGED,
    NearestNeighbours,
    NeighbourProcess,
    is_near,
    near_rows,
    rows_of,
)
from bochner.models.representations.representation import DIRECT_ROWS, ExactKernel
from bochner.selection.choose import choose
from bochner.selection.waves import FEWEST_ROWS
from bochner.solvers.ridge.solution import EvidenceOutcome
from bochner.sums.moments import Precision
from bochner.sums.passes import Executor

# --- Features, or nearest neighbours for rough processes of few columns ---------------------------
#
# Both are fitted and compared by leave-one-out errors. Neighbours must be better by a margin,
# because they draw no functions and have no covariances of rows and no gradients.

LEFT_OUT = 2048  # Rows left out, at most, beyond those that noise and lengthscales are chosen by


def by_features_or_neighbours(
    spec: GaussianProcessSpec, law: FeatureProcess, blocks: Blocks
) -> ProcessLaw:
    """Return a law on features, or one on neighbours of the same rows if its errors are smaller.

    Of more than 8,192 rows of up to four columns that fit into memory, in this process. Each tried
    kernel takes about three seconds: the features' kernel, with new lengthscales if it was given by
    name, and for "auto" two families of rough functions. Errors must be 5 % smaller.
    """
    features, sums, d = spec.features, law.representation, blocks.n_columns
    cells = sums.rows * (d + sums.sample.y.shape[1] + 2)
    many = sums.rows >= FEWEST_ROWS and cells <= MOST_CELLS
    name, near = features.kernel, is_near(law.chosen.kernel)
    kernels: list[tuple[Kernel | str, str]] = [(law.chosen.kernel, "loo")] if near else []
    if name == "auto" and features.effort != "low":
        kernels += [(family, spec.lengthscale) for family in ("matern32", "exponential")]
    elif isinstance(name, str) and name != "auto" and near:
        kernels.append((name, spec.lengthscale))
    if not many or d > 4 or features.learns_metric or not kernels:
        return law
    rows = rows_of(spec, blocks)
    judges = rows.order[JUDGED : JUDGED + LEFT_OUT]
    scale = rows.y[judges].std(axis=0)
    if len(judges) == 0 or not np.all(scale > 0):
        return law

    def size(errors: Float[Array, "m t"]) -> float:
        return float(np.sqrt(np.mean((errors / scale) ** 2)))

    order = np.argsort(sums.sample.priority, kind="stable")[JUDGED : JUDGED + LEFT_OUT]
    before = size(left_out(sums, law.predictive, sums.sample)[0][order])
    tried = []
    for kernel, lengthscale in kernels:
        asked = replace(features, kernel=kernel, method=NearestNeighbours())
        tried.append(near_rows(replace(spec, features=asked, lengthscale=lengthscale), rows))
    sizes = [size(process.left_out(judges)[0]) for process in tried]
    error, best = min(zip(sizes, tried, strict=True), key=lambda pair: pair[0])
    if not error < 0.95 * before:
        return law
    method: Any = best.chosen.choice.method
    reason = (
        f"{method}: rows left out are predicted from their {method.neighbours} nearest of "
        f"{sums.rows:,} rows with errors of {error:.3g} deviations of y, against {before:.3g} by "
        f'{law.chosen.n_features:,} features of {law.chosen.choice.method}. method="auto" takes '
        "features."
    )
    choice = replace(best.chosen.choice, reason=reason)
    return replace(best, chosen=replace(best.chosen, choice=choice))


@dataclass(frozen=True, eq=False)
class ProcessFit(FitSummary):
    """A Gaussian process: the law of f given the rows."""

    inputs: Inputs
    law: ProcessLaw
    # Scores that calibrated intervals are made of; None until they are asked for
    errors: ErrorLaw | None = None

    chosen = property(attrgetter("law.chosen"))
    target_shape = property(attrgetter("law.representation.target_shape"))

    def predictions(self, blocks: Blocks) -> Predictions:
        """Yield the rows of each block and the mean of f there, (b, t)."""
        means = self.law.means()
        for block in blocks.with_rows(self.law.block_rows):
            yield block.X, means(block.X)

    def gradients(self, blocks: Blocks) -> Gradients:
        """Yield the rows of each block and the gradients of the mean there."""
        return self.law.require("gradient", self.law.spec.features.who).gradients(blocks)

    def merged(self, fits: list["ProcessFit"]) -> "ProcessFit":
        """Return the fit of the rows of all."""
        rows = reduce(lambda a, b: a.merge(b), [fit.law.representation for fit in fits])
        return fitted(self.inputs, self.law.solved(self.law.spec, rows))

    def _results(self) -> dict[str, Any]:
        evidence = self.law.evidence
        return {
            "noise_variance": evidence.noise,
            "amplitude": evidence.amplitude,
            "log_marginal_likelihood": evidence.log_likelihood,
            "outcome": evidence.outcome.name,
            "outcome_words": str(evidence.outcome),
        }


def fitted(inputs: Inputs, law: ProcessLaw) -> ProcessFit:
    """Return the fit; warn if the outcome needs attention."""
    outcome = law.evidence.outcome
    if outcome in (EvidenceOutcome.FLOAT32_LIMITED, EvidenceOutcome.SINGULAR):
        warn_user(str(outcome))
    return ProcessFit(inputs, law)


def process(  # noqa: PLR0911  a case for each representation
    spec: GaussianProcessSpec,
    method: Method | str | None,
    blocks: Blocks,
    where: Executor,
    precision: Precision | None,
    any_features: bool,
) -> ProcessLaw:
    """Choose the representation and what is open of kernel and features; find the law.

    ``method`` is the one asked for, None for any. ``precision`` is that of all sums where rows
    cannot be read again: these have features. ``any_features``: width and precision are left open;
    "auto" may then sum waves of all rows.
    """
    features, n, again = spec.features, blocks.n_rows, precision is None
    if again and any_features and method is None and n is not None:
        windows = n * windows_of(features.kernel, blocks.n_columns)
        if windows**3 * int(np.prod(blocks.target_shape or ())) <= DIRECT_ROWS**3:
            return ExactProcess.fit(spec, blocks)  # few rows are sent to this process
    if isinstance(method, ExactKernel):
        return ExactProcess.fit(spec, blocks, where)
    if isinstance(features.method, WaveMethod):
        return WaveProcess.fit(spec, blocks, where)
    if isinstance(features.method, NearestNeighbours):
        return NeighbourProcess.fit(spec, blocks, where)
    if not (again and any_features):
        return FeatureProcess.fit(spec, blocks, where, precision)
    search = feature_search(spec)
    chosen, sample = choose(replace(features, waves=True), blocks, search=search, where=where)
    if sample is not None and isinstance(chosen.choice.method, WaveMethod):
        return chosen_waves(spec, chosen, sample, blocks, where)
    law = chosen_features(spec, chosen, blocks, where)
    if method is not None or not where.in_order:
        return law
    return by_features_or_neighbours(spec, law, blocks)
