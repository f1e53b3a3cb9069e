"""Rows as moments of their features, by one pass, or by iterative passes for very large D."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, ClassVar, cast

import numpy as np

from bochner._core.arrays import slices, to_numpy
from bochner._core.shapes import Array, Float
from bochner._core.sizes import SMALL, WIDE, cached_rows, prefers_rows
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample, gather
from bochner.data.sources import Block, require_targets
from bochner.errors import InvalidInput
from bochner.features.auto import Auto
from bochner.features.fourier.grid import FourierGrid
from bochner.features.nystrom import COARSE, Nystrom, Points, PrecisionMap
from bochner.features.rules import contenders
from bochner.models._rows import no_landmarks
from bochner.models.error_law import HeldOutRows
from bochner.models.representations import representation
from bochner.models.representations.representation import Representation, RidgeSpec
from bochner.selection.choices import Choices, feature_precision
from bochner.selection.choose import choose
from bochner.solvers.ridge import iterative
from bochner.solvers.ridge.eigen import (
    Eigen,
    Rows,
    Triangle,
    decompose,
    decompose_rows,
    left_out_rows,
    solve_ridge,
)
from bochner.solvers.ridge.problem import left_out_errors
from bochner.solvers.ridge.solution import Outcome, Solution, as_alphas
from bochner.sums import passes
from bochner.sums.moments import Moments, Precision, require_squares


class FeatureRows(Representation):
    """Features of the rows, as a table or as moments, with their eigendecomposition."""

    # Subclasses are frozen dataclasses with these fields
    fit_intercept: bool
    precision: Any = "float64"  # Of the products of features
    squared: Any = False  # Whether these products are decomposed, not the features themselves
    means: Any  # Of features (D,) and targets (t,); zeros without an intercept
    decompose: ClassVar[Any]  # (): the Eigen of all rows, the sample in centred blocks, the means

    lacks = representation.FEATURES_LACK

    @property
    def target_variance(self) -> float:
        return float(np.mean(self.decompose()[0].power)) / self.weight

    def solve(
        self, spec: RidgeSpec, blocks: Blocks | None = None, where: passes.Executor = passes.LOCAL
    ) -> tuple[Any, Solution]:
        """Return the rows (with copies merged if the sample has all rows) and the solution.

        ``blocks`` are all rows, None if they cannot be read again.
        """
        sums: Any = replace(cast(Any, self), fit_intercept=spec.fit_intercept, max_weight=1.0)
        if isinstance(spec.alpha, str):  # copies lower leave-one-out errors
            sums = sums.without_copies(spec)
        sample, chosen, double = sums.sample, sums.chosen, sums.chosen.precision == "float64"
        by_triangle = spec.given_alpha == 0 and double and sums.squared
        if by_triangle and (blocks is not None or sums.keeps_all):  # by QR of all rows
            table = Blocks.from_arrays(sample.X, sample.y, sample.w) if blocks is None else blocks
            triangle = partial(triangle_of, chosen=chosen, centred=sums.fit_intercept)
            table = table.with_rows(chosen.block_rows)
            eigen = where.sum(passes.BlockSum(triangle), table).eigen()
            rows, means = (), sums.means
        else:
            eigen, rows, means = sums.decompose()
        solution = solve_ridge(eigen, rows, means, spec.alpha, per_target=spec.per_target)
        is_solved = solution.outcome is Outcome.SOLVED
        if is_solved and not double and sums.precision == "float64":
            solution = replace(solution, outcome=Outcome.REFINED)
        return sums, solution

    def pieces(self) -> Iterator[Rows]:
        """Yield the centred rows (Z, y, w) of the sample by blocks."""
        centre, middle = self.means
        for places in slices(len(self.sample), self.chosen.block_rows):
            rows = self.sample.take(places)
            Z = self.chosen.precision_map.features(rows.X)
            Z = Z - centre.astype(Z.dtype)
            Z = Z.astype(np.float32, copy=False) if self.precision == "float32" else Z
            yield Z, rows.y - middle, rows.w

    def left_out(self, solution: Solution) -> HeldOutRows:
        eigen, rows, _ = self.decompose()
        alpha = np.broadcast_to(np.asarray(solution.alpha, np.float64), eigen.power.shape)
        alpha = np.maximum(alpha, eigen.floor)
        parts = list(left_out_rows(eigen, rows, alpha))
        residuals, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
        sample = self.sample
        predicted = sample.y - np.where(np.isfinite(errors), errors, residuals)
        predictions = HeldOutRows(sample.X, predicted, errors, sample.w, "leave one out")
        return predictions.take(no_landmarks(self.chosen.map, sample.X))


@dataclass(frozen=True, eq=False)
class FeatureSums(FeatureRows):
    """Moments of the features of all rows; further rows can be added.

    Few rows are kept themselves, and their moments are formed on demand.
    """

    caller: str  # Class name of the estimator, for messages
    chosen: Choices
    fit_intercept: bool
    sums: Moments | None  # None for few rows
    sample: RowSample  # For leave-one-out errors and the certificate
    rows: int
    target_shape: tuple[int, ...] = ()
    max_weight: float = 1.0  # Largest weight that leave-one-out errors leave out of a row

    @cached_property
    def moments(self) -> Moments:
        """Moments of all rows."""
        rows = self.sample
        return self.sums or Moments.of(self.chosen.double(rows.X), rows.y, rows.w)

    @property
    def count(self) -> int:
        return len(self.sample) if self.sums is None else self.sums.rows

    @property
    def weight(self) -> float:
        return float(self.sample.w.sum()) if self.sums is None else self.sums.weight

    squared = property(lambda self: self.sums is not None)

    @property
    def precision(self) -> Precision:
        return "float64" if self.sums is None else self.sums.precision

    @property
    def target_variance(self) -> float:
        return float(np.mean(self.moments.power)) / self.moments.weight

    @property
    def means(self) -> tuple[Float[Array, " D"], Float[Array, " t"]]:
        centred, moments = float(self.fit_intercept), self.moments
        return centred * moments.feature_mean, centred * moments.target_mean

    def without_copies(self, spec: Any) -> "FeatureSums":
        rows = super().without_copies(spec)  # ``count`` still counts copies
        return self if rows is self else replace(rows, sums=self.moments)

    def decompose(self) -> tuple[Eigen, Iterable[Rows], tuple[Array, Array]]:
        """Return the decomposition of the rows (if few) or of G, the sample in blocks, and means.

        The rows of the sample are centred at the means, which are zeros without an intercept.
        """
        centred, sums, is_small = self.fit_intercept, self.sums, True
        if sums is not None:
            is_small = prefers_rows(sums.rows, sums.n_features) and self.keeps_all
        if is_small and self.chosen.precision == "float64":
            Z, y, w = self.chosen.double(self.sample.X), self.sample.y, self.sample.w
            middle = y[0] + np.average(y - y[0], 0, w)  # exact for a constant target
            means = centred * np.average(Z, 0, w), centred * middle
            rows = Z - means[0], y - means[1], w
            eigen = decompose_rows(*rows, centred=centred)
            return replace(eigen, max_weight=self.max_weight), [rows], means
        moments = self.moments if centred else self.moments.about_zero()
        eigen = replace(decompose(moments, centred), max_weight=self.max_weight)
        n = len(self.sample)
        return replace(eigen, rows=n) if self.keeps_all else eigen, self.pieces(), self.means

    def check_range(self) -> "FeatureSums":
        """Return self; refuse weights and targets whose sums or squares underflow float64."""
        require_weight(self.caller, float(self.sample.w.sum()))
        power = None if self.sums is None else self.sums.power
        require_squares(self.caller, self.sample.y, self.sample.w, power)
        return self

    def merge(self, other: "FeatureSums") -> "FeatureSums":
        sample, rows = self.sample + other.sample, self.rows + other.rows
        return replace(self, sums=self.moments + other.moments, sample=sample, rows=rows)

    def add_rows(self, blocks: Blocks) -> "FeatureSums":
        representation.require_alike(self.caller, blocks, self.target_shape)
        moments, sample, rows = self.chosen.add_up(blocks, "float64", passes.LOCAL, self.rows)
        return self.merge(replace(self, sums=moments, sample=sample, rows=rows)).check_range()


def require_weight(caller: str, weight: float) -> None:
    """Refuse a sum of weights below 1e-90, for which squared errors underflow."""
    if not weight >= 1e-90:
        raise InvalidInput(
            f"{caller}: sample weights must have a sum above 1e-90; got {weight:.3g}. Multiply all "
            "weights by one number."
        )


def sum_features(
    spec: RidgeSpec,
    chosen: Choices,
    blocks: Blocks,
    where: passes.Executor,
    precision: Precision | None = None,
    whitens_sums: bool = True,
) -> FeatureSums:
    """Return the sums of all rows; ``whitens_sums``: sums may be whitened instead of each row."""
    caller, requested = spec.features.caller, spec.features.precision
    n, d, shape = blocks.n_rows, blocks.n_columns, require_targets(caller, blocks.target_shape)
    if requested == "auto" and spec.given_alpha == 0:
        requested = "float64"
    phi, method = chosen.map, chosen.choice.method
    chosen = replace(chosen, precision=precision or feature_precision(requested, n, phi))
    D = phi.n_features
    random = isinstance(method, Nystrom) and not isinstance(method.landmarks, Points)
    automatic = whitens_sums and precision is None and requested == "auto" and random
    is_small = n is not None and n <= cached_rows(d) and prefers_rows(n, D)
    if is_small and chosen.precision == "float64":
        sums: tuple[Moments | None, Any, Any] = None, gather(blocks, chosen.seed), n
    else:
        if automatic and n is not None and n >= 8 * D and n * D**2 > SMALL:  # whiten the sums
            chosen = _add_jitter(chosen, COARSE)
        sums = chosen.add_up(blocks, chosen.precision, where)
    return FeatureSums(caller, chosen, spec.fit_intercept, *sums, shape).check_range()


def sum_again(first: FeatureSums, blocks: Blocks, where: passes.Executor) -> FeatureSums:
    """Return sums of another pass, in float64 and with the features of each row whitened."""
    chosen = _add_jitter(first.chosen, None)
    moments, _, rows = chosen.add_up(blocks, "float64", where)
    return replace(first, chosen=chosen, sums=moments, rows=rows)


def _add_jitter(chosen: Choices, jitter: float | None) -> Choices:
    return replace(chosen, choice=replace(chosen.choice, map=chosen.map.with_jitter(jitter)))


def triangle_of(block: Block, chosen: Choices, centred: bool) -> Triangle:
    """Return the rows √w [1, φ(x), y] of a block; sums of blocks are reduced to a triangle."""
    y, w = to_numpy(block.y).astype(np.float64), None if block.w is None else to_numpy(block.w)
    return Triangle.of(to_numpy(chosen.precision_map.features(block.X)), y, w, centred)


def solve_features(
    spec: RidgeSpec,
    chosen: Choices,
    blocks: Blocks,
    where: passes.Executor = passes.LOCAL,
    precision: Precision | None = None,
) -> tuple[FeatureSums, Solution]:
    """Return sums and solution; both are computed again in float64 if float32 limits alpha."""
    sums, solution = sum_features(spec, chosen, blocks, where, precision).solve(spec, blocks, where)
    if solution.outcome is Outcome.FLOAT32_LIMITED and spec.features.precision == "auto":
        return sum_again(sums, blocks, where).solve(spec, blocks, where)
    return sums, solution


# --- Too many features for a Gram matrix: iterative, one pass per step ----------------------------

NO_MOMENTS = f"a fit with more than {WIDE:,} features keeps no moments"  # Reason in messages


@dataclass(frozen=True, eq=False)
class WideSums(Representation):
    """Rows with too many features for a Gram matrix: sums over rows of a first pass."""

    chosen: Choices
    sample: RowSample  # For the preconditioner, leave-one-out errors and the certificate
    # Number of rows read, and number of rows of positive weight
    rows: int
    n_positive: int
    weight: float  # W
    power: Float[Array, " t"]  # Σ w (y − ȳ)², or Σ w y² without an intercept
    target_shape: tuple[int, ...]

    certified_rows = 2048  # 500 MB with 32,768 features

    lacks: ClassVar[Mapping[str, str]] = {
        **representation.FEATURES_LACK,
        "moments_": f"{NO_MOMENTS}; its sums are fit_.representation.",
        "merge": f"{NO_MOMENTS} that add.",
        **dict.fromkeys(
            ("partial_fit", "solve_again"),
            f"{NO_MOMENTS} for further rows or other penalties. Call fit with all rows, or fit the "
            "first rows with partial_fit.",
        ),
    }

    count = property(attrgetter("n_positive"))

    @property
    def target_variance(self) -> float:
        return float(np.mean(self.power)) / self.weight

    def left_out(self, solution: Solution) -> HeldOutRows | None:
        slack = solution.slack
        if slack is None:
            return None
        rows = self.sample.lowest(len(slack))
        values, blocks = self.values(solution), Blocks.from_arrays(rows.X)
        predicted = [values(block.X) for block in blocks.with_rows(self.block_rows)]
        errors = left_out_errors(rows.y - np.concatenate(predicted), slack)
        return HeldOutRows(rows.X, rows.y - errors, errors, rows.w, "leave one out")


def is_wide(spec: RidgeSpec, blocks: Blocks) -> bool:
    """Whether there are too many features for a Gram matrix, and more rows than are kept."""
    # alpha = 0 and "evidence" need the Gram matrix; landmarks need a matrix of the same size
    features = spec.features
    if features.width <= WIDE or spec.given_alpha == 0 or spec.alpha == "evidence":
        return False
    if isinstance(features.method, Nystrom | FourierGrid):
        return False
    return blocks.n_rows is None or blocks.n_rows > cached_rows(blocks.n_columns)


def _round_rows(X: Array, features: Callable[[Array], Array]) -> Array:
    return features(X.astype(np.float32) if isinstance(X, np.ndarray) else X)


def features_of_passes(phi: PrecisionMap, X: Array) -> Callable[[Array], Array]:
    """Return φ for passes, in float32 (a third of the time) if features of 64 rows agree."""
    if phi.precision == "float64" or not isinstance(X, np.ndarray) or X.dtype != np.float64:
        return phi.features
    probe = X[:: max(1, len(X) // 64)]
    with np.errstate(over="ignore"):
        rounded = probe.astype(np.float32)
    if not np.isfinite(rounded).all():
        return phi.features
    right = phi.features(probe)
    if not isinstance(right, np.ndarray):
        return phi.features
    change = np.linalg.norm(phi.features(rounded) - right)
    accurate = change <= 4e-6 * np.linalg.norm(right)
    return partial(_round_rows, features=phi.features) if accurate else phi.features


def wide_sums(spec: RidgeSpec, blocks: Blocks, where: passes.Executor) -> tuple[WideSums, Solution]:
    """Return sums and solution: one pass for sums, then twenty to sixty passes of an iteration."""
    alpha, centred = spec.given_alpha, spec.fit_intercept
    options, method = spec.features, spec.features.method
    if isinstance(method, Auto) and method.candidates is None:  # Landmarks need a D × D matrix
        kinds = tuple(m for m in contenders(blocks.n_columns) if not isinstance(m, Nystrom))
        options = replace(options, method=replace(method, candidates=kinds))
    chosen, sample = choose(options, blocks, alpha=alpha, where=where)
    double = options.precision == "float64"
    chosen = replace(chosen, precision="float64" if double else "float32")
    sample = passes.draw_rows(blocks, chosen.seed, where=where) if sample is None else sample
    blocks = blocks.with_rows(chosen.block_rows)
    shape = require_targets(options.caller, blocks.target_shape)
    require_weight(options.caller, float(sample.w.sum()))
    phi = chosen.precision_map
    D, origin = phi.n_features, np.average(sample.y, axis=0, weights=sample.w)
    features = features_of_passes(phi, sample.X)
    part = partial(passes.first_sums, features, D, origin, chosen.seed, iterative.PROBES)
    n_weighted, sums, squares, totals = where.sum(passes.BlockSum(part), blocks)
    W, t = float(totals[0]), len(origin)
    mean = sums[0] / W if centred else np.zeros(D)
    target = totals[1 : 1 + t] / W + origin if centred else np.zeros(t)
    shift = target - origin

    def multiply(V: Array, precision: str) -> Float[Array, "D c"]:
        double = "float64" in (precision, phi.precision)
        pass_of = partial(where.sum, blocks=blocks)
        return passes.gram_products(pass_of, features, V, mean, "float64" if double else "float32")

    left = totals[1 : 1 + t] - W * shift
    cross = sums[1 : 1 + t].T - np.outer(sums[0], shift) - np.outer(mean, left)
    power = np.maximum(squares - shift * (totals[1 : 1 + t] + left), 0.0)
    draws = sums[1 + t :].T - np.outer(mean, totals[1 + t :])
    # Rows from which the preconditioner is factored
    rows = sample.lowest(iterative.rows_to_factor(n_weighted, D, len(sample)))
    Z = np.empty((len(rows), D), np.dtype(phi.precision))  # Centred, in the precision of φ
    for span in slices(len(rows), 256):
        Z[span] = to_numpy(phi.features(rows.X[span])).astype(np.float64, copy=False) - mean
    piece = iterative.SampleRows(Z, rows.y - target, rows.w, W)
    problem = iterative.WideProblem(multiply, cross, power, W, n_weighted, centred, draws, piece)
    sums = WideSums(chosen, sample, count_rows(blocks), n_weighted, W, power, shape)
    penalty = spec.alpha if isinstance(spec.alpha, str) else as_alphas(spec.alpha, t)
    return sums, iterative.solve_wide(problem, penalty, spec.per_target, (mean, target))
