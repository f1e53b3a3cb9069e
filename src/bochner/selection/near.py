"""Lengthscales tuned, and kernels judged, among rows as near to one another as all rows are.

Of a sample no two rows are near, and columns that matter among near rows look as slow as others: a
place in a town says nothing to one who sees one house in a hundred. So lengthscales are tuned by
the evidence of blocks of near rows, one beside the other (a composite likelihood: Varin, Reid and
Firth (2011), section 2), and kernels are judged by leave-one-out errors of rows in the midst of
their neighbours. Rows at the border of a block, which have half of their neighbours, are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular

from bochner._core.arrays import to_numpy
from bochner._core.blas import cholesky
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.kernels.kernel import Kernel
from bochner.kernels.stationary import Exponential, Laplace, Radial
from bochner.kernels.stationary_families import Matern
from bochner.selection.descent import Hyperparameters, Objective, descend
from bochner.selection.judges import TunedKernel
from bochner.selection.lengthscales import EVIDENCE, OnProcess, ProcessRows
from bochner.selection.record import Tuning
from bochner.selection.rows import median_distance, near_rows, rounded
from bochner.solvers.ridge.criteria import Criterion

#: Blocks that lengthscales are tuned in, and rows of each: more rows see farther, in cubic time.
BLOCKS, BLOCK_ROWS = 32, 128

#: Evaluations of a descent, and the penalty that it starts from.
STEPS, START = 14, 0.05

#: Lengthscales that it starts from, at most, in deviations of the columns: beyond these a column
#: has no slope.
LONGEST = 4.0

#: Of rough and of smoother functions.
FAMILIES = Exponential(), Matern(1.5)

#: Rows whose errors are told together, places of so many, and rows around them that predict them.
CORE, PLACES, AROUND = 32, 32, 384


# --- errors amid near rows -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NearRows:
    """Places, the rows in the midst of each first.

    Attributes
    ----------
    X : (p, m, d)
        As kernels see them.
    y : (p, m, t)
        About their means where an intercept is fitted, in units of their deviations.
    w : (p, m)
    """

    X: Float[Array, "p m d"]
    y: Float[Array, "p m t"]
    w: Float[Array, "p m"]

    @staticmethod
    def of(
        kernel: Kernel, rows: tuple[Array, Array, Array], seed: int, centred: bool
    ) -> "NearRows":
        """Take the places of rows X, y and w that this kernel finds near."""
        X, y, w = rows
        mean = w @ y / w.sum()
        spread = np.sqrt(w @ (y - mean) ** 2 / w.sum())
        y = (y - centred * mean) / np.where(spread > 0, spread, 1.0)
        some = near_rows(kernel, X, PLACES, AROUND, seed)
        return NearRows(X[some], y[some], w[some])

    def squared_errors(
        self, kernel: Kernel, alpha: float | Float[Array, " t"]
    ) -> Float[Array, " m"]:
        """Return weighted squares of what rows err without themselves, in the mean of targets.

        Their mean is the error relative to that of the mean; infinite where rounding leaves the
        matrix of a place not positive.
        """
        core = min(CORE, -(-self.X.shape[1] // 4))
        alphas = np.broadcast_to(np.asarray(alpha, np.float64), self.y.shape[2])
        errors = [self._errors(kernel, place, alphas, core) for place in range(len(self.X))]
        w = self.w[:, :core].ravel()
        return w / w.mean() * (np.concatenate(errors) ** 2).mean(axis=1)

    def _errors(
        self, kernel: Kernel, place: int, alphas: Float[Array, " t"], core: int
    ) -> Float[Array, "c t"]:
        K, errors = to_numpy(kernel(self.X[place])), np.empty((core, len(alphas)))
        for alpha in np.unique(alphas):
            own = np.flatnonzero(alphas == alpha)
            A = K + np.diag(alpha / self.w[place])
            errors[:, own] = _left_out(A, self.y[place][:, own], core)
        return errors


def _left_out(A: Float[Array, "m m"], y: Float[Array, "m t"], core: int) -> Float[Array, "c t"]:
    """Return errors of the first rows without themselves: (A⁻¹y)_i / (A⁻¹)_ii."""
    try:
        L = cholesky(A, lower=True, check_finite=False)
    except LinAlgError:
        return np.full((core, y.shape[1]), np.inf)
    half = solve_triangular(L, np.hstack([y, np.eye(len(y), core)]), lower=True, check_finite=False)
    units = half[:, y.shape[1] :]
    return units.T @ half[:, : y.shape[1]] / (units**2).sum(axis=0)[:, None]


# --- lengthscales of near rows -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OnBlocks(Objective):
    """The mean evidence a row of blocks of rows, as a function of log lengthscales and penalty.

    Each block has its own mean and amplitude; ``whole`` knows bounds and what is likely.
    """

    whole: OnProcess
    blocks: tuple[ProcessRows, ...]
    criterion: Criterion = EVIDENCE

    def __call__(self, at: Hyperparameters) -> tuple[float, Float[Array, " q"]]:
        alpha = float(np.exp(at.share) * self.whole.rows.w.sum())
        value, slope = self.whole.known(at)
        slope, total = np.append(slope, 0.0), sum(block.count for block in self.blocks)
        for block in self.blocks:
            found, along = replace(self.whole, rows=block).at_penalty(at, alpha)
            value += block.count / total * found
            slope = slope + block.count / total * along
        return value, slope

    def kernel(self, at: Hyperparameters) -> Any:
        return self.whole.kernel(at)

    def bounds(self, at: Hyperparameters) -> list[tuple[float, float]]:
        return self.whole.bounds(at)


def tuned_among_near_rows(
    found: Tuning,
    rows: tuple[Array, Array, Array],
    sample: RowSample,
    seed: int,
    centred: bool,
) -> Iterator[TunedKernel]:
    """Give kernels whose lengthscales have the largest evidence in blocks of near rows.

    Of rough functions, of smoother ones, and of a sum over columns in the place of a distance. They
    start from the best kernel of a search that has one lengthscale a column; where there is none,
    none is given. 32 n kernel values, and 14 times 32 · 128³ operations a family.
    """
    start = _start(found)
    if start is None:
        return
    X, y, w = rows
    some = near_rows(start, X, BLOCKS, BLOCK_ROWS, seed)
    blocks = tuple(_blocks(X[some], y[some], w[some], centred))
    whole = ProcessRows(sample.X, sample.y, sample.w, centred)
    if not blocks:
        return
    for family in FAMILIES:
        yield (end := _tuned(family, start, whole, blocks))
        if isinstance(family, Exponential):
            yield _by_columns(end, sample, seed)


def _start(found: Tuning) -> Any:
    """Return the best kernel of the Euclidean distance with a lengthscale for each column."""
    able = [
        (c.error, i, c.kernel)
        for i, c in enumerate(found.compared)
        if isinstance(c.kernel, Radial) and isinstance(c.kernel.lengthscale, tuple) and c.tuned > 1
    ]
    return min(able)[2] if able else None


def _blocks(X: Array, y: Array, w: Array, centred: bool) -> Iterator[ProcessRows]:
    """Give blocks in which targets vary, of those that do."""
    for rows in zip(X, y, w, strict=True):
        varies = np.ptp(rows[1], axis=0) > 0
        if varies.any():
            yield ProcessRows(rows[0] - rows[0].mean(axis=0), rows[1][:, varies], rows[2], centred)


def _tuned(
    family: Any, start: Any, whole: ProcessRows, blocks: tuple[ProcessRows, ...]
) -> TunedKernel:
    d = whole.X.shape[1]
    scales = np.minimum(start.lengthscale, LONGEST * whole.spread)
    on = OnProcess(family.replace(lengthscale=tuple(scales.tolist())), whole, d, EVIDENCE)
    at = Hyperparameters(np.zeros(d), float(np.log(START / whole.w.sum())))
    end = descend(OnBlocks(on, blocks), at, STEPS, lambda _: None)
    kernel = end.kernel.replace(lengthscale=rounded(end.kernel.lengthscale))
    alpha = float(np.exp(end.at.share) * whole.w.sum())
    name = f"{type(family).__name__}, one a column, among near rows"
    return TunedKernel(name, kernel, alpha, d)


def _by_columns(found: TunedKernel, sample: RowSample, seed: int) -> TunedKernel:
    """Take the distance as a sum over columns, as long in the median."""
    kernel: Any = found.kernel
    scales = np.asarray(kernel.lengthscale)
    one, two = (median_distance(sample.X, sample.w, (scales,), seed, order) for order in (1, 2))
    laplace = Laplace(rounded(tuple((scales * one / two).tolist())))
    return replace(found, name=f"Laplace, scales as {found.name}", kernel=laplace)
