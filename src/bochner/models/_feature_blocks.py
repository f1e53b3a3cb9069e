"""Features of blocks, for learners that sweep them many times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import free_bytes
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows
from bochner.data.blocks import Blocks
from bochner.data.sources import Block
from bochner.features import FeatureMap
from bochner.features.nystrom.nystrom import Rounded
from bochner.sums.executor import LOCAL, Executor


class FeatureBlock(NamedTuple):
    """Consecutive rows: Z (b, D); y (b,) or (b, t) or None; w (b,) or None; first row's number.

    X (b, d) are the rows themselves, while features are not read from memory.
    """

    Z: Array
    y: Array | None
    w: Array | None
    start: int
    X: Any = None


class Kept(NamedTuple):
    """Rows of features in memory, as solvers read them."""

    block: FeatureBlock

    @property
    def cached(self) -> bool:
        """They are."""
        return True

    @property
    def n_features(self) -> int:
        """D."""
        return self.block.Z.shape[1]

    def __iter__(self) -> Iterator[FeatureBlock]:
        return iter((self.block,))

    def sum(self, summand: Any) -> Any:
        """Return the sum over the rows."""
        return summand.add(summand.zero(), self.block)


@dataclass(frozen=True, eq=False)
class SumOnFeatures:
    """A summand over blocks of rows: what another makes of their features."""

    features: Callable[[Array], Array]
    summand: Any

    def zero(self) -> Any:
        """Return the sum of no rows."""
        return self.summand.zero()

    def add(self, total: Any, block: Block) -> Any:
        """Return the sum with the rows of a block."""
        return self.summand.add(total, _featured(self.features, block))

    def merge(self, a: Any, b: Any) -> Any:
        """Return the sum of the rows of both."""
        return self.summand.merge(a, b)


def _featured(features: Callable[[Array], Array], block: Block) -> FeatureBlock:
    y, w = (None if a is None else to_numpy(a) for a in (block.y, block.w))
    return FeatureBlock(to_numpy(features(block.X)), y, w, block.start, block.X)


def weights_of(block: FeatureBlock) -> Float[Array, " b"]:
    """Return the weights of the rows, one where none are given."""
    return np.ones(len(block.Z)) if block.w is None else np.asarray(block.w, np.float64)


class Features:
    """The features of blocks: kept after the first pass where they fit, else made anew each time.

    Parameters
    ----------
    phi : FeatureMap
    blocks : Blocks
    dtype : {"float32", "float64"}
        Precision of the features.
    most_bytes : int, optional
        Memory to keep features in, at most; default and limit: a quarter of what is free. 0 keeps
        nothing.

    Attributes
    ----------
    n_rows : int or None
        Rows, once known.
    n_features : int
    cached : bool
        Whether a whole pass is kept.

    Notes
    -----
    Numbers do not depend on what is kept. Rows that turn out too many for the memory are let go
    of at once.
    """

    def __init__(
        self,
        phi: FeatureMap,
        blocks: Blocks,
        dtype: str,
        most_bytes: int | None = None,
        where: Executor = LOCAL,
    ) -> None:
        self._map = Rounded(phi.kernel, phi, dtype)
        self._blocks = blocks.with_rows(block_rows(phi.n_features))
        self._row_bytes = phi.n_features * np.dtype(dtype).itemsize
        self._where = where
        free = free_bytes() // 4
        self._room = free if most_bytes is None else min(free, most_bytes)
        self._kept: list[FeatureBlock] | None = None
        self.n_features = phi.n_features

    @property
    def n_rows(self) -> int | None:
        """Rows, once known."""
        return self._blocks.n_rows

    @property
    def cached(self) -> bool:
        """Whether a whole pass is kept."""
        return self._kept is not None

    def __iter__(self) -> Iterator[FeatureBlock]:
        if self._kept is not None:
            yield from self._kept
            return
        keeping = self._fits(self.n_rows or 0)
        pass_: list[FeatureBlock] = []
        rows = 0
        for block in self._made():
            rows += len(block.Z)
            if keeping and not self._fits(rows):
                keeping, pass_ = False, []
            if keeping:
                pass_.append(block._replace(X=None))
            yield block
        self._kept = pass_ if keeping else None

    def sum(self, summand: Any) -> Any:
        """Return the sum over all rows: here, or where the fit is made."""
        if self._where is not LOCAL and self._kept is None:
            return self._where.sum(SumOnFeatures(self._map, summand), self._blocks)
        total = summand.zero()
        for block in self:
            total = summand.add(total, block)
        return total

    def _fits(self, rows: int) -> bool:
        return rows * self._row_bytes <= self._room

    def _made(self) -> Iterator[FeatureBlock]:
        for block in self._blocks:
            yield _featured(self._map, block)
