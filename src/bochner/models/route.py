"""Choice of the representation of a fit; the only file that imports all representations."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bochner._core.sizes import LOO_ROWS, MAX_CELLS
from bochner.data.blocks import Blocks
from bochner.features.map import Method
from bochner.features.mercer.sphere import ModeMethod
from bochner.kernels.windows import window_count
from bochner.models.gaussian_process import law
from bochner.models.gaussian_process.grid import ModeProcess, penalty_of
from bochner.models.gaussian_process.neighbours import (
    NearestNeighbours,
    NeighbourProcess,
    by_features_or_neighbours,
)
from bochner.models.representations.exact import exact_rows, leaf_rows
from bochner.models.representations.features import is_wide, solve_features, wide_sums
from bochner.models.representations.modes import chosen_grid_sums, grid_sums
from bochner.models.representations.representation import (
    DIRECT_ROWS,
    ExactKernel,
    LocalKernel,
    Representation,
    RidgeSpec,
    as_features,
    without_copies,
)
from bochner.selection.choose import choose
from bochner.selection.spec import WIDTH
from bochner.solvers.convex.kernel import RidgeRows
from bochner.solvers.ridge.solution import Solution
from bochner.sums.moments import Precision
from bochner.sums.passes import LOCAL, Executor

WIDE_ROWS = 1 << 16  # Number of rows from which the default width is 2048


def represent(  # noqa: PLR0911  a case for each representation
    spec: RidgeSpec,
    blocks: Blocks,
    where: Executor,
    precision: Precision | None,
    any_width: bool,
) -> tuple[Representation, Solution]:
    """Return the representation of the rows and the solution, after all open choices."""
    # ``precision`` is None, or the precision of all sums if rows cannot be read again.
    features, n, rereadable = spec.features, blocks.n_rows or 0, precision is None
    any_features = rereadable and any_width and features.precision == "auto"
    method, alpha = spec.method, spec.given_alpha
    modes = replace(features, modes=alpha != 0 and not features.of_classes)
    automatic = method is None and any_features and blocks.n_rows is not None and alpha != 0
    is_few = automatic and n * window_count(features.kernel, blocks.n_columns) <= most_at_once(spec)
    fits_in_memory = automatic and where is LOCAL and n * blocks.n_columns <= MAX_CELLS
    match method:
        case ExactKernel():
            return exact_rows(spec, method, blocks, where)
        case LocalKernel():
            return leaf_rows(spec, method, blocks, where)
        case _ if is_few:
            return exact_rows(spec, ExactKernel(), blocks)  # few rows are sent to this process
        case _ if fits_in_memory and features.kernel == "auto":
            return leaf_rows(replace(spec, features=modes), default_leaves(spec), blocks, where)
        case _ if isinstance(features.method, ModeMethod):
            return grid_sums(spec, blocks, where)
        case _ if rereadable and is_wide(spec, blocks):
            return wide_sums(spec, blocks, where)
    features = modes if any_features else features
    if any_width and n >= WIDE_ROWS:
        features = replace(features, width=2 * WIDTH)
    prepare = partial(without_copies, spec)
    chosen, _ = choose(features, blocks, alpha=alpha, prepare=prepare, where=where)
    if features.modes and isinstance(chosen.choice.method, ModeMethod):
        return chosen_grid_sums(features, spec.fit_intercept, chosen, blocks, where).solve(spec)
    return solve_features(spec, chosen, blocks, where, precision)


def ridge_rows(spec: Any, alpha: Any, blocks: Blocks, where: Executor) -> RidgeRows:
    """Return the rows for a smooth loss; kernel and penalty are chosen by squared errors."""
    method, alpha = spec.features.method, "loo" if alpha is None else alpha
    features = replace(spec.features, method=as_features(method))
    if isinstance(method, ExactKernel):
        method = replace(method, preconditioner=features.method)
    ridge = RidgeSpec(features, alpha, False, spec.fit_intercept, method)
    rows, first = represent(ridge, blocks, where, None, False)
    rows.require("refit", features.caller)
    return RidgeRows(rows, lambda y, w, alpha: rows.refit(ridge, replace(first, alpha=alpha), y, w))


def most_at_once(spec: RidgeSpec) -> int:
    """Return the largest number of rows for which the default is a direct exact fit."""
    return 2048 if spec.features.is_quick else spec.direct_rows


def default_leaves(spec: RidgeSpec) -> LocalKernel:
    """Return the default local fit: with ``effort="low"`` leaves of at most 1024 rows."""
    return LocalKernel(1024 if spec.features.is_quick else None)


def process(  # noqa: PLR0911  a case for each representation
    spec: law.GaussianProcessSpec,
    method: Method | str | None,
    blocks: Blocks,
    where: Executor,
    precision: Precision | None,
    any_features: bool,
) -> law.ProcessLaw:
    """Return the posterior of f given the rows, after all open choices."""
    # ``precision`` is None, or the precision of all sums if rows cannot be read again.
    # ``any_features``: width and precision are open, so that "auto" may use Fourier modes.
    features, n, is_small = spec.features, blocks.n_rows, False
    is_open = any_features and precision is None
    if method is None and is_open and n is not None:
        windows = n * window_count(features.kernel, blocks.n_columns)
        is_small = windows**3 * int(np.prod(blocks.target_shape or ())) <= DIRECT_ROWS**3
    match method or features.method:
        case ExactKernel():
            return law.ExactProcess.fit(spec, blocks, where)
        case _ if is_small:
            return law.ExactProcess.fit(spec, blocks)  # few rows are sent to this process
        case _ if isinstance(features.method, ModeMethod):
            return ModeProcess.fit(spec, blocks, where)
        case NearestNeighbours():
            return NeighbourProcess.fit(spec, blocks, where)
        case _ if not (is_open and features.method.has_features):
            return law.FeatureProcess.fit(spec, blocks, where, precision)
    search = law.search_of(spec, law.FeatureProcess.fit, LOO_ROWS)
    features, prepare = replace(features, modes=True), partial(without_copies, spec)
    chosen, _ = choose(features, blocks, search=search, where=where, prepare=prepare)
    if isinstance(chosen.choice.method, ModeMethod):
        sums = chosen_grid_sums(spec.features, spec.fit_intercept, chosen, blocks, where)
        return ModeProcess.solve(spec, sums, penalty_of(chosen.search, sums.sample))
    on_features = law.fit_on_features(spec, chosen, blocks, where)
    if method is not None or not where.in_order:
        return on_features
    return by_features_or_neighbours(spec, on_features, blocks)
