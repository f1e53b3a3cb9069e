"""Moments: sums over rows that determine a ridge regression, and that can be added.

For features z_i (rows of Z), targets y_i and weights w_i the moments are

    W = Σ w_i,   z̄ = Σ w_i z_i / W,   ȳ = Σ w_i y_i / W,
    G = Σ w_i (z_i − z̄)(z_i − z̄)ᵀ,   B = Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ,   P = Σ w_i (y_i − ȳ)².

The sums are about the means, because sums about zero lose digits if a mean is large. Two sets are
merged by the pairwise update of Chan, Golub and LeVeque (1979, eq. 2.1b). Moments can be added in
any order, for streaming, forgetting, cross-validation and clusters.

Notation: n rows, D features, t targets (``docs/notation.md``).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from array_api_compat import to_device

from bochner._core.arrays import array_namespace, device, from_numpy, is_sparse, take, to_numpy
from bochner._core.blas import add_gram, mirror, product, triangular_product
from bochner._core.checks import LARGEST, require_room
from bochner._core.lapack import add_square, add_symmetric_product
from bochner._core.shapes import Array, Float
from bochner.errors import IncompatibleModels, InvalidInput

Precision = Literal["float32", "float64"]

FLUSH_ROWS = 8192  # Rows per float32 sum; longer sums would lose digits


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
        z̄, the weighted mean of the features z_i.
    target_mean : (t,) float64
        ȳ, the weighted mean of the targets y_i.
    gram : (D, D) float64
        G = Σ w_i (z_i − z̄)(z_i − z̄)ᵀ.
    cross : (D, t) float64
        B = Σ w_i (z_i − z̄)(y_i − ȳ)ᵀ.
    power : (t,) float64
        P = Σ w_i (y_i − ȳ)².
    precision : {"float32", "float64"}
        Precision of the products; sums are always float64. With "float32", G has an error of about
        1e-8 ‖G‖, and results with a penalty below 1e-6 ‖G‖ are unreliable.

    See Also
    --------
    merge : Merge fitted models.

    Notes
    -----
    Memory 8 D² bytes, for any n.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> rng = np.random.default_rng(0)
    >>> Z, y = rng.standard_normal((100, 8)), rng.standard_normal((100, 1))
    >>> both = bo.Moments.of(Z[:40], y[:40]) + bo.Moments.of(Z[40:], y[40:])
    >>> both.rows, both.gram.shape
    (100, (8, 8))
    >>> bool(np.allclose(both.gram, bo.Moments.of(Z, y).gram))
    True
    """

    rows: int
    weight: float
    feature_mean: Float[Array, " D"]
    target_mean: Float[Array, " t"]
    gram: Float[Array, "D D"]
    cross: Float[Array, "D t"]
    power: Float[Array, " t"]
    precision: Precision

    def __repr__(self) -> str:
        D, t = self.cross.shape
        return f"Moments(rows={self.rows}, D={D}, targets={t}, precision={self.precision!r})"

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
        return len(self.feature_mean)

    def transform(self, L: Float[Array, "D D"], precision: Precision) -> "Moments":
        """Return the moments of the features L z, for lower triangular L; O(D³).

        ``precision`` is that of the result, because rounding errors of G grow by up to ‖L‖².
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
        """Return the moments about zero in place of the means, for a model without intercept."""
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
        """Return the moments of the rows of both."""
        return _combine(self, other, +1)

    def __sub__(self, other: "Moments") -> "Moments":
        """Return the moments without the rows of ``other``: the inverse of ``+``."""
        return _combine(self, other, -1)

    def decay(self, factor: float) -> "Moments":
        """Return the moments with all weights multiplied by ``factor`` in (0, 1] (forgetting)."""
        if not 0 < factor <= 1:
            raise InvalidInput(
                f"Moments.decay: the factor must lie in (0, 1]; got {factor!r}. "
                "Pass 1 to keep all weight, 0.99 to forget one percent."
            )
        names = ("weight", "gram", "cross", "power")
        return replace(self, **{name: factor * getattr(self, name) for name in names})


def _combine(a: Moments, b: Moments, sign: int) -> Moments:
    """Return the moments of a and b (sign 1), or of a without b (sign −1)."""
    # The Gram matrices add up with ± (W_a W_b/W) δδᵀ, δ the difference of the means.
    if a.gram.shape != b.gram.shape or a.cross.shape != b.cross.shape:
        raise IncompatibleModels(
            "Moments: both sides must have the same features and targets; got "
            f"D={a.cross.shape[0]}, t={a.cross.shape[1]} and "
            f"D={b.cross.shape[0]}, t={b.cross.shape[1]}. Draw both maps with the same kernel, "
            "method, width and seed."
        )
    weight = a.weight + sign * b.weight
    if a.rows + sign * b.rows < 0 or not weight > 0:
        raise IncompatibleModels(
            "Moments: only rows that are included can be subtracted; got "
            f"{b.rows} rows of weight {b.weight:g} and {a.rows} rows of weight {a.weight:g}."
        )
    dz, dy = b.feature_mean - a.feature_mean, b.target_mean - a.target_mean
    share = sign * b.weight / weight
    factor = sign * a.weight * b.weight / weight
    return Moments(
        a.rows + sign * b.rows,
        weight,
        a.feature_mean + share * dz,
        a.target_mean + share * dy,
        a.gram + sign * b.gram + factor * np.outer(dz, dz),
        a.cross + sign * b.cross + factor * np.outer(dz, dy),
        a.power + sign * b.power + factor * dy**2,
        "float64" if a.precision == b.precision == "float64" else "float32",
    )


class Accumulator:
    """Sum blocks to :class:`Moments`, centred at the first block's mean, at the end at the mean.

    Blocks are NumPy arrays, and products are computed in ``precision``. float32 takes half the
    time; its sums are added to float64 sums every 8192 rows. Memory: 8 D² bytes, and 4 D² more
    for float32.
    """

    def __init__(self, precision: Precision = "float64") -> None:
        self.precision: Precision = precision
        self.rows = 0  # number of rows with positive weight
        self._weight = 0.0

    def add(
        self, Z: Float[Array, "n D"], y: Float[Array, " n *t"], w: Float[Array, " n"] | None = None
    ) -> None:
        """Add one block; rows of zero weight are ignored."""
        y = np.asarray(y, np.float64)
        if w is not None:
            Z, y, w = _positive_rows(Z, y, w)
        if not len(y):
            return
        y = y.reshape(len(y), -1)
        require_squares("", y)
        if not self.rows:
            D = Z.shape[1]
            require_room(  # G and its decomposition
                16 * D**2,
                f"A fit with {D:,} features (sums of their products, and the solution) takes",
                "Ask for fewer features.",
            )
            self._y0, self._y, self._power = y.mean(axis=0), 0.0, 0.0
            self._start(Z, 1 + y.shape[1])
        y = y - self._y0
        weights = np.ones(len(y)) if w is None else w
        self.rows += len(y)
        self._weight += float(weights.sum())
        self._y += weights @ y
        self._power += weights @ y**2
        self._add(Z, np.column_stack([weights, weights[:, None] * y]), w)

    def merge(self, other: Any) -> Any:
        """Return the sum of both in O(D²), and modify self; an accumulator without rows is dropped.

        With δ = z0(other) − z0(self) and s = Σ w (z − z0), the Gram matrix of other about z0(self)
        is G + s δᵀ + δ sᵀ + W δδᵀ.
        """
        if not (self.rows and other.rows):
            return self if self.rows else other
        W, dy = other._weight, other._y0 - self._y0
        y = other._y + W * dy
        self._merge(other, np.concatenate([[W], y]), np.concatenate([[0.0], dy]))
        self._power += other._power + dy * (other._y + y)
        self._y += y
        self.rows, self._weight = self.rows + other.rows, self._weight + W
        return self

    def moments(self) -> Moments:
        """Return the moments of all rows; no rows can be added afterwards."""
        if not self.rows:
            raise InvalidInput(
                "Moments: at least one row with a positive weight is required; got none."
            )
        W, (start, first, gram) = self._weight, self._sums()
        dz, dy = first[0] / W, self._y / W
        add_square(gram, dz[:, None], -W)
        return Moments(
            self.rows,
            W,
            start + dz,
            self._y0 + dy,
            mirror(gram),
            np.ascontiguousarray(first[1:].T) - W * np.outer(dz, dy),
            np.maximum(self._power - W * dy**2, 0.0),
            self.precision,
        )

    def _start(self, Z: Array, columns: int) -> None:
        """Allocate the sums; all rows are centred at the mean z0 of the first block Z."""
        D, dtype = Z.shape[1], np.dtype(self.precision)
        self._z0 = np.asarray(Z, dtype).mean(axis=0, dtype=np.float64).astype(dtype)
        self._first, self._gram = np.zeros((columns, D)), np.zeros((D, D), order="F")
        self._buffer = np.empty((0, D), dtype)  # reused for all blocks
        single = self.precision == "float32"
        self._pending = np.zeros((D, D), dtype, order="F") if single else None
        self._pending_rows = 0

    def _add(self, Z: Array, right: Array, w: Array | None) -> None:
        """Add rightᵀ (Z − z0) and (Z − z0)ᵀ diag(w) (Z − z0)."""
        dtype = self._z0.dtype
        if len(self._buffer) < len(Z):
            self._buffer = np.empty(Z.shape, dtype)
        Z = np.subtract(np.asarray(Z, dtype), self._z0, out=self._buffer[: len(Z)])
        self._first += product(np.ascontiguousarray(right.T, dtype), Z)
        if w is not None:
            Z *= np.sqrt(w).astype(dtype)[:, None]
        add_gram(self._gram if self._pending is None else self._pending, Z)
        self._pending_rows += len(Z)
        if self._pending_rows >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending is not None:
            self._gram += self._pending
            self._pending[...] = 0
        self._pending_rows = 0

    def _merge(self, other: Any, right: Array, shift: Array) -> None:
        """Add the sums of another accumulator, shifted from its z0 to this z0.

        ``right``: its sums of w and w y, about the y0 of self; ``shift``: (0, other.y0 − self.y0).
        """
        dz, first = np.subtract(other._z0, self._z0, dtype=np.float64), other._first
        self._flush()
        self._gram += other._gram
        if other._pending is not None:
            self._gram += other._pending
        sums = first[0] + right[0] / 2 * dz
        add_symmetric_product(self._gram, sums[:, None], dz[:, None])
        self._first += first + np.outer(right, dz) + np.outer(shift, first[0])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, without the buffer."""
        return vars(self) | ({"_buffer": self._buffer[:0].copy()} if self.rows else {})

    def _sums(self) -> tuple[Float[Array, " D"], Float[Array, "c D"], Float[Array, "D D"]]:
        """Return z0, the first sums and the upper triangle of the Gram sums, in NumPy's float64."""
        self._flush()
        return self._z0.astype(np.float64), self._first, self._gram


def _positive_rows(Z: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
    """Return the rows of positive weight; raise InvalidInput for invalid weights."""
    w = np.asarray(w, np.float64)
    wrong = w[~((w >= 0) & (w <= LARGEST))]
    if len(wrong):
        raise InvalidInput(
            f"sample_weight must be finite and not negative, {LARGEST:g} at most; got {wrong[0]:g} "
            f"among {len(w)} rows. Remove those rows or set their weight to 0."
        )
    if np.all(w > 0):
        return Z, y, w
    keep = np.flatnonzero(w > 0)
    return take(Z, keep, axis=0), y[keep], w[keep]


class DeviceAccumulator(Accumulator):
    """An accumulator of blocks of another array library, on the device of the blocks.

    Products in float32 are added to float64 sums, which are copied to NumPy once, at the end.
    Blocks are collected up to 8192 rows, because adding a D × D matrix takes as long as multiplying
    hundreds of rows. Only panels on and above the diagonal are computed: 9/16 of the work with 8
    panels. Memory: 8192 rows of features twice, 4 D² bytes, and 8 D² more during an addition.
    """

    def _start(self, Z: Array, columns: int) -> None:
        xp = array_namespace(Z)
        self._products: list[Any] = []
        self._waiting: list[tuple[Any, Array]] = []
        self._weighted = False
        self._z0 = xp.mean(xp.astype(Z, getattr(xp, self.precision), copy=False), axis=0)

    def _add(self, Z: Array, right: Array, w: Array | None) -> None:
        self._waiting.append((Z, right))
        self._weighted = self._weighted or w is not None
        if sum(len(right) for _, right in self._waiting) >= FLUSH_ROWS:
            self._products, self._waiting = self._all_products(), []

    def _all_products(self) -> list[Any]:
        """Return Zᵀ W Z of all rows, panel by panel, and the products of Z with w and w y."""
        if not self._waiting:
            return self._products
        xp = array_namespace(self._z0)
        Z = xp.concat([block for block, _ in self._waiting], axis=0)
        Z = xp.astype(Z, self._z0.dtype, copy=False) - self._z0
        right = np.concatenate([right for _, right in self._waiting])
        right = xp.astype(from_numpy(right, like=Z), Z.dtype)
        first = xp.matmul(right.T, Z)
        if self._weighted:
            Z = Z * xp.sqrt(right[:, 0])[:, None]
        grams = [xp.matmul(Z[:, :stop].T, Z[:, start:stop]) for start, stop in _panels(Z.shape[1])]
        new = [xp.astype(A, xp.float64) for A in (*grams, first)]
        old = self._products
        return [a + b for a, b in zip(old, new, strict=True)] if old else new

    def _merge(self, other: Any, right: Array, shift: Array) -> None:
        self._products, self._waiting = self._all_products(), []
        xp, device_ = array_namespace(self._z0), device(self._z0)
        z0, *grams, first = (to_device(A, device_) for A in (other._z0, *other._all_products()))
        dz = xp.astype(z0, xp.float64) - xp.astype(self._z0, xp.float64)
        right, shift = from_numpy(right, like=first), from_numpy(shift, like=first)
        z = first[0, ...] + right[0, ...] / 2 * dz
        parts = [
            gram + z[:stop, None] * dz[None, start:stop] + dz[:stop, None] * z[None, start:stop]
            for gram, (start, stop) in zip(grams, _panels(dz.shape[0]), strict=True)
        ]
        first = first + right[:, None] * dz[None, :] + shift[:, None] * first[0, ...][None, :]
        self._products = [a + b for a, b in zip(self._products, [*parts, first], strict=True)]

    def _sums(self) -> tuple[Float[Array, " D"], Float[Array, "c D"], Float[Array, "D D"]]:
        *panels, first = map(to_numpy, self._all_products())
        D = first.shape[1]
        gram = np.zeros((D, D), order="F")
        for (start, stop), panel in zip(_panels(D), panels, strict=True):
            gram[:stop, start:stop] = panel
        return to_numpy(self._z0).astype(np.float64), first, gram


def _panels(n_features: int) -> list[tuple[int, int]]:
    """Return the slices (start, stop) of at most eight panels of at least 1,024 columns."""
    ends = np.linspace(0, n_features, 1 + max(1, min(8, n_features // 1024))).astype(int).tolist()
    return list(pairwise(ends))


@dataclass(frozen=True, eq=False)
class MomentSum:
    """Summand that computes the moments of φ(X), y and w, on the device of φ(X)."""

    # Function from rows X (b, d) to features (b, D) in the array library of X.
    features: Callable[[Array], Array]
    precision: Precision  # of the products
    root: Array | None = None  # L if ``features`` returns c(x) with φ(x) = L c(x)

    def add(self, total: Accumulator | None, block: Any) -> Accumulator:
        Z = self.features(block.X)
        Z = Z.toarray() if is_sparse(Z) else Z
        if total is None:
            kind = Accumulator if isinstance(Z, np.ndarray) else DeviceAccumulator
            total = kind(self.precision)
        y = np.zeros((Z.shape[0], 0)) if block.y is None else to_numpy(block.y)
        total.add(Z, y, None if block.w is None else to_numpy(block.w))
        return total

    def merge(self, a: Accumulator, b: Accumulator) -> Accumulator:
        return a.merge(b)

    def moments(self, total: Accumulator | None) -> Moments:
        sums = (total or Accumulator()).moments()
        return sums if self.root is None else sums.transform(self.root, "float32")


def require_squares(caller: str, y: np.ndarray, w: Any = None, power: Any = None) -> None:
    """Refuse targets (n, t) whose squares overflow; given w or Σ w (y − ȳ)², if it underflows."""
    if (largest := np.abs(y).max(initial=0.0)) > LARGEST:
        raise InvalidInput(
            f"{caller + ': ' if caller else ''}y must lie within ±{LARGEST:g}, as larger squares "
            f"overflow; got {largest:g}. Scale it first: divide y by a power of ten."
        )
    if power is None:
        if w is None or not len(y):
            return
        shifted = y - y[0]  # prevents overflow of sums
        power = w @ (shifted - w @ shifted / w.sum()) ** 2
    # leaves digits for residuals far smaller than y
    vanish = (np.ptp(y, axis=0) > 0) & (power < 1e-300)
    if np.any(vanish):
        largest = np.abs(y[:, vanish]).max()
        raise InvalidInput(
            f"{caller}: y must have deviations above 1e-150, as squares of smaller ones vanish; "
            f"got values of at most {largest:.3g}. Multiply y by a power of ten."
        )
