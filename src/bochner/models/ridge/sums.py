"""Sums over all rows for ridge regression: in which precision, and what is whitened when."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import warn_user
from bochner._core.shapes import Array, Float
from bochner._core.sizes import FEW, LOO_ROWS, LOOK_ROWS, long_sweep, sums_first
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import Block, required_targets
from bochner.errors import IncompatibleModels, InvalidInput
from bochner.features.nystrom.landmarks import Given
from bochner.features.nystrom.nystrom import COARSE, Nystrom, NystromMap
from bochner.selection.chosen import Chosen, FeatureMoments, FeatureSpec, feature_precision
from bochner.solvers.ridge.eigen import FLOAT32_FLOOR, Eigen, Triangle, decompose, decompose_rows
from bochner.solvers.ridge.leave_one_out import limited
from bochner.solvers.ridge.path import Alpha, as_alpha, kfold_errors, least_alpha
from bochner.solvers.ridge.solution import Outcome
from bochner.sums.executor import Executor, Together
from bochner.sums.moments import Moments, MomentsOf, Precision
from bochner.sums.rows import (
    Folds,
    FoldsOf,
    SampleOf,
    added,
    total_of,
)

#: A penalty this many times above what float32 resolves is taken to stay above it.
SURE = 30.0

#: Least sum of weights, and least sum of squares of a target about its mean, that float64 holds
#: with digits to spare for errors far below it.
LEAST_WEIGHT, LEAST_POWER = 1e-90, 1e-300


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
    folds : Folds
        Moments of each fold, where folds choose the penalty.
    target_shape : tuple of int
        Of one row of y: () or (t,).
    """

    who: str
    chosen: Chosen
    fit_intercept: bool
    moments: Moments
    sample: RowSample
    rows: int
    folds: Folds = ()
    target_shape: tuple[int, ...] = ()

    @property
    def seen(self) -> Moments:
        """Moments about the means, or about zero where there is no intercept."""
        return self.moments if self.fit_intercept else self.moments.about_zero()

    @property
    def means(self) -> tuple[Float[Array, " D"], Float[Array, " t"]]:
        """Means of features and targets that the solution is taken about."""
        moments = self.seen
        return moments.feature_mean, moments.target_mean

    @property
    def keeps_all(self) -> bool:
        """Whether the sample is all rows."""
        return len(self.sample) == self.moments.rows

    @property
    def judged(self) -> RowSample:
        """Rows that the law of a process is adapted to."""
        return self.sample if self.keeps_all else self.sample.lowest(LOO_ROWS)

    def pieces(self, sample: RowSample) -> Iterator[RowSample]:
        """Give the rows of a sample a block at a time."""
        size = self.chosen.block_rows
        for start in range(0, len(sample), size):
            yield sample.take(np.arange(start, min(start + size, len(sample))))

    def centred(self, sample: RowSample) -> Iterator[tuple[Array, Array, Array]]:
        """Give the features and targets of rows about the means, a block at a time."""
        moments = self.seen
        for rows in self.pieces(sample):
            Z = self.chosen.features(rows.X)
            Z = Z - moments.feature_mean.astype(Z.dtype)
            if moments.precision == "float32":
                Z = Z.astype(np.float32, copy=False)
            yield Z, rows.y - moments.target_mean, rows.w

    def eigen(self) -> Eigen:
        """Decompose the rows themselves while they are few and at hand, else their moments."""
        few = self.moments.rows * self.moments.n_features**2 <= FEW
        if few and self.keeps_all and self.chosen.precision == "float64":
            Z, y, w = map(np.concatenate, zip(*self.centred(self.sample), strict=True))
            return decompose_rows(Z, y, w, self.fit_intercept)
        return decompose(self.seen, self.fit_intercept)

    def kfold(self) -> Callable[[Array], Array]:
        """Return what gives the errors of folds for penalties."""
        self.require_folds()
        folds = [fold for fold in self.folds if fold is not None]
        return lambda alphas: kfold_errors(self.moments, folds, alphas, self.fit_intercept)

    def require_folds(self) -> None:
        """Refuse rows that were added up without their folds."""
        if sum(fold.rows for fold in self.folds if fold is not None) != self.moments.rows:
            raise IncompatibleModels(
                f'{self.who}: alpha="kfold" needs the moments of each fold, of all rows; '
                'some were fitted without. Fit anew, or set alpha="loo".'
            )

    def checked(self) -> "Summed":
        """Refuse weights and targets so small that their sums and squares vanish in float64."""
        weight, power = self.moments.weight, self.moments.power
        if weight < LEAST_WEIGHT:
            raise InvalidInput(
                f"{self.who}: sample weights must have a sum above {LEAST_WEIGHT:g}; got "
                f"{weight:.3g}. Multiply all weights by one number."
            )
        vanish = (np.ptp(self.sample.y, axis=0) > 0) & (power < LEAST_POWER)
        if np.any(vanish):
            largest = np.abs(self.sample.y[:, vanish]).max()
            raise InvalidInput(
                f"{self.who}: y must have deviations whose squares float64 holds, above "
                f"1e-150; got values of {largest:.3g} at most. Multiply y by a power of ten."
            )
        return self

    def merge(self, other: "Summed") -> "Summed":
        """Return the sums of the rows of both, in float64."""
        folds = added(self.folds, other.folds) if self.folds and other.folds else ()
        return replace(
            self,
            moments=self.moments + other.moments,
            sample=self.sample.merge(other.sample),
            rows=self.rows + other.rows,
            folds=folds,
        )

    def with_rows_of(self, blocks: Blocks, by_folds: bool, where: Executor) -> "Summed":
        """Return the sums of the rows before and of these, in float64."""
        require_alike(self.who, blocks, self.target_shape)
        if by_folds:
            self.require_folds()
        keeper = SampleOf(self.chosen.seed, self.sample, self.rows)
        more = add_up(self, blocks, "float64", by_folds, where, keeper, self.rows)
        folds = added(self.folds, more.folds) if by_folds else ()
        moments = total_of(folds) if by_folds else self.moments + more.moments
        return replace(more, moments=moments, folds=folds, rows=self.rows + more.rows).checked()


def target_shape(who: str, blocks: Blocks) -> tuple[int, ...]:
    """Return the shape of one row of y: () or (t,)."""
    return tuple(required_targets(who, next(iter(blocks)).y).shape[1:])


def require_alike(who: str, blocks: Blocks, before: tuple[int, ...]) -> None:
    """Refuse other targets than those before."""
    shape = target_shape(who, blocks)
    if shape != before:
        raise InvalidInput(
            f"{who}: y must have the same targets in every call; got rows of "
            f"shape {shape} after {before}."
        )


def add_up(
    empty: Summed,
    blocks: Blocks,
    precision: Precision,
    by_folds: bool,
    where: Executor,
    keeper: SampleOf | None = None,
    start: int = 0,
) -> Summed:
    """Return the sums of all blocks; with a keeper, also their sample."""
    chosen, how = empty.chosen, FeatureMoments.of(empty.chosen)
    blocks = blocks.with_rows(chosen.block_rows)
    sums = (
        FoldsOf(chosen.features, precision, chosen.seed, start)
        if by_folds
        else MomentsOf(how.features, precision)
    )
    total, *kept = where.sum(Together((sums, keeper) if keeper else (sums,)), blocks)
    folds = FoldsOf.moments(total) if by_folds else ()
    moments = total_of(folds) if by_folds else how.finished(MomentsOf.moments(total))
    sample = kept[0].sample if kept else empty.sample
    return replace(empty, moments=moments, folds=folds, sample=sample, rows=count_rows(blocks))


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
        Whether float64 may be decided on before all rows were seen, and sums be whitened last.
    """

    who: str
    alpha: Alpha
    fit_intercept: bool
    precision: str
    forecasts: bool = True

    @property
    def least_norm(self) -> bool:
        """Whether there is no penalty."""
        return least_alpha(self.alpha) == 0

    @property
    def by_folds(self) -> bool:
        """Whether each fold has moments of its own."""
        return isinstance(self.alpha, str) and self.alpha == "kfold"

    def __call__(
        self, chosen: Chosen, blocks: Blocks, where: Executor, precision: Precision | None = None
    ) -> Summed:
        """Sum up all rows, in one pass where it serves; ``precision`` given is that of all."""
        shape, n = target_shape(self.who, blocks), blocks.n_rows
        asked = "float64" if self.least_norm and self.precision == "auto" else self.precision
        dtype = precision or feature_precision(asked, n, chosen.map)
        chosen = replace(chosen, precision=dtype)
        if self.forecasts and precision is None and asked == "auto" and self._sums_first(chosen, n):
            chosen = _with_jitter(chosen, COARSE)
        empty = _nothing(self, chosen, shape)
        keeper = SampleOf(chosen.seed)
        coarse = dtype == "float32" or _jitter(chosen) is not None
        asks = self._asks_float64(chosen)
        many = n is not None and long_sweep(n, chosen.n_features) and not self.by_folds
        if self.forecasts and self.precision == "auto" and coarse and asks is not False and many:
            if asks is None:
                found = self._unless_limited(empty, blocks, dtype, keeper, where)
                if found is not None:
                    return found.checked()
            dtype, empty = "float64", replace(empty, chosen=_with_jitter(chosen, None))
        return add_up(empty, blocks, dtype, self.by_folds, where, keeper).checked()

    def again(self, summed: Summed, blocks: Blocks, where: Executor) -> Summed:
        """Sum up all rows again, in float64, each whitened by itself."""
        finer = replace(summed, chosen=_with_jitter(summed.chosen, None))
        return add_up(finer, blocks, "float64", self.by_folds, where)

    def _sums_first(self, chosen: Chosen, n: int | None) -> bool:
        """Whether sums of kernel values are whitened in the place of rows.

        Maps of landmarks that are given stay as they are: of other rows they are to be the same.
        """
        phi, method = chosen.map, chosen.choice.method
        if not isinstance(phi, NystromMap) or chosen.precision != "float64":
            return False
        drawn = isinstance(method, Nystrom) and not isinstance(method.landmarks, Given)
        if not drawn or n is None or self.by_folds:
            return False
        return sums_first(n, phi.n_features) and not self._asks_float64(chosen)

    def _asks_float64(self, chosen: Chosen) -> bool | None:
        """Whether method="auto" has seen that float32 will not resolve the penalty; None: unsure.

        On a part of the rows and of the width it lies higher, with much noise by up to thirty
        times.
        """
        penalty = chosen.choice.penalty if self.alpha == "loo" else None
        if penalty is None or FLOAT32_FLOOR <= penalty < SURE * FLOAT32_FLOOR:
            return None
        return penalty < FLOAT32_FLOOR

    def _unless_limited(
        self,
        empty: Summed,
        blocks: Blocks,
        precision: Precision,
        keeper: SampleOf,
        where: Executor,
    ) -> Summed | None:
        """Sum up all rows; None if a quarter of them shows that float32 will limit the answer."""
        how, alpha, n = FeatureMoments.of(empty.chosen), least_alpha(self.alpha), count_rows(blocks)

        def stop(total: list[object]) -> bool:
            sums, kept = total
            first = how.finished(MomentsOf.so_far(sums))  # type: ignore[arg-type]
            part = replace(empty, moments=first, sample=kept.sample)  # type: ignore[attr-defined]
            rows = part.centred(part.sample.lowest(LOOK_ROWS))
            return limited(part.seen, n, alpha, rows)

        summands = Together((MomentsOf(how.features, precision), keeper))
        sized = blocks.with_rows(empty.chosen.block_rows)
        total = where.sum_unless(stop, summands, sized, -(-n // 4))
        if total is None:
            return None
        moments = how.finished(MomentsOf.moments(total[0]))
        return replace(empty, moments=moments, sample=total[1].sample, rows=n)


def _nothing(how: Pass, chosen: Chosen, shape: tuple[int, ...]) -> Summed:
    """Return sums that are still to be made."""
    none = np.zeros(0)
    zero = np.zeros((0, 0))
    moments = Moments(0, 0.0, none, none, zero, zero, none, "float64")
    sample = RowSample(none[:, None], none[:, None], none, none)
    return Summed(how.who, chosen, how.fit_intercept, moments, sample, 0, (), shape)


def _jitter(chosen: Chosen) -> float | None:
    return chosen.map.jitter if isinstance(chosen.map, NystromMap) else None


def _with_jitter(chosen: Chosen, jitter: float | None) -> Chosen:
    if not isinstance(chosen.map, NystromMap) or chosen.map.jitter == jitter:
        return chosen
    return chosen.with_map(chosen.map.with_jitter(jitter))


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
WARNED = (Outcome.FLOAT32_LIMITED, Outcome.SINGULAR, Outcome.NOT_CONVERGED)


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

    @staticmethod
    def of(features: FeatureSpec, alpha: object, per_target: bool, centred: bool) -> "RidgeSpec":
        """Check what the user passed."""
        return RidgeSpec(features, as_alpha(alpha), per_target, centred)

    def share(self, blocks: Blocks) -> float | None:
        """Return a given penalty per row of weight one: what is open is judged at it."""
        alpha = least_alpha(self.alpha)
        return self.features.share(blocks, None if isinstance(alpha, str) else alpha)

    @property
    def rows(self) -> Pass:
        """How rows are summed up."""
        return Pass(self.features.who, self.alpha, self.fit_intercept, self.features.precision)


def warned(fit: Any) -> Any:
    """Return the fit; warn of an outcome that asks for attention: its text is the remedy."""
    if fit.solution.outcome in WARNED:
        warn_user(str(fit.solution.outcome))
    return fit
