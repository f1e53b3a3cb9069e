"""Kernel ridge regression on landmarks as a linear smoother, with its hat matrix.

With features φ of the landmarks about their mean, φ̄, Σ w φφᵀ = V diag(λ) Vᵀ and a = Vᵀ(φ − φ̄),

    f(z) = Σ_j H_j(z) y_j,   H_j(z) = w_j (a(z)·(a_j/(λ + α)) + 1/W),

and without row i its value there is Σ_{j≠i} H_ij y_j/(1 − H_ii).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core.blas import product
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import Nystrom, draw_nystrom
from bochner.kernels.kernel import Kernel
from bochner.models._kernel_sum import KernelSum
from bochner.solvers.ridge.eigen import decompose
from bochner.solvers.ridge.path import solve_ridge
from bochner.sums.moments import Moments

#: Largest number of landmarks: smooth functions need few.
LANDMARKS = 256

#: Rows whose errors without themselves the penalty is chosen by, about.
JUDGED = 1024

#: Floor for 1 − h_ii; smaller values are rounding error.
LEAST_LEFT = 1e-8


@dataclass(frozen=True, eq=False)
class LandmarkSmoother:
    """A ridge regression on landmarks, its penalty chosen by leave-one-out errors."""

    sum: KernelSum  # z ↦ f(z), of the kernel and each landmark
    phi: FeatureMap
    mean: Float[Array, " r"]  # φ̄
    turn: Float[Array, "r r"]  # V/√(λ + α): products of turned features are those with 1/(λ + α)
    turned: Float[Array, "m r"]  # (φ − φ̄)V/√(λ + α) of the rows
    y: Float[Array, "m t"]
    w: Float[Array, " m"]

    @staticmethod
    def of(
        kernel: Kernel,
        z: Float[Array, "m k"],
        y: Float[Array, "m t"],
        w: Float[Array, " m"],
        seed: int,
    ) -> "LandmarkSmoother":
        """Return the regression of targets of rows; O(m r² + r³)."""
        phi = draw_nystrom(Nystrom(), kernel, Request(z.shape[1], LANDMARKS, seed, X=z))
        Z = phi(z)
        moments = Moments.of(Z, y, w)
        mean, about = moments.feature_mean, moments.target_mean
        Z -= mean
        eigen = decompose(moments)
        some = slice(None, None, -(-len(w) // JUDGED))
        judged = Z[some], y[some] - about, w[some]
        solution = solve_ridge(eigen, (mean, about), "loo", [judged])
        turn = eigen.vectors / np.sqrt(eigen.values + float(solution.alpha))
        coef = phi.root(np.dtype(np.float64)) @ solution.coef
        found = KernelSum(kernel, phi.landmarks, coef, solution.intercept)
        return LandmarkSmoother(found, phi, mean, turn, product(Z, turn), y, w)

    def shares(self, z: Float[Array, "b k"]) -> Float[Array, "b m"]:
        """Return H(z); O(b m r)."""
        return self._shares(product(self.phi(z) - self.mean, self.turn))

    def _shares(self, turned: Float[Array, "b r"]) -> Float[Array, "b m"]:
        """Return H in float32: no row of ``turned`` is longer than one, so products keep digits."""
        H = product(turned.astype(np.float32), self._single)
        H += np.float32(1 / self.w.sum())
        H *= self.w.astype(np.float32)
        return H

    @cached_property
    def _single(self) -> Float[Array, "r m"]:
        return np.ascontiguousarray(self.turned.T, dtype=np.float32)

    @cached_property
    def own(self) -> Float[Array, " m"]:
        """H_ii."""
        return self.w * (np.square(self.turned).sum(axis=1) + 1 / self.w.sum())

    @cached_property
    def _left(self) -> Float[Array, "m 1"]:
        """1 − H_ii."""
        return np.maximum(1 - self.own, LEAST_LEFT)[:, None]

    def left_out_shares(self, rows: Array) -> Float[Array, "b m"]:
        """Return the shares of rows in the values of some of them, each without itself."""
        H = self._shares(self.turned[rows])
        H[np.arange(len(rows)), rows] = 0.0
        H /= self._left[rows].astype(np.float32)
        return H

    def left_out(self) -> Float[Array, "m t"]:
        """Return the values of rows, each without itself; O(m r t)."""
        right, W = self.w[:, None] * self.y, self.w.sum()
        values = self.turned @ (self.turned.T @ right) + right.sum(axis=0) / W
        return (values - self.own[:, None] * self.y) / self._left
