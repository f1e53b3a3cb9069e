"""Where the frequencies fall: how m points are placed under a spectral measure.

*Which* measure is the kernel's business; the placement draws W (d, m) whose columns each have
exactly that law, so that every placement gives unbiased features. They differ in how the columns
depend on one another.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from bochner._ground.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.spectral import GaussianMixture, Independent, Measure

__all__ = ["IID", "QMC", "Orthogonal", "Placement"]


class Placement(ABC):
    """Places m frequencies under a spectral measure on R^d."""

    @abstractmethod
    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return W, (d, m) float64: each column has the law ``measure``."""


@dataclass(frozen=True)
class IID(Placement):
    """Independent frequencies: Rahimi and Recht (2007), Algorithm 1.

    Serves every stationary kernel. The error of an entry of Z Zᵀ falls like 1/√D.
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return m independent draws, (d, m)."""
        return measure.sample(rng, m).T


@dataclass(frozen=True)
class Orthogonal(Placement):
    """Blocks of d orthogonal directions with the radial law of the kernel.

    Yu et al. (2016), *Orthogonal random features*, eq. 4: rows of Haar matrices times
    independent radii; here with the radial law of any isotropic kernel. For pairs of points
    closer than about two lengthscales the variance is far below that of :class:`IID`, for pairs
    far apart equal (closed form: ``docs/notation.md``). The default, for any d.
    Cost of drawing: O(d² m).
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return orthogonal blocks, (d, m)."""
        if not isinstance(measure, GaussianMixture):
            raise UnsupportedKernel(
                "Fourier(Orthogonal()) requires a kernel of the Euclidean distance (Gaussian, "
                "Matern, Exponential, RationalQuadratic and their products); this one has "
                "independent coordinates. Use Fourier(IID()), Fourier(QMC()) or "
                "Nystrom(Pivoted())."
            )
        d = len(measure.scales)
        directions = np.concatenate([_haar(d, rng) for _ in range(-(-m // d))], axis=1)[:, :m]
        radii = np.sqrt(rng.chisquare(d, m) * measure.mixing.sample(rng, m))
        return measure.scales[:, None] * directions * radii


def _haar(d: int, rng: np.random.Generator) -> Float[Array, "d d"]:
    """Return a uniformly random orthogonal matrix (Mezzadri 2007): the sign fix matters."""
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    return Q * np.where(np.diag(R) < 0, -1.0, 1.0)


@dataclass(frozen=True)
class QMC(Placement):
    """Scrambled Sobol points through the inverse transform: quasi-Monte Carlo features.

    Avron, Sindhwani, Yang and Mahoney (2016), eq. 13; Sobol points with a random linear scramble
    and shift, so that
    each frequency still has exactly the spectral law. Kernels that mix Gaussians (Matérn,
    rational quadratic) use one coordinate more for the radius. A cosine of ω is one of −ω, so the
    points fill the half of space where the last coordinate is positive, and signs are random: as
    even as twice as many points. Best for d below about ten (a tenth of the error of IID phases
    at d = 5, D = 1024); behind :class:`Orthogonal` in high d.
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return transformed low-discrepancy points, (d, m)."""
        d = len(measure.scales)
        u = _sobol(d + isinstance(measure, GaussianMixture), m, rng)
        u[:, d - 1] = (1 + u[:, d - 1]) / 2
        if isinstance(measure, GaussianMixture):
            points = ndtri(u[:, :d]) * np.sqrt(measure.mixing.quantile(u[:, d]))[:, None]
        elif isinstance(measure, Independent):
            points = measure.law.quantile(u)
        else:
            raise UnsupportedKernel(
                f"Fourier(QMC()) has no inverse transform for {measure!r}; use Fourier(IID())."
            )
        points *= rng.choice((-1.0, 1.0), (m, 1))
        return measure.scales[:, None] * points.T


#: scipy.stats.qmc.Sobol has direction numbers for this many coordinates.
SOBOL_DIMENSIONS = 21201


def _sobol(d: int, m: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    from scipy.stats import qmc  # noqa: PLC0415  scipy.stats takes half a second to import

    if d > SOBOL_DIMENSIONS:
        raise InvalidInput(
            f"Fourier(QMC()) serves at most {SOBOL_DIMENSIONS - 1} columns; got {d - 1}. "
            "Use Fourier(Orthogonal())."
        )
    points = qmc.Sobol(d, scramble=True, rng=rng).random_base2(int(m - 1).bit_length())
    return np.clip(points[:m], 1e-12, 1 - 1e-12)
