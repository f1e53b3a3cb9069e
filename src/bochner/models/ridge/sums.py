"""Sums over all rows for ridge regression: in which precision, and what is whitened when."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import require_power, warn_user
from bochner._core.sizes import FEW, LOO_ROWS, long_sweep, sums_first
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block, required_targets
from bochner.errors import InvalidInput
from bochner.features.nystrom.landmarks import Given
from bochner.features.nystrom.nystrom import COARSE, Nystrom, NystromMap
from bochner.selection.chosen import Chosen, FeatureSpec, feature_precision, summand_of
from bochner.solvers.ridge.eigen import FLOAT32_FLOOR, Eigen, Triangle, decompose, decompose_rows
from bochner.solvers.ridge.leave_one_out import Rows
from bochner.solvers.ridge.path import Alpha, least_alpha
from bochner.solvers.ridge.solution import Outcome
from bochner.sums.executor import Executor, Together
from bochner.sums.moments import Moments, Precision
from bochner.sums.rows import SampleOf

#: Least sum of weights that float64 holds with digits to spare for errors far below it.
LEAST_WEIGHT = 1e-90


@dataclass(frozen=True, eq=False)
class Summed:
    """What a pass over the rows made, and what further rows are added to.

    Attributes
    ----------
    who : str
        The class of the learner, as messages name it.
    chosen : Chosen
    fit_intercept : bool
    moments : Moments
    sample : RowSample
        For leave-one-out errors and the certificate.
    rows : int
        Rows that were read, those of zero weight too.
    target_shape : tuple of int
        Of one row of y: () or (t,).
    """

    who: str
    chosen: Chosen
    fit_intercept: bool
    moments: Moments
    sample: RowSample
    rows: int
    target_shape: tuple[int, ...] = ()

    @property
    def seen(self) -> Moments:
        """Moments about the means, or about zero where there is no intercept."""
        return self.moments if self.fit_intercept else self.moments.about_zero()

    @property
    def keeps_all(self) -> bool:
        """Whether the sample is all rows."""
        return len(self.sample.w) == self.moments.rows

    @property
    def judged(self) -> RowSample:
        """Rows that the law of a process is adapted to."""
        return self.sample if self.keeps_all else self.sample.lowest(LOO_ROWS)

    def pieces(self, sample: RowSample) -> Iterator[RowSample]:
        """Give the rows of a sample a block at a time."""
        size = self.chosen.block_rows
        for start in range(0, len(sample), size):
            yield sample.take(np.arange(start, min(start + size, len(sample))))

    def centred(self, sample: RowSample) -> Iterator[Rows]:
        """Give the features and targets of rows about the means, a block at a time."""
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

    def checked(self) -> "Summed":
        """Refuse weights and targets so small that their sums and squares vanish in float64."""
        weight, power = self.moments.weight, self.moments.power
        if weight < LEAST_WEIGHT:
            raise InvalidInput(
                f"{self.who}: sample weights must have a sum above {LEAST_WEIGHT:g}; got "
                f"{weight:.3g}. Multiply all weights by one number."
            )
        require_power(self.who, self.sample.y, power)
        return self

    def merge(self, other: "Summed") -> "Summed":
        """Return the sums of the rows of both, in float64."""
        return replace(
            self,
            moments=self.moments + other.moments,
            sample=self.sample.merge(other.sample),
            rows=self.rows + other.rows,
        )

    def with_rows_of(self, blocks: Blocks, where: Executor) -> "Summed":
        """Return the sums of the rows before and of these, in float64."""
        require_alike(self.who, blocks, self.target_shape)
        seed = self.chosen.seed
        more = add_up(self.chosen, blocks, "float64", where, SampleOf(seed, self.rows))
        parts = Summed(self.who, self.chosen, self.fit_intercept, *more, self.target_shape)
        return self.merge(parts).checked()


def require_alike(who: str, blocks: Blocks, before: tuple[int, ...]) -> None:
    """Refuse other targets than those before."""
    shape = required_targets(who, blocks.target_shape)
    if shape != before:
        raise InvalidInput(
            f"{who}: y must have the same targets in every call; got rows of "
            f"shape {shape} after {before}."
        )


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


@dataclass(frozen=True, eq=False)
class Pass:
    """How the rows of a fit are summed up.

    Attributes
    ----------
    who : str
    alpha : Alpha
        The penalty, or how it is chosen.
    fit_intercept : bool
    precision : {"auto", "float32", "float64"}
    forecasts : bool
        Whether float64 may be decided on before rows are seen, and sums be whitened last.
    """

    who: str
    alpha: Alpha
    fit_intercept: bool
    precision: str
    forecasts: bool = True

    def __call__(
        self, chosen: Chosen, blocks: Blocks, where: Executor, precision: Precision | None = None
    ) -> Summed:
        """Sum up all rows, in one pass where it serves; ``precision`` given is that of all."""
        shape = required_targets(self.who, blocks.target_shape)
        asked, n, phi = self.precision, blocks.n_rows, chosen.choice.map
        if asked == "auto" and least_alpha(self.alpha) == 0:
            asked = "float64"
        dtype = precision or feature_precision(asked, n, phi)
        chosen = replace(chosen, precision=dtype)
        coarse = dtype == "float32" or isinstance(phi, NystromMap)
        if self.forecasts and self.precision == "auto" and coarse:
            if precision is None and asked == "auto" and self._sums_first(chosen, n):
                chosen = _with_jitter(chosen, COARSE)
            if self._needs_float64(chosen, n):
                dtype, chosen = "float64", _with_jitter(chosen, None)
        sums = add_up(chosen, blocks, dtype, where, SampleOf(chosen.seed))
        return Summed(self.who, chosen, self.fit_intercept, *sums, shape).checked()

    def again(self, summed: Summed, blocks: Blocks, where: Executor) -> Summed:
        """Sum up all rows again, in float64, each whitened by itself."""
        chosen = _with_jitter(summed.chosen, None)
        moments, _, rows = add_up(chosen, blocks, "float64", where)
        return replace(summed, chosen=chosen, moments=moments, rows=rows)

    def _sums_first(self, chosen: Chosen, n: int | None) -> bool:
        """Whether sums of kernel values are whitened in the place of rows.

        Maps of landmarks that are given stay as they are: of other rows they are to be the same.
        """
        phi, method = chosen.map, chosen.choice.method
        if not isinstance(phi, NystromMap) or chosen.precision != "float64":
            return False
        drawn = isinstance(method, Nystrom) and not isinstance(method.landmarks, Given)
        if not drawn or n is None:
            return False
        return sums_first(n, phi.n_features) and not self._asks_float64(chosen)

    def _asks_float64(self, chosen: Chosen) -> bool:
        """Whether the choice of the method found a penalty that float32 does not resolve."""
        penalty = chosen.choice.penalty if self.alpha == "loo" else None
        return penalty is not None and penalty < FLOAT32_FLOOR

    def _needs_float64(self, chosen: Chosen, n: int | None) -> bool:
        """Whether all rows are summed in float64 at once."""
        phi = chosen.map
        fine = chosen.precision == "float64" and isinstance(phi, NystromMap) and phi.jitter is None
        if fine or n is None or not long_sweep(n, phi.n_features):
            return False
        return self._asks_float64(chosen)


def _with_jitter(chosen: Chosen, jitter: float | None) -> Chosen:
    phi = chosen.map
    if not isinstance(phi, NystromMap) or phi.jitter == jitter:
        return chosen
    return chosen.with_map(phi.with_jitter(jitter))


@dataclass(frozen=True, eq=False)
class TriangleOf:
    """The summand of a decomposition of all rows by QR: a fit without penalty."""

    chosen: Chosen
    centred: bool

    def zero(self) -> Triangle:
        """Return the triangle of no rows."""
        return Triangle(self.centred)

    def add(self, total: Triangle, block: Block) -> Triangle:
        """Add the features of a block."""
        w = None if block.w is None else to_numpy(block.w)
        y = to_numpy(block.y).astype(np.float64)
        total.add(to_numpy(self.chosen.features(block.X)), y, w)
        return total

    def merge(self, a: Triangle, b: Triangle) -> Triangle:
        """Return the triangle of the rows of both."""
        return a.merge(b)


def triangle(summed: Summed, blocks: Blocks | None, where: Executor) -> Eigen:
    """Decompose all rows by QR, from their blocks or from a sample that is all of them."""
    summand = TriangleOf(summed.chosen, summed.fit_intercept)
    if blocks is not None:
        return where.sum(summand, blocks.with_rows(summed.chosen.block_rows)).eigen()
    total = summand.zero()
    for rows in summed.pieces(summed.sample):
        total = summand.add(total, Block(rows.X, rows.y, rows.w, 0))
    return total.eigen()


def merged(parts: list[Summed]) -> Summed:
    """Return the sums of all parts."""
    return reduce(Summed.merge, parts)


#: Outcomes that a user is warned of.
WARNED = (
    Outcome.FLOAT32_LIMITED,
    Outcome.SINGULAR,
    Outcome.NOT_CONVERGED,
    Outcome.PASSES_ENDED,
)


@dataclass(frozen=True)
class RidgeSpec:
    """What a user asks of a ridge regression, checked.

    Attributes
    ----------
    features : FeatureSpec
    alpha : Alpha
        The penalty, one for each target, or how it is chosen.
    per_target : bool
    fit_intercept : bool
    """

    features: FeatureSpec
    alpha: Alpha
    per_target: bool
    fit_intercept: bool

    @property
    def rows(self) -> Pass:
        """How rows are summed up."""
        return Pass(self.features.who, self.alpha, self.fit_intercept, self.features.precision)


def warned(fit: Any) -> Any:
    """Return the fit; warn of an outcome that asks for attention: its text is the remedy."""
    if fit.solution.outcome in WARNED:
        warn_user(str(fit.solution.outcome))
    return fit
