"""A user's own function as a kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from bochner._core.arrays import array_namespace, device
from bochner._core.shapes import Array, Float
from bochner.kernels.callables import answer, name_of, require_function
from bochner.kernels.kernel import Kernel

BLOCK = 64
"""Rows of one block of the diagonal, where it has no function of its own."""


@final
@dataclass(frozen=True)
class Custom(Kernel):
    """A kernel that is a function of your own: k(X, Y) = function(X, Y).

    ``Nystrom(...)`` and all that needs only kernel values serve it. Whether the function is a
    kernel is yours to see to: :func:`bochner.check_kernel` says what is wrong with it.

    Parameters
    ----------
    function : callable
        Takes rows X (n, d) and Y (m, d), arrays of the caller's library in one precision, and
        returns the matrix (n, m) of all pairs. scikit-learn's pairwise kernels are such functions.
    diagonal_of : callable, optional
        Takes X and returns the n values k(x, x); by default these are picked from the matrices of
        64 rows at a time.

    Notes
    -----
    Two such kernels are equal if their functions are the same objects. A model file cannot hold a
    function; a model with this kernel can be pickled if the function can be.
    """

    function: Callable[[Array, Array], Array]
    diagonal_of: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        require_function(self.function, "Custom", "function")
        if self.diagonal_of is not None:
            require_function(self.diagonal_of, "Custom", "diagonal_of")

    def __repr__(self) -> str:
        own = "" if self.diagonal_of is None else f", diagonal_of={name_of(self.diagonal_of)}"
        return f"Custom(function={name_of(self.function)}{own})"

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return answer(self.function(X, Y), (X.shape[0], Y.shape[0]), X, "Custom")

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        if self.diagonal_of is not None:
            return answer(self.diagonal_of(X), (X.shape[0],), X, "Custom")
        n = X.shape[0]
        starts = range(0, max(n, 1), BLOCK)
        blocks = [X[start : min(start + BLOCK, n), :] for start in starts]
        parts = [_picked(self.evaluate(rows, rows)) for rows in blocks]
        return array_namespace(*parts).concat(parts)


def _picked(K: Float[Array, "n n"]) -> Float[Array, " n"]:
    xp = array_namespace(K)
    return xp.sum(K * xp.eye(K.shape[0], dtype=K.dtype, device=device(K)), axis=1)
