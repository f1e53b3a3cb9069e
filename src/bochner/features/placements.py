"""Where the frequencies fall: how m points are placed under a spectral measure.

*Which* measure is the kernel's business; the placement draws W (d, m) whose columns each have
exactly that law, so that features are unbiased (:class:`Grid` has weighted nodes instead, and errs
the same way every time). They differ in how the columns depend on one another. Each is a sequence:
m frequencies are the first m of the 2 m of the same stream, so that a map of twice the width holds
the frequencies of the narrow one. Placements whose frequencies are never formed are in
:mod:`bochner.features.structured`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.special import ndtri, roots_hermitenorm

from bochner._core.blas import cholesky
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.kernels.spectral import (
    Components,
    Fixed,
    GaussianMixture,
    Independent,
    Measure,
    One,
)


class Placement(ABC):
    """Places m frequencies under a spectral measure on R^d."""

    #: Whether a map holds the frequencies as a matrix.
    formed: ClassVar[bool] = True

    @abstractmethod
    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return W, (d, m) float64: each column has the law ``measure``."""


#: Frequencies that one stream gives, at least.
ONE_STREAM = 64


def in_streams(
    draw: Callable[[np.random.Generator, int], Float[Array, "b ..."]],
    count: int,
    width: int,
    rng: np.random.Generator,
) -> Float[Array, "count ..."]:
    """Return ``count`` blocks of ``width`` frequencies, so many to a stream as make ONE_STREAM.

    Blocks of a longer draw begin with those of a shorter one.
    """
    each = -(-ONE_STREAM // width)
    return np.concatenate([draw(child, each) for child in rng.spawn(-(-count // each))])[:count]


@dataclass(frozen=True)
class IID(Placement):
    """Independent frequencies: Rahimi and Recht (2007), Algorithm 1.

    Serves every stationary kernel. The error of an entry of Z Zᵀ falls like 1/√D.
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return m independent draws, (d, m)."""
        return in_streams(measure.sample, m, 1, rng).T


@dataclass(frozen=True)
class Orthogonal(Placement):
    """Blocks of d orthogonal directions with the radial law of the kernel.

    Yu et al. (2016), *Orthogonal random features*, eq. 4: rows of Haar matrices times
    independent radii; here with the radial law of any isotropic kernel. For pairs of points
    closer than about two lengthscales the variance is far below that of :class:`IID`, for pairs
    far apart equal (closed form: ``docs/notation.md``). The default, for any d.
    Cost of drawing: O(d m min(d, m)), memory O(d m): of a block no more is made than asked for.
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return orthogonal blocks, (d, m)."""
        measure = require_isotropic(measure, "Orthogonal()")
        d = len(measure.scales)
        if d > ONE_STREAM:
            starts = range(0, m, d)
            blocks = zip(starts, rng.spawn(len(starts)), strict=True)
            W = np.concatenate([_part_of_block(measure, min(d, m - i), rng) for i, rng in blocks])
            return measure.scales[:, None] * W.T

        def draw(child: np.random.Generator, blocks: int) -> Float[Array, "b d d"]:
            lengths = radii(measure, d, blocks * d, child).reshape(blocks, d, 1)
            return haar(d, blocks, child) * lengths

        W = in_streams(draw, -(-m // d), d, rng)
        return measure.scales[:, None] * W.reshape(-1, d)[:m].T


def _part_of_block(
    measure: GaussianMixture, count: int, rng: np.random.Generator
) -> Float[Array, "k d"]:
    """Return the first frequencies of a block, as rows: the same ones whatever the count."""
    d = len(measure.scales)
    lengths = radii(measure, d, d, rng)[:count]  # all, so that the directions' stream starts alike
    return orthonormal_rows(d, count, rng) * lengths[:, None]


def unit_directions(
    placement: Placement, d: int, m: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m directions, (d, m), each uniform on the sphere: Gaussian points, their lengths lost.

    The lengths come after all directions, or with them: the first m are those of 2m.
    """
    W = placement.place(GaussianMixture(One(), (1.0,) * d), m, rng)
    return W / np.linalg.norm(W, axis=0)


def require_isotropic(measure: Measure, who: str) -> GaussianMixture:
    """Return a measure that has the same law in all directions, or say who serves the kernel."""
    if isinstance(measure, GaussianMixture):
        return measure
    raise UnsupportedKernel(
        f"Fourier({who}) requires a kernel of the Euclidean distance (Gaussian, Matern, "
        "Exponential, RationalQuadratic and their products); this one has no law that is the same "
        "in all directions. Use Fourier(IID()), Fourier(QMC()) or Nystrom(Pivoted())."
    )


def radii(measure: GaussianMixture, d: int, m: int, rng: np.random.Generator) -> Float[Array, " m"]:
    """Return lengths of m vectors of R^d under the measure: s χ_d."""
    return np.sqrt(rng.chisquare(d, m) * measure.mixing.sample(rng, m))


def haar(d: int, blocks: int, rng: np.random.Generator) -> Float[Array, "b d d"]:
    """Return uniformly random orthogonal matrices (Mezzadri 2007): the sign fix matters."""
    Q, R = np.linalg.qr(rng.standard_normal((blocks, d, d)))
    diagonal = np.diagonal(R, axis1=1, axis2=2)
    return Q * np.where(diagonal < 0, -1.0, 1.0)[:, None, :]


def orthonormal_rows(d: int, count: int, rng: np.random.Generator) -> Float[Array, "k d"]:
    """Return ``count`` ≤ d orthonormal rows, uniform among all such (the Stiefel manifold).

    Row i is normal draw i less its components along those before: G = R Q with R lower triangular
    of positive diagonal, O(d count²). The first rows are those of a smaller count.
    """
    G = rng.standard_normal((count, d))
    if 2 * count > d:
        Q, R = np.linalg.qr(G.T)
        return np.ascontiguousarray((Q * np.where(np.diagonal(R) < 0, -1.0, 1.0)).T)
    # The condition number of so flat a G is near (1 + √½)/(1 − √½) = 6, so that the Cholesky
    # factor of G Gᵀ has all digits; it takes a tenth of the time of reflections.
    R = cholesky(dsyrk(1.0, G.T, trans=1), overwrite_a=True, check_finite=False)
    return dtrsm(1.0, R, G.T, side=1, overwrite_b=True).T


@dataclass(frozen=True, repr=False)
class QMC(Placement):
    """Low-discrepancy points through the inverse transform: quasi-Monte Carlo features.

    Avron, Sindhwani, Yang and Mahoney (2016), eq. 13.

    Parameters
    ----------
    sequence : {"sobol", "halton"}, default "sobol"
        "sobol" has a random linear scramble and shift, and is best at powers of two; "halton" has
        randomly permuted digits. Each frequency still has exactly the spectral law.

    Notes
    -----
    Kernels that mix Gaussians (Matérn, rational quadratic, exponential power) use one coordinate
    more for the radius, mixtures of components one more for the component. A cosine of ω is one
    of −ω, so where all coordinates are symmetric the points fill the half of space where the last
    one is positive, and signs are random: as even as twice as many points. Best for d below about
    ten (a tenth of the error of IID phases at d = 5, D = 1024); behind :class:`Orthogonal` in
    high d.
    """

    sequence: Literal["sobol", "halton"] = "sobol"

    def __post_init__(self) -> None:
        """Check the sequence."""
        if self.sequence not in SEQUENCES:
            raise InvalidInput(f'QMC: sequence must be "sobol" or "halton"; got {self.sequence!r}.')

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return "QMC()" if self.sequence == "sobol" else f"QMC({self.sequence!r})"

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        """Return transformed low-discrepancy points, (d, m)."""
        points, signs = rng.spawn(2)
        d = len(measure.scales)
        u = SEQUENCES[self.sequence](d + (not isinstance(measure, Independent)), m, points)
        W = _transformed(measure, np.clip(u, 1e-12, 1 - 1e-12))
        return measure.scales[:, None] * (W * signs.choice((-1.0, 1.0), (m, 1))).T


def _transformed(measure: Measure, u: Float[Array, "m c"]) -> Float[Array, "m d"]:
    """Return the frequencies of points in the unit cube, but for scales and signs."""
    d = len(measure.scales)
    if isinstance(measure, Components):
        q = np.searchsorted(np.cumsum(measure.weights)[:-1], u[:, d])
        return np.array(measure.means)[q] + np.array(measure.deviations)[q] * ndtri(u[:, :d])
    u[:, d - 1] = (1 + u[:, d - 1]) / 2
    if isinstance(measure, GaussianMixture):
        return ndtri(u[:, :d]) * np.sqrt(measure.mixing.quantile(u[:, d]))[:, None]
    if isinstance(measure, Independent):
        return measure.law.quantile(u)
    raise UnsupportedKernel(
        f"Fourier(QMC()) has no inverse transform for {measure!r}; use Fourier(IID())."
    )


#: scipy.stats.qmc.Sobol has direction numbers for this many coordinates.
SOBOL_DIMENSIONS = 21201


def _sobol(d: int, m: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    from scipy.stats import qmc  # noqa: PLC0415  scipy.stats takes half a second to import

    if d > SOBOL_DIMENSIONS:
        raise InvalidInput(
            f"Fourier(QMC()) serves at most {SOBOL_DIMENSIONS - 1} columns; got {d - 1}. "
            "Use Fourier(Orthogonal())."
        )
    return qmc.Sobol(d, scramble=True, rng=rng).random_base2(int(m - 1).bit_length())[:m]


def _halton(d: int, m: int, rng: np.random.Generator) -> Float[Array, "m d"]:
    from scipy.stats import qmc  # noqa: PLC0415  as above

    return qmc.Halton(d, scramble=True, rng=rng).random(m)


SEQUENCES: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    "sobol": _sobol,
    "halton": _halton,
}


#: Nodes multiply with each column.
GRID_COLUMNS = 3


@dataclass(frozen=True)
class Grid(Placement):
    """Gauss-Hermite nodes and weights in place of random frequencies: Dao, De Sa and Ré (2017).

    φ(x) = √k(0) [√w_j cos ω_j·x, √w_j sin ω_j·x]_j with the tensor product of q-point rules, of
    two opposite nodes one, of twice the weight: (q^d + 1)/2 pairs at most, q as large as the width
    allows, so a map may be narrower than asked. Deterministic, and exact to rounding where
    |(x − y)/ℓ| is small beside 2√q in each coordinate; **useless beyond**: the estimate does not
    decay. For the Gaussian kernel, d up to 3 and data within a few lengthscales; Mercer features
    are better wherever they serve.
    """

    def place(
        self,
        measure: Measure,  # noqa: ARG002
        m: int,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Float[Array, "d m"]:
        """Refuse: nodes without their weights have not the law of the kernel."""
        raise self.refusal()

    def refusal(self) -> UnsupportedKernel:
        """Return what is said of kernels that have no rule."""
        return UnsupportedKernel(
            "Fourier(Grid()) requires a Gaussian kernel, whose frequencies have Gauss-Hermite "
            "rules, or a sum of such. Use Fourier(QMC()), Fourier(Orthogonal()) or "
            "Nystrom(Pivoted())."
        )

    def nodes(self, measure: Measure, m: int) -> tuple[Float[Array, "d m"], Float[Array, " m"]]:
        """Return at most m nodes, of two opposite ones one, and their weights, of sum one."""
        mixing = measure.mixing if isinstance(measure, GaussianMixture) else None
        if not isinstance(mixing, One | Fixed):
            raise self.refusal()
        d = len(measure.scales)
        if d > GRID_COLUMNS:
            raise InvalidInput(
                f"Fourier(Grid()) serves at most {GRID_COLUMNS} columns, because nodes multiply "
                f"with each; got {d}. Use Fourier(QMC())."
            )
        q = int((2 * m) ** (1 / d) + 1e-9)
        while ((q + 1) ** d + 1) // 2 <= m:
            q += 1
        x, w = roots_hermitenorm(q)
        W = np.stack(np.meshgrid(*[x] * d, indexing="ij")).reshape(d, -1)
        weights = np.prod(np.meshgrid(*[w / w.sum()] * d, indexing="ij"), axis=0).reshape(-1)
        half = (q**d + 1) // 2  # node i and node q^d − 1 − i are opposite
        weights = 2 * weights[:half]
        if q % 2:
            weights[-1] /= 2
        return mixing.mean**0.5 * measure.scales[:, None] * W[:, :half], weights
