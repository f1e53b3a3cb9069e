"""Kernels made of functions of one column, or of eigenfunctions of the Laplacian on boxes.

k(x, y) = Π_j Σ_i f_i(x_j) f_i(y_j) is a kernel for any finite set of functions f_i of one column.
Its exact features are the products Π_j f_{i_j}(x_j).
"""

import abc
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Annotated, Any

import numpy as np

from bochner._core import checks
from bochner._core.arrays import adapt, array_namespace, dense, to_numpy
from bochner._core.shapes import Array, Float, Others, Pairs, Rows
from bochner.errors import InvalidInput
from bochner.kernels import distances
from bochner.kernels.kernel import Kernel
from bochner.kernels.series import no_negative, orthonormals


def _weights(value: object, caller: str, name: str) -> tuple[float, ...]:
    """Return the weights as a tuple; refuse negative weights, and weights that are all zero."""
    weights = no_negative(value, caller, name)
    if not any(weights):
        raise InvalidInput(f"{caller}: {name} must not all be zero; got {value!r}.")
    return weights


Weights = Annotated[tuple[float, ...], _weights]
Conditions = Annotated[str, checks.word("dirichlet", "neumann", "periodic")]


class Basis(Kernel):
    """A product over columns of kernels with finitely many features each."""

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[float, ...]:
        """Mean square of each 1-D function over its natural range."""

    @abc.abstractmethod
    def functions(self, X: Rows) -> tuple[Rows, ...]:
        """Return each 1-D function of every column of X (n, d), in the order of ``sizes``."""

    def exact(self, d: int) -> int:
        return int(np.count_nonzero(self.sizes)) ** d

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        xp = array_namespace(X, Y)
        left = xp.stack(self.functions(dense(X)), axis=0)
        right = left if Y is X else xp.stack(self.functions(dense(Y)), axis=0)
        columns = ((left[:, :, j], right[:, :, j]) for j in range(X.shape[1]))
        return reduce(operator.mul, (xp.permute_dims(u, (1, 0)) @ v for u, v in columns))

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        values = array_namespace(X).stack(self.functions(dense(X)), axis=0)
        return array_namespace(X).prod(array_namespace(X).sum(values * values, axis=0), axis=1)


@dataclass(frozen=True)
class FourierSeries(Basis):
    """k(x, y) = Π_j Σ_k w_k cos(2πk(x_j − y_j)/p): a periodic kernel with given weights.

    Its exact features are products of √w_0, √w_k cos(2πk x_j/p) and √w_k sin(2πk x_j/p).

    Parameters
    ----------
    weights : sequence of float
        w_0, w_1, …, nonnegative: the prior variance of each harmonic.
    period : float, default 1.0
        p > 0, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import FourierSeries
    >>> FourierSeries((0.6, 0.4), period=24.0)([[0.0]], [[12.0], [24.0]]).round(2)
    array([[0.2, 1. ]])
    """

    weights: Weights
    period: checks.Positive = 1.0

    @property
    def sizes(self) -> tuple[float, ...]:
        waves = (0.5 * w for w in self.weights[1:] for _ in range(2))
        return self.weights[0], *waves

    def functions(self, X: Rows) -> tuple[Rows, ...]:
        xp = array_namespace(X)
        turns = X / self.period
        angle = 2 * math.pi * (turns - xp.round(turns))
        waves = (
            w**0.5 * wave(k * angle)
            for k, w in enumerate(self.weights[1:], start=1)
            for wave in (xp.cos, xp.sin)
        )
        return self.weights[0] ** 0.5 * xp.ones_like(X), *waves


@dataclass(frozen=True)
class Polynomials(Basis):
    """k(x, y) = Π_j Σ_k w_k p_k(x_j) p_k(y_j), p_k Legendre's polynomials on an interval.

    The p_k = √(2k + 1) P_k are orthonormal for the uniform law on [lower, upper]. Beyond the
    interval p_k grows like the k-th power.

    Parameters
    ----------
    weights : sequence of float
        w_0, w_1, …, nonnegative: the prior variance of each degree.
    lower, upper : float, default −1 and 1
        The interval, in the units of X.

    Examples
    --------
    >>> from bochner.kernels import Polynomials
    >>> Polynomials((1.0, 0.5), lower=0.0, upper=2.0)([[2.0]], [[0.0], [1.0], [2.0]]).round(2)
    array([[-0.5,  1. ,  2.5]])
    """

    weights: Weights
    lower: Annotated[float, checks.finite] = -1.0
    upper: Annotated[float, checks.finite] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lower >= self.upper:
            raise InvalidInput(
                f"Polynomials: lower must be below upper; got {self.lower} and {self.upper}."
            )

    @property
    def sizes(self) -> tuple[float, ...]:
        return self.weights

    def functions(self, X: Rows) -> tuple[Rows, ...]:
        t = (2 * X - (self.lower + self.upper)) / (self.upper - self.lower)
        legendre = orthonormals(len(self.weights) - 1, 3, t)
        return tuple(w**0.5 * p for w, p in zip(self.weights, legendre, strict=True))


# --- Eigenfunctions of the Laplacian on boxes, Green's functions made of them, Brownian motion ----
#
# −Δu = λu with u = 0 at the boundary (Dirichlet), ∂u/∂n = 0 there (Neumann), or periodic.


def best_products(
    logs: Sequence[Float[Array, " m_j"]], width: int
) -> tuple[Array, Float[Array, " D"]]:
    """Return the ``width`` multi-indices k of largest Σ_j logs[j][k_j], and these sums."""
    # Each logs[j] decreases, so the best products of j + 1 columns extend the best products of j
    # columns. The first D' products are the best D', even with ties. O(d D log² D).
    products, sums = np.zeros((1, len(logs)), dtype=np.int32), np.zeros(1)
    for j, column in enumerate(logs):
        if len(sums) == width and (len(column) == 1 or column[1] - column[0] < sums[-1] - sums[0]):
            sums = sums + column[0]  # only the first function of this column is among them
            continue
        # (i + 1)(k + 1) pairs are at least as good as ranks (i, k), so few pairs are compared.
        counts = np.minimum(len(sums), width // np.arange(1, min(len(column), width) + 1))
        k = np.repeat(np.arange(len(counts)), counts)
        i = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        total = sums[i] + column[k]
        best = np.argsort(-total, kind="stable")[:width]
        products, sums = products[i[best]], total[best]
        products[:, j] = k[best]
    return products, sums


def as_box(box: Any, caller: str, name: str) -> tuple[tuple[float, float], ...]:
    """Return the box as a pair (lower, upper) per column; refuse other values."""
    pairs: Any = checks.sequence_of(checks.sequence_of(checks.finite))(box, caller, name)
    if any(len(pair) != 2 or pair[0] >= pair[1] for pair in pairs):
        raise InvalidInput(
            f"{caller}: {name} must have lower below upper, a pair for each column; got {box!r}."
        )
    return pairs


@lru_cache(maxsize=16)
def modes(
    box: tuple[tuple[float, float], ...], count: int, conditions: str
) -> tuple[np.ndarray, Float[np.ndarray, " J"]]:
    """Return the J = count lowest eigenfunctions of −Δ: index per column, (J, d); eigenvalues."""
    turns = half_turns(conditions, count)
    logs = [-np.square(math.pi * turns / (upper - lower)) for lower, upper in box]
    numbers, sums = best_products(logs, count)
    return numbers, -sums


def half_turns(conditions: str, m: int) -> Float[np.ndarray, " m"]:
    """Return the number of half waves across the box of the first m functions of a column."""
    i = np.arange(m)
    return {"dirichlet": i + 1.0, "neumann": i + 0.0, "periodic": 2.0 * ((i + 1) // 2)}[conditions]


def into_unit(unit: Float[Array, "..."], conditions: str) -> Float[Array, "..."]:
    """Return positions clipped to [0, 1], or modulo 1 if ``conditions`` is "periodic"."""
    xp = array_namespace(unit)
    return unit - xp.floor(unit) if conditions == "periodic" else xp.clip(unit, 0.0, 1.0)


def waves(
    m: int, u: Float[Array, " n"], length: float, boundary: tuple[str, float], slope: bool = False
) -> Float[Array, "m n"]:
    """Return m eigenfunctions on [0, length] at length · u, or their derivatives.

    ``boundary`` has the boundary conditions and a shift: ½ for Brownian motion, 0 otherwise.
    """
    (conditions, shift), xp, i = boundary, array_namespace(u), np.arange(1, m + 1)
    sines = conditions == "dirichlet"
    column = lambda values: adapt(np.ascontiguousarray(values)[:, None], like=u)
    # Neumann and periodic functions are cosines; a sine is a cosine shifted by π/2.
    phases = np.where((conditions == "periodic") & (i % 2 == 1) & (i > 1), 0.5 * math.pi, 0.0)
    rates = math.pi * (i - shift if sines else half_turns(conditions, m))
    heights = np.where(sines | (i > 1), float(2 / length) ** 0.5, length**-0.5)
    if slope:
        heights = heights * rates / (length if sines else -length)
    wave = xp.cos if sines == slope else xp.sin
    return column(heights) * wave(column(rates) * u - column(phases))


@dataclass(frozen=True)
class Brownian(Kernel):
    """k(x, y) = Π_j min(x_j, y_j) on [0, length]^d: Brownian motion, and the Brownian sheet.

    Product over columns of the Green's function of −f″, f(0) = f′(length) = 0; rows are clipped.

    Parameters
    ----------
    length : float, default 1.0
        In the units of X. :class:`LaplacianEigenfunctions` uses the box [0, length]^d.
    bridge : bool, default False
        Whether f(length) = 0 (Brownian bridge): min(x_j, y_j) − x_j y_j/length.

    See Also
    --------
    GreenFunction : Other operators and boundary conditions.

    Examples
    --------
    >>> from bochner.kernels import Brownian
    >>> Brownian(length=2.0)([[1.0]], [[0.5], [1.0], [2.0]])
    array([[0.5, 1. , 1. ]])
    """

    length: checks.Positive = 1.0
    bridge: checks.Switch = False

    def _term(self, x: Array, y: Array) -> Array:
        smaller = array_namespace(x, y).minimum(x, y)
        return smaller - x * y / self.length if self.bridge else smaller

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        xp = array_namespace(X, Y)
        X, Y = (xp.clip(dense(A), 0.0, self.length) for A in (X, Y))
        return distances.combine_over_columns(self._term, operator.mul, X, Y)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        xp = array_namespace(X)
        t = xp.clip(dense(X), 0.0, self.length)
        return xp.prod(self._term(t, t), axis=1)


@dataclass(frozen=True)
class GreenFunction(Kernel):
    """k(x, y) = Σ_j (κ² + λ_j)^(−s) u_j(x) u_j(y): the Green's function of (κ² − Δ)^s.

    λ_j and u_j are the eigenvalues and eigenfunctions of −Δ on the box with boundary conditions. k
    is the covariance of the solution f of (κ² − Δ)^(s/2) f = white noise: a Matérn kernel on the
    box, of smoothness s − d/2 and lengthscale √(2s − d)/κ; for κ = 0 a thin-plate kernel.

    Parameters
    ----------
    box : d pairs (lower, upper), d from 1 to 3
        An interval, a rectangle or a cuboid, in the units of X.
    conditions : {"dirichlet", "neumann", "periodic"}, default "dirichlet"
        f = 0 at the boundary, ∂f/∂n = 0 at the boundary, or f periodic.
    kappa : float, default 0.0
        κ, in 1/(units of X); must be positive unless ``conditions="dirichlet"``.
    power : float, optional
        s > d/2, so that k(x, x) is finite. Default: the smallest integer above d/2.
    terms : int, default 1024
        Number of eigenfunctions in the sum, by increasing eigenvalue. For one column and s = 1 the
        infinite sum is used instead, in closed form: for "dirichlet", sinh κa sinh κb/(κ sinh κL)
        with a = min(x, y) − lower, b = upper − max(x, y), L = upper − lower.

    Notes
    -----
    A row outside the box is replaced by the nearest point of it, or shifted by whole periods.
    :class:`LaplacianEigenfunctions` has the eigenfunctions as features: exact at D = terms.
    k(X, Y) takes O(n m terms) time.
    Sources: Courant and Hilbert (1953), chapter V, section 14; Lindgren, Rue and Lindström (2011),
    eq. 2, for the relation to Matérn kernels.

    Examples
    --------
    >>> from bochner.kernels import GreenFunction
    >>> GreenFunction([(0.0, 1.0)])([[0.25]], [[0.5]])
    array([[0.125]])
    """

    box: Annotated[tuple[tuple[float, float], ...], as_box]
    conditions: Conditions = "dirichlet"
    kappa: Annotated[float, checks.nonnegative] = 0.0
    power: checks.MaybePositive = None
    terms: checks.Counted = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.box) > 3:
            raise InvalidInput(
                f"GreenFunction: box must be one to 3 pairs (lower, upper); got {len(self.box)}."
            )
        if self.kappa == 0 and self.conditions != "dirichlet":
            raise InvalidInput(
                "GreenFunction: kappa must be positive unless conditions is 'dirichlet'; "
                f"got conditions={self.conditions!r}. Pass kappa=..."
            )
        if 2 * self.exponent <= len(self.box):
            raise InvalidInput(
                f"GreenFunction: power must be above half the {len(self.box)} columns of "
                f"the box, or k(x, x) is infinite; got {self.power}. Leave it out."
            )

    @property
    def exponent(self) -> float:
        """The power s."""
        return self.power or len(self.box) // 2 + 1

    def weights(self, eigenvalues: Float[np.ndarray, " J"]) -> Float[np.ndarray, " J"]:
        """Return (κ² + λ)^(−s)."""
        return (self.kappa**2 + eigenvalues) ** -float(self.exponent)

    def features(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n J"]:
        """Return the eigenfunctions times the square roots of their weights, shape (n, J)."""
        numbers, eigenvalues = modes(self.box, self.terms, self.conditions)
        Z = np.sqrt(self.weights(eigenvalues)) * np.ones((len(X), 1))
        for (lower, upper), x, k in zip(self.box, X.T, numbers.T, strict=True):
            unit = into_unit((x - lower) / (upper - lower), self.conditions)
            Z *= waves(int(k.max()) + 1, unit, upper - lower, (self.conditions, 0.0)).T[:, k]
        return Z

    @property
    def has_closed_form(self) -> bool:
        """Whether the infinite sum is known in closed form."""
        return len(self.box) == self.exponent == 1

    def evaluate(self, X: Rows, Y: Others) -> Pairs:
        left, right = map(self._rows, (X, Y))
        if self.has_closed_form:
            return adapt(self._term(left, right.T), like=X)
        Z = self.features(left)
        return adapt(Z @ (Z if Y is X else self.features(right)).T, like=X)

    def diagonal(self, X: Rows) -> Float[Array, " n"]:
        rows = self._rows(X)
        if self.has_closed_form:
            return adapt(self._term(rows, rows)[:, 0], like=X)
        return adapt(np.square(self.features(rows)).sum(axis=1), like=X)

    def _term(self, x: Array, y: Array) -> Array:
        """Return the closed form elementwise, by exponentials that do not overflow for large κ."""
        (lower, upper), kappa = self.box[0], self.kappa
        length = upper - lower
        x, y = (length * into_unit((t - lower) / length, self.conditions) for t in (x, y))
        if self.conditions == "periodic":
            gap = np.abs(x - y)
            decay = np.exp(-kappa * gap) + np.exp(-kappa * (length - gap))
            return decay / (-2 * kappa * np.expm1(-kappa * length))
        a, b = np.minimum(x, y), length - np.maximum(x, y)
        if kappa == 0:
            return a * b / length
        sign = -1.0 if self.conditions == "dirichlet" else 1.0
        ends = (1 + sign * np.exp(-2 * kappa * a)) * (1 + sign * np.exp(-2 * kappa * b))
        return np.exp(-kappa * np.abs(x - y)) * ends / (-2 * kappa * np.expm1(-2 * kappa * length))

    def _rows(self, X: Rows) -> Float[np.ndarray, "n d"]:
        rows = to_numpy(dense(X)).astype(np.float64)
        if rows.shape[1] != len(self.box):
            raise InvalidInput(
                f"GreenFunction: X must have the {len(self.box)} columns of the box; got "
                f"{rows.shape[1]}. Pass Columns(GreenFunction(...), columns) for other tables."
            )
        return rows
