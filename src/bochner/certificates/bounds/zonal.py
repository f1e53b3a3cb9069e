"""Bounds of random Gegenbauer features: the leverage of each direction, and the cut of the series.

Cut at total degree N, a kernel loses e(x) = Σ_{n>N} κ⁽ⁿ⁾(0)|x|²ⁿ/n! (times e^(−|x|²) for the
Gaussian, where it is the tail of a Poisson variable). The rest has few radial functions, so that no
direction has a large leverage. :func:`zonal_bound` sums both for the rows at hand;
:func:`ball_bound` bounds both by formulas, for all rows of a ball.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import to_numpy
from bochner._core.checks import positive
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds import tails
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.mercer.radial import in_balls, on_axis, one_radius
from bochner.kernels.dotproduct import DotProductKernel, ExponentialSeries
from bochner.kernels.kernel import Kernel, Scaled
from bochner.kernels.radial import RadialKernels, monomials, radial_kernels
from bochner.kernels.stationary import Gaussian
from bochner.kernels.zonal import GeneralizedZonal
from bochner.kernels.zonal import alpha as harmonics

DEGREES = 400  # Total degrees that are tried
ROUNDING = 1e-15  # Tails below this share of the trace are rounding
NEGLIGIBLE = 1e-6  # A tail below this share of the penalty is negligible


class Cut(NamedTuple):
    """A kernel cut at degree N, as ``Gegenbauer("monomial", order, degree)`` has it."""

    degree: int  # q = N
    order: int  # s = ⌊N/2⌋ + 1; 1 on one sphere, ``Gegenbauer(order=1)``
    rest: float  # ε_t = Σ_j e(x_j)/λ: K_N ⪯ K ⪯ K_N + ε_t λ I
    directions: tails.Tail  # Bound of the spectral distance of K_N


@dataclass(frozen=True)
class ZonalBound(tails.Bound):
    """The (ε, λ)-spectral distance of random Gegenbauer features: :func:`zonal_bound`.

    ε ≤ ε_s + ε_t: of the directions and of the cut. The cut has the least sum; :meth:`cut_for`
    returns it.
    """

    quantity = "spectral distance"

    cuts: tuple[Cut, ...]  # of rising degree

    def width(self, error: float, confidence: float = 0.95) -> int:
        error = positive(error, "width", "error")
        width = min(_width(cut, error, confidence) for cut in self.cuts)
        if width == math.inf:
            raise InvalidInput(
                f"zonal_bound: error must be above {self.cuts[-1].rest:.3g}, which the last cut "
                f"leaves out; got {error!r}. Ask for a larger error or penalty."
            )
        return int(width)

    def cut_for(self, n_features: int, confidence: float = 0.95) -> Cut:
        """Return the cut with the least error at this width."""
        error = self.error(n_features, confidence)
        return min(self.cuts, key=lambda cut: _width(cut, error, confidence))


def _width(cut: Cut, error: float, confidence: float) -> float:
    rest = error - cut.rest
    return cut.directions.width(rest, confidence) if rest > 1e-3 * error else math.inf


def zonal_bound(kernel: Kernel, X: Float[Array, "n d"], *, alpha: float) -> ZonalBound:
    """Return the bound of the spectral distance of random Gegenbauer features; O(n³).

    Parameters
    ----------
    kernel : Kernel
        Of ⟨x, y⟩ or of the angle, the Gaussian, or ``GeneralizedZonal``; any rotation-invariant
        kernel where the rows lie on one sphere.
    X : (n, d)
    alpha : float
        λ, at most ‖K‖/2.

    See Also
    --------
    ball_bound : By formulas, for all rows of a ball.
    bochner.features.Gegenbauer : The features.

    Notes
    -----
    Sources: Han et al. (2022), lemma 7 and theorem 9.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import zonal_bound
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> bound = zonal_bound(bo.kernels.Gaussian(), X, alpha=1.0)
    >>> round(bound.width(0.5), -3)
    58000
    """
    rows = tails.dense_rows(X, "zonal_bound")
    alpha = positive(alpha, "zonal_bound", "alpha")
    squares, rests, functions = _energies(kernel, rows)
    d = tails.effective("zonal_bound", kernel, rows, alpha, 2.0)  # Also of the kernel that is cut
    within, enough = np.flatnonzero(rests < alpha), np.flatnonzero(rests <= NEGLIGIBLE * alpha)
    if not len(within):
        raise InvalidInput(
            f"zonal_bound: alpha must be above {rests[-1]:.3g}, the part of the trace beyond "
            f"{len(rests) - 1} degrees; got {alpha!r}. Centre or rescale X, or raise alpha."
        )
    cuts = []
    for N in range(within[0], 1 + (enough[0] if len(enough) else len(rests) - 1)):
        order = squares.shape[1] if functions else min(N // 2 + 1, squares.shape[1])
        tau = direction_leverage(squares[: N + 1, :order], rows.shape[1], alpha)
        directions = tails.leverage_bound(tau, min(d, tau), order)
        cuts.append(Cut(N, order, float(rests[N]) / alpha, directions))
    return ZonalBound(tuple(cuts))


def direction_leverage(squares: Float[np.ndarray, "q s"], d: int, alpha: float) -> float:
    """Return an upper limit of the leverage of each direction: Han et al. (2022), lemma 7.

    Σ_{l,i} α_l min{π²(l+1)²/(6λ) Σ_j h_{l,i}(|x_j|)², 1}. The printed lemma has the functions of a
    degree together; the test function of its proof may be chosen for each of them.

    ``squares`` are Σ_j h_{l,i}(|x_j|)² of the rows, shape (q + 1, s).
    """
    sizes = np.array([float(harmonics(l, d)) for l in range(len(squares))])
    steep = (np.pi * np.arange(1, len(squares) + 1)) ** 2 / (6 * alpha)
    return float(sizes @ np.minimum(steep[:, None] * squares, 1.0).sum(axis=1))


def _energies(kernel: Kernel, rows: Float[np.ndarray, "n d"]) -> tuple[Array, Array, bool]:
    """Return Σ_j h_{l,i}(|x_j|)², (q + 1, s), and the trace that is left beyond each degree.

    One function for each degree where all rows have one norm or the kernel depends on the angle,
    the functions of a ``GeneralizedZonal`` (then True is returned too), else the monomials.
    """
    plain, scales = in_balls("zonal_bound", kernel, rows.shape[1])
    radial = radial_kernels(plain, rows.shape[1])
    radii = np.linalg.norm(rows / scales, axis=1)
    if radial.zonal or one_radius(radii):
        return *_single(plain, radial, radii), False
    factor, inner = (plain.scale, plain.kernel) if isinstance(plain, Scaled) else (1.0, plain)
    if isinstance(inner, GeneralizedZonal):
        degrees = len(inner.radial_functions[: 2 if rows.shape[1] == 1 else None])
        each = [factor * np.square(inner.radial(l, radii)).sum(axis=0) for l in range(degrees)]
        squares = np.zeros((degrees, max(map(len, each))))
        for row, sums in zip(squares, each, strict=True):
            row[: len(sums)] = np.sort(sums)[::-1]
        sums = squares.sum(axis=1)
        return squares, np.cumsum(sums[::-1])[::-1] - sums, True
    if radial.power_series is None:
        raise UnsupportedKernel(
            "zonal_bound requires a kernel of ⟨x, y⟩ or of the angle, the Gaussian, "
            f"GeneralizedZonal, or rows on one sphere; got {kernel!r}. certify measures the error "
            "of any map."
        )
    return *_monomials(plain, radial, radii), False


def _single(
    kernel: Kernel, radial: RadialKernels, radii: Float[np.ndarray, " n"]
) -> tuple[Array, Array]:
    q = np.ones(1) if radial.zonal else np.array([radii.mean()])
    each = radial.matrices(64, q, q)[:, 0, 0]
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
    rests = np.cumsum(terms[::-1])[::-1] - terms + (beyond if beyond > 1e-12 * trace else 0.0)
    last = int(np.argmax(rests <= rests[-1] + ROUNDING * trace))
    squares = np.square(monomials(radial, last, last // 2 + 1, radii)).sum(axis=2)
    return squares, rests[: last + 1]


# --- All rows of a ball: theorems 11 and 12, in closed form -------------------------------------

#: Share of ε that the cut may take; the directions have the rest.
CUT_SHARE = 0.1


class GegenbauerSizes(NamedTuple):
    """Numbers that theorems 11 and 12 ask of ``Gegenbauer("monomial", order, degree)``."""

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
class BallBound(tails.Bound):
    """The (ε, λ)-spectral distance of random Gegenbauer features, for any n rows of a ball.

    With ρ = β r², ε_t = ε/10 and ε_s = 9ε/10 these are enough, with chance 1 − δ (q need not be
    above the degree of a polynomial, which is then not cut):

        q + 1 ≥ max(e²ρ, log(C n/(ε_t λ)) − ρ)   (the Gaussian: C = k(x, x), β = 1; theorem 12),
        q + 1 ≥ max(e²ρ, log(C n/(ε_t λ)))       (κ⁽ⁿ⁾(0) ≤ C βⁿ, assumption 1; theorem 11),
        s = ⌊q/2⌋ + 1,   τ = s (C(q + d − 1, q) + C(q + d − 2, q − 1)),
        m ≥ 2τ ε_s⁻² (1 + 2ε_s/3) log(16 d_λ/δ).

    The cut leaves out of k(x, x) C P(N > q) of a Poisson variable N of mean ρ (times e^ρ for
    kernels of ⟨x, y⟩), and P(N ≥ k) ≤ e^(−ρ−k) for k ≥ e²ρ. No direction has more leverage than
    τ. The theorems ask q² C(q + d − 1, q) in place of τ, about q times as much.
    Sources: Han et al. (2022), theorems 9, 11 and 12, with the constants of this proof.
    """

    quantity = "spectral distance"

    radius: float  # r, the largest |x|; of the Gaussian in units of its lengthscale
    n_columns: int  # d
    n_rows: int  # n
    alpha: float  # λ, at most ‖K‖/2
    effective_dimension: float  # d_λ = Tr K(K + λI)⁻¹
    scale: float = 1.0  # C
    growth: float = 1.0  # β
    gaussian: bool = True  # whether the kernel is C e^(−|x − y|²/2); else it is one of ⟨x, y⟩
    highest: int | None = None  # degree of a polynomial of ⟨x, y⟩; None: terms of every degree

    def sizes(self, error: float, confidence: float = 0.95) -> GegenbauerSizes:
        """Return q, s and m that keep the distance below ``error``; see :class:`Bound`.

        Raises
        ------
        InvalidInput
            If more than 10¹⁵ features are needed: the ball is too large for its dimension.
        """
        error, mean = positive(error, "sizes", "error"), self.growth * self.radius**2
        lost = math.log(self.scale * self.n_rows / (CUT_SHARE * error * self.alpha))
        first = max(math.e**2 * mean, lost - (mean if self.gaussian else 0.0), 1.0)
        q, d = math.ceil(first) - 1, self.n_columns
        q = q if self.highest is None else min(q, self.highest)
        s = q // 2 + 1
        leverage = s * (math.comb(q + d - 1, q) + (math.comb(q + d - 2, q - 1) if q else 0))
        if leverage > tails.LARGEST:
            raise InvalidInput(
                f"ball_bound: degree {q} in {d} columns has more than {tails.LARGEST:.0e} "
                f"functions, which a ball of radius {self.radius:.3g} requires. Rescale X, or "
                "measure with certify."
            )
        directions = tails.leverage_bound(leverage, min(self.effective_dimension, leverage), s)
        return GegenbauerSizes(q, s, directions.width((1 - CUT_SHARE) * error, confidence) // s)

    @property
    def theorem(self) -> int:
        """12 for the Gaussian, 11 for kernels of ⟨x, y⟩."""
        return 12 if self.gaussian else 11

    def width(self, error: float, confidence: float = 0.95) -> int:
        return self.sizes(error, confidence).n_features


def ball_bound(kernel: Kernel, X: Float[Array, "n d"], *, alpha: float) -> BallBound:
    """Return the bound of the spectral distance for all rows of the ball of these rows; O(n³).

    Parameters
    ----------
    kernel : Kernel
        Gaussian, ``DotExponential``, a kernel of ⟨x, y⟩ of finite degree or whose derivatives
        κ⁽ⁿ⁾(0) grow like a power (seen up to n = 400), or a multiple of one.
    X : (n, d)
    alpha : float
        λ, at most ‖K‖/2.

    See Also
    --------
    zonal_bound : From the rows at hand, with fewer features.

    Examples
    --------
    >>> import numpy as np
    >>> import bochner as bo
    >>> from bochner.certificates import ball_bound, zonal_bound
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> bound = ball_bound(bo.kernels.Gaussian(), X / 4, alpha=1.0)
    >>> bound.sizes(0.5).degree
    7
    >>> bound.width(0.5) > zonal_bound(bo.kernels.Gaussian(), X / 4, alpha=1.0).width(0.5)
    True
    """
    rows, alpha = tails.dense_rows(X, "ball_bound"), positive(alpha, "ball_bound", "alpha")
    plain, scales = in_balls("ball_bound", kernel, rows.shape[1])
    factor = 1.0
    while isinstance(plain, Scaled):
        factor, plain = factor * plain.scale, plain.kernel
    scale, growth, highest = _growth(plain)
    d = tails.effective("ball_bound", kernel, rows, alpha, 2.0)
    radius = max(float(np.linalg.norm(rows / scales, axis=1).max()), 1e-150)
    about = (factor * scale, growth, isinstance(plain, Gaussian), highest)
    return BallBound(radius, rows.shape[1], len(rows), alpha, d, *about)


def _growth(kernel: Kernel) -> tuple[float, float, int | None]:
    """Return C and β with κ⁽ⁿ⁾(0) ≤ C βⁿ for all n, and the highest n, None where there is none.

    Of few degrees β = max (κ⁽ⁿ⁾(0))^(1/n).
    """
    if isinstance(kernel, Gaussian):
        return 1.0, 1.0, None
    series = kernel.power_series if isinstance(kernel, DotProductKernel) else None
    if isinstance(series, ExponentialSeries):
        return 1.0, series.scale, None
    half, rates = DEGREES // 2, np.arange(DEGREES + 0.0)
    degree = None if series is None else series.degree
    if series is not None:
        n = np.arange(1 + (DEGREES if degree is None else degree))
        logs = np.asarray(series.log_derivative(n), dtype=np.float64)
        rates = logs[1:] / n[1:]
    if degree is None and rates[half:].max() > rates[:half].max() + 1e-9:
        raise UnsupportedKernel(
            "ball_bound requires the Gaussian, DotExponential, or a kernel of ⟨x, y⟩ of finite "
            f"degree or of derivatives that grow like a power; got {kernel!r}. Take zonal_bound, "
            "or measure with certify."
        )
    growth = math.exp(float(rates.max(initial=0.0)))
    return max(1.0, math.exp(float(logs[0]))), growth, degree
