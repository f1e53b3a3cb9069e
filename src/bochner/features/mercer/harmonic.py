"""Mercer features of rotation-invariant kernels: harmonics of directions, functions of radii."""

from dataclasses import dataclass, replace

import numpy as np

from bochner._core.arrays import to_numpy
from bochner._core.checks import Counted, MaybePositive
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.map import FeatureMap
from bochner.features.mercer.axes import require_squares
from bochner.features.mercer.radial import (
    REACH,
    Nodes,
    Polar,
    RadialFunctions,
    in_balls,
    on_axis,
    polar_of,
    quantiles,
    spectrum,
)
from bochner.features.mercer.recurrence import axes_needed, harmonic_blocks
from bochner.features.method import Method, Request
from bochner.features.widths import is_stationary
from bochner.kernels.kernel import Kernel
from bochner.kernels.radial import RadialKernels, radial_kernels


@dataclass(frozen=True)
class MercerHarmonic(Method):
    """Spherical harmonics times radial functions, the D of greatest energy.

    Parameters
    ----------
    nodes : int, default 64
        Quantiles of the radii on which the radial kernels are factored.
    radius : float, optional
        Radius of the sphere that rows will lie on, in place of rows to learn the radii from.

    See Also
    --------
    HermiteMercer : For rows of unequal spread.
    Gegenbauer : Random directions in place of harmonics.

    Notes
    -----
    Serves kernels of the Euclidean distance (one lengthscale or one per column), of the inner
    product, of the angle (arc-cosine, neural tangent), sums and multiples of such. Deterministic:
    the error is the energy that is dropped, the least that D features can have on
    rotation-invariant rows. Choose it for up to about six columns, or ten on spheres. Where rows
    have very unequal spread, products of Hermite functions and :class:`Nystrom` are better.

    Kernels of the distance are centred at the mean of the rows, unless these lie on a sphere. The
    last degree is cut to fit, principal axes first. Cost of φ(X): O(n (d² + D)). Han, Zandieh and
    Avron (2022), lemmas 4 and 15 and eq. 11, with exact directions and optimal radial functions.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    >>> phi = bo.draw(Gaussian(), bo.MercerHarmonic(), n_features=64, X=X, random_state=0)
    >>> phi(X).shape
    (50, 64)
    >>> float(abs(phi(X) @ phi(X).T - phi.kernel(X, X)).max()) < 0.02
    True
    """

    nodes: Counted = 64
    radius: MaybePositive = None

    numbers_each = 0


@dataclass(frozen=True, eq=False)
class MercerHarmonicMap(FeatureMap):
    """Blocks g_b(|x|) α_l^{−1/2} Y_{l,μ}(x/|x|), μ = 1..counts_b, side by side."""

    kernel: Kernel
    polar: Polar  # From rows to radii and directions
    radial: RadialFunctions  # g_b α_l^{−1/2}, a column for each block
    #: How many harmonics of its degree a block has: all α_l, but for one that was cut.
    counts: np.ndarray

    @property
    def n_inputs(self) -> int:
        return self.radial.n_inputs

    @property
    def n_features(self) -> int:
        return int(self.counts.sum())

    below_kernel = True  # A sum of some of the kernel's terms: always

    @property
    def multiplications(self) -> float:
        return float(self.n_inputs**2 + self.n_features)

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        U, r = self.polar(X)
        return harmonic_blocks(U, self.n_inputs, self.radial.degrees, self.counts, self.radial(r))


def draw_harmonics(method: MercerHarmonic, kernel: Kernel, ask: Request) -> MercerHarmonicMap:
    """Draw the D harmonics times radial functions of greatest energy on the radii of the rows."""
    plain, scales = in_balls("MercerHarmonic", kernel, ask.n_inputs)
    radial = radial_kernels(plain, ask.n_inputs)
    if ask.X is not None:
        require_squares("MercerHarmonic", ask.X, 1 / scales)
    polar = polar_of(scales, ask.X, is_stationary(kernel) and method.radius is None)
    if method.radius is not None and np.ptp(scales) == 0:  # in units of x, as polar radii are not
        method = replace(method, radius=method.radius / float(scales[0]))
    nodes, limit = _radii(method, radial, polar, ask.X)
    total = float(to_numpy(plain.diag(on_axis(nodes.q, ask.n_inputs))) @ nodes.share)
    blocks = spectrum(radial, nodes, total, ask.n_features)
    sizes = np.array([float(b.size) for b in blocks])
    counts = np.diff(np.minimum(np.cumsum(sizes), ask.n_features), prepend=0).astype(int)
    blocks, counts = blocks[: np.count_nonzero(counts)], counts[counts > 0]  # the last is cut
    if not blocks:
        raise UnsupportedKernel(
            "MercerHarmonic requires rows that the kernel relates to each other; at distances up "
            f"to {float(nodes.q.max()):.3g} lengthscales no degree has energy. Take a larger "
            "lengthscale."
        )
    rest = max(total - sum(b.each * n for b, n in zip(blocks, counts.tolist(), strict=True)), 0.0)
    factors = np.array([b.size for b in blocks]) ** -0.5
    functions = RadialFunctions.of(plain, ask.n_inputs, nodes.q, blocks, factors)
    if limit:  # Below 1e-13 of the mean k(x, x) interpolation is rounding
        functions = functions.interpolated(limit, max(1e-13 * total, 1e-5 * rest))
    leading = axes_needed(ask.n_inputs, tuple(functions.degrees.tolist()), tuple(counts.tolist()))
    return MercerHarmonicMap(kernel, polar.leading(leading), functions, counts)


def _radii(
    method: MercerHarmonic, radial: RadialKernels, polar: Polar, X: Array | None
) -> tuple[Nodes, float]:
    """Return the radii to factor on, and how far an interpolant must reach; 0 for none."""
    if method.radius is not None:
        return Nodes(np.array([method.radius]), np.ones(1)), REACH * method.radius
    if X is None and not radial.zonal:
        raise InvalidInput(
            "draw: MercerHarmonic takes its radial functions from the radii of rows of data; got "
            "none. Pass X=..., or MercerHarmonic(radius=...) for rows on a sphere."
        )
    if X is None:
        return Nodes(np.ones(1), np.ones(1)), 0.0
    r = polar(X.astype(np.float64))[1]
    if radial.zonal:  # one radial function a degree, the same for any radius but zero
        return Nodes(np.array([r.max() or 1.0]), np.ones(1)), 0.0
    return quantiles(r, method.nodes), REACH * float(r.max())
