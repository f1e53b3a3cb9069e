"""Features of all rows, for the exact answer: they precondition it, and choose the penalty."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bochner._ground.arrays import is_sparse, to_numpy
from bochner._ground.blas import one_thread
from bochner._ground.blocks import Blocks
from bochner._ground.pieces import Piece, join, part
from bochner._ground.sampling import chosen_rows
from bochner._ground.shapes import Array, Float
from bochner.estimators.fitting import engine
from bochner.estimators.fitting.folds import N_FOLDS, fold_numbers
from bochner.features import FeatureMap
from bochner.kernels import Kernel
from bochner.moments import Accumulator, Moments, Precision
from bochner.solvers.direct import Eigen, decompose
from bochner.solvers.folds import kfold_errors
from bochner.solvers.ridge import Alpha, solve_ridge
from bochner.solvers.solution import Solution

__all__ = ["ALONE", "Prepared", "Rows", "gather", "peak", "prepare", "rounded"]

#: Rows that leave-one-out errors are computed for: all up to this, else so many at random.
MOST_LOO_ROWS = 8192

#: Share of a penalty that features may be rounded by.
ROUNDED = 0.01

#: Features that one thread chooses landmarks for, and whose Gram it decomposes: several gain
#: little, and where another process holds a processor they wait longer than one takes.
ALONE = 1024

#: Trace of the kernel matrix, in penalties and at all, up to which features of float32 are tried.
MOST_TRACE, LARGEST_TRACE = 1e7, 1e30


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of positive weight: X (n, d) float64 or CSR, y (n, t), w (n,), their numbers."""

    X: Any
    y: Float[Array, "n t"]
    w: Float[Array, " n"]
    number: Array

    @property
    def weight(self) -> float:
        return float(self.w.sum())


def gather(blocks: Blocks) -> Rows:
    """Return all rows; those of zero weight take no part."""
    pieces = []
    for block in blocks:
        n = block.X.shape[0]
        X = block.X if is_sparse(block.X) else to_numpy(block.X)
        y = to_numpy(block.y).astype(np.float64).reshape(n, -1)
        w = np.ones(n) if block.w is None else to_numpy(block.w).astype(np.float64)
        pieces.append(Piece(X.astype(np.float64, copy=False), y, w))
    X, y, w = join(pieces)
    kept = np.flatnonzero(w > 0)
    if len(kept) < len(w):
        X, y, w = part(Piece(X, y, w), kept)
    return Rows(X if is_sparse(X) else np.ascontiguousarray(X), y, w, kept)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Features of the rows about their means and weighted, and the ridge regression on them."""

    Z: Float[Array, "n r"]
    eigen: Eigen
    mean: Float[Array, " t"]
    solution: Solution


def prepare(model: Any, rows: Rows, alpha: Alpha) -> Prepared:
    """Make the features, and choose the penalty on them.

    They are of float32, in half of the time, where a penalty is given that they serve for.
    """
    Z, sums, moments, eigen = _single(model, rows, alpha) or _summed(model, rows, "float64")
    kfold = _kfold(model, rows, Z, sums) if alpha == "kfold" else None
    Z -= moments.feature_mean.astype(Z.dtype)
    solution = solve_ridge(
        eigen,
        (moments.feature_mean, moments.target_mean),
        alpha,
        _loo_rows(model, rows, Z, moments) if alpha == "loo" else (),
        kfold=kfold,
        per_target=model.alpha_per_target,
    )
    Z *= np.sqrt(rows.w).astype(Z.dtype)[:, None]
    return Prepared(Z, eigen, moments.target_mean, solution)


class _Summed(NamedTuple):
    """Features, their moments, the same about zero if there is no intercept, and eigenvalues."""

    Z: Float[Array, "n r"]
    sums: Moments
    moments: Moments
    eigen: Eigen


def _single(model: Any, rows: Rows, alpha: Alpha) -> _Summed | None:
    """Return all in float32; None where a penalty must be found, or is too small for it."""
    if isinstance(alpha, str):
        return None
    trace = peak(model.kernel_, rows) ** 2 * rows.weight
    if not trace <= min(MOST_TRACE * np.min(alpha), LARGEST_TRACE):
        return None
    found = _summed(model, rows, "float32")
    return found if _serves(found.eigen.values, alpha) else None


def _summed(model: Any, rows: Rows, precision: Precision) -> _Summed:
    Z, sums = _features(model.map_, rows, precision)
    moments = sums if model.fit_intercept else sums.about_zero()
    with one_thread() if Z.shape[1] <= ALONE else nullcontext():
        return _Summed(Z, sums, moments, decompose(moments, model.fit_intercept))


def _features(
    phi: FeatureMap, rows: Rows, precision: Precision
) -> tuple[Float[Array, "n r"], Moments]:
    """Return φ of all rows, and its moments."""
    size = engine.block_rows(phi.n_features)
    Z, sums = np.empty((len(rows.w), phi.n_features), precision), Accumulator(precision)
    for start in range(0, len(Z), size):
        here = slice(start, start + size)
        Z[here] = engine.as_features(phi, rows.X[here], precision)
        sums.add(Z[here], rows.y[here], rows.w[here])
    return Z, sums.moments()


def _loo_rows(
    model: Any, rows: Rows, Z: Array, moments: Moments
) -> Iterator[tuple[Array, Array, Array]]:
    n = len(Z)
    kept = chosen_rows(model.seed_, n, min(n, MOST_LOO_ROWS))
    for some in np.array_split(kept, max(1, len(kept) // engine.block_rows(Z.shape[1]))):
        yield Z[some], rows.y[some] - moments.target_mean, rows.w[some]


def _kfold(model: Any, rows: Rows, Z: Array, total: Moments) -> Any:
    numbers = fold_numbers(model.seed_, 0, int(rows.number[-1]) + 1)[rows.number]
    own = [numbers == k for k in range(N_FOLDS)]
    folds = [Moments.of(Z[k], rows.y[k], rows.w[k]) for k in own if k.any()]
    return lambda alphas: kfold_errors(total, folds, alphas, model.fit_intercept)


def rounded(Z: Array, values: Array, alphas: Array) -> Array:
    """Return Z in float32, where what that changes of ZZᵀ is little beside the penalties."""
    return Z.astype(np.float32, copy=False) if _serves(values, alphas) else Z


def _serves(values: Array, alphas: Any) -> bool:
    """Whether float32 changes little of ZZᵀ, which has these eigenvalues, beside the penalties."""
    rounding = np.finfo(np.float32).eps * values.max(initial=0.0)
    return bool(rounding <= ROUNDED * np.min(alphas))


def peak(kernel: Kernel, rows: Rows) -> float:
    """Return the largest √k(x, x) of the rows."""
    return float(np.sqrt(np.max(kernel.diag(rows.X))))
