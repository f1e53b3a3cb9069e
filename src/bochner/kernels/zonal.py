"""Zonal kernels by their own coefficients, and generalised ones by their own radial functions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bochner._core.arrays import array_namespace, moved, to_numpy
from bochner._core.checks import (
    finite,
    integer,
    nonnegative,
    sequence,
)
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType, NotPositive
from bochner.kernels import distances
from bochner.kernels.angle import directions, lengthened
from bochner.kernels.gegenbauer import gegenbauers
from bochner.kernels.kernel import Kernel

RadialFunction = Callable[[np.ndarray], np.ndarray]


@final
@dataclass(frozen=True)
class Zonal(Kernel):
    """k(x, y) = |x|^p |y|^p Σ_l c_l P_l(cos θ), P_l the Gegenbauer polynomial for d columns.

    On the sphere these are all continuous kernels of ⟨x, y⟩ [Schoenberg (1942)].

    Parameters
    ----------
    coefficients : tuple of float
        c_0, c_1, ..., zero or above. They belong to one number of columns: the same c_l are
        another function in another dimension.
    power : int, default 1
        p ≥ 0; no matter on the unit sphere. A row of zeros has the value 0 with every row, where
        p = 0 the mean over directions, c_0.
    """

    coefficients: tuple[float, ...]
    power: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", _coefficients(self.coefficients))
        object.__setattr__(self, "power", integer(self.power, "Zonal", "power"))

    @property
    def degree(self) -> int:
        """The power p of the norms."""
        return self.power

    def gegenbauer_coefficients(self, d: int, l: int) -> Float[np.ndarray, " k"]:
        """Return c_0, ..., c_l in d dimensions: zeros after the last; for d = 1, after c_1."""
        c = np.zeros(l + 1)
        given = self.coefficients[: min(l + 1, 2 if d == 1 else l + 1)]
        c[: len(given)] = given
        return c

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        U, r = directions(X)
        V, s = (U, r) if Y is X else directions(Y)
        K = distances.by_blocks(lambda A, B: self._series(_cosines(A, B), X.shape[1]), U, V, 8)
        if self.power:
            return lengthened(self, K, r[:, None], s[None, :])
        xp = array_namespace(K)
        return xp.where((r[:, None] == 0) | (s[None, :] == 0), self.coefficients[0], K)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        norms = directions(X)[1]
        total = math.fsum(self.gegenbauer_coefficients(X.shape[1], len(self.coefficients)))
        if self.power:
            return lengthened(self, total * norms**0, norms, norms)
        xp = array_namespace(norms)
        return xp.where(norms == 0, self.coefficients[0] + 0.0 * norms, total + 0.0 * norms)

    def _series(self, cos: Array, d: int) -> Array:
        c = self.coefficients[: 2 if d == 1 else None]
        return _weighted(c, gegenbauers(len(c) - 1, d, cos))


@final
@dataclass(frozen=True)
class Monomials:
    """Radial functions h(t) = (a_i t^(n_i) e^{−decay t²/2})_i, for `GeneralizedZonal`.

    Parameters
    ----------
    coefficients : tuple of float
        a_i.
    powers : tuple of int
        n_i, one for each coefficient; zero or above.
    decay : float, default 0.0
        Zero or above; 1 for the Gaussian's.
    """

    coefficients: tuple[float, ...]
    powers: tuple[int, ...]
    decay: float = 0.0

    def __post_init__(self) -> None:
        a, n = (sequence(getattr(self, f), "Monomials", f) for f in ("coefficients", "powers"))
        if len(a) != len(n):
            raise InvalidInput(
                "Monomials: coefficients and powers must be of one length; got "
                f"{len(a)} and {len(n)}."
            )
        a = tuple(finite(v, "Monomials", f"coefficients[{i}]") for i, v in enumerate(a))
        n = tuple(integer(v, "Monomials", f"powers[{i}]") for i, v in enumerate(n))
        object.__setattr__(self, "coefficients", a)
        object.__setattr__(self, "powers", n)
        object.__setattr__(self, "decay", nonnegative(self.decay, "Monomials", "decay"))

    def __call__(self, t: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n s"]:
        """Return h at the radii t."""
        envelope = np.exp(-0.5 * self.decay * t * t)[:, None]
        return np.asarray(self.coefficients) * t[:, None] ** np.asarray(self.powers) * envelope


@final
@dataclass(frozen=True)
class GeneralizedZonal(Kernel):
    """k(x, y) = Σ_l ⟨h_l(|x|), h_l(|y|)⟩ P_l(cos θ), P_l the Gegenbauer polynomial for d columns.

    Always positive semi-definite [Han et al. (2022), definition 3].

    Parameters
    ----------
    radial_functions : tuple of callables
        h_0, h_1, ...: each takes radii, a float64 NumPy array (n,), and returns (n,) or (n, s).
        For l ≥ 1 the value at radius zero is taken as zero, as there is no direction there.
        `Monomials` prints as code and can be saved; so can functions of a module be sent to other
        processes.
    """

    radial_functions: tuple[RadialFunction, ...]

    def __post_init__(self) -> None:
        given = self.radial_functions
        functions = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not functions or not all(map(callable, functions)):
            raise InvalidType(
                "GeneralizedZonal: radial_functions must be callables of radii, at least one; got "
                f"{given!r}."
            )
        object.__setattr__(self, "radial_functions", functions)

    def radial(self, degree: int, t: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n s"]:
        """Return h_l at radii t, l = ``degree``; zero at t = 0 for l ≥ 1, and beyond the last."""
        t = np.asarray(t, dtype=np.float64)
        if degree >= len(self.radial_functions):
            return np.zeros((len(t), 1))
        h = np.asarray(self.radial_functions[degree](t), dtype=np.float64)
        if h.ndim not in (1, 2) or len(h) != len(t) or not bool(np.isfinite(h).all()):
            raise InvalidInput(
                f"GeneralizedZonal: radial_functions[{degree}] must return finite numbers, one row "
                f"for each of {len(t)} radii; got shape {h.shape}, or numbers not finite."
            )
        h = h[:, None] if h.ndim == 1 else h
        return h * (t > 0)[:, None] if degree else h

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return distances.by_blocks(self._block, X, Y, 8)

    def _block(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        (U, r), (V, s) = directions(X), directions(Y)
        H, G = self._factors(r, like=X), self._factors(s, like=Y)
        P = gegenbauers(len(H) - 1, X.shape[1], _cosines(U, V))
        return sum((h @ g.T) * p for h, g, p in zip(H, G, P, strict=True))

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        norms = directions(X)[1]
        H = self._factors(norms, like=X)[: 2 if X.shape[1] == 1 else None]
        xp = array_namespace(norms)
        return sum(xp.sum(h * h, axis=1) for h in H)

    def _factors(self, radii: Array, like: Array) -> list[Array]:
        """Return h_0, h_1, ... of the radii, in their library and dtype."""
        t = to_numpy(radii).astype(np.float64)
        return [moved(self.radial(l, t), like=like) for l in range(len(self.radial_functions))]


def _cosines(U: Float[Array, "n d"], V: Float[Array, "m d"]) -> Float[Array, "n m"]:
    inner = distances.inner(U, V)
    return array_namespace(inner).clip(inner, min=-1.0, max=1.0)


def _weighted(weights: tuple[float, ...], terms: list[Array]) -> Array:
    total = weights[0] * terms[0]
    for c, term in zip(weights[1:], terms[1:], strict=True):
        total = total + c * term
    return total


def _coefficients(value: Any) -> tuple[float, ...]:
    items = sequence(value, "Zonal", "coefficients")
    result = tuple(finite(c, "Zonal", f"coefficients[{l}]") for l, c in enumerate(items))
    if min(result) < 0:
        raise NotPositive(
            "Zonal: coefficients must be zero or above, or the kernel is not positive "
            f"semi-definite on the sphere; got {min(result)!r}."
        )
    return result
