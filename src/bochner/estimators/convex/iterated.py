"""What learners share that sweep their features again and again: features, rows, predictions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bochner._ground.arrays import from_numpy, to_numpy
from bochner._ground.blocks import Blocks
from bochner._ground.checks import integer, positive
from bochner._ground.shapes import Array, Float
from bochner._ground.warned import warn_user
from bochner.errors import InvalidInput
from bochner.estimators.fitting import engine
from bochner.estimators.fitting.feature_blocks import Features, weights_of
from bochner.estimators.fitting.inputs import required_targets
from bochner.solvers.optimum import Convergence

__all__ = [
    "check_steps",
    "fitted_blocks",
    "prepare",
    "rows_of",
    "shaped",
    "spread_of",
    "targets_of",
    "warn",
]


def check_steps(model: Any) -> None:
    """Check the parameters of precision and of the descent."""
    who = type(model).__name__
    engine.check_precision(model)
    positive(model.tol, who, "tol")
    integer(model.max_iter, who, "max_iter", 1)


def prepare(model: Any, blocks: Blocks, alpha: float | None = None) -> Features:
    """Draw the map of a learner of numbers, and return the features of its rows.

    ``alpha`` is the penalty where it is given, as of ridge regression: lengthscale and width are
    then chosen for it.
    """
    check_steps(model)
    engine.choose(model, blocks, share=engine.share_of(model, blocks, alpha))
    model.feature_dtype_ = engine.feature_dtype(model.precision, blocks.n_rows, model.map_)
    return Features(model.map_, blocks, model.feature_dtype_)


def spread_of(blocks: Blocks) -> float:
    """Return the mean of |y − median| in the first rows: what an absolute error weighs."""
    y = next(iter(blocks)).y
    y = np.zeros(1) if y is None else to_numpy(y).astype(np.float64)
    return float(np.abs(y - np.median(y, axis=0)).mean()) or 1.0


def rows_of(model: Any, features: Features) -> tuple[Array, Float[Array, "n 1"]]:
    """Return y as it comes (None without targets) and the weights, by the first pass."""
    ys: list[Array] = []
    ws: list[Array] = []
    for block in features:
        ys.append(block.y)
        ws.append(weights_of(block))
    w = np.concatenate(ws)
    if not w.sum() > 0:
        raise InvalidInput(
            f"{type(model).__name__}: at least one row with a positive weight is required; got "
            f"{len(w)} rows of weight 0."
        )
    y = None if ys[0] is None else np.concatenate(ys).astype(np.float64)
    return y, w[:, None]


def targets_of(model: Any, features: Features) -> tuple[Float[Array, "n t"], Float[Array, "n 1"]]:
    """Return targets and weights by the first pass; ``target_shape_`` is that of a row of y."""
    y, w = rows_of(model, features)
    y = required_targets(type(model).__name__, y)
    model.target_shape_ = tuple(y.shape[1:])
    return y.reshape(len(y), -1), w


def fitted_blocks(model: Any, blocks: Blocks) -> Iterator[tuple[Array, Float[Array, "b t"]]]:
    """Give the rows X and Zβ + b of one block after the other."""
    check_is_fitted(model)
    for block in blocks.with_rows(engine.block_rows(model.map_.n_features)):
        Z = to_numpy(engine.as_features(model.map_, block.X, model.feature_dtype_))
        yield block.X, Z @ model.solution_.coef + model.solution_.intercept


def shaped(fitted: Float[Array, "b t"], shape: tuple[int, ...], like: Array) -> Array:
    """Return predictions in the shape of y and the array library of X."""
    return from_numpy(np.ascontiguousarray(fitted.reshape(len(fitted), *shape)), like=like)


def warn(outcome: Convergence) -> None:
    """Warn where something needs to be done."""
    if not outcome.good:
        warn_user(str(outcome))
