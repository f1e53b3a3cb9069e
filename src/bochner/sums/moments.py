"""Moments: what a quadratic model needs to know of all rows, and what adds up.

For features z_i (rows of Z), targets y_i and weights w_i the moments are

    W = Σ w_i,   z̄ = Σ w_i z_i / W,   ȳ = Σ w_i y_i / W,
    G = Σ w_i (z_i − z̄)(z_i − z̄)ᵀ,   B = Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ,   P = Σ w_i (y_i − ȳ)².

They are kept about the means, and two sets are merged by the pairwise update of Chan, Golub and
LeVeque (1979, eq. 2.1b): sums about zero would lose the digits that a large mean takes.
Adding up in any order is streaming, forgetting, cross-validation and several machines.

Notation: n rows, D features, t targets (``docs/notation.md``).
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bochner._core.arrays import array_namespace, from_numpy, is_numpy, is_sparse, to_numpy
from bochner._core.blas import (
    add_gram,
    add_outer,
    mirror,
    product,
    triangular_product,
)
from bochner._core.checks import LARGEST, require_room
from bochner._core.shapes import Array, Float
from bochner.errors import IncompatibleModels, InvalidInput

Precision = Literal["float32", "float64"]

#: Rows whose float32 products are summed in float32 before they go into the float64 sum. Longer
#: runs lose digits, shorter ones spend the time in adding D x D matrices.
FLUSH_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Moments:
    """Mergeable sufficient statistics of (Z, y, w), about their means.

    Attributes
    ----------
    rows : int
        n, the number of rows with positive weight.
    weight : float
        W = Σ w_i.
    feature_mean : (D,) float64
        z̄.
    target_mean : (t,) float64
        ȳ.
    gram : (D, D) float64
        G, symmetric.
    cross : (D, t) float64
        B.
    power : (t,) float64
        P.
    precision : {"float32", "float64"}
        What the products resolve; sums are float64 always. "float32": G carries an error of about
        1e-8 ‖G‖, as products in float32 do, and no penalty below 1e-6 ‖G‖ should be trusted.

    Notes
    -----
    Memory 8 D² bytes, whatever n.
    """

    rows: int
    weight: float
    feature_mean: Float[Array, " D"]
    target_mean: Float[Array, " t"]
    gram: Float[Array, "D D"]
    cross: Float[Array, "D t"]
    power: Float[Array, " t"]
    precision: Precision

    @staticmethod
    def of(
        Z: Float[Array, "n D"],
        y: Float[Array, " n *t"],
        w: Float[Array, " n"] | None = None,
        precision: Precision = "float64",
    ) -> "Moments":
        """Return the moments of one block, in O(n D²) time."""
        total = Accumulator(precision)
        total.add(Z, y, w)
        return total.moments()

    @property
    def n_features(self) -> int:
        """D."""
        return len(self.feature_mean)

    def mapped(self, L: Float[Array, "D D"], precision: Precision) -> "Moments":
        """Return the moments of the features L z, for lower triangular L; O(D³).

        ``precision`` is what the result resolves: rounding of G is multiplied by up to ‖L‖².
        """
        half = triangular_product(self.gram.copy(), L)
        return replace(
            self,
            feature_mean=L @ self.feature_mean,
            gram=mirror(triangular_product(np.ascontiguousarray(half.T), L)),
            cross=L @ self.cross,
            precision=precision,
        )

    def about_zero(self) -> "Moments":
        """Return the same sums about zero: those of a model without intercept."""
        z, y, W = self.feature_mean, self.target_mean, self.weight
        return replace(
            self,
            feature_mean=0 * z,
            target_mean=0 * y,
            gram=self.gram + W * np.outer(z, z),
            cross=self.cross + W * np.outer(z, y),
            power=self.power + W * y**2,
        )

    def __add__(self, other: "Moments") -> "Moments":
        """Moments of the rows of both."""
        return _combine(self, other, +1)

    def __sub__(self, other: "Moments") -> "Moments":
        """Moments of the rows of self that are not in other: the inverse of ``+``."""
        return _combine(self, other, -1)

    def decay(self, factor: float) -> "Moments":
        """Give every row seen so far ``factor`` in (0, 1] times its weight (forgetting)."""
        if not 0 < factor <= 1:
            raise InvalidInput(
                f"Moments.decay: the factor must lie in (0, 1]; got {factor!r}. "
                "Use 1 to keep all, 0.99 to forget one part in a hundred."
            )
        return replace(
            self,
            weight=factor * self.weight,
            gram=factor * self.gram,
            cross=factor * self.cross,
            power=factor * self.power,
        )


def _combine(a: Moments, b: Moments, sign: int) -> Moments:
    """Merge (sign +1) or take out (sign −1); Chan, Golub and LeVeque (1979), eq. 2.1b.

    Merging adds (W_a W_b / W) δδᵀ with δ = mean_b − mean_a; taking out is the same identity
    solved for the other side, whose cross term is −(W_a W_b / W) with W = W_a − W_b.
    """
    _check_same_shape(a, b)
    weight = a.weight + sign * b.weight
    if a.rows + sign * b.rows < 0 or not weight > 0:
        raise IncompatibleModels(
            "Moments: what is taken out must be part of what is there; asked to take "
            f"{b.rows} rows of weight {b.weight:g} out of {a.rows} rows of weight {a.weight:g}."
        )
    dz = b.feature_mean - a.feature_mean
    dy = b.target_mean - a.target_mean
    share = sign * b.weight / weight
    pull = sign * a.weight * b.weight / weight
    return Moments(
        a.rows + sign * b.rows,
        weight,
        a.feature_mean + share * dz,
        a.target_mean + share * dy,
        a.gram + sign * b.gram + pull * np.outer(dz, dz),
        a.cross + sign * b.cross + pull * np.outer(dz, dy),
        a.power + sign * b.power + pull * dy**2,
        "float64" if a.precision == b.precision == "float64" else "float32",
    )


def _check_same_shape(a: Moments, b: Moments) -> None:
    if a.gram.shape != b.gram.shape or a.cross.shape != b.cross.shape:
        raise IncompatibleModels(
            "Moments: both sides must have the same features and targets; got "
            f"D={a.cross.shape[0]}, t={a.cross.shape[1]} and "
            f"D={b.cross.shape[0]}, t={b.cross.shape[1]}. Draw both maps with the same kernel, "
            "method, width and seed."
        )


def require_room_for(n_features: int) -> None:
    """Refuse more features than there is memory for: G, and a decomposition as large."""
    require_room(
        16 * n_features**2,
        f"A fit with {n_features:,} features (sums of their products, and the solution) takes",
        "Ask for fewer features.",
    )


class Accumulator:
    """Adds blocks up to :class:`Moments`, as fast as the machine multiplies.

    The block Gram is a symmetric rank-n update (BLAS ``syrk``: half the work of a product) that
    adds into its result, so that small blocks, whose features are still in cache, cost no extra
    pass. All is taken about the first block's mean, and corrected to the true mean at the end.

    Parameters
    ----------
    precision : {"float32", "float64"}
        Precision of the products. float32 takes half the time; its sums are moved to float64
        every 8192 rows.

    Notes
    -----
    Memory: 8 D² bytes, and 4 D² more in float32.
    """

    def __init__(self, precision: Precision = "float64") -> None:
        self.precision: Precision = precision
        self._dtype = np.dtype(precision)
        self._rows = 0
        self._weight = 0.0

    def add(
        self, Z: Float[Array, "n D"], y: Float[Array, " n *t"], w: Float[Array, " n"] | None = None
    ) -> None:
        """Add one block; rows of zero weight take no part."""
        Z, y, w = _positive_rows(np.asarray(Z, self._dtype), np.asarray(y, np.float64), w)
        if not len(Z):
            return
        y = _squarable(y.reshape(len(y), -1))
        if not self._rows:
            self._start(Z, y)
        self._rows += len(Z)
        self._add_centred(self._centred(Z), y - self._y0, w)

    def sweep(self, blocks: Iterable[tuple[Array, Array, Array | None]]) -> Moments:
        """Add all blocks (Z, y, w) and return their moments."""
        for Z, y, w in blocks:
            self.add(Z, y, w)
        return self.moments()

    @property
    def rows(self) -> int:
        """Rows of positive weight that were added."""
        return self._rows

    def so_far(self) -> Moments:
        """Return the moments of what was added up to now, from a copy of all sums."""
        return deepcopy(self).moments()

    def moments(self) -> Moments:
        """Return the moments of all that was added; nothing more can be added after it."""
        if not self._rows:
            raise InvalidInput(
                "Moments: at least one row with a positive weight is required; got none."
            )
        self._flush()
        dz, dy = self._z / self._weight, self._y / self._weight
        add_outer(self._gram, dz, -self._weight)
        return Moments(
            self._rows,
            self._weight,
            self._z0 + dz,
            self._y0 + dy,
            mirror(self._gram),
            self._cross - self._weight * np.outer(dz, dy),
            np.maximum(self._power - self._weight * dy**2, 0.0),
            self.precision,
        )

    def _start(self, Z: Array, y: Array) -> None:
        D, t = Z.shape[1], y.shape[1]
        require_room_for(D)
        self._z0 = Z.mean(axis=0, dtype=np.float64).astype(self._dtype)
        self._y0 = y.mean(axis=0)
        self._z, self._y = np.zeros(D), np.zeros(t)
        self._gram, self._cross, self._power = (
            np.zeros((D, D), order="F"),
            np.zeros((D, t)),
            np.zeros(t),
        )
        self._buffer = np.empty((0, D), self._dtype)
        self._pending = np.zeros((D, D), self._dtype, order="F")
        self._pending_rows = 0

    def _centred(self, Z: Array) -> Array:
        """Return Z about the first block's mean, in memory that is used again and again."""
        if len(self._buffer) < len(Z):
            self._buffer = np.empty(Z.shape, self._dtype)
        return np.subtract(Z, self._z0, out=self._buffer[: len(Z)])

    def _add_centred(self, Z: Array, y: Array, w: Array | None) -> None:
        weights = np.ones(len(Z)) if w is None else w
        self._weight += float(weights.sum())
        self._y += weights @ y
        self._power += weights @ y**2
        right = np.column_stack([weights, weights[:, None] * y]).astype(self._dtype)
        sums = product(np.ascontiguousarray(right.T), Z)
        self._z += sums[0]
        self._cross += sums[1:].T
        if w is not None:
            Z *= np.sqrt(w).astype(self._dtype)[:, None]
        add_gram(self._pending if self.precision == "float32" else self._gram, Z)
        self._pending_rows += len(Z)
        if self._pending_rows >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self.precision == "float32" and self._pending_rows:
            self._gram += self._pending
            self._pending[...] = 0
        self._pending_rows = 0


def _squarable(y: Array) -> Array:
    if np.abs(y).max(initial=0.0) > LARGEST:
        raise InvalidInput(
            f"y must lie within ±{LARGEST:g}, for its squares to be numbers; got "
            f"{np.abs(y).max():g}. Scale it first."
        )
    return y


def _positive_rows(Z: Array, y: Array, w: Array | None) -> tuple[Array, Array, Array | None]:
    """Drop rows of zero weight; refuse negative and non-finite weights."""
    if w is None:
        return Z, y, None
    w = np.asarray(w, np.float64)
    bad = w[~((w >= 0) & (w <= LARGEST))]
    if len(bad):
        raise InvalidInput(
            f"sample_weight must be finite and not negative, {LARGEST:g} at most; got {bad[0]:g} "
            f"among {len(w)} rows. Remove those rows or set their weight to 0."
        )
    if np.all(w > 0):
        return Z, y, w
    kept = w > 0
    return Z[kept], y[kept], w[kept]


class DeviceAccumulator:
    """Adds blocks of another array library up, on the device that they are on.

    float32 products go into float64 sums, a block at a time; only the sums come to NumPy, once.
    """

    def __init__(self, precision: Precision) -> None:
        self.precision: Precision = precision
        self.rows = 0
        self._weight = 0.0
        self._sums: Any = None

    def add(self, Z: Array, y: Array, w: Array | None = None) -> None:
        """Add one block; rows of zero weight take no part."""
        xp = array_namespace(Z)
        Zn, y, w = _positive_rows(np.arange(Z.shape[0]), to_numpy(y).astype(np.float64), w)
        if not len(Zn):
            return
        y = _squarable(y.reshape(len(y), -1))
        if len(Zn) < Z.shape[0]:
            Z = xp.take(Z, from_numpy(Zn, like=Z), axis=0)
        Z = xp.astype(Z, getattr(xp, self.precision), copy=False)
        if self._sums is None:
            require_room_for(Z.shape[1])
            self._z0, self._y0 = xp.mean(Z, axis=0), y.mean(axis=0)
        self.rows += len(y)
        weights = np.ones(len(y)) if w is None else w
        self._weight += float(weights.sum())
        y = y - self._y0
        right = from_numpy(np.column_stack([weights, weights[:, None] * y]), like=Z)
        Z = Z - self._z0
        first = xp.matmul(Z.T, xp.astype(right, Z.dtype))
        if w is not None:
            Z = Z * xp.astype(from_numpy(np.sqrt(w), like=Z), Z.dtype)[:, None]
        new = [xp.astype(A, xp.float64) for A in (xp.matmul(Z.T, Z), first)]
        new += [weights @ y, weights @ y**2]
        old = self._sums
        self._sums = new if old is None else [a + b for a, b in zip(old, new, strict=True)]

    def so_far(self) -> Moments:
        """Return the moments of what was added up to now."""
        return self.moments()

    def moments(self) -> Moments:
        """Return the moments of all that was added, as NumPy arrays."""
        if not self.rows:
            return Accumulator().moments()  # which says that there are no rows
        gram, first, sy, power = (a if is_numpy(a) else to_numpy(a) for a in self._sums)
        W = self._weight
        dz, dy = first[:, 0] / W, sy / W
        gram = gram - W * np.outer(dz, dz)
        return Moments(
            self.rows,
            W,
            to_numpy(self._z0).astype(np.float64) + dz,
            self._y0 + dy,
            (gram + gram.T) / 2,
            first[:, 1:] - W * np.outer(dz, dy),
            np.maximum(power - W * dy**2, 0.0),
            self.precision,
        )


@dataclass(frozen=True, eq=False)
class MomentsOf:
    """The summand of moments: of φ(X), y and w, where φ(X) is.

    Attributes
    ----------
    features : callable
        φ: rows X (b, d) to features (b, D), in the array library of X.
    precision : {"float32", "float64"}
        Of the products.
    """

    features: Callable[[Array], Array]
    precision: Precision

    def zero(self) -> list[Any]:
        """Return no accumulator: the first block says where it is to be."""
        return []

    def add(self, total: list[Any], block: Any) -> list[Any]:
        """Add a block to the accumulator of its device."""
        Z = self.features(block.X)
        if not total:
            here = is_numpy(Z) or is_sparse(Z)
            total = [Accumulator(self.precision) if here else DeviceAccumulator(self.precision)]
        y = np.zeros((Z.shape[0], 0)) if block.y is None else to_numpy(block.y)
        w = None if block.w is None else to_numpy(block.w)
        total[-1].add(to_numpy(Z) if is_sparse(Z) else Z, y, w)
        return total

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        """Keep the accumulators of both."""
        return a + b

    @staticmethod
    def moments(total: list[Any]) -> Moments:
        """Return the moments of a sum."""
        parts = [accumulator.so_far() for accumulator in total[:-1]]
        moments = (total[-1] if total else Accumulator()).moments()
        for part in reversed(parts):
            moments = part + moments
        return moments

    @staticmethod
    def so_far(total: list[Any]) -> Moments:
        """Return the moments of a sum that goes on."""
        return total[-1].so_far()
