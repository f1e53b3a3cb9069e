"""Bounds of whole kernel matrices of independent draws: matrix Bernstein, intrinsic dimension.

Z Zᵀ = (1/m) Σ R_j with independent psd R_j of mean K. What bounds R bounds the error: its trace
(operator norm), its ridge leverage τ = Tr (K + λI)^(-½) R (K + λI)^(-½) (spectral distance).
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from bochner._core.checks import check_fields, counted, integer, one_of, positive, word
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds.pairwise import (
    FORMS,
    Bound,
    TailBound,
    chance_of,
    dense_rows,
    per_draw,
    rows_and_amplitude,
)
from bochner.certificates.bounds.sketches import largest_product
from bochner.certificates.pointwise import eigen
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier.placements import IID
from bochner.features.random.networks import ReLU, Sign, polynomial_width
from bochner.features.sketch.maclaurin import Maclaurin
from bochner.kernels.kernel import Kernel
from bochner.kernels.zonal import Angular, ArcCosine

COST = 11  # The cost of every projection is kept to so many times the spectral and the trace error


@dataclass(frozen=True)
class OperatorNorm(TailBound):
    """The error of the whole matrix, ‖Z Zᵀ − K‖ ≤ ε‖K‖, for a kernel of x − y.

    P ≤ 8 I exp(−m ε²/(2 I L (1 + 2ε/3))), L = 1 (pair) or 2 (phase).

    Parameters
    ----------
    intrinsic_dimension : float
        I = Tr K/‖K‖, 1 or above.
    form : {"pair", "phase"}, default "pair"

    Notes
    -----
    Source: Tropp (2015), theorem 7.7.1, with ‖R‖ ≤ L Tr K and E R² ⪯ L Tr K · K.
    """

    quantity = "operator norm, relative"

    intrinsic_dimension: float
    form: str = "pair"

    def __post_init__(self) -> None:
        check_fields(self, form=word(*FORMS), intrinsic_dimension=positive)
        if self.intrinsic_dimension < 1:
            raise InvalidInput(
                "OperatorNorm: intrinsic_dimension must be 1 or above, as Tr K/‖K‖ is; got "
                f"{self.intrinsic_dimension!r}. Take it from intrinsic_dimension(kernel, X)."
            )

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], form: str = "pair") -> Self:
        """Return the bound for the kernel matrix of these rows; O(n³)."""
        rows, _ = rows_and_amplitude(kernel, X, cls.__name__)
        values = eigen(kernel, rows, cls.__name__).values
        return cls(max(1.0, float(values.sum() / values[-1])), form)

    def log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(8 * self.intrinsic_dimension)

    def rate(self, error: float) -> float:
        size = self.intrinsic_dimension * per_draw("phase" if self.form == "pair" else "pair")
        return error * error / (2 * size * (1 + 2 * error / 3))


@dataclass(frozen=True)
class DirectionsNorm(TailBound):
    """‖Z Zᵀ − K‖ ≤ ε‖K‖ for features of independent directions: signs, ramps, and their products.

    P ≤ 8 I exp(−m ε²/(2 I L (1 + 2ε/3))) for m directions.

    Parameters
    ----------
    intrinsic_dimension : float
        I = Tr K/‖K‖, 1 or above.
    size : float
        L: the largest Σ z(x_j)² of one direction, m z² its features, over Tr K. 1 for signs. Where
        polynomials are split off, of the random part alone.
    n_exact : int, default 0
        Exact features beside the m random ones.

    Notes
    -----
    Source: Tropp (2015), theorem 7.7.1, with ‖R‖ ≤ L Tr K and E R² ⪯ L Tr K · K.
    """

    quantity = "operator norm, relative"

    intrinsic_dimension: float
    size: float
    n_exact: int = 0

    def __post_init__(self) -> None:
        check_fields(self, intrinsic_dimension=positive, size=positive, n_exact=integer)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], method: Sign | ReLU | Maclaurin) -> Self:
        """Return the bound for a method of independent features on these rows; O(n³).

        ``Sign(IID())``, ``ReLU(order, IID())``, ``Maclaurin("geometric")``.

        L is 1 for ``Angular``. Of ``ArcCosine(order)`` with directions u uniform on the sphere it
        is c sup_u Σ (u·x_j)^(2 order)/Tr K, where c is ½, d/2 or d(d + 2)/2 (four times that where
        polynomials are not split off) and the supremum n, ‖XᵀX‖ or at most max |x_j|² ‖XᵀX‖.
        ``split=None`` is taken as True. Of a power series it is the largest over degrees N of
        2^(N+1) a_N Σ ⟨ω, x_j⟩²ᴺ for signs ω, of which no degree has more than Σ |x_j|₁²ᴺ and
        d ‖XᵀX‖ max |x_j|₁²ᴺ⁻²: with all signs of a feature equal it is largest, by Hölder's
        inequality. Kar and Karnick (2012) take one number for all rows in place of the sums.
        """
        rows = dense_rows(X, cls.__name__)
        independent = getattr(method, "placement", None) == IID()
        if isinstance(method, Sign) and isinstance(kernel, Angular) and independent:
            largest, exact = float(len(rows)), 0
        elif isinstance(method, ReLU) and kernel == ArcCosine(method.order) and independent:
            largest, exact = _rectified_size(rows, method)
        elif isinstance(method, Maclaurin) and method.degrees == "geometric":
            largest, exact = largest_product(kernel, rows), 0
        else:
            raise UnsupportedKernel(
                "DirectionsNorm requires Angular() with Sign(IID()), ArcCosine(order) with "
                'ReLU(order, IID()), or a power series of ⟨x, y⟩ with Maclaurin("geometric"): '
                f"features that are independent; got {kernel!r} with {method!r}. certify measures "
                "any map."
            )
        values = eigen(kernel, rows, cls.__name__).values
        trace = float(values.sum())
        return cls(max(1.0, trace / float(values[-1])), largest / trace, exact)

    @property
    def draw_features(self) -> int:
        return 1

    @property
    def exact_features(self) -> int:
        return self.n_exact

    def log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(8 * self.intrinsic_dimension)

    def rate(self, error: float) -> float:
        return error * error / (2 * self.intrinsic_dimension * self.size * (1 + 2 * error / 3))


def _rectified_size(rows: Float[np.ndarray, "n d"], method: ReLU) -> tuple[float, int]:
    """Return what Σ z(x_j)² of one direction does not exceed, and the exact features."""
    d, p, split = rows.shape[1], method.order, method.split is not False
    norm = float(np.linalg.norm(rows, 2)) ** 2
    longest = float(np.square(rows).sum(axis=1).max())
    sums = (float(len(rows)), norm, longest * norm)[p]
    factor = (1, d, d * (d + 2))[p] * (0.5 if split else 2.0)
    return factor * sums, polynomial_width(p, d) if split else 0


@dataclass(frozen=True)
class Spectral(TailBound):
    """The (ε, λ)-spectral distance, for draws whose leverage is bounded.

    P ≤ 16 d_λ exp(−m ε²/(2 τ (1 + 2ε/3))) where λ ≤ ‖K‖.

    Parameters
    ----------
    leverage : float
        τ ≥ Tr Z_ωᵀ(K + λI)⁻¹ Z_ω for every draw ω. n k(x, x)/λ for any pair of frequencies; the
        largest that was measured, if it is known that there is none larger; d_λ for draws in
        proportion to their leverage, with weights; :class:`ZonalSpectral` has that of
        Gegenbauer features.
    effective_dimension : float
        d_λ = Tr K(K + λI)⁻¹ (at most τ, which is its mean).
    features_per_draw : int, default 2
        2 for pairs, 1 for phases (with twice the leverage), s for Gegenbauer features.

    Notes
    -----
    Sources: Avron et al. (2017), lemma 6 and theorem 7; Tropp (2015), theorem 7.7.1, with
    intrinsic dimension at most 2 d_λ.
    """

    quantity = "spectral distance"

    leverage: float
    effective_dimension: float
    features_per_draw: int = 2

    def __post_init__(self) -> None:
        check_fields(
            self, leverage=positive, effective_dimension=positive, features_per_draw=counted
        )
        if self.leverage < self.effective_dimension * (1 - 1e-9):
            raise InvalidInput(
                "Spectral: leverage must be no less than effective_dimension, which is its mean; "
                f"got {self.leverage!r} and {self.effective_dimension!r}."
            )

    @classmethod
    def of(
        cls, kernel: Kernel, X: Float[Array, "n d"], *, alpha: float, form: str = "pair"
    ) -> Self:
        """Return the uniform bound for Fourier features of these rows, τ = n k(x, x)/alpha; O(n³).

        Twice that for phases.
        """
        rows, a = rows_and_amplitude(kernel, X, cls.__name__)
        alpha = positive(alpha, cls.__name__, "alpha")
        values = eigen(kernel, rows, cls.__name__).values
        below_norm(alpha, float(values[-1]), cls.__name__)
        features = per_draw(one_of(form, cls.__name__, "form", FORMS))
        tau = (3 - features) * a * len(rows) / alpha
        return cls(tau, float(np.sum(values / (values + alpha))), features)

    @property
    def draw_features(self) -> int:
        return self.features_per_draw

    def log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(16 * self.effective_dimension)

    def rate(self, error: float) -> float:
        return error * error / (2 * self.leverage * (1 + 2 * error / 3))


@dataclass(frozen=True)
class TailTrace(TailBound):
    """The trace beyond rank k, relative, by Bernstein: P ≤ 2 exp(−m ε²/(2ρ(1 + ε/3)))."""

    quantity = "trace beyond the rank, relative"

    tail_ratio: float  # ρ; see :class:`ProjectionCost`
    features_per_draw: int

    @property
    def draw_features(self) -> int:
        return self.features_per_draw

    def log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(2)

    def rate(self, error: float) -> float:
        return error * error / (2 * self.tail_ratio * (1 + error / 3))


@dataclass(frozen=True)
class ProjectionCost(Bound):
    """Tr(K − PKP) of every projection P of rank k, to a share: k-means and kernel PCA.

    |cost of Z − cost of K| ≤ ε cost of K. Then a clustering of the features within a factor γ of
    the best is within γ(1 + ε)/(1 − ε) for the kernel.

    Parameters
    ----------
    spectral : Spectral
        Of the same draws at λ = (1/k) Σ_{i>k} λ_i(K).
    tail_ratio : float
        ρ: the largest share in Σ_{i>k} λ_i that one draw can have, Tr R outside the first k
        eigenvectors over Σ_{i>k} λ_i; n k(x, x)/Σ_{i>k} λ_i for pairs.

    Notes
    -----
    Holds where the spectral distance at λ and the trace beyond rank k, relative, are both at most
    ε/11, each with confidence 1 − δ/2; the trace by Bernstein, P ≤ 2 exp(−m ε²/(2ρ(1 + ε/3))).
    Sources: Han et al. (2022), theorem 10 and lemma 14; Cohen et al. (2015).
    """

    quantity = "cost of projections, relative"

    spectral: Spectral
    tail_ratio: float

    def __post_init__(self) -> None:
        if not isinstance(self.spectral, Spectral):
            raise InvalidInput(
                f"ProjectionCost: spectral must be a Spectral bound; got {self.spectral!r}."
            )
        check_fields(self, tail_ratio=positive)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], *, rank: int, form: str = "pair") -> Self:
        """Return the bound for Fourier features of these rows and projections of this rank."""
        rows, a = rows_and_amplitude(kernel, X, cls.__name__)
        rank = integer(rank, cls.__name__, "rank", 1)
        values = eigen(kernel, rows, cls.__name__).values
        tail = float(values[:-rank].sum())
        if rank >= len(rows) or tail <= 1e-12 * values.sum():
            raise InvalidInput(
                f"ProjectionCost: rank must be below that of the kernel matrix, or there is no "
                f"cost to keep; got rank {rank} for {len(rows)} rows. Ask for a lower rank."
            )
        features, penalty = per_draw(one_of(form, cls.__name__, "form", FORMS)), tail / rank
        below_norm(penalty, float(values[-1]), cls.__name__)
        size = (3 - features) * a * len(rows)
        d = float(np.sum(values / (values + penalty)))
        return cls(Spectral(size / penalty, d, features), size / tail)

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return the larger of the two widths; see :class:`Bound`."""
        share, half = positive(error, "width", "error") / COST, 1 - chance_of(confidence) / 2
        return max(part.width(share, half) for part in self._parts)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return eleven times the larger of the two errors; see :class:`Bound`."""
        half = 1 - chance_of(confidence) / 2
        return COST * max(part.error(n_features, half) for part in self._parts)

    @property
    def _parts(self) -> tuple[TailBound, TailBound]:
        return self.spectral, TailTrace(self.tail_ratio, self.spectral.features_per_draw)


def below_norm(penalty: float, norm: float, who: str) -> None:
    """Refuse a penalty above ‖K‖, where intrinsic and effective dimension part."""
    if penalty > norm:
        raise InvalidInput(
            f"{who}: the penalty must be at most ‖K‖ = {norm:.3g}; got {penalty:.3g}. With a "
            "larger one the fit is nearly zero whatever the features."
        )
