"""What a fit to all rows will find, foretold from a sample of them.

On m sampled rows the features are fitted at their own best penalty, and again on half of the rows.
With D features the error of prediction falls towards its limit as 1/n, so that

    e²(n) ≈ e²(m) − (e²(m/2) − e²(m)) (1 − m/n).

Beyond the widths that are fitted the gain of each doubling is carried on, see :func:`wider`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bochner._core.blas import eigh
from bochner._core.shapes import Array, Float
from bochner._core.sizes import block_rows
from bochner.features.map import FeatureMap
from bochner.kernels import Kernel
from bochner.solvers.cg import FeaturePreconditioner, System, solve_system
from bochner.solvers.ridge.eigen import FLOAT32_FLOOR, decompose, penalties
from bochner.solvers.ridge.leave_one_out import leave_one_out
from bochner.sums.moments import Accumulator, Moments

#: Rows whose leave-one-out errors are looked at, and that conjugate gradients are tried on.
LOOK_ROWS, TRIED_ROWS = 2048, 4096

#: Part of a squared error that an extrapolation leaves at least.
LEAST = 0.25

#: Largest part of the gain of one doubling of the width that the next one has.
SLOWEST = 0.5

#: Bound on predictions that the exact fit stops at.
TOLERANCE = 1e-6


class Rows(NamedTuple):
    """Sampled rows in random order: X (m, d), y (m, t), w (m,)."""

    X: Array
    y: Float[Array, "m t"]
    w: Float[Array, " m"]


@dataclass(frozen=True)
class Foretold:
    """What is expected of a fit.

    Attributes
    ----------
    error : float
        Root mean squared leave-one-out error of all n rows; several targets: of the pooled.
    alpha : float
        The penalty that will be chosen for n rows.
    limited : bool
        Whether float32 products will limit the answer.
    """

    error: float
    alpha: float
    limited: bool


class _Judged(NamedTuple):
    """The least squared error of a fit, its penalty, and whether float32 would limit it."""

    error: float
    alpha: float
    limited: bool


def foretell(phi: FeatureMap, rows: Rows, n_rows: int) -> Foretold:
    """Fit m rows, and half of them, and extrapolate to ``n_rows``: O(m D² + D³)."""
    m = len(rows.w)
    first, whole = _moments(phi, rows)
    looked = Rows(*(part[:LOOK_ROWS] for part in rows))
    now = _judged(whole, phi, looked, n_rows)
    if n_rows <= m:
        return Foretold(now.error**0.5, now.alpha, now.limited)
    before = _judged(first, phi, Rows(*(part[: m // 2] for part in looked)), n_rows)
    error = now.error - max(before.error - now.error, 0.0) * (1 - m / n_rows)
    power = float(np.clip(np.log2(now.alpha / before.alpha), 0.0, 1.0))
    alpha = now.alpha * (n_rows / m) ** power
    return Foretold(max(error, LEAST * now.error) ** 0.5, alpha, now.limited)


def wider(errors: Sequence[float], doublings: float) -> float:
    """Return the error at more features than were fitted.

    Parameters
    ----------
    errors : sequence of float
        At the widest that was fitted, at half of it and, if known, at a quarter.
    doublings : float
        Of the widest; infinity is the limit.

    Notes
    -----
    Each doubling takes from e² the part ρ of what the one before took: ρ as the three errors show
    it, at most ½, which is the law 1/D of random features.
    """
    squares = [error**2 for error in errors]
    steps = [narrow - wide for wide, narrow in pairwise(squares)]
    last = max(steps[0], 0.0)
    known = len(steps) > 1 and steps[1] > 0
    ratio = min(SLOWEST, last / steps[1]) if known else SLOWEST
    gain = last * ratio * (1 - ratio**doublings) / (1 - ratio)
    return float(max(squares[0] - gain, LEAST * squares[0]) ** 0.5)


def _moments(phi: FeatureMap, rows: Rows) -> tuple[Moments, Moments]:
    """Return the moments of half of the rows, and of all."""
    sums, half = Accumulator("float64"), len(rows.w) // 2
    for here in _blocks(0, half, phi):
        sums.add(_features(phi, rows.X[here]), rows.y[here], rows.w[here])
    first = sums.so_far()
    for here in _blocks(half, len(rows.w), phi):
        sums.add(_features(phi, rows.X[here]), rows.y[here], rows.w[here])
    return first, sums.moments()


def _blocks(start: int, stop: int, phi: FeatureMap) -> Iterator[slice]:
    size = block_rows(phi.n_features)
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def _features(phi: FeatureMap, X: Array) -> Float[Array, "m D"]:
    return phi(X.astype(np.float64, copy=False))


def _judged(moments: Moments, phi: FeatureMap, looked: Rows, n_rows: int) -> _Judged:
    eigen = decompose(moments)
    alphas = penalties(eigen)
    centred = (
        (
            _features(phi, looked.X[here]) - moments.feature_mean,
            looked.y[here] - moments.target_mean,
            looked.w[here],
        )
        for here in _blocks(0, len(looked.w), phi)
    )
    errors = leave_one_out(eigen, centred, alphas)[0]
    best = int(np.argmin(errors))
    resolved = FLOAT32_FLOOR * float(eigen.values[-1]) * n_rows / moments.rows
    at = np.interp(np.log([resolved, 2 * resolved]), np.log(alphas), errors)
    return _Judged(float(errors[best]), float(alphas[best]), bool(at[0] < at[1]))


def products_needed(
    kernel: Kernel, phi: FeatureMap, rows: Rows, alpha: float, n_rows: int
) -> tuple[int, int]:
    """Return how many cheap and how many exact products conjugate gradients will ask for.

    They are run on some of the rows, with the penalty in proportion: what the features leave of
    the kernel then has the same size beside it.
    """
    m = min(len(rows.w), TRIED_ROWS)
    return _steps(kernel, phi, Rows(*(part[:m] for part in rows)), alpha * m / n_rows)


def _steps(kernel: Kernel, phi: FeatureMap, rows: Rows, alpha: float) -> tuple[int, int]:
    """Solve for these rows; return steps, and exact residuals."""
    K = _centred(np.asarray(kernel(rows.X), np.float64))
    rough = K.astype(np.float32)
    alphas = np.full(rows.y.shape[1], alpha)
    system = System(
        lambda V: K @ V,
        lambda V: (rough @ V.astype(np.float32)).astype(np.float64),
        rows.y - rows.y.mean(axis=0),
        alphas,
        2 * float(np.sqrt(np.max(kernel.diag(rows.X)))),
        rows.y.std(axis=0),
    )
    Z = _features(phi, rows.X)
    Z = Z - Z.mean(axis=0)
    values, vectors = eigh(Z.T @ Z, driver="evd", check_finite=False)
    precondition = FeaturePreconditioner(Z, np.maximum(values, 0), vectors, alphas)
    found = solve_system(system, precondition, tol=TOLERANCE, ordered=bool(phi.below_kernel))
    return max(found.iterations, 1), len(found.history)


def _centred(K: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Return K without the direction that an intercept takes up."""
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1)[:, None]
