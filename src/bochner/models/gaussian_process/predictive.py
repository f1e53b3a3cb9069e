"""What a Gaussian process on features predicts, with what the features leave out.

    Var f(x) = a²λ (φ(x) − z̄)ᵀ(G + λI)⁻¹(φ(x) − z̄) + a²λ/W + a² e(x),   e(x) = k(x, x) − |φ(x)|².

Without e(x) the variance would starve: far from the data features vanish, or repeat themselves,
and leave no doubt. Where ZZᵀ ⪯ K, e is the variance of what no combination of features can be
(Rasmussen and Williams 2006, section 8.3.4; Titsias 2009). Other maps, as Fourier's, are compared
with the Nyström projection onto landmarks among the rows: e(x) is then what these leave out,
k(x, x) far from all rows, and the variance is held below that of the prior. Either e(x)/k(x, x) is
taken to the power p ≥ 1 that leave-one-out errors ask for: targets smoother, or of less amplitude
along what is left out, than draws of the kernel have less of it near the rows.
"""

from dataclasses import dataclass

import numpy as np

from bochner._core.arrays import is_sparse, to_numpy
from bochner._core.shapes import Array, Float
from bochner.features import FeatureMap, Nystrom
from bochner.features.method import Request
from bochner.features.nystrom.nystrom import NystromMap
from bochner.features.rules import draw_map
from bochner.kernels import Kernel
from bochner.models.gaussian_process.posterior import Posterior

#: A row of which less than this share is left out is in the span of the features.
EXPLAINED = 1e-6

#: Landmarks that maps which do not lie below their kernel are compared with, at most.
LANDMARKS = 1024


@dataclass(frozen=True, eq=False)
class LeftOut:
    """e(x): the part of the prior variance that the features do not have.

    Attributes
    ----------
    kernel : Kernel
    landmarks : NystromMap or None
        What a map that is not below its kernel is compared with; None for one that is.
    """

    kernel: Kernel
    landmarks: NystromMap | None

    @staticmethod
    def of(phi: FeatureMap, X: Array, seed: int) -> "LeftOut":
        """Choose landmarks among the rows X where the map needs them: O(n D²)."""
        if phi.below_kernel:
            return LeftOut(phi.kernel, None)
        width = min(phi.n_features, LANDMARKS)
        ask = Request(X.shape[1], width, seed, ("left out",), X)
        found = draw_map(Nystrom(), phi.kernel, ask)
        return LeftOut(phi.kernel, found if isinstance(found, NystromMap) else None)

    def prior(self, X: Array) -> Float[Array, " b"]:
        """Return k(x, x)."""
        return np.asarray(to_numpy(self.kernel.diag(X)), np.float64)

    def inside(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b m"]:
        """Return the features that rows are measured by."""
        return Z if self.landmarks is None else to_numpy(self.landmarks(_double(X)))

    def variance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, " b"]:
        """Return e(x) of rows X with features Z."""
        Z = self.inside(X, Z)
        return np.clip(self.prior(X) - np.einsum("ij,ij->i", Z, Z), 0.0, None)

    def covariance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b b"]:
        """Return the covariance of what is left out, whose diagonal is e(x)."""
        Z = self.inside(X, Z)
        left = np.array(to_numpy(self.kernel(X)), np.float64) - Z @ Z.T
        np.fill_diagonal(left, np.maximum(np.diag(left), 0.0))
        return left


def _double(X: Array) -> Array:
    return X.astype(np.float64) if is_sparse(X) else np.asarray(to_numpy(X), np.float64)


@dataclass(frozen=True, eq=False)
class Predictive:
    """The law of f(x), and of y at x.

    Attributes
    ----------
    posterior : Posterior
    left_out : LeftOut
    noise : (t,) float64
        Variance of y about f(x).
    exponents : (t,) float64
        p in k(x, x) (e(x)/k(x, x))ᵖ.
    """

    posterior: Posterior
    left_out: LeftOut
    noise: Float[Array, " t"]
    exponents: Float[Array, " t"]

    def variance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b t"]:
        """Return Var f(x)."""
        e, k = self.left_out.variance(X, Z), self.left_out.prior(X)
        return self.combined(self.posterior.leverage(Z), e, k)

    def combined(self, leverage: Array, e: Array, k: Array) -> Float[Array, "b t"]:
        """Return Var f(x) from leverages (b, t), e(x) and k(x, x)."""
        total = self.posterior.floor * leverage + self._amplitude * self._damped(e, k)
        return total if self.left_out.landmarks is None else np.minimum(total, self._most(k))

    def factors(self, X: Array, Z: Float[Array, "b D"]) -> tuple[Array, Array]:
        """Return what deviations of the process left out, and of the sum, are multiplied by."""
        e, k = self.left_out.variance(X, Z), self.left_out.prior(X)
        damped = self._damped(e, k)
        share = np.divide(damped, e[:, None], out=np.ones_like(damped), where=e[:, None] > 0)
        if self.left_out.landmarks is None:
            return np.sqrt(share), np.ones((1, len(self.noise)))
        total = self.posterior.floor * self.posterior.leverage(Z) + self._amplitude * damped
        most = np.minimum(total, self._most(k))
        held = np.divide(most, total, out=np.ones_like(total), where=total > 0)
        return np.sqrt(share), np.sqrt(held)

    def covariance(self, X: Array, Z: Float[Array, "b D"]) -> Float[Array, "b b t"]:
        """Return Cov f(x), f(x') of each target."""
        left, (own, whole) = self.left_out.covariance(X, Z), self.factors(X, Z)
        parts = []
        for i, scale in enumerate(self._amplitude):
            outer = scale * own[:, i, None] * left * own[:, i]
            total = self.posterior.covariance(Z, i) + outer
            parts.append(whole[:, i, None] * total * whole[:, i])
        return np.stack(parts, axis=2)

    @property
    def _amplitude(self) -> Float[Array, " t"]:
        return self.posterior.evidence.amplitude

    def _most(self, k: Array) -> Float[Array, "b t"]:
        """a² k(x, x), and the intercept's variance."""
        return self._amplitude * k[:, None] + self.posterior.floor * self.posterior.spread

    def _damped(self, e: Array, k: Array) -> Float[Array, "b t"]:
        if np.all(self.exponents == 1):
            return np.repeat(e[:, None], len(self.exponents), axis=1)
        share = np.divide(e, k, out=np.zeros_like(e), where=k > 0)
        return k[:, None] * share[:, None] ** self.exponents
