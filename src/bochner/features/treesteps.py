"""What a tree of sketches is made of: steps, and the blocks of features that are read off them.

A step gives H D v of a value v of its own, not normalised, from the rows or from earlier steps:
H the Walsh-Hadamard matrix, D a diagonal of random signs. A block fills its columns of Z.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from bochner._core import native
from bochner._core.arrays import dense
from bochner._core.native import signed_walsh
from bochner._core.shapes import Array


@dataclass(frozen=True, eq=False)
class Padded:
    """H D x, not normalised: x with zeros after it.

    Attributes
    ----------
    signs : (P,) int8
        Diagonal of D; P is a power of two.
    """

    signs: Array

    def of(self, U: Array, earlier: list[Array]) -> Array:  # noqa: ARG002
        """Return the value for these rows, (n, P)."""
        return signed_walsh(dense(U), self.signs)


@dataclass(frozen=True, eq=False)
class Hashed:
    """H S x, S an OSNAP matrix with s entries ±s^{−1/2} for each column; s = 1: a CountSketch.

    Attributes
    ----------
    rows : (d, s) int32
        Where each column goes.
    signs : (d, s) int8
    width : int
        P, a power of two.
    """

    rows: Array
    signs: Array
    width: int

    @cached_property
    def _single(self) -> scipy.sparse.csr_array:
        return self._matrix(np.float32)

    @cached_property
    def _double(self) -> scipy.sparse.csr_array:
        return self._matrix(np.float64)

    def _matrix(self, dtype: type) -> scipy.sparse.csr_array:
        d, s = self.rows.shape
        place = (np.repeat(np.arange(d), s), self.rows.ravel())
        values = (self.signs.ravel() / s**0.5).astype(dtype)
        return scipy.sparse.csr_array((values, place), shape=(d, self.width))

    def of(self, U: Array, earlier: list[Array]) -> Array:  # noqa: ARG002
        """Return the value for these rows, (n, P)."""
        hashed = np.ascontiguousarray(
            dense(U @ (self._double if U.dtype == np.float64 else self._single))
        )
        return native.hadamard(hashed, out=hashed)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Products of entries of two steps, times m^{−1/2}.

    Attributes
    ----------
    left, right : int
        Steps; the left one is the wider.
    full : int
        So many blocks take all entries of the left one in order.
    tail : (t,) int32
        Entries of the left one after that.
    partners : (m,) int32
        Entries of the right one, and of its negative after them.
    """

    left: int
    right: int
    full: int
    tail: Array
    partners: Array

    @property
    def width(self) -> int:
        """How many: m."""
        return len(self.partners)

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:  # noqa: ARG002
        """Write the products times a weight of each row into Z, (n, m)."""
        left = earlier[self.left]
        right = earlier[self.right] * (weight * np.array(self.width**-0.5, dtype=Z.dtype))
        np.take(np.hstack([right, -right]), self.partners, axis=1, out=Z, mode="clip")
        tiled = self.full * left.shape[1]
        blocks = Z[:, :tiled].reshape(len(Z), self.full, left.shape[1])  # a view
        blocks *= left[:, None, :]
        if len(self.tail):
            Z[:, tiled:] *= np.take(left, self.tail, axis=1, mode="clip")


@dataclass(frozen=True, eq=False)
class Node:
    """H D of a node's products; D is in the signs of their factors.

    Attributes
    ----------
    pairs : Pairs
    """

    pairs: Pairs

    def of(self, U: Array, earlier: list[Array]) -> Array:
        """Return the value for these rows, (n, m)."""
        Z = np.empty((U.shape[0], self.pairs.width), dtype=U.dtype)
        self.pairs.fill(Z, U, earlier, np.ones((1, 1), dtype=U.dtype))
        return native.hadamard(Z, out=Z)


@dataclass(frozen=True, eq=False)
class Entries:
    """Some entries of a step, times m^{−1/2}: the sketch of degree one.

    Attributes
    ----------
    source : int
    chosen : (m,) int32
    """

    source: int
    chosen: Array

    @property
    def width(self) -> int:
        """How many: m."""
        return len(self.chosen)

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:  # noqa: ARG002
        """Write the entries times a weight of each row into Z, (n, m)."""
        entries = np.take(earlier[self.source], self.chosen, axis=1)
        np.multiply(entries, weight * np.array(self.width**-0.5, dtype=Z.dtype), out=Z)


@dataclass(frozen=True, eq=False)
class Exact:
    """Degree 0, one feature, or degree 1, all columns."""

    degree: int
    width: int

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:  # noqa: ARG002
        """Write the weight, or the weighted columns."""
        np.multiply(dense(U) if self.degree else 1, weight, out=Z)
