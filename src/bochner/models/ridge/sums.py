"""Sums over all rows for ridge regression: in which precision, and what is whitened when.

A model here has what :mod:`bochner.models.ridge.normal` reads.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bochner._core.shapes import Array
from bochner._core.sizes import LOOK_ROWS, long_sweep, sums_first
from bochner.data.blocks import Blocks
from bochner.data.sample import Keeper, RowSample
from bochner.features.landmarks import Given
from bochner.features.nystrom import COARSE, Nystrom, NystromMap
from bochner.models import _engine
from bochner.models._folds import sweep_folds, total_of
from bochner.solvers.ridge.eigen import FLOAT32_FLOOR
from bochner.solvers.ridge.leave_one_out import limited
from bochner.solvers.ridge.path import as_alpha, least_alpha
from bochner.sums.moments import Moments, Precision

#: A penalty this many times above what float32 resolves is taken to stay above it.
SURE = 30.0


def sum_up(model: Any, blocks: Blocks, precision: Precision | None = None) -> Keeper:
    """Sum up all rows as precision and penalty ask for; return the rows that were kept.

    Sets ``moments_``, ``folds_`` and ``feature_dtype_``. A ``precision`` given is that of all.
    """
    asked = "float64" if least_norm(model) and model.precision == "auto" else model.precision
    model.feature_dtype_ = precision or _engine.feature_dtype(asked, blocks.n_rows, model.map_)
    if precision is None and asked == "auto" and _sums_first(model, blocks.n_rows):
        _set_jitter(model, COARSE)
    return _sweep(model, blocks)


def sum_again(model: Any, blocks: Blocks) -> None:
    """Sum up all rows again, in float64, each whitened by itself."""
    _set_jitter(model, None)
    _add_up(model, blocks, "float64", None)


def least_norm(model: Any) -> bool:
    """Whether there is no penalty."""
    return least_alpha(as_alpha(model.alpha)) == 0


def by_folds(model: Any) -> bool:
    """Whether each fold has moments of its own."""
    return isinstance(model.alpha, str) and model.alpha == "kfold"


def _sweep(model: Any, blocks: Blocks) -> Keeper:
    """Sum up all rows; in float64 where method="auto" or a quarter of them shows the need."""
    dtype, keeper = model.feature_dtype_, Keeper(model.seed_)
    coarse = dtype == "float32" or _jitter(model) is not None
    asks = _asks_float64(model)
    if model.precision == "auto" and coarse and asks is not False and _many(model, blocks.n_rows):
        if asks is None:
            stop = partial(_limited, model, keeper, blocks)
            moments = _engine.sweep_unless(stop, model.map_, blocks, dtype, dtype, keeper)
            if moments is not None:
                model.moments_ = moments
                return keeper
        _set_jitter(model, None)
        dtype, keeper = "float64", Keeper(model.seed_)
    _add_up(model, blocks, dtype, keeper)
    return keeper


def _add_up(model: Any, blocks: Blocks, precision: Precision, keeper: Keeper | None) -> None:
    phi, dtype = model.map_, model.feature_dtype_
    if by_folds(model):
        model.folds_ = sweep_folds(phi, blocks, dtype, precision, model.seed_, keeper)
        model.moments_ = total_of(model.folds_)
    else:
        model.moments_ = _engine.sweep(phi, blocks, dtype, precision, keeper)


def _sums_first(model: Any, n: int | None) -> bool:
    """Whether sums of kernel values are whitened in the place of rows.

    Maps of landmarks that are given stay as they are: of other rows they are to be the same.
    """
    phi, method = model.map_, model.choice_.method
    if not isinstance(phi, NystromMap) or model.feature_dtype_ != "float64":
        return False
    drawn = isinstance(method, Nystrom) and not isinstance(method.landmarks, Given)
    if not drawn or n is None or by_folds(model):
        return False
    return sums_first(n, phi.n_features) and not _asks_float64(model)


def _asks_float64(model: Any) -> bool | None:
    """Whether method="auto" has seen that float32 will not resolve the penalty; None: unsure.

    On a part of the rows and of the width it lies higher, with much noise by up to thirty times.
    """
    penalty = model.choice_.penalty if as_alpha(model.alpha) == "loo" else None
    if penalty is None or FLOAT32_FLOOR <= penalty < SURE * FLOAT32_FLOOR:
        return None
    return penalty < FLOAT32_FLOOR


def _jitter(model: Any) -> float | None:
    return model.map_.jitter if isinstance(model.map_, NystromMap) else None


def _set_jitter(model: Any, jitter: float | None) -> None:
    if _jitter(model) != jitter:
        model.map_ = model.map_.with_jitter(jitter)
        model.choice_ = replace(model.choice_, map=model.map_)


def _many(model: Any, n: int | None) -> bool:
    """Whether the sweep is long beside a forecast, and there is something to foretell."""
    return n is not None and long_sweep(n, model.map_.n_features) and not by_folds(model)


def _limited(model: Any, keeper: Keeper, blocks: Blocks, first: Moments) -> bool:
    """Whether float32 products will limit the answer, as far as the first rows tell."""
    moments = seen(model, first)
    rows = centred_rows(model, moments, keeper.sample.lowest(LOOK_ROWS))
    alpha = least_alpha(as_alpha(model.alpha))
    return limited(moments, _engine.count_rows(blocks), alpha, rows)


def seen(model: Any, moments: Moments) -> Moments:
    """Return moments about the means, or about zero where there is no intercept."""
    return moments if model.fit_intercept else moments.about_zero()


def centred_rows(
    model: Any, moments: Moments, sample: RowSample
) -> Iterator[tuple[Array, Array, Array]]:
    """Give the rows' features and targets about the means, a block at a time."""
    for rows in pieces(model, sample):
        Z = _engine.as_features(model.map_, rows.X, model.feature_dtype_)
        centred = Z - moments.feature_mean.astype(Z.dtype)
        if moments.precision == "float32":
            centred = centred.astype(np.float32, copy=False)
        yield centred, rows.y - moments.target_mean, rows.w


def pieces(model: Any, sample: RowSample) -> Iterator[RowSample]:
    """Give the rows of a sample a block at a time."""
    size = _engine.block_rows(model.map_.n_features)
    for start in range(0, len(sample), size):
        yield sample.take(np.arange(start, min(start + size, len(sample))))
