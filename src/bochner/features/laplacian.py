"""Laplacian eigenfunctions on a box: sines, weighted by the kernel's spectral density.

On the box Π_j [lower_j, lower_j + length_j] the Laplacian with zero boundary values has the
eigenfunctions Π_j √(2/length_j) sin(ω_j (x_j − lower_j)), ω_j = πk_j/length_j, and a stationary
kernel of spectral density S is nearly Σ_k S(ω_k) φ_k(x) φ_k(y) inside it. For the Green's function
of the second derivative, Brownian motion, the same sines (half a degree less) are exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from scipy.special import logsumexp

from bochner._core.arrays import dense
from bochner._core.checks import finite, positive, unpacked
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.axes import dense_blocks, required_rows, some_rows
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.products import (
    Pairs,
    as_column,
    best_products,
    factored,
    in_double,
    left_over,
    products_of_rows,
)
from bochner.features.request import Request
from bochner.features.rules import leaf_map
from bochner.kernels import Kernel, Scaled, Stationary, Sum
from bochner.kernels.basis import Brownian, BrownianBridge
from bochner.kernels.spectral import Independent, Measure

#: Lengthscales between rows and box that are tried, and the rows they are tried on. The error at a
#: face is k between a row and its mirror image, two margins away.
MARGINS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TRIED_ON = 256

#: Products that are weighed, for each one kept, where the order is not that of |ω|.
WIDER = 4


@dataclass(frozen=True)
class LaplacianEigenfunctions(Method):
    """Sines on a box about the rows, weighted by the spectral density: Hilbert-space features.

    Parameters
    ----------
    boundary : float, optional
        The box reaches this many times as far from its middle as the rows do. Larger boxes have
        less error near their faces and need more features, in proportion in each column. Default:
        of margins of half a lengthscale to six, that with the least error on 256 of the rows.
    box : d pairs (lower, upper), optional
        The box itself, in place of rows to learn it from.

    Notes
    -----
    Serves stationary kernels with a spectral density (Gaussian, Matérn, rational quadratic,
    Laplace, Cauchy, spectral mixtures), sums and multiples of them, and ``Brownian`` and
    ``BrownianBridge`` exactly. The features do not depend on lengthscales, only their weights do:
    good for kernels whose parameters are sampled. Neither unbiased nor below the kernel: zero on
    the faces of the box and beyond, so that rows far outside are predicted by the mean.

    Choose it for d = 1, 2, perhaps 3, and rows that fill a box; the number of products grows like
    the d-th power of the box in lengthscales, and :class:`HermiteMercer` or
    :class:`Nystrom` need fewer. Cost of φ(X): O(n (Σ_j m_j + D)), m_j the frequencies along
    column j, whose sines are all that is transcendental. Source: Solin and Särkkä (2020).
    """

    boundary: float | None = None
    box: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        who = "LaplacianEigenfunctions"
        if self.boundary is not None:
            object.__setattr__(self, "boundary", positive(self.boundary, who, "boundary"))
            if self.boundary < 1:
                raise InvalidInput(
                    f"{who}: boundary must be 1 or above, or rows lie outside the box; got "
                    f"{self.boundary}."
                )
        if self.box is not None:
            object.__setattr__(self, "box", _checked_box(self.box))


def _checked_box(box: Any) -> tuple[tuple[float, float], ...]:
    who = "LaplacianEigenfunctions"
    pairs = unpacked(box)
    if not isinstance(pairs, list | tuple) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise InvalidInput(f"{who}: box must be a pair (lower, upper) a column; got {box!r}.")
    checked = tuple(
        (finite(a, who, f"box[{j}][0]"), finite(b, who, f"box[{j}][1]"))
        for j, (a, b) in enumerate(pairs)
    )
    if any(a >= b for a, b in checked):
        raise InvalidInput(f"{who}: box must have lower below upper in each column; got {box!r}.")
    return checked


@dataclass(frozen=True, eq=False)
class SineMap(FeatureMap):
    """φ(x) = (a_k Π_j √(2/length_j) sin(π(k_j − shift)(x_j − lower_j)/length_j))_k.

    Attributes
    ----------
    lower, length : (d,) float64
        The box; rows outside are moved to its nearest point.
    shift : float
        0 for sines that vanish on all faces, ½ for those of Brownian motion, free at the far one.
    indices : (D, d) int32
        k, from 1.
    amplitudes : (D,) float64
        a, the roots of the eigenvalues, from the largest.
    """

    kernel: Kernel
    lower: Float[Array, " d"]
    length: Float[Array, " d"]
    shift: float
    indices: Array
    amplitudes: Float[Array, " D"]

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return len(self.lower)

    @property
    def n_features(self) -> int:
        """D, the number of products."""
        return len(self.indices)

    @property
    def below_kernel(self) -> bool:
        """Where the expansion is exact; that of a stationary kernel errs to both sides."""
        return isinstance(self.kernel, Brownian | BrownianBridge)

    @property
    def unbiased(self) -> bool:
        """A series that is cut, nothing random."""
        return False

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the weighted products, (n, D)."""
        Z = products_of_rows(self._how, self.n_features, self._table, X)
        return Z * as_column(self.amplitudes, like=Z)[:, 0]

    def residual(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Return k(x, x) − |φ(x)|², or zero, in float64: a bound for Brownian motion only."""
        return left_over(self, X)

    @cached_property
    def _most(self) -> list[int]:
        return self.indices.max(axis=0).tolist()

    @cached_property
    def _how(self) -> Pairs | Array:
        starts = np.concatenate([[0], np.cumsum(self._most)[:-1]])
        return factored(self.indices - 1 + starts)

    def _table(self, X: Float[Array, "n d"]) -> Float[Array, "m n"]:
        xp, X = in_double(dense(X))
        unit = (xp.permute_dims(X, (1, 0)) - as_column(self.lower, like=X)) / as_column(
            self.length, like=X
        )
        unit = xp.clip(unit, 0.0, 1.0)
        waves = [
            float(2 / self.length[j]) ** 0.5
            * xp.sin(as_column(math.pi * (np.arange(1, m + 1) - self.shift), like=X) * unit[j, :])
            for j, m in enumerate(self._most)
        ]
        return xp.concat(waves, axis=0)


# --- The spectral density ------------------------------------------------------------------------


@singledispatch
def log_spectral_density(
    kernel: Kernel,
    W: Float[Array, "m d"],  # noqa: ARG001
) -> Float[Array, " m"]:
    """Return log S at each row of W, ∫ S dω = (2π)^d k(0); raise UnsupportedKernel without one."""
    raise _unsupported(kernel)


def _unsupported(kernel: Kernel) -> UnsupportedKernel:
    return UnsupportedKernel(
        "LaplacianEigenfunctions requires a stationary kernel with a spectral density, such as "
        "Gaussian, Matern, RationalQuadratic, Laplace or Cauchy, or Brownian or BrownianBridge; "
        f"got {kernel!r}. Nystrom(...) serves every kernel."
    )


@log_spectral_density.register
def _(kernel: Stationary, W: Float[Array, "m d"]) -> Float[Array, " m"]:
    try:
        values = kernel.spectral_measure(W.shape[1]).log_density(W)
    except NotImplementedError as error:
        raise _unsupported(kernel) from error
    if not np.isfinite(values).any():  # a discrete measure, as periodic kernels have
        raise _unsupported(kernel)
    return values + W.shape[1] * math.log(2 * math.pi)


@log_spectral_density.register
def _(kernel: Scaled, W: Float[Array, "m d"]) -> Float[Array, " m"]:
    return log_spectral_density(kernel.kernel, W) + math.log(kernel.scale)


@log_spectral_density.register
def _(kernel: Sum, W: Float[Array, "m d"]) -> Float[Array, " m"]:
    parts = log_spectral_density(kernel.left, W), log_spectral_density(kernel.right, W)
    return logsumexp(parts, axis=0)


# --- Drawing -------------------------------------------------------------------------------------


@leaf_map.register
def _(method: LaplacianEigenfunctions, kernel: Kernel, ask: Request) -> FeatureMap:
    return laplacian(kernel, method, ask)


@singledispatch
def laplacian(kernel: Kernel, method: LaplacianEigenfunctions, ask: Request) -> FeatureMap:
    """Draw sines on a box, those of largest spectral density."""
    log_spectral_density(kernel, np.ones((1, ask.n_inputs)))  # or refuse, before rows are asked for
    if method.box is not None:
        return _sines(kernel, *_given_box(method.box, ask.n_inputs), ask.n_features)
    X = required_rows(ask, "LaplacianEigenfunctions", "the box")
    middle, half = _range(X)
    if method.boundary is not None:
        half = method.boundary * np.where(half > 0, half, 0.5)
        return _sines(kernel, middle - half, 2 * half, ask.n_features)
    rows = some_rows(X, TRIED_ON, ask.stream("boundary"))
    halves = [half + margin / _measure(kernel, ask.n_inputs).scales for margin in MARGINS]
    tried = [_sines(kernel, middle - h, 2 * h, ask.n_features) for h in halves]
    K = kernel(rows)
    errors = [np.linalg.norm(Z @ Z.T - K) for Z in (phi(rows) for phi in tried)]
    return tried[int(np.argmin(errors))]


def _sines(kernel: Kernel, lower: Array, length: Array, width: int) -> SineMap:
    unit = [math.pi * np.arange(1, WIDER * width + 1) / b for b in length]
    indices, _ = best_products(_logs(kernel, unit), WIDER * width)
    W = np.stack([w[k] for w, k in zip(unit, indices.T, strict=True)], axis=1)
    logs = log_spectral_density(kernel, W)
    best = np.argsort(-logs, kind="stable")[:width]
    chosen = np.ascontiguousarray(indices[best] + 1)
    return SineMap(kernel, lower, length, 0.0, chosen, np.exp(0.5 * logs[best]))


def _logs(kernel: Kernel, unit: Sequence[Array]) -> list[Array]:
    """Return what orders the products before they are weighed: −(ωℓ)², or exact logarithms."""
    measure = _measure(kernel, len(unit))
    scaled = [w / s for w, s in zip(unit, measure.scales, strict=True)]
    if isinstance(measure, Independent):
        return [measure.law.log_density(w) for w in scaled]
    return [-w * w for w in scaled]


def _measure(kernel: Kernel, d: int) -> Measure:
    """Return the spectral measure of the (first) stationary part."""
    while isinstance(kernel, Scaled | Sum):
        kernel = kernel.left if isinstance(kernel, Sum) else kernel.kernel
    return kernel.spectral_measure(d)  # type: ignore[attr-defined]


def _given_box(box: tuple[tuple[float, float], ...], d: int) -> tuple[Array, Array]:
    if len(box) != d:
        raise InvalidInput(
            f"LaplacianEigenfunctions: box must have a pair for each column; got {len(box)} for "
            f"{d} columns."
        )
    lower, upper = np.array(box).T
    return lower.copy(), upper - lower


def _range(X: Float[Array, "n d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Return middle and half width of what each column takes, in one pass."""
    faces = [(rows.min(axis=0), rows.max(axis=0)) for rows in dense_blocks(X)]
    least, largest = (np.array(side) for side in zip(*faces, strict=True))
    least, largest = least.min(axis=0), largest.max(axis=0)
    return (least + largest) / 2, (largest - least) / 2


@laplacian.register
def _(kernel: Brownian | BrownianBridge, method: LaplacianEigenfunctions, ask: Request) -> SineMap:  # noqa: ARG001
    """Draw the Karhunen–Loève expansion: eigenvalues (length/(π(k − shift)))² in each column."""
    shift, d = (0.5 if isinstance(kernel, Brownian) else 0.0), ask.n_inputs
    column = 2 * np.log(kernel.length / (math.pi * (np.arange(1, ask.n_features + 1) - shift)))
    indices, logs = best_products([column] * d, ask.n_features)
    length = np.full(d, kernel.length)
    return SineMap(kernel, np.zeros(d), length, shift, indices + 1, np.exp(0.5 * logs))
