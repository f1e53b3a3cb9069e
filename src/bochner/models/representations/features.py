"""Rows as sums of their features: moments in one pass, in float32 or float64."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import require_power
from bochner._core.sizes import FEW, sums_first
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block, required_targets
from bochner.errors import InvalidInput
from bochner.features.nystrom.nystrom import COARSE, Given, Nystrom, NystromMap
from bochner.models._rows import no_landmarks
from bochner.models.error_law import LeftOutRows
from bochner.models.representations.representation import (
    KERNEL_ONLY,
    Representation,
    RidgeSpec,
    require_alike,
)
from bochner.selection.chosen import Chosen, feature_precision, summand_of
from bochner.solvers.ridge.eigen import (
    Eigen,
    Triangle,
    decompose,
    decompose_rows,
    floor,
)
from bochner.solvers.ridge.leave_one_out import Rows, left_out_rows
from bochner.solvers.ridge.path import least_alpha, solve_ridge
from bochner.solvers.ridge.solution import Outcome, Solution
from bochner.sums.executor import LOCAL, Executor, Together
from bochner.sums.moments import Moments, Precision
from bochner.sums.rows import SampleOf
from bochner.sums.tree import SumOf

#: Least sum of weights that float64 holds with digits to spare for errors far below it.
LEAST_WEIGHT = 1e-90


@dataclass(frozen=True, eq=False)
class FeatureSums(Representation):
    """Moments of the features of all rows, to which further rows are added."""

    who: str  # The class of the learner, as messages name it
    chosen: Chosen
    fit_intercept: bool
    moments: Moments
    sample: RowSample  # For leave-one-out errors and the certificate
    rows: int
    target_shape: tuple[int, ...] = ()

    lacks: ClassVar[Mapping[str, str]] = {"dual_coef_": KERNEL_ONLY, "X_fit_": KERNEL_ONLY}

    @property
    def count(self) -> int:
        return self.moments.rows

    @property
    def target_variance(self) -> float:
        return float(np.mean(self.moments.power)) / self.moments.weight

    @property
    def seen(self) -> Moments:
        """Moments about the means, or about zero where there is no intercept."""
        return self.moments if self.fit_intercept else self.moments.about_zero()

    @property
    def keeps_all(self) -> bool:
        """Whether the sample is all rows."""
        return len(self.sample.w) == self.moments.rows

    def pieces(self, sample: RowSample) -> Iterator[RowSample]:
        """Yield the rows of a sample block by block."""
        size = self.chosen.block_rows
        for start in range(0, len(sample), size):
            yield sample.take(np.arange(start, min(start + size, len(sample))))

    def centred(self, sample: RowSample) -> Iterator[Rows]:
        """Yield centred features and targets of rows, block by block."""
        moments = self.seen
        for rows in self.pieces(sample):
            yield self._about_means(rows, moments)

    def _about_means(self, rows: RowSample, moments: Moments) -> Rows:
        Z = self.chosen.features(rows.X)
        Z = Z - moments.feature_mean.astype(Z.dtype)
        if moments.precision == "float32":
            Z = Z.astype(np.float32, copy=False)
        return Z, rows.y - moments.target_mean, rows.w

    def decomposed(self) -> tuple[Eigen, Rows | None]:
        """Decompose the rows themselves while they are few and at hand, else their moments.

        Also return those rows, about the means.
        """
        few = self.moments.rows * len(self.moments.gram) ** 2 <= FEW
        if few and self.keeps_all and self.chosen.precision == "float64":
            rows = self._about_means(self.sample, self.seen)
            return decompose_rows(*rows, centred=self.fit_intercept), rows
        return decompose(self.seen, self.fit_intercept), None

    def checked(self) -> "FeatureSums":
        """Refuse weights and targets so small that their sums and squares vanish in float64."""
        weight, power = self.moments.weight, self.moments.power
        if weight < LEAST_WEIGHT:
            raise InvalidInput(
                f"{self.who}: sample weights must have a sum above {LEAST_WEIGHT:g}; got "
                f"{weight:.3g}. Multiply all weights by one number."
            )
        require_power(self.who, self.sample.y, power)
        return self

    def solve(self, spec: RidgeSpec) -> tuple["FeatureSums", Solution]:
        sums = replace(self, fit_intercept=spec.fit_intercept)
        return sums, solve(spec, sums)

    def left_out(self, solution: Solution) -> LeftOutRows:
        eigen, centred_rows = self.decomposed()
        rows = list(self.centred(self.sample)) if centred_rows is None else [centred_rows]
        alpha = np.broadcast_to(np.asarray(solution.alpha, np.float64), eigen.power.shape)
        alpha = np.maximum(alpha, floor(eigen))
        parts = list(left_out_rows(eigen, rows, alpha))
        residuals, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
        left_out_errors, sample = np.where(np.isfinite(errors), errors, residuals), self.sample
        predicted = sample.y - left_out_errors
        predictions = LeftOutRows(sample.X, predicted, errors, sample.w, "leave one out")
        return predictions.take(no_landmarks(self.chosen.map, sample.X))

    def merge(self, other: "FeatureSums") -> "FeatureSums":
        return replace(
            self,
            moments=self.moments + other.moments,
            sample=self.sample.merge(other.sample),
            rows=self.rows + other.rows,
        )

    def with_rows_of(self, blocks: Blocks, where: Executor = LOCAL) -> "FeatureSums":
        require_alike(self.who, blocks, self.target_shape)
        seed = self.chosen.seed
        more = add_up(self.chosen, blocks, "float64", where, SampleOf(seed, self.rows))
        parts = FeatureSums(self.who, self.chosen, self.fit_intercept, *more, self.target_shape)
        return self.merge(parts).checked()


def add_up(
    chosen: Chosen,
    blocks: Blocks,
    precision: Precision,
    where: Executor,
    sample: SampleOf | None = None,
) -> tuple[Moments, Any, int]:
    """Return the moments of all rows, their sample if one is asked for, and their number."""
    sums: Any = summand_of(chosen, precision)
    summands = Together((sums,) if sample is None else (sums, sample))
    total, *kept = where.sum(summands, blocks.with_rows(chosen.block_rows))
    return sums.moments(total), (kept[0] if kept else None), count_rows(blocks)


def summed_features(
    spec: RidgeSpec,
    chosen: Chosen,
    blocks: Blocks,
    where: Executor,
    precision: Precision | None = None,
    whitens_sums: bool = True,
) -> FeatureSums:
    """Sum up all rows, in one pass.

    ``precision`` overrides the choice. ``whitens_sums``: sums of kernel values with landmarks may
    be whitened instead of rows, unless the user gives the landmarks.
    """
    who, asked = spec.features.who, spec.features.precision
    shape = required_targets(who, blocks.target_shape)
    if asked == "auto" and least_alpha(spec.alpha) == 0:
        asked = "float64"
    dtype = precision or feature_precision(asked, blocks.n_rows, chosen.map)
    chosen, method, n = replace(chosen, precision=dtype), chosen.choice.method, blocks.n_rows
    random = isinstance(method, Nystrom) and not isinstance(method.landmarks, Given)
    automatic = whitens_sums and precision is None and asked == "auto" and random
    if automatic and n is not None and sums_first(n, chosen.n_features):
        chosen = _with_jitter(chosen, COARSE)
    sums = add_up(chosen, blocks, dtype, where, SampleOf(chosen.seed))
    return FeatureSums(who, chosen, spec.fit_intercept, *sums, shape).checked()


def summed_again(summed: FeatureSums, blocks: Blocks, where: Executor) -> FeatureSums:
    """Sum up all rows again, in float64, each whitened by itself."""
    chosen = _with_jitter(summed.chosen, None)
    moments, _, rows = add_up(chosen, blocks, "float64", where)
    return replace(summed, chosen=chosen, moments=moments, rows=rows)


def _with_jitter(chosen: Chosen, jitter: float | None) -> Chosen:
    phi = chosen.map
    if not isinstance(phi, NystromMap) or phi.jitter == jitter:
        return chosen
    return chosen.with_map(replace(phi, jitter=jitter, roots={}))


def _triangle_of(block: Block, chosen: Chosen, centred: bool) -> Triangle:
    y, w = to_numpy(block.y).astype(np.float64), None if block.w is None else to_numpy(block.w)
    return Triangle.of(to_numpy(chosen.features(block.X)), y, w, centred)


def triangle(summed: FeatureSums, blocks: Blocks | None, where: Executor) -> Eigen:
    """Decompose all rows by QR, from their blocks or from a sample that is all of them."""
    summand = SumOf(partial(_triangle_of, chosen=summed.chosen, centred=summed.fit_intercept))
    if blocks is not None:
        return where.sum(summand, blocks.with_rows(summed.chosen.block_rows)).eigen()
    total: Any = None
    for rows in summed.pieces(summed.sample):
        total = summand.add(total, Block(rows.X, rows.y, rows.w, 0))
    return total.eigen()


def solve(
    spec: RidgeSpec, sums: FeatureSums, blocks: Blocks | None = None, where: Executor = LOCAL
) -> Solution:
    """Solve from sums; ``blocks`` are all rows, where they can be read again."""
    double = sums.chosen.precision == "float64"
    by_triangle = double and least_alpha(spec.alpha) == 0
    if by_triangle and (blocks is not None or sums.keeps_all):
        eigen, state = triangle(sums, blocks, where), None
    else:
        eigen, state = sums.decomposed()
    rows: Iterable[Rows] = sums.centred(sums.sample) if state is None else (state,)
    means = sums.seen.feature_mean, sums.seen.target_mean
    judged = rows if spec.alpha == "loo" else None
    solution = solve_ridge(eigen, means, spec.alpha, judged, per_target=spec.per_target)
    if not double and sums.moments.precision == "float64" and solution.outcome is Outcome.SOLVED:
        return replace(solution, outcome=Outcome.REFINED)
    return solution


def solved_features(
    spec: RidgeSpec,
    chosen: Chosen,
    blocks: Blocks,
    where: Executor = LOCAL,
    precision: Precision | None = None,
) -> tuple[FeatureSums, Solution]:
    """Sum up all rows and solve; again in float64 where float32 limits the solution.

    ``precision`` is the precision of all sums if rows cannot be read again.
    """
    sums = summed_features(spec, chosen, blocks, where, precision)
    solution = solve(spec, sums, blocks, where)
    if solution.outcome is Outcome.FLOAT32_LIMITED and spec.features.precision == "auto":
        sums = summed_again(sums, blocks, where)
        solution = solve(spec, sums, blocks, where)
    return sums, solution
