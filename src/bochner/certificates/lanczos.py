"""ε of all rows, matrix-free: Lanczos on the kernel, preconditioned by the features.

With P = K̂ + λI the eigenvalues of B = P^(-½)(K + λI)P^(-½) run from ν₁ to ν_n, and

    ε = max(1/ν₁ − 1, 1 − 1/ν_n).

P^(-½) costs O(nD) by the D × D Gram matrix of the features; K is never stored, only multiplied, a
tile at a time. Ritz values lie inside the spectrum. How far inside, at most, is known for a random
start (Kuczyński and Woźniakowski (1992), theorem 4.2): after k steps

    P(ν_n − θ_max > η (ν_n − ν₁)) ≤ 1.648 √n exp(−√η (2k − 1)),

and the same for the other end, since Lanczos does not notice shifts and signs.
"""

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal

from bochner._core.arrays import as_matrix, to_numpy
from bochner._core.blas import eigh
from bochner._core.shapes import Array, Float
from bochner.certificates.pencil import EPS
from bochner.certificates.sample import double, finite_matrix
from bochner.errors import InvalidInput, NotPositive

#: Rows and columns of a tile of K: 8 MB.
TILE = 1024

#: Ritz values may miss the ends by this share of the spectrum's length, at the confidence asked.
SHARE = 0.01

#: Rounding in E, in units of eps ‖K‖: smaller distances are zero as far as float64 knows.
NOISE = 16.0


class AllRows(NamedTuple):
    """What was measured on all rows."""

    epsilon: float
    interval: tuple[float, float]
    frobenius: float
    operator_norm: float
    entrywise: float
    alpha: float


class Rows(NamedTuple):
    """All rows in float64, their features, and the kernel."""

    X: Float[Array, "n d"]
    Z: Float[np.ndarray, "n D"]
    kernel: Any

    def tiles(self) -> Iterator[tuple[slice, slice, Float[np.ndarray, "a b"]]]:
        """Give the tiles of K on and above the diagonal."""
        n = len(self.Z)
        for i in range(0, n, TILE):
            rows = slice(i, min(i + TILE, n))
            for j in range(i, n, TILE):
                columns = slice(j, min(j + TILE, n))
                K = to_numpy(self.kernel(self.X[rows], self.X[columns]))
                yield rows, columns, finite_matrix(K, rows.stop - i, "kernel(X)")

    def product(self, V: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Return K V."""
        W = np.zeros(V.shape)
        for rows, columns, K in self.tiles():
            W[rows] += K @ V[columns]
            if rows != columns:
                W[columns] += K.T @ V[rows]
        return W


class Whitened(NamedTuple):
    """P^(-½) of P = Z Zᵀ + λI, from the eigendecomposition Zᵀ Z = V diag(g) Vᵀ."""

    Z: Float[np.ndarray, "n D"]
    V: Float[np.ndarray, "D D"]
    factors: Float[np.ndarray, " D"]
    penalty: float

    @classmethod
    def of(cls, Z: Float[np.ndarray, "n D"], gram: tuple[Array, Array], penalty: float) -> Any:
        """Prepare; ``gram`` is (g, V)."""
        g = np.maximum(gram[0], 0.0)
        root, shifted = math.sqrt(penalty), np.sqrt(g + penalty)
        # ((g + λ)^(-½) − λ^(-½))/g without the difference, which cancels where g is small.
        return cls(Z, gram[1], -1 / (root * shifted * (root + shifted)), penalty)

    def __call__(self, v: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return P^(-½) v."""
        inner = self.V @ (self.factors * (self.V.T @ (self.Z.T @ v)))
        return v / math.sqrt(self.penalty) + self.Z @ inner


class Ends(NamedTuple):
    """Ritz values at both ends, and how far the spectrum may reach beyond them."""

    low: float
    high: float
    margin: float


def steps_for(n: int, confidence: float, share: float = SHARE) -> int:
    """Return the steps after which both ends are within ``share`` at this confidence."""
    needed = math.log(1.648 * math.sqrt(n) * 2 / (1 - confidence)) / math.sqrt(share)
    return max(2, math.ceil((needed + 1) / 2))


Product = Callable[[list[int], list[Float[np.ndarray, " n"]]], list[Float[np.ndarray, " n"]]]

Walk = Generator[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Ends]


def walk(n: int, steps: int, share: float, rng: np.random.Generator) -> Walk:
    """Give vectors to be multiplied by a symmetric matrix, take the products, return its ends.

    Lanczos from a random start; all vectors are kept orthogonal. The margin is zero where they
    span all that the start can reach, which has almost surely both ends in it.
    """
    start = rng.standard_normal(n)
    Q = [start / np.linalg.norm(start)]
    diagonal, off = [], []
    for k in range(min(steps, n)):
        w = yield Q[k]
        diagonal.append(float(Q[k] @ w))
        basis = np.array(Q)
        for _ in range(2):  # twice is enough (Kahan and Parlett)
            w = w - basis.T @ (basis @ w)
        off.append(float(np.linalg.norm(w)))
        if off[k] <= 1e-13 * max(map(abs, diagonal)):
            break
        Q.append(w / off[k])
    done = len(diagonal)
    values = eigh_tridiagonal(np.array(diagonal), np.array(off[: done - 1]), eigvals_only=True)
    low, high = float(values[0]), float(values[-1])
    whole = len(Q) == done or done == n
    margin = 0.0 if whole else share / (1 - 2 * share) * (high - low)
    return Ends(low, high, margin)


def together(walks: list[Walk], product: Product) -> list[Ends]:
    """Return the ends of several matrices, whose products are asked for together.

    ``product`` takes which of them are asked, and a vector for each, and returns the products.
    """
    found: list[Ends | None] = [None] * len(walks)
    asked = {i: next(w) for i, w in enumerate(walks)}
    while asked:
        products = product(list(asked), list(asked.values()))
        for i, w in zip(list(asked), products, strict=True):
            try:
                asked[i] = walks[i].send(w)
            except StopIteration as stopped:
                found[i] = stopped.value
                del asked[i]
    return [each for each in found if each is not None]


def ends(product: Any, n: int, steps: int, share: float, rng: np.random.Generator) -> Ends:
    """Return the ends of the spectrum of one symmetric matrix, ``product`` of a vector by it."""
    return together([walk(n, steps, share, rng)], lambda _, vs: [product(v) for v in vs])[0]


def operator_ratio(
    K: Float[np.ndarray, "m m"], E: Float[np.ndarray, "m m"], rng: np.random.Generator
) -> float:
    """Return ‖E‖/‖K‖ of matrices at hand, to about a percent."""
    steps = steps_for(len(K), 0.95)
    norms = [_norm(ends(lambda v, A=A: A @ v, len(K), steps, SHARE, rng)) for A in (E, K)]
    return _ratio(*norms)


def _norm(found: Ends) -> float:
    return max(abs(found.low), abs(found.high))


def _ratio(error: float, size: float) -> float:
    return error / size if size else (0.0 if error == 0 else math.inf)


def measure(
    phi: Any,
    X: Float[Array, "n d"],
    kernel: Any,
    alpha: float,
    confidence: float,
    rng: np.random.Generator,
) -> AllRows:
    """Measure every row: ε and norms by Lanczos, other errors tile by tile."""
    X = as_matrix(X, "certify")
    Z = finite_matrix(to_numpy(phi(X)), X.shape[0], "phi(X)")
    rows = Rows(double(X), Z, kernel)
    gram = eigh(Z.T @ Z, check_finite=False)
    n, norm = len(Z), float(gram[0][-1])
    total, squares, largest = _errors(rows)
    penalty = max(alpha, n * EPS * norm)
    whitened, error, size = _walked(rows, gram, penalty, confidence, rng)
    noise = min(0.5, max(NOISE * EPS * norm / penalty, EPS**2))
    inner = _distance(whitened.low, whitened.high)
    outer = _distance(whitened.low - whitened.margin, whitened.high + whitened.margin)
    outer = max(inner, min(outer, math.sqrt(total) / penalty))  # ‖E‖/λ holds whatever K is
    low, high = (0.0 if e <= noise else e for e in (inner, outer))
    return AllRows(
        epsilon=low,
        interval=(low, high),
        frobenius=_ratio(math.sqrt(total), math.sqrt(squares)),
        operator_norm=_ratio(_norm(error), _norm(size)),
        entrywise=largest,
        alpha=penalty,
    )


def _walked(
    rows: Rows,
    gram: tuple[Array, Array],
    penalty: float,
    confidence: float,
    rng: np.random.Generator,
) -> list[Ends]:
    """Return the ends of B, E and K; a tile of K is made once a step for all three."""
    root, n = Whitened.of(rows.Z, gram, penalty), len(rows.Z)

    def product(asked: list[int], vectors: list[Array]) -> list[Array]:
        inner = [root(v) if i == 0 else v for i, v in zip(asked, vectors, strict=True)]
        images = rows.product(np.stack(inner, axis=1)).T
        return [
            root(w + penalty * u) if i == 0 else rows.Z @ (rows.Z.T @ u) - w if i == 1 else w
            for i, u, w in zip(asked, inner, images, strict=True)
        ]

    steps = steps_for(n, confidence)
    found = together([walk(n, steps, SHARE, rng) for _ in range(3)], product)
    if found[0].low <= 0:
        raise NotPositive(
            "certify: the kernel matrix must be positive semi-definite; with alpha added it has "
            f"an eigenvalue of about {found[0].low * penalty:.3g} or less. Check the kernel."
        )
    return found


def _distance(low: float, high: float) -> float:
    return math.inf if low <= 0 else max(1 / low - 1, 1 - 1 / high, 0.0)


def _errors(rows: Rows) -> tuple[float, float, float]:
    """‖E‖_F², ‖K‖_F² and the largest |E_ij|."""
    total = squares = largest = 0.0
    for at, across, K in rows.tiles():
        E = rows.Z[at] @ rows.Z[across].T - K
        times = 1 if at == across else 2
        total += times * float(np.vdot(E, E))
        squares += times * float(np.vdot(K, K))
        largest = max(largest, float(np.abs(E).max()))
    return total, squares, largest


def refuse_part(n_rows: int | None, n: int) -> None:
    """Refuse to speak for more rows than there are."""
    if n_rows is not None and n_rows != n:
        raise InvalidInput(
            f'certify: how="lanczos" measures every row and speaks for no others, so n_rows must '
            f'be those of X, {n}; got {n_rows!r}. Leave n_rows out, or use how="sample".'
        )
