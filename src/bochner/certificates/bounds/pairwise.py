"""A-priori bounds: the width for an error, and the error at a width; here of single entries.

Each bound is a frozen value that holds what it needs to know of kernel and rows. With D features
the probability of an error above ε is at most

    C(ε) exp(−m r(ε)),   m = D / (features of one random draw),

which is read both ways: ``bound.width(error)`` and ``bound.error(n_features)``. The bounds here are
of |φ(x)·φ(y) − k(x, y)|; those of whole matrices are in :mod:`bochner.certificates.bounds.matrix`.
All are of independent draws, ``Fourier(IID())``: other placements have smaller errors, and these
theorems do not cover them.
"""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.optimize import brentq

from bochner._core.arrays import as_matrix, to_numpy
from bochner._core.checks import check_fields, counted, integer, one_of, positive, share, word
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.widths import is_stationary
from bochner.kernels.algebra import Columns
from bochner.kernels.kernel import Constant, Kernel, Power, Product, Scaled, Sum
from bochner.kernels.stationary import Stationary

FORMS = ("pair", "phase")
LARGEST = 1e15  # Widths beyond it are no widths


class Bound(abc.ABC):
    """An error that features of a given width exceed with small probability only."""

    #: What the error is of, in words.
    quantity: ClassVar[str]

    @abc.abstractmethod
    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return features D that keep the error below ``error`` with this confidence.

        Parameters
        ----------
        error : float
            ε, above zero.
        confidence : float, default 0.95
            1 − δ, above 0 and below 1.
        """

    @abc.abstractmethod
    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the error that D features keep below with this confidence.

        Parameters
        ----------
        n_features : int
            D, at least those of one random draw.
        confidence : float, default 0.95
            1 − δ, above 0 and below 1.
        """


class TailBound(Bound):
    """A bound of the form P(error > ε) ≤ C(ε) exp(−m r(ε)) for m random draws, read both ways."""

    form: str

    @property
    def draw_features(self) -> int:
        """Features of one random draw: here of one frequency."""
        return per_draw(self.form)

    @property
    def exact_features(self) -> int:
        """Features beside the random draws that are exact: none unless a bound has some."""
        return 0

    @abc.abstractmethod
    def log_failures(self, error: float) -> float:
        """Return log C(ε)."""

    @abc.abstractmethod
    def rate(self, error: float) -> float:
        """Return r(ε)."""

    def width(self, error: float, confidence: float = 0.95) -> int:
        """Return features of the fewest draws with C(ε) exp(−m r(ε)) ≤ δ; see :class:`Bound`."""
        error = positive(error, "width", "error")
        draws = (self.log_failures(error) - math.log(chance_of(confidence))) / self.rate(error)
        if draws > LARGEST:
            raise too_wide(error)
        random = self.draw_features * max(1, math.ceil(draws * (1 - 1e-12)))
        return self.exact_features + random

    def error(self, n_features: int, confidence: float = 0.95) -> float:
        """Return the least ε with C(ε) exp(−m r(ε)) ≤ δ; see :class:`Bound`."""
        features, exact = self.draw_features, self.exact_features
        m = (integer(n_features, "error", "n_features", exact + features) - exact) // features
        log_chance = math.log(chance_of(confidence))

        def excess(log_error: float) -> float:
            error = math.exp(log_error)
            return self.log_failures(error) - m * self.rate(error) - log_chance

        low, high = -30.0, 0.0
        while excess(high) > 0:
            low, high = high, high + 5.0
        return math.exp(float(brentq(excess, low, high, xtol=1e-13)))


def too_wide(error: float) -> InvalidInput:
    """Return the refusal of an error that no sensible number of features keeps."""
    return InvalidInput(
        f"width: error must be large enough for a width below {LARGEST:.0e}; got {error!r}. "
        "Ask for a larger error."
    )


def per_draw(form: str) -> int:
    """Return the features of one frequency."""
    return 2 if form == "pair" else 1


def chance_of(confidence: float) -> float:
    """Return δ = 1 − confidence, checked."""
    return 1 - share(confidence, "bounds", "confidence")


# --- what they need to know --------------------------------------------------------------------


def dense_rows(X: Float[Array, "n d"], who: str) -> Float[np.ndarray, "n d"]:
    """Return two or more rows, checked, as a float64 NumPy array."""
    X = as_matrix(X, who)
    if X.shape[0] < 2:
        raise InvalidInput(f"{who}: X must have at least 2 rows; got {X.shape[0]}. Pass more.")
    return np.asarray(to_numpy(X), dtype=np.float64)


def rows_and_amplitude(
    kernel: Kernel, X: Float[Array, "n d"], who: str
) -> tuple[Float[np.ndarray, "n d"], float]:
    """Return the rows as `dense_rows` does, and k(0) of a kernel of x − y."""
    rows = dense_rows(X, who)
    if not is_stationary(kernel):
        raise UnsupportedKernel(
            f"{who} requires a kernel of x − y, which Fourier features are for; got {kernel!r}. "
            "certify measures the error of any map."
        )
    return rows, float(to_numpy(kernel.diag(rows[:1]))[0])


#: The gradient of the error has mean square at most 4 E|ω|² at a point that depends on the draw
#: (twice the root); Sutherland and Schneider take it as at a fixed point.
GRADIENT = 2.0


# --- one entry, all pairs ------------------------------------------------------------------------


class EntryBound(TailBound):
    """A bound of every entry of a finite set of pairs, by a union over them."""

    quantity = "largest entry"

    n_pairs: int
    amplitude: float

    def __post_init__(self) -> None:
        check_fields(self, form=word(*FORMS), n_pairs=counted, amplitude=positive)

    def log_failures(self, error: float) -> float:  # noqa: ARG002
        return math.log(2.0 * self.n_pairs)


@dataclass(frozen=True)
class Hoeffding(EntryBound):
    """Every entry of a finite set of pairs, by Hoeffding's inequality and a union over the pairs.

    pair: P ≤ 2N exp(−Dε²/4a²); phase: P ≤ 2N exp(−Dε²/8a²).

    Parameters
    ----------
    n_pairs : int
        N, 1 or more: n(n − 1)/2 for n rows as pairs, whose diagonal is exact; n(n + 1)/2 as phases.
    form : {"pair", "phase"}, default "pair"
        Of :class:`bochner.Fourier`.
    amplitude : float, default 1.0
        a = k(x, x).

    Notes
    -----
    Source: Hoeffding (1963), theorem 2.
    """

    n_pairs: int
    form: str = "pair"
    amplitude: float = 1.0

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], form: str = "pair") -> Self:
        """Return the bound for all pairs of these rows."""
        rows, a = rows_and_amplitude(kernel, X, cls.__name__)
        return cls(_pairs(len(rows), form), form, a)

    def rate(self, error: float) -> float:
        return (error / self.amplitude) ** 2 / (2 if self.form == "pair" else 8)


@dataclass(frozen=True)
class Bernstein(EntryBound):
    """The same, by Bernstein's inequality: sharper where the variance of an entry is small.

    P ≤ 2N exp(−m ε²/(2(v + bε/3))) for a = 1, b = 2 (pair) or 3 (phase).

    Parameters
    ----------
    n_pairs : int
        N; see :class:`Hoeffding`.
    variance : float
        v: largest variance of one draw over the pairs, for a = 1. Pair: (1 + k(2δ) − 2k(δ)²)/2,
        at most 1, and at most ½ for the Gaussian; phase: 1 + k(2δ)/2 − k(δ)², at most 3/2.
    form : {"pair", "phase"}, default "pair"
    amplitude : float, default 1.0
        a = k(x, x).

    Notes
    -----
    Source: Sutherland and Schneider (2015), section 3.1.
    """

    n_pairs: int
    variance: float
    form: str = "pair"
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        checks = {"n_pairs": counted, "variance": positive, "amplitude": positive}
        check_fields(self, form=word(*FORMS), **checks)

    @classmethod
    def of(cls, kernel: Kernel, X: Float[Array, "n d"], form: str = "pair") -> Self:
        """Return the bound for all pairs of these rows, v from the kernel's values; O(n²)."""
        rows, a = rows_and_amplitude(kernel, X, cls.__name__)
        k, doubled = to_numpy(kernel(rows)) / a, to_numpy(kernel(2 * rows)) / a
        v = (1 + doubled - 2 * k**2) / 2 if form == "pair" else 1 + doubled / 2 - k**2
        return cls(_pairs(len(rows), form), max(float(v.max()), 1e-300), form, a)

    def rate(self, error: float) -> float:
        e, b = error / self.amplitude, 2 if self.form == "pair" else 3
        return e * e / (2 * (self.variance + b * e / 3))


# --- everywhere in a region ----------------------------------------------------------------------


@dataclass(frozen=True)
class RahimiRecht(TailBound):
    """Every entry for all points of a region, seen or not: Rahimi and Recht (2007), claim 1.

    pair:  P ≤ β_d (2σℓ/ε)^(2d/(d+2)) exp(−Dε²/(8(d + 2))),
    phase: P ≤ β′_d (2σℓ/ε)^(2d/(d+1)) exp(−Dε²/(32(d + 1))),

    for a = 1, in the form of Sutherland and Schneider (2015), propositions 1 and 2, with 2σ in
    place of σ: the mean square of the error's gradient is at most 4σ² (pair) and 12σ² (phase)
    where the largest error is, a point that depends on the draw. The constants of the first paper
    hold for D **frequencies** of pairs, not for D phases. With ``printed`` the bound is that of
    the first paper as it stands there,

        P ≤ 2⁸ (σℓ/ε)² exp(−mε²/(4(d + 2))),

    m frequencies, for comparison: of phases it is not proved.

    Parameters
    ----------
    spread : float
        σ = √(E|ω|²), the root of the trace of the frequencies' second moment; finite.
    diameter : float
        ℓ of the region, in the units of X.
    n_columns : int
        d.
    form : {"pair", "phase"}, default "pair"
    amplitude : float, default 1.0
        a = k(x, x).
    printed : bool, default False
    """

    quantity = "largest entry, anywhere"

    spread: float
    diameter: float
    n_columns: int
    form: str = "pair"
    amplitude: float = 1.0
    printed: bool = False

    def __post_init__(self) -> None:
        if self.spread == math.inf:
            raise _infinite("spread=inf")
        check_fields(self, form=word(*FORMS), spread=positive, diameter=positive, n_columns=counted)
        check_fields(self, amplitude=positive)

    @classmethod
    def of(
        cls, kernel: Kernel, X: Float[Array, "n d"], form: str = "pair", *, printed: bool = False
    ) -> Self:
        """Return the bound for the region these rows span.

        Raises
        ------
        UnsupportedKernel
            If E|ω|² is infinite (Laplace, Exponential, Matérn up to smoothness 1), or not known.
        """
        rows, a = rows_and_amplitude(kernel, X, cls.__name__)
        second = second_moment(kernel, rows.shape[1])
        if second == math.inf:
            raise _infinite(repr(kernel))
        # A diameter the rows do not exceed: twice a radius, or the diagonal of their box.
        radius = np.linalg.norm(rows - rows.mean(axis=0), axis=1).max()
        diameter = max(float(min(2 * radius, np.linalg.norm(np.ptp(rows, axis=0)))), 1e-300)
        return cls(second**0.5, diameter, rows.shape[1], form, a, printed)

    def log_failures(self, error: float) -> float:
        d, e = self.n_columns, error / self.amplitude
        if self.printed:
            return 8 * math.log(2) + 2 * math.log(self.spread * self.diameter / e)
        power = 2 * d / (d + (2 if self.form == "pair" else 1))
        reach = math.log(GRADIENT * self.spread * self.diameter / e)
        return math.log(covering_constant(d, self.form)) + power * reach

    def rate(self, error: float) -> float:
        d, e = self.n_columns, error / self.amplitude
        return e * e / (4 * (d + 2) if self.form == "pair" or self.printed else 32 * (d + 1))


def covering_constant(d: int, form: str = "pair") -> float:
    """Return β_d of pairs or β′_d of phases: Sutherland and Schneider (2015), propositions 1, 2.

    β_d = [(d/2)^(−d/(d+2)) + (d/2)^(2/(d+2))] 2^((6d+2)/(d+2)), at most 66;
    β′_d = [d^(−d/(d+1)) + d^(1/(d+1))] 2^((5d+1)/(d+1)) 3^(d/(d+1)), at most 98.
    """
    d = integer(d, "covering_constant", "d", 1)
    if one_of(form, "covering_constant", "form", FORMS) == "pair":
        sides = (d / 2) ** (-d / (d + 2)) + (d / 2) ** (2 / (d + 2))
        return float(sides * 2 ** ((6 * d + 2) / (d + 2)))
    sides = d ** (-d / (d + 1)) + d ** (1 / (d + 1))
    return float(sides * 2 ** ((5 * d + 1) / (d + 1)) * 3 ** (d / (d + 1)))


def _infinite(what: str) -> UnsupportedKernel:
    return UnsupportedKernel(
        "RahimiRecht requires frequencies of finite variance, which Laplace, Exponential and "
        f"Matern up to smoothness 1 have not; got {what}. Take Hoeffding or Bernstein, over the "
        "pairs of your rows."
    )


def second_moment(kernel: Kernel, d: int) -> float:
    """Return E|ω|² of a kernel of x − y, possibly infinite."""
    match kernel:
        case Stationary():
            return float(kernel.spectral_measure(d).second_moment)
        case Constant():
            return 0.0
        case Scaled() | Columns():
            columns = len(kernel.columns) if isinstance(kernel, Columns) else d
            return second_moment(kernel.kernel, columns)
        case Power():
            return kernel.exponent * second_moment(kernel.kernel, d)
        case Product():
            return second_moment(kernel.left, d) + second_moment(kernel.right, d)
        case Sum():
            parts = kernel.left, kernel.right
            sizes = [float(to_numpy(k.diag(np.zeros((1, d))))[0]) for k in parts]
            moments = (s * second_moment(k, d) for s, k in zip(sizes, parts, strict=True) if s)
            return sum(moments) / sum(sizes)
    raise UnsupportedKernel(
        "RahimiRecht requires a stationary kernel, sums, products, powers and multiples of such; "
        f"got {kernel!r}. Take Hoeffding or Bernstein."
    )


def _pairs(n: int, form: str) -> int:
    """Pairs of n rows; with phases also a row with itself."""
    return n * (n - 1) // 2 if form == "pair" else n * (n + 1) // 2
