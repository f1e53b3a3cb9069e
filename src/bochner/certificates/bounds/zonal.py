"""The bound for random Gegenbauer features: leverage of each direction, and exact tails.

Cut at total degree N, a kernel loses e(x) = Σ_{n>N} κ⁽ⁿ⁾(0)|x|²ⁿ/n! (times e^(−|x|²) for the
Gaussian, where it is the tail of a Poisson variable). What is left has few radial functions, so no
direction has much leverage. Theorems 11 and 12 of Han et al. (2022) bound both tails by formulas
whose constants are lost here; the sums themselves are cheap and sharper.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammaln

from bochner._core.arrays import to_numpy
from bochner._core.checks import positive
from bochner._core.shapes import Array, Float
from bochner.certificates.bounds.kind import Bound, chance_of, dense_rows
from bochner.certificates.bounds.matrix import Spectral, below_norm
from bochner.certificates.leverage import eigen
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.polar import in_balls, on_axis, one_radius
from bochner.kernels import Kernel
from bochner.kernels.gegenbauer import alpha as harmonics
from bochner.kernels.radial import Radial, monomials, radial_kernels

#: Total degrees that are tried, and degrees where there is one radial function for each.
DEGREES, SINGLE = 400, 64

#: Tails below this share of the trace are rounding.
ROUNDING = 1e-15

#: A tail below this share of the penalty is none.
NEGLIGIBLE = 1e-6


class Cut(NamedTuple):
    """A kernel cut at degree N, as ``Gegenbauer(order=order, degree=degree)`` has it.

    Attributes
    ----------
    degree, order : int
        q = N and s = ⌊N/2⌋ + 1; s = 1 on one sphere, ``Gegenbauer(radial="optimal", order=1)``.
    tail : float
        ε_t = Σ_j e(x_j)/λ: K_N ⪯ K ⪯ K_N + ε_t λ I.
    leverage : float
        Of any direction, for K_N.
    """

    degree: int
    order: int
    tail: float
    leverage: float


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

    cuts: tuple[Cut, ...]
    effective_dimension: float

    def __post_init__(self) -> None:
        if not self.cuts:
            raise InvalidInput("ZonalSpectral: cuts must be one Cut or more; got none.")
        name = "effective_dimension"
        object.__setattr__(self, name, positive(self.effective_dimension, "ZonalSpectral", name))

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

    @property
    def quantity(self) -> str:
        """The spectral distance."""
        return "spectral distance"

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
        errors = self._errors(n_features, confidence)
        return self.cuts[int(np.argmin(errors))]

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


def _single(kernel: Kernel, radial: Radial, radii: Float[np.ndarray, " n"]) -> tuple[Array, Array]:
    q = np.ones(1) if radial.zonal else np.array([radii.mean()])
    each = radial.matrices(SINGLE, q, q)[:, 0, 0]
    rows = on_axis(radii, radial.n_inputs)
    trace = float(to_numpy(kernel.diag(rows)).sum())
    each *= trace / float(to_numpy(kernel.diag(on_axis(q, radial.n_inputs)))[0])
    return each[:, None], np.maximum(trace - np.cumsum(each), 0.0)


def _monomials(
    kernel: Kernel, radial: Radial, radii: Float[np.ndarray, " n"]
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
        _cut(N, squares, float(tails[N]), d, alpha, componentwise)
        for N in range(within[0], last + 1)
    )


def _cut(N: int, squares: Array, tail: float, d: int, alpha: float, componentwise: bool) -> Cut:
    order = min(N // 2 + 1, squares.shape[1])
    tau = direction_leverage(squares[: N + 1, :order], d, alpha, componentwise=componentwise)
    return Cut(N, order, tail / alpha, tau)
