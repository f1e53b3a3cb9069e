"""Stationary kernels: Matérn, exponential power, periodic and spectral mixture."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import gammaln, ive, kve

from bochner._core.arrays import adapt, array_namespace, device, in_float64, to_numpy
from bochner._core.checks import bounded, finite, positive, sequence_of
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput
from bochner.kernels import distances, spectral, stationary
from bochner.kernels.hyperparameters import TUNED, TunedNumbers, TunedPositive, free_or
from bochner.kernels.kernel import Vjp
from bochner.kernels.series import horner


@dataclass(frozen=True)
class Matern(stationary.Radial):
    r"""k(x, y) = 2^(1−ν)/Γ(ν) · u^ν K_ν(u), u = √(2ν) r, r = |(x − y)/ℓ|.

    Functions in the RKHS have derivatives of all orders below ν. ν = ½, 3/2, 5/2: e^(−r),
    (1 + √3 r) e^(−√3 r), (1 + √5 r + 5r²/3) e^(−√5 r); ν → ∞: the Gaussian.

    Spectral measure: multivariate Student t, ω = (z/ℓ)·√(2ν/χ²), z ~ N(0, I), and **one**
    χ² of 2ν degrees of freedom for the whole vector.

    Parameters
    ----------
    smoothness : float, default 1.5
        ν > 0. ½, 3/2 and 5/2 are the fastest. ½, 3/2, ..., 13/2 and values above 30 have formulas
        for all array libraries. Other values use SciPy's Bessel function, about 0.4 µs per pair,
        and distances of other array libraries are copied to NumPy and back.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import Matern
    >>> Matern(smoothness=2.5, lengthscale=2.0)([[0.0]], [[0.0], [1.0], [3.0]]).round(2)
    array([[1.  , 0.83, 0.28]])
    """

    smoothness: TunedPositive = 1.5
    lengthscale: TunedNumbers = 1.0

    def profile(self, s: Array) -> Array:
        if self.smoothness in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5):
            return _half_integer(self.smoothness, s)
        if self.smoothness > 30:
            xp, parts = array_namespace(s), _gaussians(self.smoothness)
            mixture = lambda s: sum(w * xp.exp(-0.5 * rate * s) for w, rate in parts)
            return mixture(s) / mixture(xp.zeros((), dtype=s.dtype, device=device(s)))
        return adapt(_bessel(self.smoothness, to_numpy(s).astype(np.float64)), like=s)

    def with_slope(self, s: Array) -> tuple[Array, Array]:
        if not self.smooth:
            return super().with_slope(s)
        # k' = −ν/(2(ν − 1)) times k of smoothness ν − 1 at √(2ν s): (u^ν K_ν)' = −u^ν K_{ν−1}
        if self.smoothness not in (1.5, 2.5):
            ratio = self.smoothness / (self.smoothness - 1.0)
            return self.profile(s), -0.5 * ratio * Matern(self.smoothness - 1.0).profile(ratio * s)
        xp = array_namespace(s)
        u = xp.sqrt(2 * self.smoothness * s)
        falling = xp.exp(-u)
        slope = falling * (1 + u)
        if self.smoothness == 1.5:
            falling *= -1.5
            return slope, falling
        u *= u  # in place: a third less time
        u *= falling
        u /= 3
        u += slope
        slope *= -5 / 6
        return u, slope

    @property
    def smooth(self) -> bool:
        return self.smoothness > 1

    @property
    def mixing(self) -> spectral.Law:
        return spectral.inverse_chi2(2.0 * self.smoothness)

    @property
    def compiled(self) -> stationary.Compiled | None:
        loops = {0.5: "exponential", 1.5: "matern32", 2.5: "matern52"}
        return (loops[self.smoothness], 1.0) if self.smoothness in loops else None


def _half_integer(smoothness: float, s: Array) -> Array:
    """Return k(s) for smoothness p + ½: e^(−u) Σ_i p!/(2p)! (2p − i)!/((p − i)! i!) (2u)^i."""
    xp, p = array_namespace(s), int(smoothness)
    # u = √((2p + 1) s) [Rasmussen & Williams, eq. 4.16].
    # Beyond u = 1000 values are zero in every dtype, and the polynomial must not overflow.
    u = xp.clip(xp.sqrt(s) * math.sqrt(2.0 * smoothness), max=1000.0)
    ratios = (2**i * math.comb(p, i) / math.perm(2 * p, i) for i in range(p + 1))
    return horner(tuple(ratios), u) * xp.exp(-u)


def _bessel(smoothness: float, s: np.ndarray) -> np.ndarray:
    """Return k(s) for any smoothness, by logarithms in float64; √(2νs) is clipped at 1e5."""
    u = np.minimum(np.sqrt(2.0 * smoothness * s), 1e5)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(smoothness, u)
        constant = (1.0 - smoothness) * math.log(2.0) - gammaln(smoothness)
        k = np.exp(constant + smoothness * np.log(u) + np.log(bessel) - u)
    is_zero = ~np.isfinite(bessel)  # K_ν(u) overflows, and k = 1 − u²/(4(ν − 1)) to rounding
    k[is_zero] = 1.0 - (u[is_zero] ** 2 / (4.0 * (smoothness - 1.0)) if smoothness > 1 else 0.0)
    return np.minimum(k, 1.0)


@cache
def _gaussians(smoothness: float) -> list[tuple[float, float]]:
    """Return weights and rates of k = E exp(−f s/2), f = ν/γ, γ ~ Gamma(ν), by Gauss quadrature."""
    i = np.arange(16)  # errors are below 1e-13 from ν = 30 on
    roots = np.sqrt(i[1:] * (i[1:] + smoothness - 1))
    gamma, vectors = eigh_tridiagonal(2 * i + smoothness, roots)
    return list(zip((vectors[0] ** 2).tolist(), (smoothness / gamma).tolist(), strict=True))


@dataclass(frozen=True)
class ExponentialPower(stationary.Radial):
    """k(x, y) = exp(−r^γ), r = |(x − y)/ℓ|: rough for small γ, Gaussian for γ = 2.

    γ = 1 is `Exponential`; γ = 2 is ``Gaussian(lengthscale / √2)``. Also called powered
    exponential or stretched exponential kernel.

    Spectral measure: isotropic γ-stable, ω = (z/ℓ)√(2A), z ~ N(0, I), and **one** positive
    (γ/2)-stable A for the whole vector, E exp(−tA) = exp(−t^(γ/2)).

    Parameters
    ----------
    power : float, default 1.0
        γ in (0, 2]. The function is not positive semi-definite for γ > 2.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import ExponentialPower
    >>> ExponentialPower(power=1.5)([[0.0]], [[0.0], [1.0], [3.0]]).round(2)
    array([[1.  , 0.37, 0.01]])
    """

    power: Annotated[float, free_or(bounded(positive, 0, 2)), TUNED] = 1.0
    lengthscale: TunedNumbers = 1.0

    def profile(self, s: Array) -> Array:
        return array_namespace(s).exp(-(s ** (0.5 * self.power)))

    def with_slope(self, s: Array) -> tuple[Array, Array]:
        if not self.smooth:
            return super().with_slope(s)
        k = self.profile(s)
        return k, -k

    @property
    def smooth(self) -> bool:
        return self.power == 2

    @property
    def mixing(self) -> spectral.Law:
        return stable(self.power) if self.power < 2 else spectral.constant_law(2.0)

    @property
    def compiled(self) -> stationary.Compiled | None:
        return ("exponential", 1.0) if self.power == 1 else None


def stable(power: float) -> spectral.Law:
    """Return the distribution of s² = 2A, A γ/2-stable: E exp(−s² r²/2) = exp(−r^γ), 0 < γ < 2."""
    # With b = γ/2, A has the law of (a(U)/E)^((1−b)/b), U uniform on (0, π), E ~ Exp(1), and
    # a(θ) = sin(bθ)^(b/(1−b)) sin((1−b)θ)/sin(θ)^(1/(1−b)) [Kanter (1975)].
    b = 0.5 * power

    def sample(rng: np.random.Generator, m: int) -> np.ndarray:
        theta = rng.uniform(0, math.pi, m)
        small = np.minimum(theta, math.pi - theta)  # sin(small) = sin(θ), accurate near π
        first, second = np.log(np.sin(b * theta)), np.log(np.sin((1 - b) * theta))
        log_a = b / (1 - b) * first + second - np.log(np.sin(small)) / (1 - b)
        with np.errstate(over="ignore"):
            return 2.0 * np.exp((log_a - np.log(rng.standard_exponential(m))) * (1 - b) / b)

    return spectral.Law(math.inf, sample)


def harmonic_law(concentration: tuple[float, ...]) -> spectral.Law:
    """Return Skellam's distribution P(c) = e^(−κ) I_|c|(κ) of each column; κ: concentration."""
    kappa = np.array(concentration)

    def quantile(u: np.ndarray) -> np.ndarray:
        c = np.empty_like(u)
        for j, half in enumerate(map(harmonics, concentration)):
            cumulative = np.cumsum([*half[:0:-1], *half])
            index = np.minimum(np.searchsorted(cumulative, u[:, j]), len(cumulative) - 1)
            c[:, j] = index - (len(half) - 1.0)
        return c

    def sample(rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        return (rng.poisson(0.5 * kappa, size) - rng.poisson(0.5 * kappa, size)).astype(float)

    def log_density(c: np.ndarray) -> np.ndarray:
        degrees = np.rint(c)
        with np.errstate(divide="ignore"):
            values = np.log(ive(np.abs(degrees), kappa))
        return np.where(np.abs(c - degrees) < 1e-9, values, -np.inf)

    return spectral.Law(kappa, sample, quantile, log_density, discrete=True)


def harmonics(concentration: float) -> Float[np.ndarray, " c"]:
    """Return the weights e^(−κ) I_c(κ), κ = 1/ℓ², of the harmonics c and −c, c = 0, 1, ...."""
    return np.asarray(ive(np.arange(int(40 + 12 * concentration**0.5)), concentration))


def steps_of(period: float, h: float) -> int:
    """Return the positive integer c for which c · h is nearest to the frequency 2π/p."""
    return max(1, round(2 * math.pi / (period * h)))


@dataclass(frozen=True)
class Periodic(stationary.Stationary):
    """k(x, y) = exp(−2 Σ_j sin²(π(x_j − y_j)/p_j)/ℓ_j²): MacKay's kernel of periodic functions.

    Spectral measure: ω_j = 2πc_j/p_j with integers c_j of probability e^(−1/ℓ²) I_|c|(1/ℓ²), the
    coefficients of the Fourier series.

    Parameters
    ----------
    period : float or one per column, default 1.0
        p > 0, in the units of X.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, dimensionless: the smoothness within a period. For large ℓ the kernel is nearly a
        constant plus a cosine.

    See Also
    --------
    FourierSeries : A periodic kernel with given weights.

    Notes
    -----
    With one periodic column among others: ``Columns(Periodic(24.0), (0,)) * Columns(...)``.

    Rows are reduced modulo the period in float64 without rounding. k is therefore accurate for
    rows many periods apart, also if X is float32.

    Examples
    --------
    >>> from bochner.kernels import Periodic
    >>> Periodic(period=24.0)([[1.0]], [[1.0], [7.0], [25.0]]).round(2)
    array([[1.  , 0.37, 1.  ]])
    """

    period: TunedNumbers = 1.0
    lengthscale: TunedNumbers = 1.0

    def spectral(self, d: int) -> spectral.Measure:
        periods, lengths = self.per_axis(d)
        law = harmonic_law(tuple(1 / v**2 for v in lengths))
        return spectral.Measure(law, 2 * math.pi / np.array(periods))

    def per_axis(self, d: int) -> list[tuple[float, ...]]:
        """Return the period and the lengthscale of each of d columns."""
        pairs = (("period", self.period), ("lengthscale", self.lengthscale))
        return [stationary.per_column(value, d, "Periodic", name) for name, value in pairs]

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        stationary.refuse_sparse(self, X, Y)
        periods, lengths = self.per_axis(X.shape[1])
        xp = array_namespace(X, Y)

        def block(A: Array, B: Array) -> Array:
            total = 0.0
            for j, (p, length) in enumerate(zip(periods, lengths, strict=True)):
                turns = (A[:, j][:, None] - B[:, j][None, :]) / p
                wave = xp.sin(math.pi * _part(turns, X.dtype))
                total = total + wave * wave * (-2.0 / length**2)
            return xp.exp(total)

        A = _modulo(X, periods)
        B = A if Y is X else _modulo(Y, periods)
        return distances.map_blocks(block, A, B, X.dtype)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        xp, (periods, lengths) = array_namespace(X), self.per_axis(X.shape[1])
        turns = [2 * math.pi / p for p in periods]
        rate = lambda gap, k: -turns[k] / lengths[k] ** 2 * xp.sin(turns[k] * gap)
        return stationary.by_columns(C * self.evaluate(X, Y), rate, X, Y)

    def hyperparameter_vjp(self, X: Rows) -> Vjp:
        K, _ = super().hyperparameter_vjp(X)
        return K, lambda C: stationary.column_slopes(self, X, C * K())

    def log_slopes(self, gap: Pairs, j: int, d: int) -> dict[str, Array]:
        period, length = (values[j] for values in self.per_axis(d))
        angle, rate = math.pi * _part(gap / period, gap.dtype), 4 / length**2
        period_slope = rate * (math.pi / period) * gap * np.sin(2 * angle) / 2
        return {"lengthscale": rate * np.sin(angle) ** 2, "period": period_slope}


#: A number for all columns, or one per column, of each component.
Components = tuple[float | tuple[float, ...], ...]


@dataclass(frozen=True)
class SpectralMixture(stationary.Stationary):
    """k(x, y) = Σ_q w_q exp(−½|σ_q ∘ (x − y)|²) cos(μ_q·(x − y)): Gaussian mixture as spectrum.

    Spectral measure: ω = ±μ_q + σ_q ∘ z, z ~ N(0, I), component q with probability w_q
    [Wilson & Adams (2013), eq. 12, with frequencies in radians per unit of x].

    Parameters
    ----------
    weights : sequence of float
        w_q > 0, divided by their sum: k(x, x) = 1. Multiply the kernel by a variance if needed.
    means : sequence, one entry for each weight
        μ_q: a number for all columns, or one per column; period p corresponds to 2π/p.
    scales : sequence, one entry for each weight
        σ_q > 0: a number for all columns, or one per column; 1/lengthscale of component q.

    Notes
    -----
    Numbers that hold for all columns can be free: "auto" or ``Free()``. A fit chooses positive
    means, as the sign does not matter, and starts at the peaks of the spectrum of the targets.

    Examples
    --------
    >>> import numpy as np
    >>> from bochner.kernels import SpectralMixture
    >>> kernel = SpectralMixture(weights=(1.0,), means=(2 * np.pi,), scales=(0.5,))
    >>> kernel([[0.0]], [[0.5], [1.0]]).round(2)
    array([[-0.97,  0.88]])
    """

    weights: Annotated[tuple[float, ...], sequence_of(free_or(positive)), TUNED]
    means: Annotated[Components, sequence_of(free_or(finite, per_column=True)), TUNED]
    scales: Annotated[Components, sequence_of(free_or(positive, per_column=True)), TUNED]

    def __post_init__(self) -> None:
        super().__post_init__()
        m, u, s = len(self.weights), len(self.means), len(self.scales)
        if not m == u == s:
            raise InvalidInput(
                "SpectralMixture: weights, means and scales must have one entry for each "
                f"component; got {m}, {u} and {s}."
            )

    def spectral(self, d: int) -> spectral.Measure:
        weights = np.array(self.weights) / math.fsum(self.weights)
        means, deviations = map(np.array, self.per_axis(d))
        law = spectral.components(weights, means, deviations)
        return spectral.Measure(law, np.ones(d), role="vectors")

    def per_axis(self, d: int) -> list[list[tuple[float, ...]]]:
        """Return the means and the scales of each component, one per column."""
        fields = (("means", self.means), ("scales", self.scales))
        expand = stationary.per_column
        return [[expand(v, d, "SpectralMixture", name) for v in values] for name, values in fields]

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        stationary.refuse_sparse(self, X, Y)
        parts = tuple(zip(self.weights, *self.per_axis(X.shape[1]), strict=True))
        xp = array_namespace(X, Y)

        def block(A: Array, B: Array) -> Array:
            waves = ((w, *_wave(A, B, mean, scale, X.dtype)) for w, mean, scale in parts)
            sizes = [w * (fall * xp.cos(angle)) for w, fall, angle, *_ in waves]
            return sum(sizes[1:], sizes[0]) / sum(self.weights[1:], self.weights[0])

        # Angles of many turns lose their digits in float32.
        A = in_float64(X)
        B = A if Y is X else in_float64(Y)
        return distances.map_blocks(block, *distances.centred(A, B), X.dtype)

    def pullback(self, X: Rows, Y: Others, C: Pairs) -> Rows:
        xp, total, (X, Y) = array_namespace(X), 0.0 * X, distances.centred(X, Y)
        for w, mean, scale in zip(self.weights, *self.per_axis(X.shape[1]), strict=True):
            fall, angle, m, s = _wave(X, Y, mean, scale, X.dtype)
            C_w = w / math.fsum(self.weights) * C * fall
            falls, turns = C_w * xp.cos(angle), xp.sum(C_w * xp.sin(angle), axis=1)[:, None]
            total = total + s * s * (falls @ Y - xp.sum(falls, axis=1)[:, None] * X) - turns * m
        return total


def _modulo(X: Rows, periods: tuple[float, ...]) -> Rows:
    """Return sign(X) (|X| mod period) in float64, without rounding; |X| < period is unchanged."""
    X = in_float64(X)
    xp = array_namespace(X)
    period = xp.asarray(periods, dtype=X.dtype, device=device(X))
    return xp.sign(X) * xp.remainder(xp.abs(X), period)


def _part(turns: Array, dtype: Any) -> Array:
    """Return ``turns`` minus the nearest integer, in [−½, ½]."""
    xp = array_namespace(turns)
    return xp.astype(turns - xp.round(turns), dtype, copy=False)


def _wave(
    A: Array, B: Array, mean: tuple[float, ...], scale: tuple[float, ...], dtype: Any
) -> tuple[Array, ...]:
    """Return exp(−½|σ ∘ (a − b)|²) and the angle μ·(a − b), from −π to π, of pairs; μ and σ."""
    xp = array_namespace(A, B)
    m, s = (xp.asarray(v, dtype=A.dtype, device=device(A)) for v in (mean, scale))
    turns = (xp.sum(A * m, axis=1)[:, None] - xp.sum(B * m, axis=1)[None, :]) / (2 * math.pi)
    distances_ = distances.squared_distances(*(xp.astype(Z * s, dtype, copy=False) for Z in (A, B)))
    return xp.exp(-0.5 * distances_), 2 * math.pi * _part(turns, dtype), m, s
