"""Leave-two-out errors from leave-one-out errors.

The leave-one-out error of row j comes from a fit that used row i, so it depends on the noise of
row i, most of all if the rows are near. A scale learned from errors around row i is then large
where the error of row i happens to be large, which is not so for a new row: leave-one-out scores
would be too small and intervals too short. Leave-two-out errors avoid this.

With M = (√w K √w + αI)⁻¹ of a ridge regression, u = M √w y and e° = u/diag(M), the errors √w e of
rows left out as a whole, the error of row j without rows i and j is

    e°_ji = (e°_j − (M_ij/M_jj) e°_i)/(1 − M_ij²/(M_ii M_jj)),

the block formula of cross-validation for two rows. Only ratios count: αM = I − H serves as M does.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bochner._core.shapes import Array, Float, Int

#: The least that two rows leave of one another: below this rounding makes it.
LEAST_LEFT = 1e-8

#: Rows whose pairs with all others are made together.
BAND = 64


class Coupling(ABC):
    """M of all rows, or a multiple of it, and what it leaves of the target."""

    u: Float[Array, " n"]  # M √w y, by the same multiple
    root: Float[Array, " n"]  # √w

    @property
    @abstractmethod
    def diagonal(self) -> Float[Array, " n"]:
        """Diagonal of M."""

    @abstractmethod
    def among(self, i: Int[Array, " s"], j: Int[Array, " m"]) -> Float[Array, "s m"]:
        """Return M_ij."""

    def without(
        self, i: Int[Array, " s"], j: Int[Array, " m"], errors: Float[Array, " m"]
    ) -> Float[Array, "s m"]:
        """Return the errors of rows j, each time without a row i too; the row's own as it is.

        With m = M_ij/M_jj and r = M_ij/M_ii they are e°_j + m (r e°_j − e°_i)/(1 − m r).
        """
        d_i, d_j = (np.maximum(self.diagonal[k], np.finfo(float).tiny) for k in (i, j))
        alone_i, alone_j = self.u[i] / d_i, self.u[j] / d_j
        found = np.empty((len(i), len(j)))
        for start in range(0, len(i), BAND):
            here = slice(start, start + BAND)
            share = self.among(i[here], j) / d_j
            back = share * (d_j / d_i[here, None])
            left = np.maximum(1 - share * back, LEAST_LEFT)
            back *= alone_j
            back -= alone_i[here, None]
            back *= share
            back /= left
            back /= self.root[j]
            back += errors
            own = i[here, None] == j
            found[here] = np.where(own | ~np.isfinite(back), errors, back)
        return found


@dataclass(frozen=True, eq=False)
class DenseCoupling(Coupling):
    """M, (n, n), as it is."""

    u: Float[Array, " n"]
    root: Float[Array, " n"]
    inverse: Float[Array, "n n"]

    @property
    def diagonal(self) -> Float[Array, " n"]:
        return np.diagonal(self.inverse)

    def among(self, i: Int[Array, " s"], j: Int[Array, " m"]) -> Float[Array, "s m"]:
        return self.inverse[np.ix_(i, j)]


@dataclass(frozen=True, eq=False)
class FactoredCoupling(Coupling):
    """I − H with H = F Fᵀ, F (n, r)."""

    u: Float[Array, " n"]
    root: Float[Array, " n"]
    factor: Float[Array, "n r"]

    @property
    def diagonal(self) -> Float[Array, " n"]:
        return 1 - np.einsum("ij,ij->i", self.factor, self.factor)

    def among(self, i: Int[Array, " s"], j: Int[Array, " m"]) -> Float[Array, "s m"]:
        return (i[:, None] == j) - self.factor[i] @ self.factor[j].T
