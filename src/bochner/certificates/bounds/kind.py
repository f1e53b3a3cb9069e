"""What a bound is: a width for an error and an error at a width, and how one gives the other."""

import abc
import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from bochner._core.arrays import as_matrix, to_numpy
from bochner._core.checks import integer, positive, share
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.structure import is_stationary
from bochner.kernels import Kernel

FORMS = ("pair", "phase")

#: Widths beyond it are no widths.
LARGEST = 1e15


class Bound(abc.ABC):
    """An error that features of a given width exceed with small probability only."""

    @property
    @abc.abstractmethod
    def quantity(self) -> str:
        """What the error is of, in words."""

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


# --- both ways ------------------------------------------------------------------------------------


def per_draw(form: str) -> int:
    """Return the features of one frequency."""
    return 2 if form == "pair" else 1


def width_of(
    log_failures: Callable[[float], float],
    rate: Callable[[float], float],
    features: int,
    error: float,
    confidence: float,
) -> int:
    """Return D of the fewest draws m with C(ε) exp(−m r(ε)) ≤ δ."""
    error = positive(error, "width", "error")
    draws = (log_failures(error) - math.log(chance_of(confidence))) / rate(error)
    if draws > LARGEST:
        raise InvalidInput(
            f"width: error must be large enough for a width below {LARGEST:.0e}; got {error!r}. "
            "Ask for a larger error."
        )
    return features * max(1, math.ceil(draws * (1 - 1e-12)))


def error_of(
    log_failures: Callable[[float], float],
    rate: Callable[[float], float],
    features: int,
    n_features: int,
    confidence: float,
) -> float:
    """Return the least ε with C(ε) exp(−m r(ε)) ≤ δ."""
    m = integer(n_features, "error", "n_features", features) // features
    log_chance = math.log(chance_of(confidence))

    def excess(log_error: float) -> float:
        error = math.exp(log_error)
        return log_failures(error) - m * rate(error) - log_chance

    low, high = -30.0, 0.0
    while excess(high) > 0:
        low, high = high, high + 5.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-13)))


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


def amplitude_of(kernel: Kernel, rows: Float[np.ndarray, "n d"], who: str) -> float:
    """Return k(0) of a kernel of x − y."""
    if not is_stationary(kernel):
        raise UnsupportedKernel(
            f"{who} requires a kernel of x − y, which Fourier features are for; got {kernel!r}. "
            "certify measures the error of any map."
        )
    return float(to_numpy(kernel.diag(rows[:1]))[0])
