"""The map of all Fourier features: cosines and sines of frequencies.

m frequencies ω_j of a kernel k(x − y) = k(0) E cos(ω·(x − y)) give

    pairs:   φ(x) = √(k(0)/m) [cos ω_j·x, sin ω_j·x]_j,             D = 2m,
    phases:  φ(x) = √(2 k(0)/m) [cos(ω_j·x + b_j)]_j, b ~ U[0, 2π],   D = m,

and pairs of weighted frequencies √(k(0) w_j) [cos ω_j·x, sin ω_j·x]_j. Columns 0..m−1 of pairs are
the cosines, m..2m−1 the sines.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bochner._core import native
from bochner._core.arrays import array_namespace, is_numpy, is_sparse, moved, precision
from bochner._core.shapes import Array, Float, Tabular
from bochner.errors import InvalidInput
from bochner.features.fourier.placements import Transforms
from bochner.features.map import FeatureMap, reach_of, with_far_rows
from bochner.kernels.kernel import Kernel

#: Rows of a sparse matrix that are made dense at a time, in cells.
CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class FourierMap(FeatureMap):
    """Cosines and sines of frequencies, or cosines with phases.

    Notes
    -----
    In float32 the error of a feature is below 2e-6 √(2/D) (1 + ‖x‖) for lengthscales near one; the
    angle is reduced exactly, in turns, so the only loss is the rounding of W and of the product.
    For rows so far from the origin that this loss matters, angles are computed in float64.
    """

    kernel: Kernel
    frequencies: Float[Array, "d m"] | Transforms  # W, or what gives angles without it
    amplitude: float  # k(0)
    #: b in radians, for features with phases; empty for pairs.
    phases: Float[Array, " b"] = field(default_factory=lambda: np.zeros(0))
    #: w ≥ 0 of pairs; empty where all are 1/m.
    weights: Float[Array, " w"] = field(default_factory=lambda: np.zeros(0))
    random: bool = True  # False for nodes of a quadrature rule

    @property
    def n_inputs(self) -> int:
        return self.frequencies.shape[0]

    @property
    def n_frequencies(self) -> int:
        """How many, m."""
        return self.frequencies.shape[1]

    @property
    def n_features(self) -> int:
        return self.n_frequencies * (1 if len(self.phases) else 2)

    @property
    def unbiased(self) -> bool:
        return self.random

    @property
    def multiplications(self) -> float:
        W = self.frequencies
        return W.multiplications if isinstance(W, Transforms) else float(W.size)

    @cached_property
    def reach(self) -> float:
        W = self.frequencies
        return W.reach if isinstance(W, Transforms) else reach_of(W)

    @cached_property
    def matrix(self) -> Float[Array, "d m"]:
        """W, in radians."""
        W = self.frequencies
        return W.matrix if isinstance(W, Transforms) else W

    @cached_property
    def _turns(self) -> tuple[Array | native.Chains, Array | native.Chains]:
        """W/2π in float32 and in float64."""
        W = self.frequencies
        return W.chains if isinstance(W, Transforms) else _in_turns(W)

    @cached_property
    def _phase_turns(self) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        return _in_turns(self.phases)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        if not (is_sparse(X) and isinstance(self.frequencies, Transforms)):
            return with_far_rows(self, X, self._waves)
        Z, block = np.empty((X.shape[0], self.n_features), X.dtype), max(1, CELLS // X.shape[1])
        for start in range(0, len(Z), block):
            Z[start : start + block] = self.features(X[start : start + block].toarray())
        return Z

    def _waves(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the features, with angles in the precision of X."""
        double, phased = precision(X) == np.float64, len(self.phases) > 0
        scale = (self.amplitude / self.n_frequencies * (2 if phased else 1)) ** 0.5
        phases, turns = self._phase_turns[double] if phased else None, self._turns[double]
        if is_numpy(X):
            Z = native.waves(np.ascontiguousarray(X), turns, scale, phases)
        else:
            turns = turns if isinstance(turns, native.Chains) else moved(turns, like=X)
            Z = native.waves_twin(X, turns, scale, phases)
        if not len(self.weights):
            return Z
        roots = np.sqrt(self.n_frequencies * np.concatenate([self.weights, self.weights]))
        return Z * moved(roots, like=Z)

    def complex(self, X: Tabular) -> Float[Array, "n m"]:
        """Return √(k(0)/m) exp(iω_j·x), the pairs as complex numbers: φ(X) φ(Y)ᴴ ≈ K."""
        Z, m = self(X), self.n_frequencies
        if len(self.phases):
            raise InvalidInput(
                "FourierMap.complex: features must be pairs; got cosines with phases. Draw them by "
                'Fourier(form="pair").'
            )
        xp = array_namespace(Z)
        dtype = xp.complex64 if Z.dtype == xp.float32 else xp.complex128
        return xp.astype(Z[:, :m], dtype) + 1j * xp.astype(Z[:, m:], dtype)

    @cached_property
    def _sines(self) -> "FourierMap":
        return replace(self, phases=self.phases - np.pi / 2)

    def pullback(self, X: Float[Array, "n d"], C: Float[Array, "n D"]) -> Float[Array, "n d"]:
        if len(self.phases):
            turned = -C * self._sines.features(X)
        else:
            Z, m = self.features(X), self.n_frequencies
            turned = Z[:, :m] * C[..., m:] - Z[:, m:] * C[..., :m]
        return turned @ moved(self.matrix.T, like=X)


def _in_turns(angles: Array) -> tuple[Array, Array]:
    """Return angles/2π in float32 and float64: in turns, range reduction is exact."""
    turns = np.ascontiguousarray(angles / (2 * np.pi))
    with np.errstate(over="ignore"):  # of lengthscales that float32 rows cannot have
        return turns.astype(np.float32), turns
