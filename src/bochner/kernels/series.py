"""Expansions of kernels: power series, Gegenbauer polynomials and radial kernels.

P_l is the Gegenbauer polynomial of degree l **in dimension d**, P_l(1) = 1, and α_l the number of
independent harmonics of degree l. p_l = √α_l P_l is orthonormal for t = ⟨u, w⟩, w uniform on the
sphere. The code uses p_l, whose values are of order one; P_l may underflow and α_l overflow.
d = 2: Chebyshev. d = 3: Legendre. d = 1: the sphere is {−1, 1}, and degrees above one are zero.

A generalised zonal kernel depends on |x|, |y| and the angle between x and y:

    k(x, y) = Σ_l R_l(|x|, |y|) P_l(cos ∠(x, y)),

where each R_l is a positive semi-definite kernel on [0, ∞) that includes the factor α_l, and
R_l(0, ·) = 0 for l ≥ 1. Kernels of ⟨x, y⟩, of |x − y| and of the form |x|^p |y|^p K(cos) are
zonal in this sense, and so are sums and positive multiples. Han et al. (2022), definition 3.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from scipy.special import gammaln, ive, xlogy

from bochner._core.arrays import array_namespace, slices
from bochner._core.checks import finite, integer, optional, sequence_of
from bochner._core.names import NamedArguments
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, NotPositive

#: Coefficients of 1, t, t², …, or a function from integers n to log κ⁽ⁿ⁾(0).
Terms = tuple[float, ...] | Callable[[np.ndarray], np.ndarray]


def no_negative(value: Any, caller: str, name: str) -> tuple[float, ...]:
    """Return the coefficients as a tuple; refuse negative ones."""
    values = sequence_of(finite)(value, caller, name)
    if min(values) < 0:
        raise NotPositive(
            f"{caller}: {name} must be zero or above, or the kernel is not positive semi-definite; "
            f"got {min(values)!r}."
        )
    return values


def terms_of(value: Any, caller: str, name: str) -> Terms:
    """Return the terms of a series: a function as it is, or checked coefficients."""
    return value if callable(value) else no_negative(value, caller, name)


@dataclass(frozen=True)
class PowerSeries(NamedArguments):
    """κ(t) = Σ κ⁽ⁿ⁾(0) tⁿ/n! with nonnegative derivatives at zero: κ(⟨x, y⟩) is a kernel.

    Parameters
    ----------
    terms : sequence of float, or callable
        The coefficients of 1, t, t², …, nonnegative. Or a function that returns log κ⁽ⁿ⁾(0) of an
        integer array n, elementwise, −inf for a missing term. Logarithms are used because n!
        overflows at n = 171: 1/(1 − t) is ``lambda n: gammaln(n + 1.0)``.
    degree : int, optional
        Largest n with a term, if ``terms`` is a function. Default: None, no limit.

    Notes
    -----
    A function is summed until terms are below rounding error relative to κ(|t|). For negative t,
    digits are lost as in every alternating series.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import gammaln
    >>> from bochner.kernels import PowerSeries
    >>> PowerSeries(lambda n: gammaln(n + 1.0)).value(np.array([0.0, 0.6])).round(2)
    array([1. , 2.5])
    """

    terms: Annotated[Terms, terms_of]
    degree: Annotated[int | None, optional(integer)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.terms):
            degree = max((n for n, a in enumerate(self.terms) if a), default=0)
            object.__setattr__(self, "degree", degree)

    def log_derivative(self, n: Any) -> Float[np.ndarray, "..."]:
        """Return log κ⁽ⁿ⁾(0) for an integer or an array n; −inf for a missing term."""
        n = np.asarray(n)
        if not callable(self.terms):
            is_term = n < len(self.terms)
            with np.errstate(divide="ignore"):
                logs = np.log(np.asarray(self.terms))[np.where(is_term, n, 0)]
            return np.where(is_term, logs + gammaln(n + 1.0), -math.inf)
        logs = np.asarray(self.terms(n), dtype=np.float64)
        if logs.shape != n.shape or bool(np.isnan(logs).any()) or bool((logs == math.inf).any()):
            raise NotPositive(
                "PowerSeries: the function must return, for each integer n, the logarithm of a "
                f"derivative that is zero or above (-inf for zero); got {logs!r} for n = {n!r}."
            )
        return logs if self.degree is None else np.where(n <= self.degree, logs, -math.inf)

    def value(self, t: Array) -> Array:
        """Return κ(t), elementwise, for arrays of any library."""
        if not callable(self.terms):
            return horner(self.terms, t)
        xp = array_namespace(t)
        largest = float(xp.max(xp.abs(t))) if math.prod(t.shape) else 0.0
        if largest == 0:
            return 0.0 * t + math.exp(float(self.log_derivative(0)))
        logs = lambda n: self.log_derivative(n) - gammaln(n + 1.0) + n * math.log(largest)
        if self.degree is None:
            message = f"PowerSeries: the series must converge at every ⟨x, y⟩; at {largest:.3g}"
            terms = log_terms(logs, message)
        else:
            terms = logs(np.arange(self.degree + 1))
        return horner(tuple(np.exp(terms).tolist()), t / largest)

    def slope(self, t: Array) -> Array:
        """Return κ'(t), elementwise, by the series of the derivative."""
        if self.degree == 0:
            return 0.0 * t
        degree = self.degree and self.degree - 1
        return PowerSeries(lambda n: self.log_derivative(n + 1), degree).value(t)


def exponential(scale: float = 1.0) -> PowerSeries:
    """Return the power series of exp(scale · t)."""
    return PowerSeries(lambda n: n * math.log(scale))


def scale_by(weight: float, series: PowerSeries) -> PowerSeries:
    """Return weight · series."""
    return PowerSeries(lambda n: math.log(weight) + series.log_derivative(n), series.degree)


def add(left: PowerSeries, right: PowerSeries) -> PowerSeries:
    """Return left + right."""
    degree = None if None in (left.degree, right.degree) else max(left.degree, right.degree)  # type: ignore[type-var]
    return PowerSeries(
        lambda n: np.logaddexp(left.log_derivative(n), right.log_derivative(n)), degree
    )


def multiply(left: PowerSeries, right: PowerSeries) -> PowerSeries:
    """Return left · right."""

    def log_derivative(n: np.ndarray) -> np.ndarray:
        k = np.arange(int(n.max(initial=0)) + 1)
        a, b = (part.log_derivative(k) - gammaln(k + 1.0) for part in (left, right))
        sums = np.array([np.logaddexp.reduce(a[: m + 1] + b[m::-1]) for m in k.tolist()])
        return (sums + gammaln(k + 1.0))[n]

    degree = None if None in (left.degree, right.degree) else left.degree + right.degree  # type: ignore[operator]
    return PowerSeries(log_derivative, degree)


def log_terms(logs: Callable[[np.ndarray], np.ndarray], remedy: str) -> Float[np.ndarray, " n"]:
    """Return log terms ``logs(0..n)`` of a series; the terms beyond n are below rounding."""
    count, limit = 32, 4096
    while count <= limit:
        terms = logs(np.arange(count))
        if terms[-count // 4 :].max() < terms.max() - 40.0 or not np.isfinite(terms.max()):
            return terms
        count *= 2
    raise InvalidInput(f"{remedy} it has not converged after {limit} terms. Rescale X.")


def horner(values: tuple[float, ...], t: Array) -> Array:
    """Return values[0] + values[1] t + values[2] t² + ..., elementwise."""
    total = 0.0 * t + values[-1]
    for a in values[-2::-1]:
        total = total * t
        total += a
    return total


def alpha(l: int, d: int) -> int:
    """Return α_l, the exact number of independent spherical harmonics of degree l in R^d."""
    if l < 2:
        return 1 if l == 0 else d
    return math.comb(d + l - 1, l) - math.comb(d + l - 3, l - 2)


def log_alpha(l: int, d: int) -> float:
    """Return log α_l; −inf if α_l = 0 (d = 1, l ≥ 2)."""
    count = alpha(l, d)
    return math.log(count) if count else -math.inf


def recurrence(l: int, d: int) -> Float[np.ndarray, " k"]:
    """Return b_0 = 0, ..., b_l of `orthonormals`: p_{k+1} = (t p_k − b_k p_{k−1})/b_{k+1}."""
    k = np.arange(l + 1.0)
    b = np.zeros(l + 1)
    b[2:] = np.sqrt(k[2:] * (k[2:] + d - 3) / ((2 * k[2:] + d - 2) * (2 * k[2:] + d - 4)))
    b[1:2] = 1.0 / math.sqrt(d)
    return b


def orthonormals(l: int, d: int, t: Array) -> Iterator[Array]:
    """Yield p_0(t), ..., p_l(t), p_k = √α_k P_k, elementwise, for arrays of any library."""
    b, previous, current = recurrence(l, d).tolist(), 0.0, 1.0 + 0.0 * t
    yield current
    for k in range(l):
        line = t * current - b[k] * previous if k else t
        previous, current = current, 0.0 * t if d == 1 and k else line / b[k + 1]
        yield current


def gegenbauers(l: int, d: int, t: Array) -> Iterator[Array]:
    """Yield the Gegenbauer polynomials P_0(t), ..., P_l(t), with P_k(1) = 1."""
    for k, p in enumerate(orthonormals(l, d, t)):
        yield p * math.exp(-0.5 * math.log(max(alpha(k, d), 1)))


@lru_cache(maxsize=32)
def angles(
    d: int, l: int, towards_zero: bool = False
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return nodes θ and weights (sum one) of means over the sphere, for degree l in cos θ."""
    # Clenshaw-Curtis in θ, or in u with θ = πu²: the nodes are then dense near zero, where a kernel
    # of the distance may not be smooth.
    if d == 1:
        return np.array([0.0, math.pi]), np.array([0.5, 0.5])
    n = max(400, int(11.0 * math.sqrt(d))) + 2 * l  # in high dimension θ concentrates at 90°
    n += n % 2  # Clenshaw-Curtis in [0, 1], n even [Trefethen (2008), section 2]
    j, k = np.arange(n + 1), np.arange(n // 2 + 1)
    terms = np.where(k == n // 2, 1.0, 2.0) / (4.0 * k * k - 1.0)
    terms[0] = -1.0
    ends = np.where((j == 0) | (j == n), 0.5, 1.0)
    u, w = np.sin(0.5 * math.pi / n * j) ** 2, np.resize(np.fft.fft(terms, n).real, n + 1)
    w = -ends * w / n
    theta = math.pi * u * u if towards_zero else math.pi * u
    w = w * u if towards_zero else w
    w = w * np.sin(theta) ** (d - 2)
    return theta, w / w.sum()


Radii = Float[np.ndarray, " _"]


@dataclass(frozen=True, eq=False)
class RadialKernels:
    """The radial kernels R_l of a kernel in dimension d."""

    n_inputs: int  # dimension d of the sphere's space
    #: From a degree L and radii r, s ≥ 0 to R_0(r_i, s_j), ..., R_L(r_i, s_j), which include α_l.
    matrices: Callable[[int, Radii, Radii], Float[np.ndarray, "q a b"]]
    zonal: bool = False  # whether R_l(r, s) = c_l (r s)^p: one radial function for each degree
    #: κ with k(x, y) = e^{−decay (|x|² + |y|²)/2} κ(⟨x, y⟩), None for kernels without `monomials`.
    power_series: PowerSeries | None = None
    decay: float = 0.0  # rate of that envelope: 1/ℓ² for the Gaussian, else zero


# --- Radial kernels of ⟨x, y⟩ and of the Gaussian: Bessel functions, or power series in |x||y| ---


def of_series(d: int, series: PowerSeries, decay: float = 0.0) -> RadialKernels:
    """Return R_l = Σ_i h_{l,i}(r) h_{l,i}(s) of e^{−decay (|x|² + |y|²)/2} κ(⟨x, y⟩)."""

    def radial(l: int, r: Radii, s: Radii) -> Float[np.ndarray, "a b"]:
        largest = float((r[:, None] * s).max(initial=0.0))
        if series.degree is None:
            log_half = math.log(max(0.5 * largest, 1e-300))
            logs = lambda i: log_weights(series, d, l, len(i)) + (l + 2 * i) * log_half
            message = f"Radial kernels: the power series must converge at |x|·|y|; at {largest:.3g}"
            order = len(log_terms(logs, message))
        else:
            order = max((series.degree - l) // 2 + 1, 0)
        # Without an envelope only r·s matters: r and s of equal size avoid overflow of powers.
        c = 1.0 if decay or not largest else math.sqrt(s.max() / r.max())
        left, right = (_monomials(series, d, l, order, decay, t) for t in (c * r, s / c))
        return left.T @ right

    matrices = lambda degree, r, s: np.stack([radial(l, r, s) for l in range(degree + 1)])
    return RadialKernels(d, matrices, power_series=series, decay=decay)


def of_exponential(d: int, scale: float, decay: float = 0.0) -> RadialKernels:
    """Return R_l of e^{−decay (|x|² + |y|²)/2} e^{scale ⟨x, y⟩}, by Bessel functions."""

    def matrices(degree: int, r: Radii, s: Radii) -> Float[np.ndarray, "q a b"]:
        # e^{−z} of the Bessel function and the envelope form a square, so Gaussians never overflow.
        z, square = r[:, None] * s, 0.5 * decay * (r[:, None] - s) ** 2
        logs = np.stack([_log_bessel(l, d, scale * z) for l in range(degree + 1)])
        with np.errstate(over="ignore"):
            R = np.exp(logs - square + (scale - decay) * z)
        if not bool(np.isfinite(R).all()):
            raise InvalidInput(
                "Radial kernels of exp(scale·⟨x, y⟩): scale·|x|·|y| must be below 700; got an "
                "overflow. Rescale X."
            )
        return R

    return RadialKernels(d, matrices, power_series=exponential(scale), decay=decay)


def _log_bessel(l: int, d: int, z: np.ndarray) -> np.ndarray:
    """Return log(α_l Γ(ν + 1) (2/z)^ν I_{l+ν}(z) e^{−z}), ν = d/2 − 1; z ≥ 0."""
    # = log(α_l (z/2)^l Γ(d/2)/Γ(l + d/2)) + log Λ − z, Λ = Γ(μ + 1)(2/z)^μ I_μ(z), μ = l + ν. Λ is
    # computed by its positive series if that is short, else by SciPy's Bessel function.
    mu = l + 0.5 * d - 1.0
    power, peak = xlogy(l, 0.5 * z), 0.5 * (np.hypot(mu, z) - mu)
    short = peak <= 200.0
    log_lambda = np.empty_like(z)
    log_lambda[short] = _log_lambda(mu, z[short]) - z[short]
    log_lambda[~short] = _log_scaled(mu, z[~short])
    return log_alpha(l, d) - _log_sum(0.5 * d, l)[l] + power + log_lambda


def _log_lambda(mu: float, z: np.ndarray) -> np.ndarray:
    """Return log Σ_i (z²/4)^i/(i! (μ + 1)_i) by nested sums, from the last term inwards."""
    x, total = 0.25 * z * z, np.ones_like(z)
    peak = 0.5 * float((np.hypot(mu, z) - mu).max(initial=0.0))
    for i in range(int(peak + 10.0 * math.sqrt(peak + 1.0)) + 20, 0, -1):
        total = 1.0 + x / (i * (mu + i)) * total
    return np.log(total)


def _log_scaled(mu: float, z: np.ndarray) -> np.ndarray:
    """Return log(Γ(μ + 1)(2/z)^μ I_μ(z) e^{−z}) for large z, by DLMF 10.41.3 where SciPy fails."""
    with np.errstate(divide="ignore"):
        logs = np.log(ive(mu, z))
    fails = ~np.isfinite(logs)
    z_far = z[fails]
    w = np.hypot(mu, z_far)
    p = (mu / w) ** 2
    u = 1.0 + (3 - 5 * p) / (24 * w) + (81 - 462 * p + 385 * p**2) / (1152 * w**2)
    grows = mu * (mu / (w + z_far)) - mu * np.arcsinh(mu / z_far)  # w − z without its cancellation
    logs[fails] = grows - 0.5 * np.log(2 * math.pi * w) + np.log(u)
    return logs + gammaln(mu + 1.0) + mu * np.log(2.0 / z)


def log_weights(series: PowerSeries, d: int, l: int, order: int) -> Radii:
    """Return log(α_l κ⁽ˡ⁺²ⁱ⁾(0) Γ(d/2)/(i! Γ(l + i + d/2))), i < order."""
    i = np.arange(order)
    logs = log_alpha(l, d) + series.log_derivative(l + 2 * i) - _log_sum(1.0, order)[:order]
    return logs - _log_sum(d / 2, l + order)[l + i]


def _monomials(
    series: PowerSeries, d: int, l: int, order: int, decay: float, t: Radii
) -> Float[np.ndarray, "s n"]:
    """Return h_{l,i}(t), i < order: R_l(t, u) = Σ_i h_{l,i}(t) h_{l,i}(u)."""
    # h_{l,i}(t)² = α_l κ⁽ⁿ⁾(0) Γ(d/2)/(i! Γ(l + i + d/2)) (t²/2)ⁿ e^{−decay t²}, n = l + 2i
    # [Han et al. (2022), lemmas 4 and 15, simplified].
    n = l + 2 * np.arange(order)[:, None]
    logs = log_weights(series, d, l, order)[:, None] - n * math.log(2.0)
    return np.exp(0.5 * logs + xlogy(n, t) - 0.5 * decay * t * t)


def _log_sum(a: float, n: int) -> Float[np.ndarray, " n"]:
    """Return log Γ(a + j)/Γ(a) for j = 0..n, as sums: differences of gammaln lose digits."""
    return np.concatenate([[0.0], np.cumsum(np.log(a + np.arange(n)))])


# --- Radial kernels of |x − y|, by integrals over the angle --------------------------------------


def of_distance(profile: Callable[[Any], Any], scale: float, d: int) -> RadialKernels:
    """Return R_l(r, s) = α_l E k(√((r − s)² + 4 r s sin²(θ/2))) P_l(cos θ); errors: √α_l eps."""

    def matrices(degree: int, r: Radii, s: Radii) -> Float[np.ndarray, "q a b"]:
        theta, w = angles(d, degree, towards_zero=True)
        p = np.stack([*orthonormals(degree, d, np.cos(theta))]) * w
        chord = 4.0 * np.sin(0.5 * theta) ** 2
        i, j = np.indices((len(r), len(s))).reshape(2, -1)
        if len(r) == len(s) and bool((r == s).all()):  # each unordered pair once
            i, j = np.triu_indices(len(r))
        values = np.empty((len(p), len(i)))
        for part in slices(len(i), 4096):
            a, b = r[i[part], None], s[j[part], None]
            k = profile(((a - b) ** 2 + a * b * chord) / scale**2)
            values[:, part] = p @ k.T
        R = np.empty((len(p), len(r), len(s)))
        R[:, i, j] = values
        if len(i) < R[0].size:
            R[:, j, i] = values
        # The error of a mean of k p_l, |k| ≤ 1, is about eps. Functions below 10 eps everywhere
        # are rounding error, which √α_l would enlarge.
        large = np.abs(R).max(axis=(1, 2), initial=0.0) > 10.0 * np.finfo(float).eps
        roots = np.exp([0.5 * log_alpha(l, d) for l in range(len(R))])
        R *= np.where(large, roots, 0.0)[:, None, None]
        R[1:] *= (r > 0)[:, None] & (s > 0)[None, :]
        return R

    return RadialKernels(d, matrices)


def monomials(
    radial: RadialKernels, degree: int, order: int, t: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "q s n"]:
    """Return the functions h_{l,i}(t), l ≤ degree, i < order, of a kernel with a power series."""
    series, d, t = radial.power_series, radial.n_inputs, np.asarray(t, dtype=np.float64)
    assert series is not None
    return np.stack([_monomials(series, d, l, order, radial.decay, t) for l in range(degree + 1)])


def _scale_kernels(scale: float, kernels: RadialKernels) -> RadialKernels:
    series = kernels.power_series and scale_by(scale, kernels.power_series)
    matrices = lambda degree, r, s: scale * kernels.matrices(degree, r, s)
    return replace(kernels, matrices=matrices, power_series=series)


def _add_kernels(left: RadialKernels, right: RadialKernels) -> RadialKernels:
    series = None
    if left.power_series and right.power_series and left.decay == right.decay:
        series = add(left.power_series, right.power_series)
    matrices = lambda degree, r, s: left.matrices(degree, r, s) + right.matrices(degree, r, s)
    decay = left.decay if series else 0.0
    return RadialKernels(left.n_inputs, matrices, power_series=series, decay=decay)


def _multiply_kernels(left: RadialKernels, right: RadialKernels) -> RadialKernels | None:
    """Return the radial kernels of a product: its series is the product of the factors'."""
    if left.power_series is None or right.power_series is None:
        return None
    series = multiply(left.power_series, right.power_series)
    return of_series(left.n_inputs, series, left.decay + right.decay)


#: Functions for the series, and the radial kernels, of a sum, a product and a multiple.
SERIES_OPS = add, multiply, scale_by
RADIAL_OPS = _add_kernels, _multiply_kernels, _scale_kernels
