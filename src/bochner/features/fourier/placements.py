"""Where the frequencies fall: how m points are placed under a spectral measure.

*Which* measure is the kernel's business; the placement draws W (d, m) whose columns each have
exactly that law, so that features are unbiased (:class:`Grid` has weighted nodes instead, and errs
the same way every time). They differ in how the columns depend on one another. Each is a sequence:
m frequencies are the first m of the 2 m of the same stream, so that a map of twice the width holds
the frequencies of the narrow one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.special import ndtri, roots_hermitenorm

from bochner._core.blas import cholesky
from bochner._core.checks import word
from bochner._core.names import NamedArguments
from bochner._core.native import Chains, hadamard, power_of_two
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.features.map import norms
from bochner.kernels.spectral import Frequencies, Measure, fixed


class Placement(NamedArguments, ABC):
    """Places m frequencies under a spectral measure on R^d, at random."""

    #: The kernels that it serves, in words.
    needs: ClassVar[str] = (
        "a kernel of x − y, or sums and products of such with Linear() and Constant()"
    )

    def serves(self, law: Frequencies) -> bool:
        """Whether frequencies of this law can be placed."""
        return True

    @abstractmethod
    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Any:
        """Return W, (d, m) float64, or `Transforms`: each column has the law ``measure``."""


#: Frequencies that one stream gives, at least.
ONE_STREAM = 64


def in_streams(
    draw: Callable[[np.random.Generator, int], Float[Array, "b ..."]],
    count: int,
    width: int,
    rng: np.random.Generator,
) -> Float[Array, "count ..."]:
    """Return ``count`` blocks of ``width`` frequencies; a longer draw begins with a shorter one."""
    each = -(-ONE_STREAM // width)
    return np.concatenate(list(map(draw, rng.spawn(-(-count // each)), repeat(each))))[:count]


class Isotropic(Placement):
    """A placement of frequencies whose law is the same in all directions."""

    needs = (
        "a kernel of x − y, of the Euclidean distance (Gaussian, Matern, Exponential, "
        "RationalQuadratic) unless the placement is IID() or QMC()"
    )

    def serves(self, law: Frequencies) -> bool:
        return law.isotropic


@dataclass(frozen=True)
class IID(Placement):
    """Independent frequencies: Rahimi and Recht (2007), Algorithm 1.

    Supports every stationary kernel. The error of an entry of Z Zᵀ falls like 1/√D.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Gaussian(), bo.Fourier(bo.IID()), n_features=64, n_inputs=3)
    FourierMap(kernel=Gaussian(lengthscale=1.0), n_inputs=3, n_features=64)
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        return in_streams(measure.sample, m, 1, rng).T


@dataclass(frozen=True)
class Orthogonal(Isotropic):
    """Blocks of d orthogonal directions with the radial law of the kernel.

    Yu et al. (2016), *Orthogonal random features*, eq. 4: rows of Haar matrices times independent
    radii; here with the radial law of any isotropic kernel. The variance of near pairs is smaller
    by far than with :class:`IID`. The default, for any d. Cost of drawing: O(d m min(d, m)).

    See Also
    --------
    QMC : Low-discrepancy frequencies, for few columns.
    Structured : Fast transforms, for hundreds of columns.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Gaussian(), bo.Fourier(bo.Orthogonal()), n_features=64, n_inputs=3)
    FourierMap(kernel=Gaussian(lengthscale=1.0), n_inputs=3, n_features=64)
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        d = len(measure.scales)
        if d > ONE_STREAM:
            starts = range(0, m, d)
            blocks = []  # The first frequencies of a block do not depend on their number.
            for start, child in zip(starts, rng.spawn(len(starts)), strict=True):
                count, lengths = min(d, m - start), radii(measure, d, d, child)
                blocks.append(orthonormal_rows(d, count, child) * lengths[:count, None])
            return measure.scales[:, None] * np.concatenate(blocks).T

        def blocks_of(child: np.random.Generator, count: int) -> Float[Array, "b d d"]:
            lengths = radii(measure, d, count * d, child).reshape(count, d, 1)
            return orthonormal_columns(child.standard_normal((count, d, d))) * lengths

        W = in_streams(blocks_of, -(-m // d), d, rng)
        return measure.scales[:, None] * W.reshape(-1, d)[:m].T


def unit_directions(
    placement: "Placements", d: int, m: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m directions uniform on the sphere, (d, m); a draw of 2m begins with a draw of m."""
    W = placement.place(Measure(fixed(), np.ones(d), of="factor"), m, rng)
    return W / np.linalg.norm(W, axis=0)


def radii(measure: Measure, d: int, m: int, rng: np.random.Generator) -> Float[Array, " m"]:
    """Return lengths of m vectors of R^d under the measure: s χ_d."""
    return np.sqrt(rng.chisquare(d, m) * measure.law.sample(rng, m))


def orthonormal_columns(G: Float[Array, "*b d k"]) -> Float[Array, "*b d k"]:
    """Return Q of G = Q R with R of positive diagonal: uniform for normal G (Mezzadri 2007)."""
    Q, R = np.linalg.qr(G)
    return Q * np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :]


def orthonormal_rows(d: int, count: int, rng: np.random.Generator) -> Float[Array, "k d"]:
    """Return ``count`` ≤ d orthonormal rows, uniform among all such: Q of G = R Q; O(d count²)."""
    G = rng.standard_normal((count, d))
    if 2 * count > d:
        return np.ascontiguousarray(orthonormal_columns(G.T).T)
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

    See Also
    --------
    Orthogonal : The default placement, for any number of columns.

    Notes
    -----
    Mixtures of Gaussians (Matérn, rational quadratic) use one coordinate more for the radius,
    mixtures of components one more for the component. A cosine of ω is one of −ω, so points of
    symmetric laws fill half of the space, with random signs. Choose it for d below about ten.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Matern(1.5), bo.Fourier(bo.QMC("halton")), n_features=64, n_inputs=3)
    FourierMap(kernel=Matern(smoothness=1.5, lengthscale=1.0), n_inputs=3, n_features=64)
    """

    sequence: Annotated[str, word("sobol", "halton")] = "sobol"

    def __repr__(self) -> str:
        """Return the code that makes it."""
        return "QMC()" if self.sequence == "sobol" else f"QMC({self.sequence!r})"

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        from scipy.stats import qmc  # noqa: PLC0415  scipy.stats takes half a second to import

        points, signs = rng.spawn(2)
        d = len(measure.scales)
        coordinates = d + (measure.of != "coordinates")
        if self.sequence == "halton":
            u = qmc.Halton(coordinates, scramble=True, rng=points).random(m)
        elif coordinates <= qmc.Sobol.MAXDIM:
            power = int(m - 1).bit_length()
            u = qmc.Sobol(coordinates, scramble=True, rng=points).random_base2(power)[:m]
        else:
            raise InvalidInput(
                f"Fourier(QMC()) serves at most {qmc.Sobol.MAXDIM - 1} columns; got "
                f"{coordinates - 1}. Use Fourier(Orthogonal())."
            )
        u = np.clip(u, 1e-12, 1 - 1e-12)
        if measure.of != "vectors":
            u[:, d - 1] = (1 + u[:, d - 1]) / 2
        if measure.of == "factor":
            W = ndtri(u[:, :d]) * np.sqrt(measure.law.quantile(u[:, d]))[:, None]
        else:
            W = measure.law.quantile(u)
        return measure.scales[:, None] * (W * signs.choice((-1.0, 1.0), (m, 1))).T


#: Placements whose frequencies are a matrix, each column at random.
Placements = IID | Orthogonal | QMC


@dataclass(frozen=True)
class Grid(NamedArguments):
    """Gauss-Hermite nodes and weights in place of random frequencies: Dao, De Sa and Ré (2017).

    φ(x) = √k(0) [√w_j cos ω_j·x, √w_j sin ω_j·x]_j with the tensor product of q-point rules, of
    two opposite nodes one, of twice the weight: (q^d + 1)/2 pairs at most, q as large as the width
    allows. Deterministic, and exact to rounding where |(x − y)/ℓ| is small beside 2√q in each
    coordinate; **useless beyond**. For the Gaussian kernel, d up to 3, where Mercer's are better.

    See Also
    --------
    HermiteMercer : Mercer features, better wherever they serve.
    FourierGrid : Equispaced frequencies, within a tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 1))
    >>> phi = bo.draw(bo.kernels.Gaussian(), bo.Fourier(bo.Grid()), n_features=16, X=X)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 1e-10
    True
    """

    needs = "a Gaussian kernel of at most 3 columns for the Gauss-Hermite rules of Grid()"

    def serves(self, law: Frequencies) -> bool:
        """Whether there are Gauss-Hermite rules, few enough nodes, for this law."""
        return isinstance(law, Measure) and law.law.fixed and len(law.scales) <= 3

    def nodes(self, measure: Measure, m: int) -> tuple[Float[Array, "d m"], Float[Array, " m"]]:
        """Return at most m nodes, of two opposite ones one, and their weights, of sum one."""
        d = len(measure.scales)
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
        return measure.law.second_moment**0.5 * measure.scales[:, None] * W[:, :half], weights


# --- Frequencies that are never formed: products of Hadamard matrices and random diagonals -------
#
# A block of p = 2^⌈log₂ d⌉ frequencies costs O(p log p) for each row in place of O(p d).


@dataclass(frozen=True, eq=False)
class Transforms:
    """m frequencies in R^d as products of Hadamard matrices and diagonals, in turns."""

    #: Of each block, in the order in which they are applied to x.
    diagonals: Float[Array, "b s p"]
    orders: Array  # Permutations after the first transform, if any
    shape: tuple[int, int]  # d ≤ p and m

    @cached_property
    def chains(self) -> tuple[Chains, Chains]:
        """The same in float32 and in float64."""
        orders = np.ascontiguousarray(self.orders, np.int32)
        double = Chains(np.ascontiguousarray(self.diagonals), orders, self.shape[1])
        with np.errstate(over="ignore"):  # of lengthscales that float32 rows cannot have
            return double._replace(diagonals=double.diagonals.astype(np.float32)), double

    @property
    def multiplications(self) -> float:
        """Cost of the angles of a row, in multiplications of a matrix product of the same time."""
        # Measured (AVX2, p from 64 to 1024): 10 + log₂ p per number of a step, 20 for an order.
        blocks, diagonals, p = self.diagonals.shape
        ordered = 20.0 if len(self.orders) else 0.0
        return blocks * p * ((diagonals - 1) * (10 + np.log2(p)) + ordered)

    @property
    def reach(self) -> float:
        """|ω| of a frequency in the middle."""
        first, between, last = np.split(self.diagonals, [1, self.diagonals.shape[1] - 1], axis=1)
        lengths = norms(first[..., : self.shape[0]], axis=2)
        lengths = lengths * norms(between, axis=2).prod(axis=1, keepdims=True)
        return 2 * np.pi * float(np.median(np.abs(last[:, 0]) * lengths))

    @property
    def matrix(self) -> Float[Array, "d m"]:
        """The frequencies, in radians: unit vectors times the product of each block."""
        (d, m), p = self.shape, self.diagonals.shape[2]
        W = np.empty((m, p))
        for b, diagonals in enumerate(self.diagonals):
            rows = W[b * p : (b + 1) * p]
            rows[:] = np.eye(len(rows), p)
            for step in reversed(range(1, len(diagonals))):
                rows *= diagonals[step]
                if step == 1 and len(self.orders):
                    rows[:, self.orders[b]] = rows.copy()
                hadamard(rows, out=rows)
            rows *= diagonals[0]
        return 2 * np.pi * W[:, :d].T


@dataclass(frozen=True)
class Structured(Isotropic):
    """Blocks H D₁ H D₂ H D₃ with the radial law of the kernel, evaluated by fast transforms.

    Yu et al. (2016), *Orthogonal random features*, eq. 6, with p = 2^⌈log₂ d⌉, H the normalised
    Hadamard matrix, D random signs, and independent lengths χ_p (times the kernel's factor);
    the paper's √p is biased. The remaining bias is at most 2e-3 k(0). Below 32 columns random
    rotations are used. Where transforms are slower than a product, the frequencies are formed as a
    matrix. The error is that of :class:`Orthogonal`. For d in the hundreds and more: O(n D log d).

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Gaussian(8.0), bo.Fourier(bo.Structured()), n_features=512, n_inputs=100)
    FourierMap(kernel=Gaussian(lengthscale=8.0), n_inputs=100, n_features=512)
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Any:
        d, p = len(measure.scales), power_of_two(len(measure.scales))
        # With fewer, transforms are far from a uniformly random rotation, and no faster.
        if d < 32:
            return Orthogonal().place(measure, m, rng)

        def draw(child: np.random.Generator, blocks: int) -> Float[Array, "b 4 p"]:
            signs = child.choice((-1.0, 1.0), (blocks, 3, p))
            lengths = radii(measure, p, blocks * p, child) / (2 * np.pi * p**1.5)
            signs[:, 0, :d] *= measure.scales
            return np.concatenate([signs, lengths.reshape(blocks, 1, p)], axis=1)

        diagonals = in_streams(draw, -(-m // p), p, rng)
        return Transforms(diagonals, np.empty((0, p), np.int32), (d, m))


@dataclass(frozen=True)
class Fastfood(Isotropic):
    """Blocks S H G Π H B / √p: Le, Sarlós and Smola (2013), eq. 8.

    p = 2^⌈log₂ d⌉, B random signs, Π a random permutation, G normal, S lengths χ_p/‖G‖ (times
    the kernel's factor). Unbiased; more variance than :class:`IID`. For comparison with
    other work; :class:`Structured` has a lower error at the same speed.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Gaussian(8.0), bo.Fourier(bo.Fastfood()), n_features=512, n_inputs=100)
    FourierMap(kernel=Gaussian(lengthscale=8.0), n_inputs=100, n_features=512)
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Transforms:
        d, p = len(measure.scales), power_of_two(len(measure.scales))

        def draw(child: np.random.Generator, blocks: int) -> Float[Array, "b 4 p"]:
            signs, G = child.choice((-1.0, 1.0), (blocks, p)), child.standard_normal((blocks, p))
            signs[:, :d] *= measure.scales
            sizes = 2 * np.pi * p**0.5 * np.linalg.norm(G, axis=1, keepdims=True)
            lengths = radii(measure, p, blocks * p, child).reshape(blocks, p) / sizes
            orders = child.permuted(np.tile(np.arange(p), (blocks, 1)), axis=1)
            return np.stack([signs, G, lengths, orders], axis=1)

        streams = in_streams(draw, -(-m // p), p, rng)
        orders = streams[:, 3].astype(np.int32)
        return Transforms(np.ascontiguousarray(streams[:, :3]), orders, (d, m))
