"""Choose between features and nearest neighbours for rough processes of few columns.

Both are fitted and compared by leave-one-out errors. Neighbours must be better by a margin, because
they draw no functions and have no covariances of rows and no gradients.
"""

from dataclasses import replace

import numpy as np

from bochner._core.shapes import Array, Float, Int
from bochner._core.sizes import MOST_CELLS
from bochner.data.blocks import Blocks
from bochner.kernels.kernel import Kernel
from bochner.models.gaussian_process.adaptation import left_out
from bochner.models.gaussian_process.features import FeatureProcess
from bochner.models.gaussian_process.law import ProcessLaw
from bochner.models.gaussian_process.neighbourhoods import JUDGED, KeptRows, is_near
from bochner.models.gaussian_process.neighbours import NeighbourProcess, default_neighbours
from bochner.models.gaussian_process.spec import GaussianProcessSpec
from bochner.selection.grids import FEWEST_ROWS
from bochner.sums.executor import LOCAL, Executor

#: Columns whose rows have neighbours that are near, at most.
MOST_COLUMNS = 4

#: Rows left out, at most, beyond those that noise and lengthscales are chosen by.
LEFT_OUT = 2048

#: Neighbours are taken if their error is below this share of the features' error.
BETTER = 0.95

#: Families that a kernel of "auto" is looked for in, beside the kernel that suits features.
FAMILIES = ("matern32", "exponential")


def suits_neighbours(n_rows: int, n_inputs: int, n_targets: int) -> bool:
    """Whether rows are many, fit into memory, and have neighbours that are near."""
    cells = n_rows * (n_inputs + n_targets + 2)
    return n_rows >= FEWEST_ROWS and cells <= MOST_CELLS and n_inputs <= MOST_COLUMNS


def by_features_or_neighbours(
    spec: GaussianProcessSpec, law: FeatureProcess, blocks: Blocks, where: Executor = LOCAL
) -> ProcessLaw:
    """Return a law on features, or one on neighbours of the same rows if its errors are smaller.

    Of more than 8,192 rows of up to four columns, in this process. Each tried kernel takes
    about three seconds: the features' kernel, with new lengthscales if it was given by name, and
    for "auto" two families of rough functions.
    """
    sums = law.representation
    suits = suits_neighbours(sums.rows, blocks.n_columns, sums.sample.y.shape[1])
    if not suits or spec.features.learns_metric or not where.in_order:
        return law
    asked = _asked(spec, law.chosen.kernel)
    if not asked:
        return law
    rows = KeptRows.of(spec.features.who, blocks, spec.features.seed)
    own = judging(rows.priority)
    scale = rows.y[own].std(axis=0)
    if len(own) == 0 or not np.all(scale > 0):
        return law
    errors = left_out(sums, law.predictive, sums.sample)[0]
    before = _size(errors[judging(sums.sample.priority)], scale)
    tried = [default_neighbours(each, rows) for each in asked]
    sizes = [_size(found.left_out(own)[0], scale) for found in tried]
    error, best = min(zip(sizes, tried, strict=True), key=lambda pair: pair[0])
    if not error < BETTER * before:
        return law
    choice = replace(best.chosen.choice, reason=_reason(best, error, law, before))
    return replace(best, chosen=replace(best.chosen, choice=choice))


def _asked(spec: GaussianProcessSpec, found: Kernel) -> list[GaussianProcessSpec]:
    """Return what neighbours are tried with: the kernel of the features, and families by name."""
    name, near = spec.features.kernel, is_near(found)
    kernels: list[tuple[Kernel | str, str]] = [(found, "loo")] if near else []
    if name == "auto" and spec.features.effort != "low":
        kernels += [(family, spec.lengthscale) for family in FAMILIES]
    elif isinstance(name, str) and name != "auto" and near:
        kernels.append((name, spec.lengthscale))
    return [
        replace(spec, features=replace(spec.features, kernel=kernel), lengthscale=lengthscale)
        for kernel, lengthscale in kernels
    ]


def judging(priority: Float[Array, " n"]) -> Int[Array, " m"]:
    """Return the rows whose errors are compared."""
    return np.argsort(priority, kind="stable")[JUDGED : JUDGED + LEFT_OUT]


def _size(errors: Float[Array, "m t"], scale: Float[Array, " t"]) -> float:
    return float(np.sqrt(np.mean((errors / scale) ** 2)))


def _reason(best: NeighbourProcess, error: float, law: FeatureProcess, before: float) -> str:
    method = best.chosen.choice.method
    return (
        f"{method}: rows left out are predicted from their {method.neighbours} nearest of "
        f"{law.representation.rows:,} rows with errors of {error:.3g} deviations of y, against "
        f"{before:.3g} by {law.chosen.n_features:,} features of {law.chosen.choice.method}. "
        'method="auto" takes features.'
    )
