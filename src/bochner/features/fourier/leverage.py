"""Fourier features drawn by ridge leverage, and weighted so that they stay unbiased.

With z(ω) the waves e^(−iω·x_j) of n rows, p the density of a kernel's frequencies and λ a penalty,

    τ(ω) = z(ω)*(K + λI)⁻¹ z(ω),   E τ = d_λ = Tr K(K + λI)⁻¹,

says how much a draw of ω can matter to a ridge regression. Of draws from p some matter n k(0)/λ
times too much. Draws from a density q in proportion to p τ, each weighted by p/q, all matter the
same, and about d_λ log d_λ of them serve [Avron et al. (2017), lemma 6 and theorem 7]. Features are
those of :class:`Fourier` in pairs, each frequency times √(p/q):

    φ(x) = √(k(0)/m) [√(p/q)(ω_j) cos ω_j·x, √(p/q)(ω_j) sin ω_j·x]_j.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import gammaincc, gammainccinv, gammaln, logsumexp

from bochner._core.arrays import dense, in_float64, to_numpy
from bochner._core.blas import eigh
from bochner._core.checks import check_fields, positive, word
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, UnsupportedKernel
from bochner.features.fourier.fourier import WeightedPairs, frequencies
from bochner.features.fourier.placements import IID
from bochner.features.method import Method, Request
from bochner.kernels.kernel import Kernel
from bochner.kernels.spectral import Fixed, GaussianMixture, One
from bochner.kernels.stationary import Stationary


@dataclass(frozen=True)
class LeverageFourier(Method):
    """Random Fourier features by ridge leverage, weighted: Avron et al. (2017).

    Parameters
    ----------
    penalty : float, default 1e-4
        1/n_λ = λ/(n k(x, x)): the penalty of a fit for each row, as a share of the kernel's
        diagonal. A map for 1e-4 is within a factor of two of the best one at 1e-2 and at 1e-4; a
        smaller one asks for more features.
    density : {"auto", "modified", "empirical"}, default "auto"
        "modified": a density that bounds p τ for all rows of a box, near constant where p is large
        and a multiple of p beyond; for the Gaussian. "empirical": of eight times as many
        frequencies as are asked for, those that matter most to up to 1,000 of the rows; for every
        kernel of x − y. "auto": modified where it serves, in up to two columns.

    Notes
    -----
    Unbiased for any data, seen or not. The extents of rows, or some rows, are taken when it is
    drawn; the map holds none. The spectral distance at small penalties and in few columns is far
    below that of :class:`Fourier` at equal width. Single entries are off by more, because
    frequencies that matter little to a fit are most of a kernel's mass. :class:`Nystrom` and Mercer
    features are more accurate where rows may be kept or kernels are smooth. Cost of φ(X): that of
    :class:`Fourier`; of drawing "empirical" O(s³ + s² D) with s = 1,000 rows. The bound is
    :class:`bochner.certificates.LeverageSpectral`.
    """

    penalty: float = 1e-4
    density: Literal["auto", "modified", "empirical"] = "auto"

    def __post_init__(self) -> None:
        check_fields(self, penalty=positive, density=word("auto", "modified", "empirical"))

    def least_numbers(self, n_features: int, n_columns: int) -> int:
        return n_features * (1 + POOL * n_columns // 2)

    @property
    def granularity(self) -> int:
        return 2


@dataclass(frozen=True, eq=False)
class LeverageFourierMap(WeightedPairs):
    """Cosine and sine of each frequency, weighted: φ(x) = √k(0) [√w cos Wᵀx, √w sin Wᵀx]."""

    kernel: Kernel
    frequencies: Float[Array, "d m"]  # W
    weights: Float[Array, " m"]  # w = p/(q m), of mean sum one
    amplitude: float  # k(0)


class Drawn(NamedTuple):
    """Frequencies as rows, and p/q of each."""

    frequencies: Float[np.ndarray, "m d"]
    ratios: Float[np.ndarray, " m"]


# --- The modified density of the Gaussian --------------------------------------------------------
#
# In units of the lengthscales p = N(0, I). For rows of a box of half-widths R_k, any t ≥ 0 and
# b_k² = 2/(1 + ω_k²), with A_k = R_k + t/b_k,
#
#     p(ω) τ(ω) ≤ Π A_k/π + n_λ p(ω) d² e^(−t²),   n_λ = n k(0)/λ.
#
# p τ(ω) is the least of ‖Φy − √p z(ω)‖²/λ + ‖y‖² over y in L₂, Φ Φ* = K [Avron et al. (2017)].
# Take √p(η) y(η) = √p(ω) ĝ(η − ω) with g = Π g_k, g_k the indicator of [−A_k, A_k]
# smoothed by a Gaussian of deviation 1/b_k. Then Φy = √p z g, where 1 − g ≤ d e^(−t²/2) on the box,
# and ‖y‖² = Π ∫ (sin A_k u/πu)² e^(−u²/b_k²) e^(ω_k u + u²/2) du, whose weight e^(−ω_k²u²/2)
# cosh ω_k u is at most 1: Π A_k/π. And p τ ≤ n_λ p always. Over |ω| = r the product is largest
# where all ω_k² are r²/d and all R_k their mean, or all ω_k² are r².

SHELLS = 512  # On which the density is constant
STEPS = 128  # Values of t that are tried
MOST_COLUMNS = 16  # From here on the density is p


@dataclass(frozen=True, eq=False)
class ModifiedDensity:
    """A density q of frequencies, in units of the lengthscales: levels on shells, beyond them p.

    Attributes
    ----------
    n_columns : int
    n_lambda : float
        n_λ = n k(0)/λ.
    radii : (c + 1,)
        Where shells begin and end; shell i is radii[i] ≤ |ω| < radii[i + 1].
    log_levels : (c,)
        Logarithms of bounds of p τ there; beyond the shells the bound is n_λ p.
    """

    n_columns: int
    n_lambda: float
    radii: Float[np.ndarray, " e"]
    log_levels: Float[np.ndarray, " c"]

    @property
    def mass(self) -> float:
        """∫ of the bound: no draw from q has more leverage, and d_λ is no more."""
        return float(np.exp(logsumexp(self._log_masses)))

    @cached_property
    def _log_masses(self) -> Float[np.ndarray, " e"]:
        """Of each shell, and of what is beyond."""
        d, r = self.n_columns, self.radii
        log_ball = 0.5 * d * math.log(math.pi) - gammaln(0.5 * d + 1)
        shells = self.log_levels + log_ball + np.log(r[1:] ** d - r[:-1] ** d)
        beyond = math.log(self.n_lambda) + np.log(gammaincc(0.5 * d, 0.5 * r[-1] ** 2))
        return np.append(shells, beyond)

    def draw(self, m: int, rng: np.random.Generator) -> Drawn:
        """Return m independent frequencies of density q, and p/q of each."""
        d, logs, shells = self.n_columns, self._log_masses, len(self.log_levels)
        part = rng.choice(shells + 1, m, p=np.exp(logs - logsumexp(logs)))
        u, directions = rng.random(m), rng.standard_normal((m, d))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        r, beyond = np.empty(m), part == shells
        r[beyond] = self._beyond(u[beyond])
        low, high = (self.radii[part[~beyond] + side] ** d for side in (0, 1))
        r[~beyond] = (low + u[~beyond] * (high - low)) ** (1 / d)
        bound = math.log(self.n_lambda) + _log_gaussian(r, d)
        bound[~beyond] = self.log_levels[part[~beyond]]
        return Drawn(directions * r[:, None], self.mass * np.exp(_log_gaussian(r, d) - bound))

    def _beyond(self, u: Float[np.ndarray, " b"]) -> Float[np.ndarray, " b"]:
        """Return lengths of Gaussian vectors that end beyond the shells, by their quantiles."""
        d = self.n_columns
        return np.sqrt(2 * gammainccinv(d / 2, u * gammaincc(d / 2, self.radii[-1] ** 2 / 2)))


def _log_gaussian(r: Array, d: int) -> Array:
    return -0.5 * (r * r + d * math.log(2 * math.pi))


def modified_density(half_widths: Float[np.ndarray, " d"], n_lambda: float) -> ModifiedDensity:
    """Return the density that bounds p τ of the Gaussian for all rows of a box.

    Parameters
    ----------
    half_widths : (d,)
        R_k: half the range of each column, in units of its lengthscale.
    n_lambda : float
        n_λ = n k(0)/λ, above zero.
    """
    d, log_n = len(half_widths), math.log(n_lambda)
    farthest = math.sqrt(max(2 * log_n, 0.0) + 8)
    r, t = np.linspace(0, farthest, SHELLS + 1), np.linspace(0, 1, STEPS + 1)[1:]
    t *= math.sqrt(max(log_n, 0.0) + 2 * math.log(d) + 4)
    levels = np.full(SHELLS, np.inf)
    if d < MOST_COLUMNS:
        box = _log_box(half_widths, r[1:, None], t)
        rest = log_n + _log_gaussian(r[:-1, None], d) + 2 * math.log(d) - t * t
        levels = np.logaddexp(box, rest).min(axis=1)
    less = np.flatnonzero(levels < log_n + _log_gaussian(r[1:], d))
    kept = less[-1] + 1 if len(less) else 0
    levels = np.minimum(levels, log_n + _log_gaussian(r[:-1], d))[:kept]
    return ModifiedDensity(d, n_lambda, r[: kept + 1], levels)


def _log_box(R: Float[np.ndarray, " d"], r: Array, t: Array) -> Array:
    """Return log Π A_k/π at its largest over |ω| ≤ r."""
    d = len(R)
    even = d * np.log(R.mean() + t * np.sqrt((1 + r * r / d) / 2))
    each = sum(np.log(R_k + t * np.sqrt((1 + r * r) / 2)) for R_k in R)
    return np.minimum(even, each) - d * math.log(math.pi)


# --- Leverage of candidates on some rows ---------------------------------------------------------

ROWS = 1000  # On which leverage is computed
POOL = 8  # Candidates for each frequency
WIDER = 2.0  # How many times longer the frequencies of half of the candidates are
#: Share of draws that does not ask for leverage: no candidate is weighted by more than its inverse.
FAIR = 0.1
WAVES = (np.cos, np.sin)
BLOCK = 4096  # Candidates that are looked at together


def candidates(kernel: Kernel, d: int, count: int, rng: np.random.Generator) -> Drawn:
    """Return frequencies to choose from, and p over the density that they have.

    Half of those of isotropic kernels are longer: p has few of the long ones that matter at small
    penalties. Frequencies of other kernels are draws of p.
    """
    W = frequencies(kernel, IID(), count, d, rng).T
    measure = kernel.spectral_measure(d) if isinstance(kernel, Stationary) else None
    if not isinstance(measure, GaussianMixture):
        return Drawn(W, np.ones(count))
    W = W * np.where(np.arange(count) % 2, WIDER, 1.0)[:, None]
    wide = measure.log_density(W / WIDER) - d * math.log(WIDER)
    return Drawn(W, 2 / (1 + np.exp(wide - measure.log_density(W))))


def leverages(
    kernel: Kernel, rows: Float[np.ndarray, "n d"], W: Float[np.ndarray, "m d"], penalty: float
) -> Float[np.ndarray, " m"]:
    """Return τ(ω) of each frequency on these rows, at ``penalty`` times the trace of K."""
    K = to_numpy(kernel(rows))
    values, V = eigh((K + K.T) / 2, check_finite=False)
    sizes = np.maximum(values, 0.0) + penalty * np.trace(K)

    def of_some(W: Float[np.ndarray, "b d"]) -> Float[np.ndarray, " b"]:
        angles = rows @ W.T
        return sum(np.einsum("ij,i->j", (V.T @ wave(angles)) ** 2, 1 / sizes) for wave in WAVES)

    return np.concatenate([of_some(W[i : i + BLOCK]) for i in range(0, len(W), BLOCK)])


# --- Drawing -------------------------------------------------------------------------------------

LOW = 2  # Columns up to which "auto" takes the modified density


def draw_by_leverage(method: LeverageFourier, kernel: Kernel, ask: Request) -> LeverageFourierMap:
    """Draw weighted Fourier features of a kernel of x − y."""
    m, d = ask.n_features // 2, ask.n_inputs
    if ask.n_features < 2 or ask.n_features % 2:
        raise InvalidInput(
            "LeverageFourier requires an even number of features, a cosine and a sine of each "
            f"frequency; got {ask.n_features}. Ask for one more."
        )
    X = ask.rows("LeverageFourier", "the extents of columns, and rows to measure leverage on")
    scales = gaussian_scales(kernel, d)
    if method.density == "modified" and scales is None:
        raise UnsupportedKernel(
            f'LeverageFourier(density="modified") requires a Gaussian kernel; got {kernel!r}. '
            'Take density="empirical", for every kernel of x − y.'
        )
    wanted = method.density == "modified" or (method.density == "auto" and d <= LOW)
    if scales is not None and wanted:
        density = modified_density(half_widths(X) * scales, 1 / method.penalty)
        W, ratios = density.draw(m, ask.stream("frequencies"))
        W *= scales
    else:
        W, ratios = _empirical(kernel, method.penalty, X, ask)
    amplitude = float(to_numpy(kernel.diag(np.zeros((1, d))))[0])
    return LeverageFourierMap(kernel, np.ascontiguousarray(W.T), ratios / m, amplitude)


def gaussian_scales(kernel: Kernel, d: int) -> Float[np.ndarray, " d"] | None:
    """Return the deviation of frequencies in each column where they are Gaussian, else None."""
    measure = kernel.spectral_measure(d) if isinstance(kernel, Stationary) else None
    if isinstance(measure, GaussianMixture) and isinstance(measure.mixing, One | Fixed):
        return np.asarray(measure.mixing.mean**0.5 * measure.scales)
    return None


def half_widths(X: Float[Array, "n d"]) -> Float[np.ndarray, " d"]:
    """Return half the range of each column."""
    most, least = (to_numpy(dense(end)) for end in (X.max(axis=0), X.min(axis=0)))
    return np.ravel((most.astype(np.float64) - least.astype(np.float64)) / 2)


def _empirical(kernel: Kernel, penalty: float, X: Float[Array, "n d"], ask: Request) -> Drawn:
    """Return candidates drawn in proportion to their leverage, and the weight of each.

    Given the candidates the mean of what is drawn is that of all, whose mean is the kernel.
    """
    m, rng = ask.n_features // 2, ask.stream("frequencies")
    some = ask.stream("rows").permutation(X.shape[0])[:ROWS]
    rows = in_float64(X[np.sort(some)])
    W, ratios = candidates(kernel, ask.n_inputs, POOL * m, rng)
    shares = ratios * leverages(kernel, rows, W, penalty)
    chances = (1 - FAIR) * shares / shares.sum() + FAIR * ratios / ratios.sum()
    chosen = rng.choice(len(W), m, p=chances)
    return Drawn(W[chosen], (ratios / (len(W) * chances))[chosen])
