"""Ridge regression with too many features for a Gram matrix: iterative, one pass per step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.shapes import Array, Float
from bochner._core.sizes import WIDE, kept_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import required_targets
from bochner.errors import InvalidInput
from bochner.features.auto import Auto
from bochner.features.fourier.grid import FourierGrid
from bochner.features.method import Method
from bochner.features.nystrom.nystrom import Nystrom, Rounded
from bochner.features.rules import contenders
from bochner.models.error_law import LeftOutRows
from bochner.models.representations.features import LEAST_WEIGHT
from bochner.models.representations.representation import KERNEL_ONLY, Representation, RidgeSpec
from bochner.selection.choose import choose
from bochner.selection.chosen import Chosen
from bochner.solvers.ridge.iterative import (
    PROBES,
    JudgingRows,
    WideProblem,
    rows_to_factor,
    solve_wide,
)
from bochner.solvers.ridge.path import as_given, given_alpha, least_alpha
from bochner.solvers.ridge.solution import Solution
from bochner.sums.executor import LOCAL, Executor
from bochner.sums.products import first_sums, gram_products
from bochner.sums.rows import sampled
from bochner.sums.tree import SumOf

NO_MOMENTS = f"a fit with more than {WIDE:,} features keeps no moments"  # Why there are no moments


@dataclass(frozen=True, eq=False)
class WideSums(Representation):
    """Rows with too many features for a Gram matrix: results of single passes over them."""

    chosen: Chosen
    sample: RowSample  # For the preconditioner, leave-one-out errors and the certificate
    # Rows that were read, and rows of positive weight
    rows: int
    n_positive: int
    weight: float  # W
    power: Float[Array, " t"]  # Σ w (y − ȳ)², or Σ w y² where there is no intercept
    target_shape: tuple[int, ...]

    certified_rows = 2048  # Their features take 500 MB of 32,768

    lacks: ClassVar[Mapping[str, str]] = {
        "moments_": f"{NO_MOMENTS}; its sums are fit_.representation.",
        "dual_coef_": KERNEL_ONLY,
        "X_fit_": KERNEL_ONLY,
        "merge": f"{NO_MOMENTS} that add.",
        **dict.fromkeys(
            ("partial_fit", "solve_again"),
            f"{NO_MOMENTS}, which rows are added to and penalties solved from. Call fit with all "
            "rows, or fit the first rows with partial_fit.",
        ),
    }

    @property
    def count(self) -> int:
        return self.n_positive

    @property
    def target_variance(self) -> float:
        return float(np.mean(self.power)) / self.weight

    def left_out(self, solution: Solution) -> LeftOutRows | None:
        slack = solution.slack
        if slack is None:
            return None
        rows = self.sample.lowest(len(slack))
        predicted = [f for _, f in self.predictions(solution, Blocks.from_arrays(rows.X))]
        errors = (rows.y - np.concatenate(predicted)) / slack
        return LeftOutRows(rows.X, rows.y - errors, errors, rows.w, "leave one out")


def is_wide(spec: RidgeSpec, blocks: Blocks) -> bool:
    """Whether a fit has too many features for their Gram matrix, and rows enough to need them.

    Without penalty, and by evidence, the matrix is formed.
    """
    features = spec.features
    if isinstance(features.width, float) or least_alpha(spec.alpha) == 0:
        return False
    wide = needs_passes(features.method, features.width, blocks.n_rows, blocks.n_columns)
    return wide and spec.alpha != "evidence"


def needs_passes(method: Method, width: int, n_rows: int | None, n_columns: int) -> bool:
    """Whether a fit of this width needs passes instead of a Gram matrix.

    Nyström does not: its landmarks already need a matrix of this size. Few rows use the kernel
    itself.
    """
    if width <= WIDE or isinstance(method, Nystrom | FourierGrid):
        return False
    return n_rows is None or n_rows > kept_rows(n_columns)


def wide_sums(
    spec: RidgeSpec, blocks: Blocks, where: Executor = LOCAL
) -> tuple[WideSums, Solution]:
    """Choose what is open, sum up what single passes make, then solve by twenty to sixty passes."""
    alpha = given_alpha(spec.alpha)
    features, method = spec.features, spec.features.method
    if isinstance(method, Auto) and method.candidates is None:  # Landmarks need a matrix as wide
        kinds = tuple(m for m in contenders(blocks.n_columns) if not isinstance(m, Nystrom))
        features = replace(features, method=replace(method, candidates=kinds))
    chosen, sample = choose(features, blocks, alpha=alpha, where=where)
    double = spec.features.precision == "float64"
    chosen = replace(chosen, precision="float64" if double else "float32")
    sample = sampled(blocks, chosen.seed, where=where) if sample is None else sample
    sized = blocks.with_rows(chosen.block_rows)
    sums, problem, means = _problem(spec, chosen, sample, sized, where)
    given = spec.alpha if isinstance(spec.alpha, str) else as_given(spec.alpha, len(sums.power))
    return sums, solve_wide(problem, given, spec.per_target, means)


@dataclass(frozen=True)
class OfRoundedRows:
    """Features of rows that are rounded to float32 first."""

    features: Callable[[Array], Array]

    def __call__(self, X: Array) -> Array:
        """Return φ(X)."""
        return self.features(X.astype(np.float32) if isinstance(X, np.ndarray) else X)


def features_of_passes(phi: Rounded, X: Array) -> Callable[[Array], Array]:
    """Return φ for passes, of rows in float32 where that changes no feature of these by much.

    Features of such rows take a third of the time. The change is measured on 64 rows.
    """
    if phi.precision == "float64" or not isinstance(X, np.ndarray) or X.dtype != np.float64:
        return phi.features
    few = X[:: max(1, len(X) // 64)]
    with np.errstate(over="ignore"):
        rounded = few.astype(np.float32)
    if not np.isfinite(rounded).all():
        return phi.features
    right = phi.features(few)
    if not isinstance(right, np.ndarray):
        return phi.features
    change = np.linalg.norm(phi.features(rounded) - right)
    serves = change <= 4e-6 * np.linalg.norm(right)
    return OfRoundedRows(phi.features) if serves else phi.features


def _problem(
    spec: RidgeSpec, chosen: Chosen, sample: RowSample, blocks: Blocks, where: Executor
) -> tuple[WideSums, WideProblem, tuple[Float[Array, " D"], Float[Array, " t"]]]:
    """Sum up what one pass makes, and say how the rest is made; also the means z̄ and ȳ.

    The first rows of ``sample`` make the preconditioner.
    """
    who, shape = spec.features.who, required_targets(spec.features.who, blocks.target_shape)
    if not len(sample) or float(sample.w.sum()) <= LEAST_WEIGHT:
        raise InvalidInput(
            f"{who}: sample weights must have a sum above {LEAST_WEIGHT:g}; got no row of so much. "
            "Multiply all weights by one number."
        )
    phi, centred = chosen.rounded, spec.fit_intercept
    D, origin = phi.n_features, np.average(sample.y, axis=0, weights=sample.w)
    features = features_of_passes(phi, sample.X)
    part = partial(first_sums, features, D, origin, chosen.seed, PROBES)
    n_weighted, sums, squares, totals = where.sum(SumOf(part), blocks)
    W, t = float(totals[0]), len(origin)
    mean = sums[0] / W if centred else np.zeros(D)
    target = totals[1 : 1 + t] / W + origin if centred else np.zeros(t)
    moved = target - origin

    def multiply(V: Array, precision: str) -> Float[Array, "D c"]:
        double = "float64" in (precision, phi.precision)
        pass_of = partial(where.sum, blocks=blocks)
        return gram_products(pass_of, features, V, mean, "float64" if double else "float32")

    left = totals[1 : 1 + t] - W * moved
    cross = sums[1 : 1 + t].T - np.outer(sums[0], moved) - np.outer(mean, left)
    power = np.maximum(squares - moved * (totals[1 : 1 + t] + left), 0.0)
    draws = sums[1 + t :].T - np.outer(mean, totals[1 + t :])
    rows = sample.lowest(rows_to_factor(n_weighted, D, len(sample)))
    Z = np.empty((len(rows), D), np.dtype(phi.precision))  # About the means, in that precision
    for start in range(0, len(rows), 256):
        index = np.arange(start, min(start + 256, len(rows)))
        made = to_numpy(phi.features(rows.take(index).X))
        Z[index] = made.astype(np.float64, copy=False) - mean
    judges = JudgingRows(Z, rows.y - target, rows.w, W)
    problem = WideProblem(multiply, cross, power, W, n_weighted, centred, draws, judges)
    counts = count_rows(blocks), n_weighted, W
    return WideSums(chosen, sample, *counts, power, shape), problem, (mean, target)
