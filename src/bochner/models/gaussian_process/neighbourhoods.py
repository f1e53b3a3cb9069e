"""Rows that a process keeps, those nearest to a place, and the law of f given these."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from bochner._core.arrays import to_numpy
from bochner._core.checks import require_squares
from bochner._core.globe import require_places, unit_vectors
from bochner._core.shapes import Array, Float
from bochner._core.sizes import kept_rows
from bochner.data.blocks import Blocks
from bochner.data.sample import RowSample, row_priorities
from bochner.data.sources import required_targets
from bochner.errors import UnsupportedKernel
from bochner.features.widths import is_stationary
from bochner.kernels.algebra import Columns
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.sphere import globe_columns, is_on_sphere, of_points, of_points_beside
from bochner.kernels.stationary_families import Periodic
from bochner.models.representations.waves import as_rows
from bochner.solvers.neighbours import LocalLaw, condition

#: Numbers that are held at once, 8 MB.
HELD = 1 << 20

#: Rows whose densities noise and lengthscales are chosen by, at most.
JUDGED = 512


def is_near(kernel: Kernel) -> bool:
    """Whether k depends on x − y alone, of places on the globe as points of the sphere."""
    if is_on_sphere(kernel):
        return is_stationary(of_points(kernel))
    found = globe_columns(kernel)
    with suppress(UnsupportedKernel):
        return len(found) < 2 and is_stationary(
            of_points_beside(kernel, *found) if found else kernel
        )
    return False


def units_of(kernel: Kernel, d: int) -> Float[Array, " d"] | None:
    """Return the shortest lengthscale that a kernel has along each column; None where unknown."""
    match kernel:
        case Constant():
            return np.full(d, np.inf)
        case Sum() | Product():
            left, right = units_of(kernel.left, d), units_of(kernel.right, d)
            return None if left is None or right is None else np.minimum(left, right)
        case Scaled() | Power():
            return units_of(kernel.kernel, d)
        case Columns():
            within = units_of(kernel.kernel, len(kernel.columns))
            whole = np.full(d, np.inf)
            whole[list(kernel.columns)] = np.nan if within is None else within
            return None if within is None else whole
        case Periodic():
            periods, lengths = kernel.per_axis(d)
            return np.multiply(periods, lengths) / (2 * np.pi)
    length = kernel.get_params(deep=False).get("lengthscale")
    return None if length is None else np.broadcast_to(np.asarray(length, dtype=float), d)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """All rows of positive weight, and how many were read."""

    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    priority: Float[Array, " n"]  # Random, of the numbers of the rows: which of them are looked at
    rows: int
    target_shape: tuple[int, ...]

    @staticmethod
    def of(who: str, blocks: Blocks, seed: int, start: int = 0) -> "KeptRows":
        """Read all blocks, after ``start`` rows."""
        shape = required_targets(who, blocks.target_shape)
        X, y, w = [], [], []
        for block in blocks:
            n = block.X.shape[0]
            X.append(as_rows(block.X))
            y.append(to_numpy(block.y).astype(np.float64).reshape(n, -1))
            w.append(np.ones(n) if block.w is None else to_numpy(block.w).astype(np.float64))
        weights = np.concatenate(w)
        kept = np.flatnonzero(weights > 0)
        rows = np.concatenate(X)[kept], np.concatenate(y)[kept], weights[kept]
        require_squares(who, *rows[1:])
        n = len(weights)
        return KeptRows(*rows, row_priorities(seed, start, n)[kept], n, shape)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def moments(self) -> None:
        """No moments of features: there are none."""

    @property
    def seen(self) -> None:
        """No moments of features: there are none."""

    @property
    def sample(self) -> RowSample:
        """Some rows at random."""
        whole = RowSample(self.X, self.y, self.w, self.priority)
        return whole.lowest(kept_rows(self.X.shape[1]))

    @property
    def blocks(self) -> Blocks:
        """The rows, to be read again."""
        y = self.y.reshape(len(self), *self.target_shape)
        return Blocks.from_arrays(self.X, y, self.w)

    def merge(self, other: "KeptRows") -> "KeptRows":
        """Return the rows of both."""
        pairs = zip(self._arrays, other._arrays, strict=True)
        X, y, w, priority = (np.concatenate(pair) for pair in pairs)
        return KeptRows(X, y, w, priority, self.rows + other.rows, self.target_shape)

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return self.X, self.y, self.w, self.priority


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Rows with targets, and a kernel: which rows are near, and the law of f given these."""

    kernel: Kernel
    X: Float[Array, "n d"]
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    count: int  # Neighbours of each row, m
    centred: bool

    @cached_property
    def _units(self) -> Any:
        """Lengthscales of the columns, or 1."""
        lengths = units_of(self._of_steps, self._own_places.shape[1])
        return 1.0 if lengths is None or not np.isfinite(lengths).any() else lengths

    @cached_property
    def _globe(self) -> tuple[int, ...] | None:
        """Columns of latitude and longitude."""
        return next(iter(globe_columns(self.kernel)), None)

    @cached_property
    def _of_steps(self) -> Kernel:
        """The kernel, of places in space where they are places on the globe."""
        if self._globe is None:
            return self.kernel
        alone = is_on_sphere(self.kernel)
        return of_points(self.kernel) if alone else of_points_beside(self.kernel, self._globe)

    def _places(self, X: Float[Array, "b d"]) -> Float[Array, "b e"]:
        """Return rows as distances are measured between: on the globe, points of the sphere."""
        if self._globe is None:
            return X
        if is_on_sphere(self.kernel):
            require_places("NearestNeighbours", X)
        on_globe = X[:, list(self._globe)]
        require_places("NearestNeighbours", on_globe)
        others = np.delete(X, list(self._globe), axis=1)
        return np.concatenate([unit_vectors(on_globe), others], axis=1)

    @cached_property
    def _own_places(self) -> Float[Array, "n e"]:
        return self._places(self.X)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._own_places / self._units)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the tree, which skops cannot store."""
        return {name: part for name, part in vars(self).items() if name != "_tree"}

    def near(self, X: Float[Array, "b d"]) -> Array:
        """Return the numbers of the rows nearest to each of these, (b, m)."""
        m = min(self.count, len(self.X))
        return self._tree.query(self._places(X) / self._units, m)[1].reshape(len(X), m)

    def near_without(self, own: Array) -> Array:
        """Return the numbers of the rows nearest to some of the rows, themselves left out."""
        m = min(self.count, len(self.X) - 1)
        found = self._tree.query(self._own_places[own] / self._units, m + 1)[1]
        itself = found == own[:, None]
        itself[~itself.any(axis=1), -1] = True  # among more than m rows at one place
        return found[~itself].reshape(len(own), m)

    def law(self, X: Float[Array, "b d"], near: Array, noise: float) -> LocalLaw:
        """Return the law of f at rows given their neighbours; noise as a share of the amplitude."""
        size = max(1, HELD // (near.shape[1] ** 2 * (X.shape[1] + 4)))
        parts = [slice(start, start + size) for start in range(0, len(X), size)]
        at = self._places(X)
        laws = [self._law(at[part], near[part], noise) for part in parts]
        return LocalLaw(*(np.concatenate(values) for values in zip(*laws, strict=True)))

    def _law(self, X: Array, near: Array, noise: float) -> LocalLaw:
        places = self._own_places[near]
        m = near.shape[1]
        i, j = np.tril_indices(m)
        between = self._values(places[:, i] - places[:, j])
        K = np.empty((len(X), m, m))
        K[:, i, j] = K[:, j, i] = between
        k = self._values(places - X[:, None])
        own = np.broadcast_to(self.whole, len(X))
        return condition(K, k, own, self.y[near], noise / self.w[near], self.centred)

    def _values(self, steps: Float[Array, "b p d"]) -> Float[Array, "b p"]:
        """Return the kernel of rows so far apart."""
        d = steps.shape[2]
        return self._of_steps(steps.reshape(-1, d), np.zeros((1, d))).reshape(steps.shape[:2])

    @cached_property
    def whole(self) -> float:
        """k(x, x)."""
        return float(self.kernel.diag(np.zeros((1, self.X.shape[1])))[0])
