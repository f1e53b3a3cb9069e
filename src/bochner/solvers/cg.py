"""(A + αI)u = b for the kernel matrix of the rows: conjugate gradients, preconditioned by features.

A is the kernel matrix as a fit sees it: weighted by √w on both sides, and without the direction
√w where an intercept takes that direction up. With features Z of the same rows, seen the same
way, the preconditioner is P = ZZᵀ + αI, applied through ZᵀZ = V diag(s) Vᵀ:

    P⁻¹ r = (r − ZV (s + α)⁻¹ VᵀZᵀ r)/α.

If ZZᵀ ⪯ A (Nyström, Mercer), κ(P⁻¹(A + α)) ≤ 1 + Tr(A − ZZᵀ)/α, and the residual bounds what is
left: a solution u with residual r predicts, at any x, within

    √k(x, x) · min(√(rᵀP⁻¹r), |r|/(2√α))

of the exact one, because the difference f has |f|² = eᵀAe ≤ rᵀ(A + α)⁻¹r, e = (A + α)⁻¹r, and
eᵀAe ≤ |r|²/(4α). That bound, and not the residual, decides when to stop.

Products may be cheap and a little wrong (tiles in float32): whenever the residual has fallen far
enough for that to matter it is computed again, exactly (van der Vorst and Ye 2000), and only such
a residual ends the iteration. A cheap product that no longer helps is not used again.

Rounding, and residuals that are replaced, make new directions forget those before the last, and
what was solved must be solved again (Notay 2000 keeps them all): each is made conjugate to as many
as there is room for, which costs next to nothing beside a product with A.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.native import radial_product
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput

Multiply = Callable[[Array], Array]

#: Rounding of float32.
SINGLE = float(np.finfo(np.float32).eps)

#: Factor by which the residual falls between exact residuals, at least and at most: products so
#: rough that it could fall less are not worth their exact ones.
LEAST_DROP, MOST_DROP = 1e-4, 0.1

#: Share of the tolerance that ends the steps: the exact residual may still be more.
NEARLY = 0.8

#: Steps after which the residual is computed again, however slowly it falls.
MOST_STEPS = 100

#: Factor by which a residual may rise on its way: more is rounding that grows.
MOST_RISE = 100.0

#: Exact residuals that may fail to fall by a half.
PATIENCE = 3

#: Directions that are kept, of all targets together: 2 KB a row.
KEPT = 128


@dataclass(frozen=True, eq=False)
class System:
    """(A + α_j I) u_j = b_j for t targets."""

    exact: Multiply  # (n, t) to A times it
    rough: Multiply  # the same, cheaply; the same function where there is no cheap way
    right: Float[Array, "n t"]  # b
    alphas: Float[Array, " t"]
    peak: float  # largest √k(x, x), by which the bound on predictions is scaled
    scale: Float[Array, " t"]  # what a prediction's error is measured by: the spread of each target

    def residual(self, u: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return b − (A + α)u."""
        return self.right - self.exact(u) - self.alphas * u


@dataclass(frozen=True, eq=False)
class FeaturePreconditioner:
    """P⁻¹ from features and the eigendecomposition of their Gram."""

    #: Features of the rows, as the system sees them. float32 halves the time, and serves where its
    #: rounding of ZᵀZ is little beside α.
    Z: Float[Array, "n r"]
    values: Float[Array, " m"]  # eigenvalues of ZᵀZ
    vectors: Float[Array, "r m"]
    alphas: Float[Array, " t"]

    def __call__(self, r: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return P⁻¹ r, in O(n r t)."""
        scale = np.abs(r).max(axis=0, initial=np.finfo(float).tiny)
        inside = self.vectors.T @ (self.Z.T @ (r / scale).astype(self.Z.dtype))
        inside /= self.values[:, None] + self.alphas
        within = self.Z @ (self.vectors @ inside).astype(self.Z.dtype)
        return (r - scale * within) / self.alphas


@dataclass(frozen=True, eq=False)
class Found:
    """What the iteration found."""

    u: Float[Array, "n t"]
    #: Predictions differ from the exact ones by no more, in units of ``scale``.
    bound: Float[Array, " t"]
    converged: bool
    iterations: int
    history: tuple[str, ...]  # one line for each exact residual
    residual: Float[Array, "n t"]  # b − (A + α)u


def solve_system(
    system: System,
    precondition: Multiply,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    ordered: bool = True,
) -> Found:
    """Solve for all targets at once; each product with A serves all of them.

    Parameters
    ----------
    system : System
    precondition : callable
        (n, t) to P⁻¹ times it.
    tol : float, default 1e-6
        Bound on the error of predictions, in units of the spread of the target.
    max_iter : int, default 1000
    ordered : bool, default True
        Whether P ⪯ A + α, so that rᵀP⁻¹r bounds the error.

    Returns
    -------
    Found
        Not converged where ``max_iter`` was reached, or exact residuals stopped falling.
    """
    run = _Run(system, precondition, tol, ordered)
    bound = run.bound()
    while np.any(bound > tol) and run.iterations < max_iter and run.fails < PATIENCE:
        moved = run.step(bound > tol)
        if not moved or run.iterations == max_iter:
            bound = run.replace()
    done, history = bool(np.all(bound <= tol)), tuple(run.history)
    return Found(run.u, bound, done, run.iterations, history, run.r)


class _Conjugates:
    """The last directions p of each target, q = (A + α)p, and pᵀq."""

    def __init__(self, n: int, t: int) -> None:
        self.most = max(1, KEPT // max(1, t))
        self.p, self.q = np.empty((2, t, self.most, n))
        self.curvatures = np.ones((t, self.most))
        self.count = 0

    def conjugate(self, z: Float[Array, "n t"]) -> Float[Array, "n t"]:
        """Return z without what is not conjugate to the directions kept."""
        kept = slice(0, min(self.count, self.most))
        shares = (self.q[:, kept] @ z.T[:, :, None])[..., 0] / self.curvatures[:, kept]
        return z - (shares[:, None] @ self.p[:, kept])[:, 0].T

    def step(
        self, r: Float[Array, "n t"], moves: Array
    ) -> tuple[Float[Array, "n t"], Float[Array, "n t"]]:
        """Return the step that leaves of r nothing along the directions kept, and A + α times it.

        Along those before the last there is something only where r was replaced, or rounded.
        """
        kept = slice(0, min(self.count, self.most))
        lengths = (self.p[:, kept] @ r.T[:, :, None])[..., 0] / self.curvatures[:, kept]
        lengths = np.where(moves[:, None], lengths, 0.0)[:, None]
        return (lengths @ self.p[:, kept])[:, 0].T, (lengths @ self.q[:, kept])[:, 0].T

    def keep(self, p: Float[Array, "n t"], q: Float[Array, "n t"], moves: Array) -> None:
        """Keep the directions of the targets that move, in the place of the oldest."""
        place = self.count % self.most
        self.p[:, place], self.q[:, place] = np.where(moves, p, 0.0).T, np.where(moves, q, 0.0).T
        self.curvatures[:, place] = np.where(moves, (p * q).sum(axis=0), 1.0)
        self.count += 1


class _Run:
    """The iterates, by directions each conjugate to those before: residuals may be replaced.

    A column whose residual has fallen as far as it can be trusted waits for the exact one.
    """

    def __init__(self, system: System, precondition: Multiply, tol: float, ordered: bool) -> None:
        self.system, self.precondition = system, precondition
        self.tol, self.ordered = tol, ordered
        self.iterations = self.steps = self.fails = 0
        self.history: list[str] = []
        right = system.right
        self.cheap = system.rough is not system.exact and self._rounding() <= MOST_DROP
        self.u, self.r = np.zeros_like(right), right.copy()
        self._precondition()
        self.past, self.since = _Conjugates(*right.shape), self._length()
        self.best = self.bound()
        self.waiting = np.zeros(right.shape[1], bool)
        self.kept = self.u.copy()

    def step(self, active: Array) -> bool:
        """Take a step in the active columns, and say whether another makes sense."""
        system = self.system
        multiply = system.rough if self.cheap else system.exact
        p = self.past.conjugate(self.z)
        q = multiply(p) + system.alphas * p
        moves = active & ~self.waiting & ((p * q).sum(axis=0) > 0)
        self.past.keep(p, q, moves)
        step, change = self.past.step(self.r, moves)
        self.u, self.r = self.u + step, self.r - change
        self._precondition()
        self.iterations, self.steps = self.iterations + 1, self.steps + 1
        self.waiting |= self._far_enough() | ~moves
        return not np.all(self.waiting) and self.steps < MOST_STEPS

    def _far_enough(self) -> Array:
        """Whether each residual has fallen as far as it can be trusted, or to the end, or risen."""
        drop = max(LEAST_DROP, self._rounding()) if self.cheap else LEAST_DROP
        length = self._length()
        fallen = length <= drop * self.since
        return fallen | (self.bound() <= NEARLY * self.tol) | (length > MOST_RISE * self.since)

    def replace(self) -> Array:
        """Compute the residual again, exactly; give up cheap products, or all, where it is stuck.

        Returns
        -------
        bound : (t,)
        """
        self.r = self.system.residual(self.u)
        self._precondition()
        bound = self.bound()
        self._note(bound)
        stuck = (bound > self.tol) & (bound > 0.5 * self.best)
        if np.any(stuck):
            self._go_back(bound >= self.best)
            bound = self.bound()
            self.fails += not self.cheap
            self.cheap, self.past.count = False, 0
        self.best, self.since = np.minimum(self.best, bound), self._length()
        self.kept = self.u.copy()
        self.waiting[:], self.steps = False, 0
        return bound

    def _go_back(self, worse: Array) -> None:
        """Take up again what was better."""
        self.u = np.where(worse, self.kept, self.u)
        self.r = self.system.residual(self.u)
        self._precondition()

    def bound(self) -> Array:
        """Bound on the error of any prediction, in units of the spread."""
        system = self.system
        norm = np.sqrt((self.r**2).sum(axis=0) / (4 * system.alphas))
        norm = np.minimum(norm, self._length()) if self.ordered else norm
        return np.divide(
            system.peak * norm, system.scale, out=np.zeros_like(norm), where=system.scale > 0
        )

    def _precondition(self) -> None:
        self.z = self.precondition(self.r)

    def _length(self) -> Array:
        """√(rᵀP⁻¹r)."""
        return np.sqrt(np.maximum((self.r * self.z).sum(axis=0), 0.0))

    def _rounding(self) -> float:
        """How far residuals fall at most by products whose entries are rounded to float32."""
        system = self.system
        noise = SINGLE * system.peak**2 * np.sqrt(len(system.right)) / float(system.alphas.min())
        return float(noise)

    def _note(self, bound: Array) -> None:
        kind = "float32" if self.cheap else "float64"
        self.history.append(
            f"iteration {self.iterations}: predictions within {bound.max():.2g} of the spread "
            f"({kind} products)"
        )


# --- Preconditioned conjugate gradients for several right-hand sides that share their products ---


class Steps(NamedTuple):
    """Approximate solutions (t, p), and the number of products."""

    solution: Float[Array, "t p"]
    products: int


def inner(A: Float[Array, "t p"], B: Float[Array, "t p"], joint: bool) -> Float[Array, " t"]:
    """Return the inner product of each row, or of all rows together in every place."""
    rows = np.einsum("ij,ij->i", A, B)
    return np.full(len(rows), rows.sum()) if joint else rows


def conjugate_gradients(
    operator: Callable[[Float[Array, "u p"], Array], Float[Array, "u p"]],
    right: Float[Array, "t p"],
    precondition: Callable[[Float[Array, "u p"], Array], Float[Array, "u p"]],
    shares: Float[Array, " t"],
    most: int,
    joint: bool = False,
) -> Steps:
    """Solve H x = right from zero, until the residual is ``shares`` of what it was.

    Parameters
    ----------
    operator : callable
        ``operator(V, rows)``: the Hessians of these rows' problems times the rows of V, (u, p).
    right : (t, p)
        One right-hand side per row.
    precondition : callable
        ``precondition(V, rows)``: approximate inverses, symmetric and positive, likewise.
    shares : (t,)
        Of the residual's norm in the preconditioner's inner product.
    most : int
        Products at most.
    joint : bool, default False
        Whether all rows are one problem. Otherwise each is its own, with its own steps, and a row
        that is done takes no part in further products.
    """
    x, r = np.zeros_like(right), right.copy()
    z = precondition(r, np.arange(len(r)))
    rho = inner(r, z, joint)
    target = shares**2 * rho
    p, rows, products = z, np.flatnonzero(rho > 0), 0
    p = p[rows]
    while len(rows) and products < most:
        q = operator(p, rows)
        products += 1
        curvature = inner(p, q, joint)
        step = np.divide(rho[rows], curvature, out=np.zeros_like(curvature), where=curvature > 0)[
            :, None
        ]
        x[rows] += step * p
        r[rows] -= step * q
        z = precondition(r[rows], rows)
        new = inner(r[rows], z, joint)
        going = (new > target[rows]) & (curvature > 0)
        p = (z + (new / rho[rows])[:, None] * p)[going]
        rho[rows] = new
        rows = rows[going]
    return Steps(x, products)


# --- The kernel matrix as an operator: products with it, a tile at a time, and never the matrix

#: Rows and columns of a tile: 8 MB in float64, whose product costs little beside its entries.
TILE = 1024

#: Rows whose kernel values tell whether float32 serves, and how close they must be.
LOOKED_AT, CLOSE = 64, 1e-3

Tiles = Callable[[Array, Array], Array]
Precision = Literal["float32", "float64"]


class KernelOperator:
    """Products K V of the n × n kernel matrix of some rows, which is never stored.

    Tiles on and above the diagonal are recomputed for each product, and each serves twice, as
    itself and transposed: n²/2 kernel values a product.

    Parameters
    ----------
    tiles : callable
        ``tiles(A, B)`` gives the kernel matrix of checked rows, in their precision.
    X : (n, d) float64
        Rows, dense or CSR.
    tile : int, default 1024
        Rows and columns of a tile.
    moved : bool, default False
        Whether rows may be moved together: float32 then holds them about their mean, and loses
        less. True for kernels of x − y.
    loop : (str, float), optional
        Profile and parameter of the compiled loop, where tiles are nothing else: then values are
        multiplied as they are made, and there are no tiles.

    Attributes
    ----------
    n : int
    products : dict of str to int
        Products that were asked for, by precision of the tiles.
    entries : int
        Kernel values that were asked for.

    Notes
    -----
    Tiles in float32 take half of the time or less. Sums over a tile are of
    its precision, sums over tiles float64 always. Memory: a few tiles.
    """

    def __init__(
        self,
        tiles: Tiles,
        X: Float[Array, "n d"],
        tile: int = TILE,
        moved: bool = False,
        loop: tuple[str, float] | None = None,
    ) -> None:
        self._loop = loop
        self._tiles = tiles
        self._moved = moved
        self._X = X
        self._tile = tile
        self.n = X.shape[0]
        self.products = {"float32": 0, "float64": 0}
        self.entries = 0

    @cached_property
    def single(self) -> bool:
        """Whether float32 serves: rows are numbers in it, and a few kernel values are as right."""
        few = slice(0, None, max(1, self.n // LOOKED_AT))
        rows, rounded = (A[few].copy() for A in (self._X, self._single_rows))
        right = self._tiles(rows, rows)
        with np.errstate(all="ignore"):
            try:
                found = self._tiles(rounded, rounded)
            except InvalidInput:
                return False
        return bool(np.abs(found - right).max() <= CLOSE * np.abs(right).max())

    def product(
        self, V: Float[Array, "n t"], precision: Precision = "float64"
    ) -> Float[Array, "n t"]:
        """Return K V in float64, by tiles of this precision."""
        X = self._rows(precision)
        scale = np.abs(V).max(axis=0, initial=0.0)
        scale[scale == 0] = 1.0
        small = np.ascontiguousarray(V / scale, dtype=precision)
        self.products[precision] += 1
        if self._loop is not None:
            self.entries += self.n * (self.n + 1) // 2
            return radial_product(X, small, *self._loop) * scale
        total = np.zeros(V.shape)
        for start in range(0, self.n, self._tile):
            self._add_row_of_tiles(X, small, start, total)
        return total * scale

    def _add_row_of_tiles(self, X: Array, V: Array, start: int, total: Array) -> None:
        here = slice(start, min(start + self._tile, self.n))
        for other in range(start, self.n, self._tile):
            there = slice(other, min(other + self._tile, self.n))
            K = self._tiles(X[here], X[there])
            self.entries += K.size
            total[here] += K @ V[there]
            if other > start:
                total[there] += K.T @ V[here]

    def _rows(self, precision: Precision) -> Array:
        return self._X if precision == "float64" else self._single_rows

    @cached_property
    def _single_rows(self) -> Array:
        moved = self._moved and not is_sparse(self._X)
        with np.errstate(over="ignore"):
            return (self._X - self._X.mean(axis=0) if moved else self._X).astype(np.float32)
