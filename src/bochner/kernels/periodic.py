"""Stationary kernels whose spectral measures have peaks: periodic, and mixtures of Gaussians."""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import ive

from bochner._core.arrays import array_namespace, device, in_float64
from bochner._core.checks import (
    finite,
    integer,
    numbers,
    positive,
    unpacked,
)
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput
from bochner.kernels import distances
from bochner.kernels.spectral import Components, Independent, Law, Measure
from bochner.kernels.stationary import Lengthscale, Stationary, ones, per_column, refuse_sparse


@final
@dataclass(frozen=True)
class HarmonicLaw(Law):
    """Whole numbers c with probability e^(−κ) I_|c|(κ), characteristic function e^(κ(cos t − 1)).

    The law of a difference of two Poisson numbers of mean κ/2 each (Skellam's).

    Parameters
    ----------
    concentration : tuple of float
        κ > 0: one for all columns (the last axis of what is asked), or one for each.
    """

    concentration: tuple[float, ...]

    def quantile(self, u: np.ndarray) -> np.ndarray:
        u = np.asarray(u, dtype=float)
        if len(self.concentration) == 1:
            return _harmonic_quantile(u, self.concentration[0])
        columns = [_harmonic_quantile(u[..., j], k) for j, k in enumerate(self.concentration)]
        return np.stack(columns, axis=-1)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> np.ndarray:
        half = 0.5 * np.array(self.concentration)
        return (rng.poisson(half, size) - rng.poisson(half, size)).astype(float)

    @property
    def second_moment(self) -> np.ndarray:
        return np.array(self.concentration)

    def log_density(self, c: np.ndarray) -> np.ndarray:
        """Return the log probability at the whole number c, −∞ elsewhere."""
        whole = np.rint(c)
        with np.errstate(divide="ignore"):
            values = np.log(ive(np.abs(whole), np.array(self.concentration)))
        return np.where(np.abs(c - whole) < 1e-9, values, -np.inf)


def _harmonic_quantile(u: np.ndarray, concentration: float) -> np.ndarray:
    largest = int(40 + 12 * concentration**0.5)
    whole = np.arange(-largest, largest + 1)
    below = np.cumsum(ive(np.abs(whole), concentration))
    return whole[np.minimum(np.searchsorted(below, u), len(whole) - 1)].astype(float)


@final
@dataclass(frozen=True)
class Periodic(Stationary):
    """k(x, y) = exp(−2 Σ_j sin²(π(x_j − y_j)/p_j)/ℓ_j²): MacKay's kernel of periodic functions.

    Spectral measure: ω_j = 2πc_j/p_j with whole numbers c_j of probability
    e^(−1/ℓ²) I_|c|(1/ℓ²): the Fourier series is exact.

    Parameters
    ----------
    period : float or one per column, default 1.0
        p > 0, in the units of X.
    lengthscale : float or one per column, default 1.0
        ℓ > 0, without a unit: how smooth within a period. Large ℓ is nearly a single wave beside
        a constant.

    Notes
    -----
    One periodic column among others: ``Columns(Periodic(24.0), (0,)) * Columns(...)``.

    Rows are reduced modulo the period in float64, which is exact: any number of periods apart, k
    is that of the numbers as they are stored, in float32 as well.
    """

    period: float | tuple[float, ...] = 1.0
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        for name in ("period", "lengthscale"):
            object.__setattr__(self, name, numbers(getattr(self, name), "Periodic", name))

    def spectral_measure(self, d: int) -> Measure:
        d = integer(d, "Periodic.spectral_measure", "d", least=1)
        lengths = per_column(self.lengthscale, d, "Periodic", "lengthscale")
        law = HarmonicLaw(
            tuple(1 / v**2 for v in (lengths if len(set(lengths)) > 1 else lengths[:1]))
        )
        periods = per_column(self.period, d, "Periodic", "period")
        return Independent(law, tuple(2 * math.pi / p for p in periods))

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        refuse_sparse(self, X, Y)
        d = X.shape[1]
        periods = per_column(self.period, d, "Periodic", "period")
        lengths = per_column(self.lengthscale, d, "Periodic", "lengthscale")
        xp = array_namespace(X, Y)

        def block(A: Array, B: Array) -> Array:
            total = 0.0
            for j, (p, length) in enumerate(zip(periods, lengths, strict=True)):
                turns = (A[:, j][:, None] - B[:, j][None, :]) / p
                wave = xp.sin(math.pi * _part(turns, X.dtype))
                total = total + wave * wave * (-2.0 / length**2)
            return xp.exp(total)

        A = _within(X, periods)
        B = A if Y is X else _within(Y, periods)
        return distances.by_blocks(block, A, B, 3, X.dtype)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        per_column(self.period, X.shape[1], "Periodic", "period")
        per_column(self.lengthscale, X.shape[1], "Periodic", "lengthscale")
        return ones(X)


@final
@dataclass(frozen=True)
class SpectralMixture(Stationary):
    """k(x, y) = Σ_q w_q exp(−½|σ_q ∘ (x − y)|²) cos(μ_q·(x − y)): any spectrum, by Gaussians.

    Spectral measure: ω = ±μ_q + σ_q ∘ z, z ~ N(0, I), component q with probability w_q
    [Wilson & Adams (2013), eq. 12, with frequencies in radians per unit of x].

    Parameters
    ----------
    weights : sequence of float
        Positive; divided by their sum, so that k(x, x) = 1 (multiply the kernel by a variance).
    means : sequence, one entry for each weight
        μ_q: a number for all columns, or one per column; a wave of period p has 2π/p.
    scales : sequence, one entry for each weight
        σ_q > 0: a number for all columns, or one per column; 1/lengthscale of component q.
    """

    weights: tuple[float, ...]
    means: tuple[float | tuple[float, ...], ...]
    scales: tuple[float | tuple[float, ...], ...]

    def __post_init__(self) -> None:
        who = "SpectralMixture"
        weights = tuple(positive(w, who, "weights") for w in _list(self.weights, "weights"))
        means = tuple(_entry(m, "means", finite) for m in _list(self.means, "means"))
        scales = tuple(_entry(s, "scales", positive) for s in _list(self.scales, "scales"))
        if not len(weights) == len(means) == len(scales) > 0:
            raise InvalidInput(
                f"{who}: weights, means and scales must have one entry for each component; got "
                f"{len(weights)}, {len(means)} and {len(scales)}."
            )
        for name, value in (("weights", weights), ("means", means), ("scales", scales)):
            given = getattr(self, name)
            object.__setattr__(self, name, given if given == value else value)

    def spectral_measure(self, d: int) -> Measure:
        d = integer(d, "SpectralMixture.spectral_measure", "d", least=1)
        total = math.fsum(self.weights)
        return Components(tuple(w / total for w in self.weights), *self._parts(d))

    def _parts(self, d: int) -> tuple[tuple[tuple[float, ...], ...], ...]:
        means = tuple(per_column(m, d, "SpectralMixture", "means") for m in self.means)
        return means, tuple(per_column(s, d, "SpectralMixture", "scales") for s in self.scales)

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        refuse_sparse(self, X, Y)
        parts = tuple(zip(self.weights, *self._parts(X.shape[1]), strict=True))

        def block(A: Array, B: Array) -> Array:
            sizes = [w * _component(A, B, mean, scale, X.dtype) for w, mean, scale in parts]
            return sum(sizes[1:], sizes[0]) / sum(self.weights[1:], self.weights[0])

        # Angles of many turns have no digits in float32.
        A = in_float64(X)
        B = A if Y is X else in_float64(Y)
        return distances.by_blocks(block, *distances.centred(A, B), dtype=X.dtype)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        self._parts(X.shape[1])
        return ones(X)


def _within(X: Float[Array, "n d"], periods: tuple[float, ...]) -> Float[Array, "n d"]:
    """Return the rest of X after whole periods in float64, exactly: small rows stay as they are."""
    X = in_float64(X)
    xp = array_namespace(X)
    whole = xp.asarray(periods, dtype=X.dtype, device=device(X))
    return xp.sign(X) * xp.remainder(xp.abs(X), whole)


def _part(turns: Array, dtype: Any) -> Array:
    """Return turns less the whole ones, from −½ to ½."""
    xp = array_namespace(turns)
    return xp.astype(turns - xp.round(turns), dtype, copy=False)


def _component(
    A: Array, B: Array, mean: tuple[float, ...], scale: tuple[float, ...], dtype: Any
) -> Array:
    xp = array_namespace(A, B)
    m, s = (xp.asarray(v, dtype=A.dtype, device=device(A)) for v in (mean, scale))
    turns = (xp.sum(A * m, axis=1)[:, None] - xp.sum(B * m, axis=1)[None, :]) / (2 * math.pi)
    near = distances.squared(*(xp.astype(Z * s, dtype, copy=False) for Z in (A, B)))
    return xp.exp(-0.5 * near) * xp.cos(2 * math.pi * _part(turns, dtype))


def _list(value: Any, name: str) -> list | tuple:
    plain = unpacked(value)
    if not isinstance(plain, list | tuple):
        raise InvalidInput(
            f"SpectralMixture: {name} must be a sequence, one entry for each component; got "
            f"{value!r}."
        )
    return plain


def _entry(value: Any, name: str, check: Any) -> float | tuple[float, ...]:
    plain = unpacked(value)
    if isinstance(plain, list | tuple):
        return tuple(check(v, "SpectralMixture", name) for v in plain)
    return check(plain, "SpectralMixture", name)
