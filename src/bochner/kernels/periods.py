"""Periods of kernels along axes: which there are, and the frequencies that hold their harmonics.

The Fourier series of a periodic kernel is a sum of waves at multiples of 2π/p. Equispaced
frequencies 2πj/P hold them where P is a multiple of p; with several periods, P must be a
multiple of each. Of a sum, terms are looked at one by one: a product with a factor that decays has
a spectral density, and no harmonics by itself.
"""

import math
import operator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from bochner._core.shapes import Array, Float
from bochner.errors import UnsupportedKernel
from bochner.kernels.algebra import Columns, Normalised, folded
from bochner.kernels.kernel import Constant, Kernel, rebuilt
from bochner.kernels.stationary_families import Periodic, harmonics, steps_of

#: Multiples of the longest period that are tried as a multiple of all.
MULTIPLES = 4096


@dataclass(frozen=True)
class Season:
    """A period p along an axis, and the lengthscale ℓ of exp(−2 sin²(πt/p)/ℓ²) within it."""

    period: float
    lengthscale: float
    steady: bool  # Whether a term has it that does not decay along the axis

    @property
    def highest(self) -> int:
        """The highest harmonic above rounding."""
        weights = harmonics(self.lengthscale)
        beyond = 2 * np.cumsum(weights[::-1])[::-1]
        return max(1, int(np.flatnonzero(beyond > 1e-16)[-1]))


def seasons(kernel: Kernel, a: int, d: int) -> tuple[Season, ...]:
    """Return the periods of a kernel of d columns along axis a."""
    terms = []
    for term in _terms(kernel, tuple(range(d))):
        for leaf, axes in term:
            if isinstance(leaf, Periodic) and a in axes:
                periods, lengths = leaf.per_axis(len(axes))
                at, steady = axes.index(a), not _decays(term, a)
                terms.append(Season(periods[at], lengths[at], steady))
    return tuple(dict.fromkeys(terms))


def is_cyclic(kernel: Kernel, a: int, d: int) -> bool:
    """Whether a kernel has periods along an axis and no term decays along it."""
    terms = _terms(kernel, tuple(range(d)))
    return bool(seasons(kernel, a, d)) and not any(_decays(term, a) for term in terms)


def common_period(
    terms: tuple[Season, ...], length: float, tolerance: float, a: int
) -> tuple[float, float]:
    """Return the least multiple of all periods of axis a, and by how much it moves the kernel.

    A period p taken as p' moves harmonic c by 2πc|1/p − 1/p'| t, and the kernel by 2π|1/p − 1/p'|
    t/ℓ at most, as the mean of c² is 1/ℓ²; t is up to ``length``, and the sum within tolerance.
    """
    longest = max(season.period for season in terms)
    many = longest * np.arange(1, MULTIPLES + 1)
    periods, lengths = np.array([(s.period, s.lengthscale) for s in terms]).T[:, :, None]
    rates = np.abs(1 / periods - np.maximum(np.rint(many / periods), 1) / many)
    errors = (2 * math.pi * length * rates / lengths).sum(axis=0)
    good = np.flatnonzero(errors <= max(tolerance, length / longest * 1e-12))
    if len(good) == 0:
        texts = ", ".join(f"{p:.6g}" for p in sorted({s.period for s in terms}))
        raise UnsupportedKernel(
            f"FourierGrid requires periods along a column that divide one of up to {MULTIPLES:,} "
            f"times the longest; got {texts} of column {a} (counted from 0). Round them, take a "
            "larger tolerance, or multiply all but one with a long Gaussian kernel."
        )
    return float(many[good[0]]), float(errors[good[0]])


def turns(kernel: Kernel, spacing: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return by what angle each axis repeats where the kernel does not decay; 0 where nowhere."""
    frequencies = np.zeros(len(spacing))
    for a, h in enumerate(spacing):
        steady = (season for season in seasons(kernel, a, len(spacing)) if season.steady)
        steps = [steps_of(season.period, h) for season in steady]
        frequencies[a] = 2 * math.pi / math.gcd(*steps) if steps else 0.0
    return frequencies


def on_frequencies(kernel: Kernel, spacing: Float[Array, " d"]) -> Kernel:
    """Return the kernel with periods whose harmonics are multiples of the spacing."""
    match kernel:
        case Periodic():
            pairs = zip(kernel.per_axis(len(spacing))[0], spacing, strict=True)
            periods = tuple(2 * math.pi / (h * steps_of(p, h)) for p, h in pairs)
            return replace(kernel, period=periods)
        case Columns():
            spacing = spacing[list(kernel.columns)]
    return rebuilt(kernel, lambda part: on_frequencies(part, spacing))


# --- Terms of a kernel, and what these see -------------------------------------------------------

#: A kernel that is not made of others, and the axes that it sees.
Factor = tuple[Kernel, tuple[int, ...]]


def _terms(kernel: Kernel, axes: tuple[int, ...]) -> list[tuple[Factor, ...]]:
    """Return the factors of each term of a kernel, each once, without multiples."""

    def leaf(part: Kernel, axes: tuple[int, ...]) -> list[tuple[Factor, ...]]:
        if isinstance(part, Normalised):
            return _terms(part.kernel, axes)
        return [()] if isinstance(part, Constant) else [((part, axes),)]

    def multiply(left: Any, right: Any) -> list[tuple[Factor, ...]]:
        pairs = (tuple(dict.fromkeys((*a, *b))) for a, b in product(left, right))
        return list(dict.fromkeys(pairs))

    return folded(kernel, leaf, operator.add, multiply, columns=axes) or []


def _decays(term: tuple[Factor, ...], a: int) -> bool:
    """Whether a term falls to zero along an axis."""
    return any(a in axes and not isinstance(leaf, Periodic) for leaf, axes in term)
