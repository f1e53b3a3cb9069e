"""Transformations of skewed columns and of columns with outliers, where they predict better.

Candidates are compared by leave-one-out errors on a sample of rows, with the same random features
at lengthscales from the median distance down, in half a second.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from bochner._core.arrays import is_sparse
from bochner._core.progress import progress
from bochner._core.shapes import Array, Float
from bochner.data.sample import RowSample
from bochner.features.auto import left_out
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import Orthogonal
from bochner.features.map import Request
from bochner.features.rules import draw_map
from bochner.kernels.stationary import Gaussian
from bochner.selection.record import Curves
from bochner.selection.rows import median_scales, times
from bochner.solvers.ridge.solution import NO_ERROR, best_of

POINTS, FEWEST_ROWS = 33, 100  # Points of a curve, and least number of rows for a distribution


def choose_curves(rows: RowSample, seed: int) -> Curves | None:
    """Return the transformation that predicts best; None if no transformation is better.

    Targets of classes are their indicators. Eight errors, of O(n D²) with n ≤ 1024 and D = 256
    each: a tenth of a second.
    """
    few = len(rows) < FEWEST_ROWS or rows.X.shape[1] > 512
    if few or is_sparse(rows.X) or not rows.y.shape[1] or not np.any(np.ptp(rows.y, axis=0)):
        return None
    columns = _skewed(rows.X)
    if not columns:
        return None
    judged = rows.lowest(1024)
    progress("Choosing transformations of skewed columns", f"{len(columns)} columns")
    error = _error_near_median(judged, seed)
    first = min((error(k, -2), k, -2) for k in (0, 1))
    as_given, which, step = min(first, *((error(first[1], s), first[1], s) for s in (-4, 0)))
    tried = []
    for name in _SHAPES:
        if (curves := _candidate(name, rows.X, columns)) is not None:
            bent = _error_near_median(replace(judged, X=curves.inputs(judged.X)), seed)
            tried.append((bent(which, step), curves, bent))
    if not tried:
        return None
    least, best, bent = min(tried, key=lambda each: each[0])
    least = min(least, bent(which, step - 2))
    if not least < 0.97 * as_given:
        return None
    return replace(best, gain=round(1 - least / as_given, 3))


def _skewed(X: Float[Array, "n d"]) -> tuple[int, ...]:
    """Return the columns of quantities whose distribution is skewed or has heavy tails."""
    X = np.asarray(X, np.float64)
    centred = X - X.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    z = centred / np.where(spread > 0, spread, 1.0)
    odd = (np.abs((z**3).mean(axis=0)) > 1) | ((z**4).mean(axis=0) - 3 > 6)
    return tuple(int(j) for j in np.flatnonzero(odd) if len(np.unique(X[:FEWEST_ROWS, j])) > 2)


def _error_near_median(rows: RowSample, seed: int) -> Callable[[int, int], float]:
    """Return the leave-one-out error of features as a function of kind and steps of √2.

    The kind is 0 for one lengthscale and 1 for one per column; steps start at the median distance.
    """
    starts = median_scales(rows, False, seed, most=4096)
    X = rows.X.astype(np.float64, copy=False)

    @cache
    def error(which: int, step: int) -> float:
        kernel = Gaussian(times(starts[min(which, len(starts) - 1)], 2.0 ** (step / 2)))
        phi = draw_map(Fourier(Orthogonal()), kernel, Request(X.shape[1], 256, seed))
        errors = left_out(phi.features(X), rows.y, rows.w)
        # Errors are rounded by this share times the penalty per row: at penalties of 1.4e-12 those
        # of 15 rows differ by 2 % between processors.
        rounding = 256 * np.finfo(np.float64).eps * errors.moments.weight / errors.alphas
        best = best_of(errors.errors * (1 + rounding), "loo")
        floor = NO_ERROR * float(errors.moments.power.max()) / errors.moments.weight
        return max(float(errors.errors[best]), floor)

    return error


# --- Shapes of curves ----------------------------------------------------------------------------


def _candidate(name: str, X: Float[Array, "n d"], columns: tuple[int, ...]) -> Curves | None:
    """Return curves of one shape through quantiles of each column, with its deviation."""
    kept, points, values = [], [], []
    for j in columns:
        x = np.asarray(X[:, j], np.float64)
        at = np.unique(np.quantile(x, np.linspace(0, 1, POINTS)))
        at = np.array([float(f"{p:.6g}") for p in at])  # digits that all processors agree on
        at = at[np.append(True, np.diff(at) > 0)]
        if len(at) < 3:
            continue
        at = _with_ends(at)
        if name != "quantiles":  # curves are smooth where rows are few
            at = np.unique(np.concatenate([at, np.linspace(at[0], at[-1], POINTS)]))
        kept.append(j)
        points.append(tuple(at.tolist()))
        values.append(tuple(_scaled(x, at, _SHAPES[name](x, at)).tolist()))
    return Curves(name, tuple(kept), tuple(points), tuple(values)) if kept else None


def _with_ends(at: Float[Array, " p"]) -> Float[Array, " q"]:
    """Return the points with more points in the first and the last step.

    The first and the last step are halved until they are about as short as the others.
    """
    first, last, inner = at[1] - at[0], at[-1] - at[-2], at[-2] - at[1]
    ratio = POINTS * max(first, last) / inner if inner > 0 else 1.0
    halves = 0.5 ** np.arange(1, 1 + np.ceil(np.log2(max(ratio, 1.0))))
    return np.unique(np.concatenate([at, at[1] - first * halves, at[-2] + last * halves]))


def _scaled(
    x: Float[Array, " n"], at: Float[Array, " p"], values: Float[Array, " p"]
) -> Float[Array, " p"]:
    """Return the curve scaled to the standard deviation of the column, rounded to six digits."""
    spread = _deviation(np.interp(x, at, values))
    factor = _deviation(x) / spread if spread > 0 else 1.0
    scaled = np.array([float(f"{v:.6g}") for v in values * factor])
    return np.maximum.accumulate(scaled)


def _deviation(x: Float[Array, " n"]) -> float:
    """Return the standard deviation of the numbers, clipped: one in a hundred may be wrong."""
    inner = float(np.std(np.clip(x, *np.quantile(x, [0.01, 0.99]))))
    return inner if inner > 0 else float(np.std(x))


def _logarithms(x: Float[Array, " n"], at: Float[Array, " p"]) -> Float[Array, " p"]:
    """Take logarithms of the distance from the dense end of the column."""
    sign = 1.0 if np.mean((x - x.mean()) ** 3) >= 0 else -1.0
    crowded = sign * x
    low = float(crowded.min())
    unit = max(float(np.quantile(crowded, 0.25)) - low, 0.05 * _deviation(x))
    return sign * np.log1p(np.maximum(sign * at - low, 0.0) / unit)


def _quantiles(x: Float[Array, " n"], at: Float[Array, " p"]) -> Float[Array, " p"]:
    """Replace each number by its normal score, the normal quantile of its rank."""
    from scipy.special import ndtri  # noqa: PLC0415

    ordered = np.sort(x)
    rank = (np.searchsorted(ordered, at, "left") + np.searchsorted(ordered, at, "right")) / 2
    share = np.clip(rank / len(x), 0.5 / len(x), 1 - 0.5 / len(x))
    return np.asarray(ndtri(share))


def _clipped(x: Float[Array, " n"], at: Float[Array, " p"]) -> Float[Array, " p"]:
    """Clip smoothly at three deviations, estimated from the quartiles: u/√(1 + u²/9)."""
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75])
    unit = (high - low) / 1.349 or _deviation(x)
    u = (at - middle) / unit
    return u / np.sqrt(1 + (u / 3) ** 2)


_SHAPES = {"logarithms": _logarithms, "quantiles": _quantiles, "clipped": _clipped}
