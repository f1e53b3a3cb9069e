"""Preconditioned conjugate gradients for several right-hand sides that share their products."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bochner._ground.shapes import Array, Float

__all__ = ["Steps", "conjugate_gradients", "inner"]


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
        One right-hand side a row.
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
        bent = inner(p, q, joint)
        step = np.divide(rho[rows], bent, out=np.zeros_like(bent), where=bent > 0)[:, None]
        x[rows] += step * p
        r[rows] -= step * q
        z = precondition(r[rows], rows)
        new = inner(r[rows], z, joint)
        going = (new > target[rows]) & (bent > 0)
        p = (z + (new / rho[rows])[:, None] * p)[going]
        rho[rows] = new
        rows = rows[going]
    return Steps(x, products)
