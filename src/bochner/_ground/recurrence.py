"""Three-term recurrences over rows: compiled loops, each with its twin on whole columns.

The twins run on arrays of any library, and are what other libraries than NumPy use.
"""

from typing import Any, NamedTuple

import numpy as np

from bochner._ground.arrays import array_namespace
from bochner._ground.native import _loops, _room, _row_blocks, get_num_threads
from bochner._ground.shapes import Array, Float

__all__ = [
    "Programme",
    "harmonics",
    "harmonics_twin",
    "polynomials",
    "polynomials_twin",
]


class Programme(NamedTuple):
    """A straight-line programme over rows: each value is made of two earlier ones.

    Value 0 is 1, and each other value v is factors[v, 0] w[inputs[v, 0]] value[parents[v, 0]] plus
    the same with index 1, where w are the d coordinates of a row and then their d cumulative sums
    of squares.

    Attributes
    ----------
    parents, inputs : (nodes, 2) int32
        A parent comes before its child.
    factors : (nodes, 2) float64
    """

    parents: np.ndarray
    inputs: np.ndarray
    factors: np.ndarray


def polynomials(
    X: Float[Array, "n d"],
    W: Float[Array, "d m"],
    radial: Float[Array, "n f q"],
    up: Float[Array, " q"],
    down: Float[Array, " q"],
    out: Float[Array, "n fm"] | None = None,
) -> Float[Array, "n fm"]:
    """Compute Σ_l radial[i, f, l] p_l(⟨x_i, w_j⟩) for each row i, function f and column j of W.

    p_0 = 1, p_{l+1}(t) = up_l t p_l − down_l p_{l−1}; inner products are clipped to [−1, 1].
    Function f fills the m columns from f·m on. Costs n m (d + (3 + 2 f) q) operations; nothing but
    the result is written to memory.
    """
    out = _room(out, X, radial.shape[1] * W.shape[1])
    if (loops := _loops()) is not None:
        loops.polynomials(X, W, radial, up, down, out, get_num_threads())
        return out
    for rows in _row_blocks(X, 4 * W.shape[1]):
        out[rows] = polynomials_twin(X[rows], W, radial[rows], up, down)
    return out


def polynomials_twin(X: Array, W: Array, radial: Array, up: Array, down: Array) -> Array:
    """Do what `polynomials` does, one degree after the other, on arrays of any library."""
    xp = array_namespace(X)
    t = xp.clip(X @ W, -1.0, 1.0)
    p, before = xp.ones_like(t), xp.zeros_like(t)
    sums = [radial[:, f, :1] * p for f in range(radial.shape[1])]
    for l in range(up.shape[0]):
        p, before = float(up[l]) * t * p - float(down[l]) * before, p
        sums = [s + radial[:, f, l + 1 : l + 2] * p for f, s in enumerate(sums)]
    return xp.concat(sums, axis=1)


def harmonics(
    U: Float[Array, "n d"],
    programme: Programme,
    radial: Float[Array, "n b"],
    first: np.ndarray,
    count: np.ndarray,
    out: Float[Array, "n D"] | None = None,
) -> Float[Array, "n D"]:
    """Compute blocks of a programme's values, each times a factor of its row, side by side.

    Block b is radial[:, b] times values first[b], ..., first[b] + count[b] − 1. Costs about 4
    operations a value and one a column of the result.
    """
    out = _room(out, U, int(count.sum()))
    if (loops := _loops()) is not None:
        factors = programme.factors.astype(U.dtype, copy=False)
        plan = (programme.parents, programme.inputs, factors)
        loops.harmonics(U, *plan, radial, first, count, out, get_num_threads())
        return out
    for rows in _row_blocks(U, 4 * len(programme.factors) + out.shape[1]):
        out[rows] = harmonics_twin(U[rows], programme, radial[rows], first, count)
    return out


def harmonics_twin(
    U: Array, programme: Programme, radial: Array, first: np.ndarray, count: np.ndarray
) -> Array:
    """Do what `harmonics` does, one value of all rows after the other, in any library."""
    xp = array_namespace(U)
    values = _values(xp, U, programme)
    columns = [
        radial[:, b] * values[node]
        for b, (start, size) in enumerate(zip(first.tolist(), count.tolist(), strict=True))
        for node in range(start, start + size)
    ]
    return xp.stack(columns, axis=1) if columns else U[:, :0]


def _values(xp: Any, U: Array, programme: Programme) -> list[Array]:
    w = [U[:, j] for j in range(U.shape[1])]
    squares = [w[0] * w[0]]
    for x in w[1:]:
        squares.append(squares[-1] + x * x)
    w += squares
    values = [xp.ones_like(w[0])]
    steps = zip(*(part.tolist() for part in programme), strict=True)
    next(steps)
    for (p, q), (u, v), (a, b) in steps:
        value = a * w[u] * values[p]
        values.append(value + b * w[v] * values[q] if b else value)
    return values
