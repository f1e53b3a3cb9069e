"""Bounds of whole kernel matrices of independent draws: matrix Bernstein, intrinsic dimension.

Z Zᵀ = (1/m) Σ R_j with independent psd R_j of mean K. What bounds R bounds the error: its trace
(operator norm), its ridge leverage τ = Tr (K + λI)^(-½) R (K + λI)^(-½) (spectral distance).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import to_numpy
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
from bochner.certificates.pointwise import eigen
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.mercer.radial import in_balls, on_axis, one_radius
from bochner.kernels.kernel import Kernel
from bochner.kernels.radial import RadialKernels, monomials, radial_kernels
from bochner.kernels.zonal import alpha as harmonics

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


# --- The bound for random Gegenbauer features: leverage of each direction, and exact tails -------
#
# Cut at total degree N, a kernel loses e(x) = Σ_{n>N} κ⁽ⁿ⁾(0)|x|²ⁿ/n! (times e^(−|x|²) for the
# Gaussian, where it is the tail of a Poisson variable). What is left has few radial functions, so
# no direction has much leverage. Theorems 11 and 12 of Han et al. (2022) bound both tails by
# formulas whose constants are lost here; the sums themselves are cheap and sharper.

#: Total degrees that are tried, and degrees where there is one radial function for each.
DEGREES, SINGLE = 400, 64
ROUNDING = 1e-15  # Tails below this share of the trace are rounding
NEGLIGIBLE = 1e-6  # A tail below this share of the penalty is none


class Cut(NamedTuple):
    """A kernel cut at degree N, as ``Gegenbauer(order=order, degree=degree)`` has it."""

    degree: int  # q = N
    order: int  # s = ⌊N/2⌋ + 1; 1 on one sphere, ``Gegenbauer(radial="optimal", order=1)``
    tail: float  # ε_t = Σ_j e(x_j)/λ: K_N ⪯ K ⪯ K_N + ε_t λ I
    leverage: float  # of any direction, for K_N


@dataclass(frozen=True)
class ZonalSpectral(Bound):
    """The (ε, λ)-spectral distance of random Gegenbauer features, as published.

    ε ≤ ε_s + ε_t: that of the directions (:class:`Spectral`, leverage by lemma 7) and that of the
    cut. The cut is the one with the least sum; :meth:`cut_for` says which.

    Parameters
    ----------
    cuts : tuple of Cut
        Of rising degree.
    effective_dimension : float
        d_λ.

    Notes
    -----
    Sources: Han et al. (2022), lemma 7 and theorems 9, 11 and 12.
    """

    quantity = "spectral distance"

    cuts: tuple[Cut, ...]
    effective_dimension: float

    def __post_init__(self) -> None:
        if not self.cuts:
            raise InvalidInput("ZonalSpectral: cuts must be one Cut or more; got none.")
        check_fields(self, effective_dimension=positive)

    @classmethod
    def of(
        cls, kernel: Kernel, X: Float[Array, "n d"], *, alpha: float, componentwise: bool = True
    ) -> Self:
        """Return the bound for a kernel of ⟨x, y⟩ or of the angle, or the Gaussian; O(n³).

        On one sphere for every rotation-invariant kernel.

        With ``componentwise`` each radial function counts at most as one, else all of a degree
        count as s, as lemma 7 is printed.
        """
        rows = dense_rows(X, cls.__name__)
        alpha = positive(alpha, cls.__name__, "alpha")
        squares, tails = _energies(kernel, rows)
        values = eigen(kernel, rows, cls.__name__).values
        below_norm(2 * alpha, float(values[-1]), cls.__name__)  # of the kernel that is cut as well
        d = float(np.sum(values / (values + alpha)))
        return cls(_cuts(squares, tails, rows.shape[1], alpha, componentwise), d)

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return the least s·m over the cuts; see :class:`Bound`."""
        error = positive(error, "width", "error")
        widths = [
            self._directions(cut).width(error - cut.tail, confidence)
            for cut in self.cuts
            if error - cut.tail > 1e-3 * error
        ]
        if not widths:
            raise InvalidInput(
                f"ZonalSpectral: error must be above {self.cuts[-1].tail:.3g}, what the last cut "
                f"leaves out; got {error!r}. Ask for a larger error or penalty."
            )
        return min(widths)

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the least ε_s + ε_t over the cuts; see :class:`Bound`."""
        return min(self._errors(n_features, confidence))

    def cut_for(self, n_features: int, confidence: float = 0.95) -> Cut:
        """Return the cut with the least error at this width."""
        return self.cuts[int(np.argmin(self._errors(n_features, confidence)))]

    def _errors(self, n_features: int, confidence: float) -> list[float]:
        chance_of(confidence)
        fits = [cut for cut in self.cuts if cut.order <= n_features]
        if not fits:
            raise InvalidInput(
                f"ZonalSpectral: n_features must be {self.cuts[0].order} or above, one direction; "
                f"got {n_features!r}."
            )
        return [cut.tail + self._directions(cut).error(n_features, confidence) for cut in fits]

    def _directions(self, cut: Cut) -> Spectral:
        d = min(self.effective_dimension, cut.leverage)
        return Spectral(cut.leverage, d, cut.order)


def direction_leverage(
    squares: Float[np.ndarray, "q s"], d: int, alpha: float, *, componentwise: bool = True
) -> float:
    """Return what the leverage of no direction exceeds: Han et al. (2022), lemma 7.

    Σ_{l,i} α_l min{π²(l+1)²/(6λ) Σ_j h_{l,i}(|x_j|)², 1}; as printed, not componentwise, it is
    Σ_l α_l min{π²(l+1)²/(6λ) Σ_j |h_l(|x_j|)|², s}.

    Parameters
    ----------
    squares : (q + 1, s)
        Σ_j h_{l,i}(|x_j|)² of the rows.
    d : int
        Columns of the rows.
    alpha : float
        λ.
    componentwise : bool, default True
        The sharper form: the proof's test function may be chosen for each radial function.
    """
    sizes = np.array([float(harmonics(l, d)) for l in range(len(squares))])
    steep = (np.pi * np.arange(1, len(squares) + 1)) ** 2 / (6 * alpha)
    if componentwise:
        return float(sizes @ np.minimum(steep[:, None] * squares, 1.0).sum(axis=1))
    return float(sizes @ np.minimum(steep * squares.sum(axis=1), squares.shape[1]))


def _energies(kernel: Kernel, rows: Float[np.ndarray, "n d"]) -> tuple[Array, Array]:
    """Return Σ_j h_{l,i}(|x_j|)², (q + 1, s), and the trace that is left beyond each degree.

    One function for each degree where the rows lie on one sphere or the kernel is of the angle,
    else the monomials.
    """
    plain, scales = in_balls("ZonalSpectral", kernel, rows.shape[1])
    radial = radial_kernels(plain, rows.shape[1])
    radii = np.linalg.norm(rows / scales, axis=1)
    if radial.zonal or one_radius(radii):
        return _single(plain, radial, radii)
    if radial.power_series is None:
        raise UnsupportedKernel(
            f"ZonalSpectral requires a kernel of ⟨x, y⟩ or of the angle, the Gaussian, or rows on "
            f"one sphere; got {kernel!r}. certify measures the error of any map."
        )
    return _monomials(plain, radial, radii)


def _single(
    kernel: Kernel, radial: RadialKernels, radii: Float[np.ndarray, " n"]
) -> tuple[Array, Array]:
    q = np.ones(1) if radial.zonal else np.array([radii.mean()])
    each = radial.matrices(SINGLE, q, q)[:, 0, 0]
    rows = on_axis(radii, radial.n_inputs)
    trace = float(to_numpy(kernel.diag(rows)).sum())
    each *= trace / float(to_numpy(kernel.diag(on_axis(q, radial.n_inputs)))[0])
    return each[:, None], np.maximum(trace - np.cumsum(each), 0.0)


def _monomials(
    kernel: Kernel, radial: RadialKernels, radii: Float[np.ndarray, " n"]
) -> tuple[Array, Array]:
    """By the exact tail Σ_{n>N} Σ_j κ⁽ⁿ⁾(0) r_j²ⁿ e^(−decay r_j²)/n!."""
    series, n = radial.power_series, np.arange(DEGREES + 1)[:, None]
    assert series is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(n == 0, 0.0, 2 * n * np.log(radii[None, :]))
    logs = series.log_derivative(n) + powers - gammaln(n + 1.0)
    terms = np.exp(logs - radial.decay * radii[None, :] ** 2).sum(axis=1)
    trace = float(to_numpy(kernel.diag(on_axis(radii, radial.n_inputs))).sum())
    beyond = max(trace - float(terms.sum()), 0.0)  # of degrees that are not summed
    tails = np.cumsum(terms[::-1])[::-1] - terms + (beyond if beyond > 1e-12 * trace else 0.0)
    last = int(np.argmax(tails <= tails[-1] + ROUNDING * trace))
    squares = np.square(monomials(radial, last, last // 2 + 1, radii)).sum(axis=2)
    return squares, tails[: last + 1]


def _cuts(
    squares: Float[np.ndarray, "q s"],
    tails: Float[np.ndarray, " q"],
    d: int,
    alpha: float,
    componentwise: bool,
) -> tuple[Cut, ...]:
    within, enough = np.flatnonzero(tails < alpha), np.flatnonzero(tails <= NEGLIGIBLE * alpha)
    if not len(within):
        raise InvalidInput(
            f"ZonalSpectral: alpha must be above {tails[-1]:.3g}, what {len(tails) - 1} degrees "
            f"leave out of the trace; got {alpha!r}. Centre or rescale X, or raise alpha."
        )
    last = enough[0] if len(enough) else len(tails) - 1
    return tuple(
        Cut(
            N,
            order := min(N // 2 + 1, squares.shape[1]),
            float(tails[N]) / alpha,
            direction_leverage(squares[: N + 1, :order], d, alpha, componentwise=componentwise),
        )
        for N in range(within[0], last + 1)
    )
