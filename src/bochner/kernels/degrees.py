"""The kind of a kernel's radial kernels; what they are and where they come from: `radial`."""

import abc

import numpy as np

from bochner._core.shapes import Float
from bochner.kernels.series import PowerSeries


class Radial(abc.ABC):
    """The radial kernels of one kernel in one dimension."""

    @property
    @abc.abstractmethod
    def n_inputs(self) -> int:
        """Dimension d of the sphere's space."""

    @abc.abstractmethod
    def matrix(
        self, degree: int, r: Float[np.ndarray, " a"], s: Float[np.ndarray, " b"]
    ) -> Float[np.ndarray, "a b"]:
        """Return R_l(r_i, s_j), l = ``degree``, for radii zero or above; α_l is inside."""

    def matrices(
        self, degree: int, r: Float[np.ndarray, " a"], s: Float[np.ndarray, " b"]
    ) -> Float[np.ndarray, "q a b"]:
        """Return R_0, ..., R_degree at once: for kernels of |x − y| as cheap as one of them."""
        return np.stack([self.matrix(l, r, s) for l in range(degree + 1)])

    @property
    def zonal(self) -> bool:
        """Whether R_l(r, s) = c_l (r s)^p: one radial function for each degree."""
        return False

    @property
    def power_series(self) -> PowerSeries | None:
        """κ with k(x, y) = e^{−decay (|x|² + |y|²)/2} κ(⟨x, y⟩), or None: then no `monomials`."""
        return None

    @property
    def decay(self) -> float:
        """Rate of the envelope of `power_series`: 1/ℓ² for the Gaussian, else zero."""
        return 0.0
