"""Bounds of sketches of powers: what one product of signs can be, and variances of whole sketches.

Features of :class:`Maclaurin` are independent draws, and matrix Bernstein is for them. Those of
:class:`TensorSketch` and :class:`PolySketch` share their signs: their errors have a variance, and
Chebyshev's inequality is for it.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import logsumexp

from bochner._core.checks import check_fields, counted, integer, positive
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds.pairwise import (
    LARGEST,
    Bound,
    chance_of,
    dense_rows,
    too_wide,
)
from bochner.certificates.pointwise import eigen
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.method import Request
from bochner.features.sketch.maclaurin import Maclaurin
from bochner.features.sketch.polysketch import PolySketch, laid_out, second_moment
from bochner.features.sketch.powers import (
    Powers,
    exact_degrees,
    log_coefficients,
    powers,
    weighed,
)
from bochner.kernels.dotproduct import Polynomial
from bochner.kernels.kernel import Kernel

#: Degrees of a series without end that are looked at.
DEGREES = 512


def largest_product(kernel: Kernel, rows: Float[np.ndarray, "n d"]) -> float:
    """Return what D Σ z(x_j)² of no feature of ``Maclaurin("geometric")`` exceeds."""
    parts = powers(kernel, Maclaurin("geometric"), rows.shape[1])
    scaled = rows * parts.scales
    last = DEGREES if parts.series.degree is None else parts.series.degree
    N = np.arange(last + 1)
    logs = log_coefficients(parts.series, N) + (N + 1) * math.log(2) + _log_sums(parts, scaled, N)
    if parts.series.degree is None and logs[-1] > logs.max() - 30:
        raise UnsupportedKernel(
            "DirectionsNorm requires a power series whose terms 2ᴺ a_N |x|₁²ᴺ fall; those of "
            f"{kernel!r} do not on these rows. Rescale X, or measure with certify."
        )
    return float(np.exp(logs.max()))


def _log_sums(
    parts: Powers, scaled: Float[np.ndarray, "n d"], N: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    """Return the logarithm of what Σ_j g(x_j)² ⟨ω, x_j⟩²ᴺ does not exceed for signs ω."""
    weights = -np.square(scaled).sum(axis=1) if parts.gaussian else np.zeros(len(scaled))
    lengths = np.log(np.maximum(np.abs(scaled).sum(axis=1), 1e-150))
    each = logsumexp(2 * N[:, None] * lengths + weights, axis=1)
    norm = max(float(np.linalg.norm(scaled, 2)) ** 2 * scaled.shape[1], 1e-300)
    longest = (2 * (N[:, None] - 1) * lengths + weights).max(axis=1)
    return np.where(N == 0, each, np.minimum(each, longest + math.log(norm)))


@dataclass(frozen=True)
class SketchNorm(Bound):
    """‖Z Zᵀ − K‖_F ≤ ε‖K‖ for ``TensorSketch`` of a polynomial kernel.

    P ≤ (2 + 3ᵖ) I²/(D ε²).

    Parameters
    ----------
    intrinsic_dimension : float
        I = Tr K/‖K‖, 1 or above.
    degree : int
        p.

    Notes
    -----
    Chebyshev's inequality, with the variance of an entry at most (2 + 3ᵖ) k(x, x) k(y, y)/D. The D
    features are of one sketch, not of independent draws, so that no tail is exponential.
    Source: Avron, Nguyen and Woodruff (2014).
    """

    quantity = "Frobenius norm, of the operator norm of K"

    intrinsic_dimension: float
    degree: int

    def __post_init__(self) -> None:
        check_fields(self, intrinsic_dimension=positive, degree=counted)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"]) -> Self:
        """Return the bound for a ``Polynomial`` on these rows; O(n³)."""
        rows = dense_rows(X, cls.__name__)
        if not isinstance(kernel, Polynomial):
            raise UnsupportedKernel(
                f"SketchNorm requires a Polynomial kernel; got {kernel!r}. certify measures the "
                "error of any map."
            )
        values = eigen(kernel, rows, cls.__name__).values
        return cls(max(1.0, float(values.sum() / values[-1])), kernel.degree)

    @property
    def _constant(self) -> float:
        return (2 + 3.0**self.degree) * self.intrinsic_dimension**2

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return the least D; see :class:`Bound`."""
        error = positive(error, "width", "error")
        wanted = self._constant / chance_of(confidence) / error / error
        if wanted > LARGEST:
            raise too_wide(error)
        return max(1, math.ceil(wanted * (1 - 1e-12)))

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the least ε; see :class:`Bound`."""
        D = integer(n_features, "error", "n_features", 1)
        return math.sqrt(self._constant / (chance_of(confidence) * D))


@dataclass(frozen=True)
class TreeNorm(Bound):
    """‖Z Zᵀ − K‖_F ≤ ε‖K‖ for ``PolySketch`` of a kernel of ⟨x, y⟩ of finite degree.

    P ≤ (Σ_n √(C_n − 1) Tr K_n)²/(‖K‖ ε)², K_n the term aₙ⟨x, y⟩ⁿ.

    Parameters
    ----------
    traces : tuple of float
        Tr K_n/‖K‖ for n = 0, 1, …, p.
    energy : tuple of float
        Shares of the degrees by which features are given to them.
    n_columns : int
        d.
    method : PolySketch
        Its pairs, and the entries of its inner nodes.

    Notes
    -----
    Chebyshev's inequality. E⟨z(x), z(y)⟩² ≤ C_n |x|²ⁿ|y|²ⁿ for the sketch of degree n: a node of m
    pairs of entries of children L and R has

        C ≤ C_L C_R (1 + κ),   κ = 8/m (independent pairs), or for balanced ones, P_L ≥ P_R entries,
        κ = 4 (P_R − B)/(B (P_L − 1)(P_R − 1)) where m = B P_L,  8 P_L/((P_L − 1) m) else,

    and the variance, a polynomial of ⟨x, y⟩² without negative coefficients, is largest for y = x.
    So p nodes cost about 8p/m and not 3ᵖ/m. Zero where all pairs are there. Exact degrees have no
    error. The D features are of one tree, not of independent draws, so that no tail is exponential.
    Source: Ahle et al. (2020), whose tree it is, with the constants of this proof.
    """

    quantity = "Frobenius norm, of the operator norm of K"

    traces: tuple[float, ...]
    energy: tuple[float, ...]
    n_columns: int
    method: PolySketch

    def __post_init__(self) -> None:
        check_fields(self, n_columns=counted)
        if not self.traces or len(self.traces) != len(self.energy):
            raise InvalidInput(
                "TreeNorm: traces and energy must have one number for each degree; got "
                f"{len(self.traces)} and {len(self.energy)}."
            )

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], method: PolySketch | None = None) -> Self:
        """Return the bound for these rows; O(n³)."""
        rows, method = dense_rows(X, cls.__name__), method or PolySketch()
        parts = powers(kernel, method, rows.shape[1])
        if parts.series.degree is None:
            raise UnsupportedKernel(
                f"TreeNorm requires a kernel of ⟨x, y⟩ of finite degree; got {kernel!r}. certify "
                "measures the error of any map."
            )
        n = np.arange(parts.series.degree + 1)
        lengths = np.log(np.maximum(np.linalg.norm(rows, axis=1), 1e-150))
        logs = log_coefficients(parts.series, n) + logsumexp(2 * n[:, None] * lengths, axis=1)
        norm = float(eigen(kernel, rows, cls.__name__).values[-1])
        energy = weighed(method.radius, parts, Request(rows.shape[1], 1, 0, X=rows))
        traces = np.exp(logs) / norm
        return cls(tuple(traces.tolist()), tuple(energy.tolist()), rows.shape[1], method)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the ε that D features keep below; see :class:`Bound`.

        Raises
        ------
        InvalidInput
            If D is so small that a degree has no feature of its own.
        """
        D = integer(n_features, "error", "n_features", 1)
        root = self._root(D)
        if root == math.inf:
            raise InvalidInput(
                f"TreeNorm: n_features must give each degree a feature; {D} do not. Ask for more."
            )
        return root / math.sqrt(chance_of(confidence))

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return a D whose half is not enough, to one part in 64; see :class:`Bound`."""
        wanted = positive(error, "width", "error") * math.sqrt(chance_of(confidence))
        high = 1
        while self._root(high) > wanted:
            high *= 2
            if high > LARGEST:
                raise too_wide(error)
        low = high // 2
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            low, high = (middle, high) if self._root(middle) > wanted else (low, middle)
        return high

    def _root(self, D: int) -> float:
        """Return Σ_n √(C_n − 1) Tr K_n/‖K‖; infinite where degrees are left to chance."""
        energy = np.array(self.energy)
        exact, left = exact_degrees(energy, self.n_columns, D)
        energy[exact] = 0.0
        if not energy.any():
            return 0.0 if left >= 0 else math.inf
        if left < np.count_nonzero(energy):
            return math.inf
        got, inner = laid_out(self.method, energy, left, self.n_columns, np.random.default_rng(0))
        if min(got.probabilities) < 1 or len(got.degrees) < np.count_nonzero(energy):
            return math.inf
        each = (
            math.sqrt(second_moment(self.method, n, w, self.n_columns, inner) - 1) * self.traces[n]
            for n, w in zip(got.degrees, got.widths, strict=True)
        )
        return sum(each)
