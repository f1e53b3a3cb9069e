"""Which fit serves rows where nothing is asked of features, and classes as targets of a fit."""

from collections.abc import Mapping
from typing import Any

from bochner._core.arrays import to_numpy
from bochner._core.sizes import MOST_CELLS
from bochner.data.blocks import Blocks
from bochner.data.schema import Inputs
from bochner.data.sources import Piece
from bochner.kernels.sequences import windows_of
from bochner.models.ridge.methods import DIRECT_ROWS, LocalKernel
from bochner.models.ridge.sums import RidgeSpec
from bochner.solvers.ridge.path import least_alpha
from bochner.sums.rows import indicators

#: Rows that are fitted at once where effort is low, at most, and rows of a leaf of more: fits of
#: leaves of 1024 rows to 8000 rows take an eighth of the time of one matrix.
QUICK_ROWS, QUICK_LEAF = 2048, 1024


def most_at_once(spec: RidgeSpec) -> int:
    """Return the number of rows up to which the kernel itself is fitted, to all rows at once."""
    return min(QUICK_ROWS, DIRECT_ROWS) if spec.features.is_quick else DIRECT_ROWS


def are_few(spec: RidgeSpec, blocks: Blocks) -> bool:
    """Whether the kernel itself is fitted, to all rows at once."""
    n, kernel = blocks.n_rows, spec.features.kernel
    few = n is not None and n * windows_of(kernel, blocks.n_columns) <= most_at_once(spec)
    return few and least_alpha(spec.alpha) != 0


def default_leaves(spec: RidgeSpec) -> LocalKernel:
    """Return the method of rows that are split into leaves, where none was asked for."""
    return LocalKernel(QUICK_LEAF if spec.features.is_quick else None)


def fit_in_leaves(spec: RidgeSpec, blocks: Blocks) -> bool:
    """Whether so many rows are kept, and split into leaves."""
    n = blocks.n_rows
    return n is not None and n * blocks.n_columns <= MOST_CELLS and least_alpha(spec.alpha) != 0


def as_signs(blocks: Blocks, count: int, unit: float) -> Blocks:
    """Return blocks whose codes have become ±1, (b, K) or (b, 1), of weights over a unit."""

    def signs(piece: Piece) -> Piece:
        w = None if piece.w is None else to_numpy(piece.w) / unit
        return piece._replace(y=indicators(to_numpy(piece.y), count), w=w)

    return blocks.changed(signs)


def largest_factor(weights: Any, inputs: Inputs) -> float:
    """Return the largest factor of a class, 1 where none is given.

    A weight above one stands for copies of a row, of which leave-one-out leaves one out; that of a
    class does not. In units of the largest, rows are left out whole, and what is best in proportion
    to the weights stays so.
    """
    if not isinstance(weights, Mapping):
        return 1.0
    return max(float(weights.get(label, 1.0)) for label in inputs.classes.tolist()) or 1.0
