"""Eigenfunctions of the Laplacian on boxes and the disc, and Green's functions made of them.

−Δu = λu with u = 0 at the boundary (Dirichlet), no slope across it (Neumann), or whole periods.
"""

import abc
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import jn_zeros, jnp_zeros, jv

from bochner._core.arrays import array_namespace, dense, moved, to_numpy
from bochner._core.checks import (
    check_fields,
    counted,
    finite,
    nonnegative,
    optional,
    positive,
    unpacked,
    word,
)
from bochner._core.shapes import Array, Float
from bochner.errors import InvalidInput, InvalidType
from bochner.kernels.kernel import Kernel

CONDITIONS = ("dirichlet", "neumann", "periodic")

#: Columns of a box whose eigenfunctions are enumerated here.
MOST_COLUMNS = 3


class Modes(NamedTuple):
    """Eigenvalues of −Δ, rising, and the whole numbers that say which function each is of."""

    eigenvalues: Float[np.ndarray, " J"]
    numbers: np.ndarray  # (J, 2 or d)

    def first(self, count: int) -> "Modes":
        """Return those of the ``count`` least eigenvalues."""
        return Modes(self.eigenvalues[:count], self.numbers[:count])


class Domain(abc.ABC):
    """A place on which the Laplacian's eigenfunctions are known."""

    @property
    @abc.abstractmethod
    def n_inputs(self) -> int:
        """Columns d."""

    @abc.abstractmethod
    def modes(self, count: int, conditions: str) -> Modes:
        """Return the functions of the ``count`` least eigenvalues."""

    @abc.abstractmethod
    def functions(
        self, X: Float[np.ndarray, "n d"], conditions: str, numbers: np.ndarray
    ) -> Float[np.ndarray, "n J"]:
        """Return orthonormal eigenfunctions at rows; rows outside count as the nearest inside."""


@dataclass(frozen=True)
class Box(Domain):
    """An interval, a rectangle or a cuboid.

    Parameters
    ----------
    sides : d pairs (lower, upper), d from 1 to 3
        In the units of X.
    """

    sides: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        check_fields(self, sides=checked_box)
        if not 1 <= len(self.sides) <= MOST_COLUMNS:
            raise InvalidInput(
                f"Box: sides must be one to {MOST_COLUMNS} pairs (lower, upper); got "
                f"{len(self.sides)}."
            )

    @property
    def n_inputs(self) -> int:
        return len(self.sides)

    def modes(self, count: int, conditions: str) -> Modes:
        turned = half_turns(conditions, count)
        sums, numbers = np.zeros(1), np.zeros((1, 0), dtype=np.int64)
        for lower, upper in self.sides:
            column = np.square(math.pi * turned / (upper - lower))
            # Of ranks (i, k) there are (i + 1)(k + 1) that are no larger, so more are of no use.
            i, k = _ranks(len(sums), count)
            total = sums[i] + column[k]
            best = np.argsort(total, kind="stable")[:count]
            sums, numbers = total[best], np.column_stack([numbers[i[best]], k[best]])
        return Modes(sums, numbers)

    def functions(
        self, X: Float[np.ndarray, "n d"], conditions: str, numbers: np.ndarray
    ) -> Float[np.ndarray, "n J"]:
        Z = np.ones((len(X), len(numbers)))
        for (lower, upper), x, k in zip(self.sides, X.T, numbers.T, strict=True):
            unit = inside((x - lower) / (upper - lower), conditions)
            Z *= waves(int(k.max()) + 1, unit, upper - lower, conditions).T[:, k]
        return Z


def _ranks(m: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of ranks (i, k) with (i + 1)(k + 1) ≤ count and i < m."""
    counts = np.minimum(m, count // np.arange(1, count + 1))
    k = np.repeat(np.arange(count), counts)
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts), k


def checked_box(box: Any, who: str, name: str) -> tuple[tuple[float, float], ...]:
    """Return pairs (lower, upper), one a column, or refuse what is none."""
    pairs = unpacked(box)
    if not isinstance(pairs, list | tuple) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise InvalidInput(f"{who}: {name} must be a pair (lower, upper) a column; got {box!r}.")
    checked = tuple(
        (finite(a, who, f"{name}[{j}][0]"), finite(b, who, f"{name}[{j}][1]"))
        for j, (a, b) in enumerate(pairs)
    )
    if any(a >= b for a, b in checked):
        raise InvalidInput(
            f"{who}: {name} must have lower below upper in each column; got {box!r}."
        )
    return checked


@dataclass(frozen=True)
class Disc(Domain):
    """A disc in the plane: rows within a distance of its centre.

    Parameters
    ----------
    radius : float, default 1.0
        R, in the units of X.
    centre : pair of float, default (0, 0)

    Notes
    -----
    Eigenfunctions J_m(αr/R) cos mθ and J_m(αr/R) sin mθ, λ = (α/R)², with α a zero of the Bessel
    function J_m (Dirichlet) or of its slope (Neumann, and the constant, α = 0): Courant and
    Hilbert (1953), chapter V, section 5. Their squares have the integrals
    πR²/2 J_{m+1}(α)² and πR²/2 (1 − m²/α²) J_m(α)², twice that for m = 0.
    """

    radius: float = 1.0
    centre: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        check_fields(self, radius=positive, centre=_place)

    @property
    def n_inputs(self) -> int:
        return 2

    def modes(self, count: int, conditions: str) -> Modes:
        if conditions == "periodic":
            raise InvalidInput(
                'Disc: conditions must be "dirichlet" or "neumann", for a disc has no periods; '
                "got 'periodic'."
            )
        zeros, numbers = _bessel_zeros(count, conditions)
        return Modes(np.square(zeros / self.radius), numbers)

    def functions(
        self, X: Float[np.ndarray, "n d"], conditions: str, numbers: np.ndarray
    ) -> Float[np.ndarray, "n J"]:
        x, y = (X - self.centre).T / self.radius
        r, angle = np.minimum(np.hypot(x, y), 1.0), np.arctan2(y, x)
        orders, ranks, late = numbers.T
        Z = np.empty((len(X), len(numbers)))
        for m in np.unique(orders).tolist():
            which = np.flatnonzero(orders == m)
            different, of = np.unique(ranks[which], return_inverse=True)
            alpha = _zeros(m, int(ranks.max()) + 1, conditions)[different]
            square = _square(m, alpha, conditions) * self.radius**2
            along = jv(m, r[:, None] * alpha) / np.sqrt(square)
            turn = [np.cos(m * angle), np.sin(m * angle)]
            Z[:, which] = along[:, of] * np.stack(turn, axis=1)[:, late[which]]
        return Z


def _place(value: object, who: str, name: str) -> tuple[float, float]:
    plain = unpacked(value)
    if not isinstance(plain, list | tuple) or len(plain) != 2:
        raise InvalidInput(f"{who}: {name} must be a pair of numbers; got {value!r}.")
    return finite(plain[0], who, f"{name}[0]"), finite(plain[1], who, f"{name}[1]")


@lru_cache(maxsize=1024)
def _zeros(m: int, count: int, conditions: str) -> Float[np.ndarray, " c"]:
    """Return the first zeros of J_m, or of its slope with α = 0 first where m = 0."""
    if conditions == "dirichlet":
        return np.asarray(jn_zeros(m, count))
    zeros = np.asarray(jnp_zeros(m, count))
    return np.concatenate([[0.0], zeros[:-1]]) if m == 0 else zeros


@lru_cache(maxsize=64)
def _bessel_zeros(count: int, conditions: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the least zeros of all orders, and (m, which zero, whether the sine) of each.

    About α²/4 ± α/2 functions lie below α (Weyl), and no zero of order m below m, but for the
    constant.
    """
    most = 2 * math.sqrt(count) + 8
    found = [
        (float(alpha), m, i, late)
        for m in range(math.ceil(most) + 1)
        for i, alpha in enumerate(_zeros(m, int(most / math.pi) + 2, conditions))
        if alpha <= most
        for late in range(1 if m == 0 else 2)
    ]
    found = sorted(found)[:count]
    return np.array([f[0] for f in found]), np.array([f[1:] for f in found], dtype=np.int64)


def _square(m: int, alpha: Float[np.ndarray, " c"], conditions: str) -> Float[np.ndarray, " c"]:
    """Return ∫ J_m(αr)² cos²(mθ) over the unit disc."""
    half = math.pi * (1.0 if m == 0 else 0.5)
    if conditions == "dirichlet":
        return half * jv(m + 1, alpha) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(alpha > 0, 1 - np.square(m / alpha), 1.0) if m else np.ones(len(alpha))
    return half * rest * jv(m, alpha) ** 2


# --- Waves along one side of a box ---------------------------------------------------------------


def half_turns(conditions: str, m: int) -> Float[np.ndarray, " m"]:
    """Return half turns across a box of the first m functions of a column: 1, 2, 3, ...

    From zero on with level faces; 0, 2, 2, 4, 4, ... where periods are whole, a cosine and a sine.
    """
    i = np.arange(m)
    return {"dirichlet": i + 1.0, "neumann": i + 0.0, "periodic": 2.0 * ((i + 1) // 2)}[conditions]


def inside(unit: Float[Array, "..."], conditions: str) -> Float[Array, "..."]:
    """Return places from 0 to 1 across a box: the nearest one, or one some periods away."""
    xp = array_namespace(unit)
    return unit - xp.floor(unit) if conditions == "periodic" else xp.clip(unit, 0.0, 1.0)


def waves(
    m: int, u: Float[Array, " n"], length: float, conditions: str, shift: float = 0.0
) -> Float[Array, "m n"]:
    """Return the first m functions of a column at u, from 0 to 1 across a box of this length.

    With ``shift`` ½ sines are those of Brownian motion, free at the far face.
    """
    xp, i = array_namespace(u), np.arange(1, m + 1)
    column = lambda values: moved(np.ascontiguousarray(values)[:, None], like=u)
    height = float(2 / length) ** 0.5
    if conditions == "dirichlet":
        return height * xp.sin(column(math.pi * (i - shift)) * u)
    # All are cosines of an angle; a sine is one a quarter of a turn late.
    late = np.where((conditions == "periodic") & (i % 2 == 1), 0.5 * math.pi, 0.0)
    heights = column(np.where(i == 1, length**-0.5, height))
    angles = column(half_turns(conditions, m) * math.pi) * u
    return heights * xp.cos(angles - column(np.where(i == 1, 0.0, late)))


# --- Green's functions ---------------------------------------------------------------------------


@dataclass(frozen=True)
class GreenFunction(Kernel):
    """k(x, y) = Σ_j (κ² + λ_j)^(−s) u_j(x) u_j(y): the Green's function of (κ² − Δ)^s.

    Functions of its space solve (κ² − Δ)^(s/2) f = white noise on the domain, with its boundary
    conditions: Matérn's kernels there, of smoothness s − d/2 and lengthscale √(2s − d)/κ, and for
    κ = 0 the kernels of thin plates.

    Parameters
    ----------
    domain : Box or Disc
        On an interval, a rectangle, a cuboid or a disc.
    conditions : {"dirichlet", "neumann", "periodic"}, default "dirichlet"
        Zero at the boundary, level there, or of whole periods (boxes only).
    kappa : float, default 0.0
        κ, in one over the units of X; above zero unless functions are zero at the boundary.
    power : int, optional
        s. Default: the least for which k(x, x) is finite, the first integer above d/2.
    terms : int, default 1024
        Eigenfunctions of the sum, those of the least eigenvalues. Of one column and s = 1 the sum
        without end is known in closed form, and taken:

            dirichlet: sinh κa sinh κb/(κ sinh κL),  a = min(x, y) − lower, b = upper − max(x, y),
            neumann:   cosh κa cosh κb/(κ sinh κL),
            periodic:  cosh κ(L/2 − |x − y|)/(2κ sinh(κL/2)),

        and ab/L for κ = 0. Others leave out of k(x, x) on average Σ_{j > terms} (κ² + λ_j)^(−s)
        over the size of the domain; in the plane about 1/(4π(s − 1)) times (κ² + λ_terms)^(1−s).

    Notes
    -----
    Rows outside count as the nearest place of the boundary. :class:`LaplacianEigenfunctions` has
    its eigenfunctions as features: exact at D = terms, below the kernel for fewer. Cost of k(X, Y):
    O((n + m) terms + n m terms); a value of a Bessel function is about 0.3 µs.
    Sources: Courant and Hilbert (1953), chapter V, section 14; Lindgren, Rue and Lindström (2011),
    eq. 2, for Matérn's kernels as such solutions.

    Examples
    --------
    >>> from bochner.kernels import Box, GreenFunction
    >>> GreenFunction(Box([(0.0, 1.0)]))([[0.25]], [[0.5]])
    array([[0.125]])
    """

    domain: Domain
    conditions: str = "dirichlet"
    kappa: float = 0.0
    power: int | None = None
    terms: int = 1024

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise InvalidType(
                f"GreenFunction: domain must be a Box or a Disc; got {self.domain!r}. Pass "
                "Box([(0, 1), (0, 2)]) or Disc(radius=2.0)."
            )
        check_fields(self, conditions=word(*CONDITIONS), kappa=nonnegative, terms=counted)
        check_fields(self, power=optional(counted))
        self.domain.modes(1, self.conditions)  # or refuse what the domain has not
        if self.kappa == 0 and self.conditions != "dirichlet":
            raise InvalidInput(
                "GreenFunction: kappa must be above zero where functions are not zero at the "
                f"boundary, for constants have the eigenvalue 0; got conditions={self.conditions!r}"
                ". Pass kappa=..."
            )
        if 2 * self.exponent <= self.domain.n_inputs:
            raise InvalidInput(
                f"GreenFunction: power must be above half the {self.domain.n_inputs} columns of "
                f"the domain, or k(x, x) is infinite; got {self.power}. Leave it out."
            )

    @property
    def exponent(self) -> int:
        """The power s."""
        return self.power or self.domain.n_inputs // 2 + 1

    def weights(self, eigenvalues: Float[np.ndarray, " J"]) -> Float[np.ndarray, " J"]:
        """Return (κ² + λ)^(−s)."""
        return (self.kappa**2 + eigenvalues) ** -float(self.exponent)

    def features(self, X: Float[np.ndarray, "n d"], count: int) -> Float[np.ndarray, "n J"]:
        """Return the first of the functions, times the roots of their weights."""
        modes = _modes(self.domain, self.terms, self.conditions).first(count)
        Z = self.domain.functions(X, self.conditions, modes.numbers)
        return Z * np.sqrt(self.weights(modes.eigenvalues))

    @property
    def closed(self) -> Box | None:
        """The interval, where the sum without end is known."""
        one = isinstance(self.domain, Box) and self.domain.n_inputs == self.exponent == 1
        return self.domain if one and isinstance(self.domain, Box) else None

    def evaluate(self, X: Float[Array, "n d"], Y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        left, right = (_rows(A, self.domain) for A in (X, Y))
        if self.closed:
            return moved(self._term(self.closed, left, right.T), like=X)
        Z = self.features(left, self.terms)
        return moved(Z @ (Z if Y is X else self.features(right, self.terms)).T, like=X)

    def diagonal(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        rows = _rows(X, self.domain)
        if self.closed:
            return moved(self._term(self.closed, rows, rows)[:, 0], like=X)
        return moved(np.square(self.features(rows, self.terms)).sum(axis=1), like=X)

    def _term(self, box: Box, x: Array, y: Array) -> Array:
        """Return the closed form elementwise; large κ as exponentials that do not overflow."""
        (lower, upper), kappa = box.sides[0], self.kappa
        length = upper - lower
        x, y = (length * inside((t - lower) / length, self.conditions) for t in (x, y))
        if self.conditions == "periodic":
            gap = np.abs(x - y)
            both = np.exp(-kappa * gap) + np.exp(-kappa * (length - gap))
            return both / (-2 * kappa * np.expm1(-kappa * length))
        a, b = np.minimum(x, y), length - np.maximum(x, y)
        if kappa == 0:
            return a * b / length
        sign = -1.0 if self.conditions == "dirichlet" else 1.0
        near = (1 + sign * np.exp(-2 * kappa * a)) * (1 + sign * np.exp(-2 * kappa * b))
        return np.exp(-kappa * np.abs(x - y)) * near / (-2 * kappa * np.expm1(-2 * kappa * length))


@lru_cache(maxsize=16)
def _modes(domain: Domain, count: int, conditions: str) -> Modes:
    return domain.modes(count, conditions)


def _rows(X: Float[Array, "n d"], domain: Domain) -> Float[np.ndarray, "n d"]:
    rows = to_numpy(dense(X)).astype(np.float64)
    if rows.shape[1] != domain.n_inputs:
        raise InvalidInput(
            f"GreenFunction: X must have the {domain.n_inputs} columns of the domain; got "
            f"{rows.shape[1]}. Pass Columns(GreenFunction(...), columns) for some of several."
        )
    return rows
