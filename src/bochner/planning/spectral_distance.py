"""How far K̂ = Z Zᵀ is from K at a penalty, on some rows and, from a sample, on all.

The (ε, λ)-spectral distance is the smallest ε with

    (1 − ε)(K + λI) ⪯ K̂ + λI ⪯ (1 + ε)(K + λI),

so ε = max(ε₋, ε₊), where −ε₋ and ε₊ are the extreme eigenvalues of the whitened error
(K + λI)^(-1/2) E (K + λI)^(-1/2), E = K̂ − K (Avron et al. 2017, definition 1). Always ε₋ < 1;
ε₊ has no limit.
"""

from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import brentq
from scipy.stats import t as student

from bochner._ground.shapes import Array, Float
from bochner.errors import NotPositive
from bochner.planning.pencil import EPS, Pencil, Side, sides
from bochner.solvers.stepwise import eigenvalues

__all__ = ["GROUPS", "Distance", "Match", "distance", "match", "spectrum"]

#: Disjoint groups of the sample that show how ε varies with the rows and with their number.
GROUPS = 8

#: A matched penalty below this share of the scaled one is none.
_LEAST = 1e-3

#: ε is not followed further than this factor towards the matched penalty.
_REACH = 10.0

#: Rounding in E, in units of eps ‖K‖: sides below that are zero as far as float64 knows.
_NOISE = 16.0

#: A side so many times smaller than the other is not followed: it may be rounding in φ alone.
_NEGLIGIBLE = 100.0

_LOG_MAX = 700.0


class Match(NamedTuple):
    """The penalty on a sample that acts as λ does on all rows."""

    penalty: float
    effective_dimension: float
    resolved: bool


def match(values: Float[Array, " m"], n: float, penalty: float) -> Match:
    """Return the penalty t on m rows with the effective dimension of all n rows at λ.

    Rows regularise one another: m rows at penalty t act on the population as a penalty
    κ = 1/tr(K_S + tI)⁻¹ per row, and κ(n − d) = λ must hold for n rows, where d = m − t/κ is the
    effective dimension of both (deterministic equivalents; Jacot et al. 2020). Hence t solves
    t + (n − m)/tr(K_S + tI)⁻¹ = λ, and t ≤ λm/n. Without a solution t > 0 all n rows have at
    least m effective dimensions, and the sample cannot resolve the penalty.

    ``values`` are the eigenvalues of K_S.
    """
    m, scaled = len(values), penalty * len(values) / n

    def excess(share: float) -> float:
        t = share * scaled
        return t + (n - m) / float(np.sum(1 / (values + t))) - penalty

    if n <= m or excess(1.0) <= 0:
        share, resolved = 1.0, True
    elif excess(_LEAST) > 0:
        share, resolved = _LEAST, False
    else:
        share, resolved = float(brentq(excess, _LEAST, 1.0, xtol=1e-9)), True
    t = share * scaled
    return Match(t, float(np.sum(values / (values + t))), resolved)


class Range(NamedTuple):
    """Lower end, estimate and upper end of one side, as scores."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(
        cls,
        side: Side,
        groups: Float[Array, " g"],
        *,
        ratio: float,
        step: float,
        bound: float,
        confidence: float,
    ) -> Self:
        """Return what scores of m rows and of disjoint groups of m/8 rows say of n rows.

        ratio = n/m; step = log of (λm/n)/t for the matched penalty t; bound = the least upper
        end, −∞ where the penalty is resolved. ``certify`` gives the reasons.
        """
        gain, reach = side.score - groups.mean(), np.log(ratio) / np.log(GROUPS)
        trend = gain * reach
        shift = side.slope * min(step, np.log(_REACH))
        fallen, risen = side.score + min(trend, 0.0), side.score + max(trend, shift)
        # The trend is wide by design: the estimate follows it down by one factor of 8 at most,
        # and up only where the matched penalty says nothing.
        falls = min(gain * min(reach, 1.0), 0.0)
        rises = shift if bound == -np.inf else max(trend, shift)
        mid = side.score + (falls + rises) / 2
        spread = groups.std(ddof=1) / np.sqrt(GROUPS)
        spread *= student.ppf((1 + confidence) / 2, GROUPS - 1)
        # A few decisive rows left out make ε too small however few were left out, so only the
        # lower end takes the finite-population factor.
        low = fallen - shift - spread * np.sqrt(1 - 1 / ratio)
        return cls(low, mid, max(risen, bound) + spread)


class Distance(NamedTuple):
    """ε of n rows from a sample of m: estimate, interval, and at which penalty."""

    epsilon: float
    interval: tuple[float, float]
    effective_dimension: float
    alpha: float
    resolved: bool


def distance(
    K: Float[Array, "m m"], E: Float[Array, "m m"], n: int, alpha: float, confidence: float
) -> Distance:
    """Return the distance for n rows at penalty ``alpha``; the sample's rows in random order."""
    m = len(K)
    values = spectrum(K)
    norm = max(float(values[-1]), float(np.abs(np.diagonal(E)).max()))
    asked = alpha * m / n
    penalty = max(asked, m * EPS * norm)
    measured = alpha if penalty == asked else penalty * n / m
    noise = min(0.5, max(_NOISE * EPS * norm / penalty, EPS**2))
    pencil = Pencil(K, E, penalty, noise)
    found = match(values, n, penalty * n / m)
    low, mid, high = _epsilon(pencil, n, found, confidence)
    return Distance(mid, (low, high), found.effective_dimension, measured, found.resolved)


def spectrum(K: Float[Array, "m m"]) -> Float[Array, " m"]:
    """Return the eigenvalues of K, rising; those that rounding made negative are zero."""
    values = eigenvalues(K)
    if -values[0] > 100 * len(K) * EPS * np.abs(values).max():
        raise NotPositive(
            "certify: the kernel matrix must be positive semi-definite; its eigenvalues on the "
            f"sample run from {values[0]:.3g} to {values[-1]:.3g}. Check the kernel."
        )
    return np.maximum(values, 0.0)


def _epsilon(pencil: Pencil, n: int, found: Match, confidence: float) -> tuple[float, float, float]:
    """Lower end, estimate and upper end of ε = max(ε₋, ε₊)."""
    whole = sides(pencil)
    if len(pencil.K) == n:
        ranges = [Range(s.score, s.score, s.score) for s in whole]
    else:
        ranges = _ranges(pencil, whole, n, found, confidence)
    below, above = (np.array(r) for r in ranges)
    ends = np.maximum(_below(below), _above(above))
    low, mid, high = np.where(ends <= pencil.noise * (1 + 1e-6), 0.0, ends).tolist()
    return low, mid, high


def _ranges(
    pencil: Pencil, whole: tuple[Side, Side], n: int, found: Match, confidence: float
) -> list[Range]:
    m = len(pencil.K)
    size = m // GROUPS
    groups = [sides(pencil.part(g * size, (g + 1) * size)) for g in range(GROUPS)]
    bounds = (-np.inf, -np.inf) if found.resolved else _coarse(pencil)
    ranges = [
        Range.of(
            whole[i],
            np.array([g[i].score for g in groups]),
            ratio=n / m,
            step=float(np.log(pencil.penalty / found.penalty)),
            bound=bounds[i],
            confidence=confidence,
        )
        for i in (0, 1)
    ]
    sizes = (float(_below(whole[0].score)), float(_above(whole[1].score)))
    small = [sizes[i] * _NEGLIGIBLE < sizes[1 - i] for i in (0, 1)]
    return [Range(*[whole[i].score] * 3) if small[i] else ranges[i] for i in (0, 1)]


def _below(score: Array) -> Array:
    """ε₋ of scores."""
    return 1 / (1 + np.exp(-np.asarray(score)))


def _above(score: Array) -> Array:
    """ε₊ of scores."""
    return np.exp(np.minimum(score, _LOG_MAX))


def _coarse(pencil: Pencil) -> tuple[float, float]:
    """Scores of ε₋/(1 − ε₋) ≤ ‖E₋‖/λ and ε₊ ≤ ‖E₊‖/λ, which hold whatever K is."""
    values = eigenvalues(pencil.E) / pencil.penalty
    below, above = np.log(np.maximum([-values[0], values[-1]], pencil.noise)).tolist()
    return below, above
