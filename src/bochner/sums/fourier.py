"""Sums of Fourier modes over rows, sufficient for ridge regression on equispaced frequencies.

With angles θ_n of the rows and integer vectors k, the sums

    t(k) = Σ w_n e^{−i k·θ_n},  |k_a| ≤ 2 m_a,    b(k) = Σ w_n (y_n − o) e^{−i k·θ_n},  |k_a| ≤ m_a,

determine ZᵀZ, whose entry of modes j and l is t(j − l), and Zᵀy, for any number of rows
(Greengard, Rachh and Barnett 2022, section 3). o is near the mean of the targets, to avoid
cancellation in squares.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bochner._core.arrays import adapt, array_namespace, dense, to_numpy
from bochner._core.globe import require_places
from bochner._core.optional import package
from bochner._core.shapes import Array, Float
from bochner.data.sources import Block, weights_of
from bochner.errors import IncompatibleModels, InvalidInput


def nufft(
    angles: Float[Array, "n d"], values: Array, error: float, extent: tuple[int, ...] | None = None
) -> Array:
    """Return Σ_n v_n e^{−i k·θ_n} for all integer k with |k_a| ≤ extent_a, each k_a ascending.

    θ is in radians, in one to three dimensions; v is (s, n); the error is relative to Σ |v_n|.
    Without ``extent``, ``values`` are coefficients c_k, (s, 2m_1 + 1, ...): return the values
    Σ_k c_k e^{ik·θ_n} at all points, (s, n), with an error relative to ‖c‖.
    """
    values = np.ascontiguousarray(values, dtype=np.complex128)
    modes = [] if extent is None else [tuple(2 * m + 1 for m in extent)]
    shape = (len(values), *(modes[0] if modes else (len(angles),)))
    if not len(angles):
        return np.zeros(shape, dtype=np.complex128)
    finufft = package("finufft", "A fit on Fourier modes", "'bochner[grid]'")
    transform = getattr(finufft, f"nufft{angles.shape[1]}d{1 if modes else 2}")
    columns = [np.ascontiguousarray(column, dtype=np.float64) for column in angles.T]
    # within the bounds that finufft accepts
    eps = min(max(error, 1e-14), 1e-4)
    return transform(*columns, values, *modes, eps=eps, isign=-1 if modes else 1).reshape(shape)


@dataclass(frozen=True, eq=False)
class ModeSums:
    """Mergeable sums of Fourier modes over (X, y, w).

    They take 16 (4^d + t 2^d) m_1 ... m_d bytes, for any n.
    """

    rows: int  # n, number of rows with positive weight
    weight: float  # W = Σ w
    origin: Float[Array, " t"]  # o, subtracted from the targets
    total: Float[Array, " t"]  # Σ w (y − o)
    squares: Float[Array, " t"]  # Σ w (y − o)²
    gram: Array  # real and imaginary parts of t(k), k ascending
    cross: Array  # real and imaginary parts of b(k), per target

    def about(self, origin: Float[Array, " t"]) -> "ModeSums":
        """Return the same sums with another origin of the targets."""
        step = self.origin - origin
        cross = self.cross + step.reshape(-1, *(1,) * (self.cross.ndim - 1)) * _inner(
            self.gram, self.cross.shape[1:-1]
        )
        return replace(
            self,
            origin=origin,
            total=self.total + self.weight * step,
            squares=self.squares + 2 * step * self.total + self.weight * step**2,
            cross=cross,
        )

    def __add__(self, other: "ModeSums") -> "ModeSums":
        if self.cross.shape != other.cross.shape:
            raise IncompatibleModels(
                "Sums of Fourier modes must have the same targets and frequencies; got shapes "
                f"{self.cross.shape[:-1]} and {other.cross.shape[:-1]}. Fit both with the same "
                "kernel and FourierGrid(box=...), or SphericalHarmonics(degree)."
            )
        other = other.about(self.origin)
        names = ("rows", "weight", "total", "squares", "gram", "cross")
        sums: Any = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, **sums)


@dataclass(frozen=True, eq=False)
class BoxAngles:
    """Rows in a box as angles θ = spacing (x − centre), shifted or clipped into [−π, π]."""

    centre: Float[Array, " d"]
    spacing: Float[Array, " d"]
    # Half the size of the box; rows outside it cannot be summed. Infinite on periodic axes.
    half: Float[Array, " d"]
    # Angles beyond ±π are shifted by multiples of ``turns``, or clipped to ±π if it is 0.
    turns: Float[Array, " d"]

    def angles(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Return θ in float64, within ±π."""
        xp = array_namespace(X)
        X = xp.astype(X, xp.float64, copy=False)
        return wrap((X - adapt(self.centre, like=X)) * adapt(self.spacing, like=X), self.turns)

    @property
    def rates(self) -> Float[Array, " d"]:
        """∂θ/∂x of each column."""
        return self.spacing

    def require_inside(self, X: Float[Array, "n d"]) -> None:
        """Raise InvalidInput if a row is outside the box."""
        reach = self.half * (1 + 1e-6)  # corners of a box are rounded
        lowest, largest = corners(X)
        if np.any((lowest < self.centre - reach) | (largest > self.centre + reach)):
            row, column = np.argwhere(np.abs(X - self.centre) > reach)[0]
            low, high = (self.centre + side * self.half for side in (-1, 1))
            raise InvalidInput(
                f"FourierGrid: rows must lie in the box of the first rows, from {low[column]:.6g} "
                f"to {high[column]:.6g} in column {column} (counted from 0); got "
                f"{X[row, column]:.6g}. Pass a box=... that contains all future rows."
            )


@dataclass(frozen=True, eq=False)
class GlobeAngles:
    """Rows (latitude, longitude) in degrees as angles θ = (colatitude, longitude) in radians."""

    def angles(self, X: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
        self.require_inside(X)
        turns = X[:, 1].astype(np.float64) / 360
        longitude = 2 * np.pi * (turns - np.round(turns))
        latitude = np.clip(X[:, 0].astype(np.float64), -90.0, 90.0)
        return np.stack([np.deg2rad(90.0 - latitude), longitude], axis=1)

    @property
    def rates(self) -> Float[Array, " d"]:
        return np.deg2rad([-1.0, 1.0])

    def require_inside(self, X: Float[Array, "n 2"]) -> None:
        require_places("SphericalHarmonics", X)


#: Maps from rows to angles θ, whose modes e^{−i k·θ} are summed.
Angles = BoxAngles | GlobeAngles


def wrap(angles: Float[Array, "n d"], turns: Float[Array, " d"]) -> Float[Array, "n d"]:
    """Return angles within ±π: clipped, or shifted by multiples of ``turns`` if not 0."""
    xp = array_namespace(angles)
    nearest = xp.clip(angles, -math.pi, math.pi)
    if not turns.any():
        return nearest
    start = adapt(math.pi - turns / 2, like=angles)
    periods = adapt(np.where(turns > 0, turns, 1.0), like=angles)
    back = start + xp.remainder(angles - start, periods)
    back = xp.where(back > math.pi, back - 2 * math.pi, back)
    is_outside = (xp.abs(angles) > start) & (adapt(turns, like=angles) > 0)
    return xp.where(is_outside, back, nearest)


def modes_of(
    places: Angles, extent: tuple[int, ...], origin: Float[Array, " t"], error: float, block: Block
) -> ModeSums:
    """Return the sums of a block, by non-uniform FFTs of type 1.

    ``extent`` is m; ``error`` is the relative error of the transforms.
    """
    X = to_numpy(dense(block.X)).astype(np.float64, copy=False)
    y = to_numpy(block.y).astype(np.float64).reshape(len(X), -1)
    w = weights_of(block)
    if not w.all():  # rows of weight zero may lie outside the box
        X, y, w = X[w > 0], y[w > 0], w[w > 0]
    places.require_inside(X)
    angles, y = places.angles(X), y.T - origin[:, None]
    gram, cross = _modes(angles, w, y, extent, error)
    return ModeSums(len(w), float(w.sum()), origin, y @ w, y**2 @ w, gram, cross)


def _modes(
    angles: Array, w: Array, y: Array, extent: tuple[int, ...], error: float
) -> tuple[Array, Array]:
    """Return t(k) and b(k); a complex transform serves the weights and a target, or two targets."""
    scale = np.abs(y).max(axis=1, initial=0.0)
    scale = np.where(scale > 0, scale, 1.0)
    scaled = w * y / scale[:, None]
    double = tuple(2 * m for m in extent)
    gram, first = _separate(nufft(angles, (w + 1j * scaled[0])[None], error, double)[0])
    pairs = scaled[1:]
    if len(pairs) % 2:
        pairs = np.concatenate([pairs, np.zeros((1, len(w)))])
    parts = [_inner(first, tuple(2 * m + 1 for m in extent), last=0)]
    if len(pairs):
        transforms = nufft(angles, pairs[::2] + 1j * pairs[1::2], error, extent)
        parts += [part for transform in transforms for part in _separate(transform)]
    cross = np.stack(parts[: len(y)]) * scale.reshape(-1, *(1,) * parts[0].ndim)
    return _as_real(gram), _as_real(cross)


def as_complex(modes: Array) -> Array:
    """Return sums of modes as complex numbers."""
    return np.ascontiguousarray(modes).view(np.complex128)[..., 0]


def _as_real(modes: Array) -> Array:
    return np.ascontiguousarray(modes).view(np.float64).reshape(*modes.shape, 2)


def _separate(modes: Array) -> tuple[Array, Array]:
    """Return the transforms of real a and b from the transform of a + ib."""
    mirror = np.conj(np.flip(modes))
    return (modes + mirror) / 2, (modes - mirror) / 2j


def _inner(modes: Array, shape: tuple[int, ...], last: int = 1) -> Array:
    """Return the central part of this shape; the ``last`` axes are not cut."""
    starts = [(long - short) // 2 for long, short in zip(modes.shape, shape, strict=False)]
    cut = tuple(slice(a, a + length) for a, length in zip(starts, shape, strict=True))
    return modes[cut if last == 0 else (*cut, slice(None))]


def corners(X: Float[Array, "n d"]) -> Float[Array, "2 d"]:
    """Return the smallest and largest value of each column; a loop, faster for few columns."""
    lowest = [column.min(initial=np.inf) for column in X.T]
    return np.array([lowest, [column.max(initial=-np.inf) for column in X.T]])


def corners_of(block: Block) -> list[Float[Array, "2 d"]]:
    """Return [corners] of the rows of positive weight of a block; lists of blocks are joined."""
    X = to_numpy(dense(block.X)).astype(np.float64, copy=False)
    return [corners(X if block.w is None else X[to_numpy(block.w) > 0])]
