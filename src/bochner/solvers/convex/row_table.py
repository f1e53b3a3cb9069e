"""Rows of features in memory: images, gradients, thinning, and sums of outer products of rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bochner._core.blas import add_gram
from bochner._core.shapes import Array, Float
from bochner.solvers.convex.hessian import backward, forward

#: Sides of a column's targets with no more rows than this are kept whole by thinning.
FEW = 256

#: But none is kept whole where so large a share of the rows would be.
MOST = 0.125

#: Numbers of the rows that are gathered at once: a few megabytes, written again and again.
AT_ONCE = 1 << 20

#: A sum is changed if fewer rows differ than this share of those that take part ...
CHANGED = 0.7

#: ... and all that were changed since it was new are at most this many times as many: each change
#: leaves its rounding.
DRIFT = 4.0


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory: features in pieces, and a row for each column of targets.

    Attributes
    ----------
    pieces : list of (b, D)
        Consecutive rows.
    y : (t, n) float64
    w : (n,) float64
    """

    pieces: list[Array]
    y: Float[Array, "t n"]
    w: Float[Array, " n"]

    @property
    def n_features(self) -> int:
        """D."""
        return self.pieces[0].shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Precision of the features."""
        return self.pieces[0].dtype

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """Give the pieces with their rows."""
        start = 0
        for Z in self.pieces:
            yield slice(start, start + len(Z)), Z
            start += len(Z)

    def thinned(self, every: int) -> "Table":
        """Return every so many-th row, of as much more weight, and rows on a side with few rows."""
        few = self._few_sided()
        kept = few.copy()
        kept[::every] = True
        rows = np.flatnonzero(kept)
        w = np.where(few[rows], self.w[rows], every * self.w[rows])
        return Table([self._taken(rows)], self.y.take(rows, axis=1), w)

    def of(self, k: int, rows: Array) -> "Table":
        """Return these rows, which are in order, with one column of targets."""
        return Table([self._taken(rows)], self.y[k].take(rows)[None], self.w[rows])

    def _taken(self, rows: Array) -> Float[Array, "m D"]:
        """Return the features of these rows, which are in order."""
        cuts = np.searchsorted(rows, np.cumsum([0, *map(len, self.pieces)]))
        cut = zip(self.parts(), cuts, cuts[1:], strict=False)
        pieces = [Z.take(rows[low:high] - here.start, axis=0) for (here, Z), low, high in cut]
        return np.concatenate(pieces)

    def _few_sided(self) -> Array:
        """Return which rows are on a side of zero, in some column's targets, that has few rows.

        None, where many rows are.
        """
        few = np.zeros(len(self.w), bool)
        for column in self.y:
            side = column > 0
            side ^= np.count_nonzero(side) > len(side) / 2
            if np.count_nonzero(side) <= FEW:
                few |= side
        return few & (np.count_nonzero(few) <= MOST * len(few))

    def gathered(self, rows: Array) -> Iterator[tuple[slice, Float[Array, "m p"]]]:
        """Give [Z 1] of these rows, which are in order, some at a time, and which of them they are.

        All are written to the same place.
        """
        most = max(1, AT_ONCE // (self.n_features + 1))
        out = np.ones((min(most, len(rows)), self.n_features + 1), self.dtype)
        starts = np.cumsum([0, *map(len, self.pieces)])
        cuts = np.searchsorted(rows, starts)
        for i, Z in enumerate(self.pieces):
            for low in range(cuts[i], cuts[i + 1], most):
                here = slice(low, min(low + most, cuts[i + 1]))
                part = out[: here.stop - low]
                part[:, :-1] = Z.take(rows[here] - starts[i], axis=0)
                yield here, part

    def image(self, theta: Float[Array, "u p"]) -> Float[Array, "u n"]:
        """Return Z β + b, a row for each column."""
        out = np.empty((len(theta), len(self.w)))
        for rows, Z in self.parts():
            out[:, rows] = forward(Z, theta).T
        return out

    def pulls(self, slopes: Float[Array, "u n"]) -> Float[Array, "u p"]:
        """Return the rows of slopes times [Z 1]."""
        out = np.zeros((len(slopes), self.n_features + 1))
        for rows, Z in self.parts():
            out += backward(Z, slopes[:, rows].T)
        return out


# --- sums of outer products ----------------------------------------------------------------------


class Sum(NamedTuple):
    """Σ c z zᵀ, z ending in a one.

    Attributes
    ----------
    total : (p, p)
        Its upper triangle, in Fortran order.
    factors : (n,)
        c.
    drift : int
        Rows changed since it was new.
    """

    total: Float[Array, "p p"]
    factors: Float[Array, " n"]
    drift: int


def changed(table: Table, old: Sum | None, c: Float[Array, " n"]) -> Sum:
    """Return the sum with factors c, none negative: the old one changed, or a new one."""
    p, bent = table.n_features + 1, np.flatnonzero(c)
    if old is not None:
        change = c - old.factors
        rows = np.flatnonzero(change)
        drift = old.drift + len(rows)
        if len(rows) <= CHANGED * len(bent) and drift <= DRIFT * len(bent):
            total = old.total.copy(order="F")
            more = change[rows] > 0
            _add(table, total, rows[more], change[rows[more]], 1.0)
            _add(table, total, rows[~more], -change[rows[~more]], -1.0)
            return Sum(total, c, drift)
    total = np.zeros((p, p), table.dtype, order="F")
    _add(table, total, bent, c[bent], 1.0)
    return Sum(total, c, 0)


def _add(table: Table, total: Float[Array, "p p"], rows: Array, c: Array, sign: float) -> None:
    """Add sign Σ c z zᵀ over these rows to the upper triangle."""
    if not len(rows):
        return
    root = None if c.min() == c.max() else np.sqrt(c).astype(table.dtype)
    factor = sign if root is not None else sign * float(c[0])
    for some, A in table.gathered(rows):
        add_gram(total, A if root is None else root[some, None] * A, factor)
