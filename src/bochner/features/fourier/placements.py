"""Placements: how m frequencies are drawn from a spectral measure.

The kernel determines the measure. Each column of W (d, m) is distributed as the measure, so that
features are unbiased (:class:`Grid` has weighted nodes instead, and a deterministic error).
Placements differ in the dependence between columns. Each draw is a sequence: with the same stream,
m frequencies are the first m of 2m, so a wider map includes the frequencies of a narrower one.
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
from bochner.kernels.spectral import Frequencies, Measure, constant_law


class Placement(NamedArguments, ABC):
    """A rule that draws m random frequencies from a spectral measure on R^d."""

    #: The supported kernels, in words.
    needs: ClassVar[str] = (
        "a kernel of x − y, or sums and products of these with Linear() and Constant()"
    )

    def serves(self, law: Frequencies) -> bool:
        """Whether frequencies of this law can be drawn."""
        return True

    def frequencies(self, law: Any, m: int, rng: np.random.Generator) -> Any:
        """Return W with E cos ω·δ = k(δ)/k(0), (d, m), or `Transforms`, for a kernel."""
        if isinstance(law, Measure):
            return self.place(law, m, rng)

        def place(measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
            W = self.place(measure, m, rng)
            return W.matrix if isinstance(W, Transforms) else W

        return law.place(place, m, rng)

    @abstractmethod
    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Any:
        """Return W, (d, m) float64, or `Transforms`; ``measure`` is each column's distribution."""


#: Least number of frequencies per random stream.
ONE_STREAM = 64


def draw_in_streams(
    draw: Callable[[np.random.Generator, int], Float[Array, "b ..."]],
    count: int,
    width: int,
    rng: np.random.Generator,
) -> Float[Array, "count ..."]:
    """Return ``count`` blocks of ``width`` frequencies; a longer draw begins with a shorter one."""
    size = -(-ONE_STREAM // width)
    return np.concatenate(list(map(draw, rng.spawn(-(-count // size)), repeat(size))))[:count]


class Isotropic(Placement):
    """A placement of frequencies whose distribution is rotation invariant."""

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
        return draw_in_streams(measure.sample, m, 1, rng).T


@dataclass(frozen=True)
class Orthogonal(Isotropic):
    """Blocks of d orthogonal directions with the radial distribution of the kernel.

    Yu et al. (2016), *Orthogonal random features*, eq. 4: rows of Haar matrices times independent
    radii; here with the radii of any isotropic kernel. The variance for near pairs is much
    smaller than with :class:`IID`. This is the default for any d. Drawing takes O(d m min(d, m)).

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
            blocks = []  # The first rows of a block do not depend on ``count``.
            for start, child in zip(starts, rng.spawn(len(starts)), strict=True):
                count, lengths = min(d, m - start), radii(measure, d, d, child)
                blocks.append(orthonormal_rows(d, count, child) * lengths[:count, None])
            return measure.scales[:, None] * np.concatenate(blocks).T

        def draw_blocks(child: np.random.Generator, count: int) -> Float[Array, "b d d"]:
            lengths = radii(measure, d, count * d, child).reshape(count, d, 1)
            return orthonormal_columns(child.standard_normal((count, d, d))) * lengths

        W = draw_in_streams(draw_blocks, -(-m // d), d, rng)
        return measure.scales[:, None] * W.reshape(-1, d)[:m].T


def unit_directions(
    placement: "Placements", d: int, m: int, rng: np.random.Generator
) -> Float[Array, "d m"]:
    """Return m directions uniform on the sphere, (d, m); a draw of 2m begins with a draw of m."""
    W = placement.place(Measure(constant_law(), np.ones(d), role="factor"), m, rng)
    return W / np.linalg.norm(W, axis=0)


def radii(measure: Measure, d: int, m: int, rng: np.random.Generator) -> Float[Array, " m"]:
    """Return m random lengths s χ_d of vectors in R^d; s² has the law of the measure."""
    chi2, law = rng.chisquare(d, m), measure.law
    return np.sqrt(chi2 * (law.second_moment if law.constant else law.sample(rng, m)))


def orthonormal_columns(G: Float[Array, "*b d k"]) -> Float[Array, "*b d k"]:
    """Return Q of G = Q R with R of positive diagonal: uniform for normal G (Mezzadri 2007)."""
    Q, R = np.linalg.qr(G)
    return Q * np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :]


def orthonormal_rows(d: int, count: int, rng: np.random.Generator) -> Float[Array, "k d"]:
    """Return ``count`` ≤ d uniformly random orthonormal rows, in O(d count²) time."""
    G = rng.standard_normal((count, d))
    if 2 * count > d:
        return np.ascontiguousarray(orthonormal_columns(G.T).T)
    # Q of G = R Q. With count ≤ d/2 the condition number of G is at most about
    # (1 + √½)/(1 − √½) = 6, so Cholesky of G Gᵀ is accurate; it takes a tenth of the time of QR.
    R = cholesky(dsyrk(1.0, G.T, trans=1), overwrite_a=True, check_finite=False)
    return dtrsm(1.0, R, G.T, side=1, overwrite_b=True).T


@dataclass(frozen=True, repr=False)
class QMC(Placement):
    """Quasi-Monte Carlo features: low-discrepancy points mapped by the quantile function.

    Avron, Sindhwani, Yang and Mahoney (2016), eq. 13.

    Parameters
    ----------
    sequence : {"sobol", "halton"}, default "sobol"
        "sobol": with a random linear scramble and shift; most accurate if m is a power of two.
        "halton": with randomly permuted digits. Each frequency is distributed as the measure.

    See Also
    --------
    Orthogonal : The default placement, for any number of columns.

    Notes
    -----
    Matérn and rational quadratic kernels use an additional coordinate for the radius, spectral
    mixtures for the component. As cos ω·x is even in ω, points fill half of the space and have
    random signs. Use it for d below about ten.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Matern(1.5), bo.Fourier(bo.QMC("halton")), n_features=64, n_inputs=3)
    FourierMap(kernel=Matern(smoothness=1.5, lengthscale=1.0), n_inputs=3, n_features=64)
    """

    sequence: Annotated[str, word("sobol", "halton")] = "sobol"

    def __repr__(self) -> str:
        """Return the placement as code."""
        return "QMC()" if self.sequence == "sobol" else f"QMC({self.sequence!r})"

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Float[Array, "d m"]:
        from scipy.stats import qmc  # noqa: PLC0415  scipy.stats takes half a second to import

        points, signs = rng.spawn(2)
        d = len(measure.scales)
        coordinates = d + (measure.role != "coordinates")
        if self.sequence == "halton":
            u = qmc.Halton(coordinates, scramble=True, rng=points).random(m)
        elif coordinates <= qmc.Sobol.MAXDIM:
            power = int(m - 1).bit_length()
            u = qmc.Sobol(coordinates, scramble=True, rng=points).random_base2(power)[:m]
        else:
            raise InvalidInput(
                f"Fourier(QMC()) supports at most {qmc.Sobol.MAXDIM - 1} columns; got "
                f"{coordinates - 1}. Use Fourier(Orthogonal())."
            )
        u = np.clip(u, 1e-12, 1 - 1e-12)
        if measure.role != "vectors":
            u[:, d - 1] = (1 + u[:, d - 1]) / 2
        if measure.role == "factor":
            W = ndtri(u[:, :d]) * np.sqrt(measure.law.quantile(u[:, d]))[:, None]
        else:
            W = measure.law.quantile(u)
        return measure.scales[:, None] * (W * signs.choice((-1.0, 1.0), (m, 1))).T


#: Placements that return a matrix of random frequencies.
Placements = IID | Orthogonal | QMC


@dataclass(frozen=True)
class Grid(NamedArguments):
    """Gauss-Hermite nodes and weights instead of random frequencies: Dao, De Sa and Ré (2017).

    φ(x) = √k(0) [√w_j cos ω_j·x, √w_j sin ω_j·x]_j with the tensor product of q-point rules, q as
    large as D allows. One of each two opposite nodes is used, with twice the weight: at most
    (q^d + 1)/2 pairs. The map is deterministic, and exact to rounding if |(x − y)/ℓ| is much
    smaller than 2√q in each coordinate; **it is useless above 2√q**. Supports the Gaussian kernel
    in up to 3 columns, for which Mercer features are better.

    See Also
    --------
    HermiteMercer : Mercer features, more accurate for all supported kernels.
    FourierGrid : Equispaced frequencies with a tolerance.

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
        """Whether the distribution is normal, in at most 3 dimensions."""
        return isinstance(law, Measure) and law.law.constant and len(law.scales) <= 3

    def nodes(self, measure: Measure, m: int) -> tuple[Float[Array, "d m"], Float[Array, " m"]]:
        """Return at most m nodes, one of each opposite pair, and their weights, with sum one."""
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


# --- Frequencies as products of Hadamard matrices and random diagonals, without a matrix ---------
#
# Angles with a block of p = 2^⌈log₂ d⌉ frequencies cost O(p log p) per row instead of O(p d).


@dataclass(frozen=True, eq=False)
class Transforms:
    """m frequencies in R^d: alternating products of Hadamard and diagonal matrices."""

    #: Diagonals of each block, in the order of their application to x.
    diagonals: Float[Array, "b s p"]
    orders: Array  # Permutations after the first transform, if any
    shape: tuple[int, int]  # d ≤ p and m

    @cached_property
    def chains(self) -> tuple[Chains, Chains]:
        """Arguments of the compiled transforms, in float32 and in float64."""
        orders = np.ascontiguousarray(self.orders, np.int32)
        double = Chains(np.ascontiguousarray(self.diagonals), orders, self.shape[1])
        with np.errstate(over="ignore"):  # lengthscales may be too small for float32
            return double._replace(diagonals=double.diagonals.astype(np.float32)), double

    @property
    def multiplications(self) -> float:
        """Cost of angles per row, in multiplications of a matrix product of equal time."""
        # Measured (AVX2, p from 64 to 1024): 10 + log₂ p per number of a step, 20 for an order.
        blocks, diagonals, p = self.diagonals.shape
        permutations = 20.0 if len(self.orders) else 0.0
        return blocks * p * ((diagonals - 1) * (10 + np.log2(p)) + permutations)

    @property
    def reach(self) -> float:
        """Median |ω| of the frequencies."""
        first, middle, last = np.split(self.diagonals, [1, self.diagonals.shape[1] - 1], axis=1)
        lengths = norms(first[..., : self.shape[0]], axis=2)
        lengths = lengths * norms(middle, axis=2).prod(axis=1, keepdims=True)
        return 2 * np.pi * float(np.median(np.abs(last[:, 0]) * lengths))

    @property
    def matrix(self) -> Float[Array, "d m"]:
        """Frequencies in radians, (d, m): unit vectors times the product of each block."""
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
    """Blocks H D₁ H D₂ H D₃ with the kernel's distribution of |ω|, evaluated by fast transforms.

    Yu et al. (2016), *Orthogonal random features*, eq. 6, with p = 2^⌈log₂ d⌉, the normalised
    Hadamard matrix H and diagonal matrices D_i of random signs. |ω| is an independent χ_p variable
    times the radial factor s of the kernel (1 for a Gaussian). With √p, as in the paper, the bias
    is larger; it is at most 2e-3 k(0) here. Below 32 columns :class:`Orthogonal` is used. Errors
    are as with :class:`Orthogonal`. Use it for d in the hundreds or more: φ(X) takes O(n D log d).
    Where a matrix product is faster than the transforms, the frequencies are stored as a matrix.

    Examples
    --------
    >>> import bochner as bo
    >>> bo.draw(bo.kernels.Gaussian(8.0), bo.Fourier(bo.Structured()), n_features=512, n_inputs=100)
    FourierMap(kernel=Gaussian(lengthscale=8.0), n_inputs=100, n_features=512)
    """

    def place(self, measure: Measure, m: int, rng: np.random.Generator) -> Any:
        d, p = len(measure.scales), power_of_two(len(measure.scales))
        # For small d, transforms are far from uniformly random rotations, and not faster.
        if d < 32:
            return Orthogonal().place(measure, m, rng)

        def draw(child: np.random.Generator, blocks: int) -> Float[Array, "b 4 p"]:
            signs = child.choice((-1.0, 1.0), (blocks, 3, p))
            lengths = radii(measure, p, blocks * p, child) / (2 * np.pi * p**1.5)
            signs[:, 0, :d] *= measure.scales
            return np.concatenate([signs, lengths.reshape(blocks, 1, p)], axis=1)

        diagonals = draw_in_streams(draw, -(-m // p), p, rng)
        return Transforms(diagonals, np.empty((0, p), np.int32), (d, m))


@dataclass(frozen=True)
class Fastfood(Isotropic):
    """Blocks S H G Π H B / √p: Le, Sarlós and Smola (2013), eq. 8.

    p = 2^⌈log₂ d⌉, with random signs B, a random permutation Π, normal G, and S = χ_p/‖G‖ times the
    kernel's factor s. Unbiased, with a larger variance than :class:`IID`. Use it for comparisons
    with other work only: :class:`Structured` has a lower error at the same speed.

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

        streams = draw_in_streams(draw, -(-m // p), p, rng)
        orders = streams[:, 3].astype(np.int32)
        return Transforms(np.ascontiguousarray(streams[:, :3]), orders, (d, m))
