"""Bounds of random Gegenbauer features: the leverage of each direction, and what a cut leaves out.

Cut at total degree N, a kernel loses e(x) = Σ_{n>N} κ⁽ⁿ⁾(0)|x|²ⁿ/n! (times e^(−|x|²) for the
Gaussian, where it is the tail of a Poisson variable). What is left has few radial functions, so
no direction has much leverage. :class:`ZonalSpectral` sums both for the rows at hand;
:class:`BallSpectral` bounds both by formulas, for all rows of a ball.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import to_numpy
from bochner._core.checks import check_fields, counted, integer, positive
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds.matrix import Spectral, below_norm
from bochner.certificates.bounds.pairwise import LARGEST, Bound, chance_of, dense_rows
from bochner.certificates.pointwise import eigen
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.mercer.radial import in_balls, on_axis, one_radius
from bochner.kernels.dotproduct import DotProductKernel, ExponentialSeries
from bochner.kernels.kernel import Kernel, Scaled
from bochner.kernels.radial import RadialKernels, monomials, radial_kernels
from bochner.kernels.stationary import Gaussian
from bochner.kernels.zonal import alpha as harmonics

#: Total degrees that are tried, and degrees where there is one radial function for each.
DEGREES, SINGLE = 400, 64
ROUNDING = 1e-15  # Tails below this share of the trace are rounding
NEGLIGIBLE = 1e-6  # A tail below this share of the penalty is none


class Cut(NamedTuple):
    """A kernel cut at degree N, as ``Gegenbauer("monomial", order, degree)`` has it."""

    degree: int  # q = N
    order: int  # s = ⌊N/2⌋ + 1; 1 on one sphere, ``Gegenbauer(order=1)``
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


# --- All rows of a ball: theorems 11 and 12, in closed form -------------------------------------

#: Share of ε that the cut may take; the directions have the rest.
CUT_SHARE = 0.1


class GegenbauerSizes(NamedTuple):
    """What theorems 11 and 12 ask of ``Gegenbauer("monomial", order, degree)``."""

    degree: int  # q
    order: int  # s = ⌊q/2⌋ + 1
    directions: int  # m

    @property
    def n_features(self) -> int:
        """D = m·s."""
        return self.directions * self.order

    def __str__(self) -> str:
        return (
            f"degree q = {self.degree}, order s = {self.order} and m = {self.directions:,} "
            f"directions, D = {self.n_features:,}"
        )


@dataclass(frozen=True)
class BallSpectral(Bound):
    """The (ε, λ)-spectral distance of random Gegenbauer features, for any n rows of a ball.

    With ρ = β r², ε_t = ε/10 and ε_s = 9ε/10 these are enough, with chance 1 − δ (q need not be
    above the degree of a polynomial: nothing is cut then):

        q + 1 ≥ max(e²ρ, log(C n/(ε_t λ)) − ρ)   (the Gaussian: C = k(x, x), β = 1; theorem 12),
        q + 1 ≥ max(e²ρ, log(C n/(ε_t λ)))       (κ⁽ⁿ⁾(0) ≤ C βⁿ, assumption 1; theorem 11),
        s = ⌊q/2⌋ + 1,   τ = s (C(q + d − 1, q) + C(q + d − 2, q − 1)),
        m ≥ 2τ ε_s⁻² (1 + 2ε_s/3) log(16 d_λ/δ).

    Parameters
    ----------
    radius : float
        r, the largest |x|; of the Gaussian in units of its lengthscale.
    n_columns, n_rows : int
        d and n.
    alpha : float
        λ, at most ‖K‖/2.
    effective_dimension : float
        d_λ = Tr K(K + λI)⁻¹.
    scale, growth : float, default 1.0
        C and β.
    gaussian : bool, default True
        Whether the kernel is C e^(−|x − y|²/2); else one of ⟨x, y⟩.
    highest : int, optional
        Degree of a kernel that is a polynomial of ⟨x, y⟩. Default: it has terms of every degree.

    Notes
    -----
    What the cut at total degree q leaves out of k(x, x) is C P(N > q) of a Poisson variable N of
    mean ρ (times e^ρ for kernels of ⟨x, y⟩), and P(N ≥ k) ≤ e^(−ρ)(eρ/k)^k ≤ e^(−ρ−k) from
    k = e²ρ on; n times that is at most ε_t λ. Of the s functions of each degree l ≤ q no direction
    has more leverage than s α_l, and τ is their sum. The theorems ask q² C(q + d − 1, q) in its
    place, which is about q times as much. :class:`ZonalSpectral` is sharper, for rows at hand.
    Sources: Han et al. (2022), theorems 9, 11 and 12, with the constants of this proof.
    """

    quantity = "spectral distance"

    radius: float
    n_columns: int
    n_rows: int
    alpha: float
    effective_dimension: float
    scale: float = 1.0
    growth: float = 1.0
    gaussian: bool = True
    highest: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, n_columns=counted, n_rows=counted, radius=positive, alpha=positive)
        check_fields(self, effective_dimension=positive, scale=positive, growth=positive)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], *, alpha: float) -> Self:
        """Return the bound for the ball of these rows; O(n³), for the effective dimension.

        Of the Gaussian, ``DotExponential``, kernels of ⟨x, y⟩ of finite degree, and multiples.
        """
        rows, alpha = dense_rows(X, cls.__name__), positive(alpha, cls.__name__, "alpha")
        ball = cls.of_trace(kernel, rows, alpha=alpha)
        values = eigen(kernel, rows, cls.__name__).values
        below_norm(2 * alpha, float(values[-1]), cls.__name__)
        return replace(ball, effective_dimension=float(np.sum(values / (values + alpha))))

    @classmethod
    def of_trace(
        cls, kernel: Kernel, X: Float[Array, "n d"], *, alpha: float, n_rows: int | None = None
    ) -> Self:
        """Return the bound with Tr K/λ, which is more, in the place of d_λ; O(n d).

        ``n_rows`` is how many rows of the ball there are, where X has only some of them; alpha, at
        most ‖K‖/2, is their penalty.
        """
        rows, alpha = dense_rows(X, cls.__name__), positive(alpha, cls.__name__, "alpha")
        n = len(rows) if n_rows is None else integer(n_rows, cls.__name__, "n_rows", len(rows))
        plain, scales = in_balls(cls.__name__, kernel, rows.shape[1])
        scale, growth, highest = _growth(plain)
        mean = float(np.mean(to_numpy(kernel.diag(rows))))
        d = min(float(n), n * max(mean, 1e-150) / alpha)
        radius = max(float(np.linalg.norm(rows / scales, axis=1).max()), 1e-150)
        gaussian = isinstance(_unscaled(plain)[1], Gaussian)
        return cls(radius, rows.shape[1], n, alpha, d, scale, growth, gaussian, highest)

    def sizes(self, error: float, confidence: float = 0.95) -> GegenbauerSizes:
        """Return q, s and m that keep the distance below ``error``; see :class:`Bound`.

        Raises
        ------
        InvalidInput
            If no number of features below 10¹⁵ does: the ball is too large for its dimension.
        """
        error, mean = positive(error, "sizes", "error"), self.growth * self.radius**2
        lost = math.log(self.scale * self.n_rows / (CUT_SHARE * error * self.alpha))
        first = max(math.e**2 * mean, lost - (mean if self.gaussian else 0.0), 1.0)
        q, d = math.ceil(first) - 1, self.n_columns
        q = q if self.highest is None else min(q, self.highest)
        s = q // 2 + 1
        leverage = s * (math.comb(q + d - 1, q) + (math.comb(q + d - 2, q - 1) if q else 0))
        if leverage > LARGEST:
            raise InvalidInput(
                f"BallSpectral: degree {q} in {d} columns has more than {LARGEST:.0e} functions, "
                f"which a ball of radius {self.radius:.3g} asks for. Rescale X, or measure with "
                "certify."
            )
        directions = Spectral(leverage, min(self.effective_dimension, leverage), s)
        return GegenbauerSizes(q, s, directions.width((1 - CUT_SHARE) * error, confidence) // s)

    @property
    def theorem(self) -> int:
        """12 of the Gaussian, 11 of kernels of ⟨x, y⟩."""
        return 12 if self.gaussian else 11

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return s·m; see :class:`Bound`."""
        return self.sizes(error, confidence).n_features

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the least ε whose s·m is at most D; see :class:`Bound`."""
        D = integer(n_features, "error", "n_features", 1)
        least = self.sizes(LARGEST, confidence).order
        if least > D:
            raise InvalidInput(
                f"BallSpectral: n_features must be {least} or above, one direction; got {D}."
            )
        low, high = -30.0, math.log(LARGEST)
        for _ in range(100):  # the width falls in steps
            middle = (low + high) / 2
            low, high = (low, middle) if self._within(middle, D, confidence) else (middle, high)
        return math.exp(high)

    def _within(self, log_error: float, D: int, confidence: float) -> bool:
        try:
            return self.width(math.exp(log_error), confidence) <= D
        except InvalidInput:  # more than can be counted
            return False


def _unscaled(kernel: Kernel) -> tuple[float, Kernel]:
    """Return a kernel without its multiples, and their product."""
    scale = 1.0
    while isinstance(kernel, Scaled):
        scale, kernel = scale * kernel.scale, kernel.kernel
    return scale, kernel


def _growth(kernel: Kernel) -> tuple[float, float, int | None]:
    """Return C and β with κ⁽ⁿ⁾(0) ≤ C βⁿ for all n, and the highest n, None where there is none.

    Of few degrees β = max (κ⁽ⁿ⁾(0))^(1/n).
    """
    scale, plain = _unscaled(kernel)
    if isinstance(plain, Gaussian):
        return scale, 1.0, None
    series = plain.power_series if isinstance(plain, DotProductKernel) else None
    if isinstance(series, ExponentialSeries):
        return scale, series.scale, None
    if series is None or series.degree is None:
        raise UnsupportedKernel(
            "BallSpectral requires the Gaussian, DotExponential, or a kernel of ⟨x, y⟩ of finite "
            f"degree; got {kernel!r}. Take ZonalSpectral, or measure with certify."
        )
    logs = np.asarray(series.log_derivative(np.arange(series.degree + 1)), dtype=np.float64)
    n = np.arange(1, series.degree + 1)
    growth = math.exp(float((logs[1:] / n).max(initial=0.0)))
    return scale * max(1.0, math.exp(float(logs[0]))), growth, series.degree
