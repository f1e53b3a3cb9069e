"""D features, or leaves of rows with as many kernel values a prediction: what errs less.

Both are fitted, and judged by the same rows, each predicted from all others (leave one out).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bochner._core.shapes import Array
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample
from bochner.data.schema import Inputs
from bochner.features.auto import EXTRAPOLATED_AS_GOOD
from bochner.models.error_law import LeftOutRows
from bochner.models.ridge.methods import NYSTROM, LocalKernel
from bochner.models.ridge.sums import RidgeSpec
from bochner.selection.chosen import Chosen
from bochner.sums.executor import LOCAL, Executor

#: Leaves of fewer rows are not tried: the tree costs more than they tell.
FEWEST_ROWS = 16


def fit_features_or_leaves(
    fit_ridge: Callable[..., Any],
    fit_local: Callable[..., Any],
    spec: RidgeSpec,
    blocks: Blocks,
    inputs: Inputs,
    where: Executor = LOCAL,
) -> Any:
    """Fit D features, and the kernel within leaves of D/2 rows with D/2 landmarks across.

    The features are kept where their mean squared error of rows left out is within 2 % of that
    within leaves, where D is all rows, or where D/2 are too few rows for a leaf. Time of both fits.

    Parameters
    ----------
    fit_ridge, fit_local : callable
        What fits features, and what fits leaves by a given :class:`LocalKernel`.
    spec : RidgeSpec
    blocks : Blocks
    inputs : Inputs
    where : Executor
    """
    features = fit_ridge(spec, blocks, inputs, where)
    width = spec.features.width
    width = width if isinstance(width, int) else features.chosen.n_features
    if width >= features.rows or width // 2 < FEWEST_ROWS:
        return features
    asked = replace(spec, features=replace(spec.features, method=NYSTROM))
    method = LocalKernel(leaf_rows=width // 2, landmarks=width // 2)
    leaves = fit_local(asked, method, blocks, inputs, where)
    ratio = error_ratio(leaves, features)
    if ratio * EXTRAPOLATED_AS_GOOD < 1:
        by = f"{width} features of {features.chosen.choice.method}"
        said = f" Its mean squared error of rows left out is {ratio:.3g} of that of {by}."
        return replace(leaves, chosen=_told(leaves.chosen, said))
    said = (
        f" The kernel itself within leaves of {width // 2} rows, with as many landmarks across, "
        f"has {ratio:.3g} of its mean squared error of rows left out."
    )
    return replace(features, summed=replace(features.summed, chosen=_told(features.chosen, said)))


def error_ratio(leaves: Any, features: Any) -> float:
    """Return the mean squared error within leaves over that of features, of the same rows.

    Several targets: the means of their relative errors, in units of their variances.
    """
    inside = leaves.left_out()
    y = inside.predicted + inside.errors
    told = features.left_out_of(RowSample(inside.X, y, inside.w, np.zeros(len(y))))
    moments = features.summed.moments
    unit = np.where(moments.power > 0, moments.power / moments.weight, 1.0)
    squares = _mean_square(told, unit)
    rows = np.arange(len(y)) if told.numbers is None else told.numbers
    return _mean_square(inside.take(rows), unit) / squares if squares > 0 else 1.0


def _mean_square(rows: LeftOutRows, unit: Array) -> float:
    return float(np.average((rows.errors**2 / unit).mean(axis=1), weights=rows.w))


def _told(chosen: Chosen, said: str) -> Chosen:
    """Return what was chosen, with more said of why."""
    return replace(chosen, choice=replace(chosen.choice, reason=chosen.choice.reason + said))
