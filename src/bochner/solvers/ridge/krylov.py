"""Systems (G + αI)u = b for several penalties and right-hand sides, in one Krylov subspace.

G is available by products only, each a pass over rows, so the number of passes is minimised. The
system of each penalty is solved within the span of the current orthonormal directions S, T = GS,

    u = S (SᵀT + αI)⁻¹ Sᵀb,   r = b − Tu' − αu,   u' = Sᵀu,

which minimises the error over the span in the norm of G + αI. One decomposition of SᵀT serves all
penalties. A pass then multiplies the preconditioned residuals of all right-hand sides that have not
converged, and adds them to S. For one penalty this is block conjugate gradients (O'Leary 1980)
without recurrences; using the span for several systems is recycling (Parks et al. 2006).

Products may be float32. For a proven bound the residual is computed by float64 products; if it is
too large, the system with this residual on the right is solved, and the solutions are added.

G can also be the kernel matrix of rows (:func:`solve_kernel_systems`). Predictions of a solution u
with residual r differ, at any x, by at most

    √k(x, x) · min(√(rᵀP⁻¹r), |r|/(2√α))

from the exact ones; the first bound requires P ⪯ G + αI. With e = (G + α)⁻¹r the difference f has
|f|² = eᵀGe ≤ rᵀ(G + α)⁻¹r, and eᵀGe ≤ |r|²/(4α). If P = ZZᵀ + αI with ZZᵀ ⪯ G (Nyström, Mercer),
κ(P⁻¹(G + α)) ≤ 1 + Tr(G − ZZᵀ)/α.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bochner._core.blas import eigh
from bochner._core.shapes import Array, Float

MAX_BYTES = 384 << 20  # Largest memory of directions and products, in bytes
MIN_DROP = 1e-4  # Factor by which the residual falls before it is computed in float64


@dataclass(frozen=True, eq=False)
class KrylovSolution:
    """Result of the iteration."""

    u: Float[Array, "n t"]
    #: Bound on the error of predictions, in units of ``scale``.
    bound: Float[Array, " t"]
    converged: bool
    iterations: int
    history: tuple[str, ...]  # a line per solution in the span, and per float64 residual
    residual: Float[Array, "n t"]  # b − (G + α)u


def low_rank_inverse(
    Z: Float[Array, "n r"],
    values: Float[Array, " m"],
    vectors: Float[Array, "r m"],
    r: Float[Array, "n t"],
    alphas: Float[Array, " t"],
) -> Float[Array, "n t"]:
    """Return (ZZᵀ + α)⁻¹r = (r − Z V (s + α)⁻¹VᵀZᵀ r)/α, ZᵀZ = V diag(s) Vᵀ, one α per column.

    Products with Z have its dtype: float32 halves the time, and is accurate if its rounding error
    of ZᵀZ is far below α.
    """
    scale = np.abs(r).max(axis=0, initial=np.finfo(float).tiny)
    coef = vectors.T @ (Z.T @ (r / scale).astype(Z.dtype))
    coef /= values[:, None] + alphas
    image = Z @ (vectors @ coef).astype(Z.dtype)
    return (r - scale * image) / alphas


@dataclass(frozen=True, eq=False)
class ShiftedSystems:
    """The systems (G + α_j I)u_j = b_j."""

    right: Float[Array, "D c"]
    alphas: Float[Array, " c"]
    scale: Float[Array, " c"]  # unit of the error bounds

    def bound(
        self, residual: Float[Array, "D c"], z: Float[Array, "D c"] | None = None
    ) -> Float[Array, " c"]:
        """Return |r|/(2√α), or √(rᵀz) with z = P⁻¹r if this is less, in units of ``scale``."""
        size = np.sqrt((residual**2).sum(axis=0) / (4 * self.alphas))
        if z is not None:
            size = np.minimum(size, np.sqrt(np.maximum((residual * z).sum(axis=0), 0.0)))
        return np.divide(size, self.scale, out=np.zeros_like(size), where=self.scale > 0)


class GrowingSubspace:
    """Directions S, their products G S, and solutions within their span.

    ``multiply(V, precision)`` returns G V; ``n_sides`` right-hand sides share the directions.
    Directions and products take at most ``room`` bytes: before they exceed it, they are reduced to
    the span of the solutions and of the last directions. ``passes`` counts calls of ``multiply``.
    """

    def __init__(
        self,
        multiply: Callable[[Array, str], Array],
        n_features: int,
        n_sides: int,
        precision: str,
        room: int = MAX_BYTES,
    ) -> None:
        self.multiply, self.precision = multiply, precision
        self._max_vectors = max(12 * n_sides, room // (16 * n_features))
        self._S, self._T = np.empty((2, 0, n_features))
        self._H = np.zeros((0, 0))
        self.passes = 0

    def solve(
        self,
        systems: ShiftedSystems,
        precondition: Callable[[Array, Array], Array],
        tol: float,
        limit: int,
        proven: bool = True,
    ) -> KrylovSolution:
        """Return solutions with error bounds of at most ``tol``, or those after ``limit`` passes.

        ``precondition(r, alphas)`` returns P⁻¹ r for residuals r, with one penalty per column. The
        bounds are of √(eᵀGe) for the error e of a solution. With ``proven`` the bound is |r|/(2√α).
        Otherwise it is the smaller of this bound and √(rᵀP⁻¹r), which equals √(eᵀ(G + αI)e) if P
        equals G + αI.
        """
        end = self.passes + limit
        while True:
            u, r = self._project(systems)
            z = None if proven else precondition(r, systems.alphas)
            bound = systems.bound(r, z)
            if np.all(bound <= tol) or self.passes >= end:
                break
            columns = np.argsort(-bound, kind="stable")[: np.count_nonzero(bound > tol)]
            if len(self._S) + len(columns) > self._max_vectors:
                # Products of vectors in the span follow from the known products.
                span = np.column_stack([u, self._S[-len(columns) :].T])
                basis, _ = np.linalg.qr(self._S @ span)
                self._H = basis.T @ self._H @ basis
                self._S, self._T = basis.T @ self._S, basis.T @ self._T
            if z is None:
                z = np.empty_like(r)
                z[:, columns] = precondition(r[:, columns], systems.alphas[columns])
            if not self._extend(z[:, columns]):
                break
        history = (
            f"pass {self.passes}: predictions within {bound.max(initial=0.0):.2g} of the spread "
            f"({self.precision} products)"
        )
        return KrylovSolution(u, bound, bool(np.all(bound <= tol)), self.passes, (history,), r)

    def refine(
        self,
        systems: ShiftedSystems,
        precondition: Callable[[Array, Array], Array],
        tol: float,
        limit: int,
        proven: bool = True,
        drop: float = 0.0,
        start: KrylovSolution | None = None,
    ) -> tuple[KrylovSolution, float]:
        """Return the solution, and the largest error bound of the first float64 residual.

        Iterates until bounds are at most ``tol``, in at most ``limit`` passes. When they fall to
        ``drop`` times the last bound, the float64 residual becomes the right-hand side.
        """
        end, bounds, fails, history = self.passes + limit, list[float](), 0, list[str]()
        u, r = (start.u, start.residual) if start else (np.zeros_like(systems.right), systems.right)
        worst = float(systems.bound(r).max(initial=0.0))
        while True:
            residual_systems = replace(systems, right=r)
            target = max(tol, drop * worst)
            solution = self.solve(residual_systems, precondition, target, end - self.passes, proven)
            u = u + solution.u
            self.passes += 1
            r = systems.right - self.multiply(u, "float64") - systems.alphas * u
            bound = systems.bound(r, None if proven else precondition(r, systems.alphas))
            worst = float(bound.max(initial=0.0))
            history += [
                *solution.history,
                f"pass {self.passes}: within {worst:.2g} (exact residual)",
            ]
            fails += worst > 0.5 * min(bounds, default=np.inf)
            bounds.append(worst)
            if worst <= tol or fails >= 2 or self.passes >= end:
                final = KrylovSolution(u, bound, worst <= tol, self.passes, tuple(history), r)
                return final, bounds[0]

    def _project(self, systems: ShiftedSystems) -> tuple[Float[Array, "D c"], Float[Array, "D c"]]:
        """Return the solutions of least error within the span, and their residuals."""
        values, vectors = np.zeros(0), self._H
        if len(self._H):
            values, vectors = eigh(self._H, check_finite=False)
        projected = vectors.T @ (self._S @ systems.right)
        coef = vectors @ (projected / (np.maximum(values, 0.0)[:, None] + systems.alphas))
        u = self._S.T @ coef
        return u, systems.right - self._T.T @ coef - systems.alphas * u

    def _extend(self, V: Float[Array, "D c"]) -> bool:
        """Add the components of V orthogonal to the basis by a pass; return whether there are any.

        Components below 1e-6 of a direction are ignored.
        """
        S, size = self._S, np.linalg.norm(V, axis=0)
        Q = V.T[size > 0] / size[size > 0, None]
        for _ in range(2):
            Q = Q - (Q @ S.T) @ S
            values, vectors = np.linalg.eigh(Q @ Q.T)
            large = values > 1e-12
            Q = (vectors[:, large] / np.sqrt(values[large])).T @ Q
        Q = Q - (Q @ S.T) @ S
        if not len(Q):
            return False
        self.passes += 1
        product, k = self.multiply(np.ascontiguousarray(Q.T), self.precision).T, len(self._S)
        self._S = np.concatenate([self._S, Q])
        self._T = np.concatenate([self._T, product])
        products = product @ self._S.T
        edge, block = products[:, :k], products[:, k:]
        self._H = np.block([[self._H, edge.T], [edge, (block + block.T) / 2]])
        return True


def solve_kernel_systems(
    systems: ShiftedSystems,
    multiply: Callable[[Array, str], Array],
    single: bool,
    precondition: Callable[[Array, Array], Array],
    peak: float,
    tol: float = 1e-6,
    max_iter: int = 1000,
    ordered: bool = True,
) -> KrylovSolution:
    """Return the solutions for all targets; each product with the kernel matrix serves them all.

    ``multiply(V, precision)`` returns K V, last of the solutions in "float64". ``single``:
    whether "float32" may be used while its rounding error is far below the residual.
    ``precondition(r, alphas)`` returns P⁻¹ r, for the penalty of each column. ``peak`` is the
    largest √k(x, x). ``tol`` bounds the error of predictions, in units of ``systems.scale``.
    ``ordered``: whether P ⪯ K + αI.
    """
    n, t = systems.right.shape
    drop = float(np.finfo(np.float32).eps * peak**2 * np.sqrt(n) / systems.alphas.min())
    u, r = np.zeros_like(systems.right), systems.right
    best = KrylovSolution(u, systems.bound(r), False, 0, (), r)
    # float32 is not used if it cannot reduce residuals tenfold. At least 128 directions are stored:
    # 2 KB per row.
    for precision in ("float32", "float64")[not single or drop > 0.1 :]:
        space = GrowingSubspace(multiply, n, t, precision, max(MAX_BYTES, 16 * 128 * n))
        floor = max(MIN_DROP, drop) if precision == "float32" else MIN_DROP
        limit = max_iter - best.iterations
        step, _ = space.refine(systems, precondition, tol, limit, not ordered, floor, best)
        improves = step.bound <= best.bound
        u, r = np.where(improves, (step.u, step.residual), (best.u, best.residual))
        bound = np.minimum(step.bound, best.bound)
        passes, history = best.iterations + step.iterations, best.history + step.history
        best = KrylovSolution(u, bound, bool(np.all(bound <= tol)), passes, history, r)
        if best.converged:
            break
    if not np.all(improves):
        multiply(best.u, "float64")
    return best
